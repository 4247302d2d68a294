#pragma once
/* What a machine can do, by measurement: the multiply-adds and the memory traffic of `threads`
 * threads together. Kernels and steps are compared with it. */

#include "kolo/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct kolo_machine {
    const char *isa;      /* "avx2" */
    double flops_per_s;   /* f32, a multiply-add is two */
    double bytes_per_s;   /* read and written, over `bytes` of memory */
    size_t bytes;         /* that were swept */
    double seconds_spent; /* on measuring */
} kolo_machine;

/* Runs `loop` over [0, items) cut into `threads` parts: that of the kernels. */
typedef void (*kolo_machine_loop)(const void *job, int part, int64_t begin, int64_t end);
typedef void (*kolo_machine_team)(int threads, int64_t items, kolo_machine_loop loop,
                                  const void *job);

/* Measures for about a fifth of a second. Memory traffic is that of a triad over `bytes` of memory
 * (at least 64 KiB, at most 512 MiB), so what fits in a cache is measured in that cache. Blocks.
 * NOMEM. */
kolo_status kolo_machine_measure(int threads, kolo_machine_team team, size_t bytes,
                                 kolo_machine *machine);
