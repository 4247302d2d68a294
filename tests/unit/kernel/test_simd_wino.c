/* Winograd convolutions of every instruction set that this machine has, against the reference, over
 * sizes, layouts of images and of weights, and threads; the same bits for any number of threads. */
#include "base/isa.h"
#include "kernel/select/select.h"
#include "kernel/simd/kernels.h"
#include "support/fewer.h"
#include "support/kernel_check.h"

#include <math.h>

typedef struct wino_case {
    int64_t n, c, h, w, o, pad_h, pad_w, taps, more_h;
} wino_case;

static const wino_case cases[] = {
    {1, 16, 8, 8, 16, 1, 1, 3, 0},   /* whole tiles */
    {2, 16, 7, 13, 24, 1, 1, 3, 0},  /* ragged edges */
    {1, 32, 10, 9, 16, 0, 0, 3, 0},  /* no margins */
    {2, 16, 5, 4, 32, 2, 2, 3, 0},   /* the widest margins */
    {1, 48, 3, 6, 16, 0, 2, 3, 0},   /* one row of results */
    {1, 20, 6, 6, 24, 1, 1, 3, 0},   /* channels that end within a block */
    {1, 272, 4, 3, 16, 1, 1, 3, 0},  /* more channels than are summed at a time */
    {1, 16, 5, 4, 80, 1, 1, 3, 0},   /* several panels */
    {100, 16, 1, 1, 16, 1, 1, 3, 0}, /* images of one pixel, several blocks of tiles */
    {2, 16, 8, 10, 16, 2, 2, 5, 0},  /* 5 x 5, whole tiles */
    {2, 16, 7, 13, 24, 2, 1, 5, 0},  /* ragged edges */
    {1, 48, 5, 6, 16, 0, 4, 5, 0},   /* no margin, and the widest */
    {2, 16, 9, 8, 16, 1, 1, 3, -1},  /* rows of an image: no margin below, */
    {1, 16, 17, 6, 32, 0, 1, 3, 1},  /* above, */
    {2, 16, 7, 6, 16, 0, 2, 5, 1},   /* and a narrow one */
    {1, 20, 27, 9, 72, 2, 2, 5,
     0}, /* channels that end within a block, several panels and blocks */
};

static const char *const layouts[] = {"acdb", "aBcd8b", "aBcd16b"};
static const char *const weights[] = {"abcd", "cdba", "ABcd8b8a", "Acdb16a"};

typedef struct wino_run {
    kolo_attr attr[KOLO_MAX_ATTRS];
    kolo_shape x, w, y;
    const char *x_layout, *y_layout, *w_layout;
    int threads;
} wino_run;

static wino_run run_of(const wino_case *c) {
    wino_run r = {.attr = {{1}, {1}, {c->pad_h}, {c->pad_w}, {1}, {1}, {1}}};
    r.attr[KOLO_CONV_MORE_H].i = c->more_h;
    r.x = kolo_shape_4(c->n, c->c, c->h, c->w);
    r.w = kolo_shape_4(c->o, c->c, c->taps, c->taps);
    r.y = kolo_shape_4(c->n, c->o, c->h + 2 * c->pad_h + c->more_h - c->taps + 1,
                       c->w + 2 * c->pad_w - c->taps + 1);
    return r;
}

/* Relative rounding error of a few 1e-7 is normal; see docs/winograd.md. */
static const double tolerance = 5e-6;

static int check(const kolo_kernel *kernel, kolo_kernel_spec *spec) {
    if (kernel->fit(spec) < 0) return 0;
    test_kernel_against_reference(kernel, spec, tolerance);
    return 1;
}

static void forward_spec(kolo_kernel_spec *spec, wino_run *r, bool bias) {
    test_kernel_spec(spec, &kolo_op_conv2d, r->attr, 2 + bias,
                     (kolo_shape[]){r->x, r->w, kolo_shape_1(r->w.dim[0])},
                     (const char *[]){r->x_layout, r->w_layout, "a"}, 1, &r->y_layout, r->threads);
}

static void bwd_data_spec(kolo_kernel_spec *spec, wino_run *r) {
    r->attr[KOLO_CONV_RELU].i = 0;
    r->attr[KOLO_CONV_SIZE_H].i = r->x.dim[2];
    r->attr[KOLO_CONV_SIZE_W].i = r->x.dim[3];
    test_kernel_spec(spec, &kolo_op_conv2d_bwd_data, r->attr, 2, (kolo_shape[]){r->y, r->w},
                     (const char *[]){r->y_layout, r->w_layout}, 1, &r->x_layout, r->threads);
}

static void bwd_weights_spec(kolo_kernel_spec *spec, wino_run *r, bool bias) {
    r->attr[KOLO_CONV_RELU].i = 0;
    r->attr[KOLO_CONV_SIZE_H].i = r->attr[KOLO_CONV_SIZE_W].i = r->w.dim[2];
    r->attr[KOLO_CONV_BIAS].i = bias;
    test_kernel_spec(spec, &kolo_op_conv2d_bwd_weights, r->attr, 2, (kolo_shape[]){r->y, r->x},
                     (const char *[]){r->y_layout, r->x_layout}, 1 + bias,
                     (const char *[]){r->w_layout, "a"}, r->threads);
}

/* How many kernels fit one case in all layouts; threads, biases and layouts of weights take turns.
 */
static int check_layouts(const wino_case *c, size_t turn) {
    int fits = 0;
    for (size_t i = 0; i < KOLO_COUNT(layouts); i++) {
        for (size_t j = 0; j < KOLO_COUNT(layouts); j++, turn++) {
            wino_run r = run_of(c);
            kolo_kernel_spec spec;
            r.x_layout = layouts[i];
            r.y_layout = layouts[j];
            r.w_layout = turn % 3 ? weights[turn % KOLO_COUNT(weights)] : "any";
            r.threads = 1 + (int)(turn % 3);
            r.attr[KOLO_CONV_RELU].i = turn % 4 / 2;
            forward_spec(&spec, &r, turn % 2);
            fits += check(&kolo_simd_wino, &spec);
            r.w_layout = weights[turn % KOLO_COUNT(weights)];
            bwd_data_spec(&spec, &r);
            fits += check(&kolo_simd_wino_bwd_data, &spec);
            bwd_weights_spec(&spec, &r, turn % 2);
            fits += check(&kolo_simd_wino_bwd_weights, &spec);
        }
    }
    return fits;
}

static bool whole_vectors(const char *layout, int64_t channels) {
    static const int vectors[] = {4, 8, 16};
    int64_t inner = layout[1] == 'c' ? channels : layout[4] == '8' ? 8 : 16;
    return inner % vectors[kolo_isa_best()] == 0;
}

static void wino_is_the_reference(void **state) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
            if (test_takes_turns(i, isa, (int)kolo_isa_best())) continue;
            int expected = 0, fits = check_layouts(&cases[i], i);
            for (size_t j = 0; j < KOLO_COUNT(layouts) * KOLO_COUNT(layouts); j++) {
                const char *x = layouts[j / KOLO_COUNT(layouts)];
                const char *y = layouts[j % KOLO_COUNT(layouts)];
                if (whole_vectors(x, cases[i].c) && whole_vectors(y, cases[i].o)) expected += 3;
            }
            assert_true(isa < (int)kolo_isa_best() ? fits >= expected : fits == expected);
        }
    }
    kolo_isa_pin(-1);
}

/* Each direction with 1 and with 3 threads: equal bits. */
static void threads_change_no_bit(void **state) {
    static const wino_case both[] = {{3, 32, 19, 22, 48, 1, 1, 3, 0},
                                     {2, 16, 19, 22, 32, 2, 2, 5, 0}};
    for (int k = 0; k < 6; k++) {
        const wino_case c = both[k / 3];
        const int pass = k % 3;
        const kolo_kernel *const kernels[] = {&kolo_simd_wino, &kolo_simd_wino_bwd_data,
                                              &kolo_simd_wino_bwd_weights};
        float *results[2] = {NULL};
        size_t bytes = 0;
        for (int i = 0; i < 2; i++) {
            wino_run r = run_of(&c);
            kolo_kernel_spec spec;
            r.x_layout = r.y_layout = "aBcd16b";
            r.w_layout = "ABcd8b8a";
            r.threads = 1 + 2 * i;
            if (pass == 0) forward_spec(&spec, &r, false);
            if (pass == 1) bwd_data_spec(&spec, &r);
            if (pass == 2) bwd_weights_spec(&spec, &r, false);
            bytes = kolo_tensor_bytes(&spec.out[0]);
            results[i] = test_kernel_result(kernels[pass], &spec);
        }
        assert_memory_equal(results[0], results[1], bytes);
        kolo_free(results[0]);
        kolo_free(results[1]);
    }
}

/* The table of docs/winograd.md: errors of Winograd and of the direct form against the reference.
 */
static void rounding_is_as_documented(void **state) {
    static const wino_case shapes[] = {
        {2, 16, 28, 28, 16, 1, 1, 3, 0},  {2, 64, 14, 14, 16, 1, 1, 3, 0},
        {2, 64, 28, 28, 16, 1, 1, 3, 0},  {2, 256, 14, 14, 16, 1, 1, 3, 0},
        {2, 512, 7, 7, 16, 1, 1, 3, 0},   {2, 64, 27, 27, 16, 2, 2, 5, 0},
        {2, 192, 27, 27, 16, 2, 2, 5, 0},
    };
    const kolo_kernel *const kernels[] = {&kolo_simd_wino, &kolo_simd_wino_bwd_data,
                                          &kolo_simd_wino_bwd_weights};
    for (size_t i = 0; i < KOLO_COUNT(shapes); i++) {
        double error[3], direct[3];
        for (int pass = 0; pass < 3; pass++) {
            wino_case c = shapes[i];
            if (pass == 1) { /* what is summed over are the channels of dy */
                c.o = shapes[i].c;
                c.c = 16;
            }
            wino_run r = run_of(&c);
            kolo_kernel_spec spec;
            r.x_layout = r.y_layout = "acdb";
            r.w_layout = "abcd";
            r.threads = 1;
            if (pass == 0) forward_spec(&spec, &r, false);
            if (pass == 1) bwd_data_spec(&spec, &r);
            if (pass == 2) bwd_weights_spec(&spec, &r, false);
            error[pass] = test_kernel_error(kernels[pass], &spec);
            const kolo_kernel *kernel;
            bool has = kolo_kernel_select(KOLO_KERNELS_DIRECT, &spec, &kernel, NULL) == KOLO_OK;
            direct[pass] = has ? test_kernel_error(kernel, &spec) : NAN; /* without oneDNN */
            assert_true(error[pass] < 4e-6);
        }
        print_message("| %d x %dx%d, %dx%d | %.1e | %.1e | %.1e | %.1e | %.1e | %.1e |\n",
                      (int)shapes[i].c, (int)shapes[i].h, (int)shapes[i].w, (int)shapes[i].taps,
                      (int)shapes[i].taps, error[0], direct[0], error[1], direct[1], error[2],
                      direct[2]);
    }
}

static void others_are_refused(void **state) {
    static const struct {
        kolo_attr attr[KOLO_MAX_ATTRS];
        kolo_shape x, w;
        const char *layout;
    } refused[] = {
        {{{2}, {1}, {1}, {1}, {1}, {1}, {1}}, {4, {1, 16, 9, 9}}, {4, {16, 16, 3, 3}}, "aBcd16b"},
        {{{1}, {1}, {1}, {1}, {1}, {2}, {1}}, {4, {1, 16, 9, 9}}, {4, {16, 16, 3, 3}}, "aBcd16b"},
        {{{1}, {1}, {1}, {1}, {1}, {1}, {2}}, {4, {1, 16, 9, 9}}, {4, {16, 8, 3, 3}}, "aBcd16b"},
        {{{1}, {1}, {3}, {1}, {1}, {1}, {1}}, {4, {1, 16, 9, 9}}, {4, {16, 16, 3, 3}}, "aBcd16b"},
        {{{1}, {1}, {1}, {1}, {1}, {1}, {1}}, {4, {1, 16, 9, 9}}, {4, {16, 16, 3, 5}}, "aBcd16b"},
        {{{1}, {1}, {1}, {1}, {1}, {1}, {1}}, {4, {1, 18, 9, 9}}, {4, {16, 18, 3, 3}}, "acdb"},
        {{{1}, {1}, {1}, {1}, {1}, {1}, {1}}, {4, {1, 16, 9, 9}}, {4, {16, 16, 3, 3}}, "abcd"},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        kolo_kernel_spec spec;
        const char *layout = refused[i].layout;
        test_kernel_spec(&spec, &kolo_op_conv2d, refused[i].attr, 2,
                         (kolo_shape[]){refused[i].x, refused[i].w},
                         (const char *[]){layout, "any"}, 1, &layout, 1);
        assert_true(kolo_simd_wino.fit(&spec) < 0);
    }
}

TEST_MAIN(test_simd_wino) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wino_is_the_reference),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(rounding_is_as_documented),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
