/* Evaluation of one batch. */
#include "plan/program/run.h"
#include "train/session/internal.h"

/* Runs the plan of a purpose for a checked batch. */
static kolo_status forward(kolo_session *s, const kolo_batch *batch, kolo_purpose use, int64_t key,
                           const cached **c) {
    KOLO_TRY(kolo_session_compile_forward(s, use, key, batch->count));
    KOLO_TRY(kolo_session_get_plan(s, use, key, batch->count, c));
    if (batch->count == 0) return kolo_plan_skip((*c)->plan, false);
    KOLO_TRY(kolo_plan_prepare((*c)->plan));
    if (s->pulled) {
        if (!s->tables) return KOLO_FAIL(KOLO_ERR_ARG, "the rows of tables are at servers");
        KOLO_TRY(kolo_tables_pull(s->tables, batch, s->field_of, false));
    }
    kolo_session_feed(s, *c, batch);
    kolo_plan_set_integer((*c)->plan, (*c)->first_sample, batch->first);
    s->evaluated = (*c)->plan;
    return kolo_session_stages(s) > 1 ? kolo_program_evaluate((*c)->plan)
                                      : kolo_plan_run((*c)->plan);
}

kolo_purpose kolo_session_predicts(const kolo_session *s) {
    return s->groups && kolo_mesh_divides_layers(&s->opts.plan.mesh) ? PREDICT : EVALUATE;
}

kolo_status kolo_session_forward(kolo_session *s, const kolo_batch *batch, int64_t key) {
    const cached *unused;
    return forward(s, batch, kolo_session_predicts(s), key, &unused);
}

kolo_status kolo_session_evaluate_split(kolo_session *s, const kolo_batch *batch, int64_t key,
                                        kolo_sums *sums) {
    KOLO_ASSERT(batch->count > 0 || evaluates_together(s));
    const cached *c;
    KOLO_TRY(kolo_session_check_batch(s, batch, kolo_session_evaluated(s)));
    KOLO_TRY(forward(s, batch, EVALUATE, key, &c));
    if (batch->count == 0) {
        *sums = (kolo_sums){0};
        return KOLO_OK;
    }
    *sums = kolo_session_read_sums(c, batch->count, kolo_session_count_labels(s, batch));
    return kolo_session_share_sums(s, sums);
}

kolo_status kolo_session_evaluate_batch(kolo_session *s, const kolo_batch *batch, kolo_sums *sums) {
    const int64_t key = kolo_session_data_key(s, batch->global_count, batch->count);
    return kolo_session_evaluate_split(s, batch, key, sums);
}

const float *kolo_session_output(const kolo_session *s, const char *name, kolo_tensor *tensor) {
    return s->evaluated ? kolo_plan_output(s->evaluated, name, tensor) : NULL;
}
