/* The zoo: what each model is made of, which samples and options it takes, what it says of others.
 */
#include "graph/graph.h"
#include "kolo/models.h"
#include "support/support.h"

#include <string.h>

static kolo_status build(const char *name, const kolo_model_opts *opts, kolo_graph **graph) {
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(name, &model));
    KOLO_TRY(kolo_graph_create(NULL, graph));
    kolo_status status = model->build(*graph, opts);
    if (status == KOLO_OK) status = kolo_graph_check(*graph);
    if (status == KOLO_OK) return KOLO_OK;
    kolo_graph_destroy(*graph);
    return status;
}

static int64_t count_parameters(const kolo_graph *g) {
    int64_t total = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind == KOLO_VALUE_PARAM) total += kolo_shape_count(&g->values[v].canon);
    }
    return total;
}

typedef struct size_case {
    const char *model, *options;
    kolo_shape sample;
    int64_t classes, parameters;
} size_case;

static const size_case sizes[] = {
    {"lenet", NULL, {3, {1, 28, 28}}, 10, 61706},
    {"lenet", "", {3, {3, 32, 32}}, 10, 83126},
    {"lenet", NULL, {3, {1, 12, 13}}, 2, 156 + 2416 + (16 * 120 + 120) + 10164 + 170},
    {"mlp", NULL, {3, {1, 28, 28}}, 10, 100480 + 16512 + 1290},
    {"mlp", "hidden=32", {3, {1, 28, 28}}, 10, 25120 + 1056 + 330},
    {"mlp", "layers=1,hidden=8", {1, {5}}, 3, 48 + 27},
    {"mlp", "layers=0", {1, {5}}, 3, 18},
};

static void models_have_their_sizes(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(sizes); i++) {
        const size_case *c = &sizes[i];
        kolo_model_opts opts = {4, c->sample, c->classes, c->options};
        kolo_graph *g;
        ASSERT_OK(build(c->model, &opts, &g));
        ASSERT_OK(kolo_graph_verify(g));
        if (count_parameters(g) != c->parameters) {
            fail_msg("%s %s: %ld parameters, not %ld", c->model, c->options ? c->options : "",
                     (long)count_parameters(g), (long)c->parameters);
        }
        kolo_value logits = kolo_graph_output(g, "logits");
        kolo_shape expected = kolo_shape_2(4, c->classes);
        assert_true(kolo_shape_equal(&kolo_info(g, logits)->tensor.shape, &expected));
        assert_int_equal(kolo_info(g, kolo_graph_output(g, "loss"))->tensor.shape.rank, 0);
        assert_int_equal(kolo_info(g, kolo_graph_output(g, "correct"))->tensor.shape.rank, 0);
        assert_int_equal(kolo_info(g, kolo_graph_find(g, "y"))->tensor.dtype, KOLO_DTYPE_I32);
        kolo_graph_destroy(g);
    }
}

static void lenet_is_named_and_drawn_as_in_pytorch(void **state) {
    static const struct {
        const char *name;
        kolo_shape shape;
        int64_t fan_in;
    } expected[] = {
        {"conv1.weight", {4, {6, 1, 5, 5}}, 25},   {"conv1.bias", {1, {6}}, 25},
        {"conv2.weight", {4, {16, 6, 5, 5}}, 150}, {"conv2.bias", {1, {16}}, 150},
        {"fc1.weight", {2, {120, 400}}, 400},      {"fc1.bias", {1, {120}}, 400},
        {"fc2.weight", {2, {84, 120}}, 120},       {"fc2.bias", {1, {84}}, 120},
        {"fc3.weight", {2, {10, 84}}, 84},         {"fc3.bias", {1, {10}}, 84},
    };
    kolo_model_opts opts = {8, {3, {1, 28, 28}}, 10, NULL};
    kolo_graph *g;
    ASSERT_OK(build("lenet", &opts, &g));
    for (size_t i = 0; i < KOLO_COUNT(expected); i++) {
        kolo_value v = kolo_graph_find(g, expected[i].name);
        assert_true(kolo_value_ok(v));
        const kolo_value_info *info = kolo_info(g, v);
        kolo_init init = kolo_init_fan_in(expected[i].fan_in);
        assert_int_equal(info->kind, KOLO_VALUE_PARAM);
        assert_true(kolo_shape_equal(&info->canon, &expected[i].shape));
        assert_int_equal(info->init.kind, init.kind);
        assert_true(info->init.scale == init.scale);
    }
    kolo_graph_destroy(g);
}

typedef struct refusal {
    const char *model, *options;
    kolo_shape sample;
    const char *text;
} refusal;

#define IMAGE            \
    {                    \
        3, { 1, 28, 28 } \
    }

static const refusal refusals[] = {
    {"lenett", NULL, IMAGE, "unknown model \"lenett\": did you mean \"lenet\"?"},
    {"transformer", NULL, IMAGE, "unknown model \"transformer\": known are lenet, mlp"},
    {"", NULL, IMAGE, "unknown model \"\": known are lenet, mlp"},
    {"lenet", "hidden=3", IMAGE, "model lenet has no options: drop \"hidden\""},
    {"lenet", NULL, {1, {784}}, "at least 12x12, not samples of shape [784]"},
    {"lenet", NULL, {3, {1, 28, 11}}, "at least 12x12, not samples of shape [1,28,11]"},
    {"mlp", "hiden=3", IMAGE, "model mlp has no option \"hiden\": did you mean \"hidden\"?"},
    {"mlp", "hidden", IMAGE, "\"hidden\": give hidden a whole number from 1 to 1048576"},
    {"mlp", "hidden=", IMAGE, "\"hidden=\": give hidden a whole number"},
    {"mlp", "hidden=0", IMAGE, "\"hidden=0\": give hidden a whole number"},
    {"mlp", "hidden=1e3", IMAGE, "\"hidden=1e3\": give hidden a whole number"},
    {"mlp", "hidden=99999999999999999999", IMAGE, "give hidden a whole number"},
    {"mlp", "layers=65", IMAGE, "give layers a whole number from 0 to 64, as in layers=2"},
    {"mlp", "hidden=3,hidden=4", IMAGE, "option hidden is given twice"},
    {"mlp", ",", IMAGE, "has no option \"\""},
    {"mlp", "a-name-that-is-much-longer-than-any-option=1", IMAGE, "has no option \"a-name-that"},
    {"mlp", NULL, {6, {1, 1, 1, 1, 1, 1}}, "samples have 6 dimensions: at most 5 fit"},
};

static void what_does_not_suit_is_refused_in_words(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        kolo_model_opts opts = {2, r->sample, 10, r->options};
        kolo_graph *g;
        assert_int_equal(build(r->model, &opts, &g), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), r->text)) {
            fail_msg("\"%s\" does not say \"%s\"", kolo_last_error(), r->text);
        }
    }
}

static void the_zoo_is_complete(void **state) {
    int n = 0;
    for (const kolo_model *const *m = kolo_models(); *m; m++, n++) {
        const kolo_model *found;
        ASSERT_OK(kolo_model_find((*m)->name, &found));
        assert_ptr_equal(found, *m);
        assert_true((*m)->summary[0] != '\0' && (*m)->options_help != NULL);
    }
    assert_int_equal(n, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_sizes),
        cmocka_unit_test(lenet_is_named_and_drawn_as_in_pytorch),
        cmocka_unit_test(what_does_not_suit_is_refused_in_words),
        cmocka_unit_test(the_zoo_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
