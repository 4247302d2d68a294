#pragma once
/* Sums that the metrics are computed from. */

#include "graph/graph.h"
#include "kolo/metric.h"

/* Sums over a batch, or over several: of the graph outputs, by index in the table. NaN: the model
 * lacks the output, or it is a tensor. */
typedef struct kolo_sums {
    double metric[KOLO_MAX_METRICS];
    int64_t samples, labels; /* a sample may have several labels */
    double weight;           /* of these labels, by which the loss is divided; 0: each has 1 */
} kolo_sums;

/* The sums of no samples, as plans of `graph` report them. */
kolo_sums kolo_sums_zero(const kolo_graph *graph);
/* Adds `more`. A zeroed `to` is allowed. */
void kolo_sums_add(kolo_sums *to, const kolo_sums *more);
/* The index of a row by its name; -1: there is none. */
int kolo_metric_row(const char *name);
/* Whether value `one` of a row is better than `other`; NaN is not. */
bool kolo_metric_is_better(int row, double one, double other);
/* NaN for each metric. */
kolo_metrics kolo_metrics_none(void);
/* The values of all metrics but those of tensors. `tokens`: the data are tokens. */
kolo_metrics kolo_sums_metrics(const kolo_sums *sums, bool tokens);
/* What the loss is divided by; 0 without labels. */
static inline double kolo_sums_weight(const kolo_sums *sums) {
    return sums->weight != 0 ? sums->weight : (double)sums->labels;
}
/* The mean loss; 0 without labels. */
double kolo_sums_loss(const kolo_sums *sums);

/* Sums over consecutive steps, with their time. Zero-initialize. */
typedef struct kolo_accumulator {
    kolo_sums sums;
    int64_t ns; /* spent in steps */
} kolo_accumulator;

void kolo_accumulator_add(kolo_accumulator *accumulator, const kolo_sums *step, int64_t ns);
/* Samples per second of step time. */
double kolo_accumulator_rate(const kolo_accumulator *accumulator);
