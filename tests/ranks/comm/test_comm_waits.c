/* How long workers wait for each other: as long as any of them makes progress, which signs of life
 * state where a worker makes no requests. */
#include "base/clock.h"
#include "base/status.h"
#include "kolo/parameters.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Signs of life come four times as often as the timeout: longer under sanitizers, which slow down
 * the thread that takes them. */
enum { TIMEOUT_MS = TEST_FEWER(1500, 600), LATE_MS = 5 * TIMEOUT_MS / 2, WORKERS = 2 };

static void add(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

static void work(kolo_parameters *p, bool signs) {
    const int64_t end_ns = kolo_now_ns() + kolo_ms_to_ns(LATE_MS);
    while (kolo_now_ns() < end_ns) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (signs) kolo_parameters_alive(p);
    }
}

typedef struct scheme {
    bool signs;
    int servers, replicas;
} scheme;

/* Worker 1 makes its step in more than the timeout, while worker 0 waits for it. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    const scheme *s = arg;
    const int rank = kolo_comm_rank(comm);
    float value = 0, gradient = 1;
    kolo_parameters *p;
    const kolo_parameters_opts opts = {
        .servers = s->servers, .replicas = s->replicas, .update = add, .timeout_ms = TIMEOUT_MS};
    KOLO_TRY(kolo_parameters_create(comm, &value, 1, &opts, &p));
    kolo_status status = KOLO_OK;
    if (kolo_parameters_works(p)) {
        if (rank == 1) work(p, s->signs);
        status = kolo_parameters_push(p, &gradient);
        if (status == KOLO_OK) status = kolo_parameters_pull(p, &value);
        if (status == KOLO_OK && value != WORKERS) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "a value of %g", (double)value);
        }
    }
    if (status != KOLO_OK) kolo_parameters_abandon(p);
    kolo_parameters_destroy(p);
    return status;
}

static void waits_go_on_while_a_worker_lives(void **state) {
    static const scheme schemes[] = {{true, 2, 1}, {true, 1, 0}, {true, 0, 0}};
    for (int i = 0; i < TEST_FEWER(1, 3); i++) {
        const int ranks = WORKERS + schemes[i].servers;
        ASSERT_OK(run_ranks(ranks, RANKS_SHM, late_body, &schemes[i], sizeof schemes[i]));
    }
}

static void waits_end_if_nobody_makes_progress(void **state) {
    static const scheme silent = {false, 1, 0};
    rank_outcome outcomes[WORKERS + 1];
    char limit[32];
    const rank_job job = {.n = WORKERS + 1,
                          .transport = RANKS_SHM,
                          .body = late_body,
                          .arg = &silent,
                          .arg_bytes = sizeof silent,
                          .outcomes = outcomes};
    snprintf(limit, sizeof limit, "within %.1f s", 1e-3 * TIMEOUT_MS);
    assert_int_not_equal(run_rank_job(&job), KOLO_OK);
    assert_int_equal(outcomes[0].status, KOLO_ERR_TIMEOUT);
    assert_non_null(strstr(outcomes[0].error, "has not replied to a pull of parameters"));
    assert_non_null(strstr(outcomes[0].error, limit));
}

TEST_MAIN(test_comm_waits) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_go_on_while_a_worker_lives),
        cmocka_unit_test(waits_end_if_nobody_makes_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
