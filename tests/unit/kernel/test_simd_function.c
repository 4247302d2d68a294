/* Our functions of one input of every instruction set that this machine has, against the
 * reference: activations and all rows of graph/ops/unary.h; special numbers, padding, and GELU
 * fused with a linear layer. */
#include "base/bf16.h"
#include "base/rng.h"
#include "kernel/select/select.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>

/* ---- activations ---- */

static void activations(int threads) {
    static const struct {
        const kolo_op *op;
        const kolo_kernel *kernel;
        int n_in;
    } all[] = {
        {&kolo_op_gelu, &kolo_simd_gelu, 1},
        {&kolo_op_gelu_bwd, &kolo_simd_gelu_bwd, 2},
        {&kolo_op_mul, &kolo_simd_mul, 2},
    };
    static const float scales[] = {1, 1e-3f, 30, 300};
    static float x[500];
    static uint16_t half_x[500];
    const kolo_shape shape[] = {kolo_shape_2(5, 100), kolo_shape_2(5, 100)};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        for (size_t s = 0; s < 2 * KOLO_COUNT(scales); s++) {
            const kolo_attr attr[KOLO_MAX_ATTRS] = {{(int64_t)s % 2}};
            kolo_rng rng = kolo_rng_make(s, KOLO_RNG_TEST, 0);
            for (size_t k = 0; k < KOLO_COUNT(x); k++) {
                x[k] = scales[s / 2] * kolo_rng_normal(&rng, k);
                half_x[k] = kolo_bf16_narrow(x[k]);
            }
            const void *in[] = {x, NULL}, *half_in[] = {half_x, NULL};
            test_kernel_spec(&spec, all[i].op, attr, all[i].n_in, shape, NULL, 1, NULL, threads);
            test_kernel_fitting(all[i].kernel, &spec, in, 2e-6);
            test_kernel_in_bf16(&spec, -1);
            assert_int_equal(spec.in[0].dtype, KOLO_DTYPE_BF16);
            test_kernel_fitting(all[i].kernel, &spec, half_in, 2e-6);
        }
    }
}

static void activations_are_the_reference(void **state) { test_each_set(activations); }

/* ---- functions of one input ---- */

#define PAIR(op_name) {&kolo_op_##op_name, &kolo_simd_##op_name},
static const struct {
    const kolo_op *op;
    const kolo_kernel *kernel;
} functions[] = {KOLO_UNARY_LIST(KOLO_UNARY_OP, PAIR)};

static bool needs_positive(const kolo_op *op, double exponent) {
    bool power = op == &kolo_op_pow || op == &kolo_op_pow_bwd;
    bool root = op == &kolo_op_sqrt || op == &kolo_op_sqrt_bwd || op == &kolo_op_rsqrt;
    return root || op == &kolo_op_log || (power && exponent != floor(exponent));
}

static void unary(int threads) {
    static const kolo_attr attrs[][KOLO_MAX_ATTRS] = {
        {{.f = 1.7}, {.f = 2.1}}, {{.f = -2}, {.f = 6}}, {{.f = 5}, {.f = 5}}};
    static const float scales[] = {1, 12};
    enum { COUNT = 5 * 101 };
    float x[COUNT];
    uint16_t half_x[COUNT];
    const kolo_shape shapes[] = {kolo_shape_2(5, 101), kolo_shape_2(5, 101)};
    for (size_t i = 0; i < KOLO_COUNT(functions) * KOLO_COUNT(attrs) * KOLO_COUNT(scales); i++) {
        const kolo_op *op = functions[i / 6].op;
        const kolo_attr *attr = attrs[i % 3];
        if (!op->attrs[0] && i % 3 > 0) continue;
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 0);
        for (size_t k = 0; k < COUNT; k++) {
            x[k] = scales[i / 3 % 2] * (float)kolo_rng_normal(&rng, k);
            if (needs_positive(op, attr[0].f)) x[k] = fabsf(x[k]) + 0.01F;
            if (op == &kolo_op_reciprocal) x[k] += x[k] < 0 ? -0.01F : 0.01F;
            half_x[k] = kolo_bf16_narrow(x[k]);
            x[k] = kolo_bf16_widen(half_x[k]);
        }
        kolo_kernel_spec spec;
        const int n_in = op->max_in;
        const void *in[] = {x, x}, *half_in[] = {half_x, half_x};
        const double tolerance = op == &kolo_op_pow || op == &kolo_op_pow_bwd ? 5e-6 : 2e-6;
        test_kernel_spec(&spec, op, attr, n_in, shapes, NULL, 1, NULL, threads);
        test_kernel_fitting(functions[i / 6].kernel, &spec, in, tolerance);
        test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(functions[i / 6].kernel, &spec, half_in, tolerance);
    }
}

static void unary_functions_are_the_reference(void **state) { test_each_set(unary); }

/* NaN, infinities, zeros, subnormal numbers and the ends of exponentials. */
static const float specials[] = {
    NAN,     INFINITY, 0,     -0.0F,  0x1p-130F, -0x1p-130F, 88.5F,  89,
    -87.5F,  -100,     -110,  3,      -3,        6,          1e30F,  -1e30F,
    0x1p-3F, 1,        -0.2F, 1e-20F, -1e-5F,    3e38F,      -3e38F, -INFINITY,
};
enum { SPECIALS = KOLO_COUNT(specials) };

/* Compares output 0 on `in`, made of specials, with the reference's, one by one: an error of 2e-6
 * of it, `absolute`, and `of_x` of x. */
static void check_specials(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                           const void *const *in, float absolute, float of_x) {
    const float *x = specials;
    kolo_kernel_spec of_reference = *spec;
    const kolo_kernel *reference = NULL;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &of_reference, &reference, NULL));
    float *ours = test_kernel_result_on(kernel, spec, in);
    float *want = test_kernel_result_on(reference, &of_reference, in);
    for (int64_t k = 0; k < kolo_tensor_elements(&spec->out[0]); k++) {
        float size = isfinite(x[k]) ? fabsf(x[k]) : 0;
        float allowed = 2e-6F * fabsf(want[k]) + absolute + of_x * size;
        bool same = isnan(want[k])   ? isnan(ours[k]) != 0
                    : isinf(want[k]) ? ours[k] == want[k]
                                     : fabsf(ours[k] - want[k]) <= allowed;
        if (!same) {
            fail_msg("%s of %g: %g, not %g", spec->op->name, (double)x[k], (double)ours[k],
                     (double)want[k]);
        }
    }
    kolo_free(ours);
    kolo_free(want);
}

/* Signs of large powers, and those of infinities. */
static void powers(int threads) {
    static const float x[] = {-1.1F, 1.1F, -0.9F, -0.0F, -INFINITY, INFINITY, NAN, -1};
    static const double exponents[] = {65, 66, -67, 1e9, 64.5, -0.5, 3};
    for (size_t i = 0; i < KOLO_COUNT(exponents); i++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = exponents[i]}};
        const kolo_shape shape = kolo_shape_1(KOLO_COUNT(x));
        const void *in[] = {x};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_pow, attr, 1, &shape, NULL, 1, NULL, threads);
        float *y = test_kernel_result_on(&kolo_simd_pow, &spec, in);
        for (size_t k = 0; k < KOLO_COUNT(x); k++) {
            const float want = (float)pow((double)x[k], exponents[i]);
            const bool same = isnan(want)   ? isnan(y[k]) != 0
                              : isinf(want) ? y[k] == want
                                            : fabsf(y[k] - want) <= 1e-5F * fabsf(want) &&
                                                  !signbit(y[k]) == !signbit(want);
            if (!same) {
                fail_msg("%g^%g: %g, not %g", (double)x[k], exponents[i], (double)y[k],
                         (double)want);
            }
        }
        kolo_free(y);
    }
}

static void powers_have_the_sign_of_pow(void **state) { test_each_set(powers); }

/* Both forms of gelu, of gelu in a linear layer, and of the gradient without and with the bias's.
 */
static void gelu_specials(int threads) {
    const kolo_shape row = kolo_shape_2(1, SPECIALS), rows[] = {row, row};
    const kolo_shape column[] = {kolo_shape_2(SPECIALS, 1), kolo_shape_2(1, 1)};
    float one[SPECIALS];
    for (int k = 0; k < SPECIALS; k++) one[k] = 1;
    const void *forward[] = {specials, one}, *bwd[] = {one, specials};
    for (int64_t by_tanh = 0; by_tanh < 2; by_tanh++) {
        kolo_kernel_spec spec;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{by_tanh}};
        test_kernel_spec(&spec, &kolo_op_gelu, attr, 1, rows, NULL, 1, NULL, threads);
        check_specials(&kolo_simd_gelu, &spec, forward, 1e-6F, 0);
        test_kernel_spec(&spec, &kolo_op_linear_gelu, attr, 2, column, NULL, 1, NULL, threads);
        assert_true(kolo_simd_linear_gelu.fit(&spec) >= 0);
        check_specials(&kolo_simd_linear_gelu, &spec, forward, 1e-6F, 0);
        for (int64_t sums = 0; sums < 2; sums++) {
            const kolo_attr bwd_attr[KOLO_MAX_ATTRS] = {{by_tanh}, {sums}};
            test_kernel_spec(&spec, &kolo_op_gelu_bwd, bwd_attr, 2, rows, NULL, 1 + (int)sums, NULL,
                             threads);
            check_specials(&kolo_simd_gelu_bwd, &spec, bwd, 1e-6F, 0);
        }
    }
}

static void gelu_of_special_numbers(void **state) { test_each_set(gelu_specials); }

/* Angles beyond those that the vector loops reduce, and numbers without a fraction. */
static void rounded_specials(int threads) {
    static const struct {
        const kolo_op *op;
        const kolo_kernel *kernel;
    } rows[] = {PAIR(sin) PAIR(cos) PAIR(atan) PAIR(floor) PAIR(ceil) PAIR(round)};
    const kolo_shape shape = kolo_shape_1(SPECIALS);
    const kolo_attr none[KOLO_MAX_ATTRS] = {{0}};
    const void *in[] = {specials};
    /* A vector of any length ends with a NaN. */
    static const float angles[] = {9e3F, 1e6F, 3e9F,  NAN, 1e30F, 2e5F, -7e7F, NAN,
                                   1e5F, 8e3F, -1e9F, 1,   -1e6F, 2e6F, 5e4F,  NAN};
    const kolo_shape neighbours = kolo_shape_1(KOLO_COUNT(angles));
    const void *beside_nan[] = {angles};
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, rows[i].op, none, 1, &shape, NULL, 1, NULL, threads);
        check_specials(rows[i].kernel, &spec, in, 1e-6F, 0);
        test_kernel_spec(&spec, rows[i].op, none, 1, &neighbours, NULL, 1, NULL, threads);
        check_specials(rows[i].kernel, &spec, beside_nan, 1e-6F, 0);
    }
}

static void angles_and_integers_of_special_numbers(void **state) {
    test_each_set(rounded_specials);
}

/* Zeros have the signs that they have in C, in the reference as well. */
static void zeros(int threads) {
    static const struct {
        const kolo_op *op;
        const kolo_kernel *kernel;
        double (*of)(double x);
    } rows[] = {
        {&kolo_op_sin, &kolo_simd_sin, sin},       {&kolo_op_atan, &kolo_simd_atan, atan},
        {&kolo_op_floor, &kolo_simd_floor, floor}, {&kolo_op_ceil, &kolo_simd_ceil, ceil},
        {&kolo_op_round, &kolo_simd_round, rint},  {&kolo_op_abs, &kolo_simd_abs, fabs},
        {&kolo_op_tanh, &kolo_simd_tanh, tanh},    {&kolo_op_erf, &kolo_simd_erf, erf},
        {&kolo_op_sqrt, &kolo_simd_sqrt, sqrt},
    };
    static const float x[] = {-0.0F, 0, -0.3F, 0.3F, -0.5F, 0.5F, -0.0F, 0, 0.7F, -0.0F};
    static const kolo_attr none[KOLO_MAX_ATTRS] = {{0}};
    const kolo_shape shape = kolo_shape_1(KOLO_COUNT(x));
    const void *in[] = {x};
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        const kolo_kernel *kernels[] = {rows[i].kernel, NULL};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, rows[i].op, none, 1, &shape, NULL, 1, NULL, threads);
        ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernels[1], NULL));
        for (size_t k = 0; k < KOLO_COUNT(kernels); k++) {
            float *y = test_kernel_result_on(kernels[k], &spec, in);
            for (size_t e = 0; e < KOLO_COUNT(x); e++) {
                const double want = rows[i].of((double)x[e]);
                if (want != 0 || (y[e] == 0 && !signbit(y[e]) == !signbit(want))) continue;
                fail_msg("%s of %g: %g, not %g", kernels[k]->name, (double)x[e], (double)y[e],
                         want);
            }
            kolo_free(y);
        }
    }
}

static void zeros_have_the_sign_of_c(void **state) { test_each_set(zeros); }

/* A layout with padding is taken where zeros stay zeros. */
static void unary_padding(int threads) {
    static const kolo_attr six[KOLO_MAX_ATTRS] = {{.f = 0}, {.f = 6}};
    const kolo_shape shapes[] = {kolo_shape_4(2, 9, 3, 5), kolo_shape_4(2, 9, 3, 5)};
    const char *layouts[] = {"aBcd8b", "aBcd8b"};
    float x[2 * 9 * 3 * 5];
    const void *in[] = {x, x};
    int padded = 0;
    for (size_t k = 0; k < KOLO_COUNT(x); k++) x[k] = 0.1F + 0.07F * (float)k;
    for (size_t i = 0; i < KOLO_COUNT(functions); i++) {
        const kolo_op *op = functions[i].op;
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, op, six, op->max_in, shapes, layouts, 1, layouts, threads);
        if (functions[i].kernel->fit(&spec) < 0) continue;
        test_kernel_fitting(functions[i].kernel, &spec, in, 2e-6);
        padded++;
    }
    assert_true(padded > 20 && padded < 2 * (int)KOLO_COUNT(functions));
}

static void unary_functions_keep_padding(void **state) { test_each_set(unary_padding); }

/* gelu within a linear layer, and its gradient with the bias's. */
static void gelu_of_linear(int threads) {
    static const struct {
        kolo_shape x;
        int64_t outputs;
    } all[] = {{{2, {5, 7}}, 3}, {{3, {2, 9, 16}}, 37}, {{3, {1, 1030, 3}}, 300}};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < 8 * KOLO_COUNT(all); i++) {
        kolo_shape x = all[i / 8].x, y = x;
        y.dim[y.rank - 1] = all[i / 8].outputs;
        int64_t inputs = x.dim[x.rank - 1];
        bool by_tanh = i & 1, second = i & 2, bias = i & 4; /* output; input */
        const kolo_shape in[] = {x, kolo_shape_2(all[i / 8].outputs, inputs),
                                 kolo_shape_1(all[i / 8].outputs)};
        const kolo_shape bwd[] = {y, y};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{by_tanh}, {second}};
        test_kernel_spec(&spec, &kolo_op_linear_gelu, attr, bias ? 3 : 2, in, NULL, 1 + second,
                         NULL, threads);
        test_kernel_fitting(&kolo_simd_linear_gelu, &spec, NULL, 2e-6);
        test_kernel_in_bf16(&spec, -1); /* gelu of what was rounded */
        test_kernel_fitting(&kolo_simd_linear_gelu, &spec, NULL, 3e-3);
        test_kernel_spec(&spec, &kolo_op_gelu_bwd, attr, 2, bwd, NULL, 1 + second, NULL, threads);
        test_kernel_fitting(&kolo_simd_gelu_bwd, &spec, NULL, 2e-6);
        test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(&kolo_simd_gelu_bwd, &spec, NULL, 2e-6);
    }
}

static void gelu_of_linear_is_the_reference(void **state) { test_each_set(gelu_of_linear); }

TEST_MAIN(test_simd_function) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_the_reference),
        cmocka_unit_test(unary_functions_are_the_reference),
        cmocka_unit_test(powers_have_the_sign_of_pow),
        cmocka_unit_test(gelu_of_special_numbers),
        cmocka_unit_test(angles_and_integers_of_special_numbers),
        cmocka_unit_test(zeros_have_the_sign_of_c),
        cmocka_unit_test(unary_functions_keep_padding),
        cmocka_unit_test(gelu_of_linear_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
