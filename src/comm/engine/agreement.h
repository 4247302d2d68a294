#pragma once
/* Agreement between the ranks of a group while some of them die: on the set of lost ranks, and on
 * flags.
 *
 * It has channels of its own (a transport for the same ranks), which no collective uses, so that it
 * works when the group is broken. A rank sends its proposal, the set of lost ranks and the flags,
 * to the others. It joins theirs to its own, the union of the lost ranks and the intersection of
 * the flags, until all ranks that are not in the set have the same proposal: that is the decision.
 * Who has decided proposes nothing else, and the others adopt its decision, unless they have
 * proposed it as lost (after the flooding consensus of Chandra, Toueg, "Unreliable failure
 * detectors for reliable distributed systems", 1996). A message is the whole state of its sender,
 * so that later ones take the place of earlier ones.
 *
 * Two decisions of live ranks are equal. The proposals of a rank grow. Who decides X has had X from
 * each rank outside of its set, and so has who decides Y: each of both has proposed the other's,
 * and its own last; so X contains Y and Y contains X. Who adopts X from a rank has not proposed
 * that rank as lost. If it is outside of another decision Y it has proposed Y, so that rank is
 * outside of Y too, and X equals Y as above.
 *
 * Where ranks connect on demand, they send their states to few others, at distances of powers of
 * two and to their neighbours among the ranks that live, and pass on who has the same proposal as
 * they have. A rank that waits for another one in vain for a second connects to it, and gets its
 * state also after its call has returned (`serve`).
 *
 * A live rank that the others consider lost, such as one that was stopped for longer than a
 * heartbeat, gets an error with the next message that it receives. */

#include "comm/engine/comm.h"

typedef struct kolo_agreement kolo_agreement;

enum { KOLO_RECORD_BYTES = 32 };

/* `transport`: the channels, which belong to the agreement, also after a failure. `comm`: the group
 * whose ranks these are. NOMEM. */
kolo_status kolo_agreement_create(kolo_comm *comm, kolo_transport *transport,
                                  kolo_agreement **agreement);
/* NULL is allowed. Before the group's transport is destroyed. */
void kolo_agreement_destroy(kolo_agreement *a);
/* All ranks that live call it; blocks until they have, at most for the group's timeout. `*flags`:
 * the bits that all have set. The lock is held. TIMEOUT names the ranks that have not come; PEER:
 * the others have decided without this rank; NOMEM. After a failure the others go on without this
 * rank, and so does each later call fail. ARG, without effect: another thread is in a call. */
kolo_status kolo_agreement_decide(kolo_agreement *a, uint64_t *flags);
/* Fails for the reason in the error slot, of that status, which it returns: like a failed call. */
kolo_status kolo_agreement_give_up(kolo_agreement *a, kolo_status status);
/* Fails without a call, or while another thread is in one: the others go on without this rank. */
void kolo_agreement_abort(kolo_agreement *a, const char *reason);
/* Whether a rank is gone, as decided, or noticed in an exchange since. */
bool kolo_agreement_gone(const kolo_agreement *a, int rank);
/* Gives a record to all ranks that are not gone, and takes theirs: records[r], zeros of ranks that
 * end meanwhile, which are gone in the next decision. After a decision. Errors as above. */
kolo_status kolo_agreement_exchange(kolo_agreement *a, const void *record,
                                    unsigned char (*records)[KOLO_RECORD_BYTES]);
