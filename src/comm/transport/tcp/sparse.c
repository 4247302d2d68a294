/* Transport `tcp`, groups in which not all pairs of ranks are connected.
 *
 * A rank asks the dialer for a connection when something waits for a peer, or soon may. When it is
 * there, each side sends what the other one has missed in each group that both are in: the
 * collectives in flight, reports of failures, that it has left.
 *
 * A rank that waits for another one is connected to it, and notices its end itself. What others
 * need too is passed on along the connections, which join all ranks of a group
 * (kolo_tcp_want_near):
 *
 * - GONE: a rank is lost. Each rank sends this to all it is connected to, once, after the failure
 *   that the lost one has reported, if any. A rank that is itself connected to the lost one decides
 *   for itself.
 * - REPORT: each rank passes on the first report of a group.
 * - STARTED: while a collective does not end, ranks send each other who has started it, so that the
 *   errors of all name those that have not. The counts only grow, and are sent when they change. */
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/transport/tcp/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTIFY_NS = 250000000 };

/* That this rank has left a sub-group, for a rank that was not connected. */
typedef struct kolo_tcp_pending_leave {
    struct kolo_tcp_pending_leave *next;
    int wire_rank;
    kolo_frame frame;
    char why[]; /* its body */
} kolo_tcp_pending_leave;

/* ---- connections ---- */

static bool is_open(const kolo_wire *w, int rank) {
    return w->links[rank] && !w->links[rank]->stream.closed;
}

static bool is_leaving(const kolo_tcp_transport *root, int rank) {
    return root->peers[rank] && root->peers[rank]->leaving;
}

void kolo_tcp_want_near(kolo_tcp_transport *t, int peer) {
    const int up = abs(peer - t->base.rank), down = t->base.size - up;
    const bool near = (up & (up - 1)) == 0 || (down & (down - 1)) == 0;
    if (near && !t->peers[peer]) kolo_wire_want(t->wire, t->members[peer].wire_rank);
}

static kolo_status send_report(kolo_tcp_transport *t, int to, int origin, kolo_status status,
                               const char *text) {
    kolo_frame f = {.kind = KOLO_FRAME_REPORT,
                    .bytes = (uint32_t)(text ? strnlen(text, KOLO_REPORT_BYTES) : 0),
                    .seq = origin < 0 ? 0 : (uint64_t)origin + 1,
                    .value = status};
    return kolo_tcp_send_frame(t, to, f, text);
}

/* Reports of the group that the peer may not have. */
static kolo_status send_reports(kolo_tcp_transport *t, int peer) {
    if (t->broken) return send_report(t, peer, -1, t->status, t->report);
    for (int r = 0; r < t->base.size; r++) {
        const kolo_tcp_member *m = &t->members[r];
        if (m->broken && r != peer) return send_report(t, peer, r, m->status, m->report);
    }
    return KOLO_OK;
}

static kolo_status send_started(kolo_tcp_transport *t, int peer) {
    enum { MOST = KOLO_FRAME_STARTED_MAX / sizeof *t->started_by };
    for (int r = 0; r < t->base.size; r += MOST) {
        const int n = t->base.size - r < MOST ? t->base.size - r : MOST;
        kolo_frame f = {.kind = KOLO_FRAME_STARTED,
                        .bytes = (uint32_t)((size_t)n * sizeof *t->started_by),
                        .value = (uint64_t)r};
        KOLO_TRY(kolo_tcp_send_frame(t, peer, f, &t->started_by[r]));
    }
    return KOLO_OK;
}

kolo_status kolo_tcp_introduce(kolo_tcp_transport *t, int peer) {
    if (t->parent && t->members[peer].group == 0) return KOLO_OK; /* when it is attached */
    if (t->finished > 0) {
        kolo_frame f = {.kind = KOLO_FRAME_FINISHED, .value = t->finished};
        KOLO_TRY(kolo_tcp_send_frame(t, peer, f, NULL));
    }
    KOLO_TRY(kolo_tcp_announce(t, peer));
    KOLO_TRY(send_reports(t, peer));
    return t->started_by ? send_started(t, peer) : KOLO_OK;
}

static kolo_status send_pending_leaves(kolo_tcp_transport *root, int wire_rank) {
    kolo_tcp_pending_leave **at = &root->pending_leaves;
    while (*at) {
        kolo_tcp_pending_leave *gone = *at;
        if (gone->wire_rank != wire_rank) {
            at = &gone->next;
            continue;
        }
        KOLO_TRY(kolo_wire_send(root->wire, wire_rank, &gone->frame, gone->why));
        *at = gone->next;
        kolo_free(gone);
    }
    return KOLO_OK;
}

static kolo_status send_gone(kolo_tcp_transport *root, int to, int gone) {
    const kolo_tcp_member *m = &root->members[gone];
    const char *why = root->wire->ranks[gone].why;
    kolo_frame f = {.kind = KOLO_FRAME_GONE,
                    .bytes = (uint32_t)strnlen(why, KOLO_FRAME_WHY_BYTES),
                    .value = (uint64_t)gone};
    if (m->broken) KOLO_TRY(send_report(root, to, gone, m->status, m->report));
    return kolo_wire_send(root->wire, to, &f, why);
}

/* Attaches a connection to all groups that both ranks are in. */
static kolo_status use_link(kolo_tcp_transport *root, int rank) {
    kolo_wire *w = root->wire;
    for (kolo_tcp_transport *t = root; t; t = t->next) {
        if (t->ranks[rank] >= 0) KOLO_TRY(kolo_tcp_add_peer(t, t->ranks[rank]));
    }
    for (kolo_tcp_transport *t = root; t; t = t->next) {
        if (t->ranks[rank] >= 0) KOLO_TRY(kolo_tcp_introduce(t, t->ranks[rank]));
    }
    for (int r = 0; r < w->size; r++) {
        if (w->ranks[r].gone && r != rank) KOLO_TRY(send_gone(root, rank, r));
    }
    kolo_log_line(KOLO_LOG_DEBUG, root->base.rank, "connected to rank %d by tcp, on demand", rank);
    return send_pending_leaves(root, rank);
}

static kolo_status add_link(kolo_tcp_transport *root, const kolo_dialed *d) {
    kolo_wire *w = root->wire;
    KOLO_TRY(kolo_wire_attach(w, d->peer, d->fd, kolo_seal_keys_or_none(&d->keys)));
    w->ranks[d->peer].gone = false;
    w->ranks[d->peer].why[0] = '\0';
    kolo_status status = use_link(root, d->peer);
    if (status != KOLO_OK) kolo_stream_end(&w->links[d->peer]->stream, "out of memory");
    return status;
}

kolo_status kolo_tcp_take_links(kolo_tcp_transport *root, bool *moved) {
    kolo_wire *w = root->wire;
    kolo_dialed d;
    kolo_status status = KOLO_OK;
    w->dialed = false;
    while (w->dialer->ops->take(w->dialer, &d)) {
        kolo_wire_rank *r = &w->ranks[d.peer];
        *moved = true;
        r->wanted = false;
        if (d.connected) {
            kolo_status added = add_link(root, &d);
            if (status == KOLO_OK) status = added;
        } else if (!r->gone) {
            snprintf(r->why, sizeof r->why, "not connected: %.45s", d.why);
        }
        kolo_seal_keys_clear(&d.keys);
    }
    return status;
}

void kolo_tcp_drop_pending_leaves(kolo_tcp_transport *root) {
    while (root->pending_leaves) {
        kolo_tcp_pending_leave *next = root->pending_leaves->next;
        kolo_free(root->pending_leaves);
        root->pending_leaves = next;
    }
}

kolo_frame kolo_tcp_leave_frame(const kolo_tcp_transport *t, const char *why) {
    return (kolo_frame){.kind = KOLO_FRAME_LEAVE,
                        .bytes = (uint32_t)(why ? strnlen(why, KOLO_REPORT_BYTES) : 0),
                        .value = t->finished};
}

void kolo_tcp_queue_leaves(kolo_tcp_transport *t, const char *why) {
    for (int p = 0; p < t->base.size; p++) {
        const kolo_tcp_member *m = &t->members[p];
        if (m->wire_rank < 0 || t->peers[p] || m->group == 0) continue;
        kolo_frame frame = kolo_tcp_leave_frame(t, why);
        kolo_tcp_pending_leave *f = kolo_alloc(sizeof *f + frame.bytes);
        if (!f) return; /* it will time out */
        f->next = t->root->pending_leaves;
        f->wire_rank = m->wire_rank;
        f->frame = frame;
        f->frame.group = m->group;
        if (why) memcpy(f->why, why, frame.bytes);
        t->root->pending_leaves = f;
    }
}

/* ---- lost ranks ---- */

kolo_status kolo_tcp_notify_gone(kolo_tcp_transport *root, int gone, const char *why, int from) {
    kolo_wire *w = root->wire;
    kolo_wire_rank *r = &w->ranks[gone];
    if (r->others_notified) return KOLO_OK;
    r->others_notified = true;
    snprintf(r->why, sizeof r->why, "%s", why);
    for (int p = 0; p < w->size; p++) {
        if (p != from && p != gone && is_open(w, p)) KOLO_TRY(send_gone(root, p, gone));
    }
    return KOLO_OK;
}

kolo_status kolo_tcp_take_gone(kolo_tcp_transport *root, int from, const kolo_frame *f,
                               const char *body) {
    kolo_wire *w = root->wire;
    char why[KOLO_DIALED_WHY_BYTES] = "";
    if (f->value >= (uint64_t)w->size || f->bytes >= sizeof why) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "it sent an invalid frame: rank %llu is gone",
                         (unsigned long long)f->value);
    }
    const int gone = (int)f->value;
    if (gone == root->base.rank) return KOLO_OK;
    if (is_open(w, gone)) return KOLO_OK; /* this rank detects it, and notifies others */
    if (is_leaving(root, gone)) return KOLO_OK;
    memcpy(why, body, f->bytes);
    w->ranks[gone].gone = root->members[gone].wire_rank >= 0; /* else memory shows it */
    return kolo_tcp_notify_gone(root, gone, why, from);
}

void kolo_tcp_watch_unconnected(const kolo_tcp_transport *t, int peer, kolo_peer_state *state) {
    const kolo_tcp_member *m = &t->members[peer];
    const kolo_wire_rank *r = &t->wire->ranks[m->wire_rank];
    state->ended = r->gone || r->why[0];
    if (!r->gone && !(m->needed && r->why[0])) return;
    if (state->condition != KOLO_PEER_ALIVE) return;
    state->condition = KOLO_PEER_LOST;
    memcpy(state->report, r->why, sizeof r->why);
}

/* ---- reports ---- */

kolo_status kolo_tcp_pass_on(kolo_tcp_transport *t, int origin, int from) {
    const kolo_tcp_member *m = &t->members[origin];
    if (!t->wire->dialer || t->broken || t->passed_on) return KOLO_OK;
    t->passed_on = true;
    for (int p = 0; p < t->base.size; p++) {
        if (p == from || p == origin || !t->peers[p]) continue;
        KOLO_TRY(send_report(t, p, origin, m->status, m->report));
    }
    return KOLO_OK;
}

/* ---- who has started what ---- */

static kolo_status alloc_started_by(kolo_tcp_transport *t) {
    const size_t bytes = (size_t)t->base.size * sizeof *t->started_by;
    if (!t->started_by) t->started_by = kolo_zalloc(bytes);
    return t->started_by ? KOLO_OK : KOLO_NOMEM(bytes);
}

kolo_status kolo_tcp_take_started(kolo_tcp_transport *t, const kolo_frame *f, const char *body) {
    const size_t n = f->bytes / sizeof *t->started_by, size = (size_t)t->base.size;
    if (f->bytes % sizeof *t->started_by != 0 || f->value >= size || n > size - f->value) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "it sent an invalid frame: %zu counts from rank %llu", n,
                         (unsigned long long)f->value);
    }
    KOLO_TRY(alloc_started_by(t));
    for (size_t i = 0; i < n; i++) {
        uint64_t count, *own = &t->started_by[f->value + i];
        memcpy(&count, body + i * sizeof count, sizeof count);
        if (count <= *own) continue;
        *own = count;
        t->started_changed = true;
    }
    return KOLO_OK;
}

/* A collective that has not ended since the last look waits for some rank. */
static kolo_status notify_started(kolo_tcp_transport *t) {
    const bool stalled = t->started > t->finished && t->stalled_at == t->finished + 1;
    t->stalled_at = t->finished + 1;
    if (stalled) KOLO_TRY(alloc_started_by(t));
    if (!t->started_by || t->broken) return KOLO_OK;
    uint64_t *own = &t->started_by[t->base.rank];
    t->started_changed = t->started_changed || (stalled && *own < t->started + 1);
    *own = t->started + 1;
    if (!t->started_changed) return KOLO_OK;
    t->started_changed = false;
    for (int p = 0; p < t->base.size; p++) {
        if (t->peers[p]) KOLO_TRY(send_started(t, p));
    }
    return KOLO_OK;
}

kolo_status kolo_tcp_notify(kolo_tcp_transport *root) {
    kolo_wire *w = root->wire;
    if (w->polled_ns - root->notified_ns < NOTIFY_NS) return KOLO_OK;
    root->notified_ns = w->polled_ns;
    for (int p = 0; p < w->size; p++) {
        if (!is_open(w, p) || is_leaving(root, p)) continue;
        const int64_t idle_ns = w->polled_ns - w->links[p]->stream.received_ns;
        char why[KOLO_DIALED_WHY_BYTES];
        if (idle_ns <= w->heartbeat_ns) continue;
        kolo_snprintf(why, sizeof why, "no data for %.1f s", (double)idle_ns * 1e-9);
        KOLO_TRY(kolo_tcp_notify_gone(root, p, why, -1));
    }
    for (kolo_tcp_transport *t = root; t; t = t->next) KOLO_TRY(notify_started(t));
    return KOLO_OK;
}
