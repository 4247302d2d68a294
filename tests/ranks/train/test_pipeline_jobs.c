/* Training jobs on pipelines: results, checkpoints, files and hashes are those of one rank, also
 * with a divided optimizer state; refusals. */
#include "base/isa.h"
#include "kernel/select/families.h"
#include "kolo/checkpoint.h"
#include "kolo/models.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/session/metrics.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The gradient of the tied embedding is sent between stages in two pieces. */
static const kolo_train_opts gpt2 = {
    .model = "gpt2_tiny",
    .model_options = "layers=2,width=32,heads=4,context=8,vocab=600,dropout=0.1",
    .data = "synthetic-tokens:N=67,test=10",
    .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
    .optimizer.clip = 1,
    .lr = 0.01,
    .global_batch = 8,
    .accumulate = 2,
    .steps = 20,
    .epochs = 20,
};

/* With a last batch of an epoch whose shares differ. */
#define SYNCHRONIZED                                                                   \
    {                                                                                  \
        .model = "resnet20", .model_options = "width=0.25",                            \
        .data = "synthetic:N=13,test=2,shape=3x8x8,seed=2", .optimizer.momentum = 0.9, \
        .global_batch = 8, .accumulate = 2, .steps = 4, .epochs = 3, .sync_bn = true,  \
    }

/* Uneven micro-batches, last batches of an epoch with fewer samples than micro-batches or places on
 * dp, metrics of several stages, convolutions and batch normalization in micro-batches. */
static void jobs_train_and_evaluate(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *mesh, *schedule;
        int ranks, dp;
    } jobs[] = {
        {gpt2, "tp=2,pp=2", "1f1b", 4, 1},
        {{.model = "gpt2_tiny",
          .model_options = "layers=2,width=36,heads=3,context=12,vocab=50,dropout=0.1",
          .data = "synthetic-tokens:N=29,test=4",
          .placement = "zigzag",
          .lr = 0.01,
          .global_batch = 7,
          .accumulate = 3,
          .epochs = 2},
         "pp=2,sp=2",
         "interleaved:2",
         4,
         1},
        {{.model = "bert_tiny",
          .model_options = "layers=2,width=32,vocab=60,context=9,nsp=1",
          .data = "synthetic-tokens:N=20,test=5",
          .optimizer.clip = 1,
          .global_batch = 4,
          .accumulate = 2,
          .lr = 0.05,
          .steps = 5},
         "pp=2,sp=2",
         "zb-h1",
         4,
         1},
        {gpt2, "pp=2,dp=2", "zb-h1", 4, 2},
        {{.model = "gpt2_tiny",
          .model_options = "layers=1,width=32,heads=4,context=8,vocab=50,dropout=0.1",
          .data = "synthetic-tokens:N=29,test=1",
          .lr = 0.01,
          .global_batch = 7,
          .accumulate = 3,
          .epochs = 2},
         "dp=2,pp=2,tp=2",
         "gpipe",
         8,
         2},
        {{.model = "bert_tiny",
          .model_options = "layers=1,width=32,vocab=60,context=8,nsp=1",
          .data = "synthetic-tokens:N=20,test=5",
          .optimizer.clip = 1,
          .global_batch = 4,
          .accumulate = 2,
          .lr = 0.05,
          .steps = 5},
         "pp=3",
         "1f1b",
         3,
         1},
        {{.model = "gpt2_tiny",
          .model_options = "layers=1,width=32,heads=4,context=8,vocab=50,dropout=0.1",
          .data = "synthetic-tokens:N=29,test=1",
          .lr = 0.01,
          .global_batch = 7,
          .accumulate = 3,
          .epochs = 2},
         "dp=2,pp=2,tp=2",
         "interleaved:2",
         8,
         2},
        {{.model = "gpt2_tiny",
          .model_options = "layers=1,width=16,heads=2,context=4,vocab=30",
          .data = "synthetic-tokens:N=12,test=1",
          .lr = 0.1,
          .global_batch = 3,
          .accumulate = 2,
          .epochs = 2},
         "dp=2,pp=2",
         "zbv",
         4,
         2},
        {{.model = "lenet",
          .data = "synthetic:N=37,test=11,shape=1x28x28,seed=2",
          .global_batch = 6,
          .accumulate = 3,
          .steps = 9,
          .epochs = 3},
         "pp=2",
         "zbv",
         2,
         1},
        {{.model = "lenet",
          .data = "synthetic:N=37,test=11,shape=1x28x28,seed=2",
          .global_batch = 6,
          .accumulate = 3,
          .steps = 9,
          .epochs = 3},
         "pp=3",
         "zb-h1",
         3,
         1},
        {{.model = "resnet20",
          .model_options = "width=0.25",
          .data = "synthetic:N=16,test=5,shape=3x8x8,seed=2",
          .optimizer.momentum = 0.9,
          .global_batch = 8,
          .accumulate = 2,
          .steps = 4,
          .epochs = 3},
         "pp=2",
         "1f1b",
         2,
         1},
        {{.model = "resnet20",
          .model_options = "width=0.25",
          .data = "synthetic:N=16,test=5,shape=3x8x8,seed=2",
          .optimizer.momentum = 0.9,
          .global_batch = 8,
          .accumulate = 2,
          .steps = 4,
          .epochs = 3},
         "pp=2",
         "interleaved:3",
         2,
         1},
        {{.model = "resnet20",
          .model_options = "width=0.25",
          .data = "synthetic:N=8,test=2,shape=3x8x8,seed=2",
          .optimizer.momentum = 0.9,
          .global_batch = 4,
          .accumulate = 2,
          .steps = 2,
          .epochs = 1},
         "pp=2,tp=2",
         "zbv",
         4,
         1},
        {SYNCHRONIZED, "dp=2,pp=2", "zb-h1", 4, 2},
        {SYNCHRONIZED, "dp=2,tp=2", NULL, 4, 2},
        {SYNCHRONIZED, "dp=1,pp=4", "1f1b", 4, 1}, /* the last stage has no batch normalization */
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        opts.placement = NULL;
        const kolo_train_result alone = train_well(jobs[i].dp, &opts);
        opts.placement = jobs[i].opts.placement;
        opts.mesh = jobs[i].mesh;
        opts.pipeline = jobs[i].schedule;
        const kolo_train_result staged = train_well(jobs[i].ranks, &opts);
        assert_near_run(jobs[i].mesh, &alone, &staged);
    }
}

/* The area under the ROC curve is of counts that the last stage has. */
static void metrics_of_tensors_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = {
        .model = "dlrm",
        .model_options = "tables=5,rows=8,dim=4,dense=3,bottom1=6,bottom2=0,bottom3=0,top1=7",
        .data = "synthetic-clicks:N=13,test=5",
        .global_batch = 4,
        .accumulate = 2,
        .lr = 0.1,
        .steps = 4};
    const int auc = kolo_metric_row("auc");
    const kolo_train_result alone = train_well(1, &opts);
    assert_false(isnan(alone.test.value[auc]));
    opts.mesh = "dp=2,pp=2";
    opts.out_dir = "scored";
    opts.eval_every = 1;
    opts.keep_best = "auc";
    const kolo_train_result staged = train_well(4, &opts);
    assert_near_run(opts.mesh, &alone, &staged);
    assert_near("auc", alone.test.value[auc], staged.test.value[auc], 1e-5);
    assert_string_equal(staged.best_metric, "auc");
}

/* A benchmark repeats its first steps from the same parameters. */
static void parameters_start_anew(void **state) {
    kolo_train_opts opts = gpt2;
    opts.data = NULL;
    opts.in_memory = true;
    opts.steps = 3;
    opts.epochs = 0;
    opts.mesh = "pp=2";
    assert_int_equal(train_well(2, &opts).losses_checked, 2);
}

static void checkpoints_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = gpt2, whole = gpt2;
    opts.out_dir = "run";
    opts.steps = 5;
    opts.mesh = "pp=2";
    opts.checkpoint_steps = 5;
    const kolo_train_result two = train_well(2, &opts);
    opts.resume = "run"; /* with divided stages, then on one rank */
    opts.steps = 10;
    opts.mesh = "pp=2,tp=2";
    train_well(4, &opts);
    char *text = NULL;
    ASSERT_OK(kolo_checkpoint_describe("run/checkpoint-10.safetensors", &text));
    static const char *const lines[] = {
        "mesh           dp=1,pp=2,tp=2\n", " wte.weight  pp:0,1 tp:sharded0\n",
        " h.0.ln_1.weight  pp:0\n", " optimizer.mean.h.0.mlp.c_fc.bias  pp:0 tp:sharded0\n"};
    for (size_t i = 0; i < KOLO_COUNT(lines); i++) {
        if (!strstr(text, lines[i])) fail_msg("\"%s\" is not in\n%s", lines[i], text);
    }
    kolo_checkpoint_text_free(text);
    opts.steps = 15; /* the ends of the model on one stage */
    opts.mesh = "pp=2";
    opts.pipeline = "zbv";
    train_well(2, &opts);
    ASSERT_OK(kolo_checkpoint_describe("run/checkpoint-15.safetensors", &text));
    if (!strstr(text, " wte.weight  pp:0\n")) fail_msg("%s", text);
    kolo_checkpoint_text_free(text);
    opts.steps = 20;
    opts.mesh = opts.pipeline = NULL;
    const kolo_train_result alone = train_well(1, &opts);
    const kolo_train_result expected = train_well(1, &whole);
    assert_int_equal(two.parameters, alone.parameters);
    assert_near_run("resumed", &expected, &alone);
}

/* Optimizer state that the ranks along dp divide is whole in files: one mesh continues what another
 * has begun, with other ranges, in bf16 with layouts of kernels too. */
static void divided_state_is_whole_in_files(void **state) {
    static const struct {
        const char *mesh, *holders;
        int ranks, zero;
    } runs[] = {
        {"dp=2,tp=2", " optimizer.mean.h.0.mlp.c_fc.weight  tp:sharded0\n", 4, 1},
        {"pp=2,dp=2", " optimizer.mean.h.0.mlp.c_fc.weight  pp:0\n", 4, 1},
        {"dp=2,pp=2,tp=2", " optimizer.mean.h.0.mlp.c_fc.weight  pp:0 tp:sharded0\n", 8, 1},
        {NULL, NULL, 1, 0},
    };
    kolo_train_opts opts = gpt2;
    opts.model_options = "layers=2,width=48,heads=4,context=8,vocab=50,dropout=0.1";
    kolo_train_opts whole = opts;
    whole.steps = 12;
    const kolo_train_result expected = train_well(1, &whole);
    opts.out_dir = "divided";
    opts.checkpoint_steps = 3;
    for (size_t i = 0; i < KOLO_COUNT(runs); i++) {
        char path[64], *text = NULL;
        opts.mesh = runs[i].mesh;
        opts.zero = runs[i].zero;
        opts.steps = 3 * ((int64_t)i + 1);
        const kolo_train_result part = train_well(runs[i].ranks, &opts);
        if (!runs[i].mesh) assert_near_run("divided", &expected, &part);
        snprintf(path, sizeof path, "divided/checkpoint-%d.safetensors", (int)opts.steps);
        ASSERT_OK(kolo_checkpoint_describe(path, &text));
        if (runs[i].holders && !strstr(text, runs[i].holders)) fail_msg("%s", text);
        kolo_checkpoint_text_free(text);
        opts.resume = "divided";
    }
}

/* The same bits as without ZeRO, where the ranks along dp sum in the same order. */
static void jobs_divide_their_state(void **state) {
    static const struct {
        const char *mesh, *placement;
        int ranks;
        kolo_precision precision;
    } runs[] = {
        {"dp=2,tp=2", "megatron-sp", 4, KOLO_PRECISION_F32},
        {"dp=2,pp=2", NULL, 4, KOLO_PRECISION_BF16},
    };
    for (size_t i = 0; i < KOLO_COUNT(runs); i++) {
        kolo_train_opts opts = gpt2;
        opts.mesh = runs[i].mesh;
        opts.placement = runs[i].placement;
        opts.precision = runs[i].precision;
        if (opts.precision != KOLO_PRECISION_F32 &&
            kolo_kernel_check_bf16(kolo_isa_best()) != KOLO_OK) {
            continue;
        }
        const kolo_train_result whole = train_well(runs[i].ranks, &opts);
        opts.zero = 1;
        const kolo_train_result divided = train_well(runs[i].ranks, &opts);
        assert_near_run(runs[i].mesh, &whole, &divided);
    }
    kolo_train_opts images = {.model = "alexnet",
                              .model_options = "width=4,units=24",
                              .data = "synthetic:N=13,test=5,shape=3x63x63,classes=10,seed=2",
                              .optimizer.momentum = 0.9,
                              .optimizer.clip = 1,
                              .global_batch = 4,
                              .steps = 4};
    const kolo_train_result alone = train_well(1, &images);
    images.mesh = "dp=2,tp=2"; /* blocked layouts, convolutions by samples */
    images.zero = 1;
    const kolo_train_result divided = train_well(4, &images);
    assert_near_run(images.mesh, &alone, &divided);
}

/* The hash takes large tensors in pieces, on ranks of which some have none of them, or other
 * layouts: it is that of one rank that reads the file. */
static void hashes_are_those_of_one_rank(void **state) {
    static const struct {
        const char *model, *options, *data, *mesh;
        int ranks, zero;
    } jobs[] = {
        {"mlp", "hidden=1024", "synthetic:N=8,shape=1x28x28", "dp=2,pp=2", 4, 1},
        {"resnet8", "width=64", "synthetic:N=8,shape=3x8x8", "pp=2,tp=2", 4, 0},
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        char folder[16];
        snprintf(folder, sizeof folder, "hashed-%d", (int)i);
        kolo_train_opts opts = {.model = jobs[i].model,
                                .model_options = jobs[i].options,
                                .data = jobs[i].data,
                                .optimizer.momentum = 0.9,
                                .global_batch = 4,
                                .accumulate = 2,
                                .steps = 1,
                                .no_eval = true};
        kolo_train_opts divided = opts;
        divided.mesh = jobs[i].mesh;
        divided.zero = jobs[i].zero;
        divided.out_dir = opts.resume = folder;
        divided.checkpoint_steps = 1;
        const uint64_t hash = train_well(jobs[i].ranks, &divided).parameter_hash;
        assert_int_equal(train_well(1, &opts).parameter_hash, hash);
    }
}

static void what_stages_cannot_do_is_named(void **state) {
    static const struct {
        const char *mesh, *schedule, *text;
        int ranks, zero;
        bool sync_bn;
    } bad[] = {
        {"pp=2", "interleaved:17", "must be 1 to 16", 2, 0, false},
        {"pp=8", "interleaved:16", "at most 64 parts", 8, 0, false},
        {"pp=2", "2f2b", "no schedule", 2, 0, false},
        {"pp=2", NULL, "--zero above 1", 2, 2, false},
        {"pp=2", NULL, "no batch normalization to synchronize", 2, 0, true},
        {"xp=2", NULL, "the axes are dp", 2, 0, false},
        {"dp=1,pp=3", NULL, "too few layers", 3, 0, false},
    };
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_train_opts opts = gpt2;
        opts.mesh = bad[i].mesh;
        opts.pipeline = bad[i].schedule;
        opts.zero = bad[i].zero;
        opts.sync_bn = bad[i].sync_bn;
        if (bad[i].ranks == 3) {
            opts.model = "mlp";
            opts.model_options = "layers=1";
            opts.data = "synthetic:N=37,test=11,shape=1x28x28";
        }
        assert_job_refused(bad[i].ranks, &opts, bad[i].text);
    }
    kolo_train_opts uneven = SYNCHRONIZED;
    uneven.data = "synthetic:N=9,test=2,shape=3x8x8";
    uneven.mesh = "dp=2,pp=2";
    assert_job_refused(4, &uneven,
                       "a step of 1 samples gives some of 2 workers along dp no sample");
    kolo_train_opts placed = gpt2;
    placed.mesh = "pp=2";
    placed.placement = "megatron";
    assert_job_refused(2, &placed, "an axis tp divides");
}

static atomic_bool refuses;

/* For a micro-batch, not for the single sample that jobs look at before. */
static kolo_status refuse_once(kolo_graph *g, const kolo_model_opts *opts) {
    const kolo_model *mlp;
    if (opts->batch > 1 && atomic_exchange(&refuses, false)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "on one rank");
    }
    KOLO_TRY(kolo_model_find("mlp", &mlp));
    return mlp->build(g, opts);
}

/* Stages have different graphs: all ranks fail where one of them is refused. */
static void what_one_stage_cannot_do_ends_all(void **state) {
    static kolo_model model;
    const kolo_model *mlp;
    ASSERT_OK(kolo_model_find("mlp", &mlp));
    model = *mlp;
    model.name = "refused_once";
    model.build = refuse_once;
    ASSERT_OK(kolo_model_register(&model));
    atomic_store(&refuses, true);
    const kolo_train_opts opts = {.model = "refused_once",
                                  .data = "synthetic:N=8,test=2,shape=1x4x4,seed=2",
                                  .global_batch = 4,
                                  .accumulate = 2,
                                  .mesh = "pp=2",
                                  .steps = 1};
    assert_job_refused(2, &opts, "on one rank");
}

TEST_MAIN(test_pipeline_jobs) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_train_and_evaluate),
        cmocka_unit_test(metrics_of_tensors_are_those_of_one_rank),
        cmocka_unit_test(parameters_start_anew),
        cmocka_unit_test(checkpoints_are_those_of_one_rank),
        cmocka_unit_test(divided_state_is_whole_in_files),
        cmocka_unit_test(jobs_divide_their_state),
        cmocka_unit_test(hashes_are_those_of_one_rank),
        cmocka_unit_test(what_stages_cannot_do_is_named),
        cmocka_unit_test(what_one_stage_cannot_do_ends_all),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
