/* How long workers wait for each other: as long as any of them makes progress. One that computes
 * does, whatever it computes; one that is stopped does not, nor do those that wait. How often a
 * long wait wakes up. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/status.h"
#include "comm/sync/parameters_group.h"
#include "kolo/table.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Progress reports come four times as often as the timeout: longer under sanitizers, which slow
 * down the thread that takes them. */
enum { TIMEOUT_MS = TEST_FEWER(1500, 600), LATE_MS = 5 * TIMEOUT_MS / 2, WORKERS = 2, SERVERS = 6 };

static void add(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

static void add_rows(void *arg, const kolo_table_update *u) {
    for (size_t i = 0; i < u->n; i++) u->values[(size_t)u->slots[i] * u->width] += u->gradients[i];
}

/* Another process lets this one go on. */
static void stop_for_ms(int64_t ms) {
    const pid_t self = getpid();
    if (fork() == 0) {
        kolo_sleep_ns(kolo_ms_to_ns(ms));
        (void)kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* Worker 1 makes its step in more than the timeout, while worker 0 waits for it. */
typedef enum what { PULLS, ROWS, GROUP, KINDS } what;
typedef struct scheme {
    bool stops;
    what what;
    int servers, replicas;
} scheme;

/* Before it is stopped it has reported that it makes progress. */
static void be_late(const scheme *s) {
    kolo_sleep_ns(kolo_ms_to_ns(s->stops ? TIMEOUT_MS / 2 : LATE_MS));
    if (s->stops) stop_for_ms(LATE_MS);
}

/* All servers are waited for at the same time. */
static kolo_status check_wait(const scheme *s, int64_t started_ns, kolo_status status) {
    const int64_t most_ns = kolo_ms_to_ns(TIMEOUT_MS) * SERVERS / 2;
    if (s->servers < SERVERS || kolo_now_ns() - started_ns < most_ns) return status;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "one wait after the other");
}

static kolo_status check(float value) {
    if (value == WORKERS) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a value of %g", (double)value);
}

static kolo_status pull_body(kolo_comm *comm, const scheme *s) {
    float values[SERVERS] = {0}, gradient[SERVERS] = {1};
    kolo_parameters *p;
    const kolo_parameters_opts opts = {
        .servers = s->servers, .replicas = s->replicas, .update = add, .timeout_ms = TIMEOUT_MS};
    KOLO_TRY(kolo_parameters_create(comm, values, SERVERS, &opts, &p));
    kolo_status status = KOLO_OK;
    if (kolo_parameters_works(p)) {
        if (kolo_comm_rank(comm) == 1) be_late(s);
        const int64_t started_ns = kolo_now_ns();
        status = kolo_parameters_push(p, gradient);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, values);
        if (status == KOLO_OK) status = check(values[0]);
        status = check_wait(s, started_ns, status);
    }
    if (status != KOLO_OK) kolo_parameters_abandon(p);
    kolo_parameters_destroy(p);
    return status;
}

static kolo_status rows_body(kolo_comm *comm, const scheme *s) {
    const uint64_t id = 7;
    float value = 0, gradient = 1;
    kolo_table *t;
    const kolo_table_opts opts = {.width = 1,
                                  .bytes = 1 << 16,
                                  .batch = 4,
                                  .servers = s->servers,
                                  .update = add_rows,
                                  .timeout_ms = TIMEOUT_MS};
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    kolo_status status = KOLO_OK;
    if (kolo_table_works(t)) {
        if (kolo_comm_rank(comm) == 1) be_late(s);
        const int64_t started_ns = kolo_now_ns();
        status = kolo_table_push(t, &id, 1, &gradient);
        if (status == KOLO_OK) status = kolo_table_pull(t, &id, 1, &value);
        if (status == KOLO_OK) status = check(value);
        status = check_wait(s, started_ns, status);
    }
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

/* The workers add up in a group before they push. */
static kolo_status sum_in_group(kolo_comm *comm, kolo_comm *group, kolo_parameters *p,
                                const scheme *s) {
    float value = 1;
    const kolo_part part = {.data = &value, .count = 1};
    kolo_request *sum;
    kolo_parameters_extend_waits(p, group);
    KOLO_TRY(kolo_allreduce_create(group, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, KOLO_ALGORITHM_AUTO,
                                   "sum", &sum));
    if (kolo_comm_rank(comm) == 1) be_late(s);
    kolo_status status = kolo_request_start(sum);
    if (status == KOLO_OK) status = kolo_request_wait(sum, TIMEOUT_MS);
    kolo_request_destroy(sum);
    return status == KOLO_OK ? check(value) : status;
}

static kolo_status group_body(kolo_comm *comm, const scheme *s) {
    float value = 0;
    kolo_parameters *p;
    kolo_comm *group;
    const kolo_parameters_opts opts = {
        .servers = s->servers, .update = add, .timeout_ms = TIMEOUT_MS};
    KOLO_TRY(kolo_parameters_create(comm, &value, 1, &opts, &p));
    KOLO_TRY(kolo_comm_split(comm, kolo_parameters_works(p), kolo_comm_rank(comm), &group));
    kolo_status status = KOLO_OK;
    if (kolo_parameters_works(p)) status = sum_in_group(comm, group, p, s);
    if (status != KOLO_OK) kolo_parameters_abandon(p);
    kolo_parameters_destroy(p);
    kolo_comm_destroy(group);
    return status;
}

static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    const scheme *s = arg;
    return s->what == PULLS  ? pull_body(comm, s)
           : s->what == ROWS ? rows_body(comm, s)
                             : group_body(comm, s);
}

static void waits_go_on_while_a_worker_computes(void **state) {
    static const scheme schemes[] = {{.servers = 2, .replicas = 1},
                                     {.what = ROWS, .servers = 1},
                                     {.what = GROUP, .servers = 1},
                                     {.servers = 0}};
    for (int i = 0; i < TEST_FEWER(3, 4); i++) {
        const int ranks = WORKERS + schemes[i].servers;
        ASSERT_OK(run_ranks(ranks, RANKS_SHM, late_body, &schemes[i], sizeof schemes[i]));
    }
}

static void waits_end_if_a_worker_is_stopped(void **state) {
    static const char *const errors[KINDS] = {"has not replied to a pull of parameters",
                                              "has not replied to a pull of rows", "waited"};
    char limit[32];
    snprintf(limit, sizeof limit, "within %.1f s", 1e-3 * TIMEOUT_MS);
    for (what w = PULLS; w < KINDS; w++) {
        const scheme stopped = {.stops = true, .what = w, .servers = w == GROUP ? 1 : SERVERS};
        rank_outcome outcomes[WORKERS + SERVERS];
        const rank_job job = {.n = WORKERS + stopped.servers,
                              .transport = RANKS_SHM,
                              .body = late_body,
                              .arg = &stopped,
                              .arg_bytes = sizeof stopped,
                              .outcomes = outcomes};
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        assert_int_equal(outcomes[0].status, KOLO_ERR_TIMEOUT);
        assert_non_null(strstr(outcomes[0].error, errors[w]));
        if (w == GROUP) continue;
        assert_non_null(strstr(outcomes[0].error, limit));
        assert_non_null(strstr(outcomes[0].error, ", and rank 1 has sent it nothing for "));
    }
}

/* Worker 0 waits for rows, which need a push of worker 1; worker 1 for parameters, which need one
 * of worker 0. */
static kolo_status crosswise_body(kolo_comm *comm, const void *arg, void *result) {
    const uint64_t id = 7;
    float value = 0, gradient = 1;
    kolo_parameters *p;
    kolo_table *t;
    const kolo_parameters_opts dense = {.servers = 1, .update = add, .timeout_ms = TIMEOUT_MS};
    const kolo_table_opts sparse = {.width = 1,
                                    .bytes = 1 << 16,
                                    .batch = 4,
                                    .servers = 1,
                                    .update = add_rows,
                                    .timeout_ms = TIMEOUT_MS};
    KOLO_TRY(kolo_parameters_create(comm, &value, 1, &dense, &p));
    KOLO_TRY(kolo_table_create(comm, &sparse, &t));
    kolo_status status = KOLO_OK;
    if (kolo_comm_rank(comm) == 0) {
        status = kolo_table_push(t, &id, 1, &gradient);
        if (status == KOLO_OK) status = kolo_table_pull(t, &id, 1, &value);
    } else if (kolo_comm_rank(comm) == 1) {
        status = kolo_parameters_push(p, &gradient);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, &value);
    }
    if (status != KOLO_OK) kolo_table_abandon(t);
    if (status != KOLO_OK) kolo_parameters_abandon(p);
    kolo_table_destroy(t);
    kolo_parameters_destroy(p);
    return status;
}

static void waits_end_if_workers_wait_for_each_other(void **state) {
    rank_outcome outcomes[WORKERS + 1];
    const rank_job job = {
        .n = WORKERS + 1, .transport = RANKS_SHM, .body = crosswise_body, .outcomes = outcomes};
    assert_int_not_equal(run_rank_job(&job), KOLO_OK);
    int timeouts = 0; /* the other one may see that this worker has left */
    for (int r = 0; r < WORKERS; r++) timeouts += outcomes[r].status == KOLO_ERR_TIMEOUT;
    assert_true(timeouts > 0);
}

/* ---- sleeping ---- */

/* How often this thread has slept. */
static long count_sleeps(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* Rank 1 comes late. Rank 0 sleeps, each time for a 128th of the time waited, up to 1 ms: about
 * 128 ln(64) times until it is 1 ms, then once each ms, however busy the processors are. */
static kolo_status sleep_body(kolo_comm *comm, const void *arg, void *result) {
    enum { LATE = 400, GROWING = 128 * 5 };
    KOLO_TRY(kolo_barrier(comm));
    if (kolo_comm_rank(comm) == 1) kolo_sleep_ns(kolo_ms_to_ns(LATE));
    const long before = count_sleeps();
    const int64_t started_ns = kolo_now_ns();
    KOLO_TRY(kolo_barrier(comm));
    const long slept = count_sleeps() - before;
    const long most = GROWING + (long)((kolo_now_ns() - started_ns) / 1000000);
    if (kolo_comm_rank(comm) == 1 || slept <= most) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "slept %ld times, not at most %ld", slept, most);
}

static void a_long_wait_seldom_wakes_up(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_SHM, sleep_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_HOSTS, sleep_body, NULL, 0));
}

TEST_MAIN(test_comm_waits) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_go_on_while_a_worker_computes),
        cmocka_unit_test(waits_end_if_a_worker_is_stopped),
        cmocka_unit_test(waits_end_if_workers_wait_for_each_other),
        cmocka_unit_test(a_long_wait_seldom_wakes_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
