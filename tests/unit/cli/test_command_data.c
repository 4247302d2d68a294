/* kolo data info, head and verify; and the functions behind them. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "kolo/data.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- samples of a program ---- */

enum { SAMPLES = 2600 };

static bool is_bad(int64_t i) { return i == 3 || i == 1023 || i == 1024 || i == SAMPLES - 1; }

static kolo_status gather(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    for (int64_t i = 0; i < n; i++) {
        if (arg && indices[i] == 2000) return KOLO_NOMEM(7);
        if (is_bad(indices[i])) return KOLO_FAIL(KOLO_ERR_FORMAT, "file %d", (int)indices[i]);
        ((int32_t *)data[0])[i] = (int32_t)indices[i];
    }
    return KOLO_OK;
}

static char lines[512];

static void note(void *arg, const char *line) {
    assert_ptr_equal(arg, lines);
    strncat(lines, line, sizeof lines - strlen(lines) - 2);
    strcat(lines, "\n");
}

static void damaged_samples_are_reported_in_order(void **state) {
    static const kolo_field fields[] = {{"x", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    static char hard[1];
    for (int threads = 0; threads <= 4; threads++) {
        kolo_dataset *d;
        kolo_source source = {.count = SAMPLES, .n_fields = 1, .fields = fields, .gather = gather};
        const kolo_verify_opts opts = {.threads = threads, .report = note, .arg = lines};
        int64_t damaged = -1;
        lines[0] = '\0';
        ASSERT_OK(kolo_dataset_create(&source, &d));
        ASSERT_OK(kolo_dataset_verify(d, &opts, &damaged));
        assert_int_equal(damaged, 4);
        assert_string_equal(lines, "sample 3: file 3\nsample 1023: file 1023\n"
                                   "sample 1024: file 1024\nsample 2599: file 2599\n");
        kolo_dataset_close(d);
        /* An error that is not of a sample ends it. */
        source.arg = hard;
        damaged = -1;
        ASSERT_OK(kolo_dataset_create(&source, &d));
        assert_int_equal(kolo_dataset_verify(d, &opts, &damaged), KOLO_ERR_NOMEM);
        assert_int_equal(damaged, -1);
        assert_int_equal(kolo_dataset_verify(d, &(kolo_verify_opts){.threads = 999}, &damaged),
                         KOLO_ERR_ARG);
        kolo_dataset_close(d);
    }
}

static void the_order_is_that_of_an_epoch(void **state) {
    static const kolo_field fields[] = {{"x", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    const kolo_source source = {.count = 8, .n_fields = 1, .fields = fields, .gather = gather};
    static const int64_t known[8] = {2, 7, 1, 0, 3, 4, 5, 6}; /* of test_sampler */
    int64_t order[8];
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_create(&source, &d));
    ASSERT_OK(kolo_dataset_order(d, 42, 0, 8, order));
    assert_memory_equal(order, known, sizeof order);
    assert_int_equal(kolo_dataset_order(d, 42, 0, 9, order), KOLO_ERR_ARG);
    kolo_dataset_close(d);
}

/* ---- commands ---- */

#define IMAGES "synthetic:N=30,test=7,shape=1x4x4,classes=3"

static void data_are_described(void **state) {
    assert_int_equal(test_run("data info " IMAGES), 0);
    char *out = test_contents("out");
    assert_non_null(strstr(out, "kind       synthetic\n"));
    assert_non_null(strstr(out, "classes    3\n"));
    assert_non_null(strstr(out, "x          u8 [1,4,4]; mean / std "));
    assert_non_null(strstr(out, "train      30 samples of 20 bytes"));
    assert_non_null(strstr(out, "test       7 samples of 20 bytes"));
    kolo_free(out);
    assert_int_equal(test_run("data info synthetic-clicks:N=30,test=7"), 0);
    assert_true(test_contains("out", "x          f32 [13]\n"));
    assert_true(test_contains("out", "ids        i32 [26]\n"));
    assert_int_equal(test_run("data head synthetic-clicks:N=30,test=7 --samples 2"), 0);
    assert_true(test_contains("out", "  ids "));
    assert_int_equal(test_run("data verify synthetic-clicks:N=30,test=7"), 0);
    assert_true(test_contains("out", "train: 30 samples, 0 damaged\ntest: 7 samples, 0 damaged\n"));
    assert_int_equal(test_run("data info"), 2);
    assert_int_equal(test_run("data info nothing"), 2);
    assert_true(test_contains("err", "unknown data set \"nothing\""));
}

/* A split that the data lack is a line; one that cannot be read is an error. */
static void one_split_is_described(void **state) {
    assert_int_equal(test_run("data pack " IMAGES " --out te --split test"), 0);
    assert_int_equal(test_run("data info pack:te"), 0);
    assert_true(test_contains("out", "train      none: te: no train split"));
    assert_true(test_contains("out", "kind       synthetic\n"));
    assert_true(test_contains("out", "test       7 samples of 20 bytes"));
    assert_int_equal(test_run("data pack " IMAGES " --out tr --split train"), 0);
    assert_int_equal(test_run("data info pack:tr"), 0);
    assert_true(test_contains("out", "train      30 samples of 20 bytes"));
    assert_true(test_contains("out", "test       none: tr: no test split"));
    assert_int_equal(system("mkdir -p tables && printf '1,0\n2,1\n' >tables/train.csv && "
                            "printf '1,0\n2,one\n' >tables/test.csv"),
                     0);
    assert_int_equal(test_run("data info csv:tables"), 1);
    assert_true(test_contains("out", "train      2 samples of 8 bytes"));
    assert_true(test_contains("err", "test.csv"));
}

/* Numbers as they are in the file, in the order of the epoch. */
static void first_samples_are_shown(void **state) {
    ASSERT_OK(kolo_file_write("t.csv", "1.5,0\n2.5,1\n3.5,0\n4.5,1\n5.5,0\n", 30));
    assert_int_equal(test_run("data head csv:t.csv,split=0.2,seed=1 --samples 99 --seed 4"), 0);
    char *out = test_contents("out");
    kolo_dataset *d;
    int64_t order[4], n = 0;
    ASSERT_OK(kolo_dataset_open("csv:t.csv,split=0.2,seed=1", KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_order(d, 4, 0, 4, order));
    const char *at = out;
    for (; n < 4; n++) {
        float x;
        int32_t y;
        char wanted[64];
        ASSERT_OK(kolo_dataset_gather(d, &order[n], 1, (void *const[]){&x, &y}));
        snprintf(wanted, sizeof wanted, "sample %d  x %.1f  y %d\n", (int)order[n], (double)x, y);
        at = strstr(at, wanted);
        if (!at) fail_msg("no %s in %s", wanted, out);
    }
    kolo_dataset_close(d);
    kolo_free(out);
    assert_int_equal(test_run("data head " IMAGES " --samples 2 --split test"), 0);
    assert_true(test_contains("out", ", mean ") && test_contains("out", ", std "));
}

/* The second image is none. */
static void damage_is_found(void **state) {
    assert_int_equal(system("mkdir -p set/train/a set/val/a && cp " KOLO_SOURCE_DIR
                            "/tests/fuzz/corpus/image/grey.png set/train/a/1.png && "
                            "cp set/train/a/1.png set/val/a && echo none > set/train/a/2.png"),
                     0);
    assert_int_equal(test_run("data verify folder:set,size=8"), 1);
    char *out = test_contents("out");
    assert_string_equal(out, "train: sample 1: set/train/a/2.png: neither a JPEG nor a PNG image\n"
                             "train: 2 samples, 1 damaged\ntest: 1 samples, 0 damaged\n");
    kolo_free(out);
    assert_int_equal(test_run("data verify folder:set,size=8 --split test --loader-threads 2"), 0);
    assert_int_equal(test_run("data verify " IMAGES), 0);
    assert_true(test_contains("out", "train: 30 samples, 0 damaged\ntest: 7 samples, 0 damaged\n"));
}

TEST_MAIN(test_command_data) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_samples_are_reported_in_order),
        cmocka_unit_test(the_order_is_that_of_an_epoch),
        cmocka_unit_test(data_are_described),
        cmocka_unit_test(one_split_is_described),
        cmocka_unit_test(first_samples_are_shown),
        cmocka_unit_test(damage_is_found),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
