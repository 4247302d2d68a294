#pragma once
/* What the engine needs of a transport.
 *
 * Collectives are numbered by the order in which they are started (`seq`), the same on every rank.
 * A transport keeps those of different numbers apart, so several may be in flight. All calls return
 * at once and belong to the communicator's thread. */

#include "comm/schedule/schedule.h"
#include "comm/transport/segment.h"

enum {
    KOLO_FLIGHT_MAX = 32,    /* collectives between the oldest unfinished and the newest started */
    KOLO_EAGER_BYTES = 1024, /* payload that travels with an announcement */
    KOLO_TITLE_BYTES = 176,  /* "allreduce 'bucket 3' (1000 x f32, sum, direct) in sub-group 2" */
    KOLO_REPORT_BYTES = 640, /* the text of a failure, passed to peers */
};

/* What a rank announces when it starts a collective; all but the last three must agree. */
typedef struct kolo_announcement {
    uint32_t request; /* by order of creation */
    uint8_t kind, dtype, op;
    uint8_t staged;   /* this rank's data is out of the peers' reach */
    uint64_t count;   /* elements */
    uint64_t shape;   /* hash of site, algorithm, root, tuning and parts */
    uint64_t data;    /* handle of DATA, or of a table of handles when there are several parts */
    uint64_t scratch; /* handle of SCRATCH */
} kolo_announcement;

/* A peer's part in one collective. */
typedef struct kolo_peer_call {
    const kolo_announcement *call;
    const char *title;    /* KOLO_TITLE_BYTES, may lack its NUL */
    uint32_t phase;       /* barriers that it has come to */
    const uint64_t *word; /* its word for this rank; NULL: not told */
} kolo_peer_call;

typedef enum kolo_peer_condition {
    KOLO_PEER_HERE,
    KOLO_PEER_LEFT,   /* destroyed its communicator in order */
    KOLO_PEER_GONE,   /* its process has ended or cannot be reached; `report` may say which */
    KOLO_PEER_BROKEN, /* reports a failure: `status`, `report` */
} kolo_peer_condition;

typedef struct kolo_peer_state {
    kolo_peer_condition condition;
    uint64_t finished; /* it is through with all collectives below this number */
    kolo_status status;
    char report[KOLO_REPORT_BYTES];
} kolo_peer_state;

/* Between any two ranks there is one more channel, which belongs to no collective: sends and
 * receives (p2p.c). `send`, `sent` and `recv` take this in the place of a number; it needs no
 * `start` and never is finished. */
#define KOLO_SEQ_P2P UINT64_MAX

typedef struct kolo_transport kolo_transport;

/* What the members of a sub-group know a rank's transport by: of its board, and of its part on the
 * network. Not both are 0. */
typedef struct kolo_sub_name {
    uint64_t board, wire;
} kolo_sub_name;

typedef struct kolo_transport_ops {
    const char *name;
    /* Announces collective `seq`; `*payload` is KOLO_EAGER_BYTES that the peers see with it and
     * that the caller fills before the first `signal`, NULL where there are no windows. False while
     * a peer may still look at the collective that had the same place. */
    bool (*start)(kolo_transport *t, uint64_t seq, void **payload);
    /* Publishes the call with its first phase, 0, and every later phase. `words`, for a call
     * without payload, has one for each rank, which that rank sees with the call (in memory, in
     * groups of up to KOLO_EAGER_BYTES / 8); NULL: none. */
    void (*signal)(kolo_transport *t, uint64_t seq, uint32_t phase, const kolo_announcement *call,
                   const uint64_t *words, const char *title);
    /* What `peer` has announced of `seq`; false when nothing yet. */
    bool (*look)(kolo_transport *t, uint64_t seq, int peer, kolo_peer_call *peer_call);
    /* All collectives below `finished` are complete here. */
    void (*finish)(kolo_transport *t, uint64_t finished);
    /* Offers `bytes` to a peer: `taken` of them, 0 when there is no room now, belong to the
     * transport until `sent`. With bytes 0 an empty message; `accepted` says whether any was made.
     */
    kolo_status (*send)(kolo_transport *t, uint64_t seq, int peer, const void *data, size_t bytes,
                        size_t *taken, bool *accepted);
    /* True when the peer has taken all that was sent to it. */
    bool (*sent)(kolo_transport *t, uint64_t seq, int peer);
    /* Takes from the peer's oldest message what is there, at most `bytes`; false: no message. */
    kolo_status (*recv)(kolo_transport *t, uint64_t seq, int peer, void *data, size_t bytes,
                        size_t *taken, bool *arrived);
    /* A name that peers know this memory by, 0 when they cannot reach it; and the memory of a peer
     * by such a name, NULL when the name is not one of its memory. */
    uint64_t (*handle)(kolo_transport *t, const void *data, size_t bytes);
    void *(*window)(kolo_transport *t, int peer, uint64_t handle, size_t bytes);
    /* Whether windows of this peer's memory are to be had. NULL: as `windows` says, of all. */
    bool (*reaches)(kolo_transport *t, int peer);
    /* Takes in what has come from the peers; the engine calls it before each look. `moved` when
     * there was anything. NULL: memory needs no such thing. */
    kolo_status (*pump)(kolo_transport *t, bool *moved);
    /* Before a sleep on `events`: from now on they tell. False when something has come meanwhile,
     * and there is no time to sleep. NULL: they always tell. */
    bool (*rest)(kolo_transport *t);
    /* How a peer is; called at a low rate. */
    void (*watch)(kolo_transport *t, int peer, kolo_peer_state *state);
    /* Tells the peers that this rank's communicator is broken. */
    void (*report)(kolo_transport *t, kolo_status status, const char *text);
    /* A transport over this one, which must outlive it, among `size` of its ranks, `members`, of
     * which this one is number `rank`. It is used once every peer has been attached to it by the
     * name that it has there. NULL: it has none. NOMEM, UNSUPPORTED; FORMAT for a bad name. */
    kolo_status (*sub)(kolo_transport *t, const int *members, int size, int rank,
                       kolo_transport **sub, kolo_sub_name *name);
    kolo_status (*attach)(kolo_transport *sub, int peer, const kolo_sub_name *name);
    void (*destroy)(kolo_transport *t);
} kolo_transport_ops;

/* The part of every transport that the communicator sees. */
struct kolo_transport {
    const kolo_transport_ops *ops;
    int rank, size;
    bool windows;     /* peers reach each other's segments: `handle` and `window` work */
    bool reaches_all; /* any memory is a window */
    bool silent;      /* what some peer writes to memory wakes nobody: who waits must look */
    int events;       /* readable when a peer has said something; -1: all is in memory */
    bool reads;       /* messages of private memory are cheap: the receiver reads it in place */
    kolo_segment segment;
};

/* n transports of one group of threads; out[r] is rank r's. */
kolo_status kolo_thread_transports(int n, size_t segment_bytes, kolo_transport **out);
