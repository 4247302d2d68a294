#pragma once
/* The shared-memory protocol, used by the transports `thread` and `shm`.
 *
 * Each rank has a control block in its segment, which it writes and all peers read
 * (only `alarm` is written by peers, and the `consumed` counters by the receiver of a message).
 * Collective seq uses slot seq % KOLO_FLIGHT_MAX of every control block. A slot has a state word,
 * the announcement and a small payload, and a channel to each peer.
 *
 * Memory ordering. A rank writes announcement, payload and title, and then `state` (release); a
 * peer reads `state` (acquire) and then the rest. The same pair orders the data of a schedule's
 * phases. `posted` (release by the sender) and `consumed` (release by the receiver) order messages.
 * A slot is reused only after `finished` of all peers, stored (release) after their last access,
 * has passed its previous collective. A rank that fails sets `broken` and its peers' `alarm` before
 * its memory is used again (a release fence); a peer that has copied from there looks at them
 * afterwards (an acquire fence), and does not use the copy if they are set. Likewise a rank that
 * leaves with requests in flight, by `left`. Where the ranks are threads, the memory may be freed
 * then: a peer sets `accesses` while it accesses memory outside of the segments, and looks at
 * `broken` and `left` after that; a rank that has set these waits for `accesses` of all peers
 * (kolo_transport_begin_access).
 *
 * Private memory. Data outside of any segment is copied by the sender to a stage block, and from
 * there by the receiver. If the system lets a process read the memory of another
 * (process_vm_readv), and fast enough, longer messages are read in place. A receiver finds out with
 * the first staged message of sufficient size, by reading a value whose copy is in the control
 * block, and sets `reads` in the channel.
 *
 * The functions use mapped memory only, so the transport `thread` and the tests run the code of
 * shm.
 */

#include "comm/transport/transport.h"

#include <stdatomic.h>

enum {
    KOLO_CHANNEL_DEPTH = 2,
    KOLO_BLOCK_CHANNELS = KOLO_FLIGHT_MAX + 1, /* per pair: one per slot, and KOLO_SEQ_P2P */
};

typedef struct kolo_slot {
    _Alignas(64) _Atomic uint64_t state; /* seq << 24 | phase + 1; 0 before first use */
    kolo_announcement call;
    _Alignas(16) char payload[KOLO_EAGER_BYTES + 16]; /* starts in the cache line of `state` */
    char title[KOLO_TITLE_BYTES];
} kolo_slot;

/* Messages from the block's owner to one peer; the counters grow over all collectives of the slot.
 */
typedef struct kolo_channel {
    _Alignas(64) _Atomic uint64_t posted;
    struct {
        uint64_t handle, bytes;
    } message[KOLO_CHANNEL_DEPTH];
    _Alignas(64) _Atomic uint64_t consumed;
    _Atomic uint32_t reads; /* 1: the receiver can read the sender's private memory */
} kolo_channel;

/* How the owner of a control block has left. */
typedef enum kolo_left {
    KOLO_LEFT_NOT,
    KOLO_LEFT_IN_ORDER,
    KOLO_LEFT_UNFINISHED, /* with requests in flight, whose memory is not to be accessed */
} kolo_left;

typedef struct kolo_control_block {
    /* Control blocks of sub-groups are reused after all members have left; these two are kept. */
    _Alignas(64) uint64_t
        generation; /* number of its use, from 1; read by peers until they leave */
    _Atomic uint64_t left_generation; /* last use that its owner has left (release) */
    _Alignas(64) _Atomic uint64_t finished;
    _Atomic uint32_t left;   /* a kolo_left: the owner has left; `report`: why, or empty */
    _Atomic uint32_t broken; /* 1: status and report are set */
    int32_t status;
    int32_t pid;                         /* of the owner; 0: ranks are threads */
    int32_t prefers_reads;               /* 1: reading private memory is faster than staging */
    uint64_t probe_address, probe_value; /* an address in its private memory, and the value there */
    char report[KOLO_REPORT_BYTES];
    _Alignas(64) _Atomic uint32_t alarm; /* set by a peer that has reported a failure, or left with
                                            requests in flight */
    _Alignas(64) _Atomic uint32_t accesses; /* see kolo_transport */
    kolo_slot slots[KOLO_FLIGHT_MAX];
    kolo_channel channels[]; /* [KOLO_BLOCK_CHANNELS][peer] */
} kolo_control_block;

enum {
    KOLO_READ_MIN = 16 << 10
}; /* bytes of private memory from which reading in place is faster */
#define KOLO_PRIVATE_BIT ((uint64_t)1 << 63) /* in message.bytes: `handle` is a private address */

/* Whether a rank may have freed, or changed, the memory of what it had in flight. */
static inline bool kolo_block_withdrawn(const kolo_control_block *block) {
    return atomic_load_explicit(&block->broken, memory_order_acquire) ||
           atomic_load_explicit(&block->left, memory_order_acquire) == KOLO_LEFT_UNFINISHED;
}

/* A rank's local state of the channels to and from a peer. */
typedef struct kolo_channel_end {
    uint64_t posted, consumed; /* messages sent to and consumed from the peer */
    uint64_t offset;           /* bytes consumed of the current message */
    bool probed;               /* whether the peer's private memory is readable has been tested */
    void *stage;               /* stage block; NULL until needed */
} kolo_channel_end;

/* The transport of a rank with a block; transport/thread.c and shm/shm.c extend it. */
typedef struct kolo_block_transport {
    kolo_transport base;
    struct kolo_retired *retired; /* control blocks of left sub-groups (shm/subgroup.c) */
    kolo_control_block **blocks;  /* [size], including its own */
    kolo_channel_end *ends;       /* [KOLO_BLOCK_CHANNELS][peer] */
    uint64_t probe_value;         /* read by peers to test their access; in private memory */
    uint64_t all_finished;        /* all peers have finished all collectives below */
    size_t stage_bytes;
    bool staged; /* a stage block has been used */
    const kolo_transport_ops
        *memory;            /* its own operations if it is part of a multi-host transport */
    kolo_transport *remote; /* the part for other hosts (transport/multihost.c); else NULL */
} kolo_block_transport;

/* Where the control block of a rank is in its segment. */
size_t kolo_control_block_offset(int rank);
/* Creates segment, control block and tables of one rank; the caller fills in the blocks of the
 * peers. Frees everything on failure. */
kolo_status kolo_block_init(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                            int size, size_t segment_bytes, bool shared);
/* The same in an existing segment, which must outlive it. `block`: a retired control block of that
 * size to reuse; NULL: allocates one. */
kolo_status kolo_block_init_in(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                               int size, kolo_segment *segment, kolo_control_block *block);
void kolo_block_fini(kolo_block_transport *t);
/* Frees all stage blocks of a table of ends. */
void kolo_block_give_stages(kolo_segment *segment, kolo_channel_end *ends, int size,
                            size_t stage_bytes);
/* Bytes of a control block in a group of `size`. */
size_t kolo_control_block_bytes(int size);

/* Operations of kolo_transport_ops. */
bool kolo_block_start(kolo_transport *base, uint64_t seq, void **payload);
void kolo_block_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *call, const uint64_t *peer_counts,
                       const char *title);
bool kolo_block_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call);
void kolo_block_finish(kolo_transport *base, uint64_t finished);
kolo_status kolo_block_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *queued, bool *accepted);
bool kolo_block_sent(kolo_transport *base, uint64_t seq, int peer);
kolo_status kolo_block_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *received, bool *arrived);
void kolo_block_peer_state(kolo_transport *base, int peer, kolo_peer_state *state);
void kolo_block_report(kolo_transport *base, kolo_status status, const char *text);
/* Marks this rank as left; `why` as for `destroy`. */
void kolo_block_leave(kolo_transport *base, const char *why);
