#pragma once
/* Internals of the transport `tcp`; its files, from the lowest up: peers, sparse, receive, tcp. */

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

/* A collective that this rank has started. */
typedef struct kolo_tcp_own {
    uint64_t seq;
    bool started, announced;
    uint32_t phase;
    const uint64_t *peer_counts; /* [2][size]: of the request, which lives as long; NULL: none */
    kolo_frame_call body;
} kolo_tcp_own;

/* A rank of the group, this one included. */
typedef struct kolo_tcp_member {
    int wire_rank;  /* its rank in the root group; -1: this rank, or connected by another transport
                     */
    uint32_t group; /* its number for this group; 0: the root group, or not attached yet */
    bool needed;    /* something waits for it: without a connection it is lost */
    bool broken;
    kolo_status status;
    char *report; /* if broken, or the error after which it leaves; NULL: none, or no memory for it
                   */
} kolo_tcp_member;

/* A member that is connected. */
typedef struct kolo_tcp_peer {
    kolo_link *link;
    bool leaving;
    bool behind; /* it does not have all announcements yet: they are too far ahead of it */
    uint64_t finished;
    uint64_t sent_own[KOLO_FLIGHT_MAX]; /* which of `own` it has been sent: the number + 1 */
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
        next_group;   /* this rank's number for the group; root group: the next free one */
    uint64_t started; /* all collectives below have been */
    uint64_t finished, finished_sent, all_finished;
    _Atomic uint32_t alarm; /* see kolo_transport */
    kolo_status failed;     /* root group: an announcement was not sent; progress returns it */
    bool broken;
    kolo_status status; /* as reported, if broken */
    char *report;
    bool passed_on; /* a report of another rank */
    kolo_tcp_own own[KOLO_FLIGHT_MAX];
    uint64_t *started_by; /* [size]: collectives that each rank has started, + 1, as ranks report
                             while they wait; 0: not known; NULL: nothing is */
    bool started_changed; /* since `started_by` was sent */
    uint64_t stalled_at;  /* `finished` at the last look */
    int64_t notified_ns;  /* root group: time of the latest look */
    struct kolo_tcp_pending_leave *pending_leaves; /* root group: for ranks that connect later */
    kolo_tcp_unexpected *spare;
    int *ranks; /* [wire->size]: maps ranks of the root group to ranks here; -1: none */
    kolo_tcp_member *members; /* [size] */
    kolo_tcp_peer *peers[];   /* [size]; NULL: not connected, or by another transport */
} kolo_tcp_transport;

static inline kolo_tcp_channel *kolo_tcp_channel_of(kolo_tcp_transport *t, uint64_t seq, int peer) {
    return &t->peers[peer]->channels[seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX];
}

/* ---- peers and frames to them (peers.c) ---- */

/* Adds the peer of a new connection to a group. NOMEM. */
kolo_status kolo_tcp_add_peer(kolo_tcp_transport *t, int peer);
/* Sends a frame to a member; nothing if it is not connected or not attached. */
kolo_status kolo_tcp_send_frame(kolo_tcp_transport *t, int peer, kolo_frame frame,
                                const void *body);
/* The same to all; returns the first error after having tried all. */
kolo_status kolo_tcp_send_to_all(kolo_tcp_transport *t, kolo_frame frame, const void *body);
/* Announces a collective to a peer, unless the peer has it or is too far behind. */
kolo_status kolo_tcp_announce_one(kolo_tcp_transport *t, int peer, const kolo_tcp_own *own);
/* The same for all collectives in flight. */
kolo_status kolo_tcp_announce(kolo_tcp_transport *t, int peer);

/* ---- groups in which not all pairs are connected (sparse.c) ---- */

/* Attaches the connections that the dialer has made. */
kolo_status kolo_tcp_take_links(kolo_tcp_transport *root, bool *moved);
/* A member can be sent to now: sends it what it has missed. */
kolo_status kolo_tcp_introduce(kolo_tcp_transport *t, int peer);
/* The frame by which this rank leaves a group; `why`: its body, or NULL. */
kolo_frame kolo_tcp_leave_frame(const kolo_tcp_transport *t, const char *why);
/* A sub-group ends: those of its members that connect later will be sent LEAVE. */
void kolo_tcp_queue_leaves(kolo_tcp_transport *t, const char *why);
void kolo_tcp_drop_pending_leaves(kolo_tcp_transport *root);
/* Asks for the connections by which what concerns the group reaches all its members. */
void kolo_tcp_want_near(kolo_tcp_transport *t, int peer);
/* Notifies all others that a rank is lost, once; `from`: has notified this one; -1: none, it was
 * connected. */
kolo_status kolo_tcp_notify_gone(kolo_tcp_transport *root, int gone, const char *why, int from);
/* Takes notifications from other ranks. FORMAT: an invalid one. */
kolo_status kolo_tcp_take_gone(kolo_tcp_transport *root, int from, const kolo_frame *f,
                               const char *body);
kolo_status kolo_tcp_take_started(kolo_tcp_transport *t, const kolo_frame *f, const char *body);
/* Passes on a report of a rank. */
kolo_status kolo_tcp_pass_on(kolo_tcp_transport *t, int origin, int from);
/* From time to time: notifies others of lost ranks, and while collectives do not end, of who has
 * started which. */
kolo_status kolo_tcp_notify(kolo_tcp_transport *root);
/* The health of a member that is not connected. */
void kolo_tcp_watch_unconnected(const kolo_tcp_transport *t, int peer, kolo_peer_state *state);

/* ---- frames from peers (receive.c) ---- */

/* Processes frames from rank `from` of the root group, up to data for which a receive is posted: it
 * is left for `recv` until the next progress call. An invalid frame or changed data ends the
 * connection, as if the peer were gone: groups without it go on. NOMEM. */
kolo_status kolo_tcp_receive(kolo_tcp_transport *root, int from, bool progress, bool *moved);
/* Moves up to `bytes` from the unexpected queue to `to`; returns how many. */
size_t kolo_tcp_read_unexpected(kolo_tcp_transport *t, kolo_tcp_channel *c, void *to, size_t bytes);
/* Empties the unexpected queue and makes its block a spare one. */
void kolo_tcp_drop_unexpected(kolo_tcp_transport *t, kolo_tcp_channel *c);
