/* Rounds with servers (decoupled DiLoCo): what equals rounds over an allreduce bitwise, rounds that
 * do not wait for all, files, replays, and what is refused. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdlib.h>
#include <string.h>

/* Equal shares in each step of 2 or 4 workers. */
static kolo_train_opts options(kolo_sync sync, int servers, const char *policy) {
    return (kolo_train_opts){
        .model = small_resnet(), /* running statistics */
        .model_options = "width=4",
        .data = "synthetic:N=64,test=12,shape=1x8x8,seed=2",
        .optimizer.momentum = 0.9,
        .batch = 4,
        .epochs = 20,
        .steps = 12,
        .eval_steps = 4,
        .lr = 0.02,
        .sync = sync,
        .servers = servers,
        .consistency = policy,
        .algorithm = KOLO_ALGORITHM_DIRECT,
    };
}

/* The parameters are equal: they are evaluated alike, to the last bit. */
static void assert_same_test(const char *what, const kolo_train_result *a,
                             const kolo_train_result *b) {
    assert_true(a->evaluated && b->evaluated);
    if (memcmp(&a->test, &b->test, sizeof a->test) != 0) {
        fail_msg("%s: test losses %.9g and %.9g", what, a->test.value[KOLO_METRIC_LOSS],
                 b->test.value[KOLO_METRIC_LOSS]);
    }
}

/* With the samples of a worker in a round and the number of workers powers of 2, as weights by
 * samples are exact then. */
static void waiting_for_all_equals_an_allreduce(void **state) {
    static const struct {
        const char *policy, *model;
        int workers, servers;
        kolo_sync sync;
        kolo_optimizer optimizer;
    } cases[] = {
        {"diloco:4", NULL, 2, 1, KOLO_SYNC_PS, KOLO_OPTIMIZER_SGD},
        {"diloco:4", "mlp", 4, 1, KOLO_SYNC_PS, KOLO_OPTIMIZER_ADAM},
        {"diloco:2", "mlp", 2, 2, KOLO_SYNC_PS, KOLO_OPTIMIZER_SGD},
        {"diloco:2", NULL, 2, 0, KOLO_SYNC_MESH, KOLO_OPTIMIZER_SGD},
        {"bmuf:4,lr=0.5", "mlp", 4, 1, KOLO_SYNC_PS, KOLO_OPTIMIZER_SGD},
        {"diloco:4,momentum=0", "mlp", 2, 1, KOLO_SYNC_PS, KOLO_OPTIMIZER_SGD},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0, cases[i].policy);
        if (cases[i].model) opts.model = cases[i].model;
        if (cases[i].model) opts.model_options = NULL;
        opts.optimizer.kind = cases[i].optimizer;
        if (opts.optimizer.kind == KOLO_OPTIMIZER_ADAM) opts.optimizer.momentum = 0;
        const kolo_train_result plain = train_well(cases[i].workers, &opts);
        opts.sync = cases[i].sync;
        opts.servers = cases[i].servers;
        opts.check_replicas = 6;
        const kolo_train_result served = train_well(cases[i].workers + opts.servers, &opts);
        assert_same_test(cases[i].policy, &plain, &served);
        assert_int_equal(plain.samples, served.samples);
        assert_near(cases[i].policy, plain.final.value[KOLO_METRIC_LOSS],
                    served.final.value[KOLO_METRIC_LOSS], 1e-5);
    }
}

/* All samples are used, whichever worker is late. */
static void rounds_go_on_with_a_quorum(void **state) {
    static const struct {
        const char *policy;
        int servers;
    } cases[] = {{"diloco:2,quorum=2", 1},         {"diloco:3,quorum=1", 2},
                 {"diloco:2,quorum=2,grace=5", 1}, {"diloco:2,quorum=3,grace=1000", 0},
                 {"diloco:2,quorum=1,delay=3", 1}, {"bmuf:4,quorum=2", 0}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, cases[i].servers, cases[i].policy);
        opts.data = "synthetic:N=61,test=10,shape=1x8x8,seed=2"; /* unequal shares */
        opts.eval_steps = 5;                                     /* within rounds, too */
        opts.check_replicas = 4;
        const kolo_train_result r = train_well(3 + cases[i].servers, &opts);
        uint64_t pushes = 0, every = (uint64_t)(cases[i].policy[7] - '0');
        if (cases[i].policy[0] == 'b') every = 4;
        for (size_t d = 0; d < KOLO_COUNT(r.delays); d++) pushes += r.delays[d];
        assert_int_equal(pushes, 3 * 12 / every);
        assert_int_equal(r.samples, 2 * 61);
        assert_true(r.evaluated);
    }
}

/* A checkpoint has what the owners have, and the optimizer state of worker 0: plain SGD has none.
 */
static void runs_resume_between_rounds(void **state) {
    static const struct {
        double momentum;
        int workers, servers;
    } cases[] = {{0, 2, 1}, {0.9, 1, 2}, {0, 2, 0}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, cases[i].servers, "diloco:2");
        const int ranks = cases[i].workers + cases[i].servers;
        opts.model = "mlp";
        opts.model_options = NULL;
        opts.optimizer.momentum = cases[i].momentum;
        opts.eval_steps = 3;
        const kolo_train_result whole = train_well(ranks, &opts);
        assert_int_equal(system("rm -rf run"), 0);
        opts.out_dir = "run";
        opts.checkpoint_steps = 4;
        opts.steps = 8;
        (void)train_well(ranks, &opts);
        opts.resume = "run";
        opts.steps = 12;
        const kolo_train_result resumed = train_well(ranks, &opts);
        assert_same_test("resumed", &whole, &resumed);
        assert_int_equal(whole.samples, resumed.samples);
    }
}

/* Lines of metrics between two rounds have no samples, hence no loss; the rate of the line with a
 * round is that of all its steps. */
static void losses_come_with_their_rounds(void **state) {
    kolo_train_opts opts = options(KOLO_SYNC_PS, 1, "diloco:4");
    size_t bytes;
    char *text, *rest;
    static const double samples = 32; /* of two workers in a round */
    double seconds = 0;
    int rounds = 0, between = 0;
    assert_int_equal(system("rm -rf lines"), 0);
    opts.out_dir = "lines";
    opts.log_every = 1;
    opts.steps = 8;
    const kolo_train_result r = train_well(3, &opts);
    assert_int_equal(r.samples, 64);
    ASSERT_OK(kolo_file_read("lines/metrics.jsonl", 1 << 20, &text, &bytes));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *loss = strstr(line, "\"loss\": ");
        if (!loss) continue;
        const double value = strtod(loss + strlen("\"loss\": "), NULL);
        const bool has_loss = !strstr(line, "\"loss\": null");
        if (has_loss != (value > 0) || strstr(line, "masked_loss")) fail_msg("%s", line);
        const char *rate = strstr(line, "\"samples_per_second\": ");
        assert_non_null(rate);
        if (has_loss) {
            seconds += samples / strtod(rate + strlen("\"samples_per_second\": "), NULL);
        }
        rounds += has_loss;
        between += !has_loss;
    }
    assert_int_equal(rounds, 2);
    assert_int_equal(between, 6);
    assert_near("seconds of all rounds", r.train_seconds, seconds, 0.01);
    kolo_free(text);
}

static void recorded_rounds_repeat_bitwise(void **state) {
    kolo_train_opts opts = options(KOLO_SYNC_PS, 2, "diloco:2,quorum=1");
    opts.record = "order";
    const kolo_train_result recorded = train_well(5, &opts);
    opts.record = NULL;
    opts.replay = "order";
    const kolo_train_result replayed = train_well(5, &opts);
    assert_same_test("replayed", &recorded, &replayed);
    assert_memory_equal(recorded.delays, replayed.delays, sizeof replayed.delays);
}

static void what_rounds_cannot_do_is_refused(void **state) {
    static const struct {
        const char *policy, *why;
        kolo_sync sync;
        bool record, table, replicas;
    } cases[] = {
        {"diloco:4,quorum=1", "an allreduce needs all workers", .sync = KOLO_SYNC_ALLREDUCE},
        {"diloco:4,delay=2", "an allreduce makes one update", .sync = KOLO_SYNC_ALLREDUCE},
        {"diloco:4,fragments=2", "owners take whole rounds", .sync = KOLO_SYNC_PS},
        {"diloco:4,overlap=1", "owners take whole rounds", .sync = KOLO_SYNC_MESH},
        {"diloco:4,warmup=2", "owners take whole rounds", .sync = KOLO_SYNC_PS},
        {"bmuf:4,quorum=2,warmup=2", "warmup is for --sync allreduce", .sync = KOLO_SYNC_MESH},
        {"diloco:4,grace=5", "give quorum=Q too", .sync = KOLO_SYNC_PS},
        {"diloco:4,quorum=4", "larger than the number of workers", .sync = KOLO_SYNC_PS},
        {"diloco:4,quorum=0", "quorum=Q", .sync = KOLO_SYNC_PS},
        {"bmuf:4,delay=2", "give nesterov=1", .sync = KOLO_SYNC_PS},
        {"diloco:4,lease=1", "\"lease=1\": diloco has no such parameter or value; it has lr=X",
         .sync = KOLO_SYNC_PS},
        {"local:4", "bmuf:H or diloco:H", .sync = KOLO_SYNC_PS},
        {"diloco:4,quorum=1,grace=5", "depends on the time", .sync = KOLO_SYNC_PS, .record = true},
        {"diloco:4,quorum=1,grace=5", "depends on the time", KOLO_SYNC_PS, .replicas = true},
        {"diloco:4", "rows in each", .sync = KOLO_SYNC_PS, .table = true},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int servers = cases[i].sync == KOLO_SYNC_PS ? 1 + cases[i].replicas : 0;
        kolo_train_opts opts = options(cases[i].sync, servers, cases[i].policy);
        if (cases[i].record) opts.record = "refused";
        if (cases[i].table) opts.table = "emb.weight";
        opts.replicas = cases[i].replicas;
        assert_job_refused(3 + servers, &opts, cases[i].why);
    }
}

TEST_MAIN(test_served_rounds) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_for_all_equals_an_allreduce),
        cmocka_unit_test(rounds_go_on_with_a_quorum),
        cmocka_unit_test(runs_resume_between_rounds),
        cmocka_unit_test(losses_come_with_their_rounds),
        cmocka_unit_test(recorded_rounds_repeat_bitwise),
        cmocka_unit_test(what_rounds_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
