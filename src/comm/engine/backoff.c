/* Waiting: giving time to the engine and looking after the peers.
 *
 * A wait spins for a moment while the ranks have a processor each (a peer on another core answers
 * within a fraction of a microsecond), then yields, then sleeps in short naps. With more ranks than
 * processors it yields at once, since the peer may need this very core. A yield that lasts long
 * means that strangers compete for the processors: whoever yields to them waits for a whole time
 * slice, while a sleeper is let in soon after it wakes. What long yields have lost is held against
 * what naps would have cost all waits meanwhile; when it is more, all waits are naps for a while.
 * Every millisecond of waiting it looks whether all peers are still there. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/integer.h"
#include "comm/engine/engine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SPINS_LEAST = 4,
    SPIN_AGAIN = 64,    /* waits after which a long spin is tried again */
    WATCH_NS = 1000000, /* between looks at the peers */
    YIELD_NS = 2000000, /* of yielding before sleeping */
    NAP_NS = 5000,
    LONG_YIELD_NS = 1000000, /* others use the processor */
    NAP_COST_NS = 60000,     /* what a wait with a nap lasts longer than one without */
    LOST_MOST_NS = 5000000,  /* in long yields, beyond what naps would have cost */
    BUSY_NS = 50000000,      /* for how long that is believed */
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static kolo_status timed_out(kolo_comm *comm, int64_t waited_ns) {
    kolo_text text = {0};
    kolo_comm_describe(comm, &text);
    kolo_status status = kolo_comm_break(
        comm, KOLO_ERR_TIMEOUT,
        "waited %.1f s in %s; see what that rank does, or allow more time (--timeout, timeout_ms)",
        (double)waited_ns * 1e-9, text.text ? text.text : "a collective");
    kolo_text_fini(&text);
    return status;
}

/* ---- looking after the peers ---- */

static void add_where(const kolo_comm *comm, char *where, size_t n) {
    where[0] = '\0';
    const kolo_request *q = kolo_comm_oldest(comm);
    if (!q) return;
    snprintf(where, n, " while waiting in %s, sequence %llu", q->title, (unsigned long long)q->seq);
}

kolo_status kolo_comm_watch(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    uint64_t oldest = comm->n_flight > 0 ? comm->flight[0]->seq : UINT64_MAX;
    const kolo_peer_state *report = NULL;
    kolo_peer_state state, broken;
    int broken_rank = 0;
    char where[KOLO_TITLE_BYTES + 64];
    add_where(comm, where, sizeof where);
    for (int p = 0; p < comm->size; p++) {
        if (p == comm->rank) continue;
        comm->transport->ops->peer_state(comm->transport, p, &state);
        if (state.condition == KOLO_PEER_LOST) {
            return kolo_comm_break(comm, KOLO_ERR_PEER, "%s is gone (%s)%s", KOLO_RANK(comm, p),
                                   state.report[0] ? state.report : "process ended", where);
        }
        if (state.condition == KOLO_PEER_LEFT && kolo_p2p_open_with(comm, p)) {
            bool moved; /* it left behind its last message, of which this rank has not heard yet */
            KOLO_TRY(kolo_p2p_progress(comm, &moved));
        }
        bool needed =
            (state.finished <= oldest && comm->n_flight > 0) || kolo_p2p_open_with(comm, p) != NULL;
        if (state.condition == KOLO_PEER_LEFT && needed) {
            return kolo_comm_break(comm, KOLO_ERR_PEER,
                                   "%s has left the group (after %llu collectives)%s",
                                   KOLO_RANK(comm, p), (unsigned long long)state.finished, where);
        }
        if (state.condition == KOLO_PEER_FAILED && !report) {
            broken = state;
            broken_rank = p;
            report = &broken;
        }
    }
    if (!report) return KOLO_OK;
    return kolo_comm_break(comm, report->status, "rank %d reports: %s",
                           kolo_comm_whole_rank(comm, broken_rank), report->report);
}

/* Looks after the peers once in a while; called when nothing moves. */
static kolo_status watch_sometimes(kolo_comm *comm, int64_t now_ns) {
    if (now_ns - comm->watched_ns < WATCH_NS) return KOLO_OK;
    comm->watched_ns = now_ns;
    kolo_report_if_asked(comm);
    return kolo_family_watch(comm);
}

/* Gives the processor away for a moment. */
static void step_aside(kolo_comm *comm, kolo_idle *w) {
    int64_t before_ns = w->now_ns;
    bool nap = before_ns - w->since_ns > YIELD_NS || before_ns < comm->busy_until_ns;
    nap = nap && kolo_comm_whole(comm)->n_offloaded ==
                     0; /* a backend moves data only while it is asked how it is */
    const kolo_transport *t = comm->transport;
    if (t->events >= 0 && (nap || !t->no_wakeup)) { /* who is waited for will wake this thread */
        kolo_progress_sleep(comm, t->no_wakeup ? NAP_NS : WATCH_NS);
        nap = true;
    } else if (nap) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    } else {
        sched_yield();
    }
    w->now_ns = kolo_now_ns();
    if (nap || w->now_ns - before_ns <= LONG_YIELD_NS) return;
    comm->lost_ns += w->now_ns - before_ns;
    if (comm->lost_ns > LOST_MOST_NS) comm->busy_until_ns = w->now_ns + BUSY_NS;
}

kolo_status kolo_idle_turn(kolo_comm *comm, kolo_idle *w, bool moved) {
    if (moved) {
        w->turns = 0;
        w->since_ns = 0;
    }
    if (w->turns++ < comm->spins) {
        relax();
        return KOLO_OK;
    }
    if (!w->since_ns) {
        w->since_ns = w->now_ns = kolo_now_ns();
        if (w->now_ns >= comm->busy_until_ns) {
            comm->lost_ns = kolo_max_i64(comm->lost_ns - NAP_COST_NS, 0);
        }
    }
    if (!w->started_ns) w->started_ns = w->since_ns;
    step_aside(comm, w);
    return watch_sometimes(comm, w->now_ns);
}

/* Spinning pays when it is what ends a wait. When yielding is, at once, the peer shares this
 * processor and could not run meanwhile: then spin less, and see now and then whether that still
 * holds. */
static void learn(kolo_comm *comm, const kolo_idle *w) {
    if (comm->oversubscribed) return;
    bool spun_in_vain = w->turns > comm->spins && w->turns <= comm->spins + 2;
    if (spun_in_vain && comm->spins > SPINS_LEAST) comm->spins /= 2;
    if (++comm->waits % SPIN_AGAIN == 0) comm->spins = KOLO_SPINS;
}

static kolo_status wait_for(kolo_request *request, int64_t timeout_ns) {
    kolo_comm *comm = request->comm;
    KOLO_TRY(kolo_comm_check(comm));
    kolo_idle w = {0};
    while (request->state != REQUEST_IDLE) {
        bool moved;
        KOLO_TRY(kolo_engine_progress(comm, &moved));
        if (request->state == REQUEST_IDLE) break;
        KOLO_TRY(kolo_idle_turn(comm, &w, moved));
        int64_t waited_ns = w.now_ns - w.started_ns;
        if (waited_ns > timeout_ns) return timed_out(comm, waited_ns);
    }
    learn(comm, &w);
    return KOLO_OK;
}

kolo_status kolo_request_wait(kolo_request *request, int64_t timeout_ms) {
    kolo_comm *comm = request->comm;
    if (timeout_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a wait of %lld ms", (long long)timeout_ms);
    }
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_progress_drive(comm, true);
    kolo_status status =
        wait_for(request, timeout_ms > 0 ? kolo_ms_to_ns(timeout_ms) : comm->timeout_ns);
    kolo_progress_drive(comm, false);
    return status;
}

kolo_status kolo_request_test(kolo_request *request, bool *complete) {
    KOLO_COMM_LOCK_SCOPE(request->comm);
    KOLO_TRY(kolo_comm_progress(request->comm));
    *complete = request->state == REQUEST_IDLE;
    return KOLO_OK;
}

kolo_status kolo_comm_progress(kolo_comm *comm) {
    if (!kolo_comm_enter_if_free(comm)) return KOLO_OK; /* the thread is at it */
    bool moved;
    kolo_status status = kolo_engine_progress(comm, &moved);
    if (status == KOLO_OK && !moved && kolo_family_in_flight(comm)) {
        status = watch_sometimes(comm, kolo_now_ns());
    }
    kolo_comm_leave(&comm);
    return status;
}
