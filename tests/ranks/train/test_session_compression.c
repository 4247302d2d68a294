/* Sessions whose compression begins during their steps: "auto", by given costs, and 1-bit Adam. A
 * program's loop has the bits of kolo_fit; files and checkpoints from before and after continue. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/sum_model.h"
#include "support/support.h"
#include "train/session/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, STEPS = 9, WORDS = OWN_WORDS * OWN_WIDTH, SAMPLES = 40 };

typedef struct policy {
    const char *compress;
    kolo_optimizer optimizer;
    int begins; /* the first step that compresses */
    bool anew;  /* from a file of before it measures anew, so that it begins later */
} policy;

static const policy policies[] = {
    {"1bit,warmup=4", KOLO_OPTIMIZER_ADAMW, 4, false},
    {"auto=int8", KOLO_OPTIMIZER_SGD, 5, true},
};

/* Compression pays, whatever is measured. */
static const kolo_compression_costs costs = {.sum = {1, 1, 1, 1},
                                             .gather = {1, 0.5, 1, 0.5},
                                             .encode_ms = 0.01,
                                             .decode_ms = 0.01,
                                             .ratio = 0.27};

static kolo_status create(kolo_comm *comm, const policy *p, kolo_session **s) {
    const kolo_session_opts opts = {.global_batch = OWN_SAMPLES,
                                    .lr = 0.01,
                                    .optimizer = {.kind = p->optimizer},
                                    .seed = 3,
                                    .compress = p->compress,
                                    .compress_min_bytes = 1000};
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, s));
    (*s)->opts.costs = &costs;
    return KOLO_OK;
}

static kolo_status steps(kolo_session *s, int from, int to) {
    own_net_samples samples;
    kolo_batch batch;
    for (int k = from; k < to; k++) {
        KOLO_TRY(own_net_batch(s, k, &samples, &batch));
        KOLO_TRY(kolo_session_step(s, &batch, NULL));
    }
    return KOLO_OK;
}

static kolo_status hash_words(kolo_session *s, uint64_t *hash) {
    float words[WORDS];
    KOLO_TRY(kolo_session_get(s, "words", words, sizeof words));
    *hash = kolo_hash_bytes(words, sizeof words);
    return KOLO_OK;
}

static bool has_errors(const kolo_session *s) {
    return kolo_store_find(kolo_session_store(s), "optimizer.residual.words") != NULL;
}

/* ---- files ---- */

typedef struct outcome {
    bool errors[STEPS + 1]; /* after this many steps */
    bool gone;              /* of a session that loaded a file from before, */
    uint64_t whole, back;   /* which then makes the same steps */
    uint64_t loaded[STEPS];
    uint64_t kept; /* after a file that was refused */
    int64_t steps;
} outcome;

static const char *name_of(char name[32], int step) {
    snprintf(name, 32, "step%d.safetensors", step);
    return name;
}

static kolo_status train(kolo_session *s, outcome *o) {
    char name[32];
    for (int k = 0; k <= STEPS; k++) {
        KOLO_TRY(kolo_session_save(s, name_of(name, k)));
        o->errors[k] = has_errors(s);
        if (k < STEPS) KOLO_TRY(steps(s, k, k + 1));
    }
    return hash_words(s, &o->whole);
}

/* Of another graph, after no step. */
static kolo_status save_other(kolo_comm *comm) {
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, NULL, sum_build, NULL, &s));
    const kolo_status status = kolo_session_save(s, "other.safetensors");
    kolo_session_destroy(s);
    return status;
}

static kolo_status load_and_go_on(kolo_session *s, int step, bool refuse, uint64_t *hash) {
    char name[32];
    KOLO_TRY(kolo_session_load(s, name_of(name, step)));
    if (kolo_session_steps(s) != step) return kolo_error_set(KOLO_ERR_FORMAT, "steps");
    if (refuse && (kolo_session_load(s, "other.safetensors") != KOLO_ERR_FORMAT ||
                   !strstr(kolo_last_error(), "is missing"))) {
        return kolo_error_set(KOLO_ERR_PEER, "another graph's file: %s", kolo_last_error());
    }
    KOLO_TRY(steps(s, step, STEPS));
    return hash_words(s, hash);
}

static kolo_status load_into_new(kolo_comm *comm, const policy *p, int step, bool refuse,
                                 uint64_t *hash) {
    kolo_session *s = NULL;
    KOLO_TRY(create(comm, p, &s));
    const kolo_status status = load_and_go_on(s, step, refuse, hash);
    kolo_session_destroy(s);
    return status;
}

static kolo_status files_body(kolo_comm *comm, const void *arg, void *result) {
    const policy *p = arg;
    outcome *o = result;
    kolo_session *s = NULL;
    char name[32];
    kolo_status status;
    KOLO_TRY(create(comm, p, &s));
    KOLO_TRY_GOTO(train(s, o), done);
    for (int k = 1; k < STEPS; k++) {
        KOLO_TRY_GOTO(load_into_new(comm, p, k, false, &o->loaded[k]), done);
    }
    KOLO_TRY_GOTO(save_other(comm), done);
    KOLO_TRY_GOTO(load_into_new(comm, p, STEPS - 2, true, &o->kept), done);
    KOLO_TRY_GOTO(kolo_session_load(s, name_of(name, 2)), done);
    o->gone = !has_errors(s);
    KOLO_TRY_GOTO(load_and_go_on(s, 2, false, &o->back), done);
    o->steps = kolo_session_steps(s);
done:
    kolo_session_destroy(s);
    return status;
}

static void files_from_before_and_after_continue(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        const policy *p = &policies[i];
        outcome o[RANKS];
        const rank_job job = {.n = RANKS,
                              .transport = RANKS_THREAD,
                              .body = files_body,
                              .arg = p,
                              .arg_bytes = sizeof *p,
                              .results = o,
                              .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < RANKS; rank++) {
            for (int k = 0; k <= STEPS; k++) assert_int_equal(o[rank].errors[k], k > p->begins);
            for (int k = 1; k < STEPS; k++) {
                const bool same = !p->anew || k > p->begins;
                assert_true(o[rank].loaded[k] == (same ? o[0].whole : o[0].loaded[k]));
            }
            assert_true(o[rank].whole == o[0].whole);
            if (o[rank].kept != o[0].whole)
                fail_msg("%s: a refused file changes bits", p->compress);
            if (!o[rank].gone || o[rank].back != o[0].loaded[2]) {
                fail_msg("%s: a session does not go back", p->compress);
            }
            assert_int_equal(o[rank].steps, STEPS);
        }
    }
}

/* ---- runs ---- */

typedef struct run_outcome {
    uint64_t looped, fitted, resumed[3];
    bool errors;
} run_outcome;

/* Two epochs: NULL: a loop of the program. */
static kolo_status run(kolo_comm *comm, const policy *p, const kolo_dataset *data,
                       const kolo_fit_opts *fit, uint64_t *hash, bool *errors) {
    kolo_session *s = NULL;
    KOLO_TRY(create(comm, p, &s));
    kolo_status status = fit ? kolo_fit(s, data, NULL, fit, NULL) : own_net_loop(s, data, 2);
    if (status == KOLO_OK) status = hash_words(s, hash);
    *errors = has_errors(s);
    kolo_session_destroy(s);
    return status;
}

static kolo_status runs_body(kolo_comm *comm, const void *arg, void *result) {
    const policy *p = arg;
    run_outcome *o = result;
    int32_t rows[2][SAMPLES * OWN_TOKENS];
    kolo_fit_opts fit = {.epochs = 2, .out_dir = "run", .checkpoint_steps = 1, .keep = 100};
    static const char *const from[] = {"run/checkpoint-3.safetensors",
                                       "run/checkpoint-5.safetensors",
                                       "run/checkpoint-8.safetensors"};
    kolo_dataset *data;
    own_net_fill(0, SAMPLES, rows[0], rows[1]);
    const kolo_source source = {
        .count = SAMPLES, .n_fields = 2, .fields = own_net_fields, .data = {rows[0], rows[1]}};
    KOLO_TRY(kolo_dataset_create(&source, &data));
    kolo_status status = run(comm, p, data, NULL, &o->looped, &o->errors);
    if (status == KOLO_OK) status = run(comm, p, data, &fit, &o->fitted, &o->errors);
    fit.checkpoint_steps = fit.keep = 0;
    for (size_t i = 0; i < KOLO_COUNT(from) && status == KOLO_OK; i++) {
        fit.out_dir = NULL;
        fit.resume = from[i];
        status = run(comm, p, data, &fit, &o->resumed[i], &o->errors);
    }
    kolo_dataset_close(data);
    return status;
}

static void runs_have_the_bits_of_a_loop_and_resume(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        run_outcome o[RANKS];
        const rank_job job = {.n = RANKS,
                              .transport = RANKS_THREAD,
                              .body = runs_body,
                              .arg = &policies[i],
                              .arg_bytes = sizeof policies[i],
                              .results = o,
                              .result_bytes = sizeof *o};
        assert_int_equal(system("rm -rf run"), 0);
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < RANKS; rank++) {
            assert_true(o[rank].errors && o[rank].fitted == o[0].looped);
            for (int k = policies[i].anew ? 2 : 0; k < 3; k++) {
                assert_true(o[rank].resumed[k] == o[0].looped);
            }
        }
    }
}

/* ---- a rank without memory ---- */

typedef struct shortage {
    policy policy;
    int fails; /* the allocation of rank 1 that fails while it loads a file */
} shortage;

static kolo_status save_late(kolo_comm *comm, const void *arg, void *result) {
    kolo_session *s = NULL;
    KOLO_TRY(create(comm, arg, &s));
    kolo_status status = steps(s, 0, STEPS);
    if (status == KOLO_OK) status = kolo_session_save(s, "late.safetensors");
    kolo_session_destroy(s);
    return status;
}

/* *goes_on: a step after the file was refused succeeds. */
static kolo_status load_with_shortage(kolo_comm *comm, const void *arg, void *result) {
    const shortage *m = arg;
    bool *goes_on = result;
    kolo_session *s = NULL;
    char text[256];
    KOLO_TRY(create(comm, &m->policy, &s));
    if (kolo_comm_rank(comm) == 1) kolo_alloc_fail_nth(m->fails);
    kolo_status status = kolo_session_load(s, "late.safetensors");
    kolo_alloc_fail_nth(0);
    if (status == KOLO_ERR_NOMEM) {
        snprintf(text, sizeof text, "%s", kolo_last_error());
        *goes_on = steps(s, 0, 1) == KOLO_OK;
        status = kolo_error_set(status, "%s", text);
    }
    kolo_session_destroy(s);
    return status;
}

/* Whether the allocation failed: then both ranks learn it, and none waits for the other. */
static bool fails_on_both(const shortage *m) {
    bool goes_on[RANKS] = {false, false};
    rank_outcome ends[RANKS];
    const rank_job job = {.n = RANKS,
                          .transport = RANKS_THREAD,
                          .body = load_with_shortage,
                          .arg = m,
                          .arg_bytes = sizeof *m,
                          .results = goes_on,
                          .result_bytes = sizeof goes_on[0],
                          .outcomes = ends,
                          .timeout_ms = 10000};
    if (run_rank_job(&job) == KOLO_OK) return false;
    for (int rank = 0; rank < RANKS; rank++) {
        if (ends[rank].status != KOLO_OK && strstr(ends[rank].error, "memory")) continue;
        fail_msg("%s, allocation %d: rank %d: %d \"%s\"", m->policy.compress, m->fails, rank,
                 ends[rank].status, ends[rank].error);
    }
    if (goes_on[0] != goes_on[1]) {
        fail_msg("%s, allocation %d: one rank alone goes on", m->policy.compress, m->fails);
    }
    return true;
}

static void a_rank_without_memory_refuses_a_file_on_all(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        shortage m = {.policy = policies[i], .fails = 1};
        const rank_job job = {.n = RANKS,
                              .transport = RANKS_THREAD,
                              .body = save_late,
                              .arg = &policies[i],
                              .arg_bytes = sizeof policies[i]};
        ASSERT_OK(run_rank_job(&job));
        while (fails_on_both(&m)) m.fails += 1 + m.fails / TEST_FEWER(4, 12);
        assert_true(m.fails > 100);
    }
}

TEST_MAIN(test_session_compression) {
    (void)sum_fill(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_memory_refuses_a_file_on_all),
        cmocka_unit_test(files_from_before_and_after_continue),
        cmocka_unit_test(runs_have_the_bits_of_a_loop_and_resume),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
