/* Leases, the end before the end, and workers that join. */
#include "base/status.h"
#include "comm/sync/owner_internal.h"

typedef kolo_owner_worker worker;
typedef kolo_parameters_owner owner;

/* ---- leases ---- */

/* The clock with which a worker goes on that had no lease: that of the slowest that has one, or if
 * none has the largest, so that all begin alike. Never an earlier one. */
static uint64_t clock_to_go_on(const owner *o, int w) {
    const uint64_t own = o->pushes[w];
    uint64_t clock = kolo_owner_slowest(o);
    if (!o->workers[w].idle) return own;
    if (clock == UINT64_MAX) {
        clock = 0;
        for (int i = 0; i < o->n_workers; i++) {
            if (!o->workers[i].gone && o->pushes[i] > clock) clock = o->pushes[i];
        }
    }
    return clock > own ? clock : own;
}

/* Clocks wait for a worker again. */
void kolo_owner_go_on_at(owner *o, int w, uint64_t clock) {
    worker *x = &o->workers[w];
    if (!x->idle) return;
    x->idle = false;
    x->skipped += clock - o->pushes[w];
    o->pushes[w] = clock;
}

/* A worker that has leases goes on with these. */
void kolo_owner_answer_lease(owner *o, int w) {
    worker *x = &o->workers[w];
    const kolo_service_call *call = x->lease;
    uint64_t number;
    if (!call) return;
    const uint64_t stop = o->stop_at * (uint64_t)o->n_first;
    const uint64_t end = stop > 0 && stop < call->clock ? stop : call->clock;
    if (kolo_leases_take(o->leases, w, end, &number)) {
        x->asked++;
        x->number = number + 1;
        x->resume = clock_to_go_on(o, w);
        kolo_owner_go_on_at(o, w, x->resume);
        o->reply(kolo_owner_take(&x->lease), KOLO_OK, x->number, &x->resume, sizeof x->resume);
    } else if (kolo_leases_of(o->leases, w) > 0 || kolo_leases_out(o->leases) == 0) {
        x->asked++;
        x->number = 0;
        o->reply(kolo_owner_take(&x->lease), KOLO_OK, 0, NULL, 0);
    }
}

/* ---- points where all stop or pause ---- */

/* A point that no worker has passed, or may pass before it asks again; 0: one has never asked. */
static uint64_t point_of_all(const owner *o) {
    uint64_t most = 1;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        if (x->gone) continue;
        if (x->point == 0) return 0;
        if (x->point > most) most = x->point;
    }
    return most;
}

/* Finds the point where the workers stop, before which all leases are that were given out. */
static void choose_stop(owner *o) {
    if (!o->stops || o->stop_at > 0) return;
    uint64_t most = point_of_all(o);
    if (most > 0 && o->leases) {
        const uint64_t n = (uint64_t)o->n_first, next = kolo_leases_next(o->leases);
        const uint64_t given = next / n + (next % n > 0);
        if (given > most) most = given;
    }
    o->stop_at = most;
}

void kolo_owner_pause(owner *o, int w, kolo_service_call *call) {
    o->workers[w].point = call->clock;
    o->pauses |= (uint32_t)call->key == (uint32_t)o->pause_at + 1; /* else it lacks the latest */
    const uint64_t most = o->pauses && !o->stops ? point_of_all(o) : 0;
    if (most > 0) {
        o->pause_at = most > o->pause_at ? most : o->pause_at + 1;
        o->pauses = false;
    }
    o->reply(call, KOLO_OK, o->pause_at, NULL, 0);
}

/* A new run begins. */
static void forget_points(owner *o) {
    for (int w = 0; w < o->n_workers; w++) o->workers[w].point = 0;
    o->stop_at = o->pause_at = 0;
    o->stops = o->pauses = false;
}

void kolo_owner_stop(owner *o, int w, kolo_service_call *call) {
    if (call->key == KOLO_STOP_FORGETS) {
        forget_points(o);
    } else if (w < o->n_workers) {
        o->workers[w].point = call->clock;
    }
    o->stops |= call->key == KOLO_STOP_ASKS;
    choose_stop(o);
    o->reply(call, KOLO_OK, o->stop_at, NULL, 0);
}

/* ---- workers that join ---- */

/* A worker joins while the others make steps, unless they are about to end. At the first owner the
 * lease that a worker has asked for shows that all have passed the latest barrier, at all owners.
 */
void kolo_owner_join(owner *o, int w, kolo_service_call *call) {
    worker *x = &o->workers[w];
    const bool first = o->has.gradient.first == 0;
    bool between = !first || o->end > 0;
    for (int i = 0; i < o->n_workers; i++) between &= !o->workers[i].barrier;
    if (o->n_present == 0 || o->stops) {
        kolo_status status = KOLO_FAIL(KOLO_ERR_ARG, "the run is about to end: nobody can join it");
        o->reply(call, status, 0, NULL, 0);
        return;
    }
    if (between) {
        const uint64_t least = kolo_owner_slowest(o);
        x->gone = false;
        x->idle = o->staleness != KOLO_STALENESS_ANY;
        /* Its clock begins at 0, but it lacks no pushes: no staleness counts them. */
        x->from = x->idle || least == UINT64_MAX ? 0 : 0 - least;
        o->n_present++;
        o->n_not_lost++;
    }
    o->reply(call, KOLO_OK, !between ? 0 : first ? o->end : 1, NULL, 0);
}
