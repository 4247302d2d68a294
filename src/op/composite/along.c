/* Slices, padding, splits and concatenation along any dimension, and softmax over any: where the
 * op does not take the dimension, it sees a view as [outer,size,inner]. */
#include "graph/ops/arrays.h"
#include "graph/ops/ops.h"

/* A value as an op sees it. */
typedef struct along {
    kolo_value x;
    kolo_shape shape; /* its own */
    int axis;         /* of its own shape */
    int seen;         /* of that of x */
} along;

/* Whether an op takes a dimension as it is: softmax dimension 1, the others all but the samples.
 * Those of images, whose layouts have blocks of channels, are seen as planes. */
static bool takes(const kolo_op *op, const kolo_shape *shape, int axis) {
    return axis == 1 || (axis > 1 && op != &kolo_op_softmax && shape->rank != 4);
}

/* Errors are those of `what`, by `op`. */
static bool view(kolo_graph *g, const char *what, const kolo_op *op, kolo_value x, int axis,
                 along *v) {
    if (!kolo_value_is_of(g, x)) {
        (void)kolo_graph_add1(g, op, &x, 1, NULL); /* fails the graph */
        return false;
    }
    const kolo_shape shape = kolo_value_shape(g, x);
    *v = (along){x, shape, axis < 0 ? axis + shape.rank : axis, 1};
    if (v->axis < 0 || v->axis >= shape.rank) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_ARG, "%s: no dimension %d of %d", what, axis, shape.rank));
        return false;
    }
    if (takes(op, &shape, v->axis)) {
        v->seen = v->axis;
        return true;
    }
    kolo_shape seen = {.rank = 2, .dim = {1, shape.dim[v->axis], 1}};
    for (int d = 0; d < v->axis; d++) seen.dim[0] *= shape.dim[d];
    for (int d = v->axis + 1; d < shape.rank; d++) seen.dim[2] *= shape.dim[d];
    if (v->axis < shape.rank - 1) seen.rank = 3;
    v->x = kolo_reshape(g, x, seen);
    return true;
}

/* y under the shape of v with `size` along the dimension. */
static kolo_value unview(kolo_graph *g, const along *v, const kolo_op *op, kolo_value y,
                         int64_t size) {
    kolo_shape shape = v->shape;
    shape.dim[v->axis] = size;
    return takes(op, &v->shape, v->axis) ? y : kolo_reshape(g, y, shape);
}

static kolo_value window(kolo_graph *g, const along *v, int64_t first, int64_t count) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_WINDOW_FIRST].i = first,
                                            [KOLO_WINDOW_COUNT].i = count,
                                            [KOLO_WINDOW_AXIS].i = v->seen};
    const kolo_value y = kolo_graph_add1(g, &kolo_op_window, &v->x, 1, attr);
    return unview(g, v, &kolo_op_window, y, count);
}

kolo_value kolo_slice(kolo_graph *g, kolo_value x, int axis, int64_t first, int64_t count) {
    along v;
    if (!view(g, "slice", &kolo_op_window, x, axis, &v)) return KOLO_NONE;
    const int64_t size = v.shape.dim[v.axis];
    if (first < 0) first += size;
    if (first < 0 || count < 1 || count > size - first) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_ARG, "slice: %lld elements from %lld on of a dimension of %lld",
                         (long long)count, (long long)first, (long long)size));
        return KOLO_NONE;
    }
    return window(g, &v, first, count);
}

kolo_value kolo_pad(kolo_graph *g, kolo_value x, int axis, int64_t before, int64_t after) {
    along v;
    if (!view(g, "pad", &kolo_op_window, x, axis, &v)) return KOLO_NONE;
    const int64_t most = INT32_MAX - v.shape.dim[v.axis];
    if (before < 0 || after < 0 || before > most || after > most - before) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "pad: by %lld and %lld; give 0 or more",
                                           (long long)before, (long long)after));
        return KOLO_NONE;
    }
    const int64_t size = v.shape.dim[v.axis] + before + after;
    return window(g, &v, -before, size);
}

void kolo_split_along(kolo_graph *g, kolo_value x, int axis, const int64_t *sizes, int n,
                      kolo_value *out) {
    int64_t first = 0;
    const kolo_shape shape = kolo_value_shape(g, x);
    const int dim = axis < 0 ? axis + shape.rank : axis;
    if (!kolo_graph_takes_array(g, "split", "parts", out, n, 0)) return;
    if (!kolo_graph_takes_array(g, "split", "sizes", sizes, n, 0)) {
        for (int i = 0; i < n; i++) out[i] = KOLO_NONE;
        return;
    }
    for (int i = 0; i < n; i++) {
        out[i] = kolo_slice(g, x, axis, first, sizes[i]);
        if (kolo_graph_check(g) == KOLO_OK) first += sizes[i]; /* otherwise any number */
    }
    if (kolo_graph_check(g) == KOLO_OK && n > 0 && first != shape.dim[dim]) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "split: sizes that add up to %lld of %lld",
                                           (long long)first, (long long)shape.dim[dim]));
    }
}

/* Concatenates by eights. */
static kolo_value join(kolo_graph *g, kolo_value *x, int n, int axis) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CONCAT_AXIS].i = axis};
    while (n > KOLO_MAX_IO) {
        int left = 0;
        for (int i = 0; i < n; i += KOLO_MAX_IO) {
            int some = n - i < KOLO_MAX_IO ? n - i : KOLO_MAX_IO;
            x[left++] = some == 1 ? x[i] : kolo_graph_add1(g, &kolo_op_concat, x + i, some, attr);
        }
        n = left;
    }
    return kolo_graph_add1(g, &kolo_op_concat, x, n, attr);
}

kolo_value kolo_concat_along(kolo_graph *g, const kolo_value *x, int n, int axis) {
    if (!kolo_graph_takes_array(g, "concat", "inputs", x, n, 1)) return KOLO_NONE;
    kolo_value *parts = kolo_arena_alloc(&g->arena, (size_t)n * sizeof *parts);
    if (!parts) {
        kolo_graph_set_failed(g, KOLO_NOMEM((size_t)n * sizeof *parts));
        return KOLO_NONE;
    }
    along v = {0};
    int64_t size = 0;
    bool was_direct = false;
    for (int i = 0; i < n; i++) {
        const kolo_shape first = v.shape;
        if (!view(g, "concat", &kolo_op_concat, x[i], axis, &v)) return KOLO_NONE;
        kolo_shape same = v.shape;
        if (i > 0 && same.rank == first.rank) same.dim[v.axis] = first.dim[v.axis];
        const bool direct = v.seen == v.axis; /* the rule of the op compares the shapes */
        bool fits = i == 0 || (direct && was_direct) || kolo_shape_equal(&same, &first);
        was_direct = direct;
        if (!fits) {
            kolo_graph_set_failed(
                g,
                KOLO_FAIL(KOLO_ERR_ARG, "concat: inputs %d and %d differ in more than dimension %d",
                          i - 1, i, v.axis));
            return KOLO_NONE;
        }
        size += v.shape.dim[v.axis];
        parts[i] = v.x;
    }
    return unview(g, &v, &kolo_op_concat, join(g, parts, n, v.seen), size);
}

kolo_value kolo_concat(kolo_graph *g, const kolo_value *x, int n) {
    return kolo_concat_along(g, x, n, 1);
}

static kolo_value softmax(kolo_graph *g, kolo_value x, int axis, bool log) {
    along v;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SOFTMAX_LOG].i = log};
    if (!view(g, "softmax", &kolo_op_softmax, x, axis, &v)) return KOLO_NONE;
    kolo_value y = kolo_graph_add1(g, &kolo_op_softmax, &v.x, 1, attr);
    return unview(g, &v, &kolo_op_softmax, y, v.shape.dim[v.axis]);
}
kolo_value kolo_softmax(kolo_graph *g, kolo_value x, int axis) {
    return softmax(g, x, axis, false);
}
kolo_value kolo_log_softmax(kolo_graph *g, kolo_value x, int axis) {
    return softmax(g, x, axis, true);
}
