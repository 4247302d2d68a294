#pragma once
/* The samples of each step, and each rank's share.
 *
 * Step k of epoch e takes perm_e[k*G .. (k+1)*G), where G is the global batch. Each rank takes a
 * contiguous part, in rank order; sizes differ by at most one, and the first ranks have the larger
 * parts. perm_e depends on the seed and e only, so the samples of a step do not depend on the
 * number of ranks. The last step of an epoch takes the remaining R <= G samples, split the same
 * way, so a rank may have none. Every sample is taken exactly once per epoch.
 *
 * With L logical shards, a batch is cut into shards of G / L samples instead; in the last step of
 * an epoch the first shards are full, the next has what is left, and the others are empty. A rank
 * takes consecutive shards. The samples of a shard depend on G, L and the step only.
 *
 * There are two versions of perm_e, and a run keeps the one that it began with:
 *
 *     2  a Feistel network of 12 rounds over the bits of the largest index, halves of b/2 and
 *        b - b/2 bits; a result of n or more is permuted again (cycle walking: Black, Rogaway,
 *        2002). The key of round r is draw r of stream (seed, KOLO_RNG_SHUFFLE, e). A position
 *        takes constant time, and an epoch no memory.
 *     1  a stored Fisher-Yates shuffle of 0 .. n-1: for i from 0, position i is swapped with
 *        position i + (draw i of that stream, below n - i). Of runs of earlier versions of Kolo. */

#include "base/integer.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Divides n samples among `parts`: where part i begins, and its size. */
static inline int64_t kolo_part_first(int64_t n, int64_t parts, int64_t i) {
    return i * (n / parts) + kolo_min_i64(i, n % parts);
}
static inline int64_t kolo_part_count(int64_t n, int64_t parts, int64_t i) {
    return n / parts + (i < n % parts);
}

/* The version of the order of new runs. */
enum { KOLO_SAMPLE_ORDER = 2 };

typedef struct kolo_sampler_opts {
    int64_t samples;      /* in the data set, at least 1 */
    int64_t global_batch; /* samples of one step over all ranks, at least 1 */
    uint64_t seed;
    int order;       /* version, 1 or 2; 0: KOLO_SAMPLE_ORDER */
    bool no_shuffle; /* perm_e is 0 .. n-1 in every epoch: for evaluation */
} kolo_sampler_opts;

/* One rank's share of one step, as a range of positions in the epoch's permutation. */
typedef struct kolo_share {
    int64_t first;        /* position of the rank's first sample in the epoch */
    int64_t count;        /* samples of this rank; may be 0 */
    int64_t global_count; /* samples of all ranks: G, or R in the last step */
} kolo_share;

/* The share of a rank that has the shards [first, end) of `shards`, which divide the global batch.
 * A pure function of its arguments. */
kolo_share kolo_sampler_shards(const kolo_sampler_opts *opts, int64_t step, int shards, int first,
                               int end);
/* Deals `shards` to `ranks` ranks in proportion to their weights, which are positive; NULL: equal.
 * Fills counts[rank]; the largest count / weight is as small as possible. */
void kolo_deal_shards(int shards, int ranks, const double *weights, int *counts);

/* Steps of an epoch: ceil(samples / global_batch). */
int64_t kolo_sampler_steps(const kolo_sampler_opts *opts);
/* The share of `rank` of `world` in a step, 0 <= step < steps. A pure function of its arguments. */
kolo_share kolo_sampler_share(const kolo_sampler_opts *opts, int64_t step, int rank, int world);

/* The order of one epoch at a time. Not thread-safe. */
typedef struct kolo_sampler kolo_sampler;

/* ARG: no samples, no batch, or an unknown version; NOMEM. */
kolo_status kolo_sampler_create(const kolo_sampler_opts *opts, kolo_sampler **sampler);
/* NULL is allowed. */
void kolo_sampler_destroy(kolo_sampler *sampler);
/* Copies perm_e[first .. first + count) to `indices`. With version 1 the first call for an epoch
 * takes about 20 ns for each sample of the epoch. */
void kolo_sampler_take(kolo_sampler *sampler, int64_t epoch, int64_t first, int64_t count,
                       int64_t *indices);
