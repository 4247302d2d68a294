/* Sends and receives between two ranks, in any order relative to collectives: a rendezvous
 * protocol.
 *
 * Two ranks exchange frames: a header, which may be followed by a body. A send posts an offer with
 * its tag, type, count and title. A receive takes the oldest offer with its tag and answers with a
 * grant; then the body arrives directly in the receiver's memory. So messages are never buffered,
 * messages of different tags do not block each other, and a mismatch is detected before any data
 * moves. Frames are received only while a send or receive with that rank is in flight, or a probe
 * looks for them. A receive from any rank belongs to the lanes of all ranks until it has an offer.
 *
 * All input from a peer is validated: kinds, sizes, and that a grant or body belongs to a request
 * in flight. */
#include "comm/engine/p2p.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm_trace.h"

#include <string.h>

typedef enum frame_kind { FRAME_OFFER, FRAME_GRANT, FRAME_BODY, FRAME_KINDS } frame_kind;

typedef struct frame {
    uint32_t kind, dtype;
    int32_t tag;
    uint32_t request_kind; /* fills what would be padding */
    uint64_t serial;       /* number of the send, counted by the sender */
    uint64_t count;        /* elements */
    char title[KOLO_TITLE_BYTES];
} frame;

/* A frame being sent. The transport reads it in place until it is sent. */
typedef struct outgoing {
    frame head;
    kolo_request *body; /* request whose data follows; NULL: none */
} outgoing;

typedef struct lane {
    uint64_t next_serial;
    int open; /* requests in flight with this peer */

    outgoing now; /* being sent, if `sending` */
    outgoing *queue;
    size_t n_queue, cap_queue;
    bool sending;
    size_t out_bytes; /* of `now` that the transport has accepted */

    frame in; /* being received */
    size_t in_bytes;
    kolo_request *body; /* request whose data follows `in`; NULL: none */

    frame *offers; /* unmatched, in order of arrival */
    size_t n_offers, cap_offers;
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
        kolo_free(p->lanes[r].queue);
        kolo_free(p->lanes[r].offers);
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
    for (int r = 0; r < comm->size; r++) { /* one of those from which any may send may have left */
        if (q->root == r || q->any) kolo_transport_need(comm->transport, r, !q->any);
    }
    q->state = REQUEST_QUEUED;
    q->moved = 0;
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
            from = (const char *)&l->now.head + l->out_bytes;
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
            l->now = l->queue[0];
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

/* Processes a complete header. */
static kolo_status take_frame(kolo_comm *comm, int peer, lane *l) {
    const frame *f = &l->in;
    if (f->kind == FRAME_OFFER) {
        if (!KOLO_GROW(l->offers, l->n_offers, l->cap_offers)) return KOLO_NOMEM(sizeof *f);
        l->offers[l->n_offers++] = *f;
        l->in_bytes = 0;
        return KOLO_OK;
    }
    bool grant = f->kind == FRAME_GRANT;
    kolo_request *q =
        find_open(comm, peer, grant ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV, f->serial);
    if (f->kind >= FRAME_KINDS || !q || q->count != f->count || (grant && q->granted)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent a frame that matches no request (kind %u)",
                         peer, (unsigned)f->kind);
    }
    if (grant) {
        q->granted = true;
        l->in_bytes = 0;
        return push(l, FRAME_BODY, q, q);
    }
    l->body = q;
    return KOLO_OK;
}

/* A sender that has reported a failure may have used the memory of its message since, or freed it:
 * this is asked before data is taken and after. */
static bool has_failed(kolo_transport *t, int peer) {
    kolo_peer_state state;
    if (!kolo_transport_alarmed(t)) return false;
    t->ops->peer_state(t, peer, &state);
    return state.condition == KOLO_PEER_FAILED;
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

static kolo_status mismatch(kolo_request *q, frame *offer) {
    offer->title[sizeof offer->title - 1] = '\0';
    return KOLO_FAIL(KOLO_ERR_ARG, "ranks disagree on a message: rank %d started %s, rank %d %s",
                     q->root, offer->title, q->comm->rank, q->title);
}

/* The oldest offer of a tag; NULL: none. */
static frame *find_offer(lane *l, int tag) {
    size_t i = 0;
    while (i < l->n_offers && l->offers[i].tag != tag) i++;
    return i < l->n_offers ? &l->offers[i] : NULL;
}

/* Matches a receive with the oldest offer of its tag from a rank. */
static kolo_status match_from(kolo_request *q, int peer, bool *moved) {
    lane *l = &q->comm->p2p->lanes[peer];
    frame *f = find_offer(l, q->tag);
    if (!f) return KOLO_OK;
    if (q->root == KOLO_ANY_RANK) { /* from now on it belongs to this lane only */
        add_open(q->comm, q, -1);
        q->root = peer;
        add_open(q->comm, q, 1);
        q->comm->p2p->next_any = (peer + 1) % q->comm->size;
    }
    if (f->count != q->count || f->dtype != q->dtype) return mismatch(q, f);
    q->seq = f->serial;
    q->state = REQUEST_RUNNING;
    memmove(f, f + 1, (size_t)(l->offers + --l->n_offers - f) * sizeof *f);
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

/* Starts a queued request: posts the offer of a send, matches a receive. */
static kolo_status begin(kolo_request *q, bool *moved) {
    if (q->state != REQUEST_QUEUED) return KOLO_OK;
    if (q->comm->gate && !q->comm->gate(q->comm->gate_arg, q)) return KOLO_OK;
    if (q->kind == KOLO_COLLECTIVE_RECV) return match(q, moved);
    lane *l = &q->comm->p2p->lanes[q->root];
    q->seq = l->next_serial++;
    q->granted = false;
    q->state = REQUEST_RUNNING;
    *moved = true;
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
        const frame *f = find_offer(l, tag);
        if (!f || f->dtype >= KOLO_DTYPE_COUNT) continue;
        *message = (kolo_message){
            .from = r, .tag = tag, .dtype = (kolo_dtype)f->dtype, .count = (size_t)f->count};
        *found = true;
        return KOLO_OK;
    }
    return KOLO_OK;
}
