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
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, WAIT_MS = 50, MOST_LINE = 1 << 24 };

struct kolo_feed {
    char *path;
    int fd;
    bool file;         /* regular: it may grow, and be passed over */
    double follow;     /* seconds */
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

static kolo_status open_fd(kolo_feed *s) {
    struct stat st;
    const bool in = strcmp(s->path, "-") == 0;
    /* Opening a pipe would wait for a writer. */
    s->fd = in ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
               : open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0 || fstat(s->fd, &st) != 0) {
        return kolo_file_fail("open", in ? "standard input" : s->path, errno);
    }
    if (S_ISDIR(st.st_mode)) return kolo_file_fail("read", s->path, EISDIR);
    s->file = S_ISREG(st.st_mode);
    return KOLO_OK;
}

kolo_status kolo_feed_open(const char *path, double follow, kolo_feed **feed) {
    kolo_feed *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->fd = -1;
    s->follow = follow;
    s->since = kolo_now_ns();
    s->path = kolo_strdup(path);
    kolo_status status = s->path ? open_fd(s) : KOLO_NOMEM(strlen(path));
    if (status != KOLO_OK) {
        kolo_feed_close(s);
        return status;
    }
    *feed = s;
    return KOLO_OK;
}

void kolo_feed_close(kolo_feed *s) {
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    kolo_free(s->path);
    kolo_free(s->buffer);
    kolo_free(s);
}

void kolo_feed_stop(kolo_feed *s) {
    if (s) atomic_store(&s->stop, true);
}

/* Makes room for `bytes` from `first` on. */
static kolo_status reserve(kolo_feed *s, size_t bytes) {
    if (bytes <= s->room - s->first) return KOLO_OK;
    const size_t kept = s->end - s->first, least = 4 * CHUNK;
    const size_t room = bytes > least ? bytes : least;
    char *buffer = room <= s->room ? s->buffer : kolo_alloc(room);
    if (!buffer) return KOLO_NOMEM(room);
    if (kept > 0) memmove(buffer, s->buffer + s->first, kept);
    if (buffer != s->buffer) {
        kolo_free(s->buffer);
        s->buffer = buffer;
        s->room = room;
    }
    s->first = 0;
    s->end = kept;
    return KOLO_OK;
}

/* Whether a file lost bytes that were read. */
static kolo_status check_size(const kolo_feed *s) {
    struct stat st;
    if (!s->file || fstat(s->fd, &st) != 0 || (uint64_t)st.st_size >= s->position) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: truncated to %" PRId64 " bytes after %" PRIu64
                     " were read: a file that is followed may only grow",
                     s->path, (int64_t)st.st_size, s->position);
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* At the end of what is there: whether more may come. Waits a little then. */
static kolo_status wait_at_end(kolo_feed *s) {
    const double idle = (double)(kolo_now_ns() - s->since) / 1e9;
    KOLO_TRY(check_size(s));
    s->ended = !s->file || idle >= s->follow;
    if (!s->ended) sleep_ms(WAIT_MS / 5);
    return KOLO_OK;
}

/* Reads what is there, at least one byte unless the stream has ended or is stopped. */
static kolo_status fill(kolo_feed *s) {
    const size_t before = s->end;
    while (s->end == before && !s->ended) {
        struct pollfd ready = {.fd = s->fd, .events = POLLIN};
        if (atomic_load(&s->stop)) {
            s->ended = true;
            break;
        }
        /* A pipe that no writer has opened yet is not ready. */
        const int n = s->file ? 1 : poll(&ready, 1, WAIT_MS);
        if (n == 0 || (n < 0 && errno == EINTR)) continue;
        const ssize_t got = n < 0 ? -1 : read(s->fd, s->buffer + s->end, s->room - s->end);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return kolo_file_fail("read", s->path, errno);
        s->end += (size_t)got;
        s->position += (size_t)got;
        if (got > 0) s->since = kolo_now_ns();
        if (got == 0) KOLO_TRY(wait_at_end(s));
    }
    return KOLO_OK;
}

kolo_status kolo_feed_peek(kolo_feed *s, size_t bytes, const char **data, size_t *got) {
    KOLO_TRY(reserve(s, bytes));
    while (s->end - s->first < bytes && !s->ended) KOLO_TRY(fill(s));
    *data = s->buffer + s->first;
    *got = s->end - s->first < bytes ? s->end - s->first : bytes;
    return KOLO_OK;
}

void kolo_feed_consume(kolo_feed *s, size_t bytes) {
    KOLO_ASSERT(bytes <= s->end - s->first);
    s->first += bytes;
}

kolo_status kolo_feed_line(kolo_feed *s, const char **line, size_t *length) {
    size_t searched = 0;
    *line = NULL;
    for (;;) {
        const size_t there = s->end - s->first;
        const char *from = s->buffer ? s->buffer + s->first : NULL;
        const char *end = there > searched ? memchr(from + searched, '\n', there - searched) : NULL;
        const bool last = s->ended && !end && there > 0 && (!s->file || s->follow <= 0);
        if (end || (last && !atomic_load(&s->stop))) {
            *line = from;
            *length = end ? (size_t)(end - from) : there;
            s->first += *length + (end != NULL);
            return KOLO_OK;
        }
        if (s->ended) return KOLO_OK;
        if (there > MOST_LINE) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: a line of more than %d bytes: is it a text?",
                             s->path, (int)MOST_LINE);
        }
        searched = there;
        KOLO_TRY(reserve(s, there + CHUNK));
        KOLO_TRY(fill(s));
    }
}

kolo_status kolo_feed_skip(kolo_feed *s, uint64_t bytes, bool *there) {
    struct stat st;
    if (!s->file) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: what a pipe has given cannot be passed over",
                         s->path);
    }
    if (fstat(s->fd, &st) != 0) return kolo_file_fail("read", s->path, errno);
    KOLO_ASSERT(s->first == s->end);
    *there = bytes <= (uint64_t)st.st_size - s->position;
    if (!*there) return KOLO_OK;
    s->position += bytes;
    if (lseek(s->fd, (off_t)s->position, SEEK_SET) < 0)
        return kolo_file_fail("read", s->path, errno);
    return KOLO_OK;
}
