/* Images: decoding (grey, palette, CMYK, turned), limits, resizing, crops; folders of images and
 * tar shards as data sets, damaged images. The test writes its images with the same libraries. */
#include "base/file.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/images/formats.h"
#include "support/support.h"

#include <jpeglib.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "test_images.tmp"

enum { H = 6, W = 10 };

/* Writes an image of one colour of `components` channels. */
static size_t make_jpeg(int height, int width, int components, const uint8_t *colour, int turned,
                        uint8_t *out, size_t room) {
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &bytes, &length);
    j.image_height = (JDIMENSION)height;
    j.image_width = (JDIMENSION)width;
    j.input_components = components;
    j.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 100, TRUE);
    jpeg_start_compress(&j, TRUE);
    uint8_t exif[] = {'E', 'x', 'i', 'f', 0,    0, 'M', 'M', 0, 42, 0, 0, 0,
                      8,   0,   1,   1,   0x12, 0, 3,   0,   0, 0,  1, 0, (uint8_t)turned,
                      0,   0,   0,   0,   0,    0};
    if (turned) jpeg_write_marker(&j, JPEG_APP0 + 1, exif, sizeof exif);
    uint8_t *row = malloc((size_t)width * (size_t)components);
    for (int x = 0; x < width; x++) memcpy(row + x * components, colour, (size_t)components);
    while (j.next_scanline < j.image_height) jpeg_write_scanlines(&j, &row, 1);
    free(row);
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    assert_true(length <= room);
    memcpy(out, bytes, length);
    free(bytes);
    return length;
}

static size_t make_png(int height, int width, uint32_t format, const void *pixels, uint8_t *out,
                       size_t room) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    png.height = (png_uint_32)height;
    png.width = (png_uint_32)width;
    png.format = format;
    png_alloc_size_t length = room;
    assert_true(png_image_write_to_memory(&png, out, &length, 0, pixels, 0, NULL));
    return length;
}

static void pixel_is(const kolo_image *image, int64_t y, int64_t x, int red, int green, int blue) {
    const uint8_t *p = image->origin + y * image->row + x * image->column;
    const int want[] = {red, green, blue};
    for (int c = 0; c < 3; c++) {
        if (abs(p[c] - want[c]) > 3) fail_msg("channel %d is %d, not %d", c, p[c], want[c]);
    }
}

static void colours_become_rgb(void **state) {
    static uint8_t file[8192];
    kolo_image image;
    const struct {
        int components;
        uint8_t colour[4];
        int red, green, blue;
    } cases[] = {
        {3, {200, 100, 50}, 200, 100, 50},
        {1, {90}, 90, 90, 90},
        {4, {255, 128, 0, 255}, 255, 128, 0}, /* inverted inks, as Adobe stores them */
        {4, {255, 255, 255, 100}, 100, 100, 100},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        size_t n = make_jpeg(H, W, cases[i].components, cases[i].colour, 0, file, sizeof file);
        ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &image));
        assert_true(image.height == H && image.width == W);
        pixel_is(&image, 0, 0, cases[i].red, cases[i].green, cases[i].blue);
        pixel_is(&image, H - 1, W - 1, cases[i].red, cases[i].green, cases[i].blue);
        kolo_image_fini(&image);
    }
    uint8_t grey[] = {0, 255, 128, 7}, clear[] = {10, 20, 30, 0, 40, 50, 60, 255};
    size_t n = make_png(2, 2, PNG_FORMAT_GRAY, grey, file, sizeof file);
    ASSERT_OK(kolo_image_decode(file, n, "a.png", &image));
    pixel_is(&image, 0, 1, 255, 255, 255);
    pixel_is(&image, 1, 1, 7, 7, 7);
    kolo_image_fini(&image);
    n = make_png(1, 2, PNG_FORMAT_RGBA, clear, file, sizeof file);
    ASSERT_OK(kolo_image_decode(file, n, "a.png", &image));
    pixel_is(&image, 0, 0, 10, 20, 30);
    pixel_is(&image, 0, 1, 40, 50, 60);
    kolo_image_fini(&image);
}

/* Where the stored pixel (0, 0) is shown, by orientation: top, left; and whether sides change. */
static void exif_turns_images(void **state) {
    static uint8_t file[8192];
    for (int o = 1; o <= 8; o++) {
        kolo_image image;
        size_t n = make_jpeg(H, W, 3, (const uint8_t[]){1, 2, 3}, o, file, sizeof file);
        ASSERT_OK(kolo_image_decode(file, n, "a.jpg", &image));
        assert_int_equal(image.height, o > 4 ? W : H);
        assert_int_equal(image.width, o > 4 ? H : W);
        /* The stored top left corner is shown at: */
        bool bottom = o == 3 || o == 4 || o == 7 || o == 8,
             right = o == 2 || o == 3 || o == 6 || o == 7;
        const uint8_t *shown = image.origin + (bottom ? (image.height - 1) * image.row : 0) +
                               (right ? (image.width - 1) * image.column : 0);
        assert_ptr_equal(shown, image.pixels);
        /* The stored neighbour on its right is shown beside it, or below where sides change. */
        ptrdiff_t step = o > 4   ? (bottom ? -image.row : image.row)
                         : right ? -image.column
                                 : image.column;
        assert_int_equal(step, 3);
        kolo_image_fini(&image);
        ASSERT_OK(kolo_image_decode_stored(file, n, "a.jpg", &image));
        assert_int_equal(image.height, H);
        assert_int_equal(image.width, W);
        assert_ptr_equal(image.origin, image.pixels);
        assert_int_equal(image.column, 3);
        kolo_image_fini(&image);
    }
}

static void damaged_images_are_refused(void **state) {
    static uint8_t file[8192], cut[8192];
    kolo_image image;
    size_t n = make_jpeg(40, 40, 3, (const uint8_t[]){200, 100, 50}, 0, file, sizeof file);
    memcpy(cut, file, n);
    assert_int_equal(kolo_image_decode(cut, n - 12, "a.jpg", &image), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "a.jpg: damaged JPEG: "));
    assert_int_equal(kolo_image_decode(cut, 30, "a.jpg", &image), KOLO_ERR_FORMAT);
    assert_int_equal(kolo_image_decode((const uint8_t *)"GIF89a", 6, "a.gif", &image),
                     KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "neither a JPEG nor a PNG"));
    uint8_t *frame = file; /* claims 65000 x 65000 pixels */
    while (frame[0] != 0xff || frame[1] != 0xc0) frame++;
    for (int i = 5; i < 9; i++) frame[i] = i % 2 ? 0xfd : 0xe8;
    assert_int_equal(kolo_image_decode(file, n, "bomb.jpg", &image), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "bomb.jpg: an image of 65000x65000 pixels"));
    for (int i = 5; i < 9; i++) frame[i] = i % 2 ? 0x20 : 0;
    assert_int_equal(kolo_image_decode(file, n, "bomb.jpg", &image), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "more than 1000 in each"));
    const uint8_t black = 0;
    n = make_png(1, 1, PNG_FORMAT_GRAY, &black, file, sizeof file);
    file[n - 20] ^= 1;
    assert_int_equal(kolo_image_decode(file, n, "a.png", &image), KOLO_ERR_FORMAT);
}

/* Bytes of Pillow 13.0.0: Image.fromarray(a).resize((w, h), Image.BILINEAR) of a[y, x, c] = (37 y +
 * 11 x + 5 c) % 256. */
static void resizing_is_that_of_pillow(void **state) {
    uint8_t pixels[7 * 9 * 3];
    for (int i = 0; i < 7 * 9 * 3; i++) {
        pixels[i] = (uint8_t)(37 * (i / 27) + 11 * (i / 3 % 9) + 5 * (i % 3));
    }
    const kolo_image image = {.height = 7, .width = 9, .origin = pixels, .row = 27, .column = 3};
    uint8_t whole[3 * 4 * 5], part[3 * 2 * 3];
    ASSERT_OK(
        kolo_image_resize(&image, (kolo_box){0, 0, 7, 9}, 4, 5, (kolo_box){0, 0, 4, 5}, whole));
    const uint8_t red[] = {25,  42,  63,  84,  101, 83,  100, 121, 142, 159,
                           151, 168, 189, 200, 179, 209, 226, 144, 113, 49};
    for (int i = 0; i < 20; i++) assert_int_equal(whole[i], red[i]);
    ASSERT_OK(
        kolo_image_resize(&image, (kolo_box){0, 0, 7, 9}, 4, 5, (kolo_box){1, 2, 2, 3}, part));
    for (int y = 0; y < 2; y++) assert_memory_equal(part + 3 * y, whole + 5 * (y + 1) + 2, 3);
    uint8_t same[7 * 9 * 3];
    ASSERT_OK(
        kolo_image_resize(&image, (kolo_box){0, 0, 7, 9}, 7, 9, (kolo_box){0, 0, 7, 9}, same));
    for (int i = 0; i < 63; i++) assert_int_equal(same[i], pixels[3 * i]);
}

/* ---- data sets ---- */

static void put(const char *path, const uint8_t *bytes, size_t n) {
    char whole[256];
    snprintf(whole, sizeof whole, FOLDER "/%s", path);
    ASSERT_OK(kolo_file_write(whole, bytes, n));
}

static void make_folder(const char *path) {
    char whole[256];
    snprintf(whole, sizeof whole, FOLDER "/%s", path);
    ASSERT_OK(kolo_folder_make(whole));
}

static void put_grey(const char *path, int grey, size_t cut) {
    static uint8_t file[8192];
    const uint8_t colour = (uint8_t)grey;
    size_t n = make_jpeg(H, W, 1, &colour, 0, file, sizeof file);
    put(path, file, n - cut);
}

static void fresh_folder(void) {
    static const char *const folders[] = {".", "train", "train/cat", "train/dog", "val", "val/dog"};
    for (size_t i = 0; i < KOLO_COUNT(folders); i++) make_folder(folders[i]);
    put_grey("train/cat/a.jpg", 10, 0);
    put_grey("train/cat/b.JPEG", 20, 0);
    put_grey("train/dog/c.jpg", 30, 0);
    put("train/dog/notes.txt", (const uint8_t *)"no image", 8);
    put_grey("val/dog/d.jpg", 40, 0);
}

static int warnings;
static void warn(void *arg, const char *line) {
    warnings++;
    assert_non_null(strstr(line, "train/cat/b.JPEG: damaged JPEG"));
    assert_non_null(strstr(line, "1 skipped by this worker so far"));
}

static void sample_is(const kolo_dataset *d, int64_t i, int grey, int label) {
    uint8_t x[3 * 4 * 4];
    int32_t y = -1;
    ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, &y}));
    assert_int_equal(y, label);
    for (int p = 0; p < 48; p++) assert_true(abs(x[p] - grey) <= 3);
}

static void folders_are_classes(void **state) {
    kolo_dataset *d;
    fresh_folder();
    ASSERT_OK(kolo_dataset_open("folder:" FOLDER ",size=4", KOLO_SPLIT_TRAIN, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_int_equal(info->count, 3);
    assert_int_equal(info->classes, 2);
    sample_is(d, 0, 10, 0);
    sample_is(d, 1, 20, 0);
    sample_is(d, 2, 30, 1);
    kolo_dataset_close(d);
    ASSERT_OK(kolo_dataset_open("folder:" FOLDER ",size=4", KOLO_SPLIT_TEST, &d));
    assert_int_equal(kolo_dataset_describe(d)->count, 1);
    assert_int_equal(kolo_dataset_describe(d)->classes, 2);
    sample_is(d, 0, 40, 1);
    kolo_dataset_close(d);
    assert_int_equal(kolo_dataset_open("folder:" FOLDER ",size=4,seed=3", KOLO_SPLIT_TRAIN, &d),
                     KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "seed= has no effect for a folder with a folder"));
}

static void damaged_images_are_skipped(void **state) {
    kolo_dataset *d;
    fresh_folder();
    put_grey("train/cat/b.JPEG", 20, 12);
    const kolo_dataset_opts opts = {.warn = warn};
    ASSERT_OK(kolo_dataset_open_for("folder:" FOLDER ",size=4", KOLO_SPLIT_TRAIN, &opts, &d));
    sample_is(d, 1, 30, 1);
    sample_is(d, 1, 30, 1);
    assert_int_equal(warnings, 1);
    kolo_dataset_close(d);
    ASSERT_OK(kolo_dataset_open_for("folder:" FOLDER ",size=4", KOLO_SPLIT_TRAIN, NULL, &d));
    uint8_t x[48];
    int32_t y;
    assert_int_equal(kolo_dataset_gather(d, &(int64_t){1}, 1, (void *[]){x, &y}), KOLO_ERR_FORMAT);
    kolo_dataset_close(d);
}

TEST_MAIN(test_images) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colours_become_rgb),         cmocka_unit_test(exif_turns_images),
        cmocka_unit_test(damaged_images_are_refused), cmocka_unit_test(resizing_is_that_of_pillow),
        cmocka_unit_test(folders_are_classes),        cmocka_unit_test(damaged_images_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
