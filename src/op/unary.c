/* Elementwise functions of one input with their gradients (unary.h). */
#include "graph/ops/unary.h"

#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>

/* x, or dy and v, and the attributes that a row has. */
static kolo_status unary_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    if (q->n_in == 2) KOLO_TRY(kolo_rule_same(q, 0, 1));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

/* An exponential and a division, in units of vector operations of the same time. */
static kolo_cost unary_cost(const kolo_shape_query *q) {
    return (kolo_cost){20.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

static void derive(kolo_graph *g, const kolo_op *bwd, const kolo_node *n, kolo_value dy,
                   kolo_value v, const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = kolo_graph_add1(g, bwd, (kolo_value[]){dy, v}, 2, n->attr);
}

#define INPUT in
#define OUTPUT out
#define UNARY(X, op_name, p, q, reads, forward, backward)                                  \
    static const char *const op_name##_attrs[] = {p, q, NULL};                             \
    static void op_name##_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, \
                               const bool *wants, kolo_value *d_in) {                      \
        derive(g, &kolo_op_##op_name##_bwd, n, d_out[0], n->reads[0], wants, d_in);        \
    }                                                                                      \
    const kolo_op kolo_op_##op_name = {                                                    \
        .name = #op_name,                                                                  \
        .index = "*->*",                                                                   \
        .min_in = 1,                                                                       \
        .max_in = 1,                                                                       \
        .layout = {.in = "a", .out = "a"},                                                 \
        .attrs = op_name##_attrs,                                                          \
        .shape = unary_shape,                                                              \
        .grad = op_name##_grad,                                                            \
        .cost = unary_cost,                                                                \
        .overwrite = 1u << 0,                                                              \
        .bf16 = 1u << 0,                                                                   \
        .samples = {.in = 0x1u, .out = 0x1u},                                              \
    };                                                                                     \
    const kolo_op kolo_op_##op_name##_bwd = {                                              \
        .name = #op_name "_bwd",                                                           \
        .index = "*,*->*",                                                                 \
        .linear = 0x1u,                                                                    \
        .min_in = 2,                                                                       \
        .max_in = 2,                                                                       \
        .layout = {.in = "aa", .out = "a"},                                                \
        .attrs = op_name##_attrs,                                                          \
        .shape = unary_shape,                                                              \
        .cost = unary_cost,                                                                \
        .overwrite = 1u << 0 | 1u << 1,                                                    \
        .bf16 = 1u << 0 | 1u << 1,                                                         \
        .samples = {.in = 0x3u, .out = 0x1u},                                              \
    };
KOLO_UNARY_LIST(UNARY, )

static kolo_value apply(kolo_graph *g, const kolo_op *op, kolo_value x, double p, double q) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_UNARY_P].f = p, [KOLO_UNARY_Q].f = q};
    return kolo_graph_add1(g, op, &x, 1, attr);
}

/* Fails the graph unless a number is as required. */
static bool may_be(kolo_graph *g, const kolo_op *op, bool is, const char *what, double number) {
    if (is) return true;
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "%s: %s, not %g", op->name, what, number));
    return false;
}

kolo_value kolo_exp(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_exp, x, 0, 0); }
kolo_value kolo_log(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_log, x, 0, 0); }
kolo_value kolo_sqrt(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_sqrt, x, 0, 0); }
kolo_value kolo_rsqrt(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_rsqrt, x, 0, 0); }
kolo_value kolo_reciprocal(kolo_graph *g, kolo_value x) {
    return apply(g, &kolo_op_reciprocal, x, 0, 0);
}
kolo_value kolo_neg(kolo_graph *g, kolo_value x) { return kolo_scale(g, x, -1); }
kolo_value kolo_abs(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_abs, x, 0, 0); }
kolo_value kolo_square(kolo_graph *g, kolo_value x) { return kolo_pow(g, x, 2); }

kolo_value kolo_pow(kolo_graph *g, kolo_value x, double exponent) {
    bool fits = may_be(g, &kolo_op_pow, exponent - exponent == 0, "a finite exponent", exponent);
    return fits ? apply(g, &kolo_op_pow, x, exponent, 0) : KOLO_NONE;
}
kolo_value kolo_add_number(kolo_graph *g, kolo_value x, double number) {
    bool fits = may_be(g, &kolo_op_offset, number - number == 0, "a finite number", number);
    return fits ? apply(g, &kolo_op_offset, x, number, 0) : KOLO_NONE;
}
kolo_value kolo_clamp(kolo_graph *g, kolo_value x, double min, double max) {
    bool fits = may_be(g, &kolo_op_clamp, min <= max, "a minimum up to the maximum", min);
    return fits ? apply(g, &kolo_op_clamp, x, min, max) : KOLO_NONE;
}
kolo_value kolo_relu6(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_hardtanh, x, 0, 6); }
kolo_value kolo_leaky_relu(kolo_graph *g, kolo_value x, double slope) {
    bool fits = may_be(g, &kolo_op_leaky_relu, slope - slope == 0, "a finite slope", slope);
    return fits ? apply(g, &kolo_op_leaky_relu, x, slope, 0) : KOLO_NONE;
}
kolo_value kolo_elu(kolo_graph *g, kolo_value x, double alpha) {
    bool fits = may_be(g, &kolo_op_elu, alpha - alpha == 0, "a finite alpha", alpha);
    return fits ? apply(g, &kolo_op_elu, x, alpha, 0) : KOLO_NONE;
}
kolo_value kolo_softplus(kolo_graph *g, kolo_value x, double beta) {
    bool fits = may_be(g, &kolo_op_softplus, beta > 0, "a beta above 0", beta);
    return fits ? apply(g, &kolo_op_softplus, x, beta, 0) : KOLO_NONE;
}
kolo_value kolo_hardswish(kolo_graph *g, kolo_value x) {
    return apply(g, &kolo_op_hardswish, x, 0, 0);
}
kolo_value kolo_hardsigmoid(kolo_graph *g, kolo_value x) {
    return apply(g, &kolo_op_hardsigmoid, x, 0, 0);
}
kolo_value kolo_silu(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_silu, x, 0, 0); }
kolo_value kolo_sigmoid(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_sigmoid, x, 0, 0); }
kolo_value kolo_tanh(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_tanh, x, 0, 0); }
kolo_value kolo_erf(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_erf, x, 0, 0); }
kolo_value kolo_sin(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_sin, x, 0, 0); }
kolo_value kolo_cos(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_cos, x, 0, 0); }
kolo_value kolo_atan(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_atan, x, 0, 0); }
kolo_value kolo_floor(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_floor, x, 0, 0); }
kolo_value kolo_ceil(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_ceil, x, 0, 0); }
kolo_value kolo_round(kolo_graph *g, kolo_value x) { return apply(g, &kolo_op_round, x, 0, 0); }

/* ---- reference ---- */

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
#define SIN sin
#define COS cos
#define ATAN atan
#define FLOOR floor
#define ROUND nearbyint

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

#define KERNEL(X, name, p_name, q_name, reads, forward, backward)                            \
    static double name##_of(double x, double p, double q) { return forward; }                \
    static double name##_slope(double dy, double v, double p, double q) { return backward; } \
    static void name##_body(const kolo_call *call) { map(call, name##_of); }                 \
    static void name##_bwd_body(const kolo_call *call) { map_back(call, name##_slope); }     \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name##_body); }       \
    static void run_##name##_bwd(const kolo_call *call) { kolo_ref_run(call, name##_bwd_body); }
KOLO_UNARY_LIST(KERNEL, )

#define ROW(name) KOLO_REF_KERNEL("ref_" #name, &kolo_op_##name, run_##name),

const kolo_kernel kolo_ops_unary[] = {
    KOLO_UNARY_LIST(KOLO_UNARY_OP, ROW) /* the function and its gradient */
    {0},
};
