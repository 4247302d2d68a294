/* The operator Attention, of opset 23 on: scaled dot products of q, k and v, which are [N,H,T,D],
 * or [N,T,H D] with the numbers of heads as attributes. Keys and values of earlier calls (past)
 * come before those of this one. The op of the graph computes it, or matrix products and softmax do
 * where scores are an output or limited (softcap). A query that sees no key gives zeros. */
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <math.h>

static const double lowest = -1e30; /* a score that softmax makes 0 */

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, LENGTHS }; /* inputs */
enum { Y, PRESENT_KEY, PRESENT_VALUE, SCORES };        /* outputs */
enum { SCORES_RAW, SCORES_CAPPED, SCORES_BIASED, SCORES_OF_SOFTMAX };

typedef struct part {
    kolo_value x; /* [N,T,H D] */
    int64_t heads, tokens;
    bool by_head; /* it was [N,H,T,D] */
} part;

typedef struct attention {
    part q, k, v;
    int64_t past;        /* keys of earlier calls */
    bool causal;         /* the op sees to it */
    bool limits;         /* which keys a query sees depends on both */
    bool may_hide;       /* a query may see no key */
    int64_t left, right; /* keys before and after a query that it sees; -1: all */
    double scale, cap;   /* cap 0: none */
    kolo_value bias;     /* none: KOLO_NONE */
} attention;

static bool is_wanted(const onnx_call *c, int i) {
    return i < c->n_out && *onnx_text(c->node->output[i]);
}

/* ---- queries, keys, values ---- */

static int64_t width_of(const onnx_call *c, const part *p) {
    return kolo_value_shape(c->g, p->x).dim[2] / p->heads;
}

/* [N,H,T,D] -> [N,T,H D] */
static kolo_value by_token(onnx_call *c, kolo_value x) {
    const kolo_shape s = kolo_value_shape(c->g, x);
    x = kolo_transpose(c->g, x, 1, 2);
    return onnx_as(c, x, kolo_shape_3(s.dim[0], s.dim[2], s.dim[1] * s.dim[3]));
}

/* The reverse. */
static kolo_value by_head(onnx_call *c, const part *p) {
    const kolo_shape s = kolo_value_shape(c->g, p->x);
    const kolo_shape heads = kolo_shape_4(s.dim[0], s.dim[1], p->heads, s.dim[2] / p->heads);
    return kolo_transpose(c->g, onnx_as(c, p->x, heads), 1, 2);
}

static kolo_status read_part(onnx_call *c, int i, const char *heads, part *p) {
    KOLO_TRY(onnx_value(c, i, &p->x));
    const kolo_shape s = kolo_value_shape(c->g, p->x);
    p->by_head = s.rank == 4;
    p->heads = p->by_head ? s.dim[1] : onnx_int(c, heads, 0);
    p->tokens = s.dim[p->by_head ? 2 : 1];
    if (s.rank == 3 && p->heads < 1) return ONNX_FAIL(c, "attribute %s is missing", heads);
    if (s.rank < 3 || s.rank > 4)
        return ONNX_FAIL(c, "input %d has %d dimensions, not 3 or 4", i, s.rank);
    if (s.rank == 3 && s.dim[2] % p->heads != 0)
        return ONNX_FAIL(c, "%" PRId64 " numbers of %" PRId64 " heads", s.dim[2], p->heads);
    if (p->by_head) p->x = by_token(c, p->x);
    return kolo_graph_check(c->g);
}

/* Puts what earlier calls had, [N,H,P,D], before a part, and makes both an output. */
static kolo_status add_past(onnx_call *c, int in, int out, part *p, int64_t *past) {
    kolo_value before;
    if (onnx_has(c, in)) {
        KOLO_TRY(onnx_value(c, in, &before));
        kolo_shape s = kolo_value_shape(c->g, before);
        if (s.rank != 4 || s.dim[1] != p->heads || s.dim[3] != width_of(c, p))
            return ONNX_FAIL(c, "input %d does not fit its part of this call", in);
        s.dim[0] = kolo_value_shape(c->g, p->x).dim[0];
        if (!c->in[in]->batched) KOLO_TRY(onnx_expand(c, before, &s, &before));
        *past = s.dim[2];
        p->x = kolo_concat_along(c->g, (kolo_value[]){by_token(c, before), p->x}, 2, 1);
        p->tokens += *past;
        KOLO_TRY(kolo_graph_check(c->g));
    }
    return is_wanted(c, out) ? onnx_set(c, out, by_head(c, p)) : KOLO_OK;
}

static kolo_status read_parts(onnx_call *c, attention *a) {
    int64_t past = 0;
    KOLO_TRY(read_part(c, Q, "q_num_heads", &a->q));
    KOLO_TRY(read_part(c, K, "kv_num_heads", &a->k));
    KOLO_TRY(read_part(c, V, "kv_num_heads", &a->v));
    if (a->k.heads != a->v.heads || a->q.heads % a->k.heads != 0) {
        return ONNX_FAIL(c,
                         "%" PRId64 " heads of queries, %" PRId64 " of keys, %" PRId64 " of values",
                         a->q.heads, a->k.heads, a->v.heads);
    }
    KOLO_TRY(add_past(c, PAST_KEY, PRESENT_KEY, &a->k, &a->past));
    KOLO_TRY(add_past(c, PAST_VALUE, PRESENT_VALUE, &a->v, &past));
    if (past == a->past && a->k.tokens == a->v.tokens) return KOLO_OK;
    return ONNX_FAIL(c, "%" PRId64 " keys and %" PRId64 " values", a->k.tokens, a->v.tokens);
}

/* ---- what is added to scores ---- */

static void add_bias(onnx_call *c, attention *a, kolo_value bias) {
    a->bias = kolo_value_ok(a->bias) ? kolo_add(c->g, a->bias, bias) : bias;
}

/* A mask of 0 and 1, or its own numbers; of the first keys alone, if it is short. */
static kolo_status read_mask(onnx_call *c, attention *a) {
    const onnx_item *item = c->in[MASK];
    kolo_value bias, rest;
    KOLO_TRY(onnx_value(c, MASK, &bias));
    if (item->boolean || (item->constant && item->tensor.integer))
        bias = kolo_scale(c->g, kolo_add_number(c->g, bias, -1), -lowest);
    KOLO_TRY(kolo_graph_check(c->g));
    const kolo_shape s = kolo_value_shape(c->g, bias), keys = kolo_shape_1(a->k.tokens);
    const int64_t has = s.rank > 0 ? s.dim[s.rank - 1] : 0;
    if (has > 1 && has < a->k.tokens) {
        float *f = NULL;
        KOLO_TRY(onnx_floats(c, a->k.tokens, &f));
        for (int64_t k = 0; k < a->k.tokens; k++) f[k] = k < has ? 0 : (float)lowest;
        KOLO_TRY(onnx_table(c, c->node->output[0], &keys, f, &rest));
        bias = kolo_add(c->g, kolo_pad(c->g, bias, s.rank - 1, 0, a->k.tokens - has), rest);
    }
    add_bias(c, a, bias);
    return kolo_graph_check(c->g);
}

/* Whether query i sees key j, with `offset` keys before the first query. */
static bool sees(const attention *a, bool causal, int64_t i, int64_t j, int64_t offset) {
    const int64_t before = i + offset - j;
    return (!causal || before >= 0) && (a->left < 0 || before <= a->left) &&
           (a->right < 0 || -before <= a->right);
}

/* Keys that queries do not see: later ones, those outside a window, and of a cache those that are
 * not filled yet. */
static kolo_status add_limits(onnx_call *c, attention *a, bool causal) {
    const int64_t T = a->q.tokens, S = a->k.tokens;
    const host_tensor *lengths = NULL;
    float *f = NULL;
    kolo_value limits;
    if (onnx_has(c, LENGTHS)) KOLO_TRY(onnx_constant(c, LENGTHS, &lengths));
    if (!lengths && !causal && a->left < 0 && a->right < 0) return KOLO_OK;
    const kolo_shape shape = lengths ? kolo_shape_4(lengths->count, 1, T, S) : kolo_shape_2(T, S);
    const int64_t count = host_count(&shape, HOST_MOST);
    KOLO_TRY(onnx_floats(c, count, &f));
    for (int64_t k = 0; k < count; k++) {
        const int64_t i = k / S % T, j = k % S;
        const int64_t filled = lengths ? (int64_t)host_number(lengths, k / S / T) : S;
        const int64_t offset = lengths ? filled - T : a->past;
        f[k] = j < filled && sees(a, causal, i, j, offset) ? 0 : (float)lowest;
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &shape, f, &limits));
    add_bias(c, a, limits);
    a->limits = true;
    return kolo_graph_check(c->g);
}

/* ---- the op of the graph ---- */

/* 0 for queries that see no key, else 1: softmax gives these equal weights. */
static kolo_value sees_any(onnx_call *c, kolo_value bias) {
    const int last = kolo_value_shape(c->g, bias).rank - 1;
    const kolo_value most = kolo_reduce_max(c->g, bias, &last, 1, true);
    return kolo_clamp(c->g, kolo_add_number(c->g, kolo_scale(c->g, most, -10 / lowest), 5), 0, 1);
}

static kolo_status by_op(onnx_call *c, const attention *a, kolo_value *y) {
    const bool biased = kolo_value_ok(a->bias);
    const kolo_cross_attention_opts o = {.heads = a->q.heads,
                                         .kv_heads = a->k.heads,
                                         .scale = a->scale,
                                         .causal = a->causal,
                                         .bias = biased ? a->bias : (kolo_value){0},
                                         .use_bias = biased};
    *y = kolo_cross_attention(c->g, a->q.x, a->k.x, a->v.x, &o);
    KOLO_TRY(kolo_graph_check(c->g));
    if (!a->may_hide) return KOLO_OK;
    const part heads = {.x = *y, .heads = a->q.heads};
    *y = by_token(c, kolo_mul(c->g, by_head(c, &heads), sees_any(c, a->bias)));
    return kolo_graph_check(c->g);
}

/* ---- matrix products ---- */

/* [N H,T,D], each head of keys for all of its queries. */
static kolo_status stacked(onnx_call *c, const part *p, int64_t heads, kolo_value *x) {
    kolo_value by = by_head(c, p);
    const kolo_shape s = kolo_value_shape(c->g, by);
    const int64_t copies = heads / p->heads;
    kolo_shape one = {5, {s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]}}, all = one;
    KOLO_TRY(kolo_graph_check(c->g));
    all.dim[2] = copies;
    if (copies > 1) KOLO_TRY(onnx_expand(c, onnx_as(c, by, one), &all, &by));
    *x = onnx_as(c, by, kolo_shape_3(s.dim[0] * heads, s.dim[2], s.dim[3]));
    return kolo_graph_check(c->g);
}

static kolo_status set_scores(onnx_call *c, int64_t mode, kolo_value scores) {
    const bool now = is_wanted(c, SCORES) && onnx_int(c, "qk_matmul_output_mode", 0) == mode;
    return now ? onnx_set(c, SCORES, scores) : KOLO_OK;
}

static kolo_status by_products(onnx_call *c, const attention *a, kolo_value *y) {
    const kolo_shape s = kolo_value_shape(c->g, a->q.x);
    const int64_t heads = a->q.heads, T = a->q.tokens, S = a->k.tokens;
    const kolo_shape by = kolo_shape_4(s.dim[0], heads, T, S);
    const int64_t wide = width_of(c, &a->v);
    kolo_value q, k, v;
    KOLO_TRY(stacked(c, &a->q, heads, &q));
    KOLO_TRY(stacked(c, &a->k, heads, &k));
    KOLO_TRY(stacked(c, &a->v, heads, &v));
    kolo_value p = kolo_scale(c->g, kolo_matmul(c->g, q, k, false, true), a->scale);
    if (a->cap > 0) p = kolo_scale(c->g, kolo_tanh(c->g, kolo_scale(c->g, p, 1 / a->cap)), a->cap);
    p = onnx_as(c, p, by);
    KOLO_TRY(set_scores(c, SCORES_RAW, p));
    KOLO_TRY(set_scores(c, SCORES_CAPPED, p));
    if (kolo_value_ok(a->bias)) p = kolo_add(c->g, p, a->bias);
    KOLO_TRY(set_scores(c, SCORES_BIASED, p));
    p = kolo_softmax(c->g, p, 3);
    if (kolo_value_ok(a->bias)) p = kolo_mul(c->g, p, sees_any(c, a->bias));
    KOLO_TRY(set_scores(c, SCORES_OF_SOFTMAX, p));
    p = onnx_as(c, p, kolo_shape_3(s.dim[0] * heads, T, S));
    const kolo_value out = kolo_matmul(c->g, p, v, false, false);
    *y = by_token(c, onnx_as(c, out, kolo_shape_4(s.dim[0], heads, T, wide)));
    return kolo_graph_check(c->g);
}

/* Whether a mask may hide all keys of a query: one of booleans that the samples decide, or a
 * constant that does; where later keys are hidden anyway (causal), one that hides any. */
static bool hides_rows(const onnx_item *mask, bool causal) {
    const host_tensor *t = &mask->tensor;
    if (!mask->constant) return mask->boolean;
    const int64_t keys = t->shape.rank > 0 ? t->shape.dim[t->shape.rank - 1] : 1;
    for (int64_t row = 0; row < t->count; row += keys) {
        bool any = false;
        for (int64_t k = row; k < row + keys; k++) {
            const bool shown = t->integer ? t->i[k] != 0 : (double)t->f[k] > lowest / 2;
            if (causal && !shown) return true;
            any |= shown;
        }
        if (!any) return true;
    }
    return false;
}

kolo_status onnx_map_attention(onnx_call *c) {
    attention a = {.bias = KOLO_NONE,
                   .cap = onnx_float(c, "softcap", 0),
                   .left = onnx_int(c, "left_window_size", -1),
                   .right = onnx_int(c, "right_window_size", -1)};
    const bool causal = onnx_int(c, "is_causal", 0) != 0;
    kolo_value y;
    KOLO_TRY(read_parts(c, &a));
    a.scale = onnx_float(c, "scale", 0);
    if (a.scale == 0) a.scale = 1 / sqrt((double)width_of(c, &a.q));
    const bool products = a.cap > 0 || is_wanted(c, SCORES) || onnx_has(c, LENGTHS);
    const bool hides = onnx_has(c, MASK) && hides_rows(c->in[MASK], causal);
    a.causal = causal && !products && !hides && a.q.tokens + a.past == a.k.tokens;
    if (onnx_has(c, MASK)) KOLO_TRY(read_mask(c, &a));
    KOLO_TRY(add_limits(c, &a, causal && !a.causal));
    a.may_hide = hides || (a.limits && onnx_has(c, MASK));
    KOLO_TRY(products ? by_products(c, &a, &y) : by_op(c, &a, &y));
    if (!a.q.by_head) return onnx_set(c, Y, y);
    part out = {.x = y, .heads = a.q.heads};
    return onnx_set(c, Y, by_head(c, &out));
}
