/* Multi-head scaled dot-product attention. Vaswani et al., "Attention is all you need", 2017.
 *
 * Queries, keys and values are concatenated in one tensor, the output of one linear layer, and
 * heads within each: no transposition. The backward pass reads the output and the log-sum-exp of
 * each row, and recomputes the probabilities (Dao et al., "FlashAttention", NeurIPS 2022) and the
 * dropout of weights, from the same random numbers. */
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

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

/* ---- reference ---- */

/* Attention and its gradient, one query at a time. Only the query's probabilities over the keys
 * are stored: computed from the scores in the forward pass, recomputed from the log-sum-exp in
 * the backward pass. */

/* Dropout of attention weights: the factor of row i of a head and key j. */
typedef struct draws {
    uint32_t limit; /* 16-bit threshold; 0: no dropout */
    kolo_rng rng;
    uint64_t first; /* index of the sequence's position 0 in the global batch */
} draws;

/* One head of one sample; rows of q, and of k and v, are `stride` and `kv_stride` apart. */
typedef struct head {
    draws dice;
    const double *q, *k, *v;
    const int32_t *mask; /* NULL: no mask */
    int64_t keys, width, stride, kv_stride;
    int64_t position, key_position, length; /* of query 0 and of key 0, in a sequence of `length` */
    int64_t queries;
    double scale;
    bool causal, zigzag;
    kolo_seen seen;
} head;

/* Where the inputs of a kernel are: `kv` is qkv itself, or keys and values alone; `more` is the
 * index of the first optional input (a random-number key or the mask). */
typedef struct places {
    int qkv, kv, more;
} places;

static const places whole = {0, 0, KOLO_ATTENTION_INPUTS};
static const places whole_bwd = {1, 1, KOLO_ATTENTION_BWD_INPUTS};
static const places block = {0, 1, KOLO_ATTENTION_BLOCK_INPUTS};
static const places block_bwd = {1, 2, KOLO_ATTENTION_BLOCK_BWD_INPUTS};

static head head_of(const kolo_call *call, const places *at, int64_t n, int64_t h) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_attr *attr = spec->attr;
    const int64_t *dim = spec->in[at->qkv].shape.dim, *of_kv = spec->in[at->kv].shape.dim;
    const int64_t length = kolo_attention_length(attr, dim[1]);
    const bool apart = at->kv != at->qkv;
    int mask = at->more + kolo_attention_draws(attr);
    draws dice = {0};
    if (mask > at->more) {
        const int64_t *key = call->in[at->more], *first = call->in[at->more + 1];
        int64_t window = *first + attr[KOLO_ATTENTION_SAMPLE].i + n,
                all = kolo_attention_all_heads(attr);
        int64_t number = attr[KOLO_ATTENTION_FIRST_HEAD].i + h;
        dice.limit = kolo_attention_limit(attr);
        dice.rng = kolo_rng_make((uint64_t)*key, KOLO_RNG_ATTENTION,
                                 (uint64_t)attr[KOLO_ATTENTION_LAYER].i);
        dice.first = (uint64_t)((window * all + number) * length);
    }
    int64_t channels = dim[2] / 3, width = channels / attr[KOLO_ATTENTION_HEADS].i;
    const double *q = (const double *)call->in[at->qkv] + n * dim[1] * dim[2] + h * width;
    const double *k = apart ? (const double *)call->in[at->kv] + n * of_kv[1] * of_kv[2] + h * width
                            : q + channels;
    const int32_t *keys = spec->n_in > mask ? call->in[mask] : NULL;
    return (head){
        .dice = dice,
        .q = q,
        .k = k,
        .v = k + channels,
        .mask = keys ? keys + n * of_kv[1] : NULL,
        .keys = of_kv[1],
        .width = width,
        .stride = dim[2],
        .kv_stride = of_kv[2],
        .position = attr[KOLO_ATTENTION_POSITION].i,
        .key_position = attr[apart ? KOLO_ATTENTION_KEY : KOLO_ATTENTION_POSITION].i,
        .length = length,
        .queries = dim[1],
        .scale = 1 / sqrt((double)width),
        .causal = !apart && attr[KOLO_ATTENTION_CAUSAL].i != 0,
        .zigzag = (attr[KOLO_ATTENTION_RING].i & KOLO_RING_ZIGZAG) != 0,
        .seen = apart ? (kolo_seen)attr[KOLO_ATTENTION_SEEN].i : KOLO_SEEN_BY_ALL,
    };
}

static double score(const head *a, int64_t i, int64_t j) {
    if ((a->causal && j > i) || (a->mask && a->mask[j] == 0)) return -INFINITY;
    if (a->seen == KOLO_SEEN_BY_SECOND && i < a->queries / 2) return -INFINITY;
    if (a->seen == KOLO_SEEN_FIRST_BY_ALL && j >= a->keys / 2) return -INFINITY;
    double sum = 0;
    for (int64_t c = 0; c < a->width; c++) {
        sum += a->q[i * a->stride + c] * a->k[j * a->kv_stride + c];
    }
    return sum * a->scale;
}

/* The dropout factor of query i and key j. */
static double kept(const head *a, int64_t i, int64_t j) {
    uint32_t four[4];
    if (a->dice.limit == 0) return 1;
    const int64_t of_ranges = a->zigzag ? a->length : 0;
    uint64_t row =
        a->dice.first + (uint64_t)kolo_position_of(a->position, of_ranges, a->queries, i);
    uint64_t groups = ((uint64_t)a->length + 7) / 8;
    uint64_t key = (uint64_t)kolo_position_of(a->key_position, of_ranges, a->keys, j);
    kolo_rng_draw(&a->dice.rng, row * groups + key / 8, four);
    uint32_t draw = key % 8 < 4 ? four[key % 4] & 0xffff : four[key % 4] >> 16;
    return draw < a->dice.limit ? 0 : 0x1p16 / (0x1p16 - a->dice.limit);
}

/* Row i of o in this head: that of the keys before, whose log-sum-exp is `before` (infinite: there
 * are none), and of these. Returns that of both. */
static double attend(const head *a, int64_t i, double before, double *o) {
    double max = before == INFINITY ? -INFINITY : before, sum = 0;
    for (int64_t j = 0; j < a->keys; j++) max = fmax(max, score(a, i, j));
    if (max == -INFINITY) return INFINITY;
    if (before != INFINITY) sum = exp(before - max);
    for (int64_t c = 0; c < a->width; c++) o[c] *= sum;
    for (int64_t j = 0; j < a->keys; j++) {
        double p = exp(score(a, i, j) - max);
        sum += p;
        p *= kept(a, i, j);
        for (int64_t c = 0; c < a->width; c++) o[c] += p * a->v[j * a->kv_stride + c];
    }
    for (int64_t c = 0; c < a->width; c++) o[c] /= sum;
    return max + log(sum);
}

/* `o` and `lse` are those of the keys before. */
static void attend_all(const kolo_call *call, const places *at, double *o, double *lse) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    int64_t heads = call->spec->attr[KOLO_ATTENTION_HEADS].i, length = dim[1], channels = dim[2];
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t h = 0; h < heads; h++) {
            head a = head_of(call, at, n, h);
            for (int64_t i = 0; i < length; i++, lse++) {
                *lse = attend(&a, i, *lse, o + (n * length + i) * channels + h * a.width);
            }
        }
    }
}

static size_t bytes_of(const kolo_tensor *t) {
    return sizeof(double) * (size_t)kolo_shape_count(&t->shape);
}

static void attention(const kolo_call *call) {
    double *lse = call->out[1];
    const int64_t rows = kolo_shape_count(&call->spec->out[1].shape);
    memset(call->out[0], 0, bytes_of(&call->spec->out[0]));
    for (int64_t i = 0; i < rows; i++) lse[i] = INFINITY;
    attend_all(call, &whole, call->out[0], lse);
}

static void attention_block(const kolo_call *call) {
    for (int k = 0; k < 2; k++) {
        if (call->out[k] == call->in[2 + k]) continue;
        memcpy(call->out[k], call->in[2 + k], bytes_of(&call->spec->out[k]));
    }
    if (call->spec->attr[KOLO_ATTENTION_SEEN].i == KOLO_SEEN_BY_NONE) return;
    attend_all(call, &block, call->out[0], call->out[1]);
}

/* Adds the contribution of query i to dq (row i of it), dk and dv (rows as those of k and v). With
 * p the probabilities and d = <do, o>: dv = p do, ds = p (<do, v> - d) scale, dq = ds k, dk = ds q.
 * With dropout factors r: dv = r p do, ds = p (r <do, v> - d) scale. */
static void attend_bwd(const head *a, int64_t i, const double *d_o, const double *o, double lse,
                       double *dq, double *dk, double *dv) {
    double d = 0;
    for (int64_t c = 0; c < a->width; c++) d += d_o[c] * o[c];
    for (int64_t j = 0; j < a->keys; j++) {
        double p = exp(score(a, i, j) - lse), dp = 0;
        int64_t row = j * a->kv_stride;
        if (!(p > 0)) continue;
        for (int64_t c = 0; c < a->width; c++) dp += d_o[c] * a->v[row + c];
        double r = kept(a, i, j), ds = p * (r * dp - d) * a->scale;
        for (int64_t c = 0; c < a->width; c++) {
            dv[row + c] += r * p * d_o[c];
            dq[c] += ds * a->k[row + c];
            dk[row + c] += ds * a->q[i * a->stride + c];
        }
    }
}

/* Gradients of queries have rows `row` apart; those of keys and values are as these. */
static void attend_all_bwd(const kolo_call *call, const places *at, double *dq, int64_t row,
                           double *dkv) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    int64_t heads = call->spec->attr[KOLO_ATTENTION_HEADS].i, length = dim[1], channels = dim[2];
    const double *d_o = call->in[0], *o = call->in[at->kv + 1], *lse = call->in[at->kv + 2];
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t h = 0; h < heads; h++) {
            head a = head_of(call, at, n, h);
            double *dk = dkv + n * a.keys * a.kv_stride + h * a.width;
            for (int64_t i = 0; i < length; i++) {
                int64_t of_o = (n * length + i) * channels + h * a.width;
                attend_bwd(&a, i, d_o + of_o, o + of_o, *lse++,
                           dq + (n * length + i) * row + h * a.width, dk, dk + channels);
            }
        }
    }
}

static void attention_bwd(const kolo_call *call) {
    const int64_t row = call->spec->out[0].shape.dim[2];
    double *dqkv = call->out[0];
    memset(dqkv, 0, bytes_of(&call->spec->out[0]));
    attend_all_bwd(call, &whole_bwd, dqkv, row, dqkv + row / 3);
}

static void attention_block_bwd(const kolo_call *call) {
    for (int k = 0; k < 2; k++) memset(call->out[k], 0, bytes_of(&call->spec->out[k]));
    if (call->spec->attr[KOLO_ATTENTION_SEEN].i == KOLO_SEEN_BY_NONE) return;
    attend_all_bwd(call, &block_bwd, call->out[0], call->spec->out[0].shape.dim[2], call->out[1]);
}

static void run_attention(const kolo_call *call) { kolo_ref_run(call, attention); }
static void run_attention_bwd(const kolo_call *call) { kolo_ref_run(call, attention_bwd); }
static void run_block(const kolo_call *call) { kolo_ref_run(call, attention_block); }
static void run_block_bwd(const kolo_call *call) { kolo_ref_run(call, attention_block_bwd); }

const kolo_kernel kolo_ops_attention[] = {
    KOLO_REF_KERNEL("ref_attention", &kolo_op_attention, run_attention),
    KOLO_REF_KERNEL("ref_attention_bwd", &kolo_op_attention_bwd, run_attention_bwd),
    KOLO_REF_KERNEL("ref_attention_block", &kolo_op_attention_block, run_block),
    KOLO_REF_KERNEL("ref_attention_block_bwd", &kolo_op_attention_block_bwd, run_block_bwd),
    {0},
};
