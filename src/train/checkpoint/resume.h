#pragma once
/* Resuming a run from a checkpoint. Rank 0 finds the file, compares the options of the run with
 * those of the job, and reads it; the other ranks receive everything by broadcast. */

#include "train/checkpoint/checkpoint.h"
#include "train/session/run_state.h"
#include "train/session/setup.h"

typedef struct kolo_resume {
    kolo_run_state state;       /* to continue from; zeroed in a new run */
    kolo_checkpoint checkpoint; /* rank 0's, open until it is loaded */
    int32_t order;              /* version of the order of samples; of a run that is resumed */
    char *tables;               /* rank 0's: file of the rows of tables; NULL: there are none */
    char *tuning;               /* rank 0's: file of the times that the run selected kernels by */
    char *compressed;           /* with --compress auto: what was chosen; NULL: nothing was yet */
    bool here;                  /* the checkpoint is in rank 0's out_dir */
} kolo_resume;

/* Opens the checkpoint setup->opts.resume, and makes the job select kernels by the file tuning.txt
 * beside it, if it exists. Without `resume`, or if there is no checkpoint and that is allowed, the
 * state stays zero. ARG: an option differs that affects more than rounding, but for the
 * learning rate; IO, FORMAT, UNSUPPORTED. Collective. */
kolo_status kolo_resume_open(kolo_setup *setup, kolo_comm *comm, kolo_resume *resume);
/* Loads parameters, optimizer state and the step into the session. Collective; no effect in a new
 * run. */
kolo_status kolo_resume_load(kolo_resume *resume, kolo_session *session, kolo_comm *comm);
/* Zeroed is allowed. */
void kolo_resume_close(kolo_resume *resume);
