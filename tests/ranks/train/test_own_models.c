/* Models that are not in the zoo: losses that read no labels, ranks without samples, labels that
 * are ignored, missing outputs, and inputs that no session can fill. */
#include "base/integer.h"
#include "graph/graph.h"
#include "kolo/models.h"
#include "support/ranks.h"
#include "support/snake.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 2, SIDE = 3, ELEMENTS = CHANNELS * SIDE * SIDE, CLASSES = 4, SAMPLES = 16 };

static uint8_t samples[SAMPLES * ELEMENTS];
static int32_t labels[SAMPLES];
static const kolo_field fields[] = {
    {"x", KOLO_DTYPE_U8, {3, {CHANNELS, SIDE, SIDE}}, .std = {0.5F, 0.25F}},
    {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
};

static int fill(void **state) {
    for (int i = 0; i < SAMPLES * ELEMENTS; i++) samples[i] = (uint8_t)(i * 37 % 251);
    for (int i = 0; i < SAMPLES; i++) labels[i] = i % CLASSES;
    return 0;
}

/* ---- models ---- */

static kolo_value images(kolo_graph *g, int64_t n) {
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, CHANNELS, SIDE, SIDE));
}

static kolo_value classes_of(kolo_graph *g, int64_t n) {
    return kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
}

static kolo_value dense(kolo_graph *g, kolo_value x, const char *name, int64_t in, int64_t out) {
    return kolo_linear(g, x, kolo_param(g, name, kolo_shape_2(out, in), kolo_init_fan_in(in)));
}

/* The sum of the squares of v. */
static kolo_value squares(kolo_graph *g, kolo_value v) { return kolo_sum(g, kolo_mul(g, v, v)); }

/* An autoencoder, whose loss reads no labels. The bias gives a sample of zeros a loss. */
static kolo_status build_autoencoder(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_flatten(g, images(g, n));
    kolo_value b = kolo_param(g, "bias", kolo_shape_1(5), kolo_init_fan_in(3));
    kolo_value h = kolo_tanh(g, kolo_bias(g, dense(g, x, "in.weight", ELEMENTS, 5), b));
    kolo_value d = kolo_add(g, dense(g, h, "out.weight", 5, ELEMENTS), kolo_scale(g, x, -1));
    kolo_output(g, "loss", kolo_scale(g, squares(g, d), 0.1));
    return KOLO_OK;
}

/* The same without a parameter. */
static kolo_status build_norm(kolo_graph *g, int64_t n, void *arg) {
    kolo_output(g, "loss", squares(g, images(g, n)));
    return KOLO_OK;
}

/* Batch normalization of the images. */
static kolo_status build_normalized(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_batch_norm(g, images(g, n), "bn", NULL);
    kolo_output(g, "loss", squares(g, x));
    return KOLO_OK;
}

static const kolo_loss_opts ignore_1 = {.has_ignore_index = true, .ignore_index = 1};

/* A classifier that ignores label 1. It has no output "correct". */
static kolo_status build_ignoring(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_flatten(g, images(g, n)), y = classes_of(g, n);
    kolo_value logits = dense(g, x, "weight", ELEMENTS, CLASSES);
    kolo_value loss = kolo_softmax_xent_opts(g, logits, y, &ignore_1);
    kolo_output(g, "loss", loss);
    kolo_output(g, "total", loss); /* a second name */
    kolo_output(g, "total again", kolo_reshape(g, loss, kolo_shape_0()));
    return KOLO_OK;
}

/* A penalty on the weights beside the loss, which is no sum over the samples. */
static kolo_status build_penalized(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_flatten(g, images(g, n));
    kolo_value logits = dense(g, x, "weight", ELEMENTS, CLASSES);
    kolo_value w = kolo_graph_find(g, "weight");
    kolo_value penalty = kolo_scale(g, squares(g, w), 2);
    kolo_output(g, "loss", kolo_add(g, kolo_softmax_xent(g, logits, classes_of(g, n)), penalty));
    return KOLO_OK;
}

static kolo_value weight(kolo_graph *g, const char *name, kolo_shape shape, int64_t fan_in) {
    return kolo_param(g, name, shape, kolo_init_fan_in(fan_in));
}

/* Images through convolutions, normalization and a gate, then attention over their pixels. */
static kolo_status build_various(kolo_graph *g, int64_t n, void *arg) {
    enum { WIDTH = 16, PIXELS = SIDE * SIDE };
    kolo_value x = images(g, n);
    kolo_value up = weight(g, "up", kolo_shape_4(WIDTH, CHANNELS, 1, 1), CHANNELS);
    kolo_freeze(g, up);
    x = kolo_conv2d(g, x, up, NULL);
    x = kolo_hardswish(g, kolo_group_norm(g, x, "group", 4, 0));
    x = kolo_conv2d(g, x, weight(g, "down", kolo_shape_4(WIDTH, WIDTH, 2, 2), 4 * WIDTH), NULL);
    x = kolo_elu(g, kolo_add(g, x, weight(g, "bias", kolo_shape_4(1, WIDTH, 1, 1), 1)), 1);
    x = kolo_conv_transpose2d(g, x, weight(g, "back", kolo_shape_4(WIDTH, WIDTH, 2, 2), WIDTH),
                              NULL);
    kolo_value gate = kolo_reduce_mean(g, x, (int[]){2, 3}, 2, true);
    x = kolo_mul(g, x, kolo_hardsigmoid(g, gate));
    x = kolo_transpose(g, kolo_reshape(g, x, kolo_shape_3(n, WIDTH, PIXELS)), 1, 2);
    x = kolo_add(g, x, weight(g, "places", kolo_shape_3(1, PIXELS, WIDTH), WIDTH));
    kolo_value h = kolo_rms_norm(g, x, "rms", 0), head[3];
    kolo_value all = kolo_linear(g, h, weight(g, "qkv", kolo_shape_2(2 * WIDTH, WIDTH), WIDTH));
    kolo_split_along(g, all, 2, (const int64_t[]){WIDTH, WIDTH / 2, WIDTH / 2}, 3, head);
    const kolo_cross_attention_opts opts = {.heads = 4, .kv_heads = 2, .causal = true};
    h = kolo_cross_attention(g, kolo_rotary(g, head[0], 4, 0, 0), kolo_rotary(g, head[1], 2, 0, 0),
                             head[2], &opts);
    h = kolo_reshape(g, h, kolo_shape_2(n * PIXELS, WIDTH)); /* several rows for each sample */
    h = kolo_reshape(g, kolo_dropout(g, h, 0.3), kolo_shape_3(n, PIXELS, WIDTH));
    h = kolo_transpose(g, kolo_dropout(g, kolo_transpose(g, h, 0, 1), 0.2), 0, 1);
    h = kolo_maximum(g, kolo_add(g, x, h), kolo_leaky_relu(g, x, 0.1));
    h = kolo_reduce_max(g, h, (int[]){1}, 1, false);
    kolo_value logits = kolo_linear(g, h, weight(g, "out", kolo_shape_2(CLASSES, WIDTH), WIDTH));
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, classes_of(g, n)));
    return KOLO_OK;
}

/* With an op of the program, `arg`: one without index notation. */
static kolo_status build_snake(kolo_graph *g, int64_t n, void *arg) {
    kolo_value alpha = kolo_param(g, "alpha", kolo_shape_1(7), (kolo_init){KOLO_INIT_ONE, 0});
    kolo_value h = dense(g, kolo_flatten(g, images(g, n)), "in", ELEMENTS, 7);
    kolo_value logits = dense(g, snake_of(g, h, alpha, arg != NULL), "out", 7, CLASSES);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, classes_of(g, n)));
    return KOLO_OK;
}

static kolo_status build_whole_snake(kolo_graph *g, int64_t n, void *arg) {
    return build_snake(g, n, g);
}

/* ---- training ---- */

typedef struct setting {
    kolo_build *build;
    int ranks;
    int64_t batch, accumulate, total; /* samples of one pass: the last step may be short */
    const char *consistency;
} setting;

static kolo_plan_opts plan; /* of the sessions of a run */

enum { PARAMETERS = 4096 };

typedef struct outcome {
    int64_t labels;
    double loss;
    float parameters[PARAMETERS];
} outcome;

static void read_entries(const kolo_store *store, float *to) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        kolo_store_read(store, entry, to);
        to += kolo_shape_count(&entry->canon);
    }
}

/* One pass over the first s->total samples; the sums are those of the last step. */
static kolo_status train(const setting *s, kolo_session *session, int rank, outcome *result) {
    const int64_t global = s->batch * s->accumulate * s->ranks;
    kolo_sums sums = {0};
    KOLO_TRY(kolo_session_init(session, 5));
    for (int64_t at = 0; at < s->total; at += global) {
        int64_t count = kolo_min_i64(global, s->total - at);
        int64_t first = rank * (count / s->ranks) + kolo_min_i64(rank, count % s->ranks);
        kolo_batch batch = {
            .count = count / s->ranks + (rank < count % s->ranks),
            .first = first,
            .global_count = count,
            .n_fields = 2,
            .fields = fields,
            .data = {samples + (at + first) * ELEMENTS, labels + at + first},
        };
        KOLO_TRY(kolo_session_step_batch(session, &batch, 0.05, &sums));
    }
    result->labels = sums.labels;
    result->loss = kolo_sums_loss(&sums);
    read_entries(kolo_session_store(session), result->parameters);
    return KOLO_OK;
}

static kolo_session_config session_of(const setting *s) {
    return (kolo_session_config){
        .build = s->build,
        .sample = fields[0].shape,
        .classes = CLASSES,
        .batch = s->batch,
        .accumulate = s->accumulate,
        .plan = plan,
    };
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session_config opts = session_of(arg);
    kolo_session *session;
    KOLO_TRY(kolo_session_create_for(&opts, comm, &session));
    kolo_status status = train(arg, session, kolo_comm_rank(comm), result);
    kolo_session_destroy(session);
    return status;
}

enum { MAX_RANKS = 7 };

/* Trains; returns the outcome of rank 0, which all ranks must share. */
static outcome run(setting s) {
    static outcome results[MAX_RANKS];
    if (!s.accumulate) s.accumulate = 1;
    rank_job job = {.n = s.ranks,
                    .transport = RANKS_THREAD,
                    .body = body,
                    .arg = &s,
                    .arg_bytes = sizeof s,
                    .results = results,
                    .result_bytes = sizeof *results};
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 1; rank < s.ranks; rank++) {
        assert_memory_equal(&results[rank], &results[0], sizeof *results);
    }
    return results[0];
}

static void assert_close(const outcome *a, const outcome *b) {
    assert_int_equal(a->labels, b->labels);
    assert_true(fabs(a->loss - b->loss) < 1e-5 * fabs(b->loss));
    assert_true(test_relative_l2_f32(a->parameters, b->parameters, PARAMETERS) < 1e-5);
}

/* ---- tests ---- */

static void ranks_without_samples_add_nothing(void **state) {
    outcome alone = run((setting){build_autoencoder, 1, 14, 1, 15, NULL});
    outcome ranks =
        run((setting){build_autoencoder, 7, 2, 1, 15, NULL}); /* the last step: one sample */
    outcome micro = run((setting){build_autoencoder, 7, 1, 2, 15, NULL});
    assert_close(&ranks, &alone);
    assert_close(&micro, &alone);
    /* In the last step rank 0 has two micro-batches, the others one and none. */
    alone = run((setting){build_autoencoder, 1, 6, 1, 10, NULL});
    micro = run((setting){build_autoencoder, 3, 1, 2, 10, NULL});
    assert_close(&micro, &alone);
}

/* Three samples on two ranks: rank 1 has none in the second micro-batch, whose statistics are those
 * of rank 0 alone. */
static void ranks_without_samples_keep_statistics(void **state) {
    outcome o = run((setting){build_normalized, 2, 1, 2, 3, NULL});
    for (int c = 0; c < CHANNELS; c++) {
        double mean[3] = {0};
        for (int i = 0; i < 3 * SIDE * SIDE; i++) {
            int at = i / (SIDE * SIDE) * ELEMENTS + c * SIDE * SIDE + i % (SIDE * SIDE);
            mean[i / (SIDE * SIDE)] +=
                samples[at] / 255.0 / (double)fields[0].std[c] / (SIDE * SIDE);
        }
        /* Rank 0 has samples 0 and 1. */
        double want = 0.9 * 0.1 * (mean[0] + mean[2]) / 2 + 0.1 * mean[1];
        float have = o.parameters[2 * CHANNELS + c]; /* after weight and bias */
        assert_true(fabs((double)have - want) < 1e-5 * fabs(want));
    }
}

static void losses_without_parameters_are_summed(void **state) {
    outcome alone = run((setting){build_norm, 1, 12, 1, 12, NULL});
    outcome ranks = run((setting){build_norm, 3, 4, 1, 12, NULL});
    outcome micro = run((setting){build_norm, 3, 2, 2, 12, NULL});
    assert_true(alone.loss > 1);
    assert_close(&ranks, &alone);
    assert_close(&micro, &alone);
}

static void penalties_are_counted_once(void **state) {
    outcome alone = run((setting){build_penalized, 1, 12, 1, 15, NULL});
    outcome ranks = run((setting){build_penalized, 3, 4, 1, 15, NULL});
    outcome micro = run((setting){build_penalized, 2, 2, 3, 15, NULL});
    assert_close(&ranks, &alone);
    assert_close(&micro, &alone);
}

/* The mean is over the labels that count, as in PyTorch's reduction="mean" with ignore_index. */
static void means_leave_out_ignored_labels(void **state) {
    outcome alone = run((setting){build_ignoring, 1, 11, 1, 11, NULL});
    outcome ranks = run((setting){build_ignoring, 3, 4, 1, 11, NULL});
    outcome micro = run((setting){build_ignoring, 2, 2, 3, 11, NULL});
    assert_int_equal(alone.labels, 8); /* of 11, three are 1 */
    assert_close(&ranks, &alone);
    assert_close(&micro, &alone);

    /* The first loss, of the initial weights, against the definition. */
    setting s = {build_ignoring, 1, 11, 1, 11, NULL};
    kolo_session_config opts = session_of(&s);
    kolo_session *session;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_session_init(session, 5));
    float w[PARAMETERS] = {0};
    read_entries(kolo_session_store(session), w);
    kolo_session_destroy(session);
    double sum = 0;
    for (int n = 0; n < 11; n++) {
        double logit[CLASSES] = {0}, total = 0;
        for (int k = 0; k < CLASSES; k++) {
            for (int i = 0; i < ELEMENTS; i++) {
                double x =
                    samples[n * ELEMENTS + i] / 255.0 / (double)fields[0].std[i / (SIDE * SIDE)];
                logit[k] += x * (double)w[k * ELEMENTS + i];
            }
            total += exp(logit[k]);
        }
        if (labels[n] != 1) sum += log(total) - logit[labels[n]];
    }
    assert_true(fabs(alone.loss - sum / 8) < 1e-5 * alone.loss);
}

static void layers_agree_over_ranks_and_kernels(void **state) {
    plan.kernels = KOLO_KERNELS_REF;
    outcome alone = run((setting){build_various, 1, 15, 1, 15, NULL});
    plan.kernels = KOLO_KERNELS_BEST;
    outcome best = run((setting){build_various, 1, 15, 1, 15, NULL});
    outcome ranks = run((setting){build_various, 3, 5, 1, 15, NULL});
    outcome each = run((setting){build_various, 7, 1, 3, 15, NULL}); /* single samples */
    plan.precision = KOLO_PRECISION_BF16;
    outcome half = run((setting){build_various, 1, 15, 1, 15, NULL});
    plan.precision = KOLO_PRECISION_F32;
    assert_close(&best, &alone);
    assert_close(&ranks, &alone);
    assert_close(&each, &alone);
    assert_true(fabs(half.loss - alone.loss) < 1e-2 * alone.loss);
}

static void ops_of_a_program_agree_over_ranks(void **state) {
    outcome alone = run((setting){build_snake, 1, 15, 1, 15, NULL});
    outcome whole = run((setting){build_whole_snake, 1, 15, 1, 15, NULL});
    outcome ranks = run((setting){build_snake, 2, 8, 1, 15, NULL});
    assert_close(&ranks, &alone);
    assert_memory_equal(&whole, &alone, sizeof alone);
    plan.precision = KOLO_PRECISION_BF16;
    outcome half = run((setting){build_snake, 2, 8, 1, 15, NULL});
    plan.precision = KOLO_PRECISION_F32;
    assert_true(fabs(half.loss - alone.loss) < 1e-2 * alone.loss);

    static outcome results[2];
    setting divided = {build_whole_snake, 2, 8, 1, 15, NULL};
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = body,
                    .arg = &divided,
                    .arg_bytes = sizeof divided,
                    .results = results,
                    .result_bytes = sizeof *results};
    assert_int_equal(run_rank_job(&job), KOLO_ERR_ARG);
    if (!strstr(kolo_last_error(), "snake_whole: input 0 (an activation) is placed dp:")) {
        fail_msg("%s", kolo_last_error());
    }
}

/* The activation of a program that computes zeros alone. */
static kolo_status limited_shape(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    return KOLO_OK;
}

static void limited_run(const kolo_custom_call *c) {
    const float *x = c->in_data[0];
    memcpy(c->out_data[0], x, (size_t)kolo_shape_count(&c->in[0].shape) * sizeof *x);
    for (int64_t i = 0; i < kolo_shape_count(&c->in[0].shape); i++) {
        if (x[i] != 0) (void)kolo_error_set(KOLO_ERR_ARG, "cannot compute %g", (double)x[i]);
    }
}

static void limited_grad(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    d_in[0] = d_out[0];
    if (n->attr[0] != 0) (void)kolo_error_set(KOLO_ERR_ARG, "no gradient for mode %g", n->attr[0]);
}

static const kolo_custom_op limited = {.version = KOLO_CUSTOM_OP_VERSION,
                                       .name = "limited",
                                       .n_in = 1,
                                       .n_out = 1,
                                       .index = "*->*",
                                       .shape = limited_shape,
                                       .run = limited_run,
                                       .grad = limited_grad,
                                       .attrs = (const char *const[]){"mode", NULL}};

/* An activation with a gradient that computes zeros alone. */
static void limiting_run(const kolo_custom_call *c) {
    memcpy(c->out_data[0], c->in_data[0],
           (size_t)kolo_shape_count(&c->in[0].shape) * sizeof(float));
}

static void limiting_grad(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                          const bool *wants, kolo_value *d_in) {
    kolo_custom(g, "limited", d_out, 1, NULL, d_in);
}

static const kolo_custom_op limiting = {.version = KOLO_CUSTOM_OP_VERSION,
                                        .name = "limiting",
                                        .n_in = 1,
                                        .n_out = 1,
                                        .index = "*->*",
                                        .shape = limited_shape,
                                        .run = limiting_run,
                                        .grad = limiting_grad};

static kolo_status build_limiting(kolo_graph *g, int64_t n, void *arg) {
    kolo_value h = dense(g, kolo_flatten(g, images(g, n)), "in", ELEMENTS, 7), y;
    KOLO_TRY(kolo_custom_op_register(&limited));
    KOLO_TRY(kolo_custom_op_register(&limiting));
    kolo_custom(g, "limiting", &h, 1, NULL, &y);
    kolo_output(g, "loss", squares(g, y));
    return KOLO_OK;
}

/* `arg`: the attribute of the op; NULL: 0. */
static kolo_status build_limited(kolo_graph *g, int64_t n, void *arg) {
    kolo_value h = dense(g, kolo_flatten(g, images(g, n)), "in", ELEMENTS, 7), y;
    KOLO_TRY(kolo_custom_op_register(&limited));
    kolo_custom(g, "limited", &h, 1, arg, &y);
    kolo_output(g, "loss", squares(g, y));
    return KOLO_OK;
}

typedef struct failure {
    kolo_status status;
    uint64_t steps;
    bool same; /* the parameters, as before the step */
    char text[256];
} failure;

/* The ranks are threads. */
static _Atomic int initialized;

/* Only the second rank has other numbers. It fails when no collective of the first one is left,
 * which would fail too. With rounds the first one may not learn it before its next step. */
static kolo_status fail_on_one(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    failure *f = result;
    kolo_session_config opts = session_of(s);
    kolo_session *session;
    uint8_t x[2 * ELEMENTS] = {0};
    KOLO_TRY(kolo_consistency_parse(s->consistency, 2, &opts.consistency));
    static _Thread_local float before[PARAMETERS], after[PARAMETERS];
    kolo_sums sums;
    KOLO_TRY(kolo_session_create_for(&opts, comm, &session));
    KOLO_TRY(kolo_session_init(session, 5));
    const int rank = kolo_comm_rank(comm);
    read_entries(kolo_session_store(session), before);
    if (rank == 1) memset(x, 255, ELEMENTS);
    kolo_batch batch = {.count = 2,
                        .first = 2 * rank,
                        .global_count = 4,
                        .n_fields = 1,
                        .fields = fields,
                        .data = {x}};
    atomic_fetch_add(&initialized, 1);
    while (atomic_load(&initialized) < 2) sched_yield();
    for (int i = 0; i < (s->consistency ? 2 : 1) && f->status == KOLO_OK; i++) {
        f->status = kolo_session_step_batch(session, &batch, 0.05, &sums);
    }
    (void)snprintf(f->text, sizeof f->text, "%s", kolo_last_error());
    read_entries(kolo_session_store(session), after);
    f->same = true;
    for (int i = 0; i < PARAMETERS; i++) f->same = f->same && before[i] == after[i];
    kolo_session_destroy(session);
    return KOLO_OK;
}

static void an_op_that_fails_ends_the_step_of_all_ranks(void **state) {
    static failure results[2];
    setting settings[] = {
        {build_limited, 2, 2, 1, 4, NULL},
        {build_limited, 2, 2, 1, 4, "local:4"},
        {build_limiting, 2, 2, 1, 4, NULL},
        {build_limiting, 2, 2, 1, 4, "local:4"}, /* once the metrics are in flight */
    };
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        rank_job job = {.n = 2,
                        .transport = RANKS_THREAD,
                        .body = fail_on_one,
                        .arg = &settings[i],
                        .arg_bytes = sizeof settings[i],
                        .results = results,
                        .result_bytes = sizeof *results};
        memset(results, 0, sizeof results);
        atomic_store(&initialized, 0);
        ASSERT_OK(run_rank_job(&job));
        assert_int_equal(results[0].status, KOLO_ERR_PEER);
        assert_int_equal(results[1].status, KOLO_ERR_ARG);
        for (int r = 0; r < 2; r++) {
            assert_true(results[r].same);
            if (!strstr(results[r].text, "rank 1: op limited: cannot compute ")) {
                fail_msg("%s", results[r].text);
            }
        }
    }
    setting s = settings[0];
    double mode = 3;
    kolo_session_config opts = session_of(&s);
    kolo_session *session;
    opts.build_arg = &mode;
    assert_int_equal(kolo_session_create_for(&opts, NULL, &session), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "op limited: no gradient for mode 3"));
}

/* Rank 1 fails in its third step, rank 2 is a server. */
static kolo_status fail_at_servers(kolo_comm *comm, const void *arg, void *result) {
    enum { FAILS_AT = 2 };
    const kolo_session_opts opts = {
        .batch = 2, .lr = 0.05, .sync = KOLO_SYNC_PS, .servers = 1, .consistency = arg};
    const int rank = kolo_comm_rank(comm);
    uint8_t x[2 * ELEMENTS] = {0};
    const kolo_batch batch = {.count = 2, .n_fields = 1, .fields = fields, .data = {x}};
    kolo_metrics metrics;
    kolo_session *session;
    KOLO_TRY(kolo_session_create(comm, &opts, build_limited, NULL, &session));
    kolo_status status = kolo_session_is_server(session) ? kolo_session_serve(session) : KOLO_OK;
    for (int i = 0; status == KOLO_OK && !kolo_session_is_server(session); i++) {
        if (rank == 1 && i == FAILS_AT) memset(x, 255, ELEMENTS);
        status = kolo_session_step(session, &batch, &metrics);
    }
    kolo_session_destroy(session);
    return status;
}

static void an_op_that_fails_is_stated_by_all_that_wait_at_servers(void **state) {
    static const char *const policies[] = {"bsp", "asp"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        rank_outcome outcomes[3];
        const rank_job job = {.n = 3,
                              .transport = RANKS_THREAD,
                              .body = fail_at_servers,
                              .arg = policies[i],
                              .arg_bytes = strlen(policies[i]) + 1,
                              .outcomes = outcomes};
        (void)run_rank_job(&job);
        for (int r = 0; r < 3; r++) {
            if (strstr(outcomes[r].error, "op limited: cannot compute ")) continue;
            fail_msg("%s, rank %d: %s", policies[i], r, outcomes[r].error);
        }
    }
}

/* ---- graphs that a session refuses ---- */

typedef struct flaw {
    const char *text; /* of the error */
    kolo_build *build;
} flaw;

static kolo_status build_larger(kolo_graph *g, int64_t n, void *arg) {
    kolo_shape shape = kolo_shape_4(n, CHANNELS, SIDE + 1, SIDE);
    kolo_output(g, "loss", squares(g, kolo_input(g, "x", KOLO_DTYPE_F32, shape)));
    return KOLO_OK;
}

static kolo_status build_bytes(kolo_graph *g, int64_t n, void *arg) {
    (void)kolo_input(g, "x", KOLO_DTYPE_U8, kolo_shape_4(n, CHANNELS, SIDE, SIDE));
    return build_norm(g, n, arg);
}

static kolo_status build_wide_labels(kolo_graph *g, int64_t n, void *arg) {
    (void)kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_1(n));
    return build_norm(g, n, arg);
}

static kolo_status build_temperature(kolo_graph *g, int64_t n, void *arg) {
    (void)kolo_scalar(g, "temperature");
    return build_norm(g, n, arg);
}

static kolo_status build_input_as_loss(kolo_graph *g, int64_t n, void *arg) {
    kolo_output(g, "loss", images(g, n));
    return KOLO_OK;
}

static kolo_status build_vector_as_loss(kolo_graph *g, int64_t n, void *arg) {
    kolo_output(g, "loss", kolo_flatten(g, images(g, n)));
    return KOLO_OK;
}

static kolo_status build_without_loss(kolo_graph *g, int64_t n, void *arg) {
    kolo_output(g, "logits", images(g, n));
    return KOLO_OK;
}

static kolo_status build_without_x(kolo_graph *g, int64_t n, void *arg) {
    kolo_value w = kolo_param(g, "w", kolo_shape_1(3), kolo_init_fan_in(3));
    kolo_output(g, "loss", squares(g, w));
    return KOLO_OK;
}

static kolo_status build_two_rules(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_flatten(g, images(g, n)), y = classes_of(g, n);
    kolo_value logits = dense(g, x, "weight", ELEMENTS, CLASSES);
    kolo_value all = kolo_softmax_xent(g, logits, y);
    kolo_output(g, "loss", kolo_add(g, all, kolo_softmax_xent_opts(g, logits, y, &ignore_1)));
    return KOLO_OK;
}

static void other_graphs_are_refused(void **state) {
    static const flaw flaws[] = {
        {"the input \"x\" is f32 [2,2,4,3]; for a batch", build_larger},
        {"\"x\" is defined twice", build_bytes},
        {"the input \"y\" is f32 [2]; labels are i32", build_wide_labels},
        {"nothing sets the scalar \"temperature\"", build_temperature},
        {"the output \"loss\" is the leaf \"x\"", build_input_as_loss},
        {"the output \"loss\" is [2,18]; it must be a scalar", build_vector_as_loss},
        {"no output \"loss\"", build_without_loss},
        {"no input \"x\"", build_without_x},
        {"ignore different labels", build_two_rules},
    };
    for (size_t i = 0; i < KOLO_COUNT(flaws); i++) {
        setting s = {flaws[i].build, 1, 2, 1, 2, NULL};
        kolo_session_config opts = session_of(&s);
        kolo_session *session;
        assert_int_equal(kolo_session_create_for(&opts, NULL, &session), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), flaws[i].text)) fail_msg("%s", kolo_last_error());
    }
}

/* Samples of another data set than the session was created for. */
static void other_samples_are_refused(void **state) {
    setting s = {build_norm, 1, 2, 1, 2, NULL};
    kolo_session_config opts = session_of(&s);
    kolo_session *session;
    kolo_sums sums;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    kolo_field other = fields[0];
    other.shape.dim[2]++;
    kolo_batch batch = {
        .count = 2, .global_count = 2, .n_fields = 1, .fields = &other, .data = {samples}};
    assert_int_equal(kolo_session_step_batch(session, &batch, 0.1, &sums), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "the field \"x\" is u8 [2,3,4] for each sample"));
    other = fields[0];
    other.dtype = KOLO_DTYPE_I32;
    assert_int_equal(kolo_session_evaluate_batch(session, &batch, &sums), KOLO_ERR_ARG);
    other.name = "z";
    assert_int_equal(kolo_session_evaluate_batch(session, &batch, &sums), KOLO_ERR_ARG);
    kolo_session_destroy(session);
}

TEST_MAIN(test_own_models) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_without_samples_add_nothing),
        cmocka_unit_test(ranks_without_samples_keep_statistics),
        cmocka_unit_test(losses_without_parameters_are_summed),
        cmocka_unit_test(penalties_are_counted_once),
        cmocka_unit_test(layers_agree_over_ranks_and_kernels),
        cmocka_unit_test(ops_of_a_program_agree_over_ranks),
        cmocka_unit_test(an_op_that_fails_ends_the_step_of_all_ranks),
        cmocka_unit_test(an_op_that_fails_is_stated_by_all_that_wait_at_servers),
        cmocka_unit_test(means_leave_out_ignored_labels),
        cmocka_unit_test(other_graphs_are_refused),
        cmocka_unit_test(other_samples_are_refused),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
