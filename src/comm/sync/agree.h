#pragma once
/* Agreement of all ranks on a status. A rank that fails alone, outside collectives, would leave the
 * others waiting in the next one; so the ranks agree wherever one of them can fail alone. */

#include "base/compiler.h"
#include "kolo/comm.h"

/* Returns OK on all ranks if `status` is OK on all, else the status of the lowest rank that failed.
 * That rank keeps its error message; the others get "rank N: " and the message. Collective; `comm`
 * NULL: a single rank. */
KOLO_SHARED kolo_status kolo_agree(kolo_comm *comm, kolo_status status);
