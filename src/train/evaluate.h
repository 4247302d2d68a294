#pragma once
/* Evaluation of a session on a data set, shared between the ranks. */

#include "train/session/session.h"

typedef struct kolo_evaluation {
    kolo_metrics metrics;
    int64_t samples;
} kolo_evaluation;

/* Runs every sample of `dataset` once through the forward pass, `batch` at a time on each rank, and
 * gives every rank the means over all. Collective; `comm` may be NULL: this rank alone. Fails on
 * all ranks when it fails on one. */
kolo_status kolo_session_evaluate_all(kolo_session *session, kolo_comm *comm,
                                      const kolo_dataset *dataset, int64_t batch,
                                      kolo_evaluation *evaluation);
