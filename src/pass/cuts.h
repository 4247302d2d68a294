#pragma once
/* Where a model is cut into the parts of a pipeline.
 *
 * A *unit* is what is never cut: the nodes from one that is the first to read a parameter up to the
 * next such node. Its name is that of the parameter, which identifies it in all plans of a model,
 * whatever the batch and whether they train. Dynamic programming over the units makes the slowest
 * part, with what it exchanges, as fast as can be. */

#include "pass/pass.h"

/* What a unit costs. */
typedef struct kolo_unit {
    const char *name; /* NULL: of the nodes before the first parameter is read */
    double seconds; /* of a micro-batch, its forward and backward pass and its part of the update */
    double kept;    /* bytes of a micro-batch that the backward pass reads */
    double state;   /* bytes of parameters, in both banks, their gradients and optimizer state */
} kolo_unit;

typedef struct kolo_unit_costs {
    kolo_unit *units; /* in the order of the model */
    int n;
    double measured; /* the part of their seconds that is measured, not estimated: 0 to 1 */
    kolo_arena arena;
} kolo_unit_costs;

typedef struct kolo_cut_opts {
    kolo_parts parts;
    const kolo_unit_costs *costs; /* NULL: times are estimated from the costs of the nodes, and
                                     `most_bytes` has no effect */
    const double *speeds;         /* of the stages, relative; NULL: equal */
    const int *slots;             /* by part: micro-batches whose values it keeps; NULL: one */
    double most_bytes;            /* of a stage, for `kept` and `state`; 0: there is no limit */
} kolo_cut_opts;

/* What cuts are chosen by, with the memory of it. */
typedef struct kolo_cut_choice {
    kolo_graph *graph; /* the model, after the pass fold */
    kolo_unit_costs costs;
    kolo_cut_opts opts; /* points to the others */
    double speeds[KOLO_PARTS_MOST];
    int slots[KOLO_PARTS_MOST];
} kolo_cut_choice;
/* ARG: there is no room for this many parts. */
kolo_status kolo_parts_check(const kolo_parts *parts);
/* Zeroed is allowed. */
void kolo_cut_choice_fini(kolo_cut_choice *choice);
/* Appends the names of the cuts, a line each. The errors of kolo_pass_cuts. */
kolo_status kolo_cut_choice_make(const kolo_cut_choice *choice, kolo_text *lines);

/* Sets the speeds of the stages of a mesh, each that of its slowest worker; by_rank: of these. */
void kolo_stage_speeds(const kolo_mesh *mesh, const double *by_rank, double *speeds);

/* Sets, by node, the name of the unit that begins there, else NULL; `begins` has room for all
 * nodes. NOMEM. */
kolo_status kolo_find_units(const kolo_graph *g, const char **begins);

/* Decides where to cut, unless `cuts` has names; allocates these in `names`. Runs on the whole
 * graph, before it is sharded. ARG: fewer layers with parameters than parts, or no cut within
 * most_bytes; UNSUPPORTED: the costs are of another model; NOMEM. */
kolo_status kolo_pass_cuts(const kolo_graph *g, const kolo_cut_opts *opts, kolo_stage_cuts *cuts,
                           kolo_arena *names);
/* Sets, by stage, the seconds that its parts take, without what it exchanges, if the model is cut
 * so. With estimates the unit is not meaningful. The errors of kolo_pass_cuts. */
kolo_status kolo_cuts_seconds(const kolo_graph *g, const kolo_cut_opts *opts,
                              const kolo_stage_cuts *cuts, double *seconds);
/* Appends a line for each part that `g`, after the pass fold, is cut into; with costs also of what
 * the cuts by estimates would have taken. The errors of kolo_pass_cuts. */
kolo_status kolo_cuts_print(const kolo_graph *g, const kolo_cut_opts *opts, kolo_text *text);

/* ---- the costs of the units ---- */

/* Runs the passes of `opts` on the graph of a model and adds up by unit the seconds that the
 * selected kernels take, by the times of the tuner (kolo_tuner_time) or as estimated, and the bytes
 * of its values. Stages are left out: the mesh is that of one of them. The costs are for
 * kolo_unit_costs_fini. The errors of kolo_pipeline_run. */
kolo_status kolo_unit_costs_find(kolo_graph *g, const kolo_pipeline_opts *opts,
                                 kolo_unit_costs *costs);
void kolo_unit_costs_fini(kolo_unit_costs *costs);
/* The pass units: gives each node its unit, and the graph the units. NOMEM. */
kolo_status kolo_pass_units(kolo_graph *g);
