/* The table of metrics, and their values from sums. */
#include "train/session/metrics.h"

#include "base/compiler.h"

#include <math.h>
#include <string.h>

/* ---- derived and reduced values ---- */

/* e^loss of the tokens: a next-sentence loss is left out. */
static double perplexity(const kolo_metrics *m) {
    double next = kolo_metrics_get(m, "next_loss");
    return exp(m->value[KOLO_METRIC_LOSS] - (isnan(next) ? 0 : next));
}

static double masked_loss(const kolo_metrics *m) {
    return m->value[KOLO_METRIC_LOSS] - kolo_metrics_get(m, "next_loss");
}

/* Intersection over union from a confusion matrix [C,C], averaged over the classes that occur in
 * labels or predictions; Everingham et al., 2010. */
static double mean_iou(const double *confusion, const kolo_shape *shape) {
    double sum = 0;
    int64_t n = 0, classes = shape->dim[0];
    for (int64_t c = 0; c < classes; c++) {
        double both = confusion[c * classes + c], either = -both;
        for (int64_t k = 0; k < classes; k++) {
            either += confusion[c * classes + k] + confusion[k * classes + c];
        }
        if (either <= 0) continue;
        sum += both / either;
        n++;
    }
    return n > 0 ? sum / (double)n : 0;
}

/* The area under the ROC curve from counts [2,bins] of negative and positive samples in the order
 * of their scores: the share of the pairs of a positive and a negative sample in which the positive
 * one has the higher score, where pairs in one bin count one half (Mann, Whitney, 1947). NaN
 * without samples of both kinds. */
static double auc(const double *counts, const kolo_shape *shape) {
    const int64_t bins = shape->dim[1];
    double below = 0, positives = 0, pairs = 0;
    for (int64_t b = 0; b < bins; b++) {
        const double negative = counts[b], positive = counts[bins + b];
        pairs += positive * (below + negative / 2);
        below += negative;
        positives += positive;
    }
    return below > 0 && positives > 0 ? pairs / (below * positives) : NAN;
}

/* ---- the table ---- */

static const kolo_metric table[] = {
    {.name = "loss",
     .better = KOLO_BETTER_LESS,
     .output = "loss",
     .every_model = true,
     .final = true,
     .label = "loss",
     .bar = "loss"},
    {.name = "accuracy",
     .better = KOLO_BETTER_MORE,
     .output = "correct",
     .every_model = true,
     .label = "accuracy",
     .bar = "acc"},
    {.name = "perplexity",
     .better = KOLO_BETTER_LESS,
     .derive = perplexity,
     .tokens_only = true,
     .label = "perplexity",
     .bar = "ppl",
     .format = KOLO_METRIC_DIGITS},
    {.name = "mean_iou",
     .better = KOLO_BETTER_MORE,
     .output = "confusion",
     .reduce = mean_iou,
     .label = "mean IoU"},
    {.name = "auc",
     .better = KOLO_BETTER_MORE,
     .output = "score_counts",
     .reduce = auc,
     .rows = 2,
     .label = "AUC"},
    {.name = "masked_loss",
     .better = KOLO_BETTER_LESS,
     .derive = masked_loss,
     .final = true,
     .part_of_loss = true,
     .group = "token"},
    {.name = "next_loss",
     .better = KOLO_BETTER_LESS,
     .output = "next_loss",
     .final = true,
     .part_of_loss = true,
     .group = "next sentence",
     .label = "loss"},
    {.name = "next_accuracy",
     .better = KOLO_BETTER_MORE,
     .output = "next_correct",
     .final = true,
     .group = "next sentence",
     .label = "accuracy"},
    {.name = NULL},
};
_Static_assert(KOLO_COUNT(table) <= KOLO_MAX_METRICS + 1, "a value for each row");

const kolo_metric *kolo_metric_table(void) { return table; }

int kolo_metric_row(const char *name) {
    int i = 0;
    while (table[i].name && strcmp(table[i].name, name) != 0) i++;
    return table[i].name ? i : -1;
}

double kolo_metrics_get(const kolo_metrics *metrics, const char *name) {
    const int row = kolo_metric_row(name);
    return row >= 0 ? metrics->value[row] : NAN;
}

bool kolo_metric_is_better(int row, double one, double other) {
    return table[row].better == KOLO_BETTER_MORE ? one > other : one < other;
}

void kolo_metrics_derive(kolo_metrics *metrics) {
    for (int i = 0; table[i].name; i++) {
        if (!table[i].derive || isnan(metrics->value[i])) continue;
        metrics->value[i] = table[i].derive(metrics);
    }
}

/* ---- sums ---- */

kolo_sums kolo_sums_zero(const kolo_graph *graph) {
    kolo_sums sums = {0};
    for (int i = 0; table[i].name; i++) {
        bool scalar = table[i].output && !table[i].reduce;
        bool there = scalar && kolo_value_ok(kolo_graph_output(graph, table[i].output));
        sums.metric[i] = there ? 0 : NAN;
    }
    return sums;
}

void kolo_sums_add(kolo_sums *to, const kolo_sums *more) {
    for (int i = 0; table[i].name; i++) to->metric[i] += more->metric[i];
    to->samples += more->samples;
    to->labels += more->labels;
    to->weight += more->weight;
}

kolo_metrics kolo_metrics_none(void) {
    kolo_metrics m;
    for (int i = 0; i < KOLO_MAX_METRICS; i++) m.value[i] = NAN;
    return m;
}

kolo_metrics kolo_sums_metrics(const kolo_sums *sums, bool tokens) {
    kolo_metrics m = kolo_metrics_none();
    for (int i = 0; table[i].name; i++) {
        const bool loss = i == KOLO_METRIC_LOSS || table[i].part_of_loss;
        const double n = table[i].per == KOLO_PER_SAMPLE ? (double)sums->samples
                         : loss                          ? kolo_sums_weight(sums)
                                                         : (double)sums->labels;
        bool summed = table[i].output && !table[i].reduce && !isnan(sums->metric[i]);
        if (summed) m.value[i] = n > 0 ? sums->metric[i] / n : 0;
    }
    for (int i = 0; table[i].name; i++) {
        if (table[i].derive && (tokens || !table[i].tokens_only)) m.value[i] = table[i].derive(&m);
    }
    return m;
}

double kolo_sums_loss(const kolo_sums *sums) {
    const double weight = kolo_sums_weight(sums);
    return weight > 0 ? sums->metric[KOLO_METRIC_LOSS] / weight : 0;
}

void kolo_accumulator_add(kolo_accumulator *accumulator, const kolo_sums *step, int64_t ns) {
    kolo_sums_add(&accumulator->sums, step);
    accumulator->ns += ns;
}

double kolo_accumulator_rate(const kolo_accumulator *accumulator) {
    int64_t ns = accumulator->ns;
    return ns > 0 ? (double)accumulator->sums.samples * 1e9 / (double)ns : 0;
}
