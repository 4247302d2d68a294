/* Rounds of ranks that train on their own, and compressed gradients: against a simulation of the
 * equations for all ranks in one loop (rounds_simulation.h), with the reference kernels. */
#include "graph/ops/ops.h"
#include "plan/rounds.h"
#include "ranks/plan/rounds_simulation.h"
#include "support/ranks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- the plans ---- */

static kolo_status build(kolo_graph *g) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_2(BATCH, IN));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(BATCH));
    kolo_value w1 = kolo_param(g, "w1", kolo_shape_2(HIDDEN, IN), kolo_init_fan_in(IN));
    kolo_value w2 = kolo_param(g, "w2", kolo_shape_2(CLASSES, HIDDEN), kolo_init_fan_in(HIDDEN));
    x = kolo_linear(g, kolo_relu(g, kolo_linear(g, x, w1)), w2);
    kolo_output(g, "loss", kolo_softmax_xent(g, x, y));
    return kolo_graph_check(g);
}

static void feed(kolo_plan *p, int rank, int step) {
    double *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    for (int n = 0; n < BATCH; n++) {
        for (int i = 0; i < IN; i++) x[n * IN + i] = x_at(rank, step, n, i);
        y[n] = y_at(rank, step, n);
    }
}

/* Sums of earlier gradients start before the forward pass. */
static kolo_status check_order(const kolo_plan *plan) {
    kolo_step_info *steps = kolo_alloc((size_t)kolo_plan_n_steps(plan) * sizeof *steps);
    int posts = 0;
    if (!steps) return KOLO_NOMEM(64);
    kolo_plan_describe(plan, steps);
    for (int i = 0;; i++) {
        if (steps[i].kind == KOLO_STEP_KERNEL && strcmp(steps[i].op, "linear") == 0) break;
        posts += steps[i].kind == KOLO_STEP_POST;
    }
    kolo_free(steps);
    if (posts > 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "no sum begins before the forward pass");
}

static atomic_bool gate; /* of ranks that are threads */

/* Before rank 0 needs the first sums, nothing has to have happened on rank 1. */
static void pass_gate(const setting *o, int rank, int step) {
    if (rank == 0 && step == o->every + o->overlap - 1) atomic_store(&gate, true);
    while (rank == 1 && !atomic_load(&gate)) sched_yield();
}

static kolo_status read_parameters(const kolo_store *store, double *to) {
    KOLO_TRY(kolo_store_read(store, kolo_store_find(store, "w1"), to));
    return kolo_store_read(store, kolo_store_find(store, "w2"), to + W1);
}

/* The plan of a step; in a warm-up, or after it. */
static kolo_status compile(kolo_comm *comm, kolo_store *store, const setting *o, bool warms_up,
                           kolo_plan **plan) {
    const bool alone = o->every > 0 && !warms_up, adam = o->every == 0 && o->warm_up > 0;
    const int kind = o->decoupled ? KOLO_OPTIMIZER_ADAMW : KOLO_OPTIMIZER_ADAM;
    kolo_plan_opts opts = {.train = true,
                           .optimizer = {.momentum = o->momentum},
                           .versions = alone ? o->ranks : 0,
                           .version = kolo_comm_rank(comm),
                           .compression = {.codec = o->codec, .power_rank = o->power_rank},
                           .lag = o->lag,
                           .kernels = KOLO_KERNELS_REF};
    kolo_graph *g;
    if (adam) {
        opts.optimizer = (kolo_optimizer_opts){
            .kind = kind, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = o->decay};
        opts.compression.frozen = o->warm_up;
    }
    if (warms_up) opts.compression = (kolo_compression){.power_rank = 0};
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    kolo_status status = build(g);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    kolo_plan_destroy(*plan);
    *plan = NULL;
    KOLO_TRY(kolo_plan_compile(g, &opts, store, alone ? NULL : comm, plan));
    kolo_plan_set_scalar(*plan, "lr", adam ? adam_lr : lr);
    kolo_plan_set_scalar(*plan, "grad_scale", 1.0 / BATCH / (alone ? 1 : o->ranks));
    return KOLO_OK;
}

static kolo_status create_rounds(kolo_comm *comm, kolo_store *store, const setting *o,
                                 const kolo_plan *plan, kolo_rounds **rounds) {
    const kolo_round_opts opts = {.every = o->every,
                                  .outer = o->outer,
                                  .fragments = o->fragments,
                                  .strided = o->strided,
                                  .overlap = o->overlap,
                                  .mix = o->mix,
                                  .lr = o->outer_lr,
                                  .momentum = o->outer_momentum,
                                  .nesterov = o->nesterov,
                                  .compression = {.codec = o->codec, .power_rank = o->power_rank},
                                  .bucket_bytes = 64,
                                  .kernels = KOLO_KERNELS_REF};
    KOLO_TRY(kolo_rounds_create(plan, &opts, store, comm, rounds));
    const bool apart = kolo_rounds_bytes(*rounds) >= NUMBERS * sizeof(double);
    return apart == (o->overlap > 0) ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "memory of fragments");
}

/* The first step after a warm-up has another plan, and with rounds a momentum for each rank, as in
 * train/session/exchange.c. */
static kolo_status end_warm_up(kolo_comm *comm, kolo_store *store, const setting *o,
                               kolo_plan **plan, kolo_rounds **rounds) {
    kolo_store *before;
    if (o->every == 0) return compile(comm, store, o, false, plan);
    kolo_plan_destroy(*plan);
    *plan = NULL;
    KOLO_TRY(kolo_store_detach(store, &before));
    kolo_status status = compile(comm, store, o, false, plan);
    if (status == KOLO_OK) status = create_rounds(comm, store, o, *plan, rounds);
    if (status == KOLO_OK) status = kolo_store_take_over(store, before, false);
    kolo_store_destroy(before);
    return status;
}

/* One step of a rank, and the round that is due after it. */
static kolo_status step_once(const setting *o, kolo_plan *plan, kolo_rounds *rounds, int rank,
                             int step) {
    const int own = step - o->warm_up;
    if (rounds && own == 0) kolo_rounds_begin(rounds);
    if (rounds) KOLO_TRY(kolo_rounds_start(rounds, own));
    feed(plan, rank, step);
    if (is_empty(o, rank, step)) {
        KOLO_TRY(kolo_plan_skip(plan, true));
    } else {
        KOLO_TRY(kolo_plan_run(plan));
    }
    if (o->gated) pass_gate(o, rank, step);
    return rounds ? kolo_rounds_advance(rounds, own + 1) : KOLO_OK;
}

static kolo_status train(kolo_comm *comm, kolo_store *store, const setting *o, kolo_plan **plan,
                         kolo_rounds **rounds, outcome *result) {
    double start[NUMBERS];
    KOLO_TRY(compile(comm, store, o, o->warm_up > 0, plan));
    if (o->lag > 0) KOLO_TRY(check_order(*plan));
    if (o->every > 0 && o->warm_up == 0) KOLO_TRY(create_rounds(comm, store, o, *plan, rounds));
    for (int i = 0; i < NUMBERS; i++) start[i] = initial(i);
    KOLO_TRY(kolo_store_write(store, kolo_store_find(store, "w1"), start));
    KOLO_TRY(kolo_store_write(store, kolo_store_find(store, "w2"), start + W1));
    for (int step = 0; step < STEPS; step++) {
        if (o->warm_up > 0 && step == o->warm_up) {
            KOLO_TRY(end_warm_up(comm, store, o, plan, rounds));
        }
        if (o->every == 0 && o->warm_up > 0) kolo_plan_set_scalar(*plan, "update", step + 1);
        KOLO_TRY(step_once(o, *plan, *rounds, kolo_comm_rank(comm), step));
        if (o->gated && step < STEPS - 1) continue;
        if (*rounds) KOLO_TRY(kolo_rounds_average(*rounds, step + 1 - o->warm_up));
        KOLO_TRY(read_parameters(store, result->parameters[step]));
        if (*rounds) kolo_rounds_restore(*rounds);
    }
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    kolo_store *store;
    kolo_plan *plan = NULL;
    kolo_rounds *rounds = NULL;
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = train(comm, store, arg, &plan, &rounds, result);
    kolo_rounds_destroy(rounds);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

/* The outcome of every rank, which must be one. */
static void run(const setting *o, rank_transport transport, outcome *result) {
    static outcome results[RANKS];
    memset(results, 0, sizeof results);
    rank_job job = {
        .n = o->ranks,
        .transport = transport,
        .body = body,
        .arg = o,
        .arg_bytes = sizeof *o,
        .results = results,
        .result_bytes = sizeof *results,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int r = 1; r < o->ranks; r++) assert_memory_equal(&results[r], results, sizeof *results);
    *result = results[0];
}

static const setting cases[] = {
    {.ranks = 2, .every = 4},
    {.ranks = 3, .every = 4, .momentum = 0.9},
    {.ranks = 3, .every = 1, .momentum = 0.9},
    {.ranks = 3, .every = 3, .outer = true, .outer_lr = 1, .outer_momentum = 2.0 / 3},
    {.ranks = 2,
     .every = 5,
     .outer = true,
     .outer_lr = 0.8,
     .nesterov = true,
     .outer_momentum = 0.5,
     .momentum = 0.9},
    {.ranks = 1,
     .every = 4,
     .outer = true,
     .outer_lr = 0.7,
     .nesterov = true,
     .outer_momentum = 0.9},
};

/* Each fragment at its own time, at once or with an overlap of some steps. */
static const setting streams[] = {
    {.ranks = 2, .every = 4, .outer = true, .outer_lr = 1, .fragments = 2},
    {.ranks = 3,
     .every = 5,
     .outer = true,
     .outer_lr = 0.7,
     .nesterov = true,
     .outer_momentum = 0.9,
     .momentum = 0.9,
     .fragments = 2,
     .overlap = 2,
     .mix = 0.5},
    {.ranks = 2, /* both are in flight together */
     .every = 4,
     .outer = true,
     .outer_lr = 0.8,
     .outer_momentum = 0.5,
     .fragments = 2,
     .strided = true,
     .overlap = 3},
    {.ranks = 2, .every = 3, .outer = true, .outer_lr = 0.8, .overlap = 1, .mix = 0.25},
    {.ranks = 3, .every = 1, .outer = true, .outer_lr = 0.8, .mix = 0.25},
    {.ranks = 1,
     .every = 4,
     .outer = true,
     .outer_lr = 0.7,
     .nesterov = true,
     .outer_momentum = 0.9,
     .fragments = 2,
     .overlap = 1,
     .mix = 0.5},
};

/* Values that differ in the last bit may be encoded differently, so codecs have a wider limit. */
static void assert_follows(const setting *o, const char *what, int i, double limit) {
    static outcome want, have;
    simulate(o, &want);
    run(o, RANKS_THREAD, &have);
    double error = test_relative_l2_f64(&have.parameters[0][0], &want.parameters[0][0],
                                        (int64_t)STEPS * NUMBERS);
    if (!(error < limit)) fail_msg("%s %d: the relative error is %g", what, i, error);
    assert_memory_not_equal(want.parameters[STEPS - 1], want.parameters[0],
                            sizeof want.parameters[0]);
}

static void rounds_follow_the_equations(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) assert_follows(&cases[i], "case", (int)i, 1e-12);
}

static void fragments_follow_the_equations(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(streams); i++) {
        assert_follows(&streams[i], "fragments", (int)i, 1e-12);
    }
    static const kolo_codec_kind kinds[] = {KOLO_CODEC_BF16, KOLO_CODEC_INT8};
    for (size_t i = 0; i < KOLO_COUNT(kinds); i++) {
        for (int k = 0; k < 2; k++) {
            setting o = streams[k];
            o.codec.kind = kinds[i];
            assert_follows(&o, "fragments with codec", (int)kinds[i], 1e-6);
        }
    }
    setting low = streams[1];
    low.power_rank = 1;
    assert_follows(&low, "fragments of low rank", 1, 1e-12);
}

/* Rank 0 cuts, starts the sums and makes the steps of the overlap before rank 1 has done anything.
 */
static void steps_do_not_wait_for_what_is_in_flight(void **state) {
    static outcome want, have;
    const setting o = {.ranks = 2,
                       .every = 4,
                       .outer = true,
                       .outer_lr = 0.7,
                       .nesterov = true,
                       .outer_momentum = 0.9,
                       .overlap = 3,
                       .mix = 0.5,
                       .gated = true};
    atomic_store(&gate, false);
    simulate(&o, &want);
    run(&o, RANKS_THREAD, &have);
    const double *last = want.parameters[STEPS - 1];
    assert_true(test_relative_l2_f64(have.parameters[STEPS - 1], last, NUMBERS) < 1e-12);
}

/* Post-local SGD: whole gradients first, then rounds, of momenta that go on. */
static void rounds_after_a_warm_up_follow_the_equations(void **state) {
    const setting *const of[] = {&cases[1], &cases[3], &cases[4], &cases[5], &streams[1]};
    for (size_t i = 0; i < KOLO_COUNT(of); i++) {
        static const int steps[] = {1, 5, 4, 3, 6};
        setting o = *of[i];
        o.warm_up = steps[i];
        assert_follows(&o, "warm-up of case", (int)i, 1e-12);
    }
    setting o = cases[4];
    o.warm_up = STEPS; /* it does not end */
    assert_follows(&o, "warm-up", STEPS, 1e-12);
    o.warm_up = 4;
    o.codec.kind = KOLO_CODEC_INT8; /* from its end on */
    assert_follows(&o, "warm-up with a codec", 4, 1e-6);
}

static void one_fragment_is_the_round_bitwise(void **state) {
    static outcome whole, one;
    setting o = cases[4];
    run(&o, RANKS_THREAD, &whole);
    o.fragments = 1;
    o.strided = true;
    run(&o, RANKS_THREAD, &one);
    assert_memory_equal(&whole, &one, sizeof whole);
}

static void compressed_gradients_follow_the_equations(void **state) {
    for (int kind = KOLO_CODEC_NONE + 1; kind < KOLO_CODEC_COUNT; kind++) {
        setting o = {.ranks = 3, .momentum = 0.9, .codec = {(kolo_codec_kind)kind, 0}};
        if (kind == KOLO_CODEC_TOPK) o.codec.ratio = 0.2;
        assert_follows(&o, "codec", kind, 1e-6);
        o.has_nothing = true;
        assert_follows(&o, "without samples, codec", kind, 1e-6);
        setting rounds = cases[4];
        rounds.codec = o.codec;
        assert_follows(&rounds, "rounds with codec", kind, 1e-6);
    }
}

/* The momentum is compressed, from a certain update on. */
static void one_bit_adam_follows_the_equations(void **state) {
    static const setting adams[] = {
        {.ranks = 2, .warm_up = 5},
        {.ranks = 3, .warm_up = 1, .decay = 0.1},
        {.ranks = 3, .warm_up = 6, .decay = 0.1, .decoupled = true, .has_nothing = true},
        {.ranks = 2, .warm_up = 4, .decay = 0.1, .has_nothing = true},
        {.ranks = 2, .warm_up = STEPS}, /* nothing is compressed */
    };
    for (size_t i = 0; i < KOLO_COUNT(adams); i++) {
        setting o = adams[i];
        o.codec.kind = KOLO_CODEC_ONEBIT;
        assert_follows(&o, "1-bit Adam", (int)i, 1e-12);
    }
}

static void sums_of_low_rank_follow_the_equations(void **state) {
    static const setting powers[] = {
        {.ranks = 3, .momentum = 0.9, .power_rank = 1},
        {.ranks = 2, .momentum = 0.9, .power_rank = 2},
        {.ranks = 3, .power_rank = 2, .has_nothing = true},
        {.ranks = 3, .momentum = 0.9, .lag = 2, .power_rank = 1},
        {.ranks = 2,
         .every = 3,
         .outer = true,
         .outer_lr = 0.8,
         .nesterov = true,
         .outer_momentum = 0.5,
         .power_rank = 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(powers); i++) {
        assert_follows(&powers[i], "low rank", (int)i, 1e-12);
    }
}

static void lagging_updates_follow_the_equations(void **state) {
    static const setting lags[] = {
        {.ranks = 3, .momentum = 0.9, .lag = 1},
        {.ranks = 2, .lag = 3},
        {.ranks = 1, .momentum = 0.5, .lag = 2},
        {.ranks = 3, .momentum = 0.9, .lag = 1, .has_nothing = true},
        {.ranks = 3, .momentum = 0.9, .lag = 2, .codec = {KOLO_CODEC_INT8, 0}},
        {.ranks = 2, .lag = 2, .has_nothing = true, .codec = {KOLO_CODEC_ONEBIT, 0}},
    };
    for (size_t i = 0; i < KOLO_COUNT(lags); i++) {
        assert_follows(&lags[i], "lag", (int)i,
                       lags[i].codec.kind == KOLO_CODEC_NONE ? 1e-12 : 1e-6);
    }
}

static void threads_and_processes_agree_bitwise(void **state) {
    static outcome threads, processes;
    const setting *const both[] = {&cases[4], &streams[1]};
    for (int i = 0; i < 2; i++) {
        run(both[i], RANKS_THREAD, &threads);
        run(both[i], RANKS_SHM, &processes);
        assert_memory_equal(&threads, &processes, sizeof threads);
    }
}

static void versions_are_one_tensor_in_files(void **state) {
    const kolo_layout blocked = {
        .rank = 2, .n_blocks = 1, .order = {1, 0}, .block_dim = {1}, .block_size = {8}};
    const kolo_tensor one = {KOLO_DTYPE_F32, kolo_shape_2(3, 16), blocked};
    const kolo_tensor stack = kolo_tensor_stack(&one, 4), back = kolo_tensor_unstack(&stack);
    const kolo_shape shape = kolo_shape_3(4, 3, 16);
    assert_true(kolo_shape_equal(&stack.shape, &shape));
    assert_true(kolo_tensor_bytes(&stack) == 4 * kolo_tensor_bytes(&one));
    const int64_t index[] = {2, 1, 9}, inner[] = {1, 9};
    assert_true(kolo_layout_offset(&stack.layout, &stack.shape, index) ==
                2 * kolo_tensor_elements(&one) +
                    kolo_layout_offset(&one.layout, &one.shape, inner));
    assert_true(kolo_layout_equal(&back.layout, &one.layout));
    assert_true(kolo_shape_equal(&back.shape, &one.shape));
}

TEST_MAIN(test_rounds) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_follow_the_equations),
        cmocka_unit_test(fragments_follow_the_equations),
        cmocka_unit_test(steps_do_not_wait_for_what_is_in_flight),
        cmocka_unit_test(rounds_after_a_warm_up_follow_the_equations),
        cmocka_unit_test(one_fragment_is_the_round_bitwise),
        cmocka_unit_test(compressed_gradients_follow_the_equations),
        cmocka_unit_test(one_bit_adam_follows_the_equations),
        cmocka_unit_test(sums_of_low_rank_follow_the_equations),
        cmocka_unit_test(lagging_updates_follow_the_equations),
        cmocka_unit_test(threads_and_processes_agree_bitwise),
        cmocka_unit_test(versions_are_one_tensor_in_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
