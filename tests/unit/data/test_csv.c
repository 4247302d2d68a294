/* Tables of numbers: cells, headers, targets, the test split, bad rows. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/csv.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "test_csv.tmp"

static kolo_status parse(const char *text, kolo_csv_opts opts, kolo_csv *csv) {
    /* In a block of its own length, for the address sanitizer. */
    size_t length = strlen(text);
    char *copy = malloc(length ? length : 1);
    memcpy(copy, text, length);
    kolo_status status = kolo_csv_parse(copy, length, "t.csv", &opts, csv);
    free(copy);
    return status;
}

static void forms_of_a_table_are_read(void **state) {
    const struct {
        const char *text;
        kolo_csv_opts opts;
    } cases[] = {
        {"1,2.5,0\n-3,4e1,2\n", {0}},
        {"1,2.5,0\r\n-3,4e1,2", {0}},
        {"\xef\xbb\xbf"
         "a,b,class\n1,2.5,0\n\n-3,4e1,2\n\n",
         {0}},
        {",1,class\n1,2.5,0\n-3,40,2\n", {0}}, /* an index without a name, as of pandas */
        {"a,class,b\n1,0,2.5\n-3,2,40\n", {.target = "class"}},
        {"0;1;2.5\n2;-3;40\n", {.target = "1"}},
        {"0\t1\t2.5\n2\t-3\t40\n", {.target = "1"}},
        {"\"2\",\"class\",\"x\"\n1,0,2.5\n-3,\" 2\",\"40\"\n", {.target = "class"}},
        {"\"x, \"\"y\"\"\",\"z;\",\"a,class\"\n1,2.5,0\n-3,4e1,2\n", {.target = "a,class"}},
        {"\"a,class\"\t\"x\";y \"\t\"z\n0\t1\t2.5\n2\t-3\t40\n", {.target = "a,class"}},
        {"x;\"y,\" ; class\n1;2.5;0\n-3;4e1;2\n", {0}},
        {" 1 , 2.5 ,0 \n -3,4e1,2\n", {.classes = 3}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_csv csv;
        ASSERT_OK(parse(cases[i].text, cases[i].opts, &csv));
        assert_int_equal(csv.count, 2);
        assert_int_equal(csv.features, 2);
        assert_int_equal(csv.classes, 3);
        const float x[] = {1, 2.5F, -3, 40};
        const int32_t y[] = {0, 2};
        assert_memory_equal(csv.x, x, sizeof x);
        assert_memory_equal(csv.y, y, sizeof y);
        kolo_csv_fini(&csv);
    }
    kolo_csv csv;
    ASSERT_OK(parse("1,2,-0.5\n3,4,7\n", (kolo_csv_opts){.values = true}, &csv));
    assert_int_equal(csv.classes, 1);
    assert_true(((float *)csv.y)[0] == -0.5F && ((float *)csv.y)[1] == 7);
    kolo_csv_fini(&csv);
}

static void bad_tables_are_refused(void **state) {
    const struct {
        const char *text;
        kolo_csv_opts opts;
        kolo_status status;
        const char *error;
    } cases[] = {
        {"", {0}, KOLO_ERR_FORMAT, "t.csv: no rows"},
        {"\n \n", {0}, KOLO_ERR_FORMAT, "no rows"},
        {"a,b\n", {0}, KOLO_ERR_FORMAT, "0 rows, too few"},
        {"1,2\n", {.test = 0.1}, KOLO_ERR_FORMAT, "1 rows, too few for the training and the test"},
        {"1\n2\n", {0}, KOLO_ERR_FORMAT, "line 1 has one column"},
        {"1,2\n\n3,4,5\n", {0}, KOLO_ERR_FORMAT, "line 3 has 3 columns and the first 2"},
        {"a,b\n1,2\n3\n", {0}, KOLO_ERR_FORMAT, "line 3 has 1 columns"},
        {"1,2\nx\x01,4\n", {0}, KOLO_ERR_FORMAT, "t.csv: line 2, column 1: \"x?\" is no finite"},
        {"1,2\n,4\n", {0}, KOLO_ERR_FORMAT, "line 2, column 1: \"\" is no finite number"},
        {",2\n3,4\n", {0}, KOLO_ERR_FORMAT, "line 1, column 1: \"\" is no finite number"},
        {"nan,2\n3,4\n", {0}, KOLO_ERR_FORMAT, "line 1, column 1: \"nan\" is no finite"},
        {"1,1e39\n3,4\n", {.values = true}, KOLO_ERR_FORMAT, "line 1, column 2: \"1e39\" is no"},
        {",\n3,4\n", {0}, KOLO_ERR_FORMAT, "line 1, column 1: \"\" is no finite number"},
        {"1,2\nnan,4\n", {0}, KOLO_ERR_FORMAT, "\"nan\" is no finite"},
        {"1,2\n1e39,4\n", {0}, KOLO_ERR_FORMAT, "\"1e39\" is no finite"},
        {"1,2\n1,4.5\n", {0}, KOLO_ERR_FORMAT, "line 2, column 2: \"4.5\" is no class 0, 1"},
        {"1,2\n1,-1\n", {0}, KOLO_ERR_FORMAT, "write type=value"},
        {"1,2\n1,3\n", {.classes = 3}, KOLO_ERR_FORMAT, "\"3\" is no class below classes="},
        {"a,b,b\n1,3,4\n", {.target = "b"}, KOLO_ERR_FORMAT, "2 columns are named \"b\""},
        {"a,b\n1,3\n", {.target = "c"}, KOLO_ERR_ARG, "no column \"c\" for target=: "},
        {"1,3\n", {.target = "3"}, KOLO_ERR_ARG, "a number, 1 to 2"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_csv csv;
        assert_int_equal(parse(cases[i].text, cases[i].opts, &csv), cases[i].status);
        if (!strstr(kolo_last_error(), cases[i].error)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cases[i].error);
        }
    }
}

/* Marks the rows of a split; row i has feature i. */
static int64_t mark(const char *spec, kolo_split split, int *rows) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open(spec, split, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    int64_t count = info->count;
    assert_int_equal(info->classes, 50); /* of all rows */
    assert_true(kolo_shape_equal(&info->fields[0].shape, &(kolo_shape){1, {1}}));
    for (int64_t i = 0; i < count; i++) {
        float x;
        int32_t y;
        ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){&x, &y}));
        assert_int_equal(y, (int)x / 2);
        rows[(int)x]++;
    }
    kolo_dataset_close(d);
    return count;
}

static void splits_divide_the_rows(void **state) {
    int rows[100] = {0}, again[100] = {0}, other[100] = {0};
    kolo_text text = {0};
    for (int i = 0; i < 100; i++) kolo_text_add(&text, "%d,%d\n", i, i / 2);
    ASSERT_OK(kolo_folder_make(FOLDER));
    ASSERT_OK(kolo_file_write(FOLDER "/t.csv", text.text, text.length));
    kolo_text_fini(&text);
    const char *spec = "csv:" FOLDER "/t.csv,split=0.25";
    assert_int_equal(mark(spec, KOLO_SPLIT_TEST, rows), 25);
    assert_int_equal(mark(spec, KOLO_SPLIT_TEST, again), 25);
    assert_memory_equal(rows, again, sizeof rows);
    assert_int_equal(mark("csv:" FOLDER "/t.csv,split=0.25,seed=1", KOLO_SPLIT_TEST, other), 25);
    assert_memory_not_equal(rows, other, sizeof rows);
    assert_int_equal(mark(spec, KOLO_SPLIT_TRAIN, rows), 75);
    for (int i = 0; i < 100; i++) assert_int_equal(rows[i], 1);
}

static void folders_have_a_file_for_each_split(void **state) {
    ASSERT_OK(kolo_folder_make(FOLDER));
    ASSERT_OK(kolo_file_write(FOLDER "/train.csv", "1,1.5\n2,2.5\n", 12));
    ASSERT_OK(kolo_file_write(FOLDER "/test.csv", "3,0.5\n", 6));
    for (int split = 0; split < 2; split++) {
        kolo_dataset *d;
        ASSERT_OK(kolo_dataset_open("csv:" FOLDER ",type=value", (kolo_split)split, &d));
        const kolo_dataset_info *info = kolo_dataset_describe(d);
        assert_int_equal(info->count, 2 - split);
        assert_int_equal(info->fields[1].dtype, KOLO_DTYPE_F32);
        float x, y;
        ASSERT_OK(kolo_dataset_gather(d, &(int64_t){0}, 1, (void *[]){&x, &y}));
        assert_true(split ? x == 3 && y == 0.5F : x == 1 && y == 1.5F);
        kolo_dataset_close(d);
    }
    unlink(FOLDER "/test.csv");
    const struct {
        const char *spec, *text;
    } bad[] = {{"csv", "write csv:FILE"},
               {"csv:,split=0.1", "write csv:FILE"},
               {"csv:" FOLDER, FOLDER ": no file test.csv: a folder has train.csv and test.csv"},
               {"csv:" FOLDER "/none.csv", "none.csv"},
               {"csv:" FOLDER ",split=0.2", "split= has no effect for a folder"},
               {"csv:" FOLDER "/train.csv,splt=1", "did you mean split?"},
               {"csv:" FOLDER "/train.csv,split=1", "between 0 and 1"},
               {"csv:" FOLDER "/train.csv,type=classes", "type=class or type=value"},
               {"csv:" FOLDER "/train.csv,type=value,classes=0", "classes=NUMBER"}};
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_dataset *d;
        assert_int_not_equal(kolo_dataset_open(bad[i].spec, KOLO_SPLIT_TEST, &d), KOLO_OK);
        if (!strstr(kolo_last_error(), bad[i].text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), bad[i].text);
        }
    }
}

TEST_MAIN(test_csv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_a_table_are_read),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(splits_divide_the_rows),
        cmocka_unit_test(folders_have_a_file_for_each_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
