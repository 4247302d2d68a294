/* The quantiles of step times in bounded memory. */
#include "base/compiler.h"
#include "support/support.h"
#include "train/record/step_times.h"

#include <math.h>

static double median_of(kolo_step_times *times) {
    double q[3];
    kolo_step_times_quantiles_ms(times, 3, q);
    return q[1];
}

static void medians_are_exact_while_all_is_kept(void **state) {
    static const struct {
        int64_t ms[5];
        int n;
        double median;
    } cases[] = {{{0}, 0, 0},
                 {{7}, 1, 7},
                 {{9, 1}, 2, 5},
                 {{9, 1, 2}, 3, 2},
                 {{4, 1, 3, 2}, 4, 2.5},
                 {{5, 5, 1, 9, 100}, 5, 5}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_step_times times;
        ASSERT_OK(kolo_step_times_init(&times, cases[i].n));
        for (int k = 0; k < cases[i].n; k++) kolo_step_times_add(&times, cases[i].ms[k] * 1000000);
        assert_true(median_of(&times) == cases[i].median);
        kolo_step_times_fini(&times);
    }
}

static void quantiles_lie_between_the_nearest_times(void **state) {
    kolo_step_times times;
    double q[5];
    ASSERT_OK(kolo_step_times_init(&times, 3));
    kolo_step_times_add(&times, 8000000);
    kolo_step_times_add(&times, 2000000);
    kolo_step_times_add(&times, 4000000);
    kolo_step_times_quantiles_ms(&times, 5, q);
    const double expected[5] = {2, 3, 4, 6, 8};
    for (int i = 0; i < 5; i++) assert_true(q[i] == expected[i]);
    kolo_step_times_fini(&times);
}

static void cleared_times_are_forgotten(void **state) {
    kolo_step_times times;
    ASSERT_OK(kolo_step_times_init(&times, 2));
    for (int i = 0; i < 9; i++) kolo_step_times_add(&times, 1000000); /* thinned */
    kolo_step_times_clear(&times);
    assert_true(median_of(&times) == 0);
    kolo_step_times_add(&times, 2000000);
    kolo_step_times_add(&times, 4000000);
    assert_true(median_of(&times) == 3);
    kolo_step_times_fini(&times);
}

/* A million times 0, 1, 2, ... ms: the recorded ones stay evenly spread. */
static void long_runs_keep_an_even_part(void **state) {
    const int64_t n = 1000000;
    kolo_step_times times;
    ASSERT_OK(kolo_step_times_init(&times, n));
    size_t capacity = times.capacity;
    assert_true(capacity < (size_t)n / 10);
    for (int64_t i = 0; i < n; i++) kolo_step_times_add(&times, i * 1000000);
    assert_int_equal(times.capacity, capacity);
    assert_true(times.count > capacity / 2 - 1);
    for (size_t i = 0; i < times.count; i++) {
        assert_int_equal(times.ns[i], (int64_t)i * times.stride * 1000000);
    }
    double median = median_of(&times);
    assert_true(fabs(median - (double)n / 2) < (double)n / 1000);
    kolo_step_times_fini(&times);
}

TEST_MAIN(test_step_times) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_are_exact_while_all_is_kept),
        cmocka_unit_test(cleared_times_are_forgotten),
        cmocka_unit_test(quantiles_lie_between_the_nearest_times),
        cmocka_unit_test(long_runs_keep_an_even_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
