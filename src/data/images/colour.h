#pragma once
/* Changes of colours, as torchvision.transforms.functional has them for tensors of u8: the same
 * bytes, in `pixels` bytes of each of `channels` planes: 3, red, green and blue; or 1, grey. */

#include <stdint.h>

typedef void kolo_colour_change(uint8_t *planes, int64_t channels, int64_t pixels, double amount);

/* adjust_brightness, adjust_contrast, adjust_saturation by a factor; 1 changes nothing. Saturation
 * does not change grey. */
kolo_colour_change kolo_colour_brightness, kolo_colour_contrast, kolo_colour_saturation;
/* adjust_hue by a part of the circle, -0.5 to 0.5. Does not change grey. */
kolo_colour_change kolo_colour_hue;
