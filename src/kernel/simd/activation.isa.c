/* Loops of GELU, its gradient and element-wise products. Remainders use the
 * same vector arithmetic as whole vectors, so results do not depend on how a range is divided. */
#include "kernel/simd/activation.h"

#include "kernel/simd/gelu.h"
#include "kernel/simd/pointwise.h"

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

INLINE void fetch(const void *p, int64_t i, bool bf16) { __builtin_prefetch(ahead(p, i, bf16)); }

/* The gradient of GELU and of the bias added before it, row by row; prefetches the next row. */
INLINE void map_and_sum(vector_function *function, const kolo_simd_gelu_bias_job *job,
                        int64_t begin, int64_t end, bool bf16) {
    int64_t whole = begin + (end - begin) / VL * VL, rest = end - whole;
    memset(job->db + begin, 0, sizeof(float) * (size_t)(end - begin));
    for (int64_t row = 0; row < job->rows; row++) {
        int64_t at = row * job->channels, next = at + job->channels;
        for (int64_t c = begin; c < whole; c += VL) {
            fetch(job->dy, next + c, bf16);
            fetch(job->x, next + c, bf16);
            if (job->dx != job->dy && job->dx != job->x) fetch(job->dx, next + c, bf16);
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
