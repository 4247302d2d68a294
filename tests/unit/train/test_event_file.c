/* Event files: records, their checksums, and the numbers in them. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "support/folder.h"
#include "support/support.h"
#include "train/record/event_file.h"
#include "train/session/metrics.h"

#include <dirent.h>
#include <string.h>

#ifdef KOLO_HAS_EVENTS
#include <event.pb-c.h>

static uint64_t read_number(const char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | (uint8_t)at[i];
    return value;
}

/* CRC32C bit by bit, by the definition. */
static uint32_t crc32c(const char *data, size_t bytes) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (uint8_t)data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
        }
    }
    return ~crc;
}

static uint32_t masked(const char *data, size_t bytes) {
    uint32_t crc = crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* The only file in a folder. */
static char *only_file(const char *folder) {
    DIR *dir = opendir(folder);
    char *path = NULL;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        assert_null(path);
        path = kolo_format("%s/%s", folder, e->d_name);
    }
    closedir(dir);
    assert_true(path && strstr(path, "tfevents"));
    return path;
}

static double find(const Tensorboard__Event *event, const char *tag) {
    for (size_t i = 0; event && event->summary && i < event->summary->n_value; i++) {
        const Tensorboard__Summary__Value *v = event->summary->value[i];
        if (strcmp(v->tag, tag) == 0) return (double)v->simple_value;
    }
    return -1;
}

static void records_have_lengths_checksums_and_numbers(void **state) {
    assert_int_equal(crc32c("123456789", 9), 0xE3069283); /* RFC 3720 */
    kolo_event_file *file;
    ASSERT_OK(kolo_event_file_create("events/of/a/run", &file));
    const kolo_step_time rows[] = {{.ms = {[KOLO_TIME_IDLE] = 0.5}}, {{0}}};
    kolo_train_progress p = {.epoch = 1, .step = 7, .lr = 0.125, .train = kolo_metrics_none()};
    p.train.value[KOLO_METRIC_LOSS] = 2.5;
    p.times = (kolo_time_report){.steps = 3,
                                 .mean = {.ms = {[KOLO_TIME_FORWARD] = 4}},
                                 .slowest = 1,
                                 .ranks = 2,
                                 .by_rank = rows};
    ASSERT_OK(kolo_event_file_report(file, &p));
    p = (kolo_train_progress){.step = 9, .evaluated = true, .epoch_end = true, .train = p.train};
    p.test = kolo_metrics_none();
    p.test.value[KOLO_METRIC_LOSS] = 0.25;
    ASSERT_OK(kolo_event_file_report(file, &p));
    char *path = only_file("events/of/a/run"), *data;
    size_t bytes, at = 0, n = 0;
    ASSERT_OK(kolo_file_read(path, 1 << 20, &data, &bytes)); /* flushed */
    Tensorboard__Event *events[3] = {NULL};
    for (; at < bytes && n < 3; n++) {
        assert_true(bytes - at > 16);
        uint64_t length = read_number(data + at, 8);
        assert_true(length <= bytes - at - 16);
        assert_int_equal(read_number(data + at + 8, 4), masked(data + at, 8));
        const char *record = data + at + 12;
        assert_int_equal(read_number(record + length, 4), masked(record, length));
        events[n] = tensorboard__event__unpack(NULL, length, (const uint8_t *)record);
        assert_non_null(events[n]);
        at += length + 16;
    }
    assert_int_equal(at, bytes);
    assert_int_equal(n, 3);
    if (!events[0] || !events[1] || !events[2]) return;
    assert_string_equal(events[0]->file_version, "brain.Event:2");
    assert_int_equal(events[1]->step, 7);
    assert_true(events[1]->wall_time > 1.7e9);
    assert_true(find(events[1], "train/loss") == 2.5 && find(events[1], "progress/lr") == 0.125);
    assert_true(find(events[1], "ms_per_step/forward") == 4);
    assert_true(find(events[1], "workers/slowest_rank") == 1);
    assert_true(find(events[1], "workers/idle_ms_rank_0") == 0.5);
    assert_true(find(events[2], "epoch/loss") == 2.5 && find(events[2], "test/loss") == 0.25);
    for (size_t i = 0; i < n; i++) tensorboard__event__free_unpacked(events[i], NULL);
    kolo_event_file_close(file);
    assert_int_equal(remove(path), 0);
    kolo_free(data);
    kolo_free(path);
}

static void folders_that_cannot_be_made_are_named(void **state) {
    kolo_event_file *file;
    assert_int_equal(kolo_event_file_create("/dev/null/x", &file), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "/dev/null/x"));
}

TEST_MAIN(test_event_file) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_have_lengths_checksums_and_numbers),
        cmocka_unit_test(folders_that_cannot_be_made_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void a_build_without_refuses(void **state) {
    kolo_event_file *file;
    assert_int_equal(kolo_event_file_create("events", &file), KOLO_ERR_UNSUPPORTED);
}

TEST_MAIN(test_event_file) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_build_without_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
