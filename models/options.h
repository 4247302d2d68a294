#pragma once
/* A model's own options: a text "hidden=256,layers=3" read into whole numbers by a table. */

#include "kolo/status.h"

#include <stdint.h>

typedef struct model_option {
    const char *name;
    int64_t min, max;
    int64_t *value; /* holds the default before, the choice after */
} model_option;

/* Reads `text` (NULL or "" for none) by the table's `n` rows, n at most 16. ARG, in words that name
 * the model: an unknown name (with a suggestion, or all that there are), one given twice, a
 * value that is no whole number or out of range. Values change only on success of each option in
 * turn. */
kolo_status model_options_parse(const char *model, const char *text, const model_option *table,
                                int n);
