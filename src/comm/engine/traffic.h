#pragma once
/* What requests have moved. The engine counts the starts of a collective that have completed; the
 * entries of its schedules are counted when the numbers are needed. */

#include "comm/engine/request.h"

/* Adds what a request has moved, also in a start that is in flight, to its own numbers and those of
 * its communicator. Before it is destroyed, or its start dropped. */
void kolo_traffic_collect(kolo_request *q);
/* What a communicator has exchanged with a peer so far. */
kolo_peer_traffic kolo_traffic_with(const kolo_comm *comm, int peer);
