/* The builders of <kolo/graph.h> against PyTorch: results and gradients, in f64 on reference
 * kernels to the last digits, and in f32 on the best ones. tools/golden/make_ops.py makes
 * ops.safetensors and has the same cases. */
#include "data/safetensors/safetensors.h"
#include "pass/pass.h"
#include "support/graph_eval.h"
#include "support/shapes.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 4 };

static const char path[] = KOLO_SOURCE_DIR "/tests/golden/ops.safetensors";

typedef kolo_value build_fn(kolo_graph *g, const kolo_value *x);

static double number(int seed, int64_t k) {
    return (double)((k * 37 + seed * 53 + 11) % 101) / 50.5 - 1;
}

/* ---- cases ---- */

#define FUNCTION(name) \
    static kolo_value of_##name(kolo_graph *g, const kolo_value *x) { return kolo_##name(g, x[0]); }
FUNCTION(exp)
FUNCTION(log)
FUNCTION(sqrt)
FUNCTION(rsqrt)
FUNCTION(reciprocal)
FUNCTION(neg)
FUNCTION(abs)
FUNCTION(square)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(atan)

static const kolo_grid_sample_opts grid_border = {.padding = KOLO_GRID_BORDER,
                                                  .align_corners = true};
static const kolo_grid_sample_opts grid_reflection = {.padding = KOLO_GRID_REFLECTION};
static const kolo_grid_sample_opts grid_nearest = {
    .mode = KOLO_GRID_NEAREST, .padding = KOLO_GRID_REFLECTION, .align_corners = true};
static const kolo_grid_sample_opts grid_bicubic = {.mode = KOLO_GRID_BICUBIC};
static const kolo_grid_sample_opts grid_bicubic_border = {
    .mode = KOLO_GRID_BICUBIC, .padding = KOLO_GRID_BORDER, .align_corners = true};
static const kolo_grid_sample_opts grid_bicubic_reflection = {.mode = KOLO_GRID_BICUBIC,
                                                              .padding = KOLO_GRID_REFLECTION};

#define CASE(name, value) \
    static kolo_value of_##name(kolo_graph *g, const kolo_value *x) { return value; }
CASE(power, kolo_pow(g, x[0], -1.7))
CASE(add_number, kolo_add_number(g, x[0], 3))
CASE(clamp, kolo_clamp(g, x[0], -0.3, 0.5))
CASE(relu6, kolo_relu6(g, kolo_scale(g, x[0], 8)))
CASE(leaky_relu, kolo_leaky_relu(g, x[0], 0.2))
CASE(elu, kolo_elu(g, x[0], 1.5))
CASE(softplus, kolo_softplus(g, x[0], 2))
CASE(hardswish, kolo_hardswish(g, kolo_scale(g, x[0], 5)))
CASE(hardsigmoid, kolo_hardsigmoid(g, kolo_scale(g, x[0], 5)))
CASE(floor, kolo_floor(g, kolo_scale(g, x[0], 5)))
CASE(ceil, kolo_ceil(g, kolo_scale(g, x[0], 5)))
CASE(round, kolo_round(g, kolo_scale(g, x[0], 5)))
CASE(add, kolo_add(g, x[0], x[1]))
CASE(sub, kolo_sub(g, x[0], x[1]))
CASE(mul, kolo_mul(g, x[0], x[1]))
CASE(quotient, kolo_div(g, x[0], x[1]))
CASE(minimum, kolo_minimum(g, x[0], x[1]))
CASE(maximum, kolo_maximum(g, x[0], x[1]))
CASE(reduce_sum, kolo_reduce_sum(g, x[0], (int[]){0, 2}, 2, false))
CASE(reduce_mean, kolo_reduce_mean(g, x[0], (int[]){1, 2}, 2, true))
CASE(reduce_max, kolo_reduce_max(g, x[0], (int[]){1}, 1, false))
CASE(reduce_min, kolo_reduce_min(g, x[0], (int[]){0, 1}, 2, false))
CASE(softmax, kolo_softmax(g, x[0], 1))
CASE(log_softmax, kolo_log_softmax(g, x[0], -1))
CASE(slice, kolo_slice(g, x[0], 2, 1, 2))
CASE(pad, kolo_pad(g, x[0], 0, 1, 2))
CASE(concat, kolo_concat_along(g, (kolo_value[]){x[0], x[1], x[0]}, 3, 2))
CASE(permute, kolo_permute(g, x[0], (int[]){2, 0, 1}))
CASE(transpose, kolo_transpose(g, x[0], 0, 2))
CASE(stop_gradient, kolo_mul(g, x[0], kolo_stop_gradient(g, x[0])))
CASE(rms_norm, kolo_rms_norm(g, x[0], "norm", 0))
CASE(group_norm, kolo_group_norm(g, x[0], "norm", 2, 0))
CASE(instance_norm, kolo_instance_norm(g, x[0], NULL, 0))
CASE(conv1d, kolo_conv1d(g, x[0], x[1], &(kolo_conv1d_opts){.stride = 2, .pad = 1, .groups = 2}))
CASE(conv_transpose, kolo_conv_transpose2d(g, x[0], x[1],
                                           &(kolo_conv_transpose2d_opts){.stride_h = 2,
                                                                         .stride_w = 3,
                                                                         .pad_h = 1,
                                                                         .output_pad_h = 1,
                                                                         .output_pad_w = 2}))
CASE(conv_transpose_groups,
     kolo_conv_transpose2d(g, x[0], x[1],
                           &(kolo_conv_transpose2d_opts){
                               .dilation_h = 2, .dilation_w = 2, .groups = 2}))
CASE(pixel_shuffle, kolo_pixel_shuffle(g, x[0], 2))
CASE(repeat_pixels, kolo_repeat_pixels(g, x[0], 3))
CASE(max_pool3d,
     kolo_max_pool3d(g, x[0], &(kolo_pool3d_opts){2, 3, 2, 2, 1, 2, 1, 1, 0, .ceil = true}))
CASE(avg_pool3d, kolo_avg_pool3d(g, x[0],
                                 &(kolo_pool3d_opts){3, 2, 3, 2, 2, 1, 1, 0, 1, .ceil = true,
                                                     .exclude_padding = true}))
CASE(resize_nearest, kolo_resize_nearest(g, x[0], 3, 7))
CASE(cross_attention,
     kolo_cross_attention(g, x[0], x[1], x[2], &(kolo_cross_attention_opts){.heads = 2}))
CASE(grouped_queries,
     kolo_cross_attention(g, x[0], x[1], x[2],
                          &(kolo_cross_attention_opts){.heads = 4, .kv_heads = 2, .causal = true}))
CASE(attention_bias,
     kolo_cross_attention(g, x[0], x[1], x[2],
                          &(kolo_cross_attention_opts){
                              .heads = 2, .scale = 0.3, .bias = x[3], .use_bias = true}))
CASE(attention_window,
     kolo_cross_attention(g, x[0], x[1], x[2],
                          &(kolo_cross_attention_opts){.heads = 2, .causal = true, .window = 2}))
CASE(flip, kolo_flip(g, x[0], 1))
CASE(grid_sample, kolo_grid_sample(g, x[0], x[1], NULL))
CASE(grid_border, kolo_grid_sample(g, x[0], kolo_scale(g, x[1], 2), &grid_border))
CASE(grid_reflection, kolo_grid_sample(g, x[0], kolo_scale(g, x[1], 3), &grid_reflection))
CASE(grid_nearest, kolo_grid_sample(g, x[0], kolo_scale(g, x[1], 3), &grid_nearest))
CASE(grid_bicubic, kolo_grid_sample(g, x[0], x[1], &grid_bicubic))
CASE(grid_bicubic_border, kolo_grid_sample(g, x[0], kolo_scale(g, x[1], 2), &grid_bicubic_border))
CASE(grid_bicubic_reflection,
     kolo_grid_sample(g, x[0], kolo_scale(g, x[1], 3), &grid_bicubic_reflection))
CASE(conv3d, kolo_conv3d(g, x[0], x[1],
                         &(kolo_conv3d_opts){
                             .stride_d = 2, .pad_d = 1, .pad_w = 1, .dilation_h = 2, .groups = 2}))
CASE(conv3d_dilated,
     kolo_conv3d(g, x[0], x[1],
                 &(kolo_conv3d_opts){
                     .stride_d = 3, .stride_h = 2, .pad_h = 1, .pad_w = 1, .dilation_d = 3}))
CASE(gru, kolo_gru(g, x[0], "r", 0, 2, NULL))
CASE(gru_bidirectional,
     kolo_gru(g, x[0], "r", 0, 2,
              &(kolo_recurrent_opts){.bidirectional = true, .h = x[1], .use_state = true}))
CASE(lstm_state, kolo_lstm_opts(g, x[0], "r", 0, 2,
                                &(kolo_recurrent_opts){.h = x[1], .c = x[2], .use_state = true}))
CASE(lstm_bidirectional,
     kolo_lstm_opts(g, x[0], "r", 0, 2,
                    &(kolo_recurrent_opts){
                        .bidirectional = true, .h = x[1], .c = x[2], .use_state = true}))
CASE(rotary, kolo_rotary(g, x[0], 2, 100, 1))

static kolo_value of_split(kolo_graph *g, const kolo_value *x) {
    kolo_value part[2];
    kolo_split_along(g, x[0], 2, (const int64_t[]){1, 3}, 2, part);
    return part[1];
}

static kolo_value ids_of(kolo_graph *g, kolo_shape shape) {
    return kolo_input(g, "ids", KOLO_DTYPE_I32, shape);
}
CASE(gather, kolo_gather_rows(g, x[0], ids_of(g, kolo_shape_1(6))))
CASE(scatter_add, kolo_scatter_add(g, x[0], ids_of(g, kolo_shape_1(6)), 5))
CASE(embedding_bag, kolo_embedding_bag(g, x[0], ids_of(g, kolo_shape_2(2, 3)), true))

static kolo_value target_of(kolo_graph *g) {
    return kolo_input(g, "target", g->dtype, kolo_shape_2(2, 4));
}
CASE(soft_xent, kolo_soft_xent(g, x[0], kolo_softmax(g, target_of(g), 1)))
CASE(kl_div, kolo_kl_div(g, x[0], target_of(g)))

/* Weights, an ignored label, and smoothing. */
static kolo_value weighted_xent(kolo_graph *g, kolo_value logits, double smoothing) {
    kolo_value weights = kolo_input(g, "target", g->dtype, kolo_shape_1(3));
    const kolo_loss_opts opts = {.has_ignore_index = true,
                                 .ignore_index = 0,
                                 .smoothing = smoothing,
                                 .weights = weights,
                                 .use_weights = true};
    return kolo_softmax_xent_opts(g, logits, ids_of(g, kolo_shape_2(3, 2)), &opts);
}
CASE(weighted, weighted_xent(g, x[0], 0))
CASE(weighted_smoothed, weighted_xent(g, x[0], 0.2))
CASE(ctc, kolo_ctc_loss(g, x[0], ids_of(g, kolo_shape_2(2, 3)), &(kolo_ctc_opts){.blank = 4}))

static kolo_value of_ctc_lengths(kolo_graph *g, const kolo_value *x) {
    const kolo_ctc_opts opts = {.lengths =
                                    kolo_reshape(g, ids_of(g, kolo_shape_2(6, 1)), kolo_shape_1(6)),
                                .use_lengths = true};
    return kolo_ctc_loss(g, x[0], kolo_input(g, "read", KOLO_DTYPE_I32, kolo_shape_2(6, 1)), &opts);
}

#define X S3(2, 3, 4)
static const struct {
    const char *name;
    build_fn *build;
    kolo_shape in[MAX_PARAMS]; /* of the parameters that the builder does not add */
    int n_in;
    double shift; /* of the numbers of all parameters */
} cases[] = {
    {"exp", of_exp, {X}, 1, 0},
    {"log", of_log, {X}, 1, 1.5},
    {"sqrt", of_sqrt, {X}, 1, 1.5},
    {"rsqrt", of_rsqrt, {X}, 1, 1.5},
    {"reciprocal", of_reciprocal, {X}, 1, 1.5},
    {"neg", of_neg, {X}, 1, 0},
    {"abs", of_abs, {X}, 1, 0},
    {"square", of_square, {X}, 1, 0},
    {"pow", of_power, {X}, 1, 1.5},
    {"add_number", of_add_number, {X}, 1, 0},
    {"clamp", of_clamp, {X}, 1, 0},
    {"relu6", of_relu6, {X}, 1, 0},
    {"leaky_relu", of_leaky_relu, {X}, 1, 0},
    {"elu", of_elu, {X}, 1, 0},
    {"softplus", of_softplus, {X}, 1, 0},
    {"hardswish", of_hardswish, {X}, 1, 0},
    {"hardsigmoid", of_hardsigmoid, {X}, 1, 0},
    {"sin", of_sin, {X}, 1, 1.5},
    {"cos", of_cos, {X}, 1, 1.5},
    {"atan", of_atan, {X}, 1, 0},
    {"floor", of_floor, {X}, 1, 0},
    {"ceil", of_ceil, {X}, 1, 0},
    {"round", of_round, {X}, 1, 0},
    {"add", of_add, {X, S2(3, 1)}, 2, 0},
    {"sub", of_sub, {S1(4), X}, 2, 0},
    {"mul", of_mul, {X, S3(2, 1, 1)}, 2, 0},
    {"div", of_quotient, {X, S3(1, 3, 4)}, 2, 1.5},
    {"minimum", of_minimum, {X, S1(4)}, 2, 0},
    {"maximum", of_maximum, {S2(3, 1), S3(2, 1, 4)}, 2, 0},
    {"reduce_sum", of_reduce_sum, {X}, 1, 0},
    {"reduce_mean", of_reduce_mean, {X}, 1, 0},
    {"reduce_max", of_reduce_max, {X}, 1, 0},
    {"reduce_min", of_reduce_min, {X}, 1, 0},
    {"softmax", of_softmax, {X}, 1, 0},
    {"log_softmax", of_log_softmax, {X}, 1, 0},
    {"slice", of_slice, {X}, 1, 0},
    {"pad", of_pad, {X}, 1, 0},
    {"split", of_split, {X}, 1, 0},
    {"concat", of_concat, {X, S3(2, 3, 2)}, 2, 0},
    {"permute", of_permute, {X}, 1, 0},
    {"transpose", of_transpose, {X}, 1, 0},
    {"stop_gradient", of_stop_gradient, {X}, 1, 0},
    {"rms_norm", of_rms_norm, {X}, 1, 0},
    {"group_norm", of_group_norm, {S3(2, 4, 3)}, 1, 0},
    {"instance_norm", of_instance_norm, {S4(2, 3, 2, 2)}, 1, 0},
    {"conv1d", of_conv1d, {S3(2, 4, 7), S3(6, 2, 3)}, 2, 0},
    {"conv_transpose", of_conv_transpose, {S4(2, 4, 3, 2), S4(4, 3, 3, 2)}, 2, 0},
    {"conv_transpose_groups", of_conv_transpose_groups, {S4(1, 4, 3, 3), S4(4, 3, 2, 2)}, 2, 0},
    {"pixel_shuffle", of_pixel_shuffle, {S4(1, 8, 2, 3)}, 1, 0},
    {"repeat_pixels", of_repeat_pixels, {S4(1, 2, 2, 3)}, 1, 0},
    {"max_pool3d", of_max_pool3d, {{5, {1, 2, 5, 4, 5}}}, 1, 0},
    {"avg_pool3d", of_avg_pool3d, {{5, {1, 2, 5, 4, 5}}}, 1, 0},
    {"resize_nearest", of_resize_nearest, {S4(1, 2, 5, 3)}, 1, 0},
    {"gather", of_gather, {S2(4, 3)}, 1, 0},
    {"scatter_add", of_scatter_add, {S2(6, 3)}, 1, 0},
    {"embedding_bag", of_embedding_bag, {S2(4, 3)}, 1, 0},
    {"soft_xent", of_soft_xent, {S2(2, 4)}, 1, 0},
    {"kl_div", of_kl_div, {S2(2, 4)}, 1, 0},
    {"weighted", of_weighted, {S3(3, 3, 2)}, 1, 0},
    {"weighted_smoothed", of_weighted_smoothed, {S3(3, 3, 2)}, 1, 0},
    {"ctc", of_ctc, {S3(2, 7, 5)}, 1, 0},
    {"ctc_lengths", of_ctc_lengths, {S3(6, 3, 4)}, 1, 0},
    {"cross_attention", of_cross_attention, {S3(2, 3, 8), S3(2, 5, 8), S3(2, 5, 4)}, 3, 0},
    {"grouped_queries", of_grouped_queries, {S3(1, 3, 8), S3(1, 5, 4), S3(1, 5, 6)}, 3, 0},
    {"attention_bias",
     of_attention_bias,
     {S3(1, 3, 4), S3(1, 3, 4), S3(1, 3, 4), S3(2, 3, 3)},
     4,
     0},
    {"attention_window", of_attention_window, {S3(1, 4, 4), S3(1, 6, 4), S3(1, 6, 4)}, 3, 0},
    {"grid_sample", of_grid_sample, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"grid_border", of_grid_border, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"grid_reflection", of_grid_reflection, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"grid_nearest", of_grid_nearest, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"grid_bicubic", of_grid_bicubic, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"grid_bicubic_border", of_grid_bicubic_border, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"grid_bicubic_reflection", of_grid_bicubic_reflection, {S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 2, 0},
    {"flip", of_flip, {X}, 1, 0},
    {"conv3d", of_conv3d, {{5, {2, 4, 5, 4, 3}}, {5, {6, 2, 3, 2, 3}}}, 2, 0},
    {"conv3d_dilated", of_conv3d_dilated, {{5, {1, 2, 6, 3, 3}}, {5, {2, 2, 2, 3, 3}}}, 2, 0},
    {"gru", of_gru, {X}, 1, 0},
    {"gru_bidirectional", of_gru_bidirectional, {X, S2(2, 4)}, 2, 0},
    {"lstm_state", of_lstm_state, {X, S2(2, 2), S2(2, 2)}, 3, 0},
    {"lstm_bidirectional", of_lstm_bidirectional, {X, S2(2, 4), S2(2, 4)}, 3, 0},
    {"rotary", of_rotary, {S3(2, 3, 8)}, 1, 0},
};

/* ---- running ---- */

static double at(const graph_eval *e, kolo_value v, int64_t k) {
    return e->g->dtype == KOLO_DTYPE_F64 ? graph_eval_f64(e, v)[k]
                                         : (double)graph_eval_f32(e, v)[k];
}
static void set(const graph_eval *e, kolo_value v, int64_t k, double x) {
    if (e->g->dtype == KOLO_DTYPE_F64) {
        graph_eval_f64(e, v)[k] = x;
    } else {
        graph_eval_f32(e, v)[k] = (float)x;
    }
}

/* Fills parameters, r, the target and the ids. */
static void fill(const graph_eval *e, double shift) {
    static const int32_t ids[] = {3, 0, 3, 1, 2, 0};
    int seed = 0;
    for (int32_t i = 0; i < e->g->n_values; i++) {
        const kolo_value_info *info = &e->g->values[i];
        const kolo_value v = {.id = i};
        bool is_param = info->kind == KOLO_VALUE_PARAM;
        if (!info->name) continue;
        if (strcmp(info->name, "read") == 0) {
            for (int k = 0; k < 6; k++) graph_eval_i32(e, v)[k] = k % 3 + 1;
            continue;
        }
        if (strcmp(info->name, "ids") == 0) {
            memcpy(graph_eval_i32(e, v), ids, sizeof ids);
            continue;
        }
        bool target = strcmp(info->name, "target") == 0;
        for (int64_t k = 0; k < graph_eval_count(e, v); k++) {
            double x = number(is_param ? seed : target ? 7 : 9, k);
            set(e, v, k, x + (is_param ? shift : target ? 1 : 0));
        }
        seed += is_param;
    }
}

static void compare(const kolo_safetensors *golden, const graph_eval *e, const char *name,
                    const char *what, kolo_value v, double tolerance) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", name, what);
    const kolo_safetensors_entry *entry = kolo_safetensors_find(golden, key);
    if (!entry) fail_msg("%s is missing", key);
    const int64_t count = kolo_shape_count(&entry->shape);
    double distance = 0, length = 1e-300;
    if (kolo_value_ok(v)) assert_int_equal(graph_eval_count(e, v), count);
    for (int64_t k = 0; k < count; k++) {
        double want, have = kolo_value_ok(v) ? at(e, v, k) : 0;
        memcpy(&want, (const char *)entry->data + (size_t)k * sizeof want, sizeof want);
        distance += (have - want) * (have - want);
        length += want * want;
    }
    if (!(sqrt(distance / length) <= tolerance)) {
        fail_msg("%s is off by %g", key, sqrt(distance / length));
    }
}

static void run_case(const kolo_safetensors *golden, size_t c, kolo_dtype dtype,
                     kolo_kernel_set kernels, double tolerance) {
    kolo_graph *g;
    graph_eval e = {0};
    kolo_value x[MAX_PARAMS];
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){dtype}, &g));
    for (int i = 0; i < cases[c].n_in; i++) {
        const char name[] = {'x', (char)('0' + i), 0};
        x[i] = kolo_param(g, name, cases[c].in[i], kolo_init_fan_in(1));
    }
    kolo_value y = cases[c].build(g, x);
    kolo_value r = kolo_input(g, "r", dtype, kolo_value_shape(g, y));
    kolo_value loss = kolo_sum(g, kolo_mul(g, y, r)), seed = kolo_scalar(g, "seed");
    ASSERT_OK(kolo_graph_check(g));
    const int32_t n_values = g->n_values;
    ASSERT_OK(kolo_pass_gradient(g, loss, seed));
    ASSERT_OK(kolo_graph_verify(g));
    ASSERT_OK(graph_eval_init(&e, g, kernels));
    fill(&e, cases[c].shift);
    set(&e, seed, 0, 1);
    graph_eval_run(&e, g->n_nodes);
    compare(golden, &e, cases[c].name, "y", y, tolerance);
    int n = 0;
    for (int32_t v = 0; v < n_values; v++) {
        if (g->values[v].kind != KOLO_VALUE_PARAM) continue;
        char what[16];
        snprintf(what, sizeof what, "d%d", n++);
        compare(golden, &e, cases[c].name, what, g->values[v].grad, tolerance);
    }
    graph_eval_fini(&e);
    kolo_graph_destroy(g);
}

static void builders_agree_with_pytorch(void **state) {
    kolo_safetensors *golden;
    ASSERT_OK(kolo_safetensors_open(path, &golden));
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        run_case(golden, c, KOLO_DTYPE_F64, KOLO_KERNELS_REF, 1e-12);
        run_case(golden, c, KOLO_DTYPE_F32, KOLO_KERNELS_BEST, 2e-5);
    }
    assert_int_equal(strtol(kolo_safetensors_metadata(golden, "cases"), NULL, 10),
                     KOLO_COUNT(cases));
    kolo_safetensors_close(golden);
}

TEST_MAIN(test_ops) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(builders_agree_with_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
