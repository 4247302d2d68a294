/* Buckets of gradients of given or measured sizes: the same bits, new plans in the middle of a run,
 * and what is refused. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "kolo/dump.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/session/sum_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The last batch of an epoch is short, and the plans of both sizes are compiled again. */
static const kolo_train_opts base = {.model = "mlp",
                                     .model_options = "hidden=32",
                                     .data = "synthetic:N=61,test=20,shape=1x28x28,seed=2",
                                     .optimizer.kind = KOLO_OPTIMIZER_ADAM,
                                     .optimizer.clip = 0.5,
                                     .batch = 3,
                                     .accumulate = 2,
                                     .lr = 0.01,
                                     .steps = 16,
                                     .epochs = 20,
                                     .check_replicas = 2,
                                     .eval_steps = 3,
                                     .algorithm = KOLO_ALGORITHM_DIRECT};

static void given_and_measured_sizes_give_the_same_bits(void **state) {
    static const char *const buckets[] = {"auto", "1", "400,90K,7"};
    for (int clips = 0; clips < 2; clips++) { /* else updates are left to the next step */
        kolo_train_opts opts = base;
        if (!clips) opts.optimizer.clip = 0;
        const kolo_train_result plain = train_well(3, &opts);
        for (size_t i = 0; i < KOLO_COUNT(buckets); i++) {
            opts.buckets = buckets[i];
            kolo_train_result r = train_well(3, &opts);
            assert_same_run(buckets[i], &plain, &r);
            assert_string_equal(r.unshared, "--buckets sums whole gradients");
        }
    }
}

static void keep_line(void *arg, const char *line, kolo_notice_kind kind) {
    if (strstr(line, "buckets of gradients")) snprintf(arg, 256, "%s", line);
}

/* Rank 0 has a slow link, 16 us per KiB, by its own times; the others have another opinion. */
static kolo_status ask(kolo_comm *comm, const void *arg, void *out) {
    const int64_t *left_ns = arg;
    bool *goes_on = out;
    const double us = kolo_comm_rank(comm) == 0 ? 16 : 1;
    const kolo_bench_row rows[] = {{.bytes = 1 << 14, .us_median = 16 * us},
                                   {.bytes = 1 << 18, .us_median = 256 * us}};
    KOLO_TRY(kolo_sum_time_goes_on(comm, rows, 1, 1 << 18, 4, 0, &goes_on[0]));
    return kolo_sum_time_goes_on(comm, rows, 2, 1 << 20, 4, *left_ns, &goes_on[1]);
}

/* Four sums of 1 MiB are expected to take 4 x 1024 x 16 us. */
static void all_ranks_measure_the_sizes_that_rank_0_has_time_for(void **state) {
    static const int64_t left_ns[] = {65535999, 65536000};
    for (size_t i = 0; i < KOLO_COUNT(left_ns); i++) {
        bool goes_on[3][2];
        rank_job job = {.n = 3,
                        .transport = RANKS_THREAD,
                        .body = ask,
                        .arg = &left_ns[i],
                        .arg_bytes = sizeof left_ns[i],
                        .results = goes_on,
                        .result_bytes = sizeof goes_on[0]};
        ASSERT_OK(run_rank_job(&job));
        for (int r = 0; r < 3; r++) {
            assert_true(goes_on[r][0]); /* a line needs two sizes */
            assert_int_equal(goes_on[r][1], i);
        }
    }
}

/* Times of 10 us and 0.5 us per KiB, work of 4 us and 0.25 us per KiB; where no work was measured,
 * in large sums or in any, it does not count. */
static void lines_are_fitted_to_times_and_work(void **state) {
    enum { N = 4 };
    kolo_bench_row rows[N];
    for (int i = 0; i < N; i++) {
        const double kib = 16 << 2 * i;
        rows[i] = (kolo_bench_row){
            .bytes = (size_t)kib << 10, .us_median = 10 + 0.5 * kib, .us_work = 4 + 0.25 * kib};
    }
    for (int measured = N; measured >= 0; measured--) { /* of work */
        if (measured < N) rows[measured].us_work = NAN;
        const kolo_sum_time t = kolo_sum_time_fit(rows, N);
        assert_float_equal(t.fixed_ms, 0.01, 1e-9);
        assert_float_equal(t.ms_per_byte * 1024, 0.0005, 1e-12);
        if (measured >= 2) {
            assert_float_equal(t.work_fixed_ms, 0.004, 1e-9);
            assert_float_equal(t.work_ms_per_byte * 1024, 0.00025, 1e-12);
        } else {
            assert_float_equal(t.work_fixed_ms, measured ? 0.008 : 0, 1e-9);
            assert_true(t.work_ms_per_byte == 0);
        }
    }
    /* A link that sends the first bytes fast: the slope is that of the others. */
    rows[0] = (kolo_bench_row){.bytes = 1000, .us_median = 4, .us_work = NAN};
    rows[1] = (kolo_bench_row){.bytes = 3000, .us_median = 40, .us_work = NAN};
    assert_float_equal(kolo_sum_time_fit(rows, 2).ms_per_byte, 18e-6, 1e-12);
    assert_true(kolo_sum_time_fit(rows, 2).fixed_ms == 0);
    for (int i = 0; i < N; i++) rows[i].us_work = -1 - i; /* noise */
    const kolo_sum_time t = kolo_sum_time_fit(rows, N);
    assert_true(t.work_fixed_ms == 0 && t.work_ms_per_byte == 0);
}

/* A notice has the sizes; a trace continues with the new plan. One host has no overlap: one bucket
 * of all 26,506 gradients. */
static void the_chosen_sizes_are_reported(void **state) {
    kolo_train_opts opts = base;
    char line[256] = "";
    opts.buckets = "auto";
    opts.trace = "trace.json";
    opts.notice = keep_line;
    opts.notice_arg = line;
    train_well(2, &opts);
    assert_non_null(strstr(line, "from step 6 on: 106024 (a sum takes"));
    char *text = test_contents("trace.json");
    assert_non_null(strstr(text, "allreduce"));
    kolo_free(text);
}

static void a_dump_has_the_given_buckets(void **state) {
    kolo_dump_opts opts = {
        .what = KOLO_DUMP_PLAN, .model = "mlp", .model_options = "hidden=32", .buckets = "40,1"};
    char *text;
    ASSERT_OK(kolo_dump(&opts, &text));
    assert_non_null(strstr(text, "bucket 0: 1 values, 1280 bytes"));
    assert_non_null(strstr(text, "bucket 1: 1 values, 64 bytes"));
    assert_non_null(strstr(text, "bucket 2: 6 values"));
    kolo_dump_free(text);
    opts.buckets = "auto";
    assert_int_equal(kolo_dump(&opts, &text), KOLO_ERR_ARG);
    opts.buckets = "1M";
    opts.zero = 1;
    assert_int_equal(kolo_dump(&opts, &text), KOLO_ERR_ARG);
}

static void what_has_other_buckets_is_refused(void **state) {
    const struct {
        kolo_train_opts opts;
        const char *text;
    } cases[] = {
        {{.zero = 1}, "--buckets cannot be combined with --zero"},
        {{.global_batch = 12, .reproducible = 4}, "--buckets cannot be combined with --repr"},
        {{.sync = KOLO_SYNC_PS}, "--buckets cannot be combined with --sync ps"},
        {{.consistency = "lag:1"}, "--buckets cannot be combined with --consistency"},
        {{.compress = "f16"}, "--buckets cannot be combined with --compress"},
        {{.mesh = "tp=2"}, "--buckets cannot be combined with --mesh"},
        {{.buckets = "1M,"}, "must be auto or the bytes of each"},
        {{.buckets = "0"}, "must be auto or the bytes of each"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = cases[i].opts;
        opts.model = base.model;
        opts.data = base.data;
        opts.steps = 1;
        if (!opts.buckets) opts.buckets = "auto";
        if (!opts.global_batch) opts.batch = 2;
        assert_job_refused(2, &opts, cases[i].text);
    }
    kolo_train_opts alone = base;
    alone.buckets = "auto";
    assert_job_refused(1, &alone, "--buckets cannot be combined with one worker");
}

static void runs_that_are_too_short_are_refused(void **state) {
    kolo_train_opts opts = base;
    opts.buckets = "auto";
    opts.steps = 6; /* the last of which is short */
    assert_job_refused(2, &opts, "after 5 full steps of 12 samples, and the run has 5:");
    opts.steps = 100;
    opts.batch = 16; /* a step has all samples */
    assert_job_refused(2, &opts, "full steps of 64 samples, and the run has 0:");
    opts.buckets = "1K";
    opts.steps = 1;
    train_well(2, &opts);
}

static void keep_short_line(void *arg, const char *line, kolo_notice_kind kind) {
    if (strstr(line, "too few full steps")) snprintf(arg, 256, "%s", line);
}

/* Three full steps are left. */
static void a_resumed_run_may_be_too_short(void **state) {
    kolo_train_opts opts = base;
    char line[256] = "";
    opts.buckets = "auto";
    opts.steps = 12;
    opts.out_dir = "run";
    opts.checkpoint_steps = 8;
    opts.notice = keep_short_line;
    opts.notice_arg = line;
    const kolo_train_result whole = train_well(2, &opts);
    assert_string_equal(line, "");
    opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    opts.resume = "run/checkpoint-8.safetensors";
    kolo_train_result resumed = train_well(2, &opts);
    assert_non_null(strstr(line, "too few full steps are left"));
    assert_int_equal(resumed.parameter_hash, whole.parameter_hash);
}

/* Also those of batches that are shorter than the others. */
static void a_trace_has_all_steps(void **state) {
    static const char loss[] = "\"name\": \"softmax_xent\"";
    const kolo_train_opts opts = {.model = "mlp",
                                  .model_options = "hidden=4,layers=1",
                                  .data = "synthetic:N=10,test=2",
                                  .batch = 4,
                                  .epochs = 2,
                                  .no_eval = true,
                                  .trace = "trace.json"};
    for (int ranks = 1; ranks <= 2; ranks++) {
        const int64_t steps = train_well(ranks, &opts).steps;
        char *text = test_contents("trace.json");
        int64_t losses = 0;
        for (const char *at = text; (at = strstr(at, loss)); at++) losses++;
        assert_int_equal(losses, ranks * steps);
        kolo_free(text);
    }
}

TEST_MAIN(test_buckets) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_has_all_steps),
        cmocka_unit_test(given_and_measured_sizes_give_the_same_bits),
        cmocka_unit_test(all_ranks_measure_the_sizes_that_rank_0_has_time_for),
        cmocka_unit_test(lines_are_fitted_to_times_and_work),
        cmocka_unit_test(the_chosen_sizes_are_reported),
        cmocka_unit_test(a_dump_has_the_given_buckets),
        cmocka_unit_test(what_has_other_buckets_is_refused),
        cmocka_unit_test(runs_that_are_too_short_are_refused),
        cmocka_unit_test(a_resumed_run_may_be_too_short),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
