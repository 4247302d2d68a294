/* Loops of the block codecs, compiled once per instruction set.
 *
 * A block stays in the L1 cache, so a kernel can make several passes: one for the scale or the
 * means, one to write the code and the residual. Results must not depend on the vector width:
 * sums use sixteen lanes with every instruction set, and multiplications are never fused with
 * additions. */
#include "comm/codec/kernels.h"
#include "comm/reduce/vector.isa.h"

#include <stdbool.h>

#if KOLO_VECTOR_BYTES == 16 && defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { LANES = V / 4, SUMS = 16 / LANES };

ALWAYS_INLINE f32v load(const float *from) {
    f32v v;
    memcpy(&v, from, sizeof v);
    return v;
}

ALWAYS_INLINE void store(float *to, f32v v) { memcpy(to, &v, sizeof v); }

ALWAYS_INLINE f32v splat(float x) { return x - (f32v){0}; }

ALWAYS_INLINE f32v pick(i32v mask, f32v yes, f32v no) {
    return (f32v)((mask & (i32v)yes) | (~mask & (i32v)no));
}

/* The residual of v; zero where v or its decoded value is not finite. */
ALWAYS_INLINE f32v rest(f32v v, f32v decoded) {
    f32v left = v - decoded;
    i32v finite = ((i32v)left & 0x7f800000) != 0x7f800000;
    return (f32v)((i32v)left & finite);
}

/* ---- f16, bf16 ---- */

/* Finite values beyond the largest half saturate. */
ALWAYS_INLINE f32v clamp_to_half(f32v v) {
    i32v bits = (i32v)v, magnitude = bits & 0x7fffffff;
    i32v large = (magnitude > 0x477fe000) & (magnitude < 0x7f800000);
    return (f32v)((large & ((bits & INT32_MIN) | 0x477fe000)) | (~large & bits));
}

static void f16_encode(float *v, size_t n, size_t valid, float *head, void *body) {
    for (size_t i = 0; i < n; i += LANES) {
        f32v x = load(v + i);
        u16h h = f16_narrow(clamp_to_half(x));
        memcpy((char *)body + 2 * i, &h, sizeof h);
        store(v + i, rest(x, f16_widen(h)));
    }
}

static void f16_decode(float *v, size_t n, const float *head, const void *body) {
    for (size_t i = 0; i < n; i += LANES) {
        u16h h;
        memcpy(&h, (const char *)body + 2 * i, sizeof h);
        store(v + i, f16_widen(h));
    }
}

static void bf16_encode(float *v, size_t n, size_t valid, float *head, void *body) {
    for (size_t i = 0; i < n; i += LANES) {
        f32v x = load(v + i);
        u16h h = bf16_narrow(x);
        memcpy((char *)body + 2 * i, &h, sizeof h);
        store(v + i, rest(x, bf16_widen(h)));
    }
}

static void bf16_decode(float *v, size_t n, const float *head, const void *body) {
    for (size_t i = 0; i < n; i += LANES) {
        u16h h;
        memcpy(&h, (const char *)body + 2 * i, sizeof h);
        store(v + i, bf16_widen(h));
    }
}

/* ---- int8 ---- */

/* Packs four vectors of integers in [-128, 127] into one vector of bytes, in order. */
ALWAYS_INLINE void store_bytes(void *to, i32v a, i32v b, i32v c, i32v d) {
#if KOLO_VECTOR_BYTES == 64
    const i32v words[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)to + i, _mm512_cvtepi32_epi8((__m512i)words[i]));
    }
#elif KOLO_VECTOR_BYTES == 32
    __m256i ab = _mm256_packs_epi32((__m256i)a, (__m256i)b);
    __m256i cd = _mm256_packs_epi32((__m256i)c, (__m256i)d);
    __m256i mixed = _mm256_packs_epi16(ab, cd); /* within 128-bit halves: a0 b0 c0 d0, a1 b1 c1
                                                 * d1 */
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(to, _mm256_permutevar8x32_epi32(mixed, order));
#elif defined(__SSE2__)
    __m128i ab = _mm_packs_epi32((__m128i)a, (__m128i)b);
    __m128i cd = _mm_packs_epi32((__m128i)c, (__m128i)d);
    _mm_storeu_si128(to, _mm_packs_epi16(ab, cd));
#else
    const i32v words[4] = {a, b, c, d};
    for (int i = 0; i < 4 * LANES; i++) ((int8_t *)to)[i] = (int8_t)words[i / LANES][i % LANES];
#endif
}

/* Widens bytes to the lanes of a vector. */
ALWAYS_INLINE f32v load_bytes(const int8_t *from) {
#if KOLO_VECTOR_BYTES == 64
    return (f32v)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
#elif KOLO_VECTOR_BYTES == 32
    return (f32v)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
#else
    f32v v = {0};
    for (int i = 0; i < LANES; i++) v[i] = from[i];
    return v;
#endif
}

/* The bit pattern of the largest magnitude; NaNs compare above all numbers. */
static int32_t largest(const float *v, size_t n) {
    i32v most[4] = {{0}, {0}, {0}, {0}};
    for (size_t i = 0; i < n; i += (size_t)4 * LANES) {
        for (int k = 0; k < 4; k++) {
            i32v magnitude = (i32v)load(v + i + (size_t)k * LANES) & 0x7fffffff;
            i32v larger = magnitude > most[k];
            most[k] = (larger & magnitude) | (~larger & most[k]);
        }
    }
    int32_t result = 0;
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < LANES; i++) result = most[k][i] > result ? most[k][i] : result;
    }
    return result;
}

/* Rounds to the nearest integer, ties to even: the addition pushes out the fraction bits. */
ALWAYS_INLINE i32v round_to_int(f32v x) {
    return (i32v)(x + 0x1.8p23f) - 0x4b400000; /* requires |x| <= 2^22 */
}

static void int8_block(float *v, float *scale_out, int8_t *body) {
    int32_t bits = largest(v, KOLO_INT8_BLOCK);
    float most, scale, inverse;
    memcpy(&most, &bits, sizeof most);
    if (bits >= 0x7f800000) { /* not finite: the block decodes to NaN */
        scale = __builtin_nanf("");
        inverse = 0;
    } else { /* too small to divide by: encodes zeros, everything stays in the residual */
        bool some = most > 1e-36f;
        scale = some ? most / 127 : 0;
        inverse = some ? 127 / most : 0;
    }
    *scale_out = scale;
    for (size_t i = 0; i < KOLO_INT8_BLOCK; i += (size_t)4 * LANES) {
        i32v q[4];
        for (int k = 0; k < 4; k++) {
            float *at = v + i + (size_t)k * LANES;
            f32v x = load(at);
            q[k] = scale == scale ? round_to_int(x * inverse) : (i32v){0};
            store(at, rest(x, __builtin_convertvector(q[k], f32v) * scale));
        }
        store_bytes(body + i, q[0], q[1], q[2], q[3]);
    }
}

static void int8_encode(float *v, size_t n, size_t valid, float *head, void *body) {
    for (size_t i = 0; i < n; i += KOLO_INT8_BLOCK) {
        int8_block(v + i, &head[i / KOLO_INT8_BLOCK], (int8_t *)body + i);
    }
}

static void int8_decode(float *v, size_t n, const float *head, const void *body) {
    for (size_t i = 0; i < n; i += LANES) {
        store(v + i, load_bytes((const int8_t *)body + i) * head[i / KOLO_INT8_BLOCK]);
    }
}

/* ---- onebit ---- */

/* Packs the signs of a mask's lanes into bits. */
ALWAYS_INLINE uint32_t mask_bits(i32v mask) {
#if KOLO_VECTOR_BYTES == 64
    return _mm512_movepi32_mask((__m512i)mask);
#elif KOLO_VECTOR_BYTES == 32
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)mask);
#else
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++) bits |= (uint32_t)(mask[i] & 1) << i;
    return bits;
#endif
}

/* Expands bits into a lane mask. */
ALWAYS_INLINE i32v bits_mask(uint32_t bits) {
    i32v lane = {0};
    for (int i = 0; i < LANES; i++) lane[i] = 1 << i;
    return (((int32_t)bits - (i32v){0}) & lane) != 0;
}

/* Sums sixteen lanes in a fixed order. */
static float fold(const f32v sums[SUMS]) {
    float lanes[16];
    memcpy(lanes, sums, sizeof lanes);
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}

static void onebit_encode(float *v, size_t n, size_t valid, float *head, void *body) {
    f32v above[SUMS] = {{0}}, below[SUMS] = {{0}};
    size_t n_below = 0;
    for (size_t i = 0; i < n; i += 32) {
        uint32_t word = 0;
        for (int k = 0; k < 32 / LANES; k++) {
            f32v x = load(v + i + (size_t)k * LANES);
            i32v negative = x < 0;
            above[k % SUMS] += (f32v)((i32v)x & ~negative);
            below[k % SUMS] += (f32v)((i32v)x & negative);
            word |= mask_bits(negative) << (k * LANES);
        }
        n_below += (size_t)__builtin_popcount(word);
        memcpy((char *)body + i / 8, &word, sizeof word);
    }
    size_t n_above = valid - n_below;
    head[0] = n_above > 0 ? fold(above) / (float)n_above : 0;
    head[1] = n_below > 0 ? fold(below) / (float)n_below : 0;
    f32v plus = splat(head[0]), minus = splat(head[1]);
    for (size_t i = 0; i < n; i += LANES) {
        f32v x = load(v + i);
        store(v + i, rest(x, pick(x < 0, minus, plus)));
    }
}

static void onebit_decode(float *v, size_t n, const float *head, const void *body) {
    f32v plus = splat(head[0]), minus = splat(head[1]);
    for (size_t i = 0; i < n; i += 32) {
        uint32_t word;
        memcpy(&word, (const char *)body + i / 8, sizeof word);
        for (int k = 0; k < 32 / LANES; k++) {
            store(v + i + (size_t)k * LANES, pick(bits_mask(word >> (k * LANES)), minus, plus));
        }
    }
}

/* ---- plain sums ---- */

static void add(float *v, const float *values, const float *residual, size_t n) {
    for (size_t i = 0; i < n; i++) v[i] = values[i] + residual[i];
}

static void add_scaled(float *sum, const float *v, float scale, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] += scale * v[i];
}

/* ---- the table ---- */

const kolo_codec_table KOLO_ISA_SYMBOL(kolo_codec) = {
    .block =
        {
            [KOLO_CODEC_F16] = {f16_encode, f16_decode},
            [KOLO_CODEC_BF16] = {bf16_encode, bf16_decode},
            [KOLO_CODEC_INT8] = {int8_encode, int8_decode},
            [KOLO_CODEC_ONEBIT] = {onebit_encode, onebit_decode},
        },
    .add = add,
    .add_scaled = add_scaled,
    .top = KOLO_ISA_SYMBOL(kolo_top),
};
