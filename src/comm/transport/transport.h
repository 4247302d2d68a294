#pragma once
/* The interface between the engine and a transport.
 *
 * Collectives are numbered in the order in which they start; the number (`seq`) is the same on
 * every rank. A transport keeps collectives of different numbers apart, so several may be in
 * flight. No call blocks except `destroy`. All calls are made by the thread that holds the
 * communicator. */

#include "comm/schedule/schedule.h"
#include "comm/transport/segment.h"

#include <stdatomic.h>

enum {
    KOLO_FLIGHT_MAX = 32,    /* collectives between the oldest unfinished and the newest started */
    KOLO_EAGER_BYTES = 1024, /* payload sent together with an announcement */
    KOLO_TITLE_BYTES = 176,  /* "allreduce 'bucket 3' (1000 x f32, sum, direct) in sub-group 2" */
    KOLO_REPORT_BYTES = 640, /* error text sent to peers */
};

/* In place of the number of a request that is started once, right after its creation. It is not
 * compared: the ranks may have created different numbers of requests before, as when one of them
 * has failed (comm/sync/agree.c). */
enum { KOLO_REQUEST_ONE_SHOT = 0 };

/* Announces the start of a collective. All fields but the last three and `staged` must agree on
 * all ranks. */
typedef struct kolo_announcement {
    uint32_t request; /* its number, of one title; or KOLO_REQUEST_ONE_SHOT */
    uint8_t kind, dtype, op;
    uint8_t staged;   /* peers cannot access this rank's data */
    uint64_t count;   /* elements */
    uint64_t shape;   /* hash of site, algorithm, root, tuning and parts */
    uint64_t data;    /* handle of DATA, or of a table of handles if there are several parts */
    uint64_t scratch; /* handle of SCRATCH */
} kolo_announcement;

/* A peer's state in one collective. */
typedef struct kolo_peer_call {
    const kolo_announcement *call;
    const char *title;            /* KOLO_TITLE_BYTES, not necessarily NUL-terminated */
    uint32_t phase;               /* barriers reached */
    const uint64_t *peer_count;   /* elements it sends to this rank; NULL: not transmitted */
    const uint64_t *peer_expects; /* and those that it receives from it; NULL: not transmitted */
} kolo_peer_call;

typedef enum kolo_peer_condition {
    KOLO_PEER_ALIVE,
    KOLO_PEER_LEFT,   /* destroyed its communicator in order; `report`: why, after an error */
    KOLO_PEER_LOST,   /* its process ended or is unreachable; `report` may give the cause */
    KOLO_PEER_FAILED, /* reported an error: `status`, `report` */
} kolo_peer_condition;

typedef struct kolo_peer_state {
    kolo_peer_condition condition;
    bool unfinished;   /* LEFT: with requests in flight, whose memory is not to be accessed */
    bool ended;        /* its process has ended or is unreachable, whatever the condition; ALIVE: it
                          could not be connected when nothing needed it */
    uint64_t finished; /* the peer has finished all collectives below this number */
    kolo_status status;
    char report[KOLO_REPORT_BYTES];
} kolo_peer_state;

/* The channel for point-to-point messages (p2p.c), which belong to no collective. `send`, `sent`
 * and `recv` accept it as a sequence number; it is never started or finished. */
#define KOLO_SEQ_P2P UINT64_MAX

typedef struct kolo_transport kolo_transport;

/* Address of a rank's sub-group transport, exchanged between the members: the handle of its
 * control block, and the number of its group on the network. At least one is non-zero. */
typedef struct kolo_subgroup_address {
    uint64_t block, group;
} kolo_subgroup_address;

typedef struct kolo_transport_ops {
    /* Prepares collective `seq`. `*payload` points to KOLO_EAGER_BYTES that the peers receive with
     * the announcement, to be filled before the first `signal`; NULL without windows. Returns false
     * while a peer may still use the slot of an older collective. */
    bool (*start)(kolo_transport *t, uint64_t seq, void **payload);
    /* Publishes the announcement with phase 0, and then each later phase. `peer_counts` has one
     * entry per rank, delivered to that rank with the announcement (in memory: in groups of up to
     * KOLO_EAGER_BYTES / 8 ranks); it excludes a payload. NULL: none. One entry per rank more, of
     * what is expected from it, is delivered by transports that connect on demand, which borrow the
     * counts until the collective is finished. `title` has KOLO_TITLE_BYTES. */
    void (*signal)(kolo_transport *t, uint64_t seq, uint32_t phase, const kolo_announcement *call,
                   const uint64_t *peer_counts, const char *title);
    /* Gets the announcement of `peer` for `seq`; false if it has not arrived. */
    bool (*query)(kolo_transport *t, uint64_t seq, int peer, kolo_peer_call *peer_call);
    /* Publishes that all collectives below `finished` are complete on this rank. */
    void (*finish)(kolo_transport *t, uint64_t finished);
    /* Sends up to `bytes` to a peer. `*queued` bytes (0 if there is no room) are owned by the
     * transport until `sent` returns true. If `bytes` is 0, sends an empty message. `*accepted` is
     * set if a message was sent. */
    kolo_status (*send)(kolo_transport *t, uint64_t seq, int peer, const void *data, size_t bytes,
                        size_t *queued, bool *accepted);
    /* True if the buffers of all sends to this peer may be reused. */
    bool (*sent)(kolo_transport *t, uint64_t seq, int peer);
    /* Receives up to `bytes` of the oldest message from a peer. `*arrived` is false if there is
     * none. */
    kolo_status (*recv)(kolo_transport *t, uint64_t seq, int peer, void *data, size_t bytes,
                        size_t *received, bool *arrived);
    /* Something waits for this peer (`now`), or soon may: connects to it, if it is not connected.
     * It is lost if that fails. NULL: all peers are connected. */
    void (*need)(kolo_transport *t, int peer, bool now);
    /* Whether a peer has started a collective; true if that is not known. NULL: as `query`. */
    bool (*started)(kolo_transport *t, uint64_t seq, int peer);
    /* Handle by which peers can map this memory; 0 if they cannot access it. */
    uint64_t (*handle)(kolo_transport *t, const void *data, size_t bytes);
    /* Maps a peer's memory by its handle; NULL if the handle is invalid. */
    void *(*window)(kolo_transport *t, int peer, uint64_t handle, size_t bytes);
    /* Whether this peer's memory can be mapped. NULL: `windows` holds for all peers. */
    bool (*reaches)(kolo_transport *t, int peer);
    /* Processes incoming data; called by the engine before each poll. Sets `*moved` if there was
     * any. NULL: not needed. */
    kolo_status (*progress)(kolo_transport *t, bool *moved);
    /* Arms `events` before a sleep. False if an event is already pending: do not sleep. NULL:
     * `events` is always armed. */
    bool (*arm)(kolo_transport *t);
    /* Gets the health of a peer; called at a low rate. */
    void (*peer_state)(kolo_transport *t, int peer, kolo_peer_state *state);
    /* Reports to all peers that this rank's communicator has failed. */
    void (*report)(kolo_transport *t, kolo_status status, const char *text);
    /* Creates a transport for `size` ranks of this one, `members`, in which this rank has number
     * `rank`; this transport must outlive it. All peers must be attached by their addresses before
     * use. NULL: sub-groups are not supported. NOMEM, UNSUPPORTED; FORMAT for an invalid address.
     */
    kolo_status (*subgroup)(kolo_transport *t, const int *members, int size, int rank,
                            kolo_transport **subgroup, kolo_subgroup_address *address);
    kolo_status (*attach)(kolo_transport *subgroup, int peer, const kolo_subgroup_address *address);
    /* In a forked child: closes its copies of the descriptors. NULL: there are none. */
    void (*abandon)(kolo_transport *t);
    /* This rank leaves. `why`: the error after which it does, for peers that still need it; NULL:
     * there was none. */
    void (*destroy)(kolo_transport *t, const char *why);
} kolo_transport_ops;

/* The part of every transport that the engine uses. */
struct kolo_transport {
    const kolo_transport_ops *ops;
    const char *name;
    const char *multihost_name; /* combined with shared memory; NULL: it cannot be combined */
    int rank, size;
    bool windows;     /* peers can map each other's segments by `handle` and `window` */
    bool reaches_all; /* any memory can be mapped, not just segments */
    bool no_wakeup;   /* writes of some peer to shared memory wake no sleeper: poll */
    bool sparse;      /* ranks connect on demand; the same on all */
    int events;       /* readable if there is incoming data; -1: all peers use shared memory */
    _Atomic uint32_t *alarm;    /* 1: some peer has reported a failure, or left with requests in
                                   flight (release); NULL: see peer_state */
    _Atomic uint32_t *accesses; /* not 0: this rank accesses memory of peers that may be freed;
                                   those that report a failure, or leave, wait; NULL: it never is */
    bool unfinished;    /* requests are in flight while this rank leaves; set before `destroy` */
    bool reads_private; /* receivers read private memory in place, so such messages are cheap */
    kolo_segment segment;
};

/* Creates the n transports of one group of threads; out[r] is rank r's. */
kolo_status kolo_thread_transports(int n, size_t segment_bytes, kolo_transport **out);

static inline void kolo_transport_need(kolo_transport *t, int peer, bool now) {
    if (t->ops->need && peer != t->rank) t->ops->need(t, peer, now);
}

/* Around accesses to memory of peers that their programs may free. A rank that reports a failure or
 * leaves first publishes that, and then waits for the accesses of others: what is looked at in
 * between is either published, or the memory stays until the end. The fence pairs with the one
 * between those two steps. */
static inline void kolo_transport_begin_access(kolo_transport *t) {
    if (!t->accesses) return;
    uint32_t n = atomic_load_explicit(t->accesses, memory_order_relaxed);
    atomic_store_explicit(t->accesses, n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline void kolo_transport_end_access(kolo_transport *t) {
    if (!t->accesses) return;
    uint32_t n = atomic_load_explicit(t->accesses, memory_order_relaxed);
    atomic_store_explicit(t->accesses, n - 1, memory_order_release);
}

/* Whether some peer has reported a failure, or left in the middle. The fence orders this look after
 * the reads of peers' memory before it: what a peer has written there since its report is not taken
 * for its data. */
static inline bool kolo_transport_alarmed(const kolo_transport *t) {
    atomic_thread_fence(memory_order_acquire);
    return t->alarm && atomic_load_explicit(t->alarm, memory_order_acquire);
}

static inline bool kolo_transport_started(kolo_transport *t, uint64_t seq, int peer) {
    kolo_peer_call unused;
    return t->ops->started ? t->ops->started(t, seq, peer) : t->ops->query(t, seq, peer, &unused);
}
