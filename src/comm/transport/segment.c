/* Registered memory: a bump allocator, with free lists by power of two.
 *
 * Large blocks are in huge pages where the system has them, as memory of the process is: ranks read
 * and write whole gradients. Shared memory has small pages unless the administrator allows others
 * (shmem_enabled), but a process may turn pages that exist into huge ones itself (MADV_COLLAPSE,
 * Linux 6.1); peers that map the segment at an equal place within a huge page then use them too. */
#define _GNU_SOURCE
#include "comm/transport/segment.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE /* older C libraries */
#define MADV_COLLAPSE 25
#endif

enum { PAGE = 4096, LINE = 64, BLOCK_MIN = 4096, SEGMENT_MIN = 1 << 20, HUGE_PAGE = 2 << 20 };

static kolo_status no_addresses(size_t bytes) {
    return KOLO_FAIL(KOLO_ERR_NOMEM,
                     "no address space for a segment of %zu MiB (%s): raise the limit of virtual "
                     "memory (ulimit -v)",
                     bytes >> 20, kolo_errno_text(errno));
}

/* Maps a segment from a huge page's boundary on. */
static kolo_status map(int fd, size_t bytes, char **base) {
    int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return no_addresses(bytes);
    char *start = (char *)kolo_round_up((uintptr_t)raw, HUGE_PAGE);
    size_t before = (size_t)(start - raw);
    void *p = mmap(start, bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (p == MAP_FAILED) {
        kolo_status status = no_addresses(bytes);
        munmap(raw, bytes + HUGE_PAGE);
        return status;
    }
    if (before) munmap(raw, before);
    munmap(start + bytes, HUGE_PAGE - before); /* a multiple of pages, as `bytes` is */
    *base = p;
    return KOLO_OK;
}

/* Asks for huge pages where a new block fills them. It is a hint: small pages work too. A page of
 * shared memory has to exist before. */
static void use_huge_pages(const kolo_segment *s, char *block, size_t bytes) {
    char *first = (char *)kolo_round_up((uintptr_t)block, HUGE_PAGE);
    if (bytes < HUGE_PAGE || first + HUGE_PAGE > block + bytes) return;
    const size_t whole = (size_t)(block + bytes - first) / HUGE_PAGE * HUGE_PAGE;
    (void)madvise(first, whole, MADV_HUGEPAGE);
    if (s->fd < 0) return;
    for (size_t at = 0; at < whole; at += HUGE_PAGE) ((volatile char *)first)[at] = 0;
    (void)madvise(first, whole, MADV_COLLAPSE);
}

size_t kolo_segment_fit(size_t wanted, int ranks, bool shared) {
    struct rlimit memory, file;
    size_t most = wanted;
    if (getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY) {
        size_t share = memory.rlim_cur / 2 / ((size_t)ranks + 1);
        if (share < most) most = share;
    }
    if (shared && getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < most) {
        most = file.rlim_cur;
    }
    return most > SEGMENT_MIN ? most : SEGMENT_MIN;
}

kolo_status kolo_segment_init(kolo_segment *segment, size_t bytes, bool shared) {
    kolo_segment s = {.bytes = kolo_round_up(bytes, PAGE), .fd = -1};
    if (shared) {
        s.fd = memfd_create("kolo-segment", MFD_CLOEXEC);
        if (s.fd < 0) return KOLO_FAIL(KOLO_ERR_NOMEM, "memfd_create: %s", kolo_errno_text(errno));
        if (ftruncate(s.fd, (off_t)s.bytes) != 0) {
            kolo_status status =
                KOLO_FAIL(KOLO_ERR_NOMEM, "cannot allocate %zu MiB of shared memory: %s%s",
                          s.bytes >> 20, kolo_errno_text(errno),
                          errno == EFBIG ? ": raise the limit of file sizes (ulimit -f)" : "");
            close(s.fd);
            return status;
        }
    }
    kolo_status status = map(s.fd, s.bytes, &s.base);
    if (status != KOLO_OK) {
        if (shared) close(s.fd);
        return status;
    }
    *segment = s;
    return KOLO_OK;
}

kolo_status kolo_segment_map(int fd, size_t bytes, char **base) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != bytes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a peer's segment does not have the announced %zu bytes",
                         bytes);
    }
    return map(fd, bytes, base);
}

void kolo_segment_unmap(char *base, size_t bytes) {
    if (base) munmap(base, bytes);
}

void kolo_segment_fini(kolo_segment *segment) {
    if (!segment->kept) kolo_segment_unmap(segment->base, segment->bytes);
    if (segment->base && segment->fd >= 0) close(segment->fd);
    *segment = (kolo_segment){.fd = -1};
}

/* The segment that has the memory. */
static kolo_segment *owner(kolo_segment *s) {
    while (s->of) s = s->of;
    return s;
}

static kolo_status no_room(const kolo_segment *s, size_t bytes) {
    return KOLO_FAIL(KOLO_ERR_NOMEM,
                     "no room for %zu bytes of registered memory: %zu of %zu are in use; use a "
                     "smaller model or buffer, or raise the limit: segment_bytes if the program "
                     "sets it, else virtual memory (ulimit -v)",
                     bytes, s->used, s->bytes);
}

/* `filled`: bytes of it that are used for certain. */
static kolo_status alloc_filled(kolo_segment *s, size_t bytes, size_t filled, void **memory) {
    size_t first = kolo_round_up(s->used, bytes < PAGE ? LINE : PAGE);
    if (first > s->bytes || bytes > s->bytes - first) return no_room(s, bytes);
    s->used = first + bytes;
    *memory = s->base + first;
    use_huge_pages(s, *memory, filled);
    return KOLO_OK;
}

kolo_status kolo_segment_alloc(kolo_segment *s, size_t bytes, void **memory) {
    return alloc_filled(owner(s), bytes, bytes, memory);
}

/* The size class of a block: its power of two. */
static int class_of(size_t bytes) {
    int k = 0;
    while (((size_t)BLOCK_MIN << k) < bytes) k++;
    KOLO_ASSERT(k < KOLO_SEGMENT_CLASSES);
    return k;
}

kolo_status kolo_segment_take(kolo_segment *s, size_t bytes, void **block) {
    s = owner(s);
    if (bytes > s->bytes) return no_room(s, bytes); /* perhaps beyond all classes */
    int k = class_of(bytes);
    if (!s->spare[k]) return alloc_filled(s, (size_t)BLOCK_MIN << k, bytes, block);
    *block = s->spare[k];
    memcpy(&s->spare[k], *block, sizeof(void *));
    return KOLO_OK;
}

void kolo_segment_give(kolo_segment *s, void *block, size_t bytes) {
    if (!block) return;
    int k = class_of(bytes);
    s = owner(s);
    memcpy(block, &s->spare[k], sizeof(void *));
    s->spare[k] = block;
}
