/* The table of metrics, and values from sums. */
#include "base/compiler.h"
#include "graph/ops/ops.h"
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

enum { SCORES = 400, BITS = 16, BINS = 1 << BITS };

/* The share of pairs in which the positive sample is ahead, by comparing all of them. */
static double auc_of_pairs(const float *score, const bool *positive, bool by_bin) {
    double ahead = 0, pairs = 0;
    for (int i = 0; i < SCORES; i++) {
        for (int k = 0; k < SCORES; k++) {
            if (!positive[i] || positive[k]) continue;
            const int64_t a = kolo_score_bin(score[i], BITS), b = kolo_score_bin(score[k], BITS);
            const bool more = by_bin ? a > b : score[i] > score[k];
            const bool same = by_bin ? a == b : score[i] == score[k];
            ahead += more ? 1 : same ? 0.5 : 0;
            pairs++;
        }
    }
    return ahead / pairs;
}

static void auc_is_that_of_all_pairs(void **state) {
    static double counts[2 * BINS];
    const kolo_shape shape = kolo_shape_2(2, BINS);
    const int auc = row("auc");
    float score[SCORES];
    bool positive[SCORES];
    for (int set = 0; set < 4;
         set++) { /* of logits: close, usual, far from 0, many of them equal */
        const double scale[] = {1e-4, 2, 3, 8}, offset[] = {0, -1, -40, 0};
        memset(counts, 0, sizeof counts);
        for (int i = 0; i < SCORES; i++) {
            positive[i] = i % 3 == 0;
            double x = sin(1.7 * i) + sin(0.31 * i * i) + (positive[i] ? 0.8 : 0);
            x = scale[set] * x + offset[set];
            score[i] = (float)(set == 3 ? round(x) : x);
            counts[positive[i] * BINS + kolo_score_bin(score[i], BITS)]++;
        }
        const double value = kolo_metric_table()[auc].reduce(counts, &shape);
        assert_true(fabs(value - auc_of_pairs(score, positive, true)) < 1e-14);
        assert_true(fabs(value - auc_of_pairs(score, positive, false)) < (set == 3 ? 1e-14 : 2e-3));
        assert_true(value > 0.6 && value < 0.95);
    }
    memset(counts, 0, sizeof counts);
    counts[5] = 3; /* no positive sample */
    assert_true(isnan(kolo_metric_table()[auc].reduce(counts, &shape)));
}

static void bins_have_the_order_of_scores(void **state) {
    const float scores[] = {-INFINITY, -3e38F, -2, -1.99F, -1e-30F, 0, 1e-30F, 0.5F, 3, INFINITY};
    for (size_t i = 1; i < KOLO_COUNT(scores); i++) {
        assert_true(kolo_score_bin(scores[i], BITS) > kolo_score_bin(scores[i - 1], BITS));
    }
    assert_int_equal(kolo_score_bin(-0.0F, BITS), kolo_score_bin(0, BITS));
    assert_true(kolo_score_bin(INFINITY, BITS) < BINS && kolo_score_bin(-INFINITY, BITS) >= 0);
}

TEST_MAIN(test_metrics) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(values_are_means),
        cmocka_unit_test(derived_values_follow_others),
        cmocka_unit_test(absent_values_stay_absent),
        cmocka_unit_test(iou_is_the_mean_over_classes),
        cmocka_unit_test(auc_is_that_of_all_pairs),
        cmocka_unit_test(bins_have_the_order_of_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
