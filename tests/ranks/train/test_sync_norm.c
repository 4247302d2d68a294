/* Synchronized batch normalization: N ranks compute what one computes with all samples, in f64 with
 * the reference kernels to rounding, with unequal shares, ranks without samples, and micro-batches:
 * losses, parameters and running statistics. Without it they do not. */
#include "graph/ops/ops.h"
#include "plan/internal.h"
#include "support/mesh_run.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 4, PIXELS = 2 * SIDE * SIDE, CLASSES = 3 };

typedef struct setting {
    int ranks;
    int64_t samples; /* of a micro-batch, of all ranks */
    int64_t micro_batches;
    bool sync;
    kolo_recompute recompute;
} setting;

/* ---- the model ---- */

static kolo_value conv(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out) {
    kolo_value w = kolo_param(g, name, kolo_shape_4(out, in, 3, 3), kolo_init_fan_in(9 * in));
    return kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1});
}

/* Behind a ReLU that folds, with a residual sum and a ReLU, alone, and on rows. */
static kolo_status build(kolo_graph *g, int64_t n) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_4(n, 2, SIDE, SIDE));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    x = kolo_relu(g, kolo_batch_norm(g, conv(g, "a", x, 2, 4), "bn_a", NULL));
    kolo_value r = kolo_batch_norm(g, conv(g, "b", x, 4, 4), "bn_b", NULL);
    x = kolo_relu(g, kolo_add(g, r, x));
    x = kolo_batch_norm(g, conv(g, "c", x, 4, 5), "bn_c", NULL);
    x = kolo_flatten(g, kolo_global_avg_pool2d(g, x));
    x = kolo_batch_norm(g, x, "bn_d", &(kolo_batch_norm_opts){.eps = 1e-2});
    kolo_value w = kolo_param(g, "w", kolo_shape_2(CLASSES, 5), kolo_init_fan_in(5));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    return kolo_graph_check(g);
}

/* Samples [first, first + count) of all micro-batches of a step. */
static void feed(kolo_plan *p, int step, int64_t first, int64_t count) {
    double *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    for (int64_t i = 0; i < count; i++) {
        int64_t sample = step % 3 * 100 + first + i;
        for (int64_t k = 0; k < PIXELS; k++) {
            x[i * PIXELS + k] = 3 + sin((double)(sample * 131 + k * 17));
        }
        y[i] = (int32_t)(sample * 7 % CLASSES);
    }
}

/* ---- running it ---- */

static int64_t share_first(int64_t n, int64_t ranks, int64_t rank) {
    return rank * (n / ranks) + (rank < n % ranks ? rank : n % ranks);
}

static kolo_status run_step(kolo_plan *p, const setting *s, int rank, int step) {
    const int64_t first = share_first(s->samples, s->ranks, rank);
    const int64_t count = share_first(s->samples, s->ranks, rank + 1) - first;
    const double samples = (double)s->samples, all = samples * (double)s->micro_batches;
    kolo_plan_set(p, kolo_plan_find_scalar(p, "lr"), 0.02);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "grad_scale"), 1 / all);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "share"), (double)count / samples);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "sample_weight"), 1 / samples);
    for (int64_t m = 0; m < s->micro_batches; m++) {
        bool last = m == s->micro_batches - 1;
        feed(p, step, m * s->samples + first, count);
        kolo_plan_set(p, kolo_plan_find_scalar(p, "fresh"), m == 0);
        kolo_plan_set(p, kolo_plan_find_scalar(p, "once"), m == 0 && rank == 0);
        if (count == 0) {
            KOLO_TRY(kolo_plan_skip(p, last));
        } else {
            KOLO_TRY(last ? kolo_plan_run(p) : kolo_plan_accumulate(p));
        }
    }
    return KOLO_OK;
}

static kolo_status train(kolo_comm *comm, kolo_store *store, const setting *s, kolo_plan **plan,
                         mesh_outcome *o) {
    const int rank = kolo_comm_rank(comm);
    kolo_graph *g;
    int64_t count =
        share_first(s->samples, s->ranks, rank + 1) - share_first(s->samples, s->ranks, rank);
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    kolo_status status = build(g, count ? count : 1);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer = {.momentum = 0.9},
                                 .micro_batches = s->micro_batches,
                                 .sync_batch_norm = s->sync,
                                 .recompute = s->recompute,
                                 .kernels = KOLO_KERNELS_REF,
                                 .bucket_bytes = 512};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    KOLO_TRY(kolo_store_init(store, 5));
    for (int k = 0; k < MESH_STEPS; k++) {
        KOLO_TRY(run_step(*plan, s, rank, k));
        o->losses[k] = kolo_plan_scalar(*plan, "loss");
        if (k == 0) KOLO_TRY(mesh_read_parameters(store, o->first));
    }
    return mesh_read_parameters(store, o->last);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_store *store;
    kolo_plan *plan = NULL;
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = train(comm, store, s, &plan, result);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

/* ---- tests ---- */

static const mesh_outcome *run(setting s, rank_transport transport) {
    return mesh_run(s.ranks, transport, body, &s, sizeof s);
}

static void ranks_compute_what_one_does(void **state) {
    static const setting cases[] = {
        {.ranks = 2, .samples = 6, .micro_batches = 1},
        {.ranks = 3, .samples = 8, .micro_batches = 1}, /* 3, 3, 2 */
        {.ranks = 3, .samples = 2, .micro_batches = 1}, /* 1, 1, 0 */
        {.ranks = 2, .samples = 6, .micro_batches = 2},
        {.ranks = 3, .samples = 2, .micro_batches = 3},
        {.ranks = 2, .samples = 6, .micro_batches = 1, .recompute = KOLO_RECOMPUTE_CHEAP},
        {.ranks = 3, .samples = 8, .micro_batches = 2, .recompute = KOLO_RECOMPUTE_FULL},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        static mesh_outcome expected;
        setting alone = cases[i], shared = cases[i];
        char what[64];
        alone.ranks = 1;
        shared.sync = alone.sync = true;
        expected = *run(alone, RANKS_THREAD);
        snprintf(what, sizeof what, "case %d", (int)i);
        mesh_assert_learns(what, &expected, 3);
        mesh_assert_close(what, run(shared, RANKS_THREAD), &expected);
        if (i == 1) mesh_assert_close("processes", run(shared, RANKS_SHM), &expected);
    }
}

static void without_it_they_do_not(void **state) {
    const setting alone = {.ranks = 1, .samples = 6, .micro_batches = 1};
    const setting shared = {.ranks = 2, .samples = 6, .micro_batches = 1};
    static mesh_outcome expected;
    expected = *run(alone, RANKS_THREAD);
    const mesh_outcome *o = run(shared, RANKS_THREAD);
    assert_true(fabs(o->losses[0] - expected.losses[0]) > 1e-4);
}

static void a_model_without_it_is_refused(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(CLASSES, 3), kolo_init_fan_in(3));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(4));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    assert_int_equal(kolo_pass_sync_batch_norm(g), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "no batch normalization"));
    kolo_graph_destroy(g);
}

TEST_MAIN(test_sync_norm) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_compute_what_one_does),
        cmocka_unit_test(without_it_they_do_not),
        cmocka_unit_test(a_model_without_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
