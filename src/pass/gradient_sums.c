#include "pass/gradient_sums.h"

#include "graph/ops/ops.h"

void kolo_find_gradients(const kolo_graph *g, int32_t *param_of) {
    for (int32_t v = 0; v < g->n_values; v++) param_of[v] = -1;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        bool dense = info->kind == KOLO_VALUE_PARAM && info->rows == 0;
        if (dense && kolo_value_ok(info->grad)) param_of[info->grad.id] = v;
    }
}

/* What a node that changes a layout reads to make v; KOLO_NONE: none makes it. */
static kolo_value in_another_layout(const kolo_graph *g, kolo_value v) {
    const int32_t producer = kolo_info(g, v)->producer;
    const bool reorders = producer >= 0 && g->nodes[producer]->op == &kolo_op_reorder;
    return reorders ? g->nodes[producer]->in[0] : KOLO_NONE;
}

int32_t kolo_summed_gradient(const kolo_graph *g, const kolo_node *n, int axis,
                             const int32_t *param_of) {
    if (n->op->comm != KOLO_OP_REDISTRIBUTE) return -1;
    const kolo_placement *from = &n->move->from.axis[axis], *to = &n->move->to.axis[axis];
    if (from->kind != KOLO_PLACEMENT_PARTIAL || to->kind != KOLO_PLACEMENT_INVARIANT) return -1;
    for (kolo_value v = n->in[0]; kolo_value_ok(v); v = in_another_layout(g, v)) {
        if (param_of[v.id] >= 0) return param_of[v.id];
    }
    return -1;
}

int32_t kolo_parameter_of_gradient(const kolo_graph *g, kolo_value v) {
    for (; kolo_value_ok(v); v = in_another_layout(g, v)) {
        for (int32_t p = 0; p < g->n_values; p++) {
            const kolo_value_info *info = &g->values[p];
            if (info->kind == KOLO_VALUE_PARAM && info->grad.id == v.id) return p;
        }
    }
    return -1;
}

kolo_value kolo_gradient_state(kolo_graph *g, const char *what, kolo_value gradient, int32_t param,
                               int axis) {
    const int ranks = g->mesh.axes[axis].size;
    char *name = kolo_format("optimizer.%s.%s", what, g->values[param].name);
    if (!name) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value state = kolo_graph_state(g, name, gradient);
    kolo_free(name);
    if (!kolo_value_ok(state)) return state;
    kolo_info(g, state)->canon = g->values[param].canon;
    if (ranks == 1) return state;
    kolo_graph_make_local(g, state, ranks, kolo_mesh_coordinate(&g->mesh, g->rank, axis));
    return state;
}
