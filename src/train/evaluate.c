/* Evaluation: ranks walk the data set in its order, each taking a contiguous part of every global
 * batch; the sums of all ranks are added at the end, in double precision. */
#include "train/evaluate.h"

#include "base/process.h"
#include "kolo/train.h"
#include "train/agree.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int rank_of(const kolo_comm *comm) { return comm ? kolo_comm_rank(comm) : 0; }
static int size_of(const kolo_comm *comm) { return comm ? kolo_comm_size(comm) : 1; }

/* This rank's share. */
static kolo_status evaluate_share(kolo_session *session, kolo_loader *loader, kolo_sums *total) {
    for (;;) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        if (batch.global_count == 0) return KOLO_OK;
        if (batch.count == 0) continue;
        KOLO_TRY(kolo_session_evaluate(session, &batch, &sums));
        total->loss += sums.loss;
        total->correct += sums.correct;
        total->samples += sums.samples;
    }
}

kolo_status kolo_session_evaluate_all(kolo_session *session, kolo_comm *comm,
                                      const kolo_dataset *dataset, int64_t batch,
                                      kolo_evaluation *evaluation) {
    kolo_loader_opts loader_opts = {
        .dataset = dataset,
        .global_batch = batch * size_of(comm),
        .no_shuffle = true,
        .rank = rank_of(comm),
        .world = size_of(comm),
    };
    kolo_sums total = {0};
    kolo_loader *loader = NULL;
    kolo_status status = kolo_loader_create(&loader_opts, &loader);
    if (status == KOLO_OK) status = evaluate_share(session, loader, &total);
    kolo_loader_destroy(loader);
    KOLO_TRY(kolo_agree(comm, status));

    double sums[3] = {total.loss, total.correct, (double)total.samples};
    if (comm) KOLO_TRY(kolo_allreduce(comm, sums, 3, KOLO_DTYPE_F64, KOLO_SUM));
    *evaluation = (kolo_evaluation){
        .loss = sums[0] / sums[2],
        .accuracy = sums[1] / sums[2],
        .samples = (int64_t)sums[2],
    };
    return KOLO_OK;
}

/* ---- a checkpoint on its own ---- */

typedef struct job {
    kolo_checkpoint checkpoint;
    kolo_dataset *dataset;
    kolo_session *session;
} job;

static kolo_status check_fit(const kolo_checkpoint *c, const kolo_dataset_info *data) {
    char want[KOLO_SHAPE_TEXT], have[KOLO_SHAPE_TEXT];
    if (kolo_shape_equal(&c->info.sample, &data->sample) && c->info.classes == data->classes) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is for samples %s in %" PRId64 " classes, and %s has samples %s in %d: "
                     "choose the data that it was trained on",
                     c->path, kolo_shape_text(&c->info.sample, want), c->info.classes, data->name,
                     kolo_shape_text(&data->sample, have), data->classes);
}

/* Everything that needs no other rank. */
static kolo_status prepare(job *j, const char *checkpoint, const char *data, int64_t batch,
                           int threads) {
    if (batch < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "batch %" PRId64 ": choose at least 1", batch);
    }
    if (threads < 1) return KOLO_FAIL(KOLO_ERR_ARG, "%d threads: choose at least 1", threads);
    KOLO_TRY(kolo_checkpoint_open(checkpoint, &j->checkpoint));
    KOLO_TRY(kolo_dataset_open(data, KOLO_SPLIT_TEST, &j->dataset));
    KOLO_TRY(check_fit(&j->checkpoint, kolo_dataset_describe(j->dataset)));
    kolo_session_opts opts = {
        .model = j->checkpoint.info.model,
        .model_options = j->checkpoint.info.model_options,
        .sample = j->checkpoint.info.sample,
        .classes = j->checkpoint.info.classes,
        .batch = batch,
        .evaluate_only = true,
        .plan = {.threads = threads},
    };
    kolo_status status = kolo_session_create(&opts, NULL, &j->session);
    if (status != KOLO_OK) return kolo_fail_in(status, "%s", checkpoint);
    return kolo_checkpoint_load(&j->checkpoint, kolo_session_store(j->session));
}

static kolo_status run(const job *j, kolo_comm *comm, int64_t batch, int threads,
                       kolo_train_result *result) {
    kolo_evaluation evaluation;
    int64_t start = kolo_now_ns();
    KOLO_TRY(kolo_session_evaluate_all(j->session, comm, j->dataset, batch, &evaluation));
    if (!isfinite(evaluation.loss)) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: the test loss is not a number: its parameters are damaged or of a run "
            "that diverged; use another checkpoint",
            j->checkpoint.path);
    }
    double seconds = (double)(kolo_now_ns() - start) / 1e9;
    if (comm) KOLO_TRY(kolo_broadcast(comm, &seconds, 1, KOLO_DTYPE_F64, 0));
    *result = (kolo_train_result){
        .workers = size_of(comm),
        .threads = threads,
        .parameters = kolo_session_parameters(j->session),
        .steps = j->checkpoint.info.steps,
        .epochs = j->checkpoint.info.epochs,
        .samples = evaluation.samples,
        .test_accuracy = evaluation.accuracy,
        .test_loss = evaluation.loss,
        .samples_per_second = (double)evaluation.samples / seconds,
        .peak_rss_bytes = kolo_peak_rss_bytes(),
        .parameter_hash = kolo_store_hash(kolo_session_store(j->session)),
    };
    return KOLO_OK;
}

kolo_status kolo_evaluate(kolo_comm *comm, const char *checkpoint, const char *data, int64_t batch,
                          int threads, kolo_train_result *result) {
    job j = {0};
    batch = batch == 0 ? 64 : batch;
    threads = threads == 0 ? 1 : threads;
    kolo_status status = kolo_agree(comm, prepare(&j, checkpoint, data, batch, threads));
    if (status == KOLO_OK) status = run(&j, comm, batch, threads, result);
    kolo_session_destroy(j.session);
    kolo_dataset_close(j.dataset);
    kolo_checkpoint_close(&j.checkpoint);
    return status;
}
