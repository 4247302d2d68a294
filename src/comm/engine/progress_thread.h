#pragma once
/* The thread that makes progress over a network or on request, one per family. */

#include "comm/engine/comm.h"

/* Starts the thread, and creates the family's lock. For transports in memory only if the options
 * ask for it. NOMEM, IO. */
kolo_status kolo_progress_start(kolo_comm *comm, const kolo_comm_opts *opts);
void kolo_progress_stop(kolo_comm *comm);
/* Whether a thread makes progress while the program computes; else only calls of the program do. */
KOLO_SHARED bool kolo_progress_has_thread(const kolo_comm *comm);
/* The longest that the thread sleeps: a fraction of a heartbeat. */
int64_t kolo_progress_tick_ns(int64_t heartbeat_ms);
/* The caller makes progress from now on, and the thread pauses. Returns whether it alone did. */
bool kolo_progress_drive(kolo_comm *comm);
/* Ends this, if the caller was the only one. */
void kolo_progress_end_drive(kolo_comm *comm, bool only);
/* Calls `meanwhile(ns)`, with the lock released if that may be, for callers that wait for it. */
void kolo_progress_let_in(kolo_comm *comm, void (*meanwhile)(int64_t ns), int64_t ns);
/* Sleeps at most `ns`, until the transport has an event; releases the lock meanwhile if that may
 * be. */
void kolo_progress_sleep(kolo_comm *comm, int64_t ns);
