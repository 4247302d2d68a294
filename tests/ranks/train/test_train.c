/* Training jobs: results, files, refused options, and that ranks fail together. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "kolo/train.h"
#include "support/ranks.h"
#include "support/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_RANKS = 3 };

/* The outcome of a rank with its status; the body itself always succeeds. */
typedef struct outcome {
    kolo_status status;
    char error[640];
    kolo_train_result result;
    int64_t reports, last_step, epoch_ends, evaluations;
    bool in_order, finished;
    double last_left;
} outcome;

typedef struct setting {
    kolo_train_opts opts;
    const char *data_of_rank_1; /* NULL: as the others */
    int64_t seed_of_rank_1;     /* 0: as the others */
    const char *model_of_rank_1;
} setting;

static void observe(void *arg, const kolo_train_progress *p) {
    outcome *o = arg;
    if (o->reports == 0) o->in_order = true;
    o->in_order = o->in_order && p->step > o->last_step && p->step <= p->total_steps;
    o->last_step = p->step;
    o->reports++;
    o->epoch_ends += p->epoch_end;
    o->evaluations += p->evaluated;
    o->finished = p->step == p->total_steps && p->epoch_end;
    o->last_left = p->seconds_left;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    outcome *o = result;
    kolo_train_opts opts = s->opts;
    if (s->data_of_rank_1 && kolo_comm_rank(comm) == 1) opts.data = s->data_of_rank_1;
    if (s->seed_of_rank_1 && kolo_comm_rank(comm) == 1) opts.seed = (uint64_t)s->seed_of_rank_1;
    if (s->model_of_rank_1 && kolo_comm_rank(comm) == 1) opts.model_options = s->model_of_rank_1;
    o->status = kolo_train(comm, &opts, observe, o, &o->result);
    if (o->status != KOLO_OK) snprintf(o->error, sizeof o->error, "%s", kolo_last_error());
    return KOLO_OK;
}

static outcome *train(int ranks, const setting *s) {
    static outcome outcomes[MAX_RANKS];
    rank_job job = {
        .n = ranks,
        .transport = RANKS_THREAD,
        .body = body,
        .arg = s,
        .arg_bytes = sizeof *s,
        .results = outcomes,
        .result_bytes = sizeof *outcomes,
    };
    memset(outcomes, 0, sizeof outcomes);
    ASSERT_OK(run_rank_job(&job));
    return outcomes;
}

static void all_is_well(const outcome *o, int ranks) {
    for (int rank = 0; rank < ranks; rank++) {
        if (o[rank].status != KOLO_OK) fail_msg("rank %d: %s", rank, o[rank].error);
    }
}

/* ---- results ---- */

static const char data[] = "synthetic:N=500,test=101,shape=1x14x14,seed=2";

static void remove_run(const char *folder) {
    static const char *const names[] = {"config.yaml", "metrics.jsonl",
                                        "checkpoint-final.safetensors"};
    char path[256];
    snprintf(path, sizeof path, "%s/loss.svg", folder);
    (void)remove(path); /* of a run of ten steps or more */
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(remove(folder), 0); /* empty now: nothing else was left */
}

static void count_lines(const char *path, int *lines, int *epochs) {
    char *text;
    size_t bytes;
    ASSERT_OK(kolo_file_read(path, 1 << 20, &text, &bytes));
    *lines = *epochs = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, ++*lines) {
        *end = '\0';
        json_t *report = json_loads(line, 0, NULL);
        assert_non_null(report);
        bool epoch = strcmp(json_string_value(json_object_get(report, "event")), "epoch") == 0;
        const char *loss = epoch ? "epoch_loss" : "loss";
        assert_true(json_real_value(json_object_get(report, loss)) > 0);
        *epochs += epoch;
        json_decref(report);
    }
    kolo_free(text);
}

static void a_run_reports_evaluates_and_saves(void **state) {
    setting s = {.opts = {.model = "mlp",
                          .model_options = "hidden=16",
                          .data = data,
                          .batch = 20,
                          .epochs = 4,
                          .lr = 0.1,
                          .optimizer.momentum = 0.9,
                          .eval_every = 2,
                          .log_every = 5,
                          .seed = 5,
                          .out_dir = "test_train_run",
                          .resolved_config = "seed: 5\n"}};
    const outcome *o = train(3, &s);
    all_is_well(o, 3);
    const kolo_train_result *r = &o[0].result;
    assert_int_equal(r->workers, 3);
    assert_int_equal(r->threads, 1);
    assert_int_equal(r->parameters, 196 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10);
    assert_int_equal(r->steps, 4 * 9); /* 500 samples in steps of 60: eight whole ones, one short */
    assert_int_equal(r->epochs, 4);
    assert_int_equal(r->samples, 4 * 500);
    assert_true(r->final.value[KOLO_METRIC_LOSS] < r->first_loss / 2);
    assert_true(kolo_metrics_get(&r->test, "accuracy") > 0.9 &&
                kolo_metrics_get(&r->test, "accuracy") <= 1 && r->test.value[KOLO_METRIC_LOSS] > 0);
    assert_true(r->train_seconds > 0 && r->samples_per_second > 0 && r->step_ms_median > 0);
    assert_true(r->peak_rss_bytes > 1 << 20);
    for (int rank = 1; rank < 3; rank++) {
        kolo_train_result other = o[rank].result;
        other.peak_rss_bytes = r->peak_rss_bytes;
        other.memory = r->memory; /* ranges differ */
        assert_memory_equal(&other, r, sizeof other);
        assert_int_equal(o[rank].reports, 0); /* rank 0 alone has an observer */
    }
    assert_true(o[0].in_order && o[0].finished && o[0].last_left == 0);
    assert_int_equal(o[0].epoch_ends, 4);
    assert_int_equal(o[0].evaluations, 2);
    int lines, epochs;
    count_lines("test_train_run/metrics.jsonl", &lines, &epochs);
    assert_int_equal(lines, 4 + 7); /* of epochs, and of every fifth step */
    assert_int_equal(epochs, 4);

    /* The checkpoint gives the same evaluation. */
    kolo_train_result again;
    kolo_eval_opts eval = {
        .checkpoint = "test_train_run/checkpoint-final.safetensors", .data = data, .batch = 7};
    ASSERT_OK(kolo_evaluate(NULL, &eval, &again));
    assert_true(kolo_metrics_get(&again.test, "accuracy") ==
                kolo_metrics_get(&r->test, "accuracy"));
    double loss = again.test.value[KOLO_METRIC_LOSS];
    assert_true(test_relative_l2_f64(&loss, &r->test.value[KOLO_METRIC_LOSS], 1) < 1e-5);
    assert_int_equal(again.samples, 101);
    assert_int_equal(again.steps, 36);
    assert_int_equal(again.parameters, r->parameters);

    eval.data = "synthetic";
    assert_int_equal(kolo_evaluate(NULL, &eval, &again), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "takes samples [1,14,14] in 10 classes, and synthetic"
                                              " has samples [1,28,28] in 10"));
    remove_run("test_train_run");
}

static void steps_end_a_run_within_an_epoch(void **state) {
    setting s = {
        .opts = {
            .model = "mlp", .data = data, .batch = 50, .epochs = 3, .steps = 7, .no_eval = true}};
    const outcome *o = train(2, &s);
    all_is_well(o, 2);
    assert_int_equal(o[0].result.steps, 7);
    assert_int_equal(o[0].result.epochs, 1);
    assert_int_equal(o[0].result.samples, 700);
    assert_true(!o[0].result.evaluated);
    assert_true(o[0].finished);
    assert_int_equal(o[0].epoch_ends, 2);
    assert_int_equal(o[0].evaluations, 0);
}

static void a_batch_in_memory_is_learnt_by_heart(void **state) {
    setting s = {.opts = {.model = "lenet",
                          .batch = 8,
                          .steps = 60,
                          .lr = 0.05,
                          .optimizer.momentum = 0.9,
                          .in_memory = true}};
    const outcome *o = train(2, &s);
    all_is_well(o, 2);
    assert_int_equal(o[0].result.samples, 60 * 16);
    assert_true(o[0].result.final.value[KOLO_METRIC_LOSS] < o[0].result.first_loss / 4);
    assert_true(!o[0].result.evaluated);
}

/* ---- what is refused ---- */

typedef struct refusal {
    int workers;
    kolo_train_opts opts;
    kolo_status status;
    const char *text;
} refusal;

#define BASE .model = "mlp", .data = "synthetic:N=50,test=9"

static const refusal refusals[] = {
    {1, {.data = "synthetic"}, KOLO_ERR_ARG, "no model: choose"},
    {1, {.model = "mlp"}, KOLO_ERR_ARG, "no data set: choose"},
    {1, {.model = "lenett", .data = "synthetic"}, KOLO_ERR_ARG, "did you mean \"lenet\"?"},
    {1, {.model = "mlp", .data = "sinthetic"}, KOLO_ERR_ARG, "did you mean"},
    {1, {BASE, .model_options = "x=1"}, KOLO_ERR_ARG, "model mlp has no option \"x\""},
    {51, {BASE}, KOLO_ERR_ARG, "51 workers for 50 training samples in synthetic: use at most 50"},
    {0, {BASE}, KOLO_ERR_ARG, "number of workers is 0"},
    {1, {BASE, .batch = -1}, KOLO_ERR_ARG, "batch is -1: choose 1 to 16777216"},
    {1, {BASE, .epochs = -1}, KOLO_ERR_ARG, "epochs is -1"},
    {2, {BASE, .mesh = "dp=3"}, KOLO_ERR_ARG, "dp=3 has 3 workers, the job 2"},
    {2, {BASE, .mesh = "dp=1,xp=2"}, KOLO_ERR_UNSUPPORTED, "the axes are dp, data parallelism, tp"},
    {2, {BASE, .mesh = "dp"}, KOLO_ERR_ARG, "\"dp\" is not NAME=SIZE"},
    {2,
     {BASE, .sync_bn = true, .global_batch = 16, .reproducible = 8},
     KOLO_ERR_UNSUPPORTED,
     "omit --sync-bn or --reproducible"},
    {1, {BASE, .steps = -1}, KOLO_ERR_ARG, "steps is -1"},
    {1, {BASE, .threads = -2}, KOLO_ERR_ARG, "threads is -2"},
    {1, {BASE, .bucket_bytes = -2}, KOLO_ERR_ARG, "bucket bytes is -2"},
    {1, {BASE, .lr = -0.1}, KOLO_ERR_ARG, "learning rate is -0.1: choose a number above 0"},
    {1, {BASE, .lr = 0.0 / 0.0}, KOLO_ERR_ARG, "learning rate is"},
    {1, {BASE, .lr = 1.0 / 0.0}, KOLO_ERR_ARG, "learning rate is inf"},
    {1,
     {BASE, .lr_min = 1},
     KOLO_ERR_ARG,
     "minimum learning rate is 1: choose a number from 0, at most 0.01"},
    {1, {BASE, .optimizer.momentum = 1.5}, KOLO_ERR_ARG, "momentum is 1.5"},
    {1, {BASE, .optimizer.weight_decay = -1}, KOLO_ERR_ARG, "weight decay is -1"},
    {1, {BASE, .warmup_epochs = -1}, KOLO_ERR_ARG, "warm-up epochs is -1"},
    {1, {BASE, .lr_step_factor = 2}, KOLO_ERR_ARG, "learning-rate factor is 2"},
    {1,
     {BASE, .optimizer.kind = KOLO_OPTIMIZER_NESTEROV},
     KOLO_ERR_ARG,
     "nesterov without momentum"},
    {1, {BASE, .schedule = (kolo_lr_schedule)7}, KOLO_ERR_ARG, "schedule is 7"},
    {2, {BASE, .batch = 26, .in_memory = true}, KOLO_ERR_ARG, "need 52 samples, synthetic has 50"},
    {1, {BASE, .out_dir = "/dev/null/run"}, KOLO_ERR_IO, "/dev/null/run"},
    {1, {.model = "lenet", .data = "synthetic:shape=1x8x8"}, KOLO_ERR_ARG, "at least 12x12"},
};

/* A benchmark has the losses of training: with one global batch of data they differ in the loader
 * only. */
static void a_benchmark_trains(void **state) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        setting bench = {.opts = {.model = "lenet",
                                  .data = "synthetic:N=16,test=1",
                                  .batch = 16 / ranks,
                                  .steps = 6,
                                  .optimizer.momentum = 0.9,
                                  .in_memory = true}};
        setting job = bench;
        job.opts.in_memory = false;
        job.opts.no_eval = true;
        const outcome *o = train(ranks, &bench);
        all_is_well(o, ranks);
        const kolo_train_result measured = o[0].result;
        o = train(ranks, &job);
        all_is_well(o, ranks);
        const kolo_train_result *trained = &o[0].result;
        assert_int_equal(measured.steps, trained->steps);
        assert_int_equal(measured.losses_checked, 2);
        assert_int_equal(trained->losses_checked, 0);
        assert_true(fabs(measured.first_loss - trained->first_loss) < 1e-5);
        assert_true(fabs(measured.final.value[KOLO_METRIC_LOSS] -
                         trained->final.value[KOLO_METRIC_LOSS]) < 1e-4);
        assert_true(measured.final.value[KOLO_METRIC_LOSS] < measured.first_loss);
    }
}

static void bad_jobs_are_refused_before_they_start(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        kolo_status status = kolo_train_check(&r->opts, r->workers);
        if (status != r->status || !strstr(kolo_last_error(), r->text)) {
            fail_msg("%s \"%s\", not \"%s\"", kolo_status_text(status), kolo_last_error(), r->text);
        }
    }
    kolo_train_opts good = {BASE, .out_dir = "test_train_check"};
    ASSERT_OK(kolo_train_check(&good, 50));
    good.mesh = "dp=*,tp=1";
    ASSERT_OK(kolo_train_check(&good, 50));
    assert_int_equal(remove("test_train_check/metrics.jsonl"), 0);
    assert_int_equal(remove("test_train_check"), 0);
}

/* The message of rank `who`; the others have it with the prefix "rank N: ". */
static void all_fail(const outcome *o, int ranks, int who, kolo_status status, const char *text) {
    char reported[640];
    snprintf(reported, sizeof reported, "rank %d: %.600s", who, o[who].error);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(o[rank].status, status);
        assert_string_equal(o[rank].error, rank == who ? o[who].error : reported);
    }
    if (!strstr(o[who].error, text)) fail_msg("\"%s\" lacks \"%s\"", o[who].error, text);
}

static void ranks_fail_together(void **state) {
    setting folder = {.opts = {BASE, .out_dir = "/dev/null/run"}};
    all_fail(train(3, &folder), 3, 0, KOLO_ERR_IO, "/dev/null/run");
    setting model = {.opts = {.model = "lenett", .data = data}};
    all_fail(train(2, &model), 2, 0, KOLO_ERR_ARG, "did you mean");
    setting one = {.opts = {BASE}, .data_of_rank_1 = "mnist:/nowhere"};
    all_fail(train(3, &one), 3, 1, KOLO_ERR_IO, "/nowhere");
}

/* Options that differ between ranks are named before training. */
static void different_options_are_named(void **state) {
    setting s = {.opts = {.model = "mlp", .data = data, .batch = 20, .steps = 2}};
    s.seed_of_rank_1 = 3;
    all_fail(train(3, &s), 3, 1, KOLO_ERR_ARG, "rank 1 has \"seed: 3\", rank 0 has \"seed: 0\"");
    s.seed_of_rank_1 = 0;
    s.model_of_rank_1 = "hidden=7";
    all_fail(train(2, &s), 2, 1, KOLO_ERR_ARG, "rank 1 has \"model options: hidden=7\"");
    s.model_of_rank_1 = NULL;
    s.data_of_rank_1 = "synthetic:N=400,test=101,shape=1x14x14,seed=2";
    all_fail(train(2, &s), 2, 1, KOLO_ERR_ARG, "rank 1 has \"samples: 400\"");
    s.data_of_rank_1 = "synthetic:shape=1x14x14,N=500,seed=2,test=101"; /* the same */
    all_is_well(train(2, &s), 2);
    s.data_of_rank_1 = "synthetic:N=500,test=101,shape=1x14x14,seed=3";
    all_fail(train(3, &s), 3, 1, KOLO_ERR_ARG,
             "rank 1 has --data synthetic:N=500,test=101,shape=1x14x14,seed=3, rank 0 has --data "
             "synthetic:N=500,test=101,shape=1x14x14,seed=2; give all ranks the same keys");
}

static void write_rows(const char *path, int odd_row) {
    kolo_text text = {0};
    for (int i = 0; i < 40; i++) {
        kolo_text_add(&text, "%d,%d,%d\n", i == odd_row ? 5 : i % 7, i % 3, i % 2);
    }
    assert_false(text.failed);
    ASSERT_OK(kolo_file_write(path, text.text, text.length));
    kolo_text_fini(&text);
}

/* Files of the same length. Their paths may differ between ranks. */
static void different_data_are_refused(void **state) {
    setting s = {.opts = {.model = "mlp", .data = "csv:train-a.csv", .batch = 4, .steps = 2},
                 .data_of_rank_1 = "csv:train-b.csv"};
    write_rows("train-a.csv", -1);
    write_rows("train-b.csv", -1);
    all_is_well(train(2, &s), 2);
    write_rows("train-b.csv", 0);
    all_fail(train(3, &s), 3, 1, KOLO_ERR_ARG,
             "the ranks have different data: samples of csv in train-b.csv on rank 1 are not those "
             "of rank 0");
    s.data_of_rank_1 = "csv:train-a.csv,seed=1"; /* of the test split */
    all_fail(train(2, &s), 2, 1, KOLO_ERR_ARG, "rank 1 has --data csv:train-a.csv,seed=1, rank 0");
    assert_int_equal(remove("train-a.csv") + remove("train-b.csv"), 0);
}

/* One job at a time writes to a folder, and a new run replaces nothing that was trained. */
static void a_folder_holds_one_run(void **state) {
    setting s = {.opts = {.model = "mlp", .data = data, .batch = 20, .steps = 2, .out_dir = "one"}};
    all_is_well(train(1, &s), 1);
    int fd = open("one/metrics.jsonl", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    const outcome *o = train(1, &s);
    assert_int_equal(o->status, KOLO_ERR_IO);
    assert_non_null(strstr(o->error, "one/metrics.jsonl is being written by another job"));
    assert_int_equal(access("one/checkpoint-final.safetensors", F_OK), 0);
    close(fd);
    assert_int_equal(train(1, &s)->status, KOLO_ERR_ARG);
    assert_int_equal(unlink("one/checkpoint-final.safetensors"), 0);
    s.opts.lr = 1e6; /* diverges and leaves nothing: the folder can be used again */
    s.opts.steps = 20;
    assert_int_equal(train(1, &s)->status, KOLO_ERR_DIVERGED);
    assert_int_equal(access("one/checkpoint-final.safetensors", F_OK), -1);
    s.opts.lr = 0;
    all_is_well(train(1, &s), 1);
    assert_int_equal(unlink("one/checkpoint-final.safetensors"), 0);
    assert_int_equal(unlink("one/metrics.jsonl"), 0);
    assert_int_equal(unlink("one/loss.svg"), 0);
    assert_int_equal(rmdir("one"), 0);
}

static void divergence_is_named_by_its_step(void **state) {
    setting s = {.opts = {BASE, .lr = 1e5, .optimizer.momentum = 0.9, .batch = 5,
                          .out_dir = "test_train_nan"}};
    const outcome *o = train(2, &s);
    all_fail(o, 2, 0, KOLO_ERR_DIVERGED,
             "training diverged; lower the learning rate, which is 100000");
    assert_non_null(strstr(o[0].error, "at step "));
    assert_int_equal(remove("test_train_nan/metrics.jsonl"), 0);
    assert_int_equal(remove("test_train_nan"), 0); /* no checkpoint */
}

/* Each allocation of a job fails once: the job returns NOMEM and frees everything. */
static void no_allocation_goes_unchecked(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .model_options = "hidden=4,layers=1",
                            .data = "synthetic:N=9,test=4,shape=1x2x2,classes=2",
                            .batch = 4,
                            .out_dir = "test_train_memory",
                            .resolved_config = ""};
    kolo_train_result result;
    kolo_status status = KOLO_ERR_NOMEM;
    for (long n = 1; status != KOLO_OK; n++) {
        assert_true(n < 100000);
        kolo_alloc_fail_nth(n);
        status = kolo_train(NULL, &opts, NULL, NULL, &result);
        kolo_alloc_fail_nth(0);
        bool reported = status == KOLO_ERR_NOMEM || strstr(kolo_last_error(), "memory");
        if (status != KOLO_OK && !reported) {
            fail_msg("allocation %ld: %s", n, kolo_last_error());
        }
    }
    remove_run("test_train_memory");
}

TEST_MAIN(test_train) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_reports_evaluates_and_saves),
        cmocka_unit_test(steps_end_a_run_within_an_epoch),
        cmocka_unit_test(a_batch_in_memory_is_learnt_by_heart),
        cmocka_unit_test(a_benchmark_trains),
        cmocka_unit_test(bad_jobs_are_refused_before_they_start),
        cmocka_unit_test(ranks_fail_together),
        cmocka_unit_test(different_options_are_named),
        cmocka_unit_test(different_data_are_refused),
        cmocka_unit_test(a_folder_holds_one_run),
        cmocka_unit_test(divergence_is_named_by_its_step),
        cmocka_unit_test(no_allocation_goes_unchecked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
