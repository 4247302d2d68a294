/* Damaged images in training: they are counted once an epoch whatever the ranks and threads, named,
 * and end a strict run. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "kolo/data.h"
#include "kolo/train.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, IMAGES = 9 };

static char warnings[2048];

static void note(void *arg, const char *line, kolo_notice_kind kind) {
    if (kind == KOLO_NOTICE_WARNING) {
        strncat(warnings, line, sizeof warnings - strlen(warnings) - 1);
    }
}

static void put_image(const char *path, int seed) {
    uint8_t pixels[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) pixels[i] = (uint8_t)(seed * 16 + i);
    png_image png = {
        .version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_GRAY};
    assert_true(png_image_write_to_file(&png, path, 0, pixels, 0, NULL));
}

/* Nine images for training, of which the fourth is damaged, and two for evaluation. */
static void make_images(void) {
    static const char *const folders[] = {"data/train/a", "data/train/b", "data/val/a"};
    char path[64];
    for (size_t i = 0; i < KOLO_COUNT(folders); i++) ASSERT_OK(kolo_folder_make(folders[i]));
    for (int i = 0; i < IMAGES; i++) {
        snprintf(path, sizeof path, "%s/%d.png", folders[i % 2], i);
        put_image(path, i);
    }
    put_image("data/val/a/0.png", 3);
    put_image("data/val/a/1.png", 5);
    ASSERT_OK(kolo_file_write("data/train/b/3.png", "\x89PNG\r\n\x1a\n", 8));
}

static const kolo_train_opts job = {.model = "mlp",
                                    .model_options = "hidden=4",
                                    .data = "folder:data,size=8",
                                    .augment = "resized-crop,flip",
                                    .batch = 2,
                                    .epochs = 2,
                                    .notice = note};

/* The sample in place of a damaged one is recorded. */
static void assert_ledger(const char *begins) {
    bool exact;
    char *text;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    assert_false(exact);
    if (strncmp(text, begins, strlen(begins)) != 0) fail_msg("%s", text);
    kolo_ledger_text_free(text);
}

static void damage_is_counted_for_all_ranks(void **state) {
    make_images();
    for (int ranks = 1; ranks <= 3; ranks++) {
        kolo_train_opts opts = job;
        opts.loader_threads = -1;
        opts.log_every = 1;
        opts.out_dir = "run";
        opts.checkpoint_steps = 1;
        opts.ledger = "ledger";
        warnings[0] = '\0';
        kolo_train_result straight = train_well(ranks, &opts);
        assert_int_equal(straight.damaged, 2); /* in each epoch */
        assert_int_equal(straight.samples, 2 * IMAGES);
        assert_non_null(strstr(warnings, "data/train/b/3.png: damaged PNG"));
        assert_ledger("epoch 1: 9 samples; 1 missing (6); 1 used more than once (7)\n");
        opts.ledger = NULL;
        opts.loader_threads = 4;
        opts.out_dir = NULL;
        opts.checkpoint_steps = 0;
        kolo_train_result threads = train_well(ranks, &opts);
        assert_same_run("threads", &straight, &threads);
        assert_int_equal(threads.damaged, 2);
        char *lines, from[64];
        size_t bytes;
        ASSERT_OK(kolo_file_read("run/metrics.jsonl", 1 << 20, &lines, &bytes));
        assert_non_null(strstr(lines, "\"damaged_samples\": 2"));
        kolo_free(lines);
        const int steps = (IMAGES - 1) / (2 * ranks) + 1; /* of an epoch */
        snprintf(from, sizeof from, "run/checkpoint-%d.safetensors", steps);
        opts.resume = from;
        kolo_train_result resumed = train_well(ranks, &opts);
        assert_same_run("resumed", &straight, &resumed);
        assert_int_equal(resumed.damaged, 2);
        assert_int_equal(system("rm -r run ledger.*"), 0);
    }
}

static void a_resident_batch_counts_them_once(void **state) {
    make_images();
    kolo_train_opts opts = job;
    opts.augment = NULL;
    opts.epochs = 0;
    opts.steps = 3;
    opts.in_memory = opts.no_eval = true;
    for (int ranks = 1; ranks <= 2; ranks++) {
        opts.batch = 8 / ranks;
        assert_int_equal(train_well(ranks, &opts).damaged, 1);
    }
}

/* Evaluations do not count them. */
static void damaged_test_images_are_named(void **state) {
    make_images();
    ASSERT_OK(kolo_file_write("data/val/a/0.png", "\x89PNG\r\n\x1a\n", 8));
    warnings[0] = '\0';
    train_well(1, &job);
    assert_non_null(strstr(warnings, "data/val/a/0.png: damaged PNG"));
    assert_non_null(strstr(warnings, "takes its place in the test split and counts twice"));
}

static void strict_runs_end(void **state) {
    make_images();
    kolo_train_opts opts = job;
    opts.strict = true;
    const train_outcome *o = train_job(1, RANKS_THREAD, &opts);
    assert_int_equal(o[0].status, KOLO_ERR_FORMAT);
    assert_non_null(strstr(o[0].error, "data/train/b/3.png: damaged PNG"));
    opts.data = "synthetic:N=20,test=4,shape=1x8x8";
    opts.augment = NULL;
    assert_job_refused(1, &opts, "strict has no effect on synthetic");
}

TEST_MAIN(test_damaged) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_counted_for_all_ranks),
        cmocka_unit_test(a_resident_batch_counts_them_once),
        cmocka_unit_test(damaged_test_images_are_named),
        cmocka_unit_test(strict_runs_end),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
