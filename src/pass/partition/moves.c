/* The redistributions that partitioning inserts. */
#include "graph/ops/ops.h"
#include "pass/partition/partition.h"

/* The placements of v. Where each rank of an axis computes a summand of its gradient it is
 * REPLICATED: nodes leave that INVARIANT, which holds the same data. */
static kolo_placements placements_of(const partitioner *p, kolo_value v) {
    kolo_placements is = kolo_info(p->g, v)->placements;
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const bool whole = is.axis[a].kind == KOLO_PLACEMENT_INVARIANT;
        if (whole && p->varying[v.id] >> a & 1) is.axis[a].kind = KOLO_PLACEMENT_REPLICATED;
    }
    return is;
}

kolo_value kolo_partition_move(partitioner *p, kolo_value v, int axis, const kolo_placement *to,
                               const kolo_shape *shape) {
    kolo_placements from = placements_of(p, v), target = from;
    const kolo_tensor tensor = kolo_tensor_plain(kolo_info(p->g, v)->tensor.dtype, *shape);
    target.axis[axis] = *to;
    kolo_value by = kolo_redistribute_as(p->g, v, &from, &target, &tensor);
    if (!kolo_value_ok(by)) return by;
    p->order[p->n++] = p->g->nodes[kolo_info(p->g, by)->producer];
    p->whole[by.id] = p->whole[v.id];
    p->origin[by.id] = p->origin[v.id];
    p->varying[by.id] = p->varying[v.id];
    return by;
}

kolo_value kolo_partition_move_to(partitioner *p, kolo_value v, int axis,
                                  kolo_placement_kind kind) {
    const kolo_placement to = {.kind = kind};
    const kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    return kolo_partition_move(p, v, axis, &to, &shape);
}

kolo_value kolo_partition_replicate(partitioner *p, kolo_value v, int axis) {
    if (!kolo_value_ok(p->read[v.id][axis])) {
        p->read[v.id][axis] = kolo_partition_move_to(p, v, axis, KOLO_PLACEMENT_REPLICATED);
    }
    return p->read[v.id][axis];
}

kolo_shape kolo_partition_shape_before(const partitioner *p, kolo_value v, int axis) {
    const kolo_mesh *mesh = &p->g->mesh;
    kolo_shape shape = p->whole[v.id];
    const kolo_placement *own = placed(p, v, axis);
    for (int a = 0; a < mesh->n_axes; a++) {
        const kolo_placement *cut = placed(p, v, a);
        const bool samples =
            is_of_positions(p, axis) && is_of_experts(p, a) && cut->depth < KOLO_DEPTH_POSITIONS;
        const bool around =
            is_of_positions(p, a) && is_cut(own) && own->dim == cut->dim && own->depth > cut->depth;
        if ((samples || around) && is_cut(cut)) shape.dim[cut->dim] /= mesh->axes[a].size;
    }
    return shape;
}

kolo_value kolo_partition_collect(partitioner *p, kolo_value v, int axis,
                                  kolo_placement_kind kind) {
    const kolo_placement to = {.kind = kind};
    const int d = placed(p, v, axis)->dim;
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    if (is_of_positions(p, axis) || placed(p, v, axis)->depth >= KOLO_DEPTH_POSITIONS) {
        /* Slices may differ. */
        shape.dim[d] = kolo_partition_shape_before(p, v, axis).dim[d];
    } else {
        shape.dim[d] *= p->g->mesh.axes[axis].size;
    }
    return kolo_partition_move(p, v, axis, &to, &shape);
}

kolo_value kolo_partition_slice(partitioner *p, kolo_value v, int axis, const kolo_placement *cut) {
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    shape.dim[cut->dim] = local_length(p, axis, cut, shape.dim[cut->dim]);
    return kolo_partition_move(p, v, axis, cut, &shape);
}

kolo_value kolo_partition_collect_once(partitioner *p, kolo_value v, int axis) {
    if (!kolo_value_ok(p->read[v.id][axis])) {
        p->read[v.id][axis] = kolo_partition_collect(p, v, axis, KOLO_PLACEMENT_REPLICATED);
    }
    return p->read[v.id][axis];
}
