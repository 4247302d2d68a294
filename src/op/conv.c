/* conv2d and its gradients. All three run the same loop nest over x, w and y, with a different one
 * of the three tensors as the sum. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <string.h>

static const char *const attrs[] = {"stride_h",   "stride_w", "pad_h",    "pad_w",  "dilation_h",
                                    "dilation_w", "groups",   "relu",     "size_h", "size_w",
                                    "bias",       "more_h",   "channels", NULL};

/* The window along the height or, for axis 1, the width. */
static kolo_window window_of(const kolo_attr *attr, int axis, int64_t kernel) {
    return (kolo_window){.kernel = kernel,
                         .stride = attr[KOLO_CONV_STRIDE_H + axis].i,
                         .pad = attr[KOLO_CONV_PAD_H + axis].i,
                         .dilation = attr[KOLO_CONV_DILATION_H + axis].i,
                         .more = axis == 0 ? attr[KOLO_CONV_MORE_H].i : 0};
}

/* H', W' of an image of size[0] x size[1] under a kernel of kernel[0] x kernel[1]. */
static kolo_status places_of(const kolo_shape_query *q, const int64_t *size, const int64_t *kernel,
                             int64_t places[2]) {
    for (int axis = 0; axis < 2; axis++) {
        const kolo_window window = window_of(q->attr, axis, kernel[axis]);
        KOLO_TRY(kolo_rule_window(q, axis ? "width" : "height", size[axis], window, &places[axis]));
    }
    return KOLO_OK;
}

/* Checks that dy has the size of the output. */
static kolo_status check_places(const kolo_shape_query *q, const int64_t *size,
                                const int64_t *kernel, const int64_t *dy) {
    int64_t places[2];
    KOLO_TRY(places_of(q, size, kernel, places));
    if (places[0] == dy[2] && places[1] == dy[3]) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "dy must be %" PRId64 " x %" PRId64 ", the size of the output",
                          places[0], places[1]);
}

static kolo_status check_groups(const kolo_shape_query *q, int64_t in, int64_t out) {
    int64_t groups = q->attr[KOLO_CONV_GROUPS].i;
    if (groups >= 1 && in % groups == 0 && out % groups == 0) return KOLO_OK;
    return KOLO_RULE_FAIL(q,
                          "%" PRId64 " groups of %" PRId64 " input and %" PRId64
                          " output channels; groups must divide both",
                          groups, in, out);
}

static kolo_status conv2d_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,C,H,W"));
    KOLO_TRY(kolo_rule_rank(q, 1, 4, "O,C/groups,KH,KW"));
    const int64_t *x = q->in[0].shape.dim, *w = q->in[1].shape.dim;
    KOLO_TRY(check_groups(q, x[1], w[0]));
    int64_t takes = x[1] / q->attr[KOLO_CONV_GROUPS].i, places[2];
    if (w[1] != takes) {
        return KOLO_RULE_FAIL(q,
                              "the weights are for %" PRId64
                              " channels per group, but x has %" PRId64
                              "; dimension 1 of the weights must equal that",
                              w[1], takes);
    }
    if (q->n_in == 3) {
        KOLO_TRY(kolo_rule_rank(q, 2, 1, "O"));
        if (q->in[2].shape.dim[0] != w[0]) {
            return KOLO_RULE_FAIL(q, "the bias must have %" PRId64 " elements", w[0]);
        }
    }
    KOLO_TRY(places_of(q, x + 2, w + 2, places));
    return kolo_rule_out(q, 0, kolo_rule_product(q),
                         kolo_shape_4(x[0], w[0], places[0], places[1]));
}

static kolo_status bwd_data_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,O,H',W'"));
    KOLO_TRY(kolo_rule_rank(q, 1, 4, "O,C/groups,KH,KW"));
    const int64_t *dy = q->in[0].shape.dim, *w = q->in[1].shape.dim;
    const int64_t size[2] = {q->attr[KOLO_CONV_SIZE_H].i, q->attr[KOLO_CONV_SIZE_W].i};
    int64_t groups = q->attr[KOLO_CONV_GROUPS].i, channels;
    if (dy[1] != w[0]) return KOLO_RULE_FAIL(q, "dy must have %" PRId64 " channels", w[0]);
    if (__builtin_mul_overflow(w[1], groups, &channels)) channels = -1;
    KOLO_TRY(check_groups(q, channels, w[0]));
    KOLO_TRY(check_places(q, size, w + 2, dy));
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_4(dy[0], channels, size[0], size[1]));
}

static kolo_status bwd_weights_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,O,H',W'"));
    KOLO_TRY(kolo_rule_rank(q, 1, 4, "N,C,H,W"));
    const int64_t *dy = q->in[0].shape.dim, *x = q->in[1].shape.dim;
    const int64_t kernel[2] = {q->attr[KOLO_CONV_SIZE_H].i, q->attr[KOLO_CONV_SIZE_W].i};
    if (dy[0] != x[0]) return KOLO_RULE_FAIL(q, "dy and x must have one batch size");
    KOLO_TRY(check_groups(q, x[1], dy[1]));
    KOLO_TRY(check_places(q, x + 2, kernel, dy));
    kolo_shape w = kolo_shape_4(dy[1], x[1] / q->attr[KOLO_CONV_GROUPS].i, kernel[0], kernel[1]);
    KOLO_TRY(kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), w));
    if (!q->attr[KOLO_CONV_BIAS].i) return KOLO_OK;
    return kolo_rule_out(q, 1, kolo_dtype_wide(q->in[0].dtype), kolo_shape_1(dy[1]));
}

static void conv2d_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    kolo_value dy = d_out[0];
    if (n->attr[KOLO_CONV_RELU].i) {
        dy = kolo_graph_add1(g, &kolo_op_relu_bwd, (kolo_value[]){dy, n->out[0]}, 2, NULL);
    }
    kolo_attr attr[KOLO_MAX_ATTRS];
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) attr[i] = n->attr[i];
    attr[KOLO_CONV_RELU].i = 0;
    bool wants_bias = n->n_in == 3 && wants[2];
    if (wants[0]) {
        const int64_t *x = kolo_info(g, n->in[0])->tensor.shape.dim;
        attr[KOLO_CONV_SIZE_H].i = x[2];
        attr[KOLO_CONV_SIZE_W].i = x[3];
        d_in[0] =
            kolo_graph_add1(g, &kolo_op_conv2d_bwd_data, (kolo_value[]){dy, n->in[1]}, 2, attr);
    }
    if (wants[1]) {
        const int64_t *w = kolo_info(g, n->in[1])->tensor.shape.dim;
        attr[KOLO_CONV_SIZE_H].i = w[2];
        attr[KOLO_CONV_SIZE_W].i = w[3];
        attr[KOLO_CONV_BIAS].i = wants_bias;
        kolo_value out[KOLO_MAX_IO];
        kolo_graph_add(g, &kolo_op_conv2d_bwd_weights, (kolo_value[]){dy, n->in[0]}, 2, attr, out);
        d_in[1] = out[0];
        if (wants_bias) d_in[2] = out[1];
    } else if (wants_bias) {
        d_in[2] = kolo_graph_add1(g, &kolo_op_bias_bwd, &dy, 1, NULL);
    }
}

/* Of a transposed convolution y = bwd_data(x, w): dx is a convolution. */
static void bwd_data_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                          const bool *wants, kolo_value *d_in) {
    kolo_attr attr[KOLO_MAX_ATTRS];
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) attr[i] = n->attr[i];
    attr[KOLO_CONV_SIZE_H].i = attr[KOLO_CONV_SIZE_W].i = 0;
    const kolo_value in[] = {d_out[0], n->in[1]}, of_w[] = {n->in[0], d_out[0]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_conv2d, in, 2, attr);
    const int64_t *w = kolo_info(g, n->in[1])->tensor.shape.dim;
    attr[KOLO_CONV_SIZE_H].i = w[2];
    attr[KOLO_CONV_SIZE_W].i = w[3];
    if (wants[1]) d_in[1] = kolo_graph_add1(g, &kolo_op_conv2d_bwd_weights, of_w, 2, attr);
}

/* One multiply-add for each element of y and each weight of its output channel. */
static kolo_cost cost_of(const kolo_shape_query *q, const kolo_tensor *y, const kolo_tensor *w) {
    double taps = (double)kolo_shape_count(&w->shape) / (double)w->shape.dim[0];
    return (kolo_cost){2 * taps * (double)kolo_shape_count(&y->shape), kolo_query_bytes(q)};
}
static kolo_cost conv2d_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->out[0], &q->in[1]);
}
static kolo_cost bwd_data_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->in[0], &q->in[1]);
}
static kolo_cost bwd_weights_cost(const kolo_shape_query *q) {
    return cost_of(q, &q->in[0], &q->out[0]);
}

/* Whether each row of the output is that of one row of the input. */
static bool is_by_rows(const kolo_attr *attr, int64_t kernel) {
    return kernel == 1 && attr[KOLO_CONV_STRIDE_H].i == 1 && attr[KOLO_CONV_PAD_H].i == 0 &&
           attr[KOLO_CONV_MORE_H].i == 0;
}

/* Whether each channel has a filter of its own; the one channel of a rank too. */
static bool is_depthwise(const kolo_attr *attr, int64_t in, int64_t out) {
    const int64_t groups = attr[KOLO_CONV_GROUPS].i;
    return attr[KOLO_CONV_CHANNELS].i > 0 || (groups > 1 && in == groups && out == groups);
}

/* With groups, channels are not summed over as a whole. */
static const char *conv_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    const bool rows = is_by_rows(attr, in[1].dim[2]);
    if (is_depthwise(attr, in[0].dim[1], in[1].dim[0])) {
        return rows ? "ndhW,dIKL+d->ndhQ" : "nd~hW,dIKL+d->ndhQ";
    }
    if (attr[KOLO_CONV_GROUPS].i > 1) return rows ? "nChW,OCKL,O->nOhQ" : "nC~hW,OCKL,O->nOhQ";
    return rows ? "nchW,ocKL+o->nohQ" : "nc~hW,ocKL+o->nohQ";
}
static const char *conv_bwd_data_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                       char *text) {
    const bool rows = is_by_rows(attr, in[1].dim[2]);
    if (is_depthwise(attr, attr[KOLO_CONV_GROUPS].i * in[1].dim[1], in[0].dim[1])) {
        return rows ? "ndhQ,dIKL->ndhW" : "ndhQ,dIKL->nd~hW";
    }
    if (attr[KOLO_CONV_GROUPS].i > 1) return rows ? "nOhQ,OCKL->nChW" : "nOhQ,OCKL->nC~hW";
    return rows ? "nohQ,ocKL->nchW" : "nohQ,ocKL->nc~hW";
}
static const char *conv_bwd_weights_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                          char *text) {
    const bool rows = is_by_rows(attr, attr[KOLO_CONV_SIZE_H].i);
    if (is_depthwise(attr, in[1].dim[1], in[0].dim[1])) {
        return rows ? "ndhQ,ndhW->dIKL,d" : "ndhQ,nd~hW->dIKL,d";
    }
    if (attr[KOLO_CONV_GROUPS].i > 1) return rows ? "nOhQ,nChW->OCKL,O" : "nOhQ,nC~hW->OCKL,O";
    return rows ? "nohQ,nchW->ocKL,o/c" : "nohQ,nc~hW->ocKL,o/c";
}

/* A rank has as many groups of a depthwise convolution as channels. */
#define DIVIDED_CHANNELS \
    .part = {.index = 'd', .lengths = 1u << KOLO_CONV_GROUPS, .all = KOLO_ATTR(KOLO_CONV_CHANNELS)}

/* ---- some of the rows ---- */

static bool conv_window(const kolo_window_query *q, kolo_interval *rows) {
    kolo_window_rows(q, window_of(q->attr, 0, q->in[1].dim[2]), rows);
    return true;
}

static void divide_conv_window(const kolo_window_query *q, kolo_interval rows, kolo_attr *attr) {
    const kolo_window part = kolo_window_part(q, window_of(q->attr, 0, q->in[1].dim[2]), rows);
    attr[KOLO_CONV_PAD_H].i = part.pad;
    attr[KOLO_CONV_MORE_H].i = part.more;
    if (attr[KOLO_CONV_SIZE_H].i > 0) attr[KOLO_CONV_SIZE_H].i = rows.end - rows.first;
}

const kolo_op kolo_op_conv2d = {
    .name = "conv2d",
    .index_of = conv_index,
    DIVIDED_CHANNELS,
    .window = conv_window,
    .divide_window = divide_conv_window,
    .linear = 0x7u,
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "awp", .out = "a"},
    .attrs = attrs,
    .shape = conv2d_shape,
    .grad = conv2d_grad,
    .cost = conv2d_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x1u, .out = 0x1u},
    .fuse = {.bias = 2, .relu = KOLO_ATTR(KOLO_CONV_RELU)},
    .tuned = true,
};
const kolo_op kolo_op_conv2d_bwd_data = {
    .name = "conv2d_bwd_data",
    .index_of = conv_bwd_data_index,
    DIVIDED_CHANNELS,
    .window = conv_window,
    .divide_window = divide_conv_window,
    .linear = 0x3u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aw", .out = "a"},
    .attrs = attrs,
    .shape = bwd_data_shape,
    .grad = bwd_data_grad,
    .cost = bwd_data_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x1u, .out = 0x1u},
    .tuned = true,
};
const kolo_op kolo_op_conv2d_bwd_weights = {
    .name = "conv2d_bwd_weights",
    .index_of = conv_bwd_weights_index,
    DIVIDED_CHANNELS,
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "aa", .out = "wp"},
    .attrs = attrs,
    .shape = bwd_weights_shape,
    .cost = bwd_weights_cost,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x3u, .sums = 0x3u},
    .tuned = true,
};

kolo_value kolo_conv2d(kolo_graph *g, kolo_value x, kolo_value w, const kolo_conv2d_opts *opts) {
    kolo_conv2d_opts o = opts ? *opts : (kolo_conv2d_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_CONV_STRIDE_H].i = o.stride_h ? o.stride_h : 1,
        [KOLO_CONV_STRIDE_W].i = o.stride_w ? o.stride_w : 1,
        [KOLO_CONV_PAD_H].i = o.pad_h,
        [KOLO_CONV_PAD_W].i = o.pad_w,
        [KOLO_CONV_DILATION_H].i = o.dilation_h ? o.dilation_h : 1,
        [KOLO_CONV_DILATION_W].i = o.dilation_w ? o.dilation_w : 1,
        [KOLO_CONV_GROUPS].i = o.groups ? o.groups : 1,
    };
    return kolo_graph_add1(g, &kolo_op_conv2d, (kolo_value[]){x, w}, 2, attr);
}

/* The size of a dimension of a transposed convolution. */
static int64_t grown(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                     int64_t more) {
    return (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + more + 1;
}

kolo_value kolo_conv_transpose2d(kolo_graph *g, kolo_value x, kolo_value w,
                                 const kolo_conv_transpose2d_opts *opts) {
    const kolo_conv_transpose2d_opts o = opts ? *opts : (kolo_conv_transpose2d_opts){0};
    const kolo_shape of_x = kolo_value_shape(g, x), of_w = kolo_value_shape(g, w);
    const int64_t stride_h = o.stride_h ? o.stride_h : 1, stride_w = o.stride_w ? o.stride_w : 1;
    const int64_t dilation_h = o.dilation_h ? o.dilation_h : 1,
                  dilation_w = o.dilation_w ? o.dilation_w : 1;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_CONV_STRIDE_H].i = stride_h,
        [KOLO_CONV_STRIDE_W].i = stride_w,
        [KOLO_CONV_PAD_H].i = o.pad_h,
        [KOLO_CONV_PAD_W].i = o.pad_w,
        [KOLO_CONV_DILATION_H].i = dilation_h,
        [KOLO_CONV_DILATION_W].i = dilation_w,
        [KOLO_CONV_GROUPS].i = o.groups ? o.groups : 1,
        [KOLO_CONV_SIZE_H].i =
            grown(of_x.dim[2], of_w.dim[2], stride_h, o.pad_h, dilation_h, o.output_pad_h),
        [KOLO_CONV_SIZE_W].i =
            grown(of_x.dim[3], of_w.dim[3], stride_w, o.pad_w, dilation_w, o.output_pad_w),
    };
    return kolo_graph_add1(g, &kolo_op_conv2d_bwd_data, (kolo_value[]){x, w}, 2, attr);
}

/* ---- reference ---- */

/* conv2d and its gradients. All three are one loop nest over rows: forward adds w x to y, the
 * data gradient adds w dy to dx, the weight gradient adds dy x to dw. Only the innermost loop,
 * along a row of the output, differs. */

/* Shapes and strides; y is the output side (dy in the gradients). */
typedef struct conv {
    int64_t batch, groups;
    int64_t c, o;             /* channels of x and y in each group */
    int64_t x[2], w[2], y[2]; /* heights and widths */
    const kolo_attr *attr;
} conv;

/* One row: y[i] and x[i * step] for i in [0, n), and the weight that connects them. */
typedef void row_fn(double *y, double *x, double *w, int64_t n, int64_t step);

static void row_forward(double *y, double *x, double *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) y[i] += *w * x[i * step];
}
static void row_bwd_data(double *y, double *x, double *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) x[i * step] += *w * y[i];
}
static void row_bwd_weights(double *y, double *x, double *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) *w += y[i] * x[i * step];
}

static conv conv_of(const kolo_kernel_spec *s, const kolo_tensor *x, const kolo_tensor *w,
                    const kolo_tensor *y) {
    int64_t groups = s->attr[KOLO_CONV_GROUPS].i;
    const int64_t *xd = x->shape.dim, *wd = w->shape.dim, *yd = y->shape.dim;
    return (conv){
        .batch = xd[0],
        .groups = groups,
        .c = wd[1],
        .o = wd[0] / groups,
        .x = {xd[2], xd[3]},
        .w = {wd[2], wd[3]},
        .y = {yd[2], yd[3]},
        .attr = s->attr,
    };
}

/* The column of x under kernel column kw at output column `at`. */
static int64_t column(const conv *s, int64_t at, int64_t kw) {
    return at * s->attr[KOLO_CONV_STRIDE_W].i + kw * s->attr[KOLO_CONV_DILATION_W].i -
           s->attr[KOLO_CONV_PAD_W].i;
}

/* All rows of one plane of x, one plane of y and one kernel. */
static void plane(const conv *s, row_fn *row, double *x, double *w, double *y) {
    int64_t step = s->attr[KOLO_CONV_STRIDE_W].i;
    for (int64_t kh = 0; kh < s->w[0]; kh++) {
        for (int64_t kw = 0; kw < s->w[1]; kw++) {
            int64_t first = 0, end = s->y[1]; /* output columns whose x is not padding */
            while (first < end && column(s, first, kw) < 0) first++;
            while (end > first && column(s, end - 1, kw) >= s->x[1]) end--;
            if (first == end) continue;
            for (int64_t yh = 0; yh < s->y[0]; yh++) {
                int64_t xh = yh * s->attr[KOLO_CONV_STRIDE_H].i +
                             kh * s->attr[KOLO_CONV_DILATION_H].i - s->attr[KOLO_CONV_PAD_H].i;
                if (xh < 0 || xh >= s->x[0]) continue;
                row(y + yh * s->y[1] + first, x + xh * s->x[1] + column(s, first, kw),
                    w + kh * s->w[1] + kw, end - first, step);
            }
        }
    }
}

static void each_plane(const conv *s, row_fn *row, double *x, double *w, double *y) {
    int64_t x_plane = s->x[0] * s->x[1], y_plane = s->y[0] * s->y[1], kernel = s->w[0] * s->w[1];
    for (int64_t n = 0; n < s->batch; n++) {
        for (int64_t g = 0; g < s->groups; g++) {
            for (int64_t o = g * s->o; o < (g + 1) * s->o; o++) {
                for (int64_t c = 0; c < s->c; c++) {
                    plane(s, row, x + ((n * s->groups + g) * s->c + c) * x_plane,
                          w + (o * s->c + c) * kernel, y + (n * s->groups * s->o + o) * y_plane);
                }
            }
        }
    }
}

static void zero(const kolo_tensor *t, double *data) {
    memset(data, 0, sizeof(double) * (size_t)kolo_shape_count(&t->shape));
}

static void conv2d(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    conv s = conv_of(spec, &spec->in[0], &spec->in[1], &spec->out[0]);
    double *y = call->out[0];
    const double *b = spec->n_in == 3 ? call->in[2] : NULL;
    int64_t count = kolo_shape_count(&spec->out[0].shape), channels = s.groups * s.o;
    int64_t y_plane = s.y[0] * s.y[1];
    for (int64_t i = 0; i < count; i++) y[i] = b ? b[i / y_plane % channels] : 0;
    each_plane(&s, row_forward, call->in[0], call->in[1], y);
    if (!spec->attr[KOLO_CONV_RELU].i) return;
    for (int64_t i = 0; i < count; i++) y[i] = y[i] < 0 ? 0 : y[i];
}

static void bwd_data(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    conv s = conv_of(spec, &spec->out[0], &spec->in[1], &spec->in[0]);
    zero(&spec->out[0], call->out[0]);
    each_plane(&s, row_bwd_data, call->out[0], call->in[1], call->in[0]);
}

static void bwd_weights(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    conv s = conv_of(spec, &spec->in[1], &spec->out[0], &spec->in[0]);
    zero(&spec->out[0], call->out[0]);
    each_plane(&s, row_bwd_weights, call->in[1], call->out[0], call->in[0]);
    if (spec->n_out == 1) return;
    const double *dy = call->in[0];
    double *db = call->out[1];
    int64_t count = kolo_shape_count(&spec->in[0].shape), channels = s.groups * s.o;
    zero(&spec->out[1], db);
    for (int64_t i = 0; i < count; i++) db[i / (s.y[0] * s.y[1]) % channels] += dy[i];
}

static void run_conv2d(const kolo_call *call) { kolo_ref_run(call, conv2d); }
static void run_bwd_data(const kolo_call *call) { kolo_ref_run(call, bwd_data); }
static void run_bwd_weights(const kolo_call *call) { kolo_ref_run(call, bwd_weights); }

const kolo_kernel kolo_ops_conv[] = {
    KOLO_REF_KERNEL("ref_conv2d", &kolo_op_conv2d, run_conv2d),
    KOLO_REF_KERNEL("ref_conv2d_bwd_data", &kolo_op_conv2d_bwd_data, run_bwd_data),
    KOLO_REF_KERNEL("ref_conv2d_bwd_weights", &kolo_op_conv2d_bwd_weights, run_bwd_weights),
    {0},
};
