#pragma once
/* Tables of numbers as text: one row for each sample, one of whose columns is the target. */

#include "kolo/data.h"

#include <stdint.h>

typedef struct kolo_csv_opts {
    const char *target; /* name or number, from 1, of the target's column; NULL or "": the last */
    bool values;        /* targets are numbers, not classes */
    int64_t classes;    /* 0: the largest target, plus 1 */
    double test;        /* part of the rows that are the test split; 0: the table is one split */
    uint64_t seed;      /* which rows these are */
    kolo_split split;
} kolo_csv_opts;

typedef struct kolo_csv {
    int64_t count, features;
    int classes; /* 1 if targets are numbers */
    float *x;    /* [count, features] */
    void *y;     /* [count], i32; if targets are numbers f32 */
} kolo_csv;

/* Parses a table in memory. `where` names it in errors. FORMAT, naming line and column: a cell is
 * no finite number, or a class that is none; rows of different lengths; too few rows; ARG: no
 * column of the target's name; NOMEM. */
kolo_status kolo_csv_parse(const char *text, size_t length, const char *where,
                           const kolo_csv_opts *opts, kolo_csv *csv);
/* Zeroed is allowed. */
void kolo_csv_fini(kolo_csv *csv);
