#pragma once
/* The decoders behind kolo_image_decode. */

#include "data/images/image.h"

#include <stdbool.h>

/* Decodes to `image->pixels`, as stored, and sets height and width as stored; *orientation is that
 * of EXIF, 1 to 8. The caller frees the pixels, also after a failure. */
typedef kolo_status kolo_image_decoder(const uint8_t *bytes, size_t length, const char *where,
                                       kolo_image *image, int *orientation);
kolo_image_decoder kolo_jpeg_decode, kolo_png_decode;

/* As kolo_mask_decode; the caller frees the pixels, also after a failure. */
kolo_status kolo_png_decode_mask(const uint8_t *bytes, size_t length, const char *where,
                                 kolo_image *mask);

/* Checks sizes and allocates the pixels, of one byte for each channel. FORMAT, NOMEM. */
kolo_status kolo_image_allocate(int64_t height, int64_t width, int channels, size_t length,
                                const char *where, kolo_image *image);

/* The orientation in the contents of an APP1 marker; 1 if it has none. */
int kolo_exif_orientation(const uint8_t *bytes, size_t length);
