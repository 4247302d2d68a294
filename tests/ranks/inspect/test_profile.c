/* Profiles and traces: the phase of each step, consistent sums, a valid trace file. No times are
 * compared. */
#include "base/file.h"
#include "base/memory.h"
#include "inspect/machine.h"
#include "kolo/profile.h"
#include "support/ranks.h"
#include "support/support.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 2, STEPS = 3, BATCH = 4, MOST_ROWS = 2000 };

typedef struct row {
    kolo_phase phase;
    char op[32], parameter[48];
    double ms, alone_ms, bound_ms, flops, bytes;
    bool slow, has_kernel;
} row;

typedef struct outcome {
    kolo_profile profile;
    row rows[MOST_ROWS];
} outcome;

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_train_opts *opts = arg;
    outcome *o = result;
    kolo_profile *p;
    KOLO_TRY(kolo_profile_train(comm, opts, &(kolo_profile_opts){.steps = STEPS}, &p));
    o->profile = *p;
    for (int i = 0; i < p->n_rows && i < MOST_ROWS; i++) {
        const kolo_profile_row *r = &p->rows[i];
        o->rows[i] = (row){.phase = r->phase,
                           .ms = r->ms,
                           .alone_ms = r->alone_ms,
                           .bound_ms = r->bound_ms,
                           .flops = r->flops,
                           .bytes = r->bytes,
                           .slow = r->slow,
                           .has_kernel = *r->kernel};
        snprintf(o->rows[i].op, sizeof o->rows[i].op, "%s", r->op);
        snprintf(o->rows[i].parameter, sizeof o->rows[i].parameter, "%s", r->parameter);
    }
    kolo_profile_destroy(p);
    return KOLO_OK;
}

static const outcome *profile(int ranks, kolo_train_opts opts) {
    static outcome outcomes[RANKS];
    rank_job job = {
        .n = ranks,
        .transport = RANKS_THREAD,
        .body = body,
        .arg = &opts,
        .arg_bytes = sizeof opts,
        .results = outcomes,
        .result_bytes = sizeof *outcomes,
    };
    memset(outcomes, 0, sizeof outcomes);
    ASSERT_OK(run_rank_job(&job));
    assert_true(outcomes[0].profile.n_rows > 0 && outcomes[0].profile.n_rows < MOST_ROWS);
    return outcomes;
}

/* ---- profiles ---- */

static kolo_phase phase_of(const outcome *o, const char *op) {
    for (int i = 0; i < o->profile.n_rows; i++) {
        if (strcmp(o->rows[i].op, op) == 0) return o->rows[i].phase;
    }
    fail_msg("no step runs %s", op);
    return KOLO_PHASE_INPUT;
}

/* Rows are of a whole step: kernels count once for each micro-batch. */
static void micro_batches_count(void **state) {
    kolo_train_opts opts = {
        .model = "lenet", .batch = BATCH, .optimizer.momentum = 0.9, .accumulate = 3};
    static outcome three;
    three = *profile(1, opts);
    opts.accumulate = 1;
    const outcome *one = profile(1, opts);
    assert_int_equal(three.profile.accumulate, 3);
    double sum = 0, flops[2][2] = {{0}}; /* of the step with 1 and 3; convolutions, updates */
    for (int k = 0; k < 2; k++) {
        const outcome *o = k ? &three : one;
        for (int i = 0; i < o->profile.n_rows; i++) {
            const row *r = &o->rows[i];
            if (strcmp(r->op, "conv2d") == 0) flops[k][0] += r->flops;
            if (strcmp(r->op, "sgd") == 0) flops[k][1] += r->bytes;
            if (k) sum += r->ms;
            assert_true(!r->has_kernel || r->alone_ms > 0);
        }
    }
    assert_true(flops[1][0] == 3 * flops[0][0] && flops[0][0] > 0);
    assert_true(flops[1][1] == flops[0][1] && flops[0][1] > 0);
    double phases = 0;
    for (int i = 1; i < KOLO_PHASES; i++) phases += three.profile.phase_ms[i];
    assert_true(sum < 2 * phases && phases < 2 * sum); /* medians of sums, sums of medians */
}

/* Neither kernels by themselves nor the machine. */
static void times_alone_are_measured(void **state) {
    const kolo_train_opts opts = {.model = "mlp", .batch = BATCH};
    kolo_profile *p;
    ASSERT_OK(
        kolo_profile_train(NULL, &opts, &(kolo_profile_opts){.steps = 2, .times_only = true}, &p));
    assert_true(p->step_ms > 0 && p->phase_ms[KOLO_PHASE_BACKWARD] > 0);
    assert_true(p->peak_flops == 0 && p->peak_bytes == 0 && p->bound_ms == 0);
    for (int i = 0; i < p->n_rows; i++) {
        assert_true(p->rows[i].alone_ms == 0 && p->rows[i].bound_ms == 0);
        assert_true(p->rows[i].phase != KOLO_PHASE_UPDATE || p->rows[i].bytes > 0);
    }
    kolo_profile_destroy(p);
}

typedef struct profiled {
    double ms, together_ms;
    int64_t store_bytes;
} profiled;

/* Rank 1 cannot build its model. */
static kolo_status together(kolo_comm *comm, const void *arg, void *result) {
    const bool *fails = arg;
    const bool cannot = *fails && kolo_comm_rank(comm) == 1;
    const kolo_train_opts opts = {.model = cannot ? "nonsense" : "mlp", .batch = BATCH};
    const kolo_profile_opts how = {.steps = STEPS, .times_only = true, .together = comm};
    kolo_profile *p;
    KOLO_TRY(kolo_profile_train(NULL, &opts, &how, &p));
    ((profiled *)result)->ms = p->step_ms;
    ((profiled *)result)->together_ms = p->together_ms;
    ((profiled *)result)->store_bytes = p->store_bytes;
    kolo_profile_destroy(p);
    return KOLO_OK;
}

/* All have the times until the last one has ended a step, and fail if one does. They have two
 * versions of the parameters, as in training. */
static void ranks_profile_together(void **state) {
    kolo_profile *alone;
    ASSERT_OK(kolo_profile_train(NULL, &(kolo_train_opts){.model = "mlp", .batch = BATCH},
                                 &(kolo_profile_opts){.steps = 1, .times_only = true}, &alone));
    const int64_t one_version = alone->store_bytes;
    kolo_profile_destroy(alone);
    for (int fails = 0; fails < 2; fails++) {
        profiled p[RANKS];
        const bool arg = fails;
        rank_job job = {.n = RANKS,
                        .transport = RANKS_THREAD,
                        .body = together,
                        .arg = &arg,
                        .arg_bytes = sizeof arg,
                        .results = p,
                        .result_bytes = sizeof *p};
        assert_int_equal(run_rank_job(&job), fails ? KOLO_ERR_ARG : KOLO_OK);
        for (int r = 0; r < RANKS && !fails; r++) {
            assert_true(p[r].ms > 0 && p[r].together_ms >= p[r].ms);
            assert_true(p[r].together_ms == p[0].together_ms);
            assert_true(p[r].store_bytes >= 2 * one_version);
        }
    }
}

static kolo_status in_lanes(kolo_comm *comm, const void *arg, void *result) {
    kolo_profile *p;
    KOLO_TRY(kolo_profile_train(comm, arg, &(kolo_profile_opts){.steps = 1, .lanes = true}, &p));
    outcome *o = result;
    o->profile = *p;
    for (int i = 0; i < p->n_rows && i < MOST_ROWS; i++) {
        o->rows[i] = (row){.phase = p->rows[i].phase, .ms = p->rows[i].ms};
    }
    kolo_profile_destroy(p);
    return KOLO_OK;
}

/* The rows of a region share its time, so that phases are parts of the step. */
static void lanes_count_once(void **state) {
    static outcome o;
    const kolo_train_opts opts = {.model = "googlenet",
                                  .model_options = "width=2",
                                  .data = "synthetic:N=4,test=2,shape=3x32x32",
                                  .batch = 2,
                                  .threads = 2,
                                  .reference_kernels = true,
                                  .lanes = KOLO_LANES_ALL};
    rank_job job = {.n = 1,
                    .transport = RANKS_THREAD,
                    .body = in_lanes,
                    .arg = &opts,
                    .arg_bytes = sizeof opts,
                    .results = &o,
                    .result_bytes = sizeof o};
    ASSERT_OK(run_rank_job(&job));
    double sums[KOLO_PHASES] = {0};
    const kolo_profile *p = &o.profile;
    assert_true(p->regions > 0 && p->n_rows > 0 && p->n_rows < MOST_ROWS);
    for (int i = 0; i < p->n_rows; i++) sums[o.rows[i].phase] += o.rows[i].ms;
    for (int i = 0; i < KOLO_PHASES; i++) {
        assert_true(p->phase_ms[i] >= 0);
        if (i == KOLO_PHASE_INPUT) continue;
        const double far = sums[i] - p->phase_ms[i];
        if (far > 1e-9 * sums[i] || -far > 1e-9 * sums[i]) {
            fail_msg("%s: %g, but its rows are %g", kolo_phase_name((kolo_phase)i), p->phase_ms[i],
                     sums[i]);
        }
    }
}

static void every_step_is_in_its_phase(void **state) {
    static const struct {
        const char *op;
        kolo_phase phase;
    } cases[] = {
        {"conv2d", KOLO_PHASE_FORWARD},           {"batch_norm", KOLO_PHASE_FORWARD},
        {"softmax_xent", KOLO_PHASE_FORWARD},     {"softmax_xent_bwd", KOLO_PHASE_BACKWARD},
        {"conv2d_bwd_data", KOLO_PHASE_BACKWARD}, {"conv2d_bwd_weights", KOLO_PHASE_BACKWARD},
        {"batch_norm_bwd", KOLO_PHASE_BACKWARD},  {"post", KOLO_PHASE_SYNCHRONIZE},
        {"wait", KOLO_PHASE_SYNCHRONIZE},         {"sgd", KOLO_PHASE_UPDATE},
        {"batch_norm_update", KOLO_PHASE_UPDATE}, {"scale", KOLO_PHASE_UPDATE},
    };
    kolo_train_opts opts = {.model = "resnet20", .model_options = "width=4", .batch = BATCH};
    const outcome *o = profile(RANKS, opts);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_phase phase = phase_of(o, cases[i].op);
        if (phase != cases[i].phase) {
            fail_msg("%s is %s, not %s", cases[i].op, kolo_phase_name(phase),
                     kolo_phase_name(cases[i].phase));
        }
    }
}

static void the_numbers_are_those_of_the_net(void **state) {
    const double conv1 = 2.0 * BATCH * 6 * 28 * 28 * 25; /* multiply-adds of lenet's first layer */
    kolo_train_opts opts = {.model = "lenet", .batch = BATCH};
    const outcome *o = profile(1, opts);
    const kolo_profile *p = &o->profile;
    double bound = 0;
    int of_conv1 = 0;
    for (int i = 0; i < p->n_rows; i++) {
        const row *r = &o->rows[i];
        bound += r->bound_ms;
        assert_true(r->ms >= 0 && (!r->has_kernel || r->alone_ms > 0));
        assert_true(r->bound_ms <= r->alone_ms);
        assert_false(r->slow);
        if (strcmp(r->parameter, "conv1.weight") != 0 || r->phase == KOLO_PHASE_UPDATE) continue;
        of_conv1++;
        assert_true(r->flops >= conv1 && r->flops < 1.1 * conv1);
    }
    assert_int_equal(of_conv1, 2); /* forward, and the weights' gradient */
    assert_true(bound > 0 && bound < 1.0001 * p->bound_ms && bound > 0.9999 * p->bound_ms);
    assert_int_equal(p->parameters, 61706);
    assert_int_equal(p->batch, BATCH);
    assert_int_equal(p->steps, STEPS);
    assert_true(p->step_ms >= p->fastest_ms && p->fastest_ms > 0);
    assert_true(p->phase_ms[KOLO_PHASE_FORWARD] > 0);
    assert_true(p->arena_bytes > 0 && p->gradient_bytes >= 61706 * 4);
    assert_true(p->store_bytes >= 61706 * 4 && p->peak_rss_bytes > p->arena_bytes);
}

/* Ranks that divide the rows of images have the same samples. */
static void ranks_of_an_axis_without_samples_profile_the_same(void **state) {
    kolo_train_opts opts = {.model = "lenet", .batch = BATCH, .mesh = "sp=2"};
    const outcome *o = profile(RANKS, opts);
    double flops[RANKS] = {0};
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < o[r].profile.n_rows; i++) flops[r] += o[r].rows[i].flops;
    }
    assert_true(flops[0] > 0 && flops[0] == flops[1]);
}

static void reference_loops_are_marked(void **state) {
    kolo_train_opts opts = {.model = "mlp", .batch = BATCH, .reference_kernels = true};
    const outcome *o = profile(1, opts);
    for (int i = 0; i < o->profile.n_rows; i++) {
        assert_true(o->rows[i].slow || !o->rows[i].has_kernel);
    }
}

static void wrong_options_are_refused(void **state) {
    kolo_profile *p;
    kolo_train_opts opts = {.model = "lenet"};
    assert_int_equal(kolo_profile_train(NULL, &opts, &(kolo_profile_opts){.steps = -1}, &p),
                     KOLO_ERR_ARG);
    opts.model = "lenett";
    assert_int_equal(kolo_profile_train(NULL, &opts, NULL, &p), KOLO_ERR_ARG);
}

/* ---- the machine ---- */

static void whole(int threads, int64_t items, kolo_machine_loop loop, const void *job) {
    for (int part = 0; part < threads; part++) {
        loop(job, part, items * part / threads, items * (part + 1) / threads);
    }
}

static void the_machine_is_measured(void **state) {
    kolo_machine m;
    for (int threads = 1; threads <= 3; threads += 2) {
        ASSERT_OK(kolo_machine_measure(threads, whole, 1 << 20, &m));
        assert_true(m.flops_per_s > 1e8 && m.bytes_per_s > 1e8 && m.flops_per_s < 1e13);
        assert_int_equal(m.bytes, 1 << 20);
        assert_non_null(m.isa);
    }
}

/* ---- traces ---- */

static const char *text_of(json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

/* The trace has the steps of both ranks, each within the run, and every collective ends. */
static void check_trace(const char *path) {
    char *text;
    size_t bytes, at;
    int kernels[RANKS] = {0}, begun[RANKS] = {0}, ended[RANKS] = {0};
    ASSERT_OK(kolo_file_read(path, (size_t)1 << 28, &text, &bytes));
    json_t *trace = json_loads(text, 0, NULL), *event;
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), at, event) {
        int64_t rank = json_integer_value(json_object_get(event, "pid"));
        const char *kind = text_of(event, "ph");
        assert_true(rank >= 0 && rank < RANKS);
        begun[rank] += strcmp(kind, "b") == 0;
        ended[rank] += strcmp(kind, "e") == 0;
        if (strcmp(kind, "X") != 0) continue;
        assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
        assert_true(json_number_value(json_object_get(event, "ts")) > 0);
        kernels[rank] += strcmp(text_of(event, "name"), "conv2d conv1.weight") == 0;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(kernels[rank], STEPS);
        assert_true(begun[rank] >= STEPS);
        assert_int_equal(begun[rank], ended[rank]);
    }
    json_decref(trace);
    kolo_free(text);
    assert_int_equal(remove(path), 0);
}

static kolo_status train_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_train_result unused;
    return kolo_train(comm, arg, NULL, NULL, &unused);
}

static void traces_open_in_the_viewer(void **state) {
    kolo_train_opts opts = {.model = "lenet",
                            .data = "synthetic:N=24,test=1,shape=1x28x28",
                            .batch = BATCH,
                            .trace = "test_profile.json"};
    (void)profile(RANKS, opts);
    check_trace(opts.trace);
    opts.no_eval = true; /* 24 samples are three steps */
    ASSERT_OK(run_ranks(RANKS, RANKS_THREAD, train_body, &opts, sizeof opts));
    check_trace(opts.trace);
}

/* Steps of lanes run at the same time: on one track none begins before the one before has ended. */
static void lanes_have_tracks_of_their_own(void **state) {
    const kolo_train_opts opts = {.model = "googlenet",
                                  .model_options = "width=1",
                                  .data = "synthetic:N=4,test=1,shape=3x32x32",
                                  .batch = 2,
                                  .steps = 2,
                                  .no_eval = true,
                                  .threads = 2,
                                  .reference_kernels = true,
                                  .lanes = KOLO_LANES_ALL,
                                  .trace = "test_lanes.json"};
    char *text;
    size_t bytes, at;
    int steps[3] = {0};
    double ends[3] = {0};
    ASSERT_OK(run_ranks(1, RANKS_THREAD, train_body, &opts, sizeof opts));
    ASSERT_OK(kolo_file_read(opts.trace, (size_t)1 << 28, &text, &bytes));
    json_t *trace = json_loads(text, 0, NULL), *event;
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), at, event) {
        const int64_t track = json_integer_value(json_object_get(event, "tid"));
        const double begin = json_number_value(json_object_get(event, "ts"));
        if (strcmp(text_of(event, "ph"), "X") != 0) continue;
        assert_in_range(track, 0, 2);
        assert_true(begin >= ends[track] - 0.01); /* microseconds: of the decimal numbers */
        ends[track] = begin + json_number_value(json_object_get(event, "dur"));
        steps[track]++;
    }
    assert_true(steps[0] > 100 && steps[1] == 0 && steps[2] > 20);
    json_decref(trace);
    kolo_free(text);
    assert_int_equal(remove(opts.trace), 0);
}

static void a_trace_that_cannot_be_written_fails_all_ranks(void **state) {
    kolo_train_opts opts = {
        .model = "mlp", .batch = BATCH, .in_memory = true, .steps = 1, .trace = "no/such/folder"};
    assert_int_equal(run_ranks(RANKS, RANKS_THREAD, train_body, &opts, sizeof opts), KOLO_ERR_IO);
}

TEST_MAIN(test_profile) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_count),
        cmocka_unit_test(times_alone_are_measured),
        cmocka_unit_test(ranks_profile_together),
        cmocka_unit_test(lanes_count_once),
        cmocka_unit_test(every_step_is_in_its_phase),
        cmocka_unit_test(the_numbers_are_those_of_the_net),
        cmocka_unit_test(ranks_of_an_axis_without_samples_profile_the_same),
        cmocka_unit_test(reference_loops_are_marked),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(the_machine_is_measured),
        cmocka_unit_test(traces_open_in_the_viewer),
        cmocka_unit_test(lanes_have_tracks_of_their_own),
        cmocka_unit_test(a_trace_that_cannot_be_written_fails_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
