#pragma once
/* Builds a model: a graph of ops over values with static shapes.
 *
 *     kolo_graph *g;
 *     KOLO_TRY(kolo_graph_create(NULL, &g));
 *     kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(64, 1, 28, 28));
 *     kolo_value w = kolo_param(g, "conv1.weight", kolo_shape_4(6, 1, 5, 5), kolo_init_fan_in(25));
 *     kolo_conv2d_opts same = {.pad_h = 2, .pad_w = 2};
 *     kolo_value y = kolo_relu(g, kolo_conv2d(g, x, w, &same));
 *     kolo_output(g, "y", y);
 *     KOLO_TRY(kolo_graph_check(g));
 *
 * The graph stores the first failure of a builder call (a shape mismatch, an array that is NULL, a
 * count below 0, out of memory). Later calls then return an invalid value, and kolo_graph_check
 * reports the failure with the op and the shapes and, for each input, its name or the nearest named
 * one before it. A graph belongs to one thread at a time.
 *
 * Names are copied. They are UTF-8 without control characters, of 1 to 200 bytes, and begin neither
 * with "__" nor, but for outputs, with "optimizer.". Scalars of training (lr, update, grad_scale,
 * share, fresh, rng_key, first_sample) are not names of inputs and parameters. */

#include "kolo/status.h"
#include "kolo/tensor.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_graph kolo_graph;

/* A handle to a value of one graph; id < 0: none, or invalid. */
typedef struct kolo_value {
    int32_t id;
    uint32_t graph; /* identifies the graph; 0: any */
} kolo_value;

/* A zero field takes its default. */
typedef struct kolo_graph_opts {
    kolo_dtype dtype; /* of parameters and scalars: KOLO_DTYPE_F32 (default) or KOLO_DTYPE_F64 */
} kolo_graph_opts;

/* Creates an empty graph. `opts` may be NULL. NOMEM. */
KOLO_API kolo_status kolo_graph_create(const kolo_graph_opts *opts, kolo_graph **graph);
/* Frees the graph and all its values. NULL is allowed. */
KOLO_API void kolo_graph_destroy(kolo_graph *graph);
/* The first failure of the builder calls so far, or OK. */
KOLO_API kolo_status kolo_graph_check(const kolo_graph *graph);
/* The number of trainable elements: those of all parameters so far that are not frozen. */
KOLO_API int64_t kolo_graph_parameters(const kolo_graph *graph);

/* ---- leaves ---- */

/* A tensor that the caller fills before each step, such as images or labels. In a graph of f64 an
 * f32 input is f64. */
KOLO_API kolo_value kolo_input(kolo_graph *g, const char *name, kolo_dtype dtype, kolo_shape shape);
/* A number that the caller sets before each step, such as the learning rate. */
KOLO_API kolo_value kolo_scalar(kolo_graph *g, const char *name);

typedef enum kolo_init_kind {
    KOLO_INIT_ZERO,
    KOLO_INIT_ONE,
    KOLO_INIT_UNIFORM, /* in [-scale, scale) */
    KOLO_INIT_NORMAL,  /* mean 0, standard deviation `scale` */
} kolo_init_kind;

/* The initial distribution of a parameter; its values do not depend on the number of workers. */
typedef struct kolo_init {
    kolo_init_kind kind;
    double scale;
} kolo_init;

/* Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default for convolutions, linear layers
 * and their biases. */
KOLO_API kolo_init kolo_init_fan_in(int64_t fan_in);

/* A trainable tensor of the graph's dtype. Its name is unique in the graph; files use it too. */
KOLO_API kolo_value kolo_param(kolo_graph *g, const char *name, kolo_shape shape, kolo_init init);

/* Excludes a parameter from training: it has no gradient, and updates leave it as it is. Files hold
 * it as before. ARG: it is not a parameter. */
KOLO_API void kolo_freeze(kolo_graph *g, kolo_value param);
/* A frozen parameter: a named constant that files hold, such as a table. */
KOLO_API kolo_value kolo_frozen_param(kolo_graph *g, const char *name, kolo_shape shape,
                                      kolo_init init);

/* The shape and dtype of a value. Of an invalid one, as builder calls return after a failure: a
 * scalar, all of whose dim are 1, and f32. */
KOLO_API kolo_shape kolo_value_shape(const kolo_graph *g, kolo_value v);
KOLO_API kolo_dtype kolo_value_dtype(const kolo_graph *g, kolo_value v);

/* Declares a value to be an output of the graph, such as "loss" or "logits". */
KOLO_API void kolo_output(kolo_graph *g, const char *name, kolo_value value);

/* ---- ops ---- */

/* A zero field takes its default: strides 1, no padding, dilation 1, one group. */
typedef struct kolo_conv2d_opts {
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
} kolo_conv2d_opts;

/* Convolution (cross-correlation): x [N,C,H,W], w [O,C/groups,KH,KW] -> [N,O,H',W'] with
 * H' = (H + 2 pad_h - dilation_h (KH-1) - 1) / stride_h + 1. `opts` may be NULL. */
KOLO_API kolo_value kolo_conv2d(kolo_graph *g, kolo_value x, kolo_value w,
                                const kolo_conv2d_opts *opts);

/* A zero field takes its default, as of kolo_conv2d. */
typedef struct kolo_conv_transpose2d_opts {
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
    int64_t output_pad_h, output_pad_w; /* rows and columns added to the result; below the stride */
} kolo_conv_transpose2d_opts;

/* Transposed convolution: x [N,C,H,W], w [C,O/groups,KH,KW] -> [N,O,H',W'] with H' = (H - 1)
 * stride_h - 2 pad_h + dilation_h (KH - 1) + output_pad_h + 1, as PyTorch's ConvTranspose2d without
 * bias. `opts` may be NULL. */
KOLO_API kolo_value kolo_conv_transpose2d(kolo_graph *g, kolo_value x, kolo_value w,
                                          const kolo_conv_transpose2d_opts *opts);

/* A zero field takes its default: stride 1, no padding, dilation 1, one group. */
typedef struct kolo_conv1d_opts {
    int64_t stride, pad, dilation, groups;
} kolo_conv1d_opts;

/* Convolution of x [N,C,W] with w [O,C/groups,K] -> [N,O,W']. `opts` may be NULL. */
KOLO_API kolo_value kolo_conv1d(kolo_graph *g, kolo_value x, kolo_value w,
                                const kolo_conv1d_opts *opts);

/* A zero field takes its default: stride 1, no padding, dilation 1, one group. */
typedef struct kolo_conv3d_opts {
    int64_t stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w, groups;
} kolo_conv3d_opts;

/* Convolution of x [N,C,D,H,W] with w [O,C/groups,KD,KH,KW] -> [N,O,D',H',W'], as PyTorch's Conv3d
 * without bias. It is a 2-D convolution that reads KD copies of x. KD is at most 64. `opts` may be
 * NULL. */
KOLO_API kolo_value kolo_conv3d(kolo_graph *g, kolo_value x, kolo_value w,
                                const kolo_conv3d_opts *opts);

/* Pixel shuffle (Shi et al., 2016): [N,C factor^2,H,W] -> [N,C,H factor,W factor]. */
KOLO_API kolo_value kolo_pixel_shuffle(kolo_graph *g, kolo_value x, int64_t factor);
/* Nearest-neighbour enlargement by a whole factor: [N,C,H,W] -> [N,C,H factor,W factor]. ARG: the
 * factor is not 1 to 32768. */
KOLO_API kolo_value kolo_repeat_pixels(kolo_graph *g, kolo_value x, int64_t factor);

/* A zero field takes its default: stride = kernel, no padding. */
typedef struct kolo_pool2d_opts {
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    bool ceil;            /* round the output size up, as PyTorch's ceil_mode */
    bool exclude_padding; /* avg_pool2d: divide by the number of image elements in the window */
} kolo_pool2d_opts;

/* The maximum of each window; padding counts as -infinity and is at most half the kernel. */
KOLO_API kolo_value kolo_max_pool2d(kolo_graph *g, kolo_value x, const kolo_pool2d_opts *opts);
/* The mean of each window, padding counted as zeros unless exclude_padding. */
KOLO_API kolo_value kolo_avg_pool2d(kolo_graph *g, kolo_value x, const kolo_pool2d_opts *opts);

/* A zero field takes its default, as of kolo_pool2d_opts. */
typedef struct kolo_pool3d_opts {
    int64_t kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    bool ceil, exclude_padding;
} kolo_pool3d_opts;

/* The maximum, or mean, of each window of x [N,C,D,H,W] -> [N,C,D',H',W'], as kolo_max_pool2d and
 * kolo_avg_pool2d: a pooling of each plane, and one along the planes. */
KOLO_API kolo_value kolo_max_pool3d(kolo_graph *g, kolo_value x, const kolo_pool3d_opts *opts);
KOLO_API kolo_value kolo_avg_pool3d(kolo_graph *g, kolo_value x, const kolo_pool3d_opts *opts);

/* The mean of each channel: [N,C,H,W] -> [N,C,1,1]. */
KOLO_API kolo_value kolo_global_avg_pool2d(kolo_graph *g, kolo_value x);
/* Adaptive average pooling: [N,C,H,W] -> [N,C,h,w]. Window i of a dimension is
 * [floor(i H / h), ceil((i + 1) H / h)), as in PyTorch. */
KOLO_API kolo_value kolo_adaptive_avg_pool2d(kolo_graph *g, kolo_value x, int64_t h, int64_t w);

/* Bilinear interpolation: [N,C,H,W] -> [N,C,h,w]. align_corners as in PyTorch's interpolate: aligns
 * the centres of the corner pixels, else the borders of the image. */
KOLO_API kolo_value kolo_resize(kolo_graph *g, kolo_value x, int64_t h, int64_t w,
                                bool align_corners);
/* The nearest pixel: [N,C,H,W] -> [N,C,h,w], at i that at floor(i H / h), in each dimension;
 * PyTorch's interpolate(mode="nearest"). */
KOLO_API kolo_value kolo_resize_nearest(kolo_graph *g, kolo_value x, int64_t h, int64_t w);

/* What a place between pixels has: a value between four (bilinear) or 16 (bicubic) of them, or the
 * nearest one. */
typedef enum kolo_grid_mode {
    KOLO_GRID_BILINEAR,
    KOLO_GRID_NEAREST,
    KOLO_GRID_BICUBIC
} kolo_grid_mode;
/* What is outside an image: zeros, the pixel at the border, or the image reflected there. */
typedef enum kolo_grid_padding {
    KOLO_GRID_ZEROS,
    KOLO_GRID_BORDER,
    KOLO_GRID_REFLECTION
} kolo_grid_padding;
/* A zero field takes its default. */
typedef struct kolo_grid_sample_opts {
    kolo_grid_mode mode;
    kolo_grid_padding padding;
    bool align_corners; /* -1 and 1 are the centres of the corner pixels, else borders of the image
                         */
} kolo_grid_sample_opts;

/* Values of x [N,C,H,W] at the places of grid [N,h,w,2] -> [N,C,h,w], each x and y from -1 to 1
 * (Jaderberg et al., 2015), as PyTorch's grid_sample. Both have gradients. `opts` may be NULL. */
KOLO_API kolo_value kolo_grid_sample(kolo_graph *g, kolo_value x, kolo_value grid,
                                     const kolo_grid_sample_opts *opts);

/* A zero field takes its default, which is PyTorch's; DBL_MIN has the effect of 0. */
typedef struct kolo_lrn_opts {
    int64_t size;          /* channels of a window; 5 */
    double alpha, beta, k; /* 1e-4, 0.75, 1 */
} kolo_lrn_opts;

/* Local response normalization across channels of x [N,C,...]: y = x / (k + alpha / size *
 * sum)^beta, where sum is over the squares of the `size` channels centred on the element's channel
 * (Krizhevsky et al., 2012, section 3.3, with PyTorch's division by size). `opts` may be NULL. */
KOLO_API kolo_value kolo_lrn(kolo_graph *g, kolo_value x, const kolo_lrn_opts *opts);

/* Concatenates n (1 or more) values [N,C,...] along dimension 1; all other dimensions are equal. */
KOLO_API kolo_value kolo_concat(kolo_graph *g, const kolo_value *x, int n);
/* The same along any dimension; in this group negative ones are counted from the end. */
KOLO_API kolo_value kolo_concat_along(kolo_graph *g, const kolo_value *x, int n, int axis);
/* Elements [first, first + count) of x along a dimension; `first` may be negative, counted from the
 * end. ARG: they are not all of x. */
KOLO_API kolo_value kolo_slice(kolo_graph *g, kolo_value x, int axis, int64_t first, int64_t count);
/* x with zeros before and after it along a dimension. */
KOLO_API kolo_value kolo_pad(kolo_graph *g, kolo_value x, int axis, int64_t before, int64_t after);
/* Cuts x along a dimension into n parts of these sizes, out[0..n). ARG: sizes that do not add up to
 * that of x. */
KOLO_API void kolo_split_along(kolo_graph *g, kolo_value x, int axis, const int64_t *sizes, int n,
                               kolo_value *out);
/* x with its dimensions in another order: dimension d of the result is dimension order[d] of x.
 * ARG: not every dimension once. */
KOLO_API kolo_value kolo_permute(kolo_graph *g, kolo_value x, const int *order);
/* x with two dimensions exchanged. */
KOLO_API kolo_value kolo_transpose(kolo_graph *g, kolo_value x, int a, int b);
/* x with the elements along a dimension in reverse order. */
KOLO_API kolo_value kolo_flip(kolo_graph *g, kolo_value x, int axis);
/* Softmax of x over a dimension, and its logarithm. */
KOLO_API kolo_value kolo_softmax(kolo_graph *g, kolo_value x, int axis);
KOLO_API kolo_value kolo_log_softmax(kolo_graph *g, kolo_value x, int axis);
/* Channels [first, first + count) of x [N,C,...], zero outside x; `first` may be negative. ARG: all
 * of them are outside x. */
KOLO_API kolo_value kolo_channel_window(kolo_graph *g, kolo_value x, int64_t first, int64_t count);

/* y = x w^T: x [N,I], w [O,I] -> [N,O]; or tokens: x [N,T,I] -> [N,T,O]. */
KOLO_API kolo_value kolo_linear(kolo_graph *g, kolo_value x, kolo_value w);
/* y = x w^T + b, b [O]. */
KOLO_API kolo_value kolo_linear_bias(kolo_graph *g, kolo_value x, kolo_value w, kolo_value b);
/* Adds b[C] along dimension 1 of x. */
KOLO_API kolo_value kolo_bias(kolo_graph *g, kolo_value x, kolo_value b);
KOLO_API kolo_value kolo_relu(kolo_graph *g, kolo_value x);
/* Elementwise functions of a and b with the broadcasting rules of NumPy: shapes are aligned at the
 * last dimension, and a dimension that is missing or of size 1 is repeated. A parameter is best
 * given without the dimension of the samples: leading dimensions of size 1 are dropped beside
 * values that have as many dimensions. minimum and maximum give NaN where either is NaN; the
 * gradient of equal numbers is divided between both. ARG: the shapes do not fit. */
KOLO_API kolo_value kolo_add(kolo_graph *g, kolo_value a, kolo_value b);
KOLO_API kolo_value kolo_sub(kolo_graph *g, kolo_value a, kolo_value b);
KOLO_API kolo_value kolo_mul(kolo_graph *g, kolo_value a, kolo_value b);
KOLO_API kolo_value kolo_div(kolo_graph *g, kolo_value a, kolo_value b);
KOLO_API kolo_value kolo_minimum(kolo_graph *g, kolo_value a, kolo_value b);
KOLO_API kolo_value kolo_maximum(kolo_graph *g, kolo_value a, kolo_value b);
/* Elementwise functions of x [...] -> [...]. NaN gives NaN. Gradients at kinks: PyTorch 2.15's. */
KOLO_API kolo_value kolo_exp(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_log(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_sqrt(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_rsqrt(kolo_graph *g, kolo_value x);      /* 1 / sqrt(x) */
KOLO_API kolo_value kolo_reciprocal(kolo_graph *g, kolo_value x); /* 1 / x */
KOLO_API kolo_value kolo_neg(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_abs(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_square(kolo_graph *g, kolo_value x);
/* x^exponent; NaN for x below 0 and an exponent that is no integer. ARG: it is not finite. */
KOLO_API kolo_value kolo_pow(kolo_graph *g, kolo_value x, double exponent);
/* x + number. ARG: it is not finite. */
KOLO_API kolo_value kolo_add_number(kolo_graph *g, kolo_value x, double number);
/* x limited to [min, max]; -INFINITY and INFINITY are allowed. ARG: min above max. */
KOLO_API kolo_value kolo_clamp(kolo_graph *g, kolo_value x, double min, double max);
/* x limited to [0, 6]. */
KOLO_API kolo_value kolo_relu6(kolo_graph *g, kolo_value x);
/* x above 0, else slope x. PyTorch's default slope is 0.01. ARG: it is not finite. */
KOLO_API kolo_value kolo_leaky_relu(kolo_graph *g, kolo_value x, double slope);
/* x above 0, else alpha (e^x - 1) (Clevert et al., 2016). ARG: alpha is not finite. */
KOLO_API kolo_value kolo_elu(kolo_graph *g, kolo_value x, double alpha);
/* log(1 + e^(beta x)) / beta. ARG: beta is not above 0. */
KOLO_API kolo_value kolo_softplus(kolo_graph *g, kolo_value x, double beta);
/* x max(0, min(6, x + 3)) / 6 and max(0, min(6, x + 3)) / 6 (Howard et al., 2019). */
KOLO_API kolo_value kolo_hardswish(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_hardsigmoid(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_tanh(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_sin(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_cos(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_atan(kolo_graph *g, kolo_value x);
/* The next integer below, above, and the nearest one (halves: the even one); the gradient is 0. */
KOLO_API kolo_value kolo_floor(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_ceil(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_round(kolo_graph *g, kolo_value x);
KOLO_API kolo_value kolo_sigmoid(kolo_graph *g, kolo_value x);
/* The error function, 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x. */
KOLO_API kolo_value kolo_erf(kolo_graph *g, kolo_value x);
/* GELU (Hendrycks, Gimpel, 2016): x times the normal cumulative distribution function of x; with
 * `tanh` the approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
KOLO_API kolo_value kolo_gelu(kolo_graph *g, kolo_value x, bool tanh);
/* SiLU: x sigmoid(x). */
KOLO_API kolo_value kolo_silu(kolo_graph *g, kolo_value x);
/* The sum of all elements of x, a scalar. */
KOLO_API kolo_value kolo_sum(kolo_graph *g, kolo_value x);
/* The sum, mean, maximum and minimum of x over its dimensions axes[0..n), in any order, negative
 * ones counted from the end; n 0: over all. With keep the dimensions stay, with size 1. NaN gives
 * NaN. The gradient of a maximum is divided between equal elements. ARG: no such dimension, or one
 * named twice. */
KOLO_API kolo_value kolo_reduce_sum(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
KOLO_API kolo_value kolo_reduce_mean(kolo_graph *g, kolo_value x, const int *axes, int n,
                                     bool keep);
KOLO_API kolo_value kolo_reduce_max(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
KOLO_API kolo_value kolo_reduce_min(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
/* x * factor. */
KOLO_API kolo_value kolo_scale(kolo_graph *g, kolo_value x, double factor);

/* Dropout: training zeroes each element of x [N,...] with probability p, in [0, 1), and divides the
 * others by 1 - p; evaluation returns x. The random numbers depend on the seed, the step, the layer
 * and the index of the sample in the global batch, not on the number of ranks. */
KOLO_API kolo_value kolo_dropout(kolo_graph *g, kolo_value x, double p);

/* A zero field takes its default; DBL_MIN has the effect of 0, also as eps of the other norms. */
typedef struct kolo_batch_norm_opts {
    double eps;      /* added to the variance; default 1e-5 */
    double momentum; /* weight of a new batch in the running statistics; default 0.1 */
} kolo_batch_norm_opts;

/* Batch normalization of each channel of x [N,C,...] (Ioffe, Szegedy, 2015): with the mean and
 * variance of this rank's batch in training, with running statistics in evaluation. Adds the
 * parameters NAME.weight (ones) and NAME.bias (zeros), [C] each, and the statistics
 * NAME.running_mean and NAME.running_var, which training updates as PyTorch does, averaged over the
 * ranks. `opts` may be NULL. */
KOLO_API kolo_value kolo_batch_norm(kolo_graph *g, kolo_value x, const char *name,
                                    const kolo_batch_norm_opts *opts);
/* Layer normalization over the last dimension of x [...,C] (Ba, Kiros, Hinton, 2016). Adds the
 * parameters NAME.weight (ones) and NAME.bias (zeros), [C] each. eps 0: 1e-5. */
KOLO_API kolo_value kolo_layer_norm(kolo_graph *g, kolo_value x, const char *name, double eps);

/* Root mean square normalization over the last dimension of x [...,C] (Zhang, Sennrich, 2019). Adds
 * the parameter NAME.weight (ones) [C]. eps 0: 1e-6, as in Llama. */
KOLO_API kolo_value kolo_rms_norm(kolo_graph *g, kolo_value x, const char *name, double eps);
/* Group normalization of x [N,C,...] (Wu, He, 2018): each sample and group of C / groups channels
 * has mean 0 and variance 1. Adds the parameters NAME.weight (ones) and NAME.bias (zeros), [C]
 * each; name NULL: none. eps 0: 1e-5. */
KOLO_API kolo_value kolo_group_norm(kolo_graph *g, kolo_value x, const char *name, int64_t groups,
                                    double eps);
/* Group normalization with a group for each channel (Ulyanov et al., 2016). */
KOLO_API kolo_value kolo_instance_norm(kolo_graph *g, kolo_value x, const char *name, double eps);

/* Rows of x [V,C] by ids i32 [M] -> [M,C], as kolo_embedding. */
KOLO_API kolo_value kolo_gather_rows(kolo_graph *g, kolo_value x, kolo_value ids);
/* A table [n,C] of zeros, to whose row ids[m] each of the rows [M,C] is added; an id outside [0, n)
 * drops its row. */
KOLO_API kolo_value kolo_scatter_add(kolo_graph *g, kolo_value rows, kolo_value ids, int64_t n);
/* The sum, or mean, of the rows of w [V,C] that ids i32 [N,T] select for each sample -> [N,C]. */
KOLO_API kolo_value kolo_embedding_bag(kolo_graph *g, kolo_value w, kolo_value ids, bool mean);

/* Embedding lookup: rows of w [V,C] by ids i32 [N,T], plus row t of the position table p [P,C],
 * P >= T (p.id < 0: none) -> [N,T,C]. An id outside [0, V) selects a row of zeros. */
KOLO_API kolo_value kolo_embedding(kolo_graph *g, kolo_value w, kolo_value ids, kolo_value p);

typedef struct kolo_mask_opts {
    int64_t count;      /* tokens to mask in each window */
    int64_t mask;       /* id of the mask token */
    int64_t vocabulary; /* ids are below this */
    bool pairs;         /* windows are sentence pairs, encoded in y as in kolo/data.h */
} kolo_mask_opts;

/* Masks tokens of ids [N,T] for a masked language model (Devlin et al., 2019). out[0]: the ids with
 * `count` tokens of each window masked (80 % become `mask`, 10 % a random id, 10 % stay). out[1]:
 * the labels, -1 at unmasked tokens. out[2]: the segment ids, 0 and 1 with `pairs`, else all 0.
 * Tokens with y below 0 are never masked. With `pairs`, out[3] [N] is 1 if the second sentence does
 * not follow the first, else 0. Random numbers as for dropout. */
KOLO_API void kolo_mask_tokens(kolo_graph *g, kolo_value ids, kolo_value y,
                               const kolo_mask_opts *opts, kolo_value out[4]);

typedef struct kolo_attention_opts {
    int64_t heads;   /* required; divides C */
    bool causal;     /* a token attends to itself and earlier tokens only */
    kolo_value mask; /* i32 [N,T]: no token attends to keys that are 0; used if use_mask */
    bool use_mask;
    double dropout; /* probability of dropping an attention weight in training, see kolo_dropout;
                       0: none */
} kolo_attention_opts;

/* Multi-head scaled dot-product attention (Vaswani et al., 2017): qkv [N,T,3C] holds queries, keys
 * and values, concatenated -> [N,T,C]. Never stores a T x T matrix (Dao et al., 2022). */
KOLO_API kolo_value kolo_attention(kolo_graph *g, kolo_value qkv, const kolo_attention_opts *opts);

typedef struct kolo_cross_attention_opts {
    int64_t heads;    /* required */
    int64_t kv_heads; /* heads of k and v, each of heads / kv_heads heads of q; 0: heads */
    bool causal;      /* query i of T sees the keys up to i + S - T */
    int64_t window;   /* with causal: only the last that many of them; 0: all */
    double scale;     /* of scores; 0: 1 / sqrt(D) */
    kolo_value bias;  /* added to the scores [N,heads,T,S], broadcast; used if use_bias */
    bool use_bias;
} kolo_cross_attention_opts;

/* Attention with queries, keys and values of their own, grouped queries (Ainslie et al., 2023) and
 * additive bias: q [N,T,heads D], k [N,S,kv_heads D], v [N,S,kv_heads E] -> [N,T,heads E]. Stores
 * the scores; kolo_attention does not, and is faster for self-attention. */
KOLO_API kolo_value kolo_cross_attention(kolo_graph *g, kolo_value q, kolo_value k, kolo_value v,
                                         const kolo_cross_attention_opts *opts);
/* Rotary position embedding of x [N,T,heads D] (Su et al., 2021), with halves of a head as pairs,
 * as in Llama; token t has position first + t. base 0: 10000. */
KOLO_API kolo_value kolo_rotary(kolo_graph *g, kolo_value x, int64_t heads, double base,
                                int64_t first);

/* Mixtures of experts (Shazeer et al., 2017; GShard: Lepikhin et al., 2021; Switch Transformer:
 * Fedus et al., 2022). Routing is of each sample (sequence) by itself: an expert takes at most
 * `capacity` tokens of each, so what becomes of a sample does not depend on the rest of the batch.
 *
 * The `top` most probable experts of each token, by probabilities [N,T,E]: the first of equal ones.
 * out[0], i32 [N,T,E]: the place of the token among those of the expert, in the order of tokens, or
 * -1 where the expert is not chosen or already has `capacity` tokens; so no token depends on later
 * ones. out[1] [N,T,E]: 1 where the expert is chosen, also without a place, else 0. Neither has a
 * gradient. ARG: `top` is not 1 to E, or there is no capacity. */
KOLO_API void kolo_expert_route(kolo_graph *g, kolo_value probabilities, int64_t top,
                                int64_t capacity, kolo_value out[2]);
/* The tokens of x [N,T,C] at their places -> [E,N,capacity,C], zero where there is none. */
KOLO_API kolo_value kolo_expert_dispatch(kolo_graph *g, kolo_value x, kolo_value places,
                                         int64_t capacity);
/* Linear layers without bias, one for each expert: x [E,N,P,I], w [E,O,I] -> [E,N,P,O]. */
KOLO_API kolo_value kolo_expert_linear(kolo_graph *g, kolo_value x, kolo_value w);
/* Back to tokens: the sum over the experts of gates [N,T,E] times what is at the places of a token
 * in y [E,N,P,C] -> [N,T,C]; zero for tokens without a place. */
KOLO_API kolo_value kolo_expert_combine(kolo_graph *g, kolo_value y, kolo_value places,
                                        kolo_value gates);

/* Batched matrix product: a [B,M,K] (transpose_a: [B,K,M]), b [B,K,N] (transpose_b:
 * [B,N,K]) -> [B,M,N]. */
KOLO_API kolo_value kolo_matmul(kolo_graph *g, kolo_value a, kolo_value b, bool transpose_a,
                                bool transpose_b);

/* One LSTM layer (Hochreiter, Schmidhuber, 1997; Gers et al., 2000) over x [N,T,I] ->
 * [N,T,hidden], with an initial state of zeros. Adds the parameters of PyTorch's nn.LSTM:
 * NAME.weight_ih_lLAYER [4H,I], NAME.weight_hh_lLAYER [4H,H] and the biases bias_ih, bias_hh [4H],
 * gates in the order input, forget, cell, output, all uniform within 1/sqrt(H). */
KOLO_API kolo_value kolo_lstm(kolo_graph *g, kolo_value x, const char *name, int layer,
                              int64_t hidden);

/* A zero field takes its default. */
typedef struct kolo_recurrent_opts {
    bool reverse;       /* from the last step to the first; names end with _reverse */
    bool bidirectional; /* in both directions -> [N,T,2 hidden]: forwards, then backwards */
    kolo_value h, c;    /* the state before the first step, [N,hidden], bidirectional [N,2 hidden];
                           c of lstm alone; used if use_state, else zero */
    bool use_state;
} kolo_recurrent_opts;

/* kolo_lstm with options, which may be NULL. */
KOLO_API kolo_value kolo_lstm_opts(kolo_graph *g, kolo_value x, const char *name, int layer,
                                   int64_t hidden, const kolo_recurrent_opts *opts);
/* One layer of gated recurrent units (Cho et al., 2014) over x [N,T,I] -> [N,T,hidden], as
 * PyTorch's nn.GRU, with its parameters: those of kolo_lstm with gates in the order reset, update,
 * new. `opts` may be NULL. */
KOLO_API kolo_value kolo_gru(kolo_graph *g, kolo_value x, const char *name, int layer,
                             int64_t hidden, const kolo_recurrent_opts *opts);

/* x, through which no gradient flows. */
KOLO_API kolo_value kolo_stop_gradient(kolo_graph *g, kolo_value x);
/* x with another shape of the same number of elements. */
KOLO_API kolo_value kolo_reshape(kolo_graph *g, kolo_value x, kolo_shape shape);
/* [N, ...] -> [N, product of the rest], in the order of the logical shape. */
KOLO_API kolo_value kolo_flatten(kolo_graph *g, kolo_value x);

/* A zero field takes its default. */
typedef struct kolo_loss_opts {
    bool has_ignore_index; /* `ignore_index` is in use */
    int32_t ignore_index;  /* labels of this value are ignored, even if it is a valid class */
    double smoothing;      /* label smoothing in [0, 1); Szegedy et al., 2016 */
    kolo_value weights; /* of the classes, [C], such as a frozen parameter; used if use_weights */
    bool use_weights;   /* each class's part of a loss is multiplied by its weight */
} kolo_loss_opts;

/* Cross-entropy: the *sum* over all labels of -log softmax(logits)[label]; logits [N,C,...], labels
 * i32 [N,...] -> []. A sum, not a mean, so that ranks can add their parts of a batch; divide by the
 * global count. A label outside [0, C) contributes nothing. */
KOLO_API kolo_value kolo_softmax_xent(kolo_graph *g, kolo_value logits, kolo_value labels);
/* The same with options, which may be NULL. Weights have no gradient (UNSUPPORTED if one depends on
 * a trained parameter), and training divides by the number of labels, not by the sum of their
 * weights: PyTorch's cross_entropy with reduction="sum". */
KOLO_API kolo_value kolo_softmax_xent_opts(kolo_graph *g, kolo_value logits, kolo_value labels,
                                           const kolo_loss_opts *opts);
/* Losses of a prediction x and a target of equal shape -> [], summed over all elements as the
 * cross-entropy is; with d = x - target: d^2; |d|; d^2 / 2 where |d| <= delta, else delta (|d| -
 * delta / 2) (Huber, "Robust estimation of a location parameter", 1964; delta above 0); binary
 * cross-entropy of the logits x and probabilities, log(1 + e^x) - x target. PyTorch's mse_loss,
 * l1_loss, huber_loss and binary_cross_entropy_with_logits with reduction="sum". The target has no
 * gradient: UNSUPPORTED if it depends on a parameter. */
KOLO_API kolo_value kolo_mse_loss(kolo_graph *g, kolo_value x, kolo_value target);
KOLO_API kolo_value kolo_l1_loss(kolo_graph *g, kolo_value x, kolo_value target);
KOLO_API kolo_value kolo_huber_loss(kolo_graph *g, kolo_value x, kolo_value target, double delta);
KOLO_API kolo_value kolo_bce_with_logits(kolo_graph *g, kolo_value x, kolo_value target);
/* Cross-entropy of logits [N,C,...] and target probabilities of that shape, summed over all labels:
 * - sum target log softmax(logits). */
KOLO_API kolo_value kolo_soft_xent(kolo_graph *g, kolo_value logits, kolo_value target);
/* Kullback-Leibler divergence of log-probabilities log_q from probabilities p, of equal shapes:
 * sum p (log p - log_q), as PyTorch's kl_div with reduction="sum". */
KOLO_API kolo_value kolo_kl_div(kolo_graph *g, kolo_value log_q, kolo_value p);
/* A zero field takes its default. */
typedef struct kolo_ctc_opts {
    int64_t blank;      /* the class that stands for no label */
    kolo_value lengths; /* i32 [N]: time steps of each sample; used if use_lengths, else T */
    bool use_lengths;
} kolo_ctc_opts;

/* Connectionist temporal classification (Graves et al., 2006): the sum over the samples of -log of
 * the probability that logits [N,T,C], without their blanks and repetitions, read labels i32 [N,S]
 * -> []. A row of labels ends before the first one that is the blank or outside [0, C), such as -1.
 * Samples with fewer steps than their labels need contribute nothing. PyTorch's ctc_loss of the
 * log-softmax with reduction="sum" and zero_infinity. `opts` may be NULL. */
KOLO_API kolo_value kolo_ctc_loss(kolo_graph *g, kolo_value logits, kolo_value labels,
                                  const kolo_ctc_opts *opts);
/* The number of positions whose largest logit (the first of equals) is that of the label: -> []. */
KOLO_API kolo_value kolo_accuracy(kolo_graph *g, kolo_value logits, kolo_value labels);
/* The same without ignored labels: give the options of the loss, which may be NULL. */
KOLO_API kolo_value kolo_accuracy_opts(kolo_graph *g, kolo_value logits, kolo_value labels,
                                       const kolo_loss_opts *opts);
/* Confusion matrix: counts [C,C] of labels i whose largest logit is j (the first of equals) at
 * [i,j]. Matrices of parts of a batch can be added; the intersection over union of each class
 * follows from them. */
KOLO_API kolo_value kolo_confusion(kolo_graph *g, kolo_value logits, kolo_value labels);
/* Counts [2,65536] of scores, such as logits, by their values in bf16 (cut off, in ascending
 * order): those of labels 0 and of labels 1, above 1/2. Labels are i32 or numbers, of the shape of
 * the scores; those below 0 are not counted. Counts of parts of a batch can be added; the area
 * under the ROC curve follows from them. */
KOLO_API kolo_value kolo_score_counts(kolo_graph *g, kolo_value scores, kolo_value labels);

#ifdef __cplusplus
}
#endif
