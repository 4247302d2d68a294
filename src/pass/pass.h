#pragma once
/* Passes: transformations of a graph on its way to a plan. pipeline.c has the ordered table. */

#include "graph/graph.h"
#include "kernel/kernel.h"
#include "kolo/codec.h"
#include "kolo/pass.h"
#include "pass/bucket_plan.h"
#include "pass/parts.h"

/* Folds chains of forward nodes into one node with the same results: flatten, bias, ReLU and GELU
 * into linear layers and convolutions, residual sums and ReLU into batch normalization, the count
 * of correct samples into the loss (fold.c has the table). Runs before the gradient pass: gradient
 * rules exist for the folded nodes. */
kolo_status kolo_pass_fold(kolo_graph *g, bool train);

/* Moves windows, which take a range of a dimension, before the nodes that do the same for each
 * index of it: what nobody reads is not computed. */
kolo_status kolo_pass_windows(kolo_graph *g);

/* For evaluation plans: rewrites ops that compute something else in evaluation (kolo_op.evaluate).
 * Runs first. UNSUPPORTED: the graph reads a value that only training computes. */
kolo_status kolo_pass_inference(kolo_graph *g);

/* Gives every leaf its placements on the mesh by the recipe of data parallelism, and completes sums
 * in which one addend is the same on all ranks: it is multiplied by the scalar "once", which is 1
 * in one micro-batch of one rank and 0 elsewhere. From here on kolo_graph_propagate finds the
 * placements of all values. ARG: an op cannot run on what the ranks hold, with the op, the input
 * and what it needs. */
kolo_status kolo_pass_shard(kolo_graph *g, const kolo_mesh *mesh);
/* Gives a leaf that a later pass adds its placements; returns it. */
kolo_value kolo_shard_leaf(kolo_graph *g, kolo_value leaf);

/* Tensor parallelism on the axes of the mesh but dp: shards the parameters that the recipe names
 * and what is computed from them, makes shapes those of this rank, and inserts the redistributions
 * that ops need. `rules` is text (partition/rules.h); NULL: the built-in ones. Outputs that are
 * sharded stay with `sharded_outputs`, each rank its slice, else they are removed. Runs after the
 * pass shard; in evaluation plans too. ARG: a dimension or heads that do not divide. UNSUPPORTED:
 * the rules name no parameter, or an op needs whole what they shard. */
kolo_status kolo_pass_partition(kolo_graph *g, const char *rules, bool sharded_outputs);
/* The same on the axis tp, in `blocks` blocks, a multiple of its ranks and a power of two up to
 * KOLO_MAX_IO: all results are bitwise equal for any number of ranks, also one
 * (partition/blocks.c). The mesh and the rank are those of the graph. ARG: what does not divide;
 * UNSUPPORTED: rules with "sums", divided layers that are recurrent. Layers by samples are whole.
 */
kolo_status kolo_pass_blocks(kolo_graph *g, const char *rules, bool sharded_outputs, int blocks);
/* Ring attention: makes blocks of keys and values, which go round the ranks of the axis sp, of
 * attention whose queries these have divided. Runs where placements are known. The errors of
 * kolo_node_propagate. */
kolo_status kolo_pass_ring(kolo_graph *g);
/* Elements of the largest slice that a rank has of a parameter, with the first two dimensions
 * rounded up to a multiple. */
int64_t kolo_largest_slice(const kolo_graph *g, kolo_value param, int64_t multiple);
/* Whether an axis of more than one rank is not dp. */
bool kolo_mesh_has_model_axis(const kolo_mesh *mesh);
/* Whether such an axis divides layers: it is not pp either. */
bool kolo_mesh_divides_layers(const kolo_mesh *mesh);

/* Where a model is cut: the name of the parameter that begins each part but the first (cuts.h). */
typedef struct kolo_stage_cuts {
    int n; /* 0: not decided yet */
    const char **names;
} kolo_stage_cuts;

enum { KOLO_PARTS_MOST = 64, KOLO_CROSSING_NAME = 64 };

/* "activations 3"; gives `text` back. */
const char *kolo_crossing_name(const char *what, int number, char text[KOLO_CROSSING_NAME]);

/* The placements of the gradient that answers a value which crosses a cut: of a parameter, which
 * the places on dp read beside samples of their own, a summand on each. The errors of
 * kolo_placements_gradient. */
kolo_status kolo_answer_placements(const kolo_graph *g, const kolo_value_info *value,
                                   kolo_placements *gradient);

/* The number of stages of a pipeline, the axis pp; 1: there is none. */
int kolo_mesh_stages(const kolo_mesh *mesh);
/* Keeps of the graph what the stage of `rank` computes, chunk after chunk. Values that come from
 * the part before become inputs, those that later ones read outputs; each is passed on from part to
 * part, also where the same stage has both. The other leaves stay, so that every stage lists all
 * parameters. With `ties` the gradients of a parameter that several parts read add up in each
 * micro-batch, from the last of these to the first; else once per step. Runs after the pass
 * partition and before statistics; in evaluation plans too. UNSUPPORTED: the graph lacks a cut, or
 * with `ties` a gradient of a parameter would have to pass where no message does; NOMEM. */
kolo_status kolo_pass_stages(kolo_graph *g, const kolo_mesh *mesh, int rank,
                             const kolo_parts *parts, const kolo_stage_cuts *cuts, bool ties);
/* The chunks of a stage that a node belongs to, a bit each. A node of leaves alone belongs to those
 * that read its results. Several: a sum of what chunks compute, or what several of them read. */
typedef struct kolo_node_chunks {
    uint32_t bits;
    bool of_leaves;
} kolo_node_chunks;
/* Finds them for all nodes; `chunks` has room for these. NOMEM. */
kolo_status kolo_find_chunks(const kolo_graph *g, kolo_node_chunks *chunks);
/* Gives each node of a stage its segment and chunk, and puts them in the order of segments.
 * `splits`: the gradients of weights are a segment of their own. What is sent gets memory of its
 * own; what several chunks compute of leaves alone, each of them computes. Runs last. */
kolo_status kolo_pass_segments(kolo_graph *g, bool splits);
/* Whether node i runs once per step, in the last micro-batch: POST after backward, updates, what
 * reads LOCAL state, and nodes that depend on them. `once` has the result for earlier nodes. */
bool kolo_node_is_once_per_step(const kolo_graph *g, int32_t i, const bool *once);

/* Makes each batch normalization one by the samples of all ranks of a micro-batch; the scalar
 * "sample_weight" is one over their number. Runs between the passes shard and statistics. ARG:
 * there is none. UNSUPPORTED: the graph reads the statistics of one. */
kolo_status kolo_pass_sync_batch_norm(kolo_graph *g);
/* How many there are, by the samples of a rank or of all. */
int kolo_count_batch_norms(const kolo_graph *g);

/* Adds the update of the running statistics of each batch normalization. Uses the scalar "share",
 * the fraction of the global batch on this rank. Runs before the gradient pass. */
kolo_status kolo_pass_statistics(kolo_graph *g);

/* Freezes the parameters that match the list of patterns: they get no gradient and no update. Runs
 * first, in all plans. ARG: a pattern matches no parameter, or all are frozen. */
kolo_status kolo_pass_freeze(kolo_graph *g, const char *list);

typedef struct kolo_sparse_opts {
    int64_t samples;       /* largest micro-batch of any rank; 0: the batch of the graph */
    kolo_mesh mesh;        /* of the ranks */
    int64_t micro_batches; /* of a step; 0: one */
} kolo_sparse_opts;

/* Marks the tables that embeddings read: their gradients become row-sparse (graph/ops/ops.h), and
 * their updates write the rows that occur, in place. All plans of a store need it, evaluation
 * included. Runs before the forward rewrites. ARG: a table has other readers; there is no table. */
kolo_status kolo_pass_sparse(kolo_graph *g, const kolo_sparse_opts *opts);

/* Takes the parameters that match the patterns, tables at servers, out of the graph of a model:
 * each becomes the input of the same name of the rows of a batch, and its `rows` is the height of
 * the table. Runs before all passes. ARG: a pattern matches no parameter; UNSUPPORTED: one is not
 * looked up by one embedding alone. */
kolo_status kolo_pass_tables(kolo_graph *g, const char *names);
/* Whether a value is such an input, whose gradient is an output of the name of
 * kolo_gradient_name; whether an output is one, of which each rank has its own. */
bool kolo_is_pulled(const kolo_graph *g, int32_t value);
bool kolo_output_is_own(const kolo_graph *g, int32_t output);

/* Reverse-mode automatic differentiation (Griewank, Walther, "Evaluating Derivatives", 2008): adds
 * the nodes that compute d(loss * seed)/d(parameter) for every parameter that reaches the loss, and
 * stores each gradient in kolo_info(g, param)->grad. Handles any graph, branches and shared weights
 * included; contributions are summed in a fixed order. `seed` and `loss` are scalars. UNSUPPORTED:
 * an op without a gradient rule. */
kolo_status kolo_pass_gradient(kolo_graph *g, kolo_value loss, kolo_value seed);

/* Activation recomputation (checkpointing): recomputes forward values for the backward pass instead
 * of keeping them (kolo_recompute in kolo/pass.h). `seed` is that of the gradient. Bitwise the same
 * results if the layout pass, which runs later, chooses the same layouts. */
kolo_status kolo_pass_recompute(kolo_graph *g, kolo_recompute what, kolo_value seed);

/* Mixed precision: makes activations and their gradients bf16 and inserts conversions; all other
 * values stay f32. With `narrow_parameters` convolutions and linear layers also read their
 * parameters in bf16. Runs on the whole graph, before the layout pass. ARG: the graph is in f64. */
kolo_status kolo_pass_precision(kolo_graph *g, bool narrow_parameters);
/* Marks the values that it would make bf16: those that pass between stages of a pipeline then do so
 * in bf16, so that each stage computes what one worker does. Runs before the pass stages. */
kolo_status kolo_pass_halves(kolo_graph *g, bool narrow_parameters);

/* Copies the options with defaults filled in and ranges checked; `in` and `out` may be the same.
 * ARG: a value out of range, or one that the optimizer does not use. */
kolo_status kolo_optimizer_resolve(const kolo_optimizer_opts *in, kolo_optimizer_opts *out);

/* The scalar "update" of an update, the `updates`-th from 1: with a delay counted anew in each
 * period, so that f32 holds it. */
double kolo_optimizer_number(const kolo_optimizer_opts *opts, uint64_t updates);

/* Whether a name matches a pattern of the list "A,B" (kolo/pass.h; NULL: none). */
bool kolo_name_matches(const char *list, const char *name);
/* ARG: a pattern of the list, the value of `option`, matches no parameter. */
kolo_status kolo_patterns_check(const kolo_graph *g, const char *option, const char *list);

/* Whether an optimizer has a momentum, else decay rates of moments. */
bool kolo_optimizer_has_momentum(kolo_optimizer kind);
/* Whether it scales updates by norms of whole tensors. */
bool kolo_optimizer_scales(kolo_optimizer kind);

/* Adds the update of every parameter with a gradient, and the optimizer state. Uses the scalar
 * "lr", Adam, LAMB and a delayed momentum also "update", which counts updates from 1. ARG: momentum
 * or weight decay with a row-sparse gradient, or norms of one; a pattern that no parameter matches.
 */
kolo_status kolo_pass_optimizer(kolo_graph *g, const kolo_optimizer_opts *opts);

/* Adds the state of an outer update that others make, which this rank keeps for files: for each
 * trained parameter "optimizer.outer.NAME" and, if `delays`, "optimizer.delayed.NAME". */
kolo_status kolo_pass_outer_state(kolo_graph *g, bool delays);

/* Fuses nodes of the backward pass to save memory traffic, with the same results: the sum of two
 * gradients with the ReLU mask that follows. Runs after the optimizer pass. */
kolo_status kolo_pass_fuse(kolo_graph *g);

/* Whether the layout of a parameter or state is fixed; sets it. */
typedef bool (*kolo_fixed_layout)(void *arg, const char *name, kolo_tensor *tensor);

/* A decision that one rank makes for a group of ranks, whose graphs have the same nodes. */
typedef struct kolo_decider {
    bool decides; /* this rank makes it */
    /* Gives the bytes of that rank to all ranks of the group. Collective. PEER, TIMEOUT. */
    kolo_status (*give)(void *arg, void *bytes, size_t n);
    void *arg;
} kolo_decider;

/* The layouts of a whole model, and the nodes that compute it. */
typedef struct kolo_whole_layouts {
    int32_t n_values;
    bool *known;          /* by value: a node has it */
    kolo_layout *layouts; /* the same */
    uint64_t *work;       /* what each node computes, as a hash; sorted */
    size_t n_work;
    kolo_arena arena;
} kolo_whole_layouts;

typedef struct kolo_layout_opts {
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner;           /* provides measured times of kernels; may be NULL */
    struct kolo_selections *selections; /* kept for the caller */
    int threads;
    kolo_fixed_layout fixed; /* may be NULL */
    void *fixed_arg;
    const kolo_decider *decider;     /* of the ranks that have slices of the same values; NULL: this
                                        rank decides for itself */
    const kolo_whole_layouts *whole; /* of the model that the graph is a stage of; NULL: this
                                        graph alone decides */
} kolo_layout_opts;

/* Chooses the layout of each value, the same on all ranks of the decider. Reference kernels use
 * plain layouts only: no change. UNSUPPORTED: no kernel takes a node; the ranks have different
 * nodes; with `whole` a node computes what none of the whole model does. Collective with a decider,
 * whose errors it returns. */
kolo_status kolo_pass_layout(kolo_graph *g, const kolo_layout_opts *opts);

typedef struct kolo_chains_opts {
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner;           /* may be NULL */
    struct kolo_selections *selections; /* may be NULL */
    int threads;
} kolo_chains_opts;

/* Makes one node of elementwise ones that follow each other, with the same bits
 * (graph/ops/chain.h). Runs last. */
kolo_status kolo_pass_chains(kolo_graph *g, const kolo_chains_opts *opts);

/* Gradient accumulation: sums the gradients and the outputs over the `micro_batches` of a step.
 * `scattered`: gradients that are reduce-scattered are summed afterwards, else before. Adds the
 * scalar "fresh". Runs after the layout pass. ARG: a row-sparse gradient. */
kolo_status kolo_pass_accumulate(kolo_graph *g, int64_t micro_batches, bool scattered);

/* How a parameter is cut in another plan of the same store. */
typedef struct kolo_zero_cut {
    const int64_t *cuts; /* by rank; borrowed */
    int unit, place;     /* of the parameters that are cut together, and of this one in them */
} kolo_zero_cut;

typedef struct kolo_zero_opts {
    int level;           /* 1: optimizer state is sharded; 2: gradients too; 3: parameters too; 0:
                            state of those parameters whose updates keep their bits */
    bool share;          /* the ranks have the parameters in the same memory; not with level 3 */
    size_t bucket_bytes; /* least bytes of the parameters that are cut and exchanged together */
    /* By rank, and all: the shares of those before it, where they are not equal. They are cut at
     * any element, in units of `unit_bytes`, and a larger parameter is one. NULL: equal shares. */
    const int64_t *shares;
    size_t unit_bytes;
    /* Whether the cuts of a parameter or state are fixed already; sets them. May be NULL. */
    bool (*fixed)(void *arg, const char *name, kolo_zero_cut *cut);
    void *fixed_arg;
} kolo_zero_opts;

/* Shards optimizer state, gradients and parameters over the axis dp: every rank updates a range of
 * each parameter. State, and parameters of level 3, become flat shards of this rank's size; such
 * parameters are gathered where they are read, also in evaluation plans. Where parameters are
 * shared, updates write the next version in place, and the ranks wait for each other. Runs after
 * the layout pass, before synchronize. ARG: a row-sparse gradient. */
kolo_status kolo_pass_zero(kolo_graph *g, const kolo_zero_opts *opts);

/* Redistributes what updates and outputs read to where all ranks hold it. Runs before the pass
 * accumulate: ranks exchange sums over the micro-batches. From here on the pipeline verifies
 * placements after each pass. The errors of kolo_graph_propagate. */
kolo_status kolo_pass_synchronize(kolo_graph *g);

/* Makes updates use the gradients of `steps` steps ago, at least 1. Adds as many versions of each
 * gradient to the optimizer state. Runs after the pass accumulate. */
kolo_status kolo_pass_lag(kolo_graph *g, int steps);

/* How gradients are compressed: by a codec, or by factors of PowerSGD. */
typedef struct kolo_compression {
    kolo_codec codec;
    int power_rank;   /* of the factors, at most KOLO_POWER_RANKS; 0: the codec */
    int64_t frozen;   /* 1-bit Adam, after this many updates by gradients: momenta are compressed
                         instead, and second moments stay; 0: gradients are */
    size_t min_bytes; /* of a gradient */
    const char *only; /* patterns of the parameters whose gradients are compressed, "A,B", borrowed;
                         "": none are; NULL: all */
} kolo_compression;
static inline bool kolo_compresses(const kolo_compression *c) {
    return c->codec.kind != KOLO_CODEC_NONE || c->power_rank > 0;
}

/* Compresses the gradients of parameters, of at least min_bytes, that are summed over the ranks of
 * the axis dp. Adds a residual for each to the optimizer state. Runs before lower_comm.
 * UNSUPPORTED: `frozen`, and a gradient that is not for an update of Adam alone. */
kolo_status kolo_pass_compress(kolo_graph *g, const kolo_compression *how);
/* Adds the residuals of gradients that are compressed elsewhere, when they are pushed, which this
 * rank keeps for files: the same state, of `ranks`, each of which has its own. */
kolo_status kolo_pass_residual_state(kolo_graph *g, const kolo_compression *how, int ranks,
                                     int rank);

/* Lowers redistributions to communication: a post and a wait for each bucket (comm_order.h). Groups
 * the sums that updates read into buckets of the given sizes, in the order in which they are
 * computed; their posts follow the last reader of the parameters. Outputs share the last of these
 * buckets. Gathered rows (row-sparse gradients) are in buckets of their own after those. Sums
 * inside the forward and backward passes, which nodes other than updates read, run in every
 * micro-batch. Flat shards are scattered and gathered by unit; at most `in_flight` bytes of these
 * are between post and wait, or one unit. SIZE_MAX: there is no limit, and gradients are scattered
 * in place; so they are with `keep`, and buckets of sums over the samples then share no memory.
 * `share`: the ranks read each other's gradients in place to the end of the step. UNSUPPORTED: a
 * redistribution that is none of these. */
kolo_status kolo_pass_lower_comm(kolo_graph *g, const kolo_bucket_sizes *sizes, size_t in_flight,
                                 bool keep, bool share);

/* When the sums of a bucket are awaited. */
typedef enum kolo_deferral {
    KOLO_DEFERRAL_OFF,      /* in the step: nothing else is wanted */
    KOLO_DEFERRAL_NEXT,     /* in the next step, before it reads what they update */
    KOLO_DEFERRAL_REPORTED, /* in the step, which reports some of them */
    KOLO_DEFERRAL_KIND,     /* in the step: they are no sums of whole gradients */
    KOLO_DEFERRAL_READ,     /* in the step: an update reads more than them and the store */
    KOLO_DEFERRAL_IN_PLACE, /* in the step: what is updated in place follows all sums */
} kolo_deferral;

/* Finds the buckets whose WAIT and updates may run in the next step (KOLO_COMM_DEFERRAL of POST and
 * WAIT): sums over the samples, and codes of gradients, that only updates read, which have their
 * results in the store and read nothing else but the store, scalars, norms of what is in the store,
 * and factors. Runs after lower_comm. NOMEM. */
kolo_status kolo_pass_cross_step(kolo_graph *g);
/* Marks the nodes that run with these buckets: their WAITs, updates, and norms that only these
 * read. `deferred`: by node. NOMEM. */
kolo_status kolo_find_deferred(const kolo_graph *g, bool *deferred);

/* ---- memory ---- */

/* The region of memory that a value is in. */
typedef enum kolo_region {
    KOLO_REGION_ARENA,  /* inputs, activations, local gradients; reused within the step */
    KOLO_REGION_BUCKET, /* what is communicated over the samples, contiguous by bucket */
    KOLO_REGION_MODEL,  /* the same along other axes of the mesh, of one micro-batch */
    KOLO_REGION_SLOT,   /* of a micro-batch on a stage: what later segments read, and crossings */
    KOLO_REGION_TABLE,  /* scalars */
    KOLO_REGION_STORE,  /* current version of a parameter or state */
    KOLO_REGION_NEXT,   /* its next version, in the other bank */
} kolo_region;

typedef struct kolo_location {
    kolo_region region;
    size_t offset; /* STORE and NEXT: the id of the parameter or state */
    size_t skip;   /* bytes after that, of a range of another value */
} kolo_location;

typedef struct kolo_bucket {
    size_t offset, bytes; /* in its region */
    bool of_model;        /* in KOLO_REGION_MODEL, else in KOLO_REGION_BUCKET */
    bool in_place;        /* reduce-scatter: the result of this rank is where it was */
    bool summands;        /* of which each rank adds its range itself */
    size_t slice;        /* reduce-scatter not in place: where the result of this rank is; exchange:
                            where it is packed and unpacked, */
    size_t buffer_bytes; /* with this many bytes */
    kolo_value from, to; /* of a halo: what is read and written, in the arena; else NONE */
    size_t *ends;        /* of flat shards: by rank, the end of its slice, from offset on */
    int n_values;
    kolo_value joins; /* the first parameter whose next version it completes in the store; NONE */
    kolo_collective collective;
} kolo_bucket;

typedef struct kolo_memory_map {
    kolo_location *locations; /* by value id */
    size_t arena_bytes, bucket_bytes, model_bytes, table_bytes;
    size_t slot_bytes[KOLO_CHUNKS_MOST]; /* of one slot, by chunk of a stage */
    kolo_bucket *buckets;
    int n_buckets;
} kolo_memory_map;

/* Gathers halos anew for the backward pass, where the rows without them are kept for it anyway.
 * After recomputation. NOMEM. */
kolo_status kolo_pass_halos(kolo_graph *g, kolo_value seed);
/* Assigns a location to every value. Values of the arena overlap only if their lifetimes do not;
 * views share memory; outputs live to the end. Greedy by size, largest first, best fit; Pisarchyk,
 * Lee, "Efficient memory management for deep neural net inference", 2020. */
kolo_status kolo_pass_memory(const kolo_graph *g, kolo_memory_map *map);
/* The node whose WAIT completes the next version of a parameter from the ranges of all ranks; NULL:
 * there is none. Of a training graph after lower_comm. */
const kolo_node *kolo_find_join(const kolo_graph *g, kolo_value param);
void kolo_memory_map_fini(kolo_memory_map *map);

/* ---- the pipeline ---- */

typedef struct kolo_pipeline_opts {
    bool train;
    bool updates_only; /* a training graph of placed and laid out updates alone */
    int versions;      /* ranks that have optimizer state of their own; 0: all have the same */
    int version;       /* which is this rank's */
    kolo_optimizer_opts optimizer;
    bool outer, delays; /* see kolo_pass_outer_state */
    /* See kolo_pass_residual_state; 0 ranks: none. */
    kolo_compression pushed;
    int pushing_ranks, pushing_rank;
    kolo_recompute recompute;
    kolo_precision precision;
    bool sparse_embedding;
    bool sync_batch_norm;
    bool keep_gradients;   /* see kolo_plan_opts */
    int64_t most_samples;  /* see kolo_sparse_opts */
    kolo_mesh mesh;        /* of the job; no axes: dp=1 */
    const char *placement; /* rules of tensor parallelism, see kolo_pass_partition; borrowed */
    bool sharded_outputs;  /* see kolo_pass_partition */
    int tp_blocks;         /* see kolo_pass_blocks; 0: none */
    int rank;              /* in the mesh */
    bool splits;           /* on a stage: the gradients of weights are computed apart */
    kolo_parts parts;      /* of a pipeline; chunks 0: one */
    kolo_stage_cuts *cuts; /* borrowed; decided by estimates if they are not yet */
    kolo_arena *cut_names; /* for those; borrowed */
    bool marks_units;      /* see kolo_pass_units */
    int zero;              /* level of ZeRO; 0: none */
    bool by_shard;         /* gradients are summed over logical shards */
    bool keep_sums;        /* level 3: the same, as wholes */
    bool share;            /* see kolo_zero_opts */
    const int64_t *shares; /* the same, as unit_bytes */
    size_t unit_bytes;
    bool summands;    /* with share: ranks read each other's gradients, see lower_comm */
    int lag;          /* of gradients, in steps */
    bool cross_step;  /* sums may be awaited in the next step, */
    bool runs_ahead;  /* and what they are of may be computed later, see late_weights.h */
    bool near;        /* the same */
    int most_buckets; /* of gradients; see kolo_bucket_sizes */
    bool no_chains;   /* each elementwise node runs by itself */
    kolo_lanes lanes; /* see kolo_pass_lanes */
    kolo_compression compression;
    int64_t micro_batches; /* per step; above 1: gradient accumulation */
    size_t bucket_bytes;
    const size_t *bucket_sizes; /* of the first buckets of gradients instead; borrowed */
    int n_bucket_sizes;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner;           /* borrowed; NULL: estimates */
    struct kolo_selections *selections; /* borrowed; NULL: not kept */
    int threads;
    kolo_fixed_layout fixed;
    const kolo_decider *layout_decider; /* see kolo_layout_opts; borrowed */
    const kolo_whole_layouts *whole;    /* the same */
    bool (*fixed_cut)(void *arg, const char *name, kolo_zero_cut *cut); /* see kolo_zero_opts */
    void *fixed_arg;
} kolo_pipeline_opts;

/* Finds the layouts of the whole model, whose graph the passes change, as one worker of the options
 * would choose them that has place `place` among those of a stage. The errors of kolo_pipeline_run.
 */
kolo_status kolo_whole_layouts_find(kolo_graph *g, const kolo_pipeline_opts *opts, int place,
                                    kolo_whole_layouts *whole);
/* Lists them in a graph that the passes have run on. NOMEM. */
kolo_status kolo_whole_layouts_take(const kolo_graph *g, kolo_whole_layouts *whole);
void kolo_whole_layouts_fini(kolo_whole_layouts *whole);

/* The output that holds the gradient of parameter `id`, with keep_gradients. */
enum { KOLO_GRADIENT_NAME = 32 };
const char *kolo_gradient_name(int32_t id, char name[KOLO_GRADIENT_NAME]);

/* Runs the passes that the options ask for, in order, and verifies the graph after each. */
kolo_status kolo_pipeline_run(kolo_graph *g, const kolo_pipeline_opts *opts);
/* The same in two parts: those that each rank runs by itself, then from the layouts on, which
 * `layout_decider` chooses for several ranks. */
kolo_status kolo_pipeline_begin(kolo_graph *g, const kolo_pipeline_opts *opts);
kolo_status kolo_pipeline_complete(kolo_graph *g, const kolo_pipeline_opts *opts);
/* Of the second part the first pass alone: chooses the layouts of a graph that nothing runs. */
kolo_status kolo_pipeline_lay_out(kolo_graph *g, const kolo_pipeline_opts *opts);
/* Appends the names of those passes, a line. */
void kolo_pipeline_print(const kolo_pipeline_opts *opts, kolo_text *text);
