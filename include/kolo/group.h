#pragma once
/* Sub-groups that concern their members only: creation and revocation; and groups that go on
 * after the death of some of their ranks. kolo_comm_split (<kolo/comm.h>) makes sub-groups of all
 * ranks at once.
 *
 * A program that goes on after a death, like one for MPI with ULFM:
 *
 *     KOLO_TRY(kolo_comm_allow_shrink(comm));                      // once, while all live
 *     ...
 *     kolo_status status = kolo_allreduce(now, x, n, KOLO_DTYPE_F32, KOLO_SUM);
 *     if (status == KOLO_ERR_PEER) {
 *         KOLO_TRY(kolo_comm_shrink(now, &now));                   // without the dead ranks
 *         KOLO_TRY(kolo_allreduce(now, &step, 1, KOLO_DTYPE_I64, KOLO_MIN)); // where to go on
 *     }
 */

#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a sub-group of `n` ranks of `comm`, in this order. Only the members call it, with the
 * same list; the other ranks may compute or communicate meanwhile. Blocks. The members exchange
 * messages of `comm` with this tag, which they use for nothing else meanwhile. The sub-group is
 * like one of kolo_comm_split; errors name it by its first rank. ARG: this rank is not in the list,
 * or a rank is invalid or repeated; or another member has another list, which breaks `comm`;
 * UNSUPPORTED: the transport has no sub-groups; NOMEM, on all members if one has no memory; the
 * errors of a message. */
KOLO_API kolo_status kolo_comm_create_group(kolo_comm *comm, const int *ranks, int n, int tag,
                                            kolo_comm **sub);

/* The same without blocking: start it, compute, perhaps test it, and wait. It makes progress in
 * calls of `comm` (and by its thread). Wait for it before `comm` is destroyed. Starting has the
 * errors ARG, UNSUPPORTED and NOMEM, which breaks `comm`. */
typedef struct kolo_creation kolo_creation;
KOLO_API kolo_status kolo_creation_start(kolo_comm *comm, const int *ranks, int n, int tag,
                                         kolo_creation **creation);
/* Sets `complete` if a wait would not block. Does not block. */
KOLO_API kolo_status kolo_creation_test(kolo_creation *creation, bool *complete);
/* Blocks until the sub-group exists, and frees the creation, also after an error. */
KOLO_API kolo_status kolo_creation_wait(kolo_creation *creation, kolo_comm **sub);

/* Breaks this communicator and those of its sub-groups that this rank is in, on all their ranks,
 * with PEER and this reason; calls of other ranks that wait in one of them return that error. Other
 * communicators go on, so that the members of a sub-group that is revoked, or some of them, may
 * create another one. Ranks of a host read and write each other's vectors in place: those of a
 * collective that is revoked in flight may change until its call has returned on all ranks of the
 * host. Does not block. */
KOLO_API void kolo_comm_revoke(kolo_comm *comm, const char *reason);

/* Gives the group what kolo_comm_shrink and kolo_comm_agree need: channels of their own between its
 * ranks, which stay intact when it breaks. A collective call, once, while all ranks live; a group
 * that a shrink has made has them. Blocks for two small exchanges. A rank on which it fails is gone
 * for agreements of the others. UNSUPPORTED: the transport has no sub-groups; NOMEM, and the errors
 * of an allgather, which break `comm`. */
KOLO_API kolo_status kolo_comm_allow_shrink(kolo_comm *comm);

/* Creates the sub-group of those ranks of `comm` that live, in their order. All of them call it
 * after an error of `comm`, which it breaks first, so that calls of others that wait in it return.
 * A rank that dies meanwhile is left out too, or is a member on all ranks, and breaks the new
 * group. The result is like a sub-group of kolo_comm_split, and may itself shrink. `comm` must live
 * as long; its other sub-groups without a dead rank go on. Collectives of `comm` that were in
 * flight may be complete on some ranks only: compare, for example, the numbers of steps. Blocks
 * until all have come. If the network divides the ranks, each part forms a group of its own:
 * compare kolo_comm_size with what the program needs. ARG: kolo_comm_allow_shrink has not been
 * called; TIMEOUT: ranks that live have not come, which the error names; PEER: the others have
 * formed their group without this rank, since it was stopped or cut off for longer than a
 * heartbeat; NOMEM, on all ranks if one has none for its part. Both this
 * and kolo_comm_agree are for one thread at a time; ARG: another one is in such a call of the
 * group. */
KOLO_API kolo_status kolo_comm_shrink(kolo_comm *comm, kolo_comm **survivors);

/* Agrees on flags, whether `comm` is broken or not: all its ranks that live call it, and get those
 * bits of `*flags` that all have set, for example whether each has completed what must not be done
 * in part. `*lost`, unless NULL: of how many ranks the decision is without, the same on all. A rank
 * that dies meanwhile counts on all ranks or on none. Blocks until all have come. Errors as of
 * kolo_comm_shrink; it does not break `comm`. */
KOLO_API kolo_status kolo_comm_agree(kolo_comm *comm, uint64_t *flags, int *lost);

#ifdef __cplusplus
}
#endif
