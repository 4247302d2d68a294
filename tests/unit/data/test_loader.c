/* The loader: batches in the sampler's order for any number of ranks, errors, early destruction,
 * normalization. */
#include "base/compiler.h"
#include "base/isa.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/normalize.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "support/support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A data set with sample i the bytes of i and label i % 10, whose gather can fail at a sample or
 * block on a gate. */
typedef struct fake {
    kolo_dataset dataset;
    int64_t fails_at; /* -1: never */
    bool gated;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;       /* under lock */
    int64_t batches; /* under lock: calls of gather */
} fake;

enum { SAMPLE = 4 };

static kolo_status fake_gather(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                               const kolo_draw *draw, void *const *data) {
    uint8_t *samples = data[KOLO_FIELD_X];
    int32_t *labels = data[KOLO_FIELD_Y];
    fake *f = dataset->own;
    pthread_mutex_lock(&f->lock);
    f->batches++;
    while (f->gated && !f->open) pthread_cond_wait(&f->opened, &f->lock);
    pthread_mutex_unlock(&f->lock);
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] == f->fails_at) {
            return KOLO_FAIL(KOLO_ERR_IO, "sample %d is on a bad disk", (int)indices[i]);
        }
        uint32_t value = (uint32_t)indices[i];
        memcpy(samples + i * SAMPLE, &value, SAMPLE);
        labels[i] = (int32_t)(indices[i] % 10);
    }
    return KOLO_OK;
}

static void fake_init(fake *f, int64_t count) {
    *f = (fake){.fails_at = -1};
    f->dataset.info = (kolo_dataset_info){
        .name = "fake",
        .place = "",
        .count = count,
        .classes = 10,
    };
    kolo_dataset_set_fields(&f->dataset.info, KOLO_DTYPE_U8, (kolo_shape){3, {1, 1, SAMPLE}},
                            kolo_shape_0());
    f->dataset.gather = fake_gather;
    f->dataset.own = f;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->opened, NULL);
}

static void fake_fini(fake *f) {
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->opened);
}

static void open_gate(fake *f) {
    pthread_mutex_lock(&f->lock);
    f->open = true;
    pthread_cond_broadcast(&f->opened);
    pthread_mutex_unlock(&f->lock);
}

/* Numbers of threads; batches are the same with each. */
static const int threads[] = {1, KOLO_LOADER_NO_THREAD, 2, 4};

/* Compares a batch with the share of a rank in step k, counted through all epochs. */
static void assert_share(const kolo_batch *batch, const kolo_sampler_opts *order,
                         kolo_sampler *sampler, int64_t k, int rank, int world) {
    const int64_t steps = kolo_sampler_steps(order);
    const kolo_share share = kolo_sampler_share(order, k % steps, rank, world);
    int64_t perm[512];
    kolo_sampler_take(sampler, k / steps, 0, order->samples, perm);
    assert_int_equal(batch->epoch, k / steps);
    assert_int_equal(batch->step, k % steps);
    assert_int_equal(batch->count, share.count);
    assert_int_equal(batch->global_count, share.global_count);
    for (int64_t i = 0; i < batch->count; i++) {
        uint32_t value;
        memcpy(&value, (const char *)batch->data[KOLO_FIELD_X] + i * SAMPLE, SAMPLE);
        assert_int_equal(value, perm[share.first + i]);
        assert_int_equal(batch->indices[i], value);
        assert_int_equal(((const int32_t *)batch->data[KOLO_FIELD_Y])[i], value % 10);
    }
}

/* Compares every batch of a loader with a sampler. */
static void check_batches(fake *f, const kolo_loader_opts *opts, int64_t first, int64_t end) {
    kolo_loader *loader;
    kolo_sampler *sampler;
    kolo_sampler_opts order = {.samples = f->dataset.info.count,
                               .global_batch = opts->global_batch,
                               .seed = opts->seed,
                               .no_shuffle = opts->no_shuffle};
    ASSERT_OK(kolo_loader_create(opts, &loader));
    ASSERT_OK(kolo_sampler_create(&order, &sampler));
    int64_t steps = kolo_sampler_steps(&order);
    assert_int_equal(kolo_loader_steps(loader), steps);
    int world = opts->world ? opts->world : 1;
    kolo_batch batch, next;
    bool peeked = false;
    for (int64_t k = first; k < end; k++) {
        ASSERT_OK(kolo_loader_next(loader, &batch));
        if (peeked) assert_memory_equal(&batch, &next, sizeof batch);
        peeked = kolo_loader_peek(loader, &next);
        assert_share(&batch, &order, sampler, k, opts->rank, world);
        assert_true(batch.count <= kolo_loader_largest(loader));
    }
    assert_false(kolo_loader_peek(loader, &next));
    for (int again = 0; again < 3; again++) { /* the end stays the end */
        ASSERT_OK(kolo_loader_next(loader, &batch));
        assert_int_equal(batch.global_count, 0);
        assert_int_equal(batch.count, 0);
    }
    kolo_sampler_destroy(sampler);
    kolo_loader_destroy(loader);
}

static void batches_come_in_the_samplers_order(void **state) {
    fake f;
    fake_init(&f, 101);
    for (int world = 1; world <= 8; world++) {
        for (int rank = 0; rank < world; rank++) {
            kolo_loader_opts opts = {
                .dataset = &f.dataset, .global_batch = 24, .seed = 5, .rank = rank, .world = world};
            opts.end = 15; /* three epochs of five steps */
            opts.slots = 2 + rank % 3;
            opts.threads = threads[(world + rank) % 4];
            check_batches(&f, &opts, 0, 15);
        }
    }
    kolo_loader_opts opts = {.dataset = &f.dataset, .global_batch = 24};
    check_batches(&f, &opts, 0, 5); /* default end: one epoch */
    opts.first = 7;
    check_batches(&f, &opts, 7, 10);
    opts.end = 9;
    check_batches(&f, &opts, 7, 9);
    opts.end = 7;
    check_batches(&f, &opts, 7, 7);
    opts = (kolo_loader_opts){.dataset = &f.dataset, .global_batch = 300, .no_shuffle = true};
    check_batches(&f, &opts, 0, 1);
    opts.world = 128; /* more ranks than samples */
    opts.rank = 127;
    check_batches(&f, &opts, 0, 1);
    fake_fini(&f);
}

/* While the consumer holds batch 0, threads fill the other slots and then wait. */
static void run_ahead(int n) {
    fake f;
    fake_init(&f, 1000);
    kolo_loader_opts opts = {.dataset = &f.dataset, .global_batch = 1, .no_shuffle = true};
    kolo_loader *loader;
    kolo_batch batch;
    opts.slots = 3;
    opts.threads = n;
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    int64_t batches = 0;
    while (batches < 3) {
        pthread_mutex_lock(&f.lock);
        batches = f.batches;
        pthread_mutex_unlock(&f.lock);
    }
    for (int64_t k = 0; k < 100; k++) {
        ASSERT_OK(kolo_loader_next(loader, &batch));
        pthread_mutex_lock(&f.lock);
        batches = f.batches;
        pthread_mutex_unlock(&f.lock);
        assert_true(batches > k && batches <= k + 3);
        uint32_t value; /* not overwritten while it is held */
        memcpy(&value, batch.data[0], SAMPLE);
        assert_int_equal(value, k);
    }
    kolo_loader_destroy(loader);
    fake_fini(&f);
}

/* In any order, of any rank; the next batch is read while the consumer has one. */
static void batches_are_read_on_demand(void **state) {
    static const struct {
        int64_t step;
        int part;
    } asked[] = {{0, 2}, {0, 0}, {4, 1}, {4, 2}, {1, 1}, {9, 0}, {5, 2}, {2, 2}};
    fake f;
    fake_init(&f, 101);
    for (size_t t = 0; t < KOLO_COUNT(threads); t++) {
        const kolo_loader_opts opts = {.dataset = &f.dataset,
                                       .global_batch = 24,
                                       .seed = 5,
                                       .world = 3,
                                       .slots = 3,
                                       .threads = threads[t],
                                       .on_demand = true};
        const kolo_sampler_opts order = {.samples = 101, .global_batch = 24, .seed = 5};
        kolo_loader *loader;
        kolo_sampler *sampler;
        kolo_batch batch;
        ASSERT_OK(kolo_loader_create(&opts, &loader));
        ASSERT_OK(kolo_sampler_create(&order, &sampler));
        for (size_t i = 0; i <= KOLO_COUNT(asked); i++) {
            if (i < KOLO_COUNT(asked)) kolo_loader_ask(loader, asked[i].step, asked[i].part);
            if (i == 0) continue;
            ASSERT_OK(kolo_loader_next(loader, &batch));
            assert_share(&batch, &order, sampler, asked[i - 1].step, asked[i - 1].part, 3);
        }
        kolo_sampler_destroy(sampler);
        kolo_loader_destroy(loader);
    }
    fake_fini(&f);
}

static void threads_run_ahead_by_the_slots(void **state) {
    run_ahead(1);
    run_ahead(3);
}

/* All batches before the first one that fails are there, and of its errors the first. */
static void fail_at_57(int n) {
    fake f;
    fake_init(&f, 100);
    f.fails_at = 57;
    kolo_loader_opts opts = {
        .dataset = &f.dataset, .global_batch = 10, .no_shuffle = true, .threads = n};
    kolo_loader *loader;
    kolo_batch batch;
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    assert_int_equal(kolo_loader_next(loader, NULL), KOLO_ERR_ARG);
    assert_int_equal(kolo_loader_next(NULL, &batch), KOLO_ERR_ARG);
    for (int64_t k = 0; k < 5; k++) {
        ASSERT_OK(kolo_loader_next(loader, &batch));
        assert_int_equal(batch.step, k);
    }
    for (int again = 0; again < 2; again++) {
        assert_int_equal(kolo_loader_next(loader, &batch), KOLO_ERR_IO);
        assert_string_equal(kolo_last_error(), "sample 57 is on a bad disk");
    }
    assert_int_equal(batch.step, 4); /* untouched */
    kolo_loader_destroy(loader);
    fake_fini(&f);
}

static void failures_of_threads_reach_the_consumer(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(threads); i++) fail_at_57(threads[i]);
}

/* The bytes of some epochs of augmented images, without and with shards. */
static void images_do_not_depend_on_threads(void **state) {
    enum { EACH = 3 * 6 * 5, ROOM = 24 * EACH };
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open("synthetic:N=50,test=1,shape=3x6x5", KOLO_SPLIT_TRAIN, &d));
    for (int shards = 0; shards <= 8; shards += 8) {
        kolo_loader *loader[KOLO_COUNT(threads)];
        kolo_loader_opts opts = {.dataset = d,
                                 .global_batch = 24,
                                 .seed = 4,
                                 .end = 9,
                                 .shards = shards,
                                 .end_shard = shards,
                                 .augment = {.flip = true, .crop = 2, .erase = 2, .mixup = 0.5}};
        for (size_t i = 0; i < KOLO_COUNT(threads); i++) {
            opts.threads = threads[i];
            ASSERT_OK(kolo_loader_create(&opts, &loader[i]));
        }
        for (int k = 0; k < 9; k++) {
            kolo_batch first, other;
            ASSERT_OK(kolo_loader_next(loader[0], &first));
            assert_in_range(first.count, 1, 24);
            for (size_t i = 1; i < KOLO_COUNT(threads); i++) {
                ASSERT_OK(kolo_loader_next(loader[i], &other));
                assert_int_equal(other.count, first.count);
                assert_memory_equal(other.data[0], first.data[0], (size_t)first.count * EACH);
                assert_memory_equal(other.data[1], first.data[1], (size_t)first.count * 4);
            }
        }
        for (size_t i = 0; i < KOLO_COUNT(threads); i++) kolo_loader_destroy(loader[i]);
    }
    kolo_dataset_close(d);
}

static void waiting_has_a_deadline(void **state) {
    fake f;
    fake_init(&f, 100);
    f.gated = true;
    kolo_loader_opts opts = {.dataset = &f.dataset, .global_batch = 10, .timeout_ms = 20};
    kolo_loader *loader;
    kolo_batch batch;
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    assert_int_equal(kolo_loader_next(loader, &batch), KOLO_ERR_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "within 20 ms"));
    open_gate(&f);
    kolo_status status = KOLO_ERR_TIMEOUT; /* late is not lost */
    for (int tries = 0; tries < 500 && status == KOLO_ERR_TIMEOUT; tries++) {
        status = kolo_loader_next(loader, &batch);
    }
    ASSERT_OK(status);
    assert_int_equal(batch.step, 0);
    kolo_loader_destroy(loader);
    fake_fini(&f);
}

/* Destruction before the first batch, in between, with a full ring, after the end, after an error.
 */
static void loaders_end_at_any_moment(void **state) {
    fake f;
    fake_init(&f, 64);
    for (int taken = 0; taken < 40; taken++) {
        f.fails_at = taken % 4 == 3 ? 33 : -1;
        kolo_loader_opts opts = {.dataset = &f.dataset, .global_batch = 2, .rank = 1, .world = 2};
        opts.threads = threads[taken / 4 % 4];
        kolo_loader *loader;
        ASSERT_OK(kolo_loader_create(&opts, &loader));
        kolo_batch batch;
        for (int k = 0; k < taken && kolo_loader_next(loader, &batch) == KOLO_OK; k++) continue;
        kolo_loader_destroy(loader);
    }
    kolo_loader_destroy(NULL);
    fake_fini(&f);
}

static void bad_options_and_failing_memory_are_reported(void **state) {
    fake f;
    fake_init(&f, 64);
    const kolo_dataset *d = &f.dataset;
    const kolo_loader_opts bad[] = {
        {.dataset = d},
        {.dataset = d, .global_batch = -4},
        {.dataset = d, .global_batch = 8, .rank = 2, .world = 2},
        {.dataset = d, .global_batch = 8, .rank = -1, .world = 2},
        {.dataset = d, .global_batch = 8, .world = -1},
        {.dataset = d, .global_batch = 8, .slots = 1},
        {.dataset = d, .global_batch = 8, .first = -1},
        {.dataset = d, .global_batch = 8, .first = 5, .end = 4},
        {.dataset = d, .global_batch = 8, .timeout_ms = -1},
        {.dataset = d, .global_batch = 8, .threads = -2},
        {.dataset = d, .global_batch = 8, .threads = KOLO_LOADER_MAX_THREADS + 1},
    };
    kolo_loader *loader = NULL;
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        assert_int_equal(kolo_loader_create(&bad[i], &loader), KOLO_ERR_ARG);
    }
    kolo_loader_opts good = {.dataset = d, .global_batch = 8};
    long failures = 0;
    for (;; failures++) {
        kolo_alloc_fail_nth(failures + 1);
        kolo_status status = kolo_loader_create(&good, &loader);
        kolo_alloc_fail_nth(0);
        if (status == KOLO_OK) break;
        assert_int_equal(status, KOLO_ERR_NOMEM);
        assert_null(loader);
    }
    assert_true(failures >= 5);
    kolo_loader_destroy(loader);
    fake_fini(&f);
}

/* Against the formula in double, in both orders, with a mean and deviation per channel. */
static void normalization_follows_the_formula(void **state) {
    enum { N = 3, P = 5 * 7, CHANNELS = 3 };
    for (int64_t channels = 1; channels <= CHANNELS; channels++) {
        const kolo_field field = {.shape = {3, {channels, 5, 7}},
                                  .mean = {0.2860F, 0.1307F, 0.9F},
                                  .std = {0.3530F, 0.3081F, 0.01F}};
        uint8_t samples[N * CHANNELS * P];
        for (size_t i = 0; i < sizeof samples; i++) samples[i] = (uint8_t)(i * 37);
        float nchw[N * CHANNELS * P + 1], nhwc[N * CHANNELS * P + 1];
        int64_t total = N * channels * P;
        nchw[total] = nhwc[total] = 77;
        kolo_normalize(&field, samples, N, KOLO_NCHW, nchw);
        kolo_normalize(&field, samples, N, KOLO_NHWC, nhwc);
        for (int64_t n = 0; n < N; n++) {
            for (int64_t c = 0; c < channels; c++) {
                for (int64_t p = 0; p < P; p++) {
                    int64_t at = (n * channels + c) * P + p;
                    double want =
                        (samples[at] / 255.0 - (double)field.mean[c]) / (double)field.std[c];
                    double off = (double)nchw[at] - want;
                    assert_true(off < 1e-5 && off > -1e-5);
                    assert_true(nhwc[(n * P + p) * channels + c] == nchw[at]);
                }
            }
        }
        assert_true(nchw[total] == 77 && nhwc[total] == 77);
        float again[N * CHANNELS * P];
        kolo_interleave(&field, nchw, N, again);
        assert_memory_equal(again, nhwc, (size_t)total * sizeof *again);
        nchw[0] = 77;
        kolo_normalize(&field, samples, 0, KOLO_NHWC, nchw);
        assert_true(nchw[0] == 77);
    }
}

/* All copies have the same bits, in batches that are written past the cache, too. */
static void normalization_is_the_same_on_every_set(void **state) {
    enum { N = 160, SIDE = 96, IMAGE = 3 * SIDE * SIDE };
    const kolo_field field = {.shape = {3, {3, SIDE, SIDE}},
                              .mean = {0.485F, 0.456F, 0.406F},
                              .std = {0.229F, 0.224F, 0.225F}};
    const size_t bytes = sizeof(float) * N * IMAGE;
    uint8_t *samples = kolo_alloc((size_t)N * IMAGE);
    float *whole = kolo_alloc(bytes), *single = kolo_alloc(sizeof(float) * IMAGE);
    assert_true(samples && whole && single);
    for (int64_t i = 0; i < (int64_t)N * IMAGE; i++) samples[i] = (uint8_t)(i * 37);
    for (int order = 0; order < 2; order++) {
        kolo_isa_pin(KOLO_ISA_BASELINE);
        kolo_normalize(&field, samples + IMAGE, 1, order ? KOLO_NHWC : KOLO_NCHW, single);
        for (int isa = 0; isa < KOLO_ISA_COUNT; isa++) {
            if (!kolo_isa_runs((kolo_isa)isa)) continue;
            kolo_isa_pin(isa);
            memset(whole, 0, bytes);
            kolo_normalize(&field, samples, N, order ? KOLO_NHWC : KOLO_NCHW, whole);
            assert_memory_equal(whole + IMAGE, single, sizeof(float) * IMAGE);
        }
    }
    kolo_isa_pin(-1);
    kolo_free(samples);
    kolo_free(whole);
    kolo_free(single);
}

/* The shards of a rank change at a step that the loader has not begun; batches grow if needed. */
static void shards_are_dealt_anew_between_steps(void **state) {
    fake f;
    fake_init(&f, 101);
    kolo_loader_opts opts = {.dataset = &f.dataset,
                             .global_batch = 24,
                             .shards = 8,
                             .first_shard = 1,
                             .end_shard = 2,
                             .first = 2,
                             .end = 30,
                             .no_shuffle = true,
                             .slots = 2};
    kolo_sampler_opts order = {.samples = 101, .global_batch = 24};
    kolo_loader *loader;
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    for (int k = 2; k < 30; k++) {
        kolo_batch batch;
        ASSERT_OK(kolo_loader_next(loader, &batch));
        int first = k < 8 ? 1 : k < 20 ? 0 : 5, end = k < 8 ? 2 : k < 20 ? 8 : 5;
        kolo_share share = kolo_sampler_shards(&order, k % 5, 8, first, end);
        assert_int_equal(batch.count, share.count);
        assert_int_equal(batch.global_count, share.global_count);
        for (int64_t i = 0; i < share.count; i++) {
            uint32_t value;
            memcpy(&value, (const char *)batch.data[KOLO_FIELD_X] + i * SAMPLE, SAMPLE);
            assert_int_equal(value, share.first + i);
        }
        if (k == 5) kolo_loader_deal(loader, 8, 0, 8);
        if (k == 15) kolo_loader_deal(loader, 20, 5, 5);
    }
    kolo_loader_destroy(loader);
    opts.global_batch = 25;
    assert_int_equal(kolo_loader_create(&opts, &loader), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "a multiple of the shards"));
    fake_fini(&f);
}

TEST_MAIN(test_loader) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_the_samplers_order),
        cmocka_unit_test(batches_are_read_on_demand),
        cmocka_unit_test(threads_run_ahead_by_the_slots),
        cmocka_unit_test(failures_of_threads_reach_the_consumer),
        cmocka_unit_test(images_do_not_depend_on_threads),
        cmocka_unit_test(waiting_has_a_deadline),
        cmocka_unit_test(loaders_end_at_any_moment),
        cmocka_unit_test(bad_options_and_failing_memory_are_reported),
        cmocka_unit_test(shards_are_dealt_anew_between_steps),
        cmocka_unit_test(normalization_follows_the_formula),
        cmocka_unit_test(normalization_is_the_same_on_every_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
