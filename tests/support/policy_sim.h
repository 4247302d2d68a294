#pragma once
/* Workers and an owner of parameters in virtual time: the owner is the library's, and nothing takes
 * time but the steps of the workers. */

#include "kolo/parameters.h"

/* Parameters of a simulation, and the gradients of workers; computing them takes no time in it. */
typedef struct policy_sim_model {
    size_t count;         /* numbers */
    const float *initial; /* [count] */
    /* The gradient [count] of the next samples of a worker at `values`; returns their mean loss. */
    double (*compute)(void *arg, int worker, const float *values, float *gradient);
    /* That of kolo_parameters_opts, in which a gradient is followed by its loss; returns whether
     * the simulation ends, `seconds` after its beginning. */
    bool (*update)(void *arg, double seconds, const kolo_parameters_update *update);
    void *arg;
} policy_sim_model;

/* Changes of the bound, where it adapts. */
enum { POLICY_SIM_CHANGES = 64 };

typedef struct policy_sim {
    /* What is simulated. `update`, `observe` and clocks are the simulation's. */
    kolo_parameters_opts opts;
    int workers, steps;  /* steps of each worker */
    const double *units; /* [steps * workers]: the seconds of step k of worker w: k * workers + w */
    uint64_t target;     /* gradients that are applied at the end; 0: all */
    double (*loss)(double seconds); /* of a gradient that is applied then; NULL: there are none */
    const policy_sim_model *model;  /* NULL: one number, to which each gradient adds 1 */
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
