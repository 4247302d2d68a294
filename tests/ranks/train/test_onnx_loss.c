/* Losses of ONNX files: a step on any number of workers and micro-batches trains the loss that the
 * file computes for the whole batch, as PyTorch does on one worker. */
#include "support/support.h"

#ifdef KOLO_HAS_ONNX

#include "base/compiler.h"
#include "kolo/session.h"
#include "support/folder.h"
#include "support/onnx_build.h"
#include "support/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 11, IN = 3, CLASSES = 4, NONE = -1000 };
static const double rate = 0.5;
static const float class_weights[CLASSES] = {0.5F, 1, 2, 4};

/* A file: x -> z = x W, and a loss of z and labels y, or targets t. */
typedef struct loss_case {
    const char *op; /* NULL: the mean square of z - t */
    const char *reduction;
    int ignored; /* NONE: no attribute */
    bool weighted;
    double factor, penalty; /* loss = factor * this + penalty * the mean square of z; 0: 1, none */
    bool root;              /* of it all: one worker only */
    bool plain;             /* and the mean cross-entropy without weights */
    bool deviation;         /* the root of that mean square instead, as the first summand */
    bool set, loaded;       /* the file has other weights, which are set, or loaded, afterwards */
} loss_case;

static void fill(float *x, float *w, int32_t *y, float *t, const loss_case *c) {
    for (int k = 0; k < SAMPLES * IN; k++) x[k] = (float)(k * k % 23) / 8 - 1;
    for (int k = 0; k < IN * CLASSES; k++) w[k] = (float)(k * 5 % 11) / 6 - 1;
    for (int k = 0; k < SAMPLES * CLASSES; k++) t[k] = (float)(k * k % 13) / 4 - 1;
    for (int k = 0; k < SAMPLES; k++) y[k] = (k * k + k / 3) % CLASSES;
    if (c->ignored != NONE) y[1] = y[6] = y[7] = c->ignored; /* most of them of one worker */
}

static void write_file(onnx_file *f, const loss_case *c, const float *w) {
    const int real = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    const int64_t of_x[] = {0, IN}, of_w[] = {IN, CLASSES}, of_t[] = {0, CLASSES};
    const bool log = c->op && c->op[0] == 'N';
    static float factor, penalty;
    factor = (float)(c->factor != 0 ? c->factor : 1);
    penalty = (float)c->penalty;
    onnx_file_init(f, 17);
    onnx_file_input(f, "x", real, 2, of_x);
    if (c->op) onnx_file_input(f, "y", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, of_x);
    if (!c->op) onnx_file_input(f, "t", real, 2, of_t);
    onnx_file_floats(f, "W", 2, of_w, w);
    onnx_file_floats(f, "factor", 0, NULL, &factor);
    onnx_file_floats(f, "penalty", 0, NULL, &penalty);
    if (c->weighted) {
        static const float others[CLASSES] = {3, 0.25F, 1, 1};
        onnx_file_floats(f, "of_class", 1, of_w + 1, c->set || c->loaded ? others : class_weights);
    }
    onnx_file_node(f, "MatMul", "x W", "z");
    if (log) onnx_file_node(f, "LogSoftmax", "z", "p");
    if (c->op) {
        onnx_file_node(f, c->op,
                       c->weighted ? log ? "p y of_class" : "z y of_class"
                       : log       ? "p y"
                                   : "z y",
                       "a");
        onnx_file_text(f, "reduction", c->reduction);
        if (c->ignored != NONE) onnx_file_int(f, "ignore_index", c->ignored);
    } else {
        onnx_file_node(f, "Sub", "z t", "d");
        onnx_file_node(f, "Mul", "d d", "e");
        onnx_file_node(f, "ReduceMean", "e", "a");
        onnx_file_int(f, "keepdims", 0);
    }
    onnx_file_node(f, "Mul", "a factor", "b");
    if (c->penalty != 0) {
        onnx_file_node(f, "Mul", "z z", "zz");
        onnx_file_node(f, "ReduceMean", "zz", "q");
        onnx_file_int(f, "keepdims", 0);
        if (c->deviation) onnx_file_node(f, "Sqrt", "q", "rms");
        onnx_file_node(f, "Mul", c->deviation ? "penalty rms" : "penalty q", "r");
        onnx_file_node(f, "Add", c->deviation ? "r b" : "b r", c->root ? "s" : "loss");
    } else if (c->plain) {
        onnx_file_node(f, c->op, "z y", "p");
        if (c->ignored != NONE) onnx_file_int(f, "ignore_index", c->ignored);
        onnx_file_node(f, "Add", "b p", "loss");
    } else {
        onnx_file_node(f, "Identity", "b", c->root ? "s" : "loss");
    }
    if (c->root) onnx_file_node(f, "Sqrt", "s", "loss");
    onnx_file_output(f, "z");
    onnx_file_output(f, "loss");
}

/* The loss and the updated weights, in f64. */
static double train_once(const loss_case *c, double *w) {
    float x[SAMPLES * IN], first[IN * CLASSES], t[SAMPLES * CLASSES];
    int32_t y[SAMPLES];
    double loss = 0, plain_loss = 0, weight = 0, count = 0, dz[SAMPLES][CLASSES],
           z[SAMPLES][CLASSES];
    const double factor = c->factor != 0 ? c->factor : 1;
    fill(x, first, y, t, c);
    for (int i = 0; i < SAMPLES; i++) {
        double sum = 0, of = 1;
        for (int k = 0; k < CLASSES; k++) {
            z[i][k] = 0;
            for (int j = 0; j < IN; j++) {
                z[i][k] += (double)x[i * IN + j] * (double)first[j * CLASSES + k];
            }
            sum += exp(z[i][k]);
        }
        const bool counts = c->op && y[i] != c->ignored;
        if (counts && c->weighted) of = (double)class_weights[y[i]];
        if (counts) loss += of * (log(sum) - z[i][y[i]]);
        if (counts) plain_loss += log(sum) - z[i][y[i]];
        weight += counts ? of : 0;
        count += counts;
        for (int k = 0; k < CLASSES; k++) {
            const double d = z[i][k] - (double)t[i * CLASSES + k];
            dz[i][k] = c->op ? counts ? of * (exp(z[i][k]) / sum - (k == y[i])) : 0 : 2 * d;
            if (!c->op) loss += d * d;
        }
    }
    /* A session divides a sum by the labels. */
    const double by = !c->op                   ? SAMPLES * CLASSES
                      : c->reduction[0] != 's' ? weight
                      : c->deviation           ? 1
                                               : count;
    double all = factor * loss / by, square = 0;
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < CLASSES; k++) square += z[i][k] * z[i][k] / (SAMPLES * CLASSES);
    }
    const double rise = c->penalty * (c->deviation ? 0.5 / sqrt(square) : 1); /* by the square */
    all += c->penalty * (c->deviation ? sqrt(square) : square);
    for (int i = 0; i < SAMPLES; i++) {
        const double of = c->weighted && c->op ? (double)class_weights[y[i] % CLASSES] : 1;
        for (int k = 0; k < CLASSES; k++) {
            const double plain = c->plain ? dz[i][k] / of / count : 0;
            dz[i][k] = factor * dz[i][k] / by + 2 * rise * z[i][k] / (SAMPLES * CLASSES) + plain;
        }
    }
    if (c->plain) all += plain_loss / count;
    const double slope = c->root ? 0.5 / sqrt(all) : 1;
    for (int j = 0; j < IN; j++) {
        for (int k = 0; k < CLASSES; k++) {
            double gradient = 0;
            for (int i = 0; i < SAMPLES; i++) gradient += (double)x[i * IN + j] * dz[i][k];
            w[j * CLASSES + k] = (double)first[j * CLASSES + k] - rate * slope * gradient;
        }
    }
    return c->root ? sqrt(all) : all;
}

typedef struct job {
    loss_case loss;
    int64_t accumulate;
} job;

typedef struct outcome {
    double loss, evaluated;
    float w[IN * CLASSES], of_class[CLASSES];
} outcome;

static kolo_status step(kolo_session *s, const loss_case *c, outcome *o) {
    const kolo_field fields[] = {{.name = "x", .shape = {1, {IN}}},
                                 {.name = "y", .dtype = KOLO_DTYPE_I32},
                                 {.name = "t", .shape = {1, {CLASSES}}}};
    float x[SAMPLES * IN], w[IN * CLASSES], t[SAMPLES * CLASSES];
    int32_t y[SAMPLES];
    int64_t first;
    kolo_metrics metrics;
    kolo_batch batch = {.n_fields = 3, .fields = fields};
    fill(x, w, y, t, c);
    KOLO_TRY(kolo_session_share(s, SAMPLES, &first, &batch.count));
    batch.data[0] = x + first * IN;
    batch.data[1] = y + first;
    batch.data[2] = t + first * CLASSES;
    KOLO_TRY(kolo_session_step(s, &batch, &metrics));
    o->loss = kolo_metrics_get(&metrics, "loss");
    if (c->weighted) {
        KOLO_TRY(kolo_session_get(s, "of_class", o->of_class, sizeof o->of_class));
    }
    return kolo_session_get(s, "W", o->w, sizeof o->w);
}

/* The weights of the classes that the file does not have. */
static kolo_status replace_weights(kolo_comm *comm, kolo_session *s, const loss_case *c) {
    const char *file = "weights.safetensors";
    if (!c->set && !c->loaded) return KOLO_OK;
    KOLO_TRY(kolo_session_set(s, "of_class", class_weights, sizeof class_weights));
    if (!c->loaded) return KOLO_OK;
    KOLO_TRY(kolo_session_save(s, file));
    const float none[CLASSES] = {0};
    KOLO_TRY(kolo_session_set(s, "of_class", none, sizeof none));
    KOLO_TRY(kolo_session_load(s, file));
    return comm ? kolo_barrier(comm) : KOLO_OK;
}

static kolo_status train(kolo_comm *comm, const void *arg, void *result) {
    const job *j = arg;
    const kolo_session_opts opts = {
        .global_batch = SAMPLES + 1, .accumulate = j->accumulate, .lr = rate};
    float x[SAMPLES * IN], w[IN * CLASSES], t[SAMPLES * CLASSES];
    int32_t y[SAMPLES];
    onnx_file *f = malloc(sizeof *f);
    kolo_onnx *net = NULL;
    kolo_session *s = NULL;
    if (!f) return KOLO_NOMEM(sizeof *f);
    fill(x, w, y, t, &j->loss);
    write_file(f, &j->loss, w);
    kolo_status status = onnx_file_open(f, NULL, &net);
    if (status == KOLO_OK) status = kolo_session_create(comm, &opts, kolo_onnx_build, net, &s);
    if (status == KOLO_OK) status = replace_weights(comm, s, &j->loss);
    if (status == KOLO_OK) status = step(s, &j->loss, result);
    kolo_session_destroy(s);
    kolo_onnx_close(net);
    free(f);
    return status;
}

#define XENT "SoftmaxCrossEntropyLoss"
#define NLL "NegativeLogLikelihoodLoss"

/* Whether it is a mean that workers can divide. */
static bool divides(const loss_case *c) { return !c->root && !c->plain && !c->deviation; }

static void a_step_trains_the_loss_of_the_file(void **state) {
    static const loss_case losses[] = {
        {.op = XENT, .reduction = "mean", .ignored = NONE},
        {.op = NLL, .reduction = "mean", .ignored = -100},
        {.op = XENT, .reduction = "mean", .ignored = 2},
        {.op = XENT, .reduction = "mean", .ignored = NONE, .weighted = true},
        {.op = NLL, .reduction = "mean", .ignored = -100, .weighted = true},
        {.op = NLL, .reduction = "mean", .ignored = 1, .weighted = true, .factor = 2},
        {.op = XENT, .reduction = "sum", .ignored = -100, .weighted = true},
        {.op = XENT, .reduction = "mean", .ignored = NONE, .factor = 0.25, .penalty = 0.5},
        {.ignored = NONE},
        {.ignored = NONE, .factor = 3, .penalty = 0.125},
        {.ignored = NONE, .root = true},
        {.op = NLL, .reduction = "mean", .ignored = -100, .weighted = true, .root = true},
        {.op = XENT, .reduction = "mean", .ignored = NONE, .weighted = true, .plain = true},
        {.op = XENT, .reduction = "mean", .ignored = 1, .weighted = true, .plain = true},
        {.op = XENT, .reduction = "mean", .ignored = 1, .penalty = 0.5, .deviation = true},
        {.op = XENT, .reduction = "sum", .ignored = 1, .penalty = 0.5, .deviation = true},
        {.op = XENT, .reduction = "mean", .ignored = NONE, .weighted = true, .set = true},
        {.op = NLL, .reduction = "mean", .ignored = 1, .weighted = true, .loaded = true},
    };
    static const struct {
        int ranks;
        int64_t accumulate;
    } divisions[] = {{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}};
    for (size_t i = 0; i < KOLO_COUNT(losses); i++) {
        double want[IN * CLASSES];
        const double loss = train_once(&losses[i], want);
        for (size_t d = 0; d < KOLO_COUNT(divisions) && (d == 0 || divides(&losses[i])); d++) {
            outcome o[3];
            const job one = {losses[i], divisions[d].accumulate};
            rank_job run = {.n = divisions[d].ranks,
                            .transport = RANKS_THREAD,
                            .body = train,
                            .arg = &one,
                            .arg_bytes = sizeof one,
                            .results = o,
                            .result_bytes = sizeof *o};
            ASSERT_OK(run_rank_job(&run));
            if (fabs(o->loss - loss) > 1e-5 * (1 + fabs(loss))) {
                fail_msg("loss %zu, division %zu: %g, not %g", i, d, o->loss, loss);
            }
            for (int k = 0; k < IN * CLASSES; k++) {
                if (fabs((double)o->w[k] - want[k]) < 1e-5) continue;
                fail_msg("loss %zu, division %zu: weight %d is %g, not %g", i, d, k,
                         (double)o->w[k], want[k]);
            }
            if (!losses[i].weighted) continue;
            assert_memory_equal(o->of_class, class_weights, sizeof class_weights);
        }
    }
}

/* The sum of weights has the same bits for any division, and so the loss, also where the sum of
 * doubles depends on the order. */
static kolo_status evaluate_divided(kolo_comm *comm, const void *arg, void *result) {
    static const float far[CLASSES] = {1.0F / 3, 1e-9F / 7, 3e-9F / 11, 1e-10F / 3};
    const loss_case c = {.op = XENT, .reduction = "mean", .ignored = NONE, .weighted = true};
    const kolo_session_opts opts = {.global_batch = 12, .reproducible = 6, .lr = rate};
    float x[SAMPLES * IN], w[IN * CLASSES], t[SAMPLES * CLASSES];
    int32_t y[SAMPLES];
    outcome *o = result;
    onnx_file *f = malloc(sizeof *f);
    kolo_onnx *net = NULL;
    kolo_session *s = NULL;
    if (!f) return KOLO_NOMEM(sizeof *f);
    fill(x, w, y, t, &c);
    write_file(f, &c, w);
    kolo_status status = onnx_file_open(f, NULL, &net);
    if (status == KOLO_OK) status = kolo_session_create(comm, &opts, kolo_onnx_build, net, &s);
    if (status == KOLO_OK) status = kolo_session_set(s, "of_class", far, sizeof far);
    if (status == KOLO_OK) status = step(s, &c, o);
    kolo_session_destroy(s);
    kolo_onnx_close(net);
    free(f);
    return status;
}

static void divided_weights_have_the_same_sum(void **state) {
    outcome first;
    for (int n = 1; n <= 3; n++) {
        outcome o[3];
        rank_job run = {.n = n,
                        .transport = RANKS_THREAD,
                        .body = evaluate_divided,
                        .results = o,
                        .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&run));
        if (n == 1) first = o[0];
        assert_memory_equal(&o->loss, &first.loss, sizeof first.loss);
        assert_memory_equal(o->w, first.w, sizeof first.w);
    }
}

/* What cannot be divided is refused by all workers, not computed in another way. */
static void functions_of_means_are_for_one_worker(void **state) {
    outcome o[2];
    const job one = {{.ignored = NONE, .root = true}, 1};
    rank_job run = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = train,
                    .arg = &one,
                    .arg_bytes = sizeof one,
                    .results = o,
                    .result_bytes = sizeof *o};
    assert_int_equal(run_rank_job(&run), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "the model cannot be sharded"));
}

/* Nor is it the mean of micro-batches. */
static void functions_of_means_are_of_one_batch(void **state) {
    outcome o;
    const job two = {{.ignored = NONE, .root = true}, 2};
    assert_int_equal(train(NULL, &two, &o), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "a function of means"));
}

/* A file of a classifier: inputs x and y, and W [IN,CLASSES]. */
static void classifier_init(onnx_file *f, const float *w) {
    static const int64_t of_x[] = {0, IN}, of_w[] = {IN, CLASSES};
    assert_non_null(f);
    onnx_file_init(f, 17);
    onnx_file_input(f, "x", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 2, of_x);
    onnx_file_input(f, "y", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, of_x);
    onnx_file_floats(f, "W", 2, of_w, w);
}

/* The labels are those of the loss that is divided by weights, whatever other losses there are. */
static void losses_beside_one_with_weights_have_other_classes(void **state) {
    static const int64_t of_class[] = {CLASSES}, of_more[] = {IN, 40};
    static const float more[IN * 40];
    const loss_case none = {.ignored = NONE};
    float x[SAMPLES * IN], w[IN * CLASSES], t[SAMPLES * CLASSES];
    int32_t y[SAMPLES];
    const kolo_field fields[] = {{.name = "x", .shape = {1, {IN}}},
                                 {.name = "y", .dtype = KOLO_DTYPE_I32}};
    const kolo_batch batch = {.count = SAMPLES, .n_fields = 2, .fields = fields, .data = {x, y}};
    const kolo_session_opts opts = {.batch = SAMPLES, .lr = rate};
    kolo_metrics metrics;
    onnx_file *f = malloc(sizeof *f);
    kolo_onnx *net;
    kolo_session *s;
    fill(x, w, y, t, &none);
    classifier_init(f, w);
    onnx_file_floats(f, "V", 2, of_more, more);
    onnx_file_floats(f, "of_class", 1, of_class, class_weights);
    onnx_file_node(f, "MatMul", "x W", "z");
    onnx_file_node(f, "MatMul", "x V", "v");
    onnx_file_node(f, XENT, "z y of_class", "loss");
    onnx_file_node(f, XENT, "v y", "other");
    onnx_file_output(f, "loss");
    onnx_file_output(f, "other");
    ASSERT_OK(onnx_file_open(f, NULL, &net));
    ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
    ASSERT_OK(kolo_session_step(s, &batch, &metrics));
    y[3] = CLASSES;
    assert_int_equal(kolo_session_step(s, &batch, &metrics), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "is outside 0..3"));
    kolo_session_destroy(s);
    kolo_onnx_close(net);
    free(f);
}

/* The outputs of a file with a loss keep their names. */
static void logits_beside_a_loss_can_be_predicted(void **state) {
    const loss_case none = {.ignored = NONE};
    float x[SAMPLES * IN], w[IN * CLASSES], t[SAMPLES * CLASSES], logits[CLASSES];
    const kolo_field field = {.name = "x", .shape = {1, {IN}}};
    const kolo_batch batch = {.count = 1, .n_fields = 1, .fields = &field, .data = {x}};
    const kolo_session_opts opts = {.batch = 1, .evaluate_only = true};
    int32_t y[SAMPLES];
    onnx_file *f = malloc(sizeof *f);
    kolo_onnx *net;
    kolo_session *s;
    fill(x, w, y, t, &none);
    classifier_init(f, w);
    onnx_file_node(f, "MatMul", "x W", "logits");
    onnx_file_node(f, XENT, "logits y", "loss");
    onnx_file_output(f, "logits");
    onnx_file_output(f, "loss");
    ASSERT_OK(onnx_file_open(f, NULL, &net));
    ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
    ASSERT_OK(kolo_session_predict(s, &batch, "logits", logits, sizeof logits, NULL));
    kolo_session_destroy(s);
    kolo_onnx_close(net);
    free(f);
}

TEST_MAIN(test_onnx_loss) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_trains_the_loss_of_the_file),
        cmocka_unit_test(divided_weights_have_the_same_sum),
        cmocka_unit_test(functions_of_means_are_for_one_worker),
        cmocka_unit_test(functions_of_means_are_of_one_batch),
        cmocka_unit_test(losses_beside_one_with_weights_have_other_classes),
        cmocka_unit_test(logits_beside_a_loss_can_be_predicted),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

#else

TEST_MAIN(test_onnx_loss) {
    printf("skip: built without ONNX\n");
    return 77;
}

#endif
