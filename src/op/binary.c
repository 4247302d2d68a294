/* Elementwise functions of two inputs with broadcasting, and their gradients (binary.h). */
#include "graph/ops/binary.h"

#include "base/integer.h"
#include "graph/ops/compare.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

static const char *const attrs[] = {"repeat_a", "repeat_b", NULL};

static kolo_status binary_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    const kolo_shape *a = &q->in[0].shape, *b = &q->in[1].shape;
    kolo_shape y = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int d = 0; d < y.rank; d++) {
        int in_a = kolo_binary_dim(q->attr, 0, a, y.rank, d);
        int in_b = kolo_binary_dim(q->attr, 1, b, y.rank, d);
        y.dim[d] = in_a >= 0 ? a->dim[in_a] : in_b >= 0 ? b->dim[in_b] : 1;
        int at_a = d - (y.rank - a->rank), at_b = d - (y.rank - b->rank);
        bool fits = in_a < 0 || in_b < 0 || a->dim[in_a] == b->dim[in_b];
        if (in_a < 0 && at_a >= 0) fits &= a->dim[at_a] == 1;
        if (in_b < 0 && at_b >= 0) fits &= b->dim[at_b] == 1;
        if (fits) continue;
        return KOLO_RULE_FAIL(q,
                              "sizes differ along dimension %d of the result; they must be equal, "
                              "or one of them 1",
                              d);
    }
    return kolo_rule_out(q, 0, kolo_rule_product(q), y);
}

/* "abc,Wc->abc": the sign is `join`. */
static void write_index(const kolo_attr *attr, const kolo_shape *in, char join, char *text) {
    int rank = in[0].rank > in[1].rank ? in[0].rank : in[1].rank;
    for (int i = 0; i < 2; i++) {
        for (int d = rank - in[i].rank; d < rank; d++) {
            bool repeats = kolo_binary_dim(attr, i, &in[i], rank, d) < 0;
            *text++ = repeats ? 'W' : (char)('a' + d);
        }
        if (i == 0) *text++ = join;
    }
    *text++ = '-';
    *text++ = '>';
    for (int d = 0; d < rank; d++) *text++ = (char)('a' + d);
    *text = 0;
}

/* Sums d, of the output's shape, over the dimensions that input i of n is repeated along. */
static kolo_value sum_to(kolo_graph *g, const kolo_node *n, int i, kolo_value d) {
    if (!kolo_value_ok(d)) return d;
    const kolo_shape in = kolo_info(g, n->in[i])->tensor.shape; /* values move when one is added */
    const int rank = kolo_info(g, n->out[0])->tensor.shape.rank;
    int axes[KOLO_MAX_RANK], count = 0;
    for (int k = 0; k < rank; k++) {
        if (kolo_binary_dim(n->attr, i, &in, rank, k) < 0) axes[count++] = k;
    }
    const bool same_rank = rank == in.rank;
    if (count > 0) d = kolo_reduce_sum(g, d, axes, count, same_rank);
    const bool fits = same_rank || kolo_value_shape(g, d).rank == in.rank;
    return fits ? d : kolo_reshape(g, d, in);
}

typedef void part(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                  kolo_value d[2]);

/* Sets the gradients of both inputs by `parts`, which ignores broadcasting. */
static void derive(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                   kolo_value *d_in, part *parts) {
    kolo_value d[2] = {KOLO_NONE, KOLO_NONE};
    parts(g, n, d_out[0], wants, d);
    for (int i = 0; i < 2; i++) {
        if (wants[i]) d_in[i] = sum_to(g, n, i, d[i]);
    }
}

static void broadcast_add_parts(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                                kolo_value d[2]) {
    d[0] = d[1] = dy;
}
static void broadcast_mul_parts(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                                kolo_value d[2]) {
    for (int i = 0; i < 2; i++) {
        if (wants[i]) d[i] = kolo_mul(g, dy, n->in[!i]);
    }
}
static void sub_parts(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                      kolo_value d[2]) {
    d[0] = dy;
    if (wants[1]) d[1] = kolo_neg(g, dy);
}
static void div_parts(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                      kolo_value d[2]) {
    d[0] = kolo_div(g, dy, n->in[1]);
    if (wants[1]) d[1] = kolo_neg(g, kolo_mul(g, d[0], n->out[0]));
}

/* The gradient goes to the input that was taken, half to each of two equal ones, as in PyTorch. */
static void taken(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                  kolo_value d[2], bool larger) {
    for (int i = 0; i < 2; i++) {
        bool swapped = (i == 1) != larger;
        const kolo_value in[2] = {n->in[swapped], n->in[!swapped]};
        kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_BINARY_REPEAT_A] = n->attr[swapped], [KOLO_BINARY_REPEAT_B] = n->attr[!swapped]};
        if (wants[i]) d[i] = kolo_mul(g, dy, kolo_graph_add1(g, &kolo_op_less, in, 2, attr));
    }
}
static void minimum_parts(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                          kolo_value d[2]) {
    taken(g, n, dy, wants, d, false);
}
static void maximum_parts(kolo_graph *g, const kolo_node *n, kolo_value dy, const bool *wants,
                          kolo_value d[2]) {
    taken(g, n, dy, wants, d, true);
}

#define GRADIENT(op_name)                                                                  \
    static void op_name##_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, \
                               const bool *wants, kolo_value *d_in) {                      \
        derive(g, n, d_out, wants, d_in, op_name##_parts);                                 \
    }
GRADIENT(broadcast_add)
GRADIENT(broadcast_mul)
GRADIENT(sub)
GRADIENT(div)
GRADIENT(minimum)
GRADIENT(maximum)
#define less_grad NULL
#define equal_grad NULL

static kolo_cost binary_cost(const kolo_shape_query *q) {
    return (kolo_cost){(double)kolo_shape_count(&q->out[0].shape), kolo_query_bytes(q)};
}

#define BINARY(X, op_name, join, is_linear, forward)                                          \
    static const char *op_name##_index(const kolo_attr *attr, int n_in, const kolo_shape *in, \
                                       char *text) {                                          \
        write_index(attr, in, join, text);                                                    \
        return text;                                                                          \
    }                                                                                         \
    const kolo_op kolo_op_##op_name = {                                                       \
        .name = #op_name,                                                                     \
        .index_of = op_name##_index,                                                          \
        .linear = is_linear,                                                                  \
        .min_in = 2,                                                                          \
        .max_in = 2,                                                                          \
        .layout = {.in = "aa", .out = "a"},                                                   \
        .attrs = attrs,                                                                       \
        .shape = binary_shape,                                                                \
        .grad = op_name##_grad,                                                               \
        .cost = binary_cost,                                                                  \
        .overwrite = 1u << 0 | 1u << 1,                                                       \
        .cheap = true,                                                                        \
        .bf16 = 1u << 0 | 1u << 1,                                                            \
        .bf16_joins = true,                                                                   \
    };
KOLO_BINARY_LIST(BINARY, )

/* v, which meets `other`; a parameter without its leading dimensions of size 1: it is then the same
 * for all samples, however many a rank has. */
static kolo_value without_leading_ones(kolo_graph *g, kolo_value v, kolo_value other) {
    kolo_shape shape = kolo_value_shape(g, v);
    int ones = 0;
    bool is_param = kolo_info(g, v)->kind == KOLO_VALUE_PARAM;
    if (!is_param || kolo_info(g, other)->kind == KOLO_VALUE_PARAM) return v;
    if (shape.rank > kolo_value_shape(g, other).rank) return v;
    while (ones < shape.rank && shape.dim[ones] == 1) ones++;
    if (ones == 0) return v;
    shape.rank -= ones;
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = shape.dim[d + ones];
    return kolo_reshape(g, v, shape);
}

/* `same`, if not NULL, is the op for equal shapes. */
static kolo_value apply(kolo_graph *g, const kolo_op *op, const kolo_op *same, kolo_value a,
                        kolo_value b) {
    if (!kolo_value_is_of(g, a) || !kolo_value_is_of(g, b)) {
        return kolo_graph_add1(g, op, (kolo_value[]){a, b}, 2, NULL); /* fails the graph */
    }
    const kolo_value in[2] = {without_leading_ones(g, a, b), without_leading_ones(g, b, a)};
    if (!kolo_value_ok(in[0]) || !kolo_value_ok(in[1])) return KOLO_NONE;
    const kolo_shape shape[2] = {kolo_value_shape(g, in[0]), kolo_value_shape(g, in[1])};
    if (same && kolo_shape_equal(&shape[0], &shape[1])) {
        return kolo_graph_add1(g, same, in, 2, NULL);
    }
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    int rank = shape[0].rank > shape[1].rank ? shape[0].rank : shape[1].rank;
    for (int d = 0; d < rank; d++) {
        int at_a = d - (rank - shape[0].rank), at_b = d - (rank - shape[1].rank);
        if (at_a < 0 || at_b < 0) continue;
        int64_t of_a = shape[0].dim[at_a], of_b = shape[1].dim[at_b];
        if (of_a == 1 && of_b != 1) attr[KOLO_BINARY_REPEAT_A].i |= 1 << d;
        if (of_b == 1 && of_a != 1) attr[KOLO_BINARY_REPEAT_B].i |= 1 << d;
    }
    return kolo_graph_add1(g, op, in, 2, attr);
}

kolo_value kolo_add(kolo_graph *g, kolo_value a, kolo_value b) {
    return apply(g, &kolo_op_broadcast_add, &kolo_op_add, a, b);
}
kolo_value kolo_mul(kolo_graph *g, kolo_value a, kolo_value b) {
    return apply(g, &kolo_op_broadcast_mul, &kolo_op_mul, a, b);
}
kolo_value kolo_sub(kolo_graph *g, kolo_value a, kolo_value b) {
    return apply(g, &kolo_op_sub, NULL, a, b);
}
kolo_value kolo_div(kolo_graph *g, kolo_value a, kolo_value b) {
    return apply(g, &kolo_op_div, NULL, a, b);
}
kolo_value kolo_minimum(kolo_graph *g, kolo_value a, kolo_value b) {
    return apply(g, &kolo_op_minimum, NULL, a, b);
}
kolo_value kolo_maximum(kolo_graph *g, kolo_value a, kolo_value b) {
    return apply(g, &kolo_op_maximum, NULL, a, b);
}

kolo_value kolo_less(kolo_graph *g, kolo_value a, kolo_value b) {
    return kolo_stop_gradient(g, apply(g, &kolo_op_less, NULL, a, b));
}
kolo_value kolo_equal(kolo_graph *g, kolo_value a, kolo_value b) {
    return kolo_stop_gradient(g, apply(g, &kolo_op_equal, NULL, a, b));
}

/* ---- reference ---- */

#define N(number) ((double)(number))
#define IF(condition, a, b) ((condition) ? (a) : (b))

typedef double function(double a, double b);

/* The element of input i that belongs to element k of the output. */
static int64_t at(const kolo_kernel_spec *spec, int i, int64_t k) {
    const kolo_shape *y = &spec->out[0].shape, *in = &spec->in[i].shape;
    int64_t stride = 1, offset = 0;
    for (int d = y->rank - 1; d >= 0; d--) {
        int dim = kolo_binary_dim(spec->attr, i, in, y->rank, d);
        if (dim >= 0) offset += k % y->dim[d] * stride;
        if (dim >= 0) stride *= in->dim[dim];
        k /= y->dim[d];
    }
    return offset;
}

static void map(const kolo_call *call, function *f) {
    const kolo_kernel_spec *spec = call->spec;
    const double *a = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    for (int64_t k = 0; k < kolo_shape_count(&spec->out[0].shape); k++) {
        y[k] = f(a[at(spec, 0, k)], b[at(spec, 1, k)]);
    }
}

#define KERNEL(X, name, join, linear, forward)                               \
    static double name##_of(double a, double b) { return forward; }          \
    static void name##_body(const kolo_call *call) { map(call, name##_of); } \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name##_body); }
KOLO_BINARY_LIST(KERNEL, )

#define ROW(name) KOLO_REF_KERNEL("ref_" #name, &kolo_op_##name, run_##name),

const kolo_kernel kolo_ops_binary[] = {
    KOLO_BINARY_LIST(KOLO_BINARY_OP, ROW) /* a row each */
    {0},
};
