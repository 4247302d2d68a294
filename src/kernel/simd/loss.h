#pragma once
/* Losses and metrics of labels. Parallel over positions, one label each. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_loss_job {
    kolo_simd_image image;
    const float *in; /* logits; softmax_xent_bwd: probabilities */
    const int32_t *labels;
    bool has_ignore_index;
    int32_t ignore_index;
    float smoothing;
    const float *weights; /* of the classes, without smoothing; NULL: 1 */
    const float *dloss;
    float *out;          /* probabilities; dlogits */
    float *per_position; /* loss per position; accuracy: 1 for positions that count */
    float *correct;      /* softmax_xent: 1 for correct predictions; NULL: not requested */
    int32_t *predicted;  /* confusion: the class of the largest logit */
    float *rows;         /* scratch: two rows of classes per part */
} kolo_simd_loss_job;

/* The label of a position; -1 when it does not count. */
static inline int64_t kolo_simd_label(const kolo_simd_loss_job *job, int64_t place) {
    int32_t label = job->labels[place];
    bool is_ignored = job->has_ignore_index && label == job->ignore_index;
    return is_ignored || label < 0 || label >= job->image.c ? -1 : label;
}

typedef struct kolo_simd_loss_table {
    kolo_kernel_loop softmax_xent, softmax_xent_bwd, accuracy, predict;
} kolo_simd_loss_table;
KOLO_ISA_TABLE(kolo_simd_loss_table, kolo_simd_loss);
