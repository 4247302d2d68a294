/* Batch normalization: normalizes each channel to mean 0 and variance 1 over the batch, then
 * applies a learned scale and shift. Ioffe, Szegedy, "Batch normalization", ICML 2015.
 *
 * Training uses the statistics of the batch; evaluation uses running statistics
 * (pass/inference.c), whose update is a node like that of a parameter (pass/statistics.c). */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/planes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const attrs[] = {"%eps", "%momentum", "relu", NULL};
static const char *const update_attrs[] = {"%keep", "%factor", NULL};

/* x, the input of that number, has a channel for each element of the vectors in [first, n_in). */
static kolo_status check_channels(const kolo_shape_query *q, int x, int first, int n_in) {
    const kolo_shape *s = &q->in[x].shape;
    if (s->rank < 2) return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    for (int i = first; i < n_in; i++) {
        KOLO_TRY(kolo_rule_rank(q, i, 1, "C"));
        if (q->in[i].shape.dim[0] != s->dim[1]) {
            return KOLO_RULE_FAIL(q, "input %d must have %" PRId64 " elements, as dimension 1 of x",
                                  i, s->dim[1]);
        }
    }
    return KOLO_OK;
}

static kolo_status infer_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(check_channels(q, 0, 1, 5));
    if (q->n_in == 6) KOLO_TRY(kolo_rule_same(q, 0, 5));
    if (!(q->attr[KOLO_NORM_EPS].f >= 0)) return KOLO_RULE_FAIL(q, "eps must be 0 or more");
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status norm_shape(kolo_shape_query *q) {
    KOLO_TRY(infer_shape(q));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[1].dtype, q->in[1].shape));
    return kolo_rule_out(q, 2, q->in[1].dtype, q->in[1].shape);
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(check_channels(q, 1, 2, q->n_in));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[1].shape));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[2].dtype, q->in[2].shape));
    return kolo_rule_out(q, 2, q->in[2].dtype, q->in[2].shape);
}

static kolo_status update_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    for (int i = 1; i < 4; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

static void norm_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (kolo_value_ok(d_out[1]) || kolo_value_ok(d_out[2])) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                                           "batch_norm: its statistics outputs are not "
                                           "differentiable"));
        return;
    }
    if (wants[3] || wants[4]) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "batch_norm: running statistics are not trainable"));
        return;
    }
    kolo_value in[6] = {d_out[0], n->in[0], n->in[1], n->out[1], n->out[2], n->in[2]};
    kolo_value out[KOLO_MAX_IO];
    bool relu = n->attr[KOLO_NORM_RELU].i, residual = n->n_in == 6;
    if (relu && residual) { /* the gradient of both branches */
        in[0] = kolo_graph_add1(g, &kolo_op_relu_bwd, (kolo_value[]){in[0], n->out[0]}, 2, NULL);
    }
    if (residual && wants[5]) d_in[5] = in[0];
    if (!wants[0] && !wants[1] && !wants[2]) return;
    kolo_attr attr[KOLO_MAX_ATTRS];
    memcpy(attr, n->attr, sizeof attr);
    if (residual) attr[KOLO_NORM_RELU].i = 0;
    kolo_graph_add(g, &kolo_op_batch_norm_bwd, in, relu && !residual ? 6 : 5, attr, out);
    for (int i = 0; i < 3; i++) {
        if (wants[i]) d_in[i] = out[i];
    }
}

/* Evaluation normalizes by the running statistics. */
static kolo_status norm_evaluate(const kolo_graph *g, kolo_node *n, kolo_value *by) {
    (void)by;
    if (kolo_value_is_read(g, n->out[1]) || kolo_value_is_read(g, n->out[2])) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "batch_norm: evaluation has no batch statistics, but the graph reads them");
    }
    n->op = &kolo_op_batch_norm_infer;
    n->n_out = 1;
    return KOLO_OK;
}

/* About seven operations per element, sums included. */
static kolo_cost norm_cost(const kolo_shape_query *q) {
    return (kolo_cost){7.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

const kolo_op kolo_op_batch_norm = {
    .name = "batch_norm",
    .index = "nc#,c,c,c,c,nc#->nc#,sc,sc",
    .min_in = 5,
    .max_in = 6,
    .layout = {.in = "appppa", .out = "app"},
    .attrs = attrs,
    .shape = norm_shape,
    .grad = norm_grad,
    .cost = norm_cost,
    .overwrite = 1u << 5,
    .cheap = true,
    .bf16 = 1u << 0 | 1u << 5,
    .evaluate = norm_evaluate,
    .recompute = {.op = &kolo_op_batch_norm_infer, .kept = 3},
    .fuse = {.residual = 5, .relu = KOLO_ATTR(KOLO_NORM_RELU)},
};
const kolo_op kolo_op_batch_norm_bwd = {
    .name = "batch_norm_bwd",
    .index = "nc#,nc#,c,sc,sc,c->nc#,c,c",
    .linear = 1u << 0,
    .min_in = 5,
    .max_in = 6,
    .layout = {.in = "aapppp", .out = "app"},
    .attrs = attrs,
    .shape = bwd_shape,
    .cost = norm_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
};
const kolo_op kolo_op_batch_norm_infer = {
    .name = "batch_norm_infer",
    .index = "nc*,c,c,sc,sc,nc*->nc*",
    .min_in = 5,
    .max_in = 6,
    .layout = {.in = "appppa", .out = "a"},
    .attrs = attrs,
    .shape = infer_shape,
    .overwrite = 1u << 0 | 1u << 5,
    .cheap = true,
    .bf16 = 1u << 0 | 1u << 5,
    .fuse = {.residual = 5, .relu = KOLO_ATTR(KOLO_NORM_RELU)},
};
const kolo_op kolo_op_batch_norm_update = {
    .name = "batch_norm_update",
    .index = "c,c,c,c->c,c",
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "pp"},
    .attrs = update_attrs,
    .shape = update_shape,
    .average = {.keep = KOLO_ATTR(KOLO_NORM_UPDATE_KEEP)},
};
/* ---- builder ---- */

/* A parameter "NAME.suffix", or a state when `state`; it begins as all zeros or all ones. */
static kolo_value leaf(kolo_graph *g, const char *name, const char *suffix, kolo_value like,
                       int64_t channels, kolo_init_kind init) {
    char *full = name ? kolo_format("%s.%s", name, suffix) : kolo_strdup("");
    if (!full) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_value_ok(like)
                       ? kolo_graph_state(g, full, like)
                       : kolo_param(g, full, kolo_shape_1(channels), (kolo_init){init, 0});
    if (kolo_value_ok(v)) kolo_info(g, v)->init = (kolo_init){init, 0};
    kolo_free(full);
    return v;
}

kolo_value kolo_batch_norm(kolo_graph *g, kolo_value x, const char *name,
                           const kolo_batch_norm_opts *opts) {
    kolo_batch_norm_opts o = opts ? *opts : (kolo_batch_norm_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_NORM_EPS].f = o.eps != 0 ? o.eps : 1e-5,
        [KOLO_NORM_MOMENTUM].f = o.momentum != 0 ? o.momentum : 0.1,
    };
    bool image = kolo_value_is_of(g, x) && kolo_info(g, x)->tensor.shape.rank >= 2;
    int64_t channels = image ? kolo_info(g, x)->tensor.shape.dim[1] : 1; /* the rule refuses x */
    kolo_value gamma = leaf(g, name, "weight", KOLO_NONE, channels, KOLO_INIT_ONE);
    kolo_value in[] = {
        x,
        gamma,
        leaf(g, name, "bias", KOLO_NONE, channels, KOLO_INIT_ZERO),
        leaf(g, name, "running_mean", gamma, channels, KOLO_INIT_ZERO),
        leaf(g, name, "running_var", gamma, channels, KOLO_INIT_ONE),
    };
    return kolo_graph_add1(g, &kolo_op_batch_norm, in, 5, attr);
}

/* ---- reference ---- */

/* Batch normalization and its gradient, and the update of running statistics. An output
 * may alias an input (op->overwrite): sums are computed first. */

/* y = scale * (x - mean) + beta + residual, clipped, for one channel; residual may be NULL. */
static void normalize(const kolo_ref_planes *r, int64_t c, const double *x, double mean,
                      double scale, double beta, const double *residual, int64_t relu, double *y) {
    for (int64_t n = 0; n < r->n; n++) {
        for (int64_t i = (n * r->c + c) * r->plane, end = i + r->plane; i < end; i++) {
            double v = scale * (x[i] - mean) + beta + (residual ? residual[i] : 0);
            y[i] = kolo_ref_clip(v, relu);
        }
    }
}

static void moments(const kolo_ref_planes *r, int64_t c, const double *x, double *mean,
                    double *var) {
    double sum = 0, squares = 0, count = (double)(r->n * r->plane);
    for (int64_t n = 0; n < r->n; n++) {
        for (int64_t i = (n * r->c + c) * r->plane, end = i + r->plane; i < end; i++) sum += x[i];
    }
    *mean = sum / count;
    for (int64_t n = 0; n < r->n; n++) {
        for (int64_t i = (n * r->c + c) * r->plane, end = i + r->plane; i < end; i++) {
            squares += (x[i] - *mean) * (x[i] - *mean);
        }
    }
    *var = squares / count;
}

static void batch_norm(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    const double *residual = call->spec->n_in > 5 ? call->in[5] : NULL;
    double *mean = call->out[1], *var = call->out[2];
    for (int64_t c = 0; c < r.c; c++) {
        moments(&r, c, x, &mean[c], &var[c]);
        if (call->spec->out[1].dtype == KOLO_DTYPE_F32) { /* as in inference: given statistics */
            mean[c] = (float)mean[c];
            var[c] = (float)var[c];
        }
        double scale = gamma[c] / sqrt(var[c] + attr[KOLO_NORM_EPS].f);
        normalize(&r, c, x, mean[c], scale, beta[c], residual, attr[KOLO_NORM_RELU].i,
                  call->out[0]);
    }
}

static void batch_norm_infer(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    const double *mean = call->in[3], *var = call->in[4];
    const double *residual = call->spec->n_in > 5 ? call->in[5] : NULL;
    for (int64_t c = 0; c < r.c; c++) {
        double scale = gamma[c] / sqrt(var[c] + attr[KOLO_NORM_EPS].f);
        normalize(&r, c, x, mean[c], scale, beta[c], residual, attr[KOLO_NORM_RELU].i,
                  call->out[0]);
    }
}

static void batch_norm_bwd(const kolo_call *call) {
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *mean = call->in[3];
    const double *var = call->in[4], *beta = call->spec->n_in > 5 ? call->in[5] : NULL;
    double *dx = call->out[0], *dgamma = call->out[1], *dbeta = call->out[2];
    double count = (double)(r.n * r.plane);
    const int64_t relu = call->spec->attr[KOLO_NORM_RELU].i;
    for (int64_t c = 0; c < r.c; c++) {
        double rstd = 1 / sqrt(var[c] + call->spec->attr[KOLO_NORM_EPS].f), sum = 0, product = 0;
        for (int64_t n = 0; n < r.n; n++) {
            for (int64_t i = (n * r.c + c) * r.plane, end = i + r.plane; i < end; i++) {
                double normal = (x[i] - mean[c]) * rstd;
                double d = beta && !kolo_ref_passes(gamma[c] * normal + beta[c], relu) ? 0 : dy[i];
                sum += d;
                product += d * normal;
            }
        }
        for (int64_t n = 0; n < r.n; n++) {
            for (int64_t i = (n * r.c + c) * r.plane, end = i + r.plane; i < end; i++) {
                double normal = (x[i] - mean[c]) * rstd;
                double d = beta && !kolo_ref_passes(gamma[c] * normal + beta[c], relu) ? 0 : dy[i];
                dx[i] = gamma[c] * rstd * (d - sum / count - normal * product / count);
            }
        }
        dgamma[c] = product;
        dbeta[c] = sum;
    }
}

static void batch_norm_update(const kolo_call *call) {
    double keep = call->spec->attr[KOLO_NORM_UPDATE_KEEP].f;
    double factor = call->spec->attr[KOLO_NORM_UPDATE_FACTOR].f;
    for (int k = 0; k < 2; k++) {
        const double *running = call->in[k], *batch = call->in[2 + k];
        double *next = call->out[k];
        for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
            next[i] = keep * running[i] + factor * batch[i];
        }
    }
}

static void run_norm(const kolo_call *call) { kolo_ref_run(call, batch_norm); }
static void run_infer(const kolo_call *call) { kolo_ref_run(call, batch_norm_infer); }
static void run_bwd(const kolo_call *call) { kolo_ref_run(call, batch_norm_bwd); }
static void run_update(const kolo_call *call) { kolo_ref_run(call, batch_norm_update); }

const kolo_kernel kolo_ops_norm[] = {
    KOLO_REF_KERNEL("ref_batch_norm", &kolo_op_batch_norm, run_norm),
    KOLO_REF_KERNEL("ref_batch_norm_infer", &kolo_op_batch_norm_infer, run_infer),
    KOLO_REF_KERNEL("ref_batch_norm_bwd", &kolo_op_batch_norm_bwd, run_bwd),
    KOLO_REF_KERNEL("ref_batch_norm_update", &kolo_op_batch_norm_update, run_update),
    {0},
};
