/* Numbers of samples that a builder or a mesh refuses: steps, evaluations, predictions and runs
 * are refused by all ranks, also where one rank alone has such a part, and the session goes on.
 */
#include "base/compiler.h"
#include "base/rng.h"
#include "base/status.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 2 * OWN_SAMPLES, WORDS = OWN_WORDS * OWN_WIDTH };

typedef struct refusal {
    int ranks;
    kolo_session_opts opts;
    int64_t refused; /* by the builder, of a rank; 0: none */
    int64_t global;  /* samples of all ranks whose parts are refused */
    bool runs_first; /* kolo_fit makes a step before it comes to these */
    const char *text;
    bool steps_alone; /* evaluations have no micro-batches */
} refusal;

typedef struct outcome {
    uint64_t hash; /* of a parameter, at the end */
    int64_t steps; /* after the run that was refused */
} outcome;

static kolo_status build(kolo_graph *g, int64_t samples, void *arg) {
    const refusal *r = arg;
    if (samples == r->refused) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no graph of %" PRId64 " samples", samples);
    }
    return own_net_build(g, samples, NULL);
}

static kolo_status expect_refusal(const refusal *r, const char *what, kolo_status status) {
    const bool refused = status == KOLO_ERR_ARG || status == KOLO_ERR_UNSUPPORTED;
    if (refused && strstr(kolo_last_error(), r->text)) return KOLO_OK;
    char found[256];
    snprintf(found, sizeof found, "%s", status == KOLO_OK ? "nothing" : kolo_last_error());
    return kolo_error_set(KOLO_ERR_FORMAT, "%s: status %d, %s", what, status, found);
}

/* This rank's share of a step of `global` samples. */
static kolo_status open_batch(const kolo_session *s, int64_t global, int32_t rows[2][MOST * 6],
                              kolo_batch *batch) {
    int64_t first, count;
    KOLO_TRY(kolo_session_share(s, global, &first, &count));
    own_net_fill(first, count, rows[0], rows[1]);
    *batch = (kolo_batch){
        .count = count, .n_fields = 2, .fields = own_net_fields, .data = {rows[0], rows[1]}};
    return KOLO_OK;
}

static kolo_status step(kolo_session *s, int64_t global) {
    int32_t rows[2][MOST * OWN_TOKENS];
    kolo_batch batch;
    KOLO_TRY(open_batch(s, global, rows, &batch));
    return kolo_session_step(s, &batch, NULL);
}

/* Where ranks do not evaluate together, those with other numbers of samples do evaluate. */
static kolo_status forward(kolo_session *s, const refusal *r) {
    int32_t rows[2][MOST * OWN_TOKENS];
    kolo_batch batch;
    kolo_metrics metrics;
    float loss;
    KOLO_TRY(open_batch(s, r->global, rows, &batch));
    const bool fails = kolo_session_evaluates_together(s) || batch.count == r->refused;
    kolo_status status = kolo_session_evaluate(s, &batch, &metrics);
    KOLO_TRY(fails ? expect_refusal(r, "evaluate", status) : status);
    status = kolo_session_predict(s, &batch, "loss", &loss, sizeof loss, NULL);
    return fails ? expect_refusal(r, "predict", status) : status;
}

static kolo_status open_data(int64_t count, int32_t rows[2][MOST * OWN_TOKENS],
                             kolo_dataset **data) {
    own_net_fill(0, count, rows[0], rows[1]);
    const kolo_source source = {
        .count = count, .n_fields = 2, .fields = own_net_fields, .data = {rows[0], rows[1]}};
    return kolo_dataset_create(&source, data);
}

/* A data set of refused samples, and a run whose last step has them. */
static kolo_status runs(kolo_session *s, const refusal *r) {
    int32_t rows[2][MOST * OWN_TOKENS];
    kolo_metrics metrics;
    kolo_dataset *data;
    KOLO_TRY(open_data(r->global, rows, &data));
    kolo_status status = r->steps_alone
                             ? KOLO_OK
                             : expect_refusal(r, "evaluate_dataset",
                                              kolo_session_evaluate_dataset(s, data, &metrics));
    kolo_dataset_close(data);
    KOLO_TRY(status);
    KOLO_TRY(open_data(OWN_SAMPLES + r->global, rows, &data));
    const kolo_fit_opts opts = {.epochs = 1};
    status = expect_refusal(r, "fit", kolo_fit(s, data, NULL, &opts, NULL));
    kolo_dataset_close(data);
    return status;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const refusal *r = arg;
    outcome *o = result;
    kolo_session_opts opts = r->opts;
    kolo_session *s = NULL;
    float words[WORDS];
    kolo_status status;
    opts.global_batch = OWN_SAMPLES;
    KOLO_TRY(kolo_session_create(comm, &opts, build, (void *)r, &s));
    KOLO_TRY_GOTO(runs(s, r), done);
    o->steps = kolo_session_steps(s);
    KOLO_TRY_GOTO(step(s, OWN_SAMPLES), done);
    KOLO_TRY_GOTO(expect_refusal(r, "step", step(s, r->global)), done);
    KOLO_TRY_GOTO(expect_refusal(r, "step again", step(s, r->global)), done);
    if (!r->steps_alone) KOLO_TRY_GOTO(forward(s, r), done);
    KOLO_TRY_GOTO(step(s, OWN_SAMPLES), done);
    KOLO_TRY_GOTO(step(s, OWN_SAMPLES), done); /* `local`: also a round */
    KOLO_TRY_GOTO(kolo_session_get(s, "words", words, sizeof words), done);
    o->hash = kolo_hash_bytes(words, sizeof words);
done:
    kolo_session_destroy(s);
    return status;
}

static void sizes_are_refused_and_the_session_goes_on(void **state) {
    const char *rules = own_net_rules, *no = "no graph of 5 samples", *part = "no graph of 2";
    const refusal cases[] = {
        {2, {.mesh = "tp=2", .placement = rules}, 5, 5, false, no, false},
        {2,
         {.mesh = "tp=2", .placement = rules, .reference_kernels = true},
         5,
         5,
         false,
         no,
         false},
        {2, {.mesh = "sp=2"}, 5, 5, false, no, false},
        {2, {.mesh = "pp=2"}, 5, 5, false, no, false},
        {2, {.mesh = "pp=2", .accumulate = 2}, 2, 5, false, part, true}, /* 3 and 2 */
        {2, {.mesh = "pp=2", .reproducible = 1}, 5, 5, false, no, false},
        {4, {.mesh = "dp=2,tp=2", .placement = rules}, 2, 5, false, part, false},
        {4, {.mesh = "dp=2,pp=2"}, 2, 5, false, part, false},
        {4, {.mesh = "dp=2,sp=2", .zero = 1}, 2, 5, false, part, false},
        {2, {.zero = 3}, 2, 5, true, part, false},
        {2, {.zero = 0}, 2, 5, true, part, false},
        {2, {.consistency = "lag:1"}, 2, 5, true, part, false},
        {2, {.consistency = "local:2"}, 2, 5, true, part, false},
        /* Layers whose sums are divided by samples. */
        {2,
         {.mesh = "tp=2", .placement = "sums 0\n*.gate 0\n*.up 0\n*.down 1\n"},
         0,
         4,
         false,
         "softmax_xent",
         false},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        outcome o[4];
        const rank_job job = {.n = cases[i].ranks,
                              .transport = RANKS_THREAD,
                              .body = body,
                              .arg = &cases[i],
                              .arg_bytes = sizeof cases[i],
                              .results = o,
                              .result_bytes = sizeof *o};
        const kolo_status status = run_rank_job(&job);
        if (status != KOLO_OK) fail_msg("case %zu: %s", i, kolo_last_error());
        for (int rank = 0; rank < cases[i].ranks; rank++) {
            if (o[rank].hash != o[0].hash) fail_msg("case %zu: other parameters", i);
            if (o[rank].steps != cases[i].runs_first)
                fail_msg("case %zu: %d steps", i, (int)o[rank].steps);
        }
    }
}

TEST_MAIN(test_session_sizes_refused) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_refused_and_the_session_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
