/* Parameters whose parts the program defines, pushes that come in parts, and servers that are
 * killed while they have replicas. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/parameters_owner.h"
#include "kolo/parameters.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

enum { OWNERS = 2 };

/* Of an owner: the sum of all gradients, of which only the first number is a value. */
typedef struct kept {
    float loaded[2], total[3];
} kept;

static void load_part(void *arg, const float *initial) {
    memcpy(((kept *)arg)->loaded, initial, sizeof((kept *)arg)->loaded);
}

static void update_part(void *arg, const kolo_parameters_update *u) {
    kept *k = arg;
    for (int i = 0; i < 3; i++) k->total[i] += u->gradient[i];
    if (u->values) u->values[0] = k->total[0];
}

static void copy_part(void *arg, float *values) { values[0] = ((kept *)arg)->total[0]; }

static void save_part(void *arg, float *state) { state[0] = ((kept *)arg)->total[2]; }

/* Two workers, and two owners with a value, a state and three numbers of a gradient each. The
 * argument: whether owners keep their values. */
static kolo_status parts_body(kolo_comm *comm, const void *arg, void *result) {
    static const float initial[] = {1, 2, 3, 4};
    const int rank = kolo_comm_rank(comm);
    const kolo_parameters_part part = {.values = 1, .gradient = 3, .state = 1},
                               parts[OWNERS] = {part, part};
    kept own = {{0}, {0}};
    kolo_parameters_opts opts = {.servers = OWNERS,
                                 .parts = parts,
                                 .needs_all = true,
                                 .load = load_part,
                                 .update = update_part,
                                 .copy_values = *(const bool *)arg ? copy_part : NULL,
                                 .save = save_part,
                                 .arg = &own};
    kolo_parameters *p;
    const float *loaded = own.loaded;
    KOLO_TRY(kolo_parameters_create(comm, initial, 4, &opts, &p));
    if (rank < 2) {
        const float gradient[] = {1, 10, 100, 2, 20, 200};
        uint64_t reads[KOLO_STALENESS_BINS] = {0};
        float values[OWNERS] = {0}, state[OWNERS] = {0};
        KOLO_TRY(kolo_parameters_pull(p, values));
        bool right = values[0] == 1 && values[1] == 3;
        KOLO_TRY(kolo_parameters_push(p, gradient));
        KOLO_TRY(kolo_parameters_pull(p, values));
        KOLO_TRY(kolo_parameters_read_state(p, state));
        kolo_parameters_count_reads(p, reads);
        right &= values[0] == 2 && values[1] == 4 && state[0] == 200 && state[1] == 400;
        if (!right || reads[0] != 2) return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d", rank);
        KOLO_TRY(kolo_barrier(comm));
        if (rank == 1) kolo_parameters_abandon(p); /* ends after an error */
    } else {
        KOLO_TRY(kolo_barrier(comm));
        kolo_status status = kolo_parameters_wait(p);
        bool named = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "worker 1");
        bool right = loaded[0] == (rank == 2 ? 1 : 3) && loaded[1] == (rank == 2 ? 2 : 4);
        if (!named || !right) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s", kolo_last_error());
    }
    kolo_parameters_destroy(p);
    return KOLO_OK;
}

static void owners_have_parts_and_state(void **state) {
    for (int i = 0; i < 2; i++) {
        const bool copies = i == 1;
        ASSERT_OK(run_ranks(4, RANKS_THREAD, parts_body, &copies, sizeof copies));
        ASSERT_OK(run_ranks(4, RANKS_TCP, parts_body, &copies, sizeof copies));
    }
}

/* ---- pushes that are checked ---- */

static kolo_status check_first(void *arg, const float *pushed) {
    if (pushed[0] >= 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%g is negative", (double)pushed[0]);
}

/* Two workers; the second push of worker 1 is refused by the second server, at once. */
static kolo_status checked_body(kolo_comm *comm, const void *arg, void *result) {
    static const float initial[] = {1, 2, 3, 4};
    const int rank = kolo_comm_rank(comm);
    const kolo_parameters_part part = {.values = 1, .gradient = 3, .state = 1},
                               parts[OWNERS] = {part, part};
    kept own = {{0}, {0}};
    kolo_parameters_opts opts = {.servers = OWNERS,
                                 .parts = parts,
                                 .staleness = KOLO_STALENESS_ANY,
                                 .check = check_first,
                                 .load = load_part,
                                 .update = update_part,
                                 .save = save_part,
                                 .arg = &own};
    kolo_parameters *p;
    float gradient[] = {1, 10, 100, 2, 20, 200}, values[OWNERS] = {0};
    KOLO_TRY(kolo_parameters_create(comm, initial, 4, &opts, &p));
    for (int step = 0; step < 2 && kolo_parameters_works(p); step++) {
        if (rank == 1 && step == 1) gradient[3] = -5;
        KOLO_TRY(kolo_parameters_push(p, gradient));
        const kolo_status status = kolo_parameters_pull(p, values);
        const bool refused = status == KOLO_ERR_FORMAT && strstr(kolo_last_error(), "-5 is neg");
        if (rank == 1 && step == 1 ? refused : status == KOLO_OK) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "step %d: %s", step, kolo_last_error());
    }
    if (rank == 1) kolo_parameters_abandon(p);
    kolo_parameters_destroy(p);
    return KOLO_OK;
}

static void pushes_are_checked(void **state) {
    ASSERT_OK(run_ranks(4, RANKS_THREAD, checked_body, NULL, 0));
    ASSERT_OK(run_ranks(4, RANKS_TCP, checked_body, NULL, 0));
}

/* ---- sums over the owners ---- */

enum { NORMED = 11, NORMED_STEPS = 40 };

/* An owner: of an update the sum of the squares of the gradient, then that of the sum times each
 * number of the range. */
typedef struct normed {
    float squares, total;
} normed;

static size_t add_squares(void *arg, const kolo_parameters_update *u, int k, float *numbers) {
    normed *n = arg;
    if (k == 1) n->squares = numbers[0];
    if (k == 2) n->total = numbers[1];
    if (k == 2) return 0;
    numbers[0] = numbers[1] = 0;
    for (size_t i = 0; i < u->count; i++) {
        numbers[k] += k == 0 ? u->gradient[i] * u->gradient[i] : n->squares * u->values[i];
    }
    return k == 0 ? 1 : 2;
}

static void subtract_scaled(void *arg, const kolo_parameters_update *u) {
    const normed *n = arg;
    const float factor = 1 / (1 + n->squares + n->total * n->total);
    for (size_t i = 0; i < u->count; i++) u->values[i] -= factor * u->gradient[i];
}

static float squared_gradient(int worker, int step, int i) {
    return (float)((i * 5 + worker * 3 + step * 7) % 13 - 6);
}

/* The same by one owner; sums of whole numbers are the same in any order, the others nearly. */
static void simulate_norms(int workers, float *values) {
    for (int s = 0; s < NORMED_STEPS; s++) {
        float gradient[NORMED] = {0};
        normed n = {0, 0};
        for (int i = 0; i < NORMED; i++) {
            for (int w = 0; w < workers; w++) gradient[i] += squared_gradient(w, s, i);
            n.squares += gradient[i] * gradient[i];
        }
        for (int i = 0; i < NORMED; i++) n.total += n.squares * values[i];
        const float factor = 1 / (1 + n.squares + n.total * n.total);
        for (int i = 0; i < NORMED; i++) values[i] -= factor * gradient[i];
    }
}

static kolo_status norms_body(kolo_comm *comm, const void *arg, void *result) {
    const int servers = *(const int *)arg, size = kolo_comm_size(comm);
    const int workers = servers > 0 ? size - servers : size, rank = kolo_comm_rank(comm);
    normed own = {0, 0};
    kolo_parameters_opts opts = {.servers = servers,
                                 .needs_all = true,
                                 .exchange = add_squares,
                                 .exchanged = 2,
                                 .update = subtract_scaled,
                                 .arg = &own};
    float values[NORMED], gradient[NORMED], expected[NORMED];
    kolo_parameters *p;
    for (int i = 0; i < NORMED; i++) values[i] = expected[i] = (float)(i + 1) / 4096;
    simulate_norms(workers, expected);
    KOLO_TRY(kolo_parameters_create(comm, values, NORMED, &opts, &p));
    for (int s = 0; s < NORMED_STEPS && kolo_parameters_works(p); s++) {
        for (int i = 0; i < NORMED; i++) gradient[i] = squared_gradient(rank, s, i);
        KOLO_TRY(kolo_parameters_push(p, gradient));
        KOLO_TRY(kolo_parameters_pull(p, values));
    }
    for (int i = 0; i < NORMED && kolo_parameters_works(p); i++) {
        if (fabsf(values[i] - expected[i]) <= 1e-5F * (1 + fabsf(expected[i]))) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "value %d is %.9g, not %.9g", i, (double)values[i],
                         (double)expected[i]);
    }
    kolo_parameters_destroy(p);
    return KOLO_OK;
}

/* More numbers than all else that a rank sends to an owner. */
enum { MANY = 1 << 19 };

static size_t count_owners(void *arg, const kolo_parameters_update *u, int k, float *numbers) {
    float *owners = arg;
    if (k == 1) *owners = numbers[MANY - 1];
    if (k == 1) return 0;
    for (int i = 0; i < MANY; i++) numbers[i] = 1;
    return MANY;
}

static void add_owners(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += *(const float *)arg;
}

static kolo_status many_body(kolo_comm *comm, const void *arg, void *result) {
    float owners = 0, values[] = {0, 0, 0, 0}, gradient[] = {1, 1, 1, 1};
    const kolo_parameters_opts opts = {.needs_all = true,
                                       .exchange = count_owners,
                                       .exchanged = MANY,
                                       .update = add_owners,
                                       .arg = &owners};
    kolo_parameters *p;
    KOLO_TRY(kolo_parameters_create(comm, values, 4, &opts, &p));
    for (int s = 0; s < 3; s++) {
        KOLO_TRY(kolo_parameters_push(p, gradient));
        KOLO_TRY(kolo_parameters_pull(p, values));
    }
    kolo_parameters_destroy(p);
    if (values[0] == 6 && values[3] == 6) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%g and %g", (double)values[0], (double)values[3]);
}

static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    normed own = {0, 0};
    kolo_parameters_opts opts = {.servers = 2,
                                 .needs_all = true,
                                 .staleness = 1,
                                 .exchange = add_squares,
                                 .exchanged = 2,
                                 .update = subtract_scaled,
                                 .arg = &own};
    kolo_parameters *p;
    const kolo_status stale = kolo_parameters_create(comm, NULL, NORMED, &opts, &p);
    opts.staleness = 0;
    opts.needs_all = false;
    const kolo_status alone = kolo_parameters_create(comm, NULL, NORMED, &opts, &p);
    if (stale == KOLO_ERR_ARG && alone == KOLO_ERR_ARG) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s", kolo_last_error());
}

static void updates_have_sums_over_the_owners(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    static const int servers[] = {0, 1, 2, 3};
    for (size_t t = 0; t < TEST_FEWER(2, 3); t++) {
        for (size_t i = 0; i < 4; i++) {
            ASSERT_OK(run_ranks(3 + (servers[i] > 1), transports[t], norms_body, &servers[i],
                                sizeof servers[i]));
        }
    }
    ASSERT_OK(run_ranks(3, RANKS_THREAD, refused_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, many_body, NULL, 0));
}

/* ---- pushes in parts ---- */

enum { LARGE = 120000, HALF = LARGE / 2, ROUNDS = 3 };

static void add_gradient(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

static float number_of(int worker, int round, int i) {
    return (float)((i * 7 + worker * 13 + round * 3) % 101) / 64 - 0.3F;
}

static kolo_status check_parts(kolo_parameters *p, uint64_t parts) {
    kolo_parameters_stats stats;
    KOLO_TRY(kolo_parameters_stats_get(p, &stats));
    if (stats.parts == parts) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%d parts of %d", (int)stats.parts, (int)parts);
}

/* A server, before the rest of a push: what has come. */
static kolo_status await_parts(kolo_parameters *p, uint64_t parts) {
    kolo_parameters_stats stats;
    KOLO_TRY(kolo_parameters_stats_get(p, &stats));
    for (int ms = 0; ms < 20000 && stats.parts < parts; ms++) {
        kolo_sleep_ns(1000000);
        KOLO_TRY(kolo_parameters_stats_get(p, &stats));
    }
    return check_parts(p, parts);
}

/* A worker pushes 45,000 of the 60,000 numbers of owner 0 early, and all of owner 1. */
static kolo_status push_early(kolo_comm *comm, kolo_parameters *p, int round, float *gradient) {
    static const struct {
        int owner, ready;
    } steps[] = {{0, 10000}, {0, 20000}, {0, 20001}, {0, 45000}, {1, HALF}};
    const int rank = kolo_comm_rank(comm);
    for (int i = 0; i < LARGE; i++) {
        const bool computed = i < 45000 || i >= HALF;
        gradient[i] = computed ? number_of(rank, round, i) : 1e9F;
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        KOLO_TRY(kolo_parameters_push_early(p, gradient, steps[i].owner, (size_t)steps[i].ready));
    }
    KOLO_TRY(kolo_barrier(comm)); /* the servers have what was sent */
    for (int i = 45000; i < HALF; i++) gradient[i] = number_of(rank, round, i);
    return kolo_parameters_push(p, gradient);
}

/* Two workers and two servers. `arg`: whether the servers read the gradients in place. */
static kolo_status early_body(kolo_comm *comm, const void *arg, void *result) {
    const bool in_place = *(const bool *)arg;
    const int owner = kolo_comm_rank(comm) - 2, sent = owner == 0 ? 2 : 1;
    const size_t bytes = LARGE * sizeof(float);
    float *expected = calloc(2, bytes), *values = expected + LARGE;
    void *gradient;
    kolo_parameters *p;
    kolo_parameters_opts opts = {.servers = 2, .update = add_gradient};
    assert_non_null(expected);
    KOLO_TRY(kolo_comm_alloc(comm, bytes, &gradient));
    KOLO_TRY(kolo_parameters_create(comm, expected, LARGE, &opts, &p));
    kolo_status status = KOLO_OK;
    for (int round = 0; round < ROUNDS && status == KOLO_OK; round++) {
        if (owner >= 0) {
            if (!in_place) status = await_parts(p, (uint64_t)(2 * sent * (round + 1)));
            if (status == KOLO_OK) status = kolo_barrier(comm);
            continue;
        }
        status = push_early(comm, p, round, gradient);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, values);
        for (int i = 0; i < LARGE; i++) {
            expected[i] += number_of(0, round, i) + number_of(1, round, i);
        }
        if (status == KOLO_OK && memcmp(values, expected, bytes) != 0) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "other bits in round %d", round);
        }
    }
    if (status == KOLO_OK) status = kolo_barrier(comm); /* after the rest of all pushes */
    const int parts = in_place ? 0 : 2 * sent * ROUNDS;
    if (status == KOLO_OK && owner >= 0) status = check_parts(p, (uint64_t)parts);
    if (status == KOLO_OK) kolo_parameters_destroy(p);
    free(expected);
    return status;
}

/* A part that is computed is sent before the rest; in memory that servers read in place nothing
 * is. The sums are the same. */
static void pushes_begin_early(void **state) {
    const bool in_place = true, sent = false;
    ASSERT_OK(run_ranks(4, RANKS_TCP, early_body, &sent, sizeof sent));
    ASSERT_OK(run_ranks(4, RANKS_SHM, early_body, &in_place, sizeof in_place));
}

/* An owner, without a service. */
static void keep_status(kolo_service_call *call, kolo_status status, uint64_t clock,
                        const void *data, size_t bytes) {
    call->clock = (uint64_t)status;
}

static uint64_t send_part(kolo_parameters_owner *owner, int worker) {
    static const float part[2] = {1, 2};
    kolo_service_call call = {.client = worker, .kind = KOLO_OWNER_PART};
    call.input = part;
    call.input_bytes = sizeof part;
    kolo_parameters_owner_serve(owner, &call);
    return call.clock;
}

/* The memory for parts is there before the first one, or workers send none. */
static void parts_of_pushes_need_no_memory(void **state) {
    const kolo_parameters_opts opts = {.update = add_gradient};
    const kolo_owned has = {.values = {0, 8}, .gradient = {0, 8}};
    const float initial[8] = {0};
    kolo_parameters_owner *owner;
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, 2, keep_status, &owner));
    kolo_parameters_owner_load(owner, initial);
    kolo_alloc_fail_nth(1);
    assert_int_equal(kolo_parameters_owner_stage(owner, 0), KOLO_ERR_NOMEM);
    kolo_alloc_fail_nth(0);
    ASSERT_OK(kolo_parameters_owner_stage(owner, 0));
    kolo_alloc_fail_nth(1);
    assert_int_equal(send_part(owner, 0), KOLO_OK);
    kolo_alloc_fail_nth(0);
    assert_int_equal(send_part(owner, 1), KOLO_ERR_ARG);
    kolo_parameters_owner_destroy(owner);
}

/* A code is one number, of which all 8 of the gradient are copies; a negative one is none. */
static kolo_status unpack(void *arg, const float *pushed, float *gradient) {
    if (!(pushed[0] >= 0)) return KOLO_FAIL(KOLO_ERR_FORMAT, "no code");
    for (int i = 0; i < 8; i++) gradient[i] = pushed[1];
    return KOLO_OK;
}

static void sum_first(void *arg, const kolo_parameters_update *u) {
    *(float *)arg += u->gradient[0];
}

/* Sends the numbers of a push from `first` on; returns the status of the answer. */
static kolo_status send_code(kolo_parameters_owner *owner, kolo_owner_request kind, uint64_t clock,
                             const float *code, size_t first, size_t end) {
    kolo_service_call call = {.kind = kind, .clock = clock, .input = code + first};
    if (kind == KOLO_OWNER_PART) call.key = first;
    call.input_bytes = (end - first) * sizeof *code;
    kolo_parameters_owner_serve(owner, &call);
    return (kolo_status)call.clock;
}

/* A push that is no code, too short or too long, whole or in parts, changes nothing: the next one
 * is taken as if there had been none. */
static void a_push_that_is_no_code_is_not_taken(void **state) {
    float sum = 0;
    const kolo_parameters_opts opts = {
        .update = sum_first, .arg = &sum, .staleness = KOLO_STALENESS_ANY, .unpack = unpack};
    const kolo_owned has = {.values = {0, 8}, .gradient = {0, 8}, .pushed = {0, 2}};
    const float initial[8] = {0}, good[] = {1, 3, 0, 0, 0, 0, 0, 0}, bad[] = {NAN, 5};
    kolo_parameters_stats stats;
    kolo_parameters_owner *owner;
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, 1, keep_status, &owner));
    ASSERT_OK(kolo_parameters_owner_stage(owner, 0));
    kolo_parameters_owner_load(owner, initial);
    for (uint64_t clock = 0; clock < 3; clock++) {
        assert_int_equal(send_code(owner, KOLO_OWNER_PUSH, clock, bad, 0, 2), KOLO_ERR_FORMAT);
        assert_int_equal(send_code(owner, KOLO_OWNER_PUSH, clock, good, 0, 1), KOLO_ERR_ARG);
        assert_int_equal(send_code(owner, KOLO_OWNER_PUSH, clock, good, 0, 8), KOLO_ERR_ARG);
        assert_int_equal(send_code(owner, KOLO_OWNER_PART, clock, good, 0, 3), KOLO_ERR_ARG);
        ASSERT_OK(send_code(owner, KOLO_OWNER_PART, clock, bad, 0, 1));
        assert_int_equal(send_code(owner, KOLO_OWNER_PUSH, clock, bad, 0, 2), KOLO_ERR_ARG);
        assert_int_equal(send_code(owner, KOLO_OWNER_PUSH, clock, bad, 1, 2), KOLO_ERR_FORMAT);
        if (clock == 1) ASSERT_OK(send_code(owner, KOLO_OWNER_PART, clock, good, 0, 1));
        ASSERT_OK(send_code(owner, KOLO_OWNER_PUSH, clock, good, clock == 1, 2));
        kolo_parameters_owner_stats(owner, &stats);
        assert_true(stats.version == clock + 1 && sum == 3 * (float)(clock + 1));
    }
    kolo_parameters_owner_destroy(owner);
}

/* Whether the service copies what a worker reads. */
static bool reads_a_copy(kolo_parameters_owner *owner, int worker) {
    kolo_service_call call = {
        .client = worker, .kind = KOLO_OWNER_PULL, .output_bytes = 8 * sizeof(float)};
    kolo_parameters_owner_serve(owner, &call);
    assert_int_equal(call.clock, KOLO_OK);
    return call.copied;
}

/* With bsp workers copy the values themselves, since an update waits for their pushes: not for
 * those that rest or have finished, which get copies. */
static void workers_that_updates_do_not_wait_for_read_copies(void **state) {
    const kolo_parameters_opts opts = {.update = add_gradient};
    const kolo_owned has = {.values = {0, 8}, .gradient = {0, 8}};
    const float initial[8] = {0};
    kolo_service_call finish = {.client = 0, .kind = KOLO_OWNER_FINISH};
    kolo_service_call rest = {
        .client = 2, .kind = KOLO_OWNER_BARRIER, .output_bytes = 3 * sizeof(uint64_t)};
    kolo_parameters_owner *owner;
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, 3, keep_status, &owner));
    kolo_parameters_owner_load(owner, initial);
    for (int w = 0; w < 3; w++) assert_false(reads_a_copy(owner, w));
    kolo_parameters_owner_serve(owner, &finish);
    kolo_parameters_owner_serve(owner, &rest);
    assert_true(reads_a_copy(owner, 0) && reads_a_copy(owner, 2));
    assert_false(reads_a_copy(owner, 1));
    kolo_parameters_owner_destroy(owner);
}

/* Worker 0 has the only lease, and may not ask for another one between its push and its pull, where
 * worker 1 waits for its clock and its lease. */
static kolo_status asking_body(kolo_comm *comm, const void *arg, void *result) {
    const bool works = kolo_comm_rank(comm) < 2;
    float values[4] = {0};
    kolo_parameters *p;
    kolo_parameters_opts opts = {
        .servers = 1, .staleness = 1, .leases = true, .update = add_gradient};
    KOLO_TRY(kolo_parameters_create(comm, values, 4, &opts, &p));
    bool given = works;
    while (given) {
        uint64_t number;
        KOLO_TRY(kolo_parameters_ask(p, 3));
        KOLO_TRY(kolo_parameters_lease(p, &given, &number));
        if (!given) break;
        if (kolo_parameters_reads_again(p)) KOLO_TRY(kolo_parameters_pull(p, values));
        KOLO_TRY(kolo_parameters_push(p, values));
        const bool refused = kolo_parameters_ask(p, 3) == KOLO_ERR_ARG;
        if (!refused || !strstr(kolo_last_error(), "pull first")) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "a lease was asked for after a push");
        }
        KOLO_TRY(kolo_parameters_pull(p, values));
    }
    kolo_parameters_destroy(p);
    return KOLO_OK;
}

static void leases_are_not_asked_for_after_a_push(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, asking_body, NULL, 0));
}

/* ---- sums over the workers ---- */

/* Whether the sum is that of rank 0, which ends with -0, and `factor` times that of another. */
static bool is_sum(const float *sum, float factor) {
    for (int i = 0; i < 4; i++) {
        if (sum[i] != (float)(i + 1) * (1 + factor)) return false;
    }
    return sum[4] == 0 && (signbit(sum[4]) != 0) == (factor == 0);
}

/* Three workers, one of which finishes before the others meet, and two servers. */
static kolo_status meeting_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    const float factor = rank == 0 ? 1 : 10;
    const float own[] = {factor, 2 * factor, 3 * factor, 4 * factor, rank == 0 ? -0.0F : 0};
    const kolo_parameters_opts opts = {
        .servers = 2, .staleness = KOLO_STALENESS_ANY, .sums = true, .update = add_gradient};
    float sum[5] = {0};
    kolo_parameters *p;
    bool right = true;
    KOLO_TRY(kolo_parameters_create(comm, own, 5, &opts, &p));
    if (rank == 2) KOLO_TRY(kolo_parameters_finish(p));
    for (int k = 0; k < 3 && rank < 2; k++) {
        const bool gives = rank == 0 || k % 2 == 0;
        KOLO_TRY(kolo_parameters_barrier_sum(p, gives ? own : NULL, NULL, NULL, NULL));
        KOLO_TRY(kolo_parameters_read_sum(p, sum));
        right = right && is_sum(sum, k % 2 == 0 ? 10 : 0);
        KOLO_TRY(kolo_parameters_barrier(p, NULL, NULL, NULL));
    }
    kolo_parameters_destroy(p);
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "another sum");
}

static kolo_status unsummed_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_parameters_opts opts = {.update = add_gradient};
    float numbers[2] = {0};
    kolo_parameters *p;
    KOLO_TRY(kolo_parameters_create(comm, numbers, 2, &opts, &p));
    const bool refused =
        kolo_parameters_barrier_sum(p, numbers, NULL, NULL, NULL) == KOLO_ERR_ARG &&
        kolo_parameters_read_sum(p, numbers) == KOLO_ERR_ARG &&
        strstr(kolo_last_error(), "set `sums`");
    kolo_parameters_destroy(p);
    return refused ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "a sum without memory for it");
}

static void barriers_have_sums(void **state) {
    ASSERT_OK(run_ranks(5, RANKS_THREAD, meeting_body, NULL, 0));
    ASSERT_OK(run_ranks(5, RANKS_TCP, meeting_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_THREAD, unsummed_body, NULL, 0));
}

/* What any worker reports in a wait for all of them, each gets, and not with the next one. */
static kolo_status reporting_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    float values[4] = {0};
    kolo_parameters *p;
    kolo_parameters_opts opts = {
        .servers = 2, .staleness = KOLO_STALENESS_ANY, .update = add_gradient};
    KOLO_TRY(kolo_parameters_create(comm, values, 4, &opts, &p));
    for (int round = 0; rank < 2 && round < 4; round++) {
        bool any = rank == round, asked = true;
        KOLO_TRY(kolo_parameters_barrier(p, NULL, &asked, &any));
        if (asked || any != (round < 2)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "wait %d, rank %d: %d %d", round, rank, asked, any);
        }
        KOLO_TRY(kolo_parameters_barrier(p, NULL, NULL, rank == 0 ? NULL : &any));
        if (any != (round < 2)) return KOLO_FAIL(KOLO_ERR_FORMAT, "wait %d: %d", round, any);
    }
    kolo_parameters_destroy(p);
    return KOLO_OK;
}

static void what_a_worker_reports_each_gets(void **state) {
    ASSERT_OK(run_ranks(4, RANKS_THREAD, reporting_body, NULL, 0));
}

/* ---- replicas ---- */

enum { KILLED_STEPS = 40 };

/* The server, or worker, that is killed, at which update of its part, or in which step, and the
 * policy. */
typedef struct killing {
    int staleness, victim, step;
    rank_transport transport;
} killing;

/* `arg`: of the server that is killed. */
static void add_until_killed(void *arg, const kolo_parameters_update *u) {
    const killing *k = arg;
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
    if (k && u->version == (uint64_t)k->step) raise(SIGKILL);
}

/* Two workers and three servers. A worker's gradient adds 1 to its own half of the numbers. */
static kolo_status killing_body(kolo_comm *comm, const void *arg, void *result) {
    const killing *k = arg;
    const int rank = kolo_comm_rank(comm);
    const size_t bytes = LARGE * sizeof(float);
    float *values = calloc(2, bytes), *gradient = values + LARGE;
    kolo_parameters *p;
    kolo_parameters_opts opts = {.servers = 3,
                                 .replicas = 1,
                                 .staleness = k->staleness,
                                 .needs_all = true,
                                 .spared = 1,
                                 .update = add_until_killed,
                                 .arg = rank == k->victim ? (void *)(uintptr_t)k : NULL};
    assert_non_null(values);
    KOLO_TRY(kolo_parameters_create(comm, values, LARGE, &opts, &p));
    kolo_status status = KOLO_OK;
    for (int i = 0; i < LARGE; i++) gradient[i] = i % 2 == rank;
    for (int step = 0; rank < 2 && step < KILLED_STEPS && status == KOLO_OK; step++) {
        if (rank == k->victim && step == k->step) ranks_die_after(1000);
        for (int o = 0; o < 3 && status == KOLO_OK; o++) {
            status = kolo_parameters_push_early(p, gradient, o, LARGE / 3);
        }
        if (status == KOLO_OK) status = kolo_parameters_push(p, gradient);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, values);
        const int every = step + 1 < KILLED_STEPS ? 22 : 2;
        for (int i = rank; i < LARGE && status == KOLO_OK; i += every) {
            if (values[i] == (float)step + 1) continue;
            status =
                KOLO_FAIL(KOLO_ERR_FORMAT, "step %d, number %d: %g", step, i, (double)values[i]);
        }
        kolo_sleep_ns(1000000);
    }
    if (status == KOLO_OK && rank < 2) {
        uint64_t lost[2];
        status = kolo_parameters_barrier(p, lost, NULL, NULL);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, values);
        for (int i = 1 - rank; i < LARGE && status == KOLO_OK; i += 2) {
            const float last =
                values[i] - (float)(lost[1 - rank] ? lost[1 - rank] - 1 : KILLED_STEPS);
            if (last == 0) continue;
            if (lost[1 - rank] && fabsf(last) == 1)
                continue; /* its last push had not reached all */
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "number %d: %g", i, (double)values[i]);
        }
    }
    if (status == KOLO_OK && rank >= 2) status = kolo_parameters_wait(p);
    if (status == KOLO_OK) kolo_parameters_destroy(p);
    free(values);
    return status;
}

static void a_killed_server_is_replaced(void **state) {
    static const killing killings[] = {
        {KOLO_STALENESS_ANY, 2, 5, RANKS_SHM},  {1, 3, 12, RANKS_TCP}, {0, 4, 9, RANKS_SHM},
        {KOLO_STALENESS_ANY, 3, 20, RANKS_TCP}, {2, 1, 7, RANKS_SHM},
    };
    const int rounds = getenv("KOLO_SOAK") ? 40 : 1; /* 200 */
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < TEST_FEWER(2, sizeof killings / sizeof *killings); i++) {
            killing k = killings[i];
            rank_outcome outcomes[5];
            k.step = (k.step + 7 * round) % KILLED_STEPS;
            const rank_job job = {.n = 5,
                                  .transport = k.transport,
                                  .body = killing_body,
                                  .arg = &k,
                                  .arg_bytes = sizeof k,
                                  .outcomes = outcomes};
            (void)run_rank_job(&job);
            for (int r = 0; r < 5; r++) {
                if (r == k.victim && r >= 2) assert_int_equal(outcomes[r].signal, SIGKILL);
                if (r == k.victim || outcomes[r].status == KOLO_OK) continue;
                fail_msg("case %d, step %d, rank %d: %s", (int)i, k.step, r, outcomes[r].error);
            }
        }
    }
}

TEST_MAIN(test_comm_parameter_parts) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_have_parts_and_state),
        cmocka_unit_test(pushes_are_checked),
        cmocka_unit_test(updates_have_sums_over_the_owners),
        cmocka_unit_test(pushes_begin_early),
        cmocka_unit_test(parts_of_pushes_need_no_memory),
        cmocka_unit_test(a_push_that_is_no_code_is_not_taken),
        cmocka_unit_test(workers_that_updates_do_not_wait_for_read_copies),
        cmocka_unit_test(leases_are_not_asked_for_after_a_push),
        cmocka_unit_test(barriers_have_sums),
        cmocka_unit_test(what_a_worker_reports_each_gets),
        cmocka_unit_test(a_killed_server_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
