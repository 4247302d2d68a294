/* Lines through the measured times of collectives. */
#include "train/session/sum_time.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"

#include <math.h>

/* a + b bytes, in ms. */
typedef struct line {
    double fixed, per_byte;
} line;

/* The line through the times of n rows, or the work in them, whose squared errors count in relation
 * to the times. */
static line fit(const kolo_bench_row *rows, int n, bool work) {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < n; i++) {
        const double weight = 1 / (rows[i].us_median * rows[i].us_median);
        const double bytes = (double)rows[i].bytes;
        const double ms = (work ? rows[i].us_work : rows[i].us_median) / 1e3;
        if (isnan(ms)) continue;
        w += weight;
        x += weight * bytes;
        y += weight * ms;
        xx += weight * bytes * bytes;
        xy += weight * bytes * ms;
    }
    if (w == 0) return (line){0};
    const double below = w * xx - x * x;
    const double slope = below > 0 ? fmax(0, (w * xy - x * y) / below) : 0;
    return (line){fmax(0, (y - slope * x) / w), slope};
}

kolo_sum_time kolo_sum_time_fit(const kolo_bench_row *rows, int n) {
    const line time = fit(rows, n, false), work = fit(rows, n, true);
    return (kolo_sum_time){time.fixed, time.per_byte, work.fixed, work.per_byte};
}

kolo_status kolo_sum_time_goes_on(kolo_comm *comm, const kolo_bench_row *rows, int n, size_t bytes,
                                  int calls, int64_t left_ns, bool *goes_on) {
    *goes_on = n < 2;
    if (n < 2) return KOLO_OK;
    const double grows = (double)bytes / (double)rows[n - 1].bytes;
    uint8_t yes = calls * rows[n - 1].us_median * grows * 1e3 <= (double)left_ns;
    KOLO_TRY(kolo_broadcast(comm, &yes, 1, KOLO_DTYPE_U8, 0));
    *goes_on = yes != 0;
    return KOLO_OK;
}

kolo_status kolo_sum_time_measure(kolo_comm *comm, kolo_algorithm algorithm, int64_t ms,
                                  kolo_sum_time *sum) {
    static const size_t sizes[] = {1 << 14, 1 << 18, 1 << 20, 1 << 23};
    enum { N = KOLO_COUNT(sizes), CALLS = 4 /* of a size, at least */ };
    const int64_t end_ns = kolo_now_ns() + kolo_ms_to_ns(KOLO_SUM_TIME_MOST * ms);
    kolo_bench_row rows[N];
    int n = 0;
    for (bool goes_on = true; n < N && goes_on;) {
        const kolo_bench_allreduce_opts opts = {.sizes = &sizes[n],
                                                .n_sizes = 1,
                                                .algorithm = algorithm,
                                                .dirty = true,
                                                .work = true,
                                                .budget_ms = ms};
        int one = 1;
        KOLO_TRY(kolo_bench_allreduce(comm, &opts, &rows[n++], &one));
        if (n == N) break;
        KOLO_TRY(kolo_sum_time_goes_on(comm, rows, n, sizes[n], CALLS, end_ns - kolo_now_ns(),
                                       &goes_on));
    }
    *sum = kolo_sum_time_fit(rows, n);
    return KOLO_OK;
}
