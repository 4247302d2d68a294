/* Pulls and pushes of rows of a table; see kolo/bench.h. The batches of random ids are drawn in
 * advance. The bound is the work that a server cannot avoid: for each row a lookup in an index as
 * large as that of the table, and a copy of the row, to a batch and back, with many accesses to
 * memory at a time. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/bench/bench_ranks.h"
#include "comm/table/row_copy.h"
#include "kolo/bench.h"
#include "kolo/table.h"

#include <string.h>

enum { BATCHES = 16, ITERATIONS_MOST = 100000, CREATED = 65536, ROW_BYTES_MORE = 64, AHEAD = 32 };

static const size_t sizes_default[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20};

typedef struct bench {
    kolo_comm *comm;
    const kolo_bench_table_opts *opts;
    kolo_table *table;
    int rank, n_workers, n_servers;
    bool works, serves;
    size_t most;     /* rows of the largest batch */
    uint64_t *ids;   /* [BATCHES][most] */
    float *rows;     /* [most][width] */
    uint32_t *index; /* [rows] and, in the same order, [rows][width]: of the bound */
    float *copies;
} bench;

static void update(void *arg, const kolo_table_update *u) {
    for (size_t i = 0; i < u->n; i++) {
        float *restrict row = u->values + (size_t)u->slots[i] * u->width;
        const float *restrict gradient = u->gradients + i * u->width;
        for (size_t c = 0; c < u->width; c++) row[c] += gradient[c];
    }
}

/* Ids like hashes. */
static uint64_t id_of(uint64_t number) { return number * UINT64_C(0x9e3779b97f4a7c15); }

static void draw_batches(const bench *b) {
    const kolo_rng rng = kolo_rng_make(1, KOLO_RNG_BENCH, (uint64_t)b->rank);
    for (size_t i = 0; i < BATCHES * b->most; i++) {
        b->ids[i] = id_of(kolo_rng_below(&rng, i, b->opts->rows));
    }
}

/* Each worker creates a part of the rows. */
static kolo_status create_rows(const bench *b) {
    uint64_t ids[1024];
    size_t n = 0;
    const size_t batch = b->most < KOLO_COUNT(ids) ? b->most : KOLO_COUNT(ids);
    for (uint64_t i = (uint64_t)b->rank; i < b->opts->rows; i += (uint64_t)b->n_workers) {
        ids[n++] = id_of(i);
        if (n < batch) continue;
        KOLO_TRY(kolo_table_push(b->table, ids, n, b->rows));
        n = 0;
    }
    KOLO_TRY(kolo_table_push(b->table, ids, n, b->rows));
    return kolo_table_flush(b->table);
}

typedef enum work { PULL, PUSH, BOTH } work;

static kolo_status run_once(const bench *b, work what, size_t batch, int i) {
    const uint64_t *ids = b->ids + (size_t)(i % BATCHES) * b->most;
    if (what != PUSH) KOLO_TRY(kolo_table_pull(b->table, ids, batch, b->rows));
    if (what == PULL) return KOLO_OK;
    return kolo_table_push(b->table, ids, batch, b->rows);
}

static kolo_status run_times(const bench *b, work what, size_t batch, int n, double *us) {
    const int64_t start_ns = kolo_now_ns();
    for (int i = 0; b->works && i < n; i++) KOLO_TRY(run_once(b, what, batch, i));
    if (b->works) KOLO_TRY(kolo_table_flush(b->table));
    *us = (double)(kolo_now_ns() - start_ns) * 1e-3;
    return kolo_bench_barrier(b->comm);
}

/* Millions of rows per second and worker, by the slowest one. */
static kolo_status measure(const bench *b, work what, size_t batch, int *n, double *speed) {
    enum { FIRST = 4 };
    double us;
    KOLO_TRY(kolo_barrier(b->comm));
    KOLO_TRY(run_times(b, what, batch, FIRST, &us));
    KOLO_TRY(kolo_allreduce(b->comm, &us, 1, KOLO_DTYPE_F64, KOLO_MAX));
    const double fit = (double)b->opts->budget_ms * 1e3 / us * FIRST;
    *n = fit > ITERATIONS_MOST ? ITERATIONS_MOST : fit < FIRST ? FIRST : (int)fit;
    KOLO_TRY(kolo_barrier(b->comm));
    KOLO_TRY(run_times(b, what, batch, *n, &us));
    KOLO_TRY(kolo_allreduce(b->comm, &us, 1, KOLO_DTYPE_F64, KOLO_MAX));
    *speed = (double)batch * *n / us;
    return KOLO_OK;
}

/* ---- the bound ---- */

/* Copies up to AHEAD rows of ids to a batch, or back: first fetches what it reads of the index,
 * then the rows. */
static void copy_some(const bench *b, const uint64_t *ids, size_t n, float *batch, bool back) {
    const size_t width = b->opts->width;
    const uint32_t *at[AHEAD];
    for (size_t k = 0; k < n; k++) {
        at[k] = &b->index[(ids[k] >> 32) * b->opts->rows >> 32];
        __builtin_prefetch(at[k]);
    }
    for (size_t k = 0; k < n; k++) __builtin_prefetch(b->copies + (size_t)*at[k] * width);
    for (size_t k = 0; k < n; k++) {
        float *row = b->copies + (size_t)*at[k] * width;
        kolo_row_copy(back ? row : batch + k * width, back ? batch + k * width : row, width);
    }
}

static void copy_rows(const bench *b, size_t batch, int i, bool back) {
    const uint64_t *ids = b->ids + (size_t)(i % BATCHES) * b->most;
    for (size_t k = 0; k < batch; k += AHEAD) {
        const size_t n = batch - k < AHEAD ? batch - k : AHEAD;
        copy_some(b, ids + k, n, b->rows + k * b->opts->width, back);
    }
}

/* All servers copy at the same time. */
static kolo_status measure_copies(const bench *b, size_t batch, double *speed) {
    int n = 0;
    KOLO_TRY(kolo_barrier(b->comm));
    const int64_t start_ns = kolo_now_ns(), end_ns = start_ns + b->opts->budget_ms * 1000000 / 2;
    double rows = 0;
    while (b->serves && kolo_now_ns() < end_ns) {
        copy_rows(b, batch, n, false);
        copy_rows(b, batch, n++, true);
    }
    if (b->serves) rows = (double)batch * n / ((double)(kolo_now_ns() - start_ns) * 1e-3);
    KOLO_TRY(kolo_bench_barrier(b->comm));
    KOLO_TRY(kolo_allreduce(b->comm, &rows, 1, KOLO_DTYPE_F64, KOLO_SUM));
    *speed = rows / b->n_workers;
    return KOLO_OK;
}

/* ---- creation ---- */

static kolo_status open_memory(bench *b) {
    const size_t width = b->opts->width, all = (size_t)b->opts->rows;
    b->ids = kolo_alloc(BATCHES * b->most * sizeof *b->ids);
    b->rows = kolo_zalloc(b->most * width * sizeof *b->rows);
    if (!b->ids || !b->rows) return KOLO_NOMEM(b->most * width * sizeof *b->rows);
    draw_batches(b);
    if (!b->serves) return KOLO_OK;
    b->index = kolo_pages_map(all * sizeof *b->index);
    b->copies = kolo_pages_map(all * width * sizeof *b->copies);
    if (!b->index || !b->copies) return KOLO_NOMEM(all * width * sizeof *b->copies);
    const kolo_rng rng = kolo_rng_make(1, KOLO_RNG_BENCH, 99);
    for (size_t i = 0; i < all; i++) b->index[i] = (uint32_t)kolo_rng_below(&rng, i, all);
    memset(b->copies, 0, all * width * sizeof *b->copies);
    return KOLO_OK;
}

static void close_memory(bench *b) {
    kolo_pages_unmap(b->index, (size_t)b->opts->rows * sizeof *b->index);
    kolo_pages_unmap(b->copies, (size_t)b->opts->rows * b->opts->width * sizeof *b->copies);
    kolo_free(b->ids);
    kolo_free(b->rows);
}

static kolo_status check_opts(const kolo_bench_table_opts *o, int ranks) {
    if (o->servers < 0 || o->servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%d servers of %d ranks: there must be a worker (--servers, --ranks)",
                         o->servers, ranks);
    }
    for (int i = 0; i < o->n_sizes; i++) {
        if (o->sizes[i] >= o->width * sizeof(float)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a batch of %zu bytes, with rows of %zu floats: it must have "
                         "a row (--sizes, --width)",
                         o->sizes[i], o->width);
    }
    return KOLO_OK;
}

static kolo_status bench_size(const bench *b, size_t bytes, kolo_bench_table_row *row) {
    const size_t batch = bytes / (b->opts->width * sizeof(float));
    *row = (kolo_bench_table_row){
        .bytes = bytes, .batch = batch, .workers = b->n_workers, .servers = b->n_servers};
    KOLO_TRY(measure_copies(b, batch, &row->copied));
    KOLO_TRY(measure(b, PULL, batch, &row->iterations, &row->pulled));
    KOLO_TRY(measure(b, PUSH, batch, &row->iterations, &row->pushed));
    return measure(b, BOTH, batch, &row->iterations, &row->both);
}

/* A server has a share of the rows that varies a little. */
static size_t table_bytes(const bench *b) {
    KOLO_ASSERT(b->n_servers > 0);
    const size_t share = (size_t)b->opts->rows / (size_t)b->n_servers;
    const size_t row = b->opts->width * sizeof(float) + ROW_BYTES_MORE;
    return (share + share / 8 + CREATED) * row;
}

static kolo_status run(bench *b, kolo_bench_table_row *rows) {
    const kolo_table_opts table = {.width = b->opts->width,
                                   .bytes = table_bytes(b),
                                   .refuse = true,
                                   .batch = b->most,
                                   .servers = b->opts->servers,
                                   .staleness = KOLO_STALENESS_ANY,
                                   .needs_all = true,
                                   .update = update};
    KOLO_TRY(open_memory(b));
    KOLO_TRY(kolo_table_create(b->comm, &table, &b->table));
    if (b->works) KOLO_TRY(create_rows(b));
    KOLO_TRY(kolo_bench_barrier(b->comm));
    for (int i = 0; i < b->opts->n_sizes; i++) {
        KOLO_TRY(bench_size(b, b->opts->sizes[i], &rows[i]));
    }
    return kolo_barrier(b->comm);
}

kolo_status kolo_bench_table(kolo_comm *comm, const kolo_bench_table_opts *opts,
                             kolo_bench_table_row *rows, int *n_rows) {
    kolo_bench_table_opts o = opts ? *opts : (kolo_bench_table_opts){0};
    if (!o.sizes || o.n_sizes == 0) {
        o.sizes = sizes_default;
        o.n_sizes = (int)KOLO_COUNT(sizes_default);
    }
    if (o.width == 0) o.width = 16;
    if (o.rows == 0) o.rows = 1000000;
    if (o.budget_ms == 0) o.budget_ms = 500;
    const int rank = kolo_comm_rank(comm), ranks = kolo_comm_size(comm);
    KOLO_TRY(check_opts(&o, ranks));
    if (*n_rows < o.n_sizes) {
        return KOLO_FAIL(KOLO_ERR_ARG, "room for %d rows, %d are needed", *n_rows, o.n_sizes);
    }
    bench b = {.comm = comm,
               .opts = &o,
               .rank = rank,
               .n_workers = o.servers > 0 ? ranks - o.servers : ranks,
               .n_servers = o.servers > 0 ? o.servers : ranks,
               .works = o.servers == 0 || rank < ranks - o.servers,
               .serves = o.servers == 0 || rank >= ranks - o.servers};
    for (int i = 0; i < o.n_sizes; i++) {
        const size_t batch = o.sizes[i] / (o.width * sizeof(float));
        if (batch > b.most) b.most = batch;
    }
    const kolo_status status = run(&b, rows);
    if (status != KOLO_OK && b.table) kolo_table_abandon(b.table);
    kolo_table_destroy(b.table);
    close_memory(&b);
    if (status == KOLO_OK) *n_rows = o.n_sizes;
    return status;
}
