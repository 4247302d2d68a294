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
#include "comm/service/server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    TURN_CALLS = 8,       /* requests of one client before the others have a turn */
    TURN_BYTES = 1 << 20, /* bytes of an input before the others have a turn */
};

typedef kolo_server_call call;
typedef kolo_server_client client;

/* ---- clients ---- */

void kolo_server_end_client(kolo_server *s, int rank, bool left, const char *reason) {
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
    c->received_ns = kolo_now_ns();
    c->watched = e.events;
    return KOLO_OK;
}

/* ---- replies ---- */

/* Whether a client copies this reply itself: it is in memory that the server exposes. */
static bool is_exposed(const kolo_server *s, int rank, const void *data, size_t bytes) {
    const size_t exposed = s->exposed_handle ? s->opts.exposed_bytes : 0;
    const uintptr_t first = (uintptr_t)s->opts.exposed, at = (uintptr_t)data;
    return bytes > 0 && s->mapped[rank] && at >= first && at - first <= exposed &&
           bytes <= exposed - (at - first);
}

/* A client to which nothing can be sent has ended. Its last message, behind others, may state
 * after which error. */
static void check_sent(kolo_server *s, int rank, kolo_status status) {
    client *c = &s->clients[rank];
    if (status == KOLO_OK) return;
    if (status != KOLO_ERR_PEER) {
        kolo_server_end_client(s, rank, false, kolo_last_error());
        return;
    }
    c->send_failed = true;
    kolo_reply_queue_drop(&c->replies);
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
    const bool exposed = status == KOLO_OK && !view->copied && is_exposed(s, rank, data, bytes);
    bool placed = status == KOLO_OK && !exposed && view->output && bytes > 0;
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
                            .exposed_handle = exposed ? s->exposed_handle : 0,
                            .exposed_at =
                                exposed ? (uintptr_t)data - (uintptr_t)s->opts.exposed : 0};
    if (!c->send_failed) {
        check_sent(s, rank,
                   kolo_reply_queue_send(&c->replies, &c->socket, &head, data,
                                         placed || exposed ? 0 : bytes));
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

/* Of the other clients that report progress, the one that has sent nothing for the longest time;
 * -1: there is none. */
static int most_silent(const kolo_server *s, int rank) {
    int found = -1;
    for (int r = 0; r < s->size; r++) {
        const client *c = &s->clients[r];
        if (r == rank || c->ended || !c->reports) continue;
        if (found < 0 || c->received_ns < s->clients[found].received_ns) found = r;
    }
    return found;
}

/* Takes a progress report. `*paused`: there is no memory for the reply. */
static kolo_status answer_report(kolo_server *s, int rank, bool *paused) {
    client *c = &s->clients[rank];
    const kolo_call_head *h = &c->head;
    const int64_t now_ns = kolo_now_ns();
    if (h->serial != c->serial + 1 || h->input_bytes > 0 || h->output_bytes > 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "an invalid progress report");
    }
    *paused = held_by(c) + KOLO_REPLY_BYTES > s->opts.client_bytes;
    if (*paused) return KOLO_OK;
    c->serial = h->serial;
    c->filled = 0;
    c->reports = true;
    if (h->key == 1) s->progress_ns = now_ns;
    kolo_reply_head head = {.type = KOLO_MESSAGE_REPLY,
                            .serial = h->serial,
                            .clock = (uint64_t)(now_ns - s->progress_ns) / 1000000};
    const int silent = most_silent(s, rank);
    if (silent >= 0) {
        head.silent = (uint32_t)silent + 1;
        head.silent_ms = (uint32_t)((now_ns - s->clients[silent].received_ns) / 1000000);
    }
    if (!c->send_failed) {
        check_sent(s, rank, kolo_reply_queue_send(&c->replies, &c->socket, &head, NULL, 0));
    }
    return KOLO_OK;
}

/* Begins the request whose head is complete. `*paused`: there is no credit or memory for it. */
static kolo_status begin(kolo_server *s, int rank, bool *paused) {
    client *c = &s->clients[rank];
    const kolo_call_head *h = &c->head;
    void *input, *output;
    if (h->type == KOLO_MESSAGE_PROGRESS) return answer_report(s, rank, paused);
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

/* The client leaves, and sends the text of the error after which it does, if there is one. */
static kolo_status receive_leave(kolo_server *s, int rank, bool *ended) {
    client *c = &s->clients[rank];
    char reason[sizeof c->error + 32] = "it has left the service";
    const uint64_t bytes = c->head.input_bytes;
    if (bytes >= sizeof c->error) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "an invalid end: an error of %llu bytes",
                         (unsigned long long)bytes);
    }
    KOLO_TRY(kolo_message_receive(&c->socket, c->error, (size_t)bytes, &c->error_filled, ended));
    if (c->error_filled < bytes && !*ended) return KOLO_OK;
    if (*c->error) snprintf(reason, sizeof reason, "it ended after an error: %s", c->error);
    kolo_server_end_client(s, rank, true, reason);
    return KOLO_OK;
}

/* Receives a part of a request. `*more`: there may be another one. */
static kolo_status receive_some(kolo_server *s, int rank, bool *more, bool *ended) {
    client *c = &s->clients[rank];
    *more = false;
    if (!c->reading && c->filled < sizeof c->head) {
        KOLO_TRY(kolo_message_receive(&c->socket, &c->head, sizeof c->head, &c->filled, ended));
        if (c->filled < sizeof c->head) return KOLO_OK;
    }
    if (!c->reading) {
        if (c->head.type == KOLO_MESSAGE_LEAVE) return receive_leave(s, rank, ended);
        KOLO_TRY(begin(s, rank, &c->paused));
        if (c->paused) return KOLO_OK;
    }
    call *q = c->reading;
    if (!q) { /* it was a progress report */
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
    c->received_ns = kolo_now_ns();
    for (int i = 0; i < TURN_CALLS && c->socket.fd >= 0; i++) {
        bool more, ended = false;
        kolo_status status = receive_some(s, rank, &more, &ended);
        if (status != KOLO_OK || ended) {
            kolo_server_end_client(s, rank, false, ended ? "process ended" : kolo_last_error());
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
    kolo_joined_client n;
    while (s->joiners && kolo_joiners_take(s->joiners, &n)) {
        kolo_log_line(KOLO_LOG_INFO, -1, "service: client %d has joined", n.number);
        if (kolo_server_attach(s, n.number, n.fd, kolo_seal_keys_or_none(&n.keys)) != KOLO_OK) {
            kolo_server_end_client(s, n.number, false, kolo_last_error());
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
            check_sent(s, rank, kolo_reply_queue_flush(&c->replies, &c->socket));
            resume_later(s, c);
            watch(s, rank);
        }
        if (c->socket.fd >= 0 && (what & EPOLLIN)) receive(s, rank);
        bool gone = what & (EPOLLHUP | EPOLLERR | (c->paused ? EPOLLRDHUP : 0));
        if (c->socket.fd >= 0 && gone && !(what & EPOLLIN) && !c->resume)
            kolo_server_end_client(s, rank, false, "process ended");
    }
    receive_buffered(s);
    resume(s);
}
