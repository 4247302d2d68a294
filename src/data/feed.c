/* Streams of bytes: waiting for data without blocking where they are stopped, and a buffer. */
#include "data/feed.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, WAIT_MS = 50, MOST_LINE = 1 << 24 };

struct kolo_feed {
    char *path;
    int fd;
    bool file;         /* regular: it may grow, and be skipped */
    double follow;     /* seconds */
    bool stays;        /* what is not there yet does not come */
    atomic_bool stop;  /* set by kolo_feed_stop */
    bool ended;        /* no more bytes come */
    int64_t since;     /* when the last ones came */
    uint64_t position; /* of a file: bytes read so far */
    char *buffer;      /* [room], of which [first, end) is not consumed */
    size_t room, first, end;
};

bool kolo_feed_is_pipe(const char *path) {
    struct stat st;
    return strcmp(path, "-") == 0 || (stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
}

static kolo_status open_fd(kolo_feed *feed) {
    struct stat st;
    const bool in = strcmp(feed->path, "-") == 0;
    /* Opening a pipe would wait for a writer. */
    feed->fd = in ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                  : open(feed->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (feed->fd < 0 || fstat(feed->fd, &st) != 0) {
        return kolo_file_fail("open", in ? "standard input" : feed->path, errno);
    }
    if (S_ISDIR(st.st_mode)) return kolo_file_fail("read", feed->path, EISDIR);
    feed->file = S_ISREG(st.st_mode);
    return KOLO_OK;
}

kolo_status kolo_feed_open(const char *path, double follow, kolo_feed **opened) {
    kolo_feed *feed = kolo_zalloc(sizeof *feed);
    if (!feed) return KOLO_NOMEM(sizeof *feed);
    feed->fd = -1;
    feed->follow = follow;
    feed->since = kolo_now_ns();
    feed->path = kolo_strdup(path);
    kolo_status status = feed->path ? open_fd(feed) : KOLO_NOMEM(strlen(path));
    if (status != KOLO_OK) {
        kolo_feed_close(feed);
        return status;
    }
    *opened = feed;
    return KOLO_OK;
}

void kolo_feed_close(kolo_feed *feed) {
    if (!feed) return;
    if (feed->fd >= 0) close(feed->fd);
    kolo_free(feed->path);
    kolo_free(feed->buffer);
    kolo_free(feed);
}

void kolo_feed_grows(kolo_feed *feed, bool grows) { feed->stays = !grows; }

void kolo_feed_stop(kolo_feed *feed) {
    if (feed) atomic_store(&feed->stop, true);
}

/* Makes room for `bytes` from `first` on. */
static kolo_status reserve(kolo_feed *feed, size_t bytes) {
    if (bytes <= feed->room - feed->first) return KOLO_OK;
    const size_t kept = feed->end - feed->first, least = 4 * CHUNK;
    const size_t room = bytes > least ? bytes : least;
    char *buffer = room <= feed->room ? feed->buffer : kolo_alloc(room);
    if (!buffer) return KOLO_NOMEM(room);
    if (kept > 0 && feed->buffer) memmove(buffer, feed->buffer + feed->first, kept);
    if (buffer != feed->buffer) {
        kolo_free(feed->buffer);
        feed->buffer = buffer;
        feed->room = room;
    }
    feed->first = 0;
    feed->end = kept;
    return KOLO_OK;
}

/* Whether a file lost bytes that were read. */
static kolo_status check_size(const kolo_feed *feed) {
    struct stat st;
    if (!feed->file || fstat(feed->fd, &st) != 0 || (uint64_t)st.st_size >= feed->position)
        return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: truncated to %" PRId64 " bytes after %" PRIu64
                     " were read: a file that is followed may only grow",
                     feed->path, (int64_t)st.st_size, feed->position);
}

/* At the end of what is there: whether more may come. Waits a little then. */
static kolo_status wait_at_end(kolo_feed *feed) {
    const double idle = (double)(kolo_now_ns() - feed->since) / 1e9;
    KOLO_TRY(check_size(feed));
    feed->ended = !feed->file || feed->stays || idle >= feed->follow;
    if (!feed->ended) kolo_sleep_ns(kolo_ms_to_ns(WAIT_MS / 5));
    return KOLO_OK;
}

/* Reads what is there, at least one byte unless the stream has ended or is stopped. */
static kolo_status fill(kolo_feed *feed) {
    const size_t before = feed->end;
    while (feed->end == before && !feed->ended) {
        struct pollfd ready = {.fd = feed->fd, .events = POLLIN};
        if (atomic_load(&feed->stop)) {
            feed->ended = true;
            break;
        }
        /* A pipe that no writer has opened yet is not ready. */
        const int n = feed->file ? 1 : poll(&ready, 1, WAIT_MS);
        if (n == 0 || (n < 0 && errno == EINTR)) continue;
        const ssize_t got =
            n < 0 ? -1 : read(feed->fd, feed->buffer + feed->end, feed->room - feed->end);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return kolo_file_fail("read", feed->path, errno);
        feed->end += (size_t)got;
        feed->position += (size_t)got;
        if (got > 0) feed->since = kolo_now_ns();
        if (got == 0) KOLO_TRY(wait_at_end(feed));
    }
    return KOLO_OK;
}

kolo_status kolo_feed_peek(kolo_feed *feed, size_t bytes, const char **data, size_t *got) {
    KOLO_TRY(reserve(feed, bytes));
    while (feed->end - feed->first < bytes && !feed->ended) KOLO_TRY(fill(feed));
    *data = feed->buffer + feed->first;
    *got = feed->end - feed->first < bytes ? feed->end - feed->first : bytes;
    return KOLO_OK;
}

void kolo_feed_consume(kolo_feed *feed, size_t bytes) {
    KOLO_ASSERT(bytes <= feed->end - feed->first);
    feed->first += bytes;
}

kolo_status kolo_feed_line(kolo_feed *feed, const char **line, size_t *length) {
    size_t searched = 0;
    *line = NULL;
    for (;;) {
        const size_t there = feed->end - feed->first;
        const char *from = feed->buffer ? feed->buffer + feed->first : NULL;
        const char *end =
            from && there > searched ? memchr(from + searched, '\n', there - searched) : NULL;
        const bool last = feed->ended && !end && there > 0 && (!feed->file || feed->follow <= 0);
        if (end || (last && !atomic_load(&feed->stop))) {
            *line = from;
            *length = end ? (size_t)(end - from) : there;
            feed->first += *length + (end != NULL);
            return KOLO_OK;
        }
        if (feed->ended) return KOLO_OK;
        if (there > MOST_LINE) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: a line of more than %d bytes: is it a text?",
                             feed->path, (int)MOST_LINE);
        }
        searched = there;
        KOLO_TRY(reserve(feed, there + CHUNK));
        KOLO_TRY(fill(feed));
    }
}

/* Goes to a place of a file; false in *there: it is shorter. What is in the buffer is dropped. */
static kolo_status go_to(kolo_feed *feed, uint64_t place, bool *there) {
    struct stat st;
    if (!feed->file) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: what a pipe has given cannot be skipped",
                         feed->path);
    }
    if (fstat(feed->fd, &st) != 0) return kolo_file_fail("read", feed->path, errno);
    *there = place <= (uint64_t)st.st_size;
    if (!*there) return KOLO_OK;
    if (lseek(feed->fd, (off_t)place, SEEK_SET) < 0)
        return kolo_file_fail("read", feed->path, errno);
    feed->position = place;
    feed->first = feed->end = 0;
    return KOLO_OK;
}

kolo_status kolo_feed_skip(kolo_feed *feed, uint64_t bytes, bool *there) {
    KOLO_ASSERT(feed->first == feed->end);
    return go_to(feed, feed->position + bytes, there);
}

uint64_t kolo_feed_place(const kolo_feed *feed) {
    return feed->position - (feed->end - feed->first);
}

kolo_status kolo_feed_go_to_line(kolo_feed *feed, uint64_t bytes, bool *there) {
    char before = '\n';
    KOLO_TRY(go_to(feed, bytes, there));
    if (*there && bytes > 0 && pread(feed->fd, &before, 1, (off_t)bytes - 1) != 1)
        return kolo_file_fail("read", feed->path, errno);
    *there = *there && before == '\n';
    return KOLO_OK;
}
