#pragma once
/* Click logs: numbers "x" f32 [D], rows of tables "ids" i32 [T], and whether it was a click, "y"
 * f32 []. The model sets D, T and the rows R of a table; id t is t R to t R + R - 1. */

#include "data/dataset.h"

/* Sets the fields as the model requires. ARG: it is no model of click logs. */
kolo_status kolo_clicks_describe(const kolo_reader *reader, kolo_dataset *dataset);

/* ---- Criteo's format: label TAB 13 integers TAB 26 categories of up to 8 hexadecimal digits ----
 */

enum { KOLO_CRITEO_NUMBERS = 13, KOLO_CRITEO_CATEGORIES = 26 };

typedef struct kolo_criteo_opts {
    double test;   /* part of the lines that are the test split; 0: the log is one split */
    uint64_t seed; /* which lines these are */
    kolo_split split;
} kolo_criteo_opts;

typedef struct kolo_criteo {
    const char *text, *where; /* borrowed */
    size_t length;
    int64_t count; /* of the split */
    size_t *at;    /* where its lines begin */
} kolo_criteo;

/* Checks every line of a log in memory and finds those of the split. `where` names it in errors.
 * FORMAT, naming line and column: a line has not 40 columns, or a column is malformed; no line for
 * a split; NOMEM. */
kolo_status kolo_criteo_open(const char *text, size_t length, const char *where,
                             const kolo_criteo_opts *opts, kolo_criteo *log);
/* Zeroed is allowed. */
void kolo_criteo_fini(kolo_criteo *log);
/* Reads line i of the split: x[13] are log(1 + n), of negative and missing n 0; ids[26] are 0 for a
 * missing category and else 1 + its value mod rows - 1, in the rows of its table. FORMAT: the file
 * was changed. */
kolo_status kolo_criteo_read(const kolo_criteo *log, int64_t i, int64_t rows, float *x, float *y,
                             int32_t *ids);
