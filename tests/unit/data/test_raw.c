/* Tables of f32 in memory order: files without a header, .npy files, targets, splits, bad files. */
#include "base/compiler.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/readers/npy.h"
#include "support/folder.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const float rows[][3] = {{1, 2, 0}, {-3, 0.5F, 2}, {4, 5, 1}, {6, 7, 2}};

static size_t put_npy(const char *path, const char *header, const void *data, size_t bytes) {
    char file[512] = "\x93NUMPY\x01";
    const size_t length = strlen(header);
    file[8] = (char)length;
    memcpy(file + 10, header, length);
    memcpy(file + 10 + length, data, bytes);
    ASSERT_OK(kolo_file_write(path, file, 10 + length + bytes));
    return 10 + length;
}

#define NPY(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape ", }   \n"

static void check_rows(const char *spec, int target, bool values) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_int_equal(info->count, 4);
    assert_int_equal(info->fields[0].shape.dim[0], 2);
    assert_int_equal(info->classes, values ? 1 : target == 0 ? 7 : 3);
    for (int64_t i = 0; i < 4; i++) {
        float x[2], y;
        int32_t label;
        const int a = target == 0, b = target == 2 ? 1 : 2;
        ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, values ? (void *)&y : &label}));
        assert_true(x[0] == rows[i][a] && x[1] == rows[i][b]);
        assert_true(values ? y == rows[i][target] : label == (int32_t)rows[i][target]);
    }
    kolo_dataset_close(d);
}

static void files_of_numbers_are_read(void **state) {
    ASSERT_OK(kolo_file_write("t.f32", rows, sizeof rows));
    put_npy("t.npy", NPY("(4, 3)"), rows, sizeof rows);
    check_rows("raw:t.f32,columns=3,test=t.f32", 2, false);
    check_rows("raw:t.f32,columns=3,test=t.f32,target=2,type=value", 1, true);
    check_rows("raw:t.f32,columns=3,test=t.f32,target=1,type=value", 0, true);
    check_rows("raw:t.npy,test=t.f32", 2, false);
    check_rows("t.npy,test=t.npy,columns=3", 2, false); /* the kind is recognized */
}

static void splits_are_parts(void **state) {
    kolo_dataset *sets[2];
    bool seen[4] = {false};
    ASSERT_OK(kolo_file_write("t.f32", rows, sizeof rows));
    for (int s = 0; s < 2; s++) {
        ASSERT_OK(
            kolo_dataset_open("raw:t.f32,columns=3,split=0.4,seed=3", (kolo_split)s, &sets[s]));
        for (int64_t i = 0; i < kolo_dataset_describe(sets[s])->count; i++) {
            float x[2];
            int32_t y;
            ASSERT_OK(kolo_dataset_gather(sets[s], &i, 1, (void *[]){x, &y}));
            for (int r = 0; r < 4; r++) seen[r] |= memcmp(x, rows[r], sizeof x) == 0;
        }
    }
    assert_int_equal(kolo_dataset_describe(sets[0])->count, 2);
    assert_int_equal(kolo_dataset_describe(sets[1])->count, 2);
    assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
    for (int s = 0; s < 2; s++) kolo_dataset_close(sets[s]);
}

static void bad_files_are_refused(void **state) {
    static const struct {
        const char *spec;
        kolo_status status;
        const char *text;
    } cases[] = {
        {"raw:t.f32", KOLO_ERR_ARG, "t.f32 has no header: give columns=N"},
        {"raw:t.f32,columns=5", KOLO_ERR_FORMAT,
         "48 bytes of numbers are not a whole number of row"},
        {"raw:t.f32,columns=3,target=4", KOLO_ERR_ARG, "no column 4 for target=: there are 3"},
        {"raw:t.f32,columns=3,target=2", KOLO_ERR_FORMAT, "row 1, column 2: 0.5 is no class"},
        {"raw:t.f32,columns=3,classes=2", KOLO_ERR_FORMAT, "row 1, column 3: 2 is no class 0..1"},
        {"raw:t.f32,columns=12", KOLO_ERR_FORMAT, "1 rows, too few"},
        {"raw:nan.f32,columns=2", KOLO_ERR_FORMAT, "nan.f32: row 0, column 1 is no finite number"},
        {"raw:one.f32,columns=2", KOLO_ERR_FORMAT, "one.f32: 1 rows, too few for two splits"},
        {"raw:empty,columns=2", KOLO_ERR_FORMAT, "empty: 0 bytes of numbers are not"},
        {"raw:absent,columns=2", KOLO_ERR_IO, "absent"},
        {"raw:f8.npy", KOLO_ERR_UNSUPPORTED, "f8.npy: not a table of two dimensions of float32"},
        {"raw:one.npy", KOLO_ERR_UNSUPPORTED, "not a table of two dimensions"},
        {"raw:fortran.npy", KOLO_ERR_UNSUPPORTED, "in C order"},
        {"raw:thin.npy", KOLO_ERR_FORMAT, "thin.npy has 1 columns"},
        {"raw:cut.npy", KOLO_ERR_FORMAT, "not a whole number of rows of 3 columns"},
        {"raw:head.npy", KOLO_ERR_FORMAT, "head.npy: the file ends within its header"},
        {"raw:lacks.npy", KOLO_ERR_FORMAT, "lacks.npy: the header lacks type, order or shape"},
        {"raw:t.npy,columns=2", KOLO_ERR_FORMAT, "t.npy has 3 columns"},
        {"raw:t2.npy", KOLO_ERR_FORMAT, "t2.npy: not a .npy file"},
        {"raw:few.npy", KOLO_ERR_FORMAT, "few.npy has 3 rows, and 4 by its header"},
        {"raw:more.npy", KOLO_ERR_FORMAT, "more.npy has 4 rows, and 3 by its header"},
        {"raw:named.f32,columns=4", KOLO_ERR_FORMAT, "named.f32 has 3 columns"},
    };
    const float one[] = {1, 0}, bad[] = {NAN, 0};
    ASSERT_OK(kolo_file_write("t.f32", rows, sizeof rows));
    ASSERT_OK(kolo_file_write("nan.f32", bad, sizeof bad));
    ASSERT_OK(kolo_file_write("one.f32", one, sizeof one));
    ASSERT_OK(kolo_file_write("empty", "", 0));
    ASSERT_OK(kolo_file_write("t2.npy", rows, sizeof rows));
    put_npy("t.npy", NPY("(4, 3)"), rows, sizeof rows);
    put_npy("f8.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", rows, 48);
    put_npy("fortran.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 3), }", rows, 48);
    put_npy("one.npy", NPY("(12,)"), rows, sizeof rows);
    put_npy("thin.npy", NPY("(12, 1)"), rows, sizeof rows);
    put_npy("lacks.npy", "{'descr': '<f4', 'shape': (4, 3), }", rows, sizeof rows);
    put_npy("few.npy", NPY("(4, 3)"), rows, sizeof rows[0] * 3);
    put_npy("more.npy", NPY("(3, 3)"), rows, sizeof rows);
    put_npy("named.f32", NPY("(4, 3)"), rows, sizeof rows);
    put_npy("cut.npy", NPY("(4, 3)"), rows, sizeof rows - 2);
    ASSERT_OK(kolo_file_write("head.npy", "\x93NUMPY\x01\0\xff\0{}", 12));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_dataset *d;
        const kolo_status status = kolo_dataset_open(cases[i].spec, KOLO_SPLIT_TRAIN, &d);
        if (status != cases[i].status || !strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("%s: %s", cases[i].spec, status ? kolo_last_error() : "opened");
        }
    }
}

/* The text of a header would pass as finite numbers. */
static void headers_are_no_rows_of_a_stream(void **state) {
    kolo_dataset *d;
    float x[1], y;
    int64_t got, damaged;
    put_npy("t.npy", NPY("(4, 3)"), rows, sizeof rows);
    ASSERT_OK(
        kolo_dataset_open("raw:t.npy,columns=2,type=value,follow=0.05", KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 0}));
    assert_int_equal(kolo_dataset_next(d, 1, (void *[]){x, &y}, &got, &damaged), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "t.npy: a stream of f32 has no header"));
    kolo_dataset_close(d);
}

TEST_MAIN(test_raw) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_numbers_are_read),
        cmocka_unit_test(splits_are_parts),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(headers_are_no_rows_of_a_stream),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
