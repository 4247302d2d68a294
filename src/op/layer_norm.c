/* Layer normalization over the last dimension: each row has mean 0 and variance 1 before a scale
 * and an offset per channel. Ba, Kiros, Hinton, "Layer normalization", 2016. What the gradient
 * needs of the forward pass are the rows' means and 1 / standard deviations.
 *
 * Root mean square normalization: each row has mean square 1 before a scale per channel. Zhang,
 * Sennrich, "Root mean square layer normalization", 2019. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const attrs[] = {"%eps", NULL}, *const no_attrs[] = {NULL};

static kolo_shape rows_of(kolo_shape x) {
    x.rank--;
    return x;
}

/* Input x has two or more dimensions, and input `vector` an element for each of its channels. */
static kolo_status check_channels(const kolo_shape_query *q, int x, int vector) {
    const kolo_shape *s = &q->in[x].shape;
    if (s->rank < 2) return KOLO_RULE_FAIL(q, "x must have two or more dimensions: ...,C");
    KOLO_TRY(kolo_rule_rank(q, vector, 1, "C"));
    if (q->in[vector].shape.dim[0] == s->dim[s->rank - 1]) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "input %d must have %" PRId64 " elements, as the last dimension of x",
                          vector, s->dim[s->rank - 1]);
}

static kolo_status norm_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(check_channels(q, 0, 1));
    KOLO_TRY(check_channels(q, 0, 2));
    if (!(q->attr[KOLO_LAYER_NORM_EPS].f >= 0)) return KOLO_RULE_FAIL(q, "eps must be 0 or more");
    kolo_shape x = q->in[0].shape;
    kolo_dtype wide = kolo_dtype_wide(q->in[0].dtype);
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, x));
    KOLO_TRY(kolo_rule_out(q, 1, wide, rows_of(x)));
    return kolo_rule_out(q, 2, wide, rows_of(x));
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(check_channels(q, 1, 2));
    kolo_shape rows = rows_of(q->in[1].shape);
    for (int i = 3; i < 5; i++) {
        if (kolo_shape_equal(&q->in[i].shape, &rows)) continue;
        return KOLO_RULE_FAIL(q, "input %d must be x without its last dimension", i);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[1].shape));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[2].dtype, q->in[2].shape));
    return kolo_rule_out(q, 2, q->in[2].dtype, q->in[2].shape);
}

static kolo_status rms_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(check_channels(q, 0, 1));
    if (!(q->attr[KOLO_LAYER_NORM_EPS].f >= 0)) return KOLO_RULE_FAIL(q, "eps must be 0 or more");
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    return kolo_rule_out(q, 1, kolo_dtype_wide(q->in[0].dtype), rows_of(q->in[0].shape));
}

static kolo_status rms_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(check_channels(q, 1, 2));
    kolo_shape rows = rows_of(q->in[1].shape);
    if (!kolo_shape_equal(&q->in[3].shape, &rows)) {
        return KOLO_RULE_FAIL(q, "input 3 must be x without its last dimension");
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[1].shape));
    return kolo_rule_out(q, 1, q->in[2].dtype, q->in[2].shape);
}

/* The statistics, outputs 1 and on, have no gradient. */
static bool refuse_statistics(kolo_graph *g, const kolo_node *n, const kolo_value *d_out) {
    bool asked = false;
    for (int i = 1; i < n->n_out; i++) asked |= kolo_value_ok(d_out[i]);
    if (!asked) return false;
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                                       "%s: its statistics outputs are not differentiable",
                                       n->op->name));
    return true;
}

static void norm_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (refuse_statistics(g, n, d_out)) return;
    const kolo_value in[] = {d_out[0], n->in[0], n->in[1], n->out[1], n->out[2]};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_layer_norm_bwd, in, 5, NULL, out);
    for (int i = 0; i < 3; i++) {
        if (wants[i]) d_in[i] = out[i];
    }
}

static void rms_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    if (refuse_statistics(g, n, d_out)) return;
    const kolo_value in[] = {d_out[0], n->in[0], n->in[1], n->out[1]};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_rms_norm_bwd, in, 4, NULL, out);
    for (int i = 0; i < 2; i++) {
        if (wants[i]) d_in[i] = out[i];
    }
}

static kolo_cost norm_cost(const kolo_shape_query *q) {
    return (kolo_cost){8.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

static kolo_cost rms_cost(const kolo_shape_query *q) {
    return (kolo_cost){4.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

const kolo_op kolo_op_layer_norm = {
    .name = "layer_norm",
    .index = "*C,C,C->*C,*,*",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "app", .out = "app"},
    .attrs = attrs,
    .shape = norm_shape,
    .grad = norm_grad,
    .cost = norm_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x7u},
};
const kolo_op kolo_op_layer_norm_bwd = {
    .name = "layer_norm_bwd",
    .index = "*C,*C,C,*,*->*C,C,C",
    .linear = 0x1u,
    .min_in = 5,
    .max_in = 5,
    .layout = {.in = "aappp", .out = "app"},
    .attrs = no_attrs,
    .shape = bwd_shape,
    .cost = norm_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x1bu, .out = 0x1u, .sums = 0x6u},
};

const kolo_op kolo_op_rms_norm = {
    .name = "rms_norm",
    .index = "*C,C->*C,*",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ap", .out = "ap"},
    .attrs = attrs,
    .shape = rms_shape,
    .grad = rms_grad,
    .cost = rms_cost,
    .cheap = true,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x3u},
};
const kolo_op kolo_op_rms_norm_bwd = {
    .name = "rms_norm_bwd",
    .index = "*C,*C,C,*->*C,C",
    .linear = 0x1u,
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "aapp", .out = "ap"},
    .attrs = no_attrs,
    .shape = rms_bwd_shape,
    .cost = norm_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0xbu, .out = 0x1u, .sums = 0x2u},
};

/* ---- builders ---- */

static kolo_value vector(kolo_graph *g, const char *name, const char *suffix, int64_t channels,
                         kolo_init_kind init) {
    char *full = name ? kolo_format("%s.%s", name, suffix) : kolo_strdup("");
    if (!full) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_param(g, full, kolo_shape_1(channels), (kolo_init){init, 0});
    kolo_free(full);
    return v;
}

/* The last dimension of x; 1 if x has none, which the op's rule refuses. */
static int64_t channels_of(const kolo_graph *g, kolo_value x) {
    if (!kolo_value_is_of(g, x)) return 1;
    const kolo_shape *s = &kolo_info(g, x)->tensor.shape;
    return s->rank >= 1 ? s->dim[s->rank - 1] : 1;
}

kolo_value kolo_layer_norm(kolo_graph *g, kolo_value x, const char *name, double eps) {
    const int64_t channels = channels_of(g, x);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = eps != 0 ? eps : 1e-5};
    const kolo_value in[] = {x, vector(g, name, "weight", channels, KOLO_INIT_ONE),
                             vector(g, name, "bias", channels, KOLO_INIT_ZERO)};
    return kolo_graph_add1(g, &kolo_op_layer_norm, in, 3, attr);
}

kolo_value kolo_rms_norm(kolo_graph *g, kolo_value x, const char *name, double eps) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = eps != 0 ? eps : 1e-6};
    const kolo_value in[] = {x, vector(g, name, "weight", channels_of(g, x), KOLO_INIT_ONE)};
    return kolo_graph_add1(g, &kolo_op_rms_norm, in, 2, attr);
}

/* ---- reference ---- */

/* Layer and root mean square normalization and their gradients. An output may alias an input
 * (op->overwrite): the sums of a row, and its share of the parameter gradients, are computed before
 * its elements are written. */

static void forward(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    int64_t channels = s->dim[s->rank - 1], rows = kolo_shape_count(s) / channels;
    const double *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    double *y = call->out[0], *mean = call->out[1], *rstd = call->out[2];
    for (int64_t r = 0; r < rows; r++, x += channels, y += channels) {
        double sum = 0, squares = 0, count = (double)channels;
        for (int64_t c = 0; c < channels; c++) sum += x[c];
        mean[r] = sum / count;
        for (int64_t c = 0; c < channels; c++) squares += (x[c] - mean[r]) * (x[c] - mean[r]);
        rstd[r] = 1 / sqrt(squares / count + call->spec->attr[KOLO_LAYER_NORM_EPS].f);
        for (int64_t c = 0; c < channels; c++) {
            y[c] = gamma[c] * (x[c] - mean[r]) * rstd[r] + beta[c];
        }
    }
}

/* With h = (x - mean) rstd and k = dy gamma: dx = rstd (k - mean(k) - h mean(k h)). */
static void backward(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[1].shape;
    int64_t channels = s->dim[s->rank - 1], rows = kolo_shape_count(s) / channels;
    const double *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *mean = call->in[3];
    const double *rstd = call->in[4];
    double *dx = call->out[0], *dgamma = call->out[1], *dbeta = call->out[2];
    memset(dgamma, 0, sizeof(double) * (size_t)channels);
    memset(dbeta, 0, sizeof(double) * (size_t)channels);
    for (int64_t r = 0; r < rows; r++, dy += channels, x += channels, dx += channels) {
        double of_k = 0, of_kh = 0, count = (double)channels;
        for (int64_t c = 0; c < channels; c++) {
            double h = (x[c] - mean[r]) * rstd[r], k = dy[c] * gamma[c];
            of_k += k;
            of_kh += k * h;
            dgamma[c] += dy[c] * h;
            dbeta[c] += dy[c];
        }
        for (int64_t c = 0; c < channels; c++) {
            double h = (x[c] - mean[r]) * rstd[r];
            dx[c] = rstd[r] * (dy[c] * gamma[c] - of_k / count - h * of_kh / count);
        }
    }
}

static void rms_forward(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    int64_t channels = s->dim[s->rank - 1], rows = kolo_shape_count(s) / channels;
    const double *x = call->in[0], *gamma = call->in[1];
    double *y = call->out[0], *rstd = call->out[1];
    for (int64_t r = 0; r < rows; r++, x += channels, y += channels) {
        double squares = 0;
        for (int64_t c = 0; c < channels; c++) squares += x[c] * x[c];
        rstd[r] = 1 / sqrt(squares / (double)channels + call->spec->attr[KOLO_LAYER_NORM_EPS].f);
        for (int64_t c = 0; c < channels; c++) y[c] = gamma[c] * x[c] * rstd[r];
    }
}

/* As `backward` with mean 0: dx = rstd (k - h mean(k h)). */
static void rms_backward(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[1].shape;
    int64_t channels = s->dim[s->rank - 1], rows = kolo_shape_count(s) / channels;
    const double *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *rstd = call->in[3];
    double *dx = call->out[0], *dgamma = call->out[1];
    memset(dgamma, 0, sizeof(double) * (size_t)channels);
    for (int64_t r = 0; r < rows; r++, dy += channels, x += channels, dx += channels) {
        double of_kh = 0;
        for (int64_t c = 0; c < channels; c++) {
            double h = x[c] * rstd[r];
            of_kh += dy[c] * gamma[c] * h;
            dgamma[c] += dy[c] * h;
        }
        for (int64_t c = 0; c < channels; c++) {
            double h = x[c] * rstd[r];
            dx[c] = rstd[r] * (dy[c] * gamma[c] - h * of_kh / (double)channels);
        }
    }
}

static void run_forward(const kolo_call *call) { kolo_ref_run(call, forward); }
static void run_backward(const kolo_call *call) { kolo_ref_run(call, backward); }
static void run_rms(const kolo_call *call) { kolo_ref_run(call, rms_forward); }
static void run_rms_bwd(const kolo_call *call) { kolo_ref_run(call, rms_backward); }

const kolo_kernel kolo_ops_layer_norm[] = {
    KOLO_REF_KERNEL("ref_layer_norm", &kolo_op_layer_norm, run_forward),
    KOLO_REF_KERNEL("ref_layer_norm_bwd", &kolo_op_layer_norm_bwd, run_backward),
    KOLO_REF_KERNEL("ref_rms_norm", &kolo_op_rms_norm, run_rms),
    KOLO_REF_KERNEL("ref_rms_norm_bwd", &kolo_op_rms_norm_bwd, run_rms_bwd),
    {0},
};
