#pragma once
/* Metrics of training and evaluation.
 *
 * Each metric is one row of a table. The row names the graph output that is summed over samples,
 * micro-batches and ranks, the denominator of the sum, and the format of the value. Progress
 * reports, metrics.jsonl, results and evaluation loop over the rows, so a new metric takes a graph
 * output and a row (src/train/session/metrics.c). */

#include "kolo/status.h"
#include "kolo/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KOLO_MAX_METRICS = 16,
    KOLO_METRIC_LOSS = 0, /* index of "loss", the first row */
};

/* One value for each row, by index. NaN: not available for this model and data, or not measured. */
typedef struct kolo_metrics {
    double value[KOLO_MAX_METRICS];
} kolo_metrics;

typedef enum kolo_metric_denominator { KOLO_PER_LABEL, KOLO_PER_SAMPLE } kolo_metric_denominator;

typedef enum kolo_metric_format {
    KOLO_METRIC_DECIMALS, /* four decimals: 0.1234 */
    KOLO_METRIC_DIGITS,   /* four significant digits: 1234 */
} kolo_metric_format;

/* Which of two values is better. */
typedef enum kolo_metric_better { KOLO_BETTER_LESS = 1, KOLO_BETTER_MORE } kolo_metric_better;

typedef struct kolo_metric {
    const char *name; /* JSON key; "test_" and "final_" are put before it */
    /* Graph output with the sum over a batch: a scalar, in training and evaluation; with `reduce` a
     * tensor, in evaluation alone. NULL: see `derive`. */
    const char *output;
    kolo_metric_denominator per;
    /* The value from the tensor summed over the data set, a matrix of `rows` rows; 0: it is square.
     */
    double (*reduce)(const double *sum, const kolo_shape *shape);
    int64_t rows;
    /* The value from those of other rows. */
    double (*derive)(const kolo_metrics *metrics);
    kolo_metric_better better; /* for --keep-best and --patience */
    bool tokens_only;          /* measured on token data alone */
    bool every_model;          /* has this output; JSON has null where there was no evaluation */
    bool final;                /* part of the training figures of a result */
    bool part_of_loss;         /* a summand of "loss" */
    const char *group;         /* terminal: heading that adjacent rows share; NULL: none */
    const char *label;         /* terminal; NULL: not shown on its own */
    const char *bar;           /* label on the progress bar; NULL: not there */
    kolo_metric_format format;
} kolo_metric;

/* The table, ended by a row without a name. */
KOLO_API const kolo_metric *kolo_metric_table(void);
/* The value of the metric `name`; NaN if there is none. */
KOLO_API double kolo_metrics_get(const kolo_metrics *metrics, const char *name);
/* Recomputes the derived metrics that are not NaN, after the other values were averaged. */
KOLO_API void kolo_metrics_derive(kolo_metrics *metrics);

#ifdef __cplusplus
}
#endif
