#pragma once
/* bf16: the upper half of an f32. Widening is exact; narrowing rounds to nearest even and preserves
 * NaN. */

#include <stdint.h>
#include <string.h>

static inline float kolo_bf16_widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline uint16_t kolo_bf16_narrow(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}
