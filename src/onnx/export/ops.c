/* How each op is written in ONNX (opset 18): a row of `rows`. */
#include "graph/ops/ops.h"

#include "onnx/export/call.h"

#include <inttypes.h>
#include <string.h>

/* An op of ONNX with the inputs of the node. */
static kolo_status same(onnx_export *c, const char *op) {
    onnx_emit(c->w, op, c->out, c->in[0], c->n->n_in > 1 ? c->in[1] : NULL,
              c->n->n_in > 2 ? c->in[2] : NULL);
    return KOLO_OK;
}

/* ---- layers ---- */

static void window(onnx_export *c, int64_t kh, int64_t kw) {
    const kolo_attr *a = c->n->attr;
    const int64_t kernel[] = {kh, kw},
                  stride[] = {a[KOLO_CONV_STRIDE_H].i, a[KOLO_CONV_STRIDE_W].i};
    const int64_t h = a[KOLO_CONV_PAD_H].i, v = a[KOLO_CONV_PAD_W].i, pads[] = {h, v, h, v};
    const int64_t dilation[] = {a[KOLO_CONV_DILATION_H].i, a[KOLO_CONV_DILATION_W].i};
    onnx_add_ints(c->w, "kernel_shape", kernel, 2);
    onnx_add_ints(c->w, "strides", stride, 2);
    onnx_add_ints(c->w, "pads", pads, 4);
    onnx_add_ints(c->w, "dilations", dilation, 2);
    onnx_add_int(c->w, "group", a[KOLO_CONV_GROUPS].i);
}

static kolo_status conv(onnx_export *c) {
    (void)same(c, "Conv");
    window(c, shape_of(c, 1)->dim[2], shape_of(c, 1)->dim[3]);
    return KOLO_OK;
}

/* The forward pass of a transposed convolution. */
static kolo_status conv_transpose(onnx_export *c) {
    int64_t more[2];
    const kolo_shape *k = shape_of(c, 1);
    for (int d = 0; d < 2; d++) {
        const int64_t stride = integer(c, KOLO_CONV_STRIDE_H + d),
                      pad = integer(c, KOLO_CONV_PAD_H + d);
        const int64_t dilation = integer(c, KOLO_CONV_DILATION_H + d);
        more[d] = c->y->dim[2 + d] -
                  ((c->x->dim[2 + d] - 1) * stride - 2 * pad + dilation * (k->dim[2 + d] - 1) + 1);
    }
    (void)same(c, "ConvTranspose");
    window(c, k->dim[2], k->dim[3]);
    onnx_add_ints(c->w, "output_padding", more, 2);
    return KOLO_OK;
}

static kolo_status pool(onnx_export *c, const char *op) {
    const kolo_attr *a = c->n->attr;
    const int64_t kernel[] = {a[KOLO_POOL_KERNEL_H].i, a[KOLO_POOL_KERNEL_W].i};
    const int64_t stride[] = {a[KOLO_POOL_STRIDE_H].i, a[KOLO_POOL_STRIDE_W].i};
    const int64_t h = a[KOLO_POOL_PAD_H].i, v = a[KOLO_POOL_PAD_W].i, pads[] = {h, v, h, v};
    onnx_emit(c->w, op, c->out, c->in[0], NULL, NULL);
    onnx_add_ints(c->w, "kernel_shape", kernel, 2);
    onnx_add_ints(c->w, "strides", stride, 2);
    onnx_add_ints(c->w, "pads", pads, 4);
    onnx_add_int(c->w, "ceil_mode", a[KOLO_POOL_CEIL].i);
    return KOLO_OK;
}
static kolo_status max_pool(onnx_export *c) { return pool(c, "MaxPool"); }
static kolo_status avg_pool(onnx_export *c) {
    (void)pool(c, "AveragePool");
    onnx_add_int(c->w, "count_include_pad", !integer(c, KOLO_POOL_EXCLUDE_PADDING));
    return KOLO_OK;
}

/* The matrix [size,places], or its transpose, of the weights of each window's mean. */
static const char *means(onnx_export *c, int64_t size, int64_t places, bool transposed) {
    const kolo_shape shape = transposed ? kolo_shape_2(places, size) : kolo_shape_2(size, places);
    float *data;
    const char *name = onnx_add_constant(c->w, NULL, &shape, &data);
    for (int64_t i = 0; i < places && !c->w->failed; i++) {
        const int64_t first = i * size / places, end = ((i + 1) * size + places - 1) / places;
        for (int64_t k = first; k < end; k++) {
            data[transposed ? i * size + k : k * places + i] = 1.0f / (float)(end - first);
        }
    }
    return name;
}
static kolo_status adaptive_avg_pool(onnx_export *c) {
    const char *rows = onnx_emit(c->w, "MatMul", NULL, c->in[0],
                                 means(c, c->x->dim[3], c->y->dim[3], false), NULL);
    const char *left = means(c, c->x->dim[2], c->y->dim[2], true);
    onnx_emit(c->w, "MatMul", c->out, left, rows, NULL);
    return KOLO_OK;
}

static kolo_status resize(onnx_export *c) {
    static const char *const places[] = {
        [KOLO_RESIZE_BORDERS] = "half_pixel",
        [KOLO_RESIZE_CORNERS] = "align_corners",
        [KOLO_RESIZE_NEAREST] = "asymmetric",
        [KOLO_RESIZE_ASYMMETRIC] = "asymmetric",
    };
    const int64_t axes[] = {2, 3}, sizes[] = {c->y->dim[2], c->y->dim[3]};
    const bool nearest = integer(c, KOLO_SIZE_MODE) == KOLO_RESIZE_NEAREST;
    const char *list = onnx_int_list(c->w, sizes, 2);
    onnx_emit(c->w, "Resize", c->out, c->in[0], "", "");
    onnx_add_input(c->w, list);
    onnx_add_ints(c->w, "axes", axes, 2);
    onnx_add_text(c->w, "mode", nearest ? "nearest" : "linear");
    if (nearest) onnx_add_text(c->w, "nearest_mode", "floor");
    onnx_add_text(c->w, "coordinate_transformation_mode", places[integer(c, KOLO_SIZE_MODE)]);
    return KOLO_OK;
}

/* ONNX has one channel more after the middle of an even window, this op one more before it. */
static kolo_status lrn(onnx_export *c) {
    const int64_t size = integer(c, KOLO_LRN_SIZE);
    if (size % 2 == 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "lrn over %" PRId64 " channels cannot be exported to ONNX, which has "
                         "other windows of an even size: use an odd one",
                         size);
    }
    onnx_emit(c->w, "LRN", c->out, c->in[0], NULL, NULL);
    onnx_add_int(c->w, "size", size);
    onnx_add_float(c->w, "alpha", real(c, KOLO_LRN_ALPHA));
    onnx_add_float(c->w, "beta", real(c, KOLO_LRN_BETA));
    onnx_add_float(c->w, "bias", real(c, KOLO_LRN_K));
    return KOLO_OK;
}

static kolo_status linear(onnx_export *c) {
    const bool bias = c->n->n_in > 2;
    if (c->x->rank == 2) {
        (void)same(c, "Gemm");
        onnx_add_int(c->w, "transB", 1);
        return KOLO_OK;
    }
    const char *w = onnx_emit(c->w, "Transpose", NULL, c->in[1], NULL, NULL);
    const char *y = onnx_emit(c->w, "MatMul", bias ? NULL : c->out, c->in[0], w, NULL);
    if (bias) onnx_emit(c->w, "Add", c->out, y, c->in[2], NULL);
    return KOLO_OK;
}

static kolo_status bias(onnx_export *c) {
    int64_t shape[KOLO_MAX_RANK] = {c->x->dim[1], 1, 1, 1, 1, 1};
    const char *b = c->in[1];
    if (c->x->rank > 2) {
        b = onnx_emit(c->w, "Reshape", NULL, b, onnx_int_list(c->w, shape, c->x->rank - 1), NULL);
    }
    onnx_emit(c->w, "Add", c->out, c->in[0], b, NULL);
    return KOLO_OK;
}

static kolo_status batch_norm(onnx_export *c) {
    onnx_emit(c->w, "BatchNormalization", c->out, c->in[0], c->in[1], c->in[2]);
    onnx_add_input(c->w, c->in[3]);
    onnx_add_input(c->w, c->in[4]);
    onnx_add_float(c->w, "epsilon", real(c, KOLO_NORM_EPS));
    onnx_add_float(c->w, "momentum", 1 - real(c, KOLO_NORM_MOMENTUM));
    return KOLO_OK;
}

static kolo_status layer_norm(onnx_export *c) {
    (void)same(c, "LayerNormalization");
    onnx_add_float(c->w, "epsilon", real(c, KOLO_LAYER_NORM_EPS));
    onnx_add_int(c->w, "axis", -1);
    return KOLO_OK;
}

/* Composed: RMSNormalization is of opset 23. */
static kolo_status rms_norm(onnx_export *c) {
    const int64_t last = -1;
    const char *m = onnx_emit(c->w, "Mul", NULL, c->in[0], c->in[0], NULL);
    m = onnx_emit(c->w, "ReduceMean", NULL, m, onnx_int_list(c->w, &last, 1), NULL);
    onnx_add_int(c->w, "keepdims", 1);
    const char *eps = onnx_number_constant(c->w, real(c, KOLO_LAYER_NORM_EPS));
    m = onnx_emit(c->w, "Add", NULL, m, eps, NULL);
    m = onnx_emit(c->w, "Sqrt", NULL, m, NULL, NULL);
    m = onnx_emit(c->w, "Div", NULL, c->in[0], m, NULL);
    onnx_emit(c->w, "Mul", c->out, m, c->in[1], NULL);
    return KOLO_OK;
}

/* A vector of `n` equal numbers. */
static const char *repeated(onnx_export *c, int64_t n, float number) {
    const kolo_shape shape = kolo_shape_1(n);
    float *data;
    const char *name = onnx_add_constant(c->w, NULL, &shape, &data);
    for (int64_t i = 0; i < n && !c->w->failed; i++) data[i] = number;
    return name;
}

/* A group is an instance of InstanceNormalization: GroupNormalization has scales of groups in opset
 * 18, and of channels in 21. */
static kolo_status group_norm(onnx_export *c) {
    const int64_t *dim = c->x->dim, rows[] = {0, dim[1], dim[2] * dim[3]};
    const int64_t whole[] = {0, dim[1], dim[2], dim[3]}, vector[] = {dim[1], dim[2], 1};
    const bool scaled = c->n->n_in > 1;
    const char *x = onnx_emit(c->w, "Reshape", NULL, c->in[0], onnx_int_list(c->w, rows, 3), NULL);
    const char *ones = repeated(c, dim[1], 1), *zeros = repeated(c, dim[1], 0);
    x = onnx_emit(c->w, "InstanceNormalization", NULL, x, ones, zeros);
    onnx_add_float(c->w, "epsilon", real(c, KOLO_LAYER_NORM_EPS));
    x = onnx_emit(c->w, "Reshape", scaled ? NULL : c->out, x, onnx_int_list(c->w, whole, 4), NULL);
    if (!scaled) return KOLO_OK;
    const char *by[2];
    for (int i = 0; i < 2; i++) {
        by[i] =
            onnx_emit(c->w, "Reshape", NULL, c->in[1 + i], onnx_int_list(c->w, vector, 3), NULL);
    }
    x = onnx_emit(c->w, "Mul", NULL, x, by[0], NULL);
    onnx_emit(c->w, "Add", c->out, x, by[1], NULL);
    return KOLO_OK;
}

/* Whether the rows are summed: bags, in which the ids after the last one are -1. */
static bool is_bag(const onnx_export *c) {
    const kolo_graph *g = c->w->g;
    bool summed = false;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k].id != c->n->out[0].id) continue;
            if (g->nodes[i]->op != &kolo_op_sum) return false;
            summed = true;
        }
    }
    return summed;
}

/* The table with a last row of zeros, which Gather selects by -1. */
static const char *with_zeros(onnx_export *c) {
    const kolo_shape row = kolo_shape_2(1, c->x->dim[1]);
    float *zeros;
    const char *last = onnx_add_constant(c->w, NULL, &row, &zeros);
    if (!c->w->failed) memset(zeros, 0, (size_t)row.dim[1] * sizeof *zeros);
    const char *table = onnx_emit(c->w, "Concat", NULL, c->in[0], last, NULL);
    onnx_add_int(c->w, "axis", 0);
    return table;
}

static kolo_status embedding(onnx_export *c) {
    const bool positions = c->n->n_in > 2;
    const char *table = is_bag(c) ? with_zeros(c) : c->in[0];
    const char *y = onnx_emit(c->w, "Gather", positions ? NULL : c->out, table, c->in[1], NULL);
    if (!positions) return KOLO_OK;
    const int64_t first = 0, end = c->y->dim[1];
    const char *p = onnx_emit(c->w, "Slice", NULL, c->in[2], onnx_int_list(c->w, &first, 1),
                              onnx_int_list(c->w, &end, 1));
    onnx_emit(c->w, "Add", c->out, y, p, NULL);
    return KOLO_OK;
}

/* ---- products ---- */

static kolo_status matmul(onnx_export *c) {
    static const int64_t turn[] = {0, 2, 1};
    const char *a =
        integer(c, KOLO_MATMUL_TRANSPOSE_A) ? transposed(c, c->in[0], turn, 3) : c->in[0];
    const char *b =
        integer(c, KOLO_MATMUL_TRANSPOSE_B) ? transposed(c, c->in[1], turn, 3) : c->in[1];
    onnx_emit(c->w, "MatMul", c->out, a, b, NULL);
    return KOLO_OK;
}

/* ---- shapes ---- */

static kolo_status flatten(onnx_export *c) {
    onnx_emit(c->w, "Flatten", c->out, c->in[0], NULL, NULL);
    onnx_add_int(c->w, "axis", 1);
    return KOLO_OK;
}

/* The dimension that grows with the batch is open. */
static kolo_status reshape(onnx_export *c) {
    int64_t shape[KOLO_MAX_RANK];
    int open = 0;
    for (int d = 0; d < c->y->rank; d++) {
        const int64_t two = integer(c, KOLO_RESHAPE_DIM + d);
        const bool fixed = two == c->other->attr[KOLO_RESHAPE_DIM + d].i;
        shape[d] = fixed ? two : -1;
        open += !fixed;
    }
    if (open > 1)
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "reshape: two dimensions depend on the batch");
    onnx_emit(c->w, "Reshape", c->out, c->in[0], onnx_int_list(c->w, shape, c->y->rank), NULL);
    return KOLO_OK;
}

static kolo_status permute(onnx_export *c) {
    int64_t order[KOLO_MAX_RANK];
    for (int d = 0; d < c->x->rank; d++) order[d] = integer(c, d);
    onnx_emit(c->w, "Transpose", c->out, c->in[0], NULL, NULL);
    onnx_add_ints(c->w, "perm", order, c->x->rank);
    return KOLO_OK;
}

static kolo_status flip(onnx_export *c) {
    const int64_t first = -1, end = INT64_MIN, axis = integer(c, KOLO_FLIP_AXIS), step = -1;
    onnx_emit(c->w, "Slice", c->out, c->in[0], onnx_int_list(c->w, &first, 1),
              onnx_int_list(c->w, &end, 1));
    onnx_add_input(c->w, onnx_int_list(c->w, &axis, 1));
    onnx_add_input(c->w, onnx_int_list(c->w, &step, 1));
    return KOLO_OK;
}

static kolo_status concat(onnx_export *c) {
    onnx_emit(c->w, "Concat", c->out, c->in[0], NULL, NULL);
    for (int k = 1; k < c->n->n_in; k++) onnx_add_input(c->w, c->in[k]);
    onnx_add_int(c->w, "axis", integer(c, KOLO_CONCAT_AXIS));
    return KOLO_OK;
}

/* Elements of x along a dimension, with zeros outside it. */
static kolo_status padded_slice(onnx_export *c) {
    const int64_t axis = integer(c, KOLO_WINDOW_AXIS), size = c->x->dim[axis];
    const int64_t first = integer(c, KOLO_WINDOW_FIRST);
    const int64_t end = first + integer(c, KOLO_WINDOW_COUNT);
    const int64_t from = first > 0 ? first : 0, to = end < size ? end : size;
    const int64_t pads[] = {from - first, end - to};
    const bool padded = pads[0] || pads[1];
    const char *axes = onnx_int_list(c->w, &axis, 1);
    if (from >= to) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "window: no element of its input");
    const char *y = onnx_emit(c->w, "Slice", padded ? NULL : c->out, c->in[0],
                              onnx_int_list(c->w, &from, 1), onnx_int_list(c->w, &to, 1));
    onnx_add_input(c->w, axes);
    if (!padded) return KOLO_OK;
    const char *zero = onnx_number_constant(c->w, 0);
    onnx_emit(c->w, "Pad", c->out, y, onnx_int_list(c->w, pads, 2), zero);
    onnx_add_input(c->w, axes);
    return KOLO_OK;
}

/* ---- functions ---- */

static kolo_status scale(onnx_export *c) {
    if (c->n->n_in > 1) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "scale by a scalar of training");
    onnx_emit(c->w, "Mul", c->out, c->in[0], onnx_number_constant(c->w, real(c, KOLO_SCALE_FACTOR)),
              NULL);
    return KOLO_OK;
}

static kolo_status gelu(onnx_export *c) {
    onnx_writer *w = c->w;
    const char *inner, *x = c->in[0];
    if (integer(c, KOLO_GELU_TANH)) {
        inner = onnx_emit(w, "Mul", NULL, x, onnx_emit(w, "Mul", NULL, x, x, NULL), NULL);
        inner = onnx_emit(w, "Mul", NULL, inner, onnx_number_constant(w, 0.044715), NULL);
        inner = onnx_emit(w, "Add", NULL, inner, x, NULL);
        inner = onnx_emit(w, "Mul", NULL, inner, onnx_number_constant(w, 0.7978845608028654), NULL);
        inner = onnx_emit(w, "Tanh", NULL, inner, NULL, NULL);
    } else {
        inner = onnx_emit(w, "Mul", NULL, x, onnx_number_constant(w, 0.7071067811865476), NULL);
        inner = onnx_emit(w, "Erf", NULL, inner, NULL, NULL);
    }
    inner = onnx_emit(w, "Add", NULL, inner, onnx_number_constant(w, 1), NULL);
    inner = onnx_emit(w, "Mul", NULL, inner, onnx_number_constant(w, 0.5), NULL);
    onnx_emit(w, "Mul", c->out, x, inner, NULL);
    return KOLO_OK;
}

static kolo_status softmax(onnx_export *c) {
    onnx_emit(c->w, integer(c, KOLO_SOFTMAX_LOG) ? "LogSoftmax" : "Softmax", c->out, c->in[0], NULL,
              NULL);
    onnx_add_int(c->w, "axis", 1);
    return KOLO_OK;
}

static kolo_status reduce(onnx_export *c, const char *op) {
    int64_t axes[KOLO_MAX_RANK];
    int n = 0;
    for (int d = 0; d < c->x->rank; d++) {
        if (kolo_sum_over(c->n->attr, d)) axes[n++] = d;
    }
    onnx_emit(c->w, op, c->out, c->in[0], onnx_int_list(c->w, axes, n), NULL);
    onnx_add_int(c->w, "keepdims", integer(c, KOLO_SUM_KEEP) != 0);
    return KOLO_OK;
}
static kolo_status sum(onnx_export *c) {
    return reduce(c, integer(c, KOLO_SUM_MEAN) ? "ReduceMean" : "ReduceSum");
}
static kolo_status extremum(onnx_export *c) {
    return reduce(c, integer(c, KOLO_REDUCE_MIN) ? "ReduceMin" : "ReduceMax");
}

static kolo_status grid_sample(onnx_export *c) {
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
    onnx_emit(c->w, "GridSample", c->out, c->in[0], c->in[1], NULL);
    onnx_add_text(c->w, "mode", modes[integer(c, KOLO_GRID_MODE)]);
    onnx_add_text(c->w, "padding_mode", paddings[integer(c, KOLO_GRID_PADDING)]);
    onnx_add_int(c->w, "align_corners", integer(c, KOLO_GRID_CORNERS));
    return KOLO_OK;
}

/* With one attribute. */
static kolo_status with_attribute(onnx_export *c, const char *op, const char *name) {
    onnx_emit(c->w, op, c->out, c->in[0], NULL, NULL);
    onnx_add_float(c->w, name, real(c, KOLO_UNARY_P));
    return KOLO_OK;
}
static kolo_status leaky_relu(onnx_export *c) { return with_attribute(c, "LeakyRelu", "alpha"); }
static kolo_status elu(onnx_export *c) { return with_attribute(c, "Elu", "alpha"); }
static kolo_status hardsigmoid(onnx_export *c) {
    onnx_emit(c->w, "HardSigmoid", c->out, c->in[0], NULL, NULL);
    onnx_add_float(c->w, "alpha", 1.0 / 6);
    return KOLO_OK;
}
static kolo_status power(onnx_export *c) {
    onnx_emit(c->w, "Pow", c->out, c->in[0], onnx_number_constant(c->w, real(c, KOLO_UNARY_P)),
              NULL);
    return KOLO_OK;
}
static kolo_status offset(onnx_export *c) {
    onnx_emit(c->w, "Add", c->out, c->in[0], onnx_number_constant(c->w, real(c, KOLO_UNARY_P)),
              NULL);
    return KOLO_OK;
}
static kolo_status clamp(onnx_export *c) {
    const char *low = onnx_number_constant(c->w, real(c, KOLO_UNARY_P));
    onnx_emit(c->w, "Clip", c->out, c->in[0], low,
              onnx_number_constant(c->w, real(c, KOLO_UNARY_Q)));
    return KOLO_OK;
}
static kolo_status rsqrt(onnx_export *c) {
    const char *root = onnx_emit(c->w, "Sqrt", NULL, c->in[0], NULL, NULL);
    onnx_emit(c->w, "Reciprocal", c->out, root, NULL, NULL);
    return KOLO_OK;
}
static kolo_status silu(onnx_export *c) {
    const char *s = onnx_emit(c->w, "Sigmoid", NULL, c->in[0], NULL, NULL);
    onnx_emit(c->w, "Mul", c->out, c->in[0], s, NULL);
    return KOLO_OK;
}
/* log(1 + e^(beta x)) / beta */
static kolo_status softplus(onnx_export *c) {
    const double beta = real(c, KOLO_UNARY_P);
    const char *x = onnx_emit(c->w, "Mul", NULL, c->in[0], onnx_number_constant(c->w, beta), NULL);
    x = onnx_emit(c->w, "Softplus", NULL, x, NULL, NULL);
    onnx_emit(c->w, "Mul", c->out, x, onnx_number_constant(c->w, 1 / beta), NULL);
    return KOLO_OK;
}

/* ---- the table ---- */

/* `write`, or an op of ONNX with the same inputs. */
static const struct {
    const kolo_op *op;
    kolo_status (*write)(onnx_export *c);
    const char *same;
} rows[] = {
    {&kolo_op_conv2d, conv, NULL},
    {&kolo_op_conv2d_bwd_data, conv_transpose, NULL},
    {&kolo_op_max_pool2d, max_pool, NULL},
    {&kolo_op_avg_pool2d, avg_pool, NULL},
    {&kolo_op_adaptive_avg_pool2d, adaptive_avg_pool, NULL},
    {&kolo_op_resize, resize, NULL},
    {&kolo_op_grid_sample, grid_sample, NULL},
    {&kolo_op_lrn, lrn, NULL},
    {&kolo_op_linear, linear, NULL},
    {&kolo_op_bias, bias, NULL},
    {&kolo_op_batch_norm_infer, batch_norm, NULL},
    {&kolo_op_layer_norm, layer_norm, NULL},
    {&kolo_op_rms_norm, rms_norm, NULL},
    {&kolo_op_group_norm, group_norm, NULL},
    {&kolo_op_embedding, embedding, NULL},
    {&kolo_op_matmul, matmul, NULL},
    {&kolo_op_causal_mask, onnx_export_causal_mask, NULL},
    {&kolo_op_attention, onnx_export_attention, NULL},
    {&kolo_op_lstm, onnx_export_lstm, NULL},
    {&kolo_op_gru, onnx_export_gru, NULL},
    {&kolo_op_expert_route, onnx_export_expert_route, NULL},
    {&kolo_op_expert_dispatch, onnx_export_expert_dispatch, NULL},
    {&kolo_op_expert_combine, onnx_export_expert_combine, NULL},
    {&kolo_op_flatten, flatten, NULL},
    {&kolo_op_reshape, reshape, NULL},
    {&kolo_op_permute, permute, NULL},
    {&kolo_op_flip, flip, NULL},
    {&kolo_op_rotary, onnx_export_rotary, NULL},
    {&kolo_op_mask_tokens, onnx_export_mask_tokens, NULL},
    {&kolo_op_concat, concat, NULL},
    {&kolo_op_window, padded_slice, NULL},
    {&kolo_op_scale, scale, NULL},
    {&kolo_op_gelu, gelu, NULL},
    {&kolo_op_softmax, softmax, NULL},
    {&kolo_op_sum, sum, NULL},
    {&kolo_op_reduce_max, extremum, NULL},
    {&kolo_op_leaky_relu, leaky_relu, NULL},
    {&kolo_op_elu, elu, NULL},
    {&kolo_op_hardsigmoid, hardsigmoid, NULL},
    {&kolo_op_pow, power, NULL},
    {&kolo_op_offset, offset, NULL},
    {&kolo_op_clamp, clamp, NULL},
    {&kolo_op_hardtanh, clamp, NULL},
    {&kolo_op_rsqrt, rsqrt, NULL},
    {&kolo_op_silu, silu, NULL},
    {&kolo_op_softplus, softplus, NULL},
    {&kolo_op_relu, NULL, "Relu"},
    {&kolo_op_sin, NULL, "Sin"},
    {&kolo_op_cos, NULL, "Cos"},
    {&kolo_op_atan, NULL, "Atan"},
    {&kolo_op_floor, NULL, "Floor"},
    {&kolo_op_ceil, NULL, "Ceil"},
    {&kolo_op_round, NULL, "Round"},
    {&kolo_op_add, NULL, "Add"},
    {&kolo_op_broadcast_add, NULL, "Add"},
    {&kolo_op_mul, NULL, "Mul"},
    {&kolo_op_broadcast_mul, NULL, "Mul"},
    {&kolo_op_sub, NULL, "Sub"},
    {&kolo_op_div, NULL, "Div"},
    {&kolo_op_minimum, NULL, "Min"},
    {&kolo_op_maximum, NULL, "Max"},
    {&kolo_op_exp, NULL, "Exp"},
    {&kolo_op_log, NULL, "Log"},
    {&kolo_op_sqrt, NULL, "Sqrt"},
    {&kolo_op_reciprocal, NULL, "Reciprocal"},
    {&kolo_op_abs, NULL, "Abs"},
    {&kolo_op_erf, NULL, "Erf"},
    {&kolo_op_sigmoid, NULL, "Sigmoid"},
    {&kolo_op_tanh, NULL, "Tanh"},
    {&kolo_op_hardswish, NULL, "HardSwish"},
    {&kolo_op_stop_gradient, NULL, "Identity"},
};

kolo_status onnx_write_node(onnx_writer *w, const kolo_node *n, const kolo_node *other) {
    onnx_export c = {.w = w, .n = n, .other = other, .out = onnx_name(w, n->out[0])};
    c.x = shape_of(&c, 0);
    c.y = &kolo_info(w->g, n->out[0])->tensor.shape;
    for (int k = 0; k < n->n_in; k++) c.in[k] = onnx_name(w, n->in[k]);
    for (size_t r = 0; r < KOLO_COUNT(rows); r++) {
        if (rows[r].op != n->op) continue;
        return rows[r].write ? rows[r].write(&c) : same(&c, rows[r].same);
    }
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "the op %s cannot be exported to ONNX", n->op->name);
}
