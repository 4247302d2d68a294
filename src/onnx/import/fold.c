/* Operators on constants that move elements, or make constants. */
#include "onnx/import/fold.h"

#include <inttypes.h>
#include <string.h>

/* ---- index maps ---- */

/* The strides of a row-major tensor. */
static void strides_of(const kolo_shape *s, int64_t *stride) {
    int64_t step = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= s->dim[d];
    }
}

/* Sets output 0 to the elements first + sum of index[d] stride[d] of x. */
static kolo_status gather_strided(onnx_call *c, const host_tensor *x, const kolo_shape *shape,
                                  int64_t first, const int64_t *stride) {
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL, index[KOLO_MAX_RANK] = {0}, at = first;
    KOLO_TRY(onnx_new_constant(c, shape, x->integer, &y, &f, &i));
    y.boolean = x->boolean;
    for (int64_t k = 0; k < y.count; k++) {
        if (i) i[k] = x->i[at];
        if (f) f[k] = x->f[at];
        for (int d = shape->rank - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < shape->dim[d]) break;
            at -= stride[d] * shape->dim[d];
            index[d] = 0;
        }
    }
    return onnx_set_constant(c, 0, &y);
}

void onnx_broadcast_strides(const kolo_shape *x, const kolo_shape *shape, int64_t *stride) {
    int64_t own[KOLO_MAX_RANK] = {0};
    strides_of(x, own);
    for (int d = 0; d < shape->rank; d++) {
        int from = d - (shape->rank - x->rank);
        stride[d] = from < 0 || x->dim[from] == 1 ? 0 : own[from];
    }
}

/* ---- shapes ---- */

/* The dimension of a constant shape that the exporter computed for its own batch, to be scaled to
 * the samples of the graph; -1: none. It is the first that differs from x, and not the last one. */
static int batch_dim(const onnx_call *c, const kolo_shape *x, const kolo_shape *y, int open) {
    const int64_t b = c->m->stated, s = c->m->samples;
    const kolo_shape rows = kolo_value_shape(c->g, c->in[0]->rows);
    int64_t known = 1;
    int at = 0;
    for (int d = 0; d < y->rank; d++) known *= d == open ? 1 : y->dim[d];
    const int64_t count = host_count(x, INT64_MAX / 64);
    if (open >= 0) {
        if (c->m->open) return -1; /* the exporter computes it for any batch */
        /* The samples, or parts of them such as windows, become the samples or parts of them. */
        const bool apart = open > 0 && x->rank > 0 && x->dim[0] % s == 0;
        bool first = apart && (y->dim[0] == b || y->dim[0] == x->dim[0] / s * b);
        return first ? 0 : -1;
    }
    if (known == count || known <= 0 || known % b != 0 || known / b > count / s ||
        known / b * s != count) {
        return -1;
    }
    for (int d = 0; d < y->rank && c->in[0]->rows.id >= 0 && rows.rank == y->rank; d++) {
        kolo_shape scaled = *y;
        scaled.dim[d] = scaled.dim[d] / b * s;
        if (kolo_shape_equal(&scaled, &rows)) return d;
    }
    while (at < x->rank && at < y->rank && x->dim[at] == y->dim[at]) at++;
    if (at > y->rank - 2) at = y->rank > 1 ? y->rank - 2 : 0;
    return y->rank > 0 && y->dim[at] % b == 0 ? at : -1;
}

static kolo_status reshape_to(onnx_call *c, const kolo_shape *x, kolo_shape *y) {
    int64_t want[KOLO_MAX_RANK];
    int n, open = -1;
    KOLO_TRY(onnx_list(c, 1, want, KOLO_MAX_RANK, &n));
    if (n < 0) return ONNX_FAIL(c, "input 1 is missing");
    const bool zero = onnx_int(c, "allowzero", 0) != 0;
    const int64_t count = host_count(x, INT64_MAX / 64), b = c->m->stated, s = c->m->samples;
    int64_t known = 1;
    *y = (kolo_shape){.rank = n};
    for (int d = 0; d < n; d++) {
        if (want[d] == 0 && !zero && d >= x->rank) return ONNX_FAIL(c, "0 for a missing dimension");
        y->dim[d] = want[d] == 0 && !zero ? x->dim[d] : want[d];
        if (y->dim[d] == -1 && open < 0) {
            open = d;
        } else if (y->dim[d] < 0 || (y->dim[d] > 0 && known > INT64_MAX / 64 / y->dim[d])) {
            return ONNX_FAIL(c, "the shape has a dimension of %" PRId64, y->dim[d]);
        } else {
            known *= y->dim[d];
        }
    }
    const int batch =
        onnx_decide(c->m, s != b && c->in[0]->batched ? batch_dim(c, x, y, open) : -1);
    if (batch >= 0) {
        y->dim[batch] = y->dim[batch] / b * s;
        known = known / b > INT64_MAX / 64 / s ? INT64_MAX / 64 : known / b * s;
    }
    if (open >= 0) y->dim[open] = known > 0 ? count / known : 0;
    if (host_count(y, INT64_MAX / 64) == count) return KOLO_OK;
    char from[KOLO_SHAPE_TEXT], to[KOLO_SHAPE_TEXT];
    return ONNX_FAIL(c, "%s cannot have the shape %s", kolo_shape_text(x, from),
                     kolo_shape_text(y, to));
}

static kolo_status squeeze_to(onnx_call *c, const kolo_shape *x, kolo_shape *y) {
    int64_t axes[KOLO_MAX_RANK];
    int n, axis;
    unsigned drop = 0;
    KOLO_TRY(onnx_list_since(c, 13, 1, "axes", axes, KOLO_MAX_RANK, &n));
    for (int k = 0; k < n; k++) {
        KOLO_TRY(onnx_axis(c, axes[k], x->rank, &axis));
        if (x->dim[axis] != 1) return ONNX_FAIL(c, "dimension %d is not of size 1", axis);
        drop |= 1u << axis;
    }
    *y = (kolo_shape){.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        bool gone = n < 0 ? x->dim[d] == 1 : drop >> d & 1;
        if (!gone) y->dim[y->rank++] = x->dim[d];
    }
    return KOLO_OK;
}

static kolo_status unsqueeze_to(onnx_call *c, const kolo_shape *x, kolo_shape *y) {
    int64_t axes[KOLO_MAX_RANK];
    int n, axis;
    unsigned fresh = 0;
    KOLO_TRY(onnx_list_since(c, 13, 1, "axes", axes, KOLO_MAX_RANK, &n));
    const int rank = x->rank + n;
    if (n < 0 || rank > KOLO_MAX_RANK) {
        return ONNX_FAIL(c, "a result of %d dimensions; at most %d fit", rank, KOLO_MAX_RANK);
    }
    for (int k = 0; k < n; k++) {
        KOLO_TRY(onnx_axis(c, axes[k], rank, &axis));
        if (fresh >> axis & 1) return ONNX_FAIL(c, "axis %d is named twice", axis);
        fresh |= 1u << axis;
    }
    *y = (kolo_shape){.rank = rank};
    for (int d = 0, from = 0; d < rank; d++) y->dim[d] = fresh >> d & 1 ? 1 : x->dim[from++];
    return KOLO_OK;
}

static kolo_status flatten_to(onnx_call *c, const kolo_shape *x, kolo_shape *y) {
    int64_t axis = onnx_int(c, "axis", 1);
    if (axis < -x->rank || axis > x->rank) return ONNX_FAIL(c, "attribute axis: %" PRId64, axis);
    axis += axis < 0 ? x->rank : 0;
    *y = kolo_shape_2(1, 1);
    for (int d = 0; d < x->rank; d++) y->dim[d >= axis] *= x->dim[d];
    return KOLO_OK;
}

kolo_status onnx_new_shape(onnx_call *c, const kolo_shape *x, kolo_shape *y) {
    switch (c->node->op_type[0]) {
    case 'R':
        return reshape_to(c, x, y);
    case 'S':
        return squeeze_to(c, x, y);
    case 'U':
        return unsqueeze_to(c, x, y);
    default:
        return flatten_to(c, x, y);
    }
}

kolo_status onnx_fold_reshape(onnx_call *c) {
    host_tensor t = c->in[0]->tensor;
    KOLO_TRY(onnx_new_shape(c, &c->in[0]->tensor.shape, &t.shape));
    return onnx_set_constant(c, 0, &t);
}

kolo_status onnx_fold_identity(onnx_call *c) { return onnx_set_constant(c, 0, &c->in[0]->tensor); }

kolo_status onnx_fold_transpose(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    int64_t order[KOLO_MAX_RANK] = {0}, own[KOLO_MAX_RANK] = {0}, stride[KOLO_MAX_RANK] = {0};
    int n;
    KOLO_TRY(onnx_ints(c, "perm", order, KOLO_MAX_RANK, &n));
    kolo_shape shape = {.rank = x->shape.rank};
    strides_of(&x->shape, own);
    for (int d = 0; d < shape.rank; d++) {
        int64_t from = n < 0 ? shape.rank - 1 - d : d < n ? order[d] : -1;
        if (from < 0 || from >= shape.rank) return ONNX_FAIL(c, "attribute perm does not fit");
        shape.dim[d] = x->shape.dim[from];
        stride[d] = own[from];
    }
    if (host_count(&shape, HOST_MOST) != x->count)
        return ONNX_FAIL(c, "attribute perm does not fit");
    return gather_strided(c, x, &shape, 0, stride);
}

kolo_status onnx_fold_concat(onnx_call *c) {
    int axis;
    kolo_shape shape = c->in[0]->tensor.shape;
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), shape.rank, &axis));
    int64_t total = 0, outer = 1;
    for (int k = 0; k < c->n_in; k++) {
        if (!c->in[k]) return ONNX_FAIL(c, "input %d is missing", k);
        const host_tensor *t = &c->in[k]->tensor;
        if (t->shape.rank != shape.rank || t->integer != c->in[0]->tensor.integer) {
            return ONNX_FAIL(c, "inputs of different types or dimensions");
        }
        for (int d = 0; d < shape.rank; d++) {
            if (d != axis && t->shape.dim[d] != shape.dim[d])
                return ONNX_FAIL(c, "shapes do not fit");
        }
        if (t->shape.dim[axis] > HOST_MOST) return ONNX_FAIL(c, "too large");
        total += t->shape.dim[axis];
    }
    shape.dim[axis] = total;
    for (int d = 0; d < axis; d++) outer *= shape.dim[d];
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, c->in[0]->tensor.integer, &y, &f, &i));
    y.boolean = c->in[0]->tensor.boolean;
    for (int64_t row = 0, to = 0; row < outer; row++) {
        for (int k = 0; k < c->n_in; k++) {
            const host_tensor *t = &c->in[k]->tensor;
            const int64_t each = t->count / outer;
            for (int64_t e = 0; e < each; e++, to++) {
                if (i) i[to] = t->i[row * each + e];
                if (f) f[to] = t->f[row * each + e];
            }
        }
    }
    return onnx_set_constant(c, 0, &y);
}

/* A bound of Slice along a dimension, clamped as ONNX does. */
static int64_t clamp_bound(int64_t bound, int64_t size, int64_t low, int64_t high) {
    if (bound < 0) bound = bound < -size ? low : bound + size;
    return bound < low ? low : bound > high ? high : bound;
}

kolo_status onnx_slice_ranges(onnx_call *c, const kolo_shape *x, int64_t *first, int64_t *step,
                              kolo_shape *y) {
    int64_t starts[KOLO_MAX_RANK], ends[KOLO_MAX_RANK], axes[KOLO_MAX_RANK], steps[KOLO_MAX_RANK];
    int n, n_ends, n_axes, n_steps = -1, axis;
    KOLO_TRY(onnx_list_since(c, 10, 1, "starts", starts, KOLO_MAX_RANK, &n));
    KOLO_TRY(onnx_list_since(c, 10, 2, "ends", ends, KOLO_MAX_RANK, &n_ends));
    KOLO_TRY(onnx_list_since(c, 10, 3, "axes", axes, KOLO_MAX_RANK, &n_axes));
    if (c->opset >= 10) KOLO_TRY(onnx_list(c, 4, steps, KOLO_MAX_RANK, &n_steps));
    bool fit =
        n >= 0 && n_ends == n && (n_axes < 0 || n_axes == n) && (n_steps < 0 || n_steps == n);
    if (!fit || n > x->rank) return ONNX_FAIL(c, "starts, ends, axes and steps do not fit");
    *y = *x;
    for (int d = 0; d < x->rank; d++) {
        first[d] = 0;
        step[d] = 1;
    }
    for (int k = 0; k < n; k++) {
        KOLO_TRY(onnx_axis(c, n_axes < 0 ? k : axes[k], x->rank, &axis));
        const int64_t size = x->dim[axis], by = n_steps < 0 ? 1 : steps[k];
        if (by == 0 || by < -INT32_MAX || by > INT64_MAX / 2)
            return ONNX_FAIL(c, "a step of %" PRId64, by);
        int64_t from = by > 0 ? clamp_bound(starts[k], size, 0, size)
                              : clamp_bound(starts[k], size, 0, size - 1);
        int64_t to =
            by > 0 ? clamp_bound(ends[k], size, 0, size) : clamp_bound(ends[k], size, -1, size - 1);
        const int64_t length = by > 0 ? to - from : from - to, stride = by > 0 ? by : -by;
        first[axis] = from;
        step[axis] = by;
        y->dim[axis] = length > 0 ? (length - 1) / stride + 1 : 0;
    }
    return KOLO_OK;
}

kolo_status onnx_fold_slice(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    int64_t first[KOLO_MAX_RANK] = {0}, stride[KOLO_MAX_RANK] = {0}, own[KOLO_MAX_RANK] = {0};
    int64_t at = 0;
    kolo_shape shape = {0};
    KOLO_TRY(onnx_slice_ranges(c, &x->shape, first, stride, &shape));
    strides_of(&x->shape, own);
    for (int d = 0; d < shape.rank; d++) {
        if (shape.dim[d] == 1) stride[d] = 0; /* a step of any size */
        at += first[d] * own[d];
        stride[d] *= own[d];
    }
    return gather_strided(c, x, &shape, at, stride);
}

kolo_status onnx_fold_gather(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor, *at = &c->in[1]->tensor;
    int axis;
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), x->shape.rank, &axis));
    kolo_shape shape = {.rank = x->shape.rank - 1 + at->shape.rank};
    if (!at->integer || shape.rank > KOLO_MAX_RANK) return ONNX_FAIL(c, "indices do not fit");
    int64_t outer = 1, inner = 1;
    for (int d = 0, to = 0; d < x->shape.rank; d++) {
        if (d < axis) outer *= x->shape.dim[d];
        if (d > axis) inner *= x->shape.dim[d];
        if (d != axis) shape.dim[to++] = x->shape.dim[d];
        for (int k = 0; d == axis && k < at->shape.rank; k++) shape.dim[to++] = at->shape.dim[k];
    }
    const int64_t size = x->shape.dim[axis];
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, x->integer, &y, &f, &i));
    y.boolean = x->boolean;
    for (int64_t row = 0, to = 0; row < outer; row++) {
        for (int64_t k = 0; k < at->count; k++) {
            int64_t index = at->i[k] < 0 ? at->i[k] + size : at->i[k];
            if (index < 0 || index >= size)
                return ONNX_FAIL(c, "index %" PRId64 " is outside", at->i[k]);
            for (int64_t e = 0; e < inner; e++, to++) {
                int64_t from = (row * size + index) * inner + e;
                if (i) i[to] = x->i[from];
                if (f) f[to] = x->f[from];
            }
        }
    }
    return onnx_set_constant(c, 0, &y);
}

/* Expand, and Tile by way of repeated indices. */
kolo_status onnx_fold_expand(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    int64_t want[KOLO_MAX_RANK] = {0}, stride[KOLO_MAX_RANK] = {0};
    kolo_shape shape = {0}, to = {0};
    KOLO_TRY(onnx_list(c, 1, want, KOLO_MAX_RANK, &to.rank));
    if (to.rank < 0) return ONNX_FAIL(c, "input 1 is missing");
    memcpy(to.dim, want, (size_t)to.rank * sizeof *want);
    if (!onnx_broadcast(&x->shape, &to, &shape)) return ONNX_FAIL(c, "shapes do not fit");
    if (host_count(&shape, HOST_MOST) < 0)
        return ONNX_FAIL(c, "a constant of more than %d elements", HOST_MOST);
    onnx_broadcast_strides(&x->shape, &shape, stride);
    return gather_strided(c, x, &shape, 0, stride);
}

kolo_status onnx_fold_trilu(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    double k = 0;
    KOLO_TRY(onnx_number(c, 1, 0, &k));
    const bool upper = onnx_int(c, "upper", 1) != 0;
    const int rank = x->shape.rank;
    if (rank < 2) return ONNX_FAIL(c, "a matrix is needed");
    const int64_t rows = x->shape.dim[rank - 2], columns = x->shape.dim[rank - 1];
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &x->shape, x->integer, &y, &f, &i));
    y.boolean = x->boolean;
    for (int64_t at = 0; at < y.count; at++) {
        double distance = (double)(at % columns) - (double)(at / columns % rows);
        bool keep = upper ? distance >= k : distance <= k;
        if (i) i[at] = keep ? x->i[at] : 0;
        if (f) f[at] = keep ? x->f[at] : 0;
    }
    return onnx_set_constant(c, 0, &y);
}

kolo_status onnx_fold_fill(onnx_call *c) {
    kolo_shape shape = {0};
    const Onnx__AttributeProto *value = onnx_attribute(c, "value");
    host_tensor y, fill = {.count = 1, .f = (const float[]){0}};
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_list(c, 0, shape.dim, KOLO_MAX_RANK, &shape.rank));
    if (value && value->t) {
        KOLO_TRY(onnx_read_tensor(c->m->onnx, value->t, "ConstantOfShape", &c->m->arena, &fill));
    }
    if (fill.count != 1) return ONNX_FAIL(c, "attribute value must be one number");
    KOLO_TRY(onnx_new_constant(c, &shape, fill.integer, &y, &f, &i));
    y.boolean = fill.boolean;
    for (int64_t k = 0; k < y.count; k++) {
        if (i && fill.i) i[k] = fill.i[0];
        if (f && fill.f) f[k] = fill.f[0];
    }
    return onnx_set_constant(c, 0, &y);
}

/* ---- sources of constants ---- */

kolo_status onnx_constant_node(onnx_call *c) {
    const Onnx__AttributeProto *a = c->node->n_attribute ? c->node->attribute[0] : NULL;
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    if (!a) return ONNX_FAIL(c, "no value");
    if (a->t) {
        char what[128];
        snprintf(what, sizeof what, "%.60s: constant \"%.50s\"", c->m->onnx->path,
                 c->n_out > 0 ? c->node->output[0] : "");
        KOLO_TRY(onnx_read_tensor(c->m->onnx, a->t, what, &c->m->arena, &y));
        return onnx_set_constant(c, 0, &y);
    }
    const bool list = a->n_ints > 0 || a->n_floats > 0 || strcmp(a->name, "value_ints") == 0 ||
                      strcmp(a->name, "value_floats") == 0;
    const bool integer = a->n_ints > 0 || a->has_i || strcmp(a->name, "value_ints") == 0;
    if (!list && !a->has_i && !a->has_f)
        return ONNX_FAIL(c, "attribute %.60s is not supported", a->name);
    const kolo_shape shape =
        list ? kolo_shape_1((int64_t)(integer ? a->n_ints : a->n_floats)) : kolo_shape_0();
    KOLO_TRY(onnx_new_constant(c, &shape, integer, &y, &f, &i));
    for (int64_t k = 0; k < y.count; k++) {
        if (i) i[k] = list ? a->ints[k] : a->i;
        if (f) f[k] = list ? a->floats[k] : a->f;
    }
    return onnx_set_constant(c, 0, &y);
}

kolo_status onnx_shape_of(onnx_call *c) {
    const kolo_shape x = onnx_shape(c, 0);
    int64_t start = onnx_int(c, "start", 0), end = onnx_int(c, "end", x.rank);
    start = clamp_bound(start, x.rank, 0, x.rank);
    end = clamp_bound(end, x.rank, 0, x.rank);
    const kolo_shape shape = kolo_shape_1(end > start ? end - start : 0);
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, true, &y, &f, &i));
    for (int64_t k = 0; k < y.count; k++) i[k] = x.dim[start + k];
    return onnx_set_constant(c, 0, &y);
}

kolo_status onnx_size_of(onnx_call *c) {
    const kolo_shape x = onnx_shape(c, 0), shape = kolo_shape_0();
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, true, &y, &f, &i));
    i[0] = host_count(&x, INT64_MAX / 64);
    return onnx_set_constant(c, 0, &y);
}
