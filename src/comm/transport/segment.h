#pragma once
/* A rank's segment: one large range of addresses, backed by pages on first access, from which
 * registered memory is allocated. Shared with the processes of the host through `fd` (shm), or
 * private to the process if the ranks are its threads (thread). Used by one thread. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { KOLO_SEGMENT_CLASSES = 48 };

typedef struct kolo_segment {
    char *base;
    size_t bytes, used;
    int fd;    /* -1: private */
    bool kept; /* stays mapped at the end */
    struct kolo_segment
        *of; /* segment from which this one allocates; NULL: it has its own memory */
    void *spare[KOLO_SEGMENT_CLASSES]; /* free lists by power of two */
} kolo_segment;

/* Reduces `wanted` to the limits of this process: virtual memory (ulimit -v), of which the segments
 * of `ranks` ranks get one half, and file size (ulimit -f), which applies to shared segments. */
size_t kolo_segment_fit(size_t wanted, int ranks, bool shared);
/* Maps `bytes` of address space; `shared`: as a memfd. NOMEM. */
kolo_status kolo_segment_init(kolo_segment *segment, size_t bytes, bool shared);
/* Maps a peer's segment from `fd` (the caller keeps it); checks that it has `bytes`. */
kolo_status kolo_segment_map(int fd, size_t bytes, char **base);
void kolo_segment_unmap(char *base, size_t bytes);
void kolo_segment_fini(kolo_segment *segment);

/* Allocates zeroed memory, never freed; aligned to 64 bytes, from one page on to pages. Where a
 * huge page fits, memory is used at once. NOMEM. */
kolo_status kolo_segment_alloc(kolo_segment *segment, size_t bytes, void **memory);
/* Allocates a work block, preferably the one of its size freed last, which is warm. Not cleared.
 * NOMEM. */
kolo_status kolo_segment_take(kolo_segment *segment, size_t bytes, void **block);
void kolo_segment_give(kolo_segment *segment, void *block, size_t bytes);
