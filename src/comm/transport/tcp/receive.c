/* Transport `tcp`, what comes: frames go to the group that they are for, data to its receive, or
 * aside when none is open. Everything is held against the bounds before it is believed. */
#include "base/memory.h"
#include "comm/transport/tcp/internal.h"

#include <string.h>

enum { EMPTIES_MOST = 1024, ASIDE_LEAST = 64 << 10 };

/* ---- data that came early ---- */

/* Gives a channel a block with room for `bytes` more. What has been taken from its start makes room
 * once that is the larger part: so a block stays small though a receiver may never catch up, and no
 * byte is moved often. */
static kolo_status make_room(kolo_tcp_transport *t, kolo_tcp_channel *c, size_t bytes) {
    kolo_tcp_aside *block = c->aside;
    if (!block && t->spare) {
        block = c->aside = t->spare;
        t->spare = block->next;
    }
    if (block && block->cap - block->end < bytes && block->first >= block->end - block->first) {
        block->end -= block->first;
        memmove(block->data, block->data + block->first, block->end);
        block->first = 0;
    }
    size_t end = block ? block->end : 0, cap = block ? block->cap : 0;
    if (cap - end >= bytes) return KOLO_OK;
    cap = cap ? cap : ASIDE_LEAST;
    while (cap - end < bytes) cap *= 2;
    kolo_tcp_aside *grown = kolo_realloc(block, sizeof *grown + cap);
    if (!grown) return KOLO_NOMEM(cap);
    if (!block) grown->first = grown->end = 0;
    grown->cap = cap;
    c->aside = grown;
    return KOLO_OK;
}

void kolo_tcp_give_back(kolo_tcp_transport *t, kolo_tcp_channel *c) {
    if (!c->aside) return;
    c->aside->first = c->aside->end = 0;
    c->aside->next = t->spare;
    t->spare = c->aside;
    c->aside = NULL;
}

size_t kolo_tcp_take_aside(kolo_tcp_transport *t, kolo_tcp_channel *c, void *to, size_t bytes) {
    if (!c->aside) return 0;
    size_t n = c->aside->end - c->aside->first;
    if (n > bytes) n = bytes;
    memcpy(to, c->aside->data + c->aside->first, n);
    c->aside->first += n;
    if (c->aside->first == c->aside->end) kolo_tcp_give_back(t, c);
    return n;
}

/* ---- hearing something ---- */

/* `from`: in the whole group. */
static kolo_status malformed(int from, const kolo_frame *f) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sends a frame that fits nothing (kind %u, %u bytes)",
                     from, (unsigned)f->kind, f->bytes);
}

/* The group that a frame is for, NULL when it is gone, and the sender's rank in it. FORMAT when
 * there never was such a group, or the sender is no member. */
static kolo_status find_group(kolo_tcp_transport *t, int from, const kolo_frame *f,
                              kolo_tcp_transport **group, int *peer) {
    kolo_tcp_transport *g = t->whole;
    if (f->group >= g->next_group) return malformed(from, f);
    while (g && g->group != f->group) g = g->next;
    *group = g;
    *peer = g ? g->ranks[from] : 0;
    return *peer < 0 ? malformed(from, f) : KOLO_OK;
}

/* Whether data of that number may come: the collective has started here. */
static bool expects(const kolo_tcp_transport *t, const kolo_tcp_channel *c, uint64_t seq) {
    return seq == KOLO_SEQ_P2P || (c->seq == seq && seq >= t->finished);
}

static kolo_status hear_call(kolo_tcp_transport *t, int peer, const kolo_frame *f,
                             const char *body) {
    kolo_tcp_peer *p = t->peers[peer];
    /* It may be late: not every algorithm makes a rank wait for every other. */
    if (f->seq >= t->finished + KOLO_FLIGHT_MAX) return malformed(p->wire_rank, f);
    kolo_tcp_call *c = &p->calls[f->seq % KOLO_FLIGHT_MAX];
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
    return KOLO_OK;
}

static kolo_status hear_taken(kolo_tcp_transport *t, int peer, const kolo_frame *f) {
    const kolo_tcp_peer *p = t->peers[peer];
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, f->seq, peer);
    if (f->seq != KOLO_SEQ_P2P && c->seq != f->seq) return KOLO_OK; /* that one is over */
    if (f->value < c->sent_taken || f->value > c->sent) return malformed(p->wire_rank, f);
    c->sent_taken = f->value;
    return KOLO_OK;
}

/* A whole frame other than DATA. */
static kolo_status hear(kolo_tcp_transport *t, int peer, const kolo_frame *f, const char *body) {
    kolo_tcp_peer *p = t->peers[peer];
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
static kolo_status begin_data(kolo_tcp_transport *t, int peer, const kolo_frame *f) {
    const kolo_tcp_peer *p = t->peers[peer];
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, f->seq, peer);
    if (t->broken) return KOLO_OK; /* nobody asks for it any more */
    if (!expects(t, c, f->seq) || c->arrived + f->bytes - c->taken > KOLO_TCP_WINDOW ||
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
static kolo_status put_aside(kolo_tcp_transport *t, kolo_link *l, kolo_tcp_channel *c, bool *any) {
    *any = false;
    if (l->stream.in_first == l->stream.in_end && !l->stream.readable) return KOLO_OK;
    KOLO_TRY(make_room(t, c, l->left));
    size_t n = kolo_stream_read(&l->stream, c->aside->data + c->aside->end, l->left);
    c->aside->end += n;
    l->left -= n;
    if (c->aside->first == c->aside->end) kolo_tcp_give_back(t, c);
    *any = n > 0;
    return KOLO_OK;
}

/* Moves the DATA that is being read on; `any` false when it must wait. */
static kolo_status advance_data(kolo_tcp_transport *whole, int from, bool pump, bool *any) {
    kolo_link *l = whole->wire->links[from];
    kolo_tcp_transport *t;
    int peer;
    KOLO_TRY(find_group(whole, from, &l->frame, &t, &peer));
    if (!t || t->broken) {
        *any = drop_data(l);
        return KOLO_OK;
    }
    kolo_tcp_channel *c = kolo_tcp_channel_of(t, l->frame.seq, peer);
    *any = false;
    if (c->wanted && !(pump && l->held)) {
        l->held = pump;
        return KOLO_OK;
    }
    return put_aside(t, l, c, any);
}

/* A frame whose header has come, and its body, if it is not DATA. */
static kolo_status take_frame(kolo_tcp_transport *whole, int from, const kolo_frame *f) {
    kolo_link *l = whole->wire->links[from];
    kolo_tcp_transport *t;
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

kolo_status kolo_tcp_hear(kolo_tcp_transport *whole, int from, bool pump, bool *moved) {
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
