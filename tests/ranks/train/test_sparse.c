/* Training with row-sparse gradients of the embedding: SGD equals the dense gradient, Adam on
 * several ranks equals one rank, with unequal shares and micro-batches too; bitwise equal on all
 * ranks and in repetitions; last batches without samples on some ranks; what is refused. */
#include "support/ranks.h"
#include "support/support.h"
#include "support/token_session.h"
#include "train/inference/evaluate.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 12, MAX_RANKS = 3, TABLE = 200 * 8 };

typedef enum net { LSTM_LM, GPT2, DLRM } net;

static const struct {
    const char *model, *data, *table;
} nets[] = {
    [LSTM_LM] = {"lstm_lm", "synthetic-tokens", "encoder.weight"},
    [GPT2] = {"gpt2_tiny", "synthetic-tokens", "wte.weight"},
    [DLRM] = {"dlrm", "synthetic-clicks", "emb.weight"},
};

typedef struct setting {
    const char *name, *options;
    net net;
    kolo_plan_opts plan;
    int64_t samples; /* of the data; 0: 131 */
    int ranks;
    int64_t batch, accumulate;
} setting;

typedef struct outcome {
    uint64_t hash;
    double losses[STEPS], evaluated;
    float table[TABLE];
} outcome;

static kolo_status train(kolo_comm *comm, const setting *s, const token_session *t,
                         outcome *result) {
    kolo_session *session = t->session;
    bool adam = s->plan.optimizer.kind == KOLO_OPTIMIZER_ADAM;
    KOLO_TRY(kolo_session_init(session, 5));
    for (int k = 0; k < STEPS; k++) {
        kolo_batch batch;
        kolo_sums sums;
        KOLO_TRY(kolo_loader_next(t->loader, &batch));
        KOLO_TRY(kolo_session_step_batch(session, &batch, adam ? 0.02 : 2, &sums));
        result->losses[k] = kolo_sums_loss(&sums);
    }
    kolo_evaluation evaluation;
    kolo_store *store = kolo_session_store(session);
    KOLO_TRY(kolo_session_evaluate_all(session, comm, t->test, s->batch, &evaluation));
    result->evaluated = kolo_metrics_get(&evaluation.metrics, "loss");
    result->hash = kolo_store_hash(store);
    kolo_store_read(store, kolo_store_find(store, nets[s->net].table), result->table);
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_dataset_opts windows = {
        .context = 4, .vocabulary = 200, .numbers = 3, .categories = 4, .rows = 50};
    char data[64];
    token_session t;
    snprintf(data, sizeof data, "%s:N=%d,test=17", nets[s->net].data,
             (int)(s->samples ? s->samples : 131));
    kolo_session_config opts = {
        .model = nets[s->net].model,
        .model_options = s->options ? s->options : "layers=1,hidden=8,dropout=10",
        .batch = s->batch,
        .accumulate = s->accumulate,
        .plan = s->plan,
    };
    kolo_status status = token_session_open(comm, data, &windows, STEPS, &opts, &t);
    if (status == KOLO_OK) status = train(comm, s, &t, result);
    token_session_close(&t);
    return status;
}

static kolo_status try_to(const setting *s, outcome *results) {
    rank_job job = {
        .n = s->ranks,
        .transport = RANKS_THREAD,
        .body = body,
        .arg = s,
        .arg_bytes = sizeof *s,
        .results = results,
        .result_bytes = sizeof *results,
    };
    return run_rank_job(&job);
}

static const outcome *run(const setting *s, bool sparse, int ranks, outcome *results) {
    setting all = *s;
    all.plan.sparse_embedding = sparse;
    all.plan.bucket_bytes = 1 << 10;
    all.ranks = ranks;
    all.batch = 12 / ranks / (s->accumulate > 0 ? s->accumulate : 1);
    ASSERT_OK(try_to(&all, results));
    for (int rank = 1; rank < ranks; rank++) {
        assert_int_equal(results[rank].hash, results[0].hash);
        assert_memory_equal(results[rank].table, results[0].table, sizeof results->table);
    }
    return results;
}

static void check_alike(const setting *s, int ranks, const outcome *got, const outcome *expected) {
    double losses = test_relative_l2_f64(got->losses, expected->losses, STEPS);
    double table = test_relative_l2_f32(got->table, expected->table, TABLE);
    double evaluated = got->evaluated / expected->evaluated - 1;
    if (losses < 1e-5 && table < 1e-5 && evaluated < 1e-5 && evaluated > -1e-5) return;
    fail_msg("%s on %d ranks: losses differ by %g, the table by %g, evaluation by %g", s->name,
             ranks, losses, table, evaluated);
}

/* An epoch of 131 windows in steps of 12 ends with 11, unequal shares for three ranks; one of 25
 * ends with 1, so two ranks have no sample. */
static void ranks_compute_what_one_does(void **state) {
    static const setting settings[] = {
        {.name = "sgd"},
        {.name = "sgd, clipped", .plan = {.optimizer.clip = 0.05}},
        {.name = "sgd, tail of one", .samples = 25},
        {.name = "sgd, recomputed", .plan = {.recompute = KOLO_RECOMPUTE_FULL}},
        {.name = "sgd, reference", .plan = {.kernels = KOLO_KERNELS_REF}},
        {.name = "sgd, clipped, micro-batches, tail of one",
         .samples = 25,
         .accumulate = 2,
         .plan = {.optimizer.clip = 0.05}},
        {.name = "adam, micro-batches",
         .accumulate = 2,
         .plan = {.optimizer.kind = KOLO_OPTIMIZER_ADAM, .optimizer.eps = 1e-3}},
        {.name = "gpt2, sgd, clipped",
         .net = GPT2,
         .options = "layers=1,width=8,heads=2,context=4,vocab=200,tied=0,dropout=10",
         .plan = {.optimizer.clip = 0.05}},
        {.name = "adam", .plan = {.optimizer.kind = KOLO_OPTIMIZER_ADAM, .optimizer.eps = 1e-3}},
        {.name = "adam, clipped, tail of one",
         .samples = 25,
         .plan = {.optimizer.kind = KOLO_OPTIMIZER_ADAM,
                  .optimizer.eps = 1e-3,
                  .optimizer.clip = 0.05}},
        {.name = "dlrm, sgd, clipped, tail of one",
         .net = DLRM,
         .samples = 25,
         .options = "tables=4,rows=50,dim=8,dense=3,bottom1=5,bottom2=0,bottom3=0,top1=7,top2=6",
         .plan = {.optimizer.clip = 0.05}},
    };
    static outcome dense[MAX_RANKS], one[MAX_RANKS], many[MAX_RANKS], again[MAX_RANKS];
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        const setting *s = &settings[i];
        (void)run(s, false, 1, dense);
        (void)run(s, true, 1, one);
        bool adam = s->plan.optimizer.kind == KOLO_OPTIMIZER_ADAM;
        if (!adam) check_alike(s, 1, one, dense);
        if (adam) assert_true(test_relative_l2_f32(one->table, dense->table, TABLE) > 1e-3);
        assert_true(one->losses[STEPS - 1] != one->losses[0]);
        for (int ranks = 2; ranks <= MAX_RANKS; ranks++) {
            check_alike(s, ranks, run(s, true, ranks, many), one);
            assert_int_equal(run(s, true, ranks, again)->hash, many->hash);
        }
    }
}

static void what_cannot_be_had_is_refused(void **state) {
    static const struct {
        setting s;
        const char *what;
    } cases[] = {
        {{.plan = {.optimizer.momentum = 0.9}}, "momentum of 0.9 changes rows of encoder.weight"},
        {{.plan = {.optimizer.weight_decay = 0.1}}, "weight decay of 0.1 changes rows"},
        {{.plan = {.optimizer.kind = KOLO_OPTIMIZER_ADAMW,
                   .optimizer.weight_decay = 0.1,
                   .optimizer.decay_matrices_only = true}},
         "weight decay of 0.1 changes rows"},
        {{.options = "layers=1,hidden=8,tied=1"}, "encoder.weight is also read by linear"},
    };
    static outcome results[MAX_RANKS];
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s;
        s.plan.sparse_embedding = true;
        s.ranks = 1 + (int)i % 2;
        s.batch = 2;
        assert_int_equal(try_to(&s, results), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), cases[i].what)) {
            fail_msg("case %zu: \"%s\"", i, kolo_last_error());
        }
    }
}

TEST_MAIN(test_sparse) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_compute_what_one_does),
                                       cmocka_unit_test(what_cannot_be_had_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
