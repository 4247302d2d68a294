/* Tallies, the median of step times in bounded memory, the files of a run. */
#include "base/file.h"
#include "support/support.h"
#include "train/metrics.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void tallies_are_means_over_samples(void **state) {
    kolo_tally t = {0};
    assert_true(kolo_tally_loss(&t) == 0 && kolo_tally_accuracy(&t) == 0 &&
                kolo_tally_rate(&t) == 0);
    kolo_tally_add(&t, &(kolo_sums){.loss = 6, .correct = 1, .samples = 3, .labels = 3},
                   1000000000);
    kolo_tally_add(&t, &(kolo_sums){.loss = 1, .correct = 1, .samples = 1, .labels = 1},
                   1000000000);
    assert_true(kolo_tally_loss(&t) == 1.75);
    assert_true(kolo_tally_accuracy(&t) == 0.5);
    assert_true(kolo_tally_rate(&t) == 2);
    kolo_tally_add(&t, &(kolo_sums){.loss = 5, .next_loss = 4, .labels = 4, .pairs = 2}, 0);
    assert_true(kolo_tally_perplexity(&t) == exp(1)); /* (12 - 4) / 8 */
}

static void medians_are_exact_while_all_is_kept(void **state) {
    static const struct {
        int64_t ms[5];
        int n;
        double median;
    } cases[] = {{{0}, 0, 0},
                 {{7}, 1, 7},
                 {{9, 1}, 2, 5},
                 {{9, 1, 2}, 3, 2},
                 {{4, 1, 3, 2}, 4, 2.5},
                 {{5, 5, 1, 9, 100}, 5, 5}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_step_times times;
        ASSERT_OK(kolo_step_times_init(&times, cases[i].n));
        for (int k = 0; k < cases[i].n; k++) kolo_step_times_add(&times, cases[i].ms[k] * 1000000);
        assert_true(kolo_step_times_median_ms(&times) == cases[i].median);
        kolo_step_times_fini(&times);
    }
}

/* A million times 0, 1, 2, ... ms: what is kept stays spread over all of them. */
static void long_runs_keep_an_even_part(void **state) {
    const int64_t n = 1000000;
    kolo_step_times times;
    ASSERT_OK(kolo_step_times_init(&times, n));
    size_t capacity = times.capacity;
    assert_true(capacity < (size_t)n / 10);
    for (int64_t i = 0; i < n; i++) kolo_step_times_add(&times, i * 1000000);
    assert_int_equal(times.capacity, capacity);
    assert_true(times.count > capacity / 2 - 1);
    for (size_t i = 0; i < times.count; i++) {
        assert_int_equal(times.ns[i], (int64_t)i * times.stride * 1000000);
    }
    double median = kolo_step_times_median_ms(&times);
    assert_true(fabs(median - (double)n / 2) < (double)n / 1000);
    kolo_step_times_fini(&times);
}

static void reports_are_lines_of_json(void **state) {
    kolo_run_files *files;
    ASSERT_OK(kolo_run_files_open("test_metrics/a/b", 0, &files));
    ASSERT_OK(kolo_run_files_begin(files, "model: lenet\n", 0));
    kolo_train_progress train = {.epoch = 1, .step = 5, .loss = 0.5, .accuracy = 0.25, .lr = 0.1};
    kolo_train_progress epoch = {.epoch = 1,
                                 .step = 9,
                                 .epoch_end = true,
                                 .evaluated = true,
                                 .test_accuracy = 0.75,
                                 .pairs = true,
                                 .loss = 3,
                                 .next_loss = 0.5,
                                 .perplexity = 12.25,
                                 .test_perplexity = 25.5,
                                 .next_accuracy = 0.625,
                                 .test_loss = 4,
                                 .test_next_loss = 0.75,
                                 .test_next_accuracy = 0.875};
    ASSERT_OK(kolo_run_files_report(files, &train));
    ASSERT_OK(kolo_run_files_report(files, &epoch));
    /* Both lines can be read while the run goes on. */
    char *text;
    size_t bytes;
    ASSERT_OK(kolo_file_read("test_metrics/a/b/metrics.jsonl", 4096, &text, &bytes));
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
    } pairs[] = {{"loss", 3},
                 {"masked_loss", 2.5},
                 {"next_loss", 0.5},
                 {"perplexity", 12.25},
                 {"test_perplexity", 25.5},
                 {"test_loss", 4},
                 {"test_masked_loss", 3.25},
                 {"test_next_loss", 0.75},
                 {"next_accuracy", 0.625},
                 {"test_next_accuracy", 0.875}};
    for (size_t i = 0; i < KOLO_COUNT(pairs); i++) {
        assert_true(json_number_value(json_object_get(last, pairs[i].key)) == pairs[i].number);
    }
    json_decref(first);
    json_decref(last);
    kolo_free(text);
    ASSERT_OK(kolo_file_read("test_metrics/a/b/config.yaml", 4096, &text, &bytes));
    assert_string_equal(text, "model: lenet\n");
    kolo_free(text);
    kolo_run_files_close(files);
    assert_int_equal(remove("test_metrics/a/b/metrics.jsonl"), 0);
    assert_int_equal(remove("test_metrics/a/b/config.yaml"), 0);
    assert_int_equal(remove("test_metrics/a/b"), 0); /* nothing else was left there */
    remove("test_metrics/a");
    remove("test_metrics");
}

static void folders_that_cannot_be_written_are_named(void **state) {
    static const char *const folders[] = {"/proc/kolo", "/dev/null", "/dev/null/run"};
    for (size_t i = 0; i < KOLO_COUNT(folders); i++) {
        kolo_run_files *files;
        assert_int_equal(kolo_run_files_open(folders[i], 0, &files), KOLO_ERR_IO);
        assert_non_null(strstr(kolo_last_error(), folders[i]));
    }
}

TEST_MAIN(test_metrics) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tallies_are_means_over_samples),
        cmocka_unit_test(medians_are_exact_while_all_is_kept),
        cmocka_unit_test(long_runs_keep_an_even_part),
        cmocka_unit_test(reports_are_lines_of_json),
        cmocka_unit_test(folders_that_cannot_be_written_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
