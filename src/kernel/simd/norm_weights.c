/* norm_weights on weights in any layout: one sweep in the order of memory.
 *
 * In memory the weights are *chunks*: as long as nothing faster than the fastest part of dimension
 * 0 (its order's place, or its innermost block) changes, they belong to one output channel; where
 * that part is the innermost of all, a chunk is one run of successive channels instead. The channel
 * of a chunk's first element follows from its number. Padding is zero and stays so. */
#include "kernel/simd/simd.h"

#include <math.h>

enum { MAX_PARTS = KOLO_MAX_BLOCKS + 1 };

/* A part of dimension 0: the index has `count` values, `chunks` apart, worth `channels` each. */
typedef struct part {
    int64_t count, chunks, channels;
} part;

typedef struct weights_state {
    part parts[MAX_PARTS];
    int n_parts;
    int64_t chunk, n_chunks; /* elements of one, how many there are */
    bool successive;         /* a chunk is a run of channels; else all of one channel */
} weights_state;

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    if (!kolo_layout_equal(&spec->in[0].layout, &spec->out[0].layout)) return -1;
    return kolo_kernel_seconds(0, 2.0 * (double)kolo_tensor_bytes(&spec->in[0]), 1);
}

/* Finds the parts, from the innermost outwards. */
static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_tensor *w = &spec->in[0];
    const kolo_layout *layout = &w->layout;
    weights_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    int64_t stride = 1, channels = 1;
    for (int i = layout->n_blocks - 1; i >= 0; i--) {
        if (layout->block_dim[i] == 0) {
            s->parts[s->n_parts++] = (part){layout->block_size[i], stride, channels};
            channels *= layout->block_size[i];
        }
        stride *= layout->block_size[i];
    }
    for (int i = layout->rank - 1; i >= 0; i--) {
        int dim = layout->order[i];
        int64_t count = kolo_layout_padded(layout, &w->shape, dim);
        for (int b = 0; b < layout->n_blocks; b++) {
            if (layout->block_dim[b] == dim) count /= layout->block_size[b];
        }
        if (dim == 0) s->parts[s->n_parts++] = (part){count, stride, channels};
        stride *= count;
    }
    s->successive = s->parts[0].chunks == 1;
    s->chunk = s->successive ? s->parts[0].count : s->parts[0].chunks;
    s->n_chunks = kolo_tensor_elements(w) / s->chunk;
    if (s->successive) s->parts[0].count = 1; /* a chunk begins with the first of them */
    for (int i = 0; i < s->n_parts; i++) {
        s->parts[i].chunks = kolo_max_i64(1, s->parts[i].chunks / s->chunk);
    }
    *scratch_bytes = sizeof(float) * (size_t)kolo_layout_padded(layout, &w->shape, 0);
    *state = s;
    return KOLO_OK;
}

static void sweep(const void *arg, int thread, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const weights_state *s = call->state;
    const float *restrict w = call->in[0], *factors = call->scratch;
    float *restrict out = call->out[0];
    for (int64_t c = begin; c < end; c++) {
        int64_t channel = 0;
        for (int i = 0; i < s->n_parts; i++) {
            channel += c / s->parts[i].chunks % s->parts[i].count * s->parts[i].channels;
        }
        const float *from = w + c * s->chunk, *factor = factors + channel;
        float *to = out + c * s->chunk;
        if (s->successive) { /* adding nothing makes what is -0 in padding 0 */
            for (int64_t i = 0; i < s->chunk; i++) to[i] = from[i] * factor[i] + 0.0F;
        } else {
            for (int64_t i = 0; i < s->chunk; i++) to[i] = from[i] * factor[0] + 0.0F;
        }
    }
}

static void run(const kolo_call *call) {
    const weights_state *s = call->state;
    const float *gamma = call->in[1], *beta = call->in[2], *mean = call->in[3], *var = call->in[4];
    float *factors = call->scratch, *bias = call->out[1];
    const kolo_tensor *w = &call->spec->in[0];
    int64_t channels = w->shape.dim[0], padded = kolo_layout_padded(&w->layout, &w->shape, 0);
    for (int64_t o = 0; o < channels; o++) {
        double factor =
            (double)gamma[o] / sqrt((double)var[o] + call->spec->attr[KOLO_NORM_WEIGHTS_EPS].f);
        factors[o] = (float)factor;
        bias[o] = (float)((double)beta[o] - (double)mean[o] * factor);
    }
    for (int64_t o = channels; o < padded; o++) factors[o] = 0;
    kolo_simd_parallel(call->spec->threads, s->n_chunks, sweep, call);
}

const kolo_kernel kolo_simd_norm_weights = {
    .name = "simd_norm_weights",
    .op = &kolo_op_norm_weights,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = kolo_free,
};
