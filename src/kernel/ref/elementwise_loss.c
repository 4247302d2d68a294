/* Losses of a prediction and a target, element by element (graph/ops/elementwise_loss.c). */
#include "kernel/ref/ref.h"

#include <math.h>

static double loss_of(int64_t kind, double delta, double x, double t) {
    double d = x - t;
    switch (kind) {
    case KOLO_LOSS_MSE:
        return d * d;
    case KOLO_LOSS_L1:
        return fabs(d);
    case KOLO_LOSS_HUBER:
        return fabs(d) <= delta ? d * d / 2 : delta * (fabs(d) - delta / 2);
    default: /* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
        return (x < 0 ? 0 : x) - x * t + log1p(exp(-fabs(x)));
    }
}

static double slope_of(int64_t kind, double delta, double x, double t) {
    double d = x - t;
    switch (kind) {
    case KOLO_LOSS_MSE:
        return 2 * d;
    case KOLO_LOSS_L1:
        return d > 0 ? 1 : d < 0 ? -1 : d; /* 0 and NaN stay */
    case KOLO_LOSS_HUBER:
        return d > delta ? delta : d < -delta ? -delta : d;
    default:
        return 1 / (1 + exp(-x)) - t;
    }
}

static void loss(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *x = call->in[0], *t = call->in[1];
    double sum = 0;
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        sum += loss_of(attr[KOLO_ELEMENTWISE_LOSS_KIND].i, attr[KOLO_ELEMENTWISE_LOSS_DELTA].f,
                       x[i], t[i]);
    }
    *(double *)call->out[0] = sum;
}

static void loss_bwd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *x = call->in[0], *t = call->in[1], dloss = *(const double *)call->in[2];
    double *dx = call->out[0];
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        dx[i] = dloss * slope_of(attr[KOLO_ELEMENTWISE_LOSS_KIND].i,
                                 attr[KOLO_ELEMENTWISE_LOSS_DELTA].f, x[i], t[i]);
    }
}

static void run_loss(const kolo_call *call) { kolo_ref_run(call, loss); }
static void run_loss_bwd(const kolo_call *call) { kolo_ref_run(call, loss_bwd); }

const kolo_kernel kolo_ref_elementwise_loss =
    KOLO_REF_KERNEL("ref_elementwise_loss", &kolo_op_elementwise_loss, run_loss);
const kolo_kernel kolo_ref_elementwise_loss_bwd =
    KOLO_REF_KERNEL("ref_elementwise_loss_bwd", &kolo_op_elementwise_loss_bwd, run_loss_bwd);
