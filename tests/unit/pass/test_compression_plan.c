/* Where compression pays: ends by hand, and the choice against all choices. */
#include "base/compiler.h"
#include "pass/compression_plan.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

/* All of it is work. */
static void make_work(kolo_sum_time *time) {
    time->work_fixed_ms = time->fixed_ms;
    time->work_ms_per_byte = time->ms_per_byte;
}

static void make_all_work(kolo_compression_costs *c) {
    make_work(&c->sum);
    make_work(&c->gather);
}

/* A code has a tenth of the bytes; two ranks. Kernels hide collectives. */
static kolo_compression_costs costs(void) {
    return (kolo_compression_costs){
        .sum = {.fixed_ms = 1, .ms_per_byte = 0.1},
        .gather = {.fixed_ms = 2, .ms_per_byte = 0.1},
        .encode_ms = 0.01,
        .decode_ms = 0.02,
        .ratio = 0.1,
        .ranks = 2,
        .bucket_bytes = 1,
    };
}

static void ends_are_those_of_the_model(void **state) {
    const kolo_ready_gradient g[] = {{1, 100, 0}, {2, 200, 0}};
    static const struct {
        bool compressed[2];
        size_t bucket_bytes;
        double end, alone; /* alone: where collectives are all work */
    } cases[] = {
        /* 1 to 12, 12 to 33 */
        {{false, false}, 1, 33, 2 + 11 + 21},
        /* one bucket, 2 to 33 */
        {{false, false}, 300, 33, 2 + 31},
        /* encoded at 2, codes 2 to 6; the sum 6 to 27, then 4 ms of decoding ended long before */
        {{true, false}, 1, 27, 3 + 4 + 21 + 4},
        /* the sum 1 to 12; encoded at 4, codes 12 to 18, decoded at 26 */
        {{false, true}, 1, 26, 4 + 11 + 6 + 8},
        /* encoded at 2 and 5: codes 2 to 6 and 6 to 12; the loss until 13; decoded: 10, 20 */
        {{true, true}, 1, 20, 5 + 4 + 6 + 1 + 4 + 8},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_compression_costs c = costs();
        c.bucket_bytes = cases[i].bucket_bytes;
        double end = kolo_compression_plan_end(g, 2, &c, cases[i].compressed);
        if (!near(end, cases[i].end)) fail_msg("case %zu: %g", i, end);
        make_all_work(&c);
        end = kolo_compression_plan_end(g, 2, &c, cases[i].compressed);
        if (!near(end, cases[i].alone)) fail_msg("case %zu, alone: %g", i, end);
    }
    const kolo_compression_costs c = costs();
    assert_true(kolo_compression_plan_end(g, 0, &c, NULL) == 0);
}

static int count(const bool *marks, int n) {
    int set = 0;
    for (int i = 0; i < n; i++) set += marks[i];
    return set;
}

static void nothing_is_compressed_where_it_does_not_pay(void **state) {
    const kolo_ready_gradient g[] = {{1, 100, 0}, {50, 200, 0}, {100, 4, 0}};
    kolo_compression_costs c = costs();
    bool marks[3];
    ASSERT_OK(kolo_compression_plan_best(g, 3, &c, marks)); /* the backward pass hides all sums */
    assert_int_equal(count(marks, 3), 0);
    make_all_work(&c);
    ASSERT_OK(kolo_compression_plan_best(g, 3, &c, marks));
    assert_true(marks[0] && marks[1] && !marks[2]); /* a gather alone takes longer than the sum */
    c.min_bytes = 101;
    ASSERT_OK(kolo_compression_plan_best(g, 3, &c, marks));
    assert_true(!marks[0] && marks[1] && !marks[2]);
    c.encode_ms = 1; /* slower than the link */
    ASSERT_OK(kolo_compression_plan_best(g, 3, &c, marks));
    assert_int_equal(count(marks, 3), 0);
    ASSERT_OK(kolo_compression_plan_best(g, 0, &c, marks));
}

/* One alone saves no sum, two do. */
static void gradients_of_one_bucket_are_compressed_together(void **state) {
    const kolo_ready_gradient g[] = {{1, 100, 0}, {1, 100, 0}, {1, 100, 0}, {1, 100, 0}};
    kolo_compression_costs c = costs();
    bool marks[4];
    c.sum.fixed_ms = 40;
    c.gather.fixed_ms = 8;
    make_all_work(&c);
    c.bucket_bytes = 200;
    ASSERT_OK(kolo_compression_plan_best(g, 4, &c, marks));
    assert_int_equal(count(marks, 4), 2);
    assert_true(near(kolo_compression_plan_end(g, 4, &c, marks), 1 + 2 * (1 + 8 + 2 + 4) + 60));
}

/* Every choice for random gradients, against the one that descent finds. */
static void the_choice_is_the_best_of_all(void **state) {
    enum { MOST = 8, ROUNDS = 80 };
    uint32_t random = 1;
    int worse = 0;
    for (int round = 0; round < ROUNDS; round++) {
        kolo_ready_gradient g[MOST];
        bool marks[MOST];
        const int n = 1 + round % MOST;
        double ready = 0;
        for (int i = 0; i < n; i++) {
            random = random * 1664525 + 1013904223;
            ready += (double)(random >> 24 & 15);
            g[i] = (kolo_ready_gradient){ready, 1 + (random >> 8 & 255), 0};
        }
        kolo_compression_costs c = costs();
        c.sum.ms_per_byte = 0.02 * (round % 7);
        c.sum.fixed_ms = round % 4;
        c.gather.ms_per_byte = c.sum.ms_per_byte;
        if (round % 3 == 0) make_all_work(&c);
        double least = INFINITY;
        for (unsigned choice = 0; choice < 1U << n; choice++) {
            for (int i = 0; i < n; i++) marks[i] = choice >> i & 1;
            least = fmin(least, kolo_compression_plan_end(g, n, &c, marks));
        }
        ASSERT_OK(kolo_compression_plan_best(g, n, &c, marks));
        const double end = kolo_compression_plan_end(g, n, &c, marks);
        worse += !near(end, least);
        assert_true(end < 1.1 * least + 1e-9);
        memset(marks, 0, sizeof marks);
        assert_true(end <= kolo_compression_plan_end(g, n, &c, marks));
    }
    assert_in_range(worse, 0, ROUNDS / 8);
}

TEST_MAIN(test_compression_plan) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_those_of_the_model),
        cmocka_unit_test(nothing_is_compressed_where_it_does_not_pay),
        cmocka_unit_test(gradients_of_one_bucket_are_compressed_together),
        cmocka_unit_test(the_choice_is_the_best_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
