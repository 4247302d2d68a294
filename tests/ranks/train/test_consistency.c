/* Runs whose workers train on their own between rounds: what the policy accepts and refuses, what
 * it communicates, compressed or not, and that neither evaluation, files nor a resume change a bit.
 */
#include "base/compiler.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/checkpoint/checkpoint.h"
#include "train/session/consistency.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char images[] = "synthetic:N=61,test=10,shape=1x28x28,seed=2";
static const char small[] = "synthetic:N=61,test=10,shape=1x8x8,seed=2";

/* Running statistics, momentum, and steps in which a rank has no samples. */
static kolo_train_opts options(const char *consistency) {
    return (kolo_train_opts){
        .model = small_resnet(),
        .model_options = "width=4",
        .data = small,
        .optimizer.momentum = 0.9,
        .batch = 4,
        .epochs = 20,
        .steps = 10,
        .lr = 0.02,
        .no_eval = true,
        .consistency = consistency,
    };
}

static void one_rank_trains_as_without_rounds(void **state) {
    kolo_train_opts opts = options(NULL);
    const kolo_train_result plain = train_well(1, &opts);
    opts.consistency = "local:3";
    const kolo_train_result local = train_well(1, &opts);
    assert_same_run("local:3 on one rank", &plain, &local);
}

/* The first updates are of zeros. */
static void a_lag_of_one_rank_delays_its_updates(void **state) {
    kolo_train_opts opts = {
        .model = "mlp", .data = images, .batch = 61, .lr = 0.1, .epochs = 5, .no_eval = true};
    opts.steps = 1;
    const kolo_train_result one = train_well(1, &opts);
    opts.consistency = "lag:3";
    opts.steps = 4;
    const kolo_train_result four = train_well(1, &opts);
    assert_true(four.first_loss == one.first_loss);
    opts.steps = 3;
    const kolo_train_result three = train_well(1, &opts);
    double rest = three.final.value[KOLO_METRIC_LOSS] / three.first_loss;
    assert_true(fabs(rest - 1) < 1e-6); /* another order of the samples */
    assert_true(four.parameter_hash != three.parameter_hash);
}

static const char *const policies[] = {"local:4", "bmuf:3",
                                       "diloco:4,lr=0.8,fragments=3,strided=1,overlap=3", "lag:2",
                                       "diloco:3,warmup=4,fragments=2,overlap=1"};

static void reading_the_parameters_does_not_change_them(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = options(policies[i]);
        const kolo_train_result alone = train_well(3, &opts);
        opts.no_eval = false;
        opts.eval_steps = 1;
        opts.check_replicas = 1;
        kolo_train_result watched = train_well(3, &opts);
        assert_true(watched.evaluated);
        watched.test = alone.test;
        assert_same_run(policies[i], &alone, &watched);
    }
}

static kolo_status process_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_train_opts opts = options("diloco:4"); /* options have pointers */
    return train_body(comm, &opts, result);
}

static void threads_and_processes_agree_bitwise(void **state) {
    static train_outcome outcomes[2];
    const kolo_train_opts opts = options("diloco:4");
    const kolo_train_result threads = train_well(2, &opts);
    rank_job job = {
        .n = 2,
        .transport = RANKS_SHM,
        .body = process_body,
        .results = outcomes,
        .result_bytes = sizeof *outcomes,
    };
    ASSERT_OK(run_rank_job(&job));
    if (outcomes[0].status != KOLO_OK) fail_msg("%s", outcomes[0].error);
    assert_same_run("processes", &threads, &outcomes[0].result);
}

/* Fails unless a run that ends after 7 steps and is resumed has the bits of one that is not. Leaves
 * the options of the resumed one. */
static void assert_resumes(const char *what, int ranks, kolo_train_opts *opts, int64_t every) {
    const kolo_train_result whole = train_well(ranks, opts);
    assert_int_equal(system("rm -rf run"), 0);
    opts->out_dir = "run";
    opts->checkpoint_steps = every;
    opts->steps = 7;
    (void)train_well(ranks, opts);
    opts->resume = "run";
    opts->steps = 10;
    const kolo_train_result resumed = train_well(ranks, opts);
    assert_same_run(what, &whole, &resumed);
}

/* Step 7 is within a round: each rank has a version of its own. */
static void a_run_resumes_within_a_round(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = options(policies[i]);
        assert_resumes(policies[i], 2, &opts, 2);
        const train_outcome *other = train_job(3, RANKS_THREAD, &opts);
        assert_int_equal(other[0].status, KOLO_ERR_ARG);
    }
}

/* ---- a warm-up of whole gradients ---- */

/* The momentum of the ranks in a file: one for all, or a stack of theirs. */
static int stored_rank(const char *path) {
    kolo_checkpoint c;
    ASSERT_OK(kolo_checkpoint_open(path, &c));
    const kolo_safetensors_entry *e = kolo_safetensors_find(c.file, "optimizer.velocity.fc.weight");
    assert_non_null(e);
    const int rank = e->shape.rank;
    kolo_checkpoint_close(&c);
    return rank;
}

/* In its middle, at its end, in the first round and behind it. */
static void a_run_resumes_around_the_end_of_its_warm_up(void **state) {
    static const struct {
        const char *policy, *compress;
    } cases[] = {{"local:3,warmup=4", NULL}, {"bmuf:3,warmup=4", "int8"}};
    static const int from[] = {2, 4, 5, 8}; /* the second policy: every other one */
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(cases[i].policy);
        opts.compress = cases[i].compress;
        opts.compress_min_bytes = 512;
        assert_int_equal(system("rm -rf run"), 0);
        opts.out_dir = "run";
        opts.checkpoint_steps = 1;
        opts.notice = train_note;
        train_notices[0] = '\0';
        const kolo_train_result whole = train_well(3, &opts);
        const char *line = "workers train on their own from step 5 on, with a round every 3 steps";
        if (!strstr(train_notices, line)) fail_msg("%s", train_notices);
        opts.out_dir = NULL;
        opts.checkpoint_steps = 0;
        for (size_t k = i; k < KOLO_COUNT(from); k += 1 + i) {
            char path[64];
            snprintf(path, sizeof path, "run/checkpoint-%d.safetensors", from[k]);
            assert_int_equal(stored_rank(path), from[k] > 4 ? 3 : 2);
            opts.resume = path;
            const kolo_train_result resumed = train_well(3, &opts);
            assert_same_run(path, &whole, &resumed);
        }
    }
}

static void the_steps_of_a_warm_up_are_those_of_bsp(void **state) {
    kolo_train_opts opts = options(NULL);
    const kolo_train_result bsp = train_well(3, &opts);
    opts.consistency = "diloco:2,warmup=10";
    opts.notice = train_note;
    train_notices[0] = '\0';
    const kolo_train_result warm = train_well(3, &opts);
    assert_same_run("warm-up", &bsp, &warm);
    const char *line = "the run ends after step 10, within the warm-up of 10 steps";
    if (!strstr(train_notices, line)) fail_msg("%s", train_notices);
    opts.consistency = "diloco:2,warmup=8";
    train_notices[0] = '\0';
    assert_true(train_well(3, &opts).parameter_hash != bsp.parameter_hash);
    if (strstr(train_notices, "within the warm-up")) fail_msg("%s", train_notices);
    opts.notice = NULL;
    const kolo_train_result plain = (opts.consistency = NULL, train_well(1, &opts));
    opts.consistency = "local:2,warmup=4";
    const kolo_train_result one = train_well(1, &opts);
    assert_same_run("local:2 on one rank", &plain, &one);
}

/* A benchmark repeats its first steps, from the plans that these had. */
static void a_benchmark_may_have_a_warm_up(void **state) {
    const kolo_train_opts opts = {.model = "mlp",
                                  .model_options = "hidden=8",
                                  .batch = 2,
                                  .steps = 8,
                                  .lr = 0.01,
                                  .in_memory = true,
                                  .consistency = "diloco:2,warmup=3"};
    assert_int_equal(train_well(2, &opts).losses_checked, 2);
}

/* Residuals are state; a rank without samples sends what is left of earlier steps. */
static void compressed_runs_resume_bitwise(void **state) {
    static const char *const codecs[] = {"f16", "int8", "1bit", "topk:0.1", "powersgd:2", "bf16"};
    const size_t n = TEST_FEWER(KOLO_COUNT(codecs) - 1, KOLO_COUNT(codecs));
    for (size_t i = TEST_FEWER(1, 0); i < n; i++) {
        kolo_train_opts opts = options(i == 1   ? "diloco:3,fragments=2,overlap=2"
                                       : i == 3 ? "lag:2"
                                                : NULL);
        opts.accumulate = i == 2 ? 2 : 1;
        opts.compress = codecs[i];
        opts.compress_min_bytes = 512;
        opts.check_replicas = 1;
        assert_resumes(codecs[i], 3, &opts, 5);
    }
}

/* Lines that only some runs have: the option that the other lacks is the one named. */
static void another_policy_is_named_on_resume(void **state) {
    kolo_train_opts opts = options("lag:2");
    assert_int_equal(system("rm -rf run"), 0);
    opts.compress = "f16";
    opts.compress_min_bytes = 512;
    opts.out_dir = "run";
    opts.checkpoint_steps = 2;
    opts.steps = 4;
    (void)train_well(2, &opts);
    opts.resume = "run";
    opts.steps = 6;
    opts.consistency = "bsp";
    const train_outcome *o = train_job(2, RANKS_THREAD, &opts);
    assert_non_null(strstr(o->error, "with --consistency lag:2, which this job lacks"));
    opts.consistency = "lag:1";
    o = train_job(2, RANKS_THREAD, &opts);
    assert_non_null(strstr(o->error, "with --consistency lag:2, this job has --consistency lag:1"));
    opts.consistency = "lag:2";
    opts.compress = NULL;
    o = train_job(2, RANKS_THREAD, &opts);
    assert_non_null(strstr(o->error, "with --compress f16, which this job lacks"));
}

/* ---- what is communicated ---- */

typedef struct traffic_case {
    const char *consistency, *compress;
    int64_t steps;
} traffic_case;

static kolo_status traffic_body(kolo_comm *comm, const void *arg, void *result) {
    const traffic_case *c = arg;
    kolo_train_opts opts = {.model = "lenet",
                            .data = images,
                            .batch = 1,
                            .epochs = 20,
                            .steps = c->steps,
                            .no_eval = true,
                            .algorithm = KOLO_ALGORITHM_RING,
                            .compress = c->compress,
                            .compress_min_bytes = 1,
                            .consistency = c->consistency};
    kolo_train_result run;
    kolo_peer_traffic traffic;
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &run));
    KOLO_TRY(kolo_comm_peer_traffic(comm, !kolo_comm_rank(comm), &traffic));
    *(uint64_t *)result = traffic.received_bytes;
    return KOLO_OK;
}

static double bytes_received(const char *consistency, const char *compress, int64_t steps) {
    const traffic_case c = {consistency, compress, steps};
    uint64_t bytes[2] = {0};
    rank_job job = {
        .n = 2,
        .transport = RANKS_THREAD,
        .body = traffic_body,
        .arg = &c,
        .arg_bytes = sizeof c,
        .results = bytes,
        .result_bytes = sizeof *bytes,
    };
    ASSERT_OK(run_rank_job(&job));
    return (double)bytes[0];
}

/* In 8 steps, by one of two ranks. */
static double bytes_of(const char *consistency, const char *compress) {
    return bytes_received(consistency, compress, 16) - bytes_received(consistency, compress, 8);
}

static void rounds_and_codecs_cut_the_bytes(void **state) {
    static const struct {
        const char *consistency, *compress;
        double part; /* of the bytes of f32 in every step */
    } rows[] = {{"local:8", NULL, 1.0 / 8},
                {"diloco:8", NULL, 1.0 / 8},
                {"diloco:8,fragments=3,overlap=3", NULL, 1.0 / 8},
                {NULL, "f16", 1.0 / 2},
                {NULL, "int8", (1 + 4.0 / 256) / 4},
                {NULL, "1bit", 1.0 / 32},
                {NULL, "topk:0.01", 0.02},
                {NULL, "powersgd:4", 4296 / 61706.0}, /* 4 (n + m) of each matrix, and vectors */
                {"diloco:8", "int8", 1 / 31.5}};
    const double all = bytes_of(NULL, NULL);
    assert_true(all > 8 * 61706 * 4.0);
    for (size_t i = 0; i < KOLO_COUNT(rows); i += TEST_FEWER(2, 1)) {
        double part = bytes_of(rows[i].consistency, rows[i].compress) / all;
        double within = rows[i].part < 0.1 ? 0.1 : 0.02; /* small tensors, metrics */
        if (fabs(part / rows[i].part - 1) < within) continue;
        fail_msg("%s %s: %g of the bytes", rows[i].consistency, rows[i].compress, part);
    }
}

/* The warm-up has the bytes of bsp, and what follows those of rounds. */
static void a_warm_up_has_the_bytes_of_whole_gradients(void **state) {
    const char *policy = "diloco:8,warmup=8";
    const double warm = bytes_received(policy, NULL, 8), bsp = bytes_received(NULL, NULL, 8);
    const double rounds = bytes_received(policy, NULL, 32) - bytes_received(policy, NULL, 16);
    const double step = bytes_of(NULL, NULL) / 8;
    if (!(fabs(warm / bsp - 1) < 0.01)) fail_msg("%g and %g bytes", warm, bsp);
    if (!(fabs(rounds / (2 * step) - 1) < 0.02)) fail_msg("%g of a step", rounds / step);
}

enum { ROUND = 8, SIDE = 8, CLASSES = 10 };

/* The steps of two rounds after the first: bytes received in all and in one of them, by a model of
 * eight equal layers and a small one. */
static kolo_status peak_body(kolo_comm *comm, const void *arg, void *result) {
    static const kolo_field fields[] = {
        {"x", KOLO_DTYPE_U8, {3, {1, SIDE, SIDE}}, .std = {0.5F}},
        {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
    };
    const traffic_case *c = arg;
    double *numbers = result;
    uint8_t sample[SIDE * SIDE] = {1, 2, 3};
    const int32_t label = kolo_comm_rank(comm);
    kolo_session_config opts = {.model = "mlp",
                                .model_options = "hidden=64,layers=8",
                                .sample = kolo_shape_3(1, SIDE, SIDE),
                                .classes = CLASSES,
                                .batch = 1,
                                .plan.algorithm = KOLO_ALGORITHM_RING,
                                .plan.compression.min_bytes = 1};
    kolo_session *s;
    uint64_t before = 0;
    KOLO_TRY(kolo_consistency_parse(c->consistency, 2, &opts.consistency));
    if (c->compress) KOLO_TRY(kolo_codec_parse(c->compress, &opts.plan.compression.codec));
    KOLO_TRY(kolo_session_create_for(&opts, comm, &s));
    kolo_status status = kolo_session_init(s, 1);
    for (int k = 0; k < 3 * ROUND && status == KOLO_OK; k++) {
        const kolo_batch batch = {.count = 1,
                                  .first = kolo_comm_rank(comm),
                                  .global_count = 2,
                                  .n_fields = 2,
                                  .fields = fields,
                                  .data = {sample, &label}};
        kolo_sums sums;
        kolo_peer_traffic traffic = {0};
        status = kolo_session_step_batch(s, &batch, 0.01, &sums);
        if (status == KOLO_OK) {
            status = kolo_comm_peer_traffic(comm, !kolo_comm_rank(comm), &traffic);
        }
        const double bytes = (double)(traffic.received_bytes - before);
        before = traffic.received_bytes;
        if (k < ROUND) continue;
        numbers[0] += bytes;
        numbers[1] = fmax(numbers[1], bytes);
    }
    if (status == KOLO_OK) status = kolo_session_consolidate(s); /* nothing is in flight */
    kolo_session_destroy(s);
    return status;
}

static void measure_peak(const char *consistency, const char *compress, double *all, double *most) {
    const traffic_case c = {consistency, compress, 0};
    double numbers[2][2] = {{0}};
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = peak_body,
                    .arg = &c,
                    .arg_bytes = sizeof c,
                    .results = numbers,
                    .result_bytes = sizeof numbers[0]};
    ASSERT_OK(run_rank_job(&job));
    *all = numbers[0][0];
    *most = numbers[0][1];
}

/* Of a round's bytes, each fragment has a fourth, and codes their part of that. */
static void fragments_cut_the_peak(void **state) {
    const double round = 4 * (8 * (64 * 64 + 64) + 650.0), int8 = (1 + 4.0 / 256) / 4;
    static const struct {
        const char *consistency, *compress;
        double most; /* in a step, part of a round */
    } rows[] = {
        {"diloco:8", NULL, 1},
        {"diloco:8,fragments=4", NULL, 1.0 / 4},
        {"diloco:8,fragments=4,strided=1,overlap=1", NULL, 1.0 / 4},
        {"diloco:8,fragments=4,overlap=3", "int8", 1.0 / 4},
    };
    double metrics, none;
    measure_peak("local:1000", NULL, &metrics, &none);
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        const double code = rows[i].compress ? int8 : 1;
        double all, most;
        measure_peak(rows[i].consistency, rows[i].compress, &all, &most);
        const double part = (all - metrics) / (2 * code * round);
        const double peak = (most - none) / (code * round);
        if (!(fabs(part - 1) < 0.02)) fail_msg("%s: %g of the bytes", rows[i].consistency, part);
        if (!(peak < 1.08 * rows[i].most)) fail_msg("%s: a peak of %g", rows[i].consistency, peak);
    }
}

/* ---- what is refused ---- */

static void combinations_without_meaning_are_refused(void **state) {
    kolo_train_opts opts[] = {options("local:4"), options("local:4"), options("bmuf:4"),
                              options("diloco:4")};
    const char *const names[] = {"--zero", "--reproducible", "--sync-bn", "--sparse-embedding"};
    opts[0].zero = 1;
    opts[1].reproducible = 4;
    opts[1].global_batch = 8;
    opts[1].batch = 0;
    opts[2].sync_bn = true;
    opts[3].sparse_embedding = true;
    for (size_t i = 0; i < KOLO_COUNT(opts); i++) {
        assert_int_equal(kolo_train_check(&opts[i], 2), KOLO_ERR_UNSUPPORTED);
        if (!strstr(kolo_last_error(), names[i])) fail_msg("%s", kolo_last_error());
    }
    kolo_train_opts codecs[] = {options(NULL), options(NULL), options("local:4"), options(NULL)};
    codecs[0].zero = 1;
    codecs[1].reproducible = 4;
    codecs[1].global_batch = 8;
    codecs[1].batch = 0;
    codecs[3].optimizer = (kolo_optimizer_opts){.kind = KOLO_OPTIMIZER_ADAM};
    for (size_t i = 0; i < KOLO_COUNT(codecs); i++) {
        codecs[i].compress = "1bit";
        assert_int_equal(kolo_train_check(&codecs[i], 2), KOLO_ERR_UNSUPPORTED);
    }
    static const char *const wrong[] = {"int9", "powersgd:0", "powersgd:5",
                                        "powersgd:", "powersgdx"};
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        codecs[3].compress = wrong[i];
        assert_int_equal(kolo_train_check(&codecs[3], 2), KOLO_ERR_ARG);
    }
}

static void there_are_as_many_layers_as_fragments(void **state) {
    kolo_train_opts opts = {.model = "mlp", .data = images, .batch = 2, .steps = 2};
    opts.consistency = "diloco:4,fragments=4";
    assert_job_refused(2, &opts, "4 fragments of a model that has 3 layers: give fewer fragments");
}

static void policies_are_parsed(void **state) {
    static const char *const wrong[] = {"",
                                        "sync",
                                        "local",
                                        "local:0",
                                        "local:x",
                                        "bsp:2",
                                        "local:4,lr=1",
                                        "diloco:4,lr",
                                        "bmuf:4,momentum=1",
                                        "bmuf:4,nesterov=2",
                                        "lag:0",
                                        "lag:65",
                                        "lag:1,lr=1",
                                        "bmuf:4,lr=0",
                                        "local:4,fragments=2",
                                        "diloco:4,fragments=5",
                                        "diloco:4,fragments=0",
                                        "diloco:4,fragments=1.5",
                                        "diloco:4,overlap=4",
                                        "diloco:1,overlap=1",
                                        "diloco:4,mix=1",
                                        "diloco:4,warmup=0",
                                        "local:4,warmup=1.5",
                                        "lag:1,warmup=2",
                                        "bsp,warmup=2",
                                        "diloco:4,strided=2"};
    kolo_consistency c;
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        if (kolo_consistency_parse(wrong[i], 2, &c) == KOLO_OK) fail_msg("\"%s\"", wrong[i]);
    }
    ASSERT_OK(kolo_consistency_parse("bmuf:16", 4, &c));
    assert_true(c.kind == KOLO_CONSISTENCY_BMUF && c.steps == 16);
    assert_true(c.lr == 1 && c.momentum == 0.75 && !c.nesterov);
    ASSERT_OK(kolo_consistency_parse("bmuf:16,nesterov=1,momentum=0.5,lr=2", 4, &c));
    assert_true(c.lr == 2 && c.momentum == 0.5 && c.nesterov);
    ASSERT_OK(kolo_consistency_parse("diloco:50", 4, &c));
    assert_true(c.lr == 0.7 && c.momentum == 0.9 && c.nesterov && c.steps == 50);
    assert_true(c.fragments == 1 && c.overlap == 0 && c.mix == 0 && !c.strided);
    ASSERT_OK(kolo_consistency_parse("diloco:50,fragments=50,overlap=49,strided=1", 4, &c));
    assert_true(c.fragments == 50 && c.overlap == 49 && c.mix == 0.5 && c.strided);
    ASSERT_OK(kolo_consistency_parse("bmuf:9,overlap=2,mix=0", 4, &c));
    assert_true(c.overlap == 2 && c.mix == 0);
    assert_true(c.warm_up == 0);
    ASSERT_OK(kolo_consistency_parse("local:9,warmup=500", 4, &c));
    assert_true(c.steps == 9 && c.warm_up == 500);
    ASSERT_OK(kolo_consistency_parse("diloco:9,warmup=3,lr=1", 4, &c));
    assert_true(c.warm_up == 3 && c.lr == 1);
    ASSERT_OK(kolo_consistency_parse("lag:2", 4, &c));
    assert_true(c.kind == KOLO_CONSISTENCY_LAG && c.steps == 2 && !kolo_consistency_has_rounds(&c));
    ASSERT_OK(kolo_consistency_parse(NULL, 4, &c));
    assert_false(kolo_consistency_has_rounds(&c));
}

TEST_MAIN(test_consistency) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_trains_as_without_rounds),
        cmocka_unit_test(a_lag_of_one_rank_delays_its_updates),
        cmocka_unit_test(reading_the_parameters_does_not_change_them),
        cmocka_unit_test(threads_and_processes_agree_bitwise),
        cmocka_unit_test(a_run_resumes_within_a_round),
        cmocka_unit_test(a_run_resumes_around_the_end_of_its_warm_up),
        cmocka_unit_test(the_steps_of_a_warm_up_are_those_of_bsp),
        cmocka_unit_test(a_benchmark_may_have_a_warm_up),
        cmocka_unit_test(compressed_runs_resume_bitwise),
        cmocka_unit_test(another_policy_is_named_on_resume),
        cmocka_unit_test(rounds_and_codecs_cut_the_bytes),
        cmocka_unit_test(a_warm_up_has_the_bytes_of_whole_gradients),
        cmocka_unit_test(fragments_cut_the_peak),
        cmocka_unit_test(combinations_without_meaning_are_refused),
        cmocka_unit_test(there_are_as_many_layers_as_fragments),
        cmocka_unit_test(policies_are_parsed),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
