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

/* A report of two workers in training. */
static kolo_train_progress training_report(const kolo_step_time by_rank[2]) {
    kolo_train_progress report = {.epoch = 1, .step = 5, .train = kolo_metrics_none(), .lr = 0.1};
    set(&report.train, "loss", 0.5);
    set(&report.train, "accuracy", 0.25);
    report.times = (kolo_time_report){.steps = 5,
                                      .mean = {.ms = {[KOLO_TIME_STEP] = 4}},
                                      .slowest = 1,
                                      .ranks = 2,
                                      .by_rank = by_rank};
    return report;
}

/* The end of an epoch, with an evaluation. */
static kolo_train_progress epoch_report(const kolo_time_report *times) {
    kolo_train_progress report = {.epoch = 1,
                                  .step = 9,
                                  .epoch_end = true,
                                  .evaluated = true,
                                  .train = kolo_metrics_none(),
                                  .test = kolo_metrics_none(),
                                  .times = *times};
    set(&report.train, "loss", 3);
    set(&report.train, "perplexity", 12.25);
    set(&report.train, "masked_loss", 2.5);
    set(&report.train, "next_loss", 0.5);
    set(&report.train, "next_accuracy", 0.625);
    set(&report.test, "loss", 4);
    set(&report.test, "accuracy", 0.75);
    set(&report.test, "perplexity", 25.5);
    set(&report.test, "masked_loss", 3.25);
    set(&report.test, "next_loss", 0.75);
    set(&report.test, "next_accuracy", 0.875);
    return report;
}

static void check_training_line(const json_t *line) {
    assert_string_equal(json_string_value(json_object_get(line, "event")), "train");
    assert_int_equal(json_integer_value(json_object_get(line, "step")), 5);
    assert_true(json_real_value(json_object_get(line, "loss")) == 0.5);
    assert_null(json_object_get(line, "test_accuracy"));
    assert_null(json_object_get(line, "next_loss"));
    assert_null(json_object_get(line, "perplexity"));
    assert_true(json_number_value(json_object_get(json_object_get(line, "ms_per_step"), "step")) ==
                4);
    assert_int_equal(json_integer_value(json_object_get(line, "slowest_rank")), 1);
    const json_t *idle = json_object_get(line, "idle_ms_by_rank");
    assert_true(json_number_value(json_array_get(idle, 0)) == 1.5);
}

static void check_epoch_line(const json_t *line) {
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
                 {"test_accuracy", 0.75},
                 {"epoch_next_accuracy", 0.625},
                 {"test_next_accuracy", 0.875}};
    assert_string_equal(json_string_value(json_object_get(line, "event")), "epoch");
    for (size_t i = 0; i < KOLO_COUNT(pairs); i++) {
        assert_true(json_number_value(json_object_get(line, pairs[i].key)) == pairs[i].number);
    }
    const json_t *rows = json_object_get(line, "ms_per_step_by_rank");
    assert_int_equal(json_array_size(rows), 2);
    assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "idle")) == 1.5);
}

static void reports_are_lines_of_json(void **state) {
    const kolo_step_time by_rank[] = {{.ms = {[KOLO_TIME_STEP] = 4, [KOLO_TIME_IDLE] = 1.5}},
                                      {.ms = {[KOLO_TIME_STEP] = 4}}};
    const kolo_train_progress train = training_report(by_rank), epoch = epoch_report(&train.times);
    kolo_run_files *files;
    ASSERT_OK(kolo_run_files_open("test_run_files/a/b", NULL, 0, false, &files));
    ASSERT_OK(kolo_run_files_begin(files, "model: lenet\n", 0));
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
    check_training_line(first);
    check_epoch_line(last);
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
        assert_int_equal(kolo_run_files_open(folders[i], NULL, 0, false, &files), KOLO_ERR_IO);
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
