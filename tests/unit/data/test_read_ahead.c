/* Reading ahead: threads where the storage is slow, none where it is fast, and the same files in
 * any case. What overlaps is counted, no time is measured. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/read_ahead.h"
#include "support/support.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct storage {
    int delay;
    atomic_int now, most, reads;
} storage;

/* The file of sample i is its number; every seventh is damaged. */
static kolo_status read_files(const void *arg, int64_t index, kolo_encoded *files) {
    storage *s = (storage *)(uintptr_t)arg;
    const int now = atomic_fetch_add(&s->now, 1) + 1;
    int most = atomic_load(&s->most);
    while (now > most && !atomic_compare_exchange_weak(&s->most, &most, now)) {
    }
    if (s->delay > 0) kolo_sleep_ns(kolo_ms_to_ns(s->delay));
    atomic_fetch_sub(&s->now, 1);
    atomic_fetch_add(&s->reads, 1);
    if (index % 7 == 6) return KOLO_FAIL(KOLO_ERR_IO, "file %d is lost", (int)index);
    files[0].name = kolo_format("%" PRId64, index);
    files[0].bytes = kolo_format("contents of %" PRId64, index);
    if (!files[0].name || !files[0].bytes) return KOLO_NOMEM(1);
    files[0].length = strlen(files[0].bytes);
    return KOLO_OK;
}

static void take(kolo_read_ahead *a, int64_t index) {
    kolo_encoded files[KOLO_READ_AHEAD_FILES] = {0};
    char wanted[64];
    const kolo_status status = kolo_read_ahead_take(a, index, files);
    snprintf(wanted, sizeof wanted, "file %d is lost", (int)index);
    if (index % 7 == 6) {
        assert_int_equal(status, KOLO_ERR_IO);
        assert_string_equal(kolo_last_error(), wanted);
        return;
    }
    ASSERT_OK(status);
    snprintf(wanted, sizeof wanted, "contents of %d", (int)index);
    assert_int_equal(files[0].length, strlen(wanted));
    assert_memory_equal(files[0].bytes, wanted, strlen(wanted));
    for (int f = 0; f < KOLO_READ_AHEAD_FILES; f++) {
        kolo_free(files[f].name);
        kolo_free(files[f].bytes);
    }
}

/* Announces batches of 32 one ahead, as the loader does, and takes the samples. */
static void read_all(storage *s, int batches, int *threads, int64_t *by_threads) {
    enum { BATCH = 32 };
    kolo_read_ahead *a;
    int64_t indices[BATCH];
    ASSERT_OK(kolo_read_ahead_create(read_files, s, &a));
    for (int b = 0, announced = 0; b < batches; b++) {
        for (; announced < batches && announced < b + 2; announced++) {
            for (int i = 0; i < BATCH; i++) indices[i] = announced * BATCH + i;
            kolo_read_ahead_announce(a, indices, BATCH);
        }
        for (int i = 0; i < BATCH; i++) take(a, b * BATCH + i);
    }
    kolo_read_ahead_count(a, threads, by_threads);
    kolo_read_ahead_destroy(a);
}

static void slow_files_are_read_side_by_side(void **state) {
    storage slow = {.delay = 10};
    int threads;
    int64_t by_threads;
    read_all(&slow, 6, &threads, &by_threads);
    assert_int_equal(atomic_load(&slow.reads), 6 * 32); /* each once */
    assert_true(threads >= 15);
    assert_true(atomic_load(&slow.most) >= 8);
    assert_true(by_threads > 3 * 32);
}

static void samples_that_nobody_takes_make_room(void **state) {
    storage slow = {.delay = 3};
    kolo_read_ahead *a;
    int64_t indices[1024];
    int threads;
    int64_t by_threads;
    for (int i = 0; i < 1024; i++) indices[i] = i;
    ASSERT_OK(kolo_read_ahead_create(read_files, &slow, &a));
    kolo_read_ahead_announce(a, indices, 1024); /* of which 512 have room */
    for (int i = 0; i < 6; i++) take(a, i);     /* threads begin */
    for (;;) {
        kolo_read_ahead_count(a, &threads, &by_threads);
        if (by_threads >= 100) break;
        kolo_sleep_ns(kolo_ms_to_ns(1));
    }
    kolo_read_ahead_announce(a, indices + 512, 256);
    for (int i = 700; i < 712; i++) take(a, i);
    take(a, 1);
    kolo_read_ahead_destroy(a);
}

/* Batches of two epochs of few samples are read at the same time. */
typedef struct taker {
    kolo_read_ahead *ahead;
    int64_t index;
    pthread_t thread;
} taker;

static void *run_taker(void *arg) {
    const taker *t = arg;
    take(t->ahead, t->index);
    return NULL;
}

static void several_may_wait_for_one_sample(void **state) {
    enum { TAKERS = 4, ROUNDS = 8 };
    storage slow = {.delay = 20};
    kolo_read_ahead *a;
    ASSERT_OK(kolo_read_ahead_create(read_files, &slow, &a));
    kolo_read_ahead_announce(a, (int64_t[]){0, 1}, 2);
    take(a, 0); /* a thread begins */
    for (int r = 1; r <= ROUNDS; r++) {
        taker takers[TAKERS];
        const int64_t index = 7 * r;
        const int before = atomic_load(&slow.reads);
        kolo_read_ahead_announce(a, &index, 1);
        kolo_sleep_ns(kolo_ms_to_ns(2)); /* the thread reads it */
        for (int i = 0; i < TAKERS; i++) {
            takers[i] = (taker){.ahead = a, .index = index};
            assert_int_equal(pthread_create(&takers[i].thread, NULL, run_taker, &takers[i]), 0);
        }
        for (int i = 0; i < TAKERS; i++) pthread_join(takers[i].thread, NULL);
        assert_true(atomic_load(&slow.reads) >= before + TAKERS); /* each has files of its own */
    }
    kolo_read_ahead_destroy(a);
}

static void memory_may_lack(void **state) {
    storage fast = {0};
    kolo_read_ahead *a;
    kolo_alloc_fail_nth(1);
    assert_int_equal(kolo_read_ahead_create(read_files, &fast, &a), KOLO_ERR_NOMEM);
    kolo_alloc_fail_nth(0);
}

TEST_MAIN(test_read_ahead) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_files_are_read_side_by_side),
        cmocka_unit_test(samples_that_nobody_takes_make_room),
        cmocka_unit_test(several_may_wait_for_one_sample),
        cmocka_unit_test(memory_may_lack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
