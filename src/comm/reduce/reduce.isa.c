/* Reduction loops, compiled once per instruction set.
 *
 * A kernel processes tiles of four machine vectors: it loads the tile of the first source,
 * combines those of the other sources and stores the result to every destination. The remainder
 * goes through one zero-padded vector at a time, with the same operation per lane, so it has the
 * same bits as the main loop. Written with the compilers' vector extensions: REDUCE_KERNEL is
 * one type and operation, KERNELS_OF the four arithmetic operations of a type, BITS_OF those on the
 * bits of integers, COMPLEX_OF those of complex numbers.
 *
 * Integers wrap around (sum and product are computed unsigned). min and max return NaN if either
 * operand is NaN. */
#include "comm/reduce/reduce.h"

#include "comm/reduce/vector.isa.h"

/* ---- operations on vectors; `mask` is the integer vector of a comparison ---- */

#define SAME(x) (x)
#define SUM(a, b, vector, mask) ((a) + (b))
#define PROD(a, b, vector, mask) ((a) * (b))
#define AND(a, b, vector, mask) ((a) & (b))
#define OR(a, b, vector, mask) ((a) | (b))
#define XOR(a, b, vector, mask) ((a) ^ (b))
#define PICK(m, a, b, vector, mask) ((vector)(((mask)(a) & (m)) | ((mask)(b) & ~(m))))
#define MIN(a, b, vector, mask) PICK(((mask)((a) < (b)) | (mask)((a) != (a))), a, b, vector, mask)
#define MAX(a, b, vector, mask) PICK(((mask)((a) > (b)) | (mask)((a) != (a))), a, b, vector, mask)

/* ---- kernels ---- */

/* name: prefix of the functions; bytes: size of an element; memory: the vector type in memory;
 * vector: the type of the computation; widen and narrow convert between the two. */
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
        if (n_from == 2 && n_to == 2) { /* two ranks: keep the pointers in registers */            \
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
KERNELS_OF(u16, 2, u16v, u16v, u16v, SAME, SAME)
KERNELS_OF(u32, 4, u32v, u32v, u32v, SAME, SAME)
KERNELS_OF(u64, 8, u64v, u64v, u64v, SAME, SAME)
REDUCE_KERNEL(i16_min, 2, i16v, i16v, i16v, SAME, SAME, MIN)
REDUCE_KERNEL(i16_max, 2, i16v, i16v, i16v, SAME, SAME, MAX)
REDUCE_KERNEL(i32_min, 4, i32v, i32v, i32v, SAME, SAME, MIN)
REDUCE_KERNEL(i32_max, 4, i32v, i32v, i32v, SAME, SAME, MAX)
REDUCE_KERNEL(i64_min, 8, i64v, i64v, i64v, SAME, SAME, MIN)
REDUCE_KERNEL(i64_max, 8, i64v, i64v, i64v, SAME, SAME, MAX)

#define BITS_OF(bytes)                                                         \
    REDUCE_KERNEL(bits##bytes##_and, bytes, u64v, u64v, u64v, SAME, SAME, AND) \
    REDUCE_KERNEL(bits##bytes##_or, bytes, u64v, u64v, u64v, SAME, SAME, OR)   \
    REDUCE_KERNEL(bits##bytes##_xor, bytes, u64v, u64v, u64v, SAME, SAME, XOR)

BITS_OF(1)
BITS_OF(2)
BITS_OF(4)
BITS_OF(8)

/* Complex numbers: pairs of `real`, which are added as real numbers and multiplied one by one. */
#define COMPLEX_OF(type, element, real)                                                     \
    typedef element type##_part __attribute__((aligned(1), may_alias));                     \
    static void type##_sum(void *const *to, int n_to, const void *const *from, int n_from,  \
                           size_t count) {                                                  \
        real##_sum(to, n_to, from, n_from, 2 * count);                                      \
    }                                                                                       \
    static void type##_prod(void *const *to, int n_to, const void *const *from, int n_from, \
                            size_t count) {                                                 \
        for (size_t i = 0; i < 2 * count; i += 2) {                                         \
            const type##_part *x = from[0];                                                 \
            element re = x[i], im = x[i + 1];                                               \
            for (int p = 1; p < n_from; p++) {                                              \
                const type##_part *y = from[p];                                             \
                element product = re * y[i] - im * y[i + 1];                                \
                im = re * y[i + 1] + im * y[i];                                             \
                re = product;                                                               \
            }                                                                               \
            for (int p = 0; p < n_to; p++) {                                                \
                type##_part *z = to[p];                                                     \
                z[i] = re;                                                                  \
                z[i + 1] = im;                                                              \
            }                                                                               \
        }                                                                                   \
    }

COMPLEX_OF(c64, float, f32)
COMPLEX_OF(c128, double, f64)

/* ---- scaling ---- */

#define SCALE_KERNEL(type, element, wide)                                         \
    typedef element type##_loose __attribute__((aligned(1), may_alias));          \
    static void type##_scale(void *data, size_t count, double factor) {           \
        type##_loose *x = data;                                                   \
        for (size_t i = 0; i < count; i++) x[i] = (element)((wide)x[i] * factor); \
    }
#define DIVIDE_KERNEL(type, element, wide)                                   \
    typedef element type##_loose __attribute__((aligned(1), may_alias));     \
    static void type##_scale(void *data, size_t count, double factor) {      \
        type##_loose *x = data;                                              \
        wide divisor = (wide)(1 / factor + 0.5);                             \
        for (size_t i = 0; i < count; i++) x[i] = (element)(x[i] / divisor); \
    }
#define COMPLEX_SCALE(type, real)                                       \
    static void type##_scale(void *data, size_t count, double factor) { \
        real##_scale(data, 2 * count, factor);                          \
    }
/* One vector at a time; the remainder through a padded vector. */
#define SCALE_HALF_KERNEL(type)                                         \
    static void type##_scale(void *data, size_t count, double factor) { \
        size_t end = count * sizeof(uint16_t);                          \
        float f = (float)factor;                                        \
        for (size_t at = 0, n; at < end; at += n) {                     \
            n = end - at < sizeof(u16h) ? end - at : sizeof(u16h);      \
            u16h h = {0};                                               \
            memcpy(&h, (char *)data + at, n);                           \
            h = type##_narrow(type##_widen(h) * f);                     \
            memcpy((char *)data + at, &h, n);                           \
        }                                                               \
    }

SCALE_KERNEL(f32, float, double)
SCALE_KERNEL(f64, double, double)
SCALE_HALF_KERNEL(f16)
SCALE_HALF_KERNEL(bf16)
DIVIDE_KERNEL(i8, int8_t, int64_t)
DIVIDE_KERNEL(u8, uint8_t, int64_t)
DIVIDE_KERNEL(i32, int32_t, int64_t)
DIVIDE_KERNEL(i64, int64_t, int64_t)
DIVIDE_KERNEL(i16, int16_t, int64_t)
DIVIDE_KERNEL(u16, uint16_t, int64_t)
DIVIDE_KERNEL(u32, uint32_t, int64_t)
DIVIDE_KERNEL(u64, uint64_t, uint64_t)
COMPLEX_SCALE(c64, f32)
COMPLEX_SCALE(c128, f64)

#define ROW(type)                                                              \
    [KOLO_SUM] = type##_sum, [KOLO_MIN] = type##_min, [KOLO_MAX] = type##_max, \
    [KOLO_PROD] = type##_prod
/* Sums and products of signed integers wrap around like those of unsigned ones. */
#define SIGNED_ROW(bits)                                                                \
    [KOLO_SUM] = u##bits##_sum, [KOLO_MIN] = i##bits##_min, [KOLO_MAX] = i##bits##_max, \
    [KOLO_PROD] = u##bits##_prod
#define BITS_ROW(bytes)                                                   \
    [KOLO_AND - 1] = bits##bytes##_and, [KOLO_OR - 1] = bits##bytes##_or, \
                [KOLO_XOR - 1] = bits##bytes##_xor

const kolo_reduce_table KOLO_ISA_SYMBOL(kolo_reduce) = {
    .scale =
        {
            [KOLO_DTYPE_F32] = f32_scale,
            [KOLO_DTYPE_F64] = f64_scale,
            [KOLO_DTYPE_F16] = f16_scale,
            [KOLO_DTYPE_BF16] = bf16_scale,
            [KOLO_DTYPE_I8] = i8_scale,
            [KOLO_DTYPE_U8] = u8_scale,
            [KOLO_DTYPE_I32] = i32_scale,
            [KOLO_DTYPE_I64] = i64_scale,
            [KOLO_DTYPE_I16] = i16_scale,
            [KOLO_DTYPE_U16] = u16_scale,
            [KOLO_DTYPE_U32] = u32_scale,
            [KOLO_DTYPE_U64] = u64_scale,
            [KOLO_DTYPE_C64] = c64_scale,
            [KOLO_DTYPE_C128] = c128_scale,
        },
    .fn =
        {
            [KOLO_DTYPE_F32] = {ROW(f32)},
            [KOLO_DTYPE_F64] = {ROW(f64)},
            [KOLO_DTYPE_F16] = {ROW(f16)},
            [KOLO_DTYPE_BF16] = {ROW(bf16)},
            [KOLO_DTYPE_I8] = {SIGNED_ROW(8), BITS_ROW(1)},
            [KOLO_DTYPE_U8] = {ROW(u8), BITS_ROW(1)},
            [KOLO_DTYPE_I32] = {SIGNED_ROW(32), BITS_ROW(4)},
            [KOLO_DTYPE_I64] = {SIGNED_ROW(64), BITS_ROW(8)},
            [KOLO_DTYPE_I16] = {SIGNED_ROW(16), BITS_ROW(2)},
            [KOLO_DTYPE_U16] = {ROW(u16), BITS_ROW(2)},
            [KOLO_DTYPE_U32] = {ROW(u32), BITS_ROW(4)},
            [KOLO_DTYPE_U64] = {ROW(u64), BITS_ROW(8)},
            [KOLO_DTYPE_C64] = {[KOLO_SUM] = c64_sum, [KOLO_PROD] = c64_prod},
            [KOLO_DTYPE_C128] = {[KOLO_SUM] = c128_sum, [KOLO_PROD] = c128_prod},
        },
};
