/* kolo_step_model_measure: the parts of a step, the model, and the measured step. */
#include "kolo/step_model.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/progress_thread.h"
#include "comm/engine/request.h"
#include "kolo/profile.h"
#include "pass/bucket_plan.h"
#include "plan/lane_trial.h"
#include "train/session/agree.h"
#include "train/session/setup.h"
#include "train/session/sum_time.h"
#include "train/session/tuning.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    DEFAULT_STEPS = 10,
    UNTIMED_STEPS = 2, /* before those that are measured, where none try lanes */
    SUM_MS = 150,      /* to measure sums of one size */
};

typedef struct owned_model {
    kolo_step_model prediction;
    size_t *best, *bytes;
    double *ready_ms;
} owned_model;

typedef struct predictor {
    kolo_comm *comm;
    kolo_train_opts opts;
    kolo_profile *profile;        /* of this rank alone */
    double phase_ms[KOLO_PHASES]; /* means over the ranks */
    double step_ms;               /* the kernels of a step and its input, likewise */
    double slowest;               /* the time until the last rank has done them, over that mean */
    kolo_ready_gradient *gradients;
    int n;
    size_t bucket_bytes;
    double kernels_ms; /* of the backward pass */
    double update_ms;
    kolo_sum_time sum;
    bool shared; /* see kolo_step_model */
    bool *ends;
} predictor;

/* ---- the parts ---- */

/* Measures the missing times of kernels before the ranks read the file each by itself. */
static kolo_status tune(const predictor *p) {
    kolo_setup setup;
    if (p->opts.autotune != KOLO_AUTOTUNE_ON) return KOLO_OK;
    KOLO_TRY(kolo_agree(p->comm, kolo_setup_open(&p->opts, kolo_comm_size(p->comm), &setup)));
    kolo_status status = kolo_tuning_begin(&setup, p->comm);
    kolo_setup_close(&setup);
    return status;
}

/* The kernels of a step, while all other ranks run theirs. */
static kolo_status measure_kernels(predictor *p, int64_t steps) {
    kolo_train_opts alone = p->opts;
    if (kolo_comm_rank(p->comm) > 0) alone.notice = NULL;
    if (alone.autotune == KOLO_AUTOTUNE_ON) alone.autotune = KOLO_AUTOTUNE_CACHED;
    const kolo_profile_opts opts = {
        .steps = steps, .lanes = true, .times_only = true, .together = p->comm};
    KOLO_TRY(kolo_profile_train(NULL, &alone, &opts, &p->profile));
    memcpy(p->phase_ms, p->profile->phase_ms, sizeof p->phase_ms);
    p->step_ms = p->profile->step_ms;
    KOLO_TRY(kolo_allreduce(p->comm, p->phase_ms, KOLO_PHASES, KOLO_DTYPE_F64, KOLO_MEAN));
    KOLO_TRY(kolo_allreduce(p->comm, &p->step_ms, 1, KOLO_DTYPE_F64, KOLO_MEAN));
    p->slowest = p->profile->together_ms / p->step_ms;
    return KOLO_OK;
}

/* The gradients, in the order of the POSTs of a plan with a bucket for each. The backward kernels
 * are those of the plan without communication, in the same order. */
static void list_gradients(predictor *p, const kolo_plan *plan, const kolo_step_info *steps) {
    double done_ms = 0;
    for (int i = 0, row = 0; i < kolo_plan_n_steps(plan); i++) {
        if (steps[i].kind == KOLO_STEP_KERNEL && steps[i].phase == KOLO_PHASE_BACKWARD) {
            while (row < p->profile->n_rows && p->profile->rows[row].phase != KOLO_PHASE_BACKWARD) {
                row++;
            }
            if (row < p->profile->n_rows) done_ms += p->profile->rows[row++].ms;
        } else if (steps[i].kind == KOLO_STEP_POST) {
            const kolo_request *q = kolo_plan_request(plan, steps[i].bucket);
            const size_t bytes =
                kolo_request_spec(q)->count * kolo_dtype_bytes(kolo_request_dtype(q));
            p->gradients[p->n++] = (kolo_ready_gradient){.ready_ms = done_ms, .bytes = bytes};
        }
    }
    p->kernels_ms = done_ms;
}

/* The update in the plan with communication. A worker may update a range of each parameter, and
 * read the gradients of all others for it. Updates are as fast as memory: their time is in
 * proportion to the bytes that they read and write. */
static double update_of(const predictor *p, const kolo_step_info *steps, int n) {
    const double ms = p->phase_ms[KOLO_PHASE_UPDATE];
    double alone = 0, bytes = 0;
    for (int i = 0; i < p->profile->n_rows; i++) {
        const kolo_profile_row *row = &p->profile->rows[i];
        if (row->phase == KOLO_PHASE_UPDATE) alone += row->bytes;
    }
    for (int i = 0; i < n; i++) {
        if (steps[i].phase == KOLO_PHASE_UPDATE) bytes += steps[i].cost.bytes;
    }
    for (int i = 0; i < p->n && p->shared; i++) { /* of its range, those of the others */
        bytes += (double)p->gradients[i].bytes * (1 - 1.0 / kolo_comm_size(p->comm));
    }
    return alone > 0 ? ms * bytes / alone : ms;
}

static kolo_status describe(predictor *p, const kolo_session *session) {
    const kolo_session_config *config = kolo_session_config_of(session);
    const kolo_plan *plan = kolo_session_plan(session);
    const int n = kolo_plan_n_steps(plan);
    kolo_step_info *steps = kolo_alloc(((size_t)n + 1) * sizeof *steps);
    p->gradients = kolo_alloc(((size_t)n + 1) * sizeof *p->gradients);
    p->ends = kolo_alloc((size_t)n + 1);
    if (!steps || !p->gradients || !p->ends) {
        kolo_free(steps);
        return KOLO_NOMEM((size_t)n * sizeof *steps);
    }
    kolo_plan_describe(plan, steps);
    p->shared = config->plan.share && config->shards == 0;
    list_gradients(p, plan, steps);
    p->update_ms = update_of(p, steps, n);
    kolo_free(steps);
    return KOLO_OK;
}

static kolo_status find_gradients(predictor *p) {
    kolo_setup setup;
    kolo_session *session = NULL;
    kolo_status status;
    KOLO_TRY(kolo_agree(p->comm, kolo_setup_open(&p->opts, kolo_comm_size(p->comm), &setup)));
    kolo_session_config config = setup.session;
    p->bucket_bytes = config.plan.bucket_bytes ? config.plan.bucket_bytes : KOLO_BUCKET_BYTES;
    config.plan.bucket_bytes = 1;
    KOLO_TRY_GOTO(kolo_session_create_for(&config, p->comm, &session), done);
    status = kolo_agree(p->comm, describe(p, session));
done:
    kolo_session_destroy(session);
    kolo_setup_close(&setup);
    return status;
}

/* ---- the model ---- */

/* Where nothing is summed, the workers still wait for each other. */
static kolo_sum_time time_of_sums(const predictor *p) {
    kolo_sum_time sum = p->sum;
    if (p->shared) sum.ms_per_byte = sum.work_ms_per_byte = 0;
    return sum;
}

/* The work that stretches the backward pass: that of a thread beside the kernels. Work of the
 * calling thread, between kernels, is exposed. */
static double stretch(const predictor *p, const kolo_bucket_times *t) {
    return kolo_progress_has_thread(p->comm) ? t->early_work_ms : 0;
}

/* The step with the buckets that p->ends marks. The slowest worker completes the gradients; that
 * the others wait for it is exposed communication, as it is measured. */
static kolo_modelled_buckets predict(const predictor *p, const char *name, size_t bytes) {
    const double *phase = p->phase_ms, backward_ms = phase[KOLO_PHASE_BACKWARD];
    const double rest_ms = phase[KOLO_PHASE_INPUT] + phase[KOLO_PHASE_FORWARD] + p->update_ms;
    const kolo_sum_time sum = time_of_sums(p);
    const kolo_bucket_times t = kolo_bucket_plan_times(p->gradients, p->n, &sum, p->ends);
    const double step_ms =
        p->slowest * rest_ms + fmax(p->slowest * backward_ms + t.work_ms, t.end_ms);
    return (kolo_modelled_buckets){
        .name = name,
        .bytes = bytes,
        .buckets = t.buckets,
        .sums_ms = t.sums_ms,
        .work_ms = t.work_ms,
        .exposed_ms = fmax(0, step_ms - rest_ms - backward_ms - stretch(p, &t)),
        .step_ms = step_ms,
    };
}

static kolo_modelled_buckets predict_fixed(predictor *p, const char *name, size_t bytes) {
    kolo_bucket_plan_fixed(p->gradients, p->n, bytes, p->ends);
    return predict(p, name, bytes);
}

static kolo_status predict_all(predictor *p, owned_model *o) {
    kolo_modelled_buckets *b = o->prediction.buckets;
    const double backward_ms = p->slowest * p->phase_ms[KOLO_PHASE_BACKWARD];
    const kolo_sum_time sum = time_of_sums(p);
    for (int i = 0; i < p->n && p->kernels_ms > 0; i++) { /* also: a sum of medians is less */
        p->gradients[i].ready_ms *= backward_ms / p->kernels_ms;
    }
    b[0] = predict_fixed(p, "as the options", p->bucket_bytes);
    b[1] = predict_fixed(p, "1 MiB", (size_t)1 << 20);
    b[2] = predict_fixed(p, "4 MiB", (size_t)4 << 20);
    b[3] = predict_fixed(p, "25 MiB", (size_t)25 << 20);
    b[4] = predict_fixed(p, "100 MiB", (size_t)100 << 20);
    b[5] = predict_fixed(p, "one for each", 1);
    b[6] = predict_fixed(p, "one for all", SIZE_MAX);
    KOLO_TRY(kolo_bucket_plan_best(p->gradients, p->n, p->n, &sum, p->ends));
    b[7] = predict(p, "best", 0);
    o->best = kolo_zalloc(((size_t)p->n + 1) * sizeof *o->best);
    o->bytes = kolo_zalloc(((size_t)p->n + 1) * sizeof *o->bytes);
    o->ready_ms = kolo_zalloc(((size_t)p->n + 1) * sizeof *o->ready_ms);
    if (!o->best || !o->bytes || !o->ready_ms) return KOLO_NOMEM((size_t)p->n * sizeof *o->best);
    for (int i = 0; i < p->n; i++) {
        o->best[o->prediction.n_best] += p->gradients[i].bytes;
        o->prediction.n_best += p->ends[i];
        o->bytes[i] = p->gradients[i].bytes;
        o->ready_ms[i] = p->gradients[i].ready_ms;
    }
    o->prediction.best_bytes = o->best;
    o->prediction.n_gradients = p->n;
    o->prediction.gradient_bytes = o->bytes;
    o->prediction.ready_ms = o->ready_ms;
    return KOLO_OK;
}

static void fill(const predictor *p, const kolo_train_result *run, kolo_step_model *out) {
    const double *phase = p->phase_ms;
    double *ms = out->predicted.ms;
    const kolo_modelled_buckets *b = &out->buckets[0];
    out->workers = run->workers;
    out->threads = run->threads;
    out->batch = run->batch;
    out->regions = p->profile->regions;
    out->fixed_us = 1e3 * p->sum.fixed_ms;
    out->us_per_mib = 1e3 * p->sum.ms_per_byte * (1 << 20);
    out->work_fixed_us = 1e3 * p->sum.work_fixed_ms;
    out->work_us_per_mib = 1e3 * p->sum.work_ms_per_byte * (1 << 20);
    out->shared = p->shared;
    out->slowest = p->slowest;
    out->backward_kernels_ms = p->slowest * phase[KOLO_PHASE_BACKWARD];
    out->measured = run->times.mean;
    out->measured_median_ms = run->step_ms_median;
    out->memory = run->memory;
    ms[KOLO_TIME_STEP] = b->step_ms;
    ms[KOLO_TIME_INPUT] = phase[KOLO_PHASE_INPUT];
    ms[KOLO_TIME_FORWARD] = phase[KOLO_PHASE_FORWARD];
    ms[KOLO_TIME_EXPOSED] = b->exposed_ms;
    ms[KOLO_TIME_UPDATE] = p->update_ms;
    ms[KOLO_TIME_COMMUNICATION] = b->sums_ms;
    ms[KOLO_TIME_IDLE] = (p->slowest - 1) * p->step_ms;
    /* The rest of the step: the kernels and what stretches them. */
    ms[KOLO_TIME_BACKWARD] = b->step_ms - ms[KOLO_TIME_INPUT] - ms[KOLO_TIME_FORWARD] -
                             ms[KOLO_TIME_EXPOSED] - ms[KOLO_TIME_UPDATE];
}

/* ---- entry points ---- */

static kolo_status run(predictor *p, int64_t steps, owned_model *o) {
    kolo_train_result measured;
    KOLO_TRY(tune(p));
    KOLO_TRY(measure_kernels(p, steps));
    KOLO_TRY(kolo_sum_time_measure(p->comm, p->opts.algorithm, SUM_MS, &p->sum));
    KOLO_TRY(find_gradients(p));
    KOLO_TRY(kolo_agree(p->comm, predict_all(p, o)));
    int64_t untimed = p->profile->tried > 0 ? KOLO_LANE_TRIAL_RUNS : UNTIMED_STEPS;
    KOLO_TRY(kolo_allreduce(p->comm, &untimed, 1, KOLO_DTYPE_I64, KOLO_MAX));
    p->opts.steps = untimed + steps;
    p->opts.untimed_steps = untimed;
    KOLO_TRY(kolo_train(p->comm, &p->opts, NULL, NULL, &measured));
    fill(p, &measured, &o->prediction);
    return KOLO_OK;
}

kolo_status kolo_step_model_measure(kolo_comm *comm, const kolo_train_opts *train, int64_t steps,
                                    kolo_step_model **prediction) {
    predictor p = {.comm = comm, .opts = *train};
    if (!comm || kolo_comm_size(comm) < 2 || train->accumulate > 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a prediction is of a step of two or more workers without micro-batches");
    }
    p.opts.in_memory = p.opts.no_cross_step = true;
    p.opts.out_dir = p.opts.trace = NULL;
    owned_model *o = kolo_zalloc(sizeof *o);
    kolo_status status = kolo_agree(comm, o ? KOLO_OK : KOLO_NOMEM(sizeof *o));
    if (status == KOLO_OK && o) status = run(&p, steps > 0 ? steps : DEFAULT_STEPS, o);
    kolo_profile_destroy(p.profile);
    kolo_free(p.gradients);
    kolo_free(p.ends);
    if (status != KOLO_OK) {
        kolo_step_model_destroy(o ? &o->prediction : NULL);
        return status;
    }
    *prediction = &o->prediction;
    return KOLO_OK;
}

void kolo_step_model_destroy(kolo_step_model *prediction) {
    if (!prediction) return;
    owned_model *o = (owned_model *)prediction; /* the first member */
    kolo_free(o->best);
    kolo_free(o->bytes);
    kolo_free(o->ready_ms);
    kolo_free(o);
}
