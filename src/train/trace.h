#pragma once
/* A trace of steps: when each kernel, POST and WAIT began and ended, in memory made beforehand; the
 * newest events stay. Written as the JSON of Chrome's trace viewer, which Perfetto opens: a process
 * a rank, one track for what the rank does, one for collectives under way.
 *
 * Times are of the host's monotonic clock, so the ranks of one host stand on one axis. */

#include "kolo/comm.h"
#include "plan/plan.h"

typedef struct kolo_trace kolo_trace;

/* Watches `plan` (as its observer) from now on until it is destroyed; both must outlive the last
 * step. NOMEM. */
kolo_status kolo_trace_create(kolo_plan *plan, kolo_trace **trace);
/* NULL is allowed. */
void kolo_trace_destroy(kolo_trace *trace);

/* Adds an interval that is no step of the plan; `name` is a constant. */
void kolo_trace_add(kolo_trace *trace, const char *name, int64_t begin_ns, int64_t end_ns);

/* Writes what all ranks of `comm` (NULL: this one) recorded into one file, on rank 0. Collective.
 * IO, on every rank, when it cannot be written. */
kolo_status kolo_trace_write(const kolo_trace *trace, kolo_comm *comm, const char *path);
