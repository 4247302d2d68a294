/* Overlap of communication and computation, tested by the order of events; and a step as a
 * transaction.
 *
 * Overlap: a gate blocks the allreduce of each bucket but the last until a kernel has run after its
 * POST. A plan that waits before computing would block in WAIT until the deadline, which fails the
 * test. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "plan/internal.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

enum { RANKS = 2, BATCH = 4, MOST_BUCKETS = 32 };

typedef struct result {
    int buckets, kernels_between[MOST_BUCKETS]; /* POST and the end of its request */
    int current_before, current_after, stayed;  /* of the store, where a step fails */
} result;

typedef struct watch {
    kolo_plan *plan;
    bool posted[MOST_BUCKETS];
    int kernels[MOST_BUCKETS]; /* since the POST */
} watch;

static int bucket_of(const kolo_plan *plan, const kolo_request *request) {
    for (int i = 0; i < plan->map.n_buckets; i++) {
        if (plan->requests[i] == request) return i;
    }
    return -1;
}

static bool gate(void *arg, const kolo_request *request) {
    const watch *w = arg;
    int bucket = bucket_of(w->plan, request);
    bool last = bucket == w->plan->map.n_buckets - 1;
    return bucket < 0 || last || (w->posted[bucket] && w->kernels[bucket] > 0);
}

static void observe(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                    int64_t end_ns) {
    watch *w = arg;
    if (kind == KOLO_STEP_POST) w->posted[bucket] = true;
    for (int i = 0; kind == KOLO_STEP_KERNEL && i < w->plan->map.n_buckets; i++) {
        if (w->posted[i]) w->kernels[i]++;
    }
    if (kind == KOLO_STEP_WAIT) w->posted[bucket] = false; /* its request is complete */
}

static void build(kolo_graph *g) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(BATCH, 1, 8, 8));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(BATCH));
    int64_t in = 1;
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "conv%d", i);
        kolo_value w = kolo_param(g, name, kolo_shape_4(8, in, 3, 3), kolo_init_fan_in(in * 9));
        x = kolo_relu(g, kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1}));
        in = 8;
    }
    kolo_value w = kolo_param(g, "fc", kolo_shape_2(10, 512), kolo_init_fan_in(512));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, kolo_flatten(g, x), w), y));
}

static kolo_status make_plan(kolo_comm *comm, kolo_store **store, kolo_plan **plan) {
    kolo_graph *g;
    KOLO_TRY(kolo_store_create(store));
    KOLO_TRY(kolo_graph_create(NULL, &g));
    build(g);
    kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9, .bucket_bytes = 64};
    kolo_status status = kolo_plan_compile(g, &opts, *store, comm, plan);
    if (status == KOLO_OK) status = kolo_store_init(*store, 7);
    if (status != KOLO_OK) return status;
    float *x = kolo_plan_input(*plan, "x", NULL);
    int32_t *y = kolo_plan_input(*plan, "y", NULL);
    for (int i = 0; i < BATCH * 64; i++) x[i] = (float)(i % 7) - 3.0f;
    for (int i = 0; i < BATCH; i++) y[i] = (i + kolo_comm_rank(comm)) % 10;
    kolo_plan_set_scalar(*plan, "lr", 0.01);
    kolo_plan_set_scalar(*plan, "grad_scale", 1.0 / (RANKS * BATCH));
    return KOLO_OK;
}

static kolo_status run_gated(kolo_comm *comm, const void *arg, void *out) {
    result *r = out;
    kolo_store *store = NULL;
    watch w = {.plan = NULL};
    kolo_status status = make_plan(comm, &store, &w.plan);
    if (status == KOLO_OK) {
        kolo_comm_set_gate(comm, gate, &w);
        kolo_plan_observe(w.plan, observe, &w);
        status = kolo_plan_run(w.plan);
        kolo_comm_set_gate(comm, NULL, NULL);
        r->buckets = w.plan->map.n_buckets;
        memcpy(r->kernels_between, w.kernels, sizeof w.kernels);
    }
    kolo_plan_destroy(w.plan);
    kolo_store_destroy(store);
    return status;
}

static void a_kernel_runs_between_post_and_completion(void **state) {
    const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        result results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = transports[t],
                        .body = run_gated,
                        .results = results,
                        .result_bytes = sizeof results[0]};
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(results[rank].buckets, 4);
            for (int b = 0; b < results[rank].buckets - 1; b++) {
                assert_true(results[rank].kernels_between[b] > 0);
            }
        }
    }
}

/* Rank 1 leaves before the second step: rank 0's step fails and leaves its parameters unchanged. */
static kolo_status run_alone(kolo_comm *comm, const void *arg, void *out) {
    result *r = out;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    char *before = NULL;
    kolo_status status = make_plan(comm, &store, &plan);
    if (status == KOLO_OK) status = kolo_plan_run(plan);
    if (status == KOLO_OK && kolo_comm_rank(comm) == 0) {
        before = kolo_alloc(store->bytes);
        if (before) memcpy(before, store->bank[store->current], store->bytes);
        r->current_before = store->current;
        status = kolo_plan_run(plan);
        r->current_after = store->current;
        r->stayed = before && !memcmp(before, store->bank[store->current], store->bytes);
    }
    kolo_free(before);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

static void a_broken_step_leaves_the_parameters(void **state) {
    result results[RANKS];
    rank_outcome outcomes[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_SHM,
                    .body = run_alone,
                    .results = results,
                    .result_bytes = sizeof results[0],
                    .outcomes = outcomes};
    assert_int_equal(run_rank_job(&job), KOLO_ERR_PEER);
    assert_int_equal(outcomes[0].status, KOLO_ERR_PEER);
    assert_non_null(strstr(outcomes[0].error, "rank 1"));
    assert_int_equal(outcomes[1].status, KOLO_OK);
    assert_int_equal(results[0].current_after, results[0].current_before);
    assert_true(results[0].stayed);
}

TEST_MAIN(test_overlap) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_runs_between_post_and_completion),
        cmocka_unit_test(a_broken_step_leaves_the_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
