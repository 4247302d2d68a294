/* Three channels are interleaved as bytes, 16 pixels at a time, and then converted: of three
 * vectors of floats that follow each other, each has its own order of channels. */
#include "data/normalize_loops.h"

#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { LANES = KOLO_VECTOR_BYTES / 4, PIXELS = 16 };

typedef uint8_t block __attribute__((vector_size(PIXELS)));
typedef float floats __attribute__((vector_size(KOLO_VECTOR_BYTES)));

INLINE floats widen(const uint8_t *p) {
#if KOLO_VECTOR_BYTES == 64
    return (floats)_mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
#elif defined(__AVX2__)
    return (floats)_mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#else
    floats v;
    for (int i = 0; i < LANES; i++) v[i] = (float)p[i];
    return v;
#endif
}

/* With `past` not through the cache; `to` is then aligned. */
INLINE void write(float *to, floats v, bool past) {
#if KOLO_VECTOR_BYTES == 64
    if (past) {
        _mm512_stream_ps(to, (__m512)v);
        return;
    }
#elif defined(__AVX2__)
    if (past) {
        _mm256_stream_ps(to, (__m256)v);
        return;
    }
#endif
    memcpy(to, &v, sizeof v);
}

/* Before other threads read what was written past the cache. */
INLINE void end_of(bool past) {
#ifdef __AVX2__
    if (past) _mm_sfence();
#endif
}

INLINE bool is_aligned(const float *p) { return (uintptr_t)p % KOLO_VECTOR_BYTES == 0; }

INLINE void one_by(const uint8_t *src, int64_t n, float a, float b, float *dst, bool past) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) write(dst + i, widen(src + i) * a + b, past);
    for (; i < n; i++) dst[i] = (float)src[i] * a + b;
    end_of(past);
}

static void one(const uint8_t *src, int64_t n, float a, float b, float *dst, bool past) {
    if (past && is_aligned(dst)) {
        one_by(src, n, a, b, dst, true);
    } else {
        one_by(src, n, a, b, dst, false);
    }
}

/* [16, 3] bytes of three planes. */
INLINE void interleave(block red, block green, block blue, uint8_t *to) {
    /* Of red and green: where a byte is blue's, any. */
    const block first =
        __builtin_shufflevector(red, green, 0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5);
    const block second =
        __builtin_shufflevector(red, green, 21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10, 26);
    const block third = __builtin_shufflevector(red, green, 0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14,
                                                30, 0, 15, 31, 0);
    const block all[3] = {
        __builtin_shufflevector(first, blue, 0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20,
                                15),
        __builtin_shufflevector(second, blue, 0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14,
                                15),
        __builtin_shufflevector(third, blue, 26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14,
                                31),
    };
    memcpy(to, all, sizeof all);
}

INLINE void three_by(const uint8_t *src, int64_t pixels, const float a[3], const float b[3],
                     float *dst, bool past) {
    floats factor[3], term[3];
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < LANES; i++) {
            factor[v][i] = a[(LANES * v + i) % 3];
            term[v][i] = b[(LANES * v + i) % 3];
        }
    }
    int64_t p = 0;
    for (; p + PIXELS <= pixels; p += PIXELS, dst += 3 * PIXELS) {
        block plane[3];
        uint8_t bytes[3 * PIXELS];
        for (int c = 0; c < 3; c++) memcpy(&plane[c], src + c * pixels + p, PIXELS);
        interleave(plane[0], plane[1], plane[2], bytes);
        for (int v = 0; v < 3 * PIXELS / LANES; v++) {
            write(dst + v * LANES, widen(bytes + v * LANES) * factor[v % 3] + term[v % 3], past);
        }
    }
    for (; p < pixels; p++, dst += 3) {
        for (int c = 0; c < 3; c++) dst[c] = (float)src[c * pixels + p] * a[c] + b[c];
    }
    end_of(past);
}

static void three(const uint8_t *src, int64_t pixels, const float a[3], const float b[3],
                  float *dst, bool past) {
    if (past && is_aligned(dst)) {
        three_by(src, pixels, a, b, dst, true);
    } else {
        three_by(src, pixels, a, b, dst, false);
    }
}

const kolo_normalize_loops KOLO_ISA_SYMBOL(kolo_normalize) = {one, three};
