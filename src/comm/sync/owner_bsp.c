/* Updates by the gradients of several workers, and the point where all wait for each other. */
#include "base/clock.h"
#include "base/integer.h"
#include "comm/reduce/reduce.h"
#include "comm/sync/owner_internal.h"
#include "kolo/comm.h"

#include <string.h>

typedef kolo_owner_worker worker;
typedef kolo_parameters_owner owner;

/* ---- the gradients of a step ---- */

void kolo_owner_add(const owner *o, float *sum, int *total, const float *gradient, int n) {
    const size_t count = o->has.gradient.count;
    if (*total == 0 && count > 0) {
        memcpy(sum, gradient, count * sizeof *sum);
    } else if (count > 0) {
        (void)kolo_combine(sum, gradient, count, KOLO_DTYPE_F32, KOLO_SUM);
    }
    *total += n;
}

/* Whether `in` gradients, of `active` workers, are enough, now or since the grace is over. */
static bool is_quorum(owner *o, int in, int active) {
    const int64_t grace_ns = kolo_ms_to_ns(o->opts->grace_ms);
    if (in == 0 || in < kolo_min_i64(o->opts->quorum, active)) {
        o->quorum_ns = 0;
        return false;
    }
    if (in >= active || grace_ns == 0) return true;
    if (o->quorum_ns == 0) o->quorum_ns = o->now_ns();
    return o->now_ns() - o->quorum_ns >= grace_ns;
}

/* Whether the gradients that a step waits for are in. Without any active worker: whether gradients
 * of earlier steps are left. */
static bool is_complete(owner *o) {
    int active = 0, in = 0;
    bool left = false;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        in += x->push != NULL;
        active += kolo_owner_is_active(x);
        left |= x->n_late > 0;
    }
    if (active == 0) return left;
    if (o->opts->quorum > 0) return is_quorum(o, in, active);
    const int needed = active - o->opts->drop;
    return in >= (needed > 1 ? needed : 1);
}

/* The clock of a step is the largest of its gradients. */
static void take_clock(owner *o, int w, uint64_t clock, uint64_t *largest) {
    if (clock < *largest) return;
    *largest = clock;
    o->latest = w;
}

/* Lists the gradients that are in, each after the late ones of its worker, and the late ones of
 * workers that are not active; with a quorum all late ones. `*n`: how many gradients that is.
 * Returns how many are listed: the late ones of a worker are one sum. */
static int list_gradients(owner *o, int *n, uint64_t *clock) {
    int listed = 0;
    *n = 0;
    *clock = 0;
    for (int w = 0; w < o->n_workers; w++) {
        worker *x = &o->workers[w];
        if (x->n_late > 0 && (x->push || !kolo_owner_is_active(x) || o->opts->quorum > 0)) {
            o->summands[listed++] = x->late;
            *n += x->n_late;
            take_clock(o, w, x->late_clock, clock);
            x->n_late = 0;
        }
        if (!x->push) continue;
        o->summands[listed++] = x->gradient;
        *n += 1;
        take_clock(o, w, x->push->clock, clock);
    }
    return listed;
}

/* The sum of the listed gradients, in one pass over all; a single one stays where it is, unless the
 * update is made later, until when its worker may change it. */
static const float *sum_gradients(const owner *o, int listed) {
    const size_t count = o->has.gradient.count;
    void *sum = o->sum;
    if (listed == 1 && !o->sums) return o->summands[0];
    if (listed == 1) return count > 0 ? memcpy(sum, o->summands[0], count * sizeof(float)) : sum;
    kolo_reduce_best()->fn[KOLO_DTYPE_F32][kolo_reduce_kernel(KOLO_SUM)](&sum, 1, o->summands,
                                                                         listed, count);
    return sum;
}

/* Finds the gradient of a step by which an update may be made; false: there is none now. */
static bool find_step(owner *o, const float **gradient, int *n, uint64_t *clock) {
    if (!o->sums || !kolo_owner_sums_are_open(o->sums)) {
        if (!is_complete(o)) return false;
        const int listed = list_gradients(o, n, clock);
        o->quorum_ns = 0;
        *gradient = sum_gradients(o, listed);
        if (!o->sums) return true;
        kolo_owner_sums_begin(o->sums, *gradient, *n, *clock);
    }
    return !o->ends && kolo_owner_sums_advance(o, gradient, n, clock);
}

void kolo_owner_complete_step(owner *o) {
    const float *gradient;
    uint64_t clock;
    int n;
    if (!find_step(o, &gradient, &n, &clock)) return;
    kolo_owner_apply(o, gradient, n, -1, clock);
    for (int w = 0; w < o->n_workers; w++) { /* all, before a reply detects a lost worker */
        const kolo_service_call *call = o->taken[w] = kolo_owner_take(&o->workers[w].push);
        o->pushes[w] += call != NULL;
        if (call) kolo_owner_observe(o, (kolo_parameters_event){.worker = w, .clock = call->clock});
    }
    for (int w = 0; w < o->n_workers; w++) {
        if (o->taken[w]) o->reply(o->taken[w], KOLO_OK, 0, NULL, 0);
    }
}

/* A gradient whose step is over: it waits for the next one of its worker, or is discarded. */
void kolo_owner_take_late(owner *o, int w, kolo_service_call *call, const float *gradient) {
    worker *x = &o->workers[w];
    const uint64_t delay = o->version - x->read_at;
    if (!o->opts->discard) {
        kolo_owner_add(o, x->late, &x->n_late, gradient, 1);
        x->late_clock = call->clock;
    }
    o->pushes[w]++;
    x->delay = delay;
    kolo_owner_observe(o, (kolo_parameters_event){.late = true, .worker = w, .clock = call->clock});
    o->reply(call, KOLO_OK, delay, NULL, 0);
}

/* kolo_barrier_flag, of the workers in the barrier. */
static uint64_t barrier_flags(const owner *o) {
    uint64_t flags = o->stops ? KOLO_BARRIER_STOPS : 0;
    for (int w = 0; w < o->n_workers; w++) {
        const kolo_service_call *call = o->workers[w].barrier;
        if (call && call->key & 1) flags |= KOLO_BARRIER_ANY;
    }
    return flags;
}

void kolo_owner_end_barrier(owner *o) {
    const size_t bytes = (size_t)o->n_workers * sizeof *o->lost;
    /* A bound counts from here, wherever the workers were. Leases give them equal clocks. */
    const bool bounded = o->staleness > 0 && !o->opts->leases;
    const bool restarts = o->opts->adapts || bounded;
    for (int w = 0; w < o->n_workers; w++) {
        if (kolo_owner_is_active(&o->workers[w])) return;
    }
    o->end = 0;
    o->n_given = 0;
    memcpy(o->reported, o->lost, bytes); /* a reply may detect another loss */
    o->reported_flags = barrier_flags(o);
    for (int w = 0; w < o->n_workers; w++) {
        kolo_service_call *call = kolo_owner_take(&o->workers[w].barrier);
        o->workers[w].barriers += call != NULL;
        o->workers[w].read_ns = 0; /* evaluations and checkpoints are no part of a step */
        o->workers[w].after_barrier = true;
        if (restarts) o->workers[w].from = o->pushes[w];
        if (call) o->reply(call, KOLO_OK, o->reported_flags, o->reported, bytes);
    }
}
