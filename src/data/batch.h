#pragma once
/* A batch: this rank's samples of a step. */

#include "kolo/data.h"

#include <stdint.h>

typedef struct kolo_batch {
    int64_t epoch, step;  /* step within the epoch */
    int64_t count;        /* samples of this rank; may be 0 in the last step of an epoch */
    int64_t first;        /* index of its first sample in the global batch */
    int64_t global_count; /* samples of all ranks; 0: end of the data */
    int n_fields;
    const kolo_field *fields;
    const void *data[KOLO_MAX_FIELDS]; /* of each field: [count, shape] */
} kolo_batch;

/* Bytes of a field of one sample. */
size_t kolo_field_bytes(const kolo_field *field);
/* Samples [first, first + count) of a batch. */
kolo_batch kolo_batch_part(const kolo_batch *batch, int64_t first, int64_t count);
