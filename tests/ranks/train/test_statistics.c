/* Batch normalization on several ranks: each normalizes by its own batch, or all by the whole batch
 * (sync: as one rank does); all keep the same running statistics, the mean over the ranks weighted
 * by samples, also with unequal shares and ranks without samples. Micro-batches update them one
 * after the other. */
#include "data/prefetch.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 3, WIDTH = 4 };

typedef struct setting {
    int ranks, steps;
    int64_t batch; /* of each rank, in a micro-batch */
    int64_t accumulate;
    double lr;
    bool sync;
    char data[64];
} setting;

typedef struct outcome {
    uint64_t hash;
    float mean[WIDTH], var[WIDTH], deep; /* of bn1; the last variance of the last layer */
    double loss;                         /* of the last step */
} outcome;

static kolo_status take_steps(kolo_session *session, kolo_loader *loader, const setting *s,
                              outcome *o) {
    KOLO_TRY(kolo_session_init(session, 3));
    for (int k = 0; k < s->steps; k++) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        KOLO_TRY(kolo_session_step_batch(session, &batch, s->lr, &sums));
        o->loss = sums.metric[KOLO_METRIC_LOSS] / (double)sums.samples;
    }
    return KOLO_OK;
}

static void read_statistics(const kolo_store *store, outcome *o) {
    float deep[4 * WIDTH];
    kolo_store_read(store, kolo_store_find(store, "bn1.running_mean"), o->mean);
    kolo_store_read(store, kolo_store_find(store, "bn1.running_var"), o->var);
    kolo_store_read(store, kolo_store_find(store, "layer3.2.bn2.running_var"), deep);
    o->deep = deep[4 * WIDTH - 1];
    o->hash = kolo_store_hash(store);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_dataset *dataset = NULL;
    kolo_loader *loader = NULL;
    kolo_session *session = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_open(s->data, KOLO_SPLIT_TEST, &dataset), done);
    kolo_loader_opts loader_opts = {
        .dataset = dataset,
        .global_batch = s->batch * s->accumulate * s->ranks,
        .seed = 3,
        .rank = kolo_comm_rank(comm),
        .world = s->ranks,
        .end = s->steps,
    };
    KOLO_TRY_GOTO(kolo_loader_create(&loader_opts, &loader), done);
    kolo_session_config opts = {
        .model = "resnet20",
        .model_options = "width=4",
        .sample = kolo_dataset_describe(dataset)->fields[KOLO_FIELD_X].shape,
        .classes = kolo_dataset_describe(dataset)->classes,
        .batch = s->batch,
        .accumulate = s->accumulate,
        .plan = {.optimizer.momentum = 0.9, .bucket_bytes = 4 << 10, .sync_batch_norm = s->sync},
    };
    KOLO_TRY_GOTO(kolo_session_create_for(&opts, comm, &session), done);
    status = take_steps(session, loader, s, result);
    if (status == KOLO_OK) read_statistics(kolo_session_store(session), result);
done:
    kolo_session_destroy(session);
    kolo_loader_destroy(loader);
    kolo_dataset_close(dataset);
    return status;
}

/* Trains; returns the outcome of rank 0, which all ranks must share. */
static outcome run(setting s, rank_transport transport) {
    outcome results[MAX_RANKS];
    if (!s.accumulate) s.accumulate = 1;
    memset(results, 0, sizeof results);
    rank_job job = {
        .n = s.ranks,
        .transport = transport,
        .body = body,
        .arg = &s,
        .arg_bytes = sizeof s,
        .results = results,
        .result_bytes = sizeof *results,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 1; rank < s.ranks; rank++) {
        assert_memory_equal(&results[rank], &results[0], sizeof *results);
    }
    assert_true(isfinite(results[0].deep) && results[0].deep > 0 && results[0].deep != 1);
    return results[0];
}

static void all_ranks_keep_the_same_statistics(void **state) {
    setting s = {.ranks = 3, .steps = 4, .batch = 2, .lr = 0.05};
    for (s.accumulate = 1; s.accumulate <= 2; s.accumulate++) { /* 6, 1, 6, 1; 12, 1, 12, 1 */
        snprintf(s.data, sizeof s.data, "synthetic:test=%d", (int)(6 * s.accumulate) + 1);
        outcome threads = run(s, RANKS_THREAD), processes = run(s, RANKS_SHM);
        assert_memory_equal(&threads, &processes, sizeof threads);
    }
}

/* The input of the first normalization does not depend on the division, so after one step the
 * running mean must be that of one rank. Ten samples are 4, 3 and 3 on three ranks. */
static void shares_count_by_their_samples(void **state) {
    setting alone = {.ranks = 1, .steps = 1, .batch = 12, .lr = 0.05, .data = "synthetic:test=10"};
    setting shared = {.ranks = 3, .steps = 1, .batch = 4, .lr = 0.05, .data = "synthetic:test=10"};
    outcome one = run(alone, RANKS_THREAD), three = run(shared, RANKS_THREAD);
    double distance = test_relative_l2_f32(three.mean, one.mean, WIDTH);
    if (!(distance < 1e-5)) fail_msg("means differ by %g", distance);
    /* Variances are of each rank's batch: close, but not equal. */
    distance = test_relative_l2_f32(three.var, one.var, WIDTH);
    assert_true(distance > 0 && distance < 0.1);
}

/* Steps of 12 samples and of 1, which leaves two of three ranks without. */
static void synchronized_ranks_compute_what_one_does(void **state) {
    const setting alone = {
        .ranks = 1, .steps = 4, .batch = 12, .lr = 0.02, .data = "synthetic:test=13"};
    for (int ranks = 2; ranks <= 3; ranks++) {
        setting shared = alone;
        shared.ranks = ranks;
        shared.batch = 12 / ranks;
        shared.sync = true;
        outcome one = run(alone, RANKS_THREAD), several = run(shared, RANKS_THREAD);
        double mean = test_relative_l2_f32(several.mean, one.mean, WIDTH);
        double var = test_relative_l2_f32(several.var, one.var, WIDTH);
        double deep = fabs((double)(several.deep - one.deep) / (double)one.deep);
        double loss = fabs(several.loss - one.loss) / one.loss;
        if (mean < 1e-4 && var < 1e-4 && deep < 1e-2 && loss < 1e-3) continue;
        fail_msg("%d ranks: means differ by %g, variances by %g and %g, losses by %g", ranks, mean,
                 var, deep, loss);
    }
}

/* With lr 0, K micro-batches of a step update like K steps, as in PyTorch. */
static void micro_batches_update_in_turn(void **state) {
    setting steps = {.ranks = 1, .steps = 3, .batch = 4, .data = "synthetic:test=12"};
    setting micro = steps;
    micro.steps = 1;
    micro.accumulate = 3;
    outcome a = run(steps, RANKS_THREAD), b = run(micro, RANKS_THREAD);
    assert_true(test_relative_l2_f32(b.mean, a.mean, WIDTH) < 1e-5);
    assert_true(test_relative_l2_f32(b.var, a.var, WIDTH) < 1e-5);
    assert_true(fabsf(b.deep - a.deep) < 1e-5F * a.deep);
}

TEST_MAIN(test_statistics) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_keep_the_same_statistics),
        cmocka_unit_test(shares_count_by_their_samples),
        cmocka_unit_test(synchronized_ranks_compute_what_one_does),
        cmocka_unit_test(micro_batches_update_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
