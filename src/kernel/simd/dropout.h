#pragma once
/* Dropout. Items are elements. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_dropout_job {
    const void *x;
    void *y;
    bool half;             /* both are bf16 */
    uint64_t seed, stream; /* of the draws */
    uint64_t place;        /* which draw is x[0]'s */
    uint32_t limit;        /* of 24 bits: what is drawn below it is dropped */
    float scale;
} kolo_simd_dropout_job;

typedef struct kolo_simd_dropout_table {
    kolo_kernel_loop dropout;
} kolo_simd_dropout_table;
KOLO_ISA_TABLE(kolo_simd_dropout_table, kolo_simd_dropout);
