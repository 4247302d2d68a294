#pragma once
/* Progress of a run on standard error: a bar or plain lines. */

#include "kolo/train.h"

/* The list of progress styles: code, name, description. */
#define PROGRESS_STYLE_LIST(X)                                                    \
    X(PROGRESS_AUTO, "auto", "a bar if standard error is a terminal, else lines") \
    X(PROGRESS_BAR, "bar", "a bar that is redrawn in place")                      \
    X(PROGRESS_PLAIN, "plain", "a line every 10 seconds and for each epoch")      \
    X(PROGRESS_NONE, "none", "no progress")

typedef enum progress_style {
#define PROGRESS_STYLE_ENUM(code, name, help) code,
    PROGRESS_STYLE_LIST(PROGRESS_STYLE_ENUM)
#undef PROGRESS_STYLE_ENUM
} progress_style;

typedef struct progress_bar {
    progress_style style;
    bool bar_drawn;
    double last_line_seconds; /* of the run, when the last plain line was printed */
    int64_t samples;          /* seen since then, */
    kolo_metrics sums;        /* of the metrics times the samples, */
    double step_seconds;      /* and the time that they took */
} progress_bar;

progress_bar progress_bar_make(progress_style style);
/* A kolo_train_observer; `arg` is a progress_bar. */
void progress_bar_show(void *arg, const kolo_train_progress *p);
/* Clears the bar. */
void progress_bar_end(progress_bar *state);
