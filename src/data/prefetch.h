#pragma once
/* Data loader with prefetching. Threads walk the sampler and gather this rank's samples of each
 * step into a ring of slots, while the consumer trains on an earlier batch. Batches are the same
 * for any number of threads:
 *
 *     kolo_batch batch;
 *     for (;;) {
 *         KOLO_TRY(kolo_loader_next(loader, &batch));
 *         if (batch.global_count == 0) break; // end of the data
 *         ...                                 // train on it
 *     }
 *
 * Bytes stay bytes until the consumer normalizes them. */

#include "data/batch.h"
#include "data/loader_opts.h"

/* Starts the threads. ARG: contradictory options; NOMEM; IO: a thread cannot be created. */
kolo_status kolo_loader_create(const kolo_loader_opts *opts, kolo_loader **loader);
/* Deals this rank other shards. Takes effect in `from`, counted as opts.first, which is a step that
 * the loader has not begun: at least `slots` after the latest batch; earlier calls have been for
 * earlier steps and are replaced. */
void kolo_loader_deal(kolo_loader *loader, int64_t from, int first_shard, int end_shard);

/* On demand: the batch after those that were asked for has the share of `part` of `world` in step
 * `step`. At most `slots` may be asked for and not taken. */
void kolo_loader_ask(kolo_loader *loader, int64_t step, int part);

/* The batch that the next call of kolo_loader_next returns, if it is complete: whether it is. It
 * stays valid as that does. Does not block. */
bool kolo_loader_peek(kolo_loader *loader, kolo_batch *batch);

/* Where a stream is behind the batch that kolo_loader_next returned last. */
kolo_stream_place kolo_loader_place(const kolo_loader *loader);

/* Steps of an epoch, and the samples of this rank in a full step: the size of its largest batch. */
int64_t kolo_loader_steps(const kolo_loader *loader);
int64_t kolo_loader_largest(const kolo_loader *loader);
