/* Max, average and adaptive average pooling and their gradients. Max pooling stores the index of
 * the maximum in each window, one byte per output, so that its gradient does not read the input. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const adaptive_attrs[] = {"h", "w", NULL};
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

/* ---- adaptive ---- */

static void adaptive_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                          const bool *wants, kolo_value *d_in) {
    if (wants[0]) {
        d_in[0] = kolo_rule_resized_grad(g, n, &kolo_op_adaptive_avg_pool2d_bwd, d_out[0]);
    }
}

/* About one addition per element of the larger tensor. */
static kolo_cost adaptive_cost(const kolo_shape_query *q) {
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
    .attrs = adaptive_attrs,
    .shape = kolo_rule_resized,
    .grad = adaptive_grad,
    .cost = adaptive_cost,
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
    .attrs = adaptive_attrs,
    .shape = kolo_rule_resized,
    .cost = adaptive_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};

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

/* ---- reference ---- */

/* Max and average pooling and their gradients: one loop over the windows of all planes, with a
 * callback per window. */

/* One window: its rectangle within a plane of x (clipped to the image) and the index of its
 * result. */
typedef struct window {
    int64_t top, bottom, left, right; /* rows [top, bottom), columns [left, right) */
    int64_t first_h, first_w;         /* unclipped corner, possibly in the padding */
    int64_t size;                     /* divisor of the mean */
    int64_t width;                    /* of the plane */
    int64_t plane, out;               /* offsets of the plane in x and of the result in y */
} window;

/* The geometry of the windows. */
static void pool_window(const kolo_attr *attr, const int64_t *xd, const int64_t *yd, int64_t h,
                        int64_t w, window *at) {
    (void)yd;
    int64_t pad_h = attr[KOLO_POOL_PAD_H].i, pad_w = attr[KOLO_POOL_PAD_W].i;
    at->first_h = h * attr[KOLO_POOL_STRIDE_H].i - pad_h;
    at->first_w = w * attr[KOLO_POOL_STRIDE_W].i - pad_w;
    int64_t last_h = at->first_h + attr[KOLO_POOL_KERNEL_H].i;
    int64_t last_w = at->first_w + attr[KOLO_POOL_KERNEL_W].i;
    at->top = kolo_max_i64(at->first_h, 0);
    at->left = kolo_max_i64(at->first_w, 0);
    at->bottom = kolo_min_i64(last_h, xd[2]);
    at->right = kolo_min_i64(last_w, xd[3]);
    const int64_t end = xd[2] + pad_h + attr[KOLO_POOL_MORE_H].i; /* of the padding */
    at->size = (kolo_min_i64(last_h, end) - at->first_h) *
               (kolo_min_i64(last_w, xd[3] + pad_w) - at->first_w);
    if (attr[KOLO_POOL_EXCLUDE_PADDING].i)
        at->size = (at->bottom - at->top) * (at->right - at->left);
}

static void adaptive_window(const kolo_attr *attr, const int64_t *xd, const int64_t *yd, int64_t h,
                            int64_t w, window *at) {
    (void)attr;
    at->top = h * xd[2] / yd[2];
    at->bottom = ((h + 1) * xd[2] + yd[2] - 1) / yd[2];
    at->left = w * xd[3] / yd[3];
    at->right = ((w + 1) * xd[3] + yd[3] - 1) / yd[3];
    at->size = (at->bottom - at->top) * (at->right - at->left);
}

static void each_window(const kolo_call *call, const kolo_tensor *x, const kolo_tensor *y,
                        void (*visit)(const kolo_call *call, const window *at)) {
    const kolo_op *op = call->spec->op;
    bool adaptive = op == &kolo_op_adaptive_avg_pool2d || op == &kolo_op_adaptive_avg_pool2d_bwd;
    const int64_t *xd = x->shape.dim, *yd = y->shape.dim;
    for (int64_t p = 0; p < xd[0] * xd[1]; p++) {
        for (int64_t h = 0; h < yd[2]; h++) {
            for (int64_t w = 0; w < yd[3]; w++) {
                window at = {.width = xd[3], .plane = p * xd[2] * xd[3]};
                at.out = (p * yd[2] + h) * yd[3] + w;
                (adaptive ? adaptive_window : pool_window)(call->spec->attr, xd, yd, h, w, &at);
                visit(call, &at);
            }
        }
    }
}

static void zero(const kolo_tensor *t, double *data) {
    memset(data, 0, sizeof(double) * (size_t)kolo_shape_count(&t->shape));
}

static void max_of(const kolo_call *call, const window *at) {
    const double *x = (const double *)call->in[0] + at->plane;
    int64_t best_h = at->top, best_w = at->left;
    for (int64_t h = at->top; h < at->bottom; h++) {
        for (int64_t w = at->left; w < at->right; w++) {
            double value = x[h * at->width + w];
            bool larger = value > x[best_h * at->width + best_w] || isnan(value);
            if (larger) best_h = h, best_w = w;
        }
    }
    double best = x[best_h * at->width + best_w];
    bool relu = call->spec->attr[KOLO_POOL_RELU].i;
    ((double *)call->out[0])[at->out] = relu && best < 0 ? 0 : best;
    ((uint8_t *)call->out[1])[at->out] =
        (uint8_t)((best_h - at->first_h) * call->spec->attr[KOLO_POOL_KERNEL_W].i + best_w -
                  at->first_w);
}

static void max_pool(const kolo_call *call) {
    each_window(call, &call->spec->in[0], &call->spec->out[0], max_of);
}

static void max_back(const kolo_call *call, const window *at) {
    const double *dy = call->in[0];
    const double *y = call->spec->n_in == 3 ? call->in[2] : NULL;
    if (y && !(y[at->out] > 0)) return;
    int64_t index = ((const uint8_t *)call->in[1])[at->out];
    int64_t kernel_w = call->spec->attr[KOLO_POOL_KERNEL_W].i;
    int64_t h = at->first_h + index / kernel_w, w = at->first_w + index % kernel_w;
    ((double *)call->out[0])[at->plane + h * at->width + w] += dy[at->out];
}

static void max_pool_bwd(const kolo_call *call) {
    zero(&call->spec->out[0], call->out[0]);
    each_window(call, &call->spec->out[0], &call->spec->in[0], max_back);
}

static void mean_of(const kolo_call *call, const window *at) {
    const double *x = (const double *)call->in[0] + at->plane;
    double sum = 0;
    for (int64_t h = at->top; h < at->bottom; h++) {
        for (int64_t w = at->left; w < at->right; w++) sum += x[h * at->width + w];
    }
    ((double *)call->out[0])[at->out] = sum / (double)at->size;
}

static void avg_pool(const kolo_call *call) {
    each_window(call, &call->spec->in[0], &call->spec->out[0], mean_of);
}

static void mean_back(const kolo_call *call, const window *at) {
    double share = ((const double *)call->in[0])[at->out] / (double)at->size;
    double *dx = (double *)call->out[0] + at->plane;
    for (int64_t h = at->top; h < at->bottom; h++) {
        for (int64_t w = at->left; w < at->right; w++) dx[h * at->width + w] += share;
    }
}

static void avg_pool_bwd(const kolo_call *call) {
    zero(&call->spec->out[0], call->out[0]);
    each_window(call, &call->spec->out[0], &call->spec->in[0], mean_back);
}

static void run_max_pool(const kolo_call *call) { kolo_ref_run(call, max_pool); }
static void run_max_pool_bwd(const kolo_call *call) { kolo_ref_run(call, max_pool_bwd); }
static void run_avg_pool(const kolo_call *call) { kolo_ref_run(call, avg_pool); }
static void run_avg_pool_bwd(const kolo_call *call) { kolo_ref_run(call, avg_pool_bwd); }

const kolo_kernel kolo_ops_pool[] = {
    KOLO_REF_KERNEL("ref_max_pool2d", &kolo_op_max_pool2d, run_max_pool),
    KOLO_REF_KERNEL("ref_max_pool2d_bwd", &kolo_op_max_pool2d_bwd, run_max_pool_bwd),
    KOLO_REF_KERNEL("ref_avg_pool2d", &kolo_op_avg_pool2d, run_avg_pool),
    KOLO_REF_KERNEL("ref_avg_pool2d_bwd", &kolo_op_avg_pool2d_bwd, run_avg_pool_bwd),
    KOLO_REF_KERNEL("ref_adaptive_avg_pool2d", &kolo_op_adaptive_avg_pool2d, run_avg_pool),
    KOLO_REF_KERNEL("ref_adaptive_avg_pool2d_bwd", &kolo_op_adaptive_avg_pool2d_bwd,
                    run_avg_pool_bwd),
    {0},
};
