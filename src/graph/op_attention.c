/* Scaled dot-product attention of several heads. Vaswani et al., "Attention is all you need", 2017.
 *
 * Queries, keys and values stand side by side in one tensor, as one linear layer makes them, and
 * heads side by side in each: nothing is transposed. What the gradient needs besides are the rows'
 * log-sum-exp and the output; the probabilities are computed again. Dao et al., "FlashAttention",
 * NeurIPS 2022. */
#include "graph/op.h"
#include "graph/op_rules.h"

#include <inttypes.h>

static const char *const attrs[] = {"heads", "causal", NULL};

/* Input `qkv` is [N,T,3C] with heads that divide C; input `mask`, where there is one, [N,T]. */
static kolo_status check_qkv(const kolo_shape_query *q, int qkv, int mask) {
    KOLO_TRY(kolo_rule_rank(q, qkv, 3, "N,T,3C"));
    const int64_t *dim = q->in[qkv].shape.dim, heads = q->attr[KOLO_ATTENTION_HEADS].i;
    if (heads < 1 || dim[2] % (3 * heads) != 0) {
        return KOLO_RULE_FAIL(q,
                              "%" PRId64 " channels do not divide into queries, keys and values of "
                              "%" PRId64 " heads",
                              dim[2], heads);
    }
    kolo_shape want = kolo_shape_2(dim[0], dim[1]);
    if (q->n_in > mask && !kolo_shape_equal(&q->in[mask].shape, &want)) {
        return KOLO_RULE_FAIL(q, "the mask must be [%" PRId64 ",%" PRId64 "]", dim[0], dim[1]);
    }
    return KOLO_OK;
}

static kolo_shape output_of(const kolo_shape *qkv) {
    return (kolo_shape){3, {qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3}};
}
static kolo_shape lse_of(const kolo_shape_query *q, const kolo_shape *qkv) {
    return (kolo_shape){3, {qkv->dim[0], q->attr[KOLO_ATTENTION_HEADS].i, qkv->dim[1]}};
}

static kolo_status attention_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fi"));
    KOLO_TRY(check_qkv(q, 0, 1));
    const kolo_shape *qkv = &q->in[0].shape;
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, output_of(qkv)));
    return kolo_rule_out(q, 1, q->in[0].dtype, lse_of(q, qkv));
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffi"));
    KOLO_TRY(check_qkv(q, 1, 4));
    const kolo_shape *qkv = &q->in[1].shape;
    kolo_shape o = output_of(qkv), lse = lse_of(q, qkv);
    if (!kolo_shape_equal(&q->in[0].shape, &o) || !kolo_shape_equal(&q->in[2].shape, &o) ||
        !kolo_shape_equal(&q->in[3].shape, &lse)) {
        return KOLO_RULE_FAIL(q, "do and o must be N,T,C and lse N,heads,T");
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, *qkv);
}

static void attention_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                           const bool *wants, kolo_value *d_in) {
    if (kolo_value_ok(d_out[1])) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "attention: no gradient flows through its lse"));
        return;
    }
    if (!wants[0]) return;
    kolo_value in[5] = {d_out[0], n->in[0], n->out[0], n->out[1]};
    if (n->n_in == 2) in[4] = n->in[1];
    d_in[0] = kolo_graph_add1(g, &kolo_op_attention_bwd, in, 3 + n->n_in, n->attr);
}

/* Multiply-adds of `products` products of T x T x C, half of them when causal. */
static kolo_cost cost_of(const kolo_shape_query *q, const kolo_shape *qkv, double products) {
    double pairs = (double)qkv->dim[0] * (double)qkv->dim[1] * (double)qkv->dim[1];
    double half = q->attr[KOLO_ATTENTION_CAUSAL].i ? 0.5 : 1;
    return (kolo_cost){half * products * 2 * pairs * (double)qkv->dim[2] / 3, kolo_query_bytes(q)};
}
static kolo_cost attention_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->in[0].shape, 2);
}
static kolo_cost bwd_cost(const kolo_shape_query *q) { return cost_of(q, &q->in[1].shape, 5); }

const kolo_op kolo_op_attention = {
    .name = "attention",
    .min_in = 1,
    .max_in = 2,
    .attrs = attrs,
    .shape = attention_shape,
    .grad = attention_grad,
    .cost = attention_cost,
};
const kolo_op kolo_op_attention_bwd = {
    .name = "attention_bwd",
    .min_in = 4,
    .max_in = 5,
    .attrs = attrs,
    .shape = bwd_shape,
    .cost = bwd_cost,
};

kolo_value kolo_attention(kolo_graph *g, kolo_value qkv, const kolo_attention_opts *opts) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ATTENTION_HEADS].i = opts->heads,
        [KOLO_ATTENTION_CAUSAL].i = opts->causal,
    };
    return kolo_graph_add1(g, &kolo_op_attention, (kolo_value[]){qkv, opts->mask},
                           opts->use_mask ? 2 : 1, attr);
}
