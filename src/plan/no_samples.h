#pragma once
/* Micro-batches without samples: gradients and sums of this rank are zero. */

#include "plan/internal.h"

/* Zeros instead of what a POST sums, but for what this rank has accumulated. */
void kolo_plan_clear_posted(const kolo_plan *plan, const kolo_step *step);
/* A zero gradient instead of what a node reads that takes one for LOCAL state or a code, but for
 * what has been accumulated. */
void kolo_plan_clear_gradient(const kolo_plan *plan, const kolo_step *step);
/* Adds a micro-batch without samples to the sums over micro-batches. */
void kolo_plan_add_zeros(const kolo_plan *plan);
