/* Parameters on servers whose workers or owners die. */
#include "base/status.h"
#include "kolo/parameters.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4, VICTIM = 1, OWNER = 3, COUNT = 500, STEPS = 40, DEATH = 10 };

static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};

/* Adds one per gradient. */
static void update(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

typedef struct scene {
    int staleness;
    int victim;
} scene;

/* A rank's flag, in memory that all ranks share, side by side: it has created its parameters. */
typedef struct flag {
    _Alignas(64) _Atomic int created;
} flag;

static void wait_for_all(flag *own, int rank) {
    for (int r = 0; r < RANKS; r++) {
        while (!atomic_load(&own[r - rank].created)) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
}

/* Workers add ones. The victim dies, in the middle of a step if it is a worker. */
static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const scene *s = arg;
    static float values[COUNT], gradient[COUNT];
    kolo_parameters *p;
    int rank = kolo_comm_rank(comm);
    kolo_parameters_opts opts = {
        .servers = 1, .staleness = s->staleness, .update = update, .timeout_ms = 20000};
    KOLO_TRY(kolo_parameters_create(comm, values, COUNT, &opts, &p));
    atomic_store(&((flag *)result)->created, 1);
    if (rank == s->victim) wait_for_all(result, rank); /* nobody is in a collective any more */
    if (rank == OWNER && s->victim == OWNER) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
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

static void check(const scene *s) {
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++) {
        rank_outcome outcomes[RANKS];
        flag flags[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = transports[t],
                        .body = body,
                        .arg = s,
                        .arg_bytes = sizeof *s,
                        .results = flags,
                        .result_bytes = sizeof flags[0],
                        .outcomes = outcomes};
        (void)run_rank_job(&job);
        for (int r = 0; r < RANKS; r++) {
            if (r == s->victim) {
                assert_int_equal(outcomes[r].signal, SIGKILL);
            } else if (outcomes[r].status != KOLO_OK) {
                fail_msg("rank %d: %s", r, outcomes[r].error);
            }
        }
    }
}

static void the_others_go_on_without_a_killed_worker(void **state) {
    check(&(scene){.staleness = 0, .victim = VICTIM});
    check(&(scene){.staleness = 2, .victim = VICTIM});
}

static void a_killed_owner_is_named(void **state) { check(&(scene){.victim = OWNER}); }

TEST_MAIN(test_comm_parameters_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on_without_a_killed_worker),
        cmocka_unit_test(a_killed_owner_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
