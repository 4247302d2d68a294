/* Reproducible training in pipelines: any number of stages, with any schedule and any number of
 * workers along dp, gives the bits of one worker with as many logical shards: with tied embeddings,
 * dropout, clipping, batch normalization, an epoch's last batch, and the fast kernels. */
#include "base/compiler.h"
#include "kolo/train.h"
#include "support/small_models.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <string.h>

/* The last batch of an epoch has full shards, a shorter one and empty ones. */
static const char images[] = "synthetic:N=43,test=9,shape=1x14x14,seed=2";
static const char colours[] = "synthetic:N=43,test=9,shape=3x16x16,seed=2";
static const char tokens[] = "synthetic-tokens:N=43,test=9";

#define GPT2 SMALL_GPT2, .data = tokens
#define BERT SMALL_BERT, .data = tokens

/* A mesh of so many ranks as its digits multiply to. */
typedef struct staged {
    const char *mesh, *schedule;
    int ranks, zero;
} staged;

static const struct {
    const char *name;
    kolo_train_opts opts;
    staged on[7]; /* ends with no mesh */
} cases[] = {
    {"gpt2, tied, adamw, clipped",
     {.model = GPT2,
      .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
      .optimizer.weight_decay = 0.1,
      .optimizer.clip = 0.5,
      .global_batch = 12,
      .reproducible = 6},
     {{"pp=2", "gpipe", 2, 0},
      {"pp=3", "1f1b", 3, 0},
      {"pp=2", "zb-h1", 2, 0},
      {"dp=2,pp=2", NULL, 4, 0},
      {"dp=2,pp=2", NULL, 4, 1},
      {"dp=2,pp=2", "zbv", 4, 1},
      {"pp=2", "interleaved:2", 2, 0}}},
    {"gpt2, bf16, clipped",
     {.model = GPT2,
      .reference_kernels = true,
      .precision = KOLO_PRECISION_BF16,
      .optimizer.momentum = 0.9,
      .optimizer.clip = 0.5,
      .global_batch = 8,
      .reproducible = 4},
     {{"pp=3", NULL, 3, 0}, {"dp=2,pp=2", "zbv", 4, 1}}},
    {"bert, tied, momentum",
     {.model = BERT, .optimizer.momentum = 0.9, .global_batch = 10, .reproducible = 5},
     {{"pp=2", NULL, 2, 0}, {"dp=2,pp=3", "zb-h1", 6, 0}, {"pp=3", "interleaved:2", 3, 0}}},
    {"gpt2, frozen layers, clipped",
     {.model = GPT2,
      .optimizer.freeze = "w?e.*,h.0.*,h.1.attn.*",
      .optimizer.clip = 0.5,
      .global_batch = 6,
      .reproducible = 3},
     {{"pp=3", NULL, 3, 0}}},
    {"lenet, clipped",
     {.model = "lenet",
      .data = images,
      .optimizer.momentum = 0.9,
      .optimizer.clip = 0.5,
      .global_batch = 16,
      .reproducible = 8},
     {{"pp=2", NULL, 2, 0}, {"pp=4", "zb-h1", 4, 0}, {"dp=3,pp=2", NULL, 6, 0}}},
    {"resnet20, batch normalization",
     {.model = "resnet20",
      .model_options = "width=2",
      .data = colours,
      .optimizer.kind = KOLO_OPTIMIZER_NESTEROV,
      .optimizer.momentum = 0.9,
      .optimizer.clip = 1,
      .global_batch = 12,
      .reproducible = 4},
     {{"pp=3", NULL, 3, 0}, {"dp=2,pp=2", "gpipe", 4, 0}}},
    {"mlp, chunks of stages, lamb",
     {.model = "mlp",
      .model_options = "layers=6",
      .data = images,
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.clip = 1,
      .global_batch = 8,
      .reproducible = 4},
     {{"pp=2", "interleaved:2", 2, 0}, {"pp=2", "zbv", 2, 0}, {"dp=2,pp=2", "zbv", 4, 0}}},
};

static void any_stages_give_the_bits_of_one_worker(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = cases[i].opts;
        opts.lr = 0.02;
        opts.epochs = 2;
        const kolo_train_result alone = train_well(1, &opts);
        for (size_t k = 0; k < KOLO_COUNT(cases[i].on) && cases[i].on[k].mesh; k++) {
            const staged *on = &cases[i].on[k];
            opts.mesh = on->mesh;
            opts.pipeline = on->schedule;
            opts.zero = on->zero;
            const kolo_train_result several = train_well(on->ranks, &opts);
            char what[96];
            (void)snprintf(what, sizeof what, "%s: %s %s zero %d", cases[i].name, on->mesh,
                           on->schedule ? on->schedule : "", on->zero);
            assert_same_run(what, &alone, &several);
        }
    }
}

/* Without logical shards gradients are summed in another order: the test above can fail. */
static void other_shards_give_other_bits(void **state) {
    kolo_train_opts opts = cases[0].opts;
    opts.epochs = 1;
    const kolo_train_result six = train_well(1, &opts);
    opts.mesh = "pp=2";
    opts.reproducible = 3;
    const kolo_train_result three = train_well(2, &opts);
    assert_int_not_equal(six.parameter_hash, three.parameter_hash);
}

/* Layers that move to other stages take their bits along. By the weights the model is cut very
 * unevenly; a loaded machine may disturb the first of several windows of measurement. */
static void moved_layers_keep_the_bits(void **state) {
    kolo_train_opts opts = cases[0].opts;
    opts.model_options = "layers=4,width=32,heads=4,context=8,vocab=50,dropout=0.2";
    opts.epochs = 4;
    const kolo_train_result alone = train_well(1, &opts);
    opts.mesh = "pp=2";
    opts.worker_weights = "1,0.01";
    opts.rebalance_stages = 1;
    const kolo_train_result moved = train_well(2, &opts);
    assert_same_run("rebalanced", &alone, &moved);
    assert_true(moved.stage_moves >= 1);
}

static void what_stages_do_not_go_with_is_named(void **state) {
    static const struct {
        const char *mesh, *schedule, *text;
        int ranks;
        int64_t audit;
    } bad[] = {
        {"pp=2,tp=2", NULL,
         "--reproducible without --tp-blocks cannot be combined with the mesh dp=1,pp=2,tp=2", 4,
         0},
        {"pp=2", NULL, "--audit cannot be combined with the mesh dp=1,pp=2, as the gradients", 2,
         2},
    };
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_train_opts opts = cases[0].opts;
        opts.epochs = 1;
        opts.mesh = bad[i].mesh;
        opts.pipeline = bad[i].schedule;
        opts.audit = bad[i].audit;
        assert_job_refused(bad[i].ranks, &opts, bad[i].text);
    }
}

TEST_MAIN(test_staged_shards) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_stages_give_the_bits_of_one_worker),
        cmocka_unit_test(other_shards_give_other_bits),
        cmocka_unit_test(moved_layers_keep_the_bits),
        cmocka_unit_test(what_stages_do_not_go_with_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
