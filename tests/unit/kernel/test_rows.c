/* Row-sparse gradients of embedding tables: scattered, against the dense gradient; updates in
 * place. */
#include "base/rng.h"
#include "kernel/kernel.h"
#include "kernel/select/select.h"
#include "support/graph_eval.h"
#include "support/support.h"

#include <string.h>

/* ---- ops ---- */

enum { TABLE = 50, N = 4, T = 9, WIDE = 7 };

static kolo_graph *new_graph(void) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    return g;
}

/* The dense gradient of which {rows, ids} is the sparse form. */
static void scatter(const float *rows, const int32_t *ids, int64_t room, float *dense) {
    memset(dense, 0, sizeof(float) * TABLE * WIDE);
    for (int64_t k = 0; k < room; k++) {
        if (k > 0 && ids[k] >= 0) assert_true(ids[k] > ids[k - 1]);
        for (int c = 0; c < WIDE; c++) {
            float number = rows[k * WIDE + c];
            if (ids[k] >= 0) dense[ids[k] * WIDE + c] = number;
            if (ids[k] < 0) assert_true(number == 0);
        }
    }
}

static void scattered_rows_are_the_dense_gradient(void **state) {
    for (int set = KOLO_KERNELS_BEST; set <= KOLO_KERNELS_REF; set++) {
        kolo_graph *g = new_graph();
        kolo_value dy = kolo_input(g, "dy", KOLO_DTYPE_F32, (kolo_shape){3, {N, T, WIDE}});
        kolo_value ids = kolo_input(g, "ids", KOLO_DTYPE_I32, kolo_shape_2(N, T));
        kolo_value rows[KOLO_MAX_IO], in[] = {dy, ids};
        const kolo_attr dense_attr[KOLO_MAX_ATTRS] = {{TABLE}};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{TABLE}, {N * T}};
        kolo_value dense = kolo_graph_add1(g, &kolo_op_embedding_bwd, in, 2, dense_attr);
        kolo_graph_add(g, &kolo_op_embedding_bwd_rows, in, 2, attr, rows);
        ASSERT_OK(kolo_graph_check(g));
        graph_eval e;
        ASSERT_OK(graph_eval_init(&e, g, (kolo_kernel_set)set));
        graph_eval_fill(&e, dy, 1, 1);
        graph_eval_fill_labels(&e, ids, 2, TABLE + 5); /* some are outside */
        graph_eval_run(&e, g->n_nodes);
        float scattered[TABLE * WIDE];
        scatter(graph_eval_f32(&e, rows[0]), graph_eval_i32(&e, rows[1]), N * T, scattered);
        const float *expected = graph_eval_f32(&e, dense);
        assert_true(test_relative_l2_f32(scattered, expected, TABLE * WIDE) < 1e-6);
        graph_eval_fini(&e);
        kolo_graph_destroy(g);
    }
}

/* The rows of micro-batches, of which some have none, are those of a table that all add to; the
 * first one of the next step begins anew. */
static void rows_of_micro_batches_add_up(void **state) {
    enum { ROOM = 7, MOST = 4, CHANNELS = 2, IDS = 9 };
    static const struct {
        float fresh;
        int32_t ids[MOST];
    } micro[] = {{1, {1, 4, -1, -1}}, {0, {-1, -1, -1, -1}}, {0, {0, 4, 7, 8}},
                 {0, {3, 4, -1, -1}}, {0, {0, 1, 3, 5}},     {1, {2, 8, -1, -1}}};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{IDS}, {ROOM}};
    kolo_kernel_spec spec = {
        .op = &kolo_op_accumulate_rows, .attr = attr, .threads = 1, .n_in = 3, .n_out = 2};
    spec.in[0] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_2(MOST, CHANNELS));
    spec.in[1] = kolo_tensor_plain(KOLO_DTYPE_I32, kolo_shape_1(MOST));
    spec.in[2] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_0());
    spec.out[0] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_2(ROOM, CHANNELS));
    spec.out[1] = kolo_tensor_plain(KOLO_DTYPE_I32, kolo_shape_1(ROOM));
    const kolo_kernel *kernel;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    float sums[ROOM * CHANNELS], table[IDS * CHANNELS] = {0}, number = 1;
    int32_t found[ROOM];
    memset(sums, 0x55, sizeof sums);
    memset(found, 0x55, sizeof found);
    for (size_t i = 0; i < KOLO_COUNT(micro); i++) {
        float rows[MOST * CHANNELS] = {0}, fresh = micro[i].fresh;
        int32_t ids[MOST];
        memcpy(ids, micro[i].ids, sizeof ids);
        if (fresh != 0) memset(table, 0, sizeof table);
        for (int k = 0; k < MOST && ids[k] >= 0; k++) {
            for (int c = 0; c < CHANNELS; c++, number++) {
                rows[k * CHANNELS + c] = number;
                table[ids[k] * CHANNELS + c] += number;
            }
        }
        const kolo_call call = {.spec = &spec, .in = {rows, ids, &fresh}, .out = {sums, found}};
        kernel->run(&call);
        float scattered[IDS * CHANNELS] = {0};
        for (int k = 0; k < ROOM; k++) {
            if (k > 0 && found[k] >= 0) assert_true(found[k] > found[k - 1]);
            for (int c = 0; c < CHANNELS; c++) {
                if (found[k] < 0) assert_true(sums[k * CHANNELS + c] == 0);
                if (found[k] >= 0) scattered[found[k] * CHANNELS + c] = sums[k * CHANNELS + c];
            }
        }
        assert_memory_equal(scattered, table, sizeof table);
    }
}

/* Updates upon their own inputs give what those beside them give. */
static void updates_may_lie_upon_what_they_update(void **state) {
    static const int32_t ids[] = {1, 4, -1};
    float w[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, m[10] = {0.5F, 1}, v[10] = {0.25F, 2};
    float rows[] = {1, -1, 2, -2, 0, 0}, lr = 0.5F, update = 3;
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-8}};
    const kolo_op *const ops[] = {&kolo_op_sgd_rows, &kolo_op_adam_rows};
    for (size_t i = 0; i < 4; i++) {
        kolo_kernel_spec spec = {.op = ops[i / 2], .attr = attr, .threads = 1};
        spec.n_in = i / 2 ? 7 : 4;
        spec.n_out = i / 2 ? 3 : 1;
        const kolo_shape table = kolo_shape_2(5, 2), one = kolo_shape_0();
        const kolo_shape shapes[] = {table, kolo_shape_2(3, 2), kolo_shape_1(3), one, one, table,
                                     table};
        for (int k = 0; k < 7; k++) {
            spec.in[k] = kolo_tensor_plain(k == 2 ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32, shapes[k]);
        }
        for (int k = 0; k < 3; k++) spec.out[k] = spec.in[0];
        const kolo_kernel *kernel;
        ASSERT_OK(
            kolo_kernel_select(i % 2 ? KOLO_KERNELS_REF : KOLO_KERNELS_BEST, &spec, &kernel, NULL));
        float beside[3][10], upon[3][10];
        char scratch[4096];
        kolo_call call = {.spec = &spec, .scratch = scratch};
        void *const in[] = {w, rows, (void *)ids, &lr, &update, m, v};
        memcpy(call.in, in, sizeof in);
        for (int k = 0; k < 3; k++) call.out[k] = beside[k];
        size_t bytes = 0;
        ASSERT_OK(kernel->prepare(&spec, &call.state, &bytes));
        assert_true(bytes <= sizeof scratch);
        kernel->run(&call);
        for (int k = 0; k < 3 && k < spec.n_out; k++) {
            int from = k == 0 ? 0 : 4 + k;
            memcpy(upon[k], in[from], sizeof upon[k]);
            call.in[from] = call.out[k] = upon[k];
        }
        kernel->run(&call);
        assert_memory_equal(upon, beside, sizeof beside[0] * (size_t)spec.n_out);
        assert_true(upon[0][0] == 1 && upon[0][2] != 3 && upon[0][9] != 10);
        kernel->release(call.state);
    }
}

TEST_MAIN(test_rows) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scattered_rows_are_the_dense_gradient),
        cmocka_unit_test(rows_of_micro_batches_add_up),
        cmocka_unit_test(updates_may_lie_upon_what_they_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
