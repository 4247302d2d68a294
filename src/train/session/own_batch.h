#pragma once
/* Batches that a program fills: checks, and the share of each rank in the global batch. */

#include "data/sampler.h"
#include "train/session/internal.h"

static inline kolo_status check_session(const kolo_session *s) {
    if (!s) return KOLO_FAIL(KOLO_ERR_ARG, "no session: create one");
    KOLO_TRY(kolo_session_check_works(s));
    if (s->n_plans > 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "the session has ended: its plans could not be compiled anew");
}

/* The share of a place on the axis dp in a step of `samples`. */
kolo_share kolo_own_batch_share(const kolo_session *s, int64_t samples, int place);
/* Checks the fields and labels of a batch of a step, and completes one that is not of a loader: the
 * ranks exchange their numbers of samples and compare what must be the same. Collective. An error
 * on one rank fails on all. */
kolo_status kolo_own_batch_complete(kolo_session *s, const kolo_batch *batch, kolo_batch *whole);
/* The same of a batch for evaluation, which needs the given inputs, a bit each, and has any number
 * of samples but 0; `key` is that of its plan. Collective where ranks evaluate together. */
kolo_status kolo_own_batch_complete_evaluation(kolo_session *s, const kolo_batch *batch,
                                               uint32_t inputs, kolo_batch *whole, int64_t *key);
