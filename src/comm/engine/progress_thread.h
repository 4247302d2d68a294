#pragma once
/* The thread that makes progress over a network or on request, one per family. */

#include "comm/engine/comm.h"

/* Starts the thread, and creates the family's lock. For transports in memory only if the options
 * ask for it. NOMEM, IO. */
kolo_status kolo_progress_start(kolo_comm *comm, const kolo_comm_opts *opts);
void kolo_progress_stop(kolo_comm *comm);
/* The longest that the thread sleeps: a fraction of a heartbeat. */
int64_t kolo_progress_tick_ns(int64_t heartbeat_ms);
/* While `drive` is set the caller makes progress and the thread pauses. */
void kolo_progress_drive(kolo_comm *comm, bool drive);
/* Releases the lock for callers that wait for it, and calls `meanwhile`. */
void kolo_progress_let_in(kolo_comm *comm, void (*meanwhile)(void));
/* Sleeps at most `ns`, until the transport has an event; releases the lock meanwhile. */
void kolo_progress_sleep(kolo_comm *comm, int64_t ns);
