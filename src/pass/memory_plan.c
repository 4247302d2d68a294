/* Memory planning: assigns a location to every value.
 *
 * Values that share memory form a group: views of one value, and an output that overwrites an input
 * after its last reader. A group of the arena is alive from its first producer to its last reader;
 * groups may overlap only if they are not alive at the same time. Groups are placed largest first,
 * each in the smallest sufficient gap between groups alive with it. What is communicated is in a
 * region of its own, contiguous by bucket; buckets overlap only if they are not alive at the same
 * time, which is so on all ranks once a WAIT has returned. Activations that ranks exchange along
 * axes without samples have another region, one for each slot of a stage: their size depends on the
 * micro-batch, and gradients of all micro-batches share one place. Scalars are in the table,
 * parameters and state in the store.
 *
 * The nodes of a region (lanes.c) run at the same time: what one of them reads last is in use until
 * the end of the region, and one may overwrite only what its own lane alone has used there. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, NEVER = -1 /* without producer: a pruned value */ };

typedef struct group {
    int32_t first, last; /* node indices: alive in [first, last] */
    size_t bytes;
    bool fixed;     /* placed outside the arena */
    bool slot;      /* placed in the slot of a micro-batch, */
    int chunk;      /* of this chunk of the stage; -1: of each of them, at the same place */
    bool sent;      /* to another stage */
    bool kept;      /* from one step to the next */
    bool left;      /* to the next step, which computes it: placed behind the values of that step */
    int region;     /* the last one whose nodes use it; 0: none */
    unsigned lanes; /* of that region, a bit each */
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
    if (b->region == a->region) a->lanes |= b->lanes;
    if (b->region > a->region) {
        a->region = b->region;
        a->lanes = b->lanes;
    }
}

/* ---- regions ---- */

/* The last node of the region of node i; i itself where it has none. */
static int32_t region_last(const kolo_graph *g, int32_t i) {
    while (i >= 0 && i + 1 < g->n_nodes && g->nodes[i]->region > 0 &&
           g->nodes[i + 1]->region == g->nodes[i]->region) {
        i++;
    }
    return i;
}

static void use_in_region(planner *p, const kolo_node *n, kolo_value v) {
    group *gr = &p->groups[root_of(p, v.id)];
    if (gr->region != n->region) gr->lanes = 0;
    gr->region = n->region;
    gr->lanes |= 1U << n->lane;
}

static void find_lanes(planner *p) {
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        const kolo_node *n = p->g->nodes[i];
        for (int k = 0; k < n->n_in && n->region > 0; k++) use_in_region(p, n, n->in[k]);
        for (int k = 0; k < n->n_out && n->region > 0; k++) use_in_region(p, n, n->out[k]);
    }
}

/* Whether nodes of other lanes may use a group while node n runs. */
static bool is_used_beside(const group *gr, const kolo_node *n) {
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
        if (!n->op->view || is_apart(g, n)) continue;
        for (int k = 0; k < n->n_out; k++) merge(p, n->in[k].id, n->out[k].id);
    }
}

static bool is_local(const kolo_node *n) { return n->op->comm == KOLO_OP_LOCAL; }

/* In use from one step to the next. */
static void keep(planner *p, kolo_value v) {
    group *gr = &p->groups[root_of(p, v.id)];
    gr->first = 0;
    gr->last = p->g->n_nodes;
    gr->kept = true;
}

/* What is left to the next step (cross_step.c) and reads `v`: a bucket, or a value of this step or
 * the next. */
static void keep_read(planner *p, kolo_value v) {
    const kolo_value_info *info = kolo_info(p->g, v);
    const group *gr = &p->groups[root_of(p, v.id)];
    if (info->producer >= 0 && !gr->left && !kolo_value_ok(info->next_of)) keep(p, v);
}

/* Lifetimes of what the next step computes or reads. Updates of different parameters run one after
 * another there too, each with all of its nodes (plan/later.c): the order of the graph states which
 * of their values are alive at the same time. */
static kolo_status find_left(planner *p) {
    const kolo_graph *g = p->g;
    bool *later = kolo_zalloc((size_t)g->n_nodes + 1);
    if (!later) return KOLO_NOMEM(g->n_nodes);
    const kolo_status status = kolo_find_later(g, later);
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (!later[i] || !is_local(n) || n->op->view) continue;
        for (int k = 0; k < n->n_out; k++) p->groups[root_of(p, n->out[k].id)].left = true;
    }
    for (int32_t i = 0; i < g->n_nodes && status == KOLO_OK; i++) {
        const kolo_node *n = g->nodes[i];
        if (!later[i]) continue;
        for (int k = 0; k < n->n_in; k++) keep_read(p, n->in[k]);
        if (is_local(n)) continue;
        const kolo_node *post = g->nodes[kolo_info(g, n->in[0])->producer];
        for (int k = 0; k < post->n_in; k++) keep(p, post->in[k]);
    }
    kolo_free(later);
    return status;
}

/* ---- the region of buckets ---- */

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

/* Widens the lifetime of a room by that of a value. A sum over micro-batches is kept throughout. */
static void hold(planner *p, room *r, kolo_value v) {
    const group *of = &p->groups[root_of(p, v.id)];
    int32_t producer = kolo_info(p->g, v)->producer;
    bool kept = producer >= 0 && p->g->nodes[producer]->op == &kolo_op_accumulate;
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
static void locate(planner *p, kolo_region where, kolo_value v, size_t offset) {
    int32_t r = root_of(p, v.id);
    KOLO_ASSERT(!p->groups[r].fixed);
    p->groups[r].fixed = true;
    p->map->locations[r] = (kolo_location){.region = where, .offset = offset};
}

static size_t bytes_at(const kolo_graph *g, kolo_value v, int64_t elements) {
    return (size_t)elements * kolo_dtype_bytes(kolo_info(g, v)->tensor.dtype);
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
    return kolo_round_up(kolo_tensor_bytes(&kolo_info(g, v)->tensor), ALIGN);
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
static void locate_ranges(planner *p, const flat *f, const kolo_bucket *bucket, size_t base,
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
static size_t place_slice(planner *p, region *rg, const flat *f, const kolo_bucket *bucket,
                          int32_t post) {
    int c = f->coordinate;
    room r = {.first = post, .last = post};
    for (int k = 0; k < f->n; k++) {
        const group *of = &p->groups[root_of(p, f->shards[k].id)];
        const int32_t last = region_last(p->g, of->last);
        if (last > r.last) r.last = last;
    }
    r.bytes = bucket->ends[c] - (c > 0 ? bucket->ends[c - 1] : 0) + 1; /* never empty */
    return place_room(rg, r)->offset;
}

static kolo_bucket *bucket_of(const planner *p, const kolo_node *post) {
    return &p->map->buckets[post->attr[KOLO_COMM_BUCKET].i];
}

/* The values of a bucket; `shards` NULL: they are no flat shards, and `wholes` is what is posted.
 */
static flat values_of(const planner *p, const kolo_node *post, const kolo_node *wait) {
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
    return kolo_round_up((size_t)given * row, ALIGN) + kolo_round_up((size_t)taken * row, ALIGN);
}

/* Measures a bucket. Slices, which live longer than what they are from, are placed first. */
static kolo_status measure_bucket(planner *p, region *rg, int32_t i, const kolo_node *wait) {
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
static void place_ranges(planner *p, const kolo_node *post, const kolo_node *wait) {
    for (int k = 0; k < post->n_in; k++) {
        int64_t first = 0, count;
        int32_t r = root_of(p, post->in[k].id);
        (void)kolo_flat_range(p->g, post->in[k], &first, &count);
        locate(p, KOLO_REGION_NEXT, post->in[k], (size_t)kolo_info(p->g, wait->out[k])->next_of.id);
        p->map->locations[r].skip = bytes_at(p->g, post->in[k], first);
    }
}

/* Places what an exchange packs and unpacks. */
static void place_buffers(const planner *p, region *rg, const kolo_node *post,
                          const kolo_node *wait) {
    kolo_bucket *bucket = bucket_of(p, post);
    const room r = {.first = kolo_info(p->g, post->out[0])->producer,
                    .last = kolo_info(p->g, wait->out[0])->producer,
                    .bytes = bucket->buffer_bytes + 1}; /* never empty */
    bucket->slice = place_room(rg, r)->offset;
}

/* Places the values of a post and the results of its wait. */
static void place_bucket(planner *p, region *rg, const kolo_node *post, const kolo_node *wait) {
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
static void place_alone(planner *p, region *rg, kolo_value v, int32_t first) {
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
static void place_some(planner *p, region *rg, region *model, const kolo_node **waits, bool kept) {
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
static kolo_status place_all(planner *p, region *rg, region *model, const kolo_node **waits) {
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
        group *of = &p->groups[root_of(p, n->out[0].id)];
        if (arrives && kolo_axis_of_halo(&g->mesh, post_of(g, n)->move) >= 0) {
            of->first = (int32_t)kolo_min_i64(of->first, kolo_info(g, n->in[0])->producer);
            continue; /* in the arena */
        }
        if (of->fixed || !(arrives || n->op == &kolo_op_accumulate)) continue;
        const bool of_model = arrives && p->map->buckets[n->attr[KOLO_COMM_BUCKET].i].of_model;
        place_alone(p, of_model ? model : rg, n->out[0],
                    arrives ? kolo_info(g, n->in[0])->producer : i);
    }
    return KOLO_OK;
}

static kolo_status place_buckets(planner *p) {
    const kolo_graph *g = p->g;
    kolo_memory_map *map = p->map;
    size_t rooms = 1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        map->n_buckets += g->nodes[i]->op->comm == KOLO_OP_POST;
        rooms += 2 + (g->nodes[i]->op == &kolo_op_accumulate);
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

/* What is sent to another stage is in memory of its own: it may still be on its way when the next
 * micro-batch takes the slot. */
static void mark_sent(planner *p) {
    for (int32_t i = 0; i < p->g->n_outputs; i++) {
        if (p->g->outputs[i].crossing.number == 0) continue;
        group *gr = &p->groups[root_of(p, p->g->outputs[i].value.id)];
        KOLO_ASSERT(!gr->fixed);
        gr->sent = true;
    }
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
        const group *of = &p->groups[root_of(p, v.id)];
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

static void place_fixed(planner *p) {
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
static void find_slots(planner *p) {
    const kolo_graph *g = p->g;
    for (int32_t v = 0; g->stages > 0 && v < g->n_values; v++) {
        group *gr = &p->groups[v];
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
static int32_t last_in_chunk(planner *p, int32_t root, int chunk) {
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
static kolo_status place_values(planner *p, bool slot, bool left, int chunk) {
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
    find_lanes(&p);
    KOLO_TRY_GOTO(find_left(&p), done);
    place_fixed(&p);
    KOLO_TRY_GOTO(place_buckets(&p), done);
    mark_sent(&p);
    overwrite(&p);
    find_slots(&p);
    KOLO_TRY_GOTO(place_values(&p, false, false, 0), done);
    KOLO_TRY_GOTO(place_values(&p, false, true, 0), done);
    for (int c = 0; c < (g->chunks > 0 ? g->chunks : 1); c++) {
        KOLO_TRY_GOTO(place_values(&p, true, false, c), done);
        map->slot_bytes[c] = kolo_round_up(map->slot_bytes[c], ALIGN);
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
