/* Slices of dimensions other than the outermost: x [N,T/S,C] of S ranks is gathered to [S,N,T/S,C],
 * permuted to [N,S,T/S,C] and seen as [N,T,C]; a sum [N,T,C] goes the other way. */
#include "pass/slices.h"

#include "graph/ops/ops.h"
#include "graph/propagate.h"

#include <string.h>

typedef struct slicer {
    kolo_graph *g;
    kolo_node **order;
    int32_t n;
} slicer;

static bool is_cut(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim != KOLO_DIM_FLAT;
}

static bool is_slice(const kolo_placement *p) {
    return is_cut(p) && !p->cuts && p->blocks < 2 && !is_exchanged(p);
}

/* The axis on which a redistribution gathers or makes slices of an inner dimension; -1: none. */
static int axis_of(const kolo_graph *g, const kolo_node *n, bool *gathers, int *dim) {
    for (int a = 0; n->op->comm == KOLO_OP_REDISTRIBUTE && a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (is_slice(from) == is_slice(to) || g->mesh.axes[a].size == 1) continue;
        if (is_exchanged(from) || is_exchanged(to)) continue;
        *gathers = is_slice(from);
        *dim = *gathers ? from->dim : to->dim;
        if (*dim > 0) return a;
    }
    return -1;
}

/* Adds the last node of the graph to the order, and finds its placements. */
static kolo_status emit(slicer *s) {
    kolo_node *n = s->g->nodes[s->g->n_nodes - 1];
    KOLO_TRY(kolo_graph_check(s->g));
    s->order[s->n++] = n;
    return kolo_node_propagate(s->g, n);
}

/* Moves dimension `from` of v to `to`. */
static kolo_status permuted(slicer *s, kolo_value v, int from, int to, kolo_value *by) {
    const int rank = kolo_info(s->g, v)->tensor.shape.rank;
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    for (int d = 0, other = 0; d < rank; d++) {
        if (other == from) other++;
        attr[d].i = d == to ? from : other++;
    }
    *by = kolo_graph_add1(s->g, &kolo_op_permute, &v, 1, attr);
    return emit(s);
}

static void make_reshape(kolo_node *n, kolo_value x, const kolo_shape *shape) {
    memset(n->attr, 0, sizeof n->attr);
    n->op = &kolo_op_reshape;
    n->move = NULL;
    n->in[0] = x;
    n->attr[KOLO_RESHAPE_RANK].i = shape->rank;
    for (int d = 0; d < shape->rank; d++) n->attr[KOLO_RESHAPE_DIM + d].i = shape->dim[d];
}

static kolo_status gather(slicer *s, kolo_node *n, int axis, int dim) {
    kolo_graph *g = s->g;
    const kolo_tensor x = kolo_info(g, n->in[0])->tensor;
    const kolo_shape whole = kolo_info(g, n->out[0])->tensor.shape;
    const kolo_tensor stack =
        kolo_tensor_plain(x.dtype, kolo_shape_stack(&x.shape, g->mesh.axes[axis].size));
    kolo_placements to = n->move->to;
    for (int a = 0; a < g->mesh.n_axes; a++) to.axis[a].dim += is_cut(&to.axis[a]);
    kolo_value all = kolo_redistribute_as(g, n->in[0], &n->move->from, &to, &stack);
    KOLO_TRY(emit(s));
    KOLO_TRY(permuted(s, all, 0, dim, &all));
    make_reshape(n, all, &whole);
    s->order[s->n++] = n;
    return kolo_node_propagate(g, n);
}

static kolo_status scatter(slicer *s, kolo_node *n, int axis, int dim) {
    kolo_graph *g = s->g;
    const kolo_shape x = kolo_info(g, n->in[0])->tensor.shape;
    kolo_shape split = {.rank = x.rank + 1};
    for (int d = 0; d < x.rank; d++) split.dim[d + (d > dim)] = x.dim[d];
    split.dim[dim] = g->mesh.axes[axis].size;
    split.dim[dim + 1] = x.dim[dim] / split.dim[dim];
    kolo_value sum = kolo_reshape(g, n->in[0], split);
    KOLO_TRY(emit(s));
    KOLO_TRY(permuted(s, sum, dim, 0, &sum));
    kolo_redistribution *move = kolo_arena_alloc(&g->arena, sizeof *move);
    if (!move) return KOLO_NOMEM(sizeof *move);
    *move = (kolo_redistribution){kolo_info(g, sum)->placements, n->move->to};
    n->in[0] = sum;
    n->move = move;
    s->order[s->n++] = n;
    return KOLO_OK;
}

/* The slice of a whole. */
static kolo_status take(slicer *s, kolo_node *n, int axis, int dim) {
    const int64_t count = kolo_info(s->g, n->out[0])->tensor.shape.dim[dim];
    if (dim == 0) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "a slice of the samples");
    memset(n->attr, 0, sizeof n->attr);
    n->op = &kolo_op_window;
    n->attr[KOLO_WINDOW_FIRST].i = kolo_mesh_coordinate(&s->g->mesh, s->g->rank, axis) * count;
    n->attr[KOLO_WINDOW_COUNT].i = count;
    n->attr[KOLO_WINDOW_AXIS].i = dim;
    s->order[s->n++] = n;
    return KOLO_OK;
}

static kolo_status visit(slicer *s, kolo_node *n) {
    bool gathers;
    int dim, axis = axis_of(s->g, n, &gathers, &dim);
    if (axis < 0) {
        s->order[s->n++] = n;
        return KOLO_OK;
    }
    if (gathers) return gather(s, n, axis, dim);
    bool sum = n->move->from.axis[axis].kind == KOLO_PLACEMENT_PARTIAL;
    return sum ? scatter(s, n, axis, dim) : take(s, n, axis, dim);
}

kolo_status kolo_pass_slices(kolo_graph *g) {
    const int32_t n_nodes = g->n_nodes;
    slicer s = {.g = g};
    kolo_status status = KOLO_OK;
    s.order = kolo_alloc(((size_t)n_nodes * 3 + 1) * sizeof *s.order);
    if (!s.order) return KOLO_NOMEM((size_t)n_nodes * sizeof *s.order);
    for (int32_t i = 0; i < n_nodes && status == KOLO_OK; i++) status = visit(&s, g->nodes[i]);
    if (status == KOLO_OK && s.n > n_nodes) status = kolo_graph_set_nodes(g, s.order, s.n);
    kolo_free((void *)s.order);
    return status;
}
