/* Folders of images as data sets: classes, damaged images, decoding of parts and at a smaller
 * scale.
 */
#include "base/file.h"
#include "data/dataset.h"
#include "unit/data/image_files.h"

#define FOLDER "test_image_folder.tmp"

enum { H = 6, W = 10 };

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

static void count(void *arg, const char *line) {
    ++*(int *)arg;
    assert_non_null(strstr(line, "tall.jpg: damaged JPEG"));
}

/* The middle of an image that ends early, but with an end mark, can be read; verifying finds it. A
 * truncated one has no end mark, and is damaged for each of its parts. */
static void damage_outside_a_part(void **state) {
    static uint8_t file[1 << 16];
    const size_t n = make_texture(2, 200, 40, 0, file, sizeof file);
    kolo_dataset *d;
    uint8_t x[2][3 * 4 * 4];
    int32_t y;
    const int64_t first = 0;
    fresh_folder();
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged) memcpy(file + n * 3 / 4, "\xff\xd9", 2);
        put("train/cat/a.jpg", file, damaged ? n * 3 / 4 + 2 : n);
        ASSERT_OK(kolo_dataset_open("folder:" FOLDER ",size=4", KOLO_SPLIT_TRAIN, &d));
        ASSERT_OK(kolo_dataset_gather(d, &first, 1, (void *[]){x[damaged], &y}));
        kolo_dataset_close(d);
    }
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    char path[] = FOLDER "/train/cat/tall.jpg";
    ASSERT_OK(kolo_file_write(path, file, n * 3 / 4 + 2));
    assert_int_equal(remove(FOLDER "/train/cat/a.jpg"), 0);
    ASSERT_OK(kolo_dataset_open("folder:" FOLDER ",size=4", KOLO_SPLIT_TRAIN, &d));
    int lines = 0;
    int64_t found = 0;
    const kolo_verify_opts opts = {.report = count, .arg = &lines};
    ASSERT_OK(kolo_dataset_verify(d, &opts, &found));
    assert_true(lines == 1 && found == 1);
    kolo_dataset_close(d);
    ASSERT_OK(kolo_file_write(path, file, n * 3 / 4));
    ASSERT_OK(kolo_dataset_open("folder:" FOLDER ",size=4", KOLO_SPLIT_TRAIN, &d));
    const int64_t tall = 1; /* after b.JPEG */
    assert_int_equal(kolo_dataset_gather(d, &tall, 1, (void *[]){x[0], &y}), KOLO_ERR_FORMAT);
    kolo_dataset_close(d);
    assert_int_equal(remove(path), 0);
}

/* An image of 8 times the sample is decoded at 1/8; its samples are about the same. */
static void scaled_samples_are_close(void **state) {
    static uint8_t file[1 << 16];
    const size_t n = make_texture(6, 64, 83, 0, file, sizeof file);
    kolo_dataset *d;
    uint8_t x[2][3 * 8 * 8];
    int32_t y;
    const int64_t first = 0;
    fresh_folder();
    put("train/cat/a.jpg", file, n);
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "folder:" FOLDER ",size=8,decode=%s", i ? "scaled" : "exact");
        ASSERT_OK(kolo_dataset_open(name, KOLO_SPLIT_TRAIN, &d));
        ASSERT_OK(kolo_dataset_gather(d, &first, 1, (void *[]){x[i], &y}));
        kolo_dataset_close(d);
    }
    assert_memory_not_equal(x[0], x[1], sizeof x[0]);
    for (size_t i = 0; i < sizeof x[0]; i++) assert_in_range(x[1][i] + 4 - x[0][i], 0, 8);
    assert_int_equal(kolo_dataset_open("folder:" FOLDER ",decode=fast", KOLO_SPLIT_TRAIN, &d),
                     KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "write decode=exact or decode=scaled"));
}

TEST_MAIN(test_image_folder) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_outside_a_part),
        cmocka_unit_test(scaled_samples_are_close),
        cmocka_unit_test(folders_are_classes),
        cmocka_unit_test(damaged_images_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
