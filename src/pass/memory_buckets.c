/* Memory of what is communicated: a region of its own, contiguous by bucket. Buckets overlap only
 * if they are not alive at the same time, which is so on all ranks once a WAIT has returned.
 * Activations that ranks exchange along axes without samples have another region, one for each slot
 * of a stage: their size depends on the micro-batch, and gradients of all micro-batches share one
 * place. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/memory_plan.h"

/* Memory in the region of buckets: the values of a bucket, or what a reduce-scatter leaves of them.
 */
typedef struct room {
    int32_t first, last; /* node indices: in use in [first, last] */
    size_t bytes, offset;
} room;

typedef struct region {
    kolo_region which;
    size_t *bytes; /* of the memory map */
    room *rooms;
    int n;
} region;

/* Whether a node has a sum over micro-batches, which is kept throughout. */
static bool accumulates(const kolo_node *n) {
    return n->op == &kolo_op_accumulate || n->op == &kolo_op_accumulate_rows;
}

/* Widens the lifetime of a room by that of a value. */
static void hold(memory_planner *p, room *r, kolo_value v) {
    const memory_group *of = &p->groups[root_of(p, v.id)];
    int32_t producer = kolo_info(p->g, v)->producer;
    bool kept = producer >= 0 && accumulates(p->g->nodes[producer]);
    int32_t first = kept ? 0 : of->first;
    int32_t last = kept ? p->g->n_nodes : region_last(p->g, of->last);
    if (r->bytes == 0 || first < r->first) r->first = first;
    if (r->bytes == 0 || last > r->last) r->last = last;
}

/* Places a room behind the earlier ones that are in use with it, in the lowest gap. */
static room *place_room(region *rg, room r) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < rg->n; i++) {
            const room *other = &rg->rooms[i];
            if (other->first > r.last || r.first > other->last) continue;
            if (other->offset >= r.offset + r.bytes || r.offset >= other->offset + other->bytes) {
                continue;
            }
            r.offset = kolo_round_up(other->offset + other->bytes, 4096);
            moved = true;
        }
    }
    if (r.offset + r.bytes > *rg->bytes) *rg->bytes = r.offset + r.bytes;
    rg->rooms[rg->n] = r;
    return &rg->rooms[rg->n++];
}

/* Fixes a value's group in a region. */
static void locate(memory_planner *p, kolo_region where, kolo_value v, size_t offset) {
    int32_t r = root_of(p, v.id);
    KOLO_ASSERT(!p->groups[r].fixed);
    p->groups[r].fixed = true;
    p->map->locations[r] = (kolo_location){.region = where, .offset = offset};
}

/* The cuts of a flat shard, and the coordinate of this rank. */
static const int64_t *cuts_of(const kolo_graph *g, kolo_value v, int *ranks, int *coordinate) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *p = &kolo_info(g, v)->placements.axis[a];
        if (p->kind != KOLO_PLACEMENT_SHARDED || p->dim != KOLO_DIM_FLAT) continue;
        *ranks = g->mesh.axes[a].size;
        *coordinate = kolo_mesh_coordinate(&g->mesh, g->rank, a);
        return p->cuts;
    }
    return NULL;
}

/* A bucket of flat shards: `shards` are the local values, `wholes` the others. */
typedef struct flat {
    const kolo_value *shards, *wholes;
    int n, ranks, coordinate;
} flat;

static size_t align_value(const kolo_graph *g, kolo_value v) {
    return kolo_round_up(kolo_tensor_bytes(&kolo_info(g, v)->tensor), KOLO_MEMORY_ALIGN);
}

/* Where the slice of each rank ends: the ranks' ranges follow each other through the values. */
static kolo_status find_ends(const kolo_graph *g, const flat *f, kolo_bucket *bucket) {
    bucket->ends = kolo_alloc((size_t)f->ranks * sizeof *bucket->ends);
    if (!bucket->ends) return KOLO_NOMEM((size_t)f->ranks * sizeof *bucket->ends);
    for (int c = 1; c <= f->ranks; c++) {
        size_t at = 0, end = bucket->bytes;
        for (int k = 0; k < f->n && end == bucket->bytes && c < f->ranks; k++) {
            int ranks = f->ranks, coordinate;
            const int64_t *cuts = cuts_of(g, f->shards[k], &ranks, &coordinate);
            if (cuts[c] < cuts[ranks]) end = at + bytes_at(g, f->shards[k], cuts[c]);
            at += align_value(g, f->wholes[k]);
        }
        bucket->ends[c - 1] = end;
    }
    return KOLO_OK;
}

/* Locates the own ranges, from `base` on, which is where the own slice begins or, with `inside`,
 * the values. */
static void locate_ranges(memory_planner *p, const flat *f, const kolo_bucket *bucket, size_t base,
                          bool inside) {
    size_t at = 0, begin = f->coordinate > 0 ? bucket->ends[f->coordinate - 1] : 0;
    if (inside) begin = 0;
    for (int k = 0; k < f->n; k++) {
        int64_t first, count;
        (void)kolo_flat_range(p->g, f->shards[k], &first, &count);
        size_t offset = at + bytes_at(p->g, f->shards[k], first);
        locate(p, KOLO_REGION_BUCKET, f->shards[k], count > 0 ? base + offset - begin : base);
        at += align_value(p->g, f->wholes[k]);
    }
}

/* Where a reduce-scatter writes the slice of this rank, from its POST on. */
static size_t place_slice(memory_planner *p, region *rg, const flat *f, const kolo_bucket *bucket,
                          int32_t post) {
    int c = f->coordinate;
    room r = {.first = post, .last = post};
    for (int k = 0; k < f->n; k++) {
        const memory_group *of = &p->groups[root_of(p, f->shards[k].id)];
        const int32_t last = region_last(p->g, of->last);
        if (last > r.last) r.last = last;
    }
    r.bytes = bucket->ends[c] - (c > 0 ? bucket->ends[c - 1] : 0) + 1; /* never empty */
    return place_room(rg, r)->offset;
}

static kolo_bucket *bucket_of(const memory_planner *p, const kolo_node *post) {
    return &p->map->buckets[post->attr[KOLO_COMM_BUCKET].i];
}

/* The values of a bucket; `shards` NULL: they are no flat shards, and `wholes` is what is posted.
 */
static flat values_of(const memory_planner *p, const kolo_node *post, const kolo_node *wait) {
    bool scatters = bucket_of(p, post)->collective == KOLO_COLLECTIVE_REDUCE_SCATTER;
    flat f = {.n = post->n_in, .shards = scatters ? wait->out : post->in};
    f.wholes = scatters ? post->in : wait->out;
    if (cuts_of(p->g, f.shards[0], &f.ranks, &f.coordinate)) return f;
    return (flat){.n = post->n_in, .wholes = post->in};
}

static int64_t count_common(kolo_interval a, kolo_interval b) {
    return kolo_max_i64(kolo_min_i64(a.end, b.end) - kolo_max_i64(a.first, b.first), 0);
}

/* Bytes of the rows of a halo that a rank sends and receives. */
static size_t halo_bytes(const kolo_graph *g, const kolo_node *post) {
    const int a = kolo_axis_of_halo(&g->mesh, post->move);
    const kolo_placement *from = &post->move->from.axis[a], *to = &post->move->to.axis[a];
    const kolo_halo *halo = from->halo ? from->halo : to->halo;
    const kolo_tensor *tensor = &kolo_info(g, post->in[0])->tensor;
    const int size = g->mesh.axes[a].size, at = kolo_mesh_coordinate(&g->mesh, g->rank, a);
    const kolo_interval own = kolo_even_slice(halo->length, size, at);
    int64_t given = 0, taken = 0;
    for (int c = 0; c < size; c++) {
        if (c == at) continue;
        given += count_common(own, halo->rows[c]);
        taken += count_common(halo->rows[at], kolo_even_slice(halo->length, size, c));
    }
    const size_t row = kolo_tensor_bytes(tensor) / (size_t)tensor->shape.dim[to->dim];
    return kolo_round_up((size_t)given * row, KOLO_MEMORY_ALIGN) +
           kolo_round_up((size_t)taken * row, KOLO_MEMORY_ALIGN);
}

/* Measures a bucket. Slices, which live longer than what they are from, are placed first. */
static kolo_status measure_bucket(memory_planner *p, region *rg, int32_t i, const kolo_node *wait) {
    const kolo_node *post = p->g->nodes[i];
    kolo_bucket *bucket = bucket_of(p, post);
    bucket->collective = (kolo_collective)post->attr[KOLO_COMM_COLLECTIVE].i;
    bucket->n_values = post->n_in;
    bucket->joins = kolo_info(p->g, wait->out[0])->next_of;
    bucket->from = bucket->to = KOLO_NONE;
    if (bucket->collective == KOLO_COLLECTIVE_BARRIER) return KOLO_OK;
    const flat f = values_of(p, post, wait);
    for (int k = 0; k < f.n; k++) bucket->bytes += align_value(p->g, f.wholes[k]);
    bucket->buffer_bytes = bucket->bytes + align_value(p->g, wait->out[0]);
    if (kolo_axis_of_halo(&p->g->mesh, post->move) >= 0) {
        bucket->bytes = bucket->buffer_bytes = halo_bytes(p->g, post);
        bucket->from = post->in[0];
        bucket->to = wait->out[0];
    }
    if (!f.shards) return KOLO_OK;
    KOLO_TRY(find_ends(p->g, &f, bucket));
    bucket->in_place = post->attr[KOLO_COMM_IN_PLACE].i != 0;
    bucket->summands = post->attr[KOLO_COMM_SUMMANDS].i != 0;
    bool apart = bucket->collective == KOLO_COLLECTIVE_REDUCE_SCATTER && !bucket->in_place;
    if (!apart) return KOLO_OK;
    bucket->slice = place_slice(p, rg, &f, bucket, i);
    locate_ranges(p, &f, bucket, bucket->slice, false);
    return KOLO_OK;
}

/* Places ranges of next versions inside these. */
static void place_ranges(memory_planner *p, const kolo_node *post, const kolo_node *wait) {
    for (int k = 0; k < post->n_in; k++) {
        int64_t first = 0, count;
        int32_t r = root_of(p, post->in[k].id);
        (void)kolo_flat_range(p->g, post->in[k], &first, &count);
        locate(p, KOLO_REGION_NEXT, post->in[k], (size_t)kolo_info(p->g, wait->out[k])->next_of.id);
        p->map->locations[r].skip = bytes_at(p->g, post->in[k], first);
    }
}

/* Places what an exchange packs and unpacks. */
static void place_buffers(const memory_planner *p, region *rg, const kolo_node *post,
                          const kolo_node *wait) {
    kolo_bucket *bucket = bucket_of(p, post);
    const room r = {.first = kolo_info(p->g, post->out[0])->producer,
                    .last = kolo_info(p->g, wait->out[0])->producer,
                    .bytes = bucket->buffer_bytes + 1}; /* never empty */
    bucket->slice = place_room(rg, r)->offset;
}

/* Places the values of a post and the results of its wait. */
static void place_bucket(memory_planner *p, region *rg, const kolo_node *post,
                         const kolo_node *wait) {
    kolo_bucket *bucket = bucket_of(p, post);
    if (kolo_value_ok(bucket->joins)) {
        place_ranges(p, post, wait);
        return;
    }
    if (kolo_axis_of_halo(&p->g->mesh, post->move) >= 0) {
        place_buffers(p, rg, post, wait);
        return; /* it reads what is in the arena */
    }
    const flat f = values_of(p, post, wait);
    bool gathers = f.shards && bucket->collective == KOLO_COLLECTIVE_ALLGATHER;
    bool inside = gathers || (f.shards && bucket->in_place); /* ranges are where they are in it */
    room r = {0};
    for (int k = 0; k < f.n; k++) {
        hold(p, &r, post->in[k]);
        r.bytes = bucket->bytes;
        if (inside) hold(p, &r, wait->out[k]);
    }
    if (post->attr[KOLO_COMM_KEPT].i) r.first = 0;
    if (post->attr[KOLO_COMM_KEPT].i || bucket->summands) r.last = p->g->n_nodes;
    bucket->offset = place_room(rg, r)->offset;
    size_t at = bucket->offset;
    if (bucket->collective == KOLO_COLLECTIVE_ALLTOALL) {
        place_buffers(p, rg, post, wait);
    }
    for (int k = 0; k < f.n; k++) {
        locate(p, rg->which, f.wholes[k], at);
        at += align_value(p->g, f.wholes[k]);
    }
    if (inside) locate_ranges(p, &f, bucket, bucket->offset, true);
}

/* Places a value in a room of its own, in use from node `first` on. */
static void place_alone(memory_planner *p, region *rg, kolo_value v, int32_t first) {
    room r = {0};
    hold(p, &r, v);
    r.first = (int32_t)kolo_min_i64(r.first, first);
    r.bytes = align_value(p->g, v);
    locate(p, rg->which, v, place_room(rg, r)->offset);
}

/* Whether a bucket is of the activations of one micro-batch, of which no rank of its groups has
 * other samples. */
static bool is_of_model(const kolo_graph *g, const kolo_node *post) {
    const int dp = kolo_mesh_find(&g->mesh, "dp");
    const kolo_axes axes = (kolo_axes)post->attr[KOLO_COMM_AXES].i;
    return post->attr[KOLO_COMM_INSIDE].i && axes != 0 && (dp < 0 || !(axes >> dp & 1));
}

/* Places the buckets whose sums are kept over logical shards, or the others. */
static void place_some(memory_planner *p, region *rg, region *model, const kolo_node **waits,
                       bool kept) {
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        const kolo_node *n = p->g->nodes[i];
        if (n->op->comm != KOLO_OP_POST || (n->attr[KOLO_COMM_KEPT].i != 0) != kept) continue;
        bucket_of(p, n)->of_model = is_of_model(p->g, n);
        place_bucket(p, bucket_of(p, n)->of_model ? model : rg, n,
                     waits[n->attr[KOLO_COMM_BUCKET].i]);
    }
}

static const kolo_node *post_of(const kolo_graph *g, const kolo_node *wait) {
    return g->nodes[kolo_info(g, wait->in[0])->producer];
}

/* Places the buckets, first those that are kept over logical shards, of which plans have
 * copies; then gathered rows, and sums over micro-batches of what is in no bucket, which are
 * kept as those in buckets are. */
static kolo_status place_all(memory_planner *p, region *rg, region *model,
                             const kolo_node **waits) {
    const kolo_graph *g = p->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm == KOLO_OP_WAIT) waits[n->attr[KOLO_COMM_BUCKET].i] = n;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_POST) continue;
        KOLO_TRY(measure_bucket(p, rg, i, waits[n->attr[KOLO_COMM_BUCKET].i]));
    }
    place_some(p, rg, model, waits, true);
    place_some(p, rg, model, waits, false);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool arrives = n->op->comm == KOLO_OP_WAIT;
        memory_group *of = &p->groups[root_of(p, n->out[0].id)];
        if (arrives && kolo_axis_of_halo(&g->mesh, post_of(g, n)->move) >= 0) {
            of->first = (int32_t)kolo_min_i64(of->first, kolo_info(g, n->in[0])->producer);
            continue; /* in the arena */
        }
        const bool of_model = arrives && p->map->buckets[n->attr[KOLO_COMM_BUCKET].i].of_model;
        const int n_out = accumulates(n) ? n->n_out : arrives;
        for (int k = 0; k < n_out; k++) {
            if (p->groups[root_of(p, n->out[k].id)].fixed) continue;
            place_alone(p, of_model ? model : rg, n->out[k],
                        arrives ? kolo_info(g, n->in[0])->producer : i);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_memory_place_buckets(memory_planner *p) {
    const kolo_graph *g = p->g;
    kolo_memory_map *map = p->map;
    size_t rooms = 1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        map->n_buckets += g->nodes[i]->op->comm == KOLO_OP_POST;
        rooms += 2 + (accumulates(g->nodes[i]) ? (size_t)g->nodes[i]->n_out : 0);
    }
    kolo_arena arena = {0};
    region rg = {.which = KOLO_REGION_BUCKET, .bytes = &map->bucket_bytes};
    region model = {.which = KOLO_REGION_MODEL, .bytes = &map->model_bytes};
    rg.rooms = kolo_arena_alloc(&arena, 2 * rooms * sizeof *rg.rooms);
    model.rooms = kolo_arena_alloc(&arena, rooms * sizeof *model.rooms);
    const kolo_node **waits = kolo_arena_alloc(&arena, rooms * sizeof(const kolo_node *));
    map->buckets = kolo_zalloc((size_t)(map->n_buckets + 1) * sizeof *map->buckets);
    kolo_status status = rg.rooms && model.rooms && waits && map->buckets
                             ? place_all(p, &rg, &model, waits)
                             : KOLO_NOMEM(2 * rooms * sizeof *rg.rooms);
    kolo_arena_fini(&arena);
    return status;
}

const kolo_node *kolo_find_join(const kolo_graph *g, kolo_value param) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out && n->op->comm == KOLO_OP_WAIT; k++) {
            if (kolo_info(g, n->out[k])->next_of.id == param.id) return n;
        }
    }
    return NULL;
}
