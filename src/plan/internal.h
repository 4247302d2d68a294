#pragma once
/* The plan's own structures, shared by compile.c, run.c and dump.c. */

#include "pass/pass.h"
#include "plan/plan.h"
#include "plan/store.h"

typedef struct kolo_step {
    kolo_step_kind kind;
    int32_t node;       /* in the graph */
    int bucket;         /* POST, WAIT */
    bool once_per_step; /* runs in the last micro-batch of a step only */
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    void *state;        /* of the kernel */
    kolo_call calls[2]; /* by the store's current bank */
} kolo_step;

struct kolo_plan {
    kolo_graph *graph;
    kolo_store *store;       /* borrowed */
    kolo_comm *comm;         /* borrowed; NULL: no communication */
    kolo_request **requests; /* by bucket */
    bool train;
    bool accumulates;         /* over several micro-batches */
    const kolo_plan *adds_to; /* borrowed; NULL: its gradients are its own */
    kolo_memory_map map;
    int *entries;    /* by value id: of parameters and state, which entry of the store */
    char *gradients; /* registered, and so for ever where it is; NULL: the store's */
    char *table;
    size_t values_bytes, scratch_bytes; /* in the store's arena, scratch behind the values */
    kolo_step *steps;
    int n_steps;
    int bound_at; /* store->moves when the steps were bound */
    int ran_bank; /* the store's bank in the latest run */
    kolo_plan_observer observer;
    void *observer_arg;
};

/* Binds every step to the addresses as they are now. */
kolo_status kolo_plan_bind(kolo_plan *plan);
