#pragma once
/* Normalization of rows of channels: layer_norm and rms_norm. */

#include "kernel/simd/simd.h"

/* forward: parallel over rows; backward: over blocks of rows; sums: over slices of channels. */
typedef struct kolo_simd_row_norm_job {
    int64_t rows, channels;
    int64_t each, blocks; /* backward: rows of a block; their number */
    float eps;
    bool centre; /* layer_norm; rms_norm has no mean and no beta */
    bool bf16;   /* x, dy and `out` are bf16 */
    const void *x, *dy;
    const float *gamma, *beta;
    float *mean, *rstd;
    void *out;   /* y; dx */
    float *sums; /* of each block: dgamma, then dbeta */
    float *dgamma, *dbeta;
} kolo_simd_row_norm_job;

typedef struct kolo_simd_row_norm_table {
    kolo_kernel_loop forward, backward, sums;
} kolo_simd_row_norm_table;
KOLO_ISA_TABLE(kolo_simd_row_norm_table, kolo_simd_row_norm);
