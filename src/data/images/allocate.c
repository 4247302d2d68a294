/* Limits of decoded images, and memory for their pixels. */
#include "base/memory.h"
#include "data/images/formats.h"

#include <inttypes.h>

kolo_status kolo_image_check(int64_t height, int64_t width, size_t length, const char *where) {
    const bool sides =
        height > 0 && width > 0 && height <= KOLO_IMAGE_MAX_SIDE && width <= KOLO_IMAGE_MAX_SIDE;
    const int64_t pixels = sides ? height * width : 0;
    if (!sides || pixels > KOLO_IMAGE_MAX_PIXELS) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: an image of %" PRId64 "x%" PRId64 " pixels: at most %d in all and %d "
                         "a side are decoded",
                         where, width, height, (int)KOLO_IMAGE_MAX_PIXELS,
                         (int)KOLO_IMAGE_MAX_SIDE);
    }
    if (pixels > KOLO_IMAGE_FREE_PIXELS && (size_t)pixels / KOLO_IMAGE_MAX_RATIO > length) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: %" PRId64 "x%" PRId64 " pixels in %zu bytes: more than %d in each "
                         "are not decoded",
                         where, width, height, length, (int)KOLO_IMAGE_MAX_RATIO);
    }
    return KOLO_OK;
}

kolo_status kolo_image_make_room(kolo_image *image, size_t bytes) {
    image->pixels = image->memory ? kolo_image_reserve(image->memory, KOLO_IMAGE_PIXELS, bytes)
                                  : kolo_alloc(bytes);
    return image->pixels ? KOLO_OK : KOLO_NOMEM(bytes);
}

kolo_status kolo_image_allocate(int64_t height, int64_t width, int channels, size_t length,
                                const char *where, kolo_image *image) {
    KOLO_TRY(kolo_image_check(height, width, length, where));
    const int64_t pixels = height * width;
    KOLO_TRY(kolo_image_make_room(image, (size_t)channels * (size_t)pixels));
    image->height = height;
    image->width = width;
    image->shrink = 1;
    image->held = (kolo_box){0, 0, height, width};
    return KOLO_OK;
}
