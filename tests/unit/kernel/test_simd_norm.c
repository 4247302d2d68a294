/* Our batch normalization of every instruction set that this machine has, against the reference,
 * over shapes, layouts and threads; with means far from zero, and channels that do not vary. */
#include "base/bf16.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernel/simd/kernels.h"
#include "support/fewer.h"
#include "support/kernel_check.h"

#include <string.h>

enum { MAX_ELEMENTS = 1 << 17, MAX_CHANNELS = 256 };

static const struct {
    kolo_shape shape;
    const char *layout;
} images[] = {
    {{4, {3, 6, 5, 7}}, "abcd"},
    {{4, {3, 6, 5, 7}}, "acdb"},
    {{4, {3, 6, 5, 7}}, "aBcd8b"},
    {{4, {2, 17, 3, 3}}, "aBcd16b"},
    {{4, {2, 130, 2, 3}}, "acdb"},
    {{4, {1, 16, 9, 9}}, "aBcd8b"},
    {{4, {2, 9, 1, 2}}, "aBcd4b"},
    {{4, {2, 3, 4, 13}}, "abcd"},
    {{4, {2, 8, 9, 3}}, "acdb"},
    {{4, {2, 64, 5, 5}}, "acdb"},
    {{4, {1, 32, 40, 40}}, "acdb"},
    {{2, {37, 10}}, "ab"},
    {{3, {3, 4, 19}}, "abc"},
    {{4, {2, 1, 150, 150}}, "abcd"},
    {{4, {5, 3, 1, 1}}, "abcd"},
    {{4, {2, 19, 12, 12}}, "aBcd16b"},
    /* several slabs, the last of them smaller */
    {{4, {2, 37, 40, 44}}, "aBcd8b"},
    {{4, {2, 5, 120, 100}}, "abcd"},
};

static uint16_t half_x[MAX_ELEMENTS]; /* x in bf16 */
static float x[MAX_ELEMENTS], mean[MAX_CHANNELS], var[MAX_CHANNELS];

/* Channel 0 is 100 + noise, channel 1 is constant; the others are noise of another size each. */
static void fill(const kolo_shape *s) {
    kolo_rng rng = kolo_rng_make(7, KOLO_RNG_TEST, 1);
    int64_t count = kolo_shape_count(s), plane = count / (s->dim[0] * s->dim[1]);
    assert_true(count <= MAX_ELEMENTS && s->dim[1] <= MAX_CHANNELS);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = i / plane % s->dim[1];
        float noise = kolo_rng_normal(&rng, (uint64_t)i);
        x[i] = c == 0 ? 100 + noise : c == 1 ? 3 : noise * (float)(c + 1) / 4 + (float)(c % 3);
        half_x[i] = kolo_bf16_narrow(x[i]);
    }
    for (int64_t c = 0; c < s->dim[1]; c++) {
        mean[c] = c == 0 ? 100 : (float)(c % 3);
        var[c] = 0.5F + kolo_rng_uniform(&rng, (uint64_t)c);
    }
}

static int check(const kolo_kernel *kernel, kolo_kernel_spec *spec, const void *const *inputs,
                 double tolerance) {
    if (kernel->fit(spec) < 0) return 0;
    test_kernel_on(kernel, spec, inputs, tolerance);
    return 1;
}

/* In f32 and, with activations of bf16, of which input `x_at` is x. */
static int check_both(const kolo_kernel *kernel, kolo_kernel_spec *spec, const void *const *inputs,
                      int x_at, double tolerance) {
    const void *halves[KOLO_MAX_IO];
    int fits = check(kernel, spec, inputs, tolerance);
    memcpy(halves, inputs, sizeof *inputs * (size_t)spec->n_in);
    halves[x_at] = half_x;
    test_kernel_in_bf16(spec, -1);
    assert_int_equal(spec->out[0].dtype, KOLO_DTYPE_BF16);
    return fits + check(kernel, spec, halves, tolerance);
}

static int norm_case(size_t i, int relu, int threads) {
    const kolo_shape s = images[i].shape, c = kolo_shape_1(s.dim[1]);
    const char *l = images[i].layout;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 1e-3}, {.f = 0.1}, {relu}};
    kolo_kernel_spec spec;
    fill(&s);
    const kolo_shape in[] = {s, c, c, c, c, s}, bwd[] = {s, s, c, c, c, c};
    const char *layouts[] = {l, NULL, NULL, NULL, NULL, l};
    const char *bwd_layouts[] = {l, l, NULL, NULL, NULL, NULL};
    const void *data[] = {x, NULL, NULL, mean, var, NULL};
    const void *bwd_data[] = {NULL, x, NULL, mean, var, NULL};
    int fits = 0;
    for (int n_in = 5; n_in <= 6; n_in++) { /* 6: with a residual */
        test_kernel_spec(&spec, &kolo_op_batch_norm, attr, n_in, in, layouts, 3, layouts, threads);
        fits += check_both(&kolo_simd_batch_norm, &spec, data, 0, 2e-6);
        test_kernel_spec(&spec, &kolo_op_batch_norm_infer, attr, n_in, in, layouts, 1, layouts,
                         threads);
        fits += check_both(&kolo_simd_batch_norm_infer, &spec, data, 0, 2e-6);
    }
    test_kernel_spec(&spec, &kolo_op_batch_norm_bwd, attr, relu ? 6 : 5, bwd, bwd_layouts, 3,
                     layouts, threads);
    return fits + check_both(&kolo_simd_batch_norm_bwd, &spec, bwd_data, 1, 5e-6);
}

/* The same of the synchronized ops; weight: one of all samples, of which these are a part. */
static int sync_case(size_t i, int relu, int threads) {
    const kolo_shape s = images[i].shape, c = kolo_shape_1(s.dim[1]), one = kolo_shape_0();
    const kolo_shape two = kolo_shape_1(2 * s.dim[1]);
    const char *l = images[i].layout;
    const int64_t plane = 2 * kolo_shape_count(&s) / (s.dim[0] * s.dim[1]); /* others have half */
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 1e-3}, {.f = 0.1}, {relu}, {0}, {plane}};
    const kolo_attr of_sums[KOLO_MAX_ATTRS] = {{0}, {plane}};
    const float weight = 0.1F;
    kolo_kernel_spec spec;
    fill(&s);
    const kolo_shape sums[] = {s, c, one}, apply[] = {s, c, c, c, c, one, s};
    const kolo_shape bwd[] = {s, s, c, c, c, c}, dx[] = {s, s, one, two, c, c, c, c};
    const char *layouts[] = {l, NULL, NULL, NULL, NULL, NULL, l}, *out[] = {l, NULL, NULL};
    const char *bwd_layouts[] = {l, l, NULL, NULL, NULL, NULL, NULL, NULL};
    const void *sums_data[] = {x, mean, &weight}, *half_data[] = {half_x, mean, &weight};
    const void *data[] = {x, NULL, NULL, mean, var, &weight, NULL};
    const void *bwd_data[] = {NULL, x, NULL, mean, var, NULL};
    const void *half_bwd[] = {NULL, half_x, NULL, mean, var, NULL};
    const void *dx_data[] = {NULL, x, &weight, NULL, NULL, mean, var, NULL};
    int fits = 0;
    test_kernel_spec(&spec, &kolo_op_sync_norm_sums, of_sums, 3, sums, layouts, 1, NULL, threads);
    fits += check(&kolo_simd_sync_norm_sums, &spec, sums_data, 1e-5);
    test_kernel_in_bf16(&spec, -1);
    fits += check(&kolo_simd_sync_norm_sums, &spec, half_data, 1e-5);
    for (int n_in = 6; n_in <= 7; n_in++) {
        test_kernel_spec(&spec, &kolo_op_sync_norm, attr, n_in, apply, layouts, 1, out, threads);
        fits += check_both(&kolo_simd_sync_norm, &spec, data, 0, 2e-6);
    }
    test_kernel_spec(&spec, &kolo_op_sync_norm_bwd_sums, attr, relu ? 6 : 5, bwd, bwd_layouts, 3,
                     NULL, threads);
    fits += check(&kolo_simd_sync_norm_bwd_sums, &spec, bwd_data, 5e-6);
    test_kernel_in_bf16(&spec, -1);
    fits += check(&kolo_simd_sync_norm_bwd_sums, &spec, half_bwd, 5e-6);
    test_kernel_spec(&spec, &kolo_op_sync_norm_bwd_data, attr, relu ? 8 : 7, dx, bwd_layouts, 1,
                     out, threads);
    return fits + check_both(&kolo_simd_sync_norm_bwd_data, &spec, dx_data, 1, 5e-6);
}

/* Whether all forms of an image run: under sanitizers the large ones, of several slabs, have one.
 */
static bool has_all_forms(size_t i) {
    return TEST_FEWER(kolo_shape_count(&images[i].shape) < 40000, true);
}

static void synchronized_norm_is_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t i = 0; i < KOLO_COUNT(images); i++) {
            if (test_takes_turns(i, isa, (int)kolo_isa_best())) continue;
            assert_int_equal(sync_case(i, (int)(i % 3), 1 + (int)(i % 3)), 10);
            if (has_all_forms(i)) assert_int_equal(sync_case(i, (int)((i + 1) % 3), 1), 10);
        }
    }
    kolo_isa_pin(-1);
}

static void norm_is_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (int threads = 1; threads <= 3; threads += 2) {
            for (size_t i = 0; i < KOLO_COUNT(images); i++) {
                if (test_takes_turns(i + (size_t)threads / 2, isa, (int)kolo_isa_best())) continue;
                if (has_all_forms(i)) assert_int_equal(norm_case(i, 0, threads), 10);
                assert_int_equal(norm_case(i, 1 + (int)(i % 2), threads), 10);
            }
        }
    }
    kolo_isa_pin(-1);
}

static void vectors_are_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (int64_t n = 1; n < 70; n += 17) {
            const kolo_shape v = kolo_shape_1(n), in[] = {v, v, v, v}, two[] = {v, kolo_shape_0()};
            static const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 0.1}};
            kolo_kernel_spec spec;
            test_kernel_spec(&spec, &kolo_op_batch_norm_update, attr, 4, in, NULL, 2, NULL, 2);
            assert_int_equal(check(&kolo_simd_batch_norm_update, &spec, NULL, 1e-6), 1);
            const kolo_attr plane[KOLO_MAX_ATTRS] = {{.f = 0.1}, {6}};
            const kolo_shape sums[] = {kolo_shape_1(2 * n), v, v, kolo_shape_0()};
            const float weight = 0.2F;
            const void *data[] = {NULL, NULL, NULL, &weight};
            test_kernel_spec(&spec, &kolo_op_sync_norm_statistics, plane, 4, sums, NULL, 3, NULL,
                             2);
            assert_int_equal(check(&kolo_simd_sync_norm_statistics, &spec, data, 1e-6), 1);
            test_kernel_spec(&spec, &kolo_op_scale, attr, 2, two, NULL, 1, NULL, 2);
            assert_int_equal(check(&kolo_simd_scale, &spec, NULL, 1e-6), 1);
        }
    }
    kolo_isa_pin(-1);
}

enum { LARGE = 84 * 64 * 28 * 28 }; /* more than the bytes from which a result passes the cache */

/* Runs a kernel whose input of the image is `a`, and of the gradient `b` the next one. */
static void run_large(const kolo_kernel *kernel, const kolo_kernel_spec *spec, float *a, float *b,
                      float *out) {
    float vectors[8][64];
    size_t scratch_bytes = 0;
    kolo_call call = {.spec = spec};
    for (int64_t i = 0; i < 8 * 64; i++) vectors[i / 64][i % 64] = 0.5F + (float)(i % 7) / 8;
    for (int i = 0; i < spec->n_in; i++) call.in[i] = vectors[i];
    call.in[0] = a;
    if (b) call.in[1] = b;
    call.out[0] = out;
    call.out[1] = vectors[6];
    call.out[2] = vectors[7];
    ASSERT_OK(kernel->prepare(spec, &call.state, &scratch_bytes));
    call.scratch = kolo_alloc(scratch_bytes);
    assert_non_null(call.scratch);
    kernel->run(&call);
    kernel->release(call.state);
    kolo_free(call.scratch);
}

/* Written past the cache or in place of an input, which is not. */
static void large_results_have_the_same_bits(void **state) {
    const kolo_shape s = kolo_shape_4(84, 64, 28, 28), c = kolo_shape_1(64);
    const kolo_shape in[] = {s, c, c, c, c}, bwd[] = {s, s, c, c, c};
    static const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 1e-3}, {.f = 0.1}};
    static const char *const layouts[] = {"abcd", "aBcd16b"};
    const size_t bytes = LARGE * sizeof(float);
    float *large = kolo_pages_map(3 * bytes), *a = large, *b = a + LARGE, *out = b + LARGE;
    assert_non_null(large);
    for (int64_t k = 0; k < 2 * (int64_t)LARGE; k++) large[k] = (float)(k * 7919 % 1013) / 500 - 1;
    for (int isa = 1; isa <= (int)kolo_isa_best(); isa++) {
        for (int i = 0; i < 4; i++) {
            const bool back = i % 2;
            const char *l = layouts[i / 2], *of_in[] = {l, back ? l : NULL, NULL, NULL, NULL};
            const char *of_out[] = {l, NULL, NULL};
            const kolo_kernel *kernel = back ? &kolo_simd_batch_norm_bwd : &kolo_simd_batch_norm;
            kolo_kernel_spec spec;
            kolo_isa_pin(isa);
            test_kernel_spec(&spec, kernel->op, attr, 5, back ? bwd : in, of_in, 3, of_out, 1);
            run_large(kernel, &spec, a, back ? b : NULL, out);
            run_large(kernel, &spec, a, back ? b : NULL, a);
            assert_memory_equal(a, out, bytes);
        }
    }
    kolo_isa_pin(-1);
    kolo_pages_unmap(large, 3 * bytes);
}

/* A layout that no image has, or another one than x's, is refused. */
static void other_layouts_are_refused(void **state) {
    const kolo_shape s = kolo_shape_4(2, 8, 3, 3), c = kolo_shape_1(8), in[] = {s, c, c, c, c};
    static const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 1e-3}};
    static const char *const pairs[][2] = {{"abcd", "acdb"}, {"adcb", "adcb"}};
    for (size_t i = 0; i < KOLO_COUNT(pairs); i++) {
        const char *from[] = {pairs[i][0], NULL, NULL, NULL, NULL},
                   *to[] = {pairs[i][1], NULL, NULL};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_batch_norm, attr, 5, in, from, 3, to, 1);
        assert_true(kolo_simd_batch_norm.fit(&spec) < 0);
    }
}

TEST_MAIN(test_simd_norm) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_is_the_reference),
        cmocka_unit_test(synchronized_norm_is_the_reference),
        cmocka_unit_test(vectors_are_the_reference),
        cmocka_unit_test(large_results_have_the_same_bits),
        cmocka_unit_test(other_layouts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
