/* Sessions of a program (kolo/session.h): the bits of training jobs, several inputs, predictions,
 * parameters and gradients, learning rates, and every misuse. */
#include "base/compiler.h"
#include "base/memory.h"
#include "data/prefetch.h"
#include "kolo/checkpoint.h"
#include "kolo/models.h"
#include "kolo/session.h"
#include "plan/plan.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

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
        kolo_metrics alone; /* of what all ranks have, or a range of */
        bool refused = kolo_session_evaluate(s, &batch, &alone) == KOLO_ERR_UNSUPPORTED;
        if (j->zero == 3 && !refused) return KOLO_FAIL(KOLO_ERR_ARG, "evaluated a range");
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

/* ---- two inputs, a target and a prediction, all f32: y = u a + v b ---- */

enum { SAMPLES = 12, A = 3, B = 2 };

static float u[SAMPLES * A], v[SAMPLES * B], target[SAMPLES];
static const kolo_field fields[] = {
    {"target", KOLO_DTYPE_F32, {1, {1}}, .mean = {0}},
    {"v", KOLO_DTYPE_F32, {1, {B}}, .mean = {0}},
    {"u", KOLO_DTYPE_F32, {1, {A}}, .mean = {0}},
};

static int fill(void **state) {
    for (int i = 0; i < SAMPLES * A; i++) u[i] = (float)(i * 7 % 11) / 11 - 0.4F;
    for (int i = 0; i < SAMPLES * B; i++) v[i] = (float)(i * 5 % 13) / 13 - 0.6F;
    for (int i = 0; i < SAMPLES; i++) target[i] = 2 * u[i * A] - u[i * A + 2] + 3 * v[i * B + 1];
    return 0;
}

static kolo_status build_sum(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, A));
    kolo_value z = kolo_input(g, "v", KOLO_DTYPE_F32, kolo_shape_2(n, B));
    kolo_value t = kolo_input(g, "target", KOLO_DTYPE_F32, kolo_shape_2(n, 1));
    kolo_value a = kolo_param(g, "a", kolo_shape_2(1, A), kolo_init_fan_in(A));
    kolo_value b = kolo_param(g, "b", kolo_shape_2(1, B), kolo_init_fan_in(B));
    kolo_value y = kolo_add(g, kolo_linear(g, x, a), kolo_linear(g, z, b));
    kolo_output(g, "y", y);
    kolo_output(g, "loss", kolo_mse_loss(g, y, t));
    return KOLO_OK;
}

static kolo_batch batch_of(int64_t first, int64_t count) {
    return (kolo_batch){.count = count,
                        .n_fields = 3,
                        .fields = fields,
                        .data = {target + first, v + first * B, u + first * A}};
}

typedef struct fit {
    double loss;
    float a[A], b[B], gradient[B];
} fit;

static kolo_status fit_sum(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.global_batch = SAMPLES,
                                    .lr = 0.5,
                                    .seed = 1,
                                    .zero = *(const int *)arg,
                                    .keep_gradients = true};
    fit *f = result;
    kolo_session *s;
    kolo_metrics metrics = {{0}};
    int64_t first, count;
    KOLO_TRY(kolo_session_create(comm, &opts, build_sum, NULL, &s));
    kolo_status status = kolo_session_share(s, SAMPLES, &first, &count);
    for (int k = 0; k < 400 && status == KOLO_OK; k++) {
        const kolo_batch batch = batch_of(first, count);
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
        assert_true(test_relative_l2_f32(f[0].a, want, A) < 1e-3);
        assert_true(test_relative_l2_f32(f[0].gradient, alone.gradient, B) < 1e-5);
    }
}

/* Gradients of the mean against their formula, without momentum and clipping. */
static void gradients_are_those_of_the_mean(void **state) {
    const kolo_session_opts opts = {.batch = SAMPLES / 3,
                                    .accumulate = 3,
                                    .optimizer = {.clip = 1e-3, .momentum = 0.5},
                                    .keep_gradients = true};
    kolo_session *s;
    float a[A], b[B], got[A], y[SAMPLES];
    kolo_shape shape;
    ASSERT_OK(kolo_session_create(NULL, &opts, build_sum, NULL, &s));
    ASSERT_OK(kolo_session_get(s, "a", a, sizeof a));
    ASSERT_OK(kolo_session_get(s, "b", b, sizeof b));
    const kolo_batch batch = batch_of(0, SAMPLES);
    kolo_batch unlabelled = {.count = SAMPLES, .n_fields = 2, .fields = &fields[1], .data = {v, u}};
    ASSERT_OK(kolo_session_predict(s, &unlabelled, "y", y, sizeof y, &shape));
    assert_true(kolo_shape_equal(&shape, &(kolo_shape){2, {SAMPLES, 1}}));
    double want[A] = {0};
    for (int i = 0; i < SAMPLES; i++) {
        double sum = 0;
        for (int k = 0; k < A; k++) sum += (double)u[i * A + k] * (double)a[k];
        for (int k = 0; k < B; k++) sum += (double)v[i * B + k] * (double)b[k];
        assert_true(fabs(sum - (double)y[i]) < 1e-6);
        for (int k = 0; k < A; k++) {
            want[k] += 2 * (sum - (double)target[i]) * (double)u[i * A + k] / SAMPLES;
        }
    }
    ASSERT_OK(kolo_session_step(s, &batch, NULL));
    ASSERT_OK(kolo_session_get_gradient(s, "a", got, sizeof got));
    for (int k = 0; k < A; k++) assert_true(fabs((double)got[k] - want[k]) < 1e-6);
    ASSERT_OK(kolo_session_predict(s, &unlabelled, "y", NULL, 0, &shape));
    assert_int_equal(kolo_session_get_gradient(s, "a", got, sizeof got), KOLO_ERR_ARG);
    kolo_session_destroy(s);
}

/* Tensors are listed, set on all ranks to those of rank 0, and trained from there. */
static kolo_status set_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session *s;
    kolo_session_opts opts = {.batch = 2, .optimizer = {.momentum = 0.9}};
    const float given[A] = {1, 2, 3};
    float *got = result;
    bool root = kolo_comm_rank(comm) == 0;
    KOLO_TRY(kolo_session_create(comm, &opts, build_sum, NULL, &s));
    kolo_status status = kolo_session_set(s, "a", root ? given : NULL, sizeof given);
    if (status == KOLO_OK) status = kolo_session_get(s, "a", got, sizeof given);
    const kolo_batch batch = batch_of(2 * kolo_comm_rank(comm), 2);
    if (status == KOLO_OK) status = kolo_session_step(s, &batch, NULL);
    if (status == KOLO_OK) status = kolo_session_get(s, "a", got + A, sizeof given);
    kolo_session_destroy(s);
    return status;
}

static void parameters_can_be_set(void **state) {
    float got[3][2 * A];
    rank_job run = {.n = 3,
                    .transport = RANKS_THREAD,
                    .body = set_body,
                    .results = got,
                    .result_bytes = sizeof *got};
    ASSERT_OK(run_rank_job(&run));
    for (int rank = 0; rank < 3; rank++) {
        for (int k = 0; k < A; k++) assert_true(got[rank][k] == (float)(k + 1));
        assert_memory_equal(got[rank], got[0], sizeof got[0]);
        assert_true(got[rank][A] != 1);
    }

    kolo_session *s;
    kolo_session_opts opts = {.optimizer = {.momentum = 0.9}};
    ASSERT_OK(kolo_session_create(NULL, &opts, build_sum, NULL, &s));
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
    kolo_session_opts opts = {.batch = SAMPLES,
                              .lr = 0.5,
                              .schedule = KOLO_LR_STEP,
                              .lr_step_every = 3,
                              .lr_step_factor = 0.5,
                              .warmup_steps = 2};
    const kolo_batch batch = batch_of(0, SAMPLES);
    static const double want[] = {0.25, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125};
    ASSERT_OK(kolo_session_create(NULL, &opts, build_sum, NULL, &s));
    for (size_t k = 0; k < KOLO_COUNT(want); k++) {
        assert_true(kolo_session_lr(s) == want[k]);
        assert_int_equal(kolo_session_steps(s), k);
        ASSERT_OK(kolo_session_step(s, &batch, NULL));
    }
    ASSERT_OK(kolo_session_set_lr(s, 0.01));
    ASSERT_OK(kolo_session_step(s, &batch, NULL));
    assert_true(kolo_session_lr(s) == 0.01);
    kolo_session_destroy(s);

    opts = (kolo_session_opts){.lr = 1, .schedule = KOLO_LR_COSINE, .steps = 2, .batch = SAMPLES};
    ASSERT_OK(kolo_session_create(NULL, &opts, build_sum, NULL, &s));
    for (int k = 0; k < 4; k++) ASSERT_OK(kolo_session_step(s, &batch, NULL));
    assert_true(kolo_session_lr(s) == 0.5); /* the last one */
    kolo_session_destroy(s);
}

/* ---- data sets of a program ---- */

enum { OWN = 53, LABELS = 300 };

/* Field "id" names the sample, "y" has more classes than a byte. */
static kolo_status gather_own(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    float *u_of = data[0];
    int32_t *y = data[1], *id = data[2];
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] == *(const int64_t *)arg) return kolo_error_set(KOLO_ERR_IO, "lost sample");
        for (int k = 0; k < A; k++) u_of[i * A + k] = (float)(indices[i] + k) / OWN;
        y[i] = (int32_t)(indices[i] * 5 % LABELS);
        id[i] = (int32_t)indices[i];
    }
    return KOLO_OK;
}

static const kolo_field own_fields[] = {
    {"u", KOLO_DTYPE_F32, {1, {A}}, .mean = {0}},
    {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
    {"id", KOLO_DTYPE_I32, {0}, .mean = {0}},
};

static kolo_status build_many(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, A));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(LABELS, A), kolo_init_fan_in(A));
    kolo_value logits = kolo_linear(g, x, w);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return KOLO_OK;
}

typedef struct walk {
    int64_t memory, shards, lost; /* lost: a sample that cannot be read; -1 */
} walk;

typedef struct walked {
    int seen[2][OWN]; /* times, by epoch */
    double loss, test;
    float w[LABELS * A];
} walked;

static kolo_status walk_loader(kolo_session *s, kolo_loader *loader, walked *r) {
    kolo_metrics metrics = {{0}};
    for (;;) {
        kolo_batch batch;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        if (batch.global_count == 0) break;
        for (int64_t i = 0; i < batch.count; i++) {
            r->seen[batch.epoch][((const int32_t *)batch.data[2])[i]]++;
        }
        KOLO_TRY(kolo_session_step(s, &batch, &metrics));
    }
    r->loss = kolo_metrics_get(&metrics, "loss");
    return KOLO_OK;
}

static kolo_status walk_body(kolo_comm *comm, const void *arg, void *result) {
    const walk *w = arg;
    walked *r = result;
    kolo_session_opts opts = {.global_batch = 16, .reproducible = w->shards, .lr = 0.1, .seed = 4};
    float all_u[OWN * A];
    int32_t all_y[OWN], all_id[OWN];
    int64_t none = -1, indices[OWN];
    for (int i = 0; i < OWN; i++) indices[i] = i;
    KOLO_TRY(gather_own(&none, indices, OWN, (void *[]){all_u, all_y, all_id}));
    kolo_source source = {.count = OWN, .n_fields = 3, .fields = own_fields, .classes = LABELS};
    if (w->memory) {
        source.data[0] = all_u, source.data[1] = all_y, source.data[2] = all_id;
    } else {
        source.gather = gather_own;
        source.arg = (void *)&w->lost;
    }
    kolo_session *s = NULL;
    kolo_dataset *set = NULL;
    kolo_loader *loader = NULL;
    kolo_metrics metrics;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_create(&source, &set), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_many, NULL, &s), done);
    KOLO_TRY_GOTO(kolo_session_loader(s, set, NULL, 2, &loader), done);
    KOLO_TRY_GOTO(walk_loader(s, loader, r), done);
    KOLO_TRY_GOTO(kolo_session_evaluate_dataset(s, set, &metrics), done);
    r->test = kolo_metrics_get(&metrics, "accuracy");
    status = kolo_session_get(s, "w", r->w, sizeof r->w);
done:
    kolo_loader_destroy(loader);
    kolo_session_destroy(s);
    kolo_dataset_close(set);
    return status;
}

static kolo_status walk_data(int ranks, walk w, walked *r) {
    rank_job run = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = walk_body,
                    .arg = &w,
                    .arg_bytes = sizeof w,
                    .results = r,
                    .result_bytes = sizeof *r};
    return run_rank_job(&run);
}

/* Each sample once per epoch, for any number of ranks, from memory and from a callback: 53 samples
 * in steps of 16. */
static void own_samples_come_once_per_epoch(void **state) {
    static const int ranks[] = {1, 2, 3, 7};
    static walked alone[1], r[7];
    ASSERT_OK(walk_data(1, (walk){.memory = 1, .lost = -1}, alone));
    for (size_t i = 0; i < KOLO_COUNT(ranks); i++) {
        for (int memory = 0; memory < 2; memory++) {
            ASSERT_OK(walk_data(ranks[i], (walk){.memory = memory, .lost = -1}, r));
            for (int e = 0; e < 2; e++) {
                for (int k = 0; k < OWN; k++) {
                    int seen = 0;
                    for (int rank = 0; rank < ranks[i]; rank++) seen += r[rank].seen[e][k];
                    assert_int_equal(seen, 1);
                }
            }
            assert_true(test_relative_l2_f32(r[0].w, alone->w, LABELS * A) < 1e-5);
            assert_true(fabs(r[0].loss - alone->loss) < 1e-5 * alone->loss);
            assert_true(fabs(r[0].test - alone->test) < 1e-9);
        }
    }
    static walked one[1], three[3];
    ASSERT_OK(walk_data(1, (walk){.shards = 4, .lost = -1}, one));
    ASSERT_OK(walk_data(3, (walk){.shards = 4, .lost = -1, .memory = 1}, three));
    assert_memory_equal(one->w, three[2].w, sizeof one->w);

    assert_int_equal(walk_data(1, (walk){.lost = 11}, r), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "lost sample"));
}

/* Images of u8 and f32 in blocked and interleaved layouts: three channels, 1000 classes. */
static kolo_status build_images(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 3, 8, 8));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value c = kolo_param(g, "conv", kolo_shape_4(16, 3, 3, 3), kolo_init_fan_in(27));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(1000, 16), kolo_init_fan_in(16));
    kolo_value h = kolo_relu(g, kolo_conv2d(g, x, c, NULL));
    kolo_output(g, "features", h);
    h = kolo_flatten(g, kolo_global_avg_pool2d(g, h));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, h, w), y));
    return KOLO_OK;
}

static void images_of_bytes_and_floats_are_the_same(void **state) {
    enum { N = 16, PIXELS = 3 * 8 * 8 };
    static uint8_t bytes[N * PIXELS];
    static float floats[N * PIXELS], features[2][N * 16 * 6 * 6];
    int32_t y[N];
    const float mean[] = {0.5F, 0.25F, 0}, std[] = {0.5F, 0.25F, 1};
    kolo_field of[2][2] = {
        {{"x", KOLO_DTYPE_U8, {3, {3, 8, 8}}, .mean = {0.5F, 0.25F}, .std = {0.5F, 0.25F}},
         {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}},
        {{"x", KOLO_DTYPE_F32, {3, {3, 8, 8}}, .mean = {0}},
         {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}}};
    for (int i = 0; i < N; i++) y[i] = 999 - i;
    for (int i = 0; i < N * PIXELS; i++) {
        int c = i / 64 % 3;
        bytes[i] = (uint8_t)(i * 91 % 256);
        floats[i] = (float)bytes[i] * (float)(1 / (255 * (double)std[c])) + -mean[c] / std[c];
    }
    kolo_metrics metrics[2];
    for (int k = 0; k < 2; k++) {
        kolo_session *s;
        kolo_batch batch = {
            .count = N, .n_fields = 2, .fields = of[k], .data = {k ? (void *)floats : bytes, y}};
        ASSERT_OK(
            kolo_session_create(NULL, &(kolo_session_opts){.batch = N}, build_images, NULL, &s));
        ASSERT_OK(kolo_session_step(s, &batch, &metrics[k]));
        batch.n_fields = 1; /* no labels */
        ASSERT_OK(
            kolo_session_predict(s, &batch, "features", features[k], sizeof features[k], NULL));
        kolo_session_destroy(s);
    }
    assert_true(kolo_metrics_get(&metrics[0], "loss") == kolo_metrics_get(&metrics[1], "loss"));
    assert_memory_equal(features[0], features[1], sizeof features[0]);
}

/* ---- files ---- */

static const char file[] = "test_session.safetensors";

static kolo_status step_from(kolo_session *s, int k) {
    int64_t first, count;
    KOLO_TRY(kolo_session_share(s, 6, &first, &count));
    const kolo_batch batch = batch_of(k % 2 * 6 + first, count);
    return kolo_session_step(s, &batch, NULL);
}

/* Four steps, and two, a save, a load into another session and two more: the same bits. */
static kolo_status files_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.global_batch = 6,
                                    .lr = 0.1,
                                    .zero = *(const int *)arg,
                                    .optimizer = {.kind = KOLO_OPTIMIZER_ADAM},
                                    .schedule = KOLO_LR_COSINE,
                                    .steps = 9};
    const kolo_session_opts other = {.batch = 3, .evaluate_only = true};
    const kolo_batch batch = batch_of(0, SAMPLES);
    uint64_t *hashes = result;
    double *loss = (double *)result + 2;
    kolo_session *a = NULL, *b = NULL, *c = NULL;
    kolo_metrics m[2];
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_sum, NULL, &a), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_sum, NULL, &b), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &other, build_sum, NULL, &c), done);
    for (int k = 0; k < 2; k++) KOLO_TRY_GOTO(step_from(a, k), done);
    KOLO_TRY_GOTO(kolo_session_save(a, file), done);
    KOLO_TRY_GOTO(kolo_session_load(b, file), done);
    KOLO_TRY_GOTO(kolo_session_load(c, file), done);
    KOLO_TRY_GOTO(kolo_session_evaluate(a, &batch, &m[0]), done);
    KOLO_TRY_GOTO(kolo_session_evaluate(c, &batch, &m[1]), done);
    loss[0] = kolo_metrics_get(&m[0], "loss");
    loss[1] = kolo_metrics_get(&m[1], "loss");
    for (int k = 2; k < 4; k++) KOLO_TRY_GOTO(step_from(a, k), done);
    for (int k = 2; k < 4; k++) KOLO_TRY_GOTO(step_from(b, k), done);
    KOLO_TRY_GOTO(kolo_store_hash_shards(kolo_session_store(a), &hashes[0]), done);
    KOLO_TRY_GOTO(kolo_store_hash_shards(kolo_session_store(b), &hashes[1]), done);
    if (kolo_session_steps(b) != 4) status = kolo_error_set(KOLO_ERR_FORMAT, "steps");
done:
    kolo_session_destroy(a);
    kolo_session_destroy(b);
    kolo_session_destroy(c);
    return status;
}

static void loaded_sessions_go_on_with_the_same_bits(void **state) {
    static const struct { int ranks, zero; } cases[] = {{1, 0}, {3, 0}, {2, 1}, {3, 2}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int ranks = cases[i].ranks;
        struct {
            uint64_t hash[2];
            double loss[2];
        } r[3];
        rank_job run = {.n = ranks,
                        .transport = RANKS_THREAD,
                        .body = files_body,
                        .arg = &cases[i].zero,
                        .arg_bytes = sizeof cases[i].zero,
                        .results = r,
                        .result_bytes = sizeof *r};
        ASSERT_OK(run_rank_job(&run));
        for (int rank = 0; rank < ranks; rank++) {
            assert_true(r[rank].hash[0] == r[rank].hash[1] && r[rank].hash[0] == r[0].hash[0]);
            assert_true(r[rank].loss[0] > 0 && r[rank].loss[0] == r[rank].loss[1]);
        }
    }
    char *text;
    ASSERT_OK(kolo_checkpoint_verify(file, &text));
    assert_non_null(strstr(text, "names no model"));
    kolo_checkpoint_text_free(text);
}

/* Another "b", and a parameter that the file lacks. */
static kolo_status build_other(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, A));
    kolo_value a = kolo_param(g, "a", kolo_shape_2(1, A), kolo_init_fan_in(A));
    kolo_value b = kolo_param(g, "b", kolo_shape_2(4, A), kolo_init_fan_in(A));
    kolo_value c = kolo_param(g, "c", kolo_shape_1(1), kolo_init_fan_in(A));
    kolo_value y = kolo_bias(g, kolo_linear(g, x, a), c);
    kolo_output(g, "loss", kolo_add(g, kolo_sum(g, y), kolo_sum(g, kolo_linear(g, x, b))));
    return KOLO_OK;
}

static kolo_status partial_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session *a = NULL, *b = NULL;
    float *got = result;
    char *rest = NULL;
    const float three[A] = {3, 3, 3};
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, NULL, build_sum, NULL, &a), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, NULL, build_other, NULL, &b), done);
    KOLO_TRY_GOTO(kolo_session_set(a, "a", three, sizeof three), done);
    KOLO_TRY_GOTO(kolo_session_save(a, "test_session_part.safetensors"), done);
    KOLO_TRY_GOTO(kolo_session_load_partial(b, "test_session_part.safetensors", &rest), done);
    KOLO_TRY_GOTO(kolo_session_get(b, "a", got, 3 * sizeof *got), done);
    if (strcmp(rest, "missing: c\nof another type or shape: b f32 [1,2], not [4,3]\n") != 0) {
        status = kolo_error_set(KOLO_ERR_FORMAT, "%s", rest);
    }
done:
    kolo_checkpoint_text_free(rest);
    kolo_session_destroy(a);
    kolo_session_destroy(b);
    return status;
}

static void what_fits_is_loaded_and_the_rest_listed(void **state) {
    float got[2][A];
    rank_job run = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = partial_body,
                    .results = got,
                    .result_bytes = sizeof *got};
    ASSERT_OK(run_rank_job(&run));
    for (int i = 0; i < 2 * A; i++) assert_true(got[i / A][i % A] == 3);
}

/* ---- memory that one rank lacks ---- */

/* A parameter whose ranges are not in row-major order. */
static kolo_status build_image(kolo_graph *g, int64_t n, void *arg) {
    const kolo_conv2d_opts opts = {.pad_h = 1, .pad_w = 1};
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 16, 16, 16));
    kolo_value w = kolo_param(g, "w", kolo_shape_4(16, 16, 3, 3), kolo_init_fan_in(144));
    kolo_output(g, "loss", kolo_sum(g, kolo_conv2d(g, x, w, &opts)));
    return KOLO_OK;
}

/* `arg`: the allocation that fails on rank 1. */
static kolo_status memory_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.batch = 2, .zero = 3};
    long nth = 0;
    uint64_t hash;
    kolo_session *s = NULL;
    KOLO_TRY(kolo_session_create(comm, &opts, build_image, NULL, &s));
    if (kolo_comm_rank(comm) == 1) memcpy(&nth, arg, sizeof nth);
    kolo_alloc_fail_nth(nth);
    kolo_status status = kolo_store_hash_shards(kolo_session_store(s), &hash);
    if (status == KOLO_OK) status = kolo_session_save(s, "test_session_memory.safetensors");
    kolo_alloc_fail_nth(0);
    kolo_session_destroy(s);
    return status;
}

/* Every early allocation fails in turn, then every third one. */
static void memory_that_one_rank_lacks_fails_all(void **state) {
    bool failed = true;
    for (long n = 1; failed; n += n < 17 ? 1 : 3) {
        rank_outcome outcomes[2];
        rank_job run = {.n = 2,
                        .transport = RANKS_THREAD,
                        .body = memory_body,
                        .arg = &n,
                        .arg_bytes = sizeof n,
                        .outcomes = outcomes};
        failed = run_rank_job(&run) != KOLO_OK;
        assert_true(n < 1000 && (failed || n > 10));
        for (int r = 0; failed && r < 2; r++) {
            if (!strstr(outcomes[r].error, "memory")) {
                fail_msg("allocation %ld, rank %d: %s", n, r, outcomes[r].error);
            }
        }
    }
    assert_int_equal(unlink("test_session_memory.safetensors"), 0);
}

/* ---- misuse ---- */

#define REFUSES(call, text)                                                      \
    do {                                                                         \
        assert_int_equal(call, KOLO_ERR_ARG);                                    \
        if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error()); \
    } while (0)

static kolo_status build_error(kolo_graph *g, int64_t n, void *arg) {
    return kolo_error_set(KOLO_ERR_ARG, "of the builder");
}
static kolo_status build_silently_fails(kolo_graph *g, int64_t n, void *arg) {
    return KOLO_ERR_ARG;
}
static kolo_status build_nothing(kolo_graph *g, int64_t n, void *arg) { return KOLO_OK; }
static kolo_status build_fixed(kolo_graph *g, int64_t n, void *arg) {
    return build_sum(g, 4, arg); /* for another number of samples */
}
/* Parameters that depend on the number of samples. */
static kolo_status build_sized(kolo_graph *g, int64_t n, void *arg) {
    kolo_value w = kolo_param(g, "w", kolo_shape_2(n + 1, A), kolo_init_fan_in(A));
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, A));
    kolo_output(g, "loss", kolo_sum(g, kolo_linear(g, x, w)));
    return KOLO_OK;
}

static void sessions_that_cannot_be_are_refused(void **state) {
    kolo_session *s = NULL;
    kolo_session_opts cosine = {.schedule = KOLO_LR_COSINE}, threads = {.threads = -1};
    kolo_session_opts shards = {.reproducible = 4}, both = {.batch = 2, .global_batch = 4};
    kolo_session_opts mesh = {.mesh = "tp=2"}, momentum = {.optimizer = {.momentum = 2}};
    kolo_session_opts lr = {.lr = -1}, schedule = {.schedule = (kolo_lr_schedule)99};
    kolo_session_opts algorithm = {.algorithm = (kolo_algorithm)99};
    REFUSES(kolo_session_create(NULL, NULL, NULL, NULL, &s), "without a builder");
    REFUSES(kolo_session_create(NULL, NULL, build_sum, NULL, NULL), "no place for the session");
    REFUSES(kolo_session_create(NULL, NULL, build_error, NULL, &s), "of the builder");
    REFUSES(kolo_session_create(NULL, NULL, build_silently_fails, NULL, &s),
            "builder: invalid argument, without an error text");
    REFUSES(kolo_session_create(NULL, NULL, build_nothing, NULL, &s), "no output \"loss\"");
    REFUSES(kolo_session_create(NULL, NULL, build_fixed, NULL, &s), "first dimension must be");
    REFUSES(kolo_session_create(NULL, &cosine, build_sum, NULL, &s), "give `steps`");
    REFUSES(kolo_session_create(NULL, &threads, build_sum, NULL, &s), "threads");
    REFUSES(kolo_session_create(NULL, &shards, build_sum, NULL, &s), "global batch");
    REFUSES(kolo_session_create(NULL, &both, build_sum, NULL, &s), "choose one");
    REFUSES(kolo_session_create(NULL, &mesh, build_sum, NULL, &s), "tp=2");
    REFUSES(kolo_session_create(NULL, &momentum, build_sum, NULL, &s), "momentum");
    REFUSES(kolo_session_create(NULL, &lr, build_sum, NULL, &s), "learning rate");
    REFUSES(kolo_session_create(NULL, &schedule, build_sum, NULL, &s), "schedule");
    REFUSES(kolo_session_create(NULL, &algorithm, build_sum, NULL, &s), "algorithm");
    assert_null(s);

    kolo_batch one = {.count = 1, .n_fields = 1, .fields = &fields[2], .data = {u}};
    ASSERT_OK(kolo_session_create(NULL, NULL, build_sized, NULL, &s));
    REFUSES(kolo_session_step(s, &one, NULL), "parameter w is [2,3] here");
    kolo_session_destroy(s);
    kolo_session_destroy(NULL);
}

static kolo_status build_labels(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, A));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(4, A), kolo_init_fan_in(A));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    return KOLO_OK;
}

static void batches_that_do_not_fit_are_refused(void **state) {
    kolo_session *s;
    kolo_session_opts opts = {.batch = 4};
    kolo_metrics metrics;
    int64_t first, count;
    ASSERT_OK(kolo_session_create(NULL, &opts, build_sum, NULL, &s));
    const kolo_batch good = batch_of(0, 4);
    kolo_batch none = good, few = good, empty = good, lost = good, many = good, bare = good;
    kolo_field other[3] = {fields[0], fields[1], fields[2]};
    kolo_batch shaped = good;
    none.fields = NULL;
    few.n_fields = 2;
    empty.count = 0;
    lost.data[1] = NULL;
    many.n_fields = KOLO_MAX_FIELDS + 1;
    bare.count = -1;
    shaped.fields = other;
    REFUSES(kolo_session_step(NULL, &good, &metrics), "no session");
    REFUSES(kolo_session_step(s, NULL, &metrics), "no batch");
    REFUSES(kolo_session_step(s, &none, &metrics), "describes none");
    REFUSES(kolo_session_step(s, &few, &metrics), "no field \"u\"");
    REFUSES(kolo_session_step(s, &empty, &metrics), "without samples");
    REFUSES(kolo_session_step(s, &lost, &metrics), "\"v\" of a batch of 4 samples has no data");
    REFUSES(kolo_session_step(s, &many, &metrics), "33 fields");
    REFUSES(kolo_session_step(s, &bare, &metrics), "-1 samples");
    other[1].shape = kolo_shape_1(B + 1);
    REFUSES(kolo_session_step(s, &shaped, &metrics), "\"v\" is f32 [3] for each sample");
    other[1].shape = fields[1].shape;
    other[1].dtype = KOLO_DTYPE_F64;
    REFUSES(kolo_session_step(s, &shaped, &metrics), "\"v\" is f64 [2]");
    other[1].dtype = (kolo_dtype)99;
    REFUSES(kolo_session_step(s, &shaped, &metrics), "dtype 99");
    other[1].dtype = KOLO_DTYPE_F32;
    other[1].name = NULL;
    REFUSES(kolo_session_step(s, &shaped, &metrics), "field 1 of the batch has no name");
    REFUSES(kolo_session_evaluate(s, &good, NULL), "no place");
    REFUSES(kolo_session_evaluate(s, &empty, &metrics), "without samples");
    REFUSES(kolo_session_evaluate(NULL, &good, &metrics), "no session");
    float y[4];
    REFUSES(kolo_session_predict(s, &good, "z", y, sizeof y, NULL), "it has y, loss");
    REFUSES(kolo_session_predict(s, &good, NULL, y, sizeof y, NULL), "it has y, loss");
    REFUSES(kolo_session_predict(s, &good, "y", y, 3, NULL), "\"y\" is f32 [4,1], 16 bytes");
    REFUSES(kolo_session_predict(s, &good, "y", NULL, 0, NULL), "no room");
    REFUSES(kolo_session_share(s, -1, &first, &count), "-1 samples");
    REFUSES(kolo_session_share(s, 4, NULL, &count), "no place");
    REFUSES(kolo_session_set_lr(s, 0), "learning rate of 0");
    REFUSES(kolo_session_set_lr(s, NAN), "learning rate");
    REFUSES(kolo_session_get(s, "c", y, sizeof y), "no tensor \"c\"");
    REFUSES(kolo_session_get(s, "a", y, sizeof y), "\"a\" is f32 [1,3], 12 bytes");
    REFUSES(kolo_session_get(s, NULL, y, sizeof y), "no tensor");
    REFUSES(kolo_session_set(s, "a", NULL, 12), "no room");
    y[1] = INFINITY;
    REFUSES(kolo_session_set(s, "a", y, 12), "not finite");
    REFUSES(kolo_session_get_gradient(s, "a", y, 12), "keep_gradients");
    REFUSES(kolo_session_tensor(s, 2, &other[0]), "tensor 2 of a session that has 2");
    REFUSES(kolo_session_tensor(s, 0, NULL), "no place");
    ASSERT_OK(kolo_session_step(s, &good, &metrics)); /* still works */
    kolo_session_destroy(s);

    opts = (kolo_session_opts){.evaluate_only = true};
    ASSERT_OK(kolo_session_create(NULL, &opts, build_sum, NULL, &s));
    REFUSES(kolo_session_step(s, &good, &metrics), "evaluates only");
    ASSERT_OK(kolo_session_evaluate(s, &good, &metrics));
    kolo_session_destroy(s);

    int32_t labels[] = {0, 3, 4, 1};
    const kolo_field classes[] = {fields[2], {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    const kolo_batch wrong = {.count = 4, .n_fields = 2, .fields = classes, .data = {u, labels}};
    ASSERT_OK(kolo_session_create(NULL, NULL, build_labels, NULL, &s));
    REFUSES(kolo_session_step(s, &wrong, &metrics), "label 4 at index 2 of field \"y\"");
    labels[2] = -1;
    REFUSES(kolo_session_evaluate(s, &wrong, &metrics), "label -1");
    labels[2] = 2;
    ASSERT_OK(kolo_session_evaluate(s, &wrong, &metrics));
    assert_true(fabs(kolo_metrics_get(&metrics, "loss") - log(4)) < 1);
    kolo_session_destroy(s);
}

/* What one rank does wrong fails on all ranks, and the session goes on. */
typedef struct quarrel {
    int kind;
    const char *text;
} quarrel;

static kolo_status build_wider(kolo_graph *g, int64_t n, void *arg) {
    KOLO_TRY(build_sum(g, n, arg));
    kolo_output(g, "z", kolo_scale(g, kolo_graph_output(g, "y"), 2));
    return KOLO_OK;
}

static void data_and_files_that_cannot_be_are_refused(void **state) {
    kolo_dataset *d = NULL;
    kolo_session *s;
    kolo_loader *loader;
    kolo_metrics metrics;
    static float values[OWN * A];
    static int32_t labels[OWN];
    kolo_field other[3] = {own_fields[0], own_fields[1], own_fields[1]};
    kolo_source good = {.count = OWN,
                        .n_fields = 2,
                        .fields = own_fields,
                        .data = {values, labels},
                        .classes = LABELS};
    kolo_source none = good, bare = good, few = good, twice = good, wide = good, lost = good;
    none.count = 0;
    bare.n_fields = 0;
    few.fields = NULL;
    twice.fields = wide.fields = other;
    twice.n_fields = 3;
    lost.data[0] = NULL;
    REFUSES(kolo_dataset_create(NULL, &d), "no samples");
    REFUSES(kolo_dataset_create(&good, NULL), "no place");
    REFUSES(kolo_dataset_create(&none, &d), "0 samples");
    REFUSES(kolo_dataset_create(&bare, &d), "0 fields");
    REFUSES(kolo_dataset_create(&few, &d), "0 fields");
    REFUSES(kolo_dataset_create(&twice, &d), "two fields \"y\"");
    REFUSES(kolo_dataset_create(&lost, &d), "field \"u\" of data of the program has no data");
    other[0].shape.dim[0] = INT64_MAX / 2;
    REFUSES(kolo_dataset_create(&wide, &d), "shape of rank 1 is invalid");
    other[0].shape = (kolo_shape){KOLO_MAX_RANK, {1, 1, 1, 1, 1, 1}};
    REFUSES(kolo_dataset_create(&wide, &d), "shape of rank 6 is invalid");
    other[0].dtype = (kolo_dtype)99;
    REFUSES(kolo_dataset_create(&wide, &d), "dtype 99");
    other[0].name = NULL;
    REFUSES(kolo_dataset_create(&wide, &d), "has no name");
    labels[7] = LABELS;
    assert_int_equal(kolo_dataset_create(&good, &d), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "label 300 of sample 7"));
    labels[7] = 0;
    assert_null(d);

    ASSERT_OK(kolo_dataset_create(&good, &d));
    ASSERT_OK(kolo_session_create(NULL, NULL, build_sum, NULL, &s));
    REFUSES(kolo_session_loader(s, NULL, NULL, 1, &loader), "no data set");
    REFUSES(kolo_session_loader(s, d, NULL, 1, NULL), "no place");
    REFUSES(kolo_session_loader(s, d, NULL, 0, &loader), "epochs");
    REFUSES(kolo_session_loader(s, d, "flip", 1, &loader), "cannot be augmented");
    REFUSES(kolo_session_loader(s, d, "flop", 1, &loader), "flop");
    REFUSES(kolo_session_evaluate_dataset(s, d, &metrics), "no field");
    REFUSES(kolo_session_evaluate_dataset(s, NULL, &metrics), "no data set");
    REFUSES(kolo_session_evaluate_dataset(s, d, NULL), "no place");
    REFUSES(kolo_session_save(s, NULL), "no path");
    REFUSES(kolo_session_load(s, ""), "no path");
    REFUSES(kolo_session_load(NULL, file), "no session");
    REFUSES(kolo_session_load_partial(s, NULL, NULL), "no path");
    assert_int_equal(kolo_session_load(s, "/nowhere/file"), KOLO_ERR_IO);
    assert_int_equal(kolo_session_save(s, "/nowhere/file"), KOLO_ERR_IO);
    kolo_session_destroy(s);
    kolo_dataset_close(d);
}

static kolo_status expect(kolo_status status, const quarrel *q) {
    if (status == KOLO_ERR_ARG && strstr(kolo_last_error(), q->text)) return KOLO_OK;
    return kolo_error_set(KOLO_ERR_FORMAT, "case %d: status %d, %s", q->kind, status,
                          kolo_last_error());
}

static kolo_status quarrel_body(kolo_comm *comm, const void *arg, void *result) {
    const quarrel *q = arg;
    const bool odd = kolo_comm_rank(comm) == 1;
    kolo_session_opts opts = {.batch = 4, .lr = odd && q->kind == 0 ? 0.1 : 0.2};
    kolo_build *build = odd && q->kind == 1 ? build_wider : build_sum;
    kolo_session *s;
    kolo_status status = kolo_session_create(comm, &opts, build, NULL, &s);
    if (q->kind < 2) return expect(status, q);
    KOLO_TRY(status);
    const kolo_batch good = batch_of(0, 4);
    kolo_batch bad = odd ? batch_of(0, 3) : good;
    float value[A] = {0};
    if (q->kind == 3 && odd) bad = (kolo_batch){.count = 4};
    if (q->kind < 4) status = expect(kolo_session_step(s, &bad, NULL), q);
    if (q->kind == 4) {
        status = expect(kolo_session_set(s, odd ? "c" : "a", value, sizeof value), q);
    }
    if (status == KOLO_OK) status = kolo_session_step(s, &good, NULL);
    kolo_session_destroy(s);
    return status;
}

static void ranks_that_differ_are_refused_together(void **state) {
    static const quarrel cases[] = {
        {0, "rank 1 has \"lr: 0.1\", rank 0 has \"lr: 0.2\""},
        {1, "the ranks have different options: rank 1"},
        {2, "rank 1 gave 3 of the 15 samples of a step, its share is 4"},
        {3, "the batch has no field \"u\""},
        {4, "no tensor \"c\""}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(run_ranks(4, RANKS_THREAD, quarrel_body, &cases[i], sizeof cases[i]));
    }
}

TEST_MAIN(test_session) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_a_training_job),
        cmocka_unit_test(several_inputs_are_fitted_by_any_number_of_ranks),
        cmocka_unit_test(gradients_are_those_of_the_mean),
        cmocka_unit_test(parameters_can_be_set),
        cmocka_unit_test(learning_rates_follow_schedule_and_caller),
        cmocka_unit_test(own_samples_come_once_per_epoch),
        cmocka_unit_test(images_of_bytes_and_floats_are_the_same),
        cmocka_unit_test(loaded_sessions_go_on_with_the_same_bits),
        cmocka_unit_test(what_fits_is_loaded_and_the_rest_listed),
        cmocka_unit_test(memory_that_one_rank_lacks_fails_all),
        cmocka_unit_test(sessions_that_cannot_be_are_refused),
        cmocka_unit_test(data_and_files_that_cannot_be_are_refused),
        cmocka_unit_test(batches_that_do_not_fit_are_refused),
        cmocka_unit_test(ranks_that_differ_are_refused_together),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
