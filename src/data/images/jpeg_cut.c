/* Cutting a part out of a JPEG by its restart markers: what is between two markers decodes by
 * itself, so those of a part are copied behind a header with the size of the part. */
#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/images/jpeg.h"

#include <string.h>

enum { MARKER = 2 /* bytes */ };

/* The intervals between restart markers, as a grid: a column has `width` pixels, a row `height`. */
typedef struct grid {
    int64_t width, height, columns, rows;
    int64_t least; /* columns of a part */
} grid;

/* Returns false if there are none, or they do not end with rows of blocks. */
static bool make_grid(const struct jpeg_decompress_struct *j, grid *g) {
    const int64_t interval = j->restart_interval;
    const bool single = j->num_components == 1; /* its units are blocks, whatever its sampling */
    const int64_t width = DCTSIZE * (single ? 1 : j->max_h_samp_factor);
    const int64_t height = DCTSIZE * (single ? 1 : j->max_v_samp_factor);
    const int64_t units = ((int64_t)j->image_width + width - 1) / width; /* of a row */
    if (j->progressive_mode || j->arith_code || interval == 0 ||
        j->comps_in_scan != j->num_components || (units % interval != 0 && interval % units != 0)) {
        return false;
    }
    g->columns = kolo_max_i64(units / interval, 1);
    g->width = g->columns > 1 ? interval * width : units * width;
    /* In a part of one unit a colour may have two samples in a row, which libjpeg repeats instead
     * of interpolating between them. */
    g->least = kolo_min_i64(interval == 1 ? 2 : 1, g->columns);
    g->height = kolo_max_i64(interval / units, 1) * height;
    g->rows = ((int64_t)j->image_height + g->height - 1) / g->height;
    return true;
}

/* The marker that ends the data of an interval: at its 0xff, or NULL. */
static const uint8_t *find_marker(const uint8_t *data, const uint8_t *end) {
    while (end - data >= MARKER) {
        data = memchr(data, 0xff, (size_t)(end - data - 1));
        if (!data) return NULL;
        if (data[1] == 0xff) {
            data++; /* of several the last one counts */
        } else if (data[1] == 0) {
            data += 2; /* a byte of the data */
        } else {
            return data;
        }
    }
    return NULL;
}

/* Copies the intervals of a part (in columns and rows of the grid) to `to`, and ends the image.
 * Returns what is behind it; NULL: other markers than these are between them. */
static uint8_t *copy_intervals(const grid *g, const kolo_box *part, const uint8_t *data,
                               const uint8_t *end, uint8_t *to) {
    int copied = 0;
    for (int64_t i = 0; i < (part->y + part->height) * g->columns; i++) {
        const int64_t row = i / g->columns, column = i % g->columns;
        const bool last = i == g->rows * g->columns - 1;
        const uint8_t *marker = find_marker(data, end);
        const int expected = last ? JPEG_EOI : JPEG_RST0 + (int)(i & 7);
        if (!marker || marker[1] != expected) return NULL;
        if (row >= part->y && column >= part->x && column < part->x + part->width) {
            memcpy(to, data, (size_t)(marker - data));
            to += marker - data;
            *to++ = 0xff;
            *to++ = (uint8_t)(JPEG_RST0 + (copied++ & 7));
        }
        data = marker + MARKER;
    }
    to[-1] = JPEG_EOI;
    return to;
}

/* Where the frame header has the height and the width, two bytes each. NULL: there is none, or
 * there is more than segments before it. */
static const uint8_t *find_size(const uint8_t *bytes, const uint8_t *end) {
    enum { FIRST = 0xc0, SOF0 = 0xc0, SOF1 = 0xc1 };
    for (const uint8_t *m = bytes + MARKER; end - m >= 9;) {
        if (m[0] != 0xff) return NULL;
        if (m[1] == 0xff) {
            m++; /* fill */
        } else if (m[1] == SOF0 || m[1] == SOF1) {
            return m + 5;
        } else if (m[1] < FIRST || m[1] >> 3 == JPEG_RST0 >> 3) {
            return NULL; /* no length follows */
        } else {
            m += MARKER + (m[2] << 8 | m[3]);
        }
    }
    return NULL;
}

static void put_size(uint8_t *at, int64_t height, int64_t width) {
    at[0] = (uint8_t)(height >> 8);
    at[1] = (uint8_t)height;
    at[2] = (uint8_t)(width >> 8);
    at[3] = (uint8_t)width;
}

kolo_status kolo_jpeg_cut(const struct jpeg_decompress_struct *j, const uint8_t *bytes,
                          size_t length, kolo_box *part, uint8_t **cut, size_t *cut_length) {
    const int64_t height = j->image_height, width = j->image_width;
    const uint8_t *data = j->src->next_input_byte, *size = find_size(bytes, data);
    const size_t header = (size_t)(data - bytes);
    grid g;
    *cut = NULL;
    if (!size || !make_grid(j, &g)) return KOLO_OK;
    kolo_box in = {part->y / g.height, part->x / g.width, 0, 0};
    in.height = (part->y + part->height + g.height - 1) / g.height - in.y;
    in.width = (part->x + part->width + g.width - 1) / g.width - in.x;
    in.width = kolo_max_i64(in.width, g.least);
    in.x = kolo_min_i64(in.x, g.columns - in.width);
    if (in.height == g.rows && in.width == g.columns) return KOLO_OK;
    uint8_t *out = kolo_alloc(length);
    if (!out) return KOLO_NOMEM(length);
    memcpy(out, bytes, header);
    const uint8_t *end = copy_intervals(&g, &in, data, bytes + length, out + header);
    if (!end) {
        kolo_free(out);
        return KOLO_OK;
    }
    *part = (kolo_box){in.y * g.height, in.x * g.width, 0, 0};
    part->height = kolo_min_i64((in.y + in.height) * g.height, height) - part->y;
    part->width = kolo_min_i64((in.x + in.width) * g.width, width) - part->x;
    put_size(out + (size - bytes), part->height, part->width);
    *cut = out;
    *cut_length = (size_t)(end - out);
    return KOLO_OK;
}

unsigned kolo_jpeg_interval(const struct jpeg_decompress_struct *j) {
    enum { LEAST = 3, MOST = 6 };
    const unsigned width = DCTSIZE * (j->num_components == 1 ? 1 : (unsigned)j->max_h_samp_factor);
    const unsigned units = (j->image_width + width - 1) / width;
    for (unsigned n = LEAST; n <= MOST; n++) {
        if (units % n == 0) return n;
    }
    return units;
}
