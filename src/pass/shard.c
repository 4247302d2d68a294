/* Sharding: gives the leaves their placements by a recipe. Those of all other values follow
 * (graph/propagate.h). The recipe of data parallelism, on the axis dp:
 *
 *     inputs                     sharded along the samples, dimension 0
 *     parameters and state       the same on all ranks
 *     scalar "first_sample"      one for each shard; "rank_weight" too
 *     scalars "share", "once"    summands that add up to 1
 *     other scalars              the same on all ranks
 *
 * Then it completes sums. Where one addend is a sum over the samples of a rank and another is the
 * same on all ranks, such as a penalty on the parameters, the latter is multiplied by "once", which
 * is 1 in one micro-batch of one rank and 0 in all others. Else it would be counted once each. */
#include "graph/index.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"

#include <string.h>

/* The recipe. */
static kolo_placement placement_on_dp(const kolo_value_info *leaf) {
    kolo_placement p = {.kind = KOLO_PLACEMENT_INVARIANT};
    if (leaf->kind == KOLO_VALUE_INPUT && leaf->tensor.shape.rank > 0) {
        p.kind = KOLO_PLACEMENT_SHARDED;
    } else if (leaf->kind == KOLO_VALUE_SCALAR) {
        bool summand = strcmp(leaf->name, "share") == 0 || strcmp(leaf->name, "once") == 0;
        bool local =
            strcmp(leaf->name, "first_sample") == 0 || strcmp(leaf->name, "rank_weight") == 0;
        if (local) p.kind = KOLO_PLACEMENT_LOCAL;
        if (summand) p.kind = KOLO_PLACEMENT_PARTIAL;
    }
    return p;
}

kolo_value kolo_shard_leaf(kolo_graph *g, kolo_value leaf) {
    int dp = kolo_mesh_find(&g->mesh, "dp");
    if (dp < 0 || !kolo_value_ok(leaf)) return leaf;
    kolo_info(g, leaf)->placements.axis[dp] = placement_on_dp(kolo_info(g, leaf));
    return leaf;
}

/* ---- sums ---- */

typedef struct sharder {
    kolo_graph *g;
    kolo_node **order;
    int32_t n;
} sharder;

static kolo_placement_kind kind_on(const sharder *s, kolo_value v, int axis) {
    return kolo_info(s->g, v)->placements.axis[axis].kind;
}

/* Whether all factors of an addend are the same on all ranks; then *linear is the first in which
 * the op is linear, else -1. */
static bool is_whole(const sharder *s, const kolo_node *n, const kolo_index *index, int addend,
                     int axis, int *linear) {
    *linear = -1;
    for (int k = 0; k < n->n_in; k++) {
        if (index->in[k].addend != addend) continue;
        kolo_placement_kind kind = kind_on(s, n->in[k], axis);
        if (kind != KOLO_PLACEMENT_INVARIANT && kind != KOLO_PLACEMENT_REPLICATED) return false;
        if (*linear < 0 && n->op->linear >> k & 1) *linear = k;
    }
    return true;
}

/* x * once, before the current node. */
static kolo_value counted_once(sharder *s, kolo_value x) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = 1};
    kolo_value once = kolo_shard_leaf(s->g, kolo_graph_scalar(s->g, "once", s->g->dtype));
    kolo_value by = kolo_graph_add1(s->g, &kolo_op_scale, (kolo_value[]){x, once}, 2, attr);
    if (!kolo_value_ok(by)) return x;
    const kolo_node *scale = s->g->nodes[kolo_info(s->g, by)->producer];
    s->order[s->n++] = s->g->nodes[kolo_info(s->g, by)->producer];
    return kolo_node_propagate(s->g, scale) == KOLO_OK ? by : x;
}

/* If one addend of the node is a summand on `axis`, makes the others so. */
static kolo_status complete_sum(sharder *s, kolo_node *n, int axis) {
    kolo_index index;
    bool summand = false;
    int linear;
    for (int k = 0; k < n->n_in; k++) {
        summand |= kind_on(s, n->in[k], axis) == KOLO_PLACEMENT_PARTIAL;
    }
    if (!summand || !kolo_op_has_index(n->op)) return KOLO_OK;
    KOLO_TRY(kolo_index_of(s->g, n, &index));
    for (int a = 0; a < index.n_addends; a++) {
        if (!is_whole(s, n, &index, a, axis, &linear) || linear < 0) continue;
        n->in[linear] = counted_once(s, n->in[linear]);
    }
    return kolo_graph_check(s->g);
}

/* Where the samples are in input 0, for ops that count them: dimension 1 of [T,N,C], dimension 0 of
 * [N*T,C], with T rows for each. */
static void find_samples(const sharder *s, kolo_node *n) {
    const int dp = kolo_mesh_find(&s->g->mesh, "dp");
    if (dp < 0 || n->op->part.samples == 0) return;
    const kolo_value_info *x = kolo_info(s->g, n->in[0]);
    const kolo_placement *p = &x->placements.axis[dp];
    if (p->kind != KOLO_PLACEMENT_SHARDED) return;
    kolo_node_attr(n, n->op->part.samples)->i = p->dim;
    for (int32_t v = 0; v < s->g->n_values && p->dim == 0; v++) {
        const kolo_value_info *input = &s->g->values[v];
        if (input->kind != KOLO_VALUE_INPUT || input->tensor.shape.rank == 0) continue;
        const int64_t rows = x->tensor.shape.dim[0] / input->tensor.shape.dim[0];
        kolo_node_attr(n, n->op->part.rows)->i = rows > 1 ? rows : 0;
        return;
    }
}

static kolo_status walk(sharder *s) {
    kolo_graph *g = s->g;
    const int32_t n_nodes = g->n_nodes;
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        for (int a = 0; a < g->mesh.n_axes; a++) KOLO_TRY(complete_sum(s, node, a));
        s->order[s->n++] = node;
        find_samples(s, node);
        KOLO_TRY(kolo_node_propagate(g, node));
    }
    return s->n > n_nodes ? kolo_graph_set_nodes(g, s->order, s->n) : KOLO_OK;
}

kolo_status kolo_pass_shard(kolo_graph *g, const kolo_mesh *mesh) {
    g->mesh = *mesh;
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != KOLO_VALUE_TEMP) (void)kolo_shard_leaf(g, (kolo_value){.id = v});
    }
    size_t nodes = (size_t)g->n_nodes * (1 + KOLO_MAX_IO) + 1; /* at most one for each input */
    sharder s = {.g = g, .order = kolo_alloc(nodes * sizeof *s.order)};
    if (!s.order) return KOLO_NOMEM(nodes * sizeof *s.order);
    kolo_status status = walk(&s);
    kolo_free((void *)s.order);
    return status == KOLO_OK ? KOLO_OK : kolo_fail_in(status, "the model cannot be sharded");
}
