/* The rows of a program, one after the other: passes wait for their messages. */
#include "plan/program_run.h"

#include "plan/crossings.h"

kolo_status kolo_program_make_groups(kolo_mesh_comms *groups, const kolo_mesh *mesh) {
    const kolo_axes stages = (kolo_axes)1 << kolo_mesh_find(mesh, "pp");
    kolo_axes several = 0; /* axes of more than one rank */
    for (int a = 0; a < mesh->n_axes; a++) several |= (kolo_axes)(mesh->axes[a].size > 1) << a;
    for (kolo_axes axes = 0; axes <= several; axes++) {
        kolo_comm *unused;
        const bool used = (axes & ~several) == 0 && (!(axes & stages) || axes == stages);
        if (used) KOLO_TRY(kolo_mesh_comms_get(groups, axes, &unused));
    }
    return KOLO_OK;
}

static kolo_status run_pass(const kolo_program_job *job, kolo_plan *plan,
                            const kolo_program_row *row) {
    static const kolo_step_segment segments[] = {
        [KOLO_PROGRAM_FORWARD] = KOLO_SEGMENT_FORWARD,
        [KOLO_PROGRAM_BACKWARD] = KOLO_SEGMENT_BACKWARD,
        [KOLO_PROGRAM_WEIGHTS] = KOLO_SEGMENT_WEIGHTS,
    };
    const bool gradient = row->op == KOLO_PROGRAM_BACKWARD;
    if (row->op != KOLO_PROGRAM_WEIGHTS) {
        KOLO_TRY(kolo_crossings_wait(plan, row->slot, false, gradient));
        KOLO_TRY(kolo_crossings_wait(plan, row->slot, true, gradient));
    }
    plan->slot = row->slot;
    job->prepare(job->arg, row->micro_batch, row->op == KOLO_PROGRAM_FORWARD);
    KOLO_TRY(kolo_plan_run_segment(plan, segments[row->op]));
    return kolo_comm_progress(plan->comm);
}

static kolo_status run_row(const kolo_program_job *job, const kolo_program_row *row) {
    kolo_plan *plan = job->plans[row->micro_batch];
    if (row->op < KOLO_PROGRAM_SEND) return run_pass(job, plan, row);
    return kolo_crossings_start(plan, row->slot, row->op == KOLO_PROGRAM_SEND, row->gradient);
}

kolo_status kolo_program_run_stage(const kolo_program_job *job) {
    const kolo_stage_program *s = &job->program->stage[job->stage];
    for (int i = 0; i < s->n_rows; i++) KOLO_TRY(run_row(job, &s->rows[i]));
    for (int i = 0; i < job->program->micro_batches; i++) {
        for (int slot = 0; slot < job->plans[i]->slots; slot++) {
            KOLO_TRY(kolo_crossings_wait(job->plans[i], slot, true, false));
            KOLO_TRY(kolo_crossings_wait(job->plans[i], slot, true, true));
        }
    }
    return kolo_crossings_tie(job->plans[0]);
}

kolo_status kolo_program_evaluate(kolo_plan *plan) {
    KOLO_TRY(kolo_crossings_start(plan, 0, false, false));
    KOLO_TRY(kolo_crossings_wait(plan, 0, false, false));
    KOLO_TRY(kolo_plan_run(plan));
    KOLO_TRY(kolo_crossings_start(plan, 0, true, false));
    return kolo_crossings_wait(plan, 0, true, false);
}
