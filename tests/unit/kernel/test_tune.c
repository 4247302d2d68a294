/* Tuners: their text, what they measure, and what selection makes of it. */
#include "base/isa.h"
#include "kernel/select/select.h"
#include "kernel/select/tune.h"
#include "kernel/select/via_f32.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <stdio.h>
#include <string.h>

static const kolo_attr attr[KOLO_MAX_ATTRS] = {{1}, {1}, {1}, {1}, {1}, {1}, {1}};

static void make_spec(kolo_kernel_spec *spec, const char *layout) {
    test_kernel_spec(spec, &kolo_op_conv2d, attr, 2,
                     (kolo_shape[]){kolo_shape_4(2, 16, 12, 12), kolo_shape_4(16, 16, 3, 3)},
                     (const char *[]){layout, "any"}, 1, &layout, 1);
}

typedef struct observed {
    int times;
    double last;
} observed;

static void observe(void *arg, int measured, const kolo_kernel *kernel,
                    const kolo_kernel_spec *spec, double seconds) {
    observed *h = arg;
    assert_int_equal(measured, ++h->times);
    assert_ptr_equal(kernel->op, spec->op);
    assert_true(seconds > 0);
    h->last = seconds;
}

/* Each kernel that fits is measured once, and found again in the text. */
static void times_are_measured_once_and_kept(void **state) {
    kolo_tuner *tuner, *other;
    const kolo_kernel *kernel, *again;
    kolo_kernel_spec spec;
    observed h = {0};
    double seconds, known;
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    make_spec(&spec, "aBcd16b");
    kolo_tuner_measure(tuner, true, observe, &h);
    ASSERT_OK(kolo_kernel_select_tuned(KOLO_KERNELS_BEST, tuner, &spec, &kernel, &seconds));
    int measured = h.times;
    assert_true(measured >= 1);
    make_spec(&spec, "aBcd16b");
    ASSERT_OK(kolo_kernel_select_tuned(KOLO_KERNELS_BEST, tuner, &spec, &again, &known));
    assert_int_equal(h.times, measured);
    assert_ptr_equal(kernel, again);
    assert_true(known == seconds);

    kolo_text text = {0}, copy = {0};
    kolo_tuner_write(tuner, false, &text);
    ASSERT_OK(kolo_tuner_create("machine", &other));
    ASSERT_OK(kolo_tuner_read(other, "text", text.text));
    kolo_tuner_write(other, true, &copy);
    assert_string_equal(copy.text, "kolo tuning 1\n"); /* nothing was asked for */
    make_spec(&spec, "aBcd16b");
    ASSERT_OK(kolo_kernel_select_tuned(KOLO_KERNELS_BEST, other, &spec, &again, &known));
    assert_ptr_equal(kernel, again);
    kolo_text_fini(&copy);
    copy = (kolo_text){0};
    kolo_tuner_write(other, true, &copy);
    assert_true(strlen(copy.text) > strlen("kolo tuning 1\n"));
    kolo_text_fini(&text);
    kolo_text_fini(&copy);
    kolo_tuner_destroy(tuner);
    kolo_tuner_destroy(other);
}

/* The line of a kernel on a spec, with another time. */
static void add_line(kolo_text *to, const kolo_text *from, const char *kernel, double seconds) {
    char name[64];
    snprintf(name, sizeof name, ": %s ", kernel);
    const char *at = strstr(from->text, name);
    assert_non_null(at);
    while (at[-1] != '\n') at--;
    at = strchr(at, ' ');
    kolo_text_add(to, "%g%.*s\n", seconds, (int)strcspn(at, "\n"), at);
}

/* A known time wins over an estimate, whatever it is; the least known time wins. */
static void known_times_choose(void **state) {
    kolo_tuner *tuner;
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    double seconds;
    kolo_text all = {0}, text = {0};
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    kolo_tuner_measure(tuner, true, NULL, NULL);
    make_spec(&spec, "aBcd16b");
    const kolo_kernel *const both[] = {&kolo_simd_wino, &kolo_simd_conv2d};
    for (int i = 0; i < 2; i++) {
        kolo_kernel_spec trial = spec;
        assert_true(both[i]->fit(&trial) >= 0);
        assert_true(kolo_tuner_seconds(tuner, both[i], &trial, 0) > 0);
    }
    kolo_tuner_write(tuner, false, &all);
    kolo_tuner_destroy(tuner);
    for (int slow = 0; slow < 3; slow++) {
        ASSERT_OK(kolo_tuner_create("machine", &tuner));
        text = (kolo_text){0};
        kolo_text_add(&text, "kolo tuning 1\n");
        if (slow != 0) add_line(&text, &all, "simd_conv2d", slow == 1 ? 500 : 1);
        if (slow != 1) add_line(&text, &all, "simd_wino", slow == 0 ? 500 : 2);
        ASSERT_OK(kolo_tuner_read(tuner, "text", text.text));
        make_spec(&spec, "aBcd16b");
        ASSERT_OK(kolo_kernel_select_tuned(KOLO_KERNELS_BEST, tuner, &spec, &kernel, &seconds));
        assert_ptr_equal(kernel, slow == 0 ? &kolo_simd_wino : &kolo_simd_conv2d);
        assert_true(seconds == (slow == 2 ? 1 : 500));
        kolo_tuner_destroy(tuner);
        kolo_text_fini(&text);
    }
    kolo_text_fini(&all);
}

/* What is estimated far above the best of the same work is not measured. */
static void hopeless_kernels_are_not_measured(void **state) {
    kolo_tuner *tuner;
    kolo_kernel_spec spec;
    observed h = {0};
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    kolo_tuner_measure(tuner, true, observe, &h);
    make_spec(&spec, "aBcd16b");
    assert_true(kolo_simd_wino.fit(&spec) >= 0);
    double best = kolo_tuner_seconds(tuner, &kolo_simd_wino, &spec, 1);
    make_spec(&spec, "acdb");
    assert_true(kolo_simd_wino.fit(&spec) >= 0);
    assert_true(kolo_tuner_seconds(tuner, &kolo_simd_wino, &spec, 10 * best) < 0);
    assert_int_equal(h.times, 1);
    assert_true(kolo_tuner_seconds(tuner, &kolo_simd_wino, &spec, best) > 0);
    assert_int_equal(h.times, 2);
    kolo_tuner_destroy(tuner);
}

/* The linear layer inside linear_gelu is one that the tuner measures. */
static void known_times_choose_inside_a_kernel(void **state) {
    static const char *const linear[] = {"dnn_linear", "simd_linear"};
    const kolo_kernel *const outer = &kolo_simd_linear_gelu;
    const kolo_shape in[] = {kolo_shape_2(16, 64), kolo_shape_2(32, 64), kolo_shape_1(32)};
    if (!test_kernel(linear[0])) skip();
    kolo_text all = {0};
    for (int fast = -1; fast < 2; fast++) {
        kolo_tuner *tuner;
        kolo_kernel_spec spec;
        const kolo_kernel *kernel;
        ASSERT_OK(kolo_tuner_create("machine", &tuner));
        test_kernel_spec(&spec, &kolo_op_linear_gelu, NULL, 3, in, NULL, 1, NULL, 1);
        if (fast < 0) { /* all kernels of the layer inside are measured */
            kolo_tuner_measure(tuner, true, NULL, NULL);
        } else {
            kolo_text text = {0};
            kolo_text_add(&text, "kolo tuning 1\n");
            add_line(&text, &all, linear[fast], 1e-6);
            add_line(&text, &all, linear[!fast], 2e-6);
            ASSERT_OK(kolo_tuner_read(tuner, "text", text.text));
            kolo_text_fini(&text);
        }
        ASSERT_OK(kolo_kernel_select_tuned(KOLO_KERNELS_BEST, tuner, &spec, &kernel, NULL));
        assert_ptr_equal(kernel, outer);
        void *made = NULL;
        size_t scratch;
        ASSERT_OK(outer->prepare(&spec, &made, &scratch));
        bool ours = strcmp(outer->implementation(made), "simd_linear") == 0;
        if (fast < 0) {
            kolo_tuner_write(tuner, false, &all);
        } else {
            assert_int_equal(ours, fast == 1);
        }
        outer->release(made);
        kolo_tuner_destroy(tuner);
    }
    kolo_text_fini(&all);
}

/* Both times are measured once, and found again in the text; a kernel without a way to run on one
 * thread has none, and is not measured again. */
static void lanes_are_measured_once_and_kept(void **state) {
    const kolo_shape in[] = {kolo_shape_2(64, 48), kolo_shape_2(32, 48)};
    double together, apart, again[2];
    kolo_tuner *tuner, *other;
    kolo_kernel_spec spec;
    observed h = {0};
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    test_kernel_spec(&spec, &kolo_op_linear, NULL, 2, in, NULL, 1, NULL, 1);
    spec.threads = 2;
    const kolo_kernel *kernel = &kolo_simd_linear;
    assert_false(kolo_tuner_lanes(tuner, kernel, &spec, 2, &together, &apart)); /* not measured */
    kolo_tuner_measure(tuner, true, observe, &h);
    assert_true(kolo_tuner_lanes(tuner, kernel, &spec, 2, &together, &apart));
    assert_true(together > 0 && apart > 0 && h.times == 1);
    kolo_text text = {0};
    kolo_tuner_write(tuner, true, &text);
    ASSERT_OK(kolo_tuner_create("machine", &other));
    ASSERT_OK(kolo_tuner_read(other, "text", text.text));
    assert_true(kolo_tuner_lanes(other, kernel, &spec, 2, &again[0], &again[1]));
    assert_true(again[0] < 1.001 * together && together < 1.001 * again[0]);
    assert_true(again[1] < 1.001 * apart && apart < 1.001 * again[1]);
    assert_false(kolo_tuner_lanes(other, kernel, &spec, 3, &again[0], &again[1]));
    kolo_text_fini(&text);
    kolo_tuner_destroy(tuner);
    kolo_tuner_destroy(other);
}

static double unsteady_fit(kolo_kernel_spec *spec) { return 1; }
static void unsteady_run(const kolo_call *call) {
    ((float *)call->out[0])[0] = (float)call->spec->threads;
}

/* Of one in eight inputs. */
static void rarely_unsteady_run(const kolo_call *call) {
    const bool other = *(const float *)call->in[0] < -0.75F && call->spec->threads == 1;
    ((float *)call->out[0])[0] = other ? 2 : 1;
}

/* What gives other bits on one thread than on all is in no lane, and is not measured again. */
static void expect_no_lane(void (*run)(const kolo_call *call)) {
    const kolo_kernel unsteady = {
        .name = "unsteady", .op = &kolo_op_linear, .fit = unsteady_fit, .run = run};
    const kolo_shape in[] = {kolo_shape_2(4, 4), kolo_shape_2(4, 4)};
    double together, apart;
    kolo_tuner *tuner;
    kolo_kernel_spec spec;
    observed h = {0};
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    test_kernel_spec(&spec, &kolo_op_linear, NULL, 2, in, NULL, 1, NULL, 1);
    spec.threads = 2;
    kolo_tuner_measure(tuner, true, observe, &h);
    for (int i = 0; i < 2; i++) {
        assert_false(kolo_tuner_lanes(tuner, &unsteady, &spec, 2, &together, &apart));
        assert_int_equal(h.times, 1);
    }
    kolo_tuner_destroy(tuner);
}

static void other_bits_have_no_lane(void **state) {
    expect_no_lane(unsteady_run);
    expect_no_lane(rarely_unsteady_run);
}

/* Of what computes in bf16 and f32 between copies the one that was measured as faster is taken. */
static void f32_between_copies_is_a_candidate(void **state) {
    const kolo_kernel *const kernels[] = {&kolo_via_f32_kernel, test_kernel("dnn_linear")};
    const kolo_shape in[] = {kolo_shape_2(16, 64), kolo_shape_2(32, 64)};
    const int n = kernels[1] && kolo_isa_best() >= KOLO_ISA_AVX512 ? 2 : 1;
    kolo_text all = {0};
    kolo_kernel_pin_bf16(true);
    for (int fast = -1; fast < n; fast++) {
        kolo_text text = {0};
        kolo_tuner *tuner;
        kolo_kernel_spec spec;
        const kolo_kernel *kernel;
        ASSERT_OK(kolo_tuner_create("machine", &tuner));
        test_kernel_spec(&spec, &kolo_op_linear, NULL, 2, in, NULL, 1, NULL, 1);
        test_kernel_in_bf16(&spec, -1);
        kolo_tuner_measure(tuner, fast < 0, NULL, NULL);
        kolo_text_add(&text, "kolo tuning 1\n");
        for (int i = 0; i < n && fast >= 0; i++) {
            add_line(&text, &all, kernels[i]->name, i == fast ? 1e-6 : 2e-6);
        }
        ASSERT_OK(kolo_tuner_read(tuner, "text", text.text));
        for (int i = 0; i < n && fast < 0; i++) {
            assert_true(kernels[i]->fit(&spec) >= 0);
            assert_true(kolo_tuner_seconds(tuner, kernels[i], &spec, 0) > 0);
        }
        ASSERT_OK(kolo_kernel_select_tuned(KOLO_KERNELS_BEST, tuner, &spec, &kernel, NULL));
        if (fast < 0) kolo_tuner_write(tuner, false, &all);
        if (fast >= 0) assert_ptr_equal(kernel, kernels[fast]);
        kolo_text_fini(&text);
        kolo_tuner_destroy(tuner);
    }
    kolo_kernel_pin_bf16(false);
    kolo_text_fini(&all);
}

static void broken_texts_are_refused_whole(void **state) {
    static const char *const texts[][2] = {
        {"", "text does not begin with \"kolo tuning 1\""},
        {"kolo tuning 2\n", "text does not begin with \"kolo tuning 1\""},
        {"kolo tuning 1\n0.5 a\nx b\n", "text, line 3: expected \"seconds key\""},
        {"kolo tuning 1\n0.5 a\n-1 b\n", "text, line 3: expected \"seconds key\""},
        {"kolo tuning 1\n0.5 a\nnan b\n", "text, line 3: expected \"seconds key\""},
        {"kolo tuning 1\n0.5 a\n1\n", "text, line 3: expected \"seconds key\""},
        {"kolo tuning 1\n0.5 a\n1 b", "text, line 3: expected \"seconds key\""},
    };
    kolo_tuner *tuner;
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    for (size_t i = 0; i < KOLO_COUNT(texts); i++) {
        assert_int_equal(kolo_tuner_read(tuner, "text", texts[i][0]), KOLO_ERR_FORMAT);
        assert_string_equal(kolo_last_error(), texts[i][1]);
    }
    kolo_text text = {0};
    kolo_tuner_write(tuner, false, &text);
    assert_string_equal(text.text, "kolo tuning 1\n");
    kolo_text_fini(&text);
    ASSERT_OK(kolo_tuner_read(tuner, "text", "kolo tuning 1\n2 b\n0.5 a c\n"));
    text = (kolo_text){0};
    kolo_tuner_write(tuner, false, &text);
    assert_string_equal(text.text, "kolo tuning 1\n0.5 a c\n2 b\n");
    kolo_text_fini(&text);
    kolo_tuner_destroy(tuner);
}

TEST_MAIN(test_tune) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_measured_once_and_kept),
        cmocka_unit_test(known_times_choose),
        cmocka_unit_test(hopeless_kernels_are_not_measured),
        cmocka_unit_test(known_times_choose_inside_a_kernel),
        cmocka_unit_test(lanes_are_measured_once_and_kept),
        cmocka_unit_test(other_bits_have_no_lane),
        cmocka_unit_test(f32_between_copies_is_a_candidate),
        cmocka_unit_test(broken_texts_are_refused_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
