#pragma once
/* Vector math for *.isa.c sources: exp, log, sigmoid, tanh, erf, horizontal sums. NaN propagates.
 */

#include "kernel/simd/vector.h"

#define UNROLL _Pragma("GCC unroll 16")

INLINE vf select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
INLINE __mmask16 lanes_below(int64_t n) { return (__mmask16)((1U << n) - 1); }

/* v where x is not below `least`, else 0. */
INLINE vf unless_below(vf x, float least, vf v) {
    const __mmask16 kept = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(least), _CMP_NLT_UQ);
    return (vf)_mm512_maskz_mov_ps(kept, (__m512)v);
}

/* The first n lanes of a, the others of b. */
INLINE vf join_lanes(vf a, vf b, int64_t n) {
    return (vf)_mm512_mask_mov_ps((__m512)b, lanes_below(n), (__m512)a);
}

/* Loads the first n < VL floats, the rest zero. */
INLINE vf load_part(const float *p, int64_t n) {
    return (vf)_mm512_maskz_loadu_ps(lanes_below(n), p);
}
INLINE void store_part(float *p, vf v, int64_t n) {
    _mm512_mask_storeu_ps(p, lanes_below(n), (__m512)v);
}

INLINE float sum_lanes(vf v) { return _mm512_reduce_add_ps((__m512)v); }
/* Ignores NaN lanes. */
INLINE float largest_lane(vf v) { return _mm512_reduce_max_ps((__m512)v); }
#else
INLINE vf unless_below(vf x, float least, vf v) { return select(x < splat(least), splat(0), v); }

INLINE vi lanes_below(int64_t n) {
    vi lane;
    for (int i = 0; i < VL; i++) lane[i] = i;
    return lane < (int32_t)n;
}
INLINE vf join_lanes(vf a, vf b, int64_t n) {
#if KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
    return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)lanes_below(n));
#else
    return select(lanes_below(n), a, b);
#endif
}

#if KOLO_VECTOR_BYTES == 32 && defined(__FMA__)
INLINE vf load_part(const float *p, int64_t n) {
    return (vf)_mm256_maskload_ps(p, (__m256i)lanes_below(n));
}
INLINE void store_part(float *p, vf v, int64_t n) {
    _mm256_maskstore_ps(p, (__m256i)lanes_below(n), (__m256)v);
}
#else
INLINE vf load_part(const float *p, int64_t n) {
    float lanes[VL] = {0};
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): p has n numbers
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
    return load(lanes);
}
INLINE void store_part(float *p, vf v, int64_t n) {
    float lanes[VL];
    store(lanes, v);
    for (int64_t i = 0; i < n; i++) p[i] = lanes[i];
}
#endif

INLINE float sum_lanes(vf v) {
    float lanes[VL];
    store(lanes, v);
    for (int half = VL / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}
INLINE float largest_lane(vf v) {
    float lanes[VL];
    store(lanes, v);
    for (int half = VL / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
        }
    }
    return lanes[0];
}
#endif

/* Elements [i, i + n) of an f32 or bf16 tensor, n < VL. */
INLINE vf load_part_at(const void *p, int64_t i, int64_t n, bool bf16) {
    uint16_t lanes[VL] = {0};
    if (!bf16) return load_part((const float *)p + i, n);
    for (int64_t k = 0; k < n; k++) lanes[k] = ((const uint16_t *)p)[i + k];
    return widen_vector(lanes);
}
INLINE void store_part_at(void *p, int64_t i, vf v, int64_t n, bool bf16) {
    if (bf16) {
        uint16_t lanes[VL];
        narrow_vector(lanes, v);
        for (int64_t k = 0; k < n; k++) ((uint16_t *)p)[i + k] = lanes[k];
    } else {
        store_part((float *)p + i, v, n);
    }
}

/* exp(x) = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2: returns e^r. The polynomial of
 * degree five is off by at most 1.1e-7 of the result: the minimax one among those with the first
 * two coefficients of Taylor's, so that e^0 is 1. The low bits of *power are n + 127, the exponent
 * of 2^n; of a NaN, any number. */
INLINE vf exponential_parts(vf x, vu *power) {
    const vf shift = splat(12583039.0f); /* 1.5 * 2^23 + 127: adding it rounds to an integer */
    vf t = mul_add(x, splat(1.44269504f), shift);
    vf n = t - shift;
    *power = (vu)t;
    vf r = mul_add(n, splat(-0.693359375f), x); /* ln 2 in two parts */
    r = mul_add(n, splat(2.12194440e-4f), r);
    vf p = splat(8.31244384e-3f);
    p = mul_add(p, r, splat(4.18910117e-2f));
    p = mul_add(p, r, splat(0.166671181f));
    p = mul_add(p, r, splat(0.499992257f));
    p = mul_add(p, r, splat(1));
    p = mul_add(p, r, splat(1));
    return p;
}

/* 2^n for n from -126 to 127, given n + 127 in the low bits; zero for -127. */
INLINE vf power_of_2(vu biased) { return (vf)(biased << 23); }

/* exp(x) of an x that is at most 88; zero below -87.7, near the smallest normal float: there n is
 * -127. */
INLINE vf exponential_to_88(vf x) {
    vu power;
    vf p = exponential_parts(larger(splat(-88), x), &power);
    return p * power_of_2(power);
}

/* The same of TOGETHER vectors, with the same bits, step by step: a processor that looks only some
 * tens of instructions ahead waits for each step of a single one. */
enum { TOGETHER = VL == 16 ? 2 : 4 };
INLINE void exponentials_to_88(vf x[TOGETHER]) {
    const vf shift = splat(12583039.0f);
    vf t[TOGETHER], n[TOGETHER], p[TOGETHER];
#define EACH(step) UNROLL for (int k = 0; k < TOGETHER; k++) step
    EACH(x[k] = larger(splat(-88), x[k]));
    EACH(t[k] = mul_add(x[k], splat(1.44269504f), shift));
    EACH(n[k] = t[k] - shift);
    EACH(x[k] = mul_add(n[k], splat(-0.693359375f), x[k]));
    EACH(x[k] = mul_add(n[k], splat(2.12194440e-4f), x[k]));
    EACH(p[k] = mul_add(splat(8.31244384e-3f), x[k], splat(4.18910117e-2f)));
    EACH(p[k] = mul_add(p[k], x[k], splat(0.166671181f)));
    EACH(p[k] = mul_add(p[k], x[k], splat(0.499992257f)));
    EACH(p[k] = mul_add(p[k], x[k], splat(1)));
    EACH(p[k] = mul_add(p[k], x[k], splat(1)));
    EACH(x[k] = p[k] * power_of_2((vu)t[k]));
#undef EACH
}

/* The same of any x, clamped above 88. */
INLINE vf exponential(vf x) { return exponential_to_88(smaller(splat(88.0f), x)); }

/* exp(x) to infinity, and through the subnormal numbers to zero. */
INLINE vf exponential_full(vf x) {
    vu power;
    vf p = exponential_parts(smaller(splat(89.0f), larger(splat(-104.0f), x)), &power);
    vi n = (vi)(power - (vu)splat(12583039.0f)), half = n >> 1;
    return p * power_of_2((vu)half + 127) * power_of_2((vu)(n - half) + 127);
}

/* exp(x) - 1 for x below 1; near zero, where that cancels, by the Taylor series, which leaves out
 * x^8 / 8!. */
INLINE vf exponential_minus_1(vf x) {
    vf series = mul_add(x, splat(1.0f / 7), splat(1));
    for (int k = 6; k > 1; k--) series = mul_add(series, x * (1.0f / (float)k), splat(1));
    vi small = (x > splat(-0.35f)) & (x < splat(0.35f));
    return select(small, x * series, exponential(x) - 1.0f);
}

/* log(1 + t) for t from 0 to 1: 2 atanh(s) with s = t / (2 + t), at most 1/3; the series leaves out
 * s^17 / 17. */
INLINE vf log_1p(vf t) {
    vf s = t / (2.0f + t), square = s * s, sum = splat(1.0f / 15);
    for (int k = 13; k > 0; k -= 2) sum = mul_add(sum, square, splat(1.0f / (float)k));
    return 2.0f * s * sum;
}

/* log(x) = n ln 2 + log(m) with m from sqrt(1/2) to sqrt(2), and log(m) = 2 atanh(s) with s = (m -
 * 1) / (m + 1), at most 0.172; the series leaves out s^11 / 11. NaN below zero. */
INLINE vf logarithm(vf x) {
    vi subnormal = x < splat(0x1p-126f);
    vi bits = (vi)select(subnormal, x * 0x1p23f, x);
    vi n = (vi)((vu)bits - 0x3f3504f3u) >> 23; /* the bits of sqrt(1/2) */
    vf m = (vf)((vu)bits - ((vu)n << 23));
    vf s = (m - 1.0f) / (m + 1.0f), square = s * s, sum = splat(1.0f / 9);
    for (int k = 7; k > 1; k -= 2) sum = mul_add(sum, square, splat(1.0f / (float)k));
    vf e = __builtin_convertvector(n - (subnormal & 23), vf);
    vf low = mul_add(e, splat(-2.12194440e-4f), 2.0f * s * square * sum); /* ln 2 in two parts */
    vf y = mul_add(e, splat(0.693359375f), 2.0f * s + low);
    y = select(x > splat(0x1.fffffep127f), x, y);
    return select(x > splat(0), y,
                  select(x == splat(0), splat(-__builtin_inff()), splat(__builtin_nanf(""))));
}

/* 1 / x for x from 2^-126 to 2^127, to a rounding error. AVX-512 approximates it with 14 bits,
 * which a Newton step doubles: that takes less than a division, of which the processor does one at
 * a time.
 */
INLINE vf reciprocal(vf x) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    const __m512 y = _mm512_rcp14_ps((__m512)x);
    return (vf)_mm512_fmadd_ps(_mm512_fnmadd_ps((__m512)x, y, _mm512_set1_ps(1)), y, y);
#else
    return 1.0f / x;
#endif
}

/* 1 / (1 + e^-x); of an x below -88 that of -88. */
INLINE vf sigmoid(vf x) {
    vu power;
    vf p = exponential_parts(-larger(splat(-88), smaller(splat(87), x)), &power);
    return reciprocal(mul_add(p, power_of_2(power), splat(1)));
}

/* By the exponential; near zero, where that cancels, by the Taylor series: for |x| < 0.1 the
 * next term, 17 x^7 / 315, is below 2^-23 of x. */
INLINE vf hyperbolic_tangent(vf x) {
    vf square = x * x;
    vf series = x * mul_add(square, mul_add(square, splat(2.0f / 15), splat(-1.0f / 3)), splat(1));
    vf whole = 1.0f - 2.0f * reciprocal(1.0f + exponential(2.0f * x));
    return select(square < splat(0.01f), series, whole);
}

/* 1 - erf(|x|) = p(t) e^(-x^2), t = 1 / (1 + 0.3275911 |x|), with an error of 1.5e-7
 * (Abramowitz, Stegun, 7.1.26). `gauss` is e^(-x^2). */
INLINE vf error_function(vf x, vf gauss) {
    vf size = larger(x, -x);
    vf t = 1.0f / mul_add(size, splat(0.3275911f), splat(1));
    vf p = splat(1.061405429f);
    p = mul_add(p, t, splat(-1.453152027f));
    p = mul_add(p, t, splat(1.421413741f));
    p = mul_add(p, t, splat(-0.284496736f));
    p = mul_add(p, t, splat(0.254829592f));
    vf y = 1.0f - p * t * gauss;
    return select(x < splat(0), -y, y);
}

/* ---- rows ---- */

INLINE float largest_in(const float *x, int64_t n) {
    float largest = x[0];
    int64_t i = 0;
    if (n >= VL) {
        vf most[4] = {load(x), load(x), load(x), load(x)};
        for (i = VL; i + 4 * VL <= n; i += 4 * VL) {
            for (int k = 0; k < 4; k++) most[k] = larger(load(x + i + k * VL), most[k]);
        }
        for (; i + VL <= n; i += VL) most[0] = larger(load(x + i), most[0]);
        float lanes[VL];
        store(lanes, larger(larger(most[1], most[0]), larger(most[3], most[2])));
        largest = lanes[0];
        for (int k = 1; k < VL; k++) largest = lanes[k] > largest ? lanes[k] : largest;
    }
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* out = exp(x - by), which may alias x, with `by` the largest x; returns the sum. Prefetches what
 * lies `ahead` floats after x, unless that is 0. */
INLINE float exponentials_fetching(const float *x, float by, int64_t n, float *out, int64_t ahead) {
    vf sum = splat(0);
    int64_t i = 0;
    for (; i + TOGETHER * VL <= n; i += TOGETHER * VL) {
        vf e[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) {
            if (ahead) __builtin_prefetch(x + ahead + i + k * VL);
            e[k] = load(x + i + k * VL) - by;
        }
        exponentials_to_88(e);
        for (int k = 0; k < TOGETHER; k++) {
            store(out + i + k * VL, e[k]);
            sum += e[k];
        }
    }
    for (; i + VL <= n; i += VL) {
        if (ahead) __builtin_prefetch(x + ahead + i);
        vf e = exponential_to_88(load(x + i) - by);
        store(out + i, e);
        sum += e;
    }
    float total = sum_lanes(sum);
    if (i == n) return total;
    store_part(out + i, exponential_to_88(load_part(x + i, n - i) - by), n - i);
    for (; i < n; i++) total += out[i];
    return total;
}

INLINE float exponentials(const float *x, float by, int64_t n, float *out) {
    return exponentials_fetching(x, by, n, out, 0);
}
