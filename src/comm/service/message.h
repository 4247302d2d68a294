#pragma once
/* The messages of a service, and how they pass through a non-blocking socket.
 *
 *     client -> server   call head, then the input unless it has a handle
 *     server -> client   reply head, then the reply unless it was written to the client's memory,
 *                        or the client copies it from the server's
 *
 * A handle is what the transport's `window` maps (0: none). A connection between hosts may be
 * protected: it carries the same in records (records.h). */

#include "comm/transport/records.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_SERVICE_TEXT_BYTES = 400 }; /* error text of a reply, or of a rank that leaves */

typedef enum kolo_message_type {
    KOLO_MESSAGE_CALL = 0x4b43414c,
    KOLO_MESSAGE_PROGRESS = 0x4b534947, /* a call without data. The key 1: this client makes
                                       progress; 0: it waits. The clock of the reply: milliseconds
                                       since a client has made progress; see `silent` */
    KOLO_MESSAGE_REPLY = 0x4b524550,
    KOLO_MESSAGE_LEAVE = 0x4b42594e, /* in both directions: the sender leaves. The body, of
                                        input_bytes or bytes: the text of the error after which it
                                        does. No other field */
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
    uint32_t silent, silent_ms; /* of a progress report: the client, counted from 1, of those that
                                   report which has sent nothing for the longest time, and how
                                   long; 0: there is no other one */
    uint64_t serial, clock;
    uint64_t bytes;          /* of the reply, or of the error's text */
    uint64_t placed;         /* 1: the reply is in the client's memory already */
    uint64_t exposed_handle; /* of memory that the server exposes; 0: the reply is not in that */
    uint64_t exposed_at;     /* where the reply is in it */
} kolo_reply_head;

/* Bytes that connections have carried. Any thread; relaxed. */
typedef struct kolo_message_traffic {
    _Atomic uint64_t sent, received;
} kolo_message_traffic;

/* A connection, whose owner moves its bytes. */
typedef struct kolo_message_socket {
    int fd;                        /* -1: none */
    kolo_message_traffic *traffic; /* NULL: not counted */
    kolo_records *records;         /* NULL: not protected */
    bool changed;                  /* what was received is not what the peer has sent */
} kolo_message_socket;

/* Takes over a connected socket, also on failure; protected unless `keys` is NULL. If the other
 * side may be on another host, its bytes are counted. NOMEM. */
kolo_status kolo_message_open(int fd, const kolo_seal_keys *keys, kolo_message_traffic *traffic,
                              kolo_message_socket *s);
/* Closes it; nothing if it is closed. */
void kolo_message_close(kolo_message_socket *s);

/* A message that consists of a head and a body, of which `done` bytes have been sent or sealed. */
typedef struct kolo_outgoing {
    const void *head, *body;
    size_t head_bytes, body_bytes, done;
} kolo_outgoing;

/* Sends as much as the socket accepts. PEER: the connection is closed. */
kolo_status kolo_message_send(kolo_message_socket *s, kolo_outgoing *m, bool *complete);
/* Sends LEAVE, with a text, where the socket takes it, and no other message is being sent. The last
 * error is unchanged, since the caller may end because of it. */
void kolo_message_send_leave(kolo_message_socket *s, const void *head, size_t bytes,
                             const char *text);
/* Receives up to `bytes` in total at `to`, `*filled` of which have arrived before. `*ended`: the
 * other side has closed the connection. PEER: the connection is lost, or data has been changed on
 * the way (`changed`). */
kolo_status kolo_message_receive(kolo_message_socket *s, void *to, size_t bytes, size_t *filled,
                                 bool *ended);
/* Whether there is more to receive, of which the socket is not readable. */
bool kolo_message_buffered(const kolo_message_socket *s);
