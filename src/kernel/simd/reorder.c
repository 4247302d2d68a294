/* reorder of f32 images between plain, NHWC and channels in blocks: a walk over the pixels of dst,
 * which is written in order; runs of channels that lie side by side in both are copied whole. */
#include "kernel/simd/simd.h"

#include <string.h>

typedef struct reorder_job {
    kolo_simd_image from, to;
    const float *src;
    float *dst;
} reorder_job;

/* One plane of dst whose pixels hold `inner` channels, the first `here` of which are no padding; in
 * src the channels lie `next` apart, pixels `step`. */
static inline void gather(const float *src, int64_t step, int64_t next, float *dst, int64_t pixels,
                          int64_t inner, int64_t here) {
    for (int64_t p = 0; p < pixels; p++, src += step, dst += inner) {
        for (int64_t i = 0; i < here; i++) dst[i] = src[i * next];
        for (int64_t i = here; i < inner; i++) dst[i] = 0;
    }
}

/* A plane of one channel. */
static inline void pick(const float *src, int64_t step, float *dst, int64_t pixels) {
    for (int64_t p = 0; p < pixels; p++) dst[p] = src[p * step];
}

/* A plane of dst from a src that has several planes of several channels: run by run. */
static void stitch(const kolo_simd_image *from, const float *src, int64_t c, float *dst,
                   int64_t pixels, int64_t inner, int64_t here) {
    memset(dst, 0, sizeof(float) * (size_t)(pixels * inner));
    for (int64_t i = 0, run; i < here; i += run) {
        run = kolo_min_i64(here - i, from->inner - (c + i) % from->inner);
        const float *at = src + kolo_simd_channel(from, c + i);
        for (int64_t p = 0; p < pixels; p++) {
            memcpy(dst + p * inner + i, at + p * from->inner, sizeof(float) * (size_t)run);
        }
    }
}

/* Items are planes of all images of dst. */
static void planes(const void *arg, int part, int64_t begin, int64_t end) {
    const reorder_job *job = arg;
    const kolo_simd_image *from = &job->from, *to = &job->to;
    int64_t pixels = to->h * to->w, plane = kolo_simd_plane_size(from);
    for (int64_t i = begin; i < end; i++) {
        const float *src = job->src + i / to->planes * kolo_simd_image_size(from);
        float *dst = job->dst + i * kolo_simd_plane_size(to);
        int64_t c = i % to->planes * to->inner, here = kolo_min_i64(to->inner, to->c - c);
        if (to->inner == 1) {
            pick(src + kolo_simd_channel(from, c), from->inner, dst, pixels);
        } else if (from->inner == 1 && to->inner == 8 && here == 8) {
            gather(src + c * plane, 1, plane, dst, pixels, 8, 8);
        } else if (from->inner == 1) {
            gather(src + c * plane, 1, plane, dst, pixels, to->inner, here);
        } else {
            stitch(from, src, c, dst, pixels, to->inner, here);
        }
    }
}

static bool images_of(const kolo_kernel_spec *spec, kolo_simd_image *from, kolo_simd_image *to) {
    return kolo_simd_image_of(&spec->in[0], from) && kolo_simd_image_of(&spec->out[0], to);
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image from, to;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || spec->in[0].dtype != KOLO_DTYPE_F32) {
        return -1;
    }
    if (!images_of(spec, &from, &to)) return -1;
    double bytes = (double)(kolo_tensor_bytes(&spec->in[0]) + kolo_tensor_bytes(&spec->out[0]));
    return kolo_kernel_seconds(0, bytes, 0.8); /* oneDNN's, where there is one, is faster */
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    reorder_job job = {.src = call->in[0], .dst = call->out[0]};
    KOLO_ASSERT(images_of(spec, &job.from, &job.to));
    kolo_simd_parallel(spec->threads, job.to.n * job.to.planes, planes, &job);
}

const kolo_kernel kolo_simd_reorder = {
    .name = "simd_reorder",
    .op = &kolo_op_reorder,
    .fit = fit,
    .run = run,
};
