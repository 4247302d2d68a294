/* oneDNN convolutions against the reference, over sizes, layouts, weights' layouts and threads. */
#include "graph/ops/ops.h"
#include "kernel/select/select.h"
#include "support/dnn_check.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct conv_case {
    const char *name;
    int64_t n, c, h, w, o, kh, kw;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, more_h;
} conv_case;

static const conv_case cases[] = {
    {"lenet 1", 3, 1, 28, 28, 6, 5, 5, 1, 1, 2, 2, 1, 1, 1, 0},
    {"lenet 2", 3, 6, 14, 14, 16, 5, 5, 1, 1, 0, 0, 1, 1, 1, 0},
    {"whole blocks", 2, 16, 9, 9, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0},
    {"odd all over", 1, 5, 7, 11, 3, 3, 2, 2, 1, 0, 1, 1, 1, 1, 0},
    {"odd, wide", 2, 19, 6, 5, 21, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0},
    {"first layer", 2, 3, 23, 23, 16, 7, 7, 2, 2, 3, 3, 1, 1, 1, 0},
    {"1x1", 3, 24, 5, 7, 8, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0},
    {"1x1, stride", 2, 16, 9, 9, 24, 1, 1, 2, 2, 0, 0, 1, 1, 1, 0},
    {"stride leaves a rest", 2, 8, 10, 12, 8, 3, 3, 3, 2, 1, 0, 1, 1, 1, 0},
    {"rows, none below", 2, 16, 9, 9, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, -1},
    {"rows, none above", 2, 16, 17, 8, 16, 3, 3, 1, 1, 0, 1, 1, 1, 1, 1},
    {"rows, less below", 2, 3, 18, 15, 16, 7, 7, 2, 2, 3, 3, 1, 1, 1, -2},
    {"dilated", 2, 8, 15, 15, 16, 3, 3, 1, 1, 4, 2, 4, 2, 1, 0},
    {"grouped", 2, 32, 8, 8, 16, 3, 3, 1, 1, 1, 1, 1, 1, 2, 0},
    {"grouped, odd", 2, 9, 8, 8, 6, 3, 3, 1, 1, 1, 1, 1, 1, 3, 0},
    {"depthwise", 2, 16, 10, 10, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16, 0},
    {"depthwise, odd", 2, 11, 10, 10, 11, 3, 3, 2, 2, 1, 1, 1, 1, 11, 0},
    {"kernel covers all", 2, 16, 5, 5, 10, 5, 5, 1, 1, 0, 0, 1, 1, 1, 0},
    {"one sample, one pixel", 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0},
};

/* Layouts of x and y. */
static const char *const layouts[][2] = {
    {"abcd", "abcd"},   {"acdb", "acdb"},   {"aBcd8b", "aBcd8b"}, {"aBcd16b", "aBcd16b"},
    {"abcd", "aBcd8b"}, {"acdb", "aBcd8b"}, {"acdb", "aBcd16b"},  {"aBcd8b", "acdb"},
};

/* Layouts of the weights. */
static const char *const weights[] = {"abcd", "acdb", "cdba", "ABcd8b8a", "Acdb8a", "ABcd8a8b"};

/* What is computed in bf16: nothing; all; all but the x that a model reads. */
typedef enum half { HALF_NONE, HALF_ALL, HALF_BUT_X } half;

typedef struct conv_run {
    const conv_case *conv;
    half half;
    kolo_attr attr[KOLO_MAX_ATTRS];
    kolo_shape x, w, y, b;
    const char *x_layout, *y_layout, *kernel;
    int threads;
} conv_run;

static int64_t places(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    return (size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
}

static conv_run run_of(const conv_case *c, const char *const pair[2], int threads) {
    conv_run r = {.conv = c,
                  .x_layout = pair[0],
                  .y_layout = pair[1],
                  .kernel = "dnn_conv2d",
                  .threads = threads};
    const int64_t attr[] = {c->stride_h,   c->stride_w,   c->pad_h, c->pad_w,
                            c->dilation_h, c->dilation_w, c->groups};
    for (size_t i = 0; i < KOLO_COUNT(attr); i++) r.attr[i].i = attr[i];
    r.attr[KOLO_CONV_MORE_H].i = c->more_h;
    r.x = kolo_shape_4(c->n, c->c, c->h, c->w);
    r.w = kolo_shape_4(c->o, c->c / c->groups, c->kh, c->kw);
    r.y = kolo_shape_4(c->n, c->o,
                       places(c->h + c->more_h, c->kh, c->stride_h, c->pad_h, c->dilation_h),
                       places(c->w, c->kw, c->stride_w, c->pad_w, c->dilation_w));
    r.b = kolo_shape_1(c->o);
    return r;
}

/* The kernel of the run's family for a pass, where it fits, against the reference. */
static bool check(const conv_run *r, const char *pass, kolo_kernel_spec *spec) {
    char name[64];
    int x = spec->op == &kolo_op_conv2d_bwd_weights;
    if (r->half) test_kernel_in_bf16(spec, r->half == HALF_BUT_X ? x : -1);
    snprintf(name, sizeof name, "%s%s", r->kernel, pass);
    return test_dnn_kernel(name, spec);
}

static bool check_forward(conv_run *r, const char *w_layout, bool bias, bool relu) {
    kolo_kernel_spec spec;
    r->attr[KOLO_CONV_RELU].i = relu;
    test_kernel_spec(&spec, &kolo_op_conv2d, r->attr, 2 + bias, (kolo_shape[]){r->x, r->w, r->b},
                     (const char *[]){r->x_layout, w_layout, "a"}, 1, &r->y_layout, r->threads);
    bool fits = check(r, "", &spec);
    r->attr[KOLO_CONV_RELU].i = 0;
    return fits;
}

static bool check_bwd_data(conv_run *r, const char *w_layout) {
    kolo_kernel_spec spec;
    r->attr[KOLO_CONV_SIZE_H].i = r->conv->h;
    r->attr[KOLO_CONV_SIZE_W].i = r->conv->w;
    test_kernel_spec(&spec, &kolo_op_conv2d_bwd_data, r->attr, 2, (kolo_shape[]){r->y, r->w},
                     (const char *[]){r->y_layout, w_layout}, 1, &r->x_layout, r->threads);
    return check(r, "_bwd_data", &spec);
}

static bool check_bwd_weights(conv_run *r, const char *w_layout, bool bias) {
    kolo_kernel_spec spec;
    r->attr[KOLO_CONV_SIZE_H].i = r->conv->kh;
    r->attr[KOLO_CONV_SIZE_W].i = r->conv->kw;
    r->attr[KOLO_CONV_BIAS].i = bias;
    test_kernel_spec(&spec, &kolo_op_conv2d_bwd_weights, r->attr, 2, (kolo_shape[]){r->y, r->x},
                     (const char *[]){r->y_layout, r->x_layout}, 1 + bias,
                     (const char *[]){w_layout, "a"}, r->threads);
    return check(r, "_bwd_weights", &spec);
}

/* Whether all layouts of weights have all cases: in the soak. Else they take turns, as oneDNN
 * compiles code for each. */
static bool has_all(void) { return getenv("KOLO_SOAK") != NULL; }

/* Each case in each pair of layouts, its weights open (forward) and in layouts of the list, a third
 * of them a pass. Plain and NHWC activations fit always, but for the data gradient of odd groups
 * and, on AVX-512, groups in NHWC; weights without blocks make no difference to whether a kernel
 * fits. */
static void conv_is_the_reference(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (size_t j = 0; j < KOLO_COUNT(layouts); j++) {
            conv_run r = run_of(&cases[i], layouts[j], 1 + (i + j) % 2);
            bool groups_fit = j == 0 || r.conv->groups == 1 || kolo_isa_best() < KOLO_ISA_AVX512;
            bool simple = j < 2 && groups_fit, fits = check_forward(&r, "any", true, j % 2);
            if (!fits && simple) fail_msg("%s: nothing for %s", cases[i].name, layouts[j][0]);
            check_forward(&r, "any", false, !(j % 2));
            for (size_t k = 0; k < KOLO_COUNT(weights); k++) {
                bool blocked = k >= 3; /* blocks may cross groups */
                if (!has_all() && (i + j + k) % 2) continue;
                switch ((i + j + k) % 3) {
                case 0:
                    if (check_forward(&r, weights[k], true, j % 2) == fits) break;
                    assert_true(blocked);
                    break;
                case 1:
                    if (check_bwd_data(&r, weights[k])) break;
                    assert_true(blocked || !simple || r.conv->groups > 1);
                    break;
                default:
                    if (check_bwd_weights(&r, weights[k], i % 2)) break;
                    assert_true(blocked || !simple);
                }
            }
        }
    }
}

/* The two convolutions of LeNet fit in blocks of eight too, where their channels leave padding and
 * oneDNN alone would run a reference implementation. Before avx2 it has none for the gradients. */
static void padded_channels_count_as_channels(void **state) {
    const char *const blocks[] = {"aBcd8b", "aBcd8b"};
    for (size_t i = 0; i < 2; i++) {
        conv_run r = run_of(&cases[i], blocks, 1);
        assert_true(check_forward(&r, "any", true, true));
        if (kolo_isa_best() == KOLO_ISA_BASELINE) continue;
        assert_true(check_bwd_data(&r, "ABcd8b8a"));
        assert_true(check_bwd_weights(&r, "ABcd8b8a", true));
    }
}

/* oneDNN has Winograd for AVX-512 and blocks of 16 channels; before, it never fits. */
static void winograd_is_the_reference(void **state) {
    static const conv_case wino[] = {
        {"whole tiles", 2, 32, 16, 16, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0},
        {"tiles over the edge", 3, 16, 13, 14, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0},
        {"stride", 2, 16, 16, 16, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1, 0},
        {"1x1", 2, 16, 16, 16, 16, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0},
    };
    const char *const blocks[] = {"aBcd16b", "aBcd16b"};
    for (size_t i = 0; i < KOLO_COUNT(wino); i++) {
        bool may = i < 2 && kolo_isa_best() >= KOLO_ISA_AVX512;
        for (int threads = 1; threads <= 2; threads++) {
            conv_run r = run_of(&wino[i], blocks, threads);
            r.kernel = "dnn_wino";
            assert_int_equal(check_forward(&r, "any", true, true), may);
            assert_int_equal(check_forward(&r, "ABcd16b16a", false, false), may);
            assert_int_equal(check_bwd_data(&r, "ABcd16b16a"), may);
            assert_int_equal(check_bwd_weights(&r, "ABcd16b16a", true), may);
        }
    }
}

/* In bf16 oneDNN has its gemm for plain images and its own loops for NHWC and blocks of 16, all for
 * AVX-512 alone; without its instructions for bf16 it emulates them. */
static void conv_in_bf16_is_the_reference(void **state) {
    static const char *const pairs[][2] = {
        {"abcd", "abcd"}, {"acdb", "acdb"}, {"aBcd16b", "aBcd16b"}, {"aBcd8b", "aBcd8b"}};
    static const char *const filters[] = {"abcd", "ABcd8b16a2b", "ABcd16b16a"};
    if (kolo_isa_best() < KOLO_ISA_AVX512) {
        puts("skip: no AVX-512");
        skip();
    }
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (size_t j = 0; j < KOLO_COUNT(pairs); j++) {
            conv_run r = run_of(&cases[i], pairs[j], 1 + (i + j) % 2);
            bool simple = j < 2 && r.conv->groups == 1;
            for (size_t k = 0; k < KOLO_COUNT(filters); k++) {
                const bool must = simple && k == 0, all = has_all();
                const size_t turn = (i + j + k) % 3;
                bool fits = true;
                r.half = (i + j + k) % 2 ? HALF_ALL : HALF_BUT_X;
                if (all || turn == 0)
                    fits &= check_forward(&r, k ? filters[k] : "any", k % 2, j % 2);
                if (all || turn == 1) fits &= check_bwd_weights(&r, filters[k], i % 2);
                r.half = HALF_ALL;
                if (all || turn == 2) fits &= check_bwd_data(&r, filters[k]);
                assert_true(fits || !must);
            }
        }
    }
}

/* What only emulates bf16 is not chosen for it, and nothing but f32 between copies is left. */
static void emulated_bf16_is_not_chosen(void **state) {
    conv_run r = run_of(&cases[2], layouts[1], 1);
    kolo_kernel_spec spec;
    const kolo_kernel *kernel;
    for (int pinned = 0; pinned < 2; pinned++) {
        bool native = (pinned && kolo_isa_best() >= KOLO_ISA_AVX512) || kolo_kernel_has_bf16();
        kolo_kernel_pin_bf16(pinned);
        test_kernel_spec(&spec, &kolo_op_conv2d, r.attr, 2, (kolo_shape[]){r.x, r.w},
                         (const char *[]){"acdb", "any"}, 1, (const char *[]){"acdb"}, 1);
        test_kernel_in_bf16(&spec, -1);
        ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_BEST, &spec, &kernel, NULL));
        assert_string_equal(kernel->name, native ? "dnn_conv2d" : "bf16_by_f32");
    }
    kolo_kernel_pin_bf16(false);
}

static void winograd_can_be_forbidden(void **state) {
    static const char *const names[] = {"dnn_wino", "dnn_wino_bwd_data", "dnn_wino_bwd_weights"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        const kolo_kernel *kernel = test_kernel(names[i]);
        assert_true(kernel && kernel->winograd);
    }
}

static void wrong_types_do_not_fit(void **state) {
    conv_run r = run_of(&cases[0], layouts[0], 1);
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_conv2d, r.attr, 2, (kolo_shape[]){r.x, r.w}, NULL, 1, NULL, 1);
    for (int i = 0; i < 2; i++) spec.in[i].dtype = KOLO_DTYPE_F64;
    spec.out[0].dtype = KOLO_DTYPE_F64;
    assert_true(test_kernel("dnn_conv2d")->fit(&spec) < 0);
}

/* The estimate of a depthwise convolution of mobilenet_v2, with its weights open. */
static double depthwise_seconds(const char *layout) {
    static const conv_case mobile = {"mobile", 16, 192, 28, 28, 192, 3,   3,
                                     1,        1,  1,   1,  1,  1,   192, 0};
    conv_run r = run_of(&mobile, (const char *const[]){layout, layout}, 1);
    kolo_kernel_spec spec;
    const kolo_kernel *kernel;
    double seconds = 0;
    test_kernel_spec(&spec, &kolo_op_conv2d, r.attr, 2, (kolo_shape[]){r.x, r.w},
                     (const char *[]){layout, "any"}, 1, &layout, 1);
    assert_int_equal(kolo_kernel_select(KOLO_KERNELS_BEST, &spec, &kernel, &seconds), KOLO_OK);
    return seconds;
}

/* Estimates select layouts and which candidates are measured: oneDNN has loops for NHWC and blocked
 * images, of about the same speed, and for plain ones its gemm, which takes ten times as long. */
static void depthwise_estimates_rank_layouts(void **state) {
    const double nhwc = depthwise_seconds("acdb"), plain = depthwise_seconds("abcd");
    const double blocks = depthwise_seconds("aBcd8b");
    assert_true(nhwc < 2 * blocks && blocks < 2 * nhwc);
    assert_true(plain > 4 * nhwc);
}

/* Each allocation of ours in turn fails: an error, no leak, nothing made. */
static void failed_allocations_are_reported(void **state) {
    conv_run r = run_of(&cases[1], layouts[1], 1);
    kolo_kernel_spec spec;
    const kolo_kernel *kernel = test_kernel("dnn_conv2d");
    test_kernel_spec(&spec, &kolo_op_conv2d, r.attr, 2, (kolo_shape[]){r.x, r.w}, NULL, 1, NULL, 1);
    kolo_call call = {.spec = &spec};
    size_t scratch = 0;
    kolo_alloc_fail_nth(1);
    assert_int_equal(kernel->prepare(&spec, &call.state, &scratch), KOLO_ERR_NOMEM);
    assert_null(call.state);
    ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch));
    kolo_alloc_fail_nth(1);
    assert_int_equal(kernel->bind(&call), KOLO_ERR_NOMEM);
    assert_null(call.bound);
    kolo_alloc_fail_nth(0);
    kernel->release(call.state);
}

TEST_MAIN(test_dnn_conv) {
    if (!test_kernel("dnn_conv2d")) {
        puts("skip: built without oneDNN");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_is_the_reference),
        cmocka_unit_test(padded_channels_count_as_channels),
        cmocka_unit_test(conv_in_bf16_is_the_reference),
        cmocka_unit_test(emulated_bf16_is_not_chosen),
        cmocka_unit_test(winograd_is_the_reference),
        cmocka_unit_test(winograd_can_be_forbidden),
        cmocka_unit_test(wrong_types_do_not_fit),
        cmocka_unit_test(depthwise_estimates_rank_layouts),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
