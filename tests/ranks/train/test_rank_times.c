/* Where the time of steps goes: idle times and the slowest rank, and runs in which one is slowed.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/models.h"
#include "kolo/session.h"
#include "support/fewer.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/record/rank_times.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- arithmetic ---- */

enum { RANKS = 3, STEPS = 5 };
static const int64_t ms = 1000000;

/* Rank r of step k: forward r + 1, input 10 in step 4 of rank 0; the rest of 20 is communication,
 * or, if none waits for another, other work. */
static void add_step(kolo_rank_times *t, int rank, int k, bool waits) {
    int64_t input = rank == 0 && k == 4 ? 10 : 0;
    int64_t row[KOLO_TIMES] = {
        [KOLO_TIME_STEP] = 20 * ms,
        [KOLO_TIME_INPUT] = input * ms,
        [KOLO_TIME_FORWARD] = (rank + 1) * ms,
        [KOLO_TIME_IDLE] = -1, /* not read */
    };
    row[waits ? KOLO_TIME_EXPOSED : KOLO_TIME_OTHER] = (19 - rank - input) * ms;
    kolo_rank_times_add(t, row);
}

typedef struct found {
    kolo_time_report line, epoch, run;
    double idle[3][RANKS]; /* by window */
    bool full;
} found;

static kolo_time_report report(kolo_rank_times *t, kolo_times_window w, found *f) {
    kolo_time_report r = kolo_rank_times_report(t, w);
    for (int i = 0; i < r.ranks && r.steps > 0; i++) {
        f->idle[w][i] = r.by_rank[i].ms[KOLO_TIME_IDLE];
    }
    return r;
}

static kolo_status measure(kolo_comm *comm, const void *arg, void *result) {
    const int rank = comm ? kolo_comm_rank(comm) : 0;
    const bool waits = !arg || *(const bool *)arg;
    found *f = result;
    kolo_rank_times *t;
    KOLO_TRY(kolo_rank_times_create(comm, STEPS, &t));
    for (int k = 0; k < 2; k++) add_step(t, rank, k, waits);
    kolo_status status = kolo_rank_times_exchange(t);
    kolo_rank_times_reset(t, KOLO_TIMES_EPOCH);
    for (int k = 2; k < 5; k++) add_step(t, rank, k, waits);
    f->full = kolo_rank_times_is_full(t);
    if (status == KOLO_OK) status = kolo_rank_times_exchange(t);
    if (status == KOLO_OK) status = kolo_rank_times_exchange(t); /* nothing new */
    f->run = report(t, KOLO_TIMES_RUN, f);
    f->epoch = report(t, KOLO_TIMES_EPOCH, f);
    kolo_rank_times_reset(t, KOLO_TIMES_LINE);
    f->line = report(t, KOLO_TIMES_LINE, f);
    kolo_rank_times_destroy(t);
    return status;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void ranks_idle_until_the_slowest_is_done(void **state) {
    found f[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_THREAD,
                    .body = measure,
                    .results = f,
                    .result_bytes = sizeof *f};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < RANKS; r++) {
        assert_false(f[r].full);
        assert_int_equal(f[r].run.steps, 5);
        assert_int_equal(f[r].epoch.steps, 3);
        assert_int_equal(f[r].line.steps, 0);
        /* Steps 0 to 3: 2, 1, 0 ms of idle time; step 4: 0, 9, 8. */
        assert_int_equal(f[r].run.slowest, 0); /* as idle as rank 2 */
        assert_true(near(f[r].idle[KOLO_TIMES_RUN][0], 8.0 / 5));
        assert_true(near(f[r].idle[KOLO_TIMES_RUN][1], 13.0 / 5));
        assert_true(near(f[r].idle[KOLO_TIMES_RUN][2], 8.0 / 5));
        assert_true(near(f[r].idle[KOLO_TIMES_EPOCH][0], 4.0 / 3));
        assert_true(near(f[r].idle[KOLO_TIMES_EPOCH][2], 8.0 / 3));
        assert_true(near(f[r].run.mean.ms[KOLO_TIME_STEP], 20));
        assert_true(near(f[r].run.mean.ms[KOLO_TIME_INPUT], 10.0 / 5 / RANKS));
        assert_true(near(f[r].run.mean.ms[KOLO_TIME_FORWARD], 2));
    }
}

static void ranks_that_do_not_wait_do_not_idle(void **state) {
    static const bool waits = false;
    found f[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_THREAD,
                    .body = measure,
                    .arg = &waits,
                    .arg_bytes = sizeof waits,
                    .results = f,
                    .result_bytes = sizeof *f};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < RANKS; i++) assert_true(f[r].idle[KOLO_TIMES_RUN][i] == 0);
    }
}

static void one_rank_never_idles(void **state) {
    found f = {0};
    ASSERT_OK(measure(NULL, NULL, &f));
    assert_true(!f.full && f.run.steps == 5 && f.run.ranks == 1 && f.run.slowest == 0);
    assert_true(f.idle[KOLO_TIMES_RUN][0] == 0);
}

/* ---- runs ---- */

enum { SAMPLES = 8 };

typedef struct reader {
    int rank, batches;
} reader;

typedef struct outcome {
    kolo_time_report times;
    kolo_step_time line; /* of the last progress */
    bool seen;
    atomic_bool done; /* the helper ends; relaxed */
} outcome;

static kolo_status build(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_model *model;
    kolo_model_opts opts = {
        .batch = samples, .sample = {3, {1, 8, 8}}, .classes = 4, .options = "hidden=8"};
    KOLO_TRY(kolo_model_find("mlp", &model));
    return model->build(g, &opts);
}

static atomic_int steps_done; /* of the run, as rank 0 sees it; relaxed */

/* Rank 1 starts to read a batch only when the step before it is done, and takes long. */
static kolo_status read_slowly(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    reader *r = arg;
    for (int64_t i = 0; i < n * 64; i++) ((float *)data[0])[i] = (float)(i % 5);
    for (int64_t i = 0; i < n; i++) ((int32_t *)data[1])[i] = (int32_t)(indices[i] % 4);
    if (r->rank != 1) return KOLO_OK;
    const int batch = r->batches++;
    for (int i = 0; i < 10000; i++) { /* a failed run ends too */
        if (atomic_load_explicit(&steps_done, memory_order_relaxed) >= batch) break;
        kolo_sleep_ns(kolo_ms_to_ns(1));
    }
    kolo_sleep_ns(kolo_ms_to_ns(100));
    return KOLO_OK;
}

/* After each epoch, which has one step. */
static bool count_step(void *arg, const kolo_train_progress *p) {
    atomic_store_explicit(&steps_done, (int)p->step, memory_order_relaxed);
    return false;
}

static void keep_line(void *arg, const kolo_train_progress *p) {
    outcome *o = arg;
    o->seen = p->times.steps > 0 && p->times.ranks == 2 && p->times.by_rank;
    o->line = p->times.mean;
}

static kolo_status fit_slowly(kolo_comm *comm, const void *arg, void *result) {
    outcome *o = result;
    reader r = {.rank = kolo_comm_rank(comm)};
    const kolo_field fields[] = {{.name = "x", .dtype = KOLO_DTYPE_F32, .shape = {3, {1, 8, 8}}},
                                 {.name = "y", .dtype = KOLO_DTYPE_I32}};
    const kolo_source source = {
        .count = SAMPLES, .n_fields = 2, .fields = fields, .gather = read_slowly, .arg = &r};
    const kolo_session_opts opts = {.batch = 4, .lr = 0.1};
    kolo_fit_opts fit = {.steps = 5, .observer = keep_line, .arg = o};
    if (r.rank == 0) fit.stop = count_step;
    kolo_train_result run;
    kolo_dataset *set = NULL;
    kolo_session *session = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_create(&source, &set), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build, NULL, &session), done);
    KOLO_TRY_GOTO(kolo_fit(session, set, NULL, &fit, &run), done);
    o->times = run.times;
done:
    kolo_session_destroy(session);
    kolo_dataset_close(set);
    return status;
}

/* The parts of a step are the whole. */
static void check_sum(const kolo_step_time *t) {
    static const kolo_time parts[] = {KOLO_TIME_INPUT,   KOLO_TIME_FORWARD, KOLO_TIME_BACKWARD,
                                      KOLO_TIME_EXPOSED, KOLO_TIME_UPDATE,  KOLO_TIME_OTHER};
    double sum = 0;
    for (size_t i = 0; i < KOLO_COUNT(parts); i++) {
        assert_true(t->ms[parts[i]] >= 0);
        sum += t->ms[parts[i]];
    }
    assert_true(fabs(sum - t->ms[KOLO_TIME_STEP]) < 1e-6 * sum);
    assert_true(t->ms[KOLO_TIME_FORWARD] > 0 && t->ms[KOLO_TIME_BACKWARD] > 0);
    assert_true(t->ms[KOLO_TIME_UPDATE] > 0 && t->ms[KOLO_TIME_COMMUNICATION] > 0);
}

static void a_rank_that_reads_slowly_is_named(void **state) {
    outcome o[2];
    atomic_store_explicit(&steps_done, 0, memory_order_relaxed);
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = fit_slowly,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    assert_true(o[0].seen && !o[1].seen); /* rank 0 reports */
    check_sum(&o[0].line);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(o[r].times.steps, 5);
        assert_int_equal(o[r].times.slowest, 1);
        assert_null(o[r].times.by_rank);
        check_sum(&o[r].times.mean);
    }
}

static kolo_status train_untimed(kolo_comm *comm, const void *arg, void *result) {
    outcome *o = result;
    const kolo_train_opts opts = {.model = "lenet",
                                  .in_memory = true,
                                  .batch = 2,
                                  .steps = 5,
                                  .untimed_steps = 3,
                                  .lr = 0.01};
    kolo_train_result run;
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &run));
    o->times = run.times;
    return KOLO_OK;
}

static void untimed_steps_are_left_out(void **state) {
    outcome o[2];
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = train_untimed,
                    .results = o,
                    .result_bytes = sizeof *o};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(o[r].times.steps, 2);
        check_sum(&o[r].times.mean);
    }
}

/* Stops and continues the calling process in short cycles, from a process of its own, until done.
 */
static pid_t slow_down(atomic_bool *done) {
    const pid_t slowed = getpid(), helper = fork();
    if (helper != 0) return helper;
    while (!atomic_load_explicit(done, memory_order_relaxed) && getppid() == slowed) {
        kill(slowed, SIGSTOP);
        kolo_sleep_ns(kolo_ms_to_ns(90));
        kill(slowed, SIGCONT);
        kolo_sleep_ns(kolo_ms_to_ns(10));
    }
    _exit(0);
}

static kolo_status build_lenet(kolo_graph *g, int64_t samples, void *arg) {
    const kolo_model *model;
    kolo_model_opts opts = {
        .batch = samples, .sample = {3, {1, 28, 28}}, .classes = 10, .options = ""};
    KOLO_TRY(kolo_model_find("lenet", &model));
    return model->build(g, &opts);
}

static kolo_status train_stopped(kolo_comm *comm, const void *arg, void *result) {
    outcome *o = result;
    const kolo_session_opts opts = {.batch = 16, .lr = 0.01};
    const kolo_fit_opts fit = {.steps = TEST_FEWER(4, 100)};
    kolo_train_result run;
    kolo_dataset *set = NULL;
    kolo_session *session = NULL;
    pid_t helper = 0;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_open("synthetic:N=320,test=8", KOLO_SPLIT_TRAIN, &set), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_lenet, NULL, &session), done);
    if (kolo_comm_rank(comm) == 1) helper = slow_down(&o->done);
    status = kolo_fit(session, set, NULL, &fit, &run);
    atomic_store_explicit(&o->done, true, memory_order_relaxed);
    if (helper > 0) (void)waitpid(helper, NULL, 0);
    if (status == KOLO_OK) o->times = run.times;
done:
    kolo_session_destroy(session);
    kolo_dataset_close(set);
    return status;
}

/* Most of the time rank 1 does not run, for less than the heartbeat. */
static void a_rank_that_is_often_stopped_is_named(void **state) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        outcome o[2];
        rank_job job = {.n = 2,
                        .transport = transports[i],
                        .body = train_stopped,
                        .results = o,
                        .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&job));
        for (int r = 0; r < 2; r++) {
            assert_int_equal(o[r].times.slowest, 1);
            check_sum(&o[r].times.mean);
        }
    }
}

TEST_MAIN(test_rank_times) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_idle_until_the_slowest_is_done),
        cmocka_unit_test(ranks_that_do_not_wait_do_not_idle),
        cmocka_unit_test(one_rank_never_idles),
        cmocka_unit_test(a_rank_that_reads_slowly_is_named),
        cmocka_unit_test(untimed_steps_are_left_out),
        cmocka_unit_test(a_rank_that_is_often_stopped_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
