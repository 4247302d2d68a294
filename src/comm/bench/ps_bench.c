/* Pushes and pulls between workers and servers; see kolo/bench.h.
 *
 * A vector has one slice per server, which is exchanged in pieces: a piece is pulled after it has
 * been pushed, while the next one is pushed. So with k pieces both directions of a link are used at
 * the same time but for the first piece and the last, k / (k + 1) of the time; but each piece takes
 * time of its own. Over connections, of some sizes of pieces the fastest is taken. A server keeps a
 * copy of each worker's vector: a push copies the worker's slice to it, a pull copies it back.
 * Where ranks share memory, the server makes the copies of pushes and the workers those of pulls.
 * The bound is the rate of these copies without a service: before and after the measurement all
 * ranks copy out of each other's memory at the same time, without waiting for each other. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/bench/bench_ranks.h"
#include "comm/engine/family.h"
#include "comm/service/waits.h"
#include "kolo/bench.h"
#include "kolo/service.h"

#include <string.h>

enum { ITERATIONS_LEAST = 5, ITERATIONS_MOST = 20000, WARM_UP = 2, SERVERS_MAX = 1024 };
enum { PIECES_MOST = 128 };

/* Of a piece: the first in shared memory. */
static const size_t piece_sizes[] = {512 << 10, 64 << 10, 16 << 10};
enum { PUSH, PULL };
enum { LINE = 64 }; /* slices are aligned to it */

static const size_t sizes_default[] = {1 << 10, 16 << 10, 256 << 10, 1 << 20,
                                       4 << 20, 16 << 20, 64 << 20};

/* What a server holds; used by its thread only. */
typedef struct store {
    size_t bytes; /* room for a slice of one worker */
    char *slices; /* [ranks][bytes] */
} store;

typedef struct bench {
    kolo_comm *comm;
    kolo_service *service;
    const kolo_bench_ps_opts *opts;
    int rank, ranks, n_workers, n_servers;
    bool works, serves;
    char *pushed, *pulled; /* [most]: a worker's vectors */
    double *us;            /* [ITERATIONS_MOST] */
    store store;
    kolo_bench_copies copies;
    double bound; /* their rate, the largest so far */
    bool maps;    /* all ranks share memory with all servers */
    size_t piece_bytes;
    int n_pieces;                   /* of a slice, at most */
    kolo_service_request *requests; /* [n_servers][n_pieces][2] */
} bench;

static void serve(void *arg, kolo_service_call *call) {
    store *s = arg;
    char *slice = s->slices + (size_t)call->client * s->bytes + call->key;
    if (call->kind == PUSH) {
        if (call->input_bytes > 0) memcpy(slice, call->input, call->input_bytes);
        kolo_service_reply(call, KOLO_OK, 0, NULL, 0);
    } else {
        kolo_service_reply(call, KOLO_OK, 0, slice, call->output_bytes);
    }
}

/* The slice of a server: [*first, *first + *n). */
static void slice_of(const bench *b, size_t bytes, int server, size_t *first, size_t *n) {
    size_t s = (size_t)server, all = (size_t)b->n_servers;
    *first = bytes / all * s + (s < bytes % all ? s : bytes % all);
    *n = bytes / all + (s < bytes % all);
}

/* Into how many pieces slices of a vector are divided. */
static int pieces_of(const bench *b, size_t bytes) {
    const size_t n = bytes / (size_t)b->n_servers / b->piece_bytes;
    return n > PIECES_MOST ? PIECES_MOST : n > 0 ? (int)n : 1;
}

/* Starts the push of a piece of the slice of a server, and the pull behind it. */
static kolo_status start_piece(bench *b, size_t bytes, int server, int piece, int pieces) {
    size_t first, n;
    slice_of(b, bytes, server, &first, &n);
    const size_t at = n * (size_t)piece / (size_t)pieces;
    const size_t end = n * (size_t)(piece + 1) / (size_t)pieces;
    kolo_service_request *q = &b->requests[2 * (server * b->n_pieces + piece)];
    const int rank = kolo_service_server_rank(b->service, server);
    q[PUSH] = (kolo_service_request){.server = rank,
                                     .kind = PUSH,
                                     .key = at,
                                     .input = b->pushed + first + at,
                                     .input_bytes = end - at};
    q[PULL] = (kolo_service_request){.server = rank,
                                     .kind = PULL,
                                     .key = at,
                                     .output = b->pulled + first + at,
                                     .output_bytes = end - at};
    KOLO_TRY(kolo_service_start(b->service, &q[PUSH]));
    return kolo_service_start(b->service, &q[PULL]);
}

/* All servers get a piece before the next one. */
static kolo_status exchange(bench *b, size_t bytes) {
    const int pieces = pieces_of(b, bytes);
    for (int i = 0; i < b->n_servers * pieces; i++) {
        KOLO_TRY(start_piece(b, bytes, i % b->n_servers, i / b->n_servers, pieces));
    }
    for (int i = 0; i < b->n_servers * pieces; i++) {
        const int at = i % b->n_servers * b->n_pieces + i / b->n_servers;
        KOLO_TRY(kolo_service_wait(b->service, &b->requests[2 * at + PUSH], 0));
        KOLO_TRY(kolo_service_wait(b->service, &b->requests[2 * at + PULL], 0));
    }
    return KOLO_OK;
}

static kolo_status push_pull(bench *b, size_t bytes, double *us) {
    int64_t start_ns = kolo_now_ns();
    kolo_service_hold(b->service);
    const kolo_status status = exchange(b, bytes);
    kolo_service_release(b->service);
    *us = (double)(kolo_now_ns() - start_ns) * 1e-3;
    return status;
}

/* A pull returns what was pushed. */
static kolo_status check_result(bench *b, size_t bytes) {
    double us;
    for (size_t i = 0; i < bytes; i++) b->pushed[i] = (char)(i * 31 + i / 509 + (size_t)b->rank);
    memset(b->pulled, 0, bytes);
    KOLO_TRY(push_pull(b, bytes, &us));
    if (memcmp(b->pushed, b->pulled, bytes) == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a pull of %zu bytes gave other data than was pushed", bytes);
}

/* The mean time of some exchanges after the first. */
static kolo_status try_pieces(bench *b, size_t bytes, double *mean_us) {
    const double most_us = (double)b->opts->budget_ms * 1e3 / 8;
    double us, all_us = 0;
    int n = 0;
    KOLO_TRY(push_pull(b, bytes, &us));
    while (n < WARM_UP || all_us < most_us) {
        KOLO_TRY(push_pull(b, bytes, &us));
        all_us += us;
        n++;
    }
    *mean_us = all_us / n;
    return KOLO_OK;
}

/* Chooses the pieces of the fastest exchanges, by the slowest worker. */
static kolo_status choose_pieces(bench *b, size_t bytes) {
    double fastest = 0;
    size_t chosen = 0;
    int pieces = 0;
    for (size_t i = 0; i < KOLO_COUNT(piece_sizes) && !b->maps; i++) {
        b->piece_bytes = piece_sizes[i];
        if (pieces_of(b, bytes) == pieces) continue;
        pieces = pieces_of(b, bytes);
        double us = 0;
        if (b->works) KOLO_TRY(try_pieces(b, bytes, &us));
        KOLO_TRY(kolo_allreduce(b->comm, &us, 1, KOLO_DTYPE_F64, KOLO_MAX));
        if (chosen > 0 && us >= fastest) continue;
        chosen = piece_sizes[i];
        fastest = us;
    }
    b->piece_bytes = b->maps ? piece_sizes[0] : chosen;
    return KOLO_OK;
}

/* The number of iterations that fit into the budget, by the slowest worker. */
static kolo_status choose_iterations(bench *b, size_t bytes, int *n) {
    double us = 0, slowest = 1;
    for (int i = 0; b->works && i < WARM_UP; i++) KOLO_TRY(push_pull(b, bytes, &us));
    if (us > slowest) slowest = us;
    KOLO_TRY(kolo_allreduce(b->comm, &slowest, 1, KOLO_DTYPE_F64, KOLO_MAX));
    double fit = (double)b->opts->budget_ms * 1e3 / slowest;
    *n = fit > ITERATIONS_MOST ? ITERATIONS_MOST : (int)fit;
    if (*n < ITERATIONS_LEAST) *n = ITERATIONS_LEAST;
    return KOLO_OK;
}

static kolo_status measure_bound(const bench *b, size_t bytes, double *rate) {
    return kolo_bench_copies_rate(&b->copies, bytes, true, (b->opts->budget_ms + 7) / 8, rate);
}

static kolo_status bench_size(bench *b, size_t bytes, kolo_bench_ps_row *row) {
    int n;
    double wall_us = 0, bound = 0;
    if (b->works) KOLO_TRY(check_result(b, bytes));
    KOLO_TRY(choose_pieces(b, bytes));
    KOLO_TRY(choose_iterations(b, bytes, &n));
    KOLO_TRY(measure_bound(b, bytes, &bound));
    memset(b->us, 0, (size_t)n * sizeof *b->us);
    KOLO_TRY(kolo_barrier(b->comm));
    int64_t start_ns = kolo_now_ns();
    for (int i = 0; b->works && i < n; i++) KOLO_TRY(push_pull(b, bytes, &b->us[i]));
    if (b->works) wall_us = (double)(kolo_now_ns() - start_ns) * 1e-3;
    KOLO_TRY(kolo_bench_barrier(b->comm));
    KOLO_TRY(measure_bound(b, bytes, &bound));
    KOLO_TRY(kolo_allreduce(b->comm, &wall_us, 1, KOLO_DTYPE_F64, KOLO_MAX));
    KOLO_TRY(kolo_allreduce(b->comm, b->us, (size_t)n, KOLO_DTYPE_F64, KOLO_MAX));
    kolo_sort_doubles(b->us, (size_t)n);
    double moved = 2.0 * (double)bytes * b->n_workers * n;
    *row = (kolo_bench_ps_row){.bytes = bytes,
                               .workers = b->n_workers,
                               .servers = b->n_servers,
                               .iterations = n,
                               .us_median = b->us[n / 2],
                               .us_min = b->us[0],
                               .us_max = b->us[n - 1],
                               .gigabytes_per_s = moved / wall_us * 1e-3,
                               .copy_gigabytes_per_s = bound * 1e-3};
    return KOLO_OK;
}

static kolo_status check_opts(const kolo_bench_ps_opts *o, int ranks) {
    if (o->servers < 0 || o->servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%d servers of %d ranks: there must be a worker (--servers, --ranks)",
                         o->servers, ranks);
    }
    if (ranks > SERVERS_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d ranks: at most %d", ranks, SERVERS_MAX);
    }
    for (int i = 0; i < o->n_sizes; i++) {
        if (o->sizes[i] == 0) return KOLO_FAIL(KOLO_ERR_ARG, "a size of 0 bytes");
    }
    if (o->budget_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a budget of %lld ms: must not be negative",
                         (long long)o->budget_ms);
    }
    return KOLO_OK;
}

/* Registered memory, or with private_buffers of this process alone. */
static kolo_status open_block(const bench *b, size_t bytes, char **block) {
    void *memory = NULL;
    if (!b->opts->private_buffers) {
        KOLO_TRY(kolo_comm_alloc(b->comm, bytes, &memory));
    } else if (!(memory = kolo_pages_map(bytes))) {
        return KOLO_NOMEM(bytes);
    }
    *block = memory;
    return KOLO_OK;
}

/* Agreed: a rank on the host of the servers maps them while others do not. */
static kolo_status find_maps(bench *b) {
    int32_t all = 1;
    for (int r = b->ranks - b->n_servers; r < b->ranks; r++) all &= kolo_comm_maps(b->comm, r);
    KOLO_TRY(kolo_allreduce(b->comm, &all, 1, KOLO_DTYPE_I32, KOLO_MIN));
    b->maps = all != 0;
    return KOLO_OK;
}

static size_t store_bytes(const bench *b) { return b->store.bytes * (size_t)b->ranks; }

/* Allocates the vectors and the store. */
static kolo_status open_memory(bench *b, size_t most) {
    KOLO_ASSERT(b->n_servers > 0);
    b->us = kolo_zalloc(ITERATIONS_MOST * sizeof *b->us);
    if (!b->us) return KOLO_NOMEM(ITERATIONS_MOST * sizeof *b->us);
    b->store.bytes = kolo_round_up(most / (size_t)b->n_servers + 1, LINE);
    b->n_pieces = pieces_of(b, most);
    const size_t requests = 2 * (size_t)b->n_servers * (size_t)b->n_pieces * sizeof *b->requests;
    b->requests = kolo_zalloc(requests);
    if (!b->requests) return KOLO_NOMEM(requests);
    if (b->serves) KOLO_TRY(open_block(b, store_bytes(b), &b->store.slices));
    KOLO_TRY(open_block(b, 2 * most, &b->pushed));
    b->pulled = b->pushed + most;
    return kolo_bench_copies_init(b->comm, most, !b->opts->private_buffers, &b->copies);
}

static void close_memory(bench *b, size_t most) {
    if (b->opts->private_buffers) {
        kolo_pages_unmap(b->pushed, 2 * most);
        kolo_pages_unmap(b->store.slices, store_bytes(b));
    }
    kolo_bench_copies_fini(&b->copies);
    kolo_free(b->us);
    kolo_free(b->requests);
}

static kolo_status run(bench *b, size_t most, kolo_bench_ps_row *rows) {
    KOLO_TRY(open_memory(b, most));
    const bool exposes = b->serves && !b->opts->private_buffers;
    kolo_service_opts service = {.serve = b->serves ? serve : NULL,
                                 .exposed = exposes ? b->store.slices : NULL,
                                 .exposed_bytes = exposes ? store_bytes(b) : 0,
                                 .arg = &b->store};
    KOLO_TRY(kolo_service_create(b->comm, &service, &b->service));
    KOLO_TRY(find_maps(b));
    for (int i = 0; i < b->opts->n_sizes; i++) {
        KOLO_TRY(bench_size(b, b->opts->sizes[i], &rows[i]));
    }
    return kolo_barrier(b->comm);
}

kolo_status kolo_bench_ps(kolo_comm *comm, const kolo_bench_ps_opts *opts, kolo_bench_ps_row *rows,
                          int *n_rows) {
    kolo_bench_ps_opts o = opts ? *opts : (kolo_bench_ps_opts){0};
    if (!o.sizes || o.n_sizes == 0) {
        o.sizes = sizes_default;
        o.n_sizes = (int)KOLO_COUNT(sizes_default);
    }
    if (o.budget_ms == 0) o.budget_ms = 500;
    int rank = kolo_comm_rank(comm), ranks = kolo_comm_size(comm);
    KOLO_TRY(check_opts(&o, ranks));
    if (*n_rows < o.n_sizes) {
        return KOLO_FAIL(KOLO_ERR_ARG, "room for %d rows, %d are needed", *n_rows, o.n_sizes);
    }
    size_t most = 0;
    for (int i = 0; i < o.n_sizes; i++) most = o.sizes[i] > most ? o.sizes[i] : most;
    bench *b = kolo_zalloc(sizeof *b);
    if (!b) return KOLO_NOMEM(sizeof *b);
    *b = (bench){.comm = comm,
                 .opts = &o,
                 .rank = rank,
                 .ranks = ranks,
                 .n_workers = o.servers > 0 ? ranks - o.servers : ranks,
                 .n_servers = o.servers > 0 ? o.servers : ranks,
                 .piece_bytes = piece_sizes[KOLO_COUNT(piece_sizes) - 1], /* most pieces */
                 .works = o.servers == 0 || rank < ranks - o.servers,
                 .serves = o.servers == 0 || rank >= ranks - o.servers};
    kolo_status status = run(b, most, rows);
    kolo_service_destroy(b->service);
    close_memory(b, most);
    kolo_free(b);
    if (status == KOLO_OK) *n_rows = o.n_sizes;
    return status;
}
