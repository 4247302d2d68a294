/* Plans of buckets: their times, and the best one by dynamic programming. */
#include "pass/bucket_plan.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

double kolo_sum_work_ms(const kolo_sum_time *sum, double bytes) {
    return sum->work_fixed_ms + sum->work_ms_per_byte * bytes;
}

double kolo_sum_wait_ms(const kolo_sum_time *sum, double bytes) {
    const double ms = sum->fixed_ms + sum->ms_per_byte * bytes;
    return fmax(0, ms - kolo_sum_work_ms(sum, bytes));
}

/* When the sum of a gradient may begin, in the time by which the next step begins. */
static double start_of(const kolo_ready_gradient *gradient) {
    return gradient->ready_ms - gradient->needed_ms;
}

kolo_bucket_times kolo_bucket_plan_times(const kolo_ready_gradient *gradients, int n,
                                         const kolo_sum_time *sum, const bool *ends) {
    kolo_bucket_times t = {0};
    double clock = -INFINITY; /* of the kernels */
    size_t bytes = 0;
    if (n == 0) return t;
    for (int i = 0; i < n; i++) {
        bytes += gradients[i].bytes;
        if (!ends[i] && i < n - 1) continue;
        const double work = kolo_sum_work_ms(sum, (double)bytes);
        const double wait = kolo_sum_wait_ms(sum, (double)bytes);
        const double begin = fmax(clock, start_of(&gradients[i]));
        const double ready = fmax(begin, gradients[i].ready_ms); /* not before, whatever F needs */
        const double left = gradients[n - 1].ready_ms - ready;   /* of the kernels */
        clock = begin + wait;
        t.buckets++;
        t.sums_ms += work + wait;
        t.work_ms += work;
        if (left > 0) t.early_work_ms += left < wait ? work * left / wait : work;
        bytes = 0;
    }
    t.end_ms = clock + t.work_ms;
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

/* The first gradients in buckets: a shorter division, and a bucket behind it. */
typedef struct division {
    double end_ms; /* of the last sum, by the clock of the kernels */
    int buckets;
    int first;     /* gradient of the last bucket */
    size_t before; /* the shorter division, by its place in the search */
} division;

typedef struct search {
    const kolo_ready_gradient *gradients;
    const kolo_sum_time *sum;
    int n, most;
    division *kept;
    size_t n_kept, capacity;
    size_t *of;      /* [n + 2]: those of the first j gradients are kept[of[j]] to kept[of[j + 1]],
                        with more and more buckets and earlier and earlier ends */
    division *least; /* [n + 1]: of one j, the earliest end with each number of buckets */
} search;

/* The division of no gradients, with which all others begin. */
static kolo_status keep_none(search *s) {
    if (!KOLO_GROW(s->kept, s->n_kept, s->capacity)) return KOLO_NOMEM(sizeof *s->kept);
    s->kept[s->n_kept++] = (division){.end_ms = -INFINITY};
    s->of[1] = 1;
    return KOLO_OK;
}

/* Appends to each shorter division a bucket that ends with gradient j - 1. */
static void extend(search *s, int j) {
    size_t bytes = 0;
    for (int m = 1; m <= j; m++) s->least[m].end_ms = INFINITY;
    for (int i = j - 1; i >= 0; i--) {
        bytes += s->gradients[i].bytes;
        const double wait = kolo_sum_wait_ms(s->sum, (double)bytes);
        for (size_t k = s->of[i]; k < s->of[i + 1]; k++) {
            const division *before = &s->kept[k];
            if (before->buckets == s->most) continue;
            const double end = fmax(before->end_ms, start_of(&s->gradients[j - 1])) + wait;
            division *least = &s->least[before->buckets + 1];
            if (end < least->end_ms) *least = (division){end, before->buckets + 1, i, k};
        }
    }
}

/* Keeps the divisions of the first j gradients that no other one with fewer buckets replaces. */
static kolo_status keep(search *s, int j) {
    const double next = j < s->n ? start_of(&s->gradients[j]) : -INFINITY;
    double earliest = INFINITY;
    for (int m = 1; m <= j && earliest > next; m++) {
        if (s->least[m].end_ms >= earliest) continue;
        if (!KOLO_GROW(s->kept, s->n_kept, s->capacity)) return KOLO_NOMEM(sizeof *s->kept);
        s->kept[s->n_kept++] = s->least[m];
        earliest = s->least[m].end_ms;
    }
    s->of[j + 1] = s->n_kept;
    return KOLO_OK;
}

/* Marks the ends of the buckets of the best division. */
static void mark(const search *s, bool *ends) {
    size_t best = s->of[s->n];
    double least = INFINITY;
    for (size_t k = s->of[s->n]; k < s->n_kept; k++) {
        const double end = s->kept[k].end_ms + s->kept[k].buckets * s->sum->work_fixed_ms;
        if (end < least) best = k;
        least = fmin(least, end);
    }
    for (int last = s->n; last > 0; last = s->kept[best].first, best = s->kept[best].before) {
        ends[last - 1] = true;
    }
}

kolo_status kolo_bucket_plan_best(const kolo_ready_gradient *gradients, int n, int most,
                                  const kolo_sum_time *sum, bool *ends) {
    search s = {.gradients = gradients, .sum = sum, .n = n, .most = most};
    kolo_status status = KOLO_OK;
    memset(ends, 0, (size_t)n * sizeof *ends);
    if (n == 0) return KOLO_OK;
    s.of = kolo_zalloc(((size_t)n + 2) * sizeof *s.of);
    s.least = kolo_zalloc(((size_t)n + 1) * sizeof *s.least);
    if (!s.of || !s.least) status = KOLO_NOMEM((size_t)n * sizeof *s.least);
    if (status == KOLO_OK) status = keep_none(&s);
    for (int j = 1; j <= n && status == KOLO_OK; j++) {
        extend(&s, j);
        status = keep(&s, j);
    }
    if (status == KOLO_OK) mark(&s, ends);
    kolo_free(s.kept);
    kolo_free(s.of);
    kolo_free(s.least);
    return status;
}
