#pragma once
/* Whether the nodes of a region (pass/lanes.c) run in lanes, by the times of its first runs.
 *
 * The times of single kernels predict which regions gain by lanes. Within a step a kernel finds
 * other contents in the caches than when it runs by itself, and shares these and the memory with
 * other kernels, so a region may lose what it was predicted to gain. Its first runs therefore take
 * turns: in lanes, and one node after another, each on all threads. Then it keeps the faster way:
 * lanes only if they were faster in all pairs of runs but one, and by a least gain in the median
 * pair. What else runs on the processor changes which way is faster, so after a long rest a region
 * is tried anew. The results have the same bits either way, so each rank chooses by itself. */

#include <stdbool.h>
#include <stdint.h>

enum {
    KOLO_LANE_TRIAL_WARM_UP = 2, /* runs that are not counted, one of each way */
    KOLO_LANE_TRIAL_PAIRS = 5,
    KOLO_LANE_TRIAL_RUNS = KOLO_LANE_TRIAL_WARM_UP + 2 * KOLO_LANE_TRIAL_PAIRS,
    KOLO_LANE_TRIAL_REST = 2000, /* runs until the next trial */
};

typedef struct kolo_lane_trial {
    int first;    /* 1: the first run is in lanes; so regions beside each other take other turns */
    int runs;     /* of this trial, and of the rest behind it */
    bool forced;  /* it is always in lanes */
    bool chosen;  /* a trial has ended: */
    bool lanes;   /* the latest choice */
    double ns[2]; /* the medians, one after another and in lanes */
    double pairs[2][KOLO_LANE_TRIAL_PAIRS]; /* ns: the same of each pair */
} kolo_lane_trial;

/* A trial of the region of this number. */
kolo_lane_trial kolo_lane_trial_of(int region);
/* A region that runs in lanes without a trial. */
kolo_lane_trial kolo_lane_trial_forced(void);
/* Whether the next run is timed. */
static inline bool kolo_lane_trial_is_timed(const kolo_lane_trial *t) {
    return !t->forced && t->runs < KOLO_LANE_TRIAL_RUNS;
}
/* Whether it is in lanes. */
bool kolo_lane_trial_in_lanes(const kolo_lane_trial *trial);
/* Adds a run, and its time if it is timed. */
void kolo_lane_trial_add(kolo_lane_trial *trial, int64_t ns);
