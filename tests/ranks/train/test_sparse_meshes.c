/* Row-sparse gradients of embedding tables on meshes: with slices of the table, of the samples and
 * of the positions the ranks compute what one rank does, in f64 with the reference kernels to
 * rounding; jobs whose last steps divide no more, and are of fewer samples than places; refusals.
 */
#include "kolo/models.h"
#include "pass/partition/rules.h"
#include "support/folder.h"
#include "support/mesh_run.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 6, WORDS = 31 };
#define SIZES "layers=1,width=8,heads=4,context=6,vocab=31,tied=0"

typedef struct setting {
    char mesh[32];
    int ranks;
    const char *model, *options;
    int64_t samples;
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    int zero;
    const char *placement;
    int64_t micro_batches; /* 0: one */
} setting;

/* ---- plans in f64 ---- */

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    (void)arg;
    mesh_feed_tokens(p, step, first * TOKENS, count * TOKENS, WORDS);
}

static kolo_status build(kolo_graph *g, int64_t samples, const void *arg) {
    const setting *s = arg;
    const kolo_model_opts opts = {
        .batch = samples, .sample = kolo_shape_1(TOKENS), .classes = WORDS, .options = s->options};
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(s->model, &model));
    return model->build(g, &opts);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const char *built = s->placement ? kolo_placement_rules(s->placement) : NULL;
    const mesh_model m = {.mesh = s->mesh,
                          .samples = s->samples,
                          .terms = TOKENS,
                          .micro_batches = s->micro_batches > 0 ? s->micro_batches : 1,
                          .optimizer = s->optimizer,
                          .recompute = s->recompute,
                          .zero = s->zero,
                          .sparse_embedding = true,
                          .placement = built ? built : s->placement,
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

#define CLIPPED \
    { .clip = 0.05 }
#define ADAM \
    { .kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3, .clip = 0.05 }
/* Rules that leave the table whole. */
#define WHOLE "*.mlp.c_fc.weight 0\n*.mlp.c_proj.weight 1\n"
#define GPT2 "gpt2_tiny", SIZES ",dropout=10"
#define MOE "gpt2_moe", SIZES ",experts=4,dropout=10"
static const struct {
    setting s;
    bool soak;
} cases[] = {
    {{"dp=1,tp=2", 2, GPT2, 2, CLIPPED, 0, 0, NULL, 0}, false},
    {{"dp=1,tp=2", 2, GPT2, 2, ADAM, KOLO_RECOMPUTE_FULL, 0, WHOLE, 2}, false},
    {{"dp=1,sp=2", 2, GPT2, 2, ADAM, KOLO_RECOMPUTE_CHEAP, 0, NULL, 0}, false},
    {{"dp=1,sp=4", 4, GPT2, 1, CLIPPED, 0, 0, NULL, 0}, false}, /* two or one positions */
    {{"dp=1,ep=2", 2, MOE, 2, ADAM, 0, 0, NULL, 2}, false},
    {{"dp=1,ep=2", 2, MOE, 3, CLIPPED, 0, 0, NULL, 3}, false}, /* samples that do not divide */
    {{"dp=2,tp=2", 4, GPT2, 4, ADAM, 0, 1, "megatron-sp", 2}, false},
    {{"dp=2,sp=2", 4, GPT2, 2, CLIPPED, 0, 0, "ring", 0}, false},
    {{"sp=2,dp=1,tp=2", 4, GPT2, 2, ADAM, 0, 0, NULL, 0}, false},
    {{"dp=2,sp=2,tp=2", 8, GPT2, 4, ADAM, 0, 1, NULL, 0}, true},
    {{"dp=2,ep=2,tp=2", 8, MOE, 4, CLIPPED, 0, 0, NULL, 0}, true},
    {{"dp=2,sp=3", 6, GPT2, 2, ADAM, 0, 0, "zigzag", 0}, true},
    {{"ep=2,dp=4", 8, MOE, 4, ADAM, 0, 1, NULL, 0}, true},
};

static void any_mesh_computes_what_one_rank_does(void **state) {
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s, alone = s;
        if (cases[i].soak && !getenv("KOLO_SOAK")) continue;
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.zero = 0;
        alone.placement = NULL;
        mesh_assert_equals(s.mesh, body, &s, s.ranks, &alone, 1, sizeof s);
    }
}

/* ---- jobs ---- */

#define JOB(words)                                                                             \
    {                                                                                          \
        .model = "gpt2_moe",                                                                   \
        .model_options =                                                                       \
            "layers=1,tied=0,dropout=10,experts=4,context=8,vocab=" words ",width=16,heads=4", \
        .data = "synthetic-tokens:N=37,test=6", .optimizer.kind = KOLO_OPTIMIZER_ADAM,         \
        .optimizer.clip = 1, .lr = 0.01, .global_batch = 8, .steps = 6, .epochs = 3,           \
        .sparse_embedding = true                                                               \
    }

/* With the fast kernels. The last step of an epoch has 5 samples, which do not divide over ep; of
 * the last jobs 1, so that a place on dp has none. */
static void jobs_train_and_evaluate(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *mesh;
        int ranks;
        int64_t samples, accumulate;
    } jobs[] = {
        {JOB("50"), "dp=2,tp=2", 4, 0, 0},  {JOB("51"), "sp=4", 4, 0, 0},
        {JOB("50"), "dp=2,ep=2", 4, 0, 0},  {JOB("50"), "dp=2,ep=2", 4, 13, 0},
        {JOB("50"), "dp=2,sp=2", 4, 13, 0}, {JOB("50"), "dp=2,tp=2", 4, 13, 2},
        {JOB("50"), "dp=2,ep=2", 4, 0, 2},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        if (jobs[i].samples > 0) {
            opts.data = "synthetic-tokens:N=13,test=1";
            opts.global_batch = 4;
            opts.steps = 0;
        }
        opts.accumulate = jobs[i].accumulate;
        const kolo_train_result alone = train_well(1, &opts);
        opts.mesh = jobs[i].mesh;
        const kolo_train_result meshed = train_well(jobs[i].ranks, &opts);
        assert_near_run(jobs[i].mesh, &alone, &meshed);
    }
}

static void checkpoints_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = JOB("50");
    (void)state;
    assert_resumes_on_meshes(&opts, "tp=2", "sp=2");
}

static void pipelines_are_refused(void **state) {
    kolo_train_opts opts = JOB("50");
    (void)state;
    opts.mesh = "pp=2,sp=2";
    opts.accumulate = 2;
    assert_job_refused(4, &opts, "--sparse-embedding cannot be combined with the mesh");
}

TEST_MAIN(test_sparse_meshes) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_computes_what_one_rank_does),
        cmocka_unit_test(jobs_train_and_evaluate),
        cmocka_unit_test(checkpoints_are_those_of_one_rank),
        cmocka_unit_test(pipelines_are_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
