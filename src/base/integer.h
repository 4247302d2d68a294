#pragma once
/* Integer arithmetic. */

#include <stddef.h>
#include <stdint.h>

/* The smallest multiple of `to` that is at least n. */
static inline size_t kolo_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static inline int64_t kolo_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t kolo_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
