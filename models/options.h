#pragma once
/* A model's own options: a text "hidden=256,width=0.5" read into whole numbers by a table. */

#include "kolo/status.h"

#include <stdint.h>

typedef struct model_option {
    const char *name;
    int64_t min, max;
    int64_t *value; /* holds the default before, the choice after */
    int64_t one;    /* what a share of 1.0 is: a number with a point is such a share. 0: none */
} model_option;

/* Reads `text` (NULL or "" for none) by the table's `n` rows, n at most 16. ARG, in words that name
 * the model: an unknown name (with a suggestion, or all that there are), one given twice, a
 * value that is no number of its kind or out of range. A share becomes the nearest whole number.
 * Values change only on success of each option in turn. */
kolo_status model_options_parse(const char *model, const char *text, const model_option *table,
                                int n);
/* The positive whole number that `text` (may be NULL) gives an option; `otherwise` where it gives
 * none, or what model_options_parse will refuse. */
int64_t model_options_number(const char *text, const char *name, int64_t otherwise);
