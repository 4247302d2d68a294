/* JPEGs with restart markers: cutting parts out, and rewriting other JPEGs so that they can be cut;
 * what is left as it is. That parts decode to the same pixels is in test_images. */
#include "base/memory.h"
#include "data/images/image.h"
#include "data/images/jpeg.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 16 };

/* How a JPEG of random pixels is stored. */
typedef struct stored {
    int height, width;
    J_COLOR_SPACE colours; /* of pixels and file; JCS_YCbCr: of the file, with 2x2 subsampling */
    unsigned restart;      /* units between markers; 0: none */
    bool no_adobe, no_jfif, comment, progressive;
} stored;

static size_t make(const stored *o, uint8_t *out) {
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    const int components = o->colours == JCS_GRAYSCALE ? 1 : o->colours == JCS_CMYK ? 4 : 3;
    uint8_t *row = malloc((size_t)(o->width * components));
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &bytes, &length);
    j.image_height = (JDIMENSION)o->height;
    j.image_width = (JDIMENSION)o->width;
    j.input_components = components;
    j.in_color_space = o->colours == JCS_YCbCr ? JCS_RGB : o->colours;
    jpeg_set_defaults(&j);
    jpeg_set_colorspace(&j, o->colours);
    jpeg_set_quality(&j, 90, TRUE);
    j.restart_interval = o->restart;
    if (o->no_adobe) j.write_Adobe_marker = FALSE;
    if (o->no_jfif) j.write_JFIF_header = FALSE;
    if (o->progressive) jpeg_simple_progression(&j);
    jpeg_start_compress(&j, TRUE);
    if (o->comment) jpeg_write_marker(&j, JPEG_COM, (const JOCTET *)"a picture", 9);
    uint32_t random = 1;
    while (j.next_scanline < j.image_height) {
        for (int i = 0; i < o->width * components; i++) {
            random = random * 1664525 + 1013904223;
            row[i] = (uint8_t)(random >> 24);
        }
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    assert_true(length <= ROOM);
    memcpy(out, bytes, length);
    free(bytes);
    free(row);
    return length;
}

/* Cuts a part out of a file: the JPEG, or NULL. */
static uint8_t *cut(const uint8_t *file, size_t n, kolo_box *part, size_t *length) {
    kolo_jpeg_decoder *d = calloc(1, sizeof *d);
    uint8_t *out;
    if (setjmp(d->failed)) fail_msg("%s", d->text);
    kolo_jpeg_create(d);
    jpeg_mem_src(&d->jpeg, file, n);
    jpeg_read_header(&d->jpeg, TRUE);
    ASSERT_OK(kolo_jpeg_cut(&d->jpeg, file, n, part, &out, length));
    jpeg_destroy_decompress(&d->jpeg);
    free(d);
    return out;
}

static kolo_image decoded(const uint8_t *file, size_t n) {
    kolo_image image;
    ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &image));
    return image;
}

/* A part that was cut out decodes alone, to the pixels of the whole, but at its edges. */
static void part_is_of(const uint8_t *out, size_t length, const kolo_box *part,
                       const kolo_image *all) {
    kolo_image image = decoded(out, length);
    assert_true(image.height == part->height && image.width == part->width);
    for (int64_t y = 1; y < part->height - 1; y++) {
        const uint8_t *is = image.origin + y * image.row + image.column;
        const uint8_t *want = all->origin + (part->y + y) * all->row + (part->x + 1) * all->column;
        assert_memory_equal(is, want, 3 * (size_t)(part->width - 2));
    }
    kolo_image_fini(&image);
}

static void parts_are_between_markers(void **state) {
    static const struct {
        stored file;
        kolo_box part, cut; /* cut.height 0: none */
    } cases[] = {
        {{100, 40, JCS_GRAYSCALE, 0, .comment = true}, {50, 10, 5, 5}, {0}}, /* no markers */
        {{100, 40, JCS_GRAYSCALE, 5, .comment = true}, {50, 10, 5, 5}, {48, 0, 8, 40}}, /* rows */
        {{100, 40, JCS_GRAYSCALE, 5, .comment = true}, {95, 10, 5, 5}, {88, 0, 12, 40}},
        {{100, 40, JCS_GRAYSCALE, 5, .comment = true}, {0, 0, 90, 40}, {0, 0, 96, 40}},
        {{100, 40, JCS_GRAYSCALE, 5, .comment = true}, {0, 10, 100, 1}, {0}}, /* all rows */
        {{100, 40, JCS_GRAYSCALE, 1, .comment = true}, {50, 10, 5, 15}, {48, 8, 8, 24}},
        {{100, 38, JCS_GRAYSCALE, 1, .comment = true}, {50, 36, 50, 2}, {48, 24, 52, 14}},
        {{100, 40, JCS_GRAYSCALE, 10, .comment = true}, {50, 10, 5, 5}, {48, 0, 16, 40}},
        {{100, 40, JCS_GRAYSCALE, 7, .comment = true}, {50, 10, 5, 5}, {0}}, /* across rows */
        {{100, 96, JCS_YCbCr, 3, .comment = true}, {50, 50, 20, 40}, {48, 48, 32, 48}},
        {{100, 96, JCS_YCbCr, 2, .comment = true}, {0, 33, 17, 30}, {0, 32, 32, 32}},
        {{100, 40, JCS_RGB, 1, .comment = true}, {9, 9, 1, 1}, {8, 8, 8, 16}},
        {{100, 40, JCS_CMYK, 1, .comment = true}, {9, 9, 1, 1}, {8, 8, 8, 16}},
        {{100, 40, JCS_YCbCr, 3, .progressive = true}, {50, 10, 5, 5}, {0}},
    };
    uint8_t *file = malloc(ROOM);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const size_t n = make(&cases[i].file, file);
        const kolo_box *want = &cases[i].cut;
        kolo_box part = cases[i].part;
        size_t length;
        uint8_t *out = cut(file, n, &part, &length);
        assert_int_equal(out != NULL, want->height > 0);
        if (!out) continue;
        if (memcmp(&part, want, sizeof part) != 0) {
            fail_msg("case %zu: %lld, %lld of %lldx%lld", i, (long long)part.y, (long long)part.x,
                     (long long)part.height, (long long)part.width);
        }
        kolo_image all = decoded(file, n);
        part_is_of(out, length, &part, &all);
        kolo_image_fini(&all);
        kolo_free(out);
    }
    free(file);
}

/* Markers out of their order are those of a damaged file: it is decoded as a whole. */
static void damaged_markers_cut_nothing(void **state) {
    const stored o = {100, 40, JCS_GRAYSCALE, 5, .comment = true};
    uint8_t *file = malloc(ROOM), *out;
    const size_t n = make(&o, file);
    size_t length, at = 0;
    for (int found = 0; found < 5; at++)
        found += file[at] == 0xff && file[at + 1] >> 3 == 0xd0 >> 3;
    file[at] ^= 1; /* the fifth, at row 40 */
    kolo_box part = {40, 0, 8, 8};
    assert_null(cut(file, n, &part, &length));
    part = (kolo_box){24, 0, 8, 8};
    out = cut(file, n, &part, &length);
    assert_non_null(out);
    kolo_free(out);
    free(file);
}

/* Bytes that libjpeg skips, as they are no segment. As one they would lead into a comment, where a
 * frame header lies. */
static void stray_bytes_hide_no_frame_header(void **state) {
    static const uint8_t stray[] = {0xff, 0, 0,  8, 0xff, JPEG_COM, 0, 15, 'a', 'b', 0xff,
                                    0xc0, 0, 11, 8, 0,    100,      0, 40, 1,   1};
    const stored o = {100, 40, JCS_GRAYSCALE, 5, .comment = false};
    const size_t soi = 2;
    uint8_t *file = malloc(ROOM);
    size_t length, n = make(&o, file);
    memmove(file + soi + sizeof stray, file + soi, n - soi);
    memcpy(file + soi, stray, sizeof stray);
    n += sizeof stray;
    kolo_box part = {40, 0, 8, 8};
    assert_null(cut(file, n, &part, &length));
    kolo_image image = decoded(file, n);
    assert_true(image.height == 100 && image.width == 40);
    kolo_image_fini(&image);
    free(file);
}

static bool contains(const uint8_t *file, size_t n, const char *text) {
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= n; i++) {
        if (memcmp(file + i, text, length) == 0) return true;
    }
    return false;
}

static void all_colours_stay(void **state) {
    static const stored files[] = {
        {50, 41, JCS_GRAYSCALE, .comment = true}, {50, 41, JCS_YCbCr, .progressive = true},
        {50, 41, JCS_YCbCr, .no_jfif = true},     {50, 41, JCS_RGB, .comment = true},
        {50, 41, JCS_RGB, .no_adobe = true},      {50, 41, JCS_CMYK, .comment = true},
        {50, 41, JCS_CMYK, .no_adobe = true},     {50, 41, JCS_YCbCr, 7, .comment = true},
    };
    uint8_t *file = malloc(ROOM), *seekable;
    size_t length;
    for (size_t i = 0; i < KOLO_COUNT(files); i++) {
        const size_t n = make(&files[i], file);
        ASSERT_OK(kolo_image_make_seekable(file, n, &seekable, &length));
        assert_non_null(seekable);
        kolo_image a = decoded(file, n), b = decoded(seekable, length);
        assert_true(a.height == b.height && a.width == b.width);
        assert_memory_equal(a.pixels, b.pixels, 3 * 50 * 41);
        assert_int_equal(contains(seekable, length, "a picture"), files[i].comment);
        assert_int_equal(contains(seekable, length, "Adobe"), contains(file, n, "Adobe"));
        assert_int_equal(contains(seekable, length, "JFIF"), contains(file, n, "JFIF"));
        kolo_box part = {40, 0, 8, 8};
        size_t cut_length;
        uint8_t *out = cut(seekable, length, &part, &cut_length);
        assert_non_null(out);
        kolo_free(out);
        kolo_image_fini(&a);
        kolo_image_fini(&b);
        kolo_free(seekable);
    }
    free(file);
}

static void is_left(const uint8_t *file, size_t n) {
    uint8_t *seekable = (uint8_t *)1;
    size_t length;
    ASSERT_OK(kolo_image_make_seekable(file, n, &seekable, &length));
    assert_null(seekable);
}

static void what_is_no_whole_jpeg_is_left(void **state) {
    const stored o = {64, 64, JCS_YCbCr, .progressive = true};
    const stored plain = {64, 64, JCS_GRAYSCALE, .comment = true};
    uint8_t *file = malloc(ROOM), *seekable;
    size_t n = make(&o, file), length;
    is_left((const uint8_t *)"\x89PNG\r\n\x1a\n", 8);
    is_left(file, 1);
    is_left(file, n / 2);
    kolo_alloc_fail_nth(1);
    assert_int_equal(kolo_image_make_seekable(file, n, &seekable, &length), KOLO_ERR_NOMEM);
    kolo_alloc_fail_nth(2); /* the room for the file */
    assert_int_equal(kolo_image_make_seekable(file, n, &seekable, &length), KOLO_ERR_NOMEM);
    kolo_alloc_fail_nth(0);
    for (size_t i = 2, scans = 0; i + 1 < n; i++) { /* of the scans three remain */
        if (file[i] != 0xff || file[i + 1] != 0xda || scans++ < 3) continue;
        file[i + 1] = JPEG_EOI;
        is_left(file, i + 2);
        break;
    }
    n = make(&plain, file);
    uint8_t *frame = file; /* claims 65000 x 65000 pixels */
    while (frame[0] != 0xff || frame[1] != 0xc0) frame++;
    for (int i = 5; i < 9; i++) frame[i] = i % 2 ? 0xfd : 0xe8;
    assert_int_equal(setenv("JPEGMEM", "1000", 1), 0); /* KB: it allocates nothing for them */
    is_left(file, n);
    unsetenv("JPEGMEM");
    n = make(&plain, file);
    memset(file + n / 2, 0x55, n / 4); /* damaged */
    is_left(file, n);
    free(file);
}

TEST_MAIN(test_jpeg_seekable) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_between_markers),
        cmocka_unit_test(damaged_markers_cut_nothing),
        cmocka_unit_test(stray_bytes_hide_no_frame_header),
        cmocka_unit_test(all_colours_stay),
        cmocka_unit_test(what_is_no_whole_jpeg_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
