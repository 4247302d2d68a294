/* Convolutions, pooling, normalization. 1-D layers are 2-D ones of height 1. */
#include "graph/ops/ops.h"
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- windows ---- */

/* A window of 1 to 3 dimensions, as one of depth, height and width. */
enum { WINDOW = 3 };
typedef struct window {
    int dims;
    int64_t kernel[WINDOW], stride[WINDOW], dilation[WINDOW],
        pad[2 * WINDOW]; /* all before, all after */
} window;

/* A number for each dimension of the window; 1 for those before them. */
static kolo_status numbers(onnx_call *c, const char *name, int dims, int64_t preset, int64_t *out) {
    int64_t list[WINDOW];
    int n;
    for (int d = 0; d < WINDOW; d++) out[d] = 1;
    KOLO_TRY(onnx_ints(c, name, list, WINDOW, &n));
    if (n >= 0 && n != dims)
        return ONNX_FAIL(c, "attribute %s has %d numbers, not %d", name, n, dims);
    for (int k = 0; k < dims; k++) {
        const int64_t number = n < 0 ? preset : list[k];
        if (number < 1 || number > INT32_MAX)
            return ONNX_FAIL(c, "attribute %s: %" PRId64, name, number);
        out[WINDOW - dims + k] = number;
    }
    return KOLO_OK;
}

/* Depth, height and width of an image or of weights. */
static void extent(const kolo_shape *s, int64_t size[WINDOW]) {
    size[0] = s->rank == 5 ? s->dim[2] : 1;
    size[1] = s->dim[s->rank - 2];
    size[2] = s->dim[s->rank - 1];
}

/* Reads strides, dilations and pads; the kernel is set. */
static kolo_status read_window(onnx_call *c, const kolo_shape *x, window *w) {
    int64_t pads[2 * WINDOW], size[WINDOW];
    int n;
    extent(x, size);
    KOLO_TRY(numbers(c, "strides", w->dims, 1, w->stride));
    KOLO_TRY(numbers(c, "dilations", w->dims, 1, w->dilation));
    KOLO_TRY(onnx_ints(c, "pads", pads, 2 * WINDOW, &n));
    if (n >= 0 && n != 2 * w->dims) return ONNX_FAIL(c, "attribute pads has %d numbers", n);
    memset(w->pad, 0, sizeof w->pad);
    for (int k = 0; k < n; k++) {
        if (pads[k] < 0 || pads[k] > INT32_MAX)
            return ONNX_FAIL(c, "attribute pads: %" PRId64, pads[k]);
        const int side = k / w->dims, d = WINDOW - w->dims + k % w->dims;
        w->pad[side * WINDOW + d] = pads[k];
    }
    if (onnx_text_is(c, "auto_pad", "NOTSET", true) || onnx_text_is(c, "auto_pad", "VALID", true)) {
        return KOLO_OK;
    }
    const bool lower = onnx_text_is(c, "auto_pad", "SAME_LOWER", false);
    for (int d = WINDOW - w->dims; d < WINDOW; d++) {
        const int64_t places = (size[d] + w->stride[d] - 1) / w->stride[d];
        int64_t all =
            (places - 1) * w->stride[d] + (w->kernel[d] - 1) * w->dilation[d] + 1 - size[d];
        all = all > 0 ? all : 0;
        w->pad[d] = lower ? (all + 1) / 2 : all / 2;
        w->pad[WINDOW + d] = all - w->pad[d];
    }
    return KOLO_OK;
}

static kolo_status image_of(onnx_call *c, kolo_value *x, int *dims) {
    const kolo_shape s = kolo_value_shape(c->g, *x);
    if (s.rank < 3 || s.rank > 2 + WINDOW) {
        char text[KOLO_SHAPE_TEXT];
        return ONNX_FAIL(c, "an input of %s; [N,C,W], [N,C,H,W] and [N,C,D,H,W] are supported",
                         kolo_shape_text(&s, text));
    }
    *dims = s.rank - 2;
    if (s.rank == 3) *x = onnx_as(c, *x, kolo_shape_4(s.dim[0], s.dim[1], 1, s.dim[2]));
    return KOLO_OK;
}

/* [N,C,1,W] -> [N,C,W] for layers of one dimension. */
static kolo_value as_before(onnx_call *c, kolo_value y, int dims) {
    const kolo_shape s = kolo_value_shape(c->g, y);
    return dims > 1 ? y : onnx_as(c, y, kolo_shape_3(s.dim[0], s.dim[1], s.dim[3]));
}

static bool is_even(const window *w) {
    return memcmp(w->pad, w->pad + WINDOW, sizeof w->pad / 2) == 0;
}

/* x with its padding, which the window then lacks. */
static kolo_value padded(onnx_call *c, kolo_value x, window *w) {
    const int first = kolo_value_shape(c->g, x).rank - WINDOW; /* the dimension of the depth */
    for (int d = 0; d < WINDOW; d++) {
        if (w->pad[d] || w->pad[WINDOW + d])
            x = kolo_pad(c->g, x, first + d, w->pad[d], w->pad[WINDOW + d]);
    }
    memset(w->pad, 0, sizeof w->pad);
    return x;
}

/* ---- convolution ---- */

static kolo_status add_bias(onnx_call *c, kolo_value *y) {
    kolo_value b;
    if (!onnx_has(c, 2)) return KOLO_OK;
    KOLO_TRY(onnx_value(c, 2, &b));
    *y = kolo_bias(c->g, *y, b);
    return KOLO_OK;
}

static kolo_status read_weights(onnx_call *c, kolo_value *x, kolo_value *w, window *win) {
    int dims = 0;
    KOLO_TRY(onnx_value(c, 0, x));
    KOLO_TRY(onnx_value(c, 1, w));
    KOLO_TRY(image_of(c, x, &win->dims));
    const kolo_shape s = kolo_value_shape(c->g, *w);
    KOLO_TRY(image_of(c, w, &dims));
    if (dims != win->dims) return ONNX_FAIL(c, "weights of %d dimensions", s.rank);
    const kolo_shape of_w = kolo_value_shape(c->g, *w), of_x = kolo_value_shape(c->g, *x);
    extent(&of_w, win->kernel);
    int64_t stated[WINDOW];
    KOLO_TRY(numbers(c, "kernel_shape", dims, 1, stated));
    if (onnx_attribute(c, "kernel_shape") && memcmp(stated, win->kernel, sizeof stated) != 0) {
        return ONNX_FAIL(c, "attribute kernel_shape differs from the weights");
    }
    return read_window(c, &of_x, win);
}

/* y of x by weights w, without a bias. */
static kolo_value convolved(onnx_call *c, kolo_value x, kolo_value w, const window *win) {
    const int64_t groups = onnx_int(c, "group", 1);
    if (win->dims == 3) {
        return kolo_conv3d(c->g, x, w,
                           &(kolo_conv3d_opts){win->stride[0], win->stride[1], win->stride[2],
                                               win->pad[0], win->pad[1], win->pad[2],
                                               win->dilation[0], win->dilation[1], win->dilation[2],
                                               groups});
    }
    return kolo_conv2d(c->g, x, w,
                       &(kolo_conv2d_opts){win->stride[1], win->stride[2], win->pad[1], win->pad[2],
                                           win->dilation[1], win->dilation[2], groups});
}

kolo_status onnx_map_conv(onnx_call *c) {
    kolo_value x, w;
    window win = {0};
    KOLO_TRY(read_weights(c, &x, &w, &win));
    if (!is_even(&win)) x = padded(c, x, &win);
    kolo_value y = convolved(c, x, w, &win);
    KOLO_TRY(add_bias(c, &y));
    return onnx_set(c, 0, as_before(c, y, win.dims));
}

/* The padding that gives a transposed convolution the size which output_shape states, or that of x
 * times the strides: it is cut off, more of it at the end, or with SAME_LOWER at the beginning. */
static kolo_status pad_to_shape(onnx_call *c, const kolo_shape *x, const int64_t *shape,
                                int n_shape, const int64_t *more, window *w) {
    const bool lower = onnx_text_is(c, "auto_pad", "SAME_LOWER", false);
    const bool same = lower || onnx_text_is(c, "auto_pad", "SAME_UPPER", false);
    int64_t size[WINDOW];
    if (!same && n_shape < 0) return KOLO_OK;
    if (n_shape >= 0 && n_shape != w->dims) return ONNX_FAIL(c, "attribute output_shape");
    extent(x, size);
    for (int d = WINDOW - w->dims; d < WINDOW; d++) {
        const int64_t want = n_shape >= 0 ? shape[d - WINDOW + w->dims] : size[d] * w->stride[d];
        const int64_t whole =
            (size[d] - 1) * w->stride[d] + more[d - 1] + (w->kernel[d] - 1) * w->dilation[d] + 1;
        const int64_t all = whole - want;
        if (want < 1 || all < 0) return ONNX_FAIL(c, "attribute output_shape: %" PRId64, want);
        w->pad[d] = lower ? all - all / 2 : all / 2;
        w->pad[WINDOW + d] = all - w->pad[d];
    }
    return KOLO_OK;
}

kolo_status onnx_map_conv_transpose(onnx_call *c) {
    kolo_value x, w;
    window win = {0};
    int64_t more[2] = {0, 0}, list[WINDOW], shape[WINDOW];
    int n, n_shape;
    KOLO_TRY(read_weights(c, &x, &w, &win));
    if (win.dims > 2)
        return ONNX_FAIL(c, "an input of 5 dimensions; [N,C,W] and [N,C,H,W] are supported");
    KOLO_TRY(onnx_ints(c, "output_padding", list, WINDOW, &n));
    KOLO_TRY(onnx_ints(c, "output_shape", shape, WINDOW, &n_shape));
    for (int k = 0; k < n && n == win.dims; k++) more[2 - n + k] = list[k];
    const kolo_shape s = kolo_value_shape(c->g, x);
    KOLO_TRY(pad_to_shape(c, &s, shape, n_shape, more, &win));
    const window cut = win; /* uneven padding is cut off afterwards */
    if (!is_even(&win)) memset(win.pad, 0, sizeof win.pad);
    const kolo_conv_transpose2d_opts opts = {
        .stride_h = win.stride[1],
        .stride_w = win.stride[2],
        .pad_h = win.pad[1],
        .pad_w = win.pad[2],
        .dilation_h = win.dilation[1],
        .dilation_w = win.dilation[2],
        .groups = onnx_int(c, "group", 1),
        .output_pad_h = more[0],
        .output_pad_w = more[1],
    };
    kolo_value y = kolo_conv_transpose2d(c->g, x, w, &opts);
    for (int d = 1; d < WINDOW && !is_even(&cut); d++) {
        const int64_t before = cut.pad[d], after = cut.pad[WINDOW + d];
        const int64_t size = kolo_value_shape(c->g, y).dim[1 + d] - before - after;
        y = kolo_slice(c->g, y, 1 + d, before, size);
    }
    KOLO_TRY(kolo_graph_check(c->g));
    KOLO_TRY(add_bias(c, &y));
    return onnx_set(c, 0, as_before(c, y, win.dims));
}

/* ---- pooling ---- */

/* Pads an image with numbers that are never a maximum. */
static kolo_status pad_below(onnx_call *c, kolo_value *x, window *w) {
    const kolo_shape s = kolo_value_shape(c->g, *x);
    int64_t size[WINDOW], before[WINDOW];
    kolo_shape big = {.rank = w->dims == 3 ? 3 : 2};
    extent(&s, size);
    for (int d = WINDOW - big.rank; d < WINDOW; d++) {
        before[d] = w->pad[d];
        big.dim[d - WINDOW + big.rank] = w->pad[d] + size[d] + w->pad[WINDOW + d];
    }
    const int64_t count = host_count(&big, HOST_MOST);
    float *low;
    kolo_value border;
    KOLO_TRY(onnx_floats(c, count, &low));
    for (int64_t k = 0; k < count; k++) {
        bool inside = true;
        int64_t rest = k;
        for (int d = WINDOW - 1; d >= WINDOW - big.rank; d--) {
            const int64_t all = big.dim[d - WINDOW + big.rank], at = rest % all - before[d];
            inside = inside && at >= 0 && at < size[d];
            rest /= all;
        }
        low[k] = inside ? 0 : -1e38f;
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &big, low, &border));
    *x = kolo_add(c->g, padded(c, *x, w), border);
    return kolo_graph_check(c->g);
}

/* Whether the padding reaches beyond half of the kernel. */
static bool is_wide(const window *w) {
    bool wide = false;
    for (int d = 0; d < WINDOW; d++) wide = wide || w->pad[d] > w->kernel[d] / 2;
    return wide;
}

static kolo_value pooled(onnx_call *c, kolo_value x, const window *w, bool max, bool exclude) {
    const bool ceil = onnx_int(c, "ceil_mode", 0) != 0;
    const kolo_pool3d_opts deep = {w->kernel[0], w->kernel[1], w->kernel[2], w->stride[0],
                                   w->stride[1], w->stride[2], w->pad[0],    w->pad[1],
                                   w->pad[2],    ceil,         exclude};
    const kolo_pool2d_opts flat = {w->kernel[1], w->kernel[2], w->stride[1], w->stride[2],
                                   w->pad[1],    w->pad[2],    ceil,         exclude};
    if (w->dims == 3) {
        return max ? kolo_max_pool3d(c->g, x, &deep) : kolo_avg_pool3d(c->g, x, &deep);
    }
    return max ? kolo_max_pool2d(c->g, x, &flat) : kolo_avg_pool2d(c->g, x, &flat);
}

static bool is_dilated(const window *w) {
    bool dilated = false;
    for (int d = 0; d < WINDOW; d++) dilated = dilated || w->dilation[d] != 1;
    return dilated;
}

/* Windows along a dimension of `size`, each of which begins before the padding behind it. */
static int64_t places_of(const onnx_call *c, const window *w, int64_t size, int d) {
    const int64_t span = (w->kernel[d] - 1) * w->dilation[d] + 1, stride = w->stride[d];
    const int64_t rest = size + w->pad[d] + w->pad[WINDOW + d] - span;
    const bool ceil = onnx_int(c, "ceil_mode", 0) != 0;
    if (rest < 0) return 0;
    const int64_t places = (rest + (ceil ? stride - 1 : 0)) / stride + 1;
    return places - (ceil && (places - 1) * stride >= size + w->pad[d]);
}

/* The elements of window `place` that count. */
static int64_t counted(const window *w, int64_t size, int d, int64_t place, bool include) {
    const int64_t first = include ? -w->pad[d] : 0;
    const int64_t end = size + (include ? w->pad[WINDOW + d] : 0);
    int64_t n = 0;
    for (int64_t k = 0; k < w->kernel[d]; k++) {
        const int64_t at = place * w->stride[d] + k * w->dilation[d] - w->pad[d];
        n += at >= first && at < end;
    }
    return n > 0 ? n : 1;
}

/* The maximum or sum of the windows along one dimension, which has its padding: of what has the
 * same place in each of them. */
static kolo_status combine(onnx_call *c, kolo_value *x, const window *w, int d, int64_t places,
                           bool max) {
    const int axis = kolo_value_shape(c->g, *x).rank - WINDOW + d;
    kolo_value y = KOLO_NONE, part;
    int64_t *index = NULL;
    KOLO_TRY(onnx_indices(c, places, &index));
    for (int64_t k = 0; k < w->kernel[d]; k++) {
        for (int64_t p = 0; p < places; p++) index[p] = p * w->stride[d] + k * w->dilation[d];
        KOLO_TRY(onnx_pick(c, *x, axis, index, places, &part));
        y = k == 0 ? part : max ? kolo_maximum(c->g, y, part) : kolo_add(c->g, y, part);
    }
    *x = y;
    return kolo_graph_check(c->g);
}

/* Divides the sums of windows by the number of their elements. */
static kolo_status divide_by_counts(onnx_call *c, kolo_value *x, const window *w,
                                    const int64_t *size, bool include) {
    const kolo_shape s = kolo_value_shape(c->g, *x);
    const int inner = w->dims == 3 ? 3 : 2;
    kolo_shape of = {.rank = inner};
    float *f = NULL;
    kolo_value factors;
    for (int d = 0; d < inner; d++) of.dim[d] = s.dim[s.rank - inner + d];
    const int64_t count = kolo_shape_count(&of);
    KOLO_TRY(onnx_floats(c, count, &f));
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, n = 1;
        for (int d = WINDOW - 1; d >= WINDOW - inner; d--) {
            const int64_t all = of.dim[d - WINDOW + inner];
            n *= counted(w, size[d], d, rest % all, include);
            rest /= all;
        }
        f[k] = 1 / (float)n;
    }
    KOLO_TRY(onnx_table(c, c->node->output[0], &of, f, &factors));
    *x = kolo_mul(c->g, *x, factors);
    return kolo_graph_check(c->g);
}

/* Pooling that the ops of the graph lack: windows with gaps, averages that leave out uneven
 * padding. One dimension after the other. */
static kolo_status pool_by_offsets(onnx_call *c, kolo_value *x, const window *w, bool max,
                                   bool include) {
    const kolo_shape s = kolo_value_shape(c->g, *x);
    window wide = *w; /* with what the last windows reach beyond the padding */
    int64_t size[WINDOW], places[WINDOW];
    extent(&s, size);
    for (int d = 0; d < WINDOW; d++) {
        places[d] = places_of(c, w, size[d], d);
        if (places[d] < 1) return ONNX_FAIL(c, "no window fits into %" PRId64 " elements", size[d]);
        const int64_t end = (places[d] - 1) * w->stride[d] + (w->kernel[d] - 1) * w->dilation[d];
        const int64_t after = end + 1 - size[d] - w->pad[d];
        wide.pad[WINDOW + d] = after > 0 ? after : 0;
    }
    if (max) KOLO_TRY(pad_below(c, x, &wide));
    if (!max) *x = padded(c, *x, &wide);
    for (int d = WINDOW - w->dims; d < WINDOW; d++) {
        KOLO_TRY(combine(c, x, w, d, places[d], max));
    }
    return max ? KOLO_OK : divide_by_counts(c, x, w, size, include);
}

static kolo_value raised(onnx_call *c, kolo_value x, double p) {
    return p == 1 ? x : p == 2 ? kolo_square(c->g, x) : kolo_pow(c->g, x, p);
}

/* MaxPool, AveragePool and LpPool: the root of the sum of powers, which is an average times the
 * elements of a window. */
kolo_status onnx_map_pool(onnx_call *c) {
    const bool max = c->node->op_type[0] == 'M', powers = c->node->op_type[0] == 'L';
    const double p = (double)onnx_int(c, "p", 2);
    kolo_value x, y;
    window w = {0};
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(image_of(c, &x, &w.dims));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (!onnx_attribute(c, "kernel_shape"))
        return ONNX_FAIL(c, "attribute kernel_shape is missing");
    KOLO_TRY(numbers(c, "kernel_shape", w.dims, 1, w.kernel));
    KOLO_TRY(read_window(c, &s, &w));
    if (c->n_out > 1 && *c->node->output[1]) return ONNX_FAIL(c, "the indices, its second output");
    if (powers && (p < 1 || onnx_int(c, "ceil_mode", 0))) {
        return ONNX_FAIL(c, "attribute %s", p < 1 ? "p" : "ceil_mode");
    }
    if (powers) x = raised(c, kolo_abs(c->g, x), p);
    const bool include = powers || onnx_int(c, "count_include_pad", 0) != 0;
    const bool uneven = !is_even(&w) || is_wide(&w);
    if (is_dilated(&w) || (uneven && !max && !include)) {
        KOLO_TRY(pool_by_offsets(c, &x, &w, max, include));
        y = x;
    } else {
        if (uneven && max) KOLO_TRY(pad_below(c, &x, &w));
        if (uneven && !max) x = padded(c, x, &w);
        y = pooled(c, x, &w, max, !max && !include);
    }
    if (powers) {
        const double elements = (double)w.kernel[0] * (double)w.kernel[1] * (double)w.kernel[2];
        y = kolo_scale(c->g, y, elements);
        y = p == 2 ? kolo_sqrt(c->g, y) : raised(c, y, 1 / p);
    }
    return onnx_set(c, 0, as_before(c, y, w.dims));
}

kolo_status onnx_map_global_pool(onnx_call *c) {
    const int axes[] = {2, 3, 4, 5};
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (s.rank < 3) return ONNX_FAIL(c, "an input of %d dimensions", s.rank);
    if (c->node->op_type[6] == 'M')
        return onnx_set(c, 0, kolo_reduce_max(c->g, x, axes, s.rank - 2, true));
    if (s.rank == 4) return onnx_set(c, 0, kolo_global_avg_pool2d(c->g, x));
    return onnx_set(c, 0, kolo_reduce_mean(c->g, x, axes, s.rank - 2, true));
}

/* ---- normalization ---- */

/* v [C] as [C,1,...], for the channels of a tensor of `rank` dimensions. */
static kolo_value by_channel(onnx_call *c, kolo_value v, int rank) {
    kolo_shape shape = {.rank = rank - 1, .dim = {kolo_value_shape(c->g, v).dim[0], 1, 1, 1, 1, 1}};
    return rank > 2 ? onnx_as(c, v, shape) : v;
}

/* A running statistic as a state of this layer. */
static kolo_status statistic(onnx_call *c, int i, kolo_value gamma, kolo_value *v) {
    const onnx_item *item = c->in[i];
    char *name = onnx_leaf_name(c->m, item->name);
    if (!name) return KOLO_NOMEM(64);
    *v = kolo_graph_state(c->g, name, gamma);
    KOLO_TRY(kolo_graph_check(c->g));
    kolo_info(c->g, *v)->initial = item->tensor.f;
    return KOLO_OK;
}

static bool is_vector(const onnx_call *c, int i, int64_t channels) {
    const onnx_item *item = c->in[i];
    return item->constant && !item->tensor.integer && item->tensor.shape.rank == 1 &&
           item->tensor.count == channels;
}

kolo_status onnx_map_batch_norm(onnx_call *c) {
    kolo_value x, v[5];
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape s = kolo_value_shape(c->g, x);
    const double eps = onnx_float(c, "epsilon", 1e-5), keep = onnx_float(c, "momentum", 0.9);
    bool learns = s.rank >= 2 && (c->in[1]->trained || c->m->onnx->states_parameters);
    for (int i = 1; i < 5; i++) learns = learns && is_vector(c, i, s.dim[1]);
    if (!learns) { /* by statistics that are inputs or computed */
        if (onnx_int(c, "training_mode", 0)) return ONNX_FAIL(c, "attribute training_mode");
        for (int i = 1; i < 5; i++) {
            KOLO_TRY(onnx_value(c, i, &v[i]));
            v[i] = by_channel(c, v[i], s.rank);
        }
        kolo_value factor =
            kolo_mul(c->g, v[1], kolo_rsqrt(c->g, kolo_add_number(c->g, v[4], eps)));
        x = kolo_mul(c->g, kolo_sub(c->g, x, v[3]), factor);
        return onnx_set(c, 0, kolo_add(c->g, x, v[2]));
    }
    v[0] = x;
    KOLO_TRY(onnx_value(c, 1, &v[1]));
    KOLO_TRY(onnx_value(c, 2, &v[2]));
    KOLO_TRY(statistic(c, 3, v[1], &v[3]));
    KOLO_TRY(statistic(c, 4, v[1], &v[4]));
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_NORM_EPS].f = eps, [KOLO_NORM_MOMENTUM].f = 1 - keep};
    return onnx_set(c, 0, kolo_graph_add1(c->g, &kolo_op_batch_norm, v, 5, attr));
}

/* x - mean, divided by its standard deviation, over `axes`; without the mean: RMS. */
static kolo_value normalized(kolo_graph *g, kolo_value x, const int *axes, int n, double eps,
                             bool centre) {
    if (centre) x = kolo_sub(g, x, kolo_reduce_mean(g, x, axes, n, true));
    kolo_value square = kolo_reduce_mean(g, kolo_square(g, x), axes, n, true);
    return kolo_mul(g, x, kolo_rsqrt(g, kolo_add_number(g, square, eps)));
}

/* The outputs beside that of LayerNormalization: mean and 1 / standard deviation. */
static kolo_status set_statistics(onnx_call *c, kolo_value x, const int *axes, int n, double eps) {
    bool wanted[3] = {false, false, false};
    for (int i = 1; i < 3 && i < c->n_out; i++) wanted[i] = *c->node->output[i] != '\0';
    if (!wanted[1] && !wanted[2]) return KOLO_OK;
    const kolo_value mean = kolo_reduce_mean(c->g, x, axes, n, true);
    const kolo_value square = kolo_square(c->g, kolo_sub(c->g, x, mean));
    const kolo_value variance = kolo_reduce_mean(c->g, square, axes, n, true);
    if (wanted[1]) KOLO_TRY(onnx_set(c, 1, mean));
    if (!wanted[2]) return KOLO_OK;
    return onnx_set(c, 2, kolo_rsqrt(c->g, kolo_add_number(c->g, variance, eps)));
}

/* LayerNormalization and RMSNormalization. */
kolo_status onnx_map_layer_norm(onnx_call *c) {
    const bool centre = c->node->op_type[0] == 'L';
    const double eps = onnx_float(c, "epsilon", 1e-5);
    kolo_value x, scale, offset = KOLO_NONE;
    int axis, axes[KOLO_MAX_RANK];
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_value(c, 1, &scale));
    if (onnx_has(c, 2)) KOLO_TRY(onnx_value(c, 2, &offset));
    const kolo_shape s = kolo_value_shape(c->g, x), of_scale = kolo_value_shape(c->g, scale);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", -1), s.rank, &axis));
    for (int d = axis; d < s.rank; d++) axes[d - axis] = d;
    KOLO_TRY(set_statistics(c, x, axes, s.rank - axis, eps));
    const bool fast = axis == s.rank - 1 && s.rank >= 2 && (!centre || offset.id >= 0) &&
                      of_scale.rank == 1 && of_scale.dim[0] == s.dim[axis];
    if (fast) {
        const kolo_value in[] = {x, scale, offset};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = eps};
        const kolo_op *op = centre ? &kolo_op_layer_norm : &kolo_op_rms_norm;
        return onnx_set(c, 0, kolo_graph_add1(c->g, op, in, centre ? 3 : 2, attr));
    }
    kolo_value y = kolo_mul(c->g, normalized(c->g, x, axes, s.rank - axis, eps, centre), scale);
    return onnx_set(c, 0, offset.id >= 0 ? kolo_add(c->g, y, offset) : y);
}

/* GroupNormalization and InstanceNormalization. */
kolo_status onnx_map_group_norm(onnx_call *c) {
    kolo_value x, scale, offset;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_value(c, 1, &scale));
    KOLO_TRY(onnx_value(c, 2, &offset));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (s.rank < 2) return ONNX_FAIL(c, "an input of %d dimensions", s.rank);
    const int64_t groups = c->node->op_type[0] == 'I' ? s.dim[1] : onnx_int(c, "num_groups", 1);
    const kolo_shape of_scale = kolo_value_shape(c->g, scale);
    if (groups >= 1 && of_scale.rank == 1 && of_scale.dim[0] == groups && groups != s.dim[1] &&
        s.dim[1] % groups == 0) { /* opset 18 */
        const int64_t each = s.dim[1] / groups;
        const kolo_shape wide = kolo_shape_2(groups, each), column = kolo_shape_2(groups, 1);
        KOLO_TRY(onnx_expand(c, onnx_as(c, scale, column), &wide, &scale));
        KOLO_TRY(onnx_expand(c, onnx_as(c, offset, column), &wide, &offset));
    }
    return onnx_set(
        c, 0, kolo_group_norm_by(c->g, x, scale, offset, groups, onnx_float(c, "epsilon", 1e-5)));
}

kolo_status onnx_map_lrn(onnx_call *c) {
    const int64_t size = onnx_int(c, "size", 5);
    const double beta = onnx_float(c, "beta", 0.75);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_LRN_SIZE].i = size,
        [KOLO_LRN_ALPHA].f = onnx_float(c, "alpha", 1e-4),
        [KOLO_LRN_BETA].f = beta,
        [KOLO_LRN_K].f = onnx_float(c, "bias", 1),
    };
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    if (size % 2 == 0) return ONNX_FAIL(c, "attribute size: %" PRId64 " channels", size);
    return onnx_set(c, 0, beta != 0 ? kolo_graph_add1(c->g, &kolo_op_lrn, &x, 1, attr) : x);
}
