/* Predictions of a step: consistent parts and buckets. No times are compared. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/process.h"
#include "base/status.h"
#include "kolo/custom_op.h"
#include "kolo/models.h"
#include "kolo/step_model.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

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
        assert_true(m->slowest >= 1 && ms[KOLO_TIME_IDLE] >= 0);
        assert_true(m->backward_kernels_ms <= best->step_ms);
        assert_int_equal(m->n_best, best->buckets);
        assert_int_equal(m->buckets[4].buckets, 1); /* less than 100 MiB */
        assert_true(m->buckets[5].buckets > 2);     /* a weight and a bias for each layer */
        assert_int_equal(m->buckets[6].buckets, 1);
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
    const double backward_ms = o[0].model.backward_kernels_ms;
    assert_true(o[0].model.regions > 0);
    assert_int_equal(o[0].unordered, 0);
    assert_true(o[0].ready_ms > 0 && o[0].ready_ms <= 1.0001 * backward_ms);
}

/* ---- a slower worker ---- */

enum { SLEEP_MS = 40 };
static long sleep_ms; /* of this process, in a forward pass */

static kolo_status shape(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    return KOLO_OK;
}

static void run_slowly(const kolo_custom_call *c) {
    kolo_sleep_ns(kolo_ms_to_ns(sleep_ms));
    memcpy(c->out_data[0], c->in_data[0], (size_t)kolo_shape_count(&c->in[0].shape) * 4);
}

static void pass_on(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                    const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = d_out[0];
}

static kolo_status build_sleeper(kolo_graph *g, const kolo_model_opts *opts) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(opts->batch, 1, 28, 28));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch)), logits;
    kolo_value w = kolo_param(g, "w", kolo_shape_2(10, 784), kolo_init_fan_in(784));
    kolo_value z = kolo_linear(g, kolo_flatten(g, x), w);
    kolo_custom(g, "sleep", &z, 1, NULL, &logits);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

static kolo_status predict_sleeper(kolo_comm *comm, const void *arg, void *result) {
    static const kolo_custom_op op = {.version = KOLO_CUSTOM_OP_VERSION,
                                      .name = "sleep",
                                      .n_in = 1,
                                      .n_out = 1,
                                      .index = "n*->n*",
                                      .shape = shape,
                                      .run = run_slowly,
                                      .grad = pass_on};
    static const kolo_model model = {.name = "sleeper",
                                     .summary = "a linear classifier that sleeps",
                                     .sample = {3, {1, 28, 28}},
                                     .classes = 10,
                                     .build = build_sleeper};
    outcome *o = result;
    kolo_step_model *m;
    if (kolo_comm_rank(comm) == 1) sleep_ms = SLEEP_MS;
    KOLO_TRY(kolo_custom_op_register(&op));
    KOLO_TRY(kolo_model_register(&model));
    const kolo_train_opts opts = {.model = "sleeper", .batch = 4};
    KOLO_TRY(kolo_step_model_measure(comm, &opts, 3, &m));
    o->model = *m;
    kolo_step_model_destroy(m);
    return KOLO_OK;
}

/* The step ends when the slowest worker has ended it; the times of the parts are means. */
static void the_slowest_worker_is_waited_for(void **state) {
    static outcome o[2];
    rank_job job = {.n = 2,
                    .transport = RANKS_SHM,
                    .body = predict_sleeper,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    const kolo_step_model *m = &o[0].model;
    const double *ms = m->predicted.ms;
    assert_true(o[1].model.slowest == m->slowest && m->slowest > 1);
    /* Idle are s - 1 times the mean; s times it are the kernels of the slowest. */
    const double slowest_ms = ms[KOLO_TIME_IDLE] * m->slowest / (m->slowest - 1);
    assert_true(slowest_ms >= 0.999 * SLEEP_MS);
    assert_true(ms[KOLO_TIME_FORWARD] >= SLEEP_MS / 2);
    assert_true(ms[KOLO_TIME_STEP] >= 0.999 * m->slowest * ms[KOLO_TIME_FORWARD]);
    assert_true(ms[KOLO_TIME_EXPOSED] > 0 && m->measured.ms[KOLO_TIME_STEP] >= SLEEP_MS / 2);
}

/* The limit has room for the memory of one worker, and not for that of both. */
static kolo_status limited(kolo_comm *comm, const void *arg, void *result) {
    const kolo_train_opts opts = {.model = "mlp", .model_options = "hidden=64", .batch = 4};
    kolo_step_model *m;
    KOLO_TRY(kolo_step_model_measure(comm, &opts, 2, &m));
    const kolo_train_memory need = m->memory;
    kolo_step_model_destroy(m);
    const int64_t one = need.store + need.shared + need.exchanged + need.values;
    KOLO_TRY(kolo_barrier(comm));
    kolo_memory_limit_pin(one + one / 2);
    const kolo_status status = kolo_step_model_measure(comm, &opts, 2, &m);
    KOLO_TRY(kolo_barrier(comm));
    kolo_memory_limit_pin(0);
    if (status == KOLO_OK) kolo_step_model_destroy(m);
    if (status == KOLO_ERR_NOMEM && strstr(kolo_last_error(), "all 2 of them")) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", status, kolo_last_error());
}

/* Before the first kernel: two workers profile at the same time, each by itself. */
static void memory_is_checked_for_all_workers(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_SHM, limited, NULL, 0));
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
        cmocka_unit_test(the_slowest_worker_is_waited_for),
        cmocka_unit_test(memory_is_checked_for_all_workers),
        cmocka_unit_test(one_rank_and_micro_batches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
