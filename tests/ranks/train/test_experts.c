/* Mixtures of experts: the ranks of any mesh compute what one rank does, in f64 with the reference
 * kernels to rounding, whether experts are divided (ep), each expert is (tp), or neither, with
 * tokens that find no place, dropout, clipping and accumulation; jobs, files and refusals. */
#include "kolo/models.h"
#include "pass/partition/rules.h"
#include "plan/internal.h"
#include "support/folder.h"
#include "support/mesh_run.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 6, WORDS = 11 };
#define SIZES "width=8,heads=4,context=6,vocab=11"

typedef struct setting {
    char mesh[32];
    int ranks;
    char options[96];
    int64_t samples, micro_batches; /* of a micro-batch */
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    int zero;
    const char *placement; /* a name, or rules; NULL: the built-in rules */
} setting;

/* ---- plans in f64 ---- */

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    mesh_feed_tokens(p, step, first * TOKENS, count * TOKENS, WORDS);
}

static kolo_status build(kolo_graph *g, int64_t samples, const void *arg) {
    const setting *s = arg;
    const kolo_model_opts opts = {
        .batch = samples, .sample = kolo_shape_1(TOKENS), .classes = WORDS, .options = s->options};
    const kolo_model *gpt2_moe;
    KOLO_TRY(kolo_model_find("gpt2_moe", &gpt2_moe));
    return gpt2_moe->build(g, &opts);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const char *built = s->placement ? kolo_placement_rules(s->placement) : NULL;
    const mesh_model m = {.mesh = s->mesh,
                          .samples = s->samples,
                          .terms = TOKENS,
                          .micro_batches = s->micro_batches,
                          .optimizer = s->optimizer,
                          .recompute = s->recompute,
                          .zero = s->zero,
                          .placement = built ? built : s->placement,
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

#define RINGS                                                                                  \
    "sums 1\nattention ring\nwte.weight 0\n*.attn.c_attn.weight 0 3\n*.attn.c_proj.weight 1\n" \
    "*.experts.c_fc.weight 1\n*.experts.c_proj.weight 2\n"
#define CLIPPED \
    { .momentum = 0.9, .clip = 0.5 }
#define ADAM \
    { .kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3 }
static const struct {
    setting s;
    bool soak;
} cases[] = {
    {{"dp=2", 2, "layers=1,experts=3,dropout=10", 4, 2, CLIPPED, 0, 0, NULL}, false},
    {{"dp=1,tp=2", 2, "layers=1,experts=4,top=1,capacity=100", 2, 1, CLIPPED, 0, 0, NULL}, false},
    {{"dp=1,ep=2", 2, "layers=2,experts=4,dropout=10", 4, 1, CLIPPED, 0, 0, NULL}, false},
    /* Experts and samples that do not divide, places that are not enough. */
    {{"dp=1,ep=3", 3, "layers=1,experts=5,capacity=60", 3, 2, ADAM, KOLO_RECOMPUTE_FULL, 0, NULL},
     false},
    {{"dp=1,ep=2", 2, "layers=1,experts=3,top=3,dropout=10", 3, 1, CLIPPED, 0, 0, NULL}, false},
    {{"dp=2,ep=2", 4, "layers=1,experts=4,dropout=10,balance=50", 4, 1, ADAM, 0, 0, NULL}, false},
    /* Slices of samples and experts that are unequal, and ranges of them. */
    {{"dp=2,ep=2", 4, "layers=1,experts=3,dropout=10", 6, 1, ADAM, 0, 1, NULL}, false},
    {{"ep=2,tp=2,dp=1", 4, "layers=1,experts=4,top=1", 2, 1, CLIPPED, KOLO_RECOMPUTE_CHEAP, 0,
      NULL},
     false},
    /* Samples over ep, positions over sp; one or two positions, samples that do not divide. */
    {{"dp=1,ep=2,sp=2", 4, "layers=2,experts=4,dropout=10", 4, 1, CLIPPED, 0, 0, NULL}, false},
    {{"sp=4,ep=2,dp=1", 8, "layers=1,experts=3,capacity=60", 2, 2, ADAM, KOLO_RECOMPUTE_FULL, 0,
      NULL},
     true},
    {{"sp=2,dp=1,ep=2", 4, "layers=1,experts=4,dropout=10", 3, 1, ADAM, KOLO_RECOMPUTE_CHEAP, 0,
      NULL},
     false},
    {{"dp=2,ep=2,sp=2", 8, "layers=1,experts=4,top=1,dropout=10", 4, 1, ADAM, 0, 1, NULL}, true},
    {{"dp=1,ep=2,sp=2,tp=2", 8, "layers=1,experts=4,dropout=10", 2, 1, CLIPPED, 0, 0, NULL}, true},
    /* Positions over tp, between layers; what sp leaves of them. */
    {{"dp=1,tp=2", 2, "layers=1,experts=4,dropout=10", 2, 1, ADAM, 0, 0, "megatron-sp"}, false},
    {{"ep=2,tp=2,dp=1", 4, "layers=1,experts=3,dropout=10", 4, 1, CLIPPED, 0, 0, "megatron-sp"},
     true},
    {{"sp=3,tp=2,dp=1", 6, "layers=1,experts=4,dropout=10", 2, 1, ADAM, 0, 0, RINGS}, false},
    {{"dp=2,ep=2,tp=2", 8, "layers=2,experts=2,top=1", 4, 2, CLIPPED, 0, 0, NULL}, true},
    {{"dp=2,tp=4", 8, "layers=2,experts=3", 4, 1, ADAM, 0, 0, NULL}, true},
    {{"ep=4,dp=2", 8, "layers=2,experts=8,tied=0", 8, 1, CLIPPED, 0, 0, NULL}, true},
};

static void any_mesh_computes_what_one_rank_does(void **state) {
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s, alone;
        if (cases[i].soak && !getenv("KOLO_SOAK")) continue;
        strcat(s.options, "," SIZES);
        alone = s;
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.ranks = 1;
        alone.zero = 0;
        mesh_assert_equals(s.mesh, body, &s, s.ranks, &alone, 1, sizeof s);
    }
}

/* ---- jobs ---- */

#define GPT2_MOE(options)                                                                     \
    {                                                                                         \
        .model = "gpt2_moe", .model_options = options ",context=8,vocab=50,width=16,heads=4", \
        .data = "synthetic-tokens:N=37,test=6", .optimizer.kind = KOLO_OPTIMIZER_ADAMW,       \
        .optimizer.clip = 1, .lr = 0.01, .global_batch = 8, .steps = 6, .epochs = 3           \
    }

/* The last step of an epoch has 5 samples, in micro-batches of which some divide over ep and others
 * do not, and the test set 6; of the last job 1 each, so that a
 * place on dp has none. */
static void jobs_train_and_evaluate(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *mesh;
        int ranks, zero;
        int64_t accumulate;
    } jobs[] = {
        {GPT2_MOE("layers=2,experts=3,dropout=10"), NULL, 2, 0, 0},
        {GPT2_MOE("layers=1,experts=3"), NULL, 3, 1, 0},
        {GPT2_MOE("layers=1,experts=3"), NULL, 2, 3, 0},
        {GPT2_MOE("layers=1,experts=4,top=1,dropout=10"), "dp=2,tp=2", 4, 0, 0},
        {GPT2_MOE("layers=1,experts=5,dropout=10"), "ep=2", 2, 0, 0},
        {GPT2_MOE("layers=2,experts=4"), "dp=2,ep=2", 4, 1, 0},
        {GPT2_MOE("layers=1,experts=3"), "dp=2,ep=2", 4, 1, 0},
        {GPT2_MOE("layers=1,experts=3"), "ep=2", 2, 0, 2},
        {GPT2_MOE("layers=1,experts=4"), "dp=2,ep=2", 4, 1, 2},
        {GPT2_MOE("layers=2,experts=4"), "ep=2,pp=2", 4, 0, 2},
        {GPT2_MOE("layers=2,experts=4"), "pp=2", 2, 0, 2},
        {GPT2_MOE("layers=1,experts=4"), "sp=2", 2, 0, 0},
        {GPT2_MOE("layers=1,experts=4,dropout=10"), "ep=2,sp=2", 4, 0, 0},
        {{.model = "gpt2_moe",
          .model_options = "layers=2,width=16,heads=4,context=8,vocab=50,experts=3,dropout=10",
          .data = "synthetic-tokens:N=32,test=6",
          .lr = 0.01,
          .global_batch = 8,
          .steps = 6,
          .epochs = 2},
         "pp=2,ep=2",
         4,
         0,
         2},
        {{.model = "gpt2_moe",
          .model_options = "layers=1,width=16,heads=4,context=8,vocab=50,dropout=10",
          .data = "synthetic-tokens:N=13,test=1",
          .lr = 0.01,
          .global_batch = 4,
          .epochs = 2},
         "dp=2,ep=2",
         4,
         0,
         0},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        opts.accumulate = jobs[i].accumulate;
        const kolo_train_result alone = train_well(1, &opts);
        opts.mesh = jobs[i].mesh;
        opts.zero = jobs[i].zero;
        const kolo_train_result meshed = train_well(jobs[i].ranks, &opts);
        assert_near_run(jobs[i].mesh ? jobs[i].mesh : "dp", &alone, &meshed);
    }
}

/* Bitwise, for any number of workers. */
static void reproducible_steps_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = GPT2_MOE("layers=1,experts=3,dropout=10");
    (void)state;
    opts.reproducible = 4;
    const kolo_train_result alone = train_well(1, &opts);
    for (int ranks = 2; ranks <= 4; ranks++) {
        const kolo_train_result several = train_well(ranks, &opts);
        assert_same_run("reproducible", &alone, &several);
    }
}

static void checkpoints_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = GPT2_MOE("layers=1,experts=3");
    (void)state;
    assert_resumes_on_meshes(&opts, "ep=2", "ep=3");
}

static void what_experts_do_not_go_with_is_named(void **state) {
    static const struct {
        const char *model, *options, *mesh, *placement, *text;
        int ranks, zero;
        int64_t reproducible;
    } bad[] = {
        {"gpt2_tiny", "layers=1,context=8", "ep=2", NULL, "this model has none", 2, 0, 0},
        {"gpt2_moe", "layers=1,experts=2,context=8", "ep=3", NULL, "2 experts cannot be divided", 3,
         0, 0},
        {"gpt2_moe", "layers=1,context=8", "ep=2,tp=2", "sums 0\nwte.weight 0\n",
         "rules without \"sums 0\"", 4, 0, 0},
        {"gpt2_moe", "layers=1,context=8", "dp=2,ep=2", NULL, "--zero above 1", 4, 2, 0},
        {"gpt2_moe", "layers=1,context=8", "ep=2", NULL,
         "--reproducible cannot be combined with the mesh", 2, 0, 4},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_train_opts opts = GPT2_MOE("layers=1");
        opts.model = bad[i].model;
        opts.model_options = bad[i].options;
        opts.mesh = bad[i].mesh;
        opts.placement = bad[i].placement;
        opts.zero = bad[i].zero;
        opts.reproducible = bad[i].reproducible;
        assert_job_refused(bad[i].ranks, &opts, bad[i].text);
    }
}

TEST_MAIN(test_experts) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_computes_what_one_rank_does),
        cmocka_unit_test(jobs_train_and_evaluate),
        cmocka_unit_test(reproducible_steps_are_those_of_one_rank),
        cmocka_unit_test(checkpoints_are_those_of_one_rank),
        cmocka_unit_test(what_experts_do_not_go_with_is_named),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
