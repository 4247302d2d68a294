/* Messages through non-blocking sockets. */
#define _GNU_SOURCE
#include "comm/service/message.h"

#include "base/file.h"
#include "base/status.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

static bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool kolo_message_leaves_host(int fd) {
    int domain = AF_UNIX;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain != AF_UNIX;
}

static void count(_Atomic uint64_t *bytes, ssize_t more) {
    atomic_fetch_add_explicit(bytes, (uint64_t)more, memory_order_relaxed);
}

kolo_status kolo_message_send(int fd, kolo_outgoing *m, bool *complete) {
    size_t all = m->head_bytes + m->body_bytes;
    while (m->done < all) {
        size_t in_head = m->done < m->head_bytes ? m->done : m->head_bytes;
        size_t in_body = m->done - in_head;
        struct iovec parts[2] = {{(char *)(uintptr_t)m->head + in_head, m->head_bytes - in_head},
                                 {m->body_bytes > 0 ? (char *)(uintptr_t)m->body + in_body : NULL,
                                  m->body_bytes - in_body}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && would_block(errno)) break;
        if (n < 0) return KOLO_FAIL(KOLO_ERR_PEER, "%s", kolo_errno_text(errno));
        m->done += (size_t)n;
        if (m->traffic) count(&m->traffic->sent, n);
    }
    *complete = m->done == all;
    return KOLO_OK;
}

void kolo_message_send_leave(int fd, const void *head, size_t bytes) {
    (void)!send(fd, head, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

kolo_status kolo_message_receive(int fd, void *to, size_t bytes, size_t *filled, bool *ended,
                                 kolo_message_traffic *traffic) {
    *ended = false;
    while (*filled < bytes) {
        ssize_t n = recv(fd, (char *)to + *filled, bytes - *filled, MSG_DONTWAIT);
        if (n < 0 && would_block(errno)) return KOLO_OK;
        if (n < 0) return KOLO_FAIL(KOLO_ERR_PEER, "%s", kolo_errno_text(errno));
        if (n == 0) {
            *ended = true;
            return KOLO_OK;
        }
        *filled += (size_t)n;
        if (traffic) count(&traffic->received, n);
    }
    return KOLO_OK;
}
