/* Windows that move before the nodes they take a part of: which do, and that training computes the
 * same as with windows that were there from the beginning. */
#include "base/compiler.h"
#include "graph/ops/ops.h"
#include "kolo/session.h"
#include "pass/pass.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 3, TOKENS = 7, WIDTH = 5 };

static kolo_value tokens(kolo_graph *g, int64_t samples) {
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(samples, TOKENS, WIDTH));
}

static kolo_value dense(kolo_graph *g, const char *name, kolo_value x) {
    return kolo_linear(g, x,
                       kolo_param(g, name, kolo_shape_2(WIDTH, WIDTH), kolo_init_fan_in(WIDTH)));
}

static kolo_value token(kolo_graph *g, kolo_value x, int64_t number) {
    return kolo_slice(g, x, 1, number, 1);
}

/* What is moved through: a block with a residual, behind what mixes tokens. */
static kolo_value block(kolo_graph *g, kolo_value x, kolo_value of_all) {
    x = kolo_add(g, x, dense(g, "a", of_all));
    kolo_value y = kolo_gelu(g, dense(g, "b", kolo_layer_norm(g, x, "ln", 1e-5)), false);
    return kolo_tanh(g, kolo_add(g, x, dense(g, "c", y)));
}

static kolo_value mixed(kolo_graph *g, kolo_value x) { return kolo_softmax(g, x, 1); }

static void loss_of(kolo_graph *g, int64_t samples, kolo_value y) {
    kolo_value target = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(samples, WIDTH));
    y = kolo_reshape(g, y, kolo_shape_2(samples, WIDTH));
    kolo_output(g, "loss", kolo_mse_loss(g, y, target));
}

static kolo_status window_behind(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value x = dense(g, "in", tokens(g, samples));
    loss_of(g, samples, token(g, block(g, x, mixed(g, x)), 2));
    return kolo_graph_check(g);
}

static kolo_status window_before(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value x = dense(g, "in", tokens(g, samples));
    loss_of(g, samples, block(g, token(g, x, 2), token(g, mixed(g, x), 2)));
    return kolo_graph_check(g);
}

/* ---- which move ---- */

/* The nodes of an op, and the numbers that those of the largest result have. */
static int count_nodes(const kolo_graph *g, const kolo_op *op, int64_t *largest) {
    int n = 0;
    *largest = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op != op) continue;
        const int64_t count = kolo_shape_count(&kolo_info(g, g->nodes[i]->out[0])->tensor.shape);
        *largest = count > *largest ? count : *largest;
        n++;
    }
    return n;
}

static kolo_graph *windowed(kolo_build *build) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(build(g, SAMPLES, NULL));
    ASSERT_OK(kolo_pass_windows(g));
    ASSERT_OK(kolo_graph_verify(g));
    return g;
}

static void windows_stop_at_what_needs_all_or_is_read_elsewhere(void **state) {
    int64_t largest;
    kolo_graph *g = windowed(window_behind);
    assert_int_equal(count_nodes(g, &kolo_op_window, &largest), 2);
    assert_int_equal(largest, SAMPLES * WIDTH);
    assert_int_equal(count_nodes(g, &kolo_op_layer_norm, &largest), 1);
    assert_int_equal(largest, SAMPLES * WIDTH);
    assert_int_equal(count_nodes(g, &kolo_op_gelu, &largest), 1);
    assert_int_equal(largest, SAMPLES * WIDTH);
    assert_int_equal(count_nodes(g, &kolo_op_softmax, &largest), 1);
    assert_int_equal(largest, SAMPLES * TOKENS * WIDTH);
    kolo_graph_destroy(g);
}

/* Two equal windows are one; another one, or another reader, keeps the node whole. */
static kolo_status equal_windows(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value y = kolo_exp(g, dense(g, "a", kolo_exp(g, tokens(g, samples))));
    loss_of(g, samples, kolo_mul(g, token(g, y, 2), kolo_tanh(g, token(g, y, 2))));
    return kolo_graph_check(g);
}

static kolo_status unequal_windows(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value y = kolo_exp(g, dense(g, "a", kolo_exp(g, tokens(g, samples))));
    loss_of(g, samples, kolo_mul(g, token(g, y, 2), token(g, kolo_tanh(g, y), 3)));
    return kolo_graph_check(g);
}

static kolo_status read_elsewhere(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value y = kolo_exp(g, dense(g, "a", kolo_exp(g, tokens(g, samples))));
    kolo_output(g, "y", y);
    loss_of(g, samples, token(g, y, 2));
    return kolo_graph_check(g);
}

/* Of parameters, inputs, more than half of the places, places that there are not. */
static kolo_status others(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value in = tokens(g, samples), x = kolo_exp(g, in);
    kolo_value w =
        kolo_param(g, "w", kolo_shape_3(1, TOKENS, WIDTH), (kolo_init){KOLO_INIT_ONE, 0});
    kolo_value y = kolo_slice(g, kolo_tanh(g, x), 1, 1, TOKENS - 1);
    y = kolo_mul(g, token(g, kolo_mul(g, x, w), 1), token(g, kolo_pad(g, y, 1, 2, 0), 1));
    loss_of(g, samples, kolo_mul(g, y, token(g, in, 1)));
    return kolo_graph_check(g);
}

static void windows_of_one_value_move_if_equal(void **state) {
    int64_t largest;
    kolo_graph *g = windowed(equal_windows);
    assert_int_equal(count_nodes(g, &kolo_op_window, &largest), 1);
    assert_int_equal(count_nodes(g, &kolo_op_linear, &largest), 1);
    assert_int_equal(largest, SAMPLES * WIDTH);
    kolo_graph_destroy(g);
    static kolo_build *const kept[] = {unequal_windows, read_elsewhere};
    for (size_t i = 0; i < KOLO_COUNT(kept); i++) {
        g = windowed(kept[i]);
        assert_int_equal(count_nodes(g, &kolo_op_linear, &largest), 1);
        assert_int_equal(largest, SAMPLES * TOKENS * WIDTH);
        kolo_graph_destroy(g);
    }
    g = windowed(others);
    assert_int_equal(count_nodes(g, &kolo_op_broadcast_mul, &largest), 1);
    assert_int_equal(largest, SAMPLES * TOKENS * WIDTH);
    assert_int_equal(count_nodes(g, &kolo_op_tanh, &largest), 1);
    assert_int_equal(largest, SAMPLES * TOKENS * WIDTH);
    kolo_graph_destroy(g);
}

/* ---- training ---- */

/* All parameters after some steps, in f64. */
static void train(kolo_build *build, double *all, size_t most, size_t *count) {
    double x[SAMPLES * TOKENS * WIDTH], y[SAMPLES * WIDTH];
    const kolo_field fields[] = {
        {.name = "x", .dtype = KOLO_DTYPE_F64, .shape = kolo_shape_2(TOKENS, WIDTH)},
        {.name = "y", .dtype = KOLO_DTYPE_F64, .shape = kolo_shape_1(WIDTH)}};
    const kolo_batch batch = {.count = SAMPLES, .n_fields = 2, .fields = fields, .data = {x, y}};
    const kolo_session_opts opts = {.batch = SAMPLES, .lr = 0.1, .f64 = true};
    kolo_session *s;
    for (int i = 0; i < SAMPLES * TOKENS * WIDTH; i++) x[i] = sin(i);
    for (int i = 0; i < SAMPLES * WIDTH; i++) y[i] = cos(i);
    ASSERT_OK(kolo_session_create(NULL, &opts, build, NULL, &s));
    for (int step = 0; step < 3; step++) {
        kolo_metrics metrics;
        ASSERT_OK(kolo_session_step(s, &batch, &metrics));
    }
    kolo_field tensor;
    *count = 0;
    for (int i = 0; kolo_session_tensor(s, i, &tensor) == KOLO_OK; i++) {
        const size_t n = (size_t)kolo_shape_count(&tensor.shape);
        assert_true(*count + n <= most);
        ASSERT_OK(kolo_session_get(s, tensor.name, all + *count, n * sizeof *all));
        *count += n;
    }
    kolo_session_destroy(s);
}

static void training_computes_the_same(void **state) {
    enum { MOST = 1024 };
    static double moved[MOST], want[MOST];
    size_t n, n_want;
    train(window_behind, moved, MOST, &n);
    train(window_before, want, MOST, &n_want);
    assert_int_equal(n, n_want);
    assert_true(n >= 4 * WIDTH * WIDTH);
    for (size_t i = 0; i < n; i++) assert_true(fabs(moved[i] - want[i]) <= 1e-14);
}

TEST_MAIN(test_windows) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_stop_at_what_needs_all_or_is_read_elsewhere),
        cmocka_unit_test(windows_of_one_value_move_if_equal),
        cmocka_unit_test(training_computes_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
