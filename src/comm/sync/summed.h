#pragma once
/* Whole numbers in a vector of floats that is summed: two floats each, whose sums over up to 4,096
 * vectors are exact. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdint.h>

enum { KOLO_SUMMED_FLOATS = 2 };

/* `number`: from 0; it, and the sum: below 2^36. */
KOLO_SHARED void kolo_summed_set(float *summed, int64_t number);
/* Of any floats, which another process may have written: at least 0, whatever they are. */
KOLO_SHARED int64_t kolo_summed_get(const float *summed);
/* FORMAT: one of n numbers is none that was set, or a sum of such. */
KOLO_SHARED kolo_status kolo_summed_check(const float *summed, int n);
