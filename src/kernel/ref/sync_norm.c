/* Synchronised batch normalization (graph/ops/sync_norm.c). An output may alias an input
 * (op->overwrite), element by element. */
#include "kernel/ref/ref.h"

#include <math.h>

/* Channel c of image n of a tensor [N,C,...] starts at (n * C + c) * plane. */
typedef struct rows {
    int64_t n, c, plane;
} rows;

static rows rows_of(const kolo_tensor *t) {
    rows r = {.n = t->shape.dim[0], .c = t->shape.dim[1]};
    r.plane = kolo_shape_count(&t->shape) / (r.n * r.c);
    return r;
}

/* sums: those of x - shift of all channels, then those of its square, both times weight / plane,
 * where the plane is that of the whole image. */
static void sync_norm_sums(const kolo_call *call) {
    rows r = rows_of(&call->spec->in[0]);
    const double *x = call->in[0], *shift = call->in[1], weight = *(const double *)call->in[2];
    const double plane = (double)call->spec->attr[KOLO_SYNC_SUMS_PLANE].i;
    double *sums = call->out[0];
    for (int64_t c = 0; c < r.c; c++) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < r.n; n++) {
            for (int64_t i = (n * r.c + c) * r.plane, end = i + r.plane; i < end; i++) {
                double d = x[i] - shift[c];
                sum += d;
                squares += d * d;
            }
        }
        sums[c] = sum * weight / plane;
        sums[r.c + c] = squares * weight / plane;
    }
}

static void sync_norm_statistics(const kolo_call *call) {
    const int64_t channels = call->spec->in[1].shape.dim[0];
    const double *sums = call->in[0], *shift = call->in[1], weight = *(const double *)call->in[3];
    double *mean = call->out[0], *var = call->out[1], *unbiased = call->out[2];
    double count = (double)call->spec->attr[KOLO_SYNC_NORM_PLANE].i / weight;
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = shift[c] + sums[c];
        var[c] = fmax(sums[channels + c] - sums[c] * sums[c], 0);
        unbiased[c] = count > 1 ? var[c] * count / (count - 1) : var[c];
    }
}

static void sync_norm(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    rows r = rows_of(&call->spec->in[0]);
    const double *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    const double *mean = call->in[3], *var = call->in[4];
    const double *residual = call->spec->n_in > 6 ? call->in[6] : NULL;
    double *y = call->out[0];
    for (int64_t k = 0; k < r.n * r.c; k++) {
        int64_t c = k % r.c;
        double scale = gamma[c] / sqrt(var[c] + attr[KOLO_NORM_EPS].f);
        for (int64_t i = k * r.plane; i < (k + 1) * r.plane; i++) {
            double v = scale * (x[i] - mean[c]) + beta[c] + (residual ? residual[i] : 0);
            y[i] = kolo_ref_clip(v, attr[KOLO_NORM_RELU].i);
        }
    }
}

static void sync_norm_bwd_sums(const kolo_call *call) {
    rows r = rows_of(&call->spec->in[0]);
    const double *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *mean = call->in[3];
    const double *var = call->in[4], *beta = call->spec->n_in > 5 ? call->in[5] : NULL;
    double *dgamma = call->out[0], *dbeta = call->out[1], *sums = call->out[2];
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
        dgamma[c] = sums[r.c + c] = product;
        dbeta[c] = sums[c] = sum;
    }
}

static void sync_norm_bwd_data(const kolo_call *call) {
    rows r = rows_of(&call->spec->in[0]);
    const double *dy = call->in[0], *x = call->in[1], *sums = call->in[3], *gamma = call->in[4];
    const double *mean = call->in[5], *var = call->in[6];
    const double *beta = call->spec->n_in > 7 ? call->in[7] : NULL;
    const double plane = (double)call->spec->attr[KOLO_SYNC_NORM_PIXELS].i;
    double *dx = call->out[0], share = *(const double *)call->in[2] / plane;
    const int64_t relu = call->spec->attr[KOLO_NORM_RELU].i;
    for (int64_t k = 0; k < r.n * r.c; k++) {
        int64_t c = k % r.c;
        double rstd = 1 / sqrt(var[c] + call->spec->attr[KOLO_NORM_EPS].f);
        for (int64_t i = k * r.plane; i < (k + 1) * r.plane; i++) {
            double normal = (x[i] - mean[c]) * rstd;
            double d = beta && !kolo_ref_passes(gamma[c] * normal + beta[c], relu) ? 0 : dy[i];
            dx[i] = gamma[c] * rstd * (d - share * (sums[c] + normal * sums[r.c + c]));
        }
    }
}

#define KERNEL(op_name)                                                               \
    static void run_##op_name(const kolo_call *call) { kolo_ref_run(call, op_name); } \
    const kolo_kernel kolo_ref_##op_name =                                            \
        KOLO_REF_KERNEL("ref_" #op_name, &kolo_op_##op_name, run_##op_name)
KERNEL(sync_norm_sums);
KERNEL(sync_norm_statistics);
KERNEL(sync_norm);
KERNEL(sync_norm_bwd_sums);
KERNEL(sync_norm_bwd_data);
