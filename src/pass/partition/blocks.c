/* Tensor parallelism in blocks, whose bits do not depend on the ranks. As many ranks as there are
 * blocks would divide the model by the rules; each of the ranks that there are, one or more, runs
 * what several of those would: the partitioned graphs of its blocks, merged into one.
 *
 *     y = redistribute(linear(x, w, b), partial -> invariant)
 *
 *     w0, w1 = deinterleave(w)        y0 = linear(x, w0, b)    y1 = linear(x, w1)
 *     y = redistribute(add(y0, y1), partial -> invariant)
 *
 * What all blocks have alike is computed once. Kernels see the shapes of a block on any number of
 * ranks. Sums over the blocks follow one binary tree: its lower levels are additions in the graph,
 * the upper ones an allreduce of logical shards (plan/requests.c). The gradient of what all blocks
 * read is such a sum too: each level of the tree reads a view of its own. */
#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/partition/partition.h"
#include "pass/partition/replace.h"

typedef struct merger {
    kolo_graph *g;
    kolo_graph *of[KOLO_MAX_IO]; /* the partitioned graph of each block of this rank; first g */
    int n;                       /* blocks of this rank */
    int all;
    kolo_mesh mesh;      /* with a rank for each block */
    int axis;            /* of it, along which the blocks are */
    bool alone;          /* this rank has all blocks */
    int32_t n_values;    /* of a partitioned graph */
    kolo_placement *was; /* by value of it: how the ranks of that mesh hold it on the axis */
    kolo_value (*block)[KOLO_MAX_IO]; /* by value that the blocks do not have alike */
    int32_t visited;
} merger;

static bool is_divided(const merger *m, kolo_value v) {
    return v.id < m->n_values && m->was[v.id].kind != KOLO_PLACEMENT_INVARIANT;
}

static bool is_whole(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_INVARIANT || p->kind == KOLO_PLACEMENT_REPLICATED;
}

/* ---- leaves ---- */

/* Makes a leaf of a block that of this rank. */
static kolo_status widen(const merger *m, int32_t v) {
    kolo_value_info *info = &m->g->values[v];
    const kolo_placement *cut = &m->was[v];
    const int blocks = cut->blocks > 0 ? cut->blocks : 1;
    const int64_t length = info->whole.shape.dim[cut->dim];
    if (length % ((int64_t)blocks * m->all) != 0) {
        char text[KOLO_SHAPE_TEXT];
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s %s cannot be divided into %d equal blocks along dimension %d: choose "
                         "another --tp-blocks, or leave it whole (--placement)",
                         info->name, kolo_shape_text(&info->whole.shape, text), m->all, cut->dim);
    }
    kolo_shape shape = info->tensor.shape;
    shape.dim[cut->dim] *= m->n;
    info->tensor = kolo_tensor_plain(info->tensor.dtype, shape);
    if (m->alone) info->whole = (kolo_tensor){.dtype = 0};
    return KOLO_OK;
}

static kolo_status prepare(merger *m) {
    for (int32_t v = 0; v < m->n_values; v++) {
        kolo_value_info *info = &m->g->values[v];
        for (int k = 0; k < KOLO_MAX_IO; k++) m->block[v][k] = KOLO_NONE;
        m->was[v] = info->placements.axis[m->axis];
        if (m->alone) info->placements.axis[m->axis] = (kolo_placement){0};
        if (m->was[v].kind != KOLO_PLACEMENT_SHARDED || info->producer >= 0) continue;
        KOLO_TRY(widen(m, v));
    }
    return KOLO_OK;
}

/* Attributes of deinterleave and interleave of a value: those of the blocks that this rank has of
 * each of its parts. */
static void set_runs(const merger *m, kolo_value v, int64_t length, kolo_attr *attr) {
    const kolo_placement *cut = &m->was[v.id];
    attr[KOLO_INTERLEAVE_AXIS].i = cut->dim;
    attr[KOLO_INTERLEAVE_LENGTH].i = length / (cut->blocks > 0 ? cut->blocks : 1);
    attr[KOLO_INTERLEAVE_PARTS].i = m->n;
}

static void divide(const merger *m, kolo_value leaf) {
    const int64_t length = kolo_info(m->g, leaf)->tensor.shape.dim[m->was[leaf.id].dim] / m->n;
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    set_runs(m, leaf, length, attr);
    kolo_graph_add(m->g, &kolo_op_deinterleave, &leaf, 1, attr, m->block[leaf.id]);
}

/* ---- redistributions along the axis ---- */

/* v under the placements that a redistribution gives it on the ranks that there are. */
static kolo_value moved(const merger *m, kolo_value v, const kolo_node *n) {
    if (m->alone || !kolo_value_ok(v)) return v;
    const kolo_tensor tensor = kolo_info(m->g, v)->tensor;
    return kolo_redistribute_as(m->g, v, &n->move->from, &n->move->to, &tensor);
}

/* A view of x that is placed as x is: of what is REPLICATED the ranks compute summands of the
 * gradient, also where it crosses to another stage. */
static kolo_value view_of(const merger *m, kolo_value x) {
    const kolo_value view = kolo_reshape(m->g, x, kolo_value_shape(m->g, x));
    kolo_redistribution *same = kolo_arena_alloc(&m->g->arena, sizeof *same);
    if (!same) kolo_graph_set_failed(m->g, KOLO_NOMEM(sizeof *same));
    if (!same || !kolo_value_ok(view)) return KOLO_NONE;
    same->from = same->to = kolo_info(m->g, x)->placements;
    kolo_info(m->g, view)->placements = same->to;
    m->g->nodes[kolo_info(m->g, view)->producer]->move = same;
    return view;
}

/* Gives x to `count` blocks by views, so that their gradients add up along the tree, apart from
 * those of other readers. */
static void fan_out(const merger *m, kolo_value x, kolo_value *blocks, int count) {
    const kolo_value view = view_of(m, x);
    if (count == 1 || !kolo_value_ok(view)) {
        blocks[0] = view;
        return;
    }
    fan_out(m, view, blocks, count / 2);
    fan_out(m, view, blocks + count / 2, count / 2);
}

static kolo_value combined(const merger *m, const kolo_value *blocks, int count,
                           kolo_reduce_op op) {
    if (count == 1) return blocks[0];
    const kolo_value left = combined(m, blocks, count / 2, op);
    const kolo_value right = combined(m, blocks + count / 2, count / 2, op);
    return op == KOLO_MAX ? kolo_maximum(m->g, left, right) : kolo_add(m->g, left, right);
}

/* The sum of the blocks on all ranks; the maximum, which has no order, is of those of the ranks. */
static kolo_value reduced(const merger *m, kolo_value v, const kolo_node *n) {
    kolo_value *blocks = m->block[v.id];
    const kolo_reduce_op op = n->move->from.axis[m->axis].op;
    if (op == KOLO_SUM) return moved(m, combined(m, blocks, m->n, op), n);
    for (int k = 0; k < m->n; k++) blocks[k] = moved(m, blocks[k], n);
    return combined(m, blocks, m->n, op);
}

static kolo_status move(merger *m, kolo_replacer *r, const kolo_node *n) {
    const kolo_placement *from = &n->move->from.axis[m->axis], *to = &n->move->to.axis[m->axis];
    const kolo_value v = n->in[0], y = n->out[0];
    if (is_whole(from) && to->kind == KOLO_PLACEMENT_REPLICATED) {
        fan_out(m, moved(m, v, n), m->block[y.id], m->n);
    } else if (is_whole(from) && to->kind == KOLO_PLACEMENT_PARTIAL) {
        m->block[y.id][0] = moved(m, v, n); /* the others add nothing */
    } else if (from->kind == KOLO_PLACEMENT_PARTIAL && is_whole(to)) {
        r->now[y.id] = reduced(m, v, n);
    } else {
        char was[KOLO_PLACEMENT_TEXT], is[KOLO_PLACEMENT_TEXT];
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the rules redistribute [%s] to [%s], which --tp-blocks does not support: "
                         "give other rules with --placement, or omit --tp-blocks",
                         kolo_placements_text(&m->mesh, &n->move->from, was),
                         kolo_placements_text(&m->mesh, &n->move->to, is));
    }
    return kolo_replacer_take(r);
}

/* ---- nodes ---- */

static kolo_status refuse(const kolo_node *n, const char *what) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s: %s, which --tp-blocks does not support: leave the layer whole "
                     "(--placement), or omit --tp-blocks",
                     n->op->name, what);
}

/* What block k reads in place of inputs `in` of n: *n_in inputs. */
static kolo_status find_inputs(const merger *m, const kolo_node *n, int k, const kolo_value *in,
                               kolo_value *own, int *n_in) {
    for (*n_in = 0; *n_in < n->n_in; ++*n_in) {
        const kolo_value v = in[*n_in];
        const kolo_value_info *info = kolo_info(m->g, v);
        if (!is_divided(m, v)) {
            own[*n_in] = v;
            if (info->kind != KOLO_VALUE_PARAM || info->frozen) continue;
            return refuse(n, "it reads a parameter whole beside others that are divided");
        }
        if (info->producer < 0 && !kolo_value_ok(m->block[v.id][0])) divide(m, v);
        KOLO_TRY(kolo_graph_check(m->g));
        own[*n_in] = m->block[v.id][k];
        if (kolo_value_ok(own[*n_in])) continue;
        const bool optional = *n_in == n->n_in - 1 && *n_in >= n->op->min_in;
        return optional ? KOLO_OK : refuse(n, "one rank adds an input that all have");
    }
    return KOLO_OK;
}

/* Adds the node of block k, which is like n. */
static kolo_status add_like(const merger *m, const kolo_node *n, int k, int32_t i,
                            const kolo_value *in, int n_in) {
    const kolo_graph *of = m->of[k];
    const kolo_node *like = of->nodes[i];
    kolo_tensor out[KOLO_MAX_IO];
    KOLO_ASSERT(like->op == n->op && like->n_out == n->n_out);
    for (int o = 0; o < n->n_out; o++) out[o] = kolo_info(of, like->out[o])->tensor;
    kolo_node *own = kolo_graph_add_raw(m->g, n->op, in, n_in, n->n_out, out, like->attr);
    if (!own) return kolo_graph_check(m->g);
    own->unit = n->unit;
    for (int o = 0; o < n->n_out; o++) m->block[n->out[o].id][k] = own->out[o];
    return KOLO_OK;
}

/* Each node divides its parameters anew: others that read them may be on another stage. */
static void forget_blocks(const merger *m, const kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        const bool leaf = is_divided(m, n->in[k]) && kolo_info(m->g, n->in[k])->producer < 0;
        if (leaf) m->block[n->in[k].id][0] = KOLO_NONE;
    }
}

/* Computes a node for each block: itself for the first. */
static kolo_status repeat(const merger *m, kolo_replacer *r, kolo_node *n, int32_t i) {
    kolo_value in[KOLO_MAX_IO], own[KOLO_MAX_IO];
    int n_in;
    if (n->op->comm != KOLO_OP_LOCAL || n->halo || kolo_lstm_is_divided(n)) {
        return refuse(n, "its inputs are divided");
    }
    memcpy(in, n->in, (size_t)n->n_in * sizeof *in);
    forget_blocks(m, n);
    for (int k = 1; k < m->n; k++) {
        KOLO_TRY(find_inputs(m, n, k, in, own, &n_in));
        KOLO_TRY(add_like(m, n, k, i, own, n_in));
    }
    KOLO_TRY(find_inputs(m, n, 0, in, own, &n_in));
    memcpy(n->in, own, (size_t)n_in * sizeof *own);
    for (int o = 0; o < n->n_out; o++) m->block[n->out[o].id][0] = n->out[o];
    return kolo_replacer_take(r);
}

static kolo_status visit(kolo_replacer *r, kolo_node *n, void *arg, bool *replaced) {
    merger *m = arg;
    const int32_t i = m->visited++;
    bool divided = false;
    for (int k = 0; k < n->n_in; k++) divided |= is_divided(m, n->in[k]);
    for (int k = 0; k < n->n_out; k++) divided |= is_divided(m, n->out[k]);
    if (!divided) return KOLO_OK;
    *replaced = n->op->comm == KOLO_OP_REDISTRIBUTE;
    return *replaced ? move(m, r, n) : repeat(m, r, n, i);
}

/* Outputs of which the blocks have slices become those of the rank. */
static kolo_status join_outputs(const merger *m) {
    kolo_graph *g = m->g;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_value v = g->outputs[i].value;
        if (!is_divided(m, v)) continue;
        kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
        set_runs(m, v, kolo_info(g, v)->tensor.shape.dim[m->was[v.id].dim], attr);
        const kolo_value whole =
            kolo_graph_add1(g, &kolo_op_interleave, m->block[v.id], m->n, attr);
        KOLO_TRY(kolo_graph_check(g));
        KOLO_TRY(kolo_node_propagate(g, g->nodes[kolo_info(g, whole)->producer]));
        g->outputs[i].value = whole;
        if (m->alone) g->outputs[i].whole = (kolo_shape){.rank = 0};
    }
    return KOLO_OK;
}

static kolo_status merge(merger *m, const kolo_mesh *mesh, int rank) {
    kolo_arena arena = {0};
    m->n_values = m->g->n_values;
    m->was = kolo_arena_alloc(&arena, (size_t)m->n_values * sizeof *m->was);
    m->block = kolo_arena_alloc(&arena, (size_t)m->n_values * sizeof *m->block);
    m->g->mesh = *mesh;
    m->g->rank = rank;
    kolo_status status =
        m->was && m->block ? prepare(m) : KOLO_NOMEM((size_t)m->n_values * sizeof *m->block);
    if (status == KOLO_OK) status = kolo_replace_nodes(m->g, visit, m);
    if (status == KOLO_OK) status = join_outputs(m);
    kolo_arena_fini(&arena);
    return status;
}

/* ---- the graphs of the blocks ---- */

/* The rank of block k of this rank where each has one. */
static int rank_of(const merger *m, const kolo_mesh *mesh, int rank, int k) {
    int number = 0;
    for (int a = 0; a < m->mesh.n_axes; a++) {
        int at = a < mesh->n_axes ? kolo_mesh_coordinate(mesh, rank, a) : 0;
        if (a == m->axis) at = at * m->n + k;
        number = number * m->mesh.axes[a].size + at;
    }
    return number;
}

static kolo_status partition_all(const merger *m, const kolo_mesh *mesh, int rank,
                                 const char *rules, bool sharded_outputs) {
    for (int k = 0; k < m->n; k++) {
        m->of[k]->mesh = m->mesh;
        m->of[k]->rank = rank_of(m, mesh, rank, k);
        KOLO_TRY(kolo_partition_graph(m->of[k], rules, sharded_outputs, true));
        KOLO_ASSERT(m->of[k]->n_values == m->g->n_values && m->of[k]->n_nodes == m->g->n_nodes);
    }
    return KOLO_OK;
}

kolo_status kolo_pass_blocks(kolo_graph *g, const char *rules, bool sharded_outputs, int blocks) {
    const kolo_mesh mesh = g->mesh;
    const int rank = g->rank, found = kolo_mesh_find(&mesh, "tp");
    const int ranks = found >= 0 ? mesh.axes[found].size : 1;
    merger m = {.g = g,
                .of = {g},
                .n = blocks / ranks,
                .all = blocks,
                .mesh = mesh,
                .axis = found >= 0 ? found : mesh.n_axes,
                .alone = ranks == 1};
    KOLO_ASSERT(m.n * ranks == blocks && m.n <= KOLO_MAX_IO && m.axis < KOLO_MESH_AXES);
    if (found < 0) m.mesh.n_axes++;
    m.mesh.axes[m.axis] = (kolo_mesh_axis){"tp", blocks};
    kolo_status status = KOLO_OK;
    for (int k = 1; k < m.n && status == KOLO_OK; k++) status = kolo_graph_copy(g, &m.of[k]);
    if (status == KOLO_OK) status = partition_all(&m, &mesh, rank, rules, sharded_outputs);
    if (status == KOLO_OK) status = merge(&m, &mesh, rank);
    if (status == KOLO_OK) g->blocks = blocks;
    for (int k = 1; k < m.n; k++) kolo_graph_destroy(m.of[k]);
    return status;
}
