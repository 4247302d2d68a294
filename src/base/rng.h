#pragma once
/* Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as
 * 1, 2, 3", SC 2011). A draw is a function of (seed, stream, counter) only, so that results do not
 * depend on the number of workers or threads. */

#include "base/compiler.h"

#include <stddef.h>
#include <stdint.h>

/* The purpose of a stream; part of the key, so that streams are independent. */
typedef enum kolo_rng_use {
    KOLO_RNG_INIT = 1,       /* initial weights; index: hash of the parameter's name */
    KOLO_RNG_SHUFFLE = 2,    /* order of samples; index: epoch */
    KOLO_RNG_TEST = 3,       /* tests; index: free */
    KOLO_RNG_SYNTHETIC = 4,  /* synthetic data; index: kind of values */
    KOLO_RNG_DROPOUT = 5,    /* dropout masks; index: layer */
    KOLO_RNG_AUGMENT = 6,    /* augmentation of images; index: epoch */
    KOLO_RNG_BENCH = 7,      /* data of benchmarks; index: free */
    KOLO_RNG_NETWORK = 8,    /* delays of the modelled network; index: rank or message */
    KOLO_RNG_MASK = 9,       /* masked tokens; index: 0 */
    KOLO_RNG_PAIR = 10,      /* pairing of sentences; index: split */
    KOLO_RNG_ATTENTION = 11, /* dropout masks of attention weights; index: layer */
    KOLO_RNG_TOKEN = 12,     /* generated tokens; index: 0 */
    KOLO_RNG_SPLIT = 13,     /* samples of the test split; index: 0 */
    KOLO_RNG_CROP = 14,      /* random resized crops; index: epoch */
    KOLO_RNG_COLOUR = 15,    /* colour jitter; index: epoch */
} kolo_rng_use;

typedef struct kolo_rng {
    uint64_t seed, stream;
} kolo_rng;

/* The stream of draws for `use` number `index` under `seed`. */
KOLO_SHARED kolo_rng kolo_rng_make(uint64_t seed, kolo_rng_use use, uint64_t index);
/* Four independent 32-bit draws at `counter`. */
KOLO_SHARED void kolo_rng_draw(const kolo_rng *rng, uint64_t counter, uint32_t out[4]);
/* Draw number i of the stream, uniform in [0, 1) with 24 bits. */
KOLO_SHARED float kolo_rng_uniform(const kolo_rng *rng, uint64_t i);
/* Draw number i of the stream, standard normal (Box-Muller). */
KOLO_SHARED float kolo_rng_normal(const kolo_rng *rng, uint64_t i);
/* Draw number i of the stream, uniform in [0, bound), bound > 0, with negligible bias
 * (multiply-shift over 64 bits). */
KOLO_SHARED uint64_t kolo_rng_below(const kolo_rng *rng, uint64_t i, uint64_t bound);
/* A 64-bit hash (XXH3), for keying streams by name. */
KOLO_SHARED uint64_t kolo_hash_text(const char *text);
KOLO_SHARED uint64_t kolo_hash_bytes(const void *bytes, size_t n);
