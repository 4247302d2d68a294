#pragma once
/* Activation functions. Parallel over elements. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_gelu_bias_job { /* parallel over channels */
    const void *dy, *x;
    void *dx;
    float *db;
    int64_t rows, channels;
    bool bf16; /* dy, x and dx are bf16 */
} kolo_simd_gelu_bias_job;

typedef struct kolo_simd_activation_table { /* kolo_simd_pair_job: a is x or dy, b the tensor
                                             * that the derivative needs */
    kolo_kernel_loop gelu[2], gelu_bwd[2];  /* [0]: by the error function, [1]: by tanh */
    kolo_kernel_loop gelu_bwd_bias[2];      /* kolo_simd_gelu_bias_job */
    kolo_kernel_loop mul;
} kolo_simd_activation_table;
KOLO_ISA_TABLE(kolo_simd_activation_table, kolo_simd_activation);
