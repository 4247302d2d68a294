/* Runs of a program (kolo_fit): the bits and files of training jobs, ends by callbacks, resuming,
 * several runs of one session, and misuse. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/rng.h"
#include "kolo/models.h"
#include "kolo/session.h"
#include "plan/plan.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EPOCHS = 3, STEPS = 7 }; /* of an epoch */

#define DATA "synthetic:N=210,test=33,shape=1x28x28,classes=10"

static kolo_status build_lenet(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_model *model;
    kolo_model_opts opts = {
        .batch = samples, .sample = {3, {1, 28, 28}}, .classes = 10, .options = ""};
    KOLO_TRY(kolo_model_find("lenet", &model));
    return model->build(g, &opts);
}

typedef struct setting {
    int64_t global_batch, reproducible, audit, stop_after; /* stop_after: epochs; 0: never */
    const char *weights, *augment, *consistency, *compress;
    bool resumes; /* in two parts */
} setting;

typedef struct outcome {
    kolo_train_result job, fit;
    int64_t asked, reports;
    int64_t steps; /* of the session */
} outcome;

static void observe(void *arg, const kolo_train_progress *p) {
    ((outcome *)arg)->reports += p->step > 0;
}

typedef struct stopping {
    outcome *o;
    int64_t after;
} stopping;

static bool stop(void *arg, const kolo_train_progress *p) {
    stopping *s = arg;
    s->o->asked++;
    return s->after > 0 && p->epoch >= s->after && p->train.value[KOLO_METRIC_LOSS] > 0;
}

static void observe_stopping(void *arg, const kolo_train_progress *p) {
    observe(((stopping *)arg)->o, p);
}

static kolo_status train_job(kolo_comm *comm, const setting *s, outcome *o) {
    kolo_train_opts opts = {.model = "lenet",
                            .data = DATA,
                            .global_batch = s->global_batch,
                            .reproducible = s->reproducible,
                            .audit = s->audit,
                            .worker_weights = s->weights,
                            .augment = s->augment,
                            .consistency = s->consistency,
                            .compress = s->compress,
                            .epochs = s->stop_after ? s->stop_after : EPOCHS,
                            .eval_every = 1,
                            .lr = 0.05,
                            .optimizer = {.momentum = 0.9},
                            .seed = 3};
    return kolo_train(comm, &opts, NULL, NULL, &o->job);
}

static kolo_status fit_data(kolo_comm *comm, const setting *s, const kolo_dataset *train,
                            const kolo_dataset *test, outcome *o) {
    stopping when = {o, s->stop_after};
    const kolo_session_opts opts = {.global_batch = s->global_batch,
                                    .reproducible = s->reproducible,
                                    .consistency = s->consistency,
                                    .compress = s->compress,
                                    .lr = 0.05,
                                    .optimizer = {.momentum = 0.9},
                                    .seed = 3};
    kolo_fit_opts fit = {.epochs = EPOCHS,
                         .eval_every = 1,
                         .audit = s->audit,
                         .worker_weights = s->weights,
                         .augment = s->augment,
                         .arg = &when};
    if (kolo_comm_rank(comm) == 0) fit.observer = observe_stopping, fit.stop = stop;
    kolo_session *session = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_lenet, NULL, &session), done);
    if (s->resumes) {
        fit.epochs = 2;
        fit.out_dir = "run";
        fit.checkpoint_steps = 5;
        fit.eval_every = 0;
        KOLO_TRY_GOTO(kolo_fit(session, train, NULL, &fit, NULL), done);
        kolo_session_destroy(session); /* another program goes on */
        session = NULL;
        KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_lenet, NULL, &session), done);
        fit.epochs = EPOCHS;
        fit.eval_every = 1;
        fit.resume = "run";
    }
    KOLO_TRY_GOTO(kolo_fit(session, train, test, &fit, &o->fit), done);
    o->steps = kolo_session_steps(session);
done:
    kolo_session_destroy(session);
    return status;
}

static kolo_status train_both(kolo_comm *comm, const void *arg, void *result) {
    kolo_dataset *train = NULL, *test = NULL;
    kolo_status status;
    KOLO_TRY(train_job(comm, arg, result));
    KOLO_TRY_GOTO(kolo_dataset_open(DATA, KOLO_SPLIT_TRAIN, &train), done);
    KOLO_TRY_GOTO(kolo_dataset_open(DATA, KOLO_SPLIT_TEST, &test), done);
    status = fit_data(comm, arg, train, test, result);
done:
    kolo_dataset_close(train);
    kolo_dataset_close(test);
    return status;
}

static outcome run(int ranks, setting s) {
    static outcome o[3];
    rank_job job = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = train_both,
                    .arg = &s,
                    .arg_bytes = sizeof s,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 0; rank < ranks; rank++) {
        const kolo_train_result *a = &o[rank].job, *b = &o[rank].fit;
        assert_true(a->parameter_hash == b->parameter_hash);
        assert_true(a->first_loss == b->first_loss && a->samples == b->samples);
        assert_true(a->steps == b->steps && a->epochs == b->epochs && b->evaluated);
        assert_true(a->test.value[KOLO_METRIC_LOSS] == b->test.value[KOLO_METRIC_LOSS]);
        assert_true(a->final.value[KOLO_METRIC_LOSS] == b->final.value[KOLO_METRIC_LOSS]);
        assert_true(kolo_metrics_get(&a->test, "accuracy") ==
                    kolo_metrics_get(&b->test, "accuracy"));
        assert_int_equal(o[rank].steps, b->steps);
    }
    return o[0];
}

static void runs_are_those_of_training_jobs(void **state) {
    outcome o = run(1, (setting){.global_batch = 32});
    assert_int_equal(o.fit.steps, EPOCHS * STEPS);
    assert_int_equal(o.asked, EPOCHS);
    assert_true(o.reports >= EPOCHS);
    (void)run(2, (setting){.global_batch = 32, .augment = "flip,crop=2"});
    (void)run(3, (setting){.global_batch = 32, .reproducible = 8, .weights = "1,3,1"});
    (void)run(2, (setting){.global_batch = 32, .reproducible = 8, .audit = 5});
    (void)run(2, (setting){.global_batch = 32, .consistency = "lag:2", .compress = "int8"});
    (void)run(2, (setting){.global_batch = 32, .consistency = "diloco:4,fragments=2,overlap=1"});
}

/* ---- updates in the next step ---- */

enum { MOST_STEPS = 64 };

typedef struct crossed {
    uint64_t hash[MOST_STEPS + 1]; /* of a parameter after each step; last: of all, at the end */
    int steps, left;               /* steps that had left updates when the callback came */
} crossed;

typedef struct watch {
    kolo_session *session;
    crossed *out;
    bool reads;
    int steps;
} watch;

/* After each step, on each rank; one that reads a parameter need not be followed by the others. */
static bool look(void *arg) {
    watch *w = arg;
    float values[10 * 84];
    w->out->left += kolo_store_has_deferred(kolo_session_store(w->session));
    if (!w->reads) return false;
    const bool read = kolo_session_get(w->session, "fc3.weight", values, sizeof values) == KOLO_OK;
    w->out->hash[w->out->steps++ % MOST_STEPS] = read ? kolo_hash_bytes(values, sizeof values) : 0;
    return false;
}

static kolo_status fit_crossing(kolo_comm *comm, const void *arg, void *result) {
    const bool *off = arg;
    watch w = {.out = result, .reads = *off || kolo_comm_rank(comm) == 0};
    const kolo_session_opts opts = {
        .global_batch = 32, .optimizer.kind = KOLO_OPTIMIZER_LAMB, .bucket_bytes = 1000, .seed = 3};
    const kolo_fit_opts fit = {
        .epochs = 2, .interrupted = look, .arg = &w, .no_cross_step = *off, .eval_every = 1};
    kolo_train_result r;
    kolo_dataset *train = NULL, *test = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_open(DATA, KOLO_SPLIT_TRAIN, &train), done);
    KOLO_TRY_GOTO(kolo_dataset_open(DATA, KOLO_SPLIT_TEST, &test), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_lenet, NULL, &w.session), done);
    KOLO_TRY_GOTO(kolo_fit(w.session, train, test, &fit, &r), done);
    w.out->hash[MOST_STEPS] = r.parameter_hash;
done:
    kolo_session_destroy(w.session);
    kolo_dataset_close(train);
    kolo_dataset_close(test);
    return status;
}

static void runs_leave_updates_to_the_next_step(void **state) {
    static crossed results[2][2];
    for (int off = 0; off < 2; off++) {
        const bool arg = off;
        rank_job job = {.n = 2,
                        .transport = RANKS_THREAD,
                        .body = fit_crossing,
                        .arg = &arg,
                        .arg_bytes = sizeof arg,
                        .results = results[off],
                        .result_bytes = sizeof results[off][0]};
        ASSERT_OK(run_rank_job(&job));
    }
    const crossed *left = results[0], *whole = results[1];
    assert_true(left[1].left > 0 && whole[0].left == 0 && whole[1].left == 0);
    assert_true(left[0].steps > 2 && left[0].steps <= MOST_STEPS);
    assert_memory_equal(left[0].hash, whole[0].hash, sizeof left[0].hash);
}

static void callbacks_end_runs_on_all_ranks(void **state) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        outcome o = run(ranks, (setting){.global_batch = 32, .stop_after = 2});
        assert_int_equal(o.fit.steps, 2 * STEPS);
        assert_int_equal(o.asked, 2);
    }
}

static bool interrupts(void *arg) { return ++*(int *)arg == 3; }

static void interruptions_end_runs(void **state) {
    int steps = 0;
    const kolo_session_opts opts = {.batch = 32};
    const kolo_fit_opts fit = {.epochs = 2, .interrupted = interrupts, .arg = &steps};
    kolo_dataset *train;
    kolo_session *session;
    assert_int_equal(kolo_dataset_open(DATA, KOLO_SPLIT_TRAIN, &train), KOLO_OK);
    assert_int_equal(kolo_session_create(NULL, &opts, build_lenet, NULL, &session), KOLO_OK);
    assert_int_equal(kolo_fit(session, train, NULL, &fit, NULL), KOLO_ERR_PEER);
    assert_non_null(strstr(kolo_last_error(), "interrupted by the user after step 3"));
    assert_int_equal(kolo_session_steps(session), 3);
    kolo_session_destroy(session);
    kolo_dataset_close(train);
}

static void runs_resume_with_the_same_bits(void **state) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        assert_int_equal(system("rm -rf run"), 0);
        (void)run(ranks, (setting){.global_batch = 32, .resumes = true});
        assert_true(kolo_file_exists("run/metrics.jsonl"));
        assert_true(kolo_file_exists("run/loss.svg"));
        assert_true(kolo_file_exists("run/checkpoint-final.safetensors"));
        assert_true(kolo_file_exists("run/latest"));
    }
}

/* ---- own data: a line through points ---- */

enum { POINTS = 40 };

static kolo_status build_line(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "in", KOLO_DTYPE_F32, kolo_shape_2(n, 1));
    kolo_value t = kolo_input(g, "out", KOLO_DTYPE_F32, kolo_shape_2(n, 1));
    kolo_value a = kolo_param(g, "a", kolo_shape_2(1, 1), kolo_init_fan_in(1));
    kolo_value b = kolo_param(g, "b", kolo_shape_1(1), kolo_init_fan_in(1));
    kolo_output(g, "loss", kolo_mse_loss(g, kolo_linear_bias(g, x, a, b), t));
    return KOLO_OK;
}

static const kolo_field line[] = {{"in", KOLO_DTYPE_F32, {1, {1}}, .mean = {0}},
                                  {"out", KOLO_DTYPE_F32, {1, {1}}, .mean = {0}}};

/* Steps of the program's own, a run, and a longer run that goes on. */
static void a_session_has_several_runs(void **state) {
    float x[POINTS], y[POINTS], a;
    for (int i = 0; i < POINTS; i++) x[i] = (float)i / POINTS, y[i] = 3 * x[i] - 1;
    const kolo_source source = {.count = POINTS, .n_fields = 2, .fields = line, .data = {x, y}};
    const kolo_session_opts opts = {.batch = 10, .lr = 0.4};
    const kolo_batch batch = {.count = 10, .n_fields = 2, .fields = line, .data = {x, y}};
    kolo_dataset *set;
    kolo_session *s;
    kolo_train_result result;
    ASSERT_OK(kolo_dataset_create(&source, &set));
    ASSERT_OK(kolo_session_create(NULL, &opts, build_line, NULL, &s));
    for (int k = 0; k < 2; k++) ASSERT_OK(kolo_session_step(s, &batch, NULL));
    ASSERT_OK(kolo_fit(s, set, NULL, NULL, &result));
    assert_int_equal(result.steps, 4);
    assert_int_equal(result.samples, 20); /* of the two steps */
    assert_true(!result.evaluated && result.final.value[KOLO_METRIC_LOSS] > 0);
    ASSERT_OK(kolo_fit(s, set, set, &(kolo_fit_opts){.epochs = 100}, &result));
    assert_int_equal(kolo_session_steps(s), 400);
    assert_true(result.evaluated && result.test.value[KOLO_METRIC_LOSS] < 1e-6);
    static const char ended[] = "has made 400 steps (of 4 in an epoch), and this run ends at step";
    ASSERT_REFUSED(kolo_fit(s, set, set, &(kolo_fit_opts){.epochs = 100}, &result), ended);
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.steps = 10}, &result), ended);
    ASSERT_OK(kolo_session_get(s, "a", &a, sizeof a));
    assert_true(fabsf(a - 3) < 0.01F);
    kolo_session_destroy(s);
    kolo_dataset_close(set);
}

static kolo_status fit_line(kolo_comm *comm, const void *arg, void *result) {
    const bool rank0 = kolo_comm_rank(comm) == 0, lines_differ = *(const bool *)arg;
    static const float x[POINTS] = {1, 2, 3};
    const kolo_source source = {.count = POINTS, .n_fields = 2, .fields = line, .data = {x, x}};
    const kolo_session_opts opts = {.batch = 2};
    const kolo_fit_opts fit = {.epochs = 1,
                               .out_dir = rank0 && !lines_differ ? "lines" : NULL,
                               .log_every = lines_differ && rank0 ? 3 : 2};
    kolo_dataset *set = NULL;
    kolo_session *s = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_create(&source, &set), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_line, NULL, &s), done);
    KOLO_TRY_GOTO(kolo_fit(s, set, NULL, &fit, NULL), done);
done:
    kolo_session_destroy(s);
    kolo_dataset_close(set);
    return status;
}

static void rank_0_alone_needs_a_folder(void **state) {
    bool lines_differ = false;
    ASSERT_OK(run_ranks(2, RANKS_THREAD, fit_line, &lines_differ, sizeof lines_differ));
    char *lines = test_contents("lines/metrics.jsonl");
    assert_non_null(strstr(lines, "ms_per_step"));
    kolo_free(lines);
    lines_differ = true;
    assert_int_equal(run_ranks(2, RANKS_THREAD, fit_line, &lines_differ, sizeof lines_differ),
                     KOLO_ERR_ARG);
}

static void runs_that_cannot_be_are_refused(void **state) {
    static float x[POINTS];
    const kolo_source source = {.count = POINTS, .n_fields = 2, .fields = line, .data = {x, x}};
    const kolo_source half = {.count = POINTS, .n_fields = 1, .fields = line, .data = {x}};
    kolo_dataset *set, *other;
    kolo_session *s, *forward;
    ASSERT_OK(kolo_dataset_create(&source, &set));
    ASSERT_OK(kolo_dataset_create(&half, &other));
    ASSERT_OK(kolo_session_create(NULL, NULL, build_line, NULL, &s));
    ASSERT_OK(kolo_session_create(NULL, &(kolo_session_opts){.evaluate_only = true}, build_line,
                                  NULL, &forward));
    ASSERT_REFUSED(kolo_fit(NULL, set, NULL, NULL, NULL), "no session");
    ASSERT_REFUSED(kolo_fit(forward, set, NULL, NULL, NULL), "evaluates only");
    ASSERT_REFUSED(kolo_fit(s, NULL, NULL, NULL, NULL), "no data set");
    ASSERT_REFUSED(kolo_fit(s, other, NULL, NULL, NULL),
                   "data of the program: the batch has no field");
    ASSERT_REFUSED(kolo_fit(s, set, other, NULL, NULL), "no field \"out\"");
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.epochs = -1}, NULL), "epochs");
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.augment = "flip"}, NULL), "augment");
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.augment = "mixup=1"}, NULL),
                   "mixup and cutmix have no effect on the loss of a graph of kolo_fit");
    kolo_loader *loader;
    ASSERT_REFUSED(kolo_session_loader(s, set, "cutmix=1", 1, &loader), "has no such input");
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.audit = 1}, NULL), "audit");
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.worker_weights = "1"}, NULL),
                   "weights");
    ASSERT_REFUSED(kolo_fit(s, set, NULL, &(kolo_fit_opts){.checkpoint_steps = 1}, NULL), "folder");
    ASSERT_OK(kolo_fit(s, set, NULL, NULL, NULL));
    kolo_session_destroy(s);
    kolo_session_destroy(forward);
    kolo_dataset_close(set);
    kolo_dataset_close(other);
}

/* x -> w x, against 1. */
static kolo_status build_product(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(samples, 1));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(samples, 1));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(1, 1), (kolo_init){KOLO_INIT_ONE, 0});
    kolo_output(g, "loss", kolo_mse_loss(g, kolo_linear(g, x, w), y));
    return kolo_graph_check(g);
}

static void find_nan(void *arg, const char *text, kolo_notice_kind kind) {
    bool found = kind == KOLO_NOTICE_WARNING && strstr(text, "test loss is NaN");
    *(int *)arg += found;
}

static void a_test_loss_of_nan_is_no_secret(void **state) {
    static const float x[] = {1, 2, 3, 4}, y[] = {1, 1, 1, 1}, bad[] = {1, NAN, 1, 1};
    static const kolo_field fields[] = {
        {.name = "x", .dtype = KOLO_DTYPE_F32, .shape = {1, {1}}},
        {.name = "y", .dtype = KOLO_DTYPE_F32, .shape = {1, {1}}},
    };
    kolo_source source = {.count = 4, .n_fields = 2, .fields = fields, .data = {x, y}};
    kolo_dataset *train, *test;
    kolo_session *session;
    int warnings = 0;
    ASSERT_OK(kolo_dataset_create(&source, &train));
    source.data[0] = bad;
    ASSERT_OK(kolo_dataset_create(&source, &test));
    const kolo_session_opts opts = {.batch = 4, .lr = 0.01};
    ASSERT_OK(kolo_session_create(NULL, &opts, build_product, NULL, &session));
    const kolo_fit_opts fit = {
        .steps = 4, .epochs = 4, .eval_steps = 2, .notice = find_nan, .notice_arg = &warnings};
    ASSERT_OK(kolo_fit(session, train, test, &fit, NULL));
    assert_int_equal(warnings, 2);
    kolo_session_destroy(session);
    kolo_dataset_close(train);
    kolo_dataset_close(test);
}

/* ---- one rank fails ---- */

typedef enum failure { READS, LABELS, TEST_LABELS, INTERRUPTED, FAILURES } failure;

/* What the reader of rank 1 does. */
typedef struct reader {
    failure failure;
    bool fails;
} reader;

static const kolo_field classes[] = {{"x", KOLO_DTYPE_F32, {1, {1}}, .mean = {0}},
                                     {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};

static kolo_status build_classes(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(n, 1));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 1), kolo_init_fan_in(1));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    return kolo_graph_check(g);
}

static kolo_status read_classes(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    const reader *r = arg;
    if (r->fails && r->failure == READS) return KOLO_FAIL(KOLO_ERR_IO, "the disk is gone");
    for (int64_t i = 0; i < n; i++) {
        ((float *)data[0])[i] = (float)indices[i];
        ((int32_t *)data[1])[i] = r->fails && r->failure != INTERRUPTED ? 3 : (int32_t)i % 3;
    }
    return KOLO_OK;
}

static bool always(void *arg) { return true; }

static kolo_status fail_body(kolo_comm *comm, const void *arg, void *result) {
    const failure f = *(const failure *)arg;
    const bool second = kolo_comm_rank(comm) == 1;
    reader good = {.failure = f}, bad = {.failure = f, .fails = second};
    kolo_source source = {
        .count = POINTS, .n_fields = 2, .fields = classes, .gather = read_classes};
    const kolo_session_opts opts = {.batch = 2};
    const kolo_fit_opts fit = {.epochs = 2,
                               .interrupted = f == INTERRUPTED && second ? always : NULL};
    kolo_dataset *train = NULL, *test = NULL;
    kolo_session *s = NULL;
    kolo_status status;
    source.arg = f == TEST_LABELS ? &good : &bad;
    KOLO_TRY_GOTO(kolo_dataset_create(&source, &train), done);
    source.arg = &bad;
    KOLO_TRY_GOTO(kolo_dataset_create(&source, &test), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_classes, NULL, &s), done);
    KOLO_TRY_GOTO(kolo_fit(s, train, f == TEST_LABELS ? test : NULL, &fit, NULL), done);
done:
    kolo_session_destroy(s);
    kolo_dataset_close(train);
    kolo_dataset_close(test);
    return status;
}

/* The other one gets its error, and does not wait until it leaves. */
static void an_error_of_one_rank_ends_the_run(void **state) {
    static const char *const errors[FAILURES] = {
        [READS] = "rank 1: the disk is gone",
        [LABELS] = "rank 1: label 3 at index 0 of field \"y\" is outside 0..2",
        [TEST_LABELS] = "label 3 at index 0 of field \"y\" is outside 0..2",
        [INTERRUPTED] = "rank 1: interrupted by the user after step 1",
    };
    for (failure f = READS; f < FAILURES; f++) {
        rank_outcome outcomes[2];
        const rank_job job = {.n = 2,
                              .transport = RANKS_SHM,
                              .body = fail_body,
                              .arg = &f,
                              .arg_bytes = sizeof f,
                              .outcomes = outcomes};
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        for (int r = 0; r < 2; r++) {
            if (!strstr(outcomes[r].error, errors[f]))
                fail_msg("rank %d: %s", r, outcomes[r].error);
        }
    }
}

TEST_MAIN(test_fit) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_those_of_training_jobs),
        cmocka_unit_test(runs_leave_updates_to_the_next_step),
        cmocka_unit_test(callbacks_end_runs_on_all_ranks),
        cmocka_unit_test(interruptions_end_runs),
        cmocka_unit_test(runs_resume_with_the_same_bits),
        cmocka_unit_test(a_session_has_several_runs),
        cmocka_unit_test(a_test_loss_of_nan_is_no_secret),
        cmocka_unit_test(an_error_of_one_rank_ends_the_run),
        cmocka_unit_test(rank_0_alone_needs_a_folder),
        cmocka_unit_test(runs_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
