/* Training jobs with tensor and context parallelism: results and checkpoints are those of one rank,
 * activations in bf16, placement rules in files; refusals. */
#include "base/isa.h"
#include "kernel/select/families.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const kolo_train_opts gpt2 = {
    .model = "gpt2_tiny",
    .model_options = "layers=2,width=32,heads=4,context=8,vocab=50,dropout=0.1",
    .data = "synthetic-tokens:N=67,test=10",
    .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
    .optimizer.clip = 1,
    .lr = 0.01,
    .global_batch = 4,
    .steps = 20,
    .epochs = 20,
};

/* The last step of an epoch, and the test set, have a sample for one of two places on dp. */
static const kolo_train_opts few = {
    .model = "gpt2_tiny",
    .model_options = "layers=1,width=32,heads=4,context=8,vocab=50,dropout=0.1",
    .data = "synthetic-tokens:N=13,test=1",
    .lr = 0.01,
    .global_batch = 4,
    .epochs = 2,
};

/* Micro-batches of 4 and 3 samples, and of 2 and 1 in the last step of an epoch. */
static const kolo_train_opts uneven = {
    .model = "gpt2_tiny",
    .model_options = "layers=1,width=32,heads=4,context=8,vocab=50,dropout=0.1",
    .data = "synthetic-tokens:N=31,test=3",
    .lr = 0.01,
    .global_batch = 7,
    .accumulate = 2,
    .epochs = 2,
};

/* The same of a recurrence, which needs as many samples as ranks of sp to divide them. */
static const kolo_train_opts recurrent = {
    .model = "lstm_lm",
    .model_options = "layers=2,width=12,hidden=16,context=8,vocab=51,dropout=10",
    .data = "synthetic-tokens:N=31,test=3",
    .lr = 0.1,
    .global_batch = 7,
    .accumulate = 2,
    .epochs = 2,
};

/* A file of placement rules; its name. */
static const char *rules_file(const char *rules) {
    FILE *file = fopen("rules", "w");
    assert_non_null(file);
    assert_true(fputs(rules, file) >= 0 && fclose(file) == 0);
    return "rules";
}

static void jobs_train_and_evaluate(void **state) {
    static const char images[] = "synthetic:N=37,test=11,shape=1x28x28,seed=2";
    static const struct {
        kolo_train_opts opts;
        const char *mesh;
        int ranks;
        const char *placement; /* a name, or rules */
    } jobs[] = {
        {gpt2, "tp=2", 2, NULL},
        {gpt2, "dp=2,tp=2", 4, NULL},
        {gpt2, "dp=2,tp=2", 4, "megatron-sp"},
        {gpt2, "sp=2", 2, NULL},
        {gpt2, "dp=2,sp=2", 4, NULL},
        {gpt2, "dp=2,sp=2", 4, "ring"},
        {gpt2, "dp=2,sp=2", 4, "zigzag"},
        {few, "dp=2,tp=2", 4, NULL},
        {few, "dp=2,sp=2", 4, NULL},
        {uneven, "tp=2", 2, NULL},
        {uneven, "dp=2,tp=2", 4, NULL},
        {uneven, "dp=2,sp=2", 4, NULL},
        {recurrent, "sp=2", 2, NULL},
        {recurrent, "dp=2,sp=2", 4, NULL},
        {recurrent, "sp=2,tp=2", 4, NULL},
        {recurrent, "dp=2,sp=3", 6, NULL},
        {{.model = "bert_tiny",
          .model_options = "layers=1,width=32,vocab=200,context=20,nsp=1,dropout=10",
          .data = "synthetic-tokens:N=20,test=5",
          .global_batch = 4,
          .lr = 0.05,
          .steps = 5},
         "sp=2",
         2,
         NULL},
        {{.model = "bert_tiny",
          .model_options = "layers=1,width=32,vocab=200,context=21,heads=4,dropout=10",
          .data = "synthetic-tokens:N=20,test=5",
          .global_batch = 4,
          .lr = 0.05,
          .steps = 5},
         "tp=2,sp=2",
         4,
         NULL},
        {{.model = "llama_tiny",
          .model_options = "layers=1,width=32,heads=4,kv_heads=1,mlp=48,context=9,vocab=50",
          .data = "synthetic-tokens:N=13,test=5",
          .global_batch = 4,
          .steps = 4},
         "sp=2",
         2,
         NULL},
        {{.model = "bert_tiny",
          .model_options = "layers=1,width=36,heads=3,vocab=200,context=22,nsp=1,dropout=10",
          .data = "synthetic-tokens:N=20,test=5",
          .global_batch = 4,
          .lr = 0.05,
          .steps = 5},
         "sp=4",
         4,
         "ring"},
        {{.model = "llama_tiny",
          .model_options = "layers=1,width=36,heads=3,kv_heads=1,mlp=48,context=10,vocab=50",
          .data = "synthetic-tokens:N=13,test=5",
          .global_batch = 4,
          .steps = 4},
         "sp=3",
         3,
         "attention ring # without heads to divide\n"},
        {{.model = "llama_tiny",
          .model_options = "layers=1,width=36,heads=3,kv_heads=1,mlp=48,context=11,vocab=50",
          .data = "synthetic-tokens:N=13,test=5",
          .global_batch = 4,
          .steps = 4},
         "sp=3",
         3,
         "*.lm_head.weight whole\nattention zigzag\n"},
        {{.model = "bert_tiny", /* not causal */
          .model_options = "layers=1,width=36,heads=3,vocab=200,context=21,nsp=1,dropout=10",
          .data = "synthetic-tokens:N=20,test=5",
          .global_batch = 4,
          .lr = 0.05,
          .steps = 5},
         "sp=2",
         2,
         "zigzag"},
        {{.model = "bert_tiny",
          .model_options = "layers=1,vocab=500",
          .data = "synthetic-tokens:N=20,test=5",
          .global_batch = 4,
          .lr = 0.05,
          .steps = 5},
         "tp=2",
         2,
         "megatron-sp"},
        {{.model = "alexnet",
          .model_options = "width=4,units=24",
          .data = "synthetic:N=13,test=5,shape=3x63x63,classes=10,seed=2",
          .global_batch = 4,
          .steps = 4},
         "dp=2,tp=2",
         4,
         NULL},
        {{.model = "vit_tiny",
          .model_options = "layers=1,heads=4,width=32,mlp=40,dropout=10",
          .data = "synthetic:N=13,test=5,shape=3x32x32,classes=10,seed=2",
          .global_batch = 4,
          .steps = 4},
         "tp=2",
         2,
         NULL},
        {{.model = "llama_tiny",
          .model_options = "layers=1,width=32,heads=4,kv_heads=2,mlp=48,context=8,vocab=50",
          .data = "synthetic-tokens:N=13,test=5",
          .global_batch = 4,
          .steps = 4},
         "tp=2",
         2,
         "megatron-sp"},
        {{.model = "lstm_lm",
          .model_options = "layers=1,width=12,hidden=16,context=8,vocab=51",
          .data = "synthetic-tokens:N=13,test=5",
          .global_batch = 4,
          .steps = 4},
         "tp=2",
         2,
         NULL},
        {{.model = "lstm_lm", /* steps of 4 samples and of 1 */
          .model_options = "layers=2,width=12,hidden=16,context=8,vocab=51,dropout=10",
          .data = "synthetic-tokens:N=13,test=5",
          .global_batch = 4,
          .epochs = 2},
         "sp=3",
         3,
         NULL},
        {{.model = "fasttext", /* one sum over the positions, read by all */
          .model_options = "rows=50,width=8,features=7",
          .data = "synthetic-labelled:N=13,test=5",
          .global_batch = 4,
          .lr = 0.1,
          .steps = 4},
         "dp=2,sp=2",
         4,
         NULL},
        {{.model = "resnet8",
          .model_options = "width=50",
          .augment = "mixup=0.4", /* soft labels */
          .data = "synthetic:N=13,test=5,shape=3x16x16,classes=10,seed=2",
          .global_batch = 4,
          .steps = 4},
         "tp=2",
         2,
         NULL},
        {{.model = "resnet8", /* batch normalization is of all samples */
          .model_options = "width=4",
          .data = "synthetic:N=11,test=5,shape=3x8x8,classes=10,seed=2",
          .global_batch = 4,
          .lr = 0.01,
          .steps = 3},
         "tp=2",
         2,
         "conv1.weight samples\nfc.weight 0\n"},
        {{.model = "googlenet",
          .model_options = "width=7,dropout=10",
          .data = "synthetic:N=13,test=5,shape=3x32x32,classes=10,seed=2",
          .global_batch = 4,
          .lr = 0.01,
          .steps = 3},
         "tp=2",
         2,
         NULL},
        {{.model = "mobilenet_v2",
          .model_options = "width=10",
          /* 3x32x32 would end in 1 pixel: normalized over 4 samples, rounding grows a billionfold.
           */
          .data = "synthetic:N=13,test=5,shape=3x64x64,classes=10,seed=2",
          .global_batch = 4,
          .lr = 1e-4,
          .steps = 3},
         "tp=3",
         3,
         NULL},
        {{.model = "densenet121",
          .model_options = "growth=5,width=8,layers=17",
          .data = "synthetic:N=13,test=5,shape=3x32x32,classes=10,seed=2",
          .global_batch = 4,
          .lr = 0.01,
          .steps = 3},
         "tp=3",
         3,
         NULL},
        {{.model = "unet",
          .model_options = "width=6",
          .data = "synthetic-seg:N=13,test=5,shape=3x32x32,classes=2",
          .global_batch = 4,
          .lr = 0.01,
          .steps = 3},
         "tp=3",
         3,
         NULL},
        {{.model = "dlrm",
          .model_options = "tables=5,rows=8,dim=4,dense=3,bottom1=6,bottom2=0,bottom3=0,top1=7",
          .data = "synthetic-clicks:N=13,test=5",
          .global_batch = 4,
          .lr = 0.1,
          .steps = 4},
         "dp=2,tp=2",
         4,
         NULL},
        {{.model = "mlp", .data = images, .global_batch = 8, .steps = 9, .epochs = 3},
         "tp=3",
         3,
         NULL},
        {{.model = "lenet", .data = images, .global_batch = 6, .steps = 9, .epochs = 3},
         "dp=2,tp=2",
         4,
         NULL},
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        const kolo_train_result alone = train_well(1, &opts);
        opts.mesh = jobs[i].mesh;
        const bool rules = jobs[i].placement && strchr(jobs[i].placement, '\n');
        opts.placement = rules ? rules_file(jobs[i].placement) : jobs[i].placement;
        const kolo_train_result meshed = train_well(jobs[i].ranks, &opts);
        assert_near_run(jobs[i].mesh, &alone, &meshed);
    }
}

/* A benchmark repeats its first steps from the same parameters, zeros included. */
static void sharded_parameters_start_anew(void **state) {
    kolo_train_opts opts = gpt2;
    opts.data = NULL;
    opts.in_memory = true;
    opts.steps = 3;
    opts.epochs = 0;
    opts.mesh = "tp=2";
    assert_int_equal(train_well(2, &opts).losses_checked, 2);
    opts.mesh = NULL;
    opts.zero = 3;
    assert_int_equal(train_well(2, &opts).losses_checked, 2);
}

/* Activations are summed in bf16: as near as that allows. */
static void activations_in_bf16(void **state) {
    kolo_train_opts opts = gpt2;
    if (kolo_kernel_check_bf16(kolo_isa_best()) != KOLO_OK) {
        print_message("skip: %s\n", kolo_last_error());
        skip();
    }
    opts.precision = KOLO_PRECISION_BF16;
    const kolo_train_result alone = train_well(1, &opts);
    static const struct {
        const char *mesh, *placement;
        int ranks;
        int64_t accumulate;
    } meshes[] = {
        {"tp=2", NULL, 2, 0}, {"pp=2", NULL, 2, 2},   {"pp=2,tp=2", NULL, 4, 2},
        {"sp=2", NULL, 2, 0}, {"sp=2", "ring", 2, 0}, {"sp=2", "zigzag", 2, 0},
    };
    for (size_t i = 0; i < KOLO_COUNT(meshes); i++) {
        opts.mesh = meshes[i].mesh;
        opts.placement = meshes[i].placement;
        opts.accumulate = meshes[i].accumulate;
        const kolo_train_result several = train_well(meshes[i].ranks, &opts);
        assert_near(opts.mesh, alone.first_loss, several.first_loss, 1e-3);
        assert_near(opts.mesh, alone.final.value[KOLO_METRIC_LOSS],
                    several.final.value[KOLO_METRIC_LOSS], 1e-2);
    }
}

static void checkpoints_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = gpt2;
    opts.out_dir = "run";
    opts.steps = 10;
    opts.mesh = "tp=2";
    opts.checkpoint_steps = 5;
    const kolo_train_result two = train_well(2, &opts);
    /* On another mesh, and on one rank. */
    opts.resume = "run";
    opts.steps = 15;
    opts.mesh = "sp=2";
    (void)train_well(2, &opts);
    opts.steps = 20;
    opts.mesh = NULL;
    const kolo_train_result alone = train_well(1, &opts);
    kolo_train_opts whole = gpt2;
    const kolo_train_result expected = train_well(1, &whole);
    assert_int_equal(two.parameters, alone.parameters);
    assert_near_run("resumed", &expected, &alone);
}

static void what_cannot_be_divided_is_named(void **state) {
    static const struct {
        const char *model_options, *mesh, *text;
        int ranks;
        int zero;
    } bad[] = {
        {"layers=1,width=30,heads=3,context=8,vocab=50", "tp=2",
         "choose a divisor of 3 for tp, or leave h.0.attn.c_attn.weight whole (--placement)", 2, 0},
        {"layers=1,width=30,heads=3,context=8,vocab=50", "tp=2,sp=2", "choose a divisor of 3 for ",
         4, 0},
        {"layers=1,width=32,heads=4,context=8,vocab=50", "xp=2", "tensor parallelism", 2, 0},
        {"layers=1,width=32,heads=4,context=8,vocab=50", "tp=2", "--zero above 1", 2, 2},
        {"layers=1,width=30,heads=3,context=8,vocab=50", "sp=2", "3 heads cannot be divided", 2, 0},
        {"layers=1,width=32,heads=4,context=2,vocab=50", "sp=4", "2 positions cannot", 4, 0},
        {"layers=1,width=32,heads=4,context=8,vocab=50", "dp=2,sp=2", "--zero above 1", 4, 2},
    };
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_train_opts opts = gpt2;
        opts.model_options = bad[i].model_options;
        opts.mesh = bad[i].mesh;
        opts.zero = bad[i].zero;
        assert_job_refused(bad[i].ranks, &opts, bad[i].text);
    }
    static const struct {
        const char *rules, *text;
    } wrong[] = {
        {"*.mlp.c_fc.weight\n", "line 1"},
        {"# none\n\n", "no placement rule"},
        {"wpe.weight 1\n", "layer_norm: input 0 (an activation) on the axis tp: the op needs"},
        {"wpe.weight 1\n", "sharded as wpe.weight is"},
        {"h.0.ln_1.weight 0\n", "layer_norm: input 1 (h.0.ln_1.weight)"},
        {"ln_f.bias 1\n", "ln_f.bias [32] cannot be divided"},
        {"attn 0\n", "no rule of tensor parallelism"},
        {"features.* samples\n", "no rule of tensor parallelism"},
        {"wte.weight samples\n", "divide layers by samples alone"},
        {"sums 2\nwte.weight 0\n", "sums are sharded along"},
        {"sums 1 2\nwte.weight 0\n", "sums are sharded along"},
        {"sums samples\nwte.weight 0\n", "sums are sharded along"},
        {"attention 0\nwte.weight 0\n", "give \"attention ring\""},
        {"* 0\nattention ring\n", "positions that an axis sp divides"}, /* no pattern hides it */
        {"wte.weight ring\n", "give \"attention ring\""},
        {"attention ring\nwte.weight 0\n", "positions that an axis sp divides"},
    };
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        kolo_train_opts opts = gpt2;
        opts.mesh = "tp=2";
        opts.placement = rules_file(wrong[i].rules);
        assert_job_refused(2, &opts, wrong[i].text);
    }
    kolo_train_opts narrow = {.model = "googlenet",
                              .model_options = "width=7",
                              .data = "synthetic:N=7,shape=3x32x32",
                              .mesh = "tp=3"};
    assert_job_refused(3, &narrow,
                       "inception3a.branch3.0.conv.weight [2,14,1,1] cannot be divided over tp=3");
    kolo_train_opts positions = gpt2;
    positions.mesh = "sp=2";
    positions.placement = "megatron";
    assert_job_refused(2, &positions, "layers that an axis tp divides");
    kolo_train_opts slices = gpt2;
    slices.mesh = "tp=2,sp=2";
    slices.placement = "wte.weight 0\nsums 0\n";
    assert_job_refused(4, &slices, "give rules without \"sums 0\"");
}

/* Steps of 5 samples cannot be sharded by samples, so these rules divide other layers only; the
 * last step of an epoch has 4, of which the labels would have to be sharded too. */
static void sizes_are_checked_before_the_first_step(void **state) {
    kolo_train_opts opts = few;
    opts.data = "synthetic-tokens:N=9,test=5";
    opts.global_batch = 5;
    opts.epochs = 1;
    opts.mesh = "tp=2";
    opts.out_dir = "early";
    opts.checkpoint_steps = 1;
    opts.placement = rules_file("sums 0\n*.c_fc.weight 0\n*.mlp.c_proj.weight 1\n");
    assert_job_refused(2, &opts, "the last step of an epoch, of 4 samples");
    assert_int_not_equal(access("early/latest", F_OK), 0);
    opts.data = "synthetic-tokens:N=5,test=9";
    assert_job_refused(2, &opts, "evaluation of 4 samples");
    assert_int_not_equal(access("early/latest", F_OK), 0);
    opts.no_eval = true;
    assert_int_equal(train_well(2, &opts).steps, 1);
}

/* Ranks whose slices differ in size: of 131 words, of 9 positions, of 5 channels. They recompute
 * the same nodes, or they would wait for each other in different operations. */
static void ranks_recompute_alike(void **state) {
    static const kolo_train_opts jobs[] = {
        {.model = "bert_tiny",
         .model_options = "layers=2,width=16,heads=4,context=8,vocab=131",
         .data = "synthetic-tokens:N=16,test=4",
         .global_batch = 8,
         .mesh = "tp=2"},
        {.model = "gpt2_tiny",
         .model_options = "layers=3,width=16,heads=4,context=9,vocab=31",
         .data = "synthetic-tokens:N=8,test=4",
         .global_batch = 4,
         .mesh = "sp=2"},
        {.model = "resnet20",
         .model_options = "width=5",
         .data = "synthetic:N=8,test=4,shape=3x32x32,classes=7",
         .global_batch = 4,
         .mesh = "tp=2"},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i];
        opts.epochs = 1;
        opts.lr = 0.01;
        opts.threads = 1;
        const kolo_train_result kept = train_well(2, &opts);
        opts.recompute = KOLO_RECOMPUTE_FULL;
        const kolo_train_result recomputed = train_well(2, &opts);
        assert_near_run(opts.model, &kept, &recomputed);
    }
}

TEST_MAIN(test_tensor_parallel_jobs) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_train_and_evaluate),
        cmocka_unit_test(sharded_parameters_start_anew),
        cmocka_unit_test(ranks_recompute_alike),
        cmocka_unit_test(activations_in_bf16),
        cmocka_unit_test(checkpoints_are_those_of_one_rank),
        cmocka_unit_test(what_cannot_be_divided_is_named),
        cmocka_unit_test(sizes_are_checked_before_the_first_step),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
