/* Mixtures of experts: the ranks of any mesh compute what one rank does, in f64 with the reference
 * kernels to rounding, whether experts are divided (ep), each expert is (tp), or neither, with
 * tokens that find no place, dropout, clipping and accumulation; jobs, files and refusals. */
#include "kolo/models.h"
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
} setting;

/* ---- plans in f64 ---- */

static void feed(kolo_plan *p, int step, int64_t first, int64_t count) {
    int32_t *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    for (int64_t i = 0; i < count * TOKENS; i++) {
        const int64_t at = step % 3 * 1000 + first * TOKENS + i;
        x[i] = (int32_t)(at * 7 % WORDS);
        y[i] = (int32_t)(at * at % WORDS);
    }
}

static kolo_status run_step(kolo_plan *p, const setting *s, int dp, int ranks, int step) {
    const int64_t count = s->samples / ranks, first = dp * count;
    kolo_plan_set(p, kolo_plan_find_scalar(p, "lr"), 0.05);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "update"), step + 1);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "grad_scale"),
                  1.0 / (double)(s->samples * TOKENS * s->micro_batches));
    kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "rng_key"), 77 + step);
    for (int64_t m = 0; m < s->micro_batches; m++) {
        const int64_t from = m * s->samples + first;
        feed(p, step, from, count);
        kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "first_sample"), from);
        kolo_plan_set(p, kolo_plan_find_scalar(p, "fresh"), m == 0);
        KOLO_TRY(m == s->micro_batches - 1 ? kolo_plan_run(p) : kolo_plan_accumulate(p));
    }
    return KOLO_OK;
}

static kolo_status train(kolo_comm *comm, kolo_store *store, const setting *s,
                         kolo_mesh_comms *groups, const kolo_mesh *mesh, kolo_plan **plan,
                         mesh_outcome *o) {
    const int axis = kolo_mesh_find(mesh, "dp"), ranks = mesh->axes[axis].size;
    const int dp = kolo_mesh_coordinate(mesh, kolo_comm_rank(comm), axis);
    const kolo_model_opts model = {.batch = s->samples / ranks,
                                   .sample = kolo_shape_1(TOKENS),
                                   .classes = WORDS,
                                   .options = s->options};
    const kolo_model *gpt2_moe;
    kolo_graph *g;
    KOLO_TRY(kolo_model_find("gpt2_moe", &gpt2_moe));
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    kolo_status status = gpt2_moe->build(g, &model);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer = s->optimizer,
                                 .micro_batches = s->micro_batches,
                                 .recompute = s->recompute,
                                 .mesh = *mesh,
                                 .groups = groups,
                                 .kernels = KOLO_KERNELS_REF,
                                 .bucket_bytes = 2000};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    KOLO_TRY(kolo_store_init(store, 5));
    for (int k = 0; k < MESH_STEPS; k++) {
        KOLO_TRY(run_step(*plan, s, dp, ranks, k));
        o->losses[k] = kolo_plan_scalar(*plan, "loss");
        if (k == 0) KOLO_TRY(mesh_read_parameters(store, o->first));
    }
    return mesh_read_parameters(store, o->last);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_mesh mesh;
    kolo_mesh_comms *groups;
    kolo_store *store;
    kolo_plan *plan = NULL;
    KOLO_TRY(kolo_mesh_parse(s->mesh, kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &groups));
    KOLO_TRY(kolo_store_create(&store));
    kolo_status status = train(comm, store, s, groups, &mesh, &plan, result);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_mesh_comms_destroy(groups);
    return status;
}

#define CLIPPED \
    { .momentum = 0.9, .clip = 0.5 }
#define ADAM \
    { .kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3 }
static const struct {
    setting s;
    bool soak;
} cases[] = {
    {{"dp=2", 2, "layers=1,experts=3,dropout=10", 4, 2, CLIPPED, 0}, false},
    {{"dp=1,tp=2", 2, "layers=1,experts=4,top=1,capacity=100", 2, 1, CLIPPED, 0}, false},
    {{"dp=1,ep=2", 2, "layers=2,experts=4,dropout=10", 4, 1, CLIPPED, 0}, false},
    /* Experts and samples that do not divide, places that are not enough. */
    {{"dp=1,ep=3", 3, "layers=1,experts=5,capacity=60", 3, 2, ADAM, KOLO_RECOMPUTE_FULL}, false},
    {{"dp=1,ep=2", 2, "layers=1,experts=3,top=3,dropout=10", 3, 1, CLIPPED, 0}, false},
    {{"dp=2,ep=2", 4, "layers=1,experts=4,dropout=10,balance=50", 4, 1, ADAM, 0}, false},
    {{"ep=2,tp=2,dp=1", 4, "layers=1,experts=4,top=1", 2, 1, CLIPPED, KOLO_RECOMPUTE_CHEAP}, false},
    {{"dp=2,ep=2,tp=2", 8, "layers=2,experts=2,top=1", 4, 2, CLIPPED, 0}, true},
    {{"dp=2,tp=4", 8, "layers=2,experts=3", 4, 1, ADAM, 0}, true},
    {{"ep=4,dp=2", 8, "layers=2,experts=8,tied=0", 8, 1, CLIPPED, 0}, true},
};

static void any_mesh_computes_what_one_rank_does(void **state) {
    static mesh_outcome expected;
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s, alone;
        if (cases[i].soak && !getenv("KOLO_SOAK")) continue;
        strcat(s.options, "," SIZES);
        alone = s;
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.ranks = 1;
        expected = *mesh_run(1, RANKS_THREAD, body, &alone, sizeof alone);
        assert_true(expected.losses[MESH_STEPS - 1] < expected.losses[0]);
        mesh_assert_close(s.mesh, mesh_run(s.ranks, RANKS_THREAD, body, &s, sizeof s), &expected);
    }
}

/* ---- jobs ---- */

#define GPT2_MOE(options)                                                                     \
    {                                                                                         \
        .model = "gpt2_moe", .model_options = options ",context=8,vocab=50,width=16,heads=4", \
        .data = "synthetic-tokens:N=37,test=6", .optimizer.kind = KOLO_OPTIMIZER_ADAMW,       \
        .optimizer.clip = 1, .lr = 0.01, .global_batch = 8, .steps = 6, .epochs = 3           \
    }

/* The last step of an epoch has 5 samples, and the test set 6; of the last job 1 each, so that a
 * place on dp has none. */
static void jobs_train_and_evaluate(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *mesh;
        int ranks, zero;
    } jobs[] = {
        {GPT2_MOE("layers=2,experts=3,dropout=10"), NULL, 2, 0},
        {GPT2_MOE("layers=1,experts=3"), NULL, 3, 1},
        {GPT2_MOE("layers=1,experts=3"), NULL, 2, 3},
        {GPT2_MOE("layers=1,experts=4,top=1,dropout=10"), "dp=2,tp=2", 4, 0},
        {GPT2_MOE("layers=1,experts=5,dropout=10"), "ep=2", 2, 0},
        {GPT2_MOE("layers=2,experts=4"), "dp=2,ep=2", 4, 0},
        {GPT2_MOE("layers=2,experts=4"), "pp=2", 2, 0},
        {GPT2_MOE("layers=1,experts=4"), "sp=2", 2, 0},
        {{.model = "gpt2_moe",
          .model_options = "layers=1,width=16,heads=4,context=8,vocab=50,dropout=10",
          .data = "synthetic-tokens:N=13,test=1",
          .lr = 0.01,
          .global_batch = 4,
          .epochs = 2},
         "dp=2,ep=2",
         4,
         0},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        if (jobs[i].mesh && strstr(jobs[i].mesh, "pp")) opts.accumulate = 2;
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
    const kolo_train_result expected = train_well(1, &opts);
    opts.out_dir = "run";
    opts.mesh = "ep=2";
    opts.checkpoint_steps = 2;
    opts.steps = 2;
    (void)train_well(2, &opts);
    opts.resume = "run";
    opts.steps = 4;
    opts.mesh = "ep=3";
    (void)train_well(3, &opts);
    opts.mesh = NULL;
    opts.steps = 6;
    const kolo_train_result alone = train_well(1, &opts);
    assert_int_equal(expected.parameters, alone.parameters);
    assert_near_run("resumed", &expected, &alone);
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
        {"gpt2_moe", "layers=2,context=8", "ep=2,pp=2", NULL, "stages of a pipeline have all", 4, 0,
         0},
        {"gpt2_moe", "layers=1,context=8", "ep=2,tp=2", "megatron-sp", "rules without \"sums\"", 4,
         0, 0},
        {"gpt2_moe", "layers=1,context=8", "ep=2,sp=2", NULL, "and sp=2 their positions", 4, 0, 0},
        {"gpt2_moe", "layers=1,context=8", "tp=2", "megatron-sp", "expert_dispatch: input 1", 2, 0,
         0},
        {"gpt2_moe", "layers=1,context=8", "dp=2,ep=2", NULL, "--zero is for", 4, 1, 0},
        {"gpt2_moe", "layers=1,context=8", "ep=2", NULL, "--reproducible is for", 2, 0, 4},
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
        if (strstr(bad[i].mesh, "pp")) opts.accumulate = 2;
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
