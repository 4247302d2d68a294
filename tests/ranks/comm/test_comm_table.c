/* Tables of rows on servers: bsp against a simulation, bitwise; asp, where each gradient counts
 * once; the bound of ssp; rows that are saved while they change, and loaded by other numbers of
 * owners. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/task.h"
#include "kolo/table.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 3, IDS = 90, WIDTH = 5, STEPS = 8, BATCH = 40 };

static const float rate = 0.125F, decay = 0.5F;

/* Momentum. */
static void update(void *arg, const kolo_table_update *u) {
    for (size_t i = 0; i < u->n; i++) {
        float *value = u->values + (size_t)u->slots[i] * u->width;
        float *momentum = u->state[0] + (size_t)u->slots[i] * u->width;
        for (size_t c = 0; c < u->width; c++) {
            momentum[c] = decay * momentum[c] + u->gradients[i * u->width + c];
            value[c] -= rate * momentum[c];
        }
    }
}

static kolo_table_opts options(int servers, int staleness) {
    return (kolo_table_opts){.name = "rows",
                             .width = WIDTH,
                             .states = 1,
                             .seed = 4,
                             .initial = KOLO_TABLE_UNIFORM,
                             .scale = 1,
                             .bytes = 1 << 20,
                             .batch = BATCH,
                             .servers = servers,
                             .staleness = staleness,
                             .update = update};
}

/* Ids far apart, some of them several times. */
static uint64_t id_of(int number) { return (uint64_t)number * UINT64_C(0x1234567890123); }

static int number_at(int worker, int step, int i) {
    return (worker * 17 + step * 29 + i * i * 7) % IDS;
}

static float gradient_at(int worker, int step, int i, int c) {
    return (float)((worker * 31 + step * 11 + i * 5 + c) % 23) / 7 - 1.3F;
}

/* A batch of worker 2 has no ids in some steps. */
static size_t batch_of(int worker, int step, uint64_t *ids, float *gradients) {
    if (worker == 2 && step % 3 == 0) return 0;
    for (int i = 0; i < BATCH; i++) {
        ids[i] = id_of(number_at(worker, step, i));
        for (int c = 0; c < WIDTH; c++) gradients[i * WIDTH + c] = gradient_at(worker, step, i, c);
    }
    return BATCH;
}

/* ---- bsp ---- */

typedef struct simulation {
    float value[IDS][WIDTH], state[IDS][WIDTH];
} simulation;

/* Sums within a batch, then over the workers. */
static void simulate(simulation *s, int workers, int step) {
    static _Thread_local float sum[IDS][WIDTH], own[IDS][WIDTH];
    bool any[IDS] = {false};
    for (int w = 0; w < workers; w++) {
        bool has[IDS] = {false};
        if (w == 2 && step % 3 == 0) continue;
        for (int i = 0; i < BATCH; i++) {
            const int k = number_at(w, step, i);
            for (int c = 0; c < WIDTH; c++) {
                const float g = gradient_at(w, step, i, c);
                own[k][c] = has[k] ? own[k][c] + g : g;
            }
            has[k] = true;
        }
        for (int k = 0; k < IDS; k++) {
            for (int c = 0; c < WIDTH && has[k]; c++) {
                sum[k][c] = any[k] ? sum[k][c] + own[k][c] : own[k][c];
            }
            any[k] |= has[k];
        }
    }
    for (int k = 0; k < IDS; k++) {
        for (int c = 0; c < WIDTH && any[k]; c++) {
            s->state[k][c] = decay * s->state[k][c] + sum[k][c];
            s->value[k][c] -= rate * s->state[k][c];
        }
    }
}

/* All ids, each twice, in parts that fit into a batch. */
static kolo_status compare(kolo_table *t, const simulation *s, bool pull) {
    uint64_t ids[BATCH];
    float rows[BATCH * WIDTH];
    for (int first = 0; first < IDS; first += BATCH / 2) {
        for (int i = 0; i < BATCH; i++) ids[i] = id_of((first + i / 2) % IDS);
        KOLO_TRY(pull ? kolo_table_pull(t, ids, BATCH, rows)
                      : kolo_table_read(t, ids, BATCH, rows));
        for (int i = 0; i < BATCH; i++) {
            const float *expected = s->value[(first + i / 2) % IDS];
            if (memcmp(rows + (size_t)i * WIDTH, expected, sizeof s->value[0]) == 0) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT, "row %d is %g, not %g", (first + i / 2) % IDS,
                             (double)rows[i * WIDTH], (double)expected[0]);
        }
    }
    return KOLO_OK;
}

/* The rows at first, which the simulation starts from. */
static kolo_status read_initial(kolo_table *t, simulation *s) {
    memset(s, 0, sizeof *s);
    for (int k = 0; k < IDS; k++) {
        const uint64_t id = id_of(k);
        KOLO_TRY(kolo_table_read(t, &id, 1, s->value[k]));
    }
    return KOLO_OK;
}

static kolo_status train_bsp(kolo_comm *comm, kolo_table *t, int workers, simulation *s) {
    uint64_t ids[BATCH];
    float gradients[BATCH * WIDTH];
    const int rank = kolo_comm_rank(comm);
    KOLO_TRY(read_initial(t, s));
    KOLO_TRY(kolo_barrier(comm));
    for (int step = 0; step < STEPS; step++) {
        simulate(s, workers, step);
        if (!kolo_table_works(t)) continue;
        const size_t n = batch_of(rank, step, ids, gradients);
        KOLO_TRY(kolo_table_push(t, ids, n, gradients));
        KOLO_TRY(compare(t, s, true));
    }
    if (kolo_table_works(t)) KOLO_TRY(kolo_table_flush(t));
    KOLO_TRY(kolo_barrier(comm));
    return compare(t, s, false); /* servers, too */
}

static kolo_status bsp_body(kolo_comm *comm, const void *arg, void *result) {
    static _Thread_local simulation s;
    const int servers = *(const int *)arg;
    const kolo_table_opts opts = options(servers, 0);
    kolo_table *t;
    kolo_table_stats stats;
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    const int workers = kolo_comm_size(comm) - servers;
    kolo_status status = train_bsp(comm, t, workers, &s);
    if (status == KOLO_OK) status = kolo_table_stats_get(t, &stats);
    if (status == KOLO_OK && (stats.rows != stats.created || stats.version != STEPS ||
                              stats.rows > IDS || stats.early + stats.refused > 0)) {
        status =
            KOLO_FAIL(KOLO_ERR_FORMAT, "%d rows, %d updates", (int)stats.rows, (int)stats.version);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm); /* servers do not wait for each other */
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

static void bsp_sums_in_the_order_of_ranks(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (size_t k = 0; k < 3; k++) {
        for (int servers = 0; servers < 3; servers++) {
            ASSERT_OK(
                run_ranks(WORKERS + servers, transports[k], bsp_body, &servers, sizeof servers));
        }
    }
}

/* ---- asp ---- */

static void count(void *arg, const kolo_table_update *u) {
    for (size_t i = 0; i < u->n; i++) {
        for (size_t c = 0; c < u->width; c++) {
            u->values[(size_t)u->slots[i] * u->width + c] += u->gradients[i * u->width + c];
        }
    }
}

/* Each worker pushes ones for all ids, one of them twice, and reads ahead meanwhile: the same ids,
 * in every other step in another order. */
static kolo_status push_ones(kolo_table *t) {
    uint64_t ids[BATCH], ahead[BATCH];
    float ones[BATCH * WIDTH], rows[BATCH * WIDTH];
    for (int i = 0; i < BATCH; i++) ids[i] = id_of(i % (BATCH - 1));
    for (int i = 0; i < BATCH * WIDTH; i++) ones[i] = 1;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH; i++) ahead[i] = ids[step % 2 ? BATCH - 1 - i : i];
        KOLO_TRY(kolo_table_pull_start(t, ahead, BATCH));
        KOLO_TRY(kolo_table_push(t, ids, BATCH, ones));
        if (kolo_table_pull_start(t, ids, BATCH) != KOLO_ERR_ARG) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "two reads at a time");
        }
        KOLO_TRY(kolo_table_pull_wait(t, rows));
    }
    return kolo_table_flush(t);
}

static kolo_status check_ones(kolo_comm *comm, kolo_table *t, int workers) {
    if (kolo_table_works(t)) KOLO_TRY(push_ones(t));
    KOLO_TRY(kolo_barrier(comm));
    for (int i = 0; i < BATCH - 1; i++) {
        float row[WIDTH];
        const uint64_t id = id_of(i);
        const float expected = (float)(workers * STEPS * (i == 0 ? 2 : 1));
        KOLO_TRY(kolo_table_read(t, &id, 1, row));
        if (row[0] == expected && row[WIDTH - 1] == expected) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "row %d has %g of %g", i, (double)row[0],
                         (double)expected);
    }
    return KOLO_OK;
}

static kolo_status refuse_mistakes(kolo_table *t) {
    uint64_t ids[BATCH + 1] = {0};
    float rows[(BATCH + 1) * WIDTH] = {0};
    kolo_table_rows saved = {0};
    bool more;
    if (!kolo_table_works(t)) {
        const kolo_status status = kolo_table_push(t, ids, 1, rows);
        return status == KOLO_ERR_ARG ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "a server pushes");
    }
    const kolo_status results[] = {kolo_table_pull(t, ids, BATCH + 1, rows),
                                   kolo_table_push(t, ids, BATCH + 1, rows),
                                   kolo_table_pull_wait(t, rows),
                                   kolo_table_save_rows(t, 99, 1, &more, &saved),
                                   kolo_table_save_rows(t, 0, 0, &more, &saved),
                                   kolo_table_save_rows(t, 0, 1, &more, &saved)};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i] != KOLO_ERR_ARG) return KOLO_FAIL(KOLO_ERR_FORMAT, "mistake %d", (int)i);
    }
    return KOLO_OK;
}

static kolo_status asp_body(kolo_comm *comm, const void *arg, void *result) {
    const int servers = *(const int *)arg;
    kolo_table_opts opts = options(servers, KOLO_STALENESS_ANY);
    kolo_table *t;
    opts.initial = KOLO_TABLE_ZEROS;
    opts.update = count;
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    kolo_status status = check_ones(comm, t, kolo_comm_size(comm) - servers);
    if (status == KOLO_OK) status = refuse_mistakes(t);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

static void asp_adds_each_gradient_once(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (size_t k = 0; k < 3; k++) {
        for (int servers = 0; servers < 3; servers += 2) {
            ASSERT_OK(
                run_ranks(WORKERS + servers, transports[k], asp_body, &servers, sizeof servers));
        }
    }
}

/* ---- ssp ---- */

/* Worker 0 is slow: the others are BOUND pushes ahead, and never more. */
static kolo_status ssp_body(kolo_comm *comm, const void *arg, void *result) {
    const int bound = *(const int *)arg, rank = kolo_comm_rank(comm);
    const kolo_table_opts opts = options(1, bound);
    kolo_table *t;
    uint64_t reads[KOLO_STALENESS_BINS] = {0};
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    kolo_status status = KOLO_OK;
    for (int step = 0; kolo_table_works(t) && step < 2 * STEPS && status == KOLO_OK; step++) {
        const uint64_t id = id_of(rank);
        float row[WIDTH];
        status = kolo_table_pull(t, &id, 1, row);
        if (rank == 0) kolo_sleep_ns(3000000);
        if (status == KOLO_OK) status = kolo_table_push(t, &id, 1, row);
    }
    kolo_table_count_reads(t, reads);
    for (int i = bound + 1; i < KOLO_STALENESS_BINS && status == KOLO_OK; i++) {
        if (reads[i] > 0) status = KOLO_FAIL(KOLO_ERR_FORMAT, "a staleness of %d", i);
    }
    if (status == KOLO_OK && rank > 0 && kolo_table_works(t) && reads[bound] == 0) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "the bound was not reached");
    }
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

static void a_bound_is_reached_and_kept(void **state) {
    for (int bound = 1; bound < 4; bound += 2) {
        ASSERT_OK(run_ranks(WORKERS + 1, RANKS_SHM, ssp_body, &bound, sizeof bound));
    }
}

/* ---- saved rows ---- */

enum { PAGE = 16 };

/* Reads the rows that are being saved, into another table unless that is NULL. */
static kolo_status read_saved(kolo_table *from, int owners, kolo_table *to) {
    uint64_t ids[PAGE], ages[PAGE];
    float values[PAGE * 2 * WIDTH];
    kolo_table_rows rows = {.ids = ids, .ages = ages, .values = values};
    for (int o = 0; o < owners; o++) {
        for (bool more = true; more;) {
            KOLO_TRY(kolo_table_save_rows(from, o, PAGE, &more, &rows));
            if (to) KOLO_TRY(kolo_table_load_rows(to, &rows));
        }
    }
    return KOLO_OK;
}

static kolo_status push_step(kolo_table *t, int step) {
    uint64_t ids[BATCH];
    float gradients[BATCH * WIDTH];
    const size_t n = batch_of(0, step, ids, gradients);
    return kolo_table_push(t, ids, n, gradients);
}

/* Rank 0 copies the rows of a moment from one table to another, while the first goes on. A step
 * later both have the same rows. */
static kolo_status go_on(kolo_comm *comm, kolo_table *a, kolo_table *b, simulation *s) {
    kolo_table_stats stats;
    const int rank = kolo_comm_rank(comm), owners = kolo_comm_size(comm) - 1;
    KOLO_TRY(train_bsp(comm, a, 1, s));
    KOLO_TRY(kolo_barrier(comm)); /* servers have read the rows */
    if (rank > 0) return KOLO_OK;
    KOLO_TRY(kolo_table_save_begin(a, &stats));
    KOLO_TRY(push_step(a, 2));
    KOLO_TRY(kolo_table_flush(a));
    KOLO_TRY(read_saved(a, owners, b));
    kolo_table_save_end(a);
    KOLO_TRY(compare(b, s, true));
    simulate(s, 1, 2);
    KOLO_TRY(push_step(b, 2));
    KOLO_TRY(compare(b, s, true));
    return compare(a, s, true);
}

static kolo_status saved_body(kolo_comm *comm, const void *arg, void *result) {
    static _Thread_local simulation s;
    kolo_table *a = NULL, *b = NULL;
    kolo_table_opts opts = options(kolo_comm_size(comm) - 1, 0);
    kolo_comm *alone = NULL;
    KOLO_TRY(kolo_comm_split(comm, kolo_comm_rank(comm), 0, &alone));
    KOLO_TRY(kolo_table_create(comm, &opts, &a));
    opts.servers = 0;
    kolo_status status = kolo_table_create(alone, &opts, &b); /* one owner */
    if (status == KOLO_OK) status = go_on(comm, a, b, &s);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (status != KOLO_OK) kolo_table_abandon(a);
    if (status != KOLO_OK && b) kolo_table_abandon(b);
    kolo_table_destroy(b);
    kolo_table_destroy(a);
    kolo_comm_destroy(alone);
    return status;
}

static void rows_move_to_other_owners(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, saved_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_SHM, saved_body, NULL, 0));
}

/* Fewer rows fit beside those that are to be saved than a push changes: it waits until they are
 * saved, or are no longer to be. So does a read of its worker. */
typedef struct waiting_case {
    int staleness;
    bool ends; /* the save, before all rows are read */
    bool slow; /* another thread reads them, for longer than requests may wait without progress */
} waiting_case;

enum { WAIT_MS = 2000 };

static kolo_status expect_version(kolo_table *t, uint64_t expected) {
    kolo_table_stats stats;
    KOLO_TRY(kolo_table_stats_get(t, &stats));
    if (stats.version == expected) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%d updates", (int)stats.version);
}

static kolo_status read_slowly(void *table) {
    uint64_t id, age;
    float values[2 * WIDTH];
    kolo_table_rows rows = {.ids = &id, .ages = &age, .values = values};
    for (bool more = true; more;) {
        KOLO_TRY(kolo_table_save_rows(table, 0, 1, &more, &rows));
        poll(NULL, 0, WAIT_MS / 10);
    }
    return KOLO_OK;
}

static kolo_status save_slowly(kolo_table *t) {
    kolo_task *task;
    KOLO_TRY(kolo_task_start(read_slowly, t, "saves rows", &task));
    const kolo_status status = kolo_table_flush(t), saved = kolo_task_join(task);
    return status == KOLO_OK ? saved : status;
}

/* The read that was started has what the rows are now. */
static kolo_status expect_newest(kolo_table *t, const uint64_t *ids) {
    float read[BATCH * WIDTH], newest[BATCH * WIDTH];
    KOLO_TRY(kolo_table_pull_wait(t, read));
    KOLO_TRY(kolo_table_read(t, ids, BATCH, newest));
    if (memcmp(read, newest, sizeof read) == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a read lacks the push before it");
}

static kolo_status push_and_save(kolo_table *t, const waiting_case *c) {
    uint64_t ids[BATCH];
    float gradients[BATCH * WIDTH];
    kolo_table_stats stats;
    batch_of(0, 0, ids, gradients);
    KOLO_TRY(push_step(t, 0));
    KOLO_TRY(kolo_table_flush(t));
    KOLO_TRY(kolo_table_save_begin(t, &stats));
    const uint64_t slots = stats.room + stats.room / 4 + 1;
    if (stats.version != 1 || slots - stats.rows >= stats.rows) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%d of %d rows", (int)stats.rows, (int)stats.room);
    }
    KOLO_TRY(push_step(t, 0));
    KOLO_TRY(expect_version(t, 1));
    KOLO_TRY(kolo_table_pull_start(t, ids, BATCH));
    if (c->ends) {
        kolo_table_save_end(t);
    } else {
        KOLO_TRY(c->slow ? save_slowly(t) : read_saved(t, 1, NULL));
    }
    KOLO_TRY(kolo_table_flush(t));
    KOLO_TRY(expect_newest(t, ids));
    return expect_version(t, 2);
}

static kolo_status waiting_body(kolo_comm *comm, const void *arg, void *result) {
    const waiting_case *c = arg;
    kolo_table_opts opts = options(1, c->staleness);
    kolo_table *t;
    opts.bytes = 1800;
    opts.timeout_ms = c->slow ? WAIT_MS : 0;
    KOLO_TRY(kolo_table_create(comm, &opts, &t));
    const kolo_status status = kolo_table_works(t) ? push_and_save(t, c) : KOLO_OK;
    if (status != KOLO_OK) kolo_table_abandon(t);
    kolo_table_destroy(t);
    return status;
}

static void pushes_wait_for_room_while_rows_are_saved(void **state) {
    static const waiting_case cases[] = {{.staleness = KOLO_STALENESS_ANY},
                                         {.staleness = 0},
                                         {.staleness = 2, .ends = true},
                                         {.staleness = 0, .ends = true},
                                         {.staleness = KOLO_STALENESS_ANY, .slow = true}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(run_ranks(2, RANKS_SHM, waiting_body, &cases[i], sizeof cases[i]));
    }
}

/* ---- options ---- */

static kolo_status options_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_table *t;
    const kolo_table_opts valid = options(0, 0);
    kolo_table_opts wrong[8];
    for (int i = 0; i < 8; i++) wrong[i] = valid;
    wrong[0].width = 0;
    wrong[1].states = KOLO_TABLE_STATES + 1;
    wrong[2].servers = 2;
    wrong[3].staleness = -2;
    wrong[4].update = NULL;
    wrong[5].bytes = 10;
    wrong[6].batch = (size_t)1 << 40;
    wrong[7].initial = (kolo_table_initial)7;
    for (int i = 0; i < 8; i++) {
        if (kolo_table_create(comm, &wrong[i], &t) == KOLO_ERR_ARG) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "options %d", i);
    }
    if (kolo_table_create(comm, NULL, &t) == KOLO_ERR_ARG) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "no options");
}

static void wrong_options_are_refused(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, options_body, NULL, 0));
}

TEST_MAIN(test_comm_table) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_sums_in_the_order_of_ranks),
        cmocka_unit_test(asp_adds_each_gradient_once),
        cmocka_unit_test(a_bound_is_reached_and_kept),
        cmocka_unit_test(rows_move_to_other_owners),
        cmocka_unit_test(pushes_wait_for_room_while_rows_are_saved),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
