/* RotaryEmbedding, of opset 23 on: turns pairs of numbers of each head by angles that depend on the
 * position. x is [N,H,T,D], or [N,T,H D] with the number of heads as an attribute. */
#include "onnx/import/ops.h"

#include <inttypes.h>

enum { X, COSINES, SINES, POSITIONS }; /* inputs */

/* Rows of a table [P,R] by constant positions [N,T], which are the same for all samples, or [T]. */
static kolo_status pick_rows(onnx_call *c, kolo_value *table) {
    const host_tensor *at = &c->in[POSITIONS]->tensor;
    const int64_t tokens = at->shape.rank > 0 ? at->shape.dim[at->shape.rank - 1] : 1;
    const int64_t width = kolo_value_shape(c->g, *table).dim[1];
    if (!at->integer) return ONNX_FAIL(c, "input %d must hold integers", POSITIONS);
    for (int64_t k = tokens; k < at->count; k++) {
        if (at->i[k] == at->i[k - tokens]) continue;
        return ONNX_FAIL(c, "the constant positions of the samples differ");
    }
    KOLO_TRY(onnx_pick(c, *table, 0, at->i, tokens, table));
    *table = onnx_as(c, *table, kolo_shape_3(tokens, 1, width));
    return kolo_graph_check(c->g);
}

/* Cosines or sines for each position, [N,T,1,R], or of all samples [T,1,R]. */
static kolo_status read_table(onnx_call *c, int i, kolo_value *v) {
    kolo_value ids;
    KOLO_TRY(onnx_value(c, i, v));
    const int rank = kolo_value_shape(c->g, *v).rank;
    if (rank != (onnx_has(c, POSITIONS) ? 2 : 3)) {
        return ONNX_FAIL(c, "input %d has %d dimensions", i, rank);
    }
    if (onnx_has(c, POSITIONS) && c->in[POSITIONS]->constant) return pick_rows(c, v);
    if (onnx_has(c, POSITIONS)) {
        KOLO_TRY(onnx_value(c, POSITIONS, &ids));
        *v = kolo_embedding(c->g, *v, ids, KOLO_NONE);
        KOLO_TRY(kolo_graph_check(c->g));
    }
    const kolo_shape s = kolo_value_shape(c->g, *v);
    *v = onnx_as(c, *v, kolo_shape_4(s.dim[0], s.dim[1], 1, s.dim[2]));
    return kolo_graph_check(c->g);
}

/* x [N,T,H,D] with its first numbers turned: pairs of neighbours, or of one of each half. */
static kolo_status turn(onnx_call *c, kolo_value x, kolo_value cosine, kolo_value sine,
                        kolo_value *y) {
    const kolo_shape s = kolo_value_shape(c->g, x);
    const kolo_shape of_cosine = kolo_value_shape(c->g, cosine);
    const int64_t half = of_cosine.dim[of_cosine.rank - 1], turned = 2 * half;
    const bool neighbours = onnx_int(c, "interleaved", 0) != 0;
    kolo_graph *g = c->g;
    const int64_t stated = onnx_int(c, "rotary_embedding_dim", 0);
    if (turned > s.dim[3] || turned != (stated > 0 ? stated : s.dim[3])) {
        return ONNX_FAIL(c, "cosines and sines of %" PRId64 " elements for heads of %" PRId64,
                         turned, stated > 0 ? stated : s.dim[3]);
    }
    const kolo_shape one = kolo_shape_4(s.dim[0], s.dim[1], s.dim[2], half);
    const kolo_shape pairs = {5, {s.dim[0], s.dim[1], s.dim[2], half, 2}};
    const kolo_shape all = kolo_shape_4(s.dim[0], s.dim[1], s.dim[2], turned);
    const kolo_value part = turned == s.dim[3] ? x : kolo_slice(g, x, 3, 0, turned);
    const kolo_value by = neighbours ? onnx_as(c, part, pairs) : part;
    const int axis = neighbours ? 4 : 3;
    const int64_t step = neighbours ? 1 : half;
    const kolo_value a = onnx_as(c, kolo_slice(g, by, axis, 0, step), one);
    const kolo_value b = onnx_as(c, kolo_slice(g, by, axis, step, step), one);
    kolo_value to[] = {kolo_sub(g, kolo_mul(g, a, cosine), kolo_mul(g, b, sine)),
                       kolo_add(g, kolo_mul(g, a, sine), kolo_mul(g, b, cosine))};
    kolo_shape each = pairs;
    each.dim[4] = 1;
    for (int k = 0; k < 2 && neighbours; k++) to[k] = onnx_as(c, to[k], each);
    kolo_value result[] = {onnx_as(c, kolo_concat_along(g, to, 2, axis), all), KOLO_NONE};
    if (turned < s.dim[3]) result[1] = kolo_slice(g, x, 3, turned, s.dim[3] - turned);
    *y = turned < s.dim[3] ? kolo_concat_along(g, result, 2, 3) : result[0];
    return kolo_graph_check(g);
}

kolo_status onnx_map_rotary(onnx_call *c) {
    const int64_t heads = onnx_int(c, "num_heads", 0);
    kolo_value x, cosine = KOLO_NONE, sine = KOLO_NONE;
    KOLO_TRY(onnx_value(c, X, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (s.rank < 3 || s.rank > 4) return ONNX_FAIL(c, "an input of %d dimensions", s.rank);
    if (s.rank == 3 && (heads < 1 || s.dim[2] % heads != 0)) {
        return ONNX_FAIL(c, "attribute num_heads: %" PRId64, heads);
    }
    x = s.rank == 4 ? kolo_transpose(c->g, x, 1, 2)
                    : onnx_as(c, x, kolo_shape_4(s.dim[0], s.dim[1], heads, s.dim[2] / heads));
    KOLO_TRY(kolo_graph_check(c->g));
    KOLO_TRY(read_table(c, COSINES, &cosine));
    KOLO_TRY(read_table(c, SINES, &sine));
    KOLO_TRY(turn(c, x, cosine, sine, &x));
    return onnx_set(c, 0, s.rank == 4 ? kolo_transpose(c->g, x, 1, 2) : onnx_as(c, x, s));
}
