#pragma once
/* mask_tokens (BERT): selects and hides tokens of each window. */

#include "kernel/kernel.h"

/* Runs the call: input 0 is the random-number key of the step, input 1 the index of the first
 * window in the global batch. */
void kolo_kernel_mask_tokens(const kolo_call *call);
