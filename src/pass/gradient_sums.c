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

int32_t kolo_summed_gradient(const kolo_graph *g, const kolo_node *n, int axis,
                             const int32_t *param_of) {
    if (n->op->comm != KOLO_OP_REDISTRIBUTE) return -1;
    const kolo_placement *from = &n->move->from.axis[axis], *to = &n->move->to.axis[axis];
    if (from->kind != KOLO_PLACEMENT_PARTIAL || to->kind != KOLO_PLACEMENT_INVARIANT) return -1;
    for (kolo_value v = n->in[0];;) {
        int32_t producer = kolo_info(g, v)->producer;
        if (param_of[v.id] >= 0) return param_of[v.id];
        if (producer < 0 || g->nodes[producer]->op != &kolo_op_reorder) return -1;
        v = g->nodes[producer]->in[0];
    }
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
