/* ZeRO: every rank updates a range of each parameter. Rajbhandari et al., "ZeRO: Memory
 * Optimizations Toward Training Trillion Parameter Models", SC 2020.
 *
 *     g                     gradient, a summand on each rank
 *     redistribute(g)       reduce-scatter: the sum of the own range
 *     update(w, g, m)       on own ranges; the optimizer state exists nowhere else
 *     redistribute(w')      allgather: the next version of the whole
 *
 * Level 1 sums the gradients over the micro-batches before they are reduced, level 2 after: no rank
 * keeps a whole gradient. Level 3 cuts the parameters too: they are gathered before the forward and
 * again before the backward pass reads them, ahead of use by at most the bytes in flight
 * (comm_order.c), and the last allgather is gone.
 *
 * The next version of a range is written in its place in the next version of the whole. Ranks of
 * one host may share the parameters: the allgather then moves nothing and becomes a barrier.
 *
 * Parameters are grouped into units of at least bucket_bytes, in the order in which the backward
 * pass computes their gradients. The ranks cut a unit into equal ranges of its storage, so that a
 * rank holds a range, maybe an empty one, of each parameter. Cuts are multiples of
 * KOLO_SQUARE_BLOCK, unless the ranges are uneven: norms of sharded gradients are those of whole
 * ones, bitwise, where storage is in row-major order. */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <stdlib.h>

typedef struct zero {
    kolo_graph *g;
    const kolo_zero_opts *o;
    int axis, ranks;
    int32_t n_values;  /* before values are added */
    int32_t *owner;    /* by value: the parameter whose update it is part of; -1: none */
    int32_t *grad_of;  /* by value: the parameter of which it is the gradient; -1: none */
    kolo_value *shard; /* by value: its own range, or what all ranks have of it; or none */
    kolo_value *once;  /* by value: a gradient that one rank of the axis ep counts; or none */
    kolo_value *sum;   /* by value: of a gradient, where all ranks have it; or none */
    bool whole_norms;  /* norms are of whole tensors, in blocks of tensor parallelism */
    int *unit, *place; /* by value: of a parameter: its unit, from 1, and its place in that */
    int n_units;
    bool *whole;      /* by value: a parameter that is not cut */
    kolo_value *read; /* level 3, by value: a parameter as the current pass reads it; or none */
    int *bucket;      /* by unit: of its parameters in the current pass; 0: none yet */
    int n_buckets;
    kolo_node **order;
    int32_t n;
} zero;

/* ---- units and cuts ---- */

typedef struct trained {
    int32_t param, made; /* made: the producer of its gradient */
} trained;

static int by_made(const void *a, const void *b) {
    const trained *x = a, *y = b;
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

static int64_t elements_of(const zero *z, int32_t v) {
    return kolo_tensor_elements(&z->g->values[v].tensor);
}

/* Where the range of coordinate c begins in a parameter of n elements that stands at `at` in a unit
 * of `total`. */
static int64_t cut_at(const zero *z, int64_t at, int64_t n, int64_t total, int c) {
    const int64_t *shares = z->o->shares;
    const double before = shares ? (double)shares[c] : c;
    const double all = shares ? (double)shares[z->ranks] : z->ranks;
    int64_t ideal = (int64_t)((double)total * before / all) - at;
    int64_t cut = (ideal + KOLO_SQUARE_BLOCK / 2) / KOLO_SQUARE_BLOCK * KOLO_SQUARE_BLOCK;
    if (shares) cut = ideal;
    if (c == 0 || ideal <= 0) return 0;
    return c == z->ranks || cut > n ? n : cut;
}

/* The ranges of a parameter, or of a slice of it that other axes make. */
static kolo_placements placed(const zero *z, int32_t param, const int64_t *cuts) {
    kolo_placements p = z->g->values[param].placements;
    p.axis[z->axis] =
        (kolo_placement){.kind = KOLO_PLACEMENT_SHARDED, .dim = KOLO_DIM_FLAT, .cuts = cuts};
    return p;
}

/* The local tensor of a flat shard. */
static kolo_tensor local_of(const zero *z, kolo_dtype dtype, const int64_t *cuts) {
    int c = kolo_mesh_coordinate(&z->g->mesh, z->g->rank, z->axis);
    return kolo_tensor_plain(dtype, kolo_shape_1(cuts[c + 1] - cuts[c]));
}

/* Cuts the parameters of a unit. */
static kolo_status cut_unit(zero *z, const trained *first, const trained *end,
                            const int64_t **cuts) {
    int64_t total = 0, at = 0;
    for (const trained *t = first; t < end; t++) total += elements_of(z, t->param);
    z->n_units++;
    for (const trained *t = first; t < end; t++) {
        int64_t n = elements_of(z, t->param);
        int64_t *own = kolo_arena_alloc(&z->g->arena, ((size_t)z->ranks + 1) * sizeof *own);
        if (!own) return KOLO_NOMEM((size_t)z->ranks * sizeof *own);
        for (int c = 0; c <= z->ranks; c++) own[c] = cut_at(z, at, n, total, c);
        cuts[t->param] = own;
        z->unit[t->param] = z->n_units;
        z->place[t->param] = (int)(t - first);
        at += n;
    }
    return KOLO_OK;
}

/* Takes the cuts of another plan of the store, by the names of parameters and of their state. */
static void take_cuts(zero *z, const int64_t **cuts) {
    for (int32_t v = 0; v < z->n_values && z->o->fixed; v++) {
        const kolo_value_info *info = &z->g->values[v];
        int32_t param = info->kind == KOLO_VALUE_STATE ? z->owner[v] : v;
        bool leaf = info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_STATE;
        kolo_zero_cut cut;
        if (!leaf || param < 0 || z->unit[param] > 0) continue;
        if (!z->o->fixed(z->o->fixed_arg, info->name, &cut)) continue;
        cuts[param] = cut.cuts;
        z->unit[param] = cut.unit;
        z->place[param] = cut.place;
        if (cut.unit > z->n_units) z->n_units = cut.unit;
    }
}

/* Whether several stages of a pipeline have a parameter: its cuts must be the same on all of them.
 */
static bool is_tied(const zero *z, int32_t param) {
    const uint64_t holders = z->g->values[param].holders;
    return (holders & (holders - 1)) != 0;
}

/* Whether a parameter is large enough for a unit of its own. */
static bool is_unit(const zero *z, int32_t param) {
    return z->o->shares && kolo_tensor_bytes(&z->g->values[param].tensor) >= z->o->unit_bytes;
}

/* Divides the trained parameters into units. One that several stages have is a unit of its own. */
static kolo_status cut_all(zero *z, const int64_t **cuts, trained *list) {
    const kolo_graph *g = z->g;
    int n = 0, first = 0;
    size_t filled = 0;
    take_cuts(z, cuts);
    for (int32_t v = 0; v < z->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        bool trains = info->kind == KOLO_VALUE_PARAM && kolo_value_ok(info->grad);
        if (!trains || z->unit[v] > 0 || z->whole[v]) continue;
        list[n++] = (trained){v, kolo_info(g, info->grad)->producer};
    }
    qsort(list, (size_t)n, sizeof *list, by_made);
    for (int i = 0; i < n; i++) {
        filled += kolo_tensor_bytes(&g->values[list[i].param].tensor);
        const bool ends = i == n - 1 || is_tied(z, list[i].param) ||
                          is_tied(z, list[i + 1].param) || is_unit(z, list[i + 1].param);
        if (filled < (z->o->shares ? z->o->unit_bytes : z->o->bucket_bytes) && !ends) continue;
        KOLO_TRY(cut_unit(z, list + first, list + i + 1, cuts));
        first = i + 1;
        filled = 0;
    }
    return KOLO_OK;
}

/* ---- moves ---- */

/* `unit`, `param`: of the bucket, and the parameter whose place the value has in it; 0, -1: any. */
static kolo_value move(zero *z, kolo_value v, const kolo_placements *from,
                       const kolo_placements *to, const kolo_tensor *tensor, int unit,
                       int32_t param) {
    kolo_value by = kolo_redistribute_as(z->g, v, from, to, tensor);
    if (kolo_graph_check(z->g) != KOLO_OK) return v;
    kolo_node *n = z->g->nodes[kolo_info(z->g, by)->producer];
    n->attr[KOLO_REDISTRIBUTE_UNIT].i = unit;
    n->attr[KOLO_REDISTRIBUTE_PLACE].i = param >= 0 ? z->place[param] : 0;
    z->order[z->n++] = n;
    return by;
}

static kolo_placements on_axis(const zero *z, kolo_placement_kind kind) {
    kolo_placements p = {0};
    p.axis[z->axis].kind = kind;
    return p;
}

/* Turns a parameter, or state of it, into a flat shard. */
static void make_local(const zero *z, int32_t leaf, int32_t param, const int64_t *cuts) {
    kolo_value_info *info = &z->g->values[leaf];
    info->unit = z->unit[param];
    info->place = z->place[param];
    if (!kolo_is_slice(z->g, (kolo_value){.id = leaf})) info->whole = info->tensor;
    info->slice = info->tensor;
    info->tensor = local_of(z, info->tensor.dtype, cuts);
    info->placements = placed(z, param, cuts);
}

/* The summands of a gradient, and on how many axes with other ranks they are. */
static kolo_value summands_of(const zero *z, kolo_value v, kolo_placements *from, int *axes) {
    if (kolo_value_ok(z->once[v.id])) v = z->once[v.id];
    *from = kolo_info(z->g, v)->placements;
    if (z->o->level > 2) *from = on_axis(z, KOLO_PLACEMENT_PARTIAL);
    *axes = 0;
    for (int a = 0; a < z->g->mesh.n_axes; a++) {
        *axes += from->axis[a].kind == KOLO_PLACEMENT_PARTIAL && z->g->mesh.axes[a].size > 1;
    }
    return v;
}

/* The sum of a gradient over all axes, on all ranks: an allreduce. */
static kolo_value summed(zero *z, kolo_value v) {
    kolo_placements from;
    int axes;
    if (kolo_value_ok(z->sum[v.id])) return z->sum[v.id];
    const kolo_value summand = summands_of(z, v, &from, &axes);
    const kolo_tensor whole = kolo_info(z->g, v)->tensor;
    kolo_placements to = from;
    for (int a = 0; a < z->g->mesh.n_axes; a++) {
        if (from.axis[a].kind == KOLO_PLACEMENT_PARTIAL) to.axis[a] = (kolo_placement){0};
    }
    return z->sum[v.id] = move(z, summand, &from, &to, &whole, 0, -1);
}

/* The own range of the sum of a gradient: a reduce-scatter, or a view of the whole sum, where other
 * axes, or norms, need that. */
static kolo_value scattered(zero *z, kolo_value v, int32_t owner, const int64_t *cuts) {
    const kolo_tensor local = local_of(z, kolo_info(z->g, v)->tensor.dtype, cuts);
    kolo_placements from, to;
    int axes, unit = z->unit[owner];
    kolo_value source = summands_of(z, v, &from, &axes);
    if (axes > 1 || z->whole_norms) {
        source = summed(z, v);
        from = kolo_info(z->g, source)->placements;
        unit = 0;
    }
    to = from;
    to.axis[z->axis] = placed(z, owner, cuts).axis[z->axis];
    return move(z, source, &from, &to, &local, unit, unit > 0 ? owner : -1);
}

/* The own range of v, an input of an update of the parameter `owner`. */
static kolo_value shard_of(zero *z, kolo_value v, int32_t owner, const int64_t *cuts) {
    if (v.id >= z->n_values || kolo_value_ok(z->shard[v.id])) {
        return v.id < z->n_values ? z->shard[v.id] : v;
    }
    const kolo_value_info *info = kolo_info(z->g, v);
    const kolo_placements to = placed(z, owner, cuts), whole = info->placements;
    const kolo_tensor local = local_of(z, info->tensor.dtype, cuts);
    if (info->kind == KOLO_VALUE_STATE) make_local(z, v.id, owner, cuts);
    bool gradient = z->grad_of[v.id] >= 0;
    bool moves = info->kind == KOLO_VALUE_PARAM && z->o->level < 3;
    z->shard[v.id] = v;
    if (gradient) {
        z->shard[v.id] = scattered(z, v, owner, cuts);
    } else if (moves) {
        z->shard[v.id] = move(z, v, &whole, &to, &local, 0, -1);
    }
    return z->shard[v.id];
}

/* ---- updates ---- */

/* The parameter that a node updates, or computes something for; -1: none or several. */
static int32_t owner_of(const zero *z, const kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        int32_t v = n->in[k].id;
        if (v < z->n_values && z->owner[v] >= 0) return z->owner[v];
    }
    return -1;
}

/* The sums of squares of the own blocks become those of all. The ranks that have slices have blocks
 * of their own, as many for each: of the largest slice, whatever its layout adds to it. */
static void spread_blocks(zero *z, kolo_node *n, int32_t owner, const int64_t *cuts) {
    enum { LARGEST_BLOCK = 192 }; /* a multiple of those of dimensions, in layouts */
    const kolo_mesh *mesh = &z->g->mesh;
    const kolo_placements *is = &z->g->values[owner].placements;
    int64_t each = kolo_square_blocks(cuts[z->ranks]), own = 0, parts = 1;
    kolo_placements sum = on_axis(z, KOLO_PLACEMENT_PARTIAL);
    const kolo_placements whole = {0};
    kolo_value blocks = n->out[0];
    kolo_tensor *tensor = &kolo_info(z->g, blocks)->tensor;
    for (int a = 0; a < mesh->n_axes; a++) {
        const bool range = is->axis[a].dim == KOLO_DIM_FLAT; /* level 3 */
        if (is->axis[a].kind != KOLO_PLACEMENT_SHARDED || range) continue;
        sum.axis[a].kind = KOLO_PLACEMENT_PARTIAL;
        own = own * mesh->axes[a].size + kolo_mesh_coordinate(mesh, z->g->rank, a);
        parts *= mesh->axes[a].size;
    }
    if (parts > 1) {
        const int64_t most =
            kolo_square_blocks(kolo_largest_slice(z->g, (kolo_value){.id = owner}, LARGEST_BLOCK));
        KOLO_ASSERT(each <= most);
        each = most;
    }
    n->attr[KOLO_SQUARE_FIRST].i =
        own * each + cuts[kolo_mesh_coordinate(mesh, z->g->rank, z->axis)] / KOLO_SQUARE_BLOCK;
    n->attr[KOLO_SQUARE_ALL].i = parts * each;
    *tensor = kolo_tensor_plain(tensor->dtype, kolo_shape_1(n->attr[KOLO_SQUARE_ALL].i));
    const kolo_tensor all = *tensor;
    z->shard[blocks.id] = move(z, blocks, &sum, &whole, &all, 0, -1);
}

/* The next version of a whole parameter from the ranges of all ranks, which are in their places. */
static void join_next(zero *z, kolo_value next, kolo_value w, const int64_t *cuts) {
    const kolo_tensor whole = kolo_info(z->g, w)->tensor;
    const kolo_placements from = placed(z, w.id, cuts), to = kolo_info(z->g, w)->placements;
    kolo_info(z->g, next)->next_of = KOLO_NONE;
    kolo_info(z->g, w)->unit = z->unit[w.id];
    kolo_info(z->g, w)->place = z->place[w.id];
    kolo_value all = move(z, next, &from, &to, &whole, z->o->share ? 0 : z->unit[w.id], w.id);
    if (kolo_graph_check(z->g) != KOLO_OK) return;
    kolo_info(z->g, all)->next_of = w;
}

/* A copy of a range that an update has computed: what is gathered is overwritten. */
static kolo_value copied(zero *z, kolo_value v) {
    const kolo_tensor tensor = kolo_info(z->g, v)->tensor;
    const kolo_node *n = kolo_graph_add_raw(z->g, &kolo_op_reorder, &v, 1, 1, &tensor, NULL);
    if (!n) return v;
    z->order[z->n++] = z->g->nodes[z->g->n_nodes - 1];
    return n->out[0];
}

/* The whole of v, an input of an update of the parameter `owner`: of a gradient the sum, of what
 * updates compute, and on level 3 of the parameter, the ranges of all ranks. */
static kolo_value whole_of(zero *z, kolo_value v, int32_t owner, const int64_t *cuts) {
    const kolo_value_info *param = &z->g->values[owner];
    const bool cut = z->o->level > 2, range = v.id == owner ? cut : kolo_value_ok(z->shard[v.id]);
    if (z->grad_of[v.id] >= 0) return summed(z, v);
    if (!range) return v;
    const kolo_tensor whole = cut ? param->slice : param->tensor;
    const kolo_placements from = placed(z, owner, cuts);
    kolo_placements to = from;
    to.axis[z->axis] = (kolo_placement){0};
    if (v.id != owner) v = copied(z, v);
    return move(z, v, &from, &to, &whole, 0, -1);
}

/* Squares in blocks of tensor parallelism (optimizer.c), which no ranges keep apart: all ranks
 * compute them alike. */
static bool is_of_whole(const zero *z, const kolo_node *n) {
    return z->whole_norms && (n->op == &kolo_op_square_blocks || n->op == &kolo_op_deinterleave);
}

static void square_whole(zero *z, kolo_node *n, int32_t owner, const int64_t *cuts) {
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k].id < z->n_values) n->in[k] = whole_of(z, n->in[k], owner, cuts);
    }
    z->order[z->n++] = n;
}

static void shard_update(zero *z, kolo_node *n, int32_t owner, const int64_t *cuts) {
    if (is_of_whole(z, n)) {
        square_whole(z, n, owner, cuts);
        return;
    }
    for (int k = 0; k < n->n_in; k++) {
        int32_t v = n->in[k].id;
        if (v >= z->n_values) continue;
        if (z->owner[v] >= 0) {
            n->in[k] = shard_of(z, n->in[k], owner, cuts);
        } else if (kolo_value_ok(z->shard[v])) {
            n->in[k] = z->shard[v]; /* blocks */
        }
    }
    z->order[z->n++] = n;
    if (n->op == &kolo_op_square_blocks) {
        spread_blocks(z, n, owner, cuts);
        return;
    }
    for (int k = 0; k < n->n_out; k++) {
        kolo_value_info *out = kolo_info(z->g, n->out[k]);
        out->tensor = local_of(z, out->tensor.dtype, cuts);
        z->owner[n->out[k].id] = owner;
        z->shard[n->out[k].id] = n->out[k];
        bool whole = kolo_value_ok(out->next_of) && out->next_of.id == owner && z->o->level < 3;
        if (whole) join_next(z, n->out[k], out->next_of, cuts);
    }
}

/* A node of an update that belongs to no parameter, such as the sum of the norms. */
static void follow_blocks(zero *z, kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        int32_t v = n->in[k].id;
        if (v < z->n_values && kolo_value_ok(z->shard[v])) n->in[k] = z->shard[v];
    }
    z->order[z->n++] = n;
}

/* ---- reading sharded parameters ---- */

/* The whole of a sharded parameter, gathered where a pass reads it first. Units are gathered in the
 * order in which they are needed. */
static kolo_value gathered(zero *z, kolo_value w, const int64_t *cuts) {
    int *bucket = &z->bucket[z->unit[w.id]];
    const kolo_placements from = placed(z, w.id, cuts);
    const kolo_placements to = on_axis(z, KOLO_PLACEMENT_REPLICATED);
    const kolo_tensor whole = kolo_info(z->g, w)->whole;
    if (kolo_value_ok(z->read[w.id])) return z->read[w.id];
    if (*bucket == 0) *bucket = ++z->n_buckets;
    z->read[w.id] = move(z, w, &from, &to, &whole, *bucket, w.id);
    return z->read[w.id];
}

/* The backward pass gathers anew what the forward pass has released. */
static void begin_pass(zero *z) {
    for (int32_t v = 0; v < z->n_values; v++) z->read[v] = KOLO_NONE;
    for (int u = 0; u <= z->n_units; u++) z->bucket[u] = 0;
}

static void read_parameters(zero *z, kolo_node *n, const int64_t **cuts) {
    for (int k = 0; k < n->n_in; k++) {
        int32_t v = n->in[k].id;
        if (v < z->n_values && z->unit[v] > 0) n->in[k] = gathered(z, n->in[k], cuts[v]);
    }
    z->order[z->n++] = n;
}

/* The first node of the backward pass; or none. */
static int32_t find_backward(const kolo_graph *g) {
    kolo_value seed = kolo_graph_find(g, "grad_scale");
    for (int32_t i = 0; i < g->n_nodes && kolo_value_ok(seed); i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k].id == seed.id) return i;
        }
    }
    return g->n_nodes;
}

/* ---- the whole ---- */

/* Whether blocks of the parameter's storage are not those of its norm, whose bits would change. */
static bool is_blocked(const kolo_graph *g, int32_t param) {
    return !kolo_layout_is_plain(&g->values[param].tensor.layout);
}

/* Chooses the parameters that are not cut: tables with row-sparse gradients, of which all ranks
 * gather and update the same rows; and, at level 0, those whose norms would get other bits. */
static void keep_whole(zero *z) {
    const kolo_graph *g = z->g;
    for (int32_t v = 0; v < z->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        z->whole[v] = info->kind == KOLO_VALUE_PARAM && info->rows > 0;
    }
    for (int32_t i = 0; i < g->n_nodes && z->o->level == 0; i++) {
        const kolo_node *n = g->nodes[i];
        int32_t owner = n->op == &kolo_op_square_blocks ? owner_of(z, n) : -1;
        if (owner >= 0 && is_blocked(g, owner)) z->whole[owner] = true;
    }
}

/* A gradient that all ranks of the axis ep have alike becomes a sum over them too, as it is on
 * places on dp whose samples divide (synchronize.c). The node stands behind that of the gradient,
 * so that all have sums in one order. */
static void count_once(zero *z, kolo_value v) {
    const int ep = kolo_mesh_find(&z->g->mesh, "ep");
    const kolo_value_info *info = kolo_info(z->g, v);
    if (ep < 0 || z->g->mesh.axes[ep].size == 1 || z->grad_of[v.id] < 0) return;
    if (info->placements.axis[z->axis].kind != KOLO_PLACEMENT_PARTIAL) return;
    if (info->placements.axis[ep].kind != KOLO_PLACEMENT_INVARIANT) return;
    const kolo_placements is = info->placements;
    const kolo_tensor whole = info->tensor;
    kolo_placements to = is;
    to.axis[ep].kind = KOLO_PLACEMENT_PARTIAL;
    z->once[v.id] = move(z, v, &is, &to, &whole, 0, -1);
}

/* Marks the leaves and gradients of each update. */
static void find_owners(zero *z) {
    const kolo_graph *g = z->g;
    for (int32_t v = 0; v < z->n_values; v++) {
        z->owner[v] = z->grad_of[v] = -1;
        z->shard[v] = z->once[v] = z->sum[v] = KOLO_NONE;
    }
    for (int32_t v = 0; v < z->n_values; v++) {
        kolo_value grad = g->values[v].grad;
        if (g->values[v].kind != KOLO_VALUE_PARAM || !kolo_value_ok(grad)) continue;
        z->owner[v] = z->owner[grad.id] = v;
        z->grad_of[grad.id] = v;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        int32_t owner = kolo_node_is_update(g, n) ? owner_of(z, n) : -1;
        z->whole_norms |= g->blocks > 0 && n->op == &kolo_op_square_blocks;
        for (int k = 0; owner >= 0 && k < n->n_out; k++) {
            kolo_value next_of = kolo_info(g, n->out[k])->next_of;
            bool state = kolo_value_ok(next_of) && kolo_info(g, next_of)->kind == KOLO_VALUE_STATE;
            if (state) z->owner[next_of.id] = owner;
            if (n->op != &kolo_op_square_blocks) z->owner[n->out[k].id] = owner;
        }
    }
}

static kolo_status walk(zero *z, const int64_t **cuts) {
    kolo_graph *g = z->g;
    const int32_t n_nodes = g->n_nodes, backward = find_backward(g);
    const bool shards = z->o->level > 2;
    for (int32_t v = 0; v < z->n_values && shards; v++) {
        if (z->unit[v] > 0) make_local(z, v, v, cuts[v]);
    }
    begin_pass(z);
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        bool update = kolo_node_is_update(g, n);
        int32_t owner = update ? owner_of(z, n) : -1;
        if (owner >= 0 && z->whole[owner]) owner = -1;
        if (i == backward) begin_pass(z);
        if (owner >= 0) {
            shard_update(z, n, owner, cuts[owner]);
        } else if (update) {
            follow_blocks(z, n);
        } else if (shards) {
            read_parameters(z, n, cuts);
        } else {
            z->order[z->n++] = n;
        }
        if (!update && !shards) KOLO_TRY(kolo_node_propagate(g, n)); /* where gradients are */
        for (int k = 0; k < n->n_out && !update; k++) count_once(z, n->out[k]);
        KOLO_TRY(kolo_graph_check(g));
    }
    return kolo_graph_set_nodes(g, z->order, z->n);
}

kolo_status kolo_pass_zero(kolo_graph *g, const kolo_zero_opts *opts) {
    int axis = kolo_mesh_find(&g->mesh, "dp");
    zero z = {.g = g, .o = opts, .axis = axis, .n_values = g->n_values};
    if (axis < 0 || g->mesh.axes[axis].size == 1) return KOLO_OK; /* one rank holds all ranges */
    if (opts->level > 1 && kolo_mesh_has_model_axis(&g->mesh)) {
        char text[KOLO_MESH_TEXT];
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--zero above 1 is for data parallelism, and the mesh is %s: omit one of "
                         "the two",
                         kolo_mesh_text(&g->mesh, text));
    }
    z.ranks = g->mesh.axes[axis].size;
    const size_t values = (size_t)g->n_values + 1, nodes = 8 * ((size_t)g->n_nodes + values);
    kolo_arena arena = {0};
    z.owner = kolo_arena_alloc(&arena, values * sizeof *z.owner);
    z.grad_of = kolo_arena_alloc(&arena, values * sizeof *z.grad_of);
    z.shard = kolo_arena_alloc(&arena, values * sizeof *z.shard);
    z.once = kolo_arena_alloc(&arena, values * sizeof *z.once);
    z.sum = kolo_arena_alloc(&arena, values * sizeof *z.sum);
    z.unit = kolo_arena_alloc(&arena, values * sizeof *z.unit);
    z.place = kolo_arena_alloc(&arena, values * sizeof *z.place);
    z.whole = kolo_arena_alloc(&arena, values * sizeof *z.whole);
    z.read = kolo_arena_alloc(&arena, values * sizeof *z.read);
    z.order = kolo_arena_alloc(&arena, nodes * sizeof *z.order);
    const int64_t **cuts = kolo_arena_alloc(&arena, values * sizeof(const int64_t *));
    trained *list = kolo_arena_alloc(&arena, values * sizeof *list);
    kolo_status status = KOLO_OK;
    if (!z.owner || !z.grad_of || !z.shard || !z.once || !z.sum || !z.unit || !z.place ||
        !z.whole || !z.read || !z.order || !cuts || !list) {
        status = KOLO_NOMEM(nodes * sizeof *z.order);
    }
    if (status == KOLO_OK) {
        find_owners(&z);
        keep_whole(&z);
        status = cut_all(&z, cuts, list);
    }
    if (status == KOLO_OK) {
        z.bucket = kolo_arena_alloc(&arena, ((size_t)z.n_units + 1) * sizeof *z.bucket);
        if (!z.bucket) status = KOLO_NOMEM((size_t)z.n_units * sizeof *z.bucket);
    }
    if (status == KOLO_OK) status = walk(&z, cuts);
    kolo_arena_fini(&arena);
    return status;
}
