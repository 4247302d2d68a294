#pragma once
/* The elementwise functions of two inputs, y = f(a, b), with the broadcasting rules of NumPy, a row
 * each:
 *
 *     ROW(X, name, join, linear, forward)
 *
 * join      the sign between the inputs in index notation (graph/index.h): '+' or ','
 * linear    bit i: linear in input i
 * forward   y, of a and b
 *
 * The row declares the op, its reference kernel and its vector kernel; binary.c has the gradients.
 * The formulas are compiled for doubles (op/binary.c) and for vectors
 * (kernel/simd/binary.isa.c), which define N(number) and IF(condition, a, b). minimum and maximum
 * give NaN where either input is NaN. less: 1 where a < b, 1/2 where they are equal, else 0; equal:
 * 1 or 0; both have no gradient. add and mul of equal shapes are ops of their own. */
#include "graph/graph.h"

#define KOLO_BINARY_LIST(ROW, X)                                    \
    ROW(X, broadcast_add, '+', 0x3u, a + b)                         \
    ROW(X, broadcast_mul, ',', 0x3u, (a * b))                       \
    ROW(X, sub, '+', 0x3u, a - b)                                   \
    ROW(X, div, ',', 0x1u, a / b)                                   \
    ROW(X, minimum, ',', 0, IF(a < b, a, IF(b <= a, b, a + b)))     \
    ROW(X, maximum, ',', 0, IF(a > b, a, IF(b >= a, b, a + b)))     \
    ROW(X, less, ',', 0, IF(a < b, N(1), IF(a == b, N(0.5), N(0)))) \
    ROW(X, equal, ',', 0, IF(a == b, N(1), N(0)))

/* Dimensions of the output along which an input of size 1 is repeated, as bits. */
enum { KOLO_BINARY_REPEAT_A, KOLO_BINARY_REPEAT_B };

/* The dimension of input i along dimension d of the output; -1: it has none, or is repeated. */
static inline int kolo_binary_dim(const kolo_attr *attr, int i, const kolo_shape *in, int rank,
                                  int d) {
    int dim = d - (rank - in->rank);
    return dim < 0 || (attr[KOLO_BINARY_REPEAT_A + i].i >> d & 1) ? -1 : dim;
}

/* The rows of lists of ops and kernels. */
#define KOLO_BINARY_OP(X, name, join, linear, forward) X(name)
