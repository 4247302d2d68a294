/* Parameters on servers: bsp against the algorithm direct, asp with one worker against plain
 * updates, and the bound of ssp by a checker that reads logs only. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/byte_split.h"
#include "kolo/parameters.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1003, STEPS = 12, WORKERS = 3 };

/* ---- optimizers ---- */

typedef enum optimizer { SGD, MOMENTUM, ADAM, OPTIMIZERS } optimizer;

typedef struct moments {
    optimizer kind;
    float m[COUNT], v[COUNT];
} moments;

/* Updates elements [first, first + n) of the whole vector; step from 0. */
static void step_values(moments *s, size_t first, size_t n, float *values, const float *gradient,
                        uint64_t step) {
    float t = (float)step + 1;
    for (size_t i = 0; i < n; i++) {
        float g = gradient[i], *m = &s->m[first + i], *v = &s->v[first + i];
        if (s->kind == SGD) {
            values[i] -= 0.1F * g;
        } else if (s->kind == MOMENTUM) {
            *m = 0.9F * *m + g;
            values[i] -= 0.1F * *m;
        } else {
            *m = 0.9F * *m + 0.1F * g;
            *v = 0.999F * *v + 0.001F * g * g;
            float a = *m / (1 - powf(0.9F, t)), b = *v / (1 - powf(0.999F, t));
            values[i] -= 0.01F * a / (sqrtf(b) + 1e-8F);
        }
    }
}

static void update(void *arg, const kolo_parameters_update *u) {
    step_values(arg, u->first, u->count, u->values, u->gradient, u->version);
}

static void gradient_of(int worker, int step, const float *values, float *gradient) {
    for (int i = 0; i < COUNT; i++) {
        float target = (float)((i * 7 + worker * 13 + step * 3) % 101) / 50 - 1;
        gradient[i] = (values[i] - target) / WORKERS;
    }
}

static void initial_values(float *values) {
    for (int i = 0; i < COUNT; i++) values[i] = (float)(i % 17) / 8 - 1;
}

/* ---- bsp ---- */

typedef struct scheme {
    optimizer kind;
    int servers;
    bool registered, shared;
    int buckets;
} scheme;

/* Compares each step with an allreduce of the algorithm direct and a local update. Ranks that only
 * serve add zeros last, which changes no bit. */
static kolo_status compare(kolo_comm *comm, const scheme *s, kolo_parameters *p, float *memory) {
    static _Thread_local moments own;
    static _Thread_local float expected[COUNT];
    float *values = memory, *gradient = memory + COUNT, *sum = memory + (size_t)2 * COUNT;
    int rank = kolo_comm_rank(comm);
    bool direct = strcmp(kolo_comm_transport(comm), "tcp") != 0;
    own = (moments){.kind = s->kind};
    initial_values(expected);
    for (int step = 0; step < STEPS; step++) {
        memset(sum, 0, COUNT * sizeof(float));
        if (kolo_parameters_works(p)) {
            KOLO_TRY(kolo_parameters_pull(p, values));
            if (memcmp(values, expected, sizeof expected) != 0) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "step %d, optimizer %d: other bits", step,
                                 (int)s->kind);
            }
            gradient_of(rank, step, values, gradient);
            memcpy(sum, gradient, COUNT * sizeof(float));
            KOLO_TRY(kolo_parameters_push(p, gradient));
        }
        if (direct) {
            kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                   .output = sum,
                                   .count = COUNT,
                                   .dtype = KOLO_DTYPE_F32,
                                   .algorithm = KOLO_ALGORITHM_DIRECT};
            KOLO_TRY(kolo_request_run(comm, &o, 0));
        } else {
            static _Thread_local float other[COUNT];
            gradient_of(0, step, expected, sum);
            for (int w = 1; w < WORKERS; w++) {
                gradient_of(w, step, expected, other);
                KOLO_TRY(kolo_combine(sum, other, COUNT, KOLO_DTYPE_F32, KOLO_SUM));
            }
        }
        step_values(&own, 0, COUNT, expected, sum, (uint64_t)step);
    }
    return KOLO_OK;
}

static kolo_status bsp_body(kolo_comm *comm, const void *arg, void *result) {
    const scheme *s = arg;
    static _Thread_local moments owned, followed;
    static _Thread_local float initial[COUNT], private_memory[3 * COUNT];
    void *memory;
    kolo_parameters *p;
    owned = followed = (moments){.kind = s->kind};
    initial_values(initial);
    KOLO_TRY(kolo_comm_alloc(comm, sizeof private_memory, &memory));
    kolo_parameters_opts opts = {.servers = s->servers,
                                 .shared = s->shared,
                                 .buckets = s->buckets,
                                 .replicas = s->servers > 1 && !s->shared,
                                 .update = update,
                                 .arg = &owned,
                                 .replica_arg = &followed};
    KOLO_TRY(
        kolo_parameters_create(comm, kolo_comm_rank(comm) == 0 ? initial : NULL, COUNT, &opts, &p));
    kolo_status status = compare(comm, s, p, s->registered ? memory : private_memory);
    kolo_parameters_stats stats;
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (status == KOLO_OK && kolo_parameters_stats_get(p, &stats) == KOLO_OK) {
        bool right = stats.largest == 0 && stats.reads[0] == WORKERS * STEPS && stats.lost == 0;
        if (!right) status = KOLO_FAIL(KOLO_ERR_FORMAT, "%d reads", (int)stats.reads[0]);
    }
    kolo_parameters_destroy(p);
    return status;
}

/* Also with replicas. */
static void bsp_equals_direct_bitwise(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (int t = 0; t < 3; t++) {
        for (int k = 0; k < OPTIMIZERS; k++) {
            scheme s = {.kind = (optimizer)k,
                        .servers = k == SGD    ? 1
                                   : k == ADAM ? 2
                                               : 0,
                        .registered = k != MOMENTUM};
            ASSERT_OK(run_ranks(WORKERS + s.servers, transports[t], bsp_body, &s, sizeof s));
        }
    }
}

/* Between a ring and servers: each bucket has parts of the workers and of the servers. */
static void shared_parts_keep_the_bits(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (int servers = 0; servers <= 4; servers++) {
        const scheme s = {.kind = servers % 2 ? ADAM : MOMENTUM,
                          .servers = servers,
                          .registered = servers != 1,
                          .shared = servers > 0,
                          .buckets = servers == 4 ? 1 : 7};
        ASSERT_OK(run_ranks(WORKERS + servers, transports[servers % 3], bsp_body, &s, sizeof s));
    }
}

static void add(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

/* Rank 0 ends after its push, without a pull: all buckets have it. */
static kolo_status last_push_body(kolo_comm *comm, const void *arg, void *result) {
    enum { LAST_COUNT = 100 };
    const int rank = kolo_comm_rank(comm), *buckets = arg;
    float values[LAST_COUNT] = {0}, gradient[LAST_COUNT];
    kolo_parameters *p;
    const kolo_parameters_opts opts = {.buckets = *buckets, .update = add};
    for (int i = 0; i < LAST_COUNT; i++) gradient[i] = (float)(rank + 1);
    KOLO_TRY(kolo_parameters_create(comm, values, LAST_COUNT, &opts, &p));
    kolo_status status = kolo_parameters_push(p, gradient);
    if (status == KOLO_OK && rank == 0) status = kolo_parameters_finish(p);
    if (status == KOLO_OK && rank > 0) status = kolo_parameters_pull(p, values);
    for (int i = 0; i < LAST_COUNT && rank > 0 && status == KOLO_OK; i++) {
        if (values[i] == 3) continue;
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "value %d is %g, not 3", i, (double)values[i]);
    }
    kolo_parameters_destroy(p);
    return status;
}

static void a_push_needs_no_pull(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    static const int buckets[] = {1, 3, 9};
    for (int t = 0; t < 3; t++) {
        ASSERT_OK(run_ranks(2, transports[t], last_push_body, &buckets[t], sizeof buckets[t]));
        ASSERT_OK(run_ranks(2, transports[t], last_push_body, &buckets[2], sizeof buckets[2]));
    }
}

/* ---- bytes ---- */

enum { LAW_COUNT = 1 << 18, LAW_BUCKETS = 4, LAW_STEPS = 3 };

/* What a rank sends and receives in a step, in vectors: each within 1 % of the byte split. */
static kolo_status count_bytes(kolo_comm *comm, int servers, float *values, const float *gradient) {
    const int rank = kolo_comm_rank(comm);
    const double n = WORKERS, k = servers, d = n * n + k * n - 2 * k;
    const double expected = rank < WORKERS ? 1 + (n - 2) * (n - k) / d : n * 2 * (n - 1) / d;
    uint64_t sent[2], received[2];
    kolo_parameters *p;
    const kolo_parameters_opts opts = {
        .servers = servers, .shared = servers > 0, .buckets = LAW_BUCKETS, .update = add};
    KOLO_TRY(kolo_parameters_create(comm, values, LAW_COUNT, &opts, &p));
    kolo_parameters_traffic(p, &sent[0], &received[0]);
    kolo_status status = kolo_barrier(comm);
    for (int step = 0; kolo_parameters_works(p) && step < LAW_STEPS && status == KOLO_OK; step++) {
        status = kolo_parameters_push(p, gradient);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, values);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    const double all = (double)LAW_STEPS * LAW_COUNT * sizeof(float);
    kolo_parameters_traffic(p, &sent[1], &received[1]);
    for (int i = 0; i < 1000 && (double)(sent[1] - sent[0]) < all * expected; i++) {
        kolo_sleep_ns(1000000); /* they are counted when sent */
        kolo_parameters_traffic(p, &sent[1], &received[1]);
    }
    const double out = (double)(sent[1] - sent[0]) / all / expected;
    const double in = (double)(received[1] - received[0]) / all / expected;
    if (status == KOLO_OK && (out < 1 || out > 1.01 || in < 1 || in > 1.01)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d, %d servers: %.4f and %.4f of the split", rank,
                           servers, out, in);
    }
    kolo_parameters_destroy(p);
    return status;
}

static kolo_status traffic_body(kolo_comm *comm, const void *arg, void *result) {
    float *both = kolo_zalloc(2 * LAW_COUNT * sizeof *both);
    if (!both) return KOLO_NOMEM(2 * LAW_COUNT * sizeof *both);
    kolo_status status = count_bytes(comm, *(const int *)arg, both, both + LAW_COUNT);
    kolo_free(both);
    return status;
}

static void bytes_follow_the_split(void **state) {
    for (int servers = 0; servers <= 3; servers++) {
        ASSERT_OK(run_ranks(WORKERS + servers, RANKS_TCP, traffic_body, &servers, sizeof servers));
    }
}

/* The shares of equally long busy links, of 1,000 groups. */
static void the_split_fills_all_links(void **state) {
    for (int n = 2; n <= 32; n++) {
        for (int k = 0; k <= 32; k++) {
            const kolo_byte_split split = {.workers = n, .servers = k};
            const double all = (double)kolo_byte_split_total(split);
            const double worker = (double)kolo_byte_split_before(split, 1) / all;
            const double server = k > 0 ? (double)(kolo_byte_split_total(split) -
                                                   kolo_byte_split_before(split, n + k - 1)) /
                                              all
                                        : 0;
            const double of_worker = 1 + (n - 2) * worker, of_server = n * server;
            assert_float_equal(n * worker + k * server, 1, 1e-12);
            if (k > 0 && k <= n) assert_float_equal(of_worker, of_server, 1e-12);
            if (k > n) assert_true(worker == 0 && of_server < of_worker);
            if (k == 0) assert_float_equal(of_worker, 2.0 * (n - 1) / n, 1e-12); /* a ring's */
        }
    }
    for (int i = 0; i < 1000;
         i++) { /* where the workers of a host push together, hosts have links */
        const int n = 2 + i % 10, each = 1 + i / 10 % 5, k = i / 50;
        const kolo_byte_split hosts = {.workers = n * each, .servers = k, .hosts = n};
        const kolo_byte_split one = {.workers = n, .servers = k};
        const double all = (double)kolo_byte_split_total(hosts),
                     of = (double)kolo_byte_split_total(one);
        for (int r = 0; r <= n + k; r++) {
            const int at = r <= n ? r * each : n * each + r - n;
            assert_float_equal((double)kolo_byte_split_before(hosts, at) / all,
                               (double)kolo_byte_split_before(one, r) / of, 1e-12);
        }
    }
    assert_int_equal(kolo_byte_split_part((uint64_t)1 << 40, 3, 7), ((uint64_t)3 << 40) / 7);
}

/* ---- asp with one worker ---- */

static kolo_status alone_body(kolo_comm *comm, const void *arg, void *result) {
    static _Thread_local moments owned, own;
    static _Thread_local float values[COUNT], gradient[COUNT], expected[COUNT];
    kolo_parameters *p;
    owned = own = (moments){.kind = ADAM};
    initial_values(expected);
    kolo_parameters_opts opts = {
        .servers = 1, .staleness = KOLO_STALENESS_ANY, .update = update, .arg = &owned};
    KOLO_TRY(kolo_parameters_create(comm, expected, COUNT, &opts, &p));
    kolo_status status = KOLO_OK;
    for (int step = 0; kolo_parameters_works(p) && step < STEPS && status == KOLO_OK; step++) {
        status = kolo_parameters_pull(p, values);
        if (status == KOLO_OK && memcmp(values, expected, sizeof values) != 0) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "step %d", step);
        }
        gradient_of(0, step, expected, gradient);
        step_values(&own, 0, COUNT, expected, gradient, (uint64_t)step);
        if (status == KOLO_OK) status = kolo_parameters_push(p, gradient);
        if (status == KOLO_OK && kolo_parameters_push(p, gradient) != KOLO_ERR_ARG) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "two pushes in a row");
        }
    }
    kolo_parameters_destroy(p);
    return status;
}

static void asp_with_one_worker_is_plain_training(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_SHM, alone_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, alone_body, NULL, 0));
}

/* ---- the bound ---- */

enum { RACE_STEPS = 30, ANY_REACHED = 5, EVENTS_MAX = 2 * WORKERS * RACE_STEPS + 8 };

/* What an owner has logged. */
typedef struct event {
    int worker;
    bool read;
    int clock;
} event;

typedef struct events {
    int n;
    event list[EVENTS_MAX];
    kolo_parameters_stats stats;
} events;

static void no_update(void *arg, const kolo_parameters_update *u) { u->values[0] += 1; }

static void observe(void *arg, const kolo_parameters_event *e) {
    events *log = arg;
    if (log->n < EVENTS_MAX) {
        log->list[log->n++] = (event){.worker = e->worker, .read = e->read, .clock = (int)e->clock};
    }
}

/* Before its first push worker 0 waits until the others have read at the clock of the bound; later
 * one worker is slow, so that the others could run ahead. */
static kolo_status meet(kolo_comm *comm, int step, int bound) {
    char byte = 0;
    int reached = bound == KOLO_STALENESS_ANY ? ANY_REACHED : bound;
    if (kolo_comm_rank(comm) != 0) {
        return step == reached ? kolo_send(comm, &byte, 1, KOLO_DTYPE_U8, 0, 0) : KOLO_OK;
    }
    for (int w = 1; step == 0 && w < WORKERS; w++) {
        KOLO_TRY(kolo_recv(comm, &byte, 1, KOLO_DTYPE_U8, w, 0));
    }
    return KOLO_OK;
}

static kolo_status race_body(kolo_comm *comm, const void *arg, void *result) {
    events *log = result;
    float values[8] = {0}, gradient[8] = {0};
    kolo_parameters *p;
    int rank = kolo_comm_rank(comm);
    kolo_parameters_opts opts = {
        .staleness = *(const int *)arg, .update = no_update, .observe = observe, .arg = log};
    KOLO_TRY(kolo_parameters_create(comm, values, 8, &opts, &p));
    kolo_status status = KOLO_OK;
    for (int step = 0; step < RACE_STEPS && status == KOLO_OK; step++) {
        status = kolo_parameters_pull(p, values);
        if (status == KOLO_OK) status = meet(comm, step, opts.staleness);
        int slow = step < RACE_STEPS / 2 ? 0 : 1;
        if (rank == slow) kolo_sleep_ns(2000000);
        if (status == KOLO_OK) status = kolo_parameters_push(p, gradient);
    }
    if (status == KOLO_OK) status = kolo_parameters_pull(p, values);
    if (status == KOLO_OK) status = kolo_barrier(comm); /* so that no worker has finished before */
    if (status == KOLO_OK) status = kolo_parameters_stats_get(p, &log->stats);
    kolo_parameters_destroy(p);
    return status;
}

/* The independent checker: counts pushes itself, and returns the largest staleness of a read. */
static int check_log(const events *log) {
    int pushes[WORKERS] = {0}, reads[WORKERS] = {0}, largest = 0;
    uint64_t bins[KOLO_STALENESS_BINS] = {0};
    for (int i = 0; i < log->n; i++) {
        const event *e = &log->list[i];
        assert_int_equal(e->clock, pushes[e->worker]); /* reads its own writes, pushes in order */
        if (!e->read) {
            pushes[e->worker]++;
            continue;
        }
        int least = pushes[0];
        for (int w = 1; w < WORKERS; w++) least = pushes[w] < least ? pushes[w] : least;
        int stale = e->clock - least;
        largest = stale > largest ? stale : largest;
        bins[stale < KOLO_STALENESS_BINS ? stale : KOLO_STALENESS_BINS - 1]++;
        reads[e->worker]++;
    }
    for (int w = 0; w < WORKERS; w++) {
        assert_int_equal(pushes[w], RACE_STEPS);
        assert_int_equal(reads[w], RACE_STEPS + 1);
    }
    assert_memory_equal(bins, log->stats.reads, sizeof bins);
    assert_int_equal(log->stats.largest, largest);
    return largest;
}

static void a_bound_is_reached_and_kept(void **state) {
    static const int bounds[] = {0, 1, 3, KOLO_STALENESS_ANY};
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_TCP};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < 4; i++) {
            static events logs[WORKERS];
            memset(logs, 0, sizeof logs);
            rank_job job = {.n = WORKERS,
                            .transport = transports[t],
                            .body = race_body,
                            .arg = &bounds[i],
                            .arg_bytes = sizeof bounds[i],
                            .results = logs,
                            .result_bytes = sizeof logs[0]};
            ASSERT_OK(run_rank_job(&job));
            for (int r = 0; r < WORKERS; r++) {
                int largest = check_log(&logs[r]);
                if (bounds[i] == KOLO_STALENESS_ANY) {
                    assert_true(largest >= ANY_REACHED);
                } else {
                    assert_int_equal(largest, bounds[i]);
                }
            }
        }
    }
}

/* ---- options ---- */

static kolo_status invalid_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_parameters *p;
    float value = 0;
    static const kolo_parameters_part large[] = {{.values = 1, .gradient = 1},
                                                 {.values = 1, .gradient = 1}},
                                      unsaved[] = {{.gradient = 1, .state = 1}, {0}};
    static const kolo_parameters_opts cases[] = {
        {.servers = 0},
        {.update = no_update, .servers = 2},
        {.update = no_update, .parts = large},
        {.update = no_update, .parts = unsaved},
        {.update = no_update, .staleness = -2},
        {.update = no_update, .drop = 2},
        {.update = no_update, .drop = 1, .staleness = 1},
        {.update = no_update, .discard = true},
        {.update = no_update, .quorum = 1, .grace_ms = 1000, .timeout_ms = 1000},
        {.update = no_update, .quorum = 1, .grace_ms = 301000}, /* the communicator's: 300 s */
        {.update = no_update, .replicas = 1},
        {.update = no_update, .servers = 1, .replicas = 1},
        {.update = no_update, .replicas = 2},
        {.update = no_update, .buckets = -1},
        {.update = no_update, .buckets = 2, .staleness = 1},
        {.update = no_update, .servers = 1, .shared = true, .drop = 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kolo_status status = kolo_parameters_create(comm, &value, 1, &cases[i], &p);
        if (status != KOLO_ERR_ARG) return KOLO_FAIL(KOLO_ERR_FORMAT, "case %zu", i);
    }
    kolo_parameters_opts opts = {.update = no_update}; /* rank 0 has no values: all fail */
    kolo_status status = kolo_parameters_create(comm, NULL, 1, &opts, &p);
    if (status != KOLO_ERR_ARG) return KOLO_FAIL(KOLO_ERR_FORMAT, "no values");
    return KOLO_OK;
}

static void invalid_options_are_refused(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, invalid_body, NULL, 0));
}

TEST_MAIN(test_comm_parameters) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_equals_direct_bitwise),
        cmocka_unit_test(shared_parts_keep_the_bits),
        cmocka_unit_test(a_push_needs_no_pull),
        cmocka_unit_test(bytes_follow_the_split),
        cmocka_unit_test(the_split_fills_all_links),
        cmocka_unit_test(asp_with_one_worker_is_plain_training),
        cmocka_unit_test(a_bound_is_reached_and_kept),
        cmocka_unit_test(invalid_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
