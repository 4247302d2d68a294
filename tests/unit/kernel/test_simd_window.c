/* Our concat and window against the reference, bitwise, over layouts whose blocks do and
 * do not meet; deinterleave and interleave. */
#include "base/isa.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

static const char *const layouts[] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};

static void check(const kolo_kernel *kernel, kolo_kernel_spec *spec) {
    assert_true(kernel->fit(spec) >= 0);
    test_kernel_on(kernel, spec, NULL, 0);
    test_kernel_in_bf16(spec, -1);
    assert_int_equal(spec->out[0].dtype, KOLO_DTYPE_BF16);
    assert_true(kernel->fit(spec) >= 0);
    test_kernel_on(kernel, spec, NULL, -2e-3); /* the very bits */
}

static void concat_is_the_reference(void **state) {
    static const int64_t channels[][3] = {{8, 16, 8}, {3, 9, 17}, {1, 1, 1}, {16, 16, 32}};
    for (size_t i = 0; i < KOLO_COUNT(channels); i++) {
        for (size_t l = 0; l < KOLO_COUNT(layouts) * KOLO_COUNT(layouts); l++) {
            const char *from = layouts[l / KOLO_COUNT(layouts)],
                       *to = layouts[l % KOLO_COUNT(layouts)];
            const char *in_layouts[] = {from, from, to};
            kolo_shape in[3];
            for (int k = 0; k < 3; k++) in[k] = kolo_shape_4(3, channels[i][k], 4, 5);
            kolo_kernel_spec spec;
            const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CONCAT_AXIS].i = 1};
            test_kernel_spec(&spec, &kolo_op_concat, attr, 3, in, in_layouts, 1, &to,
                             l % 2 ? 3 : 1);
            check(&kolo_simd_concat, &spec);
        }
    }
}

static void window_is_the_reference(void **state) {
    static const int64_t windows[][3] = {/* channels, first, count */
                                         {16, 0, 16}, {16, -8, 32}, {32, 16, 8}, {19, 3, 10},
                                         {5, -3, 21}, {9, 8, 4},    {1, -1, 2},  {40, 5, 17}};
    for (size_t i = 0; i < KOLO_COUNT(windows); i++) {
        for (size_t l = 0; l < KOLO_COUNT(layouts) * KOLO_COUNT(layouts); l++) {
            const char *from = layouts[l / KOLO_COUNT(layouts)],
                       *to = layouts[l % KOLO_COUNT(layouts)];
            const kolo_attr attr[KOLO_MAX_ATTRS] = {{windows[i][1]}, {windows[i][2]}, {1}};
            kolo_shape x = kolo_shape_4(3, windows[i][0], 4, 5);
            kolo_kernel_spec spec;
            test_kernel_spec(&spec, &kolo_op_window, attr, 1, &x, &from, 1, &to, l % 2 ? 3 : 1);
            check(&kolo_simd_window, &spec);
        }
    }
}

/* Images of one pixel are rows of channels, unless these end in padding. */
static void single_pixels_are_the_reference(void **state) {
    static const int64_t channels[][3] = {{3, 5, 7}, {8, 8, 8}, {5, 3, 0}, {16, 1, 9}};
    for (size_t l = 0; l < KOLO_COUNT(layouts) * KOLO_COUNT(layouts); l++) {
        const char *from = layouts[l / KOLO_COUNT(layouts)], *to = layouts[l % KOLO_COUNT(layouts)];
        const char *in_layouts[] = {from, from, from};
        for (size_t i = 0; i < KOLO_COUNT(channels); i++) {
            kolo_shape in[3];
            int n = 0;
            for (; n < 3 && channels[i][n] > 0; n++) in[n] = kolo_shape_4(3, channels[i][n], 1, 1);
            kolo_kernel_spec spec;
            const kolo_attr joins[KOLO_MAX_ATTRS] = {[KOLO_CONCAT_AXIS].i = 1};
            test_kernel_spec(&spec, &kolo_op_concat, joins, n, in, in_layouts, 1, &to, 1);
            check(&kolo_simd_concat, &spec);
            const kolo_attr cuts[KOLO_MAX_ATTRS] = {{1}, {6}, {1}};
            test_kernel_spec(&spec, &kolo_op_window, cuts, 1, in, &from, 1, &to, 1);
            check(&kolo_simd_window, &spec);
        }
    }
    (void)state;
}

static void any_dimension_is_the_reference(void **state) {
    for (int axis = 1; axis < 5; axis++) {
        kolo_shape in[3], x = {5, {2, 6, 3, 4, 5}};
        const char *const plain[] = {"abcde", "abcde", "abcde"};
        kolo_kernel_spec spec;
        for (int k = 0; k < 3; k++) {
            in[k] = x;
            in[k].dim[axis] = k + 1;
        }
        const kolo_attr joins[KOLO_MAX_ATTRS] = {[KOLO_CONCAT_AXIS].i = axis};
        test_kernel_spec(&spec, &kolo_op_concat, joins, 3, in, plain, 1, plain, 1 + axis % 2);
        check(&kolo_simd_concat, &spec);
        const kolo_attr cuts[KOLO_MAX_ATTRS] = {[KOLO_WINDOW_FIRST].i = axis - 2,
                                                [KOLO_WINDOW_COUNT].i = 4,
                                                [KOLO_WINDOW_AXIS].i = axis};
        test_kernel_spec(&spec, &kolo_op_window, cuts, 1, &x, plain, 1, plain, 1 + axis % 2);
        check(&kolo_simd_window, &spec);
    }
}

/* Runs of any dimension, divided into up to eight parts, and back. */
static void deinterleaved_runs_are_those_of_the_reference(void **state) {
    for (int axis = 0; axis < 3; axis++) {
        for (int parts = 1; parts <= KOLO_MAX_IO; parts++) {
            const int64_t length = 1 + axis;
            const char *const plain[] = {"abc", "abc", "abc", "abc", "abc", "abc", "abc", "abc"};
            const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_INTERLEAVE_AXIS].i = axis,
                                                    [KOLO_INTERLEAVE_LENGTH].i = length,
                                                    [KOLO_INTERLEAVE_PARTS].i = parts};
            kolo_shape in[KOLO_MAX_IO], x = kolo_shape_3(2, 3, 5);
            kolo_kernel_spec spec;
            x.dim[axis] = 2 * length;
            for (int k = 0; k < parts; k++) in[k] = x;
            x.dim[axis] *= parts;
            test_kernel_spec(&spec, &kolo_op_deinterleave, attr, 1, &x, plain, parts, plain,
                             1 + axis % 2);
            assert_true(kolo_simd_deinterleave.fit(&spec) >= 0);
            test_kernel_on(&kolo_simd_deinterleave, &spec, NULL, 0);
            test_kernel_spec(&spec, &kolo_op_interleave, attr, parts, in, plain, 1, plain, 1);
            assert_true(kolo_simd_interleave.fit(&spec) >= 0);
            test_kernel_on(&kolo_simd_interleave, &spec, NULL, 0);
        }
    }
}

TEST_MAIN(test_simd_window) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deinterleaved_runs_are_those_of_the_reference),
        cmocka_unit_test(concat_is_the_reference),
        cmocka_unit_test(window_is_the_reference),
        cmocka_unit_test(single_pixels_are_the_reference),
        cmocka_unit_test(any_dimension_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
