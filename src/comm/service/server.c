/* The server of a service: a loop over the connections of its clients, in one thread.
 *
 * Each client has a fixed number of calls, its credits. The server reads a client's next request
 * while it has a free call and memory for the input; otherwise the connection stays unread until a
 * reply frees one, and the kernel's flow control stops the client. Replies that the socket does not
 * take are copied and count as the client's memory too. So neither a slow client nor a malicious
 * one can hold more than its share, and none is waited for.
 *
 * All functions but create, start and destroy run in the server's thread, so its state needs no
 * lock. */
#define _GNU_SOURCE
#include "comm/service/server.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/service/message.h"
#include "comm/service/reply_queue.h"
#include "comm/service/server_join.h"
#include "comm/service/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    TURN_CALLS = 8,       /* requests of one client before the others have a turn */
    TURN_BYTES = 1 << 20, /* bytes of an input before the others have a turn */
};

/* A request in progress. */
typedef struct call {
    kolo_service_call view; /* first: what the program has */
    kolo_server *server;
    bool used;
    uint64_t serial;
    char *buffer; /* [capacity]: its input, unless that is mapped; kept for the next request */
    size_t capacity;
    size_t reserved; /* for its reply, unless that is mapped */
} call;

typedef struct client {
    kolo_message_socket socket; /* none: not connected yet, or ended */
    bool ended;
    bool paused;         /* not read: no credit or memory for the request in `head` */
    bool resume;         /* there may be now */
    uint32_t watched;    /* events registered with epoll */
    uint64_t serial;     /* of the latest request */
    kolo_call_head head; /* being received */
    size_t filled;
    call *reading; /* its input is being received, `input_filled` bytes so far; NULL: none */
    size_t input_filled;
    call *calls; /* [credits] */
    size_t held; /* bytes of input buffers, and of replies to come */
    kolo_reply_queue replies;
} client;

struct kolo_server {
    kolo_service_opts opts;
    kolo_transport *transport;
    kolo_message_traffic traffic; /* with other hosts */
    bool *local, *mapped;
    uint64_t lent_handle;  /* of what the server lends; 0: nothing */
    int ranks, size;       /* clients: the ranks, then those who join */
    kolo_joiners *joiners; /* NULL: no process may join */
    bool resume;           /* some client has it set */
    bool buffered;         /* some client may have data in its buffer */
    int64_t progress_ns;   /* when a client has stated that it makes progress, or sent data, last */
    int epoll, wake;   /* wake: an eventfd, written when `stop` is set or requests are complete */
    _Atomic bool stop; /* release by the owner, acquire by the thread */
    kolo_service_thread thread;
    int listeners[2]; /* local, TCP; -1: none */
    kolo_key key;
    kolo_protection protection; /* between hosts */
    int64_t deadline_ns;        /* of the connections */
    client clients[];
};

/* ---- clients ---- */

/* Ends a client. Calls without reply stay in use until the program replies. */
static void end_client(kolo_server *s, int rank, bool left, const char *reason) {
    client *c = &s->clients[rank];
    if (c->ended) return;
    c->ended = true;
    kolo_message_close(&c->socket);
    if (c->reading) c->reading->used = false;
    c->reading = NULL;
    kolo_reply_queue_drop(&c->replies);
    if (!left) kolo_log_line(KOLO_LOG_WARN, -1, "service: client %d is lost: %s", rank, reason);
    if (s->opts.lost) s->opts.lost(s->opts.arg, rank, left, reason);
}

/* Registers the events to wait for. */
static void watch(kolo_server *s, int rank) {
    client *c = &s->clients[rank];
    struct epoll_event e = {.events = EPOLLRDHUP, .data.u32 = (uint32_t)rank};
    if (!c->paused) e.events |= EPOLLIN;
    if (c->replies.first) e.events |= EPOLLOUT;
    if (c->socket.fd < 0 || e.events == c->watched) return;
    (void)epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->socket.fd, &e);
    c->watched = e.events;
}

/* A credit or memory has become free. */
static void resume_later(kolo_server *s, client *c) {
    c->resume = c->paused;
    s->resume = s->resume || c->paused;
}

kolo_status kolo_server_attach(kolo_server *s, int rank, int fd, const kolo_seal_keys *keys) {
    client *c = &s->clients[rank];
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = (uint32_t)rank};
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
        kolo_status status = KOLO_FAIL(KOLO_ERR_IO, "epoll_ctl: %s", kolo_errno_text(errno));
        close(fd);
        return status;
    }
    KOLO_TRY(kolo_message_open(fd, keys, &s->traffic, &c->socket));
    c->watched = e.events;
    return KOLO_OK;
}

/* ---- replies ---- */

/* Whether a client copies this reply itself: it is in memory that the server lends. */
static bool is_lent(const kolo_server *s, int rank, const void *data, size_t bytes) {
    const size_t lent = s->lent_handle ? s->opts.lent_bytes : 0;
    const uintptr_t first = (uintptr_t)s->opts.lent, at = (uintptr_t)data;
    return bytes > 0 && s->mapped[rank] && at >= first && at - first <= lent &&
           bytes <= lent - (at - first);
}

void kolo_service_reply(kolo_service_call *view, kolo_status status, uint64_t clock,
                        const void *data, size_t bytes) {
    call *q = (call *)view;
    kolo_server *s = q->server;
    int rank = view->client;
    client *c = &s->clients[rank];
    KOLO_ASSERT(q->used && q != c->reading);
    if (status == KOLO_OK && bytes > view->output_bytes) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "a reply of %zu bytes, room for %zu", bytes,
                           view->output_bytes);
    }
    const bool lent = status == KOLO_OK && !view->copied && is_lent(s, rank, data, bytes);
    bool placed = status == KOLO_OK && !lent && view->output && bytes > 0;
    if (placed && data != view->output) memcpy(view->output, data, bytes);
    char text[KOLO_SERVICE_TEXT_BYTES];
    if (status != KOLO_OK) {
        snprintf(text, sizeof text, "%s", kolo_last_error());
        data = text;
        bytes = strlen(text);
    }
    q->used = false;
    c->held -= q->reserved;
    if (c->ended) return;
    kolo_reply_head head = {.type = KOLO_MESSAGE_REPLY,
                            .status = (uint32_t)status,
                            .serial = q->serial,
                            .clock = clock,
                            .bytes = bytes,
                            .placed = placed,
                            .lent_handle = lent ? s->lent_handle : 0,
                            .lent_at = lent ? (uintptr_t)data - (uintptr_t)s->opts.lent : 0};
    if (kolo_reply_queue_send(&c->replies, &c->socket, &head, data, placed || lent ? 0 : bytes) !=
        KOLO_OK) {
        end_client(s, rank, false, kolo_last_error());
        return;
    }
    resume_later(s, c);
    watch(s, rank);
}

/* ---- requests ---- */

static call *free_call(const kolo_server *s, client *c) {
    for (int i = 0; i < s->opts.credits; i++) {
        if (!c->calls[i].used) return &c->calls[i];
    }
    return NULL;
}

static void free_buffer(client *c, call *q) {
    c->held -= q->capacity;
    kolo_free(q->buffer);
    q->buffer = NULL;
    q->capacity = 0;
}

/* What a client holds. */
static size_t held_by(const client *c) { return c->held + c->replies.bytes; }

/* Gives a call room for its input and its reply. `*paused`: the client holds too much now. NOMEM.
 */
static kolo_status make_room(const kolo_server *s, client *c, call *q, size_t input, size_t output,
                             bool *paused) {
    size_t most = s->opts.client_bytes;
    if (q->capacity < input) free_buffer(c, q);
    for (int i = 0; i < s->opts.credits && held_by(c) + input + output > most; i++) {
        if (!c->calls[i].used) free_buffer(c, &c->calls[i]);
    }
    size_t more = (q->capacity < input ? input : 0) + output;
    *paused = held_by(c) + more > most;
    if (*paused) return KOLO_OK;
    if (q->capacity < input) {
        q->buffer = kolo_alloc(input);
        if (!q->buffer) return KOLO_NOMEM(input);
        q->capacity = input;
    }
    q->reserved = output;
    c->held += more;
    return KOLO_OK;
}

/* Checks a complete head; NULL handles are data that follows. */
static kolo_status check_head(const kolo_server *s, const client *c, const kolo_call_head *h) {
    if (h->type != KOLO_MESSAGE_CALL || h->serial != c->serial + 1) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "an invalid request (type %08x, number %llu after %llu)",
                         h->type, (unsigned long long)h->serial, (unsigned long long)c->serial);
    }
    size_t most = s->opts.client_bytes - KOLO_REPLY_BYTES;
    bool mapped = s->transport && s->mapped[c - s->clients];
    bool handles = (h->input_handle == 0 || (mapped && h->input_bytes > 0)) &&
                   (h->output_handle == 0 || (mapped && h->output_bytes > 0));
    uint64_t input = h->input_handle ? 0 : h->input_bytes;
    uint64_t output = h->output_handle ? 0 : h->output_bytes;
    if (handles && input <= most && output <= most - input) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_FORMAT,
        "a request of %llu bytes with a reply of %llu: at most %zu are allowed (client_bytes)",
        (unsigned long long)h->input_bytes, (unsigned long long)h->output_bytes, most);
}

/* Maps a client's memory. */
static kolo_status map(const kolo_server *s, int rank, uint64_t handle, uint64_t bytes,
                       void **memory) {
    *memory = NULL;
    if (handle == 0) return KOLO_OK;
    kolo_transport *t = s->transport;
    *memory = t->ops->window(t, rank, handle, (size_t)bytes);
    if (*memory) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a request with data outside of its memory");
}

/* Takes a sign of life. `*paused`: there is no memory for the reply. */
static kolo_status answer_sign(kolo_server *s, client *c, bool *paused) {
    const kolo_call_head *h = &c->head;
    const int64_t now_ns = kolo_now_ns();
    if (h->serial != c->serial + 1 || h->input_bytes > 0 || h->output_bytes > 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "an invalid sign of life");
    }
    *paused = held_by(c) + KOLO_REPLY_BYTES > s->opts.client_bytes;
    if (*paused) return KOLO_OK;
    c->serial = h->serial;
    c->filled = 0;
    if (h->key == 1) s->progress_ns = now_ns;
    const kolo_reply_head head = {.type = KOLO_MESSAGE_REPLY,
                                  .serial = h->serial,
                                  .clock = (uint64_t)(now_ns - s->progress_ns) / 1000000};
    return kolo_reply_queue_send(&c->replies, &c->socket, &head, NULL, 0);
}

/* Begins the request whose head is complete. `*paused`: there is no credit or memory for it. */
static kolo_status begin(kolo_server *s, int rank, bool *paused) {
    client *c = &s->clients[rank];
    const kolo_call_head *h = &c->head;
    void *input, *output;
    if (h->type == KOLO_MESSAGE_SIGN) return answer_sign(s, c, paused);
    KOLO_TRY(check_head(s, c, h));
    KOLO_TRY(map(s, rank, h->input_handle, h->input_bytes, &input));
    KOLO_TRY(map(s, rank, h->output_handle, h->output_bytes, &output));
    call *q = free_call(s, c);
    *paused = !q;
    if (q) {
        size_t sent = input ? 0 : (size_t)h->input_bytes;
        size_t returned = output ? 0 : KOLO_REPLY_BYTES + (size_t)h->output_bytes;
        KOLO_TRY(make_room(s, c, q, sent, returned, paused));
    }
    if (*paused) return KOLO_OK;
    c->serial = h->serial;
    c->filled = 0;
    c->reading = q;
    c->input_filled = input ? h->input_bytes : 0;
    q->server = s;
    q->used = true;
    q->serial = h->serial;
    q->view = (kolo_service_call){.client = rank,
                                  .kind = h->kind,
                                  .key = h->key,
                                  .clock = h->clock,
                                  .input = input                ? input
                                           : h->input_bytes > 0 ? q->buffer
                                                                : NULL,
                                  .input_bytes = h->input_bytes,
                                  .output = output,
                                  .output_bytes = h->output_bytes};
    return KOLO_OK;
}

/* Receives a part of a request. `*more`: there may be another one. */
static kolo_status receive_some(kolo_server *s, int rank, bool *more, bool *ended) {
    client *c = &s->clients[rank];
    *more = false;
    if (!c->reading && c->filled < sizeof c->head) {
        KOLO_TRY(kolo_message_receive(&c->socket, &c->head, sizeof c->head, &c->filled, ended));
        if (c->filled < sizeof c->head) return KOLO_OK;
        if (c->head.type == KOLO_MESSAGE_LEAVE) {
            end_client(s, rank, true, "");
            return KOLO_OK;
        }
    }
    if (!c->reading) {
        KOLO_TRY(begin(s, rank, &c->paused));
        if (c->paused) return KOLO_OK;
    }
    call *q = c->reading;
    if (!q) { /* it was a sign of life */
        *more = true;
        return KOLO_OK;
    }
    if (c->input_filled < q->view.input_bytes) {
        size_t turn = c->input_filled + TURN_BYTES;
        if (turn > q->view.input_bytes) turn = q->view.input_bytes;
        KOLO_TRY(kolo_message_receive(&c->socket, q->buffer, turn, &c->input_filled, ended));
        s->progress_ns = kolo_now_ns();
        if (c->input_filled < q->view.input_bytes) return KOLO_OK;
    }
    c->reading = NULL;
    *more = true;
    s->opts.serve(s->opts.arg, &q->view);
    return KOLO_OK;
}

/* Of data in the buffer the socket gives no notice. */
static bool has_buffered(const client *c) {
    return c->socket.fd >= 0 && !c->paused && kolo_message_buffered(&c->socket);
}

static void receive(kolo_server *s, int rank) {
    client *c = &s->clients[rank];
    for (int i = 0; i < TURN_CALLS && c->socket.fd >= 0; i++) {
        bool more, ended = false;
        kolo_status status = receive_some(s, rank, &more, &ended);
        if (status != KOLO_OK || ended) {
            end_client(s, rank, false, ended ? "process ended" : kolo_last_error());
            return;
        }
        if (!more) break;
    }
    watch(s, rank);
    s->buffered = s->buffered || has_buffered(c);
}

/* Continues with the clients whose turn has ended before the data in their buffers. */
static void receive_buffered(kolo_server *s) {
    if (!s->buffered) return;
    s->buffered = false;
    for (int r = 0; r < s->size; r++) {
        if (has_buffered(&s->clients[r])) receive(s, r);
    }
}

/* Receives from the paused clients that may go on. */
static void resume(kolo_server *s) {
    while (s->resume) {
        s->resume = false;
        for (int r = 0; r < s->size; r++) {
            client *c = &s->clients[r];
            if (!c->resume || c->socket.fd < 0) continue;
            c->resume = c->paused = false;
            receive(s, r);
        }
    }
}

/* Attaches those who have joined since the last call. */
static void attach_joined(kolo_server *s) {
    kolo_newcomer n;
    while (s->joiners && kolo_joiners_take(s->joiners, &n)) {
        kolo_log_line(KOLO_LOG_INFO, -1, "service: client %d has joined", n.number);
        if (kolo_server_attach(s, n.number, n.fd, kolo_seal_keys_or_none(&n.keys)) != KOLO_OK) {
            end_client(s, n.number, false, kolo_last_error());
        }
        kolo_seal_keys_clear(&n.keys);
    }
}

void kolo_server_poll(kolo_server *s, int timeout_ms) {
    struct epoll_event events[EVENTS];
    const bool goes_on = s->buffered || s->resume; /* without an event */
    int n = epoll_wait(s->epoll, events, EVENTS, goes_on ? 0 : timeout_ms);
    for (int i = 0; i < n; i++) {
        int rank = (int)events[i].data.u32;
        uint32_t what = events[i].events;
        if (rank == s->size) {
            uint64_t count;
            (void)!read(s->wake, &count, sizeof count);
            attach_joined(s);
            if (s->opts.completed) s->opts.completed(s->opts.arg);
            continue;
        }
        client *c = &s->clients[rank];
        if (c->socket.fd >= 0 && (what & EPOLLOUT)) {
            if (kolo_reply_queue_flush(&c->replies, &c->socket) != KOLO_OK) {
                end_client(s, rank, false, kolo_last_error());
            }
            resume_later(s, c);
            watch(s, rank);
        }
        if (c->socket.fd >= 0 && (what & EPOLLIN)) receive(s, rank);
        bool gone = what & (EPOLLHUP | EPOLLERR | (c->paused ? EPOLLRDHUP : 0));
        if (c->socket.fd >= 0 && gone && !(what & EPOLLIN))
            end_client(s, rank, false, "process ended");
    }
    receive_buffered(s);
    resume(s);
}

/* ---- the thread ---- */

/* Answers a client that is authenticated, and attaches it. Takes over the connection. */
static kolo_status admit(kolo_server *s, const kolo_member *m, bool local) {
    const kolo_protection protection = local ? KOLO_PROTECT_NOTHING : s->protection;
    kolo_seal_keys keys;
    kolo_status status = kolo_handshake_send(m->fd, &s->key, "kolo service", &m->nonces, KOLO_OK,
                                             NULL, 0, NULL, s->deadline_ns);
    if (status == KOLO_OK) {
        status = kolo_handshake_keys(m->fd, &s->key, &m->nonces, true, protection, s->deadline_ns,
                                     &keys);
    }
    if (status != KOLO_OK) {
        close(m->fd);
        return status;
    }
    if (!local) kolo_socket_tune(m->fd, s->opts.heartbeat_ms);
    if (!local) kolo_socket_keep_alive(m->fd, s->opts.heartbeat_ms);
    status = kolo_server_attach(s, m->hello.rank, m->fd, kolo_seal_keys_or_none(&keys));
    kolo_seal_keys_clear(&keys);
    return status;
}

static kolo_status accept_from(kolo_server *s, bool local) {
    int left = 0;
    kolo_listener *listener;
    for (int r = 0; r < s->ranks; r++) left += s->local[r] == local;
    if (left == 0) return KOLO_OK;
    KOLO_TRY(kolo_listener_create(s->listeners[!local], &s->key, local, &listener));
    kolo_listener_watch(listener, s->wake);
    kolo_status status = KOLO_OK;
    while (left > 0 && status == KOLO_OK) {
        kolo_member m;
        int lost;
        status = kolo_listener_accept(listener, NULL, 0, s->deadline_ns, &m, &lost);
        if (status != KOLO_OK) break;
        int rank = m.hello.rank;
        bool expected = rank >= 0 && rank < s->ranks && s->local[rank] == local &&
                        s->clients[rank].socket.fd < 0 && !s->clients[rank].ended;
        if (!expected) {
            close(m.fd);
            continue;
        }
        left--;
        if (admit(s, &m, local) == KOLO_OK) continue;
        end_client(s, rank, false, kolo_last_error()); /* the others are served */
    }
    kolo_listener_destroy(listener);
    return status;
}

static void close_listeners(kolo_server *s) {
    for (int i = 0; i < 2; i++) {
        if (s->listeners[i] >= 0) close(s->listeners[i]);
        s->listeners[i] = -1;
    }
}

static void *run(void *arg) {
    kolo_server *s = arg;
    kolo_status status = accept_from(s, true);
    if (status == KOLO_OK) status = accept_from(s, false);
    if (status == KOLO_OK && s->joiners) {
        status = kolo_joiners_start(s->joiners, s->listeners, &s->key, s->protection);
    }
    close_listeners(s);
    if (status != KOLO_OK && !atomic_load_explicit(&s->stop, memory_order_acquire)) {
        kolo_log_line(KOLO_LOG_WARN, -1, "service: the server has ended: %s", kolo_last_error());
    }
    while (status == KOLO_OK && !atomic_load_explicit(&s->stop, memory_order_acquire)) {
        kolo_server_poll(s, s->opts.due ? s->opts.due(s->opts.arg) : -1);
    }
    return NULL;
}

kolo_status kolo_server_start(kolo_server *s, int local_listener, int tcp_listener,
                              const kolo_key *key, kolo_protection protection,
                              int64_t deadline_ns) {
    s->protection = protection;
    s->listeners[0] = local_listener;
    s->listeners[1] = tcp_listener;
    s->key = *key;
    s->deadline_ns = deadline_ns;
    return kolo_service_thread_start(&s->thread, run, s);
}

/* ---- creation ---- */

static kolo_status open_epoll(kolo_server *s) {
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)s->size};
    if (s->epoll >= 0 && s->wake >= 0 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &e) == 0) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
}

static kolo_status init(kolo_server *s, const kolo_server_place *place) {
    size_t n = (size_t)place->size;
    const size_t all = (size_t)s->size;
    s->local = kolo_zalloc(all);
    s->mapped = kolo_zalloc(all);
    if (!s->local || !s->mapped) return KOLO_NOMEM(all);
    memcpy(s->local, place->local, n);
    memcpy(s->mapped, place->mapped, n);
    for (int r = 0; r < s->size; r++) {
        size_t bytes = (size_t)s->opts.credits * sizeof(call);
        s->clients[r].calls = kolo_zalloc(bytes);
        if (!s->clients[r].calls) return KOLO_NOMEM(bytes);
    }
    KOLO_TRY(open_epoll(s));
    if (s->size == s->ranks) return KOLO_OK;
    return kolo_joiners_create(s->ranks, s->size - s->ranks, s->opts.heartbeat_ms, kolo_server_wake,
                               s, &s->joiners);
}

kolo_status kolo_server_create(const kolo_service_opts *opts, const kolo_server_place *place,
                               kolo_server **server) {
    const int size = place->size + opts->joins;
    size_t bytes = sizeof(kolo_server) + (size_t)size * sizeof(client);
    kolo_server *s = kolo_zalloc(bytes);
    if (!s) return KOLO_NOMEM(bytes);
    s->opts = *opts;
    s->transport = place->transport;
    s->ranks = place->size;
    s->progress_ns = kolo_now_ns();
    s->size = size;
    if (opts->lent && s->transport) {
        s->lent_handle = s->transport->ops->handle(s->transport, opts->lent, opts->lent_bytes);
    }
    s->epoll = s->wake = s->listeners[0] = s->listeners[1] = -1;
    for (int r = 0; r < s->size; r++) s->clients[r].socket.fd = -1;
    kolo_status status = init(s, place);
    if (status != KOLO_OK) {
        kolo_server_destroy(s);
        return status;
    }
    *server = s;
    return KOLO_OK;
}

void kolo_server_abandon(kolo_server *s) {
    for (int r = 0; r < s->size; r++) {
        if (s->clients[r].socket.fd >= 0) close(s->clients[r].socket.fd);
    }
    close_listeners(s);
    close(s->epoll);
    close(s->wake);
    if (s->joiners) kolo_joiners_abandon(s->joiners);
}

/* Sends that the server leaves, where the socket takes it. */
static void send_leave(client *c) {
    kolo_reply_head head = {.type = KOLO_MESSAGE_LEAVE};
    if (!c->replies.first) kolo_message_send_leave(&c->socket, &head, sizeof head);
}

void kolo_server_traffic(kolo_server *s, uint64_t *sent, uint64_t *received) {
    *sent += atomic_load_explicit(&s->traffic.sent, memory_order_relaxed);
    *received += atomic_load_explicit(&s->traffic.received, memory_order_relaxed);
}

void kolo_server_wake(void *server) {
    const kolo_server *s = server;
    uint64_t one = 1;
    (void)!write(s->wake, &one, sizeof one);
}

void kolo_server_stop(kolo_server *s) {
    atomic_store_explicit(&s->stop, true, memory_order_release);
    if (s->wake >= 0) kolo_server_wake(s);
    kolo_service_thread_join(&s->thread);
    if (s->joiners) kolo_joiners_stop(s->joiners);
}

void kolo_server_destroy(kolo_server *s) {
    if (!s) return;
    kolo_server_stop(s);
    close_listeners(s);
    for (int r = 0; r < s->size; r++) {
        client *c = &s->clients[r];
        send_leave(c);
        kolo_message_close(&c->socket);
        kolo_reply_queue_drop(&c->replies);
        for (int i = 0; c->calls && i < s->opts.credits; i++) kolo_free(c->calls[i].buffer);
        kolo_free(c->calls);
    }
    if (s->epoll >= 0) close(s->epoll);
    if (s->wake >= 0) close(s->wake);
    kolo_joiners_destroy(s->joiners);
    kolo_key_clear(&s->key);
    kolo_free(s->local);
    kolo_free(s->mapped);
    kolo_free(s);
}
