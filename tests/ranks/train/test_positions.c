/* Ring attention of sequences whose positions do not divide evenly: with slices of different
 * lengths, and ranges of a zigzag of which the middle one is odd, the ranks compute what one rank
 * does, in f64 with the reference kernels to rounding. */
#include "kolo/models.h"
#include "pass/partition/rules.h"
#include "support/mesh_run.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 31, SAMPLES = 2 };
#define SIZES "layers=1,width=12,vocab=31,heads=3"

/* The ranks of tp divide sums of which sp leaves equal numbers of positions: not 4 and 2 of 6. */
static const char divides_sums[] = "sums 1\n"
                                   "attention zigzag\n"
                                   "*.attn.c_attn.weight 0 3\n"
                                   "*.attn.c_proj.weight 1\n"
                                   "*.mlp.c_fc.weight 0\n"
                                   "*.mlp.c_proj.weight 1\n";

typedef struct setting {
    char mesh[32];
    int ranks;
    const char *model, *options;
    int64_t tokens;
    const char *placement; /* a name, or rules */
    kolo_recompute recompute;
    int zero;
} setting;

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    const setting *s = arg;
    mesh_feed_tokens(p, step, first * s->tokens, count * s->tokens, WORDS);
}

static kolo_status build(kolo_graph *g, int64_t samples, const void *arg) {
    const setting *s = arg;
    const kolo_model_opts opts = {.batch = samples,
                                  .sample = kolo_shape_1(s->tokens),
                                  .classes = WORDS,
                                  .options = s->options};
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(s->model, &model));
    return model->build(g, &opts);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const char *text = kolo_placement_rules(s->placement);
    const mesh_model m = {.mesh = s->mesh,
                          .samples = SAMPLES,
                          .terms = s->tokens,
                          .micro_batches = 2,
                          .optimizer = {.kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3, .clip = 0.5},
                          .recompute = s->recompute,
                          .zero = s->zero,
                          .placement = text ? text : s->placement,
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

static void slices_of_any_length_compute_what_one_rank_does(void **state) {
    static const setting cases[] = {
        {"dp=1,sp=4", 4, "gpt2_tiny", SIZES ",context=6,dropout=10", 6, "ring", 0, 0},
        {"dp=1,sp=5", 5, "gpt2_tiny", SIZES ",context=9,dropout=10", 9, "zigzag", 0, 0},
        {"dp=1,sp=4", 4, "gpt2_tiny", SIZES ",context=6,dropout=10", 6, "zigzag", 0,
         0}, /* a ring */
        {"dp=1,sp=3", 3, "bert_tiny", SIZES ",context=7,dropout=10", 7, "ring", 0, 0},
        {"dp=1,sp=3", 3, "bert_tiny", SIZES ",context=11,dropout=10", 11, "zigzag", 0, 0},
        {"dp=2,sp=2", 4, "llama_tiny", SIZES ",context=7,kv_heads=1,mlp=20", 7, "zigzag",
         KOLO_RECOMPUTE_FULL, 1},
        {"sp=2,tp=3,dp=1", 6, "gpt2_tiny", SIZES ",context=5,dropout=10", 5, "ring",
         KOLO_RECOMPUTE_CHEAP, 0},
        {"sp=2,tp=3,dp=1", 6, "gpt2_tiny", SIZES ",context=6", 6, divides_sums, 0, 0},
        {"sp=2,tp=3,dp=1", 6, "gpt2_tiny", SIZES ",context=12", 12, divides_sums, 0, 0},
    };
    static mesh_outcome expected;
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting alone = cases[i];
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.zero = 0;
        expected = *mesh_run(1, RANKS_THREAD, body, &alone, sizeof alone);
        if (strcmp(alone.model, "bert_tiny") != 0) { /* of which each step masks other tokens */
            mesh_assert_learns(cases[i].mesh, &expected, 3);
        }
        mesh_assert_close(cases[i].mesh,
                          mesh_run(cases[i].ranks, RANKS_THREAD, body, &cases[i], sizeof cases[i]),
                          &expected);
    }
}

TEST_MAIN(test_positions) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_any_length_compute_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
