/* Sends and receives between two ranks, in any order relative to collectives: a rendezvous
 * protocol.
 *
 * Two ranks exchange frames: a header, which may be followed by a body. A send posts an offer with
 * its tag, type, count and title. A receive takes the oldest offer with its tag and answers with a
 * grant; then the body arrives directly in the receiver's memory. So messages are never buffered,
 * messages of different tags do not block each other, and a mismatch is detected before any data
 * moves.
 *
 * A receive that finds no offer announces itself: the frame is a grant for the next message with
 * its tag, whose body follows without an offer if the send starts later. So a message to a receive
 * that waits moves as soon as it is sent. If announcement and offer cross, both sides count the
 * former as the grant of the latter: the n-th announcement of a tag is for the n-th send that has
 * no other grant, in the order of both. A receive from any rank does not announce itself, and while
 * one waits, no later receive with its tag does: so announcements are in the order of receives.
 *
 * Frames are received only while a send or receive with that rank is in flight, or a probe looks
 * for them. A receive from any rank belongs to the lanes of all ranks until it has an offer.
 *
 * All input from a peer is validated: kinds, sizes, and that a grant or body belongs to a request
 * in flight. */
#include "comm/engine/p2p.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm_trace.h"

#include <string.h>

typedef enum frame_kind {
    FRAME_OFFER,
    FRAME_GRANT,
    FRAME_BODY,
    FRAME_READY, /* a receive waits for the next message with the tag */
    FRAME_KINDS
} frame_kind;

typedef struct frame {
    uint32_t kind, dtype;
    int32_t tag;
    uint32_t request_kind; /* fills what would be padding */
    uint64_t serial;       /* number of the send, counted by the sender */
    uint64_t count;        /* elements */
    char title[KOLO_TITLE_BYTES];
} frame;

/* Frames, in order of arrival. */
typedef struct frame_list {
    frame *items;
    size_t n, cap;
} frame_list;

/* A frame being sent. The transport reads it in place until it is sent. */
typedef struct outgoing {
    frame head;
    kolo_request *body; /* request whose data follows; NULL: none */
} outgoing;

typedef struct lane {
    uint64_t next_serial;
    int open; /* requests in flight with this peer */

    outgoing now; /* being sent, if `sending` */
    frame *head;  /* its header, in memory that peers may read until they have left too */
    outgoing *queue;
    size_t n_queue, cap_queue;
    bool sending;
    size_t out_bytes; /* of `now` that the transport has accepted */

    frame in; /* being received */
    size_t in_bytes;
    kolo_request *body; /* request whose data follows `in`; NULL: none */

    frame_list offers; /* of sends that no receive has taken */
    frame_list ready;  /* of receives that wait for a send of this rank */
} lane;

typedef struct kolo_p2p {
    kolo_request **open; /* [comm->n_messages]: in flight, in order of start */
    size_t cap_open;
    int next_any; /* the lane at which a receive from any rank begins, so that none is starved */
    lane lanes[];
} kolo_p2p;

kolo_status kolo_p2p_open(kolo_comm *comm) {
    if (comm->p2p) return KOLO_OK;
    size_t bytes = sizeof(kolo_p2p) + (size_t)comm->size * sizeof(lane);
    comm->p2p = kolo_zalloc(bytes);
    return comm->p2p ? KOLO_OK : KOLO_NOMEM(bytes);
}

void kolo_p2p_close(kolo_comm *comm) {
    kolo_p2p *p = comm->p2p;
    if (!p) return;
    for (int r = 0; r < comm->size; r++) {
        if (comm->parent && !p->lanes[r].sending) { /* else a peer may still read it */
            kolo_segment_give(&comm->parent->transport->segment, p->lanes[r].head, sizeof(frame));
        }
        kolo_free(p->lanes[r].queue);
        kolo_free(p->lanes[r].offers.items);
        kolo_free(p->lanes[r].ready.items);
    }
    kolo_free(p->open);
    kolo_free(p);
    comm->p2p = NULL;
}

void kolo_p2p_drop(kolo_comm *comm) {
    kolo_p2p *p = comm->p2p;
    if (!p) return;
    for (size_t i = 0; i < comm->n_messages; i++) {
        if (comm->trace) kolo_comm_trace_end(comm->trace, p->open[i]); /* still in flight */
        p->open[i]->state = REQUEST_IDLE;
    }
    for (int r = 0; r < comm->size; r++) p->lanes[r].open = 0;
    comm->n_messages = 0;
}

/* Counts a request in its lanes. */
static void add_open(const kolo_comm *comm, const kolo_request *q, int n) {
    for (int r = 0; r < comm->size; r++) {
        bool own = q->root == KOLO_ANY_RANK ? r != comm->rank : r == q->root;
        if (own) comm->p2p->lanes[r].open += n;
    }
}

kolo_status kolo_p2p_start(kolo_request *q) {
    kolo_comm *comm = q->comm;
    kolo_p2p *p = comm->p2p;
    if (!KOLO_GROW(p->open, comm->n_messages, p->cap_open)) {
        return KOLO_NOMEM(sizeof(kolo_request *));
    }
    p->open[comm->n_messages++] = q;
    if (q->any) q->root = KOLO_ANY_RANK;
    add_open(comm, q, 1);
    if (!q->any) kolo_transport_need(comm->transport, q->root, true); /* else the sender connects */
    q->state = REQUEST_QUEUED;
    q->moved = 0;
    q->granted = false;
    return KOLO_OK;
}

const kolo_request *kolo_p2p_open_with(const kolo_comm *comm, int peer) {
    const kolo_p2p *p = comm->p2p;
    for (size_t i = 0; p && i < comm->n_messages; i++) {
        if (peer < 0 || p->open[i]->root == peer) return p->open[i];
    }
    return NULL;
}

bool kolo_p2p_open_any(const kolo_comm *comm) {
    for (size_t i = 0; comm->p2p && i < comm->n_messages; i++) {
        if (comm->p2p->open[i]->root == KOLO_ANY_RANK) return true;
    }
    return false;
}

static void complete(kolo_request *q) {
    kolo_comm *comm = q->comm;
    kolo_p2p *p = comm->p2p;
    size_t i = 0;
    while (p->open[i] != q) i++;
    memmove(&p->open[i], &p->open[i + 1], (comm->n_messages - i - 1) * sizeof(kolo_request *));
    comm->n_messages--;
    p->lanes[q->root].open--;
    q->state = REQUEST_IDLE;
    kolo_peer_traffic *traffic = &comm->traffic[q->root];
    if (q->kind == KOLO_COLLECTIVE_SEND) {
        traffic->sent_bytes += q->count * q->element_bytes;
        traffic->sends++;
    } else {
        traffic->received_bytes += q->count * q->element_bytes;
        traffic->receives++;
    }
    if (comm->trace) kolo_comm_trace_end(comm->trace, q);
}

/* ---- sending ---- */

static kolo_status push(lane *l, frame_kind kind, kolo_request *q, kolo_request *body) {
    outgoing out = {.head = {.kind = kind,
                             .dtype = q->dtype,
                             .tag = q->tag,
                             .request_kind = q->kind,
                             .serial = q->seq,
                             .count = q->count},
                    .body = body};
    memcpy(out.head.title, q->title, sizeof out.head.title);
    if (!KOLO_GROW(l->queue, l->n_queue, l->cap_queue)) return KOLO_NOMEM(sizeof out);
    l->queue[l->n_queue++] = out;
    return KOLO_OK;
}

/* Sends as much of the current frame as the transport accepts. */
static kolo_status send_some(kolo_comm *comm, int peer, lane *l, bool *accepted) {
    kolo_transport *t = comm->transport;
    const kolo_request *q = l->now.body;
    const size_t head = sizeof(frame);
    size_t body = q ? q->count * q->element_bytes : 0;
    *accepted = true;
    while (*accepted && l->out_bytes < head + body) {
        const char *from;
        size_t left;
        if (l->out_bytes < head) {
            from = (const char *)l->head + l->out_bytes;
            left = head - l->out_bytes;
        } else {
            from = q->input + (l->out_bytes - head);
            left = head + body - l->out_bytes;
        }
        size_t taken;
        KOLO_TRY(t->ops->send(t, KOLO_SEQ_P2P, peer, from, left, &taken, accepted));
        l->out_bytes += taken;
    }
    *accepted = l->out_bytes == head + body;
    return KOLO_OK;
}

static kolo_status pump_out(kolo_comm *comm, int peer, bool *moved) {
    kolo_transport *t = comm->transport;
    lane *l = &comm->p2p->lanes[peer];
    for (;;) {
        if (!l->sending) {
            if (l->n_queue == 0) return KOLO_OK;
            if (!l->head) {
                void *head;
                KOLO_TRY(kolo_segment_take(&t->segment, sizeof *l->head, &head));
                l->head = head;
            }
            l->now = l->queue[0];
            *l->head = l->now.head;
            memmove(l->queue, l->queue + 1, --l->n_queue * sizeof *l->queue);
            l->sending = true;
            l->out_bytes = 0;
        }
        size_t before = l->out_bytes;
        bool all;
        KOLO_TRY(send_some(comm, peer, l, &all));
        *moved = *moved || l->out_bytes != before;
        if (!all || !t->ops->sent(t, KOLO_SEQ_P2P, peer)) return KOLO_OK;
        l->sending = false;
        *moved = true;
        if (l->now.body) {
            kolo_traffic_add(&l->now.body->traffic, KOLO_ENTRY_SEND, l->now.body->count);
            complete(l->now.body);
        }
    }
}

/* ---- receiving ---- */

static kolo_request *find_open(const kolo_comm *comm, int peer, kolo_collective kind,
                               uint64_t serial) {
    for (size_t i = 0; i < comm->n_messages; i++) {
        kolo_request *q = comm->p2p->open[i];
        if (q->root == peer && q->kind == kind && q->state == REQUEST_RUNNING && q->seq == serial) {
            return q;
        }
    }
    return NULL;
}

/* The oldest request with a peer and a tag that waits for one of the other side: a send that has
 * been offered, or a receive that has been announced. NULL: none. */
static kolo_request *find_waiting(const kolo_comm *comm, int peer, kolo_collective kind, int tag) {
    for (size_t i = 0; i < comm->n_messages; i++) {
        kolo_request *q = comm->p2p->open[i];
        const bool waits = kind == KOLO_COLLECTIVE_SEND ? q->state == REQUEST_RUNNING && !q->granted
                                                        : q->state == REQUEST_QUEUED && q->granted;
        if (q->root == peer && q->kind == kind && q->tag == tag && waits) return q;
    }
    return NULL;
}

static kolo_status keep(frame_list *list, const frame *f) {
    if (!KOLO_GROW(list->items, list->n, list->cap)) return KOLO_NOMEM(sizeof *f);
    list->items[list->n++] = *f;
    return KOLO_OK;
}

static void drop(frame_list *list, frame *f) {
    memmove(f, f + 1, (size_t)(list->items + --list->n - f) * sizeof *f);
}

static bool fits(const kolo_request *q, const frame *f) {
    return f->count == q->count && f->dtype == q->dtype;
}

static kolo_status grant(lane *l, kolo_request *q) {
    q->granted = true;
    return push(l, FRAME_BODY, q, q);
}

/* A receive of the peer waits: for a send that has been offered, or a later one. Where types or
 * counts differ, the peer reports that when it gets the offer. */
static kolo_status take_ready(kolo_comm *comm, int peer, lane *l, const frame *f) {
    kolo_request *q = find_waiting(comm, peer, KOLO_COLLECTIVE_SEND, f->tag);
    if (!q) return keep(&l->ready, f);
    if (fits(q, f)) return grant(l, q);
    q->granted = true; /* as for an offer that the peer refuses */
    return KOLO_OK;
}

static kolo_status mismatch(const kolo_request *q, const frame *offer) {
    return KOLO_FAIL(KOLO_ERR_ARG, "ranks disagree on a message: rank %d started %.*s, rank %d %s",
                     q->root, KOLO_TITLE_BYTES - 1, offer->title, q->comm->rank, q->title);
}

/* A receive gets the message with this number. */
static void bind_message(kolo_request *q, const frame *f) {
    q->seq = f->serial;
    q->state = REQUEST_RUNNING;
}

/* A send waits: for a receive that has been announced to it, or for a later one. */
static kolo_status take_offer(kolo_comm *comm, int peer, lane *l, const frame *f) {
    kolo_request *q = find_waiting(comm, peer, KOLO_COLLECTIVE_RECV, f->tag);
    if (!q) return keep(&l->offers, f);
    if (!fits(q, f)) return mismatch(q, f);
    bind_message(q, f);
    return KOLO_OK;
}

/* The receive of a body whose send was never offered; NULL: there is none. */
static kolo_request *take_announced(const kolo_comm *comm, int peer, const frame *f) {
    kolo_request *q = find_waiting(comm, peer, KOLO_COLLECTIVE_RECV, f->tag);
    if (!q || !fits(q, f)) return NULL;
    bind_message(q, f);
    return q;
}

/* Processes a complete header. */
static kolo_status take_frame(kolo_comm *comm, int peer, lane *l) {
    const frame *f = &l->in;
    if (f->kind == FRAME_OFFER || f->kind == FRAME_READY) {
        l->in_bytes = 0;
        return f->kind == FRAME_OFFER ? take_offer(comm, peer, l, f) : take_ready(comm, peer, l, f);
    }
    const bool granted = f->kind == FRAME_GRANT;
    kolo_request *q =
        find_open(comm, peer, granted ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV, f->serial);
    if (!q && f->kind == FRAME_BODY) q = take_announced(comm, peer, f);
    if (f->kind >= FRAME_KINDS || !q || q->count != f->count || (granted && q->granted)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent a frame that matches no request (kind %u)",
                         peer, (unsigned)f->kind);
    }
    if (granted) {
        l->in_bytes = 0;
        return grant(l, q);
    }
    l->body = q;
    return KOLO_OK;
}

/* A sender that has reported a failure may have used the memory of its message since, or freed it;
 * so may one that has left with requests in flight. This is checked before data is taken and after.
 */
static bool has_failed(kolo_transport *t, int peer) {
    kolo_peer_state state;
    if (!kolo_transport_alarmed(t)) return false;
    t->ops->peer_state(t, peer, &state);
    return state.condition == KOLO_PEER_FAILED ||
           (state.condition == KOLO_PEER_LEFT && state.unfinished);
}

static void take_body(lane *l) {
    kolo_traffic_add(&l->body->traffic, KOLO_ENTRY_RECV, l->body->count);
    complete(l->body);
    l->body = NULL;
    l->in_bytes = 0;
}

static kolo_status pump_in(kolo_comm *comm, int peer, bool *moved) {
    kolo_transport *t = comm->transport;
    lane *l = &comm->p2p->lanes[peer];
    for (;;) {
        size_t taken, body = l->body ? l->body->count * l->body->element_bytes : 0;
        bool arrived;
        if (has_failed(t, peer)) return KOLO_OK; /* a check of the peers finds that too */
        if (l->body && l->body->moved == body) {
            take_body(l);
            continue;
        }
        if (l->open == 0) return KOLO_OK; /* the rest is received by a later request */
        char *to = l->body ? (char *)l->body->parts[0].data + l->body->moved
                           : (char *)&l->in + l->in_bytes;
        size_t left = l->body ? body - l->body->moved : sizeof(frame) - l->in_bytes;
        KOLO_TRY(t->ops->recv(t, KOLO_SEQ_P2P, peer, to, left, &taken, &arrived));
        if (!arrived) return KOLO_OK;
        *moved = true;
        if (l->body) {
            l->body->moved += taken;
        } else {
            l->in_bytes += taken;
            if (l->in_bytes == sizeof(frame)) KOLO_TRY(take_frame(comm, peer, l));
        }
    }
}

/* ---- matching ---- */

/* The oldest frame of a tag; NULL: none. */
static frame *find_frame(const frame_list *list, int tag) {
    size_t i = 0;
    while (i < list->n && list->items[i].tag != tag) i++;
    return i < list->n ? &list->items[i] : NULL;
}

/* Whether a receive from any rank that was started before q waits for a message with its tag. */
static bool any_waits(const kolo_request *q) {
    for (size_t i = 0; q->comm->p2p->open[i] != q; i++) {
        const kolo_request *before = q->comm->p2p->open[i];
        if (before->root == KOLO_ANY_RANK && before->tag == q->tag) return true;
    }
    return false;
}

/* Announces a receive for which there is no offer. */
static kolo_status announce(kolo_request *q, lane *l, bool *moved) {
    if (q->root == KOLO_ANY_RANK || any_waits(q)) return KOLO_OK;
    q->granted = true;
    *moved = true;
    return push(l, FRAME_READY, q, NULL);
}

/* Matches a receive with the oldest offer of its tag from a rank. */
static kolo_status match_from(kolo_request *q, int peer, bool *moved) {
    lane *l = &q->comm->p2p->lanes[peer];
    if (q->granted) return KOLO_OK; /* it gets its message when that arrives */
    frame *f = find_frame(&l->offers, q->tag);
    if (!f) return announce(q, l, moved);
    if (q->root == KOLO_ANY_RANK) { /* from now on it belongs to this lane only */
        add_open(q->comm, q, -1);
        q->root = peer;
        add_open(q->comm, q, 1);
        q->comm->p2p->next_any = (peer + 1) % q->comm->size;
    }
    if (!fits(q, f)) return mismatch(q, f);
    bind_message(q, f);
    drop(&l->offers, f);
    *moved = true;
    return push(l, FRAME_GRANT, q, NULL);
}

static kolo_status match(kolo_request *q, bool *moved) {
    if (q->root != KOLO_ANY_RANK) return match_from(q, q->root, moved);
    int size = q->comm->size, first = q->comm->p2p->next_any;
    for (int i = 0; i < size && q->state == REQUEST_QUEUED; i++) {
        KOLO_TRY(match_from(q, (first + i) % size, moved));
    }
    return KOLO_OK;
}

static bool may_begin(const kolo_request *q) {
    for (int i = 0; i < q->n_after; i++) {
        if (q->after[i]->state != REQUEST_IDLE) return false;
    }
    return !q->comm->gate || q->comm->gate(q->comm->gate_arg, q);
}

/* Starts a queued request: matches a receive; of a send posts the body, if a receive waits for it,
 * else an offer. */
static kolo_status begin(kolo_request *q, bool *moved) {
    if (q->state != REQUEST_QUEUED || !may_begin(q)) return KOLO_OK;
    if (q->kind == KOLO_COLLECTIVE_RECV) return match(q, moved);
    lane *l = &q->comm->p2p->lanes[q->root];
    q->seq = l->next_serial++;
    q->granted = false;
    q->state = REQUEST_RUNNING;
    *moved = true;
    frame *ready = find_frame(&l->ready, q->tag);
    const bool waits = ready && fits(q, ready);
    if (ready) drop(&l->ready, ready);
    if (waits) return grant(l, q);
    q->granted = ready != NULL; /* the peer reports that it expects another message */
    return push(l, FRAME_OFFER, q, NULL);
}

static kolo_status in_message(kolo_status status) {
    return status == KOLO_OK ? status : kolo_fail_in(status, "a send or receive");
}

kolo_status kolo_p2p_progress(kolo_comm *comm, bool *moved) {
    kolo_p2p *p = comm->p2p;
    if (comm->n_messages == 0) return KOLO_OK;
    for (int r = 0; r < comm->size; r++) {
        if (p->lanes[r].open > 0) KOLO_TRY(in_message(pump_in(comm, r, moved)));
    }
    for (size_t i = 0; i < comm->n_messages; i++) KOLO_TRY(begin(p->open[i], moved));
    for (int r = 0; r < comm->size; r++) {
        if (p->lanes[r].open > 0) KOLO_TRY(in_message(pump_out(comm, r, moved)));
    }
    return KOLO_OK;
}

kolo_status kolo_p2p_probe(kolo_comm *comm, int from, int tag, bool *found, kolo_message *message) {
    bool moved;
    *found = false;
    for (int r = 0; r < comm->size; r++) {
        lane *l = &comm->p2p->lanes[r];
        if (r == comm->rank || (from != KOLO_ANY_RANK && r != from)) continue;
        l->open++;
        kolo_status status = in_message(pump_in(comm, r, &moved));
        l->open--;
        KOLO_TRY(status);
        const frame *f = find_frame(&l->offers, tag);
        if (!f || f->dtype >= KOLO_DTYPE_COUNT) continue;
        *message = (kolo_message){
            .from = r, .tag = tag, .dtype = (kolo_dtype)f->dtype, .count = (size_t)f->count};
        *found = true;
        return KOLO_OK;
    }
    return KOLO_OK;
}
