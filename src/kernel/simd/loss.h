#pragma once
/* Losses and metrics of labels. Items are positions, one label each. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_loss_job {
    kolo_simd_image image;
    const float *in; /* logits; of softmax_xent_bwd: probs */
    const int32_t *labels;
    bool has_ignore_index;
    int32_t ignore_index;
    float smoothing;
    const float *dloss;
    float *out;         /* probs, dlogits */
    float *per_place;   /* loss, or 1 where accuracy counts the place */
    float *right;       /* softmax_xent: what accuracy has there; NULL: not asked for */
    int32_t *predicted; /* confusion: the class of the largest logit */
    float *rows;        /* two rows of classes for each part */
} kolo_simd_loss_job;

/* The label of a place, -1 where it does not count. */
static inline int64_t kolo_simd_label(const kolo_simd_loss_job *job, int64_t place) {
    int32_t label = job->labels[place];
    bool is_ignored = job->has_ignore_index && label == job->ignore_index;
    return is_ignored || label < 0 || label >= job->image.c ? -1 : label;
}

typedef struct kolo_simd_loss_table {
    kolo_kernel_loop softmax_xent, softmax_xent_bwd, accuracy, predict;
} kolo_simd_loss_table;
KOLO_ISA_TABLE(kolo_simd_loss_table, kolo_simd_loss);
