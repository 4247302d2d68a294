#pragma once
/* Linear layers on many rows, of tokens or images: forward and data gradient. */

#include "kernel/simd/simd.h"

/* What follows the product. */
typedef enum kolo_simd_finish {
    KOLO_SIMD_FINISH_NONE,
    KOLO_SIMD_FINISH_RELU,
    KOLO_SIMD_FINISH_GELU,
    KOLO_SIMD_FINISH_GELU_TANH,
} kolo_simd_finish;

/* out [rows][outer] = a [rows][inner] b + bias, where b is w [inner][outer], or the transpose of w
 * [outer][inner]. */
typedef struct kolo_simd_many_job {
    int64_t rows, inner, outer;
    bool transposed;
    kolo_simd_finish finish;
    const float *a, *w, *bias; /* bias may be NULL */
    float *out;                /* the product, with ReLU */
    float *gelu;               /* GELU of it; may be `out` */
    bool streams;              /* with GELU: writes past the cache */
    int64_t strips;            /* of nearly equal numbers of rows */
    int64_t first, depth;      /* the block of rows of b in hand, */
    int64_t column, columns;   /* and of its columns */
    float *packed;             /* that block */
    float *scratch;            /* of part 0: a strip of a */
    int64_t part_stride;
} kolo_simd_many_job;

typedef struct kolo_simd_many_table {
    kolo_kernel_loop pack, multiply; /* parallel over panels of the block; strips of rows */
    int64_t strip, panel;            /* rows of a strip, at most; columns of a panel */
    int64_t pad;                     /* floats between the rows of a packed strip */
} kolo_simd_many_table;
KOLO_ISA_TABLE(kolo_simd_many_table, kolo_simd_many);

/* How many strips of at most `most` rows: as many for each thread. With more threads than rows some
 * have none. */
static inline int64_t kolo_simd_many_strips(int64_t rows, int64_t most, int threads) {
    const int64_t turn = most * threads;
    return (rows + turn - 1) / turn * threads;
}
