/* Jobs on a device whose memory the host cannot touch have the bits of the same jobs on the CPU:
 * every kind of model, alone and with two ranks; ZeRO, meshes, pipelines, logical shards, rounds,
 * accumulation, recomputation; parameter servers; checkpoints, evaluation and prediction. */
#include "base/compiler.h"
#include "base/memory.h"
#include "device/device.h"
#include "kolo/checkpoint.h"
#include "kolo/custom_op.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/sum_model.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SMALL "synthetic:N=21,test=6,shape=1x28x28,seed=2"
#define COLOUR "synthetic:N=9,test=4,shape=3x32x32,seed=2"
#define LARGE "synthetic:N=5,test=2,shape=3x64x64,seed=2"
#define TOKENS "synthetic-tokens:N=13,test=4"
#define GPT2 "layers=2,width=32,heads=4,context=8,vocab=50,dropout=0.1"

/* Both runs of a job. */
static void compare(const char *what, int ranks, const kolo_train_opts *opts) {
    kolo_train_opts on_device = *opts;
    on_device.device = "fake";
    const kolo_train_result expected = train_well(ranks, opts);
    const kolo_train_result result = train_well(ranks, &on_device);
    assert_same_run(what, &expected, &result);
    assert_true(expected.first_loss > 0);
}

static void every_model_has_the_same_bits(void **state) {
    static const struct {
        const char *model, *options, *data;
    } models[] = {
        {"lenet", NULL, SMALL},
        {"mlp", "hidden=32", SMALL},
        {"resnet20", "width=4", COLOUR},
        {"alexnet", "width=10,units=64", LARGE},
        {"vgg16", "width=10,units=64", LARGE},
        {"googlenet", "width=10", LARGE},
        {"mobilenet_v2", "width=0.25", LARGE},
        {"densenet121", "layers=17,growth=4,width=8", LARGE},
        {"vit_tiny", "layers=1,width=48,mlp=64,dropout=10", LARGE},
        {"unet", "width=4", "synthetic-seg:N=5,test=2,shape=3x32x32,classes=2"},
        {"gpt2_tiny", GPT2, TOKENS},
        {"gpt2_moe", "layers=1,width=32,context=8,vocab=50,dropout=10", TOKENS},
        {"llama_tiny", "layers=1,width=32,mlp=48,context=8,vocab=50", TOKENS},
        {"bert_tiny", "layers=1,width=32,context=9,vocab=60,nsp=1,dropout=10", TOKENS},
        {"lstm_lm", "layers=1,hidden=16,width=16,context=8,vocab=50,dropout=10", TOKENS},
        {"dlrm", "dense=13,rows=50,tables=3,bottom1=16,bottom2=0,top1=16,top2=0",
         "synthetic-clicks:N=21,test=6"},
        {"fasttext", "rows=100,features=8", "synthetic-labelled:N=21,test=6,classes=10"},
    };
    for (size_t i = 0; i < KOLO_COUNT(models); i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            compare(models[i].model, ranks,
                    &(kolo_train_opts){.model = models[i].model,
                                       .model_options = models[i].options,
                                       .data = models[i].data,
                                       .optimizer.momentum = 0.9,
                                       .optimizer.clip = 1,
                                       .no_share = true,
                                       .lr = 0.01,
                                       .batch = 2,
                                       .steps = 2});
        }
    }
}

static void every_strategy_has_the_same_bits(void **state) {
    static const struct {
        const char *name;
        kolo_train_opts opts;
        int ranks;
    } jobs[] = {
        {"bf16",
         {.model = "lenet", .data = SMALL, .precision = KOLO_PRECISION_BF16, .batch = 4},
         2},
        {"accumulated, ranks without samples",
         {.model = "mlp",
          .data = "synthetic:N=13,test=5,shape=1x28x28",
          .optimizer.kind = KOLO_OPTIMIZER_ADAM,
          .batch = 2,
          .accumulate = 2},
         2},
        {"recomputed",
         {.model = "gpt2_tiny",
          .model_options = GPT2,
          .data = TOKENS,
          .recompute = KOLO_RECOMPUTE_FULL,
          .batch = 2},
         1},
        {"synchronized batch normalization",
         {.model = "resnet20",
          .model_options = "width=4",
          .data = COLOUR,
          .sync_bn = true,
          .batch = 2},
         2},
        {"row-sparse table",
         {.model = "gpt2_tiny",
          .model_options = "layers=1,width=32,heads=2,context=8,vocab=50,tied=0",
          .data = TOKENS,
          .optimizer.kind = KOLO_OPTIMIZER_ADAM,
          .sparse_embedding = true,
          .batch = 2},
         2},
        {"logical shards, alone",
         {.model = "lenet", .data = SMALL, .global_batch = 8, .reproducible = 4},
         1},
        {"logical shards",
         {.model = "resnet20",
          .model_options = "width=4",
          .data = COLOUR,
          .global_batch = 8,
          .reproducible = 4,
          .audit = 2},
         2},
        {"logical shards, sharded state",
         {.model = "lenet", .data = SMALL, .global_batch = 8, .reproducible = 4, .zero = 3},
         2},
        {"lag", {.model = "mlp", .data = SMALL, .consistency = "lag:1", .batch = 2}, 2},
        {"local steps", {.model = "mlp", .data = SMALL, .consistency = "local:2", .batch = 2}, 2},
        {"fragments",
         {.model = "mlp",
          .data = SMALL,
          .consistency = "diloco:4,fragments=2,overlap=1",
          .batch = 2},
         2},
        {"rounds after a warm-up",
         {.model = "mlp", .data = SMALL, .consistency = "diloco:2,warmup=2", .batch = 2},
         2},
        {"codes",
         {.model = "mlp", .data = SMALL, .compress = "int8", .compress_min_bytes = 64, .batch = 2},
         2},
        {"factors",
         {.model = "mlp",
          .data = SMALL,
          .compress = "powersgd:2",
          .compress_min_bytes = 64,
          .batch = 2},
         2},
        {"tensor parallelism",
         {.model = "gpt2_tiny",
          .model_options = GPT2,
          .data = TOKENS,
          .mesh = "dp=2,tp=2",
          .batch = 2},
         4},
        {"sequence parallelism",
         {.model = "gpt2_tiny",
          .model_options = GPT2,
          .data = TOKENS,
          .mesh = "tp=2",
          .placement = "megatron-sp",
          .batch = 2},
         2},
        {"context parallelism",
         {.model = "gpt2_tiny", .model_options = GPT2, .data = TOKENS, .mesh = "sp=2", .batch = 2},
         2},
        {"ring attention",
         {.model = "gpt2_tiny",
          .model_options = GPT2,
          .data = TOKENS,
          .mesh = "sp=2",
          .placement = "ring",
          .batch = 2},
         2},
        {"rows of images",
         {.model = "resnet20",
          .model_options = "width=4",
          .data = COLOUR,
          .mesh = "sp=2",
          .batch = 2},
         2},
        {"experts",
         {.model = "gpt2_moe",
          .model_options = "layers=1,width=32,experts=4,context=8,vocab=50",
          .data = TOKENS,
          .mesh = "ep=2",
          .batch = 2},
         2},
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        opts.no_share = true;
        opts.lr = 0.02;
        opts.steps = 5;
        opts.epochs = 5;
        compare(jobs[i].name, jobs[i].ranks, &opts);
    }
}

static void sharded_state_has_the_same_bits(void **state) {
    kolo_train_opts opts = {.model = "lenet",
                            .data = SMALL,
                            .optimizer.kind = KOLO_OPTIMIZER_ADAM,
                            .optimizer.clip = 0.5,
                            .bucket_bytes = 100000,
                            .no_share = true,
                            .batch = 2,
                            .steps = 5,
                            .lr = 0.02};
    for (opts.zero = 1; opts.zero <= 3; opts.zero++) compare("zero", 2, &opts);
}

static void pipelines_have_the_same_bits(void **state) {
    static const struct {
        const char *mesh, *schedule;
        int ranks, zero;
    } cases[] = {{"pp=2", "gpipe", 2, 0},    {"pp=2", "1f1b", 2, 0},
                 {"pp=2", "zb-h1", 2, 0},    {"pp=2", "interleaved:2", 2, 0},
                 {"pp=2", "zbv", 2, 0},      {"pp=2,tp=2", "1f1b", 4, 0},
                 {"dp=2,pp=2", "1f1b", 4, 1}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        compare(cases[i].schedule, cases[i].ranks,
                &(kolo_train_opts){.model = "gpt2_tiny",
                                   .model_options = GPT2,
                                   .data = TOKENS,
                                   .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
                                   .optimizer.clip = 1,
                                   .mesh = cases[i].mesh,
                                   .pipeline = cases[i].schedule,
                                   .zero = cases[i].zero,
                                   .lr = 0.01,
                                   .global_batch = 8,
                                   .accumulate = 2,
                                   .steps = 4,
                                   .epochs = 4});
    }
}

/* Gradients leave the device as they are complete, and what the owners, which are on the host, make
 * of them reaches it. With 13 samples a worker has none in some micro-batches. */
static void servers_have_the_same_bits(void **state) {
    static const struct {
        const char *name;
        kolo_train_opts opts;
        int ranks;
    } jobs[] = {
        {"accumulated",
         {.model = "lenet",
          .data = "synthetic:N=13,test=4,shape=1x28x28,seed=2",
          .sync = KOLO_SYNC_MESH,
          .batch = 2,
          .accumulate = 2},
         2},
        {"mesh", {.sync = KOLO_SYNC_MESH, .batch = 2}, 2},
        {"server", {.sync = KOLO_SYNC_PS, .servers = 1, .batch = 2, .bucket_bytes = 1024}, 3},
        {"workers of a host",
         {.sync = KOLO_SYNC_PS, .servers = 1, .batch = 2, .consistency = "asp,group=2"},
         3},
        {"rounds", {.sync = KOLO_SYNC_MESH, .batch = 2, .consistency = "diloco:2"}, 2},
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        if (!opts.model) {
            opts.model = "resnet20";
            opts.model_options = "width=4";
            opts.data = "synthetic:N=13,test=4,shape=3x32x32,seed=2";
        }
        opts.optimizer.momentum = 0.9;
        opts.lr = 0.02;
        opts.steps = 5;
        opts.epochs = 5;
        compare(jobs[i].name, jobs[i].ranks, &opts);
    }
    compare("table", 2,
            &(kolo_train_opts){.model = "dlrm",
                               .model_options =
                                   "tables=4,rows=50,dim=8,dense=3,bottom1=5,bottom2=0,bottom3=0,"
                                   "top1=7,top2=6",
                               .data = "synthetic-clicks:N=21,test=6,seed=3",
                               .table = "emb.weight",
                               .sync = KOLO_SYNC_MESH,
                               .lr = 0.05,
                               .batch = 2,
                               .steps = 4});
}

/* Layers move to the other stage. */
static void stages_are_cut_anew_on_a_device(void **state) {
    compare("rebalanced", 2,
            &(kolo_train_opts){.model = "mlp",
                               .model_options = "hidden=32,layers=4",
                               .data = SMALL,
                               .optimizer.momentum = 0.9,
                               .mesh = "pp=2",
                               .rebalance_stages = 2,
                               .lr = 0.01,
                               .global_batch = 4,
                               .accumulate = 2,
                               .no_eval = true,
                               .steps = 9,
                               .epochs = 9});
}

/* ---- files ---- */

/* Runs of four steps, cut after two: each on the device that `first` and `second` name. */
static kolo_train_result resumed(const kolo_train_opts *given, int ranks, const char *folder,
                                 const char *first, const char *second) {
    kolo_train_opts opts = *given;
    opts.out_dir = folder;
    opts.checkpoint_steps = 2;
    opts.steps = 2;
    opts.device = first;
    (void)train_well(ranks, &opts);
    opts.steps = 4;
    opts.device = second;
    opts.resume = folder;
    return train_well(ranks, &opts);
}

static void checkpoints_go_from_device_to_device(void **state) {
    static const char *const devices[] = {"cpu", "fake"};
    static const struct {
        int ranks, zero;
        const char *mesh;
        int64_t accumulate;
    } cases[] = {{1, 0, NULL, 1}, {2, 0, NULL, 1}, {2, 2, NULL, 1}, {2, 0, "pp=2", 2}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = {.model = "lenet",
                                .data = SMALL,
                                .optimizer.momentum = 0.9,
                                .zero = cases[i].zero,
                                .mesh = cases[i].mesh,
                                .accumulate = cases[i].accumulate,
                                .global_batch = 4,
                                .no_share = true,
                                .lr = 0.02,
                                .epochs = 4,
                                .steps = 4};
        const kolo_train_result expected = train_well(cases[i].ranks, &opts);
        for (int k = 1; k < 4; k++) {
            char folder[32];
            if (TEST_FEWER((size_t)k != 1 + i % 3, false)) continue; /* each way in some case */
            (void)snprintf(folder, sizeof folder, "run%zu.%d", i, k);
            const kolo_train_result result =
                resumed(&opts, cases[i].ranks, folder, devices[k & 1], devices[k >> 1]);
            assert_true(result.parameter_hash == expected.parameter_hash);
        }
    }
}

typedef struct predicted {
    float values[64];
    size_t n;
} predicted;

static kolo_status keep(void *arg, const kolo_prediction *p) {
    predicted *to = arg;
    const size_t n = (size_t)(p->count * kolo_shape_count(&p->shape));
    assert_true(to->n + n <= KOLO_COUNT(to->values));
    memcpy(to->values + to->n, p->values, n * sizeof *p->values);
    to->n += n;
    return KOLO_OK;
}

static void evaluations_and_predictions_have_the_same_bits(void **state) {
    kolo_train_opts opts = {
        .model = "lenet", .data = SMALL, .out_dir = "trained", .batch = 4, .steps = 2, .lr = 0.02};
    (void)train_well(1, &opts);
    kolo_train_result results[2];
    predicted predictions[2] = {{.n = 0}, {.n = 0}};
    for (int k = 0; k < 2; k++) {
        const kolo_eval_opts eval = {.checkpoint = "trained/checkpoint-final.safetensors",
                                     .data = SMALL,
                                     .batch = 4,
                                     .device = k ? "fake" : "cpu"};
        ASSERT_OK(kolo_evaluate(NULL, &eval, &results[k]));
        ASSERT_OK(kolo_predict(&eval, &(kolo_predict_opts){.sink = keep, .arg = &predictions[k]}));
    }
    assert_int_equal(predictions[0].n, 60);
    assert_memory_equal(&predictions[0], &predictions[1], sizeof *predictions);
    assert_memory_equal(&results[0].test, &results[1].test, sizeof results[0].test);
    assert_true(results[0].parameter_hash == results[1].parameter_hash);
}

/* ---- what fails ---- */

static void other_devices_are_refused(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *text;
    } cases[] = {
        {{.device = "cuda"}, "no kernels and no collectives for CUDA"},
        {{.device = "gpu"}, "choose auto or cpu"},
        {{.device = "fake", .lanes = KOLO_LANES_ALL, .threads = 2}, "lanes divide the threads"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = cases[i].opts;
        opts.model = "mlp";
        opts.data = SMALL;
        assert_job_refused(2, &opts, cases[i].text);
    }
    kolo_train_result result;
    const kolo_eval_opts eval = {.checkpoint = "none", .data = SMALL, .device = "cuda"};
    assert_int_equal(kolo_evaluate(NULL, &eval, &result), KOLO_ERR_UNSUPPORTED);
}

static void a_plan_that_does_not_fit_states_what_it_needs(void **state) {
    kolo_device_fake_pin(1 << 18);
    kolo_train_result result;
    const kolo_train_opts opts = {
        .model = "lenet", .data = SMALL, .batch = 8, .steps = 1, .device = "fake"};
    const kolo_status status = kolo_train(NULL, &opts, NULL, NULL, &result);
    kolo_device_fake_pin(0);
    assert_int_equal(status, KOLO_ERR_NOMEM);
    if (!strstr(kolo_last_error(), "MiB of device fake:0 (parameters and optimizer")) {
        fail_msg("%s", kolo_last_error());
    }
}

static void a_step_on_a_device_allocates_nothing(void **state) {
    const kolo_session_opts opts = {.batch = 3, .device = "fake", .optimizer.momentum = 0.9};
    kolo_session *session;
    (void)sum_fill(NULL);
    const kolo_batch batch = sum_batch(0, 3);
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &session));
    for (int i = 0; i < 2; i++) ASSERT_OK(kolo_session_step(session, &batch, NULL));
    kolo_alloc_fail_nth(1);
    const kolo_status status = kolo_session_step(session, &batch, NULL);
    kolo_alloc_fail_nth(0);
    ASSERT_OK(status);
    kolo_session_destroy(session);
}

TEST_MAIN(test_device_jobs) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_has_the_same_bits),
        cmocka_unit_test(every_strategy_has_the_same_bits),
        cmocka_unit_test(sharded_state_has_the_same_bits),
        cmocka_unit_test(pipelines_have_the_same_bits),
        cmocka_unit_test(servers_have_the_same_bits),
        cmocka_unit_test(stages_are_cut_anew_on_a_device),
        cmocka_unit_test(checkpoints_go_from_device_to_device),
        cmocka_unit_test(evaluations_and_predictions_have_the_same_bits),
        cmocka_unit_test(other_devices_are_refused),
        cmocka_unit_test(a_plan_that_does_not_fit_states_what_it_needs),
        cmocka_unit_test(a_step_on_a_device_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
