/* Halos in the backward pass. The gradient of the weights of a convolution reads the rows with
 * their halo, a copy of an activation that is often kept anyway, such as the output of a ReLU. Then
 * the backward pass gathers the rows anew right before it needs them, instead of keeping a second
 * copy of each activation: more bytes between neighbours for half the memory. */
#include "graph/propagate.h"
#include "pass/pass.h"

typedef struct gatherer {
    kolo_graph *g;
    bool *backward;    /* by node: depends on the seed */
    bool *held;        /* by value: a node of the backward pass reads it */
    kolo_value *again; /* by value: what the backward pass reads in its place; or none */
    kolo_node **order;
    int32_t n;
} gatherer;

static void find_backward(const gatherer *h, kolo_value seed, bool *reached) {
    const kolo_graph *g = h->g;
    if (kolo_value_ok(seed)) reached[seed.id] = true;
    for (int32_t v = 0; v < g->n_values; v++) reached[v] |= g->values[v].crossing.gradient;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) h->backward[i] |= reached[n->in[k].id];
        for (int k = 0; k < n->n_out; k++) reached[n->out[k].id] = h->backward[i];
        for (int k = 0; k < n->n_in && h->backward[i]; k++) h->held[n->in[k].id] = true;
    }
}

/* The node that adds a halo to a value which is there in the backward pass anyway; NULL: v is
 * not made so. */
static const kolo_node *maker_of(const gatherer *h, kolo_value v) {
    const int32_t producer = kolo_info(h->g, v)->producer;
    if (producer < 0 || h->backward[producer]) return NULL;
    const kolo_node *n = h->g->nodes[producer];
    if (n->op->comm != KOLO_OP_REDISTRIBUTE || kolo_axis_of_halo(&h->g->mesh, n->move) < 0) {
        return NULL;
    }
    const bool kept = kolo_info(h->g, n->in[0])->producer < 0 || h->held[n->in[0].id];
    return kept ? n : NULL;
}

static kolo_status gather(gatherer *h, const kolo_node *maker, kolo_value v) {
    const kolo_tensor tensor = kolo_info(h->g, v)->tensor;
    h->again[v.id] =
        kolo_redistribute_as(h->g, maker->in[0], &maker->move->from, &maker->move->to, &tensor);
    KOLO_TRY(kolo_graph_check(h->g));
    kolo_node *n = h->g->nodes[kolo_info(h->g, h->again[v.id])->producer];
    n->recomputed = true;
    h->order[h->n++] = n;
    return KOLO_OK;
}

static kolo_status walk(gatherer *h, int32_t n_nodes) {
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *n = h->g->nodes[i];
        for (int k = 0; k < n->n_in && h->backward[i]; k++) {
            const kolo_node *maker = maker_of(h, n->in[k]);
            if (!maker) continue;
            if (!kolo_value_ok(h->again[n->in[k].id])) KOLO_TRY(gather(h, maker, n->in[k]));
            n->in[k] = h->again[n->in[k].id];
        }
        h->order[h->n++] = n;
    }
    return kolo_graph_set_nodes(h->g, h->order, h->n);
}

kolo_status kolo_pass_halos(kolo_graph *g, kolo_value seed) {
    const int32_t n_nodes = g->n_nodes, n_values = g->n_values;
    kolo_arena arena = {0};
    gatherer h = {.g = g};
    h.backward = kolo_arena_alloc(&arena, (size_t)n_nodes + 1);
    h.held = kolo_arena_alloc(&arena, (size_t)n_values + 1);
    h.again = kolo_arena_alloc(&arena, ((size_t)n_values + 1) * sizeof *h.again);
    h.order = kolo_arena_alloc(&arena, (2 * (size_t)n_nodes + 1) * sizeof(kolo_node *));
    bool *reached = kolo_arena_alloc(&arena, (size_t)n_values + 1);
    const bool room = h.backward && h.held && h.again && h.order && reached;
    for (int32_t v = 0; v < n_values && room; v++) h.again[v] = KOLO_NONE;
    if (room) find_backward(&h, seed, reached);
    const kolo_status status =
        room ? walk(&h, n_nodes) : KOLO_NOMEM((size_t)n_values * sizeof *h.again);
    kolo_arena_fini(&arena);
    return status;
}
