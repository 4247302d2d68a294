#pragma once
/* A plan: a compiled graph, as a flat array of steps over statically planned memory.
 *
 * Steps are KERNEL (run a kernel), POST (start the synchronization of a bucket of gradients) and
 * WAIT (wait for its completion). kolo_plan_run executes them without allocation, locks or system
 * calls other than blocking waits. Values that change per step (learning rate, gradient scale) are
 * scalars.
 *
 * A step is a transaction. Parameters and optimizer state are in a *store* with two banks: a
 * training plan reads one and writes the other, and the store switches to the new bank once the
 * step is complete. A failed step leaves the old bank unchanged. A single rank, whose steps cannot
 * fail, has one version of everything. So have tables with row-sparse updates, which follow the
 * last WAIT, after which a step cannot fail. Several plans (other batch sizes, evaluation) share
 * one store; the first plan chooses the layout of each parameter. They also share one arena and one
 * region of gradients: inputs and results of a plan are valid until another plan of the store runs
 * or is compiled.
 *
 * Plans and stores belong to one thread at a time. */

#include "device/device.h"
#include "graph/graph.h"
#include "kernel/kernel.h"
#include "kolo/comm.h"
#include "kolo/pass.h"
#include "kolo/phase.h"
#include "mesh/link.h"
#include "pass/pass.h"

/* ---- the store: parameters, optimizer state, and memory shared by its plans ---- */

typedef struct kolo_store kolo_store;

typedef struct kolo_store_entry {
    const char *name;
    kolo_value_kind kind; /* PARAM or STATE */
    kolo_tensor tensor;   /* in the layout of the store; its shape may split dimensions of canon */
    const int64_t *cuts;  /* of a flat shard: by rank, where its range of the elements in memory
                             begins, and their number; NULL: each rank has the whole tensor */
    int64_t first, count; /* the range of this rank; count: also of a slice */
    /* A slice of tensor parallelism: the tensor of this rank in the layout of the store, whose
     * whole is `tensor` in row-major order. mesh NULL: none. With cuts, of it or, in a pipeline, of
     * what the stage has, each rank along dp has a range. */
    kolo_tensor slice;
    const kolo_mesh *mesh;
    const kolo_placements *placements;
    int rank;            /* in the mesh */
    int unit, place;     /* see kolo_zero_cut */
    int versions;        /* of a LOCAL state: `tensor` is a stack of those of all ranks; else 0 */
    bool staged;         /* some stages of a pipeline have it, which is all of it; */
    bool elsewhere;      /* and this rank does not: count is 0 */
    bool copied;         /* an earlier stage has it too: what is read is that one's */
    const char *holders; /* "pp:0,1 tp:sharded0": the stages that have it, and its slices; NULL:
                            all ranks of a mesh have it, but for ranges of ZeRO */
    kolo_shape canon;    /* the shape in files */
    kolo_init init;
    const float *initial; /* instead of `init`; borrowed until kolo_store_init; NULL: none */
    bool single;          /* one version: updates overwrite it */
    /* Each rank updates a range, and what the others do is joined in place (zero.c); by rank, where
     * the ranges begin. NULL: it is not joined. */
    const int64_t *joins;
    size_t offset; /* in each bank, or in the memory of single or joined entries */
} kolo_store_entry;

/* The device is borrowed until the store is destroyed; NULL: the CPU. NOMEM. */
kolo_status kolo_store_create(kolo_device *device, kolo_store **store);
/* Keeps one version of every entry. For a single rank, whose steps cannot fail. Call it before the
 * first plan. */
void kolo_store_set_alone(kolo_store *store);
/* The ranks that have entries of their own, where no plan of the store communicates with them. */
void kolo_store_set_comm(kolo_store *store, kolo_comm *comm);
/* Sets where the parts of a pipeline begin, before the first plan, else that decides by estimates:
 * the names of kolo_stage_cuts, a line each. Ranks must give the same. NOMEM. */
kolo_status kolo_store_set_cuts(kolo_store *store, const char *lines);
/* These, once they are decided. */
const kolo_stage_cuts *kolo_store_cuts(const kolo_store *store);
/* Moves the entries and their values to a store of their own, *old, so that plans with other cuts
 * can add them anew. There are no plans. NOMEM: no change. */
kolo_status kolo_store_detach(kolo_store *store, kolo_store **old);
/* Gives the entries that plans have added since the values that `old` has: those of the same ranks
 * as before are copied, also where each rank has a version of its own now, the others gathered from
 * the ranks that had them, and with `ranges`, of ZeRO, all optimizer state. What `old` lacks stays
 * zero. Collective; fails on all ranks if it does on one. NOMEM, PEER, TIMEOUT. */
kolo_status kolo_store_take_over(kolo_store *store, kolo_store *old, bool ranges);
void kolo_store_destroy(kolo_store *store);
int kolo_store_count(const kolo_store *store);
const kolo_store_entry *kolo_store_entry_at(const kolo_store *store, int i);
const kolo_store_entry *kolo_store_find(const kolo_store *store, const char *name);
/* Whether ranks hold ranges or slices of it, or some nothing. */
bool kolo_store_entry_is_sharded(const kolo_store_entry *entry);
/* Bytes of an entry on this rank. */
size_t kolo_store_entry_bytes(const kolo_store_entry *entry);
/* The mesh whose stages or slices some entries are in, "dp=1,tp=2"; NULL: none. */
const char *kolo_store_mesh(const kolo_store *store);
/* Whether ranks hold ranges of some entries (kolo_pass_zero). */
bool kolo_store_is_sharded(const kolo_store *store);
/* The communicator of the ranks that hold the shards; NULL: nothing is sharded. Borrowed. */
kolo_comm *kolo_store_shard_comm(const kolo_store *store);
/* What an entry has in the current bank, in the layout of the store. Of another device than the CPU
 * it is copied to the host, to be read only until the next call; this one waits for that. If the
 * device fails, the contents are undefined, and kolo_store_check returns its error. */
void *kolo_store_data(const kolo_store *store, const kolo_store_entry *entry);
/* The error of the device, if it has failed. */
kolo_status kolo_store_check(const kolo_store *store);
/* Where it has, between runs: gives its error to the other ranks, which may wait for this one.
 * `comm` NULL: there are none. */
void kolo_store_abort_if_failed(const kolo_store *store, kolo_comm *comm);
/* Copies an entry to `canonical` in row-major order. Of a shard, the whole tensor: a collective
 * call of all ranks, which blocks; PEER, TIMEOUT, NOMEM. */
kolo_status kolo_store_read(const kolo_store *store, const kolo_store_entry *entry,
                            void *canonical);
/* The same of a tensor that the ranks hold as they do the parameter `entry` without ZeRO, such as
 * its gradient: `data` is this rank's slice, or the whole, as `is`; NULL: it has none. Of what the
 * mesh divides a collective call. */
kolo_status kolo_store_gather(const kolo_store *store, const kolo_store_entry *entry,
                              const kolo_tensor *is, const void *data, void *canonical);
/* Sets an entry in both banks from the whole tensor in row-major order; of a shard, the range of
 * this rank. Rank 0 writes shared entries, the others do nothing; kolo_store_broadcast then waits
 * for it. NOMEM: no change. */
kolo_status kolo_store_write(kolo_store *store, const kolo_store_entry *entry,
                             const void *canonical);
/* True for parameters and running statistics, false for optimizer state, whose names start with
 * "optimizer.", and for buffers ("__"). */
bool kolo_store_entry_is_model(const kolo_store_entry *entry);
bool kolo_name_is_optimizer(const char *name);
/* Initializes every entry, in both banks, from random numbers keyed by `seed` and its name. */
kolo_status kolo_store_init(kolo_store *store, uint64_t seed);
/* Gives all ranks the same memory for shared entries, which are zero afterwards. Between the first
 * plan and kolo_store_init; later plans cannot add shared entries. The memory is that of `comm`.
 * Collective. UNSUPPORTED: the ranks do not share memory; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_store_share(kolo_store *store, kolo_comm *comm);
/* Broadcasts the current bank of rank 0, but for shards, to both banks of all ranks. Collective.
 * ARG: the ranks have different layouts. PEER, TIMEOUT. */
kolo_status kolo_store_broadcast(kolo_store *store, kolo_comm *comm);
/* Completes the latest step of a plan with `cross_step`: waits for the sums that are left, and
 * updates. The next run of that plan does so by itself, as do runs of other plans of the store
 * without inputs (else kolo_plan_prepare); what else accesses entries, and compiling a plan, needs
 * it. PEER, TIMEOUT: the store is as before that step. The error of a device that has failed, whose
 * memory is lost. */
kolo_status kolo_store_run_deferred(kolo_store *store);
/* Whether kolo_store_run_deferred has something to do. */
bool kolo_store_has_deferred(const kolo_store *store);
/* Hash of the current bank in row-major order, to compare replicas and runs with any layouts. */
uint64_t kolo_store_hash(const kolo_store *store);
/* The same where some entries are shards. Collective; PEER, TIMEOUT, NOMEM. */
kolo_status kolo_store_hash_shards(const kolo_store *store, uint64_t *hash);

/* ---- plans ---- */

typedef struct kolo_plan kolo_plan;

/* Where runs of plans spent their time; each run adds to it. */
typedef struct kolo_plan_times {
    int64_t phase_ns[KOLO_PHASES]; /* SYNCHRONIZE: communication that no kernel overlaps */
    int64_t communication_ns;      /* with a collective in flight */
} kolo_plan_times;

/* Zero means the default. */
typedef struct kolo_plan_opts {
    bool train; /* forward, backward and update; else the forward pass alone */
    /* The training graph consists of updates of some entries of the store, placed and laid out; the
     * plan commits these in the current bank. */
    bool updates_only;
    bool apart; /* its values have memory of their own: kolo_plan_begin, kolo_plan_end */
    /* The communicators of the groups of a mesh with several axes; borrowed. NULL: one axis. */
    kolo_mesh_comms *groups;
    int versions; /* ranks that have optimizer state of their own (plan/rounds.h); 0: none has */
    int version;  /* this rank's */
    kolo_optimizer_opts optimizer;
    bool outer, delays; /* see kolo_pass_outer_state */
    /* See kolo_pass_residual_state; 0 ranks: none. */
    kolo_compression pushed;
    int pushing_ranks, pushing_rank;
    /* Micro-batches per step, default 1. Above 1 the plan runs one of them, and the scalar "fresh"
     * is 1 in the first and 0 in the others. */
    int64_t micro_batches;
    /* Logical shards per step; 0: none. The graph is of one shard; see kolo_plan_deal. */
    int shards;
    /* Another training plan of the same model and micro_batches or shards: this plan adds to its
     * gradients, and only the other plan completes steps. It must outlive this one. */
    const kolo_plan *adds_to;
    kolo_mesh mesh;        /* of the job; default: all ranks of the communicator are on dp */
    int rank;              /* in the mesh, where there is no communicator */
    bool posts;            /* without one, kolo_plan_gradients reports the POSTs of sums */
    const char *placement; /* rules of its axes but dp, see kolo_pass_partition; borrowed */
    bool sharded_outputs;  /* of evaluation, see there */
    int tp_blocks;         /* see kolo_pass_blocks; 0: none */
    /* On a stage of a pipeline, the axis pp of the mesh: how the parts of the model lie on the
     * stages (default one on each), micro-batches in flight by chunk of the stage (default 1;
     * borrowed until the plan is compiled), and whether the gradients of weights are computed
     * apart. See plan/program/run.h. */
    kolo_parts parts;
    const int *slots;
    bool splits;
    int zero;              /* level of ZeRO: 1 to 3; see kolo_pass_zero; 0: none */
    bool share;            /* the ranks share the parameters; call kolo_store_share before the
                              first run. Level 3 of zero is then 2: the host has one copy of them */
    bool near;             /* they have copies, but are on one host: with runs_ahead, see there */
    const int64_t *shares; /* of the ranks, with zero: see kolo_zero_opts; borrowed */
    size_t unit_bytes;     /* the same */
    int lag;               /* of gradients, in steps; see kolo_pass_lag */
    bool cross_step;  /* sums may be awaited in the next step; see kolo_store_run_deferred. Not with
                         shards, a lag, stages or a store of one rank */
    bool completes;   /* with cross_step: all sums are awaited in the step, in the same buckets */
    bool runs_ahead;  /* with cross_step: gradients may be computed in another order and be in other
                         buckets (pass/late_weights.h). Not in a store with plans of micro-batches */
    bool no_chains;   /* each elementwise node runs by itself; see kolo_pass_chains */
    kolo_lanes lanes; /* see kolo_pass_lanes */
    kolo_compression compression; /* of gradients; default none. See kolo_pass_compress */
    kolo_recompute recompute;     /* default none */
    kolo_precision precision;     /* default f32 */
    bool sparse_embedding;        /* see kolo_pass_sparse; the same for all plans of a store */
    bool sync_batch_norm;         /* see kolo_pass_sync_batch_norm; not with shards */
    bool keep_gradients;          /* until the next run, for kolo_plan_gradient */
    int64_t most_samples;         /* largest batch of any rank; default the batch of the graph */
    size_t bucket_bytes;          /* minimum bytes of a bucket; default KOLO_BUCKET_BYTES, or with
                                     cross_step what makes KOLO_BUCKETS_MOST of them */
    const size_t *bucket_sizes;   /* of the first buckets of gradients instead, in the order of the
                                     backward pass; borrowed until the plan is compiled */
    int n_bucket_sizes;
    kolo_algorithm algorithm;
    kolo_plan_times *times; /* borrowed, until the plan is destroyed; NULL: not measured */
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner; /* borrowed until the plan is compiled; NULL: estimates */
    int threads;              /* of kernels; default 1 */
    /* Called once by kolo_plan_compile, with the status of what this rank does by itself, before it
     * exchanges anything with other ranks: compilation ends with what it returns, unless that is
     * OK. NULL: `comm` is NULL, or no rank fails alone. */
    kolo_status (*agree)(void *arg, kolo_status status);
    void *agree_arg;
    const kolo_whole_layouts *whole; /* see kolo_layout_opts; borrowed until it is compiled */
    /* The graph of the most samples that a rank has, where this one has fewer: parameters and
     * states that the store does not have yet get the layouts that are chosen for it, which are the
     * same on all ranks. The passes change it; borrowed until the plan is compiled. The ranks of a
     * group that divides layers all have one, or none. NULL: `graph` has the most samples. */
    kolo_graph *largest;
} kolo_plan_opts;

/* The level of ZeRO that a plan has. */
static inline int kolo_plan_level(const kolo_plan_opts *o) {
    const int level = o->share && o->zero > 2 ? 2 : o->zero;
    return o->shards > 0 && level == 2 ? 1 : level; /* shards are summed as wholes */
}

/* The pipeline options of a plan on one rank. */
kolo_pipeline_opts kolo_plan_passes(const kolo_plan_opts *opts);

/* Finds the layouts that a plan of one worker has for the whole model, which `graph` is; the passes
 * change it. Parameters have those of the store where this rank has them. `place`: of this rank
 * among those of its stage. The errors of kolo_pipeline_run. */
kolo_status kolo_plan_find_whole(kolo_graph *graph, const kolo_plan_opts *opts, kolo_store *store,
                                 int place, kolo_whole_layouts *whole);

/* Compiles a graph and takes ownership of it, even on failure. `comm` may be NULL: no
 * communication. Adds missing entries to the store (zeroed; see kolo_store_init). A training plan
 * needs the output "loss"; the scalar "grad_scale" is the gradient of the loss, updates use the
 * scalar "lr" and Adam "update". Scalar outputs, which are sums over the batch, are summed over
 * micro-batches and ranks. The scalar "once", if there is one after compilation, is 1 in one
 * micro-batch of one rank and 0 in all others. Collective if `comm` is given. */
kolo_status kolo_plan_compile(kolo_graph *graph, const kolo_plan_opts *opts, kolo_store *store,
                              kolo_comm *comm, kolo_plan **plan);
void kolo_plan_destroy(kolo_plan *plan);

/* Before the inputs of a run are filled: completes the latest step of another plan of the store,
 * which may use their memory. The plan itself leaves updates that do not. PEER, TIMEOUT: those of
 * kolo_store_run_deferred. */
kolo_status kolo_plan_prepare(kolo_plan *plan);
/* Address and tensor of an input, for the caller to fill before a run; KOLO_ASSERTs that it exists.
 */
void *kolo_plan_input(const kolo_plan *plan, const char *name, kolo_tensor *tensor);
/* Sets a scalar before a run; KOLO_ASSERTs that it exists. */
void kolo_plan_set_scalar(kolo_plan *plan, const char *name, double number);
/* Address and tensor of an output, valid after a run until the next; NULL when the plan has none of
 * that name. */
const void *kolo_plan_output(const kolo_plan *plan, const char *name, kolo_tensor *tensor);
/* Where the ranks of a mesh have slices of an output: sets *plain to the whole, in row-major order.
 * False: the plan has no such output. */
bool kolo_plan_whole_output(const kolo_plan *plan, const char *name, kolo_tensor *plain);
/* Copies the slice of this rank to its place in the whole, which is zero elsewhere; nothing where
 * an earlier rank of the mesh has the same. NOMEM. */
kolo_status kolo_plan_place_output(const kolo_plan *plan, const char *name, void *whole);
/* The summed gradient of a parameter, as an output of a training plan with keep_gradients; NULL if
 * it has none, or a row-sparse one. */
const void *kolo_plan_gradient(const kolo_plan *plan, const char *parameter, kolo_tensor *tensor);
/* A scalar output as a number, valid after a run until the next; KOLO_ASSERTs that it is one. */
double kolo_plan_scalar(const kolo_plan *plan, const char *name);

/* Handles for what every step sets and reads: a name resolved once, valid as long as the plan.
 * KOLO_NONE: the plan has no input, scalar or output of that name. */
kolo_value kolo_plan_find_input(const kolo_plan *plan, const char *name);
kolo_value kolo_plan_find_scalar(const kolo_plan *plan, const char *name);
kolo_value kolo_plan_find_output(const kolo_plan *plan, const char *name);
/* The address of an input, as kolo_plan_input. */
void *kolo_plan_data(const kolo_plan *plan, kolo_value input);
/* Sets a scalar; no effect on KOLO_NONE. KOLO_ASSERTs its type: float, or i64. */
void kolo_plan_set(kolo_plan *plan, kolo_value scalar, double number);
void kolo_plan_set_integer(kolo_plan *plan, kolo_value scalar, int64_t number);
/* The number in a scalar output, as kolo_plan_scalar. */
double kolo_plan_get(const kolo_plan *plan, kolo_value output);

/* Runs one step. A training plan switches the bank of the store at the end. PEER or TIMEOUT: the
 * communicator failed, and the store is as before the step. With `cross_step` some updates are left
 * to the next run, which makes each before the first kernel that reads its result. */
kolo_status kolo_plan_run(kolo_plan *plan);
/* The outputs of a run are complete. An error ends the run. */
typedef kolo_status kolo_plan_reported(void *arg);
/* kolo_plan_run, which calls `reported` as soon as the outputs are complete: before the backward
 * pass, unless the device has memory of its own. */
kolo_status kolo_plan_run_reporting(kolo_plan *plan, kolo_plan_reported *reported, void *arg);
/* Runs a micro-batch other than the last of its step: accumulates gradients and scalar outputs,
 * without updates; communicates only inside the passes. PEER, TIMEOUT. kolo_plan_run runs the last
 * one. */
kolo_status kolo_plan_accumulate(kolo_plan *plan);
/* What a POST of the plan would start is complete; `node`: of the POST. An error ends the run. */
typedef kolo_status kolo_plan_posted(void *arg, const kolo_plan *plan, int32_t node);
/* Runs the last micro-batch, but not the rest of the step: no update, and nothing is summed over
 * the ranks: the caller may, from `posted` on. See plan/sums.h. */
kolo_status kolo_plan_gradients(kolo_plan *plan, kolo_plan_posted *posted, void *arg);
/* The rest of such a step: the updates, from the sums. In parts, one after the other, of the plan's
 * steps those from `first` on, up to `end`; 0: up to the last, which completes the update. Where
 * the parts end, see kolo_plan_find_norms. */
kolo_status kolo_plan_update(kolo_plan *plan, int first, int end);
/* The updates of one group, as kolo_plan_group_updates has them by step. */
kolo_status kolo_plan_update_group(kolo_plan *plan, const int *groups, int group);
/* Instead of running a micro-batch without samples: every gradient and sum of this rank is
 * zero, whatever the forward pass would compute. `last`: and the rest of the step. PEER, TIMEOUT.
 */
kolo_status kolo_plan_skip(kolo_plan *plan, bool last);

/* ---- updates in two parts, between which other plans of the store run ---- */

/* Runs a plan that is `apart` and of updates alone up to its first WAIT or update: starts what it
 * exchanges. Changes no entry of the store. The plans that run until kolo_plan_end drive what is in
 * flight, and must not write what this one has read, but for what it updates. PEER, TIMEOUT. */
kolo_status kolo_plan_begin(kolo_plan *plan);
/* The rest of it: waits, updates and commits. PEER, TIMEOUT: the store is as before. */
kolo_status kolo_plan_end(kolo_plan *plan);
/* Waits for what is in flight, if the plan has begun; kolo_plan_end follows or the plan is
 * destroyed. PEER, TIMEOUT. */
kolo_status kolo_plan_drain(kolo_plan *plan);

/* ---- logical shards: reproducible steps ----
 *
 * The gradients, scalar outputs and statistics of a step are summed over its shards along one
 * binary tree, so that all results depend on the shards alone, not on the ranks that ran them. Each
 * rank runs its shards in order, on the plan for their size, and completes the step on the plan
 * that was dealt. */

/* Deals the shards: counts[p] of them, consecutive, to place p on the axis dp (without
 * communicator: all to the only one). Needed before the first step, allowed between steps.
 * Collective. */
kolo_status kolo_plan_deal(kolo_plan *plan, const int *counts);
/* Before each pass of a stage: that of shard `shard` of its place, in the order of shards. */
void kolo_plan_begin_shard(kolo_plan *plan, int shard);
/* Runs shard `shard` of this rank. `complete`: and the rest of the step, as kolo_plan_run; only for
 * the rank's last shard. */
kolo_status kolo_plan_run_shard(kolo_plan *plan, int shard, bool complete);
/* The same, without the rest of the step; sets a hash of the shard's gradients, as they were before
 * they were summed. `shard` -1: a shard of another rank, which is not summed. */
kolo_status kolo_plan_hash_shard(kolo_plan *plan, int shard, uint64_t *hash);
/* Instead of running a shard, while other ranks run one: takes part in what is communicated
 * inside the passes. `complete`: and in the rest of the step, as with kolo_plan_run_shard. */
kolo_status kolo_plan_follow(kolo_plan *plan, bool complete);
/* The sum of a shard without samples. */
void kolo_plan_skip_shard(kolo_plan *plan, int shard);
/* Completes a step after the shards: for a rank that has none, or that ran its last one on a plan
 * of another size or skipped it. */
kolo_status kolo_plan_complete(kolo_plan *plan);

/* Appends the plan as text: memory, buckets, then one line per step. */
void kolo_plan_print(const kolo_plan *plan, kolo_text *text);

/* ---- observing (tests, profiles, traces) ---- */

typedef enum kolo_step_kind { KOLO_STEP_KERNEL, KOLO_STEP_POST, KOLO_STEP_WAIT } kolo_step_kind;

/* The description of a step. The plan owns the texts. */
typedef struct kolo_step_info {
    kolo_step_kind kind;
    kolo_phase phase; /* never INPUT */
    bool once;        /* per step: updates, and what depends on sums */
    bool range;       /* of a flat shard: other ranks have no such step if theirs is empty */
    int bucket;       /* POST, WAIT */
    int region;       /* of the pass lanes, whose lanes run at the same time; 0: none, or it was
                         slower in lanes in the first runs */
    int lane;         /* of the region; else 0 */
    /* KERNEL only: */
    const char *op, *kernel;
    const char *implementation; /* the library's name for it; "": none */
    const char *parameter; /* that it reads or computes the gradient of, "conv1.weight"; or NULL */
    kolo_tensor out;       /* output 0 */
    kolo_cost cost;
    bool slow; /* a reference loop, ours or the library's */
} kolo_step_info;

int kolo_plan_n_steps(const kolo_plan *plan);
/* The collectives of a step, one per bucket; none without a group. */
int kolo_plan_n_requests(const kolo_plan *plan);
/* NULL: that of a slice, which needs none, or of a plan without the communicators of its mesh. */
kolo_request *kolo_plan_request(const kolo_plan *plan, int bucket);
/* The buckets of gradients that are summed over the ranks, in their order, which come first;
 * returns their number, at most that of requests. ready_ms: the time in backward kernels before the
 * latest POST, where times are measured. */
int kolo_plan_list_gradients(const kolo_plan *plan, kolo_ready_gradient *gradients);
/* The parameter of the first gradient of such a bucket; NULL: it has none. Valid as long as the
 * plan. */
const char *kolo_plan_gradient_name(const kolo_plan *plan, int bucket);
/* Fills infos[0..kolo_plan_n_steps). */
void kolo_plan_describe(const kolo_plan *plan, kolo_step_info *infos);
/* The regions of the pass lanes. The first runs of each take turns, in lanes and one step after
 * another; then it runs in the faster way (lane_trial.h). */
typedef struct kolo_plan_lanes {
    int regions, chosen, undecided; /* chosen: in lanes from now on; undecided: not measured yet */
    double ms, saved_ms;            /* of all that are decided, one step after another; and what
                                       lanes save of it */
} kolo_plan_lanes;
kolo_plan_lanes kolo_plan_lanes_of(const kolo_plan *plan);
/* Repeats the kernel of a step on the current contents of memory, to measure it; call it from the
 * observer, for that step. In-place kernels change their results. */
void kolo_plan_repeat(const kolo_plan *plan, int step);

typedef struct kolo_plan_memory {
    /* Bytes. arena: with the slots of a stage; store: all of it, its banks both. */
    size_t arena, scratch, gradients, store;
    size_t shared; /* bytes of `store` that all ranks share */
} kolo_plan_memory;
kolo_plan_memory kolo_plan_memory_of(const kolo_plan *plan);
/* Bytes of the memory of its own of a plan that is `apart`; else 0. */
size_t kolo_plan_apart_bytes(const kolo_plan *plan);

/* Called after each step when set; `step` counts from 0. */
typedef void (*kolo_plan_observer)(void *arg, int step, kolo_step_kind kind, int bucket,
                                   int64_t begin_ns, int64_t end_ns);
void kolo_plan_observe(kolo_plan *plan, kolo_plan_observer observer, void *arg);
