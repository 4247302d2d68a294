#pragma once
/* Vector types of the instruction set that an *.isa.c source is compiled for, with f16 and bf16
 * conversions.
 *
 * Written with the compilers' vector extensions; V is the size of a vector in bytes. Only for
 * *.isa.c sources. */

#include <stdint.h>
#include <string.h>

#if KOLO_VECTOR_BYTES > 16 /* an x86 copy */
#include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { V = KOLO_VECTOR_BYTES };

#define VECTOR(name, element, bytes) typedef element name __attribute__((vector_size(bytes)))
VECTOR(f32v, float, V);
VECTOR(f64v, double, V);
VECTOR(i8v, int8_t, V);
VECTOR(u8v, uint8_t, V);
VECTOR(i16v, int16_t, V);
VECTOR(u16v, uint16_t, V);
VECTOR(i32v, int32_t, V);
VECTOR(u32v, uint32_t, V);
VECTOR(i64v, int64_t, V);
VECTOR(u64v, uint64_t, V);
VECTOR(u16h, uint16_t, V / 2); /* as many lanes as f32v */

/* ---- f16 and bf16 to f32 and back, to nearest even ---- */

/* GCC would split this AVX-512 conversion into two halves. */
#if KOLO_VECTOR_BYTES == 64
static inline u32v u16_widen(u16h h) { return (u32v)_mm512_cvtepu16_epi32((__m256i)h); }
static inline u16h u16_narrow(u32v v) { return (u16h)_mm512_cvtepi32_epi16((__m512i)v); }
#else
static inline u32v u16_widen(u16h h) { return __builtin_convertvector(h, u32v); }
static inline u16h u16_narrow(u32v v) { return __builtin_convertvector(v, u16h); }
#endif

static inline f32v bf16_widen(u16h h) { return (f32v)(u16_widen(h) << 16); }

static inline u16h bf16_narrow(f32v f) {
    u32v bits = (u32v)f;
    u32v rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    u32v quiet = (bits >> 16) | 0x40;
    u32v nan = (u32v)(f != f); /* NOLINT(misc-redundant-expression) */
    return u16_narrow((quiet & nan) | (rounded & ~nan));
}

#if KOLO_VECTOR_BYTES == 64
static inline f32v f16_widen(u16h h) { return (f32v)_mm512_cvtph_ps((__m256i)h); }
static inline u16h f16_narrow(f32v f) {
    return (u16h)_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif KOLO_VECTOR_BYTES == 32
static inline f32v f16_widen(u16h h) { return (f32v)_mm256_cvtph_ps((__m128i)h); }
static inline u16h f16_narrow(f32v f) {
    return (u16h)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
static inline float f16_widen_one(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    uint32_t bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0);
    } else if (exponent > 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* subnormal or zero: a multiple of 2^-24, exact in f32 */
        float f = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t f16_narrow_one(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (magnitude >= 0x38800000) {                                 /* normal */
        uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
    }
    /* Subnormal: adding 0.5 rounds to a multiple of 2^-24, which is then in the low bits. */
    float shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0.5f;
    memcpy(&bits, &shifted, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000));
}

static inline f32v f16_widen(u16h h) {
    f32v f = {0};
    for (int i = 0; i < V / 4; i++) f[i] = f16_widen_one(h[i]);
    return f;
}

static inline u16h f16_narrow(f32v f) {
    u16h h = {0};
    for (int i = 0; i < V / 4; i++) h[i] = f16_narrow_one(f[i]);
    return h;
}
#endif
