/* Data sets: names and arguments, MNIST-like files, synthetic data, gathering. */
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/readers.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "test_dataset.tmp"
#define DEBIAN "/usr/share/datasets/fashion-mnist"

static void refuses(const char *spec, kolo_split split, kolo_status status, const char *text) {
    kolo_dataset *d = NULL;
    assert_int_equal(kolo_dataset_open(spec, split, &d), status);
    assert_null(d);
    if (!strstr(kolo_last_error(), text)) fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), text);
    assert_null(strchr(kolo_last_error(), '\n'));
}

static void bad_names_and_arguments_are_refused(void **state) {
    const struct {
        const char *spec, *text;
    } cases[] = {
        {"fashon-mnist", "did you mean fashion-mnist?"},
        {"mnits:/data", "did you mean mnist?"},
        {"imagenet-with-a-long-name-that-is-nothing-like-what-is-there-at-all", "known are"},
        {"pictures", "known are fashion-mnist, mnist, cifar10"},
        {"cifar", "did you mean cifar10?"},
        {"", "no data set named"},
        {":", "unknown data set \"\""},
        {"mnist", "write mnist:DIR"},
        {"mnist:", "write mnist:DIR"},
        {"fashion-mnist:", "write fashion-mnist:DIR"},
        {"synthetic:N=0", "bad value in \"N=0\""},
        {"synthetic:N=-3", "bad value"},
        {"synthetic:N=12x", "bad value"},
        {"synthetic:N", "bad value"},
        {"synthetic:n=3,", "unknown key \"n\""},
        {"synthetic:N=30,test=3,N=40", "data set synthetic: N= is given twice: omit one"},
        {"synthetic:N=3,shap=1x2x3", "did you mean shape"},
        {"synthetic:a-key-far-too-long-to-be-one=3", "known are N, test"},
        {"synthetic-seg:shap=28x28", "data set synthetic-seg: unknown key \"shap\""},
        {"synthetic:shape=28x28", "write shape=CxHxW"},
        {"synthetic:shape=1x28x28x3", "write shape=CxHxW"},
        {"synthetic:shape=17x28x28", "C at most 16"},
        {"synthetic:seed=-1", "bad value"},
        {"synthetic:N=100000000000", "16 GiB"},
        {"synthetic:shape=16x65536x65536", "16 GiB"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        refuses(cases[i].spec, KOLO_SPLIT_TRAIN, KOLO_ERR_ARG, cases[i].text);
    }
    refuses(NULL, KOLO_SPLIT_TRAIN, KOLO_ERR_ARG, "no data set named");
    refuses("synthetic", (kolo_split)7, KOLO_ERR_ARG, "choose train or test");
}

static void put(const char *path) { ASSERT_OK(kolo_file_write(path, "x", 1)); }

/* The kind of a path without a name. */
static void kinds_are_recognized(void **state) {
    static const char *const folders[] = {"c10",        "c100", "tokens",        "mnist",
                                          "gz",         "voc",  "csv",           "ab/a",
                                          "tv/train/b", "none", "voc/JPEGImages"};
    static const char *const paths[] = {"c10/data_batch_1.bin",
                                        "c10/test_batch.bin",
                                        "c100/train.bin",
                                        "c100/test.bin",
                                        "tokens/train.bin",
                                        "tokens/val.bin",
                                        "mnist/train-images-idx3-ubyte",
                                        "gz/train-images-idx3-ubyte.gz",
                                        "voc/ImageSets/Segmentation",
                                        "csv/train.csv",
                                        "csv/test.csv",
                                        "ab/a/1.jpg",
                                        "tv/train/b/2.PNG",
                                        "none/1.jpg",
                                        "t.csv",
                                        "s-0.tar",
                                        "x.bin",
                                        "p.pack"};
    static const struct {
        const char *spec, *kind;
        bool exists;
    } cases[] = {{"c10", "cifar10", true},
                 {"c100", "cifar100", true},
                 {"tokens", "tokens", true},
                 {"mnist", "mnist", true},
                 {"gz", "mnist", true},
                 {"voc,size=64", "voc", true},
                 {"csv", "csv", true},
                 {"ab,size=8", "folder", true},
                 {"tv", "folder", true},
                 {"none", NULL, true},
                 {"t.csv,seed=1", "csv", true},
                 {"s-0.tar", "webdataset", true},
                 {"s-*.tar", "webdataset", false},
                 {"s-{0..1}.tar,test=t-{0,1}.tar", "webdataset", false},
                 {"x.bin", NULL, true},
                 {"absent.csv", NULL, false},
                 {"p.pack", "pack", true},
                 {"absent", NULL, false},
                 {"csv:t.csv", NULL, false}};
    for (size_t i = 0; i < KOLO_COUNT(folders); i++) ASSERT_OK(kolo_folder_make(folders[i]));
    ASSERT_OK(kolo_folder_make("voc/ImageSets"));
    for (size_t i = 0; i < KOLO_COUNT(paths); i++) put(paths[i]);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        bool exists;
        const char *kind = kolo_reader_recognize(cases[i].spec, &exists);
        const bool same =
            kind && cases[i].kind ? !strcmp(kind, cases[i].kind) : kind == cases[i].kind;
        if (!same || exists != cases[i].exists)
            fail_msg("%s: %s", cases[i].spec, kind ? kind : "-");
    }
    refuses("none", KOLO_SPLIT_TRAIN, KOLO_ERR_ARG,
            "none: the kind of these data is not recognized");
    refuses("x.bin", KOLO_SPLIT_TRAIN, KOLO_ERR_ARG, "such as folder:x.bin");
    refuses("none.csv,target=2", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "none.csv: No such file");
    refuses("/nothing/here", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "/nothing/here: No such file");
    /* Paths in a config file, of which some are there from another working folder only. */
    static const struct {
        const char *spec, *paths[3];
    } specs[] = {
        {"t.csv,seed=1", {"t.csv"}},
        {"csv:t.csv", {"t.csv"}},
        {"t.csv,test=u.csv,seed=1", {"t.csv", "u.csv"}},
        {"raw:a.f32,columns=3,test=b.f32", {"a.f32", "b.f32"}},
        {"text:a,follow=3,test=b/c", {"a", "b/c"}},
        {"tokens:-,test=v.u16", {"v.u16"}},
        {"webdataset:s-*.tar,index=its/index,test=t-*.tar", {"s-*.tar", "its/index"}},
        {"mnist:its,images", {"its,images"}},
        {"csv:-,columns=3", {NULL}},
        {"folder:d,test=e", {"d"}}, /* no key of folders */
        {"absent", {NULL}},
        {"absent.csv,seed=1", {"absent.csv"}},
        {"its/images", {"its/images"}},
        {"other:its/images", {NULL}},
        {"synthetic:N=9", {NULL}},
    };
    for (size_t i = 0; i < KOLO_COUNT(specs); i++) {
        size_t length = 0;
        const char *path = NULL;
        for (int k = 0; k < 3; k++) {
            const char *expected = specs[i].paths[k];
            path = kolo_dataset_path(specs[i].spec, path, &length);
            if (!path != !expected ||
                (path && (strlen(expected) != length || memcmp(path, expected, length) != 0)))
                fail_msg("%s, path %d: %s", specs[i].spec, k, path ? path : "none");
            if (!path) break;
        }
    }
}

/* What a resumed run compares: keys that change samples, not paths. */
static void specs_differ_by_keys(void **state) {
    static const struct {
        const char *a, *b;
        bool same;
    } cases[] = {
        {"folder:x,decode=scaled,size=32", "folder:elsewhere/y,size=32,decode=scaled", true},
        {"folder:x", "folder:x,decode=scaled", false},
        {"folder:x,decode=scaled", "folder:x", false},
        {"folder:x,decode=scaled", "folder:x,decode=exact", false},
        {"folder:x,size=3", "folder:x,size=32", false},
        {"folder:x,size=3,size=32", "folder:x,size=32", true}, /* the last one counts */
        {"folder:x", "folder:y", true},
        {"folder:x,size=3", "pack:x", true}, /* which holds the size */
        {"folder:x,size=3,decode=scaled", "pack:x", false},
        {"tokens:a,b", "tokens:a,c", true},                     /* paths */
        {"tokens:a,follow=1", "tokens:a,follow=forever", true}, /* no sample depends on it */
        {"csv:-,columns=3", "csv:-,columns=4", false},
        {"mnist:a", "mnist:b", true},
        {"fashion-mnist", "fashion-mnist:b", true},
        {"synthetic", "synthetic:seed=1", false},
        {"synthetic:N=3,seed=1", "synthetic:seed=1,N=3", true},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        if (kolo_dataset_same_keys(cases[i].a, cases[i].b) == cases[i].same &&
            kolo_dataset_same_keys(cases[i].b, cases[i].a) == cases[i].same) {
            continue;
        }
        fail_msg("%s, %s", cases[i].a, cases[i].b);
    }
}

/* ---- MNIST-like files ---- */

enum { IMAGES = 5, HEIGHT = 2, WIDTH = 3, PIXELS = HEIGHT * WIDTH };

static void put_file(const char *name, const uint8_t *bytes, size_t n) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    ASSERT_OK(kolo_file_write(path, bytes, n));
}

static void remove_file(const char *name) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    unlink(path);
}

/* Image i holds the values 10 i, 10 i + 1, ...; its label is 9 - i. */
static void put_split(const char *images_name, const char *labels_name, uint8_t labels) {
    uint8_t images[16 + IMAGES * PIXELS] = {0, 0, 8, 3,      0, 0, 0, IMAGES,
                                            0, 0, 0, HEIGHT, 0, 0, 0, WIDTH};
    uint8_t classes[8 + IMAGES + 1] = {0, 0, 8, 1, 0, 0, 0, labels};
    for (int i = 0; i < IMAGES; i++) {
        for (int p = 0; p < PIXELS; p++) images[16 + i * PIXELS + p] = (uint8_t)(10 * i + p);
        classes[8 + i] = (uint8_t)(9 - i);
    }
    put_file(images_name, images, sizeof images);
    put_file(labels_name, classes, 8 + (size_t)labels);
}

static void fresh_folder(void) {
    ASSERT_OK(kolo_folder_make(FOLDER));
    remove_file("train-images-idx3-ubyte.gz");
    put_split("train-images-idx3-ubyte", "train-labels-idx1-ubyte", IMAGES);
    put_split("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", IMAGES);
}

static void idx_files_in_any_folder_are_a_data_set(void **state) {
    fresh_folder();
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open("mnist:" FOLDER, KOLO_SPLIT_TEST, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_string_equal(info->name, "mnist");
    assert_string_equal(info->place, FOLDER);
    assert_int_equal(info->split, KOLO_SPLIT_TEST);
    assert_int_equal(info->count, IMAGES);
    assert_true(kolo_shape_equal(&info->fields[0].shape, &(kolo_shape){3, {1, HEIGHT, WIDTH}}));
    assert_int_equal(info->classes, 10);
    assert_true(info->fields[0].mean[0] == 0.1307F && info->fields[0].std[0] == 0.3081F);

    const int64_t indices[] = {4, 0, 4};
    uint8_t samples[3 * PIXELS];
    int32_t labels[3];
    ASSERT_OK(kolo_dataset_gather(d, indices, 3, (void *[]){samples, labels}));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(labels[i], 9 - indices[i]);
        for (int p = 0; p < PIXELS; p++) {
            assert_int_equal(samples[i * PIXELS + p], 10 * indices[i] + p);
        }
    }
    const int64_t outside[][1] = {{-1}, {IMAGES}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kolo_dataset_gather(d, outside[i], 1, (void *[]){samples, labels}),
                         KOLO_ERR_ARG);
    }
    kolo_dataset_close(d);

    /* The format is detected by contents, not by the suffix. */
    assert_int_equal(
        rename(FOLDER "/train-images-idx3-ubyte", FOLDER "/train-images-idx3-ubyte.gz"), 0);
    ASSERT_OK(kolo_dataset_open("fashion-mnist:" FOLDER, KOLO_SPLIT_TRAIN, &d));
    assert_true(kolo_dataset_describe(d)->fields[0].mean[0] == 0.2860F);
    kolo_dataset_close(d);
    kolo_dataset_close(NULL);
}

static void files_missing_or_at_odds_are_refused(void **state) {
    fresh_folder();
    refuses("mnist:" FOLDER "/none", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, FOLDER "/none: ");
    refuses("mnist:" FOLDER "/t10k-images-idx3-ubyte", KOLO_SPLIT_TRAIN, KOLO_ERR_IO,
            "not a folder");
    remove_file("train-images-idx3-ubyte");
    refuses("mnist:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "train-images-idx3-ubyte.gz exists");
    fresh_folder();
    put_split("train-images-idx3-ubyte", "train-labels-idx1-ubyte", IMAGES + 1);
    refuses("mnist:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT, "5 images in");
    uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, IMAGES, 0, 9, 1, 10, 2};
    put_file("train-labels-idx1-ubyte", labels, sizeof labels);
    refuses("mnist:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT, "label 10 of sample 3");
    put_split("train-labels-idx1-ubyte", "train-images-idx3-ubyte", IMAGES);
    refuses("mnist:" FOLDER, KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT, "(images), expected 0x00000801");

    kolo_reader elsewhere = kolo_readers[0];
    elsewhere.folder = FOLDER "/not-installed";
    kolo_dataset *d;
    assert_int_equal(
        kolo_dataset_open_with(&elsewhere, elsewhere.open, NULL, KOLO_SPLIT_TRAIN, NULL, &d),
        KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "apt-get install dataset-fashion-mnist"));
}

/* Counts per class are facts of the published set; 0.2860 and 0.3530 are its moments. */
static void debian_package_is_the_published_set(void **state) {
    if (access(DEBIAN, F_OK) != 0) {
        refuses("fashion-mnist", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "dataset-fashion-mnist");
        print_message("skip: the package dataset-fashion-mnist is not installed\n");
        return;
    }
    const int64_t counts[] = {60000, 10000};
    for (int split = 0; split < 2; split++) {
        kolo_dataset *d;
        ASSERT_OK(kolo_dataset_open("fashion-mnist", (kolo_split)split, &d));
        const kolo_dataset_info *info = kolo_dataset_describe(d);
        assert_int_equal(info->count, counts[split]);
        assert_int_equal(kolo_shape_count(&info->fields[0].shape), 784);
        int64_t per_class[10] = {0};
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < info->count; i++) {
            uint8_t pixels[784];
            int32_t label;
            ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){pixels, &label}));
            per_class[label]++;
            for (int p = 0; p < 784; p++) {
                sum += pixels[p];
                squares += pixels[p] * pixels[p];
            }
        }
        for (int c = 0; c < 10; c++) assert_int_equal(per_class[c], counts[split] / 10);
        if (split == KOLO_SPLIT_TRAIN) {
            double n = 784.0 * 60000 * 255, mean = sum / n;
            double variance = squares / (n * 255) - mean * mean;
            assert_true(mean - info->fields[0].mean[0] < 1e-4 &&
                        info->fields[0].mean[0] - mean < 1e-4);
            double std = info->fields[0].std[0];
            assert_true(variance < (std + 1e-4) * (std + 1e-4));
            assert_true(variance > (std - 1e-4) * (std - 1e-4));
        }
        kolo_dataset_close(d);
    }
}

/* ---- synthetic ---- */

typedef struct copy {
    uint8_t *samples;
    int32_t *labels;
    int64_t n, sample;
} copy;

static copy copy_all(const char *spec, kolo_split split) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open(spec, split, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    copy c = {.n = info->count, .sample = kolo_shape_count(&info->fields[0].shape)};
    c.samples = malloc((size_t)(c.n * c.sample));
    c.labels = malloc((size_t)c.n * sizeof *c.labels);
    for (int64_t i = 0; i < c.n; i++) {
        ASSERT_OK(
            kolo_dataset_gather(d, &i, 1, (void *[]){c.samples + i * c.sample, c.labels + i}));
    }
    kolo_dataset_close(d);
    return c;
}

static void free_copy(copy *c) {
    free(c->samples);
    free(c->labels);
}

static void synthetic_samples_repeat_and_differ_by_class(void **state) {
    const char *spec = "synthetic:N=600,shape=3x5x7,classes=4,seed=3";
    copy a = copy_all(spec, KOLO_SPLIT_TRAIN), b = copy_all(spec, KOLO_SPLIT_TRAIN);
    copy test = copy_all(spec, KOLO_SPLIT_TEST);
    copy other = copy_all("synthetic:N=600,shape=3x5x7,classes=4,seed=4", KOLO_SPLIT_TRAIN);
    assert_int_equal(a.n, 600);
    assert_int_equal(a.sample, 3 * 5 * 7);
    assert_int_equal(test.n, 100);
    assert_memory_equal(a.samples, b.samples, (size_t)(a.n * a.sample));
    assert_memory_equal(a.labels, b.labels, (size_t)a.n * sizeof *a.labels);
    assert_memory_not_equal(a.samples, other.samples, (size_t)(a.n * a.sample));
    assert_memory_not_equal(a.samples, test.samples, (size_t)(test.n * test.sample));

    /* The class means of the training samples classify the test samples. */
    double means[4][3 * 5 * 7] = {{0}};
    int64_t members[4] = {0};
    for (int64_t i = 0; i < a.n; i++) members[a.labels[i]]++;
    for (int64_t i = 0; i < a.n; i++) {
        for (int64_t p = 0; p < a.sample; p++) {
            means[a.labels[i]][p] +=
                (double)a.samples[i * a.sample + p] / (double)members[a.labels[i]];
        }
    }
    int64_t right = 0;
    for (int64_t i = 0; i < test.n; i++) {
        double best = 1e300;
        int guess = -1;
        for (int c = 0; c < 4; c++) {
            double far = 0;
            for (int64_t p = 0; p < a.sample; p++) {
                double off = test.samples[i * a.sample + p] - means[c][p];
                far += off * off;
            }
            if (far < best) {
                best = far;
                guess = c;
            }
        }
        right += guess == test.labels[i];
    }
    for (int c = 0; c < 4; c++) assert_true(members[c] > 90);
    assert_int_equal(right, test.n);
    free_copy(&a);
    free_copy(&b);
    free_copy(&test);
    free_copy(&other);

    copy defaults = copy_all("synthetic:test=77", KOLO_SPLIT_TEST);
    assert_int_equal(defaults.n, 77);
    assert_int_equal(defaults.sample, 784);
    free_copy(&defaults);
}

static void failing_memory_is_reported(void **state) {
    fresh_folder();
    const char *specs[] = {"mnist:" FOLDER, "synthetic:N=8,shape=1x2x2"};
    for (size_t s = 0; s < KOLO_COUNT(specs); s++) {
        kolo_dataset *d = NULL;
        long failures = 0;
        kolo_status status = KOLO_ERR_NOMEM;
        while (status != KOLO_OK && failures < 100) {
            kolo_alloc_fail_nth(failures + 1);
            status = kolo_dataset_open(specs[s], KOLO_SPLIT_TRAIN, &d);
            kolo_alloc_fail_nth(0);
            if (status != KOLO_OK) {
                assert_int_equal(status, KOLO_ERR_NOMEM);
                assert_null(d);
                failures++;
            }
        }
        assert_true(failures >= 5 && failures < 100);
        kolo_dataset_close(d);
    }
}

static void maps_mark_what_is_seen(void **state) {
    enum { C = 3, H = 40, W = 50, CLASSES = 4, N = 60 };
    static uint8_t samples[N * C * H * W], again[C * H * W];
    static int32_t labels[N * H * W], labels_again[H * W];
    const char *spec = "synthetic-seg:N=60,test=9,shape=3x40x50,classes=4,seed=2";
    kolo_dataset *d, *test;
    ASSERT_OK(kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_open(spec, KOLO_SPLIT_TEST, &test));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_int_equal(info->fields[1].shape.rank, 2);
    assert_true(info->fields[1].shape.dim[0] == H && info->fields[1].shape.dim[1] == W);
    assert_int_equal(kolo_dataset_describe(test)->count, 9);
    int64_t indices[N];
    for (int64_t i = 0; i < N; i++) indices[i] = i;
    ASSERT_OK(kolo_dataset_gather(d, indices, N, (void *[]){samples, labels}));
    ASSERT_OK(kolo_dataset_gather(d, &indices[7], 1, (void *[]){again, labels_again}));
    assert_memory_equal(again, samples + 7 * C * H * W, sizeof again);
    assert_memory_equal(labels_again, labels + (ptrdiff_t)7 * H * W, sizeof labels_again);
    ASSERT_OK(kolo_dataset_gather(test, &indices[7], 1, (void *[]){again, labels_again}));
    assert_memory_not_equal(labels_again, labels + (ptrdiff_t)7 * H * W, sizeof labels_again);

    /* Every class occurs, some pixels have no label, and a pixel has the colour of its class. */
    double sum[CLASSES + 1][C] = {{0}}, squares[CLASSES + 1][C] = {{0}};
    int64_t count[CLASSES + 1] = {0};
    for (int64_t i = 0; i < (int64_t)N * H * W; i++) {
        assert_in_range(labels[i] + 1, 0, CLASSES);
        int of = labels[i] + 1;
        count[of]++;
        for (int64_t c = 0; c < C; c++) {
            double x = samples[(i / (H * W) * C + c) * H * W + i % (H * W)];
            sum[of][c] += x;
            squares[of][c] += x * x;
        }
    }
    for (int of = 0; of <= CLASSES; of++) {
        assert_true(count[of] > N * H * W / 100);
        for (int c = 0; c < C && of > 0; c++) {
            double n = (double)count[of], mean = sum[of][c] / n;
            assert_true(squares[of][c] / n - mean * mean <
                        38 * 38); /* half of uniform noise: 36.8 */
        }
    }
    kolo_dataset_close(d);
    kolo_dataset_close(test);
}

TEST_MAIN(test_dataset) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_names_and_arguments_are_refused),
        cmocka_unit_test(specs_differ_by_keys),
        cmocka_unit_test(kinds_are_recognized),
        cmocka_unit_test(idx_files_in_any_folder_are_a_data_set),
        cmocka_unit_test(files_missing_or_at_odds_are_refused),
        cmocka_unit_test(debian_package_is_the_published_set),
        cmocka_unit_test(synthetic_samples_repeat_and_differ_by_class),
        cmocka_unit_test(maps_mark_what_is_seen),
        cmocka_unit_test(failing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
