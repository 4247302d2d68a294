/* Linear layers on few rows and on many, and weight gradients, of every instruction set that this
 * machine has, against the reference, over sizes, layouts and threads; the same bits for any number
 * of threads. */
#include "base/isa.h"
#include "kernel/simd/kernels.h"
#include "kernel/simd/linear_many.h"
#include "support/kernel_check.h"

typedef struct linear_case {
    kolo_shape x;
    int64_t o;
    const char *layout; /* of x, dx and the weights */
} linear_case;

static const linear_case cases[] = {
    {{2, {4, 1}}, 1, "ab"},            /* the fewest rows */
    {{2, {6, 17}}, 5, "ab"},           /* parts of all tiles */
    {{2, {4, 768}}, 12, "ab"},         /* whole ones */
    {{2, {5, 1031}}, 13, "ab"},        /* several blocks and strips, with rests */
    {{2, {64, 100}}, 7, "ab"},         /* the most rows */
    {{2, {33, 700}}, 50, "ab"},        /* rows that leave a rest */
    {{4, {7, 16, 5, 5}}, 23, "acdb"},  /* a flatten of images */
    {{4, {5, 6, 3, 2}}, 11, "aBcd8b"}, /* with padding */
    {{3, {4, 20, 7}}, 9, "aBc16b"},    /* likewise */
};

static kolo_shape weights_of(const linear_case *c) {
    kolo_shape w = c->x;
    w.dim[0] = c->o;
    return w;
}

static void forward_spec(kolo_kernel_spec *spec, const linear_case *c, const kolo_attr *attr,
                         const char *w_layout, bool bias, int threads) {
    test_kernel_spec(spec, &kolo_op_linear, attr, 2 + bias,
                     (kolo_shape[]){c->x, weights_of(c), kolo_shape_1(c->o)},
                     (const char *[]){c->layout, w_layout, "a"}, 1, NULL, threads);
}

static void bwd_data_spec(kolo_kernel_spec *spec, const linear_case *c, const kolo_attr *attr,
                          int threads) {
    test_kernel_spec(spec, &kolo_op_linear_bwd_data, attr, 2,
                     (kolo_shape[]){kolo_shape_2(c->x.dim[0], c->o), weights_of(c)},
                     (const char *[]){"ab", c->layout}, 1, &c->layout, threads);
}

static void linear_is_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t i = 0; i < 2 * KOLO_COUNT(cases); i++) {
            const linear_case *c = &cases[i / 2];
            int threads = 1 + (int)(i % 3);
            kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
            kolo_kernel_spec spec;
            bwd_data_spec(&spec, c, attr, threads);
            assert_true(kolo_simd_linear_bwd_data.fit(&spec) >= 0);
            test_kernel_against_reference(&kolo_simd_linear_bwd_data, &spec, 1e-5);
            attr[KOLO_LINEAR_RELU].i = i % 2;
            forward_spec(&spec, c, attr, i % 2 ? c->layout : "any", i / 2 % 2, threads);
            assert_true(kolo_simd_linear.fit(&spec) >= 0);
            assert_true(kolo_layout_equal(&spec.in[1].layout, &spec.in[0].layout));
            test_kernel_against_reference(&kolo_simd_linear, &spec, 1e-5);
        }
    }
    kolo_isa_pin(-1);
}

/* Weight gradients: rows of dy, width of x and dy. */
static const int64_t gradients[][3] = {
    {256, 1, 1},    /* the fewest rows, in one part of a tile */
    {257, 17, 15},  /* one row in the second block */
    {520, 32, 42},  /* whole tiles, three blocks */
    {300, 40, 470}, /* more than one group of tiles */
    {257, 3101, 7}, /* more columns than are packed at a time, two blocks */
};

static void weights_spec(kolo_kernel_spec *spec, const int64_t *size, const kolo_attr *attr,
                         int threads) {
    bool bias = attr[KOLO_LINEAR_BWD_BIAS].i != 0;
    test_kernel_spec(spec, &kolo_op_linear_bwd_weights, attr, 2,
                     (kolo_shape[]){kolo_shape_2(size[0], size[2]), kolo_shape_2(size[0], size[1])},
                     NULL, 1 + bias, NULL, threads);
}

static void weight_gradient_is_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t i = 0; i < KOLO_COUNT(gradients); i++) {
            const kolo_attr attr[KOLO_MAX_ATTRS] = {{.i = i % 2 == 0}};
            kolo_kernel_spec spec;
            weights_spec(&spec, gradients[i], attr, 1 + (int)(i % 3));
            assert_true(kolo_simd_linear_bwd_weights.fit(&spec) >= 0);
            test_kernel_against_reference(&kolo_simd_linear_bwd_weights, &spec, 1e-5);
        }
    }
    kolo_isa_pin(-1);
}

/* On many rows: rows, width of x and y. */
static const int64_t many[][3] = {
    {256, 1, 1},      /* the fewest rows, one column */
    {259, 33, 16},    /* part of a tile, one vector of it */
    {300, 64, 64},    /* whole panels */
    {256, 1025, 390}, /* two blocks of rows of the weights, and of columns */
    {283, 47, 93},    /* a last panel of more than a vector */
    {256, 1030, 20},  /* two blocks of rows, GELU without its input */
    {261, 1030, 37},  /* and with it and a bias */
};

/* x, weights and bias, or dy and weights. */
static void many_spec(kolo_kernel_spec *spec, const kolo_op *op, const int64_t *size,
                      const kolo_attr *attr, int n_in, int n_out, int threads) {
    const bool forward = op != &kolo_op_linear_bwd_data;
    test_kernel_spec(spec, op, attr, n_in,
                     (kolo_shape[]){kolo_shape_2(size[0], size[forward ? 1 : 2]),
                                    kolo_shape_2(size[2], size[1]), kolo_shape_1(size[2])},
                     NULL, n_out, NULL, threads);
}

static void many_rows_are_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (int i = 0; i < (int)KOLO_COUNT(many); i++) {
            const int threads = 1 + i % 3, bias = i % 2, keep = i / 2 % 2;
            const kolo_attr
                relu[KOLO_MAX_ATTRS] = {[KOLO_LINEAR_RELU].i = i / 2 % 2},
                gelu[KOLO_MAX_ATTRS] =
                    {[KOLO_LINEAR_GELU_TANH].i = (i + isa) % 2, [KOLO_LINEAR_GELU_KEEP].i = keep},
                none[KOLO_MAX_ATTRS] = {{0}};
            kolo_kernel_spec spec;
            many_spec(&spec, &kolo_op_linear, many[i], relu, 2 + bias, 1, threads);
            assert_true(kolo_simd_linear_many.fit(&spec) >= 0);
            test_kernel_against_reference(&kolo_simd_linear_many, &spec, 1e-5);
            many_spec(&spec, &kolo_op_linear_gelu, many[i], gelu, 3 - bias, 1 + keep, threads);
            assert_true(kolo_simd_linear_gelu_many.fit(&spec) >= 0);
            test_kernel_against_reference(&kolo_simd_linear_gelu_many, &spec, 1e-5);
            many_spec(&spec, &kolo_op_linear_bwd_data, many[i], none, 2, 1, threads);
            assert_true(kolo_simd_linear_bwd_data_many.fit(&spec) >= 0);
            test_kernel_against_reference(&kolo_simd_linear_bwd_data_many, &spec, 1e-5);
        }
    }
    kolo_isa_pin(-1);
}

/* Tokens are rows; open weights become plain; few rows, images and weights in another order are
 * refused. */
static void many_rows_may_be_tokens(void **state) {
    static const struct {
        kolo_shape x;
        const char *x_layout;
        kolo_shape w;
        const char *w_layout;
        bool fits;
    } inputs[] = {
        {{3, {7, 40, 24}}, "abc", {2, {10, 24}}, "any", true},
        {{2, {256, 24}}, "ab", {2, {10, 24}}, "any", true},
        {{2, {255, 24}}, "ab", {2, {10, 24}}, "ab", false},
        {{4, {256, 6, 2, 2}}, "acdb", {4, {10, 6, 2, 2}}, "acdb", false},
        {{2, {256, 24}}, "ba", {2, {10, 24}}, "ab", false},
        {{2, {256, 24}}, "ab", {2, {10, 24}}, "ba", false},
    };
    for (size_t i = 0; i < KOLO_COUNT(inputs); i++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_linear, attr, 2, (kolo_shape[]){inputs[i].x, inputs[i].w},
                         (const char *[]){inputs[i].x_layout, inputs[i].w_layout}, 1, NULL, 2);
        assert_int_equal(kolo_simd_linear_many.fit(&spec) >= 0, inputs[i].fits);
        if (!inputs[i].fits) continue;
        assert_true(kolo_layout_is_plain(&spec.in[1].layout));
        test_kernel_against_reference(&kolo_simd_linear_many, &spec, 1e-5);
    }
}

/* A large result of GELU is written past the cache if its rows begin at cache lines. */
static void results_past_the_cache_are_the_same(void **state) {
    static const int64_t size[] = {1030, 8, 1040};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LINEAR_GELU_KEEP].i = 1};
    const kolo_kernel *kernel = &kolo_simd_linear_gelu_many;
    const size_t shift = 16;
    kolo_kernel_spec spec;
    many_spec(&spec, &kolo_op_linear_gelu, size, attr, 3, 2, 2);
    const size_t bytes = kolo_tensor_bytes(&spec.out[0]);
    kolo_call call = {.spec = &spec};
    for (int i = 0; i < 3; i++) {
        float *in = call.in[i] = kolo_pages_map(kolo_tensor_bytes(&spec.in[i]));
        assert_non_null(in);
        for (int64_t k = 0; k < kolo_tensor_elements(&spec.in[i]); k++) in[k] = (float)(k % 7) - 3;
    }
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        char *out[2][2];
        size_t scratch_bytes;
        kolo_isa_pin(isa);
        ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
        call.scratch = kolo_pages_map(scratch_bytes);
        for (int shifted = 0; shifted < 2; shifted++) {
            for (int i = 0; i < 2; i++) {
                assert_non_null(out[shifted][i] = kolo_pages_map(bytes + shift));
                call.out[i] = out[shifted][i] + (shifted ? shift : 0);
            }
            kernel->run(&call);
        }
        for (int i = 0; i < 2; i++) {
            assert_memory_equal(out[0][i], out[1][i] + shift, bytes);
            for (int k = 0; k < 2; k++) kolo_pages_unmap(out[k][i], bytes + shift);
        }
        kolo_pages_unmap(call.scratch, scratch_bytes);
        kernel->release(call.state);
    }
    for (int i = 0; i < 3; i++) kolo_pages_unmap(call.in[i], kolo_tensor_bytes(&spec.in[i]));
    kolo_isa_pin(-1);
}

/* No thread has more strips than another one, and none of them is higher than it may be. */
static void threads_have_equal_numbers_of_strips(void **state) {
    static const int64_t rows[] = {256, 259, 1024, 3152}, most = 56;
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        for (int threads = 1; threads <= 300; threads++) {
            const int64_t strips = kolo_simd_many_strips(rows[i], most, threads);
            assert_int_equal(strips % threads, 0);
            assert_true(rows[i] <= strips * most);
            assert_true((strips - threads) * most < rows[i]); /* with fewer they would be higher */
        }
    }
}

/* Rows of dw are divided in whole tiles: threads without one are idle, which the estimate counts.
 */
static void estimates_count_idle_threads(void **state) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        kolo_kernel_spec spec;
        weights_spec(&spec, (int64_t[]){3000, 512, 54}, attr, i ? 8 : 1); /* 9 or 4 tiles */
        seconds[i] = kolo_simd_linear_bwd_weights.fit(&spec);
        assert_true(seconds[i] > 0);
    }
    assert_true(seconds[1] > 1.7 * seconds[0]);
}

/* What the loops do not take, they refuse. */
static void others_do_not_fit(void **state) {
    static const struct {
        kolo_shape x;
        const char *x_layout, *w_layout;
    } others[] = {
        {{2, {3, 32}}, "ab", "ab"},          /* too few rows */
        {{2, {65, 32}}, "ab", "ab"},         /* too many rows */
        {{2, {8, 32}}, "ba", "ba"},          /* rows that are columns */
        {{2, {8, 32}}, "Ab8a", "Ab8a"},      /* rows in blocks */
        {{4, {4, 8, 3, 3}}, "acdb", "abcd"}, /* weights in another order */
    };
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        const linear_case c = {others[i].x, 16, others[i].x_layout};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
        kolo_kernel_spec spec;
        forward_spec(&spec, &c, attr, others[i].w_layout, false, 1);
        assert_true(kolo_simd_linear.fit(&spec) < 0);
    }
    const linear_case tokens = {{3, {2, 5, 8}}, 16, "abc"};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_linear, attr, 2, (kolo_shape[]){tokens.x, kolo_shape_2(16, 8)},
                     NULL, 1, NULL, 1);
    assert_true(kolo_simd_linear.fit(&spec) < 0);
    weights_spec(&spec, (int64_t[]){255, 8, 16}, attr, 1); /* too few rows */
    assert_true(kolo_simd_linear_bwd_weights.fit(&spec) < 0);
}

static void threads_change_no_bit_of_many_rows(void **state) {
    static const kolo_kernel *const kernels[] = {
        &kolo_simd_linear_many, &kolo_simd_linear_gelu_many, &kolo_simd_linear_bwd_data_many};
    static const int64_t size[] = {310, 70, 90};
    for (size_t k = 0; k < KOLO_COUNT(kernels); k++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
        void *results[2] = {NULL};
        size_t bytes = 0;
        for (int i = 0; i < 2; i++) {
            kolo_kernel_spec spec;
            many_spec(&spec, kernels[k]->op, size, attr, 2, 1, 1 + 2 * i);
            bytes = kolo_tensor_bytes(&spec.out[0]);
            results[i] = test_kernel_result(kernels[k], &spec);
        }
        assert_memory_equal(results[0], results[1], bytes);
        for (int i = 0; i < 2; i++) kolo_free(results[i]);
    }
}

static void threads_change_no_bit(void **state) {
    static const kolo_kernel *const kernels[] = {&kolo_simd_linear, &kolo_simd_linear_bwd_data,
                                                 &kolo_simd_linear_bwd_weights};
    const linear_case c = {{2, {32, 1500}}, 100, "ab"};
    for (int pass = 0; pass < 4; pass++) {
        const int kernel = pass < 2 ? pass : 2, output = pass == 3; /* dw, db */
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.i = kernel == 2}};
        void *results[2] = {NULL};
        size_t bytes = 0;
        for (int i = 0; i < 2; i++) {
            kolo_kernel_spec spec;
            int threads = 1 + 2 * i;
            if (pass == 0) {
                forward_spec(&spec, &c, attr, c.layout, true, threads);
            } else if (pass == 1) {
                bwd_data_spec(&spec, &c, attr, threads);
            } else {
                weights_spec(&spec, (int64_t[]){300, 100, 90}, attr, threads);
            }
            bytes = kolo_tensor_bytes(&spec.out[output]);
            results[i] = test_kernel_output(kernels[kernel], &spec, output);
        }
        assert_memory_equal(results[0], results[1], bytes);
        for (int i = 0; i < 2; i++) kolo_free(results[i]);
    }
}

TEST_MAIN(test_simd_linear) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_the_reference),
        cmocka_unit_test(weight_gradient_is_the_reference),
        cmocka_unit_test(many_rows_are_the_reference),
        cmocka_unit_test(many_rows_may_be_tokens),
        cmocka_unit_test(results_past_the_cache_are_the_same),
        cmocka_unit_test(threads_have_equal_numbers_of_strips),
        cmocka_unit_test(estimates_count_idle_threads),
        cmocka_unit_test(others_do_not_fit),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(threads_change_no_bit_of_many_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
