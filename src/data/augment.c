/* Augmentation. Flip and crop are one copy of the sample through `work`; then colours change, the
 * operations of RandAugment follow, and erasing overwrites a square. Sample `index` uses draws 2
 * index and 2 index + 1 of the epoch's stream: {flip, dy, dx, -} and {centre y, centre x, -, -}. */
#include "data/augment.h"

#include "base/number.h"
#include "base/rng.h"
#include "base/status.h"
#include "data/batch.h"
#include "data/images/colour.h"
#include "data/images/randaugment.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERATIONS = 16 /* for each sample, this many draws of the stream */ };

static bool parse_pixels(const char *value, const char *end, int *pixels) {
    char *stop;
    errno = 0;
    long n = strtol(value, &stop, 10);
    if (stop != end || stop == value || errno || n < 1 || n > 4096) return false;
    *pixels = (int)n;
    return true;
}

static bool parse_area(const char *value, const char *end, double *area) {
    char *stop;
    *area = kolo_parse_double(value, &stop);
    return stop == end && stop != value && *area > 0 && *area <= 1;
}

/* "A:B" */
static bool parse_scale(const char *value, const char *end, double *scale) {
    char *stop;
    scale[0] = kolo_parse_double(value, &stop);
    if (stop == value || *stop != ':') return false;
    value = stop + 1;
    scale[1] = kolo_parse_double(value, &stop);
    return stop == end && stop != value && scale[0] >= 0.01 && scale[0] <= scale[1] &&
           scale[1] <= 100;
}

static bool parse_alpha(const char *value, const char *end, double *alpha) {
    char *stop;
    *alpha = kolo_parse_double(value, &stop);
    return stop == end && stop != value && *alpha >= 0.01 && *alpha <= 100;
}

/* "N:M" */
static bool parse_operations(const char *value, const char *end, kolo_augment *augment) {
    char *stop;
    errno = 0;
    const long n = strtol(value, &stop, 10);
    if (stop == value || *stop != ':' || n < 1 || n > MOST_OPERATIONS) return false;
    value = stop + 1;
    const long strength = strtol(value, &stop, 10);
    if (stop != end || stop == value || errno) return false;
    if (strength < 0 || strength >= KOLO_RANDAUGMENT_STRENGTHS) return false;
    augment->operations = (int)n;
    augment->strength = (int)strength;
    return true;
}

/* "B:C:S:H" up to `end`, of which the last ones may be missing; not all 0. */
static bool parse_jitter(const char *value, const char *end, kolo_augment *augment) {
    for (int i = 0; i < KOLO_COLOUR_CHANGES; i++) {
        char *stop;
        const double most = i == KOLO_HUE ? 0.5 : 10, x = kolo_parse_double(value, &stop);
        if (stop == value || !(x >= 0 && x <= most)) return false;
        augment->jitter[i] = x;
        if (stop == end) return kolo_augment_jitters(augment);
        if (*stop != ':') return false;
        value = stop + 1;
    }
    return false;
}

static kolo_status unknown_part(const char *text, const char *name, int length) {
    static const char *const parts[] = {"resized-crop", "scale", "flip",  "crop",   "jitter",
                                        "randaugment",  "erase", "mixup", "cutmix", NULL};
    const char *closest = kolo_closest(name, parts);
    return KOLO_FAIL(KOLO_ERR_ARG, "augment: unknown \"%.*s\": %s%s", length, text,
                     closest
                         ? "did you mean "
                         : "known are flip, crop=PIXELS, jitter=B:C:S:H, erase=PIXELS, "
                           "resized-crop[=AREA], scale=LEAST:MOST, randaugment[=N:M], mixup=ALPHA, "
                           "cutmix=ALPHA",
                     closest ? closest : "");
}

static kolo_status parse_part(const char *text, const char *end, kolo_augment *augment) {
    size_t n = (size_t)(end - text), key = strcspn(text, "=,");
    const char *value = key < n ? text + key + 1 : NULL, *write;
    char name[16] = "";
    if (key < sizeof name) memcpy(name, text, key);
    bool good;
    if (!strcmp(name, "flip")) {
        augment->flip = good = !value;
        write = "flip takes no value";
    } else if (!strcmp(name, "resized-crop")) {
        augment->least_area = 0.08;
        good = !value || parse_area(value, end, &augment->least_area);
        write = "write resized-crop=AREA, the least part of the image, at most 1";
    } else if (!strcmp(name, "scale")) {
        good = value && parse_scale(value, end, augment->scale);
        write = "write scale=LEAST:MOST, factors of 0.01 to 100, such as scale=0.5:2";
    } else if (!strcmp(name, "crop")) {
        good = value && parse_pixels(value, end, &augment->crop);
        write = "write crop=PIXELS, 1 to 4096";
    } else if (!strcmp(name, "jitter")) {
        good = value && parse_jitter(value, end, augment);
        write = "write jitter=B:C:S:H, the strengths of brightness, contrast and saturation, 0 to "
                "10, and of hue, 0 to 0.5; the last ones may be left out";
    } else if (!strcmp(name, "randaugment")) {
        augment->operations = 2;
        augment->strength = 9;
        good = !value || parse_operations(value, end, augment);
        write = "write randaugment=N:M, 1 to 16 operations of a strength of 0 to 30";
    } else if (!strcmp(name, "erase")) {
        good = value && parse_pixels(value, end, &augment->erase);
        write = "write erase=PIXELS, 1 to 4096";
    } else if (!strcmp(name, "mixup")) {
        good = value && parse_alpha(value, end, &augment->mixup);
        write = "write mixup=ALPHA, 0.01 to 100, such as mixup=0.2";
    } else if (!strcmp(name, "cutmix")) {
        good = value && parse_alpha(value, end, &augment->cutmix);
        write = "write cutmix=ALPHA, 0.01 to 100, such as cutmix=1";
    } else {
        return unknown_part(text, name, (int)key);
    }
    return good ? KOLO_OK : KOLO_FAIL(KOLO_ERR_ARG, "augment: \"%.*s\": %s", (int)n, text, write);
}

kolo_status kolo_augment_parse(const char *text, kolo_augment *augment) {
    *augment = (kolo_augment){0};
    while (text && *text) {
        const char *end = text + strcspn(text, ",");
        KOLO_TRY(parse_part(text, end, augment));
        text = *end ? end + 1 : end;
    }
    if (augment->least_area > 0 && augment->scale[1] > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "augment: resized-crop and scale both choose the part of an "
                                       "image: give one of them");
    }
    return KOLO_OK;
}

/* Maps a draw to [0, bound). */
static int64_t below(uint32_t draw, int64_t bound) {
    return (int64_t)((uint64_t)draw * (uint64_t)bound >> 32);
}

enum { TRIES = 10 };

kolo_box kolo_augment_box(const kolo_draw *by, int64_t index, int64_t height, int64_t width) {
    const kolo_rng rng = kolo_rng_make(by->seed, KOLO_RNG_CROP, (uint64_t)by->epoch);
    const double least = by->augment->least_area, widest = log(4.0 / 3);
    for (uint64_t i = 0; i < TRIES; i++) {
        uint32_t draw[4]; /* area, ratio, y, x */
        kolo_rng_draw(&rng, TRIES * (uint64_t)index + i, draw);
        const double area = (double)(height * width) * (least + (1 - least) * draw[0] * 0x1p-32);
        const double ratio = exp(widest * (draw[1] * 0x1p-31 - 1));
        const int64_t w = (int64_t)(sqrt(area * ratio) + 0.5);
        const int64_t h = (int64_t)(sqrt(area / ratio) + 0.5);
        if (w < 1 || h < 1 || w > width || h > height) continue;
        return (kolo_box){below(draw[2], height - h + 1), below(draw[3], width - w + 1), h, w};
    }
    /* The largest part in the centre with an aspect ratio in the range. */
    kolo_box box = {0, 0, height, width};
    if (3 * width > 4 * height) box.width = (4 * height + 1) / 3;
    if (3 * height > 4 * width) box.height = (4 * width + 1) / 3;
    box.y = (height - box.height) / 2;
    box.x = (width - box.width) / 2;
    return box;
}

void kolo_augment_scale(const kolo_draw *by, int64_t index, const int64_t *sample, int64_t *image,
                        int64_t *at) {
    const kolo_rng rng = kolo_rng_make(by->seed, KOLO_RNG_CROP, (uint64_t)by->epoch);
    const double *scale = by->augment->scale;
    uint32_t draw[4]; /* scale, y, x */
    kolo_rng_draw(&rng, (uint64_t)index, draw);
    const double factor = scale[0] + (scale[1] - scale[0]) * draw[0] * 0x1p-32;
    for (int d = 0; d < 2; d++) {
        image[d] = (int64_t)((double)image[d] * factor + 0.5);
        if (image[d] < 1) image[d] = 1;
        const int64_t room = sample[d] - image[d];
        at[d] = room >= 0 ? below(draw[1 + d], room + 1) : -below(draw[1 + d], -room + 1);
    }
}

static void mirror(const uint8_t *restrict from, int64_t n, uint8_t *restrict to) {
    int64_t x = 0;
    for (; x + 8 <= n; x += 8) {
        uint64_t eight;
        memcpy(&eight, from + x, sizeof eight);
        eight = __builtin_bswap64(eight);
        memcpy(to + n - x - 8, &eight, sizeof eight);
    }
    for (; x < n; x++) to[n - 1 - x] = from[x];
}

/* Mirrors rows of `width` bytes where they are: words from both ends change places. */
static void mirror_rows(uint8_t *row, int64_t rows, int64_t width) {
    for (int64_t y = 0; y < rows; y++, row += width) {
        int64_t x = 0, end = width;
        for (; end - x >= 16; x += 8, end -= 8) {
            uint64_t left, right;
            memcpy(&left, row + x, sizeof left);
            memcpy(&right, row + end - 8, sizeof right);
            left = __builtin_bswap64(left);
            right = __builtin_bswap64(right);
            memcpy(row + x, &right, sizeof right);
            memcpy(row + end - 8, &left, sizeof left);
        }
        for (; end - x >= 2; x++, end--) {
            const uint8_t left = row[x];
            row[x] = row[end - 1];
            row[end - 1] = left;
        }
    }
}

/* Shifts one plane of elements of `size` bytes, to[y][x] = from[y + dy][x + dx], then mirrors it.
 * Bytes shifted in are `fill`. */
static void move_plane(const uint8_t *from, int64_t height, int64_t width, int64_t size, int fill,
                       int64_t dy, int64_t dx, bool flip, uint8_t *to) {
    int64_t left = dx < 0 ? -dx : 0; /* columns shifted in on the left */
    int64_t kept = width - (dx < 0 ? -dx : dx);
    memset(to, fill, (size_t)(height * width * size));
    for (int64_t y = 0; y < height && kept > 0; y++) {
        if (y + dy < 0 || y + dy >= height) continue;
        const uint8_t *row = from + ((y + dy) * width + left + dx) * size;
        uint8_t *dst = to + y * width * size;
        if (!flip) {
            memcpy(dst + left * size, row, (size_t)(kept * size));
            continue;
        }
        if (size == 1) {
            mirror(row, kept, dst + width - left - kept);
            continue;
        }
        for (int64_t x = 0; x < kept; x++) {
            memcpy(dst + (width - 1 - left - x) * size, row + x * size, (size_t)size);
        }
    }
}

static void jitter_colours(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                           const kolo_shape *image, uint8_t *sample) {
    static kolo_colour_change *const changes[] = {
        [KOLO_BRIGHTNESS] = kolo_colour_brightness,
        [KOLO_CONTRAST] = kolo_colour_contrast,
        [KOLO_SATURATION] = kolo_colour_saturation,
        [KOLO_HUE] = kolo_colour_hue,
    };
    const kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_COLOUR, (uint64_t)epoch);
    uint32_t amounts[4], turns[4];
    int order[] = {KOLO_BRIGHTNESS, KOLO_CONTRAST, KOLO_SATURATION, KOLO_HUE};
    kolo_rng_draw(&rng, 2 * (uint64_t)index, amounts);
    kolo_rng_draw(&rng, 2 * (uint64_t)index + 1, turns);
    for (int i = 0; i < KOLO_COLOUR_CHANGES; i++) {
        const int64_t other = i + below(turns[i], KOLO_COLOUR_CHANGES - i);
        const int change = order[other];
        order[other] = order[i];
        order[i] = change;
        const double strength = augment->jitter[change], middle = change == KOLO_HUE ? 0 : 1;
        const double least = change == KOLO_HUE ? -strength : fmax(0, middle - strength);
        const double amount = least + (middle + strength - least) * amounts[change] * 0x1p-32;
        if (strength == 0) continue;
        changes[change](sample, image->dim[0], image->dim[1] * image->dim[2], amount);
    }
}

/* Operation k of a sample has draw 16 index + k of a stream of its own: {operation, sign, -, -}. */
static void apply_operations(const kolo_augment *augment, uint64_t seed, int64_t epoch,
                             int64_t index, const kolo_shape *image, uint8_t *sample,
                             uint8_t *work) {
    const uint64_t stream = (uint64_t)epoch | UINT64_C(1) << 48; /* apart from the epochs */
    const kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_AUGMENT, stream);
    const int64_t height = image->dim[1], width = image->dim[2];
    for (int k = 0; k < augment->operations; k++) {
        uint32_t draw[4];
        kolo_rng_draw(&rng, MOST_OPERATIONS * (uint64_t)index + (uint64_t)k, draw);
        const int op = (int)below(draw[0], KOLO_RANDAUGMENT_OPS);
        const double strength = kolo_randaugment_strength(op, augment->strength, height, width);
        const bool negative = kolo_randaugment_is_signed(op) && draw[1] >> 31;
        kolo_randaugment_apply(op, negative ? -strength : strength, image->dim[0], height, width,
                               sample, work);
    }
}

static void erase_square(const kolo_field *image, int64_t cy, int64_t cx, int64_t side,
                         uint8_t *sample) {
    int64_t height = image->shape.dim[1], width = image->shape.dim[2];
    int64_t y0 = cy - side / 2, x0 = cx - side / 2, y1 = y0 + side, x1 = x0 + side;
    if (y0 < 0) y0 = 0;
    if (x0 < 0) x0 = 0;
    if (y1 > height) y1 = height;
    if (x1 > width) x1 = width;
    for (int64_t c = 0; c < image->shape.dim[0]; c++) {
        int mean = (int)(image->mean[c] * 255.0F + 0.5F);
        for (int64_t y = y0; y < y1; y++) {
            memset(sample + (c * height + y) * width + x0, mean, (size_t)(x1 - x0));
        }
    }
}

static bool is_map(const kolo_field *fields) {
    const kolo_shape *image = &fields[KOLO_FIELD_X].shape, *label = &fields[KOLO_FIELD_Y].shape;
    return label->rank == 2 && label->dim[0] == image->dim[1] && label->dim[1] == image->dim[2];
}

size_t kolo_augment_work(const kolo_field *fields) {
    size_t sample = kolo_field_bytes(&fields[KOLO_FIELD_X]);
    size_t labels = kolo_field_bytes(&fields[KOLO_FIELD_Y]);
    return sample > labels ? sample : labels;
}

void kolo_augment_apply(const kolo_augment *augment, uint64_t seed, int64_t epoch, int64_t index,
                        const kolo_field *fields, uint8_t *sample, int32_t *labels, uint8_t *work) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_AUGMENT, (uint64_t)epoch);
    const kolo_field *image = &fields[KOLO_FIELD_X];
    int64_t channels = image->shape.dim[0], height = image->shape.dim[1];
    int64_t width = image->shape.dim[2], pixels = height * width;
    uint32_t draw[4];
    kolo_rng_draw(&rng, 2 * (uint64_t)index, draw);
    bool flip = augment->flip && draw[0] >> 31;
    int64_t dy = below(draw[1], 2 * augment->crop + 1) - augment->crop;
    int64_t dx = below(draw[2], 2 * augment->crop + 1) - augment->crop;
    bool moves = flip || dy != 0 || dx != 0;
    if (flip && dy == 0 && dx == 0) {
        mirror_rows(sample, channels * height, width);
    } else if (moves) {
        memcpy(work, sample, (size_t)(channels * pixels));
        for (int64_t c = 0; c < channels; c++) {
            move_plane(work + c * pixels, height, width, 1, 0, dy, dx, flip, sample + c * pixels);
        }
    }
    if (moves && is_map(fields)) { /* all bytes 0xff: -1, no label */
        memcpy(work, labels, (size_t)pixels * sizeof *labels);
        move_plane(work, height, width, sizeof *labels, 0xff, dy, dx, flip, (uint8_t *)labels);
    }
    if (kolo_augment_jitters(augment)) {
        jitter_colours(augment, seed, epoch, index, &image->shape, sample);
    }
    if (augment->operations > 0) {
        apply_operations(augment, seed, epoch, index, &image->shape, sample, work);
    }
    if (augment->erase == 0) return;
    kolo_rng_draw(&rng, 2 * (uint64_t)index + 1, draw);
    erase_square(image, below(draw[0], height), below(draw[1], width), augment->erase, sample);
}
