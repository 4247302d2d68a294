/* JPEG by libjpeg-turbo, whose errors leave through longjmp: what a failure has to free belongs to
 * the caller's image or to the decompressor. A file that ends early is damaged; other warnings,
 * such as stray bytes between markers, are not. */
#include "data/images/jpeg.h"

#include "base/integer.h"
#include "base/memory.h"
#include "data/images/formats.h"

/* After stdio.h. */
#include <jerror.h>

enum { MAX_SCANS = 100 }; /* each scan of a progressive image takes time for all its pixels */

/* ---- decompressor ---- */

static void fail(j_common_ptr jpeg) {
    kolo_jpeg_decoder *d = jpeg->client_data;
    jpeg->err->format_message(jpeg, d->text);
    longjmp(d->failed, 1);
}

static void warn(j_common_ptr jpeg, int level) {
    const int code = jpeg->err->msg_code;
    if (level >= 0) return;
    jpeg->err->num_warnings++;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) fail(jpeg);
}

static void watch(j_common_ptr jpeg) {
    kolo_jpeg_decoder *d = jpeg->client_data;
    if (d->jpeg.input_scan_number <= MAX_SCANS) return;
    snprintf(d->text, sizeof d->text, "more than %d scans", MAX_SCANS);
    longjmp(d->failed, 1);
}

void kolo_jpeg_create(kolo_jpeg_decoder *d) {
    d->progress = (struct jpeg_progress_mgr){.progress_monitor = watch};
    d->jpeg = (struct jpeg_decompress_struct){.err = jpeg_std_error(&d->errors), .client_data = d};
    d->errors.error_exit = fail;
    d->errors.emit_message = warn;
    jpeg_create_decompress(&d->jpeg); /* keeps err and client_data */
    d->jpeg.progress = &d->progress;
}

bool kolo_jpeg_try(kolo_jpeg_decoder *d, void (*use)(kolo_jpeg_decoder *d, void *arg), void *arg) {
    if (setjmp(d->failed)) return false;
    use(d, arg);
    return true;
}

bool kolo_jpeg_is_out_of_memory(const kolo_jpeg_decoder *d) {
    const int code = d->errors.msg_code;
    return code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE;
}

bool kolo_jpeg_is_whole(const uint8_t *bytes, size_t length) {
    return length >= 2 && bytes[length - 2] == 0xff && bytes[length - 1] == JPEG_EOI;
}

bool kolo_jpeg_misses_scans(const struct jpeg_decompress_struct *j) {
    if (!j->progressive_mode || !j->coef_bits) return false;
    for (int c = 0; c < j->num_components; c++) {
        for (int k = 0; k < DCTSIZE2; k++) {
            if (j->coef_bits[c][k] != 0) return true;
        }
    }
    return false;
}

/* ---- pixels ---- */

/* A pixel of four bytes becomes one of three, ink times black / 255, rounded. Adobe stores inverted
 * inks. The three are computed in 16 bits each of a word: of 128 + p, for p up to 255^2, the bytes
 * above 8 bits of t + t / 256 are p / 255, rounded. */
static void from_cmyk(const uint8_t *inks, int64_t width, bool inverted, uint8_t *row) {
    const uint64_t half = UINT64_C(0x008000800080), low = UINT64_C(0x00ff00ff00ff);
    const uint64_t flip = inverted ? 0 : low;
    for (int64_t x = 0; x < width; x++, inks += 4, row += 3) {
        const uint64_t black = inverted ? inks[3] : 255U - inks[3];
        const uint64_t three = inks[0] | (uint64_t)inks[1] << 16 | (uint64_t)inks[2] << 32;
        uint64_t t = (three ^ flip) * black + half;
        t = (t + (t >> 8 & low)) >> 8;
        row[0] = (uint8_t)t;
        row[1] = (uint8_t)(t >> 16);
        row[2] = (uint8_t)(t >> 32);
    }
}

static void read_header(kolo_jpeg_decoder *d, const uint8_t *bytes, size_t length, bool keeps_grey,
                        int *orientation) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    jpeg_mem_src(j, bytes, (unsigned long)length);
    jpeg_save_markers(j, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(j, TRUE);
    for (jpeg_saved_marker_ptr m = j->marker_list; m; m = m->next) {
        if (m->marker != JPEG_APP0 + 1) continue;
        *orientation = kolo_exif_orientation(m->data, m->data_length);
        if (*orientation != 1) break;
    }
    const bool inks = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
    const bool grey = keeps_grey && j->jpeg_color_space == JCS_GRAYSCALE;
    j->out_color_space = inks ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
}

/* The interval of `count` pixels from `first`, in pixels that are `shrink` of them, with one more
 * on each side, whose colours are upsampled as if the image ended there. */
static void shrink_side(int64_t first, int64_t count, int64_t shrink, int64_t side, int64_t *from,
                        int64_t *n) {
    const int64_t end = (first + count + shrink - 1) / shrink + 1;
    *from = kolo_max_i64(first / shrink - 1, 0);
    *n = kolo_min_i64(end, side) - *from;
}

/* What is decoded of an image that holds `part`, in pixels of the shrunk image. */
static kolo_box shrink_part(const kolo_box *part, const kolo_image *image) {
    const int64_t s = image->shrink;
    kolo_box held;
    shrink_side(part->y, part->height, s, (image->height + s - 1) / s, &held.y, &held.height);
    shrink_side(part->x, part->width, s, (image->width + s - 1) / s, &held.x, &held.width);
    return held;
}

/* Goes on with a JPEG of no more than what restart markers are around; *at is where that lies, in
 * pixels of the shrunk image. */
static kolo_status cut(kolo_jpeg_decoder *d, const uint8_t *bytes, size_t length,
                       const kolo_image *image, kolo_box *at) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    const int64_t s = image->shrink;
    kolo_box part = {at->y * s, at->x * s, at->height * s, at->width * s};
    size_t cut_length;
    part.height = kolo_min_i64(part.height, image->height - part.y);
    part.width = kolo_min_i64(part.width, image->width - part.x);
    KOLO_TRY(kolo_jpeg_cut(j, bytes, length, &part, &d->cut, &cut_length));
    *at = (kolo_box){0};
    if (!d->cut) return KOLO_OK;
    *at = (kolo_box){part.y / s, part.x / s, 0, 0};
    const J_COLOR_SPACE colours = j->out_color_space;
    jpeg_abort_decompress(j);
    jpeg_mem_src(j, d->cut, (unsigned long)cut_length);
    jpeg_read_header(j, TRUE);
    j->out_color_space = colours;
    return KOLO_OK;
}

/* Begins decoding, and chooses the part that is decoded: whole blocks, in columns. Sets *top, the
 * first row that is there. */
static kolo_status begin_part(kolo_jpeg_decoder *d, const uint8_t *bytes, size_t length,
                              const kolo_box *part, bool whole, kolo_image *image, int64_t *top) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    kolo_box *held = &image->held, at = shrink_part(part, image);
    *held = at;
    if (whole) {
        at = (kolo_box){0};
    } else {
        KOLO_TRY(cut(d, bytes, length, image, &at));
    }
    *top = at.y;
    j->scale_num = 1;
    j->scale_denom = (unsigned)image->shrink;
    jpeg_start_decompress(j);
    if (whole || kolo_jpeg_misses_scans(j)) {
        *held = (kolo_box){0, 0, j->output_height, j->output_width};
        return KOLO_OK;
    }
    JDIMENSION x = (JDIMENSION)(held->x - at.x), width = (JDIMENSION)held->width;
    if (width < j->output_width) jpeg_crop_scanline(j, &x, &width);
    held->x = at.x + x;
    held->width = width;
    return KOLO_OK;
}

/* Blocks below the part are not read. */
static void read_rows(kolo_jpeg_decoder *d, int64_t top, kolo_image *image) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    const kolo_box *held = &image->held;
    const size_t stride = (image->grey ? 1 : 3) * (size_t)held->width;
    JSAMPARRAY inks = NULL;
    if (j->out_color_space == JCS_CMYK) {
        inks = j->mem->alloc_sarray((j_common_ptr)j, JPOOL_IMAGE, 4 * j->output_width, 1);
    }
    if (held->y > top) jpeg_skip_scanlines(j, (JDIMENSION)(held->y - top));
    for (int64_t y = 0; y < held->height; y++) {
        JSAMPROW row = image->pixels + (size_t)y * stride;
        jpeg_read_scanlines(j, inks ? inks : &row, 1);
        if (inks) from_cmyk(inks[0], held->width, j->saw_Adobe_marker, row);
    }
    if (j->output_scanline == j->output_height) jpeg_finish_decompress(j);
}

/* Nothing that changes after setjmp is read after longjmp, but through pointers. */
static kolo_status decode(kolo_jpeg_decoder *d, const uint8_t *bytes, size_t length,
                          const char *where, const kolo_image_request *request, kolo_image *image,
                          int *orientation) {
    if (setjmp(d->failed)) {
        if (kolo_jpeg_is_out_of_memory(d)) {
            return KOLO_FAIL(KOLO_ERR_NOMEM, "%s: no memory for libjpeg: %s", where, d->text);
        }
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: damaged JPEG: %s", where, d->text);
    }
    read_header(d, bytes, length, request->keeps_grey, orientation);
    image->grey = d->jpeg.out_color_space == JCS_GRAYSCALE;
    image->height = d->jpeg.image_height;
    image->width = d->jpeg.image_width;
    KOLO_TRY(kolo_image_check(image->height, image->width, length, where));
    const kolo_box part =
        kolo_image_requested(request, image->height, image->width, *orientation, &image->shrink);
    const bool whole = !request->choice || !kolo_jpeg_is_whole(bytes, length);
    int64_t top;
    KOLO_TRY(begin_part(d, bytes, length, &part, whole, image, &top));
    const size_t pixels = (size_t)image->held.height * (size_t)image->held.width;
    KOLO_TRY(kolo_image_make_room(image, (image->grey ? 1 : 3) * pixels));
    read_rows(d, top, image);
    return KOLO_OK;
}

kolo_status kolo_jpeg_decode(const uint8_t *bytes, size_t length, const char *where,
                             const kolo_image_request *request, kolo_image *image,
                             int *orientation) {
    kolo_jpeg_decoder d = {.cut = NULL};
    if (setjmp(d.failed)) return KOLO_NOMEM(sizeof d);
    kolo_jpeg_create(&d);
    const kolo_status status = decode(&d, bytes, length, where, request, image, orientation);
    jpeg_destroy_decompress(&d.jpeg);
    kolo_free(d.cut);
    return status;
}
