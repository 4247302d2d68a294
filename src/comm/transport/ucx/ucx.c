/* Transport `ucx`: data by UCX (ucx/library.h), everything else by the transport `tcp`.
 *
 * Each two ranks have a connection of `tcp`, which has been proven and carries what is small or
 * decides over life and death: announcements, failures, leaving, heartbeats. So a peer that is
 * killed or silent is found as over `tcp`, whatever UCX notices. UCX carries the messages of
 * schedules, sends and receives, straight from their owner's memory.
 *
 * A message goes to its receive's memory when one is open for it; else it stays with UCX, or is put
 * aside. How much that may be is bounded by a window, as over `tcp`: of each collective a sender
 * has at most WINDOW bytes out that the receiver has not taken, a short message counting as
 * CHARGE_LEAST of them.
 *
 * UCX proves nothing: whoever reaches its port can send. So each rank draws a token for each peer,
 * which that peer learns over the proven connection and puts on all it sends; what bears no token
 * is dropped unread, and what bears one is checked against the bounds. Nothing is encrypted.
 *
 * UCX reads and writes the memory of requests while they are in flight. When the group breaks, all
 * that is under way is cut and waited for before anybody gets that memory back. A rank that leaves
 * in order tells its peers by UCX, behind all data, and stays until they have heard it. */
#include "comm/transport/ucx/ucx.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    CHANNELS = KOLO_FLIGHT_MAX + 1, /* the last one: KOLO_SEQ_P2P */
    WINDOW = 4 << 20,
    TELL_TAKEN = WINDOW / 4,
    CHARGE_LEAST = 1 << 10,
    EMPTIES_MOST = 1024,
    LINGER_NS = 2000000000,
    CUT_NS = 1000000000,
    GRACE_NS = 1000000000, /* in which `tcp` should tell why UCX has lost a peer */
};

typedef enum head_kind {
    HEAD_DATA,
    HEAD_TAKEN, /* value: of all data so far */
    HEAD_LEAVE, /* nothing comes after it */
    HEAD_HEARD, /* that */
    HEAD_KINDS
} head_kind;

/* In front of every message. */
typedef struct head {
    unsigned char token[KOLO_UCX_TOKEN_BYTES];
    int32_t from;
    uint32_t kind;
    uint64_t seq, value;
} head;

/* Data that came before its receive, or lies with its sender. */
typedef struct arrival {
    struct arrival *next;
    void *data; /* a name, where it is away */
    void *into; /* the receive's memory that it is fetched to; NULL: other memory */
    size_t bytes, first;
    bool own;  /* `data` is a block of the segment */
    bool away; /* not fetched yet */
} arrival;

/* A small block that is not in use. */
typedef struct slip {
    struct slip *next;
} slip;

typedef struct ucx_transport ucx_transport;

/* The data of one collective between this rank and a peer. */
typedef struct channel {
    kolo_ucx_ticket fetch; /* first: of the oldest arrival */
    ucx_transport *transport;
    int peer;
    bool fetching;
    uint64_t seq;
    uint64_t sent, sent_taken;           /* charged to the peer; of these, taken there */
    uint64_t arrived, taken, taken_told; /* charged by the peer */
    int outgoing, empties;               /* messages under way; empty ones that have come */
    arrival *oldest, *latest;
    char *open; /* a receive that waits, for so many bytes; NULL: none */
    size_t open_bytes, open_done;
} channel;

typedef struct ucx_peer {
    unsigned char token[KOLO_UCX_TOKEN_BYTES]; /* on what goes to it */
    bool told, heard, left; /* it has been told that this rank leaves, has heard it; has left */
    int64_t lost_ns;        /* since when; 0: it is not */
    char why[64];
    channel channels[CHANNELS];
} ucx_peer;

struct ucx_transport {
    kolo_transport base; /* first */
    kolo_transport *control;
    const kolo_ucx_ops *ops;
    void *ucx;
    slip *spare_outgoing, *spare_arrivals;
    uint64_t finished;
    size_t piece;
    int outgoing; /* operations under way */
    bool broken;
    kolo_status trouble;                           /* found while listening */
    unsigned char (*tokens)[KOLO_UCX_TOKEN_BYTES]; /* [size]: on what comes from each */
    ucx_peer *peers[];                             /* NULL: this rank; reached otherwise */
};

/* A message on its way. */
typedef struct outgoing {
    kolo_ucx_ticket ticket; /* first */
    ucx_transport *transport;
    channel *channel; /* NULL: no data */
    head head;
} outgoing;

static ucx_transport *ucx(kolo_transport *t) { return (ucx_transport *)t; }

static channel *channel_of(ucx_transport *t, uint64_t seq, int peer) {
    return &t->peers[peer]->channels[seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX];
}

static uint64_t charge(size_t bytes) { return bytes > CHARGE_LEAST ? bytes : CHARGE_LEAST; }

/* ---- small blocks, which are used again ---- */

static void *take_slip(slip **spare, size_t bytes) {
    slip *s = *spare;
    if (!s) return kolo_alloc(bytes);
    *spare = s->next;
    return s;
}

static void give_slip(slip **spare, void *block) {
    slip *s = block;
    s->next = *spare;
    *spare = s;
}

static void free_slips(slip *spare) {
    while (spare) {
        slip *next = spare->next;
        kolo_free(spare);
        spare = next;
    }
}

/* ---- messages out ---- */

static void sent(kolo_ucx_ticket *ticket, bool good) { /* a lost peer tells of itself */
    outgoing *o = (outgoing *)ticket;
    ucx_transport *t = o->transport;
    t->outgoing--;
    if (o->channel) o->channel->outgoing--;
    give_slip(&t->spare_outgoing, o);
}

static kolo_status post(ucx_transport *t, int peer, head_kind kind, uint64_t seq, uint64_t value,
                        channel *c, const void *data, size_t bytes) {
    outgoing *o = take_slip(&t->spare_outgoing, sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    *o = (outgoing){
        .ticket.done = sent,
        .transport = t,
        .channel = c,
        .head = {.from = t->base.rank, .kind = kind, .seq = seq, .value = value},
    };
    memcpy(o->head.token, t->peers[peer]->token, sizeof o->head.token);
    t->outgoing++;
    if (c) c->outgoing++;
    t->ops->send(t->ucx, peer, &o->head, sizeof o->head, data, bytes, &o->ticket);
    return KOLO_OK;
}

static kolo_status ucx_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *taken, bool *accepted) {
    ucx_transport *t = ucx(base);
    channel *c = channel_of(t, seq, peer);
    uint64_t room = WINDOW - (c->sent - c->sent_taken);
    *taken = 0;
    *accepted = (room >= CHARGE_LEAST || bytes == 0) && !t->peers[peer]->lost_ns && !t->broken;
    if (!*accepted) return KOLO_OK;
    if (bytes > room) bytes = room;
    if (bytes > t->piece) bytes = t->piece;
    if (bytes > 0) c->sent += charge(bytes);
    KOLO_TRY(post(t, peer, HEAD_DATA, seq, 0, c, data, bytes));
    *taken = bytes;
    return KOLO_OK;
}

static bool ucx_sent(kolo_transport *base, uint64_t seq, int peer) {
    return channel_of(ucx(base), seq, peer)->outgoing == 0;
}

/* ---- messages in ---- */

static kolo_status malformed(int peer, const head *h, size_t bytes) {
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "rank %d sends a message that fits nothing (kind %u, %zu bytes)", peer,
                     h->kind, bytes);
}

static void pop(ucx_transport *t, channel *c) {
    arrival *a = c->oldest;
    c->oldest = a->next;
    if (!c->oldest) c->latest = NULL;
    if (a->own) {
        kolo_segment_give(&t->base.segment, a->data, a->bytes);
    } else if (a->data) {
        t->ops->give_back(t->ucx, a->data);
    }
    give_slip(&t->spare_arrivals, a);
}

static void take(ucx_transport *t, channel *c) {
    c->taken += charge(c->oldest->bytes);
    pop(t, c);
}

/* What of a message no receive was open for. */
static kolo_status keep(ucx_transport *t, channel *c, const kolo_ucx_body *body, size_t done) {
    void *copy = NULL;
    if (body->place == KOLO_UCX_PASSING) {
        KOLO_TRY(kolo_segment_take(&t->base.segment, body->bytes, &copy));
        memcpy((char *)copy + done, (const char *)body->data + done, body->bytes - done);
    }
    arrival *a = take_slip(&t->spare_arrivals, sizeof *a);
    if (!a) {
        kolo_segment_give(&t->base.segment, copy, body->bytes);
        return KOLO_NOMEM(sizeof *a);
    }
    *a = (arrival){.data = copy ? copy : body->data,
                   .bytes = body->bytes,
                   .first = done,
                   .own = copy != NULL,
                   .away = body->place == KOLO_UCX_AWAY};
    *(c->latest ? &c->latest->next : &c->oldest) = a;
    c->latest = a;
    return KOLO_OK;
}

static kolo_status hear_data(ucx_transport *t, int peer, const head *h, const kolo_ucx_body *body,
                             bool *kept) {
    channel *c = channel_of(t, h->seq, peer);
    bool expected = h->seq == KOLO_SEQ_P2P || (c->seq == h->seq && h->seq >= t->finished);
    if (!expected || body->bytes > WINDOW || c->empties == EMPTIES_MOST ||
        (body->bytes > 0 && c->arrived + charge(body->bytes) - c->taken > WINDOW)) {
        return malformed(peer, h, body->bytes);
    }
    if (body->bytes == 0) {
        c->empties++;
        return KOLO_OK;
    }
    c->arrived += charge(body->bytes);
    size_t done = 0;
    if (c->open && !c->oldest && body->place != KOLO_UCX_AWAY) {
        done = c->open_bytes - c->open_done;
        if (done > body->bytes) done = body->bytes;
        memcpy(c->open + c->open_done, body->data, done);
        c->open_done += done;
    }
    if (done == body->bytes) {
        c->taken += charge(body->bytes);
        return KOLO_OK;
    }
    KOLO_TRY(keep(t, c, body, done));
    *kept = body->place != KOLO_UCX_PASSING;
    return KOLO_OK;
}

static kolo_status hear(ucx_transport *t, int peer, const head *h, const kolo_ucx_body *body,
                        bool *kept) {
    ucx_peer *p = t->peers[peer];
    if (h->kind >= HEAD_KINDS || (p->left && h->kind != HEAD_HEARD) ||
        (h->kind != HEAD_DATA && body->bytes > 0)) {
        return malformed(peer, h, body->bytes);
    }
    channel *c = channel_of(t, h->seq, peer);
    switch ((head_kind)h->kind) {
    case HEAD_DATA:
        return hear_data(t, peer, h, body, kept);
    case HEAD_TAKEN:
        if (h->seq != KOLO_SEQ_P2P && c->seq != h->seq) return KOLO_OK; /* that one is over */
        if (h->value < c->sent_taken || h->value > c->sent) return malformed(peer, h, 0);
        c->sent_taken = h->value;
        return KOLO_OK;
    case HEAD_LEAVE:
        p->left = true;
        return post(t, peer, HEAD_HEARD, 0, 0, NULL, NULL, 0);
    default:
        if (!p->told) return malformed(peer, h, 0);
        p->heard = true;
        return KOLO_OK;
    }
}

/* Any message, from anybody. */
static bool arrived(void *arg, const void *bytes, size_t head_bytes, const kolo_ucx_body *body) {
    ucx_transport *t = arg;
    head h;
    bool kept = false;
    if (t->broken || t->trouble || head_bytes != sizeof h) return false;
    memcpy(&h, bytes, sizeof h);
    if (h.from < 0 || h.from >= t->base.size || !t->peers[h.from]) return false;
    if (sodium_memcmp(h.token, t->tokens[h.from], sizeof h.token) != 0) return false;
    t->trouble = hear(t, h.from, &h, body, &kept);
    return kept;
}

static void lost(void *arg, int peer, const char *why) {
    ucx_peer *p = ((ucx_transport *)arg)->peers[peer];
    if (!p || p->left) return;
    p->lost_ns = kolo_now_ns();
    snprintf(p->why, sizeof p->why, "%s", why);
}

static void fetched(kolo_ucx_ticket *ticket, bool good) {
    channel *c = (channel *)ticket;
    c->fetching = false;
    c->transport->outgoing--;
    if (good) {
        c->oldest->away = false;
    } else {
        lost(c->transport, c->peer, "its memory cannot be read");
    }
}

/* Has the oldest arrival come to where it belongs, or to a block when there is less room. */
static kolo_status fetch(ucx_transport *t, channel *c, uint64_t seq, int peer, char *to,
                         size_t room) {
    arrival *a = c->oldest;
    void *name = a->data, *target = to;
    if (c->fetching || t->peers[peer]->lost_ns) return KOLO_OK;
    if (room < a->bytes) KOLO_TRY(kolo_segment_take(&t->base.segment, a->bytes, &target));
    a->own = target != to;
    a->into = a->own ? NULL : to;
    a->data = a->own ? target : NULL;
    c->fetching = true;
    c->fetch.done = fetched;
    c->transport = t;
    c->peer = peer;
    t->outgoing++;
    t->ops->fetch(t->ucx, name, target, a->bytes, &c->fetch);
    return KOLO_OK;
}

static kolo_status tell_taken(ucx_transport *t, channel *c, uint64_t seq, int peer) {
    if (c->taken - c->taken_told < TELL_TAKEN) return KOLO_OK;
    c->taken_told = c->taken;
    return post(t, peer, HEAD_TAKEN, seq, c->taken, NULL, NULL, 0);
}

static kolo_status ucx_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *taken, bool *some) {
    ucx_transport *t = ucx(base);
    channel *c = channel_of(t, seq, peer);
    *taken = 0;
    if (bytes == 0) {
        *some = c->empties > 0;
        if (*some) c->empties--;
        return KOLO_OK;
    }
    KOLO_ASSERT(!c->open || (c->open == data && c->open_bytes == bytes)); /* the same one again */
    size_t done = c->open_done;
    c->open = NULL;
    c->open_done = 0;
    while (done < bytes && c->oldest) {
        arrival *a = c->oldest;
        char *to = (char *)data + done;
        if (a->away) KOLO_TRY(fetch(t, c, seq, peer, to, bytes - done));
        if (a->away) break;
        size_t n = a->bytes - a->first;
        if (a->into) {
            KOLO_ASSERT(a->into == to);
        } else {
            if (n > bytes - done) n = bytes - done;
            memcpy(to, (const char *)a->data + a->first, n);
        }
        a->first += n;
        done += n;
        if (a->first == a->bytes) take(t, c);
    }
    if (done == 0 && !c->oldest) {
        c->open = data;
        c->open_bytes = bytes;
    }
    *taken = done;
    *some = done > 0;
    return tell_taken(t, c, seq, peer);
}

/* ---- what goes by tcp ---- */

static void close_channel(ucx_transport *t, channel *c) {
    while (c->oldest) pop(t, c);
    c->open = NULL;
    c->open_done = 0;
}

static bool ucx_start(kolo_transport *base, uint64_t seq, void **payload) {
    ucx_transport *t = ucx(base);
    if (!t->control->ops->start(t->control, seq, payload)) return false;
    for (int p = 0; p < base->size; p++) {
        if (!t->peers[p]) continue;
        channel *c = channel_of(t, seq, p);
        KOLO_ASSERT(c->outgoing == 0 && !c->fetching);
        close_channel(t, c);
        *c = (channel){.seq = seq};
    }
    return true;
}

static void ucx_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *call, const uint64_t *peer_counts,
                       const char *title) {
    kolo_transport *control = ucx(base)->control;
    control->ops->signal(control, seq, phase, call, peer_counts, title);
}

static bool ucx_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    kolo_transport *control = ucx(base)->control;
    return control->ops->query(control, seq, peer, peer_call);
}

static void ucx_finish(kolo_transport *base, uint64_t finished) {
    kolo_transport *control = ucx(base)->control;
    ucx(base)->finished = finished;
    control->ops->finish(control, finished);
}

static uint64_t ucx_handle(kolo_transport *base, const void *data, size_t bytes) {
    kolo_transport *control = ucx(base)->control;
    return control->ops->handle(control, data, bytes);
}

static void *ucx_window(kolo_transport *base, int peer, uint64_t handle, size_t bytes) {
    kolo_transport *control = ucx(base)->control;
    return control->ops->window(control, peer, handle, bytes);
}

/* ---- progress ---- */

static kolo_status ucx_progress(kolo_transport *base, bool *moved) {
    ucx_transport *t = ucx(base);
    KOLO_TRY(t->control->ops->progress(t->control, moved));
    if (t->ops->progress(t->ucx)) *moved = true;
    return t->trouble;
}

static bool ucx_arm(kolo_transport *base) { return ucx(base)->ops->arm(ucx(base)->ucx); }

/* ---- health ---- */

static void ucx_peer_state(kolo_transport *base, int peer, kolo_peer_state *state) {
    ucx_transport *t = ucx(base);
    const ucx_peer *p = t->peers[peer];
    t->control->ops->peer_state(t->control, peer, state);
    if (!p || !p->lost_ns || p->left || state->condition != KOLO_PEER_ALIVE ||
        kolo_now_ns() - p->lost_ns < GRACE_NS) {
        return;
    }
    state->condition = KOLO_PEER_LOST;
    snprintf(state->report, sizeof state->report, "UCX: %s", p->why);
}

static void close_all_channels(ucx_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p]) continue;
        for (int c = 0; c < CHANNELS; c++) close_channel(t, &t->peers[p]->channels[c]);
    }
}

/* Has UCX let go of all memory that is not its own. */
static void cut(ucx_transport *t) {
    int64_t until_ns = kolo_now_ns() + CUT_NS;
    t->broken = true;
    t->ops->cut(t->ucx);
    while (t->outgoing > 0 && kolo_now_ns() < until_ns) (void)t->ops->progress(t->ucx);
    close_all_channels(t);
}

static void ucx_report(kolo_transport *base, kolo_status status, const char *text) {
    ucx_transport *t = ucx(base);
    t->control->ops->report(t->control, status, text);
    if (!t->broken) cut(t);
}

/* ---- sub-groups, which go by tcp alone ---- */

static kolo_status ucx_sub(kolo_transport *base, const int *members, int size, int rank,
                           kolo_transport **sub, kolo_subgroup_address *address) {
    kolo_transport *control = ucx(base)->control;
    KOLO_TRY(control->ops->subgroup(control, members, size, rank, sub, address));
    (*sub)->events = base->events; /* who waits there moves the whole family */
    (*sub)->segment.of = &base->segment;
    return KOLO_OK;
}

/* ---- the end ---- */

/* Whether a peer may still wait for something of this rank's. */
static bool waits_for(ucx_transport *t, int peer) {
    const ucx_peer *p = t->peers[peer];
    kolo_peer_state state;
    if (!p || p->heard || p->left || p->lost_ns) return false;
    t->control->ops->peer_state(t->control, peer, &state);
    return state.condition == KOLO_PEER_ALIVE;
}

/* Tells all that this rank leaves, and stays until they have heard it, and with it all data. */
static void say_farewell(ucx_transport *t) {
    int64_t until_ns = kolo_now_ns() + LINGER_NS;
    for (int p = 0; p < t->base.size; p++) {
        if (!t->peers[p] || !waits_for(t, p)) continue;
        t->peers[p]->told = post(t, p, HEAD_LEAVE, 0, 0, NULL, NULL, 0) == KOLO_OK;
    }
    for (bool open = true; open && kolo_now_ns() < until_ns;) {
        bool moved = false;
        open = t->outgoing > 0;
        for (int p = 0; p < t->base.size; p++) open = open || waits_for(t, p);
        if (ucx_progress(&t->base, &moved) != KOLO_OK) return;
        if (open && !moved) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static void free_transport(ucx_transport *t) {
    if (t->ucx) t->ops->close(t->ucx);
    for (int p = 0; p < t->base.size; p++) kolo_free(t->peers[p]);
    free_slips(t->spare_outgoing);
    free_slips(t->spare_arrivals);
    if (t->base.events >= 0) close(t->base.events);
    kolo_segment_fini(&t->base.segment);
    kolo_free(t->tokens);
    kolo_free(t);
}

/* No receive is open any more. A rank whose peers have broken leaves without a farewell. */
static void ucx_destroy(kolo_transport *base) {
    ucx_transport *t = ucx(base);
    kolo_transport *control = t->control;
    for (int p = 0; p < base->size; p++) {
        for (int c = 0; t->peers[p] && c < CHANNELS; c++) t->peers[p]->channels[c].open = NULL;
    }
    if (control && !t->broken) say_farewell(t);
    if (t->outgoing > 0 && !t->broken) cut(t);
    close_all_channels(t);
    free_transport(t);
    if (control) control->ops->destroy(control);
}

static const kolo_transport_ops ucx_ops = {
    .name = "ucx",
    .start = ucx_start,
    .signal = ucx_signal,
    .query = ucx_query,
    .finish = ucx_finish,
    .send = ucx_send,
    .sent = ucx_sent,
    .recv = ucx_recv,
    .handle = ucx_handle,
    .window = ucx_window,
    .progress = ucx_progress,
    .arm = ucx_arm,
    .peer_state = ucx_peer_state,
    .report = ucx_report,
    .subgroup = ucx_sub,
    .destroy = ucx_destroy,
};

kolo_status kolo_ucx_create(int rank, int size, const char *interface, kolo_transport **transport) {
    size_t bytes = sizeof(ucx_transport) + (size_t)size * sizeof(ucx_peer *);
    const kolo_ucx_ops *ops;
    KOLO_TRY(kolo_ucx_load(&ops));
    ucx_transport *t = kolo_zalloc(bytes);
    if (!t) return KOLO_NOMEM(bytes);
    t->base = (kolo_transport){
        .ops = &ucx_ops, .rank = rank, .size = size, .events = -1, .segment.fd = -1};
    t->ops = ops;
    t->tokens = kolo_zalloc((size_t)size * sizeof *t->tokens);
    int events = -1;
    kolo_ucx_opts opts = {.size = size,
                          .interface = interface,
                          .listener = {.arg = t, .arrived = arrived, .lost = lost}};
    kolo_status status = t->tokens ? ops->open(&opts, &t->ucx, &events)
                                   : KOLO_NOMEM((size_t)size * sizeof *t->tokens);
    if (status == KOLO_OK) {
        t->piece = ops->piece(t->ucx);
        t->base.events = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event = {.events = EPOLLIN};
        if (t->base.events < 0 || epoll_ctl(t->base.events, EPOLL_CTL_ADD, events, &event) != 0) {
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

kolo_status kolo_ucx_control(kolo_transport *base, kolo_transport *control, size_t segment_bytes) {
    ucx_transport *t = ucx(base);
    struct epoll_event event = {.events = EPOLLIN};
    t->control = control;
    KOLO_TRY(kolo_segment_init(&base->segment, segment_bytes, false));
    if (epoll_ctl(base->events, EPOLL_CTL_ADD, control->events, &event) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
    }
    return KOLO_OK;
}

kolo_status kolo_ucx_invite(kolo_transport *base, int peer, kolo_ucx_card *card) {
    ucx_transport *t = ucx(base);
    size_t bytes;
    KOLO_TRY(t->ops->address(t->ucx, card->address, &bytes));
    card->bytes = bytes;
    randombytes_buf(t->tokens[peer], sizeof t->tokens[peer]);
    memcpy(card->token, t->tokens[peer], sizeof card->token);
    return KOLO_OK;
}

kolo_status kolo_ucx_attach(kolo_transport *base, int peer, const kolo_ucx_card *card) {
    ucx_transport *t = ucx(base);
    KOLO_ASSERT(peer != base->rank && !t->peers[peer]);
    if (card->bytes == 0 || card->bytes > sizeof card->address) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "an address for UCX of %llu bytes",
                         (unsigned long long)card->bytes);
    }
    ucx_peer *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    memcpy(p->token, card->token, sizeof p->token);
    for (size_t c = 0; c < KOLO_FLIGHT_MAX; c++) p->channels[c].seq = UINT64_MAX;
    t->peers[peer] = p;
    return t->ops->connect(t->ucx, peer, card->address);
}
