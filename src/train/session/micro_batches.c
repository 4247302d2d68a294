/* A step in micro-batches, of the ranks that make it together: all, or this one alone. */
#include "base/integer.h"
#include "train/session/internal.h"

#include <inttypes.h>

/* With micro-batches, shares must be the sampler's: the sizes of the other ranks' follow from it.
 */
static kolo_status check_share(const kolo_session *s, const kolo_batch *batch) {
    int64_t rank = step_rank(s), share = kolo_part_count(batch->global_count, step_ranks(s), rank);
    if (batch->count == share) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%" PRId64 " samples of %" PRId64 " on rank %" PRId64
                     ": micro-batches need shares as equal as possible, here %" PRId64,
                     batch->count, batch->global_count, rank, share);
}

kolo_status kolo_session_run_micro_batches(kolo_session *s, const kolo_batch *batch,
                                           const kolo_step_scalars *x, const cached **finish) {
    const int64_t global = batch->global_count, n = micro_batches(s, global);
    const int64_t last =
        kolo_part_count(batch->count, n, n - 1); /* samples of the last micro-batch */
    if (n > 1) KOLO_TRY(check_share(s, batch));
    KOLO_TRY(kolo_session_get_plan(s, FINISH, global, last, finish));
    if (kolo_session_stages(s) > 1) return kolo_session_run_stage(s, batch, x, *finish);
    for (int64_t i = 0; i < n; i++) {
        const cached *c = *finish;
        int64_t count = kolo_part_count(batch->count, n, i);
        kolo_batch micro = kolo_batch_part(batch, kolo_part_first(batch->count, n, i), count);
        if (count != last) KOLO_TRY(kolo_session_get_plan(s, ADD, global, count, &c));
        KOLO_TRY(kolo_plan_prepare(c->plan));
        kolo_session_prepare(s, c, &micro, x, micro_global(s, global, n, i), i == 0,
                             i == 0 && step_rank(s) == 0);
        /* Forward and backward; gradients and sums are accumulated. */
        if (count == 0) {
            KOLO_TRY(kolo_plan_skip(c->plan, i == n - 1 && !pushes_gradients(s)));
        } else if (i < n - 1) {
            KOLO_TRY(kolo_plan_accumulate(c->plan));
        }
    }
    /* The last micro-batch: forward; backward, with an allreduce posted for each bucket as soon as
     * its gradients are complete; waits for the buckets; update into the other bank; commit. With
     * servers these do the rest. */
    if (pushes_gradients(s)) {
        return last > 0 ? kolo_plan_gradients((*finish)->plan, s->posted, s->served) : KOLO_OK;
    }
    if (s->reported && last > 0) {
        return kolo_plan_run_reporting((*finish)->plan, s->reported, s->reported_arg);
    }
    return last > 0 ? kolo_plan_run((*finish)->plan) : KOLO_OK;
}
