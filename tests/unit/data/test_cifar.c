/* CIFAR-10 and CIFAR-100: records over several files, labels, damaged files. */
#include "base/file.h"
#include "base/memory.h"
#include "kolo/data.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "test_cifar.tmp"

enum { IMAGE = 3 * 32 * 32, MAX = 4 };

/* Record i of a file has label `label + i`, and byte p of its image is label + i + p. */
static void put(const char *name, int labels, int records, int label, size_t cut) {
    static uint8_t bytes[MAX * (2 + IMAGE)];
    char path[256];
    uint8_t *at = bytes;
    for (int i = 0; i < records; i++) {
        if (labels == 2) *at++ = 19;
        *at++ = (uint8_t)(label + i);
        for (int p = 0; p < IMAGE; p++) *at++ = (uint8_t)(label + i + p);
    }
    snprintf(path, sizeof path, FOLDER "/%s", name);
    ASSERT_OK(kolo_file_write(path, bytes, (size_t)(at - bytes) - cut));
}

static void put_ten(void) {
    ASSERT_OK(kolo_folder_make(FOLDER));
    for (int f = 1; f <= 5; f++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", f);
        put(name, 1, f == 2 ? 1 : 2, f, 0); /* 9 samples */
    }
    put("test_batch.bin", 1, 3, 7, 0);
}

static void records_are_samples(const char *spec, kolo_split split, const int *labels, int n,
                                int classes) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open(spec, split, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_int_equal(info->count, n);
    assert_int_equal(info->classes, classes);
    assert_true(kolo_shape_equal(&info->fields[0].shape, &(kolo_shape){3, {3, 32, 32}}));
    assert_true(info->fields[0].mean[2] > 0.4F && info->fields[0].std[2] > 0.2F);
    for (int64_t i = n - 1; i >= 0; i--) {
        uint8_t x[IMAGE];
        int32_t y;
        ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, &y}));
        assert_int_equal(y, labels[i]);
        for (int p = 0; p < IMAGE; p++) assert_int_equal(x[p], (uint8_t)(labels[i] + p));
    }
    kolo_dataset_close(d);
}

static void files_follow_one_another(void **state) {
    put_ten();
    records_are_samples("cifar10:" FOLDER, KOLO_SPLIT_TRAIN, (int[]){1, 2, 2, 3, 4, 4, 5, 5, 6}, 9,
                        10);
    records_are_samples("cifar10:" FOLDER, KOLO_SPLIT_TEST, (int[]){7, 8, 9}, 3, 10);
    put("train.bin", 2, 3, 97, 0);
    put("test.bin", 2, 1, 0, 0);
    records_are_samples("cifar100:" FOLDER, KOLO_SPLIT_TRAIN, (int[]){97, 98, 99}, 3, 100);
    records_are_samples("cifar100:" FOLDER, KOLO_SPLIT_TEST, (int[]){0}, 1, 100);
}

static void refuses(const char *spec, kolo_split split, kolo_status status, const char *text) {
    kolo_dataset *d = NULL;
    assert_int_equal(kolo_dataset_open(spec, split, &d), status);
    assert_null(d);
    if (!strstr(kolo_last_error(), text)) fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), text);
    assert_null(strchr(kolo_last_error(), '\n'));
}

static void damaged_files_are_refused(void **state) {
    put_ten();
    refuses("cifar10", KOLO_SPLIT_TRAIN, KOLO_ERR_ARG, "write cifar10:DIR");
    refuses("cifar10:" FOLDER "/none", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "holds the *.bin files");
    refuses("cifar10:" FOLDER "/test_batch.bin", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "not a folder");
    put("data_batch_4.bin", 1, 2, 4, 1);
    refuses("cifar10:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT,
            FOLDER "/data_batch_4.bin: 6145 bytes are not a multiple of 3073");
    put("data_batch_4.bin", 1, 0, 0, 0);
    refuses("cifar10:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT,
            "data_batch_4.bin: an empty file");
    put("data_batch_4.bin", 1, 2, 9, 0);
    refuses("cifar10:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT,
            "data_batch_4.bin: label 10 of sample 1 is outside 0..9");
    unlink(FOLDER "/data_batch_4.bin");
    refuses("cifar10:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "data_batch_4.bin");
    put("test.bin", 2, 2, 99, 0);
    refuses("cifar100:" FOLDER, KOLO_SPLIT_TEST, KOLO_ERR_FORMAT,
            "test.bin: label 100 of sample 1");
}

static void failing_memory_is_reported(void **state) {
    put_ten();
    kolo_dataset *d = NULL;
    kolo_status status = KOLO_ERR_NOMEM;
    long failures = 0;
    while (status != KOLO_OK && failures < 100) {
        kolo_alloc_fail_nth(failures + 1);
        status = kolo_dataset_open("cifar10:" FOLDER, KOLO_SPLIT_TRAIN, &d);
        kolo_alloc_fail_nth(0);
        if (status == KOLO_OK) break;
        assert_int_equal(status, KOLO_ERR_NOMEM);
        failures++;
    }
    assert_true(failures >= 5 && failures < 100);
    kolo_dataset_close(d);
}

TEST_MAIN(test_cifar) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_follow_one_another),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(failing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
