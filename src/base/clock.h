#pragma once
/* Spans of time. Points of time are kolo_now_ns's (base.h). */

#include <stdint.h>

/* Milliseconds as nanoseconds, at most 70 years: the longest of waits, added to a point of time, is
 * still one. */
static inline int64_t kolo_ms_to_ns(int64_t ms) {
    const int64_t most = INT64_C(1) << 41;
    return (ms < most ? ms : most) * 1000000;
}
