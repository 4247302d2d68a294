#pragma once
/* A batch that stays in memory, for benchmarks and profiles. */

#include "data/batch.h"
#include "train/session/setup.h"

typedef struct kolo_resident_batch {
    kolo_batch batch; /* points into the buffers below */
    void *data[KOLO_MAX_FIELDS];
} kolo_resident_batch;

/* Loads this rank's part of the first global batch of the training data. NOMEM; errors of the data
 * set. */
kolo_status kolo_resident_batch_load(const kolo_setup *setup, int rank,
                                     kolo_resident_batch *resident);
/* Zeroed is allowed. */
void kolo_resident_batch_fini(kolo_resident_batch *resident);
