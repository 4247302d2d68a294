#pragma once
/* Ops on images: convolution, pooling, resizing, normalization across channels. */

#include "graph/graph.h"

/* conv2d: x [N,C,H,W], w [O,C/groups,KH,KW], [b [O]] -> y [N,O,H',W']; relu: y = max(0, .).
 * conv2d_bwd_data: dy, w -> dx [N,C,in_h,in_w].
 * conv2d_bwd_weights: dy, x -> dw, [db] (db when bias is 1).
 * All three have these attributes; those that an op does not use are 0. size_h, size_w: in_h, in_w
 * for bwd_data, KH, KW for bwd_weights. relu: conv2d only. */
enum {
    KOLO_CONV_STRIDE_H,
    KOLO_CONV_STRIDE_W,
    KOLO_CONV_PAD_H,
    KOLO_CONV_PAD_W,
    KOLO_CONV_DILATION_H, /* 1: dense */
    KOLO_CONV_DILATION_W,
    KOLO_CONV_GROUPS,
    KOLO_CONV_RELU,
    KOLO_CONV_SIZE_H,
    KOLO_CONV_SIZE_W,
    KOLO_CONV_BIAS,
    KOLO_CONV_MORE_H,   /* rows of padding below the image, less those above it */
    KOLO_CONV_CHANNELS, /* of a depthwise convolution of which this rank has some: all of them */
};
extern const kolo_op kolo_op_conv2d, kolo_op_conv2d_bwd_data, kolo_op_conv2d_bwd_weights;

/* max_pool2d: x -> y, index (u8: kh * KW + kw of the first largest element in its window; KH * KW
 * is at most 256); relu: y = max(0, .), same index. max_pool2d_bwd: dy, index, [y] -> dx
 * [N,C,in_h,in_w]; with y (for relu): only dy where y > 0. avg_pool2d: x -> y (sum over the
 * window / (KH KW)). avg_pool2d_bwd: dy -> dx. `ceil`
 * rounds the number of windows up, for windows that start in the image or the leading padding;
 * elements beyond the trailing padding are not part of a mean. With `exclude_padding` a mean is
 * over the elements of the image alone.
 */
enum {
    KOLO_POOL_KERNEL_H,
    KOLO_POOL_KERNEL_W,
    KOLO_POOL_STRIDE_H,
    KOLO_POOL_STRIDE_W,
    KOLO_POOL_PAD_H,
    KOLO_POOL_PAD_W,
    KOLO_POOL_RELU,
    KOLO_POOL_IN_H, /* bwd only */
    KOLO_POOL_IN_W,
    KOLO_POOL_CEIL,
    KOLO_POOL_EXCLUDE_PADDING,
    KOLO_POOL_MORE_H, /* as of conv2d */
};
extern const kolo_op kolo_op_max_pool2d, kolo_op_max_pool2d_bwd, kolo_op_avg_pool2d,
    kolo_op_avg_pool2d_bwd;

/* adaptive_avg_pool2d: x -> y [N,C,h,w], the attributes; y at i is the mean of x over [floor(i H /
 * h), ceil((i + 1) H / h)), in each dimension. adaptive_avg_pool2d_bwd: dy -> dx [N,C,h,w]. resize:
 * x -> y [N,C,h,w]; y at i is x at the place that `mode` states, bilinear between two pixels.
 * resize_bwd: dy -> dx [N,C,h,w]. */
typedef enum kolo_resize_mode {
    KOLO_RESIZE_BORDERS,    /* i H / h - 1/2 + H / 2h, not below 0: the borders coincide */
    KOLO_RESIZE_CORNERS,    /* i (H - 1) / (h - 1): centres of the corner pixels do */
    KOLO_RESIZE_NEAREST,    /* floor(i H / h) */
    KOLO_RESIZE_ASYMMETRIC, /* i H / h: centres of the first pixels do */
} kolo_resize_mode;
enum { KOLO_SIZE_H, KOLO_SIZE_W, KOLO_SIZE_MODE };
/* Of a part of a resized image, after these: its first row and the rows of the whole, of the large
 * and of the small image, which is that with input rows; 0 rows: it is whole. */
enum {
    KOLO_RESIZE_FIRST = KOLO_SIZE_MODE + 1,
    KOLO_RESIZE_ROWS,
    KOLO_RESIZE_FROM_FIRST,
    KOLO_RESIZE_FROM_ROWS,
};
/* The two input pixels of a dimension that an output pixel lies between, and its distance from the
 * first. */
typedef struct kolo_between {
    int64_t low, high;
    double part;
} kolo_between;
/* Of output pixel i of `to`, from `from` input pixels. */
kolo_between kolo_resize_between(int64_t i, int64_t from, int64_t to, kolo_resize_mode mode);
/* Of output row i of a node with these attributes: rows of what it has. */
kolo_between kolo_resize_row(const kolo_attr *attr, int64_t i, int64_t from, int64_t to);
extern const kolo_op kolo_op_adaptive_avg_pool2d, kolo_op_adaptive_avg_pool2d_bwd, kolo_op_resize,
    kolo_op_resize_bwd;

/* grid_sample: x [N,C,H,W], grid [N,h,w,2] -> y [N,C,h,w]: at each place the grid has x and y, from
 * -1 to 1 over the image, of which y is the value, bilinear between four pixels, bicubic between
 * 16, or that of the nearest one (kolo_grid_mode). grid_sample_bwd: dy, x, grid -> dx, dgrid. */
enum { KOLO_GRID_MODE, KOLO_GRID_PADDING, KOLO_GRID_CORNERS };
enum { KOLO_GRID_TAPS = 16 };
/* The pixels that a value is made of, at `at` in their plane (-1: outside, where pixels are 0), and
 * their weights, with the derivatives of these by x and y. */
typedef struct kolo_grid_taps {
    int n;
    int64_t at[KOLO_GRID_TAPS];
    double weight[KOLO_GRID_TAPS], by_x[KOLO_GRID_TAPS], by_y[KOLO_GRID_TAPS];
} kolo_grid_taps;
/* Those of the place x, y of the grid. */
kolo_grid_taps kolo_grid_find(double x, double y, int64_t H, int64_t W, const kolo_attr *attr);
extern const kolo_op kolo_op_grid_sample, kolo_op_grid_sample_bwd;

/* lrn: x [N,C,...] -> y, s: s = k + alpha / size * (sum of x^2 over the channels c - size / 2
 * to c + (size - 1) / 2), y = x s^-beta. lrn_bwd: dy, x, s -> dx. */
enum { KOLO_LRN_SIZE, KOLO_LRN_ALPHA, KOLO_LRN_BETA, KOLO_LRN_K };
extern const kolo_op kolo_op_lrn, kolo_op_lrn_bwd;
