/* Recurrent layers, LSTM divided by hidden units, and LSTM and GRU by samples where sp divides the
 * positions: the ranks of any mesh compute what one rank does, in f64 with the reference kernels to
 * rounding, with units, samples and positions that do not divide, initial states, both directions,
 * dropout, clipping, accumulation and recomputation. */
#include "graph/ops/ops.h"
#include "pass/partition/rules.h"
#include "support/mesh_run.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { TOKENS = 9 /* more than a concat has inputs */, WIDTH = 6, WORDS = 13, SAMPLES = 4 };

typedef struct setting {
    char mesh[32];
    int ranks;
    int64_t units, micro_batches;
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    int zero;
    bool states, both; /* with initial states; in both directions */
    bool gru;
} setting;

/* Initial states, of the first token. */
static kolo_value state_of(kolo_graph *g, kolo_value x, const char *name, int64_t n,
                           int64_t units) {
    const kolo_value w = kolo_param(g, name, kolo_shape_2(units, WIDTH), kolo_init_fan_in(WIDTH));
    const kolo_value first = kolo_reshape(g, kolo_slice(g, x, 1, 0, 1), kolo_shape_2(n, WIDTH));
    return kolo_linear(g, first, w);
}

static kolo_status build(kolo_graph *g, int64_t n, const void *arg) {
    const setting *s = arg;
    const int64_t wide = s->both ? 2 * s->units : s->units;
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    kolo_value table =
        kolo_param(g, "encoder.weight", kolo_shape_2(WORDS, WIDTH), kolo_init_fan_in(1));
    kolo_value h = kolo_dropout(g, kolo_embedding(g, table, x, KOLO_NONE), 0.1);
    kolo_recurrent_opts opts = {.bidirectional = s->both};
    if (s->states) {
        opts.use_state = true;
        opts.h = state_of(g, h, "of_h", n, wide);
        opts.c = state_of(g, h, "of_c", n, wide);
    }
    h = s->gru ? kolo_gru(g, h, "rnn", 0, s->units, &opts)
               : kolo_lstm_opts(g, h, "rnn", 0, s->units, &opts);
    h = kolo_dropout(g, h, 0.2);
    h = s->gru ? kolo_gru(g, h, "rnn", 1, s->units, NULL) : kolo_lstm(g, h, "rnn", 1, s->units);
    h = kolo_reshape(g, kolo_dropout(g, h, 0.1), kolo_shape_2(n * TOKENS, s->units));
    kolo_value w =
        kolo_param(g, "decoder.weight", kolo_shape_2(WORDS, s->units), kolo_init_fan_in(8));
    kolo_value b = kolo_param(g, "decoder.bias", kolo_shape_1(WORDS), kolo_init_fan_in(8));
    kolo_value labels = kolo_reshape(g, y, kolo_shape_1(n * TOKENS));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear_bias(g, h, w, b), labels));
    return kolo_graph_check(g);
}

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    (void)arg;
    mesh_feed_tokens(p, step, first * TOKENS, count * TOKENS, WORDS);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const mesh_model m = {.mesh = s->mesh,
                          .samples = SAMPLES,
                          .terms = TOKENS,
                          .micro_batches = s->micro_batches,
                          .optimizer = s->optimizer,
                          .recompute = s->recompute,
                          .zero = s->zero,
                          .placement = kolo_placement_rules(NULL),
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

static void any_mesh_computes_what_one_rank_does(void **state) {
    static const setting cases[] = {
        {.mesh = "dp=1,tp=2",
         .ranks = 2,
         .units = 8,
         .micro_batches = 1,
         .optimizer = {.momentum = 0.9, .clip = 0.5}},
        {.mesh = "tp=3,dp=2",
         .ranks = 6,
         .units = 7,
         .micro_batches = 2,
         .optimizer = {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3, .clip = 0.5},
         .zero = 1},
        {.mesh = "dp=1,tp=3",
         .ranks = 3,
         .units = 7,
         .micro_batches = 1,
         .optimizer = {.kind = KOLO_OPTIMIZER_LAMB, .weight_decay = 0.01},
         .recompute = KOLO_RECOMPUTE_FULL,
         .states = true},
        {.mesh = "dp=2,tp=2",
         .ranks = 4,
         .units = 6,
         .micro_batches = 1,
         .optimizer = {.momentum = 0.9},
         .recompute = KOLO_RECOMPUTE_CHEAP,
         .states = true,
         .both = true},
        {.mesh = "dp=1,sp=2",
         .ranks = 2,
         .units = 8,
         .micro_batches = 2,
         .optimizer = {.momentum = 0.9, .clip = 0.5}},
        {.mesh = "dp=1,sp=3", /* two samples or one */
         .ranks = 3,
         .units = 7,
         .micro_batches = 1,
         .optimizer = {.kind = KOLO_OPTIMIZER_LAMB, .weight_decay = 0.01},
         .recompute = KOLO_RECOMPUTE_FULL,
         .states = true,
         .both = true,
         .gru = true},
        {.mesh = "sp=3,dp=2", /* fewer samples than ranks */
         .ranks = 6,
         .units = 6,
         .micro_batches = 1,
         .optimizer = {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3, .clip = 0.5},
         .recompute = KOLO_RECOMPUTE_CHEAP,
         .zero = 1,
         .states = true,
         .both = true},
        {.mesh = "sp=2,dp=1,tp=2",
         .ranks = 4,
         .units = 8,
         .micro_batches = 1,
         .optimizer = {.momentum = 0.9, .clip = 0.5},
         .recompute = KOLO_RECOMPUTE_CHEAP,
         .states = true,
         .both = true},
        {.mesh = "tp=2,dp=1,sp=2", /* units that differ */
         .ranks = 4,
         .units = 7,
         .micro_batches = 1,
         .optimizer = {.momentum = 0.9, .clip = 0.5}},
        {.mesh = "sp=3,dp=2", /* fewer samples than ranks */
         .ranks = 6,
         .units = 5,
         .micro_batches = 2,
         .optimizer = {.momentum = 0.9, .clip = 0.5},
         .states = true,
         .both = true,
         .gru = true},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting alone = cases[i];
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.zero = 0;
        mesh_assert_equals(cases[i].mesh, body, &cases[i], cases[i].ranks, &alone, 1, sizeof alone);
    }
}

TEST_MAIN(test_recurrent_parallel) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_computes_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
