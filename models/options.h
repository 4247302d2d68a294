#pragma once
/* Model-specific options: parses a text such as "hidden=256,width=0.5" by a table. */

#include "kolo/status.h"

#include <stdint.h>

typedef struct model_option {
    const char *name;
    int64_t min, max;
    int64_t *value; /* the default before parsing, the choice after */
    int64_t one;    /* the value of the fraction 1.0, for options that may be fractions; 0: none */
} model_option;

/* Parses `text` (may be NULL) by the table of `n` rows, n at most 16. ARG, naming the model: an
 * unknown option (with a suggestion or the list), a duplicate, or an invalid or out-of-range value.
 * Fractions are rounded to the nearest integer. On failure, options before the invalid one are set.
 */
kolo_status model_options_parse(const char *model, const char *text, const model_option *table,
                                int n);
/* The positive integer of one option in `text` (may be NULL); `otherwise` if it is missing or
 * invalid. */
int64_t model_options_number(const char *text, const char *name, int64_t otherwise);
