#pragma once
/* Reduction loops: one function per element type and operation, built once per instruction set. */

#include "base/isa.h"
#include "kolo/comm.h"

enum { KOLO_REDUCE_OPS = 4 }; /* MEAN is a SUM that is scaled afterwards */

/* to[0..n_to)[i] = from[0][i] op from[1][i] op ... in that order, for i < count. A `to` may be one
 * of the `from`, never overlap it otherwise. f16 and bf16 are combined as f32 and rounded once.
 * Every element is computed in the same way wherever it stands, so results do not depend on how a
 * vector is cut. */
typedef void (*kolo_reduce_fn)(void *const *to, int n_to, const void *const *from, int n_from,
                               size_t count);

/* data[i] *= factor, rounded once to nearest even (the product is taken in f64, of f16 and bf16 in
 * f32). Of integers data[i] /= 1 / factor, a whole number, towards zero. */
typedef void (*kolo_scale_fn)(void *data, size_t count, double factor);

typedef struct kolo_reduce_table {
    kolo_scale_fn scale[KOLO_DTYPE_COUNT];
    kolo_reduce_fn fn[KOLO_DTYPE_COUNT][KOLO_REDUCE_OPS];
} kolo_reduce_table;
KOLO_ISA_TABLE(kolo_reduce_table, kolo_reduce);

/* The loops of the best instruction set that this processor has. */
KOLO_SHARED const kolo_reduce_table *kolo_reduce_best(void);
/* Those of one set; NULL when this processor lacks it. */
KOLO_SHARED const kolo_reduce_table *kolo_reduce_of(kolo_isa isa);
