/* Large graphs compile on a small stack: no pass recurses along the graph or visits every path of a
 * branching one. */
#include "plan/plan.h"
#include "support/support.h"

#include <pthread.h>

typedef struct job {
    kolo_recompute recompute;
    bool train;
    kolo_status status;
} job;

/* A chain of cheap nodes; the additions read their input twice, so it has 2^1000 paths. */
static void *compile_chain(void *arg) {
    job *j = arg;
    kolo_graph *g;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    j->status = kolo_graph_create(NULL, &g);
    if (j->status != KOLO_OK) return NULL;
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(2));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(8, 8), kolo_init_fan_in(8));
    kolo_value h = kolo_linear(g, kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(2, 8)), w);
    for (int i = 0; i < 8000; i++) {
        h = i % 8 == 0 ? kolo_add(g, h, h) : kolo_scale(g, h, 0.9);
        if (i % 2000 == 0) h = kolo_relu(g, h);
    }
    kolo_output(g, "loss", kolo_softmax_xent(g, h, y));
    j->status = kolo_store_create(NULL, &store);
    kolo_plan_opts opts = {.train = j->train, .recompute = j->recompute};
    if (j->status == KOLO_OK) j->status = kolo_plan_compile(g, &opts, store, NULL, &plan);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return NULL;
}

static void deep_graphs_compile_on_a_small_stack(void **state) {
    static const job jobs[] = {{KOLO_RECOMPUTE_NONE, false, KOLO_OK},
                               {KOLO_RECOMPUTE_NONE, true, KOLO_OK},
                               {KOLO_RECOMPUTE_CHEAP, true, KOLO_OK},
                               {KOLO_RECOMPUTE_FULL, true, KOLO_OK}};
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        job j = jobs[i];
        pthread_attr_t attr;
        pthread_t thread;
        assert_int_equal(pthread_attr_init(&attr), 0);
        assert_int_equal(pthread_attr_setstacksize(&attr, 1 << 20), 0);
        assert_int_equal(pthread_create(&thread, &attr, compile_chain, &j), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(pthread_attr_destroy(&attr), 0);
        assert_int_equal(j.status, KOLO_OK);
    }
}

TEST_MAIN(test_large) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_graphs_compile_on_a_small_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
