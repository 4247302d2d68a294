#pragma once
/* Detection of lost peers. */

#include "comm/engine/comm.h"

/* Checks all peers; breaks the communicator if one reports a failure, or is lost while needed. */
kolo_status kolo_comm_watch(kolo_comm *comm);
/* The same, for this communicator and for all in its family that have requests in flight. */
kolo_status kolo_family_watch(kolo_comm *comm);
