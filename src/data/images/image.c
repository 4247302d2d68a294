/* Encoded images: choice of the decoder, orientation. */
#include "data/images/image.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "data/images/formats.h"

#include <stdbool.h>
#include <string.h>

typedef struct format {
    const char *magic;
    size_t length;
    kolo_image_decoder *decode;
} format;

#ifdef KOLO_HAS_IMAGES
bool kolo_image_supported(void) { return true; }
static kolo_status (*const decode_mask)(const uint8_t *bytes, size_t length, const char *where,
                                        kolo_image *mask) = kolo_png_decode_mask;
static const format formats[] = {
    {"\xff\xd8\xff", 3, kolo_jpeg_decode},
    {"\x89PNG\r\n\x1a\n", 8, kolo_png_decode},
};
#else
bool kolo_image_supported(void) { return false; }
static kolo_status missing(const uint8_t *bytes, size_t length, const char *where,
                           kolo_image *image, int *orientation) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s: this build reads no images: install libjpeg62-turbo-dev and libpng-dev, "
                     "and build again",
                     where);
}
static const format formats[] = {{"", 0, missing}};
static kolo_status decode_mask(const uint8_t *bytes, size_t length, const char *where,
                               kolo_image *mask) {
    return missing(bytes, length, where, mask, NULL);
}
#endif

/* Rotates an image by its EXIF orientation: bit 2 of orientation - 1 exchanges rows and columns,
 * and the table has the stored corner that is shown at the top left. */
static void turn(kolo_image *image, int orientation) {
    static const struct {
        bool bottom, right; /* the corner */
    } corners[] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}, {0, 0}, {1, 0}, {1, 1}, {0, 1}};
    const int i = orientation >= 1 && orientation <= 8 ? orientation - 1 : 0;
    ptrdiff_t column = 3, row = 3 * (ptrdiff_t)image->width;
    image->origin = image->pixels + (corners[i].bottom ? (image->height - 1) * row : 0) +
                    (corners[i].right ? (image->width - 1) * column : 0);
    if (corners[i].bottom) row = -row;
    if (corners[i].right) column = -column;
    const bool exchanges = i & 4;
    image->row = exchanges ? column : row;
    image->column = exchanges ? row : column;
    if (!exchanges) return;
    int64_t height = image->height;
    image->height = image->width;
    image->width = height;
}

static kolo_status decode(const uint8_t *bytes, size_t length, const char *where, bool turned,
                          kolo_image *image) {
    for (size_t f = 0; f < KOLO_COUNT(formats); f++) {
        if (length < formats[f].length) continue;
        if (memcmp(bytes, formats[f].magic, formats[f].length) != 0) continue;
        kolo_image read = {0};
        int orientation = 1;
        kolo_status status = formats[f].decode(bytes, length, where, &read, &orientation);
        if (status != KOLO_OK) {
            kolo_image_fini(&read);
            return status;
        }
        turn(&read, turned ? orientation : 1);
        *image = read;
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: neither a JPEG nor a PNG image", where);
}

kolo_status kolo_image_decode(const uint8_t *bytes, size_t length, const char *where,
                              kolo_image *image) {
    return decode(bytes, length, where, true, image);
}

kolo_status kolo_image_decode_stored(const uint8_t *bytes, size_t length, const char *where,
                                     kolo_image *image) {
    return decode(bytes, length, where, false, image);
}

kolo_status kolo_mask_decode(const uint8_t *bytes, size_t length, const char *where,
                             kolo_image *mask) {
    kolo_image read = {0};
    const kolo_status status = decode_mask(bytes, length, where, &read);
    if (status != KOLO_OK) {
        kolo_image_fini(&read);
        return status;
    }
    read.origin = read.pixels;
    read.row = (ptrdiff_t)read.width;
    read.column = 1;
    *mask = read;
    return KOLO_OK;
}

void kolo_image_fini(kolo_image *image) {
    kolo_free(image->pixels);
    *image = (kolo_image){0};
}
