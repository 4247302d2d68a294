#pragma once
/* Going on with a run from one of its checkpoints. Rank 0 finds the file, holds what the run was
 * against what the job is, and reads it; the others get everything from rank 0. */

#include "train/checkpoint/checkpoint.h"
#include "train/session/run_state.h"
#include "train/session/setup.h"

typedef struct kolo_resume {
    kolo_run_state state;       /* where to go on; zeroed at the beginning of a run */
    kolo_checkpoint checkpoint; /* rank 0's, open until it is loaded */
    char *tuning;               /* rank 0's: the times that the run chose kernels by */
    bool here;                  /* rank 0's: the checkpoint is of the folder that the job writes */
} kolo_resume;

/* Finds the checkpoint that setup->opts.resume means and makes the job choose kernels by the file
 * tuning.txt beside it, where there is one. Without `resume`, or where there is nothing and that is
 * allowed, the progress stays zero. ARG, one line: the job differs from the run in more than what
 * changes no more than rounding; IO, FORMAT, UNSUPPORTED. Collective. */
kolo_status kolo_resume_open(kolo_setup *setup, kolo_comm *comm, kolo_resume *resume);
/* Gives the session the parameters, the optimiser's state and the step. Collective; nothing to do
 * at the beginning of a run. */
kolo_status kolo_resume_load(kolo_resume *resume, kolo_session *session, kolo_comm *comm);
/* A zeroed one is allowed. */
void kolo_resume_close(kolo_resume *resume);
