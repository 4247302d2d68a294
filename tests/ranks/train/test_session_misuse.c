/* Misuse of sessions: options, builders and batches that are refused, by all ranks together. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "kolo/session.h"
#include "support/ranks.h"
#include "support/sum_model.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <string.h>

static kolo_status build_error(kolo_graph *g, int64_t n, void *arg) {
    return kolo_error_set(KOLO_ERR_ARG, "of the builder");
}
static kolo_status build_silently_fails(kolo_graph *g, int64_t n, void *arg) {
    return KOLO_ERR_ARG;
}
static kolo_status build_nothing(kolo_graph *g, int64_t n, void *arg) { return KOLO_OK; }
static kolo_status build_fixed(kolo_graph *g, int64_t n, void *arg) {
    return sum_build(g, 4, arg); /* for another number of samples */
}
/* Parameters that depend on the number of samples. */
static kolo_status build_sized(kolo_graph *g, int64_t n, void *arg) {
    kolo_value w = kolo_param(g, "w", kolo_shape_2(n + 1, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
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
    ASSERT_REFUSED(kolo_session_create(NULL, NULL, NULL, NULL, &s), "without a builder");
    ASSERT_REFUSED(kolo_session_create(NULL, NULL, sum_build, NULL, NULL),
                   "no place for the session");
    ASSERT_REFUSED(kolo_session_create(NULL, NULL, build_error, NULL, &s), "of the builder");
    ASSERT_REFUSED(kolo_session_create(NULL, NULL, build_silently_fails, NULL, &s),
                   "builder: invalid argument, without an error text");
    ASSERT_REFUSED(kolo_session_create(NULL, NULL, build_nothing, NULL, &s), "no output \"loss\"");
    ASSERT_REFUSED(kolo_session_create(NULL, NULL, build_fixed, NULL, &s),
                   "first dimension must be");
    ASSERT_REFUSED(kolo_session_create(NULL, &cosine, sum_build, NULL, &s), "give `steps`");
    ASSERT_REFUSED(kolo_session_create(NULL, &threads, sum_build, NULL, &s), "threads");
    ASSERT_REFUSED(kolo_session_create(NULL, &shards, sum_build, NULL, &s), "global batch");
    ASSERT_REFUSED(kolo_session_create(NULL, &both, sum_build, NULL, &s), "choose one");
    ASSERT_REFUSED(kolo_session_create(NULL, &mesh, sum_build, NULL, &s), "tp=2");
    ASSERT_REFUSED(kolo_session_create(NULL, &momentum, sum_build, NULL, &s), "momentum");
    ASSERT_REFUSED(kolo_session_create(NULL, &lr, sum_build, NULL, &s), "learning rate");
    ASSERT_REFUSED(kolo_session_create(NULL, &schedule, sum_build, NULL, &s), "schedule");
    ASSERT_REFUSED(kolo_session_create(NULL, &algorithm, sum_build, NULL, &s), "algorithm");
    assert_null(s);

    kolo_batch one = {.count = 1, .n_fields = 1, .fields = &sum_fields[2], .data = {sum_u}};
    ASSERT_OK(kolo_session_create(NULL, NULL, build_sized, NULL, &s));
    ASSERT_REFUSED(kolo_session_step(s, &one, NULL), "parameter w is [2,3] here");
    kolo_session_destroy(s);
    kolo_session_destroy(NULL);
}

static kolo_status build_labels(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(4, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    return KOLO_OK;
}

static void batches_that_do_not_fit_are_refused(void **state) {
    kolo_session *s;
    kolo_session_opts opts = {.batch = 4};
    kolo_metrics metrics;
    int64_t first, count;
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &s));
    const kolo_batch good = sum_batch(0, 4);
    kolo_batch none = good, few = good, empty = good, lost = good, many = good, bare = good;
    kolo_field other[3] = {sum_fields[0], sum_fields[1], sum_fields[2]};
    kolo_batch shaped = good;
    none.fields = NULL;
    few.n_fields = 2;
    empty.count = 0;
    lost.data[1] = NULL;
    many.n_fields = KOLO_MAX_FIELDS + 1;
    bare.count = -1;
    shaped.fields = other;
    ASSERT_REFUSED(kolo_session_step(NULL, &good, &metrics), "no session");
    ASSERT_REFUSED(kolo_session_step(s, NULL, &metrics), "no batch");
    ASSERT_REFUSED(kolo_session_step(s, &none, &metrics), "describes none");
    ASSERT_REFUSED(kolo_session_step(s, &few, &metrics), "no field \"u\"");
    ASSERT_REFUSED(kolo_session_step(s, &empty, &metrics), "without samples");
    ASSERT_REFUSED(kolo_session_step(s, &lost, &metrics),
                   "\"v\" of a batch of 4 samples has no data");
    ASSERT_REFUSED(kolo_session_step(s, &many, &metrics), "33 fields");
    ASSERT_REFUSED(kolo_session_step(s, &bare, &metrics), "-1 samples");
    other[1].shape = kolo_shape_1(SUM_B + 1);
    ASSERT_REFUSED(kolo_session_step(s, &shaped, &metrics), "\"v\" is f32 [3] for each sample");
    other[1].shape = sum_fields[1].shape;
    other[1].dtype = KOLO_DTYPE_F64;
    ASSERT_REFUSED(kolo_session_step(s, &shaped, &metrics), "\"v\" is f64 [2]");
    other[1].dtype = (kolo_dtype)99;
    ASSERT_REFUSED(kolo_session_step(s, &shaped, &metrics), "dtype 99");
    other[1].dtype = KOLO_DTYPE_F32;
    other[1].name = NULL;
    ASSERT_REFUSED(kolo_session_step(s, &shaped, &metrics), "field 1 of the batch has no name");
    ASSERT_REFUSED(kolo_session_evaluate(s, &good, NULL), "no place");
    ASSERT_REFUSED(kolo_session_evaluate(s, &empty, &metrics), "without samples");
    ASSERT_REFUSED(kolo_session_evaluate(NULL, &good, &metrics), "no session");
    float y[4];
    ASSERT_REFUSED(kolo_session_predict(s, &good, "z", y, sizeof y, NULL), "it has y, loss");
    ASSERT_REFUSED(kolo_session_predict(s, &good, NULL, y, sizeof y, NULL), "it has y, loss");
    ASSERT_REFUSED(kolo_session_predict(s, &good, "y", y, 3, NULL), "\"y\" is f32 [4,1], 16 bytes");
    ASSERT_REFUSED(kolo_session_predict(s, &good, "y", NULL, 0, NULL),
                   "\"y\" is f32 [4,1], 16 bytes: give an array, not NULL");
    ASSERT_REFUSED(kolo_session_share(s, -1, &first, &count), "-1 samples");
    ASSERT_REFUSED(kolo_session_share(s, 4, NULL, &count), "no place");
    ASSERT_REFUSED(kolo_session_set_lr(s, 0), "learning rate of 0");
    ASSERT_REFUSED(kolo_session_set_lr(s, NAN), "learning rate");
    ASSERT_REFUSED(kolo_session_get(s, "c", y, sizeof y), "no tensor \"c\"");
    ASSERT_REFUSED(kolo_session_get(s, "a", y, sizeof y), "\"a\" is f32 [1,3], 12 bytes");
    ASSERT_REFUSED(kolo_session_get(s, NULL, y, sizeof y), "no tensor");
    ASSERT_REFUSED(kolo_session_set(s, "a", NULL, 12), "12 bytes: give an array, not NULL");
    ASSERT_REFUSED(kolo_session_set(s, "a", y, 8), "12 bytes, not 8: give its size");
    y[1] = INFINITY;
    ASSERT_REFUSED(kolo_session_set(s, "a", y, 12), "not finite");
    ASSERT_REFUSED(kolo_session_get_gradient(s, "a", y, 12), "keep_gradients");
    ASSERT_REFUSED(kolo_session_tensor(s, 2, &other[0]), "tensor 2: the session has 2");
    ASSERT_REFUSED(kolo_session_tensor(s, 0, NULL), "no place");
    ASSERT_OK(kolo_session_step(s, &good, &metrics)); /* still works */
    kolo_session_destroy(s);

    opts = (kolo_session_opts){.evaluate_only = true};
    ASSERT_OK(kolo_session_create(NULL, &opts, sum_build, NULL, &s));
    ASSERT_REFUSED(kolo_session_step(s, &good, &metrics), "evaluates only");
    ASSERT_OK(kolo_session_evaluate(s, &good, &metrics));
    kolo_session_destroy(s);

    int32_t labels[] = {0, 3, 4, 1};
    const kolo_field classes[] = {sum_fields[2], {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    const kolo_batch wrong = {
        .count = 4, .n_fields = 2, .fields = classes, .data = {sum_u, labels}};
    ASSERT_OK(kolo_session_create(NULL, NULL, build_labels, NULL, &s));
    ASSERT_REFUSED(kolo_session_step(s, &wrong, &metrics), "label 4 at index 2 of field \"y\"");
    labels[2] = -1;
    ASSERT_REFUSED(kolo_session_evaluate(s, &wrong, &metrics), "label -1");
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
    KOLO_TRY(sum_build(g, n, arg));
    kolo_output(g, "z", kolo_scale(g, kolo_graph_output(g, "y"), 2));
    return KOLO_OK;
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
    kolo_build *build = odd && q->kind == 1 ? build_wider : sum_build;
    kolo_session *s;
    kolo_status status = kolo_session_create(comm, &opts, build, NULL, &s);
    if (q->kind < 2) return expect(status, q);
    KOLO_TRY(status);
    const kolo_batch good = sum_batch(0, 4);
    kolo_batch bad = odd ? sum_batch(0, 3) : good;
    float value[SUM_A] = {0};
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

/* ---- ops along the samples ---- */

static kolo_status build_along(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
    kolo_value w = kolo_param(g, "w", kolo_shape_1(SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value y = kolo_softmax(g, kolo_mul(g, x, w), 0);
    kolo_output(g, "loss", kolo_sum(g, kolo_mul(g, y, y)));
    return KOLO_OK;
}

typedef struct division {
    int ranks;
    int64_t global_batch, accumulate;
    int reproducible;
    const char *refused; /* NULL: it is not */
} division;

static kolo_status division_body(kolo_comm *comm, const void *arg, void *result) {
    const division *d = arg;
    const kolo_session_opts opts = {.global_batch = d->global_batch,
                                    .accumulate = d->accumulate,
                                    .reproducible = d->reproducible};
    kolo_session *s = NULL;
    const kolo_status status = kolo_session_create(comm, &opts, build_along, NULL, &s);
    kolo_session_destroy(s);
    if (!d->refused) return status;
    return expect(status, &(quarrel){0, d->refused});
}

/* Also where each rank or part has a single sample, whose dimension has size 1. */
static void samples_that_are_divided_have_no_softmax(void **state) {
    static const division cases[] = {
        {1, 4, 1, 0, NULL},
        {2, 4, 1, 0, "needs this dimension whole"},
        {2, 2, 1, 0, "needs this dimension whole"},
        {1, 4, 2, 0, "micro-batches (accumulate)"},
        {1, 4, 4, 0, "micro-batches (accumulate)"},
        {1, 4, 1, 2, "logical shards (reproducible)"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(
            run_ranks(cases[i].ranks, RANKS_THREAD, division_body, &cases[i], sizeof cases[i]));
    }
}

/* ---- a rank that fails alone ---- */

/* Rank 1 alone fails in the plan of a full step, after the ranks have compared their graphs. */
static kolo_status build_fails_late(kolo_graph *g, int64_t n, void *arg) {
    const bool *fails = arg;
    if (*fails && n > 1) return kolo_error_set(KOLO_ERR_ARG, "the full step of rank 1");
    return sum_build(g, n, NULL);
}

/* The group is intact: the same ranks create another session. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    bool fails = kolo_comm_rank(comm) == 1;
    const kolo_session_opts opts = {.batch = 4};
    const quarrel q = {5, "the full step of rank 1"};
    const kolo_batch batch = sum_batch(0, 4);
    kolo_session *s;
    KOLO_TRY(expect(kolo_session_create(comm, &opts, build_fails_late, &fails, &s), &q));
    fails = false;
    KOLO_TRY(kolo_session_create(comm, &opts, build_fails_late, &fails, &s));
    const kolo_status status = kolo_session_step(s, &batch, NULL);
    kolo_session_destroy(s);
    return status;
}

static void a_plan_that_fails_on_one_rank_fails_on_all(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, late_body, NULL, 0));
}

/* Two layers, which tensor parallelism divides. */
static kolo_status build_layers(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
    kolo_value up = kolo_param(g, "up", kolo_shape_2(8, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value down = kolo_param(g, "down", kolo_shape_2(4, 8), kolo_init_fan_in(8));
    kolo_output(g, "loss", kolo_sum(g, kolo_linear(g, kolo_relu(g, kolo_linear(g, x, up)), down)));
    return KOLO_OK;
}

typedef struct starved {
    const kolo_session_opts *opts; /* NULL: parameters in the same memory, as kolo_train has them */
    long nth;                      /* allocation of rank 1 that fails */
} starved;

static kolo_status create(kolo_comm *comm, const kolo_session_opts *opts, kolo_session **s) {
    const kolo_session_config shared = {.build = build_layers, .batch = 4, .share = true};
    return opts ? kolo_session_create(comm, opts, build_layers, NULL, s)
                : kolo_session_create_for(&shared, comm, s);
}

/* Either the session is created on all ranks, or all of them get an error. */
static kolo_status starved_body(kolo_comm *comm, const void *arg, void *result) {
    const starved *t = arg;
    kolo_session *s = NULL;
    int64_t *created = result;
    const bool odd = kolo_comm_rank(comm) == 1;
    if (odd) kolo_alloc_fail_nth(t->nth);
    const kolo_status status = create(comm, t->opts, &s);
    kolo_alloc_fail_nth(0);
    *created = status == KOLO_OK;
    kolo_session_destroy(s);
    if (status == KOLO_OK || status == KOLO_ERR_NOMEM) return KOLO_OK;
    if (strstr(kolo_last_error(), "memory")) return KOLO_OK; /* rank 1 has broken the group */
    /* The others may be about to make a group of the mesh; none waits until rank 1 has left. */
    return !odd && strstr(kolo_last_error(), "disagree") ? KOLO_OK : status;
}

static void starve(int ranks, const kolo_session_opts *opts) {
    int64_t created[4] = {0};
    starved t = {opts, 1};
    for (; !created[0]; t.nth++) {
        const rank_job job = {.n = ranks,
                              .transport = RANKS_THREAD,
                              .body = starved_body,
                              .arg = &t,
                              .arg_bytes = sizeof t,
                              .results = created,
                              .result_bytes = sizeof *created};
        if (run_rank_job(&job) != KOLO_OK) fail_msg("allocation %ld: %s", t.nth, kolo_last_error());
        for (int r = 1; r < ranks; r++) assert_int_equal(created[0], created[r]);
    }
    assert_true(t.nth > 50);
}

static void a_session_is_created_on_all_ranks_or_none(void **state) {
    static const kolo_session_opts opts[] = {
        {.batch = 4},
        {.batch = 4, .consistency = "diloco:4,overlap=1"},
        {.batch = 4, .compress = "int8", .compress_min_bytes = 1},
        {.batch = 4, .zero = 3},
        {.global_batch = 8, .reproducible = 4},
        {.batch = 4, .mesh = "pp=2"},
    };
    for (size_t i = 0; i < KOLO_COUNT(opts); i++) starve(2, &opts[i]);
    starve(2, NULL);
    starve(4, &(kolo_session_opts){.batch = 4, .mesh = "dp=2,tp=2", .placement = "up 0\ndown 1\n"});
}

TEST_MAIN(test_session_misuse) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_that_cannot_be_are_refused),
        cmocka_unit_test(batches_that_do_not_fit_are_refused),
        cmocka_unit_test(ranks_that_differ_are_refused_together),
        cmocka_unit_test(samples_that_are_divided_have_no_softmax),
        cmocka_unit_test(a_plan_that_fails_on_one_rank_fails_on_all),
        cmocka_unit_test(a_session_is_created_on_all_ranks_or_none),
    };
    return cmocka_run_group_tests(tests, sum_fill, NULL);
}
