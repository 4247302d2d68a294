#pragma once
/* State of a run besides parameters and optimizer state. A checkpoint stores it, so that a resumed
 * run reports what an uninterrupted one would have reported. */

#include "data/dataset.h"
#include "kolo/train.h"
#include "train/session/metrics.h"

typedef struct kolo_run_state {
    int64_t steps;                      /* completed; sampler, learning rate and draws follow it */
    int64_t updates;                    /* of the owners: see kolo_session_updates */
    double first_loss;                  /* of the run's first step */
    kolo_accumulator run, epoch;        /* over the run, and over the current epoch */
    kolo_sums recent[KOLO_LAST_STEPS];  /* step k is at k % KOLO_LAST_STEPS */
    int64_t best_step, best_row, stale; /* of the best evaluation, 0: none; of its metric in the
                                           table; evaluations since then */
    double best;                        /* its value */
    int64_t damaged;         /* samples of all ranks that took the place of damaged ones */
    int64_t ledger;          /* number of the run in its ledger; 0: it has none */
    kolo_stream_place place; /* where the next step of a stream begins, as far as it is known */
} kolo_run_state;

/* Appends the state as one line of numbers. Reading it back is exact. */
void kolo_run_state_write(const kolo_run_state *state, kolo_text *text);
/* Reads such a line. `zero` names the sums that the model reports (kolo_sums_zero). FORMAT: the
 * line is damaged; `where` names its file. */
kolo_status kolo_run_state_read(const char *where, const char *text, const kolo_sums *zero,
                                kolo_run_state *state);
