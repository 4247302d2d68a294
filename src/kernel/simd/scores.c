/* Counts of scores by label, in f32: no copies, one thread, as the work is that of clearing the
 * counts. */
#include "kernel/simd/kernels.h"

#include <string.h>

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    const double bytes = (double)kolo_tensor_bytes(&spec->out[0]);
    const double scores = (double)kolo_tensor_elements(&spec->in[0]);
    return kolo_kernel_seconds(10 * scores, bytes + 8 * scores, 1);
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const int64_t bits = spec->attr[KOLO_SCORE_BITS].i, n = kolo_shape_count(&spec->in[0].shape);
    const bool integers = spec->in[1].dtype == KOLO_DTYPE_I32;
    const float *scores = call->in[0], *numbers = call->in[1];
    const int32_t *labels = call->in[1];
    float *counts[2] = {call->out[0], (float *)call->out[0] + ((int64_t)1 << bits)};
    memset(counts[0], 0, kolo_tensor_bytes(&spec->out[0]));
    for (int64_t i = 0; i < n; i++) {
        const bool out = integers ? labels[i] < 0 : numbers[i] < 0;
        const bool positive = integers ? labels[i] > 0 : numbers[i] > 0.5F;
        if (!out) counts[positive][kolo_score_bin(scores[i], bits)]++;
    }
}

const kolo_kernel kolo_simd_score_counts = {
    .name = "simd_score_counts", .op = &kolo_op_score_counts, .fit = fit, .run = run};
