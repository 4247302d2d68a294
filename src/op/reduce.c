/* Sums and means over dimensions, with their gradient. A sum may be cut along the dimensions that
 * it is over, a mean may not. */
#include "graph/ops/axes.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <stdio.h>
#include <string.h>

static const char *const sum_attrs[] = {"axes", "keep", "mean", NULL};

static kolo_status sum_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    kolo_shape want = kolo_axes_shape(q->attr, &q->in[1].shape);
    char text[KOLO_SHAPE_TEXT];
    if (!kolo_shape_equal(&q->in[0].shape, &want)) {
        return KOLO_RULE_FAIL(q, "dy must be %s", kolo_shape_text(&want, text));
    }
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[1].dtype), q->in[1].shape);
}

static const char *sum_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    return kolo_axes_index(attr, in, text, attr[KOLO_SUM_MEAN].i != 0);
}
static const char *sum_bwd_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                 char *text) {
    char x[KOLO_AXES_TERM], y[KOLO_AXES_TERM];
    kolo_axes_terms(attr, &in[1], attr[KOLO_SUM_MEAN].i != 0, x, y);
    snprintf(text, KOLO_NOTATION, "%s,%s->%s", y, x, x);
    return text;
}

/* Whether the gradient of the op reads input 0, which therefore lives until then. */
static bool keeps_input(const kolo_op *op) {
#define ROW(X, name, p, q, reads, forward, backward) {&kolo_op_##name, #reads},
    static const struct {
        const kolo_op *op;
        const char *reads;
    } rows[] = {KOLO_UNARY_LIST(ROW, )};
#undef ROW
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        if (rows[i].op == op) return strcmp(rows[i].reads, "INPUT") == 0;
    }
    return op == &kolo_op_mul;
}

/* A value like x, of which sum_bwd reads the shape only: what x is made from, if that is kept for
 * the backward pass anyway, so that x is not. */
static kolo_value kept_like(const kolo_graph *g, kolo_value x) {
    const int32_t producer = kolo_info(g, x)->producer;
    if (producer < 0 || !keeps_input(g->nodes[producer]->op)) return x;
    return g->nodes[producer]->in[0];
}

static void sum_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], kept_like(g, n->in[0])};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_sum_bwd, in, 2, n->attr);
}

const kolo_op kolo_op_sum = {
    .name = "sum",
    .index_of = sum_index,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "e", .out = "p"},
    .attrs = sum_attrs,
    .shape = kolo_axes_rule,
    .grad = sum_grad,
};
const kolo_op kolo_op_sum_bwd = {
    .name = "sum_bwd",
    .index_of = sum_bwd_index,
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pe", .out = "e"},
    .attrs = sum_attrs,
    .shape = sum_bwd_shape,
    .overwrite = 1u << 1,
    .bf16 = 1u << 1, /* not read */
    .bf16_joins = true,
};
kolo_value kolo_sum(kolo_graph *g, kolo_value x) { return kolo_reduce_sum(g, x, NULL, 0, false); }
kolo_value kolo_reduce_sum(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep) {
    return kolo_axes_reduce(g, &kolo_op_sum, x, axes, n, keep, false);
}
kolo_value kolo_reduce_mean(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep) {
    return kolo_axes_reduce(g, &kolo_op_sum, x, axes, n, keep, true);
}

/* ---- reference ---- */

/* Elements of x for each of y, when means divide by them; else 1. */
static double divisor(const kolo_attr *attr, const kolo_shape *x) {
    double count = 1;
    for (int d = 0; d < x->rank && attr[KOLO_SUM_MEAN].i; d++) {
        if (kolo_sum_over(attr, d)) count *= (double)x->dim[d];
    }
    return count;
}

static void sum(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_shape *shape = &spec->in[0].shape;
    const double *x = call->in[0], by = divisor(spec->attr, shape);
    const int64_t n = kolo_shape_count(&spec->out[0].shape);
    double *y = call->out[0];
    for (int64_t i = 0; i < n; i++) y[i] = 0;
    for (int64_t k = 0; k < kolo_shape_count(shape); k++)
        y[kolo_axes_place(spec->attr, shape, k)] += x[k];
    for (int64_t i = 0; i < n; i++) y[i] /= by;
}

static void sum_bwd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_shape *shape = &spec->out[0].shape;
    const double *dy = call->in[0], by = divisor(spec->attr, shape);
    double *dx = call->out[0];
    for (int64_t k = 0; k < kolo_shape_count(shape); k++) {
        dx[k] = dy[kolo_axes_place(spec->attr, shape, k)] / by;
    }
}

static void run_sum(const kolo_call *call) { kolo_ref_run(call, sum); }
static void run_sum_bwd(const kolo_call *call) { kolo_ref_run(call, sum_bwd); }

const kolo_kernel kolo_ops_reduce[] = {
    KOLO_REF_KERNEL("ref_sum", &kolo_op_sum, run_sum),
    KOLO_REF_KERNEL("ref_sum_bwd", &kolo_op_sum_bwd, run_sum_bwd),
    {0},
};
