/* Whole numbers in floats: sums are exact, and whatever another process writes is a number. */
#include "base/compiler.h"
#include "comm/sync/summed.h"
#include "support/support.h"

#include <math.h>

static void sums_are_exact(void **state) {
    static const int64_t numbers[] = {0, 1, 4095, 4096, (INT64_C(1) << 36) - 1, 1234567890123};
    for (size_t i = 0; i < KOLO_COUNT(numbers); i++) {
        const int64_t number = numbers[i] & ((INT64_C(1) << 36) - 1);
        float one[KOLO_SUMMED_FLOATS];
        kolo_summed_set(one, number);
        ASSERT_OK(kolo_summed_check(one, 1));
        assert_true(kolo_summed_get(one) == number);
    }
    float sum[KOLO_SUMMED_FLOATS] = {0}, one[KOLO_SUMMED_FLOATS];
    int64_t all = 0;
    for (int64_t i = 0; i < 4096; i++) {
        const int64_t number = i * i + 4095;
        kolo_summed_set(one, number);
        for (int k = 0; k < KOLO_SUMMED_FLOATS; k++) sum[k] += one[k];
        all += number;
    }
    ASSERT_OK(kolo_summed_check(sum, 1));
    assert_true(kolo_summed_get(sum) == all);
}

static void any_floats_are_a_number(void **state) {
    static const float strange[] = {NAN, -NAN,   INFINITY, -INFINITY, 1e38F,   -1e38F,
                                    -1,  -0.25F, 0x1p25F,  0x1p63F,   0x1p64F, 1e-40F};
    for (size_t i = 0; i < KOLO_COUNT(strange); i++) {
        for (size_t k = 0; k < KOLO_COUNT(strange); k++) {
            const float summed[] = {strange[i], strange[k]};
            const int64_t number = kolo_summed_get(summed);
            assert_true(number >= 0 && number <= INT64_C(1) << 49);
        }
        const float second[] = {0, 1, 0, strange[i]};
        assert_int_equal(kolo_summed_check(second, 2), KOLO_ERR_FORMAT);
        ASSERT_OK(kolo_summed_check(second, 1));
    }
}

TEST_MAIN(test_summed) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(any_floats_are_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
