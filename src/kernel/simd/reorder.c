/* reorder of f32 or bf16 images between plain, NHWC and blocked channels. Writes dst in order;
 * runs of channels that are adjacent on both sides are copied whole. The loops are written once
 * for both element sizes (`bf16`, constant after inlining); offsets count elements. */
#include "base/integer.h"
#include "kernel/simd/simd.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct reorder_job {
    kolo_simd_image from, to;
    const void *src;
    void *dst;
} reorder_job;

INLINE void copy_run(const reorder_job *job, bool bf16, int64_t src, int64_t dst, int64_t count) {
    int64_t size = bf16 ? 2 : 4;
    memcpy((char *)job->dst + dst * size, (const char *)job->src + src * size,
           (size_t)(count * size));
}

INLINE void clear_run(const reorder_job *job, bool bf16, int64_t dst, int64_t count) {
    int64_t size = bf16 ? 2 : 4;
    memset((char *)job->dst + dst * size, 0, (size_t)(count * size));
}

/* One plane of dst, whose pixels hold `inner` channels, of which the first `here` are not
 * padding; in src, channels are `next` apart and pixels `step`. */
INLINE void gather(const reorder_job *job, bool bf16, int64_t src, int64_t step, int64_t next,
                   int64_t dst, int64_t inner, int64_t here) {
    int64_t pixels = job->to.h * job->to.w;
    for (int64_t p = 0; p < pixels; p++, src += step, dst += inner) {
        for (int64_t i = 0; i < here; i++) copy_run(job, bf16, src + i * next, dst + i, 1);
        if (here < inner) clear_run(job, bf16, dst + here, inner - here);
    }
}

/* A plane of dst from several planes of src with several channels each, from channel c on: run
 * by run. */
INLINE void stitch(const reorder_job *job, bool bf16, int64_t src, int64_t c, int64_t dst,
                   int64_t here) {
    const kolo_simd_image *from = &job->from;
    int64_t inner = job->to.inner, pixels = job->to.h * job->to.w;
    clear_run(job, bf16, dst, pixels * inner);
    for (int64_t i = 0, run; i < here; i += run) {
        run = kolo_min_i64(here - i, from->inner - (c + i) % from->inner);
        int64_t at = src + kolo_simd_channel(from, c + i);
        for (int64_t p = 0; p < pixels; p++) {
            copy_run(job, bf16, at + p * from->inner, dst + p * inner + i, run);
        }
    }
}

INLINE void reorder_planes(const reorder_job *job, bool bf16, int64_t begin, int64_t end) {
    const kolo_simd_image *from = &job->from, *to = &job->to;
    int64_t plane = kolo_simd_plane_size(from);
    for (int64_t i = begin; i < end; i++) {
        int64_t src = i / to->planes * kolo_simd_image_size(from);
        int64_t dst = i * kolo_simd_plane_size(to);
        int64_t c = i % to->planes * to->inner, here = kolo_min_i64(to->inner, to->c - c);
        if (to->inner == 1) {
            gather(job, bf16, src + kolo_simd_channel(from, c), from->inner, 0, dst, 1, 1);
        } else if (from->inner == 1 && to->inner == 8 && here == 8) {
            gather(job, bf16, src + c * plane, 1, plane, dst, 8, 8);
        } else if (from->inner == 1) {
            gather(job, bf16, src + c * plane, 1, plane, dst, to->inner, here);
        } else {
            stitch(job, bf16, src, c, dst, here);
        }
    }
}

/* Parallel over planes of all images of dst. */
static void planes(const void *job, int part, int64_t begin, int64_t end) {
    reorder_planes(job, false, begin, end);
}

static void bf16_planes(const void *job, int part, int64_t begin, int64_t end) {
    reorder_planes(job, true, begin, end);
}

static bool images_of(const kolo_kernel_spec *spec, kolo_simd_image *from, kolo_simd_image *to) {
    return kolo_simd_image_of(&spec->in[0], from) && kolo_simd_image_of(&spec->out[0], to);
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image from, to;
    kolo_dtype dtype = spec->in[0].dtype;
    if (dtype != KOLO_DTYPE_F32 && dtype != KOLO_DTYPE_BF16) return -1;
    if (!images_of(spec, &from, &to)) return -1;
    double bytes = (double)(kolo_tensor_bytes(&spec->in[0]) + kolo_tensor_bytes(&spec->out[0]));
    return kolo_kernel_seconds(0, bytes, 0.8); /* oneDNN's reorder is faster where it exists */
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    reorder_job job = {.src = call->in[0], .dst = call->out[0]};
    KOLO_ASSERT(images_of(spec, &job.from, &job.to));
    kolo_kernel_parallel(spec->threads, job.to.n * job.to.planes,
                         spec->in[0].dtype == KOLO_DTYPE_BF16 ? bf16_planes : planes, &job);
}

const kolo_kernel kolo_simd_reorder = {
    .name = "simd_reorder",
    .op = &kolo_op_reorder,
    .fit = fit,
    .run = run,
};
