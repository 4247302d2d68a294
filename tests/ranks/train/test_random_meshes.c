/* Random models on random meshes with random placement rules: the ranks compute what one rank does,
 * in f64 with the reference kernels, or all of them refuse the model. */
#include "base/rng.h"
#include "comm/sync/agree.h"
#include "graph/ops/ops.h"
#include "plan/internal.h"
#include "support/mesh_run.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, TOKENS = 6, WIDTH = 12, WORDS = 11, SAMPLES = 4, RULES = 1024, SMALL = 40 };

typedef struct setting {
    uint64_t seed;
    char mesh[32];
    int ranks;
} setting;

/* ---- a random model with rules ---- */

typedef struct maker {
    kolo_graph *g;
    kolo_rng rng;
    uint64_t draws;
    char *rules; /* RULES characters */
    int n_layers;
    bool tokens; /* activations are [N,T,WIDTH], else [N,WIDTH] */
} maker;

static int below(maker *m, int n) { return (int)kolo_rng_below(&m->rng, m->draws++, (uint64_t)n); }

/* A linear layer; its weights are sharded by `rule`, by chance by another one. */
static kolo_value layer(maker *m, kolo_value x, int64_t out, const char *rule) {
    static const char *const any[] = {"0", "1", "whole"};
    const kolo_shape shape = kolo_value_shape(m->g, x);
    const int64_t in = shape.dim[shape.rank - 1];
    const size_t used = strlen(m->rules);
    char weight[32], bias[32];
    if (below(m, 8) == 0) rule = any[below(m, 3)];
    snprintf(weight, sizeof weight, "l%d.weight", m->n_layers);
    snprintf(bias, sizeof bias, "l%d.bias", m->n_layers++);
    snprintf(m->rules + used, RULES - used, "%s %s\n", weight, rule);
    kolo_value w = kolo_param(m->g, weight, kolo_shape_2(out, in), kolo_init_fan_in(in));
    if (below(m, 3) == 0) return kolo_linear(m->g, x, w);
    return kolo_linear_bias(m->g, x, w,
                            kolo_param(m->g, bias, kolo_shape_1(out), kolo_init_fan_in(in)));
}

static kolo_value function(maker *m, kolo_value x) {
    switch (below(m, 4)) {
    case 0:
        return kolo_relu(m->g, x);
    case 1:
        return kolo_gelu(m->g, x, true);
    case 2:
        return kolo_tanh(m->g, x);
    default:
        return kolo_dropout(m->g, x, 0.1);
    }
}

/* One block of x's shape. */
static kolo_value block(maker *m, kolo_value x) {
    static const int64_t widths[] = {8, 12, 24, 9, 10};
    const int64_t hidden = widths[below(m, 5)];
    char name[16];
    kolo_value a;
    switch (below(m, m->tokens ? 6 : 5)) {
    case 0: /* a pair */
        return layer(m, function(m, layer(m, x, hidden, "0")), WIDTH, "1");
    case 1: /* with a gate */
        a = kolo_silu(m->g, layer(m, x, hidden, "0"));
        return layer(m, kolo_mul(m->g, a, layer(m, x, hidden, "0")), WIDTH, "1");
    case 2:
        return function(m, layer(m, x, WIDTH, "whole"));
    case 3:
        snprintf(name, sizeof name, "n%d", m->n_layers++);
        return below(m, 2) ? kolo_rms_norm(m->g, x, name, 0.1)
                           : kolo_layer_norm(m->g, x, name, 0.1);
    case 4:
        return kolo_add(m->g, x, function(m, x));
    default:
        a = layer(m, x, (int64_t)3 * WIDTH, "0 3");
        a = kolo_attention(m->g, a,
                           &(kolo_attention_opts){.heads = below(m, 3) ? 6 : 2,
                                                  .causal = below(m, 2),
                                                  .dropout = below(m, 2) ? 0.1 : 0});
        return layer(m, a, WIDTH, "1");
    }
}

static kolo_status build(maker *m, int64_t n) {
    kolo_graph *g = m->g;
    kolo_value h;
    m->tokens = below(m, 4) > 0;
    kolo_value y =
        kolo_input(g, "y", KOLO_DTYPE_I32, m->tokens ? kolo_shape_2(n, TOKENS) : kolo_shape_1(n));
    if (m->tokens) {
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
        kolo_value wte = kolo_param(g, "wte", kolo_shape_2(WORDS, WIDTH), kolo_init_fan_in(9));
        kolo_value wpe = kolo_param(g, "wpe", kolo_shape_2(TOKENS, WIDTH), kolo_init_fan_in(9));
        if (below(m, 2)) snprintf(m->rules, RULES, "wte 0\n");
        h = kolo_embedding(g, wte, x, wpe);
    } else {
        h = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_2(n, WIDTH));
        h = layer(m, h, WIDTH, "whole");
    }
    if (m->tokens && below(m, 4) == 0) {
        const size_t used = strlen(m->rules);
        snprintf(m->rules + used, RULES - used, "sums 1\n");
    }
    for (int blocks = 1 + below(m, 4); blocks > 0; blocks--) {
        kolo_value by = block(m, h);
        h = below(m, 2) ? kolo_add(g, h, by) : by;
    }
    if (m->tokens) h = kolo_reshape(g, h, kolo_shape_2(n * TOKENS, WIDTH));
    h = layer(m, h, WORDS, below(m, 2) ? "0" : "whole");
    if (m->tokens) y = kolo_reshape(g, y, kolo_shape_1(n * TOKENS));
    kolo_output(g, "loss", kolo_softmax_xent(g, h, y));
    return kolo_graph_check(g);
}

static void feed(kolo_plan *p, bool tokens, int step, int64_t first, int64_t count) {
    void *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    for (int64_t i = 0; i < count * (tokens ? TOKENS : WIDTH); i++) {
        const int64_t at = step * 1000 + first * (tokens ? TOKENS : WIDTH) + i;
        if (tokens) ((int32_t *)x)[i] = (int32_t)(at * 7 % WORDS);
        if (!tokens) ((double *)x)[i] = sin((double)(at * (at + 3)));
    }
    for (int64_t i = 0; i < count * (tokens ? TOKENS : 1); i++) {
        const int64_t at = step * 100 + first * (tokens ? TOKENS : 1) + i;
        y[i] = (int32_t)(at * at % WORDS);
    }
}

/* ---- running it ---- */

static kolo_optimizer_opts optimizer_of(uint64_t seed) {
    const kolo_optimizer_opts all[] = {{.momentum = 0.9, .clip = 0.5},
                                       {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3},
                                       {.kind = KOLO_OPTIMIZER_LAMB, .weight_decay = 0.01},
                                       {.momentum = 0.9}};
    return all[seed % KOLO_COUNT(all)];
}

/* The plan; its status, which is not an error, in o->slots: 1 is a refusal. */
static kolo_status compile(maker *m, const setting *s, kolo_comm *comm, kolo_mesh_comms *groups,
                           const kolo_mesh *mesh, kolo_store *store, kolo_plan **plan,
                           mesh_outcome *o) {
    const int dp = mesh->axes[kolo_mesh_find(mesh, "dp")].size;
    KOLO_TRY(build(m, SAMPLES / dp));
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer = optimizer_of(s->seed),
                                 .mesh = *mesh,
                                 .placement = m->rules,
                                 .zero = dp > 1 && s->seed % 2 && !strstr(s->mesh, "sp"),
                                 .recompute = (kolo_recompute)(s->seed / 2 % 3),
                                 .groups = groups,
                                 .kernels = KOLO_KERNELS_REF,
                                 .bucket_bytes = 2000};
    kolo_graph *g = m->g;
    m->g = NULL; /* the plan's */
    kolo_status status = kolo_plan_compile(g, &opts, store, comm, plan);
    o->slots = status == KOLO_ERR_ARG || status == KOLO_ERR_UNSUPPORTED;
    return o->slots ? KOLO_OK : status;
}

/* The status of compiling on all ranks; DIVERGED: only some of them refuse the model. */
static kolo_status agree_on_refusal(kolo_comm *comm, kolo_status status, const mesh_outcome *o) {
    int32_t refused[] = {o->slots, -o->slots}; /* the most, and the least */
    KOLO_TRY(kolo_agree(comm, status));
    KOLO_TRY(kolo_allreduce(comm, refused, 2, KOLO_DTYPE_I32, KOLO_MAX));
    if (refused[0] == -refused[1]) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_DIVERGED, "only some ranks refuse the model");
}

static kolo_status train(kolo_plan *p, const maker *m, const setting *s, int dp, int ranks,
                         kolo_store *store, mesh_outcome *o) {
    const int64_t count = SAMPLES / ranks, first = dp * count;
    KOLO_TRY(kolo_store_init(store, s->seed));
    for (int k = 0; k < STEPS; k++) {
        kolo_plan_set(p, kolo_plan_find_scalar(p, "lr"), 0.02);
        kolo_plan_set(p, kolo_plan_find_scalar(p, "update"), k + 1);
        kolo_plan_set(p, kolo_plan_find_scalar(p, "grad_scale"),
                      1.0 / (double)(SAMPLES * (m->tokens ? TOKENS : 1)));
        kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "rng_key"), 77 + k);
        kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "first_sample"), first);
        feed(p, m->tokens, k, first, count);
        KOLO_TRY(kolo_plan_run(p));
        o->losses[k] = kolo_plan_scalar(p, "loss");
        if (k == 0) KOLO_TRY(mesh_read_parameters(store, o->first));
    }
    return mesh_read_parameters(store, o->last);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    char rules[RULES] = "";
    maker m = {.rng = kolo_rng_make(s->seed, KOLO_RNG_TEST, 3), .rules = rules};
    kolo_mesh mesh;
    kolo_mesh_comms *groups;
    kolo_store *store;
    kolo_plan *plan = NULL;
    mesh_outcome *o = result;
    KOLO_TRY(kolo_mesh_parse(s->mesh, kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &groups));
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &m.g);
    if (status == KOLO_OK) status = compile(&m, s, comm, groups, &mesh, store, &plan, o);
    status = agree_on_refusal(comm, status, o);
    if (status == KOLO_OK && o->slots == 0) {
        const int dp = kolo_mesh_find(&mesh, "dp");
        status = train(plan, &m, s, kolo_mesh_coordinate(&mesh, kolo_comm_rank(comm), dp),
                       mesh.axes[dp].size, store, o);
    }
    kolo_graph_destroy(m.g);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_mesh_comms_destroy(groups);
    return status;
}

static void random_models_on_random_meshes(void **state) {
    static const struct {
        const char *mesh;
        int ranks, divided; /* models of the small run that can be divided so */
    } meshes[] = {{"dp=1,tp=2", 2, 7}, {"dp=2,tp=2", 4, 6},      {"dp=1,sp=2", 2, 4},
                  {"tp=3,dp=1", 3, 6}, {"dp=1,tp=2,sp=2", 4, 2}, {"dp=2,sp=2", 4, 6},
                  {"dp=4,tp=2", 8, 2}, {"sp=3,dp=2", 6, 2},      {"dp=2,tp=2,sp=2", 8, 2}};
    const bool soak = getenv("KOLO_SOAK");
    const uint64_t models = soak ? 3000 : SMALL + 6;
    static mesh_outcome expected;
    int tried[KOLO_COUNT(meshes)] = {0}, agreed[KOLO_COUNT(meshes)] = {0};
    (void)state;
    for (uint64_t seed = 0; seed < models; seed++) {
        const size_t i = soak           ? seed % KOLO_COUNT(meshes)
                         : seed < SMALL ? seed % 6
                                        : 6 + seed % 3; /* two for each large mesh */
        setting s = {.seed = seed, .mesh = "dp=1", .ranks = 1};
        expected = *mesh_run(1, RANKS_THREAD, body, &s, sizeof s);
        assert_int_equal(expected.slots, 0);
        s.ranks = meshes[i].ranks;
        snprintf(s.mesh, sizeof s.mesh, "%s", meshes[i].mesh);
        const mesh_outcome *o = mesh_run(s.ranks, RANKS_THREAD, body, &s, sizeof s);
        tried[i]++;
        if (o->slots) continue; /* all refuse it */
        char what[64];
        snprintf(what, sizeof what, "model %d, %s", (int)seed, s.mesh);
        mesh_assert_close(what, o, &expected);
        agreed[i]++;
    }
    for (size_t i = 0; i < KOLO_COUNT(meshes); i++) {
        print_message("%s: %d of %d models were divided\n", meshes[i].mesh, agreed[i], tried[i]);
        if (soak) {
            assert_true(agreed[i] > tried[i] / 4);
        } else {
            assert_int_equal(agreed[i], meshes[i].divided);
        }
    }
}

TEST_MAIN(test_random_meshes) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_models_on_random_meshes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
