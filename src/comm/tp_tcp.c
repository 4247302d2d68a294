/* Transport `tcp`: one connection between each two ranks, which carries everything between them:
 * announcements, data, acknowledgements, failures, heartbeats (stream.h).
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

#include "base/file.h"
#include "comm/socket.h"
#include "comm/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CHANNELS = KOLO_FLIGHT_MAX + 1, /* the last one: KOLO_SEQ_P2P */
    WINDOW = 4 << 20,
    TELL_TAKEN = WINDOW / 4,
    TELL_FINISHED = KOLO_FLIGHT_MAX / 4,
    EMPTIES_MOST = 1024,
    ASIDE_LEAST = 64 << 10,
    LINGER_NS = 2000000000,
    EVENTS = 64,
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
    kolo_stream stream; /* first */
    bool writes;        /* epoll reports when it can be written to */
    kolo_frame frame;   /* DATA that is being read */
    size_t left;        /* bytes of it */
    bool held;          /* left in the kernel for a receive that should come for it */
    bool leaving, broken;
    kolo_status status;
    char report[KOLO_REPORT_BYTES];
    uint64_t finished;
    channel channels[CHANNELS];
    call calls[KOLO_FLIGHT_MAX];
} tcp_peer;

typedef struct tcp_transport {
    kolo_transport base; /* first */
    uint64_t finished, finished_told, settled;
    int64_t heartbeat_ns, ticked_ns, pumped_ns;
    bool broken;
    aside *spare;
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

/* Writes what there is to say, and asks to be told when the kernel takes more. */
static void flush(tcp_transport *t, int peer) {
    tcp_peer *p = t->peers[peer];
    kolo_stream_flush(&p->stream);
    p->stream.said_ns = t->pumped_ns;
    if (p->stream.closed || p->writes == p->stream.stuck) return;
    p->writes = p->stream.stuck;
    struct epoll_event event = {.events = EPOLLIN | (p->writes ? EPOLLOUT : 0),
                                .data.u32 = (uint32_t)peer};
    (void)epoll_ctl(t->base.events, EPOLL_CTL_MOD, p->stream.fd, &event);
}

static kolo_status say(tcp_transport *t, int peer, kolo_frame frame, const void *body,
                       size_t body_bytes, const void *tail) {
    KOLO_TRY(kolo_stream_push(&t->peers[peer]->stream, &frame, body, body_bytes, tail));
    flush(t, peer);
    return KOLO_OK;
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

static kolo_status malformed(int peer, const kolo_frame *f) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sends a frame that fits nothing (kind %u, %u bytes)",
                     peer, f->kind, f->bytes);
}

/* Whether data of that number may come: the collective has started here. */
static bool expects(const tcp_transport *t, const channel *c, uint64_t seq) {
    return seq == KOLO_SEQ_P2P || (c->seq == seq && seq >= t->finished);
}

static kolo_status hear_call(tcp_transport *t, int peer, const kolo_frame *f, const char *body) {
    tcp_peer *p = t->peers[peer];
    /* It may be late: not every algorithm makes a rank wait for every other. */
    if (f->seq >= t->finished + KOLO_FLIGHT_MAX) return malformed(peer, f);
    call *c = &p->calls[f->seq % KOLO_FLIGHT_MAX];
    if (f->kind == KOLO_FRAME_PHASE) {
        if (!c->made || c->seq != f->seq || f->value != c->phase + UINT64_C(1)) {
            return malformed(peer, f);
        }
        c->phase++;
        return KOLO_OK;
    }
    if (c->made && c->seq >= f->seq) return malformed(peer, f);
    c->made = true;
    c->seq = f->seq;
    c->phase = 0;
    c->word = f->value;
    memcpy(&c->body, body, sizeof c->body);
    memcpy(c->payload, body + sizeof c->body, f->bytes - sizeof c->body);
    return KOLO_OK;
}

static kolo_status hear_taken(tcp_transport *t, int peer, const kolo_frame *f) {
    channel *c = channel_of(t, f->seq, peer);
    if (f->seq != KOLO_SEQ_P2P && c->seq != f->seq) return KOLO_OK; /* that one is over */
    if (f->value < c->sent_taken || f->value > c->sent) return malformed(peer, f);
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
        if (f->value < p->finished) return malformed(peer, f);
        p->finished = f->value;
        p->leaving = f->kind == KOLO_FRAME_LEAVE;
        return KOLO_OK;
    case KOLO_FRAME_REPORT:
        if (f->value == KOLO_OK || f->value > KOLO_ERR_PEER) return malformed(peer, f);
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
    tcp_peer *p = t->peers[peer];
    channel *c = channel_of(t, f->seq, peer);
    if (t->broken) { /* nobody asks for it any more; it is read so that reports come through */
        p->frame = *f;
        p->left = f->bytes;
        return KOLO_OK;
    }
    if (!expects(t, c, f->seq) || c->arrived + f->bytes - c->taken > WINDOW ||
        c->empties == EMPTIES_MOST) {
        return malformed(peer, f);
    }
    if (f->bytes == 0) c->empties++;
    c->arrived += f->bytes;
    p->frame = *f;
    p->left = f->bytes;
    return KOLO_OK;
}

/* Puts what has come of the current DATA aside; false when that was nothing. */
static kolo_status put_aside(tcp_transport *t, int peer, bool *any) {
    tcp_peer *p = t->peers[peer];
    channel *c = channel_of(t, p->frame.seq, peer);
    *any = false;
    if (t->broken) {
        char nowhere[4096];
        size_t n = p->left < sizeof nowhere ? p->left : sizeof nowhere;
        n = kolo_stream_read(&p->stream, nowhere, n);
        p->left -= n;
        *any = n > 0;
        return KOLO_OK;
    }
    if (p->stream.in_first == p->stream.in_end && !p->stream.readable) return KOLO_OK;
    KOLO_TRY(make_room(t, &c->aside, p->left));
    size_t n = kolo_stream_read(&p->stream, c->aside->data + c->aside->end, p->left);
    c->aside->end += n;
    p->left -= n;
    if (c->aside->first == c->aside->end) give_back(t, c);
    *any = n > 0;
    return KOLO_OK;
}

/* Takes in what `peer` has sent, up to data for which a receive is open: that is for `recv`, and
 * waits for it until the next pump. */
static kolo_status advance(tcp_transport *t, int peer, bool pump, bool *moved) {
    tcp_peer *p = t->peers[peer];
    kolo_stream *s = &p->stream;
    while (s->in_first < s->in_end || s->readable) {
        if (p->left > 0) {
            channel *c = channel_of(t, p->frame.seq, peer);
            if (c->wanted && !(pump && p->held)) {
                p->held = pump;
                return KOLO_OK;
            }
            bool any;
            KOLO_TRY(put_aside(t, peer, &any));
            if (!any) return KOLO_OK;
            *moved = true;
            continue;
        }
        p->held = false;
        kolo_frame f;
        if (!kolo_stream_peek(s, sizeof f)) return KOLO_OK;
        memcpy(&f, s->in + s->in_first, sizeof f);
        if (!kolo_frame_check(&f)) return malformed(peer, &f);
        size_t body = f.kind == KOLO_FRAME_DATA ? 0 : f.bytes;
        if (!kolo_stream_peek(s, sizeof f + body)) return KOLO_OK;
        KOLO_TRY(f.kind == KOLO_FRAME_DATA ? begin_data(t, peer, &f)
                                           : hear(t, peer, &f, s->in + s->in_first + sizeof f));
        kolo_stream_skip(s, sizeof f + body);
        *moved = true;
    }
    return KOLO_OK;
}

/* Says something to those that have not heard of this rank for a while. */
static kolo_status tick(tcp_transport *t) {
    int64_t period_ns = t->heartbeat_ns / 4;
    if (t->pumped_ns - t->ticked_ns < period_ns / 2) return KOLO_OK;
    /* A process that has slept through its own heartbeats cannot tell who was silent. */
    bool late = t->pumped_ns - t->ticked_ns > t->heartbeat_ns / 2;
    t->ticked_ns = t->pumped_ns;
    for (int p = 0; p < t->base.size; p++) {
        tcp_peer *peer = t->peers[p];
        if (!peer || peer->stream.closed) continue;
        if (late) peer->stream.heard_ns = t->pumped_ns;
        if (t->pumped_ns - peer->stream.said_ns < period_ns / 2) continue;
        KOLO_TRY(say(t, p, (kolo_frame){.kind = KOLO_FRAME_BEAT}, NULL, 0, NULL));
    }
    return KOLO_OK;
}

static kolo_status tcp_pump(kolo_transport *base, bool *moved) {
    tcp_transport *t = tcp(base);
    struct epoll_event events[EVENTS];
    t->pumped_ns = kolo_now_ns();
    int n = epoll_wait(base->events, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int peer = (int)events[i].data.u32;
        tcp_peer *p = t->peers[peer];
        if (events[i].events & ~(uint32_t)EPOLLOUT) p->stream.readable = true;
        if (events[i].events & EPOLLOUT) {
            flush(t, peer);
            *moved = true;
        }
    }
    for (int peer = 0; peer < base->size; peer++) {
        tcp_peer *p = t->peers[peer];
        if (!p || p->stream.fd < 0) continue;
        KOLO_TRY(advance(t, peer, true, moved));
        if (p->stream.closed) { /* its end must not be reported again and again */
            (void)epoll_ctl(base->events, EPOLL_CTL_DEL, p->stream.fd, NULL);
            close(p->stream.fd);
            p->stream.fd = -1;
            *moved = true;
        }
    }
    return tick(t);
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
    kolo_stream *s = &t->peers[peer]->stream;
    channel *c = channel_of(t, seq, peer);
    uint64_t room = WINDOW - (c->sent - c->sent_taken);
    *taken = 0;
    *accepted = s->data_left == 0 && (room > 0 || bytes == 0) && !s->closed && !s->write_error;
    if (!*accepted) return KOLO_OK;
    if (bytes > room) bytes = room;
    if (bytes > KOLO_FRAME_DATA_MOST) bytes = KOLO_FRAME_DATA_MOST;
    kolo_frame f = {.kind = KOLO_FRAME_DATA, .bytes = (uint32_t)bytes, .seq = seq};
    KOLO_TRY(kolo_stream_push_data(s, &f, data));
    flush(t, peer);
    c->sent += bytes;
    *taken = bytes;
    return KOLO_OK;
}

static bool tcp_sent(kolo_transport *base, uint64_t seq, int peer) {
    return tcp(base)->peers[peer]->stream.data_left == 0; /* one body at a time */
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
    tcp_peer *p = t->peers[peer];
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
        if (n == 0 && p->left > 0 && channel_of(t, p->frame.seq, peer) == c) {
            size_t most = bytes - done < p->left ? bytes - done : p->left;
            n = kolo_stream_read(&p->stream, (char *)data + done, most);
            p->left -= n;
            p->held = false;
        }
        moved = n > 0;
        done += n;
        c->taken += n;
        if (done < bytes) KOLO_TRY(advance(t, peer, false, &moved));
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

static void tcp_watch(kolo_transport *base, int peer, kolo_peer_state *state) {
    tcp_transport *t = tcp(base);
    *state = (kolo_peer_state){.condition = KOLO_PEER_HERE, .finished = t->finished};
    const tcp_peer *p = t->peers[peer];
    if (!p) return;
    int64_t silent_ns = t->pumped_ns - p->stream.heard_ns;
    state->finished = p->finished;
    if (p->broken) {
        state->condition = KOLO_PEER_BROKEN;
        state->status = p->status;
        memcpy(state->report, p->report, sizeof state->report);
    } else if (p->leaving) {
        state->condition = KOLO_PEER_LEFT;
    } else if (p->stream.closed) {
        state->condition = KOLO_PEER_GONE;
        memcpy(state->report, p->stream.why, sizeof p->stream.why);
    } else if (silent_ns > t->heartbeat_ns) {
        state->condition = KOLO_PEER_GONE;
        snprintf(state->report, sizeof state->report, "nothing heard for %.1f s",
                 (double)silent_ns * 1e-9);
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

/* Whether a peer's kernel still lacks something of what was said. */
static bool owes(const tcp_peer *p) {
    int unacknowledged = 0;
    if (!p || p->stream.closed || p->stream.fd < 0) return false;
    if (p->stream.out_first < p->stream.out_end || p->stream.data_left > 0) return true;
    return ioctl(p->stream.fd, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0;
}

/* A closed socket that still gets something answers with a reset, which would cost the peers what
 * they have not read yet. */
static void linger(tcp_transport *t) {
    int64_t until_ns = kolo_now_ns() + (t->broken ? LINGER_NS / 10 : LINGER_NS);
    bool open = true;
    while (open && kolo_now_ns() < until_ns) {
        open = false;
        for (int p = 0; p < t->base.size; p++) open = open || owes(t->peers[p]);
        if (!open) break;
        bool moved = false;
        if (tcp_pump(&t->base, &moved) != KOLO_OK) break;
        if (!moved) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void free_transport(tcp_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        for (int c = 0; c < CHANNELS; c++) kolo_free(t->peers[p]->channels[c].aside);
        kolo_stream_fini(&t->peers[p]->stream);
        kolo_free(t->peers[p]);
    }
    while (t->spare) {
        aside *next = t->spare->next;
        kolo_free(t->spare);
        t->spare = next;
    }
    if (t->base.events >= 0) close(t->base.events);
    kolo_segment_fini(&t->base.segment);
    kolo_free(t);
}

static void tcp_destroy(kolo_transport *base) {
    tcp_transport *t = tcp(base);
    if (!t->broken) {
        (void)say_to_all(t, (kolo_frame){.kind = KOLO_FRAME_LEAVE, .value = t->finished}, NULL, 0,
                         NULL);
    }
    linger(t);
    free_transport(t);
}

static const kolo_transport_ops tcp_ops = {
    .name = "tcp",
    .start = tcp_start,
    .signal = tcp_signal,
    .look = tcp_look,
    .finish = tcp_finish,
    .send = tcp_send,
    .sent = tcp_sent,
    .recv = tcp_recv,
    .handle = tcp_handle,
    .window = tcp_window,
    .pump = tcp_pump,
    .watch = tcp_watch,
    .report = tcp_report,
    .destroy = tcp_destroy,
};

kolo_status kolo_tcp_create(int rank, int size, size_t segment_bytes, int64_t heartbeat_ms,
                            kolo_transport **transport) {
    size_t bytes = sizeof(tcp_transport) + (size_t)size * sizeof(tcp_peer *);
    tcp_transport *t = kolo_zalloc(bytes);
    if (!t) return KOLO_NOMEM(bytes);
    t->base = (kolo_transport){
        .ops = &tcp_ops, .rank = rank, .size = size, .events = -1, .segment.fd = -1};
    t->heartbeat_ns = heartbeat_ms * 1000000;
    t->ticked_ns = t->pumped_ns = kolo_now_ns();
    kolo_status status = kolo_segment_init(&t->base.segment, segment_bytes, false);
    if (status == KOLO_OK) {
        t->base.events = epoll_create1(EPOLL_CLOEXEC);
        if (t->base.events < 0) {
            status = KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
        }
    }
    if (status != KOLO_OK) {
        free_transport(t);
        return status;
    }
    *transport = &t->base;
    return KOLO_OK;
}

kolo_status kolo_tcp_attach(kolo_transport *base, int peer, int fd) {
    tcp_transport *t = tcp(base);
    KOLO_ASSERT(peer != base->rank && !t->peers[peer]);
    tcp_peer *p = kolo_zalloc(sizeof *p);
    kolo_status status = p ? kolo_stream_init(&p->stream, fd) : KOLO_NOMEM(sizeof *p);
    if (status != KOLO_OK) {
        kolo_free(p);
        close(fd);
        return status;
    }
    for (size_t c = 0; c < KOLO_FLIGHT_MAX; c++) p->channels[c].seq = UINT64_MAX;
    t->peers[peer] = p;
    kolo_socket_tune(fd, t->heartbeat_ns / 1000000);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)peer};
    if (epoll_ctl(base->events, EPOLL_CTL_ADD, fd, &event) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
    }
    return KOLO_OK;
}
