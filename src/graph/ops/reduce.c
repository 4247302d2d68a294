/* sum and its gradient. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

static const char *const no_attrs[] = {NULL};

static kolo_status sum_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), kolo_shape_0());
}

static kolo_status sum_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[1].dtype, q->in[1].shape);
}

static void sum_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->in[0]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_sum_bwd, in, 2, NULL);
}

const kolo_op kolo_op_sum = {
    .name = "sum",
    .index = "*->",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "e", .out = "p"},
    .attrs = no_attrs,
    .shape = sum_shape,
    .grad = sum_grad,
};
const kolo_op kolo_op_sum_bwd = {
    .name = "sum_bwd",
    .index = ",*->*",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pe", .out = "e"},
    .attrs = no_attrs,
    .shape = sum_bwd_shape,
    .overwrite = 1u << 1,
};

kolo_value kolo_sum(kolo_graph *g, kolo_value x) {
    return kolo_graph_add1(g, &kolo_op_sum, &x, 1, NULL);
}
