/* Inference: rewrites ops that compute something else in evaluation than in training, each by its
 * own rule (kolo_op.evaluate): batch normalization uses its running statistics, dropout and the
 * dropout of attention weights disappear. */
#include "graph/graph.h"
#include "pass/pass.h"

/* All readers of v read `by` instead. */
static void replace(kolo_graph *g, kolo_value v, kolo_value by) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id == v.id) n->in[k] = by;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == v.id) g->outputs[i].value = by;
    }
}

kolo_status kolo_pass_inference(kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        kolo_value by = KOLO_NONE;
        if (!n->op->evaluate) continue;
        KOLO_TRY(n->op->evaluate(g, n, &by));
        if (kolo_value_ok(by)) replace(g, n->out[0], by);
    }
    return kolo_graph_prune(g);
}
