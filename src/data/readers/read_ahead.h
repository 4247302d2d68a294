#pragma once
/* Files of samples, read before they are needed, where the storage is slow. The loader announces
 * the samples of the next batches in their order. A consumer whose sample has not been read yet
 * reads it itself. If that, or the wait for a thread that is reading it, takes 2 ms or more, the
 * number of threads that read announced samples doubles, up to 64: on a fast disk there are none,
 * and with a latency of 50 ms for each file 64 of them read 1280 files a second. At most 512
 * samples are read ahead. */

#include "data/readers/images.h"

enum { KOLO_READ_AHEAD_FILES = 2 /* an image, and its mask */ };

/* Reads the files of a sample; the receiver frees names and bytes, also after an error. Any
 * thread. */
typedef kolo_status kolo_read_files(const void *arg, int64_t index, kolo_encoded *files);

/* `read` with `arg` is called until the read-ahead is destroyed. NOMEM. */
kolo_status kolo_read_ahead_create(kolo_read_files *read, const void *arg, kolo_read_ahead **ahead);
/* Waits for what threads are reading. NULL is allowed. */
void kolo_read_ahead_destroy(kolo_read_ahead *ahead);
/* The samples that are needed next, in this order. Those for which there is no room are left out.
 * Any thread, as the following. */
void kolo_read_ahead_announce(kolo_read_ahead *ahead, const int64_t *indices, int64_t n);
/* The files of a sample, as `read` gives them. The errors of `read`. */
kolo_status kolo_read_ahead_take(kolo_read_ahead *ahead, int64_t index, kolo_encoded *files);
/* Threads so far, and samples that they have read. */
void kolo_read_ahead_count(kolo_read_ahead *ahead, int *threads, int64_t *samples);
