#pragma once
/* A trained model from a file and the data set that it is to run on, for evaluation and
 * prediction. */

#include "train/checkpoint/checkpoint.h"
#include "train/session/setup.h"

typedef struct kolo_trained {
    kolo_eval_opts opts;        /* resolved */
    kolo_checkpoint checkpoint; /* not open if the options name the model */
    kolo_dataset *dataset;
    kolo_setup setup; /* input of tuning */
    kolo_session *session;
    char name[128]; /* "mlp:hidden=4"; cut off if it is longer */
} kolo_trained;

/* Opens the file and the data set, and creates the session. Collective; an error on one rank fails
 * on all. Close it in any case; zeroed is allowed. The errors of kolo_evaluate. */
kolo_status kolo_trained_open(const kolo_eval_opts *opts, kolo_comm *comm, kolo_trained *t);
void kolo_trained_close(kolo_trained *t);
