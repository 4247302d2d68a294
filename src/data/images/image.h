#pragma once
/* Encoded images: decoding JPEG and PNG to RGB, and resizing.
 *
 * Grey, palette, transparent, 16-bit and CMYK images become RGB; transparency is dropped. A JPEG is
 * rotated by its EXIF orientation. Sizes are checked before pixels are decoded. */

#include "data/images/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of an image, in pixels. */
typedef struct kolo_box {
    int64_t y, x, height, width;
} kolo_box;

/* An image as it is shown, or the part of it that is in memory: pixel (y,x) of that part is the
 * three bytes at origin + y * row + x * column, or the byte there, if the image is grey. */
typedef struct kolo_image {
    int64_t height, width; /* of the whole image */
    int64_t shrink;        /* a pixel in memory is this many of the image each way: 1, 2, 4 or 8 */
    int64_t before[2];     /* pixels that the first one, y and x, has outside the image */
    kolo_box held;         /* what is in memory, in pixels of that size */
    bool grey;             /* a pixel is one byte: red, green and blue are equal */
    const uint8_t *origin;
    ptrdiff_t row, column;
    uint8_t *pixels;           /* as stored, [h,w,3] of `held`; grey: [h,w] */
    kolo_image_memory *memory; /* holds the pixels, and what resizing takes; NULL: none */
} kolo_image;

/* Limits against files that decode to far more than they hold. */
enum {
    KOLO_IMAGE_MAX_SIDE = 65500,
    KOLO_IMAGE_MAX_PIXELS = 1 << 27,
    KOLO_IMAGE_FREE_PIXELS = 1 << 24, /* above, no more pixels than: */
    KOLO_IMAGE_MAX_RATIO = 1000,      /* of each byte of the file */
};

/* The part of an image that a caller needs, by the size of the image: returns a part of height x
 * width pixels as they are shown, and the largest shrink (1, 2, 4 or 8) that will do. */
typedef struct kolo_image_choice {
    kolo_box (*choose)(const void *arg, int64_t height, int64_t width, int64_t *shrink);
    const void *arg;
} kolo_image_choice;

/* What is wanted of an image; zeroed: all of it, as it is stored. */
typedef struct kolo_image_request {
    const kolo_image_choice *choice; /* of the image as it is shown; NULL: all */
    bool turned;                     /* shown by its orientation, not as stored, as masks are */
    bool keeps_grey;                 /* a grey JPEG is a grey image, not RGB */
    kolo_image_memory *memory;       /* of images one after the other: each has it until the next
                                        one is decoded; NULL: the image has its own */
} kolo_image_request;

/* Decodes a JPEG or PNG. `where` names it in errors. FORMAT: it is neither, damaged, truncated, or
 * beyond the limits; UNSUPPORTED: the build lacks the library; NOMEM. Any thread. */
kolo_status kolo_image_decode(const uint8_t *bytes, size_t length, const char *where,
                              kolo_image *image);
/* The same by a request: of a JPEG only the part that `choice` names, or more, and by the shrink:
 * the bytes of that part are those of the whole image. With restart markers, what lies outside
 * those around the part is not decoded at all. A JPEG without an end mark is decoded whole, so a
 * truncated one is an error for any part. */
kolo_status kolo_image_decode_part(const uint8_t *bytes, size_t length, const char *where,
                                   const kolo_image_request *request, kolo_image *image);
/* Rewrites a JPEG without loss so that its parts decode faster: sequential, with restart markers,
 * between which nothing needs what is elsewhere; pixels, EXIF and comments stay. *out is for
 * kolo_free; NULL where the file is left as it is: no JPEG, or one that is damaged, truncated,
 * beyond the limits, or lacks scans. NOMEM. Any thread. */
kolo_status kolo_image_make_seekable(const uint8_t *bytes, size_t length, uint8_t **out,
                                     size_t *out_length);
/* Decodes a PNG of one channel, of a palette or grey, of at most 8 bits: pixel (y,x) is the byte at
 * origin + y * row + x * column, the number that the file has. Errors as those of
 * kolo_image_decode. Any thread. */
kolo_status kolo_mask_decode(const uint8_t *bytes, size_t length, const char *where,
                             kolo_image *mask);
/* Zeroed is allowed. */
void kolo_image_fini(kolo_image *image);

/* Whether the build decodes images. */
bool kolo_image_supported(void);

/* Resizes `from` of an image to height x width by antialiased bilinear interpolation, and writes
 * the part `window` of the result to `to` [3, window], planes of red, green and blue. The bytes are
 * those of Pillow's Image.crop, resize (BILINEAR) and crop, where the image has no shrink. It holds
 * the pixels of kolo_image_needs. NOMEM. Any thread. */
kolo_status kolo_image_resize(const kolo_image *image, kolo_box from, int64_t height, int64_t width,
                              kolo_box window, uint8_t *to);
/* As kolo_image_resize for a mask: writes [window], each pixel that of the mask in whose place its
 * middle is. */
void kolo_mask_resize(const kolo_image *mask, kolo_box from, int64_t height, int64_t width,
                      kolo_box window, uint8_t *to);
/* The part of an image that kolo_image_resize reads, or more; with any shrink that leaves `from` no
 * smaller than height x width. */
kolo_box kolo_image_needs(kolo_box from, int64_t height, int64_t width, kolo_box window);
