/* The layouts of a whole model: a stage takes them for its values, and is refused where it computes
 * what the whole model does not. */
#include "base/compiler.h"
#include "kernel/select/cache.h"
#include "pass/pass.h"
#include "support/support.h"

#include <string.h>

/* `n` convolutions, one behind the other. */
static kolo_graph *chain(int64_t channels, int n) {
    static const char *const names[] = {"w0", "w1", "w2"};
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(2, channels, 12, 12));
    for (int i = 0; i < n; i++) {
        const kolo_shape shape = kolo_shape_4(channels, channels, 3, 3);
        const kolo_value w = kolo_param(g, names[i], shape, kolo_init_fan_in(channels * 9));
        x = kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1});
    }
    kolo_output(g, "y", x);
    ASSERT_OK(kolo_graph_check(g));
    g->n_whole = g->n_values;
    return g;
}

static kolo_status choose(kolo_graph *g, kolo_selections *selections,
                          const kolo_whole_layouts *whole) {
    return kolo_pass_layout(g, &(kolo_layout_opts){.kernels = KOLO_KERNELS_BEST,
                                                   .selections = selections,
                                                   .threads = 1,
                                                   .whole = whole});
}

/* The first convolutions of a model of three. */
static void a_stage_has_the_layouts_of_the_whole(void **state) {
    kolo_selections selections = {0};
    kolo_whole_layouts whole = {0};
    kolo_graph *g = chain(32, 3);
    ASSERT_OK(choose(g, &selections, NULL));
    ASSERT_OK(kolo_whole_layouts_take(g, &whole));
    kolo_graph *stage = chain(32, 2);
    const int32_t inner = 2; /* what the first convolution computes */
    ASSERT_OK(choose(stage, &selections, &whole));
    assert_true(
        kolo_layout_equal(&stage->values[inner].tensor.layout, &g->values[inner].tensor.layout));
    kolo_graph_destroy(stage);
    kolo_graph_destroy(g);
    kolo_whole_layouts_fini(&whole);
    kolo_selections_fini(&selections);
}

static void what_the_whole_does_not_compute_is_refused(void **state) {
    kolo_selections selections = {0};
    kolo_whole_layouts whole = {0};
    kolo_graph *g = chain(32, 3), *other = chain(16, 2);
    ASSERT_OK(choose(g, &selections, NULL));
    ASSERT_OK(kolo_whole_layouts_take(g, &whole));
    other->stage = 1;
    other->n_whole = 0; /* it has other values */
    assert_int_equal(choose(other, &selections, &whole), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "stage 1 of the pipeline computes a conv2d in a"));
    kolo_graph_destroy(other);
    kolo_graph_destroy(g);
    kolo_whole_layouts_fini(&whole);
    kolo_selections_fini(&selections);
}

TEST_MAIN(test_whole) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_has_the_layouts_of_the_whole),
        cmocka_unit_test(what_the_whole_does_not_compute_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
