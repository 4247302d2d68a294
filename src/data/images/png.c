/* PNG by libpng's simplified interface, which converts any PNG to RGB with transparency. */
#include "base/memory.h"
#include "data/images/formats.h"

#include <png.h>
#include <string.h>

static kolo_status damaged(const png_image *png, const char *where) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: damaged PNG: %s", where, png->message);
}

/* Drops the fourth byte of each pixel. */
static void drop_transparency(const uint8_t *from, int64_t pixels, uint8_t *to) {
    for (int64_t p = 0; p < pixels; p++) memcpy(to + 3 * p, from + 4 * p, 3);
}

static kolo_status read_pixels(png_image *png, const char *where, kolo_image *image) {
    const int64_t pixels = image->height * image->width;
    const bool alpha = png->format & PNG_FORMAT_FLAG_ALPHA;
    png->format = alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    png->flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    uint8_t *to = alpha ? kolo_alloc(4 * (size_t)pixels) : image->pixels;
    if (!to) return KOLO_NOMEM(4 * (size_t)pixels);
    const int good = png_image_finish_read(png, NULL, to, 0, NULL);
    if (alpha) {
        if (good) drop_transparency(to, pixels, image->pixels);
        kolo_free(to);
    }
    return good ? KOLO_OK : damaged(png, where);
}

kolo_status kolo_png_decode(const uint8_t *bytes, size_t length, const char *where,
                            kolo_image *image, int *orientation) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    *orientation = 1;
    if (!png_image_begin_read_from_memory(&png, bytes, length)) return damaged(&png, where);
    kolo_status status = kolo_image_allocate(png.height, png.width, length, where, image);
    if (status == KOLO_OK) status = read_pixels(&png, where, image);
    png_image_free(&png);
    return status;
}
