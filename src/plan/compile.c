/* Compilation: graph -> passes -> memory -> steps -> addresses and requests. Each part is a file:
 * pass/pipeline.c, pass/memory_plan.c, tie_store.c, steps.c, map_memory.c, bind.c, requests.c. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "kernel/select/cache.h"
#include "kernel/select/families.h"
#include "kolo/host_memory.h"
#include "plan/chunk_inputs.h"
#include "plan/crossings.h"
#include "plan/internal.h"
#include "plan/transfers.h"

#include <string.h>

static kolo_plan_opts resolve(const kolo_plan_opts *opts) {
    kolo_plan_opts o = opts ? *opts : (kolo_plan_opts){0};
    if (!o.threads) o.threads = 1;
    return o;
}

kolo_pipeline_opts kolo_plan_passes(const kolo_plan_opts *o) {
    return (kolo_pipeline_opts){
        .train = o->train,
        .updates_only = o->updates_only,
        .versions = o->versions,
        .version = o->version,
        .optimizer = o->optimizer,
        .outer = o->outer,
        .delays = o->delays,
        .pushed = o->pushed,
        .pushing_ranks = o->pushing_ranks,
        .pushing_rank = o->pushing_rank,
        .recompute = o->recompute,
        .precision = o->precision,
        .sparse_embedding = o->sparse_embedding,
        .sync_batch_norm = o->sync_batch_norm,
        .keep_gradients = o->keep_gradients,
        .most_samples = o->most_samples,
        .mesh = o->mesh,
        .placement = o->placement,
        .sharded_outputs = o->sharded_outputs,
        .tp_blocks = o->tp_blocks,
        .parts = o->parts,
        .splits = o->splits,
        .zero = kolo_plan_level(o),
        .by_shard = o->shards > 0,
        .keep_sums = o->shards > 0 && kolo_plan_level(o) > 2,
        .share = o->share,
        .shares = o->shares,
        .unit_bytes = o->unit_bytes,
        .summands = o->share && o->shards == 0, /* shards are summed along a tree */
        .lag = o->lag,
        .cross_step = o->cross_step && !o->completes,
        .near = o->near,
        .no_chains = o->no_chains,
        .lanes = o->lanes,
        .compression = o->compression,
        .micro_batches = o->micro_batches,
        .bucket_bytes = o->bucket_bytes ? o->bucket_bytes : KOLO_BUCKET_BYTES,
        .most_buckets = o->bucket_bytes || !o->cross_step ? 0 : KOLO_BUCKETS_MOST,
        .bucket_sizes = o->bucket_sizes,
        .n_bucket_sizes = o->n_bucket_sizes,
        .kernels = o->kernels,
        .tuner = o->tuner,
        .threads = o->threads,
        .whole = o->whole,
    };
}

/* ---- one choice of layouts for the ranks that have slices of the same values ---- */

static kolo_status give(void *arg, void *bytes, size_t n) {
    return kolo_broadcast(arg, bytes, n, KOLO_DTYPE_U8, 0);
}

/* The axes along which the ranks divide the layers of a stage; 0: none. */
static kolo_axes dividing_axes(const kolo_mesh *mesh) {
    kolo_axes axes = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
        const bool divides =
            strcmp(mesh->axes[a].name, "dp") != 0 && strcmp(mesh->axes[a].name, "pp") != 0;
        if (divides && mesh->axes[a].size > 1) axes |= (kolo_axes)1 << a;
    }
    return axes;
}

/* Sets *decider to one of the group of this rank. Without communicators each rank decides alone. */
static kolo_status find_decider(const kolo_plan_opts *o, kolo_comm *comm, kolo_decider *decider) {
    const kolo_axes axes = dividing_axes(&o->mesh);
    kolo_comm *group;
    if (!comm || !o->groups || axes == 0 || o->kernels == KOLO_KERNELS_REF) return KOLO_OK;
    KOLO_TRY(kolo_mesh_comms_get(o->groups, axes, &group));
    *decider = (kolo_decider){kolo_comm_rank(group) == 0, give, group};
    return KOLO_OK;
}

/* Sets the members of the plan that are options. */
static kolo_status set_options(kolo_plan *p, const kolo_plan_opts *o, kolo_comm *comm) {
    const bool model_axes = kolo_mesh_has_model_axis(&o->mesh);
    if (o->threads < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "threads is %d: must be at least 1", o->threads);
    }
    p->comm = o->train || kolo_plan_level(o) > 2 || model_axes ? comm : NULL;
    p->groups = o->groups;
    p->train = o->train;
    p->updates_only = o->updates_only;
    p->accumulates = o->micro_batches > 1 || kolo_mesh_stages(&o->mesh) > 1;
    p->chunks = o->parts.chunks > 0 ? o->parts.chunks : 1;
    for (int c = 0; c < p->chunks; c++) {
        p->first_slot[c + 1] = p->first_slot[c] + (o->slots ? o->slots[c] : 1);
    }
    p->slots = p->first_slot[p->chunks];
    p->adds_to = o->adds_to;
    p->algorithm = o->algorithm;
    p->times = o->times;
    p->threads = o->threads;
    if (o->adds_to) p->sum = o->adds_to->sum;
    KOLO_ASSERT(!o->adds_to || ((p->accumulates || p->sum) && (!p->comm || model_axes)));
    KOLO_ASSERT(o->shards == 0 || !o->sync_batch_norm);
    if (o->shards == 0 || !o->sparse_embedding) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "row-sparse gradients cannot be summed over logical shards: omit --sparse-embedding");
}

/* Whether gradients may be in other buckets: sums are the same in any, being of two summands or in
 * the order of the ranks, and nobody has chosen the buckets, or measures them. */
static bool any_buckets(const kolo_plan_opts *o, const kolo_comm *comm) {
    const bool same = kolo_comm_size(comm) == 2 || kolo_comm_sums_in_rank_order(comm, o->algorithm);
    return same && o->n_bucket_sizes == 0 && o->bucket_bytes != 1;
}

/* What has cuts and layouts already. */
typedef struct fixed_before {
    kolo_store *store;
    const kolo_graph *largest; /* once it has layouts; NULL: none */
} fixed_before;

static bool find_layout(void *arg, const char *name, kolo_tensor *tensor) {
    const fixed_before *k = arg;
    if (kolo_plan_layout_in_store(k->store, name, tensor)) return true;
    const kolo_value v = k->largest ? kolo_graph_find(k->largest, name) : KOLO_NONE;
    if (!kolo_value_ok(v)) return false;
    *tensor = kolo_info(k->largest, v)->tensor;
    return true;
}

static bool find_cut(void *arg, const char *name, kolo_zero_cut *cut) {
    return kolo_plan_cut_in_store(((const fixed_before *)arg)->store, name, cut);
}

/* The passes for this rank. */
static kolo_pipeline_opts passes_of(kolo_plan *p, const kolo_plan_opts *o, kolo_comm *comm,
                                    kolo_selections *selections, fixed_before *known) {
    kolo_pipeline_opts pipeline = kolo_plan_passes(o);
    if (p->comm && o->mesh.n_axes == 0) {
        pipeline.mesh = (kolo_mesh){1, {{"dp", kolo_comm_size(p->comm)}}};
    }
    pipeline.rank = comm ? kolo_comm_rank(comm) : o->rank;
    pipeline.runs_ahead = o->runs_ahead && p->comm && any_buckets(o, p->comm);
    if (o->adds_to) pipeline.rank = o->adds_to->graph->rank;
    pipeline.cuts = &p->store->cuts;
    pipeline.cut_names = &p->store->names;
    pipeline.selections = selections;
    pipeline.fixed = find_layout;
    pipeline.fixed_cut = find_cut;
    pipeline.fixed_arg = known;
    return pipeline;
}

static kolo_status agree(const kolo_plan_opts *o, kolo_status status) {
    return o->agree ? o->agree(o->agree_arg, status) : status;
}

/* Chooses the layouts of the largest graph. */
static kolo_status lay_out_largest(kolo_graph *largest, const kolo_pipeline_opts *opts) {
    kolo_pipeline_opts pipeline = *opts;
    pipeline.selections = NULL; /* they are of its sizes */
    return kolo_pipeline_lay_out(largest, &pipeline);
}

/* Runs them, after all ranks have had those that each runs by itself. */
static kolo_status run_passes(kolo_plan *p, const kolo_plan_opts *o, kolo_comm *comm,
                              kolo_selections *selections) {
    kolo_decider decider = {0};
    fixed_before known = {.store = p->store};
    kolo_pipeline_opts pipeline = {0};
    kolo_status status = set_options(p, o, comm);
    if (status == KOLO_OK) {
        pipeline = passes_of(p, o, comm, selections, &known);
        status = kolo_pipeline_begin(p->graph, &pipeline);
    }
    if (status == KOLO_OK && o->largest) status = kolo_pipeline_begin(o->largest, &pipeline);
    KOLO_TRY(agree(o, status));
    KOLO_TRY(find_decider(o, comm, &decider));
    if (decider.give) pipeline.layout_decider = &decider;
    if (o->largest) KOLO_TRY(lay_out_largest(o->largest, &pipeline));
    known.largest = o->largest;
    KOLO_TRY(kolo_pipeline_complete(p->graph, &pipeline));
    return kolo_kernel_check_graph(o->kernels, p->graph); /* of the later passes */
}

/* Marks what an output needs that node n makes. `after`: the steps up to that of n; 0: it has none.
 * A single rank has the sums of a bucket before its POST. */
static void trace_report(kolo_plan *p, const kolo_node *n, int after, bool *wanted) {
    const bool moves = !p->comm && (n->op == &kolo_op_post || n->op == &kolo_op_wait);
    bool makes = false;
    for (int k = 0; k < n->n_out; k++) {
        makes |= wanted[n->out[k].id];
        if (moves && wanted[n->out[k].id]) wanted[n->in[k].id] = true;
    }
    if (!makes || moves) return;
    if (after > p->n_reported) p->n_reported = after;
    for (int k = 0; k < n->n_in && after == 0; k++) {
        if (kolo_value_ok(n->in[k])) wanted[n->in[k].id] = true;
    }
}

/* Finds the steps up to the last one that makes an output. */
static kolo_status count_reported(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    bool *wanted = kolo_zalloc((size_t)g->n_values + 1);
    int *after = kolo_zalloc(((size_t)g->n_nodes + 1) * sizeof *after);
    kolo_status status = KOLO_OK;
    if (wanted && after) {
        for (int32_t o = 0; o < g->n_outputs; o++) wanted[g->outputs[o].value.id] = true;
        for (int i = 0; i < p->n_steps; i++) after[p->steps[i].node] = i + 1;
        for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
            trace_report(p, g->nodes[i], after[i], wanted);
        }
    } else {
        status = KOLO_NOMEM((size_t)(g->n_values + g->n_nodes));
    }
    kolo_free(wanted);
    kolo_free(after);
    return status;
}

/* Steps, memory and requests of the graph that the passes made. */
static kolo_status make_steps(kolo_plan *p, const kolo_plan_opts *o, kolo_selections *selections) {
    const int stages = kolo_mesh_stages(&o->mesh);
    KOLO_TRY(kolo_pass_memory(p->graph, &p->map));
    p->values_bytes = kolo_round_up(p->map.arena_bytes, 4096);
    KOLO_TRY(kolo_plan_tie_store(p));
    KOLO_TRY(kolo_plan_add_steps(p, o, selections));
    KOLO_TRY(kolo_plan_set_phases(p));
    KOLO_TRY(count_reported(p));
    KOLO_TRY(kolo_plan_find_deferred_steps(p));
    KOLO_ASSERT(p->n_deferred == 0 || (o->shards == 0 && o->lag == 0 && stages <= 1));
    KOLO_TRY(kolo_plan_find_summands(p));
    KOLO_TRY(kolo_plan_map_memory(p, o));
    KOLO_TRY(kolo_plan_bind(p));
    /* Of logical shards when they are dealt; what a plan has inside the passes is its own. */
    if (!p->sum || p->adds_to) KOLO_TRY(kolo_plan_make_requests(p));
    if (stages <= 1 || !p->comm) return KOLO_OK; /* one stage, or a plan that nothing runs */
    KOLO_TRY(kolo_chunk_inputs_find(p));
    return kolo_crossings_create(p);
}

/* The layout of a parameter or state that this stage has. */
static bool find_own_layout(void *arg, const char *name, kolo_tensor *tensor) {
    const kolo_store_entry *entry = kolo_store_find(arg, name);
    return entry && !entry->elsewhere && kolo_plan_layout_in_store(arg, name, tensor);
}

kolo_status kolo_plan_find_whole(kolo_graph *graph, const kolo_plan_opts *opts, kolo_store *store,
                                 int place, kolo_whole_layouts *whole) {
    const kolo_plan_opts o = resolve(opts);
    kolo_pipeline_opts passes = kolo_plan_passes(&o);
    passes.fixed = find_own_layout;
    passes.fixed_arg = store;
    graph->device = kolo_regions_device(store->regions)->kind;
    return kolo_whole_layouts_find(graph, &passes, place, whole);
}

kolo_status kolo_plan_compile(kolo_graph *graph, const kolo_plan_opts *opts, kolo_store *store,
                              kolo_comm *comm, kolo_plan **plan) {
    const kolo_plan_opts o = resolve(opts);
    kolo_selections selections = {0};
    kolo_plan *p = kolo_zalloc(sizeof *p);
    if (!p) {
        kolo_graph_destroy(graph);
        return agree(&o, KOLO_NOMEM(sizeof *p));
    }
    KOLO_ASSERT(!store->deferring); /* its memory may move */
    p->graph = graph;
    p->store = store;
    graph->device = kolo_regions_device(store->regions)->kind;
    if (o.largest) o.largest->device = graph->device;
    kolo_status status = run_passes(p, &o, comm, &selections);
    if (status == KOLO_OK) status = make_steps(p, &o, &selections);
    kolo_selections_fini(&selections);
    if (status == KOLO_OK) {
        *plan = p;
    } else {
        kolo_plan_destroy(p);
    }
    return status;
}

void kolo_plan_destroy(kolo_plan *p) {
    if (!p) return;
    kolo_plan_destroy_requests(p);
    kolo_crossings_destroy(p);
    if (!p->adds_to) kolo_shard_sum_destroy(p->sum);
    kolo_plan_free_steps(p);
    if (p->store->deferring == p) p->store->deferring = NULL;
    if (p->begun) kolo_store_leave_background(p->store);
    if (p->arena && p->comm && p->map.bucket_bytes > 0) {
        kolo_regions_unmap(p->store->regions, p->gradients);
    }
    kolo_regions_unmap(p->store->regions, p->arena);
    kolo_regions_unmap(p->store->regions, p->model);
    kolo_regions_unmap(p->store->regions, p->slot_memory);
    kolo_regions_unmap(p->store->regions, p->table);
    kolo_regions_unmap(p->store->regions, p->deferred_table);
    kolo_free((void *)p->summand_addresses);
    kolo_free(p->summands);
    kolo_free(p->ready_ns);
    kolo_free(p->needed_ns);
    kolo_free(p->deferred);
    kolo_free(p->transfers);
    kolo_free(p->entries);
    kolo_free(p->shared);
    kolo_free(p->readers);
    kolo_memory_map_fini(&p->map);
    kolo_graph_destroy(p->graph);
    kolo_free(p);
}
