/* ReLU and max pooling pass NaN on, alone and fused, in every kernel of this project. oneDNN's
 * fused ReLU does not: it turns NaN into 0. */
#include "base/bf16.h"
#include "kernel/select/families.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

/* An op with its ReLU on. `inputs` are in plain layout; x is the first. */
static const struct {
    const kolo_op *op;
    int n_in, n_out;
    kolo_shape in[5];
    kolo_attr attr[KOLO_MAX_ATTRS];
} cases[] = {
    {&kolo_op_relu, 1, 1, {{4, {2, 9, 5, 5}}}, {{0}}},
    {&kolo_op_add, 2, 1, {{4, {2, 9, 5, 5}}, {4, {2, 9, 5, 5}}}, {[KOLO_ADD_RELU] = {.i = 1}}},
    {&kolo_op_linear,
     3,
     1,
     {{2, {5, 20}}, {2, {9, 20}}, {1, {9}}},
     {[KOLO_LINEAR_RELU] = {.i = 1}}},
    {&kolo_op_conv2d,
     3,
     1,
     {{4, {2, 6, 9, 9}}, {4, {8, 6, 3, 3}}, {1, {8}}},
     {[KOLO_CONV_STRIDE_H] = {.i = 1},
      [KOLO_CONV_STRIDE_W] = {.i = 1},
      [KOLO_CONV_PAD_H] = {.i = 1},
      [KOLO_CONV_PAD_W] = {.i = 1},
      [KOLO_CONV_DILATION_H] = {.i = 1},
      [KOLO_CONV_DILATION_W] = {.i = 1},
      [KOLO_CONV_GROUPS] = {.i = 1},
      [KOLO_CONV_RELU] = {.i = 1}}},
    {&kolo_op_batch_norm,
     5,
     3,
     {{4, {2, 9, 5, 5}}, {1, {9}}, {1, {9}}, {1, {9}}, {1, {9}}},
     {[KOLO_NORM_EPS] = {.f = 1e-5}, [KOLO_NORM_RELU] = {.i = 1}}},
    {&kolo_op_max_pool2d,
     1,
     2,
     {{4, {2, 9, 8, 8}}},
     {[KOLO_POOL_KERNEL_H] = {.i = 2},
      [KOLO_POOL_KERNEL_W] = {.i = 2},
      [KOLO_POOL_STRIDE_H] = {.i = 2},
      [KOLO_POOL_STRIDE_W] = {.i = 2},
      [KOLO_POOL_RELU] = {.i = 1}}},
    {&kolo_op_max_pool2d,
     1,
     2,
     {{4, {2, 9, 9, 9}}},
     {[KOLO_POOL_KERNEL_H] = {.i = 3},
      [KOLO_POOL_KERNEL_W] = {.i = 3},
      [KOLO_POOL_STRIDE_H] = {.i = 2},
      [KOLO_POOL_STRIDE_W] = {.i = 2}}},
};

/* Negative numbers, which ReLU turns into zeros, and a NaN at every tenth place or so. */
static void *negative_with_nan(const kolo_tensor *t) {
    int64_t n = kolo_shape_count(&t->shape);
    float *x = kolo_alloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = i % 11 == 4 ? NAN : -1 - (float)(i % 3);
    if (t->dtype != KOLO_DTYPE_BF16) return x;
    uint16_t *half = (uint16_t *)(void *)x;
    for (int64_t i = 0; i < n; i++) half[i] = kolo_bf16_narrow(x[i]);
    return x;
}

static float at(const kolo_tensor *t, const void *p, int64_t i) {
    return t->dtype == KOLO_DTYPE_BF16 ? kolo_bf16_widen(((const uint16_t *)p)[i])
                                       : ((const float *)p)[i];
}

/* Output 0 of the kernel in plain layout. */
static void *result(const kolo_kernel *kernel, const kolo_kernel_spec *spec, const void *x) {
    const void *inputs[KOLO_MAX_IO] = {x};
    void *own = test_kernel_result_on(kernel, spec, inputs);
    kolo_tensor plain = kolo_tensor_plain(spec->out[0].dtype, spec->out[0].shape);
    void *y = kolo_alloc(kolo_tensor_bytes(&plain));
    assert_non_null(y);
    kolo_tensor_reorder(&plain, y, &spec->out[0], own);
    kolo_free(own);
    return y;
}

/* Where the reference has a NaN, so has the kernel; a Winograd tile may have more. */
static void check(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                  const kolo_kernel *reference) {
    kolo_kernel_spec plain = *spec;
    for (int i = 0; i < spec->n_in; i++)
        plain.in[i].layout = kolo_layout_plain(spec->in[i].shape.rank);
    for (int i = 0; i < spec->n_out; i++)
        plain.out[i].layout = kolo_layout_plain(spec->out[i].shape.rank);
    void *x = negative_with_nan(&plain.in[0]);
    void *expected = result(reference, &plain, x), *got = result(kernel, spec, x);
    int64_t n = kolo_shape_count(&spec->out[0].shape), nans = 0;
    for (int64_t i = 0; i < n; i++) {
        bool nan = isnan(at(&plain.out[0], expected, i));
        nans += nan;
        if (nan && !isnan(at(&plain.out[0], got, i))) fail_msg("%s loses a NaN", kernel->name);
    }
    assert_true(nans > 0);
    kolo_free(x);
    kolo_free(expected);
    kolo_free(got);
}

/* Checks every kernel that supports the spec; returns their number. */
static int check_kernels(const kolo_kernel_spec *spec) {
    const kolo_kernel *kernel, *reference = NULL;
    int checked = 0;
    for (size_t i = 0; (kernel = kolo_kernel_at(i)); i++) {
        if (kernel->op == spec->op && kolo_kernel_is_ref(kernel)) reference = kernel;
    }
    assert_non_null(reference);
    for (size_t i = 0; (kernel = kolo_kernel_at(i)); i++) {
        bool other = kernel->op != spec->op || strncmp(kernel->name, "dnn_", 4) == 0;
        kolo_kernel_spec own = *spec;
        if (other || kernel->fit(&own) < 0) continue;
        check(kernel, &own, reference);
        checked++;
    }
    return checked;
}

static void nan_is_passed_on(void **state) {
    static const char *const layouts[] = {"abcd", "acdb", "aBcd8b"};
    int checked = 0;
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        for (size_t k = 0; k < 2 * KOLO_COUNT(layouts); k++) {
            bool images = cases[c].in[0].rank == 4, half = k % 2;
            const char *layout[5] = {layouts[k / 2], NULL, NULL, NULL, NULL};
            const char *outs[3] = {layout[0], NULL, NULL};
            kolo_kernel_spec spec;
            if (!images && k / 2 > 0) continue;
            if (cases[c].op == &kolo_op_add) layout[1] = layout[0];
            if (cases[c].op == &kolo_op_conv2d) layout[1] = "any";
            if (cases[c].op == &kolo_op_max_pool2d) outs[1] = layout[0];
            test_kernel_spec(&spec, cases[c].op, cases[c].attr, cases[c].n_in, cases[c].in,
                             images ? layout : NULL, cases[c].n_out, images ? outs : NULL, 1);
            if (half) test_kernel_in_bf16(&spec, -1);
            checked += check_kernels(&spec);
        }
    }
    assert_true(checked > 20);
}

TEST_MAIN(test_nan) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nan_is_passed_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
