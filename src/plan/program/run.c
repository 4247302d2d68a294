/* The rows of a program, one after the other: passes wait for their messages. */
#include "plan/program/run.h"

#include "plan/chunk_inputs.h"
#include "plan/crossings.h"

#include <string.h>

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

static const int *slots_of(const kolo_program_job *job) {
    return job->program->stage[job->stage].slots;
}

static int slot_of(const kolo_plan *plan, const kolo_program_row *row) {
    KOLO_ASSERT(row->slot < plan->first_slot[row->chunk + 1] - plan->first_slot[row->chunk]);
    return plan->first_slot[row->chunk] + row->slot;
}

static kolo_status run_pass(const kolo_program_job *job, kolo_plan *plan,
                            const kolo_program_row *row) {
    static const kolo_step_segment segments[] = {
        [KOLO_PROGRAM_FORWARD] = KOLO_SEGMENT_FORWARD,
        [KOLO_PROGRAM_BACKWARD] = KOLO_SEGMENT_BACKWARD,
        [KOLO_PROGRAM_WEIGHTS] = KOLO_SEGMENT_WEIGHTS,
    };
    const bool forward = row->op == KOLO_PROGRAM_FORWARD;
    const bool gradient = row->op == KOLO_PROGRAM_BACKWARD;
    const int slot = slot_of(plan, row);
    if (row->op != KOLO_PROGRAM_WEIGHTS) {
        KOLO_TRY(kolo_crossings_wait(plan, slot, false, gradient));
        KOLO_TRY(kolo_crossings_wait(plan, slot, true, gradient));
    }
    plan->slot = slot;
    if (forward) {
        KOLO_TRY(kolo_crossings_copy(plan, row->chunk, row->micro_batch, slots_of(job), false));
    }
    job->prepare(job->arg, row->micro_batch, forward);
    KOLO_TRY(kolo_plan_run_segment(plan, segments[row->op], false));
    if (gradient) {
        KOLO_TRY(kolo_crossings_copy(plan, row->chunk, row->micro_batch, slots_of(job), true));
    }
    return kolo_comm_progress(plan->comm);
}

static kolo_status run_row(const kolo_program_job *job, const kolo_program_row *row) {
    kolo_plan *plan = job->plans[row->micro_batch];
    if (row->op < KOLO_PROGRAM_SEND) return run_pass(job, plan, row);
    return kolo_crossings_start(plan, slot_of(plan, row), row->op == KOLO_PROGRAM_SEND,
                                row->gradient);
}

kolo_status kolo_program_run_stage(const kolo_program_job *job) {
    const kolo_stage_program *s = &job->program->stage[job->stage];
    for (int i = 0; i < s->n_rows; i++) KOLO_TRY(run_row(job, &s->rows[i]));
    for (int i = 0; i < job->program->micro_batches; i++) {
        kolo_plan *plan = job->plans[i];
        for (int slot = 0; slot < plan->slots; slot++) {
            KOLO_TRY(kolo_crossings_wait(plan, slot, true, false));
            KOLO_TRY(kolo_crossings_wait(plan, slot, true, true));
        }
        plan->slot = i % s->slots[0]; /* of the first chunk, for the update */
    }
    return job->plans[0]->sum ? KOLO_OK : kolo_crossings_tie(job->plans[0]);
}

/* The inputs, which are set in the first slot, in that of each chunk. */
static void copy_inputs(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_INPUT || info->crossing.number > 0) continue;
        p->slot = 0;
        const void *from = kolo_plan_data(p, (kolo_value){.id = v});
        for (p->slot = 1; p->slot < p->slots; p->slot++) {
            if (!kolo_chunk_reads(p, (kolo_value){.id = v})) continue;
            memcpy(kolo_plan_data(p, (kolo_value){.id = v}), from,
                   kolo_tensor_bytes(&info->tensor));
        }
    }
    p->slot = 0;
}

kolo_status kolo_program_evaluate(kolo_plan *plan) {
    static const int slots[KOLO_CHUNKS_MOST] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    copy_inputs(plan);
    for (int chunk = 0; chunk < plan->chunks; chunk++) {
        plan->slot = chunk;
        KOLO_TRY(kolo_crossings_start(plan, chunk, false, false));
        KOLO_TRY(kolo_crossings_wait(plan, chunk, false, false));
        KOLO_TRY(kolo_crossings_copy(plan, chunk, 0, slots, false));
        KOLO_TRY(kolo_plan_run_segment(plan, KOLO_SEGMENT_FORWARD, false));
        KOLO_TRY(kolo_crossings_start(plan, chunk, true, false));
        KOLO_TRY(kolo_crossings_wait(plan, chunk, true, false));
    }
    plan->slot = 0;
    return kolo_plan_run_segment(plan, KOLO_SEGMENT_UPDATE, true);
}
