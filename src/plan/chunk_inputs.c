/* Which inputs the chunks of a stage read. */
#include "plan/chunk_inputs.h"

#include "base/memory.h"
#include "plan/internal.h"

kolo_status kolo_chunk_inputs_find(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    const size_t bytes = ((size_t)g->n_values + 1) * sizeof *p->readers;
    p->readers = kolo_zalloc(bytes);
    if (!p->readers) return KOLO_NOMEM(bytes);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) p->readers[n->in[k].id] |= UINT32_C(1) << n->chunk;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) p->readers[g->outputs[i].value.id] = UINT32_MAX;
    for (int32_t v = 0; v < g->n_values && !p->train; v++) {
        if (p->readers[v] != 0) p->readers[v] |= 1;
    }
    return KOLO_OK;
}

bool kolo_chunk_reads(const kolo_plan *p, kolo_value input) {
    return !p->readers || (p->readers[input.id] >> kolo_plan_chunk(p, p->slot) & 1);
}
