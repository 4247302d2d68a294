#pragma once
/* Weight gradients of linear layers on many rows. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_weights_job { /* dw = dy^T x: dy [rows][outer], x [rows][inner] */
    int64_t rows, inner, outer;
    const float *x, *dy;
    float *dw, *db;          /* db may be NULL */
    int64_t row, depth;      /* the block of rows in hand, */
    int64_t column, columns; /* and of columns of x */
    float *packed;           /* that block of x */
    float *scratch;          /* of part 0: a block of dy */
    int64_t part_stride;
} kolo_simd_weights_job;

typedef struct kolo_simd_weights_table {
    kolo_kernel_loop pack, multiply; /* parallel over panels of x; tiles of rows of dw */
    int64_t depth;                   /* rows of a block */
    int64_t tile_rows, tile_columns; /* of dw */
    int64_t packed_panel, scratch;   /* floats: of a panel of x, of the scratch memory of a part */
} kolo_simd_weights_table;
KOLO_ISA_TABLE(kolo_simd_weights_table, kolo_simd_weights);
