#pragma once
/* The ops: inputs, outputs, attributes. Shapes are logical (N,C,H,W); [x] is an optional input or
 * output. Ops with _bwd in their names compute gradients. */

#include "graph/graph.h"
#include "graph/ops/binary.h"
#include "graph/ops/unary.h"
#include "kolo/codec.h"

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
    KOLO_CONV_MORE_H, /* rows of padding below the image, less those above it */
};

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

/* adaptive_avg_pool2d: x -> y [N,C,h,w], the attributes; y at i is the mean of x over [floor(i H /
 * h), ceil((i + 1) H / h)), in each dimension. adaptive_avg_pool2d_bwd: dy -> dx [N,C,h,w]. resize:
 * x -> y [N,C,h,w], bilinear; y at i is x at i H / h - 1/2 + H / 2h, not below 0 (align: at i (H -
 * 1) / (h - 1)). resize_bwd: dy -> dx [N,C,h,w]. */
enum { KOLO_SIZE_H, KOLO_SIZE_W, KOLO_SIZE_ALIGN };
/* Of a part of a resized image, after these: its first row and the rows of the whole, of the large
 * and of the small image, which is that with input rows; 0 rows: it is whole. */
enum {
    KOLO_RESIZE_FIRST = KOLO_SIZE_ALIGN + 1,
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
kolo_between kolo_resize_between(int64_t i, int64_t from, int64_t to, bool align);
/* Of output row i of a node with these attributes: rows of what it has. */
kolo_between kolo_resize_row(const kolo_attr *attr, int64_t i, int64_t from, int64_t to);

/* lrn: x [N,C,...] -> y, s: s = k + alpha / size * (sum of x^2 over the channels c - size / 2
 * to c + (size - 1) / 2), y = x s^-beta. lrn_bwd: dy, x, s -> dx. */
enum { KOLO_LRN_SIZE, KOLO_LRN_ALPHA, KOLO_LRN_BETA, KOLO_LRN_K };

/* linear: x [N,I...], w [O,I...], [b [O]] -> y [N,O]; the dimensions after the first may be several
 * (a flatten folded in), and must be the same in x and w. Or tokens: x [N,...,I], w [O,I] -> y
 * [N,...,O]. linear_bwd_data: dy, w -> dx. linear_bwd_weights: dy, x -> dw, [db]. */
enum { KOLO_LINEAR_RELU };     /* linear */
enum { KOLO_LINEAR_BWD_BIAS }; /* linear_bwd_weights: 1 gives db */

/* linear_gelu: x, w [O,I], [b [O]] -> y = gelu(z), [z] with z = linear(x, w, b), if keep is 1. */
enum { KOLO_LINEAR_GELU_TANH, KOLO_LINEAR_GELU_KEEP };

/* bias: x [N,C,...], b [C] -> y. bias_bwd: dy -> db (sum over all but dimension 1).
 * relu: x -> y. relu_bwd: dy, y, [dy2] -> dx = y > 0 ? dy + dy2 : 0. add: a, b -> a + b; relu:
 * max(0, a + b). flatten: x [N,...] -> [N, rest], a view. reshape: x -> the shape in the
 * attributes, a view; `paired`, which is not printed: the dimensions of both that have one index
 * (layout.c), or 0. */
enum { KOLO_ADD_RELU };
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

/* batch_norm: x [N,C,...], gamma, beta, running_mean, running_var [C], [r like x] -> y, mean, var
 * [C]: mean and biased variance of the batch; y = gamma (x - mean) / sqrt(var + eps) + beta + r;
 * relu 1: y = max(0, .); above 1: at most relu, too. Only passes read the running statistics and
 * the momentum. batch_norm_bwd: dy, x, gamma, mean, var, [beta] -> dx, dgamma, dbeta; with beta
 * (for relu): only dy where y, recomputed, is not clipped. batch_norm_infer: its inputs -> y by the
 * running statistics. batch_norm_update: running_mean, running_var, mean, var -> the next running
 * statistics, keep old + factor new. */
enum { KOLO_NORM_EPS, KOLO_NORM_MOMENTUM, KOLO_NORM_RELU };
enum { KOLO_NORM_UPDATE_KEEP, KOLO_NORM_UPDATE_FACTOR };

/* Synchronised batch normalization. sync_norm_sums: x [N,C,...], running_mean [C], weight [] ->
 * sums [2 C]: weight / plane times the sums of x - running_mean, then of its square, with `plane`
 * elements of a channel in a sample. sync_norm_statistics: sums, running_mean, running_var, weight
 * -> mean, var, unbiased var [C] of all samples, if weight is one over their number and the sums
 * are those of all ranks. Only passes read running_var and the momentum. sync_norm: x, gamma, beta,
 * mean, var, weight, [r] -> y as batch_norm. sync_norm_bwd_sums: dy, x, gamma, mean, var, [beta] ->
 * dgamma, dbeta, sums [2 C]: dbeta, then dgamma. sync_norm_bwd_data: dy, x, weight, sums, gamma,
 * mean, var, [beta] -> dx. Attributes and beta as of batch_norm. */
enum { KOLO_SYNC_NORM_MOMENTUM, KOLO_SYNC_NORM_PLANE }; /* of statistics */
/* Whether statistics are those of the samples of a rank, of which others have other rows. */
enum { KOLO_SYNC_SUMS_OF_RANK, KOLO_SYNC_SUMS_PLANE }; /* of sums; PLANE: of the whole image */
enum {
    KOLO_SYNC_NORM_OF_RANK = KOLO_NORM_RELU + 1,
    KOLO_SYNC_NORM_PIXELS
}; /* of the others, after
those of batch_norm; PIXELS: of the whole image */

/* gelu: x -> x Phi(x), or with tanh x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
 * gelu_bwd: dy, x -> dx, [db], the sum of dx over all but its last dimension, when bias is 1.
 * mul: a, b -> a b. unary.h and binary.h have the other functions. */
enum { KOLO_GELU_TANH, KOLO_GELU_BWD_BIAS };

/* layer_norm: x [...,C], gamma, beta [C] -> y = gamma (x - mean) rstd + beta, mean, rstd [...] with
 * rstd = 1 / sqrt(variance + eps). layer_norm_bwd: dy, x, gamma, mean, rstd -> dx, dgamma, dbeta.
 * rms_norm: x, gamma -> y = gamma x rstd, rstd = 1 / sqrt(mean square + eps). rms_norm_bwd: dy, x,
 * gamma, rstd -> dx, dgamma.
 * group_norm: x [N,G,K,P], [gamma, beta [G,K]] -> y = gamma (x - mean) rstd + beta, mean, rstd
 * [N,G] over K and P; without gamma and beta y = (x - mean) rstd. group_norm_bwd: dy, x, mean,
 * rstd, [gamma] -> dx, [dgamma, dbeta]. */
enum { KOLO_LAYER_NORM_EPS };
/* group_norm of x [N,C,...] with `scale` and `offset`, values of C elements; KOLO_NONE: without. */
kolo_value kolo_group_norm_by(kolo_graph *g, kolo_value x, kolo_value scale, kolo_value offset,
                              int64_t groups, double eps);

/* embedding: w [V,C], ids i32 [N,T], [p [P,C]] -> y [N,T,C] with y[n,t] = w[ids[n,t]] + p[position
 * + t]. An id outside [0, V) selects a row of zeros. embedding_bwd: dy, ids, [w] -> dw [rows,C]; w
 * states that the table is sharded and is not read. position_bwd: dy [N,T,C] -> dp [rows,C], zero
 * but for T rows from `position` on. With `length` the positions are those of kolo_position_of. Row
 * 0 of a sharded table is that of id `first`. embedding has no rows. */
enum { KOLO_EMBEDDING_ROWS, KOLO_EMBEDDING_FIRST, KOLO_EMBEDDING_POSITION, KOLO_EMBEDDING_LENGTH };
/* The position of element t of `count` that begin with position `first`. With `length` they are two
 * ranges of a sequence of that length, as far from its ends as each other (zigzag). */
static inline int64_t kolo_position_of(int64_t first, int64_t length, int64_t count, int64_t t) {
    return length == 0 || t < count / 2 ? first + t : length - first - count + t;
}
/* By how much the positions of the second range are further than if it followed the first. */
static inline int64_t kolo_position_jump(int64_t first, int64_t length, int64_t count) {
    return length == 0 ? 0 : length - 2 * first - count;
}

/* Row-sparse gradients, {rows [R,C], ids i32 [R]}, of tables [V,C]: ids are unique and
 * ascending, followed by -1 with rows of zeros. embedding_bwd_rows: dy [N,T,C], ids i32 [N,T] ->
 * rows, ids, the rows of embedding_bwd's dw for the ids that occur; merge_rows: rows [M,C], ids
 * i32 [M] in any order, or -1 -> rows, ids; rows of one id are summed in their order. V is `table`,
 * R is the capacity `room`, at least the minimum of V and the number of input ids. merge_rows is
 * with_updates. */
enum { KOLO_ROWS_TABLE, KOLO_ROWS_ROOM };

/* sgd_rows: w [V,C], rows, ids, lr [] -> w': w - lr times the rows. adam_rows: w, rows, ids, lr [],
 * update [], m, v -> w', m', v': for rows in ids, m' = beta1 m + (1 - beta1) row, v' = beta2 v + (1
 * - beta2) row^2 and w' = w - lr sqrt(1 - beta2^update) / (1 - beta1^update) m' / (sqrt(v') + eps);
 * other rows keep their values. As PyTorch's SparseAdam: eps differs from kolo_op_adam, and the
 * moments of a row decay only when it occurs. The first three attributes are adam's. */

/* mask_tokens: rng_key i64 [], first_sample i64 [], ids i32 [N,T], y i32 [N,T] -> masked, labels,
 * segments, all i32 [N,T], [random i32 [N]]: selects `count` tokens of
 * each window, one from each of as many nearly equal sections. Their labels are their ids, all
 * others -1. Of the selected ids 80 % become `mask`, 10 % a random id below `vocabulary`, 10 %
 * stay. A token with y below 0 is replaced by the next in its section with y of 0 or more; without
 * one the section is skipped. Segments are 0. With `pairs`, y is encoded as in kolo/data.h:
 * segments are 1 for tokens of second sentences; random is 1 for windows with a random second
 * sentence, else 0, and -1 if the first y is -1. Random numbers as for dropout. */
enum { KOLO_MASK_COUNT, KOLO_MASK_ID, KOLO_MASK_VOCABULARY, KOLO_MASK_PAIRS };

/* attention: qkv [N,T,3C] (queries, keys, values, each heads times C/heads), when p > 0 also
 * rng_key i64 [], first_sample i64 [], then [mask i32 [N,T]] -> o [N,T,C], lse [N,heads,T]: per
 * head softmax(q k^T / sqrt(C/heads)) v over the keys whose mask is not 0, causal: up to the
 * query's own; lse is
 * the logarithm of the softmax denominator, infinite without keys (then o is 0). With p > 0 a
 * weight of the softmax is zeroed if its random number, of 16 bits, is below p, else divided by 1 -
 * p; p is rounded to a multiple of 2^-16. Random numbers as for dropout: those of query i, head h
 * of window n are lanes j % 8 of Philox's numbers at counter ((n all_heads + first_head + h) T + i)
 * ceil(T / 8) + j / 8, lane l being the lower half of number l, or from 4 on the upper half of
 * number l - 4. attention_bwd: do, qkv, o, lse, when p > 0 rng_key, first_sample, then [mask] ->
 * dqkv.
 *
 * attention_block: qkv [N,T,3C], kv [N,S,2C], o [N,T,C], lse [N,heads,T], when p > 0 rng_key,
 * first_sample, then [mask [N,S]] -> o, lse: those of attention to the keys before and to those of
 * kv. attention_block_bwd: do, qkv, kv, o, lse, when p > 0 rng_key, first_sample, then [mask] -> dq
 * [N,T,C], dkv [N,S,2C]: the part of the gradient by these keys, of the final o and lse. */
enum {
    KOLO_ATTENTION_HEADS,
    KOLO_ATTENTION_CAUSAL,
    KOLO_ATTENTION_P,
    KOLO_ATTENTION_LAYER,
    KOLO_ATTENTION_FIRST_HEAD, /* the number of head 0 among all_heads heads; 0 of 0: all */
    KOLO_ATTENTION_ALL_HEADS,
    KOLO_ATTENTION_SAMPLE,   /* window 0 has number first_sample + this */
    KOLO_ATTENTION_RING,     /* kolo_ring; 0: all positions are here */
    KOLO_ATTENTION_POSITION, /* of query 0 in the sequence */
    KOLO_ATTENTION_LENGTH,   /* positions of the sequence; 0: as many as there are queries */
    KOLO_ATTENTION_KEY,      /* of a block: the position of key 0 */
    KOLO_ATTENTION_TURN,     /* of a block: by how many ranks the keys are rotated */
    KOLO_ATTENTION_SEEN = KOLO_ATTENTION_CAUSAL, /* of a block: kolo_seen */
    KOLO_ATTENTION_INPUTS = 1,                   /* of attention, before rng_key or mask */
    KOLO_ATTENTION_BWD_INPUTS = 4,
    KOLO_ATTENTION_BLOCK_INPUTS = 4,
    KOLO_ATTENTION_BLOCK_BWD_INPUTS = 5,
};
/* The queries that see the keys of a block; with zigzag those of the second range see all, or all
 * see those of the first range. */
typedef enum kolo_seen {
    KOLO_SEEN_BY_ALL,
    KOLO_SEEN_BY_NONE,
    KOLO_SEEN_BY_SECOND,
    KOLO_SEEN_FIRST_BY_ALL,
} kolo_seen;
/* Each rank has some of the positions of a sequence, as bits. */
typedef enum kolo_ring {
    KOLO_RING_KEYS = 1,   /* and its queries see the keys of all ranks, until the pass ring */
    KOLO_RING_OWN = 2,    /* and they see its own keys */
    KOLO_RING_ZIGZAG = 4, /* queries and keys of a rank are two ranges each (kolo_position_of) */
} kolo_ring;
/* Heads of the whole op, of which this one has some. */
static inline int64_t kolo_attention_all_heads(const kolo_attr *attr) {
    int64_t all = attr[KOLO_ATTENTION_ALL_HEADS].i;
    return all > 0 ? all : attr[KOLO_ATTENTION_HEADS].i;
}
/* Positions of the whole sequence, of which there are `queries` here. */
static inline int64_t kolo_attention_length(const kolo_attr *attr, int64_t queries) {
    int64_t length = attr[KOLO_ATTENTION_LENGTH].i;
    return length > 0 ? length : queries;
}
/* Whether a node is attention, or its gradient, to the keys of all ranks of a ring. */
bool kolo_attention_rings(const kolo_node *n);
/* Weights with 16-bit random numbers below this are dropped. */
static inline uint32_t kolo_attention_limit(const kolo_attr *attr) {
    return (uint32_t)(attr[KOLO_ATTENTION_P].f * 0x1p16 + 0.5);
}
/* Inputs that dropout takes: rng_key and first_sample, or none. */
static inline int kolo_attention_draws(const kolo_attr *attr) {
    return attr[KOLO_ATTENTION_P].f > 0 ? 2 : 0;
}

/* cache_write: cache [N,2K,P,D], x [N,T,C], positions i32 [N,T] -> cache': the last 2 K D channels
 * of token (n,t), keys and then values of K heads, become row positions[n,t] of these heads; a
 * position outside [0, P) writes nothing, and no two of a sample are equal. cached_attention: x
 * [N,T,(H + 2K) D], cache, positions -> o [N,T,H D]: attention, of which each head of keys and
 * values serves H / K heads of queries, over rows 0 to positions[n,t] of the cache; 0 for a
 * position outside it. */

/* matmul: a [B,M,K] (transpose_a: [B,K,M]), b [B,K,N] (transpose_b: [B,N,K]) -> [B,M,N]. */
enum { KOLO_MATMUL_TRANSPOSE_A, KOLO_MATMUL_TRANSPOSE_B };

/* Mixtures of experts. expert_route: p [N,T,E] -> places i32 [N,T,E], chosen [N,T,E]: the `top`
 * largest of each token, the first of equal ones, are chosen; the place of a token is the number of
 * tokens of the sample before it that chose the expert, or -1 where that is `capacity` or more.
 * expert_dispatch: x [N,T,C], places, [gates [N,T,E]] -> y [E,N,capacity,C]: the sum of x[n,t]
 * (times gates[n,t,e]) over the tokens with a place of p at [e,n,p]. expert_combine: y [E,N,P,C],
 * places, [gates] -> x [N,T,C]: the sum over e of y[e,n,places[n,t,e]] (times gates[n,t,e]),
 * without places outside [0, P). expert_products: x, y, places -> [N,T,E]: the product of x[n,t]
 * and y[e,n,places[n,t,e]], the gradient of gates. */
enum { KOLO_EXPERT_CAPACITY, KOLO_EXPERT_TOP };

/* lstm: gx [N,T,4H] (gate contributions of the input: input, forget, cell, output), w [4H,H], b
 * [4H], [h0, c0 [N,H]: the state before the first step, else zero] -> h [N,T,H], gates [N,T,4H]
 * (after sigmoid or tanh), c [N,T,H]. lstm_bwd: dh, gates, c, w, [c0] -> dgx, [dh0, dc0 with c0].
 * gru: gx [N,T,3H] (reset, update, new), w [3H,H], b [3H], [h0] -> h, gates [N,T,3H], q [N,T,H]:
 * the part of h[t-1] in the new gate before the reset. gru_bwd: dh, gates, q, h, w, [h0] -> dgx,
 * dgh (of w h[t-1] + b), [dh0 with h0]. shift: x [N,T,C] -> y[n,t] = x[n,t-1], zero for t = 0;
 * back: y[n,t] = x[n,t+1], zero for the last.
 */
enum { KOLO_SHIFT_BACK };

/* rotary: x [N,T,C], [positions i32 [N,T]] -> y: in each head at position t + first, or
 * positions[n,t], the pairs (i, i + D / 2) of its D channels are rotated by the position
 * times base^(-2 i / D), `inverse` backwards. causal_mask: x
 * [...,T,S]
 * -> y: `fill` where key j is after query i, j > i + S - T, and with a `window` where it is that
 * many or more before it. */
enum {
    KOLO_ROTARY_HEADS,
    KOLO_ROTARY_BASE,
    KOLO_ROTARY_FIRST,
    KOLO_ROTARY_INVERSE,
    KOLO_ROTARY_LENGTH, /* see kolo_position_of */
};
enum { KOLO_CAUSAL_FILL, KOLO_CAUSAL_WINDOW };

/* permute: x -> y, dimension d of y being dimension attr[d] of x. flip: x -> y, the elements along
 * dimension `axis` in reverse order. softmax: x [N,C,...] -> y, e^x
 * divided by its sum over C; log: the logarithm of that. softmax_bwd: dy, y -> dx. stop_gradient: x
 * -> x, a view without a gradient. */
enum { KOLO_FLIP_AXIS };
enum { KOLO_SOFTMAX_LOG };

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

/* scale: x, [s []] -> x * s * factor. */
enum { KOLO_SCALE_FACTOR };

/* concat: x0, x1, ... [...,Ci,...] -> [..., sum of Ci, ...], along a dimension from 1 on.
 * window: x [...,C,...] -> [...,count,...]: element i along a dimension from 1 on is element
 * first + i of x, zero outside x. Its gradient is a window too. */
enum { KOLO_CONCAT_AXIS };
enum { KOLO_WINDOW_FIRST, KOLO_WINDOW_COUNT, KOLO_WINDOW_AXIS };

/* dropout: x [N,...], rng_key i64 [], first_sample i64 [] -> y: 0 where the random number of the
 * element is below p, else x / (1 - p). The numbers are those of kolo_rng_make(rng_key,
 * KOLO_RNG_DROPOUT, layer), indexed by the place of the element in the global batch: that of its
 * sample, then that in the sample. x begins with sample first_sample; each has `rows` steps (0: 1)
 * along dimension 0, or one along dimension `samples`. All 64 bits of rng_key count. The gradient
 * is the same dropout of dy. With `all`, x has the elements from `first` on of `all` along
 * dimension `dim`, or with `zigzag` two ranges of them (kolo_position_of). */
enum {
    KOLO_DROPOUT_P,
    KOLO_DROPOUT_LAYER,
    KOLO_DROPOUT_FIRST,
    KOLO_DROPOUT_ALL,
    KOLO_DROPOUT_DIM,
    KOLO_DROPOUT_SAMPLES,
    KOLO_DROPOUT_ROWS,
    KOLO_DROPOUT_ZIGZAG, /* all, or 0 */
};
/* What is contiguous in the order of the random numbers: `rows` times `count` elements. The first
 * of row i has number first + i % group * stride + i / group * count. Where x has two ranges, rows
 * are first divided by 2, with a remainder of 1 for the second one, which is `jump` further. */
typedef struct kolo_dropout_places {
    int64_t rows, count, group, stride, first, jump;
    bool halves; /* rows are of two ranges */
} kolo_dropout_places;
kolo_dropout_places kolo_dropout_places_of(const kolo_attr *attr, const kolo_shape *x,
                                           int64_t first_sample);
static inline int64_t kolo_dropout_place(const kolo_dropout_places *p, int64_t row) {
    if (p->halves) return p->first + row / 2 * p->stride + row % 2 * p->jump;
    return p->first + row % p->group * p->stride + row / p->group * p->count;
}

/* softmax_xent: logits [N,C,...], labels i32 [N,...], [weights [C]] -> loss [] (sum over all
 * labels), probs [N,C,...]. With the target t = weights ((1 - smoothing) onehot + smoothing / C) a
 * label's loss is -sum t log probs. With count, output 2 is that of accuracy. softmax_xent_bwd:
 * probs, labels, dloss [], [weights] -> dlogits = (probs sum t - t) * dloss. accuracy: logits,
 * labels -> count [] (of the graph's dtype). confusion: logits, labels -> counts [C,C]: those of
 * label i whose largest logit is j at [i,j]. A label outside [0, C), or the ignore index,
 * contributes no loss, gradient or count. */
enum {
    KOLO_LOSS_HAS_IGNORE_INDEX,
    KOLO_LOSS_IGNORE_INDEX,
    KOLO_LOSS_SMOOTHING,
    KOLO_LOSS_COUNT,  /* xent */
    KOLO_LOSS_CLASSES /* sums_xent */
};

/* score_counts: scores [...], labels, i32 or numbers, of that shape -> counts [2,2^bits] (of the
 * graph's dtype): of labels up to 1/2 in row 0, of others in row 1, by the bin of the score. A
 * label below 0 is not counted. */
enum { KOLO_SCORE_BITS };

/* The bin of a score, a truncation to its first `bits` bits: bins have the order of the scores. */
static inline int64_t kolo_score_bin(float score, int64_t bits) {
    const union {
        float number;
        uint32_t bits;
    } as = {.number = score + 0.0F}; /* no -0 */
    const uint32_t ordered = as.bits >> 31 ? ~as.bits : as.bits | 1U << 31;
    return ordered >> (32 - bits);
}

/* Softmax cross-entropy of logits that are sharded along the classes, of which a rank has those
 * from `first` on. class_max: logits [N,C,...] -> m [N,...], the largest. class_sums: logits, m,
 * labels -> sums [4,N,...]: of e^(logit - m); the logit of the label, less m; of logit - m; and how
 * many logits show that the label is not the first largest: 0 if it is. class_sums_bwd: dsums,
 * logits, m, labels -> dlogits; the last row has no gradient. sums_xent: sums, labels -> loss [],
 * [count []], as of softmax_xent for all `classes`. sums_xent_bwd: sums, labels, dloss [] -> dsums.
 * kolo_divide_xent adds the nodes that replace a softmax_xent (kolo_op.divide). */
enum { KOLO_CLASS_SUMS = 4 };
enum { KOLO_CLASS_FIRST };
void kolo_divide_xent(kolo_graph *g, const kolo_node *n, int64_t classes, kolo_value *by);

/* ctc_loss: logits [N,T,C], labels i32 [N,S], [lengths i32 [N]] -> loss []. ctc_loss_bwd: logits,
 * labels, dloss [], [lengths] -> dlogits. */
enum { KOLO_CTC_BLANK };

/* elementwise_loss: x, target like x -> loss [], the sum of the losses of all elements
 * (elementwise_loss.c has the formulas). elementwise_loss_bwd: x, target, dloss [] -> dx. */
enum { KOLO_ELEMENTWISE_LOSS_KIND, KOLO_ELEMENTWISE_LOSS_DELTA };
enum { KOLO_LOSS_MSE, KOLO_LOSS_L1, KOLO_LOSS_HUBER, KOLO_LOSS_BCE, KOLO_LOSS_KIND_COUNT };

/* sgd: w, g, lr [], [v] -> w', [v']; with d = g + weight_decay w: v' = momentum v + d and
 * w' = w - lr v' (nesterov: w' = w - lr (d + momentum v')); without v (momentum 0): w' = w - lr d.
 * As in PyTorch (dampening 0); the first step has v = 0, so v' = d. */
enum { KOLO_SGD_MOMENTUM, KOLO_SGD_WEIGHT_DECAY, KOLO_SGD_NESTEROV };

/* delayed_sgd: w, g, lr [], update [], v, s -> w', v', s': Nesterov's momentum, of which every
 * delay-th update alone changes the velocity v, by the mean of the gradients since, whose sum is s
 * (Liu et al., "Asynchronous local-SGD training for language modeling", 2024, algorithm 3). With d
 * = g + weight_decay w, n = delay and c = ahead, at most 1 / n: where n divides `update`, v' =
 * momentum v + (s + d) / n, s' = 0 and w' = w - lr (d / n + (1 - (n - 1) c) momentum v'); elsewhere
 * v' = v, s' = s + d and w' = w - lr (d / n + c momentum v). With a delay of 1: sgd with nesterov.
 */
enum {
    KOLO_DELAYED_SGD_MOMENTUM,
    KOLO_DELAYED_SGD_WEIGHT_DECAY,
    KOLO_DELAYED_SGD_DELAY,
    KOLO_DELAYED_SGD_AHEAD,
};

/* adam: w, g, lr [], update [], m, v -> w', m', v', `update` counts updates from 1; with d = g +
 * weight_decay w (decoupled: d = g, and w is multiplied by 1 - lr weight_decay first): m' = beta1 m
 * + (1 - beta1) d, v' = beta2 v + (1 - beta2) d^2 and w' = w - lr (m' / (1 - beta1^update)) /
 * (sqrt(v' / (1 - beta2^update)) + eps). With `frozen`, g is m' itself, but 0 where v is 0; v'
 * = v, which is of the update of that number: beta2^frozen takes the place of beta2^update. */
enum {
    KOLO_ADAM_BETA1,
    KOLO_ADAM_BETA2,
    KOLO_ADAM_EPS,
    KOLO_ADAM_WEIGHT_DECAY,
    KOLO_ADAM_DECOUPLED,
    KOLO_ADAM_FROZEN,
};

/* lars: w, g, lr [], v, [w_blocks, g_blocks] -> w', v': v' = momentum v + lr rate (g + weight_decay
 * w), w' = w - v', with rate = trust |w| / (|g| + weight_decay |w|); 1 without the blocks or where
 * a norm is 0. The learning rate is part of v, as in the paper. */
enum { KOLO_LARS_MOMENTUM, KOLO_LARS_WEIGHT_DECAY, KOLO_LARS_TRUST };

/* lamb: w, g, update [], m, v -> m', v', u: the moments of adam (decoupled), and u = (m' / (1 -
 * beta1^update)) / (sqrt(v' / (1 - beta2^update)) + eps) + weight_decay w. The first attributes are
 * adam's. lamb_step: w, u, lr [], [w_blocks, u_blocks] -> w' = w - lr rate u, with rate = |w| /
 * |u|; 1 without the blocks or where a norm is 0. */

/* Norms of whole tensors. square_blocks: x -> [blocks]: the sum of the squares of each block of
 * KOLO_SQUARE_BLOCK elements, the last one maybe shorter, in row-major order. With `all`, x has the
 * blocks from `first` on of `all`, and the others are 0. square_sum: blocks,
 * [sum []] -> sum + the sum of the blocks, in order. The result thus depends neither on the layout
 * of x nor on threads, nor on which rank computes which blocks. clip_factor: sum [] -> min(1, norm
 * / (sqrt(sum) + 1e-6)). All are with_updates: they read synchronised gradients. */
enum { KOLO_SQUARE_BLOCK = 4096 };
enum { KOLO_SQUARE_FIRST, KOLO_SQUARE_ALL }; /* square_blocks */
static inline int64_t kolo_square_blocks(int64_t elements) {
    return (elements + KOLO_SQUARE_BLOCK - 1) / KOLO_SQUARE_BLOCK;
}
enum { KOLO_CLIP_NORM };

/* accumulate: x, fresh [] -> sum over the micro-batches of a step: x if fresh is not 0, else
 * keep * sum + x, with the previous contents of its memory as sum. No other value may share that
 * memory. Added by the accumulate pass. */
enum { KOLO_ACCUMULATE_KEEP };

/* encode: x, residual -> code u8 [bytes], error: the code of x + residual by a codec
 * (kolo/codec.h), and what is lost. decode: codes [ranks * bytes] -> the sum of what they mean, in
 * rank order. Added by the pass compress. */
enum { KOLO_CODE_KIND, KOLO_CODE_RATIO };
/* The bytes of a code of `count` elements, a multiple of 8. */
int64_t kolo_code_bytes(const kolo_codec *codec, int64_t count);

/* momentum_part: g, m, [w] -> part m + of_gradient g + of_weight w: what a rank adds to the
 * momentum of Adam. Added by the pass compress. */
enum { KOLO_MOMENTUM_PART, KOLO_MOMENTUM_OF_GRADIENT, KOLO_MOMENTUM_OF_WEIGHT };

/* PowerSGD (Vogels, Karimireddy, Jaggi, 2019), of a gradient g as a matrix [n, m]: its first
 * dimension, and all others. power_project: g, error e, q [r, m] -> p [n, r] = (g + e) q^T; a row
 * of q that is zero is replaced by kolo_power_start of its places. power_basis: p -> b [n, r],
 * orthonormal columns; one that depends on those before is 0. power_back: g, e, b -> q [r, m] = b^T
 * (g + e), e' = g + e - b q. power_sum: b, q -> b q. Added by the pass compress. */
enum { KOLO_POWER_RANKS = 4 /* the largest r */ };
/* The norm, relative to its column, below which what is left of a column of p is rounding. */
#define KOLO_POWER_LEAST 1e-6
/* Place i of the first q, row-major: from -1 to 1, pseudo-random. */
double kolo_power_start(int64_t i);

/* convert: x -> x in another dtype, f32 or bf16. Added by the precision pass. */
enum { KOLO_CONVERT_DTYPE };

/* reorder: x -> x in the layout of the output's tensor. */

/* redistribute: x -> x under other placements (kolo_node.move), the only op that communicates until
 * the pass lower_comm makes posts and waits of it. A LOCAL tensor becomes whole by gathering: the
 * versions of all ranks lie one after the other along dimension 0. Those of one `unit` other than 0
 * share a bucket, in the order of their `place`. `early`: of what is there before the step
 * (pass/lag.c). kolo_redistribute adds one; it returns v where no rank would hold other data.
 * kolo_redistribute_as: of this local tensor, for flat shards. */
enum { KOLO_REDISTRIBUTE_UNIT, KOLO_REDISTRIBUTE_PLACE, KOLO_REDISTRIBUTE_EARLY };
kolo_value kolo_redistribute(kolo_graph *g, kolo_value v, const kolo_placements *from,
                             const kolo_placements *to);
kolo_value kolo_redistribute_as(kolo_graph *g, kolo_value v, const kolo_placements *from,
                                const kolo_placements *to, const kolo_tensor *tensor);
/* Whether v is a flat shard with cuts; then the elements of the whole, in the order of its memory,
 * that this rank holds. */
bool kolo_flat_range(const kolo_graph *g, kolo_value v, int64_t *first, int64_t *count);
/* Makes a state LOCAL: this rank has `version` of `versions`, which files hold as one tensor with
 * the ranks as dimension 0. */
void kolo_graph_make_local(kolo_graph *g, kolo_value state, int versions, int version);
/* Whether v is a leaf of which this rank has a slice, in tensor parallelism; `whole` is all of it.
 */
bool kolo_is_slice(const kolo_graph *g, kolo_value v);
/* The sum over the ranks of v, which each computes as a sum over its samples of x, on all ranks; v
 * where they are not sharded. */
kolo_value kolo_sum_over_samples(kolo_graph *g, kolo_value v, kolo_value x, bool of_rank);

/* own_range: x -> its elements from `first` on, in the order of its memory, a view. post: values of
 * one bucket -> the same values, in flight: only wait may read them. wait: outputs of post -> the
 * results of the collective (kolo_collective). Both are views, output i of input i, and an
 * allreduce is in place. The result of an allgather is separate memory; in it lies what is posted,
 * if that is a flat shard, and else the values of all ranks are concatenated along dimension 0. The
 * ranges that a reduce-scatter leaves to this rank are separate memory too, unless it is in place.
 * With `inside` both are part of the forward or backward pass and run in every micro-batch; `axes`
 * are those of the mesh whose groups communicate, a bit each. Added by the pass lower_comm.
 */
enum { KOLO_RANGE_FIRST };
enum {
    KOLO_COMM_BUCKET,
    KOLO_COMM_COLLECTIVE,
    KOLO_COMM_INSIDE,
    KOLO_COMM_AXES,
    KOLO_COMM_OF_SAMPLES, /* a sum over the samples: no other sum leads to it */
    KOLO_COMM_IN_PLACE,   /* a reduce-scatter: the own range stays where it is in the bucket */
    KOLO_COMM_KEPT,       /* from the first logical shard of a step to the last, in memory that no
                             other bucket uses */
    KOLO_COMM_OP,         /* of a reduction */
    KOLO_COMM_LATER,      /* a kolo_later, see the pass cross_step */
    KOLO_COMM_SUMMANDS,   /* a reduce-scatter in place: who reads the own range of the result adds
                             the ranges of all ranks, which stay to the end of the step */
    KOLO_COMM_ORDER,      /* of the redistributions that became buckets, the same on all ranks */
};

/* All ops. A row X(name) declares the op kolo_op_<name> and its reference kernel kolo_ref_<name>,
 * both defined in a file of src/op/. */
#define KOLO_OP_LIST(X)                 \
    X(conv2d)                           \
    X(conv2d_bwd_data)                  \
    X(conv2d_bwd_weights)               \
    X(max_pool2d)                       \
    X(max_pool2d_bwd)                   \
    X(avg_pool2d)                       \
    X(avg_pool2d_bwd)                   \
    X(adaptive_avg_pool2d)              \
    X(adaptive_avg_pool2d_bwd)          \
    X(resize)                           \
    X(resize_bwd)                       \
    X(lrn)                              \
    X(lrn_bwd)                          \
    X(linear)                           \
    X(linear_gelu)                      \
    X(linear_bwd_data)                  \
    X(linear_bwd_weights)               \
    X(bias)                             \
    X(bias_bwd)                         \
    X(relu)                             \
    X(relu_bwd)                         \
    X(add)                              \
    X(batch_norm)                       \
    X(batch_norm_bwd)                   \
    X(batch_norm_infer)                 \
    X(batch_norm_update)                \
    X(sync_norm_sums)                   \
    X(sync_norm_statistics)             \
    X(sync_norm)                        \
    X(sync_norm_bwd_sums)               \
    X(sync_norm_bwd_data)               \
    X(gelu)                             \
    X(gelu_bwd)                         \
    KOLO_BINARY_LIST(KOLO_BINARY_OP, X) \
    KOLO_UNARY_LIST(KOLO_UNARY_OP, X)   \
    X(mul)                              \
    X(layer_norm)                       \
    X(layer_norm_bwd)                   \
    X(rms_norm)                         \
    X(rms_norm_bwd)                     \
    X(group_norm)                       \
    X(group_norm_bwd)                   \
    X(embedding)                        \
    X(embedding_bwd)                    \
    X(embedding_bwd_rows)               \
    X(merge_rows)                       \
    X(sgd_rows)                         \
    X(adam_rows)                        \
    X(position_bwd)                     \
    X(mask_tokens)                      \
    X(attention)                        \
    X(attention_bwd)                    \
    X(attention_block)                  \
    X(attention_block_bwd)              \
    X(cache_write)                      \
    X(cached_attention)                 \
    X(matmul)                           \
    X(expert_route)                     \
    X(expert_dispatch)                  \
    X(expert_combine)                   \
    X(expert_products)                  \
    X(lstm)                             \
    X(lstm_bwd)                         \
    X(gru)                              \
    X(gru_bwd)                          \
    X(shift)                            \
    X(sum)                              \
    X(rotary)                           \
    X(causal_mask)                      \
    X(permute)                          \
    X(flip)                             \
    X(softmax)                          \
    X(softmax_bwd)                      \
    X(reduce_max)                       \
    X(sum_bwd)                          \
    X(scale)                            \
    X(concat)                           \
    X(window)                           \
    X(dropout)                          \
    X(softmax_xent)                     \
    X(softmax_xent_bwd)                 \
    X(class_max)                        \
    X(class_sums)                       \
    X(class_sums_bwd)                   \
    X(sums_xent)                        \
    X(sums_xent_bwd)                    \
    X(ctc_loss)                         \
    X(ctc_loss_bwd)                     \
    X(elementwise_loss)                 \
    X(elementwise_loss_bwd)             \
    X(accuracy)                         \
    X(confusion)                        \
    X(score_counts)                     \
    X(sgd)                              \
    X(delayed_sgd)                      \
    X(adam)                             \
    X(lars)                             \
    X(lamb)                             \
    X(lamb_step)                        \
    X(square_blocks)                    \
    X(square_sum)                       \
    X(clip_factor)                      \
    X(accumulate)                       \
    X(encode)                           \
    X(decode)                           \
    X(momentum_part)                    \
    X(power_project)                    \
    X(power_basis)                      \
    X(power_back)                       \
    X(power_sum)                        \
    X(reorder)                          \
    X(convert)

/* Ops without kernels: views, and communication, which the step loop executes. */
#define KOLO_OP_LIST_NO_KERNEL(X) \
    X(stop_gradient)              \
    X(flatten)                    \
    X(reshape)                    \
    X(redistribute)               \
    X(own_range)                  \
    X(post)                       \
    X(wait)

#define KOLO_OP_DECLARE(name) extern const kolo_op kolo_op_##name;
KOLO_OP_LIST(KOLO_OP_DECLARE)
KOLO_OP_LIST_NO_KERNEL(KOLO_OP_DECLARE)
#undef KOLO_OP_DECLARE

/* The table of all ops, NULL-terminated. */
extern const kolo_op *const kolo_ops[];
