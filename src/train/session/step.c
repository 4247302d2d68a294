/* One training step: micro-batches or logical shards. */
#include "base/clock.h"
#include "base/integer.h"
#include "train/session/internal.h"

#include <inttypes.h>

/* Samples of all ranks in micro-batch i. Shares have one of two sizes (data/sampler.h). */
static int64_t micro_global(const kolo_session *s, int64_t global, int64_t parts, int64_t i) {
    int64_t ranks = ranks_of(s), larger = global % ranks, share = global / ranks;
    if (parts == 1) return global;
    return larger * part_count(share + 1, parts, i) +
           (ranks - larger) * part_count(share, parts, i);
}

/* With micro-batches, shares must be the sampler's: the sizes of the other ranks' follow from it.
 */
static kolo_status check_share(const kolo_session *s, const kolo_batch *batch) {
    int64_t rank = rank_of(s), share = part_count(batch->global_count, ranks_of(s), rank);
    if (batch->count == share) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%" PRId64 " samples of %" PRId64 " on rank %" PRId64
                     ": micro-batches need shares as equal as possible, here %" PRId64,
                     batch->count, batch->global_count, rank, share);
}

static kolo_status run_micro_batches(kolo_session *s, const kolo_batch *batch,
                                     const kolo_step_scalars *x, const cached **finish) {
    const int64_t global = batch->global_count, n = micro_batches(s, global);
    const int64_t last = part_count(batch->count, n, n - 1); /* samples of the last micro-batch */
    if (n > 1) KOLO_TRY(check_share(s, batch));
    KOLO_TRY(kolo_session_get_plan(s, FINISH, global, last, finish));
    for (int64_t i = 0; i < n; i++) {
        const cached *c = *finish;
        int64_t count = part_count(batch->count, n, i);
        kolo_batch micro = kolo_batch_part(batch, part_first(batch->count, n, i), count);
        if (count != last) KOLO_TRY(kolo_session_get_plan(s, ADD, global, count, &c));
        kolo_session_prepare(s, c, &micro, x, micro_global(s, global, n, i), i == 0,
                             i == 0 && rank_of(s) == 0);
        /* Forward and backward; gradients and sums are accumulated. */
        if (count == 0) {
            KOLO_TRY(kolo_plan_skip(c->plan, i == n - 1));
        } else if (i < n - 1) {
            KOLO_TRY(kolo_plan_accumulate(c->plan));
        }
    }
    /* The last micro-batch: forward; backward, with an allreduce posted for each bucket as soon as
     * its gradients are complete; waits for the buckets; update into the other bank; commit. */
    return last > 0 ? kolo_plan_run((*finish)->plan) : KOLO_OK;
}

/* This rank's shards. The last one completes the step, as above, if it is a full one. */
static kolo_status run_shards(kolo_session *s, const kolo_batch *batch, const kolo_step_scalars *x,
                              const cached **finish) {
    const int64_t begin = kolo_now_ns(), size = s->opts.batch;
    bool complete = false;
    KOLO_TRY(kolo_session_get_plan(s, FINISH, size, size, finish));
    for (int k = s->first_shard; k < s->end_shard; k++) {
        const cached *c;
        int64_t count = kolo_session_shard_count(s, batch->global_count, k);
        if (count == 0) {
            kolo_plan_skip_shard((*finish)->plan, k);
            continue;
        }
        KOLO_TRY(kolo_session_prepare_shard(s, batch, k, x, *finish, &c));
        complete = k == s->end_shard - 1 && count == size;
        KOLO_TRY(kolo_plan_run_shard(c->plan, k, complete));
    }
    if (!complete) KOLO_TRY(kolo_session_complete_step(*finish, x));
    s->busy_ns = kolo_now_ns() - begin - kolo_plan_waited_ns((*finish)->plan);
    return KOLO_OK;
}

/* A rank's batch must consist of its shards. */
static kolo_status check_shards(const kolo_session *s, const kolo_batch *batch) {
    int64_t global = batch->global_count, size = s->opts.batch;
    int64_t first = kolo_min_i64(s->first_shard * size, global);
    int64_t count = kolo_min_i64(s->end_shard * size, global) - first;
    if (batch->count == count && (count == 0 || batch->first == first)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "samples %" PRId64 " to %" PRId64 " of %" PRId64 " on rank %d"
                     ", whose shards have %" PRId64 " to %" PRId64,
                     batch->first, batch->first + batch->count, global, rank_of(s), first,
                     first + count);
}

kolo_status kolo_session_step_batch(kolo_session *s, const kolo_batch *batch, double lr,
                                    kolo_sums *sums) {
    KOLO_ASSERT(!s->opts.evaluate_only && batch->global_count > 0);
    const bool shards = s->opts.shards > 0;
    const cached *finish; /* the plan that ends the step */
    int64_t labels;
    if (shards) KOLO_TRY(check_shards(s, batch));
    KOLO_TRY(kolo_session_check_batch(s, batch, UINT32_MAX));
    KOLO_TRY(kolo_session_sum_labels(s, batch, &labels));
    const kolo_step_scalars x = kolo_session_scalars(s, lr, labels);
    const bool audited = shards && s->comm && s->audited.global_count > 0;
    if (audited) {
        KOLO_TRY(kolo_session_run_audited(s, batch, &x, &finish));
    } else if (shards) {
        KOLO_TRY(run_shards(s, batch, &x, &finish));
    } else {
        KOLO_TRY(run_micro_batches(s, batch, &x, &finish));
    }
    s->audited = (kolo_batch){0};
    s->trained = finish->plan;
    s->evaluated = NULL;
    *sums = kolo_session_read_sums(finish, batch->global_count, labels);
    s->steps++; /* a failed step repeats its draws */
    return KOLO_OK;
}
