/* Hooks that are called for each collective and message of a group. */
#include "base/status.h"
#include "comm/engine/comm_trace.h"
#include "comm/engine/lock.h"

/* Sub-groups have the trace of the whole group. */
static void share_trace(kolo_comm *comm) {
    for (kolo_comm *child = comm->children; child; child = child->sibling) {
        child->trace = comm->trace;
        share_trace(child);
    }
}

kolo_status kolo_comm_set_hook(kolo_comm *comm, kolo_comm_hook *hook, void *arg) {
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    if (comm->parent) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a hook of %s: set it at the whole group", comm->group);
    }
    KOLO_TRY(kolo_comm_trace_set_hook(&comm->trace, comm->rank, hook, arg));
    share_trace(comm);
    return KOLO_OK;
}
