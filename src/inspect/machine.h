#pragma once
/* Measured peak rates of the machine: multiply-adds and memory traffic of `threads` threads
 * together. The roofline that profiles compare kernels and steps with. */

#include "kolo/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct kolo_machine {
    const char *isa;      /* "avx2" */
    double flops_per_s;   /* f32; a multiply-add counts as two */
    double bytes_per_s;   /* read and written, over `bytes` of memory */
    size_t bytes;         /* size of the swept memory */
    double seconds_spent; /* by the measurement */
} kolo_machine;

/* Runs `loop` over [0, items) in `threads` parts, as kolo_kernel_parallel does. */
typedef void (*kolo_machine_loop)(const void *job, int part, int64_t begin, int64_t end);
typedef void (*kolo_machine_team)(int threads, int64_t items, kolo_machine_loop loop,
                                  const void *job);

/* Measures for about 0.2 s. Memory traffic is that of a STREAM triad over `bytes` of memory
 * (clamped to 64 KiB .. 512 MiB), so a size that fits in a cache measures that cache. Blocks.
 * NOMEM. */
kolo_status kolo_machine_measure(int threads, kolo_machine_team team, size_t bytes,
                                 kolo_machine *machine);
