/* Memory planning: assigns a location to every value.
 *
 * Values that share memory form a group: views of one value, and an output that overwrites an input
 * after its last reader. A group of the arena is alive from its first producer to its last reader;
 * groups may overlap only if they are not alive at the same time. Groups are placed largest first,
 * each in the smallest sufficient gap between groups alive with it. Synchronised gradients are
 * contiguous in the order of their posts; scalars are in the table, parameters and state in the
 * store. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, NEVER = -1 /* without producer: a pruned value */ };

typedef struct group {
    int32_t first, last; /* node indices: alive in [first, last] */
    size_t bytes;
    bool fixed; /* placed outside the arena */
} group;

typedef struct planner {
    const kolo_graph *g;
    kolo_memory_map *map;
    int32_t *root; /* by value: a value of its group, towards the group's first */
    group *groups; /* by root value */
} planner;

static int32_t root_of(planner *p, int32_t v) {
    while (p->root[v] != v) v = p->root[v] = p->root[p->root[v]];
    return v;
}

static void merge(planner *p, int32_t into, int32_t v) {
    into = root_of(p, into);
    v = root_of(p, v);
    if (into == v) return;
    group *a = &p->groups[into], *b = &p->groups[v];
    p->root[v] = into;
    a->first = (int32_t)kolo_min_i64(a->first, b->first);
    a->last = (int32_t)kolo_max_i64(a->last, b->last);
    a->bytes = a->bytes > b->bytes ? a->bytes : b->bytes;
}

/* Whether the output of a wait is larger than the slice of this rank, and so separate memory. */
static bool widens(const kolo_graph *g, const kolo_node *n) {
    return kolo_tensor_bytes(&kolo_info(g, n->in[0])->tensor) !=
           kolo_tensor_bytes(&kolo_info(g, n->out[0])->tensor);
}

/* Lifetimes of single values, then groups of views. */
static void find_lifetimes(planner *p) {
    const kolo_graph *g = p->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        p->root[v] = v;
        p->groups[v] = (group){
            .first = info->kind == KOLO_VALUE_INPUT ? 0 : info->producer,
            .last = info->producer,
            .bytes = kolo_round_up(kolo_tensor_bytes(&info->tensor), ALIGN),
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
        if (!n->op->view || widens(g, n)) continue;
        for (int k = 0; k < n->n_out; k++) merge(p, n->in[k].id, n->out[k].id);
    }
}

/* Fixes a value's group at the end of the region of gradients that are synchronised. */
static void locate_synced(planner *p, kolo_value v) {
    int32_t r = root_of(p, v.id);
    KOLO_ASSERT(!p->groups[r].fixed);
    p->groups[r].fixed = true;
    p->map->locations[r] = (kolo_location){KOLO_REGION_BUCKET, p->map->bucket_bytes};
    p->map->bucket_bytes += p->groups[r].bytes;
}

/* Places the values of posts: those of each post contiguously, then gathered values. */
static kolo_status place_buckets(planner *p) {
    const kolo_graph *g = p->g;
    kolo_memory_map *map = p->map;
    for (int32_t i = 0; i < g->n_nodes; i++)
        map->n_buckets += g->nodes[i]->op->comm == KOLO_OP_POST;
    map->buckets = kolo_zalloc((size_t)(map->n_buckets + 1) * sizeof *map->buckets);
    if (!map->buckets) return KOLO_NOMEM((size_t)map->n_buckets * sizeof *map->buckets);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_POST) continue;
        kolo_bucket *bucket = &map->buckets[n->attr[KOLO_COMM_BUCKET].i];
        bucket->offset = map->bucket_bytes = kolo_round_up(map->bucket_bytes, 4096);
        bucket->n_values = n->n_in;
        bucket->gathered = n->attr[KOLO_COMM_GATHERS].i;
        for (int k = 0; k < n->n_in; k++) locate_synced(p, n->in[k]);
        bucket->bytes = map->bucket_bytes - bucket->offset;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_WAIT || p->groups[root_of(p, n->out[0].id)].fixed) continue;
        map->bucket_bytes = kolo_round_up(map->bucket_bytes, 4096);
        locate_synced(p, n->out[0]);
    }
    return KOLO_OK;
}

static bool same_size(const kolo_tensor *a, const kolo_tensor *b) {
    return a->dtype == b->dtype && kolo_tensor_elements(a) == kolo_tensor_elements(b);
}

/* Lets outputs reuse the memory of inputs of their size after their last reader. */
static void overwrite(planner *p) {
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        const kolo_node *n = p->g->nodes[i];
        if (!n->op->overwrite || n->op->overwriter >= n->n_out) continue;
        kolo_value v = n->out[n->op->overwriter];
        if (p->groups[root_of(p, v.id)].fixed) continue;
        for (int k = 0; k < n->n_in; k++) {
            int32_t r = root_of(p, n->in[k].id), out = root_of(p, v.id);
            kolo_value_kind kind = p->g->values[r].kind;
            const kolo_tensor *in = &kolo_info(p->g, n->in[k])->tensor;
            if (!same_size(in, &kolo_info(p->g, v)->tensor)) continue;
            if (!(n->op->overwrite >> k & 1) || p->groups[r].fixed || p->groups[r].last != i ||
                kind != KOLO_VALUE_TEMP || p->groups[r].bytes != p->groups[out].bytes) {
                continue;
            }
            merge(p, r, out);
            break;
        }
    }
}

static void place_fixed(planner *p) {
    const kolo_graph *g = p->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        kolo_location *location = &p->map->locations[v];
        if (info->kind == KOLO_VALUE_SCALAR) {
            *location = (kolo_location){KOLO_REGION_TABLE, p->map->table_bytes};
            p->map->table_bytes += sizeof(double);
        } else if (info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_STATE) {
            *location = (kolo_location){KOLO_REGION_STORE, (size_t)v};
        } else if (kolo_value_ok(info->next_of)) {
            *location = (kolo_location){KOLO_REGION_NEXT, (size_t)info->next_of.id};
        }
    }
}

typedef struct block {
    size_t bytes, offset;
    int32_t first, last, root;
} block;

static int largest_first(const void *a, const void *b) {
    const block *x = a, *y = b;
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

static kolo_status place_arena(planner *p) {
    int32_t n_values = p->g->n_values, n = 0;
    block *blocks = kolo_alloc((size_t)(n_values + 1) * sizeof *blocks);
    const block **placed = kolo_alloc((size_t)(n_values + 1) * sizeof(const block *));
    kolo_status status = KOLO_OK;
    if (!blocks || !placed) {
        status = KOLO_NOMEM((size_t)n_values * sizeof *blocks);
        goto done;
    }
    for (int32_t v = 0; v < n_values; v++) {
        const group *gr = &p->groups[v];
        if (p->root[v] != v || gr->fixed || gr->first == NEVER) continue;
        blocks[n++] =
            (block){gr->bytes, 0, gr->first, (int32_t)kolo_max_i64(gr->last, gr->first), v};
    }
    qsort(blocks, (size_t)n, sizeof *blocks, largest_first);
    for (int32_t i = 0; i < n; i++) {
        blocks[i].offset = best_gap(&blocks[i], placed, i);
        insert(placed, i, &blocks[i]);
        p->map->locations[blocks[i].root] = (kolo_location){KOLO_REGION_ARENA, blocks[i].offset};
        size_t end = blocks[i].offset + blocks[i].bytes;
        if (end > p->map->arena_bytes) p->map->arena_bytes = end;
    }
done:
    kolo_free(blocks);
    kolo_free((void *)placed);
    return status;
}

kolo_status kolo_pass_memory(const kolo_graph *g, kolo_memory_map *map) {
    planner p = {.g = g, .map = map};
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
    place_fixed(&p);
    KOLO_TRY_GOTO(place_buckets(&p), done);
    overwrite(&p);
    KOLO_TRY_GOTO(place_arena(&p), done);
    for (int32_t v = 0; v < g->n_values; v++) map->locations[v] = map->locations[root_of(&p, v)];
done:
    kolo_free(p.root);
    kolo_free(p.groups);
    if (status != KOLO_OK) kolo_memory_map_fini(map);
    return status;
}

void kolo_memory_map_fini(kolo_memory_map *map) {
    kolo_free(map->locations);
    kolo_free(map->buckets);
    *map = (kolo_memory_map){0};
}
