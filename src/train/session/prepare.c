/* The inputs and scalars of the plans of a step. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/rng.h"
#include "train/session/internal.h"

/* The random-number key of the step, for dropout and masking. */
static int64_t step_key(const kolo_session *s) {
    const uint64_t step[] = {s->seed, s->steps};
    return (int64_t)kolo_hash_bytes(step, sizeof step);
}

kolo_step_scalars kolo_session_scalars(const kolo_session *s, double lr, kolo_label_count labels) {
    const double weight = labels.weight != 0 ? labels.weight : (double)labels.count;
    return (kolo_step_scalars){
        .lr = lr,
        .update = kolo_optimizer_number(&s->opts.plan.optimizer, s->steps + 1),
        .grad_scale = weight > 0 ? 1.0 / weight : 0, /* the loss is their mean */
        .rng_key = step_key(s),
    };
}

/* Sets the inputs and scalars of a plan for `part` of `samples` whose statistics are
 * summed. fresh, first: the first part of this rank, and of all ranks. */
void kolo_session_prepare(kolo_session *s, const cached *c, const kolo_batch *part,
                          const kolo_step_scalars *x, int64_t samples, bool fresh, bool first) {
    const int64_t begin = kolo_now_ns();
    kolo_session_feed(s, c, part);
    s->times.phase_ns[KOLO_PHASE_INPUT] += kolo_now_ns() - begin;
    kolo_session_set_scalars(c, part, x, samples, fresh, first);
}

void kolo_session_set_scalars(const cached *c, const kolo_batch *part, const kolo_step_scalars *x,
                              int64_t samples, bool fresh, bool first) {
    kolo_plan_set(c->plan, c->lr, x->lr);
    kolo_plan_set(c->plan, c->update, x->update);
    kolo_plan_set(c->plan, c->grad_scale, x->grad_scale);
    kolo_plan_set_integer(c->plan, c->rng_key, x->rng_key);
    kolo_plan_set_integer(c->plan, c->first_sample, part->first);
    kolo_plan_set(c->plan, c->share, (double)part->count / (double)samples);
    kolo_plan_set(c->plan, c->sample_weight, 1 / (double)samples);
    kolo_plan_set(c->plan, c->rank_weight, 1 / (double)part->count);
    kolo_plan_set(c->plan, c->fresh, fresh);
    kolo_plan_set(c->plan, c->once, first);
}

/* Samples of shard k. */
int64_t kolo_session_shard_count(const kolo_session *s, int64_t global, int k) {
    return kolo_max_i64(kolo_min_i64(s->opts.batch, global - k * s->opts.batch), 0);
}

/* Prepares the plan for shard k, which has samples, of a batch that contains it. */
kolo_status kolo_session_prepare_shard(kolo_session *s, const kolo_batch *batch, int k,
                                       const kolo_step_scalars *x, const cached *finish,
                                       const cached **c) {
    int64_t size = s->opts.batch, count = kolo_session_shard_count(s, batch->global_count, k);
    kolo_batch shard = kolo_batch_part(batch, k * size - batch->first, count);
    *c = finish;
    if (count != size) KOLO_TRY(kolo_session_get_plan(s, ADD, count, count, c));
    kolo_session_prepare(s, *c, &shard, x, batch->global_count, true, k == 0);
    return KOLO_OK;
}

int kolo_session_shard_rounds(const kolo_session *s, int place) {
    int most = 0;
    for (int p = 0; p < data_ranks(s) && gathers_parameters(s); p++) {
        most = s->counts[p] > most ? s->counts[p] : most;
    }
    return gathers_parameters(s) ? most : s->counts[place];
}

static void set_update(const cached *finish, const kolo_step_scalars *x) {
    kolo_plan_set(finish->plan, finish->lr, x->lr);
    kolo_plan_set(finish->plan, finish->update, x->update);
}

kolo_status kolo_session_follow(const kolo_session *s, const cached *finish,
                                const kolo_step_scalars *x, bool complete) {
    if (!gathers_parameters(s)) return KOLO_OK;
    set_update(finish, x);
    return kolo_plan_follow(finish->plan, complete);
}

kolo_status kolo_session_complete_step(const cached *finish, const kolo_step_scalars *x) {
    set_update(finish, x);
    return kolo_plan_complete(finish->plan);
}

void kolo_session_count_communication(kolo_session *s, int64_t begin_ns) {
    const int64_t ns = kolo_now_ns() - begin_ns;
    if (!s->comm) return;
    s->times.phase_ns[KOLO_PHASE_SYNCHRONIZE] += ns;
    s->times.communication_ns += ns;
}
