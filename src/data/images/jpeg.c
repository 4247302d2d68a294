/* JPEG by libjpeg-turbo, whose errors leave through longjmp: what a failure has to free belongs to
 * the caller's image or to the decompressor. A file that ends early is damaged; other warnings,
 * such as stray bytes between markers, are not. */
#include "base/integer.h"
#include "base/memory.h"
#include "data/images/formats.h"

#include <setjmp.h>
#include <stdio.h>

/* After stdio.h. */
#include <jerror.h>
#include <jpeglib.h>

enum { MAX_SCANS = 100 }; /* each scan of a progressive image takes time for all its pixels */

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
} decoder;

static void fail(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    jpeg->err->format_message(jpeg, d->text);
    longjmp(d->failed, 1);
}

static void warn(j_common_ptr jpeg, int level) {
    const int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) fail(jpeg);
}

static void watch(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    if (d->jpeg.input_scan_number <= MAX_SCANS) return;
    snprintf(d->text, sizeof d->text, "more than %d scans", MAX_SCANS);
    longjmp(d->failed, 1);
}

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

static void read_header(decoder *d, const uint8_t *bytes, size_t length, int *orientation) {
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
    j->out_color_space = inks ? JCS_CMYK : JCS_RGB;
}

/* Whether the file ends with its end mark. */
static bool is_whole(const uint8_t *bytes, size_t length) {
    return length >= 2 && bytes[length - 2] == 0xff && bytes[length - 1] == JPEG_EOI;
}

/* The interval of `count` pixels from `first`, in pixels that are `shrink` of them, with one more
 * on each side, whose colours are upsampled as if the image ended there. */
static void shrink_side(int64_t first, int64_t count, int64_t shrink, int64_t side, int64_t *from,
                        int64_t *n) {
    const int64_t end = (first + count + shrink - 1) / shrink + 1;
    *from = kolo_max_i64(first / shrink - 1, 0);
    *n = kolo_min_i64(end, side) - *from;
}

/* Whether scans of a progressive image are missing: libjpeg then smooths blocks by their
 * neighbours, those outside a part among them. */
static bool lacks_scans(const struct jpeg_decompress_struct *j) {
    if (!j->progressive_mode || !j->coef_bits) return false;
    for (int c = 0; c < j->num_components; c++) {
        for (int k = 0; k < DCTSIZE2; k++) {
            if (j->coef_bits[c][k] != 0) return true;
        }
    }
    return false;
}

/* Begins decoding, and chooses the part that is decoded: whole blocks, in columns. */
static void begin_part(decoder *d, kolo_box part, bool whole, kolo_image *image) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    kolo_box *held = &image->held;
    j->scale_num = 1;
    j->scale_denom = (unsigned)image->shrink;
    jpeg_start_decompress(j);
    *held = (kolo_box){0, 0, j->output_height, j->output_width};
    if (whole || lacks_scans(j)) return;
    shrink_side(part.y, part.height, image->shrink, j->output_height, &held->y, &held->height);
    shrink_side(part.x, part.width, image->shrink, j->output_width, &held->x, &held->width);
    if (held->width == j->output_width) return;
    JDIMENSION x = (JDIMENSION)held->x, width = (JDIMENSION)held->width;
    jpeg_crop_scanline(j, &x, &width);
    held->x = x;
    held->width = width;
}

/* Blocks below the part are not read. */
static void read_rows(decoder *d, kolo_image *image) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    const kolo_box *held = &image->held;
    const size_t stride = 3 * (size_t)held->width;
    JSAMPARRAY inks = NULL;
    if (j->out_color_space == JCS_CMYK) {
        inks = j->mem->alloc_sarray((j_common_ptr)j, JPOOL_IMAGE, 4 * j->output_width, 1);
    }
    if (held->y > 0) jpeg_skip_scanlines(j, (JDIMENSION)held->y);
    for (int64_t y = 0; y < held->height; y++) {
        JSAMPROW row = image->pixels + (size_t)y * stride;
        jpeg_read_scanlines(j, inks ? inks : &row, 1);
        if (inks) from_cmyk(inks[0], held->width, j->saw_Adobe_marker, row);
    }
    if (j->output_scanline == j->output_height) jpeg_finish_decompress(j);
}

/* The system has no memory left, or the image exceeds the limit of JPEGMEM: it is not damaged. */
static bool lacks_memory(const decoder *d) {
    const int code = d->errors.msg_code;
    return code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE;
}

/* Nothing that changes after setjmp is read after longjmp, but through pointers. */
static kolo_status decode(decoder *d, const uint8_t *bytes, size_t length, const char *where,
                          const kolo_image_request *request, kolo_image *image, int *orientation) {
    if (setjmp(d->failed)) {
        if (lacks_memory(d)) {
            return KOLO_FAIL(KOLO_ERR_NOMEM, "%s: no memory for libjpeg: %s", where, d->text);
        }
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: damaged JPEG: %s", where, d->text);
    }
    read_header(d, bytes, length, orientation);
    image->height = d->jpeg.image_height;
    image->width = d->jpeg.image_width;
    KOLO_TRY(kolo_image_check(image->height, image->width, length, where));
    begin_part(
        d, kolo_image_requested(request, image->height, image->width, *orientation, &image->shrink),
        !request->choice || !is_whole(bytes, length), image);
    const size_t size = 3 * (size_t)image->held.height * (size_t)image->held.width;
    KOLO_TRY(kolo_image_make_room(image, size));
    read_rows(d, image);
    return KOLO_OK;
}

kolo_status kolo_jpeg_decode(const uint8_t *bytes, size_t length, const char *where,
                             const kolo_image_request *request, kolo_image *image,
                             int *orientation) {
    decoder d = {.progress = {.progress_monitor = watch}};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = fail;
    d.errors.emit_message = warn;
    d.jpeg.client_data = &d;
    if (setjmp(d.failed)) return KOLO_NOMEM(sizeof d);
    jpeg_create_decompress(&d.jpeg); /* keeps err and client_data */
    d.jpeg.progress = &d.progress;
    kolo_status status = decode(&d, bytes, length, where, request, image, orientation);
    jpeg_destroy_decompress(&d.jpeg);
    return status;
}
