#pragma once
/* Training: the whole job behind one call, and the session for programs with a loop of their own.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kolo/comm.h"
#include "kolo/models.h"
#include "kolo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kolo_lr_schedule {
    KOLO_LR_CONSTANT,
    KOLO_LR_STEP,   /* times lr_step_factor every lr_step_epochs epochs */
    KOLO_LR_COSINE, /* half a cosine from lr down to lr_min over the run; Loshchilov, Hutter, 2017
                     */
} kolo_lr_schedule;

/* What a job does, as its ranks agree on it. Zero means the default, which each line names. */
typedef struct kolo_train_opts {
    const char *model, *model_options; /* name in the zoo; the model's own options */
    const char *data;                  /* "fashion-mnist", "mnist:DIR", ... */
    int64_t batch;                     /* per worker; 64 */
    int64_t epochs, steps;             /* the first reached ends the run; both 0: one epoch */
    double lr;                         /* 0.01 */
    double momentum, weight_decay;     /* 0 */
    bool nesterov;
    kolo_lr_schedule schedule;
    double lr_min;          /* end of the cosine; 0 */
    double lr_step_factor;  /* 0.1 */
    int64_t lr_step_epochs; /* 30 */
    double warmup_epochs;   /* linear from lr/steps up to lr; 0; Goyal et al., 2017 */
    uint64_t seed;          /* 0 */
    int threads;            /* of kernels, per rank; 1 */
    bool reference_kernels;
    int64_t bucket_bytes; /* 1 MiB */
    kolo_algorithm algorithm;
    const char *out_dir; /* where metrics.jsonl, config.yaml, checkpoint go; NULL: nowhere */
    const char *resolved_config; /* text of config.yaml; written into out_dir */
    int64_t eval_every;          /* epochs between evaluations; 0: at the end only */
    bool no_eval;
    bool in_memory; /* benchmark: the batch stays the same, no loader, no evaluation */
} kolo_train_opts;

/* Where a run stands; given to the observer on rank 0. */
typedef struct kolo_train_progress {
    int64_t epoch, step, total_steps; /* step counts from 1 over the run */
    double loss, accuracy;            /* training: mean over the samples since the last report */
    double test_accuracy, test_loss;  /* set where `evaluated` */
    double lr, samples_per_second, seconds, seconds_left;
    bool epoch_end, evaluated;
} kolo_train_progress;

/* What came out; the same on every rank but peak_rss_bytes. */
typedef struct kolo_train_result {
    int workers, threads;
    int64_t parameters, steps, epochs, samples;
    double final_loss, test_accuracy, test_loss; /* test_accuracy < 0: not evaluated */
    double train_seconds, samples_per_second, step_ms_median;
    int64_t peak_rss_bytes;
    uint64_t parameter_hash; /* of the final parameters */
} kolo_train_result;

/* Called on rank 0 about ten times a second and at the end of epochs; must be quick. */
typedef void (*kolo_train_observer)(void *arg, const kolo_train_progress *progress);

/* Runs a whole training job as this rank of `comm`; blocks until it is done. Writes the checkpoint
 * OUT/checkpoint-final.safetensors and OUT/metrics.jsonl on rank 0. `observer` may be NULL.
 * ARG: an option out of range, unknown model or data; FORMAT, IO: data or files; PEER: a rank died.
 */
KOLO_API kolo_status kolo_train(kolo_comm *comm, const kolo_train_opts *opts,
                                kolo_train_observer observer, void *arg, kolo_train_result *result);

/* Evaluates a checkpoint on the test split of `data`, shared between the ranks of `comm`.
 * FORMAT: no checkpoint, or one of another model than it says. */
KOLO_API kolo_status kolo_evaluate(kolo_comm *comm, const char *checkpoint, const char *data,
                                   int64_t batch, int threads, kolo_train_result *result);

#ifdef __cplusplus
}
#endif
