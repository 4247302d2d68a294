/* Rows are filtered eight at a time, one in each lane of a vector: their bytes are transposed to
 * [byte of a row][row], and the results back. */
#include "data/images/resize_loops.h"

#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { ROWS = KOLO_RESIZE_ROWS, BYTES = 16, HALF = 1 << (KOLO_RESIZE_BITS - 1) };

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t block __attribute__((vector_size(BYTES)));
#ifndef __AVX2__
typedef uint8_t bytes8 __attribute__((vector_size(8)));
#endif
typedef int32_t ints8 __attribute__((vector_size(32)));

INLINE block interleave_low(block a, block b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

INLINE block interleave_high(block a, block b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

/* Interleaves both halves of 128 bytes, `times` times: the seven bits of an index turn left by one
 * each time. Three times transpose [8][16], four times [16][8]. */
INLINE void interleave(block *b, int times) {
    for (int t = 0; t < times; t++) {
        block next[ROWS];
        for (int i = 0; i < ROWS / 2; i++) {
            next[2 * i] = interleave_low(b[i], b[i + ROWS / 2]);
            next[2 * i + 1] = interleave_high(b[i], b[i + ROWS / 2]);
        }
        memcpy(b, next, sizeof next);
    }
}

/* Rows of `n` bytes to [byte][row]. */
INLINE void gather(const uint8_t *const *rows, int64_t n, uint8_t *to) {
    for (int64_t i = 0; i < n; i += BYTES) {
        block b[ROWS] = {{0}};
        const size_t size = n - i < BYTES ? (size_t)(n - i) : BYTES;
        if (size == BYTES) {
            for (int r = 0; r < ROWS; r++) memcpy(&b[r], rows[r] + i, BYTES);
        } else {
            for (int r = 0; r < ROWS; r++) memcpy(&b[r], rows[r] + i, size);
        }
        interleave(b, 3);
        memcpy(to + i * ROWS, b, sizeof b);
    }
}

/* Back: to[r] + at. */
INLINE void scatter(const uint8_t *from, int64_t n, uint8_t *const *to, int64_t at) {
    for (int64_t i = 0; i < n; i += BYTES) {
        block b[ROWS];
        const size_t size = n - i < BYTES ? (size_t)(n - i) : BYTES;
        memcpy(b, from + i * ROWS, sizeof b);
        interleave(b, 4);
        if (size == BYTES) {
            for (int r = 0; r < ROWS; r++) memcpy(to[r] + at + i, &b[r], BYTES);
        } else {
            for (int r = 0; r < ROWS; r++) memcpy(to[r] + at + i, &b[r], size);
        }
    }
}

#ifdef __AVX2__ /* gcc 12 converts such vectors one element at a time */
INLINE ints8 widen(const uint8_t *p) {
    return (ints8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

INLINE void narrow(ints8 sum, uint8_t *to) {
    const __m256i all = (__m256i)(sum >> KOLO_RESIZE_BITS);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(halves, halves));
}
#else
INLINE ints8 widen(const uint8_t *p) {
    bytes8 b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, ints8);
}

/* Weights are not negative: no sum is below 0. */
INLINE void narrow(ints8 sum, uint8_t *to) {
    sum >>= KOLO_RESIZE_BITS;
    const ints8 over = sum > 255;
    const bytes8 b = __builtin_convertvector((sum & ~over) | (over & 255), bytes8);
    memcpy(to, &b, sizeof b);
}
#endif

static void along_rows(const uint8_t *const *rows, int64_t width, const kolo_resize_filter *f,
                       int64_t n, uint8_t *work, uint8_t *const *to, int64_t stride) {
    const int64_t room = (n + BYTES) * ROWS;
    uint8_t *out = work + (3 * width + BYTES) * ROWS;
    gather(rows, 3 * width, work);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *from = work + (int64_t)f->first[i] * 3 * ROWS;
        const int32_t *weight = f->weight + i * f->taps;
        ints8 red = (ints8){0} + HALF, green = red, blue = red;
        for (int32_t k = 0; k < f->count[i]; k++, from += 3 * ROWS) {
            const int32_t w = weight[k];
            red += widen(from) * w;
            green += widen(from + ROWS) * w;
            blue += widen(from + 2 * ROWS) * w;
        }
        narrow(red, out + i * ROWS);
        narrow(green, out + room + i * ROWS);
        narrow(blue, out + 2 * room + i * ROWS);
    }
    for (int c = 0; c < 3; c++) scatter(out + c * room, n, to, c * stride);
}

static void along_columns(const uint8_t *from, int64_t stride, int64_t top,
                          const kolo_resize_filter *f, int64_t i, int64_t n, uint8_t *to) {
    enum { AT_ONCE = 32 };
    const int32_t *weight = f->weight + i * f->taps;
    from += (f->first[i] - top) * stride;
    for (int64_t x = 0; x < n; x += AT_ONCE) {
        ints8 sum[AT_ONCE / 8];
        uint8_t out[AT_ONCE];
        for (int v = 0; v < AT_ONCE / 8; v++) sum[v] = (ints8){0} + HALF;
        for (int32_t k = 0; k < f->count[i]; k++) {
            const uint8_t *row = from + k * stride + x;
            for (int v = 0; v < AT_ONCE / 8; v++) sum[v] += widen(row + 8 * v) * weight[k];
        }
        for (int v = 0; v < AT_ONCE / 8; v++) narrow(sum[v], out + 8 * v);
        memcpy(to + x, out, n - x < AT_ONCE ? (size_t)(n - x) : AT_ONCE);
    }
}

const kolo_resize_loops KOLO_ISA_SYMBOL(kolo_resize) = {along_rows, along_columns};
