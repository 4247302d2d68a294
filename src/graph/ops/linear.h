#pragma once
/* Matrix products, and the elementwise ops that layers of them have. */

#include "graph/graph.h"

/* linear: x [N,I...], w [O,I...], [b [O]] -> y [N,O]; the dimensions after the first may be several
 * (a flatten folded in), and must be the same in x and w. Or tokens: x [N,...,I], w [O,I] -> y
 * [N,...,O]. linear_bwd_data: dy, w -> dx. linear_bwd_weights: dy, x -> dw, [db]. */
enum { KOLO_LINEAR_RELU };     /* linear */
enum { KOLO_LINEAR_BWD_BIAS }; /* linear_bwd_weights: 1 gives db */
extern const kolo_op kolo_op_linear, kolo_op_linear_bwd_data, kolo_op_linear_bwd_weights;

/* linear_gelu: x, w [O,I], [b [O]] -> y = gelu(z), [z] with z = linear(x, w, b), if keep is 1. */
enum { KOLO_LINEAR_GELU_TANH, KOLO_LINEAR_GELU_KEEP };
extern const kolo_op kolo_op_linear_gelu;

/* matmul: a [B,M,K] (transpose_a: [B,K,M]), b [B,K,N] (transpose_b: [B,N,K]) -> [B,M,N]. */
enum { KOLO_MATMUL_TRANSPOSE_A, KOLO_MATMUL_TRANSPOSE_B };
extern const kolo_op kolo_op_matmul;

/* bias: x [N,C,...], b [C] -> y. bias_bwd: dy -> db (sum over all but dimension 1).
 * relu: x -> y. relu_bwd: dy, y, [dy2] -> dx = y > 0 ? dy + dy2 : 0. add: a, b -> a + b; relu:
 * max(0, a + b). */
enum { KOLO_ADD_RELU };
extern const kolo_op kolo_op_bias, kolo_op_bias_bwd, kolo_op_relu, kolo_op_relu_bwd, kolo_op_add;

/* gelu: x -> x Phi(x), or with tanh x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
 * gelu_bwd: dy, x -> dx, [db], the sum of dx over all but its last dimension, when bias is 1.
 * mul: a, b -> a b. unary.h and binary.h have the other functions. */
enum { KOLO_GELU_TANH, KOLO_GELU_BWD_BIAS };
extern const kolo_op kolo_op_gelu, kolo_op_gelu_bwd, kolo_op_mul;
