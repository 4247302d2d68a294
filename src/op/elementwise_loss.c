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
#include "kernel/ref/ref.h"

#include <math.h>

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

/* ---- reference ---- */

static double loss_of(int64_t kind, double delta, double x, double t) {
    double d = x - t;
    switch (kind) {
    case KOLO_LOSS_MSE:
        return d * d;
    case KOLO_LOSS_L1:
        return fabs(d);
    case KOLO_LOSS_HUBER:
        return fabs(d) <= delta ? d * d / 2 : delta * (fabs(d) - delta / 2);
    default: /* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
        return (x < 0 ? 0 : x) - x * t + log1p(exp(-fabs(x)));
    }
}

static double slope_of(int64_t kind, double delta, double x, double t) {
    double d = x - t;
    switch (kind) {
    case KOLO_LOSS_MSE:
        return 2 * d;
    case KOLO_LOSS_L1:
        return d > 0 ? 1 : d < 0 ? -1 : d; /* 0 and NaN stay */
    case KOLO_LOSS_HUBER:
        return d > delta ? delta : d < -delta ? -delta : d;
    default:
        return 1 / (1 + exp(-x)) - t;
    }
}

static void ref_loss(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *x = call->in[0], *t = call->in[1];
    double sum = 0;
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        sum += loss_of(attr[KOLO_ELEMENTWISE_LOSS_KIND].i, attr[KOLO_ELEMENTWISE_LOSS_DELTA].f,
                       x[i], t[i]);
    }
    *(double *)call->out[0] = sum;
}

static void loss_bwd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *x = call->in[0], *t = call->in[1], dloss = *(const double *)call->in[2];
    double *dx = call->out[0];
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        dx[i] = dloss * slope_of(attr[KOLO_ELEMENTWISE_LOSS_KIND].i,
                                 attr[KOLO_ELEMENTWISE_LOSS_DELTA].f, x[i], t[i]);
    }
}

static void run_loss(const kolo_call *call) { kolo_ref_run(call, ref_loss); }
static void run_loss_bwd(const kolo_call *call) { kolo_ref_run(call, loss_bwd); }

const kolo_kernel kolo_ops_elementwise_loss[] = {
    KOLO_REF_KERNEL("ref_elementwise_loss", &kolo_op_elementwise_loss, run_loss),
    KOLO_REF_KERNEL("ref_elementwise_loss_bwd", &kolo_op_elementwise_loss_bwd, run_loss_bwd),
    {0},
};
