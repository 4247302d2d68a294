/* Token models: N ranks with batch B, or micro-batches, compute and report the same as one rank
 * with N*B, dropout included; the loss decreases; evaluation counts every window once. */
#include "support/ranks.h"
#include "support/support.h"
#include "support/token_session.h"
#include "train/inference/evaluate.h"

#include <math.h>
#include <string.h>

enum { STEPS = 12, MAX_RANKS = 3 };

typedef struct setting {
    const char *model, *options;
    int ranks;
    int64_t batch;
    kolo_optimizer optimizer;
    double clip;
    int64_t accumulate; /* 0: one batch is a step */
} setting;

typedef struct outcome {
    uint64_t hash;
    double losses[STEPS], next_losses[STEPS], next_correct, evaluated;
    int64_t samples;
    kolo_evaluation evaluation;
} outcome;

static kolo_status train(kolo_comm *comm, const setting *s, const token_session *t,
                         outcome *result) {
    kolo_session *session = t->session;
    KOLO_TRY(kolo_session_init(session, 5));
    for (int k = 0; k < STEPS; k++) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(t->loader, &batch));
        double lr = s->optimizer == KOLO_OPTIMIZER_ADAMW ? 0.02 : 0.2;
        KOLO_TRY(kolo_session_step_batch(session, &batch, lr, &sums));
        result->losses[k] = kolo_sums_loss(&sums);
        kolo_metrics m = kolo_sums_metrics(&sums, true);
        result->next_losses[k] = kolo_metrics_get(&m, "next_loss");
        result->next_correct += kolo_metrics_get(&m, "next_accuracy") * (double)sums.labels;
    }
    kolo_evaluation evaluation;
    KOLO_TRY(kolo_session_evaluate_all(session, comm, t->test, s->batch, &evaluation));
    result->evaluated = kolo_metrics_get(&evaluation.metrics, "loss");
    result->samples = evaluation.samples;
    result->evaluation = evaluation;
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
    token_session t;
    kolo_session_config opts = {
        .model = s->model,
        .model_options = s->options,
        .batch = s->batch,
        .accumulate = s->accumulate,
        .plan = {.optimizer.kind = s->optimizer,
                 .optimizer.momentum = s->optimizer == KOLO_OPTIMIZER_ADAMW ? 0 : 0.9,
                 .optimizer.clip = s->clip,
                 .bucket_bytes = 4 << 10},
    };
    kolo_status status =
        token_session_open(comm, "synthetic-tokens:N=131,test=17", &windows, STEPS, &opts, &t);
    if (status == KOLO_OK) status = train(comm, s, &t, result);
    token_session_close(&t);
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

/* An epoch of 131 windows in steps of 12 ends with 11, unequal shares for three ranks. */
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
                                    models[i].clip, 0});
        assert_true(one.losses[STEPS - 1] < models[i].falls * one.losses[0]);
        assert_int_equal(one.samples, 17);
        for (int ranks = 2; ranks <= 3; ranks++) {
            outcome many = run((setting){models[i].model, models[i].options, ranks, 12 / ranks,
                                         models[i].optimizer, models[i].clip, 0});
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

static double tested(const outcome *o, const char *name) {
    return kolo_metrics_get(&o->evaluation.metrics, name);
}

/* Masked-token and next-sentence losses are reported separately, over ranks and micro-batches;
 * perplexity is of the tokens. */
static void what_pairs_report_is_of_all(void **state) {
    static const setting cases[] = {
        {.ranks = 1, .batch = 12},
        {.ranks = 1, .batch = 4, .accumulate = 3},
        {.ranks = 3, .batch = 4},
        {.ranks = 2, .batch = 3, .accumulate = 2},
    };
    outcome first = {0};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i];
        s.model = "bert_tiny";
        s.options = "layers=1,width=32,context=12,vocab=20,percent=40,nsp=1";
        outcome o = run(s);
        if (i == 0) first = o;
        assert_int_equal(o.evaluation.samples, 17);
        double loss = tested(&o, "loss"), next = tested(&o, "next_loss");
        double accuracy = tested(&o, "next_accuracy");
        assert_true(next > 0.4 && next < 1 && accuracy > 0);
        assert_true(fabs(tested(&o, "perplexity") - exp(loss - next)) < 1e-9);
        assert_true(fabs(next - tested(&first, "next_loss")) < 1e-5);
        assert_true(fabs(accuracy - tested(&first, "next_accuracy")) < 1e-9);
        assert_true(fabs(o.next_correct - first.next_correct) < 1e-6 && o.next_correct > 0);
        assert_true(test_relative_l2_f64(o.next_losses, first.next_losses, STEPS) < 1e-5);
        assert_true(test_relative_l2_f64(o.losses, first.losses, STEPS) < 1e-5);
    }
}

TEST_MAIN(test_sequences) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_compute_what_one_does),
                                       cmocka_unit_test(what_pairs_report_is_of_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
