/* The builder refuses what no graph can hold: names that files cannot store, values of other
 * graphs, missing options. An error names the layer. */
#include "base/text.h"
#include "graph/graph.h"
#include "kolo/train.h"
#include "support/support.h"

#include <string.h>

static const kolo_init zero = {KOLO_INIT_ZERO, 0};

static kolo_value matrix(kolo_graph *g, const char *name) {
    return kolo_input(g, name, KOLO_DTYPE_F32, kolo_shape_2(4, 6));
}

static void refuses(kolo_graph *g, const char *text) {
    assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
    if (!strstr(kolo_last_error(), text)) fail_msg("not \"%s\": %s", text, kolo_last_error());
    kolo_graph_destroy(g);
}

static kolo_graph *create(void) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    return g;
}

/* ---- names ---- */

typedef enum where { PARAM = 1, INPUT = 2, NORM = 4, OUTPUT = 8, ALL = 15 } where;

static void add_named(kolo_graph *g, const char *name, where as) {
    switch (as) {
    case PARAM:
        (void)kolo_param(g, name, kolo_shape_1(3), zero);
        break;
    case INPUT:
        (void)matrix(g, name);
        break;
    case NORM:
        (void)kolo_layer_norm(g, matrix(g, "a"), name, 0);
        break;
    default:
        kolo_output(g, name, matrix(g, "a"));
    }
}

static void names_that_files_cannot_store_are_refused(void **state) {
    static char long_name[301];
    memset(long_name, 'a', 300);
    static const struct {
        const char *name, *text;
        int as;
    } cases[] = {
        {long_name, "characters; at most 200 fit", ALL},
        {"optimizer.x", "\"optimizer.\" are reserved", PARAM | INPUT | NORM},
        {"__metadata__", "\"__\" are reserved", ALL},
        {"a\nb", "control character", ALL},
        {"a\xff", "not UTF-8", ALL},
        {"a\xe2\x82", "not UTF-8", ALL},
        {"a\xc0\xaf", "not UTF-8", ALL},     /* an overlong form */
        {"a\xed\xa0\x80", "not UTF-8", ALL}, /* a surrogate */
        {"", "no name", PARAM | INPUT | OUTPUT},
        {NULL, "no name", ALL},
        {"lr", "a scalar of training", PARAM | INPUT},
        {"grad_scale", "a scalar of training", PARAM | INPUT},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int as = PARAM; as <= OUTPUT; as *= 2) {
            if (!(cases[i].as & as)) continue;
            kolo_graph *g = create();
            add_named(g, cases[i].name, (where)as);
            refuses(g, cases[i].text);
        }
    }
}

static void other_names_are_accepted(void **state) {
    static char long_name[201];
    memset(long_name, 'a', 200);
    static const char *const names[] = {long_name, "optimizer", "größe", "a \"b\" c", "_x"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        kolo_graph *g = create();
        add_named(g, names[i], PARAM);
        kolo_output(g, names[i], matrix(g, "a"));
        ASSERT_OK(kolo_graph_check(g));
        kolo_graph_destroy(g);
    }
}

/* ---- values ---- */

static void values_of_another_graph_are_refused(void **state) {
    kolo_graph *other = create();
    kolo_value foreign = matrix(other, "x");
    for (int i = 0; i < 7; i++) {
        kolo_graph *g = create();
        kolo_value own = matrix(g, "a");
        switch (i) {
        case 0:
            (void)kolo_relu(g, foreign);
            break;
        case 1:
            (void)kolo_add(g, own, foreign);
            break;
        case 2:
            kolo_output(g, "y", foreign);
            break;
        case 3:
            (void)kolo_batch_norm(g, foreign, "bn", NULL);
            break;
        case 4:
            (void)kolo_layer_norm(g, foreign, "ln", 0);
            break;
        case 5:
            (void)kolo_global_avg_pool2d(g, foreign);
            break;
        default:
            (void)kolo_concat(g, (kolo_value[]){own, foreign}, 2);
        }
        refuses(g, "of another graph");
    }
    kolo_graph_destroy(other);
}

static void invalid_leaves_are_refused(void **state) {
    kolo_graph *g = create();
    (void)kolo_input(g, "x", (kolo_dtype)99, kolo_shape_1(2));
    refuses(g, "x: no such dtype: 99");
    g = create();
    (void)kolo_param(g, "w", kolo_shape_1(2), (kolo_init){(kolo_init_kind)9, 1});
    refuses(g, "w: no such initial distribution: 9");
    g = create();
    (void)kolo_param(g, "w", kolo_shape_1(2), (kolo_init){KOLO_INIT_NORMAL, -1.0 / 0.0});
    refuses(g, "w: initial values with a scale of -inf");
    g = create();
    (void)kolo_reshape(g, matrix(g, "x"), (kolo_shape){99, {4}});
    refuses(g, "99 dimensions");
    kolo_graph *none;
    kolo_graph_opts opts = {(kolo_dtype)99};
    assert_int_equal(kolo_graph_create(&opts, &none), KOLO_ERR_ARG);
}

/* ---- NULL ---- */

static void missing_options_are_refused(void **state) {
    kolo_value out[4];
    kolo_graph *g = create();
    (void)kolo_attention(g, kolo_input(g, "x", KOLO_DTYPE_F32, (kolo_shape){3, {2, 3, 6}}), NULL);
    refuses(g, "of 0 heads");
    g = create();
    kolo_value ids = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(2, 3));
    kolo_mask_tokens(g, ids, ids, NULL, out);
    refuses(g, "mask_tokens: ");
    for (int i = 0; i < 4; i++) assert_true(out[i].id < 0);
    g = create();
    (void)kolo_concat(g, NULL, 2);
    refuses(g, "concat: ");
    g = create();
    (void)kolo_lstm(g, kolo_input(g, "x", KOLO_DTYPE_F32, (kolo_shape){3, {2, 3, 6}}), NULL, 0, 4);
    refuses(g, "no name");
    assert_int_equal(kolo_graph_create(NULL, NULL), KOLO_ERR_ARG);
    assert_int_equal(kolo_graph_check(NULL), KOLO_ERR_ARG);
    assert_int_equal(kolo_graph_parameters(NULL), 0);
    const kolo_model *model;
    assert_int_equal(kolo_model_find(NULL, &model), KOLO_ERR_ARG);
    kolo_train_result result;
    assert_int_equal(kolo_train_check(NULL, 1), KOLO_ERR_ARG);
    assert_int_equal(kolo_train(NULL, NULL, NULL, NULL, &result), KOLO_ERR_ARG);
    assert_int_equal(kolo_evaluate(NULL, NULL, &result), KOLO_ERR_ARG);
    assert_int_equal(kolo_evaluate(NULL, &(kolo_eval_opts){0}, &result), KOLO_ERR_ARG);
}

/* ---- texts ---- */

static void errors_name_the_layer(void **state) {
    kolo_graph *g = create();
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(2, 4, 9, 9));
    kolo_value w1 = kolo_param(g, "conv1.weight", kolo_shape_4(6, 4, 3, 3), zero);
    kolo_value w2 = kolo_param(g, "conv2.weight", kolo_shape_4(6, 5, 3, 3), zero);
    kolo_value y = kolo_relu(g, kolo_conv2d(g, x, w1, NULL));
    (void)kolo_conv2d(g, y, w2, NULL);
    refuses(g, "f32 [2,6,7,7], f32 [6,5,3,3]): relu after conv1.weight, conv2.weight");
    g = create();
    (void)kolo_add(g, matrix(g, "x"), kolo_flatten(g, kolo_relu(g, kolo_scalar(g, "s"))));
    refuses(g, "flatten: ");
    g = create();
    x = matrix(g, "x");
    (void)kolo_add(g, kolo_reshape(g, x, kolo_shape_1(24)), x);
    refuses(g, "reshape after x, x");
}

TEST_MAIN(test_graph) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_files_cannot_store_are_refused),
        cmocka_unit_test(other_names_are_accepted),
        cmocka_unit_test(values_of_another_graph_are_refused),
        cmocka_unit_test(invalid_leaves_are_refused),
        cmocka_unit_test(missing_options_are_refused),
        cmocka_unit_test(errors_name_the_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
