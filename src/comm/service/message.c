/* Messages through non-blocking sockets. */
#define _GNU_SOURCE
#include "comm/service/message.h"

#include "base/file.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Whether the other side of a connection may be on another host. */
static bool leaves_host(int fd) {
    int domain = AF_UNIX;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain != AF_UNIX;
}

static void count(_Atomic uint64_t *bytes, ssize_t more) {
    atomic_fetch_add_explicit(bytes, (uint64_t)more, memory_order_relaxed);
}

kolo_status kolo_message_open(int fd, const kolo_seal_keys *keys, kolo_message_traffic *traffic,
                              kolo_message_socket *s) {
    kolo_records *records = NULL;
    kolo_status status = keys ? kolo_records_create(keys, &records) : KOLO_OK;
    if (status != KOLO_OK) {
        close(fd);
        return status;
    }
    *s = (kolo_message_socket){
        .fd = fd, .traffic = leaves_host(fd) ? traffic : NULL, .records = records};
    return KOLO_OK;
}

void kolo_message_close(kolo_message_socket *s) {
    if (s->fd >= 0) close(s->fd);
    kolo_records_destroy(s->records);
    *s = (kolo_message_socket){.fd = -1};
}

/* ---- out ---- */

enum { PIECES = 2 };

/* What is left of a message. */
static void list_rest(const kolo_outgoing *m, struct iovec pieces[PIECES]) {
    size_t in_head = m->done < m->head_bytes ? m->done : m->head_bytes;
    size_t in_body = m->done - in_head;
    pieces[0] = (struct iovec){(char *)(uintptr_t)m->head + in_head, m->head_bytes - in_head};
    pieces[1] = (struct iovec){m->body_bytes > 0 ? (char *)(uintptr_t)m->body + in_body : NULL,
                               m->body_bytes - in_body};
}

/* Whether everything has been written. */
static bool is_sent(const kolo_message_socket *s, const kolo_outgoing *m) {
    if (m->done < m->head_bytes + m->body_bytes) return false;
    return !s->records || kolo_records_output(s->records).iov_len == 0;
}

/* Writes once; negative if the socket takes nothing. */
static ssize_t write_some(kolo_message_socket *s, kolo_outgoing *m) {
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = PIECES};
    list_rest(m, pieces);
    if (s->records) {
        struct iovec record = kolo_records_output(s->records);
        if (record.iov_len == 0) {
            m->done += kolo_records_seal(s->records, pieces, PIECES);
            record = kolo_records_output(s->records);
        }
        pieces[0] = record;
        message.msg_iovlen = 1;
    }
    ssize_t n = sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0 && s->records) kolo_records_wrote(s->records, (size_t)n);
    if (n > 0 && !s->records) m->done += (size_t)n;
    return n;
}

kolo_status kolo_message_send(kolo_message_socket *s, kolo_outgoing *m, bool *complete) {
    while (!is_sent(s, m)) {
        ssize_t n = write_some(s, m);
        if (n < 0 && would_block(errno)) break;
        if (n < 0) return KOLO_FAIL(KOLO_ERR_PEER, "%s", kolo_errno_text(errno));
        if (s->traffic) count(&s->traffic->sent, n);
    }
    *complete = is_sent(s, m);
    return KOLO_OK;
}

void kolo_message_send_leave(kolo_message_socket *s, const void *head, size_t bytes,
                             const char *text) {
    kolo_outgoing m = {.head = head, .body = text, .head_bytes = bytes, .body_bytes = strlen(text)};
    if (s->fd >= 0) (void)write_some(s, &m);
}

/* ---- in ---- */

/* Reads once into the buffer of records. */
static ssize_t fill(kolo_message_socket *s) {
    struct iovec room = kolo_records_room(s->records);
    ssize_t n = recv(s->fd, room.iov_base, room.iov_len, MSG_DONTWAIT);
    if (n > 0) kolo_records_filled(s->records, (size_t)n);
    return n;
}

kolo_status kolo_message_receive(kolo_message_socket *s, void *to, size_t bytes, size_t *filled,
                                 bool *ended) {
    *ended = false;
    while (*filled < bytes) {
        struct iovec rest = {(char *)to + *filled, bytes - *filled};
        if (s->records) {
            size_t taken = kolo_records_take(s->records, &rest, 1, &s->changed);
            *filled += taken;
            if (taken > 0) continue;
        }
        if (s->changed) return KOLO_FAIL(KOLO_ERR_PEER, "its data has been changed on the way");
        ssize_t n = s->records ? fill(s) : recv(s->fd, rest.iov_base, rest.iov_len, MSG_DONTWAIT);
        if (n < 0 && would_block(errno)) return KOLO_OK;
        if (n < 0) return KOLO_FAIL(KOLO_ERR_PEER, "%s", kolo_errno_text(errno));
        if (n == 0) {
            *ended = true;
            return KOLO_OK;
        }
        if (!s->records) *filled += (size_t)n;
        if (s->traffic) count(&s->traffic->received, n);
    }
    return KOLO_OK;
}

bool kolo_message_buffered(const kolo_message_socket *s) {
    return s->records && kolo_records_ready(s->records);
}
