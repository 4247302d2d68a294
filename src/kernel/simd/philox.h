#pragma once
/* Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), as in
 * kolo_rng_draw, vectorized over counters. A counter's words are kept in 64-bit lanes.
 * Multiplication reads only the lower half of a lane, so the upper half is ignored until the
 * end. */

#include "kernel/simd/vector.h"

enum { KOLO_PHILOX_COUNTERS = 16 };

typedef uint64_t vu64 __attribute__((vector_size(KOLO_VECTOR_BYTES)));
enum { PHILOX_LANES = KOLO_VECTOR_BYTES / 8 };

/* Products of the lower halves of the lanes. */
INLINE vu64 multiply_low(vu64 a, uint32_t b) {
#if KOLO_VECTOR_BYTES == 64 && defined(__AVX512F__)
    return (vu64)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif KOLO_VECTOR_BYTES == 32 && defined(__AVX2__)
    return (vu64)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
    return (a & 0xFFFFFFFFu) * (uint64_t)b;
#endif
}

/* The random numbers of the counters from `counter` on: four of the first, then four of the
 * next. */
INLINE void philox(uint64_t seed, uint64_t stream, uint64_t counter,
                   uint32_t numbers[4 * KOLO_PHILOX_COUNTERS]) {
    for (int first = 0; first < KOLO_PHILOX_COUNTERS; first += PHILOX_LANES) {
        uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint64_t counters[PHILOX_LANES];
        vu64 c[4];
        for (int lane = 0; lane < PHILOX_LANES; lane++) {
            counters[lane] = counter + (uint64_t)(first + lane);
        }
        memcpy(&c[0], counters, sizeof counters);
        c[1] = c[0] >> 32;
        c[2] = (vu64){0} + stream;
        c[3] = c[2] >> 32;
        for (int round = 0; round < 10; round++) {
            vu64 a = multiply_low(c[0], 0xD2511F53u), b = multiply_low(c[2], 0xCD9E8D57u);
            c[0] = b >> 32 ^ c[1] ^ (uint64_t)key[0];
            c[1] = b;
            c[2] = a >> 32 ^ c[3] ^ (uint64_t)key[1];
            c[3] = a;
            key[0] += 0x9E3779B9u;
            key[1] += 0xBB67AE85u;
        }
        vu64 low = (c[0] & 0xFFFFFFFFu) | c[1] << 32, high = (c[2] & 0xFFFFFFFFu) | c[3] << 32;
        for (int lane = 0; lane < PHILOX_LANES; lane++) {
            uint64_t four[2] = {low[lane], high[lane]};
            for (int k = 0; k < 4; k++) {
                numbers[4 * (first + lane) + k] = (uint32_t)(four[k / 2] >> 32 * (k % 2));
            }
        }
    }
}
