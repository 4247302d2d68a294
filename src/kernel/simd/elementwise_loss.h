#pragma once
/* Loops of the elementwise losses. */

#include "base/isa.h"
#include "graph/ops/ops.h"
#include "kernel/parallel.h"

enum { KOLO_SIMD_LOSS_BLOCK = 4096 }; /* elements that are summed together */

typedef struct kolo_simd_losses_job {
    const float *x, *target;
    int64_t count;
    float delta, dloss;
    float *sums; /* forward: per block */
    float *dx;   /* backward */
} kolo_simd_losses_job;

/* By kind. Forward is parallel over blocks, backward over elements. */
typedef struct kolo_simd_losses_table {
    kolo_kernel_loop forward[KOLO_LOSS_KIND_COUNT], backward[KOLO_LOSS_KIND_COUNT];
} kolo_simd_losses_table;
KOLO_ISA_TABLE(kolo_simd_losses_table, kolo_simd_losses);
