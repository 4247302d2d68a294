/* Reductions over dimensions: shapes, index notation, and the builder. */
#include "graph/ops/axes.h"

#include "graph/ops/arrays.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <stdio.h>

kolo_shape kolo_axes_shape(const kolo_attr *attr, const kolo_shape *x) {
    kolo_shape y = {0};
    for (int d = 0; d < x->rank; d++) {
        bool over = kolo_sum_over(attr, d);
        if (!over || attr[KOLO_SUM_KEEP].i) y.dim[y.rank++] = over ? 1 : x->dim[d];
    }
    return y;
}

kolo_status kolo_axes_rule(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype),
                         kolo_axes_shape(q->attr, &q->in[0].shape));
}

void kolo_axes_terms(const kolo_attr *attr, const kolo_shape *x, bool whole,
                     char of_x[KOLO_AXES_TERM], char of_y[KOLO_AXES_TERM]) {
    for (int d = 0; d < x->rank; d++) {
        bool over = kolo_sum_over(attr, d);
        const char letter = (char)('a' + d);
        *of_x++ = over && whole ? 'W' : letter;
        if (!over || attr[KOLO_SUM_KEEP].i) *of_y++ = over ? 'W' : letter;
    }
    *of_x = *of_y = 0;
}

int64_t kolo_axes_place(const kolo_attr *attr, const kolo_shape *x, int64_t k) {
    int64_t offset = 0, stride = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        int64_t index = k % x->dim[d];
        k /= x->dim[d];
        if (kolo_sum_over(attr, d)) continue;
        offset += index * stride;
        stride *= x->dim[d];
    }
    return offset;
}

const char *kolo_axes_index(const kolo_attr *attr, const kolo_shape *in, char *text, bool whole) {
    char x[KOLO_AXES_TERM], y[KOLO_AXES_TERM];
    kolo_axes_terms(attr, &in[0], whole, x, y);
    snprintf(text, KOLO_NOTATION, "%s->%s", x, y);
    return text;
}

/* Sets the bits of axes[0..n) of x; false, and the graph fails, if they are not dimensions of x. */
static bool axes_of(kolo_graph *g, kolo_value x, const int *axes, int n, int64_t *bits) {
    const int rank = kolo_value_shape(g, x).rank;
    *bits = 0;
    if (!kolo_graph_takes_array(g, "reduction", "dimensions", axes, n, 0)) return false;
    for (int i = 0; i < n && kolo_value_is_of(g, x); i++) {
        int axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        bool twice = axis >= 0 && axis < rank && (*bits >> axis & 1);
        if (axis < 0 || axis >= rank || twice) {
            kolo_graph_set_failed(
                g, KOLO_FAIL(KOLO_ERR_ARG, "a reduction over dimension %d, %s of %d dimensions",
                             axes[i], twice ? "named twice," : "of a value", rank));
            return false;
        }
        *bits |= 1 << axis;
    }
    return true;
}

kolo_value kolo_axes_reduce(kolo_graph *g, const kolo_op *op, kolo_value x, const int *axes, int n,
                            bool keep, bool third) {
    int64_t bits;
    if (!axes_of(g, x, axes, n, &bits)) return KOLO_NONE;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SUM_AXES].i = bits, [KOLO_SUM_KEEP].i = keep, [KOLO_SUM_MEAN].i = third};
    return kolo_graph_add1(g, op, &x, 1, attr);
}
