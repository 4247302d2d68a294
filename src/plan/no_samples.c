#include "plan/no_samples.h"

#include "graph/ops/ops.h"
#include "plan/transfers.h"

/* Whether a node has what this rank has accumulated: of one chunk of a stage, or the sum of all. */
static bool is_accumulated(const kolo_plan *p, const kolo_node *n) {
    return n->op == &kolo_op_accumulate || n->op == &kolo_op_accumulate_rows ||
           (p->chunks > 1 && n->segment == KOLO_SEGMENT_UPDATE);
}

void kolo_plan_clear_posted(const kolo_plan *p, const kolo_step *step) {
    const kolo_graph *g = p->graph;
    const kolo_node *post = g->nodes[step->node];
    for (int k = 0; k < post->n_in; k++) {
        const kolo_value_info *info = kolo_info(g, post->in[k]);
        if (is_accumulated(p, g->nodes[info->producer])) continue;
        /* Without samples, too: */
        if (g->nodes[info->producer]->op->comm == KOLO_OP_ENCODE) continue; /* of zeros */
        if (p->shared[info->producer] || kolo_node_is_update(g, g->nodes[info->producer])) continue;
        bool ids = info->tensor.dtype == KOLO_DTYPE_I32; /* -1 selects no row */
        kolo_regions_fill(p->store->regions, kolo_plan_address(p, post->in[k].id, 0),
                          ids ? 0xff : 0, kolo_tensor_bytes(&info->tensor));
    }
}

/* Whether a node takes a gradient for LOCAL state or a code. */
static bool takes_gradient(const kolo_graph *g, const kolo_node *n) {
    kolo_value old = kolo_info(g, n->out[0])->next_of;
    return n->op->comm == KOLO_OP_ENCODE ||
           (n->op == &kolo_op_reorder && kolo_value_ok(old) && kolo_info(g, old)->versions > 0);
}

void kolo_plan_clear_gradient(const kolo_plan *p, const kolo_step *step) {
    const kolo_graph *g = p->graph;
    const kolo_node *n = g->nodes[step->node];
    const kolo_value_info *info = kolo_info(g, n->in[0]);
    if (!takes_gradient(g, n) || info->producer < 0 || p->shared[info->producer]) return;
    const kolo_node *of = g->nodes[info->producer];
    if (is_accumulated(p, of) || of->op->comm == KOLO_OP_ENCODE) return;
    kolo_regions_fill(p->store->regions, kolo_plan_address(p, n->in[0].id, 0), 0,
                      kolo_tensor_bytes(&info->tensor));
}

/* Adds zero to the sum over the micro-batches that an accumulate node keeps. */
static void add_zero(const kolo_plan *p, const kolo_node *n) {
    const kolo_tensor *t = &kolo_info(p->graph, n->out[0])->tensor;
    const double keep = n->attr[KOLO_ACCUMULATE_KEEP].f;
    const size_t bytes = kolo_tensor_bytes(t), count = bytes / kolo_dtype_bytes(t->dtype);
    const void *fresh = kolo_plan_data(p, n->in[1]);
    const bool is_f64 = t->dtype == KOLO_DTYPE_F64;
    if (is_f64 ? *(const double *)fresh != 0 : *(const float *)fresh != 0) {
        kolo_regions_fill(p->store->regions, kolo_plan_address(p, n->out[0].id, 0), 0, bytes);
    }
    if (keep == 1) return;
    void *sum = kolo_plan_pull(p, n->out[0]);
    for (size_t i = 0; i < count; i++) {
        if (is_f64) {
            ((double *)sum)[i] *= keep;
        } else {
            ((float *)sum)[i] = (float)(keep * (double)((float *)sum)[i]);
        }
    }
    kolo_plan_push(p, n->out[0]);
}

/* Adds no rows to those that an accumulate_rows node keeps. */
static void add_no_rows(const kolo_plan *p, const kolo_node *n) {
    const void *fresh = kolo_plan_data(p, n->in[2]);
    const bool is_f64 = p->graph->dtype == KOLO_DTYPE_F64;
    if (is_f64 ? *(const double *)fresh == 0 : *(const float *)fresh == 0) return;
    for (int k = 0; k < 2; k++) { /* rows of zeros, and ids that select none */
        kolo_regions_fill(p->store->regions, kolo_plan_address(p, n->out[k].id, 0),
                          k == 1 ? 0xff : 0,
                          kolo_tensor_bytes(&kolo_info(p->graph, n->out[k])->tensor));
    }
}

void kolo_plan_add_zeros(const kolo_plan *p) {
    for (int i = 0; i < p->n_steps; i++) {
        const kolo_step *step = &p->steps[i];
        const kolo_node *n = p->graph->nodes[step->node];
        if (n->op == &kolo_op_accumulate && !step->inside) add_zero(p, n);
        if (n->op == &kolo_op_accumulate_rows) add_no_rows(p, n);
    }
}
