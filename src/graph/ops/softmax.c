/* Softmax and its logarithm over dimension 1, with their gradients, which read the output. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

static const char *const attrs[] = {"log", NULL};

static kolo_status softmax_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    if (q->n_in == 2) KOLO_TRY(kolo_rule_same(q, 0, 1));
    if (q->in[0].shape.rank < 2) {
        return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void softmax_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->out[0]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_softmax_bwd, in, 2, n->attr);
}

static kolo_cost softmax_cost(const kolo_shape_query *q) {
    return (kolo_cost){20.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

const kolo_op kolo_op_softmax = {
    .name = "softmax",
    .index = "nC*->nC*",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = attrs,
    .shape = softmax_shape,
    .grad = softmax_grad,
    .cost = softmax_cost,
    .overwrite = 1u << 0,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_softmax_bwd = {
    .name = "softmax_bwd",
    .index = "nC*,nC*->nC*",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = attrs,
    .shape = softmax_shape,
    .cost = softmax_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x3u, .out = 0x1u},
};
