#pragma once
/* A server, as the files that implement it see it: server.c serves requests, server_thread.c
 * accepts the clients, and creates and ends the server and its thread. */

#include "comm/service/message.h"
#include "comm/service/reply_queue.h"
#include "comm/service/server.h"
#include "comm/service/server_join.h"
#include "comm/service/thread.h"

#include <stdatomic.h>

/* A request in progress. */
typedef struct kolo_server_call {
    kolo_service_call view; /* first: what the program has */
    kolo_server *server;
    bool used;
    uint64_t serial;
    char *buffer; /* [capacity]: its input, unless that is mapped; kept for the next request */
    size_t capacity;
    size_t reserved; /* for its reply, unless that is mapped */
} kolo_server_call;

typedef struct kolo_server_client {
    kolo_message_socket socket; /* none: not connected yet, or ended */
    bool ended;
    bool send_failed;    /* it gets no replies any more; what it has sent is still read */
    bool reports;        /* its progress, from time to time */
    int64_t received_ns; /* when it has sent data last */
    bool paused;         /* not read: no credit or memory for the request in `head` */
    bool resume;         /* there may be now */
    uint32_t watched;    /* events registered with epoll */
    uint64_t serial;     /* of the latest request */
    kolo_call_head head; /* being received */
    size_t filled;
    kolo_server_call
        *reading; /* its input is being received, `input_filled` bytes so far; NULL: none */
    size_t input_filled;
    kolo_server_call *calls; /* [credits] */
    size_t held;             /* bytes of input buffers, and of replies to come */
    kolo_reply_queue replies;
    char error[KOLO_SERVICE_TEXT_BYTES]; /* after which it leaves, being received */
    size_t error_filled;
} kolo_server_client;

struct kolo_server {
    kolo_service_opts opts;
    kolo_transport *transport;
    kolo_message_traffic traffic; /* with other hosts */
    bool *local, *mapped;
    uint64_t exposed_handle; /* of what the server exposes; 0: nothing */
    int ranks, size;         /* clients: the ranks, then those who join */
    kolo_joiners *joiners;   /* NULL: no process may join */
    bool resume;             /* some client has it set */
    bool buffered;           /* some client may have data in its buffer */
    int64_t progress_ns; /* when a client has stated that it makes progress, or sent data, last */
    int epoll, wake;     /* wake: an eventfd, written when `stop` is set or requests are complete */
    _Atomic bool stop;   /* release by the owner, acquire by the thread */
    kolo_service_thread thread;
    int listeners[2]; /* local, TCP; -1: none */
    kolo_key key;
    kolo_protection protection;          /* between hosts */
    int64_t deadline_ns;                 /* of the connections */
    char error[KOLO_SERVICE_TEXT_BYTES]; /* after which this rank leaves; "": none */
    kolo_server_client clients[];
};

/* server.c */
/* Ends a client. Calls without reply stay in use until the program replies. */
void kolo_server_end_client(kolo_server *s, int rank, bool left, const char *reason);
