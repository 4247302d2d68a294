#pragma once
/* The options of a loader (data/prefetch.h), resolved and checked against its data set. */

#include "data/augment.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/sampler.h"

/* Zero means the default. */
typedef struct kolo_loader_opts {
    const kolo_dataset *dataset; /* borrowed until the loader is destroyed */
    int64_t global_batch;        /* samples of a step over all ranks; required */
    uint64_t seed;
    int order;          /* version of the order of samples (data/sampler.h); 0: the newest */
    int64_t first, end; /* steps, counted from the start of epoch 0 through all epochs; end is
                           exclusive, 0: the end of the epoch of `first` */
    int64_t every;      /* reads one step of this many, from `first` on; default 1 */
    int64_t timeout_ms; /* of one kolo_loader_next; default 300000 */
    int rank, world;    /* world 0: a single rank */
    int shards;         /* logical shards of the global batch (data/sampler.h); 0: none */
    int first_shard, end_shard; /* of this rank */
    int slots;                  /* batches in memory, with the consumer's; default 4, at least 2 */
    int threads;                /* default 1; KOLO_LOADER_NO_THREAD: kolo_loader_next reads */
    /* Of a stream: where step `first` begins. Without `streams` a stream is refused: its loader, of
     * one thread, has all samples of each step, and the batches end where the stream does. */
    bool streams;
    kolo_stream_place from;
    bool on_demand;       /* reads the batches that kolo_loader_ask names */
    bool no_shuffle;      /* data set order in every epoch: for evaluation */
    kolo_augment augment; /* drawn from `seed` */
} kolo_loader_opts;

/* The options with defaults, and those of the order of samples. ARG: contradictory options, or what
 * the data set cannot do. */
kolo_status kolo_loader_resolve(const kolo_loader_opts *given, kolo_loader_opts *resolved,
                                kolo_sampler_opts *order);
/* The fields of batches: those of the data set, and the target of mixed samples. ARG: it has no
 * room for that. */
kolo_status kolo_loader_fields(const kolo_loader_opts *opts, kolo_field fields[KOLO_MAX_FIELDS],
                               int *n_fields);
