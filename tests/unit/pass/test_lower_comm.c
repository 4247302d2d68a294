/* Redistributions inside the forward and backward passes: where their POST and WAIT stand, what is
 * copied, and what is refused. */
#include "base/compiler.h"
#include "comm/transport/transport.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static const kolo_mesh dp3 = {1, {{"dp", 3}}};
static const kolo_bucket_sizes one_each = {.least = 1};

typedef struct net {
    kolo_graph *g;
    kolo_value sum, all;
} net;

/* logits = linear(x, w) times the sum of all samples of all ranks. */
static net build(kolo_placement_kind from, bool reports_sum) {
    net m;
    const kolo_placements part = {.axis[0] = {.kind = from}};
    const kolo_placements whole = {.axis[0] = {.kind = KOLO_PLACEMENT_REPLICATED}};
    const kolo_attr one[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = 1};
    ASSERT_OK(kolo_graph_create(NULL, &m.g));
    kolo_value x = kolo_input(m.g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
    kolo_value y = kolo_input(m.g, "y", KOLO_DTYPE_I32, kolo_shape_1(4));
    kolo_value w = kolo_param(m.g, "w", kolo_shape_2(5, 3), kolo_init_fan_in(3));
    kolo_value seed = kolo_scalar(m.g, "grad_scale");
    m.sum = kolo_sum(m.g, x);
    ASSERT_OK(kolo_pass_shard(m.g, &dp3));
    m.all = kolo_redistribute(m.g, m.sum, &part, &whole);
    kolo_value logits = kolo_linear(m.g, x, w); /* overlaps */
    kolo_value scaled = kolo_graph_add1(m.g, &kolo_op_scale, (kolo_value[]){logits, m.all}, 2, one);
    kolo_output(m.g, "loss", kolo_softmax_xent(m.g, scaled, y));
    if (reports_sum) kolo_output(m.g, "sum", m.sum);
    const kolo_optimizer_opts sgd = {.momentum = 0.9};
    ASSERT_OK(kolo_pass_gradient(m.g, kolo_graph_output(m.g, "loss"), seed));
    ASSERT_OK(kolo_pass_optimizer(m.g, &sgd));
    return m;
}

static void lower(kolo_graph *g) {
    ASSERT_OK(kolo_pass_synchronize(g));
    ASSERT_OK(kolo_graph_propagate(g));
    ASSERT_OK(kolo_pass_lower_comm(g, &one_each, SIZE_MAX, false, false));
    ASSERT_OK(kolo_graph_verify(g));
    ASSERT_OK(kolo_graph_propagate(g));
}

/* The first node of that op inside the passes, or outside. */
static int32_t find(const kolo_graph *g, const kolo_op *op, bool inside) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op == op && (n->attr[KOLO_COMM_INSIDE].i != 0) == inside) return i;
    }
    return -1;
}

static int32_t inside(const kolo_graph *g, const kolo_op *op) { return find(g, op, true); }

static int32_t first_of(const kolo_graph *g, const kolo_op *op) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op == op) return i;
    }
    return -1;
}

static void a_sum_is_posted_at_once_and_awaited_late(void **state) {
    net m = build(KOLO_PLACEMENT_PARTIAL, false);
    lower(m.g);
    int32_t post = inside(m.g, &kolo_op_post), wait = inside(m.g, &kolo_op_wait);
    assert_int_equal(m.g->nodes[post]->in[0].id, m.sum.id);
    assert_true(post < first_of(m.g, &kolo_op_linear) && first_of(m.g, &kolo_op_linear) < wait);
    assert_int_equal(wait + 1, first_of(m.g, &kolo_op_scale));
    assert_int_equal(m.g->nodes[wait + 1]->in[1].id, m.g->nodes[wait]->out[0].id);
    assert_true(find(m.g, &kolo_op_post, false) > wait); /* gradients follow */
    assert_int_equal(first_of(m.g, &kolo_op_redistribute), -1);
    kolo_memory_map map;
    ASSERT_OK(kolo_pass_memory(m.g, &map));
    assert_true(map.n_buckets > 1);
    assert_int_equal(map.locations[m.sum.id].region, KOLO_REGION_BUCKET);
    kolo_memory_map_fini(&map);
    kolo_graph_destroy(m.g);
}

/* The collective overwrites its summand, which the report sums again. */
static void a_summand_with_another_reader_is_copied(void **state) {
    net m = build(KOLO_PLACEMENT_PARTIAL, true);
    lower(m.g);
    const kolo_node *post = m.g->nodes[inside(m.g, &kolo_op_post)];
    int32_t copy = kolo_info(m.g, post->in[0])->producer;
    assert_ptr_equal(m.g->nodes[copy]->op, &kolo_op_reorder);
    assert_int_equal(m.g->nodes[copy]->in[0].id, m.sum.id);
    kolo_graph_destroy(m.g);
}

/* What another stage of a pipeline gets is summed in each micro-batch, also if a view of the sum is
 * sent; what is only reported, once per step. */
static void what_is_sent_is_summed_in_each_micro_batch(void **state) {
    const kolo_placements part = {.axis[0] = {.kind = KOLO_PLACEMENT_PARTIAL}}, whole = {0};
    const kolo_placements read = {.axis[0] = {.kind = KOLO_PLACEMENT_REPLICATED}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool sent = i < 2, view = i % 2;
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
        kolo_value sum = kolo_sum(g, x);
        ASSERT_OK(kolo_pass_shard(g, &dp3));
        const kolo_tensor tensor = kolo_info(g, sum)->tensor;
        sum = kolo_redistribute(g, sum, &part, &whole);
        if (view) sum = kolo_redistribute_as(g, sum, &whole, &read, &tensor);
        kolo_output(g, "sum", sum);
        ASSERT_OK(kolo_graph_check(g));
        if (sent) g->outputs[0].crossing.number = 1;
        ASSERT_OK(kolo_graph_propagate(g));
        ASSERT_OK(kolo_pass_lower_comm(g, &one_each, SIZE_MAX, false, false));
        ASSERT_OK(kolo_graph_verify(g));
        assert_int_equal(inside(g, &kolo_op_post) >= 0, sent);
        assert_int_equal(find(g, &kolo_op_post, false) >= 0, !sent);
        assert_int_equal(first_of(g, &kolo_op_own_range) >= 0, view);
        kolo_graph_destroy(g);
    }
}

static void what_is_no_sum_is_refused(void **state) {
    net m = build(KOLO_PLACEMENT_LOCAL, false);
    assert_int_equal(kolo_pass_lower_comm(m.g, &one_each, SIZE_MAX, false, false),
                     KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "dp:local"));
    kolo_graph_destroy(m.g);
}

enum { LAYER = 36 /* bytes */, MOST = 64 };

/* The bytes of each bucket of gradients of a chain of layers; their number. The last bucket has the
 * loss, too. */
static int list_buckets(const kolo_bucket_sizes *sizes, int layers, size_t bytes[MOST]) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(4));
    kolo_value seed = kolo_scalar(g, "grad_scale");
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        x = kolo_linear(g, x, kolo_param(g, name, kolo_shape_2(3, 3), kolo_init_fan_in(3)));
    }
    kolo_output(g, "loss", kolo_softmax_xent(g, x, y));
    ASSERT_OK(kolo_pass_shard(g, &dp3));
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), seed));
    ASSERT_OK(kolo_pass_optimizer(g, &(kolo_optimizer_opts){0}));
    ASSERT_OK(kolo_pass_synchronize(g));
    ASSERT_OK(kolo_graph_propagate(g));
    ASSERT_OK(kolo_pass_lower_comm(g, sizes, SIZE_MAX, false, false));
    int buckets = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op != &kolo_op_post) continue;
        const int64_t bucket = n->attr[KOLO_COMM_BUCKET].i;
        assert_in_range(bucket, 0, MOST - 1);
        bytes[bucket] = 0;
        for (int k = 0; k < n->n_in; k++) {
            const kolo_tensor *tensor = &kolo_info(g, n->in[k])->tensor;
            if (tensor->shape.rank == 2) bytes[bucket] += kolo_tensor_bytes(tensor);
        }
        buckets++;
    }
    kolo_graph_destroy(g);
    return buckets;
}

static void buckets_are_larger_than_the_least_where_there_would_be_too_many(void **state) {
    size_t bytes[MOST];
    assert_in_range(list_buckets(&(kolo_bucket_sizes){.least = 1}, 40, bytes), 40, 41);
    for (int layers = 1; layers < 300; layers += layers < 10 ? 1 : 41) {
        const kolo_bucket_sizes sizes = {.least = 1, .most = KOLO_BUCKETS_MOST};
        const int n = list_buckets(&sizes, layers, bytes);
        if (n > KOLO_BUCKETS_MOST + 1) fail_msg("%d layers: %d buckets", layers, n);
        if (layers < 10) assert_in_range(n, layers, layers + 1);
    }
    _Static_assert(KOLO_BUCKETS_MOST + 1 < KOLO_FLIGHT_MAX, "all buckets have priorities");
}

/* Each has half of what is left, down to a fourth of the least, or a sixteenth of the largest. */
static void the_last_buckets_are_smaller(void **state) {
    static const struct {
        kolo_bucket_sizes sizes;
        int layers;
        size_t last[4]; /* in layers; 0: there are fewer */
    } cases[] = {
        {{.least = LAYER, .most = KOLO_BUCKETS_MOST}, 100, {5, 3, 1, 1}},
        {{.least = 16 * LAYER, .most = KOLO_BUCKETS_MOST}, 32, {16, 8, 4, 4}},
        {{.least = 16 * LAYER, .most = KOLO_BUCKETS_MOST}, 4, {4}},
        {{.least = 16 * LAYER}, 40, {16, 16, 8}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        size_t bytes[MOST];
        int n = list_buckets(&cases[i].sizes, cases[i].layers, bytes), known = 0;
        if (bytes[n - 1] == 0) n--; /* the loss */
        while (known < 4 && cases[i].last[known] > 0) known++;
        assert_true(n >= known);
        for (int k = 0; k < known; k++) {
            const size_t is = bytes[n - known + k] / LAYER;
            if (is != cases[i].last[k]) fail_msg("case %d: bucket %d has %d", (int)i, k, (int)is);
        }
    }
}

TEST_MAIN(test_lower_comm) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_posted_at_once_and_awaited_late),
        cmocka_unit_test(a_summand_with_another_reader_is_copied),
        cmocka_unit_test(what_is_sent_is_summed_in_each_micro_batch),
        cmocka_unit_test(what_is_no_sum_is_refused),
        cmocka_unit_test(buckets_are_larger_than_the_least_where_there_would_be_too_many),
        cmocka_unit_test(the_last_buckets_are_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
