/* Partitioning: tensor parallelism. Rules shard parameters along dimensions; the pass shards
 * what is computed from them, makes shapes and attributes those of this rank, and inserts the
 * redistributions that ops need.
 *
 *     linear(x, w sharded in o)            ->  y sharded in o
 *     linear(y sharded, w sharded in i, b)  ->  redistribute(linear(y, w, pad(b)))
 *
 * Between two nodes every value is whole or sharded: sums over a sharded index are reduced where
 * they are computed. A node with a sharded input reads its whole inputs as REPLICATED: each rank
 * computes a summand of their gradient. The redistribution inserted before it moves nothing, and
 * its gradient is an allreduce. Shoeybi et al., "Megatron-LM", 2019: that node is f, the sum behind
 * is g.
 *
 * This file has the walk over the graph; cut.c cuts one node. The axis sp divides positions of
 * sequences instead (positions.c), or rows of images (rows.c), ep samples and experts
 * (experts.c). */
#include "pass/partition/partition.h"

#include "base/integer.h"
#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/partition/rules.h"

#include <string.h>

/* ---- rules ---- */

/* The placement of a parameter by its rule. */
static kolo_placement cut_of_rule(const partitioner *p, int axis, const kolo_value_info *info,
                                  const kolo_placement_rule *rule) {
    const int blocks = rule->blocks > 0 ? rule->blocks : 1, size = p->g->mesh.axes[axis].size;
    const bool even = rule->dim < info->tensor.shape.rank &&
                      info->tensor.shape.dim[rule->dim] % ((int64_t)blocks * size) == 0;
    return (kolo_placement){.kind = KOLO_PLACEMENT_SHARDED,
                            .dim = rule->dim,
                            .blocks = rule->blocks,
                            .depth = even ? 0 : KOLO_DEPTH_UNEVEN};
}

/* The depth of cuts of sums. Where sp cuts positions before, or ids such as those of experts are
 * cut as sums are, these move by links, as all that is cut inside positions does. */
static int depth_of_sums(const partitioner *p) {
    const int sp = kolo_mesh_find(&p->g->mesh, "sp");
    const bool inside = sp >= 0 && p->g->mesh.axes[sp].size > 1;
    const bool links = inside || kolo_partition_has_experts(p);
    return links && p->sums > 0 ? KOLO_DEPTH_UNEVEN : 0;
}

static kolo_status apply_rules(partitioner *p, int axis) {
    int placed = 0;
    kolo_placement_rule sums;
    KOLO_TRY(kolo_placement_keyword(p->rules, "sums", &sums));
    p->sums = sums.dim;
    p->sums_depth = depth_of_sums(p);
    for (int32_t v = 0; v < p->n_values; v++) {
        const kolo_value_info *info = &p->g->values[v];
        kolo_placement_rule rule;
        if (info->kind != KOLO_VALUE_PARAM) continue;
        KOLO_TRY(kolo_placement_rule_of(p->rules, info->name, &rule));
        const bool samples = rule.dim == KOLO_PLACE_SAMPLES && !p->in_blocks;
        if (samples) p->by_samples |= (kolo_axes)1 << axis;
        if (rule.dim < 0) continue;
        const kolo_placement cut = cut_of_rule(p, axis, info, &rule);
        KOLO_TRY(kolo_partition_cut_leaf(p, axis, (kolo_value){.id = v}, &cut));
        placed++;
    }
    if (placed > 0) return KOLO_OK;
    const kolo_mesh_axis *of = &p->g->mesh.axes[axis];
    if (p->by_samples >> axis & 1) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the rules divide layers by samples alone, which is data parallelism: "
                         "shard the parameters of a later layer too (--placement), or give "
                         "--mesh dp=%d in place of %s=%d",
                         of->size, of->name, of->size);
    }
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "no rule of tensor parallelism names a parameter of this model: give rules of "
                     "your own with --placement, or another mesh than %s=%d",
                     of->name, of->size);
}
/* ---- nodes ---- */

/* The outputs' shapes on this rank. */
static kolo_status infer_shapes(const partitioner *p, const kolo_node *n) {
    kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    kolo_shape_query q = kolo_node_query(p->g, n, in, out);
    KOLO_TRY(n->op->shape(&q));
    for (int k = 0; k < n->n_out; k++) kolo_info(p->g, n->out[k])->tensor = out[k];
    return KOLO_OK;
}

/* Whether v begins with the samples: not with experts, for example. */
static bool has_samples(const partitioner *p, kolo_value v) {
    const kolo_node *n = p->g->nodes[kolo_info(p->g, v)->producer];
    kolo_index index;
    if (!kolo_op_has_index(n->op) || kolo_index_of(p->g, n, &index) != KOLO_OK) return false;
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k].id == v.id) return index.out[k].code[0] == 'n';
    }
    return false;
}

/* Whether a sum is an activation [N,T,C], of which the rules give each rank equal positions: on all
 * ranks alike, also where sp cuts them before. */
static bool is_shardable(const partitioner *p, kolo_value v, int axis) {
    const kolo_shape *shape = &kolo_info(p->g, v)->tensor.shape, *whole = &p->whole[v.id];
    int64_t ranks = p->g->mesh.axes[axis].size;
    if (p->sums < 0 || is_of_inputs(p, axis) || placed(p, v, axis)->op != KOLO_SUM) return false;
    if (shape->rank != 3 || !has_samples(p, v)) return false;
    const int64_t length = (whole->rank > 0 ? whole : shape)->dim[p->sums];
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const kolo_placement *cut = placed(p, v, a);
        const int size = p->g->mesh.axes[a].size;
        if (a == axis || !is_cut(cut) || cut->dim != p->sums || is_of_samples(p, a)) continue;
        if (cut->zigzag && length % (2 * size) != 0) return false; /* ranges differ in length */
        ranks *= size;
    }
    return length % ranks == 0;
}

static kolo_value sharded_sum(partitioner *p, kolo_value v, int axis) {
    const kolo_placement to = {
        .kind = KOLO_PLACEMENT_SHARDED, .dim = p->sums, .depth = p->sums_depth};
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    shape.dim[p->sums] /= p->g->mesh.axes[axis].size;
    return kolo_partition_move(p, v, axis, &to, &shape);
}

/* Sums over the ranks what a node leaves as summands. */
static kolo_value reduced(partitioner *p, kolo_value v) {
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        if (placed(p, v, a)->summands) v = kolo_partition_give_rows(p, v, a);
        if (placed(p, v, a)->kind != KOLO_PLACEMENT_PARTIAL) continue;
        const bool scalar = kolo_info(p->g, v)->tensor.shape.rank == 0;
        if (is_of_samples(p, a) || (scalar && is_of_inputs(p, a))) continue;
        v = is_shardable(p, v, a) ? sharded_sum(p, v, a)
                                  : kolo_partition_move_to(p, v, a, KOLO_PLACEMENT_INVARIANT);
    }
    return v;
}

/* Takes a fused ReLU out of a node that computes summands; whether there was one. */
static bool take_relu(kolo_node *n) {
    if (n->op->fuse.relu == 0 || !kolo_node_attr(n, n->op->fuse.relu)->i) return false;
    kolo_node_attr(n, n->op->fuse.relu)->i = 0;
    return true;
}

/* Whether the first input of a node is sharded along dimension 1, the classes of logits. */
static bool has_some_classes(const partitioner *p, const kolo_node *n) {
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const kolo_placement *x = placed(p, n->in[0], a);
        if (is_cut(x) && x->dim == 1 && !is_of_samples(p, a) && !is_of_positions(p, a)) return true;
    }
    return false;
}

static kolo_status visit(partitioner *p, kolo_node *n);

/* Visits the nodes from `first` on, of which by[i] replaces output i of n. */
static kolo_status visit_from(partitioner *p, const kolo_node *n, int32_t first,
                              const kolo_value *by) {
    KOLO_TRY(kolo_graph_check(p->g));
    for (int32_t i = first, end = p->g->n_nodes; i < end; i++) KOLO_TRY(visit(p, p->g->nodes[i]));
    for (int k = 0; k < n->n_out; k++) {
        p->now[n->out[k].id] = kolo_value_ok(by[k]) ? p->now[by[k].id] : KOLO_NONE;
        if (kolo_value_ok(by[k])) p->whole[p->now[by[k].id].id] = p->whole[n->out[k].id];
    }
    return KOLO_OK;
}

static kolo_status divide(partitioner *p, kolo_node *n) {
    kolo_value by[KOLO_MAX_IO];
    kolo_axes axes = 0; /* the labels of these positions */
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        axes |= (kolo_axes)is_of_positions(p, a) << a;
    }
    KOLO_TRY(kolo_partition_cut_replaced(p, n, axes));
    const int32_t first = p->g->n_nodes;
    n->op->divide(p->g, n, p->whole[n->in[0].id].dim[1], by);
    return visit_from(p, n, first, by);
}

/* Replaces a node that sums over all rows. Its parameters and statistics are those of the channels
 * that this rank has. */
static kolo_status sum_rows(partitioner *p, kolo_node *n) {
    kolo_value by[KOLO_MAX_IO];
    kolo_axes axes = 0;
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        axes |= (kolo_axes)(divides_layers(&p->g->mesh, a) && !is_of_positions(p, a)) << a;
    }
    KOLO_TRY(kolo_partition_cut_replaced(p, n, axes));
    const int32_t first = p->g->n_nodes;
    kolo_partition_add_row_sums(p, n, by);
    return visit_from(p, n, first, by);
}

/* Takes what replaces the inputs of a node. */
static kolo_status take_inputs(const partitioner *p, kolo_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        n->in[k] = p->now[n->in[k].id];
        if (kolo_value_ok(n->in[k])) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: no rank has all of its input %d", n->op->name,
                         k);
    }
    return KOLO_OK;
}

/* Whether the op needs all classes, but nodes that replace it do not. */
static bool is_divided(const kolo_node *n) { return n->op->divide && n->n_in == n->op->min_in; }

/* Whether the op needs all classes: of a loss with weights of these, or of one of soft labels. */
static bool needs_classes(const kolo_node *n) {
    const bool soft = n->op == &kolo_op_softmax || n->op == &kolo_op_accuracy;
    return soft || (n->op->divide && n->n_in > n->op->min_in);
}

/* Makes the logits that a node reads whole. */
static kolo_status collect_classes(partitioner *p, kolo_node *n) {
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const kolo_placement *x = placed(p, n->in[0], a);
        if (!is_cut(x) || x->dim != 1 || is_of_samples(p, a) || is_of_positions(p, a)) continue;
        n->in[0] = kolo_partition_collect(p, n->in[0], a, KOLO_PLACEMENT_INVARIANT);
        KOLO_TRY(kolo_graph_check(p->g));
    }
    return KOLO_OK;
}

static kolo_status visit(partitioner *p, kolo_node *n) {
    bool summed = false;
    KOLO_TRY(take_inputs(p, n));
    const bool classes = n->n_in > 0 && has_some_classes(p, n);
    if (classes && is_divided(n)) return divide(p, n);
    if (classes && needs_classes(n)) KOLO_TRY(collect_classes(p, n));
    if (kolo_partition_sums_rows(p, n)) return sum_rows(p, n);
    p->exchanged = 0;
    KOLO_TRY(kolo_partition_cut_node(p, n, &summed));
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k].id < p->n_values) p->used[n->in[k].id] = true;
    }
    const bool relu = summed && take_relu(n);
    p->order[p->n++] = n;
    if (n->op->comm != KOLO_OP_LOCAL) return kolo_node_propagate(p->g, n);
    KOLO_TRY(infer_shapes(p, n));
    KOLO_TRY(kolo_node_propagate(p->g, n));
    for (int k = 0; k < n->n_out; k++) p->now[n->out[k].id] = reduced(p, n->out[k]);
    for (int a = 0; a < p->g->mesh.n_axes && kolo_graph_check(p->g) == KOLO_OK; a++) {
        kolo_value *y = &p->now[n->out[0].id];
        if (kolo_lstm_is_divided(n) && is_cut(placed(p, *y, a)) && placed(p, *y, a)->dim == 2) {
            *y = kolo_partition_collect(p, *y, a, KOLO_PLACEMENT_INVARIANT);
        }
        const bool to_experts =
            n->op == &kolo_op_expert_dispatch && is_of_experts(p, a) && p->g->mesh.axes[a].size > 1;
        if (to_experts) *y = kolo_partition_to_experts(p, *y, a);
    }
    for (int a = 0; a < p->g->mesh.n_axes && kolo_graph_check(p->g) == KOLO_OK; a++) {
        kolo_value *y = &p->now[n->out[0].id];
        if (p->exchanged >> a & 1) *y = kolo_partition_give_positions(p, *y, a);
    }
    if (relu) {
        kolo_value sum = p->now[n->out[0].id], y = kolo_relu(p->g, sum);
        KOLO_TRY(kolo_graph_check(p->g));
        kolo_info(p->g, y)->placements = kolo_info(p->g, sum)->placements;
        p->whole[y.id] = p->whole[sum.id];
        p->order[p->n++] = p->g->nodes[kolo_info(p->g, y)->producer];
        p->now[n->out[0].id] = y;
    }
    return kolo_graph_check(p->g);
}

/* Whether the ranks of an axis have slices of v. */
static bool is_sharded(const partitioner *p, kolo_value v) {
    bool sharded = false;
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        sharded |= !is_of_samples(p, a) && is_cut(placed(p, v, a));
    }
    return sharded;
}

/* Outputs that are sharded stay so, with the shape of the whole, or go: of logits that no rank has
 * as a whole, the loss is reported. */
static void finish_outputs(const partitioner *p, bool keeps) {
    kolo_graph *g = p->g;
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_named_value output = g->outputs[i];
        const int32_t id = output.value.id;
        output.value = p->now[id];
        if (!kolo_value_ok(output.value)) continue;
        const bool sharded = is_sharded(p, output.value);
        if (sharded && !keeps) continue;
        if (sharded) output.whole = p->whole[id];
        g->outputs[kept++] = output;
    }
    g->n_outputs = kept;
}

/* Gives each rank of the axes by samples some of them. Where they do not divide, all ranks compute
 * all, and each a summand of the gradient nevertheless. */
static kolo_status divide_samples(partitioner *p) {
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const int size = p->g->mesh.axes[a].size;
        for (int32_t v = 0; v < p->n_values && (p->by_samples >> a & 1); v++) {
            const kolo_value_info *info = &p->g->values[v];
            const kolo_value now = p->now[v];
            kolo_shape shape = kolo_info(p->g, now)->tensor.shape;
            if (info->kind != KOLO_VALUE_INPUT || info->tensor.dtype != p->g->dtype) continue;
            if (shape.dim[0] % size == 0) {
                const kolo_placement cut = {.kind = KOLO_PLACEMENT_SHARDED, .depth = 1 + a};
                shape.dim[0] /= size;
                p->now[v] = kolo_partition_move(p, now, a, &cut, &shape);
                KOLO_TRY(kolo_graph_check(p->g));
                p->origin[p->now[v].id] = v;
            } else {
                p->now[v] = kolo_partition_move_to(p, now, a, KOLO_PLACEMENT_REPLICATED);
                KOLO_TRY(kolo_graph_check(p->g));
                p->varying[p->now[v].id] |= (kolo_axes)1 << a;
            }
            KOLO_TRY(kolo_graph_check(p->g));
        }
    }
    return KOLO_OK;
}

/* The largest slice of v that a rank has, by which all ranks decide alike. */
static kolo_shape largest_slice(const partitioner *p, kolo_value v) {
    kolo_shape shape = p->whole[v.id];
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        const kolo_placement *cut = placed(p, v, a);
        const int size = p->g->mesh.axes[a].size;
        if (is_of_samples(p, a) || !is_cut(cut) || cut->dim >= shape.rank) continue;
        int64_t most = 0;
        for (int c = 0; c < size; c++) {
            most = kolo_max_i64(most, kolo_placement_count(cut, shape.dim[cut->dim], size, c));
        }
        shape.dim[cut->dim] = most;
    }
    return shape;
}

static void measure_slices(const partitioner *p) {
    kolo_graph *g = p->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != KOLO_VALUE_TEMP) continue;
        g->values[v].canon = largest_slice(p, (kolo_value){.id = v});
    }
}

static kolo_status walk(partitioner *p, bool keeps) {
    kolo_graph *g = p->g;
    const int32_t n_nodes = g->n_nodes;
    for (int32_t v = 0; v < p->most; v++) {
        p->now[v] = (kolo_value){.id = v};
        for (int a = 0; a < KOLO_MESH_AXES; a++) p->read[v][a] = KOLO_NONE;
    }
    for (int32_t v = 0; v < p->n_values; v++) p->whole[v] = g->values[v].tensor.shape;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (divides_layers(&g->mesh, a) && !is_of_inputs(p, a)) KOLO_TRY(apply_rules(p, a));
    }
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (divides_layers(&g->mesh, a) && is_of_positions(p, a))
            KOLO_TRY(kolo_partition_check_positions(p, a));
    }
    KOLO_TRY(divide_samples(p));
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (divides_layers(&g->mesh, a) && is_of_positions(p, a))
            KOLO_TRY(kolo_partition_begin_rows(p, a));
    }
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (divides_layers(&g->mesh, a) && is_of_experts(p, a))
            KOLO_TRY(kolo_partition_begin_experts(p, a));
    }
    for (int32_t i = 0; i < n_nodes; i++) KOLO_TRY(visit(p, g->nodes[i]));
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (divides_layers(&g->mesh, a) && is_of_experts(p, a))
            KOLO_TRY(kolo_partition_finish_experts(p, a));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_value v = p->now[g->outputs[i].value.id];
        if (!kolo_value_ok(v) || p->varying[v.id] == 0) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "layers have samples of their own on each rank, but no later layer is "
                         "sharded");
    }
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (divides_layers(&g->mesh, a) && is_of_positions(p, a))
            KOLO_TRY(kolo_partition_finish_positions(p, a));
    }
    finish_outputs(p, keeps);
    measure_slices(p);
    return kolo_graph_set_nodes(g, p->order, p->n);
}

bool kolo_mesh_has_model_axis(const kolo_mesh *mesh) {
    for (int a = 0; a < mesh->n_axes; a++) {
        if (mesh->axes[a].size > 1 && strcmp(mesh->axes[a].name, "dp") != 0) return true;
    }
    return false;
}

bool kolo_mesh_divides_layers(const kolo_mesh *mesh) {
    for (int a = 0; a < mesh->n_axes; a++) {
        if (divides_layers(mesh, a)) return true;
    }
    return false;
}

kolo_status kolo_partition_graph(kolo_graph *g, const char *rules, bool sharded_outputs,
                                 bool in_blocks) {
    const size_t values = (size_t)g->n_values + 1;
    const size_t nodes = (size_t)g->n_nodes * (2 + 2 * KOLO_MAX_IO * KOLO_MESH_AXES) + 1;
    partitioner p = {.g = g,
                     .rules = rules ? rules : kolo_placement_rules(NULL),
                     .sums = KOLO_PLACE_WHOLE,
                     .in_blocks = in_blocks,
                     .n_values = g->n_values,
                     .most = (int32_t)(values + nodes)};
    kolo_arena arena = {0};
    p.now = kolo_arena_alloc(&arena, (size_t)p.most * sizeof *p.now);
    p.whole = kolo_arena_alloc(&arena, (size_t)p.most * sizeof *p.whole);
    p.origin = kolo_arena_alloc(&arena, (size_t)p.most * sizeof *p.origin);
    p.varying = kolo_arena_alloc(&arena, (size_t)p.most * sizeof *p.varying);
    p.read = kolo_arena_alloc(&arena, (size_t)p.most * sizeof *p.read);
    p.used = kolo_arena_alloc(&arena, values * sizeof *p.used);
    p.order = kolo_arena_alloc(&arena, nodes * sizeof *p.order);
    kolo_status status = p.now && p.whole && p.origin && p.varying && p.read && p.used && p.order
                             ? walk(&p, sharded_outputs)
                             : KOLO_NOMEM(nodes * sizeof *p.order);
    kolo_arena_fini(&arena);
    return status == KOLO_OK ? KOLO_OK
                             : kolo_fail_in(status, "the model cannot be divided over the mesh");
}

kolo_status kolo_pass_partition(kolo_graph *g, const char *rules, bool sharded_outputs) {
    return kolo_partition_graph(g, rules, sharded_outputs, false);
}
