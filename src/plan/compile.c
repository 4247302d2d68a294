/* Compilation: graph -> passes -> memory -> kernels -> steps.
 *
 * Selects and prepares every kernel, and binds it to addresses twice, once for each bank of the
 * store. Views need no step. Each post becomes a persistent request over its bucket; without a
 * communicator, post and wait need no step either. */
#include "base/integer.h"
#include "comm/transport/transport.h"
#include "kernel/select/cache.h"
#include "plan/chunk_inputs.h"
#include "plan/crossings.h"
#include "plan/internal.h"

#include <string.h>

/* ---- the store ---- */

static bool layout_in_store(void *arg, const char *name, kolo_tensor *tensor) {
    const kolo_store_entry *entry = kolo_store_find(arg, name);
    if (!entry) return false;
    *tensor = entry->mesh           ? entry->slice
              : entry->versions > 0 ? kolo_tensor_unstack(&entry->tensor)
                                    : entry->tensor;
    return true;
}

static bool cut_in_store(void *arg, const char *name, kolo_zero_cut *cut) {
    const kolo_store_entry *entry = kolo_store_find(arg, name);
    if (!entry || entry->versions > 0 || !(entry->cuts || entry->joins)) return false;
    *cut = (kolo_zero_cut){entry->cuts ? entry->cuts : entry->joins, entry->unit, entry->place};
    return true;
}

/* Whether an entry is the parameter or state v, sharded alike. */
static bool is_entry(const kolo_graph *g, const kolo_store_entry *entry, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    int64_t first, count;
    bool sharded = kolo_flat_range(g, v, &first, &count);
    const kolo_tensor *tensor = info->versions > 0 ? &info->whole
                                : sharded          ? &info->slice
                                                   : &info->tensor;
    const bool cut_alike = sharded == (entry->cuts != NULL) &&
                           (!sharded || (entry->first == first && entry->count == count));
    if (kolo_store_slices(g, v) != (entry->mesh != NULL)) return false;
    if ((info->holders != 0) != entry->staged || kolo_is_held(g, info) == entry->elsewhere) {
        return false;
    }
    if (entry->mesh) {
        return kolo_shape_equal(&entry->tensor.shape, &info->whole.shape) &&
               kolo_shape_equal(&entry->slice.shape, &tensor->shape) &&
               kolo_layout_equal(&entry->slice.layout, &tensor->layout) && cut_alike;
    }
    return kolo_shape_equal(&entry->tensor.shape, &tensor->shape) &&
           kolo_layout_equal(&entry->tensor.layout, &tensor->layout) && cut_alike;
}

/* Maps parameters and state to the entries of the store; adds missing entries. */
static kolo_status tie_store(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM && info->kind != KOLO_VALUE_STATE) continue;
        const kolo_store_entry *entry = kolo_store_find(p->store, info->name);
        if (!entry) {
            KOLO_TRY(kolo_store_add(p->store, g, (kolo_value){.id = v}));
            entry = kolo_store_entry_at(p->store, kolo_store_count(p->store) - 1);
        } else if (!is_entry(g, entry, (kolo_value){.id = v})) {
            return KOLO_FAIL(KOLO_ERR_ARG, "parameter %s has another shape in another plan",
                             info->name);
        }
        p->entries[v] = (int)(entry - kolo_store_entry_at(p->store, 0));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool joins = n->op->comm == KOLO_OP_WAIT && kolo_value_ok(kolo_info(g, n->out[0])->next_of);
        if (joins) KOLO_TRY(kolo_store_join(p->store, g, n));
    }
    if (p->comm) p->store->comm = p->comm;
    return kolo_store_grow(p->store, p->comm);
}

/* In-place updates follow all readers of the old version and, with other ranks, every WAIT. */
static kolo_status check_overwrites(const kolo_plan *p) {
    const kolo_graph *g = p->graph;
    int32_t *reader = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *reader), wait = -1;
    if (!reader) return KOLO_NOMEM((size_t)g->n_values * sizeof *reader);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (p->comm && !p->store->alone && g->nodes[i]->op->comm == KOLO_OP_WAIT) wait = i;
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            reader[g->nodes[i]->in[k].id] = i; /* the last */
    }
    kolo_status status = KOLO_OK;
    for (int32_t v = 0; status == KOLO_OK && v < g->n_values; v++) {
        kolo_value old = g->values[v].next_of;
        if (!kolo_value_ok(old) || !kolo_plan_entry(p, old.id)->single) continue;
        if (wait > g->values[v].producer) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s is overwritten before the last WAIT",
                               kolo_info(g, old)->name);
        } else if (reader[old.id] > g->values[v].producer) {
            status =
                KOLO_FAIL(KOLO_ERR_FORMAT, "%s is read after its update", kolo_info(g, old)->name);
        }
    }
    kolo_free(reader);
    return status;
}

/* ---- binding ---- */

static void unbind(const kolo_plan *p, kolo_step *step) {
    for (int i = 0; step->calls && i < 2 * p->slots; i++) {
        kolo_call *call = &step->calls[i];
        if (step->kernel && step->kernel->unbind && call->bound) step->kernel->unbind(call->bound);
        call->bound = NULL;
    }
}

/* Whether a node may run in a slot: one of its chunk, or the update, which is in any. */
static bool is_of_slot(const kolo_plan *p, const kolo_node *n, int slot) {
    return n->segment == KOLO_SEGMENT_UPDATE || n->chunk == kolo_plan_chunk(p, slot);
}

static kolo_status bind_step(kolo_plan *p, kolo_step *step) {
    const kolo_node *n = p->graph->nodes[step->node];
    const int slot = p->slot;
    unbind(p, step);
    for (int i = 0; i < 2 * p->slots; i++) {
        if (!is_of_slot(p, n, i / 2)) continue;
        const int bank = i % 2;
        kolo_call *call = &step->calls[i];
        p->slot = i / 2;
        *call = (kolo_call){.spec = &step->spec,
                            .state = step->state,
                            .scratch = kolo_plan_arena(p) + p->values_bytes};
        for (int k = 0; k < n->n_in; k++) {
            const kolo_location *in = &p->map.locations[n->in[k].id];
            call->in[k] = step->later && in->region == KOLO_REGION_TABLE
                              ? p->later_table + in->offset
                              : kolo_plan_address(p, n->in[k].id, bank);
        }
        for (int k = 0; k < n->n_out; k++) call->out[k] = kolo_plan_address(p, n->out[k].id, bank);
        if (step->kernel->bind) KOLO_TRY(step->kernel->bind(call));
    }
    p->slot = slot;
    return KOLO_OK;
}

kolo_status kolo_plan_bind(kolo_plan *p) {
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i].kind == KOLO_STEP_KERNEL) KOLO_TRY(bind_step(p, &p->steps[i]));
    }
    p->bound_at = p->store->moves;
    return KOLO_OK;
}

/* ---- steps ---- */

static kolo_status add_kernel(kolo_plan *p, int32_t node, const kolo_plan_opts *opts,
                              kolo_selections *selections) {
    kolo_step *step = &p->steps[p->n_steps++];
    *step = (kolo_step){.kind = KOLO_STEP_KERNEL, .node = node, .bucket = -1};
    kolo_kernel_spec_init(&step->spec, p->graph, p->graph->nodes[node], opts->threads);
    KOLO_TRY(kolo_kernel_select_cached(selections, opts->kernels, opts->tuner, &step->spec,
                                       &step->kernel, NULL));
    size_t scratch = 0;
    if (step->kernel->prepare) {
        KOLO_TRY(step->kernel->prepare(&step->spec, &step->state, &scratch));
    }
    if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    return KOLO_OK;
}

static void mark_once_per_step(kolo_plan *p, bool *once) {
    for (int32_t i = 0, s = 0; i < p->graph->n_nodes; i++) {
        once[i] = kolo_node_is_once_per_step(p->graph, i, once);
        if (s < p->n_steps && p->steps[s].node == i) p->steps[s++].once_per_step = once[i];
    }
}

/* Whether a POST or WAIT is a step. A plan that adds to another one takes part in the sums inside
 * the passes, by the requests of the other. */
static bool communicates(const kolo_plan *p, const kolo_node *n, const kolo_plan_opts *opts) {
    if (p->comm || opts->shards > 0 || (opts->posts && n->op->comm == KOLO_OP_POST)) return true;
    return n->attr[KOLO_COMM_INSIDE].i && p->adds_to && p->adds_to->comm;
}

static bool is_wait(const kolo_graph *g, kolo_value v) {
    int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 && g->nodes[producer]->op->comm == KOLO_OP_WAIT;
}

/* Whether v arrives from ranks that have the same samples, and is of these. */
static bool is_of_same_samples(const kolo_plan *p, kolo_value v) {
    const kolo_graph *g = p->graph;
    if (!is_wait(g, v)) return false;
    const kolo_node *wait = g->nodes[kolo_info(g, v)->producer];
    const kolo_node *post = g->nodes[kolo_info(g, wait->in[0])->producer];
    if (!p->map.buckets[post->attr[KOLO_COMM_BUCKET].i].of_model) return false;
    for (int k = 0; k < wait->n_out; k++) {
        if (wait->out[k].id != v.id) continue;
        const int32_t maker = kolo_info(g, post->in[k])->producer;
        return maker < 0 || !p->shared[maker];
    }
    return false;
}

/* Whether node i of the passes runs in micro-batches without samples too: their collectives, and
 * what depends on nothing but these, parameters and scalars. p->shared has the result for earlier
 * nodes. */
static bool is_shared(const kolo_plan *p, int32_t i) {
    const kolo_graph *g = p->graph;
    const kolo_node *n = g->nodes[i];
    if (n->op->comm == KOLO_OP_POST || n->op->comm == KOLO_OP_WAIT) {
        return n->attr[KOLO_COMM_INSIDE].i != 0;
    }
    if (n->op == &kolo_op_accumulate && !is_wait(g, n->in[0])) return false;
    for (int k = 0; k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        if (in->kind == KOLO_VALUE_INPUT) return false;
        if (in->producer >= 0 && !p->shared[in->producer]) return false;
        if (is_of_same_samples(p, n->in[k])) return false;
    }
    return !kolo_node_is_update(g, n);
}

static kolo_status mark_shared(kolo_plan *p) {
    bool any = false;
    p->shared = kolo_zalloc((size_t)p->graph->n_nodes + 1);
    if (!p->shared) return KOLO_NOMEM(p->graph->n_nodes);
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        p->shared[i] = is_shared(p, i);
        any |= p->shared[i] && p->graph->nodes[i]->op->comm == KOLO_OP_POST;
    }
    for (int i = 0; i < p->n_steps; i++) {
        p->steps[i].inside = any && p->shared[p->steps[i].node] && !p->steps[i].once_per_step;
    }
    return KOLO_OK;
}

/* Whether a node computes nothing: this rank has an empty range of a parameter. */
static bool is_empty(const kolo_graph *g, const kolo_node *n) {
    return kolo_shape_count(&kolo_info(g, n->out[0])->tensor.shape) == 0;
}

/* The calls of all steps, once their number is known. */
static kolo_status make_calls(kolo_plan *p) {
    const size_t each = 2 * (size_t)p->slots, n = ((size_t)p->n_steps + 1) * each;
    p->calls = kolo_zalloc(n * sizeof *p->calls);
    if (!p->calls) return KOLO_NOMEM(n * sizeof *p->calls);
    for (int i = 0; i < p->n_steps; i++) {
        p->steps[i].calls = p->calls + (size_t)i * each;
        p->steps[i].segment = p->graph->nodes[p->steps[i].node]->segment;
        p->steps[i].chunk = p->graph->nodes[p->steps[i].node]->chunk;
    }
    return KOLO_OK;
}

static kolo_status add_steps(kolo_plan *p, const kolo_plan_opts *opts,
                             kolo_selections *selections) {
    const kolo_graph *g = p->graph;
    p->steps = kolo_zalloc(((size_t)g->n_nodes + 1) * sizeof *p->steps);
    if (!p->steps) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *p->steps);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool comm = n->op->comm == KOLO_OP_POST || n->op->comm == KOLO_OP_WAIT;
        if (comm && communicates(p, n, opts)) {
            p->steps[p->n_steps++] = (kolo_step){
                .kind = n->op->comm == KOLO_OP_POST ? KOLO_STEP_POST : KOLO_STEP_WAIT,
                .node = i,
                .bucket = (int)n->attr[KOLO_COMM_BUCKET].i,
            };
        } else if (!n->op->view && !is_empty(p->graph, n)) {
            kolo_status status = add_kernel(p, i, opts, selections);
            if (status != KOLO_OK) return status;
        }
    }
    KOLO_TRY(make_calls(p));
    bool *once = kolo_alloc((size_t)g->n_nodes + 1);
    if (!once) return KOLO_NOMEM(g->n_nodes);
    mark_once_per_step(p, once);
    kolo_free(once);
    return mark_shared(p);
}

/* ---- memory ---- */

/* Whether what is accumulated of a gradient is in the same place in two plans: of each chunk of a
 * stage that reads the parameter. */
static bool sums_agree(const kolo_plan *p, kolo_value v, const kolo_plan *other, kolo_value w) {
    const int32_t made = kolo_info(p->graph, v)->producer,
                  its = kolo_info(other->graph, w)->producer;
    const kolo_node *n = made >= 0 ? p->graph->nodes[made] : NULL;
    const kolo_node *m = its >= 0 ? other->graph->nodes[its] : NULL;
    if (p->chunks > 1 && n && n->op == &kolo_op_add && n->segment == KOLO_SEGMENT_UPDATE) {
        if (!m || m->op != n->op || m->n_in != n->n_in) return false;
        for (int k = 0; k < n->n_in; k++) {
            if (!sums_agree(p, n->in[k], other, m->in[k])) return false;
        }
        return true;
    }
    return p->map.locations[v.id].offset == other->map.locations[w.id].offset;
}

/* Whether two plans of one model have the same memory layout of gradients. */
static bool gradients_agree(const kolo_plan *p, const kolo_plan *other) {
    const kolo_memory_map *a = &p->map, *b = &other->map;
    if (a->bucket_bytes != b->bucket_bytes || a->n_buckets != b->n_buckets) return false;
    for (int i = 0; i < a->n_buckets; i++) {
        bool gradients = !a->buckets[i].of_model;
        if (gradients && a->buckets[i].offset != b->buckets[i].offset) return false;
    }
    for (int32_t v = 0; v < p->graph->n_values; v++) {
        const kolo_value_info *mine = &p->graph->values[v];
        if (mine->kind != KOLO_VALUE_PARAM || !kolo_value_ok(mine->grad)) continue;
        kolo_value its = kolo_graph_find(other->graph, mine->name);
        kolo_value grad = kolo_value_ok(its) ? kolo_info(other->graph, its)->grad : KOLO_NONE;
        if (!kolo_value_ok(grad)) return false;
        if (!sums_agree(p, mine->grad, other, grad)) return false;
    }
    return true;
}

static kolo_status check_gradients(const kolo_plan *p) {
    if (!gradients_agree(p, p->adds_to)) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "micro-batches or shards of unequal sizes have different layouts of gradients: choose "
            "a batch that divides the samples of each worker, or shards that divide every batch");
    }
    KOLO_ASSERT(p->gradients == p->adds_to->gradients);
    return KOLO_OK;
}

/* Memory of its own for the arena and what is communicated. */
static kolo_status map_apart(kolo_plan *p) {
    const size_t arena = kolo_round_up(p->values_bytes + p->scratch_bytes + 1, 4096);
    p->own_bytes = arena + (p->comm ? 0 : p->map.bucket_bytes);
    p->arena = kolo_pages_map(p->own_bytes);
    if (!p->arena) return KOLO_NOMEM(p->own_bytes);
    p->gradients = p->arena + arena;
    if (!p->comm || p->map.bucket_bytes == 0) return KOLO_OK;
    void *memory;
    KOLO_TRY(kolo_comm_alloc(p->comm, p->map.bucket_bytes, &memory));
    p->gradients = memory;
    return KOLO_OK;
}

/* The steps before the first that waits or updates. */
static int count_first(const kolo_plan *p) {
    int n = 0;
    while (n < p->n_steps && p->steps[n].kind != KOLO_STEP_WAIT &&
           !kolo_node_is_update(p->graph, p->graph->nodes[p->steps[n].node])) {
        n++;
    }
    return n;
}

/* The region of buckets up to the last one that is summed over logical shards. */
static size_t sums_end(const kolo_plan *p) {
    size_t end = 0;
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        const kolo_node *n = p->graph->nodes[i];
        if (n->op->comm != KOLO_OP_POST || !n->attr[KOLO_COMM_OF_SAMPLES].i) continue;
        const kolo_bucket *b = &p->map.buckets[n->attr[KOLO_COMM_BUCKET].i];
        if (b->offset + b->bytes > end) end = b->offset + b->bytes;
    }
    return end;
}

static kolo_status map_memory(kolo_plan *p, const kolo_plan_opts *o) {
    p->values_bytes = kolo_round_up(p->map.arena_bytes, 4096);
    if (!o->apart) {
        KOLO_TRY(kolo_store_reserve(p->store, p->values_bytes + p->scratch_bytes + 1));
    }
    p->table = kolo_zalloc(p->map.table_bytes + 1);
    if (!p->table) return KOLO_NOMEM(p->map.table_bytes);
    kolo_value stage = kolo_plan_find_scalar(p, "stage"); /* its summand */
    kolo_plan_set(p, stage, 1);
    const size_t slot_bytes = kolo_plan_slot_offset(p, p->slots);
    if (slot_bytes > 0) {
        p->slot_memory = kolo_pages_map(slot_bytes);
        if (!p->slot_memory) return KOLO_NOMEM(slot_bytes);
    }
    if (p->map.model_bytes > 0) {
        void *memory;
        KOLO_TRY(kolo_comm_alloc(p->comm, (size_t)p->slots * p->map.model_bytes, &memory));
        p->model = memory;
    }
    p->n_first = count_first(p);
    if (o->apart) return map_apart(p);
    if (p->map.bucket_bytes == 0) return KOLO_OK;
    KOLO_TRY(kolo_store_reserve_gradients(p->store, p->comm, p->map.bucket_bytes));
    if (!p->store->own_gradients) p->gradients = p->store->gradients;
    if (p->adds_to) return check_gradients(p);
    return o->shards > 0 ? kolo_shard_sum_create(o->shards, sums_end(p), p->comm, &p->sum)
                         : KOLO_OK;
}

/* The collective of flat shards in a bucket. `counts`: by rank, filled. */
static void shard_request(const kolo_plan *p, const kolo_bucket *bucket, size_t element, int ranks,
                          kolo_request_opts *opts, size_t *counts) {
    for (int r = 0; r < ranks; r++) {
        counts[r] = (bucket->ends[r] - (r > 0 ? bucket->ends[r - 1] : 0)) / element;
    }
    opts->kind = bucket->collective;
    opts->counts = counts;
    if (bucket->collective != KOLO_COLLECTIVE_REDUCE_SCATTER || bucket->in_place) return;
    opts->input = opts->output;
    opts->output = p->gradients + bucket->slice;
}

/* The allgather of rows; `arrives` is the output of the WAIT. */
static void rows_request(const kolo_plan *p, const kolo_node *post, kolo_value arrives,
                         kolo_request_opts *opts) {
    const kolo_tensor *first = &kolo_info(p->graph, post->in[0])->tensor;
    const void *own = kolo_plan_address(p, post->in[0].id, 0);
    void *all = kolo_plan_address(p, arrives.id, 0);
    *opts = (kolo_request_opts){
        .kind = KOLO_COLLECTIVE_ALLGATHER,
        .dtype = first->dtype,
        .input = own != all ? own : NULL, /* NULL: in place, one rank */
        .output = all,
        .count = (size_t)kolo_shape_count(&first->shape),
        .priority = opts->priority,
    };
}

/* The reduce-scatter of an activation, of which each rank gets an equal slice of the samples. */
static void slices_request(const kolo_plan *p, kolo_value arrives, int ranks,
                           kolo_request_opts *opts, size_t *counts) {
    const kolo_tensor *slice = &kolo_info(p->graph, arrives)->tensor;
    for (int r = 0; r < ranks; r++) counts[r] = (size_t)kolo_tensor_elements(slice);
    opts->kind = KOLO_COLLECTIVE_REDUCE_SCATTER;
    opts->counts = counts;
    opts->input = opts->output;
    opts->output = kolo_plan_address(p, arrives.id, 0);
}

/* Where the values of a bucket are in the plan's current slot while `bank` of the store is current.
 */
static char *bucket_memory(const kolo_plan *p, const kolo_bucket *bucket, int bank) {
    if (kolo_value_ok(bucket->joins)) {
        return kolo_store_at(p->store, kolo_plan_entry(p, bucket->joins.id), !bank);
    }
    char *memory =
        bucket->of_model ? p->model + (size_t)p->slot * p->map.model_bytes : p->gradients;
    return memory + bucket->offset;
}

/* The name of a collective in errors, the same on all ranks of its group: the number of its bucket
 * among those of these axes. Ranks with slices of different sizes have different numbers of others,
 * and so have stages. */
static char *site_of(const kolo_plan *p, const kolo_node *post) {
    const kolo_graph *g = p->graph;
    const kolo_axes axes = (kolo_axes)post->attr[KOLO_COMM_AXES].i;
    const int pp = kolo_mesh_find(&g->mesh, "pp");
    int number = 0;
    if (g->stages > 0 && axes == (kolo_axes)1 << pp) return kolo_format("sum over the stages");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        number += n->op->comm == KOLO_OP_POST && (kolo_axes)n->attr[KOLO_COMM_AXES].i == axes &&
                  n->attr[KOLO_COMM_BUCKET].i < post->attr[KOLO_COMM_BUCKET].i;
    }
    return kolo_format("bucket %d", number);
}

/* Whether the sums of a step and those inside the passes of the next one may all be in flight. Else
 * a sum that is behind the others delays the start of those. */
static bool all_fit(const kolo_plan *p) {
    int inside = 0;
    for (int i = 0; i < p->n_steps; i++) {
        inside += p->steps[i].kind == KOLO_STEP_POST && p->steps[i].inside;
    }
    return p->map.n_buckets + inside <= KOLO_FLIGHT_MAX;
}

/* The sum that the next step needs first goes before the others. */
static int priority_of(const kolo_plan *p, int bucket) {
    if (!all_fit(p)) return 0;
    for (int i = 0; i < p->n_later; i++) {
        const kolo_step *step = &p->steps[p->later[i].step];
        if (step->kind == KOLO_STEP_WAIT && step->bucket == bucket) return -1 - i;
    }
    return 0;
}

/* The collective of a POST in the plan's current slot, while `bank` of the store is current;
 * `arrives` is the output of its WAIT. */
static kolo_status make_request(kolo_plan *p, const kolo_node *post, kolo_value arrives, int bank) {
    int i = (int)post->attr[KOLO_COMM_BUCKET].i;
    const kolo_bucket *bucket = &p->map.buckets[i];
    /* Activations may be bf16. */
    const kolo_dtype dtype =
        bucket->ends ? p->graph->dtype : kolo_info(p->graph, post->in[0])->tensor.dtype;
    size_t element = kolo_dtype_bytes(dtype);
    kolo_request_opts opts = {
        .kind = KOLO_COLLECTIVE_ALLREDUCE,
        .dtype = dtype,
        .op = (kolo_reduce_op)post->attr[KOLO_COMM_OP].i,
        .output = bucket_memory(p, bucket, bank),
        .count = bucket->bytes / element,
        .algorithm = p->algorithm,
        .priority = priority_of(p, i),
    };
    kolo_part parts[KOLO_SHARD_NODES];
    kolo_comm *group = p->comm;
    if (p->groups) {
        KOLO_TRY(kolo_mesh_comms_get(p->groups, (kolo_axes)post->attr[KOLO_COMM_AXES].i, &group));
    }
    size_t *counts = kolo_zalloc((size_t)kolo_comm_size(p->comm) * sizeof *counts);
    char *site = site_of(p, post);
    kolo_status status = counts && site ? KOLO_OK : KOLO_NOMEM(32);
    if (status == KOLO_OK) {
        if (p->sum && post->attr[KOLO_COMM_OF_SAMPLES].i) {
            kolo_shard_sum_request(p->sum, p->gradients, bucket->offset, &opts, parts);
        } else if (bucket->collective == KOLO_COLLECTIVE_BARRIER) {
            opts = (kolo_request_opts){.kind = KOLO_COLLECTIVE_BARRIER};
        } else if (bucket->ends) {
            const kolo_axes axes = (kolo_axes)post->attr[KOLO_COMM_AXES].i;
            shard_request(p, bucket, element, kolo_mesh_group_size(&p->graph->mesh, axes), &opts,
                          counts);
        } else if (bucket->collective == KOLO_COLLECTIVE_ALLGATHER) {
            rows_request(p, post, arrives, &opts);
        } else if (bucket->collective == KOLO_COLLECTIVE_REDUCE_SCATTER) {
            slices_request(p, arrives, kolo_comm_size(group), &opts, counts);
        }
        opts.site = site;
        status = kolo_request_create(group, &opts, kolo_plan_request_at(p, p->slot, i, bank));
    }
    kolo_free(site);
    kolo_free(counts);
    return status;
}

/* The tensor that the ranks of the axes along which a move changes placements hold together. A
 * dimension that is cut on one side is whole on the other, or in equal slices, which are rotated.
 */
static kolo_shape whole_of(const kolo_mesh_link_opts *link, const kolo_shape *from,
                           const kolo_shape *to) {
    kolo_shape whole = *from;
    for (int d = 0; d < whole.rank; d++) whole.dim[d] = kolo_max_i64(from->dim[d], to->dim[d]);
    for (int a = 0; a < link->mesh->n_axes; a++) {
        const kolo_placement *was = &link->from.axis[a], *is = &link->to.axis[a];
        const bool cut = was->kind == KOLO_PLACEMENT_SHARDED && is->kind == KOLO_PLACEMENT_SHARDED;
        if (cut && was->dim == is->dim) whole.dim[is->dim] *= link->mesh->axes[a].size;
    }
    return whole;
}

/* The link of a POST in the plan's current slot. Along other axes every group moves its own. */
static kolo_status make_link(kolo_plan *p, const kolo_node *post, kolo_value arrives) {
    const int bucket = (int)post->attr[KOLO_COMM_BUCKET].i;
    const kolo_tensor *from = &kolo_info(p->graph, post->in[0])->tensor;
    char *site = site_of(p, post);
    kolo_mesh_link **link = &p->links[p->slot * p->map.n_buckets + bucket];
    char *memory = p->model + (size_t)p->slot * p->map.model_bytes;
    kolo_mesh_link_opts opts = {
        .mesh = &p->graph->mesh,
        .rank = p->graph->rank,
        .dtype = from->dtype,
        .source = kolo_plan_address(p, post->in[0].id, 0),
        .target = kolo_plan_address(p, arrives.id, 0),
        .buffers = memory + p->map.buckets[bucket].slice,
        .buffer_bytes = p->map.buckets[bucket].bytes +
                        kolo_round_up(kolo_tensor_bytes(&kolo_info(p->graph, arrives)->tensor), 64),
        .site = site,
    };
    if (!site) return KOLO_NOMEM(32);
    for (int a = 0; a < opts.mesh->n_axes; a++) {
        if (!((kolo_axes)post->attr[KOLO_COMM_AXES].i >> a & 1)) continue;
        opts.from.axis[a] = post->move->from.axis[a];
        opts.to.axis[a] = post->move->to.axis[a];
    }
    opts.shape = whole_of(&opts, &from->shape, &kolo_info(p->graph, arrives)->tensor.shape);
    kolo_status status = kolo_mesh_link_create(&opts, link);
    kolo_free(site);
    KOLO_TRY(status);
    p->link_bytes += kolo_mesh_link_bytes(*link);
    if (!p->groups) return KOLO_OK; /* nothing runs it */
    KOLO_TRY(kolo_mesh_link_attach(*link, p->groups));
    return KOLO_OK;
}

static void destroy_requests(kolo_plan *p) {
    const int n = 2 * p->slots * p->map.n_buckets;
    for (int i = 0; p->links && i < p->slots * p->map.n_buckets; i++) {
        kolo_mesh_link_destroy(p->links[i]);
    }
    kolo_free((void *)p->links);
    p->links = NULL;
    p->link_bytes = 0;
    for (int i = 0; p->requests && i < n; i++) kolo_request_destroy(p->requests[i]);
    kolo_free((void *)p->requests);
    p->requests = NULL;
}

/* Those of the current slot: slots share the sums over micro-batches. */
static kolo_status make_slot_requests(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op->comm != KOLO_OP_WAIT) continue;
        const kolo_node *post = g->nodes[kolo_info(g, g->nodes[i]->in[0])->producer];
        const kolo_bucket *bucket = &p->map.buckets[post->attr[KOLO_COMM_BUCKET].i];
        if (!bucket->of_model && (p->slot > 0 || p->adds_to)) continue; /* of the first; its own */
        if (bucket->of_model && !is_of_slot(p, post, p->slot)) continue;
        if (bucket->collective == KOLO_COLLECTIVE_ALLTOALL) {
            KOLO_TRY(make_link(p, post, g->nodes[i]->out[0]));
            continue;
        }
        for (int bank = 0; bank <= kolo_value_ok(bucket->joins); bank++) {
            KOLO_TRY(make_request(p, post, g->nodes[i]->out[0], bank));
        }
    }
    return KOLO_OK;
}

static kolo_status make_requests(kolo_plan *p) {
    const size_t n = 2 * (size_t)p->slots * (size_t)p->map.n_buckets;
    if (!p->comm || n == 0) return KOLO_OK;
    p->requests = kolo_zalloc(n * sizeof(kolo_request *));
    if (!p->ready_ns) p->ready_ns = kolo_zalloc((size_t)p->map.n_buckets * sizeof *p->ready_ns);
    p->links = kolo_zalloc(n * sizeof(kolo_mesh_link *));
    if (!p->requests || !p->links || !p->ready_ns) return KOLO_NOMEM(n * sizeof(kolo_request *));
    kolo_status status = KOLO_OK;
    for (p->slot = 0; status == KOLO_OK && p->slot < p->slots; p->slot++) {
        status = make_slot_requests(p);
    }
    p->slot = 0;
    return status;
}

kolo_status kolo_plan_deal(kolo_plan *p, const int *counts) {
    KOLO_ASSERT(!p->adds_to);
    if (!p->sum) return KOLO_OK; /* nothing to sum */
    destroy_requests(p);
    KOLO_TRY(kolo_shard_sum_deal(p->sum, counts));
    return make_requests(p);
}

/* ---- the whole ---- */

static kolo_status resolve(const kolo_plan_opts *in, kolo_plan_opts *out) {
    *out = in ? *in : (kolo_plan_opts){0};
    if (!out->bucket_bytes) out->bucket_bytes = KOLO_BUCKET_BYTES;
    if (!out->threads) out->threads = 1;
    if (out->threads < 0) return KOLO_FAIL(KOLO_ERR_ARG, "threads is %d", out->threads);
    return KOLO_OK;
}

kolo_pipeline_opts kolo_plan_passes(const kolo_plan_opts *o) {
    return (kolo_pipeline_opts){
        .train = o->train,
        .updates_only = o->updates_only,
        .versions = o->versions,
        .version = o->version,
        .optimizer = o->optimizer,
        .recompute = o->recompute,
        .precision = o->precision,
        .sparse_embedding = o->sparse_embedding,
        .sync_batch_norm = o->sync_batch_norm,
        .keep_gradients = o->keep_gradients,
        .most_samples = o->most_samples,
        .mesh = o->mesh,
        .placement = o->placement,
        .parts = o->parts,
        .splits = o->splits,
        .zero = kolo_plan_level(o),
        .keep_sums = o->shards > 0 && kolo_plan_level(o) > 2,
        .share = o->share,
        .lag = o->lag,
        .cross_step = o->cross_step,
        .no_chains = o->no_chains,
        .compression = o->compression,
        .micro_batches = o->micro_batches,
        .bucket_bytes = o->bucket_bytes,
        .bucket_sizes = o->bucket_sizes,
        .n_bucket_sizes = o->n_bucket_sizes,
        .kernels = o->kernels,
        .tuner = o->tuner,
        .threads = o->threads,
    };
}

kolo_status kolo_plan_compile(kolo_graph *graph, const kolo_plan_opts *opts, kolo_store *store,
                              kolo_comm *comm, kolo_plan **plan) {
    kolo_plan_opts o;
    kolo_selections selections = {0};
    kolo_status status = KOLO_OK;
    kolo_plan *p = kolo_zalloc(sizeof *p);
    if (!p) {
        kolo_graph_destroy(graph);
        return KOLO_NOMEM(sizeof *p);
    }
    p->graph = graph;
    p->store = store;
    KOLO_TRY_GOTO(resolve(opts, &o), fail);
    KOLO_ASSERT(!store->unsettled); /* its memory may move */
    const bool model_axes = kolo_mesh_has_model_axis(&o.mesh);
    p->comm = o.train || kolo_plan_level(&o) > 2 || model_axes ? comm : NULL;
    p->groups = o.groups;
    p->train = o.train;
    p->updates_only = o.updates_only;
    const int stages = kolo_mesh_stages(&o.mesh);
    p->accumulates = o.micro_batches > 1 || stages > 1;
    p->chunks = o.parts.chunks > 0 ? o.parts.chunks : 1;
    for (int c = 0; c < p->chunks; c++) {
        p->first_slot[c + 1] = p->first_slot[c] + (o.slots ? o.slots[c] : 1);
    }
    p->slots = p->first_slot[p->chunks];
    p->adds_to = o.adds_to;
    p->algorithm = o.algorithm;
    p->times = o.times;
    if (o.adds_to) p->sum = o.adds_to->sum;
    KOLO_ASSERT(!o.adds_to || ((p->accumulates || p->sum) && (!p->comm || model_axes)));
    if (o.shards > 0 && o.sparse_embedding) {
        status = KOLO_FAIL(
            KOLO_ERR_ARG,
            "row-sparse gradients cannot be summed over logical shards: omit --sparse-embedding");
        goto fail;
    }
    KOLO_ASSERT(o.shards == 0 || !o.sync_batch_norm);
    kolo_pipeline_opts pipeline = kolo_plan_passes(&o);
    if (p->comm && o.mesh.n_axes == 0) {
        pipeline.mesh = (kolo_mesh){1, {{"dp", kolo_comm_size(p->comm)}}};
    }
    pipeline.rank = comm ? kolo_comm_rank(comm) : o.rank;
    if (o.adds_to) pipeline.rank = o.adds_to->graph->rank;
    pipeline.cuts = &store->cuts;
    pipeline.cut_names = &store->names;
    pipeline.selections = &selections;
    pipeline.fixed = layout_in_store;
    pipeline.fixed_cut = cut_in_store;
    pipeline.fixed_arg = store;
    KOLO_TRY_GOTO(kolo_pipeline_run(graph, &pipeline), fail);
    KOLO_TRY_GOTO(kolo_pass_memory(graph, &p->map), fail);
    p->entries = kolo_zalloc(((size_t)graph->n_values + 1) * sizeof *p->entries);
    if (!p->entries) {
        status = KOLO_NOMEM((size_t)graph->n_values * sizeof *p->entries);
        goto fail;
    }
    KOLO_TRY_GOTO(tie_store(p), fail);
    KOLO_TRY_GOTO(check_overwrites(p), fail);
    KOLO_TRY_GOTO(add_steps(p, &o, &selections), fail);
    KOLO_TRY_GOTO(kolo_plan_set_phases(p), fail);
    KOLO_TRY_GOTO(kolo_plan_find_later_steps(p), fail);
    KOLO_ASSERT(p->n_later == 0 || (o.shards == 0 && o.lag == 0 && stages <= 1));
    KOLO_TRY_GOTO(map_memory(p, &o), fail);
    KOLO_TRY_GOTO(kolo_plan_bind(p), fail);
    if (!p->sum) KOLO_TRY_GOTO(make_requests(p), fail);
    if (stages > 1 && p->comm) { /* else nothing runs it */
        KOLO_TRY_GOTO(kolo_chunk_inputs_find(p), fail);
        KOLO_TRY_GOTO(kolo_crossings_create(p), fail);
    }
    kolo_selections_fini(&selections);
    *plan = p;
    return KOLO_OK;
fail:
    kolo_selections_fini(&selections);
    kolo_plan_destroy(p);
    return status;
}

void kolo_plan_destroy(kolo_plan *p) {
    if (!p) return;
    destroy_requests(p);
    kolo_crossings_destroy(p);
    if (!p->adds_to) kolo_shard_sum_destroy(p->sum);
    for (int i = 0; i < p->n_steps; i++) {
        unbind(p, &p->steps[i]);
        const kolo_kernel *kernel = p->steps[i].kernel;
        if (kernel && kernel->release && p->steps[i].state) kernel->release(p->steps[i].state);
    }
    if (p->store->unsettled == p) p->store->unsettled = NULL;
    if (p->begun && --p->store->n_begun == 0) p->store->background = NULL;
    if (p->arena) kolo_pages_unmap(p->arena, p->own_bytes);
    kolo_pages_unmap(p->slot_memory, kolo_plan_slot_offset(p, p->slots));
    kolo_free(p->ready_ns);
    kolo_free(p->table);
    kolo_free(p->later_table);
    kolo_free(p->later);
    kolo_free(p->calls);
    kolo_free(p->steps);
    kolo_free(p->entries);
    kolo_free(p->shared);
    kolo_free(p->readers);
    kolo_memory_map_fini(&p->map);
    kolo_graph_destroy(p->graph);
    kolo_free(p);
}

/* ---- inputs and outputs ---- */

static kolo_value find_leaf(const kolo_plan *p, const char *name, kolo_value_kind kind) {
    kolo_value v = kolo_graph_find(p->graph, name);
    return kolo_value_ok(v) && kolo_info(p->graph, v)->kind == kind ? v : KOLO_NONE;
}

kolo_value kolo_plan_find_input(const kolo_plan *p, const char *name) {
    return find_leaf(p, name, KOLO_VALUE_INPUT);
}

void *kolo_plan_input(const kolo_plan *p, const char *name, kolo_tensor *tensor) {
    kolo_value v = kolo_plan_find_input(p, name);
    KOLO_ASSERT(kolo_value_ok(v));
    if (tensor) *tensor = kolo_info(p->graph, v)->tensor;
    return kolo_plan_data(p, v);
}

kolo_value kolo_plan_find_scalar(const kolo_plan *p, const char *name) {
    return find_leaf(p, name, KOLO_VALUE_SCALAR);
}

kolo_value kolo_plan_find_output(const kolo_plan *p, const char *name) {
    return kolo_graph_output(p->graph, name);
}

void kolo_plan_set(kolo_plan *p, kolo_value scalar, double number) {
    if (!kolo_value_ok(scalar)) return;
    void *data = kolo_plan_address(p, scalar.id, 0);
    kolo_dtype dtype = kolo_info(p->graph, scalar)->tensor.dtype;
    KOLO_ASSERT(dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64);
    if (dtype == KOLO_DTYPE_F64) {
        *(double *)data = number;
    } else {
        *(float *)data = (float)number;
    }
}

void kolo_plan_set_integer(kolo_plan *p, kolo_value scalar, int64_t number) {
    if (!kolo_value_ok(scalar)) return;
    KOLO_ASSERT(kolo_info(p->graph, scalar)->tensor.dtype == KOLO_DTYPE_I64);
    *(int64_t *)kolo_plan_address(p, scalar.id, 0) = number;
}

void kolo_plan_set_scalar(kolo_plan *p, const char *name, double number) {
    kolo_value v = kolo_plan_find_scalar(p, name);
    KOLO_ASSERT(kolo_value_ok(v));
    kolo_plan_set(p, v, number);
}

const void *kolo_plan_output(const kolo_plan *p, const char *name, kolo_tensor *tensor) {
    kolo_value v = kolo_graph_output(p->graph, name);
    if (!kolo_value_ok(v)) return NULL;
    *tensor = kolo_info(p->graph, v)->tensor;
    return kolo_plan_address(p, v.id, p->ran_bank);
}

const void *kolo_plan_gradient(const kolo_plan *p, const char *parameter, kolo_tensor *tensor) {
    kolo_value v = find_leaf(p, parameter, KOLO_VALUE_PARAM);
    char name[KOLO_GRADIENT_NAME];
    if (!kolo_value_ok(v)) return NULL;
    return kolo_plan_output(p, kolo_gradient_name(v.id, name), tensor);
}

double kolo_plan_get(const kolo_plan *p, kolo_value output) {
    const kolo_tensor *tensor = &kolo_info(p->graph, output)->tensor;
    KOLO_ASSERT(kolo_shape_count(&tensor->shape) == 1);
    const void *data = kolo_plan_address(p, output.id, p->ran_bank);
    return tensor->dtype == KOLO_DTYPE_F64 ? *(const double *)data : (double)*(const float *)data;
}

double kolo_plan_scalar(const kolo_plan *p, const char *name) {
    kolo_value v = kolo_plan_find_output(p, name);
    KOLO_ASSERT(kolo_value_ok(v));
    return kolo_plan_get(p, v);
}
