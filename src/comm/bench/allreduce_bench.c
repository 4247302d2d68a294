/* Times allreduces; see kolo/bench.h.
 *
 * A barrier before the timed call starts all ranks together; with `dirty`, a barrier after it keeps
 * ranks from rewriting buffers during another rank's call. After the last iteration an allreduce
 * takes the maximum over ranks of each iteration. Every few iterations, outside the timed part,
 * rank 0 broadcasts whether the time budget is used up. By the first call it decides whether that
 * is for many iterations or, on a slow link, for a few. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/bench/work.h"
#include "comm/engine/comm.h"
#include "comm/engine/progress_thread.h"
#include "kolo/bench.h"

#include <math.h>
#include <sched.h>
#include <string.h>

enum {
    ITERATIONS_MOST = 20000,
    ITERATIONS_LEAST = 16,
    ITERATIONS_SLOW = 3, /* where as many as that, with the warm-up, exceed the budget */
    WARM_UP = 4,
    DECIDE_EVERY = 8,
    SKEW_BYTES = 5 * 4096, /* between vectors, which would otherwise share cache sets */
};

static const size_t sizes_default[] = {8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20};

typedef struct bench {
    kolo_comm *comm;
    const kolo_bench_allreduce_opts *opts;
    int64_t budget_ns;
    void *data;
    char *nodes; /* [n_nodes][bytes of the size + SKEW_BYTES]: inputs of a reproducible allreduce */
    int n_nodes; /* 0: in place */
    double *us;  /* [ITERATIONS_MOST] of one size */
} bench;

/* How often calls of a size are timed. */
typedef struct pace {
    int warm_up, least, decide_every;
} pace;

/* Binds this thread to one processor, as MPI launchers do; with more local ranks than processors,
 * each gets the same number of ranks. `before` is the affinity to restore. A host with one rank has
 * nothing to divide: hosts that are network namespaces of one machine would all bind their ranks to
 * the same processor. */
static bool bind_rank(const kolo_comm *comm, cpu_set_t *before) {
    if (kolo_comm_local_size(comm) == 1) return false;
    if (sched_getaffinity(0, sizeof *before, before) != 0) return false;
    int n = CPU_COUNT(before), left = kolo_comm_local_rank(comm) % n, cpu = 0;
    if (n == 1) return false;
    while (!CPU_ISSET(cpu, before) || left-- > 0) cpu++;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    return sched_setaffinity(0, sizeof own, &own) == 0;
}

/* The value that a rank contributes: small enough to be exact in every type, and so is the result.
 */
static int value_of(const bench *b, int rank) {
    if (kolo_comm_size(b->comm) > 10 || b->opts->op == KOLO_PROD) return 1;
    return b->opts->op == KOLO_MEAN ? 2 * (rank + 1) : rank + 1;
}

static int result_of(const bench *b) {
    int n = kolo_comm_size(b->comm), result = value_of(b, 0), sum = 0;
    for (int r = 0; r < n; r++) {
        int value = value_of(b, r);
        sum += value;
        if (b->opts->op == KOLO_AND) result &= value;
        if (b->opts->op == KOLO_OR) result |= value;
        if (b->opts->op == KOLO_XOR) result = r == 0 ? value : result ^ value;
    }
    if (b->opts->op == KOLO_MAX) result = value_of(b, n - 1);
    if (b->opts->op == KOLO_SUM) result = sum;
    if (b->opts->op == KOLO_MEAN) result = sum / n;
    return result;
}

enum { ELEMENT_BYTES = 16 }; /* of the longest type */

/* A small positive integer as an element of any type. */
static void encode(kolo_dtype dtype, int value, char element[ELEMENT_BYTES]) {
    float f = (float)value;
    double d = value;
    float c64[] = {f, 0};
    double c128[] = {d, 0};
    int64_t k = value; /* little endian: starts with the bytes of the shorter types */
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t bf16 = (uint16_t)(bits >> 16), f16 = (uint16_t)((bits >> 13) - (112 << 10));
    const void *from[] = {
        [KOLO_DTYPE_F32] = &f,     [KOLO_DTYPE_F64] = &d,   [KOLO_DTYPE_F16] = &f16,
        [KOLO_DTYPE_BF16] = &bf16, [KOLO_DTYPE_I8] = &k,    [KOLO_DTYPE_U8] = &k,
        [KOLO_DTYPE_I32] = &k,     [KOLO_DTYPE_I64] = &k,   [KOLO_DTYPE_I16] = &k,
        [KOLO_DTYPE_U16] = &k,     [KOLO_DTYPE_U32] = &k,   [KOLO_DTYPE_U64] = &k,
        [KOLO_DTYPE_C64] = c64,    [KOLO_DTYPE_C128] = c128};
    _Static_assert(KOLO_COUNT(from) == KOLO_DTYPE_COUNT, "a value of each type");
    memcpy(element, from[dtype], kolo_dtype_bytes(dtype));
}

static void fill(kolo_dtype dtype, char *data, size_t count, int value) {
    char element[ELEMENT_BYTES];
    size_t e = kolo_dtype_bytes(dtype), done = count < 8 ? count : 8, bytes = count * e;
    encode(dtype, value, element);
    for (size_t i = 0; i < done; i++) memcpy(data + i * e, element, e);
    for (size_t at = done * e; at < bytes; at *= 2) { /* doubles the filled part */
        memcpy(data + at, data, bytes - at < at ? bytes - at : at);
    }
}

static char *node_at(const bench *b, int i, size_t bytes) {
    return b->nodes + (size_t)i * (bytes + SKEW_BYTES);
}

/* Writes this rank's contribution, all of it into the first node. */
static void rewrite(const bench *b, size_t count, int value) {
    size_t bytes = count * kolo_dtype_bytes(b->opts->dtype);
    if (b->n_nodes == 0) fill(b->opts->dtype, b->data, count, value);
    for (int i = 0; i < b->n_nodes; i++) {
        fill(b->opts->dtype, node_at(b, i, bytes), count, i ? 0 : value);
    }
}

/* The same on all ranks; `first_ns` is the time of a call. */
static kolo_status decide_pace(const bench *b, int64_t first_ns, pace *p) {
    int32_t slow = (WARM_UP + ITERATIONS_LEAST) * first_ns > b->budget_ns;
    KOLO_TRY(kolo_broadcast(b->comm, &slow, 1, KOLO_DTYPE_I32, 0));
    *p = slow ? (pace){.warm_up = 0, .least = ITERATIONS_SLOW, .decide_every = 1}
              : (pace){.warm_up = WARM_UP, .least = ITERATIONS_LEAST, .decide_every = DECIDE_EVERY};
    return KOLO_OK;
}

/* Measures one size on this rank: `*n` times. */
static kolo_status measure(const bench *b, const pace *p, kolo_request *request,
                           kolo_request *barrier, size_t count, int *n) {
    int rank = kolo_comm_rank(b->comm);
    int64_t until_ns = 0;
    int32_t stop = 0;
    *n = 0;
    for (int i = -p->warm_up; !stop; i++) {
        if (i == 0) until_ns = kolo_now_ns() + b->budget_ns;
        if (b->opts->dirty) rewrite(b, count, value_of(b, rank));
        KOLO_TRY(kolo_request_start(barrier));
        KOLO_TRY(kolo_request_wait(barrier, 0));
        int64_t start_ns = kolo_now_ns();
        KOLO_TRY(kolo_request_start(request));
        KOLO_TRY(kolo_request_wait(request, 0));
        int64_t end_ns = kolo_now_ns();
        if (b->opts->dirty) {
            KOLO_TRY(kolo_request_start(barrier));
            KOLO_TRY(kolo_request_wait(barrier, 0));
        }
        if (i >= 0) b->us[(*n)++] = (double)(end_ns - start_ns) * 1e-3;
        if (i >= 0 && *n % p->decide_every == 0) {
            bool enough = *n >= p->least && end_ns > until_ns;
            stop = enough || *n + p->decide_every > ITERATIONS_MOST;
            KOLO_TRY(kolo_broadcast(b->comm, &stop, 1, KOLO_DTYPE_I32, 0));
        }
    }
    return KOLO_OK;
}

static void fill_row(const bench *b, size_t bytes, int n, kolo_algorithm algorithm,
                     kolo_bench_row *row) {
    int ranks = kolo_comm_size(b->comm);
    kolo_sort_doubles(b->us, (size_t)n);
    double mean = 0;
    for (int i = 0; i < n; i++) mean += b->us[i] / n;
    double median = b->us[n / 2], gigabytes_per_s = median > 0 ? (double)bytes / median * 1e-3 : 0;
    *row = (kolo_bench_row){.bytes = bytes,
                            .ranks = ranks,
                            .algorithm = algorithm,
                            .iterations = n,
                            .us_median = median,
                            .us_min = b->us[0],
                            .us_mean = mean,
                            .us_max = b->us[n - 1],
                            .algbw_gigabytes_per_s = gigabytes_per_s,
                            .busbw_gigabytes_per_s = gigabytes_per_s * (2.0 * (ranks - 1) / ranks),
                            .us_work = NAN};
}

/* A size whose work is measured. */
typedef struct sized {
    const bench *bench;
    size_t count;
} sized;

static void rewrite_zeros(void *arg) {
    const sized *s = arg;
    rewrite(s->bench, s->count, 0);
}

/* The work of a call of the size of `row`. */
static kolo_status measure_work(const bench *b, kolo_request *request, size_t count,
                                kolo_bench_row *row) {
    sized s = {b, count};
    if (!b->opts->work) return KOLO_OK;
    if (!kolo_progress_has_thread(b->comm)) { /* the caller does all of it */
        row->us_work = row->us_median;
        return KOLO_OK;
    }
    return kolo_bench_work(b->comm, request, row->us_median, b->budget_ns / 1000000,
                           b->opts->dirty ? rewrite_zeros : NULL, &s, &row->us_work);
}

/* Checks the result of a call on fresh data, which takes `ns` from when all ranks have that. */
static kolo_status check_result(const bench *b, kolo_request *request, size_t count, int64_t *ns) {
    size_t e = kolo_dtype_bytes(b->opts->dtype);
    char want[ELEMENT_BYTES];
    rewrite(b, count, value_of(b, kolo_comm_rank(b->comm)));
    KOLO_TRY(kolo_barrier(b->comm));
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_request_start(request));
    KOLO_TRY(kolo_request_wait(request, 0));
    *ns = kolo_now_ns() - begin;
    encode(b->opts->dtype, result_of(b), want);
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)b->data + i * e, want, e) != 0) {
            return KOLO_FAIL(
                KOLO_ERR_FORMAT,
                "an allreduce of %zu x %s gave a wrong result, expected %d at element %zu", count,
                kolo_dtype_name(b->opts->dtype), result_of(b), i);
        }
    }
    return kolo_barrier(b->comm);
}

static kolo_status create_request(const bench *b, size_t count, kolo_request **request) {
    const kolo_bench_allreduce_opts *o = b->opts;
    kolo_part parts[64] = {{.data = b->data, .count = count}};
    uint32_t nodes[64];
    (void)kolo_tree_nodes(o->shards, kolo_comm_size(b->comm), kolo_comm_rank(b->comm), nodes);
    for (int i = 0; i < b->n_nodes; i++) {
        char *data = node_at(b, i, count * kolo_dtype_bytes(o->dtype));
        parts[i] = (kolo_part){.data = data, .count = count, .tree_node = nodes[i]};
    }
    return kolo_request_create(b->comm,
                               &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                    .parts = parts,
                                                    .n_parts = o->shards > 0 ? b->n_nodes : 1,
                                                    .output = o->shards > 0 ? b->data : NULL,
                                                    .count = o->shards > 0 ? count : 0,
                                                    .dtype = o->dtype,
                                                    .op = o->op,
                                                    .algorithm = o->algorithm,
                                                    .shards = o->shards,
                                                    .site = "bench"},
                               request);
}

static kolo_status bench_size(const bench *b, size_t bytes, kolo_bench_row *row) {
    size_t e = kolo_dtype_bytes(b->opts->dtype), count = bytes / e;
    kolo_request *request = NULL, *barrier = NULL;
    int64_t first_ns = 0;
    pace p;
    int n = 0;
    kolo_status status = KOLO_OK;
    KOLO_TRY_GOTO(create_request(b, count, &request), done);
    KOLO_TRY_GOTO(kolo_barrier_create(b->comm, "bench", &barrier), done);
    KOLO_TRY_GOTO(check_result(b, request, count, &first_ns), done);
    KOLO_TRY_GOTO(decide_pace(b, first_ns, &p), done);
    if (b->n_nodes == 0) memset(b->data, 0, count * e); /* repeated sums would overflow */
    KOLO_TRY_GOTO(measure(b, &p, request, barrier, count, &n), done);
    KOLO_TRY_GOTO(kolo_allreduce(b->comm, b->us, (size_t)n, KOLO_DTYPE_F64, KOLO_MAX), done);
    fill_row(b, bytes, n, kolo_request_algorithm(request), row);
    status = measure_work(b, request, count, row);
done:
    if (status == KOLO_OK) { /* a broken communicator frees its requests */
        kolo_request_destroy(request);
        kolo_request_destroy(barrier);
    }
    return status;
}

static kolo_status check_opts(const kolo_bench_allreduce_opts *o, int ranks) {
    KOLO_TRY(kolo_reduce_check(o->dtype, o->op));
    if (o->hosts < 0) return KOLO_FAIL(KOLO_ERR_ARG, "invalid benchmark: %d hosts", o->hosts);
    if (o->hosts > ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%d ranks on %d hosts: at most one host per rank (--pretend-hosts)", ranks,
                         o->hosts);
    }
    if (o->shards != 0 && (o->shards < ranks || (o->op != KOLO_SUM && o->op != KOLO_MEAN))) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a reproducible allreduce of %d shards: needs op sum or mean and at least "
                         "one shard per rank (%d ranks)",
                         o->shards, ranks);
    }
    if (o->shards != 0 && o->algorithm != KOLO_ALGORITHM_AUTO) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "algorithm %s with --shards: a reproducible allreduce has an algorithm of its "
            "own; leave --algorithm out",
            kolo_algorithm_name(o->algorithm));
    }
    size_t e = kolo_dtype_bytes(o->dtype);
    for (int i = 0; i < o->n_sizes; i++) {
        if (o->sizes[i] < e || o->sizes[i] % e != 0) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "a size of %zu bytes: must be a positive multiple of %zu", o->sizes[i],
                             e);
        }
    }
    if (o->budget_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a budget of %lld ms: must not be negative",
                         (long long)o->budget_ms);
    }
    return KOLO_OK;
}

/* Treats the ranks as spread over `hosts` hosts. */
static kolo_status pretend_hosts(kolo_comm *comm, int hosts) {
    int n = kolo_comm_size(comm);
    int *host_of = kolo_alloc((size_t)n * sizeof *host_of);
    if (!host_of) return KOLO_NOMEM((size_t)n * sizeof *host_of);
    for (int r = 0; r < n; r++) host_of[r] = (int)((int64_t)r * hosts / n);
    kolo_status status = kolo_comm_set_hosts(comm, host_of);
    kolo_free(host_of);
    return status;
}

kolo_status kolo_bench_allreduce(kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                                 kolo_bench_row *rows, int *n_rows) {
    kolo_bench_allreduce_opts o = opts ? *opts : (kolo_bench_allreduce_opts){0};
    if (!o.sizes || o.n_sizes == 0) {
        o.sizes = sizes_default;
        o.n_sizes = (int)KOLO_COUNT(sizes_default);
    }
    if (o.budget_ms == 0) o.budget_ms = 500;
    KOLO_TRY(check_opts(&o, kolo_comm_size(comm)));
    if (o.hosts > 0) KOLO_TRY(pretend_hosts(comm, o.hosts));
    if (*n_rows < o.n_sizes) {
        return KOLO_FAIL(KOLO_ERR_ARG, "room for %d rows, %d are needed", *n_rows, o.n_sizes);
    }
    size_t most = 0;
    for (int i = 0; i < o.n_sizes; i++) most = o.sizes[i] > most ? o.sizes[i] : most;
    bench b = {.comm = comm, .opts = &o, .budget_ns = kolo_ms_to_ns(o.budget_ms)};
    if (o.shards > 0) {
        b.n_nodes = kolo_tree_nodes(o.shards, kolo_comm_size(comm), kolo_comm_rank(comm), NULL);
    }
    size_t bytes = (most + SKEW_BYTES) * (size_t)(1 + b.n_nodes); /* the result and its inputs */
    void *memory = NULL;
    if (!o.private_buffers) KOLO_TRY(kolo_comm_alloc(comm, bytes, &memory));
    void *own = o.private_buffers ? kolo_pages_map(bytes) : NULL;
    b.data = o.private_buffers ? own : memory;
    b.nodes = b.data ? (char *)b.data + most + SKEW_BYTES : NULL;
    b.us = kolo_alloc(ITERATIONS_MOST * sizeof *b.us);
    kolo_status status = KOLO_OK;
    cpu_set_t before;
    bool bound = bind_rank(comm, &before);
    if (!b.data || !b.us) status = KOLO_NOMEM(bytes);
    for (int i = 0; i < o.n_sizes && status == KOLO_OK; i++) {
        status = bench_size(&b, o.sizes[i], &rows[i]);
    }
    if (bound) (void)sched_setaffinity(0, sizeof before, &before);
    kolo_pages_unmap(own, bytes);
    kolo_free(b.us);
    if (status == KOLO_OK) *n_rows = o.n_sizes;
    return status;
}

/* ---- calibration ---- */

/* Solves the cost model for one algorithm from its times at a small and a large size. Minima,
 * because other load only adds to them. */
static kolo_comm_cost solve(kolo_algorithm algorithm, int n, int hosts,
                            const kolo_bench_row rows[2]) {
    const kolo_algorithm_info *info = kolo_algorithm_info_of(algorithm);
    double steps = info->steps(n, hosts), volume = info->volume(n, hosts);
    double mib = (double)(rows[1].bytes - rows[0].bytes) * 0x1p-20;
    double slope = (rows[1].us_min - rows[0].us_min) / mib; /* us per MiB */
    if (slope < 0) slope = 0;
    double start = rows[0].us_min - slope * (double)rows[0].bytes * 0x1p-20;
    return (kolo_comm_cost){.step_us = (start > 0 ? start : 0) / steps, .mib_us = slope / volume};
}

kolo_status kolo_bench_calibrate(kolo_comm *comm, const char *path, int64_t budget_ms) {
    static const size_t sizes[] = {8, 4 << 20};
    int n = kolo_comm_size(comm), hosts = kolo_comm_host_count(comm);
    if (n < 2) return KOLO_FAIL(KOLO_ERR_ARG, "calibration needs at least 2 ranks");
    if (comm->backend) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "nothing to calibrate: transport %s chooses its own algorithms",
                         kolo_comm_transport(comm));
    }
    kolo_comm_costs costs = comm->costs;
    for (int a = KOLO_ALGORITHM_AUTO + 1; a < KOLO_ALGORITHM_COUNT; a++) {
        if (!kolo_algorithm_usable((kolo_algorithm)a, comm->transport->windows, hosts)) continue;
        kolo_bench_row rows[2];
        int n_rows = 2;
        kolo_bench_allreduce_opts o = {.sizes = sizes,
                                       .n_sizes = 2,
                                       .algorithm = (kolo_algorithm)a,
                                       .dirty = true,
                                       .budget_ms = budget_ms > 0 ? budget_ms : 100};
        KOLO_TRY(kolo_bench_allreduce(comm, &o, rows, &n_rows));
        costs.of[a] = solve((kolo_algorithm)a, n, hosts, rows); /* the same on all ranks */
    }
    comm->costs = costs;
    if (!path || kolo_comm_rank(comm) != 0) return KOLO_OK;
    return kolo_comm_costs_write(path, kolo_comm_transport(comm), &costs);
}
