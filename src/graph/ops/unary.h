#pragma once
/* The elementwise functions of one input, y = f(x), a row each:
 *
 *     ROW(X, name, p, q, reads, forward, backward)
 *
 * p, q      names of the attributes that the formulas call p and q; NULL: none
 * reads     what the gradient reads beside dy, called v: INPUT or OUTPUT
 * forward   y, of x, p and q
 * backward  dx, of dy, v, p and q
 *
 * The row declares the ops `name` and `name_bwd` (dy, v -> dx), their reference kernels and their
 * vector kernels. The formulas are compiled for doubles (op/unary.c) and for vectors
 * (kernel/simd/unary.isa.c), which define N(number), IF(condition, a, b), EXP, EXPM1 (below 1),
 * LOG, SQRT, POW, SIGMOID, SOFTPLUS, ERF, TANH, SIN, COS, ATAN, FLOOR and ROUND (halves to even
 * numbers). Both evaluate both sides of an IF. Comparisons are combined with &. A comparison with a
 * NaN is false: formulas pass NaN on.
 *
 * Zeros have the signs of the C library's: x + N(0) is that of abs.
 *
 * As in PyTorch 2.15, the gradient of clamp is 0 at its bounds, and that of hardswish 1 at 3; silu
 * of -infinity is NaN. silu: Elfwing et al., "Sigmoid-weighted linear units", 2018; elu: Clevert et
 * al., 2016; hardswish: Howard et al., "Searching for MobileNetV3", 2019. */
#define KOLO_UNARY_LIST(ROW, X)                                                                 \
    ROW(X, exp, NULL, NULL, OUTPUT, EXP(x), (dy * v))                                           \
    ROW(X, log, NULL, NULL, INPUT, LOG(x), dy / v)                                              \
    ROW(X, sqrt, NULL, NULL, OUTPUT, SQRT(x), dy / (v + v))                                     \
    ROW(X, rsqrt, NULL, NULL, OUTPUT, N(1) / SQRT(x), dy * v * (N(-0.5) * v) * v)               \
    ROW(X, reciprocal, NULL, NULL, OUTPUT, N(1) / x, -dy * v * v)                               \
    ROW(X, abs, NULL, NULL, INPUT, IF(x < N(0), -x, x + N(0)),                                  \
        IF(v > N(0), dy, IF(v < N(0), -dy, dy * v)))                                            \
    ROW(X, pow, "%exponent", NULL, INPUT, POW(x, p),                                            \
        IF(p == N(0), N(0), dy * POW(v, p - N(1)) * p))                                         \
    ROW(X, offset, "%by", NULL, INPUT, x + p, dy)                                               \
    ROW(X, clamp, "%min", "%max", INPUT, IF(x < p, p, IF(x > q, q, x)),                         \
        IF((v > p) & (v < q), dy, N(0)))                                                        \
    ROW(X, hardtanh, "%min", "%max", INPUT, IF(x < p, p, IF(x > q, q, x)),                      \
        IF((v > p) & (v < q), dy, N(0)))                                                        \
    ROW(X, leaky_relu, "%slope", NULL, INPUT, IF(x > N(0), x, p * x), IF(v > N(0), dy, p * dy)) \
    ROW(X, elu, "%alpha", NULL, INPUT, IF(x > N(0), x, p * EXPM1(x)),                           \
        IF(v > N(0), dy, dy * (p * EXP(v))))                                                    \
    ROW(X, softplus, "%beta", NULL, INPUT, SOFTPLUS(x, p), dy *SIGMOID(p *v))                   \
    ROW(X, hardswish, NULL, NULL, INPUT,                                                        \
        IF(x < N(-3), N(0), IF(x > N(3), x, x * (x + N(3)) / N(6))),                            \
        IF(v <= N(-3), N(0), IF(v >= N(3), dy, dy * (v / N(3) + N(0.5)))))                      \
    ROW(X, hardsigmoid, NULL, NULL, INPUT,                                                      \
        IF(x < N(-3), N(0), IF(x > N(3), N(1), x / N(6) + N(0.5))),                             \
        IF((v > N(-3)) & (v < N(3)), dy / N(6), N(0)))                                          \
    ROW(X, silu, NULL, NULL, INPUT, SIGMOID(x) * x,                                             \
        (dy * SIGMOID(v)) * (N(1) + v * (N(1) - SIGMOID(v))))                                   \
    ROW(X, erf, NULL, NULL, INPUT, ERF(x), dy *(N(1.1283791670955126) * EXP(-v * v)))           \
    ROW(X, sigmoid, NULL, NULL, OUTPUT, SIGMOID(x), (dy * v) * (N(1) - v))                      \
    ROW(X, tanh, NULL, NULL, OUTPUT, TANH(x), (N(1) - v * v) * dy)                              \
    ROW(X, sin, NULL, NULL, INPUT, SIN(x), dy *COS(v))                                          \
    ROW(X, cos, NULL, NULL, INPUT, COS(x), -dy *SIN(v))                                         \
    ROW(X, atan, NULL, NULL, INPUT, ATAN(x), dy / (N(1) + v * v))                               \
    ROW(X, floor, NULL, NULL, INPUT, FLOOR(x), dy *N(0))                                        \
    ROW(X, ceil, NULL, NULL, INPUT, -FLOOR(-x), dy *N(0))                                       \
    ROW(X, round, NULL, NULL, INPUT, ROUND(x), dy *N(0))

enum { KOLO_UNARY_P, KOLO_UNARY_Q };

/* The rows of lists of ops and kernels. */
#define KOLO_UNARY_OP(X, name, p, q, reads, forward, backward) X(name) X(name##_bwd)
