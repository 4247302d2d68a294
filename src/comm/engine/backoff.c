/* Backoff of a wait: spin, yield, sleep.
 *
 * A wait first spins, because a peer on another core responds within a fraction of a microsecond;
 * then it yields; then it sleeps repeatedly, each time for a certain part of the time that it has
 * waited, so that a long wait seldom wakes up and is hardly longer for it. If the host is
 * oversubscribed it yields at once, since the peer may need this core.
 *
 * A long yield means that other programs compete for the processors: a thread that yields to them
 * waits for a whole time slice, whereas a thread that sleeps is scheduled soon after it wakes. If
 * long yields have cost more time than sleeps in every wait would have, all waits sleep for a
 * while. The peers are checked every millisecond, and less often where a host has so many ranks
 * that the checks, a system call for each pair of them, would take the processors' time. The
 * constants are below and in backoff.h (KOLO_SPINS). */
#define _GNU_SOURCE
#include "comm/engine/backoff.h"

#include "base/clock.h"
#include "base/integer.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/report.h"
#include "comm/engine/watch.h"

#include <sched.h>
#include <unistd.h>

enum {
    SPINS_MIN = 4,
    SPIN_RETRY = 64,           /* waits after which a long spin is tried again */
    WATCH_NS = 1000000,        /* between checks of the peers, at least */
    WATCH_MOST_NS = 500000000, /* at most */
    WATCH_PEER_NS = 6000,      /* for each peer and rank of the host: twenty times their cost */
    INTERRUPTED_NS = 20000000, /* between calls of `interrupted` */
    YIELD_NS = 2000000,        /* of yielding before sleeping */
    SLEEP_NS = 5000,           /* at least; at most WATCH_NS */
    SLEEP_PART = 128,          /* of the time since the latest progress */
    LONG_YIELD_NS = 1000000,   /* a yield of at least this means that the processors are busy */
    SLEEP_COST_NS = 60000,     /* a sleep makes a wait this much longer */
    LOST_MAX_NS = 5000000,     /* in long yields, beyond the cost of sleeps */
    BUSY_NS = 50000000,        /* for which waits then sleep */
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool ask_program(kolo_comm *comm) {
    kolo_comm *whole = kolo_comm_whole(comm);
    bool release = comm->lock && comm->lock->shared && kolo_comm_may_release(comm);
    if (release) {
        comm->lock->asking = gettid();
        kolo_comm_unlock(comm);
    }
    bool interrupted = whole->interrupted(whole->interrupted_arg);
    if (release) {
        kolo_comm_relock(comm);
        comm->lock->asking = 0;
    }
    return interrupted;
}

kolo_status kolo_comm_check_interrupted(kolo_comm *comm, int64_t now_ns) {
    kolo_comm *whole = kolo_comm_whole(comm);
    if (!whole->interrupted || now_ns - whole->interrupted_checked_ns < INTERRUPTED_NS)
        return KOLO_OK;
    if (comm->lock && comm->lock->shared && gettid() != getpid()) return KOLO_OK;
    whole->interrupted_checked_ns = now_ns;
    if (!ask_program(comm)) return KOLO_OK;
    const kolo_request *q = kolo_comm_oldest(comm);
    return kolo_comm_break(comm, KOLO_ERR_PEER, "interrupted by the user%s%s",
                           q ? " while waiting in " : "", q ? q->title : "");
}

kolo_status kolo_comm_poll_interrupted(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    return kolo_comm_check_interrupted(comm, kolo_now_ns());
}

int64_t kolo_comm_watch_interval_ns(const kolo_comm *comm) {
    int64_t pairs = (int64_t)comm->local_size * comm->size;
    return kolo_max_i64(WATCH_NS, kolo_min_i64(WATCH_MOST_NS, pairs * WATCH_PEER_NS));
}

kolo_status kolo_comm_watch_sometimes(kolo_comm *comm, int64_t now_ns) {
    if (now_ns - comm->looked_ns < WATCH_NS) return KOLO_OK;
    comm->looked_ns = now_ns;
    kolo_report_if_signalled(comm);
    KOLO_TRY(kolo_comm_check_interrupted(comm, now_ns));
    if (now_ns - comm->watched_ns < kolo_comm_watch_interval_ns(comm)) return KOLO_OK;
    comm->watched_ns = now_ns;
    return kolo_family_watch(comm);
}

int64_t kolo_backoff_ns(int64_t waited_ns, int64_t least_ns) {
    return kolo_max_i64(least_ns, kolo_min_i64(WATCH_NS, waited_ns / SLEEP_PART));
}

static void yield(int64_t unused_ns) { sched_yield(); }

/* Releases the processor, and the lock where several threads use the communicator. */
static void pause_by(kolo_comm *comm, void (*how)(int64_t ns), int64_t ns) {
    if (comm->lock && comm->lock->shared) {
        kolo_progress_let_in(comm, how, ns);
    } else {
        how(ns);
    }
}

/* Releases the processor for a moment. */
static void yield_or_sleep(kolo_comm *comm, kolo_idle *w) {
    int64_t before_ns = w->now_ns, waited_ns = before_ns - w->since_ns;
    int64_t sleep_ns = kolo_backoff_ns(waited_ns, SLEEP_NS);
    bool sleeps = waited_ns > YIELD_NS || before_ns < comm->busy_until_ns;
    if (kolo_comm_whole(comm)->n_offloaded > 0) sleeps = false; /* a backend must be polled */
    const kolo_transport *t = comm->transport;
    if (t->events >= 0 && (sleeps || !t->no_wakeup)) { /* the peer will wake this thread */
        kolo_progress_sleep(comm, t->no_wakeup ? sleep_ns : WATCH_NS);
        sleeps = true;
    } else if (sleeps) {
        pause_by(comm, kolo_sleep_ns, sleep_ns);
    } else {
        pause_by(comm, yield, 0);
    }
    w->now_ns = kolo_now_ns();
    if (sleeps || w->now_ns - before_ns <= LONG_YIELD_NS) return;
    comm->lost_ns += w->now_ns - before_ns;
    if (comm->lost_ns > LOST_MAX_NS) comm->busy_until_ns = w->now_ns + BUSY_NS;
}

kolo_status kolo_idle_step(kolo_comm *comm, kolo_idle *w, bool moved) {
    if (moved) {
        w->polls = 0;
        w->since_ns = 0;
    }
    if (w->polls++ < comm->spins) {
        if (comm->lock && kolo_comm_wanted(comm)) {
            kolo_progress_let_in(comm, yield, 0);
        } else {
            relax();
        }
        return KOLO_OK;
    }
    if (!w->since_ns) {
        w->since_ns = w->now_ns = kolo_now_ns();
        if (w->now_ns >= comm->busy_until_ns) {
            comm->lost_ns = kolo_max_i64(comm->lost_ns - SLEEP_COST_NS, 0);
        }
    }
    if (!w->started_ns) w->started_ns = w->since_ns;
    yield_or_sleep(comm, w);
    return kolo_comm_watch_sometimes(comm, w->now_ns);
}

/* If the first yield ends a wait, the peer shares this processor and could not run while this
 * thread was spinning: spin less, and retry a long spin from time to time. */
void kolo_idle_learn(kolo_comm *comm, const kolo_idle *w) {
    if (comm->oversubscribed) return;
    bool spun_in_vain = w->polls > comm->spins && w->polls <= comm->spins + 2;
    if (spun_in_vain && comm->spins > SPINS_MIN) comm->spins /= 2;
    if (++comm->waits % SPIN_RETRY == 0) comm->spins = KOLO_SPINS;
}
