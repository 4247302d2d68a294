/* Gradients of weights that move behind those of the first layer: which, where their sums are
 * posted and awaited, the same on ranks with any batch, and which plans leave all as it is. */
#include "base/compiler.h"
#include "graph/ops/ops.h"
#include "kolo/models.h"
#include "pass/pass.h"
#include "support/support.h"

#include <string.h>

static const kolo_pipeline_opts ahead = {
    .train = true,
    .optimizer.momentum = 0.9,
    .mesh = {1, {{"dp", 2}}},
    .cross_step = true,
    .runs_ahead = true,
    .bucket_bytes = 1 << 20,
    .kernels = KOLO_KERNELS_REF,
    .threads = 1,
};

static kolo_graph *plan(const char *name, int64_t batch, const kolo_pipeline_opts *opts) {
    const kolo_model *model;
    kolo_shape sample;
    int64_t classes;
    kolo_graph *g;
    ASSERT_OK(kolo_model_find(name, &model));
    ASSERT_OK(kolo_model_sample(model, NULL, &sample, &classes));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_model_opts of = {.batch = batch, .sample = sample, .classes = (int)classes};
    ASSERT_OK(kolo_model_add(model, g, &of));
    ASSERT_OK(kolo_pipeline_run(g, opts));
    return g;
}

/* The node that makes the gradient of a parameter. */
static int32_t makes(const kolo_graph *g, const char *parameter) {
    const kolo_value v = kolo_graph_find(g, parameter);
    assert_true(kolo_value_ok(v));
    return kolo_info(g, kolo_info(g, v)->grad)->producer;
}

/* The POST of that gradient. */
static int32_t posts(const kolo_graph *g, const char *parameter) {
    const kolo_value grad = kolo_info(g, kolo_graph_find(g, parameter))->grad;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in && n->op == &kolo_op_post; k++) {
            if (n->in[k].id == grad.id) return i;
        }
    }
    fail_msg("no POST of %s", parameter);
    return -1;
}

static void the_second_layer_comes_behind_the_first(void **state) {
    kolo_graph *g = plan("lenet", 64, &ahead);
    const int32_t first = makes(g, "conv1.weight"), second = makes(g, "conv2.weight");
    assert_true(makes(g, "fc1.weight") < first && first < second); /* enough operations */
    assert_int_equal(posts(g, "conv1.weight"), first + 1);
    assert_int_equal(posts(g, "fc1.weight"), first + 1);
    assert_int_equal(posts(g, "conv2.weight"), second + 1);
    for (int32_t i = 0; i < g->n_nodes; i++) { /* nothing but the loss is awaited in the step */
        const kolo_node *n = g->nodes[i];
        if (n->op != &kolo_op_wait) continue;
        const bool loss = kolo_info(g, n->out[0])->tensor.shape.rank == 0;
        assert_int_equal(n->attr[KOLO_COMM_DEFERRAL].i,
                         loss ? KOLO_DEFERRAL_REPORTED : KOLO_DEFERRAL_NEXT);
    }
    kolo_graph_destroy(g);
}

/* Where ranks read each other's gradients in the memory of a host, those of the last layers move:
 * the next step needs them last. */
static void near_ranks_compute_the_last_layers_last(void **state) {
    kolo_pipeline_opts opts = ahead;
    opts.near = true;
    kolo_graph *g = plan("lenet", 64, &opts);
    static const char *const order[] = {"conv2.weight", "conv1.weight", "fc1.weight", "fc2.weight",
                                        "fc3.weight"};
    for (size_t i = 0; i + 1 < KOLO_COUNT(order); i++) {
        assert_true(makes(g, order[i]) < makes(g, order[i + 1]));
    }
    const int32_t first = makes(g, "conv1.weight"), last = makes(g, "fc3.weight");
    assert_int_equal(posts(g, "conv1.weight"), first + 1);
    assert_int_equal(posts(g, "conv2.weight"), first + 1);
    assert_int_equal(posts(g, "fc1.weight"), last + 1);
    assert_int_equal(posts(g, "fc3.weight"), last + 1);
    kolo_graph_destroy(g);
}

/* The layers are computed in the order of the graph without the pass, but for those that move. */
static void other_plans_stay_as_they_are(void **state) {
    kolo_pipeline_opts others[] = {ahead, ahead, ahead, ahead, ahead, ahead, ahead};
    others[0].runs_ahead = false; /* sums depend on their place in a bucket */
    others[1].cross_step = false;
    others[2].share = others[2].summands = true;
    others[3].zero = 1;
    others[4].micro_batches = 2;
    others[5].optimizer.clip = 1; /* all updates need all sums */
    others[6].mesh = (kolo_mesh){2, {{"dp", 2}, {"tp", 2}}};
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        kolo_graph *g = plan("lenet", 64, &others[i]);
        if (makes(g, "conv1.weight") < makes(g, "conv2.weight")) fail_msg("case %d", (int)i);
        kolo_graph_destroy(g);
    }
}

/* Ranks with other batches have the same order of gradients, and with that the same buckets. */
static void the_order_does_not_depend_on_the_batch(void **state) {
    static const char *const names[] = {"lenet", "alexnet", "resnet20", "mobilenet_v2", "lenet"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        kolo_pipeline_opts opts = ahead;
        opts.near = i == KOLO_COUNT(names) - 1;
        kolo_graph *g = plan(names[i], 3, &opts), *other = plan(names[i], 2, &opts);
        int32_t n = 0, last = -1;
        for (int32_t v = 0; v < g->n_values; v++) {
            const kolo_value_info *info = &g->values[v];
            if (info->kind != KOLO_VALUE_PARAM || !kolo_value_ok(info->grad)) continue;
            if (posts(g, info->name) != posts(other, info->name)) fail_msg("%s", info->name);
            if (makes(g, info->name) > last) last = makes(g, info->name);
            n++;
        }
        kolo_value first = {.id = 0};
        while (g->values[first.id].kind != KOLO_VALUE_PARAM) first.id++;
        if (makes(g, g->values[first.id].name) == last) fail_msg("%s: nothing moves", names[i]);
        assert_true(n > 4);
        kolo_graph_destroy(g);
        kolo_graph_destroy(other);
    }
}

/* The product of two parameters is the weight of the second layer: its operations, and those of its
 * gradients, are the same for any batch. */
static kolo_graph *product_of_parameters(int64_t batch) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_init init = kolo_init_fan_in(16);
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(batch, 16));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(batch));
    const kolo_value a = kolo_param(g, "a", kolo_shape_2(32, 64), init);
    const kolo_value b = kolo_param(g, "b", kolo_shape_2(16, 64), init);
    kolo_value h = kolo_linear(g, x, kolo_param(g, "first", kolo_shape_2(16, 16), init));
    h = kolo_relu(g, kolo_linear(g, kolo_relu(g, h), kolo_linear(g, a, b)));
    h = kolo_linear(g, h, kolo_param(g, "last", kolo_shape_2(10, 32), init));
    kolo_output(g, "loss", kolo_softmax_xent(g, h, y));
    ASSERT_OK(kolo_pipeline_run(g, &ahead));
    return g;
}

static void operations_without_samples_do_not_count(void **state) {
    kolo_graph *few = product_of_parameters(2), *many = product_of_parameters(512);
    static const char *const names[] = {"first", "a", "b", "last"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        if (posts(few, names[i]) != posts(many, names[i])) fail_msg("%s", names[i]);
    }
    assert_true(makes(few, "first") < makes(few, "last"));
    kolo_graph_destroy(few);
    kolo_graph_destroy(many);
}

TEST_MAIN(test_late_weights) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_layer_comes_behind_the_first),
        cmocka_unit_test(near_ranks_compute_the_last_layers_last),
        cmocka_unit_test(other_plans_stay_as_they_are),
        cmocka_unit_test(the_order_does_not_depend_on_the_batch),
        cmocka_unit_test(operations_without_samples_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
