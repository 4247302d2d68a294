#pragma once
/* The connections of a rank over TCP, one to each peer, which all groups of a family share: the
 * whole group and its sub-groups (tcp/tcp.c).
 *
 * Here connections are written to and looked after: what the kernel has no room for goes out later,
 * each peer hears something at least four times in the time of a heartbeat, and the end waits until
 * the peers' kernels have everything. What frames mean is for the groups. All calls belong to who
 * has the communicator; only waiting for `events` does not. */

#include "comm/transport/tcp/stream.h"

typedef struct kolo_link {
    kolo_stream stream;
    bool writes;      /* epoll reports when it can be written to */
    kolo_frame frame; /* DATA that is being read */
    size_t left;      /* bytes of it */
    bool held;        /* left in the kernel for a receive that should come for it */
} kolo_link;

typedef struct kolo_wire {
    int events, size;
    int64_t heartbeat_ns, ticked_ns, pumped_ns;
    kolo_link *links[]; /* [size]; NULL: reached otherwise, or this rank */
} kolo_wire;

/* Without connections. NOMEM; IO. */
kolo_status kolo_wire_create(int size, int64_t heartbeat_ms, kolo_wire **wire);
/* NULL is allowed. */
void kolo_wire_destroy(kolo_wire *wire);
/* Takes over the connection to a peer, also on failure. NOMEM; IO. */
kolo_status kolo_wire_attach(kolo_wire *wire, int peer, int fd);

/* Queues a frame with a copy of its body, of frame->bytes, and writes what there is. NOMEM. */
kolo_status kolo_wire_say(kolo_wire *wire, int peer, const kolo_frame *frame, const void *body);
/* Writes what there is to say, and asks to be told when the kernel takes more. */
void kolo_wire_flush(kolo_wire *wire, int peer);
/* Finds out which connections can be read and written, and writes. */
void kolo_wire_poll(kolo_wire *wire, bool *moved);
/* Puts a connection that has ended away, so that its end is not reported again; true when it has
 * just been. */
bool kolo_wire_drop_closed(kolo_wire *wire, int peer);
/* Says something to those that have not heard of this rank for a while. NOMEM. */
kolo_status kolo_wire_beat(kolo_wire *wire);
/* Whether some peer's kernel still lacks something of what was said. */
bool kolo_wire_owes(const kolo_wire *wire);
