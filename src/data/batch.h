#pragma once
/* A batch: this rank's samples of a step, with their labels. */

#include "kolo/data.h"

#include <stdint.h>

typedef struct kolo_batch {
    int64_t epoch, step;    /* step within the epoch */
    int64_t count;          /* samples of this rank; may be 0 in the last step of an epoch */
    int64_t first;          /* index of its first sample in the global batch */
    int64_t global_count;   /* samples of all ranks; 0: end of the data */
    const uint8_t *samples; /* count,C,H,W; tokens: count,T of i32 */
    const int32_t *labels;  /* count times info->label */
    const kolo_dataset_info *info;
} kolo_batch;

/* Labels of the batch other than -1. */
int64_t kolo_batch_labels(const kolo_batch *batch);
/* Samples [first, first + count) of a batch. */
kolo_batch kolo_batch_part(const kolo_batch *batch, int64_t first, int64_t count);
