#pragma once
/* The engine: runs the schedules of the requests in flight. */

#include "comm/engine/comm.h"

/* Advances every request in flight in the family as far as possible; does not block. Sets `moved`
 * if any made progress. Returns the failure of this communicator, if it is broken. */
kolo_status kolo_engine_progress(kolo_comm *comm, bool *moved);
