/* The sampler: every sample once per epoch, in contiguous even shares, for any number of ranks. */
#include "base/compiler.h"
#include "base/integer.h"
#include "base/memory.h"
#include "data/sampler.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    int64_t samples, batch;
} sizes[] = {{1, 1},  {1, 64},   {7, 7},    {7, 3},    {8, 5},    {13, 64},
             {64, 8}, {100, 64}, {101, 10}, {997, 60}, {1000, 1}, {60, 60}};

/* The shares of all ranks, concatenated in rank order, are the steps in order. */
static void shares_cover_each_epoch_once_in_even_contiguous_parts(void **state) {
    for (size_t s = 0; s < KOLO_COUNT(sizes); s++) {
        kolo_sampler_opts o = {.samples = sizes[s].samples, .global_batch = sizes[s].batch};
        for (int world = 1; world <= 8; world++) {
            int64_t next = 0, steps = kolo_sampler_steps(&o);
            for (int64_t step = 0; step < steps; step++) {
                int64_t begin = next, least = INT64_MAX, most = 0;
                kolo_share share = {0};
                for (int rank = 0; rank < world; rank++) {
                    share = kolo_sampler_share(&o, step, rank, world);
                    assert_int_equal(share.first, next);
                    next += share.count;
                    least = kolo_min_i64(least, share.count);
                    most = kolo_max_i64(most, share.count);
                }
                assert_int_equal(begin, step * o.global_batch);
                assert_int_equal(share.global_count, next - begin);
                assert_true(most - least <= 1);
                if (step < steps - 1) assert_int_equal(next - begin, o.global_batch);
            }
            assert_int_equal(next, o.samples);
        }
    }
}

static void more_ranks_than_samples_leave_some_with_none(void **state) {
    kolo_sampler_opts o = {.samples = 67, .global_batch = 64};
    int64_t with = 0;
    for (int rank = 0; rank < 8; rank++) {
        kolo_share share = kolo_sampler_share(&o, 1, rank, 8);
        assert_int_equal(share.global_count, 3);
        assert_int_equal(share.count, rank < 3);
        with += share.count;
    }
    assert_int_equal(with, 3);
}

/* The shards of a batch are its samples in order, full ones first; ranks do not change them. */
static void shards_depend_on_the_batch_alone(void **state) {
    static const int counts[] = {1, 2, 4, 5, 8};
    for (size_t s = 0; s < KOLO_COUNT(sizes); s++) {
        for (size_t c = 0; c < KOLO_COUNT(counts); c++) {
            int shards = counts[c];
            kolo_sampler_opts o = {.samples = sizes[s].samples,
                                   .global_batch = sizes[s].batch * shards};
            int64_t size = sizes[s].batch, next = 0;
            for (int64_t step = 0; step < kolo_sampler_steps(&o); step++) {
                int64_t left = kolo_min_i64(o.samples - next, o.global_batch), all = left;
                for (int k = 0; k < shards; k++) {
                    kolo_share share = kolo_sampler_shards(&o, step, shards, k, k + 1);
                    kolo_share rest = kolo_sampler_shards(&o, step, shards, k, shards);
                    assert_int_equal(share.count, kolo_min_i64(size, left));
                    assert_int_equal(share.global_count, all);
                    if (left > 0) assert_int_equal(share.first, next);
                    assert_int_equal(rest.count, left);
                    next += share.count;
                    left -= share.count;
                }
            }
            assert_int_equal(next, o.samples);
        }
    }
}

static void shards_are_dealt_by_weight(void **state) {
    static const struct {
        int shards, ranks;
        double weights[4];
        int counts[4];
    } deals[] = {
        {8, 1, {1}, {8}},
        {8, 3, {1, 1, 1}, {3, 3, 2}},
        {2, 4, {1, 1, 1, 1}, {1, 1, 0, 0}},
        {8, 2, {3, 1}, {6, 2}},
        {10, 2, {1, 4}, {2, 8}},
        {7, 3, {0.5, 0.5, 0.01}, {4, 3, 0}},
        {9, 3, {1, 1, 0.25}, {4, 4, 1}},
        {64, 4, {1, 1, 1, 5}, {8, 8, 8, 40}},
    };
    for (size_t i = 0; i < KOLO_COUNT(deals); i++) {
        int counts[4] = {-1, -1, -1, -1};
        kolo_deal_shards(deals[i].shards, deals[i].ranks, deals[i].weights, counts);
        for (int r = 0; r < deals[i].ranks; r++) {
            if (counts[r] != deals[i].counts[r]) fail_msg("deal %zu, rank %d: %d", i, r, counts[r]);
        }
    }
    int equal[3];
    kolo_deal_shards(8, 3, NULL, equal);
    assert_int_equal(equal[0] + equal[1] + equal[2], 8);
    assert_int_equal(equal[2], 2);
}

static void epochs_are_permutations(void **state) {
    for (size_t s = 0; s < KOLO_COUNT(sizes); s++) {
        kolo_sampler_opts o = {.samples = sizes[s].samples, .global_batch = sizes[s].batch};
        kolo_sampler *sampler;
        ASSERT_OK(kolo_sampler_create(&o, &sampler));
        char *seen = calloc(1, (size_t)o.samples);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            const int64_t *perm = kolo_sampler_epoch(sampler, epoch);
            for (int64_t i = 0; i < o.samples; i++) {
                assert_true(perm[i] >= 0 && perm[i] < o.samples);
                assert_int_equal(seen[perm[i]]++, epoch);
            }
        }
        free(seen);
        kolo_sampler_destroy(sampler);
    }
}

/* Returns the permutation of an epoch, from a sampler that was at another epoch before. */
static void permute(uint64_t seed, int64_t batch, int64_t epoch, bool no_shuffle, int64_t n,
                    int64_t *out) {
    kolo_sampler_opts o = {
        .samples = n, .global_batch = batch, .seed = seed, .no_shuffle = no_shuffle};
    kolo_sampler *sampler;
    ASSERT_OK(kolo_sampler_create(&o, &sampler));
    kolo_sampler_epoch(sampler, epoch + 5);
    memcpy(out, kolo_sampler_epoch(sampler, epoch), (size_t)n * sizeof *out);
    kolo_sampler_destroy(sampler);
}

static void order_depends_on_seed_and_epoch_only(void **state) {
    enum { N = 500 };
    int64_t a[N], b[N];
    permute(1, 64, 2, false, N, a);
    permute(1, 7, 2, false, N, b);
    assert_memory_equal(a, b, sizeof a);
    permute(2, 64, 2, false, N, b);
    assert_memory_not_equal(a, b, sizeof a);
    permute(1, 64, 3, false, N, b);
    assert_memory_not_equal(a, b, sizeof a);
    permute(1, 64, 2, true, N, b);
    for (int64_t i = 0; i < N; i++) assert_int_equal(b[i], i);
    /* Runs must be reproducible by later versions: this order must never change. */
    permute(42, 1, 0, false, 8, a);
    const int64_t known[8] = {4, 5, 0, 3, 1, 7, 2, 6};
    assert_memory_equal(a, known, sizeof known);
}

/* Each of the n! orders of three samples comes up equally often, and each sample is at each of
 * fifty places equally often (chi squared, 49 degrees of freedom: 100 is 5 sigma). */
static void shuffles_are_uniform(void **state) {
    enum { EPOCHS = 6000, N = 50 };
    kolo_sampler *three, *fifty;
    ASSERT_OK(kolo_sampler_create(&(kolo_sampler_opts){.samples = 3, .global_batch = 1}, &three));
    ASSERT_OK(kolo_sampler_create(&(kolo_sampler_opts){.samples = N, .global_batch = 1}, &fifty));
    int orders[27] = {0}, place_of_7[N] = {0};
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        const int64_t *p = kolo_sampler_epoch(three, epoch);
        orders[p[0] * 9 + p[1] * 3 + p[2]]++;
        p = kolo_sampler_epoch(fifty, epoch);
        for (int i = 0; i < N; i++) place_of_7[i] += p[i] == 7;
    }
    int kinds = 0;
    for (int i = 0; i < 27; i++) {
        kinds += orders[i] > 0;
        assert_true(orders[i] == 0 || (orders[i] > 850 && orders[i] < 1150));
    }
    assert_int_equal(kinds, 6);
    double expected = (double)EPOCHS / N, chi_squared = 0;
    for (int i = 0; i < N; i++) {
        double off = place_of_7[i] - expected;
        chi_squared += off * off / expected;
    }
    assert_true(chi_squared < 100);
    kolo_sampler_destroy(three);
    kolo_sampler_destroy(fifty);
}

static void bad_options_and_failing_memory_are_reported(void **state) {
    kolo_sampler *sampler = NULL;
    kolo_sampler_opts none = {.samples = 0, .global_batch = 1}, empty = {.samples = 5};
    assert_int_equal(kolo_sampler_create(&none, &sampler), KOLO_ERR_ARG);
    assert_int_equal(kolo_sampler_create(&empty, &sampler), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "global batch 0"));
    for (long nth = 1; nth <= 2; nth++) {
        kolo_alloc_fail_nth(nth);
        kolo_sampler_opts good = {.samples = 5, .global_batch = 1};
        assert_int_equal(kolo_sampler_create(&good, &sampler), KOLO_ERR_NOMEM);
    }
    kolo_alloc_fail_nth(0);
    assert_null(sampler);
}

TEST_MAIN(test_sampler) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_each_epoch_once_in_even_contiguous_parts),
        cmocka_unit_test(more_ranks_than_samples_leave_some_with_none),
        cmocka_unit_test(shards_depend_on_the_batch_alone),
        cmocka_unit_test(shards_are_dealt_by_weight),
        cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(order_depends_on_seed_and_epoch_only),
        cmocka_unit_test(shuffles_are_uniform),
        cmocka_unit_test(bad_options_and_failing_memory_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
