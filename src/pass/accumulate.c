/* Gradient accumulation: sums what is redistributed for updates and outputs over the micro-batches
 * of a step.
 *
 *     sgd(w, redistribute(g))  ->  sgd(w, redistribute(accumulate(g, fresh)))
 *
 * The sum is in the memory from which the gradient is synchronized (lower_comm.c); the gradient of
 * one micro-batch is read once, right after its producer. The scalar "fresh" is 1 in the first
 * micro-batch of a step and 0 in the others. A row-sparse gradient is summed where it is computed,
 * with room for the rows of all micro-batches:
 *
 *     merge_rows(redistribute(rows))  ->  merge_rows(redistribute(accumulate_rows(rows, fresh)))
 *
 * Running statistics are updated as by K steps of PyTorch: K micro-batches with statistics s1 .. sK
 * and momentum m result in (1-m)^K r + m ((1-m)^(K-1) s1 + ... + sK). Each new micro-batch
 * therefore scales the sum by 1-m, and the update, once per step, scales the old value by (1-m)^K.
 */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <math.h>

typedef struct accumulator {
    kolo_graph *g;
    kolo_value fresh;
    kolo_value *sums; /* by value: its sum, or KOLO_NONE */
    int32_t n_old;
    kolo_node_chunks *chunks; /* by node, on a stage of several; else NULL */
    bool scattered;           /* gradients are summed after a reduce-scatter, not before */
} accumulator;

/* The sum of v, scaled by `keep` before each addition. */
static kolo_value sum_of(accumulator *a, kolo_value v, double keep) {
    if (kolo_value_ok(a->sums[v.id])) return a->sums[v.id];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_ACCUMULATE_KEEP].f = keep};
    const kolo_tensor tensor = kolo_info(a->g, v)->tensor;
    const kolo_node *n = kolo_graph_add_raw(a->g, &kolo_op_accumulate, (kolo_value[]){v, a->fresh},
                                            2, 1, &tensor, attr);
    return a->sums[v.id] = n ? n->out[0] : KOLO_NONE;
}

/* Sums v, which may be a sum of what several chunks of a stage compute: these run at different
 * times, so each has a sum of its own, and what adds them up runs once per step. */
static kolo_status sum_chunks(accumulator *a, kolo_value *v, double keep) {
    const int32_t producer = kolo_info(a->g, *v)->producer;
    const kolo_node_chunks *of = a->chunks && producer >= 0 ? &a->chunks[producer] : NULL;
    const bool several = of && !of->of_leaves && (of->bits & (of->bits - 1)) != 0;
    if (!several) {
        *v = sum_of(a, *v, keep);
        return KOLO_OK;
    }
    kolo_node *n = a->g->nodes[producer];
    if (n->op != &kolo_op_add || keep != 1) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s joins what several chunks of stage %d of the pipeline compute: use a "
                         "schedule of one chunk",
                         n->op->name, a->g->stage);
    }
    for (int k = 0; k < n->n_in; k++) {
        if (kolo_info(a->g, n->in[k])->producer >= a->n_old) continue; /* summed before */
        KOLO_TRY(sum_chunks(a, &n->in[k], keep));
    }
    return KOLO_OK;
}

/* Whether a value is computed once per step, not per micro-batch: a parameter, or a result of an
 * update. */
static bool is_of_update(const accumulator *a, kolo_value v) {
    const kolo_value_info *info = kolo_info(a->g, v);
    if (info->producer < 0) return info->kind == KOLO_VALUE_PARAM;
    return kolo_node_is_update(a->g, a->g->nodes[info->producer]);
}

static bool is_scattered(const kolo_node *redistribute, int n_axes) {
    for (int i = 0; i < n_axes; i++) {
        if (redistribute->move->to.axis[i].kind == KOLO_PLACEMENT_SHARDED) return true;
    }
    return false;
}

/* Whether a redistribution makes summands, or versions, of what ranks have alike. */
static bool is_pad(const kolo_node *redistribute, int n_axes, kolo_placement_kind kind) {
    const kolo_redistribution *move = redistribute->move;
    for (int i = 0; i < n_axes; i++) {
        if (move->to.axis[i].kind == kind && move->from.axis[i].kind != kind) return true;
    }
    return false;
}

/* Whether a redistribution gathers versions, which are summed before (sum_rows). */
static bool is_gathered(const kolo_node *redistribute, int n_axes) {
    for (int i = 0; i < n_axes; i++) {
        if (redistribute->move->from.axis[i].kind == KOLO_PLACEMENT_LOCAL) return true;
    }
    return false;
}

/* Sums what becomes *v, if that is redistributed: the ranks then exchange the sum. With
 * `scattered`, sums the result of a reduce-scatter instead: no rank keeps the whole. */
static kolo_status sum_redistributed(accumulator *a, kolo_value *v, double keep) {
    int32_t producer = kolo_info(a->g, *v)->producer;
    if (producer < 0 || producer >= a->n_old) return KOLO_OK;
    kolo_node *n = a->g->nodes[producer];
    if (n->op->comm != KOLO_OP_REDISTRIBUTE || is_gathered(n, a->g->mesh.n_axes)) return KOLO_OK;
    kolo_value *in = &n->in[0];
    const int32_t before = kolo_info(a->g, *in)->producer;
    const bool range = is_scattered(n, a->g->mesh.n_axes); /* else a sum of sums: each is its own */
    if (range && before >= 0 && a->g->nodes[before]->op->comm == KOLO_OP_REDISTRIBUTE) {
        return sum_redistributed(a, in, keep);
    }
    if (kolo_info(a->g, *in)->producer >= a->n_old || is_of_update(a, *in)) return KOLO_OK;
    if (a->scattered && is_scattered(n, a->g->mesh.n_axes)) {
        *v = sum_of(a, *v, keep);
        return KOLO_OK;
    }
    return sum_chunks(a, in, keep);
}

static kolo_status sum_for_update(accumulator *a, kolo_node *n, int64_t micro_batches) {
    double keep = 1;
    if (n->op->average.keep) {
        double *weight = &kolo_node_attr(n, n->op->average.keep)->f;
        keep = *weight;
        *weight = pow(keep, (double)micro_batches);
    }
    for (int k = 0; k < n->n_in; k++) KOLO_TRY(sum_redistributed(a, &n->in[k], keep));
    return KOLO_OK;
}

/* Moves the accumulate nodes, appended at the end, behind the producers of their inputs. */
static kolo_status reorder(const accumulator *a) {
    kolo_graph *g = a->g;
    kolo_node **order = kolo_alloc((size_t)g->n_nodes * sizeof *order);
    if (!order) return KOLO_NOMEM((size_t)g->n_nodes * sizeof *order);
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_old; i++) {
        order[n++] = g->nodes[i];
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            kolo_value sum = a->sums[g->nodes[i]->out[k].id];
            if (!kolo_value_ok(sum)) continue;
            kolo_node *made = g->nodes[kolo_info(g, sum)->producer];
            /* Behind what it sums last: rows, then their ids. */
            if (made->out[made->n_out - 1].id == sum.id) order[n++] = made;
        }
    }
    kolo_status status = kolo_graph_set_nodes(g, order, n);
    kolo_free(order);
    return status;
}

/* ---- row-sparse gradients ---- */

/* Redistributions of v, whose rows have become `to` in place of `from`. */
static void widen(const accumulator *a, kolo_value v, int64_t from, int64_t to) {
    for (int32_t i = 0; i < a->n_old; i++) {
        const kolo_node *n = a->g->nodes[i];
        if (n->op->comm != KOLO_OP_REDISTRIBUTE || n->in[0].id != v.id) continue;
        kolo_tensor *tensor = &kolo_info(a->g, n->out[0])->tensor;
        kolo_shape shape = tensor->shape;
        shape.dim[0] = shape.dim[0] / from * to;
        *tensor = kolo_tensor_plain(tensor->dtype, shape);
        widen(a, n->out[0], from, to);
    }
}

/* What has read the rows, or their ids, of a micro-batch reads those of all. */
static void take_sum(const accumulator *a, kolo_value v, kolo_value sum, int64_t from, int64_t to) {
    for (int32_t i = 0; i < a->n_old; i++) {
        kolo_node *n = a->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id == v.id) n->in[k] = sum;
        }
    }
    a->sums[v.id] = sum;
    widen(a, sum, from, to);
}

/* The version that one rank keeps of v, if all have v (synchronize.c); else v. */
static kolo_value summand_of(const accumulator *a, kolo_value v) {
    for (int32_t i = 0; i < a->n_old; i++) {
        const kolo_node *n = a->g->nodes[i];
        if (n->op->comm != KOLO_OP_REDISTRIBUTE || n->in[0].id != v.id) continue;
        if (is_pad(n, a->g->mesh.n_axes, KOLO_PLACEMENT_LOCAL)) return n->out[0];
    }
    return v;
}

static kolo_status sum_rows(const accumulator *a, const kolo_node *n, int64_t micro_batches) {
    const int64_t table = n->attr[KOLO_ROWS_TABLE].i, room = n->attr[KOLO_ROWS_ROOM].i;
    const int64_t all = kolo_max_i64(kolo_min_i64(table, micro_batches * room), room);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_ROWS_TABLE].i = table, [KOLO_ROWS_ROOM].i = all};
    const kolo_value rows = summand_of(a, n->out[0]), ids = summand_of(a, n->out[1]);
    kolo_value sum[KOLO_MAX_IO];
    kolo_graph_add(a->g, &kolo_op_accumulate_rows, (kolo_value[]){rows, ids, a->fresh}, 3, attr,
                   sum);
    KOLO_TRY(kolo_graph_check(a->g));
    take_sum(a, rows, sum[0], room, all);
    take_sum(a, ids, sum[1], room, all);
    return KOLO_OK;
}

/* The sum of a gradient, or of the summand that one rank keeps of it (synchronize.c); or none. */
static kolo_value sum_of_gradient(const accumulator *a, kolo_value gradient) {
    if (kolo_value_ok(a->sums[gradient.id])) return a->sums[gradient.id];
    for (int32_t i = 0; i < a->n_old; i++) {
        const kolo_node *n = a->g->nodes[i];
        if (n->op->comm != KOLO_OP_REDISTRIBUTE || n->in[0].id != gradient.id) continue;
        if (is_pad(n, a->g->mesh.n_axes, KOLO_PLACEMENT_PARTIAL)) return a->sums[n->out[0].id];
    }
    return KOLO_NONE;
}

static kolo_status sum_all(accumulator *a, int32_t n_values, int64_t micro_batches) {
    kolo_graph *g = a->g;
    for (int32_t v = 0; v < n_values; v++) a->sums[v] = KOLO_NONE;
    for (int32_t i = 0; i < a->n_old; i++) {
        if (g->nodes[i]->op != &kolo_op_embedding_bwd_rows) continue;
        KOLO_TRY(sum_rows(a, g->nodes[i], micro_batches));
    }
    for (int32_t i = 0; i < a->n_old; i++) {
        if (!kolo_node_is_update(g, g->nodes[i])) continue;
        KOLO_TRY(sum_for_update(a, g->nodes[i], micro_batches));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].crossing.number > 0) continue; /* of each micro-batch */
        KOLO_TRY(sum_redistributed(a, &g->outputs[i].value, 1));
    }
    for (int32_t v = 0; v < n_values; v++) {
        kolo_value *grad = &g->values[v].grad;
        const kolo_value sum = kolo_value_ok(*grad) ? sum_of_gradient(a, *grad) : KOLO_NONE;
        if (kolo_value_ok(sum)) *grad = sum;
    }
    return KOLO_OK;
}

kolo_status kolo_pass_accumulate(kolo_graph *g, int64_t micro_batches, bool scattered) {
    accumulator a = {
        .g = g, .fresh = kolo_scalar(g, "fresh"), .n_old = g->n_nodes, .scattered = scattered};
    KOLO_TRY(kolo_graph_check(g));
    const int32_t n_values = g->n_values;
    kolo_arena arena = {0};
    a.sums = kolo_arena_alloc(&arena, ((size_t)n_values + 1) * sizeof *a.sums);
    if (g->chunks > 1) {
        a.chunks = kolo_arena_alloc(&arena, ((size_t)g->n_nodes + 1) * sizeof *a.chunks);
    }
    kolo_status status = a.sums && (a.chunks || g->chunks <= 1)
                             ? KOLO_OK
                             : KOLO_NOMEM((size_t)n_values * sizeof *a.sums);
    if (status == KOLO_OK && a.chunks) status = kolo_find_chunks(g, a.chunks);
    if (status == KOLO_OK) status = sum_all(&a, n_values, micro_batches);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    if (status == KOLO_OK) status = reorder(&a);
    kolo_arena_fini(&arena);
    return status;
}
