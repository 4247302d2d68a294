#pragma once
/* A client, as the files that implement it see it: client.c starts requests and waits for them,
 * client_links.c moves messages. */

#include "comm/service/client.h"
#include "comm/service/message.h"
#include "comm/service/thread.h"

enum { KOLO_REQUEST_DONE, KOLO_REQUEST_OPEN }; /* a zeroed request is not in flight */

/* The connection to a server. `broken` and `why` are protected by the mutex, the socket is closed
 * while it is held, by the driver, which owns the rest. */
typedef struct kolo_client_link {
    kolo_message_socket socket;
    bool serves, mapped; /* constant after attaching */
    kolo_status broken;  /* OK: not broken */
    char why[KOLO_SERVICE_TEXT_BYTES + 48];
    uint64_t serial;                    /* of the latest request sent */
    kolo_service_request *queue, **end; /* to be sent */
    kolo_call_head out;                 /* of the first one, if `sending` */
    kolo_outgoing message;
    bool sending, writing;          /* writing: registered with epoll for writing */
    kolo_service_request *awaiting; /* sent, without reply */
    kolo_reply_head in;             /* being received */
    size_t filled, body_filled;
    kolo_service_request *reading;       /* its reply is being received; NULL: none */
    char error[KOLO_SERVICE_TEXT_BYTES]; /* after which the server leaves, being received */
    size_t error_filled;
    kolo_service_request report; /* of progress; see KOLO_MESSAGE_PROGRESS */
    uint32_t silent, silent_ms;  /* of the latest answer to one */
} kolo_client_link;

struct kolo_client {
    kolo_transport *transport;
    int size;
    int64_t timeout_ms;
    kolo_message_traffic traffic; /* with other hosts */
    int epoll, wake;              /* wake: an eventfd that ends the driver's sleep */
    kolo_service_thread thread;
    void (*completed)(void *arg); /* constant, as its argument; NULL: not needed */
    void *completed_arg;
    kolo_activity *activity;             /* of this rank */
    uint64_t seen;                       /* of it, by the driver */
    int64_t reported_ns;                 /* when reports were due last; of the driver */
    char error[KOLO_SERVICE_TEXT_BYTES]; /* after which this rank leaves; "": none */
    pthread_mutex_t mutex;               /* protects the following, and states of requests */
    pthread_cond_t changed; /* for callers: who drives has changed, or a request is complete */
    pthread_cond_t work;    /* for the thread: reports are due, or no caller waits for a request */
    bool driven, stop, reports;
    int n_open, n_waiting; /* requests in flight; callers that wait, or hold */
    int n_before;          /* requests in flight when a caller began to hold */
    kolo_service_request *started, **started_end; /* not yet known to the driver */
    kolo_client_link links[];
};

/* client_links.c */
/* Closes a connection and fails its requests. The mutex is held. */
void kolo_client_break(kolo_client *c, kolo_client_link *l, kolo_status status, const char *why);
/* The driver: takes over the requests that were started. */
void kolo_client_take_started(kolo_client *c);
/* The driver: moves all connections once, after a sleep of up to `timeout_ms` if nothing can move.
 * `spins`: before the sleep it looks for a moment, and yields the processor in between. */
void kolo_client_drive(kolo_client *c, int timeout_ms, bool spins);
