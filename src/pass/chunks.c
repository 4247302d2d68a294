/* Which chunk of a stage a node belongs to: that of the activations and gradients that arrive from
 * other parts, which lead to all nodes but those of leaves alone. */
#include "base/memory.h"
#include "pass/pass.h"

/* Chunk c is bit c; no bits: a leaf that is no message. */
static uint32_t bits_of(const kolo_graph *g, const kolo_node_chunks *chunks, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    if (info->crossing.number > 0) return UINT32_C(1) << info->crossing.chunk;
    return info->producer >= 0 ? chunks[info->producer].bits : 0;
}

/* Nodes of leaves alone, from their readers. read: by value, the chunks that read it, zeroed. */
static void find_readers(const kolo_graph *g, kolo_node_chunks *chunks, uint32_t *read) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_named_value *o = &g->outputs[i];
        if (o->crossing.number > 0) read[o->value.id] |= UINT32_C(1) << o->crossing.chunk;
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out && chunks[i].of_leaves; k++) {
            chunks[i].bits |= read[n->out[k].id];
        }
        if (kolo_node_is_update(g, n)) continue;
        for (int k = 0; k < n->n_in; k++) read[n->in[k].id] |= chunks[i].bits;
    }
}

kolo_status kolo_find_chunks(const kolo_graph *g, kolo_node_chunks *chunks) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        uint32_t bits = 0;
        for (int k = 0; k < n->n_in; k++) bits |= bits_of(g, chunks, n->in[k]);
        chunks[i] = (kolo_node_chunks){bits, bits == 0};
    }
    uint32_t *read = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *read);
    if (!read) return KOLO_NOMEM((size_t)g->n_values * sizeof *read);
    find_readers(g, chunks, read);
    kolo_free(read);
    return KOLO_OK;
}
