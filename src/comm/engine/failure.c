/* Failure of a communicator. */
#include "comm/engine/failure.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/engine/comm_trace.h"
#include "comm/engine/family.h"
#include "comm/engine/flight.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"
#include "kolo/group.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

kolo_status kolo_comm_failure(kolo_comm *comm) {
    kolo_comm *whole = kolo_comm_whole(comm);
    if (atomic_load_explicit(&whole->misused, memory_order_relaxed) && whole->broken == KOLO_OK) {
        (void)kolo_comm_break(whole, KOLO_ERR_ARG, KOLO_TWO_THREADS, whole->rank);
    }
    return comm->broken == KOLO_OK ? KOLO_OK : KOLO_FAIL(comm->broken, "%s", comm->broken_text);
}

/* The first error is what the rank leaves for. */
static void keep_error(kolo_comm *comm, const char *text) {
    kolo_comm *whole = kolo_comm_whole(comm);
    if (whole->leaves_for[0]) return;
    snprintf(whole->leaves_for, sizeof whole->leaves_for, "%s", text);
}

static void break_one(kolo_comm *comm, kolo_status status, const char *text) {
    if (comm->broken != KOLO_OK) return;
    memcpy(comm->broken_text, text, sizeof comm->broken_text);
    comm->broken = status;
    keep_error(comm, text);
    comm->transport->ops->report(comm->transport, status, text);
    kolo_log_line(KOLO_LOG_WARN, kolo_comm_whole_rank(comm, comm->rank), "%s%sbroken: %s",
                  comm->group, comm->group[0] ? " " : "", text);
    kolo_flight_drop(comm);
    kolo_p2p_drop(comm);
    if (comm->trace) kolo_comm_trace_flush(comm->trace);
    kolo_comm_wake_followers(comm);
}

/* Sub-groups have no other members than their parent. `lost`: a rank of the whole group; -1: breaks
 * all. */
static void break_tree(kolo_comm *comm, int lost, kolo_status status, const char *text) {
    if (lost >= 0 && kolo_comm_member(comm, lost) < 0) return;
    break_one(comm, status, text);
    for (kolo_comm *c = comm->children; c; c = c->sibling) break_tree(c, lost, status, text);
}

/* Formats the text in a copy: an argument may point to the error slot. */
#define FORMAT_TEXT(text, fmt)                     \
    char text[sizeof((kolo_comm){0}.broken_text)]; \
    va_list args;                                  \
    va_start(args, fmt);                           \
    vsnprintf(text, sizeof text, fmt, args);       \
    va_end(args)

kolo_status kolo_comm_break(kolo_comm *comm, kolo_status status, const char *fmt, ...) {
    KOLO_COMM_LOCK_SCOPE(comm);
    FORMAT_TEXT(text, fmt);
    if (comm->broken == KOLO_OK) break_tree(kolo_comm_whole(comm), -1, status, text);
    return kolo_comm_check(comm);
}

kolo_status kolo_comm_break_lost(kolo_comm *comm, int peer, const char *fmt, ...) {
    KOLO_COMM_LOCK_SCOPE(comm);
    FORMAT_TEXT(text, fmt);
    int lost = kolo_comm_whole_rank(comm, peer);
    break_tree(kolo_comm_whole(comm), lost, KOLO_ERR_PEER, text);
    return kolo_comm_check(comm);
}

kolo_status kolo_comm_break_one(kolo_comm *comm, kolo_status status, const char *fmt, ...) {
    KOLO_COMM_LOCK_SCOPE(comm);
    FORMAT_TEXT(text, fmt);
    break_one(comm, status, text);
    return kolo_comm_check(comm);
}

void kolo_comm_break_pending(kolo_comm *comm, kolo_status status, const char *text) {
    KOLO_COMM_LOCK_SCOPE(comm);
    if (comm->n_flight > 0 || comm->n_messages > 0) {
        (void)kolo_comm_break_one(comm, status, "%s", text);
    } else {
        keep_error(comm, text);
    }
}

void kolo_comm_break_all(kolo_comm *comm, kolo_status status, const char *text) {
    KOLO_COMM_LOCK_SCOPE(comm);
    char copy[sizeof comm->broken_text]; /* it may be the text of the last error */
    snprintf(copy, sizeof copy, "%s", text);
    break_tree(kolo_comm_whole(comm), -1, status, copy);
}

void kolo_comm_revoke(kolo_comm *comm, const char *reason) {
    KOLO_COMM_LOCK_SCOPE(comm);
    char text[sizeof comm->broken_text]; /* the reason may be the text of the last error */
    snprintf(text, sizeof text, "%s", reason ? reason : "revoked");
    break_tree(comm, -1, KOLO_ERR_PEER, text);
}
