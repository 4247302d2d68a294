#pragma once
/* Softmax over the middle of [n,count,inner]. Parallel over rows for an inner size of 1, else over
 * strips of columns. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_softmax_job {
    const void *a, *y; /* x, and x again; dy and y */
    void *out;
    int64_t n, count, inner;
    bool log, bf16;
    bool past; /* out is written by non-temporal stores */
} kolo_simd_softmax_job;

typedef struct kolo_simd_softmax_table {
    int strip;  /* columns of a strip */
    int narrow; /* elements of rows, */
    int kept;   /* and of samples of one strip, that may be written past the cache, at most */
    kolo_kernel_loop forward, backward;
} kolo_simd_softmax_table;
KOLO_ISA_TABLE(kolo_simd_softmax_table, kolo_simd_softmax);
