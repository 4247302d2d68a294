#pragma once
/* Our own vectorised kernels: what oneDNN has not, or has slow for small images and few channels.
 * They compute in f32; some read and write bf16 (vector.h).
 *
 * Each subject is a pair: X.c holds the kernels (fit, prepare, run), X.isa.c the loops, compiled
 * once per instruction set; a copy exports one const table of its loops. The copy is chosen when a
 * kernel is prepared. A loop runs over a range of a job that `run` fills in; ranges are given to
 * threads by kolo_simd_parallel; how the range is cut changes no result but conv2d_bwd_weights's.
 *
 * Images are seen through kolo_simd_image, which covers abcd, acdb and channels in blocks alike. */

#include "base/isa.h"
#include "kernel/kernel.h"

/* NULL-terminated. */
extern const kolo_kernel *const kolo_simd_kernels[];

/* ---- jobs ---- */

/* Part `part` of a job: its items [begin, end). */
typedef void (*kolo_simd_loop)(const void *job, int part, int64_t begin, int64_t end);

/* Cuts [0, items) into `threads` parts of nearly equal size and runs them side by side. Parts may
 * be empty. */
void kolo_simd_parallel(int threads, int64_t items, kolo_simd_loop loop, const void *job);

/* An N,C,H,W tensor as planes of pixels: image i starts at i * planes * h * w * inner, plane p in
 * it at p * h * w * inner, each of its h * w pixels holds `inner` channels, the first being p *
 * inner. The last plane may end in padding. */
typedef struct kolo_simd_image {
    int64_t n, c, h, w, planes, inner;
} kolo_simd_image;

/* False when the layout is none of this kind. Tensors of other ranks than four, in plain layout,
 * are seen with all dimensions after the second in w. */
bool kolo_simd_image_of(const kolo_tensor *tensor, kolo_simd_image *image);

static inline int64_t kolo_simd_plane_size(const kolo_simd_image *v) {
    return v->h * v->w * v->inner;
}
static inline int64_t kolo_simd_image_size(const kolo_simd_image *v) {
    return v->planes * kolo_simd_plane_size(v);
}
/* Where channel c of the first pixel of an image lies. */
static inline int64_t kolo_simd_channel(const kolo_simd_image *v, int64_t c) {
    return c / v->inner * kolo_simd_plane_size(v) + c % v->inner;
}

/* ---- types ---- */

/* True when every tensor of the rank of input 0 is f32, or every one bf16, and all else is f32 (or
 * integers): what a kernel takes whose activations may be bf16 and whose parameters, statistics and
 * sums may not. */
bool kolo_simd_takes(const kolo_kernel_spec *spec);
/* Of a spec that kolo_simd_takes: its activations are bf16. */
static inline bool kolo_simd_is_half(const kolo_kernel_spec *spec) {
    return spec->in[0].dtype == KOLO_DTYPE_BF16;
}

/* ---- pointwise: items are elements, unless said ---- */

typedef struct kolo_simd_pair_job { /* relu, relu_bwd, add */
    const void *a, *b, *c;          /* relu_bwd: dy, y, dy2 or NULL */
    void *out;
    bool half; /* all are bf16 */
} kolo_simd_pair_job;

typedef struct kolo_simd_sgd_job {
    const float *w, *g, *v;
    float *w_next, *v_next;
    float lr, momentum, weight_decay;
    bool nesterov;
    bool streams; /* the results go past the caches; they lie at multiples of 64 bytes */
} kolo_simd_sgd_job;

typedef struct kolo_simd_convert_job {
    const void *from;
    void *to;
} kolo_simd_convert_job;

typedef struct kolo_simd_accumulate_job {
    const float *x;
    float *sum;
    float keep;
    bool fresh;
} kolo_simd_accumulate_job;

typedef struct kolo_simd_adam_job {
    const float *w, *g, *m, *v;
    float *w_next, *m_next, *v_next;
    float beta1, beta2, eps;
    float keep;   /* what is left of w: less than 1 by decoupled decay */
    float decay;  /* what is added to g, as a multiple of w */
    float step;   /* lr / (1 - beta1^update) */
    float narrow; /* 1 / sqrt(1 - beta2^update) */
} kolo_simd_adam_job;

typedef struct kolo_simd_square_job { /* items: blocks of KOLO_SIMD_SQUARES elements */
    const float *g;
    int64_t count;
    float *sums; /* of each block */
} kolo_simd_square_job;

enum { KOLO_SIMD_SQUARES = 4096 };

typedef struct kolo_simd_bias_job { /* items: bias: planes of all images; bias_bwd: slices */
    kolo_simd_image image;
    const void *x; /* bias_bwd: dy */
    const float *b;
    void *out; /* bias: y; bias_bwd: db, which is f32 */
    bool half; /* x, dy and y are bf16 */
} kolo_simd_bias_job;

/* Channels that one item of bias_bwd sums. */
enum { KOLO_SIMD_SLICE = 64 };
static inline int64_t kolo_simd_slices(const kolo_simd_image *v) {
    return v->planes * ((v->inner + KOLO_SIMD_SLICE - 1) / KOLO_SIMD_SLICE);
}

typedef struct kolo_simd_point_table {
    kolo_simd_loop relu, relu_bwd, add, add_relu, sgd, sgd_plain, adam, square_sum, accumulate;
    kolo_simd_loop bias, bias_bwd;
    kolo_simd_loop widen, narrow; /* bf16 to f32 and back */
} kolo_simd_point_table;
KOLO_ISA_TABLE(kolo_simd_point_table, kolo_simd_point);

/* ---- loss: items are places, each with a label ---- */

typedef struct kolo_simd_loss_job {
    kolo_simd_image image;
    const float *in; /* logits; of softmax_xent_bwd: probs */
    const int32_t *labels;
    bool has_ignore_index;
    int32_t ignore_index;
    float smoothing;
    const float *dloss;
    float *out;         /* probs, dlogits */
    float *per_place;   /* loss, or 1 where accuracy counts the place */
    float *right;       /* softmax_xent: what accuracy has there; NULL: not asked for */
    int32_t *predicted; /* confusion: the class of the largest logit */
    float *rows;        /* two rows of classes for each part */
} kolo_simd_loss_job;

/* The label of a place, -1 where it does not count. */
static inline int64_t kolo_simd_label(const kolo_simd_loss_job *job, int64_t place) {
    int32_t label = job->labels[place];
    bool is_ignored = job->has_ignore_index && label == job->ignore_index;
    return is_ignored || label < 0 || label >= job->image.c ? -1 : label;
}

typedef struct kolo_simd_loss_table {
    kolo_simd_loop softmax_xent, softmax_xent_bwd, accuracy, predict;
} kolo_simd_loss_table;
KOLO_ISA_TABLE(kolo_simd_loss_table, kolo_simd_loss);

/* ---- bilinear resizing: items are planes of all images ---- */

/* Between which two rows (columns) one of the large image lies: part of the way from low to high.
 */
typedef struct kolo_simd_between {
    int32_t low, high;
    float part;
} kolo_simd_between;

typedef struct kolo_simd_resize_job {
    kolo_simd_image x, y;
    const kolo_simd_between *rows, *columns; /* of y */
    const void *in;                          /* x; backwards: dy */
    void *out;                               /* y; backwards: dx */
    bool half;                               /* both are bf16 */
    float *scratch; /* for each part: a row of x; backwards with half then a plane of it */
    int64_t part_stride;
} kolo_simd_resize_job;

typedef struct kolo_simd_resize_table {
    kolo_simd_loop forward, backward;
} kolo_simd_resize_table;
KOLO_ISA_TABLE(kolo_simd_resize_table, kolo_simd_resize);

/* ---- local response normalisation: items are tiles of pixels ---- */

/* Pixels of a tile: vectors of them where a pixel holds one channel, else one. */
enum { KOLO_SIMD_LRN_TILE = 16 };

typedef struct kolo_simd_lrn_job {
    kolo_simd_image image;
    int64_t size, tile, tiles; /* pixels of a tile, tiles of an image */
    float alpha, beta, k;      /* alpha divided by the size */
    bool half;                 /* all tensors are bf16 */
    const void *x, *dy, *s;
    void *y, *s_out, *dx;
    float *scratch; /* for each part */
    int64_t part_stride;
} kolo_simd_lrn_job;

typedef struct kolo_simd_lrn_table {
    kolo_simd_loop forward, backward;
} kolo_simd_lrn_table;
KOLO_ISA_TABLE(kolo_simd_lrn_table, kolo_simd_lrn);

/* ---- pooling: items are planes of all images ---- */

typedef struct kolo_simd_pool_job {
    kolo_simd_image big, small; /* before and after pooling */
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    bool relu, tiles; /* tiles: windows of 2 x 2 cover the big image, each pixel once */
    bool exclude_padding, adaptive; /* of means; windows of an adaptive pool */
    const void *in;                 /* x; backwards: dy */
    const void *y;                  /* max_pool2d_bwd with relu, else NULL */
    void *out;
    uint8_t *index; /* written forwards, read backwards */
    bool half;      /* in, y and out are bf16 */
    float *scratch; /* for each part. max without tiles: rows of small's width, kernel_h of maxima
                     * and as many of their places; max_bwd: reach of kernel_h rows of dy, with a
                     * reach of kernel_w pixels at both ends, and as many of places; means
                     * backwards, with half: a plane of dx */
    int64_t part_stride;
} kolo_simd_pool_job;

/* How many windows along one axis hold one pixel, at the most. */
static inline int64_t kolo_simd_reach(int64_t kernel, int64_t stride) {
    return (kernel - 1) / stride + 1;
}

typedef struct kolo_simd_pool_table {
    kolo_simd_loop max, max_bwd, avg, avg_bwd;
} kolo_simd_pool_table;
KOLO_ISA_TABLE(kolo_simd_pool_table, kolo_simd_pool);

/* ---- convolution: items are images ---- */

/* Weights are packed in scratch, padded with zeros to whole vectors: forwards, and their gradients,
 * [C][KH][KW][lanes >= O]; for the data's gradient [KH][O][lanes >= KW * C]. */
typedef struct kolo_simd_conv_job {
    kolo_simd_image x, y;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    int64_t lanes;
    bool relu;
    const float *in_x, *in_dy, *packed;
    const float *bias; /* lanes floats */
    float *out;        /* y; dx; sums of the weights' gradient, one block of them a part */
    float *scratch;    /* of part 0 */
    int64_t part_stride;
} kolo_simd_conv_job;

/* x of one image with the convolution's margins of zeros around it. */
static inline int64_t kolo_simd_padded_row(const kolo_simd_conv_job *job) {
    return (job->x.w + 2 * job->pad_w) * job->x.inner;
}
static inline int64_t kolo_simd_padded_plane(const kolo_simd_conv_job *job) {
    return (job->x.h + 2 * job->pad_h) * kolo_simd_padded_row(job);
}

typedef struct kolo_simd_conv_table {
    kolo_simd_loop forward, bwd_data, bwd_weights;
    int vector; /* floats of a vector */
} kolo_simd_conv_table;
KOLO_ISA_TABLE(kolo_simd_conv_table, kolo_simd_conv);

/* ---- convolution 3 x 3 by Winograd's F(4x4, 3x3) ---- */

/* `x` is the image that is read through windows, `y` the one of tiles: x and y forwards and for the
 * weights' gradient, dy and dx for the data's (a convolution by filters turned round). A filter
 * multiplies channel `row` of x into lane `lane` of y; its tap i (kh * 3 + kw) lies at row_at[row]
 * + lane_at[lane] + tap_at[i] of the weights. Transformed filters are [36][panels of y][rows][P], P
 * being two vectors; windows and tiles [36][panels][block][P]; strides are those between the
 * points.
 */
/* Rows and columns of the window that a tile comes from. */
enum { KOLO_SIMD_WINO_WINDOW = 6 };

typedef struct kolo_simd_wino_job {
    kolo_simd_image x, y;
    int64_t pad_h, pad_w;
    int tile;                 /* its rows and columns: 4 of 3 taps, 2 of 5 */
    int64_t tiles_h, tiles_w; /* of an image */
    int64_t block;            /* tiles that are worked on at a time */
    int64_t first, count;     /* read_block, multiply_block: the tiles of the block */
    int64_t rows, lanes, panels;
    int64_t x_stride, y_stride, filter_stride, part_stride;
    bool relu;
    const int32_t *row_at, *lane_at, *tap_at;
    const float *in_x, *in_y; /* in_y: weights' gradient only */
    const float *weights;
    const float *bias; /* panels * P floats */
    float *filters;    /* transformed */
    float *scratch;    /* forward: of part 0; else of the block */
    float *out;        /* y; of write_filters: the weights' gradient */
} kolo_simd_wino_job;

typedef struct kolo_simd_wino_table {
    kolo_simd_loop read_filters;   /* items: panels * rows; weights -> filters */
    kolo_simd_loop forward;        /* items: tiles of all images; in_x, filters -> out */
    kolo_simd_loop read_block;     /* items: tiles of the block; in_x, in_y -> scratch */
    kolo_simd_loop multiply_block; /* items: 36 * panels; adds to filters, sets when first is 0 */
    kolo_simd_loop write_filters;  /* items: panels * rows; filters -> out */
    int vector;                    /* floats of a vector; channels of images are in multiples */
} kolo_simd_wino_table;
KOLO_ISA_TABLE(kolo_simd_wino_table, kolo_simd_wino);

/* ---- batch normalisation ----
 *
 * Items are planes of all images, or channels (_end, _begin), of a slab: of planes
 * [first, first + planes) of every image. */

typedef struct kolo_simd_norm_job {
    kolo_simd_image image;
    int64_t first, planes; /* the slab */
    bool relu;
    bool half; /* x, residual, dy and out are bf16 */
    double eps;
    const void *x;
    const void *residual; /* added before relu; NULL: none */
    const void *dy;       /* backwards */
    void *out;            /* y; backwards: dx */
    const float *gamma, *mean, *var;
    const float *beta;         /* backwards: NULL without relu */
    float *mean_out, *var_out; /* of the batch */
    float *dgamma, *dbeta;
    float *sums;                           /* [image][3][channels]: two sums, the first pixel */
    float *center, *slope, *offset, *tilt; /* [channels], by which the elements are computed */
    float *gate_slope; /* [channels], backwards: y = gate_slope (x - center) + beta */
} kolo_simd_norm_job;

typedef struct kolo_simd_blend_job { /* items: elements */
    const float *a, *b;
    float keep, factor;
    float *out;
} kolo_simd_blend_job;

typedef struct kolo_simd_norm_table {
    kolo_simd_loop moments, moments_end, infer_begin, products_begin, products, products_end;
    kolo_simd_loop apply, apply_bwd;
    kolo_simd_loop blend;
} kolo_simd_norm_table;
KOLO_ISA_TABLE(kolo_simd_norm_table, kolo_simd_norm);

/* ---- activations: items are elements ---- */

typedef struct kolo_simd_gelu_bias_job { /* items: channels */
    const void *dy, *x;
    void *dx;
    float *db;
    int64_t rows, channels;
    bool half; /* dy, x and dx are bf16 */
} kolo_simd_gelu_bias_job;

typedef struct kolo_simd_activation_table { /* kolo_simd_pair_job; a is x or dy, b what it derives
                                               from */
    kolo_simd_loop gelu[2], gelu_bwd[2];    /* by the error function, by tanh */
    kolo_simd_loop gelu_bwd_bias[2];        /* kolo_simd_gelu_bias_job */
    kolo_simd_loop silu, silu_bwd, sigmoid, sigmoid_bwd, tanh, tanh_bwd, mul;
} kolo_simd_activation_table;
KOLO_ISA_TABLE(kolo_simd_activation_table, kolo_simd_activation);

/* ---- dropout: items are elements ---- */

typedef struct kolo_simd_dropout_job {
    const void *x;
    void *y;
    bool half;             /* both are bf16 */
    uint64_t seed, stream; /* of the draws */
    uint64_t place;        /* which draw is x[0]'s */
    uint32_t limit;        /* of 24 bits: what is drawn below it is dropped */
    float scale;
} kolo_simd_dropout_job;

typedef struct kolo_simd_dropout_table {
    kolo_simd_loop dropout;
} kolo_simd_dropout_table;
KOLO_ISA_TABLE(kolo_simd_dropout_table, kolo_simd_dropout);

/* ---- tokens ---- */

typedef struct kolo_simd_layer_norm_job { /* items: rows; layer_norm_sums: slices of channels */
    int64_t rows, channels;
    float eps;
    const float *x, *gamma, *beta, *dy;
    float *mean, *rstd;
    float *out; /* y; dx */
    float *dgamma, *dbeta;
} kolo_simd_layer_norm_job;

typedef struct kolo_simd_embedding_job { /* items: tokens; embedding_bwd: slices of channels;
                                            position_bwd: positions */
    int64_t tokens, length, channels;
    int64_t rows; /* of the table; position_bwd: of the gradient */
    const int32_t *ids;
    const float *table, *positions, *dy;
    float *out; /* y; the gradient */
} kolo_simd_embedding_job;

typedef struct kolo_simd_rows_job { /* items: rows */
    int64_t channels;
    const int32_t *ids;           /* below 0: none */
    const int32_t *order, *first; /* sum: x's rows in the order of their ids; where each begins */
    const float *x;               /* what is summed; the gradient's rows */
    float lr;                     /* sgd; adam: with its corrections */
    float beta1, beta2, eps;      /* adam */
    float *out, *mean, *square;   /* sums; the table, and its moments */
} kolo_simd_rows_job;

typedef struct kolo_simd_token_table {
    kolo_simd_loop sum_rows, sgd_rows, adam_rows;
    kolo_simd_loop layer_norm, layer_norm_bwd, layer_norm_sums;
    kolo_simd_loop embedding, embedding_bwd, position_bwd;
} kolo_simd_token_table;
KOLO_ISA_TABLE(kolo_simd_token_table, kolo_simd_token);

/* ---- attention: items are heads of samples ---- */

enum { KOLO_SIMD_QUERIES = 48, KOLO_SIMD_KEYS = 128 }; /* of a block; keys in whole tiles */

typedef struct kolo_simd_attention_job {
    int64_t heads, length, channels; /* of all heads */
    bool causal;
    const float *qkv;
    const int32_t *mask;        /* or NULL */
    uint32_t limit;             /* draws of 16 bits below it drop a weight; 0: none is dropped */
    uint64_t seed, stream;      /* of the draws */
    int64_t first;              /* sample 0's place in the global batch */
    const float *d_o, *o, *lse; /* backwards */
    float *out, *lse_out;       /* o and lse; dqkv */
    float *scratch;             /* of part 0 */
    int64_t part_stride;
} kolo_simd_attention_job;

typedef struct kolo_simd_attention_table {
    kolo_simd_loop forward, backward;
    int64_t tile; /* columns of a tile */
} kolo_simd_attention_table;
KOLO_ISA_TABLE(kolo_simd_attention_table, kolo_simd_attention);

/* ---- LSTM: items are panels of weights (pack, product), or samples ---- */

typedef struct kolo_simd_lstm_job {
    int64_t samples, length, hidden;
    int64_t step; /* t, of the product and the pointwise loops */
    const float *w, *gx, *b, *dh;
    float *gates, *c, *h; /* backwards read */
    float *dgx;
    float *packed;  /* w in tiles */
    float *product; /* [samples][pitch]: h[t-1] w^T, backwards dgx[t+1] w */
    int64_t pitch;
    float *dc; /* [samples][hidden] */
} kolo_simd_lstm_job;

typedef struct kolo_simd_lstm_table {
    kolo_simd_loop pack, multiply, gates;             /* forwards */
    kolo_simd_loop pack_bwd, multiply_bwd, gates_bwd; /* backwards */
    int64_t tile;                                     /* columns of a tile */
} kolo_simd_lstm_table;
KOLO_ISA_TABLE(kolo_simd_lstm_table, kolo_simd_lstm);

/* ---- linear layers of few rows ---- */

typedef struct kolo_simd_linear_job { /* y = x w^T + b: x [rows][inner], w [outer][inner] */
    int64_t rows, inner, outer;
    int64_t strip; /* columns of dx that are summed at a time */
    bool relu;
    const float *x, *w, *b, *dy;
    float *out;     /* y, dx */
    float *packed;  /* x in blocks of columns; dy in tiles */
    float *scratch; /* of part 0 */
    int64_t part_stride;
} kolo_simd_linear_job;

typedef struct kolo_simd_linear_table {
    kolo_simd_loop pack_rows, forward;   /* items: blocks of columns; lines of w */
    kolo_simd_loop pack_terms, bwd_data; /* items: tiles of dy; strips */
    int64_t rows, depth, sums; /* forward: of a tile and a block; sums for a tile's rows */
    int64_t terms, width;      /* bwd_data: lines of a tile; strips are multiples */
} kolo_simd_linear_table;
KOLO_ISA_TABLE(kolo_simd_linear_table, kolo_simd_linear);

/* ---- the kernels, by file ---- */
/* A kernel with the file's own `fit` and `prepare`, whose state is one block of memory. */
#define KOLO_SIMD_KERNEL(op_name, run_)       \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name,             \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run_,                          \
        .release = kolo_free,                 \
    }

extern const kolo_kernel kolo_simd_relu, kolo_simd_relu_bwd, kolo_simd_add, kolo_simd_sgd;
extern const kolo_kernel kolo_simd_accumulate, kolo_simd_bias, kolo_simd_bias_bwd;
extern const kolo_kernel kolo_simd_softmax_xent, kolo_simd_softmax_xent_bwd, kolo_simd_accuracy;
extern const kolo_kernel kolo_simd_confusion;
extern const kolo_kernel kolo_simd_max_pool2d, kolo_simd_max_pool2d_bwd;
extern const kolo_kernel kolo_simd_avg_pool2d, kolo_simd_avg_pool2d_bwd;
extern const kolo_kernel kolo_simd_adaptive_avg_pool2d, kolo_simd_adaptive_avg_pool2d_bwd;
extern const kolo_kernel kolo_simd_resize, kolo_simd_resize_bwd, kolo_simd_lrn, kolo_simd_lrn_bwd;
extern const kolo_kernel kolo_simd_batch_norm, kolo_simd_batch_norm_bwd;
extern const kolo_kernel kolo_simd_batch_norm_infer, kolo_simd_batch_norm_update, kolo_simd_scale;
extern const kolo_kernel kolo_simd_dropout, kolo_simd_concat, kolo_simd_channel_window;
extern const kolo_kernel kolo_simd_conv2d, kolo_simd_conv2d_bwd_data, kolo_simd_conv2d_bwd_weights;
extern const kolo_kernel kolo_simd_wino, kolo_simd_wino_bwd_data, kolo_simd_wino_bwd_weights;
extern const kolo_kernel kolo_simd_linear, kolo_simd_linear_bwd_data;
extern const kolo_kernel kolo_simd_reorder, kolo_simd_convert;
extern const kolo_kernel kolo_simd_adam, kolo_simd_square_sum, kolo_simd_clip_factor;
extern const kolo_kernel kolo_simd_linear_gelu;
extern const kolo_kernel kolo_simd_gelu, kolo_simd_gelu_bwd, kolo_simd_silu, kolo_simd_silu_bwd;
extern const kolo_kernel kolo_simd_sigmoid, kolo_simd_sigmoid_bwd, kolo_simd_mul;
extern const kolo_kernel kolo_simd_tanh, kolo_simd_tanh_bwd;
extern const kolo_kernel kolo_simd_layer_norm, kolo_simd_layer_norm_bwd;
extern const kolo_kernel kolo_simd_embedding, kolo_simd_embedding_bwd, kolo_simd_position_bwd;
extern const kolo_kernel kolo_simd_embedding_bwd_rows, kolo_simd_merge_rows;
extern const kolo_kernel kolo_simd_sgd_rows, kolo_simd_adam_rows;
extern const kolo_kernel kolo_simd_attention, kolo_simd_attention_bwd, kolo_simd_mask_tokens;
extern const kolo_kernel kolo_simd_lstm, kolo_simd_lstm_bwd, kolo_simd_shift;
