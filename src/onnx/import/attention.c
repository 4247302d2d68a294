/* The operator Attention, of opset 23 on: scaled dot products of q, k and v, which are [N,H,T,D],
 * or [N,T,H D] with the numbers of heads as attributes. */
#include "onnx/import/ops.h"

#include <inttypes.h>

static const double lowest = -1e30; /* a score that softmax makes 0 */

typedef struct part {
    kolo_value x; /* [N,T,H D] */
    int64_t heads, tokens;
    bool by_head; /* it was [N,H,T,D] */
} part;

static kolo_status read_part(onnx_call *c, int i, const char *heads, part *p) {
    KOLO_TRY(onnx_value(c, i, &p->x));
    const kolo_shape s = kolo_value_shape(c->g, p->x);
    p->by_head = s.rank == 4;
    p->heads = p->by_head ? s.dim[1] : onnx_int(c, heads, 0);
    p->tokens = s.dim[p->by_head ? 2 : 1];
    if (s.rank == 3 && p->heads < 1) return ONNX_FAIL(c, "attribute %s is missing", heads);
    if (s.rank < 3 || s.rank > 4)
        return ONNX_FAIL(c, "input %d has %d dimensions, not 3 or 4", i, s.rank);
    if (!p->by_head) return KOLO_OK;
    p->x = kolo_transpose(c->g, p->x, 1, 2);
    p->x = onnx_as(c, p->x, kolo_shape_3(s.dim[0], p->tokens, p->heads * s.dim[3]));
    return kolo_graph_check(c->g);
}

/* What is added to the scores: a mask of 0 and 1, or its own numbers. */
static kolo_status read_mask(onnx_call *c, kolo_value *bias) {
    const onnx_item *item = c->in[3];
    KOLO_TRY(onnx_value(c, 3, bias));
    if (item->boolean || (item->constant && item->tensor.integer))
        *bias = kolo_scale(c->g, kolo_add_number(c->g, *bias, -1), -lowest);
    return kolo_graph_check(c->g);
}

/* Query i sees the keys up to i, also where their numbers differ. */
static kolo_status earlier_keys(onnx_call *c, int64_t rows, int64_t keys, kolo_value *bias) {
    const kolo_shape shape = kolo_shape_2(rows, keys);
    const int64_t count = host_count(&shape, HOST_MOST);
    float *f;
    KOLO_TRY(onnx_floats(c, count, &f));
    for (int64_t k = 0; k < count; k++) f[k] = k % keys > k / keys ? (float)lowest : 0;
    return onnx_table(c, c->node->output[0], &shape, f, bias);
}

static kolo_status check(onnx_call *c) {
    for (int i = 4; i < c->n_in; i++) {
        if (onnx_has(c, i)) return ONNX_FAIL(c, "input %d: keys and values of earlier calls", i);
    }
    for (int k = 1; k < c->n_out; k++) {
        if (*c->node->output[k]) return ONNX_FAIL(c, "output %d", k);
    }
    return onnx_float(c, "softcap", 0) != 0 ? ONNX_FAIL(c, "attribute softcap") : KOLO_OK;
}

kolo_status onnx_map_attention(onnx_call *c) {
    part q, k, v;
    kolo_value later;
    KOLO_TRY(check(c));
    KOLO_TRY(read_part(c, 0, "q_num_heads", &q));
    KOLO_TRY(read_part(c, 1, "kv_num_heads", &k));
    KOLO_TRY(read_part(c, 2, "kv_num_heads", &v));
    const bool causal = onnx_int(c, "is_causal", 0) != 0;
    kolo_cross_attention_opts o = {.heads = q.heads,
                                   .kv_heads = k.heads,
                                   .scale = onnx_float(c, "scale", 0),
                                   .causal = causal && q.tokens == k.tokens,
                                   .use_bias = onnx_has(c, 3)};
    if (k.heads != v.heads)
        return ONNX_FAIL(c, "%" PRId64 " heads of keys, %" PRId64 " of values", k.heads, v.heads);
    if (o.use_bias) KOLO_TRY(read_mask(c, &o.bias));
    if (causal && !o.causal) {
        KOLO_TRY(earlier_keys(c, q.tokens, k.tokens, &later));
        o.bias = o.use_bias ? kolo_add(c->g, o.bias, later) : later;
        o.use_bias = true;
    }
    kolo_value y = kolo_cross_attention(c->g, q.x, k.x, v.x, &o);
    KOLO_TRY(kolo_graph_check(c->g));
    if (!q.by_head) return onnx_set(c, 0, y);
    const kolo_shape s = kolo_value_shape(c->g, y);
    y = onnx_as(c, y, kolo_shape_4(s.dim[0], q.tokens, q.heads, s.dim[2] / q.heads));
    return onnx_set(c, 0, kolo_transpose(c->g, y, 1, 2));
}
