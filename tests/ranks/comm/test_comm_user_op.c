/* Operations of programs: kinds, algorithms, transports, sizes of elements, registered and private
 * memory; an operation that is not commutative, in the order of the ranks; failures of the
 * function, ranks that disagree, and what is refused. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/schedule/algorithms.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

enum { MOST = 1000, RANKS_MOST = 5, WIDE = 100, BYTES = MOST * RANKS_MOST * WIDE };

/* ---- the operations ---- */

/* 2 x 2 matrices of integers that wrap around: associative, not commutative, exact. */
typedef struct matrix {
    uint32_t at[4];
} matrix;

static matrix times(matrix a, matrix b) {
    return (matrix){{a.at[0] * b.at[0] + a.at[1] * b.at[2], a.at[0] * b.at[1] + a.at[1] * b.at[3],
                     a.at[2] * b.at[0] + a.at[3] * b.at[2], a.at[2] * b.at[1] + a.at[3] * b.at[3]}};
}

static kolo_status multiply(void *arg, void *to, const void *from, size_t count) {
    matrix *x = to;
    const matrix *y = from;
    for (size_t i = 0; i < count; i++) x[i] = times(x[i], y[i]);
    return KOLO_OK;
}

/* The greatest value and its position, the first of equals: 12 bytes. */
typedef struct found {
    float value;
    int32_t rank, index;
} found;

static kolo_status greatest(void *arg, void *to, const void *from, size_t count) {
    found *x = to;
    const found *y = from;
    for (size_t i = 0; i < count; i++) {
        bool equal = y[i].value == x[i].value && y[i].rank < x[i].rank;
        if (y[i].value > x[i].value || equal) x[i] = y[i];
    }
    return KOLO_OK;
}

/* Elements that are larger than the alignment of slices. */
static kolo_status add_bytes(void *arg, void *to, const void *from, size_t count) {
    unsigned char *x = to;
    const unsigned char *y = from;
    for (size_t i = 0; i < count * WIDE; i++) x[i] = (unsigned char)(x[i] + y[i]);
    return KOLO_OK;
}

/* On elements of the request's type, f64; of two at the same distance the greater. */
static kolo_status farthest(void *arg, void *to, const void *from, size_t count) {
    double *x = to, centre = *(double *)arg;
    const double *y = from;
    for (size_t i = 0; i < count; i++) {
        double a = x[i] - centre, b = y[i] - centre;
        if (b * b > a * a || (b == -a && b > 0)) x[i] = y[i];
    }
    return KOLO_OK;
}

static double the_centre = 10;
static const kolo_user_op ops[] = {
    {.name = "product", .combine = multiply, .element_bytes = sizeof(matrix)},
    {.name = "greatest", .combine = greatest, .element_bytes = sizeof(found), .commutative = true},
    {.name = "bytes", .combine = add_bytes, .element_bytes = WIDE, .commutative = true},
    {.name = "farthest", .combine = farthest, .arg = &the_centre, .commutative = true},
};
enum { PRODUCT, GREATEST, ADD_BYTES, FARTHEST, OPS };

static size_t bytes_of(int op) { return op == FARTHEST ? sizeof(double) : ops[op].element_bytes; }

/* Element i of a rank's input. */
static void input(int op, int rank, size_t i, void *to) {
    uint32_t k = (uint32_t)rank * 7 + (uint32_t)i * 3;
    matrix m = {{k + 1, k % 5, k % 3 + 1, k + 2}};
    found f = {(float)((k * 5) % 4), rank, (int32_t)i};
    double d = (double)(k % 23);
    if (op == PRODUCT) memcpy(to, &m, sizeof m);
    if (op == GREATEST) memcpy(to, &f, sizeof f);
    if (op == FARTHEST) memcpy(to, &d, sizeof d);
    for (int b = 0; op == ADD_BYTES && b < WIDE; b++) ((unsigned char *)to)[b] = (uint8_t)(k * b);
}

/* Combined over n ranks in their order. */
static void expected(int op, int n, size_t i, void *to) {
    _Alignas(8) char next[WIDE];
    input(op, 0, i, to);
    for (int r = 1; r < n; r++) {
        input(op, r, i, next);
        (void)ops[op].combine(ops[op].arg, to, next, 1);
    }
}

/* ---- kinds, algorithms, memory ---- */

typedef struct one_case {
    int op;
    kolo_collective kind;
    kolo_algorithm algorithm;
    size_t count;
    bool in_place;
    int root;
} one_case;

static kolo_status check(const one_case *c, int n, int rank, const char *result) {
    size_t e = bytes_of(c->op), first = 0;
    if (c->kind == KOLO_COLLECTIVE_REDUCE && rank != c->root) return KOLO_OK;
    if (c->kind == KOLO_COLLECTIVE_REDUCE_SCATTER) first = (size_t)rank * c->count;
    for (size_t i = 0; i < c->count; i++) {
        _Alignas(8) char want[WIDE];
        expected(c->op, n, first + i, want);
        if (memcmp(want, result + i * e, e) == 0) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s, kind %d, algorithm %s, count %zu, root %d%s: element %zu differs",
                         ops[c->op].name, (int)c->kind, kolo_algorithm_name(c->algorithm), c->count,
                         c->root, c->in_place ? ", in place" : "", i);
    }
    return KOLO_OK;
}

static kolo_status run_case(kolo_comm *comm, const one_case *c, char *in, char *out) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    size_t e = bytes_of(c->op);
    bool scatter = c->kind == KOLO_COLLECTIVE_REDUCE_SCATTER;
    char *data = c->in_place ? out : in;
    for (size_t i = 0; i < (scatter ? c->count * (size_t)n : c->count); i++) {
        input(c->op, rank, i, data + i * e);
    }
    kolo_request_opts o = {.kind = c->kind,
                           .dtype = c->op == FARTHEST ? KOLO_DTYPE_F64 : KOLO_DTYPE_F32,
                           .user_op = &ops[c->op],
                           .algorithm = c->algorithm,
                           .input = c->in_place ? NULL : in,
                           .output = out,
                           .count = c->count,
                           .root = c->root};
    KOLO_TRY(kolo_request_run(comm, &o, 0));
    char *result = out;
    if (scatter && c->in_place) result += (size_t)rank * c->count * e;
    KOLO_TRY(check(c, n, rank, result));
    return kolo_barrier(comm); /* before a rank rewrites what others still check */
}

static kolo_status run_kinds(kolo_comm *comm, one_case c, char *in, char *out) {
    static const kolo_collective kinds[] = {KOLO_COLLECTIVE_ALLREDUCE, KOLO_COLLECTIVE_REDUCE,
                                            KOLO_COLLECTIVE_REDUCE_SCATTER};
    for (size_t k = 0; k < KOLO_COUNT(kinds); k++) {
        for (int a = 0; a < KOLO_ALGORITHM_COUNT; a++) {
            c.kind = kinds[k];
            c.algorithm = (kolo_algorithm)a;
            bool named = a != KOLO_ALGORITHM_AUTO;
            if (named && c.kind != KOLO_COLLECTIVE_ALLREDUCE) break;
            if (named && !kolo_algorithm_usable(c.algorithm, comm->transport->windows, 2)) continue;
            if (named && c.op == PRODUCT && !kolo_algorithm_in_order(c.algorithm)) continue;
            for (int inside = 0; inside <= 1; inside++) {
                c.in_place = inside;
                c.root = (int)(c.count + k) % kolo_comm_size(comm);
                KOLO_TRY(run_case(comm, &c, in, out));
            }
        }
    }
    return KOLO_OK;
}

static kolo_status table_body(kolo_comm *comm, const void *arg, void *result) {
    static const size_t counts[] = {0, 1, 131, MOST};
    const kolo_comm_tuning *tuning = arg;
    void *registered[2], *private_data[2];
    kolo_status status = KOLO_OK;
    kolo_comm_set_tuning(comm, *tuning);
    for (int i = 0; i < 2; i++) {
        KOLO_TRY(kolo_comm_alloc(comm, BYTES, &registered[i]));
        private_data[i] = kolo_alloc(BYTES);
        if (!private_data[i]) return KOLO_NOMEM(BYTES);
    }
    for (int op = 0; op < OPS; op++) {
        for (size_t k = 0; k < KOLO_COUNT(counts); k++) {
            bool own = (op + k) % 2;
            one_case c = {.op = op, .count = counts[k]};
            void **memory = own ? private_data : registered;
            if (status == KOLO_OK) status = run_kinds(comm, c, memory[0], memory[1]);
        }
    }
    for (int i = 0; i < 2; i++) kolo_free(private_data[i]);
    return status;
}

static void results_are_combined_in_order(void **state) {
    static const int worlds[] = {1, 2, 3, RANKS_MOST};
    kolo_comm_tuning usual = {0}, tiny = {.chunk_bytes = 256, .eager_bytes = 1};
    for (size_t w = 0; w < KOLO_COUNT(worlds); w++) {
        kolo_comm_tuning *other = worlds[w] == 3 ? &tiny : &usual;
        ASSERT_OK(run_ranks(worlds[w], RANKS_THREAD, table_body, other, sizeof *other));
    }
    ASSERT_OK(run_ranks(3, RANKS_SHM, table_body, &usual, sizeof usual));
    ASSERT_OK(run_ranks(3, RANKS_TCP, table_body, &tiny, sizeof tiny));
    ASSERT_OK(run_ranks(3, RANKS_HOSTS, table_body, &usual, sizeof usual));
    if (ranks_have(RANKS_OPENMPI)) {
        ASSERT_OK(run_ranks(2, RANKS_OPENMPI, table_body, &usual, sizeof usual));
    }
}

/* ---- shards ---- */

enum { SHARDS = 11, LEAVES = 16 };

/* The product of the shards below a node. */
static matrix product_below(uint32_t node, size_t i) {
    uint32_t first = node, end = node + 1;
    matrix all = {{1, 0, 0, 1}}, next;
    while (first < LEAVES) {
        first *= 2;
        end *= 2;
    }
    for (uint32_t leaf = first; leaf < end && leaf < LEAVES + SHARDS; leaf++) {
        input(PRODUCT, (int)(leaf - LEAVES), i, &next);
        all = times(all, next);
    }
    return all;
}

static kolo_status shards_body(kolo_comm *comm, const void *arg, void *result) {
    enum { COUNT = 100 };
    uint32_t nodes[62];
    matrix values[SHARDS][COUNT], out[COUNT];
    kolo_part parts[SHARDS];
    int n = kolo_tree_nodes(SHARDS, kolo_comm_size(comm), kolo_comm_rank(comm), nodes);
    for (int k = 0; k < n; k++) {
        for (size_t i = 0; i < COUNT; i++) values[k][i] = product_below(nodes[k], i);
        parts[k] = (kolo_part){nodes[k], values[k], COUNT};
    }
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                           .user_op = &ops[PRODUCT],
                           .shards = SHARDS,
                           .parts = parts,
                           .n_parts = n,
                           .output = out,
                           .count = COUNT};
    KOLO_TRY(kolo_request_run(comm, &o, 0));
    for (size_t i = 0; i < COUNT; i++) {
        matrix want = product_below(1, i);
        if (memcmp(&want, &out[i], sizeof want) != 0)
            return KOLO_FAIL(KOLO_ERR_FORMAT, "element %zu differs", i);
    }
    return KOLO_OK;
}

static void shards_are_combined_in_order(void **state) {
    for (int n = 1; n <= 4; n++) ASSERT_OK(run_ranks(n, RANKS_THREAD, shards_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, shards_body, NULL, 0));
}

/* ---- failures ---- */

static kolo_status fail_on_one(void *arg, void *to, const void *from, size_t count) {
    if (*(int *)arg != 1) return multiply(arg, to, from, count);
    return kolo_error_set(KOLO_ERR_FORMAT, "a matrix of rank %d is singular", *(int *)arg);
}

static kolo_status fail_silently(void *arg, void *to, const void *from, size_t count) {
    return *(int *)arg == 1 ? KOLO_ERR_DIVERGED : multiply(arg, to, from, count);
}

static kolo_status failing_body(kolo_comm *comm, const void *arg, void *result) {
    static const char *const texts[] = {"a matrix of rank 1 is singular", "without an error text"};
    bool silent = *(const bool *)arg;
    int rank = kolo_comm_rank(comm);
    static _Thread_local matrix data[MOST];
    kolo_user_op op = {.name = "failing",
                       .combine = silent ? fail_silently : fail_on_one,
                       .arg = &rank,
                       .element_bytes = sizeof(matrix)};
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_ALLREDUCE, .user_op = &op, .output = data, .count = MOST};
    kolo_status status = kolo_request_run(comm, &o, 0), want = KOLO_ERR_FORMAT;
    if (silent) want = KOLO_ERR_ARG;
    if (status == want && strstr(kolo_last_error(), texts[silent]) &&
        strstr(kolo_last_error(), "allreduce (1000 x 16 bytes, failing, ")) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_IO, "status %d: %.300s", (int)status, kolo_last_error());
}

static void a_failure_ends_it_on_all_ranks(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        for (int silent = 0; silent <= (t == 0); silent++) {
            bool arg = silent;
            ASSERT_OK(run_ranks(3, transports[t], failing_body, &arg, sizeof arg));
        }
    }
}

/* Progress that the function makes would call it again. */
static kolo_status call_back(void *arg, void *to, const void *from, size_t count) {
    return kolo_barrier(arg);
}

static kolo_status calling_body(kolo_comm *comm, const void *arg, void *result) {
    static _Thread_local matrix data[MOST];
    kolo_user_op op = {
        .name = "calling", .combine = call_back, .arg = comm, .element_bytes = sizeof(matrix)};
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_ALLREDUCE, .user_op = &op, .output = data, .count = MOST};
    kolo_status status = kolo_request_run(comm, &o, 0);
    if (status == KOLO_ERR_ARG && strstr(kolo_last_error(), "uses the communicator of rank")) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_IO, "status %d: %.300s", (int)status, kolo_last_error());
}

static void a_function_must_not_use_its_communicator(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, calling_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, calling_body, NULL, 0));
}

static kolo_status names_body(kolo_comm *comm, const void *arg, void *result) {
    matrix data[2] = {{{0}}};
    kolo_user_op op = ops[PRODUCT];
    op.name = kolo_comm_rank(comm) == 0 ? "product" : "sum of matrices";
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_ALLREDUCE, .user_op = &op, .output = data, .count = 2};
    kolo_status status = kolo_request_run(comm, &o, 0);
    const char *text = kolo_last_error();
    bool both = strstr(text, "16 bytes, product,") && strstr(text, "16 bytes, sum of matrices,");
    return status == KOLO_ERR_ARG && both ? KOLO_OK
                                          : KOLO_FAIL(KOLO_ERR_IO, "%d: %.300s", status, text);
}

static kolo_status kinds_body(kolo_comm *comm, const void *arg, void *result) {
    matrix data[2] = {{{0}}};
    kolo_user_op op = ops[PRODUCT];
    op.commutative = kolo_comm_rank(comm) == 0;
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                           .user_op = &op,
                           .output = data,
                           .algorithm = KOLO_ALGORITHM_MESH,
                           .count = 2};
    kolo_status status = kolo_request_run(comm, &o, 0);
    bool right = status == KOLO_ERR_ARG && strstr(kolo_last_error(), "ranks disagree");
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_IO, "%d: %.300s", status, kolo_last_error());
}

static void ranks_that_disagree_get_an_error(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, names_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_THREAD, kinds_body, NULL, 0));
}

/* ---- what is refused ---- */

static void refuses(kolo_comm *comm, kolo_request_opts o, const char *text) {
    kolo_request *q;
    matrix data[2];
    o.output = data;
    o.count = 2;
    assert_int_equal(kolo_request_create(comm, &o, &q), KOLO_ERR_ARG);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
}

static void contradictions_are_refused(void **state) {
    kolo_comm *comm;
    kolo_user_op op = ops[PRODUCT];
    kolo_request_opts o = {.user_op = &op}, changed;
    ASSERT_OK(kolo_comm_create_threads(1, NULL, &comm));
    changed = o;
    changed.op = KOLO_MAX;
    refuses(comm, changed, "in place of op");
    changed = o;
    changed.kind = KOLO_COLLECTIVE_BROADCAST;
    refuses(comm, changed, "is for reductions");
    changed = o;
    changed.dtype = KOLO_DTYPE_I64;
    refuses(comm, changed, "elements of 16 bytes: leave dtype, which is i64, at 0");
    changed = o;
    changed.prescale = 0.5;
    refuses(comm, changed, "allows no scales");
    changed = o;
    changed.algorithm = KOLO_ALGORITHM_RING;
    refuses(comm, changed, "algorithm ring does not combine in the order of the ranks");
    op.name = "";
    refuses(comm, o, "a name of 1 to 24 characters");
    op.name = "a name that is far too long";
    refuses(comm, o, "a name of 1 to 24 characters");
    op = (kolo_user_op){.name = "none"};
    refuses(comm, o, "needs a function");
    kolo_comm_destroy(comm);
}

TEST_MAIN(test_comm_user_op) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_combined_in_order),
        cmocka_unit_test(shards_are_combined_in_order),
        cmocka_unit_test(a_failure_ends_it_on_all_ranks),
        cmocka_unit_test(a_function_must_not_use_its_communicator),
        cmocka_unit_test(ranks_that_disagree_get_an_error),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
