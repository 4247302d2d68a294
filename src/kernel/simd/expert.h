#pragma once
/* Mixtures of experts: tokens to places of experts and back. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_expert_job {
    int64_t samples, tokens, width, experts, room;
    const int32_t *places; /* [samples][tokens][experts] */
    const float *gates;    /* the same; NULL: 1 */
    const void *from;      /* dispatch: tokens; combine: places; products: tokens */
    const void *with;      /* products: places */
    void *to;              /* dispatch: places; combine: tokens; products: floats */
    bool bf16;             /* tokens and places */
} kolo_simd_expert_job;

typedef struct kolo_simd_expert_table {
    kolo_kernel_loop dispatch;          /* parallel over experts and samples */
    kolo_kernel_loop combine, products; /* over tokens */
} kolo_simd_expert_table;
KOLO_ISA_TABLE(kolo_simd_expert_table, kolo_simd_expert);
