/* Long short-term memory. Hochreiter, Schmidhuber, 1997; the forget gate of Gers et al., 2000.
 *
 *     i, f, g, o = gx[t] + w h[t-1] + b        sigmoid of i, f, o; tanh of g
 *     c[t] = f c[t-1] + i g,  h[t] = o tanh(c[t])
 *
 * The contribution of the input to the gates, gx, is one linear layer over all steps; only the
 * product with h[t-1] is sequential. Likewise in the backward pass: lstm_bwd computes dgx step by
 * step, and the gradients of w and b are those of a linear layer over h delayed by one step
 * (shift). */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

static const char *const no_attrs[] = {NULL}, *const shift_attrs[] = {"back", NULL};

/* w, input `i`, is [4H,H] for this H. */
static kolo_status check_weights(const kolo_shape_query *q, int i, int64_t hidden) {
    kolo_shape want = kolo_shape_2(4 * hidden, hidden);
    if (kolo_shape_equal(&q->in[i].shape, &want)) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "w must be [%" PRId64 ",%" PRId64 "]", 4 * hidden, hidden);
}

static kolo_status lstm_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,4H"));
    kolo_shape gates = q->in[0].shape, h = gates;
    if (gates.dim[2] % 4 != 0) return KOLO_RULE_FAIL(q, "the gates must be four times H");
    h.dim[2] = gates.dim[2] / 4;
    KOLO_TRY(check_weights(q, 1, h.dim[2]));
    kolo_shape bias = kolo_shape_1(gates.dim[2]);
    if (!kolo_shape_equal(&q->in[2].shape, &bias)) {
        return KOLO_RULE_FAIL(q, "the bias must have %" PRId64 " elements", gates.dim[2]);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, h));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[0].dtype, gates));
    return kolo_rule_out(q, 2, q->in[0].dtype, h);
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,H"));
    KOLO_TRY(kolo_rule_same(q, 0, 2));
    kolo_shape gates = q->in[0].shape;
    gates.dim[2] *= 4;
    if (!kolo_shape_equal(&q->in[1].shape, &gates)) {
        return KOLO_RULE_FAIL(q, "the gates must have four times the channels of dh");
    }
    KOLO_TRY(check_weights(q, 3, q->in[0].shape.dim[2]));
    return kolo_rule_out(q, 0, q->in[0].dtype, gates);
}

static kolo_status shift_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_value shift(kolo_graph *g, kolo_value x, bool back) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SHIFT_BACK].i = back};
    return kolo_graph_add1(g, &kolo_op_shift, &x, 1, attr);
}

static void lstm_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (kolo_value_ok(d_out[1]) || kolo_value_ok(d_out[2])) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "lstm: only output h is differentiable"));
        return;
    }
    const kolo_value in[] = {d_out[0], n->out[1], n->out[2], n->in[1]};
    kolo_value dgx = kolo_graph_add1(g, &kolo_op_lstm_bwd, in, 4, NULL);
    if (wants[0]) d_in[0] = dgx;
    if (!wants[1] && !wants[2]) return;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LINEAR_BWD_BIAS].i = 1};
    const kolo_value of_weights[] = {dgx, shift(g, n->out[0], false)};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_linear_bwd_weights, of_weights, 2, attr, out);
    if (wants[1]) d_in[1] = out[0];
    if (wants[2]) d_in[2] = out[1];
}

static void shift_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                       const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = shift(g, d_out[0], !n->attr[KOLO_SHIFT_BACK].i);
}

/* The product with w for each token, and about 40 operations for the gates of each channel. */
static kolo_cost lstm_cost(const kolo_shape_query *q) {
    bool backwards = q->n_in == 4;
    const kolo_shape *h = backwards ? &q->in[0].shape : &q->out[0].shape;
    double elements = (double)kolo_shape_count(h);
    return (kolo_cost){elements * (8.0 * (double)h->dim[2] + 40), kolo_query_bytes(q)};
}

const kolo_op kolo_op_lstm = {
    .name = "lstm",
    .index = "nTG,GH,G->nTH,nTG,nTH",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "app", .out = "aaa"},
    .attrs = no_attrs,
    .shape = lstm_shape,
    .grad = lstm_grad,
    .cost = lstm_cost,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_lstm_bwd = {
    .name = "lstm_bwd",
    .index = "nTH,nTG,nTH,GH->nTG",
    .linear = 0x1u,
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "aaap", .out = "a"},
    .attrs = no_attrs,
    .shape = bwd_shape,
    .cost = lstm_cost,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2,
};
const kolo_op kolo_op_shift = {
    .name = "shift",
    .index = "nTc->nTc",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = shift_attrs,
    .shape = shift_shape,
    .grad = shift_grad,
    .bf16 = 1u << 0,
};

/* ---- builder ---- */

static kolo_value param(kolo_graph *g, const char *name, const char *what, int layer,
                        kolo_shape shape, kolo_init init) {
    char *full = name ? kolo_format("%s.%s_l%d", name, what, layer) : kolo_strdup("");
    if (!full) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_param(g, full, shape, init);
    kolo_free(full);
    return v;
}

kolo_value kolo_lstm(kolo_graph *g, kolo_value x, const char *name, int layer, int64_t hidden) {
    bool known = kolo_value_is_of(g, x) && kolo_info(g, x)->tensor.shape.rank == 3;
    int64_t inputs = known ? kolo_info(g, x)->tensor.shape.dim[2] : 1; /* the rule refuses x */
    kolo_init init = kolo_init_fan_in(hidden);
    kolo_value w_ih = param(g, name, "weight_ih", layer, kolo_shape_2(4 * hidden, inputs), init);
    kolo_value w_hh = param(g, name, "weight_hh", layer, kolo_shape_2(4 * hidden, hidden), init);
    kolo_value b_ih = param(g, name, "bias_ih", layer, kolo_shape_1(4 * hidden), init);
    kolo_value b_hh = param(g, name, "bias_hh", layer, kolo_shape_1(4 * hidden), init);
    kolo_value gx = kolo_linear_bias(g, x, w_ih, b_ih);
    return kolo_graph_add1(g, &kolo_op_lstm, (kolo_value[]){gx, w_hh, b_hh}, 3, NULL);
}
