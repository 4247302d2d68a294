/* Ranks that read each other's gradients in place: one that is ahead of the others overwrites
 * nothing that they still read, so that delays change no bit. */
#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "plan/internal.h"
#include "support/layers.h"
#include "support/ranks.h"
#include "support/support.h"

enum { RANKS = 3, BATCH = 4, LAYERS = 3, WIDTH = 128, STEPS = 3, DELAY_NS = 3000000 };

typedef struct row {
    const char *name;
    kolo_optimizer_opts optimizer;
    kolo_step_kind delayed; /* a rank sleeps after steps of this kind */
    bool kernels;           /* updates add the summands themselves */
    int micro_batches;
} row;

static const row rows[] = {
    {"momentum", {.momentum = 0.9}, KOLO_STEP_WAIT, true, 1},
    {"plain", {.momentum = 0}, KOLO_STEP_POST, true, 1},
    {"adam", {.kind = KOLO_OPTIMIZER_ADAM}, KOLO_STEP_WAIT, true, 2},
    {"clipped", {.momentum = 0.9, .clip = 0.1}, KOLO_STEP_WAIT, false, 1},
    {"lars", {.kind = KOLO_OPTIMIZER_LARS, .momentum = 0.9}, KOLO_STEP_WAIT, false, 1},
};

typedef struct job {
    row row;
    bool share;
    int slow; /* the rank that is delayed; -1: none */
} job;

typedef struct result {
    uint64_t hash;
    int in_kernels, apart; /* ranges of gradients that this rank adds up */
} result;

static kolo_status make_plan(const job *j, kolo_comm *comm, kolo_store *store, kolo_plan **plan) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    layers_build(g, BATCH, WIDTH, LAYERS);
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer = j->row.optimizer,
                                 .share = j->share,
                                 .zero = j->share ? 1 : 0,
                                 .algorithm = KOLO_ALGORITHM_DIRECT,
                                 .bucket_bytes = 100000,
                                 .micro_batches = j->row.micro_batches};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    if (j->share) KOLO_TRY(kolo_store_share(store, comm));
    KOLO_TRY(kolo_store_init(store, 7));
    return kolo_barrier(comm); /* rank 0 has set what all share */
}

/* Other gradients in each step and on each rank. */
static void feed(kolo_plan *plan, int rank, int step) {
    float *x = kolo_plan_input(plan, "x", NULL);
    int32_t *y = kolo_plan_input(plan, "y", NULL);
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = (float)((i + 3 * rank + 5 * step) % 7) - 3.0F;
    for (int i = 0; i < BATCH; i++) y[i] = (i + rank + step) % WIDTH;
}

static void delay(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                  int64_t end_ns) {
    if (kind == *(const kolo_step_kind *)arg) kolo_sleep_ns(DELAY_NS);
}

static kolo_status run(kolo_plan *plan, const row *r, int rank, int step) {
    const kolo_value update = kolo_plan_find_scalar(plan, "update");
    kolo_plan_set_scalar(plan, "lr", 0.01);
    kolo_plan_set(plan, update, step + 1);
    kolo_plan_set_scalar(plan, "grad_scale", 1.0 / (RANKS * BATCH * r->micro_batches));
    for (int m = 1; m < r->micro_batches; m++) {
        feed(plan, rank, STEPS + step);
        kolo_plan_set_scalar(plan, "fresh", m == 1);
        KOLO_TRY(kolo_plan_accumulate(plan));
        kolo_plan_set_scalar(plan, "fresh", 0);
    }
    feed(plan, rank, step);
    return kolo_plan_run(plan);
}

static kolo_status hash_of(const kolo_store *store, uint64_t *hash) {
    float w[WIDTH * WIDTH];
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        layers_name(i, name);
        KOLO_TRY(kolo_store_read(store, kolo_store_find(store, name), w));
        const uint64_t both[] = {*hash, kolo_hash_bytes(w, sizeof w)};
        *hash = kolo_hash_bytes(both, sizeof both);
    }
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *out) {
    const job *j = arg;
    result *found = out;
    const int rank = kolo_comm_rank(comm);
    kolo_step_kind kind = j->row.delayed;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    kolo_status status = kolo_store_create(NULL, &store);
    if (status == KOLO_OK) status = make_plan(j, comm, store, &plan);
    if (status == KOLO_OK && rank == j->slow) kolo_plan_observe(plan, delay, &kind);
    for (int step = 0; step < STEPS && status == KOLO_OK; step++) {
        status = run(plan, &j->row, rank, step);
    }
    if (status == KOLO_OK) status = hash_of(store, &found->hash);
    for (int i = 0; plan && i < plan->n_summands; i++) {
        found->in_kernels += plan->summands[i].read;
        found->apart += !plan->summands[i].read;
    }
    /* The others may still read what this rank has. */
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

static uint64_t train(const row *r, rank_transport transport, bool share, int slow) {
    const job j = {*r, share, slow};
    result results[RANKS];
    int ranges = 0;
    rank_job ranks = {.n = RANKS,
                      .transport = transport,
                      .body = body,
                      .arg = &j,
                      .arg_bytes = sizeof j,
                      .results = results,
                      .result_bytes = sizeof results[0]};
    ASSERT_OK(run_rank_job(&ranks));
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(results[rank].hash == results[0].hash);
        assert_int_equal(r->kernels ? results[rank].apart : results[rank].in_kernels, 0);
        ranges += results[rank].in_kernels + results[rank].apart;
    }
    assert_true(share ? ranges >= LAYERS : ranges == 0);
    return results[0].hash;
}

static void delays_change_no_bit(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM};
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        const uint64_t plain = train(&rows[i], RANKS_THREAD, false, -1);
        for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
            const int slow = (int)(i + t) % RANKS;
            if (train(&rows[i], transports[t], true, slow) == plain) continue;
            fail_msg("%s: rank %d, which is slow, gets other parameters", rows[i].name, slow);
        }
    }
}

TEST_MAIN(test_summands) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delays_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
