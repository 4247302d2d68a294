/* The gradient pass on graphs nobody drew: random ones from the public builder, with branches,
 * diamonds, shared weights, dead ends, all ops and odd sizes, in f64 on reference kernels.
 *
 * Each parameter's gradient is compared with central differences of the loss at random elements and
 * along a random direction. A difference whose two sides see different ReLU signs or pooling
 * winners straddles a kink and is skipped; few may be. Then the same graph is folded (see
 * pass/fold.c) and must give the same loss and gradients. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"
#include "support/fewer.h"
#include "support/graph_eval.h"
#include "support/random_graph.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = TEST_FEWER(100, 300), CLASSES = RANDOM_GRAPH_CLASSES };

/* Graphs whose gradients are compared with differences. */
static uint64_t graphs_to_compare(void) { return getenv("KOLO_SOAK") ? 1000 : GRAPHS; }

/* ---- comparing ---- */

static const double loss_scale = 0.37; /* the seed of the gradient */

/* A graph with its gradient, ready to run. */
typedef struct rig {
    random_graph m;
    graph_eval e;
    int32_t n_forward;
    uint64_t seed;
} rig;

static bool is_labels(const kolo_value_info *info) {
    return info->kind == KOLO_VALUE_INPUT && info->tensor.dtype == KOLO_DTYPE_I32;
}

static void rig_create(rig *t, uint64_t seed, bool fold) {
    t->seed = seed;
    random_graph_make(&t->m, seed, &(random_graph_opts){.dtype = KOLO_DTYPE_F64});
    kolo_graph *g = t->m.g;
    if (fold) {
        ASSERT_OK(kolo_pass_fold(g, true));
        ASSERT_OK(kolo_graph_verify(g));
    }
    t->n_forward = g->n_nodes;
    kolo_value scale = kolo_scalar(g, "scale");
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), scale));
    ASSERT_OK(kolo_graph_verify(g));
    ASSERT_OK(graph_eval_init(&t->e, g, KOLO_KERNELS_REF));
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        bool is_param = info->kind == KOLO_VALUE_PARAM;
        if (is_labels(info)) {
            graph_eval_fill_labels(&t->e, (kolo_value){.id = v}, seed, CLASSES);
        } else if (is_param || info->kind == KOLO_VALUE_INPUT) {
            uint64_t key = seed ^ kolo_hash_text(info->name);
            double most = is_param && info->init.scale > 0 ? info->init.scale : 1;
            graph_eval_fill(&t->e, (kolo_value){.id = v}, key, most);
        }
    }
    graph_eval_f64(&t->e, scale)[0] = loss_scale;
    graph_eval_run(&t->e, g->n_nodes);
}

static void rig_destroy(rig *t) {
    graph_eval_fini(&t->e);
    kolo_graph_destroy(t->m.g);
}

static void explain(const rig *t) {
    kolo_text text = {0};
    kolo_graph_print(t->m.g, &text);
    print_error("graph of seed %llu:\n%s\n", (unsigned long long)t->seed, text.text);
    kolo_text_fini(&text);
}

/* Which sides of its kinks the input of an op is on; 0: it has none. */
static uint64_t side_of(const kolo_node *n, double x) {
    if (n->op == &kolo_op_clamp) return 1 + (x > n->attr[0].f) + (x > n->attr[1].f);
    if (n->op == &kolo_op_hardtanh) return 1 + (x > n->attr[0].f) + (x > n->attr[1].f);
    if (n->op == &kolo_op_hardswish || n->op == &kolo_op_hardsigmoid) {
        return 1 + (x > -3) + (x > 3);
    }
    if (n->op == &kolo_op_floor || n->op == &kolo_op_ceil || n->op == &kolo_op_round) {
        return 1 + 2 * (uint64_t)(int64_t)floor(n->op == &kolo_op_round ? x + 0.5 : x);
    }
    const bool at_zero =
        n->op == &kolo_op_leaky_relu || n->op == &kolo_op_elu || n->op == &kolo_op_abs;
    return at_zero ? 1 + (x > 0) : 0;
}

/* Which sides of the kinks of l1 and huber the predictions are on. */
static uint64_t loss_sides(const graph_eval *e, const kolo_node *n) {
    const double *x = graph_eval_f64(e, n->in[0]), *target = graph_eval_f64(e, n->in[1]);
    const double delta = n->attr[KOLO_ELEMENTWISE_LOSS_DELTA].f;
    uint64_t hash = 0;
    for (int64_t i = 0; i < graph_eval_count(e, n->in[0]); i++) {
        const double d = x[i] - target[i];
        hash = hash * 31 + (d > delta) + 2 * (d > -delta);
    }
    return hash;
}

/* Which input each element of a minimum or maximum is from. */
static uint64_t taken(const graph_eval *e, const kolo_node *n) {
    const double *x[2] = {graph_eval_f64(e, n->in[0]), graph_eval_f64(e, n->in[1])};
    const kolo_shape *y = &kolo_info(e->g, n->out[0])->tensor.shape;
    uint64_t hash = 0;
    for (int64_t k = 0; k < kolo_shape_count(y); k++) {
        int64_t offset[2] = {0, 0}, stride[2] = {1, 1}, rest = k;
        for (int d = y->rank - 1; d >= 0; d--) {
            for (int i = 0; i < 2; i++) {
                const kolo_shape *in = &kolo_info(e->g, n->in[i])->tensor.shape;
                int dim = kolo_binary_dim(n->attr, i, in, y->rank, d);
                if (dim < 0) continue;
                offset[i] += rest % y->dim[d] * stride[i];
                stride[i] *= in->dim[dim];
            }
            rest /= y->dim[d];
        }
        hash = hash * 31 + (x[0][offset[0]] > x[1][offset[1]]);
    }
    return hash;
}

/* Which elements are maxima: the sum of the places of those equal to one. */
static uint64_t winners(const graph_eval *e, const kolo_node *n) {
    const double *x = graph_eval_f64(e, n->in[0]), *y = graph_eval_f64(e, n->out[0]);
    uint64_t hash = 0;
    for (int64_t i = 0; i < graph_eval_count(e, n->out[0]); i++) {
        for (int64_t k = 0; k < graph_eval_count(e, n->in[0]); k++) {
            if (x[k] == y[i]) hash = hash * 31 + (uint64_t)k;
        }
    }
    return hash;
}

/* The loss, and a hash of which side of each kink it was computed on. */
static double forward(rig *t, uint64_t *side) {
    const kolo_graph *g = t->m.g;
    graph_eval_run(&t->e, t->n_forward);
    *side = 0;
    for (int32_t i = 0; i < t->n_forward; i++) {
        const kolo_node *n = g->nodes[i];
        int64_t count = graph_eval_count(&t->e, n->out[0]);
        if (n->op == &kolo_op_max_pool2d) {
            uint64_t winners = kolo_hash_bytes(t->e.data[n->out[1].id], (size_t)count);
            *side = *side * 31 + winners;
        } else if (n->op == &kolo_op_expert_route) {
            uint64_t places =
                kolo_hash_bytes(t->e.data[n->out[0].id], (size_t)count * sizeof(int32_t));
            *side = *side * 31 + places;
        } else if (n->op == &kolo_op_relu) {
            const double *y = graph_eval_f64(&t->e, n->out[0]);
            for (int64_t k = 0; k < count; k++) *side = *side * 31 + (y[k] > 0);
        } else if (n->op == &kolo_op_minimum || n->op == &kolo_op_maximum) {
            *side = *side * 31 + taken(&t->e, n);
        } else if (n->op == &kolo_op_reduce_max) {
            *side = *side * 31 + winners(&t->e, n);
        } else if (n->op == &kolo_op_elementwise_loss) {
            *side = *side * 31 + loss_sides(&t->e, n);
        } else if (side_of(n, 0) > 0) {
            const double *x = graph_eval_f64(&t->e, n->in[0]);
            for (int64_t k = 0; k < count; k++) *side = *side * 31 + side_of(n, x[k]);
        }
    }
    return graph_eval_f64(&t->e, t->m.loss)[0];
}

typedef struct counters {
    int checks, kinks, without_gradient, shared, ops[256];
} counters;

/* Compares the gradient of parameter p along `direction`, of unit length, with the difference
 * quotient. A ReLU or maximum of several values has kinks everywhere near; so the step is small. */
static void check_direction(rig *t, kolo_value p, const double *direction, const double *gradient,
                            counters *sum) {
    const double step = 1e-5;
    int64_t count = graph_eval_count(&t->e, p);
    double *x = graph_eval_f64(&t->e, p), *old = kolo_alloc((size_t)count * sizeof *x);
    assert_non_null(old);
    memcpy(old, x, (size_t)count * sizeof *x);
    uint64_t side_up, side_down;
    for (int64_t i = 0; i < count; i++) x[i] = old[i] + step * direction[i];
    double up = forward(t, &side_up);
    for (int64_t i = 0; i < count; i++) x[i] = old[i] - step * direction[i];
    double down = forward(t, &side_down);
    memcpy(x, old, (size_t)count * sizeof *x);
    kolo_free(old);
    sum->checks++;
    if (side_up != side_down) {
        sum->kinks++;
        return;
    }
    double numeric = loss_scale * (up - down) / (2 * step), along = 0, length = 0;
    for (int64_t i = 0; i < count; i++) {
        along += gradient[i] * direction[i];
        length += gradient[i] * gradient[i];
    }
    if (!(fabs(numeric - along) <= 1e-6 * sqrt(length) + 1e-8)) {
        explain(t);
        fail_msg("seed %llu, %s: slope %.12g, by differences %.12g", (unsigned long long)t->seed,
                 kolo_info(t->m.g, p)->name, along, numeric);
    }
}

static void check_param(rig *t, kolo_value p, counters *sum) {
    int64_t count = graph_eval_count(&t->e, p);
    kolo_value grad = kolo_info(t->m.g, p)->grad;
    double *direction = kolo_zalloc((size_t)count * sizeof *direction);
    double *gradient = kolo_zalloc((size_t)count * sizeof *gradient);
    assert_true(direction && gradient);
    if (kolo_value_ok(grad)) {
        memcpy(gradient, graph_eval_f64(&t->e, grad), (size_t)count * sizeof *gradient);
    } else {
        sum->without_gradient++; /* the loss does not depend on it: checked against zeros */
    }
    for (int i = 0; i < 3; i++) {
        int64_t k = random_graph_below(&t->m, count);
        direction[k] = 1;
        check_direction(t, p, direction, gradient, sum);
        direction[k] = 0;
    }
    double length = 0;
    for (int64_t i = 0; i < count; i++) {
        direction[i] = kolo_rng_normal(&t->m.rng, t->m.draws++);
        length += direction[i] * direction[i];
    }
    for (int64_t i = 0; i < count; i++) direction[i] /= sqrt(length);
    check_direction(t, p, direction, gradient, sum);
    kolo_free(direction);
    kolo_free(gradient);
}

static void count_ops(const rig *t, counters *sum) {
    const kolo_graph *g = t->m.g;
    const kolo_op *op;
    for (size_t k = 0; (op = kolo_op_at(k)); k++) {
        for (int32_t i = 0; i < g->n_nodes; i++) sum->ops[k] += g->nodes[i]->op == op;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        int uses = 0;
        for (int32_t i = 0; i < t->n_forward && g->values[v].kind == KOLO_VALUE_PARAM; i++) {
            for (int k = 0; k < g->nodes[i]->n_in; k++) uses += g->nodes[i]->in[k].id == v;
        }
        sum->shared += uses > 1;
    }
}

/* Ops with a gradient that no builder of a layer adds; and stop_gradient, whose is no slope. */
static bool is_made_by_passes(const kolo_op *op) {
    static const kolo_op *const made[] = {
        &kolo_op_linear_gelu,   &kolo_op_attention_block, &kolo_op_sync_norm,
        &kolo_op_sums_xent,     &kolo_op_class_sums,      &kolo_op_redistribute,
        &kolo_op_stop_gradient, &kolo_op_deinterleave,    &kolo_op_interleave};
    for (size_t i = 0; i < KOLO_COUNT(made); i++) {
        if (made[i] == op) return true;
    }
    return false;
}

/* Every op that has a gradient is among the graphs. */
static void gradients_equal_differences(void **state) {
    const uint64_t graphs = graphs_to_compare();
    counters sum = {0};
    for (uint64_t seed = 0; seed < graphs; seed++) {
        rig t;
        rig_create(&t, seed, false);
        count_ops(&t, &sum);
        for (int32_t v = 0; v < t.m.g->n_values; v++) {
            const kolo_value_info *info = &t.m.g->values[v];
            bool is_trained = info->kind == KOLO_VALUE_PARAM && !info->frozen;
            if (is_trained) check_param(&t, (kolo_value){.id = v}, &sum);
        }
        rig_destroy(&t);
    }
    /* The graphs were what they should be. */
    assert_true(sum.checks > 10 * (int)graphs);
    assert_in_range(sum.kinks, 0, sum.checks / 50);
    assert_true(sum.shared > (int)graphs / 4);
    assert_in_range(sum.without_gradient, 1, sum.checks / 10);
    const kolo_op *op;
    for (size_t k = 0; (op = kolo_op_at(k)); k++) {
        if (op->grad && !is_made_by_passes(op) && sum.ops[k] < (int)graphs / 60) {
            fail_msg("only %d nodes of %s", sum.ops[k], op->name);
        }
    }
}

static void folding_keeps_loss_and_gradients(void **state) {
    int folded = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        rig a, b;
        rig_create(&a, seed, false);
        rig_create(&b, seed, true);
        folded += b.n_forward < a.n_forward;
        assert_true(b.n_forward <= a.n_forward);
        double loss_a = graph_eval_f64(&a.e, kolo_graph_output(a.m.g, "loss"))[0];
        double loss_b = graph_eval_f64(&b.e, kolo_graph_output(b.m.g, "loss"))[0];
        if (!(fabs(loss_a - loss_b) <= 1e-12 * fabs(loss_a))) {
            explain(&b);
            fail_msg("seed %llu: loss %.17g, folded %.17g", (unsigned long long)seed, loss_a,
                     loss_b);
        }
        assert_true(graph_eval_f64(&a.e, kolo_graph_output(a.m.g, "correct"))[0] ==
                    graph_eval_f64(&b.e, kolo_graph_output(b.m.g, "correct"))[0]);
        for (int32_t v = 0; v < a.m.g->n_values; v++) {
            const kolo_value_info *p = &a.m.g->values[v];
            if (p->kind != KOLO_VALUE_PARAM) continue;
            kolo_value same = kolo_graph_find(b.m.g, p->name), grad = kolo_info(b.m.g, same)->grad;
            assert_int_equal(kolo_value_ok(p->grad), kolo_value_ok(grad));
            if (!kolo_value_ok(grad)) continue;
            size_t count = (size_t)graph_eval_count(&b.e, grad);
            const double *was = graph_eval_f64(&a.e, p->grad);
            double distance = test_relative_l2_f64(graph_eval_f64(&b.e, grad), was, count);
            if (!(distance <= 1e-10)) {
                explain(&b);
                fail_msg("seed %llu, %s: folding moves the gradient by %g",
                         (unsigned long long)seed, p->name, distance);
            }
        }
        rig_destroy(&a);
        rig_destroy(&b);
    }
    assert_true(folded > GRAPHS / 4);
}

/* ---- placements ---- */

enum { SHARDS = 2, WHOLE_BATCH = 3 };
static const int64_t shard_sizes[SHARDS] = {2, 1}, shard_firsts[SHARDS] = {0, 2};

/* A graph with its gradient on a mesh of dp=`ranks`, with placements, ready to be filled. */
static void sharded_create(rig *t, uint64_t seed, int64_t batch, int ranks) {
    const kolo_mesh mesh = {1, {{"dp", ranks}}};
    t->seed = seed;
    random_graph_opts opts = {.dtype = KOLO_DTYPE_F64, .batch = batch, .only_samples = true};
    random_graph_make(&t->m, seed, &opts);
    kolo_graph *g = t->m.g;
    if (batch == 1) {
        random_graph of_two;
        opts.batch = 2;
        random_graph_make(&of_two, seed, &opts);
        kolo_graph_pair_reshapes(g, of_two.g);
        kolo_graph_destroy(of_two.g);
    }
    kolo_value scale = kolo_scalar(g, "scale");
    ASSERT_OK(kolo_pass_fold(g, true));
    ASSERT_OK(kolo_pass_shard(g, &mesh));
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), scale));
    ASSERT_OK(kolo_graph_propagate(g));
    ASSERT_OK(graph_eval_init(&t->e, g, KOLO_KERNELS_REF));
    graph_eval_f64(&t->e, scale)[0] = loss_scale;
}

/* Random numbers depend on the place of a sample in the whole batch. */
static void set_first_sample(rig *t, int64_t first) {
    const kolo_value v = kolo_graph_find(t->m.g, "first_sample");
    if (kolo_value_ok(v)) memcpy(t->e.data[v.id], &first, sizeof first);
}

/* The position of element i of the part of dimension d that begins at `first`, in the whole. */
static int64_t position(const kolo_shape *whole, const kolo_shape *part, int d, int64_t first,
                        int64_t i) {
    int64_t inner = 1;
    for (int k = d + 1; k < part->rank; k++) inner *= part->dim[k];
    int64_t row = i / inner, outer = row / part->dim[d], at = row % part->dim[d];
    return (outer * whole->dim[d] + first + at) * inner + i % inner;
}

static double element(const rig *t, int32_t v, int64_t i) {
    const void *data = t->e.data[v];
    switch (t->m.g->values[v].tensor.dtype) {
    case KOLO_DTYPE_F64:
        return ((const double *)data)[i];
    case KOLO_DTYPE_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* Compares what the shards hold of a value with the whole, by its placement. */
static void check_value(const rig *whole, const rig *shards, int32_t v, int counts[3]) {
    const kolo_value_info *all = &whole->m.g->values[v];
    const kolo_placement *p = &shards[0].m.g->values[v].placements.axis[0];
    int64_t count = kolo_shape_count(&all->tensor.shape);
    double *have = kolo_zalloc((size_t)(count + 1) * sizeof *have);
    assert_non_null(have);
    bool sharded = p->kind == KOLO_PLACEMENT_SHARDED, sum = p->kind == KOLO_PLACEMENT_PARTIAL;
    counts[sharded ? 0 : sum ? 1 : 2]++;
    for (int r = 0; r < SHARDS; r++) {
        const kolo_shape *part = &shards[r].m.g->values[v].tensor.shape;
        /* of the dimension: samples may have been merged with others */
        int64_t scale = sharded ? all->tensor.shape.dim[p->dim] / WHOLE_BATCH : 0;
        for (int64_t i = 0; i < kolo_shape_count(part); i++) {
            int64_t at =
                sharded ? position(&all->tensor.shape, part, p->dim, shard_firsts[r] * scale, i)
                        : i;
            double x = element(&shards[r], v, i);
            have[at] = sum ? have[at] + x : x;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        double want = element(whole, v, i);
        if (have[i] == want || fabs(have[i] - want) <= 1e-9 * fmax(1, fabs(want))) continue;
        explain(&shards[0]);
        fail_msg("seed %llu, value %d, element %d: %.12g of the shards, %.12g of the whole",
                 (unsigned long long)whole->seed, (int)v, (int)i, have[i], want);
    }
    kolo_free(have);
}

/* Each shard of the samples, run alone, holds of every value, forwards and backwards, what its
 * placement states. */
static void shards_hold_what_placements_state(void **state) {
    int counts[3] = {0};
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        rig whole, shards[SHARDS];
        sharded_create(&whole, seed, WHOLE_BATCH, 1);
        if (whole.m.is_param) { /* samples that are parameters are not sharded */
            rig_destroy(&whole);
            continue;
        }
        for (int r = 0; r < SHARDS; r++) {
            sharded_create(&shards[r], seed, shard_sizes[r], SHARDS);
            set_first_sample(&shards[r], shard_firsts[r]);
        }
        const kolo_graph *g = whole.m.g;
        for (int32_t v = 0; v < g->n_values; v++) {
            const kolo_value_info *info = &g->values[v];
            kolo_value value = {.id = v};
            if (is_labels(info)) {
                graph_eval_fill_labels(&whole.e, value, seed, CLASSES);
            } else if (info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_INPUT) {
                graph_eval_fill(&whole.e, value, seed ^ kolo_hash_text(info->name), 1);
            } else {
                continue;
            }
            for (int r = 0; r < SHARDS; r++) {
                const kolo_tensor *t = &shards[r].m.g->values[v].tensor;
                size_t first = 0, bytes = kolo_tensor_bytes(t);
                if (info->kind == KOLO_VALUE_INPUT) {
                    first = bytes / (size_t)shard_sizes[r] * (size_t)shard_firsts[r];
                }
                memcpy(shards[r].e.data[v], (const char *)whole.e.data[v] + first, bytes);
            }
        }
        graph_eval_run(&whole.e, g->n_nodes);
        for (int r = 0; r < SHARDS; r++) graph_eval_run(&shards[r].e, shards[r].m.g->n_nodes);
        for (int32_t v = 0; v < g->n_values; v++) {
            if (g->values[v].kind == KOLO_VALUE_TEMP) check_value(&whole, shards, v, counts);
        }
        for (int r = 0; r < SHARDS; r++) rig_destroy(&shards[r]);
        rig_destroy(&whole);
    }
    assert_true(counts[0] > 1000 && counts[1] > 500);
}

/* A flatten of a vector makes a matrix of one column, which a linear layer needs. */
static void folding_keeps_a_flatten_of_vectors(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_1(5));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 1), kolo_init_fan_in(1));
    kolo_output(g, "y", kolo_linear(g, kolo_flatten(g, x), w));
    ASSERT_OK(kolo_pass_fold(g, true));
    ASSERT_OK(kolo_graph_verify(g));
    kolo_graph_destroy(g);
}

/* What the gradient reads is kept to train, and only then. */
static void folding_keeps_what_gelu_needs(void **state) {
    for (int train = 0; train < 2; train++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(5, 7));
        kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 7), kolo_init_fan_in(7));
        kolo_value b = kolo_param(g, "b", kolo_shape_1(3), kolo_init_fan_in(7));
        kolo_output(g, "y", kolo_gelu(g, kolo_linear_bias(g, x, w, b), true));
        ASSERT_OK(kolo_pass_fold(g, train));
        ASSERT_OK(kolo_graph_verify(g));
        assert_int_equal(g->n_nodes, 1);
        assert_ptr_equal(g->nodes[0]->op, &kolo_op_linear_gelu);
        assert_int_equal(g->nodes[0]->n_out, train ? 2 : 1);
        assert_int_equal(g->nodes[0]->attr[KOLO_LINEAR_GELU_TANH].i, 1);
        assert_int_equal(kolo_graph_output(g, "y").id, g->nodes[0]->out[0].id);
        kolo_graph_destroy(g);
    }
}

/* The loss counts what it is right about, where the count is of the same logits and labels, with
 * the same ones ignored. */
static void folding_counts_with_the_loss(void **state) {
    const kolo_loss_opts ignoring = {.has_ignore_index = true, .ignore_index = 3};
    for (int c = 0; c < 4; c++) {
        const kolo_loss_opts *of_loss = c % 2 ? &ignoring : NULL;
        const kolo_loss_opts *of_count = c / 2 ? &ignoring : NULL;
        const bool folded = of_loss == of_count;
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_param(g, "x", kolo_shape_2(5, 7), kolo_init_fan_in(7));
        kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(5));
        kolo_output(g, "loss", kolo_softmax_xent_opts(g, x, y, of_loss));
        kolo_output(g, "correct", kolo_accuracy_opts(g, x, y, of_count));
        ASSERT_OK(kolo_pass_fold(g, true));
        ASSERT_OK(kolo_graph_verify(g));
        assert_int_equal(g->n_nodes, folded ? 1 : 2);
        assert_int_equal(g->nodes[0]->n_out, folded ? 3 : 2);
        assert_int_equal(kolo_graph_output(g, "correct").id,
                         folded ? g->nodes[0]->out[2].id : g->nodes[1]->out[0].id);
        kolo_graph_destroy(g);
    }
}

TEST_MAIN(test_random_graphs) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(folding_keeps_loss_and_gradients),
        cmocka_unit_test(shards_hold_what_placements_state),
        cmocka_unit_test(folding_keeps_a_flatten_of_vectors),
        cmocka_unit_test(folding_keeps_what_gelu_needs),
        cmocka_unit_test(folding_counts_with_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
