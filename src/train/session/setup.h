#pragma once
/* Set-up of a training job, as far as it needs no other rank: resolved options, open data sets,
 * sizes, and a check that the model accepts the samples. */

#include "data/augment.h"
#include "kernel/select/tune.h"
#include "kolo/train.h"
#include "train/session/session.h"

typedef struct kolo_setup {
    kolo_train_opts opts;              /* resolved; strings belong to the caller */
    const kolo_dataset *train, *test;  /* test NULL: no evaluation */
    kolo_dataset *own[2];              /* those that the set-up opened */
    struct kolo_damage_notice *damage; /* receives the warnings of these; NULL: there are none */
    const char *notice;                /* of an ONNX file, on its parameters; NULL: none */
    kolo_augment augment;
    kolo_tuner *tuner; /* see tuning.h; NULL: cost formulas */
    kolo_session_config session;
    int workers;
    kolo_mesh mesh;       /* of all workers */
    char *placement;      /* rules of its axes; NULL: the built-in ones */
    size_t *bucket_sizes; /* given; NULL: none */
    int64_t global_batch;
    double *speeds;      /* of the workers of a pipeline, by rank; NULL: equal */
    int *counts;         /* of logical shards, by place on dp; NULL: none */
    bool measured;       /* they follow the measured speeds of the ranks */
    kolo_sums zero;      /* of the outputs that the model reports */
    bool normalizes;     /* the model has batch normalization */
    int64_t epoch_steps; /* in_memory: all steps form one epoch */
    int64_t total_steps;
} kolo_setup;

/* Errors of kolo_train_check, except those of the folder. Close the set-up on success. */
kolo_status kolo_setup_open(const kolo_train_opts *opts, int workers, kolo_setup *setup);
/* The part of it that needs neither a model nor data: options, sizes, mesh, shards, plans. */
kolo_status kolo_setup_open_steps(const kolo_train_opts *opts, int workers, kolo_setup *setup);
/* The schedule of a run. A step has no more samples than the training data, which scale_lr counts.
 */
kolo_lr kolo_setup_learning_rate(const kolo_setup *setup);
/* That of a run on a program's session and data sets, which are borrowed. */
kolo_status kolo_setup_open_fit(const kolo_train_opts *opts, const kolo_session *session,
                                const kolo_dataset *train, const kolo_dataset *test, int workers,
                                kolo_setup *setup);
/* Appends the options that determine the result up to rounding, one line each: "lr: 0.1". Resumed
 * jobs must have equal lines. Workers, micro-batches and batch count by their product only: in that
 * line the part after "=" may differ. */
#define KOLO_STEP_SAMPLES "batch x accumulate x workers: "
void kolo_setup_describe_learning(const kolo_setup *setup, kolo_text *text);
/* Appends all options that must be equal on all ranks of a job. */
void kolo_setup_describe(const kolo_setup *setup, kolo_text *text);
/* Whether `--buckets auto` or `--compress auto` is set, and the steps from `from` on are enough to
 * measure and to use what is chosen. */
bool kolo_setup_chooses_buckets(const kolo_setup *setup, int64_t from);
/* Passes a formatted line to the program's callback for notices, if there is one. */
void kolo_notify(const kolo_train_opts *o, kolo_notice_kind kind, const char *fmt, ...)
    KOLO_PRINTF(3, 4);
/* Zeroed is allowed. */
void kolo_setup_close(kolo_setup *setup);
