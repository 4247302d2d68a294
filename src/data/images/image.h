#pragma once
/* Encoded images: decoding JPEG and PNG to RGB, and resizing.
 *
 * Grey, palette, transparent, 16-bit and CMYK images become RGB; transparency is dropped. A JPEG is
 * rotated by its EXIF orientation. Sizes are checked before pixels are decoded. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An image as it is shown. Pixel (y,x) is the three bytes at origin + y * row + x * column. */
typedef struct kolo_image {
    int64_t height, width;
    const uint8_t *origin;
    ptrdiff_t row, column;
    uint8_t *pixels; /* as stored, [h,w,3] */
} kolo_image;

/* Limits against files that decode to far more than they hold. */
enum {
    KOLO_IMAGE_MAX_SIDE = 65500,
    KOLO_IMAGE_MAX_PIXELS = 1 << 27,
    KOLO_IMAGE_FREE_PIXELS = 1 << 24, /* above, no more pixels than: */
    KOLO_IMAGE_MAX_RATIO = 1000,      /* of each byte of the file */
};

/* Decodes a JPEG or PNG. `where` names it in errors. FORMAT: it is neither, damaged, truncated, or
 * beyond the limits; UNSUPPORTED: the build lacks the library; NOMEM. Any thread. */
kolo_status kolo_image_decode(const uint8_t *bytes, size_t length, const char *where,
                              kolo_image *image);
/* The same without rotation: as masks are stored. */
kolo_status kolo_image_decode_stored(const uint8_t *bytes, size_t length, const char *where,
                                     kolo_image *image);
/* Decodes a PNG of one channel, of a palette or grey, of at most 8 bits: pixel (y,x) is the byte at
 * origin + y * row + x * column, the number that the file has. Errors as those of
 * kolo_image_decode. Any thread. */
kolo_status kolo_mask_decode(const uint8_t *bytes, size_t length, const char *where,
                             kolo_image *mask);
/* Zeroed is allowed. */
void kolo_image_fini(kolo_image *image);

/* Whether the build decodes images. */
bool kolo_image_supported(void);

/* A part of an image, in pixels. */
typedef struct kolo_box {
    int64_t y, x, height, width;
} kolo_box;

/* Resizes `from` of an image to height x width by antialiased bilinear interpolation, and writes
 * the part `window` of the result to `to` [3, window], planes of red, green and blue. The bytes are
 * those of Pillow's Image.crop, resize (BILINEAR) and crop. NOMEM. Any thread. */
kolo_status kolo_image_resize(const kolo_image *image, kolo_box from, int64_t height, int64_t width,
                              kolo_box window, uint8_t *to);
/* The same for a mask: writes [window], each pixel that of the mask in whose place its middle is.
 */
void kolo_mask_resize(const kolo_image *mask, kolo_box from, int64_t height, int64_t width,
                      kolo_box window, uint8_t *to);
