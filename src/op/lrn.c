/* Local response normalization across channels. Krizhevsky, Sutskever, Hinton, "ImageNet
 * classification with deep convolutional neural networks", NIPS 2012, section 3.3; alpha is divided
 * by the size of the window, as PyTorch does.
 *
 * The forward op stores the divisor before the power, s. With it the gradient is
 *
 *     dx_i = dy_i s_i^-b - 2 (alpha / size) b x_i * sum_j dy_j x_j s_j^(-b - 1)
 *
 * over the channels j whose windows contain i: those of the mirrored window. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>

static const char *const attrs[] = {"size", "%alpha", "%beta", "%k", NULL};

static kolo_status check_attrs(const kolo_shape_query *q) {
    int64_t size = q->attr[KOLO_LRN_SIZE].i;
    double alpha = q->attr[KOLO_LRN_ALPHA].f, beta = q->attr[KOLO_LRN_BETA].f;
    double k = q->attr[KOLO_LRN_K].f;
    if (q->in[0].shape.rank < 2) {
        return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    }
    if (size < 1 || size > 1 << 16) {
        return KOLO_RULE_FAIL(q, "the window size is %" PRId64 "; choose 1 to 65536", size);
    }
    if (!(alpha >= 0 && beta > 0 && k >= 0)) {
        return KOLO_RULE_FAIL(
            q, "alpha %g, beta %g, k %g; alpha and k must be 0 or more, beta above 0", alpha, beta,
            k);
    }
    return KOLO_OK;
}

static kolo_status lrn_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(check_attrs(q));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(check_attrs(q));
    for (int i = 1; i < 3; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void lrn_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    if (kolo_value_ok(d_out[1])) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                                           "lrn: its sums are not differentiable; use output y"));
        return;
    }
    const kolo_value in[] = {d_out[0], n->in[0], n->out[1]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_lrn_bwd, in, 3, n->attr);
}

/* A multiply-add per element of a window, and about ten operations for the power. */
static kolo_cost lrn_cost(const kolo_shape_query *q) {
    double per_element = 2 * (double)q->attr[KOLO_LRN_SIZE].i + 10;
    return (kolo_cost){per_element * (double)kolo_shape_count(&q->in[0].shape),
                       kolo_query_bytes(q)};
}

const kolo_op kolo_op_lrn = {
    .name = "lrn",
    .index = "nC*->nC*,nC*",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "aa"},
    .attrs = attrs,
    .shape = lrn_shape,
    .grad = lrn_grad,
    .cost = lrn_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x3u},
};
const kolo_op kolo_op_lrn_bwd = {
    .name = "lrn_bwd",
    .index = "nC*,nC*,nC*->nC*",
    .linear = 0x1u,
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "aaa", .out = "a"},
    .attrs = attrs,
    .shape = bwd_shape,
    .cost = lrn_cost,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2,
    .samples = {.in = 0x7u, .out = 0x1u},
};

kolo_value kolo_lrn(kolo_graph *g, kolo_value x, const kolo_lrn_opts *opts) {
    kolo_lrn_opts o = opts ? *opts : (kolo_lrn_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_LRN_SIZE].i = o.size ? o.size : 5,
        [KOLO_LRN_ALPHA].f = o.alpha != 0 ? o.alpha : 1e-4,
        [KOLO_LRN_BETA].f = o.beta != 0 ? o.beta : 0.75,
        [KOLO_LRN_K].f = o.k != 0 ? o.k : 1,
    };
    return kolo_graph_add1(g, &kolo_op_lrn, &x, 1, attr);
}

/* ---- reference ---- */

typedef struct lrn {
    int64_t n, channels, plane, size;
    double alpha, beta, k; /* alpha divided by the size */
} lrn;

static lrn lrn_of(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const kolo_attr *a = call->spec->attr;
    lrn l = {.n = s->dim[0], .channels = s->dim[1], .size = a[KOLO_LRN_SIZE].i};
    l.plane = kolo_shape_count(s) / (l.n * l.channels);
    l.alpha = a[KOLO_LRN_ALPHA].f / (double)l.size;
    l.beta = a[KOLO_LRN_BETA].f;
    l.k = a[KOLO_LRN_K].f;
    return l;
}

static void forwards(const kolo_call *call) {
    lrn l = lrn_of(call);
    for (int64_t i = 0; i < l.n * l.channels * l.plane; i++) {
        int64_t c = i / l.plane % l.channels;
        int64_t first = kolo_max_i64(c - l.size / 2, 0);
        int64_t last = kolo_min_i64(c + (l.size - 1) / 2, l.channels - 1);
        const double *x = (const double *)call->in[0] + i;
        double sum = 0;
        for (int64_t j = first; j <= last; j++) {
            double other = x[(j - c) * l.plane];
            sum += other * other;
        }
        double s = ((double *)call->out[1])[i] = l.k + l.alpha * sum;
        ((double *)call->out[0])[i] = *x * pow(s, -l.beta);
    }
}

static void backwards(const kolo_call *call) {
    lrn l = lrn_of(call);
    for (int64_t i = 0; i < l.n * l.channels * l.plane; i++) {
        int64_t c = i / l.plane % l.channels;
        int64_t first = kolo_max_i64(c - (l.size - 1) / 2, 0);
        int64_t last = kolo_min_i64(c + l.size / 2, l.channels - 1);
        const double *dy = (const double *)call->in[0] + i, *x = (const double *)call->in[1] + i;
        const double *s = (const double *)call->in[2] + i;
        double sum = 0;
        for (int64_t j = first; j <= last; j++) {
            int64_t at = (j - c) * l.plane;
            sum += dy[at] * x[at] * pow(s[at], -l.beta - 1);
        }
        ((double *)call->out[0])[i] = *dy * pow(*s, -l.beta) - 2 * l.alpha * l.beta * *x * sum;
    }
}

static void run_lrn(const kolo_call *call) { kolo_ref_run(call, forwards); }
static void run_lrn_bwd(const kolo_call *call) { kolo_ref_run(call, backwards); }

const kolo_kernel kolo_ops_lrn[] = {
    KOLO_REF_KERNEL("ref_lrn", &kolo_op_lrn, run_lrn),
    KOLO_REF_KERNEL("ref_lrn_bwd", &kolo_op_lrn_bwd, run_lrn_bwd),
    {0},
};
