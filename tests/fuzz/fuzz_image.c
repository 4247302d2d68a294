/* JPEG and PNG images, and masks, of any bytes: they decode to pixels that can be read, or are
 * refused. The pixels of a part, and those of a JPEG that is made seekable, are those of the whole.
 */
#include "base/memory.h"
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

/* The shrink that the length of the file chooses. */
static int64_t shrink_of(const void *length) { return 1 << *(const size_t *)length % 4; }

static kolo_box choose_part(const void *arg, int64_t height, int64_t width, int64_t *shrink) {
    *shrink = shrink_of(arg);
    return (kolo_box){height / 3, width / 4, (height + 2) / 3, (width + 1) / 2};
}

static kolo_box choose_all(const void *arg, int64_t height, int64_t width, int64_t *shrink) {
    *shrink = shrink_of(arg);
    return (kolo_box){0, 0, height, width};
}

/* Grey images, and the same as RGB, resize alike. */
static void compare_grey(const uint8_t *bytes, size_t length) {
    kolo_image_request request = {.turned = true, .keeps_grey = true};
    kolo_image grey, rgb;
    uint8_t small[2][3 * 3 * 2];
    if (kolo_image_decode_part(bytes, length, "input", &request, &grey) != KOLO_OK) return;
    request.keeps_grey = false;
    KOLO_ASSERT(!kolo_image_decode_part(bytes, length, "input", &request, &rgb));
    const kolo_box all = {0, 0, rgb.height, rgb.width}, window = {0, 0, 3, 2};
    KOLO_ASSERT(!kolo_image_resize(&grey, all, 3, 2, window, small[0]));
    KOLO_ASSERT(!kolo_image_resize(&rgb, all, 3, 2, window, small[1]));
    KOLO_ASSERT(memcmp(small[0], small[1], sizeof small[0]) == 0);
    kolo_image_fini(&grey);
    kolo_image_fini(&rgb);
}

static bool decode(const uint8_t *bytes, size_t length, const kolo_image_choice *choice,
                   kolo_image *image) {
    const kolo_image_request request = {.choice = choice, .turned = true};
    return kolo_image_decode_part(bytes, length, "input", &request, image) == KOLO_OK;
}

/* The pixels of `box` of the image as it is shown. */
static void assert_same(const kolo_image *a, const kolo_image *b, kolo_box box) {
    const int64_t s = a->shrink;
    KOLO_ASSERT(a->height == b->height && a->width == b->width && s == b->shrink);
    box.y += a->before[0];
    box.x += a->before[1];
    for (int64_t y = box.y / s; y * s < box.y + box.height; y++) {
        for (int64_t x = box.x / s; x * s < box.x + box.width; x++) {
            KOLO_ASSERT(!memcmp(a->origin + (y - a->held.y) * a->row + (x - a->held.x) * a->column,
                                b->origin + (y - b->held.y) * b->row + (x - b->held.x) * b->column,
                                3));
        }
    }
}

static void decode_part(const uint8_t *bytes, size_t length) {
    kolo_image image, all;
    const kolo_image_choice choice = {choose_part, &length}, whole = {choose_all, &length};
    uint8_t small[3];
    int64_t shrink;
    if (!decode(bytes, length, &choice, &image)) return;
    const kolo_box part = choose_part(&length, image.height, image.width, &shrink);
    KOLO_ASSERT(image.shrink == 1 || image.shrink == shrink);
    KOLO_ASSERT(!kolo_image_resize(&image, part, 1, 1, (kolo_box){0, 0, 1, 1}, small));
    if (decode(bytes, length, &whole, &all)) {
        assert_same(&image, &all, part);
        kolo_image_fini(&all);
    }
    kolo_image_fini(&image);
}

static void rewrite(const uint8_t *bytes, size_t length) {
    uint8_t *seekable;
    size_t size;
    kolo_image before, after;
    if (kolo_image_make_seekable(bytes, length, &seekable, &size) != KOLO_OK || !seekable) return;
    decode_part(seekable, size);
    if (kolo_image_decode(bytes, length, "input", &before) == KOLO_OK) {
        KOLO_ASSERT(!kolo_image_decode(seekable, size, "rewritten", &after));
        assert_same(&before, &after, (kolo_box){0, 0, before.height, before.width});
        kolo_image_fini(&after);
        kolo_image_fini(&before);
    }
    kolo_free(seekable);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    kolo_image image;
    decode_mask(bytes, length);
    decode_part(bytes, length);
    compare_grey(bytes, length);
    rewrite(bytes, length);
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
