#pragma once
/* The replies to a client that its socket has not taken, in their order. */

#include "comm/service/message.h"

/* A reply, or what is left of it. */
typedef struct kolo_queued_reply {
    struct kolo_queued_reply *next;
    kolo_reply_head head;
    size_t bytes, done; /* of head and body */
    char body[];
} kolo_queued_reply;

enum { KOLO_REPLY_BYTES = sizeof(kolo_queued_reply) }; /* of memory, beside its body */

/* Zeros: empty. */
typedef struct kolo_reply_queue {
    kolo_queued_reply *first, *last;
    size_t bytes; /* of memory */
} kolo_reply_queue;

/* Sends a reply, or queues a copy of what the socket does not take. NOMEM;
 * PEER: the connection is lost. */
kolo_status kolo_reply_queue_send(kolo_reply_queue *q, kolo_message_socket *socket,
                                  const kolo_reply_head *head, const void *body, size_t bytes);
/* Sends queued replies as far as the socket takes them. PEER: the connection is lost. */
kolo_status kolo_reply_queue_flush(kolo_reply_queue *q, kolo_message_socket *socket);
/* Empties the queue. */
void kolo_reply_queue_drop(kolo_reply_queue *q);
