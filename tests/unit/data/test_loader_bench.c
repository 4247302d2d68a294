/* The benchmark of a loader: which stages it measures, in processor time. */
#include "kolo/data.h"
#include "support/support.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { SIDE = 8, EACH = 3 * SIDE * SIDE, CLASSES = 4, WAIT_MS = 3, BURN_NS = 200000 };

/* Samples of a slow disk: a wait in each call. */
static kolo_status read_slowly(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    const struct timespec wait = {.tv_nsec = WAIT_MS * 1000000};
    uint8_t *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y];
    nanosleep(&wait, NULL);
    atomic_fetch_add((atomic_llong *)arg, 1);
    for (int64_t i = 0; i < n; i++) {
        memset(x + i * EACH, (int)(indices[i] % 256), EACH);
        y[i] = (int32_t)(indices[i] % CLASSES);
    }
    return KOLO_OK;
}

/* Samples that take processor time. */
static kolo_status read_busily(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    struct timespec from, now;
    (void)indices;
    memset(data[KOLO_FIELD_X], 1, (size_t)(n * EACH));
    memset(data[KOLO_FIELD_Y], 0, (size_t)n * sizeof(int32_t));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < n * BURN_NS);
    atomic_fetch_add((atomic_llong *)arg, n);
    return KOLO_OK;
}

static void run(const char *augment, double seconds[KOLO_LOADER_STAGES], double *waited) {
    static const kolo_field fields[] = {{"x", KOLO_DTYPE_U8, {3, {3, SIDE, SIDE}}, .mean = {0}},
                                        {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    enum { SAMPLES = 21, BATCH = 7 };
    atomic_llong calls = 0;
    const kolo_source source = {.count = SAMPLES,
                                .n_fields = 2,
                                .fields = fields,
                                .gather = read_slowly,
                                .arg = &calls,
                                .classes = CLASSES};
    const kolo_loader_bench_opts opts = {.augment = augment,
                                         .batch = BATCH,
                                         .threads = KOLO_LOADER_NO_THREAD,
                                         .budget_ms = 4 * WAIT_MS};
    kolo_dataset *d;
    kolo_loader_bench result;
    ASSERT_OK(kolo_dataset_create(&source, &d));
    ASSERT_OK(kolo_bench_loader(d, &opts, &result));
    kolo_dataset_close(d);
    assert_true(result.samples > 0 && result.loader_samples_per_second > 0);
    memcpy(seconds, result.seconds, sizeof result.seconds);
    *waited = (double)(result.samples / BATCH) * WAIT_MS / 1e3; /* in the calls of the stages */
}

static void stages_take_processor_time(void **state) {
    double plain[KOLO_LOADER_STAGES], mixed[KOLO_LOADER_STAGES], waited;
    run("flip", plain, &waited);
    assert_true(plain[KOLO_LOADER_READ] > 0 && plain[KOLO_LOADER_READ] < waited / 2);
    assert_true(plain[KOLO_LOADER_AUGMENT] > 0 && plain[KOLO_LOADER_CONVERT] > 0);
    assert_true(plain[KOLO_LOADER_MIX] == 0 && plain[KOLO_LOADER_DECODE] == 0);
    run("flip,mixup=0.5,cutmix=1", mixed, &waited);
    assert_true(mixed[KOLO_LOADER_MIX] > 0);
}

/* The time of all threads counts, and no more than the process took. */
static void a_loader_takes_the_time_of_its_threads(void **state) {
    static const kolo_field fields[] = {{"x", KOLO_DTYPE_U8, {3, {3, SIDE, SIDE}}, .mean = {0}},
                                        {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    atomic_llong samples = 0;
    const kolo_source source = {.count = 64,
                                .n_fields = 2,
                                .fields = fields,
                                .gather = read_busily,
                                .arg = &samples,
                                .classes = CLASSES};
    const kolo_loader_bench_opts opts = {.batch = 8, .threads = 2, .budget_ms = 40};
    kolo_dataset *d;
    kolo_loader_bench result;
    struct timespec from, now;
    ASSERT_OK(kolo_dataset_create(&source, &d));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    ASSERT_OK(kolo_bench_loader(d, &opts, &result));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    kolo_dataset_close(d);
    const double all =
        (double)(now.tv_sec - from.tv_sec) + 1e-9 * (double)(now.tv_nsec - from.tv_nsec);
    const double least = result.loader_samples_per_second * 1e-3 * (double)opts.budget_ms;
    assert_true(result.loader_seconds_per_sample > 0.5e-9 * BURN_NS);
    assert_true(result.loader_seconds_per_sample * least <= all);
}

TEST_MAIN(test_loader_bench) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_take_processor_time),
        cmocka_unit_test(a_loader_takes_the_time_of_its_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
