/* Training with parameter servers, apart from the workers or not: what equals an allreduce bitwise,
 * what each policy allows, files, and what is refused. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/process.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/served_job.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        {"momentum and clipping, two servers", "mlp", KOLO_OPTIMIZER_SGD, 0.9, 0.5, 3, 2, 1, 0},
        {"lars, workers serve", "mlp", KOLO_OPTIMIZER_LARS, 0.9, 0, 3, 0, 1, 0},
        {"lamb and clipping, three servers", "mlp", KOLO_OPTIMIZER_LAMB, 0, 1, 2, 3, 2, 0},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = served_opts(KOLO_SYNC_ALLREDUCE, 0);
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
        assert_same_served(cases[i].what, &plain, &served);
    }
}

typedef struct limited_job {
    kolo_train_opts opts;
    int64_t bytes; /* of the machine */
} limited_job;

static kolo_status limited_body(kolo_comm *comm, const void *arg, void *result) {
    const limited_job *job = arg;
    kolo_memory_limit_pin(job->bytes);
    const kolo_status status = train_body(comm, &job->opts, result);
    kolo_memory_limit_pin(0);
    return status;
}

static void train_limited(const kolo_train_opts *opts, int64_t bytes, train_outcome o[3]) {
    const limited_job limited = {*opts, bytes};
    const rank_job job = {.n = 3,
                          .transport = RANKS_THREAD,
                          .body = limited_body,
                          .arg = &limited,
                          .arg_bytes = sizeof limited,
                          .results = o,
                          .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
}

/* All ranks of a machine are checked together. A server has two copies of the parameters, the state
 * and the gradient, one in its plan; a worker has one of each to exchange. */
static void memory_of_servers_is_checked(void **state) {
    static train_outcome o[3];
    kolo_train_opts opts = served_opts(KOLO_SYNC_PS, 1);
    opts.model = "mlp";
    opts.model_options = "hidden=256";
    opts.optimizer = (kolo_optimizer_opts){
        .kind = KOLO_OPTIMIZER_SGD, .momentum = 0.9, .clip = 1}; /* the server owns everything */
    const kolo_train_result r = train_well(3, &opts);
    const kolo_train_memory *m = &r.memory;
    const int64_t served = 2 * (3 + 3) * r.parameters * (int64_t)sizeof(float), slack = 1 << 16;
    const int64_t all = 2 * (m->store + m->exchanged + m->values) + m->shared + served;
    train_limited(&opts, all + slack, o);
    for (int rank = 0; rank < 3; rank++) assert_int_equal(o[rank].status, KOLO_OK);
    train_limited(&opts, all - slack, o);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(o[rank].status, KOLO_ERR_NOMEM);
        assert_non_null(strstr(o[rank].error, "a worker needs"));
        assert_non_null(strstr(o[rank].error, ", a server 0.0 GiB, workers (2) and servers (1) of "
                                              "this machine together 0.0"));
    }
}

/* Rows of tables count, as many as the samples of all steps may create. */
static void memory_of_rows_is_checked(void **state) {
    static train_outcome o[3];
    kolo_train_opts opts = served_opts(KOLO_SYNC_PS, 1);
    opts.model = "dlrm";
    opts.model_options = "tables=4,rows=100000,dim=8,dense=3,bottom1=5,bottom2=0,bottom3=0,"
                         "top1=7,top2=6";
    opts.data = "synthetic-clicks:N=64,test=8,seed=3";
    opts.table = "emb.weight";
    opts.optimizer.momentum = 0;
    opts.steps = 4;
    train_limited(&opts, 256 << 20, o);
    for (int rank = 0; rank < 3; rank++) assert_int_equal(o[rank].status, KOLO_OK);
    opts.epochs = opts.steps = 1 << 20;
    train_limited(&opts, 256 << 20, o);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(o[rank].status, KOLO_ERR_NOMEM);
        assert_non_null(strstr(o[rank].error, ", a server 1.0 GiB (rows of tables up to 1.0), "));
        assert_non_null(strstr(o[rank].error, "or a smaller --table-bytes"));
    }
}

static void one_worker_trains_as_without_servers(void **state) {
    static const char *const policies[] = {"asp", "ssp:2", "ssp:0", "asp,lease=1", "ssp:1,lease=1"};
    kolo_train_opts opts = served_opts(KOLO_SYNC_ALLREDUCE, 0);
    opts.eval_steps = 2;
    const kolo_train_result plain = train_well(1, &opts);
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        opts.sync = KOLO_SYNC_PS;
        opts.servers = (int)i; /* also by itself */
        opts.consistency = policies[i];
        const kolo_train_result served = train_well(1 + opts.servers, &opts);
        assert_same_served(policies[i], &plain, &served);
    }
}

/* Of several owners none has the gradient that is clipped: its worker does that, or the first one
 * of a group. Parameters are those of a run with one owner up to rounding. */
static void a_push_to_several_owners_is_clipped(void **state) {
    static const struct {
        const char *policy;
        int workers, servers, replicas;
    } cases[] = {
        {"asp", 1, 2, 0},         {"ssp:1", 1, 2, 1},         {"asp,lease=1", 1, 3, 0},
        {"asp,group=2", 2, 2, 0}, {"ssp:1,group=3", 3, 0, 0},
    };
    kolo_train_opts opts = served_opts(KOLO_SYNC_ALLREDUCE, 0);
    const double clip = 0.5;
    opts.model = "mlp";
    opts.model_options = NULL;
    for (size_t i = 0; i < TEST_FEWER(2, KOLO_COUNT(cases)); i++) {
        opts.sync = KOLO_SYNC_ALLREDUCE;
        opts.consistency = NULL;
        opts.servers = opts.replicas = 0;
        opts.optimizer.clip = 0;
        const kolo_train_result whole = train_well(cases[i].workers, &opts);
        opts.optimizer.clip = clip;
        const kolo_train_result plain = train_well(cases[i].workers, &opts);
        opts.sync = cases[i].servers > 0 ? KOLO_SYNC_PS : KOLO_SYNC_MESH;
        opts.consistency = cases[i].policy;
        opts.servers = cases[i].servers;
        opts.replicas = cases[i].replicas;
        const kolo_train_result served = train_well(cases[i].workers + opts.servers, &opts);
        const double loss = plain.test.value[KOLO_METRIC_LOSS];
        const double error = fabs(served.test.value[KOLO_METRIC_LOSS] - loss);
        if (error > 1e-4 * loss) fail_msg("%s: %g of %g", cases[i].policy, error, loss);
        assert_true(fabs(whole.test.value[KOLO_METRIC_LOSS] - loss) > 1e-2 * loss);
    }
}

static void norms_of_several_owners_are_refused(void **state) {
    static const struct {
        const char *policy, *compress;
        kolo_optimizer kind;
    } cases[] = {
        {"asp,dc=0.1", "none", KOLO_OPTIMIZER_SGD}, {"asp", "int8", KOLO_OPTIMIZER_SGD},
        {"bsp:drop=1", "none", KOLO_OPTIMIZER_SGD}, {"auto", "none", KOLO_OPTIMIZER_SGD},
        {"asp", "none", KOLO_OPTIMIZER_LARS},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, 2);
        opts.optimizer.kind = cases[i].kind;
        opts.optimizer.clip = cases[i].kind == KOLO_OPTIMIZER_SGD ? 1 : 0;
        opts.consistency = cases[i].policy;
        opts.compress = cases[i].compress;
        assert_job_refused(4, &opts, "give --servers 1, or --consistency bsp without --replicas");
    }
}

static kolo_train_opts delayed_options(const char *policy, int servers) {
    kolo_train_opts opts = served_opts(KOLO_SYNC_PS, servers);
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
    assert_same_served("within a period", &whole, &resumed);
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
        kolo_train_opts opts = served_opts(KOLO_SYNC_ALLREDUCE, 0);
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
    kolo_train_opts plain = served_opts(KOLO_SYNC_ALLREDUCE, 0);
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
        if (equal) assert_same_served(policies[i], &direct, &r);
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
    kolo_train_opts opts = served_opts(KOLO_SYNC_PS, 2);
    const kolo_train_result bsp = train_well(5, &opts);
    opts.consistency = "ssp:0";
    const kolo_train_result ssp = train_well(5, &opts);
    assert_same_served("ssp:0", &bsp, &ssp);
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
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, cases[i].servers);
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

/* Workers at different steps save at one that none of them has passed; a run goes on from there. */
static void checkpoints_by_time_are_of_one_step(void **state) {
    static const char *const policies[] = {"ssp:1", "asp,group=3", "asp", "bsp:drop=1"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, i % 2 ? 2 : 1);
        const bool bounded = i < 2; /* else one may be at the end when another one asks */
        char path[64] = "";
        opts.consistency = policies[i];
        opts.steps = 12; /* two epochs */
        opts.out_dir = "timed";
        opts.checkpoint_seconds = 1e-9;
        opts.keep = 100;
        assert_int_equal(system("rm -rf timed"), 0);
        (void)train_well(3 + opts.servers, &opts);
        for (int k = 1; k < opts.steps && !*path; k++) {
            snprintf(path, sizeof path, "timed/checkpoint-%d.safetensors", k);
            if (!kolo_file_exists(path)) *path = '\0';
        }
        if (!*path && bounded) fail_msg("%s: no checkpoint before the end", policies[i]);
        if (!*path) continue;
        opts.resume = path;
        opts.out_dir = NULL;
        opts.checkpoint_seconds = 0;
        opts.keep = 0;
        const kolo_train_result r = train_well(3 + opts.servers, &opts);
        assert_int_equal(r.samples, 2 * 61);
    }
    kolo_train_opts leased = served_opts(KOLO_SYNC_PS, 1);
    leased.consistency = "asp,lease=1";
    leased.out_dir = "timed";
    leased.checkpoint_seconds = 1;
    assert_job_refused(4, &leased, "checkpoints by time with leases");
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
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, cases[i].servers);
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

/* The files are those of any run: with servers they resume bitwise, and without. */
static void runs_resume_with_and_without_servers(void **state) {
    static const struct {
        kolo_sync sync[2];
        int servers[2];
    } cases[] = {{{KOLO_SYNC_PS, KOLO_SYNC_PS}, {2, 2}},
                 {{KOLO_SYNC_PS, KOLO_SYNC_ALLREDUCE}, {0, 0}},
                 {{KOLO_SYNC_ALLREDUCE, KOLO_SYNC_PS}, {0, 1}}};
    kolo_train_opts plain = served_opts(KOLO_SYNC_ALLREDUCE, 0);
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
        assert_same_served("resumed", &whole, &resumed);
        if (i > 0) continue;
        const kolo_train_result again = train_well(2 + opts.servers, &opts); /* of no step */
        assert_same_served("resumed at the end", &whole, &again);
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
        {.compress = "powersgd:2", .why = "--compress"},
        {.mesh = "tp=3", .why = "--mesh"},
        {.sync_bn = true, .why = "--sync-bn"},
        {.sparse = true, .why = "--sparse-embedding"},
        {.clip = 1, .consistency = "bsp:drop=1", .why = "--servers 1"},
        {.clip = 1, .servers = 2, .replicas = 1, .why = "bsp without --replicas"},
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
        {.consistency = "asp,lr=1", .why = "it has dc=X"},
        {.consistency = "asp,delay=3", .why = "give --optimizer nesterov"},
        {.consistency = "asp,delay=0", .why = "it has dc=X"},
        {.consistency = "asp,group=2", .why = "a multiple of the group"},
        {.consistency = "bsp,group=3", .why = "no other parameters"},
        {.consistency = "ssp:1,delay=2.5", .why = "it has dc=X"},
        {.consistency = "asp,ahead=0.5", .why = "at most 1 / delay"},
        {.consistency = "asp,delay=4,ahead=0.3", .why = "at most 1 / delay"},
        {.consistency = "bsp:drop=1,delay=2", .why = "as in bsp:drop=1"},
        {.mesh_of_owners = true, .servers = 1, .why = "with --sync mesh, whose workers own"},
        {.mesh_of_owners = true, .consistency = "lag:1", .why = "--sync mesh"},
        {.mesh_of_owners = true,
         .consistency = "bsp:drop=1",
         .clip = 1,
         .why = "--sync mesh cannot be combined with --clip"},
        {.mesh_of_owners = true, .consistency = "asp,lease=1", .why = "--servers 1"},
        {.consistency = "ssp:2,scale=2", .why = "it has dc=X"},
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
            served_opts(cases[i].allreduce ? KOLO_SYNC_ALLREDUCE : KOLO_SYNC_PS, cases[i].servers);
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
        kolo_train_opts opts = served_opts(KOLO_SYNC_PS, i == 1 ? 1 : 0);
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

TEST_MAIN(test_servers) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_servers_is_checked),
        cmocka_unit_test(memory_of_rows_is_checked),
        cmocka_unit_test(one_worker_trains_as_without_servers),
        cmocka_unit_test(a_push_to_several_owners_is_clipped),
        cmocka_unit_test(norms_of_several_owners_are_refused),
        cmocka_unit_test(a_momentum_is_delayed),
        cmocka_unit_test(a_mesh_has_each_policy_of_servers),
        cmocka_unit_test(groups_are_synchronous_inside),
        cmocka_unit_test(a_bound_of_zero_is_bsp),
        cmocka_unit_test(stale_runs_use_all_samples),
        cmocka_unit_test(checkpoints_by_time_are_of_one_step),
        cmocka_unit_test(steps_without_the_latest_gradients),
        cmocka_unit_test(runs_resume_with_and_without_servers),
        cmocka_unit_test(a_resumed_run_counts_its_updates),
        cmocka_unit_test(what_servers_cannot_do_is_refused),
        cmocka_unit_test(a_run_that_diverges_ends_on_all_ranks),
        cmocka_unit_test(bsp_equals_a_direct_allreduce),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
