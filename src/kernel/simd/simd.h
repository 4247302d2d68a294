#pragma once
/* The vectorized kernels: ops that oneDNN lacks, or is slow at for small images and few
 * channels. They compute in f32; some also read and write bf16 (vector.h).
 *
 * A subject X consists of X.c, the kernels (fit, prepare, run), X.isa.c, the inner loops,
 * compiled once per instruction set, and X.h, the jobs and the table of loops that connect them.
 * `prepare` picks the table of the best instruction set (KOLO_ISA_PICK). `run` fills in a job;
 * kolo_kernel_parallel distributes its items over threads. The distribution does not affect
 * results, except those of conv2d_bwd_weights.
 *
 * Images are accessed through kolo_simd_image, which covers abcd (NCHW), acdb (NHWC) and blocked
 * channels (NCHWc) alike. */

#include "base/isa.h"
#include "kernel/parallel.h"
#include "kernel/simd/kernels.h"

/* An N,C,H,W tensor as planes of pixels. Image i starts at i * planes * h * w * inner, its plane
 * p at p * h * w * inner. Each of the h * w pixels of a plane holds `inner` adjacent channels,
 * starting with channel p * inner. The last plane may end in padding. */
typedef struct kolo_simd_image {
    int64_t n, c, h, w, planes, inner;
} kolo_simd_image;

/* False when the layout is not of this kind. Tensors in plain layout whose rank is not four are
 * viewed with all dimensions after the second in w. */
bool kolo_simd_image_of(const kolo_tensor *tensor, kolo_simd_image *image);

static inline int64_t kolo_simd_plane_size(const kolo_simd_image *v) {
    return v->h * v->w * v->inner;
}
static inline int64_t kolo_simd_image_size(const kolo_simd_image *v) {
    return v->planes * kolo_simd_plane_size(v);
}
/* The offset of channel c in the first pixel of an image. */
static inline int64_t kolo_simd_channel(const kolo_simd_image *v, int64_t c) {
    return c / v->inner * kolo_simd_plane_size(v) + c % v->inner;
}

/* True when all tensors of input 0's rank are f32, or all are bf16, and all others are f32 or
 * integers: the requirement of kernels with bf16 activations but f32 parameters, statistics and
 * sums. */
bool kolo_simd_supports(const kolo_kernel_spec *spec);
/* True when the activations of a spec that kolo_simd_supports are bf16. */
static inline bool kolo_simd_is_bf16(const kolo_kernel_spec *spec) {
    return spec->in[0].dtype == KOLO_DTYPE_BF16;
}

enum { KOLO_SIMD_LINE = 16 }; /* floats of a cache line */

/* Whether output 0 of a call is written by non-temporal stores, past the cache, which would lose it
 * before another node reads it: an ordinary store reads the line first. It is, if it is large, no
 * input, and of whole lines in runs of `run` floats. */
bool kolo_simd_writes_past(const kolo_call *call, int64_t run);

/* Defines a kernel by the source's static `fit` and `prepare`; its state is one heap block. */
#define KOLO_SIMD_KERNEL(op_name, run_)       \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name,             \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run_,                          \
        .release = kolo_free,                 \
    }
