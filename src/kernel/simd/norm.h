#pragma once
/* Batch normalization. It works on slabs: planes [first, first + planes) of every image. Parallel
 * over planes of all images in the slab, or its channels (_end, _begin). */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_norm_job {
    kolo_simd_image image;
    int64_t first, planes; /* the slab */
    bool ahead;            /* the last sweep fetches the next slab */
    bool relu;
    float ceiling; /* of relu; NaN: none */
    bool bf16;     /* x, residual, dy and out are bf16 */
    bool past;     /* out is written by non-temporal stores */
    double eps;
    const void *x;
    const void *residual; /* added before ReLU; NULL: none */
    const void *dy;       /* backward only */
    void *out;            /* y; backward: dx */
    const float *gamma, *mean, *var;
    const float *beta;         /* backward: NULL without ReLU */
    float *mean_out, *var_out; /* batch statistics */
    float *dgamma, *dbeta;
    float *sums;                           /* [plane][image][3][inner]: two sums and the value of
                                            * the first pixel */
    float *center, *slope, *offset, *tilt; /* [channels]: coefficients of the element-wise pass */
    float *gate_slope; /* [channels], backward: y = gate_slope (x - center) + beta */
} kolo_simd_norm_job;

typedef struct kolo_simd_blend_job { /* parallel over elements */
    const float *a, *b;
    float keep, factor;
    float *out;
} kolo_simd_blend_job;

typedef struct kolo_simd_norm_table {
    kolo_kernel_loop moments, moments_end, infer_begin, products_begin, products, products_end;
    kolo_kernel_loop apply, apply_bwd;
    kolo_kernel_loop blend;
} kolo_simd_norm_table;
KOLO_ISA_TABLE(kolo_simd_norm_table, kolo_simd_norm);
