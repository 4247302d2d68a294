/* Operators that rearrange elements. */
#include "graph/ops/ops.h"
#include "onnx/import/fold.h"
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

kolo_status onnx_map_identity(onnx_call *c) {
    const onnx_item *from = c->in[0];
    kolo_value x;
    if (from->constant && from->tensor.shape.rank == 1) { /* a parameter that equals another */
        KOLO_TRY(onnx_set_constant(c, 0, &from->tensor));
        c->m->items[c->m->n_items - 1]->trained = from->trained;
        c->m->items[c->m->n_items - 1]->tied = from->tied;
        return KOLO_OK;
    }
    KOLO_TRY(onnx_value(c, 0, &x));
    return onnx_set(c, 0, x);
}

/* Whether `large` is `small` behind a dimension of 1, with the samples first in `small`. */
static bool is_behind_1(const onnx_call *c, const kolo_shape *small, const kolo_shape *large) {
    return small->rank > 0 && large->rank == small->rank + 1 && large->dim[0] == 1 &&
           c->in[0]->batched && small->dim[0] == c->m->samples &&
           memcmp(small->dim, large->dim + 1, (size_t)small->rank * sizeof *small->dim) == 0;
}

/* What a reshape does with a dimension of 1 before the samples. */
enum { LEFT, TAKEN_AWAY, PUT_BEFORE };

/* x under another shape. A dimension of 1 before the samples comes and goes behind them, so that
 * workers can have a part of the samples each. */
static kolo_value reshaped(onnx_call *c, kolo_value x, const kolo_shape *y, int what) {
    kolo_shape second = *y;
    if (what == LEFT) return onnx_as(c, x, *y);
    if (what == TAKEN_AWAY) return onnx_as(c, kolo_transpose(c->g, x, 0, 1), *y);
    second.dim[0] = y->dim[1];
    second.dim[1] = 1;
    return kolo_transpose(c->g, onnx_as(c, x, second), 0, 1);
}

kolo_status onnx_map_reshape(onnx_call *c) {
    kolo_value x;
    kolo_shape y;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape have = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_new_shape(c, &have, &y));
    const int what = onnx_decide(c->m, is_behind_1(c, &y, &have)   ? TAKEN_AWAY
                                       : is_behind_1(c, &have, &y) ? PUT_BEFORE
                                                                   : LEFT);
    const kolo_value rows = c->in[0]->rows;
    const kolo_shape of_rows = kolo_value_shape(c->g, rows);
    if (rows.id >= 0 && kolo_shape_equal(&of_rows, &y)) return onnx_set(c, 0, rows);
    const bool merges = have.rank >= 3 && y.rank == 2 && y.dim[0] % have.dim[0] == 0;
    if (onnx_decide(c->m, merges && y.dim[0] != have.dim[0]) && merges) {
        y = kolo_shape_3(have.dim[0], y.dim[0] / have.dim[0], y.dim[1]);
        return onnx_set_rows(c, kolo_shape_equal(&have, &y) ? x : kolo_reshape(c->g, x, y));
    }
    return onnx_set(c, 0, kolo_shape_equal(&have, &y) ? x : reshaped(c, x, &y, what));
}

kolo_status onnx_map_transpose(onnx_call *c) {
    int64_t perm[KOLO_MAX_RANK];
    int n, order[KOLO_MAX_RANK];
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_ints(c, "perm", perm, KOLO_MAX_RANK, &n));
    const int rank = kolo_value_shape(c->g, x).rank;
    if (n >= 0 && n != rank)
        return ONNX_FAIL(c, "attribute perm has %d dimensions, not %d", n, rank);
    for (int d = 0; d < rank; d++) {
        int64_t from = n < 0 ? rank - 1 - d : perm[d];
        if (from < 0 || from >= rank) return ONNX_FAIL(c, "attribute perm: %" PRId64, from);
        order[d] = (int)from;
    }
    KOLO_TRY(onnx_set(c, 0, kolo_permute(c->g, x, order)));
    if (rank == 2 && order[0] == 1 && *c->node->output[0]) {
        c->m->items[c->m->n_items - 1]->turned = c->in[0];
    }
    return KOLO_OK;
}

kolo_status onnx_map_concat(onnx_call *c) {
    kolo_value x[ONNX_MAX_IN];
    int axis;
    kolo_shape first = onnx_shape(c, 0);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), first.rank, &axis));
    /* One exported for a sample stands for a batch of them. */
    int64_t batch = 1;
    for (int i = 0; i < c->n_in; i++) {
        if (!onnx_has(c, i)) return ONNX_FAIL(c, "input %d is missing", i);
        const kolo_shape s = onnx_shape(c, i);
        if (axis > 0 && s.rank > 0 && s.dim[0] > batch) batch = s.dim[0];
    }
    int n = 0;
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i]->constant && c->in[i]->tensor.count == 0) continue;
        KOLO_TRY(onnx_value(c, i, &x[n]));
        kolo_value *part = &x[n++];
        kolo_shape s = kolo_value_shape(c->g, *part);
        const bool one = axis > 0 && s.rank > 0 && s.dim[0] == 1;
        if (!onnx_decide(c->m, one && batch == c->m->samples)) continue;
        s.dim[0] = batch;
        KOLO_TRY(onnx_expand(c, *part, &s, part));
    }
    return onnx_set(c, 0, n == 1 ? x[0] : kolo_concat_along(c->g, x, n, axis));
}

/* Output i of a split, without elements: a constant. */
static kolo_status set_empty(onnx_call *c, int i, const kolo_shape *x, int axis) {
    kolo_shape shape = *x;
    host_tensor y;
    float *f = NULL;
    int64_t *unused = NULL;
    shape.dim[axis] = 0;
    KOLO_TRY(onnx_new_constant(c, &shape, false, &y, &f, &unused));
    return onnx_set_constant(c, i, &y);
}

kolo_status onnx_map_split(onnx_call *c) {
    int64_t sizes[ONNX_MAX_IN];
    kolo_value x, part[ONNX_MAX_IN];
    int axis, n, of[ONNX_MAX_IN];
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), s.rank, &axis));
    KOLO_TRY(onnx_list_since(c, 13, 1, "split", sizes, ONNX_MAX_IN, &n));
    if (n < 0) {
        n = (int)onnx_int(c, "num_outputs", c->n_out);
        if (n < 1 || n > ONNX_MAX_IN) return ONNX_FAIL(c, "%d outputs", n);
        const int64_t each = (s.dim[axis] + n - 1) / n;
        for (int k = 0; k < n; k++) sizes[k] = each;
        sizes[n - 1] = s.dim[axis] - each * (n - 1);
    }
    if (n != c->n_out) return ONNX_FAIL(c, "%d sizes for %d outputs", n, c->n_out);
    int filled = 0;
    for (int k = 0; k < n; k++) {
        if (sizes[k] < 0) return ONNX_FAIL(c, "a part of %" PRId64 " elements", sizes[k]);
        if (sizes[k] == 0) KOLO_TRY(set_empty(c, k, &s, axis));
        if (sizes[k] > 0) of[filled] = k;
        if (sizes[k] > 0) sizes[filled++] = sizes[k];
    }
    if (filled == 0) return ONNX_FAIL(c, "nothing is left");
    kolo_split_along(c->g, x, axis, sizes, filled, part);
    for (int k = 0; k < filled; k++) KOLO_TRY(onnx_set(c, of[k], part[k]));
    return KOLO_OK;
}

kolo_status onnx_map_slice(onnx_call *c) {
    int64_t first[KOLO_MAX_RANK], step[KOLO_MAX_RANK];
    kolo_value x;
    kolo_shape y;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_slice_ranges(c, &s, first, step, &y));
    for (int d = 0; d < s.rank; d++) {
        if (y.dim[d] == s.dim[d] && step[d] == 1) continue;
        if (y.dim[d] < 1) return ONNX_FAIL(c, "nothing is left of dimension %d", d);
        int64_t *index;
        KOLO_TRY(onnx_indices(c, y.dim[d], &index));
        for (int64_t k = 0; k < y.dim[d]; k++) index[k] = first[d] + k * step[d];
        KOLO_TRY(onnx_pick(c, x, d, index, y.dim[d], &x));
    }
    return onnx_set(c, 0, x);
}

/* Rows of a matrix by integers that depend on the samples. */
static kolo_status lookup(onnx_call *c, kolo_value x, int axis) {
    kolo_value ids;
    KOLO_TRY(onnx_value(c, 1, &ids));
    const kolo_shape s = kolo_value_shape(c->g, x), of_ids = kolo_value_shape(c->g, ids);
    if (axis != 0 || kolo_value_dtype(c->g, ids) != KOLO_DTYPE_I32) {
        return ONNX_FAIL(c, "attribute axis: %d; indices that depend on the samples select along 0",
                         axis);
    }
    kolo_shape y = of_ids;
    if (y.rank + s.rank - 1 > KOLO_MAX_RANK) return ONNX_FAIL(c, "a result of too many dimensions");
    for (int d = 1; d < s.rank; d++) y.dim[y.rank++] = s.dim[d];
    const int64_t rows = s.dim[0], width = kolo_shape_count(&s) / rows;
    const int64_t n = of_ids.rank > 0 ? of_ids.dim[0] : 1, each = kolo_shape_count(&of_ids) / n;
    if (s.rank != 2) x = kolo_reshape(c->g, x, kolo_shape_2(rows, width));
    if (of_ids.rank != 2) ids = kolo_reshape(c->g, ids, kolo_shape_2(n, each));
    return onnx_set(c, 0, onnx_as(c, kolo_embedding(c->g, x, ids, KOLO_NONE), y));
}

/* Whether constant indices are all those of a vector of the file's batch, in order: exporters write
 * a view by strides (as_strided) so. *y: the shape of the view, of the batch here. */
static bool is_view(const onnx_call *c, const kolo_shape *x, kolo_shape *y) {
    const host_tensor *at = &c->in[1]->tensor;
    const int64_t stated = c->m->stated, samples = c->m->samples;
    if (!c->in[0]->batched || x->rank != 1 || !at->integer || at->shape.rank < 1 ||
        at->shape.dim[0] % stated != 0 || at->count / stated * samples != x->dim[0]) {
        return false;
    }
    for (int64_t k = 0; k < at->count; k++) {
        if (at->i[k] != k) return false;
    }
    *y = at->shape;
    y->dim[0] = y->dim[0] / stated * samples;
    return true;
}

kolo_status onnx_map_gather(onnx_call *c) {
    kolo_value x;
    int axis;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), s.rank, &axis));
    if (!c->in[1]->constant) return lookup(c, x, axis);
    const host_tensor *at = &c->in[1]->tensor;
    kolo_shape y;
    const bool view = is_view(c, &s, &y);
    if (onnx_decide(c->m, view) && view) return onnx_set(c, 0, onnx_as(c, x, y));
    y = (kolo_shape){.rank = s.rank - 1 + at->shape.rank};
    if (!at->integer || at->count < 1 || y.rank > KOLO_MAX_RANK)
        return ONNX_FAIL(c, "indices do not fit");
    for (int d = 0, to = 0; d < s.rank; d++) {
        if (d != axis) y.dim[to++] = s.dim[d];
        for (int k = 0; d == axis && k < at->shape.rank; k++) y.dim[to++] = at->shape.dim[k];
    }
    int64_t *index;
    KOLO_TRY(onnx_indices(c, at->count, &index));
    for (int64_t k = 0; k < at->count; k++) {
        index[k] = at->i[k] < 0 ? at->i[k] + s.dim[axis] : at->i[k];
    }
    const int inside =
        onnx_decide(c->m, c->in[0]->batched && s.rank > 2 && s.dim[0] != c->m->samples);
    if (axis == 0 && inside &&
        at->shape.rank == 0) { /* the dimension goes while it is the second */
        x = kolo_transpose(c->g, x, 0, 1);
        axis = 1;
    }
    KOLO_TRY(onnx_pick(c, x, axis, index, at->count, &x));
    return onnx_set(c, 0, onnx_as(c, x, y));
}

kolo_status onnx_map_expand(onnx_call *c) {
    kolo_value x;
    kolo_shape to = {0}, shape;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_list(c, 1, to.dim, KOLO_MAX_RANK, &to.rank));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (to.rank < 0 || host_count(&to, INT64_MAX / 64) < 1 || !onnx_broadcast(&s, &to, &shape)) {
        return ONNX_FAIL(c, "the shapes do not fit");
    }
    KOLO_TRY(onnx_expand(c, x, &shape, &x));
    return onnx_set(c, 0, x);
}

kolo_status onnx_map_tile(onnx_call *c) {
    enum { MOST = 1024 };
    int64_t times[KOLO_MAX_RANK];
    kolo_value x, *copies;
    int n;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_list(c, 1, times, KOLO_MAX_RANK, &n));
    if (n != kolo_value_shape(c->g, x).rank) return ONNX_FAIL(c, "%d repeats", n);
    for (int d = 0; d < n; d++) {
        if (times[d] < 1 || times[d] > MOST)
            return ONNX_FAIL(c, "repeats %" PRId64 " times", times[d]);
        KOLO_TRY(onnx_copies(c, times[d], &copies));
        for (int64_t k = 0; k < times[d]; k++) copies[k] = x;
        if (times[d] > 1) x = kolo_concat_along(c->g, copies, (int)times[d], d);
    }
    return onnx_set(c, 0, x);
}

/* The source of each element along a dimension that is padded by copies. */
static kolo_status pad_by_copies(onnx_call *c, kolo_value *x, int d, int64_t before,
                                 int64_t after) {
    const int64_t size = kolo_value_shape(c->g, *x).dim[d];
    if (before < 0 || after < 0 || before > 4096 || after > 4096)
        return ONNX_FAIL(c, "pads do not fit");
    const int64_t n = before + size + after;
    int64_t *index;
    KOLO_TRY(onnx_indices(c, n, &index));
    for (int64_t k = 0; k < n; k++) {
        int64_t from = k - before;
        if (onnx_text_is(c, "mode", "edge", false)) {
            from = from < 0 ? 0 : from >= size ? size - 1 : from;
        } else if (onnx_text_is(c, "mode", "reflect", false)) {
            from = from < 0 ? -from : from;
            from = from >= size ? 2 * (size - 1) - from : from;
        } else {
            from = ((from % size) + size) % size;
        }
        index[k] = from;
    }
    return onnx_pick(c, *x, d, index, n, x);
}

/* Adds `fill` to the border of x, which is before[d] and after[d] of dimension d. */
static kolo_status fill_border(onnx_call *c, kolo_value *x, const int64_t *before,
                               const int64_t *after, double fill) {
    const double most = 3.4028234663852886e38;
    kolo_shape shape = kolo_value_shape(c->g, *x);
    kolo_value border;
    float *f = NULL;
    for (int d = 0; d < shape.rank; d++) {
        if (before[d] == 0 && after[d] == 0) shape.dim[d] = 1;
    }
    const int64_t count = host_count(&shape, HOST_MOST);
    KOLO_TRY(onnx_floats(c, count, &f));
    for (int64_t k = 0; k < count; k++) {
        bool inside = true;
        int64_t rest = k;
        for (int d = shape.rank - 1; d >= 0; d--) {
            const int64_t at = rest % shape.dim[d];
            inside &= at >= before[d] && at < shape.dim[d] - after[d];
            rest /= shape.dim[d];
        }
        f[k] = inside ? 0 : (float)(fill < -most ? -most : fill > most ? most : fill);
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &shape, f, &border));
    *x = kolo_add(c->g, *x, border);
    return kolo_graph_check(c->g);
}

kolo_status onnx_map_pad(onnx_call *c) {
    int64_t all_before[KOLO_MAX_RANK] = {0}, all_after[KOLO_MAX_RANK] = {0};
    int64_t pads[2 * KOLO_MAX_RANK], axes[KOLO_MAX_RANK];
    double fill = onnx_float(c, "value", 0);
    kolo_value x;
    int n, n_axes = -1, d;
    KOLO_TRY(onnx_value(c, 0, &x));
    const int rank = kolo_value_shape(c->g, x).rank;
    KOLO_TRY(onnx_list_since(c, 11, 1, "pads", pads, 2 * KOLO_MAX_RANK, &n));
    if (c->opset >= 11) KOLO_TRY(onnx_number(c, 2, 0, &fill));
    if (c->opset >= 18) KOLO_TRY(onnx_list(c, 3, axes, KOLO_MAX_RANK, &n_axes));
    const int half = n_axes < 0 ? rank : n_axes;
    if (n != 2 * half) return ONNX_FAIL(c, "%d pads for %d dimensions", n, half);
    const bool zeros = onnx_text_is(c, "mode", "constant", true);
    for (int k = 0; k < half; k++) {
        int64_t before = pads[k], after = pads[half + k];
        KOLO_TRY(onnx_axis(c, n_axes < 0 ? k : axes[k], rank, &d));
        if (before == 0 && after == 0) continue;
        if (!zeros) {
            KOLO_TRY(pad_by_copies(c, &x, d, before, after));
            continue;
        }
        const int64_t size = kolo_value_shape(c->g, x).dim[d];
        if (before < -size || after < -size || before > INT32_MAX || after > INT32_MAX) {
            return ONNX_FAIL(c, "pads do not fit");
        }
        const int64_t cut = (before < 0 ? -before : 0) + (after < 0 ? -after : 0);
        if (cut >= size) return ONNX_FAIL(c, "nothing is left of dimension %d", d);
        if (cut > 0) x = kolo_slice(c->g, x, d, before < 0 ? -before : 0, size - cut);
        all_before[d] = before > 0 ? before : 0;
        all_after[d] = after > 0 ? after : 0;
        x = kolo_pad(c->g, x, d, all_before[d], all_after[d]);
    }
    if (zeros && fill != 0) KOLO_TRY(fill_border(c, &x, all_before, all_after, fill));
    return onnx_set(c, 0, x);
}

/* The triangle of x by a mask of zeros and ones. */
kolo_status onnx_map_trilu(onnx_call *c) {
    kolo_value x, mask;
    double k;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_number(c, 1, 0, &k));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (s.rank < 2) return ONNX_FAIL(c, "a matrix is needed");
    const kolo_shape matrix = kolo_shape_2(s.dim[s.rank - 2], s.dim[s.rank - 1]);
    const int64_t count = host_count(&matrix, HOST_MOST);
    float *keep;
    KOLO_TRY(onnx_floats(c, count, &keep));
    for (int64_t e = 0; e < count; e++) {
        double distance = (double)(e % matrix.dim[1]) - (double)(e / matrix.dim[1]);
        keep[e] = onnx_int(c, "upper", 1) ? distance >= k : distance <= k;
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &matrix, keep, &mask));
    return onnx_set(c, 0, kolo_mul(c->g, x, mask));
}

kolo_status onnx_map_center_crop_pad(onnx_call *c) {
    int64_t shape[KOLO_MAX_RANK], axes[KOLO_MAX_RANK];
    kolo_value x;
    int n, n_axes, d;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(onnx_list(c, 1, shape, KOLO_MAX_RANK, &n));
    KOLO_TRY(onnx_ints(c, "axes", axes, KOLO_MAX_RANK, &n_axes));
    if (n != (n_axes < 0 ? s.rank : n_axes)) return ONNX_FAIL(c, "the shape does not fit");
    for (int k = 0; k < n; k++) {
        KOLO_TRY(onnx_axis(c, n_axes < 0 ? k : axes[k], s.rank, &d));
        if (shape[k] < 1 || shape[k] > INT32_MAX) return ONNX_FAIL(c, "size %" PRId64, shape[k]);
        const int64_t more = shape[k] - s.dim[d];
        if (more < 0) x = kolo_slice(c->g, x, d, -more / 2, shape[k]);
        if (more > 0) x = kolo_pad(c->g, x, d, more / 2, more - more / 2);
    }
    return onnx_set(c, 0, x);
}

kolo_status onnx_map_depth_to_space(onnx_call *c) {
    const bool to_space = c->node->op_type[0] == 'D';
    const int64_t b = onnx_int(c, "blocksize", 0);
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (s.rank != 4 || b < 1 || b > 1024) return ONNX_FAIL(c, "attribute blocksize: %" PRId64, b);
    const int64_t *d = s.dim;
    if (!to_space) {
        if (d[2] % b || d[3] % b) return ONNX_FAIL(c, "attribute blocksize does not fit");
        x = onnx_as(c, x, (kolo_shape){6, {d[0], d[1], d[2] / b, b, d[3] / b, b}});
        x = kolo_permute(c->g, x,
                         onnx_text_is(c, "mode", "CRD", false) ? (const int[]){0, 1, 3, 5, 2, 4}
                                                               : (const int[]){0, 3, 5, 1, 2, 4});
        return onnx_set(c, 0, onnx_as(c, x, kolo_shape_4(d[0], d[1] * b * b, d[2] / b, d[3] / b)));
    }
    if (d[1] % (b * b)) return ONNX_FAIL(c, "attribute blocksize does not fit");
    if (onnx_text_is(c, "mode", "CRD", false))
        return onnx_set(c, 0, kolo_pixel_shuffle(c->g, x, b));
    const int64_t channels = d[1] / (b * b);
    x = onnx_as(c, x, (kolo_shape){6, {d[0], b, b, channels, d[2], d[3]}});
    x = kolo_permute(c->g, x, (const int[]){0, 3, 4, 1, 5, 2});
    return onnx_set(c, 0, onnx_as(c, x, kolo_shape_4(d[0], channels, d[2] * b, d[3] * b)));
}
