#pragma once
/* Linear layers on few rows (skinny matrix products). */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_linear_job { /* y = x w^T + b: x [rows][inner], w [outer][inner] */
    int64_t rows, inner, outer;
    int64_t strip; /* columns of dx that are accumulated at a time */
    bool relu;
    const float *x, *w, *b, *dy;
    float *out;     /* y, dx */
    float *packed;  /* x in blocks of columns; dy in tiles */
    float *scratch; /* of part 0 */
    int64_t part_stride;
} kolo_simd_linear_job;

typedef struct kolo_simd_linear_table {
    kolo_kernel_loop pack_rows, forward;   /* parallel over blocks of columns; rows of w */
    kolo_kernel_loop pack_terms, bwd_data; /* parallel over tiles of dy; strips */
    /* forward: rows of a tile; columns of a block, and floats of a packed row of it; floats of the
     * accumulators of a tile, and of packed rows of w */
    int64_t rows, depth, pitch, sums, lines;
    int64_t terms, width; /* bwd_data: rows of w per tile; strips are multiples of `width` */
} kolo_simd_linear_table;
KOLO_ISA_TABLE(kolo_simd_linear_table, kolo_simd_linear);
