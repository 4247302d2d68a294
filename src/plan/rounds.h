#pragma once
/* Rounds: ranks that train versions of their own and combine them from time to time.
 *
 * Between rounds every rank runs the plan of a single rank (kolo_plan_opts.versions): no gradient
 * is communicated, and parameters, running statistics and optimizer state are LOCAL. A round makes
 * the parameters w equal again, by a plan of updates alone. Over N ranks,
 *
 *     averaged:  w = mean(w)
 *     outer:     d = mean(a - w)             a, the anchor: the parameters of the last round
 *                v = momentum v + d
 *                a = a - lr v                or a - lr (d + momentum v), nesterov
 *                w = a
 *
 * Running statistics are averaged in both. The outer update is the op of SGD on the anchor; anchor
 * and v are state of the store, equal on all ranks. docs/consistency.md has the algorithms.
 *
 * In outer rounds the parameters may be in several fragments (plan/fragments.h), which are combined
 * at different times. With an overlap of T steps a fragment is cut, which keeps what each rank adds
 * in the LOCAL state "optimizer.cut.NAME"; its sums are in flight during the next T steps, and the
 * update follows these.
 *
 * Within a round the parameters are averaged for evaluation and files: each rank saves its version
 * in the LOCAL state "optimizer.replica.NAME" and holds the mean instead. */

#include "plan/plan.h"

typedef struct kolo_round_opts {
    int64_t every; /* steps between two rounds */
    bool outer;    /* else averaged */
    double lr, momentum;
    bool nesterov;
    /* Of outer rounds: */
    int fragments;   /* at most `every`; default 1 */
    bool strided;    /* see kolo_fragments_assign */
    int64_t overlap; /* steps between a cut and its update, below `every`; 0: none */
    double mix;      /* of a rank's own version in the updated one, below 1 */
    kolo_algorithm algorithm;
    kolo_kernel_set kernels;
    kolo_compression compression; /* of d, in outer rounds */
    size_t bucket_bytes;          /* default 1 MiB */
    int threads;                  /* default 1 */
    kolo_plan_times *times;       /* as in kolo_plan_opts */
    int reported;                 /* numbers of each step that kolo_rounds_post adds up */
} kolo_round_opts;

typedef struct kolo_rounds kolo_rounds;

/* Compiles the plans of rounds over all ranks of `comm` (NULL: one) for what the training plan
 * `step` updates, and adds their state to its store. `step` has to outlive the call only.
 * Collective. The errors of kolo_plan_compile; ARG: fewer layers than fragments. */
kolo_status kolo_rounds_create(const kolo_plan *step, const kolo_round_opts *opts,
                               kolo_store *store, kolo_comm *comm, kolo_rounds **rounds);
void kolo_rounds_destroy(kolo_rounds *rounds);
/* Bytes of what fragments exchange while steps go on, and of the values of their updates. */
size_t kolo_rounds_bytes(const kolo_rounds *rounds);
/* Before the first step of a run: the anchors are the parameters. */
void kolo_rounds_begin(kolo_rounds *rounds);
/* Before a step, after `steps` completed ones: starts the sums of fragments that have been cut,
 * also before a run was resumed. Collective; does not block. PEER, TIMEOUT. */
kolo_status kolo_rounds_start(kolo_rounds *rounds, int64_t steps);
/* Within a step: starts the sum over the ranks of its `reported` numbers, which go on behind its
 * kernels. Collective; does not block. PEER, TIMEOUT. */
kolo_status kolo_rounds_post(kolo_rounds *rounds, const double *numbers);
/* Waits for the sums of what was posted. Collective; blocks. PEER, TIMEOUT. */
kolo_status kolo_rounds_await(kolo_rounds *rounds, double *sums);
/* After a step, the number `steps` counted from 1: updates, combines or cuts what is due.
 * Collective; blocks. PEER, TIMEOUT: the store is as before. */
kolo_status kolo_rounds_advance(kolo_rounds *rounds, int64_t steps);
/* Waits for the sums in flight and saves this rank's version; unless all are equal after `steps`
 * steps, the parameters become the mean over the ranks. Collective; blocks. PEER, TIMEOUT. */
kolo_status kolo_rounds_average(kolo_rounds *rounds, int64_t steps);
/* Restores the version that was saved, or loaded from a file. */
void kolo_rounds_restore(kolo_rounds *rounds);
