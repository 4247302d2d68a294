#pragma once
/* Failure of a communicator. It is final: all later calls return the same error. */

#include "base/compiler.h"
#include "comm/engine/comm.h"
#include "comm/engine/family.h"

/* Breaks the communicator and its whole family, unless it is broken: reports to the peers, drops
 * what is in flight. Returns the communicator's first failure, with its text in this thread's error
 * slot. */
kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...)
    KOLO_PRINTF(3, 4);
/* The same for all communicators of the family that have the lost `peer` of `comm` as a member; the
 * others continue. */
kolo_status kolo_comm_break_lost(kolo_comm *comm, int peer, const char *fmt, ...) KOLO_PRINTF(3, 4);
/* The same for this communicator alone. */
KOLO_SHARED kolo_status kolo_comm_break_one(kolo_comm *comm, kolo_status status, const char *fmt,
                                            ...) KOLO_PRINTF(3, 4);
/* The same for this communicator alone, if it has requests in flight; else peers that still need
 * this rank when it has left get the text. */
KOLO_SHARED void kolo_comm_break_pending(kolo_comm *comm, kolo_status status, const char *text);
/* The same as kolo_comm_break, for communicators too that go on after an earlier failure. */
void kolo_comm_break_all(kolo_comm *comm, kolo_status status, const char *text);
/* The rest of kolo_comm_check: breaks the family if a second thread was refused. */
kolo_status kolo_comm_failure(kolo_comm *comm);
/* OK, or the failure that broke the communicator. */
static inline kolo_status kolo_comm_check(kolo_comm *comm) {
    const kolo_comm *whole = kolo_comm_whole(comm);
    bool misused = atomic_load_explicit(&whole->misused, memory_order_relaxed);
    return comm->broken == KOLO_OK && !misused ? KOLO_OK : kolo_comm_failure(comm);
}
