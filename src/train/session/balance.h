#pragma once
/* Deals the logical shards of a reproducible run by the measured speeds of the ranks. The results
 * do not change: their bits depend on the shards alone.
 *
 * From time to time the ranks exchange how long they computed for how many shards. If another deal
 * makes the slowest rank clearly faster, it takes effect a few steps later, when all ranks' loaders
 * can still follow. All ranks decide alike, from the same numbers. Not thread-safe. */

#include "kolo/comm.h"

typedef struct kolo_balance kolo_balance;

/* `counts`: of shards, by rank, copied. A change takes effect `delay` steps after it is decided.
 * `comm` may be NULL: nothing ever changes. NOMEM. */
kolo_status kolo_balance_create(kolo_comm *comm, int shards, const int *counts, int64_t delay,
                                kolo_balance **balance);
void kolo_balance_destroy(kolo_balance *balance);

/* Adds step `step`, in which this rank computed for `ns`. Steps count by one. Sets `from` to the
 * step from which kolo_balance_counts are new; 0: no change was decided. Collective. */
kolo_status kolo_balance_add(kolo_balance *balance, int64_t step, int64_t ns, int64_t *from);
/* The shards of each rank as of the latest decision. */
const int *kolo_balance_counts(const kolo_balance *balance);
