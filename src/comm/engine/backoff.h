#pragma once
/* What a waiting thread does while no request makes progress: spin, yield, sleep. */

#include "comm/engine/comm.h"

enum { KOLO_SPINS = 400 }; /* polls before the first yield, about 20 us */

/* State of a wait. The clock is not read while the wait spins; 0: not read yet. */
typedef struct kolo_idle {
    int64_t started_ns;
    int64_t since_ns, now_ns; /* of the latest progress, of the latest poll */
    unsigned polls;           /* since the latest progress */
} kolo_idle;

/* One step of a wait after a poll that did or did not make progress (`moved`): spins, yields or
 * sleeps for a moment, and checks the peers from time to time. */
kolo_status kolo_idle_step(kolo_comm *comm, kolo_idle *w, bool moved);
/* How long a wait sleeps next, after so much time without progress: a part of that. */
int64_t kolo_backoff_ns(int64_t waited_ns, int64_t least_ns);
/* Adapts the number of spins after a wait. */
void kolo_idle_learn(kolo_comm *comm, const kolo_idle *w);
/* Asks the program now and then whether it has been interrupted; if so, breaks the communicator.
 * Where several threads use it, only the main thread asks, with the lock released if that may be:
 * the program may need a lock of its own to answer. */
kolo_status kolo_comm_check_interrupted(kolo_comm *comm, int64_t now_ns);
/* The same in a wait that is for no request. */
KOLO_SHARED kolo_status kolo_comm_poll_interrupted(kolo_comm *comm);
/* Time between checks of the peers. */
int64_t kolo_comm_watch_interval_ns(const kolo_comm *comm);
/* Checks the peers and writes a requested report, at limited rates; called when nothing moves. */
kolo_status kolo_comm_watch_sometimes(kolo_comm *comm, int64_t now_ns);
