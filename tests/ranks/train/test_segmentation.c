/* Segmentation: training and evaluation with a label for each pixel, on several ranks. The loss is
 * the mean over all labelled pixels of the global batch for any division among ranks, and the mean
 * IoU covers the whole test split. */
#include "kolo/train.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <string.h>

#define DATA "synthetic-seg:N=6,test=5,shape=3x33x40,classes=3,seed=4"
#define MODEL "deeplabv3_resnet101"

static kolo_status train_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_train_opts opts = {.model = MODEL,
                            .model_options = "width=2,aux=1",
                            .data = DATA,
                            .batch = *(const int *)arg,
                            .epochs = 2,
                            .lr = 0.02,
                            .augment = "flip,crop=3",
                            .out_dir = "run"};
    return kolo_train(comm, &opts, NULL, NULL, result);
}

static kolo_status evaluate_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_eval_opts opts = {
        .checkpoint = "run/checkpoint-final.safetensors", .data = DATA, .batch = *(const int *)arg};
    return kolo_evaluate(comm, &opts, result);
}

static void run(int ranks, rank_body body, int arg, kolo_train_result *results) {
    rank_job job = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = body,
                    .arg = &arg,
                    .arg_bytes = sizeof arg,
                    .results = results,
                    .result_bytes = sizeof *results};
    ASSERT_OK(run_rank_job(&job));
}

/* kolo_train compares the parameters of the ranks itself. */
static void maps_are_trained_on_and_evaluated(void **state) {
    kolo_train_result trained[2], alone;
    run(2, train_body, 3, trained); /* of the test data one rank has three, the other two */
    run(1, evaluate_body, 5, &alone);
    assert_true(isfinite(trained[0].final.value[KOLO_METRIC_LOSS]) && trained[0].first_loss > 0.3);
    assert_true(kolo_metrics_get(&alone.test, "mean_iou") > 0 &&
                kolo_metrics_get(&alone.test, "mean_iou") < 1);
    for (int rank = 0; rank < 2; rank++) {
        assert_true(
            fabs(trained[rank].test.value[KOLO_METRIC_LOSS] - alone.test.value[KOLO_METRIC_LOSS]) <
            1e-4 * alone.test.value[KOLO_METRIC_LOSS]);
        assert_true(fabs(kolo_metrics_get(&trained[rank].test, "accuracy") -
                         kolo_metrics_get(&alone.test, "accuracy")) < 2e-3);
        assert_true(fabs(kolo_metrics_get(&trained[rank].test, "mean_iou") -
                         kolo_metrics_get(&alone.test, "mean_iou")) < 2e-3);
    }
}

/* One step on images with few labelled pixels. */
static kolo_status count_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_field fields[] = {
        {"x", KOLO_DTYPE_U8, {3, {3, 32, 32}}, .std = {0.25F, 0.25F, 0.25F}},
        {"y", KOLO_DTYPE_I32, {2, {32, 32}}, .mean = {0}},
    };
    static const uint8_t samples[3 * 32 * 32];
    int32_t labels[32 * 32];
    int rank = kolo_comm_rank(comm);
    for (int i = 0; i < 32 * 32; i++) labels[i] = i < 10 * (rank + 1) ? 1 : -1;
    kolo_session_config opts = {.model = MODEL,
                                .model_options = "width=2,dropout=0",
                                .sample = fields[0].shape,
                                .label = fields[1].shape,
                                .classes = 2,
                                .batch = 1};
    kolo_batch batch = {.count = 1,
                        .first = rank,
                        .global_count = kolo_comm_size(comm),
                        .n_fields = 2,
                        .fields = fields,
                        .data = {samples, labels}};
    kolo_session *session = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create_for(&opts, comm, &session), done);
    KOLO_TRY_GOTO(kolo_session_init(session, 1), done);
    status = kolo_session_step_batch(session, &batch, 0.1, result);
done:
    kolo_session_destroy(session);
    return status;
}

static void losses_are_means_over_labelled_pixels(void **state) {
    kolo_sums sums[2];
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = count_body,
                    .results = sums,
                    .result_bytes = sizeof *sums};
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(sums[rank].labels, 10 + 20);
        assert_int_equal(sums[rank].samples, 2);
        assert_true(kolo_sums_loss(&sums[rank]) > 0 && kolo_sums_loss(&sums[rank]) < 5);
        kolo_metrics m = kolo_sums_metrics(&sums[rank], false);
        assert_true(kolo_metrics_get(&m, "accuracy") <= 1);
    }
}

static void other_labels_are_refused(void **state) {
    kolo_train_opts opts = {.model = MODEL, .data = "synthetic:N=4,shape=3x33x33"};
    assert_int_equal(kolo_train_check(&opts, 1), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(),
                           "takes labels of shape [33,33] for each sample, and "
                           "the data has []: choose data with a label for each"));
    opts = (kolo_train_opts){.model = "resnet18", .data = "synthetic-seg:N=4"};
    assert_int_equal(kolo_train_check(&opts, 1), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "or a model for segmentation"));
}

TEST_MAIN(test_segmentation) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_trained_on_and_evaluated),
        cmocka_unit_test(losses_are_means_over_labelled_pixels),
        cmocka_unit_test(other_labels_are_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
