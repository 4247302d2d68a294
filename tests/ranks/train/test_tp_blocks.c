/* Tensor parallelism in blocks: the bits of all results, parameters, optimizer state and
 * evaluations, are those of one worker for any number of workers along tp, dp and pp: with dropout,
 * clipping, norms of whole tensors, tied tables, an epoch's last batch, and the fast kernels. */
#include "base/compiler.h"
#include "kolo/train.h"
#include "support/small_models.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last batch of an epoch has full shards, a shorter one and empty ones. */
static const char images[] = "synthetic:N=21,test=9,shape=1x8x8,seed=2";
static const char tokens[] = "synthetic-tokens:N=21,test=9";

#define GPT2 SMALL_GPT2, .data = tokens
#define BERT SMALL_BERT, .data = tokens
#define LLAMA                                                                                 \
    "llama_tiny", .model_options = "layers=1,width=16,heads=4,kv_heads=4,context=8,vocab=48", \
                  .data = tokens
#define MLP "mlp", .model_options = "hidden=16,layers=3", .data = images

static const struct {
    const char *name;
    kolo_train_opts opts;
} cases[] = {
    {"mlp, momentum, clipped",
     {.model = MLP,
      .optimizer.momentum = 0.9,
      .optimizer.clip = 0.5,
      .global_batch = 8,
      .reproducible = 4,
      .tp_blocks = 4}},
    {"mlp, lamb, two blocks",
     {.model = MLP,
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.clip = 1,
      .global_batch = 6,
      .reproducible = 3,
      .tp_blocks = 2}},
    {"gpt2, tied, adamw, clipped",
     {.model = GPT2,
      .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
      .optimizer.weight_decay = 0.1,
      .optimizer.clip = 0.5,
      .global_batch = 6,
      .reproducible = 3,
      .tp_blocks = 4}},
    {"lenet, adam",
     {.model = "lenet",
      .data = "synthetic:N=21,test=9,shape=1x14x14,seed=2",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .global_batch = 8,
      .reproducible = 4,
      .tp_blocks = 4}},
    {"gpt2, momentum, recomputed",
     {.model = GPT2,
      .optimizer.momentum = 0.9,
      .recompute = KOLO_RECOMPUTE_FULL,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 4}},
    {"llama, adam",
     {.model = LLAMA,
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 4}},
    {"vit, momentum",
     {.model = "vit_tiny",
      .model_options = "layers=1,width=16,heads=4",
      .data = "synthetic:N=9,test=3,shape=3x32x32,seed=2",
      .optimizer.momentum = 0.9,
      .optimizer.clip = 1,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 4}},
    {"experts, momentum",
     {.model = "gpt2_moe",
      .model_options = "layers=1,width=16,heads=4,context=8,vocab=48",
      .data = tokens,
      .optimizer.momentum = 0.9,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 2}},
    {"gpt2, bf16, momentum",
     {.model = GPT2,
      .reference_kernels = true,
      .precision = KOLO_PRECISION_BF16,
      .optimizer.momentum = 0.9,
      .optimizer.clip = 0.5,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 4}},
    {"alexnet, momentum",
     {.model = "alexnet",
      .model_options = "width=2,units=8",
      .data = "synthetic:N=5,test=2,shape=3x63x63,seed=2",
      .optimizer.momentum = 0.9,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 4}},
    {"resnet8, momentum, clipped",
     {.model = "resnet8",
      .model_options = "width=4",
      .data = "synthetic:N=13,test=5,shape=3x8x8,seed=2",
      .optimizer.momentum = 0.9,
      .optimizer.clip = 0.5,
      .global_batch = 8,
      .reproducible = 2,
      .tp_blocks = 2}},
    {"mobilenet, momentum",
     {.model = "mobilenet_v2",
      .model_options = "width=10,classes=12",
      .lr = 1e-6, /* with more, rounding grows: shards have 2 to 4 samples of 4 pixels */
      .data = "synthetic:N=13,test=5,shape=3x64x64,seed=2",
      .optimizer.momentum = 0.9,
      .global_batch = 8,
      .reproducible = 2,
      .tp_blocks = 4}},
    {"bert, adam, two blocks",
     {.model = BERT,
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .global_batch = 4,
      .reproducible = 2,
      .tp_blocks = 2}},
};

enum { FULL = 3 }; /* the first cases run on all meshes, the others on every other one */

static const struct {
    const char *mesh;
    int ranks, tp, zero;
} meshes[] = {{"tp=2", 2, 2, 0}, {"tp=4", 4, 4, 0}, {"dp=2,tp=2", 4, 2, 1}, {"pp=2,tp=2", 4, 2, 0}};

static kolo_train_opts options(size_t i) {
    kolo_train_opts opts = cases[i].opts;
    if (opts.lr == 0) opts.lr = 0.02;
    opts.epochs = i < FULL ? 2 : 1;
    return opts;
}

static void any_mesh_gives_the_bits_of_one_worker(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(i);
        const kolo_train_result alone = train_well(1, &opts);
        for (size_t m = 0; m < KOLO_COUNT(meshes); m++) {
            const bool left_out = i >= FULL && m % 2 != i % 2;
            if (opts.tp_blocks % meshes[m].tp != 0 || left_out) continue;
            opts.mesh = meshes[m].mesh;
            opts.zero = meshes[m].zero;
            const kolo_train_result several = train_well(meshes[m].ranks, &opts);
            char what[96];
            (void)snprintf(what, sizeof what, "%s: %s", cases[i].name, meshes[m].mesh);
            assert_same_run(what, &alone, &several);
        }
    }
}

/* The fastest layouts of images depend on how many blocks a rank has; those that it takes do not.
 */
static void convolutions_have_the_bits_of_one_worker(void **state) {
    kolo_train_opts opts = {.model = "alexnet",
                            .model_options = "width=25",
                            .data = "synthetic:N=8,test=1,shape=3x64x64",
                            .placement = "features.8.weight 0\nfeatures.8.bias 0\n"
                                         "features.10.weight 1\n",
                            .lr = 0.02,
                            .steps = 1,
                            .no_eval = true,
                            .global_batch = 8,
                            .reproducible = 1,
                            .tp_blocks = 8};
    const kolo_train_result alone = train_well(1, &opts);
    opts.mesh = "tp=2";
    const kolo_train_result several = train_well(2, &opts);
    assert_same_run("alexnet", &alone, &several);
}

/* A stage sends the sum of the blocks of its first layer, and norms of blocks are summed too. */
static void a_stage_sends_the_sum_of_blocks(void **state) {
    kolo_train_opts opts = {.model = "lstm_lm",
                            .data = tokens,
                            .model_options = "hidden=8,layers=1,context=8,vocab=48",
                            .placement = "encoder.weight 0\ndecoder.weight 0\n",
                            .lr = 0.02,
                            .optimizer.clip = 1,
                            .steps = 1,
                            .no_eval = true,
                            .global_batch = 2,
                            .reproducible = 1,
                            .tp_blocks = 4};
    const kolo_train_result alone = train_well(1, &opts);
    opts.mesh = "pp=2,tp=2";
    const kolo_train_result several = train_well(4, &opts);
    assert_same_run("lstm_lm", &alone, &several);
}

/* ZeRO on several workers, each with all blocks: LAMB and clipping have norms of whole tensors. */
static void divided_state_keeps_the_bits(void **state) {
    kolo_train_opts opts = options(1);
    opts.epochs = 1;
    const kolo_train_result alone = train_well(1, &opts);
    for (opts.zero = 1; opts.zero <= 3; opts.zero++) {
        const kolo_train_result several = train_well(3, &opts);
        assert_same_run("zero", &alone, &several);
    }
}

/* Which layers are in blocks determines the bits, as their number does. */
static void a_run_resumes_by_its_rules(void **state) {
    kolo_train_opts opts = options(0);
    assert_int_equal(system("rm -rf run"), 0);
    opts.epochs = 0;
    opts.steps = 3;
    const kolo_train_result whole = train_well(1, &opts);
    opts.out_dir = "run";
    opts.checkpoint_steps = 1;
    opts.mesh = "tp=2";
    opts.steps = 2;
    (void)train_well(2, &opts);
    opts.resume = "run";
    opts.steps = 3;
    opts.placement = "fc2.weight 0\nfc2.bias 0\nfc3.weight 1\n";
    assert_job_refused(2, &opts, "hash of the --placement rules");
    opts.placement = NULL;
    opts.mesh = NULL;
    const kolo_train_result resumed = train_well(1, &opts);
    assert_same_run("resumed", &whole, &resumed);
}

/* Blocks compute the same as whole layers, up to rounding. */
static void blocks_compute_what_layers_do(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(i);
        opts.epochs = 1;
        const kolo_train_result blocks = train_well(1, &opts);
        opts.tp_blocks = 0;
        const kolo_train_result whole = train_well(1, &opts);
        if (opts.precision == KOLO_PRECISION_BF16) {
            assert_near(cases[i].name, whole.first_loss, blocks.first_loss, 1e-2);
        } else {
            assert_near_run(cases[i].name, &whole, &blocks);
        }
    }
}

/* The number of blocks matters: the first test can fail. */
static void other_blocks_give_other_bits(void **state) {
    kolo_train_opts opts = options(0);
    const kolo_train_result four = train_well(1, &opts);
    opts.tp_blocks = 2;
    const kolo_train_result two = train_well(1, &opts);
    opts.tp_blocks = 0;
    const kolo_train_result none = train_well(1, &opts);
    assert_int_not_equal(four.parameter_hash, two.parameter_hash);
    assert_int_not_equal(two.parameter_hash, none.parameter_hash);
}

static void what_blocks_do_not_go_with_is_named(void **state) {
    static const struct {
        int ranks;
        kolo_train_opts opts;
        const char *text;
    } bad[] = {
        {1, {.model = MLP, .tp_blocks = 3}, "--tp-blocks 3: give 2, 4 or 8"},
        {1, {.model = MLP, .tp_blocks = 2}, "give --reproducible too"},
        {4,
         {.model = GPT2, .tp_blocks = 2, .reproducible = 4, .mesh = "sp=2,tp=2"},
         "--tp-blocks 2 cannot be combined with an axis sp or ep"},
        {2,
         {.model = MLP, .reproducible = 4, .mesh = "tp=2"},
         "--reproducible without --tp-blocks cannot be combined with the mesh dp=1,tp=2: omit one "
         "of the two, or give kolo train --tp-blocks 2, 4 or 8"},
        {4,
         {.model = MLP, .tp_blocks = 2, .reproducible = 4, .mesh = "tp=4"},
         "--tp-blocks 2 is not a multiple of the 4 workers along tp: choose another"},
        {1, {.model = GPT2, .tp_blocks = 8, .reproducible = 4}, "4 heads cannot be divided"},
        {1,
         {.model = "gpt2_tiny",
          .data = tokens,
          .model_options = "layers=1,width=16,heads=4,context=8,vocab=50",
          .tp_blocks = 4,
          .reproducible = 4},
         "wte.weight [50,16] cannot be divided into 4 equal blocks"},
        {1,
         {.model = GPT2, .tp_blocks = 2, .reproducible = 4, .placement = "megatron-sp"},
         "which --tp-blocks does not support: give other rules with --placement"},
        {1,
         {.model = "lstm_lm",
          .data = tokens,
          .tp_blocks = 2,
          .reproducible = 4,
          .model_options = "hidden=8,layers=1,context=8,vocab=48"},
         "which --tp-blocks does not support"},
        {1,
         {.model = "googlenet",
          .model_options = "width=7",
          .data = "synthetic:N=21,test=9,shape=3x32x32",
          .tp_blocks = 2,
          .reproducible = 4},
         "conv2.conv.weight [5,5,1,1] cannot be divided into 2 equal blocks"},
    };
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_train_opts opts = bad[i].opts;
        opts.global_batch = 8;
        opts.steps = 1;
        assert_job_refused(bad[i].ranks, &opts, bad[i].text);
    }
}

TEST_MAIN(test_tp_blocks) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_gives_the_bits_of_one_worker),
        cmocka_unit_test(convolutions_have_the_bits_of_one_worker),
        cmocka_unit_test(a_stage_sends_the_sum_of_blocks),
        cmocka_unit_test(divided_state_keeps_the_bits),
        cmocka_unit_test(a_run_resumes_by_its_rules),
        cmocka_unit_test(blocks_compute_what_layers_do),
        cmocka_unit_test(other_blocks_give_other_bits),
        cmocka_unit_test(what_blocks_do_not_go_with_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
