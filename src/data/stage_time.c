/* Processor time of stages. */
#include "data/stage_time.h"

#include <time.h>

void kolo_stage_time_add(int64_t *stage_ns, kolo_loader_stage stage, int64_t *since) {
    struct timespec t;
    if (!stage_ns) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    const int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    const int64_t took = now - *since - stage_ns[KOLO_LOADER_STAGES];
    if (*since > 0 && took > 0) stage_ns[stage] += took;
    *since = now;
}

void kolo_stage_time_init(int64_t *stage_ns) {
    enum { READINGS = 100 };
    int64_t since = 0, least = INT64_MAX;
    for (int s = 0; s < KOLO_STAGE_TIMES; s++) stage_ns[s] = 0;
    for (int i = 0; i < READINGS; i++) {
        stage_ns[0] = 0;
        kolo_stage_time_add(stage_ns, (kolo_loader_stage)0, &since);
        if (i > 0 && stage_ns[0] < least) least = stage_ns[0];
    }
    stage_ns[0] = 0;
    stage_ns[KOLO_LOADER_STAGES] = least;
}
