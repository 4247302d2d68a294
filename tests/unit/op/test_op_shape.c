/* Shape rules: the output of each builder call, and the error of each invalid call. */
#include "graph/ops/ops.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

typedef kolo_value build_fn(kolo_graph *g);

static kolo_value image(kolo_graph *g, int64_t n, int64_t c, int64_t h, int64_t w) {
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, c, h, w));
}
static kolo_value weight(kolo_graph *g, kolo_shape shape) {
    return kolo_param(g, "w", shape, kolo_init_fan_in(1));
}
static kolo_value matrix(kolo_graph *g, const char *name, int64_t n, int64_t i) {
    return kolo_input(g, name, KOLO_DTYPE_F32, kolo_shape_2(n, i));
}
static kolo_value conv(kolo_graph *g, kolo_shape w, kolo_conv2d_opts opts) {
    return kolo_conv2d(g, image(g, 2, 4, 9, 7), weight(g, w), &opts);
}
static kolo_value pool(kolo_graph *g, kolo_pool2d_opts opts) {
    return kolo_max_pool2d(g, image(g, 2, 4, 9, 7), &opts);
}

/* ---- what fits ---- */

static kolo_value conv_default(kolo_graph *g) {
    return kolo_conv2d(g, image(g, 64, 1, 28, 28), weight(g, kolo_shape_4(6, 1, 5, 5)), NULL);
}
static kolo_value conv_padded(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 5, 3), (kolo_conv2d_opts){.pad_h = 2, .pad_w = 1});
}
static kolo_value conv_all(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 2, 3, 2),
                (kolo_conv2d_opts){.stride_h = 2,
                                   .stride_w = 3,
                                   .pad_h = 1,
                                   .dilation_h = 2,
                                   .dilation_w = 4,
                                   .groups = 2});
}
static kolo_value conv_exact(kolo_graph *g) {
    return conv(g, kolo_shape_4(1, 4, 9, 7), (kolo_conv2d_opts){0});
}
static kolo_value pool_default(kolo_graph *g) {
    return pool(g, (kolo_pool2d_opts){.kernel_h = 2, .kernel_w = 3});
}
static kolo_value pool_all(kolo_graph *g) {
    return pool(
        g, (kolo_pool2d_opts){
               .kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_h = 1, .pad_w = 1});
}
static kolo_value avg_pool(kolo_graph *g) {
    return kolo_avg_pool2d(g, image(g, 2, 4, 9, 7),
                           &(kolo_pool2d_opts){.kernel_h = 9, .kernel_w = 7});
}
static kolo_value pool_ceil(kolo_graph *g) {
    return pool(g, (kolo_pool2d_opts){
                       .kernel_h = 2, .kernel_w = 3, .stride_h = 2, .stride_w = 3, .ceil = true});
}
static kolo_value pool_ceil_padded(kolo_graph *g) { /* no window begins in the padding behind */
    return pool(g, (kolo_pool2d_opts){.kernel_h = 2,
                                      .kernel_w = 3,
                                      .stride_h = 2,
                                      .stride_w = 4,
                                      .pad_h = 1,
                                      .pad_w = 1,
                                      .ceil = true});
}
static kolo_value adaptive_pool(kolo_graph *g) {
    return kolo_adaptive_avg_pool2d(g, image(g, 2, 4, 9, 7), 4, 7);
}
static kolo_value adaptive_tiles(kolo_graph *g) {
    kolo_value y = kolo_adaptive_avg_pool2d(g, image(g, 2, 4, 9, 7), 3, 1);
    assert_ptr_equal(g->nodes[0]->op, &kolo_op_avg_pool2d);
    return y;
}
static kolo_value sample_by(kolo_graph *g, int64_t n, int64_t coordinates) {
    const kolo_shape shape = kolo_shape_4(n, 3, 5, coordinates);
    const kolo_value grid = kolo_input(g, "grid", KOLO_DTYPE_F32, shape);
    return kolo_grid_sample(g, image(g, 2, 4, 9, 7), grid, NULL);
}
static kolo_value sampled(kolo_graph *g) { return sample_by(g, 2, 2); }
static kolo_value sampled_once(kolo_graph *g) { return sample_by(g, 1, 2); }
static kolo_value sampled_deep(kolo_graph *g) { return sample_by(g, 2, 3); }
static kolo_value resized(kolo_graph *g) {
    return kolo_resize(g, image(g, 2, 4, 9, 7), 20, 5, false);
}
static kolo_value normalized(kolo_graph *g) { return kolo_lrn(g, image(g, 2, 4, 9, 7), NULL); }
static kolo_value scaled(kolo_graph *g) { return kolo_scale(g, image(g, 2, 4, 9, 7), 0.5); }
static kolo_value linear_plain(kolo_graph *g) {
    return kolo_linear(g, matrix(g, "x", 5, 7), weight(g, kolo_shape_2(3, 7)));
}
static kolo_value linear_images(kolo_graph *g) {
    return kolo_linear(g, image(g, 5, 3, 2, 4), weight(g, kolo_shape_4(10, 3, 2, 4)));
}
static kolo_value bias_images(kolo_graph *g) {
    return kolo_bias(g, image(g, 2, 3, 4, 5), weight(g, kolo_shape_1(3)));
}
static kolo_value relu_images(kolo_graph *g) { return kolo_relu(g, image(g, 2, 3, 4, 5)); }
static kolo_value add_twice(kolo_graph *g) {
    kolo_value x = image(g, 2, 3, 4, 5);
    return kolo_add(g, x, x);
}
static kolo_value flatten_images(kolo_graph *g) { return kolo_flatten(g, image(g, 2, 3, 4, 5)); }
static kolo_value norm_images(kolo_graph *g) {
    return kolo_batch_norm(g, image(g, 2, 3, 4, 5), "bn", NULL);
}
static kolo_value norm_rows(kolo_graph *g) {
    return kolo_batch_norm(g, matrix(g, "x", 5, 7), "bn", NULL);
}
static kolo_value global_pool(kolo_graph *g) {
    return kolo_global_avg_pool2d(g, image(g, 2, 4, 9, 7));
}
static kolo_value concat_thrice(kolo_graph *g) {
    kolo_value x = image(g, 2, 3, 4, 5);
    return kolo_concat(g, (kolo_value[]){x, x, x}, 3);
}
static kolo_value window_pads(kolo_graph *g) {
    return kolo_channel_window(g, image(g, 2, 3, 4, 5), -2, 8);
}
static kolo_value tokens_of(kolo_graph *g, int64_t channels) {
    kolo_value ids = kolo_input(g, "ids", KOLO_DTYPE_I32, kolo_shape_2(2, 5));
    kolo_value p = kolo_param(g, "p", kolo_shape_2(8, channels), kolo_init_fan_in(1));
    return kolo_embedding(g, weight(g, kolo_shape_2(100, channels)), ids, p);
}
static kolo_value embedding_ok(kolo_graph *g) { return tokens_of(g, 6); }
static kolo_value attention_ok(kolo_graph *g) {
    kolo_value x = kolo_layer_norm(g, kolo_gelu(g, tokens_of(g, 12), true), "norm", 0);
    return kolo_attention(g, x, &(kolo_attention_opts){.heads = 2, .causal = true});
}
static kolo_value lstm_ok(kolo_graph *g) { return kolo_lstm(g, tokens_of(g, 6), "lstm", 0, 9); }
static kolo_value matmul_ok(kolo_graph *g) {
    kolo_value x = kolo_silu(g, kolo_tanh(g, kolo_sigmoid(g, tokens_of(g, 6))));
    return kolo_reshape(g, kolo_matmul(g, kolo_mul(g, x, x), x, true, false), kolo_shape_2(4, 18));
}
static kolo_value loss_ok(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(5));
    return kolo_softmax_xent(g, matrix(g, "x", 5, 7), labels);
}
static kolo_value maps(kolo_graph *g) {
    return kolo_input(g, "labels", KOLO_DTYPE_I32, (kolo_shape){3, {2, 9, 7}});
}
static kolo_value loss_maps(kolo_graph *g) {
    kolo_loss_opts opts = {.has_ignore_index = true, .ignore_index = 3, .smoothing = 0.1};
    return kolo_softmax_xent_opts(g, image(g, 2, 4, 9, 7), maps(g), &opts);
}
static kolo_value accuracy_maps(kolo_graph *g) {
    return kolo_accuracy(g, image(g, 2, 4, 9, 7), maps(g));
}
static kolo_value confusion_maps(kolo_graph *g) {
    return kolo_confusion(g, image(g, 2, 4, 9, 7), maps(g));
}
static kolo_value accuracy_ok(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(5));
    return kolo_accuracy(g, matrix(g, "x", 5, 7), labels);
}

static kolo_value route_of(kolo_graph *g, int64_t top, int64_t capacity, int which) {
    kolo_value p = kolo_input(g, "p", KOLO_DTYPE_F32, kolo_shape_3(2, 5, 3)), out[2];
    kolo_expert_route(g, p, top, capacity, out);
    return out[which];
}
static kolo_value route_ok(kolo_graph *g) { return route_of(g, 3, 7, 1); }
static kolo_value experts_of(kolo_graph *g, int64_t tokens, kolo_shape w) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(2, tokens, 6));
    kolo_value places = route_of(g, 2, 4, 0);
    kolo_value y = kolo_expert_linear(g, kolo_expert_dispatch(g, x, places, 4), weight(g, w));
    kolo_value gates = kolo_input(g, "gates", KOLO_DTYPE_F32, kolo_shape_3(2, 5, 3));
    return kolo_expert_combine(g, y, places, gates);
}
static kolo_value experts_ok(kolo_graph *g) { return experts_of(g, 5, kolo_shape_3(3, 7, 6)); }

static void shapes_come_out(void **state) {
    static const struct {
        build_fn *build;
        const char *shape;
    } cases[] = {
        {conv_default, "[64,6,24,24]"},
        {conv_padded, "[2,6,9,7]"},
        {conv_all, "[2,6,4,1]"},
        {conv_exact, "[2,1,1,1]"},
        {pool_default, "[2,4,4,2]"},
        {pool_all, "[2,4,5,8]"},
        {avg_pool, "[2,4,1,1]"},
        {pool_ceil, "[2,4,5,3]"},
        {pool_ceil_padded, "[2,4,5,2]"},
        {adaptive_pool, "[2,4,4,7]"},
        {adaptive_tiles, "[2,4,3,1]"},
        {resized, "[2,4,20,5]"},
        {sampled, "[2,4,3,5]"},
        {normalized, "[2,4,9,7]"},
        {scaled, "[2,4,9,7]"},
        {loss_maps, "[]"},
        {accuracy_maps, "[]"},
        {confusion_maps, "[4,4]"},
        {linear_plain, "[5,3]"},
        {linear_images, "[5,10]"},
        {bias_images, "[2,3,4,5]"},
        {relu_images, "[2,3,4,5]"},
        {add_twice, "[2,3,4,5]"},
        {flatten_images, "[2,60]"},
        {norm_images, "[2,3,4,5]"},
        {norm_rows, "[5,7]"},
        {global_pool, "[2,4,1,1]"},
        {concat_thrice, "[2,9,4,5]"},
        {window_pads, "[2,8,4,5]"},
        {embedding_ok, "[2,5,6]"},
        {attention_ok, "[2,5,4]"},
        {lstm_ok, "[2,5,9]"},
        {matmul_ok, "[4,18]"},
        {route_ok, "[2,5,3]"},
        {experts_ok, "[2,5,7]"},
        {loss_ok, "[]"},
        {accuracy_ok, "[]"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        char text[KOLO_SHAPE_TEXT];
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value y = cases[i].build(g);
        ASSERT_OK(kolo_graph_check(g));
        ASSERT_OK(kolo_graph_verify(g));
        assert_string_equal(kolo_shape_text(&kolo_info(g, y)->tensor.shape, text), cases[i].shape);
        assert_int_equal(kolo_info(g, y)->tensor.dtype, KOLO_DTYPE_F32);
        assert_true(kolo_layout_is_plain(&kolo_info(g, y)->tensor.layout));
        kolo_graph_destroy(g);
    }
}

/* ---- what does not ---- */

static kolo_value conv_channels(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 3, 5, 5), (kolo_conv2d_opts){0});
}
static kolo_value conv_kernel(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 5, 9), (kolo_conv2d_opts){0});
}
static kolo_value conv_groups(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 1, 1), (kolo_conv2d_opts){.groups = 3});
}
static kolo_value conv_rank(kolo_graph *g) {
    return kolo_conv2d(g, matrix(g, "x", 2, 4), weight(g, kolo_shape_4(6, 4, 1, 1)), NULL);
}
static kolo_value conv_stride(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 1, 1), (kolo_conv2d_opts){.stride_w = -2});
}
static kolo_value conv_pad(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 1, 1), (kolo_conv2d_opts){.pad_h = -1});
}
static kolo_value conv_huge(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 1, 1), (kolo_conv2d_opts){.pad_h = INT64_MAX});
}
static kolo_value conv_many(kolo_graph *g) {
    return conv(g, kolo_shape_4(6, 4, 1, 1),
                (kolo_conv2d_opts){.pad_h = INT32_MAX, .pad_w = INT32_MAX});
}
static kolo_value conv_labels(kolo_graph *g) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_U8, kolo_shape_4(2, 4, 9, 7));
    return kolo_conv2d(g, x, weight(g, kolo_shape_4(6, 4, 1, 1)), NULL);
}
static kolo_value conv_types(kolo_graph *g) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_4(2, 4, 9, 7));
    return kolo_conv2d(g, x, weight(g, kolo_shape_4(6, 4, 1, 1)), NULL);
}
static kolo_value pool_no_kernel(kolo_graph *g) {
    return kolo_max_pool2d(g, image(g, 2, 4, 9, 7), NULL);
}
static kolo_value pool_big(kolo_graph *g) {
    return pool(g, (kolo_pool2d_opts){.kernel_h = 2, .kernel_w = 8});
}
static kolo_value pool_pad(kolo_graph *g) {
    return pool(g, (kolo_pool2d_opts){.kernel_h = 3, .kernel_w = 3, .pad_h = 2});
}
static kolo_value pool_index(kolo_graph *g) {
    return kolo_max_pool2d(g, image(g, 1, 1, 40, 40),
                           &(kolo_pool2d_opts){.kernel_h = 17, .kernel_w = 16});
}
static kolo_value linear_inner(kolo_graph *g) {
    return kolo_linear(g, matrix(g, "x", 5, 7), weight(g, kolo_shape_2(3, 8)));
}
static kolo_value linear_rank(kolo_graph *g) {
    return kolo_linear(g, image(g, 5, 1, 2, 4), weight(g, kolo_shape_2(3, 8)));
}
static kolo_value bias_size(kolo_graph *g) {
    return kolo_bias(g, image(g, 2, 3, 4, 5), weight(g, kolo_shape_1(5)));
}
static kolo_value bias_rank(kolo_graph *g) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_1(5));
    return kolo_bias(g, x, weight(g, kolo_shape_1(5)));
}
static kolo_value add_shapes(kolo_graph *g) {
    return kolo_add(g, matrix(g, "a", 5, 7), matrix(g, "b", 7, 5));
}
static kolo_value flatten_scalar(kolo_graph *g) { return kolo_flatten(g, kolo_scalar(g, "s")); }
static kolo_value norm_rank(kolo_graph *g) {
    return kolo_batch_norm(g, kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_1(5)), "bn", NULL);
}
static kolo_value norm_eps(kolo_graph *g) {
    return kolo_batch_norm(g, matrix(g, "x", 5, 7), "bn", &(kolo_batch_norm_opts){.eps = -1});
}
static kolo_value global_rank(kolo_graph *g) {
    return kolo_global_avg_pool2d(g, matrix(g, "x", 5, 7));
}
static kolo_value concat_rows(kolo_graph *g) {
    return kolo_concat(g, (kolo_value[]){matrix(g, "a", 5, 7), matrix(g, "b", 4, 7)}, 2);
}
static kolo_value concat_ranks(kolo_graph *g) {
    return kolo_concat(g, (kolo_value[]){matrix(g, "a", 2, 3), image(g, 2, 3, 1, 1)}, 2);
}
static kolo_value window_beside(kolo_graph *g) {
    return kolo_channel_window(g, matrix(g, "x", 5, 7), 7, 2);
}
static kolo_value dropout_all(kolo_graph *g) { return kolo_dropout(g, matrix(g, "x", 5, 7), 1); }
static kolo_value loss_labels(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(4));
    return kolo_softmax_xent(g, matrix(g, "x", 5, 7), labels);
}
static kolo_value loss_dtype(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_F32, kolo_shape_1(5));
    return kolo_softmax_xent(g, matrix(g, "x", 5, 7), labels);
}
static kolo_value loss_smooth(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(5));
    kolo_loss_opts opts = {.smoothing = 1};
    return kolo_softmax_xent_opts(g, matrix(g, "x", 5, 7), labels, &opts);
}
static kolo_value loss_weights(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(5));
    kolo_value weights = kolo_input(g, "weights", KOLO_DTYPE_F32, kolo_shape_1(5));
    kolo_loss_opts opts = {.weights = weights, .use_weights = true};
    return kolo_softmax_xent_opts(g, matrix(g, "x", 5, 7), labels, &opts);
}
static kolo_value ctc_of(kolo_graph *g, int64_t samples, int64_t blank) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(5, 7, 3));
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_2(samples, 2));
    return kolo_ctc_loss(g, x, labels, &(kolo_ctc_opts){.blank = blank});
}
static kolo_value route_top(kolo_graph *g) { return route_of(g, 4, 7, 0); }
static kolo_value route_none(kolo_graph *g) { return route_of(g, 1, 0, 0); }
static kolo_value experts_tokens(kolo_graph *g) { return experts_of(g, 4, kolo_shape_3(3, 7, 6)); }
static kolo_value experts_weights(kolo_graph *g) { return experts_of(g, 5, kolo_shape_3(2, 7, 6)); }
static kolo_value experts_rank(kolo_graph *g) { return experts_of(g, 5, kolo_shape_2(7, 6)); }
static kolo_value combine_other(kolo_graph *g) {
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_4(2, 2, 4, 6));
    kolo_value gates = kolo_input(g, "gates", KOLO_DTYPE_F32, kolo_shape_3(2, 5, 3));
    return kolo_expert_combine(g, y, route_of(g, 2, 4, 0), gates);
}
static kolo_value ctc_samples(kolo_graph *g) { return ctc_of(g, 4, 0); }
static kolo_value ctc_blank(kolo_graph *g) { return ctc_of(g, 5, 3); }
static kolo_value resize_none(kolo_graph *g) {
    return kolo_resize(g, image(g, 2, 4, 9, 7), 0, 5, true);
}
static kolo_value adaptive_rank(kolo_graph *g) {
    return kolo_adaptive_avg_pool2d(g, matrix(g, "x", 5, 7), 1, 1);
}
static kolo_value lrn_power(kolo_graph *g) {
    return kolo_lrn(g, image(g, 2, 4, 9, 7), &(kolo_lrn_opts){.beta = -1});
}
static kolo_value lrn_window(kolo_graph *g) {
    return kolo_lrn(g, image(g, 2, 4, 9, 7), &(kolo_lrn_opts){.size = -2});
}
static kolo_value confusion_labels(kolo_graph *g) {
    return kolo_confusion(g, image(g, 2, 4, 9, 8), maps(g));
}
static kolo_value accuracy_rank(kolo_graph *g) {
    kolo_value labels = kolo_input(g, "labels", KOLO_DTYPE_I32, kolo_shape_1(2));
    return kolo_accuracy(g, image(g, 2, 3, 1, 1), labels);
}

static void failures_name_op_and_shapes(void **state) {
    static const struct {
        build_fn *build;
        const char *op, *shape, *what; /* each is in the text */
    } cases[] = {
        {conv_channels, "conv2d: ", "f32 [2,4,9,7], f32 [6,3,5,5]", "must equal that"},
        {conv_kernel, "conv2d: ", "[6,4,5,9]", "the kernel spans 9 but the width"},
        {conv_groups, "conv2d: ", "[6,4,1,1]", "3 groups of 4 input and 6 output"},
        {conv_rank, "conv2d: ", "[2,4]", "N,C,H,W"},
        {conv_stride, "conv2d: ", "[6,4,1,1]", "stride -2"},
        {conv_pad, "conv2d: ", "[6,4,1,1]", "padding -1"},
        {conv_huge, "conv2d: ", "[6,4,1,1]", "choose a smaller one"},
        {conv_many, "conv2d: ", "[2,6,4294967303,4294967301]", "exceeds the address space"},
        {conv_labels, "conv2d: ", "u8 [2,4,9,7]", "must be f32 or f64"},
        {conv_types, "conv2d: ", "f64 [2,4,9,7], f32 [6,4,1,1]", "input 1 is f32; it must be f64"},
        {pool_no_kernel, "max_pool2d: ", "[2,4,9,7]", "kernel 0"},
        {pool_big, "max_pool2d: ", "[2,4,9,7]", "the kernel spans 8 but the width"},
        {pool_pad, "max_pool2d: ", "[2,4,9,7]", "at most half the kernel of 3"},
        {pool_index, "max_pool2d: ", "[1,1,40,40]", "17 x 16"},
        {linear_inner, "linear: ", "f32 [5,7], f32 [3,8]", "dimension 1 of x is 7"},
        {linear_rank, "linear: ", "f32 [5,1,2,4], f32 [3,8]", "or flatten x"},
        {bias_size, "bias: ", "f32 [2,3,4,5], f32 [5]", "must have 3 elements"},
        {bias_rank, "bias: ", "f32 [5], f32 [5]", "two or more dimensions"},
        {add_shapes, "broadcast_add: ", "f32 [5,7], f32 [7,5]", "sizes differ along dimension 0"},
        {flatten_scalar, "flatten: ", "f32 []", "no batch"},
        {norm_rank, "batch_norm: ", "f32 [5], f32 [1]", "two or more dimensions"},
        {norm_eps, "batch_norm: ", "f32 [5,7], f32 [7]", "eps must be"},
        {global_rank, "avg_pool2d: ", "f32 [5,7]", "N,C,H,W"},
        {concat_rows, "concat: ", "f32 [5,7], f32 [4,7]", "differ in more than dimension 1"},
        {concat_ranks, "concat: ", "f32 [2,3], f32 [2,3,1,1]", "differ in more than dimension 1"},
        {window_beside, "window: ", "f32 [5,7]", "2 elements from 7 on"},
        {dropout_all, "dropout: ", "f32 [5,7], i64 [], i64 []", "p is 1; it must be in [0, 1)"},
        {loss_labels, "softmax_xent: ", "f32 [5,7], i32 [4]", "must be [5]"},
        {loss_dtype, "softmax_xent: ", "f32 [5,7], f32 [5]", "must be i32"},
        {accuracy_rank, "accuracy: ", "f32 [2,3,1,1], i32 [2]", "must be [2,1,1]"},
        {loss_smooth, "softmax_xent: ", "f32 [5,7], i32 [5]", "smoothing is 1"},
        {loss_weights, "softmax_xent: ", "i32 [5], f32 [5]", "the weights must be [7]"},
        {route_top, "expert_route: ", "f32 [2,5,3]", "4 experts for a token; choose 1 to 3"},
        {route_none, "expert_route: ", "f32 [2,5,3]", "a capacity of 0"},
        {experts_tokens, "expert_dispatch: ", "f32 [2,4,6], i32 [2,5,3]", "the same tokens"},
        {experts_weights, "matmul: ", "f32 [3,8,6], f32 [2,7,6]", "batch sizes must be equal"},
        {experts_rank, "expert_linear: ", "x of 4", "weights of 2 dimensions"},
        {combine_other, "expert_combine: ", "f32 [2,2,4,6], i32 [2,5,3]", "of y [E,N,P,C]"},
        {ctc_samples, "ctc_loss: ", "f32 [5,7,3], i32 [4,2]", "the same number of samples"},
        {ctc_blank, "ctc_loss: ", "f32 [5,7,3], i32 [5,2]", "the blank is 3"},
        {sampled_once, "grid_sample: ", "f32 [1,3,5,2]", "a row for each sample"},
        {sampled_deep, "grid_sample: ", "f32 [2,3,5,3]", "x and y of each place"},
        {resize_none, "resize: ", "f32 [2,4,9,7]", "0 x 5 pixels"},
        {adaptive_rank, "adaptive_avg_pool2d: ", "f32 [5,7]", "N,C,H,W"},
        {lrn_power, "lrn: ", "f32 [2,4,9,7]", "beta -1"},
        {lrn_window, "lrn: ", "f32 [2,4,9,7]", "the window size is -2"},
        {confusion_labels, "confusion: ", "i32 [2,9,7]", "must be [2,9,8]"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value y = cases[i].build(g);
        assert_false(kolo_value_ok(y));
        assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
        const char *text = kolo_last_error();
        if (strncmp(text, cases[i].op, strlen(cases[i].op)) != 0 || !strstr(text, cases[i].shape) ||
            !strstr(text, cases[i].what)) {
            fail_msg("case %zu: the text is: %s", i, text);
        }
        kolo_graph_destroy(g);
    }
}

static void the_first_failure_stays(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = image(g, 2, 4, 9, 7);
    kolo_value bad = kolo_conv2d(g, x, weight(g, kolo_shape_4(6, 3, 5, 5)), NULL);
    kolo_value later = kolo_add(g, kolo_relu(g, bad), x);
    assert_false(kolo_value_ok(later));
    assert_false(kolo_value_ok(kolo_relu(g, x)));
    assert_int_equal(g->n_nodes, 0);
    assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "conv2d"));
    kolo_graph_destroy(g);
}

static void costs_count_multiply_adds(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value y = conv_all(g); /* [2,6,4,1], of 2 channels x 3 x 2 taps each */
    kolo_cost cost = kolo_node_cost(g, g->nodes[0]);
    assert_true(cost.flops == 2.0 * (2 * 6 * 4 * 1) * (2 * 3 * 2));
    assert_true(cost.bytes == 4.0 * (2 * 4 * 9 * 7 + 6 * 2 * 3 * 2 + 2 * 6 * 4 * 1));
    const bool wants[2] = {true, true};
    kolo_value d_in[2] = {KOLO_NONE, KOLO_NONE};
    kolo_op_conv2d.grad(g, g->nodes[0], &y, wants, d_in);
    ASSERT_OK(kolo_graph_check(g));
    assert_int_equal(g->n_nodes, 3);
    assert_true(kolo_node_cost(g, g->nodes[1]).flops == cost.flops);
    assert_true(kolo_node_cost(g, g->nodes[2]).flops == cost.flops);
    kolo_graph_destroy(g);

    ASSERT_OK(kolo_graph_create(NULL, &g));
    y = linear_images(g);
    assert_true(kolo_node_cost(g, g->nodes[0]).flops == 2.0 * 5 * 24 * 10);
    kolo_relu(g, y);
    kolo_cost relu = kolo_node_cost(g, g->nodes[1]);
    assert_true(relu.flops == 0 && relu.bytes == 2 * 4.0 * 50);
    kolo_graph_destroy(g);
}

TEST_MAIN(test_op_shape) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_come_out),
        cmocka_unit_test(failures_name_op_and_shapes),
        cmocka_unit_test(the_first_failure_stays),
        cmocka_unit_test(costs_count_multiply_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
