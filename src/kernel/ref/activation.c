/* GELU with its gradient; element-wise product. */
#include "kernel/ref/ref.h"

#include <math.h>

static const double root_2_pi = 0.7978845608028654; /* sqrt(2 / pi) */

/* At infinities GELU and its slope are their limits, where the formulas give 0 times infinity. */
double kolo_ref_gelu_at(double x, bool by_tanh) {
    if (isinf(x)) return x > 0 ? x : 0;
    if (by_tanh) return 0.5 * x * (1 + tanh(root_2_pi * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * sqrt(0.5)));
}

static double gelu_slope(double x, bool by_tanh) {
    if (isinf(x)) return x > 0;
    if (by_tanh) {
        double t = tanh(root_2_pi * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_pi * (1 + 3 * 0.044715 * x * x);
    }
    return 0.5 * (1 + erf(x * sqrt(0.5))) + x * 0.5 * root_2_pi * exp(-0.5 * x * x);
}

/* y = f(a, b) element-wise; b is NULL for ops of one input. `tanh` selects GELU's tanh
 * approximation. */
#define BODY(name, expression)                                                         \
    static void name##_body(const kolo_call *call) {                                   \
        const double *a = call->in[0], *b = call->in[1];                               \
        double *y = call->out[0];                                                      \
        int64_t count = kolo_shape_count(&call->spec->out[0].shape);                   \
        for (int64_t i = 0; i < count; i++) y[i] = (expression);                       \
        (void)b;                                                                       \
    }                                                                                  \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name##_body); } \
    const kolo_kernel kolo_ref_##name = KOLO_REF_KERNEL("ref_" #name, &kolo_op_##name, run_##name)

BODY(gelu, kolo_ref_gelu_at(a[i], call->spec->attr[KOLO_GELU_TANH].i));
BODY(mul, a[i] * b[i]);

static void gelu_bwd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *dy = call->in[0], *x = call->in[1];
    double *dx = call->out[0], *db = attr[KOLO_GELU_BWD_BIAS].i ? call->out[1] : NULL;
    const kolo_shape *shape = &call->spec->out[0].shape;
    int64_t count = kolo_shape_count(shape), channels = db ? shape->dim[shape->rank - 1] : 0;
    for (int64_t c = 0; c < channels; c++) db[c] = 0;
    for (int64_t i = 0; i < count; i++) {
        dx[i] = dy[i] * gelu_slope(x[i], attr[KOLO_GELU_TANH].i);
        if (db) db[i % channels] += dx[i];
    }
}

static void run_gelu_bwd(const kolo_call *call) { kolo_ref_run(call, gelu_bwd); }

const kolo_kernel kolo_ref_gelu_bwd =
    KOLO_REF_KERNEL("ref_gelu_bwd", &kolo_op_gelu_bwd, run_gelu_bwd);
