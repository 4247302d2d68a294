#pragma once
/* Failure of a communicator. It is final: all later calls return the same error. */

#include "base/compiler.h"
#include "comm/engine/comm.h"

/* Breaks the communicator and its family above and below: reports to the peers, drops what is in
 * flight. Returns `status`, with the text of the first failure in this thread's error slot. */
kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...)
    KOLO_PRINTF(3, 4);
/* OK, or the failure that broke the communicator. */
kolo_status kolo_comm_check(kolo_comm *comm);
