#pragma once
/* What the two halves of the transport `tcp` share: tcp/tcp.c speaks, tcp/receive.c listens. */

#include "comm/transport/tcp/tcp.h"
#include "comm/transport/tcp/wire.h"

enum {
    KOLO_TCP_CHANNELS = KOLO_FLIGHT_MAX + 1, /* the last one: KOLO_SEQ_P2P */
    KOLO_TCP_WINDOW = 4 << 20,
};

/* Data that came before its receive. */
typedef struct kolo_tcp_aside {
    struct kolo_tcp_aside *next; /* of the spare ones */
    size_t first, end, cap;
    char data[];
} kolo_tcp_aside;

/* The data of one collective between this rank and a peer. */
typedef struct kolo_tcp_channel {
    uint64_t seq;
    uint64_t sent, sent_taken;           /* bytes to the peer; of these, taken there */
    uint64_t arrived, taken, taken_told; /* bytes from the peer */
    int empties;                         /* empty messages that have come */
    bool wanted;                         /* a receive is open for more */
    kolo_tcp_aside *aside;               /* NULL: empty */
} kolo_tcp_channel;

/* What a peer has announced. */
typedef struct kolo_tcp_call {
    uint64_t seq;
    uint32_t phase;
    bool made;
    uint64_t word;
    kolo_frame_call body;
} kolo_tcp_call;

typedef struct kolo_tcp_peer {
    kolo_link *link;
    int wire_rank;  /* in the whole group */
    uint32_t group; /* the peer's number of this group; 0: the whole one, or not known yet */
    bool leaving, broken;
    kolo_status status;
    char report[KOLO_REPORT_BYTES];
    uint64_t finished;
    kolo_tcp_channel channels[KOLO_TCP_CHANNELS];
    kolo_tcp_call calls[KOLO_FLIGHT_MAX];
} kolo_tcp_peer;

typedef struct kolo_tcp_transport {
    kolo_transport base; /* first */
    kolo_wire *wire;
    struct kolo_tcp_transport *whole;  /* the whole group, which owns the wire */
    struct kolo_tcp_transport *parent; /* NULL: this is the whole group */
    struct kolo_tcp_transport *next;   /* of the family's groups, which begin with the whole one */
    uint32_t group, next_group;        /* the own number; of the whole one: the next to give */
    uint64_t finished, finished_told, settled;
    bool broken;
    kolo_tcp_aside *spare;
    int *ranks;             /* [wire->size]: the rank here of one of the whole group; -1: none */
    kolo_tcp_peer *peers[]; /* NULL: reached otherwise */
} kolo_tcp_transport;

static inline kolo_tcp_channel *kolo_tcp_channel_of(kolo_tcp_transport *t, uint64_t seq, int peer) {
    return &t->peers[peer]->channels[seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX];
}

/* Takes in what `from` (in the whole group) has sent, up to data for which a receive is open: that
 * is for `recv`, and waits for it until the next pump. FORMAT: a frame that fits nothing; NOMEM. */
kolo_status kolo_tcp_hear(kolo_tcp_transport *whole, int from, bool pump, bool *moved);

/* Moves up to `bytes` of what was put aside to `to`; returns how many. */
size_t kolo_tcp_take_aside(kolo_tcp_transport *t, kolo_tcp_channel *c, void *to, size_t bytes);
/* Drops what was put aside; its block is for others. */
void kolo_tcp_give_back(kolo_tcp_transport *t, kolo_tcp_channel *c);
