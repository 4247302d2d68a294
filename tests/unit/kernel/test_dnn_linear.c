/* oneDNN linear layers against the reference, over sizes, orders of a folded flatten, weights'
 * layouts and threads. */
#include "graph/ops/ops.h"
#include "support/dnn_check.h"

#include <stdio.h>

typedef struct linear_case {
    kolo_shape x;
    int64_t o;
    const char *layouts[5]; /* of x and dx; each is also tried for the weights */
} linear_case;

static const linear_case cases[] = {
    {{2, {64, 784}}, 128, {"ab"}},
    {{2, {3, 17}}, 5, {"ab", "ba"}},
    {{2, {1, 1}}, 1, {"ab"}},
    {{2, {5, 64}}, 1, {"ab", "aB8b"}},
    {{3, {4, 6, 7}}, 9, {"abc", "acb", "aBc8b", "Abc8a"}},
    {{4, {7, 16, 5, 5}}, 120, {"abcd", "acdb", "aBcd8b", "aBcd16b"}},
    {{4, {3, 6, 3, 2}}, 11, {"abcd", "acdb", "aBcd8b", "adcb", "aBcd16b"}},
    {{4, {2, 1, 4, 4}}, 3, {"abcd", "acdb"}},
    {{6, {2, 3, 2, 2, 3, 2}}, 4, {"abcdef", "acdefb"}},
};

static bool leads_with_samples(const char *layout) { return layout[0] == 'a'; }

/* All three passes with x and w in these layouts; whether forward fits. */
static bool check(const linear_case *c, const char *x, const char *w, bool bias, int threads) {
    kolo_kernel_spec spec;
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    kolo_shape w_shape = c->x, y_shape = kolo_shape_2(c->x.dim[0], c->o);
    w_shape.dim[0] = c->o;
    attr[KOLO_LINEAR_RELU].i = bias;
    test_kernel_spec(&spec, &kolo_op_linear, attr, 2 + bias,
                     (kolo_shape[]){c->x, w_shape, kolo_shape_1(c->o)},
                     (const char *[]){x, w ? w : "any", "a"}, 1, NULL, threads);
    bool fits = test_dnn_kernel("dnn_linear", &spec);
    if (!w) return fits;

    attr[KOLO_LINEAR_BWD_BIAS].i = bias;
    test_kernel_spec(&spec, &kolo_op_linear_bwd_weights, attr, 2, (kolo_shape[]){y_shape, c->x},
                     (const char *[]){"ab", x}, 1 + bias, (const char *[]){w, "a"}, threads);
    assert_int_equal(test_dnn_kernel("dnn_linear_bwd_weights", &spec), fits);
    attr[KOLO_LINEAR_BWD_BIAS].i = 0;
    test_kernel_spec(&spec, &kolo_op_linear_bwd_data, attr, 2, (kolo_shape[]){y_shape, w_shape},
                     (const char *[]){"ab", w}, 1, &x, threads);
    assert_int_equal(test_dnn_kernel("dnn_linear_bwd_data", &spec), fits);
    return fits;
}

static void linear_is_the_reference(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const linear_case *c = &cases[i];
        for (size_t j = 0; j < KOLO_COUNT(c->layouts) && c->layouts[j]; j++) {
            const char *x = c->layouts[j];
            assert_int_equal(check(c, x, NULL, j % 2, 1), leads_with_samples(x));
            for (size_t k = 0; k < KOLO_COUNT(c->layouts) && c->layouts[k]; k++) {
                bool fits = check(c, x, c->layouts[k], k % 2, 1 + (i + j) % 2);
                assert_int_equal(fits, leads_with_samples(x));
            }
        }
    }
}

/* Tokens [N,...,C] are rows of a matrix. */
static void tokens_are_the_reference(void **state) {
    const kolo_shape xs[] = {{3, {2, 7, 24}}, {4, {3, 1, 5, 19}}};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{1}}; /* relu; a bias backwards */
    for (size_t i = 0; i < KOLO_COUNT(xs); i++) {
        kolo_shape x = xs[i], y = x, w = kolo_shape_2(10, x.dim[x.rank - 1]);
        y.dim[y.rank - 1] = 10;
        const kolo_shape in[] = {x, w, kolo_shape_1(10)};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_linear, attr, 3, in, NULL, 1, NULL, 1);
        assert_true(test_dnn_kernel("dnn_linear", &spec));
        test_kernel_spec(&spec, &kolo_op_linear_bwd_data, NULL, 2, (kolo_shape[]){y, w}, NULL, 1,
                         NULL, 1);
        assert_true(test_dnn_kernel("dnn_linear_bwd_data", &spec));
        test_kernel_spec(&spec, &kolo_op_linear_bwd_weights, attr, 2, (kolo_shape[]){y, x}, NULL, 2,
                         NULL, 1);
        assert_true(test_dnn_kernel("dnn_linear_bwd_weights", &spec));
    }
}

/* All three passes in bf16, of a batch of images and of tokens; `but_x`: with an x in f32. */
static void check_half(kolo_shape x, const char *layout, int threads, bool but_x) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{1}}; /* relu; a bias backwards */
    bool tokens = x.rank == 3;
    kolo_shape w = tokens ? kolo_shape_2(10, x.dim[2]) : x, y = x, b = kolo_shape_1(10);
    if (tokens) {
        y.dim[2] = 10;
    } else {
        w.dim[0] = 10;
        y = kolo_shape_2(x.dim[0], 10);
    }
    const char *const x_then_w[] = {layout, tokens ? NULL : layout, NULL};
    const char *const y_then_x[] = {NULL, layout}, *const y_then_w[] = {NULL, x_then_w[1]};
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_linear, attr, 3, (kolo_shape[]){x, w, b}, x_then_w, 1, NULL,
                     threads);
    test_kernel_in_bf16(&spec, but_x ? 0 : -1);
    assert_true(test_dnn_kernel("dnn_linear", &spec));
    test_kernel_spec(&spec, &kolo_op_linear_bwd_weights, attr, 2, (kolo_shape[]){y, x}, y_then_x, 2,
                     (const char *[]){x_then_w[1], NULL}, threads);
    test_kernel_in_bf16(&spec, but_x ? 1 : -1);
    assert_true(test_dnn_kernel("dnn_linear_bwd_weights", &spec));
    test_kernel_spec(&spec, &kolo_op_linear_bwd_data, NULL, 2, (kolo_shape[]){y, w}, y_then_w, 1,
                     &layout, threads);
    test_kernel_in_bf16(&spec, -1);
    assert_true(test_dnn_kernel("dnn_linear_bwd_data", &spec));
}

static void linear_in_bf16_is_the_reference(void **state) {
    static const struct {
        kolo_shape x;
        const char *layout;
    } halves[] = {
        {{2, {64, 784}}, "ab"},
        {{2, {3, 17}}, "ab"},
        {{2, {1, 1}}, "ab"},
        {{4, {7, 16, 5, 5}}, "aBcd16b"},
        {{4, {3, 6, 3, 2}}, "aBcd16b"},
        {{4, {3, 6, 3, 2}}, "acdb"},
        {{3, {2, 7, 24}}, "abc"},
    };
    if (kolo_isa_best() < KOLO_ISA_AVX512) {
        puts("skip: no AVX-512");
        skip();
    }
    for (size_t i = 0; i < KOLO_COUNT(halves); i++) {
        for (int k = 0; k < 4; k++) check_half(halves[i].x, halves[i].layout, 1 + k % 2, k / 2);
    }
}

static void matmul_is_the_reference(void **state) {
    for (int64_t k = 0; k < 8; k++) {
        bool ta = k & 1, tb = k & 2;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{ta}, {tb}};
        const kolo_shape in[] = {ta ? (kolo_shape){3, {3, 17, 9}} : (kolo_shape){3, {3, 9, 17}},
                                 tb ? (kolo_shape){3, {3, 20, 17}} : (kolo_shape){3, {3, 17, 20}}};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_matmul, attr, 2, in, NULL, 1, NULL, k & 4 ? 2 : 1);
        const kolo_kernel *kernel = test_kernel("dnn_matmul");
        assert_true(kernel && kernel->fit(&spec) >= 0);
        test_kernel_against_reference(kernel, &spec, 1e-5);
    }
}

TEST_MAIN(test_dnn_linear) {
    if (!test_kernel("dnn_linear")) {
        puts("skip: built without oneDNN");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_the_reference),
        cmocka_unit_test(tokens_are_the_reference),
        cmocka_unit_test(linear_in_bf16_is_the_reference),
        cmocka_unit_test(matmul_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
