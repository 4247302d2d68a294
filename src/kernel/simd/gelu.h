#pragma once
/* GELU and its gradient for *.isa.c sources. NaN propagates. */

#include "kernel/simd/math.h"

#define ROOT_2_PI 0.797884561f /* sqrt(2 / pi) */

/* |x|, at most 12: gelu and its gradient are at their limits there, and no product overflows or is
 * subnormal. NaN stays. */
INLINE vf magnitude(vf x) { return smaller(splat(12), (vf)((vi)x & 0x7fffffff)); }

/* e^(-m^2 / 2) of a magnitude, as 2^n 2^f with f from -1/2 to 1/2. The polynomial is that of
 * exponential_parts, of f ln 2: off by at most 1.1e-7 of the result, rounding the exponent by 1e-7
 * m^2 of it. */
INLINE vf gaussian(vf m) {
    const vf shift = splat(12583039.0f); /* as in exponential_parts */
    const vf by = splat(-0.5f * 1.44269504f);
    vf square = m * m, power = mul_add(square, by, shift);
    vf f = mul_add(square, by, -(power - shift)), p = splat(1.33001339e-3f);
    p = mul_add(p, f, splat(9.66991577e-3f));
    p = mul_add(p, f, splat(5.55056110e-2f));
    p = mul_add(p, f, splat(0.240222782f));
    p = mul_add(p, f, splat(0.693147182f));
    p = mul_add(p, f, splat(1));
    return p * power_of_2((vu)power);
}

/* The probability of a normal variable above m, (1 - erf(m / sqrt(2))) / 2: the formula and
 * coefficients of error_function, with those halved. `gauss` is gaussian(m). */
INLINE vf tail(vf m, vf gauss) {
    vf t = reciprocal(mul_add(m, splat(0.3275911f * 0.707106781f), splat(1)));
    vf p = splat(0.5f * 1.061405429f);
    p = mul_add(p, t, splat(0.5f * -1.453152027f));
    p = mul_add(p, t, splat(0.5f * 1.421413741f));
    p = mul_add(p, t, splat(0.5f * -0.284496736f));
    p = mul_add(p, t, splat(0.5f * 0.254829592f));
    return p * t * gauss;
}

/* x P(x) with P the normal distribution, which is 1 - tail above zero and tail below. */
INLINE vf gelu_erf(vf x, vf unused) {
    vf m = magnitude(x);
    return mul_add(-m, tail(m, gaussian(m)), positive(x));
}

INLINE vf gelu_erf_bwd(vf dy, vf x) {
    vi sign = (vi)x & INT32_MIN;
    vf m = magnitude(x), gauss = gaussian(m), half = 0.5f - tail(m, gauss); /* P(|x|) - 1/2 */
    vf below = 0.5f + (vf)((vi)half ^ sign);
    return dy * mul_add((vf)((vi)m ^ sign), 0.5f * ROOT_2_PI * gauss, below);
}

/* At least -10, where the sigmoid is near the smallest normal float. NaN stays. */
INLINE vf above_limit(vf x) { return larger(splat(-10), x); }

/* (1 + tanh(u)) / 2 = sigmoid(2u) */
INLINE vf gelu_tanh(vf x, vf unused) {
    x = above_limit(x);
    vf u = ROOT_2_PI * x * (1.0f + 0.044715f * x * x);
    return x * sigmoid(2.0f * u);
}

INLINE vf gelu_tanh_bwd(vf dy, vf x) {
    x = smaller(splat(10), above_limit(x)); /* the slope is at its limits there */
    vf square = x * x, s = sigmoid(2.0f * ROOT_2_PI * x * (1.0f + 0.044715f * square));
    vf slope = 2.0f * ROOT_2_PI * (1.0f + 3 * 0.044715f * square);
    return dy * (s + x * s * (1.0f - s) * slope);
}
