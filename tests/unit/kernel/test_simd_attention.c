/* Our attention of every instruction set that this machine has, against the reference: masks,
 * dropout, blocks of keys, ranges of queries and keys, caches; over shapes with and without rests
 * of vectors and tiles, and over threads. */
#include "base/rng.h"
#include "kernel/select/select.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>
#include <string.h>

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
        int32_t *mask = test_integers(n * t, 0, 2, i);
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
        if (!blind) test_kernel_fitting(&kolo_simd_attention, &spec, data, 3e-6);
        const kolo_shape bwd[] = {y, x, y, rows, draws ? none : keys, none, keys};
        const void *bwd_data[] = {NULL, qkv, o, lse, data[1], &first, mask};
        test_kernel_spec(&spec, &kolo_op_attention_bwd, attr, 4 + draws + masks, bwd, NULL, 1, NULL,
                         threads);
        test_kernel_fitting(&kolo_simd_attention_bwd, &spec, bwd_data, 1e-5);
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
        int32_t *mask = test_integers(N * all, 0, 2, i);
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
        test_kernel_fitting(&kolo_simd_attention_block, &spec, block_data, 3e-6);
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
        test_kernel_fitting(&kolo_simd_attention_block_bwd, &spec, bwd_data, 1e-5);
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
        int32_t *mask = test_integers(N * rows, 0, 2, i);
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
        test_kernel_fitting(&kolo_simd_attention, &spec, data, 3e-6);
        attend(NULL, &spec, data, o, lse);
        const kolo_shape bwd[] = {y, x, y, lses, in[1], none, mask_shape};
        const void *bwd_data[] = {NULL, qkv, o, lse, data[1], &first, mask};
        test_kernel_spec(&spec, &kolo_op_attention_bwd, attr, 4 + draws + masks, bwd, NULL, 1, NULL,
                         threads);
        test_kernel_fitting(&kolo_simd_attention_bwd, &spec, bwd_data, 1e-5);
        attr[KOLO_ATTENTION_RING].i = KOLO_RING_ZIGZAG;
        for (int from = 0; from < RANKS; from += 2) {
            attr[KOLO_ATTENTION_SEEN].i = from > 0 ? KOLO_SEEN_BY_SECOND : KOLO_SEEN_FIRST_BY_ALL;
            attr[KOLO_ATTENTION_KEY].i = from * half;
            const kolo_shape more[] = {x, keys, y, lses, in[1], none, mask_shape};
            const void *block_data[] = {qkv, kv, o, lse, data[1], &first, mask};
            test_kernel_spec(&spec, &kolo_op_attention_block, attr, 4 + draws + masks, more, NULL,
                             2, NULL, threads);
            test_kernel_fitting(&kolo_simd_attention_block, &spec, block_data, 3e-6);
            const kolo_shape more_bwd[] = {y, x, keys, y, lses, in[1], none, mask_shape};
            const void *more_data[] = {NULL, qkv, kv, o, lse, data[1], &first, mask};
            test_kernel_spec(&spec, &kolo_op_attention_block_bwd, attr, 5 + draws + masks, more_bwd,
                             NULL, 2, NULL, threads);
            test_kernel_fitting(&kolo_simd_attention_block_bwd, &spec, more_data, 2e-5);
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
        test_kernel_fitting(&kolo_simd_cache_write, &spec, data, 0);
        test_kernel_spec(&spec, &kolo_op_cached_attention, attr, 3, read, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_cached_attention, &spec, data, 1e-6);
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

TEST_MAIN(test_simd_attention) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_the_reference),
        cmocka_unit_test(blocks_of_keys),
        cmocka_unit_test(ranges_of_queries_and_keys),
        cmocka_unit_test(caches_are_the_reference),
        cmocka_unit_test(weights_are_dropped_at_the_given_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
