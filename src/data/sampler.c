/* The permutation of an epoch and its division among steps and ranks. */
#include "data/sampler.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"

#include <inttypes.h>

struct kolo_sampler {
    kolo_sampler_opts opts;
    int64_t epoch; /* of `perm`; -1: none yet */
    int64_t *perm;
};

int64_t kolo_sampler_steps(const kolo_sampler_opts *opts) {
    return (opts->samples - 1) / opts->global_batch + 1;
}

kolo_share kolo_sampler_share(const kolo_sampler_opts *opts, int64_t step, int rank, int world) {
    KOLO_ASSERT(rank >= 0 && rank < world);
    KOLO_ASSERT(step >= 0 && step < kolo_sampler_steps(opts));
    int64_t start = step * opts->global_batch;
    int64_t taken = kolo_min_i64(opts->global_batch, opts->samples - start);
    return (kolo_share){
        .first = start + kolo_part_first(taken, world, rank),
        .count = kolo_part_count(taken, world, rank),
        .global_count = taken,
    };
}

kolo_share kolo_sampler_shards(const kolo_sampler_opts *opts, int64_t step, int shards, int first,
                               int end) {
    KOLO_ASSERT(shards > 0 && opts->global_batch % shards == 0);
    KOLO_ASSERT(first >= 0 && first <= end && end <= shards);
    int64_t start = step * opts->global_batch, size = opts->global_batch / shards;
    int64_t taken = kolo_min_i64(opts->global_batch, opts->samples - start);
    int64_t from = kolo_min_i64(first * size, taken), to = kolo_min_i64(end * size, taken);
    return (kolo_share){.first = start + from, .count = to - from, .global_count = taken};
}

/* Each shard goes to the rank that would be done first with it; of equal ones to the lowest. */
void kolo_deal_shards(int shards, int ranks, const double *weights, int *counts) {
    for (int r = 0; r < ranks; r++) counts[r] = 0;
    for (int s = 0; s < shards; s++) {
        int best = 0;
        double least = 0;
        for (int r = 0; r < ranks; r++) {
            double time = (counts[r] + 1) / (weights ? weights[r] : 1);
            if (r > 0 && time >= least) continue;
            best = r;
            least = time;
        }
        counts[best]++;
    }
}

static void fill_in_order(int64_t *perm, int64_t n) {
    for (int64_t i = 0; i < n; i++) perm[i] = i;
}

kolo_status kolo_sampler_create(const kolo_sampler_opts *opts, kolo_sampler **sampler) {
    if (opts->samples < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%" PRId64 " samples: a sampler needs at least 1",
                         opts->samples);
    }
    if (opts->global_batch < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "global batch %" PRId64 ": choose at least 1",
                         opts->global_batch);
    }
    kolo_sampler *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    size_t bytes = (size_t)opts->samples * sizeof *s->perm;
    s->opts = *opts;
    s->epoch = -1;
    s->perm = kolo_alloc(bytes);
    if (!s->perm) {
        kolo_sampler_destroy(s);
        return KOLO_NOMEM(bytes);
    }
    if (opts->no_shuffle) fill_in_order(s->perm, opts->samples);
    *sampler = s;
    return KOLO_OK;
}

void kolo_sampler_destroy(kolo_sampler *sampler) {
    if (!sampler) return;
    kolo_free(sampler->perm);
    kolo_free(sampler);
}

const int64_t *kolo_sampler_epoch(kolo_sampler *sampler, int64_t epoch) {
    KOLO_ASSERT(epoch >= 0);
    if (sampler->opts.no_shuffle || sampler->epoch == epoch) return sampler->perm;
    int64_t n = sampler->opts.samples, *perm = sampler->perm;
    kolo_rng rng = kolo_rng_make(sampler->opts.seed, KOLO_RNG_SHUFFLE, (uint64_t)epoch);
    fill_in_order(perm, n);
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t j = i + (int64_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)(n - i));
        int64_t kept = perm[i];
        perm[i] = perm[j];
        perm[j] = kept;
    }
    sampler->epoch = epoch;
    return perm;
}
