#pragma once
/* Batch normalisation. Items are planes of all images, or channels (_end, _begin), of a slab: of
 * planes [first, first + planes) of every image. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_norm_job {
    kolo_simd_image image;
    int64_t first, planes; /* the slab */
    bool relu;
    bool half; /* x, residual, dy and out are bf16 */
    double eps;
    const void *x;
    const void *residual; /* added before relu; NULL: none */
    const void *dy;       /* backwards */
    void *out;            /* y; backwards: dx */
    const float *gamma, *mean, *var;
    const float *beta;         /* backwards: NULL without relu */
    float *mean_out, *var_out; /* of the batch */
    float *dgamma, *dbeta;
    float *sums;                           /* [image][3][channels]: two sums, the first pixel */
    float *center, *slope, *offset, *tilt; /* [channels], by which the elements are computed */
    float *gate_slope; /* [channels], backwards: y = gate_slope (x - center) + beta */
} kolo_simd_norm_job;

typedef struct kolo_simd_blend_job { /* items: elements */
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
