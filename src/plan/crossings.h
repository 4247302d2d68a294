#pragma once
/* What a stage of a pipeline exchanges with its neighbours: a persistent request for each value and
 * slot. */

#include "plan/internal.h"

/* Finds the values that cross, in the graph, and makes their requests. */
kolo_status kolo_crossings_create(kolo_plan *plan);
void kolo_crossings_destroy(kolo_plan *plan);
/* Starts the messages of a slot that are sent, or received: activations, or gradients. */
kolo_status kolo_crossings_start(kolo_plan *plan, int slot, bool sends, bool gradient);
/* Waits for those of them that are in flight. */
kolo_status kolo_crossings_wait(kolo_plan *plan, int slot, bool sends, bool gradient);
/* Between two chunks of the stage: copies what a chunk reads of the other one's activations, before
 * its forward pass; or the gradients that it sends there, behind its backward pass. `slots`: by
 * chunk, those that the micro-batches take in turn. */
kolo_status kolo_crossings_copy(kolo_plan *plan, int chunk, int micro_batch, const int *slots,
                                bool gradient);
/* Adds up the gradients of the parameters that several stages have, on all of these. */
kolo_status kolo_crossings_tie(kolo_plan *plan);
