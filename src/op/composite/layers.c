/* Layers and losses that consist of other ops. */
#include "base/integer.h"
#include "graph/ops/ops.h"

#include <math.h>

/* Fails the graph; for returns. */
static kolo_value refuse(kolo_graph *g, const char *text) {
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "%s", text));
    return KOLO_NONE;
}

/* ---- images ---- */

static kolo_shape with_height_1(kolo_shape s) {
    return kolo_shape_4(s.dim[0], s.dim[1], 1, s.dim[2]);
}

kolo_value kolo_conv1d(kolo_graph *g, kolo_value x, kolo_value w, const kolo_conv1d_opts *opts) {
    const kolo_shape of_x = kolo_value_shape(g, x), of_w = kolo_value_shape(g, w);
    const kolo_conv1d_opts o = opts ? *opts : (kolo_conv1d_opts){0};
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (of_x.rank != 3 || of_w.rank != 3) {
        return refuse(g, "conv1d: give x of [N,C,W] and w of [O,C/groups,K]");
    }
    const kolo_conv2d_opts flat = {
        .stride_w = o.stride, .pad_w = o.pad, .dilation_w = o.dilation, .groups = o.groups};
    kolo_value y = kolo_conv2d(g, kolo_reshape(g, x, with_height_1(of_x)),
                               kolo_reshape(g, w, with_height_1(of_w)), &flat);
    const kolo_shape s = kolo_value_shape(g, y);
    return kolo_reshape(g, y, kolo_shape_3(s.dim[0], s.dim[1], s.dim[3]));
}

/* Planes first, first + stride, ... of x [N,D,C,H,W], `count` of them -> [N,count,C,1,H,W]. */
static kolo_value every(kolo_graph *g, kolo_value x, int64_t first, int64_t stride, int64_t count) {
    const kolo_shape s = kolo_value_shape(g, x);
    x = kolo_slice(g, x, 1, first, count * stride);
    x = kolo_reshape(g, x,
                     (kolo_shape){6, {s.dim[0], count, stride, s.dim[2], s.dim[3], s.dim[4]}});
    x = kolo_slice(g, x, 2, 0, 1);
    return kolo_reshape(g, x, (kolo_shape){6, {s.dim[0], count, s.dim[2], 1, s.dim[3], s.dim[4]}});
}

/* The planes under a kernel become channels of a convolution over [N D',C KD,H,W]. */
kolo_value kolo_conv3d(kolo_graph *g, kolo_value x, kolo_value w, const kolo_conv3d_opts *opts) {
    enum { MOST = 64 };
    const kolo_shape of_x = kolo_value_shape(g, x), of_w = kolo_value_shape(g, w);
    const kolo_conv3d_opts o = opts ? *opts : (kolo_conv3d_opts){0};
    const int64_t stride = o.stride_d ? o.stride_d : 1, dilation = o.dilation_d ? o.dilation_d : 1;
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (of_x.rank != 5 || of_w.rank != 5 || of_w.dim[2] > MOST || stride < 1 || dilation < 1 ||
        stride > INT32_MAX || dilation > INT32_MAX || o.pad_d < 0 || o.pad_d > INT32_MAX) {
        return refuse(g, "conv3d: give x of [N,C,D,H,W], w of [O,C/groups,KD,KH,KW] with KD at "
                         "most 64, positive strides and dilations, and no negative padding");
    }
    const int64_t n = of_x.dim[0], kernel = of_w.dim[2], reach = dilation * (kernel - 1) + 1;
    const int64_t padded = of_x.dim[2] + 2 * o.pad_d, depth = (padded - reach) / stride + 1;
    if (padded < reach) return refuse(g, "conv3d: the kernel is deeper than x with its padding");
    const int64_t more = reach - 1 + depth * stride - padded; /* read by strides, not used */
    x = kolo_permute(g, x, (const int[]){0, 2, 1, 3, 4});
    if (o.pad_d > 0 || more > 0) x = kolo_pad(g, x, 1, o.pad_d, o.pad_d + kolo_max_i64(more, 0));
    kolo_value planes[MOST] = {{0}};
    for (int64_t k = 0; k < kernel; k++) planes[k] = every(g, x, k * dilation, stride, depth);
    x = kernel > 1 ? kolo_concat_along(g, planes, (int)kernel, 3) : planes[0];
    x = kolo_reshape(g, x, kolo_shape_4(n * depth, of_x.dim[1] * kernel, of_x.dim[3], of_x.dim[4]));
    w = kolo_reshape(g, w,
                     kolo_shape_4(of_w.dim[0], of_w.dim[1] * kernel, of_w.dim[3], of_w.dim[4]));
    kolo_value y = kolo_conv2d(g, x, w,
                               &(kolo_conv2d_opts){o.stride_h, o.stride_w, o.pad_h, o.pad_w,
                                                   o.dilation_h, o.dilation_w, o.groups});
    const kolo_shape s = kolo_value_shape(g, y);
    y = kolo_reshape(g, y, (kolo_shape){5, {n, depth, s.dim[1], s.dim[2], s.dim[3]}});
    return kolo_permute(g, y, (const int[]){0, 2, 1, 3, 4});
}

kolo_value kolo_pixel_shuffle(kolo_graph *g, kolo_value x, int64_t factor) {
    const kolo_shape s = kolo_value_shape(g, x);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (s.rank != 4 || factor < 1 || s.dim[1] % (factor * factor) != 0) {
        return refuse(g, "pixel_shuffle: give x of [N,C,H,W] with C a multiple of factor^2");
    }
    const int64_t channels = s.dim[1] / (factor * factor);
    const kolo_shape cut = {6, {s.dim[0], channels, factor, factor, s.dim[2], s.dim[3]}};
    x = kolo_permute(g, kolo_reshape(g, x, cut), (const int[]){0, 1, 4, 2, 5, 3});
    return kolo_reshape(g, x,
                        kolo_shape_4(s.dim[0], channels, s.dim[2] * factor, s.dim[3] * factor));
}

kolo_value kolo_repeat_pixels(kolo_graph *g, kolo_value x, int64_t factor) {
    enum { MOST = 1 << 15 };
    const kolo_shape s = kolo_value_shape(g, x);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (s.rank != 4 || factor < 1 || factor > MOST) {
        return refuse(g, "repeat_pixels: give x of [N,C,H,W] and a factor from 1 to 32768");
    }
    return kolo_resize_nearest(g, x, s.dim[2] * factor, s.dim[3] * factor);
}

/* The windows of each plane, then those along the planes, as images [N,C,D,H' W']: maxima of
 * maxima, and means of means, as the places of a window that count are a product of those along
 * each dimension. */
static kolo_value pool3d(kolo_graph *g, const char *what, kolo_value x, const kolo_pool3d_opts *o,
                         kolo_value (*pool)(kolo_graph *, kolo_value, const kolo_pool2d_opts *)) {
    const kolo_shape s = kolo_value_shape(g, x);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (s.rank != 5 || !o) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_ARG, "%s: give x of [N,C,D,H,W], and options", what));
        return KOLO_NONE;
    }
    x = kolo_reshape(g, x, kolo_shape_4(s.dim[0], s.dim[1] * s.dim[2], s.dim[3], s.dim[4]));
    kolo_value y = pool(g, x,
                        &(kolo_pool2d_opts){o->kernel_h, o->kernel_w, o->stride_h, o->stride_w,
                                            o->pad_h, o->pad_w, o->ceil, o->exclude_padding});
    const kolo_shape plane = kolo_value_shape(g, y);
    const int64_t h = plane.dim[2], w = plane.dim[3];
    y = kolo_reshape(g, y, kolo_shape_4(s.dim[0], s.dim[1], s.dim[2], h * w));
    y = pool(g, y,
             &(kolo_pool2d_opts){.kernel_h = o->kernel_d,
                                 .kernel_w = 1,
                                 .stride_h = o->stride_d,
                                 .pad_h = o->pad_d,
                                 .ceil = o->ceil,
                                 .exclude_padding = o->exclude_padding});
    const int64_t depth = kolo_value_shape(g, y).dim[2];
    return kolo_reshape(g, y, (kolo_shape){5, {s.dim[0], s.dim[1], depth, h, w}});
}

kolo_value kolo_max_pool3d(kolo_graph *g, kolo_value x, const kolo_pool3d_opts *opts) {
    return pool3d(g, "max_pool3d", x, opts, kolo_max_pool2d);
}

kolo_value kolo_avg_pool3d(kolo_graph *g, kolo_value x, const kolo_pool3d_opts *opts) {
    return pool3d(g, "avg_pool3d", x, opts, kolo_avg_pool2d);
}

/* ---- tables ---- */

kolo_value kolo_gather_rows(kolo_graph *g, kolo_value x, kolo_value ids) {
    const kolo_shape s = kolo_value_shape(g, ids), of_x = kolo_value_shape(g, x);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (s.rank != 1 || of_x.rank != 2)
        return refuse(g, "gather_rows: give x of [V,C] and ids of [M]");
    kolo_value y = kolo_embedding(g, x, kolo_reshape(g, ids, kolo_shape_2(s.dim[0], 1)), KOLO_NONE);
    return kolo_reshape(g, y, kolo_shape_2(s.dim[0], of_x.dim[1]));
}

kolo_value kolo_scatter_add(kolo_graph *g, kolo_value rows, kolo_value ids, int64_t n) {
    const kolo_shape s = kolo_value_shape(g, rows);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_EMBEDDING_ROWS].i = n};
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (s.rank != 2) return refuse(g, "scatter_add: give rows of [M,C] and ids of [M]");
    const kolo_value in[] = {kolo_reshape(g, rows, kolo_shape_3(s.dim[0], 1, s.dim[1])),
                             kolo_reshape(g, ids, kolo_shape_2(s.dim[0], 1))};
    return kolo_graph_add1(g, &kolo_op_embedding_bwd, in, 2, attr);
}

kolo_value kolo_embedding_bag(kolo_graph *g, kolo_value w, kolo_value ids, bool mean) {
    kolo_value rows = kolo_embedding(g, w, ids, KOLO_NONE);
    return mean ? kolo_reduce_mean(g, rows, (int[]){1}, 1, false)
                : kolo_reduce_sum(g, rows, (int[]){1}, 1, false);
}

/* ---- losses ---- */

kolo_value kolo_soft_xent(kolo_graph *g, kolo_value logits, kolo_value target) {
    return kolo_neg(g, kolo_sum(g, kolo_mul(g, target, kolo_log_softmax(g, logits, 1))));
}

kolo_value kolo_kl_div(kolo_graph *g, kolo_value log_q, kolo_value p) {
    const double least = 1e-37; /* of p in the logarithm: p log p is 0 where p is 0 */
    kolo_value log_p = kolo_log(g, kolo_clamp(g, p, least, INFINITY));
    return kolo_sum(g, kolo_mul(g, p, kolo_sub(g, log_p, log_q)));
}

/* ---- attention ---- */

/* [N,T,groups,each,D] -> [N groups,each T,D]: the heads of a group are further rows. */
static kolo_value by_group(kolo_graph *g, kolo_value x, int64_t groups, int64_t each) {
    const kolo_shape s = kolo_value_shape(g, x);
    const int64_t width = s.dim[2] / (groups * each);
    x = kolo_reshape(g, x, (kolo_shape){5, {s.dim[0], s.dim[1], groups, each, width}});
    x = kolo_permute(g, x, (const int[]){0, 2, 3, 1, 4});
    return kolo_reshape(g, x, kolo_shape_3(s.dim[0] * groups, each * s.dim[1], width));
}

kolo_value kolo_cross_attention(kolo_graph *g, kolo_value q, kolo_value k, kolo_value v,
                                const kolo_cross_attention_opts *opts) {
    const kolo_cross_attention_opts o = opts ? *opts : (kolo_cross_attention_opts){0};
    const kolo_shape of_q = kolo_value_shape(g, q), of_k = kolo_value_shape(g, k),
                     of_v = kolo_value_shape(g, v);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    const int64_t heads = o.heads, groups = o.kv_heads ? o.kv_heads : heads;
    if (of_q.rank != 3 || of_k.rank != 3 || of_v.rank != 3 || heads < 1 || groups < 1 ||
        heads % groups != 0 || of_q.dim[2] % heads != 0 || of_k.dim[2] % groups != 0 ||
        of_v.dim[2] % groups != 0 || of_k.dim[1] != of_v.dim[1]) {
        return refuse(g, "cross_attention: give q of [N,T,heads D], k of [N,S,kv_heads D] and v of "
                         "[N,S,kv_heads E], with kv_heads a divisor of heads");
    }
    const int64_t n = of_q.dim[0], rows = of_q.dim[1], keys = of_k.dim[1], each = heads / groups;
    const double width = (double)(of_q.dim[2] / heads);
    kolo_value scores =
        kolo_matmul(g, by_group(g, q, groups, each), by_group(g, k, groups, 1), false, true);
    scores = kolo_scale(g, scores, o.scale != 0 ? o.scale : 1 / sqrt(width));
    scores = kolo_reshape(g, scores, kolo_shape_4(n, heads, rows, keys));
    if (o.use_bias) scores = kolo_add(g, scores, o.bias);
    if (o.window < 0 || (o.window > 0 && !o.causal)) {
        return refuse(g, "cross_attention: a window must be positive, and needs causal");
    }
    if (o.causal) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_CAUSAL_FILL].f = -INFINITY, [KOLO_CAUSAL_WINDOW].i = o.window};
        scores = kolo_graph_add1(g, &kolo_op_causal_mask, &scores, 1, attr);
    }
    kolo_value p =
        kolo_reshape(g, kolo_softmax(g, scores, -1), kolo_shape_3(n * groups, each * rows, keys));
    kolo_value y = kolo_matmul(g, p, by_group(g, v, groups, 1), false, false);
    const int64_t channels = of_v.dim[2] / groups;
    y = kolo_reshape(g, y, (kolo_shape){5, {n, groups, each, rows, channels}});
    y = kolo_permute(g, y, (const int[]){0, 3, 1, 2, 4});
    return kolo_reshape(g, y, kolo_shape_3(n, rows, heads * channels));
}
