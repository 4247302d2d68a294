#pragma once
/* Training: the whole job behind one call.
 *
 *     kolo_comm *comm;
 *     KOLO_TRY(kolo_comm_create(NULL, &comm));
 *     kolo_train_opts opts = {.model = "lenet", .data = "fashion-mnist", .epochs = 3, .lr = 0.05};
 *     kolo_train_result result;
 *     KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &result));
 *
 * Ranks fail together. What one rank meets before the first step (data that it cannot read, a
 * folder that it cannot write) or all meet in the same step (a loss that is no number) makes all
 * fail with the same status; the rank that met it has the plain text, the others "rank N: " before
 * it. What one rank meets later ends its run alone; the others then lose a peer. */

#include "kolo/comm.h"
#include "kolo/metric.h"
#include "kolo/models.h"
#include "kolo/pass.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The list of learning-rate schedules: code, name, description. They start after the warm-up.
 * Cosine: Loshchilov, Hutter, 2017. */
#define KOLO_LR_SCHEDULE_LIST(X)                                                        \
    X(KOLO_LR_CONSTANT, "constant", "always lr")                                        \
    X(KOLO_LR_STEP, "step", "multiplied by lr-step-factor every lr-step-epochs epochs") \
    X(KOLO_LR_COSINE, "cosine", "half a cosine from lr down to lr-min over the run")

typedef enum kolo_lr_schedule {
#define KOLO_LR_SCHEDULE_ENUM(code, name, help) code,
    KOLO_LR_SCHEDULE_LIST(KOLO_LR_SCHEDULE_ENUM)
#undef KOLO_LR_SCHEDULE_ENUM
        KOLO_LR_SCHEDULE_COUNT
} kolo_lr_schedule;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_lr_schedule_name(kolo_lr_schedule schedule);

/* The list of ways to select kernels and layouts: code, name, description. Times are specific to
 * the processor and are stored in the tuning file. */
#define KOLO_AUTOTUNE_LIST(X)                                       \
    X(KOLO_AUTOTUNE_OFF, "off", "by cost formulas")                 \
    X(KOLO_AUTOTUNE_CACHED, "cached",                               \
      "by times in the tuning file, by formulas where it has none") \
    X(KOLO_AUTOTUNE_ON, "on", "by times, after measuring the missing ones")

typedef enum kolo_autotune {
#define KOLO_AUTOTUNE_ENUM(code, name, help) code,
    KOLO_AUTOTUNE_LIST(KOLO_AUTOTUNE_ENUM)
#undef KOLO_AUTOTUNE_ENUM
        KOLO_AUTOTUNE_COUNT
} kolo_autotune;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_autotune_name(kolo_autotune autotune);

typedef enum kolo_notice_kind {
    KOLO_NOTICE_TRANSIENT, /* stands for the moment, until the next */
    KOLO_NOTICE_INFO,
    KOLO_NOTICE_WARNING, /* something was not as it should be, and the job goes on */
} kolo_notice_kind;

/* A line for the user about what is going on before the first step. */
typedef void (*kolo_train_notice)(void *arg, const char *line, kolo_notice_kind kind);

/* What a job does, as its ranks agree on it. Zero means the default, which each line names. */
typedef struct kolo_train_opts {
    const char *model, *model_options; /* name in the zoo; the model's own options */
    const char *data; /* "fashion-mnist", "mnist:DIR", ...; required unless in_memory */
    const char
        *init;             /* weights to begin with: a safetensors file of kolo's or with the names
                              that torchvision or Hugging Face gives the model; NULL: drawn from the seed */
    int64_t batch;         /* per worker; 64 */
    int64_t accumulate;    /* micro-batches of `batch` samples per worker in each step; 1 */
    int64_t epochs, steps; /* the first reached ends the run; both 0: one epoch */
    double lr;             /* 0.01 */
    kolo_optimizer_opts optimizer;
    bool sparse_embedding; /* embedding tables have row-sparse gradients: a step exchanges
                              and updates the rows that occur; SGD without momentum, or Adam
                              as PyTorch's SparseAdam; ARG with weight decay, accumulation, a
                              table that more than an embedding reads, or none */
    kolo_lr_schedule schedule;
    double lr_min;          /* end of the cosine; 0 */
    double lr_step_factor;  /* 0.1 */
    int64_t lr_step_epochs; /* 30 */
    double warmup_epochs;   /* linear from lr/(warm-up's steps) up to lr; 0; Goyal et al., 2017 */
    const char *augment;    /* changes to training images, "flip,crop=2,erase=8", any part of it, as
                               src/data/augment.h says; NULL: none */
    uint64_t seed;          /* 0 */
    int threads;            /* of kernels, per rank; 1 */
    bool reference_kernels;
    bool no_winograd; /* convolutions in their direct form only */
    kolo_autotune autotune;
    const char *tuning; /* file of measured times, read and kept by rank 0; NULL: none. With out_dir
                           the times that were used also go into tuning.txt there */
    kolo_train_notice notice; /* called on rank 0; may be NULL */
    void *notice_arg;
    int64_t bucket_bytes;     /* 1 MiB */
    kolo_recompute recompute; /* none */
    kolo_precision precision; /* f32 */
    kolo_algorithm algorithm;
    const char *out_dir; /* where metrics.jsonl, config.yaml, checkpoint go; NULL: nowhere. Files
                            of these names that are there already are replaced */
    const char *resolved_config; /* text of config.yaml; written into out_dir */
    const char *trace; /* file for the newest steps on full batches, every rank's, as a Chrome
                          trace,  which Perfetto opens; NULL: none */
    /* A checkpoint that a run can go on from, checkpoint-STEP.safetensors in out_dir, after every
     * so many steps or epochs (one of the two, or neither) and at the end; "latest" there names the
     * newest. Of them `keep` stay, 0: all. */
    int64_t checkpoint_steps, checkpoint_epochs, keep;
    const char *resume; /* such a checkpoint, or the out_dir of a run, whose latest it is: the run
                           goes on behind it, with the bits that it would have had. What the run
                           wrote after it is replaced where out_dir is its folder. NULL: begin */
    bool resume_if_any; /* a folder without a checkpoint is no error: begin */
    int64_t eval_every; /* epochs between evaluations; 0: at the end only */
    bool no_eval;
    bool in_memory; /* benchmark: each rank trains on its part of the first global batch of the
                       data (made-up images without `data`) again and again; no loader, no
                       evaluation, `epochs` means nothing, `steps` is 100 by default */
} kolo_train_opts;

/* Progress of a run; passed to the observer on rank 0. */
typedef struct kolo_train_progress {
    int64_t epoch, step, total_steps; /* step counts from 1 over the run */
    kolo_metrics train;               /* since the last report; with epoch_end, over the epoch */
    int64_t samples;                  /* that `train` covers */
    double samples_per_second;
    kolo_metrics test;            /* if `evaluated` */
    double lr;                    /* of this step */
    double seconds, seconds_left; /* since the first step, with evaluation; until the last step */
    bool epoch_end;               /* the last step of an epoch or of the run */
    bool evaluated;
} kolo_train_progress;

enum { KOLO_LAST_STEPS = 20 }; /* steps that the final metrics are averaged over */

/* The result of a run; the same on every rank except peak_rss_bytes. */
typedef struct kolo_train_result {
    int workers, threads;
    int64_t parameters, steps;
    int64_t epochs;            /* completed */
    int64_t samples;           /* trained on, over all ranks and epochs */
    double first_loss;         /* training loss of the first step */
    kolo_metrics final;        /* training metrics over the last KOLO_LAST_STEPS steps */
    bool evaluated;            /* `test` was measured */
    kolo_metrics test;         /* NaN if not evaluated */
    double train_seconds;      /* in steps, including waits for data, on rank 0 */
    double samples_per_second; /* samples / train_seconds */
    double step_ms_median;     /* on rank 0 */
    int64_t peak_rss_bytes;    /* of this process */
    uint64_t parameter_hash;   /* of the final parameters and optimizer state */
    int64_t losses_checked;    /* in_memory: the first so many steps were repeated with batches from
                                  a loader, as in training, and the losses were bitwise equal;
                                  else 0 */
} kolo_train_result;

/* Called on rank 0 about ten times a second and at the end of epochs; must be quick. */
typedef void (*kolo_train_observer)(void *arg, const kolo_train_progress *progress);

/* Finds out, without starting anything, what would make `workers` ranks refuse these options: a
 * value out of range, an unknown model or data set, samples that the model does not take, more
 * workers than samples, a folder that cannot be written (it is made if it is not there). The
 * status and text are those that kolo_train would give. */
KOLO_API kolo_status kolo_train_check(const kolo_train_opts *opts, int workers);

/* Runs a whole training job as this rank of `comm` (NULL: alone); blocks until it is done. Rank 0
 * writes config.yaml, metrics.jsonl and checkpoints as it goes, checkpoint-final.safetensors at the
 * end. `observer` may be NULL. The result of a job that goes on with a run is the whole run's, but
 * for step_ms_median.
 * ARG: as kolo_train_check; DIVERGED: the loss is no number any more, or a benchmark's is not that
 * of training; FORMAT, IO: data or files;
 * PEER: a rank died, or ranks ended with different parameters. */
KOLO_API kolo_status kolo_train(kolo_comm *comm, const kolo_train_opts *opts,
                                kolo_train_observer observer, void *arg, kolo_train_result *result);

/* Zero means the default. */
typedef struct kolo_eval_opts {
    const char *checkpoint, *data; /* required */
    int64_t batch;                 /* samples at a time on each rank; 64 */
    int threads;                   /* of kernels, per rank; 1 */
    kolo_autotune autotune;        /* as in kolo_train_opts, */
    const char *tuning;            /* and this */
    kolo_train_notice notice;      /* and these */
    void *notice_arg;
} kolo_eval_opts;

/* Evaluates a checkpoint on the test split of `data`, shared between the ranks of `comm` (NULL:
 * alone). Of the result, `steps` and `epochs` are those of the checkpoint, `samples` those
 * evaluated, samples_per_second is evaluation's; losses and times of training are 0.
 * FORMAT: no checkpoint, or not one of the model that it names; ARG: data of another shape. */
KOLO_API kolo_status kolo_evaluate(kolo_comm *comm, const kolo_eval_opts *opts,
                                   kolo_train_result *result);

#ifdef __cplusplus
}
#endif
