#include "support/train_job.h"

#include "base/status.h"
#include "kolo/checkpoint.h"
#include "support/support.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

char train_notices[4096];

void train_note(void *arg, const char *line, kolo_notice_kind kind) {
    const size_t length = strlen(train_notices);
    if (kind == KOLO_NOTICE_TRANSIENT) return;
    (void)snprintf(train_notices + length, sizeof train_notices - length, "%s\n", line);
}

kolo_status train_body(kolo_comm *comm, const kolo_train_opts *opts, void *result) {
    train_outcome *o = result;
    o->status = kolo_train(comm, opts, NULL, NULL, &o->result);
    if (o->status != KOLO_OK) snprintf(o->error, sizeof o->error, "%s", kolo_last_error());
    return KOLO_OK;
}

static kolo_status run_job(kolo_comm *comm, const void *arg, void *result) {
    return train_body(comm, arg, result);
}

const train_outcome *train_job(int ranks, rank_transport transport, const kolo_train_opts *opts) {
    static train_outcome outcomes[TRAIN_JOB_RANKS];
    rank_job job = {
        .n = ranks,
        .transport = transport,
        .body = run_job,
        .arg = opts,
        .arg_bytes = sizeof *opts,
        .results = outcomes,
        .result_bytes = sizeof *outcomes,
    };
    memset(outcomes, 0, sizeof outcomes);
    ASSERT_OK(run_rank_job(&job));
    return outcomes;
}

kolo_train_result train_well(int ranks, const kolo_train_opts *opts) {
    const train_outcome *o = train_job(ranks, RANKS_THREAD, opts);
    for (int r = 0; r < ranks; r++) {
        if (o[r].status != KOLO_OK) fail_msg("rank %d of %d: %s", r, ranks, o[r].error);
    }
    return o[0].result;
}

/* ---- jobs that are asked to end ---- */

typedef struct preempted_job {
    const kolo_train_opts *opts;
    int rank;
    atomic_int checks; /* that still find nothing */
} preempted_job;

static bool is_preempted(void *arg) {
    preempted_job *job = arg;
    return atomic_fetch_sub(&job->checks, 1) <= 0;
}

static bool is_not_preempted(void *arg) { return false; }

static kolo_status run_preempted(kolo_comm *comm, const void *arg, void *result) {
    preempted_job *job = *(preempted_job *const *)arg;
    const int rank = comm ? kolo_comm_rank(comm) : 0;
    kolo_train_opts opts = *job->opts;
    opts.preempted = rank == job->rank ? is_preempted : is_not_preempted;
    opts.preempted_arg = job;
    return train_body(comm, &opts, result);
}

const train_outcome *train_preempted(const char *what, int ranks, const kolo_train_opts *opts,
                                     int rank, int checks) {
    static train_outcome outcomes[TRAIN_JOB_RANKS];
    preempted_job preempted = {.opts = opts, .rank = rank, .checks = checks};
    preempted_job *const shared = &preempted;
    const rank_job job = {.n = ranks,
                          .transport = RANKS_THREAD,
                          .body = run_preempted,
                          .arg = &shared,
                          .arg_bytes = sizeof shared,
                          .results = outcomes,
                          .result_bytes = sizeof *outcomes};
    memset(outcomes, 0, sizeof outcomes);
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < ranks; r++) {
        if (outcomes[r].status != KOLO_OK) fail_msg("%s, rank %d: %s", what, r, outcomes[r].error);
    }
    return outcomes;
}

/* ---- jobs whose bytes are counted ---- */

typedef struct traffic_outcome {
    train_outcome outcome;
    double sent;
} traffic_outcome;

kolo_status train_counted(kolo_comm *comm, const kolo_train_opts *opts, void *result) {
    traffic_outcome *o = result;
    kolo_peer_traffic traffic;
    KOLO_TRY(train_body(comm, opts, &o->outcome));
    for (int p = 0; p < kolo_comm_size(comm); p++) {
        KOLO_TRY(kolo_comm_peer_traffic(comm, p, &traffic));
        o->sent += (double)traffic.sent_bytes;
    }
    return KOLO_OK;
}

kolo_train_result train_on_hosts(int ranks, rank_body body, const void *arg, size_t arg_bytes) {
    static train_outcome outcomes[TRAIN_JOB_RANKS];
    const rank_job job = {.n = ranks,
                          .transport = RANKS_HOSTS,
                          .body = body,
                          .arg = arg,
                          .arg_bytes = arg_bytes,
                          .results = outcomes,
                          .result_bytes = sizeof *outcomes};
    memset(outcomes, 0, sizeof outcomes);
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < ranks; r++) {
        if (outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
    return outcomes[0].result;
}

kolo_train_result train_traffic(int ranks, rank_body body, const void *arg, size_t arg_bytes,
                                double *sent) {
    static traffic_outcome outcomes[TRAIN_JOB_RANKS];
    rank_job job = {
        .n = ranks,
        .transport = RANKS_TCP,
        .body = body,
        .arg = arg,
        .arg_bytes = arg_bytes,
        .results = outcomes,
        .result_bytes = sizeof *outcomes,
    };
    memset(outcomes, 0, sizeof outcomes);
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < ranks; r++) {
        if (outcomes[r].outcome.status != KOLO_OK) fail_msg("%s", outcomes[r].outcome.error);
        sent[r] = outcomes[r].sent;
    }
    return outcomes[0].outcome.result;
}

void assert_same_run(const char *what, const kolo_train_result *a, const kolo_train_result *b) {
    bool same = a->parameter_hash == b->parameter_hash && a->steps == b->steps &&
                a->samples == b->samples && a->first_loss == b->first_loss &&
                memcmp(&a->final, &b->final, sizeof a->final) == 0 &&
                memcmp(&a->test, &b->test, sizeof a->test) == 0;
    if (!same) {
        fail_msg("%s: %.17g %.17g %.17g, but %.17g %.17g %.17g", what, b->first_loss,
                 b->final.value[KOLO_METRIC_LOSS], b->test.value[KOLO_METRIC_LOSS], a->first_loss,
                 a->final.value[KOLO_METRIC_LOSS], a->test.value[KOLO_METRIC_LOSS]);
    }
}

void assert_near(const char *what, double one, double other, double bound) {
    if (!(fabs(one - other) <= bound * fabs(one))) fail_msg("%s: %.9g, but %.9g", what, other, one);
}

void assert_near_run(const char *what, const kolo_train_result *a, const kolo_train_result *b) {
    assert_near(what, a->first_loss, b->first_loss, 1e-5);
    assert_near(what, a->final.value[KOLO_METRIC_LOSS], b->final.value[KOLO_METRIC_LOSS], 1e-3);
    assert_near(what, a->test.value[KOLO_METRIC_LOSS], b->test.value[KOLO_METRIC_LOSS], 1e-3);
    assert_int_equal(a->samples, b->samples);
    assert_int_equal(a->parameters, b->parameters);
}

void assert_resumes_on_meshes(const kolo_train_opts *given, const char *first, const char *second) {
    const char *const meshes[] = {first, second, NULL};
    kolo_train_opts opts = *given;
    kolo_train_result last = {0};
    opts.steps = 6;
    const kolo_train_result expected = train_well(1, &opts);
    opts.out_dir = "run";
    opts.checkpoint_steps = 2;
    for (int i = 0; i < 3; i++) {
        opts.mesh = meshes[i];
        opts.steps = 2 * (i + 1);
        last = train_well(opts.mesh ? opts.mesh[strlen(opts.mesh) - 1] - '0' : 1, &opts);
        opts.resume = "run";
    }
    assert_near_run("resumed", &expected, &last);
}

void assert_intact(const char *what, const char *path) {
    char *text;
    if (kolo_checkpoint_verify(path, &text) != KOLO_OK) fail_msg("%s: %s", what, kolo_last_error());
    kolo_checkpoint_text_free(text);
}

void assert_job_refused(int ranks, const kolo_train_opts *opts, const char *text) {
    const train_outcome *o = train_job(ranks, RANKS_THREAD, opts);
    for (int r = 0; r < ranks; r++) {
        const kolo_status status = o[r].status;
        bool right =
            status == KOLO_ERR_UNSUPPORTED || status == KOLO_ERR_ARG || status == KOLO_ERR_FORMAT;
        const bool complete = !strstr(o[r].error, "(null)"); /* no name is missing */
        if (right && complete && strstr(o[r].error, text)) continue;
        fail_msg("rank %d: \"%s\" lacks \"%s\"", r, o[r].error, text);
    }
}
