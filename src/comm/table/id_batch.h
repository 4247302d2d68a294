#pragma once
/* The ids of a batch, each once, in the order in which they occur first. */

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct kolo_id_batch {
    size_t most, count;
    uint64_t *ids;  /* [count] */
    uint64_t seed;  /* see kolo_id_map_create */
    uint64_t *seen; /* [room]: the number of the batch, and the place and 1 of an id */
    size_t room;    /* a power of two */
    size_t mask;    /* of the part of `seen` that a batch of its size uses */
    uint32_t batch; /* their number */
} kolo_id_batch;

/* For up to `most` ids. NOMEM. */
kolo_status kolo_id_batch_init(kolo_id_batch *batch, size_t most, uint64_t seed);
void kolo_id_batch_fini(kolo_id_batch *batch);
/* Begins a new batch, of up to n ids. */
void kolo_id_batch_begin(kolo_id_batch *batch, size_t n);
/* The place of an id among the ids of the batch, to which it is added if it is new. There must be
 * room for it. */
size_t kolo_id_batch_add(kolo_id_batch *batch, uint64_t id);
/* The same of n ids, one after the other; `places` [n]. Overlaps the accesses to memory. */
void kolo_id_batch_add_all(kolo_id_batch *batch, const uint64_t *ids, size_t n, uint32_t *places);
