#pragma once
/* Parallel loops of kernels. */

#include <stdint.h>

/* Runs iterations [begin, end) of a parallel loop, as part number `part`. */
typedef void (*kolo_kernel_loop)(const void *job, int part, int64_t begin, int64_t end);

/* Splits the iterations [0, n) into `threads` contiguous parts of nearly equal size, one per OpenMP
 * thread, and runs `loop` on each. Parts may be empty. */
void kolo_kernel_parallel(int threads, int64_t n, kolo_kernel_loop loop, const void *job);
