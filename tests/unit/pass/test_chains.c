/* Chains of elementwise nodes: which nodes become one, and that training with and without them has
 * the same bits; the kernels of chains, and the attributes that describe them. */
#include "base/compiler.h"
#include "base/rng.h"
#include "graph/ops/binary.h"
#include "graph/ops/chain.h"
#include "graph/ops/ops.h"
#include "kolo/session.h"
#include "pass/pass.h"
#include "support/fewer.h"
#include "support/kernel_check.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, WIDTH = 37 }; /* two pieces and a rest */

static kolo_value inputs(kolo_graph *g, int64_t samples, kolo_value *target) {
    *target = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(samples, WIDTH));
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(samples, WIDTH));
}

static kolo_value dense(kolo_graph *g, const char *name, kolo_value x) {
    return kolo_linear(g, x,
                       kolo_param(g, name, kolo_shape_2(WIDTH, WIDTH), kolo_init_fan_in(WIDTH)));
}

/* silu and mul with a linear layer between them, then a residual sum. */
static kolo_status gated(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value y, x = inputs(g, samples, &y);
    kolo_value gate = kolo_silu(g, dense(g, "gate", x)), up = dense(g, "up", x);
    kolo_value h = kolo_add(g, kolo_mul(g, gate, up), x);
    kolo_output(g, "loss", kolo_mse_loss(g, dense(g, "down", h), y));
    return KOLO_OK;
}

/* More functions than a chain has links, with more numbers than it has room for. */
static kolo_status functions(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value y, x = inputs(g, samples, &y), a = dense(g, "a", x), h = a;
    for (int i = 0; i < 3; i++) {
        h = kolo_leaky_relu(g, kolo_add_number(g, h, 0.125 * (i + 1)), 0.25 * (i + 1));
        h = kolo_tanh(g, kolo_clamp(g, h, -1.5, 1 + i));
        h = kolo_mul(g, kolo_sub(g, h, a), kolo_gelu(g, h, i % 2));
        h = kolo_relu(g, kolo_scale(g, kolo_maximum(g, h, x), 0.5));
    }
    kolo_output(g, "loss", kolo_mse_loss(g, dense(g, "b", h), y));
    return KOLO_OK;
}

/* A value that is read twice by one node, by nodes outside, and an output in the middle; what is
 * repeated along a dimension is no link. */
static kolo_status shared(kolo_graph *g, int64_t samples, void *arg) {
    kolo_value y, x = inputs(g, samples, &y), a = dense(g, "a", x);
    kolo_value square = kolo_mul(g, a, a), root = kolo_sqrt(g, kolo_add_number(g, square, 1));
    kolo_value bias = kolo_param(g, "bias", kolo_shape_1(WIDTH), (kolo_init){KOLO_INIT_ONE, 0});
    kolo_value b = dense(g, "b", root), sum = kolo_add(g, root, bias);
    kolo_output(g, "root", root);
    kolo_value h = kolo_mul(g, kolo_exp(g, kolo_scale(g, sum, -1)), kolo_div(g, a, root));
    kolo_output(g, "loss", kolo_mse_loss(g, kolo_add(g, h, b), y));
    return KOLO_OK;
}

static kolo_build *const nets[] = {gated, functions, shared};

/* ---- random nets ---- */

typedef struct maker {
    kolo_graph *g;
    kolo_rng rng;
    uint64_t draws;
    kolo_value live[48]; /* of one shape */
    int n, names;
} maker;

static int below(maker *m, int n) { return (int)kolo_rng_below(&m->rng, m->draws++, (uint64_t)n); }

static kolo_value some(maker *m) { return m->live[below(m, 3) ? m->n - 1 : below(m, m->n)]; }

static const char *name_of(maker *m, char name[16]) {
    snprintf(name, 16, "w%d", m->names++);
    return name;
}

static kolo_value some_unary(maker *m, kolo_value x) {
    kolo_graph *g = m->g;
    switch (below(m, 14)) {
    case 0:
        return kolo_tanh(g, x);
    case 1:
        return kolo_silu(g, x);
    case 2:
        return kolo_gelu(g, x, below(m, 2));
    case 3:
        return kolo_exp(g, kolo_tanh(g, x));
    case 4:
        return kolo_relu(g, x);
    case 5:
        return kolo_scale(g, x, 0.5 + below(m, 3));
    case 6:
        return kolo_add_number(g, x, 0.25 * below(m, 5));
    case 7:
        return kolo_clamp(g, x, -1, 0.5 * below(m, 4));
    case 8:
        return kolo_leaky_relu(g, x, 0.1 * below(m, 4));
    case 9:
        return kolo_softplus(g, x, 0.7);
    case 10:
        return kolo_rsqrt(g, kolo_add_number(g, kolo_square(g, x), 0.5));
    case 11:
        return kolo_dropout(g, x, 0.25);
    case 12:
        return kolo_stop_gradient(g, kolo_sigmoid(g, x));
    default:
        return kolo_hardswish(g, x);
    }
}

static kolo_value some_binary(maker *m, kolo_value a, kolo_value b) {
    switch (below(m, 5)) {
    case 0:
        return kolo_add(m->g, a, b);
    case 1:
        return kolo_sub(m->g, a, b);
    case 2:
        return kolo_maximum(m->g, a, b);
    case 3:
        return kolo_mul(m->g, kolo_tanh(m->g, a), b);
    default:
        return kolo_minimum(m->g, b, a);
    }
}

/* A value that is repeated along a dimension. */
static kolo_value repeated(maker *m, kolo_value x) {
    const int axis = 1;
    char name[16];
    if (below(m, 2)) return kolo_reduce_mean(m->g, x, &axis, 1, true);
    return kolo_param(m->g, name_of(m, name), kolo_shape_1(WIDTH), kolo_init_fan_in(4));
}

/* Elementwise nodes in any order on values of one shape, with layers, repeated values and outputs
 * among them. */
static kolo_status random_net(kolo_graph *g, int64_t samples, void *arg) {
    maker m = {.g = g, .rng = kolo_rng_make(*(const uint64_t *)arg, KOLO_RNG_TEST, 3)};
    char name[16];
    kolo_value y;
    m.live[m.n++] = inputs(g, samples, &y);
    m.live[m.n++] = dense(g, "a", m.live[0]);
    for (int steps = 8 + below(&m, 30); steps > 0; steps--) {
        const kolo_value x = some(&m);
        const int kind = below(&m, 16);
        if (kind == 0) {
            m.live[m.n++] = kolo_tanh(g, dense(g, name_of(&m, name), x));
        } else if (kind == 1) {
            m.live[m.n++] = some_binary(&m, x, repeated(&m, x));
        } else if (kind == 2) {
            kolo_output(g, name_of(&m, name), x);
        } else if (kind < 9) {
            m.live[m.n++] = some_unary(&m, x);
        } else {
            m.live[m.n++] = some_binary(&m, x, some(&m));
        }
    }
    for (int i = m.n - 3; i < m.n; i++) {
        m.live[0] = kolo_add(g, m.live[0], kolo_tanh(g, m.live[i]));
    }
    kolo_output(g, "loss", kolo_mse_loss(g, dense(g, "b", m.live[0]), y));
    return KOLO_OK;
}

/* ---- which nodes become one ---- */

static kolo_graph *passed(kolo_build *build, bool train, bool off, kolo_kernel_set kernels) {
    kolo_graph *g;
    kolo_pipeline_opts opts = {
        .train = train, .micro_batches = 1, .threads = 1, .no_chains = off, .kernels = kernels};
    ASSERT_OK(kolo_optimizer_resolve(&opts.optimizer, &opts.optimizer));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(build(g, SAMPLES, NULL));
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    return g;
}

static int chains_of(const kolo_graph *g, int *links) {
    int chains = 0;
    *links = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->op != &kolo_op_chain) continue;
        *links += kolo_chain_read(g->nodes[i]->attr).n;
        chains++;
    }
    return chains;
}

static void expect(kolo_build *build, bool train, int chains, int links) {
    int is;
    kolo_graph *g = passed(build, train, false, KOLO_KERNELS_BEST);
    const int32_t nodes = g->n_nodes;
    if (chains_of(g, &is) != chains || is != links) {
        kolo_text text = {0};
        kolo_graph_print(g, &text);
        fail_msg("%d chains of %d links:\n%s", chains_of(g, &is), is, text.text);
    }
    kolo_graph_destroy(g);
    g = passed(build, train, true, KOLO_KERNELS_BEST);
    assert_int_equal(chains_of(g, &is), 0);
    assert_int_equal(g->n_nodes - nodes, links - chains);
    kolo_graph_destroy(g);
}

static void nodes_of_one_shape_become_one(void **state) {
    expect(gated, false, 1, 3);
    expect(gated, true, 2, 5); /* silu_bwd is behind the POST of a gradient */
    expect(functions, false, 4, 30);
    expect(shared, false, 2, 8);
    int links;
    kolo_graph *g = passed(gated, true, false, KOLO_KERNELS_REF);
    assert_int_equal(chains_of(g, &links), 0);
    kolo_graph_destroy(g);
}

static void the_dump_names_the_links(void **state) {
    kolo_graph *g = passed(gated, false, false, KOLO_KERNELS_BEST);
    kolo_text text = {0};
    kolo_graph_print(g, &text);
    assert_non_null(strstr(text.text, "%8 [silu(a), mul(1,b), add(2,c)] f32 [64,37]"));
    kolo_text_fini(&text);
    kolo_graph_destroy(g);
    g = passed(functions, false, false, KOLO_KERNELS_BEST);
    kolo_graph_print(g, &text);
    assert_non_null(strstr(text.text, "offset(a by=0.125), leaky_relu(1 slope=0.25), clamp(2"));
    kolo_text_fini(&text);
    kolo_graph_destroy(g);
}

/* The passed graph of links apart and in chains: one number of operations, and fewer bytes. */
static void a_chain_costs_what_its_links_do(void **state) {
    for (size_t n = 0; n < KOLO_COUNT(nets); n++) {
        kolo_cost cost[2] = {{0, 0}, {0, 0}};
        for (int off = 0; off < 2; off++) {
            kolo_graph *g = passed(nets[n], true, off, KOLO_KERNELS_BEST);
            for (int32_t i = 0; i < g->n_nodes; i++) {
                const kolo_cost of_node = kolo_node_cost(g, g->nodes[i]);
                cost[off].flops += of_node.flops;
                cost[off].bytes += of_node.bytes;
            }
            kolo_graph_destroy(g);
        }
        assert_true(cost[0].flops > 0 && cost[0].flops == cost[1].flops);
        assert_true(cost[0].bytes < cost[1].bytes);
    }
}

/* ---- graphs made by hand ---- */

enum { BETWEEN_NONE, BETWEEN_SUM, BETWEEN_POST, BETWEEN_WAIT };

/* exp(x), a node that reads x, and tanh of the exponential; in `ops` after the pass. */
static int with_between(int between, const kolo_op *ops[3]) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(2, WIDTH));
    kolo_value h = kolo_exp(g, x);
    if (between != BETWEEN_NONE) kolo_output(g, "sum", kolo_reduce_sum(g, x, (int[]){1}, 1, false));
    kolo_output(g, "h", kolo_tanh(g, h));
    ASSERT_OK(g->status);
    if (between == BETWEEN_POST) g->nodes[1]->op = &kolo_op_post;
    if (between == BETWEEN_WAIT) g->nodes[1]->op = &kolo_op_wait;
    ASSERT_OK(kolo_pass_chains(g, &(kolo_chains_opts){.threads = 1}));
    const int n = g->n_nodes;
    for (int i = 0; i < 3; i++) ops[i] = i < n ? g->nodes[i]->op : NULL;
    kolo_graph_destroy(g);
    return n;
}

static void no_chain_extends_beyond_a_collective(void **state) {
    const kolo_op *ops[3];
    assert_int_equal(with_between(BETWEEN_NONE, ops), 1);
    assert_true(ops[0] == &kolo_op_chain);
    assert_int_equal(with_between(BETWEEN_SUM, ops), 2);
    assert_true(ops[1] == &kolo_op_chain);
    assert_int_equal(with_between(BETWEEN_POST, ops), 3);
    assert_true(ops[0] == &kolo_op_exp && ops[1] == &kolo_op_post && ops[2] == &kolo_op_tanh);
    assert_int_equal(with_between(BETWEEN_WAIT, ops), 3);
    assert_true(ops[0] == &kolo_op_exp && ops[1] == &kolo_op_wait && ops[2] == &kolo_op_tanh);
}

/* Where the slice of a divided dimension is 1, what is repeated has the shape of the result. */
static void what_is_repeated_is_no_link(void **state) {
    for (int repeats = 0; repeats < 2; repeats++) {
        kolo_graph *g;
        kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_BINARY_REPEAT_B] = {.i = repeats}};
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(1, WIDTH));
        kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(1, WIDTH));
        kolo_value in[] = {kolo_exp(g, x), y};
        kolo_output(g, "h", kolo_tanh(g, kolo_graph_add1(g, &kolo_op_sub, in, 2, attr)));
        ASSERT_OK(g->status);
        ASSERT_OK(kolo_pass_chains(g, &(kolo_chains_opts){.threads = 1}));
        assert_int_equal(g->n_nodes, repeats ? 3 : 1);
        ASSERT_OK(kolo_graph_verify(g));
        kolo_graph_destroy(g);
    }
}

/* ---- training ---- */

static kolo_field field(const char *name) {
    return (kolo_field){.name = name, .dtype = KOLO_DTYPE_F32, .shape = kolo_shape_1(WIDTH)};
}

/* All tensors after some steps, one behind the other; the caller frees them. */
static char *train(kolo_build *build, void *arg, kolo_session_opts opts, bool off, size_t *bytes) {
    enum { MOST = 1 << 18 };
    float x[SAMPLES * WIDTH], y[SAMPLES * WIDTH];
    const kolo_field fields[] = {field("x"), field("y")};
    kolo_batch batch = {.count = SAMPLES, .n_fields = 2, .fields = fields, .data = {x, y}};
    kolo_session *s;
    kolo_rng rng = kolo_rng_make(1, KOLO_RNG_TEST, 0);
    char *all = kolo_zalloc(MOST);
    opts.batch = SAMPLES / (opts.accumulate ? opts.accumulate : 1);
    opts.lr = 0.01;
    opts.no_chains = off;
    for (uint64_t i = 0; i < SAMPLES * WIDTH; i++) {
        x[i] = (float)kolo_rng_normal(&rng, 2 * i);
        y[i] = (float)kolo_rng_normal(&rng, 2 * i + 1);
    }
    ASSERT_OK(kolo_session_create(NULL, &opts, build, arg, &s));
    for (int step = 0; step < 3; step++) {
        kolo_metrics metrics;
        batch.count = step == 2 ? SAMPLES / 2 + 1 : SAMPLES;
        ASSERT_OK(kolo_session_step(s, &batch, &metrics));
        const double loss = metrics.value[KOLO_METRIC_LOSS];
        assert_true(isfinite(loss));
        memcpy(all + (size_t)step * sizeof loss, &loss, sizeof loss);
    }
    *bytes = 64;
    kolo_field tensor;
    for (int i = 0; kolo_session_tensor(s, i, &tensor) == KOLO_OK; i++) {
        const size_t size = (size_t)kolo_shape_count(&tensor.shape) * sizeof(float);
        assert_true(*bytes + size <= MOST);
        ASSERT_OK(kolo_session_get(s, tensor.name, all + *bytes, size));
        *bytes += size;
    }
    kolo_session_destroy(s);
    return all;
}

static const kolo_session_opts ways[] = {
    {.threads = 1},
    {.threads = 2, .accumulate = 4},
    {.threads = 1, .precision = KOLO_PRECISION_BF16},
    {.threads = 1, .recompute = KOLO_RECOMPUTE_CHEAP},
};

static void compare(kolo_build *build, void *arg, const kolo_session_opts *opts, int net) {
    size_t bytes, want_bytes;
    char *is = train(build, arg, *opts, false, &bytes);
    char *want = train(build, arg, *opts, true, &want_bytes);
    assert_int_equal(bytes, want_bytes);
    if (memcmp(is, want, bytes) != 0)
        fail_msg("net %d differs with options %d", net, (int)(opts - ways));
    kolo_free(is);
    kolo_free(want);
}

static bool can_run(const kolo_session_opts *opts) {
    return opts->precision != KOLO_PRECISION_BF16 || kolo_isa_best() != KOLO_ISA_BASELINE;
}

static void training_has_the_same_bits(void **state) {
    for (size_t n = 0; n < KOLO_COUNT(nets); n++) {
        for (size_t o = 0; o < KOLO_COUNT(ways); o++) {
            if (can_run(&ways[o])) compare(nets[n], NULL, &ways[o], (int)n);
        }
    }
}

static void random_nets_train_with_the_same_bits(void **state) {
    const uint64_t count = getenv("KOLO_SOAK") ? 1000 : TEST_FEWER(8, 24);
    for (uint64_t seed = 0; seed < count; seed++) {
        const kolo_session_opts *opts = &ways[seed % KOLO_COUNT(ways)];
        if (can_run(opts)) compare(random_net, &seed, opts, (int)seed);
    }
}

/* Several ranks: stages, divided layers, divided updates that reach into the next step, experts. */
static void ranks_train_with_the_same_bits(void **state) {
#define TOKENS "synthetic-tokens:N=16,test=2"
#define SIZES "layers=2,width=16,heads=2,context=8,vocab=50"
    static const struct {
        const char *mesh, *model, *options, *data, *pipeline;
        int ranks, zero;
    } jobs[] = {
        {"pp=2", "llama_tiny", SIZES, TOKENS, "zbv", 2, 0},
        {"tp=2", "llama_tiny", SIZES, TOKENS, NULL, 2, 0},
        {"sp=2", "llama_tiny", SIZES, TOKENS, NULL, 2, 0},
        {"tp=2", "dlrm", "tables=5,rows=8,dim=4,dense=3,bottom1=6,bottom2=0,bottom3=0,top1=7",
         "synthetic-clicks:N=16,test=2", NULL, 2, 0},
        {"dp=2", "llama_tiny", SIZES, TOKENS, NULL, 2, 1},
        {"dp=2,ep=2", "gpt2_moe", SIZES ",experts=4", TOKENS, NULL, 4, 0},
    };
#undef SIZES
#undef TOKENS
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = {
            .model = jobs[i].model,
            .model_options = jobs[i].options,
            .data = jobs[i].data,
            .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
            .lr = 0.01,
            .global_batch = 8,
            .accumulate = jobs[i].pipeline ? 2 : 0,
            .steps = 3,
            .epochs = 2,
            .mesh = jobs[i].mesh,
            .pipeline = jobs[i].pipeline,
            .zero = jobs[i].zero,
        };
        const kolo_train_result is = train_well(jobs[i].ranks, &opts);
        opts.no_chains = true;
        const kolo_train_result want = train_well(jobs[i].ranks, &opts);
        assert_same_run(jobs[i].mesh, &is, &want);
    }
}

/* ---- the op ---- */

/* exp(a), which others read, and (b - exp(a)) c. */
static kolo_chain example(void) {
    kolo_chain chain = {
        .n = 3,
        .link = {{&kolo_op_exp, KOLO_DTYPE_F32, 1, {0}, 1, {{0}}},
                 {&kolo_op_sub, KOLO_DTYPE_F32, 2, {1, KOLO_MAX_IO}, -1, {{0}}},
                 {&kolo_op_mul, KOLO_DTYPE_F32, 2, {KOLO_MAX_IO + 1, 2}, 0, {{0}}}}};
    return chain;
}

static void attributes_describe_a_chain(void **state) {
    kolo_chain chain = example();
    kolo_attr attr[KOLO_MAX_ATTRS];
    chain.link[0] =
        (kolo_chain_link){&kolo_op_clamp, KOLO_DTYPE_BF16, 1, {7}, 7, {{.f = -0.1}, {.f = 1e300}}};
    chain.link[1].attr[1].f = -0.1;
    assert_true(kolo_chain_write(&chain, attr));
    const kolo_chain read = kolo_chain_read(attr);
    assert_int_equal(read.n, 3);
    for (int l = 0; l < 3; l++) {
        const kolo_chain_link *is = &read.link[l], *want = &chain.link[l];
        assert_true(is->op == want->op && is->dtype == want->dtype && is->n_in == want->n_in);
        assert_int_equal(is->out, want->out);
        for (int k = 0; k < want->n_in; k++) assert_int_equal(is->in[k], want->in[k]);
        for (int k = 0; k < KOLO_LINK_ATTRS; k++) {
            assert_true(is->attr[k].i == want->attr[k].i);
        }
    }
    chain.link[0].attr[0].f = 1;
    chain.link[1].attr[0].f = 2;
    chain.link[2].attr[0].f = 3;
    assert_false(kolo_chain_write(&chain, attr)); /* 1, 1e300, 2, -0.1, 3 */
}

static void kernels(int threads) {
    static const int64_t sizes[] = {1, 7, 1024, 3 * 1024 + 5};
    kolo_chain chain = example();
    kolo_attr attr[KOLO_MAX_ATTRS];
    assert_true(kolo_chain_write(&chain, attr));
    for (size_t i = 0; i < KOLO_COUNT(sizes); i++) {
        const kolo_shape shape = kolo_shape_2(1, sizes[i]), shapes[] = {shape, shape, shape};
        kolo_kernel_spec spec;
        test_kernel_spec(&spec, &kolo_op_chain, attr, 3, shapes, NULL, 2, NULL, threads);
        test_kernel_against_reference(test_kernel("simd_chain"), &spec, 1e-6);
    }
}

static void kernels_agree_with_the_reference(void **state) { test_each_set(kernels); }

static void the_reference_is_arithmetic(void **state) {
    const float a[] = {0, 1, -1}, b[] = {3, 0.5F, 2}, c[] = {2, -4, 0.25F};
    const void *in[] = {a, b, c};
    const kolo_shape shapes[] = {kolo_shape_1(3), kolo_shape_1(3), kolo_shape_1(3)};
    kolo_chain chain = example();
    kolo_attr attr[KOLO_MAX_ATTRS];
    kolo_kernel_spec spec;
    assert_true(kolo_chain_write(&chain, attr));
    test_kernel_spec(&spec, &kolo_op_chain, attr, 3, shapes, NULL, 2, NULL, 1);
    float *y = test_kernel_result_on(test_kernel("ref_chain"), &spec, in);
    for (int k = 0; k < 3; k++) {
        assert_true(fabsf(y[k] - (b[k] - expf(a[k])) * c[k]) <= 1e-6F * fabsf(y[k]));
    }
    kolo_free(y);
}

static void links_read_what_is_there(void **state) {
    kolo_chain chain = example();
    kolo_attr attr[KOLO_MAX_ATTRS];
    const kolo_tensor f32 = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_1(3)),
                      in[] = {f32, f32, f32};
    kolo_tensor out[KOLO_MAX_IO];
    kolo_shape_query q = {.attr = attr, .n_in = 2, .in = in, .out = out, .op = &kolo_op_chain};
    assert_true(kolo_chain_write(&chain, attr));
    assert_int_equal(kolo_op_chain.shape(&q), KOLO_ERR_ARG); /* input 2 */
    q.n_in = 3;
    ASSERT_OK(kolo_op_chain.shape(&q));
    assert_int_equal(q.n_out, 2);
    chain.link[1].in[1] = KOLO_MAX_IO + 1; /* itself */
    assert_true(kolo_chain_write(&chain, attr));
    assert_int_equal(kolo_op_chain.shape(&q), KOLO_ERR_ARG);
}

TEST_MAIN(test_chains) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_one_shape_become_one),
        cmocka_unit_test(the_dump_names_the_links),
        cmocka_unit_test(a_chain_costs_what_its_links_do),
        cmocka_unit_test(no_chain_extends_beyond_a_collective),
        cmocka_unit_test(what_is_repeated_is_no_link),
        cmocka_unit_test(training_has_the_same_bits),
        cmocka_unit_test(random_nets_train_with_the_same_bits),
        cmocka_unit_test(ranks_train_with_the_same_bits),
        cmocka_unit_test(attributes_describe_a_chain),
        cmocka_unit_test(kernels_agree_with_the_reference),
        cmocka_unit_test(the_reference_is_arithmetic),
        cmocka_unit_test(links_read_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
