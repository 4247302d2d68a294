/* Framed streams over non-blocking sockets. */
#define _GNU_SOURCE
#include "comm/transport/tcp/stream.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OUT_FIRST = 4096 };

bool kolo_frame_check(const kolo_frame *frame) {
    static const struct {
        size_t least, most;
    } limits[] = {
#define KOLO_FRAME_LIMITS(code, least, most) {(least), (most)},
        KOLO_FRAME_LIST(KOLO_FRAME_LIMITS)
#undef KOLO_FRAME_LIMITS
    };
    return frame->kind < KOLO_FRAME_KINDS && frame->bytes >= limits[frame->kind].least &&
           frame->bytes <= limits[frame->kind].most;
}

kolo_status kolo_stream_init(kolo_stream *s, int fd, const kolo_seal_keys *keys) {
    *s = (kolo_stream){.fd = -1};
    s->in = kolo_alloc(KOLO_STREAM_INPUT);
    kolo_status status = s->in ? KOLO_OK : KOLO_NOMEM(KOLO_STREAM_INPUT);
    if (status == KOLO_OK && keys) status = kolo_records_create(keys, &s->records);
    if (status != KOLO_OK) {
        kolo_stream_fini(s);
        return status;
    }
    s->fd = fd;
    s->received_ns = s->sent_ns = kolo_now_ns();
    s->readable = true;
    return KOLO_OK;
}

void kolo_stream_fini(kolo_stream *s) {
    if (s->fd >= 0) close(s->fd);
    kolo_free(s->in);
    kolo_free(s->out);
    kolo_records_destroy(s->records);
    *s = (kolo_stream){.fd = -1};
}

static void drop_out(kolo_stream *s) {
    s->write_blocked = false;
    s->out_first = s->out_end = s->out_data = s->data_left = 0;
    if (s->records) kolo_records_drop(s->records);
}

void kolo_stream_end(kolo_stream *s, const char *why) {
    if (s->closed) return;
    s->closed = true;
    s->readable = false;
    drop_out(s);
    snprintf(s->why, sizeof s->why, "%s", why);
}

/* Closes the stream. The kernel of a process that ended resets the connection only if it still had
 * data to read; otherwise a reset comes from something between the hosts. */
static void fail(kolo_stream *s, int error) {
    bool reset = error == ECONNRESET || error == EPIPE || error == ENOTCONN;
    bool unreachable = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    kolo_stream_end(s, reset         ? "connection reset: process ended, or cut by the network"
                       : unreachable ? "host unreachable"
                                     : kolo_errno_text(error));
}

/* ---- out ---- */

static kolo_status append(kolo_stream *s, const void *bytes, size_t n) {
    if (n > s->out_cap - s->out_end && s->out_first > 0) {
        memmove(s->out, s->out + s->out_first, s->out_end - s->out_first);
        s->out_data -= s->out_data < s->out_first ? s->out_data : s->out_first;
        s->out_end -= s->out_first;
        s->out_first = 0;
    }
    if (n > s->out_cap - s->out_end) {
        size_t cap = s->out_cap ? s->out_cap : OUT_FIRST;
        while (cap - s->out_end < n) cap *= 2;
        char *grown = kolo_realloc(s->out, cap);
        if (!grown) return KOLO_NOMEM(cap);
        s->out = grown;
        s->out_cap = cap;
    }
    memcpy(s->out + s->out_end, bytes, n);
    s->out_end += n;
    return KOLO_OK;
}

kolo_status kolo_stream_push(kolo_stream *s, const kolo_frame *frame, const void *body) {
    if (s->closed || s->write_error) return KOLO_OK;
    size_t before = s->out_end - s->out_first;
    kolo_status status = append(s, frame, sizeof *frame);
    if (status == KOLO_OK && frame->bytes > 0) status = append(s, body, frame->bytes);
    if (status != KOLO_OK) s->out_end = s->out_first + before; /* no partial frames */
    return status;
}

kolo_status kolo_stream_push_data(kolo_stream *s, const kolo_frame *frame, const void *data) {
    KOLO_ASSERT(s->data_left == 0);
    if (s->closed || s->write_error) return KOLO_OK;
    KOLO_TRY(append(s, frame, sizeof *frame));
    s->out_data = s->out_end;
    s->data = data;
    s->data_left = frame->bytes;
    return KOLO_OK;
}

void kolo_stream_copy_data(kolo_stream *s) {
    if (s->data_left == 0) return;
    size_t before = s->out_data - s->out_first, queued = s->out_end - s->out_first;
    size_t bytes = queued + s->data_left;
    char *out = kolo_alloc(bytes);
    if (!out) {
        kolo_stream_end(s, "out of memory");
        return;
    }
    memcpy(out, s->out + s->out_first, before);
    memcpy(out + before, s->data, s->data_left);
    memcpy(out + before + s->data_left, s->out + s->out_first + before, queued - before);
    kolo_free(s->out);
    s->out = out;
    s->out_first = 0;
    s->out_end = s->out_cap = bytes;
    s->data_left = 0;
}

/* Removes written bytes from the queue before `data`, from `data`, and from the queue after it. */
static void wrote(kolo_stream *s, size_t n, size_t before) {
    size_t part = n < before ? n : before;
    s->out_first += part;
    n -= part;
    part = n < s->data_left ? n : s->data_left;
    if (part > 0) s->data += part; /* NULL if there was none */
    s->data_left -= part;
    s->out_first += n - part;
    if (s->out_first == s->out_end && s->data_left == 0) s->out_first = s->out_end = 0;
}

/* What is to be written: the queue before `data`, `data`, and the queue after it. */
enum { PIECES = 3 };
static void list_output(const kolo_stream *s, struct iovec pieces[PIECES]) {
    size_t queued = s->out_end - s->out_first;
    size_t before = s->data_left == 0 ? queued : s->out_data - s->out_first;
    pieces[0] = (struct iovec){s->out + s->out_first, before};
    pieces[1] = (struct iovec){(char *)s->data, s->data_left};
    pieces[2] = (struct iovec){s->out + s->out_first + before, queued - before};
}

/* Writes once. */
static ssize_t write_output(kolo_stream *s) {
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = PIECES};
    list_output(s, pieces);
    size_t before = pieces[0].iov_len;
    if (s->records) {
        struct iovec record = kolo_records_output(s->records);
        if (record.iov_len == 0) {
            wrote(s, kolo_records_seal(s->records, pieces, PIECES), before);
            record = kolo_records_output(s->records);
        }
        pieces[0] = record;
        message.msg_iovlen = 1;
    }
    ssize_t n = sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0 && s->records) kolo_records_wrote(s->records, (size_t)n);
    if (n > 0 && !s->records) wrote(s, (size_t)n, before);
    return n;
}

bool kolo_stream_has_output(const kolo_stream *s) {
    return s->out_end > s->out_first || s->data_left > 0 ||
           (s->records && kolo_records_output(s->records).iov_len > 0);
}

void kolo_stream_flush(kolo_stream *s) {
    s->write_blocked = false;
    while (!s->closed && kolo_stream_has_output(s)) {
        if (write_output(s) >= 0 || errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            s->write_blocked = true;
            return;
        }
        s->write_error = errno; /* earlier data of the peer can still be read */
        s->readable = true;
        s->dry = false;
        drop_out(s);
    }
}

/* ---- in ---- */

/* Reads once from the socket into up to two pieces; 0 if there is no data. */
static size_t receive_raw(kolo_stream *s, struct iovec *pieces, int n_pieces) {
    while (!s->closed && s->readable) {
        size_t wanted = 0;
        for (int i = 0; i < n_pieces; i++) wanted += pieces[i].iov_len;
        ssize_t n = readv(s->fd, pieces, n_pieces);
        if (n > 0) {
            if ((size_t)n < wanted) s->readable = false;
            s->received_ns = kolo_now_ns();
            return (size_t)n;
        }
        if (n == 0) {
            kolo_stream_end(s, "process ended");
        } else if (s->write_error) {
            fail(s, s->write_error);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            s->readable = false;
        } else if (errno != EINTR) {
            fail(s, errno);
        }
    }
    return 0;
}

/* The same from the records of a protected stream. */
static size_t receive_records(kolo_stream *s, struct iovec *pieces, int n_pieces) {
    while (!s->closed && s->readable) {
        bool changed;
        size_t taken = kolo_records_take(s->records, pieces, n_pieces, &changed);
        if (taken > 0) return taken;
        if (changed) {
            kolo_stream_end(s, "its data has been changed on the way");
        } else if (s->dry) {
            s->dry = s->readable = false;
        } else {
            struct iovec room = kolo_records_room(s->records);
            size_t n = receive_raw(s, &room, 1);
            if (n == 0) return 0;
            kolo_records_filled(s->records, n);
            s->dry = !s->readable;
            s->readable = true; /* until what is here has been read */
        }
    }
    return 0;
}

/* Reads into up to two pieces; 0 if there is no data. */
static size_t receive(kolo_stream *s, struct iovec *pieces, int n_pieces) {
    return s->records ? receive_records(s, pieces, n_pieces) : receive_raw(s, pieces, n_pieces);
}

bool kolo_stream_peek(kolo_stream *s, size_t bytes) {
    KOLO_ASSERT(bytes <= KOLO_STREAM_INPUT);
    while (s->in_end - s->in_first < bytes) {
        if (s->in_first > 0) {
            memmove(s->in, s->in + s->in_first, s->in_end - s->in_first);
            s->in_end -= s->in_first;
            s->in_first = 0;
        }
        struct iovec rest = {s->in + s->in_end, KOLO_STREAM_INPUT - s->in_end};
        size_t n = receive(s, &rest, 1);
        if (n == 0) return false;
        s->in_end += n;
    }
    return true;
}

void kolo_stream_skip(kolo_stream *s, size_t bytes) {
    KOLO_ASSERT(bytes <= s->in_end - s->in_first);
    s->in_first += bytes;
    if (s->in_first == s->in_end) s->in_first = s->in_end = 0;
}

size_t kolo_stream_read(kolo_stream *s, void *to, size_t bytes) {
    size_t buffered = s->in_end - s->in_first, first = buffered < bytes ? buffered : bytes;
    memcpy(to, s->in + s->in_first, first);
    kolo_stream_skip(s, first);
    if (first == bytes) return bytes;
    /* Bytes after the requested ones, usually the next header, go to the input buffer. */
    struct iovec pieces[2] = {{(char *)to + first, bytes - first}, {s->in, KOLO_STREAM_INPUT}};
    size_t n = receive(s, pieces, 2), part = n < bytes - first ? n : bytes - first;
    s->in_end += n - part;
    return first + part;
}
