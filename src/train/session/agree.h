#pragma once
/* Agreement of all ranks on a status. A rank that fails alone, outside collectives, would leave the
 * others waiting in the next one; so the ranks agree wherever one of them can fail alone. */

#include "kolo/comm.h"

/* Returns OK on all ranks if `status` is OK on all, else the status of the lowest rank that failed.
 * That rank keeps its error message; the others get "rank N: " and the message. Collective; `comm`
 * NULL: a single rank. */
kolo_status kolo_agree(kolo_comm *comm, kolo_status status);

/* Fails on all ranks, in the same way, unless `text` (lines "name: value") is equal on all. The
 * message names the rank, the first line that differs and both values. Collective. */
kolo_status kolo_agree_text(kolo_comm *comm, const char *text);
