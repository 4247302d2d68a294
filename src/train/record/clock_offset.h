#pragma once
/* The clocks of hosts against each other. */

#include "kolo/comm.h"

/* Sets *ns to what this rank adds to kolo_now_ns() for the time of rank 0, and *error_ns to how far
 * that may be off; both are 0 on the host of rank 0, which has one clock. The lowest rank of each
 * other host exchanges messages with rank 0, and its shortest round trip counts (Mills, RFC 5905).
 * Collective; `comm` NULL: one rank. PEER, TIMEOUT. */
kolo_status kolo_clock_offset(kolo_comm *comm, int64_t *ns, int64_t *error_ns);
