#pragma once
/* A trace of a rank's collectives and messages: a file for Perfetto (KOLO_TRACE=PREFIX), and calls
 * of a hook. */

#include "comm/engine/request.h"
#include "kolo/embed.h"

typedef struct kolo_comm_trace kolo_comm_trace;

/* Creates PREFIX.rankR.json if KOLO_TRACE is set; otherwise *trace is NULL. IO; NOMEM. */
kolo_status kolo_comm_trace_open(int rank, int size, kolo_comm_trace **trace);
/* Sets its hook, or none. Without a trace creates one that has no file. NOMEM. */
kolo_status kolo_comm_trace_set_hook(kolo_comm_trace **trace, int rank, kolo_comm_hook *hook,
                                     void *arg);
/* NULL is allowed. */
void kolo_comm_trace_close(kolo_comm_trace *trace);
/* Writes all events so far to the file. */
void kolo_comm_trace_flush(kolo_comm_trace *trace);
/* Record the start of a request and its end. The family's lock is held. */
void kolo_comm_trace_begin(kolo_comm_trace *trace, kolo_request *q);
void kolo_comm_trace_end(kolo_comm_trace *trace, const kolo_request *q);
