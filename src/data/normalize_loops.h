#pragma once
/* The loops of normalization, compiled once per instruction set: u8 to f32 by a product and a sum,
 * which are not fused, so that all copies have the same bits. */

#include "base/isa.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_normalize_loops {
    /* dst[i] = src[i] * a + b, of one channel. `past`: writes past the cache, for more than it
     * holds. */
    void (*one)(const uint8_t *src, int64_t n, float a, float b, float *dst, bool past);
    /* Planes [3, pixels] to [pixels, 3]: dst[3 * p + c] = src[c * pixels + p] * a[c] + b[c]. */
    void (*three)(const uint8_t *src, int64_t pixels, const float a[3], const float b[3],
                  float *dst, bool past);
} kolo_normalize_loops;
KOLO_ISA_TABLE(kolo_normalize_loops, kolo_normalize);
