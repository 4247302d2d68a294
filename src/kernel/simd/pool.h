#pragma once
/* Pooling. Items are planes of all images. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_pool_job {
    kolo_simd_image big, small; /* before and after pooling */
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    bool relu, tiles; /* tiles: windows of 2 x 2 cover the big image, each pixel once */
    bool exclude_padding, adaptive; /* of means; windows of an adaptive pool */
    const void *in;                 /* x; backwards: dy */
    const void *y;                  /* max_pool2d_bwd with relu, else NULL */
    void *out;
    uint8_t *index; /* written forwards, read backwards */
    bool half;      /* in, y and out are bf16 */
    float *scratch; /* for each part. max without tiles: rows of small's width, kernel_h of maxima
                     * and as many of their places; max_bwd: reach of kernel_h rows of dy, with a
                     * reach of kernel_w pixels at both ends, and as many of places; means
                     * backwards, with half: a plane of dx */
    int64_t part_stride;
} kolo_simd_pool_job;

/* How many windows along one axis hold one pixel, at the most. */
static inline int64_t kolo_simd_reach(int64_t kernel, int64_t stride) {
    return (kernel - 1) / stride + 1;
}

typedef struct kolo_simd_pool_table {
    kolo_kernel_loop max, max_bwd, avg, avg_bwd;
} kolo_simd_pool_table;
KOLO_ISA_TABLE(kolo_simd_pool_table, kolo_simd_pool);
