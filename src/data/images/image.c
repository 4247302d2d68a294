/* Encoded images: choice of the decoder. */
#include "data/images/image.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "data/images/formats.h"

#include <string.h>

typedef struct format {
    const char *magic;
    size_t length;
    kolo_image_decoder *decode;
    kolo_status (*make_seekable)(const uint8_t *bytes, size_t length, uint8_t **out,
                                 size_t *out_length); /* NULL: left as it is */
} format;

#ifdef KOLO_HAS_IMAGES
bool kolo_image_supported(void) { return true; }
static kolo_status (*const decode_mask)(const uint8_t *bytes, size_t length, const char *where,
                                        kolo_image *mask) = kolo_png_decode_mask;
static const format formats[] = {
    {"\xff\xd8\xff", 3, kolo_jpeg_decode, kolo_jpeg_make_seekable},
    {"\x89PNG\r\n\x1a\n", 8, kolo_png_decode, NULL},
};
#else
bool kolo_image_supported(void) { return false; }
static kolo_status missing(const uint8_t *bytes, size_t length, const char *where,
                           const kolo_image_request *request, kolo_image *image, int *orientation) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s: this build reads no images: install libjpeg62-turbo-dev and libpng-dev, "
                     "and build again",
                     where);
}
static const format formats[] = {{"", 0, missing, NULL}};
static kolo_status decode_mask(const uint8_t *bytes, size_t length, const char *where,
                               kolo_image *mask) {
    return missing(bytes, length, where, NULL, mask, NULL);
}
#endif

static const format *find_format(const uint8_t *bytes, size_t length) {
    for (size_t f = 0; f < KOLO_COUNT(formats); f++) {
        if (length < formats[f].length) continue;
        if (memcmp(bytes, formats[f].magic, formats[f].length) == 0) return &formats[f];
    }
    return NULL;
}

kolo_status kolo_image_decode_part(const uint8_t *bytes, size_t length, const char *where,
                                   const kolo_image_request *request, kolo_image *image) {
    const format *f = find_format(bytes, length);
    if (!f) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: neither a JPEG nor a PNG image", where);
    kolo_image read = {.memory = request->memory};
    int orientation = 1;
    kolo_status status = f->decode(bytes, length, where, request, &read, &orientation);
    if (status != KOLO_OK) {
        kolo_image_fini(&read);
        return status;
    }
    kolo_image_show(&read, request->turned ? orientation : 1);
    *image = read;
    return KOLO_OK;
}

kolo_status kolo_image_make_seekable(const uint8_t *bytes, size_t length, uint8_t **out,
                                     size_t *out_length) {
    const format *f = find_format(bytes, length);
    *out = NULL;
    return f && f->make_seekable ? f->make_seekable(bytes, length, out, out_length) : KOLO_OK;
}

kolo_status kolo_image_decode(const uint8_t *bytes, size_t length, const char *where,
                              kolo_image *image) {
    return kolo_image_decode_part(bytes, length, where, &(kolo_image_request){.turned = true},
                                  image);
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
    if (!image->memory) kolo_free(image->pixels);
    *image = (kolo_image){0};
}
