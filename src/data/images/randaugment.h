#pragma once
/* The operations of RandAugment (Cubuk et al., 2020), as torchvision has them: their strengths, and
 * the bytes that it makes of images of Pillow, pixels by the nearest neighbour, black where an
 * image is moved in. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_RANDAUGMENT_OPS = 14, KOLO_RANDAUGMENT_STRENGTHS = 31 };

/* The strength of an operation at `step` of 31, in the operation's unit: an angle, pixels, ...;
 * 0: it has none. */
float kolo_randaugment_strength(int op, int step, int64_t height, int64_t width);
/* Whether the strength has a random sign. */
bool kolo_randaugment_is_signed(int op);
/* Applies an operation to planes [channels, height, width] of one or three channels. `work` is
 * scratch memory of that size. */
void kolo_randaugment_apply(int op, double strength, int64_t channels, int64_t height,
                            int64_t width, uint8_t *image, uint8_t *work);
