#pragma once
/* Step times in bounded memory, for their quantiles. When the memory is full, every second time is
 * dropped; from then on only every second (fourth, eighth, ...) step is recorded. */

#include "kolo/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct kolo_step_times {
    int64_t *ns;
    size_t count, capacity;
    int64_t seen, stride;
} kolo_step_times;

/* Allocates room for `steps` times, or for a bounded number of them. Free with fini. NOMEM. */
kolo_status kolo_step_times_init(kolo_step_times *times, int64_t steps);
void kolo_step_times_add(kolo_step_times *times, int64_t ns);
/* The n >= 2 quantiles 0, 1 / (n - 1), ..., 1 in milliseconds, interpolated linearly between the
 * nearest times; 0 without times. Reorders them. */
void kolo_step_times_quantiles_ms(kolo_step_times *times, size_t n, double *quantiles);
/* Forgets all times. */
void kolo_step_times_clear(kolo_step_times *times);
void kolo_step_times_fini(kolo_step_times *times);
