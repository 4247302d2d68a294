#pragma once
/* Where a run stands, but for its parameters and optimiser state: what a checkpoint says besides
 * them, so that a run that goes on from it reports what it would have reported without a break. */

#include "train/metrics.h"

typedef struct kolo_progress {
    int64_t steps;         /* done; the sampler, the schedule and all draws follow from it */
    double first_loss;     /* of the run's first step */
    kolo_tally run, epoch; /* over the steps of the run, of the epoch under way */
    kolo_sums recent[KOLO_LAST_STEPS]; /* step k at k % KOLO_LAST_STEPS */
} kolo_progress;

/* As a line of numbers, which kolo_progress_read reads to the bit. */
void kolo_progress_write(const kolo_progress *progress, kolo_text *text);
/* FORMAT: it is no such line; `where` names it. */
kolo_status kolo_progress_read(const char *where, const char *text, kolo_progress *progress);
