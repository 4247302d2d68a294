/* oneDNN's kernels with the batch shared out among threads, against the reference. */
#include "kernel/select/select.h"
#include "support/kernel_check.h"

#include <stdio.h>

static const kolo_attr conv[KOLO_MAX_ATTRS] = {{1}, {1}, {1}, {1}, {1}, {1}, {1}};
static const kolo_attr sized[KOLO_MAX_ATTRS] = {
    {1}, {1}, {1}, {1}, {1}, {1}, {1}, [KOLO_CONV_SIZE_H] = {9}, [KOLO_CONV_SIZE_W] = {7}};
static const kolo_attr relu[KOLO_MAX_ATTRS] = {{1}};

static const struct {
    const char *kernel;
    const kolo_op *op;
    const kolo_attr *attr;
    kolo_shape in[3];
    int n_in;
    const char *in_layouts[3], *out_layout;
} cases[] = {
    {"dnn_conv2d_split",
     &kolo_op_conv2d,
     conv,
     {{4, {6, 16, 9, 7}}, {4, {24, 16, 3, 3}}, {1, {24}}},
     3,
     {"aBcd8b", "any", "a"},
     "aBcd8b"},
    {"dnn_conv2d_split",
     &kolo_op_conv2d,
     conv,
     {{4, {6, 5, 9, 7}}, {4, {11, 5, 3, 3}}},
     2,
     {"acdb", "acdb"},
     "acdb"},
    {"dnn_conv2d_bwd_data_split",
     &kolo_op_conv2d_bwd_data,
     sized,
     {{4, {6, 24, 9, 7}}, {4, {24, 16, 3, 3}}},
     2,
     {"acdb", "acdb"},
     "acdb"},
    {"dnn_linear_split",
     &kolo_op_linear,
     relu,
     {{2, {12, 40}}, {2, {17, 40}}, {1, {17}}},
     3,
     {"ab", "any", "a"},
     "ab"},
    {"dnn_linear_split",
     &kolo_op_linear,
     NULL,
     {{3, {6, 5, 19}}, {2, {10, 19}}},
     2,
     {"abc", "ab"},
     "abc"},
    {"dnn_linear_bwd_data_split",
     &kolo_op_linear_bwd_data,
     NULL,
     {{3, {6, 5, 10}}, {2, {10, 19}}},
     2,
     {"abc", "ab"},
     "abc"},
    {"dnn_matmul_split",
     &kolo_op_matmul,
     NULL,
     {{3, {6, 9, 17}}, {3, {6, 17, 20}}},
     2,
     {"abc", "abc"},
     "abc"},
};

static const kolo_kernel *make(size_t i, int threads, kolo_kernel_spec *spec) {
    test_kernel_spec(spec, cases[i].op, cases[i].attr, cases[i].n_in, cases[i].in,
                     cases[i].in_layouts, 1, &cases[i].out_layout, threads);
    return test_kernel(cases[i].kernel);
}

static void shares_are_the_reference(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int threads = 2; threads <= 6; threads++) {
            kolo_kernel_spec spec;
            const kolo_kernel *kernel = make(i, threads, &spec);
            assert_non_null(kernel);
            double seconds = kernel->fit(&spec);
            assert_int_equal(seconds >= 0, cases[i].in[0].dim[0] % threads == 0);
            if (seconds >= 0) test_kernel_against_reference(kernel, &spec, 1e-5);
        }
    }
}

/* Nothing is shared out with one thread, nor where samples do not follow each other in memory. */
static void some_batches_are_not_cut(void **state) {
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_true(make(i, 1, &spec)->fit(&spec) < 0);
    }
    const kolo_kernel *kernel = make(3, 2, &spec);
    ASSERT_OK(kolo_layout_parse("ba", &spec.in[0].layout));
    assert_true(kernel->fit(&spec) < 0);
}

/* Without a measured time oneDNN's own split is taken. */
static void no_estimate_prefers_shares(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_kernel_spec spec;
        const kolo_kernel *kernel = make(i, 2, &spec), *chosen;
        ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_BEST, &spec, &chosen, NULL));
        assert_ptr_not_equal(chosen, kernel);
    }
}

static void failed_allocations_are_reported(void **state) {
    kolo_kernel_spec spec;
    const kolo_kernel *kernel = make(0, 2, &spec);
    assert_true(kernel->fit(&spec) >= 0);
    for (int nth = 1; nth <= 3; nth++) {
        kolo_call call = {.spec = &spec};
        size_t scratch = 0;
        kolo_alloc_fail_nth(nth);
        assert_int_equal(kernel->prepare(&spec, &call.state, &scratch), KOLO_ERR_NOMEM);
        kolo_alloc_fail_nth(0);
        kernel->release(call.state);
    }
    kolo_call call = {.spec = &spec};
    size_t scratch = 0;
    ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch));
    for (int nth = 1; nth <= 3; nth++) {
        kolo_alloc_fail_nth(nth);
        assert_int_equal(kernel->bind(&call), KOLO_ERR_NOMEM);
        kolo_alloc_fail_nth(0);
        kernel->unbind(call.bound);
        call.bound = NULL;
    }
    kernel->release(call.state);
}

TEST_MAIN(test_dnn_split) {
    if (!test_kernel("dnn_conv2d_split")) {
        puts("skip: built without oneDNN");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_the_reference),
        cmocka_unit_test(some_batches_are_not_cut),
        cmocka_unit_test(no_estimate_prefers_shares),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
