/* Slack between ranks: a step of a rank waits in the next one for the gradients of the first layer,
 * which all ranks compute last. So gradients of weights that the next step needs later are computed
 * behind those that it needs first:
 *
 *     .., data 2, weights 2, weights 1   ->   .., data 2, weights 1, weights 2
 *
 * The sum of weights 1 is awaited right before the next forward pass, that of weights 2 before the
 * second layer (cross_step.c). Ranks whose steps take different times wait for each other only if
 * they are further apart than what runs between the POST and the WAIT, here weights 2. The nodes
 * and what they compute stay the same, so do all bits. The backward pass is split as in Qi et al.,
 * "Zero bubble pipeline parallelism", 2023.
 *
 * Nodes move from the end of the backward pass on, until they have a share of the operations of the
 * passes: the large gradients of the last layers, which are computed first, keep all of the
 * backward pass for their way. Where ranks of a host read each other's gradients they need no time
 * for that. Then nodes move from the beginning of the backward pass on, until they have a smaller
 * share: what the last layers read is small in networks of images, and their gradients, which are
 * most of the parameters, are still in the caches when they are summed. Only nodes that read or
 * make samples count: their operations are in proportion to these, so that ranks with batches of
 * their own move the same nodes. Others, such as the product of two parameters, take the same time
 * for any batch. What moves keeps what it reads alive for longer; in a deep network few other
 * values are left by then. */
#include "pass/late_weights.h"

#include "graph/ops/ops.h"
#include "graph/propagate.h"

/* The share of the operations that moves: more than what the steps of ranks of a host differ by. */
static const double share = 0.1, near_share = 0.05;

typedef struct mover {
    const kolo_graph *g;
    bool *gradient;    /* by value: of a parameter */
    bool *read;        /* by value: a node up to the last one of the passes reads it */
    bool *moves;       /* by node */
    kolo_node **order; /* as they are placed */
} mover;

static bool is_compute(const kolo_graph *g, const kolo_node *n) {
    return n->op->comm == KOLO_OP_LOCAL && !kolo_node_is_update(g, n);
}

/* The last node of the passes; -1: there is none. */
static int32_t last_of_passes(const kolo_graph *g) {
    int32_t last = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (is_compute(g, g->nodes[i])) last = i;
    }
    return last;
}

static void find_gradients(const mover *m, int32_t last) {
    const kolo_graph *g = m->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value grad = g->values[v].grad;
        const bool trained = g->values[v].kind == KOLO_VALUE_PARAM && kolo_value_ok(grad);
        if (trained) m->gradient[grad.id] = true;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in && i <= last; k++) m->read[n->in[k].id] = true;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) m->read[g->outputs[i].value.id] = true;
}

/* Whether a node makes gradients of parameters, and nothing that the passes read or report. */
static bool makes_gradients(const mover *m, const kolo_node *n) {
    bool any = false;
    if (!is_compute(m->g, n) || n->op->view || n->op->in_place) return false;
    for (int k = 0; k < n->n_out; k++) {
        if (m->read[n->out[k].id]) return false;
        any |= m->gradient[n->out[k].id];
    }
    return any;
}

/* Finds the values that are divided along the samples. */
static kolo_status place_values(kolo_graph *g, int32_t last) {
    for (int32_t i = 0; i <= last; i++) {
        if (!kolo_node_is_update(g, g->nodes[i])) KOLO_TRY(kolo_node_propagate(g, g->nodes[i]));
    }
    return KOLO_OK;
}

/* The operations of a node that are in proportion to the samples. */
static double flops_of_samples(const kolo_graph *g, const kolo_node *n) {
    const int dp = kolo_mesh_find(&g->mesh, "dp");
    bool samples = false;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const kolo_value v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        samples |= kolo_info(g, v)->placements.axis[dp].kind == KOLO_PLACEMENT_SHARDED;
    }
    return samples ? kolo_node_cost(g, n).flops : 0;
}

/* Chooses what moves, of the nodes before `last`; whether anything does. */
static bool choose(const mover *m, int32_t last, bool near) {
    const kolo_graph *g = m->g;
    double all = 0, moved = 0;
    for (int32_t i = 0; i <= last; i++) all += flops_of_samples(g, g->nodes[i]);
    const double most = (near ? near_share : share) * all;
    for (int32_t k = 0; k < last && moved < most; k++) {
        const int32_t i = near ? k : last - 1 - k;
        if (!makes_gradients(m, g->nodes[i])) continue;
        m->moves[i] = true;
        moved += flops_of_samples(g, g->nodes[i]);
    }
    return moved > 0;
}

/* Those that move follow `last`, in the order in which the next step needs their results. */
static void place(const mover *m, int32_t last) {
    const kolo_graph *g = m->g;
    int32_t n = 0;
    for (int32_t i = 0; i <= last; i++) {
        if (!m->moves[i]) m->order[n++] = g->nodes[i];
    }
    for (int32_t i = last; i >= 0; i--) {
        if (!m->moves[i]) continue;
        g->nodes[i]->late = true;
        m->order[n++] = g->nodes[i];
    }
    for (int32_t i = last + 1; i < g->n_nodes; i++) m->order[n++] = g->nodes[i];
}

kolo_status kolo_pass_late_weights(kolo_graph *g, bool near) {
    const size_t nodes = (size_t)g->n_nodes + 1, values = (size_t)g->n_values + 1;
    const int32_t last = last_of_passes(g);
    kolo_arena arena = {0};
    mover m = {.g = g};
    if (last < 0) return KOLO_OK;
    m.gradient = kolo_arena_alloc(&arena, values * sizeof *m.gradient);
    m.read = kolo_arena_alloc(&arena, values * sizeof *m.read);
    m.moves = kolo_arena_alloc(&arena, nodes * sizeof *m.moves);
    m.order = kolo_arena_alloc(&arena, nodes * sizeof *m.order);
    kolo_status status = place_values(g, last);
    if (!m.gradient || !m.read || !m.moves || !m.order) {
        status = KOLO_NOMEM(nodes * sizeof *m.order);
    } else if (status == KOLO_OK) {
        find_gradients(&m, last);
        if (makes_gradients(&m, g->nodes[last]) && choose(&m, last, near)) {
            place(&m, last);
            status = kolo_graph_set_nodes(g, m.order, g->n_nodes);
        }
    }
    kolo_arena_fini(&arena);
    return status;
}
