/* kolo_step_model_measure: the parts of a step, the model, and the measured step. */
#include "kolo/step_model.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/request.h"
#include "kolo/profile.h"
#include "pass/bucket_plan.h"
#include "train/session/agree.h"
#include "train/session/setup.h"
#include "train/session/sum_time.h"
#include "train/session/tuning.h"

#include <math.h>
#include <string.h>

enum {
    DEFAULT_STEPS = 10,
    UNTIMED_STEPS = 2, /* before those that are measured */
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
    kolo_profile *profile; /* of this rank alone */
    kolo_ready_gradient *gradients;
    int n;
    size_t bucket_bytes;
    double kernels_ms; /* of the backward pass */
    kolo_sum_time sum;
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
    KOLO_TRY(kolo_barrier(p->comm));
    const kolo_profile_opts opts = {.steps = steps, .lanes = true};
    return kolo_agree(p->comm, kolo_profile_train(NULL, &alone, &opts, &p->profile));
}

/* The gradients, in the order of the POSTs of a plan with a bucket for each. The backward kernels
 * are those of the plan without communication, in the same order. */
static kolo_status list_gradients(predictor *p, const kolo_plan *plan) {
    const int n = kolo_plan_n_steps(plan);
    kolo_step_info *steps = kolo_alloc(((size_t)n + 1) * sizeof *steps);
    p->gradients = kolo_alloc(((size_t)n + 1) * sizeof *p->gradients);
    p->ends = kolo_alloc((size_t)n + 1);
    if (!steps || !p->gradients || !p->ends) {
        kolo_free(steps);
        return KOLO_NOMEM((size_t)n * sizeof *steps);
    }
    kolo_plan_describe(plan, steps);
    double done_ms = 0;
    for (int i = 0, row = 0; i < n; i++) {
        if (steps[i].kind == KOLO_STEP_KERNEL && steps[i].phase == KOLO_PHASE_BACKWARD) {
            while (row < p->profile->n_rows && p->profile->rows[row].phase != KOLO_PHASE_BACKWARD) {
                row++;
            }
            if (row < p->profile->n_rows) done_ms += p->profile->rows[row++].ms;
        } else if (steps[i].kind == KOLO_STEP_POST) {
            const kolo_request *q = kolo_plan_request(plan, steps[i].bucket);
            const size_t bytes =
                kolo_request_spec(q)->count * kolo_dtype_bytes(kolo_request_dtype(q));
            p->gradients[p->n++] = (kolo_ready_gradient){done_ms, bytes};
        }
    }
    p->kernels_ms = done_ms;
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
    status = kolo_agree(p->comm, list_gradients(p, kolo_session_plan(session)));
done:
    kolo_session_destroy(session);
    kolo_setup_close(&setup);
    return status;
}

/* ---- the model ---- */

/* The step with the buckets that p->ends marks. */
static kolo_modelled_buckets predict(const predictor *p, const char *name, size_t bytes) {
    const double *phase = p->profile->phase_ms;
    const kolo_bucket_times t = kolo_bucket_plan_times(p->gradients, p->n, &p->sum, p->ends);
    kolo_modelled_buckets b = {
        .name = name, .bytes = bytes, .buckets = t.buckets, .sums_ms = t.sums_ms};
    b.exposed_ms = p->sum.overlaps ? fmax(0, t.end_ms - phase[KOLO_PHASE_BACKWARD]) : t.sums_ms;
    b.step_ms = phase[KOLO_PHASE_INPUT] + phase[KOLO_PHASE_FORWARD] + phase[KOLO_PHASE_BACKWARD] +
                b.exposed_ms + phase[KOLO_PHASE_UPDATE];
    return b;
}

static kolo_modelled_buckets predict_fixed(predictor *p, const char *name, size_t bytes) {
    kolo_bucket_plan_fixed(p->gradients, p->n, bytes, p->ends);
    return predict(p, name, bytes);
}

static kolo_status predict_all(predictor *p, owned_model *o) {
    kolo_modelled_buckets *b = o->prediction.buckets;
    const double *phase = p->profile->phase_ms;
    /* The sum of medians is less than the median of sums. */
    for (int i = 0; i < p->n && p->kernels_ms > 0; i++) {
        p->gradients[i].ready_ms *= phase[KOLO_PHASE_BACKWARD] / p->kernels_ms;
    }
    b[0] = predict_fixed(p, "as the options", p->bucket_bytes);
    b[1] = predict_fixed(p, "1 MiB", (size_t)1 << 20);
    b[2] = predict_fixed(p, "4 MiB", (size_t)4 << 20);
    b[3] = predict_fixed(p, "25 MiB", (size_t)25 << 20);
    b[4] = predict_fixed(p, "100 MiB", (size_t)100 << 20);
    b[5] = predict_fixed(p, "one for each", 1);
    KOLO_TRY(kolo_bucket_plan_best(p->gradients, p->n, &p->sum, p->ends));
    b[6] = predict(p, "best", 0);
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
    const double *phase = p->profile->phase_ms;
    double *ms = out->predicted.ms;
    out->workers = run->workers;
    out->threads = run->threads;
    out->batch = run->batch;
    out->regions = p->profile->regions;
    out->fixed_us = 1e3 * p->sum.fixed_ms;
    out->us_per_mib = 1e3 * p->sum.ms_per_byte * (1 << 20);
    out->overlaps = p->sum.overlaps;
    out->measured = run->times.mean;
    out->measured_median_ms = run->step_ms_median;
    ms[KOLO_TIME_STEP] = out->buckets[0].step_ms;
    ms[KOLO_TIME_INPUT] = phase[KOLO_PHASE_INPUT];
    ms[KOLO_TIME_FORWARD] = phase[KOLO_PHASE_FORWARD];
    ms[KOLO_TIME_BACKWARD] = phase[KOLO_PHASE_BACKWARD];
    ms[KOLO_TIME_EXPOSED] = out->buckets[0].exposed_ms;
    ms[KOLO_TIME_UPDATE] = phase[KOLO_PHASE_UPDATE];
    ms[KOLO_TIME_COMMUNICATION] = out->buckets[0].sums_ms;
}

/* ---- entry points ---- */

static kolo_status run(predictor *p, int64_t steps, owned_model *o) {
    kolo_train_result measured;
    KOLO_TRY(tune(p));
    KOLO_TRY(measure_kernels(p, steps));
    KOLO_TRY(kolo_sum_time_measure(p->comm, p->opts.algorithm, SUM_MS, &p->sum));
    KOLO_TRY(find_gradients(p));
    KOLO_TRY(kolo_agree(p->comm, predict_all(p, o)));
    p->opts.steps = UNTIMED_STEPS + steps;
    p->opts.untimed_steps = UNTIMED_STEPS;
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
    p.opts.in_memory = true;
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
