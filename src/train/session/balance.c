/* Shards by measured speed. A rank's speed is its shards per second of computation, without waits,
 * over a window of steps. A rank without shards keeps its last speed. */
#include "train/session/balance.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/sampler.h"

#include <string.h>

enum { FIRST_STEPS = 4, STEPS = 16 };

/* A new deal must be better by this factor: measured times vary, and requests are created anew. */
static const double least_gain = 1.05;

struct kolo_balance {
    kolo_comm *comm;
    int shards, ranks, rank;
    int64_t delay;
    int64_t begin, end; /* the window of steps */
    int64_t ns;         /* that this rank computed in the window */
    double *speeds;     /* by rank */
    int *counts, *other;
};

kolo_status kolo_balance_create(kolo_comm *comm, int shards, const int *counts, int64_t delay,
                                kolo_balance **balance) {
    int ranks = comm ? kolo_comm_size(comm) : 1;
    size_t n = (size_t)ranks;
    kolo_balance *b = kolo_zalloc(sizeof *b);
    if (!b) return KOLO_NOMEM(sizeof *b);
    *b = (kolo_balance){.comm = comm, .shards = shards, .ranks = ranks, .delay = delay};
    b->rank = comm ? kolo_comm_rank(comm) : 0;
    b->begin = b->end = -1;
    b->speeds = kolo_alloc(n * sizeof *b->speeds);
    b->counts = kolo_alloc(n * sizeof *b->counts);
    b->other = kolo_alloc(n * sizeof *b->other);
    if (!b->speeds || !b->counts || !b->other) {
        kolo_balance_destroy(b);
        return KOLO_NOMEM(n * sizeof *b->speeds);
    }
    for (int r = 0; r < ranks; r++) b->speeds[r] = 1;
    memcpy(b->counts, counts, n * sizeof *counts);
    *balance = b;
    return KOLO_OK;
}

void kolo_balance_destroy(kolo_balance *b) {
    if (!b) return;
    kolo_free(b->speeds);
    kolo_free(b->counts);
    kolo_free(b->other);
    kolo_free(b);
}

const int *kolo_balance_counts(const kolo_balance *b) { return b->counts; }

/* The time of the slowest rank. */
static double slowest(const kolo_balance *b, const int *counts) {
    double most = 0;
    for (int r = 0; r < b->ranks; r++) {
        double time = counts[r] / b->speeds[r];
        if (time > most) most = time;
    }
    return most;
}

/* Exchanges the speeds and deals anew; whether that gains enough. */
static kolo_status decide(kolo_balance *b, bool *changed) {
    double steps = (double)(b->end - b->begin), ns = (double)(b->ns > 0 ? b->ns : 1);
    if (b->counts[b->rank] > 0) b->speeds[b->rank] = 1e9 * b->counts[b->rank] * steps / ns;
    double own = b->speeds[b->rank];
    KOLO_TRY(kolo_allgather(b->comm, &own, b->speeds, 1, KOLO_DTYPE_F64));
    kolo_deal_shards(b->shards, b->ranks, b->speeds, b->other);
    *changed = slowest(b, b->counts) > least_gain * slowest(b, b->other);
    return KOLO_OK;
}

kolo_status kolo_balance_add(kolo_balance *b, int64_t step, int64_t ns, int64_t *from) {
    *from = 0;
    if (b->ranks == 1) return KOLO_OK;
    if (b->begin < 0) {
        b->begin = step;
        b->end = step + FIRST_STEPS;
    }
    if (step < b->begin) return KOLO_OK; /* still dealt as before */
    b->ns += ns;
    if (step + 1 < b->end) return KOLO_OK;
    bool changed;
    KOLO_TRY(decide(b, &changed));
    if (changed) {
        memcpy(b->counts, b->other, (size_t)b->ranks * sizeof *b->counts);
        *from = step + 1 + b->delay;
    }
    b->begin = changed ? *from : step + 1;
    b->end = b->begin + STEPS;
    b->ns = 0;
    return KOLO_OK;
}
