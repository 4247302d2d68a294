/* bf16 by way of f32 against the reference: of every op whose samples can be cut, whole and in
 * slices of one sample, of two, and with parameters in f32. */
#include "kernel/select/families.h"
#include "kernel/select/via_f32.h"
#include "support/kernel_check.h"
#include "support/shapes.h"

#include <stdio.h>
#include <string.h>

typedef struct via_case {
    const kolo_op *op;
    int n_in, n_out;
    kolo_shape in[5];
    kolo_attr attr[KOLO_MAX_ATTRS];
    int labels, classes; /* number of the input of labels, or 0 */
    const char *layout;  /* of images; NULL: plain */
} via_case;

/* 3 x 3, padded; and more. */
#define CONV(...)                                                                            \
    {                                                                                        \
        [KOLO_CONV_STRIDE_H].i = 1, [KOLO_CONV_STRIDE_W].i = 1, [KOLO_CONV_PAD_H].i = 1,     \
        [KOLO_CONV_PAD_W].i = 1, [KOLO_CONV_DILATION_H].i = 1, [KOLO_CONV_DILATION_W].i = 1, \
        [KOLO_CONV_GROUPS].i = 1, __VA_ARGS__                                                \
    }
#define POOL                                     \
    {                                            \
        {.i = 2}, {.i = 2}, {.i = 2}, { .i = 2 } \
    }

static const via_case cases[] = {
    {&kolo_op_conv2d, 3, 1, .in = {S4(6, 8, 5, 5), S4(16, 8, 3, 3), S1(16)},
     .attr = CONV([KOLO_CONV_BIAS].i = 0)},
    {&kolo_op_conv2d, 2, 1, .in = {S4(6, 8, 5, 5), S4(16, 8, 3, 3)},
     .attr = CONV([KOLO_CONV_BIAS].i = 0), .layout = "acdb"},
    {&kolo_op_conv2d_bwd_data, 2, 1, .in = {S4(6, 16, 5, 5), S4(16, 8, 3, 3)},
     .attr = CONV([KOLO_CONV_SIZE_H].i = 5, [KOLO_CONV_SIZE_W].i = 5)},
    {&kolo_op_conv2d_bwd_weights, 2, 2, .in = {S4(6, 16, 5, 5), S4(6, 8, 5, 5)},
     .attr = CONV([KOLO_CONV_SIZE_H].i = 3, [KOLO_CONV_SIZE_W].i = 3, [KOLO_CONV_BIAS].i = 1)},
    {&kolo_op_linear, 3, 1, .in = {S3(6, 3, 10), S2(7, 10), S1(7)}},
    {&kolo_op_linear_gelu, 3, 2, .in = {S2(6, 10), S2(7, 10), S1(7)}, .attr = {{.i = 1}, {.i = 1}}},
    {&kolo_op_linear_bwd_data, 2, 1, .in = {S2(6, 7), S2(7, 10)}},
    {&kolo_op_linear_bwd_weights, 2, 2, .in = {S2(6, 7), S2(6, 10)}, .attr = {{.i = 1}}},
    {&kolo_op_matmul, 2, 1, .in = {S3(6, 3, 4), S3(6, 4, 5)}},
    {&kolo_op_relu_bwd, 3, 1, .in = {S2(6, 11), S2(6, 11), S2(6, 11)}},
    {&kolo_op_add, 2, 1, .in = {S4(6, 3, 2, 2), S4(6, 3, 2, 2)}},
    {&kolo_op_mul, 2, 1, .in = {S2(6, 11), S2(6, 11)}},
    {&kolo_op_bias, 2, 1, .in = {S4(6, 3, 2, 2), S1(3)}},
    {&kolo_op_bias_bwd, 1, 1, .in = {S4(6, 3, 2, 2)}},
    {&kolo_op_gelu_bwd, 2, 2, .in = {S3(6, 2, 9), S3(6, 2, 9)}, .attr = {{.i = 1}, {.i = 1}}},
    {&kolo_op_rotary, 1, 1, .in = {S3(6, 3, 4)}, .attr = {{1}, {.f = 10}}},
    {&kolo_op_softmax, 1, 1, .in = {S2(6, 11)}},
    {&kolo_op_softmax_bwd, 2, 1, .in = {S3(6, 4, 3), S3(6, 4, 3)}},
    {&kolo_op_silu, 1, 1, .in = {S2(6, 11)}},
    {&kolo_op_layer_norm, 3, 3, .in = {S3(6, 2, 9), S1(9), S1(9)}, .attr = {{.f = 1e-5}}},
    {&kolo_op_layer_norm_bwd, 5, 3, .in = {S3(6, 2, 9), S3(6, 2, 9), S1(9), S2(6, 2), S2(6, 2)}},
    {&kolo_op_rms_norm, 2, 2, .in = {S3(6, 2, 9), S1(9)}, .attr = {{.f = 1e-5}}},
    {&kolo_op_rms_norm_bwd, 4, 2, .in = {S3(6, 2, 9), S3(6, 2, 9), S1(9), S2(6, 2)}},
    {&kolo_op_group_norm, 3, 3, .in = {S4(6, 2, 3, 5), S2(2, 3), S2(2, 3)}, .attr = {{.f = 1e-5}}},
    {&kolo_op_group_norm_bwd, 5, 3,
     .in = {S4(6, 2, 3, 5), S4(6, 2, 3, 5), S2(6, 2), S2(6, 2), S2(2, 3)}},
    {&kolo_op_softmax_xent, 2, 3, .in = {S2(6, 9), S1(6)}, .attr = {[KOLO_LOSS_COUNT].i = 1},
     .labels = 1, .classes = 9},
    {&kolo_op_softmax_xent_bwd, 3, 1, .in = {S2(6, 9), S1(6), {0}}, .labels = 1, .classes = 9},
    {&kolo_op_accuracy, 2, 1, .in = {S3(6, 9, 4), S2(6, 4)}, .labels = 1, .classes = 9},
    {&kolo_op_confusion, 2, 1, .in = {S2(6, 9), S1(6)}, .labels = 1, .classes = 9},
    {&kolo_op_max_pool2d, 1, 2, .in = {S4(6, 3, 4, 6)}, .attr = POOL},
    {&kolo_op_avg_pool2d, 1, 1, .in = {S4(6, 3, 4, 6)}, .attr = POOL, .layout = "acdb"},
    {&kolo_op_adaptive_avg_pool2d, 1, 1, .in = {S4(6, 3, 4, 6)}, .attr = {{.i = 2}, {.i = 2}}},
    {&kolo_op_resize, 1, 1, .in = {S4(6, 3, 4, 6)}, .attr = {{.i = 8}, {.i = 8}}},
    {&kolo_op_grid_sample, 2, 1, .in = {S4(6, 3, 5, 4), S4(6, 2, 3, 2)}, .attr = {{0}, {1}}},
    {&kolo_op_grid_sample_bwd, 3, 2, .in = {S4(6, 3, 2, 3), S4(6, 3, 5, 4), S4(6, 2, 3, 2)},
     .attr = {{0}, {1}}},
    {&kolo_op_lrn, 1, 2, .in = {S4(6, 8, 2, 3)},
     .attr = {{.i = 5}, {.f = 1e-4}, {.f = 0.75}, {.f = 2}}},
    {&kolo_op_window, 1, 1, .in = {S4(6, 8, 2, 3)}, .attr = {{.i = 3}, {.i = 2}, {.i = 1}}},
};

/* A label for each place, one of them of no class. */
static int32_t *labels_of(const via_case *c, const kolo_kernel_spec *spec) {
    int64_t n = kolo_shape_count(&spec->in[c->labels].shape);
    int32_t *labels = kolo_alloc((size_t)n * sizeof *labels);
    assert_non_null(labels);
    for (int64_t i = 0; i < n; i++) labels[i] = i == 2 ? -1 : (int32_t)(i * 5) % c->classes;
    return labels;
}

static void check(const via_case *c, bool parameters_too, int threads) {
    const char *layouts[] = {c->layout, NULL, NULL, NULL, NULL};
    kolo_kernel_spec spec;
    const void *inputs[KOLO_MAX_IO] = {0};
    test_kernel_spec(&spec, c->op, c->attr, c->n_in, c->in, layouts, c->n_out, layouts, threads);
    test_kernel_in_bf16(&spec, parameters_too ? -1 : 1);
    int32_t *labels = c->labels ? labels_of(c, &spec) : NULL;
    if (labels) inputs[c->labels] = labels;
    if (!(kolo_via_f32_kernel.fit(&spec) >= 0)) fail_msg("%s: does not fit", c->op->name);
    test_kernel_on(&kolo_via_f32_kernel, &spec, inputs, 1e-3);
    kolo_free(labels);
}

static void slices_are_the_reference(void **state) {
    static const size_t slices[] = {0, 1, 1000};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (size_t k = 0; k < KOLO_COUNT(slices); k++) {
            kolo_via_f32_pin_slice(slices[k]);
            check(&cases[i], true, 1 + (int)k % 2);
            if (cases[i].n_in > 1 && cases[i].op->bf16 >> 1 & 1) check(&cases[i], false, 1);
        }
    }
    kolo_via_f32_pin_slice(0);
}

#define ADDRESS(name) &kolo_op_##name,

/* Every op of bf16 that declares how its samples are cut is among the cases, or equivalent to one.
 */
static void ops_that_are_cut_are_tried(void **state) {
    static const kolo_op *const alike[] = {
        &kolo_op_relu,           &kolo_op_gelu,           &kolo_op_resize_bwd,
        &kolo_op_lrn_bwd,        &kolo_op_concat,         &kolo_op_adaptive_avg_pool2d_bwd,
        &kolo_op_max_pool2d_bwd, &kolo_op_avg_pool2d_bwd, KOLO_UNARY_LIST(KOLO_UNARY_OP, ADDRESS)};
    const kolo_kernel *kernel;
    for (size_t i = 0; (kernel = kolo_kernel_at(i)); i++) {
        bool known = !kernel->op->samples.in || !kernel->op->bf16;
        for (size_t k = 0; k < KOLO_COUNT(cases); k++) known |= cases[k].op == kernel->op;
        for (size_t k = 0; k < KOLO_COUNT(alike); k++) known |= alike[k] == kernel->op;
        if (!known) fail_msg("%s", kernel->op->name);
    }
}

/* The memory of the copies is that of a slice, and what is cut badly stays whole. */
static void scratch_is_that_of_a_slice(void **state) {
    static const struct {
        int64_t rows;
        bool cut;
    } cuts[] = {{4096, true}, {4093, false}};
    for (size_t i = 0; i < KOLO_COUNT(cuts); i++) {
        kolo_kernel_spec spec;
        void *kept = NULL;
        size_t scratch, whole = (size_t)cuts[i].rows * 2048 * sizeof(float);
        test_kernel_spec(&spec, &kolo_op_linear, NULL, 2,
                         (kolo_shape[]){kolo_shape_2(cuts[i].rows, 64), kolo_shape_2(2048, 64)},
                         NULL, 1, NULL, 1);
        test_kernel_in_bf16(&spec, 1);
        assert_true(kolo_via_f32_kernel.fit(&spec) >= 0);
        ASSERT_OK(kolo_via_f32_kernel.prepare(&spec, &kept, &scratch));
        assert_int_equal(scratch < whole, cuts[i].cut);
        if (cuts[i].cut) assert_true(scratch < (size_t)20 << 20);
        kolo_via_f32_kernel.release(kept);
    }
}

TEST_MAIN(test_via_f32) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_the_reference),
        cmocka_unit_test(ops_that_are_cut_are_tried),
        cmocka_unit_test(scratch_is_that_of_a_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
