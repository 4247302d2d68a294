#pragma once
/* The structures of a plan. */

#include "pass/pass.h"
#include "plan/lane_trial.h"
#include "plan/plan.h"
#include "plan/shards.h"
#include "plan/store.h"

/* What runs a kernel. */
typedef struct kolo_prepared {
    kolo_kernel_spec spec;
    void *state;      /* of the kernel */
    kolo_call *calls; /* by slot, then by the store's current bank */
} kolo_prepared;

typedef struct kolo_step {
    kolo_step_kind kind;
    int32_t node; /* in the graph */
    int bucket;   /* POST, WAIT */
    kolo_phase phase;
    bool once_per_step; /* runs in the last micro-batch of a step only */
    bool deferred;      /* runs in the next step, see kolo_plan_find_deferred_steps */
    bool folds;         /* its result is a part of the gradients of a logical shard */
    bool inside; /* runs in every micro-batch, also without samples: a POST or WAIT inside the
                    passes, or what no sample is needed for */
    const kolo_kernel *kernel;
    kolo_prepared all;     /* on all threads */
    kolo_prepared *alone;  /* on one thread, in a lane; NULL: it is in no region */
    const void **summands; /* by rank: of the input that the kernel adds up; NULL: none */
    kolo_step_segment segment;
    int chunk;
    int lane, region_end;     /* of a region of the pass lanes, and the step behind it; 0: none */
    int64_t begin_ns, end_ns; /* of the latest run in a lane, with an observer */
} kolo_step;

typedef struct kolo_deferred_step {
    int step, before;
} kolo_deferred_step;

/* A range of which the ranks have summands, in memory that all read. */
typedef struct kolo_plan_summand {
    int bucket;
    int32_t value;     /* that WAIT returns: the summand of this rank, then the sum */
    const void **from; /* by rank: that of each rank, once WAIT has returned */
    bool read;         /* a kernel adds them up; else WAIT does */
} kolo_plan_summand;

struct kolo_plan {
    kolo_graph *graph;
    kolo_store *store;       /* borrowed */
    kolo_comm *comm;         /* borrowed; NULL: no communication */
    kolo_mesh_comms *groups; /* borrowed; NULL: all communicate in comm */
    kolo_request **requests; /* see kolo_plan_request_at */
    kolo_mesh_link **links;  /* by slot, then bucket: of what a link moves; else NULL */
    size_t link_bytes;       /* buffers of all links */
    int64_t *ready_ns;       /* by bucket: in backward kernels before its latest POST */
    int64_t *needed_ns;      /* by bucket: in forward kernels of the run before which it was left,
                                before its latest WAIT; 0: it is awaited in its own run */
    bool train;
    bool updates_only;        /* of some entries of the store: the others stay where they are */
    bool accumulates;         /* several micro-batches per step */
    const kolo_plan *adds_to; /* borrowed; NULL: completes steps itself */
    kolo_shard_sum *sum;      /* of logical shards, that of adds_to; NULL: none */
    kolo_algorithm algorithm;
    kolo_memory_map map;
    bool *shared;    /* by node: it runs in micro-batches without samples too */
    int *entries;    /* by value id: store entry of a parameter or state */
    char *model;     /* KOLO_REGION_MODEL of all slots, registered memory */
    char *gradients; /* registered memory, at a fixed address; NULL: that of the store */
    char *arena;     /* of its own, with what is communicated where there is no group; NULL: that of
                        the store */
    size_t own_bytes; /* of `arena` */
    int n_first;      /* steps of kolo_plan_begin */
    int n_reported;   /* steps after which the outputs are complete */
    bool begun;       /* kolo_plan_end follows */
    char *table;
    int slots, slot; /* micro-batches of a stage in flight, all chunks one after another; of the
                        pass that runs */
    int chunks;      /* of the stage; 1: none */
    int first_slot[KOLO_CHUNKS_MOST + 1]; /* by chunk, then the end */
    char *slot_memory;                    /* of all slots */
    kolo_call *calls;                     /* of all steps */
    /* Steps that run in the next run of the plan, in their order, each before a step of it. */
    struct kolo_deferred_step *deferred;
    int n_deferred, next_deferred; /* next_deferred: the first that has not run */
    int deferred_bank;             /* the store's bank in the run that left them */
    char *deferred_table;          /* the scalars of that run */
    int64_t communicated_ns;       /* until when its collectives were counted */
    struct kolo_plan_crossing *crossings;
    int n_crossings;
    uint32_t *readers; /* by value: the chunks of a stage that read it; NULL: no stage */
    size_t values_bytes, scratch_bytes; /* in the arena of the store: values, then scratch, */
    size_t lane_scratch_bytes;          /* of which each lane has so much */
    int threads;
    kolo_lane_trial *trials; /* of the regions of the pass lanes, by number - 1 */
    int n_regions;
    kolo_plan_summand *summands;
    const void **summand_addresses;
    int n_summands;
    kolo_step *steps;
    int n_steps;
    struct kolo_plan_transfer *transfers; /* see transfers.h; NULL: the device is the CPU */
    int n_transfers, next_transfer;       /* next: the first that has not started */
    int bound_at;                         /* store->moves when the steps were bound */
    kolo_plan_times *times;               /* borrowed; NULL: not measured */
    int ran_bank;                         /* the store's bank in the latest run */
    kolo_plan_posted *posted;             /* takes the place of POSTs in the run; NULL: none */
    void *posted_arg;
    kolo_plan_observer observer;
    void *observer_arg;
};

/* The trial of the region that a step is in; NULL: it is in none. */
static inline kolo_lane_trial *kolo_plan_trial(const kolo_plan *p, const kolo_step *step) {
    return step->alone ? &p->trials[p->graph->nodes[step->node]->region - 1] : NULL;
}
/* Sets the phase of every step. NOMEM. */
kolo_status kolo_plan_set_phases(kolo_plan *plan);
/* Runs the steps of a segment of the chunk whose slot is the plan's current one; `complete`: also
 * those that run once per step. */
kolo_status kolo_plan_run_segment(kolo_plan *plan, kolo_step_segment segment, bool complete);
/* The chunk of a slot. */
int kolo_plan_chunk(const kolo_plan *plan, int slot);
/* Bytes of the slots before one. */
size_t kolo_plan_slot_offset(const kolo_plan *plan, int slot);
/* The place of a bucket's request: of each slot for activations, else of the first; of each current
 * bank where it joins next versions, else of the first. */
static inline kolo_request **kolo_plan_request_at(const kolo_plan *p, int slot, int bucket,
                                                  int bank) {
    const kolo_bucket *b = &p->map.buckets[bucket];
    const int i = (b->of_model ? slot : 0) * p->map.n_buckets + bucket;
    return &p->requests[2 * i + (kolo_value_ok(b->joins) ? bank : 0)];
}
/* The store's entry of a parameter or state. */
const kolo_store_entry *kolo_plan_entry(const kolo_plan *plan, int32_t value);
/* Where its arena is: values, then scratch. */
static inline char *kolo_plan_arena(const kolo_plan *p) {
    return p->arena ? p->arena : p->store->arena;
}
/* The address of a value on the device, in the current slot, while `bank` of the store is current.
 */
void *kolo_plan_address(const kolo_plan *plan, int32_t value, int bank);
/* The same on the host side. */
void *kolo_plan_host(const kolo_plan *plan, int32_t value, int bank);
/* Finds the steps that run in the next step of training, and before which of its steps: the first
 * that reads what they write. Needs the phases. NOMEM. */
kolo_status kolo_plan_find_deferred_steps(kolo_plan *plan);

/* ---- the parts of compilation, whose order is in compile.c ---- */

/* tie_store.c */
/* What the plans of a store have in common, for the passes; `arg` is the store. */
bool kolo_plan_layout_in_store(void *arg, const char *name, kolo_tensor *tensor);
bool kolo_plan_cut_in_store(void *arg, const char *name, kolo_zero_cut *cut);
/* Finds or adds the entries of the store for parameters and state. ARG: an entry has another shape;
 * FORMAT: an entry is overwritten too early; NOMEM. */
kolo_status kolo_plan_tie_store(kolo_plan *plan);
/* steps.c */
/* Adds the steps and prepares their kernels. */
kolo_status kolo_plan_add_steps(kolo_plan *plan, const kolo_plan_opts *opts,
                                struct kolo_selections *selections);
void kolo_plan_free_steps(kolo_plan *plan);
/* map_memory.c */
/* NOMEM, with what the plan needs, if its device has less memory than that; else OK. */
kolo_status kolo_plan_check_device(const kolo_plan *plan);
/* Reserves memory for values, buckets and messages. UNSUPPORTED: the gradients of a plan that adds
 * to another one lie elsewhere; NOMEM. */
kolo_status kolo_plan_map_memory(kolo_plan *plan, const kolo_plan_opts *opts);
/* summands.c */
/* Lists the ranges whose summands this rank adds itself, and the kernels that do so. Needs the
 * steps. NOMEM. */
kolo_status kolo_plan_find_summands(kolo_plan *plan);
/* A WAIT has returned: sums what no kernel adds up. */
void kolo_plan_add_summands(const kolo_plan *plan, int bucket, const kolo_request *request);
/* in_flight.c */
/* Collectives that a run has in flight at most, with those that the run before has left, in the
 * group of `axes`. */
int kolo_plan_most_in_flight(const kolo_plan *plan, kolo_axes axes);
/* Makes room for them in the plan's groups. Collective where a group is new. The errors of
 * kolo_comm_split; NOMEM. */
kolo_status kolo_plan_reserve_flight(const kolo_plan *plan);
/* bind.c */
/* Binds every step to the current addresses. */
kolo_status kolo_plan_bind(kolo_plan *plan);
/* Releases what the kernel of a step made of its addresses. */
void kolo_plan_unbind(const kolo_plan *plan, const kolo_step *step);
/* Whether a node may run in a slot: one of its chunk, or the update, which is in any. */
bool kolo_plan_is_of_slot(const kolo_plan *plan, const kolo_node *node, int slot);
/* requests.c */
/* The requests and links of all slots; those of destroyed ones may be made again. */
kolo_status kolo_plan_make_requests(kolo_plan *plan);
void kolo_plan_destroy_requests(kolo_plan *plan);
