/* Step times: thinning and the median. */
#include "train/record/step_times.h"

#include "base/integer.h"
#include "base/memory.h"

#include <stdlib.h>

enum { MAX_TIMES = 1 << 16 };

kolo_status kolo_step_times_init(kolo_step_times *times, int64_t steps) {
    size_t capacity = (size_t)kolo_max_i64(2, kolo_min_i64(steps, MAX_TIMES));
    *times = (kolo_step_times){.capacity = capacity, .stride = 1};
    times->ns = kolo_alloc(capacity * sizeof *times->ns);
    return times->ns ? KOLO_OK : KOLO_NOMEM(capacity * sizeof *times->ns);
}

void kolo_step_times_add(kolo_step_times *times, int64_t ns) {
    if (times->seen++ % times->stride != 0) return;
    if (times->count == times->capacity) {
        times->count = (times->count + 1) / 2;
        for (size_t i = 0; i < times->count; i++) times->ns[i] = times->ns[2 * i];
        times->stride *= 2;
        if ((times->seen - 1) % times->stride != 0) return;
    }
    times->ns[times->count++] = ns;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double kolo_step_times_median_ms(kolo_step_times *times) {
    size_t n = times->count;
    if (n == 0) return 0;
    qsort(times->ns, n, sizeof *times->ns, compare);
    int64_t low = times->ns[(n - 1) / 2], high = times->ns[n / 2];
    return ((double)low + (double)high) / 2e6;
}

void kolo_step_times_fini(kolo_step_times *times) {
    kolo_free(times->ns);
    *times = (kolo_step_times){0};
}
