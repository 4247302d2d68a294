/* Counts of scores by label. */
#include "kernel/ref/ref.h"

#include <string.h>

static void score_counts(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const int64_t bits = spec->attr[KOLO_SCORE_BITS].i, n = kolo_shape_count(&spec->in[0].shape);
    const double *scores = call->in[0];
    double *counts = call->out[0];
    memset(counts, 0, sizeof *counts * (size_t)kolo_shape_count(&spec->out[0].shape));
    for (int64_t i = 0; i < n; i++) {
        const double label = spec->in[1].dtype == KOLO_DTYPE_I32 ? ((const int32_t *)call->in[1])[i]
                                                                 : ((const double *)call->in[1])[i];
        if (label < 0) continue;
        counts[(label > 0.5 ? (int64_t)1 << bits : 0) + kolo_score_bin((float)scores[i], bits)]++;
    }
}

static void run(const kolo_call *call) { kolo_ref_run(call, score_counts); }

const kolo_kernel kolo_ref_score_counts =
    KOLO_REF_KERNEL("ref_score_counts", &kolo_op_score_counts, run);
