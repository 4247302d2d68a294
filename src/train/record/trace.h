#pragma once
/* A trace of steps: begin and end of each kernel, POST and WAIT, in a preallocated ring of the
 * latest events. Written in Chrome's trace event format (open it in Perfetto): one process per
 * rank, with one track for steps and one for collectives in flight.
 *
 * Times are those of rank 0's monotonic clock; those of other hosts are converted when the trace is
 * written (clock_offset.h), so all ranks share one axis. */

#include "kolo/comm.h"
#include "plan/plan.h"

typedef struct kolo_trace kolo_trace;

/* A trace of no plan yet. NOMEM. */
kolo_status kolo_trace_create(kolo_trace **trace);
/* Records `plan` too, as its observer, until the trace is destroyed, before the plan. NOMEM. */
kolo_status kolo_trace_follow(kolo_trace *trace, kolo_plan *plan);
/* NULL is allowed. */
void kolo_trace_destroy(kolo_trace *trace);

/* Adds an interval outside the plan; `name` has static storage. */
void kolo_trace_add(kolo_trace *trace, const char *name, int64_t begin_ns, int64_t end_ns);

/* Writes the events of all ranks of `comm` (NULL: a single rank) into one file, on rank 0.
 * Collective. IO, on every rank: the file cannot be written. */
kolo_status kolo_trace_write(kolo_trace *trace, kolo_comm *comm, const char *path);
