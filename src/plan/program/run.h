#pragma once
/* Execution of a program on one stage. */

#include "plan/plan.h"
#include "plan/program/program.h"

typedef struct kolo_program_job {
    const kolo_program *program;
    int stage;
    kolo_plan *const *plans; /* by micro-batch; those of one size have the same */
    /* Sets the scalars of a micro-batch and, before its forward pass, fills the inputs. */
    void (*prepare)(void *arg, int micro_batch, bool forward);
    void *arg;
} kolo_program_job;

/* Makes the communicators that the plans of all stages use, in one order: of the axis pp, and of
 * each set of the others. Collective; the errors of kolo_mesh_comms_get. */
kolo_status kolo_program_make_groups(kolo_mesh_comms *groups, const kolo_mesh *mesh);
/* Runs the micro-batches of a step up to their accumulated gradients; kolo_plan_complete does the
 * rest. With logical shards, each a micro-batch, kolo_crossings_tie comes before that. Blocks;
 * PEER, TIMEOUT, NOMEM. */
kolo_status kolo_program_run_stage(const kolo_program_job *job);
/* Runs a plan of evaluation, whose inputs are set. Blocks; PEER, TIMEOUT. */
kolo_status kolo_program_evaluate(kolo_plan *plan);
