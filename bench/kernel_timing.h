#pragma once
/* Buffers and times of single kernels. */

#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MARGIN = 64 }; /* behind a buffer */

/* Processor time, so that it can be taken on a machine that does other work, too. */
static inline double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Floats in [-1, 1); kolo_pages_unmap(p, bytes + MARGIN) frees them. Exits without memory. */
static inline void *buffer(size_t bytes) {
    float *p = kolo_pages_map(bytes + MARGIN);
    if (!p) exit(1);
    for (size_t i = 0; i < bytes / 4; i++) p[i] = (float)(i * 2654435761u % 1024) / 512 - 1;
    return p;
}
