/* Loops of GELU, its gradient and element-wise products. Remainders use the
 * same vector arithmetic as whole vectors, so results do not depend on how a range is divided. */
#include "kernel/simd/activation.h"

#include "kernel/simd/math.h"
#include "kernel/simd/pointwise.h"

static const float root_2_pi = 0.797884561f; /* sqrt(2 / pi) */

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
    return dy * mul_add((vf)((vi)m ^ sign), 0.5f * root_2_pi * gauss, below);
}

/* At least -10, where the sigmoid is near the smallest normal float. NaN stays. */
INLINE vf above_limit(vf x) { return larger(splat(-10), x); }

/* (1 + tanh(u)) / 2 = sigmoid(2u) */
INLINE vf gelu_tanh(vf x, vf unused) {
    x = above_limit(x);
    vf u = root_2_pi * x * (1.0f + 0.044715f * x * x);
    return x * sigmoid(2.0f * u);
}

INLINE vf gelu_tanh_bwd(vf dy, vf x) {
    x = smaller(splat(10), above_limit(x)); /* the slope is at its limits there */
    vf square = x * x, s = sigmoid(2.0f * root_2_pi * x * (1.0f + 0.044715f * square));
    vf slope = 2.0f * root_2_pi * (1.0f + 3 * 0.044715f * square);
    return dy * (s + x * s * (1.0f - s) * slope);
}

INLINE vf mul(vf a, vf b) { return a * b; }

/* Applies an op to elements [begin, end); ops of one input get it as b too. */
typedef vf vector_function(vf a, vf b);

INLINE void map(vector_function *function, const kolo_simd_pair_job *job, const void *second,
                int64_t begin, int64_t end, bool bf16) {
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        vf a = load_at(job->a, i, bf16), b = load_at(second, i, bf16);
        store_at(job->out, i, function(a, b), bf16);
    }
    int64_t n = end - i;
    if (n == 0) return;
    vf a = load_part_at(job->a, i, n, bf16), b = load_part_at(second, i, n, bf16);
    store_part_at(job->out, i, function(a, b), n, bf16);
}

#define LOOP(name, function, inputs)                                                 \
    static void name##_loop(const void *arg, int part, int64_t begin, int64_t end) { \
        const kolo_simd_pair_job *job = arg;                                         \
        const void *second = (inputs) == 2 ? job->b : job->a;                        \
        if (job->bf16) {                                                             \
            map(function, job, second, begin, end, true);                            \
        } else {                                                                     \
            map(function, job, second, begin, end, false);                           \
        }                                                                            \
    }
LOOP(gelu_erf, gelu_erf, 1)
LOOP(gelu_erf_bwd, gelu_erf_bwd, 2)
LOOP(gelu_tanh, gelu_tanh, 1)
LOOP(gelu_tanh_bwd, gelu_tanh_bwd, 2)
LOOP(mul, mul, 2)

/* The gradient of GELU and of the bias added before it, row by row. */
INLINE void map_and_sum(vector_function *function, const kolo_simd_gelu_bias_job *job,
                        int64_t begin, int64_t end, bool bf16) {
    int64_t whole = begin + (end - begin) / VL * VL, rest = end - whole;
    memset(job->db + begin, 0, sizeof(float) * (size_t)(end - begin));
    for (int64_t row = 0; row < job->rows; row++) {
        int64_t at = row * job->channels;
        for (int64_t c = begin; c < whole; c += VL) {
            vf dx = function(load_at(job->dy, at + c, bf16), load_at(job->x, at + c, bf16));
            store_at(job->dx, at + c, dx, bf16);
            store(job->db + c, load(job->db + c) + dx);
        }
        if (rest == 0) continue;
        at += whole;
        vf dx =
            function(load_part_at(job->dy, at, rest, bf16), load_part_at(job->x, at, rest, bf16));
        store_part_at(job->dx, at, dx, rest, bf16);
        store_part(job->db + whole, load_part(job->db + whole, rest) + dx, rest);
    }
}

#define BIAS_LOOP(name, function)                                                         \
    static void name##_bias_loop(const void *arg, int part, int64_t begin, int64_t end) { \
        const kolo_simd_gelu_bias_job *job = arg;                                         \
        if (job->bf16) {                                                                  \
            map_and_sum(function, job, begin, end, true);                                 \
        } else {                                                                          \
            map_and_sum(function, job, begin, end, false);                                \
        }                                                                                 \
    }
BIAS_LOOP(gelu_erf, gelu_erf_bwd)
BIAS_LOOP(gelu_tanh, gelu_tanh_bwd)

const kolo_simd_activation_table KOLO_ISA_SYMBOL(kolo_simd_activation) = {
    .gelu = {gelu_erf_loop, gelu_tanh_loop},
    .gelu_bwd = {gelu_erf_bwd_loop, gelu_tanh_bwd_loop},
    .gelu_bwd_bias = {gelu_erf_bias_loop, gelu_tanh_bias_loop},
    .mul = mul_loop,
};
