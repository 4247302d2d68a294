/* Plans of buckets: times by hand, and the best plan against all plans. */
#include "base/compiler.h"
#include "pass/bucket_plan.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void times_are_those_of_the_formula(void **state) {
    const kolo_ready_gradient g[] = {{1, 10}, {2, 20}, {7, 30}};
    kolo_sum_time sum = {.fixed_ms = 1, .ms_per_byte = 0.1, .overlaps = true};
    static const struct {
        bool ends[3];
        int buckets;
        double sums, end, alone; /* alone: without overlap */
    } cases[] = {
        /* 1 to 3, 3 to 6, 7 to 11 */
        {{true, true, true}, 3, 9, 11, 16},
        /* 2 to 6, 7 to 11 */
        {{false, true, true}, 2, 8, 11, 15},
        /* 1 to 3, 7 to 13 */
        {{true, false, true}, 2, 8, 13, 15},
        /* 7 to 14; the last gradient ends a bucket in any case */
        {{false, false, false}, 1, 7, 14, 14},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        sum.overlaps = true;
        kolo_bucket_times t = kolo_bucket_plan_times(g, 3, &sum, cases[i].ends);
        assert_int_equal(t.buckets, cases[i].buckets);
        assert_true(near(t.sums_ms, cases[i].sums) && near(t.end_ms, cases[i].end));
        sum.overlaps = false;
        t = kolo_bucket_plan_times(g, 3, &sum, cases[i].ends);
        assert_true(near(t.end_ms, cases[i].alone));
    }
    assert_int_equal(kolo_bucket_plan_times(g, 0, &sum, NULL).buckets, 0);
}

static void fixed_buckets_end_when_they_are_full(void **state) {
    const kolo_ready_gradient g[] = {{0, 3}, {1, 3}, {2, 9}, {3, 1}, {4, 1}};
    bool ends[5];
    kolo_bucket_plan_fixed(g, 5, 5, ends);
    assert_true(!ends[0] && ends[1] && ends[2] && !ends[3] && ends[4]);
    kolo_bucket_plan_fixed(g, 5, 1, ends);
    assert_true(ends[0] && ends[1] && ends[2] && ends[3] && ends[4]);
}

/* Every plan of random gradients, against the best one. */
static void the_best_plan_is_the_best_of_all(void **state) {
    enum { MOST = 10 };
    uint32_t random = 1;
    for (int round = 0; round < 60; round++) {
        kolo_ready_gradient g[MOST];
        bool ends[MOST];
        const int n = 1 + round % MOST;
        double ready = 0;
        for (int i = 0; i < n; i++) {
            random = random * 1664525 + 1013904223;
            ready += (double)(random >> 24 & 15);
            g[i] = (kolo_ready_gradient){ready, 1 + (random >> 8 & 255)};
        }
        const kolo_sum_time sum = {(double)(round % 7), 0.03 * (round % 4), round % 5 != 0};
        double least = INFINITY;
        int fewest = 0;
        for (int plan = 0; plan < 1 << (n - 1); plan++) {
            for (int i = 0; i < n; i++) ends[i] = i == n - 1 || plan >> i & 1;
            kolo_bucket_times t = kolo_bucket_plan_times(g, n, &sum, ends);
            if (t.end_ms < least - 1e-9) fewest = n + 1;
            least = fmin(least, t.end_ms);
            if (t.end_ms < least + 1e-9 && t.buckets < fewest) fewest = t.buckets;
        }
        ASSERT_OK(kolo_bucket_plan_best(g, n, &sum, ends));
        kolo_bucket_times best = kolo_bucket_plan_times(g, n, &sum, ends);
        assert_true(near(best.end_ms, least));
        assert_true(ends[n - 1] && best.buckets >= fewest);
    }
}

TEST_MAIN(test_bucket_plan) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_those_of_the_formula),
        cmocka_unit_test(fixed_buckets_end_when_they_are_full),
        cmocka_unit_test(the_best_plan_is_the_best_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
