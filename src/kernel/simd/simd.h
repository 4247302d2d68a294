#pragma once
/* Our own vectorised kernels: what oneDNN has not, or has slow for small images and few channels.
 * They compute in f32; some read and write bf16 (vector.h).
 *
 * Each subject is a pair: X.c holds the kernels (fit, prepare, run), X.isa.c the loops, compiled
 * once per instruction set; a copy exports one const table of its loops. The copy is chosen when a
 * kernel is prepared. A loop runs over a range of a job that `run` fills in; ranges are given to
 * threads by kolo_kernel_parallel; how the range is cut changes no result but conv2d_bwd_weights's.
 *
 * Images are seen through kolo_simd_image, which covers abcd, acdb and channels in blocks alike. */

#include "base/isa.h"
#include "kernel/parallel.h"
#include "kernel/simd/kernels.h"

/* An N,C,H,W tensor as planes of pixels: image i starts at i * planes * h * w * inner, plane p in
 * it at p * h * w * inner, each of its h * w pixels holds `inner` channels, the first being p *
 * inner. The last plane may end in padding. */
typedef struct kolo_simd_image {
    int64_t n, c, h, w, planes, inner;
} kolo_simd_image;

/* False when the layout is none of this kind. Tensors of other ranks than four, in plain layout,
 * are seen with all dimensions after the second in w. */
bool kolo_simd_image_of(const kolo_tensor *tensor, kolo_simd_image *image);

static inline int64_t kolo_simd_plane_size(const kolo_simd_image *v) {
    return v->h * v->w * v->inner;
}
static inline int64_t kolo_simd_image_size(const kolo_simd_image *v) {
    return v->planes * kolo_simd_plane_size(v);
}
/* Where channel c of the first pixel of an image lies. */
static inline int64_t kolo_simd_channel(const kolo_simd_image *v, int64_t c) {
    return c / v->inner * kolo_simd_plane_size(v) + c % v->inner;
}

/* True when every tensor of the rank of input 0 is f32, or every one bf16, and all else is f32 (or
 * integers): what a kernel takes whose activations may be bf16 and whose parameters, statistics and
 * sums may not. */
bool kolo_simd_takes(const kolo_kernel_spec *spec);
/* Of a spec that kolo_simd_takes: its activations are bf16. */
static inline bool kolo_simd_is_half(const kolo_kernel_spec *spec) {
    return spec->in[0].dtype == KOLO_DTYPE_BF16;
}

/* A kernel with the file's own `fit` and `prepare`, whose state is one block of memory. */
#define KOLO_SIMD_KERNEL(op_name, run_)       \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name,             \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run_,                          \
        .release = kolo_free,                 \
    }
