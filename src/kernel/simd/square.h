#pragma once
/* For *.isa.c sources: transposes of squares of floats in registers. */

#include "kernel/simd/vector.h"

enum { SQUARE = 8 };

/* Lane i of v[k] and lane k of v[i] change places. */
INLINE void transpose_square(v8f v[SQUARE]) {
    v8f pair[SQUARE];
    for (int i = 0; i < SQUARE; i += 2) {
        pair[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    v8f four[SQUARE];
    for (int i = 0; i < SQUARE; i += 4) {
        four[i] = __builtin_shufflevector(pair[i], pair[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        four[i + 1] = __builtin_shufflevector(pair[i], pair[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        four[i + 2] = __builtin_shufflevector(pair[i + 1], pair[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        four[i + 3] = __builtin_shufflevector(pair[i + 1], pair[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int k = 0; k < 4; k++) {
        v[k] = __builtin_shufflevector(four[k], four[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        v[k + 4] = __builtin_shufflevector(four[k], four[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

INLINE void load_square(const float *from, int64_t stride, v8f v[SQUARE]) {
    for (int i = 0; i < SQUARE; i++) v[i] = load8(from + i * stride);
}
/* In ascending order: a row may overlap those before it. */
INLINE void store_square(const v8f v[SQUARE], float *to, int64_t stride) {
    for (int i = 0; i < SQUARE; i++) store8(to + i * stride, v[i]);
}

INLINE v8f larger8(v8f a, v8f b) {
#ifdef __AVX2__
    return (v8f)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return select8(a > b, a, b);
#endif
}
