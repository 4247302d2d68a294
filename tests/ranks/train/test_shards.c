/* Reproducible training: the bits of all results depend on the logical shards, not on how many
 * workers ran them or how many shards each had. Every job is compared with a single rank. */
#include "base/compiler.h"
#include "kolo/train.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = TRAIN_JOB_RANKS };

/* ---- bitwise equality ---- */

/* 91 and 67 samples: the last batch of an epoch has full shards, a shorter one and empty ones. */
static const char images[] = "synthetic:N=91,test=20,shape=1x14x14,seed=2";
static const char tokens[] = "synthetic-tokens:N=67,test=10";

static const struct {
    const char *name;
    kolo_train_opts opts;
    const char *weights[MAX_RANKS + 1]; /* by number of ranks, another run */
    int usual; /* number of ranks outside the soak test; 0: all. Some plans take long to compile */
} cases[] = {
    {"momentum, clipped, augmented",
     {.model = "lenet",
      .optimizer.momentum = 0.9,
      .optimizer.clip = 0.5,
      .augment = "flip,crop=2,erase=3,mixup=0.4,cutmix=1",
      .bucket_bytes = 4096,
      .global_batch = 16,
      .reproducible = 8},
     {[2] = "5,3", [3] = "0.1,1,1", [4] = "1,7,1,4"},
     3},
    {"batch normalization, nesterov",
     {.model = "resnet20",
      .model_options = "width=2",
      .optimizer.kind = KOLO_OPTIMIZER_NESTEROV,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .global_batch = 24,
      .reproducible = 8},
     {[2] = "5,2", [3] = "5,1,2"},
     2},
    {"adam, five shards",
     {.model = "mlp",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .optimizer.clip = 1,
      .global_batch = 20,
      .reproducible = 5},
     {[2] = "1,3"},
     0},
    {"lars",
     {.model = "lenet",
      .optimizer.kind = KOLO_OPTIMIZER_LARS,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .optimizer.scale_matrices_only = true,
      .global_batch = 16,
      .reproducible = 8},
     {[2] = "5,3"},
     3},
    {"lamb, clipped",
     {.model = "mlp",
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.weight_decay = 1e-2,
      .optimizer.clip = 1,
      .global_batch = 16,
      .reproducible = 8},
     {[2] = "5,3"},
     0},
    {"gpt2, adamw, dropout",
     {.model = "gpt2_tiny",
      .model_options = "layers=1,width=8,heads=2,context=8,vocab=100,dropout=0.2",
      .data = tokens,
      .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
      .optimizer.weight_decay = 0.1,
      .optimizer.clip = 1,
      .global_batch = 16,
      .reproducible = 8},
     {[2] = "3,1", [3] = "3,1,4", [4] = "1,7,1,4"},
     0},
    {"hidden tokens",
     {.model = "bert_tiny",
      .model_options = "layers=1,width=8,heads=2,context=8,vocab=50,mask=49,dropout=20",
      .data = tokens,
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .global_batch = 14,
      .reproducible = 7},
     {NULL},
     0},
};

static bool in_soak(void) { return getenv("KOLO_SOAK") != NULL; }

static void any_number_of_workers_gives_the_same_bits(void **state) {
    static const int worlds[] = {2, 3, 4, 5, 7, 8};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = cases[i].opts;
        if (!opts.data) opts.data = images;
        opts.steps = in_soak() ? 50 : 8;
        opts.epochs = 20;
        const kolo_train_result alone = train_well(1, &opts);
        for (size_t w = 0; w < KOLO_COUNT(worlds); w++) {
            int ranks = worlds[w];
            if (!in_soak() && TEST_FEWER(w % 3 != i % 3, cases[i].usual && cases[i].usual != ranks))
                continue;
            kolo_train_result several = train_well(ranks, &opts);
            assert_same_run(cases[i].name, &alone, &several);
            opts.worker_weights = cases[i].weights[ranks];
            opts.audit = opts.worker_weights ? 3 : 0; /* which changes nothing either */
            if (!opts.worker_weights) continue;
            several = train_well(ranks, &opts);
            assert_same_run(cases[i].name, &alone, &several);
            opts.worker_weights = NULL;
            opts.audit = 0;
        }
    }
}

/* Without logical shards the sums follow the ranks: the test above can fail. */
static void other_sums_give_other_bits(void **state) {
    kolo_train_opts opts = cases[0].opts;
    opts.data = images;
    opts.steps = 8;
    const kolo_train_result eight = train_well(1, &opts);
    opts.reproducible = 4;
    const kolo_train_result four = train_well(2, &opts);
    assert_int_not_equal(eight.parameter_hash, four.parameter_hash);
}

/* ---- processes ---- */

static kolo_status process_body(kolo_comm *comm, const void *arg, void *result) {
    const int *i = arg; /* options have pointers: a process looks them up */
    kolo_train_opts opts = cases[*i].opts;
    opts.data = images;
    opts.steps = 8;
    opts.worker_weights = cases[*i].weights[kolo_comm_size(comm)];
    return train_body(comm, &opts, result);
}

static void processes_give_the_same_bits_as_threads(void **state) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    const int i = 0;
    kolo_train_opts opts = cases[i].opts;
    opts.data = images;
    opts.steps = 8;
    const kolo_train_result alone = train_well(1, &opts);
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        static train_outcome outcomes[3];
        rank_job job = {
            .n = 3,
            .transport = transports[t],
            .body = process_body,
            .arg = &i,
            .arg_bytes = sizeof i,
            .results = outcomes,
            .result_bytes = sizeof *outcomes,
        };
        ASSERT_OK(run_rank_job(&job));
        if (outcomes[0].status != KOLO_OK) fail_msg("%s", outcomes[0].error);
        assert_same_run("processes", &alone, &outcomes[0].result);
    }
}

/* ---- options ---- */

static void contradictory_options_are_refused(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *error;
    } wrong[] = {
        {{.batch = 8, .global_batch = 16}, "choose one of the two"},
        {{.reproducible = 4}, "give --global-batch 128"},
        {{.reproducible = 4, .global_batch = 18}, "give --global-batch 20"},
        {{.reproducible = 4, .global_batch = 16, .accumulate = 2}, "omit --accumulate"},
        {{.reproducible = 4, .global_batch = 16, .sparse_embedding = true}, "row-sparse"},
        {{.global_batch = 16, .worker_weights = "1,1"}, "give --reproducible too"},
        {{.global_batch = 16, .audit = 5}, "give --reproducible too"},
        {{.reproducible = 4, .global_batch = 16, .worker_weights = "1"}, "1 worker weights for 2"},
        {{.reproducible = 4, .global_batch = 16, .worker_weights = "1,1,1"}, "3 worker weights"},
        {{.reproducible = 4, .global_batch = 16, .worker_weights = "1,2e9"},
         "that of worker 1, 2e9, must be below 1e+09: only their ratios count"},
        {{.reproducible = 4, .global_batch = 16, .worker_weights = "1,0"}, "positive numbers"},
        {{.reproducible = 4, .global_batch = 16, .worker_weights = "1,"}, "positive numbers"},
        {{.reproducible = 4, .global_batch = 16, .worker_weights = "1;2"}, "positive numbers"},
    };
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        kolo_train_opts opts = wrong[i].opts;
        opts.model = "mlp";
        opts.data = images;
        assert_int_equal(kolo_train_check(&opts, 2), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), wrong[i].error)) fail_msg("%s", kolo_last_error());
    }
}

/* A global batch without shards is that of any division among workers, up to rounding. */
static void a_global_batch_is_divided_among_the_workers(void **state) {
    kolo_train_opts opts = {.model = "mlp", .data = images, .steps = 8, .global_batch = 17};
    const kolo_train_result alone = train_well(1, &opts);
    for (int ranks = 2; ranks <= 3; ranks++) {
        for (opts.accumulate = 1; opts.accumulate <= 2; opts.accumulate++) {
            kolo_train_result several = train_well(ranks, &opts);
            assert_int_equal(several.samples, alone.samples);
            double first = several.first_loss / alone.first_loss - 1;
            assert_true(fabs(first) < 1e-5);
        }
    }
}

TEST_MAIN(test_shards) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_workers_gives_the_same_bits),
        cmocka_unit_test(other_sums_give_other_bits),
        cmocka_unit_test(processes_give_the_same_bits_as_threads),
        cmocka_unit_test(contradictory_options_are_refused),
        cmocka_unit_test(a_global_batch_is_divided_among_the_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
