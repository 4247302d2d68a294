/* Synchronization: redistributes what updates read and what is reported to where all ranks hold it.
 * Gradients are summands on each rank, since each has samples of its own; updates need their sum.
 * The same goes for statistics and for outputs, which are sums over the batch. */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <string.h>

typedef struct synchronizer {
    kolo_graph *g;
    kolo_value *synced; /* by value: redistributed, or KOLO_NONE */
    kolo_value *once;   /* by value: of one rank of the axis ep, or KOLO_NONE */
    bool *wanted;       /* by value: an update or an output reads it */
    int32_t n_values;   /* before values are added */
    kolo_node **order;
    int32_t n;
} synchronizer;

/* Whether each rank holds a range, as updates of ZeRO read (zero.c). */
static bool is_sharded(const synchronizer *s, kolo_value v) {
    for (int a = 0; a < s->g->mesh.n_axes; a++) {
        const kolo_placement *p = &kolo_info(s->g, v)->placements.axis[a];
        if (p->kind == KOLO_PLACEMENT_SHARDED && p->dim == KOLO_DIM_FLAT) return true;
    }
    return false;
}

/* Whether an axis divides the samples: what is sharded along it is no slice of a parameter. */
static bool is_of_samples(const synchronizer *s, int axis) {
    return strcmp(s->g->mesh.axes[axis].name, "dp") == 0;
}

/* Whether v is the scalar that makes a summand of what a stage has: its readers are summed. */
static bool is_of_stage(const synchronizer *s, kolo_value v) {
    const int axis = kolo_mesh_find(&s->g->mesh, "pp");
    const kolo_value_info *info = kolo_info(s->g, v);
    return axis >= 0 && info->kind == KOLO_VALUE_SCALAR &&
           info->placements.axis[axis].kind == KOLO_PLACEMENT_PARTIAL;
}

/* The axis that divides the samples of experts' models where they divide; -1: none. */
static int axis_of_experts(const kolo_mesh *mesh) {
    const int axis = kolo_mesh_find(mesh, "ep");
    return axis >= 0 && mesh->axes[axis].size > 1 ? axis : -1;
}

/* A sum over samples that do not divide over the axis ep, or rows of these: all its ranks have it,
 * of which one counts. Places on dp where the samples divide sum over ep too, and all have to
 * alike. The node stands behind that of the sum, so that all have sums in one order. */
static kolo_status count_once(synchronizer *s, kolo_value v) {
    const int ep = axis_of_experts(&s->g->mesh), dp = kolo_mesh_find(&s->g->mesh, "dp");
    const kolo_placements is = kolo_info(s->g, v)->placements;
    kolo_placements to = is;
    if (v.id >= s->n_values || !s->wanted[v.id] || ep < 0 || dp < 0) return KOLO_OK;
    const kolo_placement_kind kind = is.axis[dp].kind;
    if (kind != KOLO_PLACEMENT_PARTIAL && kind != KOLO_PLACEMENT_LOCAL) return KOLO_OK;
    if (is.axis[ep].kind != KOLO_PLACEMENT_INVARIANT) return KOLO_OK;
    to.axis[ep].kind = kind;
    s->once[v.id] = kolo_redistribute(s->g, v, &is, &to);
    KOLO_TRY(kolo_graph_check(s->g));
    s->order[s->n++] = s->g->nodes[kolo_info(s->g, s->once[v.id])->producer];
    return KOLO_OK;
}

/* v where all ranks hold it, or each its slice. The node stands where the walk is. */
static kolo_value synchronized(synchronizer *s, kolo_value v) {
    kolo_placements is = kolo_info(s->g, v)->placements;
    kolo_placements to = {0};
    for (int a = 0; a < s->g->mesh.n_axes; a++) { /* of parameters of tensor parallelism */
        if (is.axis[a].kind == KOLO_PLACEMENT_SHARDED && !is_of_samples(s, a)) {
            to.axis[a] = is.axis[a];
        }
    }
    if (v.id >= s->n_values || is_sharded(s, v) || is_of_stage(s, v) ||
        kolo_placements_same_data(&s->g->mesh, &is, &to))
        return v;
    if (kolo_value_ok(s->synced[v.id])) return s->synced[v.id];
    const kolo_value summand = kolo_value_ok(s->once[v.id]) ? s->once[v.id] : v;
    is = kolo_info(s->g, summand)->placements;
    kolo_value by = kolo_redistribute(s->g, summand, &is, &to);
    if (!kolo_value_ok(by)) return v;
    s->order[s->n++] = s->g->nodes[kolo_info(s->g, by)->producer];
    return s->synced[v.id] = by;
}

static kolo_status visit(synchronizer *s, kolo_node *node) {
    if (node->op->comm == KOLO_OP_LOCAL && kolo_node_is_update(s->g, node)) {
        for (int k = 0; k < node->n_in; k++) node->in[k] = synchronized(s, node->in[k]);
        KOLO_TRY(kolo_graph_check(s->g));
    }
    s->order[s->n++] = node;
    KOLO_TRY(kolo_node_propagate(s->g, node));
    for (int k = 0; k < node->n_out; k++) KOLO_TRY(count_once(s, node->out[k]));
    return KOLO_OK;
}

/* Finds what is synchronized, unless it is whole already. */
static void find_wanted(const synchronizer *s) {
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        const kolo_node *n = s->g->nodes[i];
        const bool reads = n->op->comm == KOLO_OP_LOCAL && kolo_node_is_update(s->g, n);
        for (int k = 0; k < n->n_in && reads; k++) s->wanted[n->in[k].id] = true;
    }
    for (int32_t i = 0; i < s->g->n_outputs; i++) s->wanted[s->g->outputs[i].value.id] = true;
}

/* The value of another stage whose gradient has this number. */
static const kolo_value_info *find_received(const kolo_graph *g, int number) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_crossing *c = kolo_answered(&g->values[v]);
        if (c->number == number && !c->gradient) return &g->values[v];
    }
    return NULL;
}

/* Redistributes a gradient that is sent to where the stage before expects it: that takes what all
 * ranks compute alike for INVARIANT, though its samples may be REPLICATED further back. */
static kolo_status synchronize_sent(synchronizer *s, kolo_named_value *sent) {
    const kolo_value_info *received = find_received(s->g, sent->crossing.number);
    kolo_placements is = kolo_info(s->g, sent->value)->placements, to;
    KOLO_ASSERT(received);
    KOLO_TRY(kolo_answer_placements(s->g, received, &to));
    if (kolo_placements_same_data(&s->g->mesh, &is, &to)) return KOLO_OK;
    sent->value = kolo_redistribute(s->g, sent->value, &is, &to);
    KOLO_TRY(kolo_graph_check(s->g));
    s->order[s->n++] = s->g->nodes[kolo_info(s->g, sent->value)->producer];
    return KOLO_OK;
}

static kolo_status walk(synchronizer *s) {
    kolo_graph *g = s->g;
    const int32_t n_nodes = g->n_nodes;
    for (int32_t v = 0; v < s->n_values; v++) s->synced[v] = s->once[v] = KOLO_NONE;
    find_wanted(s);
    for (int32_t i = 0; i < n_nodes; i++) KOLO_TRY(visit(s, g->nodes[i]));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].crossing.gradient) KOLO_TRY(synchronize_sent(s, &g->outputs[i]));
        if (g->outputs[i].crossing.number > 0 || kolo_output_is_own(g, i)) continue;
        g->outputs[i].value = synchronized(s, g->outputs[i].value);
    }
    KOLO_TRY(kolo_graph_check(g));
    return kolo_graph_set_nodes(g, s->order, s->n);
}

kolo_status kolo_pass_synchronize(kolo_graph *g) {
    size_t values = (size_t)g->n_values + 1, nodes = (size_t)g->n_nodes + 2 * values;
    synchronizer s = {.g = g, .n_values = g->n_values};
    kolo_arena arena = {0};
    s.synced = kolo_arena_alloc(&arena, values * sizeof *s.synced);
    s.once = kolo_arena_alloc(&arena, values * sizeof *s.once);
    s.wanted = kolo_arena_alloc(&arena, values * sizeof *s.wanted);
    s.order = kolo_arena_alloc(&arena, nodes * sizeof *s.order);
    kolo_status status =
        s.synced && s.once && s.wanted && s.order ? walk(&s) : KOLO_NOMEM(nodes * sizeof *s.order);
    kolo_arena_fini(&arena);
    return status == KOLO_OK ? KOLO_OK : kolo_fail_in(status, "the model cannot be sharded");
}
