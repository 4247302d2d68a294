#pragma once
/* Errors and assertions.
 *
 * The function that detects an error writes its text: `return KOLO_FAIL(KOLO_ERR_ARG, "rank %d
 * outside [0, %d)", r, n);`. Callers propagate it with KOLO_TRY(call). KOLO_ASSERT checks for bugs
 * in Kolo itself; it is always enabled and aborts. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdint.h>

/* Sets this thread's last error and returns `status`. */
KOLO_SHARED kolo_status kolo_fail(kolo_status status, const char *file, int line, const char *fmt,
                                  ...) KOLO_PRINTF(4, 5);
/* Prepends "context: " to this thread's last error; returns `status`. */
KOLO_SHARED kolo_status kolo_fail_in(kolo_status status, const char *fmt, ...) KOLO_PRINTF(2, 3);
/* The number of times that this thread set the last error. */
KOLO_SHARED uint64_t kolo_error_count(void);
/* The status of a callback of a program. Sets the last error if it failed without doing so since
 * `count`. */
KOLO_SHARED kolo_status kolo_callback_status(kolo_status status, uint64_t count,
                                             const char *callback);
/* "file:line" of this thread's last error, for logs. */
KOLO_SHARED const char *kolo_last_error_place(void);

/* Informs compilers and analyzers that a failure is never KOLO_OK. */
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

/* Like KOLO_TRY, for functions with cleanup: `status` must be a local kolo_status. */
#define KOLO_TRY_GOTO(call, label)         \
    do {                                   \
        status = (call);                   \
        if (status != KOLO_OK) goto label; \
    } while (0)

KOLO_SHARED _Noreturn void kolo_assert_failed(const char *text, const char *file, int line);
#define KOLO_ASSERT(cond) ((cond) ? (void)0 : kolo_assert_failed(#cond, __FILE__, __LINE__))
