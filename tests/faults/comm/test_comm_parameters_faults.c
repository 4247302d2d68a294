/* Parameters on servers whose workers or owners die. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "kolo/parameters.h"
#include "support/support.h"
#include "support/victim.h"

#include <signal.h>
#include <string.h>

enum { VICTIM = 1, OWNER = 3, COUNT = 500, STEPS = 40, DEATH = 10 };

/* Adds one per gradient. */
static void update(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

typedef struct scene {
    int staleness;
    int victim;
} scene;

/* Workers add ones. The victim dies, in the middle of a step if it is a worker. */
static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const scene *s = arg;
    static float values[COUNT], gradient[COUNT];
    kolo_parameters *p;
    int rank = kolo_comm_rank(comm);
    kolo_parameters_opts opts = {
        .servers = 1, .staleness = s->staleness, .update = update, .timeout_ms = 20000};
    KOLO_TRY(kolo_parameters_create(comm, values, COUNT, &opts, &p));
    victim_wait(result, rank, rank == s->victim);
    if (rank == OWNER && s->victim == OWNER) {
        kolo_sleep_ns(100000000);
        raise(SIGKILL);
    }
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    kolo_status status = KOLO_OK;
    int steps = s->victim == OWNER ? 1000000 : STEPS;
    for (int step = 0; kolo_parameters_works(p) && step < steps && status == KOLO_OK; step++) {
        status = kolo_parameters_pull(p, values);
        if (rank == s->victim && step == DEATH) raise(SIGKILL);
        if (status == KOLO_OK) status = kolo_parameters_push(p, gradient);
    }
    if (s->victim == OWNER) {
        bool named = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "server rank 3 is gone");
        status = named ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%s", kolo_last_error());
    } else if (status == KOLO_OK && kolo_parameters_works(p)) {
        status = kolo_parameters_pull(p, values);
        /* All pushes of this worker, and the victim's; the other one may be behind. */
        float least = STEPS + DEATH, most = 2 * STEPS + DEATH;
        if (status == KOLO_OK && (values[0] < least || values[0] > most)) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "%g", (double)values[0]);
        }
    }
    kolo_parameters_destroy(p); /* the owner waits for the end of all workers */
    return status;
}

static void check(const scene *s) { victim_check(body, s, sizeof *s, s->victim); }

static void the_others_go_on_without_a_killed_worker(void **state) {
    check(&(scene){.staleness = 0, .victim = VICTIM});
    check(&(scene){.staleness = 2, .victim = VICTIM});
}

static void a_killed_owner_is_named(void **state) { check(&(scene){.victim = OWNER}); }

/* ---- errors ---- */

typedef struct failure {
    int staleness, servers, replicas;
    rank_transport transport;
    size_t count;
} failure;

enum { MANY = 2 << 20 };

/* Owners that are threads of the process may still read what a worker pushed before its error. */
static float memory[VICTIM_RANKS][2][MANY];

/* A worker ends after an error, behind a push, while the others wait for it, or make steps without
 * it. */
static kolo_status failing_body(kolo_comm *comm, const void *arg, void *result) {
    enum { FAILS_AT = 3, MOST = 1000000 };
    const failure *f = arg;
    const int rank = kolo_comm_rank(comm);
    float *values = memory[rank][0], *gradient = memory[rank][1];
    kolo_parameters *p;
    const kolo_parameters_opts opts = {.servers = f->servers,
                                       .staleness = f->staleness,
                                       .replicas = f->replicas,
                                       .needs_all = true,
                                       .update = update};
    memset(values, 0, f->count * sizeof *values);
    memset(gradient, 0, f->count * sizeof *gradient);
    KOLO_TRY(kolo_parameters_create(comm, values, f->count, &opts, &p));
    kolo_status status = kolo_parameters_works(p) ? KOLO_OK : kolo_parameters_wait(p);
    for (int i = 0; kolo_parameters_works(p) && status == KOLO_OK && i < MOST; i++) {
        status = kolo_parameters_pull(p, values);
        if (status == KOLO_OK) status = kolo_parameters_push(p, gradient);
        if (rank != VICTIM || i < FAILS_AT) continue;
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "sample 7 is damaged");
    }
    if (status != KOLO_OK) kolo_parameters_abandon(p);
    kolo_parameters_destroy(p);
    return status;
}

/* All ranks state what went wrong, and where. */
static void an_error_of_a_worker_is_stated_by_all(void **state) {
    static const failure failures[] = {
        {0, 1, 0, RANKS_THREAD, COUNT}, {KOLO_STALENESS_ANY, 1, 0, RANKS_TCP, COUNT},
        {0, 1, 0, RANKS_TCP, MANY}, /* more than a connection takes at once */
        {2, 2, 0, RANKS_THREAD, COUNT}, {KOLO_STALENESS_ANY, 2, 1, RANKS_THREAD, COUNT},
        {0, 0, 0, RANKS_THREAD, COUNT},
    };
    for (size_t i = 0; i < KOLO_COUNT(failures); i++) {
        rank_outcome outcomes[VICTIM_RANKS];
        const rank_job job = {.n = VICTIM_RANKS,
                              .transport = failures[i].transport,
                              .body = failing_body,
                              .arg = &failures[i],
                              .arg_bytes = sizeof failures[i],
                              .outcomes = outcomes};
        assert_int_not_equal(run_rank_job(&job), KOLO_OK);
        for (int r = 0; r < VICTIM_RANKS; r++) {
            const rank_outcome *o = &outcomes[r];
            const bool names = strstr(o->error, "worker 1 is lost") ||
                               strstr(o->error, "server rank 1 has left") || r == VICTIM;
            if (names && strstr(o->error, "sample 7 is damaged")) continue;
            fail_msg("failure %zu, rank %d: status %d: %s", i, r, (int)o->status, o->error);
        }
    }
}

TEST_MAIN(test_comm_parameters_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_of_a_worker_is_stated_by_all),
        cmocka_unit_test(the_others_go_on_without_a_killed_worker),
        cmocka_unit_test(a_killed_owner_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
