#pragma once
/* Detects NaN and infinity in parameters. */

#include "base/text.h"
#include "data/safetensors/safetensors.h"
#include "plan/plan.h"

/* FORMAT: a tensor of the file `path` holds NaN or infinity. */
kolo_status kolo_check_finite(const char *path, const kolo_safetensors_entry *entry);

/* Describes in `what` the first parameter, statistic or optimizer state of a store that is not
 * finite: "3 of the 10 numbers of fc1.bias are NaN or infinite"; adds nothing if all are. Of
 * shards, the ranges of this rank. NOMEM. */
kolo_status kolo_store_find_not_finite(const kolo_store *store, kolo_text *what);
