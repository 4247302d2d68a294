#pragma once
/* What a training job needs before its first step and a rank can find out alone: options filled and
 * checked, data open, sizes worked out, the model known to take the samples. */

#include "data/augment.h"
#include "kernel/select/tune.h"
#include "kolo/train.h"
#include "train/session/session.h"

typedef struct kolo_setup {
    kolo_train_opts opts;       /* resolved; texts are the caller's */
    kolo_dataset *train, *test; /* test: NULL without evaluation */
    kolo_augment augment;
    kolo_tuner *tuner; /* see train/tuning.h; NULL: estimates */
    kolo_session_opts session;
    int64_t global_batch;
    kolo_sums zero;      /* of the outputs that the model reports */
    bool normalizes;     /* the model normalises by the statistics of a micro-batch */
    int64_t epoch_steps; /* in_memory: all steps are one epoch */
    int64_t total_steps;
} kolo_setup;

/* Errors: those of kolo_train_check but the folder's. Close it on success. */
kolo_status kolo_setup_open(const kolo_train_opts *opts, int workers, kolo_setup *setup);
/* Appends what jobs must have in common to compute the same but for rounding, a line each:
 * "lr: 0.1". The numbers of workers and micro-batches are none of it, their product with the batch
 * is: of that line what stands behind "=" may differ. */
#define KOLO_STEP_SAMPLES "batch x accumulate x workers: "
void kolo_setup_describe_learning(const kolo_setup *setup, kolo_text *text);
/* Appends what all ranks of a job must have in common: that and more. */
void kolo_setup_describe(const kolo_setup *setup, kolo_text *text);
/* A zeroed setup is allowed. */
void kolo_setup_close(kolo_setup *setup);
