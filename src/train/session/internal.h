#pragma once
/* A session, as the files of this folder that implement it see it. */

#include "base/integer.h"
#include "base/rng.h"
#include "data/normalize.h"
#include "data/sampler.h"
#include "plan/rounds.h"
#include "train/session/model_check.h"
#include "train/session/served.h"
#include "train/session/session.h"

#include <string.h>

typedef enum kolo_purpose {
    FINISH,   /* a step, or its last micro-batch: global samples are the key */
    ADD,      /* an earlier micro-batch of another size than the last: global samples */
    EVALUATE, /* local samples; where ranks evaluate together, a hash of those of all places */
    PREDICT,  /* the same, with outputs of which the ranks of a mesh have slices */
} kolo_purpose;

/* Numbers of kolo_sums that ranks which train on their own add up in each step. */
enum { KOLO_SESSION_SUMS = KOLO_MAX_METRICS + 3 };

/* What a rank has passed to a step: the number of samples, below 0 if it failed, and a hash. */
typedef struct kolo_given_batch {
    int64_t count;
    uint64_t hash;
} kolo_given_batch;

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
    kolo_value lr, update, grad_scale, rng_key, first_sample, share, sample_weight, rank_weight,
        fresh, once;
    kolo_value metrics[KOLO_MAX_METRICS]; /* scalar outputs, by row of the table */
} cached;

/* The inputs that an output of the graph depends on: bit i, input i. */
typedef struct kolo_needs {
    char *output;
    uint32_t inputs;
} kolo_needs;
_Static_assert(KOLO_MAX_FIELDS <= 32, "a bit for each input");

/* The measurement of when gradients are complete, in plans with a bucket for each. */
typedef struct kolo_bucket_search {
    bool measures; /* the plans are such */
    int steps;     /* measured */
    kolo_ready_gradient *gradients;
    int n;
    kolo_sum_time sum;
    size_t *sizes; /* chosen */
    kolo_compression_costs costs;
    double end_ms[2]; /* on rank 0: predicted without compression, and with that chosen */
    char *compressed; /* chosen: parameters whose gradients are compressed, "A,B" */
    double seconds;   /* that the measurement of sums and the choice took */
} kolo_bucket_search;

/* Of a pipeline: the steps since its plans were compiled, whose times decide on other cuts. */
typedef struct kolo_stage_window {
    int64_t steps, ns; /* of this rank, that it computed */
    int moves;
    int returns;   /* moves back to the cuts that the move before had left: each doubles windows */
    uint64_t left; /* a hash of these */
    double gain;   /* predicted on rank 0, of the latest move */
} kolo_stage_window;

struct kolo_session {
    kolo_session_config opts; /* strings are copied */
    char *model, *model_options;
    kolo_field inputs[KOLO_MAX_FIELDS]; /* of the graph; the first plan owns the names */
    int n_inputs;
    int field_of[KOLO_MAX_FIELDS]; /* by input, of the current batch; -1: zeros fill it */
    kolo_comm *comm;
    kolo_mesh_comms *groups; /* of a mesh with other axes than dp; else NULL */
    kolo_device *device;
    kolo_store *store;
    kolo_rounds *rounds;          /* ranks train on their own between these; NULL: they do not, or
                                     not yet */
    kolo_served *served;          /* the exchange with owners of parameters; NULL: there are none */
    kolo_comm *own_comm;          /* `comm`, if the session has split it; else NULL */
    bool is_server;               /* it has owners alone: no comm, store and plans */
    bool ended;                   /* with owners: by an error */
    kolo_tables *tables;          /* of `served`; NULL: there are none */
    uint32_t pulled;              /* inputs that are rows of tables at servers, a bit each */
    kolo_batch upcoming;          /* whose rows the next step reads ahead; count 0: none */
    kolo_plan_reported *reported; /* sums up what a step has computed, with rounds; NULL: none */
    void *reported_arg;
    kolo_plan_posted *posted;     /* pushes what the backward pass has completed to these */
    uint64_t seed, steps;         /* steps: completed */
    int64_t rollbacks;            /* of the store's steps, and not counted in `steps` any more */
    int order;                    /* version of the order of samples, for loaders */
    int first_shard, end_shard;   /* of this rank */
    int *counts;                  /* of shards, by place on dp; NULL: none */
    kolo_batch audited;           /* by this rank in the next step; global_count 0: none */
    kolo_label_rule rule;         /* the labels that count */
    char *label_weights;          /* a copy of its name of a parameter; NULL: none */
    double *of_class;             /* what that has (kolo_session_refresh_labels) */
    kolo_plan_times times;        /* of the latest step, with the copies of its inputs */
    int64_t busy_ns;              /* in the latest step with shards */
    const kolo_plan *evaluated;   /* the plan that evaluated last */
    const kolo_plan *trained;     /* the plan that completed the latest step */
    kolo_needs *needs;            /* of the outputs */
    struct kolo_program *program; /* of the latest step of a pipeline; NULL: none yet */
    int n_needs;
    kolo_lr schedule;
    kolo_train_opts job;       /* what a program gave; strings that it has are copies */
    char mesh[KOLO_MESH_TEXT]; /* this */
    char *patterns[4];         /* strings of the optimizer and of `compression` */
    char *exchanges[2];        /* strings of `job`: consistency, compress */
    char *placement;           /* rules of the mesh; NULL: the built-in ones */
    double *speeds;            /* of the workers of a pipeline; NULL: equal */
    double fixed_lr;           /* in place of the schedule; 0: none */
    kolo_given_batch *given;   /* room for those of all ranks */
    bool in_callback;          /* of rank 0 alone: nothing is collective */
    kolo_status (*watch)(void *arg, kolo_plan *plan); /* of new plans; may be NULL */
    void *watch_arg;
    cached **plans;
    size_t n_plans, cap_plans;
    int64_t sizes[16]; /* the latest ones of steps, over all ranks, whose plans all have compiled */
    size_t n_sizes;    /* so far */
    bool refused;      /* by all ranks: what one of them could not compile */
    bool consolidated; /* with `rounds`: the parameters are the mean; this rank's own are saved */
    bool replanned;    /* by measurements, or after a warm-up */
    kolo_bucket_search buckets;
    kolo_stage_window window;
};

/* Finds the field of each input in `inputs`, a bit each; the others are filled with zeros. */
kolo_status kolo_session_check_batch(kolo_session *s, const kolo_batch *batch, uint32_t inputs);
/* The inputs that evaluation reads, a bit each. */
uint32_t kolo_session_evaluated(const kolo_session *s);
/* The purpose of the plan of predictions. */
kolo_purpose kolo_session_predicts(const kolo_session *s);
/* Runs that plan for a checked batch; s->evaluated then has its outputs, on a mesh what this rank
 * has of them. */
kolo_status kolo_session_forward(kolo_session *s, const kolo_batch *batch, int64_t key);
/* An error in what the ranks of a mesh compute together: its groups get it. Returns `status`. */
kolo_status kolo_session_end(kolo_session *s, kolo_status status);

static inline int ranks_of(const kolo_session *s) { return s->comm ? kolo_comm_size(s->comm) : 1; }
static inline int rank_of(const kolo_session *s) { return s->comm ? kolo_comm_rank(s->comm) : 0; }

static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The coordinate of this rank on the axis dp of the mesh, and its size. */
static inline int data_ranks(const kolo_session *s) {
    int dp = kolo_mesh_find(&s->opts.plan.mesh, "dp");
    return dp >= 0 ? s->opts.plan.mesh.axes[dp].size : ranks_of(s);
}
static inline int data_rank(const kolo_session *s) {
    int dp = kolo_mesh_find(&s->opts.plan.mesh, "dp");
    return dp >= 0 ? kolo_mesh_coordinate(&s->opts.plan.mesh, rank_of(s), dp) : rank_of(s);
}

/* Whether the ranks train on their own between rounds, from this step on. */
static inline bool trains_alone(const kolo_session *s) {
    return kolo_consistency_has_rounds(&s->opts.consistency) && !s->opts.warms_up;
}

/* The steps so far that a rank has made on its own. */
static inline int64_t own_steps(const kolo_session *s) {
    return (int64_t)s->steps - s->opts.consistency.warm_up;
}

/* Whether gradients go to owners of parameters, rather than what a round has changed. */
static inline bool pushes_gradients(const kolo_session *s) {
    return s->opts.served && !kolo_consistency_has_rounds(&s->opts.consistency);
}

/* Whether this rank is the first of those that have the same samples. */
static inline bool counts_samples(const kolo_session *s) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (strcmp(mesh->axes[a].name, "dp") == 0) continue;
        if (kolo_mesh_coordinate(mesh, rank_of(s), a) > 0) return false;
    }
    return true;
}

/* The same of the ranks that make a step together. */
static inline int step_ranks(const kolo_session *s) {
    const kolo_consistency *c = &s->opts.consistency;
    if (!kolo_consistency_is_alone(c) || s->opts.warms_up) return data_ranks(s);
    return c->group > 1 ? (int)c->group : 1;
}
static inline int step_rank(const kolo_session *s) { return data_rank(s) % step_ranks(s); }

/* Micro-batches of a step: as many as the largest share needs, the same on all its ranks. */
static inline int64_t micro_batches(const kolo_session *s, int64_t global) {
    return divide_up(divide_up(global, step_ranks(s)), s->opts.batch);
}

/* Samples of the plan of full batches on the one of `ranks` that has most: layouts of parameters
 * are chosen for them, on all ranks and servers alike. */
static inline int64_t most_samples(const kolo_session_config *config, int64_t ranks) {
    const int64_t share = divide_up(config->global_batch, ranks);
    return share / divide_up(share, config->batch);
}

/* Whether in a step of `global` samples each of `ranks` has as many micro-batches with samples, of
 * up to `batch` of them: then they agree in the order of what stages exchange among these ranks. */
static inline bool equal_micro_batches(int64_t global, int64_t ranks, int64_t batch) {
    const int64_t least = global / ranks, most = divide_up(global, ranks);
    return least == most || divide_up(most, batch) <= least;
}

/* Samples of all ranks in micro-batch i of `parts`. Shares have one of two sizes (data/sampler.h).
 */
static inline int64_t micro_global(const kolo_session *s, int64_t global, int64_t parts,
                                   int64_t i) {
    int64_t ranks = step_ranks(s), larger = global % ranks, share = global / ranks;
    if (parts == 1) return global;
    return larger * kolo_part_count(share + 1, parts, i) +
           (ranks - larger) * kolo_part_count(share, parts, i);
}

/* Whether all ranks gather parameters in every micro-batch. */
static inline bool gathers_parameters(const kolo_session *s) {
    return ranks_of(s) > 1 && kolo_plan_level(&s->opts.plan) > 2;
}

/* Whether ranks take part in each other's evaluation: each has a range of the parameters. */
static inline bool evaluates_together(const kolo_session *s) {
    return gathers_parameters(s) ||
           (ranks_of(s) > 1 && kolo_mesh_has_model_axis(&s->opts.plan.mesh));
}

/* Whether checkpoints have the errors of codes that are pushed. */
static inline bool keeps_residuals(const kolo_session *s) {
    return s->opts.served && kolo_compresses(&s->opts.codes);
}

/* Those of each worker; else their sum, which owners add up: other policies than bsp outlive
 * workers, without which no communicator is left to write checkpoints with. */
static inline bool keeps_own_residuals(const kolo_session *s) {
    return keeps_residuals(s) && s->opts.consistency.kind == KOLO_CONSISTENCY_BSP;
}

/* plan_cache.c */
/* The plan for a purpose and key; NULL: not compiled yet. */
const cached *kolo_session_find_plan(const kolo_session *s, kolo_purpose use, int64_t key);
/* The same, compiled if it is missing. `local`: samples of this rank, which a key determines. */
kolo_status kolo_session_get_plan(kolo_session *s, kolo_purpose use, int64_t key, int64_t local,
                                  const cached **found);
void kolo_session_destroy_plans(kolo_session *s);
/* What any rank cannot compile is refused by all, before any of them waits for another: `status` is
 * this rank's so far. Collective. */
kolo_status kolo_session_refuse_together(void *session, kolo_status status);

/* session.c */
/* Compiles the plan of a forward pass of `samples` of this rank, if it is missing. Collective where
 * ranks evaluate together: all then fail with the same status, and go on after an error of the
 * graph. The errors of kolo_plan_compile. */
kolo_status kolo_session_compile_forward(kolo_session *s, kolo_purpose use, int64_t key,
                                         int64_t samples);

/* data_split.c */
/* The key of the plan that evaluates a batch of `global` samples of a data set, of which this rank
 * has `samples`. */
int64_t kolo_session_data_key(const kolo_session *s, int64_t global, int64_t samples);
/* This rank's samples of a batch of a data set. */
int64_t kolo_session_data_share(const kolo_session *s, int64_t global);
/* Where ranks evaluate together, a plan is found by the samples of every place on dp: adds those of
 * the next place to the key. It begins as 0. */
static inline int64_t add_place(int64_t key, int64_t samples) {
    const int64_t both[] = {key, samples};
    return (int64_t)kolo_hash_bytes(both, sizeof both);
}

/* forward.c */
/* kolo_session_evaluate_batch with a batch of any split. */
kolo_status kolo_session_evaluate_split(kolo_session *s, const kolo_batch *batch, int64_t key,
                                        kolo_sums *sums);

/* buckets.c */
/* After a step: adds its times. */
kolo_status kolo_session_measure_buckets(kolo_session *s, const cached *finish);

/* compression.c */
/* Chooses the gradients that are compressed, by what measure_buckets has measured. Collective;
 * NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_choose_compression(kolo_session *s);

/* session.c */
/* Compiles the plans anew, between two steps that leave nothing. Collective. */
kolo_status kolo_session_replan(kolo_session *s);

/* inputs.c */
/* Copies a checked batch into the inputs of a plan that its current pass reads. */
void kolo_session_feed(const kolo_session *s, const cached *c, const kolo_batch *batch);
/* Labels that count, and the weight that they have where the model weights classes, else 0: as in
 * kolo_sums. */
typedef struct kolo_label_count {
    int64_t count;
    double weight;
} kolo_label_count;
/* Reads the weights of the classes from the store, once it has others. Collective. */
kolo_status kolo_session_refresh_labels(kolo_session *s);
/* Those of this rank's batch. */
kolo_label_count kolo_session_count_labels(const kolo_session *s, const kolo_batch *batch);
/* Those of the global batch: the loss is the mean over them. Collective. */
kolo_status kolo_session_sum_labels(const kolo_session *s, const kolo_batch *batch,
                                    kolo_label_count *labels);
/* The metrics that the plan computed. */
kolo_sums kolo_session_read_sums(const cached *c, int64_t samples, kolo_label_count labels);

/* prepare.c */
/* What the plans of a step have in common. */
typedef struct kolo_step_scalars {
    double lr, update, grad_scale;
    int64_t rng_key;
} kolo_step_scalars;
kolo_step_scalars kolo_session_scalars(const kolo_session *s, double lr, kolo_label_count labels);
/* Sets the inputs and scalars of a plan for `part` of `samples` whose statistics are summed. fresh,
 * first: the first part of this rank, and of all ranks. */
void kolo_session_prepare(kolo_session *s, const cached *c, const kolo_batch *part,
                          const kolo_step_scalars *x, int64_t samples, bool fresh, bool first);
/* The same without the inputs. */
void kolo_session_set_scalars(const cached *c, const kolo_batch *part, const kolo_step_scalars *x,
                              int64_t samples, bool fresh, bool first);
/* Samples of shard k. */
int64_t kolo_session_shard_count(const kolo_session *s, int64_t global, int k);
/* Prepares the plan for shard k, which has samples, of a batch that contains it. */
kolo_status kolo_session_prepare_shard(kolo_session *s, const kolo_batch *batch, int k,
                                       const kolo_step_scalars *x, const cached *finish,
                                       const cached **c);
/* How often a rank of a place on dp computes a shard in a step, or follows the others: as often as
 * it has shards or, if all ranks gather parameters in each, as the place with most shards. */
int kolo_session_shard_rounds(const kolo_session *s, int place);
/* Instead of computing a shard: takes part in what the others gather, if they do. `complete`:
 * and in the rest of the step. PEER, TIMEOUT. */
kolo_status kolo_session_follow(const kolo_session *s, const cached *finish,
                                const kolo_step_scalars *x, bool complete);
kolo_status kolo_session_complete_step(const cached *finish, const kolo_step_scalars *x);
/* Adds a blocking collective of the step, from begin_ns until now, to its times. */
void kolo_session_count_communication(kolo_session *s, int64_t begin_ns);

/* rebalance.c */
/* After a step: adds its times to the window. */
void kolo_session_count_window(kolo_session *s);

/* audited_step.c */
/* The step with shards, each computed by two ranks. */
kolo_status kolo_session_run_audited(kolo_session *s, const kolo_batch *batch,
                                     const kolo_step_scalars *x, const cached **finish);

/* micro_batches.c */
/* A step of the ranks that make it together, in micro-batches. */
kolo_status kolo_session_run_micro_batches(kolo_session *s, const kolo_batch *batch,
                                           const kolo_step_scalars *x, const cached **finish);

/* stages.c */
/* The stages of the pipeline that this rank is one of; 1: there is none. */
int kolo_session_stages(const kolo_session *s);
int kolo_session_stage(const kolo_session *s);
/* How the parts of the model lie on the stages. */
kolo_parts kolo_session_parts(const kolo_session *s);
/* stage_cuts.c */
/* Decides where the stages begin, unless it is decided, for steps of `global` samples. Collective.
 */
kolo_status kolo_session_cut_stages(kolo_session *s, int64_t global);
/* ARG: the plan of a full batch needs more memory than a stage may have. */
kolo_status kolo_session_check_stage_memory(const kolo_session *s);

/* stages.c */
/* Makes the program for a number of micro-batches the current one. ARG, NOMEM. */
kolo_status kolo_session_find_program(kolo_session *s, int64_t micro_batches);
/* Gives all stages the metrics, each of which one stage has. Collective among the stages; PEER,
 * TIMEOUT. */
kolo_status kolo_session_share_sums(const kolo_session *s, kolo_sums *sums);

/* pipeline.c */
/* A step on a stage. `finish`: the plan that completes it. */
kolo_status kolo_session_run_stage(kolo_session *s, const kolo_batch *batch,
                                   const kolo_step_scalars *x, const cached *finish);

/* local_step.c */
/* A step of this rank alone, and the round that is due after it. Collective. */
kolo_status kolo_session_step_alone(kolo_session *s, const kolo_batch *batch, double lr,
                                    kolo_sums *sums);
/* Takes back the steps that the store has rolled back, as what they had deferred failed. */
void kolo_session_count_rollbacks(kolo_session *s);

/* served.c */
/* A step whose update the owners of the parameters make. */
kolo_status kolo_session_step_served(kolo_session *s, const kolo_batch *batch, double lr,
                                     kolo_sums *sums);

/* served_rounds.c */
/* A step of this rank alone; the last one of a round pushes what the round has changed to the
 * owners, and reads the parameters of the next. */
kolo_status kolo_session_step_between(kolo_session *s, const kolo_batch *batch, double lr,
                                      kolo_sums *sums);
