/* Placements of data parallelism: which values are shards, summands and equal on all ranks; what is
 * added where a sum mixes them; and that the verifier finds every redistribution that is missing,
 * doubled or of the wrong kind. */
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "kolo/models.h"
#include "pass/partition/recurrence.h"
#include "pass/partition/rules.h"
#include "pass/pass.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

static const kolo_mesh dp3 = {1, {{"dp", 3}}};

static kolo_graph *build(const char *name, const char *options, kolo_shape sample) {
    const kolo_model *model;
    kolo_graph *g;
    kolo_model_opts opts = {.batch = 4, .sample = sample, .classes = 10, .options = options};
    ASSERT_OK(kolo_model_find(name, &model));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(model->build(g, &opts));
    return g;
}

static kolo_pipeline_opts training(void) {
    return (kolo_pipeline_opts){.train = true,
                                .optimizer = {.momentum = 0.9, .clip = 1},
                                .mesh = dp3,
                                .kernels = KOLO_KERNELS_REF,
                                .bucket_bytes = 1 << 16};
}

static kolo_placement_kind kind_of(const kolo_graph *g, kolo_value v) {
    return kolo_info(g, v)->placements.axis[0].kind;
}

static kolo_value value_named(kolo_graph *g, const char *name) {
    kolo_value v = kolo_graph_find(g, name);
    assert_true(kolo_value_ok(v));
    return v;
}

static void placements_follow_from_the_recipe(void **state) {
    kolo_graph *g = build("resnet20", "width=4", (kolo_shape){3, {3, 32, 32}});
    kolo_pipeline_opts opts = training();
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    assert_int_equal(kind_of(g, value_named(g, "x")), KOLO_PLACEMENT_SHARDED);
    assert_int_equal(kind_of(g, value_named(g, "conv1.weight")), KOLO_PLACEMENT_INVARIANT);
    assert_int_equal(kind_of(g, value_named(g, "share")), KOLO_PLACEMENT_PARTIAL);
    assert_int_equal(kind_of(g, value_named(g, "lr")), KOLO_PLACEMENT_INVARIANT);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (!kolo_value_ok(g->values[v].grad)) continue;
        assert_int_equal(kind_of(g, g->values[v].grad), KOLO_PLACEMENT_PARTIAL);
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op == &kolo_op_batch_norm) {
            assert_int_equal(kind_of(g, n->out[0]), KOLO_PLACEMENT_SHARDED);
            assert_int_equal(kind_of(g, n->out[1]), KOLO_PLACEMENT_LOCAL);
        }
        assert_true(n->op->comm != KOLO_OP_REDISTRIBUTE);
        if (kolo_node_is_update(g, n)) {
            assert_int_equal(kind_of(g, n->out[0]), KOLO_PLACEMENT_INVARIANT);
        }
    }
    kolo_graph_destroy(g);
}

/* ---- the verifier ---- */

/* Sharded, differentiated and synchronized, but not lowered. */
static kolo_graph *synchronized(const char *model, const char *options, kolo_shape sample) {
    kolo_graph *g = build(model, options, sample);
    const kolo_optimizer_opts sgd = {.momentum = 0.9};
    ASSERT_OK(kolo_pass_shard(g, &dp3));
    ASSERT_OK(kolo_pass_statistics(g));
    kolo_value seed = kolo_scalar(g, "grad_scale");
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), seed));
    ASSERT_OK(kolo_pass_optimizer(g, &sgd));
    ASSERT_OK(kolo_graph_prune(g));
    ASSERT_OK(kolo_pass_synchronize(g));
    ASSERT_OK(kolo_graph_propagate(g));
    return g;
}

static void redirect(kolo_graph *g, kolo_value old, kolo_value by) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k].id == old.id) g->nodes[i]->in[k] = by;
        }
    }
}

static bool is_read_by_a_node(const kolo_graph *g, kolo_value v) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k].id == v.id) return true;
        }
    }
    return false;
}

static void every_missing_redistribution_is_found(void **state) {
    static const struct {
        const char *model, *options;
        kolo_shape sample;
    } nets[] = {
        {"resnet20", "width=4", {3, {3, 32, 32}}},
        {"gpt2_tiny", "", {1, {16}}},
        {"lstm_lm", "width=8,hidden=8", {1, {6}}},
    };
    int found = 0;
    for (size_t k = 0; k < KOLO_COUNT(nets); k++) {
        kolo_graph *g = synchronized(nets[k].model, nets[k].options, nets[k].sample);
        for (int32_t i = 0; i < g->n_nodes; i++) {
            kolo_node *n = g->nodes[i];
            if (n->op != &kolo_op_redistribute || !is_read_by_a_node(g, n->out[0])) continue;
            const kolo_value source = n->in[0], result = n->out[0];
            redirect(g, result, source); /* missing */
            n->in[0] = source;
            assert_int_equal(kolo_graph_propagate(g), KOLO_ERR_ARG);
            redirect(g, source, result);
            n->in[0] = source;
            for (int32_t m = 0; m < i; m++) { /* those before it read the source itself */
                for (int j = 0; j < g->nodes[m]->n_in; j++) {
                    if (g->nodes[m]->in[j].id == result.id) g->nodes[m]->in[j] = source;
                }
            }
            ASSERT_OK(kolo_graph_propagate(g));
            const kolo_redistribution *move = n->move;
            const kolo_redistribution twice = {.from = move->to, .to = move->to};
            n->move = &twice; /* its source is a summand, not whole */
            assert_int_equal(kolo_graph_propagate(g), KOLO_ERR_FORMAT);
            n->move = move;
            found++;
        }
        ASSERT_OK(kolo_graph_propagate(g));
        kolo_graph_destroy(g);
    }
    assert_true(found > 50);
}

/* Sharded over a mesh with all that strategies insert, and not lowered; of a rank. */
static kolo_graph *divided_on(int rank, const char *model, const char *options, kolo_shape sample,
                              const char *text, const char *placement, int zero) {
    kolo_graph *g = build(model, options, sample);
    g->rank = rank;
    kolo_mesh mesh;
    const kolo_optimizer_opts lamb = {.kind = KOLO_OPTIMIZER_LAMB, .clip = 1};
    ASSERT_OK(kolo_mesh_parse(text, 0, &mesh));
    ASSERT_OK(kolo_pass_fold(g, true));
    kolo_value seed = kolo_scalar(g, "grad_scale");
    ASSERT_OK(kolo_pass_shard(g, &mesh));
    if (kolo_mesh_divides_layers(&mesh)) {
        ASSERT_OK(kolo_pass_partition(g, kolo_placement_rules(placement), false));
    }
    ASSERT_OK(kolo_pass_statistics(g));
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), seed));
    ASSERT_OK(kolo_pass_optimizer(g, &lamb));
    ASSERT_OK(kolo_graph_prune(g));
    const kolo_zero_opts opts = {.level = zero, .bucket_bytes = 1 << 12};
    if (zero > 0) ASSERT_OK(kolo_pass_zero(g, &opts));
    ASSERT_OK(kolo_pass_synchronize(g));
    ASSERT_OK(kolo_graph_propagate(g));
    ASSERT_OK(kolo_pass_ring(g));
    ASSERT_OK(kolo_pass_recurrence(g));
    ASSERT_OK(kolo_graph_verify(g));
    ASSERT_OK(kolo_graph_propagate(g));
    return g;
}

static kolo_graph *divided(const char *model, const char *options, kolo_shape sample,
                           const char *text, const char *placement, int zero) {
    return divided_on(0, model, options, sample, text, placement, zero);
}

/* What the pipeline checks after each pass. */
static bool is_found(kolo_graph *g) {
    if (kolo_graph_verify(g) != KOLO_OK || kolo_graph_propagate(g) != KOLO_OK) return true;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_placements *is = &kolo_info(g, g->outputs[i].value)->placements;
        if (!kolo_placements_same_data(&g->mesh, is, &(kolo_placements){0})) return true;
    }
    return false;
}

/* Takes node i out, or puts it back: who reads its output reads its input. */
typedef struct removal {
    kolo_value value, result;
    int32_t readers[512]; /* node * KOLO_MAX_IO + input, or -1 - output */
    int n;
    kolo_value next_of[2];
} removal;

static void swap_readers(kolo_graph *g, const removal *r, kolo_value by) {
    for (int i = 0; i < r->n; i++) {
        const int32_t at = r->readers[i];
        if (at < 0) {
            g->outputs[-1 - at].value = by;
        } else {
            g->nodes[at / KOLO_MAX_IO]->in[at % KOLO_MAX_IO] = by;
        }
    }
}

static void take_out(kolo_graph *g, const kolo_node *n, removal *r) {
    *r = (removal){.value = n->in[0], .result = n->out[0]};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            if (g->nodes[i]->in[k].id != r->result.id) continue;
            assert_true(r->n < (int)KOLO_COUNT(r->readers));
            r->readers[r->n++] = i * KOLO_MAX_IO + k;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == r->result.id) r->readers[r->n++] = -1 - i;
    }
    swap_readers(g, r, r->value);
    r->next_of[0] = kolo_info(g, r->value)->next_of;
    r->next_of[1] = kolo_info(g, r->result)->next_of;
    if (!kolo_value_ok(r->next_of[1])) return;
    kolo_info(g, r->value)->next_of = r->next_of[1];
    kolo_info(g, r->result)->next_of = KOLO_NONE;
}

static void put_back(kolo_graph *g, const removal *r) {
    swap_readers(g, r, r->result);
    kolo_info(g, r->value)->next_of = r->next_of[0];
    kolo_info(g, r->result)->next_of = r->next_of[1];
}

/* Of every strategy: without any one redistribution that moves data, the graph is refused. */
static void no_strategy_goes_without_a_redistribution(void **state) {
    static const struct {
        const char *model, *options;
        kolo_shape sample;
        const char *mesh, *placement;
        int zero;
    } cases[] = {
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "dp=2,tp=2", NULL, 0},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "dp=2,tp=2", "megatron-sp", 0},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "dp=2,sp=2", NULL, 0},
        {"gpt2_moe", "layers=1,width=32,heads=4", {1, {16}}, "dp=2,ep=2", NULL, 0},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "tp=2,sp=2,dp=2", NULL, 0},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {18}}, "dp=2,sp=4", "ring", 0},
        {"bert_tiny", "layers=1,width=32,heads=4,context=16", {1, {16}}, "tp=2,sp=4", "ring", 0},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {17}}, "dp=2,sp=2", "zigzag", 0},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "dp=2,tp=2", "megatron-sp", 1},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "dp=3", NULL, 1},
        {"gpt2_tiny", "layers=1,width=32,heads=4", {1, {16}}, "dp=3", NULL, 3},
        {"bert_tiny", "layers=1,width=32,heads=4,context=16", {1, {16}}, "dp=2,tp=2", NULL, 0},
        {"alexnet", "width=4,units=24", {3, {3, 63, 63}}, "dp=2,tp=2", NULL, 0},
        {"resnet20", "width=4", {3, {3, 8, 8}}, "dp=2,tp=2", NULL, 0},
        {"lstm_lm", "width=8,hidden=8", {1, {6}}, "dp=2,tp=2", NULL, 1},
        {"lstm_lm", "width=8,hidden=8", {1, {7}}, "sp=2,dp=2,tp=2", NULL, 0},
    };
    (void)state;
    for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
        kolo_graph *g = divided(cases[c].model, cases[c].options, cases[c].sample, cases[c].mesh,
                                cases[c].placement, cases[c].zero);
        int found = 0;
        for (int32_t i = 0; i < g->n_nodes; i++) {
            const kolo_node *n = g->nodes[i];
            if (n->op != &kolo_op_redistribute) continue;
            if (kolo_placements_same_data(&g->mesh, &n->move->from, &n->move->to)) continue;
            removal r;
            take_out(g, n, &r);
            if (r.n > 0 || kolo_value_ok(r.next_of[1])) {
                if (!is_found(g)) {
                    kolo_text line = {0};
                    kolo_node_print(g, n, &line);
                    fail_msg("%s, %s: not missed: %s", cases[c].model, cases[c].mesh, line.text);
                }
                found++;
            }
            put_back(g, &r);
        }
        ASSERT_OK(kolo_graph_verify(g));
        assert_false(is_found(g));
        assert_true(found > 10);
        kolo_graph_destroy(g);
    }
}

/* What goes round a ring is gathered right before it is sent, also in the backward pass, whose keys
 * have been there since the forward pass: they would take memory in between. */
static void keys_are_gathered_when_they_are_sent(void **state) {
    static const kolo_bucket_sizes one_each = {.least = 1};
    kolo_graph *g = divided("gpt2_tiny", "layers=3,width=32,heads=4", (kolo_shape){1, {16}},
                            "dp=1,sp=2", "ring", 0);
    int sent = 0;
    (void)state;
    ASSERT_OK(kolo_pass_lower_comm(g, &one_each, SIZE_MAX, false, false));
    ASSERT_OK(kolo_graph_verify(g));
    for (int32_t i = 3; i < g->n_nodes; i++) {
        if (g->nodes[i]->op != &kolo_op_post) continue;
        const int32_t made = kolo_info(g, g->nodes[i]->in[0])->producer;
        if (made < 0 || g->nodes[made]->op != &kolo_op_concat) continue;
        assert_int_equal(made, i - 1);
        for (int k = 0; k < g->nodes[made]->n_in; k++) {
            assert_true(kolo_info(g, g->nodes[made]->in[k])->producer >= i - 3);
        }
        sent++;
    }
    assert_int_equal(sent, 6); /* of 3 layers, in both passes */
    kolo_graph_destroy(g);
}

/* The operations of attention on a rank of four. */
static double attention_of(int rank, const char *placement) {
    kolo_graph *g = divided_on(rank, "gpt2_tiny", "layers=2,width=32,heads=4",
                               (kolo_shape){1, {16}}, "dp=1,sp=4", placement, 0);
    double flops = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
        const kolo_node *n = g->nodes[i];
        if (strncmp(n->op->name, "attention", 9) != 0) continue;
        kolo_shape_query q = kolo_node_query(g, n, in, out);
        flops += n->op->cost(&q).flops;
    }
    kolo_graph_destroy(g);
    return flops;
}

/* Causal attention on a ring: with a range of positions each, the rank i of S computes i + 1/2
 * blocks; with two ranges of a zigzag all compute S / 2. */
static void a_zigzag_divides_causal_attention_evenly(void **state) {
    const double half = attention_of(0, "ring"); /* a block */
    (void)state;
    assert_true(half > 0);
    for (int rank = 0; rank < 4; rank++) {
        assert_true(fabs(attention_of(rank, "ring") / half - (2 * rank + 1)) < 1e-9);
        assert_true(fabs(attention_of(rank, "zigzag") / half - 4) < 1e-9);
    }
}

/* Every rank of a zigzag has positions, or each has one range. */
static void a_zigzag_of_few_positions_is_a_ring(void **state) {
    (void)state;
    for (int64_t tokens = 6; tokens < 9; tokens++) {
        kolo_graph *g = divided_on(3, "gpt2_tiny", "layers=1,width=32,heads=4",
                                   (kolo_shape){1, {tokens}}, "dp=1,sp=4", "zigzag", 0);
        const int sp = kolo_mesh_find(&g->mesh, "sp");
        int zigzags = 0, slices = 0;
        for (int32_t v = 0; v < g->n_values; v++) {
            const kolo_placement *p = &g->values[v].placements.axis[sp];
            slices += p->kind == KOLO_PLACEMENT_SHARDED;
            zigzags += p->kind == KOLO_PLACEMENT_SHARDED && p->zigzag;
        }
        assert_true(slices > 20);
        assert_int_equal(zigzags, tokens < 7 ? 0 : slices);
        kolo_graph_destroy(g);
    }
}

/* ---- sums of unlike addends ---- */

/* A loss over samples plus a parameter: as a penalty would be. */
static kolo_graph *with_penalty(void) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(4));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(5, 3), kolo_init_fan_in(3));
    kolo_value p = kolo_param(g, "p", kolo_shape_0(), (kolo_init){KOLO_INIT_ONE, 0});
    kolo_value loss = kolo_softmax_xent(g, kolo_linear(g, x, w), y);
    kolo_output(g, "loss", kolo_add(g, kolo_mul(g, p, p), loss));
    return g;
}

static void a_penalty_is_counted_once(void **state) {
    kolo_graph *g = with_penalty();
    kolo_pipeline_opts opts = training();
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    kolo_value once = value_named(g, "once");
    assert_int_equal(kind_of(g, once), KOLO_PLACEMENT_PARTIAL);
    kolo_value p = value_named(g, "p");
    assert_int_equal(kind_of(g, kolo_info(g, p)->grad), KOLO_PLACEMENT_PARTIAL);
    kolo_graph_destroy(g);
}

static void what_cannot_be_sharded_is_named(void **state) {
    kolo_graph *g = with_penalty();
    kolo_value loss = kolo_graph_output(g, "loss");
    g->n_outputs = 0;
    kolo_output(g, "loss", kolo_mul(g, loss, loss)); /* a square of a sum is no sum of squares */
    kolo_pipeline_opts opts = training();
    assert_int_equal(kolo_pipeline_run(g, &opts), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "cannot be sharded"));
    assert_non_null(strstr(kolo_last_error(), "dp:partial"));
    assert_non_null(strstr(kolo_last_error(), "mul"));
    kolo_graph_destroy(g);
}

/* A parameter for each sample of a rank is none that ranks share. One rank may train it. */
static void one_rank_trains_any_model(void **state) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        kolo_graph *g;
        kolo_pipeline_opts opts = training();
        opts.mesh.axes[0].size = ranks;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
        kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(4));
        kolo_value w = kolo_param(g, "offset", kolo_shape_2(4, 3), kolo_init_fan_in(3));
        kolo_output(g, "loss", kolo_softmax_xent(g, kolo_add(g, x, w), y));
        kolo_status status = kolo_pipeline_run(g, &opts);
        assert_int_equal(status, ranks == 1 ? KOLO_OK : KOLO_ERR_ARG);
        if (ranks > 1) assert_non_null(strstr(kolo_last_error(), "offset"));
        kolo_graph_destroy(g);
    }
}

/* ---- ops along the samples ---- */

static kolo_value column(kolo_graph *g, kolo_value x) {
    return kolo_reshape(g, x, kolo_shape_3(1, kolo_value_shape(g, x).dim[0], 3));
}
static kolo_value softmax_of_samples(kolo_graph *g, kolo_value x) { return kolo_softmax(g, x, 0); }
static kolo_value logarithm_of_that(kolo_graph *g, kolo_value x) {
    return kolo_log_softmax(g, x, 0);
}
static kolo_value softmax_of_planes(kolo_graph *g, kolo_value x) {
    return kolo_softmax(g, kolo_reshape(g, x, kolo_shape_3(4, 3, 1)), 0);
}
static kolo_value padded(kolo_graph *g, kolo_value x) { return kolo_pad(g, x, 0, 1, 1); }
static kolo_value first_sample(kolo_graph *g, kolo_value x) { return kolo_slice(g, x, 0, 0, 1); }
static kolo_value flipped(kolo_graph *g, kolo_value x) { return kolo_flip(g, x, 0); }
static kolo_value largest(kolo_graph *g, kolo_value x) {
    return kolo_reduce_max(g, x, (const int[]){0}, 1, false);
}
static kolo_value mean(kolo_graph *g, kolo_value x) {
    return kolo_reduce_mean(g, x, (const int[]){0}, 1, false);
}
static kolo_value mean_of_column(kolo_graph *g, kolo_value x) {
    return kolo_reduce_mean(g, column(g, x), (const int[]){1}, 1, false);
}
static kolo_value largest_of_column(kolo_graph *g, kolo_value x) {
    return kolo_reduce_max(g, column(g, x), (const int[]){1}, 1, false);
}
static kolo_value sum_of_row(kolo_graph *g, kolo_value x) {
    return kolo_reduce_sum(g, kolo_reshape(g, x, kolo_shape_2(1, 12)), (const int[]){1}, 1, false);
}
static kolo_value products(kolo_graph *g, kolo_value x) {
    return kolo_matmul(g, column(g, x), column(g, x), false, true);
}
static kolo_value there_and_back(kolo_graph *g, kolo_value x) {
    return kolo_reshape(g, kolo_tanh(g, column(g, x)), kolo_value_shape(g, x));
}
static kolo_value as_planes(kolo_graph *g, kolo_value x) {
    return kolo_reshape(g, kolo_softmax(g, kolo_reshape(g, x, kolo_shape_3(2, 2, 3)), 2),
                        kolo_shape_2(4, 3));
}

/* The status of a pipeline with a loss of the squares of y, of samples [4,3]. */
static kolo_status run_along(kolo_value (*y)(kolo_graph *g, kolo_value x),
                             const kolo_pipeline_opts *opts) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(4, 3));
    kolo_value w = kolo_param(g, "w", kolo_shape_1(3), kolo_init_fan_in(3));
    kolo_value of = y(g, kolo_mul(g, x, w));
    kolo_output(g, "loss", kolo_sum(g, kolo_mul(g, of, of)));
    const kolo_status status = kolo_pipeline_run(g, opts);
    kolo_graph_destroy(g);
    return status;
}

/* An op that needs all samples runs on one rank, unless its step is divided even so. A leading 1 is
 * not taken for the samples. */
static void ops_along_the_samples_need_all_of_them(void **state) {
    static const struct {
        kolo_value (*y)(kolo_graph *g, kolo_value x);
        const char *refused;
    } cases[] = {
        {softmax_of_samples, "the op needs this dimension whole"},
        {logarithm_of_that, "the op needs this dimension whole"},
        {softmax_of_planes, "the op needs this dimension whole"},
        {padded, "the op needs this dimension whole"},
        {first_sample, "each part of the dimension has to be sharded"},
        {flipped, "the op needs this dimension whole"},
        {largest, "the op needs this dimension whole"},
        {mean, "the op needs this dimension whole"},
        {mean_of_column, "the op needs this dimension whole"},
        {largest_of_column, "the op needs this dimension whole"},
        {sum_of_row, "a product of two sums is no sum"},
        {products, "it has to be whole beside the sharded inputs"},
        {there_and_back, NULL},
        {as_planes, NULL},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_pipeline_opts opts = training();
        kolo_pipeline_opts one = training();
        one.mesh.axes[0].size = 1;
        ASSERT_OK(run_along(cases[i].y, &one));
        kolo_pipeline_opts parts = one, shards = one;
        opts.mesh.axes[0].size = 2;
        parts.micro_batches = 2;
        shards.by_shard = true;
        if (cases[i].refused) {
            ASSERT_REFUSED(run_along(cases[i].y, &opts), cases[i].refused);
            ASSERT_REFUSED(run_along(cases[i].y, &parts), cases[i].refused);
            ASSERT_REFUSED(run_along(cases[i].y, &parts), "micro-batches (accumulate) divide");
            ASSERT_REFUSED(run_along(cases[i].y, &shards), "logical shards (reproducible) divide");
        } else {
            ASSERT_OK(run_along(cases[i].y, &opts));
            ASSERT_OK(run_along(cases[i].y, &parts));
            ASSERT_OK(run_along(cases[i].y, &shards));
        }
    }
}

TEST_MAIN(test_shard) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placements_follow_from_the_recipe),
        cmocka_unit_test(every_missing_redistribution_is_found),
        cmocka_unit_test(no_strategy_goes_without_a_redistribution),
        cmocka_unit_test(keys_are_gathered_when_they_are_sent),
        cmocka_unit_test(a_zigzag_divides_causal_attention_evenly),
        cmocka_unit_test(a_zigzag_of_few_positions_is_a_ring),
        cmocka_unit_test(a_penalty_is_counted_once),
        cmocka_unit_test(what_cannot_be_sharded_is_named),
        cmocka_unit_test(one_rank_trains_any_model),
        cmocka_unit_test(ops_along_the_samples_need_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
