/* Updates that run in the next step: no bit of a run depends on them, whatever ends a step early:
 * evaluation, checkpoints, comparisons, another batch, the end. Ranks share no parameters, as on
 * several hosts. The order of events is tested in test_overlap. */
#include "base/compiler.h"
#include "kolo/dump.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char images[] = "synthetic:N=45,test=10,shape=1x14x14,seed=2";

/* Epochs of a few steps, whose last has another batch. */
static const struct {
    const char *name;
    int ranks;
    kolo_train_opts opts;
} cases[] = {
    {"momentum, replicas compared",
     2,
     {.model = "lenet",
      .optimizer.momentum = 0.9,
      .bucket_bytes = 1000,
      .batch = 4,
      .check_replicas = 2}},
    {"adam, three ranks, ring",
     3,
     {.model = "mlp",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .bucket_bytes = 1000,
      .batch = 3,
      .algorithm = KOLO_ALGORITHM_RING}},
    {"nesterov, statistics, accumulated",
     2,
     {.model = "resnet20",
      .model_options = "width=2",
      .optimizer.kind = KOLO_OPTIMIZER_NESTEROV,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .bucket_bytes = 500,
      .batch = 2,
      .accumulate = 2}},
    {"synchronized statistics",
     2,
     {.model = "resnet20",
      .model_options = "width=2",
      .optimizer.momentum = 0.9,
      .bucket_bytes = 500,
      .batch = 4,
      .sync_bn = true}},
    {"steps with ranks that have no samples",
     3,
     {.model = "mlp",
      .data = "synthetic:N=13,test=5,shape=1x14x14",
      .bucket_bytes = 1000,
      .batch = 2,
      .accumulate = 2}},
    {"adamw, dropout, tied, compressed in part",
     2,
     {.model = "gpt2_tiny",
      .model_options = "layers=1,width=16,heads=2,context=8,vocab=50,dropout=0.2",
      .data = "synthetic-tokens:N=45,test=10",
      .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
      .optimizer.weight_decay = 0.1,
      .compress = "bf16,only=*c_fc.weight",
      .compress_min_bytes = 1,
      .bucket_bytes = 1000,
      .batch = 4}},
    {"lars, norms of a part",
     2,
     {.model = "resnet20",
      .model_options = "width=2",
      .optimizer.kind = KOLO_OPTIMIZER_LARS,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .optimizer.scale_matrices_only = true,
      .bucket_bytes = 500,
      .batch = 4}},
    {"lamb, tied, accumulated",
     2,
     {.model = "gpt2_tiny",
      .model_options = "layers=1,width=16,heads=2,context=8,vocab=50",
      .data = "synthetic-tokens:N=45,test=10",
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.weight_decay = 0.1,
      .bucket_bytes = 1000,
      .batch = 2,
      .accumulate = 2}},
    {"lamb, all in one bucket but the last, three ranks",
     3,
     {.model = "mlp", .optimizer.kind = KOLO_OPTIMIZER_LAMB, .bucket_bytes = 50000, .batch = 3}},
    {"codes of all gradients",
     2,
     {.model = "lenet",
      .optimizer.momentum = 0.9,
      .compress = "int8",
      .compress_min_bytes = 1,
      .bucket_bytes = 1000,
      .batch = 4,
      .check_replicas = 2}},
    {"codes with lars, some ranks without samples, accumulated",
     3,
     {.model = "mlp",
      .data = "synthetic:N=13,test=5,shape=1x14x14",
      .optimizer.kind = KOLO_OPTIMIZER_LARS,
      .compress = "topk:0.1",
      .compress_min_bytes = 1,
      .bucket_bytes = 1000,
      .batch = 2,
      .accumulate = 2}},
    {"factors",
     2,
     {.model = "mlp",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .compress = "powersgd:2",
      .compress_min_bytes = 1,
      .bucket_bytes = 1000,
      .batch = 4}},
    {"factors of matrices, sums of the others, three ranks",
     3,
     {.model = "mlp",
      .optimizer.momentum = 0.9,
      .compress = "powersgd,only=*.weight",
      .compress_min_bytes = 1,
      .bucket_bytes = 1000,
      .batch = 3,
      .check_replicas = 2}},
    {"clipped: every update is in its step",
     2,
     {.model = "mlp", .optimizer.clip = 0.5, .bucket_bytes = 1000, .batch = 4}},
    {"tensor parallelism",
     4,
     {.model = "gpt2_tiny",
      .model_options = "layers=1,width=16,heads=2,context=8,vocab=50",
      .data = "synthetic-tokens:N=45,test=10",
      .mesh = "dp=2,tp=2",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .bucket_bytes = 1000,
      .batch = 4}},
    {"two plans in turns, reference kernels",
     2,
     {.model = "mlp",
      .data = "synthetic:N=34,test=4,shape=1x14x14",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .bucket_bytes = 1000,
      .batch = 16,
      .reference_kernels = true,
      .no_eval = true}},
    {"one plan, a rank of which never has samples",
     3,
     {.model = "mlp",
      .data = "synthetic:N=12,test=4,shape=1x14x14",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .global_batch = 2,
      .bucket_bytes = 1000,
      .reference_kernels = true,
      .no_eval = true}},
    {"micro-batches of two sizes, reference kernels",
     2,
     {.model = "mlp",
      .data = "synthetic:N=20,test=4,shape=1x14x14",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .global_batch = 10,
      .accumulate = 2,
      .bucket_bytes = 1000,
      .reference_kernels = true,
      .no_eval = true}},
    {"shards, whose updates stay in their step",
     2,
     {.model = "mlp", .global_batch = 8, .reproducible = 4, .bucket_bytes = 1000}},
    {"a lag, whose updates stay in their step",
     2,
     {.model = "mlp", .consistency = "lag:1", .bucket_bytes = 1000, .batch = 4}},
    {"ring, buckets of the default size", /* several, of which the last ones are smaller */
     3,
     {.model = "mlp",
      .model_options = "hidden=256,layers=5",
      .batch = 3,
      .algorithm = KOLO_ALGORITHM_RING}},
};

static void no_bit_depends_on_it(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = cases[i].opts;
        if (TEST_FEWER(i % 3 != 0, false)) continue;
        if (!opts.data) opts.data = images;
        opts.no_share = true;
        opts.lr = 0.02;
        opts.epochs = 2;
        opts.no_cross_step = true;
        const kolo_train_result plain = train_well(cases[i].ranks, &opts);
        opts.no_cross_step = false;
        const kolo_train_result crossed = train_well(cases[i].ranks, &opts);
        assert_same_run(cases[i].name, &plain, &crossed);
        if (opts.no_eval) continue;
        opts.eval_steps = 2; /* between two steps */
        const kolo_train_result evaluated = train_well(cases[i].ranks, &opts);
        assert_same_run(cases[i].name, &plain, &evaluated);
    }
}

static void a_run_resumes_either_way(void **state) {
    kolo_train_opts opts = cases[2].opts;
    opts.data = images;
    opts.compress = "1bit,only=*.weight"; /* with residuals */
    opts.compress_min_bytes = 1;
    opts.no_share = true;
    opts.epochs = 2;
    opts.no_cross_step = true;
    const kolo_train_result plain = train_well(2, &opts);
    opts.no_cross_step = false;
    opts.out_dir = "run";
    opts.checkpoint_steps = 4;
    const kolo_train_result saved = train_well(2, &opts);
    assert_same_run("saved", &plain, &saved);
    opts.out_dir = "other";
    opts.resume = "run/checkpoint-4.safetensors";
    for (int off = 0; off < 2; off++) {
        opts.no_cross_step = off;
        const kolo_train_result resumed = train_well(2, &opts);
        assert_same_run("resumed", &plain, &resumed);
        assert_int_equal(system("rm -r other"), 0);
    }
}

/* Which updates cross, and why others do not. */
static void a_dump_states_what_is_left(void **state) {
    static const struct {
        kolo_dump_opts opts;
        const char *has, *lacks;
    } dumps[] = {
        {{.optimizer.momentum = 0.9}, "bytes at 4096, awaited in the next step\n", "read more"},
        {{.optimizer.momentum = 0.9}, ", awaited in the step: it reports some\n", "read more"},
        {{.optimizer.clip = 1},
         ", awaited in the step: updates read more than these\n",
         "next step"},
        {{.optimizer.kind = KOLO_OPTIMIZER_LARS, .optimizer.momentum = 0.9},
         "bytes at 4096, awaited in the next step\n",
         "read more"},
        {{.optimizer.kind = KOLO_OPTIMIZER_LAMB},
         "bytes at 4096, awaited in the next step\n",
         "read more"},
        {{.compress = "1bit", .compress_min_bytes = 1},
         ", gathered, awaited in the next step\n",
         "gathered, awaited in the step"},
        /* The first factors make the second ones in the step. */
        {{.compress = "powersgd", .compress_min_bytes = 1},
         ", awaited in the next step\n",
         "whole gradients"},
        {{.model = "gpt2_tiny",
          .model_options = "layers=1,width=16,heads=2,context=8,vocab=50,tied=0",
          .sparse_embedding = true},
         ", awaited in the step: updates in place follow all sums\n",
         "next step"},
        {{.zero = 1}, ", awaited in the step: no whole gradients\n", "next step"},
        {{.mesh = "dp=1"}, "bucket 0", "awaited"},
        /* Training reads no running statistics, so that the last layers need this bucket first. */
        {{.model = "resnet20", .model_options = "width=2", .bucket_bytes = 4096},
         "wait   bucket 0 in the next step, before ",
         "wait   bucket 0 in the next step, before 1\n"},
    };
    for (size_t i = 0; i < KOLO_COUNT(dumps); i++) {
        kolo_dump_opts opts = dumps[i].opts;
        char *text;
        if (!opts.model) opts.model = "mlp";
        if (opts.bucket_bytes == 0) opts.bucket_bytes = 1000;
        opts.what = KOLO_DUMP_PLAN;
        opts.cross_step = true;
        if (!opts.mesh && !opts.zero && !opts.compress) opts.mesh = "dp=2";
        ASSERT_OK(kolo_dump(&opts, &text));
        assert_non_null(strstr(text, dumps[i].has));
        assert_null(strstr(text, dumps[i].lacks));
        kolo_dump_free(text);
        opts.cross_step = false;
        ASSERT_OK(kolo_dump(&opts, &text));
        assert_null(strstr(text, "awaited"));
        kolo_dump_free(text);
    }
}

/* Of each matrix the second factors are awaited, and multiplied, in the next step. */
static void second_factors_are_left(void **state) {
    const kolo_dump_opts opts = {.model = "mlp",
                                 .what = KOLO_DUMP_PLAN,
                                 .compress = "powersgd,only=*.weight",
                                 .compress_min_bytes = 1,
                                 .bucket_bytes = 1000,
                                 .cross_step = true};
    char *text;
    int sums = 0;
    ASSERT_OK(kolo_dump(&opts, &text));
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest));) {
        if (!strstr(line, "power_sum")) continue;
        sums++;
        if (!strstr(line, " in the next step, before ")) fail_msg("%s", line);
    }
    assert_true(sums >= 2);
    kolo_dump_free(text);
}

TEST_MAIN(test_cross_step) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bit_depends_on_it),
        cmocka_unit_test_setup_teardown(a_run_resumes_either_way, test_folder_enter,
                                        test_folder_leave),
        cmocka_unit_test(a_dump_states_what_is_left),
        cmocka_unit_test(second_factors_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
