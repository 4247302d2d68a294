/* The segments of a stage: forward, backward, gradients of weights, by chunk, and the update. */
#include "base/memory.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <string.h>

/* ---- what is sent ---- */

/* Whether the memory of v is that of a collective, through views. */
static bool is_exchanged(const kolo_graph *g, kolo_value v) {
    for (;;) {
        const int32_t producer = kolo_info(g, v)->producer;
        if (producer < 0 || !g->nodes[producer]->op->view) return false;
        if (g->nodes[producer]->op->comm == KOLO_OP_WAIT) return true;
        v = g->nodes[producer]->in[0];
    }
}

/* What is sent is in memory of its own until it has gone: of a result of a collective, a copy. */
static kolo_status copy_exchanged(kolo_graph *g) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_value *v = &g->outputs[i].value;
        if (g->outputs[i].crossing.number == 0 || !is_exchanged(g, *v)) continue;
        const kolo_value_info info = *kolo_info(g, *v);
        const kolo_value copy = kolo_graph_add1(g, &kolo_op_reorder, v, 1, NULL);
        KOLO_TRY(kolo_graph_check(g));
        kolo_info(g, copy)->tensor = info.tensor;
        kolo_info(g, copy)->placements = info.placements;
        *v = copy;
    }
    return KOLO_OK;
}

/* ---- chunks ---- */

typedef struct sorter {
    kolo_graph *g;
    kolo_node_chunks *chunks; /* by node */
    bool *once;               /* by node: it runs once per step */
    kolo_value *own;          /* by value and chunk: what the chunk reads in its place */
    kolo_node **order;
    int32_t n, n_values;
} sorter;

/* What is read once per step, of leaves alone, the first chunk computes. */
static void find_all_chunks(const sorter *s) {
    const kolo_graph *g = s->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        s->once[i] = kolo_node_is_once_per_step(g, i, s->once);
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        if (s->chunks[i].bits == 0) s->chunks[i].bits = 1;
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const int32_t producer = kolo_info(g, g->nodes[i]->in[k])->producer;
            if (producer >= 0 && s->chunks[producer].of_leaves) {
                s->chunks[producer].bits |= s->once[i] ? 1 : s->chunks[i].bits;
            }
        }
    }
}

/* Puts a node into a chunk: it reads what is computed there. */
static void put(sorter *s, kolo_node *n, int chunk) {
    n->chunk = chunk;
    for (int k = 0; k < n->n_in; k++) {
        const int32_t v = n->in[k].id;
        if (v < s->n_values) n->in[k] = s->own[v * s->g->chunks + chunk];
    }
    s->order[s->n++] = n;
}

/* A copy of a node for another chunk. */
static kolo_status copy_node(sorter *s, const kolo_node *n, int chunk) {
    kolo_graph *g = s->g;
    kolo_tensor tensors[KOLO_MAX_IO];
    if (n->op->comm != KOLO_OP_LOCAL && n->op->comm != KOLO_OP_SLICE) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "several chunks of stage %d of the pipeline read one %s of leaves: "
                         "use a schedule of one chunk",
                         g->stage, n->op->name);
    }
    for (int k = 0; k < n->n_out; k++) tensors[k] = kolo_info(g, n->out[k])->tensor;
    kolo_node *copy = kolo_graph_add_raw(g, n->op, n->in, n->n_in, n->n_out, tensors, n->attr);
    if (!copy) return kolo_graph_check(g);
    copy->recomputed = n->recomputed;
    copy->move = n->move;
    copy->halo = n->halo;
    for (int k = 0; k < n->n_out; k++) {
        kolo_info(g, copy->out[k])->placements = kolo_info(g, n->out[k])->placements;
        s->own[n->out[k].id * g->chunks + chunk] = copy->out[k];
    }
    put(s, copy, chunk);
    return KOLO_OK;
}

static kolo_status put_all(sorter *s) {
    kolo_graph *g = s->g;
    const int32_t n_nodes = g->n_nodes;
    for (int32_t v = 0; v < s->n_values; v++) {
        for (int c = 0; c < g->chunks; c++) s->own[v * g->chunks + c] = (kolo_value){.id = v};
    }
    for (int32_t i = 0; i < n_nodes; i++) {
        const uint32_t bits = s->chunks[i].bits;
        int first = 0;
        while (!(bits >> first & 1)) first++;
        for (int c = first + 1; c < g->chunks && s->chunks[i].of_leaves; c++) {
            if (bits >> c & 1) KOLO_TRY(copy_node(s, g->nodes[i], c));
        }
        put(s, g->nodes[i], first);
    }
    return kolo_graph_set_nodes(g, s->order, s->n);
}

/* Gives each node its chunk. What several chunks compute of leaves alone, as a parameter in another
 * layout, each has in its own slots. */
static kolo_status mark_chunks(kolo_graph *g) {
    if (g->chunks == 1) return KOLO_OK;
    const size_t n_nodes = (size_t)g->n_nodes + 1, chunks = (size_t)g->chunks;
    const size_t n_values = (size_t)g->n_values + 1;
    sorter s = {.g = g, .n_values = g->n_values};
    kolo_arena arena = {0};
    s.chunks = kolo_arena_alloc(&arena, n_nodes * sizeof *s.chunks);
    s.once = kolo_arena_alloc(&arena, n_nodes);
    s.own = kolo_arena_alloc(&arena, n_values * chunks * sizeof *s.own);
    s.order = kolo_arena_alloc(&arena, n_nodes * chunks * sizeof(kolo_node *));
    kolo_status status = s.chunks && s.once && s.own && s.order
                             ? kolo_find_chunks(g, s.chunks)
                             : KOLO_NOMEM(n_nodes * sizeof *s.chunks);
    if (status == KOLO_OK) {
        find_all_chunks(&s);
        status = put_all(&s);
    }
    kolo_arena_fini(&arena);
    return status;
}

/* Refuses nodes that read a result of another chunk: its memory holds another micro-batch. */
static kolo_status check_chunks(const kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in && n->segment != KOLO_SEGMENT_UPDATE; k++) {
            const kolo_value_info *in = kolo_info(g, n->in[k]);
            const int chunk = in->crossing.number > 0 ? in->crossing.chunk
                              : in->producer >= 0     ? g->nodes[in->producer]->chunk
                                                      : n->chunk;
            if (chunk == n->chunk) continue;
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "%s of chunk %d of a stage reads a value of chunk %d: use a schedule "
                             "of one chunk",
                             n->op->name, n->chunk, chunk);
        }
    }
    return KOLO_OK;
}

/* ---- segments ---- */

/* Forward, backward or update. */
static void mark_passes(const kolo_graph *g, bool *once) {
    const kolo_value seed = kolo_graph_find(g, "grad_scale");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        once[i] = kolo_node_is_once_per_step(g, i, once);
        bool backward = n->recomputed;
        for (int k = 0; k < n->n_in; k++) {
            const kolo_value_info *in = kolo_info(g, n->in[k]);
            backward |= in->crossing.gradient || n->in[k].id == seed.id;
            backward |=
                in->producer >= 0 && g->nodes[in->producer]->segment == KOLO_SEGMENT_BACKWARD;
        }
        if (once[i]) n->chunk = 0;
        n->segment = once[i]    ? KOLO_SEGMENT_UPDATE
                     : backward ? KOLO_SEGMENT_BACKWARD
                                : KOLO_SEGMENT_FORWARD;
    }
}

/* What the gradients that are sent do not need, but for sums of what they do. awaited: by value. */
static void mark_weights(const kolo_graph *g, bool *awaited) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].crossing.gradient) awaited[g->outputs[i].value.id] = true;
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        kolo_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_out; k++) any |= awaited[n->out[k].id];
        for (int k = 0; any && k < n->n_in; k++) awaited[n->in[k].id] = true;
        if (!any && n->segment == KOLO_SEGMENT_BACKWARD) n->segment = KOLO_SEGMENT_WEIGHTS;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        int32_t producer = n->op == &kolo_op_accumulate ? kolo_info(g, n->in[0])->producer : -1;
        if (producer >= 0) n->segment = g->nodes[producer]->segment;
    }
}

/* Forward passes by ascending, backward passes by descending chunks. */
static int32_t sort(const kolo_graph *g, kolo_node **order) {
    int32_t n = 0;
    for (kolo_step_segment s = KOLO_SEGMENT_FORWARD; s <= KOLO_SEGMENT_UPDATE; s++) {
        for (int k = 0; k < g->chunks; k++) {
            const int chunk = s == KOLO_SEGMENT_FORWARD ? k : g->chunks - 1 - k;
            for (int32_t i = 0; i < g->n_nodes; i++) {
                kolo_node *node = g->nodes[i];
                if (node->segment == s && node->chunk == chunk) order[n++] = node;
            }
        }
    }
    return n;
}

kolo_status kolo_pass_segments(kolo_graph *g, bool splits) {
    KOLO_TRY(copy_exchanged(g));
    KOLO_TRY(mark_chunks(g));
    const size_t n_nodes = (size_t)g->n_nodes + 1;
    kolo_arena arena = {0};
    bool *once = kolo_arena_alloc(&arena, n_nodes);
    bool *awaited = kolo_arena_alloc(&arena, (size_t)g->n_values + 1);
    kolo_node **order = kolo_arena_alloc(&arena, n_nodes * sizeof *order);
    kolo_status status = KOLO_OK;
    if (!once || !awaited || !order) {
        status = KOLO_NOMEM(n_nodes * sizeof *order);
    } else {
        mark_passes(g, once);
        if (splits) mark_weights(g, awaited);
        status = check_chunks(g);
        if (status == KOLO_OK) status = kolo_graph_set_nodes(g, order, sort(g, order));
    }
    kolo_arena_fini(&arena);
    return status;
}
