#pragma once
/* What a run came to: a table for people, JSON for programs. */

#include "base/option.h"
#include "kolo/train.h"

/* What the result is about. */
typedef struct result_about {
    const char *model; /* NULL: not said, as in an evaluation */
    const char *data;
    const char *out; /* folder of the run's files, or NULL */
    int64_t batch;
    int64_t accumulate; /* micro-batches of `batch` samples in a step; 0: no step was taken */
    bool trained;       /* else it is an evaluation */
} result_about;

/* Hands table and JSON to cli_report. */
kolo_status result_report(const kolo_train_result *result, const result_about *about,
                          const char *json);
