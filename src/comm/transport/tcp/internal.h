#pragma once
/* Internals of the transport `tcp`, shared by tcp.c (sending, groups) and receive.c. */

#include "comm/transport/tcp/tcp.h"
#include "comm/transport/tcp/wire.h"

enum {
    KOLO_TCP_CHANNELS = KOLO_FLIGHT_MAX + 1, /* the last one is KOLO_SEQ_P2P */
    KOLO_TCP_WINDOW = 4 << 20,               /* unconsumed bytes that a sender may have in flight */
    KOLO_TCP_CREDIT_BYTES =
        KOLO_TCP_WINDOW / 4, /* consumed bytes that a receiver acknowledges at once */
};

/* Unexpected-message queue: data that arrived before its receive was posted. */
typedef struct kolo_tcp_unexpected {
    struct kolo_tcp_unexpected *next; /* in the list of spare blocks */
    size_t first, end, cap;
    char data[];
} kolo_tcp_unexpected;

/* Flow control of one collective between this rank and a peer; counters in bytes. */
typedef struct kolo_tcp_channel {
    uint64_t seq;
    uint64_t sent, sent_consumed;          /* to the peer; of these, consumed there */
    uint64_t received, consumed, credited; /* from the peer; `credited` has been reported to it */
    int n_empty;                           /* empty messages received */
    bool wanted;                           /* a receive is posted and incomplete */
    kolo_tcp_unexpected *unexpected;       /* NULL: empty */
} kolo_tcp_channel;

/* An announcement of a peer. */
typedef struct kolo_tcp_call {
    uint64_t seq;
    uint32_t phase;
    bool announced;
    uint64_t peer_count;
    kolo_frame_call body;
} kolo_tcp_call;

typedef struct kolo_tcp_peer {
    kolo_link *link;
    int wire_rank;  /* its rank in the root group */
    uint32_t group; /* the peer's number for this group; 0: the root group, or not attached yet */
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
    struct kolo_tcp_transport *root;   /* the root group, which owns the wire */
    struct kolo_tcp_transport *parent; /* NULL: this is the root group */
    struct kolo_tcp_transport
        *next; /* in the list of all groups on this wire, from the root group */
    uint32_t group,
        next_group; /* this rank's number for the group; root group: the next free one */
    uint64_t finished, finished_sent, settled;
    _Atomic uint32_t alarm; /* see kolo_transport */
    kolo_status failed;     /* root group: an announcement was not sent; progress returns it */
    bool broken;
    kolo_tcp_unexpected *spare;
    int *ranks;             /* [wire->size]: maps ranks of the root group to ranks here; -1: none */
    kolo_tcp_peer *peers[]; /* NULL: connected by another transport */
} kolo_tcp_transport;

static inline kolo_tcp_channel *kolo_tcp_channel_of(kolo_tcp_transport *t, uint64_t seq, int peer) {
    return &t->peers[peer]->channels[seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX];
}

/* Processes frames from rank `from` of the root group, up to data for which a receive is posted: it
 * is left for `recv` until the next progress call. An invalid frame or changed data ends the
 * connection, as if the peer were gone: groups without it go on. NOMEM. */
kolo_status kolo_tcp_receive(kolo_tcp_transport *root, int from, bool progress, bool *moved);

/* Moves up to `bytes` from the unexpected queue to `to`; returns how many. */
size_t kolo_tcp_read_unexpected(kolo_tcp_transport *t, kolo_tcp_channel *c, void *to, size_t bytes);
/* Empties the unexpected queue and makes its block a spare one. */
void kolo_tcp_drop_unexpected(kolo_tcp_transport *t, kolo_tcp_channel *c);
