#pragma once
/* Memory that the ranks of one host have together.
 *
 * A rank maps the registered memory of its peers, so collectives read it in place (kolo/comm.h).
 * Here the program does the same: what one rank writes, all others read, at no cost. Ranks order
 * their accesses by collectives, such as kolo_barrier. The memory has no name in the file system.
 */

#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether all ranks of the group share memory. */
KOLO_API bool kolo_comm_shares_memory(const kolo_comm *comm);

/* Allocates memory that all ranks of the group have: zeroed, 64-byte aligned, at another address in
 * each process. Freed with the communicators; what a lost rank has written stays readable.
 * Collective; blocks. UNSUPPORTED: the ranks do not share memory; NOMEM, on all ranks: the segment
 * of rank 0 is full; PEER, TIMEOUT. */
KOLO_API kolo_status kolo_comm_alloc_shared(kolo_comm *comm, size_t bytes, void **memory);

/* Whether an allreduce of any size adds the elements of the ranks in rank order, as a
 * reduce-scatter in shared memory does: the ranks share memory, and `algorithm`, or what AUTO
 * selects, is direct.
 */
KOLO_API bool kolo_comm_sums_in_rank_order(const kolo_comm *comm, kolo_algorithm algorithm);

#ifdef __cplusplus
}
#endif
