/* Runs of which a random worker or server is killed at a random moment: all others finish, with the
 * accuracy of a run that loses none, and each sample that a worker has an answer for is in the
 * parameters once. A few runs as an ordinary test; 200 with KOLO_SOAK=1, which prints their
 * accuracies and how long the longest step took, in which the loss was detected and the replica
 * took over. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kolo/data.h"
#include "kolo/train.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { WORKERS = 3, SERVERS = 2, RANKS = WORKERS + SERVERS };
enum { BATCH = 8, STEPS = 375, EPOCHS = 3, RUNS = 4, RUNS_SOAK = 200 };

static const char data_name[] = "synthetic:N=3000,test=8000,shape=1x5x5,seed=2";
static const double most_below = 0.01; /* of accuracy */

typedef struct policy {
    const char *text;
    double lr;
    bool workers; /* it goes on without a worker */
} policy;

static const policy policies[] = {
    {"asp,lease=1", 0.1, true}, {"ssp:2,lease=1", 0.1, true}, {"bsp", 0.3, false},
    {"bsp:drop=1", 0.3, true},  {"asp", 0.1, true},           {"ssp:2", 0.1, true},
    {"auto", 0.3, true},
};

typedef struct run {
    int policy, victim; /* a rank; 0: none is killed */
    rank_transport transport;
    int64_t us; /* after the first report */
} run;

/* A rank's part of the memory that all ranks share, side by side. */
typedef struct shared {
    _Alignas(64) _Atomic int set; /* of rank 0: it has reported; of the victim: it dies */
    int64_t ns;                   /* of rank 0: from its first report to its last */
    kolo_train_result result;
} shared;

typedef struct scene {
    run run;
    shared *own;
    int rank;
    int64_t begin_ns;
} scene;

static void sleep_us(int64_t us) { kolo_sleep_ns(1000 * us); }

static void *die_when_due(void *arg) {
    const scene *s = arg;
    while (!atomic_load(&s->own[-s->rank].set)) sleep_us(500);
    sleep_us(s->run.us);
    atomic_store(&s->own->set, 1);
    raise(SIGKILL);
    return NULL;
}

/* Rank 0 ends its last step once the victim dies, so that the run is not over before. */
static void observe(void *arg, const kolo_train_progress *p) {
    scene *s = arg;
    if (s->begin_ns == 0) s->begin_ns = kolo_now_ns();
    s->own->ns = kolo_now_ns() - s->begin_ns;
    atomic_store(&s->own->set, 1);
    const bool waits = s->run.victim > 0 && p->step == p->total_steps;
    while (waits && !atomic_load(&s->own[s->run.victim].set)) sleep_us(500);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    static scene s;
    pthread_t thread;
    s = (scene){.own = result, .rank = kolo_comm_rank(comm)};
    memcpy(&s.run, arg, sizeof s.run);
    const policy *p = &policies[s.run.policy];
    const kolo_train_opts opts = {
        .model = "mlp",
        .model_options = "hidden=32",
        .data = data_name,
        .sync = KOLO_SYNC_PS,
        .servers = SERVERS,
        .replicas = 1,
        .consistency = p->text,
        .batch = BATCH,
        .lr = p->lr,
        .schedule = KOLO_LR_COSINE,
        .epochs = EPOCHS,
        .ledger = strstr(p->text, "lease") ? "ledger" : NULL,
    };
    if (s.rank > 0 && s.rank == s.run.victim &&
        pthread_create(&thread, NULL, die_when_due, &s) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no thread");
    }
    return kolo_train(comm, &opts, observe, &s, &s.own->result);
}

static const kolo_train_result *train(const run *r, shared results[RANKS]) {
    rank_outcome outcomes[RANKS];
    const rank_job job = {
        .n = RANKS,
        .no_fork = true,
        .transport = r->transport,
        .body = body,
        .arg = r,
        .arg_bytes = sizeof *r,
        .results = results,
        .result_bytes = sizeof results[0],
        .outcomes = outcomes,
        .timeout_ms = 30000,
    };
    memset(results, 0, RANKS * sizeof results[0]);
    (void)run_rank_job(&job);
    for (int i = 0; i < RANKS; i++) {
        if (i > 0 && i == r->victim) {
            assert_int_equal(outcomes[i].signal, SIGKILL);
        } else if (outcomes[i].status != KOLO_OK || outcomes[i].signal) {
            fail_msg("%s, rank %d is killed: rank %d: signal %d: %s", policies[r->policy].text,
                     r->victim, i, outcomes[i].signal, outcomes[i].error);
        }
    }
    assert_true(results[0].result.steps == STEPS && results[0].result.evaluated);
    return &results[0].result;
}

/* Samples that the updates of the run must have: those of a lost worker up to its last push that
 * has arrived, unless others take its leases. */
static int64_t samples_of(const run *r, const char *lost) {
    char expected[32], *end;
    const int64_t all = (int64_t)WORKERS * BATCH * STEPS;
    const bool is_worker = r->victim > 0 && r->victim < WORKERS;
    snprintf(expected, sizeof expected,
             r->victim == 0 ? ""
             : is_worker    ? "rank %d after "
                            : "server rank %d",
             r->victim);
    if (strncmp(lost, expected, strlen(expected)) != 0)
        fail_msg("\"%s\", not \"%s\"", lost, expected);
    if (!is_worker || strstr(policies[r->policy].text, "lease")) return all;
    const long steps = strtol(lost + strlen(expected), &end, 10);
    assert_string_equal(end, " steps");
    return all - BATCH * (STEPS - steps);
}

static void check_ledger(const run *r) {
    bool exact;
    char *text;
    if (!strstr(policies[r->policy].text, "lease")) return;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    if (!exact || !strstr(text, "epoch 2: 3000 samples, each once")) fail_msg("%s", text);
    kolo_ledger_text_free(text);
    assert_int_equal(system("rm ledger.*"), 0);
}

static double accuracy_of(const kolo_train_result *r) {
    return kolo_metrics_get(&r->test, "accuracy");
}

/* An undisturbed run of a policy. */
typedef struct whole {
    double accuracy;
    uint64_t hash;
    int64_t us; /* from the first report to the last */
} whole;

static const whole *whole_of(int number, shared *results) {
    static whole runs[KOLO_COUNT(policies)];
    whole *w = &runs[number];
    if (w->us > 0) return w;
    const run r = {.policy = number};
    const kolo_train_result *result = train(&r, results);
    assert_int_equal(result->samples, samples_of(&r, result->lost));
    check_ledger(&r);
    *w = (whole){accuracy_of(result), result->parameter_hash, results[0].ns / 1000 + 1};
    assert_true(w->accuracy > 0.9);
    return w;
}

typedef struct summary {
    int workers, servers; /* that were killed */
    double mean, worst;   /* accuracy below that of the undisturbed run */
    double longest_ms;    /* step of rank 0 in which a rank was lost, or another one */
} summary;

/* Run `number`: what is killed, and when, follows from it. */
static void check_run(uint64_t number, shared *results, summary *s) {
    const kolo_rng rng = kolo_rng_make(number, KOLO_RNG_TEST, 18);
    run r = {.policy = (int)(number % KOLO_COUNT(policies))};
    const policy *p = &policies[r.policy];
    const whole *w = whole_of(r.policy, results);
    const bool kills_worker = p->workers && kolo_rng_below(&rng, 0, 2) == 0;
    r.victim = kills_worker ? 1 + (int)kolo_rng_below(&rng, 1, WORKERS - 1)
                            : WORKERS + (int)kolo_rng_below(&rng, 2, SERVERS);
    r.transport = kolo_rng_below(&rng, 3, 2) ? RANKS_TCP : RANKS_SHM;
    r.us = (int64_t)kolo_rng_below(&rng, 4, (uint64_t)w->us);
    const kolo_train_result *result = train(&r, results);
    const double accuracy = accuracy_of(result), below = w->accuracy - accuracy;
    assert_int_equal(result->samples, samples_of(&r, result->lost));
    check_ledger(&r);
    if (strcmp(p->text, "bsp") == 0) assert_int_equal(result->parameter_hash, w->hash);
    if (below > most_below) {
        fail_msg("run %d, %s, rank %d is killed: accuracy %.4f, undisturbed %.4f", (int)number,
                 p->text, r.victim, accuracy, w->accuracy);
    }
    s->workers += kills_worker;
    s->servers += !kills_worker;
    s->mean += below;
    s->worst = fmax(s->worst, below);
    s->longest_ms = fmax(s->longest_ms, result->step_ms_quantiles[KOLO_STEP_QUANTILES - 1]);
}

static void runs_end_with_their_accuracy(void **state) {
    const int runs = getenv("KOLO_SOAK") ? RUNS_SOAK : RUNS, before = test_count_descriptors();
    shared *results = kolo_zalloc(RANKS * sizeof *results);
    summary s = {.worst = -1};
    assert_non_null(results);
    for (int i = 0; i < runs; i++) check_run((uint64_t)i, results, &s);
    kolo_free(results);
    assert_int_equal(test_count_descriptors(), before);
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    if (runs == RUNS) return;
    printf("%d workers and %d servers killed: accuracy %.4f below the undisturbed run in the mean, "
           "%.4f at most; longest step %.1f ms\n",
           s.workers, s.servers, s.mean / runs, s.worst, s.longest_ms);
}

TEST_MAIN(test_killed_runs) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_end_with_their_accuracy),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
