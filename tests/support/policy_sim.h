#pragma once
/* Workers and an owner of parameters in virtual time: the owner is the library's, and nothing takes
 * time but the steps of the workers. */

#include "kolo/parameters.h"

/* Changes of the bound, where it adapts. */
enum { POLICY_SIM_CHANGES = 64 };

typedef struct policy_sim {
    /* What is simulated. `update`, `observe` and clocks are the simulation's. */
    kolo_parameters_opts opts;
    int workers, steps;  /* steps of each worker */
    const double *units; /* [steps * workers]: the seconds of step k of worker w: k * workers + w */
    uint64_t target;     /* gradients that are applied at the end; 0: all */
    double (*loss)(double seconds); /* of a gradient that is applied then; NULL: there are none */
    /* What came of it. */
    double seconds; /* until the target, or until all workers have finished */
    uint64_t applied;
    struct {
        double seconds; /* when the first worker had learned it */
        int staleness;
    } changes[POLICY_SIM_CHANGES];
    int n_changes;
} policy_sim;

/* Runs it; fails the test, or ends a program, on an error. */
void policy_sim_run(policy_sim *sim);
