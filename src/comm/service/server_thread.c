/* A server from its creation to its end. The thread accepts the ranks, then serves all clients. */
#define _GNU_SOURCE
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
#include <sys/eventfd.h>
#include <unistd.h>

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
        kolo_server_end_client(s, rank, false, kolo_last_error()); /* the others are served */
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
        size_t bytes = (size_t)s->opts.credits * sizeof(kolo_server_call);
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
    size_t bytes = sizeof(kolo_server) + (size_t)size * sizeof(kolo_server_client);
    kolo_server *s = kolo_zalloc(bytes);
    if (!s) return KOLO_NOMEM(bytes);
    s->opts = *opts;
    s->transport = place->transport;
    s->ranks = place->size;
    s->progress_ns = kolo_now_ns();
    s->size = size;
    if (opts->exposed && s->transport) {
        s->exposed_handle =
            s->transport->ops->handle(s->transport, opts->exposed, opts->exposed_bytes);
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
static void send_leave(const kolo_server *s, kolo_server_client *c) {
    kolo_reply_head head = {.type = KOLO_MESSAGE_LEAVE, .bytes = strlen(s->error)};
    if (!c->replies.first) kolo_message_send_leave(&c->socket, &head, sizeof head, s->error);
}

void kolo_server_set_error(kolo_server *s, const char *text) {
    snprintf(s->error, sizeof s->error, "%s", text);
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
        kolo_server_client *c = &s->clients[r];
        send_leave(s, c);
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
