#pragma once
/* Batches that a program fills: checks, and the share of each rank in the global batch. */

#include "data/sampler.h"
#include "train/session/session.h"

static inline kolo_status check_session(const kolo_session *s) {
    return s ? KOLO_OK : KOLO_FAIL(KOLO_ERR_ARG, "no session: create one");
}

/* The share of `rank` in a step of `samples`. */
kolo_share kolo_own_batch_share(const kolo_session *s, int64_t samples, int rank);
/* Checks the fields of a batch for the given inputs, a bit each, and that all labels are classes.
 * ARG. */
kolo_status kolo_own_batch_check(kolo_session *s, const kolo_batch *batch, uint32_t inputs);
/* ARG: the batch has no samples. */
kolo_status kolo_own_batch_check_any(const kolo_batch *batch);
/* Checks a batch of a step, and completes one that is not of a loader: the ranks exchange their
 * numbers of samples. Collective. An error on one rank fails on all. */
kolo_status kolo_own_batch_complete(kolo_session *s, const kolo_batch *batch, kolo_batch *whole);
