/* Times of steps: exchange, idle times, and means. */
#include "train/record/rank_times.h"

#include "base/integer.h"
#include "base/memory.h"

#include <string.h>

enum { MOST_ROWS = 1 << 14 }; /* steps x ranks in an exchange */

typedef int64_t row[KOLO_TIMES]; /* ns */

typedef struct window_sums {
    row *sums; /* by rank */
    kolo_step_time *means;
    int64_t steps;
} window_sums;

struct kolo_rank_times {
    kolo_comm *comm;
    int ranks;
    row *own, *all; /* [capacity], [ranks][pending] */
    int64_t pending, capacity;
    window_sums windows[KOLO_TIMES_WINDOWS];
};

kolo_status kolo_rank_times_create(kolo_comm *comm, int64_t steps, kolo_rank_times **times) {
    kolo_rank_times *t = kolo_zalloc(sizeof *t);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->comm = comm;
    t->ranks = comm ? kolo_comm_size(comm) : 1;
    const size_t ranks = (size_t)t->ranks;
    t->capacity = kolo_max_i64(1, kolo_min_i64(steps, MOST_ROWS / t->ranks));
    t->own = kolo_alloc((size_t)t->capacity * sizeof *t->own);
    t->all = kolo_alloc((size_t)t->capacity * ranks * sizeof *t->all);
    bool failed = !t->own || !t->all;
    for (int i = 0; i < KOLO_TIMES_WINDOWS; i++) {
        window_sums *w = &t->windows[i];
        w->sums = kolo_zalloc(ranks * sizeof *w->sums);
        w->means = kolo_zalloc(ranks * sizeof *w->means);
        failed |= !w->sums || !w->means;
    }
    if (failed) {
        kolo_rank_times_destroy(t);
        return KOLO_NOMEM((size_t)t->capacity * ranks * sizeof *t->all);
    }
    *times = t;
    return KOLO_OK;
}

void kolo_rank_times_destroy(kolo_rank_times *t) {
    if (!t) return;
    for (int i = 0; i < KOLO_TIMES_WINDOWS; i++) {
        kolo_free(t->windows[i].sums);
        kolo_free(t->windows[i].means);
    }
    kolo_free(t->own);
    kolo_free(t->all);
    kolo_free(t);
}

void kolo_rank_times_add(kolo_rank_times *t, const int64_t *ns) {
    KOLO_ASSERT(t->pending < t->capacity);
    memcpy(t->own[t->pending++], ns, sizeof *t->own);
}

bool kolo_rank_times_is_full(const kolo_rank_times *t) { return t->pending == t->capacity; }

/* What a rank does by itself. The rest of a step is communication, in which ranks wait for each
 * other, and checks. */
static int64_t busy_ns(const int64_t *ns) {
    return ns[KOLO_TIME_INPUT] + ns[KOLO_TIME_FORWARD] + ns[KOLO_TIME_BACKWARD] +
           ns[KOLO_TIME_UPDATE];
}

/* The step that is `stride` rows apart for the ranks. */
static void set_idle(row *first, int64_t stride, int ranks) {
    int64_t most = 0;
    for (int r = 0; r < ranks; r++) most = kolo_max_i64(most, busy_ns(first[r * stride]));
    for (int r = 0; r < ranks; r++) {
        int64_t *ns = first[r * stride];
        ns[KOLO_TIME_IDLE] = most - busy_ns(ns);
    }
}

static void add_to_windows(kolo_rank_times *t, int rank, const int64_t *ns) {
    for (int i = 0; i < KOLO_TIMES_WINDOWS; i++) {
        for (int k = 0; k < KOLO_TIMES; k++) t->windows[i].sums[rank][k] += ns[k];
    }
}

kolo_status kolo_rank_times_exchange(kolo_rank_times *t) {
    const int64_t n = t->pending;
    if (n == 0) return KOLO_OK;
    if (t->comm) {
        KOLO_TRY(kolo_allgather(t->comm, t->own, t->all, (size_t)n * KOLO_TIMES, KOLO_DTYPE_I64));
    } else {
        memcpy(t->all, t->own, (size_t)n * sizeof *t->all);
    }
    for (int64_t step = 0; step < n; step++) {
        set_idle(&t->all[step], n, t->ranks);
        for (int r = 0; r < t->ranks; r++) add_to_windows(t, r, t->all[r * n + step]);
    }
    for (int i = 0; i < KOLO_TIMES_WINDOWS; i++) t->windows[i].steps += n;
    t->pending = 0;
    return KOLO_OK;
}

kolo_time_report kolo_rank_times_report(kolo_rank_times *t, kolo_times_window window) {
    window_sums *w = &t->windows[window];
    kolo_time_report report = {.steps = w->steps, .ranks = t->ranks, .by_rank = w->means};
    if (w->steps == 0) return report;
    for (int r = 0; r < t->ranks; r++) {
        double *ms = w->means[r].ms;
        for (int k = 0; k < KOLO_TIMES; k++) {
            ms[k] = (double)w->sums[r][k] / 1e6 / (double)w->steps;
        }
        /* Ranks may be steps apart, as in local steps: then they do not wait for the slowest. */
        if (ms[KOLO_TIME_IDLE] > ms[KOLO_TIME_EXPOSED]) ms[KOLO_TIME_IDLE] = ms[KOLO_TIME_EXPOSED];
        for (int k = 0; k < KOLO_TIMES; k++) report.mean.ms[k] += ms[k] / t->ranks;
        if (w->sums[r][KOLO_TIME_IDLE] < w->sums[report.slowest][KOLO_TIME_IDLE]) {
            report.slowest = r;
        }
    }
    return report;
}

void kolo_rank_times_reset(kolo_rank_times *t, kolo_times_window window) {
    memset(t->windows[window].sums, 0, (size_t)t->ranks * sizeof *t->windows[window].sums);
    t->windows[window].steps = 0;
}
