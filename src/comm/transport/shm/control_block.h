#pragma once
/* The protocol of ranks that share memory, used by the transports `thread` and `shm`.
 *
 * Each rank has a board at the start of its segment, which it writes and all peers read (only the
 * `consumed` counters are written by the receiver of a message). Collective seq has place seq %
 * KOLO_FLIGHT_MAX on every board: a state word, the call, a small payload, and one channel to each
 * peer.
 *
 * Ordering. A rank writes call, payload, title and then `state` (release); a peer reads `state`
 * (acquire) and then the rest. The same pair orders the data of a schedule's phases. `posted`
 * (release, sender) and `consumed` (release, receiver) do it for messages. A place is written again
 * only when `finished` (release) of all peers has passed its last use, which they store after their
 * last look.
 *
 * Private memory. A message of data that is in no segment goes through a stage block: the sender
 * copies it there, the receiver out of it. Where the system lets one process read another's memory
 * (process_vm_readv) and is quick enough at it, longer ones go without the stage. A receiver finds
 * out at the first staged message that is long enough, by reading a value that stands on the board
 * too, and says so on the channel.
 *
 * The functions take mapped memory only, so the thread transport and the tests run the code of shm.
 */

#include "comm/transport/transport.h"

#include <stdatomic.h>

enum {
    KOLO_CHANNEL_DEPTH = 2,
    KOLO_BLOCK_CHANNELS = KOLO_FLIGHT_MAX + 1, /* of each pair: a place each, and KOLO_SEQ_P2P */
};

typedef struct kolo_slot {
    _Alignas(64) _Atomic uint64_t state; /* seq << 24 | phase + 1; 0 before first use */
    kolo_announcement call;
    _Alignas(16) char payload[KOLO_EAGER_BYTES + 16]; /* its start shares the line of state */
    char title[KOLO_TITLE_BYTES];
} kolo_slot;

/* Messages from the board's rank to one peer; counters only grow, over all collectives of the
 * place. */
typedef struct kolo_channel {
    _Alignas(64) _Atomic uint64_t posted;
    struct {
        uint64_t handle, bytes;
    } message[KOLO_CHANNEL_DEPTH];
    _Alignas(64) _Atomic uint64_t consumed;
    _Atomic uint32_t reads; /* 1: the receiver can read the sender's private memory */
} kolo_channel;

typedef struct kolo_control_block {
    /* A sub-group's board serves another one when all its members have left; these two outlast it.
     */
    _Alignas(64) uint64_t generation; /* of its use, from 1; peers read it until they leave */
    _Atomic uint64_t left_generation; /* of the use that its rank has left last (release) */
    _Alignas(64) _Atomic uint64_t finished;
    _Atomic uint32_t left;   /* 1: this rank has left in order */
    _Atomic uint32_t broken; /* 1: status and report are set */
    int32_t status;
    int32_t pid;            /* of the rank's process; 0: threads of one */
    int32_t reads_pay;      /* 1: reading it is faster than staging would be */
    uint64_t probe, secret; /* an address in its private memory, and what stands there */
    char report[KOLO_REPORT_BYTES];
    kolo_slot slots[KOLO_FLIGHT_MAX];
    kolo_channel channels[]; /* [KOLO_BLOCK_CHANNELS][peer] */
} kolo_control_block;

enum { KOLO_READ_LEAST = 16 << 10 }; /* bytes of private memory from which reading it pays */
#define KOLO_PRIVATE_BIT ((uint64_t)1 << 63) /* in message.bytes: `handle` is a private address */

/* What one rank knows of a channel: where it is in the messages to and from a peer. */
typedef struct kolo_channel_end {
    uint64_t posted, consumed; /* messages sent to and taken from the peer */
    uint64_t offset;           /* bytes taken of the message that is being read */
    bool probed;               /* whether this rank can read the peer's memory is known */
    void *stage;               /* block for data that the peer cannot reach; NULL until needed */
} kolo_channel_end;

/* The transport of a rank with a block; transport/thread.c and shm/shm.c extend it. */
typedef struct kolo_block_transport {
    kolo_transport base;
    struct kolo_retired
        *retired;                /* boards of sub-groups that this rank has left (shm/subgroup.c) */
    kolo_control_block **blocks; /* [size]; the own one too */
    kolo_channel_end *ends;      /* [KOLO_BLOCK_CHANNELS][peer] */
    uint64_t secret;             /* what peers read to see whether they can; private memory */
    uint64_t settled;            /* every peer is through with what lies below this number */
    size_t stage_bytes;
    bool staged;                      /* a stage has been taken since the start */
    const kolo_transport_ops *memory; /* its own rows, when it is a part of another transport ... */
    kolo_transport *remote; /* ... beside this one to other hosts (transport/multihost.c) */
} kolo_block_transport;

/* Segment, board (the first thing in the segment) and tables of one rank; the boards of the peers
 * are filled in by the caller. On failure nothing is left behind. */
kolo_status kolo_block_init(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                            int size, size_t segment_bytes, bool shared);
/* The same with everything in a segment that is there already, which must outlive it; `board`: one
 * of that size that nobody uses any more, NULL for a new one. */
kolo_status kolo_block_init_in(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                               int size, kolo_segment *segment, kolo_control_block *block);
void kolo_block_fini(kolo_block_transport *t);
/* Gives all stage blocks of a table of ends back. */
void kolo_block_give_stages(kolo_segment *segment, kolo_channel_end *ends, int size,
                            size_t stage_bytes);
/* Bytes of a board in a group of `size`. */
size_t kolo_control_block_bytes(int size);

/* Lets the peers, which are other processes, read this one's memory if the system does; rank 0
 * measures, for all, whether that pays. */
void kolo_block_offer_memory(kolo_block_transport *t);

/* Rows of kolo_transport_ops. */
bool kolo_block_start(kolo_transport *base, uint64_t seq, void **payload);
void kolo_block_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *call, const uint64_t *peer_counts,
                       const char *title);
bool kolo_block_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call);
void kolo_block_finish(kolo_transport *base, uint64_t finished);
kolo_status kolo_block_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *taken, bool *accepted);
bool kolo_block_sent(kolo_transport *base, uint64_t seq, int peer);
kolo_status kolo_block_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *taken, bool *arrived);
void kolo_block_peer_state(kolo_transport *base, int peer, kolo_peer_state *state);
void kolo_block_report(kolo_transport *base, kolo_status status, const char *text);
