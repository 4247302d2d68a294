#pragma once
/* A session: one model in training on one rank of a group: its parameters (the store), its plans,
 * the group.
 *
 * Shapes are fixed in a plan, so there is one for each size of batch, made when it is first needed:
 * the full batch, an epoch's last, evaluation. A training plan holds collectives, which all ranks
 * must make in one order; therefore training plans are kept by the *global* size of the batch,
 * which all ranks know, and the ranks' shares of one global size must always be the same.
 * Evaluation plans hold none and are kept by the local size.
 *
 * A step may go through its share in several micro-batches, whose gradients add up; all but the
 * last touch nothing but this rank's memory. All ranks have as many, as few as the largest share
 * needs; where a share does not divide evenly the first ones have a sample more, and a plan of
 * their own.
 *
 * A rank without samples in a step (a short last batch) runs a plan of one sample whose label is
 * outside the classes: it adds nothing to the loss or to any gradient.
 *
 * A session belongs to one thread at a time. */

#include "data/prefetch.h"
#include "plan/plan.h"

/* Zero means the default. */
typedef struct kolo_session_opts {
    const char *model, *model_options;
    kolo_shape sample;
    kolo_shape label; /* of one sample's labels, as in kolo/data.h */
    int64_t classes;
    int64_t batch;       /* samples of this rank in a micro-batch; the same on all ranks */
    int64_t accumulate;  /* micro-batches of a full step; default 1 */
    bool evaluate_only;  /* no gradients, no optimiser, no collectives */
    kolo_plan_opts plan; /* `train` is set by the session */
} kolo_session_opts;

typedef struct kolo_session kolo_session;

/* Builds the model and the plan of a full batch, which settles the layout of every parameter.
 * Parameters are zero. `comm` is borrowed; NULL: this rank alone. Collective unless evaluate_only.
 * ARG: the model is unknown, or does not take such samples or options. */
kolo_status kolo_session_create(const kolo_session_opts *opts, kolo_comm *comm,
                                kolo_session **session);
/* NULL is allowed. */
void kolo_session_destroy(kolo_session *session);

/* The graph of a model as its builder makes it, for a batch of `batch` samples. ARG: it takes other
 * samples or labels, or not these options. */
kolo_status kolo_session_build(const kolo_session_opts *opts, int64_t batch, kolo_graph **graph);

/* Draws the parameters from `seed` on every rank, then makes all equal to rank 0's. Collective. */
kolo_status kolo_session_init(kolo_session *session, uint64_t seed);

/* Makes the next step the one behind `steps`: what is drawn in steps, and Adam's correction, go by
 * it. */
void kolo_session_set_steps(kolo_session *session, int64_t steps);

kolo_store *kolo_session_store(const kolo_session *session);
/* The plan that trains on full batches. */
kolo_plan *kolo_session_plan(const kolo_session *session);
/* Elements of all parameters. */
int64_t kolo_session_parameters(const kolo_session *session);

/* Sums over labels, of which a sample may have more than one. */
typedef struct kolo_sums {
    double loss, correct;
    double next_loss, next_correct; /* of whether a sentence follows another: a part of `loss` */
    int64_t samples, labels;
    int64_t pairs; /* samples where the model tells that, else 0 */
} kolo_sums;

void kolo_sums_add(kolo_sums *to, const kolo_sums *more);

/* One optimiser step on a global batch of which `batch` is this rank's share; `sums` is over all
 * ranks. Collective. PEER, TIMEOUT: the group broke, the parameters are those before the step. */
kolo_status kolo_session_step(kolo_session *session, const kolo_batch *batch, double lr,
                              kolo_sums *sums);

/* The forward pass on `batch`, which has at least one sample; `sums` is of this rank alone. */
kolo_status kolo_session_evaluate(kolo_session *session, const kolo_batch *batch, kolo_sums *sums);
/* An output of the latest kolo_session_evaluate, f32, such as "logits"; NULL when the model has
 * none of that name. Valid until the session's next call. */
const float *kolo_session_output(const kolo_session *session, const char *name,
                                 kolo_tensor *tensor);
