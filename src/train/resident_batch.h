#pragma once
/* A batch that stays in memory: what benchmarks and profiles train on. */

#include "train/setup.h"

typedef struct kolo_fixed_batch {
    kolo_batch batch; /* points into the two below */
    uint8_t *samples;
    int32_t *labels;
} kolo_fixed_batch;

/* This rank's part of the first global batch of the training data. NOMEM; the data's errors. */
kolo_status kolo_fixed_batch_load(const kolo_setup *setup, int rank, kolo_fixed_batch *fixed);
/* A zeroed one is allowed. */
void kolo_fixed_batch_fini(kolo_fixed_batch *fixed);
