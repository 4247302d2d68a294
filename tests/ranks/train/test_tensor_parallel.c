/* Tensor and context parallelism: the ranks of any mesh compute what one rank does, in f64 with the
 * reference kernels to rounding: losses and parameters, with dropout, clipping, norms of whole
 * tensors, accumulation, tied weights, uneven slices. */
#include "base/isa.h"
#include "graph/ops/ops.h"
#include "kolo/session.h"
#include "pass/partition/rules.h"
#include "plan/internal.h"
#include "support/folder.h"
#include "support/mesh_run.h"
#include "support/small_resnet.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = MESH_STEPS, TOKENS = 6, WIDTH = 24, WORDS = 11, SAMPLES = 4 };

typedef struct setting {
    char mesh[32];
    int ranks, heads; /* no heads: a convolutional network */
    int64_t hidden, micro_batches;
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    int64_t samples;       /* of a micro-batch; 0: SAMPLES */
    const char *placement; /* a name, or rules; NULL: the built-in rules */
    int kv_heads;          /* with rotary positions; 0: none, and as many as queries */
    bool masked;           /* attention has a mask of keys */
} setting;

/* ---- the model ---- */

static kolo_value linear(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    kolo_value w = kolo_param(g, text, kolo_shape_2(out, in), kolo_init_fan_in(in));
    snprintf(text, sizeof text, "%s.bias", name);
    kolo_value b = kolo_param(g, text, kolo_shape_1(out), (kolo_init){KOLO_INIT_UNIFORM, 0.3});
    return kolo_linear_bias(g, x, w, b);
}

/* Convolutions of some samples, then linear layers of all of them, with dropout on both sides of
 * each border. */
static kolo_status build_images(kolo_graph *g, int64_t n, const setting *s) {
    enum { SIZE = 6, CHANNELS = 5 };
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_4(n, 2, SIZE, SIZE));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w =
        kolo_param(g, "features.0.weight", kolo_shape_4(CHANNELS, 2, 3, 3), kolo_init_fan_in(9));
    kolo_value b = kolo_param(g, "features.0.bias", kolo_shape_1(CHANNELS), kolo_init_fan_in(9));
    kolo_value h =
        kolo_bias(g, kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1}), b);
    h = kolo_max_pool2d(
        g, kolo_relu(g, h),
        &(kolo_pool2d_opts){.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2});
    h = kolo_dropout(g, kolo_flatten(g, h), 0.2);
    h = kolo_relu(g, linear(g, "classifier.1", h, CHANNELS * SIZE * SIZE / 4, s->hidden));
    h = kolo_relu(g, linear(g, "classifier.4", kolo_dropout(g, h, 0.3), s->hidden, WIDTH));
    h = linear(g, "classifier.6", kolo_dropout(g, h, 0.1), WIDTH, WORDS);
    const kolo_init init = {KOLO_INIT_UNIFORM, 1};
    const kolo_loss_opts weighted = {
        .weights = kolo_exp(g, kolo_frozen_param(g, "weights", kolo_shape_1(WORDS), init)),
        .use_weights = true,
        .smoothing = 0.1};
    const bool shards = s->placement && strstr(s->placement, "classifier.6");
    kolo_output(g, "loss", kolo_softmax_xent_opts(g, h, y, shards ? &weighted : NULL));
    return kolo_graph_check(g);
}

/* Repeats each head of x for its group of queries. */
static kolo_value repeated(kolo_graph *g, const setting *s, kolo_value x) {
    const kolo_shape shape = kolo_value_shape(g, x);
    const int64_t n = shape.dim[0], each = WIDTH / s->heads, groups = s->heads / s->kv_heads;
    x = kolo_reshape(g, x, (kolo_shape){5, {n, TOKENS, s->kv_heads, 1, each}});
    const kolo_value parts[] = {x, x, x, x};
    x = kolo_concat_along(g, parts, (int)groups, 3);
    return kolo_reshape(g, x, kolo_shape_3(n, TOKENS, WIDTH));
}

/* Queries, keys and values, of one matrix or of three. */
static kolo_value heads_of(kolo_graph *g, const setting *s, kolo_value h) {
    if (s->kv_heads == 0) return linear(g, "h.0.attn.c_attn", h, WIDTH, (int64_t)3 * WIDTH);
    kolo_value qkv[3];
    if (s->kv_heads == s->heads) {
        h = linear(g, "h.0.attn.c_attn", h, WIDTH, (int64_t)3 * WIDTH);
        kolo_split_along(g, h, 2, (int64_t[]){WIDTH, WIDTH, WIDTH}, 3, qkv);
    } else {
        const int64_t few = WIDTH / s->heads * s->kv_heads;
        qkv[0] = linear(g, "model.layers.0.self_attn.q_proj", h, WIDTH, WIDTH);
        qkv[1] = linear(g, "model.layers.0.self_attn.k_proj", h, WIDTH, few);
        qkv[2] = linear(g, "model.layers.0.self_attn.v_proj", h, WIDTH, few);
    }
    qkv[0] = kolo_rotary(g, qkv[0], s->heads, 0, 0);
    qkv[1] = kolo_rotary(g, qkv[1], s->kv_heads, 0, 0);
    for (int i = 1; i < 3; i++) {
        if (s->kv_heads < s->heads) qkv[i] = repeated(g, s, qkv[i]);
    }
    return kolo_concat_along(g, qkv, 3, 2);
}

/* A transformer layer with tied embeddings, and an MLP whose sum goes into a ReLU. */
static kolo_status build(kolo_graph *g, int64_t n, const void *arg) {
    const setting *s = arg;
    if (s->heads == 0) return build_images(g, n, s);
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    kolo_value wte = kolo_param(g, "wte.weight", kolo_shape_2(WORDS, WIDTH), kolo_init_fan_in(9));
    kolo_value wpe = kolo_param(g, "wpe", kolo_shape_2(TOKENS, WIDTH), kolo_init_fan_in(9));
    kolo_value h = kolo_dropout(g, kolo_embedding(g, wte, x, wpe), 0.1);
    kolo_value a = kolo_layer_norm(g, h, "ln_1", 0);
    kolo_attention_opts attention = {
        .heads = s->heads, .causal = true, .dropout = 0.2, .use_mask = s->masked};
    if (s->masked) {
        attention.mask = kolo_input(g, "mask", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    }
    a = kolo_attention(g, heads_of(g, s, a), &attention);
    a = linear(g, "h.0.attn.c_proj", a, WIDTH, WIDTH);
    h = kolo_add(g, h, kolo_dropout(g, a, 0.1));
    a = kolo_layer_norm(g, h, "ln_2", 0);
    a = kolo_gelu(g, linear(g, "h.0.mlp.c_fc", a, WIDTH, s->hidden), true);
    a = kolo_dropout(g, a, 0.1); /* of a shard */
    h = kolo_add(g, h, linear(g, "h.0.mlp.c_proj", a, s->hidden, WIDTH));
    h = kolo_reshape(g, h, kolo_shape_2(n * TOKENS, WIDTH));
    kolo_value w = kolo_param(g, "fc1.weight", kolo_shape_2(s->hidden, WIDTH), kolo_init_fan_in(9));
    kolo_value b = kolo_param(g, "fc1.bias", kolo_shape_1(s->hidden), kolo_init_fan_in(9));
    a = kolo_relu(g, kolo_add(g, kolo_linear(g, h, w), b));
    h = kolo_relu(g, linear(g, "fc2", a, s->hidden, WIDTH));
    kolo_value logits = kolo_linear(g, h, wte);
    kolo_value labels = kolo_reshape(g, y, kolo_shape_1(n * TOKENS));
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, labels));
    return kolo_graph_check(g);
}

static void feed_images(kolo_plan *p, int step, int64_t first, int64_t count) {
    kolo_tensor tensor;
    double *x = kolo_plan_input(p, "x", &tensor);
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    const int64_t each = kolo_shape_count(&tensor.shape) / count;
    for (int64_t i = 0; i < count * each; i++) {
        const int64_t at = first * each + i;
        x[i] = sin((double)((step % 3 * 1000 + at) * (at + 3)));
    }
    for (int64_t i = 0; i < count; i++) y[i] = (int32_t)((step % 3 + first + i) * 7 % WORDS);
}

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    const setting *s = arg;
    if (s->heads == 0) {
        feed_images(p, step, first, count);
        return;
    }
    mesh_feed_tokens(p, step, first * TOKENS, count * TOKENS, WORDS);
    int32_t *mask = s->masked ? kolo_plan_input(p, "mask", &(kolo_tensor){0}) : NULL;
    for (int64_t i = 0; mask && i < count * TOKENS; i++) {
        const int64_t sample = first + i / TOKENS, token = i % TOKENS;
        /* Of sample 1 the first rank of two has no key, of sample 2 the second one. */
        mask[i] = sample % 4 == 1 ? token > 3 : sample % 4 == 2 ? token < 3 : token != 2;
    }
}

/* ---- running it ---- */

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const char *built_in = kolo_placement_rules(s->placement);
    const mesh_model m = {.mesh = s->mesh,
                          .samples = s->samples > 0 ? s->samples : SAMPLES,
                          .terms = s->heads > 0 ? TOKENS : 1,
                          .micro_batches = s->micro_batches,
                          .optimizer = s->optimizer,
                          .recompute = s->recompute,
                          .placement = built_in ? built_in : s->placement,
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

/* ---- against one rank ---- */

static const mesh_outcome *run(const setting *s, rank_transport transport) {
    return mesh_run(s->ranks, transport, body, s, sizeof *s);
}

static const struct {
    setting s;
    bool soak;
} cases[] = {
    {{"dp=1,tp=2", 2, 4, 32, 1, {.momentum = 0.9, .clip = 0.5}, 0, 0, NULL, 0, false}, false},
    {{"dp=2,tp=2",
      4,
      4,
      32,
      2,
      {.momentum = 0.9, .clip = 0.5},
      KOLO_RECOMPUTE_FULL,
      0,
      NULL,
      4,
      false},
     false},
    {{"tp=3,dp=2",
      6,
      6,
      10,
      1,
      {.kind = KOLO_OPTIMIZER_LAMB, .weight_decay = 0.01},
      0,
      0,
      NULL,
      6,
      false},
     false},
    {{"dp=1,tp=2", 2, 0, 10, 2, {.momentum = 0.9, .clip = 0.5}, 0, 4, NULL, 0, false}, false},
    {{"tp=2,dp=2", 4, 0, 9, 1, {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3}, 0, 4, NULL, 0, false},
     false},
    {{"dp=1,tp=2", 2, 0, 10, 2, {.momentum = 0.9}, KOLO_RECOMPUTE_CHEAP, 3, NULL, 0, false}, false},
    {{"dp=1,tp=2", 2, 0, 10, 1, {.momentum = 0.9}, 0, 4, "classifier.6.weight 0\n", 0, false},
     false},
    {{"dp=1,tp=3,sp=2", 6, 0, 10, 1, {.momentum = 0.9, .clip = 0.5}, 0, 4, NULL, 0, false}, false},
    {{"dp=1,tp=2", 2, 4, 32, 1, {.momentum = 0.9, .clip = 0.5}, 0, 0, "megatron-sp", 2, false},
     false},
    {{"tp=3,dp=2",
      6,
      6,
      10,
      2,
      {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3},
      KOLO_RECOMPUTE_CHEAP,
      0,
      "megatron-sp",
      0,
      false},
     false},
    {{"dp=1,tp=2", 2, 4, 32, 1, {.momentum = 0.9}, 0, 0, "sums 0\nwte.weight 0\n", 0, false},
     false},
    {{"dp=1,sp=2", 2, 4, 32, 1, {.momentum = 0.9, .clip = 0.5}, 0, 0, NULL, 0, false}, false},
    {{"dp=2,sp=2",
      4,
      4,
      10,
      2,
      {.momentum = 0.9, .clip = 0.5},
      KOLO_RECOMPUTE_FULL,
      0,
      NULL,
      2,
      false},
     false},
    {{"sp=3,dp=2",
      6,
      6,
      10,
      1,
      {.kind = KOLO_OPTIMIZER_LAMB, .weight_decay = 0.01},
      0,
      2,
      NULL,
      6,
      false},
     false},
    {{"dp=1,sp=4", 4, 4, 9, 1, {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3}, 0, 1, NULL, 0, false},
     false},
    {{"dp=1,sp=2", 2, 3, 32, 1, {.momentum = 0.9, .clip = 0.5}, 0, 0, "ring", 0, false}, false},
    {{"dp=2,sp=2", 4, 3, 10, 2, {.momentum = 0.9}, KOLO_RECOMPUTE_FULL, 0, "ring", 3, false},
     false},
    {{"sp=3,dp=2", 6, 4, 10, 1, {.momentum = 0.9, .clip = 0.5}, 0, 2, "ring", 2, false}, false},
    {{"dp=1,sp=2", 2, 3, 10, 1, {.momentum = 0.9}, 0, 0, "ring", 0, true}, false},
    {{"dp=1,sp=4", 4, 3, 10, 2, {.momentum = 0.9}, KOLO_RECOMPUTE_FULL, 3, "ring", 3, true}, false},
    {{"dp=1,sp=3", 3, 4, 32, 1, {.momentum = 0.9, .clip = 0.5}, 0, 0, "zigzag", 2, false}, false},
    {{"sp=2,dp=2", 4, 3, 10, 2, {.momentum = 0.9}, KOLO_RECOMPUTE_FULL, 0, "zigzag", 3, true},
     false},
    {{"sp=2,tp=2,dp=1",
      4,
      4,
      10,
      1,
      {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3},
      KOLO_RECOMPUTE_CHEAP,
      0,
      "ring",
      4,
      false},
     false},
    {{"sp=2,tp=2,dp=1",
      4,
      4,
      10,
      2,
      {.momentum = 0.9, .clip = 0.5},
      KOLO_RECOMPUTE_CHEAP,
      0,
      NULL,
      4,
      false},
     false},
    {{"dp=1,sp=3,tp=2", 6, 6, 10, 1, {.momentum = 0.9, .clip = 0.5}, 0, 2, "megatron-sp", 6, false},
     false},
    {{"dp=1,tp=2,sp=3", 6, 4, 10, 1, {.momentum = 0.9, .clip = 0.5}, 0, 2, "zigzag", 4, false},
     false},
    {{"dp=2,tp=2,sp=2", 8, 4, 9, 1, {.momentum = 0.9}, 0, 0, NULL, 2, false}, true},
    {{"dp=1,tp=4",
      4,
      4,
      30,
      1,
      {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3, .clip = 0.5},
      0,
      0,
      NULL,
      0,
      false},
     true},
    {{"dp=4,tp=2",
      8,
      2,
      32,
      3,
      {.kind = KOLO_OPTIMIZER_LARS, .momentum = 0.9},
      0,
      0,
      NULL,
      0,
      false},
     true},
    {{"dp=1,tp=8", 8, 8, 35, 1, {.momentum = 0.9}, KOLO_RECOMPUTE_CHEAP, 0, NULL, 0, false}, true},
};

static void any_mesh_computes_what_one_rank_does(void **state) {
    static mesh_outcome expected;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting alone = cases[i].s;
        if (cases[i].soak && !getenv("KOLO_SOAK")) continue;
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.ranks = 1;
        expected = *run(&alone, RANKS_THREAD);
        const setting *s = &cases[i].s;
        mesh_assert_learns(s->mesh, &expected, 3);
        mesh_assert_close(s->mesh, run(s, RANKS_THREAD), &expected);
        if (i == 0) mesh_assert_close(s->mesh, run(s, RANKS_SHM), &expected);
    }
}

TEST_MAIN(test_tensor_parallel) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_computes_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
