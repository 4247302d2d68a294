#pragma once
/* Labelled texts in fastText's format: a line is a sample, "__label__NAME" and then its words,
 * separated by blanks. A feature is an n-gram of words, hashed to a row of a table. */

#include "data/dataset.h"

typedef struct kolo_labelled_opts {
    int64_t ngrams; /* words of the longest n-gram, at least 1 */
    double test;    /* part of the lines that is the test split; 0: the file is one split */
    uint64_t seed;  /* which lines these are */
    kolo_split split;
} kolo_labelled_opts;

typedef struct kolo_word {
    const char *at, *end;
} kolo_word;

/* The names of the labels of a text, in the order of their bytes: the classes 0, 1, ... */
typedef struct kolo_label_names {
    kolo_word *name; /* in the text, which is borrowed */
    int count;
} kolo_label_names;

/* A file in memory. */
typedef struct kolo_labelled {
    const char *text, *where; /* borrowed */
    size_t length;
    const kolo_label_names *names; /* borrowed */
    int64_t ngrams;
    int64_t count; /* of the split */
    size_t *at;    /* where its lines begin */
} kolo_labelled;

/* Finds the labels of a file in memory, which `where` names in errors. FORMAT, naming the line: it
 * has no label, more than one, or a label without a name; no lines; NOMEM. */
kolo_status kolo_label_names_find(const char *text, size_t length, const char *where,
                                  kolo_label_names *names);
/* Zeroed is allowed. */
void kolo_label_names_fini(kolo_label_names *names);

/* Finds the lines of the split. FORMAT: as above; a label that `names` has not; no line for a
 * split; NOMEM. */
kolo_status kolo_labelled_open(const char *text, size_t length, const char *where,
                               const kolo_label_names *names, const kolo_labelled_opts *opts,
                               kolo_labelled *file);
/* Zeroed is allowed. */
void kolo_labelled_fini(kolo_labelled *file);

/* Reads line i of the split: its class, and the rows below `rows` of its first features, in the
 * order of their first words and then of their lengths; the rest of ids[0 .. features) is -1.
 * Returns the number of features. A line that lost its label since it was found has class -1. */
int64_t kolo_labelled_read(const kolo_labelled *file, int64_t i, int64_t rows, int64_t features,
                           int32_t *ids, int32_t *y);

/* Sets the fields of labelled texts as the model requires. ARG: it is no model of them. */
kolo_status kolo_labelled_describe(const kolo_reader *reader, kolo_dataset *dataset);
