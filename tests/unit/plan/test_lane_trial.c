/* Whether regions run in lanes, by the times of their first runs. */
#include "base/compiler.h"
#include "plan/lane_trial.h"
#include "support/support.h"

enum { MS = 1000000 };

/* Runs a trial of pairs of these times in ms, one after another and in lanes. */
static kolo_lane_trial tried(int region, const double pairs[KOLO_LANE_TRIAL_PAIRS][2]) {
    kolo_lane_trial t = kolo_lane_trial_of(region);
    for (int i = 0; i < KOLO_LANE_TRIAL_RUNS; i++) {
        const int pair = (i - KOLO_LANE_TRIAL_WARM_UP) / 2;
        const bool lanes = kolo_lane_trial_in_lanes(&t);
        assert_true(kolo_lane_trial_is_timed(&t) && !t.chosen);
        if (i >= KOLO_LANE_TRIAL_WARM_UP) {
            kolo_lane_trial_add(&t, (int64_t)(pairs[pair][lanes] * MS));
        } else { /* the first runs do not count */
            kolo_lane_trial_add(&t, (lanes ? 1 : 1000) * MS);
        }
    }
    assert_true(!kolo_lane_trial_is_timed(&t) && t.chosen);
    assert_int_equal(kolo_lane_trial_in_lanes(&t), t.lanes);
    return t;
}

static void lanes_are_chosen_where_they_gain(void **state) {
    static const struct {
        const char *what;
        double pairs[KOLO_LANE_TRIAL_PAIRS][2];
        bool lanes;
    } cases[] = {
        {"faster", {{10, 9}, {10, 9}, {10, 9}, {10, 9}, {10, 9}}, true},
        {"slower", {{10, 11}, {10, 11}, {10, 11}, {10, 11}, {10, 11}}, false},
        {"the same", {{10, 10}, {10, 10}, {10, 10}, {10, 10}, {10, 10}}, false},
        {"too little", {{10, 9.9}, {10, 9.9}, {10, 9.9}, {10, 9.9}, {10, 9.9}}, false},
        {"one disturbed run in lanes", {{10, 9}, {10, 9}, {10, 90}, {10, 9}, {10, 9}}, true},
        {"one without", {{10, 11}, {10, 11}, {100, 11}, {10, 11}, {10, 11}}, false},
        {"noise", {{10, 9}, {9, 10}, {10, 9}, {9, 10}, {10, 9}}, false},
        {"a drift", {{10, 9}, {20, 18}, {40, 36}, {80, 72}, {160, 144}}, true},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int region = 1; region < 3; region++) {
            const kolo_lane_trial t = tried(region, cases[i].pairs);
            if (t.lanes != cases[i].lanes) fail_msg("%s, region %d", cases[i].what, region);
        }
    }
}

static void medians_are_kept(void **state) {
    const kolo_lane_trial t =
        tried(1, (const double[][2]){{14, 9}, {10, 6}, {11, 8}, {13, 5}, {12, 7}});
    assert_true(t.ns[0] == 12.0 * MS && t.ns[1] == 7.0 * MS);
}

/* So that each finds its neighbours in either way. */
static void neighbours_take_other_turns(void **state) {
    kolo_lane_trial a = kolo_lane_trial_of(1), b = kolo_lane_trial_of(2);
    for (int i = 0; i < KOLO_LANE_TRIAL_RUNS; i++) {
        assert_int_equal(kolo_lane_trial_in_lanes(&a), !kolo_lane_trial_in_lanes(&b));
        assert_int_equal(kolo_lane_trial_in_lanes(&a), i % 2 == 0);
        kolo_lane_trial_add(&a, MS);
        kolo_lane_trial_add(&b, MS);
    }
}

/* With the choice of the trial before until the next one ends. */
static void regions_are_tried_anew_after_a_rest(void **state) {
    kolo_lane_trial t = tried(1, (const double[][2]){{2, 1}, {2, 1}, {2, 1}, {2, 1}, {2, 1}});
    for (int i = 0; i < KOLO_LANE_TRIAL_REST; i++) {
        assert_true(!kolo_lane_trial_is_timed(&t) && kolo_lane_trial_in_lanes(&t));
        kolo_lane_trial_add(&t, 0);
    }
    for (int i = 0; i < KOLO_LANE_TRIAL_RUNS; i++) {
        assert_true(kolo_lane_trial_is_timed(&t) && t.chosen && t.lanes);
        kolo_lane_trial_add(&t, kolo_lane_trial_in_lanes(&t) ? 2 * MS : MS);
    }
    assert_false(kolo_lane_trial_is_timed(&t) || kolo_lane_trial_in_lanes(&t));
}

static void forced_regions_are_not_tried(void **state) {
    kolo_lane_trial t = kolo_lane_trial_forced();
    for (int i = 0; i < KOLO_LANE_TRIAL_RUNS + 1; i++) {
        assert_true(!kolo_lane_trial_is_timed(&t) && kolo_lane_trial_in_lanes(&t));
        kolo_lane_trial_add(&t, MS);
    }
}

TEST_MAIN(test_lane_trial) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_chosen_where_they_gain),
        cmocka_unit_test(medians_are_kept),
        cmocka_unit_test(neighbours_take_other_turns),
        cmocka_unit_test(regions_are_tried_anew_after_a_rest),
        cmocka_unit_test(forced_regions_are_not_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
