/* Models of tokens: N ranks with a batch of B compute what one with N*B does, dropout included and
 * whatever the split; the loss falls; evaluation counts every window once. */
#include "support/ranks.h"
#include "support/support.h"
#include "train/evaluate.h"
#include "train/session.h"

#include <string.h>

enum { STEPS = 12, MAX_RANKS = 3 };

typedef struct setting {
    const char *model, *options;
    int ranks;
    int64_t batch;
    kolo_optimizer optimizer;
    double clip;
} setting;

typedef struct outcome {
    uint64_t hash;
    double losses[STEPS], evaluated;
    int64_t samples;
} outcome;

static kolo_status train(kolo_comm *comm, const setting *s, kolo_session *session,
                         kolo_loader *loader, const kolo_dataset *test, outcome *result) {
    KOLO_TRY(kolo_session_init(session, 5));
    for (int k = 0; k < STEPS; k++) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        double lr = s->optimizer == KOLO_OPTIMIZER_ADAMW ? 0.02 : 0.2;
        KOLO_TRY(kolo_session_step(session, &batch, lr, &sums));
        result->losses[k] = sums.loss / (double)sums.labels;
    }
    kolo_evaluation evaluation;
    KOLO_TRY(kolo_session_evaluate_all(session, comm, test, s->batch, &evaluation));
    result->evaluated = evaluation.loss;
    result->samples = evaluation.samples;
    result->hash = kolo_store_hash(kolo_session_store(session));
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_dataset_opts windows = {.context = 12,
                                       .vocabulary = 20,
                                       .pairs = strstr(s->options, "nsp=1") != NULL,
                                       .first = 18,
                                       .separator = 19};
    kolo_dataset *set = NULL, *test = NULL;
    kolo_loader *loader = NULL;
    kolo_session *session = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_open_for("synthetic-tokens:N=131", KOLO_SPLIT_TRAIN, &windows, &set),
                  done);
    KOLO_TRY_GOTO(
        kolo_dataset_open_for("synthetic-tokens:test=17", KOLO_SPLIT_TEST, &windows, &test), done);
    kolo_loader_opts loader_opts = {
        .dataset = set,
        .global_batch = s->batch * s->ranks,
        .rank = kolo_comm_rank(comm),
        .world = s->ranks,
        .end = STEPS,
    };
    KOLO_TRY_GOTO(kolo_loader_create(&loader_opts, &loader), done);
    kolo_session_opts opts = {
        .model = s->model,
        .model_options = s->options,
        .sample = kolo_dataset_describe(set)->sample,
        .label = kolo_dataset_describe(set)->label,
        .classes = kolo_dataset_describe(set)->classes,
        .batch = s->batch,
        .plan = {.optimizer = s->optimizer,
                 .momentum = s->optimizer == KOLO_OPTIMIZER_ADAMW ? 0 : 0.9,
                 .clip = s->clip,
                 .bucket_bytes = 4 << 10},
    };
    KOLO_TRY_GOTO(kolo_session_create(&opts, comm, &session), done);
    status = train(comm, s, session, loader, test, result);
done:
    kolo_session_destroy(session);
    kolo_loader_destroy(loader);
    kolo_dataset_close(set);
    kolo_dataset_close(test);
    return status;
}

static outcome run(setting s) {
    static outcome results[MAX_RANKS];
    rank_job job = {
        .n = s.ranks,
        .transport = RANKS_THREAD,
        .body = body,
        .arg = &s,
        .arg_bytes = sizeof s,
        .results = results,
        .result_bytes = sizeof *results,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 1; rank < s.ranks; rank++) {
        assert_int_equal(results[rank].hash, results[0].hash);
    }
    return results[0];
}

/* An epoch of 131 windows in steps of 12 ends with 11, which three ranks share unequally. */
static void ranks_compute_what_one_does(void **state) {
    static const struct {
        const char *model, *options;
        kolo_optimizer optimizer;
        double clip, falls; /* to this part of the first loss, or below */
    } models[] = {
        {"gpt2_tiny", "layers=2,width=32,heads=2,context=12,dropout=10", KOLO_OPTIMIZER_SGD, 0,
         0.95},
        {"gpt2_tiny", "layers=1,width=32,heads=2,context=12", KOLO_OPTIMIZER_ADAMW, 0.3, 0.95},
        {"bert_tiny", "layers=1,width=32,context=12,percent=40,dropout=10", KOLO_OPTIMIZER_ADAMW, 0,
         1.1},
        {"bert_tiny", "layers=1,width=32,context=12,vocab=20,percent=40,nsp=1", KOLO_OPTIMIZER_SGD,
         0, 1.1},
        {"lstm_lm", "layers=2,hidden=24,dropout=10", KOLO_OPTIMIZER_SGD, 1, 0.95},
        {"lstm_lm", "layers=1,hidden=24,tied=1", KOLO_OPTIMIZER_NESTEROV, 0, 0.95},
    };
    for (size_t i = 0; i < KOLO_COUNT(models); i++) {
        outcome one = run((setting){models[i].model, models[i].options, 1, 12, models[i].optimizer,
                                    models[i].clip});
        assert_true(one.losses[STEPS - 1] < models[i].falls * one.losses[0]);
        assert_int_equal(one.samples, 17);
        for (int ranks = 2; ranks <= 3; ranks++) {
            outcome many = run((setting){models[i].model, models[i].options, ranks, 12 / ranks,
                                         models[i].optimizer, models[i].clip});
            double distance = test_relative_l2_f64(many.losses, one.losses, STEPS);
            double evaluated = many.evaluated / one.evaluated - 1;
            assert_int_equal(many.samples, 17);
            if (!(distance < 1e-5 && evaluated < 1e-5 && evaluated > -1e-5)) {
                fail_msg("%s on %d ranks: losses differ by %g, evaluation by %g", models[i].model,
                         ranks, distance, evaluated);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_compute_what_one_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
