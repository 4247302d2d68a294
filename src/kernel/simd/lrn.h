#pragma once
/* Local response normalization. Parallel over tiles of pixels. */

#include "kernel/simd/simd.h"

/* Pixels per tile where a pixel holds one channel (a vector of pixels); otherwise one. */
enum { KOLO_SIMD_LRN_TILE = 16 };

typedef struct kolo_simd_lrn_job {
    kolo_simd_image image;
    int64_t size, tile, tiles; /* pixels per tile, tiles per image */
    float alpha, beta, k;      /* alpha divided by the size */
    bool bf16;                 /* all tensors are bf16 */
    const void *x, *dy, *s;
    void *y, *s_out, *dx;
    float *scratch; /* per part */
    int64_t part_stride;
} kolo_simd_lrn_job;

typedef struct kolo_simd_lrn_table {
    kolo_kernel_loop forward, backward;
} kolo_simd_lrn_table;
KOLO_ISA_TABLE(kolo_simd_lrn_table, kolo_simd_lrn);
