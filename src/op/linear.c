/* linear, y = x w^T + b, and its gradients dx = dy w, dw = dy^T x, db = sum of dy over the batch.
 * Dimensions after the first are flattened, so that no flatten is needed before it. With w [O,I]
 * and x of more dimensions, x are tokens: all dimensions but the last are rows. linear_gelu fuses
 * linear and gelu; gelu_bwd then also computes the gradient of the bias. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

static const char *const linear_attrs[] = {"relu", NULL};
static const char *const gelu_attrs[] = {"tanh", "keep", NULL};
static const char *const bwd_weights_attrs[] = {"bias", NULL};

/* Elements of all dimensions but the first. */
static double inner(const kolo_tensor *t) {
    return (double)kolo_shape_count(&t->shape) / (double)t->shape.dim[0];
}

/* x, or dy, are tokens [N,...,last]: dimensions beyond those that a matrix has. */
static bool is_tokens(const kolo_shape *x, const kolo_shape *w) {
    return w->rank == 2 && x->rank > 2;
}

/* Like `tokens`, with another number of channels. */
static kolo_shape with_last(kolo_shape tokens, int64_t last) {
    tokens.dim[tokens.rank - 1] = last;
    return tokens;
}

static kolo_status check_inputs(const kolo_shape_query *q) {
    const kolo_shape *x = &q->in[0].shape, *w = &q->in[1].shape;
    if (x->rank < 2) return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,I");
    if (!is_tokens(x, w)) {
        KOLO_TRY(
            kolo_rule_rank(q, 1, x->rank, "O, then those of x after the first (or flatten x)"));
    }
    for (int d = 1; d < w->rank; d++) {
        int of_x = d + x->rank - w->rank;
        if (x->dim[of_x] == w->dim[d]) continue;
        return KOLO_RULE_FAIL(q,
                              "dimension %d of x is %" PRId64 " but dimension %d of w is %" PRId64
                              "; they must be equal (or flatten x)",
                              of_x, x->dim[of_x], d, w->dim[d]);
    }
    return KOLO_OK;
}

static kolo_status linear_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(check_inputs(q));
    const kolo_shape *x = &q->in[0].shape, *w = &q->in[1].shape;
    if (q->n_in == 3) {
        KOLO_TRY(kolo_rule_rank(q, 2, 1, "O"));
        if (q->in[2].shape.dim[0] != w->dim[0]) {
            return KOLO_RULE_FAIL(q, "the bias must have %" PRId64 " elements", w->dim[0]);
        }
    }
    bool tokens = is_tokens(x, w);
    return kolo_rule_out(q, 0, kolo_rule_product(q),
                         tokens ? with_last(*x, w->dim[0]) : kolo_shape_2(x->dim[0], w->dim[0]));
}

static kolo_status gelu_shape(kolo_shape_query *q) {
    KOLO_TRY(linear_shape(q));
    KOLO_TRY(kolo_rule_rank(q, 1, 2, "O,I"));
    return q->attr[KOLO_LINEAR_GELU_KEEP].i ? kolo_rule_out(q, 1, q->out[0].dtype, q->out[0].shape)
                                            : KOLO_OK;
}

static kolo_status bwd_data_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    const kolo_shape *dy = &q->in[0].shape;
    kolo_shape dx = q->in[1].shape;
    if (dy->rank < 2) return KOLO_RULE_FAIL(q, "dy must have two or more dimensions: N,O");
    if (dx.rank < 2 || (dy->rank > 2 && dx.rank != 2) || dx.dim[0] != dy->dim[dy->rank - 1]) {
        return KOLO_RULE_FAIL(q, "w must be [%" PRId64 ",I...]", dy->dim[dy->rank - 1]);
    }
    if (is_tokens(dy, &dx)) return kolo_rule_out(q, 0, q->in[0].dtype, with_last(*dy, dx.dim[1]));
    dx.dim[0] = dy->dim[0];
    return kolo_rule_out(q, 0, q->in[0].dtype, dx);
}

static kolo_status bwd_weights_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    const kolo_shape *dy = &q->in[0].shape;
    kolo_shape dw = q->in[1].shape;
    if (dy->rank < 2) return KOLO_RULE_FAIL(q, "dy must have two or more dimensions: N,O");
    int64_t outputs = dy->dim[dy->rank - 1];
    if (dy->rank > 2) { /* tokens */
        kolo_shape same = dw.rank > 0 ? with_last(*dy, dw.dim[dw.rank - 1]) : *dy;
        if (!kolo_shape_equal(&dw, &same)) {
            return KOLO_RULE_FAIL(q, "x must be like dy in all dimensions but the last");
        }
        dw = kolo_shape_2(outputs, dw.dim[dw.rank - 1]);
    } else if (dw.rank < 2 || dw.dim[0] != dy->dim[0]) {
        return KOLO_RULE_FAIL(q, "x must be [%" PRId64 ",I...]", dy->dim[0]);
    }
    dw.dim[0] = outputs;
    KOLO_TRY(kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), dw));
    if (!q->attr[KOLO_LINEAR_BWD_BIAS].i) return KOLO_OK;
    return kolo_rule_out(q, 1, kolo_dtype_wide(q->in[0].dtype), kolo_shape_1(outputs));
}

/* The gradient of a bias alone: the sum of dy over the rows. */
static kolo_value bias_grad(kolo_graph *g, kolo_value dy) {
    const kolo_shape *s = &kolo_info(g, dy)->tensor.shape;
    int64_t outputs = s->dim[s->rank - 1];
    if (s->rank > 2) {
        dy = kolo_reshape(g, dy, kolo_shape_2(kolo_shape_count(s) / outputs, outputs));
    }
    return kolo_graph_add1(g, &kolo_op_bias_bwd, &dy, 1, NULL);
}

static void linear_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    kolo_value dy = d_out[0];
    if (n->attr[KOLO_LINEAR_RELU].i) {
        dy = kolo_graph_add1(g, &kolo_op_relu_bwd, (kolo_value[]){dy, n->out[0]}, 2, NULL);
    }
    bool wants_bias = n->n_in == 3 && wants[2];
    if (wants[0]) {
        d_in[0] =
            kolo_graph_add1(g, &kolo_op_linear_bwd_data, (kolo_value[]){dy, n->in[1]}, 2, NULL);
    }
    if (wants[1]) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LINEAR_BWD_BIAS].i = wants_bias};
        kolo_value out[KOLO_MAX_IO];
        kolo_graph_add(g, &kolo_op_linear_bwd_weights, (kolo_value[]){dy, n->in[0]}, 2, attr, out);
        d_in[1] = out[0];
        if (wants_bias) d_in[2] = out[1];
    } else if (wants_bias) {
        d_in[2] = bias_grad(g, dy);
    }
}

static void gelu_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    bool wants_bias = n->n_in == 3 && wants[2];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_GELU_TANH] = n->attr[KOLO_LINEAR_GELU_TANH],
        [KOLO_GELU_BWD_BIAS].i = wants_bias,
    };
    kolo_value dz[KOLO_MAX_IO];
    if (n->n_out != 2 || kolo_value_ok(d_out[1])) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "linear_gelu: a gradient needs keep=1, and flows through output 0"));
        return;
    }
    kolo_graph_add(g, &kolo_op_gelu_bwd, (kolo_value[]){d_out[0], n->out[1]}, 2, attr, dz);
    if (wants[0]) {
        const kolo_value in[] = {dz[0], n->in[1]};
        d_in[0] = kolo_graph_add1(g, &kolo_op_linear_bwd_data, in, 2, NULL);
    }
    if (wants[1]) {
        const kolo_value in[] = {dz[0], n->in[0]};
        d_in[1] = kolo_graph_add1(g, &kolo_op_linear_bwd_weights, in, 2, NULL);
    }
    if (wants_bias) d_in[2] = dz[1];
}

/* A multiply-add for each element of y and of a row of w, in all three. */
static kolo_cost cost_of(const kolo_shape_query *q, const kolo_tensor *y, const kolo_tensor *w) {
    return (kolo_cost){2 * inner(w) * (double)kolo_shape_count(&y->shape), kolo_query_bytes(q)};
}
static kolo_cost linear_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->out[0], &q->in[1]);
}
static kolo_cost bwd_data_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->in[0], &q->in[1]);
}
static kolo_cost bwd_weights_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->in[0], &q->out[0]);
}

const kolo_op kolo_op_linear = {
    .name = "linear",
    .index = "n*i,oi+o->n*o|ni*,oi*+o->no",
    .linear = 0x7u,
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "awp", .out = "a"},
    .attrs = linear_attrs,
    .shape = linear_shape,
    .grad = linear_grad,
    .cost = linear_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x1u, .out = 0x1u},
    .fuse = {.bias = 2, .relu = KOLO_ATTR(KOLO_LINEAR_RELU)},
    .tuned = true,
};
const kolo_op kolo_op_linear_gelu = {
    .name = "linear_gelu",
    .index = "n*I,oI,o->n*o,n*o",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "awp", .out = "aa"},
    .attrs = gelu_attrs,
    .shape = gelu_shape,
    .grad = gelu_grad,
    .cost = linear_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x1u, .out = 0x3u},
    .tuned = true,
};
const kolo_op kolo_op_linear_bwd_data = {
    .name = "linear_bwd_data",
    .index = "n*o,oi->n*i|no,oi*->ni*",
    .linear = 0x3u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aw", .out = "a"},
    .attrs = (const char *const[]){NULL},
    .shape = bwd_data_shape,
    .cost = bwd_data_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x1u, .out = 0x1u},
    .tuned = true,
};
const kolo_op kolo_op_linear_bwd_weights = {
    .name = "linear_bwd_weights",
    .index = "n*o,n*i->oi,o/i|no,ni*->oi*,o/i*",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aa", .out = "wp"},
    .attrs = bwd_weights_attrs,
    .shape = bwd_weights_shape,
    .cost = bwd_weights_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x3u, .sums = 0x3u},
    .tuned = true,
};

kolo_value kolo_linear(kolo_graph *g, kolo_value x, kolo_value w) {
    return kolo_graph_add1(g, &kolo_op_linear, (kolo_value[]){x, w}, 2, NULL);
}

kolo_value kolo_linear_bias(kolo_graph *g, kolo_value x, kolo_value w, kolo_value b) {
    return kolo_graph_add1(g, &kolo_op_linear, (kolo_value[]){x, w, b}, 3, NULL);
}

/* ---- reference ---- */

/* Elements of a row of the weights. */
static int64_t inner_of(const kolo_tensor *w) {
    return kolo_shape_count(&w->shape) / w->shape.dim[0];
}
/* Rows of x, or of y: the samples of the batch, or all tokens. */
static int64_t rows_of(const kolo_tensor *t, int64_t columns) {
    return kolo_shape_count(&t->shape) / columns;
}

static void product(const kolo_call *call, double *y) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0], *w = call->in[1];
    const double *b = spec->n_in == 3 ? call->in[2] : NULL;
    int64_t inner = inner_of(&spec->in[1]), batch = rows_of(&spec->in[0], inner);
    int64_t outer = spec->in[1].shape.dim[0];
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t o = 0; o < outer; o++) {
            double sum = b ? b[o] : 0;
            for (int64_t i = 0; i < inner; i++) sum += x[n * inner + i] * w[o * inner + i];
            y[n * outer + o] = sum;
        }
    }
}

static void linear(const kolo_call *call) {
    double *y = call->out[0];
    product(call, y);
    if (!call->spec->attr[KOLO_LINEAR_RELU].i) return;
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->out[0].shape); i++) {
        y[i] = y[i] < 0 ? 0 : y[i];
    }
}

static void linear_gelu(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    double *y = call->out[0], *z = attr[KOLO_LINEAR_GELU_KEEP].i ? call->out[1] : y;
    product(call, z);
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->out[0].shape); i++) {
        y[i] = kolo_ref_gelu_at(z[i], attr[KOLO_LINEAR_GELU_TANH].i);
    }
}

static void bwd_data(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *dy = call->in[0], *w = call->in[1];
    double *dx = call->out[0];
    int64_t inner = inner_of(&spec->in[1]), batch = rows_of(&spec->out[0], inner);
    int64_t outer = spec->in[1].shape.dim[0];
    memset(dx, 0, sizeof(double) * (size_t)(batch * inner));
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t o = 0; o < outer; o++) {
            double scale = dy[n * outer + o];
            for (int64_t i = 0; i < inner; i++) dx[n * inner + i] += scale * w[o * inner + i];
        }
    }
}

static void bwd_weights(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *dy = call->in[0], *x = call->in[1];
    double *dw = call->out[0], *db = spec->n_out == 2 ? call->out[1] : NULL;
    int64_t inner = inner_of(&spec->out[0]), batch = rows_of(&spec->in[1], inner);
    int64_t outer = spec->out[0].shape.dim[0];
    memset(dw, 0, sizeof(double) * (size_t)(outer * inner));
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t o = 0; o < outer; o++) {
            double scale = dy[n * outer + o];
            for (int64_t i = 0; i < inner; i++) dw[o * inner + i] += scale * x[n * inner + i];
        }
    }
    for (int64_t o = 0; db && o < outer; o++) {
        db[o] = 0;
        for (int64_t n = 0; n < batch; n++) db[o] += dy[n * outer + o];
    }
}

static void run_linear(const kolo_call *call) { kolo_ref_run(call, linear); }
static void run_linear_gelu(const kolo_call *call) { kolo_ref_run(call, linear_gelu); }
static void run_bwd_data(const kolo_call *call) { kolo_ref_run(call, bwd_data); }
static void run_bwd_weights(const kolo_call *call) { kolo_ref_run(call, bwd_weights); }

const kolo_kernel kolo_ops_linear[] = {
    KOLO_REF_KERNEL("ref_linear", &kolo_op_linear, run_linear),
    KOLO_REF_KERNEL("ref_linear_gelu", &kolo_op_linear_gelu, run_linear_gelu),
    KOLO_REF_KERNEL("ref_linear_bwd_data", &kolo_op_linear_bwd_data, run_bwd_data),
    KOLO_REF_KERNEL("ref_linear_bwd_weights", &kolo_op_linear_bwd_weights, run_bwd_weights),
    {0},
};
