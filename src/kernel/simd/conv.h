#pragma once
/* Direct convolution. Parallel over images. */

#include "kernel/simd/simd.h"

/* Weights are packed into scratch memory and zero-padded to whole vectors: [C][KH][KW][lanes >=
 * O] for forward and the weight gradient, [KH][O][lanes >= KW * C] for the data gradient. */
typedef struct kolo_simd_conv_job {
    kolo_simd_image x, y;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    int64_t pad_below; /* rows behind the last one; pad_h are in front */
    int64_t lanes;
    bool relu;
    bool pairs; /* two images share vectors of 16 lanes: channel o is lanes o and o + 8 */
    const float *in_x, *in_dy, *packed;
    const float *bias; /* [lanes] */
    float *out;        /* y; dx; partial sums of the weight gradient, one block per part */
    float *scratch;    /* of part 0 */
    int64_t part_stride;
} kolo_simd_conv_job;

/* Size of one image of x with the convolution's zero padding. */
static inline int64_t kolo_simd_padded_row(const kolo_simd_conv_job *job) {
    return (job->x.w + 2 * job->pad_w) * job->x.inner;
}
static inline int64_t kolo_simd_padded_plane(const kolo_simd_conv_job *job) {
    return (job->x.h + job->pad_h + job->pad_below) * kolo_simd_padded_row(job);
}
static inline bool kolo_simd_has_margins(const kolo_simd_conv_job *job) {
    return job->pad_h > 0 || job->pad_below > 0 || job->pad_w > 0;
}

typedef struct kolo_simd_conv_table {
    kolo_kernel_loop forward, bwd_data, bwd_weights;
    int vector; /* floats per vector */
} kolo_simd_conv_table;
KOLO_ISA_TABLE(kolo_simd_conv_table, kolo_simd_conv);
