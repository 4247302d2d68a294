/* Multi-head scaled dot-product attention. Vaswani et al., "Attention is all you need", 2017.
 *
 * Queries, keys and values are concatenated in one tensor, the output of one linear layer, and
 * heads within each: no transposition. The backward pass reads the output and the log-sum-exp of
 * each row, and recomputes the probabilities (Dao et al., "FlashAttention", NeurIPS 2022) and the
 * dropout of weights, from the same random numbers. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

static const char *const attrs[] = {"heads",      "causal",    "%p",     "layer",
                                    "first_head", "all_heads", "sample", "ring",
                                    "position",   "length",    NULL};
static const char *const block_attrs[] = {"heads",     "seen",   "%p",   "layer",    "first_head",
                                          "all_heads", "sample", "ring", "position", "length",
                                          "key",       "turn",   NULL};

/* Input `qkv` is [N,T,3C] with heads that divide C. From input `more` on: rng_key and first_sample
 * with dropout, then the optional mask [N,T], of the positions of input `keys`; on a ring of all
 * positions. */
static kolo_status check_qkv(const kolo_shape_query *q, int qkv, int keys, int more) {
    int mask = more + kolo_attention_draws(q->attr);
    double p = q->attr[KOLO_ATTENTION_P].f;
    if (!(p >= 0 && p < 1)) return KOLO_RULE_FAIL(q, "p is %g; it must be in [0, 1)", p);
    if (q->n_in < mask || q->n_in > mask + 1) {
        return KOLO_RULE_FAIL(q, "%d inputs; with p of %g there are %d, and a mask", q->n_in, p,
                              mask);
    }
    for (int i = more; i < mask; i++) KOLO_TRY(kolo_rule_rank(q, i, 0, "a scalar"));
    KOLO_TRY(kolo_rule_rank(q, qkv, 3, "N,T,3C"));
    const int64_t *dim = q->in[qkv].shape.dim, heads = q->attr[KOLO_ATTENTION_HEADS].i;
    if (heads < 1 || dim[2] % (3 * heads) != 0) {
        return KOLO_RULE_FAIL(q,
                              "%" PRId64 " channels do not divide into queries, keys and values of "
                              "%" PRId64 " heads",
                              dim[2], heads);
    }
    kolo_shape want = kolo_shape_2(dim[0], q->in[keys].shape.dim[1]);
    if (q->attr[KOLO_ATTENTION_RING].i & KOLO_RING_KEYS) {
        want.dim[1] = kolo_attention_length(q->attr, dim[1]);
    }
    if (q->n_in > mask && !kolo_shape_equal(&q->in[mask].shape, &want)) {
        return KOLO_RULE_FAIL(q, "the mask must be [%" PRId64 ",%" PRId64 "]", want.dim[0],
                              want.dim[1]);
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
    KOLO_TRY(kolo_rule_types(q, kolo_attention_draws(q->attr) ? "flli" : "fi"));
    KOLO_TRY(check_qkv(q, 0, 0, KOLO_ATTENTION_INPUTS));
    const kolo_shape *qkv = &q->in[0].shape;
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, output_of(qkv)));
    return kolo_rule_out(q, 1, kolo_dtype_wide(q->in[0].dtype), lse_of(q, qkv));
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, kolo_attention_draws(q->attr) ? "fffflli" : "ffffi"));
    KOLO_TRY(check_qkv(q, 1, 1, KOLO_ATTENTION_BWD_INPUTS));
    const kolo_shape *qkv = &q->in[1].shape;
    kolo_shape o = output_of(qkv), lse = lse_of(q, qkv);
    if (!kolo_shape_equal(&q->in[0].shape, &o) || !kolo_shape_equal(&q->in[2].shape, &o) ||
        !kolo_shape_equal(&q->in[3].shape, &lse)) {
        return KOLO_RULE_FAIL(q, "do and o must be N,T,C and lse N,heads,T");
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, *qkv);
}

/* Input `kv` is [N,S,2C] for those queries. */
static kolo_status check_block(const kolo_shape_query *q, int qkv, int kv, int more) {
    KOLO_TRY(kolo_rule_rank(q, kv, 3, "N,S,2C"));
    KOLO_TRY(check_qkv(q, qkv, kv, more));
    const int64_t *of_q = q->in[qkv].shape.dim, *of_kv = q->in[kv].shape.dim;
    if (of_kv[0] != of_q[0] || 3 * of_kv[2] != 2 * of_q[2]) {
        return KOLO_RULE_FAIL(q, "keys and values must be N,S,2C beside queries N,T,3C");
    }
    kolo_shape o = output_of(&q->in[qkv].shape), lse = lse_of(q, &q->in[qkv].shape);
    if (!kolo_shape_equal(&q->in[kv + 1].shape, &o) ||
        !kolo_shape_equal(&q->in[kv + 2].shape, &lse)) {
        return KOLO_RULE_FAIL(q, "o must be N,T,C and lse N,heads,T");
    }
    return KOLO_OK;
}

static kolo_status block_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, kolo_attention_draws(q->attr) ? "fffflli" : "ffffi"));
    KOLO_TRY(check_block(q, 0, 1, KOLO_ATTENTION_BLOCK_INPUTS));
    const kolo_shape *qkv = &q->in[0].shape;
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, output_of(qkv)));
    return kolo_rule_out(q, 1, kolo_dtype_wide(q->in[0].dtype), lse_of(q, qkv));
}

static kolo_status block_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, kolo_attention_draws(q->attr) ? "ffffflli" : "fffffi"));
    KOLO_TRY(check_block(q, 1, 2, KOLO_ATTENTION_BLOCK_BWD_INPUTS));
    kolo_shape o = output_of(&q->in[1].shape);
    if (!kolo_shape_equal(&q->in[0].shape, &o)) return KOLO_RULE_FAIL(q, "do must be N,T,C");
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, o));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[2].shape);
}

static void attention_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                           const bool *wants, kolo_value *d_in) {
    if (kolo_value_ok(d_out[1])) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "attention: no gradient flows through its lse"));
        return;
    }
    if (!wants[0]) return;
    kolo_value in[KOLO_MAX_IO] = {d_out[0], n->in[0], n->out[0], n->out[1]};
    for (int i = 1; i < n->n_in; i++) in[3 + i] = n->in[i];
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

static kolo_cost block_cost_of(const kolo_shape_query *q, int kv, double products) {
    const int64_t *of_q = q->in[kv - 1].shape.dim, keys = q->in[kv].shape.dim[1];
    double pairs = (double)of_q[0] * (double)of_q[1] * (double)keys;
    if (q->attr[KOLO_ATTENTION_SEEN].i == KOLO_SEEN_BY_NONE) pairs = 0;
    if (q->attr[KOLO_ATTENTION_SEEN].i > KOLO_SEEN_BY_NONE) pairs /= 2; /* a range of two */
    return (kolo_cost){products * 2 * pairs * (double)of_q[2] / 3, kolo_query_bytes(q)};
}
static kolo_cost block_cost(const kolo_shape_query *q) { return block_cost_of(q, 1, 2); }
static kolo_cost block_bwd_cost(const kolo_shape_query *q) { return block_cost_of(q, 2, 5); }

/* Indices by kolo_ring: on a ring each rank has some of the queries. */
static const char *attention_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                   char *text) {
    static const char *const by_ring[] = {
        "nT3h,,s,nT->nTh,nhT|nT3h,nT->nTh,nhT",
        [KOLO_RING_KEYS] = "nt3h,,s,nT->nth,nht|nt3h,nT->nth,nht",
        [KOLO_RING_OWN] = "nt3h,,s,nt->nth,nht|nt3h,nt->nth,nht",
    };
    (void)n_in, (void)in, (void)text;
    return by_ring[attr[KOLO_ATTENTION_RING].i & (KOLO_RING_KEYS | KOLO_RING_OWN)];
}
static const char *bwd_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    static const char *const by_ring[] = {
        "nTh,nT3h,nTh,nhT,,s,nT->nT3h|nTh,nT3h,nTh,nhT,nT->nT3h",
        [KOLO_RING_KEYS] = "nth,nt3h,nth,nht,,s,nT->nt3h|nth,nt3h,nth,nht,nT->nt3h",
        [KOLO_RING_OWN] = "nth,nt3h,nth,nht,,s,nt->nt3h|nth,nt3h,nth,nht,nt->nt3h",
    };
    (void)n_in, (void)in, (void)text;
    return by_ring[attr[KOLO_ATTENTION_RING].i & (KOLO_RING_KEYS | KOLO_RING_OWN)];
}

bool kolo_attention_rings(const kolo_node *n) {
    const bool is = n->op == &kolo_op_attention || n->op == &kolo_op_attention_bwd;
    return is && n->attr[KOLO_ATTENTION_RING].i & KOLO_RING_KEYS;
}

/* Evaluation drops no weights. */
static kolo_status attention_evaluate(const kolo_graph *g, kolo_node *n, kolo_value *by) {
    (void)g;
    (void)by;
    int draws = kolo_attention_draws(n->attr);
    if (draws == 0) return KOLO_OK;
    for (int i = KOLO_ATTENTION_INPUTS; i + draws < n->n_in; i++) n->in[i] = n->in[i + draws];
    n->n_in -= draws;
    n->attr[KOLO_ATTENTION_P].f = 0;
    n->attr[KOLO_ATTENTION_LAYER].i = 0;
    return KOLO_OK;
}

#define ATTENTION_PART                                                                             \
    {                                                                                              \
        .index = 'h', .size = KOLO_ATTR(KOLO_ATTENTION_HEADS),                                     \
        .first = KOLO_ATTR(KOLO_ATTENTION_FIRST_HEAD), .all = KOLO_ATTR(KOLO_ATTENTION_ALL_HEADS), \
        .sample = KOLO_ATTR(KOLO_ATTENTION_SAMPLE), .position = KOLO_ATTR(KOLO_ATTENTION_POSITION) \
    }

const kolo_op kolo_op_attention = {
    .name = "attention",
    .index_of = attention_index,
    .min_in = 1,
    .max_in = 4,
    .layout = {.in = "appp", .out = "aa"},
    .attrs = attrs,
    .shape = attention_shape,
    .grad = attention_grad,
    .cost = attention_cost,
    .part = ATTENTION_PART,
    .bf16 = 1u << 0,
    .evaluate = attention_evaluate,
};
const kolo_op kolo_op_attention_bwd = {
    .name = "attention_bwd",
    .index_of = bwd_index,
    .min_in = 4,
    .max_in = 7,
    .layout = {.in = "aaaappp", .out = "a"},
    .attrs = attrs,
    .shape = bwd_shape,
    .cost = bwd_cost,
    .part = ATTENTION_PART,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2,
};

const kolo_op kolo_op_attention_block = {
    .name = "attention_block",
    .index = "nt3h,nU2h,nth,nht,,s,nU->nth,nht|nt3h,nU2h,nth,nht,nU->nth,nht",
    .min_in = 4,
    .max_in = 7,
    .layout = {.in = "aaaappp", .out = "aa"},
    .attrs = block_attrs,
    .shape = block_shape,
    .cost = block_cost,
    .part = ATTENTION_PART,
    .overwrite = 1u << 2,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2,
    .ring = {.in = 1u << 1 | 1u << 4 | 1u << 6, .turn = KOLO_ATTR(KOLO_ATTENTION_TURN)},
};
const kolo_op kolo_op_attention_block_bwd = {
    .name = "attention_block_bwd",
    .index = "nth,nt3h,nU2h,nth,nht,,s,nU->nth,nU2h|nth,nt3h,nU2h,nth,nht,nU->nth,nU2h",
    .min_in = 5,
    .max_in = 8,
    .layout = {.in = "aaaaappp", .out = "aa"},
    .attrs = block_attrs,
    .shape = block_bwd_shape,
    .cost = block_bwd_cost,
    .part = ATTENTION_PART,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .ring = {.in = 1u << 2 | 1u << 5 | 1u << 7,
             .out = 1u << 1,
             .turn = KOLO_ATTR(KOLO_ATTENTION_TURN)},
};

kolo_value kolo_attention(kolo_graph *g, kolo_value qkv, const kolo_attention_opts *opts) {
    const kolo_attention_opts none = {0};
    if (!opts) opts = &none;
    int64_t layer = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) layer += g->nodes[i]->op == &kolo_op_attention;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_ATTENTION_HEADS].i = opts->heads,
        [KOLO_ATTENTION_CAUSAL].i = opts->causal,
        [KOLO_ATTENTION_P].f = opts->dropout,
        [KOLO_ATTENTION_LAYER].i = opts->dropout > 0 ? layer : 0,
    };
    kolo_value in[4] = {qkv};
    int n = 1;
    if (opts->dropout > 0) {
        in[n++] = kolo_graph_scalar(g, "rng_key", KOLO_DTYPE_I64);
        in[n++] = kolo_graph_scalar(g, "first_sample", KOLO_DTYPE_I64);
    }
    if (opts->use_mask) in[n++] = opts->mask;
    return kolo_graph_add1(g, &kolo_op_attention, in, n, attr);
}
