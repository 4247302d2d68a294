/* bias, relu and add, with their gradients; scale. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

static const char *const no_attrs[] = {NULL}, *const scale_attrs[] = {"%factor", NULL};
static const char *const add_attrs[] = {"relu", NULL};

static kolo_status bias_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    const kolo_shape *x = &q->in[0].shape;
    if (x->rank < 2) return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    KOLO_TRY(kolo_rule_rank(q, 1, 1, "C"));
    if (q->in[1].shape.dim[0] != x->dim[1]) {
        return KOLO_RULE_FAIL(q, "the bias must have %" PRId64 " elements, as dimension 1 of x",
                              x->dim[1]);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, *x);
}

static kolo_status bias_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    const kolo_shape *dy = &q->in[0].shape;
    if (dy->rank < 2) return KOLO_RULE_FAIL(q, "dy must have two or more dimensions: N,C,...");
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), kolo_shape_1(dy->dim[1]));
}

/* Float inputs of equal shape; the output has that shape. */
static kolo_status pointwise_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    for (int i = 1; i < q->n_in; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status scale_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    if (q->n_in == 2) KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void bias_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (wants[0]) d_in[0] = d_out[0];
    if (wants[1]) d_in[1] = kolo_graph_add1(g, &kolo_op_bias_bwd, d_out, 1, NULL);
}

static void relu_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (!wants[0]) return;
    const kolo_value in[2] = {d_out[0], n->out[0]};
    d_in[0] = kolo_graph_add1(g, &kolo_op_relu_bwd, in, 2, NULL);
}

static void add_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    kolo_value d = d_out[0];
    if (n->attr[KOLO_ADD_RELU].i) {
        d = kolo_graph_add1(g, &kolo_op_relu_bwd, (kolo_value[]){d, n->out[0]}, 2, NULL);
    }
    for (int i = 0; i < 2; i++) {
        if (wants[i]) d_in[i] = d;
    }
}

/* The gradient of x; the scalar is not trainable. */
static void scale_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                       const bool *wants, kolo_value *d_in) {
    const kolo_value in[2] = {d_out[0], n->n_in == 2 ? n->in[1] : KOLO_NONE};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_scale, in, n->n_in, n->attr);
}

const kolo_op kolo_op_bias = {
    .name = "bias",
    .index = "nc*+c->nc*",
    .linear = 0x3u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ap", .out = "a"},
    .attrs = no_attrs,
    .shape = bias_shape,
    .grad = bias_grad,
    .overwrite = 1u << 0,
    .cheap = true,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_bias_bwd = {
    .name = "bias_bwd",
    .index = "nc*->c",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "p"},
    .attrs = no_attrs,
    .shape = bias_bwd_shape,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .sums = 0x1u},
};
const kolo_op kolo_op_relu = {
    .name = "relu",
    .index = "*->*",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = no_attrs,
    .shape = pointwise_shape,
    .grad = relu_grad,
    .overwrite = 1u << 0,
    .cheap = true,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_relu_bwd = {
    .name = "relu_bwd",
    .index = "*,*+*->*",
    .linear = 0x5u,
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "aaa", .out = "a"},
    .attrs = no_attrs,
    .shape = pointwise_shape,
    .overwrite = 1u << 0 | 1u << 1 | 1u << 2,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2,
    .samples = {.in = 0x7u, .out = 0x1u},
};
const kolo_op kolo_op_add = {
    .name = "add",
    .index = "*+*->*",
    .linear = 0x3u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ee", .out = "e"},
    .attrs = add_attrs,
    .shape = pointwise_shape,
    .grad = add_grad,
    .overwrite = 1u << 0 | 1u << 1,
    .cheap = true,
    .bf16 = 1u << 0 | 1u << 1,
    .bf16_joins = true,
    .samples = {.in = 0x3u, .out = 0x1u},
    .fuse = {.relu = KOLO_ATTR(KOLO_ADD_RELU)},
};
const kolo_op kolo_op_scale = {
    .name = "scale",
    .index = "*,->*",
    .linear = 0x3u,
    .min_in = 1,
    .max_in = 2,
    .layout = {.in = "ep", .out = "e"},
    .attrs = scale_attrs,
    .shape = scale_shape,
    .grad = scale_grad,
    .overwrite = 1u << 0,
    .cheap = true,
};

kolo_value kolo_bias(kolo_graph *g, kolo_value x, kolo_value b) {
    return kolo_graph_add1(g, &kolo_op_bias, (kolo_value[]){x, b}, 2, NULL);
}

kolo_value kolo_relu(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_relu, &x, 1, NULL);
}

kolo_value kolo_scale(kolo_graph *g, kolo_value x, double factor) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = factor};
    return kolo_graph_add1(g, &kolo_op_scale, &x, 1, attr);
}

/* ---- reference ---- */

/* bias, relu and add with their gradients. An output may alias an input (op->overwrite). */

static int64_t count_of(const kolo_tensor *t) { return kolo_shape_count(&t->shape); }

/* Elements per index of dimension 1. */
static int64_t plane_of(const kolo_tensor *t) {
    return count_of(t) / (t->shape.dim[0] * t->shape.dim[1]);
}

static void bias(const kolo_call *call) {
    const kolo_tensor *t = &call->spec->in[0];
    const double *x = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    int64_t plane = plane_of(t), channels = t->shape.dim[1];
    for (int64_t i = 0; i < count_of(t); i++) y[i] = x[i] + b[i / plane % channels];
}

static void bias_bwd(const kolo_call *call) {
    const kolo_tensor *t = &call->spec->in[0];
    const double *dy = call->in[0];
    double *db = call->out[0];
    int64_t plane = plane_of(t), channels = t->shape.dim[1];
    memset(db, 0, sizeof(double) * (size_t)channels);
    for (int64_t i = 0; i < count_of(t); i++) db[i / plane % channels] += dy[i];
}

static void relu(const kolo_call *call) {
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_bwd(const kolo_call *call) {
    const double *dy = call->in[0], *y = call->in[1];
    const double *dy2 = call->spec->n_in > 2 ? call->in[2] : NULL;
    double *dx = call->out[0];
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) {
        double d = dy[i] + (dy2 ? dy2[i] : 0);
        dx[i] = y[i] > 0 ? d : 0;
    }
}

static void add(const kolo_call *call) {
    const double *a = call->in[0], *b = call->in[1];
    double *y = call->out[0];
    bool relu = call->spec->attr[KOLO_ADD_RELU].i;
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) {
        double v = a[i] + b[i];
        y[i] = relu && v < 0 ? 0 : v;
    }
}

static void scale(const kolo_call *call) {
    const double *x = call->in[0], *s = call->spec->n_in == 2 ? call->in[1] : NULL;
    double *y = call->out[0], factor = (s ? *s : 1) * call->spec->attr[KOLO_SCALE_FACTOR].f;
    for (int64_t i = 0; i < count_of(&call->spec->in[0]); i++) y[i] = x[i] * factor;
}

static void run_bias(const kolo_call *call) { kolo_ref_run(call, bias); }
static void run_bias_bwd(const kolo_call *call) { kolo_ref_run(call, bias_bwd); }
static void run_relu(const kolo_call *call) { kolo_ref_run(call, relu); }
static void run_relu_bwd(const kolo_call *call) { kolo_ref_run(call, relu_bwd); }
static void run_add(const kolo_call *call) { kolo_ref_run(call, add); }
static void run_scale(const kolo_call *call) { kolo_ref_run(call, scale); }

const kolo_kernel kolo_ops_pointwise[] = {
    KOLO_REF_KERNEL("ref_bias", &kolo_op_bias, run_bias),
    KOLO_REF_KERNEL("ref_bias_bwd", &kolo_op_bias_bwd, run_bias_bwd),
    KOLO_REF_KERNEL("ref_relu", &kolo_op_relu, run_relu),
    KOLO_REF_KERNEL("ref_relu_bwd", &kolo_op_relu_bwd, run_relu_bwd),
    KOLO_REF_KERNEL("ref_add", &kolo_op_add, run_add),
    KOLO_REF_KERNEL("ref_scale", &kolo_op_scale, run_scale),
    {0},
};
