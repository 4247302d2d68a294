#pragma once
/* Lines of many streams brought together whole.
 *
 * A line_stream collects what a rank writes into one of its pipes and hands on complete lines, each
 * with the rank's prefix. A line_queue holds lines on their way to standard output and error, in
 * the order in which they came, and never blocks: it writes at most what poll promised. A line
 * longer than LINE_LIMIT goes on in pieces, each a line of its own. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LINE_LIMIT = 32 * 1024,
    QUEUE_LIMIT = 1024 * 1024, /* above it, streams are better left unread for a while */
};

typedef struct line_queue {
    struct line_chunk *first, *last;
    size_t bytes;
} line_queue;

/* Appends a line (it gets a line break) for descriptor `sink`. */
kolo_status line_queue_add(line_queue *q, int sink, const char *prefix, const char *line,
                           size_t bytes);
/* The descriptor of the oldest line, -1 when there is none. */
int line_queue_sink(const line_queue *q);
/* Writes a part of the oldest lines, no more than a descriptor that poll calls writable takes
 * without blocking. IO when it cannot be written (its reader is gone: errno is EPIPE). */
kolo_status line_queue_write(line_queue *q);
void line_queue_fini(line_queue *q);

typedef struct line_stream {
    int fd; /* the pipe's reading end, non-blocking; -1 when closed */
    int sink;
    char prefix[16];
    char *held; /* the start of a line whose end has not come */
    size_t n_held;
} line_stream;

/* Takes over `fd`. */
kolo_status line_stream_init(line_stream *s, int fd, int sink, const char *prefix);
/* Moves what the pipe holds to the queue; closes the stream at its end. With `to_end` all that is
 * there now is taken, and the stream is closed though others may still hold the pipe. */
kolo_status line_stream_read(line_stream *s, line_queue *q, bool to_end);
/* Zeroed streams with fd -1 are allowed. */
void line_stream_fini(line_stream *s);
