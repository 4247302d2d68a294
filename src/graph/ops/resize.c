/* Ops with a given output size: adaptive average pooling and bilinear resizing, and their
 * gradients. Both are linear in x, so that a gradient does not read x. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>
#include <math.h>

static const char *const pool_attrs[] = {"h", "w", NULL};
static const char *const resize_attrs[] = {"h",    "w",          "align",     "first",
                                           "rows", "from_first", "from_rows", NULL};

/* [N,C,H,W] -> [N,C,h,w]. */
static kolo_status size_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,C,H,W"));
    const int64_t *x = q->in[0].shape.dim;
    int64_t h = q->attr[KOLO_SIZE_H].i, w = q->attr[KOLO_SIZE_W].i;
    if (h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX) {
        return KOLO_RULE_FAIL(q, "%" PRId64 " x %" PRId64 " pixels; each must be 1 to %d", h, w,
                              INT32_MAX);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_4(x[0], x[1], h, w));
}

/* The gradient by `op`, whose attributes are the size of x. */
static void size_grad(kolo_graph *g, const kolo_node *n, const kolo_op *op, const kolo_value *d_out,
                      const bool *wants, kolo_value *d_in) {
    if (!wants[0]) return;
    const int64_t *x = kolo_info(g, n->in[0])->tensor.shape.dim;
    kolo_attr attr[KOLO_MAX_ATTRS];
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) attr[i] = n->attr[i];
    attr[KOLO_SIZE_H].i = x[2];
    attr[KOLO_SIZE_W].i = x[3];
    d_in[0] = kolo_graph_add1(g, op, d_out, 1, attr);
}

static void pool_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    size_grad(g, n, &kolo_op_adaptive_avg_pool2d_bwd, d_out, wants, d_in);
}

static void resize_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    size_grad(g, n, &kolo_op_resize_bwd, d_out, wants, d_in);
}

/* Four multiply-adds per element of the larger tensor. */
static kolo_cost resize_cost(const kolo_shape_query *q) {
    double in = (double)kolo_shape_count(&q->in[0].shape);
    double out = (double)kolo_shape_count(&q->out[0].shape);
    return (kolo_cost){8 * (in > out ? in : out), kolo_query_bytes(q)};
}

/* About one addition per element of the larger tensor. */
static kolo_cost pool_cost(const kolo_shape_query *q) {
    double in = (double)kolo_shape_count(&q->in[0].shape);
    double out = (double)kolo_shape_count(&q->out[0].shape);
    return (kolo_cost){in > out ? in : out, kolo_query_bytes(q)};
}

const kolo_op kolo_op_adaptive_avg_pool2d = {
    .name = "adaptive_avg_pool2d",
    .index = "ncHW->ncPQ",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = pool_attrs,
    .shape = size_shape,
    .grad = pool_grad,
    .cost = pool_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_adaptive_avg_pool2d_bwd = {
    .name = "adaptive_avg_pool2d_bwd",
    .index = "ncPQ->ncHW",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = pool_attrs,
    .shape = size_shape,
    .cost = pool_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
/* ---- some of the rows ---- */

/* The rows that an output row lies between, as the kernels compute them; the last one is read too
 * where its weight is 0. */
static bool resize_window(const kolo_window_query *q, kolo_interval *rows) {
    const bool align = q->attr[KOLO_SIZE_ALIGN].i;
    const kolo_between first = kolo_resize_between(q->places.first, q->length, q->all, align);
    const kolo_between last = kolo_resize_between(q->places.end - 1, q->length, q->all, align);
    *rows = (kolo_interval){first.low, last.high + 1};
    return true;
}

static void divide_resize(const kolo_window_query *q, kolo_interval rows, kolo_attr *attr) {
    attr[KOLO_SIZE_H].i = q->places.end - q->places.first;
    attr[KOLO_RESIZE_FIRST].i = q->places.first;
    attr[KOLO_RESIZE_ROWS].i = q->all;
    attr[KOLO_RESIZE_FROM_FIRST].i = rows.first;
    attr[KOLO_RESIZE_FROM_ROWS].i = q->length;
}

kolo_between kolo_resize_between(int64_t i, int64_t from, int64_t to, bool align) {
    const double at = align ? (to > 1 ? (double)i * (double)(from - 1) / (double)(to - 1) : 0)
                            : fmax(((double)i + 0.5) * (double)from / (double)to - 0.5, 0);
    kolo_between b = {.low = kolo_min_i64((int64_t)at, from - 1)};
    b.high = kolo_min_i64(b.low + 1, from - 1);
    b.part = at - (double)b.low;
    return b;
}

kolo_between kolo_resize_row(const kolo_attr *attr, int64_t i, int64_t from, int64_t to) {
    const bool align = attr[KOLO_SIZE_ALIGN].i, part = attr[KOLO_RESIZE_ROWS].i > 0;
    if (!part) return kolo_resize_between(i, from, to, align);
    kolo_between b =
        kolo_resize_between(i + attr[KOLO_RESIZE_FIRST].i, attr[KOLO_RESIZE_FROM_ROWS].i,
                            attr[KOLO_RESIZE_ROWS].i, align);
    b.low -= attr[KOLO_RESIZE_FROM_FIRST].i;
    b.high -= attr[KOLO_RESIZE_FROM_FIRST].i;
    return b;
}

const kolo_op kolo_op_resize = {
    .name = "resize",
    .index = "nc~hW->nchQ",
    .window = resize_window,
    .divide_window = divide_resize,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = resize_attrs,
    .shape = size_shape,
    .grad = resize_grad,
    .cost = resize_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_resize_bwd = {
    .name = "resize_bwd",
    .index = "nchQ->nc~hW",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = resize_attrs,
    .shape = size_shape,
    .cost = resize_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};

/* ---- builder ---- */

static bool is_image(const kolo_graph *g, kolo_value x) {
    return x.id >= 0 && x.id < g->n_values && kolo_info(g, x)->tensor.shape.rank == 4;
}

/* With equal windows it is an ordinary average pool. */
kolo_value kolo_adaptive_avg_pool2d(kolo_graph *g, kolo_value x, int64_t h, int64_t w) {
    const int64_t *dim = is_image(g, x) ? kolo_info(g, x)->tensor.shape.dim : NULL;
    if (dim && h > 0 && w > 0 && dim[2] % h == 0 && dim[3] % w == 0) {
        return kolo_avg_pool2d(g, x,
                               &(kolo_pool2d_opts){.kernel_h = dim[2] / h, .kernel_w = dim[3] / w});
    }
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SIZE_H].i = h, [KOLO_SIZE_W].i = w};
    return kolo_graph_add1(g, &kolo_op_adaptive_avg_pool2d, &x, 1, attr);
}

kolo_value kolo_resize(kolo_graph *g, kolo_value x, int64_t h, int64_t w, bool align_corners) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_SIZE_H].i = h, [KOLO_SIZE_W].i = w, [KOLO_SIZE_ALIGN].i = align_corners};
    return kolo_graph_add1(g, &kolo_op_resize, &x, 1, attr);
}
