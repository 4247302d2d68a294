/* Predictions of a step: consistent parts and buckets. No times are compared. */
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/step_model.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>

typedef struct outcome {
    kolo_step_model model;
    size_t best_sum; /* bytes */
    int unordered;   /* gradients that are complete before the one before */
    double ready_ms; /* of the last gradient */
} outcome;

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_train_opts opts = {.model = "mlp", .model_options = "hidden=16", .batch = 4};
    outcome *o = result;
    kolo_step_model *m;
    KOLO_TRY(kolo_step_model_measure(comm, &opts, 2, &m));
    o->model = *m;
    for (int i = 0; i < m->n_best; i++) o->best_sum += m->best_bytes[i];
    kolo_step_model_destroy(m);
    return KOLO_OK;
}

static void parts_and_buckets_are_consistent(void **state) {
    static const struct {
        int ranks;
        rank_transport transport;
    } cases[] = {{2, RANKS_THREAD}, {3, RANKS_HOSTS}};
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        static outcome o[3];
        rank_job job = {.n = cases[c].ranks,
                        .transport = cases[c].transport,
                        .body = body,
                        .results = o,
                        .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&job));
        const kolo_step_model *m = &o[0].model;
        const double *ms = m->predicted.ms;
        assert_int_equal(m->workers, cases[c].ranks);
        if (cases[c].transport == RANKS_THREAD) { /* no thread makes progress beside the kernels */
            assert_true(m->work_fixed_us == m->fixed_us && m->work_us_per_mib == m->us_per_mib);
        }
        assert_true(m->work_fixed_us >= 0 && m->work_us_per_mib >= 0);
        assert_true(m->shared == (cases[c].transport == RANKS_THREAD));
        assert_true(m->fixed_us >= 0 && m->us_per_mib >= 0 && m->fixed_us + m->us_per_mib > 0);
        double sum = ms[KOLO_TIME_INPUT] + ms[KOLO_TIME_FORWARD] + ms[KOLO_TIME_BACKWARD] +
                     ms[KOLO_TIME_EXPOSED] + ms[KOLO_TIME_UPDATE];
        assert_true(fabs(sum - ms[KOLO_TIME_STEP]) < 1e-9 * sum);
        assert_true(m->measured.ms[KOLO_TIME_STEP] > 0 && m->measured_median_ms > 0);
        const kolo_modelled_buckets *best = &m->buckets[KOLO_MODELLED_BUCKETS - 1];
        for (int i = 0; i < KOLO_MODELLED_BUCKETS; i++) {
            assert_true(best->step_ms <= m->buckets[i].step_ms + 1e-9);
            assert_true(m->buckets[i].work_ms <= m->buckets[i].sums_ms + 1e-9);
            assert_true(m->buckets[i].exposed_ms >= 0);
            assert_true(m->buckets[i].buckets >= 1 &&
                        m->buckets[i].buckets <= m->buckets[5].buckets);
        }
        assert_int_equal(m->n_best, best->buckets);
        assert_int_equal(m->buckets[4].buckets, 1); /* less than 100 MiB */
        assert_true(m->buckets[5].buckets > 2);     /* a weight and a bias for each layer */
        assert_true(o[0].best_sum > 4 * 784 * 16 && o[0].best_sum % 4 == 0);
    }
}

static kolo_status body_in_lanes(kolo_comm *comm, const void *arg, void *result) {
    outcome *o = result;
    kolo_step_model *m;
    KOLO_TRY(kolo_step_model_measure(comm, arg, 1, &m));
    o->model = *m;
    for (int i = 1; i < m->n_gradients; i++) o->unordered += m->ready_ms[i] < m->ready_ms[i - 1];
    o->ready_ms = m->ready_ms[m->n_gradients - 1];
    kolo_step_model_destroy(m);
    return KOLO_OK;
}

/* The gradients of branches are complete within the backward pass, in which lanes count once. */
static void lanes_are_predicted(void **state) {
    static outcome o[2];
    const kolo_train_opts opts = {.model = "googlenet",
                                  .model_options = "width=2",
                                  .data = "synthetic:N=8,test=2,shape=3x32x32",
                                  .batch = 2,
                                  .threads = 2,
                                  .reference_kernels = true,
                                  .lanes = KOLO_LANES_ALL};
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = body_in_lanes,
                    .arg = &opts,
                    .arg_bytes = sizeof opts,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    const double backward_ms = o[0].model.predicted.ms[KOLO_TIME_BACKWARD];
    assert_true(o[0].model.regions > 0);
    assert_int_equal(o[0].unordered, 0);
    assert_true(o[0].ready_ms > 0 && o[0].ready_ms <= 1.0001 * backward_ms);
}

static kolo_status refused(kolo_comm *comm, const void *arg, void *result) {
    kolo_step_model *p;
    kolo_train_opts opts = {.model = "mlp", .batch = 4, .accumulate = 2};
    kolo_status status = kolo_step_model_measure(comm, &opts, 2, &p);
    if (status != KOLO_ERR_ARG) return KOLO_FAIL(KOLO_ERR_FORMAT, "micro-batches are accepted");
    opts.accumulate = 1;
    status = kolo_step_model_measure(NULL, &opts, 2, &p);
    return status == KOLO_ERR_ARG ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "one rank is accepted");
}

static void one_rank_and_micro_batches_are_refused(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, refused, NULL, 0));
}

TEST_MAIN(test_step_model) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_and_buckets_are_consistent),
        cmocka_unit_test(lanes_are_predicted),
        cmocka_unit_test(one_rank_and_micro_batches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
