/* Packed data sets: the samples and batches of the data set itself, damage, files that exist. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "data/safetensors/safetensors.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define CORPUS KOLO_SOURCE_DIR "/tests/fuzz/corpus/image/"

/* Four images of all kinds for training, two for evaluation; the same as a segmentation set would
 * have masks of other sizes. */
static void make_folder(void) {
    assert_int_equal(system("rm -rf set && mkdir -p set/train/a set/train/b set/val/b && cp " CORPUS
                            "baseline.jpg " CORPUS "grey.png set/train/a && cp " CORPUS
                            "cmyk.jpg " CORPUS "palette.png set/train/b && cp " CORPUS
                            "rgba.png " CORPUS "rgb16.png set/val/b"),
                     0);
}

/* A set whose images are its masks. */
static void make_voc(void) {
    assert_int_equal(
        system("rm -rf voc && mkdir -p voc/JPEGImages voc/SegmentationClass "
               "voc/ImageSets/Segmentation && for i in a b c; do cp " CORPUS
               "palette.png voc/JPEGImages/$i.jpg; cp " CORPUS
               "palette.png voc/SegmentationClass/$i.png; done && cd voc/ImageSets/Segmentation && "
               "printf 'a\\nb\\n' >train.txt && printf 'c\\n' >val.txt"),
        0);
}

static kolo_loader *loader_of(const kolo_dataset *d, const char *augment) {
    kolo_loader_opts opts = {.dataset = d, .global_batch = 3, .seed = 5, .end = 9, .threads = 2};
    kolo_loader *loader;
    ASSERT_OK(kolo_augment_parse(augment, &opts.augment));
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    return loader;
}

static void assert_same_batches(const kolo_dataset *one, const kolo_dataset *other,
                                const char *augment) {
    kolo_loader *a = loader_of(one, augment), *b = loader_of(other, augment);
    for (;;) {
        kolo_batch x, y;
        ASSERT_OK(kolo_loader_next(a, &x));
        ASSERT_OK(kolo_loader_next(b, &y));
        assert_int_equal(x.count, y.count);
        if (x.global_count == 0) break;
        for (int f = 0; f < 2; f++) {
            assert_memory_equal(x.data[f], y.data[f],
                                (size_t)x.count * kolo_field_bytes(&x.fields[f]));
        }
    }
    kolo_loader_destroy(a);
    kolo_loader_destroy(b);
}

static void assert_same(const char *spec, const char *packed, const char *augment) {
    for (int s = 0; s < 2; s++) {
        kolo_dataset *one, *other;
        ASSERT_OK(kolo_dataset_open(spec, (kolo_split)s, &one));
        ASSERT_OK(kolo_dataset_open(packed, (kolo_split)s, &other));
        const kolo_dataset_info *a = kolo_dataset_describe(one), *b = kolo_dataset_describe(other);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->count, b->count);
        assert_int_equal(a->classes, b->classes);
        for (int f = 0; f < 2; f++) {
            assert_string_equal(a->fields[f].name, b->fields[f].name);
            assert_int_equal(a->fields[f].dtype, b->fields[f].dtype);
            assert_true(kolo_shape_equal(&a->fields[f].shape, &b->fields[f].shape));
            assert_memory_equal(a->fields[f].mean, b->fields[f].mean, sizeof a->fields[f].mean);
            assert_memory_equal(a->fields[f].std, b->fields[f].std, sizeof a->fields[f].std);
        }
        assert_same_batches(one, other, "");
        if (augment) assert_same_batches(one, other, augment);
        kolo_dataset_close(one);
        kolo_dataset_close(other);
    }
}

static void packed_sets_are_the_sets(void **state) {
    static const struct {
        const char *spec, *packed, *augment;
        bool decoded, seekable;
    } cases[] = {
        {"synthetic:N=20,test=7,shape=1x5x4,classes=3", "pack:p", "flip,crop=1", false, false},
        {"synthetic:N=60,test=7,shape=3x100x100,classes=3", "pack:p", "flip", false,
         false}, /* 2 blocks */
        {"synthetic-seg:N=7,test=2,shape=3x12x10,classes=3", "pack:p", "flip,crop=2", false, false},
        {"csv:t.csv,split=0.4", "pack:p", NULL, false, false},
        {"csv:t.csv,type=value", "pack:p", NULL, false, false},
        {"folder:set,size=9", "pack:p", "resized-crop,flip", false, false},
        {"folder:set,size=7", "pack:p,size=7", "scale=0.5:2", false, false}, /* packed with 9 */
        {"folder:set,size=9", "pack:p", "flip", true, false},
        {"voc:voc,size=8x9,classes=255", "pack:p", "scale=0.5:2,flip", false, false},
        {"voc:voc,size=8x9,classes=255", "pack:p", "flip", true, false},
        {"folder:set,size=9", "pack:p", "resized-crop,flip", false, true},
        {"voc:voc,size=8x9,classes=255", "pack:p", "scale=0.5:2,flip", false, true},
    };
    make_folder();
    make_voc();
    ASSERT_OK(kolo_file_write("t.csv", "1.5,0\n2.5,1\n3.5,0\n4.5,1\n5.5,0\n", 30));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const kolo_pack_opts opts = {
            .decoded = cases[i].decoded, .seekable = cases[i].seekable, .replace = true};
        const bool other = strstr(cases[i].packed, "size");
        ASSERT_OK(kolo_dataset_pack(other ? "folder:set,size=9" : cases[i].spec, &opts, "p"));
        assert_same(cases[i].spec, cases[i].packed, cases[i].augment);
    }
}

static void fails(const char *spec, kolo_split split, kolo_status status, const char *text) {
    kolo_dataset *d = NULL;
    static uint8_t x[1 << 16];
    static int32_t y[1 << 12];
    kolo_status found = kolo_dataset_open(spec, split, &d);
    for (int64_t i = 0; found == KOLO_OK && i < kolo_dataset_describe(d)->count; i++) {
        found = kolo_dataset_gather(d, &i, 1, (void *const[]){x, y});
    }
    assert_int_equal(found, status);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
    kolo_dataset_close(d);
}

/* Writes a safetensors file with the metadata of a pack of a version. */
static void write_version(const char *version, const char *path) {
    kolo_safetensors_writer *w;
    ASSERT_OK(kolo_safetensors_create(path, &w));
    ASSERT_OK(kolo_safetensors_set(w, "kolo_pack", version));
    ASSERT_OK(kolo_safetensors_set(w, "kind", "folder"));
    ASSERT_OK(kolo_safetensors_finish(w));
    kolo_safetensors_destroy(w);
}

/* Any byte of the data that changes is found when its block is used, and any of the header when the
 * file is opened. */
static void damage_is_named(void **state) {
    char *bytes;
    size_t length;
    uint64_t header;
    make_folder();
    for (int decoded = 0; decoded < 2; decoded++) {
        const kolo_pack_opts opts = {.decoded = decoded, .replace = true};
        ASSERT_OK(kolo_dataset_pack("folder:set,size=9", &opts, "p"));
        ASSERT_OK(kolo_file_read("p", 1 << 20, &bytes, &length));
        memcpy(&header, bytes, sizeof header);
        static const char key[] = "\"kolo_xxh3_blocks\":\"";
        const char *hashes = strstr(bytes + 8, key);
        assert_non_null(hashes);
        /* After that of the header are those of tensors, which blocks replace. */
        const size_t unused = (size_t)(hashes - bytes) + sizeof key - 1 + 16;
        const size_t end = unused + strspn(bytes + unused, "0123456789abcdef");
        ASSERT_OK(kolo_file_write("bad", bytes, length));
        const int fd = open("bad", O_WRONLY | O_CLOEXEC);
        for (size_t at = 0; at < 8 + header; at++) {
            kolo_dataset *d;
            if (at >= unused && at < end) continue;
            const char other = (char)(bytes[at] ^ 1);
            assert_int_equal(pwrite(fd, &other, 1, (off_t)at), 1);
            kolo_status status = kolo_dataset_open("pack:bad", KOLO_SPLIT_TRAIN, &d);
            if (status != KOLO_ERR_FORMAT && status != KOLO_ERR_UNSUPPORTED) {
                fail_msg("byte %zu of the header: %s", at, kolo_last_error());
            }
            assert_int_equal(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
        }
        close(fd);
        for (size_t at = 8 + header; at < length; at += 1 + length / 40) {
            bool found = false;
            bytes[at] ^= 4;
            ASSERT_OK(kolo_file_write("bad", bytes, length));
            for (int s = 0; s < 2; s++) {
                kolo_dataset *d;
                int64_t damaged = 1;
                kolo_status status = kolo_dataset_open("pack:bad", (kolo_split)s, &d);
                if (status == KOLO_OK) ASSERT_OK(kolo_dataset_verify(d, NULL, &damaged));
                if (status == KOLO_OK) kolo_dataset_close(d);
                if (status != KOLO_OK) assert_non_null(strstr(kolo_last_error(), "damaged"));
                found |= status != KOLO_OK || damaged > 0;
            }
            assert_true(found);
            bytes[at] ^= 4;
        }
        ASSERT_OK(kolo_file_write("bad", bytes, length - 1));
        fails("pack:bad", KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT, "truncated or damaged");
        memcpy(strstr(bytes + 8, key) + 1, "none", 4);
        ASSERT_OK(kolo_file_write("bad", bytes, length));
        fails("pack:bad", KOLO_SPLIT_TRAIN, KOLO_ERR_FORMAT, "the packed data set has no hash");
        kolo_free(bytes);
    }
    write_version("9", "bad");
    fails("pack:bad", KOLO_SPLIT_TRAIN, KOLO_ERR_UNSUPPORTED,
          "bad: a packed data set of version 9");
    fails("pack:p,size=5", KOLO_SPLIT_TRAIN, KOLO_ERR_ARG, "leave size= out");
    fails("pack:none", KOLO_SPLIT_TRAIN, KOLO_ERR_IO, "none");
    fails("pack:" KOLO_SOURCE_DIR "/tests/golden/order_1.safetensors", KOLO_SPLIT_TRAIN,
          KOLO_ERR_FORMAT, "no packed data set: give a file of kolo data pack");
}

static void count(void *arg, const char *line) { ++*(int *)arg; }

/* Other than a damaged image, it is not skipped. */
static void a_damaged_block_ends_a_loader(void **state) {
    int warned = 0;
    const kolo_dataset_opts opts = {.warn = count, .warn_arg = &warned};
    char *bytes;
    size_t length;
    uint64_t header;
    kolo_dataset *d;
    kolo_batch batch;
    make_folder();
    ASSERT_OK(kolo_dataset_pack("folder:set,size=9", &(kolo_pack_opts){.replace = true}, "p"));
    ASSERT_OK(kolo_file_read("p", 1 << 20, &bytes, &length));
    memcpy(&header, bytes, sizeof header);
    bytes[8 + header + 50] ^= 4; /* of the images of training, in their only block */
    ASSERT_OK(kolo_file_write("bad", bytes, length));
    kolo_free(bytes);
    ASSERT_OK(kolo_dataset_open_for("pack:bad", KOLO_SPLIT_TRAIN, &opts, &d));
    kolo_loader *loader = loader_of(d, "");
    assert_int_equal(kolo_loader_next(loader, &batch), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "block 0 of tensor \"train.images\" is damaged"));
    assert_int_equal(warned, 0);
    kolo_loader_destroy(loader);
    kolo_dataset_close(d);
}

static void refuses(const char *spec, const kolo_pack_opts *opts, const char *path,
                    kolo_status status, const char *text) {
    assert_int_equal(kolo_dataset_pack(spec, opts, path), status);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
}

/* Not even on request. */
static void the_source_is_not_replaced(void **state) {
    static const kolo_pack_opts replace = {.replace = true};
    static const char table[] = "1.5,0\n2.5,1\n3.5,0\n4.5,1\n5.5,0\n";
    assert_int_equal(system("mkdir -p tables"), 0);
    ASSERT_OK(kolo_file_write("t.csv", table, 30));
    ASSERT_OK(kolo_file_write("tables/train.csv", table, 30));
    ASSERT_OK(kolo_file_write("tables/test.csv", table, 30));
    ASSERT_OK(kolo_dataset_pack("csv:t.csv", &replace, "p"));
    static const char packed[] = "is the file that is packed", other[] = "is no packed data set";
    static const char *const cases[][3] = {
        {"csv:t.csv", "t.csv", packed},
        {"csv:t.csv,split=0.4", "./t.csv", packed},
        {"csv:tables", "tables/test.csv", packed},
        {"pack:p", "p", packed},
        {"folder:set,size=9", "set/train/a/grey.png", other}, /* one of its files, */
        {"folder:set,size=9", "t.csv", other},                /* or any other file */
    };
    make_folder();
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char *before = NULL, *after = NULL;
        size_t length[2];
        ASSERT_OK(kolo_file_read(cases[i][1], 1 << 20, &before, &length[0]));
        refuses(cases[i][0], &replace, cases[i][1], KOLO_ERR_ARG, cases[i][2]);
        ASSERT_OK(kolo_file_read(cases[i][1], 1 << 20, &after, &length[1]));
        assert_int_equal(length[0], length[1]);
        assert_memory_equal(before, after, length[0]);
        kolo_free(before);
        kolo_free(after);
    }
}

static void other_data_are_named(void **state) {
    static const char lines[] = "__label__a one two\n__label__b three\n";
    ASSERT_OK(kolo_file_write("lines.txt", lines, sizeof lines - 1));
    static const char *const sets[] = {"text:lines.txt", "tokens:lines.txt", "synthetic-tokens",
                                       "synthetic-clicks:N=64,test=8",
                                       "fasttext:lines.txt,split=0.5"};
    for (size_t i = 0; i < KOLO_COUNT(sets); i++) {
        refuses(sets[i], NULL, "q", KOLO_ERR_ARG, " cannot be packed: images and tables can");
    }
    assert_false(kolo_file_exists("q"));
}

static void splits_match(void **state) {
    static const kolo_pack_opts replace = {.replace = true};
    assert_int_equal(system("mkdir -p wide many && printf '1,0\n2,1\n' >wide/train.csv && "
                            "printf '1,5,0\n2,5,1\n' >wide/test.csv && "
                            "cp wide/train.csv many && printf '1,0\n2,2\n' >many/test.csv"),
                     0);
    refuses("csv:wide", &replace, "q", KOLO_ERR_FORMAT, "test samples [2] in 2: the files do not");
    refuses("csv:many", &replace, "q", KOLO_ERR_FORMAT, "test samples [1] in 3: the files do not");
    refuses("csv:many", &(kolo_pack_opts){.decoded = true}, "q", KOLO_ERR_ARG,
            "--decoded has no effect on csv");
    refuses("csv:many", &(kolo_pack_opts){.seekable = true}, "q", KOLO_ERR_ARG,
            "--seekable has no effect on csv");
    refuses("csv:many", &(kolo_pack_opts){.decoded = true, .seekable = true}, "q", KOLO_ERR_ARG,
            "--decoded of their pixels: omit one");
    assert_false(kolo_file_exists("q"));
    ASSERT_OK(kolo_dataset_pack("csv:wide", &(kolo_pack_opts){.no_test = true}, "q"));
    assert_int_equal(remove("q"), 0);
}

static void files_are_replaced_on_request_only(void **state) {
    static const char spec[] = "synthetic:N=4,test=2,shape=1x2x2,classes=2";
    char *bytes;
    size_t length;
    ASSERT_OK(kolo_file_write("mine", "mine", 4));
    assert_int_equal(kolo_dataset_pack(spec, NULL, "mine"), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(), "mine exists: choose another file");
    assert_int_equal(test_run("data pack synthetic:N=4,test=2,shape=1x2x2 --out mine --replace"),
                     2);
    ASSERT_OK(kolo_file_read("mine", 100, &bytes, &length));
    assert_string_equal(bytes, "mine");
    kolo_free(bytes);
    assert_int_equal(symlink("nothing", "link"), 0);
    refuses(spec, NULL, "link", KOLO_ERR_IO, "link exists: choose another file");
    assert_int_equal(remove("mine"), 0);
    assert_int_equal(test_run("data pack synthetic:N=2,test=2,shape=1x2x2 --out mine"), 0);
    refuses(spec, NULL, "mine", KOLO_ERR_IO,
            "mine exists: choose another file, or replace it (--replace)");
    assert_int_equal(test_run("data pack synthetic:N=4,test=2,shape=1x2x2 --out mine --replace"),
                     0);
    assert_int_equal(test_run("data pack synthetic:N=4,test=2 --out part --split train"), 0);
    fails("pack:part", KOLO_SPLIT_TEST, KOLO_ERR_ARG, "part: no test split");
    assert_int_equal(truncate("mine", 100), 0); /* a damaged pack */
    ASSERT_OK(kolo_dataset_pack("synthetic:N=4,test=2,shape=1x2x2",
                                &(kolo_pack_opts){.replace = true}, "mine"));
    assert_int_equal(test_run("data verify pack:mine"), 0);
    /* A data set that cannot be read or packed leaves no file. */
    make_folder();
    ASSERT_OK(kolo_file_write("set/train/a/z.png", "none", 4));
    assert_int_equal(kolo_dataset_pack("folder:set", &(kolo_pack_opts){.decoded = true}, "q"),
                     KOLO_ERR_FORMAT);
    ASSERT_OK(kolo_file_write("words", "many words for a window of text", 31));
    assert_true(kolo_dataset_pack("text:words", NULL, "q") != KOLO_OK);
    assert_false(kolo_file_exists("q"));
}

static bool stop_after(void *arg) { return (*(int *)arg)-- == 0; }

/* Packing that is stopped leaves nothing; what a killed one has left is removed, that of one that
 * goes on is not. */
static void nothing_is_left_of_what_was_stopped(void **state) {
    static const char spec[] = "synthetic:N=4,test=2,shape=1x2x2,classes=2";
    for (int after = 0; after < 7; after += 3) {
        int left = after;
        const kolo_pack_opts opts = {.stopped = stop_after, .stopped_arg = &left};
        const kolo_status status = kolo_dataset_pack(spec, &opts, "stopped");
        assert_int_equal(status, after < 6 ? KOLO_ERR_IO : KOLO_OK);
        if (after < 6)
            assert_string_equal(kolo_last_error(), "packing was stopped: nothing is written");
        assert_int_equal(kolo_file_exists("stopped"), after == 6);
    }
    ASSERT_OK(kolo_file_write(".left.123456.tmp", "left", 4));
    ASSERT_OK(kolo_file_write(".left.123457.tmp", "live", 4));
    ASSERT_OK(kolo_file_write(".left.x.tmp", "mine", 4));
    const int fd = open(".left.123457.tmp", O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    ASSERT_OK(kolo_dataset_pack(spec, NULL, "left"));
    assert_false(kolo_file_exists(".left.123456.tmp"));
    assert_true(kolo_file_exists(".left.123457.tmp") && kolo_file_exists(".left.x.tmp"));
    close(fd);
}

static void failing_memory_is_reported(void **state) {
    static const char spec[] = "synthetic:N=4,test=2,shape=1x2x2,classes=2";
    kolo_status status = KOLO_ERR_NOMEM;
    long nth = 1;
    for (; status != KOLO_OK && nth < 500; nth++) {
        kolo_alloc_fail_nth(nth);
        status = kolo_dataset_pack(spec, &(kolo_pack_opts){.replace = true}, "m");
        kolo_alloc_fail_nth(0);
        assert_true(status == KOLO_OK || status == KOLO_ERR_NOMEM || status == KOLO_ERR_IO);
    }
    assert_true(status == KOLO_OK && nth > 10);
    status = KOLO_ERR_NOMEM;
    for (nth = 1; status == KOLO_ERR_NOMEM && nth < 500; nth++) {
        kolo_dataset *d;
        kolo_alloc_fail_nth(nth);
        status = kolo_dataset_open("pack:m", KOLO_SPLIT_TRAIN, &d);
        kolo_alloc_fail_nth(0);
        if (status == KOLO_OK) kolo_dataset_close(d);
    }
    assert_true(status == KOLO_OK && nth > 4);
}

TEST_MAIN(test_pack) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_sets_are_the_sets),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(a_damaged_block_ends_a_loader),
        cmocka_unit_test(the_source_is_not_replaced),
        cmocka_unit_test(other_data_are_named),
        cmocka_unit_test(splits_match),
        cmocka_unit_test(files_are_replaced_on_request_only),
        cmocka_unit_test(nothing_is_left_of_what_was_stopped),
        cmocka_unit_test(failing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
