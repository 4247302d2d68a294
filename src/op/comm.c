/* redistribute, and what the pass lower_comm makes of it: post and wait, the start and completion
 * of the collective of a bucket. The latter have any number of values. None has a shape rule or a
 * kernel; the plan executes post and wait as steps of their own. */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "kernel/ref/table.h"

#include <limits.h>

static const char *const redistribute_attrs[] = {"unit", "place", "early", NULL};
static const char *const range_attrs[] = {"first", NULL};
static const char *const attrs[] = {"bucket", "collective", "inside", "axes", NULL};

/* The gradient of from -> to is gradient(to) -> gradient(from). */
static void redistribute_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                              const bool *wants, kolo_value *d_in) {
    kolo_placements from, to;
    if (!wants[0]) return;
    kolo_status status = kolo_placements_gradient(&g->mesh, &n->move->to, &from);
    if (status == KOLO_OK) status = kolo_placements_gradient(&g->mesh, &n->move->from, &to);
    if (status != KOLO_OK) {
        kolo_graph_set_failed(g, status);
        return;
    }
    d_in[0] = d_out[0];
    if (kolo_placements_same_data(&g->mesh, &from, &to)) return;
    const kolo_tensor tensor = kolo_tensor_plain(kolo_info(g, d_out[0])->tensor.dtype,
                                                 kolo_info(g, n->in[0])->tensor.shape);
    d_in[0] = kolo_redistribute_as(g, d_out[0], &from, &to, &tensor);
}

const kolo_op kolo_op_redistribute = {
    .name = "redistribute",
    .min_in = 1,
    .max_in = 1,
    .attrs = redistribute_attrs,
    .grad = redistribute_grad,
    .view = true,
    .comm = KOLO_OP_REDISTRIBUTE,
};
const kolo_op kolo_op_own_range = {
    .name = "own_range",
    .min_in = 1,
    .max_in = 1,
    .attrs = range_attrs,
    .view = true,
    .comm = KOLO_OP_SLICE,
};
const kolo_op kolo_op_post = {
    .name = "post",
    .min_in = 1,
    .max_in = INT_MAX,
    .attrs = attrs,
    .view = true,
    .comm = KOLO_OP_POST,
};
const kolo_op kolo_op_wait = {
    .name = "wait",
    .min_in = 1,
    .max_in = INT_MAX,
    .attrs = attrs,
    .view = true,
    .comm = KOLO_OP_WAIT,
};

static bool is_slice(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim != KOLO_DIM_FLAT;
}

/* The tensor that a rank holds afterwards: the versions of all ranks, one after the other, where a
 * LOCAL tensor is gathered; of equal slices. */
static kolo_tensor moved(const kolo_graph *g, kolo_value v, const kolo_redistribution *move) {
    kolo_tensor tensor = kolo_info(g, v)->tensor;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &move->from.axis[a], *to = &move->to.axis[a];
        kolo_shape all = tensor.shape;
        if (is_slice(from) != is_slice(to)) {
            int64_t *length = &all.dim[is_slice(from) ? from->dim : to->dim];
            const int size = g->mesh.axes[a].size;
            *length = is_slice(from) ? *length * size : *length / size;
            tensor = kolo_tensor_plain(tensor.dtype, all);
        }
        if (from->kind != KOLO_PLACEMENT_LOCAL || to->kind == KOLO_PLACEMENT_LOCAL) continue;
        all.dim[0] *= g->mesh.axes[a].size;
        tensor = kolo_tensor_plain(tensor.dtype, all);
    }
    return tensor;
}

kolo_value kolo_redistribute(kolo_graph *g, kolo_value v, const kolo_placements *from,
                             const kolo_placements *to) {
    if (g->status != KOLO_OK || kolo_placements_same_data(&g->mesh, from, to)) return v;
    const kolo_redistribution move = {*from, *to};
    const kolo_tensor tensor = moved(g, v, &move);
    return kolo_redistribute_as(g, v, from, to, &tensor);
}

kolo_value kolo_redistribute_as(kolo_graph *g, kolo_value v, const kolo_placements *from,
                                const kolo_placements *to, const kolo_tensor *tensor) {
    if (g->status != KOLO_OK) return v;
    kolo_redistribution *move = kolo_arena_alloc(&g->arena, sizeof *move);
    if (!move) {
        kolo_graph_set_failed(g, KOLO_NOMEM(sizeof *move));
        return KOLO_NONE;
    }
    *move = (kolo_redistribution){*from, *to};
    kolo_node *n = kolo_graph_add_raw(g, &kolo_op_redistribute, &v, 1, 1, tensor, NULL);
    if (!n) return KOLO_NONE;
    n->move = move;
    kolo_info(g, n->out[0])->placements = *to;
    return n->out[0];
}

void kolo_graph_make_local(kolo_graph *g, kolo_value state, int versions, int version) {
    kolo_value_info *info = kolo_info(g, state);
    info->versions = versions;
    info->version = version;
    info->whole = kolo_tensor_stack(&info->tensor, versions);
    info->canon = kolo_shape_stack(&info->canon, versions);
}

bool kolo_flat_range(const kolo_graph *g, kolo_value v, int64_t *first, int64_t *count) {
    const kolo_value_info *info = kolo_info(g, v);
    if (info->versions > 0) {
        *count = kolo_tensor_elements(&info->tensor);
        *first = info->version * *count;
        return true;
    }
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *p = &kolo_info(g, v)->placements.axis[a];
        if (p->kind != KOLO_PLACEMENT_SHARDED || p->dim != KOLO_DIM_FLAT || !p->cuts) continue;
        int c = kolo_mesh_coordinate(&g->mesh, g->rank, a);
        *first = p->cuts[c];
        *count = p->cuts[c + 1] - p->cuts[c];
        return true;
    }
    return false;
}

bool kolo_is_slice(const kolo_graph *g, kolo_value v) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *p = &kolo_info(g, v)->placements.axis[a];
        bool leaf = kolo_info(g, v)->whole.shape.rank > 0;
        if (leaf && p->kind == KOLO_PLACEMENT_SHARDED && p->dim != KOLO_DIM_FLAT) return true;
    }
    return false;
}

kolo_value kolo_sum_over_samples(kolo_graph *g, kolo_value v, kolo_value x, bool of_rank) {
    kolo_placements from = {0}, to = {0};
    if (kolo_graph_check(g) != KOLO_OK) return v;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *p = &kolo_info(g, x)->placements.axis[a];
        if (p->kind != KOLO_PLACEMENT_SHARDED) continue;
        if (p->dim == 1) { /* both numbers of the channels that this rank has */
            from.axis[a] = *p;
            from.axis[a].dim = 0;
            from.axis[a].blocks = 2 * (p->blocks > 0 ? p->blocks : 1);
            to.axis[a] = from.axis[a];
            continue;
        }
        if (p->dim == 0 && of_rank) {
            from.axis[a].kind = to.axis[a].kind = KOLO_PLACEMENT_LOCAL;
            continue;
        }
        from.axis[a].kind = KOLO_PLACEMENT_PARTIAL;
        to.axis[a].kind = KOLO_PLACEMENT_REPLICATED;
    }
    return kolo_redistribute(g, v, &from, &to);
}

const kolo_kernel kolo_ops_comm[] = {
    {.op = &kolo_op_redistribute},
    {.op = &kolo_op_own_range},
    {.op = &kolo_op_post},
    {.op = &kolo_op_wait},
    {0},
};
