#pragma once
/* The collectives of a training step, for `kolo dump --what schedule`. */

#include "base/text.h"
#include "plan/plan.h"

/* Appends a table of the plan's requests, then their schedules on all ranks; without requests the
 * reason `none`. */
kolo_status kolo_dump_requests(const kolo_plan *plan, const char *none, kolo_text *text);
