#pragma once
/* Which samples a step takes, and which of them a rank.
 *
 * Step k of epoch e takes perm_e[k*G .. (k+1)*G), G the global batch; each rank a contiguous part
 * of it, in rank order, the sizes of the parts differing by at most one (the first ranks have the
 * larger ones). perm_e depends on the seed and e only, so the samples of a step do not depend on
 * the number of ranks. The last step of an epoch takes what is left: R <= G samples, split the same
 * way, so a rank may get none. Every sample is taken exactly once per epoch.
 *
 * The permutation is a Fisher-Yates shuffle of 0 .. n-1: for i from 0, position i is exchanged with
 * position i + (draw i of stream (seed, KOLO_RNG_SHUFFLE, e), below n - i). */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_sampler_opts {
    int64_t samples;      /* of the data set, at least 1 */
    int64_t global_batch; /* samples of one step over all ranks, at least 1 */
    uint64_t seed;
    bool no_shuffle; /* perm_e is 0 .. n-1 in every epoch: for evaluation */
} kolo_sampler_opts;

/* One rank's share of one step, as a range of positions in the epoch's permutation. */
typedef struct kolo_share {
    int64_t first;        /* position of the rank's first sample in the epoch */
    int64_t count;        /* samples of this rank; may be 0 */
    int64_t global_count; /* samples of all ranks: G, or what is left in the last step */
} kolo_share;

/* Steps of an epoch: ceil(samples / global_batch). */
int64_t kolo_sampler_steps(const kolo_sampler_opts *opts);
/* The share of `rank` of `world` in a step, 0 <= step < steps. A pure function of its arguments. */
kolo_share kolo_sampler_share(const kolo_sampler_opts *opts, int64_t step, int rank, int world);

/* A sampler keeps the permutation of one epoch at a time. It belongs to one thread. */
typedef struct kolo_sampler kolo_sampler;

/* ARG: no samples or no batch; NOMEM. */
kolo_status kolo_sampler_create(const kolo_sampler_opts *opts, kolo_sampler **sampler);
/* NULL is allowed. */
void kolo_sampler_destroy(kolo_sampler *sampler);
/* The permutation of an epoch, `samples` indices; valid until another epoch is asked for. Making it
 * takes about 20 ns per sample. */
const int64_t *kolo_sampler_epoch(kolo_sampler *sampler, int64_t epoch);
