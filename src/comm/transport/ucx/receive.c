/* Transport `ucx`, receive side: authenticates and validates messages, delivers data to the posted
 * receive or to the unexpected queue, and returns credits. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/ucx/internal.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { CREDIT_BYTES = KOLO_UCX_WINDOW / 4, EMPTIES_MAX = 1024 };

static kolo_status malformed(int peer, const kolo_ucx_head *h, size_t bytes) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent an invalid message (kind %u, %zu bytes)", peer,
                     h->kind, bytes);
}

/* ---- unexpected queue ---- */

static void pop(kolo_ucx_transport *t, kolo_ucx_channel *c) {
    kolo_ucx_message *m = c->oldest;
    c->oldest = m->next;
    if (!c->oldest) c->latest = NULL;
    if (m->own) {
        kolo_segment_give(&t->base.segment, m->data, m->bytes);
    } else if (m->data) {
        t->ops->release(t->ucx, m->data);
    }
    kolo_ucx_block_free(&t->spare_messages, m);
}

void kolo_ucx_close_channel(kolo_ucx_transport *t, kolo_ucx_channel *c) {
    while (c->oldest) pop(t, c);
    c->posted = NULL;
    c->posted_done = 0;
}

/* Queues a message, of which `done` bytes were delivered to the posted receive. */
static kolo_status push(kolo_ucx_transport *t, kolo_ucx_channel *c, const kolo_ucx_body *body,
                        size_t done) {
    void *copy = NULL;
    if (body->location == KOLO_UCX_BORROWED) {
        KOLO_TRY(kolo_segment_take(&t->base.segment, body->bytes, &copy));
        memcpy((char *)copy + done, (const char *)body->data + done, body->bytes - done);
    }
    kolo_ucx_message *m = kolo_ucx_block_alloc(&t->spare_messages, sizeof *m);
    if (!m) {
        kolo_segment_give(&t->base.segment, copy, body->bytes);
        return KOLO_NOMEM(sizeof *m);
    }
    *m = (kolo_ucx_message){.data = copy ? copy : body->data,
                            .bytes = body->bytes,
                            .first = done,
                            .own = copy != NULL,
                            .remote = body->location == KOLO_UCX_REMOTE};
    *(c->latest ? &c->latest->next : &c->oldest) = m;
    c->latest = m;
    return KOLO_OK;
}

/* ---- messages ---- */

static kolo_status handle_data(kolo_ucx_transport *t, int peer, const kolo_ucx_head *h,
                               const kolo_ucx_body *body, bool *kept) {
    kolo_ucx_channel *c = kolo_ucx_channel_of(t, h->seq, peer);
    bool expected = h->seq == KOLO_SEQ_P2P || (c->seq == h->seq && h->seq >= t->finished);
    if (!expected || body->bytes > KOLO_UCX_WINDOW || c->n_empty == EMPTIES_MAX ||
        (body->bytes > 0 &&
         c->received + kolo_ucx_charge(body->bytes) - c->consumed > KOLO_UCX_WINDOW)) {
        return malformed(peer, h, body->bytes);
    }
    if (body->bytes == 0) {
        c->n_empty++;
        return KOLO_OK;
    }
    c->received += kolo_ucx_charge(body->bytes);
    size_t done = 0;
    if (c->posted && !c->oldest && body->location != KOLO_UCX_REMOTE) {
        done = c->posted_bytes - c->posted_done;
        if (done > body->bytes) done = body->bytes;
        memcpy(c->posted + c->posted_done, body->data, done);
        c->posted_done += done;
    }
    if (done == body->bytes) {
        c->consumed += kolo_ucx_charge(body->bytes);
        return KOLO_OK;
    }
    KOLO_TRY(push(t, c, body, done));
    *kept = body->location != KOLO_UCX_BORROWED;
    return KOLO_OK;
}

static kolo_status handle(kolo_ucx_transport *t, int peer, const kolo_ucx_head *h,
                          const kolo_ucx_body *body, bool *kept) {
    kolo_ucx_peer *p = t->peers[peer];
    if (h->kind >= KOLO_UCX_KINDS || (p->left && h->kind != KOLO_UCX_LEAVE_ACK) ||
        (h->kind != KOLO_UCX_DATA && body->bytes > 0)) {
        return malformed(peer, h, body->bytes);
    }
    kolo_ucx_channel *c = kolo_ucx_channel_of(t, h->seq, peer);
    switch ((kolo_ucx_kind)h->kind) {
    case KOLO_UCX_DATA:
        return handle_data(t, peer, h, body, kept);
    case KOLO_UCX_CREDIT:
        if (h->seq != KOLO_SEQ_P2P && c->seq != h->seq) return KOLO_OK; /* finished collective */
        if (h->value < c->sent_consumed || h->value > c->sent) return malformed(peer, h, 0);
        c->sent_consumed = h->value;
        return KOLO_OK;
    case KOLO_UCX_LEAVE:
        p->left = true;
        return kolo_ucx_post(t, peer, KOLO_UCX_LEAVE_ACK, 0, 0, NULL, NULL, 0);
    default:
        if (!p->leave_sent) return malformed(peer, h, 0);
        p->leave_acked = true;
        return KOLO_OK;
    }
}

/* Messages without the token of their sender are dropped. */
bool kolo_ucx_arrived(void *arg, const void *head, size_t head_bytes, const kolo_ucx_body *body) {
    kolo_ucx_transport *t = arg;
    kolo_ucx_head h;
    bool kept = false;
    if (t->broken || t->receive_error || head_bytes != sizeof h) return false;
    memcpy(&h, head, sizeof h);
    if (h.from < 0 || h.from >= t->base.size || !t->peers[h.from]) return false;
    if (sodium_memcmp(h.token, t->tokens[h.from], sizeof h.token) != 0) return false;
    t->receive_error = handle(t, h.from, &h, body, &kept);
    return kept;
}

void kolo_ucx_lost(void *arg, int peer, const char *why) {
    kolo_ucx_peer *p = ((kolo_ucx_transport *)arg)->peers[peer];
    if (!p || p->left) return;
    p->lost_ns = kolo_now_ns();
    snprintf(p->why, sizeof p->why, "%s", why);
}

/* ---- receives ---- */

static void fetch_done(kolo_ucx_request *request, bool good) {
    kolo_ucx_channel *c = (kolo_ucx_channel *)request;
    c->fetching = false;
    c->transport->n_operations--;
    if (good) {
        c->oldest->remote = false;
    } else {
        kolo_ucx_lost(c->transport, c->peer, "cannot read its memory");
    }
}

/* Starts to fetch the oldest message into the receive buffer, or into a block if it is larger. */
static kolo_status fetch(kolo_ucx_transport *t, kolo_ucx_channel *c, int peer, char *to,
                         size_t room) {
    kolo_ucx_message *m = c->oldest;
    void *descriptor = m->data, *target = to;
    if (c->fetching || t->peers[peer]->lost_ns) return KOLO_OK;
    if (room < m->bytes) KOLO_TRY(kolo_segment_take(&t->base.segment, m->bytes, &target));
    m->own = target != to;
    m->into = m->own ? NULL : to;
    m->data = m->own ? target : NULL;
    c->fetching = true;
    c->fetch.done = fetch_done;
    c->transport = t;
    c->peer = peer;
    t->n_operations++;
    t->ops->fetch(t->ucx, descriptor, target, m->bytes, &c->fetch);
    return KOLO_OK;
}

static kolo_status send_credit(kolo_ucx_transport *t, kolo_ucx_channel *c, uint64_t seq, int peer) {
    if (c->consumed - c->credited < CREDIT_BYTES) return KOLO_OK;
    c->credited = c->consumed;
    return kolo_ucx_post(t, peer, KOLO_UCX_CREDIT, seq, c->consumed, NULL, NULL, 0);
}

kolo_status kolo_ucx_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                          size_t *received, bool *arrived) {
    kolo_ucx_transport *t = (kolo_ucx_transport *)base;
    kolo_ucx_channel *c = kolo_ucx_channel_of(t, seq, peer);
    *received = 0;
    if (bytes == 0) {
        *arrived = c->n_empty > 0;
        if (*arrived) c->n_empty--;
        return KOLO_OK;
    }
    KOLO_ASSERT(!c->posted || (c->posted == data && c->posted_bytes == bytes)); /* called again */
    size_t done = c->posted_done;
    c->posted = NULL;
    c->posted_done = 0;
    while (done < bytes && c->oldest) {
        kolo_ucx_message *m = c->oldest;
        char *to = (char *)data + done;
        if (m->remote) KOLO_TRY(fetch(t, c, peer, to, bytes - done));
        if (m->remote) break;
        size_t n = m->bytes - m->first;
        if (m->into) {
            KOLO_ASSERT(m->into == to);
        } else {
            if (n > bytes - done) n = bytes - done;
            memcpy(to, (const char *)m->data + m->first, n);
        }
        m->first += n;
        done += n;
        if (m->first == m->bytes) {
            c->consumed += kolo_ucx_charge(m->bytes);
            pop(t, c);
        }
    }
    if (done == 0 && !c->oldest) {
        c->posted = data;
        c->posted_bytes = bytes;
    }
    *received = done;
    *arrived = done > 0;
    return send_credit(t, c, seq, peer);
}
