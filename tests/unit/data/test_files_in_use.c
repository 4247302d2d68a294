/* Files that lose bytes, change, or are replaced while a data set is open: each sample is what it
 * was before, or an error that names the file and the offset. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CORPUS KOLO_SOURCE_DIR "/tests/fuzz/corpus/image/"

enum { SAMPLES = 40, RECORD = 1 + 3 * 32 * 32, MOST_BYTES = 1 << 16 };

/* ---- files ---- */

static void make_cifar(void) {
    static uint8_t bytes[SAMPLES * RECORD];
    ASSERT_OK(kolo_folder_make("cifar"));
    for (int i = 0; i < SAMPLES * RECORD; i++) bytes[i] = (uint8_t)(i % RECORD ? i : i % 10);
    for (int f = 1; f <= 5; f++) {
        char path[64];
        snprintf(path, sizeof path, "cifar/data_batch_%d.bin", f);
        ASSERT_OK(kolo_file_write(path, bytes, sizeof bytes));
    }
}

static void make_mnist(void) {
    uint8_t images[16 + SAMPLES * 784] = {0, 0, 8, 3, [7] = SAMPLES, [11] = 28, [15] = 28};
    uint8_t labels[8 + SAMPLES] = {0, 0, 8, 1, [7] = SAMPLES};
    for (size_t i = 16; i < sizeof images; i++) images[i] = (uint8_t)(i * 7);
    for (size_t i = 8; i < sizeof labels; i++) labels[i] = i % 10;
    ASSERT_OK(kolo_folder_make("mnist"));
    ASSERT_OK(kolo_file_write("mnist/train-images-idx3-ubyte", images, sizeof images));
    ASSERT_OK(kolo_file_write("mnist/train-labels-idx1-ubyte", labels, sizeof labels));
}

static void make_table(void) {
    float numbers[SAMPLES * 50];
    for (int i = 0; i < SAMPLES * 50; i++) numbers[i] = (float)i;
    ASSERT_OK(kolo_file_write("table.f32", numbers, sizeof numbers));
}

static void make_tokens(void) {
    uint16_t tokens[SAMPLES * 256];
    for (int i = 0; i < SAMPLES * 256; i++) tokens[i] = (uint16_t)(i % 1000 + 1);
    ASSERT_OK(kolo_file_write("tokens.u16", tokens, sizeof tokens));
}

/* Of texts, lines that are longer than a first read. */
static void make_lines(bool clicks) {
    FILE *f = fopen(clicks ? "clicks.txt" : "texts.txt", "w");
    assert_non_null(f);
    for (int i = 0; i < SAMPLES; i++) {
        fprintf(f, clicks ? "%d\t%d" : "__label__%d number %d", i % 2, i);
        for (int c = 2; clicks && c < 40; c++) fputs(c < 14 ? "\t17" : "\tdeadbeef", f);
        for (int w = 0; !clicks && w < 100; w++) fputs(" of many words", f);
        fputc('\n', f);
    }
    assert_int_equal(fclose(f), 0);
}

static void make_images(void) {
    assert_int_equal(
        system("rm -rf set && mkdir -p set/train/a set/val/a && for i in 1 2 3 4; do "
               "cp " CORPUS "baseline.jpg set/train/a/$i.jpg; echo 0 >set/train/a/$i.cls; done && "
               "cp " CORPUS "grey.png set/val/a && rm -f shard-*.tar && tar -C set/train/a "
               "--format=ustar --sort=name -cf shard-0.tar ."),
        0);
    ASSERT_OK(kolo_dataset_pack("folder:set,size=9", &(kolo_pack_opts){.replace = true}, "e.pack"));
    ASSERT_OK(kolo_dataset_pack("synthetic:N=60,test=7,shape=3x100x100,classes=3",
                                &(kolo_pack_opts){.replace = true}, "d.pack"));
}

static void make_files(void) {
    make_cifar();
    make_mnist();
    make_table();
    make_tokens();
    make_lines(true);
    make_lines(false);
    make_images();
}

/* ---- samples ---- */

typedef struct in_use {
    const char *spec, *file;
    kolo_status status; /* of a sample that is lost */
    long changed;       /* a byte that makes its sample invalid; 0: none does */
    uint8_t byte;       /* what it becomes */
} in_use;

static const in_use cases[] = {
    {"cifar10:cifar", "cifar/data_batch_3.bin", KOLO_ERR_FORMAT, RECORD, 10},
    {"mnist:mnist", "mnist/train-images-idx3-ubyte", KOLO_ERR_FORMAT, 0, 0},
    {"raw:table.f32,columns=50,classes=2000", "table.f32", KOLO_ERR_FORMAT, 199, 0xff},
    {"tokens:tokens.u16", "tokens.u16", KOLO_ERR_FORMAT, 1, 0xff},
    {"text:texts.txt", "texts.txt", KOLO_ERR_FORMAT, 0, 0},
    {"criteo:clicks.txt", "clicks.txt", KOLO_ERR_FORMAT, 1, 'x'},
    {"fasttext:texts.txt", "texts.txt", KOLO_ERR_FORMAT, 1, 'x'},
    {"webdataset:shard-*.tar,size=9,split=0.25", "shard-0.tar", KOLO_ERR_FORMAT, 0, 0},
    {"pack:e.pack", "e.pack", KOLO_ERR_IO, 0, 0},
    {"pack:d.pack", "d.pack", KOLO_ERR_IO, 0, 0},
};

static kolo_dataset *open_case(const in_use *c) {
    static const kolo_dataset_opts model = {.context = 16,
                                            .vocabulary = 1001,
                                            .numbers = 13,
                                            .categories = 26,
                                            .rows = 100,
                                            .features = 300};
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open_for(c->spec, KOLO_SPLIT_TRAIN, &model, &d));
    return d;
}

static kolo_status read_sample(const kolo_dataset *d, int64_t i, char *sample) {
    void *data[KOLO_MAX_FIELDS];
    size_t at = 0;
    memset(sample, 0, MOST_BYTES);
    for (int f = 0; f < d->info.n_fields; f++) {
        data[f] = sample + at;
        at += (d->bytes[f] + 63) / 64 * 64;
    }
    assert_true(at <= MOST_BYTES);
    return kolo_dataset_gather(d, &i, 1, data);
}

static char *read_all(const kolo_dataset *d) {
    char *samples = kolo_alloc((size_t)d->info.count * MOST_BYTES);
    assert_non_null(samples);
    for (int64_t i = 0; i < d->info.count; i++) {
        ASSERT_OK(read_sample(d, i, samples + (size_t)i * MOST_BYTES));
    }
    return samples;
}

/* Each sample is as it was, or lost; returns how many are lost. */
static int count_lost(const in_use *c, const kolo_dataset *d, const char *samples,
                      const char *why) {
    static char sample[MOST_BYTES];
    int lost = 0;
    for (int64_t i = 0; i < d->info.count; i++) {
        const kolo_status status = read_sample(d, i, sample);
        if (status == KOLO_OK) {
            assert_memory_equal(sample, samples + (size_t)i * MOST_BYTES, MOST_BYTES);
            continue;
        }
        const char *error = kolo_last_error();
        if (status != c->status || !strstr(error, c->file) || !strstr(error, ": offset ") ||
            !strstr(error, why)) {
            fail_msg("%s: %s", c->spec, error);
        }
        lost++;
    }
    return lost;
}

/* ---- cases ---- */

/* Of two data sets, one of which was read before. */
static void truncated_files_lose_samples(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int part = 1; part <= 2; part++) { /* cuts a half of the file, and all of it */
            struct stat info;
            make_files();
            kolo_dataset *read = open_case(&cases[i]), *unread = open_case(&cases[i]);
            char *samples = read_all(read);
            assert_int_equal(stat(cases[i].file, &info), 0);
            assert_int_equal(truncate(cases[i].file, info.st_size - info.st_size * part / 2), 0);
            assert_true(count_lost(&cases[i], read, samples, "truncated while it was in use") > 0);
            assert_true(count_lost(&cases[i], unread, samples, "truncated while it was in use") >
                        0);
            kolo_free(samples);
            kolo_dataset_close(read);
            kolo_dataset_close(unread);
        }
    }
}

/* No label, token or row that was not checked comes out of a file that is overwritten. */
static void changed_files_lose_samples(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        if (cases[i].changed == 0) continue;
        make_files();
        kolo_dataset *d = open_case(&cases[i]);
        char *samples = read_all(d);
        FILE *f = fopen(cases[i].file, "r+");
        assert_non_null(f);
        assert_int_equal(fseek(f, cases[i].changed, SEEK_SET), 0);
        assert_int_equal(fputc(cases[i].byte, f), cases[i].byte);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(count_lost(&cases[i], d, samples, "changed while it was in use"), 1);
        kolo_free(samples);
        kolo_dataset_close(d);
    }
}

static void replaced_shards_lose_samples(void **state) {
    const in_use c = {"webdataset:shard-*.tar,size=9,split=0.25", "shard-0.tar", KOLO_ERR_FORMAT, 0,
                      0};
    make_files();
    kolo_dataset *d = open_case(&c);
    char *samples = read_all(d);
    assert_int_equal(system("cp shard-0.tar other && mv other shard-0.tar"), 0);
    assert_int_equal(count_lost(&c, d, samples, "replaced by another file while it was in use"),
                     d->info.count);
    kolo_free(samples);
    kolo_dataset_close(d);
}

static void warn(void *arg, const char *line) { snprintf(arg, 1024, "%s", line); }

/* As damaged images are. */
static void lost_images_are_skipped(void **state) {
    char line[1024] = "";
    const kolo_dataset_opts opts = {.warn = warn, .warn_arg = line};
    static char sample[MOST_BYTES];
    struct stat info;
    kolo_dataset *d;
    make_files();
    ASSERT_OK(kolo_dataset_open_for("webdataset:shard-*.tar,size=9,split=0.25", KOLO_SPLIT_TRAIN,
                                    &opts, &d));
    assert_int_equal(stat("shard-0.tar", &info), 0);
    assert_int_equal(truncate("shard-0.tar", info.st_size / 2), 0);
    for (int64_t i = 0; i < d->info.count; i++) ASSERT_OK(read_sample(d, i, sample));
    assert_non_null(strstr(line, "shard-0.tar: offset "));
    assert_non_null(strstr(line, "truncated while it was in use"));
    assert_non_null(strstr(line, "skipped, the next image takes its place"));
    kolo_dataset_close(d);
}

TEST_MAIN(test_files_in_use) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_files_lose_samples),
        cmocka_unit_test(changed_files_lose_samples),
        cmocka_unit_test(replaced_shards_lose_samples),
        cmocka_unit_test(lost_images_are_skipped),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
