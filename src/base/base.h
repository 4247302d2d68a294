#pragma once
/* What every layer stands on: failing, asserting, memory, arenas, growing arrays, time.
 *
 * Failing. The first detector of an error writes its text: `return KOLO_FAIL(KOLO_ERR_ARG, "rank %d
 * outside [0, %d)", r, n);`. Callers pass it up with KOLO_TRY(call). KOLO_ASSERT guards against our
 * own bugs only; it is always on and aborts.
 *
 * Memory. All heap memory comes from kolo_alloc and its kin, so that tests can make the n-th
 * allocation fail. Nothing here is called inside the step loop.
 *
 * Symbols marked KOLO_SHARED leave libkolo-comm for libkolo's use; they are no public API. */

#include "kolo/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KOLO_SHARED __attribute__((visibility("default")))
#define KOLO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define KOLO_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- failing ---- */

/* Writes the error slot of this thread and gives `status` back. */
KOLO_SHARED kolo_status kolo_fail(kolo_status status, const char *file, int line, const char *fmt,
                                  ...) KOLO_PRINTF(4, 5);
/* Puts "context: " before the text of the latest failure; gives `status` back. */
KOLO_SHARED kolo_status kolo_fail_in(kolo_status status, const char *fmt, ...) KOLO_PRINTF(2, 3);
/* File and line of this thread's latest failure, for logs. */
KOLO_SHARED const char *kolo_last_error_place(void);

/* Tells compilers and analyzers that a failure is never KOLO_OK. */
static inline kolo_status kolo_failed(kolo_status status) {
    if (status == KOLO_OK) __builtin_unreachable();
    return status;
}
#define KOLO_FAIL(status, ...) kolo_failed(kolo_fail((status), __FILE__, __LINE__, __VA_ARGS__))

#define KOLO_TRY(call)                                            \
    do {                                                          \
        kolo_status kolo_try_status_ = (call);                    \
        if (kolo_try_status_ != KOLO_OK) return kolo_try_status_; \
    } while (0)

/* As KOLO_TRY, for functions that unwind: `status` must be a local kolo_status. */
#define KOLO_TRY_GOTO(call, label)         \
    do {                                   \
        status = (call);                   \
        if (status != KOLO_OK) goto label; \
    } while (0)

KOLO_SHARED _Noreturn void kolo_assert_failed(const char *text, const char *file, int line);
#define KOLO_ASSERT(cond) ((cond) ? (void)0 : kolo_assert_failed(#cond, __FILE__, __LINE__))

/* ---- memory ---- */

/* `bytes` of memory, aligned to 64; NULL when there is none. kolo_zalloc clears it. */
KOLO_SHARED void *kolo_alloc(size_t bytes);
KOLO_SHARED void *kolo_zalloc(size_t bytes);
/* Grows or shrinks a block of kolo_alloc, keeping its contents; NULL (old block kept) on failure.
 */
KOLO_SHARED void *kolo_realloc(void *block, size_t bytes);
/* Frees a block of kolo_alloc; NULL is allowed. */
KOLO_SHARED void kolo_free(void *block);
KOLO_SHARED char *kolo_strdup(const char *text);
/* A formatted string on the heap, NULL when there is no memory. */
KOLO_SHARED char *kolo_format(const char *fmt, ...) KOLO_PRINTF(1, 2);
/* Test hook: the n-th allocation of this thread from now on fails (0: never). */
KOLO_SHARED void kolo_alloc_fail_nth(long n);

/* The failure that every caller of kolo_alloc reports. */
#define KOLO_NOMEM(bytes)                                                                     \
    KOLO_FAIL(                                                                                \
        KOLO_ERR_NOMEM,                                                                       \
        "no memory for %zu bytes: take a smaller model, batch or buffer, or raise the limit " \
        "of virtual memory (ulimit -v)",                                                      \
        (size_t)(bytes))

/* A region of zeroed pages, page-aligned, huge pages where the system gives them. `bytes` is
 * rounded up inside. NULL when there is no memory. Not from kolo_alloc: for arenas of plans. */
KOLO_SHARED void *kolo_pages_map(size_t bytes);
KOLO_SHARED void kolo_pages_unmap(void *pages, size_t bytes);

/* An arena: many small allocations that die together. Zero-initialise it, then allocate. */
typedef struct kolo_arena {
    struct kolo_arena_block *head;
} kolo_arena;
/* Zeroed memory, aligned to 16, valid until kolo_arena_fini; NULL when there is none. */
KOLO_SHARED void *kolo_arena_alloc(kolo_arena *arena, size_t bytes);
KOLO_SHARED char *kolo_arena_strdup(kolo_arena *arena, const char *text);
KOLO_SHARED void kolo_arena_fini(kolo_arena *arena);

/* Makes room for one more element in a heap array (doubling); false when there is no memory.
 * `if (!KOLO_GROW(g->nodes, g->n_nodes, g->cap_nodes)) return KOLO_NOMEM(...);` */
KOLO_SHARED bool kolo_grow(void **items, size_t count, size_t *capacity, size_t item_bytes);
#define KOLO_GROW(items, count, capacity) \
    kolo_grow((void **)&(items), (size_t)(count), &(capacity), sizeof *(items))

/* ---- text ---- */

/* A growing string. Zero-initialise; `text` is NULL or NUL-terminated. An append that finds no
 * memory sets `failed` and later appends do nothing, so one check at the end is enough. */
typedef struct kolo_text {
    char *text;
    size_t length, capacity;
    bool failed;
} kolo_text;
KOLO_SHARED void kolo_text_add(kolo_text *t, const char *fmt, ...) KOLO_PRINTF(2, 3);
KOLO_SHARED void kolo_text_addv(kolo_text *t, const char *fmt, va_list args) KOLO_PRINTF(2, 0);
KOLO_SHARED void kolo_text_fini(kolo_text *t);

/* ---- time ---- */

/* Monotonic time in nanoseconds. */
KOLO_SHARED int64_t kolo_now_ns(void);

/* ---- arithmetic ---- */

static inline size_t kolo_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static inline int64_t kolo_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t kolo_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
