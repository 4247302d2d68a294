#pragma once
/* A rank's segment: one large range of addresses, backed by pages only as they are touched, from
 * which registered memory is given out. Shared with the processes of the host through `fd` (shm),
 * or private to a process whose threads are the ranks (thread). One thread uses it. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { KOLO_SEGMENT_CLASSES = 48 };

typedef struct kolo_segment {
    char *base;
    size_t bytes, used;
    int fd;                  /* -1: private */
    struct kolo_segment *of; /* what is taken here comes from that one; NULL: own memory */
    void *spare[KOLO_SEGMENT_CLASSES]; /* blocks given back, by power of two; linked through them */
} kolo_segment;

/* `wanted`, or less where limits of this process are in the way: of virtual memory (ulimit -v),
 * which must have room for the segments of `ranks` ranks and as much for everything else, and of
 * files (ulimit -f), which shared segments are to the kernel. */
size_t kolo_segment_fit(size_t wanted, int ranks, bool shared);
/* `bytes` of address space; `shared` makes a memfd of it. NOMEM. */
kolo_status kolo_segment_init(kolo_segment *segment, size_t bytes, bool shared);
/* Maps a peer's segment that came as `fd` (stays the caller's); checks that it has `bytes`. */
kolo_status kolo_segment_map(int fd, size_t bytes, char **base);
void kolo_segment_unmap(char *base, size_t bytes);
void kolo_segment_fini(kolo_segment *segment);

/* Zeroed memory that stays until the end; 64-byte aligned, page-aligned from one page on. NOMEM. */
kolo_status kolo_segment_alloc(kolo_segment *segment, size_t bytes, void **memory);
/* A working block: the latest given back of its size first, since it is warm. Not cleared. NOMEM.
 */
kolo_status kolo_segment_take(kolo_segment *segment, size_t bytes, void **block);
void kolo_segment_give(kolo_segment *segment, void *block, size_t bytes);
