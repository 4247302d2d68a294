#pragma once
/* Whether a rank computes, or waits for others: it states to servers that it makes progress unless
 * it waits. The services of a rank share this, so that ranks which wait for each other in different
 * ones do not count as making progress. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeros: it computes. Any thread; relaxed. */
typedef struct kolo_activity {
    _Atomic int waits;      /* of all threads, now */
    _Atomic uint64_t ended; /* how often the last one has ended, or work was noted meanwhile */
} kolo_activity;

static inline void kolo_activity_begin_wait(kolo_activity *a) {
    atomic_fetch_add_explicit(&a->waits, 1, memory_order_relaxed);
}

static inline void kolo_activity_end_wait(kolo_activity *a) {
    if (atomic_fetch_sub_explicit(&a->waits, 1, memory_order_relaxed) > 1) return;
    atomic_fetch_add_explicit(&a->ended, 1, memory_order_relaxed);
}

/* A thread has worked while others may wait. */
static inline void kolo_activity_note(kolo_activity *a) {
    atomic_fetch_add_explicit(&a->ended, 1, memory_order_relaxed);
}

/* Whether it has computed since the last call with this `seen`. */
static inline bool kolo_activity_take(kolo_activity *a, uint64_t *seen) {
    const uint64_t before = *seen;
    *seen = atomic_load_explicit(&a->ended, memory_order_relaxed);
    return *seen != before || atomic_load_explicit(&a->waits, memory_order_relaxed) == 0;
}
