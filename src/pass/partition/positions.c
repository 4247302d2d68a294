/* Context parallelism: the axis sp divides the positions of sequences, and no parameter. What an
 * embedding reads is sliced along dimension 1, and all that follows from it is sharded so; sums
 * over the positions, such as the loss, stay summands as those over samples do. For attention the
 * ranks exchange positions for heads: Jacobs et al., "DeepSpeed Ulysses", 2023. By the rule
 * "attention ring" it keeps its positions, and keys and values rotate around the ranks (ring.c).
 * For a recurrence they exchange positions for samples, with all time steps of each; where there
 * are fewer samples than ranks, all gather the positions and compute it alike.
 *
 * A vision transformer makes its positions of patches of images. All ranks compute these, alike,
 * and the first layer normalization and all that follows has slices of them. */
#include "graph/ops/ops.h"
#include "pass/partition/partition.h"
#include "pass/partition/rules.h"

#include <inttypes.h>

kolo_status kolo_partition_check_positions(partitioner *p, int axis) {
    kolo_placement_rule attention;
    const kolo_mesh_axis *of = &p->g->mesh.axes[axis];
    KOLO_TRY(kolo_placement_keyword(p->rules, "attention", &attention));
    p->rings = kolo_placement_rings(&attention);
    p->zigzags = attention.dim == KOLO_PLACE_ZIGZAG;
    if (p->sums != 0) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "%s=%d divides the positions of all activations, or rows of images, and the placement "
        "rules the samples of some: give rules without \"sums 0\" (--placement megatron)",
        of->name, of->size);
}

kolo_status kolo_partition_finish_positions(partitioner *p, int axis) {
    kolo_graph *g = p->g;
    const kolo_mesh_axis *of = &g->mesh.axes[axis];
    const bool trains = kolo_value_ok(kolo_graph_find(g, "grad_scale"));
    if (!p->divides_positions) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s=%d divides the positions of sequences of tokens, or the rows of "
                         "images, and no op of this model computes with some of them: give another "
                         "axis, such as tp or dp",
                         of->name, of->size);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_value *v = &p->now[g->outputs[i].value.id];
        const bool sum = kolo_value_ok(*v) && placed(p, *v, axis)->kind == KOLO_PLACEMENT_PARTIAL;
        if (sum && !trains) *v = kolo_partition_move_to(p, *v, axis, KOLO_PLACEMENT_INVARIANT);
        KOLO_TRY(kolo_graph_check(g));
    }
    return KOLO_OK;
}

/* How `length` positions are cut. A zigzag leaves some to every rank where one less than two for
 * each are there; else each rank has one range. */
static kolo_placement cut_of(const partitioner *p, int axis, int64_t length) {
    return (kolo_placement){.kind = KOLO_PLACEMENT_SHARDED,
                            .dim = 1,
                            .depth = KOLO_DEPTH_POSITIONS,
                            .zigzag = p->zigzags && length >= 2 * p->g->mesh.axes[axis].size - 1};
}

/* ARG: so many positions cannot be divided over the axis. */
static kolo_status check_length(const partitioner *p, int axis, int64_t length) {
    const kolo_mesh_axis *of = &p->g->mesh.axes[axis];
    if (length >= of->size) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%" PRId64 " positions cannot be divided over %s=%d: choose longer "
                     "sequences, or a smaller %s",
                     length, of->name, of->size, of->name);
}

/* Slices the patches that the first layer normalization reads, also for what reads them later, such
 * as the residual sum. */
static kolo_status begin_patches(partitioner *p, kolo_node *n, int axis) {
    const kolo_value whole = n->in[0];
    const int64_t length = kolo_info(p->g, whole)->tensor.shape.dim[1];
    const kolo_placement cut = cut_of(p, axis, length);
    KOLO_TRY(check_length(p, axis, length));
    const kolo_value slice = kolo_partition_slice(p, whole, axis, &cut);
    KOLO_TRY(kolo_graph_check(p->g));
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->now[v].id == whole.id) p->now[v] = slice;
    }
    n->in[0] = slice;
    p->by_patches |= (kolo_axes)1 << axis;
    return KOLO_OK;
}

kolo_status kolo_partition_begin_positions(partitioner *p, kolo_node *n, int axis) {
    const bool normalizes =
        n->op == &kolo_op_layer_norm && kolo_info(p->g, n->in[0])->tensor.shape.rank == 3;
    if (p->patches && normalizes && !(p->by_patches >> axis & 1)) return begin_patches(p, n, axis);
    if (!n->op->lookup || is_cut(placed(p, n->in[1], axis))) return KOLO_OK;
    const kolo_value ids = n->in[1];
    const int64_t length = kolo_info(p->g, ids)->tensor.shape.dim[1];
    const kolo_placement cut = cut_of(p, axis, length);
    KOLO_TRY(check_length(p, axis, length));
    n->in[1] = kolo_partition_slice(p, ids, axis, &cut);
    KOLO_TRY(kolo_graph_check(p->g));
    p->origin[n->in[1].id] = ids.id;
    return KOLO_OK;
}

bool kolo_partition_take_ring(const partitioner *p, const cut_node *c) {
    const kolo_value v = c->n->in[c->lead];
    if (!p->rings || c->n->op != &kolo_op_attention || !is_of_positions(p, c->axis)) return false;
    const kolo_placement *cut = placed(p, v, c->axis);
    if (cut->dim != 1) return false;
    c->n->attr[KOLO_ATTENTION_RING].i = KOLO_RING_KEYS | (cut->zigzag ? KOLO_RING_ZIGZAG : 0);
    c->n->attr[KOLO_ATTENTION_LENGTH].i = p->whole[v.id].dim[1];
    return true;
}

/* Some of the heads in place of some of the positions; false: the op has none. */
static bool take_heads(partitioner *p, const cut_node *c) {
    const kolo_value v = c->n->in[c->lead];
    const kolo_index_term *term = &c->index->in[c->lead];
    const int d = c->n->op->part.size ? kolo_index_find(term, c->n->op->part.index) : -1;
    kolo_placement cut = *placed(p, v, c->axis);
    if (d < 0) return false;
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    shape.dim[cut.dim] = p->whole[v.id].dim[cut.dim];
    cut.dim = d;
    cut.blocks = term->parts[d];
    cut.zigzag = false;
    shape.dim[d] = local_length(p, c->axis, &cut, shape.dim[d]);
    c->n->in[c->lead] = kolo_partition_move(p, v, c->axis, &cut, &shape);
    return true;
}

/* The same with samples; false: there are fewer than ranks. */
static bool take_samples(partitioner *p, const cut_node *c) {
    const kolo_placement cut = {.kind = KOLO_PLACEMENT_SHARDED, .depth = KOLO_DEPTH_UNEVEN};
    const kolo_value v = c->n->in[c->lead];
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    if (shape.dim[0] < p->g->mesh.axes[c->axis].size) return false;
    shape.dim[0] = local_length(p, c->axis, &cut, shape.dim[0]);
    shape.dim[1] = p->whole[v.id].dim[1];
    c->n->in[c->lead] = kolo_partition_move(p, v, c->axis, &cut, &shape);
    return true;
}

bool kolo_partition_exchange_positions(partitioner *p, const cut_node *c) {
    const kolo_axes axis = (kolo_axes)1 << c->axis;
    if (!is_of_positions(p, c->axis)) return false;
    if (c->n->op->sequences && placed(p, c->n->in[c->lead], c->axis)->dim == 1) {
        p->exchanged |= axis; /* also where all positions are gathered */
        return take_samples(p, c);
    }
    if (!take_heads(p, c)) return false;
    p->exchanged |= axis;
    return true;
}

kolo_value kolo_partition_give_positions(partitioner *p, kolo_value v, int axis) {
    const kolo_placement *from = placed(p, v, axis);
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    const kolo_placement cut = cut_of(p, axis, shape.dim[1]);
    if (is_cut(from) && from->dim == 0) {
        shape.dim[0] = kolo_partition_shape_before(p, v, axis).dim[0];
    } else if (is_cut(from)) {
        shape.dim[from->dim] *= p->g->mesh.axes[axis].size; /* equal numbers of heads */
    }
    shape.dim[1] = local_length(p, axis, &cut, shape.dim[1]);
    return kolo_partition_move(p, v, axis, &cut, &shape);
}
