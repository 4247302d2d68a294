#pragma once
/* Rotary embedding. Parallel over tokens. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_rotary_job {
    const void *x;
    void *y;
    const float *cosines, *sines; /* [length][half] */
    int64_t length, heads, half;  /* half of the width of a head */
    bool bf16;
} kolo_simd_rotary_job;

typedef struct kolo_simd_position_table {
    kolo_kernel_loop rotary;
} kolo_simd_position_table;
KOLO_ISA_TABLE(kolo_simd_position_table, kolo_simd_position);
