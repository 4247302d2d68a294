#pragma once
/* A training session: one model on one rank of a group. It owns the parameters (the store) and the
 * compiled plans.
 *
 * Plans have fixed shapes, so there is one for each batch size, compiled when it is first needed:
 * the full batch, the last batch of an epoch, evaluation. Training plans contain collectives, which
 * all ranks must create in one order. They are therefore cached by the *global* batch size, which
 * all ranks agree on, and a rank's share of one global size must never change. Evaluation plans
 * contain no collectives and are cached by the local size.
 *
 * A step may split its share into micro-batches, whose gradients are summed; only the last one
 * communicates and updates. All ranks use the same number, the smallest that the largest share
 * allows. If a share does not divide evenly, the first micro-batches have one sample more and a
 * plan of their own.
 *
 * A reproducible session divides the global batch into L logical shards instead and deals them to
 * the ranks. All ranks run the plan of one shard, whose gradients, metrics and statistics are
 * summed along one tree (plan/plan.h): the bits of a step do not depend on the ranks. The last
 * batch of an epoch has full shards, one with the rest, for which there is a plan of its own, and
 * empty ones.
 *
 * Otherwise a rank without samples in a step or micro-batch (a short last batch) runs no forward
 * and backward pass: it adds zeros to every sum over the ranks.
 *
 * Not thread-safe: one thread at a time. */

#include "data/batch.h"
#include "data/safetensors/safetensors.h"
#include "kolo/session.h"
#include "kolo/table.h"
#include "pass/compression_plan.h"
#include "plan/plan.h"
#include "train/session/consistency.h"
#include "train/session/learning_rate.h"
#include "train/session/memory_check.h"
#include "train/session/metrics.h"

/* Embedding tables whose rows are at servers. */
typedef struct kolo_table_config {
    const char *names;                       /* patterns of parameters; NULL: none is */
    uint64_t seed;                           /* of initial values */
    int staleness;                           /* see kolo/parameters.h */
    bool outlives;                           /* the run goes on when a worker dies */
    int64_t bytes, admit, expire, expire_ms; /* see kolo/table.h */
    bool refuse;
    bool saved; /* while workers push */
} kolo_table_config;

/* Zero means the default. */
typedef struct kolo_session_config {
    const char *model, *model_options;
    const struct kolo_model *found; /* what `model` named; NULL: it is found by its name */
    kolo_build *build;              /* in place of a model of the zoo; see kolo/session.h */
    void *build_arg;
    kolo_shape sample; /* of the data set; rank 0: any field may fill an input */
    kolo_shape label;  /* of the labels of one sample, as in kolo/data.h */
    bool numeric;      /* labels are numbers, f32, not classes */
    int64_t classes;
    int64_t batch;        /* samples of this rank in a micro-batch; of a logical shard */
    int64_t accumulate;   /* micro-batches of a full step; default 1 */
    int64_t global_batch; /* samples of a step over all ranks; default batch x accumulate x ranks */
    int shards;           /* logical shards of a reproducible step; 0: none */
    const int *counts;    /* of shards, by place on dp; copied; NULL: equal ones */
    int64_t short_shard;  /* samples of the shorter shard of the last batch; 0: there is none */
    const struct kolo_program_schedule *schedule; /* of the stages of a pipeline; NULL: 1f1b */
    int chunks;                                   /* parts of the model on a stage; 0: one */
    const double *speeds;       /* of the workers, by rank, for the cuts of a pipeline; copied;
                                   NULL: equal */
    int64_t stage_bytes;        /* memory of a stage, at most; 0: there is no limit */
    int64_t rebalance;          /* steps of a window, see kolo_session_rebalance; 0: none */
    const double *stage_speeds; /* instead of those measured in a window; borrowed */
    const char *device;         /* see kolo_train_opts; a session has its kind alone */
    int loader_threads;         /* of a host, see kolo_train_opts */
    bool evaluate_only;         /* forward pass alone: no gradients, optimizer or collectives */
    bool two_versions;          /* also a single rank updates as one of several: not in place */
    bool f64;                   /* the graph is of f64 */
    bool mixes;                 /* batches of training have mixed samples (data/mix.h) */
    kolo_consistency consistency;
    bool served;             /* owners of the parameters update them; see kolo_session_connect */
    bool no_local_aggregate; /* with bsp; see kolo_train_opts */
    bool needs_workers;      /* the loss of a worker ends the run under any policy of owners */
    kolo_compression
        codes; /* of the gradients that workers push; plan.compression compresses none */
    kolo_table_config tables; /* with `served` */
    bool measure_buckets;     /* of gradients, see kolo_session_choose_buckets */
    bool measure_compression; /* the same for the gradients that plan.compression is for; its `only`
                                 is "" until then */
    bool warms_up;            /* see kolo_session_end_warm_up */
    const kolo_compression_costs *costs; /* by these, borrowed; NULL: measured */
    bool share;          /* the ranks have the parameters in the same memory, if they can with equal
                            bits (share.h) */
    bool copies;         /* they have copies all the same: set by the session (share.h) */
    kolo_plan_opts plan; /* the session sets `train` and `share`, and copies `placement` */
} kolo_session_config;

/* Builds the model and compiles the plan of a full batch, which fixes the layout of every
 * parameter. Parameters are zero. `comm` is borrowed; NULL: a single rank. Collective: if one rank
 * fails, all fail. ARG: unknown model, or it does not accept these samples or options; NOMEM. */
kolo_status kolo_session_create_for(const kolo_session_config *opts, kolo_comm *comm,
                                    kolo_session **session);
/* The graph of a model as its builder makes it, for `batch` samples. ARG: the model does not accept
 * these samples, labels or options. */
kolo_status kolo_session_build(const kolo_session_config *opts, int64_t batch, kolo_graph **graph);

/* UNSUPPORTED if the session is in f64, of which there is no `what` ("loaders", "runs"). */
kolo_status kolo_session_check_f32(const kolo_session *session, const char *what);

/* Draws the parameters from `seed` on every rank, then broadcasts those of rank 0. Collective. */
kolo_status kolo_session_init(kolo_session *session, uint64_t seed);
/* Broadcasts what rank 0 has in the store, once it has written to it, and reads what the session
 * keeps of it. Collective. */
kolo_status kolo_session_share_values(kolo_session *session);

/* Compiles the plans of a step, or of the evaluation of a batch, of `global` samples of all ranks,
 * which the first such step or batch would do. Collective: all ranks fail with the same status.
 * After an error of the graph, such as of its builder, the session goes on. The errors of
 * kolo_plan_compile. */
kolo_status kolo_session_compile_step(kolo_session *session, int64_t global);
kolo_status kolo_session_compile_evaluation(kolo_session *session, int64_t global);

/* Sets the number of completed steps, on which per-step random draws and Adam's bias correction
 * depend, and the version of the order of samples (data/sampler.h). */
void kolo_session_set_steps(kolo_session *session, int64_t steps, int order);
/* That version: of the run that was loaded, or of new ones. */
int kolo_session_order(const kolo_session *session);

/* With measure_buckets or measure_compression: whether enough full steps have been measured to
 * choose the buckets of gradients, or what is compressed. */
bool kolo_session_has_measured_buckets(const kolo_session *session);
/* Then, between two steps: the ranks take the buckets, or compress the gradients, that rank 0 finds
 * the best by its times (pass/bucket_plan.h, pass/compression_plan.h), and compile their plans
 * anew: kolo_session_plan is another then. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_choose_buckets(kolo_session *session);
/* The parameters whose gradients were chosen to be compressed, "A,B"; NULL: none were chosen yet.
 */
const char *kolo_session_compressed(const kolo_session *session);
/* Whether the session has compiled its plans anew by one of these: a step from the initial values
 * is another then. */
bool kolo_session_is_replanned(const kolo_session *session);
/* Whether the session is in a warm-up (exchange.h): its steps are those of bsp, and nothing is
 * compressed yet. */
bool kolo_session_warms_up(const kolo_session *session);
/* Ends the warm-up, between two steps: ranks train on their own from now on, or with 1-bit Adam
 * second moments stay as they are and momenta are compressed. The ranks compile their plans anew:
 * kolo_session_plan is another then. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_end_warm_up(kolo_session *session);
/* Of a pipeline with `rebalance`: whether a window of this many steps has been measured since the
 * plans were compiled or the last window. Windows double when layers move back to the stages that
 * the move before has taken them from. */
bool kolo_session_has_measured_stages(const kolo_session *session);
/* Then, between two steps: moves layers to other stages if by these times the slowest stage will be
 * faster, with their parameters and optimizer state, and compiles the plans anew:
 * kolo_session_plan is another then. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_rebalance(kolo_session *session, bool *moved);
/* How often it has done so; and appends the parameters that the stages but the first begin with,
 * "A, B", with the predicted gain of the latest move, on rank 0. */
int kolo_session_stage_moves(const kolo_session *session);
void kolo_session_describe_stages(const kolo_session *session, bool gain, kolo_text *text);
/* Appends what was chosen: "1048576,400 (...)", "bf16,only=fc1.weight (...)". */
void kolo_session_describe_buckets(const kolo_session *session, kolo_text *text);

/* Where the latest step spent its time; INPUT: copying the batch. Valid as long as the session. */
const kolo_plan_times *kolo_session_times(const kolo_session *session);
/* How long this rank computed in the latest step with shards, without waits for others. */
int64_t kolo_session_busy_ns(const kolo_session *session);
/* Deals the shards anew: counts[place]. Between steps. Collective. ARG: other ranks have other
 * counts, or not all shards. */
kolo_status kolo_session_deal(kolo_session *session, const int *counts);
/* The shares of the samples of a batch, and which this rank has. Ranks that differ on the other
 * axes of the mesh only have the same. */
int kolo_session_data_ranks(const kolo_session *session);
int kolo_session_data_rank(const kolo_session *session);
/* This rank's loader threads, for kolo_loader_opts: its part of those of the host, which the ranks
 * of `comm` share; NULL: all of them. */
int kolo_session_loader_threads(const kolo_session *session, const kolo_comm *comm);
/* Whether this rank is the first of those that have the same samples. */
bool kolo_session_counts(const kolo_session *session);
/* Whether the steps have logical shards. */
bool kolo_session_is_reproducible(const kolo_session *session);
/* The shards of a place on dp, [*first, *end); none without logical shards. */
void kolo_session_shards(const kolo_session *session, int place, int *first, int *end);
/* Makes the next step an audited one: the gradient of each shard is computed by two ranks and
 * compared before it is summed. `other` is the batch of the shards of the next rank (after the
 * last: rank 0), valid until the step is done. All ranks must call it for the same step. The step
 * then returns PEER on all ranks if any two gradients differ, with the rank that was wrong;
 * parameters are those before the step. */
void kolo_session_audit(kolo_session *session, const kolo_batch *other);

kolo_store *kolo_session_store(const kolo_session *session);
/* The training plan of full batches. */
kolo_plan *kolo_session_plan(const kolo_session *session);
/* Calls `function` for each plan of training steps: those that are compiled, then each new one,
 * whose first step ends with its error. NULL: no longer. The errors of `function`. */
kolo_status kolo_session_watch_plans(kolo_session *session,
                                     kolo_status (*function)(void *arg, kolo_plan *plan),
                                     void *arg);
/* Whether the samples are tokens with a label each, which have a perplexity. */
bool kolo_session_has_tokens(const kolo_session *session);
/* Sets the schedule of the learning rate, and its value for step k. */
void kolo_session_set_schedule(kolo_session *session, kolo_lr schedule);
double kolo_session_lr_at(const kolo_session *session, int64_t k);
/* What a program created the session with (kolo/session.h), as options of a job; not resolved. */
const kolo_train_opts *kolo_session_options(const kolo_session *session);
/* What its plans are built from. */
const kolo_session_config *kolo_session_config_of(const kolo_session *session);
/* ARG: a field of the data set is missing or does not fit an input. */
kolo_status kolo_session_check_dataset(kolo_session *session, const kolo_dataset *dataset);
/* NULL: a single rank. */
kolo_comm *kolo_session_comm(const kolo_session *session);
/* Whether it makes steps, not evaluations alone. */
bool kolo_session_trains(const kolo_session *session);
/* Samples of a rank in a micro-batch. */
int64_t kolo_session_batch(const kolo_session *session);
/* Elements of all parameters. */
int64_t kolo_session_parameters(const kolo_session *session);

/* Owners of the parameters that a session connects to. */
typedef struct kolo_session_servers {
    int servers, replicas, joins; /* as in kolo_train_opts */
    kolo_memory_need need;        /* of this worker, but for `served` */
    const char *secret;           /* of a process that joins: the file of the job's secret */
    int64_t timeout_ms;           /* of a process that joins: deadline of each wait */
    int64_t
        updates; /* made before, as kolo_session_updates counts them; 0: follows from the steps */
} kolo_session_servers;

/* Where owners update the parameters (train/session/served.h), connects to them before the first
 * step. `status`: an error of this rank so far. The learning rates are those of the schedule.
 * Collective over `world`: all workers and servers. The errors of kolo_served_create. */
kolo_status kolo_session_connect(kolo_session *session, kolo_comm *world,
                                 const kolo_session_servers *servers, kolo_status status);
/* Replaces what the owners have by the session's parameters, optimizer state and learning rate on
 * rank 0, between two steps; nothing without owners. `updates`: made before, as
 * kolo_session_updates counts them; 0: follows from the steps. `steps`: of all workers from now on,
 * which the schedule follows; -1: each stays at its own. Collective; an error ends the session:
 * PEER, TIMEOUT, NOMEM. */
kolo_status kolo_session_assign(kolo_session *session, int64_t updates, int64_t steps);
/* Before this rank alone reads parameters or, if `state`, all ranks the optimizer state: with
 * owners, reads what they have now, the state once all workers have met; else completes the latest
 * step. Ranks that train on their own keep their parameters. PEER, TIMEOUT. */
kolo_status kolo_session_refresh(kolo_session *session, bool state);
/* ARG: a server, which has a session but no model, or a session that has ended after an error. */
kolo_status kolo_session_check_works(const kolo_session *session);
/* Appends what a process needs to join, for kolo_session_join. */
void kolo_session_describe_join(const kolo_session *session, kolo_text *text);
/* Connects the session of a process that joins. Fills its number among the workers. FORMAT: another
 * text; the errors of kolo_parameters_join. */
kolo_status kolo_session_join(kolo_session *session, const char *text,
                              const kolo_session_servers *servers, int *number);
/* Takes part from now on: kolo_parameters_enter. */
kolo_status kolo_session_enter(kolo_session *session, int64_t *end);
/* Updates that owners have made so far where these do not follow from the steps, as a worker
 * without samples causes none; else 0. Of the values that were pulled last. */
int64_t kolo_session_updates(const kolo_session *session);
/* With owners: see kolo_parameters_staleness. */
int kolo_session_staleness(const kolo_session *session);
/* The reads of this worker by staleness: adds them to counts[KOLO_STALENESS_BINS]. */
void kolo_session_count_reads(const kolo_session *session, uint64_t *counts);
/* The same of its gradients by delay. */
void kolo_session_count_delays(const kolo_session *session, uint64_t *counts);
/* Parts of this worker's pushes that it has sent during backward passes. */
uint64_t kolo_session_count_parts(const kolo_session *session);
/* The bytes that this worker has exchanged with other hosts for gradients and parameters. */
void kolo_session_count_bytes(const kolo_session *session, uint64_t *sent, uint64_t *received);
/* The steps of a worker that has died, as seen in the latest kolo_session_consolidate; -1: it has
 * not. The same on all other workers. */
int64_t kolo_session_lost(const kolo_session *session, int worker);
/* Whether this rank has found a server dead, whose part the replica has now. */
bool kolo_session_has_lost_server(const kolo_session *session, int server);

/* With tables at servers: what these have seen, zeros without; and the rows of all tables after
 * `steps` steps, as a file of tensors NAME.ids [n] and NAME.rows [n,C]. While no worker pushes. IO,
 * NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_table_stats(kolo_session *session, kolo_table_stats *stats);
kolo_status kolo_session_save_tables(kolo_session *session, const char *path, int64_t steps);
/* With tables: the next step begins to read the rows of this batch, which stays valid until the
 * step of the batch; and the reads that steps have taken so. */
void kolo_session_prefetch_rows(kolo_session *session, const kolo_batch *next);
uint64_t kolo_session_count_ahead(const kolo_session *session);
/* With tables, the files of checkpoints: see kolo_tables_copy_begin and kolo_tables_read. */
typedef struct kolo_tables_copy kolo_tables_copy;
bool kolo_session_has_tables(const kolo_session *session);
kolo_status kolo_session_copy_tables(kolo_session *session, const char *path, int64_t steps,
                                     kolo_tables_copy **copy);
kolo_status kolo_session_read_tables(kolo_session *session, const char *path);

/* Whether workers take their samples from one counter: lease L is the share of worker L % n in step
 * L / n, with n workers. */
bool kolo_session_leases(const kolo_session *session);
/* See kolo_parameters_ask and kolo_parameters_lease; no lease is -1. */
kolo_status kolo_session_ask(kolo_session *session, int64_t end);
kolo_status kolo_session_lease(kolo_session *session, int64_t *lease);
/* With owners: see kolo_parameters_stop, whose points are steps made. */
kolo_status kolo_session_stop(kolo_session *session, bool asks, int64_t *next, int64_t *at);
/* On all workers before another run of theirs: kolo_parameters_forget_stop. Nothing without owners.
 * Collective; PEER, TIMEOUT. */
kolo_status kolo_session_forget_stop(kolo_session *session);
/* As kolo_session_stop, of kolo_parameters_pause. */
kolo_status kolo_session_pause(kolo_session *session, bool asks, int64_t *next, int64_t *at);
/* Waits for all workers, and fills whether any rank has asked for the end, and whether any worker
 * has something to report, which all give or none: kolo_parameters_barrier. */
kolo_status kolo_session_barrier(kolo_session *session, bool *asked, bool *any);
/* Before a step on a lease: its random draws are those of step `step`. */
void kolo_session_seek(kolo_session *session, int64_t step);

/* While rank 0 alone runs a callback. */
void kolo_session_set_callback(kolo_session *session, bool runs);
/* ARG meanwhile, of several ranks: for what all of them call; and as kolo_session_check_works. */
kolo_status kolo_session_check_together(const kolo_session *session);
/* Before a session is destroyed because of an error, the last one: the ranks that wait for this one
 * in groups of a mesh, or at servers, get it. */
void kolo_session_fail(kolo_session *session, kolo_status status);

/* Whether a batch of a loader fits the model: ARG: it lacks a field, or has a label outside the
 * classes. Of this rank alone. `trains`: for a step, else for an evaluation. */
kolo_status kolo_session_check_loaded(kolo_session *session, const kolo_batch *batch, bool trains);
/* One optimizer step on a global batch of which `batch` is this rank's share; `sums` is over all
 * ranks. Collective. PEER, TIMEOUT: the group broke; parameters are those before the step. */
kolo_status kolo_session_step_batch(kolo_session *session, const kolo_batch *batch, double lr,
                                    kolo_sums *sums);

/* For evaluation, files and comparisons. Where ranks train on their own, saves the version of this
 * one and makes the parameters the mean over the ranks; with owners, reads their values and state,
 * when they have all gradients so far; otherwise does nothing. A collective must follow before the
 * next step. Collective. PEER, TIMEOUT. */
kolo_status kolo_session_consolidate(kolo_session *session);
/* Before that, for a file that a run goes on from, or for what owners are assigned: with owners,
 * reads the sum of the errors of all workers' codes. Collective. PEER, TIMEOUT. */
kolo_status kolo_session_consolidate_errors(kolo_session *session);
/* With owners, after kolo_session_consolidate: adds what other workers have done and no step of
 * this one has reported. */
void kolo_session_add_rest(kolo_session *session, kolo_sums *sums);
/* UNSUPPORTED, for `what` ("loading a file"): ranks train on their own, and have begun. */
kolo_status kolo_session_check_new(const kolo_session *session, const char *what);
/* Continues with the rank's own version, after kolo_session_consolidate or from a checkpoint. */
void kolo_session_restore_local(kolo_session *session);

/* Whether the ranks hold ranges of the parameters: all then evaluate each global batch, with their
 * share of it, if any. */
bool kolo_session_evaluates_together(const kolo_session *session);
/* Forward pass on `batch`, which has at least one sample unless ranks evaluate together; `sums` is
 * of this rank. */
kolo_status kolo_session_evaluate_batch(kolo_session *session, const kolo_batch *batch,
                                        kolo_sums *sums);
/* An output of the latest kolo_session_evaluate_batch, f32, such as "logits"; NULL if the model has
 * no such output. Valid until the next call for the session. */
const float *kolo_session_output(const kolo_session *session, const char *name,
                                 kolo_tensor *tensor);
/* Gives all stages of a pipeline the sum of a tensor that one of them has, as kolo_sum_tensor does
 * (agree.h). No effect without stages. Collective among the stages. */
kolo_status kolo_session_share_tensor(const kolo_session *session, double **data,
                                      kolo_shape *shape);
