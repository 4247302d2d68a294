/* The connections of a client to the servers. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/service/client_internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 16, SPIN_NS = 100000 };
enum { PREFIX_BYTES = 32 }; /* what errors of a server begin with */

_Static_assert(sizeof((kolo_service_request *)0)->internal.error >=
                   KOLO_SERVICE_TEXT_BYTES + PREFIX_BYTES,
               "a request has room for the text of a reply");

/* ---- completion; the mutex is held ---- */

static void complete(kolo_client *c, kolo_service_request *q, kolo_status status,
                     const char *error) {
    q->internal.status = status;
    if (status != KOLO_OK) snprintf(q->internal.error, sizeof q->internal.error, "%s", error);
    q->internal.state = KOLO_REQUEST_DONE;
    c->n_open--;
    if (c->completed) c->completed(c->completed_arg);
}

static void fail_all(kolo_client *c, kolo_service_request **list, kolo_status status,
                     const char *error) {
    while (*list) {
        kolo_service_request *q = *list;
        *list = q->internal.next;
        complete(c, q, status, error);
    }
}

void kolo_client_break(kolo_client *c, kolo_client_link *l, kolo_status status, const char *why) {
    if (l->broken != KOLO_OK) return;
    if (l->reading) { /* it is in no list */
        l->reading->internal.next = l->awaiting;
        l->awaiting = l->reading;
        l->reading = NULL;
    }
    l->broken = status;
    snprintf(l->why, sizeof l->why, "server rank %d %s", (int)(l - c->links), why);
    kolo_message_close(&l->socket);
    fail_all(c, &l->queue, status, l->why);
    fail_all(c, &l->awaiting, status, l->why);
    l->end = &l->queue;
    l->sending = false;
    pthread_cond_broadcast(&c->changed);
}

/* ---- the driver ---- */

static void lose(kolo_client *c, kolo_client_link *l, kolo_status status, const char *why) {
    pthread_mutex_lock(&c->mutex);
    kolo_client_break(c, l, status, why);
    pthread_mutex_unlock(&c->mutex);
}

static void finish(kolo_client *c, kolo_service_request *q, kolo_status status, const char *error) {
    pthread_mutex_lock(&c->mutex);
    complete(c, q, status, error);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

void kolo_client_take_started(kolo_client *c) {
    pthread_mutex_lock(&c->mutex);
    while (c->started) {
        kolo_service_request *q = c->started;
        kolo_client_link *l = &c->links[q->server];
        c->started = q->internal.next;
        q->internal.next = NULL;
        if (l->broken != KOLO_OK) {
            complete(c, q, l->broken, l->why);
            pthread_cond_broadcast(&c->changed);
            continue;
        }
        *l->end = q;
        l->end = &q->internal.next;
    }
    c->started_end = &c->started;
    pthread_mutex_unlock(&c->mutex);
}

static void begin_send(kolo_client_link *l) {
    kolo_service_request *q = l->queue;
    q->internal.serial = ++l->serial;
    l->out = (kolo_call_head){.type = q == &l->report ? KOLO_MESSAGE_PROGRESS : KOLO_MESSAGE_CALL,
                              .kind = q->kind,
                              .key = q->key,
                              .clock = q->clock,
                              .serial = q->internal.serial,
                              .input_bytes = q->input_bytes,
                              .input_handle = q->internal.input_handle,
                              .output_bytes = q->output_bytes,
                              .output_handle = q->internal.output_handle};
    l->message = (kolo_outgoing){.head = &l->out,
                                 .body = q->input,
                                 .head_bytes = sizeof l->out,
                                 .body_bytes = q->internal.input_handle ? 0 : q->input_bytes};
    l->sending = true;
}

/* Removes the request that a reply belongs to; NULL: there is none, or the reply does not fit. */
static kolo_service_request *take_awaiting(kolo_client_link *l) {
    const kolo_reply_head *h = &l->in;
    kolo_service_request **at = &l->awaiting;
    while (*at && (*at)->internal.serial != h->serial) at = &(*at)->internal.next;
    kolo_service_request *q = *at;
    if (!q || h->type != KOLO_MESSAGE_REPLY) return NULL;
    size_t room = h->status == KOLO_OK ? q->output_bytes : KOLO_SERVICE_TEXT_BYTES;
    bool placed = h->placed && h->status == KOLO_OK && q->internal.output_handle;
    if (h->bytes > room || h->placed != placed || h->status > KOLO_ERR_DIVERGED) return NULL;
    if (h->exposed_handle && (placed || h->status != KOLO_OK || !l->mapped)) return NULL;
    *at = q->internal.next;
    return q;
}

/* Copies a reply from memory that the server exposes. FORMAT: it is not in its memory. */
static kolo_status copy_exposed(const kolo_client *c, kolo_client_link *l) {
    const kolo_reply_head *h = &l->in;
    const size_t bytes = (size_t)h->bytes, at = (size_t)h->exposed_at;
    kolo_transport *t = c->transport;
    const char *memory = NULL;
    if (at <= SIZE_MAX - bytes) {
        memory = t->ops->window(t, (int)(l - c->links), h->exposed_handle, at + bytes);
    }
    if (!memory) return KOLO_FAIL(KOLO_ERR_FORMAT, "sent a reply outside of its memory");
    memcpy(l->reading->output, memory + at, bytes);
    l->body_filled = bytes;
    return KOLO_OK;
}

/* Completes the request whose reply has arrived. */
static void finish_reading(kolo_client *c, kolo_client_link *l) {
    kolo_service_request *q = l->reading;
    const kolo_reply_head *h = &l->in;
    l->reading = NULL;
    l->filled = 0;
    q->reply_clock = h->clock;
    q->reply_bytes = (size_t)h->bytes;
    if (q == &l->report) {
        l->silent = h->silent;
        l->silent_ms = h->silent_ms;
    }
    char text[KOLO_SERVICE_TEXT_BYTES + PREFIX_BYTES] = "";
    if (h->status != KOLO_OK) {
        snprintf(text, sizeof text, "server rank %d: %.*s", q->server, (int)h->bytes,
                 q->internal.error);
    }
    finish(c, q, (kolo_status)h->status, text);
}

/* The server leaves, and sends the text of the error after which it does, if there is one. */
static kolo_status receive_leave(kolo_client *c, kolo_client_link *l, bool *ended) {
    char why[sizeof l->error + 40];
    if (l->in.bytes >= sizeof l->error) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "sent an invalid end of the service");
    }
    KOLO_TRY(
        kolo_message_receive(&l->socket, l->error, (size_t)l->in.bytes, &l->error_filled, ended));
    if (l->error_filled < l->in.bytes && !*ended) return KOLO_OK;
    snprintf(why, sizeof why, "has left the service%s%s", *l->error ? " after an error: " : "",
             l->error);
    lose(c, l, KOLO_ERR_PEER, why);
    return KOLO_OK;
}

/* Receives a part of a reply. `*more`: there may be another one. */
static kolo_status receive_some(kolo_client *c, kolo_client_link *l, bool *more, bool *ended) {
    *more = false;
    if (!l->reading) {
        KOLO_TRY(kolo_message_receive(&l->socket, &l->in, sizeof l->in, &l->filled, ended));
        if (l->filled < sizeof l->in) return KOLO_OK;
        if (l->in.type == KOLO_MESSAGE_LEAVE) return receive_leave(c, l, ended);
        l->reading = take_awaiting(l);
        if (!l->reading) return KOLO_FAIL(KOLO_ERR_FORMAT, "sent an invalid reply");
        l->body_filled = l->in.placed ? (size_t)l->in.bytes : 0;
        if (l->in.exposed_handle) KOLO_TRY(copy_exposed(c, l));
    }
    bool failed = l->in.status != KOLO_OK;
    void *to = failed ? (void *)l->reading->internal.error : l->reading->output;
    if (l->body_filled < l->in.bytes) {
        kolo_status status =
            kolo_message_receive(&l->socket, to, (size_t)l->in.bytes, &l->body_filled, ended);
        if (status != KOLO_OK || l->body_filled < l->in.bytes) return status;
    }
    finish_reading(c, l);
    *more = true;
    return KOLO_OK;
}

static void receive(kolo_client *c, kolo_client_link *l) {
    bool more = true, ended = false;
    while (more && l->socket.fd >= 0) {
        kolo_status status = receive_some(c, l, &more, &ended);
        if (status == KOLO_ERR_FORMAT) {
            lose(c, l, status, kolo_last_error());
        } else if (l->socket.changed) {
            lose(c, l, KOLO_ERR_PEER, "is gone (its data has been changed on the way)");
        } else if (status != KOLO_OK || ended) {
            lose(c, l, KOLO_ERR_PEER, "is gone (process ended)");
        }
    }
}

/* Sends as much as the socket accepts. */
static void send_some(kolo_client *c, kolo_client_link *l) {
    bool full = false;
    while (l->queue && !full) {
        bool sent;
        if (!l->sending) begin_send(l);
        if (kolo_message_send(&l->socket, &l->message, &sent) != KOLO_OK) {
            receive(c, l); /* it may have sent that it leaves */
            if (l->socket.fd >= 0) lose(c, l, KOLO_ERR_PEER, "is gone (process ended)");
            return;
        }
        full = !sent;
        if (full) break;
        kolo_service_request *q = l->queue; /* no reply can have been processed yet */
        l->sending = false;
        l->queue = q->internal.next;
        if (!l->queue) l->end = &l->queue;
        q->internal.next = l->awaiting;
        l->awaiting = q;
    }
    if (full == l->writing) return;
    struct epoll_event e = {.events = EPOLLIN | (full ? EPOLLOUT : 0),
                            .data.u32 = (uint32_t)(l - c->links)};
    (void)epoll_ctl(c->epoll, EPOLL_CTL_MOD, l->socket.fd, &e);
    l->writing = full;
}

/* Waits for events. A reply that comes soon needs no wake-up, which takes longer than most replies
 * where processors are idle; others that can run have the processor in between. */
static int wait_for_events(const kolo_client *c, struct epoll_event *events, int timeout_ms,
                           bool spins) {
    int n = epoll_wait(c->epoll, events, EVENTS, spins ? 0 : timeout_ms);
    if (!spins || n != 0) return n;
    const int64_t end_ns = kolo_now_ns() + SPIN_NS;
    while (n == 0 && kolo_now_ns() < end_ns) {
        sched_yield();
        n = epoll_wait(c->epoll, events, EVENTS, 0);
    }
    return n != 0 ? n : epoll_wait(c->epoll, events, EVENTS, timeout_ms);
}

void kolo_client_drive(kolo_client *c, int timeout_ms, bool spins) {
    struct epoll_event events[EVENTS];
    kolo_client_take_started(c);
    for (int r = 0; r < c->size; r++) {
        kolo_client_link *l = &c->links[r];
        if (l->socket.fd >= 0 && l->queue && !l->writing) send_some(c, l);
    }
    const int n = wait_for_events(c, events, timeout_ms, spins);
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (events[i].data.u32 == (uint32_t)c->size) {
            (void)!read(c->wake, &count, sizeof count);
            continue;
        }
        kolo_client_link *l = &c->links[events[i].data.u32];
        if (l->socket.fd >= 0 && (events[i].events & ~(uint32_t)EPOLLOUT)) receive(c, l);
        if (l->socket.fd >= 0 && (events[i].events & EPOLLOUT)) send_some(c, l);
    }
}
