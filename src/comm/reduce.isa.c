/* Reduction loops, compiled once per instruction set.
 *
 * A kernel walks the vectors in tiles of four machine vectors: loads the tile of the first source,
 * combines those of the others into it, stores it to every destination. What is left goes one
 * vector at a time, padded; the arithmetic is the same operation on the same lanes, so the tail has
 * the bits of the main loop. Written with the compilers' vector extensions: REDUCE_KERNEL is one
 * type and one operation, KERNELS_OF the four operations of one type.
 *
 * Integers wrap around (sum and product are taken unsigned). min and max give NaN if either is. */
#include "comm/reduce.h"

#include <string.h>

#if KOLO_VECTOR_BYTES > 16 /* an x86 copy */
#include <immintrin.h>
#endif

enum { V = KOLO_VECTOR_BYTES };

#define VECTOR(name, element, bytes) typedef element name __attribute__((vector_size(bytes)))
VECTOR(f32v, float, V);
VECTOR(f64v, double, V);
VECTOR(i8v, int8_t, V);
VECTOR(u8v, uint8_t, V);
VECTOR(i32v, int32_t, V);
VECTOR(u32v, uint32_t, V);
VECTOR(i64v, int64_t, V);
VECTOR(u64v, uint64_t, V);
VECTOR(u16h, uint16_t, V / 2); /* as many lanes as f32v */

/* ---- f16 and bf16 to f32 and back, to nearest even ---- */

static inline f32v bf16_widen(u16h h) { return (f32v)(__builtin_convertvector(h, u32v) << 16); }

static inline u16h bf16_narrow(f32v f) {
    u32v bits = (u32v)f;
    u32v rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    u32v quiet = (bits >> 16) | 0x40;
    u32v nan = (u32v)(f != f); /* NOLINT(misc-redundant-expression) */
    return __builtin_convertvector((quiet & nan) | (rounded & ~nan), u16h);
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
static float f16_widen_one(uint16_t h) {
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

static uint16_t f16_narrow_one(float f) {
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
    /* Subnormal: adding 0.5 leaves the multiple of 2^-24, rounded by the addition, in the low bits.
     */
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

/* ---- operations on vectors; `mask` is the integer vector of a comparison ---- */

#define SAME(x) (x)
#define SUM(a, b, vector, mask) ((a) + (b))
#define PROD(a, b, vector, mask) ((a) * (b))
#define PICK(m, a, b, vector, mask) ((vector)(((mask)(a) & (m)) | ((mask)(b) & ~(m))))
#define MIN(a, b, vector, mask) PICK(((mask)((a) < (b)) | (mask)((a) != (a))), a, b, vector, mask)
#define MAX(a, b, vector, mask) PICK(((mask)((a) > (b)) | (mask)((a) != (a))), a, b, vector, mask)

/* ---- kernels ---- */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* name: of the kernel; element bytes; memory: the vector as it lies in memory; vector: as it is
 * combined; widen and narrow go between the two. */
#define REDUCE_KERNEL(name, bytes, memory, vector, mask, widen, narrow, COMBINE)                   \
    ALWAYS_INLINE vector name##_load(const void *from, size_t at) {                                \
        memory m;                                                                                  \
        memcpy(&m, (const char *)from + at, sizeof m);                                             \
        return widen(m);                                                                           \
    }                                                                                              \
    ALWAYS_INLINE void name##_store(void *to, size_t at, vector value) {                           \
        memory m = narrow(value);                                                                  \
        memcpy((char *)to + at, &m, sizeof m);                                                     \
    }                                                                                              \
    ALWAYS_INLINE void name##_tile(void *const *to, int n_to, const void *const *from, int n_from, \
                                   size_t at) {                                                    \
        enum { M = sizeof(memory) };                                                               \
        vector a = name##_load(from[0], at), b = name##_load(from[0], at + M);                     \
        vector c = name##_load(from[0], at + 2 * M), d = name##_load(from[0], at + 3 * M);         \
        for (int p = 1; p < n_from; p++) {                                                         \
            vector e = name##_load(from[p], at), f = name##_load(from[p], at + M);                 \
            vector g = name##_load(from[p], at + 2 * M), h = name##_load(from[p], at + 3 * M);     \
            a = COMBINE(a, e, vector, mask);                                                       \
            b = COMBINE(b, f, vector, mask);                                                       \
            c = COMBINE(c, g, vector, mask);                                                       \
            d = COMBINE(d, h, vector, mask);                                                       \
        }                                                                                          \
        for (int p = 0; p < n_to; p++) {                                                           \
            name##_store(to[p], at, a);                                                            \
            name##_store(to[p], at + M, b);                                                        \
            name##_store(to[p], at + 2 * M, c);                                                    \
            name##_store(to[p], at + 3 * M, d);                                                    \
        }                                                                                          \
    }                                                                                              \
    static void name##_tail(void *const *to, int n_to, const void *const *from, int n_from,        \
                            size_t at, size_t end) {                                               \
        while (at < end) {                                                                         \
            size_t n = end - at < sizeof(memory) ? end - at : sizeof(memory);                      \
            memory m = {0};                                                                        \
            memcpy(&m, (const char *)from[0] + at, n);                                             \
            vector a = widen(m);                                                                   \
            for (int p = 1; p < n_from; p++) {                                                     \
                memcpy(&m, (const char *)from[p] + at, n);                                         \
                vector e = widen(m);                                                               \
                a = COMBINE(a, e, vector, mask);                                                   \
            }                                                                                      \
            m = narrow(a);                                                                         \
            for (int p = 0; p < n_to; p++) memcpy((char *)to[p] + at, &m, n);                      \
            at += n;                                                                               \
        }                                                                                          \
    }                                                                                              \
    static void name(void *const *to, int n_to, const void *const *from, int n_from,               \
                     size_t count) {                                                               \
        enum { TILE = 4 * sizeof(memory) };                                                        \
        size_t at = 0, end = count * (bytes), tiles = end / TILE * TILE;                           \
        if (n_from == 2 && n_to == 2) { /* two ranks: pointers stay in registers */                \
            void *const t[2] = {to[0], to[1]};                                                     \
            const void *const f[2] = {from[0], from[1]};                                           \
            for (; at < tiles; at += TILE) name##_tile(t, 2, f, 2, at);                            \
        } else if (n_from == 2 && n_to == 1) {                                                     \
            void *const t[1] = {to[0]};                                                            \
            const void *const f[2] = {from[0], from[1]};                                           \
            for (; at < tiles; at += TILE) name##_tile(t, 1, f, 2, at);                            \
        } else {                                                                                   \
            for (; at < tiles; at += TILE) name##_tile(to, n_to, from, n_from, at);                \
        }                                                                                          \
        name##_tail(to, n_to, from, n_from, at, end);                                              \
    }

#define KERNELS_OF(type, bytes, memory, vector, mask, widen, narrow)           \
    REDUCE_KERNEL(type##_sum, bytes, memory, vector, mask, widen, narrow, SUM) \
    REDUCE_KERNEL(type##_min, bytes, memory, vector, mask, widen, narrow, MIN) \
    REDUCE_KERNEL(type##_max, bytes, memory, vector, mask, widen, narrow, MAX) \
    REDUCE_KERNEL(type##_prod, bytes, memory, vector, mask, widen, narrow, PROD)

KERNELS_OF(f32, 4, f32v, f32v, i32v, SAME, SAME)
KERNELS_OF(f64, 8, f64v, f64v, i64v, SAME, SAME)
KERNELS_OF(f16, 2, u16h, f32v, i32v, f16_widen, f16_narrow)
KERNELS_OF(bf16, 2, u16h, f32v, i32v, bf16_widen, bf16_narrow)
KERNELS_OF(u8, 1, u8v, u8v, u8v, SAME, SAME)
REDUCE_KERNEL(i8_min, 1, i8v, i8v, i8v, SAME, SAME, MIN)
REDUCE_KERNEL(i8_max, 1, i8v, i8v, i8v, SAME, SAME, MAX)
REDUCE_KERNEL(i32_sum, 4, u32v, u32v, u32v, SAME, SAME, SUM)
REDUCE_KERNEL(i32_min, 4, i32v, i32v, i32v, SAME, SAME, MIN)
REDUCE_KERNEL(i32_max, 4, i32v, i32v, i32v, SAME, SAME, MAX)
REDUCE_KERNEL(i32_prod, 4, u32v, u32v, u32v, SAME, SAME, PROD)
REDUCE_KERNEL(i64_sum, 8, u64v, u64v, u64v, SAME, SAME, SUM)
REDUCE_KERNEL(i64_min, 8, i64v, i64v, i64v, SAME, SAME, MIN)
REDUCE_KERNEL(i64_max, 8, i64v, i64v, i64v, SAME, SAME, MAX)
REDUCE_KERNEL(i64_prod, 8, u64v, u64v, u64v, SAME, SAME, PROD)

#define ROW(type)                                                                  \
    {                                                                              \
        [KOLO_SUM] = type##_sum, [KOLO_MIN] = type##_min, [KOLO_MAX] = type##_max, \
        [KOLO_PROD] = type##_prod                                                  \
    }
#define TABLE_OF(isa) kolo_reduce_##isa
#define TABLE_NAME(isa) TABLE_OF(isa)
#define TEXT_OF(isa) #isa
#define TEXT(isa) TEXT_OF(isa)

extern const kolo_reduce_table TABLE_NAME(KOLO_ISA);
const kolo_reduce_table TABLE_NAME(KOLO_ISA) = {
    .isa = TEXT(KOLO_ISA),
    .fn =
        {
            [KOLO_DTYPE_F32] = ROW(f32),
            [KOLO_DTYPE_F64] = ROW(f64),
            [KOLO_DTYPE_F16] = ROW(f16),
            [KOLO_DTYPE_BF16] = ROW(bf16),
            [KOLO_DTYPE_I8] = {[KOLO_SUM] = u8_sum,
                               [KOLO_MIN] = i8_min,
                               [KOLO_MAX] = i8_max,
                               [KOLO_PROD] = u8_prod},
            [KOLO_DTYPE_U8] = ROW(u8),
            [KOLO_DTYPE_I32] = ROW(i32),
            [KOLO_DTYPE_I64] = ROW(i64),
        },
};
