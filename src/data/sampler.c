/* The permutation of an epoch and its division among steps and ranks. */
#include "data/sampler.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"

#include <inttypes.h>

enum { ROUNDS = 12 };

struct kolo_sampler {
    kolo_sampler_opts opts; /* resolved */
    int64_t epoch;          /* of the following; -1: none yet */
    int64_t *perm;          /* version 1 */
    uint64_t keys[ROUNDS];  /* version 2 */
    int low, high;          /* bits of the halves of an index */
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

/* Bits of the largest of n indices. */
static int bits_of(int64_t n) {
    int bits = 0;
    while (bits < 63 && (n - 1) >> bits > 0) bits++;
    return bits;
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
    if (opts->order < 0 || opts->order > KOLO_SAMPLE_ORDER) {
        return KOLO_FAIL(KOLO_ERR_ARG, "version %d of the order of samples: choose 1 to %d",
                         opts->order, KOLO_SAMPLE_ORDER);
    }
    kolo_sampler *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->opts = *opts;
    if (s->opts.order == 0) s->opts.order = KOLO_SAMPLE_ORDER;
    s->epoch = -1;
    s->low = bits_of(opts->samples) / 2;
    s->high = bits_of(opts->samples) - s->low;
    if (s->opts.order == 1 && !opts->no_shuffle) {
        const size_t bytes = (size_t)opts->samples * sizeof *s->perm;
        s->perm = kolo_alloc(bytes);
        if (!s->perm) {
            kolo_sampler_destroy(s);
            return KOLO_NOMEM(bytes);
        }
    }
    *sampler = s;
    return KOLO_OK;
}

void kolo_sampler_destroy(kolo_sampler *sampler) {
    if (!sampler) return;
    kolo_free(sampler->perm);
    kolo_free(sampler);
}

/* ---- version 1 ---- */

static void store_order(kolo_sampler *s, const kolo_rng *rng) {
    int64_t n = s->opts.samples, *perm = s->perm;
    for (int64_t i = 0; i < n; i++) perm[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t j = i + (int64_t)kolo_rng_below(rng, (uint64_t)i, (uint64_t)(n - i));
        int64_t kept = perm[i];
        perm[i] = perm[j];
        perm[j] = kept;
    }
}

/* ---- version 2 ---- */

static void draw_keys(kolo_sampler *s, const kolo_rng *rng) {
    for (int r = 0; r < ROUNDS; r++) {
        uint32_t draw[4];
        kolo_rng_draw(rng, (uint64_t)r, draw);
        s->keys[r] = (uint64_t)draw[0] << 32 | draw[1];
    }
}

/* The finalizer of SplitMix64 (Steele, Lea, Flood, 2014): every bit depends on all. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Rounds change the high half by the low one and the low half by the high one in turn, which is
 * one-to-one for halves of any size. The walk ends: it is on a cycle with an index below n. */
static int64_t permute(const kolo_sampler *s, int64_t index) {
    const uint64_t low_mask = (UINT64_C(1) << s->low) - 1;
    const uint64_t high_mask = (UINT64_C(1) << s->high) - 1;
    uint64_t i = (uint64_t)index;
    do {
        uint64_t low = i & low_mask, high = i >> s->low;
        for (int r = 0; r < ROUNDS; r += 2) {
            high ^= mix(low + s->keys[r]) & high_mask;
            low ^= mix(high + s->keys[r + 1]) & low_mask;
        }
        i = high << s->low | low;
    } while (i >= (uint64_t)s->opts.samples);
    return (int64_t)i;
}

/* ---- both ---- */

static void begin_epoch(kolo_sampler *s, int64_t epoch) {
    const kolo_rng rng = kolo_rng_make(s->opts.seed, KOLO_RNG_SHUFFLE, (uint64_t)epoch);
    if (s->epoch == epoch) return;
    if (s->opts.order == 1) {
        store_order(s, &rng);
    } else {
        draw_keys(s, &rng);
    }
    s->epoch = epoch;
}

void kolo_sampler_take(kolo_sampler *sampler, int64_t epoch, int64_t first, int64_t count,
                       int64_t *indices) {
    KOLO_ASSERT(epoch >= 0 && first >= 0 && count >= 0 && count <= sampler->opts.samples - first);
    if (!sampler->opts.no_shuffle) begin_epoch(sampler, epoch);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = first + i;
        indices[i] = sampler->opts.no_shuffle ? at
                     : sampler->perm          ? sampler->perm[at]
                                              : permute(sampler, at);
    }
}
