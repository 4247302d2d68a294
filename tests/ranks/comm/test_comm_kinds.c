/* Every kind of collective but allreduce, and the forms of a reduction: transports, world sizes,
 * element types, slices, in place and not, registered and private and unaligned memory, against a
 * reference in double; every entry of their schedules is needed. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "comm/reduce/reduce.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 16, BEFORE = 77 };

typedef enum where { REGISTERED, PRIVATE, UNALIGNED, PRIVATE_ON_RANK_0, WHERES } where;
typedef enum slicing { EVEN, UNEVEN, NO_SLICES } slicing;

typedef struct one_case {
    kolo_collective kind;
    kolo_dtype dtype;
    kolo_reduce_op op;
    size_t count; /* of each slice, about; of the whole where there are none */
    slicing slicing;
    where where;
    bool in_place, scaled;
    int root;
} one_case;

typedef struct buffers {
    char *registered[2], *private_data[2]; /* input and output */
} buffers;

/* ---- what a case is ---- */

static bool is_float(kolo_dtype dtype) {
    return dtype <= KOLO_DTYPE_BF16 || dtype >= KOLO_DTYPE_C64;
}

/* Elements that go from rank `from` to rank `to`, or of slice `to`. */
static size_t slice(const one_case *c, int from, int to) {
    if (c->slicing == EVEN) return c->count;
    int k = c->kind == KOLO_COLLECTIVE_ALLTOALL ? from + 2 * to : to;
    return k % 3 == 1 ? 0 : c->count + (size_t)(k % 5);
}

static size_t slice_first(const one_case *c, int from, int to) {
    size_t first = 0;
    for (int p = 0; p < to; p++) first += slice(c, from, p);
    return first;
}

/* As slice_first, of what comes in at rank `to`. */
static size_t output_first(const one_case *c, int from, int to) {
    size_t first = 0;
    if (c->kind != KOLO_COLLECTIVE_ALLTOALL) return slice_first(c, 0, from);
    for (int p = 0; p < from; p++) first += slice(c, p, to);
    return first;
}

/* Elements of this rank's input and output, and which elements of the whole the input is. */
static void extents(const one_case *c, int n, int rank, size_t *input, size_t *output,
                    size_t *first) {
    size_t whole = c->slicing == NO_SLICES ? c->count : slice_first(c, rank, n);
    size_t own = c->slicing == NO_SLICES ? 0 : slice(c, 0, rank);
    bool root = rank == c->root;
    *input = *output = whole;
    *first = 0;
    switch (c->kind) {
    case KOLO_COLLECTIVE_REDUCE:
        *output = root ? whole : 0;
        break;
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
        *output = own;
        break;
    case KOLO_COLLECTIVE_ALLGATHER:
    case KOLO_COLLECTIVE_GATHER:
        *input = own;
        *first = slice_first(c, 0, rank);
        if (c->kind == KOLO_COLLECTIVE_GATHER && !root) *output = 0;
        break;
    case KOLO_COLLECTIVE_SCATTER:
        *input = root ? whole : 0;
        *output = own;
        break;
    case KOLO_COLLECTIVE_ALLTOALL:
        *output = output_first(c, n, rank);
        break;
    default:
        break;
    }
}

/* The value that must stand at element i of the output. */
static double expected(const one_case *c, int n, int rank, size_t i) {
    int from = 0;
    double v;
    switch (c->kind) {
    case KOLO_COLLECTIVE_SCATTER:
        return value_input(c->root, slice_first(c, 0, rank) + i);
    case KOLO_COLLECTIVE_ALLGATHER:
    case KOLO_COLLECTIVE_GATHER:
    case KOLO_COLLECTIVE_ALLTOALL:
        while (output_first(c, from + 1, rank) <= i) from++;
        i -= output_first(c, from, rank);
        return value_input(
            from, slice_first(c, from, c->kind == KOLO_COLLECTIVE_ALLTOALL ? rank : from) + i);
    default:
        if (c->kind == KOLO_COLLECTIVE_REDUCE_SCATTER) i += slice_first(c, 0, rank);
        v = value_reference(n, i, c->op);
        if (c->scaled && c->op == KOLO_PROD) v *= pow(2, n) / 2;
        v = value_kept(c->dtype, v);
        if (c->op == KOLO_MEAN) v = is_float(c->dtype) ? v / n : trunc(v / n);
        return v;
    }
}

/* ---- running it ---- */

static void place(const one_case *c, const buffers *b, int rank, char **input, char **output) {
    bool own = c->where == PRIVATE || (c->where == PRIVATE_ON_RANK_0 && rank == 0);
    size_t off = c->where == UNALIGNED ? 1 : 0;
    *input = (own ? b->private_data[0] : b->registered[0]) + off;
    *output = (own ? b->private_data[1] : b->registered[1]) + 3 * off;
}

/* In place: the output is long enough for the input, which stands in it. */
static void in_place(const one_case *c, int n, int rank, size_t n_input, size_t first, char *output,
                     char **input, char **result) {
    size_t e = kolo_dtype_bytes(c->dtype);
    (void)n_input;
    (void)n;
    *input =
        output +
        (c->kind == KOLO_COLLECTIVE_ALLGATHER || c->kind == KOLO_COLLECTIVE_GATHER ? first * e : 0);
    *result = output;
    if (c->kind == KOLO_COLLECTIVE_REDUCE_SCATTER) *result += slice_first(c, 0, rank) * e;
}

static kolo_status check_case(const one_case *c, int n, int rank, const char *result,
                              size_t n_output) {
    for (size_t i = 0; i < n_output; i++) {
        double got = value_get(result, i, c->dtype), want = expected(c, n, rank, i);
        double error = value_tolerance(c->dtype, n) + (c->op == KOLO_MEAN ? 1e-6 : 0);
        if (fabs(got - want) > error * fabs(want)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "kind %d %s op %d count %zu slicing %d where %d%s%s root %d: element "
                             "%zu is %g, not %g",
                             (int)c->kind, kolo_dtype_name(c->dtype), (int)c->op, c->count,
                             (int)c->slicing, (int)c->where, c->in_place ? " in place" : "",
                             c->scaled ? " scaled" : "", c->root, i, got, want);
        }
    }
    return KOLO_OK;
}

/* Whether this rank gives input, or output, at all. */
static bool root_alone(const one_case *c, int rank) {
    bool rooted = c->kind == KOLO_COLLECTIVE_REDUCE || c->kind == KOLO_COLLECTIVE_GATHER ||
                  c->kind == KOLO_COLLECTIVE_SCATTER;
    return !rooted || rank == c->root;
}

typedef struct prepared {
    kolo_request_opts opts;
    char *input, *result;
    size_t n_input, n_output, first;
    size_t counts[2][8];
} prepared;

static void prepare(const one_case *c, const buffers *b, int n, int rank, prepared *p) {
    char *input, *output;
    extents(c, n, rank, &p->n_input, &p->n_output, &p->first);
    place(c, b, rank, &input, &output);
    p->input = input;
    p->result = output;
    bool inside = c->in_place && root_alone(c, rank) && c->kind != KOLO_COLLECTIVE_SCATTER;
    if (inside) in_place(c, n, rank, p->n_input, p->first, output, &p->input, &p->result);
    bool no_output = c->kind == KOLO_COLLECTIVE_SCATTER && c->in_place && rank == c->root;
    if (no_output) p->n_output = 0;
    for (int r = 0; r < n && c->slicing == UNEVEN; r++) {
        p->counts[0][r] = slice(c, rank, r);
        p->counts[1][r] = slice(c, c->kind == KOLO_COLLECTIVE_ALLTOALL ? r : 0,
                                c->kind == KOLO_COLLECTIVE_ALLTOALL ? rank : r);
    }
    p->opts = (kolo_request_opts){
        .kind = c->kind,
        .dtype = c->dtype,
        .op = c->op,
        .input = inside ? NULL : p->input,
        .output = no_output ? NULL : output,
        .count = c->slicing == UNEVEN ? BEFORE : c->count,
        .counts = c->slicing == UNEVEN ? p->counts[0] : NULL,
        .output_counts = c->slicing == UNEVEN ? p->counts[1] : NULL,
        .root = c->root,
        .prescale = c->scaled ? 2 : 0,
        .postscale = c->scaled ? 0.5 : 0,
        .site = "case",
    };
}

/* MPI has no 16-bit floats. */
static bool lacks(const kolo_comm *comm, const one_case *c) {
    bool half = c->dtype == KOLO_DTYPE_F16 || c->dtype == KOLO_DTYPE_BF16;
    return comm->backend && half && kolo_collective_reduces(c->kind);
}

static kolo_status run_case(kolo_comm *comm, const one_case *c, const buffers *b) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    prepared p;
    kolo_request *request;
    prepare(c, b, n, rank, &p);
    if (lacks(comm, c)) {
        bool refused = kolo_request_create(comm, &p.opts, &request) == KOLO_ERR_UNSUPPORTED &&
                       strstr(kolo_last_error(), "MPI does not reduce");
        return refused ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "MPI reduces 16-bit floats");
    }
    KOLO_TRY(kolo_request_create(comm, &p.opts, &request));
    for (int repeat = 0; repeat < 2; repeat++) {
        for (size_t i = 0; i < p.n_output; i++) value_put(p.result, i, c->dtype, BEFORE);
        for (size_t i = 0; i < p.n_input; i++) {
            value_put(p.input, i, c->dtype, value_input(rank, p.first + i));
        }
        KOLO_TRY(kolo_request_start(request));
        KOLO_TRY(kolo_request_wait(request, 0));
        KOLO_TRY(check_case(c, n, rank, p.result, p.n_output));
        for (size_t i = 0; i < p.n_input && p.opts.input; i++) {
            if (value_get(p.input, i, c->dtype) != value_input(rank, p.first + i)) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "kind %d changes its input", (int)c->kind);
            }
        }
        KOLO_TRY(kolo_barrier(comm)); /* before a rank rewrites what others still check */
    }
    kolo_request_destroy(request);
    return KOLO_OK;
}

static kolo_status make_buffers(kolo_comm *comm, buffers *b) {
    for (int i = 0; i < 2; i++) {
        void *memory;
        KOLO_TRY(kolo_comm_alloc(comm, BYTES, &memory));
        b->registered[i] = memory;
        b->private_data[i] = kolo_alloc(BYTES);
        if (!b->private_data[i]) return KOLO_NOMEM(BYTES);
    }
    return KOLO_OK;
}

static void free_buffers(buffers *b) {
    for (int i = 0; i < 2; i++) kolo_free(b->private_data[i]);
}

/* ---- the table ---- */

static const kolo_collective kinds[] = {
    KOLO_COLLECTIVE_ALLREDUCE, KOLO_COLLECTIVE_REDUCE, KOLO_COLLECTIVE_REDUCE_SCATTER,
    KOLO_COLLECTIVE_ALLGATHER, KOLO_COLLECTIVE_GATHER, KOLO_COLLECTIVE_SCATTER,
    KOLO_COLLECTIVE_ALLTOALL,
};

static slicing first_slicing(kolo_collective kind) {
    bool whole = kind == KOLO_COLLECTIVE_ALLREDUCE || kind == KOLO_COLLECTIVE_REDUCE;
    return whole ? NO_SLICES : EVEN;
}

/* In every place and form of one kind, type and operation; or in every other one, from `turn` on.
 */
static kolo_status run_forms(kolo_comm *comm, one_case c, const buffers *b, int turn) {
    for (int uneven = 0; uneven <= (c.slicing != NO_SLICES); uneven++) {
        for (int w = 0; w < WHERES; w++) {
            for (int inside = 0; inside <= 1; inside++) {
                for (int scaled = 0;
                     scaled <= (kolo_collective_reduces(c.kind) && is_float(c.dtype)); scaled++) {
                    if (turn > 0 && (w + inside + scaled + uneven + turn) % 2) continue;
                    one_case form = c;
                    if (uneven) form.slicing = UNEVEN;
                    form.where = (where)w;
                    form.in_place = inside;
                    form.scaled = scaled;
                    if (c.kind == KOLO_COLLECTIVE_ALLTOALL && uneven && inside) continue;
                    KOLO_TRY(run_case(comm, &form, b));
                }
            }
        }
    }
    return KOLO_OK;
}

typedef struct matrix {
    kolo_comm_tuning tuning;
    kolo_algorithm algorithm;
    bool all_types;
} matrix;

/* Every other form, and which, except in the soak: of large groups, which wait for processors,
 * others with five ranks than with eight; of all types, others by messages than through memory. 0:
 * all. */
static int turn_of(const matrix *m, int ranks, int type, int op) {
    if (getenv("KOLO_SOAK")) return 0;
    if (m->all_types) return 1 + type + op + (m->algorithm == KOLO_ALGORITHM_RING);
    return ranks > 3 ? ranks : 0;
}

static kolo_status matrix_body(kolo_comm *comm, const void *arg, void *result) {
    const matrix *m = arg;
    static const size_t counts[] = {0, 1, 7, 131};
    int n = kolo_comm_size(comm);
    buffers b = {0};
    kolo_comm_set_tuning(comm, m->tuning);
    comm->algorithm = m->algorithm;
    kolo_status status = make_buffers(comm, &b);
    for (size_t k = 0; k < KOLO_COUNT(kinds); k++) {
        int types = m->all_types ? KOLO_TENSOR_DTYPE_COUNT : 1;
        if (m->all_types && kolo_collective_reduces(kinds[k])) types = KOLO_DTYPE_COUNT;
        for (int t = 0; t < types; t++) {
            int ops = m->all_types && kolo_collective_reduces(kinds[k]) ? KOLO_MEAN + 1 : 1;
            for (int op = 0; op < ops; op++) {
                if (kolo_reduce_check((kolo_dtype)t, (kolo_reduce_op)op) != KOLO_OK) continue;
                for (size_t i = m->all_types ? 2 : 0; i < KOLO_COUNT(counts); i++) {
                    if (m->all_types && i != 2) continue;
                    one_case c = {.kind = kinds[k],
                                  .dtype = (kolo_dtype)t,
                                  .op = (kolo_reduce_op)op,
                                  .count = counts[i],
                                  .slicing = first_slicing(kinds[k]),
                                  .root = (int)(i + k) % n};
                    if (status == KOLO_OK) status = run_forms(comm, c, &b, turn_of(m, n, t, op));
                }
            }
        }
    }
    free_buffers(&b);
    return status;
}

static const int worlds[] = {1, 2, 3, 5, 8};

static void run_matrix(const matrix *m, int most) {
    for (size_t w = 0; w < KOLO_COUNT(worlds) && worlds[w] <= most; w++) {
        ASSERT_OK(run_ranks(worlds[w], RANKS_THREAD, matrix_body, m, sizeof *m));
        if (worlds[w] > 1 && worlds[w] < 5) {
            ASSERT_OK(run_ranks(worlds[w], RANKS_SHM, matrix_body, m, sizeof *m));
        }
    }
}

static void every_kind_through_memory(void **state) {
    run_matrix(&(matrix){.algorithm = KOLO_ALGORITHM_DIRECT}, 8);
}

static void every_kind_by_messages(void **state) {
    run_matrix(&(matrix){.tuning = {.chunk_bytes = 64}, .algorithm = KOLO_ALGORITHM_RING}, 8);
}

static void every_type_and_operation(void **state) {
    run_matrix(&(matrix){.all_types = true, .algorithm = KOLO_ALGORITHM_DIRECT}, 3);
    run_matrix(&(matrix){.all_types = true, .algorithm = KOLO_ALGORITHM_RING}, 3);
}

/* ---- missing entries ---- */

typedef struct removal {
    one_case one;
    int rank;
    size_t entry;
    kolo_algorithm algorithm;
} removal;

/* Runs a schedule that lacks one entry: a result that is right must not come out on all ranks. */
static kolo_status removal_body(kolo_comm *comm, const void *arg, void *result) {
    const removal *r = arg;
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    size_t *n_entries = result;
    buffers b = {0};
    prepared p;
    kolo_request *q;
    comm->algorithm = r->algorithm;
    kolo_comm_set_tuning(comm, (kolo_comm_tuning){.chunk_bytes = 32, .eager_bytes = 1});
    kolo_status status = make_buffers(comm, &b);
    prepare(&r->one, &b, n, rank, &p);
    for (size_t i = 0; i < p.n_output; i++) value_put(p.result, i, r->one.dtype, BEFORE);
    for (size_t i = 0; i < p.n_input; i++) {
        value_put(p.input, i, r->one.dtype, value_input(rank, p.first + i));
    }
    if (status == KOLO_OK) status = kolo_request_create(comm, &p.opts, &q);
    if (status == KOLO_OK) {
        kolo_schedule *s = kolo_request_schedule(q);
        *n_entries = s->n_entries;
        if (rank == r->rank && r->entry < s->n_entries) {
            /* Without a barrier this rank would go on while others read: left to the schedule
             * check. */
            bool barrier = s->entries[r->entry].kind == KOLO_ENTRY_BARRIER;
            if (barrier) status = KOLO_ERR_PEER;
            if (!barrier) kolo_schedule_remove(s, r->entry);
        }
    }
    if (status == KOLO_OK) status = kolo_request_start(q);
    if (status == KOLO_OK) status = kolo_request_wait(q, 0);
    if (status == KOLO_OK) status = check_case(&r->one, n, rank, p.result, p.n_output);
    kolo_status left = status == KOLO_OK ? kolo_barrier(comm) : status;
    free_buffers(&b);
    return status == KOLO_OK ? left : status;
}

static kolo_status run_removal(int n, const removal *r, size_t *n_entries) {
    size_t entries[8];
    kolo_status status = run_rank_job(&(rank_job){.n = n,
                                                  .transport = RANKS_THREAD,
                                                  .body = removal_body,
                                                  .arg = r,
                                                  .arg_bytes = sizeof *r,
                                                  .results = entries,
                                                  .result_bytes = sizeof entries[0],
                                                  .timeout_ms = r->entry == SIZE_MAX ? 20000 : 60});
    *n_entries = entries[r->rank];
    return status;
}

static void a_real_run_fails_without_any_one_entry(void **state) {
#ifdef __SANITIZE_THREAD__
    print_message(
        "skip: without an entry ranks race, which the thread sanitizer rightly reports\n");
    skip();
#endif
    static const kolo_algorithm algorithms[] = {KOLO_ALGORITHM_RING, KOLO_ALGORITHM_DIRECT};
    for (size_t k = 1; k < KOLO_COUNT(kinds); k++) {
        for (size_t a = 0; a < KOLO_COUNT(algorithms); a++) {
            removal r = {.one = {.kind = kinds[k],
                                 .count = 5,
                                 .slicing = first_slicing(kinds[k]),
                                 .scaled = kolo_collective_reduces(kinds[k])},
                         .rank = (int)k % 2,
                         .entry = SIZE_MAX,
                         .algorithm = algorithms[a]};
            if (r.one.scaled) r.one.op = KOLO_PROD; /* neither scale can hide behind the other */
            size_t n_entries, same;
            ASSERT_OK(run_removal(2, &r, &n_entries));
            for (r.entry = 0; r.entry < n_entries; r.entry++) {
                if (run_removal(2, &r, &same) == KOLO_OK) {
                    fail_msg("kind %d, algorithm %s is right without entry %zu", (int)kinds[k],
                             kolo_algorithm_name(r.algorithm), r.entry);
                }
            }
        }
    }
}

/* ---- the short forms ---- */

static kolo_status short_body(kolo_comm *comm, const void *arg, void *result) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    int32_t all[16] = {0}, own[2] = {rank + 1, 10 * rank}, got[2] = {0};
    KOLO_TRY(kolo_allgather(comm, own, all, 2, KOLO_DTYPE_I32));
    bool right = true;
    for (int r = 0; r < n; r++) right = right && all[2 * r] == r + 1 && all[2 * r + 1] == 10 * r;
    KOLO_TRY(kolo_reduce(comm, own, got, 1, KOLO_DTYPE_I32, KOLO_SUM, n - 1));
    right = right && got[0] == (rank == n - 1 ? n * (n + 1) / 2 : 0);
    KOLO_TRY(kolo_reduce_scatter(comm, all, got, 2, KOLO_DTYPE_I32, KOLO_MAX));
    right = right && got[0] == rank + 1 && got[1] == 10 * rank;
    memset(all, 0, sizeof all);
    KOLO_TRY(kolo_gather(comm, own, all, 2, KOLO_DTYPE_I32, 0));
    for (int r = 0; r < n; r++) right = right && all[2 * r] == (rank == 0 ? r + 1 : 0);
    KOLO_TRY(kolo_scatter(comm, all, got, 2, KOLO_DTYPE_I32, 0));
    right = right && got[0] == rank + 1;
    for (int r = 0; r < n; r++) all[r] = 100 * rank + r;
    KOLO_TRY(kolo_alltoall(comm, NULL, all, 1, KOLO_DTYPE_I32));
    for (int r = 0; r < n; r++) right = right && all[r] == 100 * r + rank;
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "a short form is wrong");
}

static void short_forms_equal_requests(void **state) {
    for (int n = 1; n <= 4; n++) ASSERT_OK(run_ranks(n, RANKS_THREAD, short_body, NULL, 0));
    for (int t = RANKS_SHM; t <= RANKS_HOSTS_UCX; t++) {
        if (!ranks_have((rank_transport)t)) continue;
        ASSERT_OK(run_ranks(3, (rank_transport)t, short_body, NULL, 0));
    }
}

/* ---- by MPI ---- */

static void every_kind_by_mpi(rank_transport mpi) {
    static const matrix one_type = {0}, all_types = {.all_types = true};
    if (!ranks_have(mpi)) {
        print_message("skip: no module for this MPI, or no mpiexec of it\n");
        skip();
    }
    for (int n = 1; n <= 3; n++) {
        ASSERT_OK(run_ranks(n, mpi, matrix_body, &one_type, sizeof one_type));
    }
    ASSERT_OK(run_ranks(2, mpi, matrix_body, &all_types, sizeof all_types));
    ASSERT_OK(run_ranks(3, mpi, short_body, NULL, 0));
}

static void every_kind_by_open_mpi(void **state) { every_kind_by_mpi(RANKS_OPENMPI); }
static void every_kind_by_mpich(void **state) { every_kind_by_mpi(RANKS_MPICH); }

TEST_MAIN(test_comm_kinds) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_through_memory),
        cmocka_unit_test(every_kind_by_messages),
        cmocka_unit_test(every_type_and_operation),
        cmocka_unit_test(a_real_run_fails_without_any_one_entry),
        cmocka_unit_test(short_forms_equal_requests),
        cmocka_unit_test(every_kind_by_open_mpi),
        cmocka_unit_test(every_kind_by_mpich),
    };
    return cmocka_run_group_tests_name("comm_kinds", tests, NULL, NULL);
}
