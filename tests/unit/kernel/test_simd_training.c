/* Our kernels of every instruction set that this machine has that only training runs, against the
 * reference: elementwise losses, connectionist temporal classification, updates of parameters. */
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

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
        test_kernel_fitting(&kolo_simd_adam, &spec, data, 1e-6);
        kolo_attr frozen[KOLO_MAX_ATTRS];
        memcpy(frozen, attr, sizeof frozen);
        frozen[KOLO_ADAM_FROZEN].i = 2;
        spec.attr = frozen;
        test_kernel_fitting(&kolo_simd_adam, &spec, data, 1e-6);
        const kolo_attr delayed[KOLO_MAX_ATTRS] = {
            {.f = 0.9}, {.f = 0.1}, {2 + (int64_t)i % 2}, {.f = 0.25}}; /* update 3 is due if odd */
        test_kernel_spec(&spec, &kolo_op_delayed_sgd, delayed, 6, in, NULL, 3, out, threads);
        for (int k = 0; k < 6; k++) {
            if (k != 2 && k != 3) ASSERT_OK(kolo_layout_parse(in_layouts[k], &spec.in[k].layout));
        }
        test_kernel_fitting(&kolo_simd_delayed_sgd, &spec, data, 1e-6);
        const int n_in = 2 + (int)i % 2;
        const char *part_out[] = {l};
        const kolo_attr parts[KOLO_MAX_ATTRS] = {{.f = 0.45}, {.f = 0.1}, {.f = 0.02}};
        test_kernel_spec(&spec, &kolo_op_momentum_part, parts, n_in, (const kolo_shape[]){x, x, x},
                         (const char *const[]){l, l, l}, 1, part_out, threads);
        test_kernel_fitting(&kolo_simd_momentum_part, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_square_blocks, NULL, 1, in, &l, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_square_blocks, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_sum, NULL, 1, in, &l, 1, NULL, threads);
        if (kolo_simd_sum.fit(&spec) >= 0) test_kernel_fitting(&kolo_simd_sum, &spec, NULL, 1e-6);
        const kolo_shape bwd[] = {{0, {0}}, in[0]};
        test_kernel_spec(&spec, &kolo_op_sum_bwd, NULL, 2, bwd, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_sum_bwd, &spec, NULL, 0);
    }
    for (int k = 0; k < 2; k++) { /* an odd number of elements, in blocks of squares or not */
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-2}, {.f = 0.1}};
        const kolo_shape m = kolo_shape_2(3, 7), of_m = kolo_shape_1(1);
        const float norms[2] = {3, 5};
        const kolo_shape lars[] = {m, m, one, m, of_m, of_m}, lamb[] = {m, m, one, m, m};
        const kolo_shape step[] = {m, m, one, of_m, of_m};
        test_kernel_spec(&spec, &kolo_op_lars, attr, 4 + 2 * k, lars, NULL, 2, NULL, threads);
        const void *lars_data[] = {NULL, NULL, &lr, NULL, norms, norms + 1};
        test_kernel_fitting(&kolo_simd_lars, &spec, lars_data, 1e-6);
        test_kernel_spec(&spec, &kolo_op_lamb, attr, 5, lamb, NULL, 3, NULL, threads);
        const void *lamb_data[] = {NULL, NULL, &update, NULL, squares};
        test_kernel_fitting(&kolo_simd_lamb, &spec, lamb_data, 1e-6);
        test_kernel_spec(&spec, &kolo_op_lamb_step, NULL, 3 + 2 * k, step, NULL, 1, NULL, threads);
        const void *step_data[] = {NULL, NULL, &lr, norms, norms + 1};
        test_kernel_fitting(&kolo_simd_lamb_step, &spec, step_data, 1e-6);
    }
    const kolo_shape big = kolo_shape_2(3, 5000), blocks[] = {kolo_shape_1(5), one};
    const kolo_attr norm[KOLO_MAX_ATTRS] = {{.f = 2}};
    const float sum = 9;
    test_kernel_spec(&spec, &kolo_op_square_blocks, NULL, 1, &big, NULL, 1, NULL, threads);
    test_kernel_fitting(&kolo_simd_square_blocks, &spec, NULL, 1e-6);
    test_kernel_spec(&spec, &kolo_op_square_sum, NULL, 2, blocks, NULL, 1, NULL, threads);
    test_kernel_fitting(&kolo_simd_square_sum, &spec, NULL, 1e-6);
    const kolo_shape sums[] = {kolo_shape_1(5), kolo_shape_1(7)};
    const kolo_attr place[KOLO_MAX_ATTRS] = {{3}, {7}};
    test_kernel_spec(&spec, &kolo_op_square_sum, place, 2, sums, NULL, 1, NULL, threads);
    test_kernel_fitting(&kolo_simd_square_sum, &spec, NULL, 1e-6);
    test_kernel_spec(&spec, &kolo_op_clip_factor, norm, 1, &one, NULL, 1, NULL, threads);
    test_kernel_fitting(&kolo_simd_clip_factor, &spec, (const void *[]){&sum}, 1e-6);
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
        test_kernel_fitting(&kolo_simd_elementwise_loss, &spec, NULL, 1e-6);
        test_kernel_spec(&spec, &kolo_op_elementwise_loss_bwd, attr, 3, in, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_elementwise_loss_bwd, &spec, NULL, 1e-6);
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
        memcpy(labels, test_integers(n * most, -1, classes, i),
               sizeof *labels * (size_t)(n * most));
        memcpy(lengths, test_integers(n, -1, all[i].steps + 2, i), sizeof *lengths * (size_t)n);
        if (i == 3) { /* long texts: no end, labels twice in a row */
            for (int64_t k = 0; k < n * most; k++) labels[k] = (int32_t)(1 + k * k % 7);
        }
        const void *numbers[] = {NULL, labels, lengths}, *of_bwd[] = {NULL, labels, NULL, lengths};
        for (int with = 0; with < 2; with++) {
            test_kernel_spec(&spec, &kolo_op_ctc_loss, attr, 2 + with, in, NULL, 1, NULL, threads);
            test_kernel_fitting(&kolo_simd_ctc_loss, &spec, numbers, 1e-6);
            test_kernel_spec(&spec, &kolo_op_ctc_loss_bwd, attr, 3 + with, bwd, NULL, 1, NULL,
                             threads);
            test_kernel_fitting(&kolo_simd_ctc_loss_bwd, &spec, of_bwd, 2e-6);
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
    test_kernel_fitting(&kolo_simd_ctc_loss, &loss, numbers, 1e-6);
    test_kernel_fitting(&kolo_simd_ctc_loss_bwd, &bwd, numbers, 1e-6);
    x[7] = NAN;
    float *sum = test_kernel_result_on(&kolo_simd_ctc_loss, &loss, numbers);
    float *dx = test_kernel_result_on(&kolo_simd_ctc_loss_bwd, &bwd, numbers);
    assert_true(isnan(*sum) && isnan(dx[0]) && isnan(dx[7]) && isnan(dx[STEPS * CLASSES - 1]));
    kolo_free(sum);
    kolo_free(dx);
}

static void ctc_of_special_numbers(void **state) { test_each_set(ctc_specials); }

TEST_MAIN(test_simd_training) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_losses_are_the_reference),
        cmocka_unit_test(ctc_is_the_reference),
        cmocka_unit_test(ctc_of_special_numbers),
        cmocka_unit_test(updates_are_the_reference),
        cmocka_unit_test(norms_do_not_depend_on_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
