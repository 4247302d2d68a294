/* Layout reorders: where they may stand before the search, and those that the chosen layouts need.
 */
#include "graph/ops/ops.h"
#include "pass/layout/layout.h"

/* Appends a reorder of v to the graph and returns its result. */
static kolo_value reorder_of(kolo_graph *g, kolo_value v) {
    return kolo_graph_add1(g, &kolo_op_reorder, &v, 1, NULL);
}

/* The builder appends new nodes at the end of the graph; `order` is the order they belong in. */
kolo_status kolo_layout_add_borders(kolo_graph *g) {
    int32_t n_old = g->n_nodes, n = 0;
    const size_t most = (size_t)n_old * 3 + (size_t)g->n_outputs + (size_t)g->n_values + 1;
    kolo_node **order = kolo_alloc(most * sizeof *order);
    kolo_value *alias = kolo_alloc(((size_t)g->n_values + 1) * sizeof *alias);
    kolo_status status = KOLO_OK;
    if (!order || !alias) {
        status = KOLO_NOMEM((size_t)n_old * sizeof *order);
        goto done;
    }
    int32_t n_values = g->n_values;
    for (int32_t v = 0; v < n_values; v++) alias[v] = (kolo_value){.id = v};
    for (int32_t v = 0; v < n_values; v++) { /* from another stage: in row-major order */
        if (g->values[v].crossing.number == 0 || g->values[v].tensor.shape.rank != 4) continue;
        alias[v] = reorder_of(g, (kolo_value){.id = v});
        KOLO_TRY_GOTO(kolo_graph_check(g), done);
        order[n++] = g->nodes[g->n_nodes - 1];
    }
    for (int32_t i = 0; i < n_old; i++) {
        kolo_node *node = g->nodes[i];
        for (int k = 0; k < node->n_in; k++) node->in[k] = alias[node->in[k].id];
        if (node->op->view && kolo_info(g, node->in[0])->tensor.shape.rank == 4) {
            node->in[0] = reorder_of(g, node->in[0]);
            KOLO_TRY_GOTO(kolo_graph_check(g), done);
            order[n++] = g->nodes[g->n_nodes - 1];
        }
        order[n++] = node;
        if (node->op->view && kolo_info(g, node->out[0])->tensor.shape.rank == 4) {
            alias[node->out[0].id] = reorder_of(g, node->out[0]);
            KOLO_TRY_GOTO(kolo_graph_check(g), done);
            order[n++] = g->nodes[g->n_nodes - 1];
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_value *v = &g->outputs[i].value;
        if (v->id < n_values) *v = alias[v->id];
        if (kolo_info(g, *v)->tensor.shape.rank != 4) continue;
        *v = reorder_of(g, *v);
        KOLO_TRY_GOTO(kolo_graph_check(g), done);
        order[n++] = g->nodes[g->n_nodes - 1];
    }
    for (int32_t v = 0; v < n_values; v++) {
        kolo_value *grad = &g->values[v].grad;
        if (kolo_value_ok(*grad) && grad->id < n_values) *grad = alias[grad->id];
    }
    status = kolo_graph_set_nodes(g, order, n);
done:
    kolo_free(order);
    kolo_free(alias);
    return status;
}

/* The node list under construction. */
typedef struct node_list {
    kolo_node **nodes;
    size_t count, capacity;
} node_list;

static kolo_status append(node_list *list, kolo_node *node) {
    if (!KOLO_GROW(list->nodes, list->count, list->capacity)) return KOLO_NOMEM(64);
    list->nodes[list->count++] = node;
    return KOLO_OK;
}

/* Appends a new reorder of v into a layout. */
static kolo_status append_reorder(layouter *l, node_list *list, kolo_value v, kolo_layout layout,
                                  kolo_value *to) {
    *to = reorder_of(l->g, v);
    KOLO_TRY(kolo_graph_check(l->g));
    kolo_info(l->g, *to)->tensor.layout = layout;
    return append(list, l->g->nodes[l->g->n_nodes - 1]);
}

/* v in a layout: v itself, an existing copy, or a new one. */
static kolo_status in_layout(layouter *l, node_list *list, kolo_value v, kolo_layout layout,
                             kolo_value *to) {
    *to = v;
    if (kolo_layout_equal(&tensor_of(l, v)->layout, &layout)) return KOLO_OK;
    for (const copy *c = l->copies[v.id]; c; c = c->next) {
        *to = c->value;
        if (kolo_layout_equal(&c->layout, &layout)) return KOLO_OK;
    }
    copy *c = kolo_arena_alloc(&l->arena, sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    KOLO_TRY(append_reorder(l, list, v, layout, to));
    *c = (copy){.next = l->copies[v.id], .value = *to, .layout = layout};
    l->copies[v.id] = c;
    return KOLO_OK;
}

/* Appends a node between the reorders of its detour. images[k]: value k takes part. */
static kolo_status append_detour(layouter *l, node_list *list, kolo_node *node, int family,
                                 const bool *images) {
    kolo_layout layout = l->families[family];
    int n_behind = 0;
    kolo_node *behind[KOLO_MAX_IO];
    for (int k = 0; k < node->n_in; k++) {
        if (images[k]) KOLO_TRY(in_layout(l, list, node->in[k], layout, &node->in[k]));
    }
    for (int k = 0; k < node->n_out; k++) {
        kolo_value v = node->out[k];
        if (!images[node->n_in + k] || kolo_layout_equal(&tensor_of(l, v)->layout, &layout)) {
            continue;
        }
        /* The node writes a new value; the reorder writes the one that others read. */
        kolo_value made = reorder_of(l->g, v);
        KOLO_TRY(kolo_graph_check(l->g));
        kolo_info(l->g, made)->tensor.layout = layout;
        kolo_node *reorder = l->g->nodes[l->g->n_nodes - 1];
        reorder->in[0] = made;
        reorder->out[0] = v;
        node->out[k] = made;
        behind[n_behind++] = reorder;
    }
    KOLO_TRY(append(list, node));
    for (int k = 0; k < n_behind; k++) KOLO_TRY(append(list, behind[k]));
    return KOLO_OK;
}

kolo_status kolo_layout_apply(layouter *l) {
    kolo_graph *g = l->g;
    int32_t n_old = g->n_nodes, n_values = g->n_values;
    node_list list = {0};
    kolo_value *alias = kolo_alloc(((size_t)n_values + 1) * sizeof *alias);
    kolo_status status = KOLO_OK;
    if (!alias) return KOLO_NOMEM((size_t)n_values * sizeof *alias);
    for (int32_t v = 0; v < n_values; v++) {
        alias[v] = (kolo_value){.id = v};
        g->values[v].tensor.layout = component_of(l, (kolo_value){.id = v})->layout;
    }
    for (int32_t i = 0; i < n_old; i++) {
        kolo_node *node = g->nodes[i];
        bool images[2 * KOLO_MAX_IO] = {false};
        int detour = node->op->view ? NO_DETOUR : l->detour[i];
        for (int k = 0; detour != NO_DETOUR && k < node->n_in + node->n_out; k++) {
            images[k] = is_image(l, node, k);
        }
        for (int k = 0; k < node->n_in; k++) node->in[k] = alias[node->in[k].id];
        if (node->op == &kolo_op_reorder &&
            kolo_layout_equal(&kolo_info(g, node->in[0])->tensor.layout,
                              &kolo_info(g, node->out[0])->tensor.layout)) {
            alias[node->out[0].id] = node->in[0];
            continue;
        }
        if (l->reordered[i].rank > 0) {
            kolo_value *w = &node->in[weights_input(node->op)];
            KOLO_TRY_GOTO(append_reorder(l, &list, *w, l->reordered[i], w), done);
        }
        if (detour == NO_DETOUR) {
            KOLO_TRY_GOTO(append(&list, node), done);
        } else {
            KOLO_TRY_GOTO(append_detour(l, &list, node, detour, images), done);
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = alias[g->outputs[i].value.id];
    }
    for (int32_t v = 0; v < n_values; v++) {
        kolo_value *grad = &g->values[v].grad;
        if (kolo_value_ok(*grad)) *grad = alias[grad->id];
    }
    status = kolo_graph_set_nodes(g, list.nodes, (int32_t)list.count);
done:
    kolo_free(list.nodes);
    kolo_free(alias);
    return status;
}
