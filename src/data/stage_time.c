/* Processor time of stages. */
#include "data/stage_time.h"

#include <time.h>

void kolo_stage_time_add(int64_t *stage_ns, kolo_loader_stage stage, int64_t *since) {
    struct timespec t;
    if (!stage_ns) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    const int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    if (*since > 0) stage_ns[stage] += now - *since;
    *since = now;
}
