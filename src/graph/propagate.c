/* Placement propagation, one axis of the mesh at a time. */
#include "graph/propagate.h"

#include "graph/index.h"

#include <stdio.h>
#include <string.h>

/* One axis, for one node. */
typedef struct axis_query {
    const kolo_graph *g;
    const kolo_node *n;
    const kolo_index *index;
    const kolo_mesh_axis *axis;
    kolo_placement in[KOLO_MAX_IO];
    kolo_placement out[KOLO_MAX_IO];
} axis_query;

static bool is_whole(const kolo_placement *p) {
    return p->kind == KOLO_PLACEMENT_INVARIANT || p->kind == KOLO_PLACEMENT_REPLICATED;
}

static bool is_sharded(const kolo_placement *p) { return p->kind == KOLO_PLACEMENT_SHARDED; }

static bool has(const axis_query *q, kolo_placement_kind kind) {
    for (int k = 0; k < q->n->n_in; k++) {
        if (q->in[k].kind == kind) return true;
    }
    return false;
}

/* ARG: "linear: input 1 (fc1.weight) is placed dp:partial; WHAT". */
static kolo_status refuse(const axis_query *q, int input, const char *what) {
    kolo_placements placements = {.axis[0] = q->in[input]};
    const kolo_mesh mesh = {1, {*q->axis}};
    char text[KOLO_PLACEMENT_TEXT];
    const char *name = kolo_info(q->g, q->n->in[input])->name;
    if (is_whole(&q->in[input])) {
        snprintf(text, sizeof text, "%s:invariant", q->axis->name);
    } else {
        (void)kolo_placements_text(&mesh, &placements, text);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "%s: input %d (%s) is placed %s; %s", q->n->op->name, input,
                     name ? name : "an activation", text, what);
}

/* A fused ReLU makes an op nonlinear. */
static bool is_nonlinear(const kolo_node *n) {
    return n->op->fuse.relu && n->attr[n->op->fuse.relu - 1].i != 0;
}

static bool is_linear(const kolo_node *n, int input) {
    return (n->op->linear >> input & 1) && !is_nonlinear(n);
}

/* ---- sharded inputs ---- */

/* The index that a sharded input is cut along; 0: none, the dimension must be whole. A flat shard
 * of an elementwise op is cut along all of *. */
static int cut_index(const axis_query *q, int k) {
    const kolo_index_term *term = &q->index->in[k];
    if (q->in[k].dim == KOLO_DIM_FLAT) return term->is_star ? KOLO_DIM_FLAT : 0;
    const int code = kolo_index_of_cut(term, &q->in[k]);
    return code & KOLO_INDEX_WHOLE ? 0 : code;
}

/* The dimension of a term that has the index; -1: none. */
static int dimension_of(const kolo_index_term *term, int code) {
    if (code == KOLO_DIM_FLAT) return term->is_star ? KOLO_DIM_FLAT : -1;
    return kolo_index_find(term, code);
}

/* The placement of a tensor that is cut along dimension `to` of a term as another one is along its
 * dimension `from`; whether the parts that dimensions consist of allow it. */
static bool cut_alike(const kolo_placement *cut, const kolo_index_term *term, int from,
                      const kolo_index_term *other, int to, kolo_placement *placement) {
    *placement = *cut;
    placement->dim = to;
    if (from == KOLO_DIM_FLAT || to == KOLO_DIM_FLAT) return true;
    const int code = kolo_index_of_cut(term, cut);
    const int64_t parts = kolo_index_parts(term, from, code),
                  others = kolo_index_parts(other, to, code), blocks = cut->blocks;
    placement->blocks = (int)((blocks > 0 ? blocks : 1) / parts * others);
    if (cut->zigzag && (term->parts[from] > 1 || other->parts[to] > 1)) return false;
    return (blocks > 0 ? blocks : 1) % parts == 0 && (!cut->cuts || parts == others);
}

static bool is_independent(const kolo_index_term *term, int code) {
    for (int i = 0; i < term->n_without; i++) {
        if (term->without[i] == code) return true;
    }
    return false;
}

/* Whether slices along an index each give a version of an output: those of the samples, and others
 * that no output has. */
static bool has_versions(const axis_query *q, const kolo_index_term *term, int code) {
    if (!term->by_shard || code == KOLO_DIM_FLAT) return false;
    if (code == 'n') return true;
    for (int k = 0; k < q->n->n_out; k++) {
        if (kolo_index_find(&q->index->out[k], code) >= 0) return false;
    }
    return is_independent(term, code);
}

/* Adds the halo, or its summands, to the placement of a term with a window along the index. */
static void add_halo(const axis_query *q, const kolo_index_term *term, int code, bool output,
                     kolo_placement *placement) {
    const kolo_halo *halo = q->n->halo;
    if (code == KOLO_DIM_FLAT || !kolo_index_is_window(term, code) || !halo || halo->own) return;
    placement->halo = halo;
    placement->summands = output;
}

/* The cut that all tensors with the index have: that of an input without its halo. */
static kolo_placement bare(const kolo_placement *cut) {
    kolo_placement slice = *cut;
    slice.halo = NULL;
    slice.summands = false;
    return slice;
}

/* Whether a node is divided along the windows that it has. */
static kolo_status check_window(const axis_query *q, int code, int first) {
    bool windows = false;
    for (int k = 0; k < q->n->n_in + q->n->n_out && code != KOLO_DIM_FLAT; k++) {
        windows |= kolo_index_is_window(
            k < q->n->n_in ? &q->index->in[k] : &q->index->out[k - q->n->n_in], code);
    }
    if (!windows || q->n->halo) return KOLO_OK;
    return refuse(q, first, "the op has a window along this dimension, and needs it whole");
}

/* Whether every input that has the index is cut along it, alike, and no other is cut. */
static kolo_status check_cut(const axis_query *q, int code, int first) {
    const kolo_placement slice = bare(&q->in[first]), *cut = &slice;
    KOLO_TRY(check_window(q, code, first));
    for (int k = 0; k < q->n->n_in; k++) {
        int d = dimension_of(&q->index->in[k], code);
        if (d < 0) {
            if (is_whole(&q->in[k])) continue;
            if (q->in[k].kind == KOLO_PLACEMENT_LOCAL && q->index->in[k].by_shard) continue;
            if (q->in[k].kind == KOLO_PLACEMENT_PARTIAL) continue; /* see check_addends */
            return refuse(q, k, "it has to be whole beside the sharded inputs");
        }
        kolo_placement want;
        if (!cut_alike(cut, &q->index->in[first], cut->dim, &q->index->in[k], d, &want)) {
            return refuse(q, first, "each part of the dimension has to be sharded");
        }
        add_halo(q, &q->index->in[k], code, false, &want);
        if (want.halo && !q->in[k].halo) {
            return refuse(q, k, "it needs the rows beyond its slice that the window reads");
        }
        if (!kolo_placement_equal(&want, &q->in[k], q->axis->size)) {
            return refuse(q, k, "it has to be sharded as the other inputs are");
        }
    }
    return KOLO_OK;
}

/* Whether each addend is a summand on every rank: it is summed over the index, or has a factor that
 * is PARTIAL. */
static kolo_status check_addends(const axis_query *q, int code) {
    for (int addend = 0; addend < q->index->n_addends; addend++) {
        int linear = 0, other = 0, first = -1;
        bool summed = false;
        for (int k = 0; k < q->n->n_in; k++) {
            if (q->index->in[k].addend != addend) continue;
            if (first < 0) first = k;
            if (code && dimension_of(&q->index->in[k], code) >= 0) summed = true;
            if (q->in[k].kind != KOLO_PLACEMENT_PARTIAL) continue;
            if (is_linear(q->n, k) && q->in[k].op == KOLO_SUM) {
                linear++;
            } else {
                other = k + 1;
            }
        }
        if (other) return refuse(q, other - 1, "sum it over the ranks first");
        if (first < 0) continue; /* an optional input that is not there */
        if (linear + summed == 1) continue;
        if (linear + summed > 1) return refuse(q, first, "a product of two sums is no sum");
        return refuse(q, first, "each rank would add it to its summand: make it partial");
    }
    return KOLO_OK;
}

static kolo_status sharded(axis_query *q) {
    int first = 0;
    while (q->in[first].kind != KOLO_PLACEMENT_SHARDED) first++;
    int code = cut_index(q, first);
    if (!code) return refuse(q, first, "the op needs this dimension whole");
    KOLO_TRY(check_cut(q, code, first));
    bool partial = has(q, KOLO_PLACEMENT_PARTIAL);
    for (int k = 0; k < q->n->n_out; k++) {
        const kolo_index_term *term = &q->index->out[k];
        int d = dimension_of(term, code);
        if (d >= 0) {
            const bool inner = code != KOLO_DIM_FLAT && term->inner[d] == code;
            if (inner && q->in[first].depth != KOLO_DEPTH_POSITIONS) {
                return refuse(q, first, "the op needs this dimension whole"); /* to merge it */
            }
            if (partial) return refuse(q, first, "it is cut where another input is a summand");
            const kolo_placement slice = bare(&q->in[first]);
            (void)cut_alike(&slice, &q->index->in[first], slice.dim, term, d, &q->out[k]);
            add_halo(q, term, code, true, &q->out[k]);
        } else if (has_versions(q, term, code)) {
            q->out[k].kind = KOLO_PLACEMENT_LOCAL;
        } else if (!is_independent(term, code)) {
            if (is_nonlinear(q->n)) return refuse(q, first, "the op is no sum over this index");
            KOLO_TRY(check_addends(q, code));
            q->out[k].kind = KOLO_PLACEMENT_PARTIAL;
            q->out[k].op = q->n->op->combine;
        }
    }
    return KOLO_OK;
}

/* ---- the others ---- */

static kolo_status partial(axis_query *q) {
    KOLO_TRY(check_addends(q, 0));
    for (int k = 0; k < q->n->n_out; k++) q->out[k].kind = KOLO_PLACEMENT_PARTIAL;
    return KOLO_OK;
}

static kolo_status at(axis_query *q) {
    int first = 0;
    while (q->in[first].kind != KOLO_PLACEMENT_AT) first++;
    const kolo_placement *where = &q->in[first];
    for (int k = 0; k < q->n->n_in; k++) {
        if (is_whole(&q->in[k]) || kolo_placement_equal(where, &q->in[k], q->axis->size)) continue;
        return refuse(q, k, "it has to be where the other inputs are");
    }
    for (int k = 0; k < q->n->n_out; k++) q->out[k] = *where;
    return KOLO_OK;
}

/* An op without a notation needs whole inputs. */
static kolo_status whole(const axis_query *q) {
    for (int k = 0; k < q->n->n_in; k++) {
        if (is_whole(&q->in[k])) continue;
        return refuse(q, k, "the op has no index notation, so it needs its inputs whole");
    }
    return KOLO_OK;
}

static kolo_status propagate_axis(axis_query *q) {
    if (!q->index) return whole(q);
    if (has(q, KOLO_PLACEMENT_AT)) return at(q);
    if (has(q, KOLO_PLACEMENT_SHARDED)) return sharded(q);
    if (has(q, KOLO_PLACEMENT_PARTIAL)) return partial(q);
    bool local = has(q, KOLO_PLACEMENT_LOCAL);
    for (int k = 0; k < q->n->n_out && local; k++) q->out[k].kind = KOLO_PLACEMENT_LOCAL;
    return KOLO_OK;
}

/* ---- nodes ---- */

static bool same_data(const kolo_placement *a, const kolo_placement *b, int size) {
    return (is_whole(a) && is_whole(b)) || kolo_placement_equal(a, b, size);
}

/* Whether a value is placed as a redistribution expects; an axis of one rank does not matter. */
static bool is_source(const kolo_mesh *mesh, const kolo_placements *is,
                      const kolo_placements *from) {
    for (int i = 0; i < mesh->n_axes; i++) {
        int size = mesh->axes[i].size;
        if (size > 1 && !same_data(&is->axis[i], &from->axis[i], size)) return false;
    }
    return true;
}

bool kolo_placements_same_data(const kolo_mesh *mesh, const kolo_placements *a,
                               const kolo_placements *b) {
    for (int i = 0; i < mesh->n_axes; i++) {
        if (!same_data(&a->axis[i], &b->axis[i], mesh->axes[i].size)) return false;
    }
    return true;
}

int kolo_axis_of_halo(const kolo_mesh *mesh, const kolo_redistribution *move) {
    for (int i = 0; i < mesh->n_axes; i++) {
        const kolo_placement *from = &move->from.axis[i], *to = &move->to.axis[i];
        const bool moves = !same_data(from, to, mesh->axes[i].size);
        if (moves && (from->halo || to->halo)) return i;
    }
    return -1;
}

bool kolo_redistribution_is_local(const kolo_mesh *mesh, const kolo_redistribution *move) {
    for (int i = 0; i < mesh->n_axes; i++) {
        const kolo_placement *from = &move->from.axis[i], *to = &move->to.axis[i];
        if (!is_whole(from) && !same_data(from, to, mesh->axes[i].size)) return false;
    }
    return true;
}

static const kolo_placements *placements_of(const kolo_graph *g, kolo_value v) {
    return &kolo_info(g, v)->placements;
}

/* Redistribute, encode, post: what is in flight is placed as it will be. */
static kolo_status redistribute(kolo_graph *g, const kolo_node *n) {
    for (int k = 0; k < n->n_out; k++) {
        const kolo_placements *in = placements_of(g, n->in[k]);
        kolo_info(g, n->out[k])->placements = n->move[k].to;
        if (is_source(&g->mesh, in, &n->move[k].from)) continue;
        char have[KOLO_PLACEMENT_TEXT], want[KOLO_PLACEMENT_TEXT];
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: its source is placed [%s], not [%s]", n->op->name,
                         kolo_placements_text(&g->mesh, in, have),
                         kolo_placements_text(&g->mesh, &n->move[k].from, want));
    }
    return KOLO_OK;
}

static void take_over(kolo_graph *g, const kolo_node *n) {
    for (int k = 0; k < n->n_out; k++) {
        kolo_info(g, n->out[k])->placements = *placements_of(g, n->in[k]);
    }
}

/* One rank runs any op: it holds all samples. Models that more ranks cannot share, such as one with
 * a parameter for each sample, still train on one. */
static void alone(axis_query *q) {
    for (int k = 0; k < q->n->n_out; k++) {
        bool scalar = kolo_info(q->g, q->n->out[k])->tensor.shape.rank == 0;
        q->out[k] =
            (kolo_placement){.kind = scalar ? KOLO_PLACEMENT_PARTIAL : KOLO_PLACEMENT_SHARDED};
    }
}

static bool all_whole(const kolo_graph *g, const kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        const kolo_placements *in = placements_of(g, n->in[k]);
        if (!kolo_placements_same_data(&g->mesh, in, &(kolo_placements){0})) return false;
    }
    return true;
}

/* A range of a slice is cut along all of its elements by the axis of the slice too; false: v is
 * none. */
static bool is_range_of_slice(const kolo_graph *g, kolo_value v, int axis) {
    const kolo_placements *p = placements_of(g, v);
    bool range = false;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        range |= p->axis[a].kind == KOLO_PLACEMENT_SHARDED && p->axis[a].dim == KOLO_DIM_FLAT;
    }
    return range && p->axis[axis].kind == KOLO_PLACEMENT_SHARDED &&
           p->axis[axis].dim != KOLO_DIM_FLAT;
}

/* Inputs that hold the positions of another rank are as whole ones for this rank; `turned` gets
 * their placement. ARG: they are those of another rank than the node computes with. */
static kolo_status take_turned(axis_query *q, kolo_placement *turned) {
    const int64_t turn = q->n->op->ring.turn > 0 ? q->n->attr[q->n->op->ring.turn - 1].i : 0;
    for (int k = 0; k < q->n->n_in && turn > 0; k++) {
        if (!(q->n->op->ring.in >> k & 1)) continue;
        if (!is_sharded(&q->in[k]) || q->in[k].depth != KOLO_DEPTH_POSITIONS) {
            continue;
        }
        if (q->in[k].rotation % q->axis->size != turn % q->axis->size) {
            return refuse(q, k, "it has to be rotated as the node states");
        }
        *turned = q->in[k];
        q->in[k] = (kolo_placement){0};
    }
    return KOLO_OK;
}

/* Whether a node copies its input, element by element: to another layout or type. */
static bool is_copy(const axis_query *q) {
    return q->index && q->n->n_in == 1 && q->n->n_out == 1 && q->index->in[0].is_star &&
           q->index->out[0].is_star && is_linear(q->n, 0);
}

/* One axis of a node. */
static kolo_status compute_axis(axis_query *q, int axis) {
    kolo_placement turned = {0};
    const kolo_placement *slice = NULL; /* of which inputs are ranges */
    const kolo_placement *first = &placements_of(q->g, q->n->in[0])->axis[axis];
    if (is_sharded(first) && first->halo && is_copy(q)) {
        q->out[0] = *first; /* with its halo */
        return KOLO_OK;
    }
    for (int k = 0; k < q->n->n_in; k++) {
        q->in[k] = placements_of(q->g, q->n->in[k])->axis[axis];
        if (!is_range_of_slice(q->g, q->n->in[k], axis)) continue;
        slice = &placements_of(q->g, q->n->in[k])->axis[axis];
        q->in[k].dim = KOLO_DIM_FLAT;
    }
    KOLO_TRY(take_turned(q, &turned));
    KOLO_TRY(propagate_axis(q));
    for (int k = 0; is_sharded(&turned) && k < q->n->n_out; k++) {
        if (q->n->op->ring.out >> k & 1) q->out[k] = turned;
    }
    for (int k = 0; slice && k < q->n->n_out; k++) {
        if (q->out[k].kind == KOLO_PLACEMENT_SHARDED) q->out[k] = *slice;
    }
    return KOLO_OK;
}

static kolo_status compute(kolo_graph *g, const kolo_node *n) {
    kolo_index index;
    for (int k = 0; k < n->n_out; k++) kolo_info(g, n->out[k])->placements = (kolo_placements){0};
    if (all_whole(g, n)) return KOLO_OK;
    const bool has_index = kolo_op_has_index(n->op);
    if (has_index) KOLO_TRY(kolo_index_of(g, n, &index));
    for (int a = 0; a < g->mesh.n_axes; a++) {
        axis_query q = {.g = g, .n = n, .axis = &g->mesh.axes[a]};
        if (has_index) q.index = &index;
        kolo_status status = compute_axis(&q, a);
        if (status != KOLO_OK && q.axis->size > 1) return status;
        if (status != KOLO_OK) alone(&q);
        for (int k = 0; k < n->n_out; k++) {
            kolo_info(g, n->out[k])->placements.axis[a] = q.out[k];
        }
    }
    return KOLO_OK;
}

static kolo_status propagate(kolo_graph *g, const kolo_node *n) {
    switch (n->op->comm) {
    case KOLO_OP_REDISTRIBUTE:
    case KOLO_OP_ENCODE:
    case KOLO_OP_SLICE:
    case KOLO_OP_POST:
        return redistribute(g, n);
    case KOLO_OP_WAIT:
        take_over(g, n);
        return KOLO_OK;
    case KOLO_OP_LOCAL:
        if (n->move) return redistribute(g, n); /* a pad */
        break;
    }
    return compute(g, n);
}

kolo_status kolo_node_propagate(kolo_graph *g, const kolo_node *n) {
    kolo_status status = propagate(g, n);
    if (status == KOLO_OK) return KOLO_OK;
    kolo_text line = {0};
    kolo_node_print(g, n, &line);
    status = kolo_fail_in(status, "%s", line.text ? line.text : n->op->name);
    kolo_text_fini(&line);
    return status;
}

/* ---- the graph ---- */

/* Whether a value can be the next version of another: any can of a LOCAL one. */
static bool may_become(const kolo_mesh *mesh, const kolo_placements *is,
                       const kolo_placements *was) {
    for (int i = 0; i < mesh->n_axes; i++) {
        bool local = was->axis[i].kind == KOLO_PLACEMENT_LOCAL;
        if (!local && !same_data(&is->axis[i], &was->axis[i], mesh->axes[i].size)) return false;
    }
    return true;
}

static kolo_status check_next(const kolo_graph *g, int32_t v) {
    kolo_value old = g->values[v].next_of;
    if (!kolo_value_ok(old)) return KOLO_OK;
    const kolo_placements *is = &g->values[v].placements, *was = placements_of(g, old);
    if (may_become(&g->mesh, is, was)) return KOLO_OK;
    char have[KOLO_PLACEMENT_TEXT], want[KOLO_PLACEMENT_TEXT];
    return KOLO_FAIL(KOLO_ERR_ARG, "the next version of %s is placed [%s] instead of [%s]",
                     kolo_info(g, old)->name, kolo_placements_text(&g->mesh, is, have),
                     kolo_placements_text(&g->mesh, was, want));
}

kolo_status kolo_graph_propagate(kolo_graph *g) {
    for (int32_t i = 0; i < g->n_nodes; i++) KOLO_TRY(kolo_node_propagate(g, g->nodes[i]));
    for (int32_t v = 0; v < g->n_values; v++) KOLO_TRY(check_next(g, v));
    return KOLO_OK;
}
