/* mask_tokens. Numbers are drawn, not computed: one body serves both families. */
#include "base/rng.h"
#include "kernel/ref.h"

static void mask(const kolo_call *call, double draw, double first) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t *dim = call->spec->in[2].shape.dim, count = attr[KOLO_MASK_COUNT].i;
    const int32_t *ids = call->in[2], *y = call->in[3];
    int32_t *masked = call->out[0], *labels = call->out[1], *segments = call->out[2];
    kolo_rng rng = kolo_rng_make((uint64_t)(int64_t)draw, KOLO_RNG_MASK, 0);
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        masked[i] = ids[i];
        labels[i] = -1;
        segments[i] = 0;
    }
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t k = 0; k < count; k++) {
            uint32_t four[4];
            kolo_rng_draw(&rng, (uint64_t)(((int64_t)first + n) * count + k), four);
            int64_t begin = dim[1] * k / count, end = dim[1] * (k + 1) / count;
            int64_t i =
                n * dim[1] + begin + (int64_t)((uint64_t)four[0] * (uint64_t)(end - begin) >> 32);
            uint64_t tenth = (uint64_t)four[1] * 10 >> 32;
            if (y[i] < 0) continue;
            labels[i] = ids[i];
            if (tenth < 8) {
                masked[i] = (int32_t)attr[KOLO_MASK_ID].i;
            } else if (tenth == 8) {
                uint64_t any = (uint64_t)four[2] * (uint64_t)attr[KOLO_MASK_VOCABULARY].i >> 32;
                masked[i] = (int32_t)any;
            }
        }
    }
}

static void body(const kolo_call *call) {
    mask(call, *(const double *)call->in[0], *(const double *)call->in[1]);
}
static void run(const kolo_call *call) { kolo_ref_run(call, body); }

const kolo_kernel kolo_ref_mask_tokens =
    KOLO_REF_KERNEL("ref_mask_tokens", &kolo_op_mask_tokens, run);

static double fit_f32(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 5 * (double)kolo_tensor_bytes(&spec->in[2]), 1);
}
static void run_f32(const kolo_call *call) {
    mask(call, (double)*(const float *)call->in[0], (double)*(const float *)call->in[1]);
}

const kolo_kernel kolo_simd_mask_tokens = {
    .name = "simd_mask_tokens", .op = &kolo_op_mask_tokens, .fit = fit_f32, .run = run_f32};
