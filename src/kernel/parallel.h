#pragma once
/* Parallel loops of kernels. */

#include <stdint.h>

/* Runs items [begin, end) of a job, as part number `part`. */
typedef void (*kolo_kernel_loop)(const void *job, int part, int64_t begin, int64_t end);

/* Splits [0, items) into `threads` contiguous parts of nearly equal size, one per OpenMP thread,
 * and runs `loop` on each. Parts may be empty. */
void kolo_kernel_parallel(int threads, int64_t items, kolo_kernel_loop loop, const void *job);
