#include "pass/partition/replace.h"

#include "base/memory.h"
#include "graph/propagate.h"

static kolo_status append(kolo_replacer *r, kolo_node *n) {
    if (!KOLO_GROW(r->order, r->n, r->cap)) return KOLO_NOMEM(sizeof *r->order);
    r->order[r->n++] = n;
    return KOLO_OK;
}

kolo_status kolo_replacer_take(kolo_replacer *r) {
    KOLO_TRY(kolo_graph_check(r->g));
    for (; r->taken < r->g->n_nodes; r->taken++) {
        KOLO_TRY(append(r, r->g->nodes[r->taken]));
        KOLO_TRY(kolo_node_propagate(r->g, r->g->nodes[r->taken]));
    }
    return KOLO_OK;
}

static kolo_status walk(kolo_replacer *r, kolo_replace_visit visit, void *arg) {
    kolo_graph *g = r->g;
    const int32_t n_nodes = g->n_nodes, n_values = g->n_values;
    r->taken = n_nodes;
    for (int32_t v = 0; v < n_values; v++) r->now[v] = (kolo_value){.id = v};
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        bool replaced = false;
        for (int k = 0; k < n->n_in; k++) n->in[k] = r->now[n->in[k].id];
        KOLO_TRY(visit(r, n, arg, &replaced));
        if (!replaced) KOLO_TRY(append(r, n));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = r->now[g->outputs[i].value.id];
    }
    return kolo_graph_set_nodes(g, r->order, (int32_t)r->n);
}

kolo_status kolo_replace_nodes(kolo_graph *g, kolo_replace_visit visit, void *arg) {
    kolo_replacer r = {.g = g};
    r.now = kolo_alloc((size_t)g->n_values * sizeof *r.now);
    const kolo_status status =
        r.now ? walk(&r, visit, arg) : KOLO_NOMEM((size_t)g->n_values * sizeof *r.now);
    kolo_free(r.now);
    kolo_free((void *)r.order);
    return status;
}
