/* Our convolutions of every instruction set that this machine has, against the reference, over
 * sizes, layouts of images and of weights, and threads. */
#include "base/isa.h"
#include "kernel/simd/kernels.h"
#include "support/fewer.h"
#include "support/kernel_check.h"

#include <string.h>

typedef struct conv_case {
    int64_t n, c, h, w, o, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, more_h;
} conv_case;

static const conv_case cases[] = {
    {3, 1, 28, 28, 6, 5, 5, 1, 1, 2, 2, 0},   /* lenet's first */
    {3, 6, 14, 14, 16, 5, 5, 1, 1, 0, 0, 0},  /* and second */
    {2, 3, 9, 23, 24, 7, 7, 2, 2, 3, 3, 0},   /* three vectors of outputs, a kernel of two pieces */
    {1, 5, 7, 11, 3, 3, 2, 2, 1, 0, 1, 0},    /* odd all over */
    {2, 16, 6, 5, 40, 3, 3, 1, 1, 1, 1, 0},   /* whole blocks, more than two vectors */
    {3, 2, 5, 7, 8, 1, 1, 1, 1, 0, 0, 0},     /* 1 x 1 */
    {2, 4, 9, 9, 64, 1, 1, 2, 2, 0, 0, 0},    /* with a stride that leaves a rest */
    {1, 8, 10, 12, 17, 3, 3, 3, 2, 1, 0, 0},  /* strides larger than what is left */
    {2, 9, 5, 5, 10, 5, 5, 1, 1, 0, 0, 0},    /* the kernel covers all */
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0},     /* one of each */
    {2, 3, 9, 8, 16, 3, 3, 1, 1, 1, 1, -1},   /* rows of an image: no margin below, */
    {2, 3, 9, 8, 16, 3, 3, 1, 1, 0, 0, 1},    /* above, */
    {1, 3, 12, 7, 8, 7, 7, 2, 2, 3, 3, -1},   /* and a narrow one */
    {2, 1, 12, 40, 7, 11, 11, 1, 1, 5, 5, 0}, /* the largest kernel, rows of several tiles */
    {4, 1, 9, 10, 8, 3, 3, 1, 1, 1, 1, 0},    /* pairs of images, */
    {3, 16, 23, 23, 8, 3, 3, 1, 1, 1, 1, 0},  /* and images too large for them */
    {5, 3, 6, 31, 8, 2, 3, 1, 3, 1, 2, 0},    /* margins that stick out, uneven parts of threads */
};

static const char *const layouts[] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};
static const char *const weights[] = {"abcd", "cdba", "ABcd8b8a", "Acdb16a"};

typedef struct conv_run {
    kolo_attr attr[KOLO_MAX_ATTRS];
    kolo_shape x, w, y;
    const char *x_layout, *y_layout, *w_layout;
    int threads;
} conv_run;

static conv_run run_of(const conv_case *c) {
    conv_run r = {.attr = {{c->stride_h}, {c->stride_w}, {c->pad_h}, {c->pad_w}, {1}, {1}, {1}}};
    r.attr[KOLO_CONV_MORE_H].i = c->more_h;
    r.x = kolo_shape_4(c->n, c->c, c->h, c->w);
    r.w = kolo_shape_4(c->o, c->c, c->kernel_h, c->kernel_w);
    r.y =
        kolo_shape_4(c->n, c->o, (c->h + 2 * c->pad_h + c->more_h - c->kernel_h) / c->stride_h + 1,
                     (c->w + 2 * c->pad_w - c->kernel_w) / c->stride_w + 1);
    return r;
}

/* 1 when the kernel fits. */
static int check(const kolo_kernel *kernel, kolo_kernel_spec *spec) {
    if (kernel->fit(spec) < 0) return 0;
    test_kernel_against_reference(kernel, spec, 1e-5);
    return 1;
}

static int check_forward(conv_run r, bool bias, bool relu) {
    kolo_kernel_spec spec;
    r.attr[KOLO_CONV_RELU].i = relu;
    test_kernel_spec(&spec, &kolo_op_conv2d, r.attr, 2 + bias,
                     (kolo_shape[]){r.x, r.w, kolo_shape_1(r.w.dim[0])},
                     (const char *[]){r.x_layout, r.w_layout, "a"}, 1, &r.y_layout, r.threads);
    return check(&kolo_simd_conv2d, &spec);
}

static int check_bwd_data(conv_run r) {
    kolo_kernel_spec spec;
    r.attr[KOLO_CONV_SIZE_H].i = r.x.dim[2];
    r.attr[KOLO_CONV_SIZE_W].i = r.x.dim[3];
    test_kernel_spec(&spec, &kolo_op_conv2d_bwd_data, r.attr, 2, (kolo_shape[]){r.y, r.w},
                     (const char *[]){r.y_layout, r.w_layout}, 1, &r.x_layout, r.threads);
    return check(&kolo_simd_conv2d_bwd_data, &spec);
}

static int check_bwd_weights(conv_run r, bool bias) {
    kolo_kernel_spec spec;
    r.attr[KOLO_CONV_SIZE_H].i = r.w.dim[2];
    r.attr[KOLO_CONV_SIZE_W].i = r.w.dim[3];
    r.attr[KOLO_CONV_BIAS].i = bias;
    test_kernel_spec(&spec, &kolo_op_conv2d_bwd_weights, r.attr, 2, (kolo_shape[]){r.y, r.x},
                     (const char *[]){r.y_layout, r.x_layout}, 1 + bias,
                     (const char *[]){r.w_layout, "a"}, r.threads);
    return check(&kolo_simd_conv2d_bwd_weights, &spec);
}

/* How many kernels fit one case in all layouts; threads, biases and layouts of weights take turns.
 */
static int check_layouts(const conv_case *c, size_t turn) {
    int fits = 0;
    for (size_t i = 0; i < KOLO_COUNT(layouts); i++) {
        for (size_t j = 0; j < KOLO_COUNT(layouts); j++, turn++) {
            conv_run r = run_of(c);
            r.x_layout = layouts[i];
            r.y_layout = layouts[j];
            r.w_layout = turn % 3 ? weights[turn % KOLO_COUNT(weights)] : "any";
            r.threads = 1 + (int)(turn % 3);
            fits += check_forward(r, turn % 2, turn % 4 / 2);
            r.w_layout = weights[turn % KOLO_COUNT(weights)];
            fits += check_bwd_data(r);
            fits += check_bwd_weights(r, turn % 2);
        }
    }
    return fits;
}

static void conv_is_the_reference(void **state) {
    const int images = KOLO_COUNT(layouts);
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
            if (test_takes_turns(i, isa, (int)kolo_isa_best())) continue;
            int fits = check_layouts(&cases[i], i);
            /* bwd_data always; the others for dy and y in blocks of 8 or 16, or NHWC with such C.
             */
            int outputs = cases[i].o % 8 == 0 ? 3 : 2;
            assert_int_equal(fits, images * images + 2 * images * outputs);
        }
    }
    kolo_isa_pin(-1);
}

static void others_are_refused(void **state) {
    static const struct {
        kolo_attr attr[KOLO_MAX_ATTRS];
        kolo_shape x, w;
    } refused[] = {
        {{{1}, {1}, {0}, {0}, {1}, {1}, {2}}, {4, {1, 8, 9, 9}}, {4, {8, 4, 3, 3}}},
        {{{1}, {1}, {0}, {0}, {2}, {1}, {1}}, {4, {1, 8, 9, 9}}, {4, {8, 8, 3, 3}}},
        {{{1}, {1}, {0}, {0}, {1}, {1}, {1}}, {4, {1, 17, 9, 9}}, {4, {8, 17, 3, 3}}},
        {{{1}, {1}, {0}, {0}, {1}, {1}, {1}}, {4, {1, 8, 9, 9}}, {4, {72, 8, 3, 3}}},
        {{{1}, {1}, {0}, {0}, {1}, {1}, {1}}, {4, {1, 8, 19, 19}}, {4, {8, 8, 13, 3}}},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_conv2d, refused[i].attr, 2,
                         (kolo_shape[]){refused[i].x, refused[i].w},
                         (const char *[]){"aBcd8b", "any"}, 1, (const char *[]){"aBcd8b"}, 1);
        assert_true(kolo_simd_conv2d.fit(&spec) < 0);
    }
}

TEST_MAIN(test_simd_conv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_is_the_reference),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
