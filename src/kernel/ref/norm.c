/* Batch normalization and its gradient, the update of running statistics, and scale. An output
 * may alias an input (op->overwrite): sums are computed first. */
#include "kernel/ref/ref.h"

#include <math.h>

/* A tensor [N,C,...] as rows of `plane` elements: channel c of image i starts at (i * C + c) *
 * plane. */
typedef struct rows {
    int64_t n, c, plane;
} rows;

static rows rows_of(const kolo_tensor *t) {
    rows r = {.n = t->shape.dim[0], .c = t->shape.dim[1]};
    r.plane = kolo_shape_count(&t->shape) / (r.n * r.c);
    return r;
}

/* y = scale * (x - mean) + beta + residual, clipped, for one channel; residual may be NULL. */
static void normalize(const rows *r, int64_t c, const double *x, double mean, double scale,
                      double beta, const double *residual, int64_t relu, double *y) {
    for (int64_t n = 0; n < r->n; n++) {
        for (int64_t i = (n * r->c + c) * r->plane, end = i + r->plane; i < end; i++) {
            double v = scale * (x[i] - mean) + beta + (residual ? residual[i] : 0);
            y[i] = kolo_ref_clip(v, relu);
        }
    }
}

static void moments(const rows *r, int64_t c, const double *x, double *mean, double *var) {
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
    rows r = rows_of(&call->spec->in[0]);
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
    rows r = rows_of(&call->spec->in[0]);
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
    rows r = rows_of(&call->spec->in[0]);
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

static void scale(const kolo_call *call) {
    const double *x = call->in[0], *s = call->spec->n_in == 2 ? call->in[1] : NULL;
    double *y = call->out[0], factor = (s ? *s : 1) * call->spec->attr[KOLO_SCALE_FACTOR].f;
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) y[i] = x[i] * factor;
}

static void run_norm(const kolo_call *call) { kolo_ref_run(call, batch_norm); }
static void run_infer(const kolo_call *call) { kolo_ref_run(call, batch_norm_infer); }
static void run_bwd(const kolo_call *call) { kolo_ref_run(call, batch_norm_bwd); }
static void run_update(const kolo_call *call) { kolo_ref_run(call, batch_norm_update); }
static void run_scale(const kolo_call *call) { kolo_ref_run(call, scale); }

const kolo_kernel kolo_ref_batch_norm =
    KOLO_REF_KERNEL("ref_batch_norm", &kolo_op_batch_norm, run_norm);
const kolo_kernel kolo_ref_batch_norm_infer =
    KOLO_REF_KERNEL("ref_batch_norm_infer", &kolo_op_batch_norm_infer, run_infer);
const kolo_kernel kolo_ref_batch_norm_bwd =
    KOLO_REF_KERNEL("ref_batch_norm_bwd", &kolo_op_batch_norm_bwd, run_bwd);
const kolo_kernel kolo_ref_batch_norm_update =
    KOLO_REF_KERNEL("ref_batch_norm_update", &kolo_op_batch_norm_update, run_update);
const kolo_kernel kolo_ref_scale = KOLO_REF_KERNEL("ref_scale", &kolo_op_scale, run_scale);
