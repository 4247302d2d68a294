/* Steps of bsp with servers: a push, the update by its owners, and a pull; see kolo/bench.h.
 *
 * With n workers a step reads n gradients, reads and writes the values, and copies them to n
 * workers: of each byte of the parameters 3 n + 2 are read or written, as many as by (3 n + 2) / 2
 * plain copies. The bound is the time of these, at the rate at which all ranks copy at the same
 * time. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/bench/bench_ranks.h"
#include "kolo/bench.h"
#include "kolo/parameters.h"

#include <string.h>

enum { STEPS_LEAST = 3, STEPS_MOST = 2000 };
enum { PART_BYTES = 512 << 10, BUCKETS_MOST = 1024 }; /* of a part, by default */

typedef struct bench {
    kolo_comm *comm;
    const kolo_bench_parameters_opts *opts;
    kolo_parameters *parameters;
    int workers, owners, steps;
    bool works, owns;
    float *values, *gradient; /* [most] */
    kolo_bench_copies copies;
    double us[STEPS_MOST];
    int64_t update_ns, updated; /* of this owner: in updates, and their elements */
} bench;

enum { UPDATE_BYTES = 3 * sizeof(float) }; /* of an element, that an update reads and writes */

/* SGD: reads the value and the gradient, writes the value. */
static void update(void *arg, const kolo_parameters_update *u) {
    bench *b = arg;
    const float rate = -0.5F;
    float *restrict values = u->values;
    const float *restrict gradient = u->gradient;
    const int64_t begin_ns = kolo_now_ns();
    for (size_t i = 0; i < u->count; i++) values[i] += rate * gradient[i];
    b->update_ns += kolo_now_ns() - begin_ns;
    b->updated += (int64_t)u->count;
}

/* After s steps with gradients of w + 1 a value is its first one less s times half their sum. */
static kolo_status check(const bench *b, size_t count, int steps) {
    const float sum = (float)(b->workers * (b->workers + 1) / 2);
    for (size_t i = 0; i < count && b->works; i++) {
        const float expected = (float)(i % 5) - 0.5F * sum * (float)steps;
        if (b->values[i] == expected) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "value %zu is %g after %d steps, not %g", i,
                         (double)b->values[i], steps, (double)expected);
    }
    return KOLO_OK;
}

static kolo_status step(bench *b, double *us) {
    const int64_t begin_ns = kolo_now_ns();
    KOLO_TRY(kolo_parameters_push(b->parameters, b->gradient));
    KOLO_TRY(kolo_parameters_pull(b->parameters, b->values));
    *us = (double)(kolo_now_ns() - begin_ns) * 1e-3;
    return KOLO_OK;
}

/* Steps that fit into the budget, by the slowest worker, after one that is checked. */
static kolo_status begin(bench *b, size_t count) {
    double us = 1;
    for (size_t i = 0; i < count; i++) b->gradient[i] = (float)(kolo_comm_rank(b->comm) + 1);
    if (b->works) KOLO_TRY(step(b, &us));
    KOLO_TRY(check(b, count, 1));
    KOLO_TRY(kolo_allreduce(b->comm, &us, 1, KOLO_DTYPE_F64, KOLO_MAX));
    const double fit = (double)b->opts->budget_ms * 1e3 / us;
    b->steps = fit > STEPS_MOST ? STEPS_MOST : fit < STEPS_LEAST ? STEPS_LEAST : (int)fit;
    return KOLO_OK;
}

/* The steps; returns what this rank has sent and received. */
static kolo_status run(bench *b, size_t count, double *moved) {
    uint64_t before[2], after[2];
    kolo_parameters_traffic(b->parameters, &before[0], &before[1]);
    b->update_ns = b->updated = 0;
    memset(b->us, 0, sizeof b->us);
    KOLO_TRY(kolo_barrier(b->comm));
    for (int i = 0; b->works && i < b->steps; i++) KOLO_TRY(step(b, &b->us[i]));
    KOLO_TRY(kolo_bench_barrier(b->comm));
    kolo_parameters_traffic(b->parameters, &after[0], &after[1]);
    for (int i = 0; i < 2; i++) moved[i] = (double)(after[i] - before[i]) / b->steps;
    return check(b, count, 1 + b->steps);
}

/* The rates of copies by all ranks, and by the owners alone. */
static kolo_status measure_copies(const bench *b, size_t bytes, double rates[2]) {
    const int64_t ms = (b->opts->budget_ms + 15) / 16;
    KOLO_TRY(kolo_bench_copies_rate(&b->copies, bytes, true, ms, &rates[0]));
    return kolo_bench_copies_rate(&b->copies, bytes, b->owns, ms, &rates[1]);
}

/* Buckets whose parts have a size that messages cost little of, and caches hold. */
static int buckets_of(const bench *b, size_t bytes) {
    const size_t n = bytes / PART_BYTES / (size_t)b->owners;
    if (b->opts->buckets > 0) return b->opts->buckets;
    return n > BUCKETS_MOST ? BUCKETS_MOST : n > 0 ? (int)n : 1;
}

/* Steps of one size, with the parameters. */
static kolo_status measure(bench *b, size_t bytes, kolo_bench_parameters_row *row) {
    const size_t count = bytes / sizeof(float);
    double moved[2], most[2], update[2];
    KOLO_TRY(begin(b, count));
    KOLO_TRY(run(b, count, moved));
    memcpy(most, moved, sizeof most);
    KOLO_TRY(kolo_allreduce(b->comm, most, 2, KOLO_DTYPE_F64, KOLO_MAX));
    KOLO_TRY(kolo_allreduce(b->comm, b->us, (size_t)b->steps, KOLO_DTYPE_F64, KOLO_MAX));
    update[0] = (double)b->update_ns;
    update[1] = (double)b->updated;
    KOLO_TRY(kolo_allreduce(b->comm, update, 2, KOLO_DTYPE_F64, KOLO_SUM));
    kolo_sort_doubles(b->us, (size_t)b->steps);
    row->steps = b->steps;
    row->us_median = b->us[b->steps / 2];
    row->us_min = b->us[0];
    row->us_max = b->us[b->steps - 1];
    row->sent = most[0];
    row->received = most[1];
    row->update_ns = update[1] > 0 ? update[0] / update[1] : 0;
    return KOLO_OK;
}

static kolo_status bench_size(bench *b, size_t bytes, kolo_bench_parameters_row *row) {
    const size_t count = bytes / sizeof(float);
    const kolo_parameters_opts opts = {.servers = b->opts->servers,
                                       .shared = b->opts->servers > 0 && !b->opts->apart,
                                       .buckets = buckets_of(b, bytes),
                                       .update = update,
                                       .arg = b};
    double rates[2] = {0};
    for (size_t i = 0; i < count; i++) b->values[i] = (float)(i % 5);
    *row = (kolo_bench_parameters_row){.bytes = bytes,
                                       .workers = b->workers,
                                       .servers = b->opts->servers,
                                       .buckets = opts.buckets};
    KOLO_TRY(measure_copies(b, bytes, rates));
    KOLO_TRY(kolo_parameters_create(b->comm, b->values, count, &opts, &b->parameters));
    KOLO_TRY(measure(b, bytes, row));
    KOLO_TRY(measure_copies(b, bytes, rates));
    row->copy_gigabytes_per_s = rates[0] * 1e-3;
    row->bound_us = (3.0 * b->workers + 2) / 2 * (double)bytes / rates[0];
    row->update_bound_ns = UPDATE_BYTES / 2.0 / rates[1] * b->owners * 1e3;
    kolo_parameters_destroy(b->parameters);
    b->parameters = NULL;
    return KOLO_OK;
}

static kolo_status check_opts(const kolo_bench_parameters_opts *o, int ranks) {
    if (o->servers < 0 || o->servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d servers of %d ranks: there must be a worker (--servers)",
                         o->servers, ranks);
    }
    if (o->budget_ms < 0 || o->buckets < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a budget of %lld ms and %d buckets: must not be negative",
                         (long long)o->budget_ms, o->buckets);
    }
    for (int i = 0; i < o->n_sizes; i++) {
        if (o->sizes[i] >= sizeof(float)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "a size of %zu bytes: parameters are floats", o->sizes[i]);
    }
    return KOLO_OK;
}

static kolo_status run_all(bench *b, kolo_bench_parameters_row *rows) {
    size_t most = 0;
    void *memory;
    for (int i = 0; i < b->opts->n_sizes; i++) {
        if (b->opts->sizes[i] > most) most = b->opts->sizes[i];
    }
    KOLO_TRY(kolo_comm_alloc(b->comm, 2 * most, &memory));
    b->values = memory;
    b->gradient = b->values + most / sizeof(float);
    KOLO_TRY(kolo_bench_copies_init(b->comm, most, true, &b->copies));
    for (int i = 0; i < b->opts->n_sizes; i++) {
        KOLO_TRY(bench_size(b, b->opts->sizes[i], &rows[i]));
    }
    return KOLO_OK;
}

kolo_status kolo_bench_parameters(kolo_comm *comm, const kolo_bench_parameters_opts *opts,
                                  kolo_bench_parameters_row *rows, int *n_rows) {
    static const size_t sizes[] = {1 << 20, 16 << 20, 64 << 20};
    kolo_bench_parameters_opts o = opts ? *opts : (kolo_bench_parameters_opts){0};
    if (!o.sizes || o.n_sizes == 0) {
        o.sizes = sizes;
        o.n_sizes = (int)KOLO_COUNT(sizes);
    }
    if (o.budget_ms == 0) o.budget_ms = 500;
    KOLO_TRY(check_opts(&o, kolo_comm_size(comm)));
    if (*n_rows < o.n_sizes) {
        return KOLO_FAIL(KOLO_ERR_ARG, "room for %d rows, %d are needed", *n_rows, o.n_sizes);
    }
    bench *b = kolo_zalloc(sizeof *b);
    if (!b) return KOLO_NOMEM(sizeof *b);
    const int ranks = kolo_comm_size(comm), workers = ranks - o.servers;
    const bool alone = o.servers > 0 && o.apart; /* servers own everything */
    *b = (bench){.comm = comm,
                 .opts = &o,
                 .workers = workers,
                 .owners = alone ? o.servers : ranks,
                 .works = kolo_comm_rank(comm) < workers,
                 .owns = !alone || kolo_comm_rank(comm) >= workers};
    const kolo_status status = run_all(b, rows);
    if (b->parameters) {
        kolo_parameters_abandon(b->parameters);
        kolo_parameters_destroy(b->parameters);
    }
    kolo_free(b);
    if (status == KOLO_OK) *n_rows = o.n_sizes;
    return status;
}
