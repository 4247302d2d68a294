#pragma once
/* Feeds: bytes without a known end, read once and in order: standard input, a named pipe, or a file
 * that grows. One thread reads; another may stop it, which ends a wait within 50 ms.
 *
 * A pipe ends when its writers have closed it, and a file at its end; one that is followed when
 * nothing was appended for some time. Data sets that are streams are read by kolo_dataset_begin and
 * kolo_dataset_next (data/dataset.h). */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_feed kolo_feed;

/* Whether `path` can be read once only: "-", or a named pipe. */
bool kolo_feed_is_pipe(const char *path);

/* Opens a path; "-": standard input. `follow`: seconds that a file may be without new bytes before
 * it has ended, 0: none, INFINITY: it does not end. IO: it cannot be opened; NOMEM. */
kolo_status kolo_feed_open(const char *path, double follow, kolo_feed **opened);
/* NULL is allowed. */
void kolo_feed_close(kolo_feed *feed);
/* Whether a read awaits what is appended to a file that is followed, as after opening; else the end
 * of the file is that of the stream. */
void kolo_feed_grows(kolo_feed *feed, bool grows);
/* Any thread: reads return as at the end of the stream, now and later. NULL is allowed. */
void kolo_feed_stop(kolo_feed *feed);

/* Waits until `bytes` bytes are there: *got is `bytes`, or less at the end. They stay until they
 * are consumed; *data is valid until the next call. FORMAT: the file was truncated; IO; NOMEM. */
kolo_status kolo_feed_peek(kolo_feed *feed, size_t bytes, const char **data, size_t *got);
void kolo_feed_consume(kolo_feed *feed, size_t bytes);
/* Reads a line, without its end; *line NULL: the end of the stream. The last line of a pipe may
 * lack its end; that of a file that is followed may be written in part, and is not used. FORMAT: a
 * line of more than 16 MiB; the errors of kolo_feed_peek. */
kolo_status kolo_feed_line(kolo_feed *feed, const char **line, size_t *length);
/* Passes over bytes of a file, without reading them; false in *there: it has less. FORMAT: it is a
 * pipe; the errors of kolo_feed_peek. */
kolo_status kolo_feed_skip(kolo_feed *feed, uint64_t bytes, bool *there);
/* The bytes that were consumed or skipped. */
uint64_t kolo_feed_place(const kolo_feed *feed);
/* Goes to the line that begins after `bytes` bytes of a file; false in *there: none does. FORMAT:
 * it is a pipe; IO. */
kolo_status kolo_feed_go_to_line(kolo_feed *feed, uint64_t bytes, bool *there);
