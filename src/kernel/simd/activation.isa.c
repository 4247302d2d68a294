/* Loops of the smooth activations, their gradients and mul. A tail goes through the same arithmetic
 * as a whole vector, so where a range is cut changes no bit. */
#include "kernel/simd/math.h"
#include "kernel/simd/simd.h"

static const float root_2_pi = 0.797884561f; /* sqrt(2 / pi) */

INLINE vf gelu_erf(vf x, vf unused) {
    vf half = x * 0.707106781f;
    return 0.5f * x * (1.0f + error_function(half, exponential(-half * half)));
}

INLINE vf gelu_erf_bwd(vf dy, vf x) {
    vf half = x * 0.707106781f, gauss = exponential(-half * half);
    return dy * (0.5f * (1.0f + error_function(half, gauss)) + 0.5f * root_2_pi * x * gauss);
}

/* (1 + tanh(u)) / 2 = sigmoid(2u) */
INLINE vf gelu_tanh(vf x, vf unused) {
    vf u = root_2_pi * x * (1.0f + 0.044715f * x * x);
    return x * sigmoid(2.0f * u);
}

INLINE vf gelu_tanh_bwd(vf dy, vf x) {
    vf square = x * x, s = sigmoid(2.0f * root_2_pi * x * (1.0f + 0.044715f * square));
    vf slope = 2.0f * root_2_pi * (1.0f + 3 * 0.044715f * square);
    return dy * (s + x * s * (1.0f - s) * slope);
}

INLINE vf silu(vf x, vf unused) { return x * sigmoid(x); }
INLINE vf silu_bwd(vf dy, vf x) {
    vf s = sigmoid(x);
    return dy * s * (1.0f + x * (1.0f - s));
}
INLINE vf sigmoid_of(vf x, vf unused) { return sigmoid(x); }
INLINE vf sigmoid_bwd(vf dy, vf y) { return dy * y * (1.0f - y); }
INLINE vf tanh_of(vf x, vf unused) { return hyperbolic_tangent(x); }
INLINE vf tanh_bwd(vf dy, vf y) { return dy * (1.0f - y * y); }
INLINE vf mul(vf a, vf b) { return a * b; }

#define LOOP(name, function, inputs)                                                              \
    static void name##_loop(const void *arg, int part, int64_t begin, int64_t end) {              \
        const kolo_simd_pair_job *job = arg;                                                      \
        const float *a = job->a, *b = (inputs) == 2 ? job->b : job->a;                            \
        int64_t i = begin;                                                                        \
        for (; i + VL <= end; i += VL) store(job->out + i, function(load(a + i), load(b + i)));   \
        int64_t rest = end - i;                                                                   \
        if (rest == 0) return;                                                                    \
        store_part(job->out + i, function(load_part(a + i, rest), load_part(b + i, rest)), rest); \
    }
LOOP(gelu_erf, gelu_erf, 1)
LOOP(gelu_erf_bwd, gelu_erf_bwd, 2)
LOOP(gelu_tanh, gelu_tanh, 1)
LOOP(gelu_tanh_bwd, gelu_tanh_bwd, 2)
LOOP(silu, silu, 1)
LOOP(silu_bwd, silu_bwd, 2)
LOOP(sigmoid, sigmoid_of, 1)
LOOP(sigmoid_bwd, sigmoid_bwd, 2)
LOOP(tanh, tanh_of, 1)
LOOP(tanh_bwd, tanh_bwd, 2)
LOOP(mul, mul, 2)

/* The gradient of gelu, and of the bias that was added before it, row by row. */
#define BIAS_LOOP(name, function)                                                          \
    static void name##_bias_loop(const void *arg, int part, int64_t begin, int64_t end) {  \
        const kolo_simd_gelu_bias_job *job = arg;                                          \
        int64_t whole = begin + (end - begin) / VL * VL, rest = end - whole;               \
        memset(job->db + begin, 0, sizeof(float) * (size_t)(end - begin));                 \
        for (int64_t row = 0; row < job->rows; row++) {                                    \
            int64_t at = row * job->channels;                                              \
            for (int64_t c = begin; c < whole; c += VL) {                                  \
                vf dx = function(load(job->dy + at + c), load(job->x + at + c));           \
                store(job->dx + at + c, dx);                                               \
                store(job->db + c, load(job->db + c) + dx);                                \
            }                                                                              \
            if (rest == 0) continue;                                                       \
            at += whole;                                                                   \
            vf dx = function(load_part(job->dy + at, rest), load_part(job->x + at, rest)); \
            store_part(job->dx + at, dx, rest);                                            \
            store_part(job->db + whole, load_part(job->db + whole, rest) + dx, rest);      \
        }                                                                                  \
    }
BIAS_LOOP(gelu_erf, gelu_erf_bwd)
BIAS_LOOP(gelu_tanh, gelu_tanh_bwd)

const kolo_simd_activation_table KOLO_SIMD_TABLE(kolo_simd_activation_) = {
    .gelu = {gelu_erf_loop, gelu_tanh_loop},
    .gelu_bwd = {gelu_erf_bwd_loop, gelu_tanh_bwd_loop},
    .gelu_bwd_bias = {gelu_erf_bias_loop, gelu_tanh_bias_loop},
    .silu = silu_loop,
    .silu_bwd = silu_bwd_loop,
    .sigmoid = sigmoid_loop,
    .sigmoid_bwd = sigmoid_bwd_loop,
    .tanh = tanh_loop,
    .tanh_bwd = tanh_bwd_loop,
    .mul = mul_loop,
};
