#include "plan/lane_trial.h"

#include "base/number.h"

/* Of the time of a pair, in the median. */
static const double least_gain = 0.02;

kolo_lane_trial kolo_lane_trial_of(int region) { return (kolo_lane_trial){.first = region % 2}; }

kolo_lane_trial kolo_lane_trial_forced(void) {
    return (kolo_lane_trial){.forced = true, .chosen = true, .lanes = true};
}

bool kolo_lane_trial_in_lanes(const kolo_lane_trial *t) {
    return kolo_lane_trial_is_timed(t) ? (t->runs + t->first) % 2 == 1 : t->lanes;
}

static void choose(kolo_lane_trial *t) {
    const int n = KOLO_LANE_TRIAL_PAIRS;
    double ratios[KOLO_LANE_TRIAL_PAIRS];
    for (int i = 0; i < n; i++) ratios[i] = t->pairs[1][i] / t->pairs[0][i];
    kolo_sort_doubles(ratios, (size_t)n);
    t->chosen = true;
    t->lanes = ratios[n / 2] <= 1 - least_gain && ratios[n - 2] < 1;
    for (int way = 0; way < 2; way++) {
        kolo_sort_doubles(t->pairs[way], (size_t)n);
        t->ns[way] = t->pairs[way][n / 2];
    }
}

void kolo_lane_trial_add(kolo_lane_trial *t, int64_t ns) {
    const int i = t->runs - KOLO_LANE_TRIAL_WARM_UP;
    const bool timed = kolo_lane_trial_is_timed(t);
    if (timed && i >= 0) t->pairs[kolo_lane_trial_in_lanes(t)][i / 2] = (double)ns;
    t->runs++;
    if (timed && t->runs == KOLO_LANE_TRIAL_RUNS) choose(t);
    if (t->runs == KOLO_LANE_TRIAL_RUNS + KOLO_LANE_TRIAL_REST) t->runs = 0;
}
