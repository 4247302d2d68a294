/* Memory planning: assigns a location to every value.
 *
 * Values that share memory form a group: views of one value, and an output that overwrites an input
 * after its last reader. A group of the arena is alive from its first producer to its last reader;
 * groups may overlap only if they are not alive at the same time. Groups are placed largest first,
 * each in the smallest sufficient gap between groups alive with it. What is communicated has
 * regions of its own (memory_buckets.c). Scalars are in the table, parameters and state in the
 * store.
 *
 * The nodes of a region (lanes.c) run at the same time: what one of them reads last is in use until
 * the end of the region, and one may overwrite only what its own lane alone has used there. */
#include "pass/memory_plan.h"

#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = -1 /* without producer: a pruned value */ };

static void merge(memory_planner *p, int32_t into, int32_t v) {
    into = root_of(p, into);
    v = root_of(p, v);
    if (into == v) return;
    memory_group *a = &p->groups[into], *b = &p->groups[v];
    p->root[v] = into;
    a->first = (int32_t)kolo_min_i64(a->first, b->first);
    a->last = (int32_t)kolo_max_i64(a->last, b->last);
    a->bytes = a->bytes > b->bytes ? a->bytes : b->bytes;
    if (b->region == a->region) a->lanes |= b->lanes;
    if (b->region > a->region) {
        a->region = b->region;
        a->lanes = b->lanes;
    }
}

/* ---- regions ---- */

static void use_in_region(memory_planner *p, const kolo_node *n, kolo_value v) {
    memory_group *gr = &p->groups[root_of(p, v.id)];
    if (gr->region != n->region) gr->lanes = 0;
    gr->region = n->region;
    gr->lanes |= 1U << n->lane;
}

static void find_lanes(memory_planner *p) {
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        const kolo_node *n = p->g->nodes[i];
        for (int k = 0; k < n->n_in && n->region > 0; k++) use_in_region(p, n, n->in[k]);
        for (int k = 0; k < n->n_out && n->region > 0; k++) use_in_region(p, n, n->out[k]);
    }
}

/* Whether nodes of other lanes may use a group while node n runs. */
static bool is_used_beside(const memory_group *gr, const kolo_node *n) {
    return n->region > 0 && gr->region == n->region && gr->lanes != 1U << n->lane;
}

/* ---- lifetimes ---- */

/* Whether the results of a wait are in other memory than what was posted. */
static bool is_apart(const kolo_graph *g, const kolo_node *n) {
    if (n->op->comm != KOLO_OP_WAIT) return false;
    int64_t first, count;
    const kolo_tensor *in = &kolo_info(g, n->in[0])->tensor;
    kolo_value posted = g->nodes[kolo_info(g, n->in[0])->producer]->in[0];
    switch ((kolo_collective)n->attr[KOLO_COMM_COLLECTIVE].i) {
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
    case KOLO_COLLECTIVE_BARRIER:
    case KOLO_COLLECTIVE_ALLTOALL:
        return true;
    case KOLO_COLLECTIVE_ALLGATHER: /* rows of one rank are in place */
        if (kolo_flat_range(g, posted, &first, &count)) return true;
        return kolo_tensor_bytes(in) != kolo_tensor_bytes(&kolo_info(g, n->out[0])->tensor);
    default:
        return false;
    }
}

/* Lifetimes of single values, then groups of views. */
static void find_lifetimes(memory_planner *p) {
    const kolo_graph *g = p->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        p->root[v] = v;
        p->groups[v] = (memory_group){
            .first = info->kind == KOLO_VALUE_INPUT ? 0 : info->producer,
            .last = info->producer,
            .bytes = kolo_round_up(kolo_tensor_bytes(&info->tensor), KOLO_MEMORY_ALIGN),
            .fixed = info->kind != KOLO_VALUE_TEMP && info->kind != KOLO_VALUE_INPUT,
        };
        if (kolo_value_ok(info->next_of)) p->groups[v].fixed = true;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) p->groups[g->nodes[i]->in[k].id].last = i;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        p->groups[g->outputs[i].value.id].last = g->n_nodes;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (!n->op->view || is_apart(g, n)) continue;
        for (int k = 0; k < n->n_out; k++) merge(p, n->in[k].id, n->out[k].id);
    }
}

static bool is_local(const kolo_node *n) { return n->op->comm == KOLO_OP_LOCAL; }

/* In use from one step to the next. */
static void keep(memory_planner *p, kolo_value v) {
    memory_group *gr = &p->groups[root_of(p, v.id)];
    gr->first = 0;
    gr->last = p->g->n_nodes;
    gr->kept = true;
}

/* What is left to the next step (cross_step.c) and reads `v`: a bucket, or a value of this step or
 * the next. */
static void keep_read(memory_planner *p, kolo_value v) {
    const kolo_value_info *info = kolo_info(p->g, v);
    const memory_group *gr = &p->groups[root_of(p, v.id)];
    if (info->producer >= 0 && !gr->left && !kolo_value_ok(info->next_of)) keep(p, v);
}

/* Lifetimes of what the next step computes or reads. Updates of different parameters run one after
 * another there too, each with all of its nodes (plan/deferred.c): the order of the graph states
 * which of their values are alive at the same time. */
static kolo_status find_left(memory_planner *p) {
    const kolo_graph *g = p->g;
    bool *deferred = kolo_zalloc((size_t)g->n_nodes + 1);
    if (!deferred) return KOLO_NOMEM(g->n_nodes);
    const kolo_status status = kolo_find_deferred(g, deferred);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (!deferred[i] || !is_local(n) || n->op->view) continue;
        for (int k = 0; k < n->n_out; k++) p->groups[root_of(p, n->out[k].id)].left = true;
    }
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (!deferred[i]) continue;
        for (int k = 0; k < n->n_in; k++) keep_read(p, n->in[k]);
        if (is_local(n)) continue;
        const kolo_node *post = g->nodes[kolo_info(g, n->in[0])->producer];
        for (int k = 0; k < post->n_in; k++) keep(p, post->in[k]);
    }
    kolo_free(deferred);
    return status;
}

/* What is sent to another stage is in memory of its own: it may still be on its way when the next
 * micro-batch takes the slot. */
static void mark_sent(memory_planner *p) {
    for (int32_t i = 0; i < p->g->n_outputs; i++) {
        if (p->g->outputs[i].crossing.number == 0) continue;
        memory_group *gr = &p->groups[root_of(p, p->g->outputs[i].value.id)];
        KOLO_ASSERT(!gr->fixed);
        gr->sent = true;
    }
}

static bool same_size(const kolo_tensor *a, const kolo_tensor *b) {
    return a->dtype == b->dtype && kolo_tensor_elements(a) == kolo_tensor_elements(b);
}

/* Lets outputs reuse the memory of inputs of their size after their last reader. */
static void overwrite(memory_planner *p) {
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        const kolo_node *n = p->g->nodes[i];
        if (!n->op->overwrite || n->op->overwriter >= n->n_out) continue;
        kolo_value v = n->out[n->op->overwriter];
        const memory_group *of = &p->groups[root_of(p, v.id)];
        if (of->fixed || of->sent || of->kept) continue;
        for (int k = 0; k < n->n_in; k++) {
            int32_t r = root_of(p, n->in[k].id), out = root_of(p, v.id);
            kolo_value_kind kind = p->g->values[r].kind;
            const kolo_tensor *in = &kolo_info(p->g, n->in[k])->tensor;
            if (!same_size(in, &kolo_info(p->g, v)->tensor)) continue;
            if (!(n->op->overwrite >> k & 1) || p->groups[r].fixed || p->groups[r].last != i ||
                kind != KOLO_VALUE_TEMP || p->groups[r].bytes != p->groups[out].bytes ||
                is_used_beside(&p->groups[r], n)) {
                continue;
            }
            merge(p, r, out);
            break;
        }
    }
}

static void place_fixed(memory_planner *p) {
    const kolo_graph *g = p->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        kolo_location *location = &p->map->locations[v];
        if (info->kind == KOLO_VALUE_SCALAR) {
            *location = (kolo_location){.region = KOLO_REGION_TABLE, .offset = p->map->table_bytes};
            p->map->table_bytes += sizeof(double);
        } else if (info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_STATE) {
            *location = (kolo_location){.region = KOLO_REGION_STORE, .offset = (size_t)v};
        } else if (kolo_value_ok(info->next_of)) {
            *location =
                (kolo_location){.region = KOLO_REGION_NEXT, .offset = (size_t)info->next_of.id};
        }
    }
}

typedef struct block {
    size_t bytes, offset;
    int32_t first, last, root;
    bool shared; /* at the same place in the slots of all chunks */
} block;

static int largest_first(const void *a, const void *b) {
    const block *x = a, *y = b;
    if (x->shared != y->shared) return x->shared ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

/* The offset of the smallest gap that holds block b between the blocks that live with it; `placed`
 * are the n earlier blocks, by offset. */
static size_t best_gap(const block *b, const block *const *placed, int32_t n) {
    size_t end = 0, best = SIZE_MAX, best_size = SIZE_MAX;
    for (int32_t k = 0; k < n; k++) {
        const block *other = placed[k];
        if (other->first > b->last || b->first > other->last) continue;
        size_t gap = other->offset > end ? other->offset - end : 0;
        if (gap >= b->bytes && gap < best_size) {
            best = end;
            best_size = gap;
        }
        size_t after = other->offset + other->bytes;
        end = after > end ? after : end;
    }
    return best != SIZE_MAX ? best : end;
}

/* Inserts a block into `placed`, of n blocks by offset. */
static void insert(const block **placed, int32_t n, const block *b) {
    int32_t low = 0, high = n; /* its place is in [low, high] */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (placed[middle]->offset <= b->offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove((void *)(placed + low + 1), (const void *)(placed + low),
            (size_t)(n - low) * sizeof(const block *));
    placed[low] = b;
}

/* On a stage of a pipeline the segments of several micro-batches run in turn: the arena is for
 * values of one segment. What crosses to another stage is there as long as the micro-batch. */
static void find_slots(memory_planner *p) {
    const kolo_graph *g = p->g;
    for (int32_t v = 0; g->stages > 0 && v < g->n_values; v++) {
        memory_group *gr = &p->groups[v];
        if (p->root[v] != v || gr->fixed || gr->first == NEVER) continue;
        const int32_t last = (int32_t)kolo_max_i64(gr->last, gr->first);
        bool input = g->values[v].kind == KOLO_VALUE_INPUT;
        const bool crosses = g->values[v].crossing.number > 0;
        gr->slot =
            input || (last < g->n_nodes && g->nodes[gr->first]->segment != g->nodes[last]->segment);
        gr->chunk = crosses         ? g->values[v].crossing.chunk
                    : !input        ? g->nodes[gr->first]->chunk
                    : g->chunks > 1 ? -1
                                    : 0;
        if (crosses) gr->last = g->n_nodes;
        gr->slot |= gr->sent;
        if (gr->sent) gr->first = 0;
    }
}

/* The last node of a chunk that reads a value of all chunks, or a view of it. */
static int32_t last_in_chunk(memory_planner *p, int32_t root, int chunk) {
    int32_t last = 0;
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        const kolo_node *n = p->g->nodes[i];
        for (int k = 0; k < n->n_in && n->chunk == chunk; k++) {
            if (root_of(p, n->in[k].id) == root) last = i;
        }
    }
    return last;
}

/* Places the values of the arena, those that are left behind the others, or of a slot of a chunk.
 */
static kolo_status place_values(memory_planner *p, bool slot, bool left, int chunk) {
    int32_t n_values = p->g->n_values, n = 0;
    block *blocks = kolo_alloc((size_t)(n_values + 1) * sizeof *blocks);
    const block **placed = kolo_alloc((size_t)(n_values + 1) * sizeof(const block *));
    kolo_status status = KOLO_OK;
    if (!blocks || !placed) {
        status = KOLO_NOMEM((size_t)n_values * sizeof *blocks);
        goto done;
    }
    for (int32_t v = 0; v < n_values; v++) {
        const memory_group *gr = &p->groups[v];
        const bool shared = slot && gr->chunk < 0;
        if (p->root[v] != v || gr->fixed || gr->first == NEVER || gr->slot != slot) continue;
        if (gr->left != left || (slot && !shared && gr->chunk != chunk)) continue;
        const bool kept = gr->last == p->g->n_nodes; /* a view is an output: it may be sent */
        const int32_t last = shared && !kept ? last_in_chunk(p, v, chunk) : gr->last;
        blocks[n++] = (block){
            .bytes = gr->bytes,
            .first = gr->first,
            .last = region_last(p->g, (int32_t)kolo_max_i64(last, gr->first)),
            .root = v,
            .shared = shared,
        };
    }
    size_t *bytes = slot ? &p->map->slot_bytes[chunk] : &p->map->arena_bytes;
    const size_t base = *bytes;
    qsort(blocks, (size_t)n, sizeof *blocks, largest_first);
    for (int32_t i = 0; i < n; i++) {
        blocks[i].offset = best_gap(&blocks[i], placed, i);
        insert(placed, i, &blocks[i]);
        p->map->locations[blocks[i].root] =
            (kolo_location){.region = slot ? KOLO_REGION_SLOT : KOLO_REGION_ARENA,
                            .offset = base + blocks[i].offset};
        size_t end = base + blocks[i].offset + blocks[i].bytes;
        if (end > *bytes) *bytes = end;
    }
done:
    kolo_free(blocks);
    kolo_free((void *)placed);
    return status;
}

kolo_status kolo_pass_memory(const kolo_graph *g, kolo_memory_map *map) {
    memory_planner p = {.g = g, .map = map};
    *map = (kolo_memory_map){0};
    kolo_status status = KOLO_OK;
    size_t n = (size_t)g->n_values + 1;
    map->locations = kolo_zalloc(n * sizeof *map->locations);
    p.root = kolo_alloc(n * sizeof *p.root);
    p.groups = kolo_alloc(n * sizeof *p.groups);
    if (!map->locations || !p.root || !p.groups) {
        status = KOLO_NOMEM(n * sizeof *p.groups);
        goto done;
    }
    find_lifetimes(&p);
    find_lanes(&p);
    KOLO_TRY_GOTO(find_left(&p), done);
    place_fixed(&p);
    KOLO_TRY_GOTO(kolo_memory_place_buckets(&p), done);
    mark_sent(&p);
    overwrite(&p);
    find_slots(&p);
    KOLO_TRY_GOTO(place_values(&p, false, false, 0), done);
    KOLO_TRY_GOTO(place_values(&p, false, true, 0), done);
    for (int c = 0; c < (g->chunks > 0 ? g->chunks : 1); c++) {
        KOLO_TRY_GOTO(place_values(&p, true, false, c), done);
        map->slot_bytes[c] = kolo_round_up(map->slot_bytes[c], KOLO_MEMORY_ALIGN);
    }
    for (int32_t v = 0; v < g->n_values; v++) map->locations[v] = map->locations[root_of(&p, v)];
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *node = g->nodes[i];
        kolo_location *location = &map->locations[node->out[0].id];
        if (node->op == &kolo_op_own_range) {
            location->skip = bytes_at(g, node->in[0], node->attr[KOLO_RANGE_FIRST].i);
        } else if (node->op->view && node->op->comm == KOLO_OP_LOCAL) {
            location->skip = map->locations[node->in[0].id].skip;
        }
    }
done:
    kolo_free(p.root);
    kolo_free(p.groups);
    if (status != KOLO_OK) kolo_memory_map_fini(map);
    return status;
}

void kolo_memory_map_fini(kolo_memory_map *map) {
    for (int i = 0; i < map->n_buckets && map->buckets; i++) kolo_free(map->buckets[i].ends);
    kolo_free(map->locations);
    kolo_free(map->buckets);
    *map = (kolo_memory_map){0};
}
