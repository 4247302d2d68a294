/* Inference: what computes one thing in training and another in evaluation becomes the latter.
 *
 *   batch_norm -> batch_norm_infer, which normalises by the running statistics
 *   dropout(x) -> x
 *   attention that drops weights -> attention that does not */
#include "graph/op.h"
#include "pass/pass.h"

static bool is_read(const kolo_graph *g, kolo_value v) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id == v.id) return true;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == v.id) return true;
    }
    return false;
}

static kolo_status infer_norm(const kolo_graph *g, kolo_node *n) {
    if (is_read(g, n->out[1]) || is_read(g, n->out[2])) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "batch_norm: evaluation has no statistics of the batch, but the graph "
                         "reads them");
    }
    n->op = &kolo_op_batch_norm_infer;
    n->n_out = 1;
    return KOLO_OK;
}

static void infer_attention(kolo_node *n) {
    int draws = kolo_attention_draws(n->attr);
    if (draws == 0) return;
    for (int i = KOLO_ATTENTION_INPUTS; i + draws < n->n_in; i++) n->in[i] = n->in[i + draws];
    n->n_in -= draws;
    n->attr[KOLO_ATTENTION_P].f = 0;
    n->attr[KOLO_ATTENTION_LAYER].i = 0;
}

/* Whoever reads v reads `by`. */
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
        if (n->op == &kolo_op_batch_norm) KOLO_TRY(infer_norm(g, n));
        if (n->op == &kolo_op_attention) infer_attention(n);
        if (n->op == &kolo_op_dropout) replace(g, n->out[0], n->in[0]);
    }
    return kolo_graph_prune(g);
}
