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
 * a sender has at most WINDOW bytes out that the receiver has not taken. A receiver tells from time
 * to time how much it has taken.
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
#include "comm/tp_tcp.h"

#include "comm/wire.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    CHANNELS = KOLO_FLIGHT_MAX + 1, /* the last one: KOLO_SEQ_P2P */
    WINDOW = 4 << 20,
    TELL_TAKEN = WINDOW / 4,
    TELL_FINISHED = KOLO_FLIGHT_MAX / 4,
    EMPTIES_MOST = 1024,
    ASIDE_LEAST = 64 << 10,
    LINGER_NS = 2000000000,
    GROUPS_MOST = 1 << 24, /* in the life of a family; see kolo_frame */
};

/* Data that came before its receive. */
typedef struct aside {
    struct aside *next; /* of the spare ones */
    size_t first, end, cap;
    char data[];
} aside;

/* The data of one collective between this rank and a peer. */
typedef struct channel {
    uint64_t seq;
    uint64_t sent, sent_taken;           /* bytes to the peer; of these, taken there */
    uint64_t arrived, taken, taken_told; /* bytes from the peer */
    int empties;                         /* empty messages that have come */
    bool wanted;                         /* a receive is open for more */
    aside *aside;                        /* NULL: empty */
} channel;

/* What a peer has announced. */
typedef struct call {
    uint64_t seq;
    uint32_t phase;
    bool made;
    uint64_t word;
    kolo_frame_call body;
    char payload[KOLO_EAGER_BYTES];
} call;

typedef struct tcp_peer {
    kolo_link *link;
    int wire_rank;  /* in the whole group */
    uint32_t group; /* the peer's number of this group; 0: the whole one, or not known yet */
    bool leaving, broken;
    kolo_status status;
    char report[KOLO_REPORT_BYTES];
    uint64_t finished;
    channel channels[CHANNELS];
    call calls[KOLO_FLIGHT_MAX];
} tcp_peer;

typedef struct tcp_transport {
    kolo_transport base; /* first */
    kolo_wire *wire;
    struct tcp_transport *whole;  /* the whole group, which owns the wire */
    struct tcp_transport *parent; /* NULL: this is the whole group */
    struct tcp_transport *next;   /* of the family's groups, which begin with the whole one */
    uint32_t group, next_group;   /* the own number; of the whole one: the next to give */
    uint64_t finished, finished_told, settled;
    bool broken;
    aside *spare;
    int *places; /* [wire->size]: the rank here of one of the whole group; -1: none */
    char payloads[KOLO_FLIGHT_MAX][KOLO_EAGER_BYTES];
    tcp_peer *peers[]; /* NULL: reached otherwise */
} tcp_transport;

static tcp_transport *tcp(kolo_transport *t) { return (tcp_transport *)t; }

static channel *channel_of(tcp_transport *t, uint64_t seq, int peer) {
    return &t->peers[peer]->channels[seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX];
}

/* ---- data that came early ---- */

/* A block with room for `bytes` more, in the place of `*a`. */
static kolo_status make_room(tcp_transport *t, aside **a, size_t bytes) {
    aside *block = *a;
    if (!block && t->spare) {
        block = t->spare;
        t->spare = block->next;
    }
    size_t end = block ? block->end : 0, cap = block ? block->cap : 0;
    if (cap - end < bytes) {
        cap = cap ? cap : ASIDE_LEAST;
        while (cap - end < bytes) cap *= 2;
        aside *grown = kolo_realloc(block, sizeof *grown + cap);
        if (!grown) {
            kolo_free(*a ? NULL : block);
            return KOLO_NOMEM(cap);
        }
        if (!block) grown->first = grown->end = 0;
        grown->cap = cap;
        block = grown;
    }
    *a = block;
    return KOLO_OK;
}

static void give_back(tcp_transport *t, channel *c) {
    if (!c->aside) return;
    c->aside->first = c->aside->end = 0;
    c->aside->next = t->spare;
    t->spare = c->aside;
    c->aside = NULL;
}

static size_t take_aside(tcp_transport *t, channel *c, void *to, size_t bytes) {
    if (!c->aside) return 0;
    size_t n = c->aside->end - c->aside->first;
    if (n > bytes) n = bytes;
    memcpy(to, c->aside->data + c->aside->first, n);
    c->aside->first += n;
    if (c->aside->first == c->aside->end) give_back(t, c);
    return n;
}

/* ---- saying something ---- */

static kolo_status say(tcp_transport *t, int peer, kolo_frame frame, const void *body,
                       size_t body_bytes, const void *tail) {
    const tcp_peer *p = t->peers[peer];
    if (t->parent && p->group == 0) return KOLO_OK; /* the group has not come about */
    frame.group = p->group;
    return kolo_wire_say(t->wire, p->wire_rank, &frame, body, body_bytes, tail);
}

/* To all peers; the first failure, after having tried all. */
static kolo_status say_to_all(tcp_transport *t, kolo_frame frame, const void *body,
                              size_t body_bytes, const void *tail) {
    kolo_status status = KOLO_OK;
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        kolo_status said = say(t, p, frame, body, body_bytes, tail);
        if (status == KOLO_OK) status = said;
    }
    return status;
}

/* ---- hearing something ---- */

/* `from`: in the whole group. */
static kolo_status malformed(int from, const kolo_frame *f) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sends a frame that fits nothing (kind %u, %u bytes)",
                     from, (unsigned)f->kind, f->bytes);
}

/* The group that a frame is for, NULL when it is gone, and the sender's rank in it. FORMAT when
 * there never was such a group, or the sender is no member. */
static kolo_status find_group(tcp_transport *t, int from, const kolo_frame *f,
                              tcp_transport **group, int *peer) {
    tcp_transport *g = t->whole;
    if (f->group >= g->next_group) return malformed(from, f);
    while (g && g->group != f->group) g = g->next;
    *group = g;
    *peer = g ? g->places[from] : 0;
    return *peer < 0 ? malformed(from, f) : KOLO_OK;
}

/* Whether data of that number may come: the collective has started here. */
static bool expects(const tcp_transport *t, const channel *c, uint64_t seq) {
    return seq == KOLO_SEQ_P2P || (c->seq == seq && seq >= t->finished);
}

static kolo_status hear_call(tcp_transport *t, int peer, const kolo_frame *f, const char *body) {
    tcp_peer *p = t->peers[peer];
    /* It may be late: not every algorithm makes a rank wait for every other. */
    if (f->seq >= t->finished + KOLO_FLIGHT_MAX) return malformed(p->wire_rank, f);
    call *c = &p->calls[f->seq % KOLO_FLIGHT_MAX];
    if (f->kind == KOLO_FRAME_PHASE) {
        if (!c->made || c->seq != f->seq || f->value != c->phase + UINT64_C(1)) {
            return malformed(p->wire_rank, f);
        }
        c->phase++;
        return KOLO_OK;
    }
    if (c->made && c->seq >= f->seq) return malformed(p->wire_rank, f);
    c->made = true;
    c->seq = f->seq;
    c->phase = 0;
    c->word = f->value;
    memcpy(&c->body, body, sizeof c->body);
    memcpy(c->payload, body + sizeof c->body, f->bytes - sizeof c->body);
    return KOLO_OK;
}

static kolo_status hear_taken(tcp_transport *t, int peer, const kolo_frame *f) {
    const tcp_peer *p = t->peers[peer];
    channel *c = channel_of(t, f->seq, peer);
    if (f->seq != KOLO_SEQ_P2P && c->seq != f->seq) return KOLO_OK; /* that one is over */
    if (f->value < c->sent_taken || f->value > c->sent) return malformed(p->wire_rank, f);
    c->sent_taken = f->value;
    return KOLO_OK;
}

/* A whole frame other than DATA. */
static kolo_status hear(tcp_transport *t, int peer, const kolo_frame *f, const char *body) {
    tcp_peer *p = t->peers[peer];
    switch ((kolo_frame_kind)f->kind) {
    case KOLO_FRAME_ANNOUNCE:
    case KOLO_FRAME_PHASE:
        return hear_call(t, peer, f, body);
    case KOLO_FRAME_TAKEN:
        return hear_taken(t, peer, f);
    case KOLO_FRAME_FINISHED:
    case KOLO_FRAME_LEAVE:
        if (f->value < p->finished) return malformed(p->wire_rank, f);
        p->finished = f->value;
        p->leaving = f->kind == KOLO_FRAME_LEAVE;
        return KOLO_OK;
    case KOLO_FRAME_REPORT:
        if (f->value == KOLO_OK || f->value > KOLO_ERR_PEER) return malformed(p->wire_rank, f);
        p->broken = true;
        p->status = (kolo_status)f->value;
        memcpy(p->report, body, f->bytes);
        p->report[f->bytes < sizeof p->report ? f->bytes : sizeof p->report - 1] = '\0';
        return KOLO_OK;
    default:
        return KOLO_OK; /* a heartbeat; DATA does not come here */
    }
}

/* The header of DATA. */
static kolo_status begin_data(tcp_transport *t, int peer, const kolo_frame *f) {
    const tcp_peer *p = t->peers[peer];
    channel *c = channel_of(t, f->seq, peer);
    if (t->broken) return KOLO_OK; /* nobody asks for it any more */
    if (!expects(t, c, f->seq) || c->arrived + f->bytes - c->taken > WINDOW ||
        c->empties == EMPTIES_MOST) {
        return malformed(p->wire_rank, f);
    }
    if (f->bytes == 0) c->empties++;
    c->arrived += f->bytes;
    return KOLO_OK;
}

/* What nobody asks for is read so that what is behind it comes through. */
static bool drop_data(kolo_link *l) {
    char nowhere[4096];
    size_t n =
        kolo_stream_read(&l->stream, nowhere, l->left < sizeof nowhere ? l->left : sizeof nowhere);
    l->left -= n;
    return n > 0;
}

/* Puts what has come of the current DATA aside; false when that was nothing. */
static kolo_status put_aside(tcp_transport *t, kolo_link *l, channel *c, bool *any) {
    *any = false;
    if (l->stream.in_first == l->stream.in_end && !l->stream.readable) return KOLO_OK;
    KOLO_TRY(make_room(t, &c->aside, l->left));
    size_t n = kolo_stream_read(&l->stream, c->aside->data + c->aside->end, l->left);
    c->aside->end += n;
    l->left -= n;
    if (c->aside->first == c->aside->end) give_back(t, c);
    *any = n > 0;
    return KOLO_OK;
}

/* Moves the DATA that is being read on; `any` false when it must wait. */
static kolo_status advance_data(tcp_transport *whole, int from, bool pump, bool *any) {
    kolo_link *l = whole->wire->links[from];
    tcp_transport *t;
    int peer;
    KOLO_TRY(find_group(whole, from, &l->frame, &t, &peer));
    if (!t || t->broken) {
        *any = drop_data(l);
        return KOLO_OK;
    }
    channel *c = channel_of(t, l->frame.seq, peer);
    *any = false;
    if (c->wanted && !(pump && l->held)) {
        l->held = pump;
        return KOLO_OK;
    }
    return put_aside(t, l, c, any);
}

/* A frame whose header has come, and its body, if it is not DATA. */
static kolo_status take_frame(tcp_transport *whole, int from, const kolo_frame *f) {
    kolo_link *l = whole->wire->links[from];
    tcp_transport *t;
    int peer;
    KOLO_TRY(find_group(whole, from, f, &t, &peer));
    if (f->kind == KOLO_FRAME_DATA) {
        if (t) KOLO_TRY(begin_data(t, peer, f));
        l->frame = *f;
        l->left = f->bytes;
    } else if (t) {
        KOLO_TRY(hear(t, peer, f, l->stream.in + l->stream.in_first + sizeof *f));
    }
    return KOLO_OK;
}

/* Takes in what `from` has sent, up to data for which a receive is open: that is for `recv`, and
 * waits for it until the next pump. */
static kolo_status advance(tcp_transport *whole, int from, bool pump, bool *moved) {
    kolo_link *l = whole->wire->links[from];
    kolo_stream *s = &l->stream;
    while (s->in_first < s->in_end || s->readable) {
        if (l->left > 0) {
            bool any;
            KOLO_TRY(advance_data(whole, from, pump, &any));
            if (!any) return KOLO_OK;
            *moved = true;
            continue;
        }
        l->held = false;
        kolo_frame f;
        if (!kolo_stream_peek(s, sizeof f)) return KOLO_OK;
        memcpy(&f, s->in + s->in_first, sizeof f);
        if (!kolo_frame_check(&f)) return malformed(from, &f);
        size_t body = f.kind == KOLO_FRAME_DATA ? 0 : f.bytes;
        if (!kolo_stream_peek(s, sizeof f + body)) return KOLO_OK;
        KOLO_TRY(take_frame(whole, from, &f));
        kolo_stream_skip(s, sizeof f + body);
        *moved = true;
    }
    return KOLO_OK;
}

/* Of the whole group, for all. */
static kolo_status tcp_pump(kolo_transport *base, bool *moved) {
    tcp_transport *t = tcp(base);
    kolo_wire_poll(t->wire, moved);
    for (int from = 0; from < t->wire->size; from++) {
        const kolo_link *l = t->wire->links[from];
        if (!l || l->stream.fd < 0) continue;
        KOLO_TRY(advance(t, from, true, moved));
        if (kolo_wire_drop_closed(t->wire, from)) *moved = true;
    }
    return kolo_wire_beat(t->wire);
}

/* ---- announcements ---- */

static bool tcp_start(kolo_transport *base, uint64_t seq, void **payload) {
    tcp_transport *t = tcp(base);
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
        channel *c = channel_of(t, seq, p);
        give_back(t, c);
        *c = (channel){.seq = seq};
    }
    *payload = t->payloads[seq % KOLO_FLIGHT_MAX];
    return true;
}

/* Without memory for its words a rank cannot go on; the engine hears of it at the next send, or at
 * its deadline. */
static void tcp_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *announcement, const uint64_t *words,
                       const char *title) {
    tcp_transport *t = tcp(base);
    if (phase > 0) {
        kolo_frame f = {.kind = KOLO_FRAME_PHASE, .seq = seq, .value = phase};
        (void)say_to_all(t, f, NULL, 0, NULL);
        return;
    }
    kolo_frame_call body = {.call = *announcement};
    memcpy(body.title, title, strnlen(title, sizeof body.title));
    kolo_frame f = {.kind = KOLO_FRAME_ANNOUNCE, .bytes = sizeof body, .seq = seq};
    uint64_t payload = announcement->count * kolo_dtype_bytes((kolo_dtype)announcement->dtype);
    bool eager = announcement->scratch != 0 && payload <= KOLO_EAGER_BYTES;
    if (eager) f.bytes += (uint32_t)payload;
    const char *tail = eager ? t->payloads[seq % KOLO_FLIGHT_MAX] : NULL;
    for (int p = 0; p < base->size; p++) {
        if (words) f.value = words[p];
        if (t->peers[p]) (void)say(t, p, f, &body, sizeof body, tail);
    }
}

static bool tcp_look(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    const call *c = &tcp(base)->peers[peer]->calls[seq % KOLO_FLIGHT_MAX];
    if (!c->made || c->seq != seq) return false;
    *peer_call = (kolo_peer_call){
        .call = &c->body.call, .title = c->body.title, .phase = c->phase, .word = &c->word};
    return true;
}

static void tcp_finish(kolo_transport *base, uint64_t finished) {
    tcp_transport *t = tcp(base);
    t->finished = finished;
    if (finished - t->finished_told < TELL_FINISHED) return;
    t->finished_told = finished;
    (void)say_to_all(t, (kolo_frame){.kind = KOLO_FRAME_FINISHED, .value = finished}, NULL, 0,
                     NULL);
}

/* ---- messages ---- */

static kolo_status tcp_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *taken, bool *accepted) {
    tcp_transport *t = tcp(base);
    const tcp_peer *p = t->peers[peer];
    kolo_stream *s = &p->link->stream;
    channel *c = channel_of(t, seq, peer);
    uint64_t room = WINDOW - (c->sent - c->sent_taken);
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

static kolo_status tell_taken(tcp_transport *t, channel *c, uint64_t seq, int peer) {
    if (c->taken - c->taken_told < TELL_TAKEN) return KOLO_OK;
    c->taken_told = c->taken;
    kolo_frame f = {.kind = KOLO_FRAME_TAKEN, .seq = seq, .value = c->taken};
    return say(t, peer, f, NULL, 0, NULL);
}

static kolo_status tcp_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *taken, bool *arrived) {
    tcp_transport *t = tcp(base);
    const tcp_peer *p = t->peers[peer];
    kolo_link *l = p->link;
    channel *c = channel_of(t, seq, peer);
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
        size_t n = take_aside(t, c, (char *)data + done, bytes - done);
        bool here = l->left > 0 && l->frame.group == t->group;
        if (n == 0 && here && channel_of(t, l->frame.seq, peer) == c) {
            size_t most = bytes - done < l->left ? bytes - done : l->left;
            n = kolo_stream_read(&l->stream, (char *)data + done, most);
            l->left -= n;
            l->held = false;
        }
        moved = n > 0;
        done += n;
        c->taken += n;
        if (done < bytes) KOLO_TRY(advance(t->whole, p->wire_rank, false, &moved));
    }
    c->wanted = done < bytes;
    *taken = done;
    *arrived = done > 0;
    return tell_taken(t, c, seq, peer);
}

/* ---- memory: only the eager payloads that came with announcements ---- */

static uint64_t tcp_handle(kolo_transport *base, const void *data, size_t bytes) {
    uintptr_t first = (uintptr_t)tcp(base)->payloads, p = (uintptr_t)data;
    bool inside = p >= first && p - first < sizeof tcp(base)->payloads;
    return inside && bytes <= KOLO_EAGER_BYTES ? (p - first) / KOLO_EAGER_BYTES + 1 : 0;
}

static void *tcp_window(kolo_transport *base, int peer, uint64_t handle, size_t bytes) {
    if (handle == 0 || handle > KOLO_FLIGHT_MAX || bytes > KOLO_EAGER_BYTES) return NULL;
    if (peer == base->rank) return tcp(base)->payloads[handle - 1];
    return tcp(base)->peers[peer]->calls[handle - 1].payload;
}

/* ---- health ---- */

/* How the connection to a peer is. */
static void watch_link(const kolo_wire *w, const kolo_stream *s, kolo_peer_state *state) {
    int64_t silent_ns = w->pumped_ns - s->heard_ns;
    if (s->closed) {
        state->condition = KOLO_PEER_GONE;
        memcpy(state->report, s->why, sizeof s->why);
    } else if (silent_ns > w->heartbeat_ns) {
        state->condition = KOLO_PEER_GONE;
        snprintf(state->report, sizeof state->report, "nothing heard for %.1f s",
                 (double)silent_ns * 1e-9);
    }
}

/* What the peer says in this group; where it says nothing, how it is in the one above. */
static void tcp_watch(kolo_transport *base, int peer, kolo_peer_state *state) {
    const tcp_transport *t = tcp(base);
    const tcp_peer *p = t->peers[peer];
    *state = (kolo_peer_state){.condition = KOLO_PEER_HERE, .finished = t->finished};
    if (!p) return;
    state->finished = p->finished;
    if (p->broken) {
        state->condition = KOLO_PEER_BROKEN;
        state->status = p->status;
        memcpy(state->report, p->report, sizeof state->report);
    } else if (p->leaving) {
        state->condition = KOLO_PEER_LEFT;
    } else if (t->parent) {
        tcp_watch(&t->parent->base, t->parent->places[p->wire_rank], state);
        state->finished = p->finished;
    } else {
        watch_link(t->wire, &p->link->stream, state);
    }
}

static void tcp_report(kolo_transport *base, kolo_status status, const char *text) {
    tcp_transport *t = tcp(base);
    t->broken = true;
    kolo_frame f = {.kind = KOLO_FRAME_REPORT,
                    .bytes = (uint32_t)strnlen(text, KOLO_REPORT_BYTES),
                    .value = status};
    (void)say_to_all(t, f, text, f.bytes, NULL);
}

/* ---- the end ---- */

/* A closed socket that still gets something answers with a reset, which would cost the peers what
 * they have not read yet. */
static void linger(tcp_transport *t) {
    int64_t until_ns = kolo_now_ns() + (t->broken ? LINGER_NS / 10 : LINGER_NS);
    while (kolo_wire_owes(t->wire) && kolo_now_ns() < until_ns) {
        bool moved = false;
        if (tcp_pump(&t->base, &moved) != KOLO_OK) break;
        if (!moved) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void free_transport(tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        for (int c = 0; c < CHANNELS; c++) kolo_free(t->peers[p]->channels[c].aside);
        kolo_free(t->peers[p]);
    }
    while (t->spare) {
        aside *next = t->spare->next;
        kolo_free(t->spare);
        t->spare = next;
    }
    if (!t->parent) kolo_wire_destroy(t->wire);
    kolo_segment_fini(&t->base.segment);
    kolo_free(t->places);
    kolo_free(t);
}

/* Takes a sub-group out of its family; its connections stay. */
static void leave_family(tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (t->peers[p]) kolo_stream_keep(&t->peers[p]->link->stream);
    }
    tcp_transport **g = &t->whole;
    while (*g != t) g = &(*g)->next;
    *g = t->next;
}

static void tcp_destroy(kolo_transport *base) {
    tcp_transport *t = tcp(base);
    if (!t->broken) {
        (void)say_to_all(t, (kolo_frame){.kind = KOLO_FRAME_LEAVE, .value = t->finished}, NULL, 0,
                         NULL);
    }
    if (t->parent) {
        leave_family(t);
    } else {
        linger(t);
    }
    free_transport(t);
}

/* ---- making groups ---- */

static kolo_status add_peer(tcp_transport *t, int peer, int wire_rank) {
    tcp_peer *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    p->link = t->wire->links[wire_rank];
    p->wire_rank = wire_rank;
    for (size_t c = 0; c < KOLO_FLIGHT_MAX; c++) p->channels[c].seq = UINT64_MAX;
    t->peers[peer] = p;
    return KOLO_OK;
}

/* Without wire, peers and places in it. */
static tcp_transport *alloc_transport(const kolo_transport_ops *ops, int rank, int size,
                                      int wire_size) {
    tcp_transport *t = kolo_zalloc(sizeof *t + (size_t)size * sizeof(tcp_peer *));
    int *places = kolo_zalloc((size_t)wire_size * sizeof *places);
    if (!t || !places) {
        kolo_free(t);
        kolo_free(places);
        return NULL;
    }
    t->base =
        (kolo_transport){.ops = ops, .rank = rank, .size = size, .events = -1, .segment.fd = -1};
    t->places = places;
    for (int p = 0; p < wire_size; p++) places[p] = -1;
    return t;
}

static kolo_status tcp_sub_attach(kolo_transport *base, int peer, const kolo_sub_name *name) {
    tcp_peer *p = tcp(base)->peers[peer];
    if (!p) return KOLO_OK;
    if (name->wire == 0 || name->wire >= GROUPS_MOST) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d names a group that cannot be", p->wire_rank);
    }
    p->group = (uint32_t)name->wire;
    return KOLO_OK;
}

static kolo_status tcp_sub(kolo_transport *above, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_sub_name *name);

/* The rows of the whole group and of sub-groups. */
#define TCP_OPS(pump_)                                                                          \
    {                                                                                           \
        .name = "tcp", .start = tcp_start, .signal = tcp_signal, .look = tcp_look,              \
        .finish = tcp_finish, .send = tcp_send, .sent = tcp_sent, .recv = tcp_recv,             \
        .handle = tcp_handle, .window = tcp_window, .pump = (pump_), .watch = tcp_watch,        \
        .report = tcp_report, .sub = tcp_sub, .attach = tcp_sub_attach, .destroy = tcp_destroy, \
    }

static const kolo_transport_ops tcp_ops = TCP_OPS(tcp_pump);
static const kolo_transport_ops sub_ops = TCP_OPS(NULL);

static kolo_status add_members(tcp_transport *t, const int *members) {
    for (int p = 0; p < t->base.size; p++) {
        const tcp_peer *above = t->parent->peers[members[p]];
        if (!above) continue;
        KOLO_TRY(add_peer(t, p, above->wire_rank));
        t->places[above->wire_rank] = p;
    }
    return KOLO_OK;
}

static kolo_status tcp_sub(kolo_transport *above, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_sub_name *name) {
    tcp_transport *parent = tcp(above), *whole = parent->whole;
    if (whole->next_group == GROUPS_MOST) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%d sub-groups have been made, which is the most",
                         GROUPS_MOST - 1);
    }
    tcp_transport *t = alloc_transport(&sub_ops, rank, size, parent->wire->size);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->wire = parent->wire;
    t->parent = parent;
    t->whole = whole;
    t->base.events = above->events;
    t->base.silent = above->silent;
    t->base.segment.of = &above->segment;
    kolo_status status = add_members(t, members);
    if (status != KOLO_OK) {
        free_transport(t);
        return status;
    }
    t->group = whole->next_group++;
    t->next = whole->next;
    whole->next = t;
    *name = (kolo_sub_name){.wire = t->group};
    *sub = &t->base;
    return KOLO_OK;
}

kolo_status kolo_tcp_create(int rank, int size, size_t segment_bytes, int64_t heartbeat_ms,
                            kolo_transport **transport) {
    tcp_transport *t = alloc_transport(&tcp_ops, rank, size, size);
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
    tcp_transport *t = tcp(base);
    KOLO_ASSERT(peer != base->rank && !t->peers[peer]);
    KOLO_TRY(kolo_wire_attach(t->wire, peer, fd));
    t->places[peer] = peer;
    return add_peer(t, peer, peer);
}
