/* JPEG and PNG images, and masks, of any bytes: they decode to pixels that can be read, or are
 * refused. */
#include "base/status.h"
#include "data/images/image.h"
#include "fuzz/fuzz.h"

#include <string.h>

static void decode_mask(const uint8_t *bytes, size_t length) {
    kolo_image mask;
    if (kolo_mask_decode(bytes, length, "input", &mask) != KOLO_OK) {
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return;
    }
    uint8_t small[3 * 2];
    KOLO_ASSERT(mask.height > 0 && mask.width > 0);
    kolo_mask_resize(&mask, (kolo_box){0, 0, mask.height, mask.width}, 3, 2, (kolo_box){0, 0, 3, 2},
                     small);
    kolo_image_fini(&mask);
}

/* A part in the middle, by a shrink that the length chooses. */
static kolo_box choose(const void *arg, int64_t height, int64_t width, int64_t *shrink) {
    *shrink = 1 << *(const size_t *)arg % 4;
    return (kolo_box){height / 3, width / 4, (height + 2) / 3, (width + 1) / 2};
}

static void decode_part(const uint8_t *bytes, size_t length) {
    kolo_image image;
    const kolo_image_choice choice = {choose, &length};
    const kolo_image_request request = {.choice = &choice, .turned = true};
    if (kolo_image_decode_part(bytes, length, "input", &request, &image) != KOLO_OK) return;
    int64_t shrink;
    uint8_t small[3];
    const kolo_box part = choose(&length, image.height, image.width, &shrink);
    KOLO_ASSERT(image.shrink == 1 || image.shrink == shrink);
    KOLO_ASSERT(!kolo_image_resize(&image, part, 1, 1, (kolo_box){0, 0, 1, 1}, small));
    kolo_image_fini(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    kolo_image image;
    decode_mask(bytes, length);
    decode_part(bytes, length);
    kolo_status status = kolo_image_decode(bytes, length, "input", &image);
    if (status != KOLO_OK) {
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return 0;
    }
    uint8_t small[3 * 3 * 2];
    const kolo_box whole = {0, 0, image.height, image.width};
    KOLO_ASSERT(image.height > 0 && image.width > 0);
    KOLO_ASSERT(!kolo_image_resize(&image, whole, 3, 2, (kolo_box){0, 0, 3, 2}, small));
    kolo_image_fini(&image);
    return 0;
}
