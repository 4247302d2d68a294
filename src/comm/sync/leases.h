#pragma once
/* Leases: numbered parts of the work that workers take from one counter. A lease is acknowledged
 * once its worker has done it. Leases that a lost worker has not acknowledged are issued again,
 * before new ones: each number is acknowledged exactly once. Used by one thread. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { KOLO_LEASES_MOST = 4 }; /* of a worker, not acknowledged */

typedef struct kolo_leases kolo_leases;

/* `first`: the first number. NOMEM. */
kolo_status kolo_leases_create(int workers, uint64_t first, kolo_leases **leases);
/* NULL is allowed. */
void kolo_leases_destroy(kolo_leases *leases);
/* Gives a worker, which has less than KOLO_LEASES_MOST, a number below `end`; false: none is left.
 */
bool kolo_leases_take(kolo_leases *leases, int worker, uint64_t end, uint64_t *number);
/* The worker has done the first of its leases; no effect if it has none. */
void kolo_leases_acknowledge(kolo_leases *leases, int worker);
/* The worker will not do its leases. */
void kolo_leases_return(kolo_leases *leases, int worker);
/* The number of the next new lease. */
uint64_t kolo_leases_next(const kolo_leases *leases);
/* Leases that are not acknowledged: of a worker, and of all. */
int kolo_leases_of(const kolo_leases *leases, int worker);
int kolo_leases_out(const kolo_leases *leases);
