/* One training step: micro-batches or logical shards. */
#include "base/clock.h"
#include "base/integer.h"
#include "train/session/internal.h"

#include <inttypes.h>

/* The time of this rank alone in the current step. */
static int64_t busy_ns(const kolo_session *s) {
    const int64_t *ns = s->times.phase_ns;
    return ns[KOLO_PHASE_INPUT] + ns[KOLO_PHASE_FORWARD] + ns[KOLO_PHASE_BACKWARD] +
           ns[KOLO_PHASE_UPDATE];
}

/* This rank's shards. The last one also completes the step, if it is full; if all ranks gather
 * parameters in each, they complete the step in the last round, or none of them does. */
static kolo_status run_shards(kolo_session *s, const kolo_batch *batch, const kolo_step_scalars *x,
                              const cached **finish) {
    const int64_t size = s->opts.batch;
    const bool together = gathers_parameters(s);
    const bool full = batch->global_count == s->opts.shards * size;
    const int rounds = kolo_session_shard_rounds(s, data_rank(s));
    bool complete = false;
    KOLO_TRY(kolo_session_get_plan(s, FINISH, size, size, finish));
    if (kolo_session_stages(s) > 1) return kolo_session_run_stage(s, batch, x, *finish);
    for (int i = 0; i < rounds; i++) {
        const cached *c;
        const int k = s->first_shard + i;
        const bool own = k < s->end_shard, last = i == rounds - 1;
        int64_t count = own ? kolo_session_shard_count(s, batch->global_count, k) : 0;
        if (count == 0) {
            complete = together && last && full;
            if (own) kolo_plan_skip_shard((*finish)->plan, k);
            KOLO_TRY(kolo_session_follow(s, *finish, x, complete));
            continue;
        }
        KOLO_TRY(kolo_session_prepare_shard(s, batch, k, x, *finish, &c));
        complete = last && (together ? full : count == size);
        KOLO_TRY(kolo_plan_run_shard(c->plan, k, complete));
    }
    if (!complete) KOLO_TRY(kolo_session_complete_step(*finish, x));
    s->busy_ns = busy_ns(s);
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

static kolo_status step(kolo_session *s, const kolo_batch *batch, double lr, kolo_sums *sums) {
    KOLO_ASSERT(!s->opts.evaluate_only && batch->global_count > 0);
    const bool shards = s->opts.shards > 0;
    const cached *finish; /* the plan that ends the step */
    kolo_label_count labels;
    s->times = (kolo_plan_times){0};
    if (shards) KOLO_TRY(check_shards(s, batch));
    KOLO_TRY(kolo_session_check_batch(s, batch, UINT32_MAX));
    if (s->rounds) return kolo_session_step_alone(s, batch, lr, sums);
    if (pushes_gradients(s)) return kolo_session_step_served(s, batch, lr, sums);
    if (s->opts.served) return kolo_session_step_between(s, batch, lr, sums);
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_session_sum_labels(s, batch, &labels));
    kolo_session_count_communication(s, begin);
    const kolo_step_scalars x = kolo_session_scalars(s, lr, labels);
    const bool audited = shards && s->comm && s->audited.global_count > 0;
    if (audited) {
        KOLO_TRY(kolo_session_run_audited(s, batch, &x, &finish));
    } else if (shards) {
        KOLO_TRY(run_shards(s, batch, &x, &finish));
    } else {
        KOLO_TRY(kolo_session_run_micro_batches(s, batch, &x, &finish));
    }
    s->audited = (kolo_batch){0};
    s->trained = finish->plan;
    s->evaluated = NULL;
    *sums = kolo_session_read_sums(finish, batch->global_count, labels);
    KOLO_TRY(kolo_session_share_sums(s, sums));
    s->steps++; /* a failed step repeats its draws */
    kolo_session_count_window(s);
    return kolo_session_measure_buckets(s, finish);
}

kolo_status kolo_session_step_batch(kolo_session *s, const kolo_batch *batch, double lr,
                                    kolo_sums *sums) {
    KOLO_TRY(kolo_session_check_works(s)); /* a callback may have ended it */
    KOLO_TRY(kolo_session_compile_step(s, batch->global_count));
    const kolo_status status = step(s, batch, lr, sums);
    kolo_session_count_rollbacks(s);
    return status;
}
