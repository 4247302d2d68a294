#pragma once
/* Internals of the transport `ucx`, shared by send.c, receive.c and ucx.c. */

#include "comm/transport/transport.h"
#include "comm/transport/ucx/library.h"

enum {
    KOLO_UCX_TOKEN_BYTES = 16,
    KOLO_UCX_CHANNELS = KOLO_FLIGHT_MAX + 1, /* the last one is KOLO_SEQ_P2P */
    KOLO_UCX_WINDOW = 4 << 20,
    KOLO_UCX_CHARGE_MIN = 1 << 10,
};

typedef enum kolo_ucx_kind {
    KOLO_UCX_DATA,
    KOLO_UCX_CREDIT,    /* value: bytes consumed so far */
    KOLO_UCX_LEAVE,     /* the sender's last message */
    KOLO_UCX_LEAVE_ACK, /* acknowledges LEAVE */
    KOLO_UCX_KINDS
} kolo_ucx_kind;

/* Header of every message. */
typedef struct kolo_ucx_head {
    unsigned char token[KOLO_UCX_TOKEN_BYTES];
    int32_t from;
    uint32_t kind;
    uint64_t seq, value;
} kolo_ucx_head;

/* Message in the unexpected queue: it arrived before its receive, or its body is still at the
 * sender. */
typedef struct kolo_ucx_message {
    struct kolo_ucx_message *next;
    void *data; /* if `remote`: UCX's descriptor */
    void *into; /* receive buffer into which it was fetched; NULL: elsewhere */
    size_t bytes, first;
    bool own;    /* `data` is a block of the segment */
    bool remote; /* not fetched yet */
} kolo_ucx_message;

/* A free block in a list for reuse. */
typedef struct kolo_ucx_block {
    struct kolo_ucx_block *next;
} kolo_ucx_block;

typedef struct kolo_ucx_transport kolo_ucx_transport;

/* State of one collective between this rank and a peer. A message counts as at least
 * KOLO_UCX_CHARGE_MIN bytes in its counters. */
typedef struct kolo_ucx_channel {
    kolo_ucx_request fetch; /* first: fetch of the oldest message */
    kolo_ucx_transport *transport;
    int peer;
    bool fetching;
    uint64_t seq;
    uint64_t sent, sent_consumed;          /* to the peer; of these, consumed there */
    uint64_t received, consumed, credited; /* from the peer; `credited` has been reported to it */
    int n_sends, n_empty;                  /* sends in flight; empty messages received */
    kolo_ucx_message *oldest, *latest;     /* unexpected queue */
    char *posted;                          /* buffer of a waiting receive; NULL: none */
    size_t posted_bytes, posted_done;
} kolo_ucx_channel;

typedef struct kolo_ucx_peer {
    unsigned char token[KOLO_UCX_TOKEN_BYTES]; /* for messages to it */
    bool leave_sent, leave_acked; /* this rank's LEAVE was sent, was acknowledged by the peer */
    bool left;                    /* the peer's LEAVE has arrived */
    int64_t lost_ns;              /* when UCX lost it; 0: not lost */
    char why[64];
    kolo_ucx_channel channels[KOLO_UCX_CHANNELS];
} kolo_ucx_peer;

struct kolo_ucx_transport {
    kolo_transport base; /* first */
    kolo_transport *control;
    const kolo_ucx_ops *ops;
    void *ucx;
    kolo_ucx_block *spare_sends, *spare_messages;
    uint64_t finished;
    size_t message_bytes;
    int n_operations; /* in flight */
    bool broken;
    kolo_status receive_error;                     /* found in a callback */
    unsigned char (*tokens)[KOLO_UCX_TOKEN_BYTES]; /* [size]: of messages from each peer */
    kolo_ucx_peer *peers[];                        /* NULL: not attached */
};

static inline kolo_ucx_channel *kolo_ucx_channel_of(kolo_ucx_transport *t, uint64_t seq, int peer) {
    return &t->peers[peer]->channels[seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX];
}

/* Bytes that a message counts for in the window. */
static inline uint64_t kolo_ucx_charge(size_t bytes) {
    return bytes > KOLO_UCX_CHARGE_MIN ? bytes : KOLO_UCX_CHARGE_MIN;
}

/* ---- send.c ---- */

/* Takes a block from a free list, or allocates it; NULL if there is no memory. */
void *kolo_ucx_block_alloc(kolo_ucx_block **spare, size_t bytes);
void kolo_ucx_block_free(kolo_ucx_block **spare, void *block);
/* Sends a message; `c` NULL: it is not data. The body is borrowed until the send completes. NOMEM.
 */
kolo_status kolo_ucx_post(kolo_ucx_transport *t, int peer, kolo_ucx_kind kind, uint64_t seq,
                          uint64_t value, kolo_ucx_channel *c, const void *data, size_t bytes);
/* Operations `send` and `sent` of kolo_transport_ops. */
kolo_status kolo_ucx_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                          size_t bytes, size_t *queued, bool *accepted);
bool kolo_ucx_sent(kolo_transport *base, uint64_t seq, int peer);

/* ---- receive.c ---- */

/* Callbacks of kolo_ucx_callbacks; `arg` is the transport. */
bool kolo_ucx_arrived(void *arg, const void *head, size_t head_bytes, const kolo_ucx_body *body);
void kolo_ucx_lost(void *arg, int peer, const char *why);
/* Operation `recv` of kolo_transport_ops. */
kolo_status kolo_ucx_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                          size_t *received, bool *arrived);
/* Frees the unexpected queue of a channel. */
void kolo_ucx_close_channel(kolo_ucx_transport *t, kolo_ucx_channel *c);
