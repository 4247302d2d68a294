#pragma once
/* Parts of the set-up of a training job (setup.c). */

#include "plan/program/program.h"
#include "train/session/setup.h"

/* ARG: no model or data. */
kolo_status kolo_setup_check_names(const kolo_train_opts *opts);
/* Fills in defaults and checks ranges. ARG, UNSUPPORTED. */
kolo_status kolo_setup_resolve(const kolo_train_opts *given, int workers, kolo_train_opts *opts);

typedef struct kolo_strategy {
    kolo_consistency consistency;
    kolo_compression compression;
    bool measure_buckets, measure_compression;
    int n_bucket_sizes;
    const kolo_program_schedule *schedule; /* of the axis pp */
    int chunks;                            /* of each of its stages */
} kolo_strategy;

/* Reads "1,1,0.5", a number for each worker. ARG. */
kolo_status kolo_weights_parse(const char *text, int workers, double *weights);
/* Checks the number of blocks of tensor parallelism (kolo_train_opts) of a run on a mesh; NULL: of
 * one rank. ARG, UNSUPPORTED. */
kolo_status kolo_tp_blocks_check(int64_t blocks, const kolo_mesh *mesh);
/* Sets the mesh and its placement rules, and the strategy, from the resolved options. ARG, FORMAT,
 * IO; UNSUPPORTED: options that cannot be combined. */
kolo_status kolo_setup_choose_strategy(kolo_setup *setup, int workers, kolo_strategy *strategy);
