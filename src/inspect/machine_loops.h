#pragma once
/* The loops that measure the machine, one copy per instruction set (machine_loops.isa.c). */

#include "base/isa.h"

#include <stdint.h>

typedef struct kolo_perf_table {
    int flops; /* per round of `fma` */
    /* Rounds [begin, end) of independent multiply-adds in registers. `job` is a float * with one
     * element per part, which keeps the result alive. */
    void (*fma)(const void *job, int part, int64_t begin, int64_t end);
    /* a = b + factor * c over elements [begin, end) of a kolo_perf_triad. */
    void (*triad)(const void *job, int part, int64_t begin, int64_t end);
} kolo_perf_table;

typedef struct kolo_perf_triad {
    float *a;
    const float *b, *c;
    float factor;
} kolo_perf_triad;

KOLO_ISA_TABLE(kolo_perf_table, kolo_perf);
