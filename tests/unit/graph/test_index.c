/* Index notation: reading it, and what it states of ops without a gradient rule. The others are
 * compared with their kernels in test_op_gradient.c. */
#include "graph/index.h"
#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "support/index_check.h"
#include "support/shapes.h"
#include "support/support.h"

#include <string.h>

/* Reads it for tensors of 2 elements in each dimension. */
static kolo_status read_as(const char *notation, int n_in, const int *in_ranks, int n_out,
                           const int *out_ranks, kolo_index *index) {
    kolo_shape in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    for (int k = 0; k < n_in; k++) in[k] = (kolo_shape){in_ranks[k], {2, 2, 2, 2, 2, 2}};
    for (int k = 0; k < n_out; k++) out[k] = (kolo_shape){out_ranks[k], {2, 2, 2, 2, 2, 2}};
    const kolo_op op = {.name = "op", .index = notation};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    return kolo_index_read(&op, attr, n_in, in, n_out, out, index);
}

static void terms_name_every_dimension(void **state) {
    kolo_index x;
    ASSERT_OK(read_as("n*i,oi+o->n*o", 3, (int[]){4, 2, 1}, 1, (int[]){4}, &x));
    assert_int_equal(x.in[0].n, 4);
    assert_int_equal(x.in[0].code[1], KOLO_INDEX_STAR);
    assert_int_equal(x.in[0].code[2], KOLO_INDEX_STAR + 1);
    assert_int_equal(kolo_index_find(&x.in[1], 'i'), 1);
    assert_int_equal(kolo_index_find(&x.out[0], 'o'), 3);
    assert_int_equal(kolo_index_find(&x.out[0], 'i'), -1);
    assert_int_equal(x.n_addends, 2);
    assert_int_equal(x.in[2].addend, 1);
    ASSERT_OK(read_as("ntc->(nt)c", 1, (int[]){3}, 1, (int[]){2}, &x));
    assert_int_equal(kolo_index_find(&x.out[0], 'n'), 0);
    assert_int_equal(kolo_index_find(&x.out[0], 't'), 0);
    assert_int_equal(kolo_index_parts(&x.out[0], 0, 'n'), 1);
    assert_int_equal(kolo_index_parts(&x.out[0], 0, 't'), 2);
    kolo_placement samples = {.kind = KOLO_PLACEMENT_SHARDED}, positions = samples;
    positions.depth = KOLO_DEPTH_POSITIONS;
    assert_int_equal(kolo_index_of_cut(&x.out[0], &samples), 'n');
    assert_int_equal(kolo_index_of_cut(&x.out[0], &positions), 't');
    ASSERT_OK(read_as("nC#,s->sC,n/q*", 2, (int[]){4, 0}, 2, (int[]){1, 1}, &x));
    assert_int_equal(x.in[0].code[1], KOLO_INDEX_WHOLE);
    assert_int_equal(x.in[0].code[3], KOLO_INDEX_WHOLE);
    assert_true(x.in[1].by_shard && x.in[1].n == 0 && x.out[0].by_shard);
    assert_int_equal(x.out[1].without[0], 'q');
    assert_int_equal(x.out[1].without[1], KOLO_INDEX_STAR);
    ASSERT_OK(read_as("nt,vc->s@vc/t", 2, (int[]){2, 2}, 1, (int[]){2}, &x));
    assert_true(x.out[0].by_shard && x.out[0].listed[0] && !x.out[0].listed[1]);
    assert_int_equal(kolo_index_find(&x.out[0], 'v'), 0);
    assert_int_equal(x.out[0].without[0], 't');
}

static void the_first_alternative_that_fits_holds(void **state) {
    kolo_index x;
    ASSERT_OK(read_as("ab,c->a|ab->b", 1, (int[]){2}, 1, (int[]){1}, &x));
    assert_int_equal(x.out[0].code[0], 'a');
    ASSERT_OK(read_as("ab,c->a|ab,cd->b", 2, (int[]){2, 2}, 1, (int[]){1}, &x));
    assert_int_equal(x.out[0].code[0], 'b');
    ASSERT_OK(read_as("*,->*,", 1, (int[]){0}, 1, (int[]){0}, &x)); /* optional terms */
    assert_true(x.in[0].is_star);
}

static void other_ranks_do_not_fit(void **state) {
    kolo_index x;
    assert_int_equal(read_as("ab->a", 1, (int[]){3}, 1, (int[]){1}, &x), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "does not fit"));
    assert_int_equal(read_as("ab*->a", 1, (int[]){1}, 1, (int[]){1}, &x), KOLO_ERR_FORMAT);
    assert_int_equal(read_as("ab->a", 2, (int[]){2, 2}, 1, (int[]){1}, &x), KOLO_ERR_FORMAT);
    assert_int_equal(read_as("ab->a", 1, (int[]){2}, 2, (int[]){1, 1}, &x), KOLO_ERR_FORMAT);
    assert_int_equal(read_as("tc->(nt)c", 1, (int[]){2}, 1, (int[]){2}, &x), KOLO_ERR_FORMAT);
    assert_int_equal(read_as("(n->n", 1, (int[]){1}, 1, (int[]){1}, &x), KOLO_ERR_FORMAT);
    assert_int_equal(read_as(NULL, 1, (int[]){2}, 1, (int[]){1}, &x), KOLO_ERR_UNSUPPORTED);
}

static void every_op_but_communication_has_one(void **state) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        const kolo_shape in[KOLO_MAX_IO] = {S2(2, 2), S2(2, 2)};
        char text[KOLO_NOTATION];
        const char *notation = kolo_op_notation(op, attr, 2, in, text);
        if (op->comm) continue;
        if (!notation || !strstr(notation, "->")) fail_msg("%s: no notation", op->name);
    }
}

/* ---- against the reference kernels ---- */

typedef struct index_case {
    const kolo_op *op;
    int n_in;
    kolo_shape in[KOLO_MAX_IO];
    kolo_attr attr[KOLO_MAX_ATTRS];
    unsigned labels; /* bit i: input i is i32, of numbers from 0 to 2 */
    unsigned keys;   /* bit i: input i is i64 */
} index_case;

static const index_case cases[] = {
    {&kolo_op_softmax_xent, 2, {S2(5, 3), S1(5)}, .labels = 2, .attr = {{0}, {0}, {.f = 0}, {1}}},
    {&kolo_op_softmax_xent, 2, {S4(2, 3, 2, 5), S3(2, 2, 5)}, .labels = 2, .attr = {{0}}},
    {&kolo_op_softmax_xent_bwd,
     3,
     {S4(2, 3, 2, 5), S3(2, 2, 5), {0, {0}}},
     .labels = 2,
     .attr = {{0}}},
    {&kolo_op_accuracy, 2, {S2(5, 3), S1(5)}, .labels = 2, .attr = {{0}}},
    {&kolo_op_confusion, 2, {S3(2, 3, 4), S2(2, 4)}, .labels = 2, .attr = {{0}}},
    {&kolo_op_score_counts, 2, {S2(5, 3), S2(5, 3)}, .labels = 2, .attr = {{2}}},
    {&kolo_op_batch_norm_update, 4, {S1(5), S1(5), S1(5), S1(5)}, .attr = {{.f = 0.9}, {.f = 0.1}}},
    {&kolo_op_sync_norm_sums, 3, {S4(4, 3, 2, 2), S1(3), {0, {0}}}, .attr = {{0}, {4}}},
    {&kolo_op_sync_norm_statistics, 4, {S1(6), S1(3), S1(3), {0, {0}}}, .attr = {{.f = 0.1}, {4}}},
    {&kolo_op_sync_norm,
     7,
     {S4(4, 3, 2, 2), S1(3), S1(3), S1(3), S1(3), {0, {0}}, S4(4, 3, 2, 2)},
     .attr = {{.f = 0.1}}},
    {&kolo_op_sync_norm_bwd_sums,
     5,
     {S4(4, 3, 2, 2), S4(4, 3, 2, 2), S1(3), S1(3), S1(3)},
     .attr = {{.f = 0.1}}},
    {&kolo_op_sync_norm_bwd_data,
     7,
     {S4(4, 3, 2, 2), S4(4, 3, 2, 2), {0, {0}}, S1(6), S1(3), S1(3), S1(3)},
     .attr = {{.f = 0.1}, {.f = 0}, {0}, {0}, {4}}},
    {&kolo_op_sgd, 4, {S3(2, 3, 4), S3(2, 3, 4), {0, {0}}, S3(2, 3, 4)}, .attr = {{.f = 0.9}}},
    {&kolo_op_delayed_sgd,
     6,
     {S2(3, 4), S2(3, 4), {0, {0}}, {0, {0}}, S2(3, 4), S2(3, 4)},
     .attr = {{.f = 0.9}, {.f = 0.1}, {2}, {.f = 0.1}}},
    {&kolo_op_adam,
     6,
     {S2(3, 4), S2(3, 4), {0, {0}}, {0, {0}}, S2(3, 4), S2(3, 4)},
     .attr = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-3}, {.f = 0.1}}},
    {&kolo_op_square_blocks, 1, {S2(3, 4)}, .attr = {{0}}},
    {&kolo_op_lars,
     6,
     {S2(3, 4), S2(3, 4), {0, {0}}, S2(3, 4), S1(1), S1(1)},
     .attr = {{.f = 0.9}, {.f = 0.1}, {.f = 0.01}}},
    {&kolo_op_lamb,
     5,
     {S2(3, 4), S2(3, 4), {0, {0}}, S2(3, 4), S2(3, 4)},
     .attr = {{.f = 0.9}, {.f = 0.99}, {.f = 1e-3}, {.f = 0.1}}},
    {&kolo_op_lamb_step, 5, {S2(3, 4), S2(3, 4), {0, {0}}, S1(1), S1(1)}, .attr = {{0}}},
    {&kolo_op_square_sum, 2, {S1(4), {0, {0}}}, .attr = {{0}}},
    {&kolo_op_square_sum, 2, {S1(4), S1(3)}, .attr = {{1}, {3}}},
    {&kolo_op_clip_factor, 1, {{0, {0}}}, .attr = {{.f = 1}}},
    {&kolo_op_embedding, 3, {S2(3, 4), S2(2, 5), S2(6, 4)}, .attr = {{0}}, .labels = 2},
    {&kolo_op_embedding_bwd, 2, {S3(2, 5, 4), S2(2, 5)}, .labels = 2, .attr = {{3}}},
    {&kolo_op_embedding_bwd, 3, {S3(2, 5, 4), S2(2, 5), S2(3, 4)}, .labels = 2, .attr = {{3}, {0}}},
    {&kolo_op_position_bwd, 1, {S3(2, 5, 4)}, .attr = {{7}, {0}, {1}}},
    {&kolo_op_expert_route, 1, {S3(3, 5, 4)}, .attr = {{2}, {2}}},
    {&kolo_op_expert_dispatch, 2, {S3(2, 5, 4), S3(2, 5, 3)}, .labels = 2, .attr = {{3}}},
    {&kolo_op_expert_dispatch,
     3,
     {S3(2, 5, 4), S3(2, 5, 3), S3(2, 5, 3)},
     .labels = 2,
     .attr = {{3}}},
    {&kolo_op_expert_combine, 2, {S4(3, 2, 3, 4), S3(2, 5, 3)}, .labels = 2, .attr = {{0}}},
    {&kolo_op_expert_combine,
     3,
     {S4(3, 2, 3, 4), S3(2, 5, 3), S3(2, 5, 3)},
     .labels = 2,
     .attr = {{0}}},
    {&kolo_op_expert_products,
     3,
     {S3(2, 5, 4), S4(3, 2, 3, 4), S3(2, 5, 3)},
     .labels = 4,
     .attr = {{0}}},
    {&kolo_op_lstm_cell, 4, {S3(2, 3, 20), S1(20), S3(2, 1, 20), S3(2, 1, 5)}, .attr = {{1}}},
    {&kolo_op_lstm_cell_bwd,
     6,
     {S3(2, 3, 5), S3(2, 1, 20), S3(2, 1, 5), S3(2, 1, 5), S3(2, 1, 5), S3(2, 1, 5)},
     .attr = {{1}}},
    {&kolo_op_grid_sample, 2, {S4(2, 3, 4, 5), S4(2, 3, 2, 2)}, .attr = {{0}, {0}, {1}}},
    {&kolo_op_grid_sample_bwd,
     3,
     {S4(2, 3, 3, 2), S4(2, 3, 4, 5), S4(2, 3, 2, 2)},
     .attr = {{0}, {0}, {1}}},
    {&kolo_op_rotary, 1, {S3(2, 5, 8)}, .attr = {{2}, {.f = 100}, {3}}},
    {&kolo_op_rotary, 2, {S3(2, 5, 8), S2(2, 5)}, .labels = 2, .attr = {{2}, {.f = 100}, {3}}},
    {&kolo_op_cache_write, 3, {S4(2, 4, 5, 3), S3(2, 1, 24), S2(2, 1)}, .labels = 4, .attr = {{0}}},
    {&kolo_op_cached_attention,
     3,
     {S3(2, 5, 24), S4(2, 4, 5, 3), S2(2, 5)},
     .labels = 4,
     .attr = {{0}}},
    {&kolo_op_reshape, 1, {S3(2, 5, 4)}, .attr = {{2}, {10}, {4}}},
    {&kolo_op_reshape, 1, {S2(10, 4)}, .attr = {{3}, {2}, {5}, {4}}},
    {&kolo_op_class_max, 1, {S3(2, 5, 4)}, .attr = {{0}}},
    {&kolo_op_class_sums, 3, {S3(2, 5, 4), S2(2, 4), S2(2, 4)}, .labels = 4, .attr = {{0}}},
    {&kolo_op_class_sums_bwd,
     4,
     {S3(4, 2, 4), S3(2, 5, 4), S2(2, 4), S2(2, 4)},
     .labels = 8,
     .attr = {{0}}},
    {&kolo_op_sums_xent,
     2,
     {S3(4, 2, 4), S2(2, 4)},
     .labels = 2,
     .attr = {{0}, {0}, {.f = 0.1}, {1}, {3}}},
    {&kolo_op_sums_xent_bwd,
     3,
     {S3(4, 2, 4), S2(2, 4), {0, {0}}},
     .labels = 2,
     .attr = {{0}, {0}, {.f = 0.1}, {0}, {3}}},
    {&kolo_op_deinterleave, 1, {S3(8, 3, 2)}, .attr = {{0}, {2}, {2}}},
    {&kolo_op_deinterleave, 1, {S2(3, 8)}, .attr = {{1}, {1}, {4}}},
    {&kolo_op_interleave, 2, {S2(3, 4), S2(3, 4)}, .attr = {{1}, {2}}},
    {&kolo_op_reorder, 1, {S3(2, 3, 4)}, .attr = {{0}}},
};

static void notation_agrees_with_the_kernels(void **state) {
    int checked = 0;
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        const index_case *k = &cases[c];
        kolo_value in[KOLO_MAX_IO];
        graph_eval e;
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
        for (int i = 0; i < k->n_in; i++) {
            char name[8] = {'x', (char)('0' + i)};
            bool label = k->labels >> i & 1;
            in[i] = kolo_input(g, name, label ? KOLO_DTYPE_I32 : KOLO_DTYPE_F64, k->in[i]);
        }
        (void)kolo_graph_add1(g, k->op, in, k->n_in, k->attr);
        ASSERT_OK(kolo_graph_check(g));
        ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_REF));
        for (int i = 0; i < k->n_in; i++) {
            if (k->labels >> i & 1) {
                graph_eval_fill_labels(&e, in[i], 3 + (uint64_t)i, 3);
            } else {
                graph_eval_fill(&e, in[i], 10 + (uint64_t)i, 1);
            }
            double *x = k->labels >> i & 1 ? NULL : graph_eval_f64(&e, in[i]);
            for (int64_t n = 0; x && n < graph_eval_count(&e, in[i]); n++) x[n] = x[n] * x[n] + 1;
        }
        graph_eval_run(&e, g->n_nodes);
        checked += test_index_of_node(&e, g->nodes[0]);
        graph_eval_fini(&e);
        kolo_graph_destroy(g);
    }
    assert_true(checked >= 20);
}

TEST_MAIN(test_index) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_name_every_dimension),
        cmocka_unit_test(the_first_alternative_that_fits_holds),
        cmocka_unit_test(other_ranks_do_not_fit),
        cmocka_unit_test(every_op_but_communication_has_one),
        cmocka_unit_test(notation_agrees_with_the_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
