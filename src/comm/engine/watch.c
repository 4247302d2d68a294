/* Turns a peer that its transport found lost, or that reports a failure, into the error of the
 * requests that need it. Each transport decides when a peer is lost (`peer_state`). */
#include "comm/engine/watch.h"

#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"
#include "comm/engine/report.h"

#include <stdio.h>

static void add_where(const kolo_comm *comm, char *where, size_t n) {
    where[0] = '\0';
    const kolo_request *q = kolo_comm_oldest(comm);
    if (!q) return;
    snprintf(where, n, " while waiting in %s, sequence %llu", q->title, (unsigned long long)q->seq);
}

/* The peer has reported in each communicator that its failure concerns. */
static kolo_status reported(kolo_comm *comm, int peer, const kolo_peer_state *state) {
    return kolo_comm_break_one(comm, state->status, "rank %d reports: %s",
                               kolo_comm_whole_rank(comm, peer), state->report);
}

kolo_status kolo_comm_watch(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    uint64_t oldest = comm->n_flight > 0 ? comm->flight[0]->seq : UINT64_MAX;
    const kolo_peer_state *report = NULL;
    kolo_peer_state state, broken;
    int broken_rank = 0, left = 0;
    char where[KOLO_TITLE_BYTES + 64];
    add_where(comm, where, sizeof where);
    for (int p = 0; p < comm->size; p++) {
        if (p == comm->rank) continue;
        comm->transport->ops->peer_state(comm->transport, p, &state);
        if (state.condition == KOLO_PEER_LOST) {
            return kolo_comm_break_lost(comm, p, "%s is gone (%s)%s", KOLO_RANK(comm, p),
                                        state.report[0] ? state.report : "process ended", where);
        }
        left += state.condition == KOLO_PEER_LEFT ||
                (state.condition == KOLO_PEER_ALIVE && state.ended);
        if (state.condition == KOLO_PEER_LEFT &&
            (kolo_p2p_open_with(comm, p) || kolo_p2p_open_any(comm))) {
            bool moved = false; /* receive the messages that it sent before it left */
            kolo_status status = kolo_p2p_progress(comm, &moved);
            if (status != KOLO_OK) return kolo_comm_break(comm, status, "%s", kolo_last_error());
        }
        bool needed =
            (state.finished <= oldest && comm->n_flight > 0) || kolo_p2p_open_with(comm, p) != NULL;
        if (state.condition == KOLO_PEER_LEFT && needed) {
            return kolo_comm_break_one(
                comm, KOLO_ERR_PEER, "%s has left the group (after %llu collectives)%s",
                KOLO_RANK(comm, p), (unsigned long long)state.finished, where);
        }
        if (state.condition == KOLO_PEER_FAILED && !report) {
            broken = state;
            broken_rank = p;
            report = &broken;
        }
    }
    if (left > 0 && left == comm->size - 1 && kolo_p2p_open_any(comm)) {
        return kolo_comm_break_one(comm, KOLO_ERR_PEER, "all other ranks have left the group%s",
                                   where);
    }
    if (!report) return KOLO_OK;
    return reported(comm, broken_rank, report);
}

static void watch_below(kolo_comm *comm) {
    if (kolo_comm_in_flight(comm)) (void)kolo_comm_watch(comm);
    for (kolo_comm *c = comm->children; c; c = c->sibling) watch_below(c);
}

kolo_status kolo_family_watch(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    (void)kolo_comm_watch(comm);
    watch_below(kolo_comm_whole(comm));
    return kolo_comm_check(comm);
}

kolo_status kolo_comm_watch_completion(kolo_comm *comm, uint64_t seq) {
    kolo_transport *t = comm->transport;
    if (!t->alarm || !atomic_load_explicit(t->alarm, memory_order_acquire)) return KOLO_OK;
    for (int p = 0; p < comm->size; p++) {
        kolo_peer_state state;
        if (p == comm->rank) continue;
        t->ops->peer_state(t, p, &state);
        if (state.condition == KOLO_PEER_FAILED && state.finished <= seq)
            return reported(comm, p, &state);
    }
    return KOLO_OK;
}
