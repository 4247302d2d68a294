/* Our kernels for images against the reference, over layouts, instruction sets and threads: pools
 * with all their conventions, resizing, local response normalization, and the loss, accuracy and
 * confusion of maps of labels. */
#include "base/bf16.h"
#include "base/isa.h"
#include "base/rng.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

static const char *const layouts[] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};

/* Runs the kernel on x in every layout; the other inputs of rank 4 and the outputs have it too.
 * With `halves` then on these in bf16. */
static void check_both(const kolo_kernel *kernel, const kolo_attr *attr, int n_in,
                       const kolo_shape *in, const void *const *inputs, const void *const *halves,
                       int n_out, double tolerance) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t l = 0; l < KOLO_COUNT(layouts); l++) {
            const char *in_layouts[KOLO_MAX_IO] = {NULL}, *out_layouts[KOLO_MAX_IO] = {NULL};
            for (int i = 0; i < n_in; i++) in_layouts[i] = in[i].rank == 4 ? layouts[l] : NULL;
            for (int i = 0; i < n_out; i++) out_layouts[i] = layouts[l];
            bool scalar = kernel->op == &kolo_op_softmax_xent,
                 count = n_in > 1 && n_out == 1 && in[1].rank == 3 &&
                         kernel->op != &kolo_op_softmax_xent_bwd;
            if (scalar || count) out_layouts[0] = NULL;
            kolo_kernel_spec spec;
            test_kernel_spec(&spec, kernel->op, attr, n_in, in, in_layouts, n_out, out_layouts,
                             l % 2 ? 3 : 1);
            assert_true(kernel->fit(&spec) >= 0);
            test_kernel_on(kernel, &spec, inputs, tolerance);
            if (!halves) continue;
            test_kernel_in_bf16(&spec, -1);
            assert_int_equal(spec.in[0].dtype, KOLO_DTYPE_BF16);
            assert_true(kernel->fit(&spec) >= 0);
            test_kernel_on(kernel, &spec, halves, tolerance);
        }
    }
    kolo_isa_pin(-1);
}

static void check(const kolo_kernel *kernel, const kolo_attr *attr, int n_in, const kolo_shape *in,
                  const void *const *inputs, int n_out, double tolerance) {
    check_both(kernel, attr, n_in, in, inputs, NULL, n_out, tolerance);
}

/* All inputs are random. */
static void check_random(const kolo_kernel *kernel, const kolo_attr *attr, int n_in,
                         const kolo_shape *in, int n_out, double tolerance) {
    const void *const random[KOLO_MAX_IO] = {NULL};
    check_both(kernel, attr, n_in, in, random, random, n_out, tolerance);
}

static void pools_are_the_reference(void **state) {
    static const struct {
        kolo_shape x;
        kolo_attr attr[KOLO_MAX_ATTRS];
        int64_t y[2];
    } cases[] = {
        {{4, {2, 5, 6, 7}}, {{3}, {3}, {2}, {3}, {1}, {0}, {0}, {0}, {0}, {1}, {0}}, {4, 3}},
        {{4, {1, 16, 13, 13}}, {{3}, {3}, {2}, {2}, {0}, {0}, {0}, {0}, {0}, {1}, {0}}, {6, 6}},
        {{4, {2, 19, 8, 8}}, {{3}, {3}, {2}, {2}, {1}, {1}, {0}, {0}, {0}, {1}, {1}}, {5, 5}},
        {{4, {1, 8, 9, 5}}, {{2}, {2}, {2}, {2}, {0}, {0}, {0}, {0}, {0}, {1}, {0}}, {5, 3}},
        {{4, {1, 9, 7, 7}}, {{3}, {3}, {1}, {1}, {1}, {1}, {0}, {0}, {0}, {0}, {1}}, {7, 7}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const kolo_shape *x = &cases[i].x;
        kolo_attr attr[KOLO_MAX_ATTRS];
        memcpy(attr, cases[i].attr, sizeof attr);
        kolo_shape y = kolo_shape_4(x->dim[0], x->dim[1], cases[i].y[0], cases[i].y[1]);
        check_random(&kolo_simd_max_pool2d, attr, 1, x, 2, 0);
        check_random(&kolo_simd_avg_pool2d, attr, 1, x, 1, 1e-6);
        attr[KOLO_POOL_IN_H].i = x->dim[2];
        attr[KOLO_POOL_IN_W].i = x->dim[3];
        check_random(&kolo_simd_avg_pool2d_bwd, attr, 1, &y, 1, 1e-6);
    }
}

static void adaptive_pools_are_the_reference(void **state) {
    static const int64_t cases[][5] = {
        {3, 7, 5, 3, 2}, {16, 13, 13, 6, 6}, {21, 3, 4, 5, 4}, {8, 6, 6, 1, 4}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int64_t *c = cases[i];
        kolo_shape x = kolo_shape_4(2, c[0], c[1], c[2]), y = kolo_shape_4(2, c[0], c[3], c[4]);
        const kolo_attr forward[KOLO_MAX_ATTRS] = {{c[3]}, {c[4]}};
        const kolo_attr backward[KOLO_MAX_ATTRS] = {{c[1]}, {c[2]}};
        check_random(&kolo_simd_adaptive_avg_pool2d, forward, 1, &x, 1, 1e-6);
        check_random(&kolo_simd_adaptive_avg_pool2d_bwd, backward, 1, &y, 1, 1e-6);
    }
}

static void resizing_is_the_reference(void **state) {
    static const int64_t cases[][5] = {
        {3, 7, 5, 13, 21}, {16, 4, 4, 32, 32}, {21, 9, 8, 4, 5}, {8, 1, 1, 6, 3}, {5, 6, 2, 1, 1}};
    for (size_t i = 0; i < 4 * KOLO_COUNT(cases); i++) {
        const int64_t *c = cases[i / 4], mode = (int64_t)i % 4;
        kolo_shape x = kolo_shape_4(2, c[0], c[1], c[2]), y = kolo_shape_4(2, c[0], c[3], c[4]);
        const kolo_attr forward[KOLO_MAX_ATTRS] = {{c[3]}, {c[4]}, {mode}};
        const kolo_attr backward[KOLO_MAX_ATTRS] = {{c[1]}, {c[2]}, {mode}};
        check_random(&kolo_simd_resize, forward, 1, &x, 1, 1e-6);
        check_random(&kolo_simd_resize_bwd, backward, 1, &y, 1, 1e-6);
    }
}

static void sampling(int threads) {
    static const int64_t cases[][5] = {{3, 7, 5, 13, 21}, {16, 4, 4, 1, 3}, {1, 1, 6, 5, 2}};
    for (size_t i = 0; i < 18 * KOLO_COUNT(cases); i++) {
        const int64_t *c = cases[i / 18], variant = (int64_t)i % 18;
        const kolo_shape x = kolo_shape_4(2, c[0], c[1], c[2]);
        const kolo_shape grid = kolo_shape_4(2, c[3], c[4], 2);
        const kolo_shape forward[] = {x, grid}, backward[] = {{4, {2, c[0], c[3], c[4]}}, x, grid};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{variant / 6}, {variant / 2 % 3}, {variant % 2}};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_grid_sample, attr, 2, forward, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_grid_sample, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_grid_sample_bwd, attr, 3, backward, NULL, 2, NULL,
                         threads);
        test_kernel_fitting(&kolo_simd_grid_sample_bwd, &spec, NULL, 1e-5);
    }
}

static void sampling_is_the_reference(void **state) { test_each_set(sampling); }

/* A copy of a pixel is the pixel, also where it is infinite. */
static void nearest_pixels_are_copies(void **state) {
    static const float pixels[] = {-INFINITY, 2, INFINITY, -3};
    const kolo_shape x = kolo_shape_4(1, 1, 2, 2);
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{3}, {4}, {KOLO_RESIZE_NEAREST}};
    const void *const inputs[] = {pixels};
    static const char *const kernels[] = {"ref_resize", "simd_resize"};
    for (size_t k = 0; k < KOLO_COUNT(kernels); k++) {
        kolo_kernel_spec spec = {.op = &kolo_op_resize,
                                 .attr = attr,
                                 .n_in = 1,
                                 .n_out = 1,
                                 .threads = 1,
                                 .in = {kolo_tensor_plain(KOLO_DTYPE_F32, x)}};
        spec.out[0] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_4(1, 1, 3, 4));
        float *y = test_kernel_result_on(test_kernel(kernels[k]), &spec, inputs);
        for (int i = 0; i < 12; i++) assert_true(y[i] == pixels[i / 4 * 2 / 3 * 2 + i % 4 / 2]);
        kolo_free(y);
    }
}

static void lrn_is_the_reference(void **state) {
    static const struct {
        kolo_shape x;
        kolo_attr attr[KOLO_MAX_ATTRS];
    } cases[] = {
        {{4, {2, 16, 5, 7}}, {{5}, {.f = 1e-4}, {.f = 0.75}, {.f = 2}}},
        {{4, {1, 21, 4, 4}}, {{4}, {.f = 1}, {.f = 0.75}, {.f = 1}}},
        {{4, {3, 3, 1, 1}}, {{9}, {.f = 2}, {.f = 0.5}, {.f = 1}}},
        {{4, {1, 40, 6, 9}}, {{1}, {.f = 0.5}, {.f = 1.5}, {.f = 0.1}}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const kolo_shape *x = &cases[i].x, in[] = {*x, *x, *x};
        size_t count = (size_t)kolo_shape_count(x);
        float *s = kolo_alloc(count * sizeof *s);
        assert_non_null(s);
        uint16_t *half_s = kolo_alloc(count * sizeof *half_s);
        assert_non_null(half_s);
        for (size_t k = 0; k < count; k++) {
            s[k] = 0.5F + (float)(k % 17) / 8;
            half_s[k] = kolo_bf16_narrow(s[k]);
        }
        const void *const inputs[] = {NULL, NULL, s}, *const halves[] = {NULL, NULL, half_s};
        check_random(&kolo_simd_lrn, cases[i].attr, 1, x, 2, 2e-6);
        check_both(&kolo_simd_lrn_bwd, cases[i].attr, 3, in, inputs, halves, 1, 2e-6);
        kolo_free(half_s);
        kolo_free(s);
    }
}

static void losses_of_maps_are_the_reference(void **state) {
    static const kolo_attr attrs[][KOLO_MAX_ATTRS] = {
        {{0}}, {{1}, {2}, {.f = 0}}, {{0}, {0}, {.f = 0.1}}, {{1}, {0}, {.f = 0.3}}};
    static const int64_t classes[] = {4, 16, 21, 2};
    for (size_t i = 0; i < KOLO_COUNT(attrs); i++) {
        enum { N = 2, H = 5, W = 7 };
        int32_t labels[N * H * W];
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 9);
        for (int k = 0; k < N * H * W; k++) {
            uint32_t draw[4];
            kolo_rng_draw(&rng, (uint64_t)k, draw);
            labels[k] = (int32_t)(draw[0] % (uint32_t)(classes[i] + 1)) - 1;
        }
        const float dloss = -0.7F;
        const void *const inputs[] = {NULL, labels, &dloss};
        const kolo_shape in[] = {kolo_shape_4(N, classes[i], H, W), {3, {N, H, W}}, kolo_shape_0()};
        check(&kolo_simd_softmax_xent, attrs[i], 2, in, inputs, 2, 1e-6);
        check(&kolo_simd_softmax_xent_bwd, attrs[i], 3, in, inputs, 1, 1e-6);
        check(&kolo_simd_accuracy, attrs[i], 2, in, inputs, 1, 0);
        check(&kolo_simd_confusion, attrs[i], 2, in, inputs, 1, 0);
        const kolo_attr bits[KOLO_MAX_ATTRS] = {{9}};
        check(&kolo_simd_score_counts, bits, 2, (kolo_shape[]){in[1], in[1]}, inputs, 1, 0);
    }
}

static void sharded_losses_are_the_reference(void **state) {
    enum { N = 9 };
    static const int64_t classes[] = {1, 8, 21, 40};
    static const int32_t labels[N] = {0, 3, 4, 8, 20, 43, -1, 44, 7};
    const void *const sums[] = {NULL, NULL, labels}, *const bwd[] = {NULL, NULL, NULL, labels};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CLASS_FIRST].i = 4};
    for (size_t i = 0; i < KOLO_COUNT(classes); i++) {
        const kolo_shape x = kolo_shape_2(N, classes[i]), places = kolo_shape_1(N);
        const kolo_shape of_sums[] = {x, places, places};
        const kolo_shape of_bwd[] = {kolo_shape_2(KOLO_CLASS_SUMS, N), x, places, places};
        kolo_kernel_spec spec;
        for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
            kolo_isa_pin(isa);
            test_kernel_spec(&spec, &kolo_op_class_max, attr, 1, &x, NULL, 1, NULL, 3);
            test_kernel_on(&kolo_simd_class_max, &spec, sums, 0);
            test_kernel_spec(&spec, &kolo_op_class_sums, attr, 3, of_sums, NULL, 1, NULL, 3);
            test_kernel_on(&kolo_simd_class_sums, &spec, sums, 2e-6);
            test_kernel_spec(&spec, &kolo_op_class_sums_bwd, attr, 4, of_bwd, NULL, 1, NULL, 3);
            test_kernel_on(&kolo_simd_class_sums_bwd, &spec, bwd, 2e-6);
        }
    }
    kolo_isa_pin(-1);
}

TEST_MAIN(test_simd_vision) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_are_the_reference),
        cmocka_unit_test(adaptive_pools_are_the_reference),
        cmocka_unit_test(resizing_is_the_reference),
        cmocka_unit_test(sampling_is_the_reference),
        cmocka_unit_test(nearest_pixels_are_copies),
        cmocka_unit_test(lrn_is_the_reference),
        cmocka_unit_test(losses_of_maps_are_the_reference),
        cmocka_unit_test(sharded_losses_are_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
