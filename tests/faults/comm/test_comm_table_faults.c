/* Tables on servers whose workers or owners die. */
#include "base/clock.h"
#include "base/status.h"
#include "kolo/table.h"
#include "support/support.h"
#include "support/victim.h"

#include <signal.h>
#include <string.h>

enum { VICTIM = 1, OWNER = 3, IDS = 300, WIDTH = 4, STEPS = 30, DEATH = 8 };

/* Adds the gradients. */
static void update(void *arg, const kolo_table_update *u) {
    for (size_t i = 0; i < u->n; i++) {
        for (size_t c = 0; c < u->width; c++) {
            u->values[(size_t)u->slots[i] * u->width + c] += u->gradients[i * u->width + c];
        }
    }
}

typedef struct scene {
    int staleness;
    int victim;
    bool needs_all;
} scene;

/* Pushes ones; the victim dies between a read and a push. */
static kolo_status work(kolo_table *t, const scene *s, int rank) {
    static uint64_t ids[IDS];
    static float ones[IDS * WIDTH], rows[IDS * WIDTH];
    const int steps = s->victim == OWNER || s->needs_all ? 1000000 : STEPS;
    for (int i = 0; i < IDS * WIDTH; i++) ones[i] = 1;
    for (int i = 0; i < IDS; i++) ids[i] = (uint64_t)i << 50;
    for (int step = 0; step < steps; step++) {
        KOLO_TRY(kolo_table_pull(t, ids, IDS, rows));
        if (rank == s->victim && step == DEATH) raise(SIGKILL);
        KOLO_TRY(kolo_table_push(t, ids, IDS, ones));
    }
    KOLO_TRY(kolo_table_flush(t));
    KOLO_TRY(kolo_table_pull(t, ids, IDS, rows));
    /* All pushes of this worker, and the victim's; the other one may be behind. */
    const bool waits = s->staleness != KOLO_STALENESS_ANY;
    const float least = STEPS + (waits ? DEATH : 0), most = 2 * STEPS + DEATH;
    for (int i = 0; i < IDS * WIDTH; i++) {
        if (rows[i] < least || rows[i] > most || rows[i] != rows[0]) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "number %d is %g", i, (double)rows[i]);
        }
    }
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const scene *s = arg;
    const int rank = kolo_comm_rank(comm);
    const kolo_table_opts opts = {.width = WIDTH,
                                  .bytes = 1 << 20,
                                  .batch = IDS,
                                  .servers = 1,
                                  .staleness = s->staleness,
                                  .needs_all = s->needs_all,
                                  .update = update,
                                  .timeout_ms = 20000};
    kolo_table *t;
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    victim_wait(result, rank, rank == s->victim);
    if (rank == OWNER && s->victim == OWNER) {
        kolo_sleep_ns(100000000);
        raise(SIGKILL);
    }
    kolo_status status = kolo_table_works(t) ? work(t, s, rank) : KOLO_OK;
    if (kolo_table_works(t) && (s->victim == OWNER || s->needs_all)) {
        const char *reason = s->needs_all ? "worker 1 is lost" : "server rank 3 is gone";
        const bool named = status == KOLO_ERR_PEER && strstr(kolo_last_error(), reason);
        status = named ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%s", kolo_last_error());
    }
    kolo_table_destroy(t); /* the owner waits for the end of all workers */
    return status;
}

static void check(const scene *s) { victim_check(body, s, sizeof *s, s->victim); }

static void the_others_go_on_without_a_killed_worker(void **state) {
    check(&(scene){.staleness = 0, .victim = VICTIM});
    check(&(scene){.staleness = 2, .victim = VICTIM});
    check(&(scene){.staleness = KOLO_STALENESS_ANY, .victim = VICTIM});
}

static void a_worker_that_the_job_needs_ends_it(void **state) {
    check(&(scene){.victim = VICTIM, .needs_all = true});
}

static void a_killed_owner_is_named(void **state) { check(&(scene){.victim = OWNER}); }

TEST_MAIN(test_comm_table_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on_without_a_killed_worker),
        cmocka_unit_test(a_worker_that_the_job_needs_ends_it),
        cmocka_unit_test(a_killed_owner_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
