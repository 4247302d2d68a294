#pragma once
/* Group normalization of x [N,G,K,P]: rows are the groups of all samples. */

#include "kernel/simd/simd.h"

/* forward, backward: parallel over rows; sums: over channels, of all groups. */
typedef struct kolo_simd_group_norm_job {
    int64_t samples, groups, channels, pixels; /* N, G, K, P */
    float eps;
    bool bf16; /* x, dy and `out` are bf16 */
    bool past; /* `out` is written by non-temporal stores */
    const void *x, *dy;
    const float *gamma, *beta; /* [G,K]; NULL: none */
    float *mean, *rstd;
    void *out;             /* y; dx */
    float *of_h, *of_dy;   /* [N,G,K]: the shares of samples in dgamma and dbeta; with gamma */
    float *dgamma, *dbeta; /* [G,K] */
} kolo_simd_group_norm_job;

typedef struct kolo_simd_group_norm_table {
    kolo_kernel_loop forward, backward, sums;
} kolo_simd_group_norm_table;
KOLO_ISA_TABLE(kolo_simd_group_norm_table, kolo_simd_group_norm);
