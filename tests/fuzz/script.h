#pragma once
/* An input that a target reads as a script: byte by byte, zeros at its end. */

#include "base/compiler.h"

#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_script {
    const uint8_t *bytes;
    size_t left;
} fuzz_script;

static inline uint8_t fuzz_next(fuzz_script *s) {
    if (s->left == 0) return 0;
    s->left--;
    return *s->bytes++;
}

/* The next *n bytes; lowers *n to those that are left. */
static inline const uint8_t *fuzz_take(fuzz_script *s, size_t *n) {
    const uint8_t *bytes = s->bytes;
    if (*n > s->left) *n = s->left;
    s->bytes += *n;
    s->left -= *n;
    return bytes;
}

/* A number that is right, or one of `n` at an edge. */
static inline uint64_t fuzz_about(fuzz_script *s, uint64_t right, const uint64_t *edges, size_t n) {
    const uint8_t how = fuzz_next(s);
    return how < 0xe0 ? right : edges[how % n];
}
