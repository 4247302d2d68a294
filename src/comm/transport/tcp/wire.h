#pragma once
/* The TCP connections of a rank, one to each peer that is connected, shared by the root group and
 * its sub-groups (tcp/tcp.c).
 *
 * Frames are queued while the socket buffer is full. Each peer receives data or a heartbeat at
 * least four times per heartbeat interval. Frames are interpreted by the groups. All calls are made
 * by the thread that holds the communicator, except waiting for `events`. */

#include "comm/transport/dialer.h"
#include "comm/transport/tcp/stream.h"

typedef struct kolo_link {
    kolo_stream stream;
    bool writes;      /* registered with epoll for writing */
    kolo_frame frame; /* DATA frame being received */
    size_t left;      /* bytes of it not yet read */
    bool held;        /* left in the socket buffer for the posted receive */
} kolo_link;

/* What is known of a rank, whether or not it is connected. */
typedef struct kolo_wire_rank {
    bool wanted;                     /* a connection has been asked for */
    bool gone;                       /* others have lost it; it is not connected */
    bool others_notified;            /* that it is gone has been passed on */
    char why[KOLO_DIALED_WHY_BYTES]; /* why it is gone, or not connected; "": neither */
} kolo_wire_rank;

typedef struct kolo_wire {
    int events, size;
    int64_t heartbeat_ns, heartbeat_checked_ns, polled_ns;
    kolo_dialer *dialer;   /* NULL: all pairs of ranks are connected */
    bool dialed;           /* it has results */
    kolo_wire_rank *ranks; /* [size] */
    kolo_link *links[];    /* [size]; NULL: this rank, or connected by another transport */
} kolo_wire;

/* Creates a wire without connections. NOMEM; IO. */
kolo_status kolo_wire_create(int size, int64_t heartbeat_ms, kolo_wire **wire);
/* NULL is allowed. */
void kolo_wire_destroy(kolo_wire *wire);
/* Closes the descriptors of a forked child. */
void kolo_wire_abandon(kolo_wire *wire);
/* Takes over the connection to a peer, also on failure; encrypts it unless `keys` is NULL. NOMEM;
 * IO. */
kolo_status kolo_wire_attach(kolo_wire *wire, int peer, int fd, const kolo_seal_keys *keys);
/* Takes over a dialer. IO: the caller keeps it. */
kolo_status kolo_wire_dial(kolo_wire *wire, kolo_dialer *dialer);
/* Asks for a connection to a peer, unless there is one, or will be, or cannot be. */
void kolo_wire_want(kolo_wire *wire, int peer);

/* Queues a frame with a copy of its body of frame->bytes, and flushes. NOMEM. */
kolo_status kolo_wire_send(kolo_wire *wire, int peer, const kolo_frame *frame, const void *body);
/* Writes queued data; the rest is written when epoll reports room in the socket buffer. */
void kolo_wire_flush(kolo_wire *wire, int peer);
/* Polls the connections, marks those that are readable, and writes queued data. */
void kolo_wire_poll(kolo_wire *wire, bool *moved);
/* Removes a closed connection from epoll; true if that was done now. */
bool kolo_wire_drop_closed(kolo_wire *wire, int peer);
/* Sends heartbeats to peers to which nothing was sent for a while. NOMEM. */
kolo_status kolo_wire_heartbeat(kolo_wire *wire);
/* Whether some data is queued, or not yet acknowledged by a peer. */
bool kolo_wire_has_unsent(const kolo_wire *wire);
