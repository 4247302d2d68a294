#pragma once
/* Predictions of a training step over several workers from its parts, beside what is measured.
 *
 * The model (docs/performance.md): kernels take as long as in a step without communication, those
 * of lanes at the same time, as in training; a sum of n bytes over the workers takes a + b n, of
 * which o + g n is work of the processors that run the kernels; the sum of a bucket begins when its
 * gradients are complete and the bucket before is summed; kernels hide its waiting, not its work.
 */

#include "kolo/comm.h"
#include "kolo/train.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The predicted step with some division of the gradients into buckets. */
typedef struct kolo_modelled_buckets {
    const char *name;  /* "1 MiB", "best"; static storage */
    size_t bytes;      /* after which a bucket ends; 0: other buckets */
    int buckets;       /* of gradients */
    double sums_ms;    /* of all sums */
    double work_ms;    /* of these, of the processors that run kernels */
    double exposed_ms; /* communication that is in the calling thread, or after the backward pass */
    double step_ms;
} kolo_modelled_buckets;

enum { KOLO_MODELLED_BUCKETS = 8 };

typedef struct kolo_step_model {
    int workers, threads;
    int64_t batch;               /* of each worker */
    int regions;                 /* whose operations run at the same time, in lanes */
    double fixed_us, us_per_mib; /* a and b of a sum over the workers, fitted to measured ones */
    double work_fixed_us, work_us_per_mib; /* o and g: the work in it. a and b where the calling
                                              thread alone makes progress, as in shared memory */
    bool shared; /* the workers share parameters: updates read the gradients of all of them, and
                    nothing is summed */
    kolo_step_time predicted; /* with the buckets of the options; means over the workers.
                                 backward: with the work of a thread that makes progress
                                 meanwhile; exposed: also the waiting for the slowest worker */
    kolo_step_time measured;  /* means over steps and workers */
    double slowest; /* the time until the last worker has run the kernels of a step, over the mean
                       time of the workers for them */
    double backward_kernels_ms; /* predicted, of the slowest worker, without the work of sums */
    double measured_median_ms;  /* of a step */
    /* Buckets: those of the options, of 1, 4, 25 and 100 MiB, one for each gradient, one for all,
     * and the best. */
    kolo_modelled_buckets buckets[KOLO_MODELLED_BUCKETS];
    int n_best;               /* buckets of the best plan */
    const size_t *best_bytes; /* their sizes, in the order of the backward pass */
    /* The gradients, in that order: their bytes, and when the slowest worker has completed them,
     * from the beginning of the backward pass on. */
    int n_gradients;
    const size_t *gradient_bytes;
    const double *ready_ms;
    kolo_train_memory memory; /* of a worker, by its plan */
} kolo_step_model;

/* Predicts the step that `train` describes, with in_memory data and one micro-batch, and measures
 * `steps` of them (default 10), as this rank of `comm`, which has at least two. Three measurements
 * are made, one after another: the kernels of a step, by all ranks at the same time without
 * communication; sums over the ranks; steps. Collective; the numbers are of rank 0. Blocks. Free
 * the result with kolo_step_model_destroy. Errors of kolo_train; ARG: one rank, or micro-batches.
 */
KOLO_API kolo_status kolo_step_model_measure(kolo_comm *comm, const kolo_train_opts *train,
                                             int64_t steps, kolo_step_model **prediction);
/* NULL is allowed. */
KOLO_API void kolo_step_model_destroy(kolo_step_model *prediction);

#ifdef __cplusplus
}
#endif
