/* Click logs: lines of Criteo's format, their splits, bad lines; synthetic logs; what a model must
 * set. */
#include "base/file.h"
#include "base/text.h"
#include "data/readers/clicks.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "test_clicks.tmp"

enum { ROWS = 100, D = KOLO_CRITEO_NUMBERS, T = KOLO_CRITEO_CATEGORIES };

static const kolo_dataset_opts criteo = {.numbers = D, .categories = T, .rows = ROWS};

/* A line with the label `y`, the first number and the first category; the others are missing. */
static void add_line(kolo_text *t, const char *y, const char *number, const char *category) {
    kolo_text_add(t, "%s\t%s", y, number);
    for (int i = 1; i < D; i++) kolo_text_add(t, "\t");
    kolo_text_add(t, "\t%s", category);
    for (int i = 1; i < T; i++) kolo_text_add(t, "\t");
    kolo_text_add(t, "\n");
}

static kolo_status open_text(const char *text, size_t length, kolo_criteo_opts opts,
                             kolo_criteo *log, char **copy) {
    /* In a block of its own length, for the address sanitizer. */
    *copy = malloc(length ? length : 1);
    if (length) memcpy(*copy, text, length);
    return kolo_criteo_open(*copy, length, "log.txt", &opts, log);
}

static void lines_are_read(void **state) {
    static const struct {
        const char *y, *number, *category;
        double x;
        int32_t id; /* of 100 rows */
    } lines[] = {
        {"1", "1", "05db9164", 0.6931471805599453, 1 + 0x05db9164 % 99},
        {"0", "", "", 0, 0},
        {"1", "-3", "0", 0, 1},
        {"0", "123456789012345", "FFFFffff", 32.446912324, 1 + (int32_t)(0xffffffffU % 99)},
        {"0", "0", "63", 0, 1},
    };
    enum { LINES = sizeof lines / sizeof lines[0] };
    for (int form = 0; form < 3; form++) {
        kolo_text t = {0};
        for (int i = 0; i < LINES; i++) {
            add_line(&t, lines[i].y, lines[i].number, lines[i].category);
            if (form == 1) { /* blank lines and the line ends of DOS */
                t.text[t.length - 1] = '\r';
                kolo_text_add(&t, "\n\r\n\n");
            }
        }
        if (form == 2) t.length--; /* no end of the last line */
        kolo_criteo log;
        char *copy;
        ASSERT_OK(open_text(t.text, t.length, (kolo_criteo_opts){0}, &log, &copy));
        assert_int_equal(log.count, LINES);
        for (int i = 0; i < LINES; i++) {
            float x[D], y;
            int32_t ids[T];
            ASSERT_OK(kolo_criteo_read(&log, i, ROWS, x, &y, ids));
            assert_true(y == (float)(lines[i].y[0] - '0'));
            assert_true(fabs((double)x[0] - lines[i].x) <= 1e-6 * (1 + lines[i].x));
            for (int k = 1; k < D; k++) assert_true(x[k] == 0);
            assert_int_equal(ids[0], lines[i].id);
            for (int k = 1; k < T; k++) assert_int_equal(ids[k], k * ROWS);
            ASSERT_OK(kolo_criteo_read(&log, i, 1, x, &y, ids)); /* a row for all */
            for (int k = 0; k < T; k++) assert_int_equal(ids[k], k);
        }
        kolo_criteo_fini(&log);
        kolo_text_fini(&t);
        free(copy);
    }
}

static void bad_lines_are_refused(void **state) {
    static const struct {
        const char *y, *number, *category, *error;
    } cells[] = {
        {"2", "1", "a", "log.txt: line 2, column 1: \"2\" is no label, 0 or 1"},
        {"", "1", "a", "line 2, column 1: \"\" is no label"},
        {"10", "1", "a", "line 2, column 1: \"10\" is no label"},
        {"0", "1.5", "a", "line 2, column 2: \"1.5\" is no integer of at most 15 digits"},
        {"0", "-", "a", "line 2, column 2: \"-\" is no integer"},
        {"0", "1234567890123456", "a", "line 2, column 2: \"1234567890123456\" is no integer"},
        {"0", "1", "g", "line 2, column 15: \"g\" is no category of at most 8 hexadecimal"},
        {"0", "1", "-1", "line 2, column 15: \"-1\" is no category"},
        {"0", "1", "012345678", "line 2, column 15: \"012345678\" is no category"},
        {"0", "1", "\x01 ", "line 2, column 15: \"? \" is no category"},
        {"0", "1", "a\tb", "line 2 has 41 columns, not 40"},
        {"0\t1", "1", "", "line 2 has 41 columns, not 40"},
    };
    kolo_criteo log;
    char *copy;
    for (size_t i = 0; i < KOLO_COUNT(cells); i++) {
        kolo_text t = {0};
        add_line(&t, "0", "", "");
        add_line(&t, cells[i].y, cells[i].number, cells[i].category);
        assert_int_equal(open_text(t.text, t.length, (kolo_criteo_opts){0}, &log, &copy),
                         KOLO_ERR_FORMAT);
        if (!strstr(kolo_last_error(), cells[i].error)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cells[i].error);
        }
        kolo_text_fini(&t);
        free(copy);
    }
    static const struct {
        const char *text;
        int tabs; /* after it */
        const char *error;
        double test;
    } texts[] = {
        {"", 0, "log.txt: 0 lines, too few for the split", 0},
        {"\n\r\n", 0, "0 lines, too few", 0},
        {"0\t1\n", 0, "line 1 has 2 columns, not 40", 0},
        {"", D + T, "column 1: \"\" is no label", 0},
        {"0", D + T - 1,
         "39 columns, not 40: a label, 13 integers and 26 categories, separated by tabs; a log "
         "without labels",
         0},
        {"0", D + T, "1 lines, too few for the training and the test split", 0.1},
    };
    for (size_t i = 0; i < KOLO_COUNT(texts); i++) {
        kolo_text t = {0};
        kolo_text_add(&t, "%s", texts[i].text);
        for (int k = 0; k < texts[i].tabs; k++) kolo_text_add(&t, "\t");
        assert_int_equal(
            open_text(t.text, t.length, (kolo_criteo_opts){.test = texts[i].test}, &log, &copy),
            KOLO_ERR_FORMAT);
        if (!strstr(kolo_last_error(), texts[i].error)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), texts[i].error);
        }
        kolo_text_fini(&t);
        free(copy);
    }
}

/* Marks the lines of a split; line i has the first category i and is a click if i is odd. */
static int64_t mark(const char *spec, kolo_split split, int *lines) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open_for(spec, split, &criteo, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    const int64_t count = info->count;
    assert_true(info->n_fields == 3 && info->classes == 1);
    for (int64_t i = 0; i < count; i++) {
        float x[D], y;
        int32_t ids[T];
        ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, &y, ids}));
        assert_true(y == (float)((ids[0] - 1) % 2));
        lines[ids[0] - 1]++;
    }
    kolo_dataset_close(d);
    return count;
}

static void splits_divide_the_lines(void **state) {
    int lines[50] = {0}, other[50] = {0};
    kolo_text text = {0};
    for (int i = 0; i < 50; i++) {
        char category[8];
        snprintf(category, sizeof category, "%x", i);
        add_line(&text, i % 2 ? "1" : "0", "", category);
    }
    ASSERT_OK(kolo_folder_make(FOLDER));
    ASSERT_OK(kolo_file_write(FOLDER "/log.txt", text.text, text.length));
    kolo_text_fini(&text);
    const char *spec = "criteo:" FOLDER "/log.txt,split=0.2";
    assert_int_equal(mark(spec, KOLO_SPLIT_TEST, lines), 10);
    assert_int_equal(mark("criteo:" FOLDER "/log.txt,split=0.2,seed=1", KOLO_SPLIT_TEST, other),
                     10);
    assert_memory_not_equal(lines, other, sizeof lines);
    assert_int_equal(mark(spec, KOLO_SPLIT_TRAIN, lines), 40);
    for (int i = 0; i < 50; i++) assert_int_equal(lines[i], 1);
}

static void models_set_what_they_take(void **state) {
    static const struct {
        const char *spec;
        kolo_dataset_opts opts;
        kolo_status status;
        const char *error;
    } cases[] = {
        {"criteo:none", {0}, KOLO_ERR_ARG, "choose a model of click logs, such as dlrm"},
        {"criteo:none",
         {.numbers = 13, .categories = 8, .rows = 2},
         KOLO_ERR_ARG,
         "13 numbers and 26 categories, and the model takes 13 and 8"},
        {"criteo:none,rows=3", criteo, KOLO_ERR_ARG, "unknown key \"rows\""},
        {"criteo", criteo, KOLO_ERR_ARG, "needs a path: write criteo:FILE"},
        {"criteo:none", criteo, KOLO_ERR_IO, "none"},
        {"synthetic-clicks", {.context = 4, .vocabulary = 9}, KOLO_ERR_ARG, "such as dlrm"},
        {"synthetic-clicks:N=0", criteo, KOLO_ERR_ARG, "write N=NUMBER, at least 1"},
        {"synthetic-clicks",
         {.numbers = 1, .categories = 1 << 20, .rows = 1 << 20},
         KOLO_ERR_ARG,
         "are too many"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_dataset *d;
        assert_int_equal(kolo_dataset_open_for(cases[i].spec, KOLO_SPLIT_TRAIN, &cases[i].opts, &d),
                         cases[i].status);
        if (!strstr(kolo_last_error(), cases[i].error)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), cases[i].error);
        }
    }
}

/* Samples are the same in any order and differ between splits and seeds; ids are in their tables;
 * clicks depend on them. */
static void synthetic_logs_are_logs(void **state) {
    enum { N = 400, IDS = 3, NUMBERS = 2 };
    static const char *const specs[] = {"synthetic-clicks:N=400,test=400",
                                        "synthetic-clicks:N=400,test=400,seed=1"};
    static float x[3][N * NUMBERS], y[3][N];
    static int32_t ids[3][N * IDS];
    int64_t order[N];
    const kolo_dataset_opts opts = {.numbers = NUMBERS, .categories = IDS, .rows = 7};
    for (int i = 0; i < N; i++) order[i] = i;
    for (int k = 0; k < 3; k++) {
        kolo_dataset *d;
        ASSERT_OK(kolo_dataset_open_for(specs[k == 2], k == 1 ? KOLO_SPLIT_TEST : KOLO_SPLIT_TRAIN,
                                        &opts, &d));
        assert_int_equal(kolo_dataset_describe(d)->count, N);
        ASSERT_OK(kolo_dataset_gather(d, order, N, (void *[]){x[k], y[k], ids[k]}));
        float one[NUMBERS], click;
        int32_t rows[IDS];
        ASSERT_OK(kolo_dataset_gather(d, &(int64_t){7}, 1, (void *[]){one, &click, rows}));
        assert_memory_equal(one, x[k] + 7 * NUMBERS, sizeof one);
        assert_memory_equal(rows, ids[k] + 7 * IDS, sizeof rows);
        assert_true(click == y[k][7]);
        kolo_dataset_close(d);
    }
    int clicks[7] = {0}, all[7] = {0};
    for (int i = 0; i < N; i++) {
        assert_true(y[0][i] == 0 || y[0][i] == 1);
        for (int t = 0; t < IDS; t++) assert_int_equal(ids[0][i * IDS + t] / 7, t);
        all[ids[0][i * IDS]]++;
        clicks[ids[0][i * IDS]] += y[0][i] > 0;
    }
    double least = 1, most = 0; /* share of clicks of the rows of the first table */
    for (int r = 0; r < 7; r++) {
        assert_in_range(all[r], 10, N);
        least = fmin(least, (double)clicks[r] / all[r]);
        most = fmax(most, (double)clicks[r] / all[r]);
    }
    assert_true(all[0] > 3 * all[6] && most - least > 0.2);
    assert_memory_not_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_not_equal(ids[0], ids[2], sizeof ids[0]);
}

TEST_MAIN(test_clicks) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read),          cmocka_unit_test(bad_lines_are_refused),
        cmocka_unit_test(splits_divide_the_lines), cmocka_unit_test(models_set_what_they_take),
        cmocka_unit_test(synthetic_logs_are_logs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
