/* The allocator with its fail-the-nth hook for tests, arenas, pages and growing arrays. */
#define _GNU_SOURCE
#include "base/memory.h"

#include "base/integer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, BLOCK_MIN = 4096 };

static _Thread_local long fail_countdown;
static _Thread_local size_t fail_bytes;

void kolo_alloc_fail_nth(long n) { fail_countdown = n; }
void kolo_alloc_fail_bytes(size_t bytes) { fail_bytes = bytes; }

/* Whether a test hook makes this allocation fail. */
static bool fails_now(size_t bytes) {
    if (fail_bytes > 0 && bytes == fail_bytes) {
        fail_bytes = 0;
        return true;
    }
    return fail_countdown > 0 && --fail_countdown == 0;
}

/* An aligned header before each block stores its size for kolo_realloc. */
static size_t *header_of(void *block) { return (size_t *)((char *)block - ALIGNMENT); }

void *kolo_alloc(size_t bytes) {
    if (fails_now(bytes) || bytes > SIZE_MAX / 2) return NULL;
    char *raw = aligned_alloc(ALIGNMENT, kolo_round_up(bytes + ALIGNMENT, ALIGNMENT));
    if (!raw) return NULL;
    char *block = raw + ALIGNMENT;
    *header_of(block) = bytes;
    return block;
}

void *kolo_zalloc(size_t bytes) {
    void *block = kolo_alloc(bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

void *kolo_realloc(void *block, size_t bytes) {
    void *bigger = kolo_alloc(bytes);
    if (!bigger || !block) return bigger;
    size_t old = *header_of(block);
    memcpy(bigger, block, old < bytes ? old : bytes);
    kolo_free(block);
    return bigger;
}

void kolo_free(void *block) {
    if (block) free(header_of(block));
}

char *kolo_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = kolo_alloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

void *kolo_pages_map(size_t bytes) {
    if (fails_now(bytes) || bytes > SIZE_MAX / 2) return NULL;
    /* Reserve one huge page more than requested and keep the part aligned to a huge page. */
    size_t size = kolo_round_up(bytes ? bytes : 1, HUGE_PAGE);
    char *raw = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    char *start = (char *)kolo_round_up((uintptr_t)raw, HUGE_PAGE);
    size_t before = (size_t)(start - raw), after = HUGE_PAGE - before;
    if (before) munmap(raw, before);
    if (after) munmap(start + size, after);
    (void)madvise(start, size, MADV_HUGEPAGE); /* a hint: small pages work too */
    return start;
}

void kolo_pages_unmap(void *pages, size_t bytes) {
    if (pages) munmap(pages, kolo_round_up(bytes ? bytes : 1, HUGE_PAGE));
}

void kolo_pages_release(void *at, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = kolo_round_up((uintptr_t)at, page);
    const uintptr_t end = ((uintptr_t)at + bytes) / page * page;
    if (end > begin) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

size_t kolo_pages_resident(void *pages, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char states[256];
    size_t resident = 0;
    for (size_t at = 0; at < bytes; at += sizeof states * page) {
        const size_t left = bytes - at,
                     n = left < sizeof states * page ? left : sizeof states * page;
        if (mincore((char *)pages + at, n, states) != 0) continue;
        for (size_t i = 0; i * page < n; i++) resident += (states[i] & 1) * page;
    }
    return resident;
}

struct kolo_arena_block {
    struct kolo_arena_block *next;
    size_t used, capacity;
    _Alignas(16) char memory[];
};

void *kolo_arena_alloc(kolo_arena *arena, size_t bytes) {
    size_t need = kolo_round_up(bytes ? bytes : 1, 16);
    struct kolo_arena_block *block = arena->head;
    if (!block || block->capacity - block->used < need) {
        size_t capacity = need > BLOCK_MIN ? need : BLOCK_MIN;
        block = kolo_alloc(sizeof *block + capacity);
        if (!block) return NULL;
        *block = (struct kolo_arena_block){.next = arena->head, .capacity = capacity};
        arena->head = block;
    }
    void *memory = block->memory + block->used;
    block->used += need;
    return memset(memory, 0, need);
}

char *kolo_arena_strdup(kolo_arena *arena, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = kolo_arena_alloc(arena, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

void kolo_arena_fini(kolo_arena *arena) {
    while (arena->head) {
        struct kolo_arena_block *next = arena->head->next;
        kolo_free(arena->head);
        arena->head = next;
    }
}

bool kolo_grow(void **items, size_t count, size_t *capacity, size_t item_bytes) {
    if (count < *capacity) return true;
    size_t bigger = *capacity ? 2 * *capacity : 8;
    void *block = kolo_realloc(*items, bigger * item_bytes);
    if (!block) return false;
    *items = block;
    *capacity = bigger;
    return true;
}
