/* Gradients that are pushed to the owners as codes: bitwise an allreduce with the same codec where
 * codes are of single numbers, every codec with every policy, fewer bytes, and what is refused. */
#include "base/compiler.h"
#include "data/safetensors/safetensors.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 24 };

/* Equal shares of 1, 2 or 4 workers. */
static kolo_train_opts options(kolo_sync sync, int servers, const char *policy, const char *codec) {
    return (kolo_train_opts){
        .model = "mlp",
        .model_options = "hidden=48",
        .data = "synthetic:N=64,test=64,shape=1x8x8,seed=2",
        .optimizer.momentum = 0.9,
        .batch = 4,
        .epochs = 40,
        .steps = STEPS,
        .eval_steps = 8,
        .lr = 0.02,
        .sync = sync,
        .servers = servers,
        .consistency = policy,
        .compress = codec,
        .compress_min_bytes = 4096, /* fc1.weight, of 12,288 bytes */
        .algorithm = KOLO_ALGORITHM_DIRECT,
    };
}

static double loss_of(const kolo_train_result *r) { return r->test.value[KOLO_METRIC_LOSS]; }

/* The parameters are equal: they are evaluated alike, to the last bit. */
static void codes_of_numbers_equal_an_allreduce(void **state) {
    static const struct {
        const char *codec;
        int workers, servers;
        kolo_sync sync;
    } cases[] = {
        {"f16", 2, 1, KOLO_SYNC_PS},
        {"bf16", 4, 1, KOLO_SYNC_PS},
        {"bf16", 2, 2, KOLO_SYNC_PS},
        {"f16", 2, 0, KOLO_SYNC_MESH},
        {"f16,only=fc1.*", 2, 1, KOLO_SYNC_PS},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0, "bsp", "none");
        const kolo_train_result whole = train_well(cases[i].workers, &opts);
        opts.compress = cases[i].codec;
        const kolo_train_result plain = train_well(cases[i].workers, &opts);
        opts.sync = cases[i].sync;
        opts.servers = cases[i].servers;
        opts.check_replicas = 6;
        const kolo_train_result served = train_well(cases[i].workers + opts.servers, &opts);
        if (memcmp(&plain.test, &served.test, sizeof plain.test) != 0) {
            fail_msg("%s, %d servers: test losses %.9g and %.9g", cases[i].codec, cases[i].servers,
                     loss_of(&plain), loss_of(&served));
        }
        assert_true(loss_of(&whole) != loss_of(&served));
    }
}

/* Every codec, with every kind of policy. Without the errors of the codes before, topk misses 0.3
 * in place of 0.16. */
static void runs_come_near_those_without_codes(void **state) {
    static const struct {
        const char *codec, *policy;
        int workers, servers;
        int64_t steps; /* with many the order in which gradients arrive counts less */
        double most;   /* of what a run without codes has learned, that is missing */
    } jobs[] = {
        {"int8", "bsp", 2, 1, STEPS, 0.01},           {"1bit", "bsp", 2, 2, STEPS, 0.05},
        {"topk:0.02", "bsp", 3, 0, STEPS, 0.2},       {"bf16", "bsp:drop=1", 2, 2, 4 * STEPS, 0.2},
        {"int8", "ssp:1", 2, 0, 4 * STEPS, 0.2},      {"topk:0.1", "asp", 2, 1, 4 * STEPS, 0.2},
        {"1bit", "asp,dc=0.1", 2, 1, 4 * STEPS, 0.2}, {"int8", "asp,group=2", 4, 1, 4 * STEPS, 0.2},
        {"f16", "asp,lease=1", 2, 1, 4 * STEPS, 0.2}, {"bf16", "auto", 2, 1, 4 * STEPS, 0.2},
        {"int8", "diloco:4", 2, 1, STEPS, 0.05},      {"bf16", "bmuf:4,quorum=1", 2, 2, STEPS, 0.4},
    };
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = options(KOLO_SYNC_PS, jobs[i].servers, jobs[i].policy, "none");
        if (strcmp(jobs[i].policy, "bsp") == 0) opts.lr = 0.08;
        opts.steps = jobs[i].steps;
        const int ranks = jobs[i].workers + jobs[i].servers;
        const kolo_train_result whole = train_well(ranks, &opts);
        opts.compress = jobs[i].codec;
        const kolo_train_result coded = train_well(ranks, &opts);
        const double of_none = log(10), least = loss_of(&whole);
        if (loss_of(&coded) > least + jobs[i].most * (of_none - least)) {
            fail_msg("%s, %s: test loss %g, without codes %g", jobs[i].codec, jobs[i].policy,
                     loss_of(&coded), least);
        }
        assert_int_equal(coded.samples, whole.samples);
    }
}

/* Whether a run that repeats goes on from a checkpoint as if it had not stopped: with the errors of
 * its codes. */
static void check_resumed(int workers, const char *codec, int servers, const char *policy) {
    kolo_train_opts opts =
        options(servers > 0 ? KOLO_SYNC_PS : KOLO_SYNC_MESH, servers, policy, codec);
    const int ranks = workers + servers;
    const kolo_train_result whole = train_well(ranks, &opts);
    assert_int_equal(system("rm -rf half"), 0);
    opts.out_dir = "half";
    opts.checkpoint_steps = STEPS / 2;
    opts.steps = STEPS / 2;
    (void)train_well(ranks, &opts);
    opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    opts.resume = "half";
    opts.steps = STEPS;
    const kolo_train_result resumed = train_well(ranks, &opts);
    if (memcmp(&whole.test, &resumed.test, sizeof whole.test) != 0) {
        fail_msg("%s, %s, %d servers: test losses %.9g and resumed %.9g", codec, policy, servers,
                 loss_of(&whole), loss_of(&resumed));
    }
}

static void a_run_goes_on_with_its_errors(void **state) {
    check_resumed(2, "topk:0.02", 1, "bsp");
    check_resumed(2, "1bit", 2, "bsp");
    check_resumed(3, "int8", 0, "bsp");
    check_resumed(1, "topk:0.1", 2, "bsp");
}

/* The same where owners add up the errors: of one worker, or of a group that is one. */
static void a_worker_goes_on_with_its_errors(void **state) {
    static const struct {
        const char *codec, *policy;
        int workers, servers;
    } cases[] = {
        {"topk:0.02", "asp", 1, 1},    {"1bit", "ssp:1", 1, 2},
        {"f16", "asp", 1, 0},          {"topk:0.1", "asp,group=2", 2, 1},
        {"int8", "asp,lease=1", 1, 1}, {"bf16", "diloco:4", 1, 1},
    };
    for (size_t i = 0; i < TEST_FEWER(2, KOLO_COUNT(cases)); i++) {
        check_resumed(cases[i].workers, cases[i].codec, cases[i].servers, cases[i].policy);
    }
}

enum { NUMBERS = 48 * 64 }; /* of fc1.weight */

/* Adds a state of fc1.weight in a checkpoint. */
static void add_state(const char *what, float *sum) {
    float state[NUMBERS];
    kolo_safetensors *file;
    char name[64];
    snprintf(name, sizeof name, "optimizer.%s.fc1.weight", what);
    ASSERT_OK(kolo_safetensors_open("half/checkpoint-24.safetensors", &file));
    const kolo_safetensors_entry *e = kolo_safetensors_find(file, name);
    assert_true(e && e->bytes == sizeof state);
    memcpy(state, e->data, sizeof state);
    for (int i = 0; i < NUMBERS; i++) sum[i] += state[i];
    kolo_safetensors_close(file);
}

/* Trains three workers by asp to a checkpoint, and fills the sum of all gradients: of those that
 * updates have taken, and of what their codes have left. With this rate parameters do not move. */
static void sum_gradients(const char *codec, bool resumes, float *sum) {
    kolo_train_opts opts = options(KOLO_SYNC_PS, 2, "asp,delay=1024", codec);
    opts.optimizer.kind = KOLO_OPTIMIZER_NESTEROV;
    opts.lr = 1e-15;
    opts.eval_steps = 5;
    opts.out_dir = "half";
    opts.checkpoint_steps = STEPS / 2;
    opts.steps = resumes ? STEPS / 2 : STEPS;
    assert_int_equal(system("rm -rf half"), 0);
    (void)train_well(5, &opts);
    opts.steps = STEPS;
    opts.resume = "half";
    if (resumes) (void)train_well(5, &opts);
    memset(sum, 0, NUMBERS * sizeof *sum);
    add_state("delayed", sum);
    if (strcmp(codec, "none") != 0) add_state("residual", sum);
}

static void no_error_is_lost(void **state) {
    static float whole[NUMBERS], coded[NUMBERS];
    sum_gradients("none", false, whole);
    sum_gradients("topk:0.02", true, coded);
    for (int i = 0; i < NUMBERS; i++) {
        if (fabsf(whole[i] - coded[i]) < 1e-4F) continue;
        fail_msg("gradients of weight %d: %g, and with codes %g", i, (double)whole[i],
                 (double)coded[i]);
    }
}

/* The errors of a worker are those that it has in an allreduce. */
static void an_allreduce_goes_on_with_the_errors(void **state) {
    kolo_train_opts opts = options(KOLO_SYNC_ALLREDUCE, 0, "bsp", "bf16");
    const kolo_train_result whole = train_well(2, &opts);
    assert_int_equal(system("rm -rf half"), 0);
    opts.sync = KOLO_SYNC_PS;
    opts.servers = 2;
    opts.out_dir = "half";
    opts.checkpoint_steps = opts.steps = STEPS / 2;
    (void)train_well(4, &opts);
    opts.sync = KOLO_SYNC_ALLREDUCE;
    opts.servers = 0;
    opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    opts.resume = "half";
    opts.steps = STEPS;
    const kolo_train_result resumed = train_well(2, &opts);
    assert_memory_equal(&whole.test, &resumed.test, sizeof whole.test);
}

/* ---- between hosts ---- */

/* Ranks are processes of their own: their argument contains no pointers. */
typedef struct scheme {
    char policy[16], codec[16];
    int workers, servers, replicas;
} scheme;

static kolo_status train_scheme(kolo_comm *comm, const void *arg, void *result) {
    const scheme *s = arg;
    kolo_train_opts opts = options(KOLO_SYNC_PS, s->servers, s->policy, s->codec);
    opts.model_options = "hidden=512";
    opts.replicas = s->replicas;
    opts.eval_steps = 0;
    return train_body(comm, &opts, result);
}

static kolo_train_result run_on_hosts(const scheme *s) {
    return train_on_hosts(s->workers + s->servers, train_scheme, s, sizeof *s);
}

/* Workers that own nothing send gradients, and little else. */
static void codes_are_fewer_bytes(void **state) {
    scheme s = {.policy = "asp", .codec = "none", .workers = 2, .servers = 2};
    const kolo_train_result whole = run_on_hosts(&s);
    memcpy(s.codec, "int8", sizeof "int8");
    const kolo_train_result coded = run_on_hosts(&s);
    const double sent = (double)coded.sent_bytes / (double)whole.sent_bytes;
    if (sent < 0.24 || sent > 0.30) fail_msg("%.4f of the bytes", sent);
    assert_true(coded.received_bytes > whole.received_bytes / 2);
}

/* The sum of a host is encoded by its first worker, and a replica gets codes as its leader does. */
static void codes_go_with_sums_of_hosts_and_replicas(void **state) {
    static const scheme schemes[] = {
        {.policy = "bsp", .codec = "int8", .workers = 4, .servers = 1},
        {.policy = "bsp", .codec = "1bit", .workers = 2, .servers = 2, .replicas = 1},
        {.policy = "asp", .codec = "bf16", .workers = 2, .servers = 2, .replicas = 1},
    };
    for (size_t i = 0; i < TEST_FEWER(1, KOLO_COUNT(schemes)); i++) {
        const kolo_train_result r = run_on_hosts(&schemes[i]);
        assert_true(r.steps == STEPS && loss_of(&r) < 1.5);
    }
}

static void what_owners_cannot_sum_is_refused(void **state) {
    kolo_train_opts opts = options(KOLO_SYNC_PS, 1, "bsp", "auto");
    assert_job_refused(3, &opts, "give the codec alone");
    opts.compress = "powersgd:2";
    assert_job_refused(3, &opts, "factors are sums of all workers");
    opts.compress = "1bit,warmup=2";
    opts.optimizer = (kolo_optimizer_opts){.kind = KOLO_OPTIMIZER_ADAM};
    assert_job_refused(3, &opts, "the momentum is at the owners; give another codec");
    opts.compress = "1bit";
    assert_job_refused(3, &opts, "use another --compress, or another optimizer");
}

TEST_MAIN(test_servers_codes) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_numbers_equal_an_allreduce),
        cmocka_unit_test(runs_come_near_those_without_codes),
        cmocka_unit_test(a_run_goes_on_with_its_errors),
        cmocka_unit_test(a_worker_goes_on_with_its_errors),
        cmocka_unit_test(no_error_is_lost),
        cmocka_unit_test(an_allreduce_goes_on_with_the_errors),
        cmocka_unit_test(codes_are_fewer_bytes),
        cmocka_unit_test(codes_go_with_sums_of_hosts_and_replicas),
        cmocka_unit_test(what_owners_cannot_sum_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
