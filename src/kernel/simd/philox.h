#pragma once
/* Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), as
 * kolo_rng_draw has it, at several counters at once, for sources that are compiled once per
 * instruction set: each round is the same arithmetic in all lanes, which the compiler vectorises.
 */

#include "kernel/simd/vector.h"

enum { KOLO_PHILOX_COUNTERS = 16 };

/* The four numbers at each of the counters from `counter` on: c[k] becomes number k of each. */
INLINE void philox(uint64_t seed, uint64_t stream, uint64_t counter,
                   uint32_t c[4][KOLO_PHILOX_COUNTERS]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint64_t g = 0; g < KOLO_PHILOX_COUNTERS; g++) {
        c[0][g] = (uint32_t)(counter + g);
        c[1][g] = (uint32_t)((counter + g) >> 32);
        c[2][g] = (uint32_t)stream;
        c[3][g] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int g = 0; g < KOLO_PHILOX_COUNTERS; g++) {
            uint64_t a = (uint64_t)c[0][g] * 0xD2511F53u, b = (uint64_t)c[2][g] * 0xCD9E8D57u;
            c[0][g] = (uint32_t)(b >> 32) ^ c[1][g] ^ key[0];
            c[1][g] = (uint32_t)b;
            c[2][g] = (uint32_t)(a >> 32) ^ c[3][g] ^ key[1];
            c[3][g] = (uint32_t)a;
        }
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}
