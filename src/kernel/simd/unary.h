#pragma once
/* Elementwise functions of one input. Parallel over elements. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_unary_job {
    const void *a, *v; /* x, and x again; dy and v */
    void *out;
    float p, q;
    bool bf16; /* all are bf16 */
} kolo_simd_unary_job;

#define KOLO_SIMD_UNARY_MEMBER(name) kolo_kernel_loop name;
typedef struct kolo_simd_unary_table {
    KOLO_UNARY_LIST(KOLO_UNARY_OP, KOLO_SIMD_UNARY_MEMBER)
} kolo_simd_unary_table;
KOLO_ISA_TABLE(kolo_simd_unary_table, kolo_simd_unary);
