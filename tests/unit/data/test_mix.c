/* mixup and cutmix: the weights and their distribution, what becomes of the pixels, and batches
 * that are the same for any number of ranks and threads. */
#include "base/compiler.h"
#include "data/mix.h"
#include "data/prefetch.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { C = 3, SIDE = 16, EACH = C * SIDE * SIDE, CLASSES = 5, SAMPLES = 23, BATCH = 8 };

static const kolo_shape shape = {3, {C, SIDE, SIDE}};

/* Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)). */
static void weights_follow_beta(void **state) {
    static const double alphas[] = {0.05, 0.2, 1, 4};
    enum { DRAWS = 4000 };
    for (size_t a = 0; a < KOLO_COUNT(alphas); a++) {
        const kolo_augment augment = {.mixup = alphas[a]};
        double sum = 0, squares = 0;
        for (int i = 0; i < DRAWS; i++) {
            uint8_t sample[EACH] = {0};
            const float w = kolo_mix_apply(&augment, 3, 1, i, &(kolo_shape){3, {1, 1, 1}},
                                           &(uint8_t){200}, sample);
            assert_true(w >= 0 && w <= 1);
            assert_int_equal(sample[0], (int)(200 * w + 0.5F)); /* the mean of 0 and 200 */
            sum += (double)w;
            squares += (double)w * (double)w;
        }
        const double mean = sum / DRAWS, variance = 1 / (4 * (2 * alphas[a] + 1));
        assert_true(fabs(mean - 0.5) < 4 * sqrt(variance / DRAWS));
        assert_true(fabs(squares / DRAWS - mean * mean - variance) < 0.03 * variance + 0.003);
    }
}

/* A box comes from the other image, and its part of the area is the weight. */
static void a_box_is_cut(void **state) {
    const kolo_augment augment = {.cutmix = 1};
    uint8_t other[EACH];
    memset(other, 9, sizeof other);
    for (int i = 0; i < 200; i++) {
        uint8_t sample[EACH] = {0};
        const float w = kolo_mix_apply(&augment, 3, 1, i, &shape, other, sample);
        int n = 0, top = SIDE, bottom = -1, left = SIDE, right = -1;
        for (int p = 0; p < SIDE * SIDE; p++) {
            assert_true(sample[p] == 0 || sample[p] == 9);
            for (int c = 1; c < C; c++) {
                assert_int_equal(sample[c * SIDE * SIDE + p], sample[p]);
            }
            if (!sample[p]) continue;
            n++;
            if (p / SIDE < top) top = p / SIDE;
            if (p / SIDE > bottom) bottom = p / SIDE;
            if (p % SIDE < left) left = p % SIDE;
            if (p % SIDE > right) right = p % SIDE;
        }
        if (n > 0) assert_int_equal(n, (bottom - top + 1) * (right - left + 1));
        assert_true(w == (float)n / (SIDE * SIDE));
    }
}

/* With both, about half of the samples get each; another epoch, seed or sample draws anew. */
static void samples_draw_on_their_own(void **state) {
    const kolo_augment augment = {.mixup = 1, .cutmix = 1};
    uint8_t other[EACH];
    int cut = 0, same = 0;
    memset(other, 100, sizeof other);
    for (int i = 0; i < 400; i++) {
        uint8_t a[EACH] = {0}, b[EACH] = {0};
        kolo_mix_apply(&augment, 3, 1, i, &shape, other, a);
        kolo_mix_apply(&augment, 3 + (uint64_t)(i % 2), 1 + (i + 1) % 2, i, &shape, other, b);
        bool all = true; /* either 0 or 100 */
        for (int k = 0; k < EACH; k++) all &= a[k] == 0 || a[k] == 100;
        cut += all;
        same += !memcmp(a, b, sizeof a);
    }
    assert_in_range(cut, 160, 250);
    assert_in_range(same, 0, 60); /* boxes outside, and very small weights */
}

/* One loader's batches of three epochs: the samples of a step from all ranks, one after the other.
 */
typedef struct epochs {
    uint8_t x[9][BATCH * EACH];
    int32_t y[9][BATCH];
    float target[9][BATCH * CLASSES];
    int64_t indices[9][BATCH], count[9];
} epochs;

static void read_part(const kolo_loader_opts *opts, epochs *to) {
    kolo_loader *loader;
    kolo_batch b;
    ASSERT_OK(kolo_loader_create(opts, &loader));
    for (int64_t k = opts->first; k < 9; k++) {
        ASSERT_OK(kolo_loader_next(loader, &b));
        const int64_t at = to->count[k], n = b.count;
        assert_true(b.first == at && at + n <= BATCH);
        to->count[k] += n;
        if (n == 0) continue;
        memcpy(to->x[k] + at * EACH, b.data[0], (size_t)n * EACH);
        memcpy(to->y[k] + at, b.data[1], (size_t)n * sizeof *to->y[k]);
        memcpy(to->indices[k] + at, b.indices, (size_t)n * sizeof *b.indices);
        if (!kolo_augment_mixes(&opts->augment)) continue;
        assert_int_equal(b.n_fields, 3);
        assert_string_equal(b.fields[2].name, "target");
        memcpy(to->target[k] + at * CLASSES, b.data[2], (size_t)(n * CLASSES) * sizeof(float));
    }
    kolo_loader_destroy(loader);
}

static void batches_do_not_depend_on_ranks(void **state) {
    static epochs plain, one, several;
    const char name[] = "synthetic:N=23,test=1,shape=3x16x16,classes=5";
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open(name, KOLO_SPLIT_TRAIN, &d));
    kolo_loader_opts opts = {.dataset = d,
                             .global_batch = BATCH,
                             .seed = 4,
                             .end = 9,
                             .augment = {.flip = true, .crop = 2}};
    memset(&plain, 0, sizeof plain);
    memset(&one, 0, sizeof one);
    read_part(&opts, &plain);
    opts.augment.mixup = 0.8;
    opts.augment.cutmix = 1;
    read_part(&opts, &one);
    for (int k = 0; k < 9; k++) { /* each sample with the one before it, the first with the last */
        const int64_t n = one.count[k];
        assert_int_equal(n, k % 3 == 2 ? SAMPLES % BATCH : BATCH);
        assert_memory_equal(one.indices[k], plain.indices[k], sizeof plain.indices[k]);
        assert_memory_equal(one.y[k], plain.y[k], sizeof plain.y[k]);
        for (int64_t i = 0; i < n; i++) {
            const int64_t other = (i + n - 1) % n;
            uint8_t want[EACH];
            float target[CLASSES] = {0};
            memcpy(want, plain.x[k] + i * EACH, EACH);
            const float w = kolo_mix_apply(&opts.augment, 4, k / 3, plain.indices[k][i], &shape,
                                           plain.x[k] + other * EACH, want);
            target[plain.y[k][i]] += 1 - w;
            target[plain.y[k][other]] += w;
            assert_memory_equal(one.x[k] + i * EACH, want, EACH);
            assert_memory_equal(one.target[k] + i * CLASSES, target, sizeof target);
        }
    }
    static const struct {
        int world, shards, threads;
        int64_t first;
    } cases[] = {{1, 0, 3, 0}, {2, 0, 1, 0}, {3, 0, 2, 4}, {5, 0, KOLO_LOADER_NO_THREAD, 0},
                 {8, 0, 1, 0}, {3, 8, 2, 0}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        memset(&several, 0, sizeof several);
        opts.world = cases[i].world;
        opts.shards = cases[i].shards;
        opts.threads = cases[i].threads;
        opts.first = cases[i].first;
        for (opts.rank = 0; opts.rank < opts.world; opts.rank++) {
            opts.first_shard = opts.shards * opts.rank / opts.world;
            opts.end_shard = opts.shards * (opts.rank + 1) / opts.world;
            read_part(&opts, &several);
        }
        const int64_t k = opts.first;
        assert_memory_equal(several.x[k], one.x[k], (size_t)(9 - k) * sizeof one.x[0]);
        assert_memory_equal(several.y[k], one.y[k], (size_t)(9 - k) * sizeof one.y[0]);
        assert_memory_equal(several.target[k], one.target[k],
                            (size_t)(9 - k) * sizeof one.target[0]);
        assert_memory_equal(several.indices[k], one.indices[k],
                            (size_t)(9 - k) * sizeof one.indices[0]);
    }
    kolo_dataset_close(d);
}

/* A step of one sample mixes it with itself. */
static void a_sample_alone_stays(void **state) {
    kolo_dataset *d;
    kolo_loader *loader;
    kolo_batch plain, mixed;
    uint8_t x[EACH];
    ASSERT_OK(
        kolo_dataset_open("synthetic:N=4,test=1,shape=3x16x16,classes=5", KOLO_SPLIT_TRAIN, &d));
    kolo_loader_opts opts = {.dataset = d, .global_batch = 1};
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    ASSERT_OK(kolo_loader_next(loader, &plain));
    memcpy(x, plain.data[0], sizeof x);
    kolo_loader_destroy(loader);
    opts.augment.mixup = 1;
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    ASSERT_OK(kolo_loader_next(loader, &mixed));
    assert_memory_equal(mixed.data[0], x, sizeof x);
    assert_true(((const float *)mixed.data[2])[((const int32_t *)mixed.data[1])[0]] == 1);
    kolo_loader_destroy(loader);
    kolo_dataset_close(d);
}

static void labels_are_classes(void **state) {
    kolo_dataset *d;
    kolo_loader *loader;
    ASSERT_OK(kolo_dataset_open("synthetic-seg:N=8,test=2", KOLO_SPLIT_TRAIN, &d));
    const kolo_loader_opts opts = {.dataset = d, .global_batch = 2, .augment = {.cutmix = 1}};
    assert_int_equal(kolo_loader_create(&opts, &loader), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "are of pixels"));
    kolo_dataset_close(d);
    kolo_augment a;
    static const char *const bad[] = {"mixup", "mixup=0", "mixup=x", "cutmix=-1", "cutmix=1000"};
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        assert_int_equal(kolo_augment_parse(bad[i], &a), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), "=ALPHA, 0.01 to 100"));
    }
}

/* Programs give any labels, such as -1 for a sample without one. */
static void a_label_that_is_no_class_is_an_error(void **state) {
    static const uint8_t x[2 * EACH];
    static const kolo_field fields[] = {{"x", KOLO_DTYPE_U8, {3, {C, SIDE, SIDE}}, .mean = {0}},
                                        {"label", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    static const int32_t labels[][2] = {{0, CLASSES}, {-1, 0}};
    for (size_t i = 0; i < KOLO_COUNT(labels); i++) {
        const kolo_source source = {.count = 2,
                                    .n_fields = 2,
                                    .fields = fields,
                                    .data = {x, labels[i]},
                                    .classes = CLASSES};
        kolo_dataset *d;
        kolo_loader *loader;
        kolo_batch b;
        ASSERT_OK(kolo_dataset_create(&source, &d));
        const kolo_loader_opts opts = {.dataset = d, .global_batch = 2, .augment = {.mixup = 1}};
        ASSERT_OK(kolo_loader_create(&opts, &loader));
        assert_int_equal(kolo_loader_next(loader, &b), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), "need a class of each sample"));
        kolo_loader_destroy(loader);
        kolo_dataset_close(d);
    }
}

TEST_MAIN(test_mix) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_follow_beta),
        cmocka_unit_test(a_box_is_cut),
        cmocka_unit_test(samples_draw_on_their_own),
        cmocka_unit_test(batches_do_not_depend_on_ranks),
        cmocka_unit_test(a_sample_alone_stays),
        cmocka_unit_test(labels_are_classes),
        cmocka_unit_test(a_label_that_is_no_class_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
