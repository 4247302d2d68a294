/* Resumable checkpoints: resumed runs are bitwise equal to uninterrupted ones; which checkpoints
 * are kept; what is refused. */
#include "base/file.h"
#include "kolo/checkpoint.h"
#include "kolo/train.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/session/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY = 7 };

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
    {"synchronized statistics",
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
    char *line = strstr(metrics, "\"step\": 18,"), *other = strstr(again, "\"step\": 18,");
    assert_non_null(line);
    assert_non_null(other);
    size_t n = (size_t)(strstr(line, "\"lr\"") - line);
    assert_memory_equal(line, other, n);
    assert_null(strstr(other + 1, "\"step\": 18,"));
    /* So does the report of ten steps, of which the first ran before the break. */
    line = strstr(metrics, "\"step\": 20,");
    other = strstr(again, "\"step\": 20,");
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
                                  .notice = train_note};
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
    train_notices[0] = 0;
    second.notice = NULL;
    assert_job_refused(1, &second,
                       "with --lr 0.125, this job has --lr 0.03125: use the option of the "
                       "run, or set `notice`");
    second.notice = train_note;
    result = train_well(1, &second);
    assert_non_null(
        strstr(train_notices, "resume: --lr 0.03125 from here on; the run had --lr 0.125"));
    assert_true(result.parameter_hash == whole.parameter_hash);
    train_notices[0] = 0;
    second.epochs = 3;
    train_well(1, &second);
    assert_null(strstr(train_notices, "from here on"));
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
    opts.notice = train_note;
    train_notices[0] = '\0';
    kolo_train_result again = train_well(2, &opts);
    assert_same_run("nothing left to do", &two, &again);
    assert_string_equal(train_notices,
                        "resume: nothing to do: run/checkpoint-10.safetensors is of the "
                        "last step, 10; increase --steps or --epochs to continue\n");
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
    opts.batch = opts.accumulate = 0;
    opts.global_batch = 20;
    assert_job_refused(
        1, &opts, "this job has 20 samples a step: give --global-batch 10, or start a new run");
    forget();
    kolo_train_opts global = {
        .model = "mlp", .data = images, .global_batch = 10, .steps = 1, .no_eval = true};
    global.out_dir = "run";
    global.checkpoint_steps = 1;
    train_well(1, &global);
    global.resume = "run";
    global.global_batch = 5;
    assert_job_refused(1, &global,
                       "a run with 10 samples a step, this job has 5 samples a step: give "
                       "--global-batch 10, or start a new run");
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
    static const kolo_checkpoint_format formats[] = {KOLO_FORMAT_NATIVE, KOLO_FORMAT_ONNX};
    for (size_t i = 0; i < KOLO_COUNT(formats); i++) {
        assert_int_equal(
            kolo_checkpoint_export(path, "run/../run/checkpoint-4.safetensors", formats[i]),
            KOLO_ERR_ARG);
        assert_string_equal(kolo_last_error(), "run/../run/checkpoint-4.safetensors is the "
                                               "checkpoint to export: choose another file");
    }
    ASSERT_OK(kolo_checkpoint_describe(path, &text)); /* still resumable */
    assert_non_null(strstr(text, "training       version 2: a run can be resumed from it\n"));
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
        s.place = (kolo_stream_place){0, (uint64_t)1 << 40, 1 << 30};
        kolo_run_state_write(&s, &text);
        ASSERT_OK(kolo_run_state_read("here", text.text, &zero, &t));
        assert_memory_equal(&s, &t, sizeof s);
        kolo_text_fini(&text);
        s.place = (kolo_stream_place){0};
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
        cmocka_unit_test(parameters_are_read_without_the_state),
        cmocka_unit_test(run_states_are_read_back_exactly),
        cmocka_unit_test(a_run_from_weights_resumes),
        cmocka_unit_test(checkpoints_by_time),
        cmocka_unit_test(the_newest_stay),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
