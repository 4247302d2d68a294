/* Maxima and minima over dimensions. */
#include "graph/ops/axes.h"
#include "graph/ops/ops.h"
#include "kernel/ref/ref.h"

#include <math.h>

static const char *const max_attrs[] = {"axes", "keep", "min", NULL};

static const char *max_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    return kolo_axes_index(attr, in, text, true);
}

/* dy divided between the elements that are equal to the maximum. */
static void max_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    const kolo_shape x = kolo_info(g, n->in[0])->tensor.shape;
    kolo_shape kept = x;
    kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SUM_AXES] = n->attr[KOLO_SUM_AXES], [KOLO_SUM_KEEP].i = 1};
    kolo_attr repeat[KOLO_MAX_ATTRS] = {{0}};
    for (int d = 0; d < x.rank; d++) {
        if (!kolo_sum_over(n->attr, d)) continue;
        kept.dim[d] = 1;
        if (x.dim[d] != 1) repeat[KOLO_BINARY_REPEAT_B].i |= 1 << d;
    }
    if (!wants[0]) return;
    const kolo_value most[] = {n->in[0], kolo_reshape(g, n->out[0], kept)};
    kolo_value is_most = kolo_graph_add1(g, &kolo_op_equal, most, 2, repeat);
    kolo_value count = kolo_graph_add1(g, &kolo_op_sum, &is_most, 1, attr);
    d_in[0] = kolo_mul(g, is_most, kolo_div(g, kolo_reshape(g, d_out[0], kept), count));
}

const kolo_op kolo_op_reduce_max = {
    .name = "reduce_max",
    .index_of = max_index,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "e", .out = "p"},
    .attrs = max_attrs,
    .shape = kolo_axes_rule,
    .grad = max_grad,
};

kolo_value kolo_reduce_max(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep) {
    return kolo_axes_reduce(g, &kolo_op_reduce_max, x, axes, n, keep, false);
}
kolo_value kolo_reduce_min(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep) {
    return kolo_axes_reduce(g, &kolo_op_reduce_max, x, axes, n, keep, true);
}

/* ---- reference ---- */

/* The larger, or the NaN. */
static double larger(double a, double b) { return a > b ? a : b >= a ? b : a + b; }

static void reduce_max(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0], sign = spec->attr[KOLO_REDUCE_MIN].i ? -1 : 1;
    const int64_t n = kolo_shape_count(&spec->out[0].shape);
    double *y = call->out[0];
    for (int64_t i = 0; i < n; i++) y[i] = -INFINITY;
    for (int64_t k = 0; k < kolo_shape_count(&spec->in[0].shape); k++) {
        double *most = &y[kolo_axes_place(spec->attr, &spec->in[0].shape, k)];
        *most = larger(*most, sign * x[k]);
    }
    for (int64_t i = 0; i < n; i++) y[i] *= sign;
}

static void run_reduce_max(const kolo_call *call) { kolo_ref_run(call, reduce_max); }

const kolo_kernel kolo_ops_extremum[] = {
    KOLO_REF_KERNEL("ref_reduce_max", &kolo_op_reduce_max, run_reduce_max),
    {0},
};
