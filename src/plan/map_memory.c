/* The memory of a plan: reserved in the store or its own, and registered where it is communicated.
 */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "plan/transfers.h"

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

/* The first bucket from `i` on that is not of activations alone. */
static int next_sum(const kolo_memory_map *map, int i) {
    while (i < map->n_buckets && map->buckets[i].of_model) i++;
    return i;
}

/* Whether the passes read a bucket: they find the request of the other plan by its number. */
static bool is_inside(const kolo_plan *p, int bucket) {
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        const kolo_node *n = p->graph->nodes[i];
        const bool post = n->op->comm == KOLO_OP_POST && n->attr[KOLO_COMM_BUCKET].i == bucket;
        if (post && n->attr[KOLO_COMM_INSIDE].i) return true;
    }
    return false;
}

/* Whether the buckets of gradients are at the same places. Those of activations are of a plan
 * alone: there are others where samples do not divide (partition/experts.c). */
static bool buckets_agree(const kolo_plan *p, const kolo_plan *other) {
    const kolo_memory_map *a = &p->map, *b = &other->map;
    int i = next_sum(a, 0), j = next_sum(b, 0);
    if (a->bucket_bytes != b->bucket_bytes) return false;
    for (; i < a->n_buckets && j < b->n_buckets; i = next_sum(a, i + 1), j = next_sum(b, j + 1)) {
        if (a->buckets[i].offset != b->buckets[j].offset) return false;
        if (i != j && is_inside(p, i)) return false;
    }
    return i == a->n_buckets && j == b->n_buckets;
}

/* The next node from `i` on that sums rows over micro-batches; NULL: there is none. */
static const kolo_node *next_rows(const kolo_graph *g, int32_t *i) {
    while (*i < g->n_nodes && g->nodes[*i]->op != &kolo_op_accumulate_rows) ++*i;
    return *i < g->n_nodes ? g->nodes[(*i)++] : NULL;
}

static bool rows_agree(const kolo_plan *p, const kolo_plan *other) {
    for (int32_t i = 0, j = 0;;) {
        const kolo_node *n = next_rows(p->graph, &i), *m = next_rows(other->graph, &j);
        if (!n || !m) return n == m;
        for (int k = 0; k < n->n_out; k++) {
            const kolo_location *a = &p->map.locations[n->out[k].id],
                                *b = &other->map.locations[m->out[k].id];
            if (a->offset != b->offset) return false;
        }
    }
}

/* Whether two plans of one model have the same memory layout of gradients. */
static bool gradients_agree(const kolo_plan *p, const kolo_plan *other) {
    if (!buckets_agree(p, other) || !rows_agree(p, other)) return false;
    for (int32_t v = 0; v < p->graph->n_values; v++) {
        const kolo_value_info *mine = &p->graph->values[v];
        const bool dense = mine->kind == KOLO_VALUE_PARAM && mine->rows == 0;
        if (!dense || !kolo_value_ok(mine->grad)) continue;
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
    KOLO_TRY(kolo_regions_map(p->store->regions, NULL, p->own_bytes, &p->arena));
    if (p->comm && p->map.bucket_bytes > 0) {
        return kolo_regions_map(p->store->regions, p->comm, p->map.bucket_bytes, &p->gradients);
    }
    p->gradients = p->arena + arena;
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

/* The sum over the shards, which the places on dp divide. */
static kolo_status create_sum(kolo_plan *p, int shards) {
    const kolo_mesh *mesh = &p->graph->mesh;
    const int dp = kolo_mesh_find(mesh, "dp");
    const int places = p->comm ? mesh->axes[dp].size : 1;
    const int place = p->comm ? kolo_mesh_coordinate(mesh, p->graph->rank, dp) : 0;
    return kolo_shard_sum_create(shards, sums_end(p), p->comm, places, place, &p->sum);
}

/* What is communicated along other axes than dp. Without a communicator, as for the measurement of
 * kernels, it is not registered. */
static kolo_status map_model(kolo_plan *p) {
    const size_t bytes = (size_t)p->slots * p->map.model_bytes;
    if (bytes == 0) return KOLO_OK;
    return kolo_regions_map(p->store->regions, p->comm, bytes, &p->model);
}

/* Counts what all plans of the store need as if they were this one. */
kolo_status kolo_plan_check_device(const kolo_plan *p) {
    static const double mib = 1 << 20;
    const kolo_device *device = kolo_regions_device(p->store->regions);
    const kolo_plan_memory m = kolo_plan_memory_of(p);
    const size_t values = m.arena + m.scratch, all = m.store + m.gradients + values;
    char name[KOLO_DEVICE_TEXT];
    if (!kolo_regions_are_apart(p->store->regions)) return KOLO_OK;
    const size_t total = device->kind->memory(device).total;
    if (all <= total) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_NOMEM,
                     "a plan needs %.1f MiB of device %s (parameters and optimizer %.1f, gradients "
                     "%.1f, values of a step %.1f), which has %.1f MiB: use a smaller model or "
                     "batch, --accumulate or --recompute full",
                     (double)all / mib, kolo_device_text(device, name), (double)m.store / mib,
                     (double)m.gradients / mib, (double)values / mib, (double)total / mib);
}

kolo_status kolo_plan_map_memory(kolo_plan *p, const kolo_plan_opts *o) {
    KOLO_TRY(kolo_plan_check_device(p));
    KOLO_TRY(kolo_plan_reserve_transfers(p));
    if (!o->apart) {
        KOLO_TRY(kolo_store_reserve(p->store, p->values_bytes + p->scratch_bytes + 1));
    }
    KOLO_TRY(kolo_regions_map(p->store->regions, NULL, p->map.table_bytes + 1, &p->table));
    kolo_value stage = kolo_plan_find_scalar(p, "stage"); /* its summand */
    kolo_plan_set(p, stage, 1);
    const size_t slot_bytes = kolo_plan_slot_offset(p, p->slots);
    if (slot_bytes > 0) {
        KOLO_TRY(kolo_regions_map(p->store->regions, NULL, slot_bytes, &p->slot_memory));
    }
    KOLO_TRY(map_model(p));
    p->n_first = count_first(p);
    if (o->apart) return map_apart(p);
    if (p->map.bucket_bytes == 0) return KOLO_OK;
    KOLO_TRY(kolo_store_reserve_gradients(p->store, p->comm, p->map.bucket_bytes));
    if (!p->store->own_gradients) p->gradients = p->store->gradients;
    if (p->adds_to) return check_gradients(p);
    return o->shards > 0 ? create_sum(p, o->shards) : KOLO_OK;
}
