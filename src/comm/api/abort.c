/* The end of all calls of a rank: its communicators and its agreements fail. */
#include "comm/engine/agreement.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "kolo/embed.h"

#include <stdio.h>

static void abort_agreements(kolo_comm *comm, const char *reason) {
    if (comm->agreement) kolo_agreement_abort(comm->agreement, reason);
    for (kolo_comm *c = comm->children; c; c = c->sibling) abort_agreements(c, reason);
}

void kolo_comm_abort(kolo_comm *comm, const char *reason) {
    KOLO_COMM_LOCK_SCOPE(comm);
    char text[sizeof comm->broken_text]; /* the reason may be the text of the last error */
    snprintf(text, sizeof text, "%s", reason);
    kolo_comm_whole(comm)->aborts++;
    kolo_comm_break_all(comm, KOLO_ERR_PEER, text);
    abort_agreements(kolo_comm_whole(comm), text);
}
