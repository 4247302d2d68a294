/* Spatial parallelism: for models of images the axis sp divides the rows, dimension 2 of [N,C,H,W],
 * and no parameter. All that follows from an image is sharded so, as evenly as can be. An op with a
 * window, such as a convolution, reads the rows of its results with a halo:
 *
 *     conv2d(x)  ->  conv2d(redistribute(x, sp:sharded2 -> sp:sharded2-1+1))
 *
 * The redistribution copies rows of neighbours; its gradient adds the gradients of these copies to
 * those of the rows. A transposed convolution gives summands of rows of neighbours: the same moves
 * the other way round. Batch normalization sums over the ranks, as a mean over all rows does. An op
 * that needs all rows, such as the flattening before a classifier, gathers them: all ranks compute
 * what follows alike. (Dryden et al., "Improving strong-scaling of CNN training by exploiting
 * finer-grained parallelism", IPDPS 2019.) */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "pass/partition/partition.h"

#include <inttypes.h>
#include <string.h>

enum { ROWS = 2, COLUMNS = 3, IMAGE = 4 }; /* dimensions of images, and their number */

/* Whether an input is an image that the model reads. */
static bool is_image(const partitioner *p, int32_t v) {
    const kolo_value_info *info = &p->g->values[v];
    return info->kind == KOLO_VALUE_INPUT && info->tensor.shape.rank == IMAGE &&
           info->tensor.dtype == p->g->dtype;
}

/* Whether the model makes a sequence of patches of images: a vision transformer. */
static bool makes_patches(const partitioner *p) {
    bool images = false, attention = false;
    for (int32_t v = 0; v < p->n_values; v++) images |= is_image(p, v);
    for (int32_t i = 0; i < p->g->n_nodes; i++) {
        attention |= p->g->nodes[i]->op == &kolo_op_attention;
    }
    return images && attention;
}

kolo_status kolo_partition_begin_rows(partitioner *p, int axis) {
    const kolo_mesh_axis *of = &p->g->mesh.axes[axis];
    const kolo_placement cut = {
        .kind = KOLO_PLACEMENT_SHARDED, .dim = ROWS, .depth = KOLO_DEPTH_POSITIONS};
    p->patches = makes_patches(p);
    for (int32_t v = 0; v < p->n_values && !p->patches; v++) {
        if (!is_image(p, v)) continue;
        const int64_t rows = p->g->values[v].tensor.shape.dim[ROWS];
        if (rows < of->size) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "%" PRId64 " rows of images cannot be divided over %s=%d: choose "
                             "larger images, or a smaller %s",
                             rows, of->name, of->size, of->name);
        }
        p->now[v] = kolo_partition_slice(p, p->now[v], axis, &cut);
        KOLO_TRY(kolo_graph_check(p->g));
        p->origin[p->now[v].id] = v;
    }
    return KOLO_OK;
}

/* ---- windows ---- */

/* The tensors of a node that have the rows of its window, and the places; the first of each. */
typedef struct sides {
    kolo_value rows, places;
    int rows_dim, places_dim;
} sides;

/* False: the op has no window along the index. */
static bool find_sides(const cut_node *c, sides *s) {
    *s = (sides){.rows = KOLO_NONE, .places = KOLO_NONE};
    for (int k = 0; k < c->n->n_in + c->n->n_out; k++) {
        const bool in = k < c->n->n_in;
        const kolo_index_term *term = in ? &c->index->in[k] : &c->index->out[k - c->n->n_in];
        const kolo_value v = in ? c->n->in[k] : c->n->out[k - c->n->n_in];
        const int d = kolo_index_find(term, c->code);
        if (d >= 0 && term->window[d] && !kolo_value_ok(s->rows)) {
            s->rows = v;
            s->rows_dim = d;
        } else if (d >= 0 && !term->window[d] && !kolo_value_ok(s->places)) {
            s->places = v;
            s->places_dim = d;
        }
    }
    return kolo_value_ok(s->rows) && kolo_value_ok(s->places);
}

bool kolo_partition_is_window(const cut_node *c) {
    sides s;
    return find_sides(c, &s);
}

/* Which rows the places of each of `size` ranks need. False: the op needs all rows, or there are
 * fewer places than ranks. */
static bool find_halo(kolo_window_query *q, const kolo_op *op, int size, kolo_halo *halo,
                      kolo_interval *rows) {
    *halo = (kolo_halo){.length = q->length, .places = q->all, .own = true, .rows = rows};
    if (!op->window || q->all < size || q->length < size) return false;
    for (int c = 0; c < size; c++) {
        const kolo_interval slice = kolo_even_slice(q->length, size, c);
        q->places = kolo_even_slice(q->all, size, c);
        if (!op->window(q, &rows[c]) || rows[c].first >= rows[c].end) return false;
        halo->before = kolo_max_i64(halo->before, slice.first - rows[c].first);
        halo->after = kolo_max_i64(halo->after, rows[c].end - slice.end);
        halo->own &= slice.first == rows[c].first && slice.end == rows[c].end;
    }
    return true;
}

/* An input with its halo. */
static void add_halo(partitioner *p, const cut_node *c, int k, kolo_interval rows) {
    const kolo_value v = c->n->in[k];
    kolo_placement to = *placed(p, v, c->axis);
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    to.halo = c->n->halo;
    shape.dim[to.dim] = rows.end - rows.first;
    c->n->in[k] = kolo_partition_move(p, v, c->axis, &to, &shape);
}

kolo_status kolo_partition_take_rows(partitioner *p, const cut_node *c, bool *taken) {
    const int size = p->g->mesh.axes[c->axis].size;
    const int at = kolo_mesh_coordinate(&p->g->mesh, p->g->rank, c->axis);
    kolo_shape in[KOLO_MAX_IO];
    kolo_attr attr[KOLO_MAX_ATTRS];
    sides s;
    *taken = false;
    if (!is_of_positions(p, c->axis) || !find_sides(c, &s)) return KOLO_OK;
    for (int k = 0; k < c->n->n_in; k++) {
        in[k] = p->whole[c->n->in[k].id];
        if (in[k].rank == 0) in[k] = kolo_info(p->g, c->n->in[k])->tensor.shape;
    }
    kolo_window_query q = {.attr = c->n->attr,
                           .in = in,
                           .length = p->whole[s.rows.id].dim[s.rows_dim],
                           .all = p->whole[s.places.id].dim[s.places_dim]};
    kolo_halo *halo = kolo_arena_alloc(&p->g->arena, sizeof *halo);
    kolo_interval *rows = kolo_arena_alloc(&p->g->arena, (size_t)size * sizeof *rows);
    if (!halo || !rows) return KOLO_NOMEM((size_t)size * sizeof *rows);
    if (!find_halo(&q, c->n->op, size, halo, rows)) return KOLO_OK;
    q.places = kolo_even_slice(q.all, size, at);
    memcpy(attr, c->n->attr, sizeof attr);
    c->n->op->divide_window(&q, rows[at], attr);
    memcpy(c->n->attr, attr, sizeof attr);
    c->n->halo = halo;
    for (int k = 0; k < c->n->n_in && !halo->own; k++) {
        if (kolo_index_is_window(&c->index->in[k], c->code)) add_halo(p, c, k, rows[at]);
    }
    *taken = true;
    return kolo_graph_check(p->g);
}

kolo_value kolo_partition_give_rows(partitioner *p, kolo_value v, int axis) {
    kolo_placement to = *placed(p, v, axis);
    const kolo_interval slice =
        kolo_even_slice(to.halo->length, p->g->mesh.axes[axis].size,
                        kolo_mesh_coordinate(&p->g->mesh, p->g->rank, axis));
    kolo_shape shape = kolo_info(p->g, v)->tensor.shape;
    shape.dim[to.dim] = slice.end - slice.first;
    to.halo = NULL;
    to.summands = false;
    return kolo_partition_move(p, v, axis, &to, &shape);
}

/* ---- sums over all rows ---- */

bool kolo_partition_has_rows(const partitioner *p, kolo_value v, int axis) {
    const kolo_placement *x = placed(p, v, axis);
    const bool image = kolo_info(p->g, v)->tensor.shape.rank == IMAGE;
    return is_of_positions(p, axis) && is_cut(x) && image && x->dim == ROWS;
}

/* The axis along which rows of the first input of a node are sharded; -1: none. */
static int axis_of_rows(const partitioner *p, const kolo_node *n) {
    for (int a = 0; a < p->g->mesh.n_axes; a++) {
        if (kolo_partition_has_rows(p, n->in[0], a)) return a;
    }
    return -1;
}

static bool is_global_mean(const partitioner *p, const kolo_node *n) {
    const kolo_shape *x = &p->whole[n->in[0].id];
    return n->op == &kolo_op_avg_pool2d && n->attr[KOLO_POOL_KERNEL_H].i == x->dim[ROWS] &&
           n->attr[KOLO_POOL_KERNEL_W].i == x->dim[COLUMNS] && n->attr[KOLO_POOL_PAD_H].i == 0 &&
           n->attr[KOLO_POOL_PAD_W].i == 0 && n->attr[KOLO_POOL_RELU].i == 0;
}

/* A mean is the sum over its elements of all rows, times a constant. */
static void add_mean(const partitioner *p, const kolo_node *n, kolo_value *by) {
    const kolo_shape *x = &p->whole[n->in[0].id];
    const int axes[] = {ROWS, COLUMNS};
    const kolo_value sum = kolo_reduce_sum(p->g, n->in[0], axes, 2, true);
    by[0] = kolo_scale(p->g, sum, 1 / ((double)x->dim[ROWS] * (double)x->dim[COLUMNS]));
}

/* Batch normalization by the samples of a rank of the axis dp and all rows of these. */
static void add_norm(const partitioner *p, const kolo_node *n, kolo_value *by) {
    kolo_graph *g = p->g;
    const kolo_shape *whole = &p->whole[n->in[0].id];
    const int64_t plane = whole->dim[ROWS] * whole->dim[COLUMNS];
    const kolo_value weight = kolo_shard_leaf(g, kolo_graph_scalar(g, "rank_weight", g->dtype));
    const kolo_attr of_sums[KOLO_MAX_ATTRS] = {
        [KOLO_SYNC_SUMS_OF_RANK].i = 1, [KOLO_SYNC_SUMS_PLANE].i = plane};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SYNC_NORM_MOMENTUM] = n->attr[KOLO_NORM_MOMENTUM],
        [KOLO_SYNC_NORM_PLANE].i = plane,
    };
    kolo_attr apply_attr[KOLO_MAX_ATTRS];
    memcpy(apply_attr, n->attr, sizeof apply_attr);
    apply_attr[KOLO_SYNC_NORM_OF_RANK].i = 1;
    apply_attr[KOLO_SYNC_NORM_PIXELS].i = plane;
    const kolo_value summed[] = {n->in[0], n->in[3], weight};
    const kolo_value sums = kolo_graph_add1(g, &kolo_op_sync_norm_sums, summed, 3, of_sums);
    const kolo_value in[] = {sums, n->in[3], n->in[4], weight};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_sync_norm_statistics, in, 4, attr, out);
    kolo_value apply[] = {n->in[0], n->in[1], n->in[2], out[0], out[1], weight, KOLO_NONE};
    if (n->n_in == 6) apply[6] = n->in[5];
    by[0] = kolo_graph_add1(g, &kolo_op_sync_norm, apply, n->n_in + 1, apply_attr);
    by[1] = out[0];
    by[2] = out[1];
}

bool kolo_partition_sums_rows(const partitioner *p, const kolo_node *n) {
    if (n->op != &kolo_op_batch_norm && n->op != &kolo_op_avg_pool2d) return false;
    if (axis_of_rows(p, n) < 0) return false;
    return n->op == &kolo_op_batch_norm || is_global_mean(p, n);
}

void kolo_partition_add_row_sums(const partitioner *p, const kolo_node *n, kolo_value *by) {
    if (n->op == &kolo_op_batch_norm) {
        add_norm(p, n, by);
    } else {
        add_mean(p, n, by);
    }
}
