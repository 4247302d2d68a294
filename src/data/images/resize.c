/* Antialiased bilinear resizing: the triangle filter, stretched by the ratio where an image
 * shrinks, first along rows, then along columns, with 8-bit results and fixed-point weights of 22
 * bits, which makes the bytes those of Pillow. Only the rows and columns of the window are
 * computed. Where an image has a shrink, the part to resize may begin and end within a pixel. */
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/images/image.h"
#include "data/images/resize_loops.h"

#include <math.h>
#include <string.h>

typedef kolo_resize_filter filter;

/* A side to resize, in pixels that are `shrink` of the image. */
typedef struct side {
    int64_t base, in; /* the pixels that it touches */
    double offset;    /* of the side in them */
    double scale;     /* of them for one of the result */
} side;

static side side_of(int64_t first, int64_t count, int64_t shrink, int64_t out) {
    const int64_t base = first / shrink;
    return (side){
        .base = base,
        .in = (first + count + shrink - 1) / shrink - base,
        .offset = (double)(first % shrink) / (double)shrink,
        .scale = (double)count / (double)out / (double)shrink,
    };
}

/* Gives all outputs as many weights as the one with most, zeros among them, where that reads no
 * other inputs: loops of one length need no prediction. */
static void even_out(filter *f, int64_t n) {
    const int32_t first = f->first[0], end = f->first[n - 1] + f->count[n - 1];
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = f->count[i] > most ? f->count[i] : most;
    if (end - first < most) return;
    for (int64_t i = 0; i < n; i++) {
        int32_t *weight = f->weight + i * f->taps;
        const int32_t missing = most - f->count[i], room = end - f->first[i] - f->count[i];
        const int32_t behind = missing < room ? missing : room, before = missing - behind;
        memmove(weight + before, weight, (size_t)f->count[i] * sizeof *weight);
        memset(weight, 0, (size_t)before * sizeof *weight);
        memset(weight + most - behind, 0, (size_t)behind * sizeof *weight);
        f->first[i] -= before;
        f->count[i] = most;
    }
    f->even = most;
}

/* Output `from` to `from` + `n` of a side. */
static kolo_status filter_init(const side *s, int64_t from, int64_t n, kolo_image_memory *memory,
                               kolo_image_block block, filter *f) {
    const double scale = s->scale, stretch = scale > 1 ? scale : 1, by = 1 / stretch;
    const int64_t in = s->in;
    f->taps = (int64_t)ceil(stretch) * 2 + 1;
    const size_t bytes = (size_t)(n * (f->taps + 2)) * sizeof *f->first;
    double *exact = kolo_image_reserve(memory, KOLO_IMAGE_WEIGHTS, (size_t)f->taps * sizeof *exact);
    f->first = kolo_image_reserve(memory, block, bytes);
    if (!f->first || !exact) return KOLO_NOMEM(bytes);
    f->count = f->first + n;
    f->weight = f->count + n;
    for (int64_t i = 0; i < n; i++) {
        const double centre = s->offset + ((double)(from + i) + 0.5) * scale;
        const int64_t low = kolo_max_i64((int64_t)(centre - stretch + 0.5), 0);
        const int64_t high = kolo_min_i64((int64_t)(centre + stretch + 0.5), in);
        double sum = 0;
        for (int64_t k = low; k < high; k++) {
            const double w = 1 - fabs(((double)k - centre + 0.5) * by);
            exact[k - low] = w > 0 ? w : 0;
            sum += exact[k - low];
        }
        f->first[i] = (int32_t)low;
        f->count[i] = (int32_t)(high - low);
        for (int64_t k = 0; k < high - low; k++) {
            const double w = sum != 0 ? exact[k] / sum : exact[k];
            f->weight[i * f->taps + k] = (int32_t)(0.5 + w * (1 << KOLO_RESIZE_BITS));
        }
    }
    even_out(f, n);
    return KOLO_OK;
}

/* What resizing one image takes: the rows of the part, filtered, and room for a few of them. */
typedef struct scratch {
    uint8_t *between; /* [row, channel, n] */
    uint8_t *work;
    uint8_t *turned; /* rows whose pixels are not beside each other; NULL: they are */
    uint8_t *spare;  /* filtered rows below the last */
} scratch;

static kolo_status scratch_init(const kolo_image *image, kolo_image_memory *memory, int64_t rows,
                                int64_t width, int64_t n, scratch *s) {
    const size_t bytes = (size_t)(3 * n * rows) + KOLO_RESIZE_PAD;
    const bool turned = image->column != (image->grey ? 1 : 3);
    s->between = kolo_image_reserve(memory, KOLO_IMAGE_BETWEEN, bytes);
    s->work = kolo_image_reserve(memory, KOLO_IMAGE_WORK, (size_t)kolo_resize_work(width, n));
    s->spare = kolo_image_reserve(memory, KOLO_IMAGE_SPARE, (size_t)(3 * n));
    if (turned) {
        s->turned = kolo_image_reserve(memory, KOLO_IMAGE_TURNED,
                                       (size_t)(3 * width * KOLO_RESIZE_MOST_ROWS));
    }
    if (s->between) memset(s->between + bytes - KOLO_RESIZE_PAD, 0, KOLO_RESIZE_PAD);
    return s->between && s->work && s->spare && (s->turned || !turned) ? KOLO_OK
                                                                       : KOLO_NOMEM(bytes);
}

/* `width` pixels from the y-th row in memory and its x-th pixel on, beside each other. */
static const uint8_t *row_of(const kolo_image *image, int64_t y, int64_t x, int64_t width,
                             uint8_t *turned) {
    const uint8_t *from = image->origin + y * image->row + x * image->column;
    if (!turned) return from;
    for (int64_t i = 0; i < width; i++, from += image->column) {
        if (image->grey) {
            turned[i] = *from;
        } else {
            memcpy(turned + 3 * i, from, 3);
        }
    }
    return turned;
}

/* (y0, x0): the pixel of the part in memory where the filters begin; may lie outside of it. */
static kolo_status resize_by(const kolo_image *image, kolo_image_memory *memory, int64_t y0,
                             int64_t x0, const filter *rows, filter *columns, kolo_box window,
                             uint8_t *to) {
    const kolo_resize_loops *loops = KOLO_ISA_PICK(kolo_resize);
    const int channels = image->grey ? 1 : 3;
    const int64_t n = window.width, last = window.height - 1, row = channels * n;
    const int64_t top = rows->first[0], bottom = rows->first[last] + rows->count[last];
    const int64_t left = columns->first[0];
    const int64_t width = columns->first[n - 1] + columns->count[n - 1] - left;
    scratch s = {0};
    KOLO_TRY(scratch_init(image, memory, bottom - top, width, n, &s));
    for (int64_t i = 0; i < n; i++) columns->first[i] -= (int32_t)left;
    for (int64_t y = top; y < bottom; y += loops->rows) {
        const uint8_t *from[KOLO_RESIZE_MOST_ROWS];
        uint8_t *filtered[KOLO_RESIZE_MOST_ROWS];
        for (int64_t r = 0; r < loops->rows; r++) {
            const bool there = y + r < bottom;
            uint8_t *turned = s.turned ? s.turned + 3 * width * r : NULL;
            filtered[r] = there ? s.between + (y + r - top) * row : s.spare;
            from[r] = there ? row_of(image, y0 + y + r, x0 + left, width, turned) : from[r - 1];
        }
        loops->along_rows(from, width, channels, columns, n, s.work, filtered);
    }
    for (int64_t i = 0; i < channels * window.height; i++) {
        const int64_t c = i / window.height, y = i % window.height;
        loops->along_columns(s.between + c * n, row, top, rows, y, n, to + i * n);
    }
    const size_t plane = (size_t)(window.height * n);
    for (int c = channels; c < 3; c++) memcpy(to + (size_t)c * plane, to, plane);
    return KOLO_OK;
}

/* Whether the pixels that a filter reads, the first of them `base`, lie in `count` from `first`. */
static bool holds(const filter *f, int64_t n, int64_t base, int64_t first, int64_t count) {
    return base + f->first[0] >= first && base + f->first[n - 1] + f->count[n - 1] <= first + count;
}

kolo_status kolo_image_resize(const kolo_image *image, kolo_box from, int64_t height, int64_t width,
                              kolo_box window, uint8_t *to) {
    const kolo_box *held = &image->held;
    const side y = side_of(from.y + image->before[0], from.height, image->shrink, height);
    const side x = side_of(from.x + image->before[1], from.width, image->shrink, width);
    filter rows = {0}, columns = {0};
    kolo_image_memory own = {{NULL}, {0}, NULL};
    kolo_image_memory *memory = image->memory ? image->memory : &own;
    kolo_status status =
        filter_init(&y, window.y, window.height, memory, KOLO_IMAGE_ROW_FILTER, &rows);
    if (status == KOLO_OK) {
        status =
            filter_init(&x, window.x, window.width, memory, KOLO_IMAGE_COLUMN_FILTER, &columns);
    }
    if (status == KOLO_OK) {
        KOLO_ASSERT(holds(&rows, window.height, y.base, held->y, held->height));
        KOLO_ASSERT(holds(&columns, window.width, x.base, held->x, held->width));
        status = resize_by(image, memory, y.base - held->y, x.base - held->x, &rows, &columns,
                           window, to);
    }
    kolo_image_memory_fini(&own);
    return status;
}

/* The pixels of a side under the filters of a window, and two more: rounding, and the edge of a
 * larger pixel. */
static void needs_side(int64_t first, int64_t in, int64_t out, int64_t from, int64_t n, int64_t *at,
                       int64_t *count) {
    const double scale = (double)in / (double)out, reach = (scale > 1 ? scale : 1) + 2;
    const int64_t low = (int64_t)floor(((double)from + 0.5) * scale - reach);
    const int64_t high = (int64_t)ceil(((double)(from + n) - 0.5) * scale + reach);
    *at = first + kolo_max_i64(low, 0);
    *count = first + kolo_min_i64(high, in) - *at;
}

kolo_box kolo_image_needs(kolo_box from, int64_t height, int64_t width, kolo_box window) {
    kolo_box part;
    needs_side(from.y, from.height, height, window.y, window.height, &part.y, &part.height);
    needs_side(from.x, from.width, width, window.x, window.width, &part.x, &part.width);
    return part;
}

void kolo_mask_resize(const kolo_image *mask, kolo_box from, int64_t height, int64_t width,
                      kolo_box window, uint8_t *to) {
    for (int64_t y = 0; y < window.height; y++) {
        const int64_t at = from.y + (2 * (window.y + y) + 1) * from.height / (2 * height);
        const uint8_t *row = mask->origin + at * mask->row;
        for (int64_t x = 0; x < window.width; x++) {
            const int64_t by = from.x + (2 * (window.x + x) + 1) * from.width / (2 * width);
            *to++ = row[by * mask->column];
        }
    }
}
