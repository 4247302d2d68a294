/* Workers that join the parameters of a group later: in a thread of a rank, which has connections
 * of its own. Each lease is applied once, whenever they join and leave. */
#include "base/clock.h"
#include "base/status.h"
#include "kolo/comm.h"
#include "kolo/parameters.h"
#include "support/ranks.h"
#include "support/support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 300, PHASES = 3, PHASE = COUNT / PHASES, JOINS = 2, WORKERS = 2 };

/* Who joins: after how many steps of rank 0, and after how many of its own it abandons; 0: never.
 */
typedef struct setting {
    int servers, staleness, after, abandons;
    rank_transport transport;
    int replicas;
    int dies;   /* the first server dies after so many pushes of those who have joined; 0: never */
    bool early; /* of any rank: it is dead when they join */
} setting;

/* Pushes until a server dies. */
typedef struct life {
    int left;
    bool early;
} life;

typedef struct joining {
    const setting *s;
    kolo_comm *comm;
    const char *address;
    pthread_t thread;
    bool started;                 /* it is not if rank 0 has hardly got leases */
    _Atomic bool entered, worked; /* it has made a step; or failed */
    int steps;                    /* that it has made */
    kolo_status status;
    char error[256];
} joining;

/* `arg`: of an owner that dies; else NULL. */
static void add_gradient(void *arg, const kolo_parameters_update *u) {
    life *l = arg;
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
    if (l && (l->early || u->worker >= WORKERS) && --l->left == 0) raise(SIGKILL);
}

static kolo_parameters_opts options(const setting *s) {
    return (kolo_parameters_opts){.servers = s->servers,
                                  .staleness = s->staleness,
                                  .needs_all = true,
                                  .spared = 1,
                                  .leases = true,
                                  .joins = JOINS,
                                  .replicas = s->replicas,
                                  .update = add_gradient};
}

static void *join_in_thread(void *arg);

/* Lets a process join, while this one has a lease: so the others do not wait for each other. */
static kolo_status let_join(joining *j) {
    if (pthread_create(&j->thread, NULL, join_in_thread, j) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no thread");
    }
    j->started = true;
    while (!atomic_load(&j->entered)) kolo_sleep_ns(300000);
    return KOLO_OK;
}

/* Before the last phase both workers wait until the process that joins has made a step: so there
 * are leases left for it. Only one does if a rank dies, which breaks the communicator. */
static kolo_status await_step(const joining *j, int rank) {
    int unused = 0;
    if (j->s->dies > 0 && rank > 0) return KOLO_OK;
    if (rank > 0) return kolo_recv(j->comm, &unused, 1, KOLO_DTYPE_I32, 0, 0);
    while (j->started && !atomic_load(&j->worked)) kolo_sleep_ns(300000);
    if (j->s->dies > 0) return KOLO_OK;
    return kolo_send(j->comm, &unused, 1, KOLO_DTYPE_I32, 1, 0);
}

/* A step on a lease before `end`; none are left: *made is false. `j`: who joins in it; or NULL. */
static kolo_status step(kolo_parameters *p, uint64_t end, joining *j, bool *made) {
    float gradient[COUNT] = {0}, values[COUNT];
    uint64_t number;
    KOLO_TRY(kolo_parameters_ask(p, end));
    KOLO_TRY(kolo_parameters_lease(p, made, &number));
    if (!*made) return KOLO_OK;
    if (kolo_parameters_reads_again(p)) KOLO_TRY(kolo_parameters_pull(p, values));
    kolo_sleep_ns(300000);
    if (j) j->address = kolo_parameters_address(p);
    if (j) KOLO_TRY(let_join(j));
    gradient[number] = 1;
    KOLO_TRY(kolo_parameters_push(p, gradient));
    KOLO_TRY(kolo_parameters_pull(p, values));
    if (values[number] == 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "lease %d is applied %g times", (int)number,
                     (double)values[number]);
}

static kolo_status meet(kolo_parameters *p) {
    float values[COUNT];
    KOLO_TRY(kolo_parameters_barrier(p, NULL, NULL, NULL));
    KOLO_TRY(kolo_parameters_pull(p, values));
    return kolo_parameters_barrier(p, NULL, NULL, NULL);
}

/* It has no owner here. */
static kolo_status check_refused(kolo_parameters *p) {
    kolo_parameters_stats stats;
    const bool refused = kolo_parameters_stats_get(p, &stats) == KOLO_ERR_ARG &&
                         kolo_parameters_wait(p) == KOLO_ERR_ARG;
    return refused ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "it is an owner");
}

static kolo_status join(joining *j) {
    kolo_parameters *p;
    uint64_t end;
    const kolo_parameters_opts opts = options(j->s);
    KOLO_TRY(kolo_parameters_join(j->address, getenv("KOLO_SECRET_FILE"), COUNT, &opts, &p));
    kolo_status status = check_refused(p);
    if (status == KOLO_OK) status = kolo_parameters_enter(p, &end);
    atomic_store(&j->entered, true);
    for (uint64_t at = end; status == KOLO_OK && at <= COUNT; at += PHASE) {
        for (bool made = true; made && status == KOLO_OK;) {
            status = step(p, at, NULL, &made);
            j->steps += made;
            if (j->steps > 0) atomic_store(&j->worked, true);
            if (j->steps != j->s->abandons || j->steps == 0) continue;
            kolo_parameters_abandon(p);
            kolo_parameters_destroy(p);
            return KOLO_OK;
        }
        if (status == KOLO_OK) status = meet(p);
    }
    if (status != KOLO_OK) kolo_parameters_abandon(p);
    kolo_parameters_destroy(p);
    return status;
}

static void *join_in_thread(void *arg) {
    joining *j = arg;
    j->status = join(j);
    atomic_store(&j->entered, true);
    atomic_store(&j->worked, true);
    if (j->status != KOLO_OK) snprintf(j->error, sizeof j->error, "%s", kolo_last_error());
    return NULL;
}

static kolo_status work(kolo_parameters *p, int rank, joining *j) {
    int steps = 0;
    for (uint64_t end = PHASE; end <= COUNT; end += PHASE) {
        if (end == COUNT) KOLO_TRY(await_step(j, rank));
        for (bool made = true; made;) {
            const bool joins = rank == 0 && steps == j->s->after && !j->started;
            KOLO_TRY(step(p, end, joins ? j : NULL, &made));
            steps += made;
        }
        KOLO_TRY(meet(p));
    }
    return KOLO_OK;
}

static kolo_status check(kolo_parameters *p) {
    float values[COUNT];
    KOLO_TRY(kolo_parameters_pull(p, values));
    for (int i = 0; i < COUNT; i++) {
        if (values[i] == 1) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "lease %d was applied %g times", i, (double)values[i]);
    }
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const int rank = kolo_comm_rank(comm);
    kolo_parameters_opts opts = options(s);
    const float initial[COUNT] = {0};
    life left = {s->dies, s->early};
    kolo_parameters *p;
    (void)result;
    if (s->dies > 0 && rank == WORKERS) opts.arg = &left;
    KOLO_TRY(kolo_parameters_create(comm, initial, COUNT, &opts, &p));
    joining j = {.s = s, .comm = comm};
    if (rank < WORKERS) {
        kolo_status status = work(p, rank, &j);
        if (status == KOLO_OK && j.started) pthread_join(j.thread, NULL);
        if (status == KOLO_OK) status = check(p);
        if (status == KOLO_OK && j.started && j.status != KOLO_OK) {
            status = KOLO_FAIL(j.status, "joining: %s", j.error);
        }
        if (status == KOLO_OK && j.started && j.steps == 0) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "the one that joined made no step");
        }
        KOLO_TRY(status);
    }
    kolo_parameters_destroy(p);
    return KOLO_OK;
}

static void workers_join_later(void **state) {
    static const setting settings[] = {
        {1, KOLO_STALENESS_ANY, 5, 0, RANKS_SHM, .replicas = 0},
        {2, KOLO_STALENESS_ANY, 9, 0, RANKS_TCP, .replicas = 0},
        {1, 2, 3, 0, RANKS_SHM, .replicas = 0},
        {2, 1, 11, 0, RANKS_SHM, .replicas = 0},
        {2, KOLO_STALENESS_ANY, 5, 7, RANKS_SHM, .replicas = 0},
        {1, 1, 5, 4, RANKS_TCP, .replicas = 0},
    };
    (void)state;
    const int rounds = getenv("KOLO_SOAK") ? 50 : 1;
    for (int k = 0; k < rounds; k++) {
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
            setting s = settings[i];
            if (k > 0) s.after = 1 + (k * 7 + (int)i) % 30;
            if (k > 0 && s.abandons > 0) s.abandons = 3 + k % 20;
            ASSERT_OK(run_ranks(WORKERS + s.servers, s.transport, body, &s, sizeof s));
        }
    }
}

/* A server that dies after a worker has joined: its replica has counted that worker, too. And
 * before: the worker joins at the replica. */
static void those_who_joined_outlive_a_server(void **state) {
    static const setting settings[] = {
        {2, KOLO_STALENESS_ANY, 5, 0, RANKS_SHM, .replicas = 1},
        {2, KOLO_STALENESS_ANY, 5, 0, RANKS_SHM, .replicas = 1, .dies = 1},
        {2, 2, 7, 0, RANKS_TCP, .replicas = 1, .dies = 4},
        {3, KOLO_STALENESS_ANY, 3, 9, RANKS_SHM, .replicas = 1, .dies = 3},
        {2, KOLO_STALENESS_ANY, 9, 0, RANKS_SHM, .replicas = 1, .dies = 3, .early = true},
        {3, 2, 9, 4, RANKS_TCP, .replicas = 1, .dies = 5, .early = true},
    };
    (void)state;
    const int rounds = getenv("KOLO_SOAK") ? 50 : 1;
    for (int k = 0; k < rounds; k++) {
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
            setting s = settings[i];
            rank_outcome outcomes[WORKERS + 3];
            if (k > 0 && s.dies > 0) s.dies = 1 + (k * 5 + (int)i) % 8; /* of `after` 9 */
            const rank_job job = {.n = WORKERS + s.servers,
                                  .transport = s.transport,
                                  .body = body,
                                  .arg = &s,
                                  .arg_bytes = sizeof s,
                                  .outcomes = outcomes};
            (void)run_rank_job(&job);
            for (int r = 0; r < job.n; r++) {
                const bool killed = s.dies > 0 && r == WORKERS;
                if (outcomes[r].signal != (killed ? SIGKILL : 0) ||
                    (!killed && outcomes[r].status != KOLO_OK)) {
                    fail_msg("setting %d, rank %d: signal %d, %s", (int)i, r, outcomes[r].signal,
                             outcomes[r].error);
                }
            }
        }
    }
}

/* Texts that are no address. */
static void other_addresses_are_refused(void **state) {
    static const char *const texts[] = {
        "",
        "kolo-service",
        "kolo-service 3 00\n",
        "kolo-service 0 00\n1 2 3 4\n",
        "kolo-service 3 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f 0\n",
        "kolo-service 3 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f 0\n9 1 a "
        "b\n",
        "kolo-service 3 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f 0\n2 1 "
        "a\n",
        "kolo-service 3 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f 0\n2 1 a "
        "b\n2 1 a b\n",
        "kolo-service 3 000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f 0\n2 1 a "
        "b\n1 1 a b\n",
        "kolo-service 3 zz0102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f 0\n2 1 a "
        "b\n",
    };
    const setting s = {.servers = 1, .staleness = KOLO_STALENESS_ANY};
    const kolo_parameters_opts opts = options(&s);
    kolo_parameters *p;
    (void)state;
    assert_int_equal(system("(umask 077; echo 0123456789abcdef0123456789abcdef >secret)"), 0);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(kolo_parameters_join(texts[i], "secret", COUNT, &opts, &p), KOLO_ERR_ARG);
    }
    assert_int_equal(system("rm secret"), 0);
}

TEST_MAIN(test_comm_join_parameters) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_join_later),
        cmocka_unit_test(those_who_joined_outlive_a_server),
        cmocka_unit_test(other_addresses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
