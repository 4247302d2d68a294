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
#include "comm/engine/backoff.h"
#include "comm/engine/family.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/report.h"
#include "comm/engine/watch.h"

#include "base/clock.h"
#include "base/integer.h"

#include <sched.h>
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

kolo_status kolo_comm_watch_sometimes(kolo_comm *comm, int64_t now_ns) {
    if (now_ns - comm->watched_ns < WATCH_NS) return KOLO_OK;
    comm->watched_ns = now_ns;
    kolo_report_if_signalled(comm);
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
    return kolo_comm_watch_sometimes(comm, w->now_ns);
}

/* Spinning pays when it is what ends a wait. When yielding is, at once, the peer shares this
 * processor and could not run meanwhile: then spin less, and see now and then whether that still
 * holds. */
void kolo_idle_learn(kolo_comm *comm, const kolo_idle *w) {
    if (comm->oversubscribed) return;
    bool spun_in_vain = w->turns > comm->spins && w->turns <= comm->spins + 2;
    if (spun_in_vain && comm->spins > SPINS_LEAST) comm->spins /= 2;
    if (++comm->waits % SPIN_AGAIN == 0) comm->spins = KOLO_SPINS;
}
