/* Rows are filtered eight at a time, with AVX-512 sixteen, one in each lane of a vector: their
 * bytes are transposed to [byte of a row][row], and the results back. */
#include "data/images/resize_loops.h"

#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
enum { ROWS = 16, TURNS = 4 };
#else
enum { ROWS = 8, TURNS = 3 };
#endif
enum { BYTES = 16, HALF = 1 << (KOLO_RESIZE_BITS - 1) };
_Static_assert((int)ROWS <= (int)KOLO_RESIZE_MOST_ROWS && 1 << (int)TURNS == (int)ROWS, "rows");

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t block __attribute__((vector_size(BYTES)));
#ifndef __AVX2__
typedef uint8_t bytes_of_rows __attribute__((vector_size(ROWS)));
#endif
typedef int32_t ints __attribute__((vector_size(4 * ROWS)));

INLINE block interleave_low(block a, block b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

INLINE block interleave_high(block a, block b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

/* Interleaves both halves of ROWS blocks, `times` times: the bits of a byte's index turn left by
 * one each time. TURNS times transpose [ROWS][BYTES], four times [BYTES][ROWS]. */
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
        interleave(b, TURNS);
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

#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
INLINE ints widen(const uint8_t *p) {
    return (ints)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* Weights are not negative: no sum is below 0. */
INLINE void narrow(ints sum, uint8_t *to) {
    _mm_storeu_si128((__m128i *)(void *)to,
                     _mm512_cvtusepi32_epi8((__m512i)(sum >> KOLO_RESIZE_BITS)));
}
#elif defined(__AVX2__) /* gcc 12 converts such vectors one element at a time */
INLINE ints widen(const uint8_t *p) {
    return (ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

INLINE void narrow(ints sum, uint8_t *to) {
    const __m256i all = (__m256i)(sum >> KOLO_RESIZE_BITS);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(halves, halves));
}
#else
INLINE ints widen(const uint8_t *p) {
    bytes_of_rows b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, ints);
}

INLINE void narrow(ints sum, uint8_t *to) {
    sum >>= KOLO_RESIZE_BITS;
    const ints over = sum > 255;
    const bytes_of_rows b = __builtin_convertvector((sum & ~over) | (over & 255), bytes_of_rows);
    memcpy(to, &b, sizeof b);
}
#endif

/* Runs `loop`(taps) with the number of weights as a constant where it is usual; 0: they differ, or
 * are many. */
#define BY_TAPS(even, loop) \
    switch (even) {         \
    case 2:                 \
        loop(2);            \
        break;              \
    case 3:                 \
        loop(3);            \
        break;              \
    case 4:                 \
        loop(4);            \
        break;              \
    case 5:                 \
        loop(5);            \
        break;              \
    case 6:                 \
        loop(6);            \
        break;              \
    default:                \
        loop(0);            \
    }

/* n outputs of all rows: [channel][output][row], channels `room` bytes apart. */
INLINE void weigh(const uint8_t *bytes, int channels, const kolo_resize_filter *f, int64_t n,
                  uint8_t *out, int64_t room, int32_t taps) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *from = bytes + (int64_t)f->first[i] * channels * ROWS;
        const int32_t *weight = f->weight + i * f->taps, count = taps ? taps : f->count[i];
        ints red = (ints){0} + HALF, green = red, blue = red;
        for (int32_t k = 0; k < count; k++, from += channels * ROWS) {
            const int32_t w = weight[k];
            red += widen(from) * w;
            if (channels == 1) continue;
            green += widen(from + ROWS) * w;
            blue += widen(from + 2 * ROWS) * w;
        }
        narrow(red, out + i * ROWS);
        if (channels == 1) continue;
        narrow(green, out + room + i * ROWS);
        narrow(blue, out + 2 * room + i * ROWS);
    }
}

static void along_rows(const uint8_t *const *rows, int64_t width, int channels,
                       const kolo_resize_filter *f, int64_t n, uint8_t *work, uint8_t *const *to) {
    const int64_t room = (n + BYTES) * ROWS;
    uint8_t *out = work + (channels * width + BYTES) * ROWS;
    gather(rows, channels * width, work);
#define WEIGH_COLOURS(taps) weigh(work, 3, f, n, out, room, taps)
#define WEIGH_GREY(taps) weigh(work, 1, f, n, out, room, taps)
    if (channels == 3) {
        BY_TAPS(f->even, WEIGH_COLOURS)
    } else {
        BY_TAPS(f->even, WEIGH_GREY)
    }
    for (int c = 0; c < channels; c++) scatter(out + c * room, n, to, c * n);
}

/* `taps` rows, `stride` bytes apart; 0: `count`. */
INLINE void add_rows(const uint8_t *from, int64_t stride, const int32_t *weight, int32_t count,
                     int64_t n, uint8_t *to, int32_t taps) {
    enum { AT_ONCE = 32 };
    if (taps) count = taps;
    for (int64_t x = 0; x < n; x += AT_ONCE) {
        ints sum[AT_ONCE / ROWS];
        uint8_t out[AT_ONCE];
        for (int v = 0; v < AT_ONCE / ROWS; v++) sum[v] = (ints){0} + HALF;
        for (int32_t k = 0; k < count; k++) {
            const uint8_t *row = from + k * stride + x;
            for (int v = 0; v < AT_ONCE / ROWS; v++) sum[v] += widen(row + ROWS * v) * weight[k];
        }
        for (int v = 0; v < AT_ONCE / ROWS; v++) narrow(sum[v], out + ROWS * v);
        memcpy(to + x, out, n - x < AT_ONCE ? (size_t)(n - x) : AT_ONCE);
    }
}

static void along_columns(const uint8_t *from, int64_t stride, int64_t top,
                          const kolo_resize_filter *f, int64_t i, int64_t n, uint8_t *to) {
    const int32_t *weight = f->weight + i * f->taps;
    from += (f->first[i] - top) * stride;
#define ADD_ROWS(taps) add_rows(from, stride, weight, f->count[i], n, to, taps)
    BY_TAPS(f->even, ADD_ROWS)
}

const kolo_resize_loops KOLO_ISA_SYMBOL(kolo_resize) = {ROWS, along_rows, along_columns};
