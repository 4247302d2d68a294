/* Each sample of an epoch is used exactly once, by the ledgers of the workers: whatever their
 * number, shares, architecture and consistency, and after a resumption with other workers. */
#include "base/compiler.h"
#include "kolo/data.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdlib.h>
#include <string.h>

/* An epoch has 4 steps, of which the last has 7 samples. */
static const kolo_train_opts job = {
    .model = "mlp",
    .model_options = "hidden=4",
    .data = "synthetic:N=61,test=2,shape=1x4x4,seed=2",
    .global_batch = 18,
    .epochs = 2,
    .lr = 0.01,
    .ledger = "ledger",
};

/* The result of the check. */
static void assert_text(const char *what, bool exact_wanted, const char *wanted) {
    bool exact;
    char *text;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    if (exact != exact_wanted || strcmp(text, wanted) != 0) fail_msg("%s: %s", what, text);
    kolo_ledger_text_free(text);
}

static const char exact_runs[] = "epoch 1: 61 samples, each once\nepoch 2: 61 samples, each once\n"
                                 "%d run%s, 8 steps, at most %d workers\n";

static void assert_exact(const char *what, int runs, int workers) {
    char wanted[160];
    snprintf(wanted, sizeof wanted, exact_runs, runs, runs == 1 ? "" : "s", workers);
    assert_text(what, true, wanted);
}

static void clear(void) { assert_int_equal(system("rm -rf ledger.* run"), 0); }

static void every_sample_is_used_once(void **state) {
    static const struct {
        const char *what;
        int ranks, workers; /* with servers; with different samples */
        int64_t reproducible, accumulate;
        const char *weights, *consistency, *mesh;
        kolo_sync sync;
        int servers, zero;
    } cases[] = {
        {"1", .ranks = 1, .workers = 1},
        {"2", .ranks = 2, .workers = 2},
        {"3", .ranks = 3, .workers = 3},
        {"4", .ranks = 4, .workers = 4},
        {"5", .ranks = 5, .workers = 5},
        {"6", .ranks = 6, .workers = 6},
        {"7", .ranks = 7, .workers = 7},
        {"8", .ranks = 8, .workers = 8},
        {"weights", 7, 7, .reproducible = 6, .weights = "1,1,0.5,1,1,1,2"},
        {"measured", 3, 3, .reproducible = 6, .weights = "measured"},
        {"zero", 3, 3, .zero = 3},
        {"local", 3, 3, .consistency = "local:3"},
        {"tp", 4, 2, .mesh = "dp=2,tp=2"},
        {"pp", 4, 2, .mesh = "dp=2,pp=2", .accumulate = 3},
        {"ps", 5, 4, .sync = KOLO_SYNC_PS, .servers = 1},
        {"drop", 4, 3, .sync = KOLO_SYNC_PS, .servers = 1, .consistency = "bsp:drop=1"},
        {"ssp", 3, 3, .sync = KOLO_SYNC_PS, .consistency = "ssp:2"},
        {"leases", 5, 3, .sync = KOLO_SYNC_PS, .servers = 2, .consistency = "asp,lease=1"},
        {"asp", 5, 3, .sync = KOLO_SYNC_PS, .servers = 2, .consistency = "asp"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = job;
        opts.reproducible = cases[i].reproducible;
        opts.worker_weights = cases[i].weights;
        opts.accumulate = cases[i].accumulate;
        opts.consistency = cases[i].consistency;
        opts.mesh = cases[i].mesh;
        opts.sync = cases[i].sync;
        opts.servers = cases[i].servers;
        opts.zero = cases[i].zero;
        clear();
        (void)train_well(cases[i].ranks, &opts);
        assert_exact(cases[i].what, 1, cases[i].workers);
    }
}

/* A run that ends in the middle of an epoch, as one that is killed after a checkpoint: the steps
 * after the checkpoint are made again, by other workers. */
static void resumed_runs_repeat_no_sample(void **state) {
    static const struct {
        int steps[2], ranks[3];
    } cases[] = {{{3, 7}, {3, 7, 2}}, {{5, 6}, {8, 1, 4}}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = job;
        clear();
        opts.out_dir = "run";
        opts.checkpoint_steps = 2;
        for (int part = 0; part < 3; part++) {
            opts.steps = part < 2 ? cases[i].steps[part] : 0;
            (void)train_well(cases[i].ranks[part], &opts);
            opts.resume = "run";
            /* The checkpoint at the end of the run was not written. */
            char last[64];
            snprintf(last, sizeof last, "run/checkpoint-%d.safetensors", cases[i].steps[part % 2]);
            if (part < 2) assert_int_equal(remove(last), 0);
        }
        /* The last run of the second case resumes the first one, as the second did. */
        assert_exact("resumed", i == 0 ? 3 : 2, i == 0 ? 7 : 8);
    }
}

/* The counter goes on where it was. */
static void leases_are_resumed(void **state) {
    kolo_train_opts opts = job;
    clear();
    opts.sync = KOLO_SYNC_PS;
    opts.servers = 1;
    opts.consistency = "asp,lease=1";
    opts.out_dir = "run";
    opts.checkpoint_steps = 3;
    opts.check_replicas = 5;
    opts.steps = 7;
    (void)train_well(4, &opts);
    assert_int_equal(remove("run/checkpoint-7.safetensors"), 0);
    opts.resume = "run";
    opts.steps = 0;
    const kolo_train_result r = train_well(4, &opts);
    assert_exact("leases", 2, 3);
    assert_int_equal(r.samples, 2 * 61);
}

/* Gradients that the last steps have computed are not used, unless a later run does. */
static void lagging_gradients_are_used_later(void **state) {
    kolo_train_opts opts = job;
    clear();
    opts.consistency = "lag:2";
    opts.out_dir = "run";
    opts.checkpoint_steps = 3;
    opts.steps = 5;
    (void)train_well(2, &opts);
    assert_text("lag", true,
                "epoch 1: 54 of 61 samples so far, none twice\n"
                "1 run, 3 steps, at most 2 workers; lag:2 drops the last gradients\n");
    opts.resume = "run";
    opts.steps = 6;
    (void)train_well(2, &opts);
    assert_text("lag", true,
                "epoch 1: 61 samples, each once\n"
                "2 runs, 4 steps, at most 2 workers; lag:2 drops the last gradients\n");
}

/* Fails unless the lines of steps in a ledger are `wanted`. */
static void assert_samples(const char *path, const char *wanted) {
    char line[256], found[2048] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "epoch ", 6) == 0) strcat(found, line);
    }
    fclose(file);
    if (strcmp(found, wanted) != 0) fail_msg("%s", found);
}

/* A checkpoint of an earlier version of Kolo, after 2 of 8 steps; the samples are those that it
 * used in the others. Checkpoints of the resumed run keep the order. */
static void runs_keep_the_order_that_they_began_with(void **state) {
    static const char *const wanted =
        "epoch 0 step 2 of 18: 7 3 34 31 16 44 24 43 4 14 50 33 57 25 46 38 22 10\n"
        "epoch 0 step 3 of 7: 11 30 23 21 29 58 39\n"
        "epoch 1 step 0 of 18: 58 60 31 47 15 7 5 6 12 37 49 55 28 23 2 53 29 52\n"
        "epoch 1 step 1 of 18: 48 10 42 57 51 25 36 43 24 19 30 20 38 44 39 35 33 26\n"
        "epoch 1 step 2 of 18: 50 45 13 18 1 3 11 54 4 32 34 8 56 21 46 27 9 0\n"
        "epoch 1 step 3 of 7: 14 40 59 16 17 41 22\n";
    static const char *const from[] = {KOLO_SOURCE_DIR "/tests/golden/order_1.safetensors", "run"};
    for (int ranks = 1; ranks <= 2; ranks++) {
        kolo_train_opts opts = job;
        bool exact;
        char *text;
        clear();
        opts.seed = 7;
        opts.out_dir = "run";
        opts.checkpoint_steps = 3;
        for (int part = 0; part < 2; part++) {
            opts.resume = from[part];
            opts.steps = part ? 0 : 6;
            (void)train_well(ranks, &opts);
        }
        if (ranks == 1) assert_samples("ledger.0", wanted);
        ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
        assert_non_null(strstr(text, "\nepoch 2: 61 samples, each once\n"));
        kolo_ledger_text_free(text);
    }
}

static void what_a_ledger_cannot_hold_is_refused(void **state) {
    kolo_train_opts opts = job;
    clear();
    (void)train_well(2, &opts);
    assert_job_refused(2, &opts, "is the ledger of another run");
    clear();
    opts.sync = KOLO_SYNC_PS;
    opts.consistency = "bsp:drop=1,discard";
    assert_job_refused(2, &opts, "bsp:drop=1 uses all");
}

TEST_MAIN(test_samples) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_used_once),
        cmocka_unit_test(resumed_runs_repeat_no_sample),
        cmocka_unit_test(leases_are_resumed),
        cmocka_unit_test(lagging_gradients_are_used_later),
        cmocka_unit_test(runs_keep_the_order_that_they_began_with),
        cmocka_unit_test(what_a_ledger_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
