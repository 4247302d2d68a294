/* Losses of a prediction and a target of equal shape, summed over all elements, and their gradient:
 * with d = x - t
 *
 *     mse    d^2
 *     l1     |d|
 *     huber  d^2 / 2 if |d| <= delta, else delta (|d| - delta / 2)    (Huber, 1964)
 *     bce    log(1 + e^x) - x t: binary cross-entropy of the logit x
 *
 * They are PyTorch's mse_loss, l1_loss, huber_loss and binary_cross_entropy_with_logits with
 * reduction="sum". */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

static const char *const attrs[] = {"kind", "%delta", NULL};

static kolo_status check(const kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    double delta = q->attr[KOLO_ELEMENTWISE_LOSS_DELTA].f;
    bool huber = q->attr[KOLO_ELEMENTWISE_LOSS_KIND].i == KOLO_LOSS_HUBER;
    if (!huber || delta > 0) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "delta is %g; it must be above 0", delta);
}

static kolo_status loss_shape(kolo_shape_query *q) {
    KOLO_TRY(check(q));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), kolo_shape_0());
}

static kolo_status loss_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(check(q));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void loss_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    const kolo_value in[] = {n->in[0], n->in[1], d_out[0]};
    if (wants[1]) {
        kolo_graph_set_failed(
            g,
            KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                      "elementwise_loss: the target depends on a parameter, and has no gradient; "
                      "make it an input"));
        return;
    }
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_elementwise_loss_bwd, in, 3, n->attr);
}

static kolo_cost loss_cost(const kolo_shape_query *q) {
    double elements = (double)kolo_shape_count(&q->in[0].shape);
    bool bce = q->attr[KOLO_ELEMENTWISE_LOSS_KIND].i == KOLO_LOSS_BCE;
    return (kolo_cost){(bce ? 20 : 3) * elements, kolo_query_bytes(q)};
}

const kolo_op kolo_op_elementwise_loss = {
    .name = "elementwise_loss",
    .index = "*,*->",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ee", .out = "p"},
    .attrs = attrs,
    .shape = loss_shape,
    .grad = loss_grad,
    .cost = loss_cost,
};
const kolo_op kolo_op_elementwise_loss_bwd = {
    .name = "elementwise_loss_bwd",
    .index = "*,*,->*",
    .linear = 0x4u,
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "eep", .out = "e"},
    .attrs = attrs,
    .shape = loss_bwd_shape,
    .cost = loss_cost,
    .overwrite = 1u << 0 | 1u << 1,
};

static kolo_value loss(kolo_graph *g, kolo_value x, kolo_value target, int64_t kind, double delta) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ELEMENTWISE_LOSS_KIND].i = kind,
        [KOLO_ELEMENTWISE_LOSS_DELTA].f = delta,
    };
    return kolo_graph_add1(g, &kolo_op_elementwise_loss, (kolo_value[]){x, target}, 2, attr);
}

kolo_value kolo_mse_loss(kolo_graph *g, kolo_value x, kolo_value target) {
    return loss(g, x, target, KOLO_LOSS_MSE, 0);
}
kolo_value kolo_l1_loss(kolo_graph *g, kolo_value x, kolo_value target) {
    return loss(g, x, target, KOLO_LOSS_L1, 0);
}
kolo_value kolo_huber_loss(kolo_graph *g, kolo_value x, kolo_value target, double delta) {
    return loss(g, x, target, KOLO_LOSS_HUBER, delta);
}
kolo_value kolo_bce_with_logits(kolo_graph *g, kolo_value x, kolo_value target) {
    return loss(g, x, target, KOLO_LOSS_BCE, 0);
}
