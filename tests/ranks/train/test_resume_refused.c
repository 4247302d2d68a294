/* Checkpoints that a run does not go on from: of another job, damaged, with NaN, of a run that
 * diverges; and what stays in their folder. */
#include "base/file.h"
#include "kolo/checkpoint.h"
#include "kolo/train.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/record/run_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char images[] = "synthetic:N=90,test=20,shape=1x14x14,seed=2";

static const kolo_train_opts four_steps = {.model = "mlp",
                                           .data = images,
                                           .batch = 10,
                                           .steps = 4,
                                           .no_eval = true,
                                           .out_dir = "run",
                                           .checkpoint_steps = 2};

static void forget(void) { assert_int_equal(system("rm -rf run other"), 0); }

static void a_job_that_differs_names_the_difference(void **state) {
    const kolo_train_opts base = {.model = "mlp",
                                  .model_options = "hidden=8",
                                  .data = images,
                                  .batch = 10,
                                  .steps = 3,
                                  .optimizer.momentum = 0.5,
                                  .no_eval = true,
                                  .out_dir = "run",
                                  .checkpoint_steps = 3};
    train_well(1, &base);
    kolo_train_opts others[] = {base, base, base, base, base, base, base, base, base, base};
    others[0].model_options = "hidden=9";
    others[1].data = "synthetic:N=91,test=20,shape=1x14x14,seed=2";
    others[2].seed = 1;
    others[3].augment = "flip";
    others[4].optimizer.momentum = 0.25;
    others[5].optimizer.weight_decay = 0.5;
    others[6].optimizer.kind = KOLO_OPTIMIZER_ADAM;
    others[6].optimizer.momentum = 0;
    others[7].schedule = KOLO_LR_COSINE;
    others[8].sparse_embedding = true;
    others[9].data = "synthetic:N=90,test=20,shape=1x14x14,seed=3";
    static const char *const texts[] = {
        "\"model options: hidden=8\", this job has \"model options: hidden=9\"",
        "\"samples: 90\", this job has \"samples: 91\"",
        "--seed 0, this job has --seed 1",
        "no --augment, this job has --augment flip",
        "--momentum 0.5, this job has --momentum 0.25",
        "--weight-decay 0, this job has --weight-decay 0.5",
        "--optimizer sgd, this job has --optimizer adam",
        "--schedule constant, this job has --schedule cosine",
        "no --sparse-embedding, this job has --sparse-embedding",
        "this job has --data synthetic:N=90,test=20,shape=1x14x14,seed=3: give the same keys",
    };
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        others[i].resume = "run";
        const train_outcome *o = train_job(1, RANKS_THREAD, &others[i]);
        assert_int_equal(o->status, KOLO_ERR_ARG);
        if (!strstr(o->error, texts[i])) fail_msg("%s: not %s", o->error, texts[i]);
        /* Refused before anything was changed. */
        assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
    }
    kolo_train_opts opts = base;
    opts.data = "synthetic:seed=2,shape=1x14x14,N=90,test=20"; /* the same keys */
    opts.resume = "run";
    assert_int_equal(train_well(1, &opts).steps, 3);
    opts.resume = "run/checkpoint-final.safetensors";
    const train_outcome *o = train_job(2, RANKS_THREAD, &opts);
    assert_int_equal(o[0].status, KOLO_ERR_ARG);
    assert_non_null(strstr(o[0].error, "holds parameters only and cannot be resumed"));
    opts.resume = "nowhere";
    assert_int_equal(train_job(1, RANKS_THREAD, &opts)->status, KOLO_ERR_IO);
    assert_int_equal(system("mkdir other"), 0);
    opts.resume = "other";
    o = train_job(2, RANKS_THREAD, &opts);
    assert_int_equal(o[1].status, KOLO_ERR_IO);
    assert_string_equal(o[1].error, "rank 0: other holds no checkpoint to resume from: "
                                    "--checkpoint-every writes them");
    opts.resume_if_any = true;
    opts.out_dir = "other";
    assert_int_equal(train_well(1, &opts).steps, 3);
    opts.out_dir = NULL;
    opts.resume = NULL;
    assert_int_equal(train_job(1, RANKS_THREAD, &opts)->status, KOLO_ERR_ARG);
    forget();
}

/* A new run does not remove the resumable checkpoints of an earlier one, finished or not. */
static void what_can_go_on_is_kept(void **state) {
    kolo_train_opts opts = four_steps;
    train_well(1, &opts);
    assert_int_equal(remove("run/checkpoint-final.safetensors"), 0);
    const train_outcome *o = train_job(1, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_ARG);
    assert_string_equal(o->error,
                        "run holds checkpoint-4.safetensors of an earlier run: resume it with "
                        "--resume run, or choose another folder with --out");
    assert_true(kolo_file_exists("run/checkpoint-2.safetensors"));
    opts.resume = "run";
    train_well(1, &opts);
    opts.resume = NULL;
    assert_int_equal(train_job(1, RANKS_THREAD, &opts)->status,
                     KOLO_ERR_ARG); /* also when it has ended */
    /* Final weights, config and metrics stay too, also if the new run starts from those weights. */
    assert_int_equal(system("rm run/latest run/checkpoint-[0-9]* && cp -r run other"), 0);
    opts.init = "run/checkpoint-final.safetensors";
    opts.resolved_config = "another";
    assert_int_equal(train_job(1, RANKS_THREAD, &opts)->status, KOLO_ERR_ARG);
    opts.init = NULL;
    o = train_job(2, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_ARG);
    assert_string_equal(o->error,
                        "run/checkpoint-final.safetensors is of a finished run: choose another "
                        "folder with --out, or remove run; --init with that file starts from its "
                        "weights");
    assert_int_equal(kolo_train_check(&opts, 1), KOLO_ERR_ARG);
    assert_string_equal(kolo_last_error(), o->error);
    assert_int_equal(system("diff -r run other"), 0);
    forget();
}

/* A resumed run replaces the final weights and the checkpoints only when it has newer ones. */
static void what_was_trained_stays_until_it_is_replaced(void **state) {
    kolo_train_opts opts = four_steps;
    train_well(1, &opts);
    kolo_run_files *files; /* of a run that goes on from step 2 and is killed */
    ASSERT_OK(kolo_run_files_open("run", NULL, 2, false, &files));
    ASSERT_OK(kolo_run_files_begin(files, NULL, 2));
    kolo_run_files_close(files);
    assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
    /* "latest" names checkpoint-2; the run goes on from the newest. */
    opts.resume = "run";
    opts.notice = train_note;
    train_notices[0] = '\0';
    train_well(1, &opts);
    assert_non_null(strstr(train_notices, "nothing to do: run/checkpoint-4.safetensors"));
    forget();
}

static char *find(char *bytes, size_t n, const char *text) {
    size_t length = strlen(text), at = 0;
    while (at + length < n && memcmp(bytes + at, text, length) != 0) at++;
    assert_true(at + length < n);
    return bytes + at;
}

static void damage_is_named(void **state) {
    static const struct {
        const char *from, *to, *text; /* of one length, in the metadata */
    } damages[] = {
        {"\"training\":\"2\"", "\"training\":\"7\"", "has version 7, of a newer kolo"},
        {"\"training\":\"2\"", "\"training\":\"x\"", "which is not a valid number"},
        {"\"order\":\"2\"", "\"order\":\"3\"",
         "order of the samples has version 3, of a newer kolo"},
        {"\"order\":\"2\"", "\"order\":\"0\"", "order \"0\", which is not a valid number"},
        {"\"progress\":\"4", "\"progress\":\"5", "the metadata contradict each other"},
        {"\"progress\":\"4", "\"progress\":\"-", "an invalid run state"},
        {"\"options\"", "\"optionx\"", "have no options"},
        {"\"optimizer.velocity.fc1.bias\"", "\"optimizer.velocity.fc1.bius\"", "is missing"},
    };
    kolo_train_opts opts = four_steps;
    opts.optimizer.momentum = 0.9;
    opts.checkpoint_steps = 4;
    train_well(1, &opts);
    char *good;
    size_t bytes;
    ASSERT_OK(kolo_file_read("run/checkpoint-4.safetensors", 1 << 24, &good, &bytes));
    opts.resume = "run/bad.safetensors";
    memcpy(find(good, bytes, "kolo_xxh3"), "none_xxh3",
           9); /* otherwise the hashes detect the damage */
    for (size_t i = 0; i < KOLO_COUNT(damages); i++) {
        size_t n = strlen(damages[i].from);
        assert_int_equal(strlen(damages[i].to), n);
        char *at = find(good, bytes, damages[i].from);
        memcpy(at, damages[i].to, n);
        ASSERT_OK(kolo_file_write("run/bad.safetensors", good, bytes));
        memcpy(at, damages[i].from, n);
        const train_outcome *o = train_job(1, RANKS_THREAD, &opts);
        assert_int_not_equal(o->status, KOLO_OK);
        if (!strstr(o->error, damages[i].text)) fail_msg("%s: not %s", o->error, damages[i].text);
    }
    ASSERT_OK(kolo_file_write("run/bad.safetensors", good, bytes / 2));
    assert_int_equal(train_job(1, RANKS_THREAD, &opts)->status, KOLO_ERR_FORMAT);
    kolo_free(good);
    forget();
}

/* Weights that are not finite are refused wherever they are read. */
static void nan_is_refused(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 10,
                            .steps = 4,
                            .no_eval = true,
                            .out_dir = "run",
                            .checkpoint_steps = 4};
    static const char four[] = "run/checkpoint-4.safetensors";
    static const char error[] = "run/checkpoint-4.safetensors: 1 of the 10 numbers of fc3.bias are "
                                "NaN or infinite: the run diverged, or the file is damaged";
    train_well(1, &opts);
    char *file;
    size_t bytes;
    const float nan = NAN;
    ASSERT_OK(kolo_file_read(four, 1 << 24, &file, &bytes));
    memcpy(find(file, bytes, "kolo_xxh3"), "none_xxh3", 9); /* the hashes would detect it */
    memcpy(file + bytes - sizeof nan, &nan, sizeof nan);
    ASSERT_OK(kolo_file_write(four, file, bytes));
    kolo_free(file);
    kolo_train_opts init = {.model = "mlp", .data = images, .init = four};
    const train_outcome *o = train_job(2, RANKS_THREAD, &init);
    assert_int_equal(o->status, KOLO_ERR_FORMAT);
    assert_non_null(strstr(o->error, error));
    opts.resume = four;
    o = train_job(1, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_FORMAT);
    assert_non_null(strstr(o->error, error));
    forget();
}

/* A run that diverges ends with an error, also while its loss is finite, and leaves the checkpoints
 * of better times. */
static void a_diverging_run_keeps_what_was_good(void **state) {
    kolo_train_opts opts = {.model = "resnet20",
                            .model_options = "width=4",
                            .data = images,
                            .batch = 10,
                            .steps = 40,
                            .lr = 20,
                            .optimizer.momentum = 0.9,
                            .no_eval = true,
                            .out_dir = "run",
                            .keep = 1,
                            .checkpoint_steps = 1};
    const train_outcome *o = train_job(2, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_DIVERGED);
    assert_non_null(strstr(o->error, "training diverged; lower the learning rate, which is 20"));
    assert_non_null(strstr(o->error, "; the checkpoint of step "));
    assert_false(kolo_file_exists("run/checkpoint-final.safetensors"));
    char *path, *text;
    ASSERT_OK(kolo_checkpoint_folder_find("run", false, &path));
    ASSERT_OK(kolo_checkpoint_verify(path, &text));
    kolo_checkpoint_text_free(text);
    kolo_free(path);
    forget();
}

/* Flips a bit of a file; `back` is from its end. */
static void flip(const char *path, size_t back) {
    char *text;
    size_t bytes;
    ASSERT_OK(kolo_file_read(path, 1 << 24, &text, &bytes));
    text[bytes - back] ^= 4;
    ASSERT_OK(kolo_file_write(path, text, bytes));
    kolo_free(text);
}

/* If the latest is damaged, truncated or missing, the previous one is used, with a notice. */
static void an_older_one_stands_in(void **state) {
    static const char six[] = "run/checkpoint-6.safetensors";
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 10,
                            .steps = 6,
                            .optimizer.momentum = 0.9,
                            .no_eval = true,
                            .out_dir = "run",
                            .notice = train_note,
                            .keep = 3,
                            .checkpoint_steps = 2};
    kolo_train_result straight = train_well(1, &opts), evaluated;
    kolo_eval_opts eval = {.checkpoint = six, .data = images};
    kolo_train_opts init = {.model = "mlp", .data = images, .init = six};
    flip(six, 2);
    assert_int_equal(kolo_evaluate(NULL, &eval, &evaluated), KOLO_ERR_FORMAT);
    assert_string_equal(kolo_last_error(),
                        "run/checkpoint-6.safetensors: the data of tensor "
                        "\"optimizer.velocity.fc3.bias\" do not match their hash: the file is "
                        "damaged");
    assert_int_equal(train_job(1, RANKS_THREAD, &init)->status, KOLO_ERR_FORMAT);
    assert_int_equal(kolo_checkpoint_export(six, "run/x.safetensors", KOLO_FORMAT_NATIVE),
                     KOLO_ERR_FORMAT);
    static const char *const losses[] = {"flipped",
                                         "truncate -s -5 run/checkpoint-6.safetensors",
                                         "rm run/checkpoint-6.safetensors",
                                         "rm run/latest run/checkpoint-6.safetensors",
                                         ": >run/latest; rm run/checkpoint-6.safetensors",
                                         "echo ../../etc/passwd >run/latest; "
                                         "rm run/checkpoint-6.safetensors"};
    opts.resume = "run";
    for (size_t i = 0; i < KOLO_COUNT(losses); i++) {
        if (i > 0) assert_int_equal(system(losses[i]), 0);
        train_notices[0] = '\0';
        kolo_train_result resumed = train_well(1, &opts);
        assert_same_run(losses[i], &straight, &resumed);
        bool output =
            strstr(train_notices, "trying the previous one, run/checkpoint-4.safetensors");
        if (output != (i < 3) || !strstr(train_notices, "after step 4 of 6"))
            fail_msg("%s", train_notices);
    }
    opts.resume = six; /* a named file is not replaced by another */
    flip(six, 2);
    assert_int_equal(train_job(1, RANKS_THREAD, &opts)->status, KOLO_ERR_FORMAT);
    flip(six, 2);
    opts.resume = "run/checkpoint-4.safetensors"; /* and does not overwrite later ones */
    const train_outcome *o = train_job(1, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_ARG);
    assert_non_null(strstr(o->error, "run holds checkpoint-6, later than step 4"));
    assert_true(kolo_file_exists(six));
    flip(six, 2);
    opts.resume = "run";
    flip("run/checkpoint-2.safetensors", 2);
    flip("run/checkpoint-4.safetensors", 2);
    o = train_job(1, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_FORMAT);
    assert_non_null(strstr(o->error, "no checkpoint in run is intact; run/checkpoint-2"));
    assert_int_equal(system("rm run/checkpoint-[0-9]*; echo checkpoint-6.safetensors >run/latest"),
                     0);
    assert_non_null(
        strstr(train_job(1, RANKS_THREAD, &opts)->error, "no checkpoint in run is intact; "));
    forget();
}

TEST_MAIN(test_resume_refused) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_differs_names_the_difference),
        cmocka_unit_test(what_can_go_on_is_kept),
        cmocka_unit_test(what_was_trained_stays_until_it_is_replaced),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(a_diverging_run_keeps_what_was_good),
        cmocka_unit_test(an_older_one_stands_in),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
