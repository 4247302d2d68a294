#pragma once
/* What a stage of a pipeline exchanges with its neighbours: a persistent request for each value and
 * slot. */

#include "plan/internal.h"

/* Finds the values that cross, in the graph, and makes their requests. `forward`: ranks of the
 * stages before and behind; -1: none. */
kolo_status kolo_crossings_create(kolo_plan *plan, int before, int behind);
void kolo_crossings_destroy(kolo_plan *plan);
/* Starts the messages of a slot that are sent, or received: activations, or gradients. */
kolo_status kolo_crossings_start(kolo_plan *plan, int slot, bool sends, bool gradient);
/* Waits for those of them that are in flight. */
kolo_status kolo_crossings_wait(kolo_plan *plan, int slot, bool sends, bool gradient);
/* Adds up the gradients of the parameters that several stages have, on all of these. */
kolo_status kolo_crossings_tie(kolo_plan *plan);
