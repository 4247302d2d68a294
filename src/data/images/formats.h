#pragma once
/* The decoders behind kolo_image_decode. */

#include "data/images/image.h"

#include <stdbool.h>

/* Decodes to `image->pixels`, as stored, and sets height, width, shrink and held as stored;
 * *orientation is that of EXIF, 1 to 8. The caller ends the image, also after a failure. */
typedef kolo_status kolo_image_decoder(const uint8_t *bytes, size_t length, const char *where,
                                       const kolo_image_request *request, kolo_image *image,
                                       int *orientation);
kolo_image_decoder kolo_jpeg_decode, kolo_png_decode;

/* As kolo_image_make_seekable, for a JPEG. */
kolo_status kolo_jpeg_make_seekable(const uint8_t *bytes, size_t length, uint8_t **out,
                                    size_t *out_length);

/* As kolo_mask_decode; the caller frees the pixels, also after a failure. */
kolo_status kolo_png_decode_mask(const uint8_t *bytes, size_t length, const char *where,
                                 kolo_image *mask);

/* Checks the size of an image in a file of `length` bytes. FORMAT. */
kolo_status kolo_image_check(int64_t height, int64_t width, size_t length, const char *where);
/* Room for the pixels of an image, of its memory or of its own. NOMEM. */
kolo_status kolo_image_make_room(kolo_image *image, size_t bytes);
/* Checks as kolo_image_check; makes room for all pixels, of one byte for each channel, and sets
 * height, width, shrink and held. FORMAT, NOMEM. */
kolo_status kolo_image_allocate(int64_t height, int64_t width, int channels, size_t length,
                                const char *where, kolo_image *image);

/* The part that is wanted of an image of height x width as stored, as stored; sets *shrink. */
kolo_box kolo_image_requested(const kolo_image_request *request, int64_t height, int64_t width,
                              int orientation, int64_t *shrink);

/* Turns an image as stored, whose pixels are there, to one as it is shown: sets the rest of it. */
void kolo_image_show(kolo_image *image, int orientation);
/* The orientation in the contents of an APP1 marker; 1 if it has none. */
int kolo_exif_orientation(const uint8_t *bytes, size_t length);
