/* Inference: rewrites ops that compute something else in evaluation than in training, each by its
 * own rule (kolo_op.evaluate): batch normalization uses its running statistics, dropout and the
 * dropout of attention weights disappear. */
#include "graph/graph.h"
#include "pass/pass.h"

/* Rewrites node n. alias: by value, what replaces it. */
static kolo_status rewrite(kolo_graph *g, kolo_node *n, kolo_value *alias) {
    kolo_value by = KOLO_NONE;
    for (int k = 0; k < n->n_in; k++) n->in[k] = alias[n->in[k].id];
    if (!n->op->evaluate) return KOLO_OK;
    KOLO_TRY(n->op->evaluate(g, n, &by));
    if (kolo_value_ok(by)) alias[n->out[0].id] = by;
    return KOLO_OK;
}

kolo_status kolo_pass_inference(kolo_graph *g) {
    kolo_value *alias = kolo_alloc(((size_t)g->n_values + 1) * sizeof *alias);
    if (!alias) return KOLO_NOMEM((size_t)g->n_values * sizeof *alias);
    for (int32_t v = 0; v < g->n_values; v++) alias[v] = (kolo_value){.id = v};
    kolo_status status = KOLO_OK;
    for (int32_t i = 0; status == KOLO_OK && i < g->n_nodes; i++) {
        status = rewrite(g, g->nodes[i], alias);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = alias[g->outputs[i].value.id];
    }
    kolo_free(alias);
    return status == KOLO_OK ? kolo_graph_prune(g) : status;
}
