/* Step times: thinning, the median and other quantiles. */
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

void kolo_step_times_quantiles_ms(kolo_step_times *times, size_t n, double *quantiles) {
    if (times->count > 0) qsort(times->ns, times->count, sizeof *times->ns, compare);
    for (size_t i = 0; i < n; i++) {
        quantiles[i] = 0;
        if (times->count == 0) continue;
        size_t scaled = i * (times->count - 1), low = scaled / (n - 1), part = scaled % (n - 1);
        double a = (double)times->ns[low], b = (double)times->ns[low + (part > 0)];
        quantiles[i] = (a + (b - a) * (double)part / (double)(n - 1)) / 1e6;
    }
}

void kolo_step_times_clear(kolo_step_times *times) {
    times->count = 0;
    times->seen = 0;
    times->stride = 1;
}

void kolo_step_times_fini(kolo_step_times *times) {
    kolo_free(times->ns);
    *times = (kolo_step_times){0};
}
