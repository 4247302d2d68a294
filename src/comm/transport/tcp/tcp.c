/* Transport `tcp`: one connection between each two ranks, which carries everything between them:
 * announcements, data, acknowledgements, failures, heartbeats (stream.h, wire.h).
 *
 * Sub-groups use the connections of the whole group. A rank numbers its groups as it makes them and
 * tells the members its number; a frame bears the number that its receiver knows the group by.
 * Numbers are not used again, so what comes late for a group that is gone is known for it, and
 * dropped.
 *
 * Data goes from the sender's memory to the kernel, and from the kernel to the receiver's memory
 * when a receive is open for it. What comes before its receive is open is put aside, so that it
 * never holds up what is behind it; how much that may be is bounded by a window: of each collective
 * a sender has at most KOLO_TCP_WINDOW bytes out that the receiver has not taken. A receiver tells
 * from time to time how much it has taken.
 *
 * News of `finished` let the places of collectives be used again, as on the boards of shm; so a
 * peer's announcements are bounded too. Everything from a peer is checked against these bounds.
 *
 * Each rank says something to each peer at least four times in the time of a heartbeat; a peer that
 * is silent for longer than that is lost. Data that its kernel does not acknowledge for so long
 * ends the connection (TCP_USER_TIMEOUT). A process that ends, however it does, closes it at once;
 * one that leaves in order says so first, and stays until its peers' kernels have everything.
 *
 * All calls belong to who has the communicator (progress.c); only waiting for `events` does not. */
#include "comm/transport/tcp/tcp.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/transport/tcp/internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    TELL_TAKEN = KOLO_TCP_WINDOW / 4,
    TELL_FINISHED = KOLO_FLIGHT_MAX / 4,
    LINGER_NS = 2000000000,
    GROUPS_MOST = 1 << 24, /* in the life of a family; see kolo_frame */
};

static kolo_tcp_transport *tcp(kolo_transport *t) { return (kolo_tcp_transport *)t; }

/* ---- saying something ---- */

static kolo_status say(kolo_tcp_transport *t, int peer, kolo_frame frame, const void *body) {
    const kolo_tcp_peer *p = t->peers[peer];
    if (t->parent && p->group == 0) return KOLO_OK; /* the group has not come about */
    frame.group = p->group;
    return kolo_wire_say(t->wire, p->wire_rank, &frame, body);
}

/* To all peers; the first failure, after having tried all. */
static kolo_status say_to_all(kolo_tcp_transport *t, kolo_frame frame, const void *body) {
    kolo_status status = KOLO_OK;
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        kolo_status said = say(t, p, frame, body);
        if (status == KOLO_OK) status = said;
    }
    return status;
}

/* Of the whole group, for all. */
static kolo_status tcp_progress(kolo_transport *base, bool *moved) {
    kolo_tcp_transport *t = tcp(base);
    kolo_wire_poll(t->wire, moved);
    for (int from = 0; from < t->wire->size; from++) {
        const kolo_link *l = t->wire->links[from];
        if (!l || l->stream.fd < 0) continue;
        KOLO_TRY(kolo_tcp_hear(t, from, true, moved));
        if (kolo_wire_drop_closed(t->wire, from)) *moved = true;
    }
    return kolo_wire_beat(t->wire);
}

/* ---- announcements ---- */

static bool tcp_start(kolo_transport *base, uint64_t seq, void **payload) {
    kolo_tcp_transport *t = tcp(base);
    if (seq >= t->settled + KOLO_FLIGHT_MAX) {
        uint64_t least = t->finished;
        for (int p = 0; p < base->size; p++) {
            if (t->peers[p] && t->peers[p]->finished < least) least = t->peers[p]->finished;
        }
        t->settled = least;
        if (seq >= least + KOLO_FLIGHT_MAX) return false;
    }
    for (int p = 0; p < base->size; p++) {
        if (!t->peers[p]) continue;
        kolo_tcp_channel *c = kolo_tcp_channel_of(t, seq, p);
        kolo_tcp_give_back(t, c);
        *c = (kolo_tcp_channel){.seq = seq};
    }
    *payload = NULL;
    return true;
}

/* Without memory for its words a rank cannot go on; the engine hears of it at the next send, or at
 * its deadline. */
static void tcp_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *announcement, const uint64_t *peer_counts,
                       const char *title) {
    kolo_tcp_transport *t = tcp(base);
    if (phase > 0) {
        kolo_frame f = {.kind = KOLO_FRAME_PHASE, .seq = seq, .value = phase};
        (void)say_to_all(t, f, NULL);
        return;
    }
    kolo_frame_call body = {.call = *announcement};
    memcpy(body.title, title, strnlen(title, sizeof body.title));
    kolo_frame f = {.kind = KOLO_FRAME_ANNOUNCE, .bytes = sizeof body, .seq = seq};
    for (int p = 0; p < base->size; p++) {
        if (peer_counts) f.value = peer_counts[p];
        if (t->peers[p]) (void)say(t, p, f, &body);
    }
}

static bool tcp_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    const kolo_tcp_call *c = &tcp(base)->peers[peer]->calls[seq % KOLO_FLIGHT_MAX];
    if (!c->made || c->seq != seq) return false;
    *peer_call = (kolo_peer_call){
        .call = &c->body.call, .title = c->body.title, .phase = c->phase, .peer_count = &c->word};
    return true;
}

static void tcp_finish(kolo_transport *base, uint64_t finished) {
    kolo_tcp_transport *t = tcp(base);
    t->finished = finished;
    if (finished - t->finished_told < TELL_FINISHED) return;
    t->finished_told = finished;
    (void)say_to_all(t, (kolo_frame){.kind = KOLO_FRAME_FINISHED, .value = finished}, NULL);
}

/* ---- messages ---- */

static kolo_status tcp_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *taken, bool *accepted) {
    kolo_tcp_transport *t = tcp(base);
    const kolo_tcp_peer *p = t->peers[peer];
    kolo_stream *s = &p->link->stream;
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, seq, peer);
    uint64_t room = KOLO_TCP_WINDOW - (c->sent - c->sent_taken);
    *taken = 0;
    *accepted = s->data_left == 0 && (room > 0 || bytes == 0) && !s->closed && !s->write_error;
    if (!*accepted) return KOLO_OK;
    if (bytes > room) bytes = room;
    if (bytes > KOLO_FRAME_DATA_MOST) bytes = KOLO_FRAME_DATA_MOST;
    kolo_frame f = {
        .kind = KOLO_FRAME_DATA, .group = p->group, .bytes = (uint32_t)bytes, .seq = seq};
    KOLO_TRY(kolo_stream_push_data(s, &f, data));
    kolo_wire_flush(t->wire, p->wire_rank);
    c->sent += bytes;
    *taken = bytes;
    return KOLO_OK;
}

static bool tcp_sent(kolo_transport *base, uint64_t seq, int peer) {
    return tcp(base)->peers[peer]->link->stream.data_left == 0; /* one body at a time */
}

static kolo_status tell_taken(kolo_tcp_transport *t, kolo_tcp_channel *c, uint64_t seq, int peer) {
    if (c->taken - c->taken_told < TELL_TAKEN) return KOLO_OK;
    c->taken_told = c->taken;
    kolo_frame f = {.kind = KOLO_FRAME_TAKEN, .seq = seq, .value = c->taken};
    return say(t, peer, f, NULL);
}

static kolo_status tcp_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *taken, bool *arrived) {
    kolo_tcp_transport *t = tcp(base);
    const kolo_tcp_peer *p = t->peers[peer];
    kolo_link *l = p->link;
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, seq, peer);
    size_t done = 0;
    bool moved = true;
    if (bytes == 0) {
        *taken = 0;
        *arrived = c->empties > 0;
        if (*arrived) c->empties--;
        return KOLO_OK;
    }
    c->wanted = true;
    while (done < bytes && moved) {
        size_t n = kolo_tcp_take_aside(t, c, (char *)data + done, bytes - done);
        bool here = l->left > 0 && l->frame.group == t->group;
        if (n == 0 && here && kolo_tcp_channel_of(t, l->frame.seq, peer) == c) {
            size_t most = bytes - done < l->left ? bytes - done : l->left;
            n = kolo_stream_read(&l->stream, (char *)data + done, most);
            l->left -= n;
            l->held = false;
        }
        moved = n > 0;
        done += n;
        c->taken += n;
        if (done < bytes) KOLO_TRY(kolo_tcp_hear(t->whole, p->wire_rank, false, &moved));
    }
    c->wanted = done < bytes;
    *taken = done;
    *arrived = done > 0;
    return tell_taken(t, c, seq, peer);
}

/* ---- memory: nobody reaches another's ---- */

static uint64_t tcp_handle(kolo_transport *base, const void *data, size_t bytes) { return 0; }

static void *tcp_window(kolo_transport *base, int peer, uint64_t handle, size_t bytes) {
    return NULL;
}

/* ---- health ---- */

/* How the connection to a peer is. */
static void watch_link(const kolo_wire *w, const kolo_stream *s, kolo_peer_state *state) {
    int64_t silent_ns = w->pumped_ns - s->heard_ns;
    if (s->closed) {
        state->condition = KOLO_PEER_LOST;
        memcpy(state->report, s->why, sizeof s->why);
    } else if (silent_ns > w->heartbeat_ns) {
        state->condition = KOLO_PEER_LOST;
        snprintf(state->report, sizeof state->report, "nothing heard for %.1f s",
                 (double)silent_ns * 1e-9);
    }
}

/* What the peer says in this group; where it says nothing, how it is in the one above. */
static void tcp_peer_state(kolo_transport *base, int peer, kolo_peer_state *state) {
    const kolo_tcp_transport *t = tcp(base);
    const kolo_tcp_peer *p = t->peers[peer];
    *state = (kolo_peer_state){.condition = KOLO_PEER_ALIVE, .finished = t->finished};
    if (!p) return;
    state->finished = p->finished;
    if (p->broken) {
        state->condition = KOLO_PEER_FAILED;
        state->status = p->status;
        memcpy(state->report, p->report, sizeof state->report);
    } else if (p->leaving) {
        state->condition = KOLO_PEER_LEFT;
    } else if (t->parent) {
        tcp_peer_state(&t->parent->base, t->parent->ranks[p->wire_rank], state);
        state->finished = p->finished;
    } else {
        watch_link(t->wire, &p->link->stream, state);
    }
}

static void tcp_report(kolo_transport *base, kolo_status status, const char *text) {
    kolo_tcp_transport *t = tcp(base);
    t->broken = true;
    kolo_frame f = {.kind = KOLO_FRAME_REPORT,
                    .bytes = (uint32_t)strnlen(text, KOLO_REPORT_BYTES),
                    .value = status};
    (void)say_to_all(t, f, text);
}

/* ---- the end ---- */

/* A closed socket that still gets something answers with a reset, which would cost the peers what
 * they have not read yet. */
static void linger(kolo_tcp_transport *t) {
    int64_t until_ns = kolo_now_ns() + (t->broken ? LINGER_NS / 10 : LINGER_NS);
    while (kolo_wire_owes(t->wire) && kolo_now_ns() < until_ns) {
        bool moved = false;
        if (tcp_progress(&t->base, &moved) != KOLO_OK) break;
        if (!moved) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void free_transport(kolo_tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        for (int c = 0; c < KOLO_TCP_CHANNELS; c++) kolo_free(t->peers[p]->channels[c].aside);
        kolo_free(t->peers[p]);
    }
    while (t->spare) {
        kolo_tcp_aside *next = t->spare->next;
        kolo_free(t->spare);
        t->spare = next;
    }
    if (!t->parent) kolo_wire_destroy(t->wire);
    kolo_segment_fini(&t->base.segment);
    kolo_free(t->ranks);
    kolo_free(t);
}

/* Takes a sub-group out of its family; its connections stay. */
static void leave_family(kolo_tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (t->peers[p]) kolo_stream_keep(&t->peers[p]->link->stream);
    }
    kolo_tcp_transport **g = &t->whole;
    while (*g != t) g = &(*g)->next;
    *g = t->next;
}

static void tcp_destroy(kolo_transport *base) {
    kolo_tcp_transport *t = tcp(base);
    if (!t->broken) {
        (void)say_to_all(t, (kolo_frame){.kind = KOLO_FRAME_LEAVE, .value = t->finished}, NULL);
    }
    if (t->parent) {
        leave_family(t);
    } else {
        linger(t);
    }
    free_transport(t);
}

/* ---- making groups ---- */

static kolo_status add_peer(kolo_tcp_transport *t, int peer, int wire_rank) {
    kolo_tcp_peer *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    p->link = t->wire->links[wire_rank];
    p->wire_rank = wire_rank;
    for (size_t c = 0; c < KOLO_FLIGHT_MAX; c++) p->channels[c].seq = UINT64_MAX;
    t->peers[peer] = p;
    return KOLO_OK;
}

/* Without wire, peers and places in it. */
static kolo_tcp_transport *alloc_transport(const kolo_transport_ops *ops, int rank, int size,
                                           int wire_size) {
    kolo_tcp_transport *t = kolo_zalloc(sizeof *t + (size_t)size * sizeof(kolo_tcp_peer *));
    int *ranks = kolo_zalloc((size_t)wire_size * sizeof *ranks);
    if (!t || !ranks) {
        kolo_free(t);
        kolo_free(ranks);
        return NULL;
    }
    t->base =
        (kolo_transport){.ops = ops, .rank = rank, .size = size, .events = -1, .segment.fd = -1};
    t->ranks = ranks;
    for (int p = 0; p < wire_size; p++) ranks[p] = -1;
    return t;
}

static kolo_status tcp_sub_attach(kolo_transport *base, int peer,
                                  const kolo_subgroup_address *address) {
    kolo_tcp_peer *p = tcp(base)->peers[peer];
    if (!p) return KOLO_OK;
    if (address->group == 0 || address->group >= GROUPS_MOST) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d names a group that cannot be", p->wire_rank);
    }
    p->group = (uint32_t)address->group;
    return KOLO_OK;
}

static kolo_status tcp_sub(kolo_transport *above, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_subgroup_address *address);

/* The rows of the whole group and of sub-groups. */
#define TCP_OPS(pump_)                                                               \
    {                                                                                \
        .name = "tcp", .start = tcp_start, .signal = tcp_signal, .query = tcp_query, \
        .finish = tcp_finish, .send = tcp_send, .sent = tcp_sent, .recv = tcp_recv,  \
        .handle = tcp_handle, .window = tcp_window, .progress = (pump_),             \
        .peer_state = tcp_peer_state, .report = tcp_report, .subgroup = tcp_sub,     \
        .attach = tcp_sub_attach, .destroy = tcp_destroy,                            \
    }

static const kolo_transport_ops tcp_ops = TCP_OPS(tcp_progress);
static const kolo_transport_ops sub_ops = TCP_OPS(NULL);

static kolo_status add_members(kolo_tcp_transport *t, const int *members) {
    for (int p = 0; p < t->base.size; p++) {
        const kolo_tcp_peer *above = t->parent->peers[members[p]];
        if (!above) continue;
        KOLO_TRY(add_peer(t, p, above->wire_rank));
        t->ranks[above->wire_rank] = p;
    }
    return KOLO_OK;
}

static kolo_status tcp_sub(kolo_transport *above, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_subgroup_address *address) {
    kolo_tcp_transport *parent = tcp(above), *whole = parent->whole;
    if (whole->next_group == GROUPS_MOST) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%d sub-groups have been made, which is the most",
                         GROUPS_MOST - 1);
    }
    kolo_tcp_transport *t = alloc_transport(&sub_ops, rank, size, parent->wire->size);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->wire = parent->wire;
    t->parent = parent;
    t->whole = whole;
    t->base.events = above->events;
    t->base.no_wakeup = above->no_wakeup;
    t->base.segment.of = &above->segment;
    kolo_status status = add_members(t, members);
    if (status != KOLO_OK) {
        free_transport(t);
        return status;
    }
    t->group = whole->next_group++;
    t->next = whole->next;
    whole->next = t;
    *address = (kolo_subgroup_address){.group = t->group};
    *sub = &t->base;
    return KOLO_OK;
}

kolo_status kolo_tcp_create(int rank, int size, size_t segment_bytes, int64_t heartbeat_ms,
                            kolo_transport **transport) {
    kolo_tcp_transport *t = alloc_transport(&tcp_ops, rank, size, size);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->whole = t;
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

kolo_status kolo_tcp_attach(kolo_transport *base, int peer, int fd) {
    kolo_tcp_transport *t = tcp(base);
    KOLO_ASSERT(peer != base->rank && !t->peers[peer]);
    KOLO_TRY(kolo_wire_attach(t->wire, peer, fd));
    t->ranks[peer] = peer;
    return add_peer(t, peer, peer);
}
