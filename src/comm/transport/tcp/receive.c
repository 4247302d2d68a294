/* Transport `tcp`, receive side: dispatches frames to their groups, and data to the posted receive
 * or to the unexpected queue. All frames are validated first. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/tcp/internal.h"

#include <string.h>

enum { EMPTIES_MAX = 1024, UNEXPECTED_MIN = 64 << 10 };

/* ---- unexpected-message queue ---- */

/* Makes room for `bytes` more in a channel's block. Consumed bytes at its start are reclaimed once
 * they are the larger part: so the block stays small even if the receiver never catches up, and
 * each byte is moved rarely. */
static kolo_status make_room(kolo_tcp_transport *t, kolo_tcp_channel *c, size_t bytes) {
    kolo_tcp_unexpected *block = c->unexpected;
    if (!block && t->spare) {
        block = c->unexpected = t->spare;
        t->spare = block->next;
    }
    if (block && block->cap - block->end < bytes && block->first >= block->end - block->first) {
        block->end -= block->first;
        memmove(block->data, block->data + block->first, block->end);
        block->first = 0;
    }
    size_t end = block ? block->end : 0, cap = block ? block->cap : 0;
    if (cap - end >= bytes) return KOLO_OK;
    cap = cap ? cap : UNEXPECTED_MIN;
    while (cap - end < bytes) cap *= 2;
    kolo_tcp_unexpected *grown = kolo_realloc(block, sizeof *grown + cap);
    if (!grown) return KOLO_NOMEM(cap);
    if (!block) grown->first = grown->end = 0;
    grown->cap = cap;
    c->unexpected = grown;
    return KOLO_OK;
}

void kolo_tcp_drop_unexpected(kolo_tcp_transport *t, kolo_tcp_channel *c) {
    if (!c->unexpected) return;
    c->unexpected->first = c->unexpected->end = 0;
    c->unexpected->next = t->spare;
    t->spare = c->unexpected;
    c->unexpected = NULL;
}

size_t kolo_tcp_read_unexpected(kolo_tcp_transport *t, kolo_tcp_channel *c, void *to,
                                size_t bytes) {
    if (!c->unexpected) return 0;
    size_t n = c->unexpected->end - c->unexpected->first;
    if (n > bytes) n = bytes;
    memcpy(to, c->unexpected->data + c->unexpected->first, n);
    c->unexpected->first += n;
    if (c->unexpected->first == c->unexpected->end) kolo_tcp_drop_unexpected(t, c);
    return n;
}

/* ---- frames ---- */

static kolo_status malformed(const kolo_frame *f) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "it sent an invalid frame: kind %u, %u bytes",
                     (unsigned)f->kind, f->bytes);
}

/* Finds the group of a frame, NULL if it was destroyed, and the sender's rank in it. FORMAT if
 * there never was such a group, or the sender is not a member. */
static kolo_status find_group(kolo_tcp_transport *t, int from, const kolo_frame *f,
                              kolo_tcp_transport **group, int *peer) {
    kolo_tcp_transport *g = t->root;
    if (f->group >= g->next_group) return malformed(f);
    while (g && g->group != f->group) g = g->next;
    *group = g;
    *peer = g ? g->ranks[from] : 0;
    return *peer < 0 ? malformed(f) : KOLO_OK;
}

/* Whether data of that number is valid: the collective has started here. */
static bool expects(const kolo_tcp_transport *t, const kolo_tcp_channel *c, uint64_t seq) {
    return seq == KOLO_SEQ_P2P || (c->seq == seq && seq >= t->finished);
}

static kolo_status handle_call(kolo_tcp_transport *t, int peer, const kolo_frame *f,
                               const char *body) {
    kolo_tcp_peer *p = t->peers[peer];
    /* It may be below `finished`: not every algorithm makes a rank wait for all others. */
    if (f->seq >= t->finished + KOLO_FLIGHT_MAX) return malformed(f);
    kolo_tcp_call *c = &p->calls[f->seq % KOLO_FLIGHT_MAX];
    if (f->kind == KOLO_FRAME_PHASE) {
        if (!c->announced || c->seq != f->seq || f->value != c->phase + UINT64_C(1)) {
            return malformed(f);
        }
        c->phase++;
        return KOLO_OK;
    }
    if (c->announced && c->seq >= f->seq) return malformed(f);
    c->announced = true;
    c->seq = f->seq;
    c->phase = 0;
    c->peer_count = f->value;
    memcpy(&c->body, body, sizeof c->body);
    return KOLO_OK;
}

static kolo_status handle_credit(kolo_tcp_transport *t, int peer, const kolo_frame *f) {
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, f->seq, peer);
    if (f->seq != KOLO_SEQ_P2P && c->seq != f->seq) return KOLO_OK; /* of a finished collective */
    if (f->value < c->sent_consumed || f->value > c->sent) return malformed(f);
    c->sent_consumed = f->value;
    return KOLO_OK;
}

/* Keeps the text that a member has sent; without memory it has none. */
static void keep_text(kolo_tcp_member *m, const kolo_frame *f, const char *body) {
    size_t n = f->bytes < KOLO_REPORT_BYTES ? f->bytes : KOLO_REPORT_BYTES - 1;
    kolo_free(m->report);
    m->report = kolo_alloc(n + 1);
    if (!m->report) return;
    memcpy(m->report, body, n);
    m->report[n] = '\0';
}

/* The first report of a rank is passed on to those that are not connected to it. */
static kolo_status handle_report(kolo_tcp_transport *t, int peer, const kolo_frame *f,
                                 const char *body) {
    if (f->value == KOLO_OK || f->value > KOLO_ERR_PEER || f->seq > (uint64_t)t->base.size) {
        return malformed(f);
    }
    const int origin = f->seq > 0 ? (int)f->seq - 1 : peer;
    kolo_tcp_member *m = &t->members[origin];
    if (m->broken || origin == t->base.rank) return KOLO_OK;
    m->broken = true;
    m->status = (kolo_status)f->value;
    keep_text(m, f, body);
    atomic_store_explicit(t->base.alarm, 1, memory_order_release);
    return kolo_tcp_pass_on(t, origin, peer);
}

/* Handles a complete frame other than DATA. */
static kolo_status handle_frame(kolo_tcp_transport *t, int peer, const kolo_frame *f,
                                const char *body) {
    kolo_tcp_peer *p = t->peers[peer];
    switch ((kolo_frame_kind)f->kind) {
    case KOLO_FRAME_ANNOUNCE:
    case KOLO_FRAME_PHASE:
        return handle_call(t, peer, f, body);
    case KOLO_FRAME_CREDIT:
        return handle_credit(t, peer, f);
    case KOLO_FRAME_FINISHED:
    case KOLO_FRAME_LEAVE:
        if (f->value < p->finished) return malformed(f);
        p->finished = f->value;
        p->leaving = f->kind == KOLO_FRAME_LEAVE;
        if (p->leaving && !t->members[peer].broken) keep_text(&t->members[peer], f, body);
        return p->behind ? kolo_tcp_announce(t, peer) : KOLO_OK;
    case KOLO_FRAME_REPORT:
        return handle_report(t, peer, f, body);
    case KOLO_FRAME_GONE:
        return t->parent ? malformed(f) : kolo_tcp_take_gone(t, peer, f, body);
    case KOLO_FRAME_STARTED:
        return kolo_tcp_take_started(t, f, body);
    default:
        return KOLO_OK; /* HEARTBEAT */
    }
}

/* Handles the header of DATA. */
static kolo_status begin_data(kolo_tcp_transport *t, int peer, const kolo_frame *f) {
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, f->seq, peer);
    if (t->broken) return KOLO_OK; /* no receive will follow */
    if (!expects(t, c, f->seq) || c->received + f->bytes - c->consumed > KOLO_TCP_WINDOW ||
        c->n_empty == EMPTIES_MAX) {
        return malformed(f);
    }
    if (f->bytes == 0) c->n_empty++;
    c->received += f->bytes;
    return KOLO_OK;
}

/* Discards the body of a frame whose group is gone, to get at the frames after it. */
static bool drop_data(kolo_link *l) {
    char discarded[4096];
    size_t n = kolo_stream_read(&l->stream, discarded,
                                l->left < sizeof discarded ? l->left : sizeof discarded);
    l->left -= n;
    return n > 0;
}

/* Moves received bytes of the current DATA to the unexpected queue; `any` false if there are none.
 */
static kolo_status store_unexpected(kolo_tcp_transport *t, kolo_link *l, kolo_tcp_channel *c,
                                    bool *any) {
    *any = false;
    if (l->stream.in_first == l->stream.in_end && !l->stream.readable) return KOLO_OK;
    KOLO_TRY(make_room(t, c, l->left));
    size_t n = kolo_stream_read(&l->stream, c->unexpected->data + c->unexpected->end, l->left);
    c->unexpected->end += n;
    l->left -= n;
    if (c->unexpected->first == c->unexpected->end) kolo_tcp_drop_unexpected(t, c);
    *any = n > 0;
    return KOLO_OK;
}

/* Reads more of the current DATA; `any` false if it must wait for its receive. */
static kolo_status advance_data(kolo_tcp_transport *root, int from, bool progress, bool *any) {
    kolo_link *l = root->wire->links[from];
    kolo_tcp_transport *t;
    int peer;
    KOLO_TRY(find_group(root, from, &l->frame, &t, &peer));
    if (!t || t->broken) {
        *any = drop_data(l);
        return KOLO_OK;
    }
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, l->frame.seq, peer);
    *any = false;
    /* A posted receive has until the next progress to take it: it may not be polled any more. A
     * receive on another channel, which comes here too, does not begin that time anew. */
    if (c->wanted && !(progress && l->held)) {
        l->held = l->held || progress;
        return KOLO_OK;
    }
    return store_unexpected(t, l, c, any);
}

/* Dispatches a frame: the header alone for DATA, else header and body. */
static kolo_status dispatch(kolo_tcp_transport *root, int from, const kolo_frame *f) {
    kolo_link *l = root->wire->links[from];
    kolo_tcp_transport *t;
    int peer;
    KOLO_TRY(find_group(root, from, f, &t, &peer));
    if (f->kind == KOLO_FRAME_DATA) {
        if (t) KOLO_TRY(begin_data(t, peer, f));
        l->frame = *f;
        l->left = f->bytes;
    } else if (t) {
        KOLO_TRY(handle_frame(t, peer, f, l->stream.in + l->stream.in_first + sizeof *f));
    }
    return KOLO_OK;
}

static kolo_status receive_frames(kolo_tcp_transport *root, int from, bool progress, bool *moved) {
    kolo_link *l = root->wire->links[from];
    kolo_stream *s = &l->stream;
    while (s->in_first < s->in_end || s->readable) {
        if (l->left > 0) {
            bool any;
            KOLO_TRY(advance_data(root, from, progress, &any));
            if (!any) return KOLO_OK;
            *moved = true;
            continue;
        }
        l->held = false;
        kolo_frame f;
        if (!kolo_stream_peek(s, sizeof f)) return KOLO_OK;
        memcpy(&f, s->in + s->in_first, sizeof f);
        if (!kolo_frame_check(&f)) return malformed(&f);
        size_t body = f.kind == KOLO_FRAME_DATA ? 0 : f.bytes;
        if (!kolo_stream_peek(s, sizeof f + body)) return KOLO_OK;
        KOLO_TRY(dispatch(root, from, &f));
        kolo_stream_skip(s, sizeof f + body);
        *moved = true;
    }
    return KOLO_OK;
}

kolo_status kolo_tcp_receive(kolo_tcp_transport *root, int from, bool progress, bool *moved) {
    kolo_status status = receive_frames(root, from, progress, moved);
    if (status != KOLO_ERR_FORMAT) return status;
    kolo_stream *s = &root->wire->links[from]->stream;
    kolo_stream_skip(s, s->in_end - s->in_first);
    kolo_stream_end(s, kolo_last_error());
    return KOLO_OK;
}
