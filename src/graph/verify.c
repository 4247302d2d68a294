/* The verifier: checks every invariant of graph.h. The pipeline runs it after each pass. A
 * violation is a bug, which is reported with the node rather than asserted. */
#include "graph/graph.h"

#include <inttypes.h>
#include <string.h>

/* FORMAT, with the text and the line of the node. */
static kolo_status bad_node(const kolo_graph *g, int32_t i, const char *what) {
    kolo_text line = {0};
    kolo_node_print(g, g->nodes[i], &line);
    kolo_status status = KOLO_FAIL(KOLO_ERR_FORMAT, "graph: node %" PRId32 " %s: %s", i, what,
                                   line.text ? line.text : "");
    kolo_text_fini(&line);
    return status;
}

static kolo_status verify_handles(const kolo_graph *g, int32_t i) {
    const kolo_node *n = g->nodes[i];
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        kolo_value v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        if (v.id < 0 || v.id >= g->n_values) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "graph: node %" PRId32 " (%s) uses the value %" PRId32 " of %" PRId32,
                             i, n->op->name, v.id, g->n_values);
        }
    }
    return KOLO_OK;
}

/* Each input is a leaf or the output of an earlier node; each output names this node as producer.
 */
static kolo_status verify_order(const kolo_graph *g, int32_t i) {
    const kolo_node *n = g->nodes[i];
    for (int k = 0; k < n->n_in; k++) {
        const kolo_value_info *in = kolo_info(g, n->in[k]);
        if (in->kind == KOLO_VALUE_TEMP && (in->producer < 0 || in->producer >= i)) {
            return bad_node(g, i, "reads a value before its producer");
        }
    }
    for (int k = 0; k < n->n_out; k++) {
        const kolo_value_info *out = kolo_info(g, n->out[k]);
        if (out->kind != KOLO_VALUE_TEMP || out->producer != i) {
            return bad_node(g, i, "writes a value of another producer");
        }
    }
    return KOLO_OK;
}

/* The outputs agree with the shape rule. */
static kolo_status verify_shapes(const kolo_graph *g, int32_t i) {
    const kolo_node *n = g->nodes[i];
    if (!n->op->shape) return KOLO_OK;
    if (n->n_in < n->op->min_in || n->n_in > n->op->max_in) {
        return bad_node(g, i, "has the wrong number of inputs");
    }
    kolo_tensor in[KOLO_MAX_IO], have[KOLO_MAX_IO], want[KOLO_MAX_IO];
    kolo_shape_query q = kolo_node_query(g, n, in, have);
    q.out = want;
    if (n->op->shape(&q) != KOLO_OK) return bad_node(g, i, kolo_last_error());
    if (q.n_out != n->n_out) return bad_node(g, i, "has the wrong number of outputs");
    for (int k = 0; k < n->n_out; k++) {
        if (have[k].dtype != want[k].dtype || !kolo_shape_equal(&have[k].shape, &want[k].shape)) {
            return bad_node(g, i, "has an output that disagrees with its shape rule");
        }
    }
    return KOLO_OK;
}

static kolo_status verify_value(const kolo_graph *g, int32_t id) {
    const kolo_value_info *v = &g->values[id];
    if (v->tensor.layout.rank != v->tensor.shape.rank) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "graph: value %" PRId32 " has a layout of another rank",
                         id);
    }
    if (!kolo_value_ok(v->next_of)) return KOLO_OK;
    const kolo_value_info *old = kolo_info(g, v->next_of);
    if ((old->kind != KOLO_VALUE_PARAM && old->kind != KOLO_VALUE_STATE) ||
        !kolo_shape_equal(&old->tensor.shape, &v->tensor.shape) ||
        !kolo_layout_equal(&old->tensor.layout, &v->tensor.layout)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "graph: value %" PRId32 " cannot be the next version of %" PRId32, id,
                         v->next_of.id);
    }
    return KOLO_OK;
}

kolo_status kolo_graph_verify(const kolo_graph *g) {
    KOLO_TRY(kolo_graph_check(g));
    for (int32_t i = 0; i < g->n_nodes; i++) KOLO_TRY(verify_handles(g, i));
    for (int32_t i = 0; i < g->n_nodes; i++) {
        KOLO_TRY(verify_order(g, i));
        KOLO_TRY(verify_shapes(g, i));
    }
    for (int32_t id = 0; id < g->n_values; id++) KOLO_TRY(verify_value(g, id));
    return KOLO_OK;
}
