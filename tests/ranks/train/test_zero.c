/* ZeRO: sharded optimizer state and gradients change neither bits nor checkpoints, whatever the
 * number of ranks, and take the memory that they should. Every job is compared with plain data
 * parallelism. */
#include "base/compiler.h"
#include "base/status.h"
#include "data/safetensors/safetensors.h"
#include "kolo/dump.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char images[] = "synthetic:N=91,test=20,shape=1x28x28,seed=2";

/* Buckets of several parameters, and parameters that several ranks share. */
static const struct {
    const char *name;
    kolo_train_opts opts;
    int ranks; /* outside the soak test */
} cases[] = {
    {"adam, clipped",
     {.model = "lenet",
      .data = images,
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .optimizer.clip = 0.5,
      .bucket_bytes = 100000,
      .batch = 4},
     3},
    {"lamb",
     {.model = "mlp",
      .model_options = "hidden=64",
      .data = images,
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.weight_decay = 0.01,
      .optimizer.clip = 1,
      .bucket_bytes = 100000,
      .batch = 4},
     2},
    {"lars",
     {.model = "mlp",
      .model_options = "hidden=64",
      .data = images,
      .optimizer.kind = KOLO_OPTIMIZER_LARS,
      .optimizer.momentum = 0.9,
      .batch = 4},
     2},
    {"statistics, nesterov, accumulated",
     {.model = "resnet8",
      .model_options = "width=8",
      .data = images,
      .optimizer.kind = KOLO_OPTIMIZER_NESTEROV,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .bucket_bytes = 30000,
      .batch = 2,
      .accumulate = 2},
     2},
    {"plain sgd, steps with ranks that have no samples",
     {.model = "mlp",
      .model_options = "hidden=64",
      .data = "synthetic:N=13,test=5,shape=1x28x28",
      .batch = 2,
      .accumulate = 2},
     3},
    {"gpt2, adamw, dropout, tied",
     {.model = "gpt2_tiny",
      .model_options = "layers=1,width=64,heads=2,context=8,vocab=500,dropout=0.2",
      .data = "synthetic-tokens:N=67,test=10",
      .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
      .optimizer.weight_decay = 0.1,
      .optimizer.clip = 1,
      .batch = 4},
     2},
    {"row-sparse table",
     {.model = "gpt2_tiny",
      .model_options = "layers=1,width=64,heads=2,context=8,vocab=500,tied=0",
      .data = "synthetic-tokens:N=67,test=10",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .sparse_embedding = true,
      .bucket_bytes = 50000,
      .batch = 4},
     3},
};

static const size_t row_sparse = 6; /* its number */

static kolo_train_opts options_of(size_t i) {
    kolo_train_opts opts = cases[i].opts;
    opts.algorithm = KOLO_ALGORITHM_DIRECT;
    opts.no_share = true; /* see test_share */
    opts.lr = 0.02;
    opts.steps = 9;
    opts.epochs = 20;
    return opts;
}

/* Sums over micro-batches and over ranks in another order: equal but for rounding. */
static void assert_close_run(const char *what, const kolo_train_result *a,
                             const kolo_train_result *b) {
    double one = a->final.value[KOLO_METRIC_LOSS], other = b->final.value[KOLO_METRIC_LOSS];
    assert_true(a->first_loss == b->first_loss);
    if (!(fabs(one - other) < 1e-3 * one)) fail_msg("%s: %.9g, but %.9g", what, other, one);
}

static void sharded_state_gives_the_same_bits(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int ranks = 2; ranks <= 5; ranks++) {
            if (!getenv("KOLO_SOAK") && ranks != cases[i].ranks) continue;
            kolo_train_opts opts = options_of(i);
            const kolo_train_result plain = train_well(ranks, &opts);
            for (opts.zero = 1; opts.zero <= 3; opts.zero++) {
                const kolo_train_result sharded = train_well(ranks, &opts);
                if (opts.zero > 1 && opts.accumulate > 1) {
                    assert_close_run(cases[i].name, &plain, &sharded);
                } else {
                    assert_same_run(cases[i].name, &plain, &sharded);
                }
            }
        }
    }
}

/* ---- logical shards ---- */

static kolo_train_opts reproducible_options(size_t i) {
    kolo_train_opts opts = options_of(i);
    opts.algorithm = KOLO_ALGORITHM_AUTO;
    opts.accumulate = 0;
    opts.batch = 0;
    opts.global_batch = 12;
    opts.reproducible = 6;
    opts.steps = 6;
    return opts;
}

/* The bits of one rank, for any number of ranks and any parts. */
static void reproducible_runs_are_sharded(void **state) {
    for (size_t i = 0; i < row_sparse; i++) {
        kolo_train_opts opts = reproducible_options(i);
        const kolo_train_result plain = train_well(1, &opts);
        for (int ranks = 2; ranks <= 5; ranks++) {
            if (!getenv("KOLO_SOAK") && ranks != cases[i].ranks + (int)i % 2) continue;
            for (opts.zero = 1; opts.zero <= 3; opts.zero++) {
                if (opts.zero == 2 && !getenv("KOLO_SOAK")) continue; /* the plans of level 1 */
                const kolo_train_result sharded = train_well(ranks, &opts);
                assert_same_run(cases[i].name, &plain, &sharded);
            }
        }
    }
}

static void unequal_and_audited_parts_give_the_same_bits(void **state) {
    kolo_train_opts opts = reproducible_options(0);
    const kolo_train_result plain = train_well(1, &opts);
    opts.worker_weights = "1,0.2,2"; /* one rank has no shards */
    opts.audit = 2;
    opts.check_replicas = 3;
    for (opts.zero = 1; opts.zero <= 3; opts.zero += 2) {
        const kolo_train_result sharded = train_well(3, &opts);
        assert_same_run("1, 0.2, 2", &plain, &sharded);
    }
}

/* ---- processes ---- */

static kolo_status process_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_train_opts opts = options_of(0); /* options have pointers */
    opts.zero = *(const int *)arg;
    bool shares_memory = strcmp(kolo_comm_transport(comm), "shm") == 0;
    if (!shares_memory) opts.algorithm = KOLO_ALGORITHM_AUTO;
    return train_body(comm, &opts, result);
}

static void processes_give_the_same_bits(void **state) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        static train_outcome outcomes[3];
        kolo_train_result plain = {0};
        for (int level = 0; level <= 3; level += 3) {
            rank_job job = {
                .n = 3,
                .transport = transports[t],
                .body = process_body,
                .arg = &level,
                .arg_bytes = sizeof level,
                .results = outcomes,
                .result_bytes = sizeof *outcomes,
            };
            ASSERT_OK(run_rank_job(&job));
            if (outcomes[0].status != KOLO_OK) fail_msg("%s", outcomes[0].error);
            if (level == 0) plain = outcomes[0].result;
        }
        if (transports[t] == RANKS_SHM) {
            assert_same_run("processes", &plain, &outcomes[0].result);
        } else { /* the reduce-scatter of messages sums in another order than the allreduce */
            assert_close_run("processes", &plain, &outcomes[0].result);
        }
    }
}

/* ---- checkpoints ---- */

static void assert_same_tensors(const char *one, const char *other) {
    kolo_safetensors *a, *b;
    ASSERT_OK(kolo_safetensors_open(one, &a));
    ASSERT_OK(kolo_safetensors_open(other, &b));
    assert_true(kolo_safetensors_count(a) > 9);
    assert_int_equal(kolo_safetensors_count(a), kolo_safetensors_count(b));
    for (int i = 0; i < kolo_safetensors_count(a); i++) {
        const kolo_safetensors_entry *x = kolo_safetensors_get(a, i);
        const kolo_safetensors_entry *y = kolo_safetensors_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    kolo_safetensors_close(a);
    kolo_safetensors_close(b);
}

/* A checkpoint of sharded state is that of whole state: runs resume on any level. */
static void checkpoints_do_not_depend_on_shards(void **state) {
    kolo_train_opts opts = options_of(0);
    opts.checkpoint_steps = 4;
    opts.out_dir = "plain";
    const kolo_train_result plain = train_well(3, &opts);
    opts.out_dir = "sharded";
    opts.zero = 1;
    const kolo_train_result sharded = train_well(3, &opts);
    assert_same_run("saving", &plain, &sharded);
    assert_same_tensors("plain/checkpoint-4.safetensors", "sharded/checkpoint-4.safetensors");
    opts.checkpoint_steps = 0;
    opts.out_dir = NULL;
    for (opts.zero = 0; opts.zero <= 3; opts.zero++) {
        opts.resume =
            opts.zero ? "plain/checkpoint-4.safetensors" : "sharded/checkpoint-4.safetensors";
        const kolo_train_result resumed = train_well(3, &opts);
        assert_same_run("resumed", &plain, &resumed);
    }
    opts.zero = 1;
    opts.batch = 0;
    opts.global_batch = 12;
    const kolo_train_result others = train_well(2, &opts); /* another number of ranks */
    assert_close_run("resumed on two ranks", &plain, &others);
    assert_int_equal(system("rm -rf plain sharded"), 0);
}

/* Level 3: the final file too has parameters of all ranks. One that cannot be written is named. */
static void sharded_parameters_are_saved(void **state) {
    kolo_train_opts opts = options_of(0);
    opts.checkpoint_steps = 4;
    opts.out_dir = "plain";
    (void)train_well(3, &opts);
    opts.out_dir = "sharded";
    opts.zero = 3;
    (void)train_well(3, &opts);
    assert_same_tensors("plain/checkpoint-4.safetensors", "sharded/checkpoint-4.safetensors");
    assert_same_tensors("plain/checkpoint-9.safetensors", "sharded/checkpoint-9.safetensors");
    assert_same_tensors("plain/checkpoint-final.safetensors",
                        "sharded/checkpoint-final.safetensors");
    char obstacle[96];
    snprintf(obstacle, sizeof obstacle, "blocked/.checkpoint-4.safetensors.%ld.tmp",
             (long)getpid());
    assert_int_equal(mkdir("blocked", 0700), 0);
    assert_int_equal(mkdir(obstacle, 0700), 0);
    opts.out_dir = "blocked";
    const train_outcome *o = train_job(3, RANKS_THREAD, &opts);
    for (int r = 0; r < 3; r++) {
        if (o[r].status != KOLO_ERR_IO || !strstr(o[r].error, "checkpoint-4")) {
            fail_msg("rank %d: %s", r, o[r].error);
        }
    }
    assert_int_equal(system("rm -rf plain sharded blocked"), 0);
}

/* ---- memory ---- */

/* The bytes of the store, and of what is communicated, on rank 0 of 4. */
static void memory_of(int level, double *store, double *gradients) {
    char *text;
    kolo_dump_opts opts = {.what = KOLO_DUMP_PLAN,
                           .model = "gpt2_tiny",
                           .model_options = "width=256",
                           .batch = 1,
                           .optimizer.kind = KOLO_OPTIMIZER_ADAM,
                           .zero = level,
                           .ranks = 4};
    ASSERT_OK(kolo_dump(&opts, &text));
    const char *at = strstr(text, "gradients "), *banks = strstr(text, "store 2 x ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "gradients %lf", gradients), 1);
    if (!banks) fail_msg("%.200s", text);
    assert_int_equal(sscanf(banks, "store 2 x %lf", store), 1);
    kolo_dump_free(text);
}

static void memory_is_divided(void **state) {
    double parameters = 4.0 * 3257856; /* bytes */
    double store, gradients;
    (void)state;
    memory_of(1, &store, &gradients);
    const double whole = gradients;
    assert_true(store > 1.49 * parameters && store < 1.55 * parameters); /* 1 + 2 / 4 */
    memory_of(2, &store, &gradients);
    assert_true(store < 1.55 * parameters && gradients < 0.75 * whole);
    memory_of(3, &store, &gradients);
    assert_true(store < 0.78 * parameters && gradients < 0.9 * whole); /* 3 / 4 */
}

/* Sums that wait for those of later shards take the memory of gradients, but none for what is
 * gathered. */
static void kept_sums_are_of_gradients_alone(void **state) {
    kolo_train_opts opts = reproducible_options(0);
    int64_t exchanged[2];
    double bytes = 0;
    opts.global_batch = 4;
    opts.steps = 1;
    opts.zero = 3;
    for (int k = 0; k < 2; k++) { /* a shard for each rank, then two */
        opts.reproducible = 2 + 2 * k;
        const kolo_train_result result = train_well(2, &opts);
        exchanged[k] = result.memory.exchanged;
        bytes = 4 * (double)result.parameters;
    }
    const double kept = (double)(exchanged[1] - exchanged[0]);
    if (kept < bytes || kept > 1.03 * bytes) fail_msg("%.0f bytes of %.0f", kept, bytes);
}

/* Evaluation gathers parameters that training has cut; workers of a host that share them have
 * whole ones. */
static void evaluation_gathers_what_is_cut(void **state) {
    for (int i = 0; i < 4; i++) {
        const bool cut = i == 3; /* level 3, not shared */
        const kolo_dump_opts opts = {.what = KOLO_DUMP_PLAN,
                                     .model = "mlp",
                                     .model_options = "hidden=64",
                                     .batch = 2,
                                     .optimizer.kind = KOLO_OPTIMIZER_ADAM,
                                     .evaluate = true,
                                     .zero = i % 2 ? 3 : 2,
                                     .share = i < 2};
        char *text;
        ASSERT_OK(kolo_dump(&opts, &text));
        if ((strstr(text, ", gathered") != NULL) != cut || (strstr(text, "post ") != NULL) != cut) {
            fail_msg("%d: %.400s", i, text);
        }
        kolo_dump_free(text);
    }
}

/* ---- bytes ---- */

typedef struct wire_job {
    int level, steps;
} wire_job;

static kolo_status wire_body(kolo_comm *comm, const void *arg, void *result) {
    const wire_job *job = arg;
    const kolo_train_opts opts = {
        .model = "gpt2_tiny", /* whose backward pass reads nearly all parameters */
        .model_options = "layers=2,width=128,heads=2,context=8,vocab=100",
        .data = "synthetic-tokens:N=67,test=10",
        .batch = 2,
        .steps = job->steps,
        .epochs = 100,
        .zero = job->level,
        .no_eval = true,
        .bucket_bytes = 200000,
    };
    return train_counted(comm, &opts, result);
}

/* What the ranks send in runs of so many steps, and the parameters of the model. */
static double bytes_sent(int ranks, int level, int steps, double *parameters) {
    const wire_job job = {level, steps};
    double sent[TRAIN_JOB_RANKS], all = 0;
    *parameters = (double)train_traffic(ranks, wire_body, &job, sizeof job, sent).parameters;
    for (int r = 0; r < ranks; r++) all += sent[r];
    return all;
}

/* A step of N ranks with P parameters: an allreduce sends 2 (N - 1) / N x 4 P bytes per rank, a
 * reduce-scatter and the allgather of levels 1 and 2 as many, those of level 3 half as many again.
 */
static void bytes_on_the_wire_are_those_of_theory(void **state) {
    static const double parts[] = {2, 2, 2, 3};
    (void)state;
    for (int level = 0; level <= 3; level++) {
        for (int ranks = 2; ranks <= 4; ranks++) {
            if (!getenv("KOLO_SOAK") && ranks != 3) continue;
            double p;
            double few = bytes_sent(ranks, level, 1, &p), more = bytes_sent(ranks, level, 4, &p);
            double theory = parts[level] * (ranks - 1) * 4 * p; /* of all ranks */
            double measured = (more - few) / 3;
            print_message("level %d, %d ranks: %.0f bytes a step, theory %.0f: %.4f\n", level,
                          ranks, measured, theory, measured / theory);
            if (fabs(measured / theory - 1) > 0.01) {
                fail_msg("level %d, %d ranks: %.0f bytes a step, not %.0f", level, ranks, measured,
                         theory);
            }
        }
    }
}

static void other_levels_are_refused(void **state) {
    kolo_train_opts opts = options_of(0);
    opts.zero = 4;
    assert_int_equal(train_job(2, RANKS_THREAD, &opts)->status, KOLO_ERR_ARG);
}

TEST_MAIN(test_zero) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharded_state_gives_the_same_bits),
        cmocka_unit_test(reproducible_runs_are_sharded),
        cmocka_unit_test(unequal_and_audited_parts_give_the_same_bits),
        cmocka_unit_test(processes_give_the_same_bits),
        cmocka_unit_test(checkpoints_do_not_depend_on_shards),
        cmocka_unit_test(sharded_parameters_are_saved),
        cmocka_unit_test(memory_is_divided),
        cmocka_unit_test(kept_sums_are_of_gradients_alone),
        cmocka_unit_test(evaluation_gathers_what_is_cut),
        cmocka_unit_test(bytes_on_the_wire_are_those_of_theory),
        cmocka_unit_test(other_levels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
