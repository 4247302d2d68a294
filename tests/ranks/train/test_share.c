/* One copy per host: ranks that share their parameters compute the bits of ranks that have their
 * own, whatever dies leaves nothing behind, and what cannot be shared is trained as without. */
#include "base/compiler.h"
#include "kolo/dump.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char images[] = "synthetic:N=61,test=20,shape=1x28x28,seed=2";

/* Buckets of several parameters, parameters that several ranks share, blocked layouts with and
 * without norms. */
static const struct {
    const char *name;
    kolo_train_opts opts;
    int ranks; /* outside the soak test */
} cases[] = {
    {"adam, clipped",
     {.model = "lenet",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .optimizer.clip = 0.5,
      .bucket_bytes = 100000},
     3},
    {"lamb",
     {.model = "mlp",
      .model_options = "hidden=64",
      .optimizer.kind = KOLO_OPTIMIZER_LAMB,
      .optimizer.weight_decay = 0.01,
      .optimizer.clip = 1,
      .bucket_bytes = 100000},
     4},
    {"statistics, nesterov, accumulated, clipped",
     {.model = "resnet8",
      .model_options = "width=8",
      .optimizer.kind = KOLO_OPTIMIZER_NESTEROV,
      .optimizer.momentum = 0.9,
      .optimizer.weight_decay = 1e-3,
      .optimizer.clip = 1,
      .bucket_bytes = 30000,
      .batch = 2,
      .accumulate = 2},
     2},
    {"lars, blocked layouts",
     {.model = "resnet8",
      .model_options = "width=8",
      .optimizer.kind = KOLO_OPTIMIZER_LARS,
      .optimizer.momentum = 0.9},
     3},
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
      .optimizer.clip = 1},
     2},
    {"zero 3", /* shared, it is level 2 */
     {.model = "mlp",
      .model_options = "hidden=64",
      .optimizer.kind = KOLO_OPTIMIZER_ADAM,
      .bucket_bytes = 100000,
      .zero = 3},
     3},
    {"reproducible, audited",
     {.model = "mlp",
      .model_options = "hidden=64",
      .optimizer.kind = KOLO_OPTIMIZER_SGD,
      .optimizer.momentum = 0.9,
      .global_batch = 12,
      .reproducible = 6,
      .audit = 2,
      .worker_weights = "1,0.2,2"},
     3},
};

static kolo_train_opts options_of(size_t i) {
    kolo_train_opts opts = cases[i].opts;
    if (!opts.data) opts.data = images;
    if (opts.batch == 0 && opts.global_batch == 0) opts.batch = 4;
    opts.lr = 0.02;
    opts.steps = 6;
    opts.epochs = 20;
    opts.check_replicas = 2;
    return opts;
}

static void shared_parameters_give_the_same_bits(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int ranks = 2; ranks <= 5; ranks++) {
            if (!getenv("KOLO_SOAK") && ranks != cases[i].ranks) continue;
            kolo_train_opts opts = options_of(i);
            if (opts.worker_weights && ranks != cases[i].ranks) continue;
            const kolo_train_result shared = train_well(ranks, &opts);
            opts.no_share = true;
            const kolo_train_result plain = train_well(ranks, &opts);
            assert_same_run(cases[i].name, &plain, &shared);
            assert_true(shared.memory.shared > 0 && plain.memory.shared == 0);
            assert_true(shared.memory.store < plain.memory.store);
            assert_string_equal(shared.unshared, "");
            assert_non_null(strstr(plain.unshared, "--no-share"));
        }
    }
}

/* Runs that cannot be shared with equal bits: the rule keeps them apart. */
static void others_train_as_without(void **state) {
    static const char *const reasons[] = {"direct", "--consistency", "--compress"};
    for (int i = 0; i < 3; i++) {
        kolo_train_opts opts = options_of(1);
        opts.optimizer = (kolo_optimizer_opts){.kind = KOLO_OPTIMIZER_SGD, .momentum = 0.9};
        if (i == 0) opts.algorithm = KOLO_ALGORITHM_RING;
        if (i == 1) opts.consistency = "local:2";
        if (i == 2) opts.compress = "int8";
        const kolo_train_result shared = train_well(3, &opts);
        opts.no_share = true;
        const kolo_train_result plain = train_well(3, &opts);
        assert_same_run("not shared", &plain, &shared);
        assert_non_null(strstr(shared.unshared, reasons[i]));
        assert_true(shared.memory.shared == 0);
    }
}

/* Copies of small models with many operations let ranks run ahead of each other, where updates may
 * run in the next step at all. */
static void small_models_have_copies(void **state) {
    static const struct {
        int64_t batch;
        double clip;
        bool no_cross_step, copies;
    } rows[] = {
        {64, 0, false, true}, {4, 0, false, false}, {64, 1, false, false}, {64, 0, true, false}};
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        kolo_train_opts opts = {.model = "lenet",
                                .data = "synthetic:N=300,test=2",
                                .batch = rows[i].batch,
                                .optimizer.momentum = 0.9,
                                .optimizer.clip = rows[i].clip,
                                .no_cross_step = rows[i].no_cross_step,
                                .steps = 3,
                                .lr = 0.02,
                                .check_replicas = 2,
                                .no_eval = true};
        const kolo_train_result chosen = train_well(2, &opts);
        assert_int_equal(chosen.memory.shared == 0, rows[i].copies);
        assert_int_equal(strstr(chosen.unshared, "ahead of each other") != NULL, rows[i].copies);
        opts.no_share = opts.no_cross_step = true;
        const kolo_train_result plain = train_well(2, &opts);
        assert_same_run("copies", &plain, &chosen);
    }
}

/* ---- processes ---- */

typedef struct process_job {
    size_t number;
    bool no_share;
} process_job;

static kolo_status process_body(kolo_comm *comm, const void *arg, void *result) {
    const process_job *job = arg;
    kolo_train_opts opts = options_of(job->number); /* options have pointers */
    opts.no_share = job->no_share;
    return train_body(comm, &opts, result);
}

static void processes_share_memory(void **state) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        static train_outcome outcomes[3];
        kolo_train_result plain = {0};
        for (int share = 0; share < 2; share++) {
            const process_job arg = {.number = 0, .no_share = share == 0};
            rank_job job = {
                .n = 3,
                .transport = transports[t],
                .body = process_body,
                .arg = &arg,
                .arg_bytes = sizeof arg,
                .results = outcomes,
                .result_bytes = sizeof *outcomes,
            };
            ASSERT_OK(run_rank_job(&job));
            if (outcomes[0].status != KOLO_OK) fail_msg("%s", outcomes[0].error);
            if (share == 0) plain = outcomes[0].result;
        }
        const kolo_train_result *shared = &outcomes[0].result;
        assert_same_run("processes", &plain, shared);
        assert_true((shared->memory.shared > 0) == (transports[t] == RANKS_SHM));
    }
}

/* ---- checkpoints ---- */

static void runs_resume_with_and_without(void **state) {
    kolo_train_opts opts = options_of(0);
    opts.checkpoint_steps = 3;
    opts.out_dir = "shared";
    const kolo_train_result whole = train_well(3, &opts);
    opts.checkpoint_steps = 0;
    opts.out_dir = NULL;
    opts.resume = "shared/checkpoint-3.safetensors";
    for (int i = 0; i < 2; i++) {
        opts.no_share = i > 0;
        const kolo_train_result resumed = train_well(3, &opts);
        assert_same_run("resumed", &whole, &resumed);
    }
    opts.resume = NULL;
    opts.init = "shared/checkpoint-final.safetensors";
    opts.no_share = false;
    const kolo_train_result shared = train_well(3, &opts);
    opts.no_share = true;
    const kolo_train_result plain = train_well(3, &opts);
    assert_same_run("initial weights", &plain, &shared);
}

static kolo_status folder_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_train_opts opts = options_of(0);
    if (kolo_comm_rank(comm) == 0) opts.out_dir = "of rank 0";
    return train_body(comm, &opts, result);
}

/* All ranks write checkpoints, to where rank 0 has its files. */
static void rank_0_alone_needs_a_folder(void **state) {
    static train_outcome outcomes[3];
    rank_job job = {
        .n = 3,
        .body = folder_body,
        .results = outcomes,
        .result_bytes = sizeof *outcomes,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 3; r++) {
        if (outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
    assert_int_equal(access("of rank 0/checkpoint-final.safetensors", F_OK), 0);
}

/* ---- a lost rank ---- */

static kolo_status dying_body(kolo_comm *comm, const void *arg, void *result) {
    const int victim = *(const int *)arg;
    kolo_train_opts opts = options_of(0);
    kolo_train_result unused;
    opts.steps = 0;
    opts.epochs = 1000000;
    opts.no_eval = true;
    if (kolo_comm_rank(comm) == victim) ranks_die_after(400000 + 20000 * victim);
    return kolo_train(comm, &opts, NULL, NULL, &unused);
}

/* Rank 0 provides the memory: the others keep it. Nothing has a name in the file system. */
static void survivors_name_a_lost_rank(void **state) {
    for (int victim = 0; victim < 2; victim++) {
        rank_outcome outcomes[3];
        char name[24];
        rank_job job = {
            .n = 3,
            .transport = RANKS_SHM,
            .body = dying_body,
            .arg = &victim,
            .arg_bytes = sizeof victim,
            .outcomes = outcomes,
            .timeout_ms = 60000,
        };
        snprintf(name, sizeof name, "rank %d is", victim);
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        assert_int_equal(outcomes[victim].signal, SIGALRM);
        for (int r = 0; r < 3; r++) {
            const rank_outcome *o = &outcomes[r];
            if (r == victim || (o->status == KOLO_ERR_PEER && strstr(o->error, name))) continue;
            fail_msg("rank %d: status %d, signal %d: %s", r, (int)o->status, o->signal, o->error);
        }
    }
}

/* ---- plans ---- */

static const kolo_dump_opts plan_of_4 = {.what = KOLO_DUMP_PLAN,
                                         .model = "mlp",
                                         .model_options = "hidden=64",
                                         .batch = 4,
                                         .optimizer.kind = KOLO_OPTIMIZER_ADAM,
                                         .share = true,
                                         .ranks = 4};

/* The plan of the first of 4 ranks states what is shared: the parameters alone, in two banks. */
static void plans_show_what_is_shared(void **state) {
    char *text;
    size_t own = 0, shared = 0;
    ASSERT_OK(kolo_dump(&plan_of_4, &text));
    const char *at = strstr(text, "store 2 x ");
    if (!at || sscanf(at, "store 2 x %zu + 2 x %zu shared", &own, &shared) != 2) {
        fail_msg("%.200s", text);
    }
    const size_t parameters = sizeof(float) * (784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10);
    assert_true(shared >= parameters && shared < parameters + 6 * 64);
    assert_true(own >= parameters / 2 - 65536 && own < parameters / 2 + 65536); /* 2 / 4 */
    assert_non_null(strstr(text, "shared: barrier"));
    kolo_dump_free(text);
}

/* Counts the lines of a plan with the op `op` that end with "late"; *all: those of any op. */
static int count_late(const kolo_dump_opts *opts, const char *op, int *all) {
    char *text;
    int n = 0;
    *all = 0;
    ASSERT_OK(kolo_dump(opts, &text));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (end - line < 5 || strcmp(end - 5, " late") != 0) continue;
        (*all)++;
        n += strstr(line, op) != NULL;
    }
    kolo_dump_free(text);
    return n;
}

/* The ranks of a host have copies of a small model, and compute the weights of its last layers
 * last; those of several hosts, the ones that the next step needs second. */
static void plans_show_late_weights(void **state) {
    const kolo_dump_opts near = {.what = KOLO_DUMP_PLAN,
                                 .model = "lenet",
                                 .optimizer.momentum = 0.9,
                                 .share = true,
                                 .cross_step = true,
                                 .ranks = 2};
    kolo_dump_opts hosts = near, shared = near;
    char *text;
    int all;
    assert_int_equal(count_late(&near, " = linear_bwd_weights(", &all), 3);
    assert_int_equal(all, 3);
    ASSERT_OK(kolo_dump(&near, &text));
    assert_null(strstr(text, "shared"));
    kolo_dump_free(text);
    hosts.mesh = "dp=2";
    assert_int_equal(count_late(&hosts, " = conv2d_bwd_weights(", &all), 1);
    assert_int_equal(all, 1);
    shared.optimizer.clip = 1; /* updates need all sums */
    assert_int_equal(count_late(&shared, "", &all), 0);
    ASSERT_OK(kolo_dump(&shared, &text));
    assert_non_null(strstr(text, "shared: barrier"));
    kolo_dump_free(text);
}

/* Nothing is gathered on a host that has one copy of the parameters. */
static void level_3_is_level_2_where_parameters_are_shared(void **state) {
    char *plans[2];
    for (int i = 0; i < 2; i++) {
        kolo_dump_opts opts = plan_of_4;
        opts.zero = 2 + i;
        ASSERT_OK(kolo_dump(&opts, &plans[i]));
    }
    assert_non_null(strstr(plans[1], "shared: barrier"));
    assert_string_equal(plans[0], plans[1]);
    for (int i = 0; i < 2; i++) kolo_dump_free(plans[i]);
}

TEST_MAIN(test_share) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_parameters_give_the_same_bits),
        cmocka_unit_test(others_train_as_without),
        cmocka_unit_test(small_models_have_copies),
        cmocka_unit_test(processes_share_memory),
        cmocka_unit_test(runs_resume_with_and_without),
        cmocka_unit_test(rank_0_alone_needs_a_folder),
        cmocka_unit_test(survivors_name_a_lost_rank),
        cmocka_unit_test(plans_show_what_is_shared),
        cmocka_unit_test(plans_show_late_weights),
        cmocka_unit_test(level_3_is_level_2_where_parameters_are_shared),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
