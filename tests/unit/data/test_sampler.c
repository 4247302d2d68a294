/* The sampler: every sample once per epoch, in contiguous even shares, for any number of ranks. */
#include "base/compiler.h"
#include "base/integer.h"
#include "base/memory.h"
#include "data/sampler.h"
#include "support/support.h"

#include <math.h>
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

/* Each version of the order, and the order of the data set. */
static const kolo_sampler_opts kinds[] = {{.order = 1}, {.order = 2}, {.no_shuffle = true}};

/* All n up to 70, the first primes above powers of two, and others. */
static void epochs_are_permutations(void **state) {
    static const int64_t more[] = {127, 128, 129, 251, 257, 521, 1000, 1031, 4096, 4099, 20011};
    for (size_t i = 0; i < 70 + KOLO_COUNT(more); i++) {
        const int64_t n = i < 70 ? (int64_t)i + 1 : more[i - 70];
        int64_t *indices = malloc((size_t)n * sizeof *indices);
        char *seen = calloc(1, (size_t)n);
        for (size_t k = 0; k < KOLO_COUNT(kinds); k++) {
            kolo_sampler_opts o = kinds[k];
            kolo_sampler *sampler;
            o.samples = n;
            o.global_batch = 7;
            o.seed = (uint64_t)i;
            ASSERT_OK(kolo_sampler_create(&o, &sampler));
            memset(seen, 0, (size_t)n);
            for (int64_t epoch = 0; epoch < 3; epoch++) {
                kolo_sampler_take(sampler, epoch, 0, n, indices);
                for (int64_t j = 0; j < n; j++) {
                    assert_true(indices[j] >= 0 && indices[j] < n);
                    assert_int_equal(seen[indices[j]]++, epoch);
                }
            }
            kolo_sampler_destroy(sampler);
        }
        free(seen);
        free(indices);
    }
}

/* Fills in an epoch by parts, from a sampler that was at another epoch before. */
static void permute(kolo_sampler_opts o, int64_t epoch, int64_t *out) {
    kolo_sampler *sampler;
    ASSERT_OK(kolo_sampler_create(&o, &sampler));
    kolo_sampler_take(sampler, epoch + 5, 0, 1, out);
    for (int64_t i = o.samples; i > 0;) { /* from the end */
        const int64_t n = kolo_min_i64(i, o.global_batch);
        i -= n;
        kolo_sampler_take(sampler, epoch, i, n, out + i);
    }
    kolo_sampler_destroy(sampler);
}

static void order_depends_on_seed_and_epoch_only(void **state) {
    enum { N = 500 };
    for (int version = 1; version <= KOLO_SAMPLE_ORDER; version++) {
        kolo_sampler_opts o = {.samples = N, .global_batch = 64, .seed = 1, .order = version};
        int64_t a[N], b[N];
        permute(o, 2, a);
        permute(o, 3, b);
        assert_memory_not_equal(a, b, sizeof a);
        o.global_batch = 7;
        permute(o, 2, b);
        assert_memory_equal(a, b, sizeof a);
        o.seed = 2;
        permute(o, 2, b);
        assert_memory_not_equal(a, b, sizeof a);
        o.no_shuffle = true;
        permute(o, 2, b);
        for (int64_t i = 0; i < N; i++) assert_int_equal(b[i], i);
    }
}

/* Runs must be reproducible by later versions: these orders must never change. */
static void orders_stay(void **state) {
    static const int64_t known[][8] = {{4, 5, 0, 3, 1, 7, 2, 6}, {2, 7, 1, 0, 3, 4, 5, 6}};
    static const int64_t last[] = {599289829, 515278807, 270328086,
                                   960445560}; /* of 10^9 samples, in version 2 */
    int64_t order[8];
    for (int version = 1; version <= KOLO_SAMPLE_ORDER; version++) {
        permute((kolo_sampler_opts){.samples = 8, .global_batch = 1, .seed = 42, .order = version},
                0, order);
        assert_memory_equal(order, known[version - 1], sizeof order);
    }
    kolo_sampler *sampler;
    const kolo_sampler_opts large = {.samples = 1000000000, .global_batch = 256, .seed = 42};
    ASSERT_OK(kolo_sampler_create(&large, &sampler));
    kolo_sampler_take(sampler, 7, large.samples - 4, 4, order);
    assert_memory_equal(order, last, sizeof last);
    kolo_sampler_destroy(sampler);
}

/* A step of 10^12 samples, anywhere: one allocation, of the sampler itself. */
static void large_sets_take_no_memory(void **state) {
    kolo_sampler *sampler;
    int64_t a[1000], b[1000];
    const kolo_sampler_opts o = {.samples = INT64_C(1000000000000), .global_batch = 1000};
    kolo_alloc_fail_nth(2); /* of the creation and all that follows */
    ASSERT_OK(kolo_sampler_create(&o, &sampler));
    const int64_t step = kolo_sampler_steps(&o) - 123456;
    kolo_sampler_take(sampler, 3, step * 1000, 1000, a);
    kolo_sampler_take(sampler, 0, 0, 1000, b);
    kolo_sampler_take(sampler, 3, step * 1000, 1000, b);
    kolo_alloc_fail_nth(0);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 1000; i++) assert_true(a[i] >= 0 && a[i] < o.samples);
    kolo_sampler_destroy(sampler);
}

/* Chi squared of counts that are to be equal. With d degrees of freedom d + 6 sqrt(2 d) is 6 sigma
 * above the mean. */
static void assert_equal_counts(const char *what, const int *counts, int n) {
    double sum = 0, chi_squared = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    for (int i = 0; i < n; i++) {
        const double off = counts[i] - sum / n;
        chi_squared += off * off / (sum / n);
    }
    if (chi_squared > n - 1 + 6 * sqrt(2.0 * (n - 1))) fail_msg("%s: %g", what, chi_squared);
}

/* Over epochs: each order of three and of four samples, and each place of each of 50 samples, and
 * each pair of neighbours at one place, comes up equally often; and each distance by which a sample
 * moves from one epoch to the next. */
static void shuffles_are_uniform(void **state) {
    enum { EPOCHS = 20000, N = 50 };
    static int places[N][N], moves[N], pairs[N * (N - 1)];
    for (int version = 1; version <= KOLO_SAMPLE_ORDER; version++) {
        kolo_sampler *small[2], *fifty;
        int orders[2][24] = {{0}};
        int64_t p[N], before[N], place[N];
        const kolo_sampler_opts o = {.samples = N, .global_batch = 1, .order = version};
        for (int i = 0; i < 2; i++) {
            kolo_sampler_opts few = o;
            few.samples = 3 + i;
            ASSERT_OK(kolo_sampler_create(&few, &small[i]));
        }
        ASSERT_OK(kolo_sampler_create(&o, &fifty));
        memset(places, 0, sizeof places);
        memset(moves, 0, sizeof moves);
        memset(pairs, 0, sizeof pairs);
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            for (int i = 0; i < 2; i++) { /* the number of the order, by its inversions */
                int64_t number = 0;
                kolo_sampler_take(small[i], epoch, 0, 3 + i, p);
                for (int k = 0; k < 3 + i; k++) {
                    int less = 0;
                    for (int j = k + 1; j < 3 + i; j++) less += p[j] < p[k];
                    number = number * (3 + i - k) + less;
                }
                orders[i][number]++;
            }
            kolo_sampler_take(fifty, epoch, 0, N, p);
            for (int i = 0; i < N; i++) {
                places[p[i]][i]++;
                place[p[i]] = i;
            }
            pairs[p[20] * (N - 1) + p[21] - (p[21] > p[20])]++;
            for (int i = 0; i < N && epoch > 0; i++) moves[(place[i] - before[i] + N) % N]++;
            memcpy(before, place, sizeof place);
        }
        assert_equal_counts("orders of 3", orders[0], 6);
        assert_equal_counts("orders of 4", orders[1], 24);
        for (int i = 0; i < N; i++) assert_equal_counts("places", places[i], N);
        assert_equal_counts("moves", moves, N);
        assert_equal_counts("neighbours", pairs, N * (N - 1));
        for (int i = 0; i < 2; i++) kolo_sampler_destroy(small[i]);
        kolo_sampler_destroy(fifty);
    }
}

/* Among a million samples the places of the first ones are uniform in one epoch, too, and those of
 * equal samples in two epochs are independent. */
static void places_in_one_epoch_are_uniform(void **state) {
    enum { N = 1000003, TAKEN = 40000, BINS = 20 };
    static int64_t p[2][TAKEN];
    static int one[BINS], two[BINS * BINS];
    kolo_sampler *sampler;
    const kolo_sampler_opts o = {.samples = N, .global_batch = 1, .seed = 9};
    ASSERT_OK(kolo_sampler_create(&o, &sampler));
    for (int e = 0; e < 2; e++) kolo_sampler_take(sampler, e, 0, TAKEN, p[e]);
    memset(one, 0, sizeof one);
    memset(two, 0, sizeof two);
    int fixed = 0;
    for (int i = 0; i < TAKEN; i++) {
        const int64_t a = p[0][i] * BINS / N, b = p[1][i] * BINS / N;
        one[a]++;
        two[a * BINS + b]++;
        fixed += (p[0][i] == i) + (p[0][i] == p[1][i]);
    }
    assert_equal_counts("one epoch", one, BINS);
    assert_equal_counts("two epochs", two, BINS * BINS);
    assert_true(fixed <= 5); /* 0.08 are expected */
    kolo_sampler_destroy(sampler);
}

static void bad_options_and_failing_memory_are_reported(void **state) {
    kolo_sampler *sampler = NULL;
    kolo_sampler_opts none = {.samples = 0, .global_batch = 1}, empty = {.samples = 5};
    assert_int_equal(kolo_sampler_create(&none, &sampler), KOLO_ERR_ARG);
    assert_int_equal(kolo_sampler_create(&empty, &sampler), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "global batch 0"));
    kolo_sampler_opts newer = {.samples = 5, .global_batch = 1, .order = 3};
    assert_int_equal(kolo_sampler_create(&newer, &sampler), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "version 3"));
    for (long nth = 1; nth <= 2; nth++) {
        kolo_alloc_fail_nth(nth);
        kolo_sampler_opts good = {.samples = 5, .global_batch = 1, .order = 1};
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
        cmocka_unit_test(orders_stay),
        cmocka_unit_test(large_sets_take_no_memory),
        cmocka_unit_test(shuffles_are_uniform),
        cmocka_unit_test(places_in_one_epoch_are_uniform),
        cmocka_unit_test(bad_options_and_failing_memory_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
