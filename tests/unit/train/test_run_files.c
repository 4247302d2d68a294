/* The files of a run. */
#include "base/file.h"
#include "support/support.h"
#include "train/record/run_files.h"
#include "train/session/metrics.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void set(kolo_metrics *metrics, const char *name, double value) {
    const kolo_metric *m = kolo_metric_table();
    int i = 0;
    while (strcmp(m[i].name, name) != 0) i++;
    metrics->value[i] = value;
}

static void reports_are_lines_of_json(void **state) {
    kolo_run_files *files;
    ASSERT_OK(kolo_run_files_open("test_run_files/a/b", 0, false, &files));
    ASSERT_OK(kolo_run_files_begin(files, "model: lenet\n", 0));
    kolo_train_progress train = {.epoch = 1, .step = 5, .train = kolo_metrics_none(), .lr = 0.1};
    set(&train.train, "loss", 0.5);
    set(&train.train, "accuracy", 0.25);
    const kolo_step_time by_rank[] = {{.ms = {[KOLO_TIME_STEP] = 4, [KOLO_TIME_IDLE] = 1.5}},
                                      {.ms = {[KOLO_TIME_STEP] = 4}}};
    train.times = (kolo_time_report){.steps = 5,
                                     .mean = {.ms = {[KOLO_TIME_STEP] = 4}},
                                     .slowest = 1,
                                     .ranks = 2,
                                     .by_rank = by_rank};
    kolo_train_progress epoch = {.epoch = 1,
                                 .step = 9,
                                 .epoch_end = true,
                                 .evaluated = true,
                                 .train = kolo_metrics_none(),
                                 .test = kolo_metrics_none()};
    set(&epoch.train, "loss", 3);
    set(&epoch.train, "perplexity", 12.25);
    set(&epoch.train, "masked_loss", 2.5);
    set(&epoch.train, "next_loss", 0.5);
    set(&epoch.train, "next_accuracy", 0.625);
    set(&epoch.test, "loss", 4);
    set(&epoch.test, "accuracy", 0.75);
    set(&epoch.test, "perplexity", 25.5);
    set(&epoch.test, "masked_loss", 3.25);
    set(&epoch.test, "next_loss", 0.75);
    set(&epoch.test, "next_accuracy", 0.875);
    epoch.times = train.times;
    ASSERT_OK(kolo_run_files_report(files, &train));
    ASSERT_OK(kolo_run_files_report(files, &epoch));
    /* Both lines are readable during the run. */
    char *text;
    size_t bytes;
    ASSERT_OK(kolo_file_read("test_run_files/a/b/metrics.jsonl", 4096, &text, &bytes));
    char *second = strchr(text, '\n');
    assert_non_null(second);
    *second++ = '\0';
    json_t *first = json_loads(text, 0, NULL), *last = json_loads(second, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(first, "event")), "train");
    assert_int_equal(json_integer_value(json_object_get(first, "step")), 5);
    assert_true(json_real_value(json_object_get(first, "loss")) == 0.5);
    assert_null(json_object_get(first, "test_accuracy"));
    assert_string_equal(json_string_value(json_object_get(last, "event")), "epoch");
    assert_true(json_real_value(json_object_get(last, "test_accuracy")) == 0.75);
    assert_null(json_object_get(first, "next_loss"));
    assert_null(json_object_get(first, "perplexity"));
    static const struct {
        const char *key;
        double number;
    } pairs[] = {{"epoch_loss", 3},
                 {"epoch_masked_loss", 2.5},
                 {"epoch_next_loss", 0.5},
                 {"epoch_perplexity", 12.25},
                 {"test_perplexity", 25.5},
                 {"test_loss", 4},
                 {"test_masked_loss", 3.25},
                 {"test_next_loss", 0.75},
                 {"epoch_next_accuracy", 0.625},
                 {"test_next_accuracy", 0.875}};
    for (size_t i = 0; i < KOLO_COUNT(pairs); i++) {
        assert_true(json_number_value(json_object_get(last, pairs[i].key)) == pairs[i].number);
    }
    assert_true(json_number_value(json_object_get(json_object_get(first, "ms_per_step"), "step")) ==
                4);
    assert_int_equal(json_integer_value(json_object_get(first, "slowest_rank")), 1);
    const json_t *idle = json_object_get(first, "idle_ms_by_rank");
    const json_t *rows = json_object_get(last, "ms_per_step_by_rank");
    assert_int_equal(json_array_size(rows), 2);
    assert_true(json_number_value(json_array_get(idle, 0)) == 1.5);
    assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "idle")) == 1.5);
    json_decref(first);
    json_decref(last);
    kolo_free(text);
    ASSERT_OK(kolo_file_read("test_run_files/a/b/config.yaml", 4096, &text, &bytes));
    assert_string_equal(text, "model: lenet\n");
    kolo_free(text);
    kolo_run_files_close(files);
    assert_int_equal(remove("test_run_files/a/b/metrics.jsonl"), 0);
    assert_int_equal(remove("test_run_files/a/b/config.yaml"), 0);
    assert_int_equal(remove("test_run_files/a/b"), 0); /* nothing else was left there */
    remove("test_run_files/a");
    remove("test_run_files");
}

static void folders_that_cannot_be_written_are_named(void **state) {
    static const char *const folders[] = {"/proc/kolo", "/dev/null", "/dev/null/run"};
    for (size_t i = 0; i < KOLO_COUNT(folders); i++) {
        kolo_run_files *files;
        assert_int_equal(kolo_run_files_open(folders[i], 0, false, &files), KOLO_ERR_IO);
        assert_non_null(strstr(kolo_last_error(), folders[i]));
    }
}

TEST_MAIN(test_run_files) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_are_lines_of_json),
        cmocka_unit_test(folders_that_cannot_be_written_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
