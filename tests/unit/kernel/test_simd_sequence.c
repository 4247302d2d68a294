/* Our kernels for sequences of every instruction set that this machine has, against the reference:
 * activations, normalization of rows, embedding, attention, LSTM; over shapes with and without
 * rests of vectors, tiles and blocks, and over threads. */
#include "base/bf16.h"
#include "base/rng.h"
#include "kernel/select/select.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

static void check(const kolo_kernel *kernel, kolo_kernel_spec *spec, const void *const *inputs,
                  double tolerance) {
    assert_true(kernel->fit(spec) >= 0);
    test_kernel_on(kernel, spec, inputs, tolerance);
}

static int32_t *integers(int64_t count, int64_t from, int64_t below, uint64_t seed) {
    static int32_t numbers[4096];
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_TEST, 0);
    assert_in_range(count, 1, KOLO_COUNT(numbers));
    for (int64_t i = 0; i < count; i++) {
        numbers[i] =
            (int32_t)(from + (int64_t)kolo_rng_below(&rng, (uint64_t)i, (uint64_t)(below - from)));
    }
    return numbers;
}

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
            check(all[i].kernel, &spec, in, 2e-6);
            test_kernel_in_bf16(&spec, -1);
            assert_int_equal(spec.in[0].dtype, KOLO_DTYPE_BF16);
            check(all[i].kernel, &spec, half_in, 2e-6);
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
        check(functions[i / 6].kernel, &spec, in, tolerance);
        test_kernel_in_bf16(&spec, -1);
        check(functions[i / 6].kernel, &spec, half_in, tolerance);
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
        check(functions[i].kernel, &spec, in, 2e-6);
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
        check(&kolo_simd_linear_gelu, &spec, NULL, 2e-6);
        test_kernel_in_bf16(&spec, -1); /* gelu of what was rounded */
        check(&kolo_simd_linear_gelu, &spec, NULL, 3e-3);
        test_kernel_spec(&spec, &kolo_op_gelu_bwd, attr, 2, bwd, NULL, 1 + second, NULL, threads);
        check(&kolo_simd_gelu_bwd, &spec, NULL, 2e-6);
        test_kernel_in_bf16(&spec, -1);
        check(&kolo_simd_gelu_bwd, &spec, NULL, 2e-6);
    }
}

static void gelu_of_linear_is_the_reference(void **state) { test_each_set(gelu_of_linear); }

/* ---- normalization of rows ---- */

static void row_norm(int threads) {
    static const kolo_shape shapes[] = {
        {3, {2, 3, 64}}, {3, {1, 5, 19}}, {2, {7, 130}}, {2, {3, 3}}, {2, {1, 384}}, {2, {70, 21}},
    };
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = 1e-5};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < 2 * KOLO_COUNT(shapes); i++) {
        const kolo_shape x = shapes[i / 2], vector = kolo_shape_1(x.dim[x.rank - 1]);
        kolo_shape rows = x;
        rows.rank--;
        const struct {
            const kolo_op *op;
            const kolo_kernel *kernel;
            int n_in, n_out;
            kolo_shape in[5];
            double tolerance;
        } all[] = {
            {&kolo_op_layer_norm, &kolo_simd_layer_norm, 3, 3, {x, vector, vector}, 2e-6},
            {&kolo_op_layer_norm_bwd,
             &kolo_simd_layer_norm_bwd,
             5,
             3,
             {x, x, vector, rows, rows},
             5e-6},
            {&kolo_op_rms_norm, &kolo_simd_rms_norm, 2, 2, {x, vector}, 2e-6},
            {&kolo_op_rms_norm_bwd, &kolo_simd_rms_norm_bwd, 4, 2, {x, x, vector, rows}, 5e-6},
        };
        for (size_t k = 0; k < KOLO_COUNT(all); k++) {
            test_kernel_spec(&spec, all[k].op, attr, all[k].n_in, all[k].in, NULL, all[k].n_out,
                             NULL, threads);
            if (i % 2) test_kernel_in_bf16(&spec, -1);
            check(all[k].kernel, &spec, NULL, all[k].tolerance);
        }
    }
}

static void row_norm_is_the_reference(void **state) { test_each_set(row_norm); }

/* ---- embedding ---- */

static void embedding(int threads) {
    static const int64_t channels[] = {1, 16, 70, 200};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(channels); i++) {
        int64_t c = channels[i], n = 3, t = 7, rows = 11;
        const bool ranges = i == 2; /* of positions */
        t -= ranges;
        kolo_shape y = {3, {n, t, c}};
        const kolo_shape in[] = {kolo_shape_2(rows, c), kolo_shape_2(n, t), kolo_shape_2(9, c)};
        const kolo_shape bwd[] = {y, kolo_shape_2(n, t)};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_EMBEDDING_ROWS].i = rows,
                                                [KOLO_EMBEDDING_POSITION].i =
                                                    ranges ? 1 : (int64_t)i % 3,
                                                [KOLO_EMBEDDING_LENGTH].i = ranges ? 9 : 0};
        const void *ids[] = {NULL, integers(n * t, -1, rows + 1, i), NULL};
        for (int n_in = 2; n_in <= 3; n_in++) {
            test_kernel_spec(&spec, &kolo_op_embedding, attr, n_in, in, NULL, 1, NULL, threads);
            check(&kolo_simd_embedding, &spec, ids, 0);
        }
        const kolo_attr of_ids[KOLO_MAX_ATTRS] = {[KOLO_EMBEDDING_ROWS].i = rows};
        test_kernel_spec(&spec, &kolo_op_embedding_bwd, of_ids, 2, bwd, NULL, 1, NULL, threads);
        check(&kolo_simd_embedding_bwd, &spec, ids, 1e-6);
        test_kernel_spec(&spec, &kolo_op_position_bwd, attr, 1, bwd, NULL, 1, NULL, threads);
        check(&kolo_simd_position_bwd, &spec, NULL, 1e-6);
    }
}

static void embedding_is_the_reference(void **state) { test_each_set(embedding); }

/* ---- mixtures of experts ---- */

/* A place for some tokens: those of an expert differ, and are outside [0, room) too. */
static const int32_t *places_of(int64_t samples, int64_t tokens, int64_t experts) {
    static int32_t places[4096];
    for (int64_t i = 0; i < samples * tokens * experts; i++) {
        places[i] = (int32_t)((i / experts * 7 + i % experts) % tokens) - 1;
    }
    return places;
}

static void experts(int threads) {
    static const struct {
        int64_t n, t, e, top, room, width;
    } all[] = {
        {1, 1, 1, 1, 1, 1}, {3, 8, 5, 2, 4, 13}, {2, 10, 40, 40, 11, 33}, {5, 16, 4, 1, 3, 64}};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        const int64_t n = all[i].n, t = all[i].t, e = all[i].e, width = all[i].width;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_EXPERT_CAPACITY].i = all[i].room, [KOLO_EXPERT_TOP].i = all[i].top};
        const kolo_shape x = kolo_shape_3(n, t, width), y = {4, {e, n, all[i].room, width}};
        const kolo_shape p = kolo_shape_3(n, t, e), to[] = {x, p, p}, back[] = {y, p, p};
        const kolo_shape products[] = {x, y, p};
        const int32_t *places = places_of(n, t, e);
        const void *second[] = {NULL, places, NULL}, *third[] = {NULL, NULL, places};
        test_kernel_spec(&spec, &kolo_op_expert_route, attr, 1, &p, NULL, 2, NULL, threads);
        check(&kolo_simd_expert_route, &spec, NULL, 0);
        for (int k = 0; k < 4; k++) { /* with gates, in bf16 */
            const int n_in = 2 + k % 2;
            test_kernel_spec(&spec, &kolo_op_expert_dispatch, attr, n_in, to, NULL, 1, NULL,
                             threads);
            if (k > 1) test_kernel_in_bf16(&spec, -1);
            check(&kolo_simd_expert_dispatch, &spec, second, 1e-6);
            test_kernel_spec(&spec, &kolo_op_expert_combine, attr, n_in, back, NULL, 1, NULL,
                             threads);
            if (k > 1) test_kernel_in_bf16(&spec, -1);
            check(&kolo_simd_expert_combine, &spec, second, 1e-6);
            test_kernel_spec(&spec, &kolo_op_expert_products, attr, 3, products, NULL, 1, NULL,
                             threads);
            if (k > 1) test_kernel_in_bf16(&spec, -1);
            check(&kolo_simd_expert_products, &spec, third, 1e-6);
        }
    }
}

static void experts_are_the_reference(void **state) { test_each_set(experts); }

/* ---- row-sparse gradients ---- */

static void rows(int threads) {
    static const struct {
        int64_t table, n, t, c, room;
    } all[] = {
        {11, 3, 7, 16, 11},      {11, 3, 7, 5, 13}, {5000, 4, 32, 70, 128},
        {1 << 23, 2, 3, 33, 64}, {1, 1, 4, 8, 1},   {1 << 30, 20, 30, 3, 600},
        {300, 8, 500, 1, 300},
    };
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        int64_t table = all[i].table, n = all[i].n, t = all[i].t, c = all[i].c;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{table}, {all[i].room}};
        const kolo_shape in[] = {{3, {n, t, c}}, kolo_shape_2(n, t)};
        const kolo_shape merged[] = {kolo_shape_2(n * t, c), kolo_shape_1(n * t)};
        const void *ids[] = {NULL, integers(n * t, -1, table + 1, i)};
        test_kernel_spec(&spec, &kolo_op_embedding_bwd_rows, attr, 2, in, NULL, 2, NULL, threads);
        check(&kolo_simd_embedding_bwd_rows, &spec, ids, 1e-6);
        test_kernel_spec(&spec, &kolo_op_merge_rows, attr, 2, merged, NULL, 2, NULL, threads);
        check(&kolo_simd_merge_rows, &spec, ids, 1e-6);
    }
}

static void rows_are_the_reference(void **state) { test_each_set(rows); }

static void row_updates(int threads) {
    static const int32_t ids[] = {0, 3, 4, 9, 17, -1, -1};
    static float squares[20 * 70], lr = 0.01f, update = 3;
    static const int64_t channels[] = {1, 16, 70};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(squares); i++) squares[i] = 0.01f * (float)(i % 17);
    for (size_t i = 0; i < KOLO_COUNT(channels); i++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-4}};
        kolo_shape table = kolo_shape_2(20, channels[i]), one = kolo_shape_0();
        const kolo_shape in[] = {
            table, kolo_shape_2(7, channels[i]), kolo_shape_1(7), one, one, table, table};
        const void *data[] = {NULL, NULL, ids, &lr, &update, NULL, squares};
        test_kernel_spec(&spec, &kolo_op_sgd_rows, NULL, 4, in, NULL, 1, NULL, threads);
        check(&kolo_simd_sgd_rows, &spec, data, 1e-6);
        test_kernel_spec(&spec, &kolo_op_adam_rows, attr, 7, in, NULL, 3, NULL, threads);
        check(&kolo_simd_adam_rows, &spec, data, 1e-6);
    }
}

static void row_updates_are_the_reference(void **state) { test_each_set(row_updates); }

/* ---- attention ---- */

/* Keys are masked at random. With a causal mask the first queries then see no key, unless the first
 * key is visible. */
static const struct {
    int64_t n, length, heads, width;
    bool causal, mask;
    double p;
    bool first;
} attentions[] = {
    {2, 7, 2, 8, true, false, 0, false},       {1, 50, 3, 16, true, false, 0, false},
    {1, 48, 1, 32, false, false, 0, false},    {2, 131, 2, 20, true, false, 0, false},
    {1, 300, 1, 64, true, false, 0, false},    {1, 129, 1, 5, false, true, 0, false},
    {2, 61, 2, 12, true, true, 0, true},       {2, 61, 2, 12, true, true, 0, false},
    {1, 300, 1, 24, true, true, 0, false},     {1, 1, 1, 3, true, false, 0, false},
    {1, 257, 1, 24, false, true, 0, false},    {2, 131, 2, 20, true, false, 0.1, false},
    {1, 257, 3, 12, false, false, 0.1, false}, {2, 61, 2, 12, true, true, 0.5, false},
    {1, 70, 2, 80, true, false, 0, false},     {1, 150, 1, 80, false, false, 0.1, false},
    {1, 145, 1, 128, true, false, 0, false},   {1, 43, 1, 48, false, true, 0, false},
};

/* The forward pass of a kernel, NULL: of the reference. */
static void attend(const kolo_kernel *kernel, const kolo_kernel_spec *like, const void *const *data,
                   float *o, float *lse) {
    kolo_kernel_spec spec = *like;
    size_t bytes = 0;
    if (!kernel) ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    kolo_call call = {.spec = &spec, .out = {o, lse}};
    for (int i = 0; i < spec.n_in; i++) call.in[i] = (void *)(uintptr_t)data[i];
    ASSERT_OK(kernel->prepare(&spec, &call.state, &bytes));
    call.scratch = kolo_alloc(bytes);
    assert_non_null(call.scratch);
    kernel->run(&call);
    kolo_free(call.scratch);
    kernel->release(call.state);
}

/* What the kernel gives where some queries see no key: zeros, and infinity as lse. Returns whether
 * there are such queries. */
static bool check_unseen(const kolo_kernel_spec *spec, const void *const *data, const float *o,
                         const float *lse) {
    static float our_o[20000], our_lse[2000];
    const int64_t *dim = spec->out[0].shape.dim, heads = spec->out[1].shape.dim[1];
    const int64_t width = dim[2] / heads;
    bool any = false;
    memset(our_o, 0x5a, sizeof our_o);
    attend(&kolo_simd_attention, spec, data, our_o, our_lse);
    for (int64_t row = 0; row < dim[0] * heads * dim[1]; row++) {
        int64_t sample = row / dim[1] / heads, head = row / dim[1] % heads;
        int64_t at = (sample * dim[1] + row % dim[1]) * dim[2] + head * width;
        bool sees = isfinite(lse[row]) != 0;
        any |= !sees;
        if (sees) {
            assert_true(fabsf(our_lse[row] - lse[row]) <= 1e-5F * fmaxf(1, fabsf(lse[row])));
        } else {
            assert_true(our_lse[row] == INFINITY && lse[row] == INFINITY);
        }
        for (int64_t c = at; c < at + width; c++) {
            assert_true(fabsf(our_o[c] - o[c]) <= 2e-5F * (float)sees);
        }
    }
    return any;
}

static void attention(int threads) {
    static float qkv[3 * 20000], o[20000], lse[2000];
    for (size_t i = 0; i < KOLO_COUNT(attentions); i++) {
        int64_t n = attentions[i].n, t = attentions[i].length, heads = attentions[i].heads;
        int64_t c = heads * attentions[i].width;
        int masks = attentions[i].mask;
        kolo_shape x = {3, {n, t, 3 * c}}, y = {3, {n, t, c}}, rows = {3, {n, heads, t}};
        assert_in_range(n * t * c, 1, KOLO_COUNT(o));
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 1);
        for (int64_t k = 0; k < 3 * n * t * c; k++) {
            qkv[k] = 2 * kolo_rng_normal(&rng, (uint64_t)k);
        }
        int32_t *mask = integers(n * t, 0, 2, i);
        for (int64_t k = 0; k < n; k++) mask[k * t] = attentions[i].first;
        const double p = attentions[i].p;
        int draws = p > 0 ? 2 : 0;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{heads}, {attentions[i].causal}, {.f = p}, {3}};
        const int64_t draw = 12345, first = 7;
        const kolo_shape none = kolo_shape_0(), keys = kolo_shape_2(n, t);
        const kolo_shape in[] = {x, draws ? none : keys, none, keys};
        const void *data[] = {qkv, draws ? (const void *)&draw : mask, &first, mask};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_attention, attr, 1 + draws + masks, in, NULL, 2, NULL,
                         threads);
        attend(NULL, &spec, data, o, lse);
        assert_true(kolo_simd_attention.fit(&spec) >= 0);
        const bool blind = check_unseen(&spec, data, o, lse);
        assert_int_equal(blind, masks && attentions[i].causal && !attentions[i].first);
        if (!blind) check(&kolo_simd_attention, &spec, data, 3e-6);
        const kolo_shape bwd[] = {y, x, y, rows, draws ? none : keys, none, keys};
        const void *bwd_data[] = {NULL, qkv, o, lse, data[1], &first, mask};
        test_kernel_spec(&spec, &kolo_op_attention_bwd, attr, 4 + draws + masks, bwd, NULL, 1, NULL,
                         threads);
        check(&kolo_simd_attention_bwd, &spec, bwd_data, 1e-5);
    }
}

/* Attention to the first keys, then to a block of the others, some of which are masked: as to all
 * of them at once, with the same weights dropped. Then each kernel of blocks against its reference.
 */
static void blocks(int threads) {
    static const struct {
        int64_t first, keys; /* keys before, and in the block */
        int mask;
        double p;
    } cases[] = {{8, 40, 0, 0}, {3, 150, 0, 0.2}, {131, 131, 1, 0.1}, {1, 5, 1, 0}};
    enum { N = 2, HEADS = 2, WIDTH = 12, C = HEADS * WIDTH, MOST = 300 };
    static float qkv[N * MOST * 3 * C], part[N * MOST * 3 * C], kv[N * MOST * 2 * C];
    static float o[N * MOST * C], lse[N * HEADS * MOST], o2[N * MOST * C], lse2[N * HEADS * MOST];
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int64_t before = cases[i].first, keys = cases[i].keys, all = before + keys;
        const int draws = cases[i].p > 0 ? 2 : 0, masks = cases[i].mask;
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 2);
        assert_in_range(all, 1, MOST);
        for (int64_t k = 0; k < N * all * 3 * C; k++) {
            qkv[k] = 2 * kolo_rng_normal(&rng, (uint64_t)k);
        }
        int32_t *mask = integers(N * all, 0, 2, i);
        static int32_t mask1[N * MOST], mask2[N * MOST];
        for (int64_t n = 0; n < N; n++) {
            mask[n * all] = 1;
            memcpy(part + n * before * 3 * C, qkv + n * all * 3 * C,
                   sizeof(float) * (size_t)(before * 3 * C));
            memcpy(mask1 + n * before, mask + n * all, sizeof *mask * (size_t)before);
            memcpy(mask2 + n * keys, mask + n * all + before, sizeof *mask * (size_t)keys);
            for (int64_t j = 0; j < keys; j++) {
                memcpy(kv + (n * keys + j) * 2 * C, qkv + (n * all + before + j) * 3 * C + C,
                       sizeof(float) * 2 * C);
            }
        }
        /* The first queries see their own keys, as causal ones of a ring, then those of the block.
         */
        const int64_t draw = 12345, first = 7;
        const kolo_attr whole[KOLO_MAX_ATTRS] = {{HEADS}, {0}, {.f = cases[i].p}, {3}};
        kolo_attr attr[KOLO_MAX_ATTRS];
        memcpy(attr, whole, sizeof attr);
        attr[KOLO_ATTENTION_LENGTH].i = all;
        attr[KOLO_ATTENTION_RING].i = KOLO_RING_OWN;
        const kolo_shape none = kolo_shape_0(), x = {3, {N, before, 3 * C}},
                         y = {3, {N, before, C}}, rows = {3, {N, HEADS, before}},
                         block = {3, {N, keys, 2 * C}}, seen = kolo_shape_2(N, keys),
                         own = kolo_shape_2(N, before);
        kolo_kernel_spec spec;
        const kolo_shape of_all[] = {
            {3, {N, all, 3 * C}}, draws ? none : kolo_shape_2(N, all), none, kolo_shape_2(N, all)};
        const void *all_data[] = {qkv, draws ? (const void *)&draw : mask, &first, mask};
        test_kernel_spec(&spec, &kolo_op_attention, whole, 1 + draws + masks, of_all, NULL, 2, NULL,
                         threads);
        attend(&kolo_simd_attention, &spec, all_data, o, lse);
        const kolo_shape in[] = {x, draws ? none : own, none, own};
        const void *data[] = {part, draws ? (const void *)&draw : mask1, &first, mask1};
        test_kernel_spec(&spec, &kolo_op_attention, attr, 1 + draws + masks, in, NULL, 2, NULL,
                         threads);
        attend(&kolo_simd_attention, &spec, data, o2, lse2);
        attr[KOLO_ATTENTION_RING].i = 0;
        attr[KOLO_ATTENTION_KEY].i = before;
        const kolo_shape more[] = {x, block, y, rows, draws ? none : seen, none, seen};
        const void *block_data[] = {part,   kv,   o2, lse2, draws ? (const void *)&draw : mask2,
                                    &first, mask2};
        test_kernel_spec(&spec, &kolo_op_attention_block, attr, 4 + draws + masks, more, NULL, 2,
                         NULL, threads);
        check(&kolo_simd_attention_block, &spec, block_data, 3e-6);
        attend(&kolo_simd_attention_block, &spec, block_data, o2, lse2); /* in place */
        for (int64_t n = 0; n < N; n++) {
            for (int64_t k = 0; k < before * C; k++) {
                assert_true(fabsf(o2[n * before * C + k] - o[n * all * C + k]) < 2e-5F);
            }
            for (int64_t h = 0; h < HEADS; h++) {
                for (int64_t k = 0; k < before; k++) {
                    const float is = lse2[(n * HEADS + h) * before + k];
                    assert_true(fabsf(is - lse[(n * HEADS + h) * all + k]) < 2e-5F);
                }
            }
        }
        const kolo_shape bwd[] = {y, x, block, y, rows, draws ? none : seen, none, seen};
        const void *bwd_data[] = {NULL, part, kv, o2, lse2, block_data[4], &first, mask2};
        test_kernel_spec(&spec, &kolo_op_attention_block_bwd, attr, 5 + draws + masks, bwd, NULL, 2,
                         NULL, threads);
        check(&kolo_simd_attention_block_bwd, &spec, bwd_data, 1e-5);
    }
}

static void blocks_of_keys(void **state) { test_each_set(blocks); }

/* Two ranges of queries and of keys, of the rank's own and of another one: each kernel against its
 * reference, which test_tensor_parallel compares with attention to the whole sequence. */
static void ranges(int threads) {
    static const struct {
        int64_t half; /* of the queries and of the keys */
        int mask;
        double p;
    } cases[] = {{7, 0, 0}, {60, 0, 0.2}, {3, 1, 0.1}, {41, 1, 0}};
    enum { N = 2, HEADS = 2, WIDTH = 12, C = HEADS * WIDTH, MOST = 120, RANKS = 3 };
    static float qkv[N * MOST * 3 * C], kv[N * MOST * 2 * C], o[N * MOST * C],
        lse[N * HEADS * MOST];
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int64_t half = cases[i].half, rows = 2 * half, draw = 12345, first = 7;
        const int draws = cases[i].p > 0 ? 2 : 0, masks = cases[i].mask;
        const kolo_shape none = kolo_shape_0(), x = {3, {N, rows, 3 * C}}, y = {3, {N, rows, C}},
                         lses = {3, {N, HEADS, rows}}, keys = {3, {N, rows, 2 * C}},
                         mask_shape = kolo_shape_2(N, rows);
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 3);
        for (int64_t k = 0; k < N * rows * 3 * C; k++) {
            qkv[k] = 2 * kolo_rng_normal(&rng, (uint64_t)k);
        }
        for (int64_t k = 0; k < N * rows * 2 * C; k++) {
            kv[k] = 2 * kolo_rng_normal(&rng, (uint64_t)(k + N * MOST * 3 * C));
        }
        int32_t *mask = integers(N * rows, 0, 2, i);
        for (int64_t n = 0; n < N; n++) mask[n * rows] = 1; /* each query sees a key */
        kolo_attr attr[KOLO_MAX_ATTRS] = {{HEADS}, {1}, {.f = cases[i].p}, {3}};
        attr[KOLO_ATTENTION_RING].i = KOLO_RING_OWN | KOLO_RING_ZIGZAG;
        attr[KOLO_ATTENTION_LENGTH].i = RANKS * rows;
        attr[KOLO_ATTENTION_POSITION].i = half; /* of the rank in the middle */
        const kolo_shape in[] = {x, draws ? none : mask_shape, none, mask_shape};
        const void *data[] = {qkv, draws ? (const void *)&draw : mask, &first, mask};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_attention, attr, 1 + draws + masks, in, NULL, 2, NULL,
                         threads);
        check(&kolo_simd_attention, &spec, data, 3e-6);
        attend(NULL, &spec, data, o, lse);
        const kolo_shape bwd[] = {y, x, y, lses, in[1], none, mask_shape};
        const void *bwd_data[] = {NULL, qkv, o, lse, data[1], &first, mask};
        test_kernel_spec(&spec, &kolo_op_attention_bwd, attr, 4 + draws + masks, bwd, NULL, 1, NULL,
                         threads);
        check(&kolo_simd_attention_bwd, &spec, bwd_data, 1e-5);
        attr[KOLO_ATTENTION_RING].i = KOLO_RING_ZIGZAG;
        for (int from = 0; from < RANKS; from += 2) {
            attr[KOLO_ATTENTION_SEEN].i = from > 0 ? KOLO_SEEN_BY_SECOND : KOLO_SEEN_FIRST_BY_ALL;
            attr[KOLO_ATTENTION_KEY].i = from * half;
            const kolo_shape more[] = {x, keys, y, lses, in[1], none, mask_shape};
            const void *block_data[] = {qkv, kv, o, lse, data[1], &first, mask};
            test_kernel_spec(&spec, &kolo_op_attention_block, attr, 4 + draws + masks, more, NULL,
                             2, NULL, threads);
            check(&kolo_simd_attention_block, &spec, block_data, 3e-6);
            const kolo_shape more_bwd[] = {y, x, keys, y, lses, in[1], none, mask_shape};
            const void *more_data[] = {NULL, qkv, kv, o, lse, data[1], &first, mask};
            test_kernel_spec(&spec, &kolo_op_attention_block_bwd, attr, 5 + draws + masks, more_bwd,
                             NULL, 2, NULL, threads);
            check(&kolo_simd_attention_block_bwd, &spec, more_data, 2e-5);
        }
    }
}

static void ranges_of_queries_and_keys(void **state) { test_each_set(ranges); }

static void caches(int threads) {
    static const struct {
        int64_t n, length, heads, groups, rows, width;
    } cases[] = {
        {1, 1, 4, 2, 37, 64}, {2, 3, 4, 4, 9, 20}, {1, 5, 3, 1, 6, 7},
        {3, 1, 2, 2, 4, 16},  {1, 1, 1, 1, 1, 1},
    };
    static const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        const int64_t n = cases[c].n, length = cases[c].length, groups = cases[c].groups;
        const int64_t rows = cases[c].rows, width = cases[c].width;
        const kolo_shape x = {3, {n, length, (cases[c].heads + 2 * groups) * width}};
        const kolo_shape cache = {4, {n, 2 * groups, rows, width}}, at = {2, {n, length}};
        const kolo_shape read[] = {x, cache, at}, write[] = {cache, x, at};
        int32_t positions[16];
        const void *data[] = {NULL, NULL, positions};
        kolo_kernel_spec spec;
        for (int64_t i = 0; i < n * length; i++) { /* the last: outside */
            positions[i] = (int32_t)(rows - length + 1 - n % 2 + i % length);
        }
        test_kernel_spec(&spec, &kolo_op_cache_write, attr, 3, write, NULL, 1, NULL, threads);
        check(&kolo_simd_cache_write, &spec, data, 0);
        test_kernel_spec(&spec, &kolo_op_cached_attention, attr, 3, read, NULL, 1, NULL, threads);
        check(&kolo_simd_cached_attention, &spec, data, 1e-6);
    }
}

static void caches_are_the_reference(void **state) { test_each_set(caches); }

/* With queries of zeros every key weighs the same, so an output of ones is the share that stayed.
 */
static void weights_are_dropped_at_the_given_rate(void **state) {
    enum { T = 256, HEADS = 2, C = HEADS * 8 };
    static float qkv[T * 3 * C], o[T * C], again[T * C], lse[T * HEADS];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{HEADS}, {0}, {.f = 0.1}, {0}};
    const kolo_shape in[] = {{3, {1, T, 3 * C}}, kolo_shape_0(), kolo_shape_0()};
    int64_t draw = 5, first = 0;
    const void *data[] = {qkv, &draw, &first};
    for (int t = 0; t < T; t++) {
        for (int c = 2 * C; c < 3 * C; c++) qkv[t * 3 * C + c] = 1;
    }
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_attention, attr, 3, in, NULL, 2, NULL, 1);
    attend(NULL, &spec, data, o, lse);
    double sum = 0, least = 2, most = 0;
    for (int i = 0; i < T * C; i++) {
        sum += (double)o[i];
        least = fmin(least, (double)o[i]);
        most = fmax(most, (double)o[i]);
    }
    /* 131,072 draws: the mean is 1 +- 0.001; a row's of 256, 1 +- 0.02 */
    assert_true(fabs(sum / (T * C) - 1) < 0.005 && least > 0.85 && most < 1.12 && most > least);
    draw = 6;
    attend(NULL, &spec, data, again, lse);
    assert_memory_not_equal(o, again, sizeof o);
    draw = 5;
    first = 1;
    attend(NULL, &spec, data, again, lse);
    assert_memory_not_equal(o, again, sizeof o);
}

static void attention_is_the_reference(void **state) { test_each_set(attention); }

/* ---- recurrent layers ---- */

/* Layers without and with an initial state. */
static void recurrent(int threads) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {2, 5, 8}, {7, 4, 33}, {3, 6, 64}, {13, 3, 20}};
    static float gates[4 * 4096], c[4096];
    for (size_t i = 0; i < 2 * KOLO_COUNT(shapes); i++) {
        const int64_t n = shapes[i / 2][0], t = shapes[i / 2][1], h = shapes[i / 2][2];
        const int state = (int)i % 2;
        const kolo_shape y = {3, {n, t, h}}, s = kolo_shape_2(n, h);
        const kolo_shape gx4 = {3, {n, t, 4 * h}}, w4 = kolo_shape_2(4 * h, h);
        const kolo_shape gx3 = {3, {n, t, 3 * h}}, w3 = kolo_shape_2(3 * h, h);
        const kolo_shape lstm[] = {gx4, w4, kolo_shape_1(4 * h), s, s};
        const kolo_shape gru[] = {gx3, w3, kolo_shape_1(3 * h), s};
        const kolo_shape lstm_bwd[] = {y, gx4, y, w4, s}, gru_bwd[] = {y, gx3, y, y, w3, s};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_lstm, NULL, 3 + 2 * state, lstm, NULL, 3, NULL, threads);
        check(&kolo_simd_lstm, &spec, NULL, 1e-5);
        test_kernel_spec(&spec, &kolo_op_gru, NULL, 3 + state, gru, NULL, 3, NULL, threads);
        check(&kolo_simd_gru, &spec, NULL, 1e-5);
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 2);
        for (int64_t k = 0; k < 4 * n * t * h; k++) gates[k] = kolo_rng_uniform(&rng, (uint64_t)k);
        for (int64_t k = 0; k < n * t * h; k++) c[k] = kolo_rng_normal(&rng, (uint64_t)k);
        const void *data[] = {NULL, gates, c, NULL, NULL, NULL};
        test_kernel_spec(&spec, &kolo_op_lstm_bwd, NULL, 4 + state, lstm_bwd, NULL, 1 + 2 * state,
                         NULL, threads);
        check(&kolo_simd_lstm_bwd, &spec, data, 1e-5);
        test_kernel_spec(&spec, &kolo_op_gru_bwd, NULL, 5 + state, gru_bwd, NULL, 2 + state, NULL,
                         threads);
        check(&kolo_simd_gru_bwd, &spec, data, 1e-5);
        if (state) continue;
        for (int64_t back = 0; back < 2; back++) {
            const kolo_attr attr[KOLO_MAX_ATTRS] = {{back}};
            test_kernel_spec(&spec, &kolo_op_shift, attr, 1, &y, NULL, 1, NULL, threads);
            check(&kolo_simd_shift, &spec, NULL, 0);
        }
    }
}

static void recurrent_layers_are_the_reference(void **state) { test_each_set(recurrent); }

/* ---- updates ---- */

static void updates(int threads) {
    static const char *const layouts[] = {"abcd", "acdb", "aBcd8b"};
    static float squares[2 * 19 * 3 * 5], lr = 0.01f, update = 3;
    const kolo_shape x = kolo_shape_4(2, 19, 3, 5), one = kolo_shape_0();
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(squares); i++) squares[i] = 0.01f * (float)(i % 17);
    for (size_t i = 0; i < 2 * KOLO_COUNT(layouts); i++) {
        const char *l = layouts[i / 2], *in_layouts[] = {l, l, "", "", l, l}, *out[] = {l, l, l};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            {.f = 0.9}, {.f = 0.99}, {.f = 1e-4}, {.f = 0.1}, {(int64_t)i % 2}};
        const void *data[] = {NULL, NULL, &lr, &update, NULL, squares};
        const kolo_shape in[] = {x, x, one, one, x, x};
        test_kernel_spec(&spec, &kolo_op_adam, attr, 6, in, NULL, 3, out, threads);
        for (int k = 0; k < 6; k++) {
            if (k != 2 && k != 3) ASSERT_OK(kolo_layout_parse(in_layouts[k], &spec.in[k].layout));
        }
        check(&kolo_simd_adam, &spec, data, 1e-6);
        kolo_attr frozen[KOLO_MAX_ATTRS];
        memcpy(frozen, attr, sizeof frozen);
        frozen[KOLO_ADAM_FROZEN].i = 2;
        spec.attr = frozen;
        check(&kolo_simd_adam, &spec, data, 1e-6);
        const kolo_attr delayed[KOLO_MAX_ATTRS] = {
            {.f = 0.9}, {.f = 0.1}, {2 + (int64_t)i % 2}, {.f = 0.25}}; /* update 3 is due if odd */
        test_kernel_spec(&spec, &kolo_op_delayed_sgd, delayed, 6, in, NULL, 3, out, threads);
        for (int k = 0; k < 6; k++) {
            if (k != 2 && k != 3) ASSERT_OK(kolo_layout_parse(in_layouts[k], &spec.in[k].layout));
        }
        check(&kolo_simd_delayed_sgd, &spec, data, 1e-6);
        const int n_in = 2 + (int)i % 2;
        const char *part_out[] = {l};
        const kolo_attr parts[KOLO_MAX_ATTRS] = {{.f = 0.45}, {.f = 0.1}, {.f = 0.02}};
        test_kernel_spec(&spec, &kolo_op_momentum_part, parts, n_in, (const kolo_shape[]){x, x, x},
                         (const char *const[]){l, l, l}, 1, part_out, threads);
        check(&kolo_simd_momentum_part, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_square_blocks, NULL, 1, in, &l, 1, NULL, threads);
        check(&kolo_simd_square_blocks, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_sum, NULL, 1, in, &l, 1, NULL, threads);
        if (kolo_simd_sum.fit(&spec) >= 0) check(&kolo_simd_sum, &spec, NULL, 1e-6);
        const kolo_shape bwd[] = {{0, {0}}, in[0]};
        test_kernel_spec(&spec, &kolo_op_sum_bwd, NULL, 2, bwd, NULL, 1, NULL, threads);
        check(&kolo_simd_sum_bwd, &spec, NULL, 0);
    }
    for (int k = 0; k < 2; k++) { /* an odd number of elements, in blocks of squares or not */
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-2}, {.f = 0.1}};
        const kolo_shape m = kolo_shape_2(3, 7), of_m = kolo_shape_1(1);
        const float norms[2] = {3, 5};
        const kolo_shape lars[] = {m, m, one, m, of_m, of_m}, lamb[] = {m, m, one, m, m};
        const kolo_shape step[] = {m, m, one, of_m, of_m};
        test_kernel_spec(&spec, &kolo_op_lars, attr, 4 + 2 * k, lars, NULL, 2, NULL, threads);
        const void *lars_data[] = {NULL, NULL, &lr, NULL, norms, norms + 1};
        check(&kolo_simd_lars, &spec, lars_data, 1e-6);
        test_kernel_spec(&spec, &kolo_op_lamb, attr, 5, lamb, NULL, 3, NULL, threads);
        const void *lamb_data[] = {NULL, NULL, &update, NULL, squares};
        check(&kolo_simd_lamb, &spec, lamb_data, 1e-6);
        test_kernel_spec(&spec, &kolo_op_lamb_step, NULL, 3 + 2 * k, step, NULL, 1, NULL, threads);
        const void *step_data[] = {NULL, NULL, &lr, norms, norms + 1};
        check(&kolo_simd_lamb_step, &spec, step_data, 1e-6);
    }
    const kolo_shape big = kolo_shape_2(3, 5000), blocks[] = {kolo_shape_1(5), one};
    const kolo_attr norm[KOLO_MAX_ATTRS] = {{.f = 2}};
    const float sum = 9;
    test_kernel_spec(&spec, &kolo_op_square_blocks, NULL, 1, &big, NULL, 1, NULL, threads);
    check(&kolo_simd_square_blocks, &spec, NULL, 1e-6);
    test_kernel_spec(&spec, &kolo_op_square_sum, NULL, 2, blocks, NULL, 1, NULL, threads);
    check(&kolo_simd_square_sum, &spec, NULL, 1e-6);
    test_kernel_spec(&spec, &kolo_op_clip_factor, norm, 1, &one, NULL, 1, NULL, threads);
    check(&kolo_simd_clip_factor, &spec, (const void *[]){&sum}, 1e-6);
}

/* The squares of a tensor in any layout are bitwise those of its plain copy. */
static void norms_do_not_depend_on_layouts(void **state) {
    static const char *const layouts[] = {"abcd",     "acdb",   "aBcd8b",
                                          "ABcd8b8a", "cdbA4a", "Adcb16a"};
    static float plain[30 * 19 * 3 * 5], moved[32 * 24 * 3 * 5], sums[KOLO_COUNT(layouts)][3];
    const kolo_shape shape = kolo_shape_4(30, 19, 3, 5);
    const kolo_tensor canonical = kolo_tensor_plain(KOLO_DTYPE_F32, shape);
    for (size_t i = 0; i < KOLO_COUNT(plain); i++) plain[i] = 1e-3f * (float)(i * 7919 % 9973);
    for (size_t i = 0; i < 2 * KOLO_COUNT(layouts); i++) {
        kolo_kernel_spec spec;
        kolo_call call = {.spec = &spec, .in = {moved}, .out = {sums[i / 2]}};
        size_t scratch;
        test_kernel_spec(&spec, &kolo_op_square_blocks, NULL, 1, &shape, &layouts[i / 2], 1, NULL,
                         1 + (int)i % 2);
        kolo_tensor_reorder(&spec.in[0], moved, &canonical, plain);
        ASSERT_OK(kolo_simd_square_blocks.prepare(&spec, &call.state, &scratch));
        kolo_simd_square_blocks.run(&call);
        kolo_simd_square_blocks.release(call.state);
        assert_memory_equal(sums[i / 2], sums[0], sizeof sums[0]);
    }
    assert_true(sums[0][0] > 0 && sums[0][2] > 0);
}

static void updates_are_the_reference(void **state) { test_each_set(updates); }

/* ---- elementwise losses ---- */

static void elementwise_losses(int threads) {
    const int64_t counts[] = {1, 7, 8, 16, 33, 4096, 4097, 9000};
    for (size_t i = 0; i < KOLO_COUNT(counts) * KOLO_LOSS_KIND_COUNT; i++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{(int64_t)i % KOLO_LOSS_KIND_COUNT}, {.f = 0.7}};
        const kolo_shape x = kolo_shape_1(counts[i / KOLO_LOSS_KIND_COUNT]);
        const kolo_shape in[] = {x, x, kolo_shape_0()};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_elementwise_loss, attr, 2, in, NULL, 1, NULL, threads);
        check(&kolo_simd_elementwise_loss, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_elementwise_loss_bwd, attr, 3, in, NULL, 1, NULL, threads);
        check(&kolo_simd_elementwise_loss_bwd, &spec, NULL, 1e-6);
    }
}

static void elementwise_losses_are_the_reference(void **state) {
    test_each_set(elementwise_losses);
}

/* ---- connectionist temporal classification ---- */

/* Labels end at the first one that is no class; lengths below 0 and above the steps are those. */
static void ctc(int threads) {
    static const struct {
        int64_t n, steps, classes, labels, blank;
    } all[] = {
        {3, 1, 2, 1, 0}, {4, 9, 5, 3, 4}, {5, 40, 17, 8, 3}, {2, 70, 40, 31, 0}, {2, 9, 200, 3, 7}};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        const int64_t n = all[i].n, most = all[i].labels, classes = all[i].classes;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CTC_BLANK].i = all[i].blank};
        const kolo_shape x = {3, {n, all[i].steps, classes}}, y = kolo_shape_2(n, most);
        const kolo_shape in[] = {x, y, kolo_shape_1(n)};
        const kolo_shape bwd[] = {x, y, kolo_shape_0(), kolo_shape_1(n)};
        int32_t labels[256], lengths[8];
        memcpy(labels, integers(n * most, -1, classes, i), sizeof *labels * (size_t)(n * most));
        memcpy(lengths, integers(n, -1, all[i].steps + 2, i), sizeof *lengths * (size_t)n);
        if (i == 3) { /* long texts: no end, labels twice in a row */
            for (int64_t k = 0; k < n * most; k++) labels[k] = (int32_t)(1 + k * k % 7);
        }
        const void *numbers[] = {NULL, labels, lengths}, *of_bwd[] = {NULL, labels, NULL, lengths};
        for (int with = 0; with < 2; with++) {
            test_kernel_spec(&spec, &kolo_op_ctc_loss, attr, 2 + with, in, NULL, 1, NULL, threads);
            check(&kolo_simd_ctc_loss, &spec, numbers, 1e-6);
            test_kernel_spec(&spec, &kolo_op_ctc_loss_bwd, attr, 3 + with, bwd, NULL, 1, NULL,
                             threads);
            check(&kolo_simd_ctc_loss_bwd, &spec, of_bwd, 2e-6);
        }
    }
}

static void ctc_is_the_reference(void **state) { test_each_set(ctc); }

/* A label is read in each of 60 steps, each with a probability of e^-40: the likely paths end too
 * early, and all probabilities together are no float. Then a NaN. */
static void ctc_specials(int threads) {
    enum { STEPS = 60, CLASSES = 3 };
    float x[STEPS * CLASSES] = {0};
    const float one = 1;
    int32_t labels[STEPS];
    const kolo_shape in[] = {{3, {1, STEPS, CLASSES}}, kolo_shape_2(1, STEPS), kolo_shape_0()};
    const void *numbers[] = {x, labels, &one};
    kolo_kernel_spec loss, bwd;
    test_kernel_spec(&loss, &kolo_op_ctc_loss, NULL, 2, in, NULL, 1, NULL, threads);
    test_kernel_spec(&bwd, &kolo_op_ctc_loss_bwd, NULL, 3, in, NULL, 1, NULL, threads);
    for (int k = 0; k < STEPS; k++) {
        labels[k] = 1 + k % 2;
        x[k * CLASSES] = 40;
    }
    check(&kolo_simd_ctc_loss, &loss, numbers, 1e-6);
    check(&kolo_simd_ctc_loss_bwd, &bwd, numbers, 1e-6);
    x[7] = NAN;
    float *sum = test_kernel_result_on(&kolo_simd_ctc_loss, &loss, numbers);
    float *dx = test_kernel_result_on(&kolo_simd_ctc_loss_bwd, &bwd, numbers);
    assert_true(isnan(*sum) && isnan(dx[0]) && isnan(dx[7]) && isnan(dx[STEPS * CLASSES - 1]));
    kolo_free(sum);
    kolo_free(dx);
}

static void ctc_of_special_numbers(void **state) { test_each_set(ctc_specials); }

TEST_MAIN(test_simd_sequence) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_the_reference),
        cmocka_unit_test(unary_functions_are_the_reference),
        cmocka_unit_test(powers_have_the_sign_of_pow),
        cmocka_unit_test(gelu_of_special_numbers),
        cmocka_unit_test(unary_functions_keep_padding),
        cmocka_unit_test(gelu_of_linear_is_the_reference),
        cmocka_unit_test(row_norm_is_the_reference),
        cmocka_unit_test(embedding_is_the_reference),
        cmocka_unit_test(experts_are_the_reference),
        cmocka_unit_test(rows_are_the_reference),
        cmocka_unit_test(row_updates_are_the_reference),
        cmocka_unit_test(attention_is_the_reference),
        cmocka_unit_test(blocks_of_keys),
        cmocka_unit_test(ranges_of_queries_and_keys),
        cmocka_unit_test(caches_are_the_reference),
        cmocka_unit_test(weights_are_dropped_at_the_given_rate),
        cmocka_unit_test(recurrent_layers_are_the_reference),
        cmocka_unit_test(elementwise_losses_are_the_reference),
        cmocka_unit_test(ctc_is_the_reference),
        cmocka_unit_test(ctc_of_special_numbers),
        cmocka_unit_test(updates_are_the_reference),
        cmocka_unit_test(norms_do_not_depend_on_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
