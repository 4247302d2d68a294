/* Random numbers by Random123's Philox4x32-10, hashes by XXH3. */
#include "base/rng.h"

#include "base/status.h"

#include <Random123/philox.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

kolo_rng kolo_rng_make(uint64_t seed, kolo_rng_use use, uint64_t index) {
    return (kolo_rng){.seed = seed, .stream = index ^ ((uint64_t)use << 56)};
}

void kolo_rng_draw(const kolo_rng *rng, uint64_t counter, uint32_t out[4]) {
    philox4x32_ctr_t ctr = {{(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)rng->stream,
                             (uint32_t)(rng->stream >> 32)}};
    philox4x32_key_t key = {{(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)}};
    philox4x32_ctr_t draw = philox4x32(ctr, key);
    memcpy(out, draw.v, sizeof draw.v);
}

float kolo_rng_uniform(const kolo_rng *rng, uint64_t i) {
    uint32_t draw[4];
    kolo_rng_draw(rng, i / 4, draw);
    return (float)(draw[i % 4] >> 8) * 0x1p-24f;
}

float kolo_rng_normal(const kolo_rng *rng, uint64_t i) {
    uint32_t draw[4];
    kolo_rng_draw(rng, i / 2, draw);
    const uint32_t *pair = draw + 2 * (i % 2);
    double radius = sqrt(-2.0 * log(((double)pair[0] + 1.0) * 0x1p-32));
    return (float)(radius * cos(6.283185307179586 * ((double)pair[1] * 0x1p-32)));
}

uint64_t kolo_rng_below(const kolo_rng *rng, uint64_t i, uint64_t bound) {
    KOLO_ASSERT(bound > 0);
    uint32_t draw[4];
    kolo_rng_draw(rng, i / 2, draw);
    const uint32_t *pair = draw + 2 * (i % 2);
    uint64_t bits = (uint64_t)pair[0] << 32 | pair[1];
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)bits * bound) >> 64);
}

uint64_t kolo_hash_text(const char *text) { return XXH3_64bits(text, strlen(text)); }

uint64_t kolo_hash_bytes(const void *bytes, size_t n) { return XXH3_64bits(bytes, n); }
