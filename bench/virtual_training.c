#include "virtual_training.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "kolo/data.h"
#include "kolo/graph.h"
#include "kolo/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 16, EPOCHS = 64, TENSORS = 8, SIDE = 28, CLASSES = 10 };
enum { EVALUATE_EVERY = 50 /* steps of each worker */, EVALUATIONS = 4096 };
enum { TEST_BATCH = 250, TEST_BATCHES = 10 }; /* every fourth sample of the test split */

static const double rate = 0.08, momentum = 0.5; /* the rate is that of a step of all workers */

typedef struct tensor {
    const char *name;
    size_t first, count; /* in the vector */
} tensor;

struct virtual_training {
    policy_sim_model model;
    kolo_session *session, *tests; /* to train, to evaluate */
    kolo_dataset *train, *test;
    tensor tensors[TENSORS];
    int n_tensors, workers;
    bool adapts;
    uint64_t seed;
    float *initial, *velocity;
    int64_t *order[EPOCHS]; /* of the samples; NULL: not drawn yet */
    int64_t *made;          /* [workers]: steps */
    uint8_t *x;             /* [BATCH]: images, and their labels */
    int32_t *y;
    uint8_t *test_x; /* [TEST_BATCHES * TEST_BATCH] */
    int32_t *test_y;
    double accuracy;    /* to be reached, */
    int mean_of;        /* in the mean of so many evaluations */
    uint64_t gradients; /* in all updates */
    struct {
        double seconds, accuracy;
    } evaluations[EVALUATIONS];
    int n_evaluations;
};

/* A convolution that keeps the size, ReLU, and a pool that halves it. */
static kolo_value layer(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out) {
    const kolo_conv2d_opts same = {.pad_h = 2, .pad_w = 2};
    const kolo_pool2d_opts half = {.kernel_h = 2, .kernel_w = 2};
    kolo_value w = kolo_param(g, name, kolo_shape_4(out, in, 5, 5), kolo_init_fan_in(25 * in));
    return kolo_max_pool2d(g, kolo_relu(g, kolo_conv2d(g, x, w, &same)), &half);
}

/* The network of bench/slow_model.c. */
static kolo_status build(kolo_graph *g, int64_t n, void *arg) {
    (void)arg;
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 1, SIDE, SIDE));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    const int64_t last = 16 * (SIDE / 4) * (SIDE / 4);
    x = kolo_flatten(g, layer(g, "conv2", layer(g, "conv1", x, 1, 8), 8, 16));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(CLASSES, last), kolo_init_fan_in(last));
    kolo_value logits = kolo_linear(g, x, w);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

static void check(kolo_status status) {
    if (status == KOLO_OK) return;
    fprintf(stderr, "policies: %s\n", kolo_last_error());
    exit(1);
}

static void set_values(const virtual_training *t, kolo_session *session, const float *values) {
    for (int i = 0; i < t->n_tensors; i++) {
        const tensor *x = &t->tensors[i];
        check(kolo_session_set(session, x->name, values + x->first, x->count * sizeof *values));
    }
}

/* ---- what a simulation calls ---- */

/* The samples of a worker's next step: those that `kolo train` would take. */
static void draw_batch(virtual_training *t, int worker) {
    const int64_t step_samples = (int64_t)t->workers * BATCH,
                  all = kolo_dataset_describe(t->train)->count;
    const int64_t steps = all / step_samples, step = t->made[worker]++, epoch = step / steps;
    KOLO_ASSERT(epoch < EPOCHS);
    if (!t->order[epoch]) {
        t->order[epoch] = kolo_alloc((size_t)all * sizeof *t->order[epoch]);
        KOLO_ASSERT(t->order[epoch]);
        check(kolo_dataset_order(t->train, t->seed, epoch, all, t->order[epoch]));
    }
    const int64_t *indices = t->order[epoch] + step % steps * step_samples + worker * BATCH;
    check(kolo_dataset_gather(t->train, indices, BATCH, (void *const[]){t->x, t->y}));
}

static double compute(void *arg, int worker, const float *values, float *gradient) {
    virtual_training *t = arg;
    const kolo_dataset_info *info = kolo_dataset_describe(t->train);
    kolo_metrics metrics;
    draw_batch(t, worker);
    set_values(t, t->session, values);
    const kolo_batch batch = {
        .count = BATCH, .n_fields = 2, .fields = info->fields, .data = {t->x, t->y}};
    check(kolo_session_step(t->session, &batch, &metrics));
    for (int i = 0; i < t->n_tensors; i++) {
        const tensor *x = &t->tensors[i];
        check(kolo_session_get_gradient(t->session, x->name, gradient + x->first,
                                        x->count * sizeof *gradient));
    }
    return metrics.value[KOLO_METRIC_LOSS];
}

/* Whether the test accuracy is reached. */
static bool evaluate(virtual_training *t, double seconds, const float *values) {
    double sum = 0, now = 0;
    set_values(t, t->tests, values);
    for (size_t i = 0; i < TEST_BATCHES; i++) {
        uint8_t *x = t->test_x + i * TEST_BATCH * SIDE * SIDE;
        const kolo_batch batch = {.count = TEST_BATCH,
                                  .n_fields = 2,
                                  .fields = kolo_dataset_describe(t->test)->fields,
                                  .data = {x, t->test_y + i * TEST_BATCH}};
        kolo_metrics metrics;
        check(kolo_session_evaluate(t->tests, &batch, &metrics));
        now += kolo_metrics_get(&metrics, "accuracy") / TEST_BATCHES;
    }
    const int n = t->n_evaluations++;
    t->evaluations[n].seconds = seconds;
    t->evaluations[n].accuracy = now;
    for (int i = 0; i < t->mean_of && i <= n; i++) sum += t->evaluations[n - i].accuracy;
    return sum >= t->accuracy * t->mean_of;
}

/* SGD, as `kolo train` has it: the mean gradient of those that are in a sum; a gradient that is an
 * update of its own has the learning rate of its worker's share of a step, and so has a sum with
 * `auto`. */
static bool update(void *arg, double seconds, const kolo_parameters_update *u) {
    virtual_training *t = arg;
    const int mean_of = u->least > u->workers ? u->least : u->workers;
    const double alone = t->adapts ? (double)u->workers / u->not_lost : 1;
    const double share = u->worker < 0 || t->adapts ? alone : 1.0 / t->workers;
    const float lr = (float)(rate * share), part = 1 / (float)mean_of;
    for (size_t i = 0; i < u->count; i++) {
        t->velocity[i] = (float)momentum * t->velocity[i] + part * u->gradient[i];
        u->values[i] -= lr * t->velocity[i];
    }
    t->gradients += (uint64_t)u->workers;
    const uint64_t due = t->gradients / ((uint64_t)t->workers * EVALUATE_EVERY);
    if (due <= (uint64_t)t->n_evaluations || t->n_evaluations == EVALUATIONS) return false;
    return evaluate(t, seconds, u->values);
}

/* ---- creation ---- */

static kolo_status find_tensors(virtual_training *t) {
    kolo_field f;
    for (int i = 0; kolo_session_tensor(t->session, i, &f) == KOLO_OK; i++) {
        if (strncmp(f.name, "optimizer.", sizeof "optimizer." - 1) == 0) continue;
        KOLO_ASSERT(t->n_tensors < TENSORS);
        const size_t n = (size_t)kolo_shape_count(&f.shape);
        t->tensors[t->n_tensors++] = (tensor){f.name, t->model.count, n};
        t->model.count += n;
    }
    t->initial = kolo_zalloc(t->model.count * sizeof *t->initial);
    t->velocity = kolo_zalloc(t->model.count * sizeof *t->velocity);
    if (!t->initial || !t->velocity) return KOLO_NOMEM(t->model.count * sizeof *t->initial);
    for (int i = 0; i < t->n_tensors; i++) {
        const tensor *x = &t->tensors[i];
        KOLO_TRY(kolo_session_get(t->session, x->name, t->initial + x->first,
                                  x->count * sizeof *t->initial));
    }
    return KOLO_OK;
}

static kolo_status read_tests(virtual_training *t) {
    enum { SAMPLES = TEST_BATCHES * TEST_BATCH };
    int64_t indices[SAMPLES];
    const int64_t every = kolo_dataset_describe(t->test)->count / SAMPLES;
    for (int64_t i = 0; i < SAMPLES; i++) indices[i] = i * every;
    t->test_x = kolo_alloc((size_t)SAMPLES * SIDE * SIDE);
    t->test_y = kolo_alloc(SAMPLES * sizeof *t->test_y);
    if (!t->test_x || !t->test_y) return KOLO_NOMEM((size_t)SAMPLES * SIDE * SIDE);
    return kolo_dataset_gather(t->test, indices, SAMPLES, (void *const[]){t->test_x, t->test_y});
}

static kolo_status open_all(virtual_training *t) {
    const kolo_session_opts opts = {
        .batch = BATCH, .threads = 1, .seed = t->seed, .keep_gradients = true};
    KOLO_TRY(kolo_dataset_open("fashion-mnist", KOLO_SPLIT_TRAIN, &t->train));
    KOLO_TRY(kolo_dataset_open("fashion-mnist", KOLO_SPLIT_TEST, &t->test));
    const kolo_session_opts tests = {.batch = TEST_BATCH, .threads = 1, .evaluate_only = true};
    KOLO_TRY(kolo_session_create(NULL, &opts, build, NULL, &t->session));
    KOLO_TRY(kolo_session_create(NULL, &tests, build, NULL, &t->tests));
    t->made = kolo_zalloc((size_t)t->workers * sizeof *t->made);
    t->x = kolo_alloc(BATCH * SIDE * SIDE);
    t->y = kolo_alloc(BATCH * sizeof *t->y);
    if (!t->made || !t->x || !t->y) return KOLO_NOMEM(BATCH * SIDE * SIDE);
    KOLO_TRY(read_tests(t));
    return find_tensors(t);
}

kolo_status virtual_training_create(uint64_t seed, int workers, bool adapts, double accuracy,
                                    int mean_of, virtual_training **training) {
    virtual_training *t = kolo_zalloc(sizeof *t);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->seed = seed;
    t->workers = workers;
    t->adapts = adapts;
    t->accuracy = accuracy;
    t->mean_of = mean_of;
    const kolo_status status = open_all(t);
    if (status != KOLO_OK) {
        virtual_training_destroy(t);
        return status;
    }
    t->model.initial = t->initial;
    t->model.compute = compute;
    t->model.update = update;
    t->model.arg = t;
    *training = t;
    return KOLO_OK;
}

void virtual_training_destroy(virtual_training *t) {
    if (!t) return;
    kolo_session_destroy(t->session);
    kolo_session_destroy(t->tests);
    kolo_dataset_close(t->train);
    kolo_dataset_close(t->test);
    for (int i = 0; i < EPOCHS; i++) kolo_free(t->order[i]);
    kolo_free(t->initial);
    kolo_free(t->velocity);
    kolo_free(t->made);
    kolo_free(t->x);
    kolo_free(t->y);
    kolo_free(t->test_x);
    kolo_free(t->test_y);
    kolo_free(t);
}

const policy_sim_model *virtual_training_model(const virtual_training *t) { return &t->model; }

bool virtual_training_evaluation(const virtual_training *t, int i, double *seconds,
                                 double *accuracy) {
    if (i >= t->n_evaluations) return false;
    *seconds = t->evaluations[i].seconds;
    *accuracy = t->evaluations[i].accuracy;
    return true;
}
