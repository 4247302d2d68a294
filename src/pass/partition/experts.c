/* Expert parallelism: the axis ep divides the experts of mixtures, and the samples of everything
 * else. Tokens reach the experts by an all-to-all, which exchanges samples for experts, and return
 * by another (Lepikhin et al., "GShard", 2021). Weights of experts are sharded as the tokens that
 * they multiply; no rule names them. Where the samples do not divide, all ranks compute the other
 * layers alike, each its experts for all tokens, and gather what the experts give; the loss of one
 * rank counts, so that gradients are summed over the ranks in any case. */
#include "graph/ops/ops.h"
#include "pass/partition/partition.h"

#include <inttypes.h>

enum { OF_EXPERTS = 0, OF_SAMPLES = 1 }; /* dimensions of what experts read, [E,N,P,C] */

/* Whether all inputs divide into equal samples. */
static bool samples_divide(const partitioner *p, int size) {
    for (int32_t v = 0; v < p->n_values; v++) {
        const kolo_value_info *info = &p->g->values[v];
        const bool input = info->kind == KOLO_VALUE_INPUT && info->tensor.shape.rank > 0;
        if (input && info->tensor.shape.dim[0] % size != 0) return false;
    }
    return true;
}

static const kolo_node *find(const kolo_graph *g, const kolo_op *op) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op == op) return g->nodes[i];
    }
    return NULL;
}

bool kolo_partition_has_experts(const partitioner *p) {
    return find(p->g, &kolo_op_expert_dispatch) != NULL;
}

kolo_status kolo_partition_begin_experts(partitioner *p, int axis) {
    const kolo_mesh_axis *of = &p->g->mesh.axes[axis];
    const kolo_node *dispatch = find(p->g, &kolo_op_expert_dispatch);
    if (!dispatch) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s=%d divides the experts of mixtures, and this model has none: give "
                         "another axis, such as dp, or a model such as gpt2_moe",
                         of->name, of->size);
    }
    if (p->sums == 0 || p->by_samples != 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s=%d divides the samples of all activations, and the placement rules "
                         "those of some: give rules without \"%s\" (--placement megatron)",
                         of->name, of->size, p->sums == 0 ? "sums 0" : "samples");
    }
    const int64_t experts = kolo_info(p->g, dispatch->out[0])->tensor.shape.dim[OF_EXPERTS];
    if (experts < of->size) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%" PRId64 " experts cannot be divided over %s=%d: choose more experts, "
                         "or a smaller %s",
                         experts, of->name, of->size, of->name);
    }
    if (!samples_divide(p, of->size)) return KOLO_OK;
    const kolo_placement cut = {.kind = KOLO_PLACEMENT_SHARDED, .depth = 1 + axis};
    for (int32_t v = 0; v < p->n_values; v++) {
        const kolo_value_info *info = &p->g->values[v];
        if (info->kind != KOLO_VALUE_INPUT || info->tensor.shape.rank == 0) continue;
        p->now[v] = kolo_partition_slice(p, p->now[v], axis, &cut);
        KOLO_TRY(kolo_graph_check(p->g));
        p->origin[p->now[v].id] = v;
    }
    p->by_samples |= (kolo_axes)1 << axis;
    return KOLO_OK;
}

kolo_value kolo_partition_to_experts(partitioner *p, kolo_value v, int axis) {
    const kolo_mesh *mesh = &p->g->mesh;
    const kolo_placement cut = {
        .kind = KOLO_PLACEMENT_SHARDED, .dim = OF_EXPERTS, .depth = KOLO_DEPTH_EXPERTS};
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    if (is_cut(placed(p, v, axis))) shape.dim[OF_SAMPLES] *= mesh->axes[axis].size;
    shape.dim[OF_EXPERTS] = local_length(p, axis, &cut, shape.dim[OF_EXPERTS]);
    kolo_value by = kolo_partition_move(p, v, axis, &cut, &shape);
    if (kolo_value_ok(by) && !is_cut(placed(p, v, axis))) p->origin[by.id] = v.id;
    return by;
}

kolo_status kolo_partition_from_experts(partitioner *p, kolo_node *n, int axis) {
    enum { Y, PLACES };
    const kolo_value y = n->in[Y];
    const kolo_placement *samples = placed(p, n->in[PLACES], axis);
    if (n->op != &kolo_op_expert_combine || !is_cut(placed(p, y, axis)) ||
        placed(p, y, axis)->dim != OF_EXPERTS) {
        return KOLO_OK;
    }
    kolo_shape shape = kolo_info(p->g, y)->tensor.shape;
    shape.dim[OF_EXPERTS] = p->whole[y.id].dim[OF_EXPERTS];
    kolo_placement to = {.kind = KOLO_PLACEMENT_INVARIANT};
    if (is_cut(samples)) {
        to = *samples;
        to.dim = OF_SAMPLES;
        shape.dim[OF_SAMPLES] /= p->g->mesh.axes[axis].size;
    }
    n->in[Y] = kolo_partition_move(p, y, axis, &to, &shape);
    return kolo_graph_check(p->g);
}

kolo_status kolo_partition_finish_experts(partitioner *p, int axis) {
    kolo_graph *g = p->g;
    if (kolo_value_ok(kolo_graph_find(g, "grad_scale"))) return KOLO_OK;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_value *v = &p->now[g->outputs[i].value.id];
        const bool sum = kolo_value_ok(*v) && placed(p, *v, axis)->kind == KOLO_PLACEMENT_PARTIAL;
        if (sum) *v = kolo_partition_move_to(p, *v, axis, KOLO_PLACEMENT_INVARIANT);
        KOLO_TRY(kolo_graph_check(g));
    }
    return KOLO_OK;
}
