/* Dropout: what is drawn, that rows of the global batch draw alike wherever they are, that ours is
 * the reference, and that evaluation has none of it. */
#include "base/isa.h"
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "kernel/select/select.h"
#include "kernel/simd/kernels.h"
#include "pass/pass.h"
#include "support/kernel_check.h"

#include <math.h>

enum { ROWS = 40, COLUMNS = 500 };

/* Runs the best kernel. */
static void run_dropout(const kolo_shape *in, const kolo_attr *attr, const float *x, int64_t key,
                        int64_t first, float *y) {
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_dropout, attr, 3, in, NULL, 1, NULL, 1);
    const kolo_kernel *kernel;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_BEST, &spec, &kernel, NULL));
    assert_ptr_equal(kernel, &kolo_simd_dropout);
    kolo_call call = {.spec = &spec, .in = {(void *)x, &key, &first}, .out = {y}};
    size_t scratch_bytes;
    ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
    kernel->run(&call);
    kernel->release(call.state);
}

/* Drops of rows [first, first + rows) of ones. */
static void drop(float *y, int64_t rows, int64_t key, int64_t first, double p, int64_t layer) {
    const kolo_shape in[] = {kolo_shape_2(rows, COLUMNS), kolo_shape_0(), kolo_shape_0()};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = p}, {layer}};
    static float ones[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) ones[i] = 1;
    run_dropout(in, attr, ones, key, first, y);
}

static void the_share_is_p_and_the_mean_stays(void **state) {
    static float y[ROWS * COLUMNS];
    static const double ps[] = {0, 0.1, 0.5, 0.9};
    for (size_t i = 0; i < KOLO_COUNT(ps); i++) {
        drop(y, ROWS, 12345, 0, ps[i], 0);
        double dropped = 0, n = ROWS * COLUMNS, deviation = sqrt(n * ps[i] * (1 - ps[i]));
        for (int k = 0; k < ROWS * COLUMNS; k++) {
            dropped += y[k] == 0;
            assert_true(y[k] == 0 || fabs((double)y[k] * (1 - ps[i]) - 1) < 1e-6);
        }
        assert_true(fabs(dropped - n * ps[i]) <= 4 * deviation);
    }
}

static void draws_depend_on_step_layer_and_place_alone(void **state) {
    static float all[ROWS * COLUMNS], other[ROWS * COLUMNS];
    drop(all, ROWS, 9, 0, 0.5, 1);
    for (int64_t first = 0; first < ROWS; first += 8) { /* five ranks of eight rows */
        drop(other, 8, 9, first, 0.5, 1);
        assert_memory_equal(other, all + first * COLUMNS, 8 * COLUMNS * sizeof *all);
    }
    drop(other, ROWS, 10, 0, 0.5, 1);
    assert_memory_not_equal(other, all, sizeof all);
    drop(other, ROWS, 9, 0, 0.5, 2);
    assert_memory_not_equal(other, all, sizeof all);
}

/* Keys that differ in any one of their 64 bits, among them those that a float could not hold, give
 * other draws. */
static void all_bits_of_the_key_count(void **state) {
    static float one[ROWS * COLUMNS], other[ROWS * COLUMNS];
    const int64_t key = 0x123456789abcdef;
    drop(one, ROWS, key, 0, 0.5, 0);
    for (int bit = 0; bit < 64; bit++) {
        drop(other, ROWS, (int64_t)((uint64_t)key ^ (uint64_t)1 << bit), 0, 0.5, 0);
        assert_memory_not_equal(other, one, sizeof one);
    }
}

static void ours_is_the_reference(void **state) {
    static const kolo_shape shapes[] = {
        {2, {7, 13}}, {1, {9}}, {4, {3, 2, 5, 3}}, {4, {3, 19, 5, 3}}, {4, {2, 9, 2, 2}}};
    static const char *const layouts[] = {"ab", "a", "abcd", "aBcd8b", "acdb"};
    for (size_t i = 0; i < 2 * KOLO_COUNT(shapes); i++) {
        const kolo_shape in[] = {shapes[i / 2], kolo_shape_0(), kolo_shape_0()};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.3}, {(int64_t)i}};
        const int64_t key = 16777215, first = 11;
        const void *data[] = {NULL, &key, &first};
        const char *layout[] = {layouts[i / 2], NULL, NULL};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_dropout, attr, 3, in, layout, 1, layout, i % 2 ? 3 : 1);
        assert_true(kolo_simd_dropout.fit(&spec) >= 0);
        test_kernel_on(&kolo_simd_dropout, &spec, data, 1e-6);
        test_kernel_in_bf16(&spec, -1);
        bool plain = kolo_layout_is_plain(&spec.in[0].layout);
        assert_true((kolo_simd_dropout.fit(&spec) >= 0) == plain);
        if (plain) test_kernel_on(&kolo_simd_dropout, &spec, data, 1e-6);
    }
}

/* Shards along the samples, along one other dimension or two, drop what the whole does; along the
 * first of these also two ranges, or as `from` and `some` are, one in the middle. */
static void check_shards(const int64_t *from, const int64_t *some) {
    enum { RANK = 4, COUNT = 3 * 9 * 3 * 7 };
    static const kolo_shape whole = {RANK, {3, 9, 3, 7}};
    static float ones[COUNT], all[COUNT], part[COUNT];
    const int64_t key = 9, first = 5;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.5}, {2}};
    const kolo_shape in[] = {whole, kolo_shape_0(), kolo_shape_0()};
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    run_dropout(in, attr, ones, key, first, all);
    for (int dims = 1; dims < 1 << (RANK + 1); dims++) { /* bit RANK: two ranges */
        const bool zigzag = dims >> RANK;
        kolo_attr sharded[KOLO_MAX_ATTRS] = {{.f = 0.5}, {2}};
        kolo_shape slice = whole;
        int at = KOLO_DROPOUT_FIRST, inner = 0;
        for (int d = 0; d < RANK; d++) {
            if (!(dims >> d & 1)) continue;
            slice.dim[d] = some[d];
            if (d == 0) sharded[KOLO_DROPOUT_BEGIN].i = from[0];
            if (d == 0) continue;
            if (inner++ < 2) {
                sharded[at].i = from[d];
                sharded[at + 1].i = whole.dim[d];
                sharded[at + 2].i = d;
            }
            at = KOLO_DROPOUT_FIRST2;
        }
        if (inner > 2 || (zigzag && !(dims & 2))) continue;
        if (zigzag) sharded[KOLO_DROPOUT_ZIGZAG].i = whole.dim[1];
        const kolo_shape in_slice[] = {slice, kolo_shape_0(), kolo_shape_0()};
        run_dropout(in_slice, sharded, ones, key, first, part);
        for (int64_t i = 0; i < kolo_shape_count(&slice); i++) {
            int64_t of = 0, left = i, place[RANK];
            for (int d = RANK - 1; d >= 0; d--) {
                place[d] = left % slice.dim[d];
                left /= slice.dim[d];
            }
            for (int d = 0; d < RANK; d++) {
                const bool second = zigzag && d == 1 && place[d] >= some[1] / 2;
                if (dims >> d & 1) place[d] += second ? whole.dim[1] - from[1] - some[1] : from[d];
                of = of * whole.dim[d] + place[d];
            }
            if (part[i] == all[of]) continue;
            fail_msg("dimensions %x: element %d is %g, not %g", (unsigned)dims, (int)i,
                     (double)part[i], (double)all[of]);
        }
    }
}

static void shards_drop_what_the_whole_drops(void **state) {
    (void)state;
    check_shards((const int64_t[]){1, 1, 1, 3}, (const int64_t[]){2, 4, 2, 3});
    check_shards((const int64_t[]){1, 3, 1, 3}, (const int64_t[]){2, 3, 2, 3});
}

/* Each set draws what kolo_rng_draw draws, bitwise, from any place on; across and beyond where
 * the counter's lower half is full (2^32 counters are 134217728 rows of 128). */
static void each_set_draws_the_same(void **state) {
    enum { N = 10 * 128 };
    static const int64_t firsts[] = {0, 3, 134217720, 1099511627776};
    static float x[N], y[N];
    const kolo_shape in[] = {kolo_shape_2(10, 128), kolo_shape_0(), kolo_shape_0()};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.4}, {7}};
    for (int i = 0; i < N; i++) x[i] = i % 5 ? (float)(100 - i) : -INFINITY;
    for (int isa = 0; isa <= (int)kolo_isa_best(); isa++) {
        kolo_isa_pin(isa);
        for (size_t f = 0; f < KOLO_COUNT(firsts); f++) {
            int64_t key = 77, first = firsts[f];
            kolo_kernel_spec spec;
            test_kernel_spec(&spec, &kolo_op_dropout, attr, 3, in, NULL, 1, NULL, 1 + (int)f % 3);
            kolo_call call = {.spec = &spec, .in = {(void *)x, &key, &first}, .out = {y}};
            size_t scratch_bytes;
            ASSERT_OK(kolo_simd_dropout.prepare(&spec, &call.state, &scratch_bytes));
            kolo_simd_dropout.run(&call);
            kolo_simd_dropout.release(call.state);
            kolo_rng rng = kolo_rng_make(77, KOLO_RNG_DROPOUT, 7);
            for (int i = 0; i < N; i++) {
                uint64_t place = (uint64_t)(first * 128 + i);
                bool drops = (double)kolo_rng_uniform(&rng, place) < 0.4;
                float want = drops ? 0 : x[i] * (float)(1 / (1 - 0.4));
                assert_memory_equal(&y[i], &want, sizeof want);
            }
        }
    }
    kolo_isa_pin(-1);
}

static void evaluation_drops_nothing(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(3, 4));
    kolo_output(g, "inner", kolo_relu(g, kolo_dropout(g, kolo_dropout(g, x, 0.5), 0.2)));
    kolo_output(g, "y", kolo_dropout(g, x, 0.5));
    ASSERT_OK(kolo_pass_inference(g));
    ASSERT_OK(kolo_graph_verify(g));
    assert_int_equal(g->n_nodes, 1);
    assert_int_equal(g->nodes[0]->in[0].id, x.id);
    assert_int_equal(kolo_graph_output(g, "y").id, x.id);
    kolo_graph_destroy(g);
}

TEST_MAIN(test_dropout) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share_is_p_and_the_mean_stays),
        cmocka_unit_test(draws_depend_on_step_layer_and_place_alone),
        cmocka_unit_test(all_bits_of_the_key_count),
        cmocka_unit_test(ours_is_the_reference),
        cmocka_unit_test(shards_drop_what_the_whole_drops),
        cmocka_unit_test(each_set_draws_the_same),
        cmocka_unit_test(evaluation_drops_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
