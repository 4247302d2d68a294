#pragma once
/* A plan: a graph after all passes as one flat array of steps over memory laid out beforehand.
 *
 * Steps are KERNEL (run a kernel), POST (hand a bucket of gradients to communication) and WAIT
 * (stand until it is back). kolo_plan_run walks them: no allocation, no lock of its own, no system
 * call but a blocking wait. What depends on the world (learning rate, gradient scale) stands in
 * scalars, the binding table; the group stands behind the requests of the buckets.
 *
 * A step is a transaction. Parameters and optimiser state live in a *store*, in two banks: a
 * training plan reads one and writes the other, and the store turns to the new bank only when the
 * whole step is done. A step that fails leaves the old bank as it was. A rank alone, whose steps do
 * not fail, keeps all of it once. So does every store with tables that are updated row by row:
 * those updates stand behind the last WAIT, after which nothing fails. Several plans (other batch
 * sizes, evaluation) share one store; the first decides each parameter's master layout, the others
 * follow. They share one arena, and one region of gradients, too: what a plan holds, inputs and
 * results, is good until another plan of the store runs or is compiled.
 *
 * Plans and stores belong to one thread at a time. */

#include "graph/graph.h"
#include "kernel/kernel.h"
#include "kolo/comm.h"
#include "kolo/pass.h"
#include "kolo/phase.h"
#include "pass/pass.h"

/* ---- the store: parameters and optimiser state; memory that its plans take turns in ---- */

typedef struct kolo_store kolo_store;

typedef struct kolo_store_entry {
    const char *name;
    kolo_value_kind kind; /* PARAM or STATE */
    kolo_tensor tensor;   /* in the master layout; its shape may split canon's dimensions */
    kolo_shape canon;     /* as files show it */
    kolo_init init;
    bool single;   /* kept once: updates overwrite what they read */
    size_t offset; /* in each bank, or among those that are kept once */
} kolo_store_entry;

kolo_status kolo_store_create(kolo_store **store);
/* Keeps every entry once: updates overwrite what they read. For a rank alone, whose step no peer
 * can break off. Before the first plan. */
void kolo_store_set_alone(kolo_store *store);
void kolo_store_destroy(kolo_store *store);
int kolo_store_count(const kolo_store *store);
const kolo_store_entry *kolo_store_entry_at(const kolo_store *store, int i);
const kolo_store_entry *kolo_store_find(const kolo_store *store, const char *name);
/* Address of an entry in the current bank, in master layout. */
void *kolo_store_data(const kolo_store *store, const kolo_store_entry *entry);
/* Copies an entry out in canonical (row-major) order: count elements of its dtype. */
void kolo_store_read(const kolo_store *store, const kolo_store_entry *entry, void *canonical);
/* Sets an entry in both banks from canonical order. */
void kolo_store_write(kolo_store *store, const kolo_store_entry *entry, const void *canonical);
/* True for what belongs to the model, in training and in files: parameters and statistics; false
 * for the optimiser's state, whose names begin with "optimizer.". */
bool kolo_store_entry_is_model(const kolo_store_entry *entry);
bool kolo_name_is_optimizer(const char *name);
/* Draws the initial value of every entry (both banks) from `seed` and its name. */
kolo_status kolo_store_init(kolo_store *store, uint64_t seed);
/* Copies rank 0's current bank to all ranks, both banks. Compares the layouts first: ARG when a
 * rank's differ. PEER, TIMEOUT. Collective. */
kolo_status kolo_store_broadcast(kolo_store *store, kolo_comm *comm);
/* Hash of the current bank's numbers in canonical order, for comparing replicas and runs: equal
 * where they are, whatever the layouts. */
uint64_t kolo_store_hash(const kolo_store *store);

/* ---- plans ---- */

typedef struct kolo_plan kolo_plan;

/* Zero means the default. */
typedef struct kolo_plan_opts {
    bool train; /* gradients, buckets, updates; else the forward pass alone */
    kolo_optimizer_opts optimizer;
    /* Micro-batches of a step, default 1; above 1 the plan's batch is one of them, and the scalar
     * "fresh" is 1 in the first and 0 in the others. */
    int64_t micro_batches;
    /* Another plan to train the same model with as many micro-batches: gradients are summed where
     * it sums its own, and it alone finishes steps. It must outlive this one. */
    const kolo_plan *adds_to;
    kolo_recompute recompute; /* default none */
    kolo_precision precision; /* default f32 */
    bool sparse_embedding;    /* see kolo_pass_sparse; for all plans of a store, or none */
    int64_t most_samples;     /* of the largest batch of a rank; default the graph's */
    size_t bucket_bytes;      /* least bytes of a bucket; default 1 MiB */
    kolo_algorithm algorithm;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner; /* borrowed until the plan is compiled; NULL: estimates */
    int threads;              /* of kernels; default 1 */
} kolo_plan_opts;

/* The passes that a plan of one rank goes through. */
kolo_pipeline_opts kolo_plan_passes(const kolo_plan_opts *opts);

/* Compiles a graph: takes `graph` over (also on failure). `comm` may be NULL: no communication.
 * Adds to the store what it lacks (zeroed; see kolo_store_init). A training plan needs the output
 * "loss"; its gradient is seeded by the scalar "grad_scale" and updates use the scalar "lr", and
 * Adam's "update". Scalar outputs, which are sums over the batch, come back summed over
 * micro-batches and ranks.
 * Collective when `comm` is given. */
kolo_status kolo_plan_compile(kolo_graph *graph, const kolo_plan_opts *opts, kolo_store *store,
                              kolo_comm *comm, kolo_plan **plan);
void kolo_plan_destroy(kolo_plan *plan);

/* Address and tensor of an input, for the caller to fill before a run; KOLO_ASSERTs that it exists.
 */
void *kolo_plan_input(const kolo_plan *plan, const char *name, kolo_tensor *tensor);
/* Sets a scalar before a run; KOLO_ASSERTs that it exists. */
void kolo_plan_set_scalar(kolo_plan *plan, const char *name, double number);
/* Address and tensor of an output, valid after a run until the next; NULL when the plan has none of
 * that name. */
const void *kolo_plan_output(const kolo_plan *plan, const char *name, kolo_tensor *tensor);
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

/* Runs one step. A training plan turns the store's bank when all is done. PEER or TIMEOUT: the
 * group broke, the store stands as before the step. */
kolo_status kolo_plan_run(kolo_plan *plan);
/* Runs a micro-batch that is not the last of its step: gradients and scalar outputs
 * add up; nothing is communicated, nothing updated. kolo_plan_run runs the last one.
 */
kolo_status kolo_plan_accumulate(kolo_plan *plan);

/* Appends the plan as text: memory, buckets, then a line a step. */
void kolo_plan_print(const kolo_plan *plan, kolo_text *text);

/* ---- observing (tests, profiles, traces) ---- */

typedef enum kolo_step_kind { KOLO_STEP_KERNEL, KOLO_STEP_POST, KOLO_STEP_WAIT } kolo_step_kind;

/* One step, described. Texts belong to the plan. */
typedef struct kolo_step_info {
    kolo_step_kind kind;
    kolo_phase phase; /* never INPUT */
    int bucket;       /* POST, WAIT */
    /* The rest is of kernels. */
    const char *op, *kernel;
    const char *implementation; /* the library's own name; "" where there is none */
    const char *parameter; /* that it reads, or whose gradient it makes: "conv1.weight"; NULL */
    kolo_tensor out;       /* output 0 */
    kolo_cost cost;
    bool slow; /* a reference loop, ours or the library's */
} kolo_step_info;

int kolo_plan_n_steps(const kolo_plan *plan);
/* The collectives of a step, one per bucket; none without a group. */
int kolo_plan_n_requests(const kolo_plan *plan);
kolo_request *kolo_plan_request(const kolo_plan *plan, int bucket);
/* Fills infos[0..kolo_plan_n_steps). NOMEM. */
kolo_status kolo_plan_describe(const kolo_plan *plan, kolo_step_info *infos);
/* Runs the kernel of a step once more on what memory holds, inside an observer's call for that
 * step. Where the kernel overwrites what it reads, numbers change: for measuring alone. */
void kolo_plan_repeat(const kolo_plan *plan, int step);

typedef struct kolo_plan_memory {
    size_t arena, scratch, gradients, store; /* bytes; store: all of it, its banks both */
} kolo_plan_memory;
kolo_plan_memory kolo_plan_memory_of(const kolo_plan *plan);

/* Called after each step when set; `step` counts from 0. */
typedef void (*kolo_plan_observer)(void *arg, int step, kolo_step_kind kind, int bucket,
                                   int64_t begin_ns, int64_t end_ns);
void kolo_plan_observe(kolo_plan *plan, kolo_plan_observer observer, void *arg);
