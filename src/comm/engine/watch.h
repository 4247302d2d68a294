#pragma once
/* Detection of lost peers. */

#include "comm/engine/comm.h"

/* Checks all peers, after the requests were polled; breaks the communicator if one reports a
 * failure, or is lost, or has left while needed. */
kolo_status kolo_comm_watch(kolo_comm *comm);
/* For one that waits for a message from any rank, when some rank has left: connects to the others,
 * since they may have left too. */
void kolo_comm_look_for_others(kolo_comm *comm);
/* The same for this communicator and for all in its family that have requests in flight, but a loss
 * breaks a communicator at the second call: in between the caller polls the requests. */
kolo_status kolo_family_watch(kolo_comm *comm);
/* The checks below, after some peer has reported a failure or left. */
kolo_status kolo_comm_watch_alarm(kolo_comm *comm, uint64_t seq);
bool kolo_comm_may_complete_alarmed(kolo_comm *comm, uint64_t seq);
/* Before a collective accesses the memory of its peers, and before it completes: breaks the
 * communicator if a peer that has not finished it has reported a failure, such as its deadline, or
 * has left. So a late rank does not complete what has failed elsewhere. */
static inline kolo_status kolo_comm_watch_completion(kolo_comm *comm, uint64_t seq) {
    return kolo_transport_alarmed(comm->transport) ? kolo_comm_watch_alarm(comm, seq) : KOLO_OK;
}
/* Whether that would return OK. */
static inline bool kolo_comm_may_complete(kolo_comm *comm, uint64_t seq) {
    return !kolo_transport_alarmed(comm->transport) || kolo_comm_may_complete_alarmed(comm, seq);
}
