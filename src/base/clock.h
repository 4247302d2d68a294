#pragma once
/* Monotonic time in nanoseconds. */

#include "base/compiler.h"

#include <stdint.h>

/* The current time. */
KOLO_SHARED int64_t kolo_now_ns(void);

/* Sleeps for this long, or until a signal. */
KOLO_SHARED void kolo_sleep_ns(int64_t ns);

/* Converts milliseconds, clamped to about 70 years so that adding the longest timeout to the
 * current time cannot overflow. */
static inline int64_t kolo_ms_to_ns(int64_t ms) {
    const int64_t most = INT64_C(1) << 41;
    return (ms < most ? ms : most) * 1000000;
}
