#pragma once
/* Passes: each takes a graph and leaves it nearer to a plan. pipeline.c has the ordered list. */

#include "graph/graph.h"
#include "kernel/kernel.h"
#include "kolo/pass.h"

/* Forward rewrites that keep the numbers: a flatten before a linear layer folds into it (the
 * weights are seen as [O,C,H,W]); bias and ReLU fold into the convolution or linear layer before
 * them, an addition and ReLU into a batch normalisation, ReLU into an addition; a max pool after a
 * ReLU does the ReLU on its smaller output; a GELU folds into the linear layer before it, which to
 * train keeps what the gradient reads; a count of correct samples into the loss. Runs before the
 * gradient, whose rules know the folded forms.
 */
kolo_status kolo_pass_fold(kolo_graph *g, bool train);

/* For plans that do not train: ops that behave differently in evaluation become what they are
 * there. Runs first. UNSUPPORTED: the graph reads what only training gives. */
kolo_status kolo_pass_inference(kolo_graph *g);

/* Adds the update of each batch normalisation's running statistics. They depend on the scalar
 * "share", this rank's part of the global batch in samples. Runs before the gradient. */
kolo_status kolo_pass_statistics(kolo_graph *g);

typedef struct kolo_sparse_opts {
    int64_t samples; /* of the largest batch of a rank; 0: every rank has the graph's */
    int ranks;
} kolo_sparse_opts;

/* Marks the tables that embeddings read: their gradients become row-sparse (graph/ops/ops.h), their
 * updates change the rows that occur and lie in place. For every plan of a store alike, also those
 * that do not train. Runs before the forward graph is rewritten. ARG: something else reads a table
 * too; there is no table. */
kolo_status kolo_pass_sparse(kolo_graph *g, const kolo_sparse_opts *opts);

/* Adds the nodes that compute d(loss * seed)/d(parameter) for every parameter that reaches the
 * loss, and stores each in kolo_info(g, param)->grad. Any graph: branches, shared weights,
 * diamonds; several contributions are added in the order of the uses. Reverse-mode differentiation;
 * Griewank, Walther, "Evaluating Derivatives", 2008. `seed` and `loss` are scalars. UNSUPPORTED: an
 * op on the way has no gradient. */
kolo_status kolo_pass_gradient(kolo_graph *g, kolo_value loss, kolo_value seed);

/* Makes again, for the backward pass, what it would else find kept from the forward pass
 * (kolo_recompute in kolo/pass.h); `seed` is the gradient's. The results have the same
 * bits where the layouts, which are chosen later, are the same. */
kolo_status kolo_pass_recompute(kolo_graph *g, kolo_recompute what, kolo_value seed);

/* Activations and their gradients become bf16, with conversions where the types meet; all else
 * stays f32. With `narrow_parameters` convolutions and linear layers read their parameters in bf16
 * too, to multiply it. Runs on the whole graph, before the layouts. ARG: the graph is in f64. */
kolo_status kolo_pass_precision(kolo_graph *g, bool narrow_parameters);

/* Copies the options with defaults filled in and ranges checked; `in` and `out` may be the same.
 * ARG: a value out of range, or one that the optimizer does not use. */
kolo_status kolo_optimizer_resolve(const kolo_optimizer_opts *in, kolo_optimizer_opts *out);

/* Adds the update of every parameter that has a gradient, and the optimiser's state. It depends on
 * the scalar "lr", Adam also on "update", the number of this update from 1 on. ARG: momentum or
 * weight decay on a row-sparse gradient. */
kolo_status kolo_pass_optimizer(kolo_graph *g, const kolo_optimizer_opts *opts);

/* After gradients and updates: rewrites that spare sweeps over memory and keep the numbers. A
 * gradient that adds up from two sides is masked by its ReLU as it is added. */
kolo_status kolo_pass_fuse(kolo_graph *g);

/* Chooses the layout of each value. Parameters and state named in `fixed` (may be NULL) keep the
 * layout that it gives; returns whether it knows the name. Nothing is changed for reference
 * kernels. `tuner` (may be NULL) knows or measures times. */
typedef bool (*kolo_fixed_layout)(void *arg, const char *name, kolo_tensor *tensor);
kolo_status kolo_pass_layout(kolo_graph *g, kolo_kernel_set kernels, struct kolo_tuner *tuner,
                             int threads, kolo_fixed_layout fixed, void *arg);

/* Sums over the step's micro-batches, of which there are `micro_batches`, what updates read of its
 * results and the outputs; adds the scalar "fresh". Runs after the layouts. ARG:
 * a gradient is row-sparse. */
kolo_status kolo_pass_accumulate(kolo_graph *g, int64_t micro_batches);

/* Groups what the updates read of the step's results (gradients) into buckets of at least
 * bucket_bytes in the order in which it is made, and puts a POST behind the last maker of each
 * bucket and the last reader of its parameters, a WAIT before its first use. The
 * outputs share the last bucket that is summed. What row-sparse gradients are
 * made of is gathered from `ranks` ranks, each value in a bucket of its own behind those; updates
 * in place stand behind the last WAIT, when nothing can break the step off any more. */
kolo_status kolo_pass_bucket(kolo_graph *g, size_t bucket_bytes, int ranks);

/* ---- memory ---- */

/* Where a value lies. */
typedef enum kolo_region {
    KOLO_REGION_ARENA,  /* inputs, activations, local gradients; re-used within the step */
    KOLO_REGION_BUCKET, /* gradients that travel, adjacent by bucket, never re-used */
    KOLO_REGION_TABLE,  /* scalars */
    KOLO_REGION_STORE,  /* current version of a parameter or state */
    KOLO_REGION_NEXT,   /* its next version, in the other bank */
} kolo_region;

typedef struct kolo_location {
    kolo_region region;
    size_t offset; /* STORE and NEXT: the id of the parameter or state */
} kolo_location;

typedef struct kolo_bucket {
    size_t offset, bytes; /* in the bucket region */
    int n_values;
    bool gathered; /* else summed */
} kolo_bucket;

typedef struct kolo_memory_map {
    kolo_location *locations; /* by value id */
    size_t arena_bytes, bucket_bytes, table_bytes;
    kolo_bucket *buckets;
    int n_buckets;
} kolo_memory_map;

/* Gives every value a place: two values of the arena overlap only if they are never alive together;
 * views share; outputs live to the end. Best fit by size, largest first, over lifetimes; Pisarchyk,
 * Lee, "Efficient memory management for deep neural net inference", 2020. */
kolo_status kolo_pass_memory(const kolo_graph *g, kolo_memory_map *map);
void kolo_memory_map_fini(kolo_memory_map *map);

/* ---- the pipeline ---- */

typedef struct kolo_pipeline_opts {
    bool train;
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    kolo_precision precision;
    bool sparse_embedding;
    int64_t most_samples;  /* see kolo_sparse_opts */
    int ranks;             /* 0: 1 */
    int64_t micro_batches; /* of a step; above 1: results are summed over them */
    size_t bucket_bytes;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner; /* borrowed; NULL: estimates */
    int threads;
    kolo_fixed_layout fixed;
    void *fixed_arg;
} kolo_pipeline_opts;

/* Runs the passes that the options ask for, in order, and verifies the graph after each. */
kolo_status kolo_pipeline_run(kolo_graph *g, const kolo_pipeline_opts *opts);
/* Appends the names of those passes, a line. */
void kolo_pipeline_print(const kolo_pipeline_opts *opts, kolo_text *text);
