#pragma once
/* An owner of parameters in a run with parameter servers: a range of every parameter, its optimizer
 * state, and the plan that updates both.
 *
 * The plan is the training plan of a worker, of which the owner runs what follows the sums over the
 * ranks (plan/sums.h). With several owners it is that of ZeRO 3, whose ranks update ranges. So the
 * same nodes and kernels update parameters with and without servers. */

#include "train/session/division.h"
#include "train/session/learning_rate.h"

typedef struct kolo_owner kolo_owner;

typedef struct kolo_owner_opts {
    int index, owners;
    int working;  /* of the owners, the first ones, are workers: they share by kolo_byte_split */
    int hosts;    /* of workers that push together; 0: each pushes by itself */
    bool buckets; /* of the plan's bucket_bytes */
    /* Of a sum over any number of workers: they push gradients times their labels and statistics
     * times their samples, and the sums are divided by those of all. */
    bool weighted;
    /* Of rounds: workers push how far they have come, which is weighted by samples; the optimizer
     * is that of the outer update, and running statistics are averaged. */
    bool rounds;
    int64_t steps;          /* of each worker, made before */
    int workers, joins;     /* joins: that may come later */
    kolo_compression codes; /* of the gradients that are pushed */
    kolo_lr schedule;       /* of steps */
    /* Where each push is an update: of the delay of gradients, see docs/servers.md. 0: none. */
    double compensation;
    bool scale;  /* learning rates by staleness */
    bool adapts; /* the bound of workers: see docs/servers.md, auto */
    bool lease;  /* pushes of a worker are not its steps: the run is as far as all pushes are */
} kolo_owner_opts;

/* What a worker changes at all owners during a run: kolo_parameters_configure. */
typedef struct kolo_owner_settings {
    double lr;     /* of all updates from now on, in place of the schedule; 0: that */
    int64_t steps; /* of each worker, made so far; -1: they follow from its pushes */
} kolo_owner_settings;

/* Compiles a graph, of as many samples as the first plan of a worker, and takes ownership of it,
 * even on failure. `plan`: the options of a worker's plans. UNSUPPORTED: an update reads more
 * than a range of gradients and norms; the errors of kolo_plan_compile. */
kolo_status kolo_owner_create(kolo_graph *graph, const kolo_plan_opts *plan,
                              const kolo_owner_opts *opts, kolo_owner **owner);
void kolo_owner_destroy(kolo_owner *owner);
/* Appends what each owner has: a line with its bytes, and a line for each tensor. NOMEM. */
kolo_status kolo_owner_print(const kolo_owner *owner, kolo_text *text);
/* After kolo_owner_serve: the bytes of its parameters, their state, sums, and what workers have
 * read.
 */
size_t kolo_owner_bytes(const kolo_owner *owner);
/* What it and the other owners have. The caller frees it. NOMEM. */
kolo_status kolo_owner_divide(const kolo_owner *owner, kolo_division *division);
/* Completes the options of the parameters, which call the owner. `division` is borrowed. NOMEM. */
kolo_status kolo_owner_serve(kolo_owner *owner, const kolo_division *division,
                             kolo_parameters_opts *opts);
