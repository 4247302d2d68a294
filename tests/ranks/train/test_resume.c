/* Resumable checkpoints: resumed runs are bitwise equal to uninterrupted ones; which checkpoints
 * are kept; what is refused. */
#include "base/file.h"
#include "kolo/checkpoint.h"
#include "kolo/train.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/record/run_files.h"
#include "train/session/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY = 7 };

static char notices[1024];

static void note(void *arg, const char *line, kolo_notice_kind kind) {
    strncat(notices, line, sizeof notices - strlen(notices) - 1);
}

static void forget(void) { assert_int_equal(system("rm -rf run other"), 0); }

/* ---- bitwise equality ---- */

static const char images[] = "synthetic:N=90,test=20,shape=1x14x14,seed=2";

/* Nine to eleven steps an epoch: EVERY lies within the first, twice EVERY within the second. */
static const struct {
    const char *name;
    kolo_train_opts opts;
} cases[] = {
    {"sgd with momentum, augmented",
     {.model = "lenet",
      .optimizer.momentum = 0.9,
      .augment = "flip,crop=2,erase=3,mixup=0.4,cutmix=1",
      .batch = 4}},
    {"nesterov, decay, cosine with warm-up",
     {.model = "mlp",
      .optimizer.kind = KOLO_OPTIMIZER_NESTEROV,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .schedule = KOLO_LR_COSINE,
      .warmup_epochs = 0.5,
      .batch = 4}},
    {"adam, clipped",
     {.model = "lenet", .optimizer.kind = KOLO_OPTIMIZER_ADAM, .optimizer.clip = 1, .batch = 4}},
    {"adamw, accumulated",
     {.model = "mlp", .optimizer.kind = KOLO_OPTIMIZER_ADAMW, .batch = 2, .accumulate = 2}},
    {"lars",
     {.model = "lenet",
      .optimizer.kind = KOLO_OPTIMIZER_LARS,
      .optimizer.momentum = 0.9,
      .optimizer.trust = 0.1,
      .optimizer.weight_decay = 1e-3,
      .optimizer.scale_matrices_only = true,
      .optimizer.no_decay = "*.bias",
      .batch = 4}},
    {"lamb, clipped, accumulated",
     {.model = "mlp",
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.weight_decay = 1e-2,
      .optimizer.clip = 1,
      .batch = 2,
      .accumulate = 2}},
    {"statistics, accumulated",
     {.model = "resnet20",
      .model_options = "width=2",
      .optimizer.momentum = 0.9,
      .batch = 2,
      .accumulate = 2}},
    {"synchronised statistics",
     {.model = "resnet20",
      .model_options = "width=2",
      .optimizer.momentum = 0.9,
      .sync_bn = true,
      .batch = 4}},
    {"sparse embedding",
     {.model = "lstm_lm",
      .model_options = "layers=1,hidden=8,context=4,vocab=100",
      .data = "synthetic-tokens:N=90,test=10",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .sparse_embedding = true,
      .batch = 4}},
    {"dropout and hidden tokens",
     {.model = "bert_tiny",
      .model_options = "layers=1,width=8,heads=2,context=8,vocab=50,mask=49,dropout=20",
      .data = "synthetic-tokens:N=90,test=10",
      .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
      .batch = 4}},
};

static void a_run_goes_on_to_the_same_bits(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            if (TEST_FEWER(i % 2 == (size_t)ranks - 1, false)) continue; /* one or two in turn */
            kolo_train_opts opts = cases[i].opts;
            if (!opts.data) opts.data = images;
            opts.epochs = 3;
            kolo_train_result straight = train_well(ranks, &opts);
            opts.out_dir = "run";
            opts.checkpoint_steps = EVERY;
            kolo_train_result saved = train_well(ranks, &opts);
            assert_same_run(cases[i].name, &straight, &saved); /* saving changes nothing */
            for (int step = EVERY; step <= 2 * EVERY; step += EVERY) {
                char path[64];
                snprintf(path, sizeof path, "run/checkpoint-%d.safetensors", step);
                opts.resume = path;
                opts.out_dir = "other";
                opts.loader_threads = (int)(i % 4) - 1; /* of which no bit depends */
                kolo_train_result resumed = train_well(ranks, &opts);
                assert_same_run(cases[i].name, &straight, &resumed);
                assert_int_equal(system("rm -r other"), 0);
            }
            forget();
        }
    }
}

/* The lines that a resumed run compares. Lines of later versions are there only if they apply. */
static void earlier_checkpoints_have_the_same_lines(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 30,
                            .steps = 1,
                            .checkpoint_steps = 1,
                            .out_dir = "run"};
    kolo_checkpoint checkpoint;
    (void)train_well(1, &opts);
    ASSERT_OK(kolo_checkpoint_open("run/checkpoint-1.safetensors", &checkpoint));
    assert_string_equal(
        checkpoint.info.options,
        "model: mlp\nmodel options: \ndata: synthetic\nsamples: 90\nseed: 0\n"
        "augment: \nbatch x accumulate x workers: 30 = 30 x 1 x 1\noptimizer: sgd\nmomentum: 0\n"
        "weight-decay: 0\nclip: 0\ndecay-matrices-only: false\n"
        "sparse-embedding: false\nlr: 0.01\nschedule: constant\n"
        "warmup-epochs: 0\nprecision: f32\n");
    kolo_checkpoint_close(&checkpoint);
    forget();
}

/* The folder is continued: reports after the step are replaced. */
static void a_folder_goes_on(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 10,
                            .epochs = 3,
                            .out_dir = "run",
                            .checkpoint_epochs = 1};
    kolo_train_result straight = train_well(1, &opts);
    assert_true(kolo_file_exists("run/checkpoint-9.safetensors"));
    assert_true(kolo_file_exists("run/checkpoint-27.safetensors"));
    char *metrics = test_contents("run/metrics.jsonl");
    opts.resume = "run/checkpoint-9.safetensors";
    opts.steps = 12; /* ends early, as a killed run would */
    assert_int_equal(system("rm run/checkpoint-18.safetensors run/checkpoint-27.safetensors"), 0);
    train_well(1, &opts);
    char *latest = test_contents("run/latest");
    assert_string_equal(latest, "checkpoint-12.safetensors\n");
    opts.resume = "run/";
    opts.steps = 0;
    kolo_train_result resumed = train_well(1, &opts);
    assert_same_run("the folder", &straight, &resumed);
    /* The report of the second epoch covers the whole epoch. */
    char *again = test_contents("run/metrics.jsonl");
    char *line = strstr(metrics, "\"step\": 18"), *other = strstr(again, "\"step\": 18");
    assert_non_null(line);
    assert_non_null(other);
    size_t n = (size_t)(strstr(line, "\"lr\"") - line);
    assert_memory_equal(line, other, n);
    assert_null(strstr(other + 1, "\"step\": 18,"));
    /* So does the report of ten steps, of which the first ran before the break. */
    line = strstr(metrics, "\"step\": 20");
    other = strstr(again, "\"step\": 20");
    assert_true(line && other);
    n = (size_t)(strstr(line, "\"lr\"") - line);
    assert_memory_equal(line, other, n);
    kolo_free(metrics);
    kolo_free(again);
    kolo_free(latest);
    forget();
}

/* Another learning rate holds from the checkpoint on: the steps are those of a schedule that falls
 * there. The run then has that rate. */
static void the_learning_rate_may_change(void **state) {
    const kolo_train_opts base = {.model = "mlp",
                                  .data = images,
                                  .batch = 10,
                                  .epochs = 2,
                                  .lr = 0.125,
                                  .optimizer.momentum = 0.5,
                                  .notice = note};
    kolo_train_opts falling = base, first = base, second = base;
    falling.schedule = KOLO_LR_STEP;
    falling.lr_step_factor = 0.25;
    falling.lr_step_epochs = 1;
    kolo_train_result whole = train_well(1, &falling), result;
    first.epochs = 1;
    first.out_dir = second.out_dir = second.resume = "run";
    first.checkpoint_epochs = second.checkpoint_epochs = 1;
    second.lr = 0.03125;
    train_well(1, &first);
    notices[0] = 0;
    second.notice = NULL;
    assert_job_refused(1, &second,
                       "with --lr 0.125, this job has --lr 0.03125: use the option of the "
                       "run, or set `notice`");
    second.notice = note;
    result = train_well(1, &second);
    assert_non_null(strstr(notices, "resume: --lr 0.03125 from here on; the run had --lr 0.125"));
    assert_true(result.parameter_hash == whole.parameter_hash);
    notices[0] = 0;
    second.epochs = 3;
    train_well(1, &second);
    assert_null(strstr(notices, "from here on"));
    forget();
    first.scale_lr = 10; /* as in a recipe, which another --lr has no part of */
    train_well(1, &first);
    assert_job_refused(1, &second, "with --scale-lr 10, which this job lacks: give it, too");
    second.scale_lr = 10;
    second.epochs = 2;
    train_well(1, &second);
    forget();
}

/* A finished run can be given more epochs, or be evaluated again. */
static void a_finished_run_may_go_on(void **state) {
    kolo_train_opts opts = {.model = "mlp", .data = images, .batch = 10, .epochs = 3};
    kolo_train_result straight = train_well(2, &opts);
    opts.epochs = 2;
    opts.out_dir = "run";
    opts.checkpoint_epochs = 2;
    opts.keep = 1;
    kolo_train_result two = train_well(2, &opts);
    opts.resume = "run";
    opts.notice = note;
    notices[0] = '\0';
    kolo_train_result again = train_well(2, &opts);
    assert_same_run("nothing left to do", &two, &again);
    assert_string_equal(notices, "resume: nothing to do: run/checkpoint-10.safetensors is of the "
                                 "last step, 10; increase --steps or --epochs to continue");
    opts.epochs = 3;
    kolo_train_result three = train_well(2, &opts);
    assert_same_run("one more epoch", &straight, &three);
    assert_false(kolo_file_exists("run/checkpoint-10.safetensors")); /* keep 1 */
    opts.epochs = 1;
    const train_outcome *o = train_job(2, RANKS_THREAD, &opts);
    assert_int_equal(o[0].status, KOLO_ERR_ARG);
    assert_non_null(strstr(o[0].error, "is of step 15, and the job ends at step 5"));
    forget();
}

/* Another number of workers computes the same up to rounding if the product is equal; models with
 * batch normalization also need the same batch. */
static void other_workers_go_on_where_the_mathematics_allows(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 5,
                            .epochs = 2,
                            .optimizer.momentum = 0.9,
                            .out_dir = "run",
                            .checkpoint_steps = 5};
    kolo_train_result two = train_well(2, &opts);
    opts.resume = "run/checkpoint-15.safetensors";
    opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    opts.accumulate = 2;
    kolo_train_result one = train_well(1, &opts);
    assert_int_equal(one.samples, two.samples);
    assert_true(test_relative_l2_f64(&one.final.value[KOLO_METRIC_LOSS],
                                     &two.final.value[KOLO_METRIC_LOSS], 1) < 1e-5);
    opts.accumulate = 1;
    const train_outcome *o = train_job(1, RANKS_THREAD, &opts);
    assert_int_equal(o->status, KOLO_ERR_ARG);
    assert_string_equal(o->error,
                        "run/checkpoint-15.safetensors belongs to a run with 10 samples a step "
                        "(--batch 5, --accumulate 1, 2 workers), this job has 5 samples a step "
                        "(--batch 5, --accumulate 1, 1 worker): give --accumulate 2, or start a "
                        "new run from its weights with --init");
    static const struct {
        int ranks;
        int64_t batch, accumulate;
        const char *advice;
    } others[] = {{1, 20, 1, ": give --batch 10, "},
                  {1, 5, 3, ": give --accumulate 2, "},
                  {2, 10, 1, ": give --batch 5, "},
                  {3, 5, 1, ": give batch, accumulate and workers with that product"}};
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        opts.batch = others[i].batch;
        opts.accumulate = others[i].accumulate;
        o = train_job(others[i].ranks, RANKS_THREAD, &opts);
        assert_int_equal(o->status, KOLO_ERR_ARG);
        if (!strstr(o->error, others[i].advice)) fail_msg("%s", o->error);
    }
    forget();
    kolo_train_opts coded = {.model = "mlp",
                             .data = images,
                             .batch = 5,
                             .steps = 1,
                             .no_eval = true,
                             .compress = "bf16",
                             .out_dir = "run",
                             .checkpoint_steps = 1};
    train_well(3, &coded);
    coded.resume = "run";
    assert_job_refused(2, &coded, "it needs the same number of workers: give --workers 3, or");
    forget();
    kolo_train_opts net = {.model = "resnet20",
                           .model_options = "width=2",
                           .data = images,
                           .batch = 4,
                           .steps = 2,
                           .no_eval = true,
                           .out_dir = "run",
                           .checkpoint_steps = 1};
    train_well(2, &net);
    net.resume = "run";
    net.batch = 8;
    o = train_job(1, RANKS_THREAD, &net);
    assert_int_equal(o->status, KOLO_ERR_ARG);
    assert_non_null(strstr(o->error, "a run with --batch 4, this job has --batch 8: use"));
    forget();
}

/* ---- what is refused ---- */

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
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 10,
                            .steps = 4,
                            .no_eval = true,
                            .out_dir = "run",
                            .checkpoint_steps = 2};
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
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 10,
                            .steps = 4,
                            .no_eval = true,
                            .out_dir = "run",
                            .checkpoint_steps = 2};
    train_well(1, &opts);
    kolo_run_files *files; /* of a run that goes on from step 2 and is killed */
    ASSERT_OK(kolo_run_files_open("run", 2, false, &files));
    ASSERT_OK(kolo_run_files_begin(files, NULL, 2));
    kolo_run_files_close(files);
    assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
    /* "latest" names checkpoint-2; the run goes on from the newest. */
    opts.resume = "run";
    opts.notice = note;
    notices[0] = '\0';
    train_well(1, &opts);
    assert_non_null(strstr(notices, "nothing to do: run/checkpoint-4.safetensors"));
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
    kolo_train_opts opts = {.model = "mlp",
                            .data = images,
                            .batch = 10,
                            .steps = 4,
                            .optimizer.momentum = 0.9,
                            .no_eval = true,
                            .out_dir = "run",
                            .checkpoint_steps = 4};
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
                            .notice = note,
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
        notices[0] = '\0';
        kolo_train_result resumed = train_well(1, &opts);
        assert_same_run(losses[i], &straight, &resumed);
        bool output = strstr(notices, "trying the previous one, run/checkpoint-4.safetensors");
        if (output != (i < 3) || !strstr(notices, "after step 4 of 6")) fail_msg("%s", notices);
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

/* ---- other readers of such a file ---- */

static void parameters_are_read_without_the_state(void **state) {
    kolo_train_opts opts = {.model = "lenet",
                            .data = "synthetic:N=64,test=20",
                            .batch = 16,
                            .optimizer.kind = KOLO_OPTIMIZER_ADAM,
                            .out_dir = "run",
                            .checkpoint_steps = 4};
    kolo_train_result trained = train_well(1, &opts), evaluated;
    static const char path[] = "run/checkpoint-4.safetensors";
    kolo_eval_opts eval = {.checkpoint = path, .data = opts.data, .batch = 16};
    ASSERT_OK(kolo_evaluate(NULL, &eval, &evaluated));
    assert_true(test_relative_l2_f64(&evaluated.test.value[KOLO_METRIC_LOSS],
                                     &trained.test.value[KOLO_METRIC_LOSS], 1) < 1e-5);
    char *text;
    bool equal;
    ASSERT_OK(kolo_checkpoint_verify(path, &text));
    kolo_checkpoint_text_free(text);
    ASSERT_OK(kolo_checkpoint_describe(path, &text));
    assert_non_null(strstr(text, "training       version 2: a run can be resumed from it\n"
                                 "               version 2 of the order of samples\n"));
    assert_non_null(strstr(text, "optimizer: adam\n"));
    assert_non_null(strstr(text, "steps          4\n"));
    kolo_checkpoint_text_free(text);
    ASSERT_OK(kolo_checkpoint_export(path, "run/native.safetensors", KOLO_FORMAT_NATIVE));
    ASSERT_OK(kolo_checkpoint_compare("run/native.safetensors", "run/checkpoint-final.safetensors",
                                      &equal, &text));
    if (!equal) fail_msg("%s", text);
    kolo_checkpoint_text_free(text);
    kolo_train_opts anew = {.model = "lenet", .data = opts.data, .init = path, .no_eval = true};
    train_well(2, &anew);
    forget();
}

/* ---- units ---- */

static int row(const char *name) {
    const kolo_metric *m = kolo_metric_table();
    int i = 0;
    while (strcmp(m[i].name, name) != 0) i++;
    return i;
}

/* The sums of a model that reports these outputs. */
static kolo_sums zero_sums(bool next) {
    kolo_sums zero;
    memset(&zero, 0, sizeof zero);
    for (int i = 0; i < KOLO_MAX_METRICS; i++) zero.metric[i] = NAN;
    zero.metric[row("loss")] = zero.metric[row("accuracy")] = 0;
    if (next) zero.metric[row("next_loss")] = zero.metric[row("next_accuracy")] = 0;
    return zero;
}

static void run_states_are_read_back_exactly(void **state) {
    for (int next = 0; next < 2; next++) {
        const kolo_sums zero = zero_sums(next);
        kolo_run_state s = {.steps = INT64_C(1) << 40, .first_loss = 0.1, .run.ns = 3}, t;
        s.run.sums = s.epoch.sums = zero;
        for (int i = 0; i < KOLO_LAST_STEPS; i++) s.recent[i] = zero;
        s.recent[7].metric[row("loss")] = 5e-324;
        s.recent[7].metric[row("accuracy")] = 1.0 / 3;
        s.recent[7].samples = 9;
        s.updates = next * 12;
        s.recent[7].labels = 81;
        s.epoch.sums.metric[row("loss")] = 1.7976931348623157e308;
        if (next) s.run.sums.metric[row("next_accuracy")] = 7;
        if (next) s.recent[7].metric[row("next_loss")] = 1.0 / 7;
        kolo_text text = {0};
        kolo_run_state_write(&s, &text);
        ASSERT_OK(kolo_run_state_read("here", text.text, &zero, &t));
        assert_memory_equal(&s, &t, sizeof s);
        const kolo_sums other = zero_sums(!next);
        assert_int_equal(kolo_run_state_read("here", text.text, &other, &t), KOLO_ERR_FORMAT);
        text.text[text.length - 2] = '\0'; /* the last number and its blank */
        assert_int_equal(kolo_run_state_read("here", text.text, &zero, &t), KOLO_ERR_FORMAT);
        assert_int_equal(kolo_run_state_read("here", "", &zero, &t), KOLO_ERR_FORMAT);
        kolo_text_fini(&text);
        s.damaged = 3;
        kolo_run_state_write(&s, &text);
        ASSERT_OK(kolo_run_state_read("here", text.text, &zero, &t));
        assert_memory_equal(&s, &t, sizeof s);
        kolo_text_fini(&text);
        s.ledger = INT64_C(1) << 60; /* without a best evaluation, then with one */
        kolo_run_state_write(&s, &text);
        ASSERT_OK(kolo_run_state_read("here", text.text, &zero, &t));
        assert_memory_equal(&s, &t, sizeof s);
        kolo_text_fini(&text);
        s.best_step = 70;
        s.best = 1.0 / 3;
        s.stale = 2;
        s.best_row = row("mean_iou");
        kolo_run_state_write(&s, &text);
        ASSERT_OK(kolo_run_state_read("here", text.text, &zero, &t));
        assert_memory_equal(&s, &t, sizeof s);
        text.text[strlen(text.text) - 22] = 'x'; /* another metric */
        assert_int_equal(kolo_run_state_read("here", text.text, &zero, &t), KOLO_ERR_FORMAT);
        kolo_text_fini(&text);
    }
}

/* The checkpoint in the folder comes before --init, on all ranks. */
static void a_run_from_weights_resumes(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .model_options = "hidden=4",
                            .data = images,
                            .batch = 8,
                            .steps = 2,
                            .out_dir = "run",
                            .checkpoint_steps = 2};
    (void)train_well(1, &opts);
    opts.init = "run/checkpoint-final.safetensors";
    opts.out_dir = opts.resume = "other";
    opts.resume_if_any = true;
    (void)train_well(2, &opts);
    opts.steps = 4;
    assert_int_equal(train_well(2, &opts).steps, 4);
    assert_int_equal(system("rm -r other"), 0);
    forget();
}

/* An interval that is always over, and one that never is: the last step has a checkpoint anyway. */
static void checkpoints_by_time(void **state) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        for (int often = 0; often < 2; often++) {
            kolo_train_opts opts = {.model = "mlp",
                                    .model_options = "hidden=4",
                                    .data = images,
                                    .batch = 8,
                                    .steps = 3,
                                    .out_dir = "run",
                                    .checkpoint_seconds = often ? 1e-9 : 1e9};
            (void)train_well(ranks, &opts);
            for (int step = 1; step <= 3; step++) {
                char path[64];
                snprintf(path, sizeof path, "run/checkpoint-%d.safetensors", step);
                assert_int_equal(kolo_file_exists(path), often || step == 3);
            }
            forget();
        }
    }
}

static void the_newest_stay(void **state) {
    assert_int_equal(system("mkdir run && cd run && touch checkpoint-final.safetensors mine "
                            "checkpoint-x.safetensors checkpoint-5.safetensors "
                            "checkpoint-40.safetensors checkpoint-300.safetensors"),
                     0);
    ASSERT_OK(kolo_checkpoint_folder_commit("run", 300, 0));
    assert_true(kolo_file_exists("run/checkpoint-5.safetensors"));
    ASSERT_OK(kolo_checkpoint_folder_commit("run", 300, 2));
    assert_false(kolo_file_exists("run/checkpoint-5.safetensors"));
    assert_true(kolo_file_exists("run/checkpoint-40.safetensors"));
    assert_int_equal(system("touch run/.checkpoint-400.safetensors.77.tmp run/.latest.77.tmp"), 0);
    ASSERT_OK(kolo_checkpoint_folder_begin("run", 40));
    assert_true(kolo_file_exists("run/checkpoint-300.safetensors"));
    ASSERT_OK(kolo_checkpoint_folder_commit("run", 40, 2));
    assert_false(kolo_file_exists("run/checkpoint-300.safetensors"));
    assert_false(kolo_file_exists("run/.checkpoint-400.safetensors.77.tmp"));
    assert_false(kolo_file_exists("run/.latest.77.tmp"));
    assert_true(kolo_file_exists("run/mine") && kolo_file_exists("run/checkpoint-x.safetensors"));
    char *path;
    ASSERT_OK(kolo_checkpoint_folder_find("run", false, &path));
    assert_string_equal(path, "run/checkpoint-40.safetensors");
    kolo_free(path);
    forget();
}

TEST_MAIN(test_resume) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_goes_on_to_the_same_bits),
        cmocka_unit_test(earlier_checkpoints_have_the_same_lines),
        cmocka_unit_test(a_folder_goes_on),
        cmocka_unit_test(the_learning_rate_may_change),
        cmocka_unit_test(a_finished_run_may_go_on),
        cmocka_unit_test(other_workers_go_on_where_the_mathematics_allows),
        cmocka_unit_test(a_job_that_differs_names_the_difference),
        cmocka_unit_test(what_can_go_on_is_kept),
        cmocka_unit_test(what_was_trained_stays_until_it_is_replaced),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(a_diverging_run_keeps_what_was_good),
        cmocka_unit_test(an_older_one_stands_in),
        cmocka_unit_test(parameters_are_read_without_the_state),
        cmocka_unit_test(run_states_are_read_back_exactly),
        cmocka_unit_test(a_run_from_weights_resumes),
        cmocka_unit_test(checkpoints_by_time),
        cmocka_unit_test(the_newest_stay),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
