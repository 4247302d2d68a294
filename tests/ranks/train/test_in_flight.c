/* Collectives in flight: the communicator has room for all that a plan has between POST and WAIT,
 * also beyond its own limit, so that no POST waits for other ranks.
 *
 * A gate holds each request until its rank has polled for a while without reaching another step of
 * the plan, and then lets the oldest one pass. So a request stays in flight until a WAIT needs it.
 */
#include "base/status.h"
#include "comm/engine/request.h"
#include "plan/internal.h"
#include "support/layers.h"
#include "support/ranks.h"
#include "support/support.h"

enum { RANKS = 2, BATCH = 4, LAYERS = 6, WIDTH = 16, LIMIT = 1, STEPS = 4, PATIENCE = 400 };

typedef struct row {
    const char *name;
    bool exact; /* all requests stay in flight until their WAITs */
    bool cross_step;
    int zero, lag, micro_batches;
} row;

static const row rows[] = {
    {"data parallel", .exact = true},
    {"updates in the next step", .exact = true, .cross_step = true},
    {"lag", .exact = true, .lag = 2},
    {"ZeRO-1", .zero = 1},
    {"ZeRO-2", .zero = 2, .micro_batches = 2},
    {"ZeRO-3", .zero = 3},
};

typedef struct result {
    int limit, counted, most; /* counted: by the plan; most: seen */
} result;

typedef struct watch {
    kolo_comm *comm;
    int polls, most;
} watch;

static bool gate(void *arg, const kolo_request *request) {
    watch *w = arg;
    if (w->comm->n_flight > w->most) w->most = w->comm->n_flight;
    return w->polls++ > PATIENCE && request == w->comm->flight[0];
}

static void observe(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                    int64_t end_ns) {
    ((watch *)arg)->polls = 0;
}

static kolo_status make_plan(const row *r, kolo_comm *comm, kolo_store *store, kolo_plan **plan) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    layers_build(g, BATCH, WIDTH, LAYERS);
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer.momentum = 0.9,
                                 .bucket_bytes = 64,
                                 .cross_step = r->cross_step,
                                 .zero = r->zero,
                                 .lag = r->lag,
                                 .micro_batches = r->micro_batches};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    KOLO_TRY(kolo_store_init(store, 7));
    float *x = kolo_plan_input(*plan, "x", NULL);
    int32_t *y = kolo_plan_input(*plan, "y", NULL);
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = (float)(i % 7) - 3.0f;
    for (int i = 0; i < BATCH; i++) y[i] = (i + kolo_comm_rank(comm)) % WIDTH;
    kolo_plan_set_scalar(*plan, "lr", 0.01);
    kolo_plan_set_scalar(*plan, "grad_scale", 1.0 / (RANKS * BATCH));
    return KOLO_OK;
}

static kolo_status run(const row *r, kolo_plan *plan) {
    for (int i = 0; i < STEPS; i++) {
        if (r->micro_batches > 1) {
            kolo_plan_set_scalar(plan, "fresh", 1);
            KOLO_TRY(kolo_plan_accumulate(plan));
            kolo_plan_set_scalar(plan, "fresh", 0);
        }
        KOLO_TRY(kolo_plan_run(plan));
    }
    return KOLO_OK;
}

static kolo_status body(kolo_comm *none, const void *arg, void *out) {
    const row *r = arg;
    result *found = out;
    watch w = {0};
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    kolo_comm_opts opts = ranks_own_opts();
    opts.max_in_flight = LIMIT;
    KOLO_TRY(kolo_comm_create(&opts, &w.comm));
    kolo_status status = kolo_store_create(NULL, &store);
    if (status == KOLO_OK) status = make_plan(r, w.comm, store, &plan);
    if (status == KOLO_OK) {
        kolo_comm_set_gate(w.comm, gate, &w);
        kolo_plan_observe(plan, observe, &w);
        status = run(r, plan);
        if (status == KOLO_OK) status = kolo_store_run_deferred(store);
        kolo_comm_set_gate(w.comm, NULL, NULL);
        *found = (result){w.comm->max_in_flight, kolo_plan_most_in_flight(plan, 0), w.most};
    }
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_comm_destroy(w.comm);
    return status;
}

static void all_that_a_plan_posts_is_in_flight(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        result results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = RANKS_SHM,
                        .body = body,
                        .arg = &rows[i],
                        .arg_bytes = sizeof rows[i],
                        .results = results,
                        .result_bytes = sizeof results[0],
                        .bare = true};
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < RANKS; rank++) {
            const result *r = &results[rank];
            if (r->counted <= LIMIT || r->most <= LIMIT || r->most > r->counted ||
                r->limit <= r->counted || (rows[i].exact && r->most != r->counted)) {
                fail_msg("%s: %d in flight, %d counted, room for %d", rows[i].name, r->most,
                         r->counted, r->limit);
            }
        }
    }
}

TEST_MAIN(test_in_flight) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_a_plan_posts_is_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
