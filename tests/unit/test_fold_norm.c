/* Batch normalisation folded into convolutions for evaluation: what is folded and what is not, and
 * that the numbers stay, in f64 far below what f32 rounds. */
#include "pass/pass.h"
#include "support/graph_eval.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static kolo_value conv(kolo_graph *g, const char *name, kolo_value x, int64_t out, int64_t groups) {
    int64_t in = kolo_info(g, x)->tensor.shape.dim[1] / groups;
    kolo_value w = kolo_param(g, name, kolo_shape_4(out, in, 3, 3), kolo_init_fan_in(in * 9));
    return kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1, .groups = groups});
}

static kolo_value biased(kolo_graph *g, kolo_value x, int64_t channels) {
    kolo_value b = kolo_param(g, "bias", kolo_shape_1(channels), kolo_init_fan_in(1));
    return kolo_bias(g, x, b);
}

/* The normalisations by name: n0 with ReLU, n1 of groups, n2 into a sum with what it is made from;
 * of a convolution with a bias (n3), that others read too (n4), behind no convolution (n5): these
 * stay. */
static void build(kolo_graph *g, int64_t batch) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_4(batch, 4, 6, 6));
    kolo_value a = kolo_relu(g, kolo_batch_norm(g, conv(g, "c0", x, 8, 1), "n0", NULL));
    kolo_value b = kolo_batch_norm(g, conv(g, "c1", a, 8, 4), "n1", NULL);
    kolo_batch_norm_opts eps = {.eps = 0.1};
    kolo_value c =
        kolo_relu(g, kolo_add(g, kolo_batch_norm(g, conv(g, "c2", b, 8, 1), "n2", &eps), a));
    kolo_value d = kolo_batch_norm(g, biased(g, conv(g, "c3", c, 8, 1), 8), "n3", NULL);
    kolo_value e = conv(g, "c4", d, 8, 1);
    kolo_value f = kolo_add(g, kolo_batch_norm(g, e, "n4", NULL), e);
    kolo_output(g, "z", kolo_batch_norm(g, f, "n5", NULL));
    ASSERT_OK(kolo_graph_check(g));
}

static kolo_graph *make(int64_t batch, bool folded) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){.dtype = KOLO_DTYPE_F64}, &g));
    build(g, batch);
    ASSERT_OK(kolo_pass_inference(g));
    if (folded) {
        ASSERT_OK(kolo_pass_fold_norm(g));
        ASSERT_OK(kolo_graph_verify(g));
    }
    ASSERT_OK(kolo_pass_fold(g, false));
    ASSERT_OK(kolo_graph_verify(g));
    return g;
}

static int count(const kolo_graph *g, const kolo_op *op) {
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) n += g->nodes[i]->op == op;
    return n;
}

/* Every leaf by its name, the variances positive. */
static void fill(graph_eval *e) {
    for (int32_t v = 0; v < e->g->n_values; v++) {
        const char *name = e->g->values[v].name;
        if (!name || e->g->values[v].producer >= 0) continue;
        kolo_value value = {v};
        uint64_t seed = 0;
        for (const char *c = name; *c; c++) seed = 31 * seed + (uint64_t)*c;
        graph_eval_fill(e, value, seed, 1);
        double *data = graph_eval_f64(e, value);
        bool variance = strstr(name, "running_var") != NULL;
        for (int64_t i = 0; variance && i < graph_eval_count(e, value); i++) {
            data[i] = 0.01 + fabs(data[i]);
        }
    }
}

static void numbers_stay(void **state) {
    kolo_graph *graphs[2] = {make(10, false), make(10, true)};
    graph_eval evals[2];
    kolo_value z[2];
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(graph_eval_init(&evals[i], graphs[i], KOLO_KERNELS_REF));
        fill(&evals[i]);
        graph_eval_run(&evals[i], graphs[i]->n_nodes);
        z[i] = kolo_graph_output(graphs[i], "z");
    }
    size_t n = (size_t)graph_eval_count(&evals[0], z[0]);
    assert_int_equal(n, 10 * 8 * 36);
    double distance =
        test_relative_l2_f64(graph_eval_f64(&evals[1], z[1]), graph_eval_f64(&evals[0], z[0]), n);
    if (!(distance < 1e-13)) fail_msg("relative distance %g", distance);
    for (int i = 0; i < 2; i++) {
        graph_eval_fini(&evals[i]);
        kolo_graph_destroy(graphs[i]);
    }
}

static void what_can_be_folded_is(void **state) {
    kolo_graph *plain = make(10, false), *folded = make(10, true);
    assert_int_equal(count(plain, &kolo_op_batch_norm_infer), 6);
    assert_int_equal(count(plain, &kolo_op_norm_weights), 0);
    assert_int_equal(count(folded, &kolo_op_batch_norm_infer), 3);
    assert_int_equal(count(folded, &kolo_op_norm_weights), 3);
    assert_int_equal(count(folded, &kolo_op_relu), 0); /* in the convolution, and in the sum */
    kolo_graph_destroy(plain);
    kolo_graph_destroy(folded);
    /* One image has 288 elements behind each convolution; c0 has as many weights, c1 144, c2 576.
     */
    folded = make(1, true);
    assert_int_equal(count(folded, &kolo_op_norm_weights), 1);
    kolo_graph_destroy(folded);
}

static void lack_of_memory_is_told(void **state) {
    for (long n = 1;; n++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){.dtype = KOLO_DTYPE_F64}, &g));
        build(g, 10);
        ASSERT_OK(kolo_pass_inference(g));
        kolo_alloc_fail_nth(n);
        kolo_status status = kolo_pass_fold_norm(g);
        kolo_alloc_fail_nth(0);
        kolo_graph_destroy(g);
        if (status == KOLO_OK) break;
        assert_int_equal(status, KOLO_ERR_NOMEM);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_stay),
        cmocka_unit_test(what_can_be_folded_is),
        cmocka_unit_test(lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
