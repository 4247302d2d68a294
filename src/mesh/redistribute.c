/* Redistributions: from placements to moves. See redistribute.h.
 *
 * Partial values are reduced first, which makes them smaller or leaves them as they are; then what
 * is not a sum is sliced or exchanged; last, what becomes partial is padded, which costs no
 * communication. Regions decide whether a move is right: a slice needs a target's region inside the
 * same rank's source region; an exchange takes further axes into its groups until every target
 * finds all of its elements there. */
#include "mesh/redistribute.h"

#include "base/compiler.h"

static const char *const move_names[KOLO_MOVE_COUNT] = {
    [KOLO_MOVE_SLICE] = "slice",
    [KOLO_MOVE_PAD] = "pad",
    [KOLO_MOVE_ALLREDUCE] = "allreduce",
    [KOLO_MOVE_REDUCE_SCATTER] = "reduce-scatter",
    [KOLO_MOVE_REDUCE] = "reduce",
    [KOLO_MOVE_ALLGATHER] = "allgather",
    [KOLO_MOVE_GATHER] = "gather",
    [KOLO_MOVE_BROADCAST] = "broadcast",
    [KOLO_MOVE_SCATTER] = "scatter",
    [KOLO_MOVE_EXCHANGE] = "all-to-all",
    [KOLO_MOVE_NEIGHBOUR] = "neighbour exchange",
};

const char *kolo_move_name(kolo_move_kind kind) { return move_names[kind]; }

/* ---- state of planning ---- */

typedef struct planner {
    const kolo_mesh *mesh;
    const kolo_shape *shape;
    const kolo_placements *to;
    kolo_placements now; /* after the moves so far */
    bool flat;
    kolo_move *moves;
    int n;
    kolo_mesh_region *before, *after; /* [ranks] of a move that is tried */
} planner;

static bool has(kolo_axes axes, int axis) { return axes >> axis & 1; }
static kolo_axes bit(int axis) { return (kolo_axes)1 << axis; }

/* The ranks along an axis of this kind hold the same. */
static bool is_whole(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_INVARIANT || p->kind == KOLO_PLACEMENT_REPLICATED;
}

static bool same_data(const kolo_placement *a, const kolo_placement *b, int size) {
    return kolo_placement_equal(a, b, size) || (is_whole(a) && is_whole(b));
}

static bool is_flat(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim == KOLO_DIM_FLAT;
}

static bool cuts_dim(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim != KOLO_DIM_FLAT;
}

static bool becomes_partial(const planner *p, int axis) {
    return p->to->axis[axis].kind == KOLO_PLACEMENT_PARTIAL &&
           p->now.axis[axis].kind != KOLO_PLACEMENT_PARTIAL;
}

/* Appends a move to `after`, which then holds. */
static void add_move(planner *p, kolo_move_kind kind, kolo_axes axes, int root, kolo_reduce_op op,
                     const kolo_placements *after) {
    KOLO_ASSERT(p->n < KOLO_MOVES_MOST);
    p->moves[p->n++] = (kolo_move){
        .kind = kind,
        .axes = axes,
        .flat = p->flat,
        .root = root,
        .op = op,
        .from = p->now,
        .to = *after,
    };
    p->now = *after;
}

/* Regions of all ranks before and after a change to `after`. */
static kolo_status find_regions(planner *p, const kolo_placements *after, kolo_arena *arena) {
    int ranks = kolo_mesh_size(p->mesh);
    p->before = kolo_arena_alloc(arena, (size_t)ranks * sizeof *p->before);
    p->after = kolo_arena_alloc(arena, (size_t)ranks * sizeof *p->after);
    if (!p->before || !p->after) return KOLO_NOMEM((size_t)ranks * sizeof *p->before);
    for (int r = 0; r < ranks; r++) {
        KOLO_TRY(kolo_mesh_region_of(p->mesh, &p->now, p->shape, r, p->flat, arena, &p->before[r]));
        KOLO_TRY(kolo_mesh_region_of(p->mesh, after, p->shape, r, p->flat, arena, &p->after[r]));
    }
    return KOLO_OK;
}

/* Whether each rank already has what it is to hold. */
static bool is_slice(const planner *p) {
    int ranks = kolo_mesh_size(p->mesh);
    for (int r = 0; r < ranks; r++) {
        if (!kolo_mesh_region_contains(&p->before[r], &p->after[r])) return false;
    }
    return true;
}

/* ---- reducing ---- */

/* Whether the ranks of each group hold, after the move, parts of what all of them held before. */
static bool is_within(const planner *p, kolo_axes axes) {
    int ranks = kolo_mesh_size(p->mesh), size = kolo_mesh_group_size(p->mesh, axes);
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < size; i++) {
            int other = kolo_mesh_group_rank(p->mesh, axes, r, i);
            if (!kolo_mesh_region_contains(&p->before[r], &p->after[other])) return false;
        }
    }
    return true;
}

/* Reduces the partial values of `axes`, whose targets are all of one kind, by one collective. */
static kolo_status reduce_axes(planner *p, kolo_axes axes, kolo_placement_kind kind,
                               kolo_reduce_op op, kolo_arena *arena) {
    kolo_placements after = p->now;
    int root = 0;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        if (!has(axes, a)) continue;
        after.axis[a] = p->to->axis[a];
        root = root * p->mesh->axes[a].size + p->to->axis[a].at;
    }
    if (kind == KOLO_PLACEMENT_AT) {
        add_move(p, KOLO_MOVE_REDUCE, axes, root, op, &after);
        return KOLO_OK;
    }
    if (kind == KOLO_PLACEMENT_SHARDED) {
        /* The target's cuts need not fit what another axis has cut out of the dimension so far. */
        bool fits = kolo_placements_check(p->mesh, &after, p->shape) == KOLO_OK;
        if (fits) KOLO_TRY(find_regions(p, &after, arena));
        if (fits && is_within(p, axes)) {
            add_move(p, KOLO_MOVE_REDUCE_SCATTER, axes, 0, op, &after);
            return KOLO_OK;
        }
        for (int a = 0; a < p->mesh->n_axes; a++) { /* sliced later */
            if (has(axes, a)) after.axis[a] = (kolo_placement){.kind = KOLO_PLACEMENT_REPLICATED};
        }
    }
    add_move(p, KOLO_MOVE_ALLREDUCE, axes, 0, op, &after);
    return KOLO_OK;
}

/* Reduces what is partial and will not be, axes with equal operations and kinds of targets at once;
 * those that scatter first, so that the others have less to move. */
static kolo_status reduce_partials(planner *p, kolo_arena *arena) {
    static const kolo_placement_kind order[] = {KOLO_PLACEMENT_SHARDED, KOLO_PLACEMENT_AT,
                                                KOLO_PLACEMENT_INVARIANT};
    for (size_t k = 0; k < KOLO_COUNT(order); k++) {
        for (int a = 0; a < p->mesh->n_axes; a++) {
            const kolo_placement *from = &p->now.axis[a];
            if (from->kind != KOLO_PLACEMENT_PARTIAL) continue;
            kolo_reduce_op op = from->op;
            kolo_axes axes = 0;
            for (int b = a; b < p->mesh->n_axes; b++) {
                const kolo_placement *f = &p->now.axis[b], *t = &p->to->axis[b];
                if (f->kind != KOLO_PLACEMENT_PARTIAL || f->op != op ||
                    t->kind == KOLO_PLACEMENT_PARTIAL) {
                    continue;
                }
                kolo_placement_kind kind = is_whole(t) ? KOLO_PLACEMENT_INVARIANT : t->kind;
                if (kind == order[k]) axes |= bit(b);
            }
            if (has(axes, a)) KOLO_TRY(reduce_axes(p, axes, order[k], op, arena));
        }
    }
    return KOLO_OK;
}

/* ---- exchanging ---- */

/* Whether every rank finds all that it is to hold within its group. The axes of a group are those
 * whose ranks hold different elements, so no element is found twice, and counting is enough. */
static bool is_complete(const planner *p, kolo_axes axes) {
    int ranks = kolo_mesh_size(p->mesh), size = kolo_mesh_group_size(p->mesh, axes);
    for (int r = 0; r < ranks; r++) {
        int64_t found = 0;
        for (int i = 0; i < size; i++) {
            int source = kolo_mesh_group_rank(p->mesh, axes, r, i);
            found += kolo_overlap_count(&p->before[source], &p->after[r]);
        }
        if (found != kolo_mesh_region_count(&p->after[r])) return false;
    }
    return true;
}

/* The axes of an exchange: those that change and whose ranks differ in what they hold, and, while
 * something is missing, others whose ranks do, the innermost first. */
static kolo_status exchange_axes(const planner *p, kolo_axes changed, kolo_axes *axes) {
    kolo_axes candidates = 0;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        kolo_placement_kind kind = p->now.axis[a].kind;
        if (kind == KOLO_PLACEMENT_SHARDED || kind == KOLO_PLACEMENT_AT) candidates |= bit(a);
    }
    kolo_axes group = changed & candidates, others = candidates & ~group;
    while (!is_complete(p, group)) {
        int inner = KOLO_MESH_AXES - 1;
        while (inner >= 0 && !has(others, inner)) inner--;
        if (inner < 0) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "redistribution: the target needs elements that no rank holds");
        }
        group |= bit(inner);
        others &= ~bit(inner);
    }
    *axes = group;
    return KOLO_OK;
}

/* Which collective moves what the ranks of a group give each other, by what it looks like from all
 * of them. */
static kolo_move_kind classify(const planner *p, kolo_axes axes, int *root) {
    int ranks = kolo_mesh_size(p->mesh), size = kolo_mesh_group_size(p->mesh, axes);
    bool one_source = true, one_target = true, to_all = true, neighbour = true;
    int source_at = -1, target_at = -1;
    for (int r = 0; r < ranks; r++) {
        int me = kolo_mesh_group_index(p->mesh, axes, r), sends = 0, receives = 0;
        int64_t held = kolo_mesh_region_count(&p->before[r]),
                wanted = kolo_mesh_region_count(&p->after[r]);
        if (held > 0) {
            one_source = one_source && (source_at < 0 || source_at == me);
            source_at = me;
        }
        if (wanted > 0) {
            one_target = one_target && (target_at < 0 || target_at == me);
            target_at = me;
        }
        for (int i = 0; i < size; i++) {
            int other = kolo_mesh_group_rank(p->mesh, axes, r, i);
            int64_t out = kolo_overlap_count(&p->before[r], &p->after[other]);
            int64_t in = kolo_overlap_count(&p->before[other], &p->after[r]);
            to_all = to_all && out == held;
            sends += other != r && out > 0;
            receives += other != r && in > 0;
        }
        neighbour = neighbour && sends <= 1 && receives <= 1;
    }
    *root = 0;
    if (to_all && !one_source) return KOLO_MOVE_ALLGATHER;
    if (to_all) {
        *root = source_at;
        return KOLO_MOVE_BROADCAST;
    }
    if (one_source && one_target) return KOLO_MOVE_NEIGHBOUR;
    if (one_target) {
        *root = target_at;
        return KOLO_MOVE_GATHER;
    }
    if (one_source) {
        *root = source_at;
        return KOLO_MOVE_SCATTER;
    }
    return neighbour ? KOLO_MOVE_NEIGHBOUR : KOLO_MOVE_EXCHANGE;
}

/* Rows of a halo come from the slices of neighbours, or are added to these. */
static kolo_status exchange_halos(planner *p, kolo_arena *arena) {
    for (int a = 0; a < p->mesh->n_axes; a++) {
        const kolo_placement *from = &p->now.axis[a], *to = &p->to->axis[a];
        if (same_data(from, to, p->mesh->axes[a].size) || (!from->halo && !to->halo)) continue;
        kolo_placements after = p->now;
        after.axis[a] = *to;
        KOLO_TRY(kolo_placements_check(p->mesh, &after, p->shape));
        KOLO_TRY(find_regions(p, &after, arena));
        const bool local = !from->halo && is_slice(p);
        const bool adds = from->halo != NULL;
        add_move(p, local ? KOLO_MOVE_SLICE : KOLO_MOVE_NEIGHBOUR, local ? 0 : bit(a), 0, KOLO_SUM,
                 &after);
        p->moves[p->n - 1].adds = adds;
    }
    return KOLO_OK;
}

/* From what is no sum to what is none: nothing, a slice or an exchange. */
static kolo_status exchange(planner *p, const kolo_placements *to, kolo_arena *arena) {
    KOLO_TRY(exchange_halos(p, arena));
    kolo_placements after = p->now;
    kolo_axes changed = 0;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        if (to->axis[a].kind == KOLO_PLACEMENT_PARTIAL) continue;
        after.axis[a] = to->axis[a];
        if (!same_data(&p->now.axis[a], &after.axis[a], p->mesh->axes[a].size)) changed |= bit(a);
    }
    if (!changed) {
        p->now = after;
        return KOLO_OK;
    }
    KOLO_TRY(find_regions(p, &after, arena));
    if (is_slice(p)) {
        add_move(p, KOLO_MOVE_SLICE, 0, 0, KOLO_SUM, &after);
        return KOLO_OK;
    }
    kolo_axes axes = 0;
    int root;
    KOLO_TRY(exchange_axes(p, changed, &axes));
    kolo_move_kind kind = classify(p, axes, &root);
    add_move(p, kind, axes, root, KOLO_SUM, &after);
    return KOLO_OK;
}

/* ---- padding ---- */

/* Makes the axes partial that are to be: each rank keeps what it holds, within zeros. */
static void pad(planner *p) {
    kolo_placements after = p->now;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        if (!becomes_partial(p, a)) continue;
        /* Of ranks with the same data the first keeps it, as if the tensor were there alone. */
        if (is_whole(&p->now.axis[a])) p->now.axis[a] = (kolo_placement){.kind = KOLO_PLACEMENT_AT};
        after.axis[a] = p->to->axis[a];
    }
    add_move(p, KOLO_MOVE_PAD, 0, 0, KOLO_SUM, &after);
}

/* Whether the axes that become partial cut a dimension that other axes cut too, before or after.
 * Then what the others leave to a rank changes with the padding. */
static bool cuts_together(const planner *p, kolo_placements *uncut) {
    bool together = false;
    *uncut = *p->to;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        const kolo_placement *padded = &p->now.axis[a];
        if (!becomes_partial(p, a) || padded->kind != KOLO_PLACEMENT_SHARDED) continue;
        for (int b = 0; b < p->mesh->n_axes; b++) {
            const kolo_placement *ends[] = {&p->now.axis[b], &p->to->axis[b]};
            for (int i = 0; i < 2 && !becomes_partial(p, b); i++) {
                if (ends[i]->kind != KOLO_PLACEMENT_SHARDED || ends[i]->dim != padded->dim)
                    continue;
                uncut->axis[b] = (kolo_placement){.kind = KOLO_PLACEMENT_REPLICATED};
                together = true;
            }
        }
    }
    return together;
}

/* All that is left once the sums are reduced. */
static kolo_status exchange_and_pad(planner *p, kolo_arena *arena) {
    bool pads = false;
    for (int a = 0; a < p->mesh->n_axes; a++) pads = pads || becomes_partial(p, a);
    kolo_placements uncut;
    if (pads && cuts_together(p, &uncut)) {
        KOLO_TRY(exchange(p, &uncut, arena));
        pad(p);
        pads = false;
    }
    KOLO_TRY(exchange(p, p->to, arena));
    if (pads) pad(p);
    return KOLO_OK;
}

/* ---- the whole ---- */

/* Whether what changes is a halo that slices of the same dimension get, or give their summands. */
static kolo_status check_halos(const kolo_placement *from, const kolo_placement *to,
                               const char *name) {
    const kolo_placement *with = from->halo ? from : to, *without = from->halo ? to : from;
    kolo_placement slice = *with;
    if (!with->halo) return KOLO_OK;
    slice.halo = NULL;
    slice.summands = false;
    if (kolo_placement_equal(&slice, without, 1) && with->summands == (with == from)) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "redistribution over %s: the rows of a halo come from slices of the same "
                     "dimension, and its summands go to these",
                     name);
}

/* Refuses what has no row in the table, and finds out whether the flat view serves. */
static kolo_status check_pairs(planner *p) {
    bool other = false;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        const kolo_placement *f = &p->now.axis[a], *t = &p->to->axis[a];
        const char *name = p->mesh->axes[a].name;
        p->flat = p->flat || is_flat(f) || is_flat(t);
        if (same_data(f, t, p->mesh->axes[a].size)) continue;
        if (f->kind == KOLO_PLACEMENT_LOCAL || t->kind == KOLO_PLACEMENT_LOCAL) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "redistribution over %s: local versions are averaged, not moved",
                             name);
        }
        if (t->kind == KOLO_PLACEMENT_PARTIAL &&
            (t->op != KOLO_SUM || f->kind == KOLO_PLACEMENT_PARTIAL)) {
            return KOLO_FAIL(KOLO_ERR_ARG, "redistribution over %s: the target must be a sum",
                             name);
        }
        other = other || cuts_dim(f) || cuts_dim(t);
        KOLO_TRY(check_halos(f, t, name));
    }
    if (!p->flat || !other) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "redistribution: shards of a dimension change under a flat shard; go by way of "
        "the whole tensor");
}

kolo_status kolo_redistribution_plan(const kolo_mesh *mesh, const kolo_shape *shape,
                                     const kolo_placements *from, const kolo_placements *to,
                                     kolo_move *moves, int *n) {
    planner p = {.mesh = mesh, .shape = shape, .to = to, .now = *from, .moves = moves};
    KOLO_TRY(kolo_placements_check(mesh, from, shape));
    KOLO_TRY(kolo_placements_check(mesh, to, shape));
    KOLO_TRY(check_pairs(&p));
    kolo_arena arena = {0};
    kolo_status status = reduce_partials(&p, &arena);
    if (status == KOLO_OK) status = exchange_and_pad(&p, &arena);
    kolo_arena_fini(&arena);
    if (status == KOLO_OK) *n = p.n;
    return status;
}

kolo_status kolo_move_overlap(const kolo_mesh *mesh, const kolo_shape *shape, const kolo_move *move,
                              int source, int target, kolo_arena *arena, kolo_overlap *overlap) {
    kolo_mesh_region before, after;
    KOLO_TRY(kolo_mesh_region_of(mesh, &move->from, shape, source, move->flat, arena, &before));
    KOLO_TRY(kolo_mesh_region_of(mesh, &move->to, shape, target, move->flat, arena, &after));
    return kolo_overlap_of(&before, &after, arena, overlap);
}

/* ---- cost ---- */

kolo_status kolo_move_bytes(const kolo_mesh *mesh, const kolo_shape *shape, const kolo_move *move,
                            kolo_dtype dtype, int rank, int64_t *bytes) {
    kolo_arena arena = {0};
    kolo_status status = KOLO_OK;
    kolo_mesh_region before;
    int64_t elements = 0, size = kolo_mesh_group_size(mesh, move->axes);
    KOLO_TRY_GOTO(kolo_mesh_region_of(mesh, &move->from, shape, rank, move->flat, &arena, &before),
                  done);
    int64_t held = kolo_mesh_region_count(&before);
    switch (move->kind) {
    case KOLO_MOVE_SLICE:
    case KOLO_MOVE_PAD:
        break;
    case KOLO_MOVE_ALLREDUCE:
        elements = 2 * (size - 1) * held / size;
        break;
    default: /* what others hold afterwards of what this rank held, once each */
        for (int i = 0; i < size; i++) {
            int other = kolo_mesh_group_rank(mesh, move->axes, rank, i);
            kolo_overlap overlap = {0};
            if (other == rank) continue;
            KOLO_TRY_GOTO(kolo_move_overlap(mesh, shape, move, rank, other, &arena, &overlap),
                          done);
            elements += overlap.count;
        }
    }
    *bytes = elements * (int64_t)kolo_dtype_bytes(dtype);
done:
    kolo_arena_fini(&arena);
    return status;
}
