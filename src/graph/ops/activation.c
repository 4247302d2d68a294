/* Smooth activations with their gradients (Hendrycks, Gimpel, "Gaussian error linear units", 2016;
 * Elfwing et al., "Sigmoid-weighted linear units", 2018), and the product of two tensors. The
 * gradients of gelu and silu read their input, those of sigmoid and tanh their output. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

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

static void derive(kolo_graph *g, const kolo_op *bwd, const kolo_node *n, kolo_value dy,
                   kolo_value from, const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = kolo_graph_add1(g, bwd, (kolo_value[]){dy, from}, 2, n->attr);
}
static void gelu_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    derive(g, &kolo_op_gelu_bwd, n, d_out[0], n->in[0], wants, d_in);
}
static void silu_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    derive(g, &kolo_op_silu_bwd, n, d_out[0], n->in[0], wants, d_in);
}
static void sigmoid_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    derive(g, &kolo_op_sigmoid_bwd, n, d_out[0], n->out[0], wants, d_in);
}
static void tanh_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    derive(g, &kolo_op_tanh_bwd, n, d_out[0], n->out[0], wants, d_in);
}
static void mul_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    for (int i = 0; i < 2; i++) {
        if (wants[i]) d_in[i] = kolo_mul(g, d_out[0], n->in[!i]);
    }
}

#define ACTIVATION_BWD(op_name, op_attrs, shape_rule)       \
    const kolo_op kolo_op_##op_name##_bwd = {               \
        .name = #op_name "_bwd",                            \
        .index = "*k,*k->*k,k",                             \
        .linear = 0x1u,                                     \
        .min_in = 2,                                        \
        .max_in = 2,                                        \
        .layout = {.in = "aa", .out = "ap"},                \
        .attrs = op_attrs,                                  \
        .shape = shape_rule,                                \
        .cost = activation_cost,                            \
        .overwrite = 1u << 0 | 1u << 1,                     \
        .bf16 = 1u << 0 | 1u << 1,                          \
        .samples = {.in = 0x3u, .out = 0x1u, .sums = 0x2u}, \
    }
#define ACTIVATION(op_name, op_attrs)         \
    const kolo_op kolo_op_##op_name = {       \
        .name = #op_name,                     \
        .index = "*->*",                      \
        .min_in = 1,                          \
        .max_in = 1,                          \
        .layout = {.in = "a", .out = "a"},    \
        .attrs = op_attrs,                    \
        .shape = pointwise_shape,             \
        .grad = op_name##_grad,               \
        .cost = activation_cost,              \
        .overwrite = 1u << 0,                 \
        .bf16 = 1u << 0,                      \
        .samples = {.in = 0x1u, .out = 0x1u}, \
    }
ACTIVATION(gelu, gelu_attrs);
ACTIVATION(silu, no_attrs);
ACTIVATION(sigmoid, no_attrs);
ACTIVATION(tanh, no_attrs);
ACTIVATION_BWD(gelu, gelu_bwd_attrs, gelu_bwd_shape);
ACTIVATION_BWD(silu, no_attrs, pointwise_shape);
ACTIVATION_BWD(sigmoid, no_attrs, pointwise_shape);
ACTIVATION_BWD(tanh, no_attrs, pointwise_shape);

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
kolo_value kolo_silu(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_silu, &x, 1, NULL);
}
kolo_value kolo_sigmoid(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_sigmoid, &x, 1, NULL);
}
kolo_value kolo_tanh(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_tanh, &x, 1, NULL);
}
kolo_value kolo_mul(kolo_graph *g, kolo_value a, kolo_value b) {
    return kolo_graph_add1(g, &kolo_op_mul, (kolo_value[]){a, b}, 2, NULL);
}
