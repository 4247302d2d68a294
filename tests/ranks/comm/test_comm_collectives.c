/* Collectives: every algorithm, transport, world size, count, element type and operation against a
 * reference in double; the same bits on all ranks, and with threads as with processes. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "comm/reduce/reduce.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/values.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const int worlds[] = {1, 2, 3, 4, 5, 8};

/* ---- one case ---- */

typedef enum where { REGISTERED, PRIVATE, PRIVATE_ON_RANK_0, IN_PARTS } where;

typedef struct one_case {
    kolo_dtype dtype;
    kolo_reduce_op op;
    size_t count;
    kolo_algorithm algorithm;
    where where;
} one_case;

typedef struct buffers {
    char *registered, *private_data;
    size_t bytes;
} buffers;

/* Cuts the vector into three parts, the middle one private, at most one empty. */
static int cut(const one_case *c, const buffers *b, kolo_part parts[3]) {
    size_t e = kolo_dtype_bytes(c->dtype), a = c->count / 3, m = c->count / 2;
    parts[0] = (kolo_part){.tree_node = 1, .data = b->registered, .count = a};
    parts[1] = (kolo_part){.tree_node = 2, .data = b->private_data, .count = m - a};
    parts[2] = (kolo_part){
        .tree_node = 3, .data = b->registered + b->bytes / 2 / 64 * 64 + e, .count = c->count - m};
    return 3;
}

static int place(kolo_comm *comm, const one_case *c, const buffers *b, kolo_part parts[3]) {
    if (c->where == IN_PARTS) return cut(c, b, parts);
    bool private_data =
        c->where == PRIVATE || (c->where == PRIVATE_ON_RANK_0 && kolo_comm_rank(comm) == 0);
    parts[0] =
        (kolo_part){.data = private_data ? b->private_data : b->registered, .count = c->count};
    return 1;
}

static kolo_status check_case(kolo_comm *comm, const one_case *c, const kolo_part *parts,
                              int n_parts, uint64_t *hash) {
    int n = kolo_comm_size(comm);
    size_t i = 0;
    for (int p = 0; p < n_parts; p++) {
        for (size_t k = 0; k < parts[p].count; k++, i++) {
            double got = value_get(parts[p].data, k, c->dtype);
            double want = value_kept(c->dtype, value_reference(n, i, c->op));
            if (fabs(got - want) > value_tolerance(c->dtype, n) * fabs(want)) {
                return KOLO_FAIL(KOLO_ERR_FORMAT,
                                 "%s op %d count %zu %s where %d: element %zu is "
                                 "%g, not %g",
                                 kolo_dtype_name(c->dtype), (int)c->op, c->count,
                                 kolo_algorithm_name(c->algorithm), (int)c->where, i, got, want);
            }
        }
        uint64_t both[2] = {
            *hash, kolo_hash_bytes(parts[p].data, parts[p].count * kolo_dtype_bytes(c->dtype))};
        *hash = kolo_hash_bytes(both, sizeof both);
    }
    return KOLO_OK;
}

/* Whether some rank has elements in private memory. */
static bool is_private(const one_case *c) {
    if (c->where == IN_PARTS) return c->count / 2 > c->count / 3; /* as cut() has it */
    return c->where != REGISTERED && c->count > 0;
}

/* Hierarchical goes through the memory of a host where that is in reach, on all ranks alike. */
static kolo_status check_windows(kolo_comm *comm, const one_case *c, const char *ran) {
    bool memory = comm->transport->windows || comm->transport->ops->reaches;
    bool shared = kolo_comm_host_count(comm) < kolo_comm_size(comm);
    if (c->algorithm != KOLO_ALGORITHM_HIERARCHICAL || !memory) return KOLO_OK;
    bool window = shared && (!is_private(c) || comm->transport->reaches_all);
    const char *want = window ? "hierarchical-window" : "hierarchical";
    return strcmp(ran, want) == 0 ? KOLO_OK
                                  : KOLO_FAIL(KOLO_ERR_FORMAT, "ran %s, not %s", ran, want);
}

static kolo_status run_case(kolo_comm *comm, const one_case *c, const buffers *b, uint64_t *hash) {
    kolo_part parts[3];
    int n_parts = place(comm, c, b, parts), rank = kolo_comm_rank(comm);
    kolo_request *request;
    KOLO_TRY(kolo_allreduce_create(comm, parts, n_parts, c->dtype, c->op, c->algorithm, "case",
                                   &request));
    for (int repeat = 0; repeat < 2; repeat++) { /* persistent: the same again */
        size_t i = 0;
        for (int p = 0; p < n_parts; p++) {
            for (size_t k = 0; k < parts[p].count; k++, i++) {
                value_put(parts[p].data, k, c->dtype, value_input(rank, i));
            }
        }
        KOLO_TRY(kolo_request_start(request));
        KOLO_TRY(kolo_request_wait(request, 0));
        KOLO_TRY(check_case(comm, c, parts, n_parts, hash));
    }
    /* The engine has moved what the schedule contains, twice. */
    const kolo_schedule *schedule = kolo_request_schedule(request);
    if (strcmp(kolo_request_schedule_name(request), schedule->row->name) == 0) {
        kolo_traffic is = kolo_request_traffic(request), one = kolo_schedule_traffic(schedule);
        if (is.sent != 2 * one.sent || is.received != 2 * one.received ||
            is.reduced != 2 * one.reduced || is.copied != 2 * one.copied) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: counters differ from the schedule",
                             schedule->row->name);
        }
    } else if (c->where != PRIVATE_ON_RANK_0 && c->algorithm != KOLO_ALGORITHM_HIERARCHICAL) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "ran %s, not %s", kolo_request_schedule_name(request),
                         schedule->row->name);
    }
    KOLO_TRY(check_windows(comm, c, kolo_request_schedule_name(request)));
    kolo_request_destroy(request);
    return KOLO_OK;
}

/* ---- the table ---- */

typedef struct matrix {
    kolo_comm_tuning tuning;
    bool all_types; /* every type and operation at few counts, or f32 sums at every count */
    bool all_algorithms;
} matrix;

/* Over a network there is no direct; the bits of what is left are those of threads. */
typedef struct matrix_result {
    uint64_t hash, message_hash;
    int cases;
} matrix_result;

/* Whether a case is left out in this place: of large groups, which wait for processors, the places
 * of memory take turns, others with four and eight ranks than with five. In the soak all run. */
static bool takes_turns(const matrix *m, int ranks, size_t i, int place) {
    return ranks > 3 && !m->all_algorithms && (i + (size_t)(place + ranks)) % 2;
}

/* One case by direct and by one of the others in turn; by all of them if requested. */
static kolo_status run_algorithms(kolo_comm *comm, const matrix *m, one_case *c, const buffers *b,
                                  matrix_result *r) {
    int chosen = r->cases % (KOLO_ALGORITHM_COUNT - 1);
    for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) {
        bool direct = a == KOLO_ALGORITHM_DIRECT;
        if (direct && !comm->transport->windows) continue;
        if (!m->all_algorithms && !direct && a != 1 + chosen) continue;
        c->algorithm = (kolo_algorithm)a;
        KOLO_TRY(run_case(comm, c, b, direct ? &r->hash : &r->message_hash));
    }
    r->cases++;
    return KOLO_OK;
}

static kolo_status matrix_body(kolo_comm *comm, const void *arg, void *result) {
    const matrix *m = arg;
    matrix_result *r = result;
    buffers b = {.bytes = 1 << 20};
    static const size_t few[] = {7, 67};
    static const size_t every[] = {0, 1, 7, 15, 16, 17, 67, 127, 128, 129, 1009, 70001};
    const size_t *counts = m->all_types ? few : every;
    size_t n_counts = m->all_types ? KOLO_COUNT(few) : KOLO_COUNT(every);
    if (!m->all_types && m->tuning.chunk_bytes)
        n_counts--; /* thousands of chunks test nothing more */
    void *memory;
    KOLO_TRY(kolo_comm_alloc(comm, b.bytes, &memory));
    b.registered = memory;
    b.private_data = kolo_alloc(b.bytes);
    if (!b.private_data) return KOLO_NOMEM(b.bytes);
    kolo_comm_set_tuning(comm, m->tuning);
    int hosts[8];
    for (int h = 0; h < 8; h++) hosts[h] = h / 2;
    kolo_status status = kolo_comm_set_hosts(comm, hosts);
    int types = m->all_types ? KOLO_DTYPE_COUNT : 1, ops = m->all_types ? KOLO_REDUCE_OPS : 1;
    for (int t = 0; t < types; t++) {
        for (int op = 0; op < ops; op++) {
            if (kolo_reduce_check((kolo_dtype)t, (kolo_reduce_op)op) != KOLO_OK) continue;
            for (size_t i = 0; i < (t < KOLO_TENSOR_DTYPE_COUNT ? n_counts : 1); i++) {
                for (int w = REGISTERED; w <= IN_PARTS; w++) {
                    if (takes_turns(m, kolo_comm_size(comm), i + (size_t)(t + op), w)) continue;
                    one_case c = {.dtype = (kolo_dtype)t,
                                  .op = (kolo_reduce_op)op,
                                  .count = counts[i],
                                  .where = (where)w};
                    if (status == KOLO_OK) status = run_algorithms(comm, m, &c, &b, r);
                }
            }
        }
    }
    kolo_free(b.private_data);
    return status;
}

/* All algorithms in every case, instead of some: the soak. */
static void run_matrix(const matrix *given) {
    matrix full = *given;
    full.all_algorithms = getenv("KOLO_SOAK") != NULL;
    const matrix *m = &full;
    for (size_t w = 0; w < KOLO_COUNT(worlds); w++) {
        int n = worlds[w];
        if (n > TEST_FEWER(5, 8)) continue;
        matrix_result results[RANKS_HOSTS_UCX + 1][8];
        for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
            if (!ranks_have((rank_transport)t)) continue;
            if (TEST_FEWER(t > RANKS_THREAD && n == 1, false)) continue;
            int most = m->all_types ? 3 : TEST_FEWER(3, 5); /* what is new there */
            if (t >= RANKS_TCP && n > most) continue;
            if (t == RANKS_SHM && n > (full.all_algorithms ? 8 : 3)) continue; /* processes */
            ASSERT_OK(run_rank_job(&(rank_job){.n = n,
                                               .transport = (rank_transport)t,
                                               .body = matrix_body,
                                               .arg = m,
                                               .arg_bytes = sizeof *m,
                                               .results = results[t],
                                               .result_bytes = sizeof(matrix_result)}));
            for (int r = 0; r < n; r++) {
                const matrix_result *got = &results[t][r], *first = &results[RANKS_THREAD][0];
                assert_true(got->cases >= (n > 3 ? 20 : 40));
                assert_int_equal(got->message_hash, first->message_hash);
                if (t <= RANKS_SHM || n == 1) assert_int_equal(got->hash, first->hash);
            }
        }
    }
}

static void every_count_with_default_sizes(void **state) {
    run_matrix(&(matrix){.all_types = false});
}

/* Chunks of 16 elements and nothing eager: counts around 16 and 128 are borders. */
static void every_count_with_tiny_chunks(void **state) {
    run_matrix(&(matrix){.tuning = {.chunk_bytes = 64, .eager_bytes = 1}});
}

static void every_type_and_operation(void **state) {
    run_matrix(&(matrix){.tuning = {.chunk_bytes = 32, .eager_bytes = 1}, .all_types = true});
}

static void every_type_and_operation_eager(void **state) {
    run_matrix(&(matrix){.all_types = true});
}

/* ---- broadcast and barrier ---- */

typedef struct broadcast_case {
    kolo_comm_tuning tuning;
    kolo_algorithm algorithm;
} broadcast_case;

static kolo_status broadcast_once(kolo_comm *comm, int32_t *data, size_t count, int root) {
    int rank = kolo_comm_rank(comm);
    for (size_t i = 0; i < count; i++) data[i] = rank == root ? (int32_t)(i * 3 + 1) : -1;
    kolo_part parts[2] = {{.data = data, .count = count / 3},
                          {.data = data + count / 3, .count = count - count / 3}};
    kolo_request *request;
    KOLO_TRY(kolo_broadcast_create(comm, parts, 2, KOLO_DTYPE_I32, root, "parameters", &request));
    KOLO_TRY(kolo_request_start(request));
    KOLO_TRY(kolo_request_wait(request, 0));
    kolo_request_destroy(request);
    for (size_t i = 0; i < count; i++) {
        if (data[i] != (int32_t)(i * 3 + 1)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "root %d count %zu: element %zu is %d", root, count,
                             i, (int)data[i]);
        }
    }
    return KOLO_OK;
}

static kolo_status broadcast_body(kolo_comm *comm, const void *arg, void *result) {
    const broadcast_case *c = arg;
    static const size_t counts[] = {0, 1, 7, 16, 17, 1009, 50000};
    comm->algorithm = c->algorithm;
    kolo_comm_set_tuning(comm, c->tuning);
    void *memory;
    KOLO_TRY(kolo_comm_alloc(comm, 1 << 20, &memory));
    int32_t *private_data = kolo_alloc(1 << 20);
    if (!private_data) return KOLO_NOMEM(1 << 20);
    kolo_status status = KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(counts) && status == KOLO_OK; i++) {
        for (int root = 0; root < kolo_comm_size(comm) && status == KOLO_OK; root++) {
            status = broadcast_once(comm, memory, counts[i], root);
            if (status == KOLO_OK) status = broadcast_once(comm, private_data, counts[i], root);
            if (status == KOLO_OK) status = kolo_barrier(comm);
        }
    }
    kolo_free(private_data);
    return status;
}

static void broadcast_reaches_all_from_any_root(void **state) {
    static const broadcast_case cases[] = {
        {{0}, KOLO_ALGORITHM_DIRECT},
        {{.chunk_bytes = 64, .eager_bytes = 1}, KOLO_ALGORITHM_DIRECT},
        {{0}, KOLO_ALGORITHM_RING},
        {{.chunk_bytes = 4096, .eager_bytes = 1}, KOLO_ALGORITHM_RING},
    };
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        bool direct = cases[c].algorithm == KOLO_ALGORITHM_DIRECT;
        for (size_t w = 0; w < KOLO_COUNT(worlds); w++) {
            for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
                if (!ranks_have((rank_transport)t)) continue;
                const bool usual = TEST_FEWER(worlds[w] == 2 || worlds[w] == 3, true);
                if (t > RANKS_THREAD && !usual) continue;       /* processes */
                if (t == RANKS_SHM && worlds[w] >= 4) continue; /* 2 and 3 test the same */
                if (t >= RANKS_TCP && (direct || worlds[w] > 5)) continue;
                ASSERT_OK(run_ranks(worlds[w], (rank_transport)t, broadcast_body, &cases[c],
                                    sizeof cases[c]));
            }
        }
    }
}

enum { BARRIERS = 60 };

/* When a rank came to each barrier and when it left; one clock for all processes of the host. */
typedef struct barrier_times {
    int64_t came_ns[BARRIERS], left_ns[BARRIERS];
} barrier_times;

static kolo_status barrier_body(kolo_comm *comm, const void *arg, void *result) {
    barrier_times *times = result;
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    memcpy(&comm->algorithm, arg, sizeof comm->algorithm);
    kolo_request *barrier;
    KOLO_TRY(kolo_barrier_create(comm, "barrier", &barrier));
    for (int i = 0; i < BARRIERS; i++) {
        if (rank ==
            i % n) { /* the late one: the others are in the barrier, and must not leave it */
            for (int k = 0; k < 100; k++) sched_yield();
        }
        times->came_ns[i] = kolo_now_ns();
        KOLO_TRY(kolo_request_start(barrier));
        KOLO_TRY(kolo_request_wait(barrier, 0));
        times->left_ns[i] = kolo_now_ns();
    }
    return KOLO_OK;
}

static void check_barriers(int n, rank_transport transport, kolo_algorithm algorithm) {
    static barrier_times times[8];
    ASSERT_OK(run_rank_job(&(rank_job){.n = n,
                                       .transport = transport,
                                       .body = barrier_body,
                                       .arg = &algorithm,
                                       .arg_bytes = sizeof algorithm,
                                       .results = times,
                                       .result_bytes = sizeof times[0]}));
    for (int i = 0; i < BARRIERS; i++) {
        for (int p = 0; p < n; p++) {
            for (int q = 0; q < n; q++) assert_true(times[p].left_ns[i] >= times[q].came_ns[i]);
        }
    }
}

static void nobody_leaves_a_barrier_before_all_have_come(void **state) {
    for (int a = KOLO_ALGORITHM_RING; a <= KOLO_ALGORITHM_DIRECT; a++) {
        for (int n = 1; n <= 5; n++) check_barriers(n, RANKS_THREAD, (kolo_algorithm)a);
        check_barriers(3, RANKS_SHM, (kolo_algorithm)a);
    }
    check_barriers(3, RANKS_TCP, KOLO_ALGORITHM_RING);
    check_barriers(4, RANKS_HOSTS, KOLO_ALGORITHM_RING);
}

/* ---- a barrier waits for all ---- */

enum {
    COMING = 16, /* so many that most do not exchange messages */
    POLLS = 200,
    POLLED = 1,
    SLEEP_NS = 1000000,
};

typedef struct arrival {
    _Alignas(64) _Atomic int stage;
} arrival;

/* Rank 0 comes after all others have waited for a while. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    arrival *own = result;
    const int rank = kolo_comm_rank(comm);
    kolo_request *q;
    KOLO_TRY(kolo_barrier_create(comm, "late", &q));
    for (int r = 1; rank == 0 && r < COMING; r++) {
        while (atomic_load(&own[r].stage) < POLLED) kolo_sleep_ns(SLEEP_NS);
    }
    KOLO_TRY(kolo_request_start(q));
    for (int i = 0; rank > 0 && i < POLLS; i++) {
        bool complete;
        KOLO_TRY(kolo_request_test(q, &complete));
        if (complete && atomic_load(&own[-rank].stage) < POLLED) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d does not wait for rank 0", rank);
        }
        kolo_sleep_ns(SLEEP_NS);
    }
    atomic_store(&own->stage, POLLED);
    return kolo_request_wait(q, 0);
}

static void a_barrier_waits_for_all(void **state) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        arrival arrivals[COMING];
        rank_job job = {.n = COMING,
                        .transport = transports[i],
                        .body = late_body,
                        .segment_bytes = 64 << 20,
                        .results = arrivals,
                        .result_bytes = sizeof arrivals[0]};
        ASSERT_OK(run_rank_job(&job));
    }
}

TEST_MAIN(test_comm_collectives) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_count_with_default_sizes),
        cmocka_unit_test(every_count_with_tiny_chunks),
        cmocka_unit_test(every_type_and_operation),
        cmocka_unit_test(every_type_and_operation_eager),
        cmocka_unit_test(broadcast_reaches_all_from_any_root),
        cmocka_unit_test(nobody_leaves_a_barrier_before_all_have_come),
        cmocka_unit_test(a_barrier_waits_for_all),
    };
    return cmocka_run_group_tests_name("comm_collectives", tests, NULL, NULL);
}
