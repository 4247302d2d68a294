/* Fusion of backward nodes, to save memory traffic. Forward nodes are folded before (fold.c).
 *
 *   relu_bwd(add(a, b), y) -> relu_bwd(a, y, b)     the gradient of a ReLU with two readers */
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <string.h>

/* The number of readers of each value, nodes and outputs; the caller frees it. */
static int *count_uses(const kolo_graph *g) {
    int *uses = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *uses);
    if (!uses) return NULL;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) uses[g->nodes[i]->in[k].id]++;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i].value.id]++;
    return uses;
}

/* The addition whose result only n, a relu_bwd, reads; NULL: none. */
static const kolo_node *masked_sum(const kolo_graph *g, const kolo_node *n, const int *uses) {
    if (n->op != &kolo_op_relu_bwd || n->n_in != 2 || uses[n->in[0].id] != 1) return NULL;
    int32_t producer = kolo_info(g, n->in[0])->producer;
    const kolo_node *sum = producer >= 0 ? g->nodes[producer] : NULL;
    bool plain = sum && sum->op == &kolo_op_add && !sum->attr[KOLO_ADD_RELU].i;
    return plain ? sum : NULL;
}

kolo_status kolo_pass_fuse(kolo_graph *g) {
    int *uses = count_uses(g);
    if (!uses) return KOLO_NOMEM((size_t)g->n_values * sizeof *uses);
    kolo_status status = KOLO_OK;
    for (int32_t i = 0; status == KOLO_OK && i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        const kolo_node *sum = masked_sum(g, n, uses);
        if (!sum) continue;
        const kolo_value in[] = {sum->in[0], n->in[1], sum->in[1]};
        kolo_value *place = kolo_arena_alloc(&g->arena, sizeof in);
        if (!place) {
            status = KOLO_NOMEM(sizeof in);
            break;
        }
        n->in = memcpy(place, in, sizeof in);
        n->n_in = 3;
    }
    kolo_free(uses);
    return status == KOLO_OK ? kolo_graph_prune(g) : status;
}
