#pragma once
/* Pooling: the loops are in max_pool.isa.c and avg_pool.isa.c. Parallel over planes of all images.
 */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_pool_job {
    kolo_simd_image big, small; /* input and output side */
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    int64_t pad_below;              /* rows behind the last one; pad_h are in front */
    bool relu, tiles;               /* tiles: 2 x 2 windows that partition the image */
    bool exclude_padding, adaptive; /* average pooling: padding does not count; adaptive windows */
    const void *in;                 /* x; backward: dy */
    const void *y;                  /* max_pool2d_bwd with ReLU, else NULL */
    void *out;
    uint8_t *index; /* written in forward, read in backward */
    bool bf16;      /* in, y and out are bf16 */
    float *scratch; /* per part. max without `tiles`: rows of the output's width, kernel_h of
                     * maxima and as many of their indices. max_bwd: reach of kernel_h rows of
                     * dy, with margins of reach of kernel_w pixels at both ends, and as many of
                     * indices. Average pooling backward in bf16: a plane of dx in f32 */
    int64_t part_stride;
} kolo_simd_pool_job;

/* The maximum number of windows along one axis that contain a pixel. */
static inline int64_t kolo_simd_reach(int64_t kernel, int64_t stride) {
    return (kernel - 1) / stride + 1;
}

typedef struct kolo_simd_pool_table {
    kolo_kernel_loop fwd, bwd;
} kolo_simd_pool_table;
KOLO_ISA_TABLE(kolo_simd_pool_table, kolo_simd_max_pool);
KOLO_ISA_TABLE(kolo_simd_pool_table, kolo_simd_avg_pool);
