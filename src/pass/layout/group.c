/* Layouts of a group of ranks: one rank chooses them for all.
 *
 * The ranks have slices of the same values, of different sizes where these do not divide, and may
 * have other times of kernels, so that each would choose for itself. They all hold what is
 * exchanged and parameters alike, though, so the layout of every value is that of the rank which
 * decides. The others only choose, node by node, which kernel runs under these layouts, and the
 * reorders that it needs (search.c). */
#include "base/rng.h"
#include "pass/layout/layout.h"

#include <inttypes.h>

/* What the ranks compare before they exchange layouts. */
typedef struct outline {
    int64_t status; /* of the search */
    int64_t n_values;
    uint64_t nodes; /* a hash: of their ops, inputs and outputs */
} outline;

/* The choice for a value. */
typedef struct chosen {
    kolo_layout layout;
    uint8_t kind;
} chosen;

static uint64_t hash_nodes(const kolo_graph *g) {
    uint64_t hash = (uint64_t)g->n_nodes;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        hash = 31 * hash + kolo_hash_text(n->op->name);
        for (int k = 0; k < n->n_in + n->n_out; k++) hash = 31 * hash + (uint64_t)value_at(n, k).id;
    }
    return hash;
}

/* Fills `theirs` with the outline of the rank that decides. */
static kolo_status compare(const layouter *l, const kolo_decider *d, kolo_status status) {
    const outline own = {status, l->g->n_values, hash_nodes(l->g)};
    outline theirs = own;
    KOLO_TRY(d->give(d->arg, &theirs, sizeof theirs));
    if (status != KOLO_OK) return status;
    if (theirs.status != KOLO_OK) {
        return KOLO_FAIL((kolo_status)theirs.status,
                         "the rank that chooses the layouts of this group has failed");
    }
    if (theirs.n_values == own.n_values && theirs.nodes == own.nodes) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "the ranks of a group have different operations, so that they cannot take one "
                     "choice of layouts: choose another mesh or placement");
}

/* Every value becomes a component of its own, as it was chosen. */
static void take(layouter *l, const chosen *values) {
    for (int32_t v = 0; v < l->g->n_values; v++) {
        l->root[v] = v;
        l->components[v] = (component){
            .kind = (component_kind)values[v].kind, .fixed = true, .layout = values[v].layout};
    }
}

kolo_status kolo_layout_decide(layouter *l, const kolo_decider *d) {
    const size_t bytes = ((size_t)l->g->n_values + 1) * sizeof(chosen);
    chosen *values = kolo_arena_alloc(&l->arena, bytes);
    kolo_status status = values ? KOLO_OK : KOLO_NOMEM(bytes);
    if (status == KOLO_OK && d->decides) status = kolo_layout_search(l);
    KOLO_TRY(compare(l, d, status));
    for (int32_t v = 0; v < l->g->n_values; v++) {
        const component *c = component_of(l, (kolo_value){.id = v});
        values[v].layout = c->layout;
        values[v].kind = (uint8_t)c->kind;
    }
    KOLO_TRY(d->give(d->arg, values, bytes));
    if (d->decides) return KOLO_OK;
    take(l, values);
    kolo_layout_begin(l);
    if (kolo_layout_place_nodes(l)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "rank %d has no kernel for a layout that another rank of its group has "
                     "chosen: %s",
                     l->g->rank, kolo_last_error());
}
