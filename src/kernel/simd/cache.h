#pragma once
/* Attention to cached keys and values. Parallel over heads of keys and values of samples. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_cache_job {
    const float *x, *cache; /* [N,length,channels], [N,2 groups,rows,width] */
    const int32_t *positions;
    float *out;
    int64_t length, channels, groups, each, rows, width; /* each: heads of queries of a group */
    float *scratch;                                      /* of part 0: scores, an accumulator */
    int64_t part_stride;
} kolo_simd_cache_job;

typedef struct kolo_simd_cache_table {
    kolo_kernel_loop attention;
} kolo_simd_cache_table;
KOLO_ISA_TABLE(kolo_simd_cache_table, kolo_simd_cache);
