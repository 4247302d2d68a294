/* softmax_xent(logits, y) -> -sum(target log_softmax(logits)), which is linear in the target: with
 * the weights of two classes the loss is the weighted mean of both cross-entropies. */
#include "pass/mix_labels.h"

#include "graph/ops/ops.h"

typedef struct mixer {
    kolo_graph *g;
    const char *name;
    kolo_value y, target;
    int losses;
} mixer;

static bool is_loss(const mixer *m, const kolo_node *n) {
    return n->op == &kolo_op_softmax_xent && kolo_value_ok(m->y) && n->in[1].id == m->y.id &&
           kolo_info(m->g, m->y)->tensor.shape.rank == 1;
}

static kolo_status check_loss(const kolo_node *n) {
    const bool ignores = n->attr[KOLO_LOSS_HAS_IGNORE_INDEX].i;
    if (n->n_in == 2 && !ignores) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "mixup and cutmix: the loss has %s, which soft labels have not: leave mixup "
                     "and cutmix out of --augment",
                     ignores ? "an ignored label" : "weights of the classes");
}

/* Adds the loss of soft labels, as the last nodes. */
static kolo_status add_loss(mixer *m, const kolo_node *n, kolo_value *loss) {
    kolo_graph *g = m->g;
    const kolo_value logits = n->in[0];
    const kolo_shape shape = kolo_value_shape(g, logits);
    const double smoothing = n->attr[KOLO_LOSS_SMOOTHING].f;
    KOLO_TRY(check_loss(n));
    if (!kolo_value_ok(m->target)) m->target = kolo_input(g, m->name, KOLO_DTYPE_F32, shape);
    *loss = kolo_soft_xent(g, logits, m->target);
    if (smoothing > 0) {
        const kolo_value all = kolo_sum(g, kolo_log_softmax(g, logits, 1));
        *loss = kolo_sub(g, kolo_scale(g, *loss, 1 - smoothing),
                         kolo_scale(g, all, smoothing / (double)shape.dim[1]));
    }
    m->losses++;
    return kolo_graph_check(g);
}

/* Fills `order` with the nodes: those of the new losses in the places of the old ones. */
static kolo_status replace(mixer *m, kolo_value *alias, kolo_node **order, int32_t room,
                           int32_t *n) {
    kolo_graph *g = m->g;
    const int32_t before = g->n_nodes;
    for (int32_t i = 0; i < before; i++) {
        kolo_node *node = g->nodes[i];
        const int32_t added = g->n_nodes;
        for (int k = 0; k < node->n_in; k++) node->in[k] = alias[node->in[k].id];
        if (!is_loss(m, node)) {
            order[(*n)++] = node;
            continue;
        }
        KOLO_TRY(add_loss(m, node, &alias[node->out[0].id]));
        KOLO_ASSERT(*n + g->n_nodes - added <= room);
        for (int32_t k = added; k < g->n_nodes; k++) order[(*n)++] = g->nodes[k];
    }
    return KOLO_OK;
}

kolo_status kolo_pass_mix_labels(kolo_graph *g, const char *target) {
    enum { MOST_NODES = 16 /* of a loss */ };
    mixer m = {.g = g, .name = target, .y = kolo_graph_find(g, "y"), .target = KOLO_NONE};
    const int32_t values = g->n_values, room = (MOST_NODES + 1) * g->n_nodes;
    int32_t n = 0;
    kolo_value *alias = kolo_alloc(((size_t)values + 1) * sizeof *alias);
    kolo_node **order = kolo_alloc(((size_t)room + 1) * sizeof *order);
    kolo_status status = alias && order ? KOLO_OK : KOLO_NOMEM((size_t)room * sizeof *order);
    for (int32_t v = 0; v < values && alias; v++) alias[v] = (kolo_value){.id = v};
    if (status == KOLO_OK) status = replace(&m, alias, order, room, &n);
    if (status == KOLO_OK && m.losses == 0) {
        status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                           "mixup and cutmix mix the labels of a cross-entropy of one class for "
                           "each sample, and this model has none: leave them out of --augment");
    }
    if (status == KOLO_OK) status = kolo_graph_set_nodes(g, order, n);
    for (int32_t i = 0; i < g->n_outputs && status == KOLO_OK; i++) {
        kolo_value *out = &g->outputs[i].value;
        if (out->id < values) *out = alias[out->id];
    }
    kolo_free(alias);
    kolo_free(order);
    return status;
}
