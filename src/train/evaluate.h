#pragma once
/* Evaluation of a session on a data set, shared between the ranks. */

#include "train/session.h"

typedef struct kolo_evaluation {
    double loss, accuracy; /* means over all labels */
    double mean_iou;       /* over the classes that occur; < 0 when the model counts no confusion */
    double next_loss, next_accuracy; /* of next sentences, a part of the loss; 0 without pairs */
    double perplexity; /* e^loss, without next_loss, where the data are tokens, else 0 */
    int64_t samples, pairs;
} kolo_evaluation;

/* Runs every sample of `dataset` once through the forward pass, `batch` at a time on each rank, and
 * gives every rank the means over all. Collective; `comm` may be NULL: this rank alone. Fails on
 * all ranks when it fails on one. */
kolo_status kolo_session_evaluate_all(kolo_session *session, kolo_comm *comm,
                                      const kolo_dataset *dataset, int64_t batch,
                                      kolo_evaluation *evaluation);
