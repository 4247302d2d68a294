#pragma once
/* Heap memory, pages, arenas and growing arrays.
 *
 * All heap memory comes from kolo_alloc and its variants, so that tests can make the n-th
 * allocation fail. None of these functions is called inside the step loop. */

#include "base/compiler.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Allocates `bytes`, aligned to 64; NULL when out of memory. kolo_zalloc clears the block. */
KOLO_SHARED void *kolo_alloc(size_t bytes);
KOLO_SHARED void *kolo_zalloc(size_t bytes);
/* Resizes a block of kolo_alloc and keeps its contents; returns NULL and keeps the old block on
 * failure. */
KOLO_SHARED void *kolo_realloc(void *block, size_t bytes);
/* Frees a block of kolo_alloc; NULL is allowed. */
KOLO_SHARED void kolo_free(void *block);
KOLO_SHARED char *kolo_strdup(const char *text);
/* Test hook: makes the n-th next allocation of this thread fail (0: none). */
KOLO_SHARED void kolo_alloc_fail_nth(long n);
/* Test hook: makes the next allocation of this thread of so many bytes fail (0: none). For tests of
 * one allocation among others whose number depends on timing, as in communication. */
KOLO_SHARED void kolo_alloc_fail_bytes(size_t bytes);

/* The error to return when an allocation fails. */
#define KOLO_NOMEM(bytes)                                                                          \
    KOLO_FAIL(KOLO_ERR_NOMEM,                                                                      \
              "no memory for %zu bytes: use a smaller model, batch or buffer, or raise the limit " \
              "of virtual memory (ulimit -v)",                                                     \
              (size_t)(bytes))

/* Maps zeroed, page-aligned memory for the arenas of plans, with huge pages where available. The
 * size is rounded up internally. NULL when out of memory. Independent of kolo_alloc. */
KOLO_SHARED void *kolo_pages_map(size_t bytes);
KOLO_SHARED void kolo_pages_unmap(void *pages, size_t bytes);
/* Gives the memory of the whole pages within a range of it back, which are zero afterwards. */
KOLO_SHARED void kolo_pages_release(void *at, size_t bytes);
/* Bytes of the pages that have memory: those that were accessed. */
KOLO_SHARED size_t kolo_pages_resident(void *pages, size_t bytes);

/* An arena: many small allocations with one lifetime. Zero-initialize it, then allocate. */
typedef struct kolo_arena {
    struct kolo_arena_block *head;
} kolo_arena;
/* Allocates zeroed memory, aligned to 16 and valid until kolo_arena_fini; NULL when out of memory.
 */
KOLO_SHARED void *kolo_arena_alloc(kolo_arena *arena, size_t bytes);
KOLO_SHARED char *kolo_arena_strdup(kolo_arena *arena, const char *text);
KOLO_SHARED void kolo_arena_fini(kolo_arena *arena);

/* Reserves space for one more element in a heap array, doubling its capacity as needed; false when
 * out of memory. `if (!KOLO_GROW(g->nodes, g->n_nodes, g->cap_nodes)) return KOLO_NOMEM(...);` */
KOLO_SHARED bool kolo_grow(void **items, size_t count, size_t *capacity, size_t item_bytes);
#define KOLO_GROW(items, count, capacity) \
    kolo_grow((void **)&(items), (size_t)(count), &(capacity), sizeof *(items))
