#pragma once
/* The loops of resizing, compiled once per instruction set. */

#include "base/isa.h"

#include <stdint.h>

enum { KOLO_RESIZE_BITS = 22, KOLO_RESIZE_MOST_ROWS = 16, KOLO_RESIZE_PAD = 64 };

/* The weights of a dimension: output i is the sum of weight[i * taps + k] * input[first[i] + k], k
 * < count[i], in units of 2^-KOLO_RESIZE_BITS. */
typedef struct kolo_resize_filter {
    int64_t taps;
    int32_t *first, *count, *weight;
    int32_t even; /* the count of all outputs; 0: they differ */
} kolo_resize_filter;

typedef struct kolo_resize_loops {
    int64_t rows; /* that are filtered at a time, at most KOLO_RESIZE_MOST_ROWS */
    /* Filters this many rows of `width` pixels, of `channels` bytes each: 3, or 1. Writes `n` bytes
     * of channel c of row r to to[r] + c * n. `work` is scratch memory of kolo_resize_work bytes.
     */
    void (*along_rows)(const uint8_t *const *rows, int64_t width, int channels,
                       const kolo_resize_filter *f, int64_t n, uint8_t *work, uint8_t *const *to);
    /* Output i of a column, for `n` columns: rows of inputs `stride` bytes apart, the first of them
     * number `top`. KOLO_RESIZE_PAD bytes behind the last row can be read. */
    void (*along_columns)(const uint8_t *from, int64_t stride, int64_t top,
                          const kolo_resize_filter *f, int64_t i, int64_t n, uint8_t *to);
} kolo_resize_loops;
KOLO_ISA_TABLE(kolo_resize_loops, kolo_resize);

static inline int64_t kolo_resize_work(int64_t width, int64_t n) {
    return (3 * width + 16) * KOLO_RESIZE_MOST_ROWS + (n + 16) * KOLO_RESIZE_MOST_ROWS * 3;
}
