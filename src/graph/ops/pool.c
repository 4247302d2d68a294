/* Max and average pooling and their gradients. Max pooling stores the index of the maximum in each
 * window, one byte per output, so that its gradient does not read the input. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

static const char *const attrs[] = {"kernel_h",        "kernel_w", "stride_h", "stride_w", "pad_h",
                                    "pad_w",           "relu",     "in_h",     "in_w",     "ceil",
                                    "exclude_padding", "more_h",   NULL};

/* The window along the height or, for axis 1, the width. */
static kolo_window window_of(const kolo_attr *attr, int axis) {
    return (kolo_window){.kernel = attr[KOLO_POOL_KERNEL_H + axis].i,
                         .stride = attr[KOLO_POOL_STRIDE_H + axis].i,
                         .pad = attr[KOLO_POOL_PAD_H + axis].i,
                         .dilation = 1,
                         .more = axis == 0 ? attr[KOLO_POOL_MORE_H].i : 0};
}

/* H', W' of an image of size[0] x size[1]. */
static kolo_status places_of(const kolo_shape_query *q, const int64_t *size, int64_t places[2]) {
    for (int axis = 0; axis < 2; axis++) {
        const char *name = axis ? "width" : "height";
        const kolo_window window = window_of(q->attr, axis);
        const int64_t behind = window.pad + window.more;
        KOLO_TRY(kolo_rule_window(q, name, size[axis], window, &places[axis]));
        /* ceil: one more window if elements are left and it starts before the trailing padding. */
        bool more =
            q->attr[KOLO_POOL_CEIL].i &&
            (places[axis] - 1) * window.stride + window.kernel < size[axis] + window.pad + behind;
        places[axis] += more && places[axis] * window.stride < size[axis] + window.pad;
        if (window.pad > window.kernel / 2) {
            return KOLO_RULE_FAIL(q,
                                  "padding %" PRId64 " along the %s; it must be at most half the "
                                  "kernel of %" PRId64,
                                  window.pad, name, window.kernel);
        }
    }
    return KOLO_OK;
}

static kolo_status pool_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,C,H,W"));
    const int64_t *x = q->in[0].shape.dim;
    int64_t places[2];
    KOLO_TRY(places_of(q, x + 2, places));
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_4(x[0], x[1], places[0], places[1]));
}

static kolo_status max_shape(kolo_shape_query *q) {
    KOLO_TRY(pool_shape(q));
    int64_t h = q->attr[KOLO_POOL_KERNEL_H].i, w = q->attr[KOLO_POOL_KERNEL_W].i;
    if (h * w > 256) {
        return KOLO_RULE_FAIL(q, "a window of %" PRId64 " x %" PRId64 "; at most 256 elements fit",
                              h, w);
    }
    return kolo_rule_out(q, 1, KOLO_DTYPE_U8, q->out[0].shape);
}

/* The rule of both gradients; dy is input 0. */
static kolo_status pool_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,C,H',W'"));
    const int64_t *dy = q->in[0].shape.dim;
    const int64_t size[2] = {q->attr[KOLO_POOL_IN_H].i, q->attr[KOLO_POOL_IN_W].i};
    int64_t places[2];
    KOLO_TRY(places_of(q, size, places));
    if (places[0] != dy[2] || places[1] != dy[3]) {
        return KOLO_RULE_FAIL(q, "dy must be %" PRId64 " x %" PRId64 ", the size of the output",
                              places[0], places[1]);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_4(dy[0], dy[1], size[0], size[1]));
}

static kolo_status max_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fbf"));
    for (int i = 1; i < q->n_in; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    return pool_bwd_shape(q);
}

static kolo_status avg_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    return pool_bwd_shape(q);
}

/* Attributes of the gradient of `n`: those of `n` and the size of its input. */
static void bwd_attrs(const kolo_graph *g, const kolo_node *n, kolo_attr attr[KOLO_MAX_ATTRS]) {
    const int64_t *x = kolo_info(g, n->in[0])->tensor.shape.dim;
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) attr[i] = n->attr[i];
    attr[KOLO_POOL_RELU].i = 0;
    attr[KOLO_POOL_IN_H].i = x[2];
    attr[KOLO_POOL_IN_W].i = x[3];
}

static void max_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    if (!wants[0]) return;
    kolo_attr attr[KOLO_MAX_ATTRS];
    bwd_attrs(g, n, attr);
    const kolo_value in[3] = {d_out[0], n->out[1], n->out[0]};
    int n_in = n->attr[KOLO_POOL_RELU].i ? 3 : 2;
    d_in[0] = kolo_graph_add1(g, &kolo_op_max_pool2d_bwd, in, n_in, attr);
}

static void avg_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    if (!wants[0]) return;
    kolo_attr attr[KOLO_MAX_ATTRS];
    bwd_attrs(g, n, attr);
    d_in[0] = kolo_graph_add1(g, &kolo_op_avg_pool2d_bwd, d_out, 1, attr);
}

/* ---- some of the rows ---- */

static bool max_window(const kolo_window_query *q, kolo_interval *rows) {
    kolo_window_rows(q, window_of(q->attr, 0), rows);
    return true;
}

/* A mean with padding whose last window goes beyond it is over fewer elements: not divided. */
static bool avg_window(const kolo_window_query *q, kolo_interval *rows) {
    const kolo_window w = window_of(q->attr, 0);
    const int64_t end = (q->all - 1) * w.stride + w.kernel;
    kolo_window_rows(q, w, rows);
    return q->attr[KOLO_POOL_EXCLUDE_PADDING].i || end <= q->length + 2 * w.pad + w.more;
}

static void divide_window(const kolo_window_query *q, kolo_interval rows, kolo_attr *attr) {
    const kolo_window part = kolo_window_part(q, window_of(q->attr, 0), rows);
    attr[KOLO_POOL_PAD_H].i = part.pad;
    attr[KOLO_POOL_MORE_H].i = part.more;
}

const kolo_op kolo_op_max_pool2d = {
    .name = "max_pool2d",
    .index = "nc~hW->nchQ,nchQ",
    .window = max_window,
    .divide_window = divide_window,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "aa"},
    .attrs = attrs,
    .shape = max_shape,
    .grad = max_grad,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x3u},
};
const kolo_op kolo_op_max_pool2d_bwd = {
    .name = "max_pool2d_bwd",
    .index = "nchQ,nchQ,nchQ->nc~hW",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "aaa", .out = "a"},
    .attrs = attrs,
    .shape = max_bwd_shape,
    .bf16 = 1u << 0 | 1u << 2,
    .samples = {.in = 0x7u, .out = 0x1u},
};
const kolo_op kolo_op_avg_pool2d = {
    .name = "avg_pool2d",
    .index = "nc~hW->nchQ",
    .window = avg_window,
    .divide_window = divide_window,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = attrs,
    .shape = pool_shape,
    .grad = avg_grad,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_avg_pool2d_bwd = {
    .name = "avg_pool2d_bwd",
    .index = "nchQ->nc~hW",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = attrs,
    .shape = avg_bwd_shape,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};

static kolo_value pool2d(kolo_graph *g, const kolo_op *op, kolo_value x,
                         const kolo_pool2d_opts *opts) {
    kolo_pool2d_opts o = opts ? *opts : (kolo_pool2d_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_POOL_KERNEL_H].i = o.kernel_h,
        [KOLO_POOL_KERNEL_W].i = o.kernel_w,
        [KOLO_POOL_STRIDE_H].i = o.stride_h ? o.stride_h : o.kernel_h,
        [KOLO_POOL_STRIDE_W].i = o.stride_w ? o.stride_w : o.kernel_w,
        [KOLO_POOL_PAD_H].i = o.pad_h,
        [KOLO_POOL_PAD_W].i = o.pad_w,
        [KOLO_POOL_CEIL].i = o.ceil,
        [KOLO_POOL_EXCLUDE_PADDING].i = o.exclude_padding && op == &kolo_op_avg_pool2d,
    };
    return kolo_graph_add1(g, op, &x, 1, attr);
}

kolo_value kolo_max_pool2d(kolo_graph *g, kolo_value x, const kolo_pool2d_opts *opts) {
    return pool2d(g, &kolo_op_max_pool2d, x, opts);
}

kolo_value kolo_global_avg_pool2d(kolo_graph *g, kolo_value x) {
    kolo_pool2d_opts opts = {0}; /* of anything but images: the rule refuses it */
    if (kolo_value_is_of(g, x) && kolo_info(g, x)->tensor.shape.rank == 4) {
        opts.kernel_h = kolo_info(g, x)->tensor.shape.dim[2];
        opts.kernel_w = kolo_info(g, x)->tensor.shape.dim[3];
    }
    return kolo_avg_pool2d(g, x, &opts);
}

kolo_value kolo_avg_pool2d(kolo_graph *g, kolo_value x, const kolo_pool2d_opts *opts) {
    return pool2d(g, &kolo_op_avg_pool2d, x, opts);
}
