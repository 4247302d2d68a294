/* Counts of scores by label, from which the area under the ROC curve follows. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

enum { BITS = 16 }; /* sign, exponent and 7 bits: bf16 */

static const char *const attrs[] = {"bits", NULL};

static kolo_status shape(kolo_shape_query *q) {
    const int64_t bits = q->attr[KOLO_SCORE_BITS].i;
    KOLO_TRY(kolo_rule_types(q, q->in[1].dtype == KOLO_DTYPE_I32 ? "fi" : "ff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    if (bits < 1 || bits > BITS) {
        return KOLO_RULE_FAIL(q, "%" PRId64 " bits; 1 to %d are possible", bits, (int)BITS);
    }
    return kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype),
                         kolo_shape_2(2, (int64_t)1 << bits));
}

const kolo_op kolo_op_score_counts = {
    .name = "score_counts",
    .index = "*,*->AB",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = attrs,
    .shape = shape,
};

kolo_value kolo_score_counts(kolo_graph *g, kolo_value scores, kolo_value labels) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCORE_BITS].i = BITS};
    return kolo_graph_add1(g, &kolo_op_score_counts, (kolo_value[]){scores, labels}, 2, attr);
}

/* ---- reference ---- */

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

const kolo_kernel kolo_ops_scores[] = {
    KOLO_REF_KERNEL("ref_score_counts", &kolo_op_score_counts, run),
    {0},
};
