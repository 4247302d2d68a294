/* Training ONNX files: one and two workers with the same global batch compute the same. */
#include "support/support.h"

#ifdef KOLO_HAS_ONNX

#include "base/compiler.h"
#include "base/status.h"
#include "kolo/kolo.h"
#include "support/ranks.h"

#include <math.h>
#include <string.h>

#define NETS KOLO_SOURCE_DIR "/tests/onnx/nets/"
#define IMAGES "synthetic:N=32,test=8,shape=1x8x8,classes=4"

typedef struct net {
    char model[256], data[64];
} net;

typedef struct outcome {
    double loss;
} outcome;

static kolo_status train(kolo_comm *comm, const void *arg, void *result) {
    const net *n = arg;
    const kolo_train_opts opts = {.model = n->model,
                                  .data = n->data,
                                  .global_batch = 8,
                                  .epochs = 3,
                                  .lr = 0.05,
                                  .no_eval = true};
    kolo_train_result trained;
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &trained));
    ((outcome *)result)->loss = kolo_metrics_get(&trained.final, "loss");
    return KOLO_OK;
}

static void two_workers_compute_what_one_does(void **state) {
    static const net nets[] = {
        {NETS "mlp/model.onnx", IMAGES},
        {NETS "vit/model.onnx", IMAGES},
        {NETS "gpt/model.onnx", "synthetic-tokens:N=32,test=8"},
        {NETS "rnn/model.onnx", "synthetic:N=32,test=8,shape=1x5x3,classes=4"},
    };
    for (size_t i = 0; i < KOLO_COUNT(nets); i++) {
        outcome alone[1], two[2];
        rank_job job = {.n = 1,
                        .body = train,
                        .arg = &nets[i],
                        .arg_bytes = sizeof nets[i],
                        .results = alone,
                        .result_bytes = sizeof(outcome)};
        ASSERT_OK(run_rank_job(&job));
        job.n = 2;
        job.results = two;
        ASSERT_OK(run_rank_job(&job));
        assert_true(isfinite(alone[0].loss) && alone[0].loss > 0);
        assert_true(fabs(alone[0].loss - two[0].loss) < 1e-4);
    }
}

TEST_MAIN(test_onnx_train) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_workers_compute_what_one_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

TEST_MAIN(test_onnx_train) {
    printf("skip: built without ONNX\n");
    return 77;
}

#endif
