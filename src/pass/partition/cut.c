/* What a cut makes of parameters and of nodes, on one axis after the other: inputs that have the
 * index of the cut are sharded as the leading input is, attributes become those of this rank, and
 * where the op needs the dimension whole, positions are exchanged or collected before it. */
#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "graph/propagate.h"
#include "pass/partition/partition.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- leaves ---- */

kolo_status kolo_partition_cut_leaf(const partitioner *p, int axis, kolo_value leaf,
                                    const kolo_placement *cut) {
    kolo_value_info *info = kolo_info(p->g, leaf);
    const kolo_mesh_axis *of = &p->g->mesh.axes[axis];
    int64_t *length = &info->tensor.shape.dim[cut->dim];
    const int blocks = cut->blocks > 0 ? cut->blocks : 1;
    if (cut->dim >= info->tensor.shape.rank || *length % blocks != 0 ||
        *length / blocks < of->size) {
        char text[KOLO_SHAPE_TEXT], parts[48] = "";
        if (blocks > 1) (void)snprintf(parts, sizeof parts, " in each of %d equal parts", blocks);
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s %s cannot be divided over %s=%d along dimension %d%s: choose a "
                         "smaller %s, or a rule for it with --placement",
                         info->name, kolo_shape_text(&info->tensor.shape, text), of->name, of->size,
                         cut->dim, parts, of->name);
    }
    if (info->whole.shape.rank == 0) info->whole = info->tensor;
    *length = local_length(p, axis, cut, *length);
    info->tensor = kolo_tensor_plain(info->tensor.dtype, info->tensor.shape);
    info->placements.axis[axis] = *cut;
    p->origin[leaf.id] = leaf.id;
    return KOLO_OK;
}
/* ---- values ---- */

static bool is_varying(const partitioner *p, kolo_value v, int axis) {
    return p->varying[v.id] >> axis & 1;
}

/* Parameters, and statistics of the same size. */
static bool is_parameter(const partitioner *p, kolo_value v) {
    const kolo_value_kind kind = kolo_info(p->g, v)->kind;
    return kind == KOLO_VALUE_PARAM || kind == KOLO_VALUE_STATE;
}

/* Whether v may have a gradient that is computed inside the graph. What one rank keeps of a
 * parameter, such as the bias of a sum, has the parameter's: uses add up before they are reduced.
 */
static bool is_activation(const partitioner *p, kolo_value v) {
    const kolo_value_info *info = kolo_info(p->g, v);
    if (info->kind != KOLO_VALUE_TEMP || info->producer < 0) return false;
    const kolo_node *n = p->g->nodes[info->producer];
    if (n->op == &kolo_op_redistribute && is_parameter(p, n->in[0])) return false;
    return kolo_dtype_wide(info->tensor.dtype) == p->g->dtype;
}

/* Whether an activation has equal slices along an axis that divides samples or positions, not what
 * a layer computes. */
static bool is_divided_batch(const partitioner *p, kolo_value v, int axis) {
    const kolo_placement *cut = placed(p, v, axis);
    if (!is_cut(cut) || !is_activation(p, v)) return false;
    return is_of_positions(p, axis) || (cut->dim == 0 && p->by_samples >> axis & 1) ||
           (cut->dim == p->sums && !is_of_experts(p, axis));
}

/* ---- nodes ---- */

static kolo_status refuse(const partitioner *p, const kolo_node *n, int input, int axis,
                          const char *what) {
    const char *name = kolo_info(p->g, n->in[input])->name, *origin = NULL;
    for (int k = 0; k < n->n_in && !origin; k++) {
        if (is_cut(placed(p, n->in[k], axis))) origin = p->g->values[p->origin[n->in[k].id]].name;
    }
    if (is_of_inputs(p, axis)) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "%s: input %d (%s) on the axis %s: %s. The %s are divided here: give "
            "another axis, such as tp or dp",
            n->op->name, input, name ? name : "an activation", p->g->mesh.axes[axis].name, what,
            is_of_positions(p, axis) ? "positions of sequences, or rows of images," : "samples");
    }
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "%s: input %d (%s) on the axis %s: %s. It is sharded as %s is: shard that along "
        "another dimension, or leave it whole (--placement)",
        n->op->name, input, name ? name : "an activation", p->g->mesh.axes[axis].name, what,
        origin ? origin : "another input");
}

/* The input whose cut the node follows: a sharded parameter, else the first sharded input; -1: all
 * are whole. */
static int leader(const partitioner *p, const kolo_node *n, int axis) {
    int first = -1;
    for (int k = 0; k < n->n_in; k++) {
        if (!is_cut(placed(p, n->in[k], axis))) continue;
        if (is_parameter(p, n->in[k])) return k;
        if (first < 0) first = k;
    }
    return first;
}

static kolo_placement cut_of(const partitioner *p, const cut_node *c, const kolo_index_term *term,
                             int d) {
    kolo_placement cut = *placed(p, c->n->in[c->lead], c->axis);
    const int64_t own = kolo_index_parts(&c->index->in[c->lead], cut.dim, c->code);
    const int64_t blocks = (cut.blocks > 0 ? cut.blocks : 1) / own;
    cut.blocks = (int)(blocks * kolo_index_parts(term, d, c->code));
    cut.dim = d;
    if (!term->window[d]) cut.halo = NULL;
    return cut;
}

/* Whether the cut of a value along an axis is of what another axis leaves of the same dimension:
 * those of layers follow the order of the axes; positions are around sums of layers, and inside
 * samples. */
static bool is_around(const partitioner *p, kolo_value v, int other, int axis) {
    const kolo_placement *cut = placed(p, v, other), *inner = placed(p, v, axis);
    if (other == axis || is_of_samples(p, other) || !is_cut(cut)) return false;
    if (cut->dim != inner->dim) return false;
    if (is_of_positions(p, other)) return inner->depth > cut->depth;
    return !is_of_positions(p, axis) && other < axis;
}

/* Slices an input as the leading one is; first along positions that are around. */
static kolo_status slice_alike(partitioner *p, const cut_node *c, int k,
                               const kolo_placement *want) {
    const kolo_value lead = c->n->in[c->lead];
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const bool around = is_of_positions(p, a) && is_around(p, lead, a, c->axis);
        if (!around || is_cut(placed(p, c->n->in[k], a))) continue;
        kolo_placement cut = *placed(p, lead, a);
        cut.dim = want->dim;
        c->n->in[k] = kolo_partition_slice(p, c->n->in[k], a, &cut);
        KOLO_TRY(kolo_graph_check(p->g));
    }
    c->n->in[k] = kolo_partition_slice(p, c->n->in[k], c->axis, want);
    return kolo_graph_check(p->g);
}

/* Inputs that have the index have to be cut too; parameters and statistics become so. */
static kolo_status follow_cut(partitioner *p, const cut_node *c, int k) {
    kolo_value v = c->n->in[k];
    int d = kolo_index_find(&c->index->in[k], c->code);
    const kolo_placement want = cut_of(p, c, &c->index->in[k], d);
    if (kolo_placement_equal(placed(p, v, c->axis), &want, p->g->mesh.axes[c->axis].size)) {
        return KOLO_OK;
    }
    const bool of_positions = is_of_positions(p, c->axis);
    const bool ids = (of_positions || want.dim > 0) && !is_parameter(p, v);
    const bool batch = is_activation(p, v) || ids;
    if (is_divided_batch(p, c->n->in[c->lead], c->axis) && batch &&
        !is_cut(placed(p, v, c->axis))) {
        return slice_alike(p, c, k, &want);
    }
    const bool whole = !is_parameter(p, v) && !is_cut(placed(p, v, c->axis));
    if (whole && !is_varying(p, v, c->axis) && !of_positions &&
        !is_divided_batch(p, c->n->in[c->lead], c->axis)) {
        c->n->in[k] = kolo_partition_slice(p, v, c->axis, &want); /* all ranks have it */
        return kolo_graph_check(p->g);
    }
    if (of_positions || !is_parameter(p, v) || is_cut(placed(p, v, c->axis)) || p->used[v.id]) {
        return refuse(p, c->n, k, c->axis, "it is not sharded as the other inputs are");
    }
    return kolo_partition_cut_leaf(p, c->axis, v, &want);
}

static bool addend_is_summed(const cut_node *c, int addend) {
    for (int k = 0; k < c->n->n_in; k++) {
        if (c->index->in[k].addend != addend) continue;
        if (kolo_index_find(&c->index->in[k], c->code) >= 0) return true;
    }
    return false;
}

/* One rank adds what all have, such as the bias of a sum. */
static kolo_status pad_addend(partitioner *p, const cut_node *c, int k) {
    if (!(c->n->op->linear >> k & 1)) {
        return refuse(p, c->n, k, c->axis, "each rank would add it to its summand");
    }
    c->n->in[k] = kolo_partition_move_to(p, c->n->in[k], c->axis, KOLO_PLACEMENT_PARTIAL);
    return kolo_graph_check(p->g);
}

static kolo_status place_inputs(partitioner *p, const cut_node *c) {
    bool padded[KOLO_MAX_IO] = {false};
    for (int k = 0; k < c->n->n_in; k++) {
        int addend = c->index->in[k].addend;
        if (kolo_index_find(&c->index->in[k], c->code) >= 0) {
            KOLO_TRY(follow_cut(p, c, k));
        } else if (is_divided_batch(p, c->n->in[k], c->axis)) {
            c->n->in[k] = kolo_partition_collect_once(p, c->n->in[k], c->axis);
        } else if (is_cut(placed(p, c->n->in[k], c->axis))) {
            return refuse(p, c->n, k, c->axis, "the op needs it whole here");
        } else if (c->summed && !addend_is_summed(c, addend)) {
            if (padded[addend]) continue;
            padded[addend] = true;
            KOLO_TRY(pad_addend(p, c, k));
        } else if (is_activation(p, c->n->in[k]) && !is_varying(p, c->n->in[k], c->axis)) {
            c->n->in[k] = kolo_partition_replicate(p, c->n->in[k], c->axis);
        }
    }
    return kolo_graph_check(p->g);
}

/* Whether a rank has several parts along the index, of what has it once. */
static bool is_in_parts(const partitioner *p, const cut_node *c) {
    const kolo_placement *cut = placed(p, c->n->in[c->lead], c->axis);
    return cut->blocks > kolo_index_parts(&c->index->in[c->lead], cut->dim, c->code) || cut->zigzag;
}

/* Where the slice of the leading input begins along the index, in what the axes around this one
 * leave of it. */
static int64_t first_of(const partitioner *p, const cut_node *c) {
    const kolo_mesh *mesh = &p->g->mesh;
    const kolo_value lead = c->n->in[c->lead];
    const kolo_placement *cut = placed(p, lead, c->axis);
    const int size = mesh->axes[c->axis].size, at = kolo_mesh_coordinate(mesh, p->g->rank, c->axis);
    int64_t length = p->whole[lead.id].dim[cut->dim];
    for (int a = 0; a < mesh->n_axes; a++) {
        if (is_around(p, lead, a, c->axis)) length = local_length(p, a, placed(p, lead, a), length);
    }
    return kolo_placement_first(cut, length, size, at);
}

/* The attributes of a shard along a dimension: those of the op, or where another dimension is
 * sharded already, those of a second one. NULL: there are none. */
static kolo_attr *part_along(kolo_node *n, int dim, kolo_attr **all, kolo_attr **of_dim) {
    kolo_attr *first = kolo_node_attr(n, n->op->part.first);
    *all = kolo_node_attr(n, n->op->part.all);
    *of_dim = kolo_node_attr(n, n->op->part.dim);
    if ((*all)->i == 0 || (*of_dim)->i == dim) return first;
    first = kolo_node_attr(n, n->op->part.other);
    *all = first + 1;
    *of_dim = first + 2;
    return (*all)->i == 0 || (*of_dim)->i == dim ? first : NULL;
}

/* Attributes of a shard along any dimension of the leading input but that of the samples. */
static kolo_status make_any_part(const partitioner *p, const cut_node *c) {
    const kolo_placement *cut = placed(p, c->n->in[c->lead], c->axis);
    const bool ranges = cut->zigzag && c->n->op->part.length;
    bool parts = cut->blocks > 1 || (cut->zigzag && !ranges);
    for (int a = 0; a < p->g->mesh.n_axes; a++) { /* a slice of two ranges */
        const kolo_placement *around = placed(p, c->n->in[c->lead], a);
        parts |= is_around(p, c->n->in[c->lead], a, c->axis) && around->zigzag;
    }
    kolo_attr *all, *dim, *first = part_along(c->n, cut->dim, &all, &dim);
    if (parts || !first) {
        return refuse(p, c->n, c->lead, c->axis,
                      "it is sharded along three dimensions, or in parts");
    }
    all->i = p->whole[c->n->in[c->lead].id].dim[cut->dim];
    dim->i = cut->dim;
    first->i += first_of(p, c);
    if (ranges) kolo_node_attr(c->n, c->n->op->part.length)->i = all->i;
    return KOLO_OK;
}

/* Attributes that are lengths along the index become those of this rank. */
static kolo_status make_lengths(const partitioner *p, const cut_node *c) {
    const kolo_value lead = c->n->in[c->lead];
    const int d = placed(p, lead, c->axis)->dim;
    const int64_t whole = p->whole[lead.id].dim[d];
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) {
        if (!(c->n->op->part.lengths >> i & 1)) continue;
        const int64_t part = c->n->attr[i].i * kolo_info(p->g, lead)->tensor.shape.dim[d];
        if (part % whole != 0) {
            return refuse(p, c->n, c->lead, c->axis, "the ranks do not divide the window");
        }
        c->n->attr[i].i = part / whole;
    }
    if (c->n->op->part.all && kolo_node_attr(c->n, c->n->op->part.all)->i == 0) {
        kolo_node_attr(c->n, c->n->op->part.all)->i = whole;
    }
    return KOLO_OK;
}

/* Attributes that count samples, or along the index. ARG: they do not divide. */
static kolo_status make_part(const partitioner *p, const cut_node *c) {
    kolo_node *n = c->n;
    const kolo_mesh *mesh = &p->g->mesh;
    if (n->op->part.sample && c->code == 'n') {
        if (is_in_parts(p, c)) return refuse(p, n, c->lead, c->axis, "it is sharded in parts");
        kolo_node_attr(n, n->op->part.sample)->i += first_of(p, c);
    }
    if (n->op->part.position && c->code == 't') {
        kolo_node_attr(n, n->op->part.position)->i += first_of(p, c);
        const kolo_value lead = n->in[c->lead];
        const kolo_placement *cut = placed(p, lead, c->axis);
        if (cut->zigzag && n->op->part.length) {
            kolo_node_attr(n, n->op->part.length)->i = p->whole[lead.id].dim[cut->dim];
        }
    }
    if (n->op->part.samples && kolo_node_attr(n, n->op->part.samples)->i > 0) {
        return refuse(p, n, c->lead, c->axis, "its samples are not along dimension 0");
    }
    if (n->op->part.index == '*' && c->code != 'n') return make_any_part(p, c);
    if (n->op->part.index == 0 || n->op->part.index != c->code) return KOLO_OK;
    if (n->op->part.lengths) return make_lengths(p, c);
    if (n->op->part.size == 0) {
        if (is_in_parts(p, c)) return refuse(p, n, c->lead, c->axis, "it is sharded in parts");
        kolo_node_attr(n, n->op->part.first)->i += first_of(p, c);
        return KOLO_OK;
    }
    const int size = mesh->axes[c->axis].size;
    int64_t *count = &kolo_node_attr(n, n->op->part.size)->i;
    if (is_in_parts(p, c)) return refuse(p, n, c->lead, c->axis, "it is sharded in parts");
    if (*count % size != 0) {
        if (is_of_positions(p, c->axis)) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "%s: %" PRId64 " %s cannot be divided over %s=%d: choose a divisor of "
                             "%" PRId64 " for %s, or --placement ring, which divides none",
                             n->op->name, *count, n->op->attrs[n->op->part.size - 1],
                             mesh->axes[c->axis].name, size, *count, mesh->axes[c->axis].name);
        }
        const kolo_value_info *origin = &p->g->values[p->origin[n->in[c->lead].id]];
        const bool by_rule = origin->kind == KOLO_VALUE_PARAM;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s: %" PRId64 " %s cannot be divided over %s=%d: choose a divisor of "
                         "%" PRId64 " for %s%s%s%s",
                         n->op->name, *count, n->op->attrs[n->op->part.size - 1],
                         mesh->axes[c->axis].name, size, *count, mesh->axes[c->axis].name,
                         by_rule ? ", or leave " : "", by_rule ? origin->name : "",
                         by_rule ? " whole (--placement)" : "");
    }
    const int64_t all = *count;
    *count /= size;
    if (n->op->part.first == 0) return KOLO_OK;
    if (kolo_node_attr(n, n->op->part.all)->i == 0) kolo_node_attr(n, n->op->part.all)->i = all;
    kolo_node_attr(n, n->op->part.first)->i +=
        *count * kolo_mesh_coordinate(mesh, p->g->rank, c->axis);
    return KOLO_OK;
}

/* A node whose inputs are whole: its outputs vary if one of these does. */
static kolo_status vary(partitioner *p, kolo_node *n, int axis) {
    bool any = false;
    for (int k = 0; k < n->n_in; k++) any |= is_varying(p, n->in[k], axis);
    for (int k = 0; any && k < n->n_in; k++) {
        if (!is_activation(p, n->in[k]) || is_varying(p, n->in[k], axis)) continue;
        n->in[k] = kolo_partition_replicate(p, n->in[k], axis);
    }
    for (int k = 0; any && k < n->n_out; k++) p->varying[n->out[k].id] |= (kolo_axes)1 << axis;
    return kolo_graph_check(p->g);
}

/* Attributes that are the dimensions of the output become those of this rank. */
static kolo_status make_dims(const partitioner *p, const cut_node *c) {
    const kolo_value lead = c->n->in[c->lead];
    const int from = placed(p, lead, c->axis)->dim,
              to = kolo_index_find(&c->index->out[0], c->code);
    const int64_t whole = kolo_partition_shape_before(p, lead, c->axis).dim[from];
    if (c->n->op->part.dims == 0 || to < 0) return KOLO_OK;
    int64_t *length = &kolo_node_attr(c->n, c->n->op->part.dims + to)->i;
    const kolo_placement cut = cut_of(p, c, &c->index->out[0], to);
    const int64_t own = is_of_experts(p, c->axis) /* positions may be cut inside */
                            ? local_length(p, c->axis, placed(p, lead, c->axis), whole)
                            : kolo_info(p->g, lead)->tensor.shape.dim[from];
    const int64_t part = *length * own;
    if (part % whole != 0 || *length % (cut.blocks > 0 ? cut.blocks : 1) != 0 ||
        part / whole != local_length(p, c->axis, &cut, *length)) {
        return refuse(p, c->n, c->lead, c->axis, "its slices do not divide the new dimensions");
    }
    *length = part / whole;
    return KOLO_OK;
}

/* Makes a layer of which the rules divide the gates one of hidden units: each rank has some of
 * these, and the states of all others, as the pass recurrence gathers them. False: it is no such
 * layer. */
static bool take_units(const partitioner *p, const cut_node *c) {
    enum { W = 1, GATES = 4 };
    const kolo_placement *cut = placed(p, c->n->in[c->lead], c->axis);
    const bool gates = cut->blocks == GATES && cut->dim == (c->lead == 0 ? 2 : 0);
    if (c->n->op != &kolo_op_lstm || c->lead > 2 || !gates || kolo_lstm_is_divided(c->n)) {
        return false;
    }
    c->n->attr[KOLO_LSTM_UNITS].i = kolo_info(p->g, c->n->in[W])->tensor.shape.dim[1];
    return true;
}

/* Whether a term has the index in several parts of a dimension. */
static bool has_parts(const kolo_index_term *term, int code) {
    const int d = kolo_index_find(term, code);
    return d >= 0 && term->parts[d] > 1;
}

/* Whether a term has the index as the inner one of a dimension. */
static bool is_inner(const kolo_index_term *term, int code) {
    const int d = kolo_index_find(term, code);
    return d >= 0 && term->inner[d] == code;
}

/* Whether an output has the index as the outer one of two merged dimensions. */
static bool merges_behind(const cut_node *c) {
    for (int k = 0; k < c->n->n_out; k++) {
        const kolo_index_term *out = &c->index->out[k];
        const int d = kolo_index_find(out, c->code);
        if (d >= 0 && out->inner[d] && !is_inner(out, c->code)) return true;
    }
    return false;
}

/* Whether an op merges or splits the dimension of positions or rows. Where dimension 0 consists of
 * samples and positions, slices of these are the inner index of it; in any other they are outer
 * ones. */
static bool folds_positions(const partitioner *p, const cut_node *c) {
    const int from = placed(p, c->n->in[c->lead], c->axis)->dim;
    bool folds = from > 0 && c->index->in[c->lead].inner[from];
    for (int k = 0; k < c->n->n_out; k++) {
        folds |=
            is_inner(&c->index->out[k], c->code) && kolo_index_find(&c->index->out[k], c->code) > 0;
    }
    return folds || merges_behind(c);
}

/* Whether an op reads the number of the first sample, but cannot begin with another one. */
static bool counts_samples(const cut_node *c) {
    bool counts = false;
    for (int k = 0; k < c->n->n_in; k++) {
        const kolo_index_term *in = &c->index->in[k];
        counts |= in->by_shard && kolo_index_find(in, c->code) < 0;
    }
    return counts && !c->n->op->part.sample && c->n->op->part.index != '*';
}

/* Whether the op needs the dimension whole: by its notation, for statistics of the samples, which
 * are those of all ranks of a model axis, because samples or positions are in one part, or because
 * another dimension would be cut inside it, or it around another one. */
static bool needs_whole(const partitioner *p, const cut_node *c) {
    const bool exchanged = p->exchanged >> c->axis & 1;
    const bool batch = is_divided_batch(p, c->n->in[c->lead], c->axis) && !exchanged;
    bool whole = c->code & KOLO_INDEX_WHOLE || !kolo_op_has_index(c->n->op);
    whole |= c->undivided;
    for (int k = 0; k < c->n->n_in && is_of_positions(p, c->axis); k++) { /* weights stay whole */
        const bool has = kolo_index_find(&c->index->in[k], c->code) >= 0;
        whole |= has && is_parameter(p, c->n->in[k]);
    }
    whole |= is_of_positions(p, c->axis) && folds_positions(p, c);
    whole |= is_of_experts(p, c->axis) && counts_samples(c);
    for (int k = 0; k < c->n->n_in && batch; k++) whole |= has_parts(&c->index->in[k], c->code);
    for (int k = 0; k < c->n->n_out && batch; k++) whole |= has_parts(&c->index->out[k], c->code);
    for (int k = 0; k < c->n->n_out; k++) {
        const kolo_index_term *out = &c->index->out[k];
        whole |= is_inner(out, c->code) && !is_of_positions(p, c->axis);
        whole |= out->by_shard && c->code == 'n' && kolo_index_find(out, c->code) < 0;
    }
    return whole;
}

/* The notation of the whole node: lengths among its attributes are not those of this rank yet. */
static kolo_status index_of_whole(const partitioner *p, const kolo_node *n, kolo_index *index) {
    kolo_shape in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    for (int k = 0; k < n->n_in; k++) {
        const kolo_shape *whole = &p->whole[n->in[k].id];
        in[k] = whole->rank > 0 ? *whole : kolo_info(p->g, n->in[k])->tensor.shape;
    }
    for (int k = 0; k < n->n_out; k++) out[k] = kolo_info(p->g, n->out[k])->tensor.shape;
    return kolo_index_read(n->op, n->attr, n->n_in, in, n->n_out, out, index);
}

/* Whether each rank of an axis computes a summand of the gradients of the parameters that it reads
 * whole beside v. */
static bool gives_summands(const partitioner *p, kolo_value v, int axis) {
    return is_of_samples(p, axis) || is_cut(placed(p, v, axis)) || is_varying(p, v, axis);
}

/* Makes the gradients of the parameters of a node that all ranks of an axis compute alike summands,
 * one of them and zeros: as where each rank has samples of its own, which other micro-batches and
 * other ranks of dp may have. The backward pass computes them in the same order. */
static kolo_status sum_gradients(partitioner *p, kolo_node *n, int lead, int axis) {
    for (int k = n->n_in - 1; k >= 0; k--) {
        const kolo_value v = n->in[k];
        if (!is_parameter(p, v)) continue;
        const kolo_tensor tensor = kolo_info(p->g, v)->tensor;
        kolo_placements from = kolo_info(p->g, v)->placements;
        for (int a = 0; a < p->g->mesh.n_axes; a++) {
            const bool whole = from.axis[a].kind == KOLO_PLACEMENT_INVARIANT;
            if (!whole || !gives_summands(p, n->in[lead], a)) continue;
            from.axis[a].kind = KOLO_PLACEMENT_REPLICATED;
        }
        const kolo_placements to = from;
        from.axis[axis].kind = KOLO_PLACEMENT_REPLICATED;
        n->in[k] = kolo_redistribute_as(p->g, v, &from, &to, &tensor);
        KOLO_TRY(kolo_graph_check(p->g));
        p->order[p->n++] = p->g->nodes[kolo_info(p->g, n->in[k])->producer];
        p->whole[n->in[k].id] = p->whole[v.id];
        p->origin[n->in[k].id] = p->origin[v.id];
        p->used[v.id] = true;
    }
    return KOLO_OK;
}

static kolo_status cut_on(partitioner *p, kolo_node *n, const kolo_index *index, int axis,
                          bool *summed) {
    const int lead = leader(p, n, axis);
    const int code = kolo_index_of_cut(&index->in[lead], placed(p, n->in[lead], axis));
    cut_node c = {n, index, axis, lead, code, false, false};
    if (kolo_partition_is_window(&c)) {
        bool taken;
        KOLO_TRY(kolo_partition_take_rows(p, &c, &taken));
        c.undivided = !taken;
    }
    if (kolo_partition_has_rows(p, n->in[lead], axis) && merges_behind(&c)) {
        return refuse(p, n, lead, axis,
                      "it makes a sequence of the rows of images, as vision transformers do");
    }
    if (needs_whole(p, &c) && (kolo_partition_take_ring(p, &c) || take_units(p, &c))) {
        kolo_index divided;
        KOLO_TRY(index_of_whole(p, n, &divided));
        return cut_on(p, n, &divided, axis, summed);
    }
    if (needs_whole(p, &c) && kolo_partition_exchange_positions(p, &c)) {
        KOLO_TRY(kolo_graph_check(p->g));
        return cut_on(p, n, index, axis, summed);
    }
    if (needs_whole(p, &c) && is_divided_batch(p, n->in[lead], axis)) {
        n->in[lead] = kolo_partition_collect(p, n->in[lead], axis, KOLO_PLACEMENT_INVARIANT);
        KOLO_TRY(kolo_graph_check(p->g));
        if (p->exchanged >> axis & 1) KOLO_TRY(sum_gradients(p, n, lead, axis));
        return leader(p, n, axis) < 0 ? vary(p, n, axis) : cut_on(p, n, index, axis, summed);
    }
    if (needs_whole(p, &c)) {
        return refuse(p, n, lead, axis,
                      n->op == &kolo_op_lstm
                          ? "each of its four gates has to be sharded, by hidden units: "
                            "give a rule such as \"rnn.weight_?h_l* 0 4\""
                          : "the op needs the sharded dimension whole");
    }
    for (int k = 0; k < n->n_out; k++) {
        c.summed |= kolo_index_find(&index->out[k], c.code) < 0;
    }
    *summed |= c.summed;
    p->divides_positions |= is_of_positions(p, axis);
    for (int k = 0; k < n->n_out; k++) p->origin[n->out[k].id] = p->origin[n->in[lead].id];
    KOLO_TRY(place_inputs(p, &c));
    KOLO_TRY(make_dims(p, &c));
    return make_part(p, &c);
}

/* Where an addend of a node is a sum over some of the positions, one rank adds the others. */
static kolo_status complete_sum(partitioner *p, kolo_node *n, const kolo_index *index, int axis) {
    const cut_node c = {n, index, axis, 0, 0, false, false};
    bool partial[KOLO_MAX_IO] = {false}, padded[KOLO_MAX_IO] = {false}, any = false;
    for (int k = 0; k < n->n_in; k++) {
        if (placed(p, n->in[k], axis)->kind != KOLO_PLACEMENT_PARTIAL) continue;
        partial[index->in[k].addend] = any = true;
    }
    for (int k = 0; k < n->n_in && any; k++) {
        const int addend = index->in[k].addend;
        if (partial[addend] || padded[addend]) continue;
        padded[addend] = true;
        KOLO_TRY(pad_addend(p, &c, k));
    }
    return KOLO_OK;
}

/* A node on one axis. */
static kolo_status cut_along(partitioner *p, kolo_node *n, const kolo_index *index, int axis,
                             bool *summed) {
    if (is_of_positions(p, axis)) {
        KOLO_TRY(kolo_partition_begin_positions(p, n, axis));
    }
    if (is_of_experts(p, axis)) KOLO_TRY(kolo_partition_from_experts(p, n, axis));
    if (is_of_inputs(p, axis)) KOLO_TRY(complete_sum(p, n, index, axis));
    return leader(p, n, axis) < 0 ? vary(p, n, axis) : cut_on(p, n, index, axis, summed);
}

/* Where samples and positions are one dimension, positions are cut inside the samples that the axis
 * ep leaves to this rank. */
static void divide_outer(const partitioner *p, const kolo_node *n, int axis, kolo_index *index) {
    const int lead = leader(p, n, axis), size = p->g->mesh.axes[axis].size;
    if (lead < 0 || !is_of_experts(p, axis)) return;
    const int code = kolo_index_of_cut(&index->in[lead], placed(p, n->in[lead], axis));
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        kolo_index_term *term = k < n->n_in ? &index->in[k] : &index->out[k - n->n_in];
        const int d = kolo_index_find(term, code);
        if (d >= 0 && term->inner[d] && term->code[d] == code) term->outer[d] /= size;
    }
}

kolo_status kolo_partition_cut_node(partitioner *p, kolo_node *n, bool *summed) {
    kolo_index index = {0};
    if (n->op->comm == KOLO_OP_LOCAL && kolo_op_has_index(n->op)) {
        KOLO_TRY(index_of_whole(p, n, &index));
    }
    for (int i = 0; i < 2 * p->g->mesh.n_axes; i++) {
        const int a = i % p->g->mesh.n_axes;
        const bool later = i >= p->g->mesh.n_axes;
        if (!divides_layers(&p->g->mesh, a) || is_of_positions(p, a) != later) continue;
        KOLO_TRY(cut_along(p, n, &index, a, summed));
        divide_outer(p, n, a, &index);
    }
    return KOLO_OK;
}

kolo_status kolo_partition_cut_replaced(partitioner *p, kolo_node *n, kolo_axes axes) {
    kolo_index index;
    bool summed = false;
    KOLO_TRY(index_of_whole(p, n, &index));
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        if (!(axes >> a & 1) || leader(p, n, a) < 0) continue;
        KOLO_TRY(cut_on(p, n, &index, a, &summed));
    }
    return KOLO_OK;
}
