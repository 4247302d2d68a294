#pragma once
/* The messages of a service, and how they pass through a non-blocking socket.
 *
 *     client -> server   call head, then the input unless it has a handle
 *     server -> client   reply head, then the reply unless it was written to the client's memory
 *
 * A handle is what the transport's `window` maps (0: none). */

#include "kolo/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_SERVICE_TEXT_BYTES = 200 }; /* error text of a reply */

typedef enum kolo_message_type {
    KOLO_MESSAGE_CALL = 0x4b43414c,
    KOLO_MESSAGE_SIGN = 0x4b534947, /* a call without data. The key 1: this client makes progress;
                                       0: it waits. The clock of the reply: milliseconds since a
                                       client has made progress */
    KOLO_MESSAGE_REPLY = 0x4b524550,
    KOLO_MESSAGE_LEAVE = 0x4b42594e, /* in both directions: the sender leaves; no other field */
} kolo_message_type;

typedef struct kolo_call_head {
    uint32_t type, kind;
    uint64_t key, clock;
    uint64_t serial; /* counted by the client, from 1 */
    uint64_t input_bytes, input_handle;
    uint64_t output_bytes, output_handle;
} kolo_call_head;

typedef struct kolo_reply_head {
    uint32_t type, status;
    uint64_t serial, clock;
    uint64_t bytes;  /* of the reply, or of the error's text */
    uint64_t placed; /* 1: the reply is in the client's memory already */
} kolo_reply_head;

/* Bytes that connections have carried. Any thread; relaxed. */
typedef struct kolo_message_traffic {
    _Atomic uint64_t sent, received;
} kolo_message_traffic;

/* Whether the other side of a connection may be on another host. */
bool kolo_message_leaves_host(int fd);

/* A message that consists of a head and a body, of which `done` bytes have been sent. */
typedef struct kolo_outgoing {
    const void *head, *body;
    size_t head_bytes, body_bytes, done;
    kolo_message_traffic *traffic; /* NULL: not counted */
} kolo_outgoing;

/* Sends as much as the socket accepts. PEER: the connection is closed. */
kolo_status kolo_message_send(int fd, kolo_outgoing *m, bool *complete);
/* Sends the head of LEAVE where the socket takes it. The last error is unchanged, since the
 * caller may end because of it. */
void kolo_message_send_leave(int fd, const void *head, size_t bytes);
/* Receives up to `bytes` in total at `to`, `*filled` of which have arrived before. `*ended`: the
 * other side has closed the connection. `traffic` may be NULL. PEER: the connection is lost. */
kolo_status kolo_message_receive(int fd, void *to, size_t bytes, size_t *filled, bool *ended,
                                 kolo_message_traffic *traffic);
