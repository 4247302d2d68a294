/* Runs with parameter servers whose order of requests is recorded, replayed, or synthetic. */
#include "base/compiler.h"
#include "comm/sync/parameters_order.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/served_job.h"
#include "support/support.h"
#include "train/session/consistency.h"

#include <stdio.h>
#include <string.h>

static void refuse(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                   size_t bytes) {
    (void)call, (void)status, (void)clock, (void)data, (void)bytes;
}

enum { LATE_STEPS = 12 };

static void record(kolo_order *order, int worker) {
    kolo_service_call call = {.client = worker, .kind = UINT32_MAX}; /* the owner refuses it */
    kolo_order_serve(order, &call);
}

/* The record late.0 of a run in which the gradients of worker 0 come after those of the others. */
static void record_late_worker(const char *policy) {
    static const int workers[] = {1, 2, 1, 2, 0, 0}; /* pushes and pulls */
    const kolo_parameters_opts opts = {.drop = 1};
    const kolo_owned has = {.values = {0, 1}, .gradient = {0, 1}};
    kolo_order_opts order = {
        .record = "late.0", .workers = 3, .owners = 1, .drop = 1, .reply = refuse};
    kolo_consistency consistency;
    kolo_order *made;
    ASSERT_OK(kolo_consistency_parse(policy, 3, &consistency));
    order.update_hash = kolo_consistency_hash(&consistency);
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, 3, refuse, &order.owner));
    ASSERT_OK(kolo_order_create(&order, &made));
    for (size_t i = 0; i < LATE_STEPS * KOLO_COUNT(workers); i++) {
        record(made, workers[i % KOLO_COUNT(workers)]);
    }
    for (int w = 0; w < 3; w++) record(made, w); /* they wait for each other; then any order */
    ASSERT_OK(kolo_order_finish(made));
    kolo_order_destroy(made);
    kolo_parameters_owner_destroy(order.owner);
}

/* All gradients of worker 0 come late: they are held until the end, or not used. */
static void steps_go_on_without_a_slow_worker(void **state) {
    static const char *const policies[] = {"bsp:drop=1", "bsp:drop=1,discard"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, 1);
        record_late_worker(policies[i]);
        opts.consistency = policies[i];
        opts.replay = "late";
        opts.steps = LATE_STEPS; /* two epochs */
        const kolo_train_result r = train_well(4, &opts);
        assert_int_equal(remove("late.0"), 0);
        assert_int_equal(r.delays[0], 2 * LATE_STEPS);
        assert_int_equal(r.delays[1], LATE_STEPS);
        const int64_t unused = 2 * 61 - r.samples; /* its third is 20 or 21 of 61 */
        if (i == 0) assert_int_equal(unused, 0);
        if (i == 1) assert_true(unused >= 2 * 20 && unused <= 2 * 21);
    }
}

static void recorded_runs_repeat_bitwise(void **state) {
    static const struct {
        const char *file, *policy;
        int servers;
    } cases[] = {{"asp", "asp", 2},
                 {"leases", "asp,lease=1", 2},
                 {"ssp", "ssp:2,dc=0.1", 1},
                 {"delay", "asp,delay=3", 2},
                 {"drop", "bsp:drop=1", 1}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, cases[i].servers);
        opts.model = "mlp";
        opts.model_options = NULL;
        opts.steps = TEST_FEWER(16, 40);
        opts.eval_steps = TEST_FEWER(6, 15);
        opts.consistency = cases[i].policy;
        if (strstr(cases[i].policy, "delay")) opts.optimizer.kind = KOLO_OPTIMIZER_NESTEROV;
        opts.record = cases[i].file;
        const kolo_train_result recorded = train_well(3 + cases[i].servers, &opts);
        opts.record = NULL;
        opts.replay = cases[i].file;
        const kolo_train_result replayed = train_well(3 + cases[i].servers, &opts);
        assert_int_equal(recorded.parameter_hash, replayed.parameter_hash);
        assert_memory_equal(&recorded.test, &replayed.test, sizeof replayed.test);
        assert_memory_equal(recorded.delays, replayed.delays, sizeof replayed.delays);
        assert_memory_equal(recorded.reads, replayed.reads, sizeof replayed.reads);
    }
    static const struct {
        const char *record, *replay, *policy, *why;
        int workers, servers;
    } refused[] = {
        {NULL, "drop", "asp", "is of a run with 3 workers", 2, 1},
        {NULL, "asp", "asp", "2 owners", 2, 1},
        {NULL, "leases", "asp", "another --consistency", 3, 2},
        {NULL, "asp", "asp,dc=0.1", "another --consistency", 3, 2},
        {NULL, "asp", "asp,scale=1", "another --consistency", 3, 2},
        {NULL, "ssp", "ssp:2,dc=0.2", "another --consistency", 3, 1},
        {NULL, "drop", "bsp:drop=1,discard", "another --consistency", 3, 1},
        {"drop", NULL, "asp", "exists", 2, 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        const int ranks = refused[i].workers + refused[i].servers;
        kolo_train_opts other = served_opts(KOLO_SYNC_PS, refused[i].servers);
        other.consistency = refused[i].policy;
        other.record = refused[i].record;
        other.replay = refused[i].replay;
        const train_outcome *o = train_job(ranks, RANKS_THREAD, &other);
        for (int r = 0; r < ranks; r++) { /* the error of a server */
            assert_int_equal(o[r].status, KOLO_ERR_ARG);
            assert_non_null(strstr(o[r].error, refused[i].why));
        }
    }
}

TEST_MAIN(test_servers_order) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_go_on_without_a_slow_worker),
        cmocka_unit_test(recorded_runs_repeat_bitwise),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
