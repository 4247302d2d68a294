/* Training with parameter servers, apart from the workers or not: what equals an allreduce bitwise,
 * what each policy allows, files, and what is refused. */
#include "base/compiler.h"
#include "comm/sync/parameters_order.h"
#include "kolo/dump.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char small[] = "synthetic:N=61,test=10,shape=1x8x8,seed=2";

/* Running statistics, and steps in which a rank has no samples. */
static kolo_train_opts options(kolo_sync sync, int servers) {
    return (kolo_train_opts){
        .model = small_resnet(),
        .model_options = "width=4",
        .data = small,
        .optimizer.momentum = 0.9,
        .batch = 4,
        .epochs = 20,
        .steps = 9,
        .lr = 0.02,
        .sync = sync,
        .servers = servers,
        .algorithm = KOLO_ALGORITHM_DIRECT,
    };
}

/* The result does not state who trained. */
static void assert_same(const char *what, const kolo_train_result *plain,
                        const kolo_train_result *served) {
    assert_same_run(what, plain, served);
    assert_int_equal(plain->workers, served->workers);
    assert_true(plain->samples == served->samples);
}

static void bsp_equals_a_direct_allreduce(void **state) {
    static const struct {
        const char *what, *model;
        kolo_optimizer optimizer;
        double momentum, clip;
        int workers, servers;
        int64_t accumulate;
        int replicas;
    } cases[] = {
        {"sgd, one server", "resnet8", KOLO_OPTIMIZER_SGD, 0, 0, 3, 1, 1, 0},
        {"momentum, one server", "mlp", KOLO_OPTIMIZER_SGD, 0.9, 0, 2, 1, 1, 0},
        {"adam, one server", "mlp", KOLO_OPTIMIZER_ADAM, 0, 0, 2, 1, 2, 0},
        {"lamb and clipping, one server", "mlp", KOLO_OPTIMIZER_LAMB, 0, 1, 2, 1, 1, 0},
        {"momentum, three servers", "resnet8", KOLO_OPTIMIZER_SGD, 0.9, 0, 2, 3, 1, 0},
        {"adam, workers serve", "resnet8", KOLO_OPTIMIZER_ADAM, 0, 0, 3, 0, 1, 0},
        {"momentum, workers serve", "mlp", KOLO_OPTIMIZER_SGD, 0.9, 0, 4, 0, 2, 0},
        {"adam, two servers with replicas", "mlp", KOLO_OPTIMIZER_ADAM, 0, 0, 2, 2, 1, 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0);
        opts.optimizer = (kolo_optimizer_opts){
            .kind = cases[i].optimizer, .momentum = cases[i].momentum, .clip = cases[i].clip};
        opts.accumulate = cases[i].accumulate;
        opts.model = cases[i].model;
        if (strcmp(opts.model, "mlp") == 0) opts.model_options = NULL;
        const kolo_train_result plain = train_well(cases[i].workers, &opts);
        opts.sync = KOLO_SYNC_PS;
        opts.servers = cases[i].servers;
        opts.replicas = cases[i].replicas;
        const kolo_train_result served = train_well(cases[i].workers + cases[i].servers, &opts);
        assert_same(cases[i].what, &plain, &served);
    }
}

/* `arg`: the servers. Most of the gradient is computed before the last bucket. */
static kolo_status buckets_body(kolo_comm *comm, const void *arg, void *result) {
    const int servers = *(const int *)arg;
    const kolo_train_opts opts = {
        .model = "lenet",
        .data = "synthetic:N=60,test=4,shape=1x28x28,seed=2",
        .optimizer.momentum = 0.9,
        .batch = 4,
        .steps = 4,
        .epochs = 9,
        .lr = 0.02,
        .bucket_bytes = 1 << 12,
        .sync = servers > 0 ? KOLO_SYNC_PS : KOLO_SYNC_ALLREDUCE,
        .servers = servers,
        .algorithm = KOLO_ALGORITHM_MESH,
    };
    return train_body(comm, &opts, result);
}

/* Over a network a push is sent while the backward pass goes on, with the bits of an allreduce. */
static void pushes_follow_the_buckets(void **state) {
    train_outcome outcomes[2][4];
    for (int servers = 0; servers <= 2; servers += 2) {
        const rank_job job = {.n = 2 + servers,
                              .transport = RANKS_TCP,
                              .body = buckets_body,
                              .arg = &servers,
                              .arg_bytes = sizeof servers,
                              .results = outcomes[servers / 2],
                              .result_bytes = sizeof outcomes[0][0]};
        ASSERT_OK(run_rank_job(&job));
        assert_int_equal(outcomes[servers / 2][0].status, KOLO_OK);
    }
    assert_int_equal(outcomes[0][0].result.parts, 0);
    assert_true(outcomes[1][0].result.parts >= 2 * 4); /* of both workers, in each step */
    assert_same("buckets", &outcomes[0][0].result, &outcomes[1][0].result);
}

static void one_worker_trains_as_without_servers(void **state) {
    static const char *const policies[] = {"asp", "ssp:2", "ssp:0", "asp,lease=1", "ssp:1,lease=1"};
    kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0);
    opts.eval_steps = 2;
    const kolo_train_result plain = train_well(1, &opts);
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        opts.sync = KOLO_SYNC_PS;
        opts.servers = (int)i; /* also by itself */
        opts.consistency = policies[i];
        const kolo_train_result served = train_well(1 + opts.servers, &opts);
        assert_same(policies[i], &plain, &served);
    }
}

static kolo_train_opts delayed_options(const char *policy, int servers) {
    kolo_train_opts opts = options(KOLO_SYNC_PS, servers);
    opts.model = "mlp";
    opts.model_options = NULL;
    opts.optimizer = (kolo_optimizer_opts){.kind = KOLO_OPTIMIZER_NESTEROV, .momentum = 0.9};
    opts.consistency = policy;
    return opts;
}

/* With a period of one update it is Nesterov's momentum; a run goes on within a period. */
static void a_momentum_is_delayed(void **state) {
    kolo_train_opts plain = delayed_options(NULL, 0), opts = delayed_options("asp,delay=1", 2);
    plain.sync = KOLO_SYNC_ALLREDUCE;
    const kolo_train_result nesterov = train_well(1, &plain);
    const kolo_train_result one = train_well(3, &opts);
    assert_near_run("delay=1", &nesterov, &one);
    opts = delayed_options("asp,delay=4,ahead=0.1", 2);
    const kolo_train_result whole = train_well(3, &opts);
    assert_true(whole.parameter_hash != one.parameter_hash);
    assert_int_equal(system("rm -rf run"), 0);
    opts.out_dir = "run";
    opts.checkpoint_steps = 2;
    opts.steps = 6; /* one and a half periods */
    (void)train_well(3, &opts);
    opts.resume = "run";
    opts.steps = 9;
    const kolo_train_result resumed = train_well(3, &opts);
    assert_same("within a period", &whole, &resumed);
}

/* A group of all workers makes the steps of bsp; groups are stale to each other alone. */
static void groups_are_synchronous_inside(void **state) {
    static const struct {
        const char *policy;
        int workers, servers, groups;
    } cases[] = {{"asp,group=3", 3, 1, 1},
                 {"ssp:1,group=2", 4, 2, 2},
                 {"asp,group=2", 4, 1, 2},
                 {"ssp:2,group=2,scale=1", 4, 0, 2}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0);
        opts.steps = 12;
        const int64_t epochs = cases[i].workers == 3 ? 2 : 3;
        const kolo_train_result bsp = train_well(cases[i].workers, &opts);
        opts.sync = KOLO_SYNC_PS;
        opts.servers = cases[i].servers;
        opts.consistency = cases[i].policy;
        opts.eval_steps = 5;
        opts.check_replicas = 4;
        const kolo_train_result r = train_well(cases[i].workers + opts.servers, &opts);
        if (cases[i].groups == 1) assert_near_run(cases[i].policy, &bsp, &r);
        int64_t pushes = 0;
        for (size_t d = 0; d < KOLO_COUNT(r.delays); d++) {
            pushes += (int64_t)r.delays[d];
            if (cases[i].policy[0] == 's' && (int)d > cases[i].policy[4] - '0') {
                assert_int_equal(r.reads[d], 0);
            }
        }
        assert_int_equal(pushes, cases[i].groups * 12);
        assert_int_equal(r.samples, epochs * 61);
        assert_true(r.evaluated && r.workers == cases[i].workers);
    }
}

/* Workers that own the parameters, by the name of what they do. */
static void a_mesh_has_each_policy_of_servers(void **state) {
    static const char *const policies[] = {"bsp",   "bsp:drop=1", "bsp:drop=1,discard", "ssp:0",
                                           "ssp:2", "asp",        "asp,scale=1"};
    kolo_train_opts plain = options(KOLO_SYNC_ALLREDUCE, 0);
    plain.steps = 12; /* two epochs */
    const kolo_train_result direct = train_well(3, &plain);
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = plain;
        opts.sync = KOLO_SYNC_MESH;
        opts.consistency = policies[i];
        opts.eval_steps = 5;
        opts.check_replicas = 4;
        const kolo_train_result r = train_well(3, &opts);
        const bool equal = strcmp(policies[i], "bsp") == 0 || strcmp(policies[i], "ssp:0") == 0;
        if (equal) assert_same(policies[i], &direct, &r);
        uint64_t reads = 0, pushes = 0;
        for (size_t b = 0; b < KOLO_COUNT(r.reads); b++) {
            reads += r.reads[b];
            pushes += r.delays[b];
            if (strcmp(policies[i], "ssp:2") == 0 && b > 2) assert_int_equal(r.reads[b], 0);
        }
        assert_true(reads >= 3 * 12 && pushes == 3 * 12 && r.servers == 0 && r.evaluated);
        assert_true(r.samples <= 2 * 61 && r.samples > 0);
        if (!strstr(policies[i], "discard")) assert_int_equal(r.samples, 2 * 61);
    }
}

static void a_bound_of_zero_is_bsp(void **state) {
    kolo_train_opts opts = options(KOLO_SYNC_PS, 2);
    const kolo_train_result bsp = train_well(5, &opts);
    opts.consistency = "ssp:0";
    const kolo_train_result ssp = train_well(5, &opts);
    assert_same("ssp:0", &bsp, &ssp);
    assert_true(bsp.reads[0] > 0 && bsp.reads[1] == 0);
}

/* Gradients are used as they arrive: each once. */
static void stale_runs_use_all_samples(void **state) {
    static const struct {
        const char *policy;
        int servers, bound;
    } cases[] = {
        {"ssp:1", 1, 1}, {"ssp:3", 0, 3}, {"asp", 2, 31}, {"auto", 1, 31}, {"auto", 0, 31}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, cases[i].servers);
        opts.consistency = cases[i].policy;
        opts.steps = 12; /* two epochs */
        opts.check_replicas = 6;
        const kolo_train_result r = train_well(3 + cases[i].servers, &opts);
        uint64_t reads = 0;
        for (size_t s = 0; s < KOLO_COUNT(r.reads); s++) {
            reads += r.reads[s];
            if ((int)s > cases[i].bound && r.reads[s] > 0) fail_msg("staleness %zu", s);
        }
        assert_int_equal(r.samples, 2 * 61);
        assert_true(reads >= 3 * 12);
        assert_true(r.evaluated && r.workers == 3 && r.servers == cases[i].servers);
        assert_true(strncmp(r.consistency, "bsp", strcmp(opts.consistency, "auto") == 0 ? 3 : 0) ==
                    0);
    }
}

/* Late gradients are kept, also at an evaluation and at the end, or they are not used. */
static void steps_without_the_latest_gradients(void **state) {
    static const struct {
        const char *policy;
        int workers, servers;
        bool all;
    } cases[] = {{"bsp:drop=1", 3, 1, true},
                 {"bsp:drop=2", 4, 0, true},
                 {"bsp:drop=1,discard", 3, 2, false}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, cases[i].servers);
        opts.consistency = cases[i].policy;
        opts.steps = 12; /* two epochs */
        opts.eval_steps = 5;
        opts.check_replicas = 4;
        const kolo_train_result r = train_well(cases[i].workers + cases[i].servers, &opts);
        int64_t pushes = 0;
        for (size_t d = 0; d < KOLO_COUNT(r.delays); d++) pushes += (int64_t)r.delays[d];
        assert_int_equal(pushes, cases[i].workers * 12);
        const int64_t all = cases[i].workers == 3 ? 2 * 61 : 3 * 61;
        if (cases[i].all) assert_int_equal(r.samples, all);
        assert_true(r.samples > 0 && r.samples <= all && r.evaluated);
    }
}

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
static void record_late_worker(void) {
    static const int workers[] = {1, 2, 1, 2, 0, 0}; /* pushes and pulls */
    const kolo_parameters_opts opts = {.drop = 1};
    const kolo_owned has = {{0, 1}, {0, 1}, {0, 0}};
    kolo_order_opts order = {
        .record = "late.0", .workers = 3, .owners = 1, .drop = 1, .reply = refuse};
    kolo_order *made;
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
    record_late_worker();
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, 1);
        opts.consistency = policies[i];
        opts.replay = "late";
        opts.steps = LATE_STEPS; /* two epochs */
        const kolo_train_result r = train_well(4, &opts);
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
        kolo_train_opts opts = options(KOLO_SYNC_PS, cases[i].servers);
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
        const char *record, *replay, *why;
        int workers, servers;
    } refused[] = {
        {NULL, "drop", "is of a run with 3 workers", 2, 1},
        {NULL, "asp", "2 owners", 2, 1},
        {NULL, "leases", "another --consistency", 3, 2},
        {"drop", NULL, "exists", 2, 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        const int ranks = refused[i].workers + refused[i].servers;
        kolo_train_opts other = options(KOLO_SYNC_PS, refused[i].servers);
        other.consistency = "asp";
        other.record = refused[i].record;
        other.replay = refused[i].replay;
        const train_outcome *o = train_job(ranks, RANKS_THREAD, &other);
        for (int r = 0; r < ranks; r++) { /* the error of a server */
            assert_int_equal(o[r].status, KOLO_ERR_ARG);
            assert_non_null(strstr(o[r].error, refused[i].why));
        }
    }
}

/* The files are those of any run: with servers they resume bitwise, and without. */
static void runs_resume_with_and_without_servers(void **state) {
    static const struct {
        kolo_sync sync[2];
        int servers[2];
    } cases[] = {{{KOLO_SYNC_PS, KOLO_SYNC_PS}, {2, 2}},
                 {{KOLO_SYNC_PS, KOLO_SYNC_ALLREDUCE}, {0, 0}},
                 {{KOLO_SYNC_ALLREDUCE, KOLO_SYNC_PS}, {0, 1}}};
    kolo_train_opts plain = options(KOLO_SYNC_ALLREDUCE, 0);
    plain.optimizer = (kolo_optimizer_opts){.kind = KOLO_OPTIMIZER_ADAM};
    plain.steps = 6;
    const kolo_train_result whole = train_well(2, &plain);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = plain;
        assert_int_equal(system("rm -rf run"), 0);
        opts.out_dir = "run";
        opts.checkpoint_steps = 2;
        opts.steps = 4;
        opts.sync = cases[i].sync[0];
        opts.servers = cases[i].servers[0];
        (void)train_well(2 + opts.servers, &opts);
        opts.resume = "run";
        opts.steps = plain.steps;
        opts.sync = cases[i].sync[1];
        opts.servers = cases[i].servers[1];
        const kolo_train_result resumed = train_well(2 + opts.servers, &opts);
        assert_same("resumed", &whole, &resumed);
        if (i > 0) continue;
        const kolo_train_result again = train_well(2 + opts.servers, &opts); /* of no step */
        assert_same("resumed at the end", &whole, &again);
    }
}

/* The loss after a run of 8 steps, in every other of which one worker alone has samples. Samples
 * are equal, so that the order of pushes does not count. `split`: the run is interrupted. */
static double loss_of(const char *policy, double lr, bool split) {
    kolo_train_opts opts = {
        .model = "mlp",
        .model_options = "hidden=4,layers=1",
        .data = "csv:rows",
        .optimizer = {.kind = KOLO_OPTIMIZER_ADAM, .beta1 = 1e-3},
        .batch = 4,
        .epochs = split ? 2 : 4,
        .lr = lr,
        .sync = KOLO_SYNC_PS,
        .servers = 1,
        .consistency = policy,
    };
    assert_int_equal(system("rm -rf run"), 0);
    if (split) {
        opts.out_dir = "run";
        opts.checkpoint_epochs = 2;
        (void)train_well(4, &opts);
        opts.resume = "run";
        opts.epochs = 4;
    }
    return train_well(4, &opts).test.value[KOLO_METRIC_LOSS];
}

/* Adam's bias correction counts the updates, and pushes without samples are none. */
static void a_resumed_run_counts_its_updates(void **state) {
    static const char *const policies[] = {"ssp:1", "asp"};
    assert_int_equal(system("mkdir rows && cd rows && yes 1,2,1 | head -13 >train.csv && "
                            "cp train.csv test.csv"),
                     0);
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        const double start = loss_of(policies[i], 1e-12, false);
        const double whole = loss_of(policies[i], 1e-4, false) - start;
        assert_near(policies[i], whole, loss_of(policies[i], 1e-4, true) - start, 0.02);
    }
}

static void what_servers_cannot_do_is_refused(void **state) {
    static const struct {
        const char *consistency, *compress, *mesh, *why, *record, *replay;
        int zero, servers, replicas;
        double clip;
        int64_t accumulate;
        bool sync_bn, sparse, allreduce, mesh_of_owners;
    } cases[] = {
        {.zero = 1, .why = "--zero"},
        {.compress = "f16", .why = "--compress"},
        {.mesh = "tp=3", .why = "--mesh"},
        {.sync_bn = true, .why = "--sync-bn"},
        {.sparse = true, .why = "--sparse-embedding"},
        {.clip = 1, .why = "--servers 1"},
        {.clip = 1, .servers = 2, .why = "--servers 1"},
        {.accumulate = 2, .why = "--accumulate"},
        {.consistency = "lag:1", .why = "--sync ps"},
        {.consistency = "local:4", .why = "--sync ps"},
        {.consistency = "ssp:3", .allreduce = true, .why = "--sync allreduce"},
        {.consistency = "asp", .allreduce = true, .why = "--sync allreduce"},
        {.consistency = "asp,lease=1", .why = "--servers 1"},
        {.consistency = "auto", .allreduce = true, .why = "--sync allreduce"},
        {.consistency = "auto,lease=1", .servers = 1, .why = "no other parameters"},
        {.consistency = "auto:3", .why = "takes no argument"},
        {.consistency = "auto", .record = "a", .servers = 1, .why = "the time of steps"},
        {.consistency = "ssp:0,lease=1", .servers = 1, .why = "bsp has no other parameters"},
        {.consistency = "asp:1", .why = "takes no argument"},
        {.consistency = "asp,lr=1", .why = "none of dc=X"},
        {.consistency = "asp,delay=3", .why = "give --optimizer nesterov"},
        {.consistency = "asp,delay=0", .why = "none of dc=X"},
        {.consistency = "asp,group=2", .why = "a multiple of the group"},
        {.consistency = "bsp,group=3", .why = "no other parameters"},
        {.consistency = "ssp:1,delay=2.5", .why = "none of dc=X"},
        {.consistency = "asp,ahead=0.5", .why = "at most 1 / delay"},
        {.consistency = "asp,delay=4,ahead=0.3", .why = "at most 1 / delay"},
        {.consistency = "bsp:drop=1,delay=2", .why = "as in bsp:drop=1"},
        {.mesh_of_owners = true, .servers = 1, .why = "with --sync mesh, whose workers own"},
        {.mesh_of_owners = true, .consistency = "lag:1", .why = "--sync mesh"},
        {.mesh_of_owners = true, .clip = 1, .why = "--sync mesh cannot be combined with --clip"},
        {.mesh_of_owners = true, .consistency = "asp,lease=1", .why = "--servers 1"},
        {.consistency = "ssp:2,scale=2", .why = "none of dc=X"},
        {.consistency = "bsp,dc=1", .why = "no other parameters"},
        {.consistency = "ssp", .why = "number of steps"},
        {.consistency = "bsp:drop=3", .why = "at least one gradient"},
        {.consistency = "bsp:drop=1", .allreduce = true, .why = "an allreduce needs"},
        {.consistency = "bsp:drop=0", .why = "as in bsp:drop=1"},
        {.consistency = "bsp:drop=1,scale=1", .why = "as in bsp:drop=1"},
        {.consistency = "bsp:drop=1", .zero = 1, .why = "--zero"},
        {.record = "a", .why = "repeat bitwise without", .servers = 1},
        {.record = "a", .why = "--servers 1", .consistency = "asp"},
        {.record = "a", .replay = "a", .why = "omit", .servers = 1},
        {.replay = "a", .why = "--servers 1", .allreduce = true},
        {.servers = 3, .why = "there must be a worker"},
        {.servers = 1, .allreduce = true, .why = "without --sync ps"},
        {.replicas = 1, .servers = 1, .why = "--servers 2"},
        {.replicas = 1, .allreduce = true, .why = "--sync ps --servers 2"},
        {.replicas = 1, .servers = 2, .consistency = "asp", .record = "a", .why = "--record"},
        {.replicas = 2, .servers = 2, .why = "replicas"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts =
            options(cases[i].allreduce ? KOLO_SYNC_ALLREDUCE : KOLO_SYNC_PS, cases[i].servers);
        if (cases[i].mesh_of_owners) opts.sync = KOLO_SYNC_MESH;
        opts.consistency = cases[i].consistency;
        opts.compress = cases[i].compress;
        opts.mesh = cases[i].mesh;
        opts.record = cases[i].record;
        opts.replay = cases[i].replay;
        opts.zero = cases[i].zero;
        opts.replicas = cases[i].replicas;
        opts.optimizer.clip = cases[i].clip;
        opts.accumulate = cases[i].accumulate;
        opts.sync_bn = cases[i].sync_bn;
        opts.sparse_embedding = cases[i].sparse;
        assert_job_refused(3, &opts, cases[i].why);
    }
}

static void a_run_that_diverges_ends_on_all_ranks(void **state) {
    static const char *const policies[] = {"bsp", "ssp:1", "asp"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, i == 1 ? 1 : 0);
        opts.consistency = policies[i];
        opts.lr = 1e6;
        const train_outcome *o = train_job(2 + opts.servers, RANKS_THREAD, &opts);
        int diverged = 0;
        for (int r = 0; r < 2; r++) {
            diverged += o[r].status == KOLO_ERR_DIVERGED;
            if (o[r].status == KOLO_OK) fail_msg("%s: rank %d trained", policies[i], r);
        }
        assert_true(diverged > 0);
    }
}

/* Large tensors are split, and owners have equal bytes to within a block of 4,096 elements. */
static void the_division_is_printed(void **state) {
    const kolo_dump_opts opts = {.what = KOLO_DUMP_SERVERS, .model = "lenet", .ranks = 3};
    char *text;
    int servers = 0;
    ASSERT_OK(kolo_dump(&opts, &text));
    for (const char *at = text; (at = strstr(at, "pulled ")); servers++) {
        double bytes = strtod(at += strlen("pulled "), NULL);
        if (fabs(bytes - 61706 * 4 / 3.0) > 4096 * 4) fail_msg("%s", text);
    }
    assert_int_equal(servers, 3);
    assert_non_null(strstr(text, "  fc1.weight [8192, 28672) of 48000\n"));
    kolo_dump_free(text);
}

/* Three workers and a server: 2 and 4 tenths of each bucket, at any element. */
static void the_division_follows_the_law(void **state) {
    const kolo_dump_opts opts = {.what = KOLO_DUMP_SERVERS,
                                 .model = "lenet",
                                 .bucket_bytes = 1 << 14,
                                 .ranks = 4,
                                 .by_law = true,
                                 .servers = 1};
    char *text;
    ASSERT_OK(kolo_dump(&opts, &text));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, i < 3 ? "worker %d: " : "server 0: ", i);
        const char *at = strstr(text, name);
        assert_non_null(at);
        const double bytes = strtod(strstr(at, "pulled ") + strlen("pulled "), NULL);
        if (fabs(bytes - 61706 * 4 * (i < 3 ? 0.2 : 0.4)) > 1024) fail_msg("%s", text);
    }
    /* Buckets of its own, one for each 16 KiB. */
    assert_true(strtol(text + strlen("worker 0: "), NULL, 10) > (48000 * 4) >> 14);
    assert_non_null(strstr(text, "  fc1.weight [9600, 19200) of 48000\n"));
    assert_non_null(strstr(text, "  fc1.weight [28800, 48000) of 48000\n"));
    kolo_dump_free(text);
}

/* Servers from none, as in a ring, to as many as workers: buckets, small tensors and large ones,
 * which are cut at any element. */
static void the_law_keeps_the_bits(void **state) {
    static const struct {
        const char *model;
        kolo_optimizer optimizer;
        double momentum;
        int64_t accumulate;
    } cases[] = {{"resnet8", KOLO_OPTIMIZER_SGD, 0.9, 1},
                 {"mlp", KOLO_OPTIMIZER_ADAM, 0, 2},
                 {"mlp", KOLO_OPTIMIZER_SGD, 0, 1},
                 {"resnet8", KOLO_OPTIMIZER_ADAMW, 0, 1}};
    for (int servers = 0; servers < 4; servers++) {
        kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0);
        opts.model = cases[servers].model;
        if (strcmp(opts.model, "mlp") == 0) opts.model_options = NULL;
        opts.optimizer = (kolo_optimizer_opts){.kind = cases[servers].optimizer,
                                               .momentum = cases[servers].momentum};
        opts.accumulate = cases[servers].accumulate;
        opts.bucket_bytes = 1 << 10;
        const kolo_train_result plain = train_well(3, &opts);
        opts.sync = KOLO_SYNC_PS;
        opts.servers = servers;
        const kolo_train_result served = train_well(3 + servers, &opts);
        assert_same(cases[servers].model, &plain, &served);
        assert_true(served.parts > 3 * 9); /* several buckets of most steps in backward passes */
    }
}

TEST_MAIN(test_servers) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_division_is_printed),
        cmocka_unit_test(the_division_follows_the_law),
        cmocka_unit_test(the_law_keeps_the_bits),
        cmocka_unit_test(one_worker_trains_as_without_servers),
        cmocka_unit_test(pushes_follow_the_buckets),
        cmocka_unit_test(a_momentum_is_delayed),
        cmocka_unit_test(a_mesh_has_each_policy_of_servers),
        cmocka_unit_test(groups_are_synchronous_inside),
        cmocka_unit_test(a_bound_of_zero_is_bsp),
        cmocka_unit_test(stale_runs_use_all_samples),
        cmocka_unit_test(steps_without_the_latest_gradients),
        cmocka_unit_test(steps_go_on_without_a_slow_worker),
        cmocka_unit_test(recorded_runs_repeat_bitwise),
        cmocka_unit_test(runs_resume_with_and_without_servers),
        cmocka_unit_test(a_resumed_run_counts_its_updates),
        cmocka_unit_test(what_servers_cannot_do_is_refused),
        cmocka_unit_test(a_run_that_diverges_ends_on_all_ranks),
        cmocka_unit_test(bsp_equals_a_direct_allreduce),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
