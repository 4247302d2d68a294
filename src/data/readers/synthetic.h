#pragma once
/* Common to the synthetic image data sets: the argument "N=1000,shape=3x64x64,classes=5". */

#include "base/rng.h"
#include "data/dataset.h"

typedef struct kolo_synthetic {
    int64_t n, test, channels, height, width, classes; /* test 0: a sixth of n, rounded up */
    uint64_t seed;
} kolo_synthetic;

/* Parses `text` (NULL: none) over the defaults in `s`. ARG, naming the data set. */
kolo_status kolo_synthetic_parse(const kolo_reader *reader, const char *text, kolo_synthetic *s);
/* Samples of a split. */
static inline int64_t kolo_synthetic_count(const kolo_synthetic *s, kolo_split split) {
    return split == KOLO_SPLIT_TRAIN ? s->n : s->test;
}
/* Random streams of KOLO_RNG_SYNTHETIC. */
enum {
    KOLO_SYNTHETIC_PATTERNS,
    KOLO_SYNTHETIC_TRAIN,
    KOLO_SYNTHETIC_TEST,
    KOLO_SYNTHETIC_TRAIN_SHAPES,
    KOLO_SYNTHETIC_TEST_SHAPES,
};
/* Fills `n` bytes with random bytes, starting at draw first / 16; `first` is a multiple of 16. */
void kolo_synthetic_fill(const kolo_rng *rng, uint64_t first, uint8_t *out, size_t n);
