/* Layer and root mean square normalization and their gradients. An output may alias an input
 * (op->overwrite): the sums of a row, and its share of the parameter gradients, are computed before
 * its elements are written. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

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

const kolo_kernel kolo_ref_layer_norm =
    KOLO_REF_KERNEL("ref_layer_norm", &kolo_op_layer_norm, run_forward);
const kolo_kernel kolo_ref_layer_norm_bwd =
    KOLO_REF_KERNEL("ref_layer_norm_bwd", &kolo_op_layer_norm_bwd, run_backward);
const kolo_kernel kolo_ref_rms_norm = KOLO_REF_KERNEL("ref_rms_norm", &kolo_op_rms_norm, run_rms);
const kolo_kernel kolo_ref_rms_norm_bwd =
    KOLO_REF_KERNEL("ref_rms_norm_bwd", &kolo_op_rms_norm_bwd, run_rms_bwd);
