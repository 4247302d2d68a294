/* Shape rules that no builder call reaches: of gradients and updates. */
#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "support/support.h"

#include <string.h>

/* Attributes of a plain convolution's gradients. */
#define CONV(groups, size_h, size_w, bias)                                        \
    {                                                                             \
        {1}, {1}, {0}, {0}, {1}, {1}, {groups}, {0}, {size_h}, {size_w}, { bias } \
    }

static void inner_rules_refuse_what_does_not_fit(void **state) {
    const kolo_shape dy = kolo_shape_4(2, 6, 7, 5), w = kolo_shape_4(6, 4, 3, 3);
    const kolo_shape x = kolo_shape_4(2, 4, 9, 7), vector = kolo_shape_1(6);
    const kolo_shape groups = kolo_shape_4(5, 2, 3, 4);
    const kolo_shape row = kolo_shape_2(5, 6), one = kolo_shape_0(), tokens = {3, {2, 4, 6}},
                     kv = {3, {2, 5, 4}}, o = {3, {2, 4, 2}}, lse = {3, {2, 1, 4}};
    const struct {
        const kolo_op *op;
        int n_in;
        kolo_shape in[KOLO_MAX_IO];
        kolo_attr attr[KOLO_MAX_ATTRS];
        const char *what; /* NULL: it fits */
    } cases[] = {
        {&kolo_op_conv2d_bwd_data, 2, {dy, w}, CONV(1, 9, 7, 0), NULL},
        {&kolo_op_conv2d_bwd_data, 2, {dy, w}, CONV(1, 9, 8, 0), "7 x 6"},
        {&kolo_op_conv2d_bwd_data, 2, {x, w}, CONV(1, 9, 7, 0), "6 channels"},
        {&kolo_op_conv2d_bwd_data, 2, {dy, w}, CONV(INT64_MAX, 9, 7, 0), "groups"},
        {&kolo_op_conv2d_bwd_weights, 2, {dy, x}, CONV(1, 3, 3, 1), NULL},
        {&kolo_op_conv2d_bwd_weights, 2, {dy, x}, CONV(1, 2, 3, 0), "8 x 5"},
        {&kolo_op_conv2d_bwd_weights, 2, {dy, x}, CONV(0, 3, 3, 0), "0 groups"},
        {&kolo_op_linear_bwd_data, 2, {row, kolo_shape_2(7, 3)}, {{0}}, "[6,I...]"},
        {&kolo_op_linear_bwd_weights, 2, {row, kolo_shape_2(7, 3)}, {{0}}, "[5,I...]"},
        {&kolo_op_linear, 2, {tokens, kolo_shape_2(9, 5)}, {{0}}, "dimension 2 of x"},
        {&kolo_op_linear_gelu, 2, {tokens, kolo_shape_2(9, 5)}, {{0}}, "dimension 2 of x"},
        {&kolo_op_gelu_bwd, 2, {vector, vector}, {{0}, {1}}, "two or more dimensions"},
        {&kolo_op_linear_bwd_data, 2, {tokens, w}, {{0}}, "[6,I...]"},
        {&kolo_op_linear_bwd_weights, 2, {tokens, row}, {{0}}, "in all dimensions but the last"},
        {&kolo_op_layer_norm, 3, {tokens, vector, kolo_shape_1(5)}, {{0}}, "6 elements"},
        {&kolo_op_layer_norm, 3, {tokens, vector, vector}, {{.f = -1}}, "eps"},
        {&kolo_op_layer_norm_bwd, 5, {tokens, tokens, vector, row, row}, {{0}}, "without its last"},
        {&kolo_op_rms_norm, 2, {tokens, kolo_shape_1(5)}, {{0}}, "6 elements"},
        {&kolo_op_rms_norm, 2, {vector, vector}, {{0}}, "two or more dimensions"},
        {&kolo_op_rms_norm, 2, {tokens, vector}, {{.f = -1}}, "eps"},
        {&kolo_op_rms_norm_bwd, 4, {tokens, tokens, vector, row}, {{0}}, "without its last"},
        {&kolo_op_group_norm, 1, {tokens}, {{0}}, "N,G,K,P"},
        {&kolo_op_group_norm,
         3,
         {groups, kolo_shape_2(2, 3), kolo_shape_2(3, 2)},
         {{0}},
         "input 2 must have an element for each channel"},
        {&kolo_op_group_norm, 2, {groups, kolo_shape_2(2, 3)}, {{0}}, "needs an offset"},
        {&kolo_op_group_norm, 1, {groups}, {{.f = -1}}, "eps"},
        {&kolo_op_group_norm_bwd,
         4,
         {groups, groups, kolo_shape_2(5, 2), kolo_shape_2(5, 3)},
         {{0}},
         "input 3 must have an element for each group"},
        {&kolo_op_position_bwd, 1, {tokens}, {{3}}, "4 or more"},
        {&kolo_op_position_bwd, 1, {row}, {{9}}, "N,T,C"},
        {&kolo_op_attention, 1, {tokens}, {{2}, {0}}, NULL},
        {&kolo_op_attention, 1, {tokens}, {{3}, {0}}, "3 heads"},
        {&kolo_op_attention, 1, {tokens}, {{0}, {0}}, "0 heads"},
        {&kolo_op_attention_bwd, 4, {tokens, tokens, tokens, tokens}, {{1}, {0}}, "do and o"},
        {&kolo_op_attention_block, 4, {tokens, tokens, o, lse}, {{1}}, "N,S,2C"},
        {&kolo_op_attention_block, 4, {tokens, kv, tokens, lse}, {{1}}, "o must be N,T,C"},
        {&kolo_op_attention_block, 4, {tokens, kv, o, lse}, {{1}}, NULL},
        {&kolo_op_attention_block_bwd, 5, {tokens, tokens, kv, o, lse}, {{1}}, "do must be"},
        {&kolo_op_attention_block_bwd, 5, {o, tokens, kv, o, lse}, {{1}}, NULL},
        {&kolo_op_matmul, 2, {tokens, tokens}, {{0}, {1}}, NULL},
        {&kolo_op_matmul, 2, {tokens, tokens}, {{0}, {0}}, "columns of a"},
        {&kolo_op_lstm, 3, {tokens, w, vector}, {{0}}, "four times H"},
        {&kolo_op_lstm, 3, {{3, {2, 4, 8}}, kolo_shape_2(8, 3), vector}, {{0}}, "[8,2]"},
        {&kolo_op_lstm, 3, {{3, {2, 4, 8}}, kolo_shape_2(8, 2), vector}, {{0}}, "8 elements"},
        {&kolo_op_lstm_bwd, 4, {tokens, tokens, tokens, w}, {{0}}, "four times"},
        {&kolo_op_lstm,
         3,
         {{3, {2, 4, 8}}, kolo_shape_2(8, 3), kolo_shape_1(8)},
         {{5}}, /* units of all ranks */
         "[8,5]"},
        {&kolo_op_lstm_cell, 2, {tokens, vector}, {{0}}, "four times H"},
        {&kolo_op_lstm_cell, 2, {{3, {2, 4, 8}}, kolo_shape_1(8)}, {{4}}, "no time step 4 of 4"},
        {&kolo_op_lstm_cell, 2, {{3, {2, 4, 8}}, vector}, {{0}}, "8 elements"},
        {&kolo_op_lstm_cell,
         3,
         {{3, {2, 4, 8}}, kolo_shape_1(8), {3, {2, 1, 8}}},
         {{0}},
         "the cells before"},
        {&kolo_op_lstm_cell,
         4,
         {{3, {2, 4, 8}}, kolo_shape_1(8), {3, {2, 1, 8}}, {3, {2, 2, 2}}},
         {{0}},
         "[2,1,2]"},
        {&kolo_op_lstm_cell_bwd,
         3,
         {{3, {2, 4, 2}}, {3, {2, 1, 6}}, {3, {2, 1, 2}}},
         {{0}},
         "[2,1,8]"},
        {&kolo_op_lstm,
         4,
         {{3, {2, 4, 8}}, kolo_shape_2(8, 2), kolo_shape_1(8), kolo_shape_2(2, 2)},
         {{0}},
         "two parts"},
        {&kolo_op_gru, 3, {{3, {2, 4, 8}}, w, vector}, {{0}}, "three times H"},
        {&kolo_op_gru,
         4,
         {tokens, kolo_shape_2(6, 2), vector, kolo_shape_2(4, 2)},
         {{0}},
         "must be [2,2]"},
        {&kolo_op_gru_bwd, 5, {tokens, tokens, tokens, tokens, w}, {{0}}, "three times"},
        {&kolo_op_flip, 1, {row}, {{2}}, "no dimension 2"},
        {&kolo_op_causal_mask, 1, {row}, {{0}, {-1}}, "negative"},
        {&kolo_op_shift, 1, {row}, {{0}}, "N,T,C"},
        {&kolo_op_gelu_bwd, 2, {row, vector}, {{0}}, "equal shapes"},
        {&kolo_op_relu_bwd, 2, {row, vector}, {{0}}, "equal shapes"},
        {&kolo_op_reshape, 1, {row}, {{2}, {10}, {3}}, NULL},
        {&kolo_op_reshape, 1, {row}, {{2}, {10}, {4}}, "[10,4]"},
        {&kolo_op_reshape, 1, {row}, {{7}}, "7 dimensions"},
        {&kolo_op_reshape, 1, {row}, {{1}, {0}}, "dimension 0 is 0"},
        {&kolo_op_sgd, 3, {row, row, one}, {{0}}, NULL},
        {&kolo_op_sgd, 3, {row, row, one}, {{.f = 0.9}}, "without a velocity"},
        {&kolo_op_sgd, 4, {row, row, one, row}, {{.f = 0.9}, {.f = 0.1}, {1}}, NULL},
        {&kolo_op_sgd, 4, {row, row, one, row}, {{0}, {0}, {1}}, "nesterov"},
        {&kolo_op_sgd, 4, {row, row, one, vector}, {{.f = 0.9}}, "equal shapes"},
        {&kolo_op_sgd, 3, {row, row, vector}, {{0}}, "learning rate"},
        {&kolo_op_delayed_sgd,
         6,
         {row, row, one, one, row, row},
         {{.f = 0.9}, {0}, {4}, {.f = 0.25}},
         NULL},
        {&kolo_op_delayed_sgd, 6, {row, row, one, one, row, row}, {{.f = 0.9}}, "a delay of 0"},
        {&kolo_op_delayed_sgd,
         6,
         {row, row, one, one, row, row},
         {{.f = 0.9}, {0}, {4}, {.f = 0.26}},
         "1 / delay"},
        {&kolo_op_delayed_sgd,
         6,
         {row, row, one, one, vector, row},
         {{.f = 0.9}, {0}, {4}},
         "equal shapes"},
        {&kolo_op_adam, 6, {row, row, one, one, row, row}, {{.f = 0.9}, {.f = 0.9}}, NULL},
        {&kolo_op_adam,
         6,
         {row, row, one, one, row, vector},
         {{.f = 0.9}, {.f = 0.9}},
         "equal shapes"},
        {&kolo_op_adam,
         6,
         {row, row, one, vector, row, row},
         {{.f = 0.9}, {.f = 0.9}},
         "number of"},
        {&kolo_op_adam, 6, {row, row, one, one, row, row}, {{.f = 0.9}, {.f = 1}}, "beta2 is 1"},
        {&kolo_op_adam,
         6,
         {row, row, one, one, row, row},
         {{.f = 0.9}, {.f = 0.9}, {.f = 0}, {.f = 0}, {0}, {-1}},
         "frozen is -1"},
        {&kolo_op_momentum_part, 3, {row, row, row}, {{0}}, NULL},
        {&kolo_op_momentum_part, 2, {row, vector}, {{0}}, "equal shapes"},
        {&kolo_op_square_sum, 2, {vector, vector}, {{0}}, "a scalar"},
        {&kolo_op_square_sum, 1, {row}, {{0}}, "blocks"},
        {&kolo_op_square_sum, 2, {vector, kolo_shape_1(4)}, {{3}, {4}}, NULL},
        {&kolo_op_square_sum, 2, {vector, kolo_shape_1(4)}, {{4}, {4}}, "place 4 of 4 sums"},
        {&kolo_op_square_sum, 2, {vector, one}, {{0}, {4}}, "place 0 of 4 sums"},
        {&kolo_op_sync_norm_sums, 3, {row, vector, one}, {{0}}, NULL},
        {&kolo_op_sync_norm_sums, 3, {row, vector, vector}, {{0}}, "a scalar"},
        {&kolo_op_sync_norm_sums, 3, {row, kolo_shape_1(4), one}, {{0}}, "6 elements"},
        {&kolo_op_sync_norm_statistics, 4, {vector, vector, vector, one}, {{0}}, "two elements"},
        {&kolo_op_sync_norm, 6, {row, vector, vector, vector, vector, one}, {{0}}, NULL},
        {&kolo_op_sync_norm,
         7,
         {row, vector, vector, vector, vector, one, vector},
         {{0}},
         "equal shapes"},
        {&kolo_op_sync_norm_bwd_sums, 5, {row, row, vector, vector, vector}, {{0}}, NULL},
        {&kolo_op_sync_norm_bwd_data,
         7,
         {row, row, one, kolo_shape_1(12), vector, vector, vector},
         {{0}},
         NULL},
        {&kolo_op_sync_norm_bwd_data,
         7,
         {row, row, one, vector, vector, vector, vector},
         {{0}},
         "12 elements"},
        {&kolo_op_lars, 4, {row, row, one, row}, {{0}}, NULL},
        {&kolo_op_lars, 5, {row, row, one, row, kolo_shape_1(1)}, {{0}}, "both norms"},
        {&kolo_op_lars,
         6,
         {row, row, one, row, kolo_shape_1(1), kolo_shape_1(2)},
         {{0}},
         "number of blocks"},
        {&kolo_op_lars, 4, {row, row, one, vector}, {{0}}, "equal shapes"},
        {&kolo_op_lamb, 5, {row, row, one, row, row}, {{0}}, NULL},
        {&kolo_op_lamb, 5, {row, row, row, row, row}, {{0}}, "number of the update"},
        {&kolo_op_lamb_step, 3, {row, row, one}, {{0}}, NULL},
        {&kolo_op_lamb_step, 5, {row, row, one, one, one}, {{0}}, "blocks"},
        {&kolo_op_clip_factor, 1, {one}, {{.f = 0}}, "above 0"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
        for (int k = 0; k < cases[i].n_in; k++) {
            in[k] = kolo_tensor_plain(KOLO_DTYPE_F32, cases[i].in[k]);
        }
        kolo_shape_query q = {.attr = cases[i].attr, .n_in = cases[i].n_in, .in = in, .out = out};
        kolo_status status = cases[i].op->shape(&q);
        if (!cases[i].what) {
            ASSERT_OK(status);
        } else if (status != KOLO_ERR_ARG || !strstr(kolo_last_error(), cases[i].what)) {
            fail_msg("case %zu, %s: \"%s\"", i, cases[i].op->name, kolo_last_error());
        }
    }
}

/* Rows and their ids, of which the types differ. */
static void row_sparse_rules_refuse_what_does_not_fit(void **state) {
    const kolo_shape dy = {3, {2, 4, 6}}, ids = kolo_shape_2(2, 4), rows = kolo_shape_2(5, 6);
    const kolo_shape table = kolo_shape_2(9, 6), five = kolo_shape_1(5), one = kolo_shape_0();
    const struct {
        const kolo_op *op;
        int n_in;
        kolo_shape in[KOLO_MAX_IO];
        kolo_attr attr[KOLO_MAX_ATTRS];
        const char *what; /* NULL: it fits */
    } cases[] = {
        {&kolo_op_embedding_bwd_rows, 2, {dy, ids}, {{9}, {8}}, NULL},
        {&kolo_op_embedding_bwd_rows, 2, {dy, ids}, {{3}, {3}}, NULL},
        {&kolo_op_embedding_bwd_rows, 2, {dy, ids}, {{9}, {7}}, "8 or more"},
        {&kolo_op_embedding_bwd_rows, 2, {dy, ids}, {{3}, {2}}, "3 or more"},
        {&kolo_op_embedding_bwd_rows, 2, {dy, ids}, {{0}, {8}}, "0 rows"},
        {&kolo_op_embedding_bwd_rows, 2, {dy, five}, {{9}, {8}}, "N,T"},
        {&kolo_op_embedding_bwd_rows, 3, {dy, ids, rows}, {{9}, {8}}, "V,C"},
        {&kolo_op_merge_rows, 2, {rows, five}, {{9}, {5}}, NULL},
        {&kolo_op_merge_rows, 2, {rows, ids}, {{9}, {5}}, "an id for each row"},
        {&kolo_op_merge_rows, 2, {rows, five}, {{9}, {4}}, "5 or more"},
        {&kolo_op_accumulate_rows, 3, {rows, five, one}, {{9}, {8}}, NULL},
        {&kolo_op_accumulate_rows, 3, {rows, five, five}, {{9}, {8}}, "whether the micro-batch"},
        {&kolo_op_accumulate_rows, 3, {rows, five, one}, {{9}, {4}}, "5 or more"},
        {&kolo_op_sgd_rows, 4, {table, rows, five, one}, {{0}}, NULL},
        {&kolo_op_sgd_rows, 4, {kolo_shape_2(9, 5), rows, five, one}, {{0}}, "as wide"},
        {&kolo_op_sgd_rows, 4, {table, rows, five, five}, {{0}}, "learning rate"},
        {&kolo_op_adam_rows, 7, {table, rows, five, one, one, table, table}, {{0}}, NULL},
        {&kolo_op_adam_rows, 7, {table, rows, five, one, one, table, rows}, {{0}}, "equal shapes"},
        {&kolo_op_adam_rows, 7, {table, rows, five, one, five, table, table}, {{0}}, "number of"},
        {&kolo_op_adam_rows, 7, {table, rows, five, one, one, table, table}, {{.f = 1}}, "beta1"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
        for (int k = 0; k < cases[i].n_in; k++) {
            bool is_ids = k == (cases[i].op->in_place ? 2 : 1);
            in[k] = kolo_tensor_plain(is_ids ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32, cases[i].in[k]);
        }
        kolo_shape_query q = {.attr = cases[i].attr, .n_in = cases[i].n_in, .in = in, .out = out};
        kolo_status status = cases[i].op->shape(&q);
        if (!cases[i].what) {
            ASSERT_OK(status);
        } else if (status != KOLO_ERR_ARG || !strstr(kolo_last_error(), cases[i].what)) {
            fail_msg("case %zu, %s: \"%s\"", i, cases[i].op->name, kolo_last_error());
        }
    }
}

TEST_MAIN(test_op_rules) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inner_rules_refuse_what_does_not_fit),
        cmocka_unit_test(row_sparse_rules_refuse_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
