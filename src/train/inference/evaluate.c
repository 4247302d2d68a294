/* Evaluation: the ranks walk the data set in order, each with a contiguous part of every global
 * batch. At the end the sums are reduced over the ranks, in double precision. */
#include "train/inference/evaluate.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/process.h"
#include "data/prefetch.h"
#include "kolo/session.h"
#include "kolo/train.h"
#include "train/inference/trained.h"
#include "train/session/agree.h"

#include <math.h>
#include <string.h>

static int rank_of(const kolo_comm *comm) { return comm ? kolo_comm_rank(comm) : 0; }
static int size_of(const kolo_comm *comm) { return comm ? kolo_comm_size(comm) : 1; }

/* The sum of a tensor output over the data set, as a metric reduces it. */
typedef struct tensor_sum {
    double *data; /* NULL: no output yet */
    kolo_shape shape;
} tensor_sum;

typedef struct total {
    kolo_sums sums;
    tensor_sum tensors[KOLO_MAX_METRICS]; /* by row of the table */
} total;

static kolo_status allocate(tensor_sum *t, const kolo_shape *shape) {
    size_t n = (size_t)kolo_shape_count(shape);
    t->shape = *shape;
    t->data = kolo_zalloc(n * sizeof *t->data);
    return t->data ? KOLO_OK : KOLO_NOMEM(n * sizeof *t->data);
}

static kolo_status add_tensors(const kolo_session *session, total *t) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        kolo_tensor tensor;
        const float *output =
            m[i].reduce ? kolo_session_output(session, m[i].output, &tensor) : NULL;
        if (!output) continue;
        tensor_sum *sum = &t->tensors[i];
        if (!sum->data) KOLO_TRY(allocate(sum, &tensor.shape));
        int64_t n = kolo_shape_count(&tensor.shape);
        for (int64_t k = 0; k < n; k++) sum->data[k] += (double)output[k];
    }
    return KOLO_OK;
}

/* Evaluates this rank's share. */
static kolo_status evaluate_share(kolo_session *session, kolo_loader *loader, int64_t global,
                                  total *t) {
    for (;;) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        if (batch.global_count == 0) return KOLO_OK;
        KOLO_TRY(kolo_session_check_loaded(session, &batch, false));
        if (batch.count == 0 && !kolo_session_evaluates_together(session)) continue;
        batch.first += batch.step * global; /* index in the data set, for any number of ranks */
        KOLO_TRY(kolo_session_evaluate_batch(session, &batch, &sums));
        if (batch.count > 0) KOLO_TRY(add_tensors(session, t));
        kolo_sums_add(&t->sums, &sums);
    }
}

/* Another rank has the same samples. */
static void clear(total *t) {
    t->sums = (kolo_sums){0};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) {
        tensor_sum *sum = &t->tensors[i];
        int64_t n = sum->data ? kolo_shape_count(&sum->shape) : 0;
        for (int64_t k = 0; k < n; k++) sum->data[k] = 0;
    }
}

/* Of a pipeline one stage has a tensor. */
static kolo_status share_tensors(const kolo_session *session, total *t) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        tensor_sum *sum = &t->tensors[i];
        if (!m[i].reduce) continue;
        KOLO_TRY(kolo_session_share_tensor(session, &sum->data, &sum->shape));
    }
    return KOLO_OK;
}

static kolo_status sum_ranks(kolo_comm *comm, const kolo_session *session, total *t,
                             kolo_evaluation *evaluation) {
    const kolo_metric *m = kolo_metric_table();
    const bool tokens = kolo_session_has_tokens(session);
    KOLO_TRY(share_tensors(session, t));
    if (!kolo_session_counts(session)) clear(t);
    double sums[KOLO_MAX_METRICS + 3];
    memcpy(sums, t->sums.metric, sizeof t->sums.metric);
    sums[KOLO_MAX_METRICS] = (double)t->sums.samples;
    sums[KOLO_MAX_METRICS + 1] = (double)t->sums.labels;
    sums[KOLO_MAX_METRICS + 2] = t->sums.weight;
    if (comm) KOLO_TRY(kolo_allreduce(comm, sums, KOLO_COUNT(sums), KOLO_DTYPE_F64, KOLO_SUM));
    memcpy(t->sums.metric, sums, sizeof t->sums.metric);
    t->sums.samples = (int64_t)sums[KOLO_MAX_METRICS];
    t->sums.labels = (int64_t)sums[KOLO_MAX_METRICS + 1];
    t->sums.weight = sums[KOLO_MAX_METRICS + 2];
    kolo_metrics metrics = kolo_sums_metrics(&t->sums, tokens);
    for (int i = 0; m[i].name; i++) {
        tensor_sum *sum = &t->tensors[i];
        if (!m[i].reduce) continue;
        KOLO_TRY(kolo_sum_tensor(comm, &sum->data, &sum->shape));
        if (sum->data) metrics.value[i] = m[i].reduce(sum->data, &sum->shape);
    }
    *evaluation = (kolo_evaluation){.metrics = metrics, .samples = t->sums.samples};
    return KOLO_OK;
}

/* Where ranks evaluate together, what one of them cannot compile all refuse, before any of them
 * begins. */
static kolo_status compile_sizes(kolo_session *session, int64_t samples, int64_t global) {
    const int64_t rest = samples % global;
    if (!kolo_session_evaluates_together(session)) return KOLO_OK;
    if (samples >= global) KOLO_TRY(kolo_session_compile_evaluation(session, global));
    return rest > 0 ? kolo_session_compile_evaluation(session, rest) : KOLO_OK;
}

kolo_status kolo_session_evaluate_all(kolo_session *session, kolo_comm *comm,
                                      const kolo_dataset *dataset, int64_t batch,
                                      kolo_evaluation *evaluation) {
    int world = size_of(comm), rank = rank_of(comm); /* of ranks with a session each */
    if (comm && kolo_session_comm(session)) {
        world = kolo_session_data_ranks(session);
        rank = kolo_session_data_rank(session);
    }
    kolo_loader_opts loader_opts = {
        .dataset = dataset,
        .global_batch = batch * world,
        .no_shuffle = true,
        .rank = rank,
        .world = world,
        .threads = kolo_session_loader_threads(session, comm),
    };
    if (kolo_session_is_reproducible(session)) { /* the same batches for any number of ranks */
        loader_opts.shards = world;
        loader_opts.first_shard = rank;
        loader_opts.end_shard = rank + 1;
    }
    total t = {0};
    kolo_loader *loader = NULL;
    KOLO_TRY(
        compile_sizes(session, kolo_dataset_describe(dataset)->count, loader_opts.global_batch));
    kolo_status status = kolo_loader_create(&loader_opts, &loader);
    if (status == KOLO_OK) status = evaluate_share(session, loader, loader_opts.global_batch, &t);
    kolo_loader_destroy(loader);
    const bool waits = status != KOLO_OK && kolo_session_evaluates_together(session);
    if (waits) kolo_session_fail(session, status); /* other ranks, in its groups */
    status = kolo_agree(comm, status);
    if (status == KOLO_OK) status = sum_ranks(comm, session, &t, evaluation);
    for (int i = 0; i < KOLO_MAX_METRICS; i++) kolo_free(t.tensors[i].data);
    return status;
}

kolo_status kolo_session_evaluate_dataset(kolo_session *s, const kolo_dataset *dataset,
                                          kolo_metrics *metrics) {
    kolo_evaluation evaluation;
    if (!s || !dataset || !metrics) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no %s for an evaluation",
                         !s         ? "session"
                         : !dataset ? "data set"
                                    : "place");
    }
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_session_consolidate(s)); /* in a callback of kolo_fit; workers at servers meet */
    KOLO_TRY(kolo_agree(kolo_session_comm(s), kolo_session_check_dataset(s, dataset)));
    KOLO_TRY(kolo_session_evaluate_all(s, kolo_session_comm(s), dataset, kolo_session_batch(s),
                                       &evaluation));
    *metrics = evaluation.metrics;
    return KOLO_OK;
}

/* ---- evaluating a file ---- */

static kolo_status evaluate(kolo_trained *t, kolo_comm *comm, kolo_train_result *result) {
    kolo_evaluation evaluation;
    const kolo_checkpoint_info *info = &t->checkpoint.info;
    int64_t start = kolo_now_ns();
    KOLO_TRY(kolo_session_evaluate_all(t->session, comm, t->dataset, t->opts.batch, &evaluation));
    if (!isfinite(evaluation.metrics.value[KOLO_METRIC_LOSS])) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: the loss is NaN: the parameters are damaged or the run diverged; use another "
            "checkpoint",
            t->opts.checkpoint);
    }
    double seconds = (double)(kolo_now_ns() - start) / 1e9;
    if (comm) KOLO_TRY(kolo_broadcast(comm, &seconds, 1, KOLO_DTYPE_F64, 0));
    *result = (kolo_train_result){
        .workers = size_of(comm),
        .threads = t->opts.threads,
        .batch = kolo_min_i64(t->opts.batch, (evaluation.samples - 1) / size_of(comm) + 1),
        .parameters = kolo_session_parameters(t->session),
        .steps = info->steps,
        .epochs = info->epochs,
        .samples = evaluation.samples,
        .evaluated = true,
        .final = kolo_metrics_none(),
        .test = evaluation.metrics,
        .samples_per_second = (double)evaluation.samples / seconds,
        .peak_rss_bytes = kolo_peak_rss_bytes(),
        .parameter_hash = kolo_store_hash(kolo_session_store(t->session)),
    };
    memcpy(result->model, t->name, sizeof result->model);
    return KOLO_OK;
}

kolo_status kolo_evaluate(kolo_comm *comm, const kolo_eval_opts *opts, kolo_train_result *result) {
    kolo_trained t;
    kolo_status status = kolo_trained_open(opts, comm, &t);
    if (status == KOLO_OK) status = evaluate(&t, comm, result);
    kolo_trained_close(&t);
    return status;
}
