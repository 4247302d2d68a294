#pragma once
/* Softmax cross-entropy of logits [N,C] that are sharded along the classes. Parallel over rows. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_sharded_loss_job {
    int64_t rows, classes, first; /* first: the number of class 0 */
    const float *logits, *max, *dsums;
    const int32_t *labels;
    float *out;
} kolo_simd_sharded_loss_job;

typedef struct kolo_simd_sharded_loss_table {
    kolo_kernel_loop class_max, class_sums, class_sums_bwd;
} kolo_simd_sharded_loss_table;
KOLO_ISA_TABLE(kolo_simd_sharded_loss_table, kolo_simd_sharded_loss);
