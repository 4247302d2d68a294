/* The cuts of a pipeline. Rank 0 chooses them and all ranks take them: by measured times of layers
 * where there are any, by speeds of workers that are given, within the memory of a stage. */
#include "train/session/stage_cuts.h"

#include "plan/program/program.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

kolo_status kolo_session_unit_costs(const kolo_session_config *o, int64_t batch,
                                    kolo_unit_costs *costs) {
    kolo_graph *graph;
    kolo_plan_opts plan = o->plan;
    plan.train = true;
    plan.micro_batches = o->accumulate;
    if (plan.threads == 0) plan.threads = 1;
    const kolo_pipeline_opts passes = kolo_plan_passes(&plan);
    KOLO_TRY(kolo_session_build(o, batch, &graph));
    const kolo_status status = kolo_unit_costs_find(graph, &passes, costs);
    kolo_graph_destroy(graph);
    return status;
}

/* ---- the choice ---- */

/* Samples of the largest micro-batch of a step, on any rank. */
static int64_t largest_micro_batch(const kolo_session *s, int64_t global) {
    const int64_t share = divide_up(global, data_ranks(s));
    return kolo_max_i64(divide_up(share, micro_batches(s, global)), 1);
}

kolo_status kolo_session_open_choice(kolo_session *s, int64_t global, kolo_cut_choice *c) {
    const int64_t batch = largest_micro_batch(s, global);
    const bool costs = !s->opts.evaluate_only && (s->opts.plan.tuner || s->opts.stage_bytes > 0);
    *c = (kolo_cut_choice){
        .opts = {.parts = kolo_session_parts(s), .most_bytes = (double)s->opts.stage_bytes}};
    KOLO_TRY(kolo_parts_check(&c->opts.parts));
    KOLO_TRY(kolo_session_build(&s->opts, batch, &c->graph));
    KOLO_TRY(kolo_pass_fold(c->graph, true));
    if (costs) KOLO_TRY(kolo_session_unit_costs(&s->opts, batch, &c->costs));
    if (costs) c->opts.costs = &c->costs;
    if (!s->opts.evaluate_only) KOLO_TRY(kolo_session_find_program(s, micro_batches(s, global)));
    if (s->program) {
        kolo_program_part_slots(s->program, c->slots);
        c->opts.slots = c->slots;
    }
    if (s->opts.speeds) {
        kolo_stage_speeds(&s->opts.plan.mesh, s->opts.speeds, c->speeds);
        c->opts.speeds = c->speeds;
    }
    return KOLO_OK;
}

kolo_status kolo_session_cut_stages(kolo_session *s, int64_t global) {
    kolo_text lines = {0};
    kolo_status status = KOLO_OK;
    if (kolo_session_stages(s) <= 1 || kolo_store_cuts(s->store)->n > 0) return KOLO_OK;
    if (rank_of(s) == 0) {
        kolo_cut_choice c;
        status = kolo_session_open_choice(s, global, &c);
        if (status == KOLO_OK) status = kolo_cut_choice_make(&c, &lines);
        kolo_cut_choice_fini(&c);
    }
    status = kolo_share_text(s->comm, status, &lines);
    if (status == KOLO_OK) status = kolo_store_set_cuts(s->store, lines.text);
    kolo_text_fini(&lines);
    return status;
}

kolo_status kolo_session_check_stage_memory(const kolo_session *s) {
    static const double mib = 1 << 20;
    const int64_t most = s->opts.stage_bytes;
    if (most == 0 || s->opts.evaluate_only || kolo_session_stages(s) <= 1) return KOLO_OK;
    const kolo_plan_memory m = kolo_plan_memory_of(s->plans[0]->plan);
    const double bytes =
        (double)m.store + (double)m.gradients + (double)m.arena + (double)m.scratch;
    if (bytes <= (double)most) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "stage %d needs %.1f MiB (parameters and optimizer %.1f, gradients %.1f, values "
        "of a step %.1f), and --stage-memory is %.1f: give more, more stages, a "
        "smaller batch or --recompute full",
        kolo_session_stage(s), bytes / mib, (double)m.store / mib, (double)m.gradients / mib,
        (double)(m.arena + m.scratch) / mib, (double)most / mib);
}
