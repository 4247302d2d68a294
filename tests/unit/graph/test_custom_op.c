/* Ops of a program: gradient and notation of one that is right, and the errors of others. */
#include "graph/graph.h"
#include "kolo/custom_binding.h"
#include "pass/pass.h"
#include "support/graph_eval.h"
#include "support/index_check.h"
#include "support/snake.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

static const kolo_init one = {KOLO_INIT_ONE, 0};

static void gradients_equal_differences(void **state) {
    kolo_graph *g;
    graph_eval e;
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    kolo_value in[] = {kolo_param(g, "x", kolo_shape_3(3, 4, 2), one),
                       kolo_param(g, "alpha", kolo_shape_1(4), one)};
    kolo_value y = snake_of(g, in[0], in[1], false), seed = kolo_scalar(g, "seed");
    kolo_value weights = kolo_input(g, "weights", KOLO_DTYPE_F64, kolo_shape_3(3, 4, 2));
    kolo_value loss = kolo_sum(g, kolo_mul(g, y, weights));
    ASSERT_OK(kolo_pass_gradient(g, loss, seed));
    ASSERT_OK(kolo_graph_verify(g));
    ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_BEST));
    graph_eval_fill(&e, in[0], 1, 2);
    graph_eval_fill(&e, in[1], 2, 0.7);
    graph_eval_fill(&e, weights, 3, 1);
    *graph_eval_f64(&e, seed) = 1;
    graph_eval_run(&e, g->n_nodes);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < graph_eval_count(&e, in[k]); i++) {
            const double h = 1e-6, at = graph_eval_f64(&e, in[k])[i];
            double gradient = graph_eval_f64(&e, kolo_info(g, in[k])->grad)[i], side[2];
            for (int s = 0; s < 2; s++) {
                graph_eval_f64(&e, in[k])[i] = at + (s ? h : -h);
                graph_eval_run(&e, g->n_nodes);
                side[s] = *graph_eval_f64(&e, loss);
            }
            graph_eval_f64(&e, in[k])[i] = at;
            graph_eval_run(&e, g->n_nodes);
            double difference = (side[1] - side[0]) / (2 * h);
            assert_true(fabs(gradient - difference) < 1e-7 * (1 + fabs(difference)));
        }
    }
    int checked = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op->custom) checked += test_index_of_node(&e, g->nodes[i]);
    }
    assert_int_equal(checked, 6); /* n, c and the dimension of *, of both */
    graph_eval_fini(&e);
    kolo_graph_destroy(g);
}

/* ---- descriptors that are refused ---- */

static kolo_status same(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    return KOLO_OK;
}
static void nothing(const kolo_custom_call *c) {}

static const kolo_custom_op right = {.version = KOLO_CUSTOM_OP_VERSION,
                                     .name = "right",
                                     .n_in = 1,
                                     .n_out = 1,
                                     .shape = same,
                                     .run = nothing};

static void refused(kolo_custom_op op, kolo_status status, const char *text) {
    assert_int_equal(kolo_custom_op_register(&op), status);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
}

static void descriptors_are_checked(void **state) {
    kolo_custom_op op = right;
    assert_int_equal(kolo_custom_op_register(NULL), KOLO_ERR_ARG);
    op.version = 7;
    refused(op, KOLO_ERR_UNSUPPORTED, "version 7 of kolo_custom_op, this Kolo 1");
    op = right;
    op.name = NULL;
    refused(op, KOLO_ERR_ARG, "op name \"\"");
    op.name = "Right";
    refused(op, KOLO_ERR_ARG, "op name \"Right\"");
    op.name = "relu";
    refused(op, KOLO_ERR_ARG, "there is an op relu");
    op = right;
    op.n_out = 9;
    refused(op, KOLO_ERR_ARG, "9 outputs");
    op = right;
    op.shape = NULL;
    refused(op, KOLO_ERR_ARG, "has no function shape");
    op = right;
    op.run = NULL;
    refused(op, KOLO_ERR_ARG, "has no function run");
    op = right;
    op.linear = 2;
    refused(op, KOLO_ERR_ARG, "linear in 0x2");
    op = right;
    op.index = "n i->n";
    refused(op, KOLO_ERR_ARG, "index notation \"n i->n\"");
    op.index = "1n->n"; /* no part of a dimension */
    refused(op, KOLO_ERR_ARG, "index notation");
    op = right;
    op.attrs = (const char *const[]){"%slope", NULL};
    refused(op, KOLO_ERR_ARG, "an attribute named \"%slope\"");
    op.attrs = (const char *const[]){"a", "a", "a", "a", "a", "a", "a",
                                     "a", "a", "a", "a", "a", "a", NULL};
    refused(op, KOLO_ERR_ARG, "13 attributes");
    ASSERT_OK(kolo_custom_op_register(&right));
    ASSERT_OK(kolo_custom_op_register(&right));
    refused(right, KOLO_ERR_ARG, "there is an op right"); /* another descriptor */
}

/* ---- nodes that are refused ---- */

static kolo_status unset(const kolo_custom_shapes *s) { return KOLO_OK; }
static kolo_status of_f16(const kolo_custom_shapes *s) {
    s->out[0] = (kolo_custom_tensor){KOLO_DTYPE_F16, s->in[0].shape};
    return KOLO_OK;
}
static kolo_status empty(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    s->out[0].shape.dim[1] = 0;
    return KOLO_OK;
}
static kolo_status refuse(const kolo_custom_shapes *s) { return KOLO_ERR_UNSUPPORTED; }
static kolo_status explain(const kolo_custom_shapes *s) {
    return kolo_error_set(KOLO_ERR_ARG, "x has no pairs");
}
static void whole_gradient(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                           const bool *wants, kolo_value *d_in) {
    d_in[0] = kolo_sum(g, d_out[0]);
}

#define OP(id, ...)                                                                             \
    {                                                                                           \
        .version = KOLO_CUSTOM_OP_VERSION, .name = (id), .n_in = 1, .n_out = 1, .run = nothing, \
        __VA_ARGS__                                                                             \
    }

static void nodes_are_checked(void **state) {
    static const struct {
        kolo_custom_op op;
        const char *text;
    } cases[] = {
        {OP("unset", .shape = unset), "unset: its shape rule sets no shape of output 0"},
        {OP("of_f16", .shape = of_f16), "output 0 the dtype 2; choose f32"},
        {OP("empty", .shape = empty), "empty: its shape rule sets no shape of output 0"},
        {OP("refuse", .shape = refuse), "refuse: its shape rule refuses the inputs: not supp"},
        {OP("explain", .shape = explain), "explain: x has no pairs: x"},
        {OP("misread", .shape = same, .index = "n->n"), "\"n->n\" does not fit its tensors"},
        {OP("stars", .shape = same, .index = "n*c*->n*c*"), "\"n*c*->n*c*\" does not fit"},
        {OP("wholes", .shape = same, .index = "#n#->#n#"), "\"#n#->#n#\" does not fit"},
        {OP("no_gradient", .shape = same), "no_gradient has no gradient rule"},
        {OP("whole_gradient", .shape = same, .grad = whole_gradient),
         "whole_gradient: its gradient rule gives f32 [] for input 0, which is f32 [2,3]"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        kolo_value y;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        ASSERT_OK(kolo_custom_op_register(&cases[i].op));
        kolo_value x = kolo_param(g, "x", kolo_shape_2(2, 3), one), seed = kolo_scalar(g, "seed");
        kolo_custom(g, cases[i].op.name, &x, 1, NULL, &y);
        assert_int_not_equal(kolo_pass_gradient(g, kolo_sum(g, y), seed), KOLO_OK);
        if (!strstr(kolo_last_error(), cases[i].text)) fail_msg("%s", kolo_last_error());
        kolo_graph_destroy(g);
    }
}

static void several_stars_are_refused_at_any_rank(void **state) {
    static const kolo_custom_op op = OP("two_stars", .shape = same, .index = "a*b*->a*b*");
    ASSERT_OK(kolo_custom_op_register(&op));
    for (int rank = 0; rank <= KOLO_MAX_RANK; rank++) {
        kolo_graph *g;
        kolo_value y;
        kolo_shape shape = {.rank = rank};
        for (int d = 0; d < rank; d++) shape.dim[d] = 2;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_param(g, "x", shape, one);
        kolo_custom(g, op.name, &x, 1, NULL, &y);
        assert_int_not_equal(kolo_graph_check(g), KOLO_OK);
        assert_non_null(strstr(kolo_last_error(), "does not fit its tensors"));
        kolo_graph_destroy(g);
    }
}

static void a_right_shape_rule_sets_no_error(void **state) {
    kolo_graph *g;
    kolo_value y;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_param(g, "x", kolo_shape_2(2, 3), one);
    ASSERT_OK(kolo_custom_op_register(&right));
    (void)kolo_error_set(KOLO_ERR_ARG, "an earlier error");
    kolo_custom(g, "right", &x, 1, NULL, &y);
    kolo_custom(g, "right", &x, 1, NULL, &x); /* the output may replace the input */
    ASSERT_OK(kolo_graph_check(g));
    assert_string_equal(kolo_last_error(), "an earlier error");
    kolo_graph_destroy(g);
}

static void calls_are_checked(void **state) {
    static const struct {
        const char *op;
        int n;
        bool null_in, null_out;
        const char *why;
    } cases[] = {
        {"wrong", 2, false, false, "no op \"wrong\""},
        {"wrong", 1, false, true, "no op \"wrong\""},
        {"right", 2, false, false, "right: 2 inputs instead of 1"},
        {"right", 1, true, false, "right: inputs are NULL, not an array of 1"},
        {"right", 1, false, true, "right: outputs are NULL, not an array of 1"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_param(g, "x", kolo_shape_2(2, 3), one), y;
        const kolo_value in[] = {x, x};
        ASSERT_OK(kolo_custom_op_register(&right));
        kolo_custom(g, cases[i].op, cases[i].null_in ? NULL : in, cases[i].n, NULL,
                    cases[i].null_out ? NULL : &y);
        assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), cases[i].why)) fail_msg("%s", kolo_last_error());
        kolo_graph_destroy(g);
    }
}

static void end_early(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                      const bool *wants, kolo_value *d_in) {}
static void end(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                const bool *wants, kolo_value *d_in) {
    kolo_custom_done();
}

/* A gradient rule of a binding that ends early has failed; ops may share a name; graphs do not have
 * the attribute that is the binding's. */
static void bindings_confirm(void **state) {
    static const char *const attrs[] = {"slope", NULL};
    static const char *const many[] = {"a", "a", "a", "a", "a", "a", "a",
                                       "a", "a", "a", "a", "a", NULL};
    static const kolo_custom_op ops[] = {
        OP("of_python", .shape = same, .grad = end_early),
        OP("of_python", .shape = same, .grad = end, .attrs = attrs)};
    kolo_custom_op op = ops[0];
    op.attrs = many;
    assert_int_equal(kolo_custom_bind(&op), KOLO_ERR_ARG);
    for (size_t i = 0; i < KOLO_COUNT(ops); i++) {
        kolo_graph *g;
        kolo_value y;
        kolo_text text = {0};
        const bool early = ops[i].grad == end_early;
        ASSERT_OK(kolo_custom_bind(&ops[i]));
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_param(g, "x", kolo_shape_2(2, 3), one), seed = kolo_scalar(g, "seed");
        kolo_custom_bound(g, &ops[i], &x, 1, (double[]){3.5, 7}, &y);
        ASSERT_OK(kolo_graph_check(g));
        kolo_graph_print(g, &text);
        assert_non_null(
            strstr(text.text, early ? "of_python(%0 x)\n" : "of_python(%0 x) slope=3.5\n"));
        kolo_text_fini(&text);
        const kolo_status status = kolo_pass_gradient(g, kolo_sum(g, y), seed);
        assert_int_equal(status, early ? KOLO_ERR_ARG : KOLO_OK);
        if (early) assert_non_null(strstr(kolo_last_error(), "of_python: its function was inter"));
        kolo_graph_destroy(g);
    }
    assert_int_equal(kolo_custom_op_register(&ops[0]), KOLO_OK);
    refused(ops[1], KOLO_ERR_ARG, "there is an op of_python");
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_param(g, "x", kolo_shape_2(2, 3), one);
    kolo_custom_bound(g, &right, &x, 1, NULL, &x);
    assert_int_equal(kolo_graph_check(g), KOLO_ERR_ARG);
    kolo_graph_destroy(g);
}

TEST_MAIN(test_custom_op) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(descriptors_are_checked),
        cmocka_unit_test(nodes_are_checked),
        cmocka_unit_test(several_stars_are_refused_at_any_rank),
        cmocka_unit_test(a_right_shape_rule_sets_no_error),
        cmocka_unit_test(calls_are_checked),
        cmocka_unit_test(bindings_confirm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
