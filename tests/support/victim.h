#pragma once
/* Jobs in which a rank is killed, over shared memory and over tcp. */

#include "support/ranks.h"

enum { VICTIM_RANKS = 4 /* of each job */ };

/* Before the first request: all ranks call it once they have created what they share. In the victim
 * it returns when they all have, so that nobody is in a collective when the victim dies. `result`
 * is that of the body. */
void victim_wait(void *result, int rank, bool victim);
/* Runs `body` over both transports. Fails unless the victim is killed by SIGKILL, and all other
 * ranks succeed. */
void victim_check(rank_body body, const void *arg, size_t arg_bytes, int victim);
