/* Which chunk of a stage a node belongs to: that of the activations and gradients that arrive from
 * other parts, which lead to all nodes but those of leaves alone. What runs once per step belongs
 * to none. */
#include "base/memory.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

/* Chunk c is bit c; no bits: a leaf that is no message. */
static uint32_t bits_of(const kolo_graph *g, const kolo_node_chunks *chunks, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    if (info->crossing.number > 0) return UINT32_C(1) << info->crossing.chunk;
    return info->producer >= 0 ? chunks[info->producer].bits : 0;
}

bool kolo_node_is_once_per_step(const kolo_graph *g, int32_t i, const bool *once) {
    const kolo_node *n = g->nodes[i];
    bool posts = n->op->comm == KOLO_OP_POST && !n->attr[KOLO_COMM_INSIDE].i;
    bool is = posts || n->op->comm == KOLO_OP_ENCODE || kolo_node_is_update(g, n);
    for (int k = 0; !is && k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        is = in->versions > 0 || (in->producer >= 0 && once[in->producer]);
        /* What reads a sum over the micro-batches of a stage: a sum over its chunks, or a copy,
         * which other stages add to before. */
        is |=
            g->stages > 1 && in->producer >= 0 && g->nodes[in->producer]->op == &kolo_op_accumulate;
    }
    return is;
}

/* Nodes of leaves alone, from their readers in the passes. read: by value, the chunks that read it,
 * zeroed. */
static void find_readers(const kolo_graph *g, kolo_node_chunks *chunks, const bool *once,
                         uint32_t *read) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_named_value *o = &g->outputs[i];
        if (o->crossing.number > 0) read[o->value.id] |= UINT32_C(1) << o->crossing.chunk;
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out && chunks[i].of_leaves; k++) {
            chunks[i].bits |= read[n->out[k].id];
        }
        if (once[i]) continue;
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
    bool *once = kolo_zalloc((size_t)g->n_nodes + 1);
    kolo_status status = KOLO_OK;
    if (!read || !once) {
        status = KOLO_NOMEM((size_t)g->n_values * sizeof *read);
    } else {
        for (int32_t i = 0; i < g->n_nodes; i++) once[i] = kolo_node_is_once_per_step(g, i, once);
        find_readers(g, chunks, once, read);
    }
    kolo_free(read);
    kolo_free(once);
    return status;
}
