/* Leases: whoever takes them and whoever is lost, each is acknowledged once, and in the order of
 * the counter but for those that return. */
#include "base/rng.h"
#include "comm/sync/leases.h"
#include "support/support.h"

enum { WORKERS = 5, NUMBERS = 200 };

static void each_lease_is_acknowledged_once(void **state) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        int done[NUMBERS] = {0}, left = NUMBERS;
        uint64_t held[WORKERS][KOLO_LEASES_MOST] = {{0}}, number;
        bool lost[WORKERS] = {false};
        kolo_rng rng = kolo_rng_make(seed, 1, 0);
        kolo_leases *l;
        ASSERT_OK(kolo_leases_create(WORKERS, 1000, &l));
        for (uint64_t k = 0; left > 0; k++) {
            assert_true(k < 100000);
            const int w = (int)kolo_rng_below(&rng, 2 * k, WORKERS);
            const uint64_t what = kolo_rng_below(&rng, 2 * k + 1, 100);
            const int n = kolo_leases_of(l, w);
            if (lost[w]) continue;
            if (what == 0 && w > 0) {
                kolo_leases_return(l, w);
                lost[w] = true;
            } else if (what < 50 && n > 0) {
                assert_int_equal(++done[held[w][0] - 1000], 1);
                for (int i = 0; i + 1 < n; i++) held[w][i] = held[w][i + 1];
                kolo_leases_acknowledge(l, w);
                left--;
            } else if (n < KOLO_LEASES_MOST && kolo_leases_take(l, w, 1000 + NUMBERS, &number)) {
                assert_true(number >= 1000 && number < 1000 + NUMBERS);
                held[w][n] = number;
            }
        }
        assert_int_equal(kolo_leases_out(l), 0);
        assert_false(kolo_leases_take(l, 0, 1000 + NUMBERS, &number));
        kolo_leases_destroy(l);
    }
}

static void returned_leases_come_first(void **state) {
    static const uint64_t wanted[] = {0, 2, 3, 4};
    uint64_t number;
    kolo_leases *l;
    ASSERT_OK(kolo_leases_create(3, 0, &l));
    for (int i = 0; i < 5; i++)
        assert_true(kolo_leases_take(l, i % 2, 5, &number)); /* 0 2 4, 1 3 */
    kolo_leases_acknowledge(l, 1);
    kolo_leases_acknowledge(l, 2); /* has none */
    kolo_leases_return(l, 1);
    assert_true(kolo_leases_take(l, 2, 5, &number) && number == 3);
    kolo_leases_return(l, 2);
    kolo_leases_return(l, 0);
    assert_int_equal(kolo_leases_out(l), 0);
    for (int i = 0; i < 4; i++) {
        if (i == 3) kolo_leases_acknowledge(l, 1); /* 0 */
        assert_true(kolo_leases_take(l, 1, 6, &number));
        assert_int_equal(number, wanted[i]);
    }
    assert_true(kolo_leases_take(l, 0, 6, &number) && number == 5);
    assert_false(kolo_leases_take(l, 0, 6, &number));
    assert_int_equal(kolo_leases_of(l, 1), 3);
    kolo_leases_destroy(l);
}

TEST_MAIN(test_leases) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lease_is_acknowledged_once),
        cmocka_unit_test(returned_leases_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
