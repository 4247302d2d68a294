#pragma once
/* A session, as the files of this folder that implement it see it. */

#include "data/normalize.h"
#include "train/session/model_check.h"
#include "train/session/session.h"

typedef enum kolo_purpose {
    FINISH,   /* a step, or its last micro-batch: global samples are the key */
    ADD,      /* an earlier micro-batch of another size than the last: global samples */
    EVALUATE, /* local samples */
} kolo_purpose;

/* A compiled plan, the format of its inputs, and the handles of what a step accesses. */
typedef struct cached {
    kolo_purpose purpose;
    int64_t key;
    int64_t local; /* this rank's samples; 0: a plan of one sample, of which no kernel runs */
    kolo_plan *plan;
    /* By input of the session. */
    kolo_value inputs[KOLO_MAX_FIELDS];
    kolo_image_order orders[KOLO_MAX_FIELDS];
    /* Scalars; KOLO_NONE where the graph does not use them. */
    kolo_value lr, update, grad_scale, rng_key, first_sample, share, sample_weight, fresh, once;
    kolo_value metrics[KOLO_MAX_METRICS]; /* scalar outputs, by row of the table */
} cached;

/* The inputs that an output of the graph depends on: bit i, input i. */
typedef struct kolo_needs {
    char *output;
    uint32_t inputs;
} kolo_needs;
_Static_assert(KOLO_MAX_FIELDS <= 32, "a bit for each input");

struct kolo_session {
    kolo_session_config opts; /* strings are copied */
    char *model, *model_options;
    kolo_field inputs[KOLO_MAX_FIELDS]; /* of the graph; the first plan owns the names */
    int n_inputs;
    int field_of[KOLO_MAX_FIELDS]; /* by input, of the current batch; -1: zeros fill it */
    kolo_comm *comm;
    kolo_store *store;
    uint64_t seed, steps;       /* steps: completed */
    int first_shard, end_shard; /* of this rank */
    int *counts;                /* of shards, by rank; NULL: none */
    kolo_batch audited;         /* by this rank in the next step; global_count 0: none */
    kolo_label_rule rule;       /* the labels that count */
    int64_t busy_ns;            /* in the latest step */
    const kolo_plan *evaluated; /* the plan that evaluated last */
    const kolo_plan *trained;   /* the plan that completed the latest step */
    kolo_needs *needs;          /* of the outputs */
    int n_needs;
    kolo_lr schedule;
    kolo_train_opts job; /* what a program gave, without strings */
    char *patterns[2];   /* strings of the optimizer */
    double fixed_lr;     /* in the place of the schedule; 0: none */
    int64_t *sizes;      /* room for a number of each rank */
    cached **plans;
    size_t n_plans, cap_plans;
};

/* Finds the field of each input in `inputs`, a bit each; the others are filled with zeros. */
kolo_status kolo_session_check_batch(kolo_session *s, const kolo_batch *batch, uint32_t inputs);
/* Runs the evaluation plan for a checked batch; kolo_session_output then has its outputs. */
kolo_status kolo_session_forward(kolo_session *s, const kolo_batch *batch);
