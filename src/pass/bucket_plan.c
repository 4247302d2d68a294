/* Plans of buckets: their times, and the best one by dynamic programming. */
#include "pass/bucket_plan.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static double sum_ms(const kolo_sum_time *sum, size_t bytes) {
    return sum->fixed_ms + sum->ms_per_byte * (double)bytes;
}

kolo_bucket_times kolo_bucket_plan_times(const kolo_ready_gradient *gradients, int n,
                                         const kolo_sum_time *sum, const bool *ends) {
    kolo_bucket_times t = {0};
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += gradients[i].bytes;
        if (!ends[i] && i < n - 1) continue;
        const double ms = sum_ms(sum, bytes);
        t.buckets++;
        t.sums_ms += ms;
        t.end_ms = fmax(t.end_ms, gradients[i].ready_ms) + ms;
        bytes = 0;
    }
    if (!sum->overlaps && n > 0) t.end_ms = gradients[n - 1].ready_ms + t.sums_ms;
    return t;
}

void kolo_bucket_plan_fixed(const kolo_ready_gradient *gradients, int n, size_t bytes, bool *ends) {
    size_t filled = 0;
    for (int i = 0; i < n; i++) {
        filled += gradients[i].bytes;
        ends[i] = filled >= bytes || i == n - 1;
        if (ends[i]) filled = 0;
    }
}

/* Of the first j gradients, in buckets that end as early as possible. */
typedef struct best {
    double end_ms;
    int buckets;
    int last; /* the first gradient of the last bucket */
} best;

/* Fills of[1 .. n]. */
static void find_best(const kolo_ready_gradient *gradients, int n, const kolo_sum_time *sum,
                      best *of) {
    of[0] = (best){0};
    for (int j = 1; j <= n; j++) {
        size_t bytes = 0;
        of[j] = (best){.end_ms = INFINITY};
        for (int i = j - 1; i >= 0; i--) { /* the last bucket holds gradients i to j - 1 */
            bytes += gradients[i].bytes;
            const double begin = fmax(of[i].end_ms, gradients[j - 1].ready_ms);
            const best b = {begin + sum_ms(sum, bytes), of[i].buckets + 1, i};
            const bool fewer = b.end_ms == of[j].end_ms && b.buckets < of[j].buckets;
            if (b.end_ms < of[j].end_ms || fewer) of[j] = b;
        }
    }
}

kolo_status kolo_bucket_plan_best(const kolo_ready_gradient *gradients, int n,
                                  const kolo_sum_time *sum, bool *ends) {
    memset(ends, 0, (size_t)n * sizeof *ends);
    if (n == 0) return KOLO_OK;
    ends[n - 1] = true;
    if (!sum->overlaps) return KOLO_OK; /* one bucket has the least fixed time */
    best *of = kolo_alloc(((size_t)n + 1) * sizeof *of);
    if (!of) return KOLO_NOMEM((size_t)n * sizeof *of);
    find_best(gradients, n, sum, of);
    for (int j = n; j > 0; j = of[j].last) ends[j - 1] = true;
    kolo_free(of);
    return KOLO_OK;
}
