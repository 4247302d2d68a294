/* Failure of a communicator. */
#include "comm/engine/failure.h"

#include "base/status.h"
#include "comm/engine/flight.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

kolo_status kolo_comm_check(kolo_comm *comm) {
    return comm->broken == KOLO_OK ? KOLO_OK : KOLO_FAIL(comm->broken, "%s", comm->broken_text);
}

kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...) {
    KOLO_COMM_LOCK_SCOPE(comm);
    char text[sizeof((kolo_comm){0}.broken_text)]; /* an argument may point to the error slot */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (comm->broken != KOLO_OK) return kolo_comm_check(comm);
    memcpy(comm->broken_text, text, sizeof text);
    comm->broken = status;
    comm->transport->ops->report(comm->transport, status, text);
    kolo_flight_drop(comm);
    kolo_p2p_drop(comm);
    if (comm->parent) (void)kolo_comm_break(comm->parent, status, "%s", text);
    for (kolo_comm *c = comm->children; c; c = c->sibling) {
        (void)kolo_comm_break(c, status, "%s", text);
    }
    return kolo_comm_check(comm);
}
