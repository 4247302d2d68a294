/* Turns a peer that its transport found lost, or that reports a failure, into the error of the
 * requests that need it. Each transport decides when a peer is lost (`peer_state`). */
#include "comm/engine/watch.h"

#include "base/status.h"
#include "base/text.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"
#include "comm/engine/report.h"

#include <stdio.h>
#include <string.h>

/* What a look at all peers has found: of each kind the first one; -1: none. */
typedef struct findings {
    int lost;   /* it is lost, and has reported nothing */
    int failed; /* it has reported a failure */
    int ended;  /* it is lost, and has reported a failure in a larger group */
    int leaver; /* it has left, and is needed */
    int n_left;
    kolo_peer_state failure, leave; /* of `failed`, or `ended`; of `leaver` */
} findings;

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

static kolo_status left(kolo_comm *comm, int peer, const kolo_peer_state *state,
                        const char *where) {
    const char *error = state->report;
    return kolo_comm_break_one(comm, KOLO_ERR_PEER,
                               "%s has left the group (after %llu collectives)%s%s%s",
                               KOLO_RANK(comm, peer), (unsigned long long)state->finished, where,
                               error[0] ? "; its error: " : "", error);
}

/* Whether a peer has reported a failure in a group above: what it had lost there may be no member
 * of this one. Those above a successor had failed before it. */
static bool has_reported_above(const kolo_comm *comm, int peer, kolo_peer_state *report) {
    const int rank = kolo_comm_whole_rank(comm, peer);
    for (; comm->parent && !comm->successor; comm = comm->parent) {
        kolo_transport *above = comm->parent->transport;
        above->ops->peer_state(above, kolo_comm_member(comm->parent, rank), report);
        if (report->condition == KOLO_PEER_FAILED) return true;
    }
    return false;
}

/* Whether something in flight waits for the peer. */
static bool is_needed(const kolo_comm *comm, int peer, const kolo_peer_state *state) {
    uint64_t oldest = comm->n_flight > 0 ? comm->flight[0]->seq : UINT64_MAX;
    return (state->finished <= oldest && comm->n_flight > 0) ||
           kolo_p2p_open_with(comm, peer) != NULL;
}

/* Receives the messages that a peer sent before it left. */
static kolo_status receive_last(kolo_comm *comm, int peer) {
    bool moved = false;
    if (!kolo_p2p_open_with(comm, peer) && !kolo_p2p_open_any(comm)) return KOLO_OK;
    kolo_status status = kolo_p2p_progress(comm, &moved);
    return status == KOLO_OK ? status : kolo_comm_break(comm, status, "%s", kolo_last_error());
}

/* The first of a kind. */
static bool take_first(int *which, int peer) {
    if (*which >= 0) return false;
    *which = peer;
    return true;
}

static kolo_status look_at(kolo_comm *comm, int peer, findings *f) {
    kolo_peer_state state, report;
    comm->transport->ops->peer_state(comm->transport, peer, &state);
    switch (state.condition) {
    case KOLO_PEER_ALIVE:
        f->n_left += state.ended;
        return KOLO_OK;
    case KOLO_PEER_LOST:
        if (!has_reported_above(comm, peer, &report)) {
            (void)take_first(&f->lost, peer);
        } else if (take_first(&f->ended, peer) && f->failed < 0) {
            f->failure = report;
        }
        return KOLO_OK;
    case KOLO_PEER_FAILED:
        if (take_first(&f->failed, peer)) f->failure = state;
        return KOLO_OK;
    case KOLO_PEER_LEFT:
        break;
    }
    f->n_left++;
    KOLO_TRY(receive_last(comm, peer));
    if (is_needed(comm, peer, &state) && take_first(&f->leaver, peer)) f->leave = state;
    return KOLO_OK;
}

/* Whether a peer is lost, and has reported nothing; if so, why. */
static bool is_lost(const kolo_comm *comm, int peer, char why[KOLO_REPORT_BYTES]) {
    kolo_peer_state state, report;
    if (peer == comm->rank) return false;
    comm->transport->ops->peer_state(comm->transport, peer, &state);
    snprintf(why, KOLO_REPORT_BYTES, "%s", state.report[0] ? state.report : "process ended");
    return state.condition == KOLO_PEER_LOST && !has_reported_above(comm, peer, &report);
}

/* Breaks the groups of all ranks that are lost, from `first` on. The error names several, since the
 * order in which they were lost is not known. */
static kolo_status lose(kolo_comm *comm, int first) {
    enum { NAMED = 3 };
    char why[KOLO_REPORT_BYTES];
    kolo_text text = {0};
    int n = 0;
    for (int p = first; p < comm->size; p++) {
        if (!is_lost(comm, p, why) || n++ >= NAMED) continue;
        kolo_text_add(&text, "%s%s is gone (%.80s)", n > 1 ? ", " : "", KOLO_RANK(comm, p), why);
    }
    if (n > NAMED) kolo_text_add(&text, " and %d more", n - NAMED);
    kolo_comm_describe_loss(comm, first, &text);
    for (int p = first; p < comm->size; p++) {
        if (!is_lost(comm, p, why)) continue;
        (void)kolo_comm_break_lost(comm, p, "%s", text.text ? text.text : "a rank is gone");
    }
    kolo_text_fini(&text);
    return kolo_comm_check(comm);
}

void kolo_comm_look_for_others(kolo_comm *comm) {
    for (int p = 0; p < comm->size; p++) kolo_transport_need(comm->transport, p, false);
}

/* What a lost peer did before may complete a request that has not been polled since: the loss
 * breaks the communicator at the next check, which is due at once. */
static bool is_news(kolo_comm *comm) {
    if (comm->loss_noticed) return false;
    comm->loss_noticed = true;
    comm->looked_ns = comm->watched_ns = 0;
    return true;
}

/* `polled`: the requests, just before. */
static kolo_status check_peers(kolo_comm *comm, bool polled) {
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(kolo_comm_check(comm));
    findings f = {.lost = -1, .failed = -1, .ended = -1, .leaver = -1};
    char where[KOLO_TITLE_BYTES + 64];
    add_where(comm, where, sizeof where);
    for (int p = 0; p < comm->size; p++) {
        if (p != comm->rank) KOLO_TRY(look_at(comm, p, &f));
    }
    if (f.lost >= 0) return !polled && is_news(comm) ? KOLO_OK : lose(comm, f.lost);
    if (f.failed >= 0) return reported(comm, f.failed, &f.failure);
    if (f.ended >= 0) {
        return kolo_comm_break_lost(comm, f.ended, "%s is gone%s; it had reported: %s",
                                    KOLO_RANK(comm, f.ended), where, f.failure.report);
    }
    if (f.leaver >= 0) return left(comm, f.leaver, &f.leave, where);
    if (f.n_left == 0 || !kolo_p2p_open_any(comm)) return KOLO_OK;
    if (f.n_left == comm->size - 1) {
        return kolo_comm_break_one(comm, KOLO_ERR_PEER, "all other ranks have left the group%s",
                                   where);
    }
    kolo_comm_look_for_others(comm);
    return KOLO_OK;
}

kolo_status kolo_comm_watch(kolo_comm *comm) { return check_peers(comm, true); }

static void watch_below(kolo_comm *comm) {
    if (kolo_comm_in_flight(comm)) (void)check_peers(comm, false);
    for (kolo_comm *c = comm->children; c; c = c->sibling) watch_below(c);
}

kolo_status kolo_family_watch(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    if (!kolo_comm_in_flight(comm)) (void)check_peers(comm, false);
    watch_below(kolo_comm_whole(comm));
    return kolo_comm_check(comm);
}

/* A peer that has reported a failure, or left, before it has finished a collective; -1: none. */
static int find_departed(kolo_comm *comm, uint64_t seq, kolo_peer_state *state) {
    kolo_transport *t = comm->transport;
    for (int p = 0; p < comm->size; p++) {
        if (p == comm->rank) continue;
        t->ops->peer_state(t, p, state);
        bool gone = state->condition == KOLO_PEER_FAILED || state->condition == KOLO_PEER_LEFT;
        if (gone && state->finished <= seq) return p;
    }
    return -1;
}

bool kolo_comm_may_complete_alarmed(kolo_comm *comm, uint64_t seq) {
    kolo_peer_state state;
    return find_departed(comm, seq, &state) < 0;
}

kolo_status kolo_comm_watch_alarm(kolo_comm *comm, uint64_t seq) {
    kolo_peer_state state;
    char where[KOLO_TITLE_BYTES + 64];
    int peer = find_departed(comm, seq, &state);
    if (peer < 0) return KOLO_OK;
    if (state.condition == KOLO_PEER_FAILED) return reported(comm, peer, &state);
    add_where(comm, where, sizeof where);
    return left(comm, peer, &state, where);
}
