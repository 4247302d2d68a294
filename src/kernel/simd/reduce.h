#pragma once
/* Sums, maxima and minima over dimensions. */

#include "kernel/simd/nest.h"

/* Tensors of both nests: x, then y. Innermost in x is a kept dimension, of which an item is a
 * slice, or a reduced one. Parallel over items. */
typedef struct kolo_simd_reduce_job {
    kolo_simd_nest kept, reduced; /* no dimension: one position */
    bool kept_inside;
    const float *x;
    float *y, factor;
} kolo_simd_reduce_job;

enum { KOLO_SIMD_REDUCE_SLICE = 64 };

static inline int64_t kolo_simd_reduce_slices(const kolo_simd_reduce_job *job) {
    if (!job->kept_inside) return 1;
    int64_t size = job->kept.size[job->kept.n_dims - 1];
    return (size + KOLO_SIMD_REDUCE_SLICE - 1) / KOLO_SIMD_REDUCE_SLICE;
}
static inline int64_t kolo_simd_reduce_items(const kolo_simd_reduce_job *job) {
    return kolo_simd_nest_rows(&job->kept, job->kept.n_dims - job->kept_inside) *
           kolo_simd_reduce_slices(job);
}

typedef struct kolo_simd_reduce_table {
    kolo_kernel_loop sum, max, min;
} kolo_simd_reduce_table;
KOLO_ISA_TABLE(kolo_simd_reduce_table, kolo_simd_reduce);
