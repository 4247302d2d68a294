/* Token data sets: windows of files and of synthetic tokens, splits, refused files. */
#include "base/file.h"
#include "data/prefetch.h"
#include "kolo/data.h"
#include "support/folder.h"
#include "support/support.h"

#include <string.h>

static const kolo_dataset_opts windows = {.context = 4, .vocabulary = 300};

static void write_file(const char *path, const void *data, size_t bytes) {
    ASSERT_OK(kolo_file_write(path, data, bytes));
}

/* Checks sample i: its tokens are first, first + 1, ... */
static void check_count_up(const kolo_dataset *d, int64_t i, int32_t first) {
    int32_t x[4], y[4];
    ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, y}));
    for (int32_t t = 0; t < 4; t++) {
        assert_int_equal(x[t], first + t);
        assert_int_equal(y[t], first + t + 1);
    }
}

static void check_file(const char *spec, int64_t train, int64_t test, int32_t test_first) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open_for(spec, KOLO_SPLIT_TRAIN, &windows, &d));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_true(info->count == train && info->classes == 300 &&
                info->fields[0].dtype == KOLO_DTYPE_I32);
    assert_true(info->fields[0].shape.rank == 1 && info->fields[0].shape.dim[0] == 4);
    assert_true(kolo_shape_equal(&info->fields[0].shape, &info->fields[1].shape));
    check_count_up(d, 0, 0);
    check_count_up(d, train - 1, (int32_t)(4 * (train - 1)));
    kolo_dataset_close(d);
    ASSERT_OK(kolo_dataset_open_for(spec, KOLO_SPLIT_TEST, &windows, &d));
    assert_int_equal(kolo_dataset_describe(d)->count, test);
    check_count_up(d, 0, test_first);
    kolo_dataset_close(d);
}

static void files_become_windows(void **state) {
    uint8_t text[90], shorts[2 * 90], words[4 * 90];
    for (size_t i = 0; i < 90; i++) {
        text[i] = (uint8_t)i;
        memcpy(shorts + 2 * i, (uint8_t[]){(uint8_t)i, 0}, 2);
        memcpy(words + 4 * i, (uint8_t[]){(uint8_t)i, 0, 0, 0}, 4);
    }
    write_file("text", text, sizeof text);
    write_file("shorts.bin", shorts, sizeof shorts);
    write_file("words.u32", words, sizeof words);
    /* 22 windows, of which 3 are the test's; the last token but one begins no window */
    check_file("text:text", 19, 3, 76);
    check_file("tokens:shorts.bin", 19, 3, 76);
    check_file("tokens:words.u32", 19, 3, 76);
    ASSERT_OK(kolo_folder_make("folder"));
    write_file("folder/train.bin", shorts, sizeof shorts);
    write_file("folder/val.bin", shorts, 2 * 10);
    check_file("tokens:folder", 22, 2, 0);
}

static void tokens_of_two_bytes_are_little_endian(void **state) {
    const uint8_t bytes[] = {1, 0, 255, 0, 0, 1, 43, 1, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0};
    write_file("some.bin", bytes, sizeof bytes);
    kolo_dataset *d;
    int64_t first = 0;
    int32_t x[4], y[4];
    ASSERT_OK(kolo_dataset_open_for("tokens:some.bin", KOLO_SPLIT_TRAIN, &windows, &d));
    ASSERT_OK(kolo_dataset_gather(d, &first, 1, (void *[]){x, y}));
    assert_memory_equal(x, ((const int32_t[]){1, 255, 256, 299}), sizeof x);
    assert_memory_equal(y, ((const int32_t[]){255, 256, 299, 7}), sizeof y);
    kolo_dataset_close(d);
}

/* Synthetic tokens are equal in every reading, and most follow from the previous one. */
static void made_up_tokens_follow_each_other(void **state) {
    enum { N = 200, T = 16, V = 50 };
    static int32_t x[N][T], again[N][T], y[N][T];
    const kolo_dataset_opts opts = {.context = T, .vocabulary = V};
    int64_t indices[N];
    kolo_dataset *d;
    for (int64_t i = 0; i < N; i++) indices[i] = i;
    ASSERT_OK(kolo_dataset_open_for("synthetic-tokens:N=200,seed=4", KOLO_SPLIT_TRAIN, &opts, &d));
    ASSERT_OK(kolo_dataset_gather(d, indices, N, (void *[]){x, y[0]}));
    ASSERT_OK(kolo_dataset_gather(d, indices, N, (void *[]){again, y[0]}));
    assert_memory_equal(x, again, sizeof x);
    int pairs[V][V] = {{0}}, follow = 0;
    for (int i = 0; i < N; i++) {
        for (int t = 0; t < T; t++) {
            assert_in_range(x[i][t], 0, V - 1);
            if (t + 1 < T) assert_int_equal(y[i][t], x[i][t + 1]);
            pairs[x[i][t]][y[i][t]]++;
        }
    }
    for (int a = 0; a < V; a++) {
        int most = 0;
        for (int b = 0; b < V; b++) most = pairs[a][b] > most ? pairs[a][b] : most;
        follow += most;
    }
    assert_in_range(follow, N * T * 7 / 10, N * T * 8 / 10 + N);
    kolo_dataset_close(d);
}

/* Batches and parts of batches have all labels of their samples. */
static void batches_hold_windows(void **state) {
    const kolo_dataset_opts opts = {.context = 3, .vocabulary = 10};
    kolo_dataset *d;
    kolo_loader *loader;
    ASSERT_OK(kolo_dataset_open_for("synthetic-tokens:N=10,test=1", KOLO_SPLIT_TRAIN, &opts, &d));
    kolo_loader_opts how = {.dataset = d, .global_batch = 10, .no_shuffle = true};
    ASSERT_OK(kolo_loader_create(&how, &loader));
    kolo_batch batch;
    ASSERT_OK(kolo_loader_next(loader, &batch));
    assert_int_equal(batch.count, 10);
    kolo_batch part = kolo_batch_part(&batch, 4, 3);
    for (int64_t i = 4; i < 7; i++) {
        int32_t x[3], y[3];
        ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, y}));
        assert_memory_equal((const char *)part.data[0] + (size_t)(i - 4) * sizeof x, x, sizeof x);
        assert_memory_equal((const int32_t *)part.data[1] + 3 * (i - 4), y, sizeof y);
    }
    kolo_loader_destroy(loader);
    kolo_dataset_close(d);
}

/* Sentences are halves of windows of the underlying data set; half of the pairs mix two windows. */
static void pairs_are_of_sentences(void **state) {
    enum { N = 400, T = 10, TOKENS = T - 3, FRONT = TOKENS / 2, CLS = 300, SEP = 301 };
    static int32_t plain[N][TOKENS], unused[N][TOKENS], x[N][T], y[N][T], again[T];
    const kolo_dataset_opts opts = {
        .context = T, .vocabulary = 302, .pairs = true, .first = CLS, .separator = SEP};
    const kolo_dataset_opts beneath = {.context = TOKENS, .vocabulary = 302};
    const char *spec = "synthetic-tokens:N=400";
    int64_t indices[N], random = 0;
    kolo_dataset *d, *windows_of;
    for (int64_t i = 0; i < N; i++) indices[i] = i;
    ASSERT_OK(kolo_dataset_open_for(spec, KOLO_SPLIT_TRAIN, &opts, &d));
    ASSERT_OK(kolo_dataset_open_for(spec, KOLO_SPLIT_TRAIN, &beneath, &windows_of));
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    assert_true(info->count == N && info->classes == 302 && info->fields[0].shape.dim[0] == T);
    assert_true(kolo_shape_equal(&info->fields[0].shape, &info->fields[1].shape));
    assert_string_equal(info->name, "synthetic-tokens");
    ASSERT_OK(kolo_dataset_gather(d, indices, N, (void *[]){x, y[0]}));
    ASSERT_OK(kolo_dataset_gather(windows_of, indices, N, (void *[]){plain, unused[0]}));
    for (int i = 0; i < N; i++) {
        bool follows =
            memcmp(&x[i][FRONT + 2], &plain[i][FRONT], (TOKENS - FRONT) * sizeof(int32_t)) == 0;
        int32_t other = y[i][1];
        assert_true(x[i][0] == CLS && x[i][FRONT + 1] == SEP && x[i][T - 1] == SEP);
        assert_memory_equal(&x[i][1], plain[i], FRONT * sizeof(int32_t));
        assert_true(other == 0 || other == KOLO_PAIR_RANDOM);
        assert_true(follows == (other == 0));
        for (int t = 0; t < T; t++) {
            int32_t code = other + (t > FRONT + 1 ? KOLO_PAIR_SECOND : 0);
            bool ours = t == 0 || t == FRONT + 1 || t == T - 1;
            assert_int_equal(y[i][t], ours ? -2 - code : code);
        }
        random += other != 0;
    }
    assert_in_range(random, N / 2 - 50, N / 2 + 50);
    ASSERT_OK(kolo_dataset_gather(d, &indices[7], 1, (void *[]){again, unused[0]}));
    assert_memory_equal(again, x[7], sizeof again);
    kolo_dataset_close(d);
    kolo_dataset_close(windows_of);
}

static void what_does_not_suit_is_refused(void **state) {
    static const struct {
        const char *spec;
        kolo_dataset_opts opts;
        kolo_status status;
        const char *text;
    } cases[] = {
        {"text:ten",
         {.context = 0, .vocabulary = 0},
         KOLO_ERR_ARG,
         "choose a model that reads them"},
        {"text", {.context = 4, .vocabulary = 300}, KOLO_ERR_ARG, "needs a file: write text:FILE"},
        {"text:missing", {.context = 4, .vocabulary = 300}, KOLO_ERR_IO, "missing"},
        {"text:ten",
         {.context = 4, .vocabulary = 121},
         KOLO_ERR_ARG,
         "token 121 at index 1 exceeds the vocabulary of 121"},
        {"text:ten",
         {.context = 9, .vocabulary = 300},
         KOLO_ERR_ARG,
         "10 tokens are too few for windows of 9"},
        {"tokens:odd",
         {.context = 1, .vocabulary = 70000},
         KOLO_ERR_FORMAT,
         "11 bytes are not a multiple of the token size"},
        {"tokens:empty", {.context = 1, .vocabulary = 300}, KOLO_ERR_ARG, "0 tokens are too few"},
        {"synthetic-tokens",
         {.context = 0, .vocabulary = 0},
         KOLO_ERR_ARG,
         "choose a model that reads them"},
        {"synthetic-tokens:N=0",
         {.context = 4, .vocabulary = 30},
         KOLO_ERR_ARG,
         "bad value in \"N=0\""},
        {"synthetic-tokens:M=1",
         {.context = 4, .vocabulary = 30},
         KOLO_ERR_ARG,
         "unknown key \"M\""},
        {"text:ten",
         {.context = 4, .vocabulary = 300, .pairs = true},
         KOLO_ERR_ARG,
         "windows of 5 tokens or more"},
    };
    write_file("ten", "pytorch!!!", 10);
    write_file("odd", "pytorch!!!!", 11);
    write_file("empty", "", 0);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_dataset *d;
        assert_int_equal(kolo_dataset_open_for(cases[i].spec, KOLO_SPLIT_TRAIN, &cases[i].opts, &d),
                         cases[i].status);
        if (!strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].spec, kolo_last_error(), cases[i].text);
        }
    }
}

TEST_MAIN(test_tokens) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_become_windows),
        cmocka_unit_test(tokens_of_two_bytes_are_little_endian),
        cmocka_unit_test(made_up_tokens_follow_each_other),
        cmocka_unit_test(batches_hold_windows),
        cmocka_unit_test(pairs_are_of_sentences),
        cmocka_unit_test(what_does_not_suit_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
