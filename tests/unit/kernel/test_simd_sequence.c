/* Our kernels for sequences of every instruction set that this machine has, against the reference:
 * normalization of rows, embedding, experts, row-sparse gradients, recurrent layers; over shapes
 * with and without rests of vectors, tiles and blocks, and over threads. */
#include "base/bf16.h"
#include "base/integer.h"
#include "base/rng.h"
#include "graph/ops/lstm.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <math.h>

/* ---- normalization of rows ---- */

static void row_norm(int threads) {
    static const kolo_shape shapes[] = {
        {3, {2, 3, 64}}, {3, {1, 5, 19}}, {2, {7, 130}}, {2, {3, 3}}, {2, {1, 384}}, {2, {70, 21}},
    };
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = 1e-5};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < 2 * KOLO_COUNT(shapes); i++) {
        const kolo_shape x = shapes[i / 2], vector = kolo_shape_1(x.dim[x.rank - 1]);
        kolo_shape rows = x;
        rows.rank--;
        const struct {
            const kolo_op *op;
            const kolo_kernel *kernel;
            int n_in, n_out;
            kolo_shape in[5];
            double tolerance;
        } all[] = {
            {&kolo_op_layer_norm, &kolo_simd_layer_norm, 3, 3, {x, vector, vector}, 2e-6},
            {&kolo_op_layer_norm_bwd,
             &kolo_simd_layer_norm_bwd,
             5,
             3,
             {x, x, vector, rows, rows},
             5e-6},
            {&kolo_op_rms_norm, &kolo_simd_rms_norm, 2, 2, {x, vector}, 2e-6},
            {&kolo_op_rms_norm_bwd, &kolo_simd_rms_norm_bwd, 4, 2, {x, x, vector, rows}, 5e-6},
        };
        for (size_t k = 0; k < KOLO_COUNT(all); k++) {
            test_kernel_spec(&spec, all[k].op, attr, all[k].n_in, all[k].in, NULL, all[k].n_out,
                             NULL, threads);
            if (i % 2) test_kernel_in_bf16(&spec, -1);
            test_kernel_fitting(all[k].kernel, &spec, NULL, all[k].tolerance);
        }
    }
}

static void row_norm_is_the_reference(void **state) { test_each_set(row_norm); }

static void group_norm(int threads) {
    static const kolo_shape shapes[] = {
        {4, {2, 3, 4, 49}}, {4, {3, 1, 2, 200}}, {4, {1, 5, 1, 64}},
        {4, {2, 2, 3, 1}},  {4, {1, 1, 1, 2}},
    };
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = 1e-5};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < 4 * KOLO_COUNT(shapes); i++) {
        const kolo_shape x = shapes[i / 4], vector = kolo_shape_2(x.dim[1], x.dim[2]);
        const kolo_shape groups = kolo_shape_2(x.dim[0], x.dim[1]);
        const kolo_shape in[] = {x, vector, vector}, bwd[] = {x, x, groups, groups, vector};
        const bool scaled = i % 2;
        test_kernel_spec(&spec, &kolo_op_group_norm, attr, scaled ? 3 : 1, in, NULL, 3, NULL,
                         threads);
        if (i % 4 > 1) test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(&kolo_simd_group_norm, &spec, NULL, 2e-6);
        test_kernel_spec(&spec, &kolo_op_group_norm_bwd, attr, scaled ? 5 : 4, bwd, NULL,
                         scaled ? 3 : 1, NULL, threads);
        if (i % 4 > 1) test_kernel_in_bf16(&spec, -1);
        test_kernel_fitting(&kolo_simd_group_norm_bwd, &spec, NULL, 5e-6);
    }
}

static void group_norm_is_the_reference(void **state) { test_each_set(group_norm); }

/* ---- embedding ---- */

static void embedding(int threads) {
    static const int64_t channels[] = {1, 16, 70, 200};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(channels); i++) {
        int64_t c = channels[i], n = 3, t = 7, rows = 11;
        const bool ranges = i == 2; /* of positions */
        t -= ranges;
        kolo_shape y = {3, {n, t, c}};
        const kolo_shape in[] = {kolo_shape_2(rows, c), kolo_shape_2(n, t), kolo_shape_2(9, c)};
        const kolo_shape bwd[] = {y, kolo_shape_2(n, t)};
        const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_EMBEDDING_ROWS].i = rows,
                                                [KOLO_EMBEDDING_POSITION].i =
                                                    ranges ? 1 : (int64_t)i % 3,
                                                [KOLO_EMBEDDING_LENGTH].i = ranges ? 9 : 0};
        const void *ids[] = {NULL, test_integers(n * t, -1, rows + 1, i), NULL};
        for (int n_in = 2; n_in <= 3; n_in++) {
            test_kernel_spec(&spec, &kolo_op_embedding, attr, n_in, in, NULL, 1, NULL, threads);
            test_kernel_fitting(&kolo_simd_embedding, &spec, ids, 0);
        }
        const kolo_attr of_ids[KOLO_MAX_ATTRS] = {[KOLO_EMBEDDING_ROWS].i = rows};
        test_kernel_spec(&spec, &kolo_op_embedding_bwd, of_ids, 2, bwd, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_embedding_bwd, &spec, ids, 1e-6);
        test_kernel_spec(&spec, &kolo_op_position_bwd, attr, 1, bwd, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_position_bwd, &spec, NULL, 1e-6);
    }
}

static void embedding_is_the_reference(void **state) { test_each_set(embedding); }

/* ---- mixtures of experts ---- */

/* A place for some tokens: those of an expert differ, and are outside [0, room) too. */
static const int32_t *places_of(int64_t samples, int64_t tokens, int64_t experts) {
    static int32_t places[4096];
    for (int64_t i = 0; i < samples * tokens * experts; i++) {
        places[i] = (int32_t)((i / experts * 7 + i % experts) % tokens) - 1;
    }
    return places;
}

static void experts(int threads) {
    static const struct {
        int64_t n, t, e, top, room, width;
    } all[] = {
        {1, 1, 1, 1, 1, 1}, {3, 8, 5, 2, 4, 13}, {2, 10, 40, 40, 11, 33}, {5, 16, 4, 1, 3, 64}};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        const int64_t n = all[i].n, t = all[i].t, e = all[i].e, width = all[i].width;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {
            [KOLO_EXPERT_CAPACITY].i = all[i].room, [KOLO_EXPERT_TOP].i = all[i].top};
        const kolo_shape x = kolo_shape_3(n, t, width), y = {4, {e, n, all[i].room, width}};
        const kolo_shape p = kolo_shape_3(n, t, e), to[] = {x, p, p}, back[] = {y, p, p};
        const kolo_shape products[] = {x, y, p};
        const int32_t *places = places_of(n, t, e);
        const void *second[] = {NULL, places, NULL}, *third[] = {NULL, NULL, places};
        test_kernel_spec(&spec, &kolo_op_expert_route, attr, 1, &p, NULL, 2, NULL, threads);
        test_kernel_fitting(&kolo_simd_expert_route, &spec, NULL, 0);
        for (int k = 0; k < 4; k++) { /* with gates, in bf16 */
            const int n_in = 2 + k % 2;
            test_kernel_spec(&spec, &kolo_op_expert_dispatch, attr, n_in, to, NULL, 1, NULL,
                             threads);
            if (k > 1) test_kernel_in_bf16(&spec, -1);
            test_kernel_fitting(&kolo_simd_expert_dispatch, &spec, second, 1e-6);
            test_kernel_spec(&spec, &kolo_op_expert_combine, attr, n_in, back, NULL, 1, NULL,
                             threads);
            if (k > 1) test_kernel_in_bf16(&spec, -1);
            test_kernel_fitting(&kolo_simd_expert_combine, &spec, second, 1e-6);
            test_kernel_spec(&spec, &kolo_op_expert_products, attr, 3, products, NULL, 1, NULL,
                             threads);
            if (k > 1) test_kernel_in_bf16(&spec, -1);
            test_kernel_fitting(&kolo_simd_expert_products, &spec, third, 1e-6);
        }
    }
}

static void experts_are_the_reference(void **state) { test_each_set(experts); }

/* ---- row-sparse gradients ---- */

static void rows(int threads) {
    static const struct {
        int64_t table, n, t, c, room;
    } all[] = {
        {11, 3, 7, 16, 11},      {11, 3, 7, 5, 13}, {5000, 4, 32, 70, 128},
        {1 << 23, 2, 3, 33, 64}, {1, 1, 4, 8, 1},   {1 << 30, 20, 30, 3, 600},
        {300, 8, 500, 1, 300},
    };
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        int64_t table = all[i].table, n = all[i].n, t = all[i].t, c = all[i].c;
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{table}, {all[i].room}};
        const kolo_shape in[] = {{3, {n, t, c}}, kolo_shape_2(n, t)};
        const kolo_shape merged[] = {kolo_shape_2(n * t, c), kolo_shape_1(n * t)};
        const void *ids[] = {NULL, test_integers(n * t, -1, table + 1, i), NULL};
        test_kernel_spec(&spec, &kolo_op_embedding_bwd_rows, attr, 2, in, NULL, 2, NULL, threads);
        test_kernel_fitting(&kolo_simd_embedding_bwd_rows, &spec, ids, 1e-6);
        const int64_t half = (table + 1) / 2; /* of which this is the second */
        if (half < table && half * c < 1 << 20) {
            const kolo_attr of_slice[KOLO_MAX_ATTRS] = {
                {half}, {kolo_min_i64(all[i].room, half)}, {half}};
            const kolo_shape with[] = {in[0], in[1], kolo_shape_2(half, c)};
            test_kernel_spec(&spec, &kolo_op_embedding_bwd_rows, of_slice, 3, with, NULL, 2, NULL,
                             threads);
            test_kernel_fitting(&kolo_simd_embedding_bwd_rows, &spec, ids, 1e-6);
        }
        test_kernel_spec(&spec, &kolo_op_merge_rows, attr, 2, merged, NULL, 2, NULL, threads);
        test_kernel_fitting(&kolo_simd_merge_rows, &spec, ids, 1e-6);
    }
}

static void rows_are_the_reference(void **state) { test_each_set(rows); }

static void row_updates(int threads) {
    static const int32_t ids[] = {0, 3, 4, 9, 17, -1, -1};
    static float squares[20 * 70], lr = 0.01f, update = 3;
    static const int64_t channels[] = {1, 16, 70};
    kolo_kernel_spec spec;
    for (size_t i = 0; i < KOLO_COUNT(squares); i++) squares[i] = 0.01f * (float)(i % 17);
    for (size_t i = 0; i < KOLO_COUNT(channels); i++) {
        const kolo_attr attr[KOLO_MAX_ATTRS] = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-4}};
        kolo_shape table = kolo_shape_2(20, channels[i]), one = kolo_shape_0();
        const kolo_shape in[] = {
            table, kolo_shape_2(7, channels[i]), kolo_shape_1(7), one, one, table, table};
        const void *data[] = {NULL, NULL, ids, &lr, &update, NULL, squares};
        test_kernel_spec(&spec, &kolo_op_sgd_rows, NULL, 4, in, NULL, 1, NULL, threads);
        test_kernel_fitting(&kolo_simd_sgd_rows, &spec, data, 1e-6);
        test_kernel_spec(&spec, &kolo_op_adam_rows, attr, 7, in, NULL, 3, NULL, threads);
        test_kernel_fitting(&kolo_simd_adam_rows, &spec, data, 1e-6);
    }
}

static void row_updates_are_the_reference(void **state) { test_each_set(row_updates); }

/* ---- recurrent layers ---- */

/* The last time step of a layer, and its gradient; with `state` one that others follow. */
static void time_steps(int64_t n, int64_t t, int64_t h, int state, const float *gates,
                       const float *c, int threads) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{t - 1}};
    const kolo_shape one = kolo_shape_3(n, 1, h), four = kolo_shape_3(n, 1, 4 * h);
    const kolo_shape cell[] = {kolo_shape_3(n, t, 4 * h), kolo_shape_1(4 * h), four, one};
    const kolo_shape bwd[] = {kolo_shape_3(n, t, h), four, one, one, one, one};
    const void *data[] = {NULL, gates, c, NULL, NULL, NULL};
    kolo_kernel_spec spec;
    test_kernel_spec(&spec, &kolo_op_lstm_cell, attr, 2 + 2 * state, cell, NULL, 3, NULL, threads);
    test_kernel_fitting(&kolo_simd_lstm_cell, &spec, NULL, 1e-5);
    for (int more = 0; more < 2; more++) { /* without and with cells before */
        test_kernel_spec(&spec, &kolo_op_lstm_cell_bwd, attr, 3 + 2 * state + more, bwd, NULL, 2,
                         NULL, threads);
        test_kernel_fitting(&kolo_simd_lstm_cell_bwd, &spec, data, 1e-5);
    }
}

/* Layers without and with an initial state. */
static void recurrent(int threads) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {2, 5, 8}, {7, 4, 33}, {3, 6, 64}, {13, 3, 20}};
    static float gates[4 * 4096], c[4096];
    for (size_t i = 0; i < 2 * KOLO_COUNT(shapes); i++) {
        const int64_t n = shapes[i / 2][0], t = shapes[i / 2][1], h = shapes[i / 2][2];
        const int state = (int)i % 2;
        const kolo_shape y = {3, {n, t, h}}, s = kolo_shape_2(n, h);
        const kolo_shape gx4 = {3, {n, t, 4 * h}}, w4 = kolo_shape_2(4 * h, h);
        const kolo_shape gx3 = {3, {n, t, 3 * h}}, w3 = kolo_shape_2(3 * h, h);
        const kolo_shape lstm[] = {gx4, w4, kolo_shape_1(4 * h), s, s};
        const kolo_shape gru[] = {gx3, w3, kolo_shape_1(3 * h), s};
        const kolo_shape lstm_bwd[] = {y, gx4, y, w4, s}, gru_bwd[] = {y, gx3, y, y, w3, s};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_lstm, NULL, 3 + 2 * state, lstm, NULL, 3, NULL, threads);
        test_kernel_fitting(&kolo_simd_lstm, &spec, NULL, 1e-5);
        test_kernel_spec(&spec, &kolo_op_gru, NULL, 3 + state, gru, NULL, 3, NULL, threads);
        test_kernel_fitting(&kolo_simd_gru, &spec, NULL, 1e-5);
        kolo_rng rng = kolo_rng_make(i, KOLO_RNG_TEST, 2);
        for (int64_t k = 0; k < 4 * n * t * h; k++) gates[k] = kolo_rng_uniform(&rng, (uint64_t)k);
        for (int64_t k = 0; k < n * t * h; k++) c[k] = kolo_rng_normal(&rng, (uint64_t)k);
        const void *data[] = {NULL, gates, c, NULL, NULL, NULL};
        test_kernel_spec(&spec, &kolo_op_lstm_bwd, NULL, 4 + state, lstm_bwd, NULL, 1 + 2 * state,
                         NULL, threads);
        test_kernel_fitting(&kolo_simd_lstm_bwd, &spec, data, 1e-5);
        test_kernel_spec(&spec, &kolo_op_gru_bwd, NULL, 5 + state, gru_bwd, NULL, 2 + state, NULL,
                         threads);
        test_kernel_fitting(&kolo_simd_gru_bwd, &spec, data, 1e-5);
        time_steps(n, t, h, state, gates, c, threads);
        if (state) continue;
        for (int64_t back = 0; back < 2; back++) {
            const kolo_attr attr[KOLO_MAX_ATTRS] = {{back}};
            test_kernel_spec(&spec, &kolo_op_shift, attr, 1, &y, NULL, 1, NULL, threads);
            test_kernel_fitting(&kolo_simd_shift, &spec, NULL, 0);
        }
    }
}

static void recurrent_layers_are_the_reference(void **state) { test_each_set(recurrent); }

TEST_MAIN(test_simd_sequence) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_norm_is_the_reference),
        cmocka_unit_test(group_norm_is_the_reference),
        cmocka_unit_test(embedding_is_the_reference),
        cmocka_unit_test(experts_are_the_reference),
        cmocka_unit_test(rows_are_the_reference),
        cmocka_unit_test(row_updates_are_the_reference),
        cmocka_unit_test(recurrent_layers_are_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
