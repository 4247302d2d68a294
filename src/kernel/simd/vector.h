#pragma once
/* Vector types for *.isa.c sources: the native width of the instruction set (vf), and eight
 * lanes (v8f), the width of a channel block. Uses the vector extensions of GCC and clang; the
 * compiler splits vectors wider than the registers. */

#include "base/bf16.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __FMA__
#include <immintrin.h>
#endif

/* Vectors are only passed between inlined functions, so the calling convention does not matter. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define INLINE static inline __attribute__((always_inline))

enum { VL = KOLO_VECTOR_BYTES / 4 };

typedef float vf __attribute__((vector_size(KOLO_VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(KOLO_VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(KOLO_VECTOR_BYTES)));
typedef float vf_any __attribute__((vector_size(KOLO_VECTOR_BYTES), aligned(4), may_alias));
typedef float v8f __attribute__((vector_size(32)));
typedef float v8f_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef uint8_t v8b __attribute__((vector_size(8)));

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf v) { *(vf_any *)p = v; }
INLINE v8f load8(const float *p) { return *(const v8f_any *)p; }
INLINE void store8(float *p, v8f v) { *(v8f_any *)p = v; }
INLINE vf splat(float x) { return x - (vf){0}; }
/* mask ? a : b. */
INLINE v8f select8(v8i mask, v8f a, v8f b) {
#ifdef __AVX2__
    return (v8f)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
    return (v8f)((mask & (v8i)a) | (~mask & (v8i)b));
#endif
}

/* a * b + c, fused where the instruction set has FMA. */
INLINE vf mul_add(vf a, vf b, vf c) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Non-temporal stores of whole, aligned vectors, for data that is not read soon. stream_end must
 * precede reads by other threads. */
INLINE void stream(float *p, vf v) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    _mm256_stream_ps(p, (__m256)v);
#else
    store(p, v);
#endif
}
INLINE void stream_end(void) {
#ifdef __FMA__
    _mm_sfence();
#endif
}

/* max (min) of a and b; b where either is NaN. */
INLINE vf larger(vf a, vf b) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    vi mask = a > b;
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
#endif
}
INLINE vf smaller(vf a, vf b) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    vi mask = a < b;
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
#endif
}

INLINE vf square_root(vf x) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < VL; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

/* ReLU: max(x, 0), and NaN for NaN. */
INLINE vf positive(vf x) { return larger((vf){0}, x); }
INLINE float positive_1(float x) { return x < 0 ? 0 : x; }

/* ---- f32 or bf16 ----
 *
 * Loops over tensors that may be either are written once, for `void *`: what they read and write
 * is f32 or, with `bf16`, bf16, and they compute in f32. `bf16` is a constant wherever such a loop
 * is inlined. */

/* The address of element i. */
INLINE const void *ahead(const void *p, int64_t i, bool bf16) {
    return (const char *)p + i * (bf16 ? 2 : 4);
}
INLINE void *ahead_to(void *p, int64_t i, bool bf16) { return (char *)p + i * (bf16 ? 2 : 4); }

INLINE v8f widen8(const uint16_t *p) {
#ifdef __AVX2__
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (v8f)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
#else
    v8f v;
    for (int i = 0; i < 8; i++) v[i] = kolo_bf16_widen(p[i]);
    return v;
#endif
}

INLINE vf widen_vector(const uint16_t *p) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
#elif KOLO_VECTOR_BYTES == 32
    return (vf)widen8(p);
#else
    vf v;
    for (int i = 0; i < VL; i++) v[i] = kolo_bf16_widen(p[i]);
    return v;
#endif
}

/* Narrowing rounds exactly as kolo_bf16_narrow does. */
INLINE void narrow8(uint16_t *p, v8f v) {
    v8u bits = (v8u)v, quiet = bits | 0x400000;
    v8u rounded = bits + 0x7FFF + (bits >> 16 & 1);
#ifdef __AVX2__
    __m256 nan = _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    v8u halves = (v8u)_mm256_blendv_ps((__m256)rounded, (__m256)quiet, nan) >> 16;
    __m128i low = _mm256_castsi256_si128((__m256i)halves);
    __m128i high = _mm256_extracti128_si256((__m256i)halves, 1);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(low, high));
#else
    v8u nan = (v8u)((v8i)(bits & 0x7FFFFFFF) > 0x7F800000),
        halves = ((rounded & ~nan) | (quiet & nan)) >> 16;
    for (int i = 0; i < 8; i++) p[i] = (uint16_t)halves[i];
#endif
}

INLINE void narrow_vector(uint16_t *p, vf v) {
#if KOLO_VECTOR_BYTES == 32
    narrow8(p, (v8f)v);
#else
    vu bits = (vu)v, nan = (vu)((vi)(bits & 0x7FFFFFFF) > 0x7F800000);
    vu rounded = bits + 0x7FFF + (bits >> 16 & 1);
    vu halves = ((rounded & ~nan) | ((bits | 0x400000) & nan)) >> 16;
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)halves));
#else
    for (int i = 0; i < VL; i++) p[i] = (uint16_t)halves[i];
#endif
#endif
}

/* Loads and stores of elements i, i + 1, ...: one vector or one element. */
INLINE vf load_at(const void *p, int64_t i, bool bf16) {
    return bf16 ? widen_vector((const uint16_t *)p + i) : load((const float *)p + i);
}
INLINE void store_at(void *p, int64_t i, vf v, bool bf16) {
    if (bf16) {
        narrow_vector((uint16_t *)p + i, v);
    } else {
        store((float *)p + i, v);
    }
}
/* The same; with `past`, of f32, to an aligned address past the cache. */
INLINE void put_at(void *p, int64_t i, vf v, bool bf16, bool past) {
    if (past) {
        stream((float *)p + i, v);
    } else {
        store_at(p, i, v, bf16);
    }
}
INLINE v8f load8_at(const void *p, int64_t i, bool bf16) {
    return bf16 ? widen8((const uint16_t *)p + i) : load8((const float *)p + i);
}
INLINE void store8_at(void *p, int64_t i, v8f v, bool bf16) {
    if (bf16) {
        narrow8((uint16_t *)p + i, v);
    } else {
        store8((float *)p + i, v);
    }
}
INLINE float element_at(const void *p, int64_t i, bool bf16) {
    return bf16 ? kolo_bf16_widen(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
INLINE void set_element(void *p, int64_t i, float number, bool bf16) {
    if (bf16) {
        ((uint16_t *)p)[i] = kolo_bf16_narrow(number);
    } else {
        ((float *)p)[i] = number;
    }
}

/* Converts n elements from element i on to floats, and back. */
INLINE void read_numbers(const void *p, int64_t i, int64_t n, float *to, bool bf16) {
    int64_t k = 0;
    for (; k + VL <= n; k += VL) store(to + k, load_at(p, i + k, bf16));
    for (; k < n; k++) to[k] = element_at(p, i + k, bf16);
}
INLINE void write_numbers(const float *from, int64_t n, void *p, int64_t i, bool bf16) {
    int64_t k = 0;
    for (; k + VL <= n; k += VL) store_at(p, i + k, load(from + k), bf16);
    for (; k < n; k++) set_element(p, i + k, from[k], bf16);
}
