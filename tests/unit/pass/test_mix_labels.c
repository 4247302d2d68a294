/* Losses of mixed samples: the weighted mean of the cross-entropies of both classes, in each place
 * where a graph has one. */
#include "base/compiler.h"
#include "pass/mix_labels.h"
#include "support/graph_eval.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { N = 3, C = 4 };

/* Two losses, one with label smoothing, of which the second is scaled, as of auxiliary heads. */
static kolo_graph *build(void) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(N, C));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(N));
    const kolo_loss_opts smooth = {.smoothing = 0.1};
    const kolo_value first = kolo_softmax_xent(g, x, y);
    const kolo_value second = kolo_softmax_xent_opts(g, kolo_relu(g, x), y, &smooth);
    kolo_output(g, "loss", kolo_add(g, first, kolo_scale(g, second, 0.3)));
    kolo_output(g, "correct", kolo_accuracy_opts(g, x, y, NULL));
    ASSERT_OK(kolo_graph_check(g));
    return g;
}

/* Values of the outputs, of one sample at a time where `only` is not negative. */
static void run(kolo_graph *g, const int32_t *labels, const float *target, double *out) {
    static const char *const names[] = {"loss", "correct"};
    graph_eval e;
    ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_REF));
    graph_eval_fill(&e, kolo_graph_find(g, "x"), 5, 3);
    memcpy(graph_eval_i32(&e, kolo_graph_find(g, "y")), labels, N * sizeof *labels);
    if (target) {
        memcpy(graph_eval_f32(&e, kolo_graph_find(g, "target")), target, N * C * sizeof *target);
    }
    graph_eval_run(&e, g->n_nodes);
    for (int i = 0; i < 2; i++) {
        out[i] = (double)graph_eval_f32(&e, kolo_graph_output(g, names[i]))[0];
    }
    graph_eval_fini(&e);
}

static void losses_are_weighted_means(void **state) {
    static const int32_t a[N] = {0, 3, 2}, b[N] = {1, 3, 0}, none[N] = {-1, -1, -1};
    static const float weight[N] = {0.25F, 0.5F, 0.875F}; /* of b */
    double want = 0, out[2], correct;
    kolo_graph *g = build();
    run(g, none, NULL, out); /* labels outside the classes add nothing */
    assert_true(out[0] == 0);
    for (int i = 0; i < N; i++) {
        for (int second = 0; second < 2; second++) {
            int32_t labels[N] = {-1, -1, -1};
            labels[i] = second ? b[i] : a[i];
            run(g, labels, NULL, out);
            want += out[0] * (double)(second ? weight[i] : 1 - weight[i]);
        }
    }
    run(g, a, NULL, out);
    correct = out[1];
    kolo_graph_destroy(g);

    g = build();
    const int32_t outputs = g->n_outputs;
    ASSERT_OK(kolo_pass_mix_labels(g, "target"));
    assert_int_equal(g->n_outputs, outputs);
    float target[N * C] = {0};
    for (int i = 0; i < N; i++) {
        target[i * C + a[i]] += 1 - weight[i];
        target[i * C + b[i]] += weight[i];
    }
    run(g, a, target, out);
    assert_true(fabs(out[0] - want) < 1e-5 * fabs(want));
    assert_true(out[1] == correct);
    kolo_graph_destroy(g);
}

static void other_losses_are_refused(void **state) {
    for (int kind = 0; kind < 3; kind++) {
        static const char *const why[] = {"this model has none", "an ignored label",
                                          "weights of the classes"};
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(N, C));
        const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(N));
        const kolo_loss_opts opts = {.has_ignore_index = kind == 1,
                                     .use_weights = kind == 2,
                                     .weights =
                                         kolo_input(g, "w", KOLO_DTYPE_F32, kolo_shape_1(C))};
        kolo_output(g, "loss",
                    kind ? kolo_softmax_xent_opts(g, x, y, &opts) : kolo_mse_loss(g, x, x));
        ASSERT_OK(kolo_graph_check(g));
        assert_int_equal(kolo_pass_mix_labels(g, "target"), KOLO_ERR_UNSUPPORTED);
        assert_non_null(strstr(kolo_last_error(), why[kind]));
        kolo_graph_destroy(g);
    }
}

TEST_MAIN(test_mix_labels) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_weighted_means),
        cmocka_unit_test(other_losses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
