/* Overlap of communication and computation, tested by the order of events; and a step as a
 * transaction.
 *
 * Overlap: a gate blocks the allreduce of each bucket but the last until a kernel has run after its
 * POST. A plan that waits before computing would block in WAIT until the deadline, which fails the
 * test.
 *
 * Across steps: the gate of each bucket but the last opens when a kernel of the next forward pass
 * has run, or never. A step that is completed by itself makes an update while later sums are on
 * their way: their gates open when a kernel of it has run. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/request.h"
#include "plan/internal.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

enum { RANKS = 2, BATCH = 4, LAYERS = 3, MOST_BUCKETS = 32 };

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
        if (*kolo_plan_request_at(plan, 0, i, 0) == request) return i;
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

static void build(kolo_graph *g, int layers) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(BATCH, 1, 8, 8));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(BATCH));
    int64_t in = 1;
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "conv%d", i);
        kolo_value w = kolo_param(g, name, kolo_shape_4(8, in, 3, 3), kolo_init_fan_in(in * 9));
        x = kolo_relu(g, kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1}));
        in = 8;
    }
    kolo_value w = kolo_param(g, "fc", kolo_shape_2(10, 512), kolo_init_fan_in(512));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, kolo_flatten(g, x), w), y));
}

static kolo_status make(kolo_comm *comm, int layers, const kolo_plan_opts *opts, kolo_store **store,
                        kolo_plan **plan) {
    kolo_graph *g;
    KOLO_TRY(kolo_store_create(NULL, store));
    KOLO_TRY(kolo_graph_create(NULL, &g));
    build(g, layers);
    kolo_status status = kolo_plan_compile(g, opts, *store, comm, plan);
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

static kolo_status make_parts(kolo_comm *comm, int layers, bool cross_step, int micro_batches,
                              kolo_store **store, kolo_plan **plan) {
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer.momentum = 0.9,
                                 .micro_batches = micro_batches,
                                 .bucket_bytes = 64,
                                 .cross_step = cross_step};
    return make(comm, layers, &opts, store, plan);
}

static kolo_status make_timed(kolo_comm *comm, kolo_plan_times *times, kolo_store **store,
                              kolo_plan **plan) {
    const kolo_plan_opts opts = {
        .train = true, .bucket_bytes = 1, .cross_step = true, .times = times};
    return make(comm, LAYERS, &opts, store, plan);
}

static kolo_status make_plan(kolo_comm *comm, int layers, bool cross_step, kolo_store **store,
                             kolo_plan **plan) {
    return make_parts(comm, layers, cross_step, 1, store, plan);
}

static kolo_status run_gated(kolo_comm *comm, const void *arg, void *out) {
    result *r = out;
    kolo_store *store = NULL;
    watch w = {.plan = NULL};
    kolo_status status = make_plan(comm, LAYERS, false, &store, &w.plan);
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
    kolo_status status = make_plan(comm, LAYERS, false, &store, &plan);
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

/* ---- across steps ---- */

enum { STEPS = 3 };

typedef struct crossing {
    bool cross_step;
} crossing;

typedef struct crossed {
    int buckets;
    int kernels[MOST_BUCKETS]; /* of the next forward pass, before the request may end; the least */
    uint64_t hash;
    int before, after; /* the current bank */
    bool stayed;
    int deferred; /* steps that leave updates */
} crossed;

typedef struct crossing_watch {
    kolo_plan *plan;
    bool never;
    int runs, kernels; /* kernels of this run, but for those that the one before left */
    bool posted[MOST_BUCKETS];
    int least[MOST_BUCKETS];
} crossing_watch;

/* The last bucket is awaited in its own step. */
static bool cross_gate(void *arg, const kolo_request *request) {
    const crossing_watch *w = arg;
    const int bucket = bucket_of(w->plan, request);
    if (bucket < 0 || bucket == w->plan->map.n_buckets - 1) return true;
    return !w->never && (w->runs == STEPS || (!w->posted[bucket] && w->kernels > 0));
}

static void cross_observe(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                          int64_t end_ns) {
    crossing_watch *w = arg;
    w->kernels += kind == KOLO_STEP_KERNEL && !w->plan->steps[step].deferred;
    if (kind == KOLO_STEP_POST) w->posted[bucket] = true; /* in this run */
    if (kind != KOLO_STEP_WAIT || w->posted[bucket] || w->runs == STEPS) return;
    if (w->least[bucket] == 0 || w->kernels < w->least[bucket]) w->least[bucket] = w->kernels;
}

static kolo_status run_crossing(crossing_watch *w, kolo_store *store, const crossing *c) {
    for (w->runs = 0; w->runs < STEPS; w->runs++) {
        w->kernels = 0;
        memset(w->posted, 0, sizeof w->posted);
        kolo_plan_set_scalar(w->plan, "lr", 0.01 * (w->runs + 1)); /* that of each step counts */
        KOLO_TRY(kolo_plan_run(w->plan));
        if (kolo_store_has_deferred(store) != c->cross_step) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "the updates are in another step");
        }
    }
    return kolo_store_run_deferred(store);
}

static kolo_status run_crossed(kolo_comm *comm, const void *arg, void *out) {
    const crossing *c = arg;
    crossed *r = out;
    kolo_store *store = NULL;
    crossing_watch w = {.plan = NULL};
    kolo_status status = make_plan(comm, LAYERS, c->cross_step, &store, &w.plan);
    if (status == KOLO_OK) {
        if (c->cross_step) kolo_comm_set_gate(comm, cross_gate, &w);
        kolo_plan_observe(w.plan, cross_observe, &w);
        status = run_crossing(&w, store, c);
        kolo_comm_set_gate(comm, NULL, NULL);
        r->buckets = w.plan->map.n_buckets;
        memcpy(r->kernels, w.least, sizeof w.least);
        if (status == KOLO_OK) r->hash = kolo_store_hash(store);
    }
    kolo_plan_destroy(w.plan);
    kolo_store_destroy(store);
    return status;
}

static void sums_end_in_the_next_forward_pass(void **state) {
    const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM};
    uint64_t hash = 0;
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        for (int off = 0; off < 2; off++) {
            const crossing c = {.cross_step = !off};
            crossed results[RANKS];
            rank_job job = {.n = RANKS,
                            .transport = transports[t],
                            .body = run_crossed,
                            .arg = &c,
                            .arg_bytes = sizeof c,
                            .results = results,
                            .result_bytes = sizeof results[0]};
            ASSERT_OK(run_rank_job(&job));
            for (int rank = 0; rank < RANKS; rank++) {
                assert_int_equal(results[rank].buckets, 4);
                for (int b = 0; b < results[rank].buckets - 1 && !off; b++) {
                    assert_true(results[rank].kernels[b] > 0);
                }
                if (hash == 0) hash = results[0].hash;
                assert_true(results[rank].hash == hash); /* the same bits in every way */
            }
            if (!off) assert_true(results[0].kernels[0] > results[0].kernels[2]); /* fc, conv1 */
        }
    }
}

/* A sum of the first layer, too, ends only after a kernel behind its POST: what has moved behind
 * it. Only the last bucket, of the loss, is awaited in its own step. */
static kolo_status run_ahead(kolo_comm *comm, const void *arg, void *out) {
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer.momentum = 0.9,
                                 .bucket_bytes = 64,
                                 .cross_step = true,
                                 .runs_ahead = true};
    result *r = out;
    kolo_store *store = NULL;
    watch w = {.plan = NULL};
    kolo_status status = make(comm, LAYERS, &opts, &store, &w.plan);
    if (status == KOLO_OK) {
        kolo_comm_set_gate(comm, gate, &w);
        kolo_plan_observe(w.plan, observe, &w);
        for (int k = 0; k < 2 && status == KOLO_OK; k++) status = kolo_plan_run(w.plan);
        if (status == KOLO_OK) status = kolo_store_run_deferred(store);
        kolo_comm_set_gate(comm, NULL, NULL);
        r->buckets = w.plan->map.n_buckets;
    }
    kolo_plan_destroy(w.plan);
    kolo_store_destroy(store);
    return status;
}

static void the_first_layer_is_awaited_after_another_gradient(void **state) {
    result results[RANKS];
    const rank_job job = {.n = RANKS,
                          .transport = RANKS_THREAD,
                          .body = run_ahead,
                          .results = results,
                          .result_bytes = sizeof results[0]};
    ASSERT_OK(run_rank_job(&job));
    assert_int_equal(results[0].buckets, 5);
}

typedef struct deferred_watch {
    kolo_plan *plan;
    int updated; /* kernels of updates that were left, since the last POST */
} deferred_watch;

/* What is posted first, and the last bucket, which is awaited in the step, may end. */
static bool deferred_gate(void *arg, const kolo_request *request) {
    const deferred_watch *w = arg;
    const int bucket = bucket_of(w->plan, request);
    return bucket <= 0 || bucket == w->plan->map.n_buckets - 1 || w->updated > 0;
}

static void deferred_observe(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                             int64_t end_ns) {
    deferred_watch *w = arg;
    if (kind == KOLO_STEP_POST) w->updated = 0;
    w->updated += kind == KOLO_STEP_KERNEL && w->plan->steps[step].deferred;
}

static kolo_status run_deferred(kolo_comm *comm, const void *arg, void *out) {
    const crossing *c = arg;
    crossed *r = out;
    kolo_store *store = NULL;
    deferred_watch w = {.plan = NULL};
    kolo_status status = make_plan(comm, LAYERS, c->cross_step, &store, &w.plan);
    if (status == KOLO_OK && c->cross_step) kolo_comm_set_gate(comm, deferred_gate, &w);
    if (status == KOLO_OK) kolo_plan_observe(w.plan, deferred_observe, &w);
    for (int i = 0; i < STEPS && status == KOLO_OK; i++) {
        kolo_plan_set_scalar(w.plan, "lr", 0.01 * (i + 1));
        status = kolo_plan_run(w.plan);
        if (status == KOLO_OK) r->deferred += kolo_store_has_deferred(store);
        if (status == KOLO_OK) status = kolo_store_run_deferred(store);
    }
    kolo_comm_set_gate(comm, NULL, NULL);
    if (status == KOLO_OK) r->hash = kolo_store_hash(store);
    kolo_plan_destroy(w.plan);
    kolo_store_destroy(store);
    return status;
}

static void sums_end_after_the_first_update_of_a_completed_step(void **state) {
    const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        uint64_t hash = 0;
        for (int on = 0; on < 2; on++) {
            const crossing c = {.cross_step = on};
            crossed results[RANKS];
            rank_job job = {.n = RANKS,
                            .transport = transports[t],
                            .body = run_deferred,
                            .arg = &c,
                            .arg_bytes = sizeof c,
                            .results = results,
                            .result_bytes = sizeof results[0]};
            ASSERT_OK(run_rank_job(&job));
            if (!on) hash = results[0].hash;
            for (int rank = 0; rank < RANKS; rank++) {
                assert_int_equal(results[rank].deferred, on ? STEPS : 0);
                assert_true(results[rank].hash == hash);
            }
        }
    }
}

/* Rank 1 leaves while the sums of a step are on their way: rank 0's next step fails, and its
 * parameters are those before the first of both. */
static kolo_status run_taken_back(kolo_comm *comm, const void *arg, void *out) {
    crossed *r = out;
    kolo_store *store = NULL;
    crossing_watch w = {.never = true};
    char *before = NULL;
    kolo_status status = make_plan(comm, LAYERS, true, &store, &w.plan);
    if (status == KOLO_OK) {
        before = kolo_alloc(store->bytes);
        if (before) memcpy(before, store->bank[store->current], store->bytes);
        r->before = store->current;
        kolo_comm_set_gate(comm, cross_gate, &w);
        status = kolo_plan_run(w.plan);
        (void)kolo_barrier(comm); /* both have; it may fail on rank 0, if rank 1 leaves before */
    }
    if (status == KOLO_OK && kolo_comm_rank(comm) == 0) {
        status = kolo_plan_run(w.plan);
        r->after = store->current;
        r->stayed = before && !memcmp(before, store->bank[store->current], store->bytes) &&
                    kolo_store_rollbacks(store) == 1;
    }
    kolo_comm_set_gate(comm, NULL, NULL);
    kolo_free(before);
    kolo_plan_destroy(w.plan);
    kolo_store_destroy(store);
    return status;
}

static void a_broken_step_takes_back_the_one_before(void **state) {
    crossed results[RANKS];
    rank_outcome outcomes[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_SHM,
                    .body = run_taken_back,
                    .results = results,
                    .result_bytes = sizeof results[0],
                    .outcomes = outcomes};
    assert_int_not_equal(run_rank_job(&job), KOLO_OK);
    assert_non_null(strstr(outcomes[0].error, "rank 1"));
    assert_int_equal(outcomes[1].status, KOLO_OK);
    assert_int_equal(results[0].after, results[0].before);
    assert_true(results[0].stayed);
}

/* Rank 1 has no samples from the second step on: its first micro-batch makes the memory of the sums
 * zero, which the step before has left. */
static kolo_status run_skipping(kolo_comm *comm, const void *arg, void *out) {
    const crossing *c = arg;
    crossed *r = out;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    kolo_status status = make_parts(comm, LAYERS, c->cross_step, 2, &store, &plan);
    for (int step = 0; step < STEPS && status == KOLO_OK; step++) {
        const bool skips = step > 0 && kolo_comm_rank(comm) == 1;
        for (int i = 0; i < 2 && status == KOLO_OK; i++) {
            kolo_plan_set_scalar(plan, "fresh", i == 0);
            if (skips) {
                status = kolo_plan_skip(plan, i == 1);
            } else {
                status = i == 0 ? kolo_plan_accumulate(plan) : kolo_plan_run(plan);
            }
        }
        if (status == KOLO_OK && kolo_store_has_deferred(store) != c->cross_step) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "the updates are in another step");
        }
    }
    if (status == KOLO_OK) status = kolo_store_run_deferred(store);
    if (status == KOLO_OK) r->hash = kolo_store_hash(store);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

static void a_step_without_samples_follows_what_is_left(void **state) {
    uint64_t hash = 0;
    for (int off = 0; off < 2; off++) {
        const crossing c = {.cross_step = !off};
        crossed results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = RANKS_THREAD,
                        .body = run_skipping,
                        .arg = &c,
                        .arg_bytes = sizeof c,
                        .results = results,
                        .result_bytes = sizeof results[0]};
        ASSERT_OK(run_rank_job(&job));
        if (hash == 0) hash = results[0].hash;
        for (int rank = 0; rank < RANKS; rank++) assert_true(results[rank].hash == hash);
    }
}

/* Priorities of two buckets that are left, of which the next step needs the last one first. */
typedef struct priorities {
    int first, last;
} priorities;

static kolo_status read_priorities(kolo_comm *comm, const void *arg, void *out) {
    const int *layers = arg;
    priorities *r = out;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    const kolo_status status = make_plan(comm, *layers, true, &store, &plan);
    if (status == KOLO_OK) {
        const int last = plan->map.n_buckets - 2; /* that is left */
        *r = (priorities){(*kolo_plan_request_at(plan, 0, 0, 0))->priority,
                          (*kolo_plan_request_at(plan, 0, last, 0))->priority};
    }
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

/* Sums that need more room than there is in flight go in the order of their start. */
static void sums_have_priorities_where_all_fit(void **state) {
    for (int many = 0; many < 2; many++) {
        const int layers = many ? KOLO_FLIGHT_MAX : LAYERS;
        priorities results[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = RANKS_THREAD,
                        .body = read_priorities,
                        .arg = &layers,
                        .arg_bytes = sizeof layers,
                        .results = results,
                        .result_bytes = sizeof results[0]};
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(results[rank].first < results[rank].last, !many);
            if (many) assert_int_equal(results[rank].first, results[rank].last);
        }
    }
}

static kolo_status measure_needs(kolo_comm *comm, const void *arg, void *out) {
    kolo_ready_gradient *r = out;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    kolo_plan_times times = {0};
    KOLO_TRY(make_timed(comm, &times, &store, &plan));
    kolo_status status = kolo_plan_run(plan);
    if (status == KOLO_OK) status = kolo_plan_run(plan);
    if (status == KOLO_OK && kolo_plan_list_gradients(plan, r) != LAYERS + 1) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "not a bucket for each gradient");
    }
    if (status == KOLO_OK) status = kolo_store_run_deferred(store);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

/* The backward pass completes the gradients of the last layer first, the forward pass needs its
 * parameters last; what the first layer needs is awaited in the step. */
static void a_forward_pass_shows_when_it_needs_sums(void **state) {
    kolo_ready_gradient results[RANKS][LAYERS + 1];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_THREAD,
                    .body = measure_needs,
                    .results = results,
                    .result_bytes = sizeof results[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 0; rank < RANKS; rank++) {
        const kolo_ready_gradient *g = results[rank];
        for (int i = 0; i < LAYERS; i++) {
            assert_true(g[i].ready_ms < g[i + 1].ready_ms);
            assert_true(g[i].needed_ms > g[i + 1].needed_ms);
        }
        assert_true(g[LAYERS].needed_ms == 0);
    }
}

TEST_MAIN(test_overlap) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_runs_between_post_and_completion),
        cmocka_unit_test(a_broken_step_leaves_the_parameters),
        cmocka_unit_test(sums_end_in_the_next_forward_pass),
        cmocka_unit_test(the_first_layer_is_awaited_after_another_gradient),
        cmocka_unit_test(sums_end_after_the_first_update_of_a_completed_step),
        cmocka_unit_test(a_broken_step_takes_back_the_one_before),
        cmocka_unit_test(a_step_without_samples_follows_what_is_left),
        cmocka_unit_test(sums_have_priorities_where_all_fit),
        cmocka_unit_test(a_forward_pass_shows_when_it_needs_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
