#pragma once
/* Single options of a model. */

#include "kolo/models.h"

/* The positive integer of one option in `text` (may be NULL); `otherwise` if it is missing or
 * invalid. */
int64_t model_options_number(const char *text, const char *name, int64_t otherwise);
