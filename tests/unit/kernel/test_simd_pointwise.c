/* Our pointwise, loss, pooling and reorder kernels of every instruction set that this machine has,
 * against the reference, over shapes, layouts and threads. What is one rounded operation must give
 * the reference's very bits. */
#include "base/bf16.h"
#include "base/isa.h"
#include "base/rng.h"
#include "kernel/select/select.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

enum { MAX_ELEMENTS = 1 << 16 };

/* Runs `body` for each instruction set, with one thread and with three; it gives the number of
 * specs that fit.
 */
static void each_set(int (*body)(int threads), int fits) {
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (int threads = 1; threads <= 3; threads += 2) assert_int_equal(body(threads), fits);
    }
    kolo_isa_pin(-1);
}

static int check(const kolo_kernel *kernel, kolo_kernel_spec *spec, const void *const *inputs,
                 double tolerance) {
    if (kernel->fit(spec) < 0) return 0;
    test_kernel_on(kernel, spec, inputs, tolerance);
    return 1;
}

/* In f32 and then in bf16. */
static int check_both_on(const kolo_kernel *kernel, kolo_kernel_spec *spec,
                         const void *const *inputs, const void *const *halves, double tolerance) {
    int fits = check(kernel, spec, inputs, tolerance);
    test_kernel_in_bf16(spec, -1);
    assert_int_equal(spec->in[0].dtype, KOLO_DTYPE_BF16);
    return fits + check(kernel, spec, halves, tolerance);
}

static int check_both(const kolo_kernel *kernel, kolo_kernel_spec *spec, double tolerance) {
    return check_both_on(kernel, spec, NULL, NULL, tolerance);
}

/* ---- elementwise ---- */

static const struct {
    kolo_shape shape;
    const char *layout;
} images[] = {
    {{4, {3, 6, 5, 7}}, "abcd"},     {{4, {3, 6, 5, 7}}, "acdb"},   {{4, {3, 6, 5, 7}}, "aBcd8b"},
    {{4, {2, 17, 3, 3}}, "aBcd16b"}, {{4, {2, 130, 2, 3}}, "acdb"}, {{4, {1, 16, 9, 9}}, "aBcd8b"},
    {{4, {2, 9, 1, 1}}, "aBcd4b"},   {{4, {1, 1, 1, 1}}, "abcd"},   {{4, {2, 3, 4, 13}}, "abcd"},
    {{2, {37, 10}}, "ab"},           {{3, {3, 4, 19}}, "abc"},
};

static int elementwise(int threads) {
    int fits = 0;
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(images); i++) {
        const kolo_attr with_relu[KOLO_MAX_ATTRS] = {[KOLO_ADD_RELU].i = 1};
        const kolo_shape s = images[i].shape, both[] = {s, s, s};
        const char *l = images[i].layout, *same[] = {l, l, l};
        test_kernel_spec(&spec, &kolo_op_relu, NULL, 1, both, same, 1, same, threads);
        fits += check_both(&kolo_simd_relu, &spec, 0);
        test_kernel_spec(&spec, &kolo_op_relu_bwd, NULL, 2, both, same, 1, same, threads);
        fits += check_both(&kolo_simd_relu_bwd, &spec, 0);
        test_kernel_spec(&spec, &kolo_op_add, NULL, 2, both, same, 1, same, threads);
        fits += check_both(&kolo_simd_add, &spec, 0);
        test_kernel_spec(&spec, &kolo_op_relu_bwd, NULL, 3, both, same, 1, same, threads);
        fits += check_both(&kolo_simd_relu_bwd, &spec, 1e-7);
        test_kernel_spec(&spec, &kolo_op_add, with_relu, 2, both, same, 1, same, threads);
        fits += check_both(&kolo_simd_add, &spec, 0);
    }
    return fits;
}

static void elementwise_is_the_reference(void **state) {
    each_set(elementwise, 2 * 5 * KOLO_COUNT(images));
}

/* Sums of every bf16 number and one that is smaller are rounded as kolo_bf16_narrow does: to even
 * where they lie between two, to infinity, within the subnormal ones; a nan stays one. */
static int sums_of_every_number(int threads) {
    enum { COUNT = 1 << 16 };
    static const float parts[] = {0, 0x1p-8F, 0x1p-9F, 0x1.8p-9F, -0x1p-9F, 1};
    static uint16_t a[COUNT], b[COUNT], sums[COUNT];
    const kolo_shape in[] = {kolo_shape_1(COUNT), kolo_shape_1(COUNT)};
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_add, NULL, 2, in, NULL, 1, NULL, threads);
    test_kernel_in_bf16(&spec, -1);
    kolo_call call = {.spec = &spec, .in = {a, b}, .out = {sums}};
    size_t scratch_bytes;
    if (kolo_simd_add.fit(&spec) < 0) return 0;
    ASSERT_OK(kolo_simd_add.prepare(&spec, &call.state, &scratch_bytes));
    for (size_t k = 0; k < KOLO_COUNT(parts); k++) {
        for (int i = 0; i < COUNT; i++) {
            float number = kolo_bf16_widen((uint16_t)i), part = number * parts[k];
            a[i] = (uint16_t)i;
            b[i] = isnan(part) ? 0 : kolo_bf16_narrow(part);
        }
        kolo_simd_add.run(&call);
        for (int i = 0; i < COUNT; i++) {
            uint16_t want = kolo_bf16_narrow(kolo_bf16_widen(a[i]) + kolo_bf16_widen(b[i]));
            assert_int_equal(sums[i], want);
        }
    }
    kolo_simd_add.release(call.state);
    return 1;
}

static void sums_are_rounded_to_nearest_even(void **state) { each_set(sums_of_every_number, 1); }

static int bias(int threads) {
    int fits = 0;
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(images); i++) {
        kolo_shape in[] = {images[i].shape, kolo_shape_1(images[i].shape.dim[1])};
        const char *layouts[] = {images[i].layout, "a"};
        test_kernel_spec(&spec, &kolo_op_bias, NULL, 2, in, layouts, 1, layouts, threads);
        fits += check_both(&kolo_simd_bias, &spec, 0);
        test_kernel_spec(&spec, &kolo_op_bias_bwd, NULL, 1, in, layouts, 1, NULL, threads);
        fits += check_both(&kolo_simd_bias_bwd, &spec, 1e-6);
    }
    return fits;
}

static void bias_is_the_reference(void **state) { each_set(bias, 2 * 2 * KOLO_COUNT(images)); }

/* ---- accumulate ---- */

/* Reads its output, which is set before each run: the reference's own numbers, then ours. */
static void sums_keep_what_they_have(void **state) {
    enum { N = 37 };
    static const float start[] = {3, -1}, fresh[] = {1, 0};
    static const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_ACCUMULATE_KEEP].f = 0.75};
    const kolo_shape in[] = {kolo_shape_1(N), kolo_shape_0()};
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (int i = 0; i < 2; i++) {
            kolo_kernel_spec spec;
            test_kernel_spec(&spec, &kolo_op_accumulate, attr, 2, in, NULL, 1, NULL, 1 + 2 * i);
            float x[N], ours[N], reference[N], f = fresh[i];
            for (int k = 0; k < N; k++) x[k] = (float)k, ours[k] = reference[k] = start[k % 2];
            kolo_call call = {.spec = &spec, .in = {x, &f}, .out = {ours}};
            size_t scratch;
            assert_true(kolo_simd_accumulate.fit(&spec) >= 0);
            ASSERT_OK(kolo_simd_accumulate.prepare(&spec, &call.state, &scratch));
            kolo_simd_accumulate.run(&call);
            kolo_simd_accumulate.release(call.state);
            call.out[0] = reference;
            test_kernel("ref_accumulate")->run(&call);
            assert_memory_equal(ours, reference, sizeof ours);
            for (int k = 0; k < N; k++) {
                float want = x[k] + (f != 0 ? 0 : 0.75F * start[k % 2]);
                assert_true(ours[k] == want);
            }
        }
    }
    kolo_isa_pin(-1);
}

/* ---- sgd ---- */

static int sgd(int threads) {
    static const kolo_attr attrs[][KOLO_MAX_ATTRS] = {
        {{.f = 0.9}, {.f = 0}, {0}},
        {{.f = 0.9}, {.f = 1e-2}, {0}},
        {{.f = 0.5}, {.f = 1e-2}, {1}},
    };
    int fits = 0;
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(images); i++) {
        kolo_shape s = images[i].shape, in[] = {s, s, kolo_shape_0(), s};
        const char *l = images[i].layout, *layouts[] = {l, l, NULL, l};
        for (size_t j = 0; j < KOLO_COUNT(attrs); j++) {
            test_kernel_spec(&spec, &kolo_op_sgd, attrs[j], 4, in, layouts, 2, layouts, threads);
            fits += check(&kolo_simd_sgd, &spec, NULL, 1e-6);
        }
        static const kolo_attr plain[KOLO_MAX_ATTRS] = {{.f = 0}, {.f = 1e-2}, {0}};
        test_kernel_spec(&spec, &kolo_op_sgd, plain, 3, in, layouts, 1, layouts, threads);
        fits += check(&kolo_simd_sgd, &spec, NULL, 1e-6);
    }
    return fits;
}

static void sgd_is_the_reference(void **state) { each_set(sgd, 4 * KOLO_COUNT(images)); }

/* So large that its results go past the caches. */
static int large_sgd(int threads) {
    const kolo_shape s = kolo_shape_1((1 << 18) + 5), in[] = {s, s, kolo_shape_0(), s};
    static const kolo_attr attrs[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 1e-2}, {1}};
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_sgd, attrs, 4, in, NULL, 2, NULL, threads);
    return check(&kolo_simd_sgd, &spec, NULL, 1e-6);
}

static void large_sgd_is_the_reference(void **state) { each_set(large_sgd, 1); }

/* A rank alone updates its parameters where they lie: the bits are those of results elsewhere. */
static int sgd_in_place(int threads) {
    enum { N = (1 << 18) + 8, TENSORS = 5 };
    const kolo_shape s = kolo_shape_1(N), in[] = {s, s, kolo_shape_0(), s};
    static const kolo_attr attrs[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 1e-2}, {0}};
    kolo_rng rng = kolo_rng_make(3, KOLO_RNG_TEST, 0);
    float *tensors = kolo_pages_map(TENSORS * N * sizeof(float)), lr = 0.1F;
    assert_non_null(tensors);
    float *w = tensors, *g = w + N, *v = g + N, *w_next = v + N, *v_next = w_next + N;
    for (uint64_t i = 0; i < 3 * N; i++) tensors[i] = (float)kolo_rng_normal(&rng, i);
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_sgd, attrs, 4, in, NULL, 2, NULL, threads);
    kolo_call call = {.spec = &spec, .in = {w, g, &lr, v}, .out = {w_next, v_next}};
    size_t scratch;
    ASSERT_OK(kolo_simd_sgd.prepare(&spec, &call.state, &scratch));
    kolo_simd_sgd.run(&call);
    call.out[0] = w;
    call.out[1] = v;
    kolo_simd_sgd.run(&call);
    assert_memory_equal(w, w_next, N * sizeof *w);
    assert_memory_equal(v, v_next, N * sizeof *v);
    kolo_simd_sgd.release(call.state);
    kolo_pages_unmap(tensors, TENSORS * N * sizeof(float));
    return 1;
}

static void sgd_in_place_gives_the_same_bits(void **state) { each_set(sgd_in_place, 1); }

/* ---- gradients as summands ---- */

enum { SUMMANDS = 3, MOST = (1 << 18) + 2500, UPDATE_TENSORS = 4 + SUMMANDS + 2 * 3 };

typedef struct update_row {
    const kolo_kernel *kernel;
    const kolo_op *op;
    kolo_attr attr[KOLO_MAX_ATTRS];
    int n_in, n_out;
} update_row;

static const update_row update_rows[] = {
    {&kolo_simd_sgd, &kolo_op_sgd, {{.f = 0}, {.f = 1e-2}}, 3, 1},
    {&kolo_simd_sgd, &kolo_op_sgd, {{.f = 0.9}, {.f = 1e-2}}, 4, 2},
    {&kolo_simd_sgd, &kolo_op_sgd, {{.f = 0.9}, {.f = 1e-2}, {1}}, 4, 2},
    {&kolo_simd_adam, &kolo_op_adam, {{.f = 0.9}, {.f = 0.99}, {.f = 1e-8}, {.f = 1e-2}}, 6, 3},
};

/* Results from the sum, which are in the upper half of `out`, and from its summands. */
static void check_summands(const update_row *row, int64_t n, int threads, float **tensor) {
    float lr = 0.1F, update = 3, *w = tensor[0], *g = tensor[1], *m = tensor[2], *v = tensor[3];
    float **from = tensor + 4, **out = tensor + 4 + SUMMANDS;
    const kolo_shape x = kolo_shape_1(n), one = kolo_shape_0(), few[] = {x, x, one, x},
                     all[] = {x, x, one, one, x, x};
    const bool adam = row->n_in == 6;
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, row->op, row->attr, row->n_in, adam ? all : few, NULL, row->n_out, NULL,
                     threads);
    kolo_call call = {.spec = &spec, .in = {w, g, &lr, adam ? &update : v, m, v}};
    size_t scratch;
    for (int64_t i = 0; i < n; i++) {
        g[i] = from[0][i];
        for (int r = 1; r < SUMMANDS; r++) g[i] += from[r][i];
    }
    assert_int_equal(row->kernel->summands, 1);
    ASSERT_OK(row->kernel->prepare(&spec, &call.state, &scratch));
    for (int k = 0; k < row->n_out; k++) call.out[k] = out[k];
    row->kernel->run(&call);
    memset(g, 0xff, (size_t)n * sizeof *g); /* nobody reads it */
    call.summands = (const void *const *)from;
    call.n_summands = SUMMANDS;
    for (int k = 0; k < row->n_out; k++) call.out[k] = out[3 + k];
    row->kernel->run(&call);
    for (int k = 0; k < row->n_out; k++) {
        assert_memory_equal(out[k], out[3 + k], (size_t)n * sizeof *g);
    }
    row->kernel->release(call.state);
}

static int summands(int threads) {
    static const int64_t counts[] = {1, 17, 1023, 1024, 1030, 5000, MOST};
    float *tensor[UPDATE_TENSORS];
    kolo_rng rng = kolo_rng_make(4, KOLO_RNG_TEST, 0);
    float *memory = kolo_pages_map(UPDATE_TENSORS * MOST * sizeof(float));
    assert_non_null(memory);
    for (int i = 0; i < UPDATE_TENSORS; i++) tensor[i] = memory + (size_t)i * MOST;
    for (uint64_t i = 0; i < (4 + SUMMANDS) * MOST; i++) {
        memory[i] = fabsf((float)kolo_rng_normal(&rng, i));
    }
    for (size_t r = 0; r < KOLO_COUNT(update_rows); r++) {
        for (size_t i = 0; i < KOLO_COUNT(counts); i++) {
            check_summands(&update_rows[r], counts[i], threads, tensor);
        }
    }
    kolo_pages_unmap(memory, UPDATE_TENSORS * MOST * sizeof(float));
    return 1;
}

static void summands_give_the_bits_of_their_sum(void **state) { each_set(summands, 1); }

/* ---- loss ---- */

static float random_floats[MAX_ELEMENTS];

static void fill(size_t n, float scale) {
    kolo_rng rng = kolo_rng_make(5, KOLO_RNG_TEST, n);
    assert_true(n <= MAX_ELEMENTS);
    for (size_t i = 0; i < n; i++) random_floats[i] = scale * kolo_rng_normal(&rng, i);
}

static const int64_t rows[][2] = {{1, 1}, {64, 10}, {7, 2}, {5, 1000}, {33, 17}};
static const float scales[] = {1, 30, 1000}; /* of logits: from close to one to underflow */

static int loss(int threads) {
    int fits = 0;
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        kolo_shape in[] = {kolo_shape_2(rows[i][0], rows[i][1]), kolo_shape_1(rows[i][0]),
                           kolo_shape_0()};
        int32_t labels[64]; /* some are outside on either side */
        for (int64_t n = 0; n < rows[i][0]; n++) labels[n] = (int32_t)(n % (rows[i][1] + 2) - 1);
        for (size_t j = 0; j < KOLO_COUNT(scales); j++) {
            const void *data[] = {random_floats, labels, NULL};
            fill((size_t)(rows[i][0] * rows[i][1]), scales[j]);
            test_kernel_spec(&spec, &kolo_op_softmax_xent, NULL, 2, in, NULL, 2, NULL, threads);
            fits += check(&kolo_simd_softmax_xent, &spec, data, 2e-6);
            const kolo_attr count[KOLO_MAX_ATTRS] = {[KOLO_LOSS_COUNT].i = 1};
            test_kernel_spec(&spec, &kolo_op_softmax_xent, count, 2, in, NULL, 3, NULL, threads);
            fits += check(&kolo_simd_softmax_xent, &spec, data, 2e-6);
            test_kernel_spec(&spec, &kolo_op_softmax_xent_bwd, NULL, 3, in, NULL, 1, NULL, threads);
            fits += check(&kolo_simd_softmax_xent_bwd, &spec, data, 1e-6);
            test_kernel_spec(&spec, &kolo_op_accuracy, NULL, 2, in, NULL, 1, NULL, threads);
            fits += check(&kolo_simd_accuracy, &spec, data, 0);
        }
    }
    return fits;
}

static void loss_is_the_reference(void **state) {
    each_set(loss, 4 * KOLO_COUNT(rows) * KOLO_COUNT(scales));
}

/* ---- pooling ---- */

static const struct {
    int64_t n, c, h, w;
    kolo_attr attr[KOLO_MAX_ATTRS]; /* kernel, stride, padding, relu */
} pools[] = {
    {3, 6, 28, 28, {{2}, {2}, {2}, {2}, {0}, {0}, {1}}}, /* tiles, as lenet has */
    {2, 16, 10, 10, {{2}, {2}, {2}, {2}, {0}, {0}, {0}}},
    {2, 19, 9, 11, {{2}, {2}, {2}, {2}, {0}, {0}, {1}}}, /* a rest that no window covers */
    {2, 5, 9, 12, {{3}, {4}, {3}, {4}, {0}, {0}, {0}}},  /* tiles of another size */
    {2, 20, 9, 7, {{3}, {3}, {2}, {2}, {1}, {1}, {1}}},  /* windows that overlap, padding */
    {2, 20, 6, 9, {{3}, {3}, {1}, {1}, {1}, {1}, {0}}},  /* as googlenet has */
    {1, 16, 5, 4, {{3}, {3}, {1}, {1}, {0}, {1}, {1}}},
    {1, 3, 6, 8, {{2}, {3}, {3}, {1}, {0}, {1}, {0}}},  /* gaps one way, overlap the other */
    {2, 8, 7, 11, {{3}, {2}, {1}, {3}, {1}, {0}, {0}}}, /* and the other way round */
    {2, 7, 5, 5, {{5}, {5}, {1}, {1}, {0}, {0}, {0}}},  /* one window: the output is one pixel */
    {1, 8, 1, 1, {{1}, {1}, {1}, {1}, {0}, {0}, {0}}},
    {1, 2, 20, 20, {{16}, {16}, {1}, {1}, {8}, {8}, {0}}}, /* the largest index, 255 */
};
static const char *const layouts[] = {"abcd", "acdb", "aBcd8b", "aBcd16b", "aBcd4b"};

/* The index that goes into the gradient: that of the reference kernel. */
static void index_of(const kolo_kernel_spec *forward, const float *x, float *y, uint8_t *index) {
    kolo_kernel_spec spec = *forward;
    const kolo_kernel *kernel;
    size_t scratch_bytes = 0;
    kolo_call call = {.spec = &spec, .in = {(void *)(uintptr_t)x}, .out = {y, index}};
    spec.in[0].layout = spec.out[0].layout = spec.out[1].layout = kolo_layout_plain(4);
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
    call.scratch = kolo_alloc(scratch_bytes);
    assert_non_null(call.scratch);
    kernel->run(&call);
    kernel->release(call.state);
    kolo_free(call.scratch);
}

static int pool_case(size_t i, const char *layout, int threads) {
    static float y[MAX_ELEMENTS];
    static uint8_t index[MAX_ELEMENTS];
    static uint16_t half_x[MAX_ELEMENTS], half_y[MAX_ELEMENTS];
    const char *same[] = {layout, layout, layout};
    kolo_shape x = kolo_shape_4(pools[i].n, pools[i].c, pools[i].h, pools[i].w);
    kolo_attr attr[KOLO_MAX_ATTRS];
    memcpy(attr, pools[i].attr, sizeof attr);
    kolo_kernel_spec spec;
    fill((size_t)kolo_shape_count(&x), 1);
    for (int64_t k = 0; k < kolo_shape_count(&x); k += 3) random_floats[k] = 0.5f; /* ties */
    for (int64_t k = 0; k < kolo_shape_count(&x); k++) {
        half_x[k] = kolo_bf16_narrow(random_floats[k]);
    }
    const void *in[] = {random_floats}, *half_in[] = {half_x};
    test_kernel_spec(&spec, &kolo_op_max_pool2d, attr, 1, &x, same, 2, same, threads);
    index_of(&spec, random_floats, y, index);
    kolo_shape dy = spec.out[0].shape;
    for (int64_t k = 0; k < kolo_shape_count(&dy); k++) half_y[k] = kolo_bf16_narrow(y[k]);
    int fits = check_both_on(&kolo_simd_max_pool2d, &spec, in, half_in, 0);
    test_kernel_spec(&spec, &kolo_op_avg_pool2d, attr, 1, &x, same, 1, same, threads);
    fits += check_both_on(&kolo_simd_avg_pool2d, &spec, in, half_in, 1e-6);
    bool relu = attr[KOLO_POOL_RELU].i;
    attr[KOLO_POOL_RELU].i = 0;
    attr[KOLO_POOL_IN_H].i = pools[i].h;
    attr[KOLO_POOL_IN_W].i = pools[i].w;
    test_kernel_spec(&spec, &kolo_op_avg_pool2d_bwd, attr, 1, &dy, same, 1, same, threads);
    fits += check_both(&kolo_simd_avg_pool2d_bwd, &spec, 1e-6);
    test_kernel_spec(&spec, &kolo_op_max_pool2d_bwd, attr, 2 + relu, (kolo_shape[]){dy, dy, dy},
                     same, 1, same, threads);
    const void *bwd[] = {NULL, index, y}, *half_bwd[] = {NULL, index, half_y};
    return fits + check_both_on(&kolo_simd_max_pool2d_bwd, &spec, bwd, half_bwd, 1e-6);
}

static int pool(int threads) {
    int fits = 0;
    for (size_t i = 0; i < KOLO_COUNT(pools); i++) {
        for (size_t j = 0; j < KOLO_COUNT(layouts); j++) fits += pool_case(i, layouts[j], threads);
    }
    return fits;
}

static void pool_is_the_reference(void **state) {
    each_set(pool, 2 * 4 * KOLO_COUNT(pools) * KOLO_COUNT(layouts));
}

/* ---- reorder ---- */

static int reorder(int threads) {
    static const kolo_shape shapes[] = {
        {4, {3, 6, 5, 7}}, {4, {2, 19, 3, 3}}, {4, {1, 16, 4, 4}},
        {4, {5, 1, 2, 3}}, {4, {3, 9, 1, 1}},
    };
    int fits = 0;
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(shapes); i++) {
        for (size_t j = 0; j < KOLO_COUNT(layouts) * KOLO_COUNT(layouts); j++) {
            const char *from = layouts[j / KOLO_COUNT(layouts)];
            const char *to = layouts[j % KOLO_COUNT(layouts)];
            test_kernel_spec(&spec, &kolo_op_reorder, NULL, 1, &shapes[i], &from, 1, &to, threads);
            fits += check(&kolo_simd_reorder, &spec, NULL, 0);
            spec.in[0].dtype = spec.out[0].dtype = KOLO_DTYPE_BF16;
            fits += check(&kolo_simd_reorder, &spec, NULL, -2e-3); /* the very bits */
        }
    }
    return fits;
}

static void reorder_is_the_reference(void **state) {
    each_set(reorder, 2 * 5 * KOLO_COUNT(layouts) * KOLO_COUNT(layouts));
}

TEST_MAIN(test_simd_pointwise) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_rounded_to_nearest_even),
        cmocka_unit_test(elementwise_is_the_reference),
        cmocka_unit_test(bias_is_the_reference),
        cmocka_unit_test(sums_keep_what_they_have),
        cmocka_unit_test(sgd_is_the_reference),
        cmocka_unit_test(large_sgd_is_the_reference),
        cmocka_unit_test(loss_is_the_reference),
        cmocka_unit_test(sgd_in_place_gives_the_same_bits),
        cmocka_unit_test(summands_give_the_bits_of_their_sum),
        cmocka_unit_test(pool_is_the_reference),
        cmocka_unit_test(reorder_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
