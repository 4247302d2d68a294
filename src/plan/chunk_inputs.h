#pragma once
/* Which inputs the chunks of a stage read: a pass has to be given these. */

#include "plan/plan.h"

/* Finds which inputs the chunks of a stage read. NOMEM. */
kolo_status kolo_chunk_inputs_find(kolo_plan *plan);
/* Whether an input has to be set in the current slot: its chunk reads it or, in evaluation, it is
 * the first, from which the others take what they read. Without a pipeline true. */
bool kolo_chunk_reads(const kolo_plan *plan, kolo_value input);
