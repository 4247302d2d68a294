/* The table of metrics, and values from sums. */
#include "base/compiler.h"
#include "support/support.h"
#include "train/session/metrics.h"

#include <math.h>
#include <string.h>

static kolo_value output_of(kolo_graph *g, const char *name) {
    kolo_value v = kolo_scalar(g, name);
    kolo_output(g, name, v);
    return v;
}

/* Sums of a model that has the outputs "loss", "correct" and, with `next`, those of pairs. */
static kolo_sums sums_of(bool next) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    output_of(g, "loss");
    output_of(g, "correct");
    if (next) output_of(g, "next_loss");
    if (next) output_of(g, "next_correct");
    kolo_sums sums = kolo_sums_zero(g);
    kolo_graph_destroy(g);
    return sums;
}

static int row(const char *name) {
    const kolo_metric *m = kolo_metric_table();
    int i = 0;
    while (strcmp(m[i].name, name) != 0) i++;
    return i;
}

static void rows_are_whole(void **state) {
    const kolo_metric *m = kolo_metric_table();
    assert_string_equal(m[KOLO_METRIC_LOSS].name, "loss");
    for (int i = 0; m[i].name; i++) {
        assert_true(i < KOLO_MAX_METRICS);
        assert_int_equal(row(m[i].name), i); /* names are unique */
        assert_true((m[i].output != NULL) != (m[i].derive != NULL));
        assert_true(!m[i].reduce || m[i].output);
        assert_true(m[i].better == KOLO_BETTER_LESS || m[i].better == KOLO_BETTER_MORE);
        assert_true(m[i].label || (m[i].part_of_loss && m[i].group));
    }
}

static void values_are_means(void **state) {
    kolo_accumulator a = {0};
    kolo_sums three = sums_of(false), one = sums_of(false);
    three.metric[row("loss")] = 6;
    three.metric[row("accuracy")] = 1;
    three.samples = three.labels = 3;
    one.metric[row("loss")] = one.metric[row("accuracy")] = 1;
    one.samples = one.labels = 1;
    assert_true(kolo_sums_loss(&a.sums) == 0 && kolo_accumulator_rate(&a) == 0);
    kolo_accumulator_add(&a, &three, 1000000000);
    kolo_accumulator_add(&a, &one, 1000000000);
    kolo_metrics m = kolo_sums_metrics(&a.sums, false);
    assert_true(kolo_sums_loss(&a.sums) == 1.75 && kolo_metrics_get(&m, "loss") == 1.75);
    assert_true(kolo_metrics_get(&m, "accuracy") == 0.5 && kolo_accumulator_rate(&a) == 2);
    static const char *const absent[] = {"perplexity", "mean_iou",      "masked_loss",
                                         "next_loss",  "next_accuracy", "none"};
    for (size_t i = 0; i < KOLO_COUNT(absent); i++) {
        assert_true(isnan(kolo_metrics_get(&m, absent[i])));
    }
}

static void derived_values_follow_others(void **state) {
    kolo_sums sums = sums_of(true);
    sums.metric[row("loss")] = 12;
    sums.metric[row("next_loss")] = 4;
    sums.metric[row("next_accuracy")] = 2;
    sums.labels = 8;
    kolo_metrics m = kolo_sums_metrics(&sums, true);
    assert_true(kolo_metrics_get(&m, "perplexity") == exp(1)); /* (12 - 4) / 8 */
    assert_true(kolo_metrics_get(&m, "masked_loss") == 1);
    assert_true(kolo_metrics_get(&m, "next_accuracy") == 0.25);
    m.value[row("loss")] = 0.5;
    kolo_metrics_derive(&m);
    assert_true(kolo_metrics_get(&m, "perplexity") == 1);
    assert_true(kolo_metrics_get(&m, "masked_loss") == 0);
    m = kolo_sums_metrics(&sums, false);
    assert_true(isnan(kolo_metrics_get(&m, "perplexity"))); /* not tokens */
}

/* Everything absent is NaN and stays so when metrics are added. */
static void absent_values_stay_absent(void **state) {
    kolo_sums total = {0}, sums = sums_of(false);
    kolo_sums_add(&total, &sums);
    assert_true(total.metric[row("loss")] == 0 && isnan(total.metric[row("next_loss")]));
    kolo_metrics m = kolo_metrics_none();
    kolo_metrics_derive(&m);
    for (int i = 0; i < KOLO_MAX_METRICS; i++) assert_true(isnan(m.value[i]));
}

static void iou_is_the_mean_over_classes(void **state) {
    const kolo_shape shape = kolo_shape_2(3, 3);
    const double confusion[] = {2, 1, 0, 1, 4, 0, 0, 0, 0}; /* class 2 does not occur */
    double mean = kolo_metric_table()[row("mean_iou")].reduce(confusion, &shape);
    assert_true(fabs(mean - (2.0 / 4 + 4.0 / 6) / 2) < 1e-12);
}

TEST_MAIN(test_metrics) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(values_are_means),
        cmocka_unit_test(derived_values_follow_others),
        cmocka_unit_test(absent_values_stay_absent),
        cmocka_unit_test(iou_is_the_mean_over_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
