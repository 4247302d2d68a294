/* GELU with its gradient (Hendrycks, Gimpel, "Gaussian error linear units", 2016), and the product
 * of two tensors. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>

static const char *const no_attrs[] = {NULL}, *const gelu_attrs[] = {"tanh", NULL};
static const char *const gelu_bwd_attrs[] = {"tanh", "bias", NULL};

/* One or two float inputs of equal shape; the output has that shape. */
static kolo_status pointwise_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    for (int i = 1; i < q->n_in; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status gelu_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(pointwise_shape(q));
    if (!q->attr[KOLO_GELU_BWD_BIAS].i) return KOLO_OK;
    const kolo_shape *x = &q->in[0].shape;
    if (x->rank < 2)
        return KOLO_RULE_FAIL(q, "with bias x must have two or more dimensions: N,...,C");
    return kolo_rule_out(q, 1, kolo_dtype_wide(q->in[0].dtype), kolo_shape_1(x->dim[x->rank - 1]));
}

/* An exponential and a division, in units of vector operations of the same time. */
static kolo_cost activation_cost(const kolo_shape_query *q) {
    return (kolo_cost){20.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}
static kolo_cost mul_cost(const kolo_shape_query *q) {
    return (kolo_cost){(double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

static void gelu_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->in[0]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_gelu_bwd, in, 2, n->attr);
}
static void mul_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    for (int i = 0; i < 2; i++) {
        const kolo_value in[] = {d_out[0], n->in[!i]};
        if (wants[i]) d_in[i] = kolo_graph_add1(g, &kolo_op_mul, in, 2, NULL);
    }
}

const kolo_op kolo_op_gelu = {
    .name = "gelu",
    .index = "*->*",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = gelu_attrs,
    .shape = pointwise_shape,
    .grad = gelu_grad,
    .cost = activation_cost,
    .overwrite = 1u << 0,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_gelu_bwd = {
    .name = "gelu_bwd",
    .index = "*k,*k->*k,k|,->", /* a scalar has no bias */
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aa", .out = "ap"},
    .attrs = gelu_bwd_attrs,
    .shape = gelu_bwd_shape,
    .cost = activation_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x3u, .out = 0x1u, .sums = 0x2u},
};

const kolo_op kolo_op_mul = {
    .name = "mul",
    .index = "*,*->*",
    .linear = 0x3u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aa", .out = "a"},
    .attrs = no_attrs,
    .shape = pointwise_shape,
    .grad = mul_grad,
    .cost = mul_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .bf16_joins = true,
    .samples = {.in = 0x3u, .out = 0x1u},
};

kolo_value kolo_gelu(kolo_graph *g, kolo_value x, bool tanh) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_GELU_TANH].i = tanh};
    return kolo_graph_add1(g, &kolo_op_gelu, &x, 1, attr);
}

/* ---- reference ---- */

static const double root_2_pi = 0.7978845608028654; /* sqrt(2 / pi) */

/* At infinities GELU and its slope are their limits, where the formulas give 0 times infinity. */
double kolo_ref_gelu_at(double x, bool by_tanh) {
    if (isinf(x)) return x > 0 ? x : 0;
    if (by_tanh) return 0.5 * x * (1 + tanh(root_2_pi * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * sqrt(0.5)));
}

static double gelu_slope(double x, bool by_tanh) {
    if (isinf(x)) return x > 0;
    if (by_tanh) {
        double t = tanh(root_2_pi * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_pi * (1 + 3 * 0.044715 * x * x);
    }
    return 0.5 * (1 + erf(x * sqrt(0.5))) + x * 0.5 * root_2_pi * exp(-0.5 * x * x);
}

/* y = f(a, b) element-wise; b is NULL for ops of one input. `tanh` selects GELU's tanh
 * approximation. */
#define BODY(name, expression)                                       \
    static void name##_body(const kolo_call *call) {                 \
        const double *a = call->in[0], *b = call->in[1];             \
        double *y = call->out[0];                                    \
        int64_t count = kolo_shape_count(&call->spec->out[0].shape); \
        for (int64_t i = 0; i < count; i++) y[i] = (expression);     \
        (void)b;                                                     \
    }                                                                \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name##_body); }

BODY(gelu, kolo_ref_gelu_at(a[i], call->spec->attr[KOLO_GELU_TANH].i))
BODY(mul, a[i] * b[i])

static void gelu_bwd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *dy = call->in[0], *x = call->in[1];
    double *dx = call->out[0], *db = attr[KOLO_GELU_BWD_BIAS].i ? call->out[1] : NULL;
    const kolo_shape *shape = &call->spec->out[0].shape;
    int64_t count = kolo_shape_count(shape), channels = db ? shape->dim[shape->rank - 1] : 0;
    for (int64_t c = 0; c < channels; c++) db[c] = 0;
    for (int64_t i = 0; i < count; i++) {
        dx[i] = dy[i] * gelu_slope(x[i], attr[KOLO_GELU_TANH].i);
        if (db) db[i % channels] += dx[i];
    }
}

static void run_gelu_bwd(const kolo_call *call) { kolo_ref_run(call, gelu_bwd); }

const kolo_kernel kolo_ops_activation[] = {
    KOLO_REF_KERNEL("ref_gelu", &kolo_op_gelu, run_gelu),
    KOLO_REF_KERNEL("ref_mul", &kolo_op_mul, run_mul),
    KOLO_REF_KERNEL("ref_gelu_bwd", &kolo_op_gelu_bwd, run_gelu_bwd),
    {0},
};
