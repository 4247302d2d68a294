#pragma once
/* Reduction loops: one function per element type and operation, one copy per instruction set. */

#include "base/isa.h"
#include "kolo/comm.h"

/* Kernels have the order of the operations without MEAN, which is a SUM followed by a scaling. The
 * first KOLO_REDUCE_OPS exist for all real types, the others for integers; complex types have SUM
 * and PROD. */
enum { KOLO_REDUCE_OPS = 4, KOLO_REDUCE_KERNELS = KOLO_REDUCE_OP_COUNT - 1 };

static inline int kolo_reduce_kernel(kolo_reduce_op op) {
    return op == KOLO_MEAN ? KOLO_SUM : op > KOLO_MEAN ? (int)op - 1 : (int)op;
}
/* ARG: unknown type or operation, or an operation that the type does not have. */
kolo_status kolo_reduce_check(kolo_dtype dtype, kolo_reduce_op op);

/* to[0..n_to)[i] = from[0][i] op from[1][i] op ..., in this order, for i < count. A `to` may
 * equal one of the `from` but must not overlap it otherwise. f16 and bf16 are combined in f32
 * and rounded once. The result of an element does not depend on its position, so vectors can be
 * cut anywhere. */
typedef void (*kolo_reduce_fn)(void *const *to, int n_to, const void *const *from, int n_from,
                               size_t count);

/* data[i] *= factor, rounded once to nearest even (computed in f64; f16 and bf16 in f32).
 * Integers: data[i] /= 1 / factor, which is an integer, rounded towards zero. */
typedef void (*kolo_scale_fn)(void *data, size_t count, double factor);

typedef struct kolo_reduce_table {
    kolo_scale_fn scale[KOLO_DTYPE_COUNT];
    kolo_reduce_fn fn[KOLO_DTYPE_COUNT][KOLO_REDUCE_KERNELS]; /* NULL: see above */
} kolo_reduce_table;
KOLO_ISA_TABLE(kolo_reduce_table, kolo_reduce);

/* The loops of the best instruction set. */
KOLO_SHARED const kolo_reduce_table *kolo_reduce_best(void);
/* The loops of one instruction set; NULL when the processor or the build lacks it. */
KOLO_SHARED const kolo_reduce_table *kolo_reduce_of(kolo_isa isa);
