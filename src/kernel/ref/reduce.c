/* Sums, means, maxima and minima over dimensions, and the gradient of sums. */
#include "kernel/ref/ref.h"

#include <math.h>

/* The element of y for element k of x. */
static int64_t at(const kolo_attr *attr, const kolo_shape *x, int64_t k) {
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
    for (int64_t k = 0; k < kolo_shape_count(shape); k++) y[at(spec->attr, shape, k)] += x[k];
    for (int64_t i = 0; i < n; i++) y[i] /= by;
}

static void sum_bwd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_shape *shape = &spec->out[0].shape;
    const double *dy = call->in[0], by = divisor(spec->attr, shape);
    double *dx = call->out[0];
    for (int64_t k = 0; k < kolo_shape_count(shape); k++) {
        dx[k] = dy[at(spec->attr, shape, k)] / by;
    }
}

/* The larger, or the NaN. */
static double larger(double a, double b) { return a > b ? a : b >= a ? b : a + b; }

static void reduce_max(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0], sign = spec->attr[KOLO_REDUCE_MIN].i ? -1 : 1;
    const int64_t n = kolo_shape_count(&spec->out[0].shape);
    double *y = call->out[0];
    for (int64_t i = 0; i < n; i++) y[i] = -INFINITY;
    for (int64_t k = 0; k < kolo_shape_count(&spec->in[0].shape); k++) {
        double *most = &y[at(spec->attr, &spec->in[0].shape, k)];
        *most = larger(*most, sign * x[k]);
    }
    for (int64_t i = 0; i < n; i++) y[i] *= sign;
}

static void run_sum(const kolo_call *call) { kolo_ref_run(call, sum); }
static void run_sum_bwd(const kolo_call *call) { kolo_ref_run(call, sum_bwd); }
static void run_reduce_max(const kolo_call *call) { kolo_ref_run(call, reduce_max); }

const kolo_kernel kolo_ref_sum = KOLO_REF_KERNEL("ref_sum", &kolo_op_sum, run_sum);
const kolo_kernel kolo_ref_sum_bwd = KOLO_REF_KERNEL("ref_sum_bwd", &kolo_op_sum_bwd, run_sum_bwd);
const kolo_kernel kolo_ref_reduce_max =
    KOLO_REF_KERNEL("ref_reduce_max", &kolo_op_reduce_max, run_reduce_max);
