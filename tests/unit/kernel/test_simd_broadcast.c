/* Our kernels that walk over tensors of different strides, of every instruction set that this
 * machine has, against the reference: functions of two inputs with broadcasting, reductions; over
 * layouts and threads. */
#include "base/bf16.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"
#include "support/shapes.h"

#include <math.h>
#include <string.h>

/* ---- two inputs ---- */

#define PAIR(op_name) {&kolo_op_##op_name, &kolo_simd_##op_name},
static const struct {
    const kolo_op *op;
    const kolo_kernel *kernel;
} functions[] = {KOLO_BINARY_LIST(KOLO_BINARY_OP, PAIR)};

static const struct {
    kolo_shape in[2];
    kolo_attr attr[KOLO_MAX_ATTRS];
    const char *layout[2], *out;
} pairs[] = {
    {{S2(37, 10), S1(10)}, {{0}}, {NULL, NULL}, NULL},
    {{S1(10), S2(37, 10)}, {{0}}, {NULL, NULL}, NULL},
    {{S3(2, 1, 19), S3(2, 3, 1)}, {{2}, {4}}, {NULL, NULL}, NULL},
    {{S4(2, 3, 4, 13), S2(4, 1)}, {{0}, {8}}, {NULL, NULL}, NULL},
    {{S3(4, 5, 6), S3(4, 5, 6)}, {{0}}, {NULL, NULL}, NULL},
    {{S2(3, 9001), {0, {0}}}, {{0}}, {NULL, NULL}, NULL},
    {{{0, {0}}, S1(5)}, {{0}}, {NULL, NULL}, NULL},
    {{{0, {0}}, {0, {0}}}, {{0}}, {NULL, NULL}, NULL},
    {{S4(3, 16, 5, 7), S4(3, 16, 1, 1)}, {{0}, {12}}, {"abcd", "abcd"}, "abcd"},
    {{S4(3, 16, 5, 7), S4(3, 16, 1, 1)}, {{0}, {12}}, {"acdb", "abcd"}, "acdb"},
    {{S4(3, 16, 5, 7), S4(3, 16, 1, 1)}, {{0}, {12}}, {"aBcd8b", "abcd"}, "aBcd8b"},
    {{S4(3, 16, 5, 7), S4(3, 16, 1, 1)}, {{0}, {12}}, {"aBcd8b", "aBcd8b"}, "aBcd8b"},
    {{S4(2, 1, 3, 5), S4(2, 8, 3, 5)}, {{2}, {0}}, {"abcd", "acdb"}, "acdb"},
};

static void binary(int threads) {
    enum { MOST = 1 << 15 };
    static float x[2][MOST];
    static uint16_t half[2][MOST];
    for (int i = 0; i < MOST; i++) {
        x[0][i] = (float)(1 + i * 7 % 5);
        x[1][i] = (float)(1 + i * 3 % 7);
        for (int k = 0; k < 2; k++) half[k][i] = kolo_bf16_narrow(x[k][i]);
    }
    const void *in[] = {x[0], x[1]}, *half_in[] = {half[0], half[1]}, *mixed[] = {half[0], x[1]};
    for (size_t i = 0; i < KOLO_COUNT(functions) * KOLO_COUNT(pairs); i++) {
        const size_t p = i % KOLO_COUNT(pairs), f = i / KOLO_COUNT(pairs);
        kolo_kernel_spec spec;
        for (int kind = 0; kind < 3; kind++) {
            test_kernel_spec(&spec, functions[f].op, pairs[p].attr, 2, pairs[p].in, pairs[p].layout,
                             1, &pairs[p].out, threads);
            if (kind > 0) test_kernel_in_bf16(&spec, kind == 2 ? 1 : -1);
            test_kernel_fitting(functions[f].kernel, &spec,
                                kind == 0   ? in
                                : kind == 1 ? half_in
                                            : mixed,
                                0);
        }
    }
}

static void functions_of_two_inputs_are_the_reference(void **state) { test_each_set(binary); }

/* An output may lie on an input of its size, so these must have one order. */
static void inputs_of_another_order_are_refused(void **state) {
    const kolo_shape in[] = {S4(2, 3, 4, 5), S4(2, 3, 4, 5)};
    const char *layouts[] = {"abcd", "acdb"}, *padded[] = {"aBcd8b", "aBcd8b"};
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_sub, NULL, 2, in, layouts, 1, layouts, 1);
    assert_true(kolo_simd_sub.fit(&spec) < 0);
    test_kernel_spec(&spec, &kolo_op_sub, NULL, 2, in, padded, 1, padded, 1);
    assert_true(kolo_simd_sub.fit(&spec) < 0);
}

/* ---- permute, softmax ---- */

static void permutations(int threads) {
    static const struct {
        kolo_shape x;
        kolo_attr order[KOLO_MAX_ATTRS];
    } cases[] = {
        {S2(37, 50), {{1}, {0}}},
        {S3(5, 7, 33), {{0}, {2}, {1}}},
        {S4(2, 5, 3, 8), {{0}, {2}, {1}, {3}}},
        {S4(2, 9, 3, 70), {{0}, {2}, {1}, {3}}}, /* rows that stay together */
        {S3(2, 20, 150), {{0}, {2}, {1}}},       /* several bands */
        {S4(3, 4, 1, 17), {{3}, {1}, {0}, {2}}},
        {S3(1, 1, 1), {{2}, {0}, {1}}},
        {S2(1, 9), {{1}, {0}}},
        {S4(2, 3, 4, 5), {{0}, {1}, {2}, {3}}},
    };
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_permute, cases[c].order, 1, &cases[c].x, NULL, 1, NULL,
                         threads);
        test_kernel_fitting(&kolo_simd_permute, &spec, NULL, 0);
        test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(&kolo_simd_permute, &spec, NULL, -2e-3); /* bitwise */
        const kolo_attr axis[KOLO_MAX_ATTRS] = {{cases[c].x.rank - 1 - (int64_t)c % 2}};
        if (axis[0].i < 0) continue;
        test_kernel_spec(&spec, &kolo_op_flip, axis, 1, &cases[c].x, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_flip, &spec, NULL, 0);
        test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(&kolo_simd_flip, &spec, NULL, -2e-3);
    }
}

static void permutations_are_the_reference(void **state) { test_each_set(permutations); }

static void softmaxes(int threads) {
    static const kolo_shape shapes[] = {
        S2(5, 1),     S2(3, 7),       S2(4, 50),
        S2(67, 7),    S2(50, 49),     S2(35, 128), /* narrow rows, several at once */
        S2(70, 10),   S2(33, 8),      S2(32, 2),
        S3(2, 5, 3),  S4(2, 3, 5, 7),                /* rows, a few columns */
        S3(2, 6, 49), S3(2, 3, 64),   S3(3, 7, 150), /* strips of columns, whole and not */
        S3(2, 70, 2), S3(1, 1, 33),   S3(1, 9, 17),  /* columns that divide a vector, or not */
    };
    for (size_t c = 0; c < 2 * KOLO_COUNT(shapes); c++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{(int64_t)c % 2}};
        const kolo_shape x = shapes[c / 2], in[] = {x, x};
        kolo_kernel_spec spec;
        for (int half = 0; half < 2; half++) {
            test_kernel_spec(&spec, &kolo_op_softmax, attr, 1, &x, NULL, 1, NULL, threads);
            if (half) test_kernel_in_bf16(&spec, -1);
            test_kernel_fitting(&kolo_simd_softmax, &spec, NULL, 2e-6);
            test_kernel_spec(&spec, &kolo_op_softmax_bwd, attr, 2, in, NULL, 1, NULL, threads);
            if (half) test_kernel_in_bf16(&spec, -1);
            test_kernel_fitting(&kolo_simd_softmax_bwd, &spec, NULL, 2e-6);
        }
    }
}

static void softmaxes_are_the_reference(void **state) { test_each_set(softmaxes); }

static void run_softmax(const float *x, float *y, int64_t rows, int64_t width, bool log,
                        int threads) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{log}};
    const kolo_shape shape = kolo_shape_2(rows, width);
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_softmax, attr, 1, &shape, NULL, 1, NULL, threads);
    kolo_simd_softmax.run(&(kolo_call){.spec = &spec, .in = {(void *)(uintptr_t)x}, .out = {y}});
}

/* A row has the same bits beside any others, also those with a NaN or infinities, and in place; and
 * nothing beyond the last one is written. */
static void rows_by_themselves(int threads) {
    enum { ROWS = 75, WIDTH = 136, END = 16 };
    static float x[ROWS * WIDTH], y[ROWS * WIDTH + END], row[WIDTH + END];
    for (int64_t c = 0; c < 2 * (WIDTH - 1); c++) {
        const int64_t width = 1 + c / 2, count = ROWS * width;
        const bool log = c % 2 == 1;
        for (int64_t i = 0; i < count; i++) x[i] = (float)((i * 7919) % 1009) / 31 - 16;
        x[3 * width] = NAN;
        x[7 * width + width / 2] = INFINITY;
        x[40 * width + width - 1] = -INFINITY;
        for (int64_t i = 0; i < width; i++) x[50 * width + i] = -INFINITY;
        for (int64_t i = 0; i < END; i++) y[count + i] = row[width + i] = 5;
        memcpy(y, x, sizeof *x * (size_t)count);
        run_softmax(y, y, ROWS, width, log, threads);
        for (int64_t i = 0; i < END; i++) assert_true(y[count + i] == 5);
        for (int64_t r = 0; r < ROWS; r++) {
            run_softmax(x + r * width, row, 1, width, log, 1);
            for (int64_t i = 0; i < END; i++) assert_true(row[width + i] == 5);
            for (int64_t i = 0; i < width; i++) {
                const float a = y[r * width + i], b = row[i];
                const bool lost = r == 3 || r == 7 || r == 50 || (r == 40 && width == 1);
                if (isnan(b) && isnan(a) && lost) continue;
                if (memcmp(&a, &b, sizeof a) == 0 && !isnan(a)) continue;
                fail_msg("width %d, row %d, column %d: %g beside others, %g", (int)width, (int)r,
                         (int)i, (double)a, (double)b);
            }
        }
    }
}

static void rows_do_not_depend_on_others(void **state) { test_each_set(rows_by_themselves); }

static void positions(int threads) {
    static const struct {
        kolo_shape x;
        int64_t heads;
    } cases[] = {{S3(2, 5, 8), 2}, {S3(1, 3, 64), 1}, {S3(2, 2, 44), 2}, {S3(1, 1, 2), 1}};
    static const kolo_shape masks[] = {S4(2, 2, 5, 9), S3(2, 7, 3), S2(1, 1)};
    kolo_kernel_spec spec;
    for (size_t c = 0; c < 2 * KOLO_COUNT(cases); c++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            {cases[c / 2].heads}, {.f = 1000}, {3}, {(int64_t)c % 2}, {c / 2 == 2 ? 12 : 0}};
        test_kernel_spec(&spec, &kolo_op_rotary, attr, 1, &cases[c / 2].x, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_rotary, &spec, NULL, 1e-6);
        test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(&kolo_simd_rotary, &spec, NULL, 1e-6);
        static const int32_t at[] = {7, 0, 3, 100, 2, 2, 1, 5, 4, 6};
        const int64_t *dim = cases[c / 2].x.dim;
        const kolo_shape in[] = {cases[c / 2].x, kolo_shape_2(dim[0], dim[1])};
        const void *given[] = {NULL, at};
        test_kernel_spec(&spec, &kolo_op_rotary, attr, 2, in, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_rotary, &spec, given, 1e-6);
    }
    for (size_t c = 0; c < 2 * KOLO_COUNT(masks); c++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = -2}, {c % 2 ? 3 : 0}};
        test_kernel_spec(&spec, &kolo_op_causal_mask, attr, 1, &masks[c / 2], NULL, 1, NULL,
                         threads);
        test_kernel_fitting(&kolo_simd_causal_mask, &spec, NULL, 0);
    }
}

static void positions_are_the_reference(void **state) { test_each_set(positions); }

/* ---- reductions ---- */

static void reductions(int threads) {
    static const struct {
        kolo_shape x;
        const char *layout;
    } cases[] = {
        {S3(3, 4, 19), "abc"},     {S4(2, 16, 5, 7), "abcd"},
        {S4(2, 16, 5, 7), "acdb"}, {S4(2, 16, 5, 7), "aBcd8b"},
        {S2(300, 70), "ab"},       {S2(3, 5000), "ab"},
        {S4(1, 3, 1, 2), "acdb"},  {S1(1), "a"},
    };
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        const kolo_shape x = cases[c].x;
        for (int64_t axes = 0; axes < 1 << x.rank; axes++) {
            for (int kind = 0; kind < 4; kind++) {
                const kolo_attr attr[KOLO_MAX_ATTRS] = {{axes}, {kind % 2}, {kind / 2}};
                const char *layout[] = {cases[c].layout, NULL};
                kolo_kernel_spec spec;
                test_kernel_spec(&spec, &kolo_op_sum, attr, 1, &x, layout, 1, NULL, threads);
                test_kernel_fitting(&kolo_simd_sum, &spec, NULL, 2e-6);
                const kolo_shape in[] = {spec.out[0].shape, x};
                const char *bwd[] = {NULL, layout[0]};
                test_kernel_spec(&spec, &kolo_op_reduce_max, attr, 1, &x, layout, 1, NULL, threads);
                test_kernel_fitting(&kolo_simd_reduce_max, &spec, NULL, 0);
                test_kernel_spec(&spec, &kolo_op_sum_bwd, attr, 2, in, bwd, 1, layout, threads);
                test_kernel_fitting(&kolo_simd_sum_bwd, &spec, NULL, 1e-7);
            }
        }
    }
}

static void reductions_are_the_reference(void **state) { test_each_set(reductions); }

TEST_MAIN(test_simd_broadcast) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_two_inputs_are_the_reference),
        cmocka_unit_test(inputs_of_another_order_are_refused),
        cmocka_unit_test(permutations_are_the_reference),
        cmocka_unit_test(softmaxes_are_the_reference),
        cmocka_unit_test(rows_do_not_depend_on_others),
        cmocka_unit_test(positions_are_the_reference),
        cmocka_unit_test(reductions_are_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
