#pragma once
/* Connectionist temporal classification of plain logits [N,T,C]. Parallel over samples. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_ctc_job {
    int64_t steps, classes, labels_at_most, blank; /* steps: of the longest sample */
    const float *logits;
    const int32_t *labels, *lengths; /* lengths: NULL: all have `steps` */
    const float *dloss;              /* of the gradient */
    float *dlogits;
    double *losses; /* of each sample */
    float *memory;  /* of `memory_floats` for each part */
    int64_t memory_floats;
} kolo_simd_ctc_job;

/* Elements from one row of states to the next: two before the first state, and whole vectors with
 * two more behind the last one. */
static inline int64_t kolo_simd_ctc_stride(int64_t labels_at_most) {
    enum { MOST_LANES = 16 };
    return (2 * labels_at_most + 1 + 4 + MOST_LANES - 1) / MOST_LANES * MOST_LANES + MOST_LANES;
}
/* Rows of states in the memory of a part. */
static inline int64_t kolo_simd_ctc_rows(int64_t steps) { return steps + 1 + 4; }

typedef struct kolo_simd_ctc_table {
    kolo_kernel_loop loss, loss_bwd;
} kolo_simd_ctc_table;
KOLO_ISA_TABLE(kolo_simd_ctc_table, kolo_simd_ctc);
