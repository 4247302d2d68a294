#pragma once
/* Ops that move elements or reduce over dimensions, and views. */

#include "graph/graph.h"

/* flatten: x [N,...] -> [N, rest], a view. reshape: x -> the shape in the attributes, a view;
 * `paired`, which is not printed: the dimensions of both that have one index (layout.c), or 0.
 * stop_gradient: x -> x, a view without a gradient. */
enum { KOLO_RESHAPE_RANK, KOLO_RESHAPE_DIM /* first of six */, KOLO_RESHAPE_PAIRED = 7 };
/* A reshape whose dimensions correspond as those of a reshape of `from` to `to` do: which of them
 * do is not known from sizes of 1. */
kolo_value kolo_reshape_as(kolo_graph *g, kolo_value x, const kolo_shape *shape,
                           const kolo_shape *from, const kolo_shape *to);
/* Whether g has reshapes. */
bool kolo_graph_reshapes(const kolo_graph *g);
/* The dimensions of reshapes in `g`, of a single sample, correspond as in the same graph of several
 * samples, where another 1 is not taken for the sample. Leaves a graph with other nodes as it is.
 */
void kolo_graph_pair_reshapes(kolo_graph *g, const kolo_graph *of_several);
extern const kolo_op kolo_op_flatten, kolo_op_reshape, kolo_op_stop_gradient;

/* permute: x -> y, dimension d of y being dimension attr[d] of x. flip: x -> y, the elements along
 * dimension `axis` in reverse order. softmax: x [N,C,...] -> y, e^x divided by its sum over C; log:
 * the logarithm of that. softmax_bwd: dy, y -> dx. */
enum { KOLO_FLIP_AXIS };
enum { KOLO_SOFTMAX_LOG };
extern const kolo_op kolo_op_permute, kolo_op_flip, kolo_op_softmax, kolo_op_softmax_bwd;

/* sum: x -> y, the sum over the dimensions of x in `axes`, as bits; 0: all. Those have size 1 in y
 * with `keep`, else y lacks them. With `mean` divided by the number of elements of a sum. sum_bwd:
 * dy, x -> dx like x, the dy of each element, with `mean` divided. reduce_max: x -> y, the same
 * with the maximum; with `min` the minimum. */
enum { KOLO_SUM_AXES, KOLO_SUM_KEEP, KOLO_SUM_MEAN, KOLO_REDUCE_MIN = KOLO_SUM_MEAN };
/* Whether dimension d is summed over. */
static inline bool kolo_sum_over(const kolo_attr *attr, int d) {
    return attr[KOLO_SUM_AXES].i == 0 || (attr[KOLO_SUM_AXES].i >> d & 1);
}
/* The dimension of y for dimension d of x; -1: none. */
static inline int kolo_sum_dim(const kolo_attr *attr, int d) {
    if (kolo_sum_over(attr, d)) return -1;
    int dim = 0;
    for (int k = 0; k < d; k++) dim += attr[KOLO_SUM_KEEP].i || !kolo_sum_over(attr, k);
    return dim;
}
extern const kolo_op kolo_op_sum, kolo_op_sum_bwd, kolo_op_reduce_max;

/* scale: x, [s []] -> x * s * factor. */
enum { KOLO_SCALE_FACTOR };
extern const kolo_op kolo_op_scale;

/* concat: x0, x1, ... [...,Ci,...] -> [..., sum of Ci, ...], along a dimension from 1 on.
 * window: x [...,C,...] -> [...,count,...]: element i along a dimension from 1 on is element
 * first + i of x, zero outside x. Its gradient is a window too. */
enum { KOLO_CONCAT_AXIS };
enum { KOLO_WINDOW_FIRST, KOLO_WINDOW_COUNT, KOLO_WINDOW_AXIS };
extern const kolo_op kolo_op_concat, kolo_op_window;

/* deinterleave: x -> y0, y1, ...: runs of `length` elements along dimension `axis`, given to
 * `parts` outputs in turn. interleave: x0, x1, ... -> y, the other way; its `parts` are its inputs.
 */
enum { KOLO_INTERLEAVE_AXIS, KOLO_INTERLEAVE_LENGTH, KOLO_INTERLEAVE_PARTS };
extern const kolo_op kolo_op_deinterleave, kolo_op_interleave;

/* convert: x -> x in another dtype, f32 or bf16. Added by the precision pass. */
enum { KOLO_CONVERT_DTYPE };
extern const kolo_op kolo_op_convert;

/* reorder: x -> x in the layout of the output's tensor. */
extern const kolo_op kolo_op_reorder;
