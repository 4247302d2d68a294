#pragma once
/* One verdict for all ranks. A rank that fails alone, before or between collectives, would leave
 * the others waiting for it; so where ranks can fail apart they agree first. */

#include "kolo/comm.h"

/* Gives every rank the same status: OK when it is OK on all of them, else the failure of the lowest
 * rank that failed. That rank keeps its own text; the others find "rank N: " and that text in their
 * slot. Collective; `comm` may be NULL: this rank alone. */
kolo_status kolo_agree(kolo_comm *comm, kolo_status status);

/* Fails on all ranks, by the same rule, when `text` (lines "name: value") is not the same on all of
 * them: the message names the first line that differs, the rank and both values. Collective. */
kolo_status kolo_agree_text(kolo_comm *comm, const char *text);
