#pragma once
/* mask_tokens (BERT): selects and hides tokens of each window. */

#include "kernel/kernel.h"

/* Runs the call: `draw` is the key of this step's random numbers, `first` the index in the global
 * batch of the first window of this batch. */
void kolo_kernel_mask_tokens(const kolo_call *call, double draw, double first);
