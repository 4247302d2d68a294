/* The public builders of elementwise functions: what comes out, and what each refuses. */
#include "graph/graph.h"
#include "pass/pass.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

typedef kolo_value build_fn(kolo_graph *g, kolo_value x);

static kolo_value functions(kolo_graph *g, kolo_value x) {
    static kolo_value (*const all[])(kolo_graph * g, kolo_value x) = {
        kolo_exp,  kolo_log,    kolo_sqrt,  kolo_rsqrt,     kolo_reciprocal,  kolo_neg,   kolo_abs,
        kolo_tanh, kolo_square, kolo_silu,  kolo_hardswish, kolo_hardsigmoid, kolo_relu6, kolo_sin,
        kolo_cos,  kolo_atan,   kolo_floor, kolo_ceil,      kolo_round,
    };
    for (size_t i = 0; i < KOLO_COUNT(all); i++) x = all[i](g, x);
    x = kolo_clamp(g, kolo_pow(g, x, -0.5), -INFINITY, 3);
    return kolo_softplus(g, kolo_elu(g, kolo_leaky_relu(g, x, 0.01), 1), 2);
}

static kolo_value broadcasts(kolo_graph *g, kolo_value x) {
    kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 1), kolo_init_fan_in(1));
    kolo_value b = kolo_param(g, "b", kolo_shape_3(1, 1, 4), kolo_init_fan_in(1));
    kolo_value y = kolo_maximum(g, kolo_sub(g, x, w), kolo_minimum(g, w, b));
    y = kolo_div(g, kolo_add(g, y, y), kolo_mul(g, b, x));
    assert_int_equal(kolo_value_shape(g, kolo_sub(g, b, x)).rank, 3);
    assert_int_equal(kolo_value_shape(g, kolo_sub(g, b, w)).rank, 3);
    kolo_value v = kolo_input(g, "v", KOLO_DTYPE_F32, kolo_shape_1(4));
    assert_int_equal(kolo_value_shape(g, kolo_add(g, b, v)).rank, 3);
    return y;
}
static kolo_value means(kolo_graph *g, kolo_value x) {
    kolo_value most = kolo_reduce_max(g, x, (int[]){-1, 0}, 2, true); /* [1,3,1] */
    kolo_value mean = kolo_reduce_mean(g, kolo_sub(g, x, most), (int[]){1}, 1, false);
    return kolo_reduce_sum(g, mean, (int[]){0}, 1, false);
}
static kolo_value of_all(kolo_graph *g, kolo_value x) {
    return kolo_add(g, kolo_sum(g, x), kolo_reduce_min(g, x, NULL, 0, false));
}

static kolo_value rearranged(kolo_graph *g, kolo_value x) {
    kolo_value part[3];
    kolo_split_along(g, x, -1, (const int64_t[]){1, 2, 1}, 3, part);
    x = kolo_concat_along(g, (kolo_value[]){part[1], kolo_pad(g, part[0], 2, 3, 0), part[1]}, 3, 2);
    x = kolo_transpose(g, kolo_slice(g, x, 0, -1, 1), 0, -1); /* [8,3,1] */
    return kolo_permute(g, kolo_softmax(g, kolo_log_softmax(g, x, 0), -1), (const int[]){2, -3, 1});
}
static kolo_value many(kolo_graph *g, kolo_value x) {
    kolo_value all[70];
    for (int i = 0; i < 70; i++) all[i] = x;
    return kolo_stop_gradient(g, kolo_add_number(g, kolo_concat_along(g, all, 70, 0), 1));
}

static void shapes_come_out(void **state) {
    static const struct {
        build_fn *build;
        const char *shape;
    } cases[] = {
        {functions, "[2,3,4]"}, {broadcasts, "[2,3,4]"}, {means, "[4]"},
        {of_all, "[]"},         {rearranged, "[1,8,3]"}, {many, "[140,3,4]"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        char text[KOLO_SHAPE_TEXT];
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(2, 3, 4));
        const kolo_shape shape = kolo_value_shape(g, cases[i].build(g, x));
        ASSERT_OK(kolo_graph_check(g));
        ASSERT_OK(kolo_graph_verify(g));
        assert_string_equal(kolo_shape_text(&shape, text), cases[i].shape);
        kolo_graph_destroy(g);
    }
}

/* ---- refusals ---- */

static kolo_value clamp_crossed(kolo_graph *g, kolo_value x) { return kolo_clamp(g, x, 2, 1); }
static kolo_value clamp_nan(kolo_graph *g, kolo_value x) { return kolo_clamp(g, x, NAN, 1); }
static kolo_value pow_nan(kolo_graph *g, kolo_value x) { return kolo_pow(g, x, NAN); }
static kolo_value leaky_infinite(kolo_graph *g, kolo_value x) {
    return kolo_leaky_relu(g, x, INFINITY);
}
static kolo_value elu_nan(kolo_graph *g, kolo_value x) { return kolo_elu(g, x, NAN); }
static kolo_value softplus_none(kolo_graph *g, kolo_value x) { return kolo_softplus(g, x, 0); }

static kolo_value add_shapes(kolo_graph *g, kolo_value x) {
    return kolo_add(g, x, kolo_param(g, "w", kolo_shape_2(2, 4), kolo_init_fan_in(1)));
}
static kolo_value sub_nothing(kolo_graph *g, kolo_value x) { return kolo_sub(g, x, KOLO_NONE); }
static kolo_value sum_beside(kolo_graph *g, kolo_value x) {
    return kolo_reduce_sum(g, x, (int[]){-4}, 1, false);
}
static kolo_value sum_twice(kolo_graph *g, kolo_value x) {
    return kolo_reduce_max(g, x, (int[]){2, -1}, 2, false);
}

static kolo_value sum_no_array(kolo_graph *g, kolo_value x) {
    return kolo_reduce_sum(g, x, NULL, 2, false);
}
static kolo_value mean_negative(kolo_graph *g, kolo_value x) {
    return kolo_reduce_mean(g, x, (int[]){0}, -3, false);
}
static kolo_value min_no_array(kolo_graph *g, kolo_value x) {
    return kolo_reduce_min(g, x, NULL, 1, true);
}

static kolo_value slice_beyond(kolo_graph *g, kolo_value x) { return kolo_slice(g, x, 1, 2, 2); }
static kolo_value slice_nowhere(kolo_graph *g, kolo_value x) { return kolo_slice(g, x, 3, 0, 1); }
static kolo_value pad_negative(kolo_graph *g, kolo_value x) { return kolo_pad(g, x, 1, -1, 2); }
static kolo_value split_short(kolo_graph *g, kolo_value x) {
    kolo_value part[2];
    kolo_split_along(g, x, 2, (const int64_t[]){1, 2}, 2, part);
    return KOLO_NONE;
}
static kolo_value split_no_sizes(kolo_graph *g, kolo_value x) {
    kolo_value part[2] = {x, x};
    kolo_split_along(g, x, 2, NULL, 2, part);
    return part[1];
}
static kolo_value split_no_parts(kolo_graph *g, kolo_value x) {
    kolo_split_along(g, x, 2, (const int64_t[]){1, 3}, 2, NULL);
    return KOLO_NONE;
}
static kolo_value split_negative(kolo_graph *g, kolo_value x) {
    kolo_value part[1];
    kolo_split_along(g, x, 2, (const int64_t[]){4}, -1, part);
    return KOLO_NONE;
}
static kolo_value concat_no_array(kolo_graph *g, kolo_value x) { return kolo_concat(g, NULL, 2); }
static kolo_value permute_no_array(kolo_graph *g, kolo_value x) { return kolo_permute(g, x, NULL); }
static kolo_value concat_nothing(kolo_graph *g, kolo_value x) {
    return kolo_concat_along(g, &x, 0, 0);
}
static kolo_value concat_other(kolo_graph *g, kolo_value x) {
    return kolo_concat_along(g, (kolo_value[]){x, kolo_transpose(g, x, 0, 1)}, 2, 2);
}
/* Images are seen as planes: of the first, [6,4,5]. */
static kolo_value concat_seen(kolo_graph *g, kolo_value x) {
    kolo_value a = kolo_input(g, "a", KOLO_DTYPE_F32, kolo_shape_4(2, 3, 4, 5));
    kolo_value b = kolo_input(g, "b", KOLO_DTYPE_F32, kolo_shape_3(6, 4, 7));
    return kolo_concat_along(g, (kolo_value[]){a, b}, 2, 2);
}
static kolo_value permute_twice(kolo_graph *g, kolo_value x) {
    return kolo_permute(g, x, (const int[]){0, 1, 1});
}
static kolo_value transpose_beside(kolo_graph *g, kolo_value x) {
    return kolo_transpose(g, x, 0, 3);
}

static kolo_value group_uneven(kolo_graph *g, kolo_value x) {
    return kolo_group_norm(g, x, "n", 2, 0);
}
static kolo_value rms_nameless(kolo_graph *g, kolo_value x) { return kolo_rms_norm(g, x, NULL, 0); }
static kolo_value shuffle_tokens(kolo_graph *g, kolo_value x) {
    return kolo_pixel_shuffle(g, x, 2);
}
static kolo_value heads_uneven(kolo_graph *g, kolo_value x) {
    return kolo_cross_attention(g, x, x, x, &(kolo_cross_attention_opts){.heads = 3});
}
static kolo_value rotary_odd(kolo_graph *g, kolo_value x) { return kolo_rotary(g, x, 4, 0, 0); }
static kolo_value transposed_tokens(kolo_graph *g, kolo_value x) {
    return kolo_conv_transpose2d(g, x, x, NULL);
}
static kolo_value conv1d_images(kolo_graph *g, kolo_value x) {
    return kolo_conv1d(g, x, kolo_reshape(g, x, kolo_shape_2(6, 4)), NULL);
}

static void refusals_name_op_and_reason(void **state) {
    static const struct {
        build_fn *build;
        const char *text;
    } cases[] = {
        {clamp_crossed, "clamp: a minimum up to the maximum, not 2"},
        {clamp_nan, "clamp: a minimum up to the maximum, not nan"},
        {pow_nan, "pow: a finite exponent, not nan"},
        {leaky_infinite, "leaky_relu: a finite slope, not inf"},
        {elu_nan, "elu: a finite alpha, not nan"},
        {add_shapes, "broadcast_add: sizes differ along dimension 1 of the result"},
        {sub_nothing, "sub: input 1 is not a value of this graph"},
        {sum_beside, "over dimension -4, of a value of 3 dimensions"},
        {sum_twice, "over dimension -1, named twice"},
        {sum_no_array, "reduction: dimensions are NULL, not an array of 2"},
        {mean_negative, "reduction: -3 dimensions; give 0 or more"},
        {min_no_array, "reduction: dimensions are NULL, not an array of 1"},
        {slice_beyond, "slice: 2 elements from 2 on of a dimension of 3"},
        {slice_nowhere, "slice: no dimension 3 of 3"},
        {pad_negative, "pad: by -1 and 2"},
        {split_short, "split: sizes that add up to 3 of 4"},
        {split_no_sizes, "split: sizes are NULL, not an array of 2"},
        {split_no_parts, "split: parts are NULL, not an array of 2"},
        {split_negative, "split: -1 parts; give 0 or more"},
        {concat_nothing, "concat: 0 inputs; give 1 or more"},
        {concat_no_array, "concat: inputs are NULL, not an array of 2"},
        {concat_other, "concat: inputs 0 and 1 differ in more than dimension 2"},
        {concat_seen, "concat: inputs 0 and 1 differ in more than dimension 2"},
        {permute_no_array, "permute: dimensions are NULL, not an array of 3"},
        {permute_twice, "permute: dimension 2 of the result"},
        {transpose_beside, "permute: dimension 0 of the result"},
        {group_uneven, "group_norm: give x of [N,C,...] and a number of groups that divides C"},
        {rms_nameless, "no name; give it one"},
        {shuffle_tokens, "pixel_shuffle: give x of [N,C,H,W]"},
        {heads_uneven, "cross_attention: give q of [N,T,heads D]"},
        {rotary_odd, "rotary: 4 channels do not divide into 4 heads of an even width"},
        {transposed_tokens, "conv2d_bwd_data: input 0 has 3 dimensions"},
        {conv1d_images, "conv1d: give x of [N,C,W]"},
        {softplus_none, "softplus: a beta above 0, not 0"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(2, 3, 4));
        assert_false(kolo_value_ok(cases[i].build(g, x)));
        assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cases[i].text);
        }
        kolo_graph_destroy(g);
    }
}

static void values_have_shape_and_dtype(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(2, 3));
    assert_int_equal(kolo_value_shape(g, x).rank, 2);
    assert_int_equal(kolo_value_shape(g, x).dim[1], 3);
    assert_int_equal(kolo_value_dtype(g, x), KOLO_DTYPE_I32);
    assert_int_equal(kolo_value_shape(g, KOLO_NONE).rank, 0);
    assert_int_equal(kolo_value_shape(g, KOLO_NONE).dim[3], 1);
    assert_int_equal(kolo_value_dtype(g, KOLO_NONE), KOLO_DTYPE_F32);
    kolo_graph_destroy(g);
}

/* w z, with z frozen: only w has a gradient. */
static void frozen_parameters_have_no_gradient(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_1(3));
    kolo_value w = kolo_param(g, "w", kolo_shape_1(3), kolo_init_fan_in(1));
    kolo_value z = kolo_frozen_param(g, "z", kolo_shape_1(3), kolo_init_fan_in(1));
    kolo_value loss = kolo_sum(g, kolo_mul(g, kolo_add(g, w, x), z));
    ASSERT_OK(kolo_pass_gradient(g, loss, kolo_scalar(g, "seed")));
    assert_true(kolo_value_ok(kolo_info(g, w)->grad));
    assert_false(kolo_value_ok(kolo_info(g, z)->grad));
    assert_int_equal(kolo_graph_parameters(g), 3);
    kolo_freeze(g, x);
    assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "freeze: the value is not a parameter"));
    kolo_graph_destroy(g);
}

/* The gradient of a sum reads the shape of what is summed: squares and products need not be kept.
 */
static void sums_keep_nothing(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_value w = kolo_param(g, "w", kolo_shape_2(2, 3), kolo_init_fan_in(1));
    const kolo_value e = kolo_exp(g, w);
    const kolo_value terms[] = {kolo_square(g, w), kolo_mul(g, e, e), e};
    const kolo_value kept[] = {w, e, e};
    kolo_value loss = kolo_scalar(g, "none");
    for (size_t i = 0; i < KOLO_COUNT(terms); i++) loss = kolo_add(g, loss, kolo_sum(g, terms[i]));
    ASSERT_OK(kolo_pass_gradient(g, loss, kolo_scalar(g, "seed")));
    int found = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i]->op->name, "sum_bwd") != 0) continue;
        assert_int_equal(g->nodes[i]->in[1].id, kept[KOLO_COUNT(kept) - 1 - (size_t)found++].id);
    }
    assert_int_equal(found, KOLO_COUNT(kept));
    kolo_graph_destroy(g);
}

TEST_MAIN(test_op_builders) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_come_out),
        cmocka_unit_test(refusals_name_op_and_reason),
        cmocka_unit_test(frozen_parameters_have_no_gradient),
        cmocka_unit_test(values_have_shape_and_dtype),
        cmocka_unit_test(sums_keep_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
