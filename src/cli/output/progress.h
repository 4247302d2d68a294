#pragma once
/* How a run looks while it runs: a bar on a terminal, plain lines elsewhere, on standard error. */

#include "kolo/train.h"

typedef enum progress_style {
    PROGRESS_AUTO, /* a bar when standard error is a terminal, else plain lines */
    PROGRESS_BAR,
    PROGRESS_PLAIN,
    PROGRESS_NONE,
} progress_style;

typedef struct progress {
    progress_style style;
    bool bar_drawn;
    double last_line_seconds; /* of the run, when the last plain line was printed */
    int64_t samples;          /* seen since then, */
    kolo_metrics sums;        /* of the metrics times the samples, */
    double step_seconds;      /* and the time that they took */
} progress;

progress progress_make(progress_style style);
/* A kolo_train_observer; `arg` is a progress. */
void progress_show(void *arg, const kolo_train_progress *p);
/* Takes the bar away. */
void progress_end(progress *state);
