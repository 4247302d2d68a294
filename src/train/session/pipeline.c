/* Sessions of a pipeline: each rank has the plans of its stage and executes its part of a program.
 */
#include "plan/crossings.h"
#include "plan/program/run.h"
#include "train/session/internal.h"

#include <inttypes.h>

/* The step, for its passes. */
typedef struct staged_step {
    kolo_session *s;
    const kolo_batch *batch;
    const kolo_step_scalars *x;
    const cached **plans; /* by micro-batch */
    kolo_plan **compiled; /* the same */
    int64_t n;            /* micro-batches, or logical shards of this place that have samples */
} staged_step;

static void prepare(void *arg, int i, bool forward) {
    const staged_step *t = arg;
    const kolo_session *s = t->s;
    const int64_t first = kolo_part_first(t->batch->count, t->n, i);
    const kolo_batch micro =
        kolo_batch_part(t->batch, first, kolo_part_count(t->batch->count, t->n, i));
    const int64_t samples = micro_global(s, t->batch->global_count, t->n, i);
    if (forward) kolo_session_feed(s, t->plans[i], &micro);
    kolo_session_set_scalars(t->plans[i], &micro, t->x, samples, i == 0,
                             i == 0 && step_rank(s) == 0);
}

static kolo_status find_plans(staged_step *t, const cached *finish) {
    for (int64_t i = 0; i < t->n; i++) {
        const int64_t count = kolo_part_count(t->batch->count, t->n, i);
        t->plans[i] = finish;
        if (count != finish->local) {
            KOLO_TRY(kolo_session_get_plan(t->s, ADD, t->batch->global_count, count, &t->plans[i]));
        }
        t->compiled[i] = t->plans[i]->plan;
    }
    return KOLO_OK;
}

/* Synchronized statistics are those of a micro-batch of all ranks. */
static kolo_status check_norms(const staged_step *t) {
    const int64_t global = t->batch->global_count;
    if (!t->s->opts.plan.sync_batch_norm ||
        equal_micro_batches(global, step_ranks(t->s), t->s->opts.batch)) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "a step of %" PRId64 " samples gives some of %" PRId64
                     " workers along dp no sample in a micro-batch, and its batch normalization is "
                     "synchronized: use fewer micro-batches, or omit --sync-bn",
                     global, (int64_t)step_ranks(t->s));
}

/* The micro-batches that have samples; then zeros for the others, and the update. */
static kolo_status run(staged_step *t, const cached *finish) {
    KOLO_TRY(check_norms(t));
    const int64_t full = t->batch->count < t->n ? t->batch->count : t->n;
    KOLO_TRY(find_plans(t, finish));
    if (full > 0) {
        KOLO_TRY(kolo_session_find_program(t->s, full));
        const kolo_program_job job = {.program = t->s->program,
                                      .stage = kolo_session_stage(t->s),
                                      .plans = t->compiled,
                                      .prepare = prepare,
                                      .arg = t};
        KOLO_TRY(kolo_program_run_stage(&job));
    }
    for (int64_t i = full; i < t->n; i++) {
        prepare(t, (int)i, false);
        KOLO_TRY(kolo_plan_skip(t->compiled[i], i == t->n - 1));
    }
    return full == t->n ? kolo_session_complete_step(finish, t->x) : KOLO_OK;
}

/* ---- logical shards ---- */

static void prepare_shard(void *arg, int i, bool forward) {
    const staged_step *t = arg;
    const kolo_session *s = t->s;
    const int k = s->first_shard + i;
    const int64_t count = kolo_session_shard_count(s, t->batch->global_count, k);
    const kolo_batch shard = kolo_batch_part(t->batch, k * s->opts.batch - t->batch->first, count);
    if (forward) kolo_session_feed(s, t->plans[i], &shard);
    kolo_session_set_scalars(t->plans[i], &shard, t->x, t->batch->global_count, true, k == 0);
    kolo_plan_begin_shard(t->compiled[i], k);
}

/* All stages compile the plan of the shard that is not full: also where it is on another place. */
static kolo_status find_shard_plans(staged_step *t, const cached *finish) {
    const int64_t size = t->s->opts.batch, rest = t->batch->global_count % size;
    const cached *shorter = finish;
    if (rest > 0) KOLO_TRY(kolo_session_get_plan(t->s, ADD, rest, rest, &shorter));
    for (int64_t i = 0; i < t->n; i++) {
        const int k = t->s->first_shard + (int)i;
        const bool full = kolo_session_shard_count(t->s, t->batch->global_count, k) == size;
        t->plans[i] = full ? finish : shorter;
        t->compiled[i] = t->plans[i]->plan;
    }
    return KOLO_OK;
}

/* The shards that have samples, then zeros for the others, and the update. */
static kolo_status run_shards(staged_step *t, const cached *finish) {
    KOLO_TRY(find_shard_plans(t, finish));
    if (t->n > 0) {
        KOLO_TRY(kolo_session_find_program(t->s, t->n));
        const kolo_program_job job = {.program = t->s->program,
                                      .stage = kolo_session_stage(t->s),
                                      .plans = t->compiled,
                                      .prepare = prepare_shard,
                                      .arg = t};
        KOLO_TRY(kolo_program_run_stage(&job));
    }
    for (int k = t->s->first_shard + (int)t->n; k < t->s->end_shard; k++) {
        kolo_plan_skip_shard(finish->plan, k);
    }
    KOLO_TRY(kolo_crossings_tie(finish->plan));
    return kolo_session_complete_step(finish, t->x);
}

static int64_t count_shards(const kolo_session *s, const kolo_batch *batch) {
    int64_t n = 0;
    for (int k = s->first_shard; k < s->end_shard; k++) {
        n += kolo_session_shard_count(s, batch->global_count, k) > 0;
    }
    return n;
}

/* ---- the step ---- */

kolo_status kolo_session_run_stage(kolo_session *s, const kolo_batch *batch,
                                   const kolo_step_scalars *x, const cached *finish) {
    const bool shards = s->opts.shards > 0;
    staged_step t = {.s = s, .batch = batch, .x = x};
    t.n = shards ? count_shards(s, batch) : micro_batches(s, batch->global_count);
    kolo_arena arena = {0};
    const size_t most = (size_t)t.n + 1;
    t.plans = kolo_arena_alloc(&arena, most * sizeof(cached *));
    t.compiled = kolo_arena_alloc(&arena, most * sizeof(kolo_plan *));
    kolo_status status = t.plans && t.compiled ? KOLO_OK : KOLO_NOMEM(most * sizeof(cached *));
    if (status == KOLO_OK) status = shards ? run_shards(&t, finish) : run(&t, finish);
    kolo_arena_fini(&arena);
    return status;
}
