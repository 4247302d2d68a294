/* Sessions of a program (kolo/session.h): the bits of training jobs, several inputs, predictions,
 * parameters and gradients, learning rates. */
#include "base/compiler.h"
#include "data/prefetch.h"
#include "kolo/models.h"
#include "kolo/session.h"
#include "plan/plan.h"
#include "support/ranks.h"
#include "support/sum_model.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <string.h>

/* ---- the bits of a training job ---- */

enum { EPOCHS = 2 };

#define DATA "synthetic:N=210,test=20,shape=1x28x28,classes=10"

static kolo_status build_zoo(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_model *model;
    kolo_model_opts opts = {
        .batch = samples, .sample = {3, {1, 28, 28}}, .classes = 10, .options = ""};
    KOLO_TRY(kolo_model_find(arg, &model));
    return model->build(g, &opts);
}

typedef struct job {
    int64_t batch, accumulate, global_batch, reproducible;
    bool own_batches; /* not those of the loader */
    int zero;
} job;

typedef struct outcome {
    uint64_t job, session; /* hashes of parameters and optimizer state */
    double loss, accuracy; /* of the last step */
} outcome;

static kolo_status train_job(kolo_comm *comm, const job *j, outcome *o) {
    kolo_train_opts opts = {.model = "lenet",
                            .data = DATA,
                            .batch = j->batch,
                            .accumulate = j->accumulate,
                            .global_batch = j->global_batch,
                            .reproducible = j->reproducible,
                            .zero = j->zero,
                            .epochs = EPOCHS,
                            .lr = 0.05,
                            .schedule = KOLO_LR_COSINE,
                            .optimizer = {.momentum = 0.9},
                            .no_eval = true,
                            .seed = 3};
    kolo_train_result result;
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &result));
    o->job = result.parameter_hash;
    return KOLO_OK;
}

static kolo_status loop(kolo_session *s, const job *j, kolo_loader *loader, outcome *o) {
    kolo_metrics metrics;
    for (;;) {
        kolo_batch batch;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        if (batch.global_count == 0) break;
        if (j->own_batches) batch.global_count = batch.first = 0;
        KOLO_TRY(kolo_session_step(s, &batch, &metrics));
        kolo_metrics alone; /* with zero 3, where ranks have ranges, all evaluate together */
        if (batch.count == 0) continue;
        KOLO_TRY(kolo_session_evaluate(s, &batch, &alone));
        if (!(kolo_metrics_get(&alone, "loss") > 0)) return KOLO_FAIL(KOLO_ERR_ARG, "no loss");
    }
    o->loss = kolo_metrics_get(&metrics, "loss");
    o->accuracy = kolo_metrics_get(&metrics, "accuracy");
    return kolo_store_hash_shards(kolo_session_store(s), &o->session);
}

static kolo_status train_session(kolo_comm *comm, const job *j, outcome *o) {
    const int rank = kolo_comm_rank(comm), world = kolo_comm_size(comm);
    const int64_t accumulate = j->accumulate ? j->accumulate : 1;
    kolo_loader_opts order = {.global_batch =
                                  j->global_batch ? j->global_batch : j->batch * accumulate * world,
                              .seed = 3,
                              .rank = rank,
                              .world = world,
                              .shards = (int)j->reproducible};
    const int64_t steps = EPOCHS * (209 / order.global_batch + 1);
    kolo_session_opts opts = {.batch = j->batch,
                              .accumulate = j->accumulate,
                              .global_batch = j->global_batch,
                              .reproducible = j->reproducible,
                              .zero = j->zero,
                              .lr = 0.05,
                              .schedule = KOLO_LR_COSINE,
                              .steps = steps,
                              .optimizer = {.momentum = 0.9},
                              .seed = 3};
    kolo_session *s = NULL;
    kolo_dataset *set = NULL;
    kolo_loader *loader = NULL;
    kolo_status status;
    order.end = steps;
    KOLO_TRY_GOTO(kolo_dataset_open(DATA, KOLO_SPLIT_TRAIN, &set), done);
    order.dataset = set;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_zoo, "lenet", &s), done);
    kolo_session_shards(s, rank, &order.first_shard, &order.end_shard);
    KOLO_TRY_GOTO(kolo_loader_create(&order, &loader), done);
    status = loop(s, j, loader, o);
done:
    kolo_loader_destroy(loader);
    kolo_session_destroy(s);
    kolo_dataset_close(set);
    return status;
}

static kolo_status train_both(kolo_comm *comm, const void *arg, void *result) {
    KOLO_TRY(train_job(comm, arg, result));
    return train_session(comm, arg, result);
}

/* 210 samples: the last step of an epoch is short. */
static void bits_are_those_of_a_training_job(void **state) {
    static const struct {
        int ranks;
        job job;
    } cases[] = {
        {1, {.batch = 32}},
        {1, {.batch = 32, .own_batches = true}},
        {2, {.batch = 16}},
        {2, {.batch = 16, .own_batches = true}},
        {3, {.batch = 9, .accumulate = 2, .own_batches = true}},
        {2, {.batch = 16, .zero = 2, .own_batches = true}},
        {2, {.batch = 16, .zero = 3, .own_batches = true}},
        {3, {.global_batch = 32, .reproducible = 4, .own_batches = true}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        outcome o[3];
        rank_job run = {.n = cases[i].ranks,
                        .transport = RANKS_THREAD,
                        .body = train_both,
                        .arg = &cases[i].job,
                        .arg_bytes = sizeof cases[i].job,
                        .results = o,
                        .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&run));
        for (int rank = 0; rank < cases[i].ranks; rank++) {
            assert_true(o[rank].session == o[0].job && o[rank].job == o[0].job);
            assert_true(o[rank].loss > 0 && o[rank].loss == o[0].loss);
            assert_true(o[rank].accuracy >= 0 && o[rank].accuracy == o[0].accuracy);
        }
    }
}

/* ---- several inputs ---- */

typedef struct fit {
    double loss;
    float a[SUM_A], b[SUM_B], gradient[SUM_B];
} fit;

static kolo_status fit_sum(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.global_batch = SUM_SAMPLES,
                                    .lr = 0.5,
                                    .seed = 1,
                                    .zero = *(const int *)arg,
                                    .keep_gradients = true};
    fit *f = result;
    kolo_session *s;
    kolo_metrics metrics = {{0}};
    int64_t first, count;
    KOLO_TRY(kolo_session_create(comm, &opts, sum_build, NULL, &s));
    kolo_status status = kolo_session_share(s, SUM_SAMPLES, &first, &count);
    for (int k = 0; k < 400 && status == KOLO_OK; k++) {
        const kolo_batch batch = sum_batch(first, count);
        status = kolo_session_step(s, &batch, &metrics);
        if (k == 0 && status == KOLO_OK) {
            status = kolo_session_get_gradient(s, "b", f->gradient, sizeof f->gradient);
        }
    }
    f->loss = kolo_metrics_get(&metrics, "loss");
    if (status == KOLO_OK) status = kolo_session_get(s, "a", f->a, sizeof f->a);
    if (status == KOLO_OK) status = kolo_session_get(s, "b", f->b, sizeof f->b);
    kolo_session_destroy(s);
    return status;
}

/* Five ranks of 12 samples: shares of three and two. */
static void several_inputs_are_fitted_by_any_number_of_ranks(void **state) {
    static const int ranks[] = {1, 2, 5, 3}, zero[] = {0, 0, 0, 2};
    fit alone = {0};
    for (size_t i = 0; i < KOLO_COUNT(ranks); i++) {
        fit f[5];
        rank_job run = {.n = ranks[i],
                        .arg = &zero[i],
                        .arg_bytes = sizeof zero[i],
                        .transport = RANKS_THREAD,
                        .body = fit_sum,
                        .results = f,
                        .result_bytes = sizeof *f};
        ASSERT_OK(run_rank_job(&run));
        for (int rank = 0; rank < ranks[i]; rank++) {
            assert_memory_equal(&f[rank], &f[0], sizeof *f);
        }
        if (i == 0) alone = f[0];
        assert_true(f[0].loss < 1e-9);
        const float want[] = {2, 0, -1};
        assert_true(test_relative_l2_f32(f[0].a, want, SUM_A) < 1e-3);
        assert_true(test_relative_l2_f32(f[0].gradient, alone.gradient, SUM_B) < 1e-5);
    }
}

/* Volumes of one channel: beside a single sample, a dimension of 1 is not the samples. */
static kolo_status build_volumes(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_4(n, 2, 2, 2));
    kolo_value w = kolo_param(g, "w", (kolo_shape){5, {3, 1, 2, 2, 1}}, kolo_init_fan_in(4));
    kolo_value h = kolo_reshape(g, x, (kolo_shape){5, {n, 1, 2, 2, 2}});
    h = kolo_flatten(g, kolo_tanh(g, kolo_conv3d(g, h, w, NULL)));
    kolo_output(g, "loss", kolo_sum(g, kolo_square(g, h)));
    return KOLO_OK;
}

static kolo_status train_volumes(kolo_comm *comm, const void *arg, void *result) {
    enum { VOLUMES = 3, EACH = 8 };
    const kolo_session_opts opts = {.global_batch = VOLUMES, .lr = 0.1};
    float x[VOLUMES * EACH];
    const kolo_field field = {.name = "u", .shape = {3, {2, 2, 2}}};
    kolo_batch batch = {.n_fields = 1, .fields = &field};
    kolo_metrics metrics = {{0}};
    kolo_session *s;
    for (int i = 0; i < VOLUMES * EACH; i++) x[i] = (float)(i % 7) - 3;
    KOLO_TRY(kolo_session_create(comm, &opts, build_volumes, NULL, &s));
    kolo_status status = kolo_session_share(s, VOLUMES, &batch.first, &batch.count);
    batch.data[0] = x + batch.first * EACH;
    for (int k = 0; k < 3 && status == KOLO_OK; k++) {
        status = kolo_session_step(s, &batch, &metrics);
    }
    *(double *)result = kolo_metrics_get(&metrics, "loss");
    kolo_session_destroy(s);
    return status;
}

static void a_rank_may_have_a_single_sample(void **state) {
    double alone[1], two[2], three[3];
    double *const losses[] = {alone, two, three};
    for (int n = 1; n <= 3; n++) {
        rank_job run = {.n = n,
                        .transport = RANKS_THREAD,
                        .body = train_volumes,
                        .results = losses[n - 1],
                        .result_bytes = sizeof(double)};
        ASSERT_OK(run_rank_job(&run));
        assert_true(fabs(losses[n - 1][0] - alone[0]) < 1e-5 * fabs(alone[0]));
    }
    assert_true(alone[0] > 0);
}

/* Gradients of the mean against their formula, without momentum and clipping. */
static void gradients_are_those_of_the_mean(void **state) {
    const kolo_session_opts opts = {.batch = SUM_SAMPLES / 3,
                                    .accumulate = 3,
                                    .optimizer = {.clip = 1e-3, .momentum = 0.5},
                                    .keep_gradients = true};
    kolo_session *s;
    float a[SUM_A], b[SUM_B], got[SUM_A], y[SUM_SAMPLES];
    kolo_shape shape;
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &s));
    ASSERT_OK(kolo_session_get(s, "a", a, sizeof a));
    ASSERT_OK(kolo_session_get(s, "b", b, sizeof b));
    const kolo_batch batch = sum_batch(0, SUM_SAMPLES);
    kolo_batch unlabelled = {
        .count = SUM_SAMPLES, .n_fields = 2, .fields = &sum_fields[1], .data = {sum_v, sum_u}};
    ASSERT_OK(kolo_session_predict(s, &unlabelled, "y", y, sizeof y, &shape));
    assert_true(kolo_shape_equal(&shape, &(kolo_shape){2, {SUM_SAMPLES, 1}}));
    double want[SUM_A] = {0};
    for (int i = 0; i < SUM_SAMPLES; i++) {
        double sum = 0;
        for (int k = 0; k < SUM_A; k++) sum += (double)sum_u[i * SUM_A + k] * (double)a[k];
        for (int k = 0; k < SUM_B; k++) sum += (double)sum_v[i * SUM_B + k] * (double)b[k];
        assert_true(fabs(sum - (double)y[i]) < 1e-6);
        for (int k = 0; k < SUM_A; k++) {
            want[k] +=
                2 * (sum - (double)sum_target[i]) * (double)sum_u[i * SUM_A + k] / SUM_SAMPLES;
        }
    }
    ASSERT_OK(kolo_session_step(s, &batch, NULL));
    ASSERT_OK(kolo_session_get_gradient(s, "a", got, sizeof got));
    for (int k = 0; k < SUM_A; k++) assert_true(fabs((double)got[k] - want[k]) < 1e-6);
    ASSERT_OK(kolo_session_predict(s, &unlabelled, "y", NULL, 0, &shape));
    assert_int_equal(kolo_session_get_gradient(s, "a", got, sizeof got), KOLO_ERR_ARG);
    kolo_session_destroy(s);
}

/* Tensors are listed, set on all ranks to those of rank 0, and trained from there. */
static kolo_status set_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session *s;
    kolo_session_opts opts = {.batch = 2, .optimizer = {.momentum = 0.9}};
    const float given[SUM_A] = {1, 2, 3};
    float *got = result;
    bool root = kolo_comm_rank(comm) == 0;
    KOLO_TRY(kolo_session_create(comm, &opts, sum_build, NULL, &s));
    kolo_status status = kolo_session_set(s, "a", root ? given : NULL, sizeof given);
    if (status == KOLO_OK) status = kolo_session_get(s, "a", got, sizeof given);
    const kolo_batch batch = sum_batch(2 * kolo_comm_rank(comm), 2);
    if (status == KOLO_OK) status = kolo_session_step(s, &batch, NULL);
    if (status == KOLO_OK) status = kolo_session_get(s, "a", got + SUM_A, sizeof given);
    kolo_session_destroy(s);
    return status;
}

static void parameters_can_be_set(void **state) {
    float got[3][2 * SUM_A];
    rank_job run = {.n = 3,
                    .transport = RANKS_THREAD,
                    .body = set_body,
                    .results = got,
                    .result_bytes = sizeof *got};
    ASSERT_OK(run_rank_job(&run));
    for (int rank = 0; rank < 3; rank++) {
        for (int k = 0; k < SUM_A; k++) assert_true(got[rank][k] == (float)(k + 1));
        assert_memory_equal(got[rank], got[0], sizeof got[0]);
        assert_true(got[rank][SUM_A] != 1);
    }

    kolo_session *s;
    kolo_session_opts opts = {.optimizer = {.momentum = 0.9}};
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &s));
    kolo_field tensor;
    char names[256] = "";
    for (int i = 0; kolo_session_tensor(s, i, &tensor) == KOLO_OK; i++) {
        assert_int_equal(tensor.dtype, KOLO_DTYPE_F32);
        assert_int_equal(tensor.shape.rank, 2);
        strcat(strcat(names, tensor.name), " ");
    }
    assert_string_equal(names, "a b optimizer.velocity.a optimizer.velocity.b ");
    kolo_session_destroy(s);
}

static void learning_rates_follow_schedule_and_caller(void **state) {
    kolo_session *s;
    kolo_session_opts opts = {.batch = SUM_SAMPLES,
                              .lr = 0.5,
                              .schedule = KOLO_LR_STEP,
                              .lr_step_every = 3,
                              .lr_step_factor = 0.5,
                              .warmup_steps = 2};
    const kolo_batch batch = sum_batch(0, SUM_SAMPLES);
    static const double want[] = {0.25, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125};
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &s));
    for (size_t k = 0; k < KOLO_COUNT(want); k++) {
        assert_true(kolo_session_lr(s) == want[k]);
        assert_int_equal(kolo_session_steps(s), k);
        ASSERT_OK(kolo_session_step(s, &batch, NULL));
    }
    ASSERT_OK(kolo_session_set_lr(s, 0.01));
    ASSERT_OK(kolo_session_step(s, &batch, NULL));
    assert_true(kolo_session_lr(s) == 0.01);
    kolo_session_destroy(s);

    opts =
        (kolo_session_opts){.lr = 1, .schedule = KOLO_LR_COSINE, .steps = 2, .batch = SUM_SAMPLES};
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &s));
    for (int k = 0; k < 4; k++) ASSERT_OK(kolo_session_step(s, &batch, NULL));
    assert_true(kolo_session_lr(s) == 0.5); /* the last one */
    kolo_session_destroy(s);
}

TEST_MAIN(test_session) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_a_training_job),
        cmocka_unit_test(several_inputs_are_fitted_by_any_number_of_ranks),
        cmocka_unit_test(a_rank_may_have_a_single_sample),
        cmocka_unit_test(gradients_are_those_of_the_mean),
        cmocka_unit_test(parameters_can_be_set),
        cmocka_unit_test(learning_rates_follow_schedule_and_caller),
    };
    return cmocka_run_group_tests(tests, sum_fill, NULL);
}
