/* Tables on servers whose workers or owners die, also while rows are saved. */
#include "base/clock.h"
#include "base/status.h"
#include "kolo/table.h"
#include "support/support.h"
#include "support/victim.h"

#include <signal.h>
#include <stdatomic.h>
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
    bool saves; /* the victim begins to; the pushes of the others have no room until it is lost */
} scene;

static kolo_status die(kolo_table *t, const scene *s) {
    kolo_table_stats stats;
    if (s->saves) KOLO_TRY(kolo_table_save_begin(t, &stats));
    raise(SIGKILL);
    return KOLO_OK;
}

/* Pushes ones; the victim dies between a read and a push. */
static kolo_status work(kolo_table *t, const scene *s, int rank) {
    static uint64_t ids[IDS];
    static float ones[IDS * WIDTH], rows[IDS * WIDTH];
    const int steps = s->victim == OWNER || s->needs_all ? 1000000 : STEPS;
    for (int i = 0; i < IDS * WIDTH; i++) ones[i] = 1;
    for (int i = 0; i < IDS; i++) ids[i] = (uint64_t)i << 50;
    for (int step = 0; step < steps; step++) {
        KOLO_TRY(kolo_table_pull(t, ids, IDS, rows));
        if (rank == s->victim && step == DEATH) KOLO_TRY(die(t, s));
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
                                  .bytes = s->saves ? 1 << 14 : 1 << 20,
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

/* A worker ends after an error while the others wait for it. */
static kolo_status failing_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_table_opts opts = {.width = WIDTH,
                                  .bytes = 1 << 20,
                                  .batch = IDS,
                                  .servers = 1,
                                  .needs_all = true,
                                  .update = update};
    const int rank = kolo_comm_rank(comm);
    const uint64_t id = 7;
    float row[WIDTH] = {0};
    kolo_table *t;
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    kolo_status status = KOLO_OK;
    for (int i = 0; kolo_table_works(t) && status == KOLO_OK; i++) {
        status = kolo_table_pull(t, &id, 1, row);
        if (rank == VICTIM && i == DEATH) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "sample 7 is damaged");
        } else if (status == KOLO_OK) {
            status = kolo_table_push(t, &id, 1, row);
        }
    }
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

static void an_error_of_a_worker_is_stated_by_all(void **state) {
    rank_outcome outcomes[VICTIM_RANKS];
    const rank_job job = {
        .n = VICTIM_RANKS, .transport = RANKS_THREAD, .body = failing_body, .outcomes = outcomes};
    assert_int_not_equal(run_rank_job(&job), KOLO_OK);
    for (int r = 0; r < OWNER; r++) {
        const bool names = strstr(outcomes[r].error, "worker 1 is lost") || r == VICTIM;
        if (names && strstr(outcomes[r].error, "sample 7 is damaged")) continue;
        fail_msg("rank %d: status %d: %s", r, (int)outcomes[r].status, outcomes[r].error);
    }
}

/* ---- servers with replicas ---- */

enum { FIRST_SERVER = 2, SERVERS = 2 };

static atomic_bool armed; /* this rank dies soon, */
static atomic_int left;   /* after so many updates */

/* The victim dies after it has changed the rows that it has, or follows, before the reply. */
static void update_and_die(void *arg, const kolo_table_update *u) {
    update(arg, u);
    if (atomic_load(&armed) && atomic_fetch_sub(&left, 1) <= 1) raise(SIGKILL);
}

/* Saves the rows; of an owner all have the same pushes. */
static kolo_status save_once(kolo_table *t) {
    static uint64_t ids[IDS], ages[IDS];
    static float values[IDS * WIDTH];
    kolo_table_rows page = {.ids = ids, .ages = ages, .values = values};
    kolo_table_stats stats;
    size_t n = 0;
    KOLO_TRY(kolo_table_save_begin(t, &stats));
    for (int owner = 0; owner < SERVERS; owner++) {
        float first = -1;
        for (bool more = true; more;) {
            KOLO_TRY(kolo_table_save_rows(t, owner, IDS / 7, &more, &page));
            n += page.n;
            if (first < 0 && page.n > 0) first = values[0];
            for (size_t i = 0; i < page.n * WIDTH; i++) {
                if (values[i] != first) return KOLO_FAIL(KOLO_ERR_FORMAT, "rows of two moments");
            }
        }
    }
    return n == stats.rows ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%zu rows", n);
}

/* A server that is lost costs the save, and no other. */
static kolo_status save_some(kolo_table *t) {
    const kolo_status status = save_once(t);
    return status == KOLO_ERR_PEER ? save_once(t) : status;
}

/* Pushes ones, in steps that are not over before the server dies; then each push of this worker is
 * in the rows once, and with a bound that all keep to those of the others, too. */
static kolo_status work_with_replicas(kolo_table *t, const scene *s, bool saves) {
    enum { MOST = 100 };
    static uint64_t ids[IDS];
    static float ones[IDS * WIDTH], rows[IDS * WIDTH];
    for (int i = 0; i < IDS * WIDTH; i++) ones[i] = 1;
    for (int i = 0; i < IDS; i++) ids[i] = (uint64_t)i << 50;
    for (int step = 0; step < MOST; step++) {
        KOLO_TRY(kolo_table_pull(t, ids, IDS, rows));
        const float least = (float)(s->staleness == 0 ? 2 * step : step);
        const float most = (float)(s->staleness == 0 ? 2 * step : step + MOST);
        for (int i = 0; i < IDS * WIDTH; i++) {
            if (rows[i] >= least && rows[i] <= most) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT, "step %d: number %d is %g", step, i, (double)rows[i]);
        }
        KOLO_TRY(kolo_table_push(t, ids, IDS, ones));
        if (saves) KOLO_TRY(save_some(t));
    }
    return kolo_table_flush(t);
}

static kolo_status replicas_body(kolo_comm *comm, const void *arg, void *result) {
    const scene *s = arg;
    const int rank = kolo_comm_rank(comm);
    const kolo_table_opts opts = {.width = WIDTH,
                                  .bytes = 1 << 20,
                                  .batch = IDS,
                                  .servers = SERVERS,
                                  .staleness = s->staleness,
                                  .needs_all = true,
                                  .replicas = 1,
                                  .update = update_and_die,
                                  .timeout_ms = 20000};
    kolo_table *t;
    kolo_table_stats stats;
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    victim_wait(result, rank, rank == s->victim);
    atomic_store(&left, DEATH);
    atomic_store(&armed, rank == s->victim);
    kolo_status status = KOLO_OK;
    if (kolo_table_works(t)) {
        status = work_with_replicas(t, s, rank == 0);
        if (status == KOLO_OK) status = kolo_table_stats_get(t, &stats);
        if (status == KOLO_OK && stats.rows != IDS) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "%d rows", (int)stats.rows);
        }
    }
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

static void rows_continue_from_a_replica(void **state) {
    static const int bounds[] = {0, 2, KOLO_STALENESS_ANY};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        for (int server = FIRST_SERVER; server < FIRST_SERVER + SERVERS; server++) {
            const scene s = {.staleness = bounds[i], .victim = server};
            victim_check(replicas_body, &s, sizeof s, s.victim);
        }
    }
}

static void check(const scene *s) { victim_check(body, s, sizeof *s, s->victim); }

static void the_others_go_on_without_a_killed_worker(void **state) {
    check(&(scene){.staleness = 0, .victim = VICTIM});
    check(&(scene){.staleness = 2, .victim = VICTIM});
    check(&(scene){.staleness = KOLO_STALENESS_ANY, .victim = VICTIM});
    check(&(scene){.staleness = 0, .victim = VICTIM, .saves = true});
    check(&(scene){.staleness = KOLO_STALENESS_ANY, .victim = VICTIM, .saves = true});
}

static void a_worker_that_the_job_needs_ends_it(void **state) {
    check(&(scene){.victim = VICTIM, .needs_all = true});
}

static void a_killed_owner_is_named(void **state) { check(&(scene){.victim = OWNER}); }

TEST_MAIN(test_comm_table_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on_without_a_killed_worker),
        cmocka_unit_test(a_worker_that_the_job_needs_ends_it),
        cmocka_unit_test(an_error_of_a_worker_is_stated_by_all),
        cmocka_unit_test(a_killed_owner_is_named),
        cmocka_unit_test(rows_continue_from_a_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
