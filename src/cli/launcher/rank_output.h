#pragma once
/* Merges the output of ranks line by line.
 *
 * A line_stream reads one pipe of a rank and queues complete lines with the rank's prefix. A
 * line_queue holds lines for standard output and error in order of arrival and writes them without
 * blocking. A line longer than LINE_LIMIT is split. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LINE_START = 32 * 1024, /* memory for an incomplete line at first; it grows */
    LINE_LIMIT = 16 * 1024 * 1024,
    QUEUE_LIMIT = 1024 * 1024, /* above it, the launcher stops reading streams */
};

typedef struct line_queue {
    struct line_chunk *first, *last;
    size_t bytes;
} line_queue;

/* Appends a line, to which a newline is added, for descriptor `sink`. */
kolo_status line_queue_add(line_queue *q, int sink, const char *prefix, const char *line,
                           size_t bytes);
/* The descriptor of the oldest line; -1 if the queue is empty. */
int line_queue_sink(const line_queue *q);
/* Writes some of the oldest lines, at most PIPE_BUF bytes, which a descriptor that poll reports as
 * writable accepts without blocking. IO: the write failed; errno is EPIPE if the reader is gone. */
kolo_status line_queue_write(line_queue *q);
void line_queue_fini(line_queue *q);

typedef struct line_stream {
    int fd; /* the reading end of the pipe, non-blocking; -1 if closed */
    int sink;
    char prefix[16];
    char *held; /* an incomplete line */
    size_t n_held, held_capacity;
} line_stream;

/* Takes ownership of `fd`. Lines get the prefix "[rank] ". */
kolo_status line_stream_init(line_stream *s, int fd, int sink, int rank);
/* Moves available data to the queue; closes the stream at its end. With `to_end` reads all
 * available data and closes the stream even if other processes still hold the pipe. */
kolo_status line_stream_read(line_stream *s, line_queue *q, bool to_end);
/* A zeroed stream with fd -1 is allowed. */
void line_stream_fini(line_stream *s);
