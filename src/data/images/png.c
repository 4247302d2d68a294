/* PNG: images by libpng's simplified interface, which converts any PNG to RGB with transparency;
 * masks, whose values must not be converted, by the low-level interface, which reports errors by
 * longjmp.
 */
#include "base/memory.h"
#include "data/images/formats.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
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
                            const kolo_image_request *request, kolo_image *image,
                            int *orientation) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    *orientation = 1;
    if (!png_image_begin_read_from_memory(&png, bytes, length)) return damaged(&png, where);
    kolo_status status = kolo_image_allocate(png.height, png.width, 3, length, where, image);
    if (status == KOLO_OK) status = read_pixels(&png, where, image);
    png_image_free(&png);
    return status;
}

/* ---- masks ---- */

typedef struct decoder {
    const uint8_t *at;
    size_t left;
    png_structp png;
    png_infop info;
    png_bytepp rows;
    char text[96];
} decoder;

static void fail(png_structp png, png_const_charp why) {
    decoder *d = png_get_error_ptr(png);
    snprintf(d->text, sizeof d->text, "%s", why);
    png_longjmp(png, 1);
}

static void pass_warning(png_structp png, png_const_charp why) {}

static void read_bytes(png_structp png, png_bytep to, size_t n) {
    decoder *d = png_get_io_ptr(png);
    if (n > d->left) png_error(png, "the file is truncated");
    memcpy(to, d->at, n);
    d->at += n;
    d->left -= n;
}

/* Nothing that changes after setjmp is read after longjmp, but through pointers. */
static kolo_status decode_mask(decoder *d, size_t length, const char *where, kolo_image *mask) {
    if (setjmp(png_jmpbuf(d->png))) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: damaged PNG: %s", where, d->text);
    }
    png_set_read_fn(d->png, d, read_bytes);
    png_read_info(d->png, d->info);
    const png_byte colours = png_get_color_type(d->png, d->info);
    const png_byte bits = png_get_bit_depth(d->png, d->info);
    if ((colours != PNG_COLOR_TYPE_PALETTE && colours != PNG_COLOR_TYPE_GRAY) || bits > 8) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: a mask has one channel, of a palette or grey, of at most 8 bits, and "
                         "this PNG has colours, transparency or 16 bits",
                         where);
    }
    const int64_t height = png_get_image_height(d->png, d->info);
    const int64_t width = png_get_image_width(d->png, d->info);
    KOLO_TRY(kolo_image_allocate(height, width, 1, length, where, mask));
    d->rows = kolo_alloc((size_t)height * sizeof *d->rows);
    if (!d->rows) return KOLO_NOMEM((size_t)height * sizeof *d->rows);
    for (int64_t y = 0; y < height; y++) d->rows[y] = mask->pixels + y * width;
    png_set_packing(d->png);
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
    return KOLO_OK;
}

kolo_status kolo_png_decode_mask(const uint8_t *bytes, size_t length, const char *where,
                                 kolo_image *mask) {
    decoder d = {.at = bytes, .left = length};
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, fail, pass_warning);
    d.info = d.png ? png_create_info_struct(d.png) : NULL;
    kolo_status status = d.info ? decode_mask(&d, length, where, mask) : KOLO_NOMEM(length);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    kolo_free(d.rows);
    return status;
}
