#pragma once
/* For *.isa.c sources: sums of the rows that a normalization reads, f32 or bf16. */

#include "kernel/simd/math.h"

/* Independent accumulators, to hide the latency of additions. */
enum { CHAINS = 4 };

INLINE float sum_chains(const vf sum[CHAINS]) {
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

INLINE float sum_row(const void *x, int64_t n, bool bf16) {
    vf sum[CHAINS] = {{0}};
    int64_t c = 0;
    for (; c + CHAINS * VL <= n; c += CHAINS * VL) {
        for (int k = 0; k < CHAINS; k++) sum[k] += load_at(x, c + k * VL, bf16);
    }
    for (; c + VL <= n; c += VL) sum[0] += load_at(x, c, bf16);
    sum[1] += load_part_at(x, c, n - c, bf16);
    return sum_chains(sum);
}

/* The sum of squares about `mean`; fetches the row after x, while this one is in cache. A long one
 * goes to the second cache, where it does not displace this one. */
INLINE float sum_squares(const void *x, float mean, int64_t n, bool bf16) {
    enum {
        LINE = 16,
        LONG = 4096
    }; /* floats of a cache line; of a row that fills the first cache */
    vf sum[CHAINS] = {{0}};
    int64_t c = 0;
    for (; c + CHAINS * VL <= n; c += CHAINS * VL) {
        for (int k = 0; k < CHAINS; k++) {
            if (k * VL % LINE == 0 && n < LONG) {
                __builtin_prefetch(ahead(x, n + c + k * VL, bf16));
            } else if (k * VL % LINE == 0) {
                __builtin_prefetch(ahead(x, n + c + k * VL, bf16), 0, 2);
            }
            vf d = load_at(x, c + k * VL, bf16) - mean;
            sum[k] = mul_add(d, d, sum[k]);
        }
    }
    for (; c + VL <= n; c += VL) {
        vf d = load_at(x, c, bf16) - mean;
        sum[0] = mul_add(d, d, sum[0]);
    }
    float rest = 0;
    for (; c < n; c++) {
        float d = element_at(x, c, bf16) - mean;
        rest += d * d;
    }
    return sum_chains(sum) + rest;
}
