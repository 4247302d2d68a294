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

#include "data/augment.h"
#include "data/batch.h"

/* Zero means the default. */
typedef struct kolo_loader_opts {
    const kolo_dataset *dataset; /* borrowed until the loader is destroyed */
    int64_t global_batch;        /* samples of a step over all ranks; required */
    uint64_t seed;
    int order;          /* version of the order of samples (data/sampler.h); 0: the newest */
    int64_t first, end; /* steps, counted from the start of epoch 0 through all epochs; end is
                           exclusive, 0: the end of the epoch of `first` */
    int64_t every;      /* reads every so many steps, from `first` on; default 1 */
    int64_t timeout_ms; /* of one kolo_loader_next; default 300000 */
    int rank, world;    /* world 0: a single rank */
    int shards;         /* logical shards of the global batch (data/sampler.h); 0: none */
    int first_shard, end_shard; /* of this rank */
    int slots;                  /* batches in memory, with the consumer's; default 4, at least 2 */
    int threads;                /* default 1; KOLO_LOADER_NO_THREAD: kolo_loader_next reads */
    /* Of a stream: the samples before step `first`. Without it a stream is refused: its loader, of
     * one thread, has all samples of each step, and the batches end where the stream does. */
    bool streams;
    int64_t position;
    bool on_demand;       /* reads the batches that kolo_loader_ask names */
    bool no_shuffle;      /* data set order in every epoch: for evaluation */
    kolo_augment augment; /* drawn from `seed` */
} kolo_loader_opts;

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

/* Steps of an epoch, and the samples of this rank in a full step: the size of its largest batch. */
int64_t kolo_loader_steps(const kolo_loader *loader);
int64_t kolo_loader_largest(const kolo_loader *loader);
