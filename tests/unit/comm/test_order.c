/* A recorded order of requests to an owner: another order of their arrival in the replay gives the
 * same bits. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/sync/parameters_order.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { WORKERS = 4, COUNT = 5, STEPS = 12, SENT = 2 * STEPS + 1 };

/* A request of a worker. */
typedef struct message {
    kolo_service_call call;
    struct world *world;
    bool answered;
    kolo_status status;
    float gradient[COUNT], values[COUNT];
    uint64_t lost[WORKERS];
} message;

typedef struct world {
    kolo_parameters_opts opts;
    kolo_parameters_owner *owner;
    kolo_order *order;
    message sent[WORKERS][SENT];
    int n[WORKERS];
    bool dead[WORKERS], ended[WORKERS]; /* dead: the next reply detects it */
    float values[COUNT];
} world;

/* The order of updates matters: what is subtracted depends on the values. */
static void update(void *arg, const kolo_parameters_update *u) {
    world *x = arg;
    for (size_t i = 0; i < u->count; i++) {
        u->values[i] = 0.9F * u->values[i] - 0.1F * u->gradient[i] * u->gradient[i];
    }
    memcpy(x->values, u->values, sizeof x->values);
}

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    message *m = (message *)(void *)call; /* its first member */
    world *x = m->world;
    (void)clock;
    assert_false(m->answered);
    m->answered = true;
    m->status = status;
    if (data && bytes == sizeof m->values) memcpy(m->values, data, bytes);
    if (data && bytes == sizeof m->lost) memcpy(m->lost, data, bytes);
    if (!x->dead[call->client] || x->ended[call->client]) return;
    x->ended[call->client] = true;
    kolo_order_lost(x->order, call->client, false, "its connection is closed");
}

static kolo_status init(world *x, const char *record, const char *replay) {
    static const float initial[COUNT] = {1, 2, 3, 4, 5};
    const kolo_owned has = {.values = {0, COUNT}, .gradient = {0, COUNT}};
    kolo_order_opts order = {.record = record,
                             .replay = replay,
                             .workers = WORKERS,
                             .owners = 1,
                             .staleness = KOLO_STALENESS_ANY,
                             .reply = reply};
    *x = (world){.opts = {.staleness = KOLO_STALENESS_ANY, .update = update}};
    x->opts.arg = x;
    ASSERT_OK(kolo_parameters_owner_create(&x->opts, &has, WORKERS, reply, &x->owner));
    kolo_parameters_owner_load(x->owner, initial);
    order.owner = x->owner;
    return kolo_order_create(&order, &x->order);
}

static void fini(world *x) {
    kolo_order_destroy(x->order);
    kolo_parameters_owner_destroy(x->owner);
}

/* A worker's gradient depends on what it has read last. */
static void send(world *x, int w) {
    const int i = x->n[w]++;
    message *m = &x->sent[w][i];
    m->world = x;
    m->call = (kolo_service_call){.client = w, .clock = (uint64_t)i / 2};
    if (i == 2 * STEPS) {
        m->call.kind = KOLO_OWNER_FINISH;
    } else if (i % 2 == 0) {
        m->call.kind = KOLO_OWNER_PULL;
        m->call.output = m->values;
        m->call.output_bytes = sizeof m->values;
    } else {
        m->call.kind = KOLO_OWNER_PUSH;
        for (int k = 0; k < COUNT; k++) {
            m->gradient[k] = 0.1F * x->sent[w][i - 1].values[k] + (float)(w + k) / 7;
        }
        m->call.input = m->gradient;
        m->call.input_bytes = sizeof m->gradient;
    }
    kolo_order_serve(x->order, &m->call);
}

/* All workers to their ends, in an order that the seed determines. */
static void run(world *x, uint64_t seed) {
    const kolo_rng rng = kolo_rng_make(3, KOLO_RNG_INIT, seed);
    for (uint64_t drawn = 0, left = WORKERS; left > 0; drawn++) {
        const int w = (int)(kolo_rng_uniform(&rng, drawn) * WORKERS);
        const int n = x->n[w];
        if (n == SENT || (n > 0 && !x->sent[w][n - 1].answered)) continue;
        send(x, w);
        left -= x->n[w] == SENT;
    }
}

static void a_replay_has_the_same_bits(void **state) {
    static world recorded, other, replayed;
    ASSERT_OK(init(&recorded, "order", NULL));
    run(&recorded, 1);
    ASSERT_OK(kolo_order_finish(recorded.order));
    ASSERT_OK(init(&other, "other", NULL));
    run(&other, 2);
    assert_memory_not_equal(other.values, recorded.values, sizeof other.values);
    for (uint64_t seed = 2; seed < 6; seed++) {
        ASSERT_OK(init(&replayed, NULL, "order"));
        run(&replayed, seed);
        ASSERT_OK(kolo_order_finish(replayed.order));
        assert_memory_equal(replayed.values, recorded.values, sizeof recorded.values);
        fini(&replayed);
    }
    fini(&recorded);
    fini(&other);
}

static void other_files_and_runs_are_refused(void **state) {
    static world x;
    char *data;
    size_t bytes;
    ASSERT_OK(init(&x, "three", NULL));
    for (int i = 0; i < 3; i++) send(&x, 1);
    ASSERT_OK(kolo_order_finish(x.order));
    fini(&x);
    ASSERT_OK(init(&x, NULL, "three"));
    for (int i = 0; i < 2; i++) send(&x, 1);
    assert_int_equal(kolo_order_finish(x.order), KOLO_ERR_ARG); /* one is missing */
    assert_non_null(strstr(kolo_last_error(), "same options, such as --epochs and --steps"));
    for (int i = 0; i < 2; i++) send(&x, 1);
    assert_int_equal(x.sent[1][2].status, KOLO_OK);
    assert_int_equal(x.sent[1][3].status, KOLO_ERR_ARG); /* one more */
    assert_non_null(strstr(kolo_last_error(), "same options, such as --epochs and --steps"));
    fini(&x);
    ASSERT_OK(kolo_file_read("three", 1 << 20, &data, &bytes));
    ASSERT_OK(kolo_file_write("short", data, bytes - 1));
    data[bytes - 1] ^= 1;
    ASSERT_OK(kolo_file_write("damaged", data, bytes));
    assert_int_equal(init(&x, NULL, "short"), KOLO_ERR_FORMAT);
    fini(&x);
    assert_int_equal(init(&x, NULL, "damaged"), KOLO_ERR_FORMAT);
    fini(&x);
    kolo_free(data);
    assert_int_equal(init(&x, "three", NULL), KOLO_ERR_ARG); /* it exists */
    fini(&x);
    ASSERT_OK(init(&x, "lost", NULL));
    kolo_order_lost(x.order, 2, false, "a test");
    ASSERT_OK(kolo_order_finish(x.order));
    fini(&x);
    assert_int_equal(init(&x, NULL, "lost"), KOLO_ERR_ARG); /* it lost a worker */
    fini(&x);
}

static void records_of_other_runs_are_refused(void **state) {
    static const kolo_order_opts right = {.record = "run",
                                          .workers = WORKERS,
                                          .owners = 2,
                                          .index = 1,
                                          .staleness = 3,
                                          .reply = reply};
    kolo_order_opts opts[7];
    kolo_order *order;
    ASSERT_OK(kolo_order_create(&right, &order));
    ASSERT_OK(kolo_order_finish(order));
    kolo_order_destroy(order);
    for (size_t i = 0; i < KOLO_COUNT(opts); i++) {
        opts[i] = right;
        opts[i].record = NULL;
        opts[i].replay = "run";
    }
    opts[1].workers--;
    opts[2].owners++;
    opts[3].index = 0;
    opts[4].staleness = KOLO_STALENESS_ANY;
    opts[5].drop = 1;
    opts[6].update_hash = 1;
    ASSERT_OK(kolo_order_create(&opts[0], &order));
    kolo_order_destroy(order);
    for (size_t i = 1; i < KOLO_COUNT(opts); i++)
        assert_int_equal(kolo_order_create(&opts[i], &order), KOLO_ERR_ARG);
}

static void barrier(world *x, int w) {
    message *m = &x->sent[w][0];
    m->world = x;
    m->call = (kolo_service_call){
        .client = w, .kind = KOLO_OWNER_BARRIER, .output_bytes = WORKERS * sizeof(uint64_t)};
    kolo_order_serve(x->order, &m->call);
}

/* Three workers wait for the first, or for their turn, and die: a reply detects the second loss. */
static void calls_of_workers_that_die_together_get_one_reply(void **state) {
    static world x;
    for (int replays = 0; replays < 2; replays++) {
        ASSERT_OK(init(&x, replays ? NULL : "together", replays ? "together" : NULL));
        x.opts.needs_all = true;
        if (!replays) barrier(&x, 3);
        barrier(&x, 1);
        barrier(&x, 2);
        for (int w = 1; w < WORKERS; w++) assert_false(x.sent[w][0].answered);
        if (!replays) ASSERT_OK(kolo_order_finish(x.order));
        x.dead[1] = x.dead[2] = x.ended[3] = true;
        kolo_order_lost(x.order, 3, false, "a test");
        for (int w = 1; w < WORKERS; w++) assert_true(x.ended[w]);
        for (int w = 1; w < 3; w++) assert_true(x.sent[w][0].answered);
        kolo_order_lost(x.order, 0, false, "a test");
        assert_int_equal(kolo_parameters_owner_wait(x.owner), KOLO_ERR_PEER);
        fini(&x);
    }
}

/* A loss that a reply to one of them detects is in the next report of all. */
static void workers_that_wait_get_the_same_report(void **state) {
    static const uint64_t none[WORKERS], second[WORKERS] = {0, 1};
    static world x;
    ASSERT_OK(init(&x, "report", NULL));
    for (int again = 0; again < 2; again++) {
        x.dead[1] = true;
        for (int w = 0; w < WORKERS; w++) {
            x.sent[w][0].answered = false;
            if (!x.ended[w]) barrier(&x, w);
        }
        for (int w = 0; w < WORKERS; w++) {
            const message *m = &x.sent[w][0];
            if (w == 1) continue;
            assert_true(m->answered);
            assert_memory_equal(m->lost, again ? second : none, sizeof none);
        }
    }
    fini(&x);
}

TEST_MAIN(test_order) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_has_the_same_bits),
        cmocka_unit_test(other_files_and_runs_are_refused),
        cmocka_unit_test(records_of_other_runs_are_refused),
        cmocka_unit_test(workers_that_wait_get_the_same_report),
        cmocka_unit_test(calls_of_workers_that_die_together_get_one_reply),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
