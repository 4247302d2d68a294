/* How long an allreduce takes. See kolo/bench.h for what is measured.
 *
 * Each iteration: both sides of the timed call are barriers, the first so that all ranks start
 * together, the second so that the rewriting of "dirty" buffers does not run into another rank's
 * call. The times of all ranks are combined after the last iteration: the maximum of each iteration
 * (as an allreduce of its own), then the median. Iterations go on until the budget is used; rank 0
 * decides, and tells the others by broadcast every few iterations, outside of the timed part. */
#define _GNU_SOURCE
#include "kolo/bench.h"

#include "base/base.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MOST = 20000, ITERATIONS_LEAST = 16, WARM_UP = 4, DECIDE_EVERY = 8 };

static const size_t sizes_default[] = {8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20};

typedef struct bench {
    kolo_comm *comm;
    const kolo_bench_allreduce_opts *opts;
    int64_t budget_ns;
    float *data;
    double *us; /* [ITERATIONS_MOST] of one size */
} bench;

/* Binds this thread to the processor of its local rank, as MPI's launchers do, when each rank can
 * have one of its own; `before` is what to go back to. */
static bool bind_rank(const kolo_comm *comm, cpu_set_t *before) {
    if (sched_getaffinity(0, sizeof *before, before) != 0) return false;
    if (CPU_COUNT(before) < kolo_comm_local_size(comm) || CPU_COUNT(before) == 1) return false;
    int left = kolo_comm_local_rank(comm), cpu = 0;
    while (!CPU_ISSET(cpu, before) || left-- > 0) cpu++;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    return sched_setaffinity(0, sizeof own, &own) == 0;
}

static void rewrite(float *data, size_t count, int rank) {
    for (size_t i = 0; i < count; i++) data[i] = (float)(rank + 1);
}

/* One size: `*n` times of this rank. */
static kolo_status measure(const bench *b, kolo_request *request, kolo_request *barrier,
                           size_t count, int *n) {
    int rank = kolo_comm_rank(b->comm);
    int64_t until_ns = 0;
    int32_t stop = 0;
    *n = 0;
    for (int i = -WARM_UP; !stop; i++) {
        if (i == 0) until_ns = kolo_now_ns() + b->budget_ns;
        if (b->opts->dirty) rewrite(b->data, count, rank);
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
        if (i >= 0 && *n % DECIDE_EVERY == 0) {
            bool enough = *n >= ITERATIONS_LEAST && end_ns > until_ns;
            stop = enough || *n + DECIDE_EVERY > ITERATIONS_MOST;
            KOLO_TRY(kolo_broadcast(b->comm, &stop, 1, KOLO_DTYPE_I32, 0));
        }
    }
    return KOLO_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill_row(const bench *b, size_t bytes, int n, kolo_bench_row *row) {
    int ranks = kolo_comm_size(b->comm);
    qsort(b->us, (size_t)n, sizeof *b->us, ascending);
    double median = b->us[n / 2], gbps = median > 0 ? (double)bytes / median * 1e-3 : 0;
    *row = (kolo_bench_row){.bytes = bytes,
                            .ranks = ranks,
                            .algorithm = b->opts->algorithm,
                            .iterations = n,
                            .us_median = median,
                            .us_min = b->us[0],
                            .algbw_gbps = gbps,
                            .busbw_gbps = gbps * (2.0 * (ranks - 1) / ranks)};
}

/* The result of one more call on fresh data is what it must be. */
static kolo_status check_result(const bench *b, kolo_request *request, size_t count) {
    int ranks = kolo_comm_size(b->comm);
    rewrite(b->data, count, kolo_comm_rank(b->comm));
    KOLO_TRY(kolo_request_start(request));
    KOLO_TRY(kolo_request_wait(request, 0));
    int total = ranks * (ranks + 1) / 2;
    float want = (float)total;
    for (size_t i = 0; i < count; i++) {
        if (b->data[i] != want) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "allreduce of %zu floats gave %g at %zu, not %g",
                             count, (double)b->data[i], i, (double)want);
        }
    }
    return kolo_barrier(b->comm);
}

static kolo_status bench_size(const bench *b, size_t bytes, kolo_bench_row *row) {
    size_t count = bytes / sizeof(float);
    kolo_part part = {.data = b->data, .count = count};
    kolo_request *request = NULL, *barrier = NULL;
    int n = 0;
    kolo_status status = KOLO_OK;
    KOLO_TRY_GOTO(kolo_allreduce_create(b->comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                        b->opts->algorithm, "bench", &request),
                  done);
    KOLO_TRY_GOTO(kolo_barrier_create(b->comm, "bench", &barrier), done);
    KOLO_TRY_GOTO(check_result(b, request, count), done);
    memset(b->data, 0, count * sizeof(float)); /* sums of sums would overflow */
    KOLO_TRY_GOTO(measure(b, request, barrier, count, &n), done);
    KOLO_TRY_GOTO(kolo_allreduce(b->comm, b->us, (size_t)n, KOLO_DTYPE_F64, KOLO_MAX), done);
    fill_row(b, bytes, n, row);
done:
    if (status == KOLO_OK) { /* in flight requests of a broken communicator go with it */
        kolo_request_destroy(request);
        kolo_request_destroy(barrier);
    }
    return status;
}

static kolo_status check_opts(const kolo_bench_allreduce_opts *o) {
    for (int i = 0; i < o->n_sizes; i++) {
        if (o->sizes[i] < sizeof(float) || o->sizes[i] % sizeof(float) != 0) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "a size of %zu bytes: a positive multiple of %zu is "
                             "needed",
                             o->sizes[i], sizeof(float));
        }
    }
    if (o->budget_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a budget of %lld ms", (long long)o->budget_ms);
    }
    return KOLO_OK;
}

kolo_status kolo_bench_allreduce(kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                                 kolo_bench_row *rows, int *n_rows) {
    kolo_bench_allreduce_opts o = opts ? *opts : (kolo_bench_allreduce_opts){0};
    if (!o.sizes || o.n_sizes == 0) {
        o.sizes = sizes_default;
        o.n_sizes = (int)KOLO_COUNT(sizes_default);
    }
    if (o.budget_ms == 0) o.budget_ms = 500;
    KOLO_TRY(check_opts(&o));
    if (*n_rows < o.n_sizes) {
        return KOLO_FAIL(KOLO_ERR_ARG, "room for %d rows, %d are made", *n_rows, o.n_sizes);
    }
    size_t most = 0;
    for (int i = 0; i < o.n_sizes; i++) most = o.sizes[i] > most ? o.sizes[i] : most;
    bench b = {.comm = comm, .opts = &o, .budget_ns = o.budget_ms * 1000000};
    void *memory = NULL;
    if (!o.private_buffers) KOLO_TRY(kolo_comm_alloc(comm, most, &memory));
    void *own = o.private_buffers ? kolo_pages_map(most) : NULL;
    b.data = o.private_buffers ? own : memory;
    b.us = kolo_alloc(ITERATIONS_MOST * sizeof *b.us);
    kolo_status status = KOLO_OK;
    cpu_set_t before;
    bool bound = bind_rank(comm, &before);
    if (!b.data || !b.us) status = KOLO_NOMEM(most);
    for (int i = 0; i < o.n_sizes && status == KOLO_OK; i++) {
        status = bench_size(&b, o.sizes[i], &rows[i]);
    }
    if (bound) (void)sched_setaffinity(0, sizeof before, &before);
    kolo_pages_unmap(own, most);
    kolo_free(b.us);
    if (status == KOLO_OK) *n_rows = o.n_sizes;
    return status;
}
