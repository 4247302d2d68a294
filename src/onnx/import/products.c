/* Matrix products, softmax, reductions. */
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <string.h>

/* ---- products ---- */

/* The matrix [O,I] by whose transpose a linear layer multiplies. */
static kolo_status weights_of(onnx_call *c, int i, kolo_value *w) {
    const onnx_item *item = c->in[i];
    KOLO_TRY(onnx_value(c, i, w));
    if (item->turned && item->turned->value.id >= 0) {
        *w = item->turned->value;
    } else {
        *w = kolo_transpose(c->g, *w, 0, 1);
    }
    return KOLO_OK;
}

/* Dimensions but the last two, joined. */
static kolo_shape stacked(const kolo_shape *s) {
    int64_t outer = 1;
    for (int d = 0; d < s->rank - 2; d++) outer *= s->dim[d];
    return kolo_shape_3(outer, s->dim[s->rank - 2], s->dim[s->rank - 1]);
}

static kolo_status batched_product(onnx_call *c, kolo_value a, kolo_value b) {
    kolo_shape of_a = kolo_value_shape(c->g, a), of_b = kolo_value_shape(c->g, b), outer;
    kolo_shape left = of_a, right = of_b;
    left.rank -= 2;
    right.rank -= 2;
    if (!onnx_broadcast(&left, &right, &outer)) return ONNX_FAIL(c, "the shapes do not fit");
    kolo_shape full_a = outer, full_b = outer;
    full_a.rank = full_b.rank = outer.rank + 2;
    for (int k = 0; k < 2; k++) {
        full_a.dim[outer.rank + k] = of_a.dim[of_a.rank - 2 + k];
        full_b.dim[outer.rank + k] = of_b.dim[of_b.rank - 2 + k];
    }
    KOLO_TRY(onnx_expand(c, a, &full_a, &a));
    KOLO_TRY(onnx_expand(c, b, &full_b, &b));
    kolo_value y = kolo_matmul(c->g, onnx_as(c, a, stacked(&full_a)),
                               onnx_as(c, b, stacked(&full_b)), false, false);
    full_a.dim[outer.rank + 1] = full_b.dim[outer.rank + 1];
    return onnx_set(c, 0, onnx_as(c, y, full_a));
}

/* A vector times matrices, or matrices times a vector, as a sum of products. */
static kolo_status vector_product(onnx_call *c, kolo_value a, kolo_value b) {
    const kolo_shape of_a = kolo_value_shape(c->g, a), of_b = kolo_value_shape(c->g, b);
    const bool first = of_a.rank == 1;
    const int summed = first ? of_b.rank - 2 : of_a.rank - 1;
    if (first) a = onnx_as(c, a, kolo_shape_2(of_a.dim[0], 1));
    return onnx_set(c, 0, kolo_reduce_sum(c->g, kolo_mul(c->g, a, b), &summed, 1, false));
}

kolo_status onnx_map_matmul(onnx_call *c) {
    kolo_value a, b;
    KOLO_TRY(onnx_value(c, 0, &a));
    const kolo_shape of_a = kolo_value_shape(c->g, a), of_b = onnx_shape(c, 1);
    if (of_b.rank == 2 && of_a.rank >= 2) {
        KOLO_TRY(weights_of(c, 1, &b));
        const kolo_value rows = c->in[0]->rows;
        if (rows.id >= 0) return onnx_set_rows(c, kolo_linear(c->g, rows, b));
        return onnx_set(c, 0, kolo_linear(c->g, a, b));
    }
    KOLO_TRY(onnx_value(c, 1, &b));
    if (of_a.rank >= 2 && of_b.rank >= 2) return batched_product(c, a, b);
    if (of_a.rank == 0 || of_b.rank == 0) return ONNX_FAIL(c, "a product with a number");
    if (of_a.rank > 2 || of_b.rank > 2) return vector_product(c, a, b);
    kolo_shape y = {.rank = 0};
    if (of_a.rank == 2) y.dim[y.rank++] = of_a.dim[0];
    if (of_b.rank == 2) y.dim[y.rank++] = of_b.dim[1];
    if (of_a.rank == 1) a = onnx_as(c, a, kolo_shape_2(1, of_a.dim[0]));
    b = of_b.rank == 1 ? onnx_as(c, b, kolo_shape_2(1, of_b.dim[0]))
                       : kolo_transpose(c->g, b, 0, 1);
    return onnx_set(c, 0, onnx_as(c, kolo_linear(c->g, a, b), y));
}

kolo_status onnx_map_gemm(onnx_call *c) {
    const double alpha = onnx_float(c, "alpha", 1), beta = onnx_float(c, "beta", 1);
    kolo_value a, w, bias;
    KOLO_TRY(onnx_value(c, 0, &a));
    if (onnx_int(c, "transA", 0)) a = kolo_transpose(c->g, a, 0, 1);
    if (onnx_int(c, "transB", 0)) {
        KOLO_TRY(onnx_value(c, 1, &w));
    } else {
        KOLO_TRY(weights_of(c, 1, &w));
    }
    const bool has_bias = onnx_has(c, 2);
    if (has_bias) KOLO_TRY(onnx_operand(c, 2, &bias));
    const kolo_shape of_w = kolo_value_shape(c->g, w);
    const kolo_shape of_bias = has_bias ? kolo_value_shape(c->g, bias) : (kolo_shape){0};
    const bool vector = of_bias.rank == 1 && of_bias.dim[0] == of_w.dim[0];
    const bool rows = c->in[0]->rows.id >= 0 && !onnx_int(c, "transA", 0) && of_bias.rank < 2;
    if (rows) a = c->in[0]->rows;
    kolo_value y;
    if (has_bias && alpha == 1 && beta == 1 && vector) {
        y = kolo_linear_bias(c->g, a, w, bias);
    } else {
        y = kolo_linear(c->g, a, w);
        if (alpha != 1) y = kolo_scale(c->g, y, alpha);
        if (has_bias) y = kolo_add(c->g, y, beta != 1 ? kolo_scale(c->g, bias, beta) : bias);
    }
    return rows ? onnx_set_rows(c, y) : onnx_set(c, 0, y);
}

/* ---- softmax ---- */

kolo_status onnx_softmax_axis(onnx_call *c, kolo_value *x, int *axis) {
    const kolo_shape s = kolo_value_shape(c->g, *x);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", c->opset < 13 ? 1 : -1), s.rank, axis));
    if (c->opset >= 13 || *axis == s.rank - 1) return KOLO_OK;
    kolo_shape flat = kolo_shape_2(1, 1);
    for (int d = 0; d < s.rank; d++) flat.dim[d >= *axis] *= s.dim[d];
    *x = onnx_as(c, *x, flat);
    *axis = 1;
    return KOLO_OK;
}

kolo_status onnx_map_softmax(onnx_call *c) {
    const bool logarithm = c->node->op_type[0] == 'L';
    kolo_value x;
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_softmax_axis(c, &x, &axis));
    x = logarithm ? kolo_log_softmax(c->g, x, axis) : kolo_softmax(c->g, x, axis);
    return onnx_set(c, 0, onnx_as(c, x, s));
}

/* ---- reductions ---- */

static kolo_value identity(kolo_graph *g, kolo_value x) { return x; }

/* The product along a dimension, which is halved until one element is left. */
static kolo_value product_along(kolo_graph *g, kolo_value x, int axis) {
    int64_t n;
    while ((n = kolo_value_shape(g, x).dim[axis]) > 1) {
        const int64_t half = n / 2;
        const kolo_value y =
            kolo_mul(g, kolo_slice(g, x, axis, 0, half), kolo_slice(g, x, axis, half, half));
        const kolo_value rest = n % 2 ? kolo_slice(g, x, axis, n - 1, 1) : KOLO_NONE;
        x = n % 2 ? kolo_concat_along(g, (kolo_value[]){y, rest}, 2, axis) : y;
    }
    return x;
}

static kolo_value reduce_product(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep) {
    const kolo_shape s = kolo_value_shape(g, x);
    bool gone[KOLO_MAX_RANK] = {false};
    kolo_shape y = {.rank = 0};
    for (int k = 0; k < n; k++) gone[axes[k]] = true;
    for (int d = 0; d < s.rank; d++) {
        gone[d] |= n == 0;
        if (gone[d]) x = product_along(g, x, d);
        if (keep || !gone[d]) y.dim[y.rank++] = gone[d] ? 1 : s.dim[d];
    }
    return kolo_reshape(g, x, y);
}

/* after(reduction(before(x))) */
static const struct {
    const char *name;
    kolo_value (*before)(kolo_graph *g, kolo_value x);
    kolo_value (*reduce)(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
    kolo_value (*after)(kolo_graph *g, kolo_value x);
} reductions[] = {
    {"ReduceSum", identity, kolo_reduce_sum, identity},
    {"ReduceMean", identity, kolo_reduce_mean, identity},
    {"ReduceMax", identity, kolo_reduce_max, identity},
    {"ReduceMin", identity, kolo_reduce_min, identity},
    {"ReduceProd", identity, reduce_product, identity},
    {"ReduceSumSquare", kolo_square, kolo_reduce_sum, identity},
    {"ReduceL1", kolo_abs, kolo_reduce_sum, identity},
    {"ReduceL2", kolo_square, kolo_reduce_sum, kolo_sqrt},
    {"ReduceLogSum", identity, kolo_reduce_sum, kolo_log},
    {"ReduceLogSumExp", kolo_exp, kolo_reduce_sum, kolo_log},
};

kolo_status onnx_reduced_axes(onnx_call *c, int rank, int *axes, int *n) {
    const int64_t since = strcmp(c->node->op_type, "ReduceSum") == 0 ? 13 : 18; /* as an input */
    int64_t list[KOLO_MAX_RANK];
    KOLO_TRY(onnx_list_since(c, since, 1, "axes", list, KOLO_MAX_RANK, n));
    for (int k = 0; k < *n; k++) KOLO_TRY(onnx_axis(c, list[k], rank, &axes[k]));
    if (*n <= 0) *n = onnx_int(c, "noop_with_empty_axes", 0) ? -1 : 0;
    return KOLO_OK;
}

kolo_status onnx_map_reduce(onnx_call *c) {
    size_t row = 0;
    int n, axes[KOLO_MAX_RANK];
    kolo_value x;
    while (strcmp(reductions[row].name, c->node->op_type) != 0) row++;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_reduced_axes(c, kolo_value_shape(c->g, x).rank, axes, &n));
    x = reductions[row].before(c->g, x);
    if (n >= 0) {
        x = reductions[row].reduce(c->g, x, axes, n, onnx_int(c, "keepdims", 1) != 0);
    }
    return onnx_set(c, 0, reductions[row].after(c->g, x));
}

/* Sums up to each element, by a triangle of ones. */
kolo_status onnx_map_cum_sum(onnx_call *c) {
    const bool exclusive = onnx_int(c, "exclusive", 0), reverse = onnx_int(c, "reverse", 0);
    double at;
    int axis;
    kolo_value x, triangle;
    float *f = NULL;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_number(c, 1, 0, &at));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_axis(c, (int64_t)at, s.rank, &axis));
    const int64_t n = s.dim[axis];
    const kolo_shape square = kolo_shape_2(n, n);
    KOLO_TRY(onnx_floats(c, host_count(&square, HOST_MOST), &f));
    for (int64_t k = 0; k < n * n; k++) {
        const int64_t before = reverse ? k % n - k / n : k / n - k % n;
        f[k] = before >= exclusive ? 1 : 0;
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &square, f, &triangle));
    if (s.rank == 1) x = onnx_as(c, x, kolo_shape_2(1, n));
    const int last = s.rank - 1;
    if (axis != last) x = kolo_transpose(c->g, x, axis, last);
    x = kolo_linear(c->g, x, triangle);
    if (axis != last) x = kolo_transpose(c->g, x, axis, last);
    return onnx_set(c, 0, onnx_as(c, x, s));
}

kolo_status onnx_map_lp_norm(onnx_call *c) {
    const int64_t p = onnx_int(c, "p", 2);
    kolo_value x;
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", -1), kolo_value_shape(c->g, x).rank, &axis));
    if (p != 1 && p != 2) return ONNX_FAIL(c, "attribute p: %" PRId64, p);
    kolo_value norm =
        kolo_reduce_sum(c->g, p == 1 ? kolo_abs(c->g, x) : kolo_square(c->g, x), &axis, 1, true);
    return onnx_set(c, 0, kolo_div(c->g, x, p == 1 ? norm : kolo_sqrt(c->g, norm)));
}

kolo_status onnx_map_mean_variance_norm(onnx_call *c) {
    int64_t list[KOLO_MAX_RANK] = {0, 2, 3};
    int n, axes[KOLO_MAX_RANK];
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_ints(c, "axes", list, KOLO_MAX_RANK, &n));
    n = n < 0 ? 3 : n;
    for (int k = 0; k < n; k++)
        KOLO_TRY(onnx_axis(c, list[k], kolo_value_shape(c->g, x).rank, &axes[k]));
    x = kolo_sub(c->g, x, kolo_reduce_mean(c->g, x, axes, n, true));
    kolo_value square = kolo_reduce_mean(c->g, kolo_square(c->g, x), axes, n, true);
    return onnx_set(c, 0, kolo_div(c->g, x, kolo_add_number(c->g, kolo_sqrt(c->g, square), 1e-9)));
}
