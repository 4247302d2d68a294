#pragma once
/* Vector math for *.isa.c sources: exp, sigmoid, tanh, erf, horizontal sums. NaN propagates. */

#include "kernel/simd/vector.h"

INLINE vf select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
INLINE __mmask16 lanes_below(int64_t n) { return (__mmask16)((1U << n) - 1); }

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
INLINE vf load_part(const float *p, int64_t n) {
    float lanes[VL] = {0};
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
    return load(lanes);
}
INLINE void store_part(float *p, vf v, int64_t n) {
    float lanes[VL];
    store(lanes, v);
    for (int64_t i = 0; i < n; i++) p[i] = lanes[i];
}

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

/* exp(x) = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2. The Taylor polynomial of degree
 * six leaves out r^7 / 7!, which is below 2^-23. Zero below -87, near the smallest normal float;
 * clamped above 88. */
INLINE vf exponential(vf x) {
    const vf shift = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vi vanishes = x < splat(-87.0f);
    x = smaller(splat(88.0f), x);
    vf t = mul_add(x, splat(1.44269504f), shift);
    vf n = t - shift;
    vf r = mul_add(n, splat(-0.693359375f), x); /* ln 2 in two parts */
    r = mul_add(n, splat(2.12194440e-4f), r);
    vf p = splat(1.0f / 720);
    p = mul_add(p, r, splat(1.0f / 120));
    p = mul_add(p, r, splat(1.0f / 24));
    p = mul_add(p, r, splat(1.0f / 6));
    p = mul_add(p, r, splat(0.5f));
    p = mul_add(p, r, splat(1));
    p = mul_add(p, r, splat(1));
    vi power = ((vi)t + 127) << 23; /* the low bits of t are n */
    return select(vanishes, splat(0), p * (vf)power);
}

INLINE vf sigmoid(vf x) { return 1.0f / (1.0f + exponential(-x)); }

/* By the exponential; near zero, where that cancels, by the Taylor series: for |x| < 0.1 the
 * next term, 17 x^7 / 315, is below 2^-23 of x. */
INLINE vf hyperbolic_tangent(vf x) {
    vf square = x * x;
    vf series = x * mul_add(square, mul_add(square, splat(2.0f / 15), splat(-1.0f / 3)), splat(1));
    vf whole = 1.0f - 2.0f / (1.0f + exponential(2.0f * x));
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
        vf most = load(x);
        for (i = VL; i + VL <= n; i += VL) most = larger(load(x + i), most);
        float lanes[VL];
        store(lanes, most);
        largest = lanes[0];
        for (int k = 1; k < VL; k++) largest = lanes[k] > largest ? lanes[k] : largest;
    }
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* out = exp(x - by), which may alias x; returns the sum. */
INLINE float exponentials(const float *x, float by, int64_t n, float *out) {
    vf sum = splat(0);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf e = exponential(load(x + i) - by);
        store(out + i, e);
        sum += e;
    }
    float total = sum_lanes(sum);
    if (i == n) return total;
    store_part(out + i, exponential(load_part(x + i, n - i) - by), n - i);
    for (; i < n; i++) total += out[i];
    return total;
}
