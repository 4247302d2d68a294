/* Labelled texts: lines of fastText's format, their classes, features and splits, bad lines;
 * synthetic ones; what a model must set. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/readers/labelled.h"
#include "support/folder.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 1000, FEATURES = 6 };

static const kolo_dataset_opts model = {.features = FEATURES, .rows = ROWS};

static int32_t word_row(const char *word) {
    return (int32_t)(kolo_hash_bytes(word, strlen(word)) % ROWS);
}

static int32_t pair_row(const char *a, const char *b) {
    const uint64_t both[] = {kolo_hash_bytes(a, strlen(a)), kolo_hash_bytes(b, strlen(b))};
    return (int32_t)(kolo_hash_bytes(both, sizeof both) % ROWS);
}

static kolo_dataset *open_file(const char *spec, kolo_split split) {
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open_for(spec, split, &model, &d));
    return d;
}

typedef struct sample {
    float x;
    int32_t y, ids[FEATURES];
} sample;

static sample read_sample(const kolo_dataset *d, int64_t i) {
    sample s;
    void *const data[] = {&s.x, &s.y, s.ids};
    ASSERT_OK(d->gather(d, &i, 1, NULL, data));
    return s;
}

static void write_text(const char *path, const char *text) {
    ASSERT_OK(kolo_file_write(path, text, strlen(text)));
}

/* Words are separated by any blanks; a word is followed by the pairs that begin with it. */
static void features_are_n_grams(void **state) {
    write_text("a.txt", "\xef\xbb\xbf__label__tea  hot green\ttea\r\n\n   \n__label__coffee black\n"
                        "__label__tea\n__label__ale a b c d e");
    write_text("b.txt", "__label__coffee hot\n");
    kolo_dataset *d = open_file("fasttext:a.txt,test=b.txt", KOLO_SPLIT_TRAIN);
    assert_int_equal(d->info.count, 4);
    assert_int_equal(d->info.classes, 3);
    const sample samples[] = {
        {1.0F / 5,
         2,
         {word_row("hot"), pair_row("hot", "green"), word_row("green"), pair_row("green", "tea"),
          word_row("tea"), -1}},
        {1, 1, {word_row("black"), -1, -1, -1, -1, -1}},
        {0, 2, {-1, -1, -1, -1, -1, -1}},
        {1.0F / 6,
         0,
         {word_row("a"), pair_row("a", "b"), word_row("b"), pair_row("b", "c"), word_row("c"),
          pair_row("c", "d")}},
    };
    for (int i = 0; i < 4; i++) {
        const sample got = read_sample(d, i);
        assert_memory_equal(&got, &samples[i], sizeof got);
    }
    kolo_dataset_close(d);

    d = open_file("fasttext:a.txt,test=b.txt", KOLO_SPLIT_TEST); /* with the classes of a.txt */
    assert_int_equal(d->info.count, 1);
    assert_int_equal(d->info.classes, 3);
    assert_int_equal(read_sample(d, 0).y, 1);
    kolo_dataset_close(d);

    d = open_file("fasttext:a.txt,test=b.txt,ngrams=1", KOLO_SPLIT_TRAIN);
    const sample words = read_sample(d, 0);
    assert_int_equal(words.ids[1], word_row("green"));
    assert_int_equal(words.ids[3], -1);
    kolo_dataset_close(d);

    d = open_file("fasttext:a.txt,test=b.txt,ngrams=3", KOLO_SPLIT_TRAIN);
    const sample triples = read_sample(d, 0);
    assert_int_equal(triples.ids[1], pair_row("hot", "green"));
    assert_int_equal(triples.ids[3], word_row("green"));
    assert_int_equal(triples.ids[5], word_row("tea"));
    kolo_dataset_close(d);
}

/* Both splits have each line once, the same ones by the seed. */
static void splits_divide_the_lines(void **state) {
    kolo_text t = {0};
    for (int i = 0; i < 40; i++) kolo_text_add(&t, "__label__%d w%d\n", i, i);
    ASSERT_OK(kolo_file_write("lines.txt", t.text, t.length));
    kolo_text_fini(&t);
    int times[40] = {0};
    for (int split = 0; split < 2; split++) {
        kolo_dataset *d = open_file("fasttext:lines.txt,split=0.25,seed=3", (kolo_split)split);
        assert_int_equal(d->info.count, split == KOLO_SPLIT_TEST ? 10 : 30);
        assert_int_equal(d->info.classes, 40);
        for (int64_t i = 0; i < d->info.count; i++) times[read_sample(d, i).y]++;
        kolo_dataset_close(d);
    }
    for (int i = 0; i < 40; i++) assert_int_equal(times[i], 1);
}

static void check_damage(kolo_status status, const char *words) {
    assert_int_equal(status, KOLO_ERR_FORMAT);
    if (!strstr(kolo_last_error(), words)) fail_msg("%s", kolo_last_error());
}

static void bad_lines_are_named(void **state) {
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "no lines"},
        {"\n \n", "no lines"},
        {"__label__a x\nb y\n", "line 2 begins with no label"},
        {"\n__label__ x\n", "line 2 has a label without a name"},
        {"__label__a x __label__b\n", "line 1 has more than one label"},
        {"__label__a x\n", "too few for the training and the test split"},
    };
    kolo_dataset *d;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        write_text("bad.txt", cases[i].text);
        check_damage(kolo_dataset_open_for("fasttext:bad.txt", KOLO_SPLIT_TRAIN, &model, &d),
                     cases[i].words);
    }
    write_text("bad.txt", "__label__a x\n");
    write_text("test.txt", "__label__b x\n");
    check_damage(
        kolo_dataset_open_for("fasttext:bad.txt,test=test.txt", KOLO_SPLIT_TEST, &model, &d),
        "test.txt: line 1: the training split has no label \"b\"");
    ASSERT_REFUSED(kolo_dataset_open_for("fasttext:bad.txt,test=test.txt,split=0.5",
                                         KOLO_SPLIT_TRAIN, &model, &d),
                   "split=");
    ASSERT_REFUSED(kolo_dataset_open("fasttext:bad.txt", KOLO_SPLIT_TRAIN, &d),
                   "choose a model of labelled texts, such as fasttext");
}

/* All ids are rows of the table, and a sample is the same at each reading. */
static void synthetic_texts_have_ids_in_the_table(void **state) {
    kolo_dataset *d = open_file("synthetic-labelled:N=50,test=9,classes=4", KOLO_SPLIT_TRAIN);
    assert_int_equal(d->info.count, 50);
    assert_int_equal(d->info.classes, 4);
    int classes = 0;
    for (int64_t i = 0; i < 50; i++) {
        const sample s = read_sample(d, i), again = read_sample(d, i);
        assert_memory_equal(&s, &again, sizeof s);
        assert_in_range(s.y, 0, 3);
        classes |= 1 << s.y;
        int n = 0;
        for (int k = 0; k < FEATURES; k++) {
            assert_true(s.ids[k] >= -1 && s.ids[k] < ROWS);
            assert_true(k == 0 || s.ids[k] < 0 || s.ids[k - 1] >= 0);
            n += s.ids[k] >= 0;
        }
        assert_true(s.x == 1 / (float)n);
    }
    assert_int_equal(classes, 15);
    kolo_dataset_close(d);
}

TEST_MAIN(test_labelled) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_n_grams),
        cmocka_unit_test(splits_divide_the_lines),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(synthetic_texts_have_ids_in_the_table),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
