/* Stages of a pipeline by measured times: layers that move to other stages between two steps leave
 * every bit as it is, parameters and optimizer state move with them; all ranks take the cuts of
 * rank 0; a rank without memory ends a move on all; jobs, their notices, and what is refused. */
#include "base/memory.h"
#include "data/prefetch.h"
#include "kolo/data.h"
#include "pass/partition/rules.h"
#include "plan/program/program.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/session/session.h"

#include <string.h>

enum { STEPS = 8, WINDOW = 2, STAGES = 3, GLOBAL = 8 };

/* ---- sessions in f64 ---- */

typedef struct setting {
    const char *mesh, *schedule, *options;
    int ranks;
    kolo_optimizer_opts optimizer;
    int zero;
    double speeds[STAGES]; /* of the stages, in place of measured ones */
    bool moves;
    int steps;  /* 0: STEPS */
    bool turns; /* two stages exchange their speeds after each move */
    bool fast;  /* kernels, in f32 */
    int fails;  /* the allocation of the last rank that fails in a move; 0: none */
} setting;

typedef struct outcome {
    double losses[STEPS];
    uint64_t hash; /* of parameters and optimizer state */
    int moves;
    char before[128], after[128];
    double bytes[2]; /* of this rank's store, before and after */
} outcome;

static int steps_of(const setting *t) { return t->steps > 0 ? t->steps : STEPS; }

static void exchange(double *speeds) {
    const double first = speeds[0];
    speeds[0] = speeds[1];
    speeds[1] = first;
}

static kolo_status move_layers(kolo_session *s, const setting *t, bool *moved) {
    kolo_comm *comm = kolo_session_comm(s);
    if (kolo_comm_rank(comm) == t->ranks - 1) kolo_alloc_fail_nth(t->fails);
    const kolo_status status = kolo_session_rebalance(s, moved);
    kolo_alloc_fail_nth(0);
    return status;
}

static void describe(const kolo_session *s, char *to, size_t bytes) {
    kolo_text text = {0};
    kolo_session_describe_stages(s, false, &text);
    snprintf(to, bytes, "%s", text.text);
    kolo_text_fini(&text);
}

static kolo_status take_steps(kolo_session *s, kolo_loader *loader, const setting *t,
                              double *speeds, outcome *o) {
    KOLO_TRY(kolo_session_init(s, 3));
    describe(s, o->before, sizeof o->before);
    o->bytes[0] = (double)kolo_plan_memory_of(kolo_session_plan(s)).store;
    for (int k = 0; k < steps_of(t); k++) {
        kolo_batch batch;
        kolo_sums sums;
        bool moved = false;
        if (kolo_session_has_measured_stages(s)) KOLO_TRY(move_layers(s, t, &moved));
        if (moved && t->turns) exchange(speeds);
        KOLO_TRY(kolo_loader_next(loader, &batch));
        KOLO_TRY(kolo_session_step_batch(s, &batch, 0.05, &sums));
        if (k < STEPS) o->losses[k] = sums.metric[KOLO_METRIC_LOSS];
    }
    describe(s, o->after, sizeof o->after);
    o->bytes[1] = (double)kolo_plan_memory_of(kolo_session_plan(s)).store;
    o->moves = kolo_session_stage_moves(s);
    return kolo_store_hash_shards(kolo_session_store(s), &o->hash);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *t = arg;
    double speeds[] = {t->speeds[0], t->speeds[1], t->speeds[2]};
    const kolo_dataset_opts windows = {.context = 6, .vocabulary = 23};
    kolo_session_config opts = {.model = "gpt2_tiny",
                                .model_options = t->options,
                                .sample = kolo_shape_1(6),
                                .label = kolo_shape_1(6),
                                .classes = 23,
                                .global_batch = GLOBAL,
                                .accumulate = 2,
                                .f64 = !t->fast,
                                .rebalance = t->moves ? WINDOW : 0,
                                .stage_speeds = speeds,
                                .plan = {.optimizer = t->optimizer,
                                         .zero = t->zero,
                                         .kernels = t->fast ? KOLO_KERNELS_BEST : KOLO_KERNELS_REF,
                                         .threads = 1,
                                         .bucket_bytes = 4 << 10}};
    kolo_dataset *data;
    kolo_session *session = NULL;
    kolo_loader *loader = NULL;
    KOLO_TRY(kolo_program_find(t->schedule, &opts.schedule, &opts.chunks));
    KOLO_TRY(kolo_mesh_parse(t->mesh, t->ranks, &opts.plan.mesh));
    const int dp = opts.plan.mesh.axes[kolo_mesh_find(&opts.plan.mesh, "dp")].size;
    opts.batch = GLOBAL / dp / 2;
    KOLO_TRY(
        kolo_dataset_open_for("synthetic-tokens:N=64,test=1", KOLO_SPLIT_TRAIN, &windows, &data));
    kolo_status status = kolo_session_create_for(&opts, comm, &session);
    if (status == KOLO_OK) {
        const kolo_loader_opts loader_opts = {.dataset = data,
                                              .global_batch = GLOBAL,
                                              .rank = kolo_session_data_rank(session),
                                              .world = kolo_session_data_ranks(session),
                                              .end = steps_of(t)};
        status = kolo_loader_create(&loader_opts, &loader);
    }
    if (status == KOLO_OK) status = take_steps(session, loader, t, speeds, result);
    if (status != KOLO_OK) kolo_session_fail(session, status);
    kolo_session_destroy(session);
    kolo_loader_destroy(loader);
    kolo_dataset_close(data);
    return status;
}

static void run(const setting *t, outcome *o) {
    ASSERT_OK(run_rank_job(&(rank_job){.n = t->ranks,
                                       .transport = RANKS_THREAD,
                                       .body = body,
                                       .arg = t,
                                       .arg_bytes = sizeof *t,
                                       .results = o,
                                       .result_bytes = sizeof *o}));
    for (int r = 1; r < t->ranks; r++) {
        assert_memory_equal(o[r].losses, o[0].losses, sizeof o->losses);
        assert_int_equal(o[r].hash, o[0].hash);
        assert_string_equal(o[r].after, o[0].after);
    }
}

#define LAYERS(n, more) "layers=" #n ",width=8,heads=2,context=6,vocab=23" more
static void moved_layers_leave_every_bit(void **state) {
    static const kolo_optimizer_opts momentum = {.momentum = 0.9};
    static const kolo_optimizer_opts adam = {.kind = KOLO_OPTIMIZER_ADAM},
                                     clipped = {.momentum = 0.9, .clip = 0.5};
    const setting cases[] = {
        {"dp=1,pp=2", "1f1b", LAYERS(3, ",dropout=10"), 2, momentum, .speeds = {1, 0.2},
         .moves = true},
        {"dp=1,pp=2", "gpipe", LAYERS(3, ""), 2, adam, .speeds = {0.2, 1}, .moves = true},
        {"dp=1,pp=2", "1f1b", LAYERS(3, ""), 2, clipped, .speeds = {1, 0.2}, .moves = true},
        {"dp=1,pp=3", "zb-h1", LAYERS(3, ""), 3, momentum, .speeds = {1, 0.3, 0.3}, .moves = true},
        {"dp=2,pp=2", "1f1b", LAYERS(3, ",dropout=10"), 4, adam, .speeds = {1, 0.2}, .moves = true},
        {"dp=2,pp=2", "1f1b", LAYERS(3, ""), 4, adam, .zero = 1, .speeds = {1, 0.2}, .moves = true},
        {"dp=1,pp=2", "interleaved:2", LAYERS(4, ""), 2, momentum, .speeds = {1, 0.2},
         .moves = true},
        {"dp=1,pp=2,tp=2", "1f1b", LAYERS(3, ""), 4, momentum, .speeds = {1, 0.2}, .moves = true},
    };
    outcome stays[4], moves[4];
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting t = cases[i];
        run(&t, moves);
        t.moves = false;
        run(&t, stays);
        assert_int_equal(stays[0].moves, 0);
        assert_string_equal(stays[0].before, stays[0].after);
        if (moves[0].moves != 1 || strcmp(moves[0].before, moves[0].after) == 0) {
            fail_msg("%s: %d moves, %s, then %s", t.mesh, moves[0].moves, moves[0].before,
                     moves[0].after);
        }
        /* Parameters and state have moved too. */
        assert_true(moves[0].bytes[0] != moves[0].bytes[1]);
        if (memcmp(moves[0].losses, stays[0].losses, sizeof stays[0].losses) != 0 ||
            moves[0].hash != stays[0].hash) {
            fail_msg("%s %s: another loss, or other parameters", t.mesh, t.schedule);
        }
    }
}

/* Speeds that turn at every move take layers to and fro: with windows of 2 steps, after 2 that are
 * not measured, after steps 4, 8 and 12. That is a move back, after which windows have 4 steps, and
 * after the next one, after step 18, 8. */
static void moves_to_and_fro_become_rare(void **state) {
    const setting t = {.mesh = "dp=1,pp=2",
                       .schedule = "1f1b",
                       .options = LAYERS(3, ""),
                       .ranks = 2,
                       .speeds = {1, 0.2},
                       .moves = true,
                       .steps = 24,
                       .turns = true};
    outcome o[2];
    (void)state;
    run(&t, o);
    assert_int_equal(o[0].moves, 4);
}

/* Whether the error of a rank is the lack of memory, its own or of the one that it names. */
static bool is_of_memory(const rank_outcome *end) {
    return end->status != KOLO_OK && strstr(end->error, "memory");
}

/* Whether the allocation failed: then all ranks end for it, none of them waits. */
static bool fails_everywhere(const setting *t) {
    outcome o[4];
    rank_outcome ends[4];
    const kolo_status status = run_rank_job(&(rank_job){.n = t->ranks,
                                                        .transport = RANKS_THREAD,
                                                        .body = body,
                                                        .arg = t,
                                                        .arg_bytes = sizeof *t,
                                                        .results = o,
                                                        .result_bytes = sizeof *o,
                                                        .outcomes = ends,
                                                        .timeout_ms = 10000,
                                                        .segment_bytes = 32 << 20});
    for (int r = 0; r < t->ranks && status != KOLO_OK; r++) {
        if (is_of_memory(&ends[r])) continue;
        fail_msg("%s, allocation %d: rank %d: %d \"%s\"", t->mesh, t->fails, r, ends[r].status,
                 ends[r].error);
    }
    return status != KOLO_OK;
}

/* The last allocations of a move are those of what is gathered. */
static void a_rank_without_memory_ends_a_move_on_all(void **state) {
    static const kolo_optimizer_opts adam = {.kind = KOLO_OPTIMIZER_ADAM};
    const setting cases[] = {
        {"dp=2,pp=2", "1f1b", LAYERS(3, ""), 4, adam, .zero = 1, .speeds = {0.2, 1}, .moves = true,
         .steps = 5},
        {"dp=1,pp=2,tp=2", "1f1b", LAYERS(3, ""), 4, adam, .speeds = {0.2, 1}, .moves = true,
         .steps = 5, .fast = true},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting t = cases[i];
        int fails = 1, passes = 1;
        for (t.fails = 1; fails_everywhere(&t); t.fails *= 8) fails = t.fails;
        for (passes = t.fails; passes - fails > 1;) { /* to the last one that fails */
            t.fails = (fails + passes) / 2;
            *(fails_everywhere(&t) ? &fails : &passes) = t.fails;
        }
        assert_true(fails > 100);
        for (t.fails = fails - 1; t.fails > fails - TEST_FEWER(4, 12); t.fails -= 3) {
            assert_true(fails_everywhere(&t));
        }
    }
}

/* ---- jobs ---- */

static const kolo_train_opts job = {
    .model = "gpt2_tiny",
    .model_options = "layers=4,width=32,heads=4,context=8,vocab=50,dropout=10",
    .data = "synthetic-tokens:N=67,test=10",
    .optimizer.kind = KOLO_OPTIMIZER_ADAMW,
    .lr = 0.01,
    .global_batch = 8,
    .accumulate = 2,
    .steps = 12,
    .epochs = 20,
    .mesh = "pp=2",
    .reference_kernels = true,
};

/* The weights let the model be cut very unevenly; the times of the stages correct that. Checkpoints
 * are written before and after it. */
static void jobs_correct_uneven_cuts(void **state) {
    kolo_train_opts opts = job;
    (void)state;
    const kolo_train_result even = train_well(2, &opts);
    opts.worker_weights = "1,0.01";
    const kolo_train_result uneven = train_well(2, &opts);
    assert_same_run("uneven stages", &even, &uneven);
    opts.rebalance_stages = 1; /* several windows: a loaded machine may disturb the first one */
    opts.out_dir = "moved";
    opts.checkpoint_steps = 3;
    opts.notice = train_note;
    *train_notices = '\0';
    const kolo_train_result moved = train_well(2, &opts);
    assert_same_run("moved layers", &even, &moved);
    assert_true(moved.stage_moves >= 1 && moved.stages[0]);
    assert_int_equal(even.stage_moves, 0);
    if (!strstr(train_notices, "stages of the pipeline from step ")) {
        fail_msg("%s", train_notices);
    }
}

/* With the fast kernels the layouts of a stage may be others, so that runs differ by rounding. */
static void jobs_with_fast_kernels_agree(void **state) {
    kolo_train_opts opts = job;
    (void)state;
    opts.reference_kernels = false;
    const kolo_train_result alone = train_well(2, &opts);
    opts.worker_weights = "1,0.01";
    opts.rebalance_stages = 1;
    const kolo_train_result moved = train_well(2, &opts);
    assert_true(moved.stage_moves >= 1);
    assert_near_run("fast kernels", &alone, &moved);
}

/* Within the memory of the larger stage; less is refused with the figures. */
static void stages_keep_within_their_memory(void **state) {
    kolo_train_opts opts = job;
    (void)state;
    const kolo_train_result free = train_well(2, &opts);
    opts.stage_bytes = 64 << 20;
    const kolo_train_result bound = train_well(2, &opts);
    assert_same_run("a limit of memory", &free, &bound);
    opts.stage_bytes = 20000;
    assert_job_refused(2, &opts, "keeps every stage within 0.0 MiB");
}

static void what_stages_cannot_do_is_named(void **state) {
    kolo_train_opts opts = job;
    (void)state;
    opts.mesh = NULL;
    opts.rebalance_stages = 3;
    assert_job_refused(2, &opts, "--rebalance-stages is for the stages of a pipeline");
    opts.rebalance_stages = 0;
    opts.stage_bytes = 1 << 20;
    assert_job_refused(2, &opts, "--stage-memory is for the stages of a pipeline");
    opts = job;
    opts.worker_weights = "measured";
    assert_job_refused(2, &opts, "give numbers for the stages");
    opts.worker_weights = "1";
    assert_job_refused(2, &opts, "1 worker weights for 2 workers");
    opts.mesh = NULL;
    opts.worker_weights = "1,2";
    assert_job_refused(2, &opts, "or the layers of a pipeline");
}

TEST_MAIN(test_rebalance) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moved_layers_leave_every_bit),
        cmocka_unit_test(moves_to_and_fro_become_rare),
        cmocka_unit_test(a_rank_without_memory_ends_a_move_on_all),
        cmocka_unit_test(jobs_correct_uneven_cuts),
        cmocka_unit_test(jobs_with_fast_kernels_agree),
        cmocka_unit_test(stages_keep_within_their_memory),
        cmocka_unit_test(what_stages_cannot_do_is_named),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
