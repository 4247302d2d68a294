/* The lists of collectives in flight. */
#include "comm/engine/flight.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm_trace.h"
#include "comm/engine/lock.h"
#include "comm/engine/traffic.h"

#include <string.h>

kolo_status kolo_flight_reserve(kolo_comm *comm, int most) {
    KOLO_COMM_LOCK_SCOPE(comm);
    if (most <= comm->max_in_flight) return KOLO_OK;
    const size_t n = (size_t)most, kept = (size_t)comm->n_flight * sizeof(kolo_request *);
    kolo_request **flight = kolo_alloc(2 * n * sizeof *flight);
    if (!flight) return KOLO_NOMEM(2 * n * sizeof *flight);
    memcpy((void *)flight, (void *)comm->flight, kept);
    memcpy((void *)(flight + n), (void *)comm->by_priority, kept);
    kolo_free((void *)comm->flight);
    comm->flight = flight;
    comm->by_priority = flight + n;
    comm->max_in_flight = most;
    return KOLO_OK;
}

void kolo_flight_add(kolo_comm *comm, kolo_request *q) {
    int at = comm->n_flight;
    while (at > 0 && comm->by_priority[at - 1]->priority < q->priority) {
        comm->by_priority[at] = comm->by_priority[at - 1];
        at--;
    }
    comm->by_priority[at] = q;
    comm->flight[comm->n_flight++] = q;
    if (q->timed) q->started_ns = kolo_now_ns();
}

/* Returns SCRATCH to the segment. */
static void release_scratch(kolo_request *q) {
    if (q->scratch_bytes > 0) {
        kolo_segment_give(&q->comm->transport->segment, q->scratch, q->scratch_bytes);
    }
    q->scratch = NULL;
    q->scratch_bytes = 0;
}

static void keep_running(kolo_request **list, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (list[i]->state != REQUEST_IDLE) list[kept++] = list[i];
    }
}

void kolo_flight_retire(kolo_comm *comm) {
    int kept = 0;
    keep_running(comm->by_priority, comm->n_flight);
    for (int i = 0; i < comm->n_flight; i++) {
        kolo_request *q = comm->flight[i];
        if (q->state == REQUEST_IDLE) {
            if (q->timed) q->ended_ns = kolo_now_ns();
            comm->last = q;
            if (comm->trace) kolo_comm_trace_end(comm->trace, q);
            release_scratch(q);
        } else {
            comm->flight[kept++] = q;
        }
    }
    comm->n_flight = kept;
    uint64_t finished = kept > 0 ? comm->flight[0]->seq : comm->next_seq;
    comm->transport->ops->finish(comm->transport, finished);
}

void kolo_flight_drop(kolo_comm *comm) {
    for (int i = 0; i < comm->n_flight; i++) {
        /* Peers that have not noticed the failure may still write to it, so that other
         * communicators of the family must not get it. */
        kolo_traffic_collect(comm->flight[i]);
        comm->flight[i]->scratch = NULL;
        comm->flight[i]->scratch_bytes = 0;
        if (comm->trace) kolo_comm_trace_end(comm->trace, comm->flight[i]);
        comm->flight[i]->state = REQUEST_IDLE;
    }
    comm->n_flight = 0;
}
