/* A worker or a server that dies during training with parameter servers: the job ends on all other
 * ranks, each of which states a rank that is gone, and within the limits of data parallelism. With
 * servers apart and policies that do not wait for all workers it goes on without the worker. A run
 * that is asked to end does so resumably, whichever rank is asked. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/data.h"
#include "kolo/train.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

typedef struct setting {
    char policy[24];
    int servers, victim;
    rank_transport transport;
    int64_t us;  /* of training before it is killed */
    double clip; /* owners have sums over each other; 0: not */
} setting;

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_train_opts opts = {
        .model = "mlp",
        .data = "synthetic:N=400,test=40,shape=1x8x8,seed=2",
        .sync = KOLO_SYNC_PS,
        .servers = s->servers,
        .consistency = s->policy,
        .optimizer.clip = s->clip,
        .batch = 4,
        .lr = 0.01,
        .epochs = 100000,
        .eval_every = 3,
    };
    kolo_train_result unused;
    if (kolo_comm_rank(comm) == s->victim) ranks_die_after(s->us);
    return kolo_train(comm, &opts, NULL, NULL, &unused);
}

static void survivors_end_and_name_it(void **state) {
    static const setting settings[] = {
        {"bsp", 0, 1, RANKS_SHM, 300000, 0},         {"bsp", 1, 0, RANKS_TCP, 350000, 0},
        {"bsp", 2, 3, RANKS_SHM, 330000, 0},         {"ssp:2", 1, 0, RANKS_SHM, 320000, 0},
        {"asp", 2, 2, RANKS_TCP, 310000, 0},         {"asp", 0, 3, RANKS_SHM, 340000, 0},
        {"asp,group=2", 2, 1, RANKS_SHM, 330000, 0}, {"ssp:1,group=2", 0, 2, RANKS_TCP, 330000, 0},
        {"bsp", 2, 3, RANKS_SHM, 310000, 0.5},       {"bsp", 2, 0, RANKS_TCP, 330000, 0.5},
        {"bsp", 0, 1, RANKS_SHM, 350000, 0.5},
    };
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        const setting *s = &settings[i];
        rank_outcome outcomes[RANKS];
        rank_job job = {
            .n = RANKS,
            .transport = s->transport,
            .body = body,
            .arg = s,
            .arg_bytes = sizeof *s,
            .outcomes = outcomes,
            .timeout_ms = 30000,
        };
        char name[32], worker[32];
        int named = 0;
        snprintf(name, sizeof name, "rank %d", s->victim);
        snprintf(worker, sizeof worker, "worker %d", s->victim);
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        assert_int_equal(outcomes[s->victim].signal, SIGALRM);
        for (int r = 0; r < RANKS; r++) {
            const rank_outcome *o = &outcomes[r];
            if (r == s->victim) continue;
            const bool names = strstr(o->error, "rank ") || strstr(o->error, "worker ");
            if (o->status != KOLO_ERR_PEER || !names) {
                fail_msg("%s, %d servers, victim %d, rank %d: status %d, signal %d: %s", s->policy,
                         s->servers, s->victim, r, (int)o->status, o->signal, o->error);
            }
            named += strstr(o->error, name) || strstr(o->error, worker);
        }
        assert_true(named > 0);
    }
}

/* ---- survivors that go on ---- */

enum { GO_ON_STEPS = 60, EVALUATED_STEPS = 7 };

/* A rank's part of the memory that all ranks share, side by side. */
typedef struct shared {
    _Alignas(64) _Atomic int dies; /* of rank 0: the victim may die; of the victim: it does */
    kolo_train_result result;
} shared;

/* The workers from `victim` on that are lost, the policy, and how long after the first report. */
typedef struct departure {
    char policy[32];
    int servers, victim, victims;
    rank_transport transport;
    int64_t us;
    bool long_epochs; /* of more leases than a worker keeps times of, without lines of metrics */
    int64_t patience; /* steps change nothing, and the run ends early; 0: not */
} departure;

typedef struct scene {
    const departure *d;
    shared *own;
    int rank;
} scene;

static void sleep_us(int64_t us) { kolo_sleep_ns(1000 * us); }

static void *die_when_due(void *arg) {
    const scene *s = arg;
    while (!atomic_load(&s->own[-s->rank].dies)) sleep_us(1000);
    sleep_us(s->d->us);
    atomic_store(&s->own->dies, 1);
    raise(SIGKILL);
    return NULL;
}

static bool is_victim(const departure *d, int rank) {
    return rank >= d->victim && rank < d->victim + d->victims;
}

/* Rank 0 goes on once the victims die: its last step is not before. */
static void await_death(void *arg, const kolo_train_progress *progress) {
    const scene *s = arg;
    (void)progress;
    atomic_store(&s->own->dies, 1);
    for (int r = s->d->victim; is_victim(s->d, r); r++) {
        while (!atomic_load(&s->own[r].dies)) sleep_us(1000);
    }
}

static int64_t steps_of(const departure *d) { return d->long_epochs ? 200 : GO_ON_STEPS; }

static kolo_status departing_body(kolo_comm *comm, const void *arg, void *result) {
    static scene s;
    static kolo_train_memory memory[RANKS];
    pthread_t thread;
    s = (scene){.d = arg, .own = result, .rank = kolo_comm_rank(comm)};
    const kolo_train_opts opts = {
        .model = "mlp",
        .data = s.d->long_epochs ? "synthetic:N=1601,test=10,shape=1x8x8,seed=2"
                                 : "synthetic:N=61,test=10,shape=1x8x8,seed=2",
        .sync = KOLO_SYNC_PS,
        .servers = s.d->servers,
        .consistency = s.d->policy,
        .batch = 4,
        .lr = s.d->patience > 0 ? 1e-30 : 0.01,
        .epochs = 1000,
        .steps = steps_of(s.d),
        .eval_steps = s.d->long_epochs ? 0 : EVALUATED_STEPS,
        .patience = s.d->patience,
        .log_every = s.d->long_epochs ? 1000 : 0,
        .check_replicas = s.d->long_epochs ? 0 : 20,
        .ledger = strstr(s.d->policy, "lease") ? "ledger" : NULL,
        .memory_by_rank = memory,
    };
    if (is_victim(s.d, s.rank) && pthread_create(&thread, NULL, die_when_due, &s) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no thread");
    }
    return kolo_train(comm, &opts, await_death, &s, &s.own->result);
}

/* Each sample of an epoch is used once, also those that a victim was to use. */
static void assert_ledger(const departure *d) {
    bool exact;
    char *text;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    const char *whole =
        d->long_epochs ? "epoch 1: 1601 samples, each once" : "epoch 7: 61 samples, each once";
    if (!exact || !strstr(text, whole)) fail_msg("%s", text);
    kolo_ledger_text_free(text);
    assert_int_equal(system("rm ledger.*"), 0);
}

/* Fills the result of rank 0. */
static void run_departure(const departure *d, kolo_train_result *result) {
    static shared results[RANKS];
    rank_outcome outcomes[RANKS];
    rank_job job = {
        .n = RANKS,
        .transport = d->transport,
        .body = departing_body,
        .arg = d,
        .arg_bytes = sizeof *d,
        .results = results,
        .result_bytes = sizeof results[0],
        .outcomes = outcomes,
        .timeout_ms = 30000,
    };
    memset(results, 0, sizeof results);
    (void)run_rank_job(&job);
    *result = results[0].result;
    for (int r = 0; r < RANKS; r++) {
        if (is_victim(d, r)) {
            char lost[32];
            snprintf(lost, sizeof lost, "rank %d after ", r);
            assert_int_equal(outcomes[r].signal, SIGKILL);
            if (!strstr(result->lost, lost)) fail_msg("%s: %s", d->policy, result->lost);
        } else if (outcomes[r].status != KOLO_OK || outcomes[r].signal) {
            fail_msg("%s, rank %d: signal %d: %s", d->policy, r, outcomes[r].signal,
                     outcomes[r].error);
        }
    }
}

static void depart(const departure *d) {
    kolo_train_result own, *result = &own;
    run_departure(d, result);
    assert_int_equal(result->steps, steps_of(d));
    assert_true(result->memory.store > 0 && !result->memory_by_rank);
    for (int s = d->policy[4] - '0' + 1; d->policy[0] == 's' && s < 32; s++) {
        assert_int_equal(result->reads[s], 0);
    }
    if (strstr(d->policy, "lease")) assert_ledger(d);
    assert_true(result->evaluated && isfinite(result->test.value[KOLO_METRIC_LOSS]));
}

static void survivors_go_on(void **state) {
    static const departure departures[] = {
        {"asp", 1, 2, 1, RANKS_TCP, 0, false, 0},
        {"asp,lease=1", 1, 1, 2, RANKS_SHM, 0, true, 0},
        {"asp,lease=1", 2, 1, 1, RANKS_TCP, 0, false, 0},
        {"ssp:2", 2, 1, 1, RANKS_SHM, 0, false, 0},
        {"bsp:drop=1", 1, 1, 1, RANKS_SHM, 0, false, 0},
        {"ssp:2", 1, 1, 2, RANKS_SHM, 0, false, 0},
        {"ssp:1,lease=1", 2, 1, 1, RANKS_SHM, 0, false, 0},
        {"ssp:2,lease=1", 1, 1, 2, RANKS_TCP, 0, true, 0},
        {"auto", 2, 1, 1, RANKS_SHM, 0, false, 0},
        {"diloco:2", 1, 2, 1, RANKS_SHM, 0, false, 0},
        {"diloco:3,quorum=2", 1, 1, 2, RANKS_TCP, 0, false, 0},
        {"diloco:2,quorum=1,grace=3", 2, 1, 1, RANKS_SHM, 0, false, 0},
    };
    const int rounds = getenv("KOLO_SOAK") ? 50 : 1; /* 600 runs */
    for (int k = 0; k < rounds; k++) {
        for (size_t i = 0; i < KOLO_COUNT(departures); i++) {
            departure d = departures[i];
            d.us = k * 137 % 5000;
            depart(&d);
        }
    }
}

/* Rank 0 evaluates alone, and ends the others after the same step. Evaluations differ by rounding,
 * since other ranks make them. */
static void survivors_end_by_patience(void **state) {
    static const departure departures[] = {
        {"asp", 1, 1, 1, RANKS_SHM, 0, false, 3},
        {"ssp:2,lease=1", 1, 1, 2, RANKS_TCP, 0, false, 3},
        {"bsp:drop=1", 2, 1, 1, RANKS_SHM, 0, false, 3},
    };
    for (size_t i = 0; i < KOLO_COUNT(departures); i++) {
        const departure *d = &departures[i];
        kolo_train_result result;
        run_departure(d, &result);
        assert_true(result.stopped_early && result.steps < GO_ON_STEPS);
        assert_int_equal(result.steps - result.best_step, d->patience * EVALUATED_STEPS);
        if (strstr(d->policy, "lease")) assert_int_equal(system("rm ledger.*"), 0);
    }
}

/* Workers push new rows in each step, and a copy of the rows takes longer than a step. */
static kolo_status departing_rows_body(kolo_comm *comm, const void *arg, void *result) {
    static scene s;
    pthread_t thread;
    s = (scene){.d = arg, .own = result, .rank = kolo_comm_rank(comm)};
    const kolo_train_opts opts = {
        .model = "dlrm",
        .model_options =
            "tables=4,rows=3000,dim=8,dense=3,bottom1=5,bottom2=0,bottom3=0,top1=7,top2=6",
        .data = "synthetic-clicks:N=3000,test=10,seed=3",
        .sync = KOLO_SYNC_PS,
        .servers = s.d->servers,
        .consistency = s.d->policy,
        .table = "emb.weight",
        .batch = 4,
        .lr = 0.01,
        .steps = GO_ON_STEPS,
        .out_dir = "rows",
        .checkpoint_steps = 4,
    };
    if (is_victim(s.d, s.rank) && pthread_create(&thread, NULL, die_when_due, &s) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no thread");
    }
    return kolo_train(comm, &opts, await_death, &s, &s.own->result);
}

/* Nobody pushes while rows are copied, also once a worker is lost. */
static void survivors_save_their_rows(void **state) {
    static const departure d = {"asp", 1, 2, 1, RANKS_SHM, 0, false, 0};
    static shared results[RANKS];
    rank_outcome outcomes[RANKS];
    rank_job job = {
        .n = RANKS,
        .transport = d.transport,
        .body = departing_rows_body,
        .arg = &d,
        .arg_bytes = sizeof d,
        .results = results,
        .result_bytes = sizeof results[0],
        .outcomes = outcomes,
        .timeout_ms = 30000,
    };
    memset(results, 0, sizeof results);
    (void)run_rank_job(&job);
    for (int r = 0; r < RANKS; r++) {
        if (is_victim(&d, r)) continue;
        if (outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
    const kolo_train_result *result = &results[0].result;
    assert_non_null(strstr(result->lost, "rank 2 after "));
    assert_int_equal(result->steps, GO_ON_STEPS);
    assert_true(result->table.rows > 500);
    assert_int_equal(system("test -f rows/checkpoint-60.tables.safetensors && rm -r rows"), 0);
}

/* ---- runs that are preempted ---- */

enum { STEPS_AFTER = 25, MANY_STEPS = 5000000 };

/* The rank that is asked to end the run: workers first, then servers. */
typedef struct preemption {
    char policy[24];
    int servers, asked;
    rank_transport transport;
    int64_t steps; /* of a resumed run; 0: it is to be preempted */
} preemption;

static bool has_begun(void *arg) {
    const scene *s = arg;
    return atomic_load(&s->own[-s->rank].dies);
}

static void begin(void *arg, const kolo_train_progress *progress) {
    const scene *s = arg;
    (void)progress;
    atomic_store(&s->own->dies, 1);
}

static kolo_status preempted_body(kolo_comm *comm, const void *arg, void *result) {
    static scene s;
    const preemption *p = arg;
    const int rank = kolo_comm_rank(comm);
    s = (scene){.own = result, .rank = rank};
    const kolo_train_opts opts = {
        .model = "mlp",
        .data = "synthetic:N=61,test=10,shape=1x8x8,seed=2",
        .sync = KOLO_SYNC_PS,
        .servers = p->servers,
        .consistency = p->policy,
        .batch = 4,
        .lr = 0.01,
        .epochs = 1000000,
        .steps = p->steps ? p->steps : MANY_STEPS,
        .eval_steps = 7,
        .ledger = "ledger",
        .out_dir = "run",
        .resume = p->steps ? "run" : NULL,
        .preempted = rank == p->asked ? has_begun : NULL,
        .preempted_arg = &s,
    };
    return kolo_train(comm, &opts, p->steps ? NULL : begin, &s, &s.own->result);
}

static const kolo_train_result *run_preempted(const preemption *p) {
    static shared results[RANKS];
    memset(results, 0, sizeof results);
    const rank_job job = {
        .n = RANKS,
        .transport = p->transport,
        .body = preempted_body,
        .arg = p,
        .arg_bytes = sizeof *p,
        .results = results,
        .result_bytes = sizeof results[0],
        .timeout_ms = 30000,
    };
    ASSERT_OK(run_rank_job(&job));
    return &results[0].result;
}

/* Whichever rank is asked, all workers end after one step with a checkpoint, and the resumed run
 * uses exactly the samples that are left. */
static void a_preempted_run_is_resumed(void **state) {
    static const preemption preemptions[] = {
        {"asp", 1, 3, RANKS_TCP, 0},           {"ssp:2", 2, 3, RANKS_SHM, 0},
        {"ssp:1,lease=1", 1, 1, RANKS_SHM, 0}, {"bsp", 1, 3, RANKS_SHM, 0},
        {"asp,lease=1", 1, 1, RANKS_SHM, 0},   {"asp,lease=1", 2, 2, RANKS_TCP, 0},
        {"bsp:drop=1", 1, 2, RANKS_SHM, 0},    {"bsp", 0, 1, RANKS_SHM, 0},
        {"auto", 2, 1, RANKS_SHM, 0},
    };
    const size_t n = getenv("KOLO_SOAK") ? 20 * KOLO_COUNT(preemptions) : 4;
    for (size_t i = 0; i < n; i++) {
        preemption p = preemptions[i % KOLO_COUNT(preemptions)];
        bool exact;
        char *text;
        const kolo_train_result *result = run_preempted(&p);
        if (!result->preempted || result->steps < 1 || result->steps == MANY_STEPS) {
            fail_msg("%s, %d servers: %d after %" PRId64 " steps", p.policy, p.servers,
                     result->preempted, result->steps);
        }
        p.steps = result->steps + STEPS_AFTER;
        result = run_preempted(&p);
        assert_true(!result->preempted && result->steps == p.steps);
        ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
        if (!exact || !strstr(text, "epoch 1: 61 samples, each once")) {
            fail_msg("%s, %d servers: %s", p.policy, p.servers, text);
        }
        kolo_ledger_text_free(text);
        assert_int_equal(system("rm -r ledger.* run"), 0);
    }
}

/* Worker 1 asks after its last step, when others may be at an earlier one. */
static bool asks_always(void *arg) { return true; }

static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    const char *policy = arg;
    const kolo_train_opts opts = {
        .model = "mlp",
        .data = "synthetic:N=61,test=10,shape=1x8x8,seed=2",
        .sync = KOLO_SYNC_PS,
        .servers = 1,
        .consistency = policy,
        .batch = 4,
        .lr = 0.01,
        .epochs = 10,
        .steps = 1,
        .out_dir = "run",
        .preempted = kolo_comm_rank(comm) == 1 ? asks_always : NULL,
    };
    kolo_train_result unused;
    return kolo_train(comm, &opts, NULL, NULL, &unused);
}

static void a_signal_after_the_last_step_saves(void **state) {
    static const char policies[][8] = {"asp", "bsp"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        ASSERT_OK(run_ranks(RANKS, RANKS_THREAD, late_body, policies[i], sizeof policies[i]));
        assert_int_equal(system("test -e run/latest && rm -r run"), 0);
    }
}

/* ---- servers that die ---- */

/* The server that is killed so long after the first report; 0: none. */
typedef struct server_loss {
    char policy[24];
    int victim;
    rank_transport transport;
    int64_t us;
    bool rows; /* of tables, too */
} server_loss;

static const char rows_model[] =
    "tables=2,rows=50,dim=4,dense=3,bottom1=5,bottom2=0,bottom3=0,top1=7,top2=6";

static kolo_status losing_body(kolo_comm *comm, const void *arg, void *result) {
    static scene s;
    static departure d;
    const server_loss *l = arg;
    pthread_t thread;
    d = (departure){.victim = l->victim, .victims = l->victim > 0, .us = l->us};
    s = (scene){.d = &d, .own = result, .rank = kolo_comm_rank(comm)};
    const kolo_train_opts opts = {
        .model = l->rows ? "dlrm" : "mlp",
        .model_options = l->rows ? rows_model : NULL,
        .data = l->rows ? "synthetic-clicks:N=61,test=10,seed=3"
                        : "synthetic:N=61,test=10,shape=1x8x8,seed=2",
        .table = l->rows ? "emb.weight" : NULL,
        .optimizer.kind = KOLO_OPTIMIZER_ADAM,
        .sync = KOLO_SYNC_PS,
        .servers = 2,
        .replicas = 1,
        .consistency = l->policy,
        .batch = 4,
        .lr = 0.01,
        .epochs = 1000,
        .steps = GO_ON_STEPS,
        .eval_steps = 7,
        .check_replicas = 20,
        .ledger = strstr(l->policy, "lease") ? "ledger" : NULL,
    };
    if (is_victim(&d, s.rank) && pthread_create(&thread, NULL, die_when_due, &s) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no thread");
    }
    return kolo_train(comm, &opts, await_death, &s, &s.own->result);
}

static kolo_train_result lose_server(const server_loss *l) {
    static shared results[RANKS];
    rank_outcome outcomes[RANKS];
    char lost[32];
    const rank_job job = {
        .n = RANKS,
        .transport = l->transport,
        .body = losing_body,
        .arg = l,
        .arg_bytes = sizeof *l,
        .results = results,
        .result_bytes = sizeof results[0],
        .outcomes = outcomes,
        .timeout_ms = 30000,
    };
    const kolo_train_result *result = &results[0].result;
    memset(results, 0, sizeof results);
    (void)run_rank_job(&job);
    snprintf(lost, sizeof lost, l->victim > 0 ? "server rank %d" : "", l->victim);
    for (int r = 0; r < RANKS; r++) {
        if (r > 0 && r == l->victim) {
            assert_int_equal(outcomes[r].signal, SIGKILL);
        } else if (outcomes[r].status != KOLO_OK || outcomes[r].signal) {
            fail_msg("%s, rank %d: signal %d: %s", l->policy, r, outcomes[r].signal,
                     outcomes[r].error);
        }
    }
    assert_string_equal(result->lost, lost);
    assert_int_equal(result->steps, GO_ON_STEPS);
    assert_true(result->evaluated && isfinite(result->test.value[KOLO_METRIC_LOSS]));
    return *result;
}

/* The run continues with the replica of what the server had: with bsp it has the bits of one that
 * has lost none, and with leases each sample of an epoch is used once. */
static void a_run_outlives_its_servers(void **state) {
    static const server_loss losses[] = {
        {"bsp", 2, RANKS_SHM, 0, false},           {"asp,lease=1", 2, RANKS_TCP, 0, false},
        {"ssp:2", 3, RANKS_SHM, 0, false},         {"bsp:drop=1", 3, RANKS_SHM, 0, false},
        {"asp,dc=0.1", 2, RANKS_SHM, 0, false},    {"bsp", 3, RANKS_TCP, 0, false},
        {"ssp:1,lease=1", 3, RANKS_SHM, 0, false}, {"asp,lease=1", 3, RANKS_SHM, 0, false},
        {"auto", 2, RANKS_SHM, 0, false},
    };
    const int rounds = getenv("KOLO_SOAK") ? 25 : 1; /* 225 deaths */
    const kolo_train_result whole = lose_server(&(server_loss){"bsp", 0, RANKS_SHM, 0, false});
    for (int k = 0; k < rounds; k++) {
        for (size_t i = 0; i < (rounds > 1 ? KOLO_COUNT(losses) : 4); i++) {
            server_loss l = losses[i];
            l.us = k * 211 % 5000;
            const kolo_train_result result = lose_server(&l);
            if (strcmp(l.policy, "bsp") == 0) {
                assert_int_equal(result.parameter_hash, whole.parameter_hash);
            }
            if (!strstr(l.policy, "lease")) continue;
            bool exact;
            char *text;
            ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
            if (!exact || !strstr(text, "epoch 7: 61 samples, each once")) fail_msg("%s", text);
            kolo_ledger_text_free(text);
            assert_int_equal(system("rm ledger.*"), 0);
        }
    }
}

/* Rows of tables continue from their replicas, with the bits of a run that has lost no server. */
static void rows_outlive_a_server(void **state) {
    const kolo_train_result whole =
        lose_server(&(server_loss){.policy = "bsp", .transport = RANKS_SHM, .rows = true});
    for (int server = 2; server < RANKS; server++) {
        const server_loss l = {.policy = "bsp",
                               .victim = server,
                               .transport = server == 2 ? RANKS_SHM : RANKS_TCP,
                               .us = server * 700,
                               .rows = true};
        const kolo_train_result result = lose_server(&l);
        assert_int_equal(result.parameter_hash, whole.parameter_hash);
        assert_true(result.test.value[KOLO_METRIC_LOSS] == whole.test.value[KOLO_METRIC_LOSS]);
        assert_int_equal(result.table.rows, whole.table.rows);
        assert_true(whole.table.rows > 0);
    }
    const server_loss stale = {
        .policy = "asp", .victim = 3, .transport = RANKS_SHM, .us = 1500, .rows = true};
    assert_true(lose_server(&stale).table.rows > 0);
}

TEST_MAIN(test_servers_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_go_on),
        cmocka_unit_test(survivors_end_by_patience),
        cmocka_unit_test(survivors_save_their_rows),
        cmocka_unit_test(survivors_end_and_name_it),
        cmocka_unit_test(a_preempted_run_is_resumed),
        cmocka_unit_test(a_signal_after_the_last_step_saves),
        cmocka_unit_test(a_run_outlives_its_servers),
        cmocka_unit_test(rows_outlive_a_server),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
