#pragma once
/* The result of a run, as a table and as JSON. */

#include "base/json.h"
#include "base/option.h"
#include "base/text.h"
#include "kolo/train.h"

/* The run that the result belongs to. */
typedef struct result_about {
    const char *data;
    const char *out;      /* folder of the run's files, or NULL */
    int64_t accumulate;   /* micro-batches per step; 0: no steps */
    int64_t global_batch; /* 0: a batch per worker is given */
    int64_t shards;       /* logical shards of the global batch; 0: none */
    int together;         /* workers that train on the same samples */
    const char *split;    /* that was evaluated; NULL: the test split */
    bool trained;         /* false: an evaluation */
    bool quiet;           /* no table */
} result_about;

/* Adds the row and the fields of the planned memory of a worker. */
void result_add_memory(kolo_text *t, const kolo_train_memory *m);
void result_add_json_memory(kolo_json *j, const kolo_train_memory *m);
/* Prints the table and writes the JSON as output_result does. */
kolo_status result_report(const kolo_train_result *result, const result_about *about,
                          const char *json);
