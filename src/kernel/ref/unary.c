/* Elementwise functions of one input and their gradients: the formulas of graph/ops/unary.h on
 * doubles. */
#include "kernel/ref/ref.h"

#include <math.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
/* log(1 + e^(p x)) / p; above 40 the exponential alone counts. */
static double softplus(double x, double p) {
    const double z = p * x;
    return z > 40 ? x : ((z > 0 ? z : 0) + log1p(exp(-fabs(z)))) / p;
}

#define N(number) ((double)(number))
#define IF(condition, a, b) ((condition) ? (a) : (b))
#define EXP exp
#define EXPM1 expm1
#define LOG log
#define SQRT sqrt
#define POW pow
#define SIGMOID sigmoid
#define SOFTPLUS softplus
#define ERF erf
#define TANH tanh

typedef double function(double x, double p, double q);
typedef double slope(double dy, double v, double p, double q);

static void map(const kolo_call *call, function *f) {
    const double *x = call->in[0];
    const double p = call->spec->attr[KOLO_UNARY_P].f, q = call->spec->attr[KOLO_UNARY_Q].f;
    double *y = call->out[0];
    const int64_t count = kolo_shape_count(&call->spec->out[0].shape);
    for (int64_t i = 0; i < count; i++) y[i] = f(x[i], p, q);
}

static void map_back(const kolo_call *call, slope *f) {
    const double *dy = call->in[0], *v = call->in[1];
    const double p = call->spec->attr[KOLO_UNARY_P].f, q = call->spec->attr[KOLO_UNARY_Q].f;
    double *dx = call->out[0];
    const int64_t count = kolo_shape_count(&call->spec->out[0].shape);
    for (int64_t i = 0; i < count; i++) dx[i] = f(dy[i], v[i], p, q);
}

#define UNARY(X, name, p_name, q_name, reads, forward, backward)                                 \
    static double name##_of(double x, double p, double q) { return forward; }                    \
    static double name##_slope(double dy, double v, double p, double q) { return backward; }     \
    static void name##_body(const kolo_call *call) { map(call, name##_of); }                     \
    static void name##_bwd_body(const kolo_call *call) { map_back(call, name##_slope); }         \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name##_body); }           \
    static void run_##name##_bwd(const kolo_call *call) { kolo_ref_run(call, name##_bwd_body); } \
    const kolo_kernel kolo_ref_##name =                                                          \
        KOLO_REF_KERNEL("ref_" #name, &kolo_op_##name, run_##name);                              \
    const kolo_kernel kolo_ref_##name##_bwd =                                                    \
        KOLO_REF_KERNEL("ref_" #name "_bwd", &kolo_op_##name##_bwd, run_##name##_bwd);
KOLO_UNARY_LIST(UNARY, )
