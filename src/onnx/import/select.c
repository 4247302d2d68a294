/* Operators that find elements, or select them by where they are: ArgMax, ArgMin, Hardmax, TopK,
 * OneHot, Compress. The place of an element is a number of type f32, since a graph computes no
 * integers; it has no gradient. */
#include "graph/ops/compare.h"
#include "onnx/import/ops.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

enum { MOST_OF_TOP = 64 }; /* each of them takes a dozen nodes */

/* first, first + step, ...: `n` numbers along dimension `axis` of tensors of `rank` dimensions. */
static kolo_status numbered(onnx_call *c, int64_t n, int axis, int rank, double first, double step,
                            kolo_value *v) {
    kolo_shape shape = {.rank = rank - axis};
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, n, &f));
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = d == 0 ? n : 1;
    for (int64_t k = 0; k < n; k++) f[k] = (float)(first + (double)k * step);
    return onnx_table(c, onnx_text(c->node->output[0]), &shape, f, v);
}

/* The largest element of x along an axis, of equal ones the first or the last: *one is 1 there and
 * 0 elsewhere, *place is its number, with an axis of size 1. `eligible` is 1 at those that count,
 * the others being no larger; none: all count. */
static kolo_status find_largest(onnx_call *c, kolo_value x, kolo_value eligible, int axis,
                                bool last, kolo_value *one, kolo_value *place) {
    const kolo_shape s = kolo_value_shape(c->g, x);
    const double n = (double)s.dim[axis];
    kolo_value numbers;
    KOLO_TRY(numbered(c, s.dim[axis], axis, s.rank, last ? 1 : n, last ? 1 : -1, &numbers));
    const kolo_value is_largest = kolo_equal(c->g, x, kolo_reduce_max(c->g, x, &axis, 1, true));
    kolo_value scores = kolo_mul(c->g, is_largest, numbers);
    if (kolo_value_ok(eligible)) scores = kolo_mul(c->g, scores, eligible);
    const kolo_value best = kolo_reduce_max(c->g, scores, &axis, 1, true);
    *one = kolo_equal(c->g, scores, best);
    *place =
        last ? kolo_add_number(c->g, best, -1) : kolo_add_number(c->g, kolo_neg(c->g, best), n);
    return kolo_graph_check(c->g);
}

/* ArgMax and ArgMin. */
kolo_status onnx_map_arg_max(onnx_call *c) {
    kolo_value x, one = KOLO_NONE, place = KOLO_NONE;
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    kolo_shape y = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), y.rank, &axis));
    if (strcmp(c->node->op_type, "ArgMin") == 0) x = kolo_neg(c->g, x);
    const bool last = onnx_int(c, "select_last_index", 0) != 0;
    KOLO_TRY(find_largest(c, x, KOLO_NONE, axis, last, &one, &place));
    if (onnx_int(c, "keepdims", 1)) return onnx_set_whole(c, 0, place);
    y.rank--;
    for (int d = axis; d < y.rank; d++) y.dim[d] = y.dim[d + 1];
    return onnx_set_whole(c, 0, onnx_as(c, place, y));
}

kolo_status onnx_map_hardmax(onnx_call *c) {
    kolo_value x, one = KOLO_NONE, place = KOLO_NONE;
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_softmax_axis(c, &x, &axis));
    KOLO_TRY(find_largest(c, x, KOLO_NONE, axis, false, &one, &place));
    return onnx_set(c, 0, onnx_as(c, one, s));
}

/* One after the other: what was found is not above the others from then on, nor found again. */
kolo_status onnx_map_top_k(onnx_call *c) {
    kolo_value x, one = KOLO_NONE, eligible = KOLO_NONE, values[MOST_OF_TOP], places[MOST_OF_TOP];
    double number = (double)onnx_int(c, "k", 0);
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", -1), s.rank, &axis));
    if (c->opset >= 10) KOLO_TRY(onnx_number(c, 1, 0, &number));
    if (!(number >= 1 && number <= MOST_OF_TOP && number <= (double)s.dim[axis])) {
        return ONNX_FAIL(c, "%g of %" PRId64 " elements; 1 to %d of them are supported", number,
                         s.dim[axis], MOST_OF_TOP);
    }
    const int k = (int)number;
    kolo_value left = onnx_int(c, "largest", 1) ? x : kolo_neg(c->g, x);
    for (int i = 0; i < k; i++) {
        KOLO_TRY(find_largest(c, left, eligible, axis, false, &one, &places[i]));
        values[i] = kolo_reduce_sum(c->g, kolo_mul(c->g, x, one), &axis, 1, true);
        const kolo_value others = kolo_add_number(c->g, kolo_neg(c->g, one), 1);
        left = kolo_sub(c->g, kolo_mul(c->g, left, others), kolo_scale(c->g, one, (double)FLT_MAX));
        eligible = i == 0 ? others : kolo_mul(c->g, eligible, others);
    }
    KOLO_TRY(onnx_set(c, 0, kolo_concat_along(c->g, values, k, axis)));
    return onnx_set_whole(c, 1, kolo_concat_along(c->g, places, k, axis));
}

/* The same of an input of integers, by rows of a unit matrix: indices below 0 select none. */
static kolo_status one_hot_of_integers(onnx_call *c, kolo_value ids, int64_t depth,
                                       kolo_value *one) {
    const kolo_shape square = kolo_shape_2(depth, depth);
    kolo_shape s = kolo_value_shape(c->g, ids);
    const int64_t n = s.rank > 0 ? s.dim[0] : 1, count = kolo_shape_count(&s);
    kolo_value table;
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, host_count(&square, HOST_MOST), &f));
    for (int64_t k = 0; k < depth * depth; k++) f[k] = k / depth == k % depth;
    KOLO_TRY(onnx_table(c, onnx_text(c->node->output[0]), &square, f, &table));
    ids = onnx_as(c, ids, kolo_shape_2(n, n > 0 ? count / n : 0));
    s.dim[s.rank++] = depth;
    *one = onnx_as(c, kolo_embedding(c->g, table, ids, KOLO_NONE), s);
    return kolo_graph_check(c->g);
}

/* 1 at the place that each index states, along a new last dimension. Indices below 0 count from the
 * end; others outside select none. */
static kolo_status one_hot(onnx_call *c, int64_t depth, kolo_value *one) {
    kolo_value x, numbers, before;
    KOLO_TRY(onnx_value(c, 0, &x));
    kolo_shape s = kolo_value_shape(c->g, x);
    if (s.rank == KOLO_MAX_RANK) return ONNX_FAIL(c, "a result of too many dimensions");
    if (kolo_value_dtype(c->g, x) == KOLO_DTYPE_I32) return one_hot_of_integers(c, x, depth, one);
    s.dim[s.rank++] = 1;
    x = onnx_as(c, c->in[0]->whole ? x : onnx_truncated(c->g, x), s);
    KOLO_TRY(numbered(c, depth, 0, 1, 0, 1, &numbers));
    KOLO_TRY(numbered(c, depth, 0, 1, -(double)depth, 1, &before));
    *one = kolo_add(c->g, kolo_equal(c->g, x, numbers), kolo_equal(c->g, x, before));
    return kolo_graph_check(c->g);
}

kolo_status onnx_map_one_hot(onnx_call *c) {
    kolo_value one = KOLO_NONE, values;
    double depth;
    int axis, order[KOLO_MAX_RANK];
    KOLO_TRY(onnx_number(c, 1, 0, &depth));
    if (!(depth >= 1 && depth <= HOST_MOST)) {
        return ONNX_FAIL(c, "a depth of %g: must be 1 to %d", depth, (int)HOST_MOST);
    }
    KOLO_TRY(one_hot(c, (int64_t)depth, &one));
    KOLO_TRY(onnx_value(c, 2, &values)); /* off, on */
    const int rank = kolo_value_shape(c->g, one).rank;
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", -1), rank, &axis));
    for (int d = 0; d < rank; d++) order[d] = d < axis ? d : d == axis ? rank - 1 : d - 1;
    const kolo_value off = kolo_slice(c->g, values, 0, 0, 1);
    const kolo_value more = kolo_sub(c->g, kolo_slice(c->g, values, 0, 1, 1), off);
    const kolo_value y = kolo_add(c->g, kolo_mul(c->g, one, more), off);
    return onnx_set(c, 0, kolo_permute(c->g, y, order));
}

kolo_status onnx_map_compress(onnx_call *c) {
    const host_tensor *kept = NULL;
    kolo_value x;
    int64_t *index = NULL, n = 0;
    int axis = 0;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_constant(c, 1, &kept));
    KOLO_ASSERT(kept);
    kolo_shape s = kolo_value_shape(c->g, x);
    if (onnx_attribute(c, "axis")) {
        KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), s.rank, &axis));
    } else {
        s = kolo_shape_1(kolo_shape_count(&s));
        x = onnx_as(c, x, s);
    }
    if (kept->count > s.dim[axis]) {
        return ONNX_FAIL(c, "the condition has more elements than dimension %d", axis);
    }
    KOLO_TRY(onnx_indices(c, kept->count, &index));
    KOLO_ASSERT(index);
    for (int64_t k = 0; k < kept->count; k++) {
        if (host_number(kept, k) != 0) index[n++] = k;
    }
    KOLO_TRY(onnx_pick(c, x, axis, index, n, &x));
    return onnx_set(c, 0, x);
}
