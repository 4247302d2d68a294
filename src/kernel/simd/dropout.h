#pragma once
/* Dropout. Parallel over elements. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_dropout_job {
    const void *x;
    void *y;
    bool bf16;             /* both are bf16 */
    uint64_t seed, stream; /* of the random-number stream */
    uint64_t place;        /* counter of x[0]'s random number */
    uint32_t limit;        /* 24-bit threshold: random numbers below it drop the element */
    float scale;
} kolo_simd_dropout_job;

typedef struct kolo_simd_dropout_table {
    kolo_kernel_loop dropout;
} kolo_simd_dropout_table;
KOLO_ISA_TABLE(kolo_simd_dropout_table, kolo_simd_dropout);
