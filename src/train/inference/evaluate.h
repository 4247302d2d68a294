#pragma once
/* Evaluation of a session on a data set, divided among the ranks. */

#include "train/session/session.h"

typedef struct kolo_evaluation {
    kolo_metrics metrics;
    int64_t samples;
} kolo_evaluation;

/* Evaluates all samples of `dataset` once, in batches of `batch` per rank; every rank gets the
 * metrics over all samples. Collective; `comm` NULL: a single rank. An error on one rank fails on
 * all. */
kolo_status kolo_session_evaluate_all(kolo_session *session, kolo_comm *comm,
                                      const kolo_dataset *dataset, int64_t batch,
                                      kolo_evaluation *evaluation);
