/* Each op's gradient rule against central differences, in f64 on reference kernels: for an op with
 * output y and a random r, d<r, y>/d(input) from the rule's nodes equals the difference quotient,
 * element by element, over a table of attributes and odd shapes. Inputs keep clear of kinks (see
 * graph_eval_fill). */
#include "graph/ops/ops.h"
#include "support/graph_eval.h"
#include "support/index_check.h"
#include "support/kernel_check.h"
#include "support/shapes.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct gradient_case {
    const char *name;
    const char *op; /* its name */
    int n_in;
    kolo_shape in[KOLO_MAX_IO];
    kolo_attr attr[KOLO_MAX_ATTRS];
    unsigned skip;       /* bit i: no gradient is asked for input i */
    double scale, shift; /* of floats: numbers from shift - scale to shift + scale; scale 0: 1 */
    int input, below; /* input number `input` is i32, of numbers from -1 to below - 1; 0: none is */
} gradient_case;

#define CONV(sh, sw, ph, pw, dh, dw, groups, relu)             \
    {                                                          \
        {sh}, {sw}, {ph}, {pw}, {dh}, {dw}, {groups}, { relu } \
    }
#define POOL(kh, kw, sh, sw, ph, pw, relu)           \
    {                                                \
        {kh}, {kw}, {sh}, {sw}, {ph}, {pw}, { relu } \
    }

static const gradient_case cases[] = {
    {"some classes", "class_sums", 3, .in = {S3(2, 5, 3), S2(2, 3), S2(2, 3)}, .attr = {{1}},
     .skip = 6, .input = 2, .below = 9},
    {"blank first", "ctc_loss", 2, .in = {S3(4, 5, 4), S2(4, 3)}, .attr = {{0}}, .skip = 2,
     .input = 1, .below = 5},
    {"blank last", "ctc_loss", 2, .in = {S3(4, 5, 4), S2(4, 3)}, .attr = {{3}}, .skip = 2,
     .input = 1, .below = 4},
    {"plain", "sums_xent", 2, .in = {S2(4, 5), S1(5)}, .attr = {{0}, {0}, {.f = 0}, {0}, {6}},
     .skip = 2, .shift = 2, .input = 1, .below = 7},
    {"smoothing, ignored", "sums_xent", 2, .in = {S2(4, 5), S1(5)},
     .attr = {{1}, {2}, {.f = 0.1}, {0}, {6}}, .skip = 2, .shift = 2, .input = 1, .below = 7},
    {"one pixel", "conv2d", 2, .in = {S4(1, 1, 1, 1), S4(1, 1, 1, 1)},
     .attr = CONV(1, 1, 0, 0, 1, 1, 1, 0)},
    {"plain", "conv2d", 2, .in = {S4(2, 3, 7, 5), S4(4, 3, 3, 3)},
     .attr = CONV(1, 1, 0, 0, 1, 1, 1, 0)},
    {"padded", "conv2d", 2, .in = {S4(2, 2, 5, 6), S4(3, 2, 3, 2)},
     .attr = CONV(1, 1, 1, 2, 1, 1, 1, 0)},
    {"strided", "conv2d", 2, .in = {S4(1, 3, 9, 8), S4(2, 3, 3, 2)},
     .attr = CONV(2, 3, 1, 0, 1, 1, 1, 0)},
    {"dilated", "conv2d", 2, .in = {S4(2, 1, 9, 7), S4(3, 1, 3, 2)},
     .attr = CONV(1, 2, 2, 1, 2, 3, 1, 0)},
    {"groups", "conv2d", 2, .in = {S4(2, 6, 5, 5), S4(4, 3, 3, 3)},
     .attr = CONV(1, 1, 1, 1, 1, 1, 2, 0)},
    {"depthwise, two filters", "conv2d", 2, .in = {S4(1, 3, 5, 4), S4(6, 1, 3, 3)},
     .attr = CONV(2, 1, 1, 1, 1, 1, 3, 0)},
    {"depthwise, bias", "conv2d", 3, .in = {S4(2, 5, 5, 4), S4(5, 1, 3, 3), S1(5)},
     .attr = CONV(2, 1, 1, 1, 1, 1, 5, 0)},
    {"bias", "conv2d", 3, .in = {S4(2, 3, 5, 5), S4(5, 3, 3, 3), S1(5)},
     .attr = CONV(1, 1, 1, 1, 1, 1, 1, 0)},
    {"relu", "conv2d", 2, .in = {S4(2, 3, 5, 5), S4(5, 3, 3, 3)},
     .attr = CONV(1, 1, 1, 1, 1, 1, 1, 1)},
    {"bias, relu, groups", "conv2d", 3, .in = {S4(3, 4, 5, 3), S4(6, 2, 2, 3), S1(6)},
     .attr = CONV(2, 1, 1, 1, 1, 1, 2, 1)},
    {"all padding", "conv2d", 3, .in = {S4(1, 2, 2, 2), S4(2, 2, 2, 2), S1(2)},
     .attr = CONV(1, 1, 3, 3, 1, 1, 1, 0)},
    {"only the bias", "conv2d", 3, .in = {S4(2, 2, 4, 3), S4(3, 2, 2, 2), S1(3)},
     .attr = CONV(1, 1, 0, 0, 1, 1, 1, 1), .skip = 3},
    {"not the bias", "conv2d", 3, .in = {S4(2, 2, 4, 3), S4(3, 2, 2, 2), S1(3)},
     .attr = CONV(1, 1, 0, 0, 1, 1, 1, 1), .skip = 4},
    {"not the data", "conv2d", 3, .in = {S4(2, 2, 4, 3), S4(3, 2, 2, 2), S1(3)},
     .attr = CONV(1, 1, 0, 0, 1, 1, 1, 0), .skip = 1},
    {"tiles", "max_pool2d", 1, .in = {S4(2, 3, 6, 4)}, .attr = POOL(2, 2, 2, 2, 0, 0, 0)},
    {"odd", "max_pool2d", 1, .in = {S4(1, 2, 7, 5)}, .attr = POOL(3, 2, 2, 2, 0, 0, 0)},
    {"overlapping", "max_pool2d", 1, .in = {S4(2, 1, 7, 7)}, .attr = POOL(3, 3, 1, 2, 1, 1, 0)},
    {"relu", "max_pool2d", 1, .in = {S4(2, 3, 5, 7)}, .attr = POOL(2, 3, 1, 2, 1, 1, 1)},
    {"whole", "max_pool2d", 1, .in = {S4(2, 2, 3, 5)}, .attr = POOL(3, 5, 1, 1, 0, 0, 0)},
    {"tiles", "avg_pool2d", 1, .in = {S4(2, 3, 6, 4)}, .attr = POOL(2, 2, 2, 2, 0, 0, 0)},
    {"odd", "avg_pool2d", 1, .in = {S4(1, 2, 7, 5)}, .attr = POOL(3, 2, 2, 2, 0, 0, 0)},
    {"overlapping, padded", "avg_pool2d", 1, .in = {S4(2, 1, 7, 7)},
     .attr = POOL(3, 3, 1, 2, 1, 1, 0)},
    {"ceil", "max_pool2d", 1, .in = {S4(2, 2, 6, 7)},
     .attr = {{3}, {3}, {2}, {3}, {1}, {0}, {0}, {0}, {0}, {1}}},
    {"ceil, padded", "avg_pool2d", 1, .in = {S4(2, 2, 6, 7)},
     .attr = {{3}, {3}, {2}, {3}, {1}, {1}, {0}, {0}, {0}, {1}}},
    {"ceil, padded, exclude_padding", "avg_pool2d", 1, .in = {S4(1, 3, 6, 7)},
     .attr = {{3}, {2}, {2}, {2}, {1}, {1}, {0}, {0}, {0}, {1}, {1}}},
    {"shrinks", "adaptive_avg_pool2d", 1, .in = {S4(2, 3, 7, 5)}, .attr = {{3}, {2}}},
    {"grows", "adaptive_avg_pool2d", 1, .in = {S4(1, 2, 3, 5)}, .attr = {{7}, {5}}},
    {"grows", "resize", 1, .in = {S4(2, 2, 3, 4)}, .attr = {{7}, {9}, {0}}},
    {"shrinks", "resize", 1, .in = {S4(1, 3, 9, 7)}, .attr = {{4}, {3}, {0}}},
    {"one pixel", "resize", 1, .in = {S4(2, 3, 1, 1)}, .attr = {{3}, {2}, {0}}},
    {"corners", "resize", 1, .in = {S4(2, 2, 3, 4)}, .attr = {{7}, {9}, {1}}},
    {"corners, to one", "resize", 1, .in = {S4(2, 1, 3, 4)}, .attr = {{1}, {3}, {1}}},
    {"nearest", "resize", 1, .in = {S4(2, 2, 3, 4)}, .attr = {{7}, {2}, {2}}},
    {"first pixels", "resize", 1, .in = {S4(2, 2, 3, 4)}, .attr = {{7}, {2}, {3}}},
    {"zeros", "grid_sample", 2, .in = {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, .attr = {{0}}},
    {"border, corners", "grid_sample", 2, .in = {S4(2, 2, 3, 4), S4(2, 2, 3, 2)},
     .attr = {{0}, {1}, {1}}},
    {"reflection", "grid_sample", 2, .in = {S4(1, 2, 3, 4), S4(1, 2, 3, 2)},
     .attr = {{0}, {2}, {0}}, .scale = 4},
    {"reflection, corners", "grid_sample", 2, .in = {S4(1, 2, 3, 4), S4(1, 2, 3, 2)},
     .attr = {{0}, {2}, {1}}, .scale = 4},
    {"nearest", "grid_sample", 2, .in = {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, .attr = {{1}}},
    {"bicubic", "grid_sample", 2, .in = {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, .attr = {{2}}},
    {"bicubic, reflection", "grid_sample", 2, .in = {S4(1, 2, 3, 4), S4(1, 2, 3, 2)},
     .attr = {{2}, {2}, {1}}, .scale = 4},
    {"odd window", "lrn", 1, .in = {S4(2, 7, 2, 3)},
     .attr = {{5}, {.f = 0.5}, {.f = 0.75}, {.f = 2}}},
    {"even window", "lrn", 1, .in = {S3(1, 6, 4)}, .attr = {{4}, {.f = 1}, {.f = 0.6}, {.f = 1}}},
    {"window past all channels", "lrn", 1, .in = {S2(3, 3)},
     .attr = {{9}, {.f = 2}, {.f = 0.75}, {.f = 1}}},
    {"plain", "linear", 2, .in = {S2(3, 5), S2(4, 5)}, .attr = {{0}}},
    {"one", "linear", 2, .in = {S2(1, 1), S2(1, 1)}, .attr = {{0}}},
    {"bias", "linear", 3, .in = {S2(5, 7), S2(3, 7), S1(3)}, .attr = {{0}}},
    {"relu", "linear", 2, .in = {S2(5, 7), S2(3, 7)}, .attr = {{1}}},
    {"folded flatten, bias, relu", "linear", 3, .in = {S4(3, 2, 3, 1), S4(5, 2, 3, 1), S1(5)},
     .attr = {{1}}},
    {"only the bias", "linear", 3, .in = {S2(5, 7), S2(3, 7), S1(3)}, .attr = {{1}}, .skip = 3},
    {"not the bias", "linear", 3, .in = {S2(5, 7), S2(3, 7), S1(3)}, .attr = {{0}}, .skip = 4},
    {"images", "bias", 2, .in = {S4(2, 3, 3, 5), S1(3)}, .attr = {{0}}},
    {"rows", "bias", 2, .in = {S2(5, 3), S1(3)}, .attr = {{0}}},
    {"tokens", "bias", 2, .in = {S3(2, 3, 7), S1(3)}, .attr = {{0}}},
    {"odd", "relu", 1, .in = {S3(3, 5, 7)}, .attr = {{0}}},
    {"scalar", "relu", 1, .in = {{0, {0}}}, .attr = {{0}}},
    {"odd", "add", 2, .in = {S3(3, 5, 7), S3(3, 5, 7)}, .attr = {{0}}},
    {"relu", "add", 2, .in = {S3(3, 5, 7), S3(3, 5, 7)}, .attr = {{1}}},
    {"relu, one side", "add", 2, .in = {S2(3, 5), S2(3, 5)}, .attr = {{1}}, .skip = 2},
    {"one side", "add", 2, .in = {S2(3, 5), S2(3, 5)}, .attr = {{0}}, .skip = 1},
    {"mse", "elementwise_loss", 2, .in = {S3(3, 2, 5), S3(3, 2, 5)}, .attr = {{KOLO_LOSS_MSE}},
     .skip = 2},
    {"l1", "elementwise_loss", 2, .in = {S2(3, 5), S2(3, 5)}, .attr = {{KOLO_LOSS_L1}}, .skip = 2},
    {"huber", "elementwise_loss", 2, .in = {S2(7, 5), S2(7, 5)},
     .attr = {{KOLO_LOSS_HUBER}, {.f = 0.6}}, .skip = 2},
    {"bce", "elementwise_loss", 2, .in = {S2(3, 5), S2(3, 5)}, .attr = {{KOLO_LOSS_BCE}},
     .skip = 2},
    {"vector", "broadcast_add", 2, .in = {S3(2, 3, 4), S1(4)}},
    {"both", "broadcast_add", 2, .in = {S3(2, 1, 4), S3(2, 3, 1)}, .attr = {{2}, {4}}},
    {"scalar", "broadcast_mul", 2, .in = {S2(3, 5), {0, {0}}}},
    {"both", "broadcast_mul", 2, .in = {S3(2, 1, 4), S2(3, 1)}, .attr = {{2}, {4}}},
    {"one side", "broadcast_mul", 2, .in = {S2(3, 5), S1(5)}, .skip = 1},
    {"column", "sub", 2, .in = {S2(3, 5), S2(3, 1)}, .attr = {{0}, {2}}},
    {"equal shapes", "sub", 2, .in = {S2(3, 5), S2(3, 5)}},
    {"row", "div", 2, .in = {S2(3, 5), S1(5)}, .shift = 1.5},
    {"both", "div", 2, .in = {S2(1, 5), S2(3, 1)}, .attr = {{1}, {2}}, .shift = -1.5},
    {"both", "minimum", 2, .in = {S2(1, 5), S2(3, 1)}, .attr = {{1}, {2}}},
    {"vector", "maximum", 2, .in = {S2(3, 4), S1(4)}},
    {"equal shapes", "maximum", 2, .in = {S2(3, 4), S2(3, 4)}, .skip = 2},
    {"strided", "conv2d_bwd_data", 2, .in = {S4(2, 4, 3, 2), S4(4, 3, 3, 2)},
     .attr = {{2}, {3}, {1}, {0}, {1}, {1}, {1}, {0}, {6}, {7}}},
    {"groups", "conv2d_bwd_data", 2, .in = {S4(1, 4, 3, 3), S4(4, 3, 2, 2)},
     .attr = {{1}, {1}, {0}, {0}, {2}, {2}, {2}, {0}, {5}, {5}}},
    {"rows", "embedding_bwd", 2, .in = {S3(2, 3, 4), S2(2, 3)}, .attr = {{5}}, .skip = 2,
     .input = 1, .below = 5},
    {"two heads", "rotary", 1, .in = {S3(2, 3, 8)}, .attr = {{2}, {.f = 100}, {1}}},
    {"backwards", "rotary", 1, .in = {S3(1, 3, 6)}, .attr = {{1}, {.f = 9}, {0}, {1}}},
    {"more keys", "causal_mask", 1, .in = {S3(2, 2, 4)}, .attr = {{.f = -3}}},
    {"fewer keys", "causal_mask", 1, .in = {S2(4, 2)}, .attr = {{.f = 0}}},
    {"window", "causal_mask", 1, .in = {S2(4, 5)}, .attr = {{.f = 0}, {2}}},
    {"last", "flip", 1, .in = {S3(2, 3, 5)}, .attr = {{2}}},
    {"middle", "flip", 1, .in = {S3(2, 3, 5)}, .attr = {{1}}},
    {"rows", "deinterleave", 1, .in = {S3(12, 1, 2)}, .attr = {{0}, {2}, {3}}},
    {"columns", "deinterleave", 1, .in = {S2(3, 4)}, .attr = {{1}, {1}, {2}}},
    {"rows", "interleave", 3, .in = {S2(4, 3), S2(4, 3), S2(4, 3)}, .attr = {{0}, {2}}},
    {"one side", "interleave", 2, .in = {S2(2, 4), S2(2, 4)}, .attr = {{1}, {4}}, .skip = 2},
    {"matrix", "permute", 1, .in = {S2(3, 5)}, .attr = {{1}, {0}}},
    {"four", "permute", 1, .in = {S4(2, 3, 2, 5)}, .attr = {{2}, {0}, {3}, {1}}},
    {"scalar", "permute", 1, .in = {{0, {0}}}},
    {"rows", "softmax", 1, .in = {S2(3, 5)}},
    {"maps", "softmax", 1, .in = {S3(2, 4, 3)}, .scale = 3},
    {"logarithm of rows", "softmax", 1, .in = {S2(3, 5)}, .attr = {{1}}},
    {"logarithm of maps", "softmax", 1, .in = {S4(2, 4, 3, 1)}, .attr = {{1}}},
    {"outer and inner", "sum", 1, .in = {S3(3, 2, 5)}, .attr = {{5}, {0}}},
    {"middle, kept", "sum", 1, .in = {S3(3, 2, 5)}, .attr = {{2}, {1}}},
    {"mean of inner", "sum", 1, .in = {S3(3, 2, 5)}, .attr = {{6}, {0}, {1}}},
    {"mean of all, kept", "sum", 1, .in = {S2(3, 5)}, .attr = {{0}, {1}, {1}}},
    {"maximum of middle", "reduce_max", 1, .in = {S3(3, 4, 2)}, .attr = {{2}, {0}}},
    {"minimum, kept", "reduce_max", 1, .in = {S3(3, 4, 2)}, .attr = {{5}, {1}, {1}}},
    {"maximum of all", "reduce_max", 1, .in = {S2(3, 5)}, .attr = {{0}}},
    {"all", "sum", 1, .in = {S3(3, 2, 5)}, .attr = {{0}}},
    {"a scalar", "sum", 1, .in = {{0, {0}}}, .attr = {{0}}},
    {"by a number", "scale", 1, .in = {S3(3, 2, 2)}, .attr = {{.f = -0.3}}},
    {"by a scalar", "scale", 2, .in = {S2(3, 5), {0, {0}}}, .attr = {{.f = 2}}, .skip = 2},
    {"images", "batch_norm", 5, .in = {S4(3, 2, 3, 2), S1(2), S1(2), S1(2), S1(2)},
     .attr = {{.f = 1e-3}}, .skip = 24},
    {"relu", "batch_norm", 5, .in = {S4(2, 3, 3, 3), S1(3), S1(3), S1(3), S1(3)},
     .attr = {{.f = 1e-5}, {.f = 0}, {1}}, .skip = 24},
    {"clipped", "batch_norm", 5, .in = {S4(2, 3, 3, 3), S1(3), S1(3), S1(3), S1(3)},
     .attr = {{.f = 1e-5}, {.f = 0}, {2}}, .skip = 24},
    {"rows", "batch_norm", 5, .in = {S2(5, 3), S1(3), S1(3), S1(3), S1(3)}, .attr = {{.f = 1e-5}},
     .skip = 24},
    {"residual", "batch_norm", 6,
     .in = {S4(3, 2, 3, 2), S1(2), S1(2), S1(2), S1(2), S4(3, 2, 3, 2)}, .attr = {{.f = 1e-3}},
     .skip = 24},
    {"residual, relu", "batch_norm", 6,
     .in = {S4(2, 3, 3, 3), S1(3), S1(3), S1(3), S1(3), S4(2, 3, 3, 3)},
     .attr = {{.f = 1e-5}, {.f = 0}, {1}}, .skip = 24},
    {"only the residual", "batch_norm", 6, .in = {S2(5, 3), S1(3), S1(3), S1(3), S1(3), S2(5, 3)},
     .attr = {{.f = 1e-5}}, .skip = 31},
    {"only the parameters", "batch_norm", 5, .in = {S4(2, 2, 2, 2), S1(2), S1(2), S1(2), S1(2)},
     .attr = {{.f = 1e-5}}, .skip = 25},
    {"three", "concat", 3, .in = {S4(2, 1, 2, 3), S4(2, 3, 2, 3), S4(2, 2, 2, 3)}, .attr = {{1}}},
    {"not the first", "concat", 2, .in = {S2(3, 2), S2(3, 1)}, .attr = {{1}}, .skip = 1},
    {"equal lengths", "concat", 3, .in = {S3(2, 3, 4), S3(2, 3, 4), S3(2, 3, 4)}, .attr = {{2}}},
    {"inside", "window", 1, .in = {S4(2, 5, 2, 1)}, .attr = {{2}, {2}, {1}}},
    {"over both ends", "window", 1, .in = {S4(2, 3, 1, 2)}, .attr = {{-2}, {6}, {1}}},
    {"an equal part", "window", 1, .in = {S3(2, 3, 12)}, .attr = {{4}, {4}, {2}}},
    {"equal parts", "window", 1, .in = {S3(2, 4, 3)}, .attr = {{-8}, {12}, {1}}},
    {"rows", "dropout", 3, .in = {S2(5, 7), {0, {0}}, {0, {0}}}, .attr = {{.f = 0.4}, {1}},
     .skip = 6},
    {"tokens, bias", "linear", 3, .in = {S3(2, 3, 4), S2(5, 4), S1(5)}, .attr = {{0}}},
    {"tokens, relu", "linear", 2, .in = {S4(2, 1, 3, 4), S2(5, 4)}, .attr = {{1}}},
    {"tokens, only the bias", "linear", 3, .in = {S3(2, 3, 4), S2(5, 4), S1(5)}, .attr = {{0}},
     .skip = 3},
    {"erf, tokens, bias", "linear_gelu", 3, .in = {S3(2, 3, 4), S2(5, 4), S1(5)},
     .attr = {{0}, {1}}},
    {"tanh, rows", "linear_gelu", 2, .in = {S2(5, 7), S2(3, 7)}, .attr = {{1}, {1}}},
    {"tanh, only the bias", "linear_gelu", 3, .in = {S3(2, 3, 4), S2(5, 4), S1(5)},
     .attr = {{1}, {1}}, .skip = 3},
    {"erf, not the bias", "linear_gelu", 3, .in = {S2(5, 7), S2(3, 7), S1(3)}, .attr = {{0}, {1}},
     .skip = 4},
    {"erf", "gelu", 1, .in = {S3(2, 3, 5)}, .attr = {{0}}},
    {"tanh", "gelu", 1, .in = {S3(2, 3, 5)}, .attr = {{1}}},
    {"odd", "silu", 1, .in = {S2(3, 5)}, .attr = {{0}}},
    {"odd", "erf", 1, .in = {S2(3, 5)}},
    {"odd", "sigmoid", 1, .in = {S2(3, 5)}, .attr = {{0}}},
    {"odd", "tanh", 1, .in = {S2(3, 5)}, .attr = {{0}}},
    {"odd", "exp", 1, .in = {S2(3, 5)}},
    {"odd", "log", 1, .in = {S2(3, 5)}, .shift = 1.5},
    {"odd", "sqrt", 1, .in = {S2(3, 5)}, .shift = 1.5},
    {"odd", "rsqrt", 1, .in = {S2(3, 5)}, .shift = 1.5},
    {"odd", "reciprocal", 1, .in = {S2(3, 5)}, .shift = -1.5},
    {"odd", "abs", 1, .in = {S2(3, 5)}},
    {"cubes", "pow", 1, .in = {S2(3, 5)}, .attr = {{.f = 3}}},
    {"no integer", "pow", 1, .in = {S2(3, 5)}, .attr = {{.f = -1.7}}, .shift = 1.5},
    {"odd", "offset", 1, .in = {S2(3, 5)}, .attr = {{.f = 3}}},
    {"odd", "clamp", 1, .in = {S2(3, 5)}, .attr = {{.f = -0.3}, {.f = 0.45}}},
    {"odd", "hardtanh", 1, .in = {S2(3, 5)}, .attr = {{.f = -0.3}, {.f = 0.45}}},
    {"odd", "leaky_relu", 1, .in = {S2(3, 5)}, .attr = {{.f = 0.2}}},
    {"odd", "elu", 1, .in = {S2(3, 5)}, .attr = {{.f = 1.5}}},
    {"odd", "softplus", 1, .in = {S2(3, 5)}, .attr = {{.f = 2}}, .scale = 3},
    {"odd", "hardswish", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "hardsigmoid", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "sin", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "cos", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "atan", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "floor", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "ceil", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "round", 1, .in = {S2(3, 5)}, .scale = 5},
    {"odd", "mul", 2, .in = {S2(3, 5), S2(3, 5)}, .attr = {{0}}},
    {"one side", "mul", 2, .in = {S2(3, 5), S2(3, 5)}, .attr = {{0}}, .skip = 2},
    {"tokens", "layer_norm", 3, .in = {S3(2, 3, 5), S1(5), S1(5)}, .attr = {{.f = 1e-3}}},
    {"rows", "layer_norm", 3, .in = {S2(3, 4), S1(4), S1(4)}, .attr = {{.f = 1e-5}}, .skip = 1},
    {"tokens", "rms_norm", 2, .in = {S3(2, 3, 5), S1(5)}, .attr = {{.f = 1e-3}}},
    {"rows", "rms_norm", 2, .in = {S2(3, 4), S1(4)}, .attr = {{.f = 1e-5}}, .skip = 1},
    {"groups", "group_norm", 3, .in = {S4(2, 2, 3, 5), S2(2, 3), S2(2, 3)}, .attr = {{.f = 1e-3}}},
    {"instances", "group_norm", 1, .in = {S4(2, 3, 1, 7)}, .attr = {{.f = 1e-3}}},
    {"scale alone", "group_norm", 3, .in = {S4(2, 2, 1, 5), S2(2, 1), S2(2, 1)},
     .attr = {{.f = 1e-3}}, .skip = 1},
    {"positions", "embedding", 3, .in = {S2(5, 3), S2(2, 4), S2(6, 3)}, .attr = {{0}}, .skip = 2,
     .input = 1, .below = 6},
    {"none", "embedding", 2, .in = {S2(5, 3), S2(3, 2)}, .attr = {{0}}, .skip = 2, .input = 1,
     .below = 5},
    {"only positions", "embedding", 3, .in = {S2(5, 3), S2(2, 4), S2(4, 3)}, .attr = {{0}},
     .skip = 3, .input = 1, .below = 5},
    {"one head", "attention", 1, .in = {S3(2, 5, 9)}, .attr = {{1}, {0}}},
    {"causal", "attention", 1, .in = {S3(1, 6, 12)}, .attr = {{2}, {1}}},
    {"mask", "attention", 2, .in = {S3(2, 5, 12), S2(2, 5)}, .attr = {{2}, {0}}, .skip = 2,
     .input = 1, .below = 1},
    {"causal, mask", "attention", 2, .in = {S3(2, 7, 6), S2(2, 7)}, .attr = {{1}, {1}}, .skip = 2,
     .input = 1, .below = 2},
    {"dropped", "attention", 3, .in = {S3(2, 10, 12), {0, {0}}, {0, {0}}},
     .attr = {{2}, {0}, {.f = 0.3}, {1}}, .skip = 6},
    {"dropped, causal, mask", "attention", 4, .in = {S3(2, 7, 6), {0, {0}}, {0, {0}}, S2(2, 7)},
     .attr = {{1}, {1}, {.f = 0.5}, {0}}, .skip = 14, .input = 3, .below = 2},
    {"tokens", "expert_dispatch", 2, .in = {S3(2, 5, 3), S3(2, 5, 4)}, .attr = {{2}}, .skip = 2,
     .input = 1, .below = 3},
    {"gates", "expert_dispatch", 3, .in = {S3(2, 5, 3), S3(2, 5, 4), S3(2, 5, 4)}, .attr = {{3}},
     .skip = 2, .input = 1, .below = 3},
    {"tokens", "expert_combine", 2, .in = {S4(4, 2, 2, 3), S3(2, 5, 4)}, .skip = 2, .input = 1,
     .below = 3},
    {"gates", "expert_combine", 3, .in = {S4(4, 2, 3, 5), S3(2, 5, 4), S3(2, 5, 4)}, .skip = 2,
     .input = 1, .below = 3},
    {"plain", "matmul", 2, .in = {S3(2, 3, 4), S3(2, 4, 5)}, .attr = {{0}, {0}}},
    {"first transposed", "matmul", 2, .in = {S3(2, 4, 3), S3(2, 4, 5)}, .attr = {{1}, {0}}},
    {"second transposed", "matmul", 2, .in = {S3(2, 3, 4), S3(2, 5, 4)}, .attr = {{0}, {1}}},
    {"both transposed", "matmul", 2, .in = {S3(2, 4, 3), S3(2, 5, 4)}, .attr = {{1}, {1}}},
    {"plain", "lstm", 3, .in = {S3(2, 4, 12), S2(12, 3), S1(12)}, .attr = {{0}}},
    {"one step", "lstm", 3, .in = {S3(3, 1, 8), S2(8, 2), S1(8)}, .attr = {{0}}, .skip = 4},
    {"only gates", "lstm", 3, .in = {S3(1, 3, 4), S2(4, 1), S1(4)}, .attr = {{0}}, .skip = 6},
    {"state", "lstm", 5, .in = {S3(2, 3, 12), S2(12, 3), S1(12), S2(2, 3), S2(2, 3)}},
    {"state, one step", "lstm", 5, .in = {S3(2, 1, 4), S2(4, 1), S1(4), S2(2, 1), S2(2, 1)},
     .skip = 8},
    {"plain", "gru", 3, .in = {S3(2, 4, 9), S2(9, 3), S1(9)}},
    {"only gates", "gru", 3, .in = {S3(1, 3, 3), S2(3, 1), S1(3)}, .skip = 6},
    {"state", "gru", 4, .in = {S3(2, 3, 6), S2(6, 2), S1(6), S2(2, 2)}},
    {"forth", "shift", 1, .in = {S3(2, 3, 4)}, .attr = {{0}}},
    {"back", "shift", 1, .in = {S3(2, 3, 4)}, .attr = {{1}}},
    {"images", "flatten", 1, .in = {S4(3, 2, 3, 5)}, .attr = {{0}}},
    {"vector", "flatten", 1, .in = {S1(3)}, .attr = {{0}}},
    {"odd", "reshape", 1, .in = {S3(3, 4, 5)}, .attr = {{2}, {6}, {10}}},
};

/* The op under test in a graph, with its gradient. */
typedef struct rig {
    kolo_graph *g;
    graph_eval e;
    kolo_value in[KOLO_MAX_IO], y, r, d_in[KOLO_MAX_IO];
    int32_t n_forward;
} rig;

/* The random-number key, or the first sample: both 0 here. */
static bool is_key(const gradient_case *c, int i) {
    if (strcmp(c->op, "dropout") == 0) return i > 0;
    return strcmp(c->op, "attention") == 0 && i > 0 && i <= kolo_attention_draws(c->attr);
}

static void rig_create(rig *t, const gradient_case *c) {
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &t->g));
    const kolo_op *op = test_op(c->op);
    bool wants[KOLO_MAX_IO];
    for (int i = 0; i < c->n_in; i++) {
        char name[8];
        snprintf(name, sizeof name, "in%d", i);
        bool integer = c->below > 0 && i == c->input;
        t->in[i] = is_key(c, i) ? kolo_graph_scalar(t->g, name, KOLO_DTYPE_I64)
                   : integer    ? kolo_input(t->g, name, KOLO_DTYPE_I32, c->in[i])
                                : kolo_param(t->g, name, c->in[i], (kolo_init){KOLO_INIT_ZERO, 0});
        t->d_in[i] = KOLO_NONE;
        wants[i] = !(c->skip >> i & 1);
    }
    t->y = kolo_graph_add1(t->g, op, t->in, c->n_in, c->attr);
    ASSERT_OK(kolo_graph_check(t->g));
    t->n_forward = t->g->n_nodes;
    t->r = kolo_input(t->g, "r", KOLO_DTYPE_F64, kolo_info(t->g, t->y)->tensor.shape);
    kolo_value d_out[KOLO_MAX_IO];
    for (int i = 0; i < KOLO_MAX_IO; i++) d_out[i] = i == 0 ? t->r : KOLO_NONE;
    op->grad(t->g, t->g->nodes[0], d_out, wants, t->d_in);
    ASSERT_OK(kolo_graph_verify(t->g));
    ASSERT_OK(graph_eval_init(&t->e, t->g, KOLO_KERNELS_REF));
    for (int i = 0; i < c->n_in; i++) {
        if (is_key(c, i)) continue;
        if (c->below == 0 || i != c->input) {
            graph_eval_fill(&t->e, t->in[i], 10 + (uint64_t)i, c->scale > 0 ? c->scale : 1);
            double *x = graph_eval_f64(&t->e, t->in[i]);
            for (int64_t k = 0; k < graph_eval_count(&t->e, t->in[i]); k++) x[k] += c->shift;
            continue;
        }
        graph_eval_fill_labels(&t->e, t->in[i], 10, c->below + 1);
        for (int64_t k = 0; k < graph_eval_count(&t->e, t->in[i]); k++) {
            graph_eval_i32(&t->e, t->in[i])[k]--;
        }
    }
    graph_eval_fill(&t->e, t->r, 5, 1);
}

static void rig_destroy(rig *t) {
    graph_eval_fini(&t->e);
    kolo_graph_destroy(t->g);
}

/* <r, y> */
static double rig_objective(rig *t) {
    graph_eval_run(&t->e, t->n_forward);
    const double *y = graph_eval_f64(&t->e, t->y), *r = graph_eval_f64(&t->e, t->r);
    double sum = 0;
    for (int64_t i = 0; i < graph_eval_count(&t->e, t->y); i++) sum += r[i] * y[i];
    return sum;
}

static void check_input(rig *t, const gradient_case *c, int i) {
    const double step = 1e-5;
    int64_t count = graph_eval_count(&t->e, t->in[i]);
    assert_true(kolo_value_ok(t->d_in[i]));
    assert_true(kolo_shape_equal(&c->in[i], &kolo_info(t->g, t->d_in[i])->tensor.shape));
    double *x = graph_eval_f64(&t->e, t->in[i]), *numeric = kolo_alloc((size_t)count * sizeof *x);
    assert_non_null(numeric);
    for (int64_t k = 0; k < count; k++) {
        double old = x[k];
        x[k] = old + step;
        double up = rig_objective(t);
        x[k] = old - step;
        double down = rig_objective(t);
        x[k] = old;
        numeric[k] = (up - down) / (2 * step);
    }
    graph_eval_run(&t->e, t->g->n_nodes);
    double distance =
        test_relative_l2_f64(graph_eval_f64(&t->e, t->d_in[i]), numeric, (size_t)count);
    kolo_free(numeric);
    if (!(distance < 1e-7)) {
        fail_msg("%s, %s: gradient of input %d is off by %g", c->op, c->name, i, distance);
    }
}

/* Weights and their gradient share a layout that a kernel chooses, so both ops have to state it. */
static void check_weights(const rig *t, const gradient_case *c, int i) {
    int32_t producer = kolo_info(t->g, t->d_in[i])->producer;
    const kolo_op *op = t->g->nodes[0]->op;
    if (op->view || producer < 0) return; /* dy itself */
    const kolo_node *maker = t->g->nodes[producer];
    if (maker->op->view) return;
    int k = 0;
    while (maker->out[k].id != t->d_in[i].id) k++;
    char in = op->layout.in[i], out = maker->op->layout.out[k];
    if (in == 'w' ? out != 'w' : in == 'a' && out == 'w') {
        fail_msg("%s: input %d has the layout \"%c\", its gradient from %s \"%c\"", c->op, i, in,
                 maker->op->name, out);
    }
}

static void gradients_equal_differences(void **state) {
    for (size_t n = 0; n < KOLO_COUNT(cases); n++) {
        const gradient_case *c = &cases[n];
        rig t = {0};
        rig_create(&t, c);
        for (int i = 0; i < c->n_in; i++) {
            if (c->skip >> i & 1) {
                assert_false(kolo_value_ok(t.d_in[i]));
            } else {
                check_input(&t, c, i);
                check_weights(&t, c, i);
            }
        }
        rig_destroy(&t);
    }
}

/* The op and those of its gradient do along each dimension what their index notation states. */
static void notation_agrees_with_the_kernels(void **state) {
    int checked = 0;
    for (size_t n = 0; n < KOLO_COUNT(cases); n++) {
        rig t = {0};
        rig_create(&t, &cases[n]);
        graph_eval_run(&t.e, t.g->n_nodes);
        for (int32_t i = 0; i < t.g->n_nodes; i++) {
            checked += test_index_of_node(&t.e, t.g->nodes[i]);
        }
        rig_destroy(&t);
    }
    assert_true(checked > 300);
}

/* The loss has labels, and a gradient that comes in as a scalar. */
static void loss_gradient_equals_differences(void **state) {
    const struct {
        kolo_shape logits, labels;
        double scale, smoothing;
        bool has_ignore_index, weights;
    } shapes[] = {{S2(1, 1), S1(1), 1, 0, false, false},
                  {S2(1, 2), S1(1), 1, 0, false, false},
                  {S2(5, 3), S1(5), 2, 0, false, false},
                  {S2(3, 11), S1(3), 4, 0.1, false, false},
                  {S2(2, 7), S1(2), 30, 0, false, false},
                  {S4(2, 3, 4, 2), S3(2, 4, 2), 2, 0, false, false},
                  {S4(1, 5, 3, 3), S3(1, 3, 3), 2, 0.2, true, false},
                  {S3(2, 4, 5), S2(2, 5), 2, 0, true, false},
                  {S3(2, 4, 5), S2(2, 5), 2, 0, true, true},
                  {S2(5, 3), S1(5), 2, 0.2, false, true}};
    for (size_t k = 0; k < KOLO_COUNT(shapes); k++) {
        rig t = {0};
        ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &t.g));
        kolo_shape shape = shapes[k].logits;
        t.in[0] = kolo_param(t.g, "logits", shape, (kolo_init){KOLO_INIT_ZERO, 0});
        kolo_value labels = kolo_input(t.g, "labels", KOLO_DTYPE_I32, shapes[k].labels);
        int64_t classes = shape.dim[1];
        kolo_loss_opts opts = {.has_ignore_index = shapes[k].has_ignore_index,
                               .ignore_index = 1,
                               .smoothing = shapes[k].smoothing,
                               .use_weights = shapes[k].weights};
        opts.weights = kolo_input(t.g, "weights", KOLO_DTYPE_F64, kolo_shape_1(classes));
        t.y = kolo_softmax_xent_opts(t.g, t.in[0], labels, &opts);
        t.n_forward = 1;
        t.r = kolo_scalar(t.g, "r");
        ASSERT_OK(kolo_graph_check(t.g));
        const bool wants[3] = {true, false, false};
        kolo_value d_out[2] = {t.r, KOLO_NONE};
        t.d_in[0] = t.d_in[1] = KOLO_NONE;
        kolo_op_softmax_xent.grad(t.g, t.g->nodes[0], d_out, wants, t.d_in);
        ASSERT_OK(kolo_graph_verify(t.g));
        ASSERT_OK(graph_eval_init(&t.e, t.g, KOLO_KERNELS_REF));
        graph_eval_fill(&t.e, t.in[0], k, shapes[k].scale);
        graph_eval_fill(&t.e, opts.weights, k, 1);
        graph_eval_fill_labels(&t.e, labels, k, classes);
        graph_eval_f64(&t.e, t.r)[0] = -0.7;
        if (kolo_shape_count(&shapes[k].labels) > 2)
            graph_eval_i32(&t.e, labels)[1] = k % 2 ? -1 : (int32_t)classes;
        gradient_case c = {"logits", "softmax_xent", 1, .in = {shape}};
        if (classes > 1) {
            check_input(&t, &c, 0);
        } else { /* one class: no loss and no gradient, exactly */
            graph_eval_run(&t.e, t.g->n_nodes);
            assert_true(graph_eval_f64(&t.e, t.y)[0] == 0);
            assert_true(graph_eval_f64(&t.e, t.d_in[0])[0] == 0);
        }
        rig_destroy(&t);
    }
}

static void probabilities_have_no_gradient(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_param(g, "x", kolo_shape_2(2, 3), (kolo_init){KOLO_INIT_ZERO, 0});
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(2));
    kolo_softmax_xent(g, x, labels);
    kolo_value d_out[2] = {KOLO_NONE, g->nodes[0]->out[1]}, d_in[2] = {KOLO_NONE, KOLO_NONE};
    kolo_op_softmax_xent.grad(g, g->nodes[0], d_out, (const bool[]){true, false}, d_in);
    assert_int_equal(kolo_graph_check(g), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "softmax_xent"));
    kolo_graph_destroy(g);
}

/* An op that gains a gradient must gain a row above. That of sync_norm is also the gradient of the
 * nodes before it: test_sync_norm.c. */
static void every_gradient_is_tested(void **state) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        if (!op->grad || op == &kolo_op_softmax_xent || op->comm) continue;
        if (op == &kolo_op_stop_gradient) continue; /* has none on purpose */
        if (op == &kolo_op_expert_route) continue;
        if (op == &kolo_op_sync_norm) continue;
        bool found = false;
        for (size_t n = 0; n < KOLO_COUNT(cases); n++) found |= strcmp(cases[n].op, op->name) == 0;
        if (!found) fail_msg("%s has a gradient but no case", op->name);
    }
}

TEST_MAIN(test_op_gradient) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(notation_agrees_with_the_kernels),
        cmocka_unit_test(loss_gradient_equals_differences),
        cmocka_unit_test(probabilities_have_no_gradient),
        cmocka_unit_test(every_gradient_is_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
