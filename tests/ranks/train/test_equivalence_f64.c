/* N ranks with B samples each compute what one computes with N x B, in f64 with the reference
 * kernels to rounding: any algorithm, level of ZeRO, optimizer, clipping, micro-batches,
 * synchronized batch normalization, and steps of few samples, of which some ranks have none. */
#include "data/sampler.h"
#include "graph/graph.h"
#include "support/mesh_run.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GLOBAL = 12, PIXELS = 2 * 4 * 4, HIDDEN = 80, CLASSES = 3 };

typedef struct setting {
    int ranks;
    kolo_optimizer optimizer;
    kolo_algorithm algorithm;
    int zero;
    int64_t accumulate; /* 0: 1 */
    bool clip, sync, share;
} setting;

/* Whether the optimizer divides by the root of a mean square. */
static bool is_adaptive(const setting *s) {
    return s->optimizer == KOLO_OPTIMIZER_ADAM || s->optimizer == KOLO_OPTIMIZER_ADAMW ||
           s->optimizer == KOLO_OPTIMIZER_LAMB;
}

static kolo_optimizer_opts optimizer_of(const setting *s) {
    kolo_optimizer_opts o = {.kind = s->optimizer, .weight_decay = 0.01, .clip = s->clip ? 0.2 : 0};
    if (is_adaptive(s)) {
        o.eps = 1e-4;                                /* means near 0 differ by rounding */
    } else if (s->optimizer != KOLO_OPTIMIZER_SGD) { /* which has no state */
        o.momentum = 0.9;
    }
    return o;
}

static kolo_status build(kolo_graph *g, int64_t batch, void *arg) {
    const bool *sync = arg;
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_4(batch, 2, 4, 4));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(batch));
    kolo_value w = kolo_param(g, "conv", kolo_shape_4(4, 2, 3, 3), kolo_init_fan_in(18));
    x = kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1});
    if (*sync) x = kolo_batch_norm(g, x, "bn", &(kolo_batch_norm_opts){.eps = 1e-2});
    x = kolo_flatten(g, kolo_relu(g, x));
    w = kolo_param(g, "fc1", kolo_shape_2(HIDDEN, 64), kolo_init_fan_in(64)); /* cut by ZeRO */
    kolo_value b = kolo_param(g, "fc1.bias", kolo_shape_1(HIDDEN), kolo_init_fan_in(64));
    x = kolo_relu(g, kolo_linear_bias(g, x, w, b));
    w = kolo_param(g, "fc2", kolo_shape_2(CLASSES, HIDDEN), kolo_init_fan_in(HIDDEN));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    return kolo_graph_check(g);
}

/* The samples of a rank. Full steps, and some that are the tail of an epoch. */
static kolo_status take_step(kolo_session *session, const setting *s, int rank, int k, double lr,
                             double *loss) {
    static const int64_t counts[] = {GLOBAL, 7, GLOBAL, 2, GLOBAL};
    const kolo_field fields[] = {
        {.name = "x", .dtype = KOLO_DTYPE_F64, .shape = kolo_shape_3(2, 4, 4)},
        {.name = "y", .dtype = KOLO_DTYPE_I32},
    };
    const int64_t global = counts[k % (int)KOLO_COUNT(counts)];
    double x[GLOBAL * PIXELS];
    int32_t y[GLOBAL];
    kolo_batch batch = {.n_fields = 2,
                        .fields = fields,
                        .data = {x, y},
                        .count = kolo_part_count(global, s->ranks, rank),
                        .global_count = global,
                        .first = kolo_part_first(global, s->ranks, rank)};
    kolo_sums sums;
    for (int64_t i = 0; i < batch.count; i++) {
        const int64_t sample = k % 4 * GLOBAL + batch.first + i;
        for (int64_t j = 0; j < PIXELS; j++) {
            x[i * PIXELS + j] = sin((double)(sample * 131 + j * 17));
        }
        y[i] = (int32_t)(sample * 7 % CLASSES);
    }
    KOLO_TRY(kolo_session_step_batch(session, &batch, lr, &sums));
    *loss = sums.metric[KOLO_METRIC_LOSS] / (double)sums.samples;
    return KOLO_OK;
}

static kolo_status train(kolo_session *session, const setting *s, int rank, mesh_outcome *o) {
    const kolo_store *store = kolo_session_store(session);
    const double lr = is_adaptive(s) ? 0.01 : 0.05;
    KOLO_TRY(kolo_session_init(session, 5));
    for (int k = 0; k < MESH_STEPS; k++) {
        KOLO_TRY(take_step(session, s, rank, k, lr, &o->losses[k]));
        if (k == 0) KOLO_TRY(mesh_read_parameters(store, o->first));
    }
    return mesh_read_parameters(store, o->last);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    bool sync = s->sync;
    kolo_session *session;
    const kolo_session_config config = {
        .build = build,
        .build_arg = &sync,
        .classes = CLASSES,
        .global_batch = GLOBAL,
        .batch = kolo_part_count(GLOBAL, s->ranks * (s->accumulate ? s->accumulate : 1), 0),
        .accumulate = s->accumulate,
        .share = s->share,
        .f64 = true,
        .plan = {.kernels = KOLO_KERNELS_REF,
                 .algorithm = s->algorithm,
                 .zero = s->zero,
                 .sync_batch_norm = s->sync,
                 .optimizer = optimizer_of(s),
                 .bucket_bytes = 1 << 12},
    };
    KOLO_TRY(kolo_session_create_for(&config, comm, &session));
    kolo_status status = train(session, s, kolo_comm_rank(comm), result);
    kolo_session_destroy(session);
    return status;
}

/* ---- tests ---- */

static const mesh_outcome *run(setting s) {
    return mesh_run(s.ranks, RANKS_THREAD, body, &s, sizeof s);
}

/* What one rank computes with the whole batch. */
static const mesh_outcome *expected_of(const setting *s) {
    static mesh_outcome *kept[KOLO_OPTIMIZER_COUNT][2][2];
    mesh_outcome **o = &kept[s->optimizer][s->clip][s->sync];
    if (!*o) {
        assert_non_null(*o = malloc(sizeof **o));
        **o = *run((setting){1, s->optimizer, .clip = s->clip, .sync = s->sync});
        mesh_assert_learns("one rank", *o, 20);
    }
    return *o;
}

static void check(const setting *s) {
    char what[128];
    snprintf(what, sizeof what,
             "%d ranks, optimizer %d, algorithm %d, zero %d, %d micro-batches, clip %d, sync %d, "
             "share %d",
             s->ranks, (int)s->optimizer, (int)s->algorithm, s->zero, (int)s->accumulate, s->clip,
             s->sync, s->share);
    mesh_assert_close(what, run(*s), expected_of(s));
}

/* All combinations but micro-batches with synchronized normalization, which is of a micro-batch. */
static void check_all(void) {
    enum { FLAGS = 8 };
    for (int o = 0; o < KOLO_OPTIMIZER_COUNT; o++) {
        for (int a = 0; a < KOLO_ALGORITHM_COUNT; a++) {
            for (int i = 0; i < 4 * 3 * FLAGS; i++) {
                setting s = {.ranks = 2 + (i + i / FLAGS) % 4,
                             .optimizer = (kolo_optimizer)o,
                             .algorithm = (kolo_algorithm)a,
                             .zero = i / FLAGS % 4,
                             .accumulate = 1 + i / FLAGS / 4,
                             .clip = i & 1,
                             .sync = i & 2,
                             .share = i & 4};
                if (!(s.sync && s.accumulate > 1)) check(&s);
            }
        }
    }
}

/* Each column has each of its values. */
static void ranks_compute_what_one_does(void **state) {
    static const setting cases[] = {
        {3, KOLO_OPTIMIZER_SGD, KOLO_ALGORITHM_RING, .clip = true},
        {4, KOLO_OPTIMIZER_ADAM, KOLO_ALGORITHM_TREE, .zero = 0},
        {2, KOLO_OPTIMIZER_NESTEROV, KOLO_ALGORITHM_DOUBLE_TREE, .accumulate = 3},
        {4, KOLO_OPTIMIZER_LAMB, KOLO_ALGORITHM_HALVING_DOUBLING, .clip = true},
        {3, KOLO_OPTIMIZER_LARS, KOLO_ALGORITHM_MESH, .accumulate = 2, .clip = true},
        {3, KOLO_OPTIMIZER_ADAMW, KOLO_ALGORITHM_HIERARCHICAL, .sync = true},
        {5, KOLO_OPTIMIZER_LAMB, KOLO_ALGORITHM_DIRECT, .share = true, .clip = true},
        {3, KOLO_OPTIMIZER_SGD, .zero = 1, .accumulate = 2, .clip = true},
        {2, KOLO_OPTIMIZER_ADAM, KOLO_ALGORITHM_RING, .zero = 1},
        {2, KOLO_OPTIMIZER_NESTEROV, .zero = 2, .accumulate = 3},
        {3, KOLO_OPTIMIZER_ADAMW, .zero = 3, .sync = true},
        {4, KOLO_OPTIMIZER_LARS, .zero = 3, .accumulate = 2, .clip = true},
        {3, KOLO_OPTIMIZER_LAMB, .zero = 3, .share = true, .clip = true},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) check(&cases[i]);
    if (getenv("KOLO_SOAK")) check_all();
}

TEST_MAIN(test_equivalence_f64) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_compute_what_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
