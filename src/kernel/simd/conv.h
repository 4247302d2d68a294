#pragma once
/* Direct convolution. Items are images. */

#include "kernel/simd/simd.h"

/* Weights are packed in scratch, padded with zeros to whole vectors: forwards, and their gradients,
 * [C][KH][KW][lanes >= O]; for the data's gradient [KH][O][lanes >= KW * C]. */
typedef struct kolo_simd_conv_job {
    kolo_simd_image x, y;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    int64_t lanes;
    bool relu;
    const float *in_x, *in_dy, *packed;
    const float *bias; /* lanes floats */
    float *out;        /* y; dx; sums of the weights' gradient, one block of them a part */
    float *scratch;    /* of part 0 */
    int64_t part_stride;
} kolo_simd_conv_job;

/* x of one image with the convolution's margins of zeros around it. */
static inline int64_t kolo_simd_padded_row(const kolo_simd_conv_job *job) {
    return (job->x.w + 2 * job->pad_w) * job->x.inner;
}
static inline int64_t kolo_simd_padded_plane(const kolo_simd_conv_job *job) {
    return (job->x.h + 2 * job->pad_h) * kolo_simd_padded_row(job);
}

typedef struct kolo_simd_conv_table {
    kolo_kernel_loop forward, bwd_data, bwd_weights;
    int vector; /* floats of a vector */
} kolo_simd_conv_table;
KOLO_ISA_TABLE(kolo_simd_conv_table, kolo_simd_conv);
