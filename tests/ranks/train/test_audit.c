/* Audited steps: a bit flipped in a gradient, in the owner's or the auditor's computation, is found
 * before it reaches the parameters, and the rank is named. */
#include "data/prefetch.h"
#include "plan/internal.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/audit.h"
#include "train/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 3, STEPS = 3, BATCH = 12, L = 6 };

/* A bit of the gradients is flipped. */
typedef struct fault {
    int ranks, rank;
    int run;    /* of the audited step's computations on the rank: the shards of the next rank, then
                   its own, then the repetition */
    bool stays; /* in all later ones too */
    size_t byte;
    const char *error; /* NULL: no fault */
    int clean;         /* audited steps without a fault before; 0: the first of STEPS - 1 */
} fault;

typedef struct outcome {
    kolo_status status;
    char error[640];
    uint64_t before, after; /* hashes of the parameters around the audited step */
} outcome;

typedef struct injector {
    const fault *fault;
    kolo_plan *plan;
    int run; /* of shards so far in the audited step */
} injector;

/* Flips the bit when the last kernel before a POST is done. */
static void inject(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin,
                   int64_t end) {
    injector *in = arg;
    const kolo_plan *p = in->plan;
    bool posts = step + 1 < p->n_steps && p->steps[step + 1].kind == KOLO_STEP_POST;
    if (kind != KOLO_STEP_KERNEL || !posts || p->steps[step + 1].bucket != 0) return;
    int run = in->run++;
    if (run != in->fault->run && !(in->fault->stays && run > in->fault->run)) return;
    p->gradients[in->fault->byte % p->map.buckets[0].bytes] ^= 4;
}

static kolo_status take_step(kolo_session *session, const kolo_dataset *data, int rank, int ranks,
                             int64_t k, bool audited) {
    kolo_loader_opts opts = {
        .dataset = data, .global_batch = BATCH, .shards = L, .first = k, .end = k + 1};
    kolo_loader *loader = NULL, *other = NULL;
    kolo_batch batch, next;
    kolo_sums sums;
    kolo_session_shards(session, rank, &opts.first_shard, &opts.end_shard);
    kolo_status status = kolo_loader_create(&opts, &loader);
    kolo_session_shards(session, (rank + 1) % ranks, &opts.first_shard, &opts.end_shard);
    if (status == KOLO_OK) status = kolo_loader_create(&opts, &other);
    if (status == KOLO_OK) status = kolo_loader_next(loader, &batch);
    if (status == KOLO_OK) status = kolo_loader_next(other, &next);
    if (status == KOLO_OK && audited) kolo_session_audit(session, &next);
    if (status == KOLO_OK) status = kolo_session_step_batch(session, &batch, 0.1, &sums);
    kolo_loader_destroy(loader);
    kolo_loader_destroy(other);
    return status;
}

static kolo_status run(kolo_session *session, const kolo_dataset *data, kolo_comm *comm,
                       const fault *f, outcome *o) {
    int rank = kolo_comm_rank(comm), ranks = kolo_comm_size(comm);
    injector in = {f, kolo_session_plan(session), 0};
    const kolo_store *store = kolo_session_store(session);
    KOLO_TRY(kolo_session_init(session, 1));
    const int64_t steps = f->clean > 0 ? f->clean : STEPS - 1;
    for (int64_t k = 0; k < steps; k++) {
        KOLO_TRY(take_step(session, data, rank, ranks, k, f->clean > 0 || k == 0));
    }
    if (f->error && rank == f->rank) kolo_plan_observe(in.plan, inject, &in);
    o->before = kolo_store_hash(store);
    o->status = take_step(session, data, rank, ranks, steps, true);
    o->after = kolo_store_hash(store);
    if (o->status != KOLO_OK) snprintf(o->error, sizeof o->error, "%s", kolo_last_error());
    kolo_plan_observe(in.plan, NULL, NULL);
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    kolo_dataset *data;
    kolo_session *session = NULL;
    KOLO_TRY(kolo_dataset_open("synthetic:N=60,test=1,shape=1x8x8", KOLO_SPLIT_TRAIN, &data));
    kolo_session_config opts = {.model = "mlp",
                                .model_options = "hidden=8",
                                .sample = kolo_dataset_describe(data)->fields[KOLO_FIELD_X].shape,
                                .classes = kolo_dataset_describe(data)->classes,
                                .batch = BATCH / L,
                                .global_batch = BATCH,
                                .shards = L,
                                .plan = {.optimizer.momentum = 0.9, .bucket_bytes = 1 << 10}};
    kolo_status status = kolo_session_create_for(&opts, comm, &session);
    if (status == KOLO_OK) status = run(session, data, comm, arg, result);
    kolo_session_destroy(session);
    kolo_dataset_close(data);
    return status;
}

static void check(const fault *f) {
    outcome outcomes[MAX_RANKS] = {0};
    ASSERT_OK(run_rank_job(&(rank_job){.n = f->ranks,
                                       .transport = RANKS_THREAD,
                                       .body = body,
                                       .arg = f,
                                       .arg_bytes = sizeof *f,
                                       .results = outcomes,
                                       .result_bytes = sizeof *outcomes}));
    for (int r = 0; r < f->ranks; r++) {
        const outcome *o = &outcomes[r];
        assert_int_equal(o->status, f->error ? KOLO_ERR_PEER : KOLO_OK);
        if (f->error && !strstr(o->error, f->error)) fail_msg("rank %d: %s", r, o->error);
        assert_true((o->before == o->after) == (f->error != NULL));
        assert_int_equal(o->after, outcomes[0].after);
    }
}

static void a_wrong_gradient_is_found_and_its_rank_named(void **state) {
    static const fault faults[] = {
        {2, 0, 0, false, 0, NULL, 0},
        {3, 0, 0, false, 0, NULL, 0},
        {3, 1, 2, false, 0, "step 3: rank 1 computed a wrong gradient of logical shard 2, though",
         0},
        {3, 1, 3, false, 77, "step 3: rank 1 computed a wrong gradient of logical shard 3, though",
         0},
        {3, 1, 0, false, 13, "step 3: rank 1 computed a wrong gradient of logical shard 4, though",
         0},
        {3, 2, 1, false, 1, "step 3: rank 2 computed a wrong gradient of logical shard 1, though",
         0},
        {3, 2, 2, true, 5, "step 3: rank 2 computed a wrong gradient of logical shard 4, and again",
         0},
        {2, 0, 3, false, 9, "step 3: rank 0 computed a wrong gradient of logical shard 0, though",
         0},
        {2, 1, 1, false, 9, "step 3: rank 1 computed a wrong gradient of logical shard 1, though",
         0},
        {2, 1, 3, true, 9, "rank 1 and rank 0 compute different gradients of logical shard 3", 0},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) check(&faults[i]);
}

/* 200 faults, in any computation of any rank. */
static void no_fault_is_missed(void **state) {
    int n = getenv("KOLO_SOAK") ? 200 : 10;
    for (int i = 0; i < n; i++) {
        char error[64];
        fault f = {.ranks = 3, .rank = i % 3, .run = i / 3 % 4, .byte = (size_t)i * 131};
        snprintf(error, sizeof error, "rank %d computed a wrong gradient", f.rank);
        f.error = error;
        check(&f);
    }
}

static void clean_steps_raise_no_alarm(void **state) {
    check(&(fault){.ranks = 3, .clean = getenv("KOLO_SOAK") ? 9999 : 20});
}

static void a_verdict_needs_a_majority(void **state) {
    static const struct {
        uint64_t of_owner, of_auditor, again[4];
        int ranks;
        const char *error;
    } cases[] = {
        {1, 2, {1, 1, 1}, 3, "rank 2 computed a wrong gradient of logical shard 5, though"},
        {1, 2, {2, 1, 2}, 3, "rank 0 computed a wrong gradient of logical shard 5, though"},
        {1, 2, {1, 2, 2}, 3, "rank 0 computed a wrong gradient of logical shard 5, and again"},
        {1, 2, {3, 1, 3}, 3, "rank 0 and rank 2 compute different"},
        {1, 2, {9, 2, 2, 2}, 4, "rank 0 computed a wrong gradient of logical shard 5, and again"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* The owner is rank 0, the auditor the last rank. */
        kolo_audit_mismatch d = {.step = 7,
                                 .shard = 5,
                                 .auditor = cases[i].ranks - 1,
                                 .of_owner = cases[i].of_owner,
                                 .of_auditor = cases[i].of_auditor,
                                 .again = cases[i].again,
                                 .ranks = cases[i].ranks};
        assert_int_equal(kolo_audit_verdict(&d), KOLO_ERR_PEER);
        if (!strstr(kolo_last_error(), cases[i].error)) fail_msg("%zu: %s", i, kolo_last_error());
    }
}

TEST_MAIN(test_audit) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_gradient_is_found_and_its_rank_named),
        cmocka_unit_test(no_fault_is_missed),
        cmocka_unit_test(clean_steps_raise_no_alarm),
        cmocka_unit_test(a_verdict_needs_a_majority),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
