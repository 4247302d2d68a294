/* Training computes the same for any division of the global batch: N ranks with batch B against one
 * with N*B, ring against direct, threads against processes, a run against its repetition. lenet on
 * Fashion-MNIST, or on synthetic images where the package is missing, and under sanitizers. The
 * reference kernels: test_equivalence_f64. */
#include "data/prefetch.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = TEST_FEWER(4, 20), PARAMETERS = 61706, MAX_RANKS = 4 };

static const double tolerance = 1e-5;

/* Each rank of each run decompresses the images again. */
static const char *data = TEST_FEWER("synthetic:test=320", "fashion-mnist");

typedef struct setting {
    int ranks;
    int64_t batch; /* of each rank, in a micro-batch */
    int64_t accumulate;
    kolo_algorithm algorithm;
    char data[64]; /* default: `data` */
} setting;

typedef struct outcome {
    uint64_t hash;
    double losses[STEPS];
    float parameters[PARAMETERS];
} outcome;

/* ---- one run ---- */

static void get_parameters(const kolo_store *store, float *to) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (entry->kind != KOLO_VALUE_PARAM) continue;
        kolo_store_read(store, entry, to);
        to += kolo_shape_count(&entry->canon);
    }
}

static kolo_status train(kolo_session *session, kolo_loader *loader, outcome *result) {
    KOLO_TRY(kolo_session_init(session, 3));
    if (kolo_session_parameters(session) != PARAMETERS) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "lenet has another number of parameters");
    }
    for (int k = 0; k < STEPS; k++) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        KOLO_TRY(kolo_session_step_batch(session, &batch, 0.05, &sums));
        result->losses[k] = sums.metric[KOLO_METRIC_LOSS] / (double)sums.samples;
    }
    get_parameters(kolo_session_store(session), result->parameters);
    result->hash = kolo_store_hash(kolo_session_store(session));
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_dataset *dataset = NULL;
    kolo_loader *loader = NULL;
    kolo_session *session = NULL;
    kolo_status status;
    /* The smaller split: it opens faster. */
    KOLO_TRY_GOTO(kolo_dataset_open(s->data, KOLO_SPLIT_TEST, &dataset), done);
    kolo_loader_opts loader_opts = {
        .dataset = dataset,
        .global_batch = s->batch * s->accumulate * s->ranks,
        .seed = 3,
        .rank = kolo_comm_rank(comm),
        .world = s->ranks,
        .end = STEPS,
    };
    KOLO_TRY_GOTO(kolo_loader_create(&loader_opts, &loader), done);
    kolo_session_config opts = {
        .model = "lenet",
        .sample = kolo_dataset_describe(dataset)->fields[KOLO_FIELD_X].shape,
        .classes = kolo_dataset_describe(dataset)->classes,
        .batch = s->batch,
        .accumulate = s->accumulate,
        .plan = {.algorithm = s->algorithm,
                 .optimizer.momentum = 0.9,
                 .optimizer.weight_decay = 5e-4,
                 .bucket_bytes = 64 << 10},
    };
    KOLO_TRY_GOTO(kolo_session_create_for(&opts, comm, &session), done);
    status = train(session, loader, result);
done:
    kolo_session_destroy(session);
    kolo_loader_destroy(loader);
    kolo_dataset_close(dataset);
    return status;
}

/* Trains; returns the outcome of rank 0, which all ranks must share. */
static const outcome *run(setting s, rank_transport transport) {
    static outcome results[2][MAX_RANKS];
    static int turn;
    outcome *own = results[turn ^= 1];
    if (!s.accumulate) s.accumulate = 1;
    if (!s.data[0]) snprintf(s.data, sizeof s.data, "%s", data);
    rank_job job = {
        .n = s.ranks,
        .transport = transport,
        .body = body,
        .arg = &s,
        .arg_bytes = sizeof s,
        .results = own,
        .result_bytes = sizeof *own,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 1; rank < s.ranks; rank++) {
        assert_int_equal(own[rank].hash, own[0].hash);
        assert_memory_equal(own[rank].losses, own[0].losses, sizeof own[0].losses);
    }
    return own;
}

static void assert_close(const outcome *a, const outcome *b, const char *what) {
    double losses = test_relative_l2_f64(a->losses, b->losses, STEPS);
    double parameters = test_relative_l2_f32(a->parameters, b->parameters, PARAMETERS);
    if (!(losses < tolerance && parameters < tolerance)) {
        fail_msg("%s: losses differ by %g, parameters by %g", what, losses, parameters);
    }
}

static void assert_same_bits(const outcome *a, const outcome *b) {
    assert_int_equal(a->hash, b->hash);
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_memory_equal(a->parameters, b->parameters, sizeof a->parameters);
}

/* ---- tests ---- */

static void splits_agree(int64_t whole, const int *ranks, int n) {
    setting alone = {.ranks = 1, .batch = whole};
    static outcome expected;
    expected = *run(alone, RANKS_THREAD);
    if (TEST_FEWER(false, true)) assert_true(expected.losses[STEPS - 1] < expected.losses[0]);
    for (int i = 0; i < n; i++) {
        setting split = {.ranks = ranks[i], .batch = whole / ranks[i]};
        char what[64];
        snprintf(what, sizeof what, "%d ranks on %d", ranks[i], (int)whole);
        assert_close(run(split, RANKS_THREAD), &expected, what);
    }
}

static void ranks_share_a_batch_without_changing_it(void **state) {
    splits_agree(64, (const int[]){2, 4}, 2);
    splits_agree(60, (const int[]){3}, 1);
}

/* Epochs of 7 samples in steps of 6 and 1: two of three ranks have none in every second step. */
static void ranks_without_samples_add_nothing(void **state) {
    setting split = {.ranks = 3, .batch = 2, .data = "synthetic:test=7,seed=1"};
    setting alone = {.ranks = 1, .batch = 6, .data = "synthetic:test=7,seed=1"};
    const outcome *shared = run(split, RANKS_THREAD);
    assert_close(shared, run(alone, RANKS_THREAD), "a tail of one sample on 3 ranks");
}

/* Micro-batches equal one batch up to rounding, on any number of ranks. Epochs of 50 samples end in
 * a step of 18: micro-batches of 9, or of 5 and 4 on each of two ranks, or of 6. */
static void micro_batches_add_up_to_one_batch(void **state) {
    static const char *const sets[] = {"synthetic:test=320", "synthetic:test=50"};
    static const setting cut[] = {
        {.ranks = 1, .batch = 16, .accumulate = 2}, {.ranks = 1, .batch = 8, .accumulate = 4},
        {.ranks = 2, .batch = 8, .accumulate = 2},  {.ranks = 4, .batch = 4, .accumulate = 2},
        {.ranks = 4, .batch = 1, .accumulate = 8},
    };
    for (size_t d = 0; d < KOLO_COUNT(sets); d++) {
        setting whole = {.ranks = 1, .batch = 32};
        snprintf(whole.data, sizeof whole.data, "%s", sets[d]);
        static outcome expected;
        expected = *run(whole, RANKS_THREAD);
        for (size_t i = 0; i < KOLO_COUNT(cut); i++) {
            setting s = cut[i];
            char what[96];
            snprintf(s.data, sizeof s.data, "%s", sets[d]);
            snprintf(what, sizeof what, "%s, %d ranks, %d x %d", sets[d], s.ranks,
                     (int)s.accumulate, (int)s.batch);
            assert_close(run(s, RANKS_THREAD), &expected, what);
        }
    }
}

static void ring_and_direct_agree(void **state) {
    setting ring = {.ranks = 3, .batch = 20, .algorithm = KOLO_ALGORITHM_RING};
    setting direct = {.ranks = 3, .batch = 20, .algorithm = KOLO_ALGORITHM_DIRECT};
    const outcome *a = run(ring, RANKS_THREAD);
    assert_close(a, run(direct, RANKS_THREAD), "ring and direct");
}

static void threads_and_processes_give_the_same_bits(void **state) {
    static const kolo_algorithm algorithms[] = {KOLO_ALGORITHM_RING, KOLO_ALGORITHM_DIRECT};
    for (int i = 0; i < 2; i++) {
        setting s = {.ranks = 2, .batch = 32, .algorithm = algorithms[i]};
        const outcome *threads = run(s, RANKS_THREAD);
        assert_same_bits(threads, run(s, RANKS_SHM));
    }
    setting s = {.ranks = 3, .batch = 20};
    const outcome *threads = run(s, RANKS_THREAD);
    assert_same_bits(threads, run(s, RANKS_SHM));
}

static void a_run_repeats_to_the_bit(void **state) {
    setting s = {.ranks = 4, .batch = 16};
    const outcome *first = run(s, RANKS_THREAD);
    assert_same_bits(first, run(s, RANKS_THREAD));
}

TEST_MAIN(test_equivalence) {
    kolo_dataset *dataset;
    if (kolo_dataset_open(data, KOLO_SPLIT_TEST, &dataset) == KOLO_OK) {
        kolo_dataset_close(dataset);
    } else {
        printf("skip: real images: %s; synthetic ones instead\n", kolo_last_error());
        data = "synthetic";
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_a_batch_without_changing_it),
        cmocka_unit_test(ranks_without_samples_add_nothing),
        cmocka_unit_test(micro_batches_add_up_to_one_batch),
        cmocka_unit_test(ring_and_direct_agree),
        cmocka_unit_test(threads_and_processes_give_the_same_bits),
        cmocka_unit_test(a_run_repeats_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
