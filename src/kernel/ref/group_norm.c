/* Group normalization and its gradient. An output may alias an input (op->overwrite): the sums of a
 * group are computed before its elements are written. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* x [N,G,K,P]: the number of groups of all samples, and their elements. */
typedef struct groups {
    int64_t count, each, channels, pixels, size;
} groups;

static groups groups_of(const kolo_shape *x) {
    return (groups){x->dim[0] * x->dim[1], x->dim[1], x->dim[2], x->dim[3], x->dim[2] * x->dim[3]};
}

static void forward(const kolo_call *call) {
    const groups s = groups_of(&call->spec->in[0].shape);
    const double *x = call->in[0];
    const double *gamma = call->spec->n_in > 1 ? call->in[1] : NULL, *beta = call->in[2];
    double *y = call->out[0], *mean = call->out[1], *rstd = call->out[2];
    for (int64_t r = 0; r < s.count; r++, x += s.size, y += s.size) {
        const int64_t first = r % s.each * s.channels;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < s.size; i++) sum += x[i];
        mean[r] = sum / (double)s.size;
        for (int64_t i = 0; i < s.size; i++) squares += (x[i] - mean[r]) * (x[i] - mean[r]);
        rstd[r] = 1 / sqrt(squares / (double)s.size + call->spec->attr[KOLO_LAYER_NORM_EPS].f);
        for (int64_t i = 0; i < s.size; i++) {
            const int64_t c = first + i / s.pixels;
            const double h = (x[i] - mean[r]) * rstd[r];
            y[i] = gamma ? gamma[c] * h + beta[c] : h;
        }
    }
}

/* With h = (x - mean) rstd and k = dy gamma: dx = rstd (k - mean(k) - h mean(k h)). */
static void backward(const kolo_call *call) {
    const groups s = groups_of(&call->spec->in[1].shape);
    const double *dy = call->in[0], *x = call->in[1], *mean = call->in[2], *rstd = call->in[3];
    const double *gamma = call->spec->n_in > 4 ? call->in[4] : NULL;
    double *dx = call->out[0], *dgamma = call->out[1], *dbeta = call->out[2];
    const size_t bytes = sizeof(double) * (size_t)(s.each * s.channels);
    if (gamma) {
        memset(dgamma, 0, bytes);
        memset(dbeta, 0, bytes);
    }
    for (int64_t r = 0; r < s.count; r++, dy += s.size, x += s.size, dx += s.size) {
        const int64_t first = r % s.each * s.channels;
        double of_k = 0, of_kh = 0;
        for (int64_t i = 0; i < s.size; i++) {
            const int64_t c = first + i / s.pixels;
            const double h = (x[i] - mean[r]) * rstd[r], k = gamma ? dy[i] * gamma[c] : dy[i];
            of_k += k;
            of_kh += k * h;
            if (gamma) dgamma[c] += dy[i] * h;
            if (gamma) dbeta[c] += dy[i];
        }
        of_k /= (double)s.size;
        of_kh /= (double)s.size;
        for (int64_t i = 0; i < s.size; i++) {
            const double h = (x[i] - mean[r]) * rstd[r];
            const double k = gamma ? dy[i] * gamma[first + i / s.pixels] : dy[i];
            dx[i] = rstd[r] * (k - of_k - h * of_kh);
        }
    }
}

static void run_forward(const kolo_call *call) { kolo_ref_run(call, forward); }
static void run_backward(const kolo_call *call) { kolo_ref_run(call, backward); }

const kolo_kernel kolo_ref_group_norm =
    KOLO_REF_KERNEL("ref_group_norm", &kolo_op_group_norm, run_forward);
const kolo_kernel kolo_ref_group_norm_bwd =
    KOLO_REF_KERNEL("ref_group_norm_bwd", &kolo_op_group_norm_bwd, run_backward);
