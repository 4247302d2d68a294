/* Attention to cached keys and values, in f32 on plain tensors. */
#include "kernel/simd/cache.h"

#include <string.h>

/* ---- cache_write ---- */

static double fit_write(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(&spec->in[1]), 1);
}

/* Items: tokens. Two of one sample have different positions. */
static void write_tokens(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const int64_t *cache = call->spec->in[0].shape.dim, *dim = call->spec->in[1].shape.dim;
    const int64_t heads = cache[1], rows = cache[2], width = cache[3];
    const int32_t *positions = call->in[2];
    for (int64_t i = begin; i < end; i++) {
        if (positions[i] < 0 || positions[i] >= rows) continue;
        const float *x = (const float *)call->in[1] + (i + 1) * dim[2] - heads * width;
        float *to = (float *)call->out[0] + ((i / dim[1] * heads * rows) + positions[i]) * width;
        for (int64_t h = 0; h < heads; h++) {
            memcpy(to + h * rows * width, x + h * width, sizeof *x * (size_t)width);
        }
    }
}

static void run_write(const kolo_call *call) {
    const kolo_tensor *cache = &call->spec->out[0], *x = &call->spec->in[1];
    if (call->out[0] != call->in[0]) {
        memcpy(call->out[0], call->in[0], kolo_tensor_bytes(cache));
    }
    kolo_kernel_parallel(call->spec->threads, x->shape.dim[0] * x->shape.dim[1], write_tokens,
                         call);
}

const kolo_kernel kolo_simd_cache_write = {
    .name = "simd_cache_write", .op = &kolo_op_cache_write, .fit = fit_write, .run = run_write};

/* ---- cached_attention ---- */

static double fit_attention(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, (double)kolo_tensor_bytes(&spec->in[1]), 1);
}

/* Floats of scores of a part, in whole cache lines. */
static int64_t part_stride(const kolo_kernel_spec *spec) {
    return (spec->in[1].shape.dim[2] + 3 + 15) / 16 * 16;
}

static kolo_status prepare_attention(const kolo_kernel_spec *spec, void **state,
                                     size_t *scratch_bytes) {
    *state = NULL;
    *scratch_bytes = sizeof(float) * (size_t)(part_stride(spec) * spec->threads);
    return KOLO_OK;
}

static void run_attention(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *cache = spec->in[1].shape.dim, *x = spec->in[0].shape.dim;
    const kolo_simd_cache_job job = {
        .x = call->in[0],
        .cache = call->in[1],
        .positions = call->in[2],
        .out = call->out[0],
        .length = x[1],
        .channels = x[2],
        .groups = cache[1] / 2,
        .each = spec->out[0].shape.dim[2] / cache[3] / (cache[1] / 2),
        .rows = cache[2],
        .width = cache[3],
        .scratch = call->scratch,
        .part_stride = part_stride(spec),
    };
    kolo_kernel_parallel(spec->threads, x[0] * job.groups,
                         KOLO_ISA_PICK(kolo_simd_cache)->attention, &job);
}

const kolo_kernel kolo_simd_cached_attention = {
    .name = "simd_cached_attention",
    .op = &kolo_op_cached_attention,
    .fit = fit_attention,
    .prepare = prepare_attention,
    .run = run_attention,
    .release = kolo_free,
};
