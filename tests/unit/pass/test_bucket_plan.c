/* Plans of buckets: times by hand, and the best plan against all plans. */
#include "base/compiler.h"
#include "pass/bucket_plan.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void times_are_those_of_the_formula(void **state) {
    const kolo_ready_gradient g[] = {{1, 10, 0}, {2, 20, 0}, {7, 30, 0}};
    static const kolo_sum_time waits = {1, 0.1, 0, 0}, half = {1, 0.1, 0.5, 0.05},
                               works = {1, 0.1, 1, 0.1}, slower = {1, 0.1, 2, 0.2};
    static const struct {
        bool ends[3];
        int buckets;
        double sums, end, half, early, alone; /* half: of sums is work; alone: all is */
    } cases[] = {
        /* 1 to 3, 3 to 6, 7 to 11. Half: waits 1 to 2, 2 to 3.5, 7 to 9; work 1 + 1.5 + 2, of which
           the first two are before 7. */
        {{true, true, true}, 3, 9, 11, 9 + 4.5, 2.5, 16},
        /* 2 to 6, 7 to 11; half: 2 to 4, 7 to 9 */
        {{false, true, true}, 2, 8, 11, 9 + 4, 2, 15},
        /* 1 to 3, 7 to 13; half: 1 to 2, 7 to 10 */
        {{true, false, true}, 2, 8, 13, 10 + 4, 1, 15},
        /* 7 to 14; the last gradient ends a bucket in any case */
        {{false, false, false}, 1, 7, 14, 14, 0, 14},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_bucket_times t = kolo_bucket_plan_times(g, 3, &waits, cases[i].ends);
        assert_int_equal(t.buckets, cases[i].buckets);
        assert_true(near(t.sums_ms, cases[i].sums) && near(t.end_ms, cases[i].end));
        assert_true(t.work_ms == 0 && t.early_work_ms == 0);
        t = kolo_bucket_plan_times(g, 3, &half, cases[i].ends);
        assert_true(near(t.sums_ms, cases[i].sums) && near(t.work_ms, cases[i].sums / 2));
        assert_true(near(t.end_ms, cases[i].half) && near(t.early_work_ms, cases[i].early));
        t = kolo_bucket_plan_times(g, 3, &works, cases[i].ends);
        assert_true(near(t.sums_ms, cases[i].sums) && near(t.work_ms, cases[i].sums));
        assert_true(near(t.end_ms, cases[i].alone));
        t = kolo_bucket_plan_times(g, 3, &slower, cases[i].ends); /* beside kernels than alone */
        assert_true(near(t.sums_ms, 2 * cases[i].sums) && near(t.end_ms, 7 + 2 * cases[i].sums));
    }
    assert_int_equal(kolo_bucket_plan_times(g, 0, &waits, NULL).buckets, 0);
}

/* The last gradient is complete in the middle of a sum, and so is half of its work. */
static void work_stretches_the_backward_pass_in_proportion(void **state) {
    const kolo_ready_gradient g[] = {{1, 40, 0}, {3, 0, 0}};
    const kolo_sum_time sum = {0, 0.2, 0, 0.1};
    const bool ends[] = {true, true};
    kolo_bucket_times t = kolo_bucket_plan_times(g, 2, &sum, ends); /* waits 1 to 5 */
    assert_true(near(t.early_work_ms, 2) && near(t.work_ms, 4) && near(t.end_ms, 9));
}

/* A sum that the next step needs late begins no earlier. */
static void work_begins_when_the_gradient_is_complete(void **state) {
    const kolo_ready_gradient g[] = {{1, 40, 4}, {3, 0, 0}};
    const kolo_sum_time sum = {0, 0.2, 0, 0.1};
    const bool ends[] = {true, true};
    kolo_bucket_times t = kolo_bucket_plan_times(g, 2, &sum, ends); /* waits 1 to 5 */
    assert_true(near(t.early_work_ms, 2) && near(t.work_ms, 4));
}

/* The network waits for the second bucket, so that two end earlier, unless there is much work in
 * each. */
static void work_in_each_bucket_makes_buckets_fewer(void **state) {
    const kolo_ready_gradient g[] = {{0, 10, 0}, {10, 10, 0}};
    kolo_sum_time sum = {1, 1, 0.5, 0.5};
    bool ends[2];
    ASSERT_OK(
        kolo_bucket_plan_best(g, 2, 2, &sum, ends)); /* 15.5 and 11 of work; one: 20.5, 10.5 */
    assert_true(ends[0] && ends[1]);
    sum = (kolo_sum_time){6, 1, 6, 0.5}; /* 15 and 22 of work; one: 20 and 16 */
    ASSERT_OK(kolo_bucket_plan_best(g, 2, 2, &sum, ends));
    assert_true(!ends[0] && ends[1]);
}

static void fixed_buckets_end_when_they_are_full(void **state) {
    const kolo_ready_gradient g[] = {{0, 3, 0}, {1, 3, 0}, {2, 9, 0}, {3, 1, 0}, {4, 1, 0}};
    bool ends[5];
    kolo_bucket_plan_fixed(g, 5, 5, ends);
    assert_true(!ends[0] && ends[1] && ends[2] && !ends[3] && ends[4]);
    kolo_bucket_plan_fixed(g, 5, 1, ends);
    assert_true(ends[0] && ends[1] && ends[2] && ends[3] && ends[4]);
}

enum { MOST = 10 };

static int draw(uint32_t *random, int below) {
    *random = *random * 1664525 + 1013904223;
    return (int)(*random >> 8) % below;
}

/* Gradients of which the next forward pass, if `later`, needs those first that are complete last,
 * and the last one at its beginning. All times are whole numbers. */
static void draw_gradients(uint32_t *random, bool later, kolo_ready_gradient *g, int n) {
    double ready = 0, needed = 0;
    for (int i = 0; i < n; i++) {
        ready += draw(random, 16);
        g[i] = (kolo_ready_gradient){.ready_ms = ready, .bytes = 1 + (size_t)draw(random, 256)};
    }
    for (int i = n - 2; i >= 0 && later; i--) {
        needed += draw(random, 16);
        g[i].needed_ms = needed;
    }
}

/* When the forward pass of the next step would begin if it waited at its beginning for all that it
 * waits: by ticks of 1 ms, in which the link is with the latest bucket that is complete. */
static double begin_by_ticks(const kolo_ready_gradient *g, int n, const kolo_sum_time *sum,
                             const bool *ends) {
    double left[MOST], latest = -INFINITY; /* left: of a bucket, by its last gradient */
    size_t bytes = 0;
    int buckets = 0;
    for (int i = 0; i < n; i++) {
        bytes += g[i].bytes;
        left[i] = ends[i] ? kolo_sum_wait_ms(sum, (double)bytes) : 0;
        buckets += ends[i] && left[i] > 0;
        if (ends[i]) bytes = 0;
        if (ends[i]) latest = fmax(latest, g[i].ready_ms - g[i].needed_ms); /* without waiting */
    }
    for (int now = 0; buckets > 0; now++) {
        int i = n - 1;
        while (i >= 0 && (left[i] == 0 || g[i].ready_ms > now)) i--;
        if (i < 0 || --left[i] > 0) continue;
        latest = fmax(latest, now + 1 - g[i].needed_ms);
        buckets--;
    }
    return latest;
}

static void the_next_step_begins_when_its_sums_have_ended(void **state) {
    static const kolo_sum_time sum = {.fixed_ms = 2, .ms_per_byte = 0.125};
    uint32_t random = 3;
    int hidden = 0; /* plans whose last sum ends after the next step begins */
    for (int round = 0; round < 300; round++) {
        kolo_ready_gradient g[MOST];
        bool ends[MOST];
        const int n = 1 + round % MOST;
        draw_gradients(&random, true, g, n);
        for (int i = 0; i < n; i++) {
            g[i].bytes = (g[i].bytes + 7) / 8 * 8;
            ends[i] = i == n - 1 || draw(&random, 2);
        }
        const kolo_bucket_times t = kolo_bucket_plan_times(g, n, &sum, ends);
        assert_true(near(t.end_ms, begin_by_ticks(g, n, &sum, ends)));
        for (int i = 0; i < n; i++) g[i].needed_ms = 0;
        hidden += kolo_bucket_plan_times(g, n, &sum, ends).end_ms > t.end_ms + 1e-9;
    }
    assert_in_range(hidden, 100, 299);
}

/* The end of the best plan of at most `most` buckets, of all plans, and the fewest of them. */
static double try_all(const kolo_ready_gradient *g, int n, int most, const kolo_sum_time *sum,
                      int *fewest) {
    double least = INFINITY;
    *fewest = 0;
    for (int plan = 0; plan < 1 << (n - 1); plan++) {
        bool ends[MOST];
        for (int i = 0; i < n; i++) ends[i] = i == n - 1 || plan >> i & 1;
        kolo_bucket_times t = kolo_bucket_plan_times(g, n, sum, ends);
        if (t.buckets > most) continue;
        if (t.end_ms < least - 1e-9) *fewest = n + 1;
        least = fmin(least, t.end_ms);
        if (t.end_ms < least + 1e-9 && t.buckets < *fewest) *fewest = t.buckets;
    }
    return least;
}

/* Every plan of random gradients, against the best one. All numbers are exact in binary. */
static void the_best_plan_is_the_best_of_all(void **state) {
    uint32_t random = 1;
    for (int round = 0; round < 120; round++) {
        kolo_ready_gradient g[MOST];
        bool ends[MOST];
        const int n = 1 + round % MOST, most = round % 3 ? n : 1 + round % 4;
        draw_gradients(&random, round % 4 > 1, g, n);
        kolo_sum_time sum = {(double)(round % 7), 0.03125 * (round % 4), 0, 0};
        const double part = round % 5 * 0.25; /* of work */
        sum.work_fixed_ms = round % 2 ? part * sum.fixed_ms : 0.5;
        sum.work_ms_per_byte = part * sum.ms_per_byte;
        int fewest;
        const double least = try_all(g, n, most, &sum, &fewest);
        ASSERT_OK(kolo_bucket_plan_best(g, n, most, &sum, ends));
        kolo_bucket_times best = kolo_bucket_plan_times(g, n, &sum, ends);
        assert_true(near(best.end_ms, least));
        assert_true(ends[n - 1]);
        assert_int_equal(best.buckets, fewest);
    }
}

TEST_MAIN(test_bucket_plan) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_those_of_the_formula),
        cmocka_unit_test(work_stretches_the_backward_pass_in_proportion),
        cmocka_unit_test(work_begins_when_the_gradient_is_complete),
        cmocka_unit_test(work_in_each_bucket_makes_buckets_fewer),
        cmocka_unit_test(fixed_buckets_end_when_they_are_full),
        cmocka_unit_test(the_next_step_begins_when_its_sums_have_ended),
        cmocka_unit_test(the_best_plan_is_the_best_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
