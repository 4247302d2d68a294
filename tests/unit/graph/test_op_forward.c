/* Reference kernels against numbers worked out by hand, in f64 and f32. (Other kernels are compared
 * with reference kernels; these with arithmetic.) */
#include "graph/ops/ops.h"
#include "kernel/kernel.h"
#include "kernel/select/select.h"
#include "support/shapes.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { MAX_NUMBERS = 16, MAX_INPUTS = 7, MAX_OUTPUTS = 3 };

typedef struct forward_case {
    const char *name;
    const kolo_op *op;
    int n_in;
    kolo_shape in[MAX_INPUTS];
    const char *types; /* of the inputs: f float, i i32, l i64, b u8; NULL: all f */
    kolo_attr attr[KOLO_MAX_ATTRS];
    double data[MAX_INPUTS][MAX_NUMBERS]; /* of each input */
    double out[MAX_OUTPUTS][MAX_NUMBERS]; /* of each output, and of nothing else */
} forward_case;

#define LN2 0.69314718055994530942
#define LN3 1.09861228866810969140

static const forward_case cases[] = {
    {"2x2 kernel", &kolo_op_conv2d, 2, .in = {S4(1, 1, 3, 3), S4(1, 1, 2, 2)},
     .attr = {{1}, {1}, {0}, {0}, {1}, {1}, {1}},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 10, 100, 1000}}, .out = {{5421, 6532, 8754, 9865}}},
    {"padded, strided, bias, relu", &kolo_op_conv2d, 3,
     .in = {S4(1, 1, 3, 3), S4(2, 1, 2, 2), S1(2)},
     .attr = {{2}, {2}, {1}, {1}, {1}, {1}, {1}, {1}},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 10, 100, 1000, -1, -1, -1, -1}, {-2000, 20}},
     .out = {{0, 1200, 5040, 7865, 19, 15, 9, 0}}},
    {"dilated, groups", &kolo_op_conv2d, 2, .in = {S4(1, 2, 1, 3), S4(2, 1, 1, 2)},
     .attr = {{1}, {1}, {0}, {0}, {1}, {2}, {2}}, .data = {{1, 2, 3, 4, 5, 6}, {1, 10, 100, 1000}},
     .out = {{31, 6400}}},
    {"2x2 kernel", &kolo_op_conv2d_bwd_data, 2, .in = {S4(1, 1, 2, 2), S4(1, 1, 2, 2)},
     .attr = {{1}, {1}, {0}, {0}, {1}, {1}, {1}, {0}, {3}, {3}},
     .data = {{1, 2, 3, 4}, {1, 10, 100, 1000}},
     .out = {{1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}}},
    {"2x2 kernel, bias", &kolo_op_conv2d_bwd_weights, 2, .in = {S4(1, 1, 2, 2), S4(1, 1, 3, 3)},
     .attr = {{1}, {1}, {0}, {0}, {1}, {1}, {1}, {0}, {2}, {2}, {1}},
     .data = {{1, 10, 100, 1000}, {1, 2, 3, 4, 5, 6, 7, 8, 9}},
     .out = {{5421, 6532, 8754, 9865}, {1111}}},

    {"the first of equals", &kolo_op_max_pool2d, 1, .in = {S4(1, 1, 3, 3)},
     .attr = {{2}, {2}, {1}, {1}}, .data = {{3, 1, 2, 5, 4, 9, 7, 7, 0}},
     .out = {{5, 9, 7, 9}, {2, 3, 2, 1}}},
    {"padding never wins", &kolo_op_max_pool2d, 1, .in = {S4(1, 1, 2, 2)},
     .attr = {{2}, {2}, {2}, {2}, {1}, {1}}, .data = {{-1, -2, -3, -4}},
     .out = {{-1, -2, -3, -4}, {3, 2, 1, 0}}},
    {"relu keeps the index", &kolo_op_max_pool2d, 1, .in = {S4(1, 1, 2, 2)},
     .attr = {{2}, {2}, {2}, {2}, {1}, {1}, {1}}, .data = {{-1, -2, 3, -4}},
     .out = {{0, 0, 3, 0}, {3, 2, 1, 0}}},
    {"overlapping", &kolo_op_max_pool2d_bwd, 2, .in = {S4(1, 1, 2, 2), S4(1, 1, 2, 2)},
     .types = "fb", .attr = {{2}, {2}, {1}, {1}, {0}, {0}, {0}, {3}, {3}},
     .data = {{1, 2, 3, 4}, {2, 3, 2, 1}}, .out = {{0, 0, 0, 1, 0, 6, 3, 0, 0}}},
    {"of relu", &kolo_op_max_pool2d_bwd, 3, .in = {S4(1, 1, 2, 2), S4(1, 1, 2, 2), S4(1, 1, 2, 2)},
     .types = "fbf", .attr = {{2}, {2}, {1}, {1}, {0}, {0}, {0}, {3}, {3}},
     .data = {{1, 2, 3, 4}, {2, 3, 2, 1}, {5, 0, 7, -1}}, .out = {{0, 0, 0, 1, 0, 0, 3, 0, 0}}},
    {"padding counts", &kolo_op_avg_pool2d, 1, .in = {S4(1, 1, 3, 3)},
     .attr = {{2}, {2}, {2}, {2}, {1}, {1}}, .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9}},
     .out = {{0.25, 1.25, 2.75, 7}}},
    {"padding counts", &kolo_op_avg_pool2d_bwd, 1, .in = {S4(1, 1, 2, 2)},
     .attr = {{2}, {2}, {2}, {2}, {1}, {1}, {0}, {3}, {3}}, .data = {{4, 8, 12, 16}},
     .out = {{1, 2, 2, 3, 4, 4, 3, 4, 4}}},

    {"ceil", &kolo_op_max_pool2d, 1, .in = {S4(1, 1, 1, 3)},
     .attr = {{1}, {2}, {1}, {2}, {0}, {0}, {0}, {0}, {0}, {1}}, .data = {{1, 5, 2}},
     .out = {{5, 2}, {1, 0}}},
    {"ceil: padding behind does not count twice", &kolo_op_avg_pool2d, 1, .in = {S4(1, 1, 1, 4)},
     .attr = {{1}, {3}, {1}, {2}, {0}, {1}, {0}, {0}, {0}, {1}}, .data = {{3, 6, 9, 4}},
     .out = {{3, 19 / 3.0, 2}}},
    {"ceil, exclude_padding", &kolo_op_avg_pool2d, 1, .in = {S4(1, 1, 1, 4)},
     .attr = {{1}, {3}, {1}, {2}, {0}, {1}, {0}, {0}, {0}, {1}, {1}}, .data = {{3, 6, 9, 4}},
     .out = {{4.5, 19 / 3.0, 4}}},
    {"overlapping", &kolo_op_adaptive_avg_pool2d, 1, .in = {S4(1, 1, 1, 3)}, .attr = {{1}, {2}},
     .data = {{1, 2, 6}}, .out = {{1.5, 4}}},
    {"overlapping", &kolo_op_adaptive_avg_pool2d_bwd, 1, .in = {S4(1, 1, 1, 2)}, .attr = {{1}, {3}},
     .data = {{2, 4}}, .out = {{1, 3, 2}}},
    {"borders", &kolo_op_resize, 1, .in = {S4(1, 1, 1, 2)}, .attr = {{1}, {4}}, .data = {{0, 4}},
     .out = {{0, 1, 3, 4}}},
    {"corners", &kolo_op_resize, 1, .in = {S4(1, 1, 2, 1)}, .attr = {{3}, {1}, {1}},
     .data = {{0, 4}}, .out = {{0, 2, 4}}},
    {"borders", &kolo_op_resize_bwd, 1, .in = {S4(1, 1, 1, 4)}, .attr = {{1}, {2}},
     .data = {{1, 2, 3, 4}}, .out = {{3.25, 6.75}}},
    {"three channels", &kolo_op_lrn, 1, .in = {S2(1, 3)},
     .attr = {{3}, {.f = 3}, {.f = 1}, {.f = 1}}, .data = {{1, 2, 3}},
     .out = {{1 / 6.0, 2 / 15.0, 3 / 14.0}, {6, 15, 14}}},
    {"two channels", &kolo_op_lrn_bwd, 3, .in = {S2(1, 2), S2(1, 2), S2(1, 2)},
     .attr = {{3}, {.f = 3}, {.f = 1}, {.f = 1}}, .data = {{2, 4}, {1, 1}, {2, 4}},
     .out = {{-0.5, -0.5}}},

    {"plain", &kolo_op_linear, 2, .in = {S2(2, 3), S2(2, 3)},
     .data = {{1, 2, 3, 4, 5, 6}, {1, 0, -1, 2, 1, 0}}, .out = {{-2, 4, -2, 13}}},
    {"bias, relu", &kolo_op_linear, 3, .in = {S2(2, 3), S2(2, 3), S1(2)}, .attr = {{1}},
     .data = {{1, 2, 3, 4, 5, 6}, {1, 0, -1, 2, 1, 0}, {10, -20}}, .out = {{8, 0, 8, 0}}},
    {"erf, bias", &kolo_op_linear_gelu, 3, .in = {S2(4, 1), S2(1, 1), S1(1)}, .attr = {{0}, {1}},
     .data = {{-4, -1.5, -0.75, 1}, {1}, {1}},
     .out = {{-0.0040496940948903104, -0.15426876936299344, 0.14967658142073093,
              1.9544997361036416},
             {-3, -0.5, 0.25, 2}}},
    {"tanh", &kolo_op_linear_gelu, 2, .in = {S2(2, 1), S2(2, 1)}, .attr = {{1}},
     .data = {{1, -4}, {-0.5, 0.5}},
     .out = {{-0.15428599017485606, 0.34571400982514394, 1.954597694087775, -0.045402305912225}}},
    {"images", &kolo_op_linear_bwd_data, 2, .in = {S2(2, 2), S4(2, 1, 3, 1)},
     .data = {{1, 2, 3, 4}, {1, 0, -1, 2, 1, 0}}, .out = {{5, 2, -1, 11, 4, -3}}},
    {"bias", &kolo_op_linear_bwd_weights, 2, .in = {S2(2, 2), S2(2, 3)}, .attr = {{1}},
     .data = {{1, 2, 3, 4}, {1, 2, 3, 4, 5, 6}}, .out = {{13, 17, 21, 18, 24, 30}, {4, 6}}},

    {"images", &kolo_op_bias, 2, .in = {S4(2, 2, 1, 2), S1(2)},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8}, {10, 20}}, .out = {{11, 12, 23, 24, 15, 16, 27, 28}}},
    {"images", &kolo_op_bias_bwd, 1, .in = {S4(2, 2, 1, 2)}, .data = {{1, 2, 3, 4, 5, 6, 7, 8}},
     .out = {{14, 22}}},
    {"signs", &kolo_op_relu, 1, .in = {S1(3)}, .data = {{-1, 0, 2}}, .out = {{0, 0, 2}}},
    {"zero is flat", &kolo_op_relu_bwd, 2, .in = {S1(3), S1(3)}, .data = {{5, 6, 7}, {-1, 0, 2}},
     .out = {{0, 0, 7}}},
    {"of two", &kolo_op_relu_bwd, 3, .in = {S1(3), S1(3), S1(3)},
     .data = {{5, 6, 7}, {-1, 0, 2}, {10, 20, 30}}, .out = {{0, 0, 37}}},
    {"sums, relu", &kolo_op_add, 2, .in = {S1(3), S1(3)}, .attr = {{1}},
     .data = {{1, 2, -3}, {30, -2, 1}}, .out = {{31, 0, 0}}},
    {"sums", &kolo_op_add, 2, .in = {S2(2, 1), S2(2, 1)}, .data = {{1, 2}, {30, -2}},
     .out = {{31, 0}}},

    {"one channel", &kolo_op_batch_norm, 5, .in = {S4(2, 1, 1, 2), S1(1), S1(1), S1(1), S1(1)},
     .attr = {{.f = 4}}, .data = {{1, 3, 5, 7}, {6}, {1}, {100}, {100}},
     .out = {{-5, -1, 3, 7}, {4}, {5}}},
    {"two channels, relu", &kolo_op_batch_norm, 5,
     .in = {S4(1, 2, 1, 2), S1(2), S1(2), S1(2), S1(2)}, .attr = {{.f = 0}, {.f = 0}, {1}},
     .data = {{1, 3, 10, 20}, {1, 5}, {0, 1}}, .out = {{0, 1, 0, 6}, {2, 15}, {1, 25}}},
    {"residual, relu", &kolo_op_batch_norm, 6,
     .in = {S4(2, 1, 1, 2), S1(1), S1(1), S1(1), S1(1), S4(2, 1, 1, 2)},
     .attr = {{.f = 4}, {.f = 0}, {1}},
     .data = {{1, 3, 5, 7}, {6}, {1}, {100}, {100}, {1, 2, 3, -9}},
     .out = {{0, 1, 6, 0}, {4}, {5}}},
    {"residual", &kolo_op_batch_norm_infer, 6,
     .in = {S4(1, 1, 1, 2), S1(1), S1(1), S1(1), S1(1), S4(1, 1, 1, 2)}, .attr = {{.f = 1}},
     .data = {{1, 4}, {2}, {-1}, {2}, {3}, {10, 20}}, .out = {{8, 21}}},
    {"one channel", &kolo_op_batch_norm_bwd, 5,
     .in = {S4(1, 1, 1, 4), S4(1, 1, 1, 4), S1(1), S1(1), S1(1)}, .attr = {{.f = 4}},
     .data = {{1, 2, 3, 6}, {1, 3, 5, 7}, {3}, {4}, {5}},
     .out = {{-2 / 3.0, -5 / 9.0, -4 / 9.0, 5 / 3.0}, {16 / 3.0}, {12}}},
    {"of relu", &kolo_op_batch_norm_bwd, 6,
     .in = {S4(1, 1, 1, 4), S4(1, 1, 1, 4), S1(1), S1(1), S1(1), S1(1)},
     .attr = {{.f = 4}, {.f = 0}, {1}}, /* y was max(0, x - 2) */
     .data = {{1, 2, 3, 6}, {1, 3, 5, 7}, {3}, {4}, {5}, {2}},
     .out = {{-7 / 6.0, -2 / 9.0, -5 / 18.0, 5 / 3.0}, {19 / 3.0}, {11}}},
    {"one channel", &kolo_op_batch_norm_infer, 5,
     .in = {S4(1, 1, 1, 2), S1(1), S1(1), S1(1), S1(1)}, .attr = {{.f = 1}},
     .data = {{1, 4}, {2}, {-1}, {2}, {3}}, .out = {{-2, 1}}},
    {"relu", &kolo_op_batch_norm_infer, 5, .in = {S4(1, 1, 1, 2), S1(1), S1(1), S1(1), S1(1)},
     .attr = {{.f = 1}, {.f = 0}, {1}}, .data = {{1, 4}, {2}, {-1}, {2}, {3}}, .out = {{0, 1}}},
    {"a quarter", &kolo_op_batch_norm_update, 4, .in = {S1(1), S1(1), S1(1), S1(1)},
     .attr = {{.f = 0.75}, {.f = 0.25}}, .data = {{1}, {2}, {3}, {4}}, .out = {{1.5}, {2.5}}},
    {"by a half", &kolo_op_scale, 2, .in = {S1(2), {0, {0}}}, .attr = {{.f = 0.5}},
     .data = {{1, 2}, {3}}, .out = {{1.5, 3}}},
    {"mse", &kolo_op_elementwise_loss, 2, .in = {S1(3), S1(3)}, .attr = {{KOLO_LOSS_MSE}},
     .data = {{1, 2, 4}, {3, 2, 1}}, .out = {{13}}},
    {"l1", &kolo_op_elementwise_loss, 2, .in = {S1(3), S1(3)}, .attr = {{KOLO_LOSS_L1}},
     .data = {{1, 2, 4}, {3, 2, 1}}, .out = {{5}}},
    {"huber", &kolo_op_elementwise_loss, 2, .in = {S1(3), S1(3)},
     .attr = {{KOLO_LOSS_HUBER}, {.f = 2}}, .data = {{1, 2, 4}, {3, 1, 1}}, .out = {{6.5}}},
    /* log 2; log(1 + e) - 1; log(1 + e^-1), which is the same */
    {"bce", &kolo_op_elementwise_loss, 2, .in = {S1(3), S1(3)}, .attr = {{KOLO_LOSS_BCE}},
     .data = {{0, 1, -1}, {0.5, 1, 0}}, .out = {{0.69314718055994531 + 2 * 0.31326168751822281}}},
    {"mse", &kolo_op_elementwise_loss_bwd, 3, .in = {S1(3), S1(3), {0, {0}}},
     .attr = {{KOLO_LOSS_MSE}}, .data = {{1, 2, 4}, {3, 2, 1}, {0.5}}, .out = {{-2, 0, 3}}},
    {"l1", &kolo_op_elementwise_loss_bwd, 3, .in = {S1(3), S1(3), {0, {0}}},
     .attr = {{KOLO_LOSS_L1}}, .data = {{1, 2, 4}, {3, 2, 1}, {0.5}}, .out = {{-0.5, 0, 0.5}}},
    {"huber", &kolo_op_elementwise_loss_bwd, 3, .in = {S1(3), S1(3), {0, {0}}},
     .attr = {{KOLO_LOSS_HUBER}, {.f = 2}}, .data = {{1, 2, 9}, {9, 1, 1}, {2}},
     .out = {{-4, 2, 4}}},
    {"bce", &kolo_op_elementwise_loss_bwd, 3, .in = {S1(1), S1(1), {0, {0}}},
     .attr = {{KOLO_LOSS_BCE}}, .data = {{0}, {0.25}, {2}}, .out = {{0.5}}},
    {"all", &kolo_op_sum, 1, .in = {S2(2, 2)}, .attr = {{0}}, .data = {{1, 2, -4, 8}},
     .out = {{7}}},
    {"all", &kolo_op_sum_bwd, 2, .in = {{0, {0}}, S1(3)}, .attr = {{0}}, .data = {{2}, {1, 5, 9}},
     .out = {{2, 2, 2}}},
    {"by a number", &kolo_op_scale, 1, .in = {S1(2)}, .attr = {{.f = -3}}, .data = {{1, 2}},
     .out = {{-3, -6}}},

    {"two", &kolo_op_concat, 2, .in = {S4(2, 1, 1, 2), S4(2, 2, 1, 2)},
     .data = {{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11, 12}},
     .out = {{1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12}}},
    {"inside", &kolo_op_channel_window, 1, .in = {S2(2, 3)}, .attr = {{1}, {2}},
     .data = {{1, 2, 3, 4, 5, 6}}, .out = {{2, 3, 5, 6}}},
    {"over both ends", &kolo_op_channel_window, 1, .in = {S4(2, 2, 1, 1)}, .attr = {{-1}, {4}},
     .data = {{1, 2, 3, 4}}, .out = {{0, 1, 2, 0, 0, 3, 4, 0}}},

    {"nothing dropped", &kolo_op_dropout, 3, .in = {S2(2, 2), {0, {0}}, {0, {0}}}, .types = "fll",
     .data = {{1, 2, 3, 4}, {7}, {5}}, .out = {{1, 2, 3, 4}}},

    {"count", &kolo_op_softmax_xent, 2, .in = {S2(5, 3), S1(5)}, .types = "fi",
     .attr = {{0}, {0}, {0}, {1}},
     .data = {{1, 1, 1, 1, 1, 1, 0, 50, 50, 0, 50, 50, 0, 50, 50}, {0, -1, 2, 1, 3}},
     .out = {{1.0986122886681098 + 2 * 0.6931471805599453},
             {1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 0, 0.5, 0.5, 0, 0.5, 0.5, 0,
              0.5, 0.5},
             {2}}},
    {"large logits", &kolo_op_softmax_xent, 2, .in = {S2(2, 2), S1(2)}, .types = "fi",
     .data = {{0, LN3, 1000, 1000}, {1, 0}},
     .out = {{2 * LN2 - LN3 + LN2}, {0.25, 0.75, 0.5, 0.5}}},
    {"labels outside", &kolo_op_softmax_xent, 2, .in = {S2(3, 2), S1(3)}, .types = "fi",
     .data = {{0, LN3, -1000, -1000, 5, 5}, {-1, 0, 2}},
     .out = {{LN2}, {0.25, 0.75, 0.5, 0.5, 0.5, 0.5}}},
    {"smoothing", &kolo_op_softmax_xent, 2, .in = {S2(1, 2), S1(1)}, .types = "fi",
     .attr = {{0}, {0}, {.f = 0.5}}, .data = {{0, LN3}, {1}},
     .out = {{2 * LN2 - 0.75 * LN3}, {0.25, 0.75}}},
    {"maps, one ignored", &kolo_op_softmax_xent, 2, .in = {S4(1, 2, 1, 2), {3, {1, 1, 2}}},
     .types = "fi", .attr = {{1}, {0}}, .data = {{0, 0, LN3, 0}, {1, 0}},
     .out = {{2 * LN2 - LN3}, {0.25, 0.5, 0.75, 0.5}}},
    {"labels outside", &kolo_op_softmax_xent_bwd, 3, .in = {S2(3, 2), S1(3), {0, {0}}},
     .types = "fif", .data = {{0.25, 0.75, 0.5, 0.5, 0.5, 0.5}, {1, 2, -1}, {2}},
     .out = {{0.5, -0.5, 0, 0, 0, 0}}},
    {"a probability rounded to 1", &kolo_op_softmax_xent_bwd, 3, .in = {S2(1, 3), S1(1), {0, {0}}},
     .types = "fif", .data = {{1, 0.125, 0.0625}, {0}, {2}}, .out = {{-0.375, 0.25, 0.125}}},
    {"the first of equals; labels outside", &kolo_op_accuracy, 2, .in = {S2(5, 3), S1(5)},
     .types = "fi", .data = {{1, 3, 2, 2, 2, 1, 2, 2, 1, 5, 1, 1, 1, 1, 5}, {1, 0, 1, -1, 3}},
     .out = {{2}}},

    {"the first of equals; labels outside", &kolo_op_confusion, 2, .in = {S2(5, 3), S1(5)},
     .types = "fi", .data = {{1, 3, 2, 2, 2, 1, 2, 2, 1, 5, 1, 1, 1, 1, 5}, {1, 0, 1, -1, 3}},
     .out = {{1, 0, 0, 1, 1, 0, 0, 0, 0}}},

    {"plain", &kolo_op_sgd, 3, .in = {S1(2), S1(2), {0, {0}}}, .data = {{1, 2}, {0.5, -1}, {0.1}},
     .out = {{0.95, 2.1}}},
    {"weight decay", &kolo_op_sgd, 3, .in = {S1(2), S1(2), {0, {0}}},
     .attr = {{.f = 0}, {.f = 0.5}}, .data = {{1, 2}, {0.5, -1}, {0.1}}, .out = {{0.9, 2}}},
    {"momentum", &kolo_op_sgd, 4, .in = {S1(2), S1(2), {0, {0}}, S1(2)}, .attr = {{.f = 0.5}},
     .data = {{1, 2}, {0.5, -1}, {0.1}, {2, 4}}, .out = {{0.85, 1.9}, {1.5, 1}}},
    {"nesterov, weight decay", &kolo_op_sgd, 4, .in = {S1(2), S1(2), {0, {0}}, S1(2)},
     .attr = {{.f = 0.5}, {.f = 0.5}, {1}}, .data = {{1, 2}, {0.5, -1}, {0.1}, {2, 4}},
     .out = {{0.8, 1.9}, {2, 2}}},

    {"erf", &kolo_op_gelu, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.0040496940948903104, -0.15426876936299344, 0, 0.14967658142073093,
              1.9544997361036416, 40}}},
    {"erf", &kolo_op_gelu_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.01194564720418392, 0.26500975068767424, 1.5, -2.7814934195345442,
              5.4261590053909847, 6}}},
    {"tanh", &kolo_op_gelu, 1, .in = {S1(6)}, .attr = {{1}}, .data = {{-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.0036373920817729943, -0.15428599017485606, 0, 0.149675350701685, 1.954597694087775,
              40}}},
    {"erf, bias", &kolo_op_gelu_bwd, 2, .in = {S2(3, 2), S2(3, 2)}, .attr = {{0}, {1}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.01194564720418392, 0.26500975068767424, 1.5, -2.7814934195345442,
              5.4261590053909847, 6},
             {6.9142133581868008, 3.4835163311531300}}},
    {"tanh", &kolo_op_gelu_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{1}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.011584166630969648, 0.26526019293071529, 1.5, -2.7814163806042416,
              5.4304962831180914, 6}}},
    {"odd", &kolo_op_silu, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.14227761953270035, -0.1887703343990727, 0, 0.14054412522144952, 1.7615941559557646,
              40}}},
    {"odd", &kolo_op_silu_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.088104106015169617, 0.52007762539469637, 1.5, -2.4948400862807909,
              5.4539212439244782, 6}}},
    {"odd", &kolo_op_sigmoid, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{0.047425873177566781, 0.37754066879814541, 0.5, 0.56217650088579807,
              0.88079707797788231, 1}}},
    {"odd", &kolo_op_sigmoid_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6},
              {0.047425873177566781, 0.37754066879814541, 0.5, 0.56217650088579807,
               0.88079707797788231, 1}},
     .out = {{0.045176659730912137, 0.47000742440318899, 0.75, -0.98453633095039339,
              0.52496792701753303, 0}}},
    {"odd", &kolo_op_tanh, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0, 0.25, 2, 40}},
     .out = {{-0.99505475368673046, -0.46211715726000974, 0, 0.24491866240370913,
              0.9640275800758169, 1}}},
    {"odd", &kolo_op_tanh_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6},
              {-0.99505475368673046, -0.46211715726000974, 0, 0.24491866240370913,
               0.9640275800758169, 1}},
     .out = {{0.0098660371654401662, 1.5728954659318548, 3, -3.7600593952255119,
              0.35325412426582214, 0}}},
    {"odd", &kolo_op_exp, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0, 0.25, 2, 5}},
     .out = {{0.049787068367863944, 0.6065306597126334, 1, 1.2840254166877414, 7.38905609893065,
              148.4131591025766}}},
    {"odd", &kolo_op_exp_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6},
              {0.049787068367863944, 0.6065306597126334, 1, 1.2840254166877414, 7.38905609893065,
               148.4131591025766}},
     .out = {{0.049787068367863944, 1.2130613194252668, 3, -5.136101666750966, 36.945280494653254,
              890.4789546154595}}},
    {"odd", &kolo_op_log, 1, .in = {S1(6)}, .data = {{0.5, 0.125, 1, 0.25, 2, 40}},
     .out = {{-0.6931471805599453, -2.0794415416798357, 0, -1.3862943611198906, 0.6931471805599453,
              3.6888794541139363}}},
    {"odd", &kolo_op_log_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {0.5, 0.125, 1, 0.25, 2, 40}},
     .out = {{2, 16, 3, -16, 2.5, 0.15}}},
    {"odd", &kolo_op_sqrt, 1, .in = {S1(6)}, .data = {{0.5, 0.125, 1, 0.25, 2, 40}},
     .out = {{0.7071067811865476, 0.3535533905932738, 1, 0.5, 1.4142135623730951,
              6.324555320336759}}},
    {"odd", &kolo_op_sqrt_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6},
              {0.7071067811865476, 0.3535533905932738, 1, 0.5, 1.4142135623730951,
               6.324555320336759}},
     .out = {{0.7071067811865475, 2.82842712474619, 1.5, -4, 1.7677669529663687,
              0.4743416490252569}}},
    {"odd", &kolo_op_rsqrt, 1, .in = {S1(6)}, .data = {{0.5, 0.125, 1, 0.25, 2, 40}},
     .out = {{1.414213562373095, 2.82842712474619, 1, 2, 0.7071067811865475, 0.15811388300841897}}},
    {"odd", &kolo_op_rsqrt_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6},
              {1.414213562373095, 2.82842712474619, 1, 2, 0.7071067811865475, 0.15811388300841897}},
     .out = {{-1.4142135623730947, -22.627416997969515, -1.5, 16, -0.8838834764831842,
              -0.011858541225631423}}},
    {"odd", &kolo_op_reciprocal, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{-0.3333333333333333, -2, 8, 4, 0.5, 0.025}}},
    {"odd", &kolo_op_reciprocal_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {-0.3333333333333333, -2, 8, 4, 0.5, 0.025}},
     .out = {{-0.1111111111111111, -8, -192, 64, -1.25, -0.0037500000000000007}}},
    {"odd", &kolo_op_abs, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{3, 0.5, 0.125, 0.25, 2, 40}}},
    {"odd", &kolo_op_abs_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}}, .out = {{-1, -2, 3, -4, 5, 6}}},
    {"odd", &kolo_op_pow, 1, .in = {S1(6)}, .attr = {{.f = 3}},
     .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{-27, -0.125, 0.001953125, 0.015625, 8, 64000}}},
    {"odd", &kolo_op_pow_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = 3}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{27, 1.5, 0.140625, -0.75, 60, 28800}}},
    {"odd", &kolo_op_pow, 1, .in = {S1(6)}, .attr = {{.f = -1.5}},
     .data = {{0.5, 0.125, 1, 0.25, 2, 40}},
     .out = {{2.8284271247461903, 22.627416997969522, 1, 8, 0.3535533905932738,
              0.003952847075210474}}},
    {"odd", &kolo_op_pow_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = -1.5}},
     .data = {{1, 2, 3, -4, 5, 6}, {0.5, 0.125, 1, 0.25, 2, 40}},
     .out = {{-8.485281374238571, -543.0580079512686, -4.5, 192, -1.3258252147247767,
              -0.0008893905919223567}}},
    {"odd", &kolo_op_clamp, 1, .in = {S1(6)}, .attr = {{.f = -0.5}, {.f = 2}},
     .data = {{-3, -0.5, 0.125, 0.25, 2, 40}}, .out = {{-0.5, -0.5, 0.125, 0.25, 2, 2}}},
    {"odd", &kolo_op_clamp_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = -0.5}, {.f = 2}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}}, .out = {{0, 2, 3, -4, 5, 0}}},
    {"odd", &kolo_op_hardtanh, 1, .in = {S1(6)}, .attr = {{.f = -0.5}, {.f = 2}},
     .data = {{-3, -0.5, 0.125, 0.25, 2, 40}}, .out = {{-0.5, -0.5, 0.125, 0.25, 2, 2}}},
    {"odd", &kolo_op_hardtanh_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = -0.5}, {.f = 2}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}}, .out = {{0, 0, 3, -4, 0, 0}}},
    {"odd", &kolo_op_leaky_relu, 1, .in = {S1(6)}, .attr = {{.f = 0.2}},
     .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{-0.6000000000000001, -0.1, 0.125, 0.25, 2, 40}}},
    {"odd", &kolo_op_leaky_relu_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = 0.2}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{0.2, 0.4, 3, -4, 5, 6}}},
    {"odd", &kolo_op_elu, 1, .in = {S1(6)}, .attr = {{.f = 1.5}},
     .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{-1.4253193974482041, -0.5902040104310499, 0.125, 0.25, 2, 40}}},
    {"odd", &kolo_op_elu_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = 1.5}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{0.07468060255179591, 1.8195919791379003, 3, -4, 5, 6}}},
    {"odd", &kolo_op_softplus, 1, .in = {S1(6)}, .attr = {{.f = 0.5}},
     .data = {{-3, -0.5, 0, 0.25, 2, 10}},
     .out = {{0.4028265559655048, 1.1518788397576871, 1.3862943611198906, 1.5151980706343382,
              2.6265233750364456, 10.013430696978237}}},
    {"odd", &kolo_op_softplus_bwd, 2, .in = {S1(6), S1(6)}, .attr = {{.f = 0.5}},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0, 0.25, 2, 10}},
     .out = {{0.18242552380635632, 0.8756469982284038, 1.5, -2.124837493495025, 3.6552928931500244,
              5.95984289445429}}},
    {"odd", &kolo_op_hardswish, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{-0, -0.20833333333333334, 0.06510416666666667, 0.13541666666666666,
              1.6666666666666667, 40}}},
    {"odd", &kolo_op_hardswish_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{-0.5, 0.6666666666666667, 1.625, -2.3333333333333335, 5.833333333333332, 6}}},
    {"odd", &kolo_op_hardsigmoid, 1, .in = {S1(6)}, .data = {{-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{0, 0.4166666666666667, 0.5208333333333334, 0.5416666666666666, 0.8333333333333334,
              1}}},
    {"odd", &kolo_op_hardsigmoid_bwd, 2, .in = {S1(6), S1(6)},
     .data = {{1, 2, 3, -4, 5, 6}, {-3, -0.5, 0.125, 0.25, 2, 40}},
     .out = {{0, 1.0 / 3, 0.5, -2.0 / 3, 5.0 / 6, 0}}},
    {"odd", &kolo_op_mul, 2, .in = {S1(3), S1(3)}, .data = {{1, 2, 3}, {4, -5, 6}},
     .out = {{4, -10, 18}}},
    {"tokens", &kolo_op_layer_norm, 3, .in = {S3(1, 2, 4), S1(4), S1(4)}, .attr = {{.f = 1e-2}},
     .data = {{1, 2, 3, 6, 0, -1, 0, 1}, {1, 2, -1, 0.5}, {0, 1, 2, 3}},
     .out = {{-1.0675210253672476, -0.067521025367247578, 2, 3.8006407690254358, 0,
              -1.8005601680560197, 2, 3.7001400420140049},
             {3, 0},
             {0.53376051268362379, 1.4002800840280099}}},
    {"tokens", &kolo_op_layer_norm_bwd, 5,
     .in = {S3(1, 2, 4), S3(1, 2, 4), S1(4), S2(1, 2), S2(1, 2)},
     .data = {{1, -1, 2, 0, 3, 1, 0.5, 1},
              {1, 2, 3, 6, 0, -1, 0, 1},
              {1, 2, -1, 0.5},
              {3, 0},
              {0.53376051268362379, 1.4002800840280099}},
     .out = {{0.93408089719634169, -0.66720064085452968, -0.66720064085452968, 0.40032038451271784,
              2.4504901470490172, 0.020592354176882433, -2.4504901470490172, -0.020592354176882433},
             {-1.0675210253672476, -0.86651957134438606, 0, 1.4002800840280099},
             {4, 0, 2.5, 1}}},
    {"positions, ids outside", &kolo_op_embedding, 3, .in = {S2(3, 2), S2(2, 3), S2(4, 2)},
     .types = "fif",
     .data = {{1, 2, 3, 4, 5, 6}, {0, 2, 3, 2, -1, 1}, {10, 20, 30, 40, 50, 60, 70, 80}},
     .out = {{11, 22, 35, 46, 50, 60, 15, 26, 30, 40, 53, 64}}},
    {"none", &kolo_op_embedding, 2, .in = {S2(3, 2), S2(2, 3)}, .types = "fi",
     .data = {{1, 2, 3, 4, 5, 6}, {0, 2, 3, 2, -1, 1}},
     .out = {{1, 2, 5, 6, 0, 0, 5, 6, 0, 0, 3, 4}}},
    {"ids outside, twice", &kolo_op_embedding_bwd, 2, .in = {S3(2, 3, 2), S2(2, 3)}, .types = "fi",
     .attr = {{3}}, .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {0, 2, 3, 2, -1, 1}},
     .out = {{1, 2, 11, 12, 10, 12}}},
    {"ids outside, twice, room to spare", &kolo_op_embedding_bwd_rows, 2,
     .in = {S3(2, 3, 2), S2(2, 3)}, .types = "fi", .attr = {{4}, {5}},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 0, 4, 0, -1, 1}},
     .out = {{10, 12, 11, 12, 1, 2, 0, 0, 0, 0}, {0, 1, 3, -1, -1}}},
    {"of two ranks", &kolo_op_merge_rows, 2, .in = {S2(4, 2), S1(4)}, .types = "fi",
     .attr = {{9}, {4}}, .data = {{1, 2, 3, 4, 5, 6, 0, 0}, {2, 7, 2, -1}},
     .out = {{6, 8, 3, 4, 0, 0, 0, 0}, {2, 7, -1, -1}}},
    {"two of three rows", &kolo_op_sgd_rows, 4, .in = {S2(3, 2), S2(3, 2), S1(3), {0, {0}}},
     .types = "ffif", .data = {{1, 2, 3, 4, 5, 6}, {1, 2, 4, 8, 0, 0}, {0, 2, -1}, {0.5}},
     .out = {{0.5, 1, 3, 4, 3, 2}}},
    {"one of two rows, second update", &kolo_op_adam_rows, 7,
     .in = {S2(2, 2), S2(1, 2), S1(1), {0, {0}}, {0, {0}}, S2(2, 2), S2(2, 2)}, .types = "ffiffff",
     .attr = {{.f = 0.5}, {.f = 0.75}, {.f = 0.5}},
     .data = {{1, 2, 3, 4}, {2, 0}, {1}, {0.75}, {2}, {1, 2, 0, 2}, {3, 4, 5, 12}},
     .out = {{1, 2, 3 - 0.66143782776614768 / (2.1794494717703365 + 0.5),
              4 - 0.66143782776614768 / 3.5},
             {1, 2, 1, 1},
             {3, 4, 4.75, 9}}},
    {"more rows", &kolo_op_position_bwd, 1, .in = {S3(2, 3, 2)}, .attr = {{4}},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, .out = {{8, 10, 12, 14, 16, 18, 0, 0}}},
    {"causal, two heads", &kolo_op_attention, 1, .in = {S3(1, 2, 6)}, .attr = {{2}, {1}},
     .data = {{-1.5, 0.25, 0, 0.25, -0, -0.5, -1.25, -1.5, 1.75, 0, 0.25, -2.75}},
     .out = {{0, -0.5, 0.025219655682514133, -1.8334998498966566},
             {0, 0.10633723997560358, 0.0625, 0.52312326413984012}}},
    {"causal, two heads", &kolo_op_attention_bwd, 4,
     .in = {S3(1, 2, 2), S3(1, 2, 6), S3(1, 2, 2), S3(1, 2, 2)}, .attr = {{2}, {1}},
     .data = {{-1.5, -0.5, 0.25, -0.5},
              {-1.5, 0.25, 0, 0.25, -0, -0.5, -1.25, -1.5, 1.75, 0, 0.25, -2.75},
              {0, -0.5, 0.025219655682514133, -1.8334998498966566},
              {0, 0.10633723997560358, 0.0625, 0.52312326413984012}},
     .out = {{0, 0, 0.007086103609854958, 0.40738427086435702, -1.2752196556825142,
              -0.70366670002296505, 0.0099205450537969402, -0.067897378477392842,
              -0.007086103609854958, -0.4073842708643573, 0.025219655682514133,
              -0.29633329997703484}}},
    {"mask", &kolo_op_attention, 2, .in = {S3(1, 3, 3), S2(1, 3)}, .types = "fi",
     .attr = {{1}, {0}}, .data = {{-1.5, 0.25, 2.25, 0.75, 1.25, -0.5, -1.5, 1, 0.75}, {1, 0, 1}},
     .out = {{1.8823724803014423, 1.294453808279425, 1.8823724803014423},
             {-0.093849863751685192, 1.2009372815951251, -0.093849863751685192}}},
    {"mask", &kolo_op_attention_bwd, 5,
     .in = {S3(1, 3, 1), S3(1, 3, 3), S3(1, 3, 1), S3(1, 1, 3), S2(1, 3)}, .types = "ffffi",
     .attr = {{1}, {0}},
     .data = {{0.75, 1, 1.75},
              {-1.5, 0.25, 2.25, 0.75, 1.25, -0.5, -1.5, 1, 0.75},
              {1.8823724803014423, 1.294453808279425, 1.8823724803014423},
              {-0.093849863751685192, 1.2009372815951251, -0.093849863751685192},
              {1, 0, 1}},
     .out = {{-0.15610923236554611, -0.78060283423572319, 2.2502566726886872, -0.2601253815345842,
              0, 0, -0.36425487551960767, 0.78060283423572341, 1.2497433273113123}}},
    {"plain", &kolo_op_matmul, 2, .in = {S3(1, 2, 2), S3(1, 2, 3)},
     .data = {{1, 2, 3, 4}, {1, 10, 100, 2, 20, 200}}, .out = {{5, 50, 500, 11, 110, 1100}}},
    {"both transposed", &kolo_op_matmul, 2, .in = {S3(1, 2, 2), S3(1, 3, 2)}, .attr = {{1}, {1}},
     .data = {{1, 3, 2, 4}, {1, 2, 10, 20, 100, 200}}, .out = {{5, 50, 500, 11, 110, 1100}}},
    {"two steps", &kolo_op_lstm, 3, .in = {S3(1, 2, 4), S2(4, 1), S1(4)},
     .data = {{0.5, -0.25, 1, 0.75, -1, 0.5, 0.25, -0.5}, {0.5, -1, 2, 0.25}, {0.25, 0.5, -0.5, 0}},
     .out = {{0.20643277738922564, 0.10333055739245493},
             {0.67917869917539297, 0.56217650088579807, 0.46211715726000974, 0.67917869917539297,
              0.34371470875938115, 0.68859676876732712, 0.16144065793060386, 0.38974319662934531},
             {0.31386012973448391, 0.27161259990260012}}},
    {"two steps", &kolo_op_lstm_bwd, 4, .in = {S3(1, 2, 1), S3(1, 2, 4), S3(1, 2, 1), S2(4, 1)},
     .data = {{1, -2},
              {0.67917869917539297, 0.56217650088579807, 0.46211715726000974, 0.67917869917539297,
               0.34371470875938115, 0.68859676876732712, 0.16144065793060386, 0.38974319662934531},
              {0.31386012973448391, 0.27161259990260012},
              {0.5, -1, 2, 0.25}},
     .out = {{-0.018042428266560884, 0, -0.095708291500678708, 0.034362773398790528,
              -0.026391205305188303, -0.04877303294932616, -0.24259646162267326,
              -0.12611635128965504}}},
    {"forth", &kolo_op_shift, 1, .in = {S3(2, 3, 2)}, .attr = {{0}},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
     .out = {{0, 0, 1, 2, 3, 4, 0, 0, 7, 8, 9, 10}}},
    {"back", &kolo_op_shift, 1, .in = {S3(2, 3, 2)}, .attr = {{1}},
     .data = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
     .out = {{3, 4, 5, 6, 0, 0, 9, 10, 11, 12, 0, 0}}},
    {"second update, weight decay", &kolo_op_adam, 6,
     .in = {S1(3), S1(3), {0, {0}}, {0, {0}}, S1(3), S1(3)},
     .attr = {{.f = 0.8}, {.f = 0.9}, {.f = 1e-3}, {.f = 0.1}, {0}},
     .data = {{0.90016638935108151, -1.9000832639467111, 0.40004875670404683},
              {1, 0.25, -3},
              {0.1},
              {2},
              {0.11999999999999997, -0.23999999999999994, 0.40999999999999986},
              {0.03599999999999999, 0.14399999999999996, 0.42024999999999985}},
     .out = {{0.80250418097826659, -1.839699339084091, 0.428578161149134},
             {0.31400332778702156, -0.18000166527893419, -0.26399902486591903},
             {0.15121362731553897, 0.12995990009019678, 1.2543821136054973}}},
    {"second update, decoupled", &kolo_op_adam, 6,
     .in = {S1(3), S1(3), {0, {0}}, {0, {0}}, S1(3), S1(3)},
     .attr = {{.f = 0.8}, {.f = 0.9}, {.f = 1e-3}, {.f = 0.1}, {1}},
     .data = {{0.89019960079840321, -1.8800999000999001, 0.39504997501249373},
              {1, 0.25, -3},
              {0.1},
              {2},
              {0.099999999999999978, -0.19999999999999996, 0.39999999999999991},
              {0.024999999999999994, 0.099999999999999978, 0.39999999999999991}},
     .out = {{0.78455366869166432, -1.8184285677850878, 0.42129054110566899},
             {0.27999999999999992, -0.10999999999999999, -0.27999999999999992},
             {0.12249999999999997, 0.096249999999999974, 1.2599999999999998}}},
    {"one block", &kolo_op_square_blocks, 1, .in = {S2(1, 3)}, .data = {{1, -2, 3}}, .out = {{14}}},
    {"alone", &kolo_op_square_sum, 1, .in = {S1(3)}, .data = {{1, 2, 3}}, .out = {{6}}},
    {"more", &kolo_op_square_sum, 2, .in = {S1(2), {0, {0}}}, .data = {{1, 4}, {6}}, .out = {{11}}},
    {"above", &kolo_op_clip_factor, 1, .in = {{0, {0}}}, .attr = {{.f = 2}}, .data = {{16}},
     .out = {{2 / 4.000001}}},
    {"below", &kolo_op_clip_factor, 1, .in = {{0, {0}}}, .attr = {{.f = 4.5}}, .data = {{16}},
     .out = {{1}}},
    {"one id", &kolo_op_mask_tokens, 4, .in = {{0, {0}}, {0, {0}}, S2(1, 3), S2(1, 3)},
     .types = "llii", .attr = {{3}, {0}, {1}}, .data = {{7}, {0}, {0, 0, 0}, {0, -1, 1}},
     .out = {{0, 0, 0}, {0, -1, 0}, {0, 0, 0}}},
};

/* ---- running one ---- */

typedef union buffer {
    double f64[MAX_NUMBERS];
    float f32[MAX_NUMBERS];
    int32_t i32[MAX_NUMBERS];
    int64_t i64[MAX_NUMBERS];
    uint8_t u8[MAX_NUMBERS];
} buffer;

static void store(const kolo_tensor *t, buffer *to, const double *from) {
    for (int64_t i = 0; i < kolo_shape_count(&t->shape); i++) {
        switch (t->dtype) {
        case KOLO_DTYPE_F64:
            to->f64[i] = from[i];
            break;
        case KOLO_DTYPE_F32:
            to->f32[i] = (float)from[i];
            break;
        case KOLO_DTYPE_I32:
            to->i32[i] = (int32_t)from[i];
            break;
        case KOLO_DTYPE_I64:
            to->i64[i] = (int64_t)from[i];
            break;
        default:
            to->u8[i] = (uint8_t)from[i];
            break;
        }
    }
}

static double load(const kolo_tensor *t, const buffer *from, int64_t i) {
    switch (t->dtype) {
    case KOLO_DTYPE_F64:
        return from->f64[i];
    case KOLO_DTYPE_F32:
        return from->f32[i];
    case KOLO_DTYPE_I32:
        return from->i32[i];
    case KOLO_DTYPE_I64:
        return (double)from->i64[i];
    default:
        return from->u8[i];
    }
}

static kolo_kernel_spec spec_of(const forward_case *c, kolo_dtype dtype) {
    kolo_kernel_spec spec = {.op = c->op, .attr = c->attr, .n_in = c->n_in, .threads = 1};
    for (int i = 0; i < c->n_in; i++) {
        char type = c->types ? c->types[i] : 'f';
        kolo_dtype of = type == 'i'   ? KOLO_DTYPE_I32
                        : type == 'l' ? KOLO_DTYPE_I64
                        : type == 'b' ? KOLO_DTYPE_U8
                                      : dtype;
        spec.in[i] = kolo_tensor_plain(of, c->in[i]);
        assert_in_range(kolo_shape_count(&c->in[i]), 1, MAX_NUMBERS);
    }
    kolo_shape_query q = {.attr = c->attr, .n_in = c->n_in, .in = spec.in, .out = spec.out};
    ASSERT_OK(c->op->shape(&q));
    spec.n_out = q.n_out;
    return spec;
}

static void run_case(const forward_case *c, kolo_dtype dtype, double tolerance) {
    kolo_kernel_spec spec = spec_of(c, dtype);
    const kolo_kernel *kernel;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    assert_true(kolo_kernel_is_ref(kernel));
    buffer in[MAX_INPUTS], out[MAX_OUTPUTS];
    memset(out, 0xA5, sizeof out);
    kolo_call call = {.spec = &spec};
    for (int i = 0; i < spec.n_in; i++) {
        store(&spec.in[i], &in[i], c->data[i]);
        call.in[i] = &in[i];
    }
    for (int i = 0; i < spec.n_out; i++) call.out[i] = &out[i];
    size_t scratch_bytes = 0;
    ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
    bool floats = !c->types || strchr(c->types, 'f');
    assert_true(dtype != KOLO_DTYPE_F32 || !floats || scratch_bytes > 0);
    call.scratch = kolo_alloc(scratch_bytes);
    assert_non_null(call.scratch);
    kernel->run(&call);
    for (int i = 0; i < spec.n_out; i++) {
        for (int64_t k = 0; k < kolo_shape_count(&spec.out[i].shape); k++) {
            double is = load(&spec.out[i], &out[i], k), should = c->out[i][k];
            if (!(fabs(is - should) <= tolerance * fmax(1, fabs(should)))) {
                fail_msg("%s, %s, %s: output %d element %d is %.17g, not %.17g", c->op->name,
                         c->name, kolo_dtype_name(dtype), i, (int)k, is, should);
            }
        }
    }
    kolo_free(call.scratch);
    kernel->release(call.state);
}

static void results_are_those_of_arithmetic(void **state) {
    for (size_t n = 0; n < KOLO_COUNT(cases); n++) {
        run_case(&cases[n], KOLO_DTYPE_F64, 1e-14);
        run_case(&cases[n], KOLO_DTYPE_F32, 1e-6);
    }
}

/* Every op that a kernel runs has a case; reorder is below, in the layouts that it is for, and
 * accumulate, which reads its output, in test_simd_pointwise.c; convert in test_precision.c. */
static void every_op_is_tested(void **state) {
    for (const kolo_op *const *op = kolo_ops; *op; op++) {
        bool found = (*op)->view || *op == &kolo_op_reorder || *op == &kolo_op_accumulate ||
                     *op == &kolo_op_convert;
        for (size_t n = 0; n < KOLO_COUNT(cases); n++) found |= cases[n].op == *op;
        if (!found) fail_msg("%s has no case", (*op)->name);
    }
}

/* ---- layouts ---- */

static void reorder_moves_between_layouts(void **state) {
    /* [1,3,1,2]: channels 1 2, 3 4, 5 6; NHWC; channels in blocks of two, the last half padding. */
    static const struct {
        const char *layout;
        int n;
        float data[8];
    } forms[] = {{"abcd", 6, {1, 2, 3, 4, 5, 6}},
                 {"acdb", 6, {1, 3, 5, 2, 4, 6}},
                 {"aBcd2b", 8, {1, 3, 2, 4, 5, 0, 6, 0}}};
    for (size_t from = 0; from < KOLO_COUNT(forms); from++) {
        for (size_t to = 0; to < KOLO_COUNT(forms); to++) {
            kolo_kernel_spec spec = {.op = &kolo_op_reorder, .n_in = 1, .n_out = 1, .threads = 1};
            spec.in[0] = spec.out[0] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_4(1, 3, 1, 2));
            ASSERT_OK(kolo_layout_parse(forms[from].layout, &spec.in[0].layout));
            ASSERT_OK(kolo_layout_parse(forms[to].layout, &spec.out[0].layout));
            const kolo_kernel *kernel;
            ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
            float in[8], out[8];
            memcpy(in, forms[from].data, sizeof in);
            memset(out, 0xA5, sizeof out);
            kernel->run(&(kolo_call){.spec = &spec, .in = {in}, .out = {out}});
            assert_memory_equal(out, forms[to].data, sizeof(float) * (size_t)forms[to].n);
        }
    }
}

static void reference_kernels_take_plain_layouts_only(void **state) {
    const forward_case *c = &cases[0];
    kolo_kernel_spec spec = spec_of(c, KOLO_DTYPE_F32);
    const kolo_kernel *kernel;
    spec.in[1].layout = (kolo_layout){0}; /* open: it chooses plain */
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    assert_true(kolo_spec_is_plain(&spec));
    ASSERT_OK(kolo_layout_parse("acdb", &spec.in[0].layout));
    assert_int_equal(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL),
                     KOLO_ERR_UNSUPPORTED);
    const char *text = kolo_last_error();
    assert_non_null(strstr(text, "conv2d: no reference kernel"));
    assert_non_null(strstr(text, "f32 [1,1,3,3] acdb, f32 [1,1,2,2] abcd -> f32 [1,1,2,2] abcd"));
}

/* ---- the list of kernels ---- */

static void best_is_a_reference_kernel_only_when_alone(void **state) {
    for (size_t n = 0; n < KOLO_COUNT(cases); n++) {
        kolo_kernel_spec spec = spec_of(&cases[n], KOLO_DTYPE_F32);
        bool other_fits = false;
        const kolo_kernel *k;
        for (size_t i = 0; (k = kolo_kernel_at(i)); i++) {
            kolo_kernel_spec trial = spec;
            trial.select = kolo_kernel_select_tuned;
            if (k->op != spec.op || kolo_kernel_is_ref(k)) continue;
            other_fits |= k->fit(&trial) >= 0;
        }
        const kolo_kernel *best;
        double seconds = -1;
        ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_BEST, &spec, &best, &seconds));
        assert_ptr_equal(best->op, spec.op);
        assert_int_equal(kolo_kernel_is_ref(best), !other_fits);
        assert_true(seconds >= 0);
    }
}

static void kernels_have_names_and_pairs(void **state) {
    const kolo_kernel *k, *other;
    for (size_t i = 0; (k = kolo_kernel_at(i)); i++) {
        assert_true(k->fit && k->run);
        assert_int_equal(!k->prepare, !k->release);
        assert_int_equal(!k->bind, !k->unbind);
        assert_false(k->op->view);
        for (size_t j = i + 1; (other = kolo_kernel_at(j)); j++) {
            assert_string_not_equal(other->name, k->name);
        }
    }
}

TEST_MAIN(test_op_forward) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_arithmetic),
        cmocka_unit_test(every_op_is_tested),
        cmocka_unit_test(reorder_moves_between_layouts),
        cmocka_unit_test(reference_kernels_take_plain_layouts_only),
        cmocka_unit_test(best_is_a_reference_kernel_only_when_alone),
        cmocka_unit_test(kernels_have_names_and_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
