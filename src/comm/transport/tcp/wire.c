/* Connections to the peers: writing, events, heartbeats. */
#include "comm/transport/tcp/wire.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "comm/transport/socket.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { EVENTS = 64, OF_DIALER = -1 };

kolo_status kolo_wire_create(int size, int64_t heartbeat_ms, kolo_wire **wire) {
    size_t bytes = sizeof(kolo_wire) + (size_t)size * sizeof(kolo_link *);
    kolo_wire *w = kolo_zalloc(bytes);
    if (!w) return KOLO_NOMEM(bytes);
    w->size = size;
    w->heartbeat_ns = kolo_ms_to_ns(heartbeat_ms);
    w->heartbeat_checked_ns = w->polled_ns = kolo_now_ns();
    w->ranks = kolo_zalloc((size_t)size * sizeof *w->ranks);
    if (!w->ranks) {
        kolo_free(w);
        return KOLO_NOMEM((size_t)size * sizeof *w->ranks);
    }
    w->events = epoll_create1(EPOLL_CLOEXEC);
    if (w->events < 0) {
        kolo_free(w->ranks);
        kolo_free(w);
        return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
    }
    *wire = w;
    return KOLO_OK;
}

void kolo_wire_destroy(kolo_wire *w) {
    if (!w) return;
    if (w->dialer) w->dialer->ops->destroy(w->dialer);
    for (int p = 0; p < w->size; p++) {
        if (!w->links[p]) continue;
        kolo_stream_fini(&w->links[p]->stream);
        kolo_free(w->links[p]);
    }
    close(w->events);
    kolo_free(w->ranks);
    kolo_free(w);
}

void kolo_wire_abandon(kolo_wire *w) {
    for (int p = 0; p < w->size; p++) {
        if (w->links[p] && w->links[p]->stream.fd >= 0) close(w->links[p]->stream.fd);
    }
    if (w->dialer) w->dialer->ops->abandon(w->dialer);
    close(w->events);
}

static kolo_status watch(kolo_wire *w, int fd, int peer) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)peer};
    if (epoll_ctl(w->events, EPOLL_CTL_ADD, fd, &event) == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
}

kolo_status kolo_wire_dial(kolo_wire *w, kolo_dialer *dialer) {
    KOLO_TRY(watch(w, dialer->events, OF_DIALER));
    w->dialer = dialer;
    return KOLO_OK;
}

void kolo_wire_want(kolo_wire *w, int peer) {
    kolo_wire_rank *r = &w->ranks[peer];
    if (!w->dialer || w->links[peer] || r->wanted || r->gone || r->why[0]) return;
    r->wanted = true;
    w->dialer->ops->want(w->dialer, peer);
}

kolo_status kolo_wire_attach(kolo_wire *w, int peer, int fd, const kolo_seal_keys *keys) {
    KOLO_ASSERT(!w->links[peer]);
    kolo_link *l = kolo_zalloc(sizeof *l);
    kolo_status status = l ? kolo_stream_init(&l->stream, fd, keys) : KOLO_NOMEM(sizeof *l);
    if (status != KOLO_OK) {
        kolo_free(l);
        close(fd);
        return status;
    }
    w->links[peer] = l;
    kolo_socket_tune(fd, w->heartbeat_ns / 1000000);
    return watch(w, fd, peer);
}

void kolo_wire_flush(kolo_wire *w, int peer) {
    kolo_link *l = w->links[peer];
    kolo_stream_flush(&l->stream);
    l->stream.sent_ns = w->polled_ns;
    if (l->stream.closed || l->writes == l->stream.write_blocked) return;
    l->writes = l->stream.write_blocked;
    struct epoll_event event = {.events = EPOLLIN | (l->writes ? EPOLLOUT : 0),
                                .data.u32 = (uint32_t)peer};
    (void)epoll_ctl(w->events, EPOLL_CTL_MOD, l->stream.fd, &event);
}

kolo_status kolo_wire_send(kolo_wire *w, int peer, const kolo_frame *frame, const void *body) {
    KOLO_TRY(kolo_stream_push(&w->links[peer]->stream, frame, body));
    kolo_wire_flush(w, peer);
    return KOLO_OK;
}

void kolo_wire_poll(kolo_wire *w, bool *moved) {
    struct epoll_event events[EVENTS];
    w->polled_ns = kolo_now_ns();
    int n = epoll_wait(w->events, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int peer = (int)events[i].data.u32;
        if (peer == OF_DIALER) {
            w->dialed = true;
            continue;
        }
        if (events[i].events & ~(uint32_t)EPOLLOUT) w->links[peer]->stream.readable = true;
        if (events[i].events & EPOLLOUT) {
            kolo_wire_flush(w, peer);
            *moved = true;
        }
    }
}

bool kolo_wire_drop_closed(kolo_wire *w, int peer) {
    kolo_stream *s = &w->links[peer]->stream;
    if (!s->closed || s->fd < 0) return false;
    (void)epoll_ctl(w->events, EPOLL_CTL_DEL, s->fd, NULL);
    close(s->fd);
    s->fd = -1;
    return true;
}

kolo_status kolo_wire_heartbeat(kolo_wire *w) {
    int64_t period_ns = w->heartbeat_ns / 4;
    if (w->polled_ns - w->heartbeat_checked_ns < period_ns / 2) return KOLO_OK;
    /* If this process did not run for a while, the peers' timers restart. */
    bool late = w->polled_ns - w->heartbeat_checked_ns > w->heartbeat_ns / 2;
    w->heartbeat_checked_ns = w->polled_ns;
    for (int p = 0; p < w->size; p++) {
        kolo_link *l = w->links[p];
        if (!l || l->stream.closed) continue;
        if (late) l->stream.received_ns = w->polled_ns;
        if (w->polled_ns - l->stream.sent_ns < period_ns / 2) continue;
        KOLO_TRY(kolo_wire_send(w, p, &(kolo_frame){.kind = KOLO_FRAME_HEARTBEAT}, NULL));
    }
    return KOLO_OK;
}

static bool has_unsent(const kolo_stream *s) {
    int unacknowledged = 0;
    if (s->closed || s->fd < 0) return false;
    if (kolo_stream_has_output(s)) return true;
    return ioctl(s->fd, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0;
}

bool kolo_wire_has_unsent(const kolo_wire *w) {
    bool open = false;
    for (int p = 0; p < w->size; p++)
        open = open || (w->links[p] && has_unsent(&w->links[p]->stream));
    return open;
}
