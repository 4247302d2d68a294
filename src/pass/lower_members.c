/* The members of buckets: which collective a redistribution is, which nodes make and read it, and
 * whether the collective may overwrite what it sends. */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/lower_comm.h"
#include "pass/slices.h"

#include <limits.h>
#include <string.h>

/* Whether a collective may overwrite v: its memory is that of the output of a node that runs, not
 * of another redistribution, and of no other member. Sums inside the passes also need that nothing
 * else reads it, as the reader may need the sum; other POSTs wait for such readers. */
static bool owns_memory(const lowerer *b, kolo_value v, member_class class) {
    for (;;) {
        int32_t producer = kolo_info(b->g, v)->producer;
        if (producer < 0 || b->posted[v.id] >= 0) return false;
        if (class >= INSIDE && b->reads[v.id] > 1) return false;
        const kolo_op *op = b->g->nodes[producer]->op;
        if (op->comm == KOLO_OP_REDISTRIBUTE) return false;
        if (!op->view) return true;
        v = b->g->nodes[producer]->in[0];
    }
}

/* Marks the memory of v as that of the member with this result. */
static void own_memory(const lowerer *b, kolo_value v, kolo_value synced) {
    b->posted[v.id] = synced.id;
    int32_t producer = kolo_info(b->g, v)->producer;
    if (b->g->nodes[producer]->op->view) own_memory(b, b->g->nodes[producer]->in[0], synced);
}

/* Whether v is made by a node that runs. */
static bool is_computed(const kolo_graph *g, kolo_value v) {
    const int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 && g->nodes[producer]->op->comm == KOLO_OP_LOCAL;
}

/* Chooses what members post: their sources, or copies of these. */
static kolo_status choose_values(const lowerer *b) {
    for (int i = 0; i < b->n_members; i++) {
        lower_member *m = &b->members[i];
        const bool halo = kolo_axis_of_halo(&b->g->mesh, m->move) >= 0; /* it only reads rows */
        if (halo ? !is_computed(b->g, m->value) : !owns_memory(b, m->value, m->class)) {
            const kolo_value_info source = *kolo_info(b->g, m->value);
            m->value = kolo_graph_add1(b->g, &kolo_op_reorder, &m->value, 1, NULL);
            KOLO_TRY(kolo_graph_check(b->g));
            kolo_info(b->g, m->value)->tensor = source.tensor;
            kolo_info(b->g, m->value)->placements = source.placements;
        }
        if (!halo) own_memory(b, m->value, m->synced);
        m->made = kolo_info(b->g, m->value)->producer;
    }
    return KOLO_OK;
}

static kolo_status refuse(const kolo_graph *g, const kolo_redistribution *move) {
    char from[KOLO_PLACEMENT_TEXT], to[KOLO_PLACEMENT_TEXT];
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "no collective of a plan redistributes [%s] to [%s]",
                     kolo_placements_text(&g->mesh, &move->from, from),
                     kolo_placements_text(&g->mesh, &move->to, to));
}

static bool is_whole(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_INVARIANT || p->kind == KOLO_PLACEMENT_REPLICATED;
}

static bool is_flat(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim == KOLO_DIM_FLAT && p->cuts;
}

/* Equal slices, which lie one behind the other: of dimension 0, or stacked (slices.c). */
static bool is_rows(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_SHARDED && p->dim != KOLO_DIM_FLAT && !p->cuts &&
           p->blocks < 2;
}

/* What a redistribution becomes along one axis. False: nothing that a plan has. */
static bool class_on(const kolo_placement *from, const kolo_placement *to, member_class *class) {
    bool sum = from->kind == KOLO_PLACEMENT_PARTIAL && from->op == KOLO_SUM;
    if (is_whole(to) && from->kind == KOLO_PLACEMENT_PARTIAL) {
        *class = METRIC;
    } else if (is_whole(to) && from->kind == KOLO_PLACEMENT_LOCAL) {
        *class = ROWS;
    } else if (is_flat(to) && sum) {
        *class = SCATTER;
    } else if (is_whole(to) && is_flat(from)) {
        *class = GATHER;
    } else if (is_whole(to) && is_rows(from)) {
        *class = COLLECT;
    } else if (is_rows(to) && sum) {
        *class = DEAL;
    } else {
        return false;
    }
    return true;
}

/* Whether dimensions of slices are counted anew, where slices of another axis are stacked along a
 * dimension of their own (slices.c). */
static bool is_shifted(const kolo_graph *g, const kolo_node *n, int axis) {
    const kolo_placement *from = &n->move->from.axis[axis], *to = &n->move->to.axis[axis];
    return kolo_info(g, n->in[0])->tensor.shape.rank !=
               kolo_info(g, n->out[0])->tensor.shape.rank &&
           from->kind == KOLO_PLACEMENT_SHARDED && to->kind == KOLO_PLACEMENT_SHARDED;
}

/* Whether a redistribution changes nothing along an axis. */
static bool is_same(const kolo_placement *from, const kolo_placement *to, int size) {
    return (is_whole(from) && is_whole(to)) || kolo_placement_equal(from, to, size);
}

/* What a redistribution becomes; METRIC unless a node reads the sum. UNSUPPORTED: nothing that a
 * plan has, or of different kinds on several axes. */
static kolo_status class_of(const kolo_graph *g, const kolo_node *n, member_class *class,
                            kolo_axes *among, kolo_reduce_op *op) {
    int axes = 0;
    *class = METRIC;
    *among = 0;
    *op = KOLO_SUM;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        member_class on_axis;
        if (is_same(from, to, g->mesh.axes[a].size) || is_shifted(g, n, a)) continue;
        if (g->mesh.axes[a].size > 1) {
            if (*among && *op != from->op) return refuse(g, n->move);
            *among |= (kolo_axes)1 << a;
            *op = from->op;
        }
        if (g->mesh.axes[a].size > 1 && (is_exchanged(from) || is_exchanged(to))) {
            on_axis = EXCHANGE;
        } else if (!class_on(from, to, &on_axis)) {
            if (g->mesh.axes[a].size > 1) return refuse(g, n->move);
            continue;
        }
        bool slices = on_axis == COLLECT || on_axis == DEAL;
        if (slices && g->mesh.axes[a].size == 1) continue; /* one rank has all of them */
        const bool joins = *class == on_axis && (on_axis == METRIC || on_axis == ROWS);
        if (axes++ > 0 && !joins) return refuse(g, n->move);
        *class = on_axis;
    }
    return KOLO_OK;
}

/* Whether a redistribution only states which gradient the ranks compute; makes it a view. */
static bool make_view(const kolo_graph *g, kolo_node *n) {
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (!is_same(from, to, g->mesh.axes[a].size)) return false;
    }
    n->op = &kolo_op_own_range;
    n->attr[KOLO_RANGE_FIRST].i = 0;
    return true;
}

/* Whether a redistribution makes a summand of a whole, or a version; all ranks but one multiply it
 * by 0. The ids of rows stay, of which the rows are 0. */
static bool make_pad(const kolo_graph *g, kolo_node *n) {
    bool keeps = true, pads = false;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (is_same(from, to, g->mesh.axes[a].size)) continue;
        const bool own = to->kind == KOLO_PLACEMENT_PARTIAL || to->kind == KOLO_PLACEMENT_LOCAL;
        if (!is_whole(from) || !own) return false;
        pads = true;
        keeps &= kolo_mesh_coordinate(&g->mesh, g->rank, a) == 0;
    }
    if (!pads) return false;
    const bool ids = kolo_info(g, n->in[0])->tensor.dtype == KOLO_DTYPE_I32;
    n->op = ids ? &kolo_op_own_range : &kolo_op_scale;
    memset(n->attr, 0, sizeof n->attr);
    if (!ids) n->attr[KOLO_SCALE_FACTOR].f = keeps;
    return true;
}

/* Whether a redistribution only drops what other ranks hold; makes it a view. */
static bool make_slice(const kolo_graph *g, kolo_node *n) {
    int64_t first = -1, count = kolo_tensor_elements(&kolo_info(g, n->out[0])->tensor);
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const kolo_placement *from = &n->move->from.axis[a], *to = &n->move->to.axis[a];
        if (is_same(from, to, g->mesh.axes[a].size)) continue;
        if (!is_whole(from) || !(is_rows(to) || is_flat(to)) || is_exchanged(to)) return false;
        if (is_rows(to)) first = kolo_mesh_coordinate(&g->mesh, g->rank, a) * count;
    }
    if (first < 0 && !kolo_flat_range(g, n->out[0], &first, &count)) return false;
    n->op = &kolo_op_own_range;
    n->attr[KOLO_RANGE_FIRST].i = first;
    return true;
}

static kolo_status collect(lowerer *b) {
    kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) b->reads[n->in[k].id]++;
        bool moves = n->op->comm == KOLO_OP_REDISTRIBUTE && !make_view(g, n) && !make_pad(g, n) &&
                     !make_slice(g, n);
        if (!moves) continue;
        lower_member m = {.value = n->in[0], .synced = n->out[0], .move = n->move};
        m.of_leaf = kolo_info(g, m.value)->producer < 0;
        m.held = -1;
        m.read = INT32_MAX;
        m.unit = (int)n->attr[KOLO_REDISTRIBUTE_UNIT].i;
        m.place = (int)n->attr[KOLO_REDISTRIBUTE_PLACE].i;
        m.early = n->attr[KOLO_REDISTRIBUTE_EARLY].i;
        m.late = n->recomputed && kolo_axis_of_halo(&g->mesh, n->move) >= 0;
        m.dtype = kolo_info(g, m.value)->tensor.dtype;
        KOLO_TRY(class_of(g, n, &m.class, &m.axes, &m.op));
        bool in_place = m.class == GATHER && kolo_value_ok(kolo_info(g, m.synced)->next_of);
        if (in_place) m.class = JOIN;
        b->member_of[m.synced.id] = m.order = b->n_members;
        b->members[b->n_members++] = m;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) b->reads[g->outputs[i].value.id]++;
    return KOLO_OK;
}

/* A node reads a member's result. UNSUPPORTED: rows, for another node than an update. */
static kolo_status find_class(const kolo_graph *g, lower_member *m, int32_t node, bool update) {
    if (m->read > node) m->read = node;
    if (m->class == METRIC) m->class = SUM;
    if (update) return KOLO_OK;
    m->inside = true;
    if (m->class == SUM) m->class = INSIDE;
    return m->class == ROWS ? refuse(g, m->move) : KOLO_OK;
}

/* Whether an output is sent to another stage, in each micro-batch. */
static bool is_sent(const kolo_named_value *output) { return output->crossing.number > 0; }

/* Whether a node is of an update: or a view that makes a range of a sum for one. */
static bool is_for_update(const kolo_graph *g, const kolo_node *n) {
    if (n->op != &kolo_op_own_range) return kolo_node_is_update(g, n);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == n->out[0].id && is_sent(&g->outputs[i])) return false;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const bool reads = g->nodes[i]->in[k].id == n->out[0].id;
            if (reads && !kolo_node_is_update(g, g->nodes[i])) return false;
        }
    }
    return true;
}

/* Who reads the results: classes and first readers; and the last readers, in the passes, of the
 * parameters that their readers update. last_reader: by value, zeroed. */
static kolo_status find_readers(const lowerer *b, int32_t *last_reader) {
    const kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool update = kolo_node_is_update(g, n);
        for (int k = 0; k < n->n_in; k++) {
            int m = b->member_of[n->in[k].id];
            if (!update && n->op->comm == KOLO_OP_LOCAL) last_reader[n->in[k].id] = i;
            if (m >= 0) KOLO_TRY(find_class(g, &b->members[m], i, update || is_for_update(g, n)));
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const int m = b->member_of[g->outputs[i].value.id];
        if (m < 0 || !is_sent(&g->outputs[i])) continue;
        KOLO_TRY(find_class(g, &b->members[m], g->n_nodes, false));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        int32_t last = 0;
        if (!kolo_node_is_update(g, n)) continue;
        for (int k = 0; k < n->n_in; k++) {
            bool synced = b->member_of[n->in[k].id] >= 0;
            if (!synced && last_reader[n->in[k].id] > last) last = last_reader[n->in[k].id];
        }
        for (int k = 0; k < n->n_in; k++) {
            int m = b->member_of[n->in[k].id];
            if (m < 0 || b->members[m].class == INSIDE || b->members[m].early) continue;
            if (last > 0 && last > b->members[m].held) b->members[m].held = last;
        }
    }
    return KOLO_OK;
}

/* Sums of which one leads to the other cannot share a bucket. Those inside the passes lead to no
 * other of them. Sums of an update, such as norms, have a stage of at least 1. stage: by value,
 * zeroed. */
static void find_stages(const lowerer *b, int *stage) {
    const kolo_graph *g = b->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        int own = 0;
        for (int k = 0; k < n->n_in; k++) {
            if (stage[n->in[k].id] > own) own = stage[n->in[k].id];
        }
        int m = n->op->comm == KOLO_OP_REDISTRIBUTE ? b->member_of[n->out[0].id] : -1;
        int32_t producer = m >= 0 ? kolo_info(g, n->in[0])->producer : -1;
        if (own == 0 && producer >= 0 && kolo_node_is_update(g, g->nodes[producer])) own = 1;
        if (m >= 0) b->members[m].stage = own;
        if (m >= 0 && !b->members[m].inside) own++;
        for (int k = 0; k < n->n_out; k++) stage[n->out[k].id] = own;
    }
}

/* Marks gradients of parameters that several stages of a pipeline have. */
static void find_tied(const lowerer *b) {
    const kolo_graph *g = b->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *param = &g->values[v];
        const bool tied = (param->holders & (param->holders - 1)) != 0;
        if (param->kind != KOLO_VALUE_PARAM || !tied || !kolo_value_ok(param->grad)) continue;
        for (int i = 0; i < b->n_members; i++) {
            lower_member *m = &b->members[i];
            m->tied |= m->value.id == param->grad.id || m->synced.id == param->grad.id;
        }
    }
}

/* The first parameter that the passes read, of those that updates change; -1: there is none. */
static int32_t first_parameter(const kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_LOCAL || kolo_node_is_update(g, n)) continue;
        for (int k = 0; k < n->n_in; k++) {
            const kolo_value_info *info = kolo_info(g, n->in[k]);
            const bool trained = info->kind == KOLO_VALUE_PARAM && kolo_value_ok(info->grad);
            if (trained) return n->in[k].id;
        }
    }
    return -1;
}

/* Marks the sums of what is computed behind the gradient of that parameter. */
static void find_behind(const lowerer *b) {
    const kolo_graph *g = b->g;
    const int32_t first = b->ahead ? first_parameter(g) : -1;
    int32_t made = INT32_MAX;
    for (int32_t i = 0; i < g->n_nodes && first >= 0; i++) {
        const kolo_node *n = g->nodes[i];
        bool updates = false;
        for (int k = 0; k < n->n_in; k++) updates |= n->in[k].id == first;
        for (int k = 0; k < n->n_in && updates && kolo_node_is_update(g, n); k++) {
            const int m = b->member_of[n->in[k].id];
            if (m >= 0) made = b->members[m].made;
        }
    }
    for (int i = 0; i < b->n_members; i++) {
        b->members[i].behind = b->members[i].class == SUM && b->members[i].made > made;
    }
}

/* Marks the chunks of a stage, which run at different times. */
static kolo_status find_chunks(const lowerer *b) {
    const kolo_graph *g = b->g;
    if (g->chunks <= 1) return KOLO_OK;
    kolo_node_chunks *chunks = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *chunks);
    if (!chunks) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *chunks);
    kolo_status status = kolo_find_chunks(g, chunks);
    for (int i = 0; status == KOLO_OK && i < b->n_members; i++) {
        const int32_t made = kolo_info(g, b->members[i].value)->producer;
        b->members[i].chunks = made >= 0 ? chunks[made].bits : 0;
    }
    kolo_free(chunks);
    return status;
}

kolo_status kolo_lower_find_members(lowerer *b, int32_t *last_reader, int *stage) {
    KOLO_TRY(collect(b));
    if (b->n_members == 0) return KOLO_OK;
    KOLO_TRY(find_readers(b, last_reader));
    find_stages(b, stage);
    find_tied(b);
    KOLO_TRY(find_chunks(b));
    KOLO_TRY(choose_values(b));
    find_behind(b);
    return KOLO_OK;
}
