#pragma once
/* Sub-groups that concern their members only: creation and revocation. kolo_comm_split
 * (<kolo/comm.h>) makes sub-groups of all ranks at once. */

#include "kolo/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a sub-group of `n` ranks of `comm`, in this order. Only the members call it, with the
 * same list; the other ranks may compute or communicate meanwhile. Blocks. The members exchange
 * messages of `comm` with this tag, which they use for nothing else meanwhile. The sub-group is
 * like one of kolo_comm_split; errors name it by its first rank. ARG: this rank is not in the list,
 * or a rank is invalid or repeated; UNSUPPORTED: the transport has no sub-groups; NOMEM, on all
 * members if one has no memory; the errors of a message. */
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

#ifdef __cplusplus
}
#endif
