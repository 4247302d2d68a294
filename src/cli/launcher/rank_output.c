/* Merges the output of ranks line by line. */
#define _GNU_SOURCE
#include "cli/launcher/rank_output.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A chunk holds complete lines for one sink. */
struct line_chunk {
    struct line_chunk *next;
    int sink;
    size_t start, end, capacity;
    char text[];
};

enum { CHUNK_BYTES = 4096 };

kolo_status line_queue_add(line_queue *q, int sink, const char *prefix, const char *line,
                           size_t bytes) {
    size_t n_prefix = strlen(prefix), need = n_prefix + bytes + 1;
    struct line_chunk *chunk = q->last;
    if (!chunk || chunk->sink != sink || chunk->capacity - chunk->end < need) {
        size_t capacity = need > CHUNK_BYTES ? need : CHUNK_BYTES;
        chunk = kolo_alloc(sizeof *chunk + capacity);
        if (!chunk) return KOLO_NOMEM(capacity);
        *chunk = (struct line_chunk){.sink = sink, .capacity = capacity};
        if (q->last) q->last->next = chunk;
        if (!q->first) q->first = chunk;
        q->last = chunk;
    }
    memcpy(chunk->text + chunk->end, prefix, n_prefix);
    memcpy(chunk->text + chunk->end + n_prefix, line, bytes);
    chunk->end += need;
    chunk->text[chunk->end - 1] = '\n';
    q->bytes += need;
    return KOLO_OK;
}

int line_queue_sink(const line_queue *q) { return q->first ? q->first->sink : -1; }

static void drop_first(line_queue *q) {
    struct line_chunk *chunk = q->first;
    q->first = chunk->next;
    if (!q->first) q->last = NULL;
    kolo_free(chunk);
}

kolo_status line_queue_write(line_queue *q) {
    struct line_chunk *chunk = q->first;
    if (!chunk) return KOLO_OK;
    size_t left = chunk->end - chunk->start;
    ssize_t n = write(chunk->sink, chunk->text + chunk->start, left < PIPE_BUF ? left : PIPE_BUF);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return KOLO_OK;
    if (n < 0) {
        int error = errno;
        kolo_file_fail("write", chunk->sink == STDOUT_FILENO ? "standard output" : "standard error",
                       error);
        errno = error;
        return KOLO_ERR_IO;
    }
    chunk->start += (size_t)n;
    q->bytes -= (size_t)n;
    if (chunk->start == chunk->end) drop_first(q);
    return KOLO_OK;
}

void line_queue_fini(line_queue *q) {
    while (q->first) drop_first(q);
    *q = (line_queue){0};
}

kolo_status line_stream_init(line_stream *s, int fd, int sink, int rank) {
    *s = (line_stream){.fd = fd, .sink = sink};
    snprintf(s->prefix, sizeof s->prefix, "[%d] ", rank);
    s->held = kolo_alloc(LINE_START);
    if (!s->held) return KOLO_NOMEM(LINE_START);
    s->held_capacity = LINE_START;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return kolo_file_fail("read", "a pipe", errno);
    return KOLO_OK;
}

/* Queues the complete lines held, or everything if the buffer is full or the stream has ended. */
static kolo_status queue_lines(line_stream *s, line_queue *q, bool all) {
    char *line = s->held, *end = s->held + s->n_held, *stop;
    while ((stop = memchr(line, '\n', (size_t)(end - line)))) {
        KOLO_TRY(line_queue_add(q, s->sink, s->prefix, line, (size_t)(stop - line)));
        line = stop + 1;
    }
    bool full = line == s->held && s->n_held >= LINE_LIMIT;
    if ((all || full) && line < end) {
        KOLO_TRY(line_queue_add(q, s->sink, s->prefix, line, (size_t)(end - line)));
        line = end;
    }
    s->n_held = (size_t)(end - line);
    memmove(s->held, line, s->n_held);
    return KOLO_OK;
}

/* Makes room for more of an incomplete line. */
static kolo_status make_room(line_stream *s) {
    if (s->n_held < s->held_capacity) return KOLO_OK;
    char *bigger = kolo_realloc(s->held, 2 * s->held_capacity);
    if (!bigger) return KOLO_NOMEM(2 * s->held_capacity);
    s->held = bigger;
    s->held_capacity *= 2;
    return KOLO_OK;
}

kolo_status line_stream_read(line_stream *s, line_queue *q, bool to_end) {
    for (size_t taken = 0; s->fd >= 0;) {
        KOLO_TRY(make_room(s));
        ssize_t n = read(s->fd, s->held + s->n_held, s->held_capacity - s->n_held);
        if (n < 0 && errno == EINTR) continue;
        bool closed = n == 0 || (n < 0 && (errno != EAGAIN || to_end));
        if (n > 0) s->n_held += (size_t)n;
        if (n > 0) taken += (size_t)n;
        if (taken >= QUEUE_LIMIT) closed = true; /* another process keeps writing */
        if (closed) {
            close(s->fd);
            s->fd = -1;
        }
        KOLO_TRY(queue_lines(s, q, closed));
        if (!to_end || closed) break;
    }
    return KOLO_OK;
}

void line_stream_fini(line_stream *s) {
    if (s->fd >= 0) close(s->fd);
    kolo_free(s->held);
    *s = (line_stream){.fd = -1};
}
