/* What tensor parallelism refuses: dimensions that consist of parts which are sharded each, where
 * an op would take the slices of a rank for one slice. */
#include "graph/ops/ops.h"
#include "pass/pass.h"
#include "support/support.h"

#include <string.h>

enum { N = 4, CHANNELS = 8 };

static kolo_value layer(kolo_graph *g, const char *name, kolo_value x) {
    kolo_value w =
        kolo_param(g, name, kolo_shape_2(CHANNELS, CHANNELS), (kolo_init){KOLO_INIT_UNIFORM, 0.1});
    return kolo_linear(g, x, w);
}

/* Channels in two parts, of which each rank has a slice: [...,2C]. */
static kolo_value two_parts(kolo_graph *g, kolo_value x) {
    const kolo_value parts[] = {layer(g, "a.weight", x), layer(g, "b.weight", x)};
    return kolo_concat_along(g, parts, 2, -1);
}

static kolo_value rows(kolo_graph *g) {
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(N, CHANNELS));
}

static kolo_value tokens(kolo_graph *g) {
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_3(N, 3, CHANNELS));
}

static kolo_value sum_over_parts(kolo_graph *g) {
    kolo_value x = kolo_reshape(g, two_parts(g, rows(g)), kolo_shape_3(N, 2, CHANNELS));
    return kolo_reduce_sum(g, x, (int[]){1}, 1, false);
}

static kolo_value loss_of_parts(kolo_graph *g) {
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(N));
    return kolo_softmax_xent(g, two_parts(g, rows(g)), y);
}

static kolo_value rotated_parts(kolo_graph *g) {
    return kolo_rotary(g, two_parts(g, tokens(g)), 2, 0, 0);
}

static kolo_value gates_as_one(kolo_graph *g) { return kolo_lstm(g, tokens(g), "a", 0, CHANNELS); }

static kolo_value uneven_merge(kolo_graph *g) {
    kolo_value w = kolo_param(g, "a.weight", kolo_shape_2(10, CHANNELS), kolo_init_fan_in(9));
    kolo_value x = kolo_reshape(g, kolo_linear(g, rows(g), w), kolo_shape_3(N, 5, 2));
    return kolo_reshape(g, x, kolo_shape_2(N, 10));
}

static void parts_are_not_taken_for_one_slice(void **state) {
    static const struct {
        kolo_value (*build)(kolo_graph *g);
        const char *why;
    } cases[] = {
        {sum_over_parts, "its slices do not divide the new dimensions"},
        {loss_of_parts, "it is sharded in parts"},
        {rotated_parts, "it is sharded in parts"},
        {gates_as_one, "each of its four gates has to be sharded"},
        {uneven_merge, "its slices do not divide the new dimensions"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_output(g, "loss", cases[i].build(g));
        ASSERT_OK(kolo_graph_check(g));
        g->mesh = (kolo_mesh){1, {{"tp", 2}}};
        assert_int_equal(kolo_pass_partition(g, "?.weight* 0\n", false), KOLO_ERR_UNSUPPORTED);
        if (!strstr(kolo_last_error(), cases[i].why)) fail_msg("%zu: %s", i, kolo_last_error());
        kolo_graph_destroy(g);
    }
}

TEST_MAIN(test_partition) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_not_taken_for_one_slice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
