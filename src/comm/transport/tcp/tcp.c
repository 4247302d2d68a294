/* Transport `tcp`: one connection between two ranks, which carries announcements, data, credits,
 * error reports and heartbeats (stream.h, wire.h). Either all pairs of ranks are connected, or
 * those that need it, on demand (sparse.c).
 *
 * Sub-groups share the connections of the root group. A rank numbers its groups in order of
 * creation and sends the number to the members; a frame carries the number that its receiver uses.
 * Numbers are never reused, so late frames of a destroyed group are recognized and dropped.
 *
 * Data is copied from the sender's memory to the kernel, and from the kernel directly to the
 * receiver's memory if the receive is posted. Data that arrives earlier goes to the unexpected
 * queue of its collective, so that it never blocks the frames after it. Credits bound the queue: in
 * each collective a sender has at most KOLO_TCP_WINDOW bytes outstanding that the receiver has not
 * consumed. The receiver returns credits every KOLO_TCP_CREDIT_BYTES.
 *
 * FINISHED frames release the slots of collectives, as the control blocks of shm do, which bounds
 * the announcements of a peer too. All frames are checked against these bounds.
 *
 * Each rank sends to each peer at least four times per heartbeat interval; a peer from which
 * nothing arrives for a whole interval is lost. The kernel ends a connection whose data is not
 * acknowledged for that long (TCP_USER_TIMEOUT). It closes the connection at once if the process
 * ends; a rank that leaves in order sends LEAVE first, and waits until its peers' kernels have all
 * data.
 *
 * All calls are made by the thread that holds the communicator (progress_thread.c), except waiting
 * for `events`. */
#include "comm/transport/tcp/tcp.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "comm/transport/network.h"
#include "comm/transport/tcp/internal.h"

#include <stdio.h>
#include <string.h>

enum {
    FINISHED_INTERVAL = KOLO_FLIGHT_MAX / 4,
    LINGER_NS = 2000000000,
    GROUPS_MAX = 1 << 24, /* per root group; see kolo_frame */
};

static kolo_tcp_transport *tcp(kolo_transport *t) { return (kolo_tcp_transport *)t; }

/* ---- progress ---- */

/* Without memory for an announcement the peers would wait for it. */
static void keep_failure(kolo_tcp_transport *t, kolo_status status) {
    if (status != KOLO_OK) t->root->failed = status;
}

static kolo_status take_failure(kolo_tcp_transport *root) {
    kolo_status status = root->failed;
    root->failed = KOLO_OK;
    return status == KOLO_OK ? status : KOLO_FAIL(status, "an announcement was not sent");
}

/* A connection has ended. A rank that leaves in order is not lost. */
static kolo_status lose_link(kolo_tcp_transport *t, int from) {
    const kolo_tcp_peer *p = t->peers[from];
    if (!t->wire->dialer || (p && p->leaving)) return KOLO_OK;
    return kolo_tcp_notify_gone(t, from, t->wire->links[from]->stream.why, -1);
}

/* Called on the root group, for all groups. Returns the first error after having tried all. */
static kolo_status tcp_progress(kolo_transport *base, bool *moved) {
    kolo_tcp_transport *t = tcp(base);
    kolo_status status = take_failure(t);
    kolo_wire_poll(t->wire, moved);
    if (t->wire->dialed) {
        kolo_status taken = kolo_tcp_take_links(t, moved);
        if (status == KOLO_OK) status = taken;
    }
    for (int from = 0; from < t->wire->size; from++) {
        const kolo_link *l = t->wire->links[from];
        if (!l || l->stream.fd < 0) continue;
        kolo_status received = kolo_tcp_receive(t, from, true, moved);
        if (status == KOLO_OK) status = received;
        if (!kolo_wire_drop_closed(t->wire, from)) continue;
        *moved = true;
        received = lose_link(t, from);
        if (status == KOLO_OK) status = received;
    }
    kolo_status beat = kolo_wire_heartbeat(t->wire);
    if (beat == KOLO_OK && t->wire->dialer) beat = kolo_tcp_notify(t);
    return status == KOLO_OK ? beat : status;
}

/* ---- announcements ---- */

static bool tcp_start(kolo_transport *base, uint64_t seq, void **payload) {
    kolo_tcp_transport *t = tcp(base);
    if (seq >= t->all_finished + KOLO_FLIGHT_MAX) {
        uint64_t least = t->finished;
        for (int p = 0; p < base->size; p++) {
            if (t->peers[p] && t->peers[p]->finished < least) least = t->peers[p]->finished;
        }
        t->all_finished = least;
        if (seq >= least + KOLO_FLIGHT_MAX) return false;
    }
    for (int p = 0; p < base->size; p++) {
        if (!t->peers[p]) continue;
        kolo_tcp_channel *c = kolo_tcp_channel_of(t, seq, p);
        kolo_tcp_drop_unexpected(t, c);
        *c = (kolo_tcp_channel){.seq = seq};
    }
    kolo_tcp_own *own = &t->own[seq % KOLO_FLIGHT_MAX];
    own->seq = seq;
    own->started = true;
    own->announced = false;
    own->phase = 0;
    *payload = NULL;
    return true;
}

/* Errors (no memory) are returned by progress. */
static void tcp_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *announcement, const uint64_t *peer_counts,
                       const char *title) {
    kolo_tcp_transport *t = tcp(base);
    kolo_tcp_own *own = &t->own[seq % KOLO_FLIGHT_MAX];
    if (phase > 0) {
        kolo_frame f = {.kind = KOLO_FRAME_PHASE, .seq = seq, .value = phase};
        own->phase = phase;
        for (int p = 0; p < base->size; p++) {
            const kolo_tcp_peer *peer = t->peers[p];
            bool sent = peer && peer->sent_own[seq % KOLO_FLIGHT_MAX] == seq + 1;
            if (sent) keep_failure(t, kolo_tcp_send_frame(t, p, f, NULL));
        }
        return;
    }
    own->announced = true;
    own->peer_counts = peer_counts;
    own->body = (kolo_frame_call){.call = *announcement};
    memcpy(own->body.title, title, strnlen(title, sizeof own->body.title));
    if (seq >= t->started) t->started = seq + 1;
    for (int p = 0; p < base->size; p++) {
        if (t->peers[p]) keep_failure(t, kolo_tcp_announce_one(t, p, own));
    }
}

static bool tcp_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    const kolo_tcp_peer *p = tcp(base)->peers[peer];
    const kolo_tcp_call *c = p ? &p->calls[seq % KOLO_FLIGHT_MAX] : NULL;
    if (!c || !c->announced || c->seq != seq) return false;
    *peer_call = (kolo_peer_call){.call = &c->body.call,
                                  .title = c->body.title,
                                  .phase = c->phase,
                                  .peer_count = &c->peer_count,
                                  .peer_expects = &c->body.expects};
    return true;
}

static bool tcp_started(kolo_transport *base, uint64_t seq, int peer) {
    const kolo_tcp_transport *t = tcp(base);
    kolo_peer_call unused;
    if (tcp_query(base, seq, peer, &unused)) return true;
    if (t->peers[peer]) return false;
    return !t->started_by || t->started_by[peer] == 0 ||
           t->started_by[peer] > seq + 1; /* not known: yes */
}

static void tcp_finish(kolo_transport *base, uint64_t finished) {
    kolo_tcp_transport *t = tcp(base);
    t->finished = finished;
    if (finished - t->finished_sent < FINISHED_INTERVAL) return;
    t->finished_sent = finished;
    kolo_frame f = {.kind = KOLO_FRAME_FINISHED, .value = finished};
    keep_failure(t, kolo_tcp_send_to_all(t, f, NULL));
}

/* ---- messages ---- */

static kolo_status tcp_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *queued, bool *accepted) {
    kolo_tcp_transport *t = tcp(base);
    const kolo_tcp_member *m = &t->members[peer];
    *queued = 0;
    *accepted = false;
    if (!t->peers[peer]) return KOLO_OK;
    kolo_stream *s = &t->peers[peer]->link->stream;
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, seq, peer);
    uint64_t room = KOLO_TCP_WINDOW - (c->sent - c->sent_consumed);
    *accepted = s->data_left == 0 && (room > 0 || bytes == 0) && !s->closed && !s->write_error;
    if (!*accepted) return KOLO_OK;
    if (bytes > room) bytes = room;
    if (bytes > KOLO_FRAME_DATA_MAX) bytes = KOLO_FRAME_DATA_MAX;
    kolo_frame f = {
        .kind = KOLO_FRAME_DATA, .group = m->group, .bytes = (uint32_t)bytes, .seq = seq};
    KOLO_TRY(kolo_stream_push_data(s, &f, data));
    kolo_wire_flush(t->wire, m->wire_rank);
    c->sent += bytes;
    *queued = bytes;
    return KOLO_OK;
}

static bool tcp_sent(kolo_transport *base, uint64_t seq, int peer) {
    const kolo_tcp_peer *p = tcp(base)->peers[peer];
    return !p || p->link->stream.data_left == 0; /* one body at a time */
}

static kolo_status send_credit(kolo_tcp_transport *t, kolo_tcp_channel *c, uint64_t seq, int peer) {
    if (c->consumed - c->credited < KOLO_TCP_CREDIT_BYTES) return KOLO_OK;
    c->credited = c->consumed;
    kolo_frame f = {.kind = KOLO_FRAME_CREDIT, .seq = seq, .value = c->consumed};
    return kolo_tcp_send_frame(t, peer, f, NULL);
}

static kolo_status tcp_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *received, bool *arrived) {
    kolo_tcp_transport *t = tcp(base);
    *received = 0;
    *arrived = false;
    if (!t->peers[peer]) return KOLO_OK;
    kolo_link *l = t->peers[peer]->link;
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, seq, peer);
    size_t done = 0;
    bool moved = true;
    if (bytes == 0) {
        *arrived = c->n_empty > 0;
        if (*arrived) c->n_empty--;
        return KOLO_OK;
    }
    c->wanted = true;
    while (done < bytes && moved) {
        size_t n = kolo_tcp_read_unexpected(t, c, (char *)data + done, bytes - done);
        bool here = l->left > 0 && l->frame.group == t->group;
        if (n == 0 && here && kolo_tcp_channel_of(t, l->frame.seq, peer) == c) {
            size_t most = bytes - done < l->left ? bytes - done : l->left;
            n = kolo_stream_read(&l->stream, (char *)data + done, most);
            l->left -= n;
            l->held = false;
        }
        moved = n > 0;
        done += n;
        c->consumed += n;
        if (done < bytes)
            KOLO_TRY(kolo_tcp_receive(t->root, t->members[peer].wire_rank, false, &moved));
    }
    c->wanted = done < bytes;
    *received = done;
    *arrived = done > 0;
    return send_credit(t, c, seq, peer);
}

/* ---- memory cannot be mapped ---- */

static uint64_t tcp_handle(kolo_transport *base, const void *data, size_t bytes) { return 0; }

static void *tcp_window(kolo_transport *base, int peer, uint64_t handle, size_t bytes) {
    return NULL;
}

/* ---- health ---- */

/* Health of a connection. */
static void watch_link(const kolo_wire *w, const kolo_stream *s, kolo_peer_state *state) {
    int64_t idle_ns = w->polled_ns - s->received_ns;
    state->ended = s->closed || idle_ns > w->heartbeat_ns;
    if (!state->ended || state->condition != KOLO_PEER_ALIVE) return;
    state->condition = KOLO_PEER_LOST;
    if (s->closed) {
        memcpy(state->report, s->why, sizeof s->why);
    } else {
        kolo_snprintf(state->report, sizeof state->report, "no data for %.1f s",
                      (double)idle_ns * 1e-9);
    }
}

/* The peer's state in this group. */
static void tcp_peer_state(kolo_transport *base, int peer, kolo_peer_state *state) {
    const kolo_tcp_transport *t = tcp(base);
    const kolo_tcp_member *m = &t->members[peer];
    const kolo_tcp_peer *p = t->peers[peer];
    *state = (kolo_peer_state){.condition = KOLO_PEER_ALIVE, .finished = t->finished};
    if (m->wire_rank < 0) return;
    if (p) state->finished = p->finished;
    if (m->broken) {
        state->condition = KOLO_PEER_FAILED;
        state->status = m->status;
    } else if (p && p->leaving) {
        state->condition = KOLO_PEER_LEFT;
    }
    if (m->report) snprintf(state->report, sizeof state->report, "%s", m->report);
    if (p) {
        watch_link(t->wire, &p->link->stream, state);
    } else {
        kolo_tcp_watch_unconnected(t, peer, state);
    }
}

static void tcp_need(kolo_transport *base, int peer, bool now) {
    kolo_tcp_transport *t = tcp(base);
    kolo_tcp_member *m = &t->members[peer];
    if (t->peers[peer] || m->wire_rank < 0) return;
    if (now && !m->needed) { /* it may have failed when nothing waited for it */
        m->needed = true;
        if (!t->wire->ranks[m->wire_rank].gone) t->wire->ranks[m->wire_rank].why[0] = '\0';
    }
    kolo_wire_want(t->wire, m->wire_rank);
}

static void tcp_report(kolo_transport *base, kolo_status status, const char *text) {
    kolo_tcp_transport *t = tcp(base);
    t->broken = true;
    if (t->wire->dialer && !t->report) { /* for ranks that connect later */
        t->status = status;
        t->report = kolo_strdup(text);
    }
    kolo_frame f = {.kind = KOLO_FRAME_FINISHED, .value = t->finished};
    (void)kolo_tcp_send_to_all(t, f, NULL);
    f = (kolo_frame){.kind = KOLO_FRAME_REPORT,
                     .bytes = (uint32_t)strnlen(text, KOLO_REPORT_BYTES),
                     .value = status};
    (void)kolo_tcp_send_to_all(t, f, text);
    for (int p = 0; p < t->base.size; p++) { /* what requests had in flight may be freed now */
        if (t->peers[p]) kolo_stream_copy_data(&t->peers[p]->link->stream);
    }
}

/* ---- the end ---- */

/* Waits until the peers have acknowledged all data: a closed socket answers further data with a
 * reset, which discards what the peers have not read. */
static void linger(kolo_tcp_transport *t) {
    int64_t until_ns = kolo_now_ns() + (t->broken ? LINGER_NS / 10 : LINGER_NS);
    while (kolo_wire_has_unsent(t->wire) && kolo_now_ns() < until_ns) {
        bool moved = false;
        if (tcp_progress(&t->base, &moved) != KOLO_OK) break;
        if (!moved) kolo_sleep_ns(100000);
    }
}

static void free_transport(kolo_tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        kolo_free(t->members[p].report);
        if (!t->peers[p]) continue;
        for (int c = 0; c < KOLO_TCP_CHANNELS; c++) kolo_free(t->peers[p]->channels[c].unexpected);
        kolo_free(t->peers[p]);
    }
    while (t->spare) {
        kolo_tcp_unexpected *next = t->spare->next;
        kolo_free(t->spare);
        t->spare = next;
    }
    if (!t->parent) kolo_wire_destroy(t->wire);
    kolo_tcp_drop_pending_leaves(t);
    kolo_segment_fini(&t->base.segment);
    kolo_free(t->ranks);
    kolo_free(t->members);
    kolo_free(t->report);
    kolo_free(t->started_by);
    kolo_free(t);
}

/* Removes a sub-group from the list of groups; its connections stay. */
static void unlink_group(kolo_tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (t->peers[p]) kolo_stream_copy_data(&t->peers[p]->link->stream);
    }
    kolo_tcp_transport **g = &t->root;
    while (*g != t) g = &(*g)->next;
    *g = t->next;
}

static void tcp_abandon(kolo_transport *base) { kolo_wire_abandon(tcp(base)->wire); }

static void tcp_destroy(kolo_transport *base, const char *why) {
    kolo_tcp_transport *t = tcp(base);
    if (!t->parent && t->wire->dialer) { /* those that have just connected get LEAVE too */
        bool moved;
        t->wire->dialer->ops->stop(t->wire->dialer);
        (void)kolo_tcp_take_links(t, &moved);
    }
    if (!t->broken) {
        (void)kolo_tcp_send_to_all(t, kolo_tcp_leave_frame(t, why), why);
    }
    if (t->parent) {
        kolo_tcp_queue_leaves(t, why);
        unlink_group(t);
    } else {
        linger(t);
    }
    free_transport(t);
}

/* ---- groups ---- */

static void set_member(kolo_tcp_transport *t, int peer, int wire_rank) {
    t->members[peer].wire_rank = wire_rank;
    t->ranks[wire_rank] = peer;
}

/* Allocates a transport without wire, peers and rank map. */
static kolo_tcp_transport *alloc_transport(const kolo_transport_ops *ops, int rank, int size,
                                           int wire_size) {
    kolo_tcp_transport *t = kolo_zalloc(sizeof *t + (size_t)size * sizeof(kolo_tcp_peer *));
    int *ranks = kolo_zalloc((size_t)wire_size * sizeof *ranks);
    kolo_tcp_member *members = kolo_zalloc((size_t)size * sizeof *members);
    if (!t || !ranks || !members) {
        kolo_free(t);
        kolo_free(ranks);
        kolo_free(members);
        return NULL;
    }
    t->base = (kolo_transport){.ops = ops,
                               .name = "tcp",
                               .multihost_name = "shm+tcp",
                               .rank = rank,
                               .size = size,
                               .events = -1,
                               .segment.fd = -1};
    t->base.alarm = &t->alarm;
    t->ranks = ranks;
    t->members = members;
    for (int p = 0; p < wire_size; p++) ranks[p] = -1;
    for (int p = 0; p < size; p++) members[p].wire_rank = -1;
    return t;
}

static kolo_status tcp_sub_attach(kolo_transport *base, int peer,
                                  const kolo_subgroup_address *address) {
    kolo_tcp_transport *t = tcp(base);
    kolo_tcp_member *m = &t->members[peer];
    if (m->wire_rank < 0) return KOLO_OK;
    if (address->group == 0 || address->group >= GROUPS_MAX) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent an invalid group number", m->wire_rank);
    }
    m->group = (uint32_t)address->group;
    if (!t->wire->dialer) return KOLO_OK;
    kolo_tcp_want_near(t, peer);
    return t->peers[peer] ? kolo_tcp_introduce(t, peer) : KOLO_OK;
}

static kolo_status tcp_sub(kolo_transport *parent_base, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_subgroup_address *address);

/* The operations of the root group and of sub-groups. */
#define TCP_OPS(pump_)                                                                       \
    {                                                                                        \
        .start = tcp_start, .signal = tcp_signal, .query = tcp_query, .finish = tcp_finish,  \
        .send = tcp_send, .sent = tcp_sent, .recv = tcp_recv, .handle = tcp_handle,          \
        .need = tcp_need, .started = tcp_started, .window = tcp_window, .progress = (pump_), \
        .peer_state = tcp_peer_state, .report = tcp_report, .subgroup = tcp_sub,             \
        .attach = tcp_sub_attach, .abandon = tcp_abandon, .destroy = tcp_destroy,            \
    }

static const kolo_transport_ops tcp_ops = TCP_OPS(tcp_progress);
static const kolo_transport_ops sub_ops = TCP_OPS(NULL);

static kolo_status add_members(kolo_tcp_transport *t, const int *members) {
    for (int p = 0; p < t->base.size; p++) {
        const int wire_rank = t->parent->members[members[p]].wire_rank;
        if (wire_rank < 0) continue;
        set_member(t, p, wire_rank);
        if (t->wire->links[wire_rank]) KOLO_TRY(kolo_tcp_add_peer(t, p));
    }
    return KOLO_OK;
}

static kolo_status tcp_sub(kolo_transport *parent_base, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_subgroup_address *address) {
    kolo_tcp_transport *parent = tcp(parent_base), *root = parent->root;
    if (root->next_group == GROUPS_MAX) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%d sub-groups have been created, the maximum",
                         GROUPS_MAX - 1);
    }
    kolo_tcp_transport *t = alloc_transport(&sub_ops, rank, size, parent->wire->size);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->wire = parent->wire;
    t->parent = parent;
    t->root = root;
    t->base.events = parent_base->events;
    t->base.no_wakeup = parent_base->no_wakeup;
    t->base.sparse = t->wire->dialer != NULL;
    t->base.segment.of = &parent_base->segment;
    kolo_status status = add_members(t, members);
    if (status != KOLO_OK) {
        free_transport(t);
        return status;
    }
    t->group = root->next_group++;
    t->next = root->next;
    root->next = t;
    *address = (kolo_subgroup_address){.group = t->group};
    *sub = &t->base;
    return KOLO_OK;
}

kolo_status kolo_tcp_create(int rank, int size, size_t segment_bytes, int64_t heartbeat_ms,
                            kolo_transport **transport) {
    kolo_tcp_transport *t = alloc_transport(&tcp_ops, rank, size, size);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->root = t;
    t->next_group = 1;
    kolo_status status = kolo_segment_init(&t->base.segment, segment_bytes, false);
    if (status == KOLO_OK) status = kolo_wire_create(size, heartbeat_ms, &t->wire);
    if (status != KOLO_OK) {
        free_transport(t);
        return status;
    }
    t->base.events = t->wire->events;
    *transport = &t->base;
    return KOLO_OK;
}

kolo_status kolo_tcp_attach(kolo_transport *base, int peer, int fd, const kolo_seal_keys *keys) {
    kolo_tcp_transport *t = tcp(base);
    KOLO_ASSERT(peer != base->rank && !t->peers[peer]);
    KOLO_TRY(kolo_wire_attach(t->wire, peer, fd, keys));
    set_member(t, peer, peer);
    return kolo_tcp_add_peer(t, peer);
}

static kolo_status dial(kolo_transport *base, kolo_dialer *dialer) {
    kolo_status status = kolo_wire_dial(tcp(base)->wire, dialer);
    if (status != KOLO_OK) dialer->ops->destroy(dialer);
    base->sparse = status == KOLO_OK;
    return status;
}

static void expect(kolo_transport *base, int peer) { set_member(tcp(base), peer, peer); }

static kolo_status create(const kolo_network_opts *opts, kolo_transport **t) {
    return kolo_tcp_create(opts->rank, opts->size, opts->segment_bytes, opts->heartbeat_ms, t);
}

static kolo_status attach(kolo_transport *t, int peer, int fd, const void *address,
                          const kolo_seal_keys *keys) {
    return kolo_tcp_attach(t, peer, fd, keys);
}

const kolo_network kolo_network_tcp = {
    .create = create, .attach = attach, .dial = dial, .expect = expect, .encrypts = true};
